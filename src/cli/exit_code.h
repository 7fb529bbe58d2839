// Exit codes of Shoal's programs.
#ifndef SHOAL_SRC_CLI_EXIT_CODE_H_
#define SHOAL_SRC_CLI_EXIT_CODE_H_

#include "absl/status/status.h"

namespace shoal::cli {

enum ExitCode : int {
  kExitOk = 0,
  // Something went wrong: a file, the network, bad input. Of a command that looks for something:
  // that was found (FoundError, command.h).
  kExitFailed = 1,
  // The command line is wrong.
  kExitUsage = 2,
  // Something cannot be trusted: a signature, a digest, an expiry, a pinned key.
  kExitVerification = 3,
  // Nothing went wrong, but not everything that was asked is known (IncompleteError, command.h).
  kExitIncomplete = 4,
  // What kExitFailed is elsewhere, of a command that looks for something (Command::looks).
  kExitNotDone = 5,
};

// UNAUTHENTICATED and DATA_LOSS are kExitVerification, other errors kExitFailed.
inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kDataLoss:
      return kExitVerification;
    default:
      return kExitFailed;
  }
}

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_EXIT_CODE_H_
