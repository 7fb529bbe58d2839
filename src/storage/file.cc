#include "src/storage/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/status_macros.h"

namespace shoal {
namespace {

std::string DirectoryOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// What there is to read.
absl::StatusOr<struct stat> StatToRead(int fd, const std::string& path, uint64_t max_bytes,
                                       bool private_only) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if (S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": is a directory"));
  }
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": is a device: give a regular file or a pipe"));
  }
  if (private_only && (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": holds secrets but others may read it; run: chmod 600 ", path));
  }
  if (S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": has ", info.st_size, " bytes, more than ", max_bytes));
  }
  return info;
}

absl::Status ReadAt(int fd, const std::string& path, uint64_t at, MutableBytes out) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path);
    if (n == 0) return absl::OutOfRangeError(absl::StrCat(path, ": ends before ", at + out.size()));
    at += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

template <typename Content>
absl::StatusOr<Content> Read(const std::string& path, uint64_t max_bytes, bool private_only) {
  SHOAL_ASSIGN_OR_RETURN(const int fd, OpenToRead(path));
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  SHOAL_ASSIGN_OR_RETURN(const struct stat info, StatToRead(fd, path, max_bytes, private_only));
  Content content;
  char buffer[1 << 16];
  auto wipe = absl::MakeCleanup([&] { sodium_memzero(buffer, sizeof buffer); });
  // Allocated in one piece, as growth would leave copies of a secret behind.
  if (S_ISREG(info.st_mode)) content.reserve(static_cast<size_t>(info.st_size));
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path);
    if (n == 0) return content;
    if (content.size() + static_cast<size_t>(n) > max_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(path, ": more than ", max_bytes, " bytes"));
    }
    content.insert(content.end(), buffer, buffer + n);
  }
}

}  // namespace

absl::StatusOr<int> OpenToRead(const std::string& path, int wait_ms) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, path);
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if (S_ISREG(info.st_mode)) {
    std::move(close_fd).Cancel();
    return fd;
  }
  // A pipe without a name is the shell's, <(command): somebody holds its other end, or it ends.
  struct statfs system;
  if (::fstatfs(fd, &system) != 0) return ErrnoStatus(errno, path);
  if (S_ISFIFO(info.st_mode) && system.f_type != PIPEFS_MAGIC) {
    pollfd pipe = {.fd = fd, .events = POLLIN, .revents = 0};
    int ready;
    while ((ready = ::poll(&pipe, 1, wait_ms)) < 0 && errno == EINTR) {
    }
    if (ready < 0) return ErrnoStatus(errno, path);
    if (ready == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": is a pipe to which nobody has written for ", wait_ms / 1000,
                       " seconds: give a regular file, or write to it"));
    }
  }
  // From here on a read waits for whoever writes.
  if (::fcntl(fd, F_SETFL, 0) != 0) return ErrnoStatus(errno, path);
  std::move(close_fd).Cancel();
  return fd;
}

absl::Status WriteAll(int fd, BytesView content, absl::string_view what) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("writing ", what));
    content = content.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status ErrnoStatus(int error, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return StorageError(absl::StatusCode::kNotFound, message);
    case EEXIST:
      return StorageError(absl::StatusCode::kAlreadyExists, message);
    case EACCES:
    case EPERM:
    case EROFS:
      return StorageError(absl::StatusCode::kPermissionDenied, message);
    case ENOSPC:
    case EDQUOT:
      return StorageError(absl::StatusCode::kResourceExhausted, message);
    default:
      return StorageError(absl::StatusCode::kUnavailable, message);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  return Read<std::string>(path, max_bytes, /*private_only=*/false);
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, uint64_t max_bytes) {
  return Read<std::string>(path, max_bytes, /*private_only=*/true);
}

absl::StatusOr<SecretVector<uint8_t>> ReadSecretFile(const std::string& path, uint64_t max_bytes) {
  return Read<SecretVector<uint8_t>>(path, max_bytes, /*private_only=*/true);
}

absl::StatusOr<FileIdentity> IdentityOf(const std::string& path) {
  struct statx info;
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &info) != 0) {
    return ErrnoStatus(errno, path);
  }
  FileIdentity identity{.inode = info.stx_ino};
  if (info.stx_mask & STATX_BTIME) {
    identity.birth_ns =
        static_cast<uint64_t>(info.stx_btime.tv_sec) * 1'000'000'000 + info.stx_btime.tv_nsec;
  }
  return identity;
}

namespace {

absl::Status Replace(const std::string& path, FileMode mode,
                     const std::function<absl::Status(int fd, const std::string& name)>& write) {
  // mkstemp creates it 0600, so a secret is never readable by others, not even briefly.
  std::string temporary = absl::StrCat(path, kTemporarySuffix, "XXXXXX");
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("creating ", path));
  absl::Status status = write(fd, temporary);
  if (status.ok() && ::fchmod(fd, static_cast<mode_t>(mode)) != 0) {
    status = ErrnoStatus(errno, temporary);
  }
  if (status.ok() && ::fsync(fd) != 0) status = ErrnoStatus(errno, temporary);
  if (::close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, temporary);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, path);
  }
  if (!status.ok()) {
    if (mode == FileMode::kPrivate) {
      WipeFile(temporary).IgnoreError();  // it may hold a part of a secret
    } else {
      ::unlink(temporary.c_str());
    }
    return status;
  }
  return SyncDirectory(DirectoryOf(path));
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, BytesView content, FileMode mode) {
  return Replace(path, mode,
                 [&](int fd, const std::string& name) { return WriteAll(fd, content, name); });
}

absl::Status WriteFileAtomically(
    const std::string& path,
    const std::function<SecretVector<uint8_t>(const FileIdentity& self)>& content, FileMode mode) {
  return Replace(path, mode, [&](int fd, const std::string& name) -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(const FileIdentity self, IdentityOf(name));
    return WriteAll(fd, content(self), name);
  });
}

absl::Status WritePartsAtomically(
    const std::string& path,
    const std::function<std::vector<BytesView>(const FileIdentity& self)>& parts, FileMode mode) {
  return Replace(path, mode, [&](int fd, const std::string& name) -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(const FileIdentity self, IdentityOf(name));
    for (const BytesView part : parts(self)) SHOAL_RETURN_IF_ERROR(WriteAll(fd, part, name));
    return absl::OkStatus();
  });
}

absl::Status AppendToFile(const std::string& path, uint64_t at, BytesView content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, path);
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if (static_cast<uint64_t>(info.st_size) < at) {
    return absl::OutOfRangeError(
        absl::StrCat(path, ": has ", info.st_size, " bytes, fewer than were written"));
  }
  if (static_cast<uint64_t>(info.st_size) > at && ::ftruncate(fd, static_cast<off_t>(at)) != 0) {
    return ErrnoStatus(errno, path);
  }
  if (::lseek(fd, static_cast<off_t>(at), SEEK_SET) < 0) return ErrnoStatus(errno, path);
  SHOAL_RETURN_IF_ERROR(WriteAll(fd, content, path));
  return ::fdatasync(fd) == 0 ? absl::OkStatus() : ErrnoStatus(errno, path);
}

absl::StatusOr<uint64_t> SizeOfPrivateFile(const std::string& path, uint64_t max_bytes) {
  SHOAL_ASSIGN_OR_RETURN(const int fd, OpenToRead(path));
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  SHOAL_ASSIGN_OR_RETURN(const struct stat info, StatToRead(fd, path, max_bytes, true));
  return S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
}

absl::Status OverwriteInFile(const std::string& path, std::span<const FilePatch> patches,
                             bool sync) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, path);
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  for (const FilePatch& patch : patches) {
    if (::lseek(fd, static_cast<off_t>(patch.at), SEEK_SET) < 0) return ErrnoStatus(errno, path);
    SHOAL_RETURN_IF_ERROR(WriteAll(fd, patch.bytes, path));
  }
  return !sync || ::fdatasync(fd) == 0 ? absl::OkStatus() : ErrnoStatus(errno, path);
}

absl::Status ReadFromFile(const std::string& path, uint64_t at, MutableBytes out) {
  SHOAL_ASSIGN_OR_RETURN(const int fd, OpenToRead(path));
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  return ReadAt(fd, path, at, out);
}

absl::Status MakeDirectory(const std::string& path, FileMode mode) {
  std::error_code error;
  const std::string parent = DirectoryOf(path);
  std::filesystem::create_directories(parent, error);
  if (error) return ErrnoStatus(error.value(), parent);
  const bool is_private = mode == FileMode::kPrivate;
  if (::mkdir(path.c_str(), is_private ? 0700 : 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, path);
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": is not a directory"));
  }
  if (is_private && (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": is for secrets but others may enter it; run: chmod 700 ", path));
  }
  return absl::OkStatus();
}

absl::Status DeleteFile(const std::string& path) {
  return ::unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus()
                                                        : ErrnoStatus(errno, path);
}

absl::Status WipeOpenFile(int fd, absl::string_view what) {
  struct stat info;
  if (::fstat(fd, &info) != 0 || ::lseek(fd, 0, SEEK_SET) != 0) return ErrnoStatus(errno, what);
  const Bytes zeros(1 << 16, 0);
  for (off_t left = info.st_size; left > 0;) {
    const size_t n = std::min<size_t>(static_cast<size_t>(left), zeros.size());
    SHOAL_RETURN_IF_ERROR(WriteAll(fd, BytesView(zeros).first(n), what));
    left -= static_cast<off_t>(n);
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : ErrnoStatus(errno, what);
}

absl::Status WipeFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, path);
  absl::Status status = WipeOpenFile(fd, path);
  ::close(fd);
  if (::unlink(path.c_str()) != 0 && status.ok()) status = ErrnoStatus(errno, path);
  return status;
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("opening ", directory));
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0) return ErrnoStatus(error, absl::StrCat("syncing ", directory));
  return absl::OkStatus();
}

bool FileExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace shoal
