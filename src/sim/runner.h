// Runs simulations, each in a process of its own: what a simulated process leaves behind when it
// dies ends with it, and a program that crashes or hangs is a finding like any other.
#ifndef SHOAL_SRC_SIM_RUNNER_H_
#define SHOAL_SRC_SIM_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/sim/simulation.h"
#include "src/sim/universe.h"

namespace shoal::sim {

// Of which deployments simulations are: parties of one machine, parties of several, or parties of
// one machine whose rounds have terms.
enum class Kind { kPlain, kMachines, kTerms };

// What `work` returned in a process of its own, and how that died; empty if it did not.
struct EndedProcess {
  Bytes output;
  std::string died = "";
};
// A process that takes more than two minutes of processor time dies.
EndedProcess InOwnProcess(const std::function<Bytes()>& work);

// One for each process. Not thread-safe.
class Runner {
 public:
  // Prepares the process, and runs simulations without faults, so that what programs make once is
  // made.
  explicit Runner(Kind kind = Kind::kPlain);

  // A process that dies or takes more than two minutes of processor time is a violation of the
  // oracle "alive".
  Outcome Run(const Options& options) const;

  // Runs the seed of `options` and those after it, `runs` in all, `jobs` at a time, and calls
  // `take` with each outcome as it comes; stops early once that returns false.
  void RunMany(const Options& options, uint64_t runs, unsigned jobs,
               const std::function<bool(uint64_t seed, const Outcome& outcome)>& take) const;

 private:
  // Of parties of one machine: three parties mostly, and two or four.
  const Universe& UniverseOf(uint64_t seed) const;

  const Kind kind_;
  std::vector<std::unique_ptr<const Universe>> universes_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_RUNNER_H_
