#include "src/client/device.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/onion/onion.h"
#include "src/sharing/batch.h"
#include "src/sharing/halves.h"
#include "src/sharing/sharing.h"

namespace shoal::client {
namespace {

constexpr size_t kSeedBytes = onion::kSeedBytes;
// Onions that one task builds: a few batches.
constexpr size_t kOnionGrain = 128;

// A chain that the onions of a round go through: the round's own or, in a round of two tiers, a
// half's.
struct Chain {
  Digest id;                                     // of the round, or the half
  std::span<const onion::Recipient> recipients;  // party 1's first

  // The recipients of the inner onions: parties 2 to m.
  std::span<const onion::Recipient> inner() const { return recipients.subspan(1); }
  size_t onion_bytes() const { return onion::OnionBytes(recipients.size() - 1); }
};
std::vector<Chain> ChainsOf(const round::Round& round) {
  const std::span<const onion::Recipient> all = round.recipients();
  if (!round.buckets()) return {{round.id(), all}};
  const sharing::HalfIds ids(round.id());
  return {{ids.a, all.first(2)}, {ids.b, all.subspan(2)}};
}

// A keyed digest over the chain's id, to be continued.
Transcript Keyed(const Seed& master, absl::string_view domain, const Chain& chain) {
  Transcript transcript(domain, master.view());
  transcript.Blob(chain.id);
  return transcript;
}

// Fills `out` with a key stream, from its byte `from` on.
void KeyStream(const Digest& key, uint64_t from, MutableBytes out) {
  if (out.empty()) return;
  constexpr size_t kBlock = 64;
  constexpr uint8_t kNonce[crypto_stream_chacha20_ietf_NONCEBYTES] = {};
  uint64_t block = from / kBlock;
  SHOAL_CHECK(block + out.size() / kBlock + 2 < uint64_t{1} << 32);  // the counter has 32 bits
  std::fill(out.begin(), out.end(), 0);
  const auto xor_blocks = [&](MutableBytes into) {
    crypto_stream_chacha20_ietf_xor_ic(into.data(), into.data(), into.size(), kNonce,
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

Seed SubmissionSecret(const Chain& chain, const Seed& master, const OnionSubmission& submission) {
  Digest digest = Keyed(master, "shoal client submission v3", chain)
                      .U64(submission.first)
                      .Blob(submission.plaintext)
                      .Finish();
  Seed secret(digest);
  sodium_memzero(digest.data(), digest.size());
  return secret;
}

size_t CountOf(std::span<const OnionRange> ranges) {
  size_t count = 0;
  for (const OnionRange& range : ranges) count += range.count;
  return count;
}

// Onions that are built together: parts of ranges, so that those of many devices share a batch.
struct Batch {
  std::vector<OnionRange> parts;
  size_t first = 0;  // the number of its first onion among all of the ranges
  size_t count = 0;
};
std::vector<Batch> Batches(std::span<const OnionRange> ranges) {
  std::vector<Batch> batches;
  size_t total = 0;
  for (const OnionRange& range : ranges) {
    for (uint32_t done = 0; done < range.count;) {
      if (batches.empty() || batches.back().count == kOnionGrain) {
        batches.emplace_back().first = total;
      }
      Batch& batch = batches.back();
      const auto count =
          static_cast<uint32_t>(std::min<size_t>(range.count - done, kOnionGrain - batch.count));
      batch.parts.push_back({range.master, range.submission, range.first + done, count});
      batch.count += count;
      done += count;
      total += count;
    }
  }
  return batches;
}

void ForBatches(std::span<const OnionRange> ranges, ThreadPool* pool,
                const std::function<void(const Batch&)>& work) {
  const std::vector<Batch> batches = Batches(ranges);
  ParallelForEach(pool, batches.size(), [&](size_t i) { work(batches[i]); });
}

// Builds the inner onions of a batch, or only the seeds of parties 2 to m if `onions` is empty.
SecretVector<uint8_t> BuildBatch(const Chain& chain, const Batch& batch, MutableBytes onions) {
  const size_t onion_secrets = chain.inner().size() * kSeedBytes;
  SecretVector<uint8_t> secrets(batch.count * onion_secrets), seeds(secrets.size());
  MutableBytes rest = secrets;
  for (const OnionRange& part : batch.parts) {
    Digest key = Keyed(*part.master, "shoal client onions v3", chain).Finish();
    KeyStream(key, (uint64_t{part.submission->first} + part.first) * onion_secrets,
              rest.first(part.count * onion_secrets));
    sodium_memzero(key.data(), key.size());
    rest = rest.subspan(part.count * onion_secrets);
  }
  onion::BuildOnions(chain.id, 2, chain.inner(), secrets, seeds, onions);
  return seeds;
}

// The seeds of the chain's party 1, of onions that a range is a part of.
void FirstSeeds(const Chain& chain, std::span<const OnionRange> ranges, MutableBytes seeds) {
  std::vector<Seed> secrets;
  secrets.reserve(ranges.size());
  std::vector<onion::SubmissionToSeal> to_export;
  for (const OnionRange& range : ranges) {
    secrets.push_back(SubmissionSecret(chain, *range.master, *range.submission));
    const size_t bytes = range.count * kSeedBytes;
    to_export.push_back({.ephemeral_secret = secrets.back().view(),
                         .onions = {},
                         .submission = {},
                         .seeds = seeds.first(bytes),
                         .first = range.first});
    seeds = seeds.subspan(bytes);
  }
  onion::SealSubmissions(chain.recipients[0], chain.id, to_export);
}

// The positions of one party's seeds (parties counted from 0) among the seeds of `count` onions.
std::vector<uint32_t> SeedsOfParty(size_t parties, size_t count, size_t party) {
  std::vector<uint32_t> positions(count);
  for (size_t i = 0; i < count; ++i) positions[i] = static_cast<uint32_t>(i * parties + party);
  return positions;
}

template <typename T>
void AppendArray(std::span<const T> items, std::string& to) {
  to.append(reinterpret_cast<const char*>(items.data()), items.size_bytes());
}

void AppendSlots(std::span<const OnionRange> ranges, std::string& to) {
  for (const OnionRange& range : ranges) {
    SHOAL_CHECK(range.submission->first_slot.has_value());
    std::vector<uint32_t> slots(range.count);
    std::iota(slots.begin(), slots.end(), *range.submission->first_slot + range.first);
    AppendArray(std::span<const uint32_t>(slots), to);
  }
}

// Adds the tokens of the seeds at these positions, under the id of the round or of half A.
void AppendTokens(const Digest& id, const SecretVector<uint8_t>& seeds,
                  std::span<const uint32_t> positions, std::string& to) {
  std::vector<sharing::Token> tokens(positions.size());
  sharing::ExpandTokens(seeds.data(), positions, id, tokens);
  AppendArray(std::span<const sharing::Token>(tokens), to);
}

}  // namespace

std::vector<OnionSubmission> Split(uint32_t first, uint32_t end, uint32_t most) {
  SHOAL_CHECK(most > 0);
  std::vector<OnionSubmission> submissions;
  while (first < end) {
    const uint32_t count = std::min(end - first, most);
    submissions.push_back(
        {.first = first, .count = count, .plaintext = {}, .first_slot = std::nullopt});
    first += count;
  }
  return submissions;
}

std::vector<OnionRange> Ranges(const Seed& master, std::span<const OnionSubmission> submissions,
                               size_t first, size_t count) {
  std::vector<OnionRange> ranges;
  if (count == 0) return ranges;
  // The first submission that begins after `first` follows the one that holds it.
  auto submission = std::ranges::upper_bound(submissions, first, {}, &OnionSubmission::first);
  SHOAL_CHECK(submission != submissions.begin());
  for (--submission; count > 0; ++submission) {
    SHOAL_CHECK(submission != submissions.end());
    const size_t skipped = first - submission->first;
    const size_t part = std::min(count, submission->count - skipped);
    ranges.push_back(
        {&master, &*submission, static_cast<uint32_t>(skipped), static_cast<uint32_t>(part)});
    first += part;
    count -= part;
  }
  return ranges;
}

std::vector<std::string> MakeSubmissions(const round::Round& round,
                                         std::span<const SubmissionToMake> submissions,
                                         ThreadPool* pool) {
  std::vector<OnionRange> ranges;
  for (const auto& [master, submission] : submissions) {
    ranges.push_back({master, submission, 0, submission->count});
  }
  const std::vector<Chain> chains = ChainsOf(round);
  std::vector<Bytes> onions;  // of all submissions, for each chain
  for (const Chain& chain : chains) {
    const size_t each = chain.onion_bytes();
    Bytes& all = onions.emplace_back(CountOf(ranges) * each);
    ForBatches(ranges, pool, [&](const Batch& batch) {
      BuildBatch(chain, batch, MutableBytes(all).subspan(batch.first * each, batch.count * each));
    });
  }

  std::vector<std::string> sealed(submissions.size());
  std::vector<std::vector<onion::SubmissionToSeal>> to_seal(chains.size());
  std::vector<Seed> secrets;
  secrets.reserve(submissions.size() * chains.size());
  size_t first = 0;
  for (size_t i = 0; i < submissions.size(); ++i) {
    OnionSubmission& submission = *submissions[i].submission;
    std::vector<BytesView> plaintexts;
    Transcript digest("shoal client plaintext v3");
    for (size_t c = 0; c < chains.size(); ++c) {
      const size_t each = chains[c].onion_bytes();
      plaintexts.push_back(BytesView(onions[c]).subspan(first * each, submission.count * each));
      digest.Blob(plaintexts.back());
    }
    first += submission.count;
    submission.plaintext = digest.Finish();
    sealed[i].resize(round.SubmissionBytes(submission.count));
    MutableBytes rest(reinterpret_cast<uint8_t*>(sealed[i].data()), sealed[i].size());
    for (size_t c = 0; c < chains.size(); ++c) {
      secrets.push_back(SubmissionSecret(chains[c], *submissions[i].master, submission));
      const size_t bytes = onion::kSealBytes + plaintexts[c].size();
      to_seal[c].push_back({.ephemeral_secret = secrets.back().view(),
                            .onions = plaintexts[c],
                            .submission = rest.first(bytes),
                            .seeds = {}});
      rest = rest.subspan(bytes);
    }
  }
  for (size_t c = 0; c < chains.size(); ++c) {
    onion::SealSubmissions(chains[c].recipients[0], chains[c].id, to_seal[c]);
  }
  return sealed;
}

SecretVector<uint8_t> SeedsOf(const round::Round& round, std::span<const OnionRange> ranges,
                              ThreadPool* pool) {
  const size_t each = round.recipients().size() * kSeedBytes;
  SecretVector<uint8_t> seeds(CountOf(ranges) * each);
  size_t at = 0;  // of the chain's seeds among an onion's
  for (const Chain& chain : ChainsOf(round)) {
    const size_t inner_bytes = chain.inner().size() * kSeedBytes;
    ForBatches(ranges, pool, [&](const Batch& batch) {
      const SecretVector<uint8_t> inner = BuildBatch(chain, batch, {});
      SecretVector<uint8_t> first(batch.count * kSeedBytes);
      FirstSeeds(chain, batch.parts, first);
      for (size_t i = 0; i < batch.count; ++i) {
        uint8_t* to = seeds.data() + (batch.first + i) * each + at;
        to = std::copy_n(first.data() + i * kSeedBytes, kSeedBytes, to);
        std::copy_n(inner.data() + i * inner_bytes, inner_bytes, to);
      }
    });
    at += kSeedBytes + inner_bytes;
  }
  return seeds;
}

wire::SubmitQueriesRequest MakeQueries(const round::Round& round,
                                       std::span<const OnionRange> ranges,
                                       std::span<const uint32_t> rows, ThreadPool* pool) {
  SHOAL_CHECK(rows.size() == CountOf(ranges));
  const SecretVector<uint8_t> seeds = SeedsOf(round, ranges, pool);
  wire::SubmitQueriesRequest request;
  request.set_round_id(ToString(round.id()));
  AppendSlots(ranges, *request.mutable_slots());
  if (round.buckets()) {
    Bytes parts(rows.size() * round.parts_bytes());
    sharing::MakeParts(seeds, sharing::HalfIds(round.id()), *round.buckets(), rows, parts);
    request.set_parts(ToString(parts));
    return request;
  }
  std::vector<uint32_t> tallies(rows.size());
  sharing::FirstTallies(seeds, round.parties(), round.id(), rows, tallies);
  AppendTokens(round.id(), seeds, SeedsOfParty(round.parties(), rows.size(), 0),
               *request.mutable_tokens());
  AppendArray(std::span<const uint32_t>(tallies), *request.mutable_tallies());
  return request;
}

wire::FetchAnswersRequest MakeFetch(const round::Round& round, std::span<const OnionRange> ranges) {
  const size_t count = CountOf(ranges);
  const Chain first = ChainsOf(round).front();
  SecretVector<uint8_t> seeds(count * kSeedBytes);
  FirstSeeds(first, ranges, seeds);
  wire::FetchAnswersRequest request;
  request.set_round_id(ToString(round.id()));
  AppendSlots(ranges, *request.mutable_slots());
  AppendTokens(first.id, seeds, SeedsOfParty(1, count, 0), *request.mutable_tokens());
  return request;
}

void Unmask(const round::Round& round, std::span<const OnionRange> ranges, BytesView fetched,
            MutableBytes answers) {
  SHOAL_CHECK(answers.size() == CountOf(ranges) * round.answer_bytes());
  const SecretVector<uint8_t> seeds = SeedsOf(round, ranges, /*pool=*/nullptr);
  if (round.buckets()) {
    sharing::UnmaskHalves(seeds, sharing::HalfIds(round.id()), round.buckets()->selection_bytes(),
                          round.answer_bytes(), fetched, answers);
    return;
  }
  const std::vector<Digest> ids(round.parties(), round.id());
  sharing::UnmaskAnswers(seeds, ids, round.answer_bytes(), fetched, answers);
}

}  // namespace shoal::client
