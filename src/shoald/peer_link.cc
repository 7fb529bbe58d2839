#include "src/shoald/peer_link.h"

#include <utility>
#include <vector>

#include "src/base/status_macros.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kShortCall = 30s;
// To reach the next party with a list of live rounds, and for its answer.
constexpr std::chrono::milliseconds kLiveCall = 2s;
// More for each party after the next one.
constexpr std::chrono::milliseconds kLaterParty = 2s;

// The answers of a refresh, as they come from the next party.
class PeerRefresh final : public server::RefreshAnswers {
 public:
  PeerRefresh(std::unique_ptr<ByteSource> bulk, std::vector<round::RefreshTag> tags)
      : bulk_(std::move(bulk)), tags_(std::move(tags)) {}
  uint64_t size() const override { return bulk_->size(); }
  absl::StatusOr<BytesView> Next() override { return bulk_->Next(); }
  const std::vector<round::RefreshTag>& tags() const override { return tags_; }

 private:
  const std::unique_ptr<ByteSource> bulk_;
  const std::vector<round::RefreshTag> tags_;
};

}  // namespace

PeerLink::PeerLink(std::unique_ptr<PeerCalls> calls, Options options)
    : calls_(std::move(calls)),
      options_(std::move(options)),
      runs_({.party = options_.party,
             .machines = options_.machines,
             .senders = options_.senders,
             .answer_bytes = options_.answer_bytes,
             .call = [this](PeerCall call) { return CallStage(std::move(call)); },
             .spools = options_.spools}) {}

std::chrono::milliseconds PeerLink::Within(std::chrono::milliseconds limit) const {
  return limit + options_.later * kLaterParty;
}

PeerLink::Cancelled PeerLink::Over(const Digest& round_id) const {
  return [this, round_id] { return !options_.answer_bytes(round_id).ok(); };
}

PeerLink::Cancelled PeerLink::TermOver(const Digest& round_id) const {
  return [this, round_id] {
    return !options_.refresh_bytes || !options_.refresh_bytes(round_id).ok();
  };
}

absl::StatusOr<PeerAnswer> PeerLink::Call(PeerCall call) const {
  call.cancelled = [this, over = std::move(call.cancelled)] {
    return cancelled_ || (over && over());
  };
  return calls_->Call(std::move(call));
}

absl::StatusOr<PeerAnswer> PeerLink::CallStage(PeerCall call) const {
  call.limit = Within(options_.stage_limit);
  return Call(std::move(call));
}

template <typename Response>
absl::StatusOr<Response> PeerLink::Ask(FrameType type, google::protobuf::Message& request,
                                       std::chrono::milliseconds limit, Cancelled cancelled) const {
  SHOAL_ASSIGN_OR_RETURN(const PeerAnswer answer, Call({.request = RequestFrame(type, request),
                                                        .limit = Within(limit),
                                                        .cancelled = std::move(cancelled)}));
  Response response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, type, response));
  return response;
}

absl::StatusOr<wire::SignedHeader> PeerLink::Propose(const wire::RoundHeader& draft,
                                                     const wire::SignedLiveRounds& live) {
  wire::ProposeRoundRequest request;
  *request.mutable_draft() = draft;
  *request.mutable_live() = live;
  SHOAL_ASSIGN_OR_RETURN(
      wire::ProposeRoundResponse response,
      Ask<wire::ProposeRoundResponse>(FrameType::kProposeRound, request, kShortCall, nullptr));
  return std::move(*response.mutable_header());
}

template <typename Response, typename Request>
absl::StatusOr<std::unique_ptr<ByteSource>> PeerLink::CallHead(FrameType type, Request& request,
                                                               ByteSource& bulk,
                                                               const Digest& round_id,
                                                               const OwnRun& mine,
                                                               uint64_t most) const {
  SHOAL_ASSIGN_OR_RETURN(PeerAnswer answer,
                         CallStage({.request = RequestFrame(type, request),
                                    .bulk = &bulk,
                                    .answer_bulk_bytes = most,
                                    .round_id = round_id,
                                    .cancelled = [over = Over(round_id), given_up = mine.given_up] {
                                      return over() || (given_up && given_up());
                                    }}));
  Response response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, type, response));
  return std::move(answer.bulk);
}

absl::StatusOr<std::unique_ptr<ByteSource>> PeerLink::HeadOffline(const wire::SignedHeader& header,
                                                                  const OwnRun& mine,
                                                                  server::Submissions pieces,
                                                                  uint64_t most) {
  wire::HeadOfflineRequest request;
  *request.mutable_header() = header;
  request.set_slots(pieces.onions);
  return CallHead<wire::HeadOfflineResponse>(FrameType::kHeadOffline, request, *pieces.list,
                                             round::RoundId(header.header()), mine, most);
}

absl::StatusOr<Bytes> PeerLink::HeadQueries(const Digest& round_id, const OwnRun& mine, Bytes parts,
                                            uint64_t most) {
  wire::HeadQueriesRequest request;
  request.set_round_id(ToString(round_id));
  BytesSource bulk(std::move(parts));
  SHOAL_ASSIGN_OR_RETURN(const auto batch,
                         CallHead<wire::HeadQueriesResponse>(FrameType::kHeadQueries, request, bulk,
                                                             round_id, mine, most));
  return ReadAll(*batch);
}

absl::StatusOr<std::unique_ptr<ByteSource>> PeerLink::HeadAnswers(
    const Digest& round_id, const OwnRun& mine, std::unique_ptr<ByteSource> answers,
    uint64_t most) {
  wire::HeadAnswersRequest request;
  request.set_round_id(ToString(round_id));
  return CallHead<wire::HeadAnswersResponse>(FrameType::kHeadAnswers, request, *answers, round_id,
                                             mine, most);
}

absl::StatusOr<server::StageReports> PeerLink::Reports(const Digest& round_id) {
  wire::RoundReportsRequest request;
  request.set_round_id(ToString(round_id));
  SHOAL_ASSIGN_OR_RETURN(
      const wire::RoundReportsResponse response,
      Ask<wire::RoundReportsResponse>(FrameType::kRoundReports, request, kShortCall,
                                      // The round's stages, its term's refresh, or both.
                                      [over = Over(round_id), term_over = TermOver(round_id)] {
                                        return over() && term_over();
                                      }));
  return server::StageReportsOf(response);
}

absl::StatusOr<server::ListAnswer> PeerLink::Live(const wire::SignedLiveRounds& live) {
  wire::LiveRoundsRequest request;
  *request.mutable_live() = live;
  // Not cancelled: a process that is ending still says so.
  SHOAL_ASSIGN_OR_RETURN(const PeerAnswer answer,
                         calls_->Call({.request = RequestFrame(FrameType::kLiveRounds, request),
                                       .limit = Within(kLiveCall)}));
  wire::LiveRoundsResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kLiveRounds, response));
  return server::ListAnswerOf(response);
}

absl::StatusOr<signature::Signature> PeerLink::ProposeRefresh(const wire::RefreshHeader& header) {
  if (!options_.refresh_bytes) return absl::NotFoundError("this party keeps no terms");
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, server::ParseRoundId(header.round_id()));
  wire::ProposeRefreshRequest request;
  *request.mutable_header() = header;
  SHOAL_ASSIGN_OR_RETURN(const wire::ProposeRefreshResponse response,
                         Ask<wire::ProposeRefreshResponse>(FrameType::kProposeRefresh, request,
                                                           kShortCall, TermOver(round_id)));
  return server::SumOf(response);
}

absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> PeerLink::Refresh(
    const wire::SignedRefreshHeader& refresh) {
  if (!options_.refresh_bytes) return absl::NotFoundError("this party keeps no terms");
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, server::ParseRoundId(refresh.header().round_id()));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t expected, options_.refresh_bytes(round_id));
  wire::RefreshRequest request;
  *request.mutable_header() = refresh;
  SHOAL_ASSIGN_OR_RETURN(PeerAnswer answer,
                         CallStage({.request = RequestFrame(FrameType::kRefresh, request),
                                    .answer_bulk_bytes = expected,
                                    .round_id = round_id,
                                    .cancelled = TermOver(round_id)}));
  wire::RefreshResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kRefresh, response));
  SHOAL_ASSIGN_OR_RETURN(std::vector<round::RefreshTag> tags, server::TagsOf(response));
  return std::make_unique<PeerRefresh>(std::move(answer.bulk), std::move(tags));
}

absl::StatusOr<wire::PartyStatesResponse> PeerLink::States(
    const wire::PartyStatesRequest& request) const {
  wire::PartyStatesRequest asked = request;
  return Ask<wire::PartyStatesResponse>(FrameType::kPartyStates, asked, kLiveCall, nullptr);
}

void PeerLink::CloseEnded() {
  calls_->CloseEnded(
      [this](const Digest& round_id) { return !options_.answer_bytes(round_id).ok(); });
}

}  // namespace shoal::shoald
