#include "src/libshoal/handle.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/base/printable.h"
#include "src/base/sodium_init.h"
#include "src/base/status_macros.h"
#include "src/client/environment.h"

namespace shoal::library {
namespace {

namespace fs = std::filesystem;

// How often somebody who waits looks whether the call was cancelled.
constexpr uint32_t kTickMs = 100;

// The handle whose report this thread is making.
thread_local const Handle* reporting = nullptr;

bool IsCancelled(const Call& call) { return call.cancelled != nullptr && call.cancelled->load(); }

void SleepUnlessCancelled(const Call& call, uint32_t milliseconds) {
  while (milliseconds > 0 && !IsCancelled(call)) {
    const uint32_t tick = std::min(milliseconds, kTickMs);
    client::SleepFor(tick);
    milliseconds -= tick;
  }
}

}  // namespace

absl::Status Answers::Add(BytesView, const client::Lookup& result) {
  Entry entry{.outcome = result.outcome, .at = 0, .size = 0};
  switch (result.outcome) {
    case client::Lookup::Outcome::kFound:
      entry.at = values_.size();
      entry.size = result.value.size();
      values_.insert(values_.end(), result.value.begin(), result.value.end());
      values_.push_back(0);
      break;
    case client::Lookup::Outcome::kAbsent:
    case client::Lookup::Outcome::kUnknown:
      break;
    case client::Lookup::Outcome::kFailed:
      entry.at = errors_.size();
      errors_.push_back(Printable(result.error.message(), "\n"));
      break;
  }
  entries_.push_back(entry);
  return absl::OkStatus();
}

Answers::Answer Answers::Get(size_t index) const {
  const Entry& entry = entries_[index];
  Answer answer{.outcome = entry.outcome};
  if (entry.outcome == client::Lookup::Outcome::kFound) {
    answer.value = BytesView(values_).subspan(entry.at, entry.size);
  } else if (entry.outcome == client::Lookup::Outcome::kFailed) {
    answer.error = errors_[entry.at].c_str();
  }
  return answer;
}

absl::StatusOr<std::unique_ptr<Handle>> Handle::Open(const std::string& path, Connector connect) {
  if (!InitSodium()) return absl::InternalError("libsodium cannot be used");
  SHOAL_ASSIGN_OR_RETURN(const std::string found, client::FindConfig(path));
  fs::path file = found;
  std::error_code error;
  if (fs::is_directory(file, error)) file /= "client.textproto";
  // Relative paths in the configuration count from its directory, whatever the process does next.
  file = fs::absolute(file, error);
  if (error) return absl::UnavailableError(absl::StrCat(found, ": ", error.message()));
  SHOAL_ASSIGN_OR_RETURN(client::Config config, client::ReadConfig(file));
  return std::unique_ptr<Handle>(new Handle(std::move(config), std::move(connect)));
}

absl::Status Handle::Begin(const Call& call) {
  if (reporting == this) {
    return absl::FailedPreconditionError(
        "a client cannot be used by the callback of its own call, which it would wait for");
  }
  const MutexLock lock(mutex_);
  for (;;) {
    if (IsCancelled(call)) return absl::CancelledError("cancelled before it began");
    if (user_ == 0) break;
    if (user_ != ::getpid()) {
      return absl::FailedPreconditionError(
          "this process was forked while a call of this client ran: it needs a client of its own");
    }
    free_.WaitUntil(mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(kTickMs));
  }
  user_ = ::getpid();
  return absl::OkStatus();
}

void Handle::End() {
  const MutexLock lock(mutex_);
  user_ = 0;
  free_.NotifyAll();
}

client::Reports Handle::ReportsTo(const Call& call, Mutex& one_at_a_time) const {
  if (!call.report) return {};
  const auto say = [this, &call, &one_at_a_time](const Report& report) {
    const MutexLock lock(one_at_a_time);
    const Handle* const before = std::exchange(reporting, this);
    call.report(report);
    reporting = before;
  };
  using Kind = Report::Kind;
  return {
      .tell =
          [say](absl::string_view what) {
            say({.kind = Kind::kTell, .text = Printable(what, "\n")});
          },
      .warn =
          [say](absl::string_view what) {
            say({.kind = Kind::kWarn, .text = Printable(what, "\n")});
          },
      .count =
          [say](absl::string_view stage, uint64_t done, uint64_t total) {
            say({.kind = Kind::kCount,
                 .text = Printable(stage, "\n"),
                 .done = done,
                 .total = total});
          },
      .wait =
          [say](absl::string_view what, uint64_t due_s) {
            say({.kind = Kind::kWait, .text = Printable(what, "\n"), .due_s = due_s});
          },
      .announce =
          [say](const client::Division& division) {
            say({.kind = Kind::kTell,
                 .text = absl::StrCat("this lookup sends ", division.queries,
                                      " queries, padding included, in ", division.rounds(),
                                      division.rounds() == 1 ? " round" : " rounds")});
          },
  };
}

absl::Status Handle::Run(const Call& call,
                         const std::function<absl::Status(client::Client&)>& work) {
  SHOAL_RETURN_IF_ERROR(Begin(call));
  const auto end = absl::MakeCleanup([this] { End(); });
  Mutex one_at_a_time;
  const auto cancelled = [&call] { return IsCancelled(call); };
  const absl::Status status = [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(
        const std::unique_ptr<client::Client> client,
        client::Client::Open(
            config_, [&](const std::string& address) { return connect_(address, cancelled); },
            ReportsTo(call, one_at_a_time),
            [&call](uint32_t milliseconds) { SleepUnlessCancelled(call, milliseconds); }));
    return work(*client);
  }();
  // Whoever called decides whether to go on by this code.
  if (absl::IsCancelled(status) && !IsCancelled(call)) {
    return absl::InternalError(
        absl::StrCat("a server says that this call was cancelled: ", status.message()));
  }
  return status;
}

absl::StatusOr<std::unique_ptr<const Answers>> Handle::LookUp(client::Keys& keys, uint64_t count,
                                                              const Call& call) {
  auto answers = std::make_unique<Answers>();
  const absl::Status done = Run(call, [&](client::Client& client) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(call.engine == nullptr
                              ? client.UseChain(call.beyond_phi)
                              : client.UseEngine(*call.engine, call.parties, call.pad, count));
    SHOAL_RETURN_IF_ERROR(client.LookUp(keys, *answers));
    answers->SetTraffic(client.source()->traffic());
    return absl::OkStatus();
  });
  SHOAL_RETURN_IF_ERROR(done);
  return answers;
}

absl::StatusOr<std::optional<uint64_t>> Handle::Prepare(const Call& call, bool anew) {
  std::optional<uint64_t> queries;
  const absl::Status done = Run(call, [&](client::Client& client) -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(const client::Client::Prepared prepared,
                           client.PrepareEngine(*call.engine, call.parties, anew));
    queries = prepared.queries;
    return absl::OkStatus();
  });
  SHOAL_RETURN_IF_ERROR(done);
  return queries;
}

}  // namespace shoal::library
