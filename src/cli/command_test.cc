#include "src/cli/command.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/printable.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/version.h"
#include "src/cli/printable_stream.h"
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
  EXPECT_EQ(RunShoal({"greet", "--name", "Ada", "--times", "0.5k"}).out.size(), 500 * 10u);
}

TEST(Number, IsWholeAndExact) {
  const std::vector<std::pair<const char*, uint64_t>> numbers = {
      {"0", 0},
      {"007", 7},
      {"2500k", 2'500'000},
      {"2.5M", 2'500'000},
      {"2.50M", 2'500'000},
      {"0.000001M", 1},
      {"1.0k", 1000},
      {"18.446744073G", 18'446'744'073},
      {"18446744073709551615", ~uint64_t{0}},
      {"18446744073.709551615G", ~uint64_t{0}}};
  for (const auto& [text, number] : numbers) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t parsed, ParseCount(text));
    EXPECT_EQ(parsed, number) << text;
  }
  for (const char* text : {"",
                           ".",
                           "k",
                           ".5k",
                           "5.k",
                           "1.5",
                           "1.0",
                           "1.000",
                           "1.2345k",
                           "0.0000001M",
                           "1,000",
                           "1e3",
                           "-1",
                           "+1",
                           " 1",
                           "1 ",
                           "1K",
                           "1m",
                           "1kk",
                           "1.2.3M",
                           "0x10",
                           "18446744073709551616",
                           "18446744073.709551616G",
                           "99999999999G",
                           "1\xc2\xa0k"}) {
    EXPECT_THAT(ParseCount(text), ::shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                             "expected a whole number"))
        << text;
  }
  EXPECT_EQ(*ParseSmallCount("4.294967295G"), ~uint32_t{0});
  EXPECT_FALSE(ParseSmallCount("4.294967296G").ok());
}

// Whatever a command writes of what came from outside.
TEST(RunProgram, NothingThatATerminalObeysComesOut) {
  // As a result, in an error and in the report of wrong usage; of C0, of C1, and right to left.
  const std::string hostile =
      "a\x1b]0;x\x07\xc2\x9b"
      "31m\xe2\x80\xae\r\x9b";
  const std::string shown = "a\\x1b]0;x\\x07\\xc2\\x9b31m\\xe2\\x80\\xae\\r\\x9b";
  EXPECT_EQ(RunShoal({"greet", "--name", hostile}).out, absl::StrCat("hello ", shown, "\n"));
  EXPECT_EQ(RunShoal({"file", "check", hostile}).err,
            absl::StrCat("prog file check: no such file ", shown, "\n"));
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{hostile},
                                             {"file", hostile},
                                             {"greet", "--" + hostile},
                                             {"greet", "--times", hostile}}) {
    const Result result = RunShoal(wrong);
    EXPECT_EQ(result.code, kExitUsage);
    EXPECT_EQ(Printable(result.err, "\n\t"), result.err);
    EXPECT_NE(result.err.find("\\x1b]0;x\\x07"), std::string::npos) << result.err;
  }
  // A name with a line of its own begins none.
  EXPECT_EQ(RunShoal({"file", "check", "a\nprog audit: clean"}).err,
            "prog file check: no such file a\n  prog audit: clean\n");
}

TEST(PrintableStreamTest, ACharacterMayComeInPieces) {
  std::ostringstream to;
  {
    PrintableStream stream(to);
    for (const char c : std::string("\xe6\xbc\xa2\xe2\x80\xae\xf0\x9f\x98\x80")) stream << c;
    EXPECT_EQ(to.str(), "漢\\xe2\\x80\\xae😀");
    stream << "\xe6\xbc"
           << "a"
           << "\xf0\x9f";
  }
  EXPECT_EQ(to.str(), "漢\\xe2\\x80\\xae😀\\xe6\\xbca\\xf0\\x9f");
}

TEST(PrintableStreamTest, FailsAsTheOtherStream) {
  std::ostringstream to;
  PrintableStream stream(to);
  stream << "a" << std::flush;
  EXPECT_TRUE(stream.good());
  to.setstate(std::ios::badbit);
  stream << "b" << std::flush;
  EXPECT_FALSE(stream.good());
}

TEST(MessageTextTest, LinesAfterTheFirstAreIndented) {
  EXPECT_EQ(MessageText("a"), "a");
  EXPECT_EQ(MessageText("a\nb\n  c\n"), "a\n  b\n  c");
  EXPECT_EQ(MessageText("\n"), "");
}

TEST(ProgressBar, ItsLabelMovesNoCursor) {
  std::ostringstream terminal;
  {
    ProgressBar(terminal, /*is_terminal=*/true,
                "a\x1b[A\r\xc2\x9b"
                "A")
        .Update(1, 2);
  }
  EXPECT_NE(terminal.str().find("a\\x1b[A\\r\\xc2\\x9bA  ["), std::string::npos);
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
