// An anchor says which save of a guarded file (guarded_file.h) was the last, from outside of the
// file's disk. When a file system is set back to a snapshot, everything on it is what it was,
// inodes and times of birth too; its anchor lies in memory and stays.
//
//   PLACE/ID   one for each guarded file, named by its random id; 0600; locked while a process uses
//              the guarded file, so that two copies of that are not used at the same time
// PLACE is /dev/shm/shoal-UID, or, where that cannot be had, $XDG_RUNTIME_DIR/shoal-UID: a
// directory of the user alone, on a file system in memory. Anchors are gone after a restart of
// the machine, and a container with a /dev/shm of its own has its own. So a content without a
// anchor may be an old one. Not noticed is what sets memory back as well: a snapshot of a whole
// virtual machine, or a checkpoint of a container with its memory.
//
// An anchor is written in place, in one write. A process that is killed within that leaves a torn
// anchor, which says nothing.
#ifndef SHOAL_SRC_CLIENT_ROLLBACK_ANCHOR_H_
#define SHOAL_SRC_CLIENT_ROLLBACK_ANCHOR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/hash.h"
#include "src/base/secret.h"

namespace shoal::client {

using AnchorId = std::array<uint8_t, 16>;

// The error of a file that somebody else has locked: FAILED_PRECONDITION, with a mark by which
// IsInUse knows it. Annotate drops the mark.
absl::Status InUseError(absl::string_view message);
bool IsInUse(const absl::Status& status);

// What an anchor says.
struct AnchorRecord {
  uint64_t generation = 0;  // of the last save
  Digest content = {};      // of what it saved
  // What its owner wants to have back if the file is an old copy. No secrets of a round or session.
  SecretVector<uint8_t> remains;
};

// One anchor, locked until the object ends. Thread-compatible.
class RollbackAnchor {
 public:
  ~RollbackAnchor();
  RollbackAnchor(const RollbackAnchor&) = delete;
  RollbackAnchor& operator=(const RollbackAnchor&) = delete;

  // Nothing if the anchor is torn.
  absl::StatusOr<std::optional<AnchorRecord>> Read() const;
  // RESOURCE_EXHAUSTED: no memory; the anchor says what it said before.
  absl::Status Write(const AnchorRecord& anchor_record);

 private:
  friend class AnchorDirectory;
  RollbackAnchor(int fd, std::string path, std::string owner)
      : fd_(fd), path_(std::move(path)), owner_(std::move(owner)) {}

  const int fd_;
  const std::string path_;
  const std::string owner_;
};

// Where anchors are: by default nowhere. Thread-compatible.
class AnchorDirectory {
 public:
  // The first place of this machine that serves; perhaps none.
  static AnchorDirectory OfThisMachine();
  // The directory shoal-UID in `shared`, which it makes if it is missing. None, if others could put
  // their own files there: if `shared` lets others rename what is not theirs, or if shoal-UID is a
  // link, is somebody else's, or is open to others.
  static AnchorDirectory Below(const std::string& shared);

  // Empty if there is no place; `problem` says why then.
  const std::string& directory() const { return directory_; }
  const std::string& problem() const { return problem_; }

  // `owner` is the path of the guarded file. NOT_FOUND: there is no such anchor.
  // FAILED_PRECONDITION: another process has it.
  absl::StatusOr<std::unique_ptr<RollbackAnchor>> Find(const AnchorId& id,
                                                       const std::string& owner) const;
  // Makes an anchor, which says that nothing was saved yet (generation 0), and removes those of
  // files that are gone, a day after their last save. FAILED_PRECONDITION if there is no place.
  absl::StatusOr<std::unique_ptr<RollbackAnchor>> Make(const AnchorId& id,
                                                       const std::string& owner) const;
  // What the anchor says, without locking it: nothing if there is none, or if it is being written.
  std::optional<AnchorRecord> Peek(const AnchorId& id) const;

 private:
  std::string PathOf(const AnchorId& id) const;
  void RemoveAbandoned() const;

  std::string directory_;
  std::string problem_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ROLLBACK_ANCHOR_H_
