#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/status_macros.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/session.h"
#include "src/table/packages.h"

namespace shoal::commands {
namespace {

// The differences between two answers as text for people; empty if there are none.
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
    session.Tell(
        absl::StrCat("left out of the comparison: ", left_out, " packages that this machine pins"));
  }
  if (const std::string difference = Difference(ours, theirs); !difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the private answer differs from `apt list --upgradable`:\n", difference));
  }
  session.Tell(absl::StrCat("the private answer equals `apt list --upgradable`: ", ours.size(),
                            " packages"));
  return absl::OkStatus();
}

class InstalledKeys final : public client::Keys {
 public:
  InstalledKeys(const std::vector<table::Package>& installed, const std::string& native) {
    for (const table::Package& package : installed) {
      keys_.push_back(table::PackageKey(package.name, package.architecture, native));
    }
  }
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    for (const std::string& key : keys_) SHOAL_RETURN_IF_ERROR(take(AsBytes(key)));
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> keys_;
};

// Prints packages that have a newer version.
class UpdateResults final : public client::Results {
 public:
  UpdateResults(const std::vector<table::Package>& installed, bool json, std::ostream& out)
      : installed_(installed), json_(json), out_(out) {}

  absl::Status Add(BytesView name, const client::Lookup& result) override {
    const table::Package& package = installed_[added_++];
    failed_ += result.outcome == client::Lookup::Outcome::kFailed;
    absent_ += result.outcome == client::Lookup::Outcome::kAbsent;
    if (result.outcome == client::Lookup::Outcome::kUnknown) unknown_.push_back(ToString(name));
    unasked_ += result.is_unasked();
    if (result.outcome != client::Lookup::Outcome::kFound) return absl::OkStatus();
    const std::string key = ToString(name);
    const std::string version = table::NewerCandidate(package.version, ToString(result.value));
    if (version.empty()) return absl::OkStatus();
    newer_[key] = version;
    if (json_) {
      out_ << JsonObject()
                  .Text("package", key)
                  .Text("installed", package.version)
                  .Text("newest", version)
                  .Take()
           << '\n';
    } else {
      out_ << key << '\t' << package.version << '\t' << version << '\n';
    }
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    return out_.flush() ? absl::OkStatus()
                        : absl::UnavailableError("standard output cannot be written");
  }

  // By key.
  const std::map<std::string, std::string>& newer() const { return newer_; }
  size_t failed() const { return failed_; }
  size_t absent() const { return absent_; }
  // Keys of packages of which the table says nothing.
  const std::vector<std::string>& unknown() const { return unknown_; }
  // How many of these were not asked for.
  size_t unasked() const { return unasked_; }

 private:
  const std::vector<table::Package>& installed_;
  const bool json_;
  std::ostream& out_;
  std::map<std::string, std::string> newer_;
  size_t added_ = 0, failed_ = 0, absent_ = 0, unasked_ = 0;
  std::vector<std::string> unknown_;
};

// In another table every package would be absent, with a proof, and so up to date.
absl::Status CheckIsOfPackages(const std::string& table_name, const std::string& native) {
  if (table::IsPackagesTableName(table_name, native)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the deployment's table \"", table_name,
      "\" is not one of packages for this machine, which \"", table::PackagesTableName(native),
      "\" would be (shoal table build --packages): it cannot say what is up to date"));
}

absl::Status RunUpdates(const Connector& connect, const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool json_wanted, JsonWanted(values, "tsv"));
  SHOAL_ASSIGN_OR_RETURN(const client::BeyondPhi beyond_phi, BeyondPhiOf(values));
  const std::string status_file = cli::TextOr(values, "installed", "/var/lib/dpkg/status");
  SHOAL_ASSIGN_OR_RETURN(const std::vector<table::Package> installed,
                         table::ReadInstalled(status_file));
  // Such as a container without dpkg's files: nobody is to read that as "up to date".
  if (installed.empty()) {
    return cli::IncompleteError(
        absl::StrCat(status_file,
                     ": names no installed packages: nothing was looked up (--installed FILE reads "
                     "another status file of dpkg)"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string native, table::NativeArchitecture());
  SHOAL_ASSIGN_OR_RETURN(const std::string config_path, ConfigPathOf(values));
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      Session::Open("shoal updates", config_path, connect, values.count("quiet") > 0, io));
  SHOAL_RETURN_IF_ERROR(CheckIsOfPackages(session->table_name(), native));
  SHOAL_RETURN_IF_ERROR(session->UseChain(beyond_phi));
  InstalledKeys keys(installed, native);
  if (values.count("dry-run") > 0) return session->DryRun(keys, json_wanted, io.out);
  UpdateResults results(installed, json_wanted, io.out);
  SHOAL_RETURN_IF_ERROR(session->LookUp(keys, results));
  session->Tell(absl::StrCat(installed.size(), " packages are installed, ", results.newer().size(),
                             " have a newer version, ", results.absent(), " are not in the table"));
  session->TellCosts();
  if (results.failed() > 0) {
    return absl::UnauthenticatedError(
        absl::StrCat(results.failed(), " of ", installed.size(),
                     " packages have no verified answer; a second try would tell the parties which "
                     "rows failed, so there is none"));
  }
  if (!results.unknown().empty()) {
    return UnknownError(results.unknown().size(), results.unasked(), installed.size(),
                        absl::StrCat("packages (", absl::StrJoin(results.unknown(), " "), ")"));
  }
  if (values.count("compare-with-apt") > 0) {
    return CompareWithApt(results.newer(), native, *session);
  }
  return absl::OkStatus();
}

}  // namespace

cli::Command Updates(Connector connect) {
  return {
      .name = "updates",
      .summary = "learn which installed packages have a newer version, privately",
      .help =
          R"(Looks up every package that dpkg says is installed, also if it is yet to be
configured, through the chain, in a table made by `shoal table build --packages`,
and prints those that have a newer version:
  package, installed version, newest version                       with tabs, or
  {"package":..,"installed":..,"newest":..}                         with --format json
The newest version is apt's candidate: one from backports only for what was installed
from there. Nobody learns which packages are asked for. If they are more queries than a round
protects together, nothing is sent without --over-rounds or --accept-more
(`shoal query --help`). Exit code 3: an answer could not be
verified. Exit code 4: some packages, named on standard error, may have a newer version
or not, as their rows of the table are full until the next term; or no package is said
to be installed.
)",
      .examples = R"(  shoal updates --config client.textproto
  shoal updates --config client.textproto --compare-with-apt
)",
      .options =
          [](cli::Options& options) {
            AddConfigOption(options);
            options.add_options()("installed", cli::File(),
                                  "dpkg's status file (default /var/lib/dpkg/status)");
            AddBeyondPhiOptions(options);
            options.add_options()("compare-with-apt",
                                  "fail unless `apt list --upgradable` says the same");
            AddFormatOption(options, "tsv");
            options.add_options()("quiet", "print only errors on standard error");
          },
      .positional = "",
      .run = std::bind_front(RunUpdates, std::move(connect)),
  };
}

}  // namespace shoal::commands
