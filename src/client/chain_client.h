// The chain as a source of rows (row_source.h), for one device.
//
//   Obtain     a round that takes onions -> master seed, and how many onions go into each
//              submission (durable) -> submissions -> slots (durable)
//   Submit     once the round is open for queries: rows, padded, written to the state together with
//              the charge to the ledger (durable) -> slot, token, tally of every query
//   Collect    once it is answered: all answers, whatever they hold, into a spool (answer_spool.h)
//   Erase      the round's secrets, slots, rows and answers wiped
//
// When and how often a client submits depends on times, counts and the rounds' states, never on an
// answer: a client does not ask again after a bad answer. Only when a round is over without its
// answers (aborted for everybody, closed before the queries were in or the answers fetched, never
// answered in its time) does it ask for the rows in another round. It sends them at most
// `max_attempts` times, and each time is charged; rounds that ended before it sent anything count
// apart (kMaxLostRounds). Both counts are in the state, under a digest of the lookup's keys, and so
// hold over all runs of the program and all epochs of the table, and whatever the device's clock
// does: they are forgotten by the time that all parties have signed (State::signed_s).
//
// While the frontend does not answer, a client waits: for a round that takes onions until
// timeout_s is over, and with slots until their round expires (patience.h).
//
// A round protects up to phi queries of one client together (the roster's noise). A lookup with
// more, padding included, is refused before anything is sent, or is spread over rounds, or goes
// into one round if the caller accepts that (BeyondPhi). Where phi is 1 the deployment protects
// single lookups alone, and lookups of several queries go into one round.
//
// Over rounds, rows and padding go in a uniformly random order, which is drawn once for the list,
// from a seed that is durable before anything is sent, and cut into the rounds' shares. So another
// key in place of one changes one query of one round, whichever that is. In an order that depends
// on the rows (rising, say) it could move a row of every round, and each round would be another
// change (docs/privacy.md). An attempt that comes to nothing is repeated with the same share.
//
// A client that finds no round of its epoch of the table, but rounds of another one, asks whether a
// newer epoch is served. If so, Ask ends with NewEpochError (deployment.h), and goes on under the
// new epoch after Follow: a lookup that was spread over rounds begins again with its first part.
// live_deployment.h does both. A round in which the client holds slots ends under the epoch that it
// began with. All of this depends on the rounds that the frontend shows.
//
// Where the frontend has several machines, a client draws one of them for each round, and stores it
// before it sends anything: all requests of the round go there, also after a restart. While that
// machine does not answer, the client asks another one whether the round lives. It waits until the
// round is over, or no longer takes what the client has to send. A round that was lost before the
// queries is charged as one with slots alone, also if no slot came: onions were sent. Lists of
// rounds and the deployment are the same at all machines; they come over the first connection.
//
// After an interruption at any point, the same Ask goes on with the same onions, the same rows in
// the same slots and the answers in the spool. Anything sent twice has the same bytes.
//
// Memory: up to 16 bytes for every query of the round (row, and padding's temporary arrays), and
// some pieces of kMaxBulkBytes for every connection and thread. Answers are in the spool; those
// of a lookup that is spread over rounds are also in memory.
#ifndef SHOAL_SRC_CLIENT_CHAIN_CLIENT_H_
#define SHOAL_SRC_CLIENT_CHAIN_CLIENT_H_

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
#include "src/base/bytes.h"
#include "src/client/answer_spool.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/exchange.h"
#include "src/client/ledger.h"
#include "src/client/patience.h"
#include "src/client/row_source.h"
#include "src/client/rows.h"
#include "src/client/state.h"
#include "src/client/transport.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"

namespace shoal::client {

inline constexpr uint32_t kDefaultPadTo = 64;
inline constexpr uint32_t kMaxAttempts = 10;
// The most rounds that a lookup may lose before it has sent anything in them. Each costs delta.
inline constexpr uint32_t kMaxLostRounds = 10;
inline constexpr uint32_t kDefaultConnections = 4;
inline constexpr uint32_t kMaxClientConnections = 64;

// What becomes of a lookup whose queries, padding included, are more than a round protects
// together.
enum class BeyondPhi {
  kRefuse,      // nothing is sent (unless phi is 1, which protects no two queries together)
  kOverRounds,  // phi queries at most in each round
  kAcceptMore,  // all in one round
};

// The most rounds of one lookup. Their entries must fit the state.
inline constexpr uint32_t kMaxRoundsOfLookup = 1024;

// How a lookup's queries are divided over rounds. Depends on the padded number of queries alone.
struct Division {
  uint32_t queries = 0;
  // In every round but the last, which has the rest.
  uint32_t in_each = 1;

  uint32_t rounds() const { return (queries + in_each - 1) / in_each; }
  uint32_t InRound(uint32_t number) const {
    return number + 1 < rounds() ? in_each : queries - number * in_each;
  }
};

// What an interruption would leave behind, for people.
struct UnderWay {
  uint64_t round_counter = 0;
  // Whether the queries are charged. Before, the client has only slots.
  bool charged = false;
  // When the round takes no more queries, at the latest, or expires.
  uint64_t until_s = 0;
};

// What a device keeps of a round in which it has enrolled in a term: the rows that it asked for,
// padding included, their slots, and what is left of their seeds.
struct Enrolled {
  const wire::SignedHeader& header;
  std::span<const uint32_t> rows;
  std::span<const uint32_t> slots;  // of the rows
  // The term seeds of all parties for a slot, party 1's first, slot after slot: 32 bytes each.
  BytesView seeds;
};

// For a device that asks once for a term (watch.h).
struct TermOptions {
  // The most submissions to rounds with a term at a time, attempts included: those whose terms
  // would still last. 1 to State::kMaxEnrolments.
  uint32_t max_enrolments = 3;
  // Stores what the term needs, durably: called when all answers of the round are there, and before
  // Ask returns them.
  std::function<absl::Status(const Enrolled&)> enrolled;
};

struct ChainOptions {
  uint32_t pad_to = kDefaultPadTo;
  uint32_t max_attempts = 3;
  // How long to wait for a round that takes onions, and how long to wait past a round's own times.
  uint32_t timeout_s = 600;
  // Connections at a time, for steps of several requests. How many are used depends only on the
  // number of queries.
  uint32_t connections = kDefaultConnections;
  // Bytes of arrays in one request or response; of a round's onions, when they are cut.
  size_t piece_bytes = kMaxBulkBytes;
  BeyondPhi beyond_phi = BeyondPhi::kRefuse;
  // The most that everything in the ledger may reveal together: no submission takes its epsilon
  // above this, at the deployment's delta, (1 + idle rounds)-fold (Ledger::Grown). No limit if it
  // is not set.
  std::optional<double> max_epsilon = {};
  // If set, only rounds with a term are entered, and a lookup goes into one of them. Otherwise
  // rounds without, of which parties keep nothing; after a minute without one, any. Slots that are
  // held already are used by the same rule, and a round that was charged for one kind of lookup is
  // not gone on with by the other.
  std::optional<TermOptions> term = {};
  // Ask calls it before anything is sent.
  std::function<void(const Division&)> announce = {};
  // Ask calls it whenever that changes; with nothing, if nothing is under way.
  std::function<void(const std::optional<UnderWay>&)> under_way = {};
  // Whether to wait while the frontend does not answer. If not, requests are made six times.
  bool waits = true;
};

// Thread-compatible. Calls block.
class ChainClient final : public RowSource {
 public:
  ~ChainClient() override;

  // INVALID_ARGUMENT for options out of range. The pointers, and those in `environment`, must
  // outlive the client.
  static absl::StatusOr<std::unique_ptr<ChainClient>> Create(const Deployment* deployment,
                                                             ChainOptions options,
                                                             Transport* transport,
                                                             StateStore* store,
                                                             Environment environment);

  // Does nothing: Ask obtains slots itself.
  absl::Status Prepare() override { return absl::OkStatus(); }

  // The division of a lookup of so many distinct rows. FAILED_PRECONDITION if they are more than a
  // round protects, or take more than kMaxRoundsOfLookup rounds; the message says what to do.
  absl::StatusOr<Division> Divide(size_t distinct_rows) const;

  // The ledger as it will be once these rounds have taken so many more queries. Slots that are held
  // and not needed for them count as lost.
  Ledger LedgerWith(uint64_t queries, const Division& division) const;
  // FAILED_PRECONDITION if max_epsilon does not allow so many more queries.
  absl::Status CheckLimit(uint64_t queries, const Division& division) const;

  // FAILED_PRECONDITION of Divide and of CheckLimit, and nothing was sent; ABORTED when no attempts
  // are left, after an earlier call of the same lookup too; NewEpochError; UNAVAILABLE when the
  // frontend did not answer until the end of the round; DEADLINE_EXCEEDED: no round took onions;
  // RESOURCE_EXHAUSTED: a full disk. The same call after a crash or an error goes on where it
  // stopped, with the same bytes, as long as the round lives.
  absl::StatusOr<std::unique_ptr<RowAnswers>> Ask(const Wanted& wanted) override;

  // Asks in this deployment from now on, which is a later one of the same parties and must outlive
  // the client. Slots in rounds of the earlier one are given up at the next Ask.
  void Follow(const Deployment* deployment);

  const ChainOptions& options() const { return options_; }

  void HangUp() override;
  pir::Costs costs() const override { return costs_; }
  Traffic traffic() const override;

  // Obtains `slots` slots ahead of time, in a round that this client is not in yet. Returns its id.
  // FAILED_PRECONDITION if they are more than a round protects together, unless that is accepted,
  // or if max_epsilon does not allow a round without queries; ABORTED after kMaxLostRounds that
  // were lost. Else errors as Ask.
  absl::StatusOr<Digest> ObtainAhead(uint32_t slots);

  // The steps of Ask, for tests and for programs that time the steps themselves. Obtain returns a
  // round of this deployment with `queries` slots that carry no rows yet, with a term if that is
  // what the client asks for, whoever took the slots and when. ABORTED: a round was lost
  // while slots were obtained in it, and another one may do.
  absl::StatusOr<Digest> Obtain(uint32_t queries);
  // Pads `rows`, which are distinct, to the round's number of queries. Charged even if it fails
  // later. FAILED_PRECONDITION of CheckLimit, or of a client that asks for a term if the round has
  // none, and nothing was sent.
  absl::Status Submit(const Digest& round_id, std::span<const uint32_t> rows);
  // Fetches all answers to the submitted queries, masked and not verified. Answer i of the spool
  // belongs to row i of the round. ABORTED: the round is over, and this client has no answers of
  // it.
  absl::Status Collect(const Digest& round_id, AnswerSpool& spool);
  // The spool of a round with submitted queries.
  absl::StatusOr<std::unique_ptr<AnswerSpool>> OpenSpool(const HeldRound& held);

 private:
  // The answers of one round, and of several.
  class Answers;
  class AnswersOfRounds;
  // The way to a machine of the frontend.
  struct Way;
  // What one round carries of a lookup.
  struct Portion {
    // Rising. Of a lookup that is spread over rounds, `queries` of its rows and of its padding.
    std::span<const uint32_t> rows;
    uint32_t queries = 0;              // the number of `rows`, and padding
    std::span<const uint32_t> lookup;  // all rows of the lookup, rising
    uint32_t number = 0;
    uint32_t parts = 1;
  };

  ChainClient(const Deployment* deployment, ChainOptions options, Transport* transport,
              StateStore* store, Environment environment);
  uint32_t machines() const { return deployment_->roster().party(1).machines; }

  absl::StatusOr<round::Round> VerifyRound(const wire::SignedHeader& header) const;
  absl::StatusOr<HeldRound*> FindHeld(const Digest& round_id);
  // `refusal`: why the round takes no more, in the frontend's words.
  absl::StatusOr<bool> TryObtain(const wire::RoundInfo& info, uint32_t slots, Digest& round_id,
                                 std::string& refusal);
  absl::StatusOr<Digest> ObtainNew(uint32_t slots, bool only_new_rounds);
  // Stores a master seed, if the round is new, and how the onions up to number `slots` are cut.
  absl::StatusOr<HeldRound*> PrepareOnions(const round::Round& round,
                                           const wire::SignedHeader& header, uint32_t slots);
  absl::Status DropUnusable();
  // Takes the signed time from the rounds that are listed.
  absl::Status LearnTime();
  // CheckAttempts and CheckEnrolments, with the signed time learnt anew before either is final.
  absl::Status CheckCaps(const absl::Status& last);
  Digest WantedDigest(const HeldRound& held, const Portion& part) const;
  // Whether queries for exactly this part, of a lookup of this kind, are already charged in `held`.
  bool IsFor(const HeldRound& held, const Portion& part) const;
  // A round of which that is true.
  std::optional<Digest> FindBegun(const Portion& part);
  // When a term that this round begins may last until: what its enrolment is remembered for.
  uint64_t EnrolmentLasts(const wire::RoundHeader& header) const;
  // Whether slots that are held in the round may take queries of this client, which has waited for
  // a round since `begun_s`: the rule of TermSuits, for slots that were taken earlier.
  bool Suits(const HeldRound& held, uint64_t begun_s) const;
  // A round with as many slots that suit and carry no rows yet.
  absl::StatusOr<std::optional<Digest>> FindUnused(uint32_t queries, uint64_t begun_s);
  // The digest by which the state knows how a lookup of these rows is spread over rounds.
  Digest SpreadDigest(const Division& division, std::span<const uint32_t> rows) const;
  // The rows and their padding in the secret order in which they go to the rounds: durable.
  absl::StatusOr<std::vector<uint32_t>> Spread(const Division& division,
                                               std::span<const uint32_t> rows);
  // `spread`: the rows, or Spread's, each round's made rising.
  static std::vector<Portion> PartsOf(const Division& division, std::span<const uint32_t> rows,
                                      std::span<uint32_t> spread);
  absl::StatusOr<std::unique_ptr<Answers>> AskPart(const Portion& part);
  absl::Status SubmitPart(const Digest& round_id, const Portion& part);
  // NewEpochError if the frontend serves a newer epoch of the table or the roster.
  absl::Status CheckEpoch();
  absl::StatusOr<std::unique_ptr<RowAnswers>> AskOn(const Wanted& wanted);
  // FAILED_PRECONDITION if as many enrolments last as there may be.
  absl::Status CheckEnrolments() const;
  // Hands out what the term of an answered round needs.
  absl::Status TellEnrolled(const HeldRound& held, const round::Round& round) const;
  // ABORTED, which names `last`, if the lookup has no attempts left.
  absl::Status CheckAttempts(const absl::Status& last);
  // What a lookup's day is counted from. The signed time alone may be old: perhaps no header was
  // verified since the last lookup. A device's clock that is ahead makes the day longer.
  uint64_t TimeOfAttempt() const;
  // The lookup's entry in the state, which the next save stores; null outside of Ask.
  TriedLookup* Tried();
  absl::Status GiveUp(HeldRound& held);
  // Gives up a round in which no queries were sent, and counts it for the lookup.
  absl::Status Lose(HeldRound& held);
  // Gives up a round that is over, or counts it as lost if nothing was sent in it. ABORTED, so that
  // Ask goes on in another one; `why` is the end of a sentence whose subject is the round.
  absl::Status Leave(HeldRound& held, absl::string_view why);
  // As VerifyRound, for a round that was valid before; errors of Leave.
  absl::StatusOr<round::Round> VerifyHeld(HeldRound& held);
  // What to return after a request to the round has failed: as Leave if the round is over. Gives
  // the round up, unless the same bytes can still be sent later.
  absl::Status AfterFailure(HeldRound& held, const absl::Status& failed);
  // The way to the machine of a round; null if that has none. `other` takes the next one in its
  // place. INVALID_ARGUMENT if the roster has no such address.
  absl::StatusOr<Way*> WayOf(const HeldRound& held, uint32_t other = 0);
  absl::StatusOr<wire::RoundState> StateOf(HeldRound& held);
  absl::StatusOr<wire::RoundState> WaitFor(HeldRound& held, wire::RoundState state,
                                           uint64_t deadline_s);
  // Makes a call of the round, again while its machine does not answer and the round lives.
  // `obtains`: the call sends onions.
  template <typename Call>
  auto AtMachine(HeldRound& held, const Call& call, bool obtains = false) -> decltype(call());
  // What to do when the machine of a round did not answer, with `silence`: OK once it may be asked
  // again, `silence` if the client does not wait. Errors of Leave.
  absl::Status AfterSilence(HeldRound& held, const absl::Status& silence, bool obtains);
  // Waits from now on until the round expires, or for a round until `deadline_s`.
  void WaitForRound(const HeldRound& held);
  void WaitForAnyRound(uint64_t deadline_s);
  // Tells ChainOptions::under_way about the round; null: nothing is under way.
  void Show(const HeldRound* held) const;
  uint32_t Padded(size_t rows) const {
    return PaddedCount(rows, options_.pad_to, deployment_->manifest().rows());
  }

  // Calls work(exchange, first, count) over [0, total) in pieces, over several connections to the
  // round's machine if there are several pieces. Begins no more pieces after an error.
  absl::Status ForPieces(
      const HeldRound& held, size_t total, size_t piece,
      const std::function<absl::Status(Exchange&, size_t first, size_t count)>& work);

  const Deployment* deployment_;
  const ChainOptions options_;
  StateStore* const store_;
  const Environment environment_;
  Transport* const transport_;
  Patience patience_;
  Exchange exchange_;
  Connections connections_;
  std::map<uint32_t, std::unique_ptr<Way>> ways_;  // by machine; made when needed
  Traffic past_;                                   // of ways of earlier rosters
  std::unique_ptr<ThreadPool> lanes_;  // a thread for each connection but one; made when needed
  pir::Costs costs_;
  std::optional<Digest> lookup_;  // Wanted::lookup of the present Ask
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CHAIN_CLIENT_H_
