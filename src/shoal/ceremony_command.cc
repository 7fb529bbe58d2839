#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/shoal/ceremony.h"
#include "src/shoal/common.h"
#include "src/shoal/party_commands.h"

namespace shoal::commands {
namespace {

absl::Status RunCeremony(const cli::Values& values, cli::Io& io) {
  std::string directory = cli::TextOr(values, "directory", "");
  if (directory.empty()) {
    return cli::UsageError("DIR is missing: this party's directory for the ceremony");
  }
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(
      const std::vector<CeremonyStep> steps,
      ContinueCeremony(directory, cli::TextOr(values, "name", ""),
                       cli::TextOr(values, "compared", ""), NowSeconds(), random));
  int number = 0;
  bool done = true;
  for (const CeremonyStep& step : steps) {
    const char* mark = step.state == CeremonyStep::kDone  ? "[x]"
                       : step.state == CeremonyStep::kNow ? "[>]"
                                                          : "[ ]";
    io.out << mark << ' ' << ++number << ". " << step.title << '\n';
    for (const std::string& line : step.lines) io.out << "       " << line << '\n';
    done &= step.state == CeremonyStep::kDone;
  }
  io.out << (done ? "\nThe ceremony is complete.\n"
                  : absl::StrCat("\nDo what stands at [>], then run again: shoal ceremony ",
                                 directory, "\n"));
  return absl::OkStatus();
}

}  // namespace

cli::Command Ceremony() {
  return {
      .name = "ceremony",
      .summary = "set a new deployment up with its other parties, step by step",
      .help =
          R"(Each party runs this on its own host, in a directory of its own, as often as it likes:
it does what can be done, and shows what is done, what comes next, and which file goes to whom.
The files in the directory are all that it remembers, so that it may be interrupted at any
time.

  DIR/keys               this party's secrets; nobody else gets them
  DIR/NAME.announcement  of every party: its public keys
  DIR/settings.textproto what all have agreed on, the same file at every party
  DIR/roster.unsigned    made by the first party of the settings
  DIR/NAME.roster-share  of every party: its signature
  DIR/roster.textproto, pinned.textproto, party.textproto: what comes out

A roster is signed once the party says, with --compared, which fingerprint the others have read
out: 50 digits for everything in it, keys, addresses, noise and times. No file that travels can
take the place of that: whoever alters all files on their way could be every other party.

What does not fit is refused with exit code 3: an announcement that was altered, a roster with
another key or with other settings, a signature on another roster.
)",
      .examples = R"(  shoal ceremony demo --name alice      the first time
  shoal ceremony demo                   afterwards
  shoal ceremony demo --compared "41063 90817 55120 00362 71949 28445 60013 97406 18231 84457"
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("directory", cli::Directory(),
                                  "this party's directory; --directory may be left out")(
                "name", cli::Text(), "this party's name in the settings; needed once")(
                "compared", cli::Text(),
                "the roster's fingerprint as the other parties have read it out");
          },
      .positional = "directory",
      .run = RunCeremony,
  };
}

}  // namespace shoal::commands
