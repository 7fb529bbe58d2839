#include "src/shoal/interruption.h"

#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "src/base/printable.h"

namespace shoal::commands {
namespace {

std::atomic<const std::string*> current = nullptr;
static_assert(std::atomic<const std::string*>::is_always_lock_free);

void Handle(int signal_number) {
  if (const std::string* const text = current.load(); text != nullptr) {
    // If standard error is gone, there is nobody to tell.
    (void)!::write(STDERR_FILENO, text->data(), text->size());
  }
  ::raise(signal_number);  // whose action is the default one again
}

}  // namespace

Interruption::Interruption() {
  if (::sigaction(SIGINT, nullptr, &before_) != 0 || before_.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = Handle;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  installed_ = ::sigaction(SIGINT, &action, nullptr) == 0;
}

Interruption::~Interruption() {
  if (installed_) ::sigaction(SIGINT, &before_, nullptr);
  current = nullptr;
}

void Interruption::Say(const std::string& line) {
  // Begins a line of its own, as a progress bar may be on the last one.
  texts_.push_back(absl::StrCat("\n", Printable(line), "\n"));
  current = &texts_.back();
}

}  // namespace shoal::commands
