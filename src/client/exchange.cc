#include "src/client/exchange.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/sharing/sharing.h"

namespace shoal::client {
namespace {

constexpr uint32_t kLongPollMs = 20'000;
constexpr uint32_t kPollMs = 250;
constexpr size_t kQueryBytes = 4 + sharing::kTokenBytes + 4;

// Calls piece(first, count) over [0, total) with at most `limit` at a time.
template <typename Piece>
absl::Status Cut(size_t total, size_t limit, const Piece& piece) {
  limit = std::max<size_t>(1, limit);
  for (size_t first = 0; first < total; first += limit) {
    SHOAL_RETURN_IF_ERROR(piece(first, std::min(limit, total - first)));
  }
  return absl::OkStatus();
}

OnionRange Part(const OnionRange& range, size_t first, size_t count) {
  return {range.master, range.first + static_cast<uint32_t>(first), static_cast<uint32_t>(count)};
}

}  // namespace

void SleepFor(uint32_t milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
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

absl::StatusOr<wire::ListRoundsResponse> Exchange::ListRounds() {
  return Call(&Transport::ListRounds, wire::ListRoundsRequest());
}

absl::StatusOr<wire::RoundState> Exchange::StateOf(const Digest& round_id) {
  wire::WaitRoundRequest request;  // with no time to wait
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
                                                             BytesView onions) {
  const size_t onion_bytes = onion::OnionBytes(round.parties());
  SHOAL_CHECK(onions.size() % onion_bytes == 0);
  std::vector<uint32_t> slots;
  SHOAL_RETURN_IF_ERROR(Cut(
      onions.size() / onion_bytes, kMaxBulkBytes / onion_bytes,
      [&](size_t first, size_t count) -> absl::Status {
        wire::SubmitOnionsRequest request;
        request.set_round_id(ToString(round.id()));
        request.set_onions(ToString(onions.subspan(first * onion_bytes, count * onion_bytes)));
        SHOAL_ASSIGN_OR_RETURN(const wire::SubmitOnionsResponse response,
                               Call(&Transport::SubmitOnions, request));
        if (static_cast<size_t>(response.slots_size()) != count) {
          return absl::DataLossError(absl::StrCat("the frontend gave ", response.slots_size(),
                                                  " slots for ", count, " onions"));
        }
        slots.insert(slots.end(), response.slots().begin(), response.slots().end());
        return absl::OkStatus();
      }));
  std::unordered_set<uint32_t> distinct;
  for (uint32_t slot : slots) {
    if (slot >= round.header().max_slots() || !distinct.insert(slot).second) {
      return absl::DataLossError("the frontend gave a slot twice, or one that does not exist");
    }
  }
  return slots;
}

absl::Status Exchange::SubmitQueries(const round::Round& round, const OnionRange& range,
                                     std::span<const uint32_t> slots,
                                     std::span<const uint32_t> rows) {
  SHOAL_CHECK(slots.size() == range.count && rows.size() == range.count);
  return Cut(range.count, kMaxBulkBytes / kQueryBytes,
             [&](size_t first, size_t count) -> absl::Status {
               wire::SubmitQueriesRequest request;
               request.set_round_id(ToString(round.id()));
               AppendQueries(round, Part(range, first, count), slots.subspan(first, count),
                             rows.subspan(first, count), request);
               return Call(&Transport::SubmitQueries, request).status();
             });
}

absl::Status Exchange::FetchAnswers(const round::Round& round, const OnionRange& range,
                                    std::span<const uint32_t> slots, MutableBytes answers) {
  const size_t answer_bytes = round.answer_bytes();
  SHOAL_CHECK(slots.size() == range.count && answers.size() == range.count * answer_bytes);
  return Cut(range.count, kMaxBulkBytes / answer_bytes,
             [&](size_t first, size_t count) -> absl::Status {
               const OnionRange part = Part(range, first, count);
               wire::FetchAnswersRequest request;
               request.set_round_id(ToString(round.id()));
               AppendFetch(round, part, slots.subspan(first, count), request);
               SHOAL_ASSIGN_OR_RETURN(const wire::FetchAnswersResponse response,
                                      Call(&Transport::FetchAnswers, request));
               if (response.answers().size() != count * answer_bytes) {
                 return absl::DataLossError(
                     absl::StrCat("the frontend sent ", response.answers().size(), " bytes for ",
                                  count, " answers of ", answer_bytes));
               }
               const MutableBytes target =
                   answers.subspan(first * answer_bytes, count * answer_bytes);
               std::copy(response.answers().begin(), response.answers().end(), target.begin());
               Unmask(round, part, target);
               return absl::OkStatus();
             });
}

}  // namespace shoal::client
