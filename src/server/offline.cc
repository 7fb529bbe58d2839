#include "src/server/offline.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/sharing/sharing.h"
#include "src/shuffle/permutation.h"

namespace shoal::server {
namespace {

// Onions handled at a time by one thread: a few of the batch engine's batches, and small enough
// that a chunk's bytes stay in the cache.
constexpr size_t kChunk = 1024;

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

}  // namespace

NoiseBatch MakeNoise(const RoundContext& context, const RoundSecrets& secrets, ThreadPool& pool) {
  NoiseBatch batch;
  if (context.is_backend()) return batch;
  const SecretVector<uint32_t> rows = DrawNoiseRows(context, secrets);
  const size_t hops = context.next_recipients.size();
  const size_t onion_bytes = onion::OnionBytes(hops);
  batch.tallies.resize(rows.size());
  batch.onions.resize(rows.size() * onion_bytes);
  pool.ParallelFor(rows.size(), kChunk, [&](size_t begin, size_t end) {
    const size_t n = end - begin;
    // A stream for every chunk: the result does not depend on the threads.
    SeededRandom random = secrets.NoiseOnions(begin / kChunk);
    SecretVector<uint8_t> seeds(n * hops * 32), ephemeral(n * hops * 32);
    random.Fill(seeds);
    random.Fill(ephemeral);
    onion::BuildOnions(context.round_id, context.next_recipients, seeds, ephemeral,
                       MutableBytes(batch.onions).subspan(begin * onion_bytes, n * onion_bytes));
    std::vector<sharing::QueryShare> shares(hops);
    for (size_t i = 0; i < n; ++i) {
      for (size_t hop = 0; hop < hops; ++hop) {
        const BytesView seed = BytesView(seeds).subspan((i * hops + hop) * 32, 32);
        shares[hop] = sharing::Expand(seed, context.round_id).share;
      }
      batch.tallies[begin + i] = sharing::FirstTally(shares, rows[begin + i]);
    }
    sodium_memzero(shares.data(), shares.size() * sizeof shares[0]);
  });
  return batch;
}

OnionIntake::OnionIntake(const RoundContext& context, const RoundSecrets& secrets, uint64_t count,
                         ThreadPool& pool)
    : context_(&context),
      pool_(&pool),
      key_(secrets.OnionKeyPair()),
      fingerprint_key_(secrets.FingerprintKey()),
      count_(count) {}

absl::StatusOr<OnionIntake> OnionIntake::Begin(const RoundContext& context,
                                               const RoundSecrets& secrets, uint64_t bytes,
                                               ThreadPool& pool) {
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
  return OnionIntake(context, secrets, count, pool);
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
    OpenWhole(partial_);
    partial_.clear();
  }
  const size_t whole = piece.size() / onion_bytes * onion_bytes;
  if (whole > 0) OpenWhole(piece.first(whole));
  Append(partial_, piece.subspan(whole));
  return absl::OkStatus();
}

void OnionIntake::OpenWhole(BytesView onions) {
  static_assert(crypto_shorthash_KEYBYTES <= 32 && crypto_shorthash_BYTES == 8);
  const size_t onion_bytes = context_->onion_bytes();
  const size_t inner_bytes = onion_bytes - onion::kLayerBytes;
  const size_t count = onions.size() / onion_bytes;
  const size_t first = opened_;
  seeds_.resize(32 * (first + count));
  inner_.resize(inner_bytes * (first + count));
  valid_.resize(first + count);
  prints_.resize(first + count);
  pool_->ParallelFor(count, kChunk, [&](size_t begin, size_t end) {
    const size_t n = end - begin, at = first + begin;
    onion::PeelOnions(key_, context_->round_id, context_->layers(),
                      onions.subspan(begin * onion_bytes, n * onion_bytes),
                      MutableBytes(seeds_).subspan(32 * at, 32 * n),
                      MutableBytes(inner_).subspan(at * inner_bytes, n * inner_bytes),
                      std::span<uint8_t>(valid_).subspan(at, n));
    for (size_t i = at; i < at + n; ++i) {
      uint8_t print[8];
      crypto_shorthash(print, seeds_.data() + 32 * i, 32, fingerprint_key_.data());
      prints_[i] = {LoadLe<uint64_t>(print), static_cast<uint32_t>(i)};
    }
  });
  opened_ += count;
}

// Marks all but the first of equal seeds among the living. One seed can be sealed twice under
// different ciphertexts, so it is the seeds that are compared. Returns how many it marked.
uint64_t OnionIntake::MarkDuplicates() {
  const auto seed = [&](uint32_t position) {
    return BytesView(seeds_).subspan(size_t{32} * position, 32);
  };
  std::erase_if(prints_, [&](const Fingerprint& print) { return !valid_[print.position]; });
  std::sort(prints_.begin(), prints_.end());
  uint64_t marked = 0;
  for (size_t begin = 0; begin < prints_.size();) {
    size_t end = begin + 1;
    while (end < prints_.size() && prints_[end].value == prints_[begin].value) ++end;
    // Nearly always a run of one. Within a run the positions rise, so the first of equal seeds is
    // among the living before it.
    for (size_t later = begin + 1; later < end; ++later) {
      for (size_t earlier = begin; earlier < later; ++earlier) {
        const uint32_t a = prints_[earlier].position, b = prints_[later].position;
        if (!valid_[a] || !std::ranges::equal(seed(a), seed(b))) continue;
        valid_[b] = 0;
        ++marked;
        break;
      }
    }
    begin = end;
  }
  prints_ = {};
  return marked;
}

absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         const NoiseBatch& noise, BytesView onions,
                                         ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(OnionIntake intake,
                         OnionIntake::Begin(context, secrets, onions.size(), pool));
  SHOAL_RETURN_IF_ERROR(intake.Take(onions));
  return RunOffline(context, secrets, noise, std::move(intake), pool);
}

absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         const NoiseBatch& noise, OnionIntake intake,
                                         ThreadPool& pool) {
  if (!intake.complete()) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ended after ", intake.opened(),
                                                   " of ", intake.count(), " onions"));
  }
  OfflineOutput out;
  RoundState& state = out.state;
  intake.MarkDuplicates();
  const std::vector<uint8_t> valid = std::move(intake.valid_);
  state.positions = static_cast<uint32_t>(intake.count());
  state.seeds = std::move(intake.seeds_);
  state.seeds.shrink_to_fit();  // it grew as onions came, and stays for the round's life
  state.target.assign(state.positions, RoundState::kDead);
  for (uint32_t i = 0; i < state.positions; ++i) {
    if (valid[i]) continue;
    ++out.dead;
    sodium_memzero(state.seeds.data() + size_t{32} * i, 32);
  }
  if (context.is_backend()) {
    for (uint32_t i = 0; i < state.positions; ++i) {
      if (valid[i]) state.target[i] = 0;
    }
    return out;
  }

  // Shuffle the living, then the noise, to their places: first where everything goes, then the
  // bytes, on all threads.
  const size_t inner_bytes = context.onion_bytes() - onion::kLayerBytes;
  const uint64_t next_positions = state.positions - out.dead + noise.size();
  if (next_positions >= RoundState::kDead) {
    return absl::ResourceExhaustedError(absl::StrCat("offline list: ", next_positions,
                                                     " positions do not fit 32 bits"));
  }
  state.next_positions = static_cast<uint32_t>(next_positions);
  SHOAL_CHECK(noise.onions.size() == noise.size() * inner_bytes);
  SeededRandom random = secrets.Permutation();
  const SecretVector<uint32_t> place = shuffle::RandomPermutation(state.next_positions, random);
  size_t item = 0;
  for (uint32_t i = 0; i < state.positions; ++i) {
    if (valid[i]) state.target[i] = place[item++];
  }
  state.noise.resize(noise.size());
  for (size_t k = 0; k < noise.size(); ++k) state.noise[k] = {place[item++], noise.tallies[k]};
  SHOAL_CHECK(item == next_positions);
  out.onions.resize(next_positions * inner_bytes);
  pool.ParallelFor(state.positions, kChunk, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (!valid[i]) continue;
      std::copy_n(intake.inner_.data() + i * inner_bytes, inner_bytes,
                  out.onions.data() + state.target[i] * inner_bytes);
    }
  });
  pool.ParallelFor(noise.size(), kChunk, [&](size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      std::copy_n(noise.onions.data() + k * inner_bytes, inner_bytes,
                  out.onions.data() + state.noise[k].position * inner_bytes);
    }
  });
  return out;
}

}  // namespace shoal::server
