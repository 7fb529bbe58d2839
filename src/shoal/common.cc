#include "src/shoal/common.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "src/base/status_macros.h"
#include "src/client/config.h"
#include "src/client/rollback_anchor.h"
#include "src/pir/registry/registry.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::commands {

uint64_t NowSeconds() { return static_cast<uint64_t>(absl::ToUnixSeconds(absl::Now())); }

std::string FormatTime(uint64_t seconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ",
                          absl::FromUnixSeconds(static_cast<int64_t>(seconds)),
                          absl::UTCTimeZone());
}

void AddRosterOptions(cli::Options& options) {
  options.add_options()("roster", cli::File()->required(), "the signed roster");
  options.add_options()("pinned", cli::File()->required(),
                        "the parties that you trust, from `shoal roster pins`");
}

absl::StatusOr<roster::PinnedParties> ReadPins(const cli::Values& values) {
  return roster::PinnedParties::Read(values["pinned"].as<std::string>());
}

absl::StatusOr<roster::Roster> ReadRoster(const cli::Values& values) {
  SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pinned, ReadPins(values));
  const std::string path = values["roster"].as<std::string>();
  wire::SignedRoster signed_roster;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, signed_roster));
  absl::StatusOr<roster::Roster> roster =
      roster::Roster::Verify(signed_roster, pinned, NowSeconds());
  if (!roster.ok()) return Annotate(roster.status(), path);
  return roster;
}

void AddConfigOption(cli::Options& options) {
  options.add_options()("config", cli::File(),
                        "the client's configuration (else that of $SHOAL_CONFIG, else the one that "
                        "`shoal init` wrote)");
}

absl::StatusOr<std::string> ConfigPathOf(const cli::Values& values) {
  const std::string named = cli::TextOr(values, "config", "");
  if (values.count("config") > 0 && named.empty()) {
    return cli::UsageError("--config is empty: is a variable unset?");
  }
  absl::StatusOr<std::string> path = client::FindConfig(named);
  if (absl::IsNotFound(path.status())) return cli::UsageError(path.status().message());
  return path;
}

absl::StatusOr<client::State> StateAt(const std::string& path) {
  auto saved = client::ReadState(path, client::AnchorDirectory::OfThisMachine());
  if (absl::IsNotFound(saved.status())) return client::State();
  return saved;
}

void AddEngineOption(cli::Options& options) {
  options.add_options()("engine", cli::Text(), pir::EngineNames().c_str());
}

absl::StatusOr<const pir::Engine*> EngineOf(const cli::Values& values) {
  const auto engine = pir::FindEngine(cli::TextOr(values, "engine", "chain"));
  if (!engine.ok()) return cli::UsageError(absl::StrCat("--engine: ", engine.status().message()));
  return engine;
}

void AddBeyondPhiOptions(cli::Options& options) {
  options.add_options()("over-rounds",
                        "spread a lookup that is larger than a round protects over several rounds");
  options.add_options()("accept-more",
                        "send such a lookup in one round all the same, at the protection that is "
                        "printed first");
  options.add_options()("dry-run", "say what the lookup would cost in privacy; send no query");
}

absl::StatusOr<client::BeyondPhi> BeyondPhiOf(const cli::Values& values) {
  const bool over_rounds = values.count("over-rounds") > 0;
  const bool accept_more = values.count("accept-more") > 0;
  if (over_rounds && accept_more) {
    return cli::UsageError("--over-rounds and --accept-more: only one of them makes sense");
  }
  return over_rounds   ? client::BeyondPhi::kOverRounds
         : accept_more ? client::BeyondPhi::kAcceptMore
                       : client::BeyondPhi::kRefuse;
}

void AddFormatOption(cli::Options& options, const std::string& plain) {
  options.add_options()("format", cli::Text(), (plain + " (default) or json").c_str());
}

absl::StatusOr<bool> JsonWanted(const cli::Values& values, const std::string& plain) {
  return cli::Chosen(values, "format", plain, "json");
}

const char* OutcomeName(client::Lookup::Outcome outcome) {
  switch (outcome) {
    case client::Lookup::Outcome::kFound:
      return "found";
    case client::Lookup::Outcome::kAbsent:
      return "absent";
    case client::Lookup::Outcome::kUnknown:
      return "unknown";
    case client::Lookup::Outcome::kFailed:
      return "failed";
  }
  return "failed";
}

absl::Status UnknownError(uint64_t unknown, uint64_t unasked, uint64_t all,
                          absl::string_view what) {
  std::vector<std::string> why;
  if (unknown > unasked) {
    why.push_back(absl::StrCat(unknown - unasked, " of ", all, " ", what,
                               " are not known until the next term: their rows of the table are "
                               "full, and may lack them"));
  }
  if (unasked > 0) {
    why.push_back(absl::StrCat(unasked, " of ", all, " ", what,
                               " were not asked for, and nothing is known of them: more of this "
                               "lookup are in their buckets than most_in_bucket of the roster"));
  }
  return cli::IncompleteError(absl::StrJoin(why, "; "));
}

void AddOutOption(cli::Options& options) {
  options.add_options()("out", cli::File(), "write to this file instead of standard output");
}

absl::Status WriteResult(const cli::Values& values, cli::Io& io, absl::string_view text) {
  const std::string path = cli::TextOr(values, "out", "");
  if (!path.empty()) return WriteFileAtomically(path, AsBytes(text), FileMode::kPublic);
  io.out << text;
  return absl::OkStatus();
}

}  // namespace shoal::commands
