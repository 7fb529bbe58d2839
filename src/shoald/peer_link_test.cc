// What a party sends to the next one, whatever carries it.
#include "src/shoald/peer_link.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/parallel/mutex.h"
#include "src/round/header.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

using ::shoal::testing::StatusIs;
using wire::FrameType;
using namespace std::chrono_literals;

constexpr char kForeign[] = "of another version";
constexpr size_t kOnion = 32;  // of the last party

// Keeps what is sent, and has the connection break.
class BrokenCalls final : public PeerCalls {
 public:
  struct Sent {
    wire::Frame request;
    std::chrono::milliseconds limit;
    bool cancelled;
  };
  explicit BrokenCalls(std::vector<Sent>* sent) : sent_(sent) {}
  absl::StatusOr<PeerAnswer> Call(PeerCall call) override {
    const MutexLock lock(mutex_);
    sent_->push_back({std::move(call.request), call.limit, call.cancelled && call.cancelled()});
    return absl::UnavailableError("broke");
  }
  void CloseEnded(const std::function<bool(const Digest& round_id)>&) override {}

 private:
  Mutex mutex_;
  std::vector<Sent>* const sent_;
};

void AddForeign(google::protobuf::Message& message) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(1000, kForeign);
}

class PeerLinkTest : public ::testing::Test {
 protected:
  PeerLinkTest() {
    for (int party = 0; party < 2; ++party) header_.mutable_header()->add_onion_keys("key");
    refresh_.mutable_header()->set_round_id(std::string(32, 'r'));
    for (google::protobuf::Message* const message :
         std::initializer_list<google::protobuf::Message*>{
             &header_, header_.mutable_header(), header_.mutable_header()->mutable_noise(), &live_,
             live_.mutable_list(), &refresh_, refresh_.mutable_header()}) {
      AddForeign(*message);
    }
  }
  PeerLink LinkTo(uint32_t machines) {
    machines_ = machines;
    return PeerLink(std::make_unique<BrokenCalls>(&sent_),
                    {.machines = machines,
                     .senders = 1,
                     .later = 3,
                     .answer_bytes = [](const Digest&) { return 112; },
                     .refresh_bytes = [](const Digest&) { return 224; },
                     .stage_limit = 100s,
                     .spools = &spools_});
  }
  static std::unique_ptr<ByteSource> Onions() {
    return std::make_unique<BytesSource>(Bytes(4 * kOnion));
  }
  server::QueriesOut Queries() const {
    wire::QueryBatch batch = {.positions = {0, 3}, .tallies = {7, 8}};
    if (machines_ == 1) return wire::EncodeQueryBatch(batch, 4);
    return std::make_shared<const wire::QueryBatch>(std::move(batch));
  }
  // Makes every call of the link, each of which breaks. Returns what was sent.
  std::vector<BrokenCalls::Sent> MakeAllCalls(PeerLink& link) {
    const Digest id = round::RoundId(header_.header());
    const auto broke = StatusIs(absl::StatusCode::kUnavailable, "broke");
    EXPECT_THAT(link.Propose(header_.header(), live_).status(), broke);
    EXPECT_THAT(link.Offline(header_, {0, 1, {4, 0, 4}}, Onions()), broke);
    EXPECT_THAT(link.Online(id, {0, 2, {4, 0, 4}}, Queries()).status(), broke);
    EXPECT_THAT(link.Reports(id).status(), broke);
    EXPECT_THAT(link.Live(live_).status(), broke);
    EXPECT_THAT(link.ProposeRefresh(refresh_.header()).status(), broke);
    EXPECT_THAT(link.Refresh(refresh_).status(), broke);
    wire::PartyStatesRequest states;
    AddForeign(states);
    EXPECT_THAT(link.States(states).status(), broke);
    return std::exchange(sent_, {});
  }

  uint32_t machines_ = 1;
  SpoolPlace spools_{::testing::TempDir(), 1 << 20};
  wire::SignedHeader header_;
  wire::SignedLiveRounds live_;
  wire::SignedRefreshHeader refresh_;
  std::vector<BrokenCalls::Sent> sent_;
};

// What another party has added to a message, which nobody checks or signs, goes no further: two
// parties on both sides of an honest one could otherwise speak through it, and mark a round.
TEST_F(PeerLinkTest, NothingThatThisVersionDoesNotKnowIsSentOn) {
  for (const uint32_t machines : {1, 2}) {
    PeerLink link = LinkTo(machines);
    const std::vector<BrokenCalls::Sent> sent = MakeAllCalls(link);
    EXPECT_GE(sent.size(), 8u);
    for (const BrokenCalls::Sent& call : sent) {
      EXPECT_FALSE(absl::StrContains(call.request.control, kForeign))
          << "frame of type " << static_cast<int>(call.request.type) << " to a party of "
          << machines << " machines";
    }
  }
}

// The parties behind the next one have more time, so that the error of the one before a silent
// party comes first.
TEST_F(PeerLinkTest, EveryCallHasItsLimitAndTwoSecondsForEachLaterParty) {
  PeerLink link = LinkTo(1);
  for (const BrokenCalls::Sent& call : MakeAllCalls(link)) {
    switch (call.request.type) {
      case FrameType::kOffline:
      case FrameType::kOnline:
      case FrameType::kRefresh:
        EXPECT_EQ(call.limit, 106s);
        break;
      case FrameType::kLiveRounds:
      case FrameType::kPartyStates:
        EXPECT_EQ(call.limit, 8s);
        break;
      default:
        EXPECT_EQ(call.limit, 36s);
    }
  }
}

TEST_F(PeerLinkTest, AProcessThatEndsCancelsAllButLists) {
  PeerLink link = LinkTo(1);
  for (const BrokenCalls::Sent& call : MakeAllCalls(link)) EXPECT_FALSE(call.cancelled);
  link.CancelStages();
  for (const BrokenCalls::Sent& call : MakeAllCalls(link)) {
    EXPECT_EQ(call.cancelled, call.request.type != FrameType::kLiveRounds)
        << static_cast<int>(call.request.type);
  }
}

}  // namespace
}  // namespace shoal::shoald
