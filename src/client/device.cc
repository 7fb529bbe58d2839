#include "src/client/device.h"

#include <algorithm>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/onion/onion.h"
#include "src/sharing/batch.h"
#include "src/sharing/sharing.h"

namespace shoal::client {
namespace {

constexpr size_t kSeedBytes = onion::kSeedBytes;
// Onions that one task derives and seals: a few batches of boxes each.
constexpr size_t kOnionGrain = 128;

// Fills `out` with a key stream, from its byte `from` on.
void KeyStream(const Digest& key, uint8_t number, uint64_t from, MutableBytes out) {
  if (out.empty()) return;
  constexpr size_t kBlock = 64;
  const uint8_t nonce[crypto_stream_chacha20_ietf_NONCEBYTES] = {number};
  uint64_t block = from / kBlock;
  SHOAL_CHECK(block + out.size() / kBlock + 2 < uint64_t{1} << 32);  // the counter has 32 bits
  std::fill(out.begin(), out.end(), 0);
  const auto xor_blocks = [&](MutableBytes into) {
    crypto_stream_chacha20_ietf_xor_ic(into.data(), into.data(), into.size(), nonce,
                                       static_cast<uint32_t>(block), key.data());
  };
  if (const size_t skip = from % kBlock; skip != 0) {
    SecretArray<kBlock> first;
    xor_blocks(first.mutable_view());
    const size_t count = std::min(out.size(), kBlock - skip);
    std::copy_n(first.data() + skip, count, out.begin());
    out = out.subspan(count);
    ++block;
  }
  xor_blocks(out);
}

SecretVector<uint8_t> SeedsOf(const OnionRange& range, const round::Round& round) {
  SecretVector<uint8_t> seeds(size_t{range.count} * round.parties() * kSeedBytes);
  DeriveSecrets(range, round.id(), round.parties(), seeds, {});
  return seeds;
}

// The positions of one party's seeds (parties counted from 0) among the seeds of `count` onions.
std::vector<uint32_t> SeedsOfParty(const round::Round& round, size_t count, size_t party) {
  std::vector<uint32_t> positions(count);
  for (size_t i = 0; i < count; ++i) {
    positions[i] = static_cast<uint32_t>(i * round.parties() + party);
  }
  return positions;
}

template <typename T>
void AppendArray(std::span<const T> items, std::string& to) {
  to.append(reinterpret_cast<const char*>(items.data()), items.size_bytes());
}

void AppendTokens(const round::Round& round, const SecretVector<uint8_t>& seeds, std::string& to) {
  const size_t count = seeds.size() / (round.parties() * kSeedBytes);
  std::vector<sharing::Token> tokens(count);
  sharing::ExpandTokens(seeds.data(), SeedsOfParty(round, count, 0), round.id(), tokens);
  AppendArray(std::span<const sharing::Token>(tokens), to);
}

}  // namespace

void DeriveSecrets(const OnionRange& range, const Digest& round_id, uint32_t parties,
                   MutableBytes seeds, MutableBytes ephemerals) {
  const size_t onion_bytes = parties * kSeedBytes;
  SHOAL_CHECK(seeds.size() == range.count * onion_bytes);
  SHOAL_CHECK(ephemerals.empty() || ephemerals.size() == seeds.size());
  Digest key = Transcript("shoal client secrets v2", range.master->view()).Blob(round_id).Finish();
  KeyStream(key, 0, range.first * uint64_t{onion_bytes}, seeds);
  KeyStream(key, 1, range.first * uint64_t{onion_bytes}, ephemerals);
  sodium_memzero(key.data(), key.size());
}

std::string BuildOnions(const round::Round& round, std::span<const OnionRange> ranges,
                        ThreadPool* pool) {
  const size_t onion_bytes = onion::OnionBytes(round.parties());
  // Pieces of at most kOnionGrain onions, each of one range.
  struct Piece {
    OnionRange range;
    size_t offset;  // in onions
  };
  std::vector<Piece> pieces;
  size_t total = 0;
  for (const OnionRange& range : ranges) {
    for (uint32_t done = 0; done < range.count;) {
      const uint32_t count = std::min<uint32_t>(range.count - done, kOnionGrain);
      pieces.push_back({{range.master, range.first + done, count}, total});
      done += count;
      total += count;
    }
  }
  std::string text(total * onion_bytes, '\0');
  const MutableBytes onions(reinterpret_cast<uint8_t*>(text.data()), text.size());
  // Joins small ranges (a device's few onions) in one task, so that boxes are sealed in batches.
  std::vector<size_t> tasks = {0};
  size_t in_task = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (in_task != 0 && in_task + pieces[i].range.count > kOnionGrain) {
      tasks.push_back(i);
      in_task = 0;
    }
    in_task += pieces[i].range.count;
  }
  tasks.push_back(pieces.size());
  const auto seal = [&](size_t begin, size_t end) {
    for (size_t task = begin; task < end; ++task) {
      if (tasks[task] == tasks[task + 1]) continue;
      size_t count = 0;
      for (size_t i = tasks[task]; i < tasks[task + 1]; ++i) count += pieces[i].range.count;
      const size_t secret_bytes = round.parties() * kSeedBytes;
      SecretVector<uint8_t> seeds(count * secret_bytes);
      SecretVector<uint8_t> ephemerals(count * secret_bytes);
      size_t at = 0;
      for (size_t i = tasks[task]; i < tasks[task + 1]; ++i) {
        const size_t bytes = pieces[i].range.count * secret_bytes;
        DeriveSecrets(pieces[i].range, round.id(), round.parties(),
                      MutableBytes(seeds).subspan(at, bytes),
                      MutableBytes(ephemerals).subspan(at, bytes));
        at += bytes;
      }
      onion::BuildOnions(
          round.id(), round.recipients(), seeds, ephemerals,
          onions.subspan(pieces[tasks[task]].offset * onion_bytes, count * onion_bytes));
    }
  };
  if (pool != nullptr) {
    pool->ParallelFor(tasks.size() - 1, 1, seal);
  } else {
    seal(0, tasks.size() - 1);
  }
  return text;
}

void AppendQueries(const round::Round& round, const OnionRange& range,
                   std::span<const uint32_t> slots, std::span<const uint32_t> rows,
                   wire::SubmitQueriesRequest& request) {
  SHOAL_CHECK(slots.size() == range.count && rows.size() == range.count);
  const SecretVector<uint8_t> seeds = SeedsOf(range, round);
  AppendArray(slots, *request.mutable_slots());
  AppendTokens(round, seeds, *request.mutable_tokens());
  std::vector<uint32_t> tallies(range.count);
  sharing::FirstTallies(seeds, round.parties(), round.id(), rows, tallies);
  AppendArray(std::span<const uint32_t>(tallies), *request.mutable_tallies());
}

void AppendFetch(const round::Round& round, const OnionRange& range,
                 std::span<const uint32_t> slots, wire::FetchAnswersRequest& request) {
  SHOAL_CHECK(slots.size() == range.count);
  AppendArray(slots, *request.mutable_slots());
  AppendTokens(round, SeedsOf(range, round), *request.mutable_tokens());
}

void Unmask(const round::Round& round, const OnionRange& range, MutableBytes answers) {
  SHOAL_CHECK(answers.size() == range.count * round.answer_bytes());
  const SecretVector<uint8_t> seeds = SeedsOf(range, round);
  for (size_t party = 0; party < round.parties(); ++party) {
    sharing::XorMasks(seeds.data(), SeedsOfParty(round, range.count, party), round.id(),
                      round.answer_bytes(), answers);
  }
}

}  // namespace shoal::client
