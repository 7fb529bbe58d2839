#include "src/client/division.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/query_buckets.h"
#include "src/base/random.h"
#include "src/client/limits.h"
#include "src/client/rows.h"
#include "src/client/virtual_places.h"

namespace shoal::client {
namespace {

BytesView BytesOf(std::span<const uint32_t> rows) {
  return {reinterpret_cast<const uint8_t*>(rows.data()), rows.size_bytes()};
}

// Where queries are for buckets.
std::optional<VirtualPlaces> PlacesOf(const Deployment& deployment) {
  const std::optional<QueryBuckets> buckets = deployment.buckets();
  if (!buckets) return std::nullopt;
  return VirtualPlaces(*buckets, deployment.roster().most_in_bucket());
}

// Adds padding to rows, until there are `queries`, in random order.
std::vector<uint32_t> Pad(const Deployment& deployment, std::span<const uint32_t> rows,
                          uint32_t queries, RandomSource& random) {
  if (const std::optional<VirtualPlaces> places = PlacesOf(deployment)) {
    return places->Draw(rows, queries, random).rows;
  }
  return PadRows(rows, queries, deployment.manifest().rows(), random);
}

}  // namespace

Asked AskedOf(const Deployment& deployment, std::span<const uint32_t> wanted) {
  const std::optional<VirtualPlaces> places = PlacesOf(deployment);
  if (!places) return {.rows = {wanted.begin(), wanted.end()}, .unasked = {}};
  VirtualPlaces::Taken taken = places->Take(wanted);
  std::ranges::sort(taken.rows);
  std::ranges::sort(taken.unknown);
  return {.rows = std::move(taken.rows), .unasked = std::move(taken.unknown)};
}

uint32_t Padded(const Deployment& deployment, const ChainOptions& options, const Wanted& wanted) {
  const std::optional<VirtualPlaces> places = PlacesOf(deployment);
  return places ? places->Queries(wanted.distinct_keys, options.pad_to)
                : PaddedCount(wanted.rows.size(), options.pad_to, deployment.manifest().rows());
}

absl::StatusOr<Division> Divide(const Deployment& deployment, const ChainOptions& options,
                                const Wanted& wanted) {
  const uint32_t queries = Padded(deployment, options, wanted);
  const uint32_t phi = deployment.roster().noise().phi;
  const bool all_in_one = queries <= phi || options.beyond_phi == BeyondPhi::kAcceptMore ||
                          (phi == 1 && options.beyond_phi == BeyondPhi::kRefuse);
  const Division division{.queries = queries, .in_each = all_in_one ? queries : phi};
  if (!all_in_one && options.beyond_phi == BeyondPhi::kRefuse) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this lookup takes ", queries,
        " queries, padding included, and a round of this deployment "
        "protects only ",
        phi,
        " queries of a device together; nothing was sent. --over-rounds "
        "spreads them over ",
        division.rounds(), " rounds, ", phi,
        " at most in each; --accept-more "
        "sends them all in one round, with less protection, which is printed first; a smaller "
        "pad_to in the configuration may make them fewer"));
  }
  if (division.rounds() > kMaxRoundsOfLookup) {
    return absl::FailedPreconditionError(
        absl::StrCat("this lookup takes ", queries, " queries, padding included, which are ",
                     division.rounds(), " rounds with ", phi, " queries in each: more than ",
                     kMaxRoundsOfLookup, "; nothing was sent"));
  }
  return division;
}

Digest SpreadDigest(const Deployment& deployment, const Division& division,
                    std::span<const uint32_t> rows) {
  return Transcript("shoal client spread list v1")
      .Blob(deployment.manifest().digest())
      .Blob(BytesOf(rows))
      .U64(division.queries)
      .U64(division.in_each)
      .Finish();
}

absl::StatusOr<std::vector<uint32_t>> Spread(const ChainCall& call, const Division& division,
                                             std::span<const uint32_t> rows) {
  State& state = call.store.state();
  const Digest digest = SpreadDigest(call.deployment, division, rows);
  const bool drawn = state.FindSpread(digest) != nullptr;
  const SpreadLookup& spread =
      state.AddSpread(digest, Attempts(call).Time(), *call.environment.random);
  if (!drawn) {
    if (absl::Status saved = call.store.Save(); !saved.ok()) {
      state.DropSpread(digest);
      return saved;
    }
  }
  SeededRandom draws(spread.seed.view(), "shoal client spread v1");
  return Pad(call.deployment, rows, division.queries, draws);
}

std::vector<uint32_t> QueriesOf(const Deployment& deployment, const Portion& part,
                                RandomSource& random) {
  if (part.parts == 1 || !deployment.buckets()) {
    return Pad(deployment, part.rows, part.queries, random);
  }
  // Spread has added the padding, for all rounds at once. The order is the round's own.
  SHOAL_CHECK(part.rows.size() == part.queries);
  std::vector<uint32_t> rows(part.rows.begin(), part.rows.end());
  const Seed seed = random.NewSeed();
  SeededRandom draws(seed.view(), "shoal client order v1");
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[draws.Below(i)]);
  return rows;
}

std::vector<Portion> PartsOf(const Division& division, std::span<const uint32_t> rows,
                             std::span<uint32_t> spread) {
  std::vector<Portion> parts;
  for (uint32_t number = 0; number < division.rounds(); ++number) {
    const uint32_t queries = division.InRound(number);
    const size_t first = std::min(spread.size(), size_t{number} * division.in_each);
    const std::span<uint32_t> share =
        spread.subspan(first, std::min<size_t>(queries, spread.size() - first));
    std::ranges::sort(share);  // the round has an order of its own
    parts.push_back({.rows = share,
                     .queries = queries,
                     .lookup = rows,
                     .number = number,
                     .parts = division.rounds()});
  }
  return parts;
}

Digest WantedDigest(const HeldRound& held, const Portion& part, bool wants_term) {
  return Transcript("shoal client wanted v2", held.master.view())
      .U64(wants_term)
      .Blob(BytesOf(part.lookup))
      .Blob(BytesOf(part.rows))
      .U64(part.number)
      .U64(part.parts)
      .Finish();
}

}  // namespace shoal::client
