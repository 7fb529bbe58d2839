// What must be true of every run, whatever went wrong in it. The oracles see every message as it is
// sent, before a malicious party changes it, and every disk.
//
//   value      no client gets a wrong value, or believes an older epoch than it must
//   contents   no secret has two contents: no slot two tallies, no key two submissions, no counter
//              two headers, and no stage of an honest party two inputs or two outputs; no two
//              positions of the last party share a seed; no party signs what it did not draft
//   tiling     an honest party of several machines accepts parts of a list only if no two of a try
//              overlap, and all of them together are the list
//   epochs     no party signs a round that one of its machines cannot open for lack of the epoch
//   committed  what a party sends is in its journal, after a power cut too
//   pieces     no piece of what a party sends leaves if its round ended while the piece was made,
//   and
//              what it is made of is there until then
//   kept       what was acknowledged is there while its round lives
//   ended      every round ends at every party within seconds of the chain being whole
//   erased     nothing outlives its round: no seed is left on any disk
//   ledger     a client's ledger is never below what it sent; no lookup is sent more often than it
//              may be, and none in a round that a party is known to have lost; no stage is
//              repeated more than twice
//   alive      once nothing goes wrong any more, everybody is served
#ifndef SHOAL_SRC_SIM_ORACLES_H_
#define SHOAL_SRC_SIM_ORACLES_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/client/ledger.h"
#include "src/server/journal.h"
#include "src/sim/network.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"
#include "src/wire/peer.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::sim {

struct Violation {
  std::string oracle;
  std::string what;
};

// The records of a party's journal, read without its code.
std::vector<BytesView> RecordsOf(BytesView journal);
// Whether a record is the digest of this content.
bool IsContent(BytesView record, server::Content content);

class Oracles {
 public:
  // `parties` of them.
  Oracles(const Scheduler* scheduler, uint32_t parties)
      : scheduler_(*scheduler), last_(static_cast<Address>(parties)) {}

  // Whether a party's journal would hold the bytes after a power cut now.
  std::function<bool(Address party, BytesView bytes)> is_durable;

  // The party that may do what it likes; 0: none.
  void set_malicious(Address party) { malicious_ = party; }

  void Violate(const std::string& oracle, const std::string& what);
  const std::vector<Violation>& violations() const { return violations_; }

  // A request that `from` sends, and the answer that `from` gives to a request of `to`, and whether
  // it is whole.
  void Request(Address from, Address to, const wire::Frame& request);
  void Answer(Address from, Address to, const wire::Frame& request, const Network::Answer& answer);

  // A request on its way, as a malicious party has left it.
  void Leaves(Address to, const wire::Frame& request);

  // A party has started, and its journal refuses all counters up to `highest_round`; its process
  // has ended, and what was in memory is lost.
  void Started(Address party, uint64_t highest_round);
  void Stopped(Address party);
  // A machine of the party begins to end in good order: its calls break from now on.
  void Ends(Address party);
  // A party's journal was compacted: what it had durably, and what stands durably in its place.
  void JournalReplaced(Address party, BytesView before, BytesView now);
  // Whether nothing keeps lists of live rounds from their way. Not at first.
  void set_whole(bool whole) { whole_ = whole; }
  // The frontend's clock is wrong some time in this run, so that rounds seem to have expired.
  void set_frontend_clock_jumps() { frontend_clock_jumps_ = true; }

  // The ledger of a client whose state lives.
  void CheckLedger(Address client, const client::Ledger& ledger);
  // A client begins a lookup, maybe again, which may be sent so many times in all. Clears what it
  // has fetched. `one_at_a_time`: nothing but the frontend's word that a round came to nothing is a
  // reason to send it in another one.
  void Begins(Address client, size_t lookup, uint32_t attempts, bool one_at_a_time);
  // A client has ended a lookup with an error, and may forget its round.
  void GaveUp(Address client) { asking_[client].under_way.clear(); }
  // Whether the client has got answers of the round since it began.
  bool Fetched(Address client, const Digest& round_id) const;

  // Ids of all rounds that any party has signed, with their counters.
  const std::map<Digest, uint64_t>& rounds() const { return rounds_; }
  uint64_t answered() const { return answered_.size(); }

 private:
  using Key = std::tuple<Address, std::string, std::string>;
  bool IsHonest(Address machine) const { return PartyOf(machine) != malicious_; }
  // A client's is its own.
  static Address PartyOf(Address address) {
    return address >= kFirstClient ? address : static_cast<Address>(PartyAt(address));
  }
  // None if no party has signed a round with this id.
  std::optional<uint64_t> CounterOf(const std::string& round_id) const;
  // Every content under a key must begin with, or be a beginning of, the first one.
  void OneContent(Address who, const std::string& what, const std::string& name, BytesView bytes,
                  bool may_be_cut = false);

  // The same for a part of a list of onions, of queries, or of answers to them, whichever machines
  // of the party send or accept it, and in whatever parts.
  void OneList(Address party, const std::string& what, const std::string& id,
               const wire::ListPart& part, BytesView onions);
  void OneBatch(Address party, const std::string& what, const std::string& id,
                const wire::ListPart& part, BytesView queries);
  void OneOfAnswers(Address party, const std::string& id, const wire::ListPart& part,
                    BytesView queries, BytesView answers);

  // Machine `to` of an honest party has accepted this part of a stage's list.
  void Tiles(Address to, wire::FrameType stage, const std::string& id, const wire::ListPart& part);

  // What an honest party sends on the strength of these contents must be in its journal.
  void Committed(Address party, const std::string& round_id,
                 std::initializer_list<server::Content> contents);
  void SameSeeds(const std::string& round_id, BytesView answers);
  void CountRun(wire::FrameType stage, const std::string& round_id, Address from, Address to);
  // `of`: the party that says so. `part`: of a stage that runs between several machines.
  void StageFailed(Address of, const std::string& round_id, const absl::Status& error, bool part);
  // Party 1 says which rounds live.
  void CheckLiveList(const wire::LiveRounds& list);
  // A client is about to pay for queries in a round.
  void CheckCharge(Address client, uint64_t counter);

  void SendsQueries(Address from, const wire::SubmitQueriesRequest& message);

  // An answer of `from`, of this party, to a request of `to`.
  struct Exchange {
    Address from, to, party;
    const wire::Frame& request;
    const wire::Frame& answer;
    bool cut;
    absl::Status error;  // if that is the answer
  };
  // Of these the answer may be an error.
  void OfflineEnded(const Exchange& call);
  void OnlineEnded(const Exchange& call);
  void RoundShown(const Exchange& call);
  void QueriesEnded(const Exchange& call);
  void AnswersFetched(const Exchange& call);
  // Of these it is none.
  void HeaderSigned(const Exchange& call);
  void LiveRoundsTaken(const Exchange& call);
  void RefreshSigned(const Exchange& call);
  void Refreshed(const Exchange& call);
  void OnionsTaken(const Exchange& call);

  const Scheduler& scheduler_;
  const Address last_;
  Address malicious_ = 0;
  bool whole_ = false;
  std::vector<Violation> violations_;
  std::map<Key, Bytes> contents_;
  std::map<Digest, uint64_t> rounds_;
  std::map<std::string, size_t> round_bytes_;  // of an answer with its tag
  std::set<std::string> answered_;
  // Slots of queries that a client has sent, by round, and that a machine of party 1 has accepted:
  // each numbers its own.
  std::map<Address, std::map<std::string, std::set<uint32_t>>> sent_;
  std::map<std::pair<Address, std::string>, std::set<uint32_t>> accepted_;
  struct Asking {
    size_t lookup = 0;
    uint32_t attempts = 0;
    std::set<std::string> rounds = {};  // in which it was sent, and none of which was answered
    std::set<std::string> fetched = {};
    // Rounds in which it was sent, and of which the client has not heard that they are over, and
    // since when.
    std::map<std::string, Time> under_way = {};
    bool one_at_a_time = false;
  };
  std::map<Address, Asking> asking_;
  std::map<Address, Time> started_, stopped_;
  std::map<Address, uint64_t> highest_signed_;
  // Records that were durable in a journal before it was compacted.
  std::map<Address, std::set<std::string>> compacted_;
  // When the frontend last acknowledged something of a round, and those that it must still know
  // after it was started again.
  std::map<std::string, Time> acknowledged_, to_be_known_;
  bool frontend_clock_jumps_ = false;
  // By counter: when a stage failed for another reason than the link.
  std::map<uint64_t, Time> failed_;
  // What a party holds of a round whose offline stage it has done, by party and counter.
  struct Holding {
    bool confirmed = false;  // to the frontend, by an answer to a list of live rounds
    bool lost = false;       // with the process
  };
  std::map<std::pair<Address, uint64_t>, Holding> holding_;
  std::set<std::pair<Address, Digest>> signed_refreshes_;  // by a party that another one asked
  std::map<std::pair<Address, uint64_t>, Time> signed_;    // by party and counter
  std::map<std::pair<Address, uint64_t>, wire::RoundHeader> drafts_;  // as parties sent them on
  // Of party 1's stages, by the machines between which they run.
  std::map<std::tuple<wire::FrameType, std::string, Address, Address>, int> runs_;
  // Answers that the last party gave in parts, by round, and to which position.
  std::map<std::string, std::map<std::string, uint64_t>> given_;
  // Of a try of a stage, by the receiving party, round and attempt: what was sent, whoever accepts
  // it, and what each machine has accepted from which.
  struct Try {
    std::set<std::pair<uint64_t, uint64_t>> sent;  // first record and end
    std::map<std::pair<Address, uint32_t>, std::pair<uint64_t, uint64_t>> accepted;
  };
  std::map<std::tuple<wire::FrameType, Address, std::string, uint64_t>, Try> tries_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_ORACLES_H_
