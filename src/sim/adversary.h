// One malicious party: its messages, changed, repeated, held back and made up by a strategy that
// the seed chooses. It has its own keys, and no others.
#ifndef SHOAL_SRC_SIM_ADVERSARY_H_
#define SHOAL_SRC_SIM_ADVERSARY_H_

#include <cstdint>
#include <map>
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
    kStrategies,
  };

  Adversary(Network* network, const Scheduler* scheduler, const Universe* universe, uint32_t party,
            uint64_t seed);

  // The next party has just started.
  void NextIsUp();

  // Ends: from now on the party is honest.
  void Retire() { active_ = false; }
  Address party() const { return party_; }
  std::string Name() const;

  void Request(Address from, Address to, wire::Frame& request);
  void Answer(Address from, Address to, const wire::Frame& request, wire::Frame& answer);
  bool replays() const { return strategies_[kReplays]; }
  bool serves_old_epochs() const { return party_ == 1 && strategies_[kLiesToClients]; }

 private:
  bool Has(Strategy strategy) { return strategies_[strategy] && rng_.Chance(rate_); }
  size_t OnionBytes() const;  // in the lists that it sends
  void AlterBulk(Bytes& bulk, size_t item_bytes);
  void AlterBytes(std::string& bytes);
  void AlterQueries(Bytes& bulk);
  // The strategy kSameOnion.
  void RepeatOnion(const wire::Frame& honest, wire::Frame& request);
  void RepeatTally(wire::Frame& request);
  // Sends an old message to the next party, a proposal with a list of today.
  void Replay(wire::Frame old, Time delay);
  void AlterHeader(wire::RoundHeader& header);
  void AnswerClient(const wire::Frame& request, wire::Frame& answer);
  wire::SignedLiveRounds Resign(wire::LiveRounds list) const;

  Network* const network_;
  const Scheduler* const scheduler_;
  const Universe* const universe_;
  const Address party_;
  Rng rng_;
  bool active_ = true;
  bool strategies_[kStrategies] = {};
  double rate_ = 0;
  std::vector<wire::Frame> sent_;         // to the next party
  std::vector<wire::Frame> proposals_;    // the same, of these alone
  std::vector<wire::Frame> lists_;        // the same
  std::vector<wire::Frame> deployments_;  // given to clients
  struct Repeated {
    uint32_t positions = 0, from = 0, to = 0;
  };
  std::map<std::string, Repeated> repeated_;  // by round id
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_ADVERSARY_H_
