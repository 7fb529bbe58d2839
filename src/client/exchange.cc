#include "src/client/exchange.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/round/query_bytes.h"

namespace shoal::client {
namespace {

constexpr uint32_t kLongPollMs = 20'000;
constexpr uint32_t kPollMs = 250;

}  // namespace

uint32_t OnionsPerPiece(const round::Round& round, size_t piece_bytes) {
  const size_t around = round.SubmissionBytes(0), each = round.SubmissionBytes(1) - around;
  const size_t fit = piece_bytes < around ? 0 : (piece_bytes - around) / each;
  return static_cast<uint32_t>(std::clamp<size_t>(fit, 1, round.MaxSubmissionSlots()));
}

size_t QueriesPerPiece(const round::Round& round, size_t piece_bytes) {
  const size_t each = round.buckets()
                          ? round::TwoTiersSlotQueryBytes(round.buckets()->selection_bytes())
                          : round::kSlotQueryBytes;
  return std::max<size_t>(1, piece_bytes / each);
}

size_t AnswersPerPiece(const round::Round& round, size_t piece_bytes) {
  return std::max<size_t>(1, piece_bytes / round.fetched_bytes());
}

template <typename Response, typename Request>
absl::StatusOr<Response> Exchange::Call(
    absl::StatusOr<Response> (Transport::*method)(const Request&), const Request& request) {
  const auto call = [&] { return (transport_->*method)(request); };
  absl::StatusOr<Response> response =
      retry_policy_ == nullptr ? WithRetries(sleep_, call) : retry_policy_->Try(call);
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

absl::StatusOr<std::vector<uint32_t>> Exchange::SubmitOnions(const round::Round& round,
                                                             std::vector<std::string> submissions) {
  wire::SubmitOnionsRequest request;
  request.set_round_id(ToString(round.id()));
  for (std::string& submission : submissions) request.add_submissions(std::move(submission));
  SHOAL_ASSIGN_OR_RETURN(const wire::SubmitOnionsResponse response,
                         Call(&Transport::SubmitOnions, request));
  if (response.first_slots_size() != request.submissions_size()) {
    return absl::DataLossError(absl::StrCat("the frontend gave slots for ",
                                            response.first_slots_size(), " submissions instead of ",
                                            request.submissions_size()));
  }
  SlotSet given;
  std::vector<uint32_t> first_slots;
  for (int i = 0; i < response.first_slots_size(); ++i) {
    const uint32_t first = response.first_slots(i);
    const auto count = static_cast<uint32_t>(round.SubmissionSlots(request.submissions(i).size()));
    if (uint64_t{first} + count > round.header().max_slots()) {
      return absl::DataLossError("the frontend gave a slot that does not exist");
    }
    if (!given.Add(first, count)) return absl::DataLossError("the frontend gave a slot twice");
    first_slots.push_back(first);
  }
  return first_slots;
}

absl::Status Exchange::SubmitQueries(const wire::SubmitQueriesRequest& request) {
  return Call(&Transport::SubmitQueries, request).status();
}

absl::Status Exchange::FetchAnswers(const round::Round& round, std::span<const OnionRange> ranges,
                                    MutableBytes fetched) {
  const wire::FetchAnswersRequest request = MakeFetch(round, ranges);
  SHOAL_CHECK(fetched.size() == request.slots().size() / 4 * round.fetched_bytes());
  SHOAL_ASSIGN_OR_RETURN(const wire::FetchAnswersResponse response,
                         Call(&Transport::FetchAnswers, request));
  if (response.answers().size() != fetched.size()) {
    return absl::DataLossError(absl::StrCat("the frontend sent ", response.answers().size(),
                                            " bytes for ", fetched.size() / round.fetched_bytes(),
                                            " answers of ", round.fetched_bytes()));
  }
  std::copy(response.answers().begin(), response.answers().end(), fetched.begin());
  return absl::OkStatus();
}

absl::StatusOr<wire::GetRefreshResponse> Exchange::GetRefresh(const Digest& round_id) {
  wire::GetRefreshRequest request;
  request.set_round_id(ToString(round_id));
  return Call(&Transport::GetRefresh, request);
}

absl::Status Exchange::FetchRefresh(const wire::FetchRefreshRequest& request, MutableBytes tagged) {
  SHOAL_ASSIGN_OR_RETURN(const wire::FetchRefreshResponse response,
                         Call(&Transport::FetchRefresh, request));
  if (response.answers().size() != tagged.size()) {
    return absl::DataLossError(absl::StrCat("the frontend sent ", response.answers().size(),
                                            " bytes for answers of ", tagged.size()));
  }
  std::copy(response.answers().begin(), response.answers().end(), tagged.begin());
  return absl::OkStatus();
}

bool SlotSet::Add(uint32_t first, uint32_t count) {
  const uint64_t end = uint64_t{first} + count;
  const auto after = end_of_.lower_bound(first);
  if (after != end_of_.end() && after->first < end) return false;
  if (after != end_of_.begin() && std::prev(after)->second > first) return false;
  end_of_.emplace_hint(after, first, end);
  return true;
}

}  // namespace shoal::client
