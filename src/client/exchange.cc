#include "src/client/exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/sharing/sharing.h"

namespace shoal::client {
namespace {

constexpr uint32_t kLongPollMs = 20'000;
constexpr uint32_t kPollMs = 250;

size_t CountOf(std::span<const OnionRange> ranges) {
  size_t count = 0;
  for (const OnionRange& range : ranges) count += range.count;
  return count;
}

}  // namespace

size_t OnionsPerPiece(const round::Round& round, size_t piece_bytes) {
  return std::max<size_t>(1, piece_bytes / onion::OnionBytes(round.parties()));
}

size_t QueriesPerPiece(size_t piece_bytes) {
  return std::max<size_t>(1, piece_bytes / kQueryBytes);
}

size_t AnswersPerPiece(const round::Round& round, size_t piece_bytes) {
  return std::max<size_t>(1, piece_bytes / round.answer_bytes());
}

template <typename Response, typename Request>
absl::StatusOr<Response> Exchange::Call(
    absl::StatusOr<Response> (Transport::*method)(const Request&), const Request& request) {
  auto response = WithRetries(sleep_, [&] { return (transport_->*method)(request); });
  if (absl::IsAborted(response.status())) {
    return absl::InternalError(response.status().message());
  }
  return response;
}

absl::StatusOr<wire::GetDeploymentResponse> Exchange::GetDeployment() {
  return Call(&Transport::GetDeployment, wire::GetDeploymentRequest());
}

absl::StatusOr<wire::ListRoundsResponse> Exchange::ListRounds() {
  return Call(&Transport::ListRounds, wire::ListRoundsRequest());
}

absl::StatusOr<wire::RoundState> Exchange::StateOf(const Digest& round_id) {
  wire::WaitRoundRequest request;  // with a timeout of 0
  request.set_round_id(ToString(round_id));
  request.set_state(wire::OPEN_FOR_ONIONS);
  const auto response = Call(&Transport::WaitRound, request);
  if (absl::IsNotFound(response.status())) return wire::CLOSED;
  if (!response.ok()) return response.status();
  return response->round().state();
}

absl::StatusOr<wire::RoundState> Exchange::WaitFor(const Digest& round_id, wire::RoundState state,
                                                   uint64_t deadline_s) {
  wire::WaitRoundRequest request;
  request.set_round_id(ToString(round_id));
  request.set_state(state);
  request.set_timeout_ms(kLongPollMs);
  for (;;) {
    const auto response = Call(&Transport::WaitRound, request);
    if (absl::IsNotFound(response.status())) return wire::CLOSED;
    if (!response.ok()) return response.status();
    if (response->round().state() >= state) return response->round().state();
    if (clock_->NowSeconds() > deadline_s) {
      return absl::DeadlineExceededError(
          absl::StrCat("the round did not become ", wire::RoundState_Name(state), " in its time"));
    }
    sleep_(kPollMs);
  }
}

absl::Status Exchange::SubmitOnions(const round::Round& round, std::string onions,
                                    std::span<uint32_t> slots) {
  const size_t count = slots.size();
  SHOAL_CHECK(onions.size() == count * onion::OnionBytes(round.parties()));
  wire::SubmitOnionsRequest request;
  request.set_round_id(ToString(round.id()));
  request.set_onions(std::move(onions));
  SHOAL_ASSIGN_OR_RETURN(const wire::SubmitOnionsResponse response,
                         Call(&Transport::SubmitOnions, request));
  if (static_cast<size_t>(response.slots_size()) != count) {
    return absl::DataLossError(
        absl::StrCat("the frontend gave ", response.slots_size(), " slots for ", count, " onions"));
  }
  for (const uint32_t slot : response.slots()) {
    if (slot >= round.header().max_slots()) {
      return absl::DataLossError("the frontend gave a slot that does not exist");
    }
  }
  std::copy(response.slots().begin(), response.slots().end(), slots.begin());
  return absl::OkStatus();
}

absl::Status Exchange::SubmitQueries(const round::Round& round, std::span<const OnionRange> ranges,
                                     std::span<const uint32_t> slots,
                                     std::span<const uint32_t> rows) {
  SHOAL_CHECK(slots.size() == CountOf(ranges) && rows.size() == slots.size());
  wire::SubmitQueriesRequest request;
  request.set_round_id(ToString(round.id()));
  for (const OnionRange& range : ranges) {
    AppendQueries(round, range, slots.first(range.count), rows.first(range.count), request);
    slots = slots.subspan(range.count);
    rows = rows.subspan(range.count);
  }
  return Call(&Transport::SubmitQueries, request).status();
}

absl::Status Exchange::FetchAnswers(const round::Round& round, std::span<const OnionRange> ranges,
                                    std::span<const uint32_t> slots, MutableBytes answers) {
  const size_t count = slots.size();
  SHOAL_CHECK(count == CountOf(ranges) && answers.size() == count * round.answer_bytes());
  wire::FetchAnswersRequest request;
  request.set_round_id(ToString(round.id()));
  for (const OnionRange& range : ranges) {
    AppendFetch(round, range, slots.first(range.count), request);
    slots = slots.subspan(range.count);
  }
  SHOAL_ASSIGN_OR_RETURN(const wire::FetchAnswersResponse response,
                         Call(&Transport::FetchAnswers, request));
  if (response.answers().size() != answers.size()) {
    return absl::DataLossError(absl::StrCat("the frontend sent ", response.answers().size(),
                                            " bytes for ", count, " answers of ",
                                            round.answer_bytes()));
  }
  std::copy(response.answers().begin(), response.answers().end(), answers.begin());
  return absl::OkStatus();
}

}  // namespace shoal::client
