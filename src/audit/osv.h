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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/audit/advisories.h"
#include "src/table/records.h"

namespace shoal::audit {

class JsonView;

// Of several copies of one record, by its id, the one that was modified last counts, also where it
// is withdrawn and the others are not.
//
// Thread-compatible. Memory: what is kept of the records, a few hundred bytes for each package of
// each, kMaxKeptBytes at most; and one record as it is parsed, some twenty times its bytes.
class OsvRecords {
 public:
  static constexpr size_t kMaxRecordBytes = size_t{1} << 24;
  static constexpr size_t kMaxKeptBytes = size_t{1} << 32;

  struct Counts {
    uint64_t records = 0;
    // Records that were no records, or that have more in them than is understood. Every package
    // that one is about is unclear.
    uint64_t left_out = 0;
    // What was wrong with the first of them, and where.
    std::string first_left_out;
    // Of them, or beside them: of which nobody knows about which packages they are (Coverage).
    uint64_t unread = 0;
    uint64_t older = 0;  // copies of records, of which a newer one counts
    // Set by Finish.
    uint64_t withdrawn = 0;  // records; they are left out
    // Packages of ecosystems that no reader here knows, by the ecosystem's family ("Maven"). Left
    // out, too: an audit never asks for one.
    std::map<std::string, uint64_t> unknown;
    uint64_t packages = 0, advisories = 0;
    // Packages of which not all advisories are listed, and how many are not, over all packages.
    uint64_t cut = 0, not_listed = 0;
  };
  // What to do with a record that cannot be read.
  enum class Odd { kRefuse, kLeaveOut };

  // Adds one record. INVALID_ARGUMENT "SOURCE:LINE:COLUMN: .." or "SOURCE: affected[0].ranges: .."
  // for what is no OSV record, unless it is to be left out; RESOURCE_EXHAUSTED beyond
  // kMaxKeptBytes.
  absl::Status Add(absl::string_view json, const std::string& source, Odd odd = Odd::kRefuse);
  // Adds every file of the directory and of those in it whose name ends with ".json", in the order
  // of their names. What else could hold records is odd: a record in YAML, or in RustSec's TOML,
  // without a copy in JSON; a packed file without its content beside it; lines of JSON; *.osv; and
  // a link to a directory outside, as links are not followed. Errors of Add and of the files;
  // NOT_FOUND if there are none.
  absl::Status AddDirectory(const std::string& directory, Odd odd = Odd::kRefuse);

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
  struct Record {
    std::string id;
    std::string modified;
    bool withdrawn = false;
    std::vector<std::pair<std::string, Entry>> entries;  // by the package's key
    // What it says about the packages of a name in all releases of a family ("Debian").
    std::vector<std::pair<std::string, Entry>> of_families;
    std::map<std::string, uint64_t> unknown;
    size_t bytes = 0;
  };

  static size_t BytesOf(absl::string_view key, const Entry& entry);
  static absl::StatusOr<Record> Read(absl::string_view json, const std::string& source);
  // What a record says of itself, whatever the package.
  static absl::StatusOr<Entry> ReadHead(const JsonView& whole, Record& record);
  // What it says of packages.
  static absl::Status ReadPackages(const JsonView& whole, const Entry& entry, Record& record);
  absl::Status Keep(Record record, const std::string& source);
  // Counts a record that could not be read because of `why`, and makes unclear what it is about.
  absl::Status LeaveOut(absl::string_view json, const std::string& source, const absl::Status& why);
  // Counts something of which nobody knows what it is about, or refuses it.
  absl::Status LeaveUnread(const absl::Status& why, Odd odd);
  void CountLeftOut(const absl::Status& why);
  absl::Status Charge(size_t bytes, const std::string& source);
  static std::vector<Advisory> Join(Order order, const std::vector<Entry>& entries);

  std::map<std::string, Record> records_;  // by id
  // In place of records that could not be read.
  std::vector<Record> odd_;
  // Records that could not be read, by the ecosystem that they name.
  std::map<std::string, uint64_t> unread_of_;
  size_t kept_bytes_ = 0;
  Counts counts_;
};

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_OSV_H_
