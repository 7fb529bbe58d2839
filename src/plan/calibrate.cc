#include "src/plan/calibrate.h"

#include <malloc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "openssl/evp.h"
#include "src/base/byte_source.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/machines/chunk_seal.h"
#include "src/machines/transport.h"
#include "src/onion/onion.h"
#include "src/parallel/content_mac.h"
#include "src/pir/registry/registry.h"
#include "src/plan/measure.h"
#include "src/plan/synthetic_term.h"
#include "src/round/refresh.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/part_streams.h"
#include "src/server/slices.h"
#include "src/server/synthetic_round.h"
#include "src/sharing/batch.h"
#include "src/shuffle/permutation.h"
#include "src/shuffle/scatter.h"
#include "src/storage/file.h"
#include "src/storage/spool.h"
#include "src/storage/user_directories.h"
#include "src/wire/query_batch.h"
#include "src/wire/text.h"

namespace shoal::plan {
namespace {

constexpr size_t kMostParties = 8;

// Bytes of a list that are handled at a time.
constexpr size_t kPiece = 1 << 20;
// Answers of two lengths, whose costs give those of an answer and of a byte.
constexpr size_t kShortAnswer = 112, kLongAnswer = 1072;

// Reads and digests a whole source as a party does.
void Digest(ByteSource& source, const ContentMac& mac, ThreadPool& pool) {
  ContentMac::Stream digest(mac);
  for (;;) {
    const BytesView piece = *source.Next();
    if (piece.empty()) break;
    digest.Update(piece, pool);
  }
  (void)digest.Finish();
}

// Party 1 of a made-up round, or another one, with `hops` parties after it.
struct SyntheticParty {
  SyntheticParty(size_t hops, size_t positions, RandomSource& random, uint32_t number = 1)
      : round({.parties = static_cast<uint32_t>(hops + number),
               .answer_bytes = 0,
               .max_slots = static_cast<uint32_t>(2 * positions),
               .noise = SomeNoise()},
              random),
        mac(random.NewSeed().view(), "shoal calibrate"),
        secrets(round.secrets(number)),
        context(round.context(number)) {}
  const server::SyntheticRound round;
  const ContentMac mac;
  const server::RoundSecrets& secrets;
  server::RoundContext context;  // changed by measurements
};

void MeasureNoise(size_t n, RandomSource& random, ThreadPool& pool, UnitCosts& costs) {
  // The fewest and the most hops, which give the best interpolation between them.
  constexpr size_t kFew = 1, kMany = kMostParties - 1;
  const auto once = [&](size_t hops) {
    SyntheticParty party(hops, 0, random);
    party.context.max_rows = n / (19 * hops) + 1;  // rows with about 19 noise queries each
    FreshPlace place(pool);
    server::NoiseBatch made;
    const Spent cost =
        Once([&] { made = *MakeNoise(party.context, party.secrets, place.resources); });
    return Each(cost, made.size());
  };
  std::vector<Spent> of_few, of_many;
  for (int run = 0; run < kTurns; ++run) {
    of_few.push_back(once(kFew));
    of_many.push_back(once(kMany));
  }
  const Spent few = Middle(of_few), many = Middle(of_many);
  // Bytes that the layers of an onion seal.
  const auto bytes_of = [](size_t hops) {
    double bytes = 0;
    for (size_t l = 2; l <= hops; ++l) bytes += static_cast<double>(onion::OnionBytes(l - 1));
    return bytes;
  };
  // Sealing a byte costs as much as opening it, with the same cipher.
  const double byte = costs.open_byte_ns();
  const double of_one = few.cpu_ns - byte * bytes_of(kFew);
  // The cost of a query beside its layers is small, and may vanish in the noise of the difference.
  const double seal =
      std::min(of_one, (many.cpu_ns - few.cpu_ns - byte * (bytes_of(kMany) - bytes_of(kFew))) /
                           static_cast<double>(kMany - kFew));
  costs.set_seal_byte_ns(byte);
  costs.set_seal_ns(Positive(seal));
  costs.set_noise_ns(Positive(of_one - seal));
  costs.set_noise_serial(SerialShare(few, pool));
}

// Puts n records to the places of a permutation and reads them. Returns the cost of a byte.
double MoveByteNs(size_t n, std::span<const uint32_t> places, ThreadPool& pool) {
  constexpr size_t kRecord = onion::OnionBytes(1), kRun = 1 << 16;
  Bytes records(std::min(n, kRun) * kRecord, 1);
  const Spent cost = Typical([&] {
    FreshPlace place(pool);
    return Once([&] {
      shuffle::Scatter scatter = *shuffle::Scatter::Create(
          n, kRecord, *place.spools.Create(shuffle::Scatter::MemoryBytes(n, kRecord)));
      for (size_t at = 0; at < n; at += kRun) {
        const size_t count = std::min(kRun, n - at);
        SHOAL_CHECK(
            scatter.Put(places.subspan(at, count), BytesView(records).first(count * kRecord), pool)
                .ok());
      }
      while (!scatter.Next(pool)->empty()) {
      }
    });
  });
  return cost.cpu_ns / static_cast<double>(n * kRecord);
}

// Sorts n fingerprints and draws a permutation. Returns the cost of an item.
double SortAndDrawNs(size_t n, RandomSource& random, ThreadPool& pool) {
  struct Print {
    uint64_t value;
    uint32_t position;
    bool operator<(const Print& other) const { return value < other.value; }
  };
  const Seed key = random.NewSeed();
  return Typical([&] {
           std::vector<Print> prints(n);
           for (size_t i = 0; i < n; ++i) {
             prints[i] = {0x9e3779b97f4a7c15u * (i + 1), static_cast<uint32_t>(i)};
           }
           return Once([&] {
             std::sort(prints.begin(), prints.end());
             (void)*shuffle::RandomPermutation(n, key.view(), pool);
           });
         }).cpu_ns /
         static_cast<double>(n);
}

// Opens and shuffles n onions at party 2 with `hops` parties after it, or at party 1, which gets
// them in submissions.
class PracticeOffline {
 public:
  PracticeOffline(size_t n, size_t hops, RandomSource& random, ThreadPool& pool,
                  uint32_t number = 2)
      : n_(n), party_(hops, n, random, number), pool_(pool) {
    if (number == 1) {
      input_ = party_.round.MakeInput(n, kSlotsOfASubmission, random, pool).list;
      return;
    }
    const size_t layers = hops + 1, bytes = onion::OnionBytes(layers);
    constexpr size_t kChunk = 1024;
    input_.resize(n * bytes);
    Bytes ephemeral(n * layers * 32), seeds(ephemeral.size());
    random.Fill(ephemeral);
    pool.ParallelFor(n, kChunk, [&](size_t begin, size_t end) {
      const size_t k = end - begin;
      onion::BuildOnions({}, number, std::span(party_.round.recipients()).subspan(number - 1),
                         BytesView(ephemeral).subspan(begin * layers * 32, k * layers * 32),
                         MutableBytes(seeds).subspan(begin * layers * 32, k * layers * 32),
                         MutableBytes(input_).subspan(begin * bytes, k * bytes));
    });
  }

  // Runs the stage once, as ListIntake and OpenRound::Offline do.
  void Run() {
    FreshPlace place(pool_);
    ContentMac::Stream digest(party_.mac);
    std::optional<server::OnionIntake> intake;
    open_.push_back(Once([&] {
      intake.emplace(party_.context.is_frontend()
                         ? *server::OnionIntake::BeginSubmissions(
                               party_.context, party_.secrets, input_.size(), n_, place.resources)
                         : *server::OnionIntake::Begin(party_.context, party_.secrets,
                                                       input_.size(), place.resources));
      for (size_t at = 0; at < input_.size(); at += kPiece) {
        const BytesView piece = BytesView(input_).subspan(at, std::min(kPiece, input_.size() - at));
        SHOAL_CHECK(intake->Take(piece).ok());
        digest.Update(piece, pool_);
      }
    }));
    server::NoiseBatch none;
    none.onions = *place.spools.Create(0);
    rest_.push_back(Once([&] {
      server::OfflineOutput out = *RunOffline(party_.context, server::ShuffleKeys(party_.secrets),
                                              std::move(none), *std::move(intake), place.resources);
      SHOAL_CHECK(out.dead == 0);
      Digest(out.onions, party_.mac, pool_);
    }));
  }

  // The median cost of an onion: of opening it, and of everything after that.
  Spent Open() const { return Each(Middle(open_), n_); }
  Spent Rest() const { return Each(Middle(rest_), n_); }

 private:
  const size_t n_;
  SyntheticParty party_;
  ThreadPool& pool_;
  Bytes input_;
  std::vector<Spent> open_, rest_;
};

// The cost of a byte of an onion, sealed and digested; opening it costs as much as sealing. Onions
// are short: of two lengths of theirs the difference is lost in how much the multiplications vary.
// So `n` messages of 4 KiB are sealed, in turns with as many short ones.
double OnionByteNs(size_t n, RandomSource& random, ThreadPool& pool) {
  constexpr size_t kShort = 32, kLong = 4096, kChunk = 128;
  const SyntheticParty party(1, 0, random);
  const onion::Info info(onion::Aead::kChaCha20Poly1305, {});
  const Bytes messages(n * kLong, 1);
  Bytes ephemeral(n * 32), boxes(n * (kLong + onion::kSealBytes)), exports(n * 32);
  random.Fill(ephemeral);
  const auto seal = [&](size_t bytes) {
    const size_t sealed = bytes + onion::kSealBytes;
    return Each(Once([&] {
                  pool.ParallelFor(n, kChunk, [&](size_t begin, size_t end) {
                    onion::SealBatch(party.round.recipients().front(), info, "calibrate",
                                     {ephemeral.data() + begin * 32, 32, 32},
                                     {messages.data() + begin * bytes, bytes, bytes},
                                     {boxes.data() + begin * sealed, sealed, sealed},
                                     {exports.data() + begin * 32, 32, 32}, end - begin);
                  });
                }),
                n)
        .cpu_ns;
  };
  std::vector<double> differences;
  for (int run = 0; run < kTurns; ++run) differences.push_back(seal(kLong) - seal(kShort));
  std::sort(differences.begin(), differences.end());
  const Spent digest = Typical([&] { return Once([&] { (void)party.mac.Of(boxes, pool); }); });
  return Positive(differences[kTurns / 2] / (kLong - kShort) + Each(digest, boxes.size()).cpu_ns);
}

void SetCurve(double few, double many, Curve& curve) {
  curve.set_few_ns(Positive(few));
  curve.set_many_ns(Positive(many));
}

void MeasureOffline(size_t opened, size_t few, size_t many, RandomSource& random, ThreadPool& pool,
                    UnitCosts& costs) {
  constexpr size_t kMost = kMostParties - 2;
  PracticeOffline first(opened, 1, random, pool, 1), backend(opened, 0, random, pool),
      one(opened, 1, random, pool), most(opened / 4, kMost, random, pool);
  // The parties take turns, as their differences are measured.
  for (int run = 0; run < kTurns; ++run) {
    for (PracticeOffline* party : {&first, &backend, &one, &most}) party->Run();
  }
  const auto onion = [](size_t layers) { return static_cast<double>(onion::OnionBytes(layers)); };
  const double open_byte = OnionByteNs(opened / 4, random, pool);
  costs.set_open_byte_ns(open_byte);
  costs.set_open_ns(Positive(
      (backend.Open().cpu_ns + one.Open().cpu_ns - (onion(1) + onion(2)) * open_byte) / 2));
  costs.set_slot_ns(Positive(first.Open().cpu_ns - onion(1) * open_byte));
  const double move =
      Positive((most.Rest().cpu_ns - one.Rest().cpu_ns) / (onion(kMost) - onion(1)));
  const double place = Positive(one.Rest().cpu_ns - onion(1) * move);
  costs.set_offline_serial(SerialShare(one.Open() + one.Rest(), pool));
  // Stages of many onions would take long, so the parts that cost more in them are measured
  // separately.
  const auto sort_and_draw = [&](size_t n) { return SortAndDrawNs(n, random, pool); };
  const auto move_byte = [&](size_t n) {
    const Seed key = random.NewSeed();
    return MoveByteNs(n, shuffle::RandomPermutation(n, key.view(), pool)->span(), pool);
  };
  const auto set = [&](double measured, const auto& of, Curve& curve) {
    const double least = of(opened);
    SetCurve(measured + std::max(0.0, of(few) - least), measured + std::max(0.0, of(many) - least),
             curve);
  };
  set(backend.Rest().cpu_ns, sort_and_draw, *costs.mutable_backend_place());
  set(place, sort_and_draw, *costs.mutable_place());
  set(move, move_byte, *costs.mutable_move_byte());
}

// One party's online stage over n positions of a made-up state. Its cost depends on no value.
class PracticeOnline {
 public:
  PracticeOnline(size_t n, RandomSource& random, ThreadPool& pool)
      : n_(n), party_(1, n, random), backend_(0, n, random), pool_(pool) {
    queries_.positions.resize(n);
    std::iota(queries_.positions.begin(), queries_.positions.end(), 0u);
    queries_.tallies.assign(n, 12345);
    encoded_ = wire::EncodeQueryBatch(queries_, static_cast<uint32_t>(n));
    plain_ = StateOf(0, random);
    noisy_ = StateOf(n, random);
  }

  // Makes what the offline stage makes ahead for these answers. There are no pads if answers have
  // no bytes.
  Spent Ready(size_t answer_bytes) {
    Spent cost;
    forwarding_ = {};
    for (server::OnlineMaterial* state : {&plain_, &noisy_}) {
      state->pads = {};
      state->forward_memory = {};
      std::unique_ptr<FreshPlace>& place = state == &plain_ ? plain_place_ : noisy_place_;
      place = std::make_unique<FreshPlace>(pool_);
      const uint64_t pads = answer_bytes == 0 ? 0 : n_ * sharing::PadBytes(answer_bytes);
      place->Warm(pads);
      party_.context.answer_bytes = answer_bytes;
      cost = Once([&] {
        SHOAL_CHECK(MakeReady(party_.context, *place->arena, place->resources, *state).ok());
      });
      SHOAL_CHECK(state->pads.size() == pads);
    }
    return Each(cost, n_);
  }

  // Forwards queries as Party::Queries does, with as many noise queries or with none.
  Spent Forward(bool noise) {
    server::OnlineMaterial& state = noise ? noisy_ : plain_;
    forwarding_ = {};
    const FreshPlace& place = *(noise ? noisy_place_ : plain_place_);
    state.forward_memory =
        *server::ForwardMemory::MakeReady(state.next_positions, *place.arena, pool_);
    return Each(Once([&] {
                  const wire::QueryBatch in = *wire::DecodeQueryBatch(encoded_, state.positions);
                  (void)party_.mac.Of(encoded_, pool_);
                  forwarding_ = *ForwardQueries(party_.context, state, in, place.resources);
                  (void)party_.mac.Of(std::exchange(forwarding_.queries, {}), pool_);
                }),
                n_);
  }

  // Returns answers as Party::Answers does, after Ready and Forward.
  Spent Back(bool noise, size_t answer_bytes) {
    const server::OnlineMaterial& state = noise ? noisy_ : plain_;
    party_.context.answer_bytes = answer_bytes;
    const Bytes piece(kPiece);
    const size_t tagged_bytes = party_.context.tagged_bytes();
    const uint64_t total = state.next_positions * tagged_bytes;
    FreshPlace place(pool_);
    place.Warm(shuffle::Scatter::MemoryBytes(forwarding_.places, tagged_bytes));
    return Each(
        Once([&] {
          server::AnswerIntake intake = *server::AnswerIntake::Begin(
              party_.context, queries_, forwarding_, total, place.resources);
          ContentMac::Stream digest(party_.mac);
          for (uint64_t at = 0; at < total; at += kPiece) {
            const BytesView part = BytesView(piece).first(std::min<uint64_t>(kPiece, total - at));
            digest.Update(part, pool_);
            SHOAL_CHECK(intake.Take(part).ok());
          }
          (void)digest.Finish();
          Digest(**ReturnAnswers(
                     server::AnswerKeys::Of(party_.context, party_.secrets, state, queries_),
                     std::move(intake), place.resources),
                 party_.mac, pool_);
        }),
        n_);
  }

  // Answers queries as Party::AnswerQueries does, after Ready.
  Spent Answer(size_t answer_bytes, double table_bytes) {
    const auto rows = static_cast<uint64_t>(table_bytes / static_cast<double>(answer_bytes));
    const Bytes table(rows * answer_bytes, 1);
    std::vector<uint32_t> asked(n_);
    for (size_t i = 0; i < n_; ++i) {
      asked[i] = static_cast<uint32_t>(0x9e3779b97f4a7c15u * (i + 1) % rows);
    }
    wire::QueryBatch queries = queries_;
    sharing::FirstTallies(plain_.seeds, 1, {}, asked, queries.tallies);
    const Bytes encoded = wire::EncodeQueryBatch(queries, static_cast<uint32_t>(n_));
    backend_.context.answer_bytes = answer_bytes;
    backend_.context.max_rows = rows;
    return Each(Once([&] {
                  const wire::QueryBatch in =
                      *wire::DecodeQueryBatch(encoded, static_cast<uint32_t>(n_));
                  (void)backend_.mac.Of(encoded, pool_);
                  Digest(**AnswerQueries(
                             server::AnswerKeys::Of(backend_.context, backend_.secrets, plain_, in),
                             {table, rows}, {&pool_, nullptr}),
                         backend_.mac, pool_);
                }),
                n_);
  }

 private:
  server::OnlineMaterial StateOf(size_t noise, RandomSource& random) const {
    server::OnlineMaterial state;
    state.positions = static_cast<uint32_t>(n_);
    state.next_positions = static_cast<uint32_t>(n_ + noise);
    constexpr auto kSecret = PageBuffer::Content::kSecret;
    state.seeds = *PageBuffer::Create(32 * n_, kSecret);
    random.Fill(state.seeds);
    const Seed key = random.NewSeed();
    const PageArray<uint32_t> place = *shuffle::RandomPermutation(n_ + noise, key.view(), pool_);
    state.target = *PageArray<uint32_t>::Create(n_, kSecret);
    std::copy_n(place.begin(), n_, state.target.begin());
    for (size_t k = 0; k < noise; ++k) state.noise.push_back({place[n_ + k], 1});
    return state;
  }
  const size_t n_;
  SyntheticParty party_, backend_;
  ThreadPool& pool_;
  wire::QueryBatch queries_;
  Bytes encoded_;
  std::unique_ptr<FreshPlace> plain_place_, noisy_place_;  // for the states' pads
  server::OnlineMaterial plain_, noisy_;
  server::Forwarding forwarding_;
};

// One end of a curve, and of the curves of what costs so much for each answer of the two lengths.
using CurveEnd = void (Curve::*)(double);
void Put(CurveEnd set, double ns, Curve& curve) { (curve.*set)(Positive(ns)); }
void PutLine(CurveEnd set, double at_short, double at_long, Curve& constant, Curve& slope) {
  const auto bytes = static_cast<double>(kShortAnswer);
  double byte = (at_long - at_short) / static_cast<double>(kLongAnswer - kShortAnswer);
  // Keeps the cost of an answer without bytes from being negative.
  byte = std::min(byte, at_short / bytes);
  Put(set, byte, slope);
  Put(set, at_short - byte * bytes, constant);
}

// Measures the costs for n positions and sets one end of every curve.
void MeasureOnline(size_t n, CurveEnd set, RandomSource& random, ThreadPool& pool,
                   UnitCosts& costs) {
  // Long answers use fewer positions, for as many bytes.
  PracticeOnline online(n, random, pool), fewer(std::max<size_t>(n / 8, 1024), random, pool);
  std::vector<Spent> runs[13];
  for (int run = 0; run < kTurns; ++run) {
    size_t next = 8;
    runs[next++].push_back(online.Ready(0));
    runs[next++].push_back(online.Ready(kShortAnswer));
    runs[next++].push_back(fewer.Ready(0));
    runs[next++].push_back(fewer.Ready(kLongAnswer));
    next = 0;
    for (const bool noise : {false, true}) {
      runs[next++].push_back(online.Forward(noise));
      runs[next++].push_back(online.Back(noise, kShortAnswer));
      (void)fewer.Forward(noise);
      runs[next++].push_back(fewer.Back(noise, kLongAnswer));
    }
    runs[next++].push_back(online.Answer(kShortAnswer, kNearTableBytes));
    runs[next++].push_back(fewer.Answer(kLongAnswer, kNearTableBytes));
    runs[12].push_back(online.Answer(kShortAnswer, kFarTableBytes));
  }
  const Spent forward = Middle(runs[0]), back = Middle(runs[1]), back_long = Middle(runs[2]),
              forward_noise = Middle(runs[3]), drop = Middle(runs[4]), drop_long = Middle(runs[5]),
              answer = Middle(runs[6]), answer_long = Middle(runs[7]);
  costs.set_far_row_ns(Positive(Middle(runs[12]).cpu_ns - answer.cpu_ns));
  PutLine(set, Middle(runs[9]).cpu_ns - Middle(runs[8]).cpu_ns,
          Middle(runs[11]).cpu_ns - Middle(runs[10]).cpu_ns, *costs.mutable_mask(),
          *costs.mutable_mask_byte());
  Put(set, forward.cpu_ns, *costs.mutable_forward());
  Put(set, forward_noise.cpu_ns - forward.cpu_ns, *costs.mutable_forward_noise());
  PutLine(set, answer.cpu_ns, answer_long.cpu_ns, *costs.mutable_answer(),
          *costs.mutable_answer_byte());
  PutLine(set, back.cpu_ns, back_long.cpu_ns, *costs.mutable_back(), *costs.mutable_back_byte());
  PutLine(set, drop.cpu_ns - back.cpu_ns, drop_long.cpu_ns - back_long.cpu_ns,
          *costs.mutable_drop(), *costs.mutable_drop_byte());
  costs.set_online_serial(SerialShare(forward_noise, pool));
  costs.set_answer_serial(SerialShare(answer, pool));
  costs.set_back_serial(SerialShare(drop, pool));
}

// Zeros in pieces, as they come from the next party.
class ZeroSource final : public ByteSource {
 public:
  explicit ZeroSource(uint64_t bytes) : bytes_(bytes), piece_(kPiece) {}
  uint64_t size() const override { return bytes_; }
  absl::StatusOr<BytesView> Next() override {
    const uint64_t now = std::min<uint64_t>(kPiece, bytes_ - given_);
    given_ += now;
    return BytesView(piece_).first(now);
  }

 private:
  const uint64_t bytes_;
  const Bytes piece_;
  uint64_t given_ = 0;
};

// A term of n queries, and its refreshes. Their files are in the page cache.
class PracticeRefreshes {
 public:
  PracticeRefreshes(size_t n, size_t noise, size_t answer_bytes, double table_bytes,
                    RandomSource& random, ThreadPool& pool)
      : n_(n), place_(pool) {
    const SyntheticTerm::Shape shape = {
        .queries = n,
        .noise = noise,
        .rows = static_cast<uint64_t>(table_bytes / static_cast<double>(answer_bytes)),
        .answer_bytes = answer_bytes};
    term_ = *SyntheticTerm::Create(shape, "/tmp", random, place_.resources);
    Spent keep;
    for (const uint32_t party : {1u, 2u}) {
      SHOAL_CHECK(term_->MakeUp(party).ok());
      keep = keep + Once([&] { SHOAL_CHECK(term_->Keep().ok()); });
    }
    keep_byte_ns_ = keep.cpu_ns / static_cast<double>(term_->bytes_at_rest());
    const size_t tagged_bytes = sharing::TaggedBytes(answer_bytes);
    place_.Warm(shuffle::Scatter::MemoryBytes(n + noise, tagged_bytes));
    from_next_ = (n + noise) * tagged_bytes;
    table_bytes_ = static_cast<double>(shape.rows * answer_bytes);
    NextEpoch();
  }

  void NextEpoch() {
    term_->NewTable();
    SHOAL_CHECK(term_->SignRefresh().ok());
    // The first call digests the table.
    const Spent begin = Once([&] { (void)*term_->Answer(); });
    table_byte_ns_.push_back(begin.cpu_ns / table_bytes_);
  }
  double KeepByteNs() const { return keep_byte_ns_; }
  double TableByteNs() const { return table_byte_ns_.back(); }

  // At the backend, which has n queries where there is no noise; for each of these.
  Spent Answer() {
    return Each(Once([&] { Drain(**term_->Answer()); }), n_);
  }
  // At party 1, for each of its n queries.
  Spent Back() {
    ZeroSource answers(from_next_);
    const round::RefreshTag later = {};
    return Each(Once([&] {
                  const auto back = *term_->Return(answers, {&later, 1});
                  tag_ = back->tags().front();
                  Drain(*back);
                }),
                n_);
  }
  // Clients' requests for their answers, for each slot. After Back.
  double FetchNs() const {
    const auto fetches = term_->MakeFetches(tag_, kSlotsOfASubmission);
    const Spent cost = Typical([&] {
      return Once([&] {
        for (const auto& fetch : fetches) SHOAL_CHECK(term_->TakeFetch(fetch, tag_).ok());
      });
    });
    return cost.cpu_ns / static_cast<double>(std::min<uint64_t>(n_, SyntheticTerm::kChecked));
  }

 private:
  static void Drain(ByteSource& source) {
    while (!source.Next()->empty()) {
    }
  }
  const size_t n_;
  FreshPlace place_;
  std::unique_ptr<SyntheticTerm> term_;
  uint64_t from_next_ = 0;
  double table_bytes_ = 0, keep_byte_ns_ = 0;
  std::vector<double> table_byte_ns_;
  round::RefreshTag tag_ = {};
};

// Measures the costs of a refresh for n positions and sets one end of every curve.
void MeasureRefreshes(size_t n, CurveEnd set, RandomSource& random, ThreadPool& pool,
                      UnitCosts& costs) {
  const size_t fewer = std::max<size_t>(n / 8, 1024);
  PracticeRefreshes plain(n, 0, kShortAnswer, kNearTableBytes, random, pool),
      noisy(n, n, kShortAnswer, kNearTableBytes, random, pool),
      far(n, 0, kShortAnswer, kFarTableBytes, random, pool),
      plain_long(fewer, 0, kLongAnswer, kNearTableBytes, random, pool),
      noisy_long(fewer, fewer, kLongAnswer, kNearTableBytes, random, pool);
  std::vector<Spent> runs[7];
  for (int run = 0; run < kTurns; ++run) {
    size_t next = 0;
    for (PracticeRefreshes* term : {&plain, &plain_long, &far}) {
      runs[next++].push_back(term->Answer());
    }
    for (PracticeRefreshes* term : {&plain, &plain_long, &noisy, &noisy_long}) {
      runs[next++].push_back(term->Back());
    }
  }
  const Spent answer = Middle(runs[0]), back = Middle(runs[3]), back_long = Middle(runs[4]),
              drop = Middle(runs[5]);
  PutLine(set, answer.cpu_ns, Middle(runs[1]).cpu_ns, *costs.mutable_refresh_answer(),
          *costs.mutable_refresh_answer_byte());
  PutLine(set, back.cpu_ns, back_long.cpu_ns, *costs.mutable_refresh_back(),
          *costs.mutable_refresh_back_byte());
  PutLine(set, drop.cpu_ns - back.cpu_ns, Middle(runs[6]).cpu_ns - back_long.cpu_ns,
          *costs.mutable_refresh_drop(), *costs.mutable_refresh_drop_byte());
  costs.set_refresh_far_row_ns(Positive(Middle(runs[2]).cpu_ns - answer.cpu_ns));
  costs.set_refresh_table_byte_ns(Positive(far.TableByteNs()));
  costs.set_term_byte_ns(Positive(noisy.KeepByteNs()));
  costs.set_refresh_fetch_ns(Positive(plain.FetchNs()));
  costs.set_refresh_serial(SerialShare(drop, pool));
}

// Measures answers that party 1 keeps in a file, from which each client reads its own.
void MeasureKeptAnswers(size_t n, ThreadPool& pool, UnitCosts& costs) {
  SpoolPlace files("/tmp", 0);
  Bytes list(std::min(n, kSlotsOfASubmission * kShortAnswer));
  const Spent cost = Typical([&] {
    Spool kept = *files.Create(n);
    ZeroSource answers(n);
    return Once([&] {
      SHOAL_CHECK(FillSpool(answers, kept, &pool).ok());
      for (uint64_t at = 0; at + list.size() <= n; at += list.size()) {
        SHOAL_CHECK(kept.Read(at, list).ok());
      }
    });
  });
  costs.set_refresh_kept_byte_ns(Positive(cost.cpu_ns / static_cast<double>(n)));
}

// Half of what a local socket takes to copy a byte into the kernel and out of it.
double SocketByteNs(BytesView bytes, size_t record_bytes) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0.5;
  Bytes record(record_bytes);
  const Spent cost = Typical([&] {
    return Once([&] {
      for (size_t at = 0; at + record_bytes <= bytes.size(); at += record_bytes) {
        const auto length = static_cast<ssize_t>(record_bytes);
        if (write(ends[0], bytes.data() + at, record_bytes) != length) break;
        for (size_t got = 0; got < record_bytes;) {
          const ssize_t more = read(ends[1], record.data(), record_bytes - got);
          if (more <= 0) return;
          got += static_cast<size_t>(more);
        }
      }
    });
  });
  close(ends[0]);
  close(ends[1]);
  return cost.cpu_ns / static_cast<double>(bytes.size()) / 2;
}

// Measures one end of a link between parties, a TLS record's AES-128-GCM, and one of a link within
// a party, a chunk's seal, each with a local socket's copies.
void MeasureLinks(size_t n, RandomSource& random, UnitCosts& costs) {
  Bytes bytes(n);
  random.Fill(std::span(bytes).first(std::min<size_t>(n, 1 << 16)));
  constexpr size_t kRecord = 16384;
  // Seals all bytes in pieces of so many.
  const auto each = [&](size_t piece_bytes, const auto& seal) {
    const Spent cost = Typical([&] {
      return Once([&] {
        for (size_t at = 0; at + piece_bytes <= n; at += piece_bytes) {
          seal(BytesView(bytes).subspan(at, piece_bytes));
        }
      });
    });
    return cost.cpu_ns / static_cast<double>(n / piece_bytes * piece_bytes);
  };
  using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;
  const Context tls(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  const uint8_t key[32] = {};
  SHOAL_CHECK(EVP_EncryptInit_ex(tls.get(), EVP_aes_128_gcm(), nullptr, key, key) == 1);
  Bytes record(kRecord);
  const double cipher = each(std::min(n, kRecord), [&](BytesView plain) {
    int done = 0;
    SHOAL_CHECK(EVP_EncryptInit_ex(tls.get(), nullptr, nullptr, nullptr, key) == 1 &&
                EVP_EncryptUpdate(tls.get(), record.data(), &done, plain.data(),
                                  static_cast<int>(plain.size())) == 1 &&
                EVP_EncryptFinal_ex(tls.get(), record.data(), &done) == 1);
  });
  machines::ChunkSeal chunks;
  chunks.Begin(key);
  constexpr size_t kPlain = machines::Transport::kMaxChunkBytes - machines::ChunkSeal::kTagBytes;
  Bytes chunk(machines::Transport::kMaxChunkBytes);
  const size_t chunk_bytes = std::min(n, kPlain);
  const double seal = each(chunk_bytes, [&](BytesView plain) {
    chunks.Seal(plain, MutableBytes(chunk).first(plain.size() + machines::ChunkSeal::kTagBytes));
  });
  const double copies = SocketByteNs(bytes, std::min(n, kRecord));
  costs.set_link_byte_ns(cipher + copies);
  costs.set_inside_byte_ns(seal + copies);
}

// Measures what a party commits to, piece by piece as it comes.
void MeasureDigest(size_t n, RandomSource& random, ThreadPool& pool, UnitCosts& costs) {
  const ContentMac mac(random.NewSeed().view(), "shoal calibrate");
  const Bytes piece(std::min<size_t>(n, 256 << 10));
  const size_t pieces = n / piece.size();
  const Spent cost = Typical([&] {
    return Once([&] {
      ContentMac::Stream digest(mac);
      for (size_t i = 0; i < pieces; ++i) digest.Update(piece, pool);
      (void)digest.Finish();
    });
  });
  costs.set_digest_byte_ns(Positive(cost.cpu_ns / static_cast<double>(pieces * piece.size())));
}

// Measures a list that comes in two parts at the same time, over memory that was in use before.
void MeasureJoin(size_t n, ThreadPool& pool, UnitCosts& costs) {
  const Bytes piece(std::min(n, kPiece));
  const size_t bytes = n / 2 / piece.size() * 2 * piece.size();
  FreshPlace place(pool);
  const Spent cost = Typical([&] {
    place.Warm(bytes);
    return Once([&] {
      server::PartJoin join(bytes, &place.spools);
      const auto first = *join.Begin(0, bytes / 2), second = *join.Begin(bytes / 2, bytes / 2);
      for (size_t at = 0; at < bytes / 2; at += piece.size()) {
        SHOAL_CHECK(first->Take(piece).ok() && second->Take(piece).ok());
      }
      while (!join.Next()->empty()) {
      }
    });
  });
  costs.set_join_byte_ns(Positive(cost.cpu_ns / static_cast<double>(bytes)));
}

// Measures the work on a batch of queries that is only done where it is at several machines.
void MeasureParts(size_t n, RandomSource& random, UnitCosts& costs) {
  const auto half = static_cast<uint32_t>(n / 2);
  wire::QueryBatch batch;
  for (uint32_t i = 0; i < 2 * half; ++i) {
    batch.positions.push_back(i);
    batch.tallies.push_back(static_cast<uint32_t>(random.Below(wire::kTallyModulus)));
  }
  const server::ListPart run = {2 * half, 0, 2 * half};
  const auto digested = [](const wire::QueryBatch& whole, uint64_t positions) {
    const wire::QuerySlice slice = wire::DescribeSlice(whole, 0, positions);
    return wire::EncodeUsed(whole, {&slice, 1}, 0);
  };
  const Spent cost = Typical([&] {
    return Once([&] {
      (void)digested(batch, 2 * half);
      std::vector<server::BatchPart> parts;
      for (const uint32_t first : {uint32_t{0}, half}) {
        Bytes sent =
            wire::EncodeQueryBatch(server::CutBatch(batch, run, {2 * half, first, half}), half);
        SHOAL_CHECK(wire::CheckQueryBatch(sent, half).ok());
        parts.push_back({std::move(sent), half});
      }
      const wire::QueryBatch joined = server::JoinBatches(std::move(parts));
      (void)digested(joined, 2 * half);
    });
  });
  costs.set_part_query_ns(Positive(cost.cpu_ns / static_cast<double>(2 * half)));
}

// Must be measured first, because memory given back to the system is not fresh for some seconds.
void MeasureFreshMemory(size_t bytes, UnitCosts& costs) {
  double ns[2];
  for (double& each : ns) {
    PageBuffer pages = *PageBuffer::Create(bytes, PageBuffer::Content::kPublic);
    const Spent cost = Once([&] {
      for (size_t at = 0; at < bytes; at += 4096) pages.data()[at] = 1;
    });
    each = cost.cpu_ns / static_cast<double>(bytes);
  }
  costs.set_fresh_byte_ns(std::max(0.001, ns[0] - ns[1]));
}

std::string MachineName() {
  std::string model = "unknown processor", line;
  bool avx2 = false, ifma = false;
  std::ifstream info("/proc/cpuinfo");
  while (std::getline(info, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.rfind("model name", 0) == 0) model = line.substr(colon + 2);
    if (line.rfind("flags", 0) == 0) {
      avx2 = line.find(" avx2") != std::string::npos;
      ifma = line.find(" avx512ifma") != std::string::npos;
      break;
    }
  }
  return absl::StrCat(model, ", ", std::thread::hardware_concurrency(), " cores",
                      ifma   ? ", AVX-512 IFMA"
                      : avx2 ? ", AVX2"
                             : "");
}

}  // namespace

UnitCosts Calibrate(RandomSource& random, ThreadPool& pool, double effort,
                    std::span<const pir::Family* const> families) {
  const auto size = [&](double full) {
    return std::max<size_t>(2048, static_cast<size_t>(full * effort));
  };
  // Makes large blocks come fresh from the system in every run, as in a process's first round. By
  // default the allocator would begin to keep and reuse them.
  mallopt(M_MMAP_THRESHOLD, 512 << 10);
  UnitCosts costs;
  costs.set_machine(MachineName());
  const size_t few = size(kFewPositions), many = size(kManyPositions);
  MeasureFreshMemory(size(1 << 28), costs);
  const size_t opened = size(1 << 14);
  MeasureOffline(opened, few, many, random, pool, costs);
  MeasureNoise(opened, random, pool, costs);
  MeasureOnline(few, &Curve::set_few_ns, random, pool, costs);
  MeasureOnline(many, &Curve::set_many_ns, random, pool, costs);
  MeasureRefreshes(few, &Curve::set_few_ns, random, pool, costs);
  MeasureRefreshes(many, &Curve::set_many_ns, random, pool, costs);
  MeasureKeptAnswers(size(1 << 26), pool, costs);
  MeasureTwoTiers(size(1 << 14), size(1 << 26), random, pool, costs);
  MeasureLinks(size(1 << 26), random, costs);
  MeasureDigest(size(1 << 26), random, pool, costs);
  MeasureJoin(size(1 << 26), pool, costs);
  MeasureParts(many, random, costs);
  for (const pir::Family* family : families) {
    AddUnitCosts(family->MeasureUnits(size(1 << 26), random, pool), costs);
  }
  return costs;
}

absl::StatusOr<double> CostOf(const UnitCosts& costs, absl::string_view unit) {
  const auto found = costs.engine_unit_ns().find(std::string(unit));
  if (found == costs.engine_unit_ns().end()) {
    return absl::UnimplementedError(absl::StrCat("no cost is known for the unit ", unit));
  }
  return found->second;
}

void AddUnitCosts(std::span<const pir::Amount> units, UnitCosts& costs) {
  for (const pir::Amount& unit : units) {
    (*costs.mutable_engine_unit_ns())[std::string(unit.unit)] = unit.amount;
  }
}

std::string DefaultCostsPath() {
  const std::string directory = UserConfigDirectory();
  return directory.empty() ? "" : directory + "/costs.textproto";
}

namespace {

absl::Status CheckCost(const std::string& path, absl::string_view name, double value) {
  if (value > 0 && value < 1e9) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", name,
                                                 " must be above 0 and below 1e9, got ", value,
                                                 "; shoal plan --calibrate makes the file anew"));
}

// Checks every number of the message and of the messages in it.
absl::Status CheckCosts(const google::protobuf::Message& costs, const std::string& path) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor& fields = *costs.GetDescriptor();
  const google::protobuf::Reflection& reflection = *costs.GetReflection();
  for (int i = 0; i < fields.field_count(); ++i) {
    const Field& field = *fields.field(i);
    if (field.is_map()) continue;
    if (field.cpp_type() == Field::CPPTYPE_MESSAGE) {
      SHOAL_RETURN_IF_ERROR(
          CheckCosts(reflection.GetMessage(costs, &field), absl::StrCat(path, ": ", field.name())));
    }
    if (field.cpp_type() != Field::CPPTYPE_DOUBLE) continue;
    SHOAL_RETURN_IF_ERROR(CheckCost(path, field.name(), reflection.GetDouble(costs, &field)));
  }
  return absl::OkStatus();
}

// The lines "UNIT_ns: VALUE" become entries of engine_unit_ns.
std::string WithUnitsInOneField(absl::string_view text,
                                std::span<const pir::Family* const> families) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits("_ns: ", 1));
    const bool is_unit = std::ranges::any_of(families, [&](const pir::Family* family) {
      return std::ranges::count(family->units(), parts.first, &pir::Amount::unit) > 0;
    });
    if (is_unit) {
      absl::StrAppend(&out, "engine_unit_ns { key: \"", parts.first, "\" value: ", parts.second,
                      " }\n");
    } else {
      absl::StrAppend(&out, line, "\n");
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<UnitCosts> ReadCosts(const std::string& path,
                                    std::span<const pir::Family* const> families) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  UnitCosts costs;
  SHOAL_RETURN_IF_ERROR(wire::ParseText(WithUnitsInOneField(text, families), path, costs));
  SHOAL_RETURN_IF_ERROR(CheckCosts(costs, path));
  for (const auto& [unit, ns] : costs.engine_unit_ns()) {
    SHOAL_RETURN_IF_ERROR(CheckCost(path, absl::StrCat("engine_unit_ns of ", unit), ns));
  }
  for (const pir::Family* family : families) {
    for (const pir::Amount& unit : family->units()) {
      // 0 if it is missing, which no cost is.
      SHOAL_RETURN_IF_ERROR(CheckCost(path, absl::StrCat("engine_unit_ns of ", unit.unit),
                                      CostOf(costs, unit.unit).value_or(0)));
    }
  }
  return costs;
}

}  // namespace shoal::plan
