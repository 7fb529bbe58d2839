// What a table of advisories says about one package, and whether a version is affected.
//
// The table has a record for each package with advisories (version.h, PackageKey), and one for each
// ecosystem that it covers, with the ecosystem's name as key. Without the latter a package that is
// not in the table would read as one without advisories.
//
// Encoding of a package's value. Numbers are base 128, low group first, in the shortest form; a
// text is its length and its bytes.
//
//     1                     this format
//     versions              count, then texts, strictly rising by bytes: every version named below
//     listed                count, then for each advisory: id, alias (or empty), affected
//     more                  count of the advisories that are not listed
//     affected              all that these affect together, if there are any
//
// where affected is
//
//     unclear               0 or 1
//     intervals             count, then for each: from, to
//     versions              count, then places in the list of versions, strictly rising
//
// from is 0 for "from the first version" or the place + 1 of the first version affected; to is 0
// for "without end", 2 place + 1 for the first version not affected (the fix), 2 place + 2 for the
// last one affected.
//
// A value of an ecosystem: 2, the count of advisories, the count of packages, and a text: the time
// of the newest change of any advisory, as OSV has it. Or 3, the same, and the count of records
// that could not be read, which is not 0.
#ifndef SHOAL_SRC_AUDIT_ADVISORIES_H_
#define SHOAL_SRC_AUDIT_ADVISORIES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/audit/version.h"
#include "src/base/bytes.h"

namespace shoal::audit {

// Versions from `from` (nothing: the first) to `to` (nothing: without end).
struct Interval {
  std::optional<std::string> from;
  std::optional<std::string> to;
  bool to_is_affected = false;
  bool operator==(const Interval&) const = default;
};

struct Affected {
  std::vector<Interval> intervals;
  // Single versions.
  std::vector<std::string> versions;
  // Whether other versions may be affected, which nobody can tell from the record: a range in an
  // order that is not the ecosystem's, or with something that is no version.
  bool unclear = false;
  bool operator==(const Affected&) const = default;
};

struct Advisory {
  std::string id;
  // Another name of the same: its CVE, if it has one. May be empty.
  std::string alias;
  Affected affected;
  bool operator==(const Advisory&) const = default;
};

struct PackageAdvisories {
  std::vector<Advisory> listed;
  // How many more there are, and what they affect together.
  uint64_t more = 0;
  Affected rest;
  bool operator==(const PackageAdvisories&) const = default;
};

struct Coverage {
  uint64_t advisories = 0;
  uint64_t packages = 0;
  std::string modified;
  // Records that could not be read, and of which nobody knows about which packages they are: any
  // package of the ecosystem may have an advisory that the table lacks.
  uint64_t unread = 0;
  bool operator==(const Coverage&) const = default;
};

inline constexpr size_t kMaxIdBytes = 128;

// The most bytes of a value.
inline constexpr size_t kMaxAdvisoryBytes = 65535;

Bytes Encode(const PackageAdvisories& package);
Bytes Encode(const Coverage& coverage);
// DATA_LOSS for anything but the encoding of one package's advisories, or of one ecosystem.
absl::StatusOr<PackageAdvisories> DecodePackage(BytesView value);
absl::StatusOr<Coverage> DecodeCoverage(BytesView value);

// The union: intervals rising and apart from each other, and no single version that lies in one of
// them. Intervals that cannot be read in this order make it unclear. Those with a local label at an
// end follow, each as it is: such an end takes more of a version into account than others do.
Affected Union(Order order, const std::vector<const Affected*>& parts);

// The advisories of a package, the most important first, in at most `max_bytes`: as many are listed
// as fit, and of the others it is kept how many there are and what they affect together, so that
// the verdict on a version does not depend on what fits. If even that does not fit, `rest` is
// unclear: no version then reads as free of advisories. RESOURCE_EXHAUSTED if `max_bytes` is less
// than 16.
absl::StatusOr<PackageAdvisories> Fit(Order order, const std::vector<Advisory>& advisories,
                                      size_t max_bytes);

enum class Verdict { kNotAffected, kAffected, kUnclear };
struct Judgement {
  Verdict verdict = Verdict::kNotAffected;
  // The first version after this one that is not affected, where an interval ends with it.
  std::string fixed;
};
// Whether a version is affected. Unclear: the version, or what it would have to be compared with,
// is none in this order. What an advisory says of "1.13.0" it says of "1.13.0+cu117", too, which
// nobody could name otherwise (CompareWithBound).
Judgement Judge(Order order, absl::string_view version, const Affected& affected);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_ADVISORIES_H_
