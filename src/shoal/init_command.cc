#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/clock.h"
#include "src/base/status_macros.h"
#include "src/client/chain_client.h"
#include "src/client/config.h"
#include "src/client/deployment.h"
#include "src/client/state.h"
#include "src/roster/fingerprint.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/privacy_text.h"
#include "src/storage/file.h"
#include "src/storage/user_directories.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

// With advice for somebody who took another file of a deployment for its pins.
absl::Status ReadPinsFile(const std::string& path, wire::PinnedParties& pins) {
  absl::Status read = wire::ReadTextFile(path, pins);
  wire::SignedRoster roster;
  if (absl::IsInvalidArgument(read) && wire::ReadTextFile(path, roster).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": is a roster, and no pins. Pins come from the deployment's parties; `shoal roster "
        "pins` makes them of a roster whose keys were compared"));
  }
  return read;
}

// What the user's present configuration is of, for people.
std::string Describe(const absl::StatusOr<client::Config>& config) {
  if (!config.ok()) return absl::StrCat("not understood: ", config.status().message());
  return absl::StrCat("of the deployment \"", config->pins.deployment(), "\" at ",
                      config->frontend);
}

bool IsSame(const client::Config& present, const client::Config& wanted) {
  return present.frontend == wanted.frontend && present.state_path == wanted.state_path &&
         present.pins.digest() == wanted.pins.digest() &&
         present.pins.minimum_roster_epoch() == wanted.pins.minimum_roster_epoch() &&
         present.pins.minimum_table_epoch() == wanted.pins.minimum_table_epoch();
}

// Whether the user lets the configuration at `path` go. ALREADY_EXISTS if not, or if nobody can be
// asked.
absl::Status MayReplace(const std::string& path, const std::string& what, bool force, cli::Io& io) {
  if (force) return absl::OkStatus();
  const std::string exists = absl::StrCat(path, ": there is a configuration already, ", what);
  if (!io.err_is_terminal) {
    return absl::AlreadyExistsError(
        absl::StrCat(exists, ". --force replaces it; nothing was changed"));
  }
  io.err << exists << "\nreplace it? [y/N] " << std::flush;
  std::string answer;
  std::getline(io.in, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return absl::OkStatus();
  return absl::AlreadyExistsError("nothing was changed");
}

// What to look at when the deployment did not come.
absl::Status Explain(const absl::Status& status, const std::string& frontend) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(), ". Is ", frontend,
                     " the client_address of the deployment's party 1, does that party run, and "
                     "can this machine reach it? Nothing was written"));
  }
  return absl::Status(status.code(), absl::StrCat(status.message(), ". Nothing was written"));
}

// How many queries a client of this deployment should send at a time: as many as a round protects
// together, so that all of them are protected. 0: the default, where a round protects single ones.
uint32_t PadTo(const noise::Parameters& noise) {
  return noise.phi > 1 ? std::min(noise.phi, client::kMaxPadTo) : 0;
}

void Show(const client::Deployment& deployment, const roster::PinnedParties& pins, cli::Io& io) {
  const roster::Roster& roster = deployment.roster();
  const wire::Manifest& manifest = deployment.manifest().content();
  io.out
      << "deployment " << roster.deployment() << ": table " << manifest.name() << ", "
      << WithCommas(manifest.records()) << " records, epoch " << manifest.epoch()
      << "\n\nYou trust that one of these parties is honest, whichever it is. Fingerprints are of "
         "their keys:\n";
  for (const roster::Party& party : roster.parties()) {
    io.out << "  " << party.number << "  " << party.name << "\n     "
           << roster::KeyFingerprint(party.key.bytes()) << "\n";
  }
  io.out
      << "Fingerprint of the pins, all keys together. Compare it, aloud or on paper, with what the "
         "parties publish:\n     "
      << roster::PinsFingerprint(pins)
      << "\n\nWhat that protects: " << ProtectionText(roster.noise())
      << ". Rounds add up: `shoal status` shows the sum of this device.\n";
}

// Whether this configuration is there already. An error if another one is, which may not be
// replaced.
absl::StatusOr<bool> IsThere(const std::string& path, const client::Config& wanted, bool force,
                             cli::Io& io) {
  if (!FileExists(path)) return false;
  const absl::StatusOr<client::Config> present = client::ReadConfig(path);
  if (present.ok() && IsSame(*present, wanted)) return true;
  SHOAL_RETURN_IF_ERROR(MayReplace(path, Describe(present), force, io));
  return false;
}

absl::Status Write(const client::NewConfig& config, const std::string& path, cli::Io& io) {
  SHOAL_RETURN_IF_ERROR(
      MakeDirectory(std::filesystem::path(path).parent_path(), FileMode::kPublic));
  SHOAL_RETURN_IF_ERROR(
      WriteFileAtomically(path, AsBytes(client::PrintConfig(config)), FileMode::kPublic));
  io.out << "\nWritten to " << path << ", which `shoal` takes from now on; its state is "
         << config.state_path << ".\nNext: shoal query KEY\n";
  return absl::OkStatus();
}

absl::Status RunInit(const Connector& connect, const cli::Values& values, cli::Io& io) {
  const std::string frontend = cli::TextOr(values, "frontend", "");
  if (frontend.empty()) {
    return cli::UsageError(
        "FRONTEND is missing: the client_address of party 1, such as alice.example:7300");
  }
  const std::string pins_path = values["pins"].as<std::string>();
  wire::PinnedParties pins_file;
  SHOAL_RETURN_IF_ERROR(ReadPinsFile(pins_path, pins_file));
  absl::StatusOr<roster::PinnedParties> pins = roster::PinnedParties::Create(pins_file);
  if (!pins.ok()) return Annotate(pins.status(), pins_path);

  const std::string config_path = client::UserConfigPath();
  const std::string state_directory = UserStateDirectory();
  if (config_path.empty() || state_directory.empty()) {
    return absl::FailedPreconditionError(
        "there is no place for a configuration: neither HOME nor XDG_CONFIG_HOME and "
        "XDG_STATE_HOME name an absolute path");
  }
  client::NewConfig wanted = {
      .frontend = frontend,
      .pins = pins_file,
      .state_path = values.count("state") > 0
                        ? std::filesystem::absolute(cli::TextOr(values, "state", "")).string()
                        : absl::StrCat(state_directory, "/", pins->deployment(), ".state"),
      .pad_to = 0};
  // Before the network: whoever is refused in the end should hear of it at once.
  SHOAL_ASSIGN_OR_RETURN(const bool there, IsThere(config_path,
                                                   {.frontend = frontend,
                                                    .pins = *pins,
                                                    .state_path = wanted.state_path,
                                                    .placement_cache = "",
                                                    .options = {}},
                                                   values.count("force") > 0, io));
  SHOAL_ASSIGN_OR_RETURN(client::State state, StateAt(wanted.state_path));
  absl::StatusOr<std::unique_ptr<client::Transport>> transport = connect(frontend);
  if (!transport.ok()) {
    return absl::Status(transport.status().code(),
                        absl::StrCat(transport.status().message(),
                                     ": FRONTEND is the client_address of party 1, such as "
                                     "alice.example:7300"));
  }
  // The placement is kept only once the user's place for it is there.
  const absl::StatusOr<client::Deployment> deployment = client::Deployment::Fetch(
      **transport, *pins, state, SystemClock().NowSeconds(), "", frontend);
  if (!deployment.ok()) return Explain(deployment.status(), frontend);
  Show(*deployment, *pins, io);
  if (deployment->party() != 1) {
    io.err
        << "shoal init: " << frontend << " is party " << deployment->party()
        << ", which answers queries to engines alone (--engine); lookups through the chain go to "
        << Printable(deployment->roster().party(1).client_address) << '\n';
  }
  if (there) {
    io.out << "\n" << config_path << " says so already, and stays as it is.\n";
  } else {
    wanted.pad_to = PadTo(deployment->roster().noise());
    if (values.count("state") == 0) {
      SHOAL_RETURN_IF_ERROR(MakeDirectory(state_directory, FileMode::kPrivate));
    }
    SHOAL_RETURN_IF_ERROR(Write(wanted, config_path, io));
  }
  if (const char* variable = std::getenv(client::kConfigVariable);
      variable != nullptr && *variable != 0) {
    io.err << "shoal init: " << client::kConfigVariable << " is set to " << variable
           << ", which commands take before this configuration\n";
  }
  return absl::OkStatus();
}

}  // namespace

cli::Command Init(Connector connect) {
  return {
      .name = "init",
      .summary = "configure this user's lookups in a deployment",
      .help =
          R"(Asks FRONTEND, host:port of a deployment's party 1, for its roster and the table's
manifest, checks both by the pins in FILE, and writes a configuration to the user's own
place. From then on no command needs --config.

FILE says whom you trust. It must not come from FRONTEND: get it with the software, or from
one of the parties. What is shown has the fingerprint of all its keys, 50 digits, to be
compared with what the parties publish; and what a round of the deployment protects.

The configuration is $XDG_CONFIG_HOME/shoal/client.textproto, or below ~/.config, and the
state $XDG_STATE_HOME/shoal/DEPLOYMENT.state, or below ~/.local/state. A command takes, in
this order: --config; $SHOAL_CONFIG, if it is not empty; that file. pad_to is set to the
number of queries that a round protects together, where that is more than one.

A configuration that is there is replaced only if you say so, by --force or on a terminal;
the state of another deployment stays. If the roster, the table or the pins do not fit, or
nobody answers, nothing is written (exit code 3: something is not to be trusted).
)",
      .examples = R"(  shoal init alice.example:7300 --pins pinned.textproto
  shoal init alice.example:7300 --pins pinned.textproto --force    in place of another one
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("frontend", cli::Text(),
                                  "host:port of party 1; --frontend may be left out")(
                "pins", cli::File()->required(), "the parties that you trust")(
                "state", cli::File(), "keep the client's state in this file instead")(
                "force", "replace a configuration that is there");
          },
      .positional = "frontend",
      .run = std::bind_front(RunInit, std::move(connect)),
  };
}

}  // namespace shoal::commands
