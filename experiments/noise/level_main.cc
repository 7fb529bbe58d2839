// level EPSILON DELTA PHI: prints how much noise a row needs for that privacy, by the paper's
// mechanism and by Shoal's, as name, tab, value. Noise beyond a mechanism's limits
// (src/noise/noise.h) is left out. Exit code 2: wrong usage.
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "src/noise/accountant.h"
#include "src/noise/noise.h"
#include "src/noise/search.h"

namespace {

using shoal::noise::Choice;
using shoal::noise::Distribution;
using shoal::noise::Mechanism;
using shoal::noise::Target;

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "level: %s\n", std::string(status.message()).c_str());
  return 2;
}

void Print(const char* name, double value) { std::printf("%s\t%.9g\n", name, value); }

}  // namespace

int main(int argc, char** argv) {
  Target target;
  if (argc != 4 || !absl::SimpleAtod(argv[1], &target.epsilon) ||
      !absl::SimpleAtod(argv[2], &target.delta) ||
      !absl::SimpleAtoi(argv[3], &target.exposure.phi)) {
    std::fprintf(stderr, "usage: level EPSILON DELTA PHI\n");
    return 2;
  }
  const uint32_t phi = target.exposure.phi;

  // The paper's bound for what it calls delta, and the delta that this bound really gives.
  const absl::StatusOr<uint32_t> bound =
      shoal::noise::ClampedLaplaceBound(target.epsilon, target.delta, phi);
  if (!bound.ok()) return Refuse(bound.status());
  const absl::StatusOr<Distribution> paper =
      Distribution::Create({Mechanism::kClampedLaplace, target.epsilon, target.delta, phi, *bound});
  if (!paper.ok()) return Refuse(paper.status());
  const absl::StatusOr<shoal::noise::DeltaBounds> paper_delta =
      shoal::noise::SubstitutionDelta(paper->weights(), target.epsilon, target.exposure);
  if (!paper_delta.ok()) return Refuse(paper_delta.status());
  Print("paper_bound", *bound);
  Print("paper_mean", paper->mean());
  Print("paper_delta_lower", paper_delta->lower);
  Print("paper_delta_upper", paper_delta->upper);

  const absl::StatusOr<Choice> least = shoal::noise::FindLeastNoise(target);
  if (absl::IsOutOfRange(least.status())) return 0;
  if (!least.ok()) return Refuse(least.status());
  std::printf("least_mechanism\t%s\n",
              std::string(shoal::noise::MechanismName(least->parameters.mechanism)).c_str());
  Print("least_mean", least->mean);
  Print("least_delta_upper", least->delta);
  Print("least_mode", least->parameters.mode);
  Print("least_left_scale", least->parameters.left_scale);
  Print("least_right_scale", least->parameters.right_scale);
  return 0;
}
