#include "src/shoald/peer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/wire/peer.pb.h"

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

// The bulk of an answer, with the connection over which it comes. `named` names its errors.
class OwnedBulk final : public ByteSource {
 public:
  OwnedBulk(std::unique_ptr<net::Connection> connection, std::unique_ptr<ByteSource> bulk,
            std::function<absl::Status(const absl::Status&)> named)
      : connection_(std::move(connection)), bulk_(std::move(bulk)), named_(std::move(named)) {}
  uint64_t size() const override { return bulk_->size(); }
  absl::StatusOr<BytesView> Next() override {
    absl::StatusOr<BytesView> piece = bulk_->Next();
    return piece.ok() ? piece : named_(piece.status());
  }

 private:
  const std::unique_ptr<net::Connection> connection_;
  const std::unique_ptr<ByteSource> bulk_;
  const std::function<absl::Status(const absl::Status&)> named_;
};

absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> ContextOf(
    const roster::TlsIdentity& identity) {
  const auto& key = identity.private_key_pem;
  const net::Identity own = {
      .certificate_pem = identity.certificate_pem,
      .private_key_pem = {reinterpret_cast<const uint8_t*>(key.data()), key.size()}};
  return net::MakeContext(/*server=*/false, &own);
}

}  // namespace

RemoteLink::RemoteLink(const roster::Party& next, const roster::TlsIdentity* identity,
                       AnswerBytes answer_bytes, std::chrono::seconds stage_limit, uint32_t later,
                       SpoolPlace* spools, AnswerBytes refresh_bytes)
    : next_(next),
      context_(ContextOf(*identity)),
      answer_bytes_(std::move(answer_bytes)),
      refresh_bytes_(std::move(refresh_bytes)),
      stage_limit_(stage_limit),
      later_(later),
      runs_({.party = next_.number,
             .machines = next_.machines,
             .answer_bytes = answer_bytes_,
             .call =
                 [this](const Digest& round_id, uint32_t machine, wire::Frame request,
                        ByteSource* bulk, uint64_t answer_bulk_bytes, std::function<bool()> over) {
                   return CallStage(
                       round_id, machine, request, bulk, answer_bulk_bytes,
                       [this, over = std::move(over)] { return cancelled_ || over(); });
                 },
             .spools = spools}) {}

RemoteLink::Deadline RemoteLink::After(std::chrono::milliseconds limit) const {
  return std::chrono::steady_clock::now() + limit + later_ * kLaterParty;
}

absl::Status RemoteLink::Named(const absl::Status& status, uint32_t machine) const {
  const bool silent = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!silent || !absl::StartsWith(status.message(), next_.PeerAddress(machine))) return status;
  return Annotate(status, absl::StrCat("party ", next_.number, " does not answer"));
}

absl::StatusOr<std::unique_ptr<net::Connection>> RemoteLink::Connect(
    Deadline deadline, std::function<bool()> cancelled, uint32_t machine) const {
  SHOAL_RETURN_IF_ERROR(context_.status());
  auto connection = net::Connection::Connect(
      {.address = next_.PeerAddress(machine),
       .pin = next_.tls_certificate_sha256,
       .context = *context_,
       .connect_timeout = std::min(Left(deadline), std::chrono::milliseconds(kConnect)),
       .cancelled = std::move(cancelled)});
  if (connection.ok()) return connection;
  // A machine that does not answer is like one that refuses: the link is broken.
  absl::Status failed = connection.status();
  if (absl::IsDeadlineExceeded(failed)) failed = absl::UnavailableError(failed.message());
  return Annotate(failed, absl::StrCat("reaching party ", next_.number));
}

std::function<bool()> RemoteLink::Over(const Digest& round_id) const {
  return [this, round_id] { return cancelled_ || !answer_bytes_(round_id).ok(); };
}

std::function<bool()> RemoteLink::TermOver(const Digest& round_id) const {
  return
      [this, round_id] { return cancelled_ || !refresh_bytes_ || !refresh_bytes_(round_id).ok(); };
}

absl::Status RemoteLink::Call(FrameType type, const google::protobuf::MessageLite& request,
                              google::protobuf::MessageLite& response,
                              std::chrono::milliseconds limit,
                              std::function<bool()> cancelled) const {
  const Deadline deadline = After(limit);
  SHOAL_ASSIGN_OR_RETURN(const auto connection, Connect(deadline, std::move(cancelled)));
  const absl::StatusOr<wire::Frame> answer = connection->Call(
      wire::MakeFrame(type, request),
      {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = 0}, Left(deadline));
  if (!answer.ok()) return Named(answer.status());
  return wire::ParseFrame(*answer, type, response);
}

absl::StatusOr<RunCalls::Answer> RemoteLink::CallStage(const Digest& round_id, uint32_t machine,
                                                       const wire::Frame& request, ByteSource* bulk,
                                                       uint64_t answer_bulk_bytes,
                                                       std::function<bool()> cancelled) {
  const Deadline deadline = After(stage_limit_);
  const bool is_list = request.type == FrameType::kOffline;
  std::unique_ptr<net::Connection> connection;
  if (request.type == FrameType::kOnline) connection = kept_.Take(round_id, machine);
  if (connection != nullptr) {
    connection->SetCancelled(std::move(cancelled));
  } else {
    SHOAL_ASSIGN_OR_RETURN(connection, Connect(deadline, std::move(cancelled), machine));
  }
  absl::StatusOr<net::Connection::Streamed> answer = connection->CallStreaming(
      request, bulk, {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = answer_bulk_bytes},
      Left(deadline));
  // A call over a kept connection is not made again over a new one: the other machine may have
  // taken it. The link has broken, as it can at any time, and the frontend repeats the stage.
  if (!answer.ok()) return Named(answer.status(), machine);
  if (is_list) {  // no bulk
    kept_.Keep(round_id, machine, std::move(connection));
    return RunCalls::Answer{.frame = std::move(answer->frame),
                            .bulk = std::make_unique<BytesSource>(Bytes())};
  }
  return RunCalls::Answer{
      .frame = std::move(answer->frame),
      .bulk = std::make_unique<OwnedBulk>(
          std::move(connection), std::move(answer->bulk),
          [this, machine](const absl::Status& status) { return Named(status, machine); })};
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
  if (next_.machines > 1) return runs_.Offline(header, std::move(onions));
  wire::OfflineRequest request;
  *request.mutable_header() = header;
  const Digest round_id = round::RoundId(header.header());
  SHOAL_ASSIGN_OR_RETURN(const RunCalls::Answer answer,
                         CallStage(round_id, 0, wire::MakeFrame(FrameType::kOffline, request),
                                   onions.get(), 0, Over(round_id)));
  wire::OfflineResponse response;
  return wire::ParseFrame(answer.frame, FrameType::kOffline, response);
}

absl::StatusOr<std::unique_ptr<ByteSource>> RemoteLink::Online(const Digest& round_id,
                                                               Bytes queries) {
  if (next_.machines > 1) return runs_.Online(round_id, queries);
  wire::OnlineRequest request;
  request.set_round_id(ToString(round_id));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t answer_bytes, answer_bytes_(round_id));
  const uint64_t expected = CountOf(queries) * answer_bytes;
  SHOAL_ASSIGN_OR_RETURN(
      RunCalls::Answer answer,
      CallStage(round_id, 0, wire::MakeFrame(FrameType::kOnline, request, std::move(queries)),
                nullptr, expected, Over(round_id)));
  wire::OnlineResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kOnline, response));
  return std::move(answer.bulk);
}

absl::StatusOr<server::StageReports> RemoteLink::Reports(const Digest& round_id) {
  wire::RoundReportsRequest request;
  request.set_round_id(ToString(round_id));
  wire::RoundReportsResponse response;
  SHOAL_RETURN_IF_ERROR(Call(
      FrameType::kRoundReports, request, response, kShortCall,
      // The round's stages, its term's refresh, or both.
      [over = Over(round_id), term_over = TermOver(round_id)] { return over() && term_over(); }));
  return server::StageReportsOf(response);
}

absl::StatusOr<server::ListAnswer> RemoteLink::Live(const wire::SignedLiveRounds& live) {
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
  return server::ListAnswerOf(response);
}

absl::StatusOr<signature::Signature> RemoteLink::ProposeRefresh(const wire::RefreshHeader& header) {
  if (!refresh_bytes_) return absl::NotFoundError("this party keeps no terms");
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, server::ParseRoundId(header.round_id()));
  wire::ProposeRefreshRequest request;
  *request.mutable_header() = header;
  request.DiscardUnknownFields();
  wire::ProposeRefreshResponse response;
  SHOAL_RETURN_IF_ERROR(
      Call(FrameType::kProposeRefresh, request, response, kShortCall, TermOver(round_id)));
  return server::SumOf(response);
}

absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> RemoteLink::Refresh(
    const wire::SignedRefreshHeader& refresh) {
  if (!refresh_bytes_) return absl::NotFoundError("this party keeps no terms");
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, server::ParseRoundId(refresh.header().round_id()));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t expected, refresh_bytes_(round_id));
  wire::RefreshRequest request;
  *request.mutable_header() = refresh;
  request.DiscardUnknownFields();
  SHOAL_ASSIGN_OR_RETURN(RunCalls::Answer answer,
                         CallStage(round_id, 0, wire::MakeFrame(FrameType::kRefresh, request),
                                   nullptr, expected, TermOver(round_id)));
  wire::RefreshResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kRefresh, response));
  SHOAL_ASSIGN_OR_RETURN(std::vector<round::RefreshTag> tags, server::TagsOf(response));
  return std::make_unique<RemoteRefresh>(std::move(answer.bulk), std::move(tags));
}

void RemoteLink::CloseEnded() {
  kept_.End([this](const Digest& round_id) { return !answer_bytes_(round_id).ok(); });
}

absl::StatusOr<wire::PartyStatesResponse> RemoteLink::States(
    const wire::PartyStatesRequest& request) const {
  wire::PartyStatesResponse response;
  SHOAL_RETURN_IF_ERROR(Call(FrameType::kPartyStates, request, response, kLiveCall,
                             [this] { return cancelled_.load(); }));
  return response;
}

absl::StatusOr<wire::FrameLimits> PeerService::Limits(FrameType type) const {
  const server::Party::InputLimits input =
      node_ == nullptr ? parts_->MaxInput() : node_->party().MaxInput();
  switch (type) {
    case FrameType::kProposeRound:
    case FrameType::kRoundReports:
    case FrameType::kLiveRounds:
    case FrameType::kPartyStates:
    case FrameType::kProposeRefresh:
    case FrameType::kRefresh:
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
  const bool stage = request.type == FrameType::kOnline || request.type == FrameType::kRefresh;
  const int most = Most(stage ? kMaxStageCalls : kMaxCalls);
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

// A part of an onion list, on its way in.
class PeerService::PartSink final : public net::BulkSink {
 public:
  PartSink(PeerService* service, std::unique_ptr<PartStages::OfflinePart> part)
      : service_(service), part_(std::move(part)) {}

  absl::Status Take(BytesView piece) override {
    const absl::Status taken = part_->Take(piece);
    return taken.ok() ? taken : Refused(taken);
  }

  void Done(net::Reply reply) override {
    service_->Run(
        service_->Most(kMaxStageCalls),
        [part = std::shared_ptr(std::move(part_))]() -> absl::StatusOr<Response> {
          const absl::Status done = part->Wait();
          if (!done.ok()) return Refused(done);
          return Response{wire::MakeFrame(FrameType::kOffline, wire::OfflineResponse())};
        },
        std::move(reply));
  }

 private:
  PeerService* const service_;
  std::unique_ptr<PartStages::OfflinePart> part_;
};

absl::Status PeerService::CheckPart(bool has_part) const {
  if (has_part == (parts_ != nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(has_part
                                        ? "a part of a list, where both parties have one machine"
                                        : "a whole list, where a party has several machines");
}

absl::StatusOr<std::unique_ptr<net::BulkSink>> PeerService::Sink(const wire::Frame& request,
                                                                 uint64_t bulk_bytes) {
  if (request.type != FrameType::kOffline) return nullptr;
  wire::OfflineRequest message;
  absl::Status status = wire::ParseFrame(request, request.type, message);
  if (status.ok()) status = CheckPart(message.has_part());
  if (!status.ok()) return Refused(status);
  if (parts_ != nullptr) {
    auto part = parts_->Offline(message, bulk_bytes);
    if (!part.ok()) return Refused(part.status());
    return std::make_unique<PartSink>(this, *std::move(part));
  }
  auto intake = node_->party().BeginOffline(message.header(), bulk_bytes);
  if (!intake.ok()) return Refused(intake.status());
  return std::make_unique<OfflineSink>(this, std::move(*message.mutable_header()),
                                       *std::move(intake));
}

absl::StatusOr<PeerService::Response> PeerService::Answer(wire::Frame request) {
  if (node_ == nullptr && request.type != FrameType::kOnline) {
    return absl::InvalidArgumentError(
        "this machine takes parts of lists; its party's head takes this");
  }
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
      SHOAL_RETURN_IF_ERROR(CheckPart(message.has_part()));
      if (parts_ != nullptr) {
        SHOAL_ASSIGN_OR_RETURN(auto answers, parts_->Online(message, std::move(request.bulk)));
        return Response{wire::MakeFrame(request.type, wire::OnlineResponse()), std::move(answers)};
      }
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
      SHOAL_ASSIGN_OR_RETURN(const server::ListAnswer answer, node_->Live(message.live()));
      heard_at_s_ = since_start_.Seconds();
      wire::LiveRoundsResponse response;
      response.set_reached(answer.reached);
      for (const server::LackedRound& lack : answer.lacked) {
        wire::LackedRound& added = *response.add_lacked();
        added.set_party(lack.party.value());
        added.set_counter(lack.counter.value());
      }
      return Response{wire::MakeFrame(request.type, response)};
    }
    case FrameType::kProposeRefresh: {
      wire::ProposeRefreshRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum,
                             node_->ProposeRefresh(message.header()));
      wire::ProposeRefreshResponse response;
      response.set_signature(ToString(sum.bytes()));
      return Response{wire::MakeFrame(request.type, response)};
    }
    case FrameType::kRefresh: {
      wire::RefreshRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(auto answers, node_->Refresh(message.header()));
      wire::RefreshResponse response;
      for (const round::RefreshTag& tag : answers->tags()) {
        absl::StrAppend(response.mutable_tags(), AsText(tag));
      }
      return Response{wire::MakeFrame(request.type, response), std::move(answers)};
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

namespace {

// Answers for machines of the party before, from one of several. They are given out by a thread
// that serves connections and must not wait for this party's other machines, as the last piece of
// an output does: so all of them are made first.
absl::StatusOr<std::unique_ptr<ByteSource>> Made(std::unique_ptr<ByteSource> answers,
                                                 SpoolPlace& spools) {
  SHOAL_ASSIGN_OR_RETURN(Spool made, spools.Create(answers->size()));
  SHOAL_RETURN_IF_ERROR(FillSpool(*answers, made));
  return std::make_unique<SpoolSource>(std::move(made));
}

}  // namespace

PartStages::Options PartsOf(server::ChainNode& node, uint32_t senders, SpoolPlace* spools) {
  server::Party& party = node.party();
  const size_t onion_bytes = server::OnionBytesFor(party.roster().size(), party.number().value());
  return {
      .rank = party.rank(),
      .count = party.roster().party(party.number().value()).machines,
      .senders = senders,
      .onion_bytes = onion_bytes,
      .spools = spools,
      .most_records = [&party,
                       onion_bytes] { return party.MaxInput().offline_bytes / onion_bytes; },
      .open = [&party](const Digest& id) { return party.AnswerBytes(id).status(); },
      .at_work = [&party](const Digest& id,
                          uint64_t attempt) { return party.IsAtWork(id, attempt); },
      .offline = [&node, &party, onion_bytes](
                     const wire::SignedHeader& header, const server::ListPart& list,
                     uint64_t attempt) -> absl::StatusOr<PartStages::RunOffline> {
        const uint64_t bytes = list.count * onion_bytes;
        SHOAL_ASSIGN_OR_RETURN(
            auto intake,
            party.has_several_machines()
                ? party.BeginOffline(header, bytes, {.attempt = attempt, .records = list.records})
                : party.BeginOffline(header, bytes));
        return [&node, header, intake = std::move(intake)](ByteSource& onions) -> absl::Status {
          for (;;) {
            SHOAL_ASSIGN_OR_RETURN(const BytesView piece, onions.Next());
            if (piece.empty()) return node.Offline(header, intake);
            SHOAL_RETURN_IF_ERROR(intake->Take(piece));
          }
        };
      },
      .online = [&node, &party, spools](
                    const Digest& id, const server::ListPart& slice, uint64_t attempt,
                    wire::QueryBatch queries) -> absl::StatusOr<std::unique_ptr<ByteSource>> {
        const server::StageTry stage = {.attempt = attempt, .records = slice.records};
        if (!party.has_several_machines()) {
          Bytes encoded = wire::EncodeQueryBatch(queries, static_cast<uint32_t>(slice.count));
          queries = {};  // frees memory
          return node.Online(id, std::move(encoded), stage);
        }
        SHOAL_ASSIGN_OR_RETURN(auto answers, node.Online(id, std::move(queries), stage));
        return Made(std::move(answers), *spools);
      },
  };
}

}  // namespace shoal::shoald
