#include "src/machines/machines.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
  EXPECT_EQ(lengths, std::set<uint64_t>{8 + kMost + 3 * 16});
  const Bytes captured = cluster.captured();
  EXPECT_EQ(captured.size(), 6 * (8 + kMost + 3 * 16));
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
  const Bytes captured = cluster.captured();
  const size_t each = 1000 + 8 + 16, chunks = 2 * 2 * 6;
  ASSERT_EQ(captured.size(), chunks * each);
  std::set<std::string> beginnings;
  for (size_t i = 0; i < chunks; ++i) {
    beginnings.emplace(reinterpret_cast<const char*>(captured.data()) + i * each, 16);
  }
  EXPECT_EQ(beginnings.size(), chunks);
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
                                    Breakage{Fault::kDie, absl::StatusCode::kUnavailable}}) {
    for (const uint64_t number : {0u, 1u}) {
      testing::LocalCluster cluster(3);
      if (fault == Fault::kWithhold) cluster.BeImpatient();
      cluster.Break(fault, 2, 1, number);
      const std::vector<absl::Status> results = cluster.Run([](Machines& machines) {
        SHOAL_RETURN_IF_ERROR(ExchangeContents(machines));
        return machines.Gather("after", {}, 0).status();
      });
      for (const absl::Status& result : results) EXPECT_FALSE(result.ok()) << int(fault);
      // The first to notice a stall is any machine.
      if (code != absl::StatusCode::kOk) {
        EXPECT_EQ(results[1].code(), code) << results[1];
      } else {
        EXPECT_TRUE(std::ranges::any_of(
            results, [](const absl::Status& result) { return absl::IsDeadlineExceeded(result); }));
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

// A source that is longer than the bound sends nothing, and a sink's error is everybody's end.
TEST(MachinesTest, BoundsAndSinksAreHeeded) {
  testing::LocalCluster too_long(2);
  EXPECT_THAT(too_long.Run([](Machines& machines) {
    return machines.Gather("long", Bytes(machines.rank() == 0 ? 11 : 10), 10).status();
  })[0],
              StatusIs(absl::StatusCode::kResourceExhausted, "long: 11 bytes for machine 1"));
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
