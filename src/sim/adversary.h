// One malicious party: its messages, changed, repeated, held back and made up by a strategy that
// the seed chooses. It has its own keys, and no others.
#ifndef SHOAL_SRC_SIM_ADVERSARY_H_
#define SHOAL_SRC_SIM_ADVERSARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/sim/network.h"
#include "src/sim/universe.h"

namespace shoal::sim {

class Adversary {
 public:
  enum Strategy {
    kAltersContents,   // lists, queries and answers: bytes, order, length
    kSecondContents,   // another list, or other queries, after the first one
    kReplays,          // any message that it has sent before, proposals above all
    kLiesAboutRounds,  // old lists of live rounds, rounds that others are said to lack
    kAltersHeaders,    // drafts and signed headers on their way
    kSecondHeaders,    // the frontend: two drafts for one counter
    kLiesToClients,    // the frontend: slots, states, epochs, answers
    kSameOnion,        // the same onion at two places of a list, and equal tallies for them
    kOfOneMachine,     // as many are there where all parties have one machine
    kMiscutsParts =
        kOfOneMachine,  // records withheld, or sent twice, at one machine; another length
    kOfRounds,          // as many are there for what rounds send
    // Of terms, and never beside another one: answers, tags, sizes, headers and signatures altered;
    // answers withheld, or those of an earlier refresh given again; what comes again differs
    kTampersRefreshes = kOfRounds,
    kStrategies,
  };

  // `certain`: a strategy that it has, beside one or two that the seed chooses. kTampersRefreshes
  // is alone: rounds are as they ought to be.
  Adversary(Network* network, const Scheduler* scheduler, const Universe* universe, uint32_t party,
            uint64_t seed, std::optional<Strategy> certain = std::nullopt);

  // The next party has just started.
  void NextIsUp();

  // Ends: from now on the party is honest.
  void Retire() { active_ = false; }
  Address party() const { return party_; }
  std::string Name() const;

  void Request(Address from, Address to, wire::Frame& request);
  void Answer(Address from, Address to, const wire::Frame& request, wire::Frame& answer);
  // How many parts it has cut otherwise than it has to.
  uint64_t miscut() const { return miscut_; }
  // How many messages of refreshes it has altered, withheld or repeated.
  uint64_t tampered() const { return tampered_; }
  // Whether the frontend shows clients refreshes that are none.
  bool lies_about_refreshes() const { return party_ == 1 && strategies_[kTampersRefreshes]; }
  bool replays() const { return strategies_[kReplays]; }
  bool serves_old_epochs() const { return party_ == 1 && strategies_[kLiesToClients]; }

 private:
  bool IsOurs(Address address) const;
  bool Has(Strategy strategy) { return strategies_[strategy] && rng_.Chance(rate_); }
  size_t OnionBytes() const;    // in the lists that it sends
  size_t FetchedBytes() const;  // of an answer with its tag
  void AlterBulk(Bytes& bulk, size_t item_bytes);
  void AlterBytes(std::string& bytes);
  void AlterQueries(Bytes& bulk);
  // The strategy kSameOnion.
  void RepeatOnion(const wire::Frame& honest, wire::Frame& request);
  void RepeatTally(wire::Frame& request);
  // The strategy kMiscutsParts.
  void Miscut(wire::Frame& request);
  // Sends an old message to the next party, a proposal with a list of today.
  struct Sent {
    Address from, to;
    wire::Frame frame;
  };
  void Replay(Sent old, Time delay);
  void AlterHeader(wire::RoundHeader& header);
  void AlterProposal(Address from, Address to, wire::Frame& request);
  void AnswerClient(const wire::Frame& request, wire::Frame& answer);
  // The strategy kTampersRefreshes: what goes to the next party, back to the one before, and to
  // clients.
  void TamperRefreshRequest(Address from, Address to, wire::Frame& request);
  void TamperRefreshAnswer(const wire::Frame& request, wire::Frame& answer);
  void TamperRefreshForClient(wire::Frame& answer);
  void AlterRefresh(wire::RefreshHeader& header);
  // One of the answers that were given before to such a request, if there is one.
  bool GiveEarlier(wire::Frame& answer);
  wire::SignedLiveRounds Resign(wire::LiveRounds list) const;

  Network* const network_;
  const Scheduler* const scheduler_;
  const Universe* const universe_;
  const Address party_;
  Rng rng_;
  bool active_ = true;
  bool strategies_[kStrategies] = {};
  double rate_ = 0;
  std::vector<Sent> sent_;                // to the next party
  std::vector<Sent> proposals_;           // the same, of these alone
  std::vector<wire::Frame> lists_;        // the same
  std::vector<wire::Frame> deployments_;  // given to clients
  // One onion at two places of a list, maybe in parts for two machines.
  struct Repeated {
    uint64_t positions = 0;  // of the list, or of the first part
    uint64_t from = 0;
    std::optional<uint64_t> to = std::nullopt;  // once there was a part with another onion
    Bytes onion = {};
    std::optional<uint32_t> tally = std::nullopt;  // of the one whose query was sent first
  };
  std::map<std::string, Repeated> repeated_;  // by round id
  uint64_t miscut_ = 0;
  std::map<wire::FrameType, std::vector<wire::Frame>> refreshes_;  // answers about them, as made
  uint64_t tampered_ = 0;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_ADVERSARY_H_
