#include "src/server/offline.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
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

// Marks all but the first of equal seeds among the living. One seed can be sealed twice under
// different ciphertexts, so it is the seeds that are compared. Returns how many it marked.
uint64_t MarkDuplicates(const RoundSecrets& secrets, RoundState& state, std::span<uint8_t> valid) {
  struct Fingerprint {
    uint64_t value;
    uint32_t position;
    bool operator<(const Fingerprint& other) const {
      return value != other.value ? value < other.value : position < other.position;
    }
  };
  static_assert(crypto_shorthash_KEYBYTES <= 32 && crypto_shorthash_BYTES == 8);
  const Seed key = secrets.FingerprintKey();
  SecretVector<Fingerprint> prints;
  prints.reserve(state.positions);
  for (uint32_t i = 0; i < state.positions; ++i) {
    if (!valid[i]) continue;
    uint8_t print[8];
    crypto_shorthash(print, state.seed(i).data(), 32, key.data());
    prints.push_back({LoadLe<uint64_t>(print), i});
  }
  std::sort(prints.begin(), prints.end());
  uint64_t marked = 0;
  for (size_t begin = 0; begin < prints.size();) {
    size_t end = begin + 1;
    while (end < prints.size() && prints[end].value == prints[begin].value) ++end;
    // Nearly always a run of one. Within a run the positions rise.
    for (size_t later = begin + 1; later < end; ++later) {
      for (size_t earlier = begin; earlier < later; ++earlier) {
        if (!valid[prints[earlier].position]) continue;
        if (!std::ranges::equal(state.seed(prints[earlier].position),
                                state.seed(prints[later].position))) {
          continue;
        }
        valid[prints[later].position] = 0;
        ++marked;
        break;
      }
    }
    begin = end;
  }
  return marked;
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

absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         const NoiseBatch& noise, BytesView onions,
                                         ThreadPool& pool) {
  const size_t onion_bytes = context.onion_bytes();
  if (onions.size() % onion_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ", onions.size(),
                                                   " bytes are not a whole number of onions of ",
                                                   onion_bytes, " bytes"));
  }
  const uint64_t count = onions.size() / onion_bytes;
  const uint64_t most =
      MaxPositions(context.party, context.max_slots, context.max_rows, context.noise);
  if (count > most || count >= RoundState::kDead) {
    return absl::InvalidArgumentError(
        absl::StrCat("offline list: ", count, " onions, where the header allows ", most));
  }

  OfflineOutput out;
  RoundState& state = out.state;
  state.positions = static_cast<uint32_t>(count);
  state.seeds.resize(32 * count);
  state.target.assign(count, RoundState::kDead);

  // Open.
  const size_t inner_bytes = onion_bytes - onion::kLayerBytes;
  Bytes inner(count * inner_bytes);
  std::vector<uint8_t> valid(count);
  const onion::KeyPair key = secrets.OnionKeyPair();
  pool.ParallelFor(count, kChunk, [&](size_t begin, size_t end) {
    const size_t n = end - begin;
    onion::PeelOnions(key, context.round_id, context.layers(),
                      onions.subspan(begin * onion_bytes, n * onion_bytes),
                      MutableBytes(state.seeds).subspan(32 * begin, 32 * n),
                      MutableBytes(inner).subspan(begin * inner_bytes, n * inner_bytes),
                      std::span<uint8_t>(valid).subspan(begin, n));
  });
  MarkDuplicates(secrets, state, valid);
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

  // Shuffle the living, then the noise, to their places.
  const uint64_t next_positions = count - out.dead + noise.size();
  if (next_positions >= RoundState::kDead) {
    return absl::ResourceExhaustedError(absl::StrCat("offline list: ", next_positions,
                                                     " positions do not fit 32 bits"));
  }
  state.next_positions = static_cast<uint32_t>(next_positions);
  SeededRandom random = secrets.Permutation();
  const SecretVector<uint32_t> place = shuffle::RandomPermutation(state.next_positions, random);
  out.onions.resize(next_positions * inner_bytes);
  SHOAL_CHECK(noise.onions.size() == noise.size() * inner_bytes);
  size_t item = 0;
  for (uint32_t i = 0; i < state.positions; ++i) {
    if (!valid[i]) continue;
    state.target[i] = place[item++];
    std::copy_n(inner.data() + i * inner_bytes, inner_bytes,
                out.onions.data() + state.target[i] * inner_bytes);
  }
  state.noise.reserve(noise.size());
  for (size_t k = 0; k < noise.size(); ++k) {
    const uint32_t position = place[item++];
    state.noise.push_back({position, noise.tallies[k]});
    std::copy_n(noise.onions.data() + k * inner_bytes, inner_bytes,
                out.onions.data() + position * inner_bytes);
  }
  SHOAL_CHECK(item == next_positions);
  return out;
}

}  // namespace shoal::server
