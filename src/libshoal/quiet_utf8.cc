// Keeps a peer from writing to standard error through this library.
//
// libprotobuf's VerifyUTF8, which generated code calls for every `string` that it parses, writes a
// line to the process's log when a peer sent something that is not UTF-8. The log is one for the
// whole process, so that a library cannot silence it. This function has the same name and stands in
// for it in libshoal.so alone: the linker binds the generated code to it, and the version script
// hides it from everybody else.
#include "google/protobuf/parse_context.h"
#include "google/protobuf/stubs/common.h"

namespace google::protobuf::internal {

bool VerifyUTF8(StringPiece text, const char*) {
  return IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()));
}

}  // namespace google::protobuf::internal
