#include "src/client/config.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/config.pb.h"
#include "src/noise/accountant.h"
#include "src/storage/file.h"
#include "src/storage/user_directories.h"
#include "src/wire/text.h"

namespace shoal::client {
namespace {

constexpr uint32_t kMaxTimeoutS = 7 * 24 * 3600;

absl::StatusOr<roster::PinnedParties> PinsOf(const ClientConfig& config,
                                             const std::filesystem::path& directory) {
  switch (config.pins_case()) {
    case ClientConfig::kPinnedPartiesFile:
      return roster::PinnedParties::Read(directory / config.pinned_parties_file());
    case ClientConfig::kPinnedParties:
      return roster::PinnedParties::Create(config.pinned_parties());
    case ClientConfig::PINS_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "pinned_parties_file or pinned_parties is missing: whom should the client trust?");
}

absl::StatusOr<Config> Check(const ClientConfig& config, const std::filesystem::path& directory) {
  const size_t colon = config.frontend().rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == config.frontend().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frontend: \"", config.frontend(), "\" is not host:port"));
  }
  if (config.state().empty()) return absl::InvalidArgumentError("state: no path given");
  const auto within = [](absl::string_view field, uint32_t value, uint32_t most) {
    return value <= most ? absl::OkStatus()
                         : absl::InvalidArgumentError(
                               absl::StrCat(field, ": ", value, " is more than ", most));
  };
  SHOAL_RETURN_IF_ERROR(within("pad_to", config.pad_to(), kMaxPadTo));
  SHOAL_RETURN_IF_ERROR(within("max_attempts", config.max_attempts(), kMaxAttempts));
  SHOAL_RETURN_IF_ERROR(within("connections", config.connections(), kMaxClientConnections));
  SHOAL_RETURN_IF_ERROR(within("timeout_s", config.timeout_s(), kMaxTimeoutS));
  SHOAL_RETURN_IF_ERROR(within("max_enrolments", config.max_enrolments(), State::kMaxEnrolments));
  if (!(config.max_epsilon() >= 0 && config.max_epsilon() <= noise::kMaxComposedEpsilon)) {
    return absl::InvalidArgumentError(absl::StrCat("max_epsilon: ", config.max_epsilon(),
                                                   " is not between 0 and ",
                                                   noise::kMaxComposedEpsilon));
  }
  if ((config.offline_party() == 0) != (config.online_party() == 0)) {
    return absl::InvalidArgumentError(
        "offline_party and online_party: an engine of two servers needs both");
  }
  if (config.offline_party() != 0 && config.offline_party() == config.online_party()) {
    return absl::InvalidArgumentError(absl::StrCat("offline_party and online_party: party ",
                                                   config.online_party(),
                                                   " cannot be both: whoever is both servers of an "
                                                   "engine learns every row that is asked for"));
  }
  SHOAL_ASSIGN_OR_RETURN(roster::PinnedParties pins, PinsOf(config, directory));
  Config out{.frontend = config.frontend(),
             .pins = std::move(pins),
             .state_path = directory / config.state(),
             .placement_cache = directory / (config.state() + ".placement"),
             .options = {},
             .offline_party = config.offline_party(),
             .online_party = config.online_party()};
  if (config.pad_to() != 0) out.options.pad_to = config.pad_to();
  if (config.max_attempts() != 0) out.options.max_attempts = config.max_attempts();
  if (config.timeout_s() != 0) out.options.timeout_s = config.timeout_s();
  if (config.connections() != 0) out.options.connections = config.connections();
  if (config.max_enrolments() != 0) out.max_enrolments = config.max_enrolments();
  if (config.max_epsilon() != 0) out.options.max_epsilon = config.max_epsilon();
  return out;
}

}  // namespace

std::string UserConfigPath() {
  const std::string directory = UserConfigDirectory();
  return directory.empty() ? "" : directory + "/client.textproto";
}

absl::StatusOr<std::string> FindConfig(const std::string& named) {
  if (!named.empty()) return named;
  if (const char* variable = std::getenv(kConfigVariable); variable != nullptr && *variable != 0) {
    return variable;
  }
  const std::string own = UserConfigPath();
  if (!own.empty() && FileExists(own)) return own;
  return absl::NotFoundError(absl::StrCat(
      "no deployment is configured: ",
      own.empty() ? "there is no home for a configuration" : absl::StrCat("there is no ", own),
      ", and neither --config nor $", kConfigVariable,
      " names another. `shoal init FRONTEND --pins FILE` writes one"));
}

absl::StatusOr<Config> ReadConfig(const std::string& path) {
  ClientConfig config;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, config));
  auto checked = Check(config, std::filesystem::path(path).parent_path());
  if (!checked.ok()) return Annotate(checked.status(), path);
  return checked;
}

std::string PrintConfig(const NewConfig& config) {
  ClientConfig out;
  out.set_frontend(config.frontend);
  *out.mutable_pinned_parties() = config.pins;
  out.set_state(config.state_path);
  out.set_pad_to(config.pad_to);
  return absl::StrCat(
      "# A client's configuration, made by `shoal init`. pinned_parties are the parties that this\n"
      "# client trusts; state is its memory, the ledger included: never copy it, never restore "
      "it.\n"
      "# configs/client.textproto explains every field.\n",
      wire::PrintText(out));
}

}  // namespace shoal::client
