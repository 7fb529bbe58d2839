#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/commands.h"
#include "src/client/format.h"
#include "src/client/session.h"
#include "src/table/packages.h"

namespace shoal::client {
namespace {

// What differs between two answers, for people; empty if nothing does.
std::string Difference(const std::map<std::string, std::string>& ours,
                       const std::map<std::string, std::string>& theirs) {
  std::string text;
  const auto add = [&](const std::string& name, absl::string_view a, absl::string_view b) {
    absl::StrAppend(&text, "  ", name, ": the table says ", a, ", apt says ", b, "\n");
  };
  for (const auto& [name, version] : ours) {
    const auto found = theirs.find(name);
    if (found == theirs.end()) {
      add(name, version, "up to date");
    } else if (found->second != version) {
      add(name, version, found->second);
    }
  }
  for (const auto& [name, version] : theirs) {
    if (!ours.contains(name)) add(name, "up to date", version);
  }
  return text;
}

absl::Status CompareWithApt(std::map<std::string, std::string> ours, const std::string& native,
                            Session& session) {
  SHOAL_ASSIGN_OR_RETURN(auto theirs, table::AptUpgradable(native));
  const std::set<std::string> pinned = table::PinnedNames();
  if (pinned.contains("*")) {
    return absl::FailedPreconditionError(
        "this machine pins whole sets of packages, which the table does not follow: its answer and "
        "apt's cannot be compared");
  }
  size_t left_out = 0;
  for (const std::string& name : pinned) left_out += ours.erase(name) + theirs.erase(name) > 0;
  if (left_out > 0) {
    session.Tell(absl::StrCat("left out of the comparison: ", left_out,
                              " packages that this machine pins"));
  }
  if (const std::string difference = Difference(ours, theirs); !difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the private answer differs from `apt list --upgradable`:\n", difference));
  }
  session.Tell(absl::StrCat("the private answer equals `apt list --upgradable`: ", ours.size(),
                            " packages"));
  return absl::OkStatus();
}

absl::Status RunUpdates(const Connector& connect, const cli::Values& values, cli::Io& io) {
  const std::string format = cli::TextOr(values, "format", "tsv");
  if (format != "tsv" && format != "json") {
    return cli::UsageError(absl::StrCat("--format ", format, ": there are tsv and json"));
  }
  SHOAL_ASSIGN_OR_RETURN(
      const std::vector<table::Package> installed,
      table::ReadInstalled(cli::TextOr(values, "installed", "/var/lib/dpkg/status")));
  SHOAL_ASSIGN_OR_RETURN(const std::string native, table::NativeArchitecture());
  std::vector<Bytes> keys;
  for (const table::Package& package : installed) {
    keys.push_back(ToBytes(AsBytes(table::PackageKey(package.name, package.architecture, native))));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                         Session::Open("shoal updates", values["config"].as<std::string>(),
                                       connect, values.count("quiet") > 0, io));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Lookup> results, session->client().LookUp(keys));

  std::map<std::string, std::string> newer;
  size_t failed = 0, absent = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    failed += results[i].outcome == Lookup::Outcome::kFailed;
    absent += results[i].outcome == Lookup::Outcome::kAbsent;
    if (results[i].outcome != Lookup::Outcome::kFound) continue;
    const std::string key = ToString(keys[i]), version = ToString(results[i].value);
    if (table::CompareVersions(installed[i].version, version) >= 0) continue;
    newer[key] = version;
    if (format == "json") {
      io.out << JsonObject()
                    .Text("package", key)
                    .Text("installed", installed[i].version)
                    .Text("newest", version)
                    .Take()
             << '\n';
    } else {
      io.out << key << '\t' << installed[i].version << '\t' << version << '\n';
    }
  }
  session->Tell(absl::StrCat(installed.size(), " packages are installed, ", newer.size(),
                             " have a newer version, ", absent, " are not in the table"));
  session->TellCosts();
  if (failed > 0) {
    return absl::UnauthenticatedError(
        absl::StrCat(failed, " of ", keys.size(),
                     " packages have no verified answer; a second try would tell the parties which "
                     "rows failed, so there is none"));
  }
  if (values.count("compare-with-apt") > 0) {
    return CompareWithApt(std::move(newer), native, *session);
  }
  return absl::OkStatus();
}

}  // namespace

cli::Command Updates(Connector connect) {
  return {
      .name = "updates",
      .summary = "learn which installed packages have a newer version, privately",
      .help =
          "Looks up every package that dpkg says is installed, in one round of the chain, in a table\n"
          "made by `shoal table build --packages`, and prints those that have a newer version:\n"
          "  package, installed version, newest version                       with tabs, or\n"
          "  {\"package\":..,\"installed\":..,\"newest\":..}                         with --format json\n"
          "Nobody learns which packages are asked for. Exit code 3: an answer could not be verified.\n",
      .examples = "  shoal updates --config client.textproto\n"
                  "  shoal updates --config client.textproto --compare-with-apt\n",
      .options =
          [](cli::Options& options) {
            options.add_options()("config", cli::File()->required(), "the client's configuration");
            options.add_options()("installed", cli::File(),
                                  "dpkg's status file (default /var/lib/dpkg/status)");
            options.add_options()("compare-with-apt",
                                  "fail unless `apt list --upgradable` says the same");
            options.add_options()("format", cli::Text(), "tsv (default) or json");
            options.add_options()("quiet", "say nothing on standard error but errors");
          },
      .positional = "",
      .run =
          [connect = std::move(connect)](const cli::Values& values, cli::Io& io) {
            return RunUpdates(connect, values, io);
          },
  };
}

}  // namespace shoal::client
