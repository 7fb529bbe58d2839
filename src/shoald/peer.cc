#include "src/shoald/peer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;
using namespace std::chrono_literals;

constexpr auto kConnect = 10s;
constexpr auto kShortCall = 30s;
// To reach the next party with a list of live rounds, and for its answer.
constexpr auto kLiveCall = 2s;
// More for each party after the next one.
constexpr auto kLaterParty = 2s;

// The number of tallies in the header of an encoded batch that this party made.
uint64_t CountOf(BytesView queries) {
  return queries.size() < 5 ? 0 : LoadLe<uint32_t>(queries.data() + 1);
}

// At least a moment, so that a deadline that has passed is one.
std::chrono::milliseconds Left(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left),
                  std::chrono::milliseconds(1));
}

absl::Status Refused(const absl::Status& status) {
  spdlog::warn("refused: {}", status.ToString());
  return status;
}

// The bulk of an answer, with the connection over which it comes.
class OwnedBulk final : public ByteSource {
 public:
  OwnedBulk(std::unique_ptr<net::Connection> connection, std::unique_ptr<ByteSource> bulk)
      : connection_(std::move(connection)), bulk_(std::move(bulk)) {}
  uint64_t size() const override { return bulk_->size(); }
  absl::StatusOr<BytesView> Next() override { return bulk_->Next(); }

 private:
  const std::unique_ptr<net::Connection> connection_;
  const std::unique_ptr<ByteSource> bulk_;
};

}  // namespace

RemoteLink::RemoteLink(const roster::Party& next, const roster::TlsIdentity* identity,
                       AnswerBytes answer_bytes, std::chrono::seconds stage_limit, uint32_t later)
    : number_(next.number),
      address_(next.peer_address),
      pin_(next.tls_certificate_sha256),
      identity_(identity),
      answer_bytes_(std::move(answer_bytes)),
      stage_limit_(stage_limit),
      later_(later) {}

RemoteLink::Deadline RemoteLink::After(std::chrono::milliseconds limit) const {
  return std::chrono::steady_clock::now() + limit + later_ * kLaterParty;
}

absl::Status RemoteLink::Named(const absl::Status& status) const {
  const bool silent = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!silent || !absl::StartsWith(status.message(), address_)) return status;
  return Annotate(status, absl::StrCat("party ", number_, " does not answer"));
}

absl::StatusOr<std::unique_ptr<net::Connection>> RemoteLink::Connect(
    Deadline deadline, std::function<bool()> cancelled) const {
  const auto& key = identity_->private_key_pem;
  const net::Identity identity = {
      .certificate_pem = identity_->certificate_pem,
      .private_key_pem = {reinterpret_cast<const uint8_t*>(key.data()), key.size()}};
  auto connection = net::Connection::Connect(
      {.address = address_,
       .pin = pin_,
       .identity = &identity,
       .connect_timeout = std::min(Left(deadline), std::chrono::milliseconds(kConnect)),
       .cancelled = std::move(cancelled)});
  if (connection.ok()) return connection;
  // A machine that does not answer is like one that refuses: the link is broken.
  absl::Status failed = connection.status();
  if (absl::IsDeadlineExceeded(failed)) failed = absl::UnavailableError(failed.message());
  return Annotate(failed, absl::StrCat("reaching party ", number_));
}

std::function<bool()> RemoteLink::Over(const Digest& round_id) const {
  return [this, round_id] { return cancelled_ || !answer_bytes_(round_id).ok(); };
}

absl::Status RemoteLink::Call(FrameType type, const google::protobuf::MessageLite& request,
                              google::protobuf::MessageLite& response,
                              std::chrono::milliseconds limit, std::function<bool()> cancelled,
                              ByteSource* bulk) const {
  const Deadline deadline = After(limit);
  SHOAL_ASSIGN_OR_RETURN(const auto connection, Connect(deadline, std::move(cancelled)));
  const absl::StatusOr<net::Connection::Streamed> answer = connection->CallStreaming(
      wire::MakeFrame(type, request), bulk,
      {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = 0}, Left(deadline));
  if (!answer.ok()) return Named(answer.status());
  return wire::ParseFrame(answer->frame, type, response);
}

absl::StatusOr<wire::SignedHeader> RemoteLink::Propose(const wire::RoundHeader& draft,
                                                       const wire::SignedLiveRounds& live) {
  wire::ProposeRoundRequest request;
  *request.mutable_draft() = draft;
  *request.mutable_live() = live;
  request.DiscardUnknownFields();
  wire::ProposeRoundResponse response;
  SHOAL_RETURN_IF_ERROR(Call(FrameType::kProposeRound, request, response, kShortCall,
                             [this] { return cancelled_.load(); }));
  return std::move(*response.mutable_header());
}

absl::Status RemoteLink::Offline(const wire::SignedHeader& header,
                                 std::unique_ptr<ByteSource> onions) {
  wire::OfflineRequest request;
  *request.mutable_header() = header;
  wire::OfflineResponse response;
  return Call(FrameType::kOffline, request, response, stage_limit_,
              Over(round::RoundId(header.header())), onions.get());
}

absl::StatusOr<std::unique_ptr<ByteSource>> RemoteLink::Online(const Digest& round_id,
                                                               Bytes queries) {
  wire::OnlineRequest request;
  request.set_round_id(ToString(round_id));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t answer_bytes, answer_bytes_(round_id));
  const uint64_t expected = CountOf(queries) * answer_bytes;
  const Deadline deadline = After(stage_limit_);
  SHOAL_ASSIGN_OR_RETURN(auto connection, Connect(deadline, Over(round_id)));
  absl::StatusOr<net::Connection::Streamed> answer = connection->CallStreaming(
      wire::MakeFrame(FrameType::kOnline, request, std::move(queries)), nullptr,
      {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = expected}, Left(deadline));
  if (!answer.ok()) return Named(answer.status());
  wire::OnlineResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer->frame, FrameType::kOnline, response));
  return std::make_unique<OwnedBulk>(std::move(connection), std::move(answer->bulk));
}

absl::StatusOr<server::StageReports> RemoteLink::Reports(const Digest& round_id) {
  wire::RoundReportsRequest request;
  request.set_round_id(ToString(round_id));
  wire::RoundReportsResponse response;
  SHOAL_RETURN_IF_ERROR(
      Call(FrameType::kRoundReports, request, response, kShortCall, Over(round_id)));
  return server::StageReports(response.stages().begin(), response.stages().end());
}

absl::StatusOr<server::LackedRounds> RemoteLink::Live(const wire::SignedLiveRounds& live) {
  wire::LiveRoundsRequest request;
  *request.mutable_live() = live;
  request.DiscardUnknownFields();
  const wire::Frame frame = wire::MakeFrame(FrameType::kLiveRounds, request);
  absl::StatusOr<wire::Frame> answer;
  {
    const MutexLock lock(live_mutex_);
    const Deadline deadline = After(kLiveCall);
    // The party may have been restarted since the last list: then a new connection is tried, too.
    bool kept = live_connection_ != nullptr;
    do {
      if (live_connection_ == nullptr) {
        // Not cancelled: a process that is ending still says so.
        SHOAL_ASSIGN_OR_RETURN(live_connection_, Connect(deadline, nullptr));
      }
      answer = live_connection_->Call(
          frame, {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = 0}, Left(deadline));
      if (!live_connection_->usable()) live_connection_.reset();
    } while (absl::IsUnavailable(answer.status()) && live_connection_ == nullptr &&
             std::exchange(kept, false));
  }
  if (!answer.ok()) return Named(answer.status());
  wire::LiveRoundsResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(*answer, FrameType::kLiveRounds, response));
  server::LackedRounds lacked;
  for (const wire::LackedRound& lack : response.lacked()) {
    lacked.push_back({PartyNumber(lack.party()), RoundCounter(lack.counter())});
  }
  return lacked;
}

absl::StatusOr<wire::PartyStatesResponse> RemoteLink::States(
    const wire::PartyStatesRequest& request) const {
  wire::PartyStatesResponse response;
  SHOAL_RETURN_IF_ERROR(Call(FrameType::kPartyStates, request, response, kLiveCall,
                             [this] { return cancelled_.load(); }));
  return response;
}

absl::StatusOr<wire::FrameLimits> PeerService::Limits(FrameType type) const {
  const server::Party::InputLimits input = node_->party().MaxInput();
  switch (type) {
    case FrameType::kProposeRound:
    case FrameType::kRoundReports:
    case FrameType::kLiveRounds:
    case FrameType::kPartyStates:
      return wire::FrameLimits{.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = 0};
    case FrameType::kOffline:
      return wire::FrameLimits{.control_bytes = wire::kMaxPeerControlBytes,
                               .bulk_bytes = input.offline_bytes};
    case FrameType::kOnline:
      return wire::FrameLimits{.control_bytes = wire::kMaxPeerControlBytes,
                               .bulk_bytes = input.queries_bytes};
    default:
      return absl::InvalidArgumentError("this port serves the party before this one alone");
  }
}

void PeerService::Handle(wire::Frame request, net::Reply reply) {
  const int most = request.type == FrameType::kOnline ? kMaxStageCalls : kMaxCalls;
  auto shared = std::make_shared<wire::Frame>(std::move(request));
  Run(
      most,
      [this, shared] {
        const bool live = shared->type == FrameType::kLiveRounds;
        absl::StatusOr<Response> response = Answer(std::move(*shared));
        // The lists of a second are mostly refused alike, and the first says why.
        if (!response.ok() && !(live && live_refused_.exchange(true))) {
          response = Refused(response.status());
        }
        if (live && response.ok()) live_refused_ = false;
        return response;
      },
      std::move(reply));
}

void PeerService::Run(int most, std::function<absl::StatusOr<Response>()> answer,
                      net::Reply reply) {
  if (++calls_ > most) {
    --calls_;
    reply(absl::ResourceExhaustedError("too many calls at once"));
    return;
  }
  // std::function must be copyable, so the reply is shared.
  auto shared = std::make_shared<net::Reply>(std::move(reply));
  tasks_.Spawn([this, shared, answer = std::move(answer)] {
    absl::StatusOr<Response> response = answer();
    response.ok() ? (*shared)(std::move(response->frame), std::move(response->bulk))
                  : (*shared)(response.status());
    --calls_;
  });
}

class PeerService::OfflineSink final : public net::BulkSink {
 public:
  OfflineSink(PeerService* service, wire::SignedHeader header,
              std::shared_ptr<server::Party::Intake> intake)
      : service_(service), header_(std::move(header)), intake_(std::move(intake)) {}

  absl::Status Take(BytesView piece) override {
    const absl::Status taken = intake_->Take(piece);
    return taken.ok() ? taken : Refused(taken);
  }

  void Done(net::Reply reply) override {
    service_->Run(
        kMaxStageCalls,
        [node = service_->node_, header = std::move(header_),
         intake = std::move(intake_)]() mutable -> absl::StatusOr<Response> {
          const absl::Status done = node->Offline(header, std::move(intake));
          if (!done.ok()) return Refused(done);
          return Response{wire::MakeFrame(FrameType::kOffline, wire::OfflineResponse())};
        },
        std::move(reply));
  }

 private:
  PeerService* const service_;
  wire::SignedHeader header_;
  std::shared_ptr<server::Party::Intake> intake_;
};

absl::StatusOr<std::unique_ptr<net::BulkSink>> PeerService::Sink(const wire::Frame& request,
                                                                 uint64_t bulk_bytes) {
  if (request.type != FrameType::kOffline) return nullptr;
  wire::OfflineRequest message;
  absl::Status status = wire::ParseFrame(request, request.type, message);
  if (!status.ok()) return Refused(status);
  auto intake = node_->party().BeginOffline(message.header(), bulk_bytes);
  if (!intake.ok()) return Refused(intake.status());
  return std::make_unique<OfflineSink>(this, std::move(*message.mutable_header()),
                                       *std::move(intake));
}

absl::StatusOr<PeerService::Response> PeerService::Answer(wire::Frame request) {
  switch (request.type) {
    case FrameType::kProposeRound: {
      wire::ProposeRoundRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      wire::ProposeRoundResponse response;
      SHOAL_ASSIGN_OR_RETURN(*response.mutable_header(),
                             node_->Propose(message.draft(), message.live()));
      // Makes the noise ahead of time, as it needs nothing but the header.
      const Digest id = round::RoundId(response.header().header());
      tasks_.Spawn([this, id] { node_->party().PrepareNoise(id).IgnoreError(); });
      return Response{wire::MakeFrame(request.type, response)};
    }
    case FrameType::kOnline: {
      wire::OnlineRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const Digest id, server::ParseRoundId(message.round_id()));
      SHOAL_ASSIGN_OR_RETURN(auto answers, node_->Online(id, std::move(request.bulk)));
      return Response{wire::MakeFrame(request.type, wire::OnlineResponse()), std::move(answers)};
    }
    case FrameType::kRoundReports: {
      wire::RoundReportsRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const Digest id, server::ParseRoundId(message.round_id()));
      SHOAL_ASSIGN_OR_RETURN(const server::StageReports reports, node_->Reports(id));
      wire::RoundReportsResponse response;
      response.mutable_stages()->Assign(reports.begin(), reports.end());
      return Response{wire::MakeFrame(request.type, response)};
    }
    case FrameType::kLiveRounds: {
      wire::LiveRoundsRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const server::LackedRounds lacked, node_->Live(message.live()));
      heard_at_s_ = since_start_.Seconds();
      wire::LiveRoundsResponse response;
      for (const server::LackedRound& lack : lacked) {
        wire::LackedRound& added = *response.add_lacked();
        added.set_party(lack.party.value());
        added.set_counter(lack.counter.value());
      }
      return Response{wire::MakeFrame(request.type, response)};
    }
    case FrameType::kPartyStates: {
      if (states_ == nullptr) return absl::UnimplementedError("this party says nothing of itself");
      wire::PartyStatesRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      return Response{wire::MakeFrame(request.type, states_->Answer(message))};
    }
    default:
      return absl::InvalidArgumentError("not a request between parties");
  }
}

}  // namespace shoal::shoald
