// The programs of a party: shoald, for a party of one machine, and shoald-machines, for one of
// several.
#ifndef SHOAL_SRC_SHOALD_PROGRAM_H_
#define SHOAL_SRC_SHOALD_PROGRAM_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "src/base/random.h"
#include "src/cli/command.h"
#include "src/shoald/machine_control.h"

namespace shoal::shoald {

// Joins the job of the party's machines that has started this process. Called with the signals
// blocked that end a party, and before any thread.
using JoinJob = std::function<absl::StatusOr<std::unique_ptr<MachineJob>>(RandomSource& random)>;

// The command of shoald-machines, or of shoald if `join` is null. main must have called
// WipeWhatIsFreed. After an error of a process that has joined a job, it can only end at once
// (machines::MpiJob::Die).
cli::Command PartyCommand(JoinJob join);

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PROGRAM_H_
