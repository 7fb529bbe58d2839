// The offline stage of a party of several machines: the same bytes as of one, whatever their
// number, and for all of them or for none.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/machines/load_bound.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/server/machine_messages.h"
#include "src/server/offline.h"
#include "src/server/synthetic_round.h"
#include "src/server/testing/some_noise.h"
#include "src/sharing/sharing.h"
#include "src/shuffle/permutation.h"
#include "src/storage/spool.h"

namespace shoal::server {
namespace {

using machines::Machines;
using machines::testing::LocalCluster;
using Fault = LocalCluster::Fault;

// A party's input, in records that are not cut: submissions with their lengths, or onions.
struct Input {
  Bytes list;
  size_t record_bytes = 1;
  uint64_t onions_each = 1;  // in a record
  uint64_t records() const { return list.size() / record_bytes; }
};

// What a machine has after the stage.
struct Slice {
  Bytes list, seeds;
  std::vector<uint32_t> target;
  std::vector<std::pair<uint32_t, uint32_t>> noise;
  uint64_t dead = 0;
};

// Runs the stage at one machine, for records begin to end - 1 but for `missing` bytes.
absl::StatusOr<Slice> RunSlice(const SyntheticRound& round, uint32_t party, const Input& input,
                               machines::Run run, Machines& machines, uint64_t memory_bytes,
                               size_t missing = 0) {
  ThreadPool pool(2);
  SpoolPlace spools(::testing::TempDir(), memory_bytes);
  const Resources resources = {.pool = &pool, .spools = &spools, .machines = &machines};
  const RoundContext& context = round.context(party);
  const RoundSecrets& secrets = round.secrets(party);
  SHOAL_ASSIGN_OR_RETURN(NoiseBatch noise, MakeNoise(context, secrets, resources));
  const BytesView mine =
      BytesView(input.list)
          .subspan(run.begin * input.record_bytes, run.size() * input.record_bytes);
  SHOAL_ASSIGN_OR_RETURN(
      OnionIntake intake,
      context.is_frontend()
          ? OnionIntake::BeginSubmissions(context, secrets, mine.size(),
                                          run.size() * input.onions_each, resources)
          : OnionIntake::Begin(context, secrets, mine.size(), resources));
  SHOAL_RETURN_IF_ERROR(intake.Take(mine.first(mine.size() - missing)));
  SHOAL_ASSIGN_OR_RETURN(
      OfflineOutput out,
      RunOffline(context, ShuffleKeys(secrets), std::move(noise), std::move(intake), resources));
  Slice slice;
  SHOAL_ASSIGN_OR_RETURN(slice.list, ReadAll(out.onions));
  const BytesView seeds = out.material.seeds;
  slice.seeds.assign(seeds.begin(), seeds.end());
  slice.target.assign(out.material.target.begin(), out.material.target.end());
  for (const NoiseQuery& query : out.material.noise) {
    slice.noise.emplace_back(query.position, query.tally);
  }
  slice.dead = out.dead;
  if (!slice.list.empty()) {
    EXPECT_EQ(spools.file_bytes() > 0, memory_bytes == 0);
  }
  return slice;
}

// The stage on `count` machines, its slices joined.
Slice RunAll(const SyntheticRound& round, uint32_t party, const Input& input, uint32_t count,
             uint64_t memory_bytes, LocalCluster& cluster) {
  std::vector<Slice> slices(count);
  const auto results = cluster.Run([&](Machines& machines) -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(
        slices[machines.rank()],
        RunSlice(round, party, input, machines::RunOf(input.records(), machines.rank(), count),
                 machines, memory_bytes));
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) SHOAL_EXPECT_OK(result);
  Slice joined;
  for (const Slice& slice : slices) {
    Append(joined.list, slice.list);
    Append(joined.seeds, slice.seeds);
    joined.target.insert(joined.target.end(), slice.target.begin(), slice.target.end());
    joined.noise.insert(joined.noise.end(), slice.noise.begin(), slice.noise.end());
    joined.dead += slice.dead;
  }
  std::ranges::sort(joined.noise);
  return joined;
}

// Onions for a party of three, with one that was damaged, and one that comes again in the last
// slice, whichever that is.
Input MakeInput(const SyntheticRound& round, uint32_t party, size_t onions, RandomSource& random) {
  ThreadPool pool(2);
  Input input;
  if (party == 1) {
    input.onions_each = 5;
    input.record_bytes = kSubmissionLengthBytes + onion::SubmissionBytes(3, input.onions_each);
    input.list = round.MakeInput(onions / 5 * 5, 5, random, pool).list;
  } else {
    const std::span recipients = std::span(round.recipients()).subspan(party - 1);
    Bytes ephemeral(onions * recipients.size() * 32), seeds(ephemeral.size());
    random.Fill(ephemeral);
    input.record_bytes = round.context(party).onion_bytes();
    input.list.resize(onions * input.record_bytes);
    onion::BuildOnions(round.context(party).round_id, party, recipients, ephemeral, seeds,
                       input.list);
  }
  const uint64_t records = input.records();
  if (records >= 4) {
    std::copy_n(input.list.begin(), input.record_bytes,
                input.list.end() - static_cast<ptrdiff_t>(input.record_bytes));
    // Where the last layer seals nothing, another seed is what comes of this.
    input.list[2 * input.record_bytes + (party == 1 ? 60 : 40) % input.record_bytes] ^= 1;
  }
  return input;
}

// From one seed and one input, the list, the seeds, the permutation and the noise of a party of K
// machines are those of one machine: for the first party, one in the middle and the last, with
// fewer onions than machines, and with lists in files.
TEST(PartyMachinesTest, SlicesJoinedAreWhatOneMachineMakes) {
  testing::TestRandom random(31);
  for (const uint32_t party : {1u, 2u, 3u}) {
    for (const size_t onions : {0u, 5u, 2500u}) {
      const SyntheticRound round(
          {.parties = 3, .max_rows = 150, .max_slots = 5000, .noise = SomeNoise()}, random);
      const Input input = MakeInput(round, party, onions, random);
      LocalCluster alone(1);
      const Slice one = RunAll(round, party, input, 1, 1 << 30, alone);
      EXPECT_EQ(one.list.size() > 0, party < 3);
      EXPECT_EQ(one.dead > 0, input.records() >= 4);
      EXPECT_EQ(one.noise.size() > 1024, party < 3);
      for (const uint32_t count : {2u, 3u, 4u, 8u}) {
        for (const uint64_t memory_bytes : {uint64_t{1} << 30, uint64_t{0}}) {
          SCOPED_TRACE(absl::StrCat("party ", party, ", ", onions, " onions, ", count,
                                    " machines, ", memory_bytes, " bytes of memory for lists"));
          LocalCluster cluster(count);
          const Slice all = RunAll(round, party, input, count, memory_bytes, cluster);
          EXPECT_TRUE(all.list == one.list);
          EXPECT_EQ(all.seeds, one.seeds);
          EXPECT_EQ(all.target, one.target);
          EXPECT_EQ(all.noise, one.noise);
          EXPECT_EQ(all.dead, one.dead);
        }
      }
    }
  }
}

// The machines of a party make equal shares of its noise, and no share is of certain rows: noise of
// known rows would make a machine's part of these rows' true counts exact.
TEST(PartyMachinesTest, NoiseIsSharedWithoutRegardToRows) {
  constexpr uint32_t kMachines = 4, kRows = 150;
  testing::TestRandom random(37);
  const SyntheticRound round({.max_rows = kRows, .noise = SomeNoise()}, random);
  const RoundContext& context = round.context(1);
  std::vector<std::vector<uint32_t>> rows(kMachines);
  LocalCluster cluster(kMachines);
  for (const absl::Status& result : cluster.Run([&](Machines& machines) -> absl::Status {
         ThreadPool pool(1);
         SpoolPlace spools(::testing::TempDir(), 1 << 30);
         const Resources resources = {.pool = &pool, .spools = &spools, .machines = &machines};
         SHOAL_ASSIGN_OR_RETURN(const NoiseBatch noise,
                                MakeNoise(context, round.secrets(1), resources));
         const size_t n = noise.size();
         Bytes onions(n * onion::OnionBytes(1)), seeds(32 * n), valid(n);
         SHOAL_RETURN_IF_ERROR(noise.onions.Read(0, onions));
         onion::PeelOnions(round.secrets(2).OnionKeyPair(), context.round_id, 2, 1, onions, seeds,
                           {}, valid);
         for (size_t k = 0; k < n; ++k) {
           const Seed seed(BytesView(seeds).subspan(32 * k, 32));
           const auto share = sharing::Expand(seed.view(), context.round_id).share;
           rows[machines.rank()].push_back(sharing::Advance(share, noise.tallies[k]));
         }
         return absl::OkStatus();
       })) {
    SHOAL_EXPECT_OK(result);
  }
  std::vector<uint32_t> drawn(kRows), seen(kRows);
  SeededRandom counts = round.secrets(1).NoiseCounts();
  context.noise.Sample(counts, drawn);
  const uint64_t total = std::accumulate(drawn.begin(), drawn.end(), uint64_t{0});
  for (const std::vector<uint32_t>& mine : rows) {
    EXPECT_NEAR(static_cast<double>(mine.size()), static_cast<double>(total) / kMachines, 1);
    for (const uint32_t row : mine) {
      ASSERT_LT(row, kRows);
      ++seen[row];
    }
    // Of about 360 queries half are for the lower rows, within 6 standard deviations.
    const auto lower = std::ranges::count_if(mine, [](uint32_t row) { return row < kRows / 2; });
    EXPECT_NEAR(static_cast<double>(lower) / static_cast<double>(mine.size()), 0.5, 0.16);
  }
  EXPECT_EQ(seen, drawn);
}

// Submissions of many slots, whose inner onions are made up: cheap ones.
Input ManyOnions(const SyntheticRound& round, uint64_t submissions, uint64_t each, bool all_equal,
                 RandomSource& random) {
  Input input;
  input.onions_each = each;
  input.record_bytes = kSubmissionLengthBytes + onion::SubmissionBytes(2, each);
  input.list.resize(submissions * input.record_bytes);
  Bytes seeds(32 * each), onions(each * onion::OnionBytes(1));
  random.Fill(onions);
  for (uint64_t s = 0; s < submissions; ++s) {
    const MutableBytes record =
        MutableBytes(input.list).subspan(s * input.record_bytes, input.record_bytes);
    if (s > 0 && all_equal) {
      std::copy_n(input.list.begin(), input.record_bytes, record.begin());
      continue;
    }
    const Seed secret = random.NewSeed();
    StoreLe(record.data(), static_cast<uint32_t>(input.record_bytes - kSubmissionLengthBytes));
    const onion::SubmissionToSeal submission = {.ephemeral_secret = secret.view(),
                                                .onions = onions,
                                                .submission = record.subspan(4),
                                                .seeds = seeds};
    onion::SealSubmissions(round.recipients()[0], {}, {&submission, 1});
  }
  return input;
}

// No machine receives more than 1.3 times its share, and what passes is as long if all onions are
// copies of one.
TEST(PartyMachinesTest, NobodyReceivesMoreThanItsShare) {
  constexpr uint64_t kSubmissions = 192, kEach = 1000, kOnions = kSubmissions * kEach;
  testing::TestRandom random(32);
  const SyntheticRound round({.max_rows = 1, .max_slots = kOnions, .noise = SomeNoise()}, random);
  const Input different = ManyOnions(round, kSubmissions, kEach, false, random);
  const Input equal = ManyOnions(round, kSubmissions, kEach, true, random);
  for (const uint32_t count : {2u, 8u}) {
    LocalCluster cluster(count), copies(count);
    EXPECT_EQ(RunAll(round, 1, different, count, 1 << 30, cluster).dead, 0u);
    EXPECT_EQ(RunAll(round, 1, equal, count, 1 << 30, copies).dead, kOnions - kEach);
    // A fingerprint and its answer; bucket, tally and onion; a place.
    const double item_bytes = 16 + 1 + 2 + 4 + static_cast<double>(onion::OnionBytes(1)) + 4;
    const double share = item_bytes * kOnions * (count - 1) / count / count;
    for (uint32_t machine = 0; machine < count; ++machine) {
      const uint64_t received = cluster.received_bytes(machine);
      EXPECT_LT(static_cast<double>(received), 1.3 * share) << machine << " of " << count;
      EXPECT_EQ(received, copies.received_bytes(machine));
    }
  }
}

// What an observer could match with what he sees elsewhere does not pass: no seed, no inner onion.
TEST(PartyMachinesTest, NothingPassesInTheClear) {
  testing::TestRandom random(33);
  const SyntheticRound round(
      {.parties = 3, .max_rows = 20, .max_slots = 5000, .noise = SomeNoise()}, random);
  const Input input = MakeInput(round, 2, 2500, random);
  LocalCluster cluster(2);
  cluster.Capture();
  const Slice all = RunAll(round, 2, input, 2, 1 << 30, cluster);
  Bytes captured;
  for (const Bytes& chunk : cluster.captured()) Append(captured, chunk);
  ASSERT_GT(captured.size(), 1000u);
  for (size_t i = 0; i < 2500; i += 97) {
    for (const BytesView part :
         {BytesView(all.seeds).subspan(32 * i, 16), BytesView(all.list).subspan(32 * i, 16)}) {
      if (std::ranges::count(part, 0) == 16) continue;  // the seed of a dead position
      EXPECT_TRUE(std::ranges::search(captured, part).empty());
    }
  }
}

// If one machine lacks one onion, no machine has a list: nothing can leave any of them.
TEST(PartyMachinesTest, OneOnionWithheldAtOneMachineStopsAll) {
  testing::TestRandom random(34);
  const SyntheticRound round(
      {.parties = 3, .max_rows = 20, .max_slots = 5000, .noise = SomeNoise()}, random);
  for (const uint32_t party : {1u, 2u, 3u}) {
    const Input input = MakeInput(round, party, 60, random);
    LocalCluster cluster(3);
    const auto results = cluster.Run([&](Machines& machines) {
      return RunSlice(round, party, input, machines::RunOf(input.records(), machines.rank(), 3),
                      machines, 1 << 30, machines.rank() == 1 ? 1 : 0)
          .status();
    });
    EXPECT_THAT(results[1], testing::StatusIs(absl::StatusCode::kInvalidArgument, "ended"));
    for (const uint32_t other : {0u, 2u}) {
      EXPECT_EQ(results[other].code(), absl::StatusCode::kUnavailable) << results[other];
    }
  }
}

// Wherever a link fails or a machine dies, the machine that it concerns has no list, and a
// machine that lacks a message stops the others before they have theirs.
TEST(PartyMachinesTest, AFaultAtAnyStepStopsTheStage) {
  testing::TestRandom random(35);
  const SyntheticRound round(
      {.parties = 3, .max_rows = 20, .max_slots = 5000, .noise = SomeNoise()}, random);
  const Input input = MakeInput(round, 2, 60, random);
  // The greeting, slices, fingerprints, duplicates, buckets, onions, places; then comes the
  // barrier.
  for (uint64_t chunk = 0; chunk < 7; ++chunk) {
    for (const Fault fault : {Fault::kCorrupt, Fault::kWithhold, Fault::kAbort, Fault::kDie}) {
      LocalCluster cluster(3);
      if (fault == Fault::kWithhold || fault == Fault::kDie) cluster.BeImpatient();
      cluster.Break(fault, 0, 2, chunk);
      const auto results = cluster.Run([&](Machines& machines) {
        return RunSlice(round, 2, input, machines::RunOf(input.records(), machines.rank(), 3),
                        machines, 1 << 30)
            .status();
      });
      for (const absl::Status& result : results) {
        EXPECT_FALSE(result.ok()) << "fault " << static_cast<int>(fault) << ", chunk " << chunk;
      }
    }
  }
}

// What machine 0 of two makes of it if machine 1, which has no items, says that all positions that
// it gets go to one place, so many from the first of its own.
absl::Status WhenAllGoTo(const SyntheticRound& round, const Input& input, int64_t place) {
  LocalCluster cluster(2);
  return cluster.Run([&](Machines& all) -> absl::Status {
    if (all.rank() == 0) {
      return RunSlice(round, 2, input, {0, input.records()}, all, 1 << 30).status();
    }
    const std::vector<uint64_t> nothing(2);
    const auto most = [&](uint64_t items, uint64_t part, uint64_t whole, size_t bytes) {
      return std::vector<uint64_t>{machines::MostDrawn(items, part, whole) * bytes, 0};
    };
    const uint64_t none[] = {0, 0};
    SHOAL_ASSIGN_OR_RETURN(const auto slices, GatherNumbers(all, "slices", none));
    const uint64_t positions = slices[0][0], items = positions + slices[0][1];
    SHOAL_ASSIGN_OR_RETURN(const auto prints, ExchangeBytes(all, "fingerprints", {{}, {}}, nothing,
                                                            most(positions, 1, 2, 16)));
    SHOAL_RETURN_IF_ERROR(ExchangeBytes(all, "duplicates",
                                        {SecretVector<uint8_t>(prints[0].size() / 16), {}},
                                        most(positions, 1, 2, 1), nothing)
                              .status());
    const uint32_t buckets = shuffle::BucketCount(items);
    const Bytes counts(size_t{8} * buckets);
    SHOAL_ASSIGN_OR_RETURN(const auto drawn, all.Gather("buckets", counts, counts.size()));
    const machines::Run mine = machines::RunOf(buckets, 1, 2);
    uint64_t first_place = 0, come = 0;
    for (uint32_t k = 0; k < 2 * buckets; ++k) {
      const uint32_t n = LoadLe<uint32_t>(drawn[0].data() + size_t{4} * k);
      if (k % buckets < mine.begin) {
        first_place += n;
      } else if (k < buckets) {
        come += n;
      }
    }
    EXPECT_GT(first_place, 0u);
    EXPECT_GT(come, 0u);
    const size_t item_bytes = 2 + 4 + round.context(2).inner_bytes();
    SHOAL_RETURN_IF_ERROR(ExchangeBytes(all, "onions", {{}, {}}, nothing,
                                        most(items, mine.size(), buckets, item_bytes))
                              .status());
    SecretVector<uint8_t> places(4 * come);
    for (uint64_t k = 0; k < come; ++k) {
      StoreLe(places.data() + 4 * k,
              static_cast<uint32_t>(static_cast<int64_t>(first_place) + place));
    }
    SHOAL_RETURN_IF_ERROR(ExchangeBytes(all, "places", {std::move(places), {}},
                                        most(items, mine.size(), buckets, 4), nothing)
                              .status());
    return all.Gather("offline", {}, 0).status();
  })[0];
}

// The online stage takes places for indices: a machine can give its own places alone.
TEST(PartyMachinesTest, PlacesOfOthersAreRefused) {
  testing::TestRandom random(38);
  const SyntheticRound round(
      {.parties = 3, .max_rows = 20, .max_slots = 5000, .noise = SomeNoise()}, random);
  const Input input = MakeInput(round, 2, 1500, random);
  SHOAL_EXPECT_OK(WhenAllGoTo(round, input, 0));
  for (const int64_t place : {int64_t{-1}, int64_t{5000}, int64_t{0xfffffff0}}) {
    EXPECT_THAT(WhenAllGoTo(round, input, place),
                testing::StatusIs(absl::StatusCode::kDataLoss, "had not announced"))
        << place;
  }
}

// A list that is too long over all machines is refused, though each slice alone would not be.
TEST(PartyMachinesTest, AListTooLongOverAllMachinesIsRefused) {
  testing::TestRandom random(36);
  const SyntheticRound round({.parties = 3, .max_rows = 20, .max_slots = 50, .noise = SomeNoise()},
                             random);
  const Input input = MakeInput(round, 1, 60, random);
  LocalCluster cluster(2);
  for (const absl::Status& result : cluster.Run([&](Machines& machines) {
         return RunSlice(round, 1, input, machines::RunOf(input.records(), machines.rank(), 2),
                         machines, 1 << 30)
             .status();
       })) {
    EXPECT_FALSE(result.ok());
  }
}

}  // namespace
}  // namespace shoal::server
