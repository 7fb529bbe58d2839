// What the operator of a real party sees of it: figures, health, logs, and the chain at a glance.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/sim/process_chain.h"
#include "src/sim/processes.h"

namespace shoal::sim {
namespace {

using ::shoal::testing::Soon;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

class MonitoringProcessTest : public ::testing::Test {
 protected:
  MonitoringProcessTest() {
    for (uint32_t party = 1; party <= ProcessChain::kParties; ++party) {
      chain_.Configure(party, absl::StrCat("monitoring { port: ", MonitoringPort(party), " }"));
    }
    chain_.StartAll();
  }

  uint16_t MonitoringPort(uint32_t party) const {
    return chain_.port(ProcessChain::kParties + party);
  }
  Process& party(uint32_t number) { return chain_.process(number); }

  // The whole response to GET; empty if nobody listens.
  std::string Get(uint32_t party, const std::string& path) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(MonitoringPort(party));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string all;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
      EXPECT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(request.size()));
      char piece[4096];
      ssize_t n;
      while ((n = ::recv(socket, piece, sizeof(piece), 0)) > 0) all.append(piece, n);
    }
    ::close(socket);
    return all;
  }
  // The figure with this name and all of these labels; -1 if there is none.
  double Figure(uint32_t party, const std::string& name,
                const std::vector<std::string>& labels = {}) const {
    const std::string page = Get(party, "/metrics");
    for (const absl::string_view line : absl::StrSplit(page, '\n')) {
      if (!absl::StartsWith(line, name + "{")) continue;
      if (!std::ranges::all_of(
              labels, [&](const std::string& label) { return absl::StrContains(line, label); })) {
        continue;
      }
      double value;
      if (absl::SimpleAtod(absl::StripAsciiWhitespace(line.substr(line.rfind(' ') + 1)), &value)) {
        return value;
      }
    }
    return -1;
  }

  ProcessChain chain_{::testing::UnitTest::GetInstance()->current_test_info()->name(),
                      {.rounds = "onions_window_s: 3600 onions_count: 1 queries_window_s: 3600 "
                                 "queries_count: 8 answers_window_s: 3600",
                       .ports = 2 * ProcessChain::kParties}};
  const std::string client_ = chain_.NewClient(150);
};

TEST_F(MonitoringProcessTest, EveryPartyShowsItsFigures) {
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Get(1, "/healthz"), "ok\n"); }, kLong))
      << Get(1, "/healthz") << party(1).Output();
  const Result query = RunToEnd({Shoal(), "query", "--config", client_, "key-7"});
  ASSERT_EQ(query.code, 0) << query.output;
  for (uint32_t j = 1; j <= ProcessChain::kParties; ++j) {
    SCOPED_TRACE(j);
    EXPECT_THAT(Get(j, "/healthz"), StartsWith("HTTP/1.1 200 "));
    EXPECT_GE(Figure(j, "shoal_stage_seconds_count", {"stage=\"offline\""}), 1);
    EXPECT_GE(Figure(j, "shoal_stage_bytes_total", {"stage=\"online\"", "direction=\"in\""}), 1);
    EXPECT_GE(Figure(j, "shoal_rounds_held"), 1);
    EXPECT_GE(Figure(j, "shoal_rounds_limit"), 16);
    EXPECT_GE(Figure(j, "shoal_disk_free_bytes", {"directory=\"state\""}), 1 << 20);
    EXPECT_GE(Figure(j, "shoal_sync_seconds_bucket", {"le=\"+Inf\""}), 0);
    for (const char* what : {"roster", "table", "certificate"}) {
      EXPECT_GT(Figure(j, "shoal_expires_days", {what}), 1) << what;
    }
    const std::string whom = j == 1 ? "clients" : "neighbour";
    EXPECT_GE(Figure(j, "shoal_received_bytes_total", {whom}), 0);
    EXPECT_GE(Figure(j, "shoal_connections", {whom}), j == 1 ? 0 : 1);
    EXPECT_GE(Figure(j, "shoal_answered_age_seconds"), 0);
  }
  EXPECT_GE(Figure(1, "shoal_noise_queries"), 1);
  EXPECT_EQ(Figure(3, "shoal_noise_queries"), 0);
  EXPECT_EQ(Figure(1, "shoal_rounds", {"answered"}), 1);
  EXPECT_EQ(Figure(1, "shoal_build_info", {"version="}), 1);
}

TEST_F(MonitoringProcessTest, AMissingPartyIsNamedWhereverItIsInTheChain) {
  const std::vector<std::string> parties = {Shoal(), "status", "--config", client_, "--parties"};
  Result status;
  ASSERT_TRUE(Soon([&] {
    status = RunToEnd(parties);
    return status.code == 0;
  })) << status.output;
  EXPECT_THAT(status.output, HasSubstr("the chain is healthy\n"));
  EXPECT_EQ(Figure(1, "shoal_party_answers", {"of=\"3\""}), 1);
  EXPECT_THAT(Get(2, "/metrics"), HasSubstr("shoal_clock_offset_seconds{"));

  chain_.Kill(3);
  ASSERT_TRUE(party(1).WaitForOutput("party 3 is missing: reaching party 3")) << party(1).Output();
  ASSERT_TRUE(
      Soon([&] { return absl::StrContains(Get(1, "/healthz"), "party 3 is missing"); }, kLong))
      << Get(1, "/healthz");
  EXPECT_THAT(Get(1, "/healthz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Get(2, "/healthz"), StartsWith("HTTP/1.1 200 ")) << "it is well itself";
  EXPECT_EQ(Figure(1, "shoal_party_answers", {"of=\"2\""}), 1);
  EXPECT_EQ(Figure(1, "shoal_party_answers", {"of=\"3\""}), 0);
  status = RunToEnd(parties);
  EXPECT_EQ(status.code, 1) << status.output;
  EXPECT_THAT(status.output, HasSubstr("the chain is not healthy: party 3: missing"));

  chain_.Start(3);
  ASSERT_TRUE(party(1).WaitForOutput("party 3 answers again")) << party(1).Output();
  ASSERT_TRUE(Soon([&] { return RunToEnd(parties).code == 0; }, kLong));
}

// A frontend that tries every two seconds and fails says so once.
TEST_F(MonitoringProcessTest, AnErrorThatComesAgainIsLoggedOnce) {
  chain_.Kill(3);
  ASSERT_TRUE(party(1).WaitForOutput("reaching party 3")) << party(1).Output();
  chain_.Kill(1);
  chain_.Start(1, {Shoald(), "--config", chain_.config(1), "--log-format", "json"});
  ASSERT_TRUE(party(1).WaitForOutput("no round could be opened")) << party(1).Output();
  // It goes on trying: party 2 is asked for another draft.
  const double asked = Figure(2, "shoal_received_bytes_total", {"neighbour"});
  ASSERT_TRUE(Soon([&] {
    return Figure(2, "shoal_refused_total", {"reason=\"unavailable\""}) >= 10;
  })) << party(2).Output();
  EXPECT_GT(Figure(2, "shoal_received_bytes_total", {"neighbour"}), asked);
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(party(1).Output(), '\n', absl::SkipEmpty())) {
    EXPECT_THAT(std::string(line), StartsWith("{\"time\":\"")) << "one object a line";
    lines += absl::StrContains(line, "no round could be opened");
  }
  EXPECT_EQ(lines, 1) << party(1).Output();
  party(1).Signal(SIGTERM);
  EXPECT_THAT(party(1).Wait(), ::testing::Optional(0)) << party(1).Output();
  EXPECT_THAT(party(1).Output(), ::testing::ContainsRegex("the same [0-9]+ time")) << "at the end";
}

// The service manager hears when a party is ready, takes a table, lives and ends.
TEST_F(MonitoringProcessTest, TheServiceManagerHearsEveryState) {
  const std::string name = absl::StrCat("@shoal-manager-", ::getpid());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, name.size());
  address.sun_path[0] = '\0';
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
            0);
  const timeval limit = {.tv_sec = kLong.count(), .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  const auto heard = [&](const std::string& part) {
    for (;;) {
      char message[1024];
      const ssize_t n = ::recv(fd, message, sizeof(message), 0);
      if (n < 0) return false;
      if (absl::StrContains(absl::string_view(message, static_cast<size_t>(n)), part)) return true;
    }
  };
  chain_.Kill(3);
  chain_.Start(3, {"/usr/bin/env", "NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=1000000", Shoald(),
                   "--config", chain_.config(3)});
  EXPECT_TRUE(heard("READY=1\nSTATUS=in service")) << party(3).Output();
  EXPECT_TRUE(heard("WATCHDOG=1"));
  party(3).Signal(SIGHUP);  // the same epoch of the table: refused
  EXPECT_TRUE(heard("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_TRUE(heard("READY=1\nSTATUS=in service; the table was not reloaded"));
  party(3).Signal(SIGTERM);
  EXPECT_TRUE(heard("STOPPING=1"));
  EXPECT_THAT(party(3).Wait(), ::testing::Optional(0)) << party(3).Output();
  ::close(fd);
}

}  // namespace
}  // namespace shoal::sim
