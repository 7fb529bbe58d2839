// Lists of packages in texts of no format: requirements of pip's, and what tools print.
#ifndef SHOAL_SRC_AUDIT_LISTS_H_
#define SHOAL_SRC_AUDIT_LISTS_H_

#include "absl/strings/string_view.h"

namespace shoal::audit {

// Whether a text has a requirement of pip's with a version or an address, also as an item of a list
// in YAML or in quotes. A line may also be arithmetic, as "count >= 3" with blanks and a whole
// number: such a line counts where the text has nothing but requirements. One about a name of a
// single letter, "x == 1", counts nowhere.
bool HasRequirements(absl::string_view text);

// Whether a text has packages with their versions as tools print them: as a table, a tree, a list,
// or in JSON.
bool ListsPackages(absl::string_view text);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_LISTS_H_
