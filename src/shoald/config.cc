#include "src/shoald/config.h"

#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/machines/machines.h"
#include "src/net/share_config.h"
#include "src/storage/memory.h"
#include "src/wire/text.h"

namespace shoal::shoald {
namespace {

// Of machines_progress_limit_s. Signs of life may be late (machines::Machines checks the least);
// and a round has minutes, which one that waits for a dead machine is not to take from others.
constexpr uint64_t kLeastProgressLimitS = 3 * machines::Machines::kSignPeriodS;
constexpr uint64_t kMostProgressLimitS = 600;

template <typename T>
T Or(T value, T fallback) {
  return value == 0 ? fallback : value;
}

}  // namespace

void FillDefaults(ServerConfig& config) {
  if (config.spool_directory().empty()) config.set_spool_directory(config.state_directory());
  if (config.spool_memory_mib() == 0) config.set_spool_memory_mib(MachineMemory() / 4 >> 20);
  config.set_max_connections(Or(config.max_connections(), 4096u));
  config.set_stage_limit_s(Or(config.stage_limit_s(), 3600u));
  config.set_machines_progress_limit_s(
      Or(config.machines_progress_limit_s(),
         static_cast<uint32_t>(machines::Machines::Options().progress_limit_s)));
  HeavyWork& heavy = *config.mutable_heavy_work();
  heavy.set_seconds_per_hour(Or(heavy.seconds_per_hour(), 60u));
  for (const auto& [shares, percent, slots] :
       {std::tuple(config.mutable_shares(), 10u, 25u),
        std::tuple(config.mutable_group_shares(), 50u, 100u)}) {
    net::FillShares(percent, *shares);
    shares->set_slots(Or(shares->slots(), slots));
  }
  if (config.shared_addresses().empty()) {
    config.add_shared_addresses("127.0.0.0/8");
    config.add_shared_addresses("::1");
  }
  if (config.has_monitoring() && config.monitoring().host().empty()) {
    config.mutable_monitoring()->set_host("127.0.0.1");
  }
}

absl::StatusOr<ServerConfig> ReadServerConfig(const std::string& path) {
  ServerConfig config;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, config));
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
  };
  const auto checked = [&](const absl::Status& status) {
    return status.ok() ? status : bad(status.message());
  };
  if (config.party() == 0) return bad("party is missing (1 is the frontend)");
  const std::filesystem::path base = std::filesystem::absolute(path).parent_path();
  const auto required = [&](absl::string_view name, std::string* value) {
    if (value->empty()) return bad(absl::StrCat(name, " is missing"));
    *value = (base / *value).lexically_normal().string();
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(required("keys_directory", config.mutable_keys_directory()));
  SHOAL_RETURN_IF_ERROR(required("roster_file", config.mutable_roster_file()));
  SHOAL_RETURN_IF_ERROR(required("pinned_parties_file", config.mutable_pinned_parties_file()));
  SHOAL_RETURN_IF_ERROR(required("table_directory", config.mutable_table_directory()));
  SHOAL_RETURN_IF_ERROR(required("state_directory", config.mutable_state_directory()));
  if (config.party() != 1 && config.has_rounds()) return bad("rounds are party 1's alone");
  if (config.rounds().has_terms() && config.rounds().terms().refreshes() == 0) {
    return bad("rounds.terms.refreshes is missing");
  }
  if (config.threads() > 1024) return bad("threads: at most 1024");
  if (config.max_connections() > 1'000'000) return bad("max_connections: at most 1000000");
  if (config.stage_limit_s() > 86'400) return bad("stage_limit_s: at most 86400");
  if (config.spool_memory_mib() > uint64_t{1} << 24) return bad("spool_memory_mib: at most 2^24");
  HeavyWork& heavy = *config.mutable_heavy_work();
  if (heavy.threads() > 1024) return bad("heavy_work.threads: at most 1024");
  if (heavy.seconds_per_hour() > 3600) return bad("heavy_work.seconds_per_hour: at most 3600");
  FillDefaults(config);
  config.set_spool_directory((base / config.spool_directory()).lexically_normal().string());
  if (const uint64_t limit_s = config.machines_progress_limit_s();
      limit_s < kLeastProgressLimitS || limit_s > kMostProgressLimitS) {
    return bad(absl::StrCat("machines_progress_limit_s: ", kLeastProgressLimitS, " to ",
                            kMostProgressLimitS));
  }
  if (config.has_monitoring()) {
    const MonitoringConfig& monitoring = config.monitoring();
    if (monitoring.port() == 0 || monitoring.port() > 65'535) {
      return bad("monitoring.port: 1 to 65535");
    }
  }
  for (const auto& [field, shares] :
       {std::pair("shares", &config.shares()), std::pair("group_shares", &config.group_shares())}) {
    SHOAL_RETURN_IF_ERROR(checked(net::CheckShares(field, *shares)));
    SHOAL_RETURN_IF_ERROR(checked(net::CheckPercent(field, {shares->slots()})));
  }
  const absl::Status ranges =
      AddressRanges::Of({config.shared_addresses().begin(), config.shared_addresses().end()})
          .status();
  if (!ranges.ok()) return bad(absl::StrCat("shared_addresses: ", ranges.message()));
  return config;
}

server::RoundPlan PlanFrom(const ServerConfig& config, const roster::Roster& roster) {
  const Rounds& rounds = config.rounds();
  server::RoundPlan plan;
  plan.open_ahead = Or(rounds.open_ahead(), plan.open_ahead);
  plan.onions_window_s = Or(rounds.onions_window_s(), plan.onions_window_s);
  plan.onions_count = rounds.onions_count();
  plan.queries_window_s = Or(rounds.queries_window_s(), plan.queries_window_s);
  plan.queries_count = rounds.queries_count();
  plan.answers_window_s = Or(rounds.answers_window_s(), plan.answers_window_s);
  plan.stage_limit_s = config.stage_limit_s();
  plan.max_slots = Or(rounds.max_slots(), roster.max_slots());
  plan.max_rounds = Or(rounds.max_rounds(), std::max(plan.max_rounds, plan.open_ahead));
  plan.block_percent = config.shares().slots();
  plan.group_percent = config.group_shares().slots();
  if (rounds.has_terms()) {
    plan.terms = {.refreshes = rounds.terms().refreshes(),
                  .days = rounds.terms().days(),
                  .every_hours = Or(rounds.terms().every_hours(), plan.terms.every_hours),
                  .open_minutes = Or(rounds.terms().open_minutes(), plan.terms.open_minutes)};
  }
  return plan;
}

AddressRanges SharedAddresses(const ServerConfig& config) {
  auto ranges =
      AddressRanges::Of({config.shared_addresses().begin(), config.shared_addresses().end()});
  SHOAL_CHECK(ranges.ok());
  return *std::move(ranges);
}

absl::Status CheckListeners(const ServerConfig& config, const roster::Roster& roster) {
  if (config.party() == 1) return absl::OkStatus();  // no party calls it
  const roster::Party& self = roster.party(config.party());
  const std::string& neighbour =
      config.listen_address().empty() ? self.peer_address : config.listen_address();
  const std::string& clients =
      config.client_listen_address().empty() ? self.client_address : config.client_listen_address();
  if (neighbour != clients) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "clients of engines and party ", config.party() - 1, " would both connect to ", clients,
      ": give clients another port, client_listen_address in the configuration and client_address "
      "in the roster"));
}

absl::Status CheckOneMachine(const roster::Roster& roster, uint32_t party) {
  const uint32_t own = roster.party(party).machines;
  if (own == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the roster says that party ", party, " has ", own,
                   " machines: shoald is the program of a party of one machine, and "
                   "shoald-machines that of a party of several"));
}

}  // namespace shoal::shoald
