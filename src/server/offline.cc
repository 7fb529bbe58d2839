#include "src/server/offline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/sharing/batch.h"
#include "src/shuffle/permutation.h"
#include "src/shuffle/scatter.h"

namespace shoal::server {
namespace {

// Onions handled at a time by one thread: a few of the batch engine's batches, and small enough
// that a chunk's bytes stay in the cache.
constexpr size_t kChunk = 1024;
// Onions that go from a spool to their places at a time.
constexpr size_t kRun = 1 << 16;

constexpr auto kSecret = PageBuffer::Content::kSecret;
constexpr auto kPublic = PageBuffer::Content::kPublic;

// Rows of the noise queries, one entry for each query.
SecretVector<uint32_t> DrawNoiseRows(const RoundContext& context, const RoundSecrets& secrets) {
  SecretVector<uint32_t> counts(context.max_rows);
  SeededRandom random = secrets.NoiseCounts();
  context.noise.Sample(random, counts);
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  SecretVector<uint32_t> rows;
  rows.reserve(total);
  for (size_t row = 0; row < counts.size(); ++row) {
    rows.insert(rows.end(), counts[row], static_cast<uint32_t>(row));
  }
  return rows;
}

// Sorts on all threads: halves around the median, each half by itself.
template <typename T>
void ParallelSort(std::span<T> items, ThreadPool& pool) {
  constexpr size_t kSmall = 1 << 16;
  if (items.size() <= kSmall || pool.size() == 1) {
    std::sort(items.begin(), items.end());
    return;
  }
  const size_t half = items.size() / 2;
  std::nth_element(items.begin(), items.begin() + static_cast<ptrdiff_t>(half), items.end());
  pool.ParallelFor(2, 1, [&](size_t begin, size_t end) {
    for (size_t side = begin; side < end; ++side) {
      ParallelSort(side == 0 ? items.first(half) : items.subspan(half), pool);
    }
  });
}

// The records of a Scatter in the order of their places.
class ScatterSource final : public ByteSource {
 public:
  ScatterSource(shuffle::Scatter scatter, ThreadPool* pool)
      : scatter_(std::move(scatter)), pool_(pool) {}
  uint64_t size() const override { return scatter_.size(); }
  absl::StatusOr<BytesView> Next() override {
    SHOAL_ASSIGN_OR_RETURN(const MutableBytes piece, scatter_.Next(*pool_));
    return BytesView(piece);
  }

 private:
  shuffle::Scatter scatter_;
  ThreadPool* const pool_;
};

// Puts the records of a spool to places[i] each.
absl::Status PutAll(const Spool& records, size_t record_bytes, std::span<const uint32_t> places,
                    shuffle::Scatter& scatter, ThreadPool& pool) {
  SHOAL_CHECK(records.size() == places.size() * record_bytes);
  Bytes piece;
  for (size_t at = 0; at < places.size(); at += kRun) {
    const size_t n = std::min(kRun, places.size() - at);
    BytesView view;
    if (records.in_memory()) {
      view = records.memory().subspan(at * record_bytes, n * record_bytes);
    } else {
      piece.resize(n * record_bytes);
      SHOAL_RETURN_IF_ERROR(records.Read(at * record_bytes, piece, &pool));
      view = piece;
    }
    SHOAL_RETURN_IF_ERROR(scatter.Put(places.subspan(at, n), view, pool));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NoiseBatch> MakeNoise(const RoundContext& context, const RoundSecrets& secrets,
                                     const Resources& resources) {
  NoiseBatch batch;
  if (context.is_backend()) return batch;
  const SecretVector<uint32_t> rows = DrawNoiseRows(context, secrets);
  const size_t hops = context.next_recipients.size();
  const size_t onion_bytes = onion::OnionBytes(hops);
  batch.tallies.resize(rows.size());
  SHOAL_ASSIGN_OR_RETURN(batch.onions, resources.spools->Create(rows.size() * onion_bytes));
  const auto make = [&](size_t begin, size_t end) {
    const size_t n = end - begin;
    // A stream for every chunk: the result does not depend on the threads.
    SeededRandom random = secrets.NoiseOnions(begin / kChunk);
    SecretVector<uint8_t> seeds(n * hops * 32), ephemeral(n * hops * 32);
    random.Fill(seeds);
    random.Fill(ephemeral);
    Bytes onions(n * onion_bytes);
    onion::BuildOnions(context.round_id, context.next_recipients, seeds, ephemeral, onions);
    sharing::FirstTallies(seeds, hops, context.round_id, std::span(rows).subspan(begin, n),
                          std::span(batch.tallies).subspan(begin, n));
    return batch.onions.Write(begin * onion_bytes, onions);
  };
  SHOAL_RETURN_IF_ERROR(resources.pool->TryParallelFor(rows.size(), kChunk, make));
  return batch;
}

OnionIntake::OnionIntake(const RoundContext& context, const RoundSecrets& secrets, uint64_t count,
                         const Resources& resources)
    : context_(&context),
      resources_(resources),
      key_(secrets.OnionKeyPair()),
      fingerprint_key_(secrets.FingerprintKey()),
      count_(count) {}

absl::StatusOr<OnionIntake> OnionIntake::Begin(const RoundContext& context,
                                               const RoundSecrets& secrets, uint64_t bytes,
                                               const Resources& resources) {
  const size_t onion_bytes = context.onion_bytes();
  if (bytes % onion_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ", bytes,
                                                   " bytes are not a whole number of onions of ",
                                                   onion_bytes, " bytes"));
  }
  const uint64_t count = bytes / onion_bytes;
  const uint64_t most =
      MaxPositions(context.party, context.max_slots, context.max_rows, context.noise);
  if (count > most || count >= RoundState::kDead) {
    return absl::InvalidArgumentError(
        absl::StrCat("offline list: ", count, " onions, where the header allows ", most));
  }
  OnionIntake intake(context, secrets, count, resources);
  SHOAL_ASSIGN_OR_RETURN(intake.seeds_, PageBuffer::Reserve(32 * count, kSecret));
  SHOAL_ASSIGN_OR_RETURN(intake.valid_, PageBuffer::Reserve(count, kPublic));
  SHOAL_ASSIGN_OR_RETURN(intake.prints_, PageArray<Fingerprint>::Reserve(count, kSecret));
  // The frontend keeps as many answers for its clients, later: the same memory is there for them.
  SHOAL_ASSIGN_OR_RETURN(
      intake.inner_,
      resources.spools->Create(count * (onion_bytes - onion::kLayerBytes),
                               context.is_frontend() ? count * context.answer_bytes : 0));
  return intake;
}

absl::Status OnionIntake::Take(BytesView piece) {
  const size_t onion_bytes = context_->onion_bytes();
  const uint64_t left = (count_ - opened_) * onion_bytes - partial_.size();
  if (piece.size() > left) {
    return absl::InvalidArgumentError("offline list: more bytes than were announced");
  }
  if (!partial_.empty()) {
    const size_t missing = std::min(piece.size(), onion_bytes - partial_.size());
    Append(partial_, piece.first(missing));
    piece = piece.subspan(missing);
    if (partial_.size() < onion_bytes) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(OpenWhole(partial_));
    partial_.clear();
  }
  const size_t whole = piece.size() / onion_bytes * onion_bytes;
  if (whole > 0) SHOAL_RETURN_IF_ERROR(OpenWhole(piece.first(whole)));
  Append(partial_, piece.subspan(whole));
  return absl::OkStatus();
}

absl::Status OnionIntake::OpenWhole(BytesView onions) {
  static_assert(crypto_shorthash_KEYBYTES <= 32 && crypto_shorthash_BYTES == 8);
  const size_t onion_bytes = context_->onion_bytes();
  const size_t inner_bytes = onion_bytes - onion::kLayerBytes;
  const size_t count = onions.size() / onion_bytes;
  const size_t first = opened_;
  seeds_.Grow(32 * (first + count));
  valid_.Grow(first + count);
  prints_.Grow(first + count);
  opened_ += count;
  return resources_.pool->TryParallelFor(count, kChunk, [&](size_t begin, size_t end) {
    const size_t n = end - begin, at = first + begin;
    Bytes inner(n * inner_bytes);
    onion::PeelOnions(key_, context_->round_id, context_->layers(),
                      onions.subspan(begin * onion_bytes, n * onion_bytes),
                      MutableBytes(seeds_).subspan(32 * at, 32 * n), inner,
                      MutableBytes(valid_).subspan(at, n));
    for (size_t i = at; i < at + n; ++i) {
      uint8_t print[8];
      crypto_shorthash(print, seeds_.data() + 32 * i, 32, fingerprint_key_.data());
      prints_[i] = {LoadLe<uint64_t>(print), static_cast<uint32_t>(i)};
    }
    return inner_.Write(at * inner_bytes, inner);
  });
}

// Marks all but the first of equal seeds among the living. One seed can be sealed twice under
// different ciphertexts, so it is the seeds that are compared. Returns how many it marked.
uint64_t OnionIntake::MarkDuplicates() {
  const auto seed = [&](uint32_t position) {
    return BytesView(seeds_).subspan(size_t{32} * position, 32);
  };
  uint8_t* const valid = valid_.data();
  Fingerprint* const end_of_living =
      std::remove_if(prints_.begin(), prints_.end(),
                     [&](const Fingerprint& print) { return !valid[print.position]; });
  const std::span<Fingerprint> prints(prints_.begin(), end_of_living);
  ParallelSort(prints, *resources_.pool);
  uint64_t marked = 0;
  for (size_t begin = 0; begin < prints.size();) {
    size_t end = begin + 1;
    while (end < prints.size() && prints[end].value == prints[begin].value) ++end;
    // Nearly always a run of one. Within a run the positions rise, so the first of equal seeds is
    // among the living before it.
    for (size_t later = begin + 1; later < end; ++later) {
      for (size_t earlier = begin; earlier < later; ++earlier) {
        const uint32_t a = prints[earlier].position, b = prints[later].position;
        if (!valid[a] || !std::ranges::equal(seed(a), seed(b))) continue;
        valid[b] = 0;
        ++marked;
        break;
      }
    }
    begin = end;
  }
  prints_ = {};
  return marked;
}

absl::Status MakeReady(const RoundContext& context, const Resources& resources,
                       RoundState& state) {
  SHOAL_ASSIGN_OR_RETURN(
      state.shares, PageArray<sharing::QueryShare>::Create(state.positions, kSecret));
  state.masks = {};
  SHOAL_ASSIGN_OR_RETURN(
      std::optional<Spool> masks,
      resources.spools->CreateIfRoomy(uint64_t{state.positions} * context.answer_bytes));
  resources.pool->ParallelFor(state.positions, kChunk, [&](size_t begin, size_t end) {
    std::vector<uint32_t> positions(end - begin);
    std::iota(positions.begin(), positions.end(), static_cast<uint32_t>(begin));
    sharing::ExpandShares(state.seeds.data(), positions, context.round_id,
                          state.shares.span().subspan(begin, end - begin));
    if (!masks.has_value()) return;
    const MutableBytes mine = masks->memory().subspan(begin * context.answer_bytes,
                                                      (end - begin) * context.answer_bytes);
    std::ranges::fill(mine, 0);  // zero already; but the first touch of fresh pages should write
    sharing::XorMasks(state.seeds.data(), positions, context.round_id, context.answer_bytes, mine);
  });
  if (masks.has_value()) state.masks = *std::move(masks);
  return absl::OkStatus();
}

absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         NoiseBatch noise, BytesView onions,
                                         const Resources& resources) {
  SHOAL_ASSIGN_OR_RETURN(OnionIntake intake,
                         OnionIntake::Begin(context, secrets, onions.size(), resources));
  SHOAL_RETURN_IF_ERROR(intake.Take(onions));
  return RunOffline(context, secrets, std::move(noise), std::move(intake), resources);
}

absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         NoiseBatch noise, OnionIntake intake,
                                         const Resources& resources) {
  if (!intake.complete()) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ended after ", intake.opened(),
                                                   " of ", intake.count(), " onions"));
  }
  OfflineOutput out;
  RoundState& state = out.state;
  intake.MarkDuplicates();
  const PageBuffer valid = std::move(intake.valid_);
  const auto living = [&](uint64_t i) { return valid.data()[i] != 0; };
  state.positions = static_cast<uint32_t>(intake.count());
  state.seeds = std::move(intake.seeds_);
  SHOAL_ASSIGN_OR_RETURN(state.target, PageArray<uint32_t>::Create(state.positions, kSecret));
  for (uint32_t i = 0; i < state.positions; ++i) {
    if (living(i)) continue;
    ++out.dead;
    sodium_memzero(state.seeds.data() + size_t{32} * i, 32);
  }
  SHOAL_RETURN_IF_ERROR(MakeReady(context, resources, state));
  if (context.is_backend()) {
    for (uint32_t i = 0; i < state.positions; ++i) {
      state.target[i] = living(i) ? 0 : RoundState::kDead;
    }
    out.onions = std::make_unique<BytesSource>(Bytes());
    return out;
  }

  // Shuffle the living, then the noise, to their places: first where everything goes, then the
  // bytes.
  const size_t inner_bytes = context.onion_bytes() - onion::kLayerBytes;
  const uint64_t next_positions = state.positions - out.dead + noise.size();
  if (next_positions >= RoundState::kDead) {
    return absl::ResourceExhaustedError(absl::StrCat("offline list: ", next_positions,
                                                     " positions do not fit 32 bits"));
  }
  state.next_positions = static_cast<uint32_t>(next_positions);
  const Seed key = secrets.PermutationKey();
  SHOAL_ASSIGN_OR_RETURN(
      const auto place,
      shuffle::RandomPermutation(next_positions, key.view(), *resources.pool));
  uint64_t item = 0;
  for (uint32_t i = 0; i < state.positions; ++i) {
    state.target[i] = living(i) ? place[item++] : RoundState::kDead;
  }
  const std::span<const uint32_t> noise_places = place.span().subspan(item);
  SHOAL_CHECK(noise_places.size() == noise.size());
  state.noise.resize(noise.size());
  for (size_t k = 0; k < noise.size(); ++k) state.noise[k] = {noise_places[k], noise.tallies[k]};
  SHOAL_ASSIGN_OR_RETURN(state.forward_memory,
                         ForwardMemory::MakeReady(state.next_positions, resources));

  static_assert(RoundState::kDead == shuffle::Scatter::kNowhere);
  SHOAL_ASSIGN_OR_RETURN(
      shuffle::Scatter scatter,
      shuffle::Scatter::Create(
          next_positions, inner_bytes, *resources.spools,
          // Of the answers, at most: a dead position is answered, too.
          shuffle::Scatter::MemoryBytes(state.positions + noise.size(), context.answer_bytes)));
  scatter.TouchRoom(*resources.pool);
  intake.inner_.Touch(intake.inner_.size(), *resources.pool);
  SHOAL_RETURN_IF_ERROR(
      PutAll(intake.inner_, inner_bytes, state.target.span(), scatter, *resources.pool));
  SHOAL_RETURN_IF_ERROR(
      PutAll(noise.onions, inner_bytes, noise_places, scatter, *resources.pool));
  out.onions = std::make_unique<ScatterSource>(std::move(scatter), resources.pool);
  return out;
}

}  // namespace shoal::server
