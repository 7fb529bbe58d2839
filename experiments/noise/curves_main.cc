// Prints the curves that the study draws, as CSV: the noise distributions, and delta against
// epsilon.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "src/noise/accountant.h"
#include "src/noise/noise.h"

namespace {

using shoal::noise::Distribution;
using shoal::noise::Exposure;
using shoal::noise::Parameters;
using enum shoal::noise::Mechanism;

struct Curve {
  std::string figure;
  std::string name;
  Parameters parameters;
};

}  // namespace

int main() {
  const std::vector<Curve> curves = {
      {"one", "clamped Laplace (paper), mean 276.5", {kClampedLaplace, 0.1, 1e-6, 1, 277}},
      {"one", "geometric, mean 157.7", {kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74}},
      {"hundred", "Gaussian, mean 2,612", {kSplitGaussian, 0.1, 1e-6, 100, 2612, 532, 532}},
      {"hundred",
       "split Gaussian, mean 1,950",
       {kSplitGaussian, 0.1, 1e-6, 100, 1230, 248.4192, 1150.9693}},
  };
  std::printf("figure,name,kind,x,y\n");
  for (const Curve& c : curves) {
    const Distribution d = Distribution::Create(c.parameters).value();
    const uint32_t end = c.figure == "one" ? 600 : 6000;
    for (uint32_t k = 0; k <= end && k <= d.max(); k += end / 600) {
      std::printf("%s,\"%s\",probability,%u,%.9g\n", c.figure.c_str(), c.name.c_str(), k,
                  std::ldexp(static_cast<double>(d.weights()[k]), -128));
    }
    for (double epsilon = 0.005; epsilon < 0.2001; epsilon += 0.005) {
      const double delta =
          shoal::noise::SubstitutionDeltaUpper(d.weights(), epsilon, {.phi = c.parameters.phi},
                                               shoal::noise::Precision::kSearch)
              .value();
      std::printf("%s,\"%s\",delta,%.9g,%.9g\n", c.figure.c_str(), c.name.c_str(), epsilon, delta);
    }
  }
}
