// What every target is tested for.
#ifndef SHOAL_SRC_FUZZ_CASES_H_
#define SHOAL_SRC_FUZZ_CASES_H_

#include <span>

#include "src/fuzz/target.h"

namespace shoal::fuzz {

// They fail the running test.
void ExpectSeedsAreTaken(std::span<const Target> targets);
void ExpectMutatedSeedsDoNoHarm(std::span<const Target> targets);
// Inputs that broke one of these parsers once: found/TARGET-ANYTHING.
void ExpectWhatWasFoundDoesNoHarm(std::span<const Target> targets);

}  // namespace shoal::fuzz

#endif  // SHOAL_SRC_FUZZ_CASES_H_
