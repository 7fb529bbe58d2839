// The findings of `shoal audit` as text.
#ifndef SHOAL_SRC_SHOAL_AUDIT_REPORT_H_
#define SHOAL_SRC_SHOAL_AUDIT_REPORT_H_

#include <span>
#include <string>

#include "src/audit/findings.h"

namespace shoal::commands {

// A line for each finding: status, ecosystem, package, version, id, alias, first version that is
// not affected, note, files (with commas between them). Written as table::EscapeTsv does.
std::string FindingsAsTsv(std::span<const audit::Finding> findings);

// The same as one JSON object on each line.
std::string FindingsAsJson(std::span<const audit::Finding> findings);

// SARIF 2.1.0 (OASIS), one run: a rule for each advisory, a result for each finding, at the files
// that name the package. What is vulnerable is an error, everything else a warning.
std::string FindingsAsSarif(std::span<const audit::Finding> findings);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_AUDIT_REPORT_H_
