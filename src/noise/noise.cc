#include "src/noise/noise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "boost/multiprecision/cpp_bin_float.hpp"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"

namespace shoal::noise {
namespace {

// 256 bits. The longest recurrence below has 2^19 steps, whose errors grow with the square of their
// number: more than 200 bits stay correct, and the tables need 128.
using Float = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<256, boost::multiprecision::digit_base_2>,
    boost::multiprecision::et_off>;

// Where the right side is cut, in scales. exp(-72.1) and exp(-12.1^2 / 2) are below 2^-104, and so
// is the share of the right side's mass that lies beyond the cut.
constexpr double kGeometricCut = 72.1;
constexpr double kGaussianCut = 12.1;

absl::Status OutOfRange(absl::string_view name, absl::string_view range, double got) {
  return absl::InvalidArgumentError(
      absl::StrFormat("noise: %s must be %s, got %g", name, range, got));
}

// False for NaN.
bool Within(double value, double low, double high) { return value >= low && value <= high; }

absl::Status CheckClaim(double epsilon, double delta, uint32_t phi) {
  if (!Within(epsilon, kMinEpsilon, kMaxEpsilon)) {
    return OutOfRange("epsilon", absl::StrFormat("in [%g, %g]", kMinEpsilon, kMaxEpsilon), epsilon);
  }
  if (!(delta >= kMinDelta && delta < 1)) {
    return OutOfRange("delta", absl::StrFormat("in [%g, 1)", kMinDelta), delta);
  }
  if (phi < 1 || phi > kMaxPhi) {
    return OutOfRange("phi", absl::StrFormat("in [1, %d]", kMaxPhi), phi);
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const Parameters& p) {
  const uint32_t least_mode = p.mechanism == Mechanism::kClampedLaplace ? 1 : 0;
  if (p.mode < least_mode || p.mode > kMaxMode) {
    return OutOfRange("mode", absl::StrFormat("in [%d, %d]", least_mode, kMaxMode), p.mode);
  }
  double low = 0, high = 0;
  switch (p.mechanism) {
    case Mechanism::kClampedLaplace:
      break;
    case Mechanism::kGeometric:
      low = kMinScale, high = kMaxGeometricScale;
      break;
    case Mechanism::kSplitGaussian:
      low = kMinScale, high = kMaxGaussianScale;
      break;
    default:
      return OutOfRange("mechanism", "clamped_laplace, geometric or split_gaussian",
                        static_cast<int>(p.mechanism));
  }
  const std::string range =
      high == 0 ? "zero for clamped_laplace" : absl::StrFormat("in [%g, %g]", low, high);
  if (!Within(p.left_scale, low, high)) return OutOfRange("left_scale", range, p.left_scale);
  if (!Within(p.right_scale, low, high)) return OutOfRange("right_scale", range, p.right_scale);
  return absl::OkStatus();
}

// exp(-d / scale) for d = 0 .. n.
std::vector<Float> ExponentialFall(Float scale, size_t n) {
  std::vector<Float> falls(n + 1);
  const Float step = exp(-1 / scale);
  falls[0] = 1;
  for (size_t d = 1; d <= n; ++d) falls[d] = falls[d - 1] * step;
  return falls;
}

// exp(-d^2 / (2 width^2)) for d = 0 .. n.
std::vector<Float> GaussianFall(double width, size_t n) {
  std::vector<Float> falls(n + 1);
  Float ratio = exp(-1 / (2 * Float(width) * Float(width)));
  const Float step = ratio * ratio;
  falls[0] = 1;
  for (size_t d = 1; d <= n; ++d, ratio *= step) falls[d] = falls[d - 1] * ratio;
  return falls;
}

// The two falls joined at the mode, values 0 .. mode + right.size() - 1.
std::vector<Float> Join(const std::vector<Float>& left, const std::vector<Float>& right) {
  std::vector<Float> joined(left.rbegin(), left.rend());
  joined.insert(joined.end(), right.begin() + 1, right.end());
  return joined;
}

// P(k) up to a factor, k = 0 .. max.
std::vector<Float> Frequencies(const Parameters& p) {
  switch (p.mechanism) {
    case Mechanism::kClampedLaplace: {
      // Twice the mass between integers of the Laplace distribution around B; below 1 everything
      // becomes 0, from 2B on everything becomes 2B.
      const uint32_t bound = p.mode;
      const std::vector<Float> fall = ExponentialFall(2 * Float(p.phi) / Float(p.epsilon), bound);
      std::vector<Float> out(2 * bound + 1);
      out[0] = fall[bound - 1];
      for (uint32_t k = 1; k < bound; ++k) out[k] = fall[bound - k - 1] - fall[bound - k];
      for (uint32_t d = 0; d < bound; ++d) out[bound + d] = fall[d] - fall[d + 1];
      out[2 * bound] = fall[bound];
      return out;
    }
    case Mechanism::kGeometric:
      return Join(ExponentialFall(p.left_scale, p.mode),
                  ExponentialFall(p.right_scale,
                                  static_cast<size_t>(std::ceil(kGeometricCut * p.right_scale))));
    case Mechanism::kSplitGaussian:
      return Join(GaussianFall(p.left_scale, p.mode),
                  GaussianFall(p.right_scale,
                               static_cast<size_t>(std::ceil(kGaussianCut * p.right_scale))));
  }
  SHOAL_CHECK(false);
}

// Rounds to integers over 2^128, each within one half of the exact value. The likeliest value takes
// what rounding adds or loses in all. Zeros at the right end are dropped.
std::vector<Weight> Round(const std::vector<Float>& frequencies) {
  Float sum = 0;
  for (const Float& f : frequencies) sum += f;
  const Float two64 = Float(4294967296.0) * Float(4294967296.0);
  const Float factor = two64 / sum;
  std::vector<Weight> weights(frequencies.size());
  Weight total = 0;
  for (size_t k = 0; k < weights.size(); ++k) {
    const Float scaled = frequencies[k] * factor;  // below 2^64: no single value has all the mass
    const uint64_t high = static_cast<uint64_t>(scaled);
    const Float rest = (scaled - Float(high)) * two64 + Float(0.5);
    // `rest` may round to 2^64 itself.
    const Weight low = rest >= two64 ? Weight{1} << 64 : Weight{static_cast<uint64_t>(rest)};
    weights[k] = (Weight{high} << 64) + low;
    total += weights[k];
  }
  // The sum should be 2^128, which is 0 modulo 2^128, so -total is what is missing or too much.
  *std::max_element(weights.begin(), weights.end()) -= total;
  while (weights.back() == 0) weights.pop_back();
  return weights;
}

}  // namespace

absl::string_view MechanismName(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::kClampedLaplace:
      return "clamped_laplace";
    case Mechanism::kGeometric:
      return "geometric";
    case Mechanism::kSplitGaussian:
      return "split_gaussian";
  }
  return "unknown";
}

// Walker's alias method in integers. There are 2^bits buckets of 2^(128 - bits) places each. Bucket
// i gives the value i for its first own[i] places and alias[i] for the others. A sample takes a
// 64-bit word: the first `bits` bits choose the bucket, the next 32 are the upper bits of the
// place. They decide unless they equal the upper bits of own[i]; then the place's other 96 - bits
// bits are drawn as well.
struct Distribution::Table {
  struct Bucket {
    uint32_t own_high;  // the upper 32 of the 128 - bits bits of own[i]
    uint32_t alias;
  };

  explicit Table(std::vector<Weight> exact) : weights(std::move(exact)) {
    bits = std::max(1, static_cast<int>(std::bit_width(weights.size() - 1)));
    const size_t n = size_t{1} << bits;
    const Weight capacity = Weight{1} << (128 - bits);
    own = weights;
    own.resize(n, 0);
    buckets.resize(n);
    std::vector<uint32_t> small, large;
    for (uint32_t i = 0; i < n; ++i) (own[i] < capacity ? small : large).push_back(i);
    // The weights sum to n * capacity, so for every bucket with fewer than `capacity` places there
    // is one with more.
    while (!small.empty()) {
      SHOAL_CHECK(!large.empty());
      const uint32_t poor = small.back();
      const uint32_t rich = large.back();
      small.pop_back();
      buckets[poor].alias = rich;
      own[rich] -= capacity - own[poor];
      if (own[rich] < capacity) {
        large.pop_back();
        small.push_back(rich);
      }
    }
    for (uint32_t i : large) {
      SHOAL_CHECK(own[i] == capacity);
      own[i] = 0;
      buckets[i].alias = i;
    }
    for (uint32_t i = 0; i < n; ++i) {
      buckets[i].own_high = static_cast<uint32_t>(own[i] >> (96 - bits));
      own[i] &= (Weight{1} << (96 - bits)) - 1;
    }
    long double m1 = 0;
    for (size_t k = 0; k < weights.size(); ++k) {
      m1 += k * std::ldexp(static_cast<long double>(weights[k]), -128);
    }
    mean = static_cast<double>(m1);
  }

  std::vector<Weight> weights;
  int bits;
  std::vector<Bucket> buckets;
  std::vector<Weight> own;  // the lower 96 - bits bits alone
  double mean;
};

absl::StatusOr<Distribution> Distribution::Create(const Parameters& parameters) {
  SHOAL_RETURN_IF_ERROR(CheckClaim(parameters.epsilon, parameters.delta, parameters.phi));
  SHOAL_RETURN_IF_ERROR(CheckShape(parameters));
  return Distribution(std::make_shared<const Table>(Round(Frequencies(parameters))));
}

double Distribution::mean() const { return table_->mean; }
uint32_t Distribution::max() const { return static_cast<uint32_t>(table_->weights.size() - 1); }
std::span<const Weight> Distribution::weights() const { return table_->weights; }

void Distribution::Sample(RandomSource& random, std::span<uint32_t> counts) const {
  constexpr size_t kBlock = 512;
  SecretArray<8 * kBlock> words;
  const Table& table = *table_;
  const int bits = table.bits;
  while (!counts.empty()) {
    const size_t n = std::min(counts.size(), kBlock);
    random.Fill(words.mutable_view().first(8 * n));
    for (size_t i = 0; i < n; ++i) {
      const uint64_t word = LoadLe<uint64_t>(words.data() + 8 * i);
      const uint32_t bucket = static_cast<uint32_t>(word >> (64 - bits));
      const uint32_t place = static_cast<uint32_t>(word >> (32 - bits));
      const Table::Bucket entry = table.buckets[bucket];
      // A mask in place of a branch keeps the choice out of the branch predictor.
      uint32_t take_own = -static_cast<uint32_t>(place < entry.own_high);
      if (place == entry.own_high) [[unlikely]] {
        uint8_t more[16];
        random.Fill(more);
        const Weight rest = LoadLe<Weight>(more) >> (32 + bits);
        take_own = -static_cast<uint32_t>(rest < table.own[bucket]);
        sodium_memzero(more, sizeof more);
      }
      counts[i] = (bucket & take_own) | (entry.alias & ~take_own);
    }
    counts = counts.subspan(n);
  }
}

absl::StatusOr<uint32_t> ClampedLaplaceBound(double epsilon, double nominal_delta, uint32_t phi) {
  SHOAL_RETURN_IF_ERROR(CheckClaim(epsilon, nominal_delta, phi));
  const double bound = std::ceil(2.0 * phi / epsilon * -std::log(nominal_delta));
  if (!Within(bound, 0, kMaxMode)) {
    return OutOfRange("the clamped Laplace bound", absl::StrFormat("at most %d", kMaxMode), bound);
  }
  return std::max<uint32_t>(1, static_cast<uint32_t>(bound));
}

absl::Status VerifyPrivacy(const Parameters& parameters, uint32_t most_in_bucket) {
  if (most_in_bucket == 0 || most_in_bucket > kMaxCopies) {
    return absl::InvalidArgumentError(
        absl::StrFormat("noise: the most queries in a bucket must be in [1, %d], got %d",
                        kMaxCopies, most_in_bucket));
  }
  if (most_in_bucket > 1 && !IsLogConcave(parameters.mechanism)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "noise: %s is not log-concave, and so not known to protect up to %d queries in one bucket; "
        "take %s or %s",
        MechanismName(parameters.mechanism), most_in_bucket, MechanismName(Mechanism::kGeometric),
        MechanismName(Mechanism::kSplitGaussian)));
  }
  SHOAL_ASSIGN_OR_RETURN(const Distribution distribution, Distribution::Create(parameters));
  // Distribution::Create takes no phi of 0.
  const Exposure exposure = FullestPattern(parameters.phi, most_in_bucket);
  // The coarse bound is an upper bound too, and mostly close enough.
  double delta = 1;
  for (Precision precision : {Precision::kSearch, Precision::kExact}) {
    SHOAL_ASSIGN_OR_RETURN(delta, SubstitutionDeltaUpper(distribution.weights(), parameters.epsilon,
                                                         exposure, precision));
    if (delta <= parameters.delta) return absl::OkStatus();
  }
  const std::string buckets =
      most_in_bucket > 1 ? absl::StrFormat(" with up to %d of them in one bucket", most_in_bucket)
                         : "";
  return absl::FailedPreconditionError(absl::StrFormat(
      "noise: %s with mode %d, left_scale %g, right_scale %g gives delta %.4g at epsilon %g for "
      "phi = %d%s, not the claimed %g",
      MechanismName(parameters.mechanism), parameters.mode, parameters.left_scale,
      parameters.right_scale, delta, parameters.epsilon, parameters.phi, buckets,
      parameters.delta));
}

absl::Status CheckPhi(const Parameters& parameters, uint64_t rows) {
  if (parameters.phi <= rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "noise: phi must be at most the number of rows, %d, got %d", rows, parameters.phi));
}

}  // namespace shoal::noise
