// What comes into the log, how often, and as which line.
#include "src/shoald/log.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "spdlog/logger.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_clock.h"

namespace shoal::shoald {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Keeps the lines that come.
class KeepingSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& line) override {
    spdlog::memory_buf_t text;
    if (formatter_ != nullptr) {
      formatter_->format(line, text);
    } else {
      text.append(line.payload.data(), line.payload.data() + line.payload.size());
    }
    lines.emplace_back(text.data(), text.size());
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    formatter_ = std::move(formatter);
  }
  std::vector<std::string> Take() { return std::exchange(lines, {}); }

  std::vector<std::string> lines;

 private:
  std::unique_ptr<spdlog::formatter> formatter_;
};

class LogTest : public ::testing::Test {
 protected:
  testing::TestClock clock_;
  std::shared_ptr<KeepingSink> kept_ = std::make_shared<KeepingSink>();
  std::shared_ptr<RepeatFilter> filter_ = std::make_shared<RepeatFilter>(kept_, &clock_);
  spdlog::logger log_{"test", filter_};
};

TEST_F(LogTest, AnErrorThatComesAgainIsSaidOnceAndThenCounted) {
  for (int i = 0; i < 342; ++i) {
    clock_.steady_s = 1000 + i;
    log_.error("no round could be opened: party 2 does not answer");
  }
  EXPECT_THAT(kept_->Take(), ElementsAre("no round could be opened: party 2 does not answer"));
  clock_.steady_s = 1600;
  log_.info("something else");
  EXPECT_THAT(kept_->Take(), ElementsAre("no round could be opened: party 2 does not answer (the "
                                         "same 341 times in the last 10 minutes)",
                                         "something else"));
  // It goes on: counted for another ten minutes, from the first time on.
  log_.error("no round could be opened: party 2 does not answer");
  EXPECT_THAT(kept_->Take(), IsEmpty());
  clock_.steady_s = 2200;
  log_.error("no round could be opened: party 2 does not answer");
  EXPECT_THAT(kept_->Take(), ElementsAre("no round could be opened: party 2 does not answer (the "
                                         "same 1 time in the last 10 minutes)"));
}

TEST_F(LogTest, AfterTenQuietMinutesAnErrorIsNewAgain) {
  log_.error("x");
  clock_.steady_s += 600;
  log_.error("x");
  EXPECT_THAT(kept_->Take(), ElementsAre("x", "x"));
}

// It is another error if it names another party, or has another level or text.
TEST_F(LogTest, OtherErrorsAreSaidAtOnce) {
  log_.error("reaching party 2: refused");
  log_.error("reaching party 3: refused");
  log_.warn("reaching party 3: refused");
  log_.error("reaching party 3: too slow");
  EXPECT_THAT(kept_->Take(), SizeIs(4));
}

// Numbers that change every time do not make an error another one: times, counters, ports. The
// round with which a line begins does, as there is one line for each round.
TEST_F(LogTest, NumbersDoNotMakeAnotherError) {
  log_.error("no round could be opened: party 2: announced 3601 seconds ago");
  log_.error("no round could be opened: party 2: announced 3 seconds ago");
  EXPECT_THAT(kept_->Take(), SizeIs(1));
  log_.error("round 17: aborted: party 3 has lost the round");
  log_.error("round 18: aborted: party 3 has lost the round");
  EXPECT_THAT(kept_->Take(), SizeIs(2));
  filter_->TellCounts();
  EXPECT_THAT(kept_->Take(),
              ElementsAre("no round could be opened: party 2: announced 3 seconds ago (the same 1 "
                          "time in the last 1 minute)"));
}

TEST_F(LogTest, WhatIsNoErrorIsNeverHeldBack) {
  for (int i = 0; i < 3; ++i) log_.info("round open");
  EXPECT_THAT(kept_->Take(), SizeIs(3));
}

// A neighbour that makes texts up gets them into the log, as ever, and no memory.
TEST_F(LogTest, ManyDifferentErrorsAreAllSaid) {
  for (int i = 0; i < 1000; ++i) log_.error("refused: {}", std::string(i, 'x'));
  EXPECT_THAT(kept_->Take(), SizeIs(1000));
  log_.error("refused: ");
  log_.error("refused: {}", std::string(999, 'x'));
  EXPECT_THAT(kept_->Take(), SizeIs(1)) << "the first is known, the last was one too many";
}

// After an operator's signal, and at the end.
TEST_F(LogTest, CountsCanBeAskedForAndAreThenOver) {
  log_.error("x");
  log_.error("x");
  filter_->TellCounts();
  EXPECT_THAT(kept_->Take(), ElementsAre("x", "x (the same 1 time in the last 1 minute)"));
  log_.error("x");
  EXPECT_THAT(kept_->Take(), ElementsAre("x"));
  filter_->TellCounts();
  EXPECT_THAT(kept_->Take(), IsEmpty());
}

// A neighbour's, a client's or a file's text neither begins a line nor makes a terminal do
// anything.
TEST_F(LogTest, TextIsOneLineThatATerminalShowsWhateverItHolds) {
  filter_->set_formatter(TextLines(2, 1));
  log_.error("{}", "a\nparty 1 error fake\x1b[2J\xc2\x9b\xe2\x80\xae\xff 漢字");
  const std::vector<std::string> lines = kept_->Take();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0],
              ::testing::EndsWith(" party 2 machine 1 error a\\nparty 1 error fake\\x1b[2J"
                                  "\\xc2\\x9b\\xe2\\x80\\xae\\xff 漢字\n"));
}

TEST_F(LogTest, JsonIsOneObjectALineWhateverTheTextHolds) {
  filter_->set_formatter(JsonLines(2));
  spdlog::details::log_msg line("", spdlog::level::err, "a \"b\"\nc");
  line.time = spdlog::log_clock::time_point(std::chrono::milliseconds(1'800'000'000'123));
  filter_->log(line);
  filter_->log(spdlog::details::log_msg(line.time, {}, "", spdlog::level::info, "\xff"));
  EXPECT_THAT(kept_->Take(),
              ElementsAre("{\"time\":\"2027-01-15T08:00:00.123Z\",\"level\":\"error\",\"party\":2,"
                          "\"text\":\"a \\\"b\\\"\\nc\"}\n",
                          "{\"time\":\"2027-01-15T08:00:00.123Z\",\"level\":\"info\",\"party\":2,"
                          "\"text_hex\":\"ff\"}\n"));
}

}  // namespace
}  // namespace shoal::shoald
