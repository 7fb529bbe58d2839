#include "src/client/rollback_anchor.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;

constexpr char kInUseMark[] = "shoal/in-use";

// A digest of the rest; generation; the content's digest; the lengths of what follows: the owner's
// path, and what remains. The file may be longer.
constexpr size_t kGenerationAt = sizeof(Digest), kContentAt = kGenerationAt + 8;
constexpr size_t kOwnerLengthAt = kContentAt + sizeof(Digest),
                 kRemainsLengthAt = kOwnerLengthAt + 4;
constexpr size_t kOwnerAt = kRemainsLengthAt + 4;
constexpr uint64_t kMaxBytes = uint64_t{1} << 29;
constexpr auto kAbandonedAfter = std::chrono::hours(24);

struct Parsed {
  AnchorRecord anchor_record;
  std::string owner;
};

Digest DigestOf(BytesView rest) { return Transcript("shoal client anchor v1").Blob(rest).Finish(); }

std::optional<Parsed> Parse(BytesView bytes) {
  if (bytes.size() < kOwnerAt) return std::nullopt;
  const uint64_t owner_bytes = LoadLe<uint32_t>(&bytes[kOwnerLengthAt]);
  const uint64_t remains_bytes = LoadLe<uint32_t>(&bytes[kRemainsLengthAt]);
  if (owner_bytes + remains_bytes > bytes.size() - kOwnerAt) return std::nullopt;
  bytes = bytes.first(kOwnerAt + owner_bytes + remains_bytes);
  if (!std::ranges::equal(bytes.first(kGenerationAt), DigestOf(bytes.subspan(kGenerationAt)))) {
    return std::nullopt;
  }
  Parsed parsed;
  parsed.anchor_record.generation = LoadLe<uint64_t>(&bytes[kGenerationAt]);
  std::ranges::copy(bytes.subspan(kContentAt, sizeof(Digest)),
                    parsed.anchor_record.content.begin());
  parsed.owner = ToString(bytes.subspan(kOwnerAt, owner_bytes));
  const BytesView remains = bytes.last(remains_bytes);
  parsed.anchor_record.remains.assign(remains.begin(), remains.end());
  return parsed;
}

absl::StatusOr<std::optional<Parsed>> ReadOpen(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if (static_cast<uint64_t>(info.st_size) > kMaxBytes) return std::nullopt;
  SecretVector<uint8_t> bytes(static_cast<size_t>(info.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path);
    if (n == 0) return std::nullopt;
    done += static_cast<size_t>(n);
  }
  return Parse(bytes);
}

bool InMemory(const std::string& directory) {
  struct statfs info;
  return ::statfs(directory.c_str(), &info) == 0 &&
         (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

// OK if nobody but this user can put files into `directory`, or another directory into its place.
absl::Status CheckOwn(const std::string& shared, const std::string& directory) {
  struct stat above;
  if (::stat(shared.c_str(), &above) != 0) return ErrnoStatus(errno, shared);
  if ((above.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (above.st_mode & S_ISVTX) == 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(shared, " lets others rename what is not theirs"));
  }
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, directory);
  }
  struct stat own;
  if (::lstat(directory.c_str(), &own) != 0) return ErrnoStatus(errno, directory);
  if (!S_ISDIR(own.st_mode) || own.st_uid != ::geteuid() ||
      (own.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(directory, " is not a private directory of this user (remove it)"));
  }
  return absl::OkStatus();
}

// False if another process has it.
absl::StatusOr<bool> Lock(int fd, const std::string& path) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    return ErrnoStatus(errno, path);
  }
  return true;
}

}  // namespace

absl::Status InUseError(absl::string_view message) {
  absl::Status status = absl::FailedPreconditionError(message);
  status.SetPayload(kInUseMark, absl::Cord());
  return status;
}

bool IsInUse(const absl::Status& status) { return status.GetPayload(kInUseMark).has_value(); }

RollbackAnchor::~RollbackAnchor() { ::close(fd_); }

absl::StatusOr<std::optional<AnchorRecord>> RollbackAnchor::Read() const {
  SHOAL_ASSIGN_OR_RETURN(std::optional<Parsed> parsed, ReadOpen(fd_, path_));
  if (!parsed) return std::nullopt;
  return std::optional<AnchorRecord>(std::move(parsed->anchor_record));
}

absl::Status RollbackAnchor::Write(const AnchorRecord& anchor_record) {
  SecretVector<uint8_t> bytes(kOwnerAt + owner_.size() + anchor_record.remains.size());
  Bytes head;
  AppendLe<uint64_t>(head, anchor_record.generation);
  Append(head, anchor_record.content);
  AppendLe<uint32_t>(head, static_cast<uint32_t>(owner_.size()));
  AppendLe<uint32_t>(head, static_cast<uint32_t>(anchor_record.remains.size()));
  Append(head, AsBytes(owner_));
  const auto after = std::ranges::copy(head, bytes.begin() + kGenerationAt).out;
  std::ranges::copy(anchor_record.remains, after);
  std::ranges::copy(DigestOf(BytesView(bytes).subspan(kGenerationAt)), bytes.begin());
  // Takes the room before it overwrites anything.
  if (const int error = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes.size())); error != 0) {
    return ErrnoStatus(error, path_);
  }
  const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), 0);
  if (written != static_cast<ssize_t>(bytes.size())) {
    return ErrnoStatus(written < 0 ? errno : EIO, path_);
  }
  // No more than tidiness.
  return ::ftruncate(fd_, written) == 0 ? absl::OkStatus() : ErrnoStatus(errno, path_);
}

AnchorDirectory AnchorDirectory::OfThisMachine() {
  std::vector<std::string> shared = {"/dev/shm"};
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/') {
    shared.emplace_back(runtime);
  }
  AnchorDirectory none;
  for (const std::string& directory : shared) {
    AnchorDirectory place;
    if (InMemory(directory)) {
      place = Below(directory);
    } else {
      place.problem_ = absl::StrCat(directory, " is no file system in memory");
    }
    if (!place.directory_.empty()) return place;
    absl::StrAppend(&none.problem_, none.problem_.empty() ? "" : "; ", place.problem_);
  }
  return none;
}

AnchorDirectory AnchorDirectory::Below(const std::string& shared) {
  AnchorDirectory place;
  const std::string directory = absl::StrCat(shared, "/shoal-", ::geteuid());
  if (const absl::Status own = CheckOwn(shared, directory); own.ok()) {
    place.directory_ = directory;
  } else {
    place.problem_ = std::string(own.message());
  }
  return place;
}

std::string AnchorDirectory::PathOf(const AnchorId& id) const {
  return absl::StrCat(directory_, "/", Hex(id));
}

absl::StatusOr<std::unique_ptr<RollbackAnchor>> AnchorDirectory::Find(
    const AnchorId& id, const std::string& owner) const {
  if (directory_.empty()) return absl::NotFoundError(problem_);
  const std::string path = PathOf(id);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return ErrnoStatus(errno, path);
  std::unique_ptr<RollbackAnchor> anchor(new RollbackAnchor(fd, path, fs::absolute(owner)));
  SHOAL_ASSIGN_OR_RETURN(const bool locked, Lock(fd, path));
  if (!locked) {
    return InUseError(absl::StrCat(owner, ": another process uses this state, or a copy of it"));
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  // Another process may have removed it since it was opened here.
  if (info.st_nlink == 0) return absl::NotFoundError(path);
  return anchor;
}

absl::StatusOr<std::unique_ptr<RollbackAnchor>> AnchorDirectory::Make(
    const AnchorId& id, const std::string& owner) const {
  if (directory_.empty()) return absl::FailedPreconditionError(problem_);
  RemoveAbandoned();
  const std::string path = PathOf(id);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, path);
  std::unique_ptr<RollbackAnchor> anchor(new RollbackAnchor(fd, path, fs::absolute(owner)));
  SHOAL_ASSIGN_OR_RETURN(const bool locked, Lock(fd, path));
  if (!locked) return absl::UnavailableError(absl::StrCat(path, ": locked by another process"));
  SHOAL_RETURN_IF_ERROR(anchor->Write({}));
  return anchor;
}

std::optional<AnchorRecord> AnchorDirectory::Peek(const AnchorId& id) const {
  if (directory_.empty()) return std::nullopt;
  const std::string path = PathOf(id);
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  auto parsed = ReadOpen(fd, path);
  if (!parsed.ok() || !*parsed) return std::nullopt;
  return std::move((*parsed)->anchor_record);
}

// A day, as containers that share this place may not share their disks: whose file is gone here may
// have it there, and would lose the rounds that it takes part in.
void AnchorDirectory::RemoveAbandoned() const {
  std::error_code error;
  for (fs::directory_iterator it(directory_, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string path = it->path();
    std::error_code unreadable;
    const fs::file_time_type written = it->last_write_time(unreadable);
    if (unreadable || written + kAbandonedAfter > fs::file_time_type::clock::now()) continue;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
    if (const auto locked = Lock(fd, path); !locked.ok() || !*locked) continue;
    const auto parsed = ReadOpen(fd, path);
    const bool has_owner = parsed.ok() && *parsed && FileExists((*parsed)->owner);
    if (!has_owner) ::unlink(path.c_str());
  }
}

}  // namespace shoal::client
