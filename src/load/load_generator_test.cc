#include "src/load/load_generator.h"

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/client/testing/fake_frontend.h"
#include "src/load/popularity.h"

namespace shoal::load {
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
    return RunLoad(
        options_, frontend_.pins(), keys_, expected,
        [this] {
          return absl::StatusOr<std::unique_ptr<client::Transport>>(
              client::testing::ConnectTo(&frontend_, &mutex_));
        },
        {.clock = &frontend_.clock(),
         .random = &frontend_.random(),
         .pool = &frontend_.pool(),
         .sleep = [this](uint32_t) { Sleep(); },
         .progress = {}},
        nullptr, open_table_);
  }
  explicit CrowdTest(client::testing::FakeOptions options = {}) : frontend_(std::move(options)) {
    options_.devices = 12;
    options_.min_apps = 2;
    options_.max_apps = 6;
    options_.pad_to = 8;
    options_.connections = 3;
    options_.absent = 0.2;
  }
  virtual void Sleep() {}

  FakeFrontend frontend_;
  std::mutex mutex_;
  CrowdKeys keys_ = FakeKeys(300);
  CrowdOptions options_;
  TableOpener open_table_;
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
    options.piece_bytes = 4096;  // 126 onions, 170 queries, 32 answers
    SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report,
                               RunLoad(
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
    EXPECT_LE(requests["FetchAnswers"], 28u);
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
    return RunLoad(
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

// Rounds with terms. While the crowd waits for a refresh, the next epoch of the table comes.
class TermCrowdTest : public CrowdTest {
 protected:
  TermCrowdTest() : CrowdTest({.refreshes = 5}) {
    options_.refreshes = 3;
    open_table_ = [this]() -> absl::StatusOr<table::UnsignedTable> {
      ++opened_;
      return frontend_.table().content();
    };
  }
  void Sleep() override {
    const std::lock_guard lock(mutex_);
    if (frontend_.sent.empty() || frontend_.sent.back().first != "GetRefresh") return;
    if (epochs_left_-- == 0) frontend_.clock().now_s += 1'000'000;  // past every limit
    if (epochs_left_ < 0) return;
    frontend_.NextEpoch(300, /*keep_rows=*/true);
    frontend_.Refresh(round_);
  }
  absl::StatusOr<CrowdReport> RunTerm() {
    round_ = frontend_.OpenRound();
    return Run(&frontend_.table().content());
  }
  // The slots of the requests for each refresh, in the order of the requests' first slots, as
  // devices take turns by chance.
  std::map<uint32_t, std::set<std::string>> Fetched() const {
    std::map<uint32_t, std::set<std::string>> fetched;
    for (const auto& [name, bytes] : frontend_.sent) {
      wire::FetchRefreshRequest request;
      if (name != "FetchRefresh" || !request.ParseFromString(bytes)) continue;
      fetched[request.number()].insert(request.slots());
    }
    return fetched;
  }
  Digest round_ = {};
  int epochs_left_ = 3;
  int opened_ = 0;
};

// Devices that want no refreshes, where every round has a term.
class OutOfTermsTest : public CrowdTest {
 protected:
  OutOfTermsTest() : CrowdTest({.refreshes = 5}) {}
  void Sleep() override {
    const std::lock_guard lock(mutex_);
    if (++frontend_.clock().now_s % 40 == 0) frontend_.OpenRound();
  }
};

TEST_F(OutOfTermsTest, ACrowdTakesARoundWithATermIfThereIsNoOtherForAWhile) {
  const uint64_t begun_s = frontend_.clock().now_s;
  frontend_.OpenRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, Run(&frontend_.table().content()));
  EXPECT_EQ(report.answers_correct, 96u);
  EXPECT_GE(frontend_.clock().now_s, begun_s + 60);
  EXPECT_TRUE(report.refreshes.empty());
}

TEST_F(OutOfTermsTest, ACrowdThatGivesUpEarlierSaysWhatItLeft) {
  options_.timeout_s = 20;
  frontend_.OpenRound();
  EXPECT_THAT(Run(&frontend_.table().content()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "there are rounds with a term"));
}

TEST_F(TermCrowdTest, EveryRefreshIsFetchedAndChecked) {
  wire::TermReport report;
  frontend_.before = [&](const std::string& name) {
    if (name != "GetStatus") return absl::OkStatus();
    report.set_counter(frontend_.counter(round_));
    report.set_number(report.number() + 1);
    report.set_positions(1000 + report.number());
    report.clear_stages();
    report.add_stages()->set_cpu_seconds(report.number());
    frontend_.terms = {report};
    return absl::OkStatus();
  };
  for (const bool own_connections : {true, false}) {
    options_.own_connections = own_connections;
    options_.verify_each = own_connections;
    epochs_left_ = 3;
    report.set_number(-1);  // asked once for the round
    frontend_.sent.clear();
    SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport result, RunTerm());
    SHOAL_EXPECT_OK(result.no_more_refreshes);
    EXPECT_EQ(result.answers_correct, 96u);
    ASSERT_EQ(result.refreshes.size(), 3u);
    uint32_t number = 0;
    for (const CrowdReport::Refresh& refresh : result.refreshes) {
      EXPECT_EQ(refresh.number, ++number);
      EXPECT_EQ(refresh.devices, 12u);
      EXPECT_EQ(refresh.devices_asleep + refresh.devices_without_news, 0u);
      EXPECT_EQ(refresh.queries, 96u);
      EXPECT_EQ(refresh.answers_correct, 96u) << refresh.first_error;
      EXPECT_EQ(refresh.answers_wrong + refresh.answers_failed + refresh.answers_missing, 0u);
      EXPECT_TRUE(refresh.compared);
      EXPECT_EQ(refresh.keys_found + refresh.keys_absent, result.keys_found + result.keys_absent);
      EXPECT_GT(refresh.bytes_received, 96u * result.answer_bytes);
      EXPECT_LT(refresh.bytes_received, 96u * result.answer_bytes + 12 * 100);
      EXPECT_GT(refresh.bytes_sent, 96u * (4 + 16));
      EXPECT_GT(refresh.news_bytes_received, 100u);
      EXPECT_EQ(refresh.report.positions(), 1000 + number);
      EXPECT_EQ(refresh.report.stages(0).cpu_seconds(), number);
      EXPECT_GE(refresh.fetch_seconds, refresh.latency_seconds.p50);
      EXPECT_GT(refresh.latency_seconds.p50, 0);
    }
    EXPECT_EQ(result.refreshes[2].epoch, result.refreshes[0].epoch + 2);
    // What the round's traffic was is told apart.
    EXPECT_LT(result.bytes_received, 2 * 96u * result.answer_bytes);
  }
  EXPECT_EQ(opened_, 6);
}

// With pieces of a few answers, and with gaps between the slots of those who are awake.
TEST_F(TermCrowdTest, RequestsHaveNoMoreThanFitsThem) {
  options_.devices = 1200;
  options_.pad_to = 2;
  options_.min_apps = options_.max_apps = 1;
  options_.absent = 0;
  options_.own_connections = false;
  options_.verify_each = false;
  options_.connections = 1;
  options_.refreshes = 1;
  options_.asleep = 0.5;
  for (const size_t piece_bytes : {size_t{4096}, client::kMaxBulkBytes}) {
    options_.piece_bytes = piece_bytes;
    epochs_left_ = 1;
    frontend_.sent.clear();
    SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, RunTerm());
    ASSERT_EQ(report.refreshes.size(), 1u) << report.no_more_refreshes;
    // 600 on average, and the standard deviation is 17. The seed is fixed.
    EXPECT_NEAR(report.refreshes[0].devices, 600, 85);
    EXPECT_EQ(report.refreshes[0].answers_correct, report.refreshes[0].devices * 2)
        << report.refreshes[0].first_error;
    const auto fetched = Fetched();
    size_t runs_of_all = 0;
    for (const std::string& slots : fetched.at(1)) {
      EXPECT_LE(slots.size() / 4, piece_bytes / report.answer_bytes);
      size_t runs = 0;
      uint32_t before = 0;
      for (size_t at = 0; at < slots.size(); at += 4) {
        const auto slot = LoadLe<uint32_t>(AsBytes(slots).data() + at);
        runs += at == 0 || slot != before + 1;
        before = slot;
      }
      EXPECT_LE(runs, 256u);
      runs_of_all += runs;
    }
    EXPECT_GT(runs_of_all, 256u);
  }
}

TEST_F(TermCrowdTest, SomeDevicesSleepAndAreThereAgain) {
  options_.asleep = 0.25;
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, RunTerm());
  ASSERT_EQ(report.refreshes.size(), 3u) << report.no_more_refreshes;
  const Popularity popularity(options_, &keys_, 1000);
  uint32_t asleep = 0;
  for (uint32_t number = 1; number <= 3; ++number) {
    const CrowdReport::Refresh& refresh = report.refreshes[number - 1];
    uint32_t expected = 0;
    for (uint32_t device = 0; device < 12; ++device) {
      expected += popularity.IsAsleep(device, number);
    }
    EXPECT_EQ(refresh.devices_asleep, expected);
    EXPECT_EQ(refresh.devices, 12 - expected);
    EXPECT_EQ(refresh.answers_correct, 8 * (12 - expected));
    EXPECT_EQ(Fetched()[number].size(), 12 - expected);
    asleep += expected;
  }
  EXPECT_GT(asleep, 0u);
  EXPECT_LT(asleep, 36u);
}

TEST(Popularity, DevicesSleepThroughTheirShare) {
  const CrowdKeys keys = FakeKeys(200);
  CrowdOptions options;
  options.refreshes = 20;
  options.asleep = 0.3;
  const Popularity popularity(options, &keys, 1000);
  double asleep = 0, twice = 0;
  for (uint32_t device = 0; device < 2000; ++device) {
    for (uint32_t refresh = 1; refresh <= 20; ++refresh) {
      asleep += popularity.IsAsleep(device, refresh);
      twice += popularity.IsAsleep(device, refresh) && popularity.IsAsleep(device, refresh + 1);
    }
  }
  // 12,000 on average, and the standard deviation is 92; 3,600 and about 65. The seed is fixed.
  EXPECT_NEAR(asleep, 12'000, 460);
  EXPECT_NEAR(twice, 3'600, 330);
}

// Whatever the answers say, and whoever gets none, the same requests follow.
TEST_F(TermCrowdTest, NothingThatIsSentDependsOnTheAnswers) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport good, RunTerm());
  const auto as_ever = Fetched();
  ASSERT_EQ(as_ever.size(), 3u);
  EXPECT_EQ(as_ever.at(1).size(), 12u);
  frontend_.sent.clear();
  epochs_left_ = 3;
  uint64_t spoiled = 0;
  int fetches = 0;
  frontend_.spoil = [&](uint32_t row, MutableBytes answer) {
    if (epochs_left_ == 3 || row % 3 != 0) return;  // the round's own are right
    answer[3] ^= 1;
    ++spoiled;
  };
  frontend_.after = [&](const std::string& name) {
    return name == "FetchRefresh" && ++fetches == 2 ? absl::InternalError("boom")
                                                    : absl::OkStatus();
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, RunTerm());
  EXPECT_EQ(Fetched(), as_ever);
  ASSERT_EQ(report.refreshes.size(), 3u) << report.no_more_refreshes;
  uint64_t failed = 0;
  for (const CrowdReport::Refresh& refresh : report.refreshes) {
    EXPECT_EQ(refresh.devices, 12u);
    EXPECT_EQ(refresh.answers_correct + refresh.answers_failed, 96u);
    EXPECT_GT(refresh.keys_failed, 0u);
    failed += refresh.answers_failed - refresh.answers_missing;
  }
  EXPECT_EQ(report.refreshes[0].devices_without_news, 1u);
  EXPECT_EQ(report.refreshes[0].answers_missing, 8u);
  EXPECT_EQ(report.refreshes[1].devices_without_news, 0u);
  EXPECT_GT(spoiled, 0u);
  EXPECT_LE(failed, spoiled);  // the lost device's were spoiled, too
  EXPECT_GE(failed + 8, spoiled);
}

// What the frontend shows and nobody has signed is no refresh.
TEST_F(TermCrowdTest, AForgedRefreshIsNoNews) {
  frontend_.spoil_refresh = [](wire::GetRefreshResponse& response) {
    if (response.has_refresh()) response.mutable_refresh()->mutable_signature()->at(9) ^= 1;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, RunTerm());
  EXPECT_EQ(report.answers_correct, 96u);
  EXPECT_TRUE(report.refreshes.empty());
  EXPECT_TRUE(Fetched().empty());
  EXPECT_THAT(report.no_more_refreshes,
              StatusIs(absl::StatusCode::kDeadlineExceeded, "refresh 1: none came within"));
}

TEST_F(TermCrowdTest, ATermThatEndsEarlyLeavesItsRefreshes) {
  frontend_.before = [&](const std::string& name) {
    return name == "GetRefresh" && epochs_left_ == 1 ? absl::NotFoundError("no term")
                                                     : absl::OkStatus();
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, RunTerm());
  EXPECT_EQ(report.refreshes.size(), 1u);
  EXPECT_THAT(report.no_more_refreshes,
              StatusIs(absl::StatusCode::kNotFound, "refresh 2: the term has ended: no term"));
}

TEST_F(TermCrowdTest, ATermMustHaveRoomForAllRefreshes) {
  options_.refreshes = 6;
  EXPECT_THAT(RunTerm(), StatusIs(absl::StatusCode::kFailedPrecondition, "at most 5 refreshes"));
}

// The same answers under another table's name are not compared, and count as verified.
TEST_F(TermCrowdTest, ATableOfAnotherEpochIsNotComparedWith) {
  options_.refreshes = 1;
  const FakeFrontend other({.seed = 2});
  open_table_ = [&]() -> absl::StatusOr<table::UnsignedTable> { return other.table().content(); };
  SHOAL_ASSERT_OK_AND_ASSIGN(const CrowdReport report, RunTerm());
  ASSERT_EQ(report.refreshes.size(), 1u) << report.no_more_refreshes;
  EXPECT_FALSE(report.refreshes[0].compared);
  EXPECT_EQ(report.refreshes[0].answers_correct, 96u);
}

TEST_F(CrowdTest, WithoutTermsNoRoundIsTaken) {
  options_.refreshes = 1;
  frontend_.OpenRound();
  EXPECT_THAT(Run(nullptr), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     "no round of this deployment has a term"));
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
  bad([](CrowdOptions& o) { o.asleep = 0.5; }, "asleep: it takes --refreshes");
  bad(
      [](CrowdOptions& o) {
        o.refreshes = 1;
        o.asleep = 1;
      },
      "asleep: a share");
  EXPECT_THAT(CheckCrowd(options_, 10), StatusIs(absl::StatusCode::kInvalidArgument, "half"));
}

}  // namespace
}  // namespace shoal::load
