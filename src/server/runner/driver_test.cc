// The driver over a whole chain in this process: what becomes of rounds that do not go well.
#include "src/server/runner/driver.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"
#include "src/sim/deployment.h"

namespace shoal::server {
namespace {

using namespace std::chrono_literals;

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() : deployment_({.rows = 10, .plan = {.stage_limit_s = 100}}) {}

  template <typename Condition>
  static bool Soon(const Condition& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(10ms);
    return condition();
  }
  void ExpectNoSeeds() {
    for (uint32_t j = 1; j <= 3; ++j) EXPECT_TRUE(deployment_.disk(j).seeds.empty()) << j;
  }

  sim::Deployment deployment_;
};

// Party 2 answers with a signature that is none of its round: the parties have signed the round, and
// nobody can open it.
TEST_F(DriverTest, ARoundThatCannotBeOpenedIsEndedEverywhere) {
  std::atomic<bool> proposed = false;
  deployment_.tamper(1).signed_back = [&](wire::SignedHeader& header) {
    header.set_signature(ToString(deployment_.key(2).Sign(Digest{7}).bytes()));
    proposed = true;
  };
  {
    const Driver driver(&deployment_.frontend(), &deployment_.node(1), &deployment_.clock());
    ASSERT_TRUE(Soon([&] { return proposed.load(); }));
  }
  EXPECT_EQ(deployment_.frontend().ListRounds().rounds_size(), 0);
  ExpectNoSeeds();
}

}  // namespace
}  // namespace shoal::server
