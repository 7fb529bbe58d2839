#include "src/client/guarded_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

// The guard's content: id, generation, and a digest of both, so that a torn write is found.
constexpr size_t kIdBytes = sizeof(Guard::id);
constexpr size_t kGuardBytes = kIdBytes + 8 + sizeof(Digest);

Bytes GuardContent(BytesView id, uint64_t generation) {
  Bytes content = ToBytes(id);
  AppendLe<uint64_t>(content, generation);
  Append(content, Transcript("shoal client guard v1").Blob(id).U64(generation).Finish());
  return content;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GuardedFile>> GuardedFile::Open(const std::string& path) {
  std::unique_ptr<GuardedFile> file(new GuardedFile(path));
  const std::string lock_path = path + ".lock";
  file->lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file->lock_ < 0) return ErrnoStatus(errno, lock_path);
  while (::flock(file->lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": another process uses this state"));
    }
    return ErrnoStatus(errno, lock_path);
  }
  return file;
}

GuardedFile::~GuardedFile() {
  if (lock_ >= 0) ::close(lock_);
}

absl::StatusOr<std::optional<Guard>> GuardedFile::ReadGuard() const {
  auto content = ReadPrivateFile(guard_path(), 4096);
  if (absl::IsNotFound(content.status())) return std::nullopt;
  if (!content.ok()) return content.status();
  Guard guard;
  SHOAL_ASSIGN_OR_RETURN(guard.file, IdentityOf(guard_path()));
  if (content->size() != kGuardBytes) return std::nullopt;
  const BytesView bytes = AsBytes(*content);
  std::copy_n(bytes.begin(), kIdBytes, guard.id.begin());
  guard.generation = LoadLe<uint64_t>(bytes.data() + kIdBytes);
  if (!std::ranges::equal(bytes, GuardContent(guard.id, guard.generation))) return std::nullopt;
  return std::optional<Guard>(guard);
}

absl::Status GuardedFile::WriteGuard() const {
  const Bytes content = GuardContent(guard_.id, guard_.generation);
  // Written in place, as a copy is recognised by the file's identity.
  const int fd = ::open(guard_path().c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, guard_path());
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  const ssize_t written = ::pwrite(fd, content.data(), content.size(), 0);
  if (written != static_cast<ssize_t>(content.size())) {
    return ErrnoStatus(written < 0 ? errno : EIO, guard_path());
  }
  if (::fdatasync(fd) != 0) return ErrnoStatus(errno, guard_path());
  return absl::OkStatus();
}

absl::Status GuardedFile::MakeGuard(RandomSource& random) {
  // WriteFileAtomically makes a new file each time, so the guard's identity changes.
  guard_ = {};
  random.Fill(guard_.id);
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(
      guard_path(), GuardContent(guard_.id, guard_.generation), FileMode::kPrivate));
  SHOAL_ASSIGN_OR_RETURN(const std::optional<Guard> made, ReadGuard());
  if (!made) return absl::UnavailableError(absl::StrCat(guard_path(), ": cannot be read back"));
  guard_ = *made;
  return absl::OkStatus();
}

absl::StatusOr<bool> GuardedFile::Accept(const std::optional<Guard>& kept, RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(const std::optional<Guard> guard, ReadGuard());
  // The content is saved before its guard, so after a crash between the two it is one generation
  // ahead.
  bool current =
      kept && guard && guard->id == kept->id && guard->file == kept->file &&
      (guard->generation == kept->generation || guard->generation + 1 == kept->generation);
  if (current) {
    SHOAL_ASSIGN_OR_RETURN(const FileIdentity self, IdentityOf(path_));
    current = self == kept->self;
  }
  if (!current) {
    SHOAL_RETURN_IF_ERROR(MakeGuard(random));
    return false;
  }
  guard_ = *kept;
  // Writes the guard at once: after another such crash the two would differ by two generations, as
  // with an old copy.
  if (guard->generation != kept->generation) SHOAL_RETURN_IF_ERROR(WriteGuard());
  return true;
}

absl::Status GuardedFile::Save(
    const std::function<SecretVector<uint8_t>(const Guard& guard)>& content) {
  // Keeps the old content reachable, to overwrite it.
  const int old = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  auto close_old = absl::MakeCleanup([old] {
    if (old >= 0) ::close(old);
  });
  Guard next = guard_;
  ++next.generation;
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(
      path_,
      [&](const FileIdentity& self) {
        next.self = self;
        return content(next);
      },
      FileMode::kPrivate));
  guard_ = next;
  // Best effort: the new content is already in place.
  if (old >= 0) WipeOpenFile(old, path_).IgnoreError();
  return WriteGuard();
}

}  // namespace shoal::client
