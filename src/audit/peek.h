// What a file has in it whose name does not say so: enough of it to tell whether it must be named.
#ifndef SHOAL_SRC_AUDIT_PEEK_H_
#define SHOAL_SRC_AUDIT_PEEK_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace shoal::audit {

// Whether a file is source code, documentation, an image or what a compiler made, by the end of its
// name. Such files quote records and package lists, and are none.
bool IsCodeOrMedia(absl::string_view name);

// The name of a packed file without the end by which it is one: "a.json" for "a.json.gz". Empty for
// another file.
absl::string_view WithoutPacking(absl::string_view name);

// Whether a text, as Peek has it, is what a program for packing wrote.
bool IsPacked(absl::string_view text);

// A regular file of another kind: all of it up to 1 MiB, or 64 MiB for an object or a list in JSON,
// whose marks may stand anywhere; of any other what it begins and ends with. Bytes of zero and what
// says the encoding are left out, so that UTF-16 reads as ASCII. Empty for what is no regular file.
// Nothing for one that cannot be read, or JSON of more than 64 MiB.
std::optional<std::string> Peek(const std::string& path);

// Whether a text has a line that begins so, behind blanks. `beginning` begins with none, and has no
// line's end in it.
bool HasLine(absl::string_view text, absl::string_view beginning);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_PEEK_H_
