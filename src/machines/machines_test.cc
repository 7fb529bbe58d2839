#include "src/machines/machines.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/machines/chunk_seal.h"
#include "src/machines/load_bound.h"
#include "src/machines/testing/local_cluster.h"

namespace shoal::machines {
namespace {

using Fault = testing::LocalCluster::Fault;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

constexpr uint64_t kMost = 700'000;  // several chunks
constexpr size_t kGreeting = 64;     // the first chunk from each machine to each

// What machine `from` sends to machine `to`: from nothing to all that may go.
Bytes Content(uint32_t from, uint32_t to) {
  const uint64_t part = (from * 7 + to * 3) % 5;
  Bytes content(kMost * part / 4);
  TestRandom(100 * from + to).Fill(content);
  return content;
}

// Everybody sends everybody its content. Checks what comes, if all of it comes.
absl::Status ExchangeContents(Machines& machines) {
  const uint32_t count = machines.count();
  std::vector<BytesSource> sources;
  std::vector<Machines::Outgoing> outgoing;
  sources.reserve(count);
  for (uint32_t to = 0; to < count; ++to) {
    sources.emplace_back(Content(machines.rank(), to));
    // Whoever has nothing to send may say so.
    outgoing.push_back({sources.back().size() == 0 ? nullptr : &sources.back(), kMost});
  }
  std::vector<Bytes> came(count);
  SHOAL_RETURN_IF_ERROR(machines.Exchange("test", outgoing, std::vector<uint64_t>(count, kMost),
                                          [&](uint32_t from, BytesView piece) {
                                            EXPECT_FALSE(piece.empty());
                                            Append(came[from], piece);
                                            return absl::OkStatus();
                                          }));
  for (uint32_t from = 0; from < count; ++from) {
    if (from == machines.rank()) {
      EXPECT_TRUE(came[from].empty());
    } else {
      EXPECT_TRUE(came[from] == Content(from, machines.rank())) << from;
    }
  }
  return absl::OkStatus();
}

TEST(MachinesTest, EverybodyGetsWhatEverybodySends) {
  for (const uint32_t count : {1u, 2u, 3u, 8u}) {
    testing::LocalCluster cluster(count);
    for (const absl::Status& result : cluster.Run([&](Machines& machines) {
           EXPECT_EQ(machines.count(), count);
           // Again under other keys.
           SHOAL_RETURN_IF_ERROR(ExchangeContents(machines));
           return ExchangeContents(machines);
         })) {
      SHOAL_EXPECT_OK(result);
    }
  }
}

TEST(MachinesTest, AGatherGivesAllMessagesToAll) {
  for (const uint32_t count : {1u, 2u, 5u}) {
    testing::LocalCluster cluster(count);
    const auto message = [](uint32_t rank) {
      return Bytes(rank * 1000, static_cast<uint8_t>(rank + 1));
    };
    for (const absl::Status& result : cluster.Run([&](Machines& machines) -> absl::Status {
           SHOAL_ASSIGN_OR_RETURN(const auto all,
                                  machines.Gather("names", message(machines.rank()), 5000));
           EXPECT_EQ(all.size(), count);
           for (uint32_t rank = 0; rank < count; ++rank) {
             EXPECT_TRUE(std::ranges::equal(all[rank], message(rank)));
           }
           return absl::OkStatus();
         })) {
      SHOAL_EXPECT_OK(result);
    }
  }
}

// Nobody is through before everybody has come.
TEST(MachinesTest, AGatherIsABarrier) {
  constexpr uint32_t kMachines = 4;
  testing::LocalCluster cluster(kMachines);
  std::atomic<uint32_t> begun = 0;
  for (const absl::Status& result : cluster.Run([&](Machines& machines) {
         ++begun;
         const absl::Status status = machines.Gather("barrier", {}, 0).status();
         EXPECT_EQ(begun, kMachines);
         return status;
       })) {
    SHOAL_EXPECT_OK(result);
  }
}

// Transfers of any content are equally long, and the content does not show in them.
TEST(MachinesTest, LengthsDoNotDependOnContents) {
  testing::LocalCluster cluster(3);
  cluster.Capture();
  std::vector<absl::Status> results = cluster.Run(ExchangeContents);
  std::set<uint64_t> lengths;
  for (uint32_t from = 0; from < 3; ++from) {
    SHOAL_EXPECT_OK(results[from]);
    EXPECT_EQ(cluster.sent_bytes(from, from), 0u);
    for (uint32_t to = 0; to < 3; ++to) {
      if (to != from) lengths.insert(cluster.sent_bytes(from, to));
    }
  }
  // 8 bytes of length, and a seal of 16 for each of three chunks.
  EXPECT_EQ(lengths, std::set<uint64_t>{kGreeting + 8 + kMost + 3 * 16});
  Bytes captured;
  for (const Bytes& chunk : cluster.captured()) Append(captured, chunk);
  EXPECT_EQ(captured.size(), 6 * (kGreeting + 8 + kMost + 3 * 16));
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) {
      const Bytes content = Content(from, to);
      if (from == to || content.empty()) continue;
      const auto end = content.begin() + 16;
      EXPECT_EQ(std::search(captured.begin(), captured.end(), content.begin(), end),
                captured.end());
    }
  }
  // Nor does the padding, of which there is a megabyte.
  EXPECT_LT(std::ranges::count(captured, 0), static_cast<ptrdiff_t>(captured.size() / 200));
}

// The first bytes of what was sealed, without those that are equal.
std::set<std::string> BeginningsOfSealed(const testing::LocalCluster& cluster) {
  std::set<std::string> beginnings;
  for (const Bytes& chunk : cluster.captured()) {
    if (chunk.size() == kGreeting) continue;
    beginnings.emplace(reinterpret_cast<const char*>(chunk.data()), 16);
  }
  return beginnings;
}

// The same content passes under other keys in another exchange, to another machine, and in another
// job.
TEST(MachinesTest, NothingIsSealedTwiceAlike) {
  testing::LocalCluster cluster(3);
  cluster.Capture();
  const Bytes content(1000, 7);
  for (int job = 0; job < 2; ++job) {
    for (const absl::Status& result : cluster.Run([&](Machines& machines) {
           SHOAL_RETURN_IF_ERROR(machines.Gather("same", content, 1000).status());
           return machines.Gather("same", content, 1000).status();
         })) {
      SHOAL_EXPECT_OK(result);
    }
  }
  EXPECT_EQ(BeginningsOfSealed(cluster).size(), 2u * 2 * 6);
}

// Whoever makes Machines twice under one round key, in one process or in two, seals the same
// content otherwise.
TEST(MachinesTest, AKeyThatComesTwiceSealsNothingTwiceAlike) {
  testing::LocalCluster cluster(3);
  cluster.Capture();
  const Bytes content(1000, 7);
  for (const absl::Status& result :
       cluster.RunLinks([&](Transport&link, const Clock&clock) -> absl::Status {
         TestRandom random(link.rank());
         for (int again = 0; again < 4; ++again) {
           Machines machines(&link, Seed(Bytes(32, 5)), &clock, &random, cluster.options());
           SHOAL_RETURN_IF_ERROR(machines.Gather("same", content, 1000).status());
           machines.Finish();
         }
         return absl::OkStatus();
       })) {
    SHOAL_EXPECT_OK(result);
  }
  EXPECT_EQ(BeginningsOfSealed(cluster).size(), 4u * 6);
}

// A machine's links under another rank or among another number of machines.
class Renamed final : public Transport {
 public:
  Renamed(Transport* link, uint32_t rank, uint32_t count)
      : link_(link), rank_(rank), count_(count) {}
  uint32_t rank() const override { return rank_; }
  uint32_t count() const override { return count_; }
  absl::StatusOr<bool> TrySend(uint32_t, BytesView chunk) override {
    return link_->TrySend(1 - link_->rank(), chunk);
  }
  absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t) override {
    return link_->TryReceive(1 - link_->rank());
  }
  void Wait() override { link_->Wait(); }
  void Abort() override { link_->Abort(); }

 private:
  Transport* const link_;
  const uint32_t rank_, count_;
};

// Two machines that disagree about who they are, or about the round, do not even say how much they
// have to send.
TEST(MachinesTest, MachinesThatDisagreeDoNotGreet) {
  for (const bool same_rank : {false, true}) {
    for (const uint32_t count_of_second : {2u, 3u}) {
      for (const uint8_t key_of_second : {5, 6}) {
        testing::LocalCluster cluster(2);
        const auto results =
            cluster.RunLinks([&](Transport& link, const Clock& clock) -> absl::Status {
              const bool second = link.rank() == 1;
              TestRandom random(link.rank());
              Renamed named(&link, second && !same_rank ? 1 : 0, second ? count_of_second : 2);
              Machines machines(&named, Seed(Bytes(32, second ? key_of_second : 5)), &clock,
                                &random, cluster.options());
              SHOAL_RETURN_IF_ERROR(machines.Gather("names", {}, 0).status());
              machines.Finish();
              return absl::OkStatus();
            });
        const bool agree = !same_rank && count_of_second == 2 && key_of_second == 5;
        EXPECT_EQ(results[0].ok(), agree) << results[0];
        EXPECT_EQ(results[1].ok(), agree) << results[1];
        if (agree) continue;
        EXPECT_TRUE(std::ranges::any_of(results,
                                        [](const absl::Status& result) {
                                          return absl::IsDataLoss(result) &&
                                                 absl::StrContains(result.message(), "greeting");
                                        }))
            << results[0] << results[1];
        EXPECT_LE(cluster.sent_bytes(0, 1), 2 * kGreeting);
      }
    }
  }
}

// Two machines that disagree about a bound notice with the first chunk, though it is as long in
// both opinions.
TEST(MachinesTest, MachinesThatDisagreeAboutABoundTakeNothing) {
  testing::LocalCluster cluster(2);
  bool taken = false;
  const auto results = cluster.Run([&](Machines& machines) {
    BytesSource source(Bytes(1000, 1));
    const uint64_t most = machines.rank() == 0 ? kMost : kMost + 1;
    const std::vector<Machines::Outgoing> outgoing = {
        {machines.rank() == 0 ? nullptr : &source, most},
        {machines.rank() == 1 ? nullptr : &source, most}};
    return machines.Exchange("bounds", outgoing, std::vector<uint64_t>(2, most),
                             [&](uint32_t, BytesView) {
                               taken = true;
                               return absl::OkStatus();
                             });
  });
  EXPECT_FALSE(taken);
  EXPECT_TRUE(std::ranges::any_of(results,
                                  [](const absl::Status& result) {
                                    return absl::IsDataLoss(result) &&
                                           absl::StrContains(result.message(), "does not open");
                                  }))
      << results[0] << results[1];
}

// A source that says that it has so many bytes, and gives what it was told.
class LyingSource final : public ByteSource {
 public:
  LyingSource(uint64_t size, std::vector<Bytes> pieces) : size_(size), pieces_(std::move(pieces)) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<BytesView> Next() override {
    return next_ == pieces_.size() ? BytesView() : BytesView(pieces_[next_++]);
  }

 private:
  const uint64_t size_;
  const std::vector<Bytes> pieces_;
  size_t next_ = 0;
};

// What a source does not keep of its promise is not passed on as content.
TEST(MachinesTest, SourcesGiveWhatTheySay) {
  struct Case {
    std::vector<Bytes> pieces;
    uint64_t most;
    std::string error;
  };
  for (const Case& c : std::vector<Case>{
           {{Bytes(4, 1), Bytes(6, 1)}, 20, ""},
           {{Bytes(4, 1), Bytes(6, 1)}, 10, ""},
           {{Bytes(4, 1), Bytes(5, 1)}, 20, "refused: a source ended early"},
           {{}, 20, "refused: a source ended early"},
           {{Bytes(4, 1), Bytes(7, 1)}, 20, "refused: a source gave more"},
           {{Bytes(4, 1), Bytes(6, 1), Bytes(1, 1)}, 20, "refused: a source gave more"},
           // The last piece does not fit into the bound either.
           {{Bytes(4, 1), Bytes(6, 1), Bytes(1, 1)}, 10, "refused: a source gave more"}}) {
    testing::LocalCluster cluster(2);
    uint64_t taken = 0;
    const auto results = cluster.Run([&](Machines& machines) {
      LyingSource source(10, c.pieces);
      std::vector<Machines::Outgoing> outgoing(2, {nullptr, c.most});
      if (machines.rank() == 0) outgoing[1].source = &source;
      return machines.Exchange("refused", outgoing, std::vector<uint64_t>(2, c.most),
                               [&](uint32_t, BytesView piece) {
                                 taken += piece.size();
                                 return absl::OkStatus();
                               });
    });
    if (c.error.empty()) {
      SHOAL_EXPECT_OK(results[0]);
      SHOAL_EXPECT_OK(results[1]);
      EXPECT_EQ(taken, 10u);
    } else {
      EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kInternal, c.error));
      EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable) << results[1];
      EXPECT_EQ(taken, 0u);
    }
  }
}

TEST(MachinesTest, KeysDependOnTheRoundAndTheJob) {
  const Bytes secret(32, 1), another(32, 2);
  const Digest none = {}, one = {1};
  std::set<std::string> keys;
  for (const Seed& key : {RoundKey(secret, none, none), RoundKey(another, none, none),
                          RoundKey(secret, one, none), RoundKey(secret, none, one)}) {
    keys.emplace(reinterpret_cast<const char*>(key.data()), 32);
  }
  EXPECT_EQ(keys.size(), 4u);
}

struct Breakage {
  Fault fault;
  absl::StatusCode code;  // at the machine that was sent the chunk
};

// A chunk that is changed, repeated or withheld, and a machine that dies, end everybody's exchange.
TEST(MachinesTest, AFaultAtOneLinkEndsTheJobOfAll) {
  for (const auto& [fault, code] : {Breakage{Fault::kCorrupt, absl::StatusCode::kDataLoss},
                                    Breakage{Fault::kRepeat, absl::StatusCode::kDataLoss},
                                    Breakage{Fault::kWithhold, absl::StatusCode::kOk},
                                    Breakage{Fault::kDie, absl::StatusCode::kOk},
                                    Breakage{Fault::kAbort, absl::StatusCode::kUnavailable}}) {
    // The greeting, the first and the second chunk.
    for (const uint64_t number : {0u, 1u, 2u}) {
      testing::LocalCluster cluster(3);
      if (fault == Fault::kWithhold || fault == Fault::kDie) cluster.BeImpatient();
      cluster.Break(fault, 2, 1, number);
      const std::vector<absl::Status> results = cluster.Run([](Machines& machines) {
        SHOAL_RETURN_IF_ERROR(ExchangeContents(machines));
        return machines.Gather("after", {}, 0).status();
      });
      for (const absl::Status& result : results) EXPECT_FALSE(result.ok()) << int(fault);
      // The first to notice a stall is any machine that lives.
      if (code != absl::StatusCode::kOk) {
        EXPECT_EQ(results[1].code(), code) << results[1];
      } else {
        EXPECT_TRUE(std::ranges::any_of(
            std::span(results).first(fault == Fault::kDie ? 2 : 3),
            [](const absl::Status& result) { return absl::IsDeadlineExceeded(result); }));
      }
    }
  }
}

TEST(MachinesTest, WhoeverGivesUpEndsTheJobOfAll) {
  testing::LocalCluster cluster(3);
  const std::vector<absl::Status> results = cluster.Run([](Machines& machines) -> absl::Status {
    if (machines.rank() == 2) {
      machines.GiveUp();
      EXPECT_THAT(machines.Gather("after", {}, 0).status(),
                  StatusIs(absl::StatusCode::kUnavailable, "given up"));
      return absl::OkStatus();
    }
    return machines.Gather("before", {}, 0).status();
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable);
}

// So does whoever leaves without a word, between two calls.
TEST(MachinesTest, WhoeverLeavesEarlyEndsTheJobOfAll) {
  testing::LocalCluster cluster(3);
  cluster.BeImpatient();
  const std::vector<absl::Status> results = cluster.Run([](Machines& machines) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(machines.Gather("before", {}, 0).status());
    if (machines.rank() == 2) return absl::InvalidArgumentError("of another kind");
    return machines.Gather("after", {}, 0).status();
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable) << results[0];
  EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable) << results[1];
}

// Giving up ends a call that is under way, before it hears from the transport.
TEST(MachinesTest, GivingUpEndsTheCallUnderWay) {
  testing::LocalCluster cluster(2);
  const std::vector<absl::Status> results = cluster.Run([](Machines& machines) {
    BytesSource source(Content(2, 1));
    return machines.Exchange("test", std::vector<Machines::Outgoing>(2, {&source, kMost}),
                             std::vector<uint64_t>(2, kMost), [&](uint32_t, BytesView) {
                               if (machines.rank() == 0) machines.GiveUp();
                               return absl::OkStatus();
                             });
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kUnavailable, "have given up"));
}

// The limit is of each transfer: a link on which nothing comes is noticed while there is progress
// on others.
TEST(MachinesTest, OneSilentLinkIsNoticedWhileOthersTrickle) {
  constexpr int kPieces = 40;
  constexpr size_t kPiece = size_t{256} << 10;
  constexpr uint64_t kAll = kPieces * kPiece;
  // Gives a chunk whenever machine 0 has waited.
  class Trickle final : public ByteSource {
   public:
    Trickle(const testing::LocalCluster* cluster, const std::atomic<bool>* over)
        : cluster_(cluster), over_(over) {}
    uint64_t size() const override { return kAll; }
    absl::StatusOr<BytesView> Next() override {
      for (const uint64_t seen = cluster_->waits(0); cluster_->waits(0) == seen && !*over_;) {
        std::this_thread::yield();
      }
      return BytesView(piece_).first(std::exchange(left_, left_ - 1) > 0 ? kPiece : 0);
    }

   private:
    const testing::LocalCluster* cluster_;
    const std::atomic<bool>* over_;
    const Bytes piece_ = Bytes(kPiece);
    int left_ = kPieces;
  };
  testing::LocalCluster cluster(3);
  cluster.Break(Fault::kWithhold, 1, 0, 1);
  cluster.SlowClock(0, cluster.options().progress_limit_s / 20);
  std::atomic<bool> over = false;
  uint64_t taken = 0;
  const auto results = cluster.Run([&](Machines& machines) {
    Trickle source(&cluster, &over);
    std::vector<Machines::Outgoing> outgoing(3, {nullptr, 0});
    std::vector<uint64_t> most_from(3);
    if (machines.rank() == 2) outgoing[0] = {&source, kAll};
    if (machines.rank() == 0) most_from[2] = kAll;
    const absl::Status status =
        machines.Exchange("trickle", outgoing, most_from, [&](uint32_t, BytesView piece) {
          taken += piece.size();
          return absl::OkStatus();
        });
    if (machines.rank() == 0) over = true;
    return status;
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDeadlineExceeded, "from machine 1"));
  EXPECT_LT(taken, kAll);
}

// A machine that waits for one machine does not spin because another one is ahead.
TEST(MachinesTest, ChunksThatCannotBeTakenYetWakeNobody) {
  testing::LocalCluster cluster(3);
  cluster.BeImpatient();
  cluster.Break(Fault::kWithhold, 2, 0, 2);
  for (const absl::Status& result : cluster.Run([](Machines& machines) {
         SHOAL_RETURN_IF_ERROR(machines.Gather("first", {}, 0).status());
         SHOAL_RETURN_IF_ERROR(machines.Gather("second", {}, 0).status());
         return machines.Gather("third", {}, 0).status();
       })) {
    EXPECT_FALSE(result.ok());
  }
  // About 30 until it gives up, and some for what does come.
  EXPECT_LT(cluster.waits(0), 100u);
}

// One machine heeds what several do.
TEST(MachinesTest, AMachineAloneHeedsBoundsAndEnds) {
  Machines alone;
  SHOAL_EXPECT_OK(alone.Gather("short", Bytes(10), 10).status());
  EXPECT_THAT(alone.Gather("long", Bytes(11), 10).status(),
              StatusIs(absl::StatusCode::kInternal, "long: more bytes"));
  EXPECT_THAT(alone.Gather("short", Bytes(10), 10).status(),
              StatusIs(absl::StatusCode::kUnavailable, "given up"));
  Machines given_up;
  given_up.GiveUp();
  EXPECT_FALSE(given_up
                   .Exchange("after", std::vector<Machines::Outgoing>(1, {nullptr, 0}),
                             std::vector<uint64_t>(1), nullptr)
                   .ok());
  // The one of all rounds does not end with one of them.
  EXPECT_FALSE(Machines::Alone().Gather("long", Bytes(11), 10).ok());
  Machines::Alone().GiveUp();
  SHOAL_EXPECT_OK(Machines::Alone().Gather("short", Bytes(10), 10).status());
}

// A source that is longer than the bound sends nothing, and a sink's error is everybody's end.
TEST(MachinesTest, BoundsAndSinksAreHeeded) {
  testing::LocalCluster too_long(2);
  const absl::Status refused = too_long.Run([](Machines& machines) {
    return machines.Gather("long", Bytes(machines.rank() == 0 ? 11 : 10), 10).status();
  })[0];
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInternal, "long: more bytes"));
  // How many is secret.
  EXPECT_FALSE(absl::StrContains(refused.message(), "1")) << refused;
  EXPECT_EQ(too_long.sent_bytes(0, 1), 0u);

  testing::LocalCluster refusing(2);
  const auto results = refusing.Run([](Machines& machines) {
    BytesSource source(Bytes(10));
    const std::vector<Machines::Outgoing> outgoing(2, {&source, 10});
    SHOAL_RETURN_IF_ERROR(machines.Exchange(
        "refused", outgoing, std::vector<uint64_t>(2, 10), [&](uint32_t, BytesView) {
          return machines.rank() == 0 ? absl::InvalidArgumentError("no") : absl::OkStatus();
        }));
    return machines.Gather("after", {}, 0).status();
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kInvalidArgument, "refused: no"));
  EXPECT_FALSE(results[1].ok());
}

// Runs are a tiling, also where there are fewer items than machines.
TEST(MachinesTest, RunsAreATiling) {
  for (const uint64_t items : {0u, 1u, 5u, 8u, 1000u}) {
    for (const uint32_t count : {1u, 2u, 3u, 8u}) {
      uint64_t at = 0;
      for (uint32_t rank = 0; rank < count; ++rank) {
        EXPECT_EQ(RunOf(items, rank, count).begin, at);
        EXPECT_LE(RunOf(items, rank, count).size(), (items + count - 1) / count);
        at = RunOf(items, rank, count).end;
      }
      EXPECT_EQ(at, items);
    }
  }
}

// The exact tail of the binomial distribution beyond the bound stays below exp(-40.5).
TEST(LoadBoundTest, IsExceededWithProbabilityBelowItsClaim) {
  for (const uint64_t items : {1u, 30u, 100u, 1000u, 30'000u, 1'000'000u}) {
    for (const uint64_t whole : {1u, 2u, 3u, 8u, 64u, 100'000u}) {
      const uint64_t most = MostDrawn(items, 1, whole);
      EXPECT_LE(most, items);
      if (most == items) continue;
      const double n = static_cast<double>(items), p = 1 / static_cast<double>(whole);
      // Terms beyond the mean fall at least geometrically.
      double tail = 0;
      for (uint64_t k = most + 1; k <= std::min(items, most + 5000); ++k) {
        const double d = static_cast<double>(k);
        tail += std::exp(std::lgamma(n + 1) - std::lgamma(d + 1) - std::lgamma(n - d + 1) +
                         d * std::log(p) + (n - d) * std::log1p(-p));
      }
      EXPECT_LT(tail, 2.6e-18) << items << " of " << whole;
    }
  }
  EXPECT_EQ(MostDrawn(20, 1, 2), 20u);
  EXPECT_EQ(MostDrawn(1'000'000, 0, 5), 27u);
  EXPECT_EQ(MostDrawn(1'000'000, 5, 5), 1'000'000u);
}

// What padding costs: a machine receives at most 1.3 times its share where lists are long enough.
TEST(LoadBoundTest, PaddingStaysBelowThreeTenths) {
  for (const uint64_t machines : {2u, 3u, 4u, 8u}) {
    const uint64_t items = 200'000 / machines;
    const double share = 200'000.0 / static_cast<double>(machines * machines);
    EXPECT_LT(static_cast<double>(MostDrawn(items, 1, machines)), 1.3 * share) << machines;
  }
}

TEST(ChunkSealTest, OpensOnlyWhatWasSealedAsThisChunk) {
  const Bytes key(32, 3), plain(100, 4);
  ChunkSeal sealing(key);
  std::vector<Bytes> chunks(2, Bytes(116));
  for (Bytes& chunk : chunks) sealing.Seal(plain, chunk);
  EXPECT_NE(chunks[0], chunks[1]);
  Bytes opened(100);
  {
    ChunkSeal opening(key);
    for (const Bytes& chunk : chunks) {
      opened.assign(100, 0);
      ASSERT_TRUE(opening.Open(chunk, opened));
      EXPECT_EQ(opened, plain);
    }
  }
  // Out of order, of another key, and changed in any byte.
  EXPECT_FALSE(ChunkSeal(key).Open(chunks[1], opened));
  EXPECT_EQ(opened, Bytes(100));
  EXPECT_FALSE(ChunkSeal(Bytes(32, 5)).Open(chunks[0], opened));
  for (size_t i = 0; i < chunks[0].size(); ++i) {
    Bytes changed = chunks[0];
    changed[i] ^= 0x80;
    EXPECT_FALSE(ChunkSeal(key).Open(changed, opened)) << i;
  }
}

}  // namespace
}  // namespace shoal::machines
