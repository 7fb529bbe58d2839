// Files: private ones (0600), atomic replacement, durable writes.
#ifndef SHOAL_SRC_STORAGE_FILE_H_
#define SHOAL_SRC_STORAGE_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"

namespace shoal {

enum class FileMode : uint32_t {
  kPublic = 0644,
  kPrivate = 0600,  // keys and state: only the owner may read them
};

// Opens a file, or a pipe, to read it. To open a pipe that nobody writes to would take forever: one
// with a name to which nobody has written for `wait_ms` is FAILED_PRECONDITION. Whoever calls
// closes the descriptor.
absl::StatusOr<int> OpenToRead(const std::string& path, int wait_ms = 30'000);

// A file, or a pipe to its end (see OpenToRead). NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED
// (larger than `max_bytes`) or FAILED_PRECONDITION (a directory, or a device, which may have no
// end), each naming the path.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes = 1ull << 32);

// As ReadFile; also PERMISSION_DENIED for a file that others may read or write.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, uint64_t max_bytes = 1 << 26);

// The same of a secret, which is wiped where it was, and wherever it is when its owner drops it.
absl::StatusOr<SecretVector<uint8_t>> ReadSecretFile(const std::string& path,
                                                     uint64_t max_bytes = 1 << 26);

// Writes a temporary file beside `path`, makes it durable, renames it over `path` and makes the
// directory durable. A reader sees the old content or the new, even after a crash. A process that
// is killed meanwhile leaves the temporary file behind: PATH, kTemporarySuffix, six letters.
inline constexpr char kTemporarySuffix[] = ".tmp-";
absl::Status WriteFileAtomically(const std::string& path, BytesView content, FileMode mode);

// What tells a file from a copy of it, also from one that was made under the same name.
struct FileIdentity {
  uint64_t inode = 0;
  uint64_t birth_ns = 0;  // since 1970; 0 where the file system does not keep it
  bool operator==(const FileIdentity&) const = default;
};
// NOT_FOUND and so on.
absl::StatusOr<FileIdentity> IdentityOf(const std::string& path);
// As above, of a content that may hold the identity of the file that it will be in.
absl::Status WriteFileAtomically(
    const std::string& path,
    const std::function<SecretVector<uint8_t>(const FileIdentity& self)>& content, FileMode mode);
// The same of a content in parts, one after the other, which live until the call returns.
absl::Status WritePartsAtomically(
    const std::string& path,
    const std::function<std::vector<BytesView>(const FileIdentity& self)>& parts, FileMode mode);

// Cuts the file off behind its first `at` bytes, writes `content` there, and makes that durable. If
// it fails, what follows the first `at` bytes is not known. OUT_OF_RANGE if the file is shorter.
absl::Status AppendToFile(const std::string& path, uint64_t at, BytesView content);

// How long a private file is, of which parts are to be read (ReadFromFile). Errors as
// ReadPrivateFile.
absl::StatusOr<uint64_t> SizeOfPrivateFile(const std::string& path, uint64_t max_bytes);

// Bytes of a file and where they are.
struct FilePatch {
  uint64_t at = 0;
  BytesView bytes;
};
// Writes bytes over those that are there, in order, and behind the end. Not atomically. With `sync`
// they are durable when it returns OK.
absl::Status OverwriteInFile(const std::string& path, std::span<const FilePatch> patches,
                             bool sync);
// Reads as many bytes as `out` has. OUT_OF_RANGE if the file ends before.
absl::Status ReadFromFile(const std::string& path, uint64_t at, MutableBytes out);

// Overwrites an open file with zeros and makes that durable; see WipeFile for what remains.
absl::Status WipeOpenFile(int fd, absl::string_view what);

// Makes the names in a directory durable, for files that WriteFileAtomically did not create.
absl::Status SyncDirectory(const std::string& directory);

// Creates the directory (0700 when private) and its parents. OK if it exists, but a private
// directory that others may enter is refused.
absl::Status MakeDirectory(const std::string& path, FileMode mode);

// OK if there is no such file.
absl::Status DeleteFile(const std::string& path);

// Overwrites the content with zeros, makes that durable, unlinks. File systems that copy on write,
// and flash, may still keep old blocks (docs/threat-model.md). OK if there is no such file.
absl::Status WipeFile(const std::string& path);

// Writes all of `content` to an open file, in as many writes as it takes. `what` names the file in
// the error.
absl::Status WriteAll(int fd, BytesView content, absl::string_view what);

bool FileExists(const std::string& path);

// "what: No such file or directory" and so on: a StorageError with a fitting code.
absl::Status ErrnoStatus(int error, absl::string_view what);

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_FILE_H_
