// One party of the chain: every check and every state of its rounds, no I/O but the journal's and
// the spools'.
//
//   header    party 1 --- draft, one more onion key at every hop ---> party m
//             party 1 <--- one more signature at every hop ---------- party m
//   offline   party 1 --- onions ---> 2 --- onions ---> ... ---> party m
//   online    party 1 --- queries --> 2 --- queries --> ... ---> party m
//             party 1 <-- answers --- 2 <-- answers --- ... <--- party m
//   end       party 1 --- end -----> 2 --- end ------> ... ---> party m
//
// Frontend, middle and backend are this one class: they differ by their neighbours. The caller
// (src/shoald, or a test) moves the bytes: what a call returns goes to the neighbour, and what
// the neighbour answers goes into the next call.
//
// Before a call returns anything for a neighbour it has committed the digest of its whole input to
// the journal, and before the last piece of what it returned is handed out, the digest of that; the
// same call with the same input returns the same bytes, with another input it is refused for ever.
#ifndef SHOAL_SRC_SERVER_PARTY_H_
#define SHOAL_SRC_SERVER_PARTY_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/tagged.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/mutex.h"
#include "src/roster/roster.h"
#include "src/round/header.h"
#include "src/server/journal.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/round_context.h"
#include "src/server/round_stage.h"
#include "src/sharing/sharing.h"
#include "src/wire/client.pb.h"

namespace shoal::server {

// A round id from a message. INVALID_ARGUMENT unless it has 32 bytes.
absl::StatusOr<Digest> ParseRoundId(absl::string_view bytes);

// A draft that is not completed by then is dropped.
inline constexpr uint64_t kDraftLifetimeS = 120;

// Thread-safe: calls for different rounds run at the same time, calls for one round in turn.
class Party {
 public:
  struct Options {
    PartyNumber number;
    roster::Roster roster;
    round::TableFacts table;
    // What the journal knows the table by: an epoch has one content for ever.
    Digest table_id;
    uint64_t table_epoch;
    AnswerTable answers;  // the backend's; empty elsewhere
    // Rounds that may be open at once: a neighbour cannot fill our memory with drafts.
    size_t max_open_rounds = 16;
    // Told of long work, for people; may be empty. From any thread, often: it should be cheap.
    std::function<void(RoundCounter round, uint64_t opened, uint64_t onions)> progress = nullptr;
  };

  // The pointers outlive the party. FAILED_PRECONDITION if the journal has seen a newer roster or
  // table, or another one of the same epoch. INVALID_ARGUMENT for options that do not fit together.
  static absl::StatusOr<std::unique_ptr<Party>> Create(Options options,
                                                       const signature::SecretKey& key,
                                                       Journal* journal, RandomSource* random,
                                                       const Clock* clock, Resources resources);

  const roster::Roster& roster() const { return options_.roster; }
  const round::TableFacts& table() const { return options_.table; }
  PartyNumber number() const { return options_.number; }
  bool is_backend() const { return number().value() == roster().size(); }

  // The draft of the previous party (party 1: its own, without keys) with this party's onion key
  // added. Its seed is durable by then. INVALID_ARGUMENT or UNAUTHENTICATED for a draft that an
  // honest party does not sign; FAILED_PRECONDITION for a counter that was used;
  // RESOURCE_EXHAUSTED when too many rounds are open.
  absl::StatusOr<wire::RoundHeader> ExtendDraft(const wire::RoundHeader& draft);

  // The complete header with this party's signature added to those of the parties after it (at the
  // backend: none yet). It must be this party's draft, completed. Commits to it.
  // FAILED_PRECONDITION if there is no such draft (any more).
  absl::StatusOr<wire::SignedHeader> SignHeader(const wire::SignedHeader& from_next);

  // Erases the draft or the round with this counter: its proposal has failed. OK if there is none.
  absl::Status Withdraw(RoundCounter counter);

  // Makes this party's noise for a round whose header it has signed, if it is not made yet: may be
  // called ahead of time, from any thread.
  absl::Status PrepareNoise(const Digest& round_id);

  // A bound on the bytes that Offline and Queries can be given in any round: the receiver reads no
  // more.
  struct InputLimits {
    uint64_t offline_bytes;
    uint64_t queries_bytes;
  };
  InputLimits MaxInput() const;

  // The input of the offline stage on its way in: opened as it comes, committed to when it is
  // complete. One at a time for a round, for as long as the pointer lives.
  class Intake;
  // `bytes` of onions will come. UNAUTHENTICATED unless the header is signed by all and is the one
  // that this party signed; INVALID_ARGUMENT for a number of bytes that is no list of this party's.
  // FAILED_PRECONDITION while another list is on its way in, or once one of another length was
  // taken. Waits for nothing that takes long, nor does the intake but for its own work: for I/O
  // threads.
  absl::StatusOr<std::shared_ptr<Intake>> BeginOffline(const wire::SignedHeader& header,
                                                       uint64_t bytes);
  // The list for the next party (nothing at the backend), made as it is read. INVALID_ARGUMENT if
  // the input is not complete.
  //
  // What this and the calls below return lives no longer than the party, and gives
  // FAILED_PRECONDITION once its round has ended or the call before it was repeated.
  absl::StatusOr<std::unique_ptr<ByteSource>> Offline(std::shared_ptr<Intake> intake);
  // The same for a list of this process, and errors of the source.
  absl::StatusOr<std::unique_ptr<ByteSource>> Offline(const wire::SignedHeader& header,
                                                      ByteSource& onions);

  // Not at the backend: encoded queries for the next party. FAILED_PRECONDITION, naming both stages
  // (round_stage.h), before the offline stage is done, and for answers before the queries.
  absl::StatusOr<Bytes> Queries(const Digest& round_id, BytesView encoded);
  // Not at the backend: takes all answers of the next party, then answers for the previous one.
  // INVALID_ARGUMENT for a wrong number of bytes; errors of the source.
  absl::StatusOr<std::unique_ptr<ByteSource>> Answers(const Digest& round_id, ByteSource& answers);
  // The backend: answers for the previous party.
  absl::StatusOr<std::unique_ptr<ByteSource>> AnswerQueries(const Digest& round_id,
                                                            BytesView encoded);

  // Erases the round: seeds, onion key, permutation, noise. OK if there is no such round.
  absl::Status End(const Digest& round_id);
  // Erases every round and draft: before the process ends.
  void EndAll();
  // Erases rounds past their expiry and drafts that were never completed; says which.
  std::vector<Digest> EndExpired();

  // The first i for which tokens[i] is not the one of position slots[i] (a dead one has none), or
  // the number of them. Party 1, after Offline; the arrays are of one length.
  size_t FirstWrongToken(const Digest& round_id, std::span<const uint32_t> slots,
                         std::span<const sharing::Token> tokens) const;

  // Where a round stands that this party has signed and that has not ended; NOT_FOUND otherwise. At
  // any time, whoever works on it.
  absl::StatusOr<PartyStage> Stage(const Digest& round_id) const;

  // What the round cost here so far, times in hundredths of a second. For people: it travels to the
  // frontend and to whoever asks there. Of its numbers only the noise total is not on the links
  // for everyone to count, and the neighbours can count it (docs/threat-model.md).
  std::vector<wire::StageReport> Reports(const Digest& round_id) const;

 private:
  struct OpenRound;
  using RoundPointer = std::shared_ptr<OpenRound>;
  struct RoundKeys;
  using KeysPointer = std::shared_ptr<const RoundKeys>;

  class Outgoing;

  Party(Options options, const signature::SecretKey& key, Journal* journal, RandomSource* random,
        const Clock* clock, Resources resources);
  absl::StatusOr<RoundPointer> Find(const Digest& round_id) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends a draft; false if there is none. What the journal has of it is left to the caller.
  bool DropDraftLocked(RoundCounter counter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<NoiseBatch> MakeNoise(OpenRound& open, const RoundKeys& keys) const;
  RoundContext MakeContext(const wire::RoundHeader& header, const Digest& round_id) const;

  const Options options_;
  const signature::SecretKey& key_;
  Journal* const journal_;
  RandomSource* const random_;
  const Clock* const clock_;
  const Resources resources_;
  const noise::Distribution noise_;

  mutable Mutex mutex_;
  std::map<RoundCounter, RoundPointer> drafts_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, RoundPointer> rounds_ ABSL_GUARDED_BY(mutex_);
};

// Thread-compatible; the round may end meanwhile.
class Party::Intake {
 public:
  ~Intake();
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // FAILED_PRECONDITION once the round has ended: nothing is opened for it any more.
  // INVALID_ARGUMENT beyond the announced end.
  absl::Status Take(BytesView piece);

 private:
  friend class Party;
  struct Work;
  Intake(const Party* party, RoundPointer open, std::unique_ptr<Work> work);
  // The keys and what they have opened; nothing any more if the round has ended. The round's end
  // takes it and drops it: the neighbour that sends the rest may take as long as it likes.
  std::unique_ptr<Work> TakeWork();

  const Party* const party_;
  const RoundPointer open_;
  Mutex mutex_;  // held while a piece is opened
  std::unique_ptr<Work> work_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_PARTY_H_
