// What a command says when Ctrl-C ends it.
#ifndef SHOAL_SRC_SHOAL_INTERRUPTION_H_
#define SHOAL_SRC_SHOAL_INTERRUPTION_H_

#include <signal.h>

#include <deque>
#include <string>

namespace shoal::commands {

// Takes SIGINT while it lives: writes what was last given to Say to standard error, and then ends
// the process as the signal does. Nothing is cleaned up, as after kill -9. Does nothing if SIGINT
// is ignored. One at a time; Say is for one thread.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // One line, without its end.
  void Say(const std::string& line);

 private:
  struct sigaction before_ = {};
  bool installed_ = false;
  std::deque<std::string> texts_;  // never moved: the handler may be writing one
};

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_INTERRUPTION_H_
