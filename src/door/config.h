// Reads a door's configuration file.
#ifndef SHOAL_SRC_DOOR_CONFIG_H_
#define SHOAL_SRC_DOOR_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/address_block.h"
#include "src/base/secret.h"
#include "src/door/config.pb.h"
#include "src/door/door.h"
#include "src/door/tokens.h"
#include "src/roster/roster.h"

namespace shoal::door {

// Parses the file, makes its paths absolute and fills in the defaults. INVALID_ARGUMENT names the
// file, the line and the fault; NOT_FOUND without a file.
absl::StatusOr<DoorConfig> ReadDoorConfig(const std::string& path);

// What the configuration says of a door, of one that ReadDoorConfig returned, with the frontend as
// the roster describes it. The certificate is left to the caller.
Door::Options OptionsFrom(const DoorConfig& config, const roster::Roster& roster);

// The roster and the pins that the configuration names. Errors of the files and of
// roster::Roster::Verify and roster::CheckOneTier.
absl::StatusOr<roster::Roster> ReadRoster(const DoorConfig& config, uint64_t now_s);
// Whether a door that runs may take `next` in place of `roster`: of the same deployment, and no
// older. FAILED_PRECONDITION.
absl::Status CheckSuccessor(const roster::Roster& roster, const roster::Roster& next);

// The issuers whose tokens the door takes. Errors of the files and of TokenRules::Create.
absl::StatusOr<TokenRules> ReadTokenRules(const DoorConfig& config);

// The files of the certificate. Empty if the configuration names none.
struct Certificate {
  std::string chain_pem;
  SecretVector<uint8_t> key_pem;

  // PERMISSION_DENIED if others may read the key; NOT_FOUND; INVALID_ARGUMENT if one does not fit
  // the other, or the certificate has expired.
  static absl::StatusOr<Certificate> Read(const DoorConfig& config, uint64_t now_s);
  // Refers to this object.
  net::Identity identity() const;
  // Seconds since 1970.
  uint64_t expires_s() const;

  bool operator==(const Certificate&) const = default;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_CONFIG_H_
