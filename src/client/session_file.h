// An engine's session on disk, with the same guard as the chain's state (guarded_file.h).
//
//   PATH   a magic; a digest of the head; the head: servers, guard, length of the state, length of
//          a slot, a digest of the digests of the state's blocks as it was saved; the state; the
//          digests of its blocks of 16 KiB; two slots; then the records that were appended, each
//              u32 length, the record, a digest of the record and of the digest before it
// A process reads the head, the blocks' digests and the slots, and of the state what a query needs:
// every block is compared with its digest whenever it is read.
//
// A change is written to one of the two slots first, by turns:
//              u32 length, its number from 1 on, the digest of the blocks' digests with it, and for
//              every place u64 at, u32 length, bytes; a digest of all that and of the head
// From then on it counts. Then its bytes take their places in the state, the blocks' new digests
// theirs, and the change before is overwritten with zeros. Whoever is killed in between leaves a
// change that is made again by the next process. So a file has the last change alone beside the
// state, and nothing of those before.
//
// (Nothing of a state need be durable before the next change is: the sync of that one comes before
// the one before it is wiped. A process that finds two changes makes both, in order. The digests of
// the blocks that they reach it computes, whatever the file has there.)
//
// A process that is killed while it appends leaves a torn record behind, which nothing was sent of:
// it is dropped. The last digest, of a record or of a change, stands for the whole file in the
// anchor, so that a file without its last ones is an old copy, like any other.
//
// Files of earlier versions are read, every byte of them, and the next state that is saved takes
// their place:
//   another magic, and no digests of the blocks (before 0.3.0); else as above
//   no magic (0.2): a digest of the head and of the state; the head: servers, guard, length of the
//          state; the state; the records, which had what queries changed, too
#ifndef SHOAL_SRC_CLIENT_SESSION_FILE_H_
#define SHOAL_SRC_CLIENT_SESSION_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/client/guarded_file.h"
#include "src/client/rollback_anchor.h"
#include "src/pir/engine.h"

namespace shoal::client {

// Thread-compatible.
class SessionFile final : public pir::SessionStore {
 public:
  // Opens the file, or begins one. `servers` names the servers of all roles, in order: a state that
  // one server knows a part of must not be used with that server in another role. `swapped`, if it
  // is given, names the same servers in swapped roles.
  // FAILED_PRECONDITION: another process uses the file. INVALID_ARGUMENT: it has a state of servers
  // in swapped roles, and stays as it is. DATA_LOSS: the file is damaged. PERMISSION_DENIED: others
  // may read the file.
  static absl::StatusOr<std::unique_ptr<SessionFile>> Open(
      const std::string& path, const Digest& servers, const AnchorDirectory& place,
      RandomSource& random, const std::optional<Digest>& swapped = std::nullopt);

  // Nothing if the file is not the latest that was saved, or another session's.
  uint64_t state_bytes() const override { return layout_.state_bytes; }
  uint64_t records() const override { return records_.size(); }
  absl::Status Read(uint64_t at, MutableBytes out) const override;
  absl::StatusOr<SecretVector<uint8_t>> ReadRecord(uint64_t number) const override;
  absl::Status SaveParts(std::span<const BytesView> parts) override;
  absl::Status Append(BytesView record) override;
  absl::Status Change(std::span<const pir::StatePatch> patches) override;
  bool CanChange() const override { return can_change_; }
  void ExpectChanges(uint64_t patches, uint64_t bytes) override;

  // Why a state that was there was given up, as the end of a sentence whose subject is the file;
  // empty if none was.
  const std::string& discarded() const { return discarded_; }

 private:
  SessionFile(std::unique_ptr<GuardedFile> file, const Digest& servers)
      : file_(std::move(file)), servers_(servers) {}
  // Where the parts of the file are.
  struct Layout {
    uint64_t state_at = 0, state_bytes = 0;
    bool has_digests = false;  // of blocks
    uint64_t slot_bytes = 0;

    uint64_t blocks() const;
    uint64_t DigestAt(uint64_t block) const;
    uint64_t SlotAt(uint64_t number) const;
    uint64_t end() const { return SlotAt(0) + 2 * slot_bytes; }
  };
  struct Record {
    uint64_t at = 0, bytes = 0;
    Digest before = {}, digest = {};
  };
  // What a file was found to hold.
  struct Found;
  absl::StatusOr<Found> ReadFirstFormat(uint64_t size) const;
  absl::StatusOr<Found> ReadContent(uint64_t size, bool has_digests) const;
  // Those behind found.layout.
  absl::Status ReadRecords(uint64_t size, Found& found) const;
  // As it is in the file, whatever its digest.
  absl::StatusOr<SecretVector<uint8_t>> ReadBlock(const Layout& layout, uint64_t number) const;
  // Has the file say what was read of it, also if the last process was killed.
  absl::Status Mend(const Found& found) const;

  const std::unique_ptr<GuardedFile> file_;
  const Digest servers_;
  std::string discarded_;
  Layout layout_;
  std::vector<Digest> blocks_;  // of the state
  std::vector<Record> records_;
  // Where the next record goes, and the digest of all that is before it.
  uint64_t end_ = 0;
  Digest digest_ = {};
  bool whole_ = false;  // the last change did not fail
  // For Change: the digest of the head, how many changes there were, and how long the last one's
  // record is.
  bool can_change_ = false;
  uint64_t least_slot_bytes_ = 0;
  Digest head_digest_ = {};
  uint64_t changes_ = 0, last_change_bytes_ = 0;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_SESSION_FILE_H_
