#include "src/crowd/crowd.h"

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/client/testing/fake_frontend.h"
#include "src/crowd/popularity.h"

namespace shoal::crowd {
namespace {

using client::testing::FakeFrontend;
using shoal::testing::StatusIs;

CrowdKeys FakeKeys(size_t n) {
  CrowdKeys keys;
  for (size_t i = 0; i < n; ++i) keys.listed.push_back(ToBytes(AsBytes(FakeFrontend::Key(i))));
  return keys;
}

std::vector<Bytes> KeysOf(const Popularity& popularity, uint32_t device) {
  std::vector<Bytes> keys;
  for (const uint32_t app : popularity.AppsOf(device)) {
    keys.push_back(popularity.KeyOf(device, app));
  }
  return keys;
}

TEST(Popularity, IsAFunctionOfTheSeed) {
  const CrowdKeys keys = FakeKeys(500);
  CrowdOptions options;
  const Popularity a(options, &keys, 1000), b(options, &keys, 1000);
  options.seed = 2;
  const Popularity c(options, &keys, 1000);
  EXPECT_EQ(KeysOf(a, 7), KeysOf(b, 7));
  EXPECT_NE(KeysOf(a, 7), KeysOf(a, 8));
  EXPECT_NE(KeysOf(a, 7), KeysOf(c, 7));
}

TEST(Popularity, DrawsDistinctKeysWithinTheRange) {
  const CrowdKeys keys = FakeKeys(200);
  CrowdOptions options;
  options.min_apps = 3;
  options.max_apps = 5;
  options.zipf = 1.5;
  const Popularity popularity(options, &keys, 1000);
  std::map<size_t, int> sizes;
  for (uint32_t device = 0; device < 3000; ++device) {
    const std::vector<Bytes> drawn = KeysOf(popularity, device);
    std::set<std::string> distinct;
    for (const Bytes& key : drawn) distinct.insert(ToString(key));
    EXPECT_EQ(distinct.size(), drawn.size());
    ++sizes[drawn.size()];
  }
  // 1000 each, standard deviation 26.
  ASSERT_EQ(sizes.size(), 3u);
  for (const auto& [size, count] : sizes) EXPECT_NEAR(count, 1000, 130) << size;
}

// Devices with one application: its rank has the stated law (chi-squared over the first ranks).
TEST(Popularity, FollowsZipf) {
  const size_t n = 50;
  const CrowdKeys keys = FakeKeys(n);
  for (double exponent : {0.5, 1.0}) {
    CrowdOptions options;
    options.min_apps = options.max_apps = 1;
    options.zipf = exponent;
    const Popularity popularity(options, &keys, 1000);
    std::map<std::string, double> seen;
    const int draws = 50'000;
    for (uint32_t device = 0; device < draws; ++device) {
      ++seen[ToString(KeysOf(popularity, device)[0])];
    }
    double sum = 0, chi2 = 0;
    for (size_t rank = 1; rank <= n; ++rank) sum += std::pow(rank, -exponent);
    for (size_t rank = 1; rank <= n; ++rank) {
      const double expected = draws * std::pow(rank, -exponent) / sum;
      chi2 += std::pow(seen[ToString(popularity.Ranked(rank))] - expected, 2) / expected;
    }
    // 49 degrees of freedom: above 95 with probability below 1e-4.
    EXPECT_LT(chi2, 95) << exponent;
  }
}

TEST(Popularity, UniformIsUniformAndDistinct) {
  for (const uint32_t apps : {3u, 7u, 10u}) {  // less and more than half of the keys, and all
    CrowdKeys keys;
    keys.dense = 10;
    CrowdOptions options;
    options.min_apps = options.max_apps = apps;
    options.zipf = 0;
    const Popularity popularity(options, &keys, 1000);
    std::map<uint32_t, double> seen;
    const int devices = 10'000;
    for (uint32_t device = 0; device < devices; ++device) {
      const std::vector<uint32_t> drawn = popularity.AppsOf(device);
      ASSERT_EQ(std::set<uint32_t>(drawn.begin(), drawn.end()).size(), apps);
      for (uint32_t app : drawn) ++seen[app];
    }
    // Every key is on `apps` in ten devices. The standard deviation is at most 50.
    ASSERT_EQ(seen.size(), 10u);
    for (const auto& [key, count] : seen) EXPECT_NEAR(count, devices * apps / 10.0, 250) << key;
    EXPECT_EQ(ToString(popularity.KeyOf(3, 7)), "7");
  }
}

TEST(Popularity, QueriesAreSharedOutExactly) {
  CrowdKeys keys;
  keys.dense = 1000;
  CrowdOptions options;
  options.devices = 7;
  options.queries = 100;
  options.fill = true;
  options.zipf = 0;
  SHOAL_ASSERT_OK(CheckCrowd(options, keys.size()));
  const Popularity popularity(options, &keys, 1000);
  uint64_t sum = 0;
  for (uint32_t device = 0; device < 7; ++device) {
    EXPECT_EQ(popularity.QueriesBefore(device), sum);
    EXPECT_TRUE(popularity.QueriesOf(device) == 14 || popularity.QueriesOf(device) == 15);
    EXPECT_EQ(popularity.AppsOf(device).size(), popularity.QueriesOf(device));
    sum += popularity.QueriesOf(device);
  }
  EXPECT_EQ(sum, 100u);
}

class CrowdTest : public ::testing::Test {
 protected:
  absl::StatusOr<CrowdReport> Run(const table::UnsignedTable* expected) {
    return RunCrowd(
        options_, frontend_.pins(), keys_, expected,
        [this] {
          return absl::StatusOr<std::unique_ptr<client::Transport>>(
              client::testing::ConnectTo(&frontend_, &mutex_));
        },
        {.clock = &frontend_.clock(),
         .random = &frontend_.random(),
         .pool = &frontend_.pool(),
         .sleep = [](uint32_t) {},
         .progress = {}},
        nullptr);
  }
  CrowdTest() {
    options_.devices = 12;
    options_.min_apps = 2;
    options_.max_apps = 6;
    options_.pad_to = 8;
    options_.connections = 3;
    options_.absent = 0.2;
  }
  FakeFrontend frontend_;
  std::mutex mutex_;
  CrowdKeys keys_ = FakeKeys(300);
  CrowdOptions options_;
};

TEST_F(CrowdTest, EveryAnswerIsChecked) {
  const Digest round_id = frontend_.OpenRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run(&frontend_.table().content()));
  EXPECT_EQ(report.devices, 12u);
  EXPECT_EQ(report.devices_lost, 0u);
  EXPECT_EQ(report.queries, 96u);
  EXPECT_EQ(report.answers_correct, 96u);
  EXPECT_EQ(report.answers_wrong, 0u);
  EXPECT_EQ(report.answers_failed, 0u);
  EXPECT_TRUE(report.compared);
  EXPECT_EQ(frontend_.Asked(round_id).size(), 96u);
  uint64_t found = 0, absent = 0;
  const Popularity popularity(options_, &keys_, 1000);
  for (uint32_t device = 0; device < 12; ++device) {
    for (const Bytes& key : KeysOf(popularity, device)) {
      ++(AsText(key).substr(0, 4) == "key-" ? found : absent);
    }
  }
  EXPECT_GT(absent, 0u);
  EXPECT_EQ(report.keys_found, found);
  EXPECT_EQ(report.keys_absent, absent);
  EXPECT_EQ(report.keys_failed, 0u);
  std::vector<std::string> stages;
  for (const auto& stage : report.stages) stages.push_back(stage.name);
  EXPECT_EQ(stages, (std::vector<std::string>{"draw", "obtain", "wait offline", "submit",
                                              "wait online", "fetch"}));
  EXPECT_GT(report.bytes_sent, 96u * (80 + 24));
  EXPECT_GT(report.bytes_received, 96u * report.answer_bytes);
}

size_t SubmissionsIn(const FakeFrontend& frontend) {
  size_t count = 0;
  for (const auto& [name, bytes] : frontend.sent) {
    wire::SubmitOnionsRequest request;
    if (name != "SubmitOnions" || !request.ParseFromString(bytes)) continue;
    count += static_cast<size_t>(request.submissions_size());
  }
  return count;
}

// Devices that share requests with others, that fill a request alone, and that need several.
TEST(CrowdOfSharedConnections, CarriesTheSame) {
  FakeFrontend frontend({.parties = 2, .dense = true, .records = 900, .row_bytes = 64});
  std::mutex mutex;
  CrowdKeys keys;
  keys.dense = 900;
  for (const uint32_t devices : {200u, 40u, 3u}) {
    const Digest round_id = frontend.OpenRound();
    frontend.sent.clear();
    CrowdOptions options;
    options.devices = devices;
    options.queries = 805;
    options.fill = true;
    options.zipf = 0;
    options.connections = 3;
    options.own_connections = false;
    options.verify_each = false;
    options.piece_bytes = 4096;  // 126 onions, 170 queries, 36 answers
    SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report,
                               RunCrowd(
                                   options, frontend.pins(), keys, &frontend.table().content(),
                                   [&] {
                                     return absl::StatusOr<std::unique_ptr<client::Transport>>(
                                         client::testing::ConnectTo(&frontend, &mutex));
                                   },
                                   {.clock = &frontend.clock(),
                                    .random = &frontend.random(),
                                    .pool = &frontend.pool(),
                                    .sleep = [](uint32_t) {}},
                                   nullptr));
    EXPECT_EQ(report.devices_lost, 0u) << report.first_error;
    EXPECT_EQ(report.queries, 805u);
    EXPECT_EQ(report.answers_correct, 805u);
    EXPECT_EQ(report.keys_found, 805u);
    EXPECT_EQ(frontend.Asked(round_id).size(), 805u);
    std::map<std::string, size_t> requests;
    for (const auto& [name, bytes] : frontend.sent) ++requests[name];
    // 805 onions in eight requests and more, as each device has a submission of its own, with 48
    // bytes of its own: 200 devices have 4 or 5 onions in it.
    EXPECT_EQ(SubmissionsIn(frontend), devices == 3 ? 9u : devices);
    EXPECT_LE(requests["SubmitOnions"], devices == 3 ? 9u : 14u);
    EXPECT_EQ(requests["SubmitQueries"], 5u);
    EXPECT_LE(requests["FetchAnswers"], 25u);
  }
}

// A frontend of several machines. What devices ask goes to a machine that they have drawn, by its
// address, and nothing of it over the first connection.
class CrowdOfMachinesTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr uint32_t kMachines = 3, kDevices = 300;
  explicit CrowdOfMachinesTest(uint32_t max_slots = 1 << 16)
      : frontend_({.parties = 2,
                   .dense = true,
                   .records = 900,
                   .row_bytes = 64,
                   .max_slots = max_slots,
                   .machines = kMachines}) {
    keys_.dense = 900;
    options_.devices = kDevices;
    options_.pad_to = 4;
    options_.min_apps = options_.max_apps = 3;
    options_.connections = 3;
    options_.piece_bytes = 4096;
  }
  absl::StatusOr<CrowdReport> Run() {
    return RunCrowd(
        options_, frontend_.pins(), keys_, &frontend_.table().content(),
        [this] { return Connect(""); },
        {.clock = &frontend_.clock(),
         .random = &frontend_.random(),
         .pool = &frontend_.pool(),
         .sleep = [](uint32_t) {},
         .connect_to = [this](const std::string& address) { return Connect(address); }},
        nullptr);
  }
  absl::StatusOr<std::unique_ptr<client::Transport>> Connect(const std::string& address) {
    return client::testing::ConnectTo(
        &frontend_, &mutex_, [this, address](const std::string& name) {
          asked_[name].insert(address);
          if (name == "SubmitOnions" || name == "SubmitQueries" || name == "FetchAnswers") {
            went_to_[frontend_.sent.size()] = address;
          }
          return name == fails_.first && address == fails_.second ? absl::InternalError("boom")
                                                                  : absl::OkStatus();
        });
  }
  // The slots that such requests name, by the address where they went.
  template <typename Request>
  std::map<std::string, std::multiset<uint32_t>> SlotsAt(const std::string& method) const {
    std::map<std::string, std::multiset<uint32_t>> slots;
    for (const auto& [i, address] : went_to_) {
      Request request;
      if (frontend_.sent[i].first != method || !request.ParseFromString(frontend_.sent[i].second)) {
        continue;
      }
      for (size_t at = 0; at < request.slots().size(); at += 4) {
        slots[address].insert(LoadLe<uint32_t>(AsBytes(request.slots()).data() + at));
      }
    }
    return slots;
  }

  FakeFrontend frontend_;
  std::mutex mutex_;
  CrowdKeys keys_;
  CrowdOptions options_;
  std::map<std::string, std::set<std::string>> asked_;  // addresses by method
  std::map<size_t, std::string> went_to_;               // by the place in frontend_.sent
  std::pair<std::string, std::string> fails_;           // a method at an address
};

INSTANTIATE_TEST_SUITE_P(OwnConnections, CrowdOfMachinesTest, ::testing::Bool());

TEST_P(CrowdOfMachinesTest, EachDeviceStaysAtAMachineThatItHasDrawn) {
  options_.own_connections = GetParam();
  const Digest round_id = frontend_.OpenRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run());
  EXPECT_EQ(report.answers_correct, kDevices * 4u) << report.first_error;
  EXPECT_EQ(report.devices_lost, 0u);
  EXPECT_EQ(frontend_.Asked(round_id).size(), kDevices * 4u);
  // All of it counts.
  EXPECT_GT(report.bytes_received, kDevices * 4u * report.answer_bytes);

  const auto asked = SlotsAt<wire::SubmitQueriesRequest>("SubmitQueries");
  EXPECT_EQ(asked, SlotsAt<wire::FetchAnswersRequest>("FetchAnswers"));
  ASSERT_EQ(asked.size(), kMachines);
  std::set<uint32_t> all;
  for (const auto& [address, slots] : asked) {
    // 100 devices on average, and the standard deviation is 8.2. The seed is fixed.
    EXPECT_NEAR(static_cast<double>(slots.size()), kDevices * 4.0 / kMachines, 4 * 35.0) << address;
    EXPECT_EQ(slots.size() % 4, 0u) << "a device's slots are at two machines";
    for (const uint32_t slot : slots) EXPECT_TRUE(all.insert(slot).second) << slot;
  }
  // Onions are counted by machine, too: a submission has 32 bytes a party but the first, and 48.
  std::map<std::string, size_t> onions;
  for (const auto& [i, address] : went_to_) {
    wire::SubmitOnionsRequest request;
    if (frontend_.sent[i].first != "SubmitOnions") continue;
    ASSERT_TRUE(request.ParseFromString(frontend_.sent[i].second));
    for (const std::string& submission : request.submissions()) {
      onions[address] += (submission.size() - 48) / 32;
    }
  }
  for (const auto& [address, slots] : asked) EXPECT_EQ(onions[address], slots.size()) << address;
  // Rounds are listed by the machine of the configuration, and devices wait at their own.
  EXPECT_EQ(asked_["ListRounds"], std::set<std::string>{""});
  EXPECT_EQ(asked_["WaitRound"].size(), 1 + kMachines);
}

// What fails at one machine loses its devices, and no others.
TEST_P(CrowdOfMachinesTest, AMachineThatFailsLosesItsOwnDevices) {
  options_.own_connections = GetParam();
  frontend_.OpenRound();
  fails_ = {"FetchAnswers", frontend_.roster().party(1).ClientAddress(1)};
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run());
  const auto asked = SlotsAt<wire::SubmitQueriesRequest>("SubmitQueries");
  const size_t lost = asked.at(fails_.second).size();
  EXPECT_EQ(report.answers_failed, lost);
  EXPECT_EQ(report.devices_lost, lost / 4);
  EXPECT_EQ(report.answers_correct, kDevices * 4u - lost);
  EXPECT_EQ(report.answers_correct + report.answers_failed, report.queries);
}

class CrowdOfSmallRoundsTest : public CrowdOfMachinesTest {
 protected:
  CrowdOfSmallRoundsTest() : CrowdOfMachinesTest(/*max_slots=*/kDevices * 4 + 2) {}
};
INSTANTIATE_TEST_SUITE_P(OwnConnections, CrowdOfSmallRoundsTest, ::testing::Values(true));

// A round has room for the crowd, but not each machine for those who drew it.
TEST_P(CrowdOfSmallRoundsTest, NoMachineGetsMoreThanItsShareOfARound) {
  frontend_.OpenRound();
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kResourceExhausted, "for one machine"));
  EXPECT_TRUE(went_to_.empty());
}

// Some answers to a row are right and others wrong. A right one must not make a wrong one count as
// verified.
class SpoiledCrowdTest : public CrowdTest,
                         public ::testing::WithParamInterface<std::pair<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(VerifyEachAndOwnConnections, SpoiledCrowdTest,
                         ::testing::Values(std::pair(true, true), std::pair(false, true),
                                           std::pair(false, false)));
TEST_P(SpoiledCrowdTest, EverySpoiledAnswerIsCounted) {
  options_.verify_each = GetParam().first;
  options_.own_connections = GetParam().second;
  frontend_.OpenRound();
  uint64_t spoiled = 0, answers = 0;
  frontend_.spoil = [&](uint32_t row, MutableBytes answer) {
    if (row % 5 == 0 || ++answers % 7 == 0) {
      answer[3] ^= 1;
      ++spoiled;
    }
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run(nullptr));
  EXPECT_GT(spoiled, 0u);
  EXPECT_EQ(report.answers_failed, spoiled);
  EXPECT_EQ(report.answers_correct, 96 - spoiled);
  EXPECT_GT(report.keys_failed, 0u);
  EXPECT_FALSE(report.compared);
  EXPECT_THAT(report.first_error, StatusIs(absl::StatusCode::kUnauthenticated, ""));
}

TEST_F(CrowdTest, ALostDeviceIsCounted) {
  frontend_.OpenRound();
  int submissions = 0;
  frontend_.before = [&](const std::string& name) {
    return name == "SubmitQueries" && submissions++ == 4 ? absl::InternalError("boom")
                                                         : absl::OkStatus();
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run(nullptr));
  EXPECT_EQ(report.devices_lost, 1u);
  EXPECT_EQ(report.answers_failed, 8u);
  EXPECT_EQ(report.answers_correct, 88u);
  EXPECT_THAT(report.first_error, StatusIs(absl::StatusCode::kInternal, "submit: boom"));
}

// A device asks for all rows if the table has fewer than it would pad to. Applications that do not
// fit are an error, and do not end the process.
TEST_F(CrowdTest, NobodyAsksForMoreRowsThanThereAre) {
  options_.pad_to = 1000;
  options_.min_apps = options_.max_apps = 100;  // more than there are rows
  frontend_.OpenRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run(nullptr));
  ASSERT_LT(frontend_.table().rows(), 100u);
  EXPECT_EQ(report.queries, 12 * frontend_.table().rows());
  EXPECT_EQ(report.answers_correct, report.queries);
}

TEST_F(CrowdTest, AnotherTableIsNotComparedWith) {
  frontend_.OpenRound();
  FakeFrontend other({.seed = 2});
  EXPECT_THAT(Run(&other.table().content()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not the deployment's"));
}

TEST_F(CrowdTest, AnAbortedRoundIsAnError) {
  frontend_.OpenRound();
  frontend_.reach = [](const Digest&, wire::RoundState) { return wire::ABORTED; };
  EXPECT_THAT(Run(nullptr), StatusIs(absl::StatusCode::kAborted, "aborted"));
}

// As every client's lookup: the run fails as a whole, also for devices whose answers were fetched
// and verified before, and there is no report that counts them. What the frontend sees is the same.
TEST_F(CrowdTest, ATableThatExpiresMeanwhileIsNotBelieved) {
  constexpr uint64_t kLater = 200'000;
  for (const int expires_at : {1, 7, 12}) {
    frontend_.OpenRound();
    int fetches = 0;
    frontend_.after = [&](const std::string& name) {
      if (name == "FetchAnswers" && ++fetches == expires_at) frontend_.clock().now_s += kLater;
      return absl::OkStatus();
    };
    EXPECT_THAT(
        Run(&frontend_.table().content()),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 "the table expired while its answers were on their way, and none is used"));
    EXPECT_EQ(fetches, 12);
    frontend_.clock().now_s -= kLater;
  }
  frontend_.after = nullptr;
  frontend_.OpenRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run(&frontend_.table().content()));
  EXPECT_EQ(report.answers_correct, 96u);
}

TEST_F(CrowdTest, OptionsAreChecked) {
  const auto bad = [&](auto change, absl::string_view part) {
    CrowdOptions options = options_;
    change(options);
    EXPECT_THAT(CheckCrowd(options, 300),
                StatusIs(absl::StatusCode::kInvalidArgument, std::string(part)));
  };
  SHOAL_EXPECT_OK(CheckCrowd(options_, 300));
  bad([](CrowdOptions& o) { o.devices = 0; }, "devices");
  bad([](CrowdOptions& o) { o.connections = 0; }, "connections");
  bad([](CrowdOptions& o) { o.min_apps = 7; }, "apps");
  bad([](CrowdOptions& o) { o.max_apps = 9; }, "do not fit");
  bad([](CrowdOptions& o) { o.queries = 11; }, "queries");
  bad([](CrowdOptions& o) { o.queries = 12 * 5; }, "do not fit");
  bad([](CrowdOptions& o) { o.zipf = -1; }, "zipf");
  bad([](CrowdOptions& o) { o.zipf = std::nan(""); }, "zipf");
  bad([](CrowdOptions& o) { o.absent = 1.5; }, "absent");
  EXPECT_THAT(CheckCrowd(options_, 10), StatusIs(absl::StatusCode::kInvalidArgument, "half"));
}

}  // namespace
}  // namespace shoal::crowd
