// The record of what a party must never forget. Entries are durable before the party acts on them.
//
// "One content for ever" (docs/threat-model.md): before a party sends anything for a round in a
// direction, it has stored the digest of its complete input. The same input may come again; any
// other is refused for ever. A party signs one header for a counter and one manifest or roster for
// an epoch. No secret of a round is stored: a process that starts with a journal of unfinished
// rounds ends those rounds, and their counters stay refused. What clients sent for a round is
// deleted at its end without being overwritten: it was on the wire, and cannot be opened without
// the round's keys.
#ifndef SHOAL_SRC_SERVER_JOURNAL_H_
#define SHOAL_SRC_SERVER_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/tagged.h"
#include "src/parallel/mutex.h"

namespace shoal::server {

// The parts of a round that are committed to. Never change the values: they are stored in files.
enum class Content : uint8_t {
  kHeader = 1,
  kOfflineInput = 2,
  kOfflineOutput = 3,
  kQueriesInput = 4,
  kQueriesOutput = 5,
  kAnswersInput = 6,
  kAnswersOutput = 7,
  kPieces =
      8,  // at party 1 of a round of two tiers: clients' pieces of half B, which go to party 2
};
// Of a round, or of either half of one; without the half.
absl::string_view ContentName(Content content);
// The same content of half `half` (1 or 2) of a round of two tiers; with 0 that of a round for
// rows. Each half has all of them but the header, which is the round's.
constexpr Content OfHalf(Content content, uint8_t half) {
  return static_cast<Content>(static_cast<uint8_t>(content) | half << 4);
}

// Thread-safe. A call that returns OK has made its record durable. Errors of the storage are
// returned as they are. The record then still counts as committed: a different one is refused
// later, and the same one is written again.
class Journal {
 public:
  virtual ~Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // OK the first time for this round and content, and for the same digest again.
  // FAILED_PRECONDITION for another digest; for a header whose counter is not above all earlier
  // ones; for any other content of a round without a header or that has ended.
  absl::Status CommitRound(RoundCounter round, Content content, const Digest& digest);

  // Commits to an epoch of `subject` ("roster", "table <id>"). OK for a new highest epoch, and for
  // the highest again with the same digest. FAILED_PRECONDITION otherwise.
  absl::Status CommitEpoch(absl::string_view subject, uint64_t epoch, const Digest& digest);

  // The highest epoch of `subject` so far, 0 if there is none.
  uint64_t highest_epoch(absl::string_view subject) const;

  // Keeps what clients sent for a round (frontend). Sync makes all records appended so far durable,
  // so that one call serves many acknowledgements. After UNAVAILABLE from either, nothing is lost,
  // and the call may succeed later. After any other error, nothing that was appended for the round
  // can be relied on.
  virtual absl::Status AppendSubmission(RoundCounter round, BytesView record) = 0;
  virtual absl::Status Sync(RoundCounter round) = 0;
  // Returns all records of the round, one after the other, `bytes` bytes in all. DATA_LOSS, at once
  // or while it is read, if there are fewer. Nothing may be appended afterwards.
  virtual absl::StatusOr<std::unique_ptr<ByteSource>> ReadSubmissions(RoundCounter round,
                                                                      uint64_t bytes) = 0;

  // Keeps which rounds the frontend serves (its own encoding, nothing secret), in place of what was
  // kept before. Durable after OK.
  virtual absl::Status StoreRounds(BytesView rounds) = 0;
  // What StoreRounds has kept, in this process or an earlier one; empty if nothing.
  virtual absl::StatusOr<Bytes> LoadRounds() const = 0;

  // Deletes the round's submissions; the counter is refused from now on. OK again for a round that
  // has ended.
  absl::Status EndRound(RoundCounter round);

  // The highest counter used so far. Headers are signed only for counters above it.
  RoundCounter highest_round() const;

 protected:
  Journal() = default;

  // What is refused for ever, and what is committed of open rounds, as records: a start that
  // replays these alone refuses all that it would refuse after all records so far.
  std::vector<Bytes> Summary() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes one record durable.
  virtual absl::Status Persist(BytesView record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Deletes what AppendSubmission has written. Called without the lock: gigabytes take a while.
  virtual absl::Status DeleteSubmissions(RoundCounter round) = 0;

  // Guards what was committed. Held while records are written.
  mutable Mutex mutex_;

  // For start-up: takes a record that Persist has written. DATA_LOSS if it makes no sense.
  absl::Status Replay(BytesView record);
  // For start-up, after the last Replay: ends all rounds that are open.
  absl::Status EndOpenRounds();

 private:
  struct Epoch {
    uint64_t number;
    Digest digest;
    bool durable;
  };
  struct Committed {
    Digest digest;
    bool durable;
  };
  absl::Status PersistEnd(RoundCounter round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  RoundCounter highest_round_ ABSL_GUARDED_BY(mutex_);
  // The contents of open rounds.
  std::map<std::pair<RoundCounter, Content>, Committed> contents_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Epoch> epochs_ ABSL_GUARDED_BY(mutex_);
};

// A journal in a directory of its own (0700):
//   journal             records, each: u32 length | 16-byte BLAKE2b checksum | record. Once they
//   are
//                       many, a file with Summary() alone replaces it: whenever the process or the
//                       machine stops, a start finds the old file or the new one
//   round-N.submissions (0600)
//   rounds              what StoreRounds keeps
//   lock                held while a process uses the directory
// A record that was half written when the power failed, or of which the file has the length alone
// (zeros), is cut off at the next start, as nothing was sent because of it. Any other damaged
// record is DATA_LOSS: a party that does not know what it has sent must not go on. Every start
// first removes the rounds' files, even if it then fails.
//
// Once it is not known what is on the disk (a sync has failed), nothing is committed any more: a
// new process has to read what is there.
struct FileJournalOptions {
  // Told how long the disk took to make a record durable. Called from any thread; may be empty.
  std::function<void(double seconds)> synced = nullptr;
  // Told why nothing is committed any more. Called once, from any thread, with the journal's lock
  // held; may be empty.
  std::function<void(const absl::Status& why)> broken = nullptr;
  // How many bytes of records are added before the file is replaced.
  uint64_t compact_bytes = 1 << 18;
};

class FileJournal final : public Journal {
 public:
  // FAILED_PRECONDITION if another process holds the directory.
  static absl::StatusOr<std::unique_ptr<FileJournal>> Open(const std::string& directory,
                                                           FileJournalOptions options = {});
  ~FileJournal() override;

  absl::Status AppendSubmission(RoundCounter round, BytesView record) override;
  absl::Status Sync(RoundCounter round) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> ReadSubmissions(RoundCounter round,
                                                              uint64_t bytes) override;
  absl::Status StoreRounds(BytesView rounds) override;
  absl::StatusOr<Bytes> LoadRounds() const override;

 protected:
  absl::Status Persist(BytesView record) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status DeleteSubmissions(RoundCounter round) override;

 private:
  class SubmissionsSource;
  FileJournal(std::string directory, FileJournalOptions options)
      : directory_(std::move(directory)), options_(std::move(options)) {}
  // fdatasync, timed.
  int SyncData(int fd) const;
  absl::Status Load();
  // Replaces the records by Summary(). OK also if the disk does not take the new file: the records
  // stay, and it is tried again later.
  absl::Status Compact() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Commits nothing from now on. Returns `why`.
  absl::Status Break(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RemoveLeftovers();
  std::string RoundFile(RoundCounter round, absl::string_view suffix) const;
  std::string RoundsPath() const { return directory_ + "/rounds"; }

  const std::string directory_;
  const FileJournalOptions options_;
  // Held open, so that a sync needs no free descriptor: clients may have taken all.
  int directory_fd_ = -1;
  int lock_fd_ = -1;
  int journal_fd_ = -1;                                 // after Load, of Persist
  uint64_t journal_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of whole records
  uint64_t compact_at_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // What is on the disk is no longer known.
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  class OpenFile;
  struct Submissions {
    std::shared_ptr<const OpenFile> file;  // shared with a sync that is under way
    bool broken = false;                   // the same for this file: the round acknowledges no more
  };
  Mutex submissions_mutex_;
  std::map<RoundCounter, Submissions> submissions_ ABSL_GUARDED_BY(submissions_mutex_);
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_JOURNAL_H_
