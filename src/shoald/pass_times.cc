#include "src/shoald/pass_times.h"

#include <algorithm>

namespace shoal::shoald {

void PassTimes::Passed(const Of& of, uint64_t answered, double seconds) {
  // A small pass says little of a full one: that takes as long for half as many, at most.
  const double half = static_cast<double>(most_in_a_pass_) / 2;
  queues_[of].pass_seconds = seconds * std::max(1.0, half / static_cast<double>(answered));
}

double PassTimes::WaitSeconds() const {
  double seconds = 0;
  for (const auto& [of, queue] : queues_) {
    seconds += queue.pass_seconds * static_cast<double>(queue.waiting) /
               static_cast<double>(most_in_a_pass_);
  }
  return seconds;
}

}  // namespace shoal::shoald
