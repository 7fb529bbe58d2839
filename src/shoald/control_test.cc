#include "src/shoald/control.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_random.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/parallel/mutex.h"
#include "src/round/header.h"
#include "src/wire/control.h"

namespace shoal::shoald {
namespace {

using machines::Machines;
using machines::testing::LocalCluster;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

wire::SignedHeader HeaderOf(uint64_t counter) {
  wire::SignedHeader header;
  header.mutable_header()->set_counter(counter);
  return header;
}
Digest IdOf(uint64_t counter) { return round::RoundId(HeaderOf(counter).header()); }

// In place of a round's onions: that all rounds of before are told.
constexpr uint64_t kBeforeIsTold = 1000;

// The machines of a party, whose ticks are made by hand.
class ControlTest : public ::testing::Test {
 protected:
  void Start(uint32_t count) {
    cluster_ = std::make_unique<LocalCluster>(count);
    if (cluster_impatient_) cluster_->BeImpatient();
    for (uint32_t rank = 0; rank < count; ++rank) {
      links_.push_back(cluster_->Join(rank));
      randoms_.push_back(std::make_unique<TestRandom>(rank + 1));
      machines_.push_back(std::make_unique<Machines>(links_[rank].transport.get(),
                                                     TestRandom(7).NewSeed(), links_[rank].clock,
                                                     randoms_[rank].get(), cluster_->options()));
      Control::Options options;
      options.period = std::chrono::milliseconds(0);
      options.obey = [this, rank](const Digest& id, const wire::RoundOrder& order) {
        {
          const MutexLock lock(mutex_);
          obeyed_.push_back({rank, id, order});
        }
        return obey_ ? obey_(rank, order) : absl::OkStatus();
      };
      options.failed = [this](const Digest& id, const absl::Status& why) {
        const MutexLock lock(mutex_);
        failed_.push_back({id, why});
        changed_.NotifyAll();
      };
      if (frontend_) {
        options.count = [this, rank](const Digest&, wire::MachineCounts& counts) {
          counts.set_onions(10 * rank + more_onions_);
        };
        options.counted = [this](uint32_t of, const Digest& id, const wire::MachineCounts& counts) {
          const MutexLock lock(mutex_);
          counted_[{of, id}] = counts.onions();
        };
        options.tell = [this](size_t) { return std::exchange(to_tell_, {}); };
        options.told = [this, rank](const wire::ToldRound& told) {
          const MutexLock lock(mutex_);
          told_.push_back({rank, told.report().round().onions()});
        };
        options.has_told_before = [this] { return has_told_before_; };
        options.before_is_told = [this, rank] {
          const MutexLock lock(mutex_);
          told_.push_back({rank, kBeforeIsTold});
        };
      }
      options.ended = [this, rank](const absl::Status& why) {
        const MutexLock lock(mutex_);
        ended_.push_back({rank, why});
      };
      controls_.push_back(std::make_unique<Control>(machines_[rank].get(), std::move(options)));
    }
  }
  ~ControlTest() override {
    controls_.clear();
    machines_.clear();
  }

  // One tick of all machines, or of some.
  std::vector<absl::Status> Tick() {
    std::vector<absl::Status> out(controls_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < controls_.size(); ++rank) {
      threads.emplace_back([&, rank] { out[rank] = controls_[rank]->Tick(); });
    }
    for (std::thread& thread : threads) thread.join();
    return out;
  }
  // Until `done`; orders have threads of their own.
  void TickUntil(const std::function<bool()>& done) {
    while (!done()) {
      for (const absl::Status& ticked : Tick()) SHOAL_ASSERT_OK(ticked);
    }
  }
  Control& head() { return *controls_[0]; }
  // Ticks until the others have done all orders for a round.
  absl::Status WaitWhileTicking(uint64_t counter) {
    std::atomic<bool> done = false;
    absl::Status status;
    std::thread waiting([&] {
      status = head().WaitForOthers(IdOf(counter));
      done = true;
    });
    TickUntil([&] { return done.load(); });
    waiting.join();
    return status;
  }

  struct Obeyed {
    uint32_t rank;
    Digest id;
    wire::RoundOrder order;
  };
  std::vector<Obeyed> TakeObeyed() {
    const MutexLock lock(mutex_);
    return std::exchange(obeyed_, {});
  }

  bool frontend_ = false;
  std::function<absl::Status(uint32_t rank, const wire::RoundOrder&)> obey_;
  std::vector<wire::ToldRound> to_tell_;
  bool has_told_before_ = false;
  std::atomic<uint64_t> more_onions_ = 0;  // that each of the others counts
  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<uint32_t, Digest>, uint64_t> counted_ ABSL_GUARDED_BY(mutex_);
  std::vector<Obeyed> obeyed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<Digest, absl::Status>> failed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, uint64_t>> told_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, absl::Status>> ended_ ABSL_GUARDED_BY(mutex_);
  bool cluster_impatient_ = false;
  std::unique_ptr<LocalCluster> cluster_;
  std::vector<LocalCluster::Joined> links_;
  std::vector<std::unique_ptr<TestRandom>> randoms_;
  std::vector<std::unique_ptr<Machines>> machines_;
  std::vector<std::unique_ptr<Control>> controls_;
};

// No first tick ends before all machines are there. Until then one may take as long as it says that
// it computes; from then on that has a limit.
TEST_F(ControlTest, TicksBeginOnceAllAreThereAndThenHaveALimit) {
  cluster_impatient_ = true;
  Start(2);
  std::atomic<bool> began = false;
  std::thread waiting([&] {
    SHOAL_EXPECT_OK(head().AwaitFirstTick());
    began = true;
  });
  // The head's tick, while machine 1 computes for so many of the head's waits, a second each.
  const auto tick_late = [&](uint64_t waits) {
    std::atomic<bool> over = false;
    absl::Status ticked;
    std::thread ticking([&] {
      ticked = head().Tick();
      over = true;
    });
    for (uint64_t begun = cluster_->waits(0), seen = 0; seen < waits && !over;) {
      if (cluster_->waits(0) < begun + seen) continue;
      machines_[1]->GiveSignOfLife();
      seen += 5;
    }
    if (waits < 500) {
      EXPECT_FALSE(began);
    }
    if (!over) controls_[1]->Tick().IgnoreError();
    ticking.join();
    return ticked;
  };
  SHOAL_EXPECT_OK(tick_late(300));
  waiting.join();
  EXPECT_THAT(tick_late(500), StatusIs(absl::StatusCode::kDeadlineExceeded, "machine 1"));
  SHOAL_EXPECT_OK(head().AwaitFirstTick());
}

TEST_F(ControlTest, OrdersOfARoundAreDoneInTheirOrderByAllOthers) {
  Start(3);
  const Seed root = TestRandom(5).NewSeed();
  head().Open(1, HeaderOf(1), root);
  head().Open(2, HeaderOf(2), root);
  SHOAL_EXPECT_OK(WaitWhileTicking(1));
  SHOAL_EXPECT_OK(WaitWhileTicking(2));
  SHOAL_ASSERT_OK(head().Order(IdOf(2), wire::SEAL));
  SHOAL_ASSERT_OK(head().Order(IdOf(2), wire::RUN_OFFLINE, 3));
  SHOAL_EXPECT_OK(WaitWhileTicking(2));
  std::map<std::pair<uint32_t, uint32_t>, std::vector<wire::RoundOrder>> by_round;
  for (const Obeyed& obeyed : TakeObeyed()) {
    EXPECT_NE(obeyed.rank, 0u);
    EXPECT_EQ(obeyed.id, IdOf(obeyed.order.round()));
    by_round[{obeyed.rank, obeyed.order.round()}].push_back(obeyed.order);
  }
  for (const uint32_t rank : {1u, 2u}) {
    ASSERT_EQ((by_round[{rank, 1}].size()), 1u);
    const auto& orders = by_round[{rank, 2}];
    ASSERT_EQ(orders.size(), 3u);
    EXPECT_EQ(orders[0].open().root_seed(), ToString(root.view()));
    EXPECT_EQ(orders[0].open().header().header().counter(), 2u);
    EXPECT_EQ(orders[1].step().step(), wire::SEAL);
    EXPECT_EQ(orders[2].step().step(), wire::RUN_OFFLINE);
    EXPECT_EQ(orders[2].step().attempt(), 3u);
  }
}

TEST_F(ControlTest, TheFirstErrorByRankIsTheAnswer) {
  Start(4);
  head().Open(1, HeaderOf(1), Seed());
  SHOAL_EXPECT_OK(WaitWhileTicking(1));
  obey_ = [](uint32_t rank, const wire::RoundOrder&) {
    return rank < 2
               ? absl::OkStatus()
               : absl::UnavailableError(absl::StrCat(
                     std::string(wire::kMostControlTextBytes - 1, static_cast<char>('0' + rank)),
                     "\xc3\xa9", std::string(1000, 'x')));
  };
  SHOAL_ASSERT_OK(head().Order(IdOf(1), wire::RUN_ONLINE, 1));
  EXPECT_THAT(WaitWhileTicking(1),
              StatusIs(absl::StatusCode::kUnavailable,
                       absl::StrCat(std::string(wire::kMostControlTextBytes - 1, '2'), "?")));
  // Its text is cut within a character of two bytes. It is told once; and a step that fails is no
  // end of the round.
  SHOAL_EXPECT_OK(WaitWhileTicking(1));
  const MutexLock lock(mutex_);
  EXPECT_TRUE(failed_.empty());
}

TEST_F(ControlTest, ARoundThatAMachineCannotOpenFails) {
  Start(3);
  obey_ = [](uint32_t rank, const wire::RoundOrder& order) {
    return rank == 2 && order.has_open() ? absl::FailedPreconditionError("another epoch")
                                         : absl::OkStatus();
  };
  head().Open(1, HeaderOf(1), Seed());
  EXPECT_THAT(WaitWhileTicking(1), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch"));
  {
    const MutexLock lock(mutex_);
    while (failed_.empty()) changed_.Wait(mutex_);
    EXPECT_EQ(failed_[0].first, IdOf(1));
  }
  head().End(IdOf(1));
  EXPECT_THAT(head().Order(IdOf(1), wire::SEAL), StatusIs(absl::StatusCode::kNotFound, "ended"));
  EXPECT_THAT(head().WaitForOthers(IdOf(1)), StatusIs(absl::StatusCode::kNotFound, "ended"));
}

// A stage may hang; the order to erase what it works on must not wait behind it.
TEST_F(ControlTest, AnEndOvertakesSteps) {
  Start(2);
  head().Open(1, HeaderOf(1), Seed());
  SHOAL_EXPECT_OK(WaitWhileTicking(1));
  std::atomic<bool> ended = false;
  obey_ = [&](uint32_t, const wire::RoundOrder& order) {
    if (order.end()) {
      ended = true;
    } else {
      EXPECT_TRUE(::shoal::testing::Soon([&] { return ended.load(); }));
    }
    return absl::OkStatus();
  };
  SHOAL_ASSERT_OK(head().Order(IdOf(1), wire::RUN_OFFLINE, 1));
  SHOAL_ASSERT_OK(head().Order(IdOf(1), wire::CLOSE_QUERIES));
  for (const absl::Status& ticked : Tick()) SHOAL_ASSERT_OK(ticked);
  head().End(IdOf(1));
  for (const absl::Status& ticked : Tick()) SHOAL_ASSERT_OK(ticked);
  EXPECT_TRUE(::shoal::testing::Soon([&] { return ended.load(); }));
  std::thread stop([&] { head().Stop(); });
  const auto all_ended = [&] {
    const MutexLock lock(mutex_);
    return ended_.size() == 2;
  };
  while (!all_ended()) Tick();
  stop.join();
  for (const Obeyed& obeyed : TakeObeyed()) {
    EXPECT_NE(obeyed.order.step().step(), wire::CLOSE_QUERIES);
  }
  const MutexLock lock(mutex_);
  for (const auto& [rank, why] : ended_) SHOAL_EXPECT_OK(why);
}

// An end that is given in the same tick as the opening comes after it: nothing is opened for ever.
TEST_F(ControlTest, AnEndDoesNotOvertakeTheOpening) {
  Start(2);
  // The opening takes longer than it takes the end to come.
  std::atomic<int> ticks = 0;
  std::atomic<bool> opened = false, ended = false, ended_too_early = false;
  obey_ = [&](uint32_t, const wire::RoundOrder& order) {
    if (order.end()) {
      ended_too_early = !opened;
      ended = true;
    } else {
      EXPECT_TRUE(::shoal::testing::Soon([&] { return ticks >= 5; }));
      opened = true;
    }
    return absl::OkStatus();
  };
  head().Open(1, HeaderOf(1), Seed());
  head().End(IdOf(1));
  TickUntil([&] {
    ++ticks;
    return opened && ended;
  });
  EXPECT_FALSE(ended_too_early);
}

TEST_F(ControlTest, CountsGoUpAndWhatClientsAreShownComesDown) {
  frontend_ = true;
  Start(3);
  for (uint32_t counter = 1; counter <= 40; ++counter) {
    head().Open(counter, HeaderOf(counter), Seed());
    wire::ToldRound told;
    told.set_round_id(ToString(IdOf(counter)));
    told.mutable_report()->mutable_round()->set_onions(counter);
    told.mutable_report()->mutable_round()->set_abort_reason(std::string(1000, 'r'));
    to_tell_.push_back(told);
  }
  has_told_before_ = true;
  // More than one message holds, of both. That all of before is told comes once, after all of it.
  TickUntil([&] {
    const MutexLock lock(mutex_);
    return counted_.size() == 2 * 40 && told_.size() == 3 * 41;
  });
  Tick();
  const MutexLock lock(mutex_);
  for (const auto& [of, onions] : counted_) EXPECT_EQ(onions, 10 * of.first);
  std::map<uint32_t, uint64_t> last;
  for (const auto& [rank, onions] : told_) {
    EXPECT_EQ(onions, last[rank] == 40 ? kBeforeIsTold : ++last[rank]);
  }
  EXPECT_EQ(told_.size(), 3u * 41);
}

// With more rounds than one message has counts of.
TEST_F(ControlTest, WhatAMachineCountsAfterAStepIsThereBeforeItsResult) {
  frontend_ = true;
  Start(2);
  obey_ = [this](uint32_t, const wire::RoundOrder& order) {
    if (order.has_step()) more_onions_ = order.step().attempt();
    return absl::OkStatus();
  };
  for (uint32_t counter = 1; counter <= 40; ++counter) {
    head().Open(counter, HeaderOf(counter), Seed());
  }
  for (uint32_t counter = 1; counter <= 40; ++counter) SHOAL_EXPECT_OK(WaitWhileTicking(counter));
  for (uint32_t counter = 1; counter <= 40; ++counter) {
    SHOAL_ASSERT_OK(head().Order(IdOf(counter), wire::SEAL, 1000 + counter));
    std::atomic<bool> done = false;
    uint64_t counted = 0;
    std::thread waiting([&] {
      SHOAL_EXPECT_OK(head().WaitForOthers(IdOf(counter)));
      const MutexLock lock(mutex_);
      counted = counted_[{1, IdOf(counter)}];
      done = true;
    });
    TickUntil([&] { return done.load(); });
    waiting.join();
    EXPECT_EQ(counted, 10 + 1000 + counter);
  }
}

TEST_F(ControlTest, AMachineThatDiesEndsAll) {
  Start(3);
  head().Open(1, HeaderOf(1), Seed());
  SHOAL_EXPECT_OK(WaitWhileTicking(1));
  cluster_->Break(LocalCluster::Fault::kAbort, 1, 2, 0);
  controls_[1].reset();
  machines_[1].reset();
  for (const size_t rank : {0, 2}) EXPECT_FALSE(controls_[rank]->Tick().ok());
  EXPECT_THAT(head().WaitForOthers(IdOf(1)), StatusIs(absl::StatusCode::kUnavailable, "ended"));
  EXPECT_FALSE(head().Tick().ok());
  const MutexLock lock(mutex_);
  ASSERT_EQ(ended_.size(), 2u);
  for (const auto& [rank, why] : ended_) EXPECT_FALSE(why.ok());
}

// Says something else than machines do, in the place of one of two.
class AMachineThatSays {
 public:
  static absl::Status Of(uint32_t rank, const wire::Control& said) {
    LocalCluster cluster(2);
    absl::Status status;
    cluster.Run([&](Machines& machines) -> absl::Status {
      if (machines.rank() == rank) {
        return machines.Gather("control", wire::EncodeControl(said), wire::kControlBytes).status();
      }
      Control::Options options;
      options.period = std::chrono::milliseconds(0);
      Control control(&machines, std::move(options));
      status = control.Tick();
      return status;
    });
    return status;
  }
};

TEST(ControlMessagesTest, WhatNoMachineSaysIsRefused) {
  wire::Control result, counts, step, open, out_of_turn, last, told_before, epochs;
  result.add_results()->set_number(1);
  counts.add_counts()->set_round(1);
  wire::RoundOrder& order = *step.add_orders();
  order.set_number(1);
  order.set_round(1);
  order.mutable_step()->set_step(wire::SEAL);
  *open.add_orders() = order;
  open.mutable_orders(0)->mutable_open()->set_root_seed(std::string(32, 's'));
  out_of_turn = open;
  out_of_turn.mutable_orders(0)->set_number(2);
  last.set_last(true);
  told_before.set_told_before(true);
  epochs.add_epochs(3);
  epochs.add_epochs(7);
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  EXPECT_THAT(AMachineThatSays::Of(1, result), StatusIs(kDataLoss, "of no order"));
  EXPECT_THAT(AMachineThatSays::Of(1, open), StatusIs(kDataLoss, "another than the head"));
  EXPECT_THAT(AMachineThatSays::Of(1, last), StatusIs(kDataLoss, "another than the head"));
  EXPECT_THAT(AMachineThatSays::Of(1, told_before), StatusIs(kDataLoss, "another than the head"));
  SHOAL_EXPECT_OK(AMachineThatSays::Of(1, counts));  // of a round that has ended
  EXPECT_THAT(AMachineThatSays::Of(0, result), StatusIs(kDataLoss, "of the head"));
  EXPECT_THAT(AMachineThatSays::Of(0, step), StatusIs(kDataLoss, "not there"));
  EXPECT_THAT(AMachineThatSays::Of(0, out_of_turn), StatusIs(kDataLoss, "out of turn"));
  SHOAL_EXPECT_OK(AMachineThatSays::Of(0, open));
  SHOAL_EXPECT_OK(AMachineThatSays::Of(0, last));
  SHOAL_EXPECT_OK(AMachineThatSays::Of(0, epochs));
  SHOAL_EXPECT_OK(AMachineThatSays::Of(1, epochs));
  epochs.add_epochs(7);
  EXPECT_THAT(AMachineThatSays::Of(1, epochs),
              StatusIs(absl::StatusCode::kInvalidArgument, "do not rise"));
}

}  // namespace
}  // namespace shoal::shoald
