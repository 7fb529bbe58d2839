#include "src/client/division.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/client/limits.h"
#include "src/client/rows.h"

namespace shoal::client {
namespace {

BytesView BytesOf(std::span<const uint32_t> rows) {
  return {reinterpret_cast<const uint8_t*>(rows.data()), rows.size_bytes()};
}

}  // namespace

uint32_t Padded(const Deployment& deployment, const ChainOptions& options, size_t rows) {
  return PaddedCount(rows, options.pad_to, deployment.manifest().rows());
}

absl::StatusOr<Division> Divide(const Deployment& deployment, const ChainOptions& options,
                                size_t distinct_rows) {
  const uint32_t queries = Padded(deployment, options, distinct_rows);
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
  return PadRows(rows, division.queries, call.deployment.manifest().rows(), draws);
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
