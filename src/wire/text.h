// Protobuf text format for files that people read and write: manifests, rosters, configuration.
#ifndef SHOAL_SRC_WIRE_TEXT_H_
#define SHOAL_SRC_WIRE_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "src/base/file.h"

namespace shoal::wire {

// INVALID_ARGUMENT "NAME:LINE:COLUMN: what is wrong"; `name` is the file's, for the message.
// Unknown and repeated scalar fields are refused. `message` is replaced.
absl::Status ParseText(absl::string_view text, absl::string_view name,
                       google::protobuf::Message& message);

// Reads and parses; also the errors of shoal::ReadFile.
absl::Status ReadTextFile(const std::string& path, google::protobuf::Message& message);

std::string PrintText(const google::protobuf::Message& message);

// Atomically.
absl::Status WriteTextFile(const std::string& path, const google::protobuf::Message& message,
                           FileMode mode = FileMode::kPublic);

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_TEXT_H_
