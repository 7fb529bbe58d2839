// From an inventory to the keys that an audit asks for, and from the answers to what it found.
#ifndef SHOAL_SRC_AUDIT_FINDINGS_H_
#define SHOAL_SRC_AUDIT_FINDINGS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/audit/advisories.h"
#include "src/audit/inventory.h"
#include "src/base/bytes.h"

namespace shoal::audit {

struct Finding {
  enum class Status {
    kVulnerable,
    kUnclear,    // an advisory exists, and whether it is about this version cannot be told; or the
                 // table cannot say whether there is one; or the file does not say of which package
    kUnchecked,  // nothing could be asked, or the table does not cover the ecosystem
    kUnverified,  // no answer that all parties signed
  };
  Status status = Status::kVulnerable;
  std::string ecosystem, package, version;
  // Of the advisory. Empty for advisories that are not listed, and where there is none.
  std::string id, alias;
  // The version that is no longer affected, if the advisory names one.
  std::string fixed;
  // For people: what there is to say beside that.
  std::string note;
  // That name the package.
  std::vector<std::string> files;
};

// "vulnerable" and so on.
absl::string_view StatusName(Finding::Status status);

// A finding takes less than a kilobyte, but for the names of many files. As many as an inventory
// has packages, so that one for each always fits.
inline constexpr size_t kMaxFindings = kMaxItems;

// What an audit knows of the table's advisories. Thread-compatible.
class Audit {
 public:
  // `inventory` is what was found on this machine.
  explicit Audit(const Inventory& inventory, size_t max_findings = kMaxFindings);

  // What to ask for: every package and every ecosystem once, sorted.
  const std::vector<std::string>& keys() const { return keys_; }
  // The answer for keys()[i]: its value, or nothing if it is proved that the table has none. Keys
  // without an answer are unverified. DATA_LOSS for a value that no table of advisories has.
  absl::Status Answer(size_t i, std::optional<BytesView> value);
  // The answer for keys()[i] is that its row of the table is full and may lack it.
  void Unknown(size_t i) { unknown_.insert(keys_[i]); }

  // Everything that does not read as clean, packages in the order of their keys.
  // RESOURCE_EXHAUSTED beyond `max_findings`.
  absl::StatusOr<std::vector<Finding>> Findings() const;

  struct Counts {
    // Packages with their versions, each once.
    uint64_t packages = 0;
    uint64_t vulnerable = 0, unclear = 0, unchecked = 0, unverified = 0;
  };
  // Of the findings; a package with several counts once, for the worst.
  Counts Count(const std::vector<Finding>& findings) const;
  // What the table covers, by ecosystem; nothing for one of the inventory that it does not cover.
  const std::map<std::string, std::optional<Coverage>>& coverage() const { return coverage_; }

 private:
  // A package in one version, as sure as its files are of that.
  struct Subject {
    std::string key, version;
    Certainty certainty = Certainty::kCertain;
    auto operator<=>(const Subject&) const = default;
  };
  struct About {
    Finding finding;  // without a status, but with the names and the files
    std::string doubt;
  };

  absl::Status Judge(const Finding& about, const PackageAdvisories& package,
                     std::vector<Finding>& findings) const;
  absl::Status JudgeSubject(const Subject& subject, const About& about,
                            std::vector<Finding>& findings) const;

  const size_t max_findings_;

  std::vector<Unchecked> unchecked_;
  std::map<Subject, About> subjects_;
  std::vector<std::string> keys_;
  std::map<std::string, std::optional<Coverage>> coverage_;
  // Of the keys with an answer; nothing: absent.
  std::map<std::string, std::optional<PackageAdvisories>> answers_;
  std::set<std::string> unknown_;
};

// The name of a table of advisories begins with this; `table build --osv` gives it.
inline constexpr absl::string_view kAdvisoriesTable = "advisories";
// Whether a table of this name is one of advisories: "advisories", "advisories-pypi".
bool IsAdvisoriesTable(absl::string_view name);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_FINDINGS_H_
