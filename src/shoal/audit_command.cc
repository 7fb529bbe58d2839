#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/audit/findings.h"
#include "src/audit/inventory.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"
#include "src/shoal/audit_report.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/session.h"
#include "src/shoal/source_options.h"
#include "src/storage/file.h"

namespace shoal::commands {
namespace {

// An engine's server sees how many queries come: a multiple of this, unless --pad says otherwise.
constexpr uint32_t kDefaultAuditPad = 64;

constexpr char kDpkgStatusPath[] = "/var/lib/dpkg/status";

using Writer = std::string (*)(std::span<const audit::Finding>);

absl::StatusOr<Writer> WriterOf(const cli::Values& values) {
  const std::string format = cli::TextOr(values, "format", "tsv");
  if (format == "tsv") return &FindingsAsTsv;
  if (format == "json") return &FindingsAsJson;
  if (format == "sarif") return &FindingsAsSarif;
  return cli::UsageError(absl::StrCat("--format ", format, ": there are tsv, json and sarif"));
}

absl::StatusOr<audit::Inventory> ReadInputs(const cli::Values& values) {
  std::vector<std::string> paths = cli::TextsOf(values, "input");
  if (values.count("installed") > 0) paths.push_back(kDpkgStatusPath);
  if (paths.empty()) {
    return cli::UsageError(
        "nothing to audit: give a lock file, an SBOM, a directory, or --installed");
  }
  audit::Distribution distribution{
      .stated = audit::CanonicalEcosystem(cli::TextOr(values, "distribution", ""))};
  if (!distribution.stated.empty() &&
      audit::OrderOf(distribution.stated) != audit::Order::kDebian) {
    return cli::UsageError(
        absl::StrCat("--distribution ", distribution.stated,
                     ": as OSV records have it, such as Debian:12 or Ubuntu:22.04:LTS"));
  }
  const absl::StatusOr<std::string> release = ReadFile("/etc/os-release", 1 << 16);
  if (release.ok()) distribution.here = audit::DistributionOf(*release);
  audit::Inventory inventory;
  const audit::Depth depth =
      values.count("recursive") > 0 ? audit::Depth::kAll : audit::Depth::kOne;
  for (const std::string& path : paths) {
    SHOAL_RETURN_IF_ERROR(audit::ReadInventory(path, distribution, inventory, depth));
  }
  if (values.count("partial") > 0) return inventory;
  for (const audit::Unchecked& unchecked : inventory.unchecked) {
    if (unchecked.why == audit::kNamesNoPackages) {
      return cli::IncompleteError(
          absl::StrCat(unchecked.file, ": ", unchecked.why, " (--partial goes on without it)"));
    }
  }
  return inventory;
}

class AuditKeys final : public client::Keys {
 public:
  explicit AuditKeys(const audit::Audit& audit) : audit_(audit) {}
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    for (const std::string& key : audit_.keys()) SHOAL_RETURN_IF_ERROR(take(AsBytes(key)));
    return absl::OkStatus();
  }

 private:
  const audit::Audit& audit_;
};

// Judges the answers and writes what was found when all are there: until then the lookup can be
// asked for again.
class AuditResults final : public client::Results {
 public:
  AuditResults(audit::Audit& audit, Writer writer, const cli::Values& values, cli::Io& io)
      : audit_(audit), writer_(writer), values_(values), io_(io) {}

  absl::Status Add(BytesView, const client::Lookup& result) override {
    const size_t place = added_++;
    if (result.outcome == client::Lookup::Outcome::kFailed) return absl::OkStatus();
    if (result.outcome == client::Lookup::Outcome::kUnknown) {
      audit_.Unknown(place);
      return absl::OkStatus();
    }
    const bool found = result.outcome == client::Lookup::Outcome::kFound;
    return Annotate(
        audit_.Answer(place, found ? std::optional<BytesView>(result.value) : std::nullopt),
        audit_.keys()[place]);
  }
  absl::Status Finish() override {
    SHOAL_ASSIGN_OR_RETURN(findings_, audit_.Findings());
    SHOAL_RETURN_IF_ERROR(WriteResult(values_, io_, writer_(findings_)));
    return io_.out.flush() ? absl::OkStatus()
                           : absl::UnavailableError("standard output cannot be written");
  }
  const std::vector<audit::Finding>& findings() const { return findings_; }

 private:
  audit::Audit& audit_;
  const Writer writer_;
  const cli::Values& values_;
  cli::Io& io_;
  size_t added_ = 0;
  std::vector<audit::Finding> findings_;
};

std::string Counted(uint64_t count, absl::string_view one, absl::string_view many) {
  return absl::StrCat(WithCommas(count), " ", count == 1 ? one : many);
}
std::string Packages(uint64_t count, absl::string_view what) {
  return absl::StrCat(Counted(count, "package", "packages"), " ", what);
}

// OK only if everything was looked up and nothing was found.
absl::Status OutcomeOf(const audit::Audit::Counts& counts, bool partial) {
  if (counts.unverified > 0) {
    return absl::UnauthenticatedError(
        absl::StrCat(Packages(counts.unverified, "of "), counts.packages,
                     " have no verified answer; a second try would tell the parties which rows "
                     "failed, so there is none"));
  }
  std::vector<std::string> problems;
  if (counts.vulnerable > 0) {
    problems.push_back(Packages(counts.vulnerable, "with a known vulnerability"));
  }
  if (!partial && counts.unclear > 0) {
    problems.push_back(
        Packages(counts.unclear, "of which nobody can tell whether an advisory is about it"));
  }
  if (!partial && counts.unchecked > 0) {
    problems.push_back(Packages(counts.unchecked, "not checked"));
  }
  if (problems.empty()) return absl::OkStatus();
  const std::string all =
      absl::StrCat("of ", Packages(counts.packages, "audited: "), absl::StrJoin(problems, ", "));
  return counts.vulnerable > 0 ? cli::FoundError(all) : cli::IncompleteError(all);
}

absl::Status RunAudit(const Connector& connect, const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const Writer writer, WriterOf(values));
  SHOAL_ASSIGN_OR_RETURN(const SourceOptions source, SourceOptionsOf(values, kDefaultAuditPad));
  // Finds mistakes in the input, and what names nothing, before a connection is made.
  SHOAL_ASSIGN_OR_RETURN(const audit::Inventory inventory, ReadInputs(values));
  audit::Audit audit(inventory);
  if (audit.keys().empty()) {
    // A round would tell nothing.
    SHOAL_ASSIGN_OR_RETURN(const std::vector<audit::Finding> findings, audit.Findings());
    SHOAL_RETURN_IF_ERROR(WriteResult(values, io, writer(findings)));
    const absl::Status nothing =
        cli::IncompleteError("the input names no packages that could be looked up: nothing was");
    if (values.count("partial") == 0) return nothing;
    if (values.count("quiet") == 0) io.err << "shoal audit: " << nothing.message() << "\n";
    return absl::OkStatus();
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string config_path, ConfigPathOf(values));
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      Session::Open("shoal audit", config_path, connect, values.count("quiet") > 0, io));
  // In another table every package would be absent, with a proof.
  if (!audit::IsAdvisoriesTable(session->table_name())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the deployment's table \"", session->table_name(),
        "\" is not one of advisories (shoal table build --osv): it knows no vulnerabilities"));
  }
  SHOAL_RETURN_IF_ERROR(UseSource(source, audit.keys().size(), *session));
  AuditKeys keys(audit);
  if (source.dry_run) return session->DryRun(keys, writer == &FindingsAsJson, io.out);
  AuditResults results(audit, writer, values, io);
  SHOAL_RETURN_IF_ERROR(session->LookUp(keys, results));
  const audit::Audit::Counts counts = audit.Count(results.findings());
  for (const auto& [ecosystem, coverage] : audit.coverage()) {
    if (!coverage.has_value()) continue;
    session->Tell(absl::StrCat("the table has ",
                               Counted(coverage->advisories, "advisory", "advisories"), " about ",
                               Packages(coverage->packages, "of "), ecosystem, ", the newest of ",
                               Printable(coverage->modified)));
  }
  session->Tell(absl::StrCat(
      Packages(counts.packages, "audited: "), WithCommas(counts.vulnerable), " vulnerable, ",
      WithCommas(counts.unclear), " unclear, ", WithCommas(counts.unchecked), " not checked",
      inventory.own > 0
          ? absl::StrCat("; left out: ", WithCommas(inventory.own), " of the project's own")
          : ""));
  session->TellCosts();
  if (counts.unverified > 0) WarnOfWrongRecords(source, *session);
  return OutcomeOf(counts, values.count("partial") > 0);
}

constexpr char kAuditHelp[] =
    R"(Reads what is installed or locked, looks every package up in one batch in a table made
by `shoal table build --osv`, and prints what has known vulnerabilities. Inputs are files
and directories:
  requirements.txt, poetry.lock, METADATA of an installed Python package
  package-lock.json (versions 1 to 3), Cargo.lock, go.sum
  an SBOM in CycloneDX (JSON) or SPDX 2 (JSON or tag-value), by its package URLs
  dpkg's status file; --installed is this machine's
  a directory: the files above in it by their names, and the Python packages of a
  virtual environment or of site-packages. What else there says which packages a project
  has (yarn.lock, go.mod, a file with something wrong in it, node_modules without a lock
  file) is unchecked, and so is what lies below, which --recursive reads
Their format is told by name or content. Prints, for every package and advisory,
  status, ecosystem, package, version, id, alias, first version that is not affected,
  note, files                                                       with tabs, or
  one JSON object a line with --format json, or SARIF 2.1.0 with --format sarif
where the status is
  vulnerable   an advisory is about this version, in the ecosystem's order of versions
  unclear      there is an advisory, and whether it is about this version nobody can
               tell: no version is pinned, or one of them is no version. Or the input
               leaves open which package it is. Or its row of the table is full until
               the next term, and may lack it; or the table lacks records that could not
               be read
  unchecked    nothing to look up: a file, an address, an ecosystem that the table or
               this program does not know, an input that names no packages
A package that was looked up and is not printed is proved to have no advisory in the
table for its version. Packages and advisories are compared on this machine: what is printed here is
seen by nobody else.

Exit code 0: everything was looked up, and nothing was found. 1: something is
vulnerable. 3: an answer could not be verified. 4: nothing was found, but something is
unclear or unchecked (--partial accepts that with 0). An input that names no packages
ends it so before anything is sent. 5: the command failed, and nobody knows.

The lookup is that of `shoal query`, through the chain or with --engine through an
engine, and so is what it protects: the list is hidden as far as what is printed about
privacy says, and its length but for the padding (pad_to of the configuration; with
--engine, --pad). That an audit takes place can be seen.
)";

constexpr char kAuditExamples[] = R"(  shoal audit --config client.textproto .
  shoal audit --config client.textproto --recursive .
  shoal audit --config client.textproto package-lock.json services/api/poetry.lock
  shoal audit --config client.textproto --installed --over-rounds
  shoal audit --config client.textproto --engine simplepir --format sarif --out a.sarif .
)";

void AddAuditOptions(cli::Options& options) {
  AddConfigOption(options);
  options.add_options()("input", cli::Files(), "a file or a directory; --input may be left out");
  options.add_options()("installed", "this machine's Debian packages");
  options.add_options()("distribution", cli::Text(),
                        "of Debian packages whose file does not name it, as in OSV "
                        "records: Debian:12 (default for a status file of dpkg: this "
                        "machine's; packages of an SBOM have none)");
  options.add_options()("recursive", "read the directories below a directory, too");
  options.add_options()("partial", "accept packages that are unclear or could not be checked");
  options.add_options()("format", cli::Text(), "tsv (default), json or sarif");
  AddOutOption(options);
  AddSourceOptions(options, kDefaultAuditPad);
  options.add_options()("quiet", "print only errors on standard error");
}

}  // namespace

cli::Command Audit(Connector connect) {
  return {
      .name = "audit",
      .summary = "learn which packages have known vulnerabilities, by private lookups",
      .help = kAuditHelp,
      .examples = kAuditExamples,
      .options = AddAuditOptions,
      .positional = "input",
      .run = std::bind_front(RunAudit, std::move(connect)),
      .looks = true,
  };
}

}  // namespace shoal::commands
