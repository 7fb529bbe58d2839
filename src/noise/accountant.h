// Computes the exact privacy of noise on a histogram: which (epsilon, delta) really holds.
//
// Neighbours are two batches that differ in queries of one client. A changed query asks for row b
// instead of row a, so count a falls by one and count b rises by one (substitution). The backend
// sees counts plus independent noise, so only the changed rows tell the two batches apart:
//
//   row a:  1 + N  against  N         loss at x: ln P(x - 1) / P(x)
//   row b:      N  against  1 + N     loss at y: ln P(y) / P(y - 1)
//
// and the joint delta is  sum over (x, y) of max(0, P0(x, y) - e^epsilon P1(x, y)), the tight one
// for this epsilon. The other direction exchanges a and b and gives the same number. More changed
// queries, more rounds and repeated submissions are more such pairs of rows, all independent.
#ifndef SHOAL_SRC_NOISE_ACCOUNTANT_H_
#define SHOAL_SRC_NOISE_ACCOUNTANT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace shoal::noise {

// A probability as an integer over 2^128.
using Weight = unsigned __int128;

// How much of one client's behaviour the noise must hide.
struct Exposure {
  // Changed queries in one round, on distinct rows.
  uint32_t phi = 1;
  // Rounds in which the client is active.
  uint32_t rounds = 1;
  // How often each query is submitted, every time in another round, with fresh noise (retries).
  uint32_t submissions = 1;
  // How often a changed query asks the same row in the same round: each copy moves the row's count
  // by one more. An honest client never asks a row more than once. With two tiers rows are buckets,
  // of which a list may have several keys (FullestPattern).
  uint32_t copies = 1;
};

// The worst that `phi` changed queries of one round can do to the counts of buckets, if a client
// asks each bucket at most `most_in_bucket` times: as many pairs of buckets as can be, of which one
// falls and one rises by as much as can be. Nothing is worse for log-concave noise, whatever part
// of the changes an adversary lets through (docs/privacy.md, "Several keys in one bucket"); for
// other noise it can be. With most_in_bucket 1 these are changes on distinct rows. Both at least 1
// (checked).
Exposure FullestPattern(uint32_t phi, uint32_t most_in_bucket);

inline constexpr uint64_t kMaxChanges = 1'000'000'000;  // phi * rounds * submissions
inline constexpr uint32_t kMaxCopies = 10'000;

// lower <= the exact delta <= upper. The bounds include the errors of discretisation, truncation,
// aliasing and rounding: each is bounded and counted on the safe side.
struct DeltaBounds {
  double lower = 0;
  double upper = 0;
};

// The number of grid points for losses when more than one query changes.
enum class Precision {
  kSearch,  // 2^14 points: the upper bound is off by some parts in a thousand, in milliseconds
  kExact,   // 2^18 points: off by some parts in a hundred thousand (lower bound: some per cent)
};

// The delta that holds at `epsilon` for noise where k has probability weights[k] / 2^128. One
// change: exact enumeration, O(n log n) for n weights. Several changes: the privacy losses are
// rounded so that the result can only be worse (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022,
// "Connect the Dots"), tilted so that the far tail keeps its precision, and convolved by FFT.
// INVALID_ARGUMENT names the argument that is out of range: epsilon not in [0, 50], weights that do
// not sum to 2^128, an Exposure with a zero in it or beyond the limits above.
absl::StatusOr<DeltaBounds> SubstitutionDelta(std::span<const Weight> weights, double epsilon,
                                              const Exposure& exposure,
                                              Precision precision = Precision::kExact);

// The upper bound alone, in half the time.
absl::StatusOr<double> SubstitutionDeltaUpper(std::span<const Weight> weights, double epsilon,
                                              const Exposure& exposure,
                                              Precision precision = Precision::kExact);

// Independent changes of different kinds, whose privacy losses add up: what a client has asked
// under several noise settings, in many rounds.
struct Composition {
  // `changes` pairs of rows under this noise, or of buckets, of which one falls and one rises by
  // `copies`.
  struct Noise {
    std::span<const Weight> weights;
    uint64_t changes = 0;
    uint32_t copies = 1;
  };
  // `times` mechanisms of which only the claim (epsilon, delta) is known.
  struct Claim {
    double epsilon = 0;
    double delta = 0;
    uint64_t times = 0;
  };
  std::vector<Noise> noise;
  std::vector<Claim> claims;
};

// The largest epsilon that is computed with.
inline constexpr double kMaxComposedEpsilon = 50;

// The delta that holds at `epsilon` for everything in the composition together, by the same
// convolution as for several changes. The upper bound contains the worst mechanism for each claim.
// An empty composition has delta 0. INVALID_ARGUMENT as for SubstitutionDelta, and if there are
// more than kMaxChanges changes and claims.
absl::StatusOr<DeltaBounds> ComposedDelta(const Composition& composition, double epsilon,
                                          Precision precision = Precision::kExact);

// An epsilon that holds at `delta` for everything together, larger than the smallest one by some
// parts in 10^4 at most. OUT_OF_RANGE if none up to kMaxComposedEpsilon holds, because a change is
// given away with a higher probability or because the losses are too large. INVALID_ARGUMENT as for
// ComposedDelta. Takes a fraction of a second for each kind of change.
absl::StatusOr<double> ComposedEpsilon(const Composition& composition, double delta);

// Turns relative frequencies (finite, non-negative, not all zero) into weights that sum to 2^128.
// INVALID_ARGUMENT otherwise.
absl::StatusOr<std::vector<Weight>> WeightsFrom(std::span<const double> frequencies);

}  // namespace shoal::noise

#endif  // SHOAL_SRC_NOISE_ACCOUNTANT_H_
