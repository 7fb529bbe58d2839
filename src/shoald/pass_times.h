// How long the queries take that wait for an engine's passes, by what passes took before. Engines,
// and the roles of one, differ by orders of magnitude: a quick pass of one says nothing of another.
#ifndef SHOAL_SRC_SHOALD_PASS_TIMES_H_
#define SHOAL_SRC_SHOALD_PASS_TIMES_H_

#include <cstdint>
#include <map>
#include <utility>

#include "src/pir/engine.h"

namespace shoal::shoald {

// Thread-compatible.
class PassTimes {
 public:
  // Whose queries share passes.
  using Of = std::pair<const pir::Engine*, pir::Role>;

  explicit PassTimes(uint64_t most_in_a_pass) : most_in_a_pass_(most_in_a_pass) {}

  // So many queries wait from now on, and do not wait any more.
  void Add(const Of& of, uint64_t queries) { queues_[of].waiting += queries; }
  void Take(const Of& of, uint64_t queries) { queues_[of].waiting -= queries; }
  // A pass has answered so many queries, at least one. What was refused does not count, as it took
  // nothing: whoever sends it would make passes look quick.
  void Passed(const Of& of, uint64_t answered, double seconds);
  // Of everything that waits. Queries of which none was answered yet count as nothing.
  double WaitSeconds() const;

 private:
  struct Queue {
    uint64_t waiting = 0;
    double pass_seconds = 0;  // the last one's
  };

  const uint64_t most_in_a_pass_;
  std::map<Of, Queue> queues_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PASS_TIMES_H_
