// A stranger attacks real parties from an address of its own, 127.0.0.2, again and again. A client
// at another address asks meanwhile: it ends with exit code 0, in the first round or the second.
//
// The attacks that only need a server are in src/net/strangers_test.cc as well, with exact counts;
// reading a large answer slowly is there alone, as the table here has no large answers.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_random.h"
#include "src/net/testing/raw_tls.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/sim/process_chain.h"
#include "src/sim/processes.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"

namespace shoal::sim {
namespace {

using net::testing::RawSocket;
using net::testing::RawTls;
using ::testing::HasSubstr;
using wire::Frame;
using wire::FrameType;
using namespace std::chrono_literals;

constexpr uint32_t kParties = ProcessChain::kParties;
constexpr uint32_t kMaxSlots = 2000;
constexpr char kStranger[] = "127.0.0.2";

// Repeats an attack on a thread of its own, until it ends.
class Attacker {
 public:
  explicit Attacker(std::function<void()> attack)
      : thread_([this, attack = std::move(attack)] {
          while (!stopping_) {
            try {
              attack();
            } catch (const std::exception&) {
              // A connection was refused or has broken. The next one may not.
            }
            std::this_thread::sleep_for(5ms);
          }
        }) {}
  ~Attacker() {
    stopping_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

class StrangersProcessTest : public ::testing::Test {
 protected:
  // With `more` in the configuration of each party.
  void Start(const std::string& more = "") {
    for (uint32_t party = 1; party <= kParties; ++party) {
      // No share would apply to addresses of this machine.
      chain_.Configure(party, absl::StrCat("shared_addresses: '192.0.2.1'\n", more));
    }
    chain_.StartAll();
  }
  uint16_t port(uint32_t party) const { return chain_.port(party); }

  void ExpectServed() {
    Process query(chain_.Query(client_, {"key-7", "no-such-key"}));
    EXPECT_THAT(query.Wait(), ::testing::Optional(0)) << query.Output();
    EXPECT_THAT(query.Output(), HasSubstr("key-7\tfound\tvalue 49\tyes\n"));
    EXPECT_THAT(query.Output(), HasSubstr("no-such-key\tabsent\t\tyes\n"));
    std::set<std::string> rounds;
    for (const absl::string_view line : absl::StrSplit(query.Output(), '\n')) {
      const size_t at = line.find(" slots in round ");
      if (at != absl::string_view::npos) rounds.emplace(line.substr(at));
    }
    EXPECT_GE(rounds.size(), 1u) << query.Output();
    EXPECT_LE(rounds.size(), 2u) << query.Output();
  }

  ProcessChain chain_{::testing::UnitTest::GetInstance()->current_test_info()->name(),
                      {.rounds = "onions_window_s: 5 onions_count: 100 queries_window_s: 5 "
                                 "queries_count: 100 answers_window_s: 60",
                       .create = {"--max-slots", absl::StrCat(kMaxSlots)}}};
  const std::string client_ = chain_.NewClient(150);
};

// 4,200 at the frontend, and as many at the party after it, where the neighbour must get in.
TEST_F(StrangersProcessTest, IdleSockets) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 9000) GTEST_SKIP() << "too few descriptors on this machine";
  Start();
  std::deque<std::unique_ptr<RawSocket>> idle;
  const auto add = [&] {
    for (uint32_t party : {1, 2}) {
      idle.push_back(std::make_unique<RawSocket>(port(party), kStranger));
    }
  };
  while (idle.size() < 2 * 4200) add();
  const Attacker attacker([&] {
    idle.pop_front();
    idle.pop_front();
    add();
  });
  ExpectServed();
}

// A tenth of 4,096, at a frontend with a tenth of the places.
TEST_F(StrangersProcessTest, IdleTlsSessions) {
  Start("max_connections: 410");
  std::deque<std::unique_ptr<RawTls>> idle;
  const auto add = [&] {
    idle.push_back(std::make_unique<RawTls>(port(1), kStranger));
    // Every other one has asked something before.
    if (idle.size() % 2 == 0) {
      idle.back()->WriteFrame({.type = FrameType::kListRounds, .control = "", .bulk = {}});
    }
  };
  while (idle.size() < 410) add();
  const Attacker attacker([&] {
    idle.pop_front();
    add();
  });
  ExpectServed();
}

TEST_F(StrangersProcessTest, RequestsWithheldByOneByte) {
  Start();
  const Frame upload = {
      .type = FrameType::kSubmitOnions, .control = std::string(4 << 20, 'o'), .bulk = {}};
  std::deque<std::unique_ptr<RawTls>> withheld;
  const auto add = [&] {
    withheld.push_back(std::make_unique<RawTls>(port(1), kStranger));
    withheld.back()->WriteHeader(wire::HeaderOf(upload));
    withheld.back()->Write(AsBytes(upload.control).first(upload.control.size() - 1));
  };
  while (withheld.size() < 270) add();
  const Attacker attacker([&] {
    withheld.pop_front();
    add();
  });
  ExpectServed();
}

// The stranger takes what slots it gets, as soon as a round opens, and never comes back. Its onions
// are no onions, which only party 1's key shows.
TEST_F(StrangersProcessTest, OnionsOfRoundsThatNeverComeBack) {
  Start();
  shoal::testing::TestRandom random(1);
  std::set<std::string> seen;
  std::atomic<uint64_t> first_taken = 0;  // in the first round, once all of it is
  const auto call = [](RawTls& tls, FrameType type, const auto& request, auto& response) {
    tls.WriteFrame(wire::MakeFrame(type, request));
    const auto answer = tls.ReadFrame();
    return answer.ok() ? wire::ParseFrame(*answer, type, response) : answer.status();
  };
  const Attacker attacker([&] {
    RawTls tls(port(1), kStranger);
    wire::ListRoundsResponse list;
    if (!call(tls, FrameType::kListRounds, wire::ListRoundsRequest(), list).ok()) return;
    for (const wire::RoundInfo& info : list.rounds()) {
      const std::string id = ToString(round::RoundId(info.header().header()));
      if (info.state() != wire::OPEN_FOR_ONIONS || seen.contains(id)) continue;
      absl::Status status;
      uint64_t taken = 0;
      while (status.ok()) {
        constexpr uint32_t kSlots = 50;
        Bytes submission(onion::SubmissionBytes(kParties, kSlots));
        random.Fill(submission);
        wire::SubmitOnionsRequest request;
        request.set_round_id(id);
        request.add_submissions(ToString(submission));
        wire::SubmitOnionsResponse response;
        status = call(tls, FrameType::kSubmitOnions, request, response);
        if (status.ok()) taken += kSlots;
      }
      seen.insert(id);
      if (first_taken == 0 &&
          absl::StrContains(status.message(), "slots that one address may take")) {
        first_taken = taken;
      }
    }
  });
  ASSERT_TRUE(::shoal::testing::Soon([&] { return first_taken > 0; }, kLong));
  EXPECT_EQ(first_taken, kMaxSlots / 4);
  for (int i = 0; i < 3; ++i) ExpectServed();
}

}  // namespace
}  // namespace shoal::sim
