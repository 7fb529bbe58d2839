// Clients in flight while parties die and come back: real processes, killed and started again in
// each phase of a round, or with disks that do not sync. A client ends with right values, says what
// it waits for, and can be interrupted.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/sim/process_chain.h"
#include "src/sim/processes.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;
using namespace std::chrono_literals;

// Rounds of short windows that no count closes, so that every phase lasts long enough to be hit.
class OutageTest : public ::testing::Test {
 protected:
  OutageTest() { chain_.StartAll(); }

  Process Query() { return Process(chain_.Query(client_, {"key-7", "no-such-key"})); }
  void ExpectAnswered(Process& query) {
    EXPECT_THAT(query.Wait(), Optional(0)) << query.Output();
    EXPECT_THAT(query.Output(), HasSubstr("key-7\tfound\tvalue 49\tyes\n"));
    EXPECT_THAT(query.Output(), HasSubstr("no-such-key\tabsent\t\tyes\n"));
  }

  ProcessChain chain_{::testing::UnitTest::GetInstance()->current_test_info()->name(),
                      {.rounds = "onions_window_s: 2 queries_window_s: 2 answers_window_s: 60"}};
  const std::string client_ = chain_.NewClient(150);
};

TEST_F(OutageTest, AClientGoesOnWhicheverPartyDiesInWhicheverPhase) {
  for (const char* phase : {"obtaining", "to take queries", "waiting for the answers"}) {
    for (uint32_t party = 1; party <= ProcessChain::kParties; ++party) {
      SCOPED_TRACE(absl::StrCat("party ", party, ", ", phase));
      Process query = Query();
      ASSERT_TRUE(query.WaitForOutput(phase)) << query.Output();
      chain_.Kill(party);
      chain_.Start(party);
      ExpectAnswered(query);
    }
  }
}

TEST_F(OutageTest, AClientWaitsForTheFrontendAndSaysSo) {
  Process query = Query();
  ASSERT_TRUE(query.WaitForOutput("to take queries")) << query.Output();
  chain_.Kill(1);
  EXPECT_TRUE(query.WaitForOutput("the frontend does not answer")) << query.Output();
  EXPECT_THAT(query.Output(), ::testing::ContainsRegex("waiting until .*, when round [0-9]+ ends"));
  EXPECT_FALSE(query.Wait(0ms).has_value());
  chain_.Start(1);
  // The round is not forgotten.
  const Result status = RunToEnd({Shoal(), "status", "--config", client_});
  EXPECT_EQ(status.code, 0) << status.output;
  EXPECT_THAT(status.output, ::testing::ContainsRegex("aborted .* the frontend was restarted"));
  ExpectAnswered(query);
  EXPECT_THAT(query.Output(), HasSubstr("the frontend answers again"));
  EXPECT_THAT(query.Output(), HasSubstr("was aborted before this client sent its queries"));
}

TEST_F(OutageTest, CtrlCSaysHowToGoOnAndUntilWhen) {
  const auto interrupt = [&](const char* phase, const char* told) {
    Process query = Query();
    ASSERT_TRUE(query.WaitForOutput(phase)) << query.Output();
    query.Signal(SIGINT);
    EXPECT_THAT(query.Wait(), Optional(128 + SIGINT)) << query.Output();
    EXPECT_THAT(query.Output(), HasSubstr(told));
    EXPECT_THAT(query.Output(), HasSubstr("run the same command again soon, at the latest at "));
  };
  interrupt("to take queries", "shoal query: interrupted; slots are held in round ");
  interrupt("waiting for the answers", "are charged. To go on");
  Process query = Query();
  ExpectAnswered(query);
  EXPECT_THAT(query.Output(), ::testing::Not(HasSubstr("sending"))) << "one submission, one charge";
}

// What a write that was not synced has left is not known, so the process ends, and the one that
// comes after it reads what is there.
TEST_F(OutageTest, APartyWhoseJournalDoesNotSyncEndsWithOneAndComesBack) {
  const std::string faults = chain_.path("faults");
  const auto set_faults = [&](int64_t syncs_fail) {
    const int64_t words[] = {0, syncs_fail};
    std::fstream file(faults, std::ios::in | std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(words), sizeof words);
  };
  WriteText(faults, std::string(2 * sizeof(int64_t), '\0'));
  for (uint32_t party = 1; party <= ProcessChain::kParties; ++party) {
    SCOPED_TRACE(absl::StrCat("party ", party));
    chain_.Kill(party);
    chain_.Start(party, {"/usr/bin/env", "LD_PRELOAD=" + FaultsLibrary(), "SHOAL_FAULTS=" + faults,
                         "ASAN_OPTIONS=verify_asan_link_order=0", Shoald(), "--config",
                         chain_.config(party)});
    Process& process = chain_.process(party);
    ASSERT_TRUE(process.WaitForOutput("listens on")) << process.Output();
    set_faults(1);
    EXPECT_THAT(process.Wait(), Optional(1)) << process.Output();
    EXPECT_THAT(process.Output(), HasSubstr("the journal takes no more records"));
    EXPECT_THAT(process.Output(), HasSubstr("start it again"));
    set_faults(0);
    chain_.Kill(party);
    chain_.Start(party);
    Process query = Query();
    ExpectAnswered(query);
  }
}

}  // namespace
}  // namespace shoal::sim
