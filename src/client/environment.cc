#include "src/client/environment.h"

#include <chrono>
#include <thread>

namespace shoal::client {

void SleepFor(uint32_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace shoal::client
