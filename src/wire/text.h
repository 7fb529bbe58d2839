// Protobuf text format for files that people read and write: manifests, rosters, configuration.
#ifndef SHOAL_SRC_WIRE_TEXT_H_
#define SHOAL_SRC_WIRE_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "src/storage/file.h"

namespace shoal::wire {

// Parses `text` and replaces `message`. Unknown fields, and scalar fields that come twice, are
// refused. INVALID_ARGUMENT "NAME:LINE:COLUMN: what is wrong", where `name` is the file's.
absl::Status ParseText(absl::string_view text, absl::string_view name,
                       google::protobuf::Message& message);

// Reads a file and parses it as ParseText does. Also returns the errors of shoal::ReadFile.
absl::Status ReadTextFile(const std::string& path, google::protobuf::Message& message);

std::string PrintText(const google::protobuf::Message& message);

// Writes the file atomically.
absl::Status WriteTextFile(const std::string& path, const google::protobuf::Message& message,
                           FileMode mode = FileMode::kPublic);

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_TEXT_H_
