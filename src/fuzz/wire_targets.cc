// Frames, the messages in them, and batches of queries.
#include <algorithm>
#include <memory>

#include "src/base/check.h"
#include "src/fuzz/target.h"
#include "src/wire/client.pb.h"
#include "src/wire/control.h"
#include "src/wire/frame.h"
#include "src/wire/peer.pb.h"
#include "src/wire/pir.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::fuzz {
namespace {

using wire::Frame;
using wire::FrameType;

// Every message that a frame may carry, beside its frame's type.
struct Carried {
  FrameType type;
  std::unique_ptr<google::protobuf::MessageLite> message;
};

template <typename... Messages>
void Carry(FrameType type, std::vector<Carried>& out) {
  (out.push_back({type, std::make_unique<Messages>()}), ...);
}

std::vector<Carried> AllMessages() {
  std::vector<Carried> all;
  Carry<wire::GetDeploymentRequest, wire::GetDeploymentResponse>(FrameType::kGetDeployment, all);
  Carry<wire::GetPlacementRequest, wire::GetPlacementResponse>(FrameType::kGetPlacement, all);
  Carry<wire::ListRoundsRequest, wire::ListRoundsResponse>(FrameType::kListRounds, all);
  Carry<wire::WaitRoundRequest, wire::WaitRoundResponse>(FrameType::kWaitRound, all);
  Carry<wire::SubmitOnionsRequest, wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, all);
  Carry<wire::SubmitQueriesRequest, wire::SubmitQueriesResponse>(FrameType::kSubmitQueries, all);
  Carry<wire::FetchAnswersRequest, wire::FetchAnswersResponse>(FrameType::kFetchAnswers, all);
  Carry<wire::GetRefreshRequest, wire::GetRefreshResponse>(FrameType::kGetRefresh, all);
  Carry<wire::FetchRefreshRequest, wire::FetchRefreshResponse>(FrameType::kFetchRefresh, all);
  Carry<wire::GetStatusRequest, wire::GetStatusResponse>(FrameType::kGetStatus, all);
  Carry<wire::GetRowVersionsRequest, wire::GetRowVersionsResponse>(FrameType::kGetRowVersions, all);
  Carry<wire::GetPirSetupRequest, wire::GetPirSetupResponse>(FrameType::kGetPirSetup, all);
  Carry<wire::GetPirHintRequest, wire::GetPirHintResponse>(FrameType::kGetPirHint, all);
  Carry<wire::GetPirDeltaRequest, wire::GetPirDeltaResponse>(FrameType::kGetPirDelta, all);
  Carry<wire::PirQueryRequest, wire::PirQueryResponse>(FrameType::kPirQuery, all);
  Carry<wire::ProposeRoundRequest, wire::ProposeRoundResponse>(FrameType::kProposeRound, all);
  Carry<wire::OfflineRequest, wire::OfflineResponse>(FrameType::kOffline, all);
  Carry<wire::OnlineRequest, wire::OnlineResponse>(FrameType::kOnline, all);
  Carry<wire::RoundReportsRequest, wire::RoundReportsResponse>(FrameType::kRoundReports, all);
  Carry<wire::HeadOfflineRequest, wire::HeadOfflineResponse>(FrameType::kHeadOffline, all);
  Carry<wire::HeadQueriesRequest, wire::HeadQueriesResponse>(FrameType::kHeadQueries, all);
  Carry<wire::HeadAnswersRequest, wire::HeadAnswersResponse>(FrameType::kHeadAnswers, all);
  Carry<wire::LiveRoundsRequest, wire::LiveRoundsResponse>(FrameType::kLiveRounds, all);
  Carry<wire::PartyStatesRequest, wire::PartyStatesResponse>(FrameType::kPartyStates, all);
  Carry<wire::ProposeRefreshRequest, wire::ProposeRefreshResponse>(FrameType::kProposeRefresh, all);
  Carry<wire::RefreshRequest, wire::RefreshResponse>(FrameType::kRefresh, all);
  return all;
}

bool ParseHeader(BytesView input) {
  wire::FrameHeaderBytes bytes = {};
  if (input.size() != bytes.size()) return false;
  std::ranges::copy(input, bytes.begin());
  const auto header = wire::ParseFrameHeader(bytes);
  if (!header.ok()) return false;
  SHOAL_CHECK(wire::EncodeFrameHeader(*header) == bytes);
  return true;
}

bool ParseError(BytesView input) {
  const absl::Status status =
      wire::ErrorOf({.type = FrameType::kError, .control = TextOf(input), .bulk = {}});
  SHOAL_CHECK(!status.ok());
  for (const char c : status.message()) SHOAL_CHECK(c >= 0x20 && c < 0x7f);
  return status.code() != absl::StatusCode::kInternal;
}

// The first byte says which message.
bool ParseMessage(const std::vector<Carried>& all, BytesView input) {
  Cursor cursor(input);
  const Carried& carried = all[cursor.U8() % all.size()];
  const std::unique_ptr<google::protobuf::MessageLite> message(carried.message->New());
  const Frame frame = {.type = carried.type, .control = TextOf(cursor.rest()), .bulk = {}};
  const bool few = wire::CheckFieldCount(frame, 1000).ok();
  if (!wire::ParseFrame(frame, carried.type, *message).ok()) return false;
  return few;
}

// The first two bytes are the number of positions.
bool ParseBatch(BytesView input) {
  Cursor cursor(input);
  const uint32_t positions = cursor.U16();
  const auto batch = wire::DecodeQueryBatch(cursor.rest(), positions);
  SHOAL_CHECK(wire::CheckQueryBatch(cursor.rest(), positions) == batch.status());
  if (!batch.ok()) return false;
  SHOAL_CHECK(std::ranges::equal(wire::EncodeQueryBatch(*batch, positions), cursor.rest()));
  return true;
}

// The same with records, of whose bytes the third byte is the number.
bool ParseRecordBatch(BytesView input) {
  Cursor cursor(input);
  const uint32_t positions = cursor.U16();
  const size_t record_bytes = 1 + size_t{cursor.U8()};
  const auto batch = wire::DecodeRecordBatch(cursor.rest(), positions, record_bytes);
  if (!batch.ok()) return false;
  const size_t count = batch->positions.size();
  SHOAL_CHECK(batch->records.size() == count * record_bytes);
  wire::RecordBatchWriter writer(static_cast<uint32_t>(count), positions, record_bytes);
  for (size_t i = 0; i < count; ++i) {
    writer.Put(i, batch->positions[i],
               BytesView(batch->records).subspan(i * record_bytes, record_bytes));
  }
  SHOAL_CHECK(std::ranges::equal(std::move(writer).Take(), cursor.rest()));
  return true;
}

// What machines of a party say to each other. The input is the message without its padding.
bool ParseControl(BytesView input) {
  if (input.size() > wire::kMostControlMessageBytes) return false;
  Bytes bytes(wire::kControlBytes);
  StoreLe(bytes.data(), static_cast<uint32_t>(input.size()));
  std::ranges::copy(input, bytes.begin() + 4);
  const auto control = wire::DecodeControl(bytes);
  if (!control.ok()) return false;
  SHOAL_CHECK(std::ranges::equal(wire::EncodeControl(*control), bytes));
  return true;
}

std::vector<Bytes> ControlInputs() {
  wire::Control head, other;
  wire::RoundOrder& open = *head.add_orders();
  open.set_number(1);
  open.set_round(1);
  open.mutable_open()->mutable_header()->mutable_header()->set_counter(7);
  open.mutable_open()->set_root_seed(std::string(32, 's'));
  wire::RoundOrder& step = *head.add_orders();
  step.set_number(2);
  step.set_round(1);
  step.mutable_step()->set_step(wire::RUN_OFFLINE);
  step.mutable_step()->set_attempt(3);
  wire::RoundOrder& end = *head.add_orders();
  end.set_number(3);
  end.set_round(1);
  end.set_end(true);
  wire::ToldRound& told = *head.add_told();
  told.set_round_id(std::string(32, 'r'));
  told.mutable_report()->mutable_round()->set_state(wire::SEALED);
  head.set_last(true);
  wire::OrderResult& result = *other.add_results();
  result.set_number(2);
  result.set_code(14);
  result.set_message("the link broke");
  wire::MachineCounts& counts = *other.add_counts();
  counts.set_round(1);
  counts.set_onions(300);
  counts.set_counted_queries(2);
  return {InputOf(head), InputOf(other), Bytes()};
}

Bytes BatchInput(uint16_t positions, const wire::QueryBatch& batch) {
  Bytes input = {static_cast<uint8_t>(positions), static_cast<uint8_t>(positions >> 8)};
  Append(input, wire::EncodeQueryBatch(batch, positions));
  return input;
}

Bytes RecordBatchInput(uint16_t positions, uint8_t record_bytes, std::vector<uint32_t> used) {
  Bytes input = {static_cast<uint8_t>(positions), static_cast<uint8_t>(positions >> 8),
                 static_cast<uint8_t>(record_bytes - 1)};
  wire::RecordBatchWriter writer(static_cast<uint32_t>(used.size()), positions, record_bytes);
  for (size_t i = 0; i < used.size(); ++i) writer.Put(i, used[i], Bytes(record_bytes, 0xa5));
  Append(input, std::move(writer).Take());
  return input;
}

}  // namespace

void AddWireTargets(std::vector<Target>& targets) {
  const auto header = wire::EncodeFrameHeader(
      {.type = FrameType::kSubmitOnions, .control_bytes = 3000, .bulk_bytes = 1 << 20});
  targets.push_back({.name = "frame_header", .seeds = {ToBytes(header)}, .parse = ParseHeader});
  targets.push_back(
      {.name = "error_frame",
       .seeds = {InputOf(wire::MakeErrorFrame(absl::NotFoundError("no such round")).control)},
       .parse = ParseError});

  Target messages{.name = "messages", .seeds = {}, .parse = {}};
  for (const Carried& carried : AllMessages()) {
    Bytes seed = {static_cast<uint8_t>(messages.seeds.size())};
    // Two fields that nearly all messages have: bytes of a digest's length, and a number.
    Append(seed, AsBytes(absl::string_view("\x0a\x20", 2)));
    Append(seed, Bytes(32, 7));
    Append(seed, AsBytes(absl::string_view("\x10\x05", 2)));
    const bool fits = carried.message->ParseFromArray(seed.data() + 1, seed.size() - 1);
    messages.seeds.push_back(fits ? seed : Bytes{seed.front()});
  }
  messages.parse = [all = std::make_shared<std::vector<Carried>>(AllMessages())](BytesView input) {
    return ParseMessage(*all, input);
  };
  targets.push_back(std::move(messages));

  targets.push_back({.name = "control", .seeds = ControlInputs(), .parse = ParseControl});
  targets.push_back(
      {.name = "query_batch",
       .seeds = {BatchInput(12, {.positions = {0, 3, 4, 5, 11}, .tallies = {1, 2, 3, 0, 9}}),
                 BatchInput(2000, {.positions = {7, 300, 1999}, .tallies = {5, 6, 2147483646}}),
                 BatchInput(40, {})},
       .parse = ParseBatch});
  targets.push_back(
      {.name = "record_batch",
       .seeds = {RecordBatchInput(12, 20, {0, 3, 4, 5, 11}),
                 RecordBatchInput(2000, 36, {7, 300, 1999}), RecordBatchInput(40, 1, {})},
       .parse = ParseRecordBatch});
}

}  // namespace shoal::fuzz
