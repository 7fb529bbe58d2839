// Commands of a program, such as `shoal table build --tsv FILE`. A command declares its options
// with boost::program_options and gets the parsed values. This file does the parsing, --help and
// error reports.
//
//   const Command kStatus = {
//       .name = "status",
//       .summary = "show a deployment's open rounds",
//       .help = "Asks the frontend ...",
//       .examples = "  shoal status --config client.textproto\n",
//       .options = [](Options& options) {
//         options.add_options()("config", Text()->required(), "the client's configuration");
//       },
//       .run = [](const Values& values, Io& io) -> absl::Status { ... },
//   };
//
// Results go to io.out (standard output), everything else to io.err (standard error).
#ifndef SHOAL_SRC_CLI_COMMAND_H_
#define SHOAL_SRC_CLI_COMMAND_H_

#include <cstdint>
#include <functional>
#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/program_options.hpp"
#include "src/cli/exit_code.h"

namespace shoal::cli {

using Options = boost::program_options::options_description;
using Values = boost::program_options::variables_map;

// A number from the command line: a whole one, or one with a suffix k, M or G for powers of 1,000,
// which may then have decimals as long as it is whole ("2.5M"). "-1", "1x" and "1.5" are errors,
// unlike in boost's own reading of unsigned types.
struct Count {
  uint64_t value = 0;
};
void validate(boost::any& value, const std::vector<std::string>& texts, Count*, int);
inline auto* Number() { return boost::program_options::value<Count>()->value_name("N"); }
inline auto* Texts() {
  return boost::program_options::value<std::vector<std::string>>()->value_name("TEXT");
}
inline auto* Files() {
  return boost::program_options::value<std::vector<std::string>>()->value_name("FILE");
}
inline auto* Text() { return boost::program_options::value<std::string>()->value_name("TEXT"); }
inline auto* File() { return boost::program_options::value<std::string>()->value_name("FILE"); }
inline auto* Directory() { return boost::program_options::value<std::string>()->value_name("DIR"); }

// What a command writes to `out` and `err` is Printable when it comes out (RunProgram).
struct Io {
  std::ostream& out;
  std::ostream& err;
  std::istream& in;
  // Whether a progress bar may be drawn.
  bool err_is_terminal;
  // Where: `err` as it is, which takes what moves a cursor. Only for bars.
  std::ostream* terminal = nullptr;

  std::ostream& bars() { return terminal != nullptr ? *terminal : err; }
};

struct Command {
  // One or two words: "status", "table build".
  std::string name;
  // One line.
  std::string summary;
  // What the command does, in one or a few paragraphs.
  std::string help;
  // Command lines and what they do, indented by two.
  std::string examples;
  std::function<void(Options&)> options;
  // The option that takes arguments without an option's name; it must take a vector of strings (or
  // one string). If empty, such arguments are refused.
  std::string positional;
  std::function<absl::Status(const Values&, Io&)> run;
  // Whether it looks for something, so that to find it (FoundError, kExitFailed) must not be taken
  // for a failure, which is kExitNotDone then.
  bool looks = false;
};

// The number of such a text. INVALID_ARGUMENT says what was expected.
absl::StatusOr<uint64_t> ParseCount(absl::string_view text);

// The same for numbers below 2^32.
absl::StatusOr<uint32_t> ParseSmallCount(absl::string_view text);

// The option's value, or `otherwise` if it was not given.
std::string TextOr(const Values& values, const char* option, absl::string_view otherwise);
uint64_t NumberOr(const Values& values, const char* option, uint64_t otherwise);
// The same, or 2^32 - 1 if the number is larger. Its range is checked later.
uint32_t SmallOr(const Values& values, const char* option, uint32_t otherwise);
// A number of MiB, in bytes. No more than 2^60: no machine has that.
uint64_t MebibytesOr(const Values& values, const char* option, uint64_t otherwise_mib);
// A number that need not be whole, with the same suffixes: "0.5", "1e-6", "2.5k". A usage error for
// any other text, "inf" and "nan" included.
absl::StatusOr<double> RealOr(const Values& values, const char* option, double otherwise);
std::vector<std::string> TextsOf(const Values& values, const char* option);

// An error for a well-formed command line that makes no sense. The program then ends with
// kExitUsage.
absl::Status UsageError(absl::string_view message);
// Whether the option's value is `other`, and not `usual`, which is the default. A usage error for
// any other value.
absl::StatusOr<bool> Chosen(const Values& values, const char* option, absl::string_view usual,
                            absl::string_view other);
bool IsUsageError(const absl::Status& status);
// The end of a command that has done what it could, and whose results say for themselves what is
// not known yet. The program then ends with kExitIncomplete.
absl::Status IncompleteError(absl::string_view message);

// The end of a command that has found what it looks for. The program then ends with kExitFailed.
absl::Status FoundError(absl::string_view message);

// Finds the command, parses its options, runs it and reports errors. Returns what main() must
// return. `arguments` lack the program's name. Throws nothing.
ExitCode RunProgram(const std::string& program, const std::string& summary,
                    std::span<const Command> commands, std::span<const std::string> arguments,
                    Io& io);

// As above with the process's arguments and streams.
int Main(const std::string& program, const std::string& summary, std::span<const Command> commands,
         int argc, const char* const* argv);

// A program of one command, which has the program's name.
int MainOfOne(const Command& command, int argc, const char* const* argv);

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_COMMAND_H_
