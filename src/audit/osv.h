// Makes the records of a table of advisories from OSV records, the format in which the databases of
// GitHub, PyPI, RustSec, Go, Debian and others publish theirs (ossf.github.io/osv-schema).
//
// What is taken from a record: id, aliases, upstream, withdrawn, modified, published, and of each
// element of `affected` package.ecosystem, package.name, ranges and versions. Records about the
// same thing, by their ids and aliases, become one advisory of a package, which affects what any of
// them affects. A range of type GIT says nothing about versions and is left out where another range
// or `versions` speaks for the package; otherwise it makes the advisory unclear, as does a range
// with something that is no version in the ecosystem's order.
#ifndef SHOAL_SRC_AUDIT_OSV_H_
#define SHOAL_SRC_AUDIT_OSV_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/audit/advisories.h"
#include "src/table/records.h"

namespace shoal::audit {

// Thread-compatible. Memory: what is kept of the records, a few hundred bytes for each package of
// each, kMaxKeptBytes at most; and one record as it is parsed, some twenty times its bytes.
class OsvRecords {
 public:
  static constexpr size_t kMaxRecordBytes = size_t{1} << 24;
  static constexpr size_t kMaxKeptBytes = size_t{1} << 32;

  struct Counts {
    uint64_t records = 0;
    uint64_t withdrawn = 0;  // of them; they are left out
    // Packages of ecosystems that no reader here knows, by the ecosystem's family ("Maven"). Left
    // out, too: an audit never asks for one.
    std::map<std::string, uint64_t> unknown;
    // Set by Finish.
    uint64_t packages = 0, advisories = 0;
    // Packages of which not all advisories are listed, and how many are not, over all packages.
    uint64_t cut = 0, not_listed = 0;
  };

  // Adds one record. INVALID_ARGUMENT "SOURCE:LINE:COLUMN: .." or "SOURCE: affected[0].ranges: .."
  // for what is no OSV record; RESOURCE_EXHAUSTED beyond kMaxKeptBytes.
  absl::Status Add(absl::string_view json, const std::string& source);
  // Adds every file of the directory and of those in it whose name ends with ".json", in the order
  // of their names. Links to directories are not
  // followed. Errors of Add and of the files; NOT_FOUND if there are
  // none.
  absl::Status AddDirectory(const std::string& directory);

  // The table's records: each takes at most `max_bytes` of a row. RESOURCE_EXHAUSTED if one cannot.
  absl::StatusOr<table::RecordSet> Finish(size_t max_bytes);

  const Counts& counts() const { return counts_; }

 private:
  // What one record says about one package.
  struct Entry {
    std::vector<std::string> ids;  // its own first, then aliases
    std::string upstream;          // a CVE that it names, if that is one
    std::string published;
    Affected affected;
  };
  struct Package {
    std::string ecosystem;
    std::vector<Entry> entries;
  };

  absl::Status AddEntry(const std::string& ecosystem, const std::string& key, Entry entry,
                        const std::string& source);
  static std::vector<Advisory> Join(Order order, const Package& package);

  std::map<std::string, Package> packages_;
  std::map<std::string, Coverage> ecosystems_;
  size_t kept_bytes_ = 0;
  Counts counts_;
};

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_OSV_H_
