// How much one machine of a party may have to send to another.
#ifndef SHOAL_SRC_MACHINES_LOAD_BOUND_H_
#define SHOAL_SRC_MACHINES_LOAD_BOUND_H_

#include <cstdint>

namespace shoal::machines {

// The most of `items` that are drawn, each with probability part / whole and independently: mean +
// 9 standard deviations + 27, and no more than `items`. More are drawn with probability below
// exp(-40.5) = 2.6e-18, whatever the arguments (docs/machines.md). Every transfer whose length
// would tell something is padded to such a bound. part <= whole, whole > 0 (checked).
uint64_t MostDrawn(uint64_t items, uint64_t part, uint64_t whole);

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_LOAD_BOUND_H_
