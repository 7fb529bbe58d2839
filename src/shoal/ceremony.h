// One party's part in setting a deployment up: keys, settings, announcements, roster, signatures.
//
//   alice                            bob (and every other party)
//   ------ alice.announcement -------->
//   <------- bob.announcement ---------
//   assembles ------ roster.unsigned ->   (the first party of the settings assembles)
//   everybody compares the fingerprint of roster.unsigned with everybody, aloud
//   ------ alice.roster-share -------->
//   <------- bob.roster-share ---------
//   both make the same roster.textproto and pinned.textproto
//
// What is done is what lies in the party's directory: every file is written atomically, so that the
// ceremony goes on wherever it was interrupted. A file that does not fit the others is an error.
#ifndef SHOAL_SRC_SHOAL_CEREMONY_H_
#define SHOAL_SRC_SHOAL_CEREMONY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/random.h"

namespace shoal::commands {

struct CeremonyStep {
  enum State { kDone, kNow, kLater };
  State state = kLater;
  std::string title;
  std::vector<std::string> lines = {};  // what was found, or what to do
};

// Does what can be done in the directory, and returns all steps; at most one of them is kNow, and
// it says what people have to do. `name`: the party's, needed until it has keys; empty otherwise.
// `compared`: the fingerprint of the roster that the other parties have read out; empty: none.
// UNAUTHENTICATED: something was altered or is of another party or roster; the message says what it
// is, and whom to ask. INVALID_ARGUMENT, FAILED_PRECONDITION: a file cannot be used, and why.
absl::StatusOr<std::vector<CeremonyStep>> ContinueCeremony(const std::string& directory,
                                                           const std::string& name,
                                                           const std::string& compared,
                                                           uint64_t now_s, RandomSource& random);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_CEREMONY_H_
