#include "src/shoald/peer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/sharing/halves.h"
#include "src/wire/peer.pb.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;

wire::LiveRoundsResponse ToWire(const server::ListAnswer& answer) {
  wire::LiveRoundsResponse response;
  response.set_reached(answer.reached);
  for (const server::LackedRound& lack : answer.lacked) {
    wire::LackedRound& added = *response.add_lacked();
    added.set_party(lack.party.value());
    added.set_counter(lack.counter.value());
  }
  return response;
}

absl::Status Refused(const absl::Status& status) {
  spdlog::warn("refused: {}", status.ToString());
  return status;
}

absl::Status NotTheHead() {
  return absl::InvalidArgumentError(
      "this machine takes parts of lists; its party's head takes this");
}

}  // namespace

absl::StatusOr<wire::FrameLimits> PeerService::Limits(FrameType type) const {
  // Two tiers have one machine.
  const bool two_tiers = node_ != nullptr && node_->party().roster().most_in_bucket() != 0;
  const server::Party::InputLimits input =
      two_tiers ? node_->party().MaxInput() : parts_->MaxInput();
  const auto bulk_of = [](uint64_t bytes) {
    return wire::FrameLimits{.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = bytes};
  };
  switch (type) {
    case FrameType::kProposeRound:
    case FrameType::kRoundReports:
    case FrameType::kLiveRounds:
    case FrameType::kPartyStates:
    case FrameType::kProposeRefresh:
    case FrameType::kRefresh:
      return bulk_of(0);
    case FrameType::kOffline:
      return bulk_of(input.offline_bytes);
    case FrameType::kOnline:
      return bulk_of(input.queries_bytes);
    case FrameType::kHeadOffline:
      return bulk_of(input.pieces_bytes);
    case FrameType::kHeadQueries:
      return bulk_of(input.parts_bytes);
    case FrameType::kHeadAnswers:
      return bulk_of(input.half_answers_bytes);
    default:
      return absl::InvalidArgumentError("this port serves the party before this one alone");
  }
}

void PeerService::Handle(wire::Frame request, net::Reply reply) {
  const bool stage = request.type == FrameType::kOnline ||
                     request.type == FrameType::kHeadQueries || request.type == FrameType::kRefresh;
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

// A list of onions, or a part of one, on its way in.
class PeerService::OfflineSink final : public net::BulkSink {
 public:
  OfflineSink(PeerService* service, std::unique_ptr<PartStages::OnionSink> onions)
      : service_(service), onions_(std::move(onions)) {}

  absl::Status Take(BytesView piece) override {
    const absl::Status taken = onions_->Take(piece);
    return taken.ok() ? taken : Refused(taken);
  }

  void Done(net::Reply reply) override {
    service_->Run(
        service_->Most(kMaxStageCalls),
        [onions = std::shared_ptr(std::move(onions_))]() -> absl::StatusOr<Response> {
          const absl::Status done = onions->Wait();
          if (!done.ok()) return Refused(done);
          return Response{wire::MakeFrame(FrameType::kOffline, wire::OfflineResponse())};
        },
        std::move(reply));
  }

 private:
  PeerService* const service_;
  std::unique_ptr<PartStages::OnionSink> onions_;
};

absl::StatusOr<std::unique_ptr<net::BulkSink>> PeerService::Sink(const wire::Frame& request,
                                                                 uint64_t bulk_bytes) {
  if (request.type == FrameType::kHeadOffline) return BeginPieces(request, bulk_bytes);
  if (request.type == FrameType::kHeadAnswers) return BeginHalfAnswers(request, bulk_bytes);
  if (request.type != FrameType::kOffline) return nullptr;
  wire::OfflineRequest message;
  const absl::Status status = wire::ParseFrame(request, request.type, message);
  if (!status.ok()) return Refused(status);
  auto onions = parts_->Offline(message, bulk_bytes);
  if (!onions.ok()) return Refused(onions.status());
  return std::make_unique<OfflineSink>(this, *std::move(onions));
}

// Pieces of half B on their way in.
class PeerService::PiecesSink final : public net::BulkSink {
 public:
  PiecesSink(PeerService* service, std::shared_ptr<server::Party::Intake> pieces)
      : service_(service), pieces_(std::move(pieces)) {}

  absl::Status Take(BytesView piece) override {
    const absl::Status taken = pieces_->Take(piece);
    return taken.ok() ? taken : Refused(taken);
  }

  void Done(net::Reply reply) override {
    service_->Run(
        service_->Most(kMaxStageCalls),
        [node = service_->node_, pieces = std::move(pieces_)]() -> absl::StatusOr<Response> {
          auto list = node->HeadOffline(pieces);
          if (!list.ok()) return Refused(list.status());
          return Response{wire::MakeFrame(FrameType::kHeadOffline, wire::HeadOfflineResponse()),
                          *std::move(list)};
        },
        std::move(reply));
  }

 private:
  PeerService* const service_;
  std::shared_ptr<server::Party::Intake> pieces_;
};

absl::StatusOr<std::unique_ptr<net::BulkSink>> PeerService::BeginPieces(const wire::Frame& request,
                                                                        uint64_t bulk_bytes) {
  if (node_ == nullptr) return Refused(NotTheHead());
  wire::HeadOfflineRequest message;
  const absl::Status status = wire::ParseFrame(request, request.type, message);
  if (!status.ok()) return Refused(status);
  auto pieces = node_->party().BeginOffline(message.header(), bulk_bytes,
                                            {.records = message.slots()}, sharing::Half::kB);
  if (!pieces.ok()) return Refused(pieces.status());
  return std::make_unique<PiecesSink>(this, *std::move(pieces));
}

// The tail's answers for half B on their way in.
class PeerService::HalfAnswersSink final : public net::BulkSink {
 public:
  HalfAnswersSink(PeerService* service, const Digest& round_id,
                  std::shared_ptr<server::HalfAnswersIntake> answers)
      : service_(service), round_id_(round_id), answers_(std::move(answers)) {}

  absl::Status Take(BytesView piece) override {
    const absl::Status taken = answers_->Take(piece);
    return taken.ok() ? taken : Refused(taken);
  }

  void Done(net::Reply reply) override {
    service_->Run(
        service_->Most(kMaxStageCalls),
        [node = service_->node_, id = round_id_,
         answers = std::move(answers_)]() -> absl::StatusOr<Response> {
          auto all = answers->TakeAll();
          if (!all.ok()) return Refused(all.status());
          auto returned = node->HeadAnswers(id, {}, *std::move(all), 0);
          if (!returned.ok()) return Refused(returned.status());
          return Response{wire::MakeFrame(FrameType::kHeadAnswers, wire::HeadAnswersResponse()),
                          *std::move(returned)};
        },
        std::move(reply));
  }

 private:
  PeerService* const service_;
  const Digest round_id_;
  std::shared_ptr<server::HalfAnswersIntake> answers_;
};

absl::StatusOr<std::unique_ptr<net::BulkSink>> PeerService::BeginHalfAnswers(
    const wire::Frame& request, uint64_t bulk_bytes) {
  if (node_ == nullptr) return Refused(NotTheHead());
  wire::HeadAnswersRequest message;
  const absl::Status status = wire::ParseFrame(request, request.type, message);
  if (!status.ok()) return Refused(status);
  const auto id = server::ParseRoundId(message.round_id());
  if (!id.ok()) return Refused(id.status());
  auto answers = node_->party().BeginHalfAnswers(*id, bulk_bytes);
  if (!answers.ok()) return Refused(answers.status());
  return std::make_unique<HalfAnswersSink>(this, *id, *std::move(answers));
}

absl::StatusOr<PeerService::Response> PeerService::AnswerRefresh(const wire::Frame& request) {
  if (request.type == FrameType::kProposeRefresh) {
    wire::ProposeRefreshRequest message;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
    SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum, node_->ProposeRefresh(message.header()));
    wire::ProposeRefreshResponse response;
    response.set_signature(ToString(sum.bytes()));
    return Response{wire::MakeFrame(request.type, response)};
  }
  wire::RefreshRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  SHOAL_ASSIGN_OR_RETURN(auto answers, node_->Refresh(message.header()));
  wire::RefreshResponse response;
  for (const round::RefreshTag& tag : answers->tags()) {
    absl::StrAppend(response.mutable_tags(), AsText(tag));
  }
  return Response{wire::MakeFrame(request.type, response), std::move(answers)};
}

absl::StatusOr<PeerService::Response> PeerService::Answer(wire::Frame request) {
  if (node_ == nullptr && request.type != FrameType::kOnline) {
    return NotTheHead();
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
      SHOAL_ASSIGN_OR_RETURN(auto answers, parts_->Online(message, std::move(request.bulk)));
      return Response{wire::MakeFrame(request.type, wire::OnlineResponse()), std::move(answers)};
    }
    case FrameType::kHeadQueries: {
      wire::HeadQueriesRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const Digest id, server::ParseRoundId(message.round_id()));
      SHOAL_ASSIGN_OR_RETURN(Bytes batch, node_->HeadQueries(id, {}, std::move(request.bulk), 0));
      return Response{wire::MakeFrame(request.type, wire::HeadQueriesResponse(), std::move(batch))};
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
      return Response{wire::MakeFrame(request.type, ToWire(answer))};
    }
    case FrameType::kProposeRefresh:
    case FrameType::kRefresh:
      return AnswerRefresh(request);
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

// This machine's list on its way in.
class SliceSink final : public PartStages::OnionSink {
 public:
  SliceSink(server::ChainNode* node, wire::SignedHeader header,
            std::shared_ptr<server::Party::Intake> intake)
      : node_(node), header_(std::move(header)), intake_(std::move(intake)) {}
  absl::Status Take(BytesView piece) override { return intake_->Take(piece); }
  absl::Status Wait() override { return node_->Offline(header_, std::move(intake_)); }

 private:
  server::ChainNode* const node_;
  const wire::SignedHeader header_;
  std::shared_ptr<server::Party::Intake> intake_;
};

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
  return {
      .rank = party.rank(),
      .count = party.roster().party(party.number().value()).machines,
      .senders = senders,
      .onion_bytes = server::OnionBytesFor(party.roster().size(), party.number().value()),
      .spools = spools,
      .most_records = [&party] { return party.MaxOnions(); },
      .open = [&party](const Digest& id) { return party.AnswerBytes(id).status(); },
      .at_work = [&party](const Digest& id,
                          uint64_t attempt) { return party.IsAtWork(id, attempt); },
      .offline = [&node](const wire::SignedHeader& header, uint64_t bytes,
                         const server::StageTry& stage)
          -> absl::StatusOr<std::unique_ptr<PartStages::OnionSink>> {
        SHOAL_ASSIGN_OR_RETURN(auto intake, node.party().BeginOffline(header, bytes, stage));
        return std::make_unique<SliceSink>(&node, header, std::move(intake));
      },
      .online = [&node, spools](
                    const Digest& id, server::QueriesIn queries,
                    const server::StageTry& stage) -> absl::StatusOr<std::unique_ptr<ByteSource>> {
        SHOAL_ASSIGN_OR_RETURN(auto answers, node.Online(id, std::move(queries), stage));
        if (!node.party().has_several_machines()) return answers;
        return Made(std::move(answers), *spools);
      },
  };
}

}  // namespace shoal::shoald
