// What must be true of every run, whatever went wrong in it. The oracles see every message as it is
// sent, before a malicious party changes it, and every disk.
//
//   value      no client gets a wrong value, or believes an older epoch than it must
//   contents   no secret has two contents: no slot two tallies, no key two submissions, no counter
//              two headers, and no stage of an honest party two inputs or two outputs
//   kept       what was acknowledged is there while its round lives
//   ended      every round ends at every party within seconds of the chain being whole
//   erased     nothing outlives its round: no seed is left on any disk
//   ledger     a client's ledger is never below what it sent
//   alive      once nothing goes wrong any more, everybody is served
#ifndef SHOAL_SRC_SIM_ORACLES_H_
#define SHOAL_SRC_SIM_ORACLES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/client/ledger.h"
#include "src/sim/network.h"
#include "src/wire/frame.h"

namespace shoal::sim {

struct Violation {
  std::string oracle;
  std::string what;
};

class Oracles {
 public:
  explicit Oracles(const Scheduler* scheduler) : scheduler_(*scheduler) {}

  // The party that may do what it likes; 0: none.
  void set_malicious(Address party) { malicious_ = party; }

  void Violate(const std::string& oracle, const std::string& what);
  const std::vector<Violation>& violations() const { return violations_; }

  // A request that `from` sends, and the answer that `from` gives to a request of `to`.
  void Request(Address from, Address to, const wire::Frame& request);
  void Answer(Address from, Address to, const wire::Frame& request, const wire::Frame& answer);

  // The ledger of a client whose state lives.
  void CheckLedger(Address client, const client::Ledger& ledger);

  // Ids of all rounds that any party has signed, with their counters.
  const std::map<Digest, uint64_t>& rounds() const { return rounds_; }
  uint64_t answered() const { return answered_.size(); }

 private:
  using Key = std::tuple<Address, std::string, std::string>;
  bool IsHonest(Address party) const { return party != malicious_; }
  // Every content under a key must begin with, or be a beginning of, the first one.
  void OneContent(Address who, const std::string& what, const std::string& name, BytesView bytes,
                  bool may_be_cut = false);

  const Scheduler& scheduler_;
  Address malicious_ = 0;
  std::vector<Violation> violations_;
  std::map<Key, Bytes> contents_;
  std::map<Digest, uint64_t> rounds_;
  std::set<std::string> answered_;
  // Slots of queries that a client has sent, and that were accepted, by round.
  std::map<Address, std::map<std::string, std::set<uint32_t>>> sent_;
  std::map<std::string, std::set<uint32_t>> accepted_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_ORACLES_H_
