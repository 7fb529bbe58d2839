// Prints the accountant's answers for a grid of parameters, to compare with another implementation.
// A line has: mechanism mode left right scale_epsilon phi rounds copies epsilon lower upper. Then
// come compositions: "composed" epsilon lower upper, a delta, the epsilon that holds at it, and
// groups of
// "|" mechanism mode left right scale_epsilon phi changes, or "|" "claim" epsilon delta times.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/noise/accountant.h"
#include "src/noise/noise.h"

namespace {

using shoal::noise::Distribution, shoal::noise::Parameters;
using enum shoal::noise::Mechanism;

void PrintLine(const Parameters& p, uint32_t phi, uint32_t rounds, uint32_t copies, double epsilon,
               const shoal::noise::DeltaBounds& delta) {
  std::printf("%s %u %.17g %.17g %.17g %u %u %u %.17g %.17g %.17g\n",
              std::string(shoal::noise::MechanismName(p.mechanism)).c_str(), p.mode, p.left_scale,
              p.right_scale, p.epsilon, phi, rounds, copies, epsilon, delta.lower, delta.upper);
}

void PrintChanges(const std::vector<Parameters>& grid) {
  for (const Parameters& p : grid) {
    const Distribution d = Distribution::Create(p).value();
    for (uint32_t rounds : {1, 3}) {
      // The factor 1 is left out: there the epsilon is the geometric's largest loss, and an
      // implementation that rounds that loss to a grid is far off.
      for (double factor : {0.5, 0.9, 1.5}) {
        const double epsilon = p.epsilon * factor;
        const auto delta =
            shoal::noise::SubstitutionDelta(d.weights(), epsilon, {.phi = p.phi, .rounds = rounds})
                .value();
        PrintLine(p, p.phi, rounds, 1, epsilon, delta);
      }
    }
  }
}

// Several queries in a bucket: 64 of which one, four, eight or seventeen are in one, under the
// noise for that, and under that for one.
void PrintBuckets() {
  const std::vector<std::pair<uint32_t, Parameters>> buckets = {
      {1, {kSplitGaussian, 1, 1e-6, 64, 126, 23.82, 107.97}},
      {4, {kSplitGaussian, 1, 1e-6, 64, 126, 23.82, 107.97}},
      {4, {kSplitGaussian, 1, 1e-6, 64, 296, 57.23, 196.8}},
      {8, {kSplitGaussian, 1, 1e-6, 64, 464, 90.80, 257.5}},
      {17, {kSplitGaussian, 1, 1e-6, 64, 770, 152.2, 348.3}},
      {3, {kGeometric, 1, 1e-6, 6, 120, 10, 40}},
  };
  for (const auto& [most, p] : buckets) {
    const Distribution d = Distribution::Create(p).value();
    const auto pattern = shoal::noise::FullestPattern(p.phi, most);
    for (double epsilon : {0.5, 1.0}) {
      PrintLine(p, pattern.phi, 1, pattern.copies, epsilon,
                shoal::noise::SubstitutionDelta(d.weights(), epsilon, pattern).value());
    }
  }
}

void PrintCompositions(const std::vector<Parameters>& grid) {
  using shoal::noise::Composition;
  // Grid points, and how many changes of each; then claims.
  const std::vector<std::pair<std::vector<uint64_t>, std::vector<Composition::Claim>>> mixed = {
      {{3, 0, 0, 2, 0, 0}, {}},
      {{0, 2, 0, 0, 0, 300}, {}},
      {{0, 0, 0, 0, 10, 100}, {{0.1, 1e-7, 3}}},
      {{0, 0, 0, 0, 0, 0}, {{0.5, 1e-6, 4}, {0.25, 1e-8, 2}}},
  };
  for (const auto& [counts, claims] : mixed) {
    std::vector<Distribution> distributions;
    std::string groups;
    Composition composition{.noise = {}, .claims = claims};
    for (size_t i = 0; i < grid.size(); ++i) {
      if (counts[i] == 0) continue;
      const Parameters& p = grid[i];
      distributions.push_back(Distribution::Create(p).value());
      composition.noise.push_back({distributions.back().weights(), counts[i]});
      groups += absl::StrFormat(" | %s %d %.17g %.17g %.17g %d %d",
                                shoal::noise::MechanismName(p.mechanism), p.mode, p.left_scale,
                                p.right_scale, p.epsilon, p.phi, counts[i]);
    }
    for (const Composition::Claim& claim : claims) {
      groups += absl::StrFormat(" | claim %.17g %.17g %d", claim.epsilon, claim.delta, claim.times);
    }
    for (double epsilon : {0.7, 1.3}) {
      const auto delta = shoal::noise::ComposedDelta(composition, epsilon).value();
      const double target = 2e-5;
      const double holds = shoal::noise::ComposedEpsilon(composition, target).value();
      std::printf("composed %.17g %.17g %.17g %.17g %.17g%s\n", epsilon, delta.lower, delta.upper,
                  target, holds, groups.c_str());
    }
  }
}

}  // namespace

int main() {
  const std::vector<Parameters> grid = {
      {kGeometric, 1, 1e-6, 1, 15, 1.25, 5.0},  {kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74},
      {kClampedLaplace, 0.1, 1e-6, 1, 277},     {kClampedLaplace, 1, 1e-6, 2, 56},
      {kSplitGaussian, 1, 1e-6, 5, 70, 14, 60}, {kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177},
  };
  PrintChanges(grid);
  PrintBuckets();
  PrintCompositions(grid);
}
