#include "src/cli/command.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/stubs/logging.h"
#include "src/base/sodium_init.h"
#include "src/base/version.h"
#include "src/cli/json.h"
#include "src/cli/printable_stream.h"

namespace shoal::cli {
namespace {

namespace po = boost::program_options;

constexpr char kUsagePayload[] = "shoal/usage-error";
constexpr char kIncompletePayload[] = "shoal/incomplete";
constexpr char kFoundPayload[] = "shoal/found";

constexpr struct {
  ExitCode code;
  const char* meaning;
} kExitCodes[] = {
    {kExitOk, "done"},
    {kExitFailed, "failed"},
    {kExitUsage, "wrong usage"},
    {kExitVerification, "something to be trusted is not"},
    {kExitIncomplete, "not all that was asked is known yet"},
    {kExitNotDone, "failed, of a command whose 1 says that it found something"},
};

// Takes a suffix away and returns how many zeros it stands for.
int ZerosOf(absl::string_view& text) {
  const int zeros = absl::EndsWith(text, "k")   ? 3
                    : absl::EndsWith(text, "M") ? 6
                    : absl::EndsWith(text, "G") ? 9
                                                : 0;
  if (zeros > 0) text.remove_suffix(1);
  return zeros;
}

std::vector<std::string> Words(const std::string& name) { return absl::StrSplit(name, ' '); }

bool StartsWith(std::span<const std::string> arguments, const std::vector<std::string>& words) {
  return arguments.size() >= words.size() &&
         std::equal(words.begin(), words.end(), arguments.begin());
}

void PrintCommands(std::span<const Command> commands, absl::string_view group, std::ostream& out) {
  size_t width = 0;
  for (const Command& command : commands) width = std::max(width, command.name.size());
  for (const Command& command : commands) {
    if (!group.empty() && Words(command.name)[0] != group) continue;
    out << "  " << command.name << std::string(width - command.name.size() + 2, ' ')
        << command.summary << "\n";
  }
}

// "shoal query", or "shoald" for a program of one command.
std::string FullName(const std::string& program, const std::string& command) {
  return command.empty() ? program : absl::StrCat(program, " ", command);
}

void PrintCommandHelp(const std::string& program, const Command& command, const Options& options,
                      std::ostream& out) {
  out << "usage: " << FullName(program, command.name) << " [options]";
  if (!command.positional.empty()) out << " " << command.positional;
  out << "\n\n" << command.help;
  if (!command.help.empty() && command.help.back() != '\n') out << "\n";
  out << "\n" << options;
  if (!command.examples.empty()) out << "\nExamples:\n" << command.examples;
}

std::string DescriptionOf(const Command& command) {
  Options declared;
  if (command.options) command.options(declared);
  std::vector<std::string> options;
  for (const auto& option : declared.options()) {
    const po::value_semantic& value = *option->semantic();
    options.push_back(JsonObject()
                          .Text("name", option->long_name())
                          .Text("value", value.max_tokens() == 0 ? "" : value.name())
                          .Bool("required", value.is_required())
                          .Text("text", option->description())
                          .Take());
  }
  return JsonObject()
      .Text("name", command.name)
      .Text("summary", command.summary)
      .Text("help", command.help)
      .Text("examples", command.examples)
      .Text("positional", command.positional)
      .Raw("options", JsonArray(options))
      .Take();
}

// One line of JSON that says all that --help says, of every command: man pages and completions are
// made of it.
void Describe(const std::string& program, const std::string& summary,
              std::span<const Command> commands, std::ostream& out) {
  std::vector<std::string> exit_codes, described;
  for (const auto& [code, meaning] : kExitCodes) {
    if (code == kExitIncomplete && commands.size() == 1) continue;  // parties ask for nothing
    if (code == kExitNotDone && !std::ranges::any_of(commands, &Command::looks)) continue;
    exit_codes.push_back(JsonObject().Integer("code", code).Text("meaning", meaning).Take());
  }
  for (const Command& command : commands) described.push_back(DescriptionOf(command));
  out << JsonObject()
             .Text("program", program)
             .Text("version", kVersion)
             .Text("summary", summary)
             .Raw("exit_codes", JsonArray(exit_codes))
             .Raw("commands", JsonArray(described))
             .Take()
      << "\n";
}

// Streams for commands over those of the process.
struct PrintableIo {
  explicit PrintableIo(Io& raw)
      : out(raw.out),
        err(raw.err),
        io{.out = out,
           .err = err,
           .in = raw.in,
           .err_is_terminal = raw.err_is_terminal,
           .terminal = &raw.bars()} {}

  PrintableStream out, err;
  Io io;
};

ExitCode UsageFailure(const std::string& program, const std::string& command,
                      absl::string_view message, Io& io) {
  const std::string name = FullName(program, command);
  io.err << name << ": " << MessageText(message) << "\nsee: " << name << " --help\n";
  return kExitUsage;
}

ExitCode RunCommand(const std::string& program, const Command& command,
                    std::span<const std::string> arguments, Io& io) {
  Options options("Options", 100, 60);
  if (command.options) command.options(options);
  options.add_options()("help,h", "print this and exit");
  Values values;
  try {
    po::positional_options_description positional;
    if (!command.positional.empty()) positional.add(command.positional.c_str(), -1);
    po::command_line_parser parser(std::vector<std::string>(arguments.begin(), arguments.end()));
    parser.options(options).positional(positional);
    // Options are not abbreviated: an abbreviation could become ambiguous when an option is added.
    parser.style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing);
    po::store(parser.run(), values);
    // Comes before notify(), which checks for required options.
    if (values.count("help") > 0) {
      PrintCommandHelp(program, command, options, io.out);
      return kExitOk;
    }
    po::notify(values);
  } catch (const po::error& error) {
    return UsageFailure(program, command.name, error.what(), io);
  }
  absl::Status status;
  try {
    status = command.run(values, io);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  io.out.flush();
  if (status.ok() && !io.out.good()) status = absl::UnavailableError("cannot write the results");
  if (status.ok()) return kExitOk;
  if (IsUsageError(status)) {
    return UsageFailure(program, command.name, std::string(status.message()), io);
  }
  io.err << FullName(program, command.name) << ": " << MessageText(status.message()) << "\n";
  if (status.GetPayload(kIncompletePayload).has_value()) return kExitIncomplete;
  const ExitCode code = ExitCodeOf(status);
  const bool failed = code == kExitFailed && !status.GetPayload(kFoundPayload).has_value();
  return command.looks && failed ? kExitNotDone : code;
}

}  // namespace

absl::StatusOr<uint64_t> ParseCount(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
      "expected a whole number, or one with k, M or G behind it for thousands, millions or "
      "thousands of millions, such as 2500k or 2.5M; got '",
      text, "'"));
  absl::string_view digits = text;
  int zeros = ZerosOf(digits);
  absl::string_view decimals;
  if (const size_t point = digits.find('.'); point != absl::string_view::npos) {
    decimals = digits.substr(point + 1);
    digits = digits.substr(0, point);
    if (decimals.empty()) return bad;
    while (absl::EndsWith(decimals, "0")) decimals.remove_suffix(1);
    // Without a suffix there are none, not even zeros: "1.000" is a thousand to some.
    if (zeros == 0 || decimals.size() > static_cast<size_t>(zeros)) return bad;
    zeros -= static_cast<int>(decimals.size());
  }
  if (digits.empty()) return bad;
  uint64_t number = 0;
  const std::string all =
      absl::StrCat(digits, decimals, std::string(static_cast<size_t>(zeros), '0'));
  if (all.size() > 40 || !std::ranges::all_of(all, [](char c) { return c >= '0' && c <= '9'; }) ||
      !absl::SimpleAtoi(all, &number)) {
    return bad;
  }
  return number;
}

absl::StatusOr<uint32_t> ParseSmallCount(absl::string_view text) {
  const absl::StatusOr<uint64_t> number = ParseCount(text);
  if (!number.ok()) return number.status();
  if (*number > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large"));
  }
  return static_cast<uint32_t>(*number);
}

void validate(boost::any& value, const std::vector<std::string>& texts, Count*, int) {
  po::validators::check_first_occurrence(value);
  const absl::StatusOr<uint64_t> number = ParseCount(po::validators::get_single_string(texts));
  if (!number.ok()) {
    throw po::error_with_option_name(
        absl::StrCat("%canonical_option%: ", number.status().message()));
  }
  value = Count{*number};
}

std::string TextOr(const Values& values, const char* option, absl::string_view otherwise) {
  return values.count(option) > 0 ? values[option].as<std::string>() : std::string(otherwise);
}

uint64_t NumberOr(const Values& values, const char* option, uint64_t otherwise) {
  return values.count(option) > 0 ? values[option].as<Count>().value : otherwise;
}

uint32_t SmallOr(const Values& values, const char* option, uint32_t otherwise) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(NumberOr(values, option, otherwise), ~uint32_t{0}));
}

uint64_t MebibytesOr(const Values& values, const char* option, uint64_t otherwise_mib) {
  return std::min(NumberOr(values, option, otherwise_mib), uint64_t{1} << 40) << 20;
}

absl::StatusOr<double> RealOr(const Values& values, const char* option, double otherwise) {
  if (values.count(option) == 0) return otherwise;
  const std::string& given = values[option].as<std::string>();
  absl::string_view text = given;
  const double factor = std::pow(10.0, ZerosOf(text));
  double number = 0;
  // SimpleAtod alone would take spaces, "infinity" and hexadecimal digits, too.
  if (text.find_first_not_of("0123456789+-.eE") != absl::string_view::npos ||
      !absl::SimpleAtod(text, &number) || !std::isfinite(number * factor)) {
    return UsageError(absl::StrCat("--", option, ": \"", given, "\" is no number"));
  }
  return number * factor;
}

std::vector<std::string> TextsOf(const Values& values, const char* option) {
  return values.count(option) > 0 ? values[option].as<std::vector<std::string>>()
                                  : std::vector<std::string>();
}

absl::Status UsageError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

absl::StatusOr<bool> Chosen(const Values& values, const char* option, absl::string_view usual,
                            absl::string_view other) {
  const std::string value = TextOr(values, option, usual);
  if (value == usual || value == other) return value == other;
  return UsageError(absl::StrCat("--", option, " ", value, ": there are ", usual, " and ", other));
}

bool IsUsageError(const absl::Status& status) {
  return status.GetPayload(kUsagePayload).has_value();
}

absl::Status IncompleteError(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kIncompletePayload, absl::Cord());
  return status;
}

absl::Status FoundError(absl::string_view message) {
  absl::Status status = absl::FailedPreconditionError(message);
  status.SetPayload(kFoundPayload, absl::Cord());
  return status;
}

ExitCode RunProgram(const std::string& program, const std::string& summary,
                    std::span<const Command> commands, std::span<const std::string> arguments,
                    Io& raw) {
  PrintableIo printable(raw);
  Io& io = printable.io;
  const auto is_help = [](const std::string& word) {
    return word == "--help" || word == "-h" || word == "help";
  };
  const auto print_help = [&](std::ostream& out) {
    out << program << ": " << summary << "\n\nCommands:\n";
    PrintCommands(commands, "", out);
    out << "\nEach has --help. Results go to standard output, the rest to standard error.\n"
           "Exit codes:";
    absl::string_view separator = " ";
    for (const auto& [code, meaning] : kExitCodes) {
      if (code == kExitNotDone && !std::ranges::any_of(commands, &Command::looks)) continue;
      out << separator << code << " " << meaning;
      separator = ", ";
    }
    out << ".\n";
  };
  if (arguments.empty()) {
    print_help(io.err);
    return kExitUsage;
  }
  if (is_help(arguments[0])) {
    print_help(io.out);
    return kExitOk;
  }
  if (arguments[0] == "--version") {
    io.out << program << " " << kVersion << "\n";
    return kExitOk;
  }
  if (arguments[0] == "--describe") {
    Describe(program, summary, commands, io.out);
    return kExitOk;
  }
  // The longest name wins: "table build" before "table".
  const Command* found = nullptr;
  size_t words_found = 0;
  bool is_group = false;
  for (const Command& command : commands) {
    const std::vector<std::string> words = Words(command.name);
    if (words.size() > 1 && words[0] == arguments[0]) is_group = true;
    if (StartsWith(arguments, words) && words.size() > words_found) {
      found = &command;
      words_found = words.size();
    }
  }
  if (found != nullptr) {
    return RunCommand(program, *found, arguments.subspan(words_found), io);
  }
  if (is_group) {
    const bool help = arguments.size() == 2 && is_help(arguments[1]);
    std::ostream& out = help ? io.out : io.err;
    if (!help && arguments.size() > 1) {
      out << program << ": unknown command: " << arguments[0] << " " << arguments[1] << "\n";
    }
    out << "Commands:\n";
    PrintCommands(commands, arguments[0], out);
    return help ? kExitOk : kExitUsage;
  }
  return UsageFailure(program, "", absl::StrCat("unknown command: ", arguments[0]), io);
}

namespace {

Io ProcessIo() {
  return {.out = std::cout,
          .err = std::cerr,
          .in = std::cin,
          .err_is_terminal = ::isatty(STDERR_FILENO) == 1};
}

// Initialises the process; every program calls it first, while it has one thread. Returns the
// arguments without the program's name.
std::vector<std::string> Begin(int argc, const char* const* argv) {
  if (!InitSodium()) {
    std::cerr << "libsodium cannot be initialised\n";
    std::exit(kExitNotDone);  // which no command takes for something found
  }
  // Turns protobuf's log off: it would log a line for every malformed message that a stranger
  // sends. Callers get a Status.
  google::protobuf::SetLogHandler(nullptr);
  return {argv + std::min(argc, 1), argv + argc};
}

}  // namespace

int Main(const std::string& program, const std::string& summary, std::span<const Command> commands,
         int argc, const char* const* argv) {
  const std::vector<std::string> arguments = Begin(argc, argv);
  Io io = ProcessIo();
  return RunProgram(program, summary, commands, arguments, io);
}

int MainOfOne(const Command& command, int argc, const char* const* argv) {
  const std::vector<std::string> arguments = Begin(argc, argv);
  Io raw = ProcessIo();
  PrintableIo printable(raw);
  Io& io = printable.io;
  if (arguments.size() == 1 && arguments[0] == "--version") {
    io.out << command.name << " " << kVersion << "\n";
    return kExitOk;
  }
  if (arguments.size() == 1 && arguments[0] == "--describe") {
    Describe(command.name, command.summary, std::span(&command, 1), io.out);
    return kExitOk;
  }
  Command nameless = command;
  nameless.name.clear();
  return RunCommand(command.name, nameless, arguments, io);
}

}  // namespace shoal::cli
