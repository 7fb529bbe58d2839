// What a party must never forget, written before it acts on it.
//
// "One content for ever" (docs/threat-model.md): before a party sends anything for a round in a
// direction, it has stored the digest of its complete input; the same input again is fine, any
// other is refused for ever. A party signs one header for a counter and one manifest or roster for
// an epoch. Seeds are stored before anything that derives from them is sent, and are wiped with
// the round. What clients sent is deleted with it, not overwritten: onions that were on the wire,
// and that nobody opens without the seed.
//
// A process that starts over a journal with unfinished rounds ends those rounds: their counters
// stay refused, their secrets are wiped.
#ifndef SHOAL_SRC_SERVER_JOURNAL_H_
#define SHOAL_SRC_SERVER_JOURNAL_H_

#include <cstdint>
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

// What of a round is committed to. The values are in files: never change them.
enum class Content : uint8_t {
  kHeader = 1,
  kOfflineInput = 2,
  kOfflineOutput = 3,
  kQueriesInput = 4,
  kQueriesOutput = 5,
  kAnswersInput = 6,
  kAnswersOutput = 7,
};
absl::string_view ContentName(Content content);

// Thread-safe. Every call that returns OK has made its record durable. An error of the storage is
// returned as it is; the record then counts as committed all the same, so that a later different
// one is refused, and the same one is written again.
class Journal {
 public:
  virtual ~Journal() = default;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // OK the first time for this round and content, and for the same digest again.
  // FAILED_PRECONDITION for another digest; for a header whose counter is not above all earlier
  // ones; for any other content of a round without a header or that has ended.
  absl::Status CommitRound(RoundCounter round, Content content, const Digest& digest);

  // For what has epochs (`subject` names it: "roster", "table <id>"): OK for a new highest epoch,
  // and for the highest again with the same digest. FAILED_PRECONDITION otherwise.
  absl::Status CommitEpoch(absl::string_view subject, uint64_t epoch, const Digest& digest);

  // Keeps the seed of a round, until it ends. Once for each round.
  virtual absl::Status StoreSeed(RoundCounter round, BytesView seed) = 0;

  // Keeps what clients sent for a round (frontend). Appended records are durable after Sync, which
  // makes all appended so far durable at once: acknowledgements are grouped over one Sync.
  // UNAVAILABLE from either: nothing was lost, and the same may work later. After any other error
  // what was appended for the round cannot be relied on any more.
  virtual absl::Status AppendSubmission(RoundCounter round, BytesView record) = 0;
  virtual absl::Status Sync(RoundCounter round) = 0;
  // All records appended for the round, one after the other, `bytes` in all: DATA_LOSS, then or
  // while it is read, if there are not as many. Nothing may be appended any more.
  virtual absl::StatusOr<std::unique_ptr<ByteSource>> ReadSubmissions(RoundCounter round,
                                                                      uint64_t bytes) = 0;

  // Wipes the round's seed and deletes its submissions; the counter is refused from now on. OK
  // again for a round that has ended.
  absl::Status EndRound(RoundCounter round);

  // Ids of the rounds that were open when the process before this one ended: the parties after this
  // one may still wait for them.
  const std::vector<Digest>& abandoned() const { return abandoned_; }

  // Headers are only signed for counters above this.
  RoundCounter highest_round() const;

 protected:
  Journal() = default;

  // Makes one record durable.
  virtual absl::Status Persist(BytesView record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Wipes what StoreSeed has written.
  virtual absl::Status WipeSeed(RoundCounter round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Deletes what AppendSubmission has written. Called without the lock: gigabytes take a while.
  virtual absl::Status DeleteSubmissions(RoundCounter round) = 0;

  // Of what was committed, and held while that is written.
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
  // Of open rounds.
  std::map<std::pair<RoundCounter, Content>, Committed> contents_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Epoch> epochs_ ABSL_GUARDED_BY(mutex_);
  std::vector<Digest> abandoned_;  // written at start-up alone
};

// In a directory that is the party's own (0700):
//   journal             records, each: u32 length | 16-byte BLAKE2b checksum | record
//   round-N.seed        (0600)
//   round-N.submissions (0600)
//   lock                held while a process uses the directory
// A record that was being written when the power failed is cut off at the next start: nothing was
// sent because of it. A damaged record elsewhere is DATA_LOSS: a party that cannot know what it
// has sent must not go on. Every start removes the rounds' files first, also one that fails.
class FileJournal final : public Journal {
 public:
  // FAILED_PRECONDITION if another process holds the directory.
  static absl::StatusOr<std::unique_ptr<FileJournal>> Open(const std::string& directory);
  ~FileJournal() override;

  absl::Status StoreSeed(RoundCounter round, BytesView seed) override;
  absl::Status AppendSubmission(RoundCounter round, BytesView record) override;
  absl::Status Sync(RoundCounter round) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> ReadSubmissions(RoundCounter round,
                                                              uint64_t bytes) override;

 protected:
  absl::Status Persist(BytesView record) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WipeSeed(RoundCounter round) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status DeleteSubmissions(RoundCounter round) override;

 private:
  class SubmissionsSource;
  explicit FileJournal(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Load();
  absl::Status RemoveLeftovers();
  std::string RoundFile(RoundCounter round, absl::string_view suffix) const;

  const std::string directory_;
  // Held open, so that what clients do to the process's descriptors stands in the way of no sync.
  int directory_fd_ = -1;
  int lock_fd_ = -1;
  int journal_fd_ = -1;
  uint64_t journal_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of whole records
  // What is on the disk is not known any more.
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  class OpenFile;
  struct Submissions {
    std::shared_ptr<const OpenFile> file;  // shared with a sync that is under way
    bool broken = false;                   // as above, of this file: the round acknowledges no more
  };
  Mutex submissions_mutex_;
  std::map<RoundCounter, Submissions> submissions_ ABSL_GUARDED_BY(submissions_mutex_);
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_JOURNAL_H_
