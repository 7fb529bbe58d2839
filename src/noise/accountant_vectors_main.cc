// Prints the accountant's answers for a grid of parameters, to compare with another implementation.
// A line has: mechanism mode left right scale_epsilon phi rounds epsilon lower upper.
#include <cstdio>
#include <string>
#include <vector>

#include "src/noise/accountant.h"
#include "src/noise/noise.h"

int main() {
  using shoal::noise::Distribution, shoal::noise::Parameters;
  using enum shoal::noise::Mechanism;
  const std::vector<Parameters> grid = {
      {kGeometric, 1, 1e-6, 1, 15, 1.25, 5.0},  {kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74},
      {kClampedLaplace, 0.1, 1e-6, 1, 277},     {kClampedLaplace, 1, 1e-6, 2, 56},
      {kSplitGaussian, 1, 1e-6, 5, 70, 14, 60}, {kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177},
  };
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
        std::printf("%s %u %.17g %.17g %.17g %u %u %.17g %.17g %.17g\n",
                    std::string(shoal::noise::MechanismName(p.mechanism)).c_str(), p.mode,
                    p.left_scale, p.right_scale, p.epsilon, p.phi, rounds, epsilon, delta.lower,
                    delta.upper);
      }
    }
  }
}
