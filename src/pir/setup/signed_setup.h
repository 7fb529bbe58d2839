// Setups that all parties of a deployment signed. A setup and its hint are functions of the signed
// table, and every party makes them itself before it signs. So no server can give a client a hint
// of its own, which would mark the client for as long as the hint lives, or one that is wrong.
//
// On disk, in the directory of a signed table:
//   ENGINE.setup.textproto             wire::SignedPirSetup
//   shares/party-N.ENGINE.textproto    wire::PirSetupShare: party N's signature, on its way there
#ifndef SHOAL_SRC_PIR_SETUP_SIGNED_SETUP_H_
#define SHOAL_SRC_PIR_SETUP_SIGNED_SETUP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/pir/engine.h"
#include "src/roster/roster.h"
#include "src/table/table.h"
#include "src/wire/pir.pb.h"

namespace shoal::pir {

// A signed table's answers (row and signature) as an engine's content. Keeps the table's bytes
// alive.
Content ContentOf(const table::PreviousEpoch& table);

// The rows in which two epochs of one table differ, ascending, those of only one of them included;
// each row's signature counts too.
std::vector<uint64_t> ChangedRows(const table::PreviousEpoch& before,
                                  const table::PreviousEpoch& after);

// What all parties sign: Transcript("shoal engine setup v1") over SetupId and delta_digest, a Blob
// each.
Digest SetupMessage(const wire::SignedPirSetup& setup);

// UNAUTHENTICATED unless all parties signed the setup. INVALID_ARGUMENT for a digest of another
// length. What the setup says has not been checked.
absl::Status VerifySetup(const wire::SignedPirSetup& setup, const roster::Roster& roster);

// Whether the setup is this engine's for this table, and all parties signed it. DATA_LOSS names the
// field in which table and setup differ; INVALID_ARGUMENT as Engine::SizesOf; UNAUTHENTICATED as
// VerifySetup.
absl::Status CheckSetup(const wire::SignedPirSetup& setup, const table::Manifest& manifest,
                        const Engine& engine, const roster::Roster& roster);

std::string SetupPath(const std::string& table_directory, absl::string_view engine);
std::string SetupSharePath(const std::string& table_directory, absl::string_view engine,
                           uint32_t party);

// NOT_FOUND, naming the command that makes it, if the table has no setup of this engine. Nothing of
// it has been checked.
absl::StatusOr<wire::SignedPirSetup> ReadSetup(const std::string& table_directory,
                                               const Engine& engine);

// Verifies one share of every party and adds the signatures up. INVALID_ARGUMENT for missing,
// repeated or foreign shares, and names a party that signed another setup than the first one;
// UNAUTHENTICATED names a party whose signature is wrong.
absl::StatusOr<wire::SignedPirSetup> AggregateSetup(std::span<const wire::PirSetupShare> shares,
                                                    const table::Manifest& manifest,
                                                    const Engine& engine,
                                                    const roster::Roster& roster);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_SETUP_SIGNED_SETUP_H_
