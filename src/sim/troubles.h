// What goes wrong in a run (simulation.h), as its seed has it: on the network and at the machines
// of parties and clients, until a certain time.
#ifndef SHOAL_SRC_SIM_TROUBLES_H_
#define SHOAL_SRC_SIM_TROUBLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/sim/adversary.h"
#include "src/sim/machine_job.h"
#include "src/sim/network.h"
#include "src/sim/oracles.h"
#include "src/sim/scheduler.h"
#include "src/sim/simulation.h"
#include "src/sim/universe.h"
#include "src/wire/frame.h"

namespace shoal::sim {

// Clients that are there from the beginning. Later ones have no trouble.
inline constexpr int kInitialClients = 2;

// Whom troubles come to. Machines of parties have the first numbers, their heads before all others;
// clients have the next ones.
class Victims {
 public:
  virtual ~Victims() = default;
  virtual Address AddressOf(size_t which) const = 0;
  virtual Machine& MachineOf(size_t which) = 0;
  // Within the machines of a party, of which 0 is the first; null while they do not run.
  virtual MachineJob* JobOf(size_t party) = 0;

  // The process dies after so many steps, if it runs now.
  virtual void Crash(size_t which, uint64_t steps, bool power, bool starts_soon) = 0;
  // The processes of the party end in good order, and start again.
  virtual void Restart(size_t party) = 0;
  // The operator of this machine puts an epoch of the table there.
  virtual void PutEpoch(size_t machine, uint64_t epoch) = 0;

  // Told before the run, as it counts for all of it.
  virtual void DiskWillFail(size_t which) = 0;
  virtual void ClockWillJump(size_t which) = 0;
};

class Troubles {
 public:
  struct Place {
    const Universe& universe;
    const Options& options;
    Rng& rng;
    Scheduler& scheduler;
    Network& network;
    Oracles& oracles;
    Victims& victims;
    bool journals_shrink;  // parties compact them in this run
  };

  // Draws them all, and has the scheduler bring them about. To be called once all parties and the
  // initial clients are there.
  explicit Troubles(const Place& place);

  // A message is on its way; or a party's disk writes to its journal, or begins to compact it.
  void OnMessage(Address from, Address to, wire::FrameType type, bool answer);
  void OnJournal(size_t which, bool compaction);

  // Nothing goes wrong any more.
  void End();

  Time ends() const { return ends_; }
  Adversary* adversary() const { return adversary_.get(); }  // null: nobody is malicious
  bool links_fail() const { return links_fail_; }            // some time
  bool epochs_change() const { return epochs_change_; }      // some time
  bool disk_fails() const { return disk_fails_; }            // now
  // Clients' states are replaced by old copies when they crash.
  bool restores_copies() const { return restores_copies_; }
  // So many rounds are to end while party 1's machines close their queries.
  uint64_t ends_while_closing() const { return ends_while_closing_; }
  const std::vector<std::string>& names() const { return names_; }  // for people

 private:
  // A crash so many steps after a message, or after a write to a party's journal or the begin of a
  // compaction: within, at first.
  struct LaterCrash {
    size_t which = 0;
    uint64_t skip = 0;  // so many messages, writes or compactions
    uint64_t steps = 0;
    bool power = false;
    bool over = false;
  };
  struct JournalCrash : LaterCrash {
    bool compaction = false;
  };
  struct MessageCrash : LaterCrash {
    wire::FrameType type = {};
    bool answer = false;  // or at a request
  };

  void PlanOfOptions();
  void PlanFaults();
  void PlanSeparations();
  void PlanCrashes();
  void PlanMessageCrash(size_t which);
  void PlanJournalCrash();
  void PlanRestart();
  void PlanDisk();
  void PlanClock();
  void PlanEpochs();
  void PlanAdversary();
  // Within the parties of several machines.
  void PlanWithin();
  // A party among the first so many.
  void MakeMalicious(uint32_t parties, std::optional<Adversary::Strategy> certain = std::nullopt);
  // It comes about now, unless others of its kind are to come first.
  void Meet(LaterCrash& crash);

  bool has_terms() const { return universe_.roster().max_refreshes() > 0; }
  uint32_t MachinesOf(size_t party) const {
    return universe_.roster().party(static_cast<uint32_t>(party + 1)).machines;
  }
  Time SomeTime() { return rng_.Between(kSecond / 2, ends_); }
  size_t Anybody() { return rng_.Below(machines_ + kInitialClients); }

  const Universe& universe_;
  const Options& options_;
  Rng& rng_;
  Scheduler& scheduler_;
  Network& network_;
  Oracles& oracles_;
  Victims& victims_;
  const bool journals_shrink_;
  size_t machines_ = 0;  // of all parties
  Time ends_ = 0;
  std::unique_ptr<Adversary> adversary_;
  bool links_fail_ = false, epochs_change_ = false, disk_fails_ = false, restores_copies_ = false;
  uint64_t ends_while_closing_ = 0;
  std::vector<MessageCrash> message_crashes_;
  std::vector<JournalCrash> journal_crashes_;
  std::vector<std::string> names_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_TROUBLES_H_
