#include "src/shoald/start_check.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/status_macros.h"
#include "src/net/page_server.h"
#include "src/net/tls.h"
#include "src/storage/file.h"

namespace shoal::shoald {
namespace {

// Writes a few bytes to a file without a name, which tells a full disk and a read-only file system.
absl::Status TryToWrite(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    // This file system has no such files: one with a name, for as long as it takes.
    std::string trial = directory + "/.shoald-check.XXXXXX";
    const int named = ::mkostemp(trial.data(), O_CLOEXEC);
    if (named < 0) return ErrnoStatus(errno, directory);
    ::close(named);
    return ::unlink(trial.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, trial);
  }
  if (fd < 0) return ErrnoStatus(errno, directory);
  const auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  const std::array<uint8_t, 4096> page = {};
  SHOAL_RETURN_IF_ERROR(WriteAll(fd, page, directory));
  return ::fdatasync(fd) == 0 ? absl::OkStatus() : ErrnoStatus(errno, directory);
}

}  // namespace

absl::Status CheckWritable(absl::string_view field, const std::string& directory) {
  if (FileExists(directory)) {
    // It is there, so that this only looks at who may enter it.
    SHOAL_RETURN_IF_ERROR(Annotate(MakeDirectory(directory, FileMode::kPrivate), field));
    return Annotate(TryToWrite(directory), field);
  }
  std::filesystem::path above = std::filesystem::path(directory).parent_path();
  std::error_code ignored;
  while (above.has_relative_path() && !std::filesystem::exists(above, ignored)) {
    above = above.parent_path();
  }
  return Annotate(TryToWrite(above), absl::StrCat(field, ": ", directory, " cannot be made"));
}

absl::StatusOr<std::unique_ptr<JournalCopy>> JournalCopy::Take(const std::string& state_directory) {
  SHOAL_RETURN_IF_ERROR(CheckWritable("state_directory", state_directory));
  std::unique_ptr<JournalCopy> copy(new JournalCopy());
  const std::string lock = state_directory + "/lock";
  if (FileExists(lock)) {
    copy->lock_fd_ = ::open(lock.c_str(), O_RDWR | O_CLOEXEC);
    if (copy->lock_fd_ < 0) return ErrnoStatus(errno, lock);
    if (::flock(copy->lock_fd_, LOCK_EX | LOCK_NB) != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(state_directory, ": another process uses this directory"));
    }
  }
  std::string directory = (std::filesystem::temp_directory_path() / "shoald-check.XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) return ErrnoStatus(errno, directory);
  copy->directory_ = directory;
  for (const char* file : {"/journal", "/rounds"}) {
    if (!FileExists(state_directory + file)) continue;
    SHOAL_ASSIGN_OR_RETURN(const std::string content,
                           ReadPrivateFile(state_directory + file, uint64_t{1} << 32));
    SHOAL_RETURN_IF_ERROR(
        WriteFileAtomically(directory + file, AsBytes(content), FileMode::kPrivate));
  }
  absl::StatusOr<std::unique_ptr<server::FileJournal>> journal =
      server::FileJournal::Open(directory);
  if (!journal.ok()) {
    return absl::Status(journal.status().code(),
                        absl::StrCat(state_directory, ": ", journal.status().message()));
  }
  copy->journal_ = *std::move(journal);
  return copy;
}

JournalCopy::~JournalCopy() {
  journal_.reset();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

// Whoever connects in between gets an empty page, or is cut off.
absl::Status ListenCheck::Add(const std::string& address) {
  const auto no_page = [](absl::string_view) { return net::Page(); };
  auto started = net::PageServer::Start({.address = address}, no_page);
  if (started.ok()) {
    held_.push_back({address, *std::move(started)});
    return absl::OkStatus();
  }
  if (absl::IsAlreadyExists(started.status())) {
    for (const Held& held : held_) {
      if (absl::StrCat(held.server->port()) != net::ParseHostPort(address)->port) continue;
      return absl::AlreadyExistsError(absl::StrCat(
          started.status().message(), " This program is to listen on ", held.address, ", too"));
    }
  }
  return started.status();
}

void Findings::Add(const absl::Status& status, absl::string_view advice) {
  if (status.ok()) return;
  if (code_ == absl::StatusCode::kOk) code_ = status.code();
  found_.push_back(advice.empty() ? std::string(status.message())
                                  : absl::StrCat(status.message(), ": ", advice));
}

absl::Status Findings::Summary() const {
  if (found_.empty()) return absl::OkStatus();
  return absl::Status(code_, found_.size() == 1
                                 ? found_[0]
                                 : absl::StrCat("a start would be refused for ", found_.size(),
                                                " reasons:\n  ", absl::StrJoin(found_, "\n  ")));
}

}  // namespace shoal::shoald
