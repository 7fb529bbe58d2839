#include "src/shoald/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace shoal::shoald {
namespace {

std::string FromEnv(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Notifier Notifier::FromEnvironment() {
  // A watchdog is meant for the process with this number; without one for whoever reads it.
  const std::string pid = FromEnv("WATCHDOG_PID");
  uint64_t watchdog_us = 0;
  if (!absl::SimpleAtoi(FromEnv("WATCHDOG_USEC"), &watchdog_us) ||
      (!pid.empty() && pid != absl::StrCat(::getpid()))) {
    watchdog_us = 0;
  }
  return {FromEnv("NOTIFY_SOCKET"),
          watchdog_us == 0 ? std::nullopt : std::optional(std::chrono::microseconds(watchdog_us))};
}

void Notifier::Ready(absl::string_view status) const {
  Send(absl::StrCat("READY=1\nSTATUS=", status));
}

void Notifier::Reloading() const {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=",
                    int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000));
}

void Notifier::Stopping() const { Send("STOPPING=1"); }
void Notifier::Alive() const { Send("WATCHDOG=1"); }

void Notifier::Send(const std::string& message) const {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  socket_.copy(address.sun_path, socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  ::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
           reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size()));
  ::close(fd);
}

Watchdog::Watchdog(const Notifier* notifier, std::function<void()> probe)
    : notifier_(notifier), probe_(std::move(probe)) {
  if (notifier_->watchdog().has_value()) thread_ = std::thread([this] { Loop(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void Watchdog::Loop() {
  for (;;) {
    probe_();
    notifier_->Alive();
    const auto next = std::chrono::steady_clock::now() + *notifier_->watchdog() / 2;
    const MutexLock lock(mutex_);
    while (!stopping_ && wake_.WaitUntil(mutex_, next)) {
    }
    if (stopping_) return;
  }
}

}  // namespace shoal::shoald
