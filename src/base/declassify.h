// Where a value stops being a secret, for the programs that run under valgrind to find branches and
// addresses which depend on secrets (src/base/testing/constant_time_test.sh). These compile the
// code that they look at with SHOAL_MEMCHECK; elsewhere nothing happens here.
#ifndef SHOAL_SRC_BASE_DECLASSIFY_H_
#define SHOAL_SRC_BASE_DECLASSIFY_H_

#include <type_traits>

#ifdef SHOAL_MEMCHECK
#include "valgrind/memcheck.h"
#endif

namespace shoal {

// The value, which whoever can time or watch this process may know from here on.
template <typename T>
requires std::is_trivially_copyable_v<T>
inline T Declassify(T value) {
#ifdef SHOAL_MEMCHECK
  VALGRIND_MAKE_MEM_DEFINED(&value, sizeof value);
#endif
  return value;
}

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_DECLASSIFY_H_
