// The record of what a party has signed: one roster and one table content for every epoch, for
// ever. The record lies in the party's own directory and is durable before a signature leaves the
// machine.
#ifndef SHOAL_SRC_ROSTER_SIGNING_RECORD_H_
#define SHOAL_SRC_ROSTER_SIGNING_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/roster/roster.h"

namespace shoal::roster {

// What the party has signed last of `name`, if anything. DATA_LOSS if the record is damaged.
absl::StatusOr<std::optional<SeenEpoch>> LastSigned(const std::string& keys_directory,
                                                    absl::string_view name);

// Stores that the party is about to sign `digest` as `epoch` of `name` ("roster demo", "table
// 3f09.."; [A-Za-z0-9._ -] alone). UNAUTHENTICATED if it has signed another content for that epoch,
// or a later epoch. Recording the same again is OK. Processes that call it at the same time wait
// for each other.
absl::Status RecordSigning(const std::string& keys_directory, absl::string_view name,
                           uint64_t epoch, const Digest& digest);

// Copies the record to a party's renewed keys, and ends this one: what these keys signed later
// would be unknown to the others. Makes the renewed keys' directory, which is new.
// FAILED_PRECONDITION if the record was handed on before: the message says how to give the earlier
// renewal up.
absl::Status HandRecordOn(const std::string& keys_directory, const std::string& renewed_directory);

}  // namespace shoal::roster

#endif  // SHOAL_SRC_ROSTER_SIGNING_RECORD_H_
