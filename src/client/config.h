// A client's configuration (config.proto), checked.
#ifndef SHOAL_SRC_CLIENT_CONFIG_H_
#define SHOAL_SRC_CLIENT_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "src/client/chain_client.h"
#include "src/roster/roster.h"

namespace shoal::client {

struct Config {
  std::string frontend;  // host:port
  roster::PinnedParties pins;
  std::string state_path;
  // The file beside the state that keeps the placement (Deployment::Fetch).
  std::string placement_cache;
  ChainOptions options;
  // Of an engine of two servers; 0 if none is named. Either both are, and differ, or none.
  uint32_t offline_party = 0, online_party = 0;
  uint32_t max_enrolments = 3;  // TermOptions
};

// The environment's variable that names a configuration.
inline constexpr char kConfigVariable[] = "SHOAL_CONFIG";

// $XDG_CONFIG_HOME/shoal/client.textproto, or below ~/.config; empty without a home. `shoal init`
// writes it.
std::string UserConfigPath();

// Which configuration a client takes: `named`, where its caller names one; else the one that
// $SHOAL_CONFIG names, if it is not empty; else the user's own. NOT_FOUND if there is none of the
// last two, with what makes one.
absl::StatusOr<std::string> FindConfig(const std::string& named);

// NOT_FOUND or another error of the file; INVALID_ARGUMENT names the file and the fault.
absl::StatusOr<Config> ReadConfig(const std::string& path);

// What a configuration for one deployment says, for PrintConfig.
struct NewConfig {
  std::string frontend;
  wire::PinnedParties pins;  // written into the file itself, so that one write replaces both
  std::string state_path;    // absolute
  uint32_t pad_to = 0;       // 0: the default
};

// The configuration's file, for people to read and change, and for ReadConfig.
std::string PrintConfig(const NewConfig& config);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CONFIG_H_
