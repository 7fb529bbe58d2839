#include "src/cli/command.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/version.h"
#include "src/cli/progress.h"

namespace shoal::cli {
namespace {

struct Result {
  int code;
  std::string out;
  std::string err;
};

Result RunShoal(std::vector<std::string> arguments) {
  const std::vector<Command> commands = {
      {.name = "greet",
       .summary = "say hello",
       .help = "Says hello.\n",
       .examples = "  prog greet --name Ada\n",
       .options =
           [](Options& options) {
             options.add_options()("name", Text()->required(), "whom")("times", Number(), "often")(
                 "voice", Text(), "low or loud");
           },
       .positional = "",
       .run = [](const Values& values, Io& io) -> absl::Status {
         SHOAL_ASSIGN_OR_RETURN(const bool loud, Chosen(values, "voice", "low", "loud"));
         for (uint64_t i = 0; i < NumberOr(values, "times", 1); ++i) {
           io.out << (loud ? "HELLO " : "hello ") << values["name"].as<std::string>() << "\n";
         }
         return absl::OkStatus();
       }},
      {.name = "file check",
       .summary = "end with an error",
       .help = "",
       .examples = "",
       .options = [](Options& options) { options.add_options()("file", Files(), "which"); },
       .positional = "file",
       .run = [](const Values& values, Io&) -> absl::Status {
         const std::vector<std::string> files = TextsOf(values, "file");
         if (files.empty()) return UsageError("no file");
         if (files[0] == "stale") return absl::UnauthenticatedError("expired");
         if (files[0] == "damaged") return absl::DataLossError("damaged");
         if (files[0] == "partial") return IncompleteError("one of two");
         if (files[0] == "throws") throw std::runtime_error("thrown");
         return absl::NotFoundError("no such file " + files.back());
       }},
  };
  std::ostringstream out, err;
  std::istringstream in;
  Io io{.out = out, .err = err, .in = in, .err_is_terminal = false};
  const int code = RunProgram("prog", "a program", commands, arguments, io);
  return {code, out.str(), err.str()};
}

TEST(RunProgram, RunsACommand) {
  const Result result = RunShoal({"greet", "--name", "Ada", "--times", "2"});
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_EQ(result.out, "hello Ada\nhello Ada\n");
  EXPECT_EQ(result.err, "");
}

TEST(Chosen, TakesOneOfTwoAndNamesThem) {
  EXPECT_EQ(RunShoal({"greet", "--name", "Ada", "--voice", "low"}).out, "hello Ada\n");
  EXPECT_EQ(RunShoal({"greet", "--name", "Ada", "--voice", "loud"}).out, "HELLO Ada\n");
  const Result neither = RunShoal({"greet", "--name", "Ada", "--voice", "l"});
  EXPECT_EQ(neither.code, kExitUsage);
  EXPECT_NE(neither.err.find("--voice l: there are low and loud"), std::string::npos);
}

TEST(RunProgram, PrintsHelpOnStandardOutput) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"}, {"-h"}, {"help"}}) {
    const Result result = RunShoal(arguments);
    EXPECT_EQ(result.code, kExitOk);
    EXPECT_NE(result.out.find("file check  end with an error"), std::string::npos) << result.out;
    EXPECT_EQ(result.err, "");
  }
  // Works also when a required option is missing.
  const Result result = RunShoal({"greet", "--help"});
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_NE(result.out.find("--name"), std::string::npos);
  EXPECT_NE(result.out.find("prog greet --name Ada"), std::string::npos);
  EXPECT_EQ(RunShoal({"file", "--help"}).code, kExitOk);
  EXPECT_NE(RunShoal({"--version"}).out.find("prog 0."), std::string::npos);
}

TEST(RunProgram, DescribesItselfForManPages) {
  const Result result = RunShoal({"--describe"});
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(
      result.out,
      absl::StrCat(R"({"program":"prog","version":")", kVersion, R"(","summary":"a program",)",
                   R"("exit_codes":[{"code":0,"meaning":"done"},{"code":1,"meaning":"failed"},)",
                   R"({"code":2,"meaning":"wrong usage"},)",
                   R"({"code":3,"meaning":"something to be trusted is not"},)",
                   R"({"code":4,"meaning":"not all that was asked is known yet"}],)",
                   R"("commands":[{"name":"greet","summary":"say hello","help":"Says hello.\n",)",
                   R"("examples":"  prog greet --name Ada\n","positional":"","options":[)",
                   R"({"name":"name","value":"TEXT","required":true,"text":"whom"},)",
                   R"({"name":"times","value":"N","required":false,"text":"often"},)",
                   R"({"name":"voice","value":"TEXT","required":false,"text":"low or loud"}]},)",
                   R"({"name":"file check","summary":"end with an error","help":"","examples":"",)",
                   R"("positional":"file","options":[)",
                   R"({"name":"file","value":"FILE","required":false,"text":"which"}]}]})", "\n"));
}

TEST(RunProgram, WrongUsageIsTwo) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"nothing"},
           {"file"},
           {"file", "nothing"},
           {"greet"},
           {"greet", "--nam", "Ada"},
           {"greet", "--name", "Ada", "stray"},
           {"greet", "--name", "Ada", "--times", "-1"},
           {"greet", "--name", "Ada", "--times", "1x"},
           {"greet", "--name", "Ada", "--name", "B"},
           {"greet", "--name", "Ada", "--times", "99999999999999999999"},
           {"greet", "--name", "Ada", "--times", "99999999999G"},
           {"greet", "--name"},
           {"file", "check"}}) {
    const Result result = RunShoal(arguments);
    EXPECT_EQ(result.code, kExitUsage) << (arguments.empty() ? "" : arguments.back());
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err, "");
  }
  EXPECT_NE(RunShoal({"greet"}).err.find("see: prog greet --help"), std::string::npos);
}

TEST(RunProgram, ErrorsHaveTheirExitCodes) {
  const Result failed = RunShoal({"file", "check", "a", "b"});
  EXPECT_EQ(failed.code, kExitFailed);
  EXPECT_EQ(failed.err, "prog file check: no such file b\n");
  EXPECT_EQ(RunShoal({"file", "check", "stale"}).code, kExitVerification);
  EXPECT_EQ(RunShoal({"file", "check", "damaged"}).code, kExitVerification);
  const Result incomplete = RunShoal({"file", "check", "partial"});
  EXPECT_EQ(incomplete.code, kExitIncomplete);
  EXPECT_EQ(incomplete.err, "prog file check: one of two\n");
  const Result thrown = RunShoal({"file", "check", "throws"});
  EXPECT_EQ(thrown.code, kExitFailed);
  EXPECT_EQ(thrown.err, "prog file check: thrown\n");
}

// A script must be able to tell what was found from what failed.
TEST(RunProgram, ACommandThatLooksForSomethingTellsWhatItFoundFromAFailure) {
  const auto code = [](bool looks, const absl::Status& status) {
    const std::vector<Command> commands = {
        {.name = "look",
         .summary = "",
         .help = "",
         .examples = "",
         .options = nullptr,
         .positional = "",
         .run = [&](const Values&, Io&) { return status; },
         .looks = looks},
        {.name = "other",
         .summary = "",
         .help = "",
         .examples = "",
         .options = nullptr,
         .positional = "",
         .run = [](const Values&, Io&) { return absl::Status(); }}};
    std::ostringstream out, err;
    std::istringstream in;
    Io io{.out = out, .err = err, .in = in, .err_is_terminal = false};
    const std::vector<std::string> arguments = {"look"};
    return RunProgram("prog", "", commands, arguments, io);
  };
  EXPECT_EQ(code(true, FoundError("one")), kExitFailed);
  EXPECT_EQ(code(true, absl::NotFoundError("no file")), kExitNotDone);
  EXPECT_EQ(code(true, absl::FailedPreconditionError("no table")), kExitNotDone);
  EXPECT_EQ(code(true, absl::UnauthenticatedError("wrong")), kExitVerification);
  EXPECT_EQ(code(true, IncompleteError("some")), kExitIncomplete);
  EXPECT_EQ(code(true, absl::OkStatus()), kExitOk);
  EXPECT_EQ(code(false, absl::NotFoundError("no file")), kExitFailed);
}

TEST(Number, KnowsSuffixes) {
  EXPECT_EQ(RunShoal({"greet", "--name", "Ada", "--times", "1k"}).out.size(), 1000 * 10u);
}

TEST(ProgressBar, DrawsOnTerminalsAloneAndCleansUp) {
  std::ostringstream log, terminal;
  {
    ProgressBar quiet(log, /*is_terminal=*/false, "signing");
    quiet.Update(1, 2);
    ProgressBar bar(terminal, /*is_terminal=*/true, "signing");
    bar.Update(1, 2);
    EXPECT_NE(terminal.str().find("signing  [###############...............]  1/2"),
              std::string::npos)
        << terminal.str();
    bar.Update(2, 2);  // too soon to draw again
    EXPECT_EQ(terminal.str().find("2/2"), std::string::npos);
  }
  EXPECT_EQ(log.str(), "");
  EXPECT_EQ(terminal.str().substr(terminal.str().size() - 4), "\r\x1b[K");
}

TEST(CountdownTest, CountsDownOnATerminalAlone) {
  using std::chrono::milliseconds;
  EXPECT_EQ(Countdown::Text("waiting", milliseconds(42'001)), "waiting  43 s left");
  EXPECT_EQ(Countdown::Text("waiting", milliseconds(1)), "waiting  1 s left");
  EXPECT_EQ(Countdown::Text("waiting", milliseconds(0)), "waiting  any moment now");
  EXPECT_EQ(Countdown::Text("waiting", milliseconds(-5000)), "waiting  any moment now");
  const auto end = Countdown::Clock::now() + std::chrono::hours(1);
  std::ostringstream terminal, file;
  { const Countdown countdown(terminal, /*is_terminal=*/true, "waiting", end); }
  EXPECT_NE(terminal.str().find("waiting  3"), std::string::npos) << terminal.str();
  EXPECT_EQ(terminal.str().substr(terminal.str().size() - 4), "\r\x1b[K") << "nothing is left";
  { const Countdown countdown(file, /*is_terminal=*/false, "waiting", end); }
  EXPECT_EQ(file.str(), "");
}

}  // namespace
}  // namespace shoal::cli
