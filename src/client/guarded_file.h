// A private file that knows whether it is an old copy of itself: for secrets that must be used
// once, such as a round's slots or a session's hints. If an old copy came back, they could be used
// a second time.
//
//   PATH        the content, with a Guard inside; 0600; a new file at every save; the old content
//               is overwritten with zeros. A content that does not name the inode and the time of
//               birth of the file that it is in was copied there.
//   PATH.guard  an id and the generation of the last save, written in place after every save. A
//               content that is older than its guard, or whose guard was made anew (another inode
//               or time of birth), is an old copy.
//   PATH.lock   locked while a process uses the file
// A whole file system or virtual machine that was set back to a snapshot cannot be told.
#ifndef SHOAL_SRC_CLIENT_GUARDED_FILE_H_
#define SHOAL_SRC_CLIENT_GUARDED_FILE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/storage/file.h"

namespace shoal::client {

// What the content carries of the guard that it goes with.
struct Guard {
  std::array<uint8_t, 16> id = {};
  FileIdentity file;        // of PATH.guard
  uint64_t generation = 0;  // rises with every save
  FileIdentity self;        // of PATH
};

// Thread-compatible.
class GuardedFile {
 public:
  // Locks the file until the object ends. FAILED_PRECONDITION: another process uses it.
  static absl::StatusOr<std::unique_ptr<GuardedFile>> Open(const std::string& path);
  ~GuardedFile();
  GuardedFile(const GuardedFile&) = delete;
  GuardedFile& operator=(const GuardedFile&) = delete;

  // Compares the guard that was read from the content with the one beside it. False if the content
  // is an old copy. Then, and if there is no content (`kept` is nothing), a new guard is made: what
  // this content says of itself is never current again. Once, before the first Save.
  absl::StatusOr<bool> Accept(const std::optional<Guard>& kept, RandomSource& random);

  // The generation of the next save.
  uint64_t next_generation() const { return guard_.generation + 1; }
  // Replaces the content by what `content` makes, which must carry the guard that it is given.
  // Durable when it returns OK.
  absl::Status Save(const std::function<SecretVector<uint8_t>(const Guard& guard)>& content);

  const std::string& path() const { return path_; }

 private:
  explicit GuardedFile(std::string path) : path_(std::move(path)) {}
  std::string guard_path() const { return path_ + ".guard"; }
  absl::StatusOr<std::optional<Guard>> ReadGuard() const;
  absl::Status MakeGuard(RandomSource& random);
  absl::Status WriteGuard() const;

  const std::string path_;
  Guard guard_;
  int lock_ = -1;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_GUARDED_FILE_H_
