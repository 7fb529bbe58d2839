// Whether this test runs under a sanitizer, which takes ten times as long and finds nothing new
// where the same code runs a million times: enumerations and statistics are whole in the other
// builds alone. Races alone are looked for by the thread sanitizer, which finds none where long
// computations run on one thread.
#ifndef SHOAL_SRC_BASE_TESTING_SANITIZED_H_
#define SHOAL_SRC_BASE_TESTING_SANITIZED_H_

namespace shoal {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_TESTING_SANITIZED_H_
