#include "src/audit/findings.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/audit/version.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

// Where everybody can read on. Whoever opens it tells that site which package is meant.
std::string Elsewhere(const Finding& about) {
  return absl::StrCat("look for ", about.package, " of ", about.ecosystem,
                      " in a copy of the advisories, or at osv.dev, which then knows that you did");
}

std::string Advisories(uint64_t count) {
  return absl::StrCat(count, count == 1 ? " advisory" : " advisories");
}

absl::Status CheckCount(size_t findings, size_t most) {
  if (findings <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("more than ", most, " findings: audit fewer packages at a time"));
}

}  // namespace

absl::string_view StatusName(Finding::Status status) {
  switch (status) {
    case Finding::Status::kVulnerable:
      return "vulnerable";
    case Finding::Status::kUnclear:
      return "unclear";
    case Finding::Status::kUnchecked:
      return "unchecked";
    case Finding::Status::kUnverified:
      return "unverified";
  }
  return "";
}

bool IsAdvisoriesTable(absl::string_view name) {
  return absl::ConsumePrefix(&name, kAdvisoriesTable) && (name.empty() || name[0] == '-');
}

Audit::Audit(const Inventory& inventory, size_t max_findings)
    : max_findings_(max_findings), unchecked_(inventory.unchecked) {
  std::set<std::string> keys;
  for (const Item& item : inventory.items) {
    const auto key = PackageKey(item.ecosystem, item.name);
    SHOAL_CHECK(key.ok() && OrderOf(item.ecosystem).has_value());  // else the reader skips it
    About& about = subjects_[{*key, item.version, item.certainty}];
    about.finding.ecosystem = item.ecosystem;
    about.finding.package = item.name;
    about.finding.version = item.version;
    about.doubt = item.doubt;
    if (std::ranges::find(about.finding.files, item.file) == about.finding.files.end()) {
      about.finding.files.push_back(item.file);
    }
    keys.insert(*key);
    keys.insert(item.ecosystem);
    coverage_[item.ecosystem];
  }
  keys_.assign(keys.begin(), keys.end());
}

absl::Status Audit::Answer(size_t i, std::optional<BytesView> value) {
  const std::string& key = keys_[i];
  const auto ecosystem = coverage_.find(key);
  if (ecosystem != coverage_.end()) {
    if (value.has_value()) {
      SHOAL_ASSIGN_OR_RETURN(ecosystem->second, DecodeCoverage(*value));
    }
    answers_[key] = std::nullopt;
    return absl::OkStatus();
  }
  std::optional<PackageAdvisories> answer;
  if (value.has_value()) {
    SHOAL_ASSIGN_OR_RETURN(answer, DecodePackage(*value));
  }
  answers_[key] = std::move(answer);
  return absl::OkStatus();
}

absl::Status Audit::Judge(const Finding& about, const PackageAdvisories& package,
                          std::vector<Finding>& findings) const {
  const Order order = *OrderOf(about.ecosystem);
  const auto add = [&](Finding::Status status, const std::string& note) -> Finding& {
    Finding finding = about;
    finding.status = status;
    finding.note = note;
    findings.push_back(std::move(finding));
    return findings.back();
  };
  if (about.version.empty()) {
    const uint64_t count = package.listed.size() + package.more;
    if (count > 0) {
      add(Finding::Status::kUnclear, absl::StrCat("no version is pinned, and ", Advisories(count),
                                                  count == 1 ? " is" : " are", " about some"));
    }
    return absl::OkStatus();
  }
  for (const Advisory& advisory : package.listed) {
    const Judgement judgement = audit::Judge(order, about.version, advisory.affected);
    if (judgement.verdict == Verdict::kNotAffected) continue;
    const bool affected = judgement.verdict == Verdict::kAffected;
    Finding& finding =
        add(affected ? Finding::Status::kVulnerable : Finding::Status::kUnclear,
            affected ? "" : "the versions that it is about cannot be compared with this one");
    finding.id = advisory.id;
    finding.alias = advisory.alias;
    finding.fixed = judgement.fixed;
    // Here too: one package has as many as its row of the table holds.
    SHOAL_RETURN_IF_ERROR(CheckCount(findings.size(), max_findings_));
  }
  if (package.more == 0) return absl::OkStatus();
  const Judgement rest = audit::Judge(order, about.version, package.rest);
  if (rest.verdict == Verdict::kAffected) {
    add(Finding::Status::kVulnerable,
        absl::StrCat(Advisories(package.more),
                     " more, of which at least one affects this version, did not fit into the "
                     "table: ",
                     Elsewhere(about)));
  } else if (rest.verdict == Verdict::kUnclear) {
    add(Finding::Status::kUnclear,
        absl::StrCat(Advisories(package.more),
                     " more did not fit into the table: ", Elsewhere(about)));
  }
  return absl::OkStatus();
}

absl::Status Audit::JudgeSubject(const Subject& subject, const About& about,
                                 std::vector<Finding>& findings) const {
  const auto add = [&](Finding::Status status, std::string note) {
    Finding finding = about.finding;
    finding.status = status;
    finding.note = std::move(note);
    findings.push_back(std::move(finding));
  };
  const std::string& ecosystem = about.finding.ecosystem;
  const auto answer = answers_.find(subject.key);
  if (unknown_.contains(subject.key) || unknown_.contains(ecosystem)) {
    add(Finding::Status::kUnclear,
        "its row of the table is full, and may lack it until the next term");
    return absl::OkStatus();
  }
  if (answer == answers_.end() || !answers_.contains(ecosystem)) {
    add(Finding::Status::kUnverified, "no answer that could be verified");
    return absl::OkStatus();
  }
  if (!coverage_.at(ecosystem).has_value()) {
    add(Finding::Status::kUnchecked, absl::StrCat("the table has no advisories of ", ecosystem));
    return absl::OkStatus();
  }
  const size_t before = findings.size();
  if (answer->second.has_value()) {
    SHOAL_RETURN_IF_ERROR(Judge(about.finding, *answer->second, findings));
  }
  if (subject.certainty == Certainty::kDoubtful && findings.size() == before) {
    add(Finding::Status::kUnclear, about.doubt);
  }
  if (subject.certainty != Certainty::kPossible) return absl::OkStatus();
  for (size_t i = before; i < findings.size(); ++i) {
    findings[i].status = Finding::Status::kUnclear;
    findings[i].note =
        absl::StrCat(about.doubt, findings[i].note.empty() ? "" : "; ", findings[i].note);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Finding>> Audit::Findings() const {
  std::vector<Finding> findings;
  for (const auto& [subject, about] : subjects_) {
    const bool is_named = subject.certainty == Certainty::kPossible &&
                          subjects_.contains({subject.key, subject.version, Certainty::kCertain});
    if (!is_named) SHOAL_RETURN_IF_ERROR(JudgeSubject(subject, about, findings));
    SHOAL_RETURN_IF_ERROR(CheckCount(findings.size(), max_findings_));
  }
  for (const auto& [ecosystem, coverage] : coverage_) {
    if (!coverage.has_value() || coverage->unread == 0) continue;
    Finding finding;
    finding.status = Finding::Status::kUnclear;
    finding.ecosystem = ecosystem;
    finding.note = absl::StrCat(
        "the table lacks ", coverage->unread, coverage->unread == 1 ? " record" : " records",
        " that could not be read when it was built, and that may be about any package");
    findings.push_back(std::move(finding));
  }
  for (const Unchecked& unchecked : unchecked_) {
    Finding finding;
    finding.status = Finding::Status::kUnchecked;
    finding.package = unchecked.what;
    finding.note = unchecked.why;
    finding.files = {unchecked.file};
    findings.push_back(std::move(finding));
    SHOAL_RETURN_IF_ERROR(CheckCount(findings.size(), max_findings_));
  }
  return findings;
}

Audit::Counts Audit::Count(const std::vector<Finding>& findings) const {
  Counts counts;
  std::set<std::pair<absl::string_view, absl::string_view>> named;
  for (const auto& [subject, about] : subjects_) {
    if (subject.certainty != Certainty::kPossible) named.emplace(subject.key, subject.version);
  }
  counts.packages = named.size() + unchecked_.size();
  // The first status of each package is the worst that it can have beside "unclear".
  std::map<std::pair<std::string, std::string>, Finding::Status> worst;
  for (const Finding& finding : findings) {
    if (finding.ecosystem.empty()) {
      ++counts.unchecked;
      continue;
    }
    const auto key = PackageKey(finding.ecosystem, finding.package);
    // Of a whole ecosystem: what the table lacks.
    const std::string place = key.ok() ? *key : finding.ecosystem;
    const auto [at, is_new] = worst.try_emplace({place, finding.version}, finding.status);
    if (!is_new) at->second = std::min(at->second, finding.status);
  }
  for (const auto& [place, status] : worst) {
    counts.vulnerable += status == Finding::Status::kVulnerable;
    counts.unclear += status == Finding::Status::kUnclear;
    counts.unchecked += status == Finding::Status::kUnchecked;
    counts.unverified += status == Finding::Status::kUnverified;
  }
  return counts;
}

}  // namespace shoal::audit
