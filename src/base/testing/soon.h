// Waits for what another thread or process does.
#ifndef SHOAL_SRC_BASE_TESTING_SOON_H_
#define SHOAL_SRC_BASE_TESTING_SOON_H_

#include <chrono>
#include <thread>

namespace shoal::testing {

// Whether `condition` holds within `limit`, which only a failing test reaches. Looks every few
// milliseconds, and once more after a moment in which this thread did not run.
//
// To see that something does not happen, a test waits for a later event instead: the next turn of
// the same loop, an answer to a later request, the end of a limit that began later.
template <typename Condition>
[[nodiscard]] bool Soon(const Condition& condition,
                        std::chrono::milliseconds limit = std::chrono::seconds(50)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_SOON_H_
