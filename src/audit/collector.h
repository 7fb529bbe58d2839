// How the readers of single formats hand on what they find. Used by inventory.cc, lock_files.cc and
// sbom.cc alone.
#ifndef SHOAL_SRC_AUDIT_COLLECTOR_H_
#define SHOAL_SRC_AUDIT_COLLECTOR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/audit/inventory.h"

namespace shoal::audit {

// Adds what one file names to an inventory, which must outlive it.
class Collector {
 public:
  Collector(const std::string& file, const Distribution& distribution, Inventory& inventory)
      : file_(file), distribution_(distribution), inventory_(inventory) {}

  const std::string& file() const { return file_; }
  const Distribution& distribution() const { return distribution_; }

  // A package. What has no name that a package can have is unchecked. An empty version is one that
  // the file does not say. RESOURCE_EXHAUSTED beyond kMaxItems, as Skip.
  absl::Status Add(absl::string_view ecosystem, absl::string_view name, absl::string_view version);
  // Something that cannot be looked up.
  absl::Status Skip(absl::string_view what, absl::string_view why);
  void Own() { ++inventory_.own; }

  // INVALID_ARGUMENT "FILE:LINE: WHAT".
  absl::Status Wrong(uint64_t line, absl::string_view what) const;

 private:
  absl::Status CheckRoom() const;

  const std::string& file_;
  const Distribution& distribution_;
  Inventory& inventory_;
};

absl::Status ParsePackageLock(absl::string_view content, Collector& collector);
absl::Status ParsePoetryLock(absl::string_view content, Collector& collector);
absl::Status ParseCargoLock(absl::string_view content, Collector& collector);
absl::Status ParseCycloneDx(absl::string_view content, Collector& collector);
absl::Status ParseSpdxJson(absl::string_view content, Collector& collector);
absl::Status ParseSpdxTagValue(absl::string_view content, Collector& collector);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_COLLECTOR_H_
