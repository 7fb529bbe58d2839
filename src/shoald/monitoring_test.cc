// The figures and the health of a party, as its operator's monitoring sees them.
#include "src/shoald/monitoring.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_clock.h"
#include "src/net/testing/test_identity.h"
#include "src/server/testing/deployment.h"

namespace shoal::shoald {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class MonitoringTest : public ::testing::Test {
 protected:
  MonitoringTest() : deployment_({.rows = 10, .plan = {.stage_limit_s = 100}}) {
    config_.set_party(2);
    config_.set_state_directory(::testing::TempDir());
    config_.set_spool_directory(::testing::TempDir());
    monitoring_.emplace(config_, deployment_.roster(), identity_.tls(), deployment_.clock());
  }
  Metrics& metrics() { return monitoring_->metrics(); }
  shoal::testing::TestClock& clock() { return deployment_.clock(); }

  // The figure on a page with this name and, besides the party's, these labels; -1 if there is
  // none.
  static double Value(const Monitoring& monitoring, const std::string& name,
                      const std::vector<std::string>& labels = {}) {
    const std::string page = monitoring.PageAt("/metrics").body;
    for (const absl::string_view line : absl::StrSplit(page, '\n')) {
      if (!absl::StartsWith(line, name + "{") || !absl::StrContains(line, "party=\"2\"")) continue;
      if (!std::ranges::all_of(
              labels, [&](const std::string& label) { return absl::StrContains(line, label); })) {
        continue;
      }
      return std::stod(std::string(line.substr(line.rfind(' ') + 1)));
    }
    return -1;
  }
  double Value(const std::string& name, const std::vector<std::string>& labels = {}) const {
    return Value(*monitoring_, name, labels);
  }

  const net::testing::TestIdentity identity_{1};
  server::testing::Deployment deployment_;
  ServerConfig config_;
  std::optional<Monitoring> monitoring_;
};

TEST_F(MonitoringTest, StagesAreShownAsTheirReportsAre) {
  wire::StageReport report;
  report.set_stage("offline");
  report.set_seconds(1.25);
  report.set_bytes_in(4000);
  report.set_bytes_out(6001);
  report.set_positions_in(50);
  report.set_positions_out(75);
  metrics().StageDone(report, /*last=*/false);
  report.set_stage("noise");
  report.set_noise_queries(25);
  metrics().StageDone(report, /*last=*/false);
  const std::string offline = "stage=\"offline\"";
  EXPECT_EQ(Value("shoal_stage_seconds_count", {offline}), 1);
  EXPECT_EQ(Value("shoal_stage_seconds_sum", {offline}), 1.25);
  EXPECT_EQ(Value("shoal_stage_bytes_total", {offline, "direction=\"in\""}), 4000);
  EXPECT_EQ(Value("shoal_stage_positions", {offline, "direction=\"out\""}), 75);
  EXPECT_EQ(Value("shoal_noise_queries"), 25);
}

// Each half of a round of two tiers has figures of its own, which add up to the party's: half B
// does not take the place of half A.
TEST_F(MonitoringTest, HalvesAreShownEachByItself) {
  for (const uint32_t half : {1u, 2u}) {
    wire::StageReport report;
    report.set_stage("noise");
    report.set_half(half);
    report.set_seconds(half);
    report.set_positions_out(50 * half);
    report.set_noise_queries(25 * half);
    metrics().StageDone(report, /*last=*/false);
  }
  const std::string a = "half=\"A\"", b = "half=\"B\"", noise = "stage=\"noise\"";
  EXPECT_EQ(Value("shoal_noise_queries", {a}), 25);
  EXPECT_EQ(Value("shoal_noise_queries", {b}), 50);
  EXPECT_EQ(Value("shoal_stage_positions", {a, noise, "direction=\"out\""}), 50);
  EXPECT_EQ(Value("shoal_stage_positions", {b, noise, "direction=\"out\""}), 100);
  EXPECT_EQ(Value("shoal_stage_seconds_sum", {a, noise}), 1);
  EXPECT_EQ(Value("shoal_stage_seconds_sum", {b, noise}), 2);
}

TEST_F(MonitoringTest, RefreshesAreCountedByHowTheyEnded) {
  for (const bool done : {true, false, true}) metrics().RefreshEnded(done);
  EXPECT_EQ(Value("shoal_refreshes_total", {"result=\"done\""}), 2);
  EXPECT_EQ(Value("shoal_refreshes_total", {"result=\"failed\""}), 1);
}

TEST_F(MonitoringTest, TheAgeOfTheLastAnsweredRoundCountsFromItsLastStage) {
  clock().steady_s += 100;
  EXPECT_EQ(Value("shoal_answered_age_seconds"), 100) << "since the start";
  wire::StageReport report;
  report.set_stage("online");
  metrics().StageDone(report, /*last=*/false);
  EXPECT_EQ(Value("shoal_answered_age_seconds"), 100);
  report.set_stage("answers");
  metrics().StageDone(report, /*last=*/true);
  clock().steady_s += 7;
  EXPECT_EQ(Value("shoal_answered_age_seconds"), 7);
}

// A single client's request does not show.
TEST_F(MonitoringTest, WhatClientsCauseIsShownInTens) {
  const std::vector<std::string> refused = {"reason=\"permission_denied\"", "whom=\"clients\""};
  for (int i = 0; i < 9; ++i) {
    metrics().Refused("clients", absl::StatusCode::kPermissionDenied);
    metrics().Synced(0.0051);
  }
  EXPECT_EQ(Value("shoal_refused_total", refused), 0);
  EXPECT_EQ(Value("shoal_sync_seconds_count"), 0);
  EXPECT_EQ(Value("shoal_sync_seconds_bucket", {"le=\"+Inf\""}), 0);
  EXPECT_EQ(Value("shoal_sync_seconds_sum"), 0.05);
  metrics().Refused("clients", absl::StatusCode::kPermissionDenied);
  metrics().Synced(0.0051);
  EXPECT_EQ(Value("shoal_refused_total", refused), 10);
  EXPECT_EQ(Value("shoal_sync_seconds_bucket", {"le=\"0.01\""}), 10);
}

// Every figure that is read is rounded as it was registered.
TEST_F(MonitoringTest, WhatIsReadIsRounded) {
  metrics().AddGauge("test_requests", "x", As::kRequests, {}, [] { return 1239; });
  metrics().AddCounter("test_bytes_total", "x", As::kBytes, {}, [] { return (5 << 20) + 123; });
  metrics().AddGauge("test_seconds", "x", As::kSeconds, {}, [] { return 0.123456; });
  metrics().AddGauge("test_rounds", "x", As::kItIs, {{"state", "a"}}, [] { return 7; });
  metrics().AddGauge("test_rounds", "x", As::kItIs, {{"state", "b"}}, [] { return 8; });
  EXPECT_EQ(Value("test_requests"), 1230);
  EXPECT_EQ(Value("test_bytes_total"), 5 << 20);
  EXPECT_EQ(Value("test_seconds"), 0.12);
  EXPECT_EQ(Value("test_rounds", {"state=\"a\""}), 7);
  EXPECT_EQ(Value("test_rounds", {"state=\"b\""}), 8);
  const std::string page = monitoring_->PageAt("/metrics").body;
  EXPECT_THAT(page, HasSubstr("# TYPE test_bytes_total counter\n"));
  EXPECT_EQ(page.find("# TYPE test_rounds gauge"), page.rfind("# TYPE test_rounds gauge"));
}

TEST_F(MonitoringTest, DaysUntilExpiryAreShownAndExpiryIsAProblem) {
  clock().now_s = deployment_.roster().expires_s() - 24 * 3600 * 5 / 2;
  EXPECT_EQ(Value("shoal_expires_days", {"what=\"roster\""}), 2.5);
  EXPECT_THAT(monitoring_->PageAt("/metrics").body, HasSubstr("what=\"certificate\""));
  EXPECT_THAT(monitoring_->Problems(), ElementsAre("the table has expired")) << "none is served";
  clock().now_s = deployment_.roster().expires_s();
  EXPECT_THAT(monitoring_->Problems(),
              ElementsAre("the roster has expired", "the table has expired"));
}

TEST_F(MonitoringTest, RoundsHeldAgainstTheLimit) {
  monitoring_->Watch(deployment_.party(2), 1);
  monitoring_->Watch(deployment_.frontend());
  EXPECT_EQ(Value("shoal_rounds_held"), 0);
  EXPECT_THAT(monitoring_->Problems(), Not(Contains(HasSubstr("holds"))));
  SHOAL_ASSERT_OK(deployment_.Announce().status());
  EXPECT_EQ(Value("shoal_rounds_held"), 1);
  EXPECT_EQ(Value("shoal_rounds_limit"), 1);
  EXPECT_EQ(Value("shoal_rounds", {"state=\"open for onions\""}), 1);
  EXPECT_EQ(Value("shoal_rounds", {"state=\"aborted\""}), 0);
  EXPECT_THAT(monitoring_->Problems(), Contains("holds 1 rounds, and takes no more"));
}

TEST_F(MonitoringTest, ADirectoryThatIsGoneIsAProblem) {
  config_.set_state_directory("/no/such/directory");
  const Monitoring monitoring(config_, deployment_.roster(), identity_.tls(), clock());
  EXPECT_THAT(monitoring.Problems(), Contains("the disk of the state directory is full"));
  EXPECT_EQ(Value(monitoring, "shoal_disk_free_bytes", {"directory=\"state\""}), 0);
}

TEST_F(MonitoringTest, ThePagesAreTwo) {
  EXPECT_EQ(monitoring_->PageAt("/healthz").status, 503u) << "no table is served";
  EXPECT_EQ(monitoring_->PageAt("/metrics").status, 200u);
  EXPECT_EQ(monitoring_->PageAt("/").status, 404u);
  EXPECT_EQ(monitoring_->PageAt("/metrics/x").status, 404u);
}

}  // namespace
}  // namespace shoal::shoald
