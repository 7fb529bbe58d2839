#include "src/shoald/monitoring.h"

#include <sys/statvfs.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "src/base/version.h"

namespace shoal::shoald {
namespace {

// With less, a party is not well: the next round may not fit.
constexpr uint64_t kLeastDiskBytes = 64 << 20;

// Negative once it has passed.
double DaysUntil(uint64_t time_s, const Clock& clock) {
  return (static_cast<double>(time_s) - static_cast<double>(clock.NowSeconds())) / (24 * 3600);
}

// Bytes that this process may still write; 0 if that cannot be told.
uint64_t RoomOnDisk(const std::string& directory) {
  struct statvfs disk;
  if (statvfs(directory.c_str(), &disk) != 0) return 0;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

}  // namespace

Monitoring::Monitoring(const ServerConfig& config, const roster::Roster& roster,
                       const roster::TlsIdentity& identity, const Clock& clock)
    : clock_(clock),
      roster_(roster),
      number_(config.party()),
      certificate_expires_s_(identity.expires_s()),
      metrics_(config.party(), &clock) {
  metrics_.AddGauge("shoal_build_info", "1; the version is a label", As::kItIs,
                    {{"version", cli::kVersion}}, [] { return 1; });
  WatchDisk("state", config.state_directory());
  WatchDisk("spool", config.spool_directory());
  WatchExpiry("roster", [this] { return roster_.expires_s(); });
  WatchExpiry("table", [this] { return TableExpiresS(); });
  // Peers compare its digest and not its dates, so that it is no reason for alarm.
  metrics_.AddGauge("shoal_expires_days", "Days until this expires", As::kItIs,
                    {{"what", "certificate"}},
                    [this] { return DaysUntil(certificate_expires_s_, clock_); });
}

void Monitoring::WatchDisk(const std::string& name, const std::string& directory) {
  metrics_.AddGauge("shoal_disk_free_bytes", "Room on the disk of a directory", As::kBytes,
                    {{"directory", name}},
                    [directory] { return static_cast<double>(RoomOnDisk(directory)); });
  AddCheck([name, directory] {
    return RoomOnDisk(directory) >= kLeastDiskBytes
               ? ""
               : absl::StrCat("the disk of the ", name, " directory is full");
  });
}

void Monitoring::WatchExpiry(const std::string& what, std::function<uint64_t()> expires_s) {
  metrics_.AddGauge("shoal_expires_days", "Days until this expires", As::kItIs, {{"what", what}},
                    [this, expires_s] { return DaysUntil(expires_s(), clock_); });
  AddCheck([this, what, expires_s] {
    return clock_.NowSeconds() < expires_s() ? "" : absl::StrCat("the ", what, " has expired");
  });
}

void Monitoring::Watch(const std::string& whom, const net::Server& server) {
  // Neighbours are few, and who watches their link counts as much.
  const bool clients = whom == "clients";
  const prometheus::Labels labels = {{"whom", whom}};
  metrics_.AddGauge("shoal_connections", "Open connections", clients ? As::kRequests : As::kItIs,
                    labels, [&server] { return static_cast<double>(server.connections()); });
  const As bytes = clients ? As::kBytes : As::kItIs;
  metrics_.AddCounter("shoal_received_bytes_total", "Frames received, without TLS's own bytes",
                      bytes, labels,
                      [&server] { return static_cast<double>(server.bytes_received()); });
  metrics_.AddCounter("shoal_sent_bytes_total", "Frames sent, without TLS's own bytes", bytes,
                      labels, [&server] { return static_cast<double>(server.bytes_sent()); });
}

void Monitoring::Watch(const server::Party& party, size_t limit) {
  {
    const MutexLock lock(mutex_);
    party_ = &party;
    max_rounds_ = limit;
  }
  metrics_.AddGauge("shoal_rounds_held", "Drafts and rounds that this party holds", As::kItIs, {},
                    [&party] { return static_cast<double>(party.open_rounds()); });
  metrics_.AddGauge("shoal_rounds_limit", "The most that it holds", As::kItIs, {},
                    [limit] { return static_cast<double>(limit); });
  metrics_.AddGauge("shoal_table_epoch", "The epoch of the table that is served", As::kItIs, {},
                    [&party] { return static_cast<double>(party.table()->epoch); });
  metrics_.AddGauge("shoal_roster_epoch", "The epoch of the roster", As::kItIs, {},
                    [&party] { return static_cast<double>(party.roster().epoch()); });
  AddCheck([&party, limit] {
    return party.open_rounds() < limit
               ? ""
               : absl::StrCat("holds ", limit, " rounds, and takes no more");
  });
}

void Monitoring::Watch(const server::Frontend& frontend) {
  for (int state = wire::OPEN_FOR_ONIONS; state <= wire::ABORTED; ++state) {
    const std::string name = absl::StrReplaceAll(
        absl::AsciiStrToLower(wire::RoundState_Name(static_cast<wire::RoundState>(state))),
        {{"_", " "}});
    metrics_.AddGauge("shoal_rounds", "Rounds that clients see, by their state", As::kItIs,
                      {{"state", name}}, [&frontend, state] {
                        const wire::ListRoundsResponse list = frontend.ListRounds();
                        double rounds = 0;
                        for (const wire::RoundInfo& round : list.rounds()) {
                          rounds += round.state() == state;
                        }
                        return rounds;
                      });
  }
}

void Monitoring::Watch(const server::Terms& terms) {
  metrics_.AddGauge("shoal_terms_held", "Terms that this party keeps", As::kItIs, {},
                    [&terms] { return static_cast<double>(terms.All().size()); });
}

void Monitoring::Watch(const PeerService& peers) {
  metrics_.AddGauge("shoal_heard_age_seconds",
                    "Since the frontend's last list of live rounds, or since the start",
                    As::kSeconds, {}, [&peers] { return peers.SecondsSinceHeard(); });
  AddCheck([&peers] {
    return peers.SecondsSinceHeard() <= server::kUnheardLimitS
               ? ""
               : "the frontend is not heard of: the party before does not reach this one";
  });
}

void Monitoring::Watch(const ChainStates& states) {
  const auto add = [&](uint32_t party, std::function<std::optional<int64_t>()> offset_s) {
    if (party < 1 || party > roster_.size()) return;
    metrics_.AddGauge("shoal_clock_offset_seconds",
                      "A neighbour's clock less this party's, to a second; 0 before it is known",
                      As::kItIs, {{"of", absl::StrCat(party)}},
                      [offset_s] { return static_cast<double>(offset_s().value_or(0)); });
    AddCheck([this, party, offset_s] {
      const int64_t offset = offset_s().value_or(0);
      return std::abs(offset) <= roster_.clock_tolerance_s()
                 ? ""
                 : absl::StrCat("the clock of party ", party, " differs by ", offset, " s");
    });
  };
  add(number_ - 1, [&states] { return states.previous_offset_s(); });
  add(number_ + 1, [&states] { return states.next_offset_s(); });
}

void Monitoring::Watch(const ChainWatch& chain) {
  for (uint32_t party = 2; party <= roster_.size(); ++party) {
    metrics_.AddGauge("shoal_party_answers", "1 if the party answered last, 0 if not", As::kItIs,
                      {{"of", absl::StrCat(party)}}, [&chain, party] {
                        const PartyStates parties = chain.Last().parties;
                        return party <= parties.size() && parties[party - 1].problem().empty();
                      });
  }
  const MutexLock lock(mutex_);
  chain_checks_.push_back([&chain] {
    for (const wire::PartyState& state : chain.Last().parties) {
      // Those after it are not known, because of it.
      if (!state.problem().empty()) return absl::StrCat("party ", state.party(), " is missing");
    }
    return std::string();
  });
}

void Monitoring::AddCheck(Check check) {
  const MutexLock lock(mutex_);
  checks_.push_back(std::move(check));
}

std::vector<std::string> Monitoring::FailuresOf(const std::vector<Check>& checks) {
  std::vector<std::string> failures;
  for (const Check& check : checks) {
    if (std::string problem = check(); !problem.empty()) failures.push_back(std::move(problem));
  }
  return failures;
}

std::vector<std::string> Monitoring::Problems() const {
  std::vector<Check> checks;
  {
    const MutexLock lock(mutex_);
    checks = checks_;
    checks.insert(checks.end(), chain_checks_.begin(), chain_checks_.end());
  }
  return FailuresOf(checks);
}

uint64_t Monitoring::TableExpiresS() const {
  const TableEpochs* const epochs = epochs_;
  return epochs == nullptr ? 0 : epochs->table()->manifest().content().expires_s();
}

wire::PartyState Monitoring::State() const {
  std::vector<Check> checks;
  const server::Party* party;
  wire::PartyState state;
  {
    const MutexLock lock(mutex_);
    checks = checks_;
    party = party_;
    state.set_max_rounds(static_cast<uint32_t>(max_rounds_));
  }
  state.set_party(number_);
  state.set_version(cli::kVersion);
  state.set_roster_epoch(roster_.epoch());
  if (party != nullptr) {
    state.set_table_epoch(party->table()->epoch);
    state.set_rounds(static_cast<uint32_t>(party->open_rounds()));
  }
  state.set_roster_expires_s(roster_.expires_s());
  state.set_table_expires_s(TableExpiresS());
  state.set_certificate_expires_s(certificate_expires_s_);
  state.set_unwell(!FailuresOf(checks).empty());
  return state;
}

net::Page Monitoring::PageAt(absl::string_view path) const {
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.Page()};
  }
  if (path == "/healthz") {
    const std::vector<std::string> problems = Problems();
    if (problems.empty()) return {.body = "ok\n"};
    return {.status = 503, .body = absl::StrJoin(problems, "\n") + "\n"};
  }
  return {.status = 404, .body = "there are /metrics and /healthz\n"};
}

}  // namespace shoal::shoald
