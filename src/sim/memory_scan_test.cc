// Runs three parties as processes, and a client that knows its own seeds, onions and tallies. Once
// the round is closed, no party's memory holds anything of it.
#include "src/sim/memory_scan.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/random.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/net/connection.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/sharing/batch.h"
#include "src/sharing/sharing.h"
#include "src/sim/processes.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"

namespace shoal::sim {
namespace {

namespace fs = std::filesystem;
using wire::FrameType;
using namespace std::chrono_literals;

constexpr uint32_t kParties = 3;
constexpr size_t kOnions = 2000;
constexpr size_t kRows = 40;

using Found = std::map<std::string, uint64_t>;

// All secrets of one client that sends a round its only onions: in the order of their slots, which
// is the order in which they were sent.
struct Round {
  Round(const wire::SignedHeader& header, RandomSource& random)
      : id(round::RoundId(header.header())) {
    std::vector<onion::Recipient> recipients;
    for (const std::string& key : header.header().onion_keys()) {
      onion::PublicKey bytes;
      std::copy(key.begin(), key.end(), bytes.begin());
      recipients.push_back(*onion::Recipient::Create(bytes));
    }
    seeds.resize(kOnions * kParties * 32);
    constexpr size_t kLayers = kParties - 1;
    Bytes ephemeral(kOnions * kLayers * 32), inner_seeds(ephemeral.size()),
        first_seeds(kOnions * 32);
    random.Fill(ephemeral);
    // Layers are sealed in place, so the inner onions are built separately.
    for (size_t layers = kLayers; layers > 0; --layers) {
      Bytes secrets, ignored(kOnions * layers * 32);
      for (size_t i = 0; i < kOnions; ++i) {
        Append(secrets,
               BytesView(ephemeral).subspan((i * kLayers + kLayers - layers) * 32, layers * 32));
      }
      Bytes& inner = inner_onions.emplace_back(kOnions * onion::OnionBytes(layers));
      onion::BuildOnions(id, static_cast<uint32_t>(kParties - layers + 1),
                         std::span(recipients).subspan(kParties - layers), secrets,
                         layers == kLayers ? inner_seeds : ignored, inner);
    }
    submission.resize(onion::SubmissionBytes(kParties, kOnions));
    const auto outer = random.NewSeed();
    const onion::SubmissionToSeal whole = {.ephemeral_secret = outer.view(),
                                           .onions = inner_onions[0],
                                           .submission = submission,
                                           .seeds = first_seeds};
    onion::SealSubmissions(recipients[0], id, {&whole, 1});
    for (size_t i = 0; i < kOnions; ++i) {
      std::copy_n(first_seeds.data() + 32 * i, 32, seeds.data() + 32 * kParties * i);
      std::copy_n(inner_seeds.data() + 32 * kLayers * i, 32 * kLayers,
                  seeds.data() + 32 * (kParties * i + 1));
    }
    std::vector<uint32_t> rows(kOnions);
    for (size_t i = 0; i < kOnions; ++i) rows[i] = static_cast<uint32_t>(i % kRows);
    tallies.emplace_back(kOnions);
    sharing::FirstTallies(seeds, kParties, id, rows, tallies[0]);
    tokens.resize(kOnions);
    std::vector<uint32_t> all(kOnions);
    for (size_t i = 0; i < kOnions; ++i) all[i] = static_cast<uint32_t>(i * kParties);
    sharing::ExpandTokens(seeds.data(), all, id, tokens);
    for (uint32_t party = 0; party + 1 < kParties; ++party) {
      std::vector<uint32_t> out(kOnions);
      for (size_t i = 0; i < kOnions; ++i) {
        const auto share = sharing::Expand(Seed(i, party), id).share;
        out[i] = sharing::Advance(share, tallies[party][i]);
      }
      tallies.push_back(std::move(out));
    }
  }

  BytesView Seed(size_t i, uint32_t party) const {
    return BytesView(seeds).subspan((i * kParties + party) * 32, 32);
  }

  // All secrets of the round, whoever knows them.
  Secrets All() const {
    Secrets all;
    for (uint32_t party = 0; party < kParties; ++party) {
      for (size_t i = 0; i < kOnions; ++i) {
        all.Add(absl::StrCat("seeds of party ", party + 1), Seed(i, party));
        all.AddWord(absl::StrCat("tallies to party ", party + 1), tallies[party][i]);
      }
    }
    for (size_t opened = 1; opened < kParties; ++opened) {
      const size_t bytes = onion::OnionBytes(kParties - opened);
      for (size_t i = 0; i < kOnions; ++i) {
        all.Add(absl::StrCat("onions to party ", opened + 1),
                BytesView(inner_onions[opened - 1]).subspan(i * bytes, bytes));
      }
    }
    return all;
  }

  Digest id;
  Bytes seeds;
  Bytes submission;
  std::vector<Bytes> inner_onions;             // to party 2, 3, ..
  std::vector<std::vector<uint32_t>> tallies;  // to party 1, 2, ..
  std::vector<sharing::Token> tokens;
};

class MemoryScanTest : public ::testing::Test {
 protected:
  MemoryScanTest()
      : port_(FreePorts(kParties)),
        directory_(fs::path(::testing::TempDir()) /
                   ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::string records;
    for (size_t i = 0; i < kRows; ++i) absl::StrAppend(&records, "key-", i, "\tvalue ", i, "\n");
    const fs::path file = fs::path(::testing::TempDir()) / "records.tsv";
    WriteText(file, records);
    const Result created = RunToEnd(
        {LocalChain(), "create", directory_, "--parties", absl::StrCat(kParties), "--port",
         absl::StrCat(port_), "--max-slots", "4000", "--rounds",
         absl::StrCat("onions_window_s: 60 onions_count: ", kOnions,
                      " queries_window_s: 60 queries_count: ", kOnions, " answers_window_s: 8"),
         "--", "--tsv", file, "--name", "numbers", "--row-bytes", "64"});
    Require(created.code == 0, created.output);
    for (uint32_t party = kParties; party >= 1; --party) {
      parties_[party - 1].emplace(std::vector<std::string>{
          Shoald(), "--config", directory_ / absl::StrCat("party-", party, ".textproto")});
      Process& process = *parties_[party - 1];
      Require(process.WaitForOutput("listens on"), process.Output());
    }
    Connect();
  }

  void Connect() {
    auto connection = net::Connection::Connect({.address = absl::StrCat("127.0.0.1:", port_)});
    Require(connection.ok(), connection.status().ToString());
    connection_ = *std::move(connection);
  }

  template <typename Response, typename Request>
  Response Call(FrameType type, const Request& request) {
    const auto frame =
        connection_->Call(wire::MakeFrame(type, request),
                          {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0}, 60s);
    Require(frame.ok(), frame.status().ToString());
    Response response;
    Require(wire::ParseFrame(*frame, type, response).ok(), "not a response");
    return response;
  }

  wire::RoundInfo WaitFor(const Digest& id, wire::RoundState state) {
    for (int tries = 0;; ++tries) {
      Require(tries < 600, absl::StrCat("never ", wire::RoundState_Name(state)));
      wire::WaitRoundRequest request;
      request.set_round_id(ToString(id));
      request.set_state(state);
      request.set_timeout_ms(500);
      const auto response = Call<wire::WaitRoundResponse>(FrameType::kWaitRound, request);
      if (response.round().state() == state) return response.round();
      Require(response.round().state() < state, response.round().abort_reason());
    }
  }

  // The header of the round that takes onions.
  wire::SignedHeader OpenRound() {
    for (int tries = 0;; ++tries) {
      Require(tries < 600, "no round takes onions");
      const auto list =
          Call<wire::ListRoundsResponse>(FrameType::kListRounds, wire::ListRoundsRequest());
      for (const wire::RoundInfo& info : list.rounds()) {
        if (info.state() == wire::OPEN_FOR_ONIONS) return info.header();
      }
      std::this_thread::sleep_for(50ms);
    }
  }

  void SubmitOnions(const Round& round) {
    wire::SubmitOnionsRequest request;
    request.set_round_id(ToString(round.id));
    request.add_submissions(ToString(round.submission));
    const auto response = Call<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, request);
    ASSERT_EQ(response.first_slots_size(), 1);
    ASSERT_EQ(response.first_slots(0), 0u);
  }

  static std::string AsText(const auto& items) {
    return ToString(
        {reinterpret_cast<const uint8_t*>(items.data()), items.size() * sizeof(*items.data())});
  }

  void SubmitQueries(const Round& round) {
    std::vector<uint32_t> slots(kOnions);
    std::iota(slots.begin(), slots.end(), 0u);
    wire::SubmitQueriesRequest request;
    request.set_round_id(ToString(round.id));
    request.set_slots(AsText(slots));
    request.set_tokens(AsText(round.tokens));
    request.set_tallies(AsText(round.tallies[0]));
    const auto response = Call<wire::SubmitQueriesResponse>(FrameType::kSubmitQueries, request);
    ASSERT_EQ(response.accepted(), kOnions);
  }

  // Expects that nothing of the round is left at the first `parties` within five seconds: a list of
  // live rounds is sent every second, a call that hangs is given up after two, and stages look for
  // the end every few milliseconds. Of each sleep here no more counts than it should have taken, so
  // that a busy machine, where the parties get as little done as this test, has longer.
  void ExpectNothingLeft(const Secrets& secrets, uint32_t parties = kParties) {
    constexpr auto kStep = 100ms;
    auto waited = 0ms;
    for (uint32_t party = 1; party <= parties; ++party) {
      for (;;) {
        SHOAL_ASSERT_OK_AND_ASSIGN(const Found left, Scan(party, secrets));
        if (left.empty()) break;
        ASSERT_LT(waited, 5s) << "at party " << party << ": " << left.begin()->first;
        std::this_thread::sleep_for(kStep);
        waited += kStep;
      }
    }
  }

  absl::StatusOr<Found> Scan(uint32_t party, const Secrets& secrets) {
    return ScanMemory(parties_[party - 1]->pid(), secrets);
  }

  const uint16_t port_;
  const fs::path directory_;
  std::optional<Process> parties_[kParties];
  std::unique_ptr<net::Connection> connection_;
};

TEST_F(MemoryScanTest, NothingOfAClosedRoundIsLeft) {
  testing::TestRandom device(1);
  const Round round(OpenRound(), device);
  const Secrets secrets = round.All();
  if (const auto first = Scan(1, secrets); absl::IsPermissionDenied(first.status())) {
    GTEST_SKIP() << first.status() << ": looking into shoald's memory takes CAP_SYS_PTRACE";
  }
  // In this process the scan finds all secrets.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Found own, ScanMemory(getpid(), secrets));
  for (uint32_t party = 1; party <= kParties; ++party) {
    EXPECT_EQ(own.at(absl::StrCat("seeds of party ", party)), kOnions);
    EXPECT_EQ(own.at(absl::StrCat("tallies to party ", party)), kOnions);
    if (party > 1) {
      EXPECT_EQ(own.at(absl::StrCat("onions to party ", party)), kOnions);
    }
  }

  SubmitOnions(round);
  WaitFor(round.id, wire::OPEN_FOR_QUERIES);
  // Between the stages a party holds its own seeds of these. What it sent on is erased, as the next
  // party has it.
  for (uint32_t party = 1; party <= kParties; ++party) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Found found, Scan(party, secrets));
    const Found expected = {{absl::StrCat("seeds of party ", party), kOnions}};
    EXPECT_EQ(found, expected) << "at party " << party;
  }
  SubmitQueries(round);
  WaitFor(round.id, wire::ANSWERED);
  for (uint32_t party = 1; party <= kParties; ++party) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Found found, Scan(party, secrets));
    EXPECT_EQ(found.at(absl::StrCat("seeds of party ", party)), kOnions);
    EXPECT_EQ(found.at(absl::StrCat("tallies to party ", party)), kOnions);
    for (const auto& [group, count] : found) {
      EXPECT_FALSE(group.starts_with("onions")) << group << ": " << count << " at party " << party;
    }
  }

  // The last record of an open connection stays in its buffers.
  connection_.reset();
  Connect();
  WaitFor(round.id, wire::CLOSED);
  ExpectNothingLeft(secrets);
}

// The last party stands still while the round ends, and hears of it afterwards.
TEST_F(MemoryScanTest, NothingIsLeftAtAPartyThatMissedTheEnd) {
  testing::TestRandom device(2);
  const Round round(OpenRound(), device);
  const Secrets secrets = round.All();
  if (const auto first = Scan(1, secrets); absl::IsPermissionDenied(first.status())) {
    GTEST_SKIP() << first.status() << ": looking into shoald's memory takes CAP_SYS_PTRACE";
  }
  SubmitOnions(round);
  WaitFor(round.id, wire::OPEN_FOR_QUERIES);
  SubmitQueries(round);
  WaitFor(round.id, wire::ANSWERED);
  parties_[2]->Signal(SIGSTOP);
  connection_.reset();
  Connect();
  WaitFor(round.id, wire::CLOSED);
  // The list that says so is everywhere else by then.
  ExpectNothingLeft(secrets, kParties - 1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Found found, Scan(3, secrets));
  EXPECT_EQ(found.at("seeds of party 3"), kOnions) << "the test would not see a secret";
  parties_[2]->Signal(SIGCONT);
  ExpectNothingLeft(secrets);
}

}  // namespace
}  // namespace shoal::sim
