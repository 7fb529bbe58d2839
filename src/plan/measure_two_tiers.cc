// Measures the stages of a half of a round of two tiers (src/server/half_online.h). Half A has all
// of the work: in half B a head has no selections, and a tail makes them from a seed.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/onion/onion.h"
#include "src/parallel/content_mac.h"
#include "src/plan/calibrate.h"
#include "src/plan/measure.h"
#include "src/server/half_online.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/synthetic_round.h"
#include "src/sharing/halves.h"
#include "src/wire/query_batch.h"

namespace shoal::plan {
namespace {

using sharing::Half;

// About one query for every bucket.
noise::Distribution LittleNoise() {
  return *noise::Distribution::Create({.mechanism = noise::Mechanism::kGeometric,
                                       .epsilon = 1,
                                       .delta = 1e-6,
                                       .phi = 1,
                                       .mode = 1,
                                       .left_scale = noise::kMinScale,
                                       .right_scale = noise::kMinScale});
}

struct TierShape {
  uint32_t queries;
  uint32_t buckets;
  noise::Distribution noise;
  uint32_t places = 64;  // of each
  size_t answer_bytes = 112;
};

// Half A of a made-up round, with real onions, and with every row asked as often as the others.
class PracticeHalf {
 public:
  PracticeHalf(const TierShape& shape, RandomSource& random, ThreadPool& pool)
      : shape_(shape),
        pool_(pool),
        place_(pool),
        round_({.answer_bytes = shape.answer_bytes,
                .rows = uint64_t{shape.buckets} * shape.places,
                .buckets = shape.buckets,
                .max_slots = shape.queries,
                .noise = shape.noise},
               random),
        mac_(random.NewSeed().view(), "shoal calibrate"),
        table_(round_.buckets().rows() * shape.answer_bytes, 1) {
    const auto input = round_.MakeInput(shape.queries, kSlotsOfASubmission, random, pool);
    server::NoiseBatch noise;
    noise_cost_ = Once([&] { noise = *MakeNoise(of().context(1), of().secrets(1), resources()); });
    noise_ = noise.size();
    server::OfflineOutput out = *RunOffline(of().context(1), of().secrets(1), std::move(noise),
                                            input.a, shape.queries, resources());
    head_ = std::move(out.material);
    const Bytes list = *ReadAll(out.onions);
    tail_ =
        std::move(RunOffline(of().context(2), of().secrets(2), {}, list, 0, resources())->material);
    const size_t part = sharing::PartsBytes(round_.buckets().selection_bytes());
    Bytes parts(shape.queries * part);
    std::vector<uint32_t> rows(shape.queries);
    for (uint32_t i = 0; i < shape.queries; ++i) {
      rows[i] = static_cast<uint32_t>(0x9e3779b97f4a7c15u * (i + 1) % round_.buckets().rows());
    }
    sharing::MakeParts(input.seeds, round_.ids(), round_.buckets(), rows, parts);
    wire::RecordBatchWriter writer(shape.queries, shape.queries, part);
    for (uint32_t i = 0; i < shape.queries; ++i) {
      writer.Put(i, i, BytesView(parts).subspan(i * part, part));
    }
    parts_ = std::move(writer).Take();
  }

  // Runs the online stages once, as OpenRound does.
  void Run() {
    const server::RoundContext &head = of().context(1), &tail = of().context(2);
    wire::RecordBatch parts;
    std::optional<server::Forwarding> forwarding;
    forward_.push_back(Once([&] {
      (void)mac_.Of(parts_, pool_);
      parts = *wire::DecodeRecordBatch(parts_, head_.positions, head.half->part_bytes());
      forwarding = *ForwardParts(head, head_, parts, resources());
      (void)mac_.Of(forwarding->queries, pool_);
    }));
    SHOAL_CHECK(forwarding->count == shape_.queries + noise_);
    std::optional<Spool> made;
    answer_.push_back(Once([&] {
      (void)mac_.Of(forwarding->queries, pool_);
      const auto batch = *wire::DecodeRecordBatch(forwarding->queries, tail_.positions,
                                                  tail.half->forwarded_bytes());
      made = *AnswerHalf(tail, of().secrets(2), tail_, batch, {table_, round_.buckets().rows()},
                         resources());
      (void)mac_.Of(made->memory(), pool_);
    }));
    const Bytes answers = ToBytes(made->memory());
    made.reset();
    back_.push_back(Once([&] {
      (void)mac_.Of(answers, pool_);
      const wire::QueryBatch used = {.positions = parts.positions, .tallies = {}};
      auto intake =
          *server::AnswerIntake::Begin(head, used, *forwarding, answers.size(), resources());
      SHOAL_CHECK(intake.Take(answers).ok());
      const auto keys = server::AnswerKeys::Of(head, of().secrets(1), head_, used);
      ContentMac::Stream digest(mac_);
      const auto returned = *ReturnAnswers(keys, std::move(intake), resources());
      for (;;) {
        const BytesView piece = *returned->Next();
        if (piece.empty()) break;
        digest.Update(piece, pool_);
      }
      (void)digest.Finish();
    }));
  }

  double queries() const { return shape_.queries; }
  double noise() const { return static_cast<double>(noise_); }
  double all() const { return queries() + noise(); }
  double answer_bytes() const { return static_cast<double>(shape_.answer_bytes); }
  double selection() const { return static_cast<double>(round_.buckets().selection_bytes()); }
  double bucket_bytes() const { return shape_.places * answer_bytes(); }
  double table_bytes() const { return static_cast<double>(table_.size()); }
  // Of a whole stage, in ns.
  double NoiseNs() const { return noise_cost_.cpu_ns; }
  double ForwardNs() const { return Middle(forward_).cpu_ns; }
  double AnswerNs() const { return Middle(answer_).cpu_ns; }
  double BackNs() const { return Middle(back_).cpu_ns; }

 private:
  const server::SyntheticRound& of() const { return round_.of(Half::kA); }
  const server::Resources& resources() const { return place_.resources; }

  const TierShape shape_;
  ThreadPool& pool_;
  FreshPlace place_;
  const server::SyntheticTwoTiers round_;
  const ContentMac mac_;
  const Bytes table_;
  Spent noise_cost_;
  size_t noise_ = 0;
  server::OnlineMaterial head_, tail_;
  Bytes parts_;
  std::vector<Spent> forward_, answer_, back_;
};

// Costs of bytes that are scanned are far below those of items (Positive).
double PositiveOfByte(double ns) { return std::max(0.0005, ns); }

// What each of two kinds of items costs, from two stages that have different numbers of both.
struct TwoCosts {
  double first, second;
};
TwoCosts Divide(double first_a, double second_a, double ns_a, double first_b, double second_b,
                double ns_b) {
  const double both = first_a * second_b - first_b * second_a;
  const double first = Positive((ns_a * second_b - ns_b * second_a) / both);
  // The second kind is what the first one leaves of the stage that has more of it.
  return {first, Positive((ns_b - first_b * first) / second_b)};
}

void SetHead(const PracticeHalf& plain, const PracticeHalf& noisy, const PracticeHalf& wide,
             const PracticeHalf& long_plain, const PracticeHalf& long_noisy, UnitCosts& costs) {
  const auto forward = Divide(plain.queries(), plain.noise(), plain.ForwardNs(), noisy.queries(),
                              noisy.noise(), noisy.ForwardNs());
  // Two parts of as many queries, that differ by their selections.
  const double byte =
      Positive((wide.ForwardNs() - wide.noise() * forward.second - wide.queries() * forward.first) /
               (wide.queries() * (wide.selection() - plain.selection())));
  costs.set_tier_selection_byte_ns(byte);
  costs.set_tier_forward_ns(Positive(forward.first - byte * plain.selection()));
  costs.set_tier_forward_noise_ns(forward.second);

  const auto back = Divide(plain.queries(), plain.noise(), plain.BackNs(), noisy.queries(),
                           noisy.noise(), noisy.BackNs());
  const auto long_back = Divide(long_plain.queries(), long_plain.noise(), long_plain.BackNs(),
                                long_noisy.queries(), long_noisy.noise(), long_noisy.BackNs());
  const auto line = [&](double at_short, double at_long, const auto& set, const auto& set_byte) {
    // As of the answers of rows: an answer without bytes does not cost less than nothing.
    const double of_byte =
        std::clamp((at_long - at_short) / (long_plain.answer_bytes() - plain.answer_bytes()), 0.001,
                   at_short / plain.answer_bytes());
    set_byte(of_byte);
    set(Positive(at_short - of_byte * plain.answer_bytes()));
  };
  line(
      back.first, long_back.first, [&](double ns) { costs.set_tier_back_ns(ns); },
      [&](double ns) { costs.set_tier_back_byte_ns(ns); });
  line(
      back.second, long_back.second, [&](double ns) { costs.set_tier_drop_ns(ns); },
      [&](double ns) { costs.set_tier_drop_byte_ns(ns); });
  costs.set_tier_noise_ns(Positive(noisy.NoiseNs() / noisy.noise() - costs.seal_ns() -
                                   costs.noise_ns() - noisy.selection() * byte));
}

// A tail's stage is all() * (open + selection + answer bytes + bucket's bytes) + table bytes. What
// each shape has more than `plain` of gives one cost, the cheapest to see first.
void SetTail(const PracticeHalf& plain, const PracticeHalf& wide, const PracticeHalf& long_plain,
             const PracticeHalf& far, UnitCosts& costs) {
  const auto each = [](const PracticeHalf& of) { return of.AnswerNs() / of.all(); };
  const double selection = costs.tier_selection_byte_ns();
  const double scan = PositiveOfByte(
      (each(wide) - each(plain) - selection * (wide.selection() - plain.selection())) /
      (wide.bucket_bytes() - plain.bucket_bytes()));
  const double byte = PositiveOfByte(
      (each(long_plain) - each(plain) - scan * (long_plain.bucket_bytes() - plain.bucket_bytes())) /
      (long_plain.answer_bytes() - plain.answer_bytes()));
  const double open = Positive(each(plain) - selection * plain.selection() -
                               byte * plain.answer_bytes() - scan * plain.bucket_bytes());
  costs.set_tier_scan_byte_ns(scan);
  costs.set_tier_answer_byte_ns(byte);
  costs.set_tier_open_ns(open);
  const double expected = far.all() * (open + selection * far.selection() +
                                       byte * far.answer_bytes() + scan * far.bucket_bytes());
  costs.set_tier_read_byte_ns(PositiveOfByte((far.AnswerNs() - expected) / far.table_bytes()));
}

}  // namespace

void MeasureTwoTiers(size_t queries, uint64_t bytes, RandomSource& random, ThreadPool& pool,
                     UnitCosts& costs) {
  constexpr uint32_t kFew = 16, kMost = 1024;
  const auto n = static_cast<uint32_t>(queries);
  // As many noise queries as queries, by the noise's mean.
  const auto as_many = static_cast<uint32_t>(static_cast<double>(n) / SomeNoise().mean()) + 1;
  constexpr size_t kLong = 1072, kShort = 112;
  const auto far_buckets = static_cast<uint32_t>(bytes / (kMost * kShort)) + 2;
  const noise::Distribution little = LittleNoise(), some = SomeNoise();
  PracticeHalf plain({n, kFew, little}, random, pool), noisy({n, as_many, some}, random, pool),
      wide({n, kFew, little, kMost}, random, pool),
      long_plain({n, kFew, little, 64, kLong}, random, pool),
      long_noisy({n, as_many, some, 64, kLong}, random, pool),
      far({n / 8, far_buckets, little, kMost}, random, pool);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (PracticeHalf* half : {&plain, &noisy, &wide, &long_plain, &long_noisy, &far}) half->Run();
  }
  SetHead(plain, noisy, wide, long_plain, long_noisy, costs);
  SetTail(plain, wide, long_plain, far, costs);
}

}  // namespace shoal::plan
