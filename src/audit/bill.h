// What the readers of bills of materials share, whatever the notation. Used by the sources of this
// library alone.
#ifndef SHOAL_SRC_AUDIT_BILL_H_
#define SHOAL_SRC_AUDIT_BILL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"

namespace shoal::audit {

// Programs about whose bills more is known than the notation says.
enum class BillTool { kOther, kSyft, kTrivy, kCdxgen, kNpm };

// What a bill of materials says about a package beside its package URL.
struct BillHints {
  // What wrote the whole bill.
  BillTool tool = BillTool::kOther;
  // Of a Debian package: whether that names every source package that is not the package's own
  // name.
  bool names_sources = false;
  // Of Go: whether that names modules alone, and no packages in them.
  bool names_modules = false;
  // Of this package, in a property of its own.
  std::string source, source_version;
  // The properties name two sources.
  bool contradicts = false;
};

// A package of a bill of materials, in any notation.
struct BillPackage {
  // As the bill has them beside the package URLs, of which each may be missing. SPDX has no group.
  std::string group = {}, name = {}, version = {};
  std::vector<std::string> urls = {};
  BillHints hints = {};
  // What the bill is about, whose parts the other packages are.
  bool is_subject = false;
  // What the bill says elsewhere that this package is, or is made from.
  std::vector<BillPackage> also = {};
  // Names of the package in the Common Platform Enumeration.
  std::vector<std::string> cpes = {};
  // Addresses and names of the archives that it is said to come in.
  std::vector<std::string> archives = {};
};

// Adds packages by their package URLs. A package may have several, each of which names it. The
// bill's one subject needs none, if the bill names something else. What contradicts a package URL
// is unchecked, beside what that names.
absl::Status AddPackages(const std::vector<BillPackage>& packages, Collector& collector);

// What is known of all the tools that wrote a bill. A plugin or a version that is not said may do
// otherwise.
class Tools {
 public:
  void Add(absl::string_view vendor, absl::string_view name, absl::string_view version);
  BillHints hints() const;

 private:
  BillTool tool_ = BillTool::kOther;
  bool is_any_ = false, names_sources_ = true;
};

// Whether a package URL names what is looked up: what lies in that is its own.
bool IsLookedUp(absl::string_view url);
// Whether an operating system has this name, as os-release and the writers of bills have it:
// "debian", "Red Hat Enterprise Linux". Anything may be called one, and only these are none of the
// packages.
bool IsSystemName(absl::string_view name);
// Whether Trivy, which has an application for each file that packages were found in, can mean a
// file or a group of them by this name. `type`: what it says of those packages; empty where a
// notation does not have it.
bool IsPlaceOfTrivy(absl::string_view name, absl::string_view type);
// Whether any of these names in the Common Platform Enumeration is of something else than an
// operating system.
bool HasCpeOfPackage(const std::vector<std::string>& cpes);

// Whether a text is one by which bills, as SPDX has it, say nothing.
inline bool SaysNothing(absl::string_view text) {
  return text.empty() || text == "NONE" || text == "NOASSERTION";
}

// The text of a member; empty if it is not there.
absl::StatusOr<std::string> TextOf(const JsonView& object, absl::string_view name);
// The items of a member; none if it is not there.
absl::StatusOr<std::vector<JsonView>> ItemsOf(const JsonView& object, absl::string_view name);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_BILL_H_
