// A private file that knows whether it is an old copy of itself: for secrets that must be used
// once, such as a round's slots or a session's hints. If an old copy came back, they could be used
// a second time.
//
//   PATH        the content, with a Guard inside; 0600; a new file at every save; the old content
//               is overwritten with zeros. A content that does not name the inode and the time of
//               birth of the file that it is in was copied there.
//               What changes little by little may also be appended to the content (Append): that
//               counts as a save, without a new file.
//   PATH.guard  an id and the generation of the last save, written in place after every save. A
//               content that is older than its guard, or whose guard was made anew (another inode
//               or time of birth), is an old copy.
//   PATH.lock   locked while a process uses the file
//   an anchor   the generation and a digest of the last save, in memory (anchor.h), written last.
//               A content with which no anchor agrees may be an old one.
// The files tell a copy from the latest content even after a restart of the machine. The anchor
// also tells when the whole file system was set back to a snapshot, or keeps no times of birth and
// gives inodes out again. It alone is enough; the files must agree all the same.
//
// Without an anchor, a content is never the latest: after a restart, in another container, or on a
// machine without a place for anchors, where no content outlives its process. That costs the
// rounds that were under way, and an engine's session. Trusting it would cost what the file is for.
//
// Crashes. A save first makes PATH durable, then writes the guard, then the anchor; only then may
// anything that was derived from it be sent. So whoever is killed in between leaves a content that
// is one generation ahead of guard or anchor, of which nothing was sent: it counts as the latest.
// An old content is never ahead. (Suppose one were one generation ahead of the anchor: then its
// own anchor was not written, so nothing of it was sent either, and it was made from the very
// content that the anchor names, as the anchor agreed when its process began, and was locked
// since. Any other content of that generation was not sent, or else the anchor would name it, and
// then the digests differ.) The other order, anchor first, would take every content after such a
// kill for an old one. The same holds of what is appended, as long as its digest depends on all
// that was there before.
#ifndef SHOAL_SRC_CLIENT_GUARDED_FILE_H_
#define SHOAL_SRC_CLIENT_GUARDED_FILE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/client/rollback_anchor.h"
#include "src/storage/file.h"

namespace shoal::client {

// What the content carries of the guard that it goes with.
struct Guard {
  AnchorId id = {};         // of the anchor, too
  FileIdentity file;        // of PATH.guard
  uint64_t generation = 0;  // rises with every save
  FileIdentity self;        // of PATH
};

// A content as it was read.
struct FoundContent {
  Guard guard;  // its generation counts what was appended
  BytesView bytes;
  BytesView remains;  // what it would leave to a later content (AnchorRecord)
  // What stands for the bytes, if they were saved as ContentParts or appended to.
  std::optional<Digest> digest = std::nullopt;
};

// A content that need not be in one piece, and what stands for it in the anchor: a digest on which
// all of it depends.
struct ContentParts {
  std::vector<BytesView> parts;
  Digest digest = {};
};

struct Standing {
  bool latest = false;
  // Why it is not the latest, as the end of a sentence whose subject is the file: "is an old copy".
  std::string why;
  // What the latest save wanted to have back, if the content is not the latest and there is a
  // anchor.
  std::optional<SecretVector<uint8_t>> remains;
};

// Thread-compatible.
class GuardedFile {
 public:
  // Locks the file until the object ends, and wipes what saves that were killed have left.
  // FAILED_PRECONDITION: another process uses it.
  static absl::StatusOr<std::unique_ptr<GuardedFile>> Open(const std::string& path,
                                                           AnchorDirectory place);
  ~GuardedFile();
  GuardedFile(const GuardedFile&) = delete;
  GuardedFile& operator=(const GuardedFile&) = delete;

  // Compares the content that was found with its guard and its anchor. If it is not the latest,
  // and if there is none, a new guard is made: what was found is never the latest again. Once,
  // before the first Save. FAILED_PRECONDITION: another process uses a copy of the file.
  absl::StatusOr<Standing> Accept(const std::optional<FoundContent>& found, RandomSource& random);

  // The generation of the next save.
  uint64_t next_generation() const { return guard_.generation + 1; }
  // Replaces the content by what `content` makes, which must carry the guard that it is given.
  // Durable when it returns OK. Nothing may be sent after an error.
  absl::Status Save(const std::function<SecretVector<uint8_t>(const Guard& guard)>& content,
                    BytesView remains);
  // The same of a content in parts, which live until the call returns.
  absl::Status SaveParts(const std::function<ContentParts(const Guard& guard)>& content,
                         BytesView remains);
  // Writes `bytes` behind the first `at` bytes of the content, which are those that were saved and
  // appended. `appended` stands for the content with them. Errors as Save; after one, only a save
  // makes a content to which something can be appended.
  absl::Status Append(uint64_t at, BytesView bytes, const Digest& appended, BytesView remains);
  // The same in place: writes `bytes` at `at`, over what is there. `changed` stands for the content
  // with them. The caller's format finds a write that was not completed.
  absl::Status Overwrite(uint64_t at, BytesView bytes, const Digest& changed, BytesView remains);

  const std::string& path() const { return path_; }

 private:
  GuardedFile(std::string path, AnchorDirectory place)
      : path_(std::move(path)), place_(std::move(place)) {}
  std::string guard_path() const { return path_ + ".guard"; }
  absl::StatusOr<std::optional<Guard>> ReadGuard() const;
  absl::Status MakeGuard(const AnchorId& id, uint64_t generation);
  absl::Status WriteGuard() const;
  absl::Status WriteAnchor(const Digest& content, BytesView remains);

  const std::string path_;
  const AnchorDirectory place_;
  Guard guard_;
  int lock_ = -1;
  std::unique_ptr<RollbackAnchor> anchor_;  // null if there is no place for one
};

// Whether the anchor agrees that a content of this generation is the latest.
bool Agrees(const AnchorRecord& anchor_record, uint64_t generation, BytesView content);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_GUARDED_FILE_H_
