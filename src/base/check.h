// Stops the process on broken invariants, in release builds too. For bytes from outside use a
// Status instead: an attacker must not be able to reach a CHECK.
#ifndef SHOAL_SRC_BASE_CHECK_H_
#define SHOAL_SRC_BASE_CHECK_H_

namespace shoal::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}

#define SHOAL_CHECK(condition)                       \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::shoal::internal::CheckFailed(__FILE__, __LINE__, #condition))

#endif  // SHOAL_SRC_BASE_CHECK_H_
