#include "src/client/refresh.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/sharing/batch.h"
#include "src/sharing/sharing.h"
#include "src/table/refresh.h"

namespace shoal::client {
namespace {

// Seeds that one task derives.
constexpr size_t kGrain = 128;

// The places of one party's seeds (parties counted from 0) among those of `count` slots.
std::vector<uint32_t> PlacesOf(size_t parties, size_t count, size_t party) {
  std::vector<uint32_t> places(count);
  for (size_t i = 0; i < count; ++i) places[i] = static_cast<uint32_t>(i * parties + party);
  return places;
}

}  // namespace

absl::Status CheckTermsExist(const Deployment& deployment) {
  if (const uint32_t most = deployment.roster().most_in_bucket(); most != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no round of this deployment has a term: it is of two tiers (most_in_bucket ", most,
        " in the roster, query_buckets ", deployment.manifest().content().query_buckets(),
        " in the table), whose rounds have none yet. Waiting does not help; make lookups with "
        "shoal "
        "query"));
  }
  if (deployment.roster().max_refreshes() > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "no round of this deployment has a term: its roster, which all parties have signed, has no "
      "term_limit. Waiting does not help; ask the operators, or make lookups with shoal query");
}

bool TermSuits(const wire::RoundHeader& header, bool wants_refreshes, uint64_t begun_s,
               uint64_t now_s) {
  const bool has_term = header.max_refreshes() > 0;
  if (wants_refreshes) return has_term;
  return !has_term || now_s >= begun_s + kOutOfTermsS;
}

absl::StatusOr<VerifiedRefresh> VerifyRefresh(const wire::GetRefreshResponse& response,
                                              const TermRound& term, const Deployment& deployment) {
  const wire::RefreshHeader& header = response.refresh().header();
  if (term.header.roster_digest() != AsText(deployment.roster().digest())) {
    return absl::FailedPreconditionError(
        "the deployment has another roster than when this device enrolled");
  }
  SHOAL_RETURN_IF_ERROR(
      round::VerifyRefresh(response.refresh(), term.id, term.header, deployment.roster()));
  const table::Manifest& manifest = deployment.manifest();
  if (header.epoch() != manifest.epoch() || header.manifest_digest() != AsText(manifest.digest())) {
    return absl::FailedPreconditionError(absl::StrCat("the latest refresh is of epoch ",
                                                      header.epoch(), ", and epoch ",
                                                      manifest.epoch(), " of the table is served"));
  }
  SHOAL_RETURN_IF_ERROR(table::CanRefresh(term.manifest, manifest.content()));
  const auto parties = static_cast<size_t>(term.header.onion_keys_size());
  if (response.tags().size() != sizeof(round::RefreshTag) * parties) {
    return absl::InvalidArgumentError("refresh: not a tag of every party");
  }
  VerifiedRefresh refresh{.header = header, .tags = {}};
  for (size_t j = 0; j < parties; ++j) {
    round::RefreshTag& tag = refresh.tags.emplace_back();
    std::ranges::copy(AsBytes(response.tags()).subspan(j * tag.size(), tag.size()), tag.begin());
  }
  return refresh;
}

SecretVector<uint8_t> TermSeedsOf(const round::Round& round, std::span<const OnionRange> ranges,
                                  ThreadPool* pool) {
  SecretVector<uint8_t> seeds = SeedsOf(round, ranges, pool);
  const auto derive = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const MutableBytes seed = MutableBytes(seeds).subspan(i * Seed::size(), Seed::size());
      const Seed term = round::TermSeed(seed, round.id());
      std::ranges::copy(term.view(), seed.begin());
    }
  };
  ParallelFor(pool, seeds.size() / Seed::size(), kGrain, derive);
  return seeds;
}

std::vector<Digest> MasksOf(const VerifiedRefresh& refresh) {
  std::vector<Digest> masks;
  for (const round::RefreshTag& tag : refresh.tags) {
    masks.push_back(round::RefreshMasksId(refresh.header, tag));
  }
  return masks;
}

size_t SlotsInRequest(std::span<const uint32_t> slots, size_t most) {
  const size_t bound = std::min(slots.size(), most);
  size_t runs = 0;
  for (size_t i = 0; i < bound; ++i) {
    if (i > 0 && slots[i] == slots[i - 1] + 1) continue;
    if (++runs > kMaxSlotRuns) return i;
  }
  return bound;
}

wire::FetchRefreshRequest MakeRefreshFetch(const wire::RefreshHeader& refresh,
                                           std::span<const Digest> masks,
                                           std::span<const uint32_t> slots, const uint8_t* seeds) {
  std::vector<sharing::Token> tokens(slots.size());
  sharing::ExpandTokens(seeds, PlacesOf(masks.size(), slots.size(), 0), masks[0], tokens);
  wire::FetchRefreshRequest request;
  request.set_round_id(refresh.round_id());
  request.set_number(refresh.number());
  Bytes numbers;
  for (const uint32_t slot : slots) AppendLe(numbers, slot);
  request.set_slots(ToString(numbers));
  request.mutable_tokens()->reserve(tokens.size() * sharing::kTokenBytes);
  for (const sharing::Token& token : tokens) {
    request.mutable_tokens()->append(token.begin(), token.end());
  }
  return request;
}

void UnmaskRefresh(std::span<const Digest> masks, const uint8_t* seeds, size_t answer_bytes,
                   BytesView tagged, MutableBytes answers) {
  const size_t count = answers.size() / answer_bytes;
  sharing::UnmaskAnswers({seeds, count * masks.size() * Seed::size()}, masks, answer_bytes, tagged,
                         answers);
}

}  // namespace shoal::client
