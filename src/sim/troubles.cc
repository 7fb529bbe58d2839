#include "src/sim/troubles.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "src/sim/disk.h"

namespace shoal::sim {
namespace {

// A term takes some seconds to begin: where trouble is about refreshes, it lasts longer by this.
constexpr Time kTermsTakeTime = 25 * kSecond;

void Mend(Disk& disk) {
  disk.set_full(false);
  disk.set_read_only(false);
  disk.set_failing_syncs(0);
}

}  // namespace

Troubles::Troubles(const Place& place)
    : universe_(place.universe),
      options_(place.options),
      rng_(place.rng),
      scheduler_(place.scheduler),
      network_(place.network),
      oracles_(place.oracles),
      victims_(place.victims),
      journals_shrink_(place.journals_shrink) {
  for (size_t i = 0; i < universe_.parties(); ++i) machines_ += MachinesOf(i);
  PlanOfOptions();
  if (!options_.faults) {
    scheduler_.set_interruptions(options_.ends_while_closing ? 0.2 : 0);
    return;
  }
  // Each kind of trouble in some runs and not in others, so that none hides another.
  if (rng_.Chance(0.5)) PlanFaults();
  if (rng_.Chance(0.3)) PlanSeparations();
  if (rng_.Chance(0.6)) PlanCrashes();
  if (rng_.Chance(0.4)) {
    for (uint64_t i = 1 + rng_.Below(2); i > 0; --i) PlanMessageCrash(Anybody());
  }
  if (rng_.Chance(0.3)) PlanJournalCrash();
  if (rng_.Chance(0.2)) PlanRestart();
  if (rng_.Chance(0.3)) PlanDisk();
  if (rng_.Chance(0.2)) PlanClock();
  if (has_terms() || rng_.Chance(0.4)) PlanEpochs();
  if (!has_terms() && rng_.Chance(0.25)) PlanAdversary();
  if (rng_.Chance(0.2)) {
    restores_copies_ = true;
    names_.push_back("clients' states are put back from old copies");
    PlanMessageCrash(machines_ + rng_.Below(kInitialClients));
  }
  if (machines_ > universe_.parties()) PlanWithin();
}

void Troubles::PlanOfOptions() {
  ends_ = rng_.Between(6, 16) * kSecond;
  scheduler_.set_interruptions(rng_.Chance(0.5) ? 0.01 : 0);
  if (options_.ends_while_closing && MachinesOf(0) > 1) ends_while_closing_ = 2;
  // The last party sends no lists.
  if (options_.miscuts_parts) MakeMalicious(universe_.parties() - 1, Adversary::kMiscutsParts);
  if (has_terms() && (options_.faults ? rng_.Chance(0.4) : options_.tampers_refreshes)) {
    ends_ += kTermsTakeTime;
    MakeMalicious(universe_.parties(), Adversary::kTampersRefreshes);
    if (!options_.faults) PlanEpochs();
  } else if (has_terms() && options_.within_pieces) {
    ends_ += kTermsTakeTime;
    if (!options_.faults) PlanEpochs();
  }
  if (options_.within_pieces) {
    // Calls break, and tables change, at any time.
    links_fail_ = true;
    epochs_change_ = true;
    names_.push_back("things happen in the middle of pieces");
  }
}

void Troubles::MakeMalicious(uint32_t parties, std::optional<Adversary::Strategy> certain) {
  const uint64_t seed = rng_.Next();
  const uint32_t party = 1 + static_cast<uint32_t>(rng_.Below(parties));
  adversary_ =
      std::make_unique<Adversary>(&network_, &scheduler_, &universe_, party, seed, certain);
  oracles_.set_malicious(adversary_->party());
  names_.push_back(absl::StrCat("malicious: ", adversary_->Name()));
}

void Troubles::PlanFaults() {
  const double rate = rng_.Chance(0.5) ? 0.02 : 0.15;
  Network::Faults faults;
  if (rng_.Chance(0.6)) faults.lost = rate;
  if (rng_.Chance(0.6)) faults.slow = rate;
  if (rng_.Chance(0.6)) faults.repeated = 2 * rate;
  if (rng_.Chance(0.6)) faults.cut = rate;
  names_.push_back(absl::StrCat("network: lost ", faults.lost, ", slow ", faults.slow,
                                ", repeated ", faults.repeated, ", cut ", faults.cut));
  network_.faults() = faults;
  links_fail_ = true;
}

void Troubles::PlanSeparations() {
  links_fail_ = true;
  const auto parties = universe_.parties();
  for (uint64_t i = 1 + rng_.Below(2); i > 0; --i) {
    const Address a = static_cast<Address>(1 + rng_.Below(parties));
    const Address b = a == 1 && rng_.Chance(0.5)
                          ? kFirstClient + static_cast<Address>(rng_.Below(kInitialClients))
                          : a % static_cast<Address>(parties) + 1;
    const Time from = SomeTime();
    const Time until = from + rng_.Between(kSecond / 5, 10 * kSecond);
    names_.push_back(absl::StrCat(a, " and ", b, " are apart from ", from / kMillisecond, " to ",
                                  until / kMillisecond, " ms"));
    scheduler_.At(from, [this, a, b] { network_.Block(a, b); });
    scheduler_.At(until, [this, a, b] { network_.Unblock(a, b); });
  }
}

void Troubles::PlanCrashes() {
  for (uint64_t i = 1 + rng_.Below(3); i > 0; --i) {
    const size_t which = Anybody();
    const Time time = SomeTime();
    const bool power = rng_.Chance(0.4);
    // Few steps mostly: a client takes some hundred for a lookup.
    const uint64_t steps = rng_.Below(uint64_t{1} << (2 + rng_.Below(8)));
    names_.push_back(absl::StrCat("crash of ", which, power ? " (power)" : "", " ", steps,
                                  " steps after ", time / kMillisecond, " ms"));
    const bool soon = rng_.Chance(0.5);
    scheduler_.At(time,
                  [this, which, power, steps, soon] { victims_.Crash(which, steps, power, soon); });
  }
}

void Troubles::PlanMessageCrash(size_t which) {
  using wire::FrameType;
  constexpr FrameType kOfClients[] = {FrameType::kSubmitOnions, FrameType::kWaitRound,
                                      FrameType::kSubmitQueries, FrameType::kFetchAnswers};
  constexpr FrameType kOfParties[] = {FrameType::kProposeRound, FrameType::kOffline,
                                      FrameType::kOnline, FrameType::kProposeRefresh,
                                      FrameType::kRefresh};
  const size_t of_parties = std::size(kOfParties) - (has_terms() ? 0 : 2);
  MessageCrash crash;
  crash.which = which;
  const bool client = which >= machines_ || (which == 0 && rng_.Chance(0.5));
  crash.type =
      client ? kOfClients[rng_.Below(std::size(kOfClients))] : kOfParties[rng_.Below(of_parties)];
  crash.answer = rng_.Chance(0.5);
  crash.skip = rng_.Below(uint64_t{1} << rng_.Below(4));
  crash.steps = rng_.Below(uint64_t{1} << rng_.Below(8));
  crash.power = rng_.Chance(0.4);
  names_.push_back(absl::StrCat("crash of ", which, crash.power ? " (power)" : "", " ", crash.steps,
                                " steps after ", crash.answer ? "answer " : "request ",
                                crash.skip + 1, " of type ", static_cast<int>(crash.type)));
  message_crashes_.push_back(crash);
}

void Troubles::PlanJournalCrash() {
  JournalCrash crash;
  crash.which = rng_.Below(machines_);
  crash.compaction = journals_shrink_ && rng_.Chance(0.6);
  crash.skip = rng_.Below(uint64_t{1} << rng_.Below(crash.compaction ? 4 : 6));
  // A compaction and the record after it take seven steps.
  crash.steps = rng_.Below(crash.compaction ? 9 : 3);
  crash.power = rng_.Chance(0.7);
  names_.push_back(absl::StrCat(
      "crash of ", crash.which, crash.power ? " (power)" : "", " ", crash.steps, " steps after ",
      crash.compaction ? "compaction " : "write ", crash.skip + 1, " of its journal"));
  journal_crashes_.push_back(crash);
}

void Troubles::PlanRestart() {
  const size_t which = rng_.Below(universe_.parties());
  const Time time = SomeTime();
  names_.push_back(
      absl::StrCat("party ", which + 1, " is restarted at ", time / kMillisecond, " ms"));
  scheduler_.At(time, [this, which] { victims_.Restart(which); });
}

void Troubles::PlanDisk() {
  const size_t which = Anybody();
  Disk* const disk = victims_.MachineOf(which).disk;
  victims_.DiskWillFail(which);
  const Time from = SomeTime();
  const Time until = from + rng_.Between(kSecond / 5, 5 * kSecond);
  const uint64_t kind = rng_.Below(3);
  names_.push_back(absl::StrCat("disk of ", which,
                                kind == 0   ? " is full"
                                : kind == 1 ? " is read-only"
                                            : " fails to sync",
                                " from ", from / kMillisecond, " ms"));
  scheduler_.At(from, [this, disk, kind] {
    disk_fails_ = true;
    if (kind == 0) disk->set_full(true);
    if (kind == 1) disk->set_read_only(true);
    if (kind == 2) disk->set_failing_syncs(1);
  });
  // A party that goes on may end later, after some writes, and read what is there.
  JournalCrash later;
  later.which = which;
  later.skip = rng_.Below(8);
  later.steps = rng_.Below(16);
  later.power = rng_.Chance(0.5);
  later.over = which >= machines_ || rng_.Chance(0.3);
  scheduler_.At(until, [this, disk, later] {
    disk_fails_ = false;
    Mend(*disk);
    if (!later.over) journal_crashes_.push_back(later);
  });
}

void Troubles::PlanClock() {
  const size_t which = Anybody();
  Machine* const machine = &victims_.MachineOf(which);
  const Time from = SomeTime();
  victims_.ClockWillJump(which);
  constexpr Time kJumps[] = {30 * 3600, 3 * 3600, 600, 50, 5, -5, -50, -600, -3 * 3600, -30 * 3600};
  const Time jump = kJumps[rng_.Below(std::size(kJumps))] * kSecond;
  names_.push_back(absl::StrCat("clock of ", which, " jumps by ", jump / kSecond, " s at ",
                                from / kMillisecond, " ms"));
  scheduler_.At(from, [machine, jump] { machine->wall_offset = jump; });
  scheduler_.At(from + rng_.Between(kSecond, 10 * kSecond),
                [machine] { machine->wall_offset = 0; });
}

void Troubles::PlanEpochs() {
  epochs_change_ = true;
  // With a party that tampers with refreshes, or trouble within their pieces, there are some all
  // the time.
  const bool spread = has_terms() && (adversary_ != nullptr || options_.within_pieces);
  Time time = rng_.Between(kSecond / 2, spread ? 10 * kSecond : ends_);
  // The last one comes after all trouble, if there are terms.
  const uint64_t most = has_terms() ? universe_.epochs() - 1 : kEpochs;
  for (uint64_t epoch = 2; epoch <= (spread || rng_.Chance(has_terms() ? 0.9 : 0.3) ? most : 2);
       ++epoch) {
    names_.push_back(absl::StrCat("epoch ", epoch, " from ", time / kMillisecond, " ms on"));
    for (size_t machine = 0; machine < machines_; ++machine) {
      scheduler_.At(time + rng_.Between(0, 3 * kSecond),
                    [this, machine, epoch] { victims_.PutEpoch(machine, epoch); });
    }
    time += rng_.Between(spread ? 3 * kSecond : 0, spread ? 8 * kSecond : 4 * kSecond);
  }
}

void Troubles::PlanAdversary() {
  MakeMalicious(universe_.parties());
  const auto next = static_cast<size_t>(adversary_->party());
  if (adversary_->replays() && next < universe_.parties()) PlanMessageCrash(next);
  // There is more to lie about.
  if (adversary_->serves_old_epochs() && !epochs_change_) PlanEpochs();
}

void Troubles::PlanWithin() {
  if (MachinesOf(0) > 1 && rng_.Chance(0.2)) {
    ends_while_closing_ = 1;
    names_.push_back("a round ends while its queries are closed");
  }
  for (size_t party = 0; party < universe_.parties(); ++party) {
    const uint32_t machines = MachinesOf(party);
    if (machines == 1 || !rng_.Chance(0.5)) continue;
    const auto a = static_cast<uint32_t>(rng_.Below(machines));
    const uint32_t b = (a + 1 + static_cast<uint32_t>(rng_.Below(machines - 1))) % machines;
    const Time from = SomeTime();
    const std::string which = absl::StrCat("of party ", party + 1, ": from ", a, " to ", b);
    if (rng_.Chance(0.2)) {
      names_.push_back(absl::StrCat("a byte is changed within the machines ", which));
      scheduler_.At(from, [this, party, a, b] {
        if (MachineJob* const job = victims_.JobOf(party)) job->AlterNext(a, b);
      });
      continue;
    }
    // For good, or for a while; what was on its way then comes late.
    const bool for_good = rng_.Chance(0.3);
    const Time until = from + rng_.Between(kSecond / 5, 8 * kSecond);
    names_.push_back(absl::StrCat("a link is dead ", for_good ? "for good" : "for a while",
                                  " within the machines ", which));
    scheduler_.At(from, [this, party, a, b, for_good, until] {
      MachineJob* const job = victims_.JobOf(party);
      if (job == nullptr) return;
      job->Block(a, b);
      if (!for_good) scheduler_.At(until, [job, a, b] { job->Unblock(a, b); });
    });
  }
}

void Troubles::Meet(LaterCrash& crash) {
  if (crash.skip-- > 0) return;
  crash.over = true;
  victims_.Crash(crash.which, crash.steps, crash.power, /*starts_soon=*/true);
}

void Troubles::OnMessage(Address from, Address to, wire::FrameType type, bool answer) {
  for (MessageCrash& crash : message_crashes_) {
    const Address address = victims_.AddressOf(crash.which);
    if (!crash.over && crash.type == type && crash.answer == answer &&
        (address == from || address == to)) {
      Meet(crash);
    }
  }
}

void Troubles::OnJournal(size_t which, bool compaction) {
  for (JournalCrash& crash : journal_crashes_) {
    if (!crash.over && crash.which == which && crash.compaction == compaction) Meet(crash);
  }
}

void Troubles::End() {
  network_.faults() = {};
  network_.UnblockAll();
  restores_copies_ = false;
  disk_fails_ = false;
  if (adversary_ != nullptr) adversary_->Retire();
  for (size_t which = 0; which < machines_ + kInitialClients; ++which) {
    Machine& machine = victims_.MachineOf(which);
    Mend(*machine.disk);
    machine.wall_offset = 0;
  }
}

}  // namespace shoal::sim
