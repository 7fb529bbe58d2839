#include "src/shoald/peer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;
using namespace std::chrono_literals;

constexpr auto kShortCall = 30s;

// The number of tallies in the header of an encoded batch that this party made.
uint64_t CountOf(BytesView queries) {
  return queries.size() < 5 ? 0 : LoadLe<uint32_t>(queries.data() + 1);
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
                       AnswerBytes answer_bytes, std::chrono::seconds stage_limit)
    : number_(next.number),
      address_(next.peer_address),
      pin_(next.tls_certificate_sha256),
      identity_(identity),
      answer_bytes_(std::move(answer_bytes)),
      stage_limit_(stage_limit) {}

absl::StatusOr<std::unique_ptr<net::Connection>> RemoteLink::Connect(bool ends) const {
  const auto& key = identity_->private_key_pem;
  const net::Identity identity = {
      .certificate_pem = identity_->certificate_pem,
      .private_key_pem = {reinterpret_cast<const uint8_t*>(key.data()), key.size()}};
  // A process that is ending still sends the ends of rounds, but waits only briefly for the other
  // party.
  auto connection = net::Connection::Connect({.address = address_,
                                              .pin = pin_,
                                              .identity = &identity,
                                              .connect_timeout = ends ? 4s : 10s,
                                              .cancelled = ends ? nullptr : &cancelled_});
  if (!connection.ok()) {
    return Annotate(connection.status(), absl::StrCat("reaching party ", number_));
  }
  return connection;
}

absl::Status RemoteLink::Call(FrameType type, const google::protobuf::MessageLite& request,
                              google::protobuf::MessageLite& response,
                              std::chrono::milliseconds timeout, ByteSource* bulk) const {
  SHOAL_ASSIGN_OR_RETURN(const auto connection, Connect(type == FrameType::kEndRound));
  SHOAL_ASSIGN_OR_RETURN(
      const net::Connection::Streamed answer,
      connection->CallStreaming(wire::MakeFrame(type, request), bulk,
                                {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = 0},
                                timeout));
  return wire::ParseFrame(answer.frame, type, response);
}

absl::StatusOr<wire::SignedHeader> RemoteLink::Propose(const wire::RoundHeader& draft) {
  wire::ProposeRoundRequest request;
  *request.mutable_draft() = draft;
  wire::ProposeRoundResponse response;
  SHOAL_RETURN_IF_ERROR(Call(FrameType::kProposeRound, request, response, kShortCall));
  return std::move(*response.mutable_header());
}

absl::Status RemoteLink::Offline(const wire::SignedHeader& header,
                                 std::unique_ptr<ByteSource> onions) {
  wire::OfflineRequest request;
  *request.mutable_header() = header;
  wire::OfflineResponse response;
  return Call(FrameType::kOffline, request, response, stage_limit_, onions.get());
}

absl::StatusOr<std::unique_ptr<ByteSource>> RemoteLink::Online(const Digest& round_id,
                                                               Bytes queries) {
  wire::OnlineRequest request;
  request.set_round_id(ToString(round_id));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t answer_bytes, answer_bytes_(round_id));
  const uint64_t expected = CountOf(queries) * answer_bytes;
  SHOAL_ASSIGN_OR_RETURN(auto connection, Connect(/*ends=*/false));
  SHOAL_ASSIGN_OR_RETURN(
      net::Connection::Streamed answer,
      connection->CallStreaming(
          wire::MakeFrame(FrameType::kOnline, request, std::move(queries)), nullptr,
          {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = expected}, stage_limit_));
  wire::OnlineResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kOnline, response));
  return std::make_unique<OwnedBulk>(std::move(connection), std::move(answer.bulk));
}

absl::StatusOr<server::StageReports> RemoteLink::Reports(const Digest& round_id) {
  wire::RoundReportsRequest request;
  request.set_round_id(ToString(round_id));
  wire::RoundReportsResponse response;
  SHOAL_RETURN_IF_ERROR(Call(FrameType::kRoundReports, request, response, kShortCall));
  return server::StageReports(response.stages().begin(), response.stages().end());
}

absl::Status RemoteLink::End(const Digest& round_id, bool aborted, const std::string& reason) {
  wire::EndRoundRequest request;
  request.set_round_id(ToString(round_id));
  request.set_aborted(aborted);
  request.set_reason(reason.substr(0, 1024));
  wire::EndRoundResponse response;
  return Call(FrameType::kEndRound, request, response, kShortCall);
}

absl::Status RemoteLink::Withdraw(RoundCounter counter) {
  wire::EndRoundRequest request;
  request.set_counter(counter.value());
  request.set_aborted(true);
  wire::EndRoundResponse response;
  return Call(FrameType::kEndRound, request, response, kShortCall);
}

absl::StatusOr<wire::FrameLimits> PeerService::Limits(FrameType type) const {
  const server::Party::InputLimits input = node_->party().MaxInput();
  switch (type) {
    case FrameType::kProposeRound:
    case FrameType::kEndRound:
    case FrameType::kRoundReports:
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
  auto shared = std::make_shared<wire::Frame>(std::move(request));
  Run([this, shared] { return Answer(std::move(*shared)); }, std::move(reply));
}

void PeerService::Run(std::function<absl::StatusOr<Response>()> answer, net::Reply reply) {
  if (++calls_ > kMaxCalls) {
    --calls_;
    reply(absl::ResourceExhaustedError("too many calls at once"));
    return;
  }
  // std::function must be copyable, so the reply is shared.
  auto shared = std::make_shared<net::Reply>(std::move(reply));
  tasks_.Spawn([this, shared, answer = std::move(answer)] {
    absl::StatusOr<Response> response = answer();
    response.ok() ? (*shared)(std::move(response->frame), std::move(response->bulk))
                  : (*shared)(Refused(response.status()));
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
        [node = service_->node_, header = std::move(header_),
         intake = std::move(intake_)]() mutable -> absl::StatusOr<Response> {
          SHOAL_RETURN_IF_ERROR(node->Offline(header, std::move(intake)));
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
      SHOAL_ASSIGN_OR_RETURN(*response.mutable_header(), node_->Propose(message.draft()));
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
    case FrameType::kEndRound: {
      wire::EndRoundRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      if (message.round_id().empty() && message.counter() != 0) {
        spdlog::info("round {}: its proposal failed; dropped", message.counter());
        SHOAL_RETURN_IF_ERROR(node_->Withdraw(RoundCounter(message.counter())));
      } else {
        SHOAL_ASSIGN_OR_RETURN(const Digest id, server::ParseRoundId(message.round_id()));
        spdlog::info("round {}..: {}", Hex(BytesView(id).first(8)),
                     message.aborted() ? "aborted by the party before" : "closed and erased");
        SHOAL_RETURN_IF_ERROR(node_->End(id, message.aborted(), message.reason()));
      }
      return Response{wire::MakeFrame(request.type, wire::EndRoundResponse())};
    }
    default:
      return absl::InvalidArgumentError("not a request between parties");
  }
}

}  // namespace shoal::shoald
