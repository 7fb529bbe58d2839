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
// timeout_s is over, and with slots until their round expires (retry_policy.h).
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
// Where the table's queries are for buckets of rows (two tiers, docs/protocol.md, section 11) the
// same steps carry other bytes: every submission has a piece for each half of the round, every
// query a part for each, every answer comes in two halves; all of a slot's go together in one
// request. A lookup asks for at most most_in_bucket rows of a bucket, and says of the others that
// nothing is known of them; its number of queries follows from its number of keys
// (virtual_places.h). Manifest and roster say which it is, and every round's header has to agree.
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
// queries is charged as one that was entered, also if no slot came: onions were sent. Lists of
// rounds and the deployment are the same at all machines; they come over the first connection.
//
// After an interruption at any point, the same Ask goes on with the same onions, the same rows in
// the same slots and the answers in the spool. Anything sent twice has the same bytes.
//
// What each step does is a file of its own: division.h, round_finder.h, query_submission.h and
// chain_answers.h. They share held_rounds.h (whether a round can still be used), limits.h (what
// bounds a device) and round_links.h (connections).
//
// Memory: up to 16 bytes for every query of the round (row, and padding's temporary arrays), and
// some pieces of kMaxBulkBytes for every connection and thread. Answers are in the spool; those
// of a lookup that is spread over rounds are also in memory.
#ifndef SHOAL_SRC_CLIENT_CHAIN_CLIENT_H_
#define SHOAL_SRC_CLIENT_CHAIN_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/client/answer_spool.h"
#include "src/client/chain_options.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/ledger.h"
#include "src/client/row_source.h"
#include "src/client/state.h"
#include "src/client/transport.h"

namespace shoal::client {

struct ChainCall;  // chain_call.h
class RoundLinks;  // round_links.h

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

  // The division of a lookup. FAILED_PRECONDITION if its queries are more than a round protects, or
  // take more than kMaxRoundsOfLookup rounds; the message says what to do.
  absl::StatusOr<Division> Divide(const Wanted& wanted) const;

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
  // Pads `rows`, which are distinct and of one key each, to the round's number of queries. Charged
  // even if it fails later. FAILED_PRECONDITION of CheckLimit, or of a client that asks for a term
  // if the round has none, and nothing was sent.
  absl::Status Submit(const Digest& round_id, std::span<const uint32_t> rows);
  // Fetches all answers to the submitted queries, masked and not verified. Answer i of the spool
  // belongs to row i of the round. ABORTED: the round is over, and this client has no answers of
  // it.
  absl::Status Collect(const Digest& round_id, AnswerSpool& spool);
  // The spool of a round with submitted queries.
  absl::StatusOr<std::unique_ptr<AnswerSpool>> OpenSpool(const HeldRound& held);

 private:
  ChainClient(const Deployment* deployment, ChainOptions options, Transport* transport,
              StateStore* store, Environment environment);

  ChainCall NewCall(std::optional<Digest> lookup = {});

  const Deployment* deployment_;
  const ChainOptions options_;
  StateStore* const store_;
  const Environment environment_;
  const std::unique_ptr<RoundLinks> links_;
  pir::Costs costs_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CHAIN_CLIENT_H_
