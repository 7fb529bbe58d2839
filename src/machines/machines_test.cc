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
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_random.h"
#include "src/machines/chunk_seal.h"
#include "src/machines/load_bound.h"
#include "src/machines/sign_of_life.h"
#include "src/machines/testing/local_cluster.h"

namespace shoal::machines {
namespace {

using Fault = testing::LocalCluster::Fault;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

constexpr uint64_t kMost = 700'000;  // several chunks
constexpr size_t kGreeting = 72;     // the first chunk from each machine to each

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
  void SendSign(uint32_t, BytesView sign) override { link_->SendSign(1 - link_->rank(), sign); }
  std::optional<Bytes> TakeSign(uint32_t) override { return link_->TakeSign(1 - link_->rank()); }
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

// A machine of version 0.2 is told from one that is none, and nothing passes.
TEST(MachinesTest, AMachineOf02IsNamed) {
  testing::LocalCluster cluster(2);
  const Seed key(Bytes(32, 5));
  const auto results = cluster.RunLinks([&](Transport& link, const Clock& clock) -> absl::Status {
    if (link.rank() == 1) {
      Bytes greeting(32, 7);
      const Digest mac = Transcript("shoal machines greeting v1", key.view())
                             .U64(1)
                             .U64(2)
                             .Blob(greeting)
                             .Finish();
      Append(greeting, mac);
      AppendLe<uint64_t>(greeting, 0);  // the secret's name
      return link.TrySend(0, greeting).status();
    }
    TestRandom random(1);
    Machines machines(&link, Seed(key.view()), &clock, &random, cluster.options());
    return machines.Gather("names", {}, 0).status();
  });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                   "machine 1 runs Shoal 0.2, and this machine a later version"));
  EXPECT_LE(cluster.sent_bytes(0, 1), 2 * kGreeting);
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

// An exchange in which machine 1 alone sends, to machine 0.
absl::Status SendToTheHead(Machines& machines, uint64_t most, Bytes& came) {
  BytesSource source(Bytes(1000, 7));
  std::vector<Machines::Outgoing> outgoing(machines.count(), {nullptr, 0});
  std::vector<uint64_t> most_from(machines.count(), 0);
  if (machines.rank() == 1) outgoing[0] = {most == 0 ? nullptr : &source, most};
  if (machines.rank() == 0) most_from[1] = 1000;
  return machines.Exchange("to the head", outgoing, most_from, [&](uint32_t from, BytesView piece) {
    EXPECT_EQ(from, 1u);
    Append(came, piece);
    return absl::OkStatus();
  });
}

TEST(MachinesTest, WhereNothingMayPassNothingDoesButInAGather) {
  testing::LocalCluster cluster(3);
  Bytes came;
  for (const absl::Status& result : cluster.Run([&](Machines& machines) {
         Bytes none;
         return SendToTheHead(machines, 1000, machines.rank() == 0 ? came : none);
       })) {
    SHOAL_EXPECT_OK(result);
  }
  EXPECT_EQ(came, Bytes(1000, 7));
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) {
      if (from == to) continue;
      const uint64_t expected = kGreeting + (from == 1 && to == 0 ? 8 + 1000 + 16 : 0);
      EXPECT_EQ(cluster.sent_bytes(from, to), expected) << from << to;
    }
  }
  testing::LocalCluster gathering(2);
  for (const absl::Status& result : gathering.Run(
           [](Machines& machines) { return machines.Gather("barrier", {}, 0).status(); })) {
    SHOAL_EXPECT_OK(result);
  }
  EXPECT_EQ(gathering.sent_bytes(0, 1), kGreeting + 8 + 16);
}

// A machine that believes that nothing may pass takes the others no further than the next message.
TEST(MachinesTest, MachinesThatDisagreeWhetherAnythingMayPassTakeNothing) {
  testing::LocalCluster cluster(2);
  Bytes came;
  const auto results = cluster.Run([&](Machines& machines) -> absl::Status {
    Bytes none;
    SHOAL_RETURN_IF_ERROR(SendToTheHead(machines, 0, machines.rank() == 0 ? came : none));
    return machines.Gather("next", {}, 0).status();
  });
  EXPECT_TRUE(came.empty());
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDataLoss, "to the head"));
  EXPECT_FALSE(results[1].ok());
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
    if (machines.rank() == 1) outgoing[0].most_bytes = 1;
    if (machines.rank() == 2) outgoing[0] = {&source, kAll};
    if (machines.rank() == 0) most_from = {0, 1, kAll};
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

// One machine computes while another one waits for it, by the other one's clock: a second for each
// of its waits in which nothing moves anywhere.
class Computing {
 public:
  explicit Computing(const testing::LocalCluster* cluster) : cluster_(cluster) {}

  // Computes for so many of the waits of `machine`, and calls `now_and_then` at every fifth.
  // Returns early after End.
  void While(uint32_t machine, uint64_t waits, const std::function<void()>& now_and_then) const {
    const uint64_t begun = cluster_->waits(machine);
    for (uint64_t waited = 0; waited < waits; waited += 5) {
      while (!ended_ && cluster_->waits(machine) < begun + waited) std::this_thread::yield();
      if (!ended_) now_and_then();
    }
  }
  void End() { ended_ = true; }

 private:
  const testing::LocalCluster* const cluster_;
  std::atomic<bool> ended_ = false;
};

// A byte that takes work.
class SlowByte final : public ByteSource {
 public:
  explicit SlowByte(std::function<void()> work) : work_(std::move(work)) {}
  uint64_t size() const override { return 1; }
  absl::StatusOr<BytesView> Next() override {
    if (work_ == nullptr) return BytesView();
    std::exchange(work_, nullptr)();
    return BytesView(byte_);
  }

 private:
  std::function<void()> work_;
  const Bytes byte_ = Bytes(1);
};

absl::Status TakeAll(uint32_t, BytesView) { return absl::OkStatus(); }

// A machine that computes for longer than the limit is waited for as long as it says so: before its
// first call, between two, and in a source. One that says nothing is not.
TEST(MachinesTest, AMachineThatComputesIsWaitedFor) {
  for (const bool gives_signs : {true, false}) {
    testing::LocalCluster cluster(2);
    cluster.BeImpatient();
    Computing computing(&cluster);
    const auto results = cluster.Run([&](Machines& machines) {
      const auto compute = [&] {
        if (machines.rank() == 1) return;
        computing.While(1, 100, [&] {
          if (gives_signs) machines.GiveSignOfLife();
        });
      };
      const auto work = [&] {
        compute();
        SHOAL_RETURN_IF_ERROR(machines.Gather("first", {}, 0).status());
        compute();
        SHOAL_RETURN_IF_ERROR(machines.Gather("second", {}, 0).status());
        SlowByte source(compute);
        return machines.Exchange("third", std::vector<Machines::Outgoing>(2, {&source, 1}),
                                 std::vector<uint64_t>(2, 1), TakeAll);
      };
      const absl::Status status = work();
      if (machines.rank() == 1) computing.End();
      return status;
    });
    if (gives_signs) {
      for (const absl::Status& result : results) SHOAL_EXPECT_OK(result);
    } else {
      EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kDeadlineExceeded, "machine 0"));
    }
  }
}

// Where that is limited, it is waited for as long, and then as one that says nothing.
TEST(MachinesTest, AMachineThatComputesIsWaitedForUpToALimit) {
  testing::LocalCluster cluster(2);
  cluster.BeImpatient();
  Computing computing(&cluster);
  std::atomic<uint64_t> waited = 0;
  const auto results = cluster.Run([&](Machines& machines) {
    const auto work = [&]() -> absl::Status {
      SHOAL_RETURN_IF_ERROR(machines.Gather("first", {}, 0).status());
      machines.LimitWork(100);
      for (const uint64_t waits : {90, 500}) {
        const uint64_t before = cluster.waits(1);
        if (machines.rank() == 0) computing.While(1, waits, [&] { machines.GiveSignOfLife(); });
        const absl::Status gathered = machines.Gather("next", {}, 0).status();
        if (machines.rank() == 1) waited = cluster.waits(1) - before;
        SHOAL_RETURN_IF_ERROR(gathered);
      }
      return absl::OkStatus();
    };
    const absl::Status status = work();
    if (machines.rank() == 1) computing.End();
    return status;
  });
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kDeadlineExceeded, "machine 0"));
  EXPECT_GT(waited, 100u);
}

// One that is in an earlier call, because it waits there for a third one that computes, is waited
// for, too.
TEST(MachinesTest, AMachineThatWaitsForAThirdOneIsWaitedFor) {
  testing::LocalCluster cluster(3);
  cluster.BeImpatient();
  std::vector<Machines*> all(3);
  std::atomic<int> here = 0;
  Computing computing(&cluster);
  for (const absl::Status& result : cluster.Run([&](Machines& machines) {
         all[machines.rank()] = &machines;
         for (++here; here < 3;) std::this_thread::yield();
         const std::vector<uint64_t> most_from(3, 1);
         std::vector<Machines::Outgoing> outgoing(3, {nullptr, 1});
         // Machine 2 has something for machine 1 alone, so that machine 0 goes on to the next call.
         SlowByte source([&] {
           computing.While(0, 100, [&] {
             for (Machines* each : all) each->GiveSignOfLife();
           });
         });
         if (machines.rank() == 2) outgoing[1].source = &source;
         absl::Status status = machines.Exchange("first", outgoing, most_from, TakeAll);
         if (status.ok()) status = machines.Gather("second", {}, 0).status();
         if (!status.ok()) computing.End();
         // Nobody leaves while another one uses `all`.
         for (--here; here > 0;) std::this_thread::yield();
         return status;
       })) {
    SHOAL_EXPECT_OK(result);
  }
}

// Who withholds chunks and lets signs of life pass keeps nobody waiting: signs say how many chunks
// must have come.
TEST(MachinesTest, SignsOfLifeDoNotHideWithheldChunks) {
  testing::LocalCluster cluster(2);
  cluster.BeImpatient();
  cluster.Break(Fault::kWithholdChunks, 0, 1, 1);
  Computing computing(&cluster);
  const auto results = cluster.Run([&](Machines& machines) {
    const absl::Status status = machines.Gather("first", {}, 0).status();
    if (machines.rank() == 1) {
      computing.End();
    } else {
      computing.While(1, 200, [&] { machines.GiveSignOfLife(); });
    }
    return status;
  });
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kDeadlineExceeded, "from machine 0"));
  EXPECT_LT(cluster.waits(1), 100u);
}

// Links on which no chunk but the greeting leaves.
class Stuck final : public Transport {
 public:
  explicit Stuck(Transport* link) : link_(link) {}
  uint32_t rank() const override { return link_->rank(); }
  uint32_t count() const override { return link_->count(); }
  absl::StatusOr<bool> TrySend(uint32_t to, BytesView chunk) override {
    if (chunk.size() != kGreeting) return false;
    return link_->TrySend(to, chunk);
  }
  absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t from) override {
    return link_->TryReceive(from);
  }
  void Wait() override { link_->Wait(); }
  void SendSign(uint32_t to, BytesView sign) override { link_->SendSign(to, sign); }
  std::optional<Bytes> TakeSign(uint32_t from) override { return link_->TakeSign(from); }
  void Abort() override { link_->Abort(); }

 private:
  Transport* const link_;
};

// Machines that live and wait for each other in the same call do not wait for ever.
TEST(MachinesTest, MachinesThatWaitForEachOtherGiveUp) {
  testing::LocalCluster cluster(2);
  cluster.BeImpatient();
  std::vector<Machines*> all(2);
  std::atomic<int> here = 0;
  Computing computing(&cluster);
  std::thread signs([&] {
    EXPECT_TRUE(shoal::testing::Soon([&] { return here == 2; }));
    computing.While(0, 300, [&] {
      for (Machines* each : all) each->GiveSignOfLife();
    });
    here = 0;
  });
  const auto results = cluster.RunLinks([&](Transport& link, const Clock& clock) {
    Stuck stuck(&link);
    TestRandom random(link.rank());
    Machines machines(&stuck, Seed(Bytes(32, 5)), &clock, &random, cluster.options());
    all[link.rank()] = &machines;
    ++here;
    const absl::Status status = machines.Gather("stuck", {}, 0).status();
    computing.End();
    EXPECT_TRUE(shoal::testing::Soon([&] { return here == 0; }));  // `all` is in use
    return status;
  });
  signs.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(results[0]) || absl::IsDeadlineExceeded(results[1]));
  EXPECT_LT(cluster.waits(0), 200u);
}

// A machine whose signs of life stop is noticed by one that computes, after 30 s by that one's own
// signs, and a machine that says that it has finished is not missed.
TEST(MachinesTest, AMachineThatFallsSilentIsNoticedByOneThatComputes) {
  struct Case {
    bool finishes;
    int signs;
    std::string error;
  };
  for (const Case& c : {Case{false, 5, "nothing went from machine 1"},
                        Case{false, 7, "no sign of life came from machine 1 for 30 s"},
                        Case{true, 20, "nothing went from machine 1"}}) {
    testing::LocalCluster cluster(2);
    cluster.BeImpatient();
    std::atomic<bool> silent = false, over = false;
    const auto results = cluster.Run([&](Machines& machines) -> absl::Status {
      SHOAL_RETURN_IF_ERROR(machines.Gather("first", {}, 0).status());
      if (machines.rank() == 1) {
        machines.GiveSignOfLife();
        if (c.finishes) machines.Finish();
        silent = true;
        EXPECT_TRUE(shoal::testing::Soon([&] { return over.load(); }));
        return absl::OkStatus();
      }
      EXPECT_TRUE(shoal::testing::Soon([&] { return silent.load(); }));
      for (int i = 0; i < c.signs; ++i) machines.GiveSignOfLife();
      const absl::Status status = machines.Gather("second", {}, 0).status();
      over = true;
      return status;
    });
    EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDeadlineExceeded, c.error));
    SHOAL_EXPECT_OK(results[1]);
  }
}

// Signs of life are all equally long, say nothing in the clear, and are taken once and from their
// sender alone.
TEST(MachinesTest, SignsOfLifeTellNothingAndCannotBeMade) {
  testing::LocalCluster cluster(3);
  cluster.Capture();
  for (const absl::Status& result : cluster.Run([](Machines& machines) {
         machines.GiveSignOfLife();
         const absl::Status status = machines.Gather("first", {}, 0).status();
         machines.GiveSignOfLife();
         return status;
       })) {
    SHOAL_EXPECT_OK(result);
  }
  const std::vector<Bytes> signs = cluster.captured_signs();
  EXPECT_EQ(signs.size(), 3u * 2 * 3);  // the last one when they finish
  Bytes joined;
  for (const Bytes& sign : signs) {
    EXPECT_EQ(sign.size(), SignOfLife::kSealedBytes);
    Append(joined, sign);
  }
  EXPECT_LT(std::ranges::count(joined, 0), 30);

  TestRandom random(1);
  const Bytes key(32, 1), another(32, 2);
  Bytes sealed = Seal({.number = 7, .calls = 8, .sent = 9, .finished = true}, key, random);
  const std::optional<SignOfLife> opened = OpenSign(sealed, key);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->number, 7u);
  EXPECT_EQ(opened->calls, 8u);
  EXPECT_EQ(opened->sent, 9u);
  EXPECT_FALSE(opened->worked);
  EXPECT_TRUE(opened->finished);
  EXPECT_FALSE(OpenSign(sealed, another).has_value());
  EXPECT_FALSE(OpenSign(BytesView(sealed).first(71), key).has_value());
  EXPECT_FALSE(OpenSign({}, key).has_value());
  sealed[40] ^= 1;
  EXPECT_FALSE(OpenSign(sealed, key).has_value());
}

// Links on which the first two signs of life that came come again and again.
class Replaying final : public Transport {
 public:
  explicit Replaying(Transport* link) : link_(link) {}
  uint32_t rank() const override { return link_->rank(); }
  uint32_t count() const override { return link_->count(); }
  absl::StatusOr<bool> TrySend(uint32_t to, BytesView chunk) override {
    return link_->TrySend(to, chunk);
  }
  absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t from) override {
    return link_->TryReceive(from);
  }
  void Wait() override { link_->Wait(); }
  void SendSign(uint32_t to, BytesView sign) override { link_->SendSign(to, sign); }
  std::optional<Bytes> TakeSign(uint32_t from) override {
    if (signs_.size() < 2) {
      const std::optional<Bytes> sign = link_->TakeSign(from);
      if (sign.has_value()) signs_.push_back(*sign);
      return sign;
    }
    ++taken_;
    return taken_ < 500 ? std::optional(signs_[taken_ % 2]) : std::nullopt;
  }
  void Abort() override { link_->Abort(); }

 private:
  Transport* const link_;
  std::vector<Bytes> signs_;
  size_t taken_ = 0;
};

TEST(MachinesTest, AnOldSignOfLifeCountsOnce) {
  testing::LocalCluster cluster(2);
  cluster.BeImpatient();
  std::atomic<bool> over = false;
  const auto results = cluster.RunLinks([&](Transport& link, const Clock& clock) {
    Replaying replaying(&link);
    TestRandom random(link.rank());
    Machines machines(&replaying, Seed(Bytes(32, 5)), &clock, &random, cluster.options());
    absl::Status status;
    if (link.rank() == 0) {
      while (!over) {
        machines.GiveSignOfLife();
        std::this_thread::yield();
      }
    } else {
      status = machines.Gather("first", {}, 0).status();
      over = true;
    }
    return status;
  });
  EXPECT_EQ(results[1].code(), absl::StatusCode::kDeadlineExceeded) << results[1];
  EXPECT_LT(cluster.waits(1), 100u);
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
  // Numbers that another machine may say, though no list is so long.
  constexpr uint64_t kHuge = ~uint64_t{0};
  EXPECT_EQ(MostDrawn(kHuge, 1, 1), kHuge);
  EXPECT_GT(MostDrawn(kHuge, 1, 2), kHuge / 2);
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
  for (const size_t at : {0, 15, 16, 23}) {  // in the cipher's key, and in the nonces
    Bytes other = key;
    other[at] ^= 1;
    EXPECT_FALSE(ChunkSeal(other).Open(chunks[0], opened)) << at;
  }
  for (size_t i = 0; i < chunks[0].size(); ++i) {
    Bytes changed = chunks[0];
    changed[i] ^= 0x80;
    EXPECT_FALSE(ChunkSeal(key).Open(changed, opened)) << i;
  }
}

// Vector 1 of AEGIS-128L in draft-irtf-cfrg-aegis-aead: 16 bytes of zeros, no associated data.
TEST(ChunkSealTest, KnownAnswer) {
  Bytes key(32), sealed(32);
  key[0] = 0x10, key[1] = 0x01;    // and zeros: the cipher's key
  key[16] = 0x10, key[18] = 0x02;  // and zeros: the nonce
  ChunkSeal(key).Seal(Bytes(16), sealed);
  EXPECT_EQ(Hex(sealed), "c1c0e58bd913006feba00f4b3cc3594eabe0ece80c24868a226a35d16bdae37a");
}

TEST(ChunkSealTest, PiecesAndLaterKeysSealAlike) {
  Bytes plain(1000);
  TestRandom(1).Fill(plain);
  ChunkSeal in_pieces, opening;
  for (const uint8_t number : {1, 2, 3}) {
    const Bytes key(32, number);
    ChunkSeal sealing(key);
    in_pieces.Begin(key);
    opening.Begin(key);
    for (int chunk = 0; chunk < 2; ++chunk) {
      Bytes sealed(1016), same(1016), opened(1000);
      sealing.Seal(plain, sealed);
      in_pieces.BeginChunk(same);
      for (size_t at = 0, next = 1; at < plain.size(); at += next, next = 3 * next + 1) {
        in_pieces.Add(BytesView(plain).subspan(at, std::min(next, plain.size() - at)));
      }
      in_pieces.EndChunk();
      EXPECT_EQ(same, sealed);
      ASSERT_TRUE(opening.Open(sealed, opened));
      EXPECT_EQ(opened, plain);
    }
  }
}

}  // namespace
}  // namespace shoal::machines
