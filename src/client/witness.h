// A witness says which save of a guarded file (guarded_file.h) was the last, from outside of the
// file's disk. When a file system is set back to a snapshot, everything on it is what it was,
// inodes and times of birth too; its witness lies in memory and stays.
//
//   PLACE/ID   one for each guarded file, named by its random id; 0600; locked while a process uses
//              the guarded file, so that two copies of that are not used at the same time
// PLACE is /dev/shm/shoal-UID, or, where that cannot be had, $XDG_RUNTIME_DIR/shoal-UID: a
// directory of the user alone, on a file system in memory. Witnesses are gone after a restart of
// the machine, and a container with a /dev/shm of its own has its own. So a content without a
// witness may be an old one. Not noticed is what sets memory back as well: a snapshot of a whole
// virtual machine, or a checkpoint of a container with its memory.
//
// A witness is written in place, in one write. A process that is killed within that leaves a torn
// witness, which says nothing.
#ifndef SHOAL_SRC_CLIENT_WITNESS_H_
#define SHOAL_SRC_CLIENT_WITNESS_H_

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

using WitnessId = std::array<uint8_t, 16>;

// The error of a file that somebody else has locked: FAILED_PRECONDITION, with a mark by which
// IsInUse knows it. Annotate drops the mark.
absl::Status InUseError(absl::string_view message);
bool IsInUse(const absl::Status& status);

// What a witness says.
struct Testimony {
  uint64_t generation = 0;  // of the last save
  Digest content = {};      // of what it saved
  // What its owner wants to have back if the file is an old copy. No secrets of a round or session.
  SecretVector<uint8_t> remains;
};

// One witness, locked until the object ends. Thread-compatible.
class Witness {
 public:
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // Nothing if the witness is torn.
  absl::StatusOr<std::optional<Testimony>> Read() const;
  // RESOURCE_EXHAUSTED: no memory; the witness says what it said before.
  absl::Status Write(const Testimony& testimony);

 private:
  friend class WitnessPlace;
  Witness(int fd, std::string path, std::string owner)
      : fd_(fd), path_(std::move(path)), owner_(std::move(owner)) {}

  const int fd_;
  const std::string path_;
  const std::string owner_;
};

// Where witnesses are: by default nowhere. Thread-compatible.
class WitnessPlace {
 public:
  // The first place of this machine that serves; perhaps none.
  static WitnessPlace OfThisMachine();
  // The directory shoal-UID in `shared`, which it makes if it is missing. None, if others could put
  // their own files there: if `shared` lets others rename what is not theirs, or if shoal-UID is a
  // link, is somebody else's, or is open to others.
  static WitnessPlace Below(const std::string& shared);

  // Empty if there is no place; `problem` says why then.
  const std::string& directory() const { return directory_; }
  const std::string& problem() const { return problem_; }

  // `owner` is the path of the guarded file. NOT_FOUND: there is no such witness.
  // FAILED_PRECONDITION: another process has it.
  absl::StatusOr<std::unique_ptr<Witness>> Find(const WitnessId& id,
                                                const std::string& owner) const;
  // Makes a witness, which says that nothing was saved yet (generation 0), and removes those of
  // files that are gone, a day after their last save. FAILED_PRECONDITION if there is no place.
  absl::StatusOr<std::unique_ptr<Witness>> Make(const WitnessId& id,
                                                const std::string& owner) const;
  // What the witness says, without locking it: nothing if there is none, or if it is being written.
  std::optional<Testimony> Peek(const WitnessId& id) const;

 private:
  std::string PathOf(const WitnessId& id) const;
  void RemoveAbandoned() const;

  std::string directory_;
  std::string problem_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_WITNESS_H_
