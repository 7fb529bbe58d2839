// The terms of one party: rounds whose positions are answered again at new epochs of the table
// (docs/threat-model.md, "Terms"; docs/protocol.md, "Refreshes").
//
//   term-COUNTER          0600: the record (term.proto), with the keys. Written last, erased first.
//   term-COUNTER.data     0600: the arrays (terms.cc, sealed_file.h)
//   term-COUNTER.refresh  0600: at party 1, the last refresh that all have signed
//
//   propose   party 1 --- header ---> 2 --- header ---> ... ---> party m
//             party 1 <--- one more signature at every hop ----- party m
//   refresh   party 1 --- signed header --> 2 -----> ... ------> party m
//             party 1 <-- answers, tags --- 2 <-- answers, tags - party m
//
// What a term needs is on disk (a record of keys, and arrays in a sealed file) from before the
// first answers of its round leave the party until the term ends. Between refreshes nothing of it
// is in memory but its record. The journal has, for each term, the highest number and epoch that
// were signed and the digests of the last refresh's input and output; but a party whose disk was
// set back gives nothing away either, as masks are a function of the party's complete input.
//
// For parties of one machine. Thread-safe: refreshes of different terms run at the same time. A
// call for a refresh that is repeated takes the place of the earlier one, whose source then fails.
#ifndef SHOAL_SRC_SERVER_TERMS_H_
#define SHOAL_SRC_SERVER_TERMS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/tagged.h"
#include "src/parallel/mutex.h"
#include "src/roster/roster.h"
#include "src/round/refresh.h"
#include "src/server/journal.h"
#include "src/server/online.h"
#include "src/server/round_context.h"
#include "src/server/table_epoch.h"
#include "src/sharing/sharing.h"
#include "src/wire/client.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::server {

class TermRecord;

// The most terms at a time: each costs disk.
inline constexpr size_t kMaxTerms = 64;

// Where a term's arrays are in its data file:
//   seeds  32 bytes for every used position: its term seed, zeros if the position is dead
//   back    4 bytes for every query that was forwarded, in the order of the message: the number of
//           the used position that it came from, or one above all of these if it was noise
//   rows    at the backend, 4 bytes for every used position: the row
//   slots   at party 1, a bit for every position: whether it was used
// All numbers are little endian.
struct TermArrays {
  uint64_t positions = 0, forwarded = 0, slots = 0;
  bool backend = false, frontend = false;

  uint64_t seeds_at(uint64_t i) const { return 32 * i; }
  uint64_t back_at(uint64_t i) const { return 32 * positions + 4 * i; }
  uint64_t rows_at(uint64_t i) const { return back_at(forwarded) + 4 * i; }
  uint64_t slots_at() const { return rows_at(backend ? positions : 0); }
  uint64_t slots_bytes() const { return frontend ? (slots + 7) / 8 : 0; }
  uint64_t bytes() const { return slots_at() + slots_bytes(); }
  // Of the data file, which is sealed in chunks.
  uint64_t file_bytes() const;
  // Of the memory that a refresh's answers take at a party that has a next one, if no position is
  // dead.
  uint64_t list_bytes(size_t tagged_bytes) const;
};

// An error of the storage, which NOT_FOUND is not to be: all parties end a term that one of them
// does not find.
inline absl::Status NoEndOfTheTerm(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::UnavailableError(status.message()) : status;
}

// What a round leaves for its term, once the party has its queries. Views; nothing is kept.
struct TermMaterial {
  const wire::RoundHeader& header;
  const Digest& round_id;
  const LastingSecrets& secrets;
  const OnlineMaterial& material;
  const wire::QueryBatch& queries;
  const Forwarding* forwarding;  // null at the backend
  const TableEpoch& table;       // the round's
};

// The answers of a refresh for the previous party, or for party 1's clients. Reading gives
// FAILED_PRECONDITION once the term has ended or the refresh came again.
class RefreshAnswers : public ByteSource {
 public:
  // Of this party and of all after it, in order.
  virtual const std::vector<round::RefreshTag>& tags() const = 0;
};

class Terms {
 public:
  struct Options {
    PartyNumber number;
    roster::Roster roster;
    std::string directory;  // made if it is missing (0700)
    // The party's newest epoch of the table.
    std::function<std::shared_ptr<const TableEpoch>()> table;
    // Told of terms that end, and why; may be empty. Must not call the terms.
    std::function<void(RoundCounter round, absl::string_view why)> ended = nullptr;
    // Told of what a refresh has cost this party. May be empty.
    std::function<void(const wire::StageReport& report)> stage_done = nullptr;
  };

  // Takes up the terms that an earlier process left in the directory, and erases there those of
  // other rosters, those of version 0.2, those that have expired, and those that were not yet
  // complete. The pointers must outlive the object. Errors of the file system.
  static absl::StatusOr<std::unique_ptr<Terms>> Open(Options options,
                                                     const signature::SecretKey* key,
                                                     Journal* journal, RandomSource* random,
                                                     const Clock* clock, Resources resources);
  ~Terms();

  // Whether a round with a term may begin. RESOURCE_EXHAUSTED when there are kMaxTerms.
  absl::Status CheckRoom() const;

  // Stores the term of a round: durable when the call returns, which has to be before the first of
  // the party's answers leaves. OK at once if it is stored already. Errors of the file system.
  absl::Status Keep(const TermMaterial& material);

  // Signs a refresh, for ever this one of the number and of the epoch. `later` is the sum of the
  // signatures of the parties after this one; none at the backend. Returns the sum with this
  // party's. NOT_FOUND: no such term here. INVALID_ARGUMENT: not a refresh of this term.
  // FAILED_PRECONDITION: the table of the refresh is not this party's newest, has other rows, sizes
  // or places of keys than the round's, or is not newer than what was signed before; or another
  // header was signed for the number or epoch; or the term has expired.
  absl::StatusOr<signature::Signature> Sign(const wire::RefreshHeader& header,
                                            const std::optional<signature::Signature>& later);
  // The checks of Sign alone: a party makes them before it asks the next one.
  absl::Status CheckProposal(const wire::RefreshHeader& header) const;

  // At the backend: the answers of a refresh. NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION as
  // Sign; UNAUTHENTICATED unless all have signed it; FAILED_PRECONDITION unless it is the one that
  // this party has signed last.
  absl::StatusOr<std::unique_ptr<RefreshAnswers>> Answer(const wire::SignedRefreshHeader& refresh);

  // At the others: the checks of Answer, before the next party is asked.
  absl::Status CheckRefresh(const wire::SignedRefreshHeader& refresh) const;
  // The bytes that the next party answers with. NOT_FOUND.
  absl::StatusOr<uint64_t> AnswerBytesFromNext(const Digest& round_id) const;
  // Takes all answers of the next party and returns those for the previous one. Errors as Answer;
  // INVALID_ARGUMENT for a wrong number of bytes or tags; those of the source.
  absl::StatusOr<std::unique_ptr<RefreshAnswers>> Return(
      const wire::SignedRefreshHeader& refresh, ByteSource& answers,
      std::span<const round::RefreshTag> later_tags);

  // What the latest refresh that this process has given to its last byte has cost this party; none
  // before the first, and none if there is no such term. Times as src/wire/visible.h says.
  std::optional<wire::StageReport> Report(const Digest& round_id) const;

  // Erases every term that the frontend's list, which has been checked, says has ended: neither its
  // round nor its term is named.
  void TakeLive(const wire::LiveRounds& list);
  // Erases one. OK if there is none.
  void End(const Digest& round_id, absl::string_view why);
  // Erases those that have expired, by the wall clock or by the time that has passed since this
  // process took the term up.
  void EndExpired();

  // --- for party 1's frontend

  // The terms, oldest first.
  struct Known {
    Digest round_id;
    wire::RoundHeader header;
    uint64_t positions = 0;  // that are answered in a refresh
    // Signed by all, the last one that StoreRefresh has kept.
    std::optional<wire::SignedRefreshHeader> refresh;
  };
  std::vector<Known> All() const;
  absl::StatusOr<Known> Find(const Digest& round_id) const;
  // Keeps a refresh that all have signed, so that it can be run again after a restart.
  absl::Status StoreRefresh(const wire::SignedRefreshHeader& refresh);
  // The places of slots among the answers of a refresh. INVALID_ARGUMENT if a slot was not used.
  // PERMISSION_DENIED unless each token is its slot's: block 0 of its term seed, under the masks id
  // of party 1's tag (docs/protocol.md). Reads the disk.
  absl::StatusOr<std::vector<uint64_t>> Places(const wire::RefreshHeader& refresh,
                                               const round::RefreshTag& tag,
                                               std::span<const uint32_t> slots,
                                               std::span<const sharing::Token> tokens) const;

 private:
  struct Term;
  class Outgoing;
  class FromTable;
  class FromNext;
  using TermPointer = std::shared_ptr<Term>;

  Terms(Options options, const signature::SecretKey* key, Journal* journal, RandomSource* random,
        const Clock* clock, Resources resources);
  absl::Status Load();
  absl::StatusOr<TermPointer> FindTerm(absl::string_view round_id) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A term as its record says.
  absl::StatusOr<TermPointer> Take(const TermRecord& record, uint64_t counter) const;
  // The checks of Answer.
  absl::StatusOr<TermPointer> CheckSigned(const wire::SignedRefreshHeader& refresh) const;
  // This party's tag, and those after it. `input`: what it is about to mask.
  std::vector<round::RefreshTag> TagsOf(const Term& term, const wire::RefreshHeader& header,
                                        const Digest& input,
                                        std::span<const round::RefreshTag> later) const;
  // Makes sources of earlier refreshes fail. Returns the number of this one among all of the
  // process.
  absl::StatusOr<uint64_t> BeginRefresh(Term& term) const;
  static Known KnownOf(const Term& term);
  absl::Status CheckTimes(const Term& term) const;
  void Erase(const TermPointer& term, absl::string_view why);
  void EndThose(const std::function<absl::string_view(const Term&)>& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::string Path(uint64_t counter, absl::string_view suffix) const;
  absl::StatusOr<std::shared_ptr<const TableEpoch>> TableOf(
      const Term& term, const wire::RefreshHeader& header) const;
  // Digest of the backend's rows and signatures, computed once for an epoch.
  Digest TableContent(const std::shared_ptr<const TableEpoch>& table) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const signature::SecretKey* const key_;
  Journal* const journal_;
  RandomSource* const random_;
  const Clock* const clock_;
  const Resources resources_;

  mutable Mutex mutex_;
  std::map<Digest, TermPointer> terms_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<const TableEpoch> digested_ ABSL_GUARDED_BY(mutex_);
  Digest content_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_TERMS_H_
