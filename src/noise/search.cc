#include "src/noise/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::noise {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// The search computes with tables of doubles and asks for this share of the target's delta, so that
// the exact tables hold it too.
constexpr double kRoom = 0.999;

struct Shape {
  uint32_t mode;
  double left;
  double right;
};

class Search {
 public:
  Search(Mechanism mechanism, const Target& target, uint64_t changes)
      : mechanism_(mechanism),
        target_(target),
        changes_(static_cast<uint32_t>(changes)),
        pattern_(FullestPattern(changes_, target.most_in_bucket)) {}

  // The best shape, or nothing if none within the limits reaches the target.
  std::optional<Shape> Run() const {
    switch (mechanism_) {
      case Mechanism::kClampedLaplace:
        return ClampedLaplace();
      case Mechanism::kGeometric:
        return changes_ == 1 ? OneChange() : ManyChanges();
      case Mechanism::kSplitGaussian:
        return ManyChanges();
    }
    SHOAL_CHECK(false);
  }

  Parameters ParametersOf(const Shape& shape) const {
    return {mechanism_, target_.epsilon, target_.delta, changes_,
            shape.mode, shape.left,      shape.right};
  }

 private:
  double MaxScale() const {
    return mechanism_ == Mechanism::kGeometric ? kMaxGeometricScale : kMaxGaussianScale;
  }
  bool Allowed(const Shape& s) const {
    return s.mode <= kMaxMode && s.left >= kMinScale && s.left <= MaxScale() &&
           s.right >= kMinScale && s.right <= MaxScale();
  }

  std::vector<double> Frequencies(const Shape& s) const {
    const bool geometric = mechanism_ == Mechanism::kGeometric;
    // The mass beyond is e^-15 of delta. Only the exact table counts it.
    const double fall = 15 - std::log(target_.delta);
    const double reach = geometric ? fall : std::sqrt(2 * fall);
    const size_t size = s.mode + static_cast<size_t>(std::ceil(reach * s.right)) + 1;
    std::vector<double> f(size);
    for (size_t k = 0; k < size; ++k) {
      const double d = (static_cast<double>(k) - s.mode) / (k < s.mode ? s.left : s.right);
      f[k] = geometric ? std::exp(-std::abs(d)) : std::exp(-d * d / 2);
    }
    return f;
  }

  double Mean(const Shape& s) const {
    double sum = 0, first = 0;
    const std::vector<double> f = Frequencies(s);
    for (size_t k = 0; k < f.size(); ++k) sum += f[k], first += k * f[k];
    return first / sum;
  }

  bool Holds(const Shape& s) const {
    if (!Allowed(s)) return false;
    // Neither call can fail: the frequencies are finite, and the caller checked the target.
    const std::vector<Weight> weights = WeightsFrom(Frequencies(s)).value();
    return SubstitutionDeltaUpper(weights, target_.epsilon, pattern_, Precision::kSearch).value() <=
           target_.delta * kRoom;
  }

  std::optional<Shape> ClampedLaplace() const {
    const auto holds = [&](uint32_t bound) {
      Parameters p = {mechanism_, target_.epsilon, target_.delta, changes_, bound, 0, 0};
      return VerifyPrivacy(p).ok();
    };
    uint32_t low = 0, high = 1;
    while (high < kMaxMode && !holds(high)) low = high, high *= 2;
    if (high >= kMaxMode && !holds(kMaxMode)) return std::nullopt;
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (holds(middle) ? high : low) = middle;
    }
    return Shape{high, 0, 0};
  }

  // One change with geometric noise. The row that falls and the row that rises have a joint loss of
  // 1 / left + 1 / right, which must be at most epsilon. Then all of delta is the mass at zero (and
  // at the cut right end). For every mode the largest left scale that holds is the best one.
  std::optional<Shape> OneChange() const {
    const auto holds = [&](const Shape& s) {
      if (!Allowed(s)) return false;
      const double rise = std::expm1(-(s.mode + 1.0) / s.left) / std::expm1(-1 / s.left);
      const double fall = 1 / std::expm1(1 / s.right);
      return std::exp(-(s.mode / s.left)) / (rise + fall) <= target_.delta * kRoom;
    };
    const auto best_at = [&](uint32_t mode) -> std::optional<Shape> {
      const auto shape = [&](double left) {
        return Shape{mode, left, (1 + 1e-9) / (target_.epsilon - 1 / left)};
      };
      // Tries left scales for which 1 / left is 98 % down to 5 % of epsilon, and for which the
      // right scale stays within its limit.
      const double most = std::min(0.98 * target_.epsilon, target_.epsilon - 1.001 / MaxScale());
      if (most <= 0.05 * target_.epsilon) return std::nullopt;
      double low = std::max(kMinScale, 1 / most), high = 20 / target_.epsilon;
      if (!holds(shape(low))) return std::nullopt;
      for (int i = 0; i < 24; ++i) {
        const double middle = std::sqrt(low * high);
        (holds(shape(middle)) ? low : high) = middle;
      }
      return shape(low);
    };
    const auto cost = [&](uint32_t mode) {
      const std::optional<Shape> shape = best_at(mode);
      return shape ? Mean(*shape) : kNever;
    };
    // A mode that is too small does not hold at all. From the first mode that holds, the mean falls
    // and then rises.
    uint32_t first = 1;
    while (first <= kMaxMode && cost(first) == kNever) first *= 2;
    if (first > kMaxMode) return std::nullopt;
    uint32_t low = first / 2, high = std::min(kMaxMode, 4 * first);
    while (high - low > 2) {
      const uint32_t a = low + (high - low) / 3, b = high - (high - low) / 3;
      const double cost_a = cost(a), cost_b = cost(b);
      if (cost_a == kNever || cost_a > cost_b) {
        low = a == low ? a + 1 : a;
      } else {
        high = b == high ? b - 1 : b;
      }
    }
    uint32_t best = low;
    for (uint32_t mode = low; mode <= high; ++mode) {
      if (cost(mode) < cost(best)) best = mode;
    }
    return best_at(best);
  }

  // Many changes: a compass search over mode and left scale, with the smallest right scale that
  // holds for each.
  std::optional<Shape> ManyChanges() const {
    const bool geometric = mechanism_ == Mechanism::kGeometric;
    // Starts with the usual proportions at the smallest size that holds.
    const auto start_at = [&](double t) {
      return geometric ? Shape{static_cast<uint32_t>(std::ceil(4 * t)), 0.4 * t, t}
                       : Shape{static_cast<uint32_t>(std::ceil(2.3 * t)), 0.46 * t, 2.2 * t};
    };
    double t = 1;
    while (!Holds(start_at(t))) {
      if (!Allowed(start_at(t))) return std::nullopt;
      t *= 2;
    }
    double low = t / 2;
    for (int i = 0; i < 5; ++i) {
      const double middle = std::sqrt(low * t);
      (Holds(start_at(middle)) ? t : low) = middle;
    }
    Shape best = start_at(t);
    double least = Mean(best);

    // Looks for a right scale that beats `least`. The first test is whether any can.
    const auto improve = [&](uint32_t mode, double left) {
      double high = best.right * 2, floor = kMinScale;
      // The largest right scale whose mean is below the best so far.
      for (int i = 0; i < 20; ++i) {
        const double middle = std::sqrt(floor * high);
        (Mean({mode, left, middle}) < least * 0.9999 ? floor : high) = middle;
      }
      high = floor;
      if (high <= kMinScale * 1.01 || !Holds({mode, left, high})) return false;
      floor = high / 2;
      for (int i = 0; i < 7; ++i) {
        const double middle = std::sqrt(floor * high);
        (Holds({mode, left, middle}) ? high : floor) = middle;
      }
      best = {mode, left, high};
      least = Mean(best);
      return true;
    };
    for (double step = 0.16; step > 0.008; step /= 2) {
      for (bool moved = true; moved;) {
        moved = false;
        for (const auto& [mode_step, left_step] :
             {std::pair{1, 1}, {-1, -1}, {1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, -1}, {-1, 1}}) {
          const double mode = best.mode * std::exp(step * mode_step);
          const double left = best.left * std::exp(step * left_step);
          if (mode > kMaxMode || left > MaxScale() || left < kMinScale) continue;
          moved |= improve(static_cast<uint32_t>(std::lround(mode)), left);
        }
      }
    }
    return best;
  }

  const Mechanism mechanism_;
  const Target target_;
  const uint32_t changes_;
  const Exposure pattern_;
};

}  // namespace

absl::StatusOr<Choice> FindLeastNoise(Mechanism mechanism, const Target& target) {
  const Exposure& e = target.exposure;
  const uint64_t changes = uint64_t{e.phi} * e.rounds;
  if (e.phi == 0 || e.rounds == 0 || e.submissions == 0 || e.copies != 1 || changes > kMaxPhi ||
      changes * e.submissions > kMaxPhi) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "noise: phi * rounds * submissions must be in [1, %d], and copies 1", kMaxPhi));
  }
  if (target.most_in_bucket == 0 || target.most_in_bucket > kMaxCopies) {
    return absl::InvalidArgumentError(
        absl::StrFormat("noise: the most queries in a bucket must be in [1, %d], got %d",
                        kMaxCopies, target.most_in_bucket));
  }
  if (target.most_in_bucket > 1 && !IsLogConcave(mechanism)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "noise: %s is not log-concave, and so not known to protect %d queries in one bucket",
        MechanismName(mechanism), target.most_in_bucket));
  }
  const Search search(mechanism, target, changes * e.submissions);
  // Checks epsilon, delta and the mechanism.
  const bool laplace = mechanism == Mechanism::kClampedLaplace;
  SHOAL_RETURN_IF_ERROR(
      Distribution::Create(search.ParametersOf({1, laplace ? 0.0 : 1.0, laplace ? 0.0 : 1.0}))
          .status());
  std::optional<Shape> shape = search.Run();
  if (!shape) {
    return absl::OutOfRangeError(absl::StrFormat(
        "noise: %s has no parameters within its limits for epsilon %g, delta %g and %d changed "
        "queries; allow a larger epsilon or delta, or fewer of them",
        MechanismName(mechanism), target.epsilon, target.delta, changes * e.submissions));
  }
  Choice choice;
  choice.parameters = search.ParametersOf(*shape);
  SHOAL_ASSIGN_OR_RETURN(const Distribution distribution, Distribution::Create(choice.parameters));
  choice.mean = distribution.mean();
  SHOAL_ASSIGN_OR_RETURN(
      choice.delta,
      SubstitutionDeltaUpper(distribution.weights(), target.epsilon,
                             FullestPattern(choice.parameters.phi, target.most_in_bucket)));
  SHOAL_RETURN_IF_ERROR(VerifyPrivacy(choice.parameters, target.most_in_bucket));
  return choice;
}

uint32_t LeastMostInBucket(uint32_t keys, uint64_t buckets) {
  SHOAL_CHECK(keys >= 1 && buckets >= 1);
  const double n = keys, b = static_cast<double>(buckets);
  // How many of the buckets have exactly k keys, on average.
  const auto expected = [&](double k) {
    if (buckets == 1) return k == n ? 1.0 : 0.0;
    return b * std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                        k * std::log(b) + (n - k) * std::log1p(-1 / b));
  };
  // From the last number on, so that the small terms are added first.
  double above = 0;
  uint32_t most = keys;
  while (most > 1 && above + expected(most) <= 0x1p-20) above += expected(most--);
  return most;
}

absl::StatusOr<Choice> FindLeastNoise(const Target& target) {
  const Exposure& e = target.exposure;
  const double changes = static_cast<double>(e.phi) * e.rounds * e.submissions;
  // As most_in_bucket of 0 is refused below, it does not matter here what it counts as.
  const double pairs = std::ceil(changes / std::max(1u, target.most_in_bucket));
  std::vector<Mechanism> mechanisms;
  // A mechanism is left out for numbers of changes at which it is far from being the cheaper one.
  if (pairs <= 8) mechanisms.push_back(Mechanism::kGeometric);
  if (changes >= 2) mechanisms.push_back(Mechanism::kSplitGaussian);
  if (mechanisms.empty()) mechanisms.push_back(Mechanism::kGeometric);
  std::optional<Choice> best;
  absl::Status failure;
  for (Mechanism mechanism : mechanisms) {
    absl::StatusOr<Choice> choice = FindLeastNoise(mechanism, target);
    if (!choice.ok()) {
      failure = choice.status();
    } else if (!best || choice->mean < best->mean) {
      best = *std::move(choice);
    }
  }
  if (!best) return failure;
  return *best;
}

}  // namespace shoal::noise
