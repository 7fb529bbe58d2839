#include "src/sim/party_server.h"

#include <algorithm>
#include <utility>

#include "src/base/byte_source.h"
#include "src/base/status_macros.h"
#include "src/wire/peer.pb.h"

namespace shoal::sim {
namespace {

using wire::FrameType;

constexpr char kStateDirectory[] = "/sim/state";
// As in src/shoald/peer.cc.
constexpr Time kShortCall = 30 * kSecond, kLiveCall = 2 * kSecond;

// Bulk that ended too early: as a connection that breaks.
class CutSource final : public ByteSource {
 public:
  CutSource(Bytes bytes, uint64_t size) : bytes_(std::move(bytes)), size_(size) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<BytesView> Next() override {
    if (given_ || bytes_.empty()) return absl::UnavailableError("the connection broke");
    given_ = true;
    return BytesView(bytes_);
  }

 private:
  const Bytes bytes_;
  const uint64_t size_;
  bool given_ = false;
};

}  // namespace

std::function<bool()> SimulatedLink::Over(const Digest& round_id) const {
  return [this, round_id] { return cancelled_ || !answer_bytes_(round_id).ok(); };
}

absl::StatusOr<Network::Answer> SimulatedLink::Call(wire::Frame request, Time timeout,
                                                    const std::function<bool()>& cancelled) const {
  return network_->Call(from_, from_ + 1, std::move(request), timeout, cancelled);
}

absl::StatusOr<wire::SignedHeader> SimulatedLink::Propose(const wire::RoundHeader& draft,
                                                          const wire::SignedLiveRounds& live) {
  wire::ProposeRoundRequest request;
  *request.mutable_draft() = draft;
  *request.mutable_live() = live;
  request.DiscardUnknownFields();
  SHOAL_ASSIGN_OR_RETURN(const Network::Answer answer,
                         Call(wire::MakeFrame(FrameType::kProposeRound, request), kShortCall,
                              [this] { return cancelled_; }));
  wire::ProposeRoundResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kProposeRound, response));
  return std::move(*response.mutable_header());
}

absl::Status SimulatedLink::Offline(const wire::SignedHeader& header,
                                    std::unique_ptr<ByteSource> onions) {
  wire::OfflineRequest request;
  *request.mutable_header() = header;
  // The connection takes the bytes of a list as they are made; here all are made first.
  Bytes bulk;
  SHOAL_RETURN_IF_ERROR(Drain(*onions, bulk));
  SHOAL_ASSIGN_OR_RETURN(const Network::Answer answer,
                         Call(wire::MakeFrame(FrameType::kOffline, request, std::move(bulk)),
                              stage_limit_, Over(round::RoundId(header.header()))));
  wire::OfflineResponse response;
  return wire::ParseFrame(answer.frame, FrameType::kOffline, response);
}

absl::StatusOr<std::unique_ptr<ByteSource>> SimulatedLink::Online(const Digest& round_id,
                                                                  Bytes queries) {
  wire::OnlineRequest request;
  request.set_round_id(ToString(round_id));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t answer_bytes, answer_bytes_(round_id));
  const uint64_t expected =
      queries.size() < 5 ? 0 : LoadLe<uint32_t>(queries.data() + 1) * answer_bytes;
  SHOAL_ASSIGN_OR_RETURN(Network::Answer answer,
                         Call(wire::MakeFrame(FrameType::kOnline, request, std::move(queries)),
                              stage_limit_, Over(round_id)));
  wire::OnlineResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kOnline, response));
  if (answer.cut) return std::make_unique<CutSource>(std::move(answer.frame.bulk), expected);
  SHOAL_RETURN_IF_ERROR(
      wire::CheckLimits(wire::HeaderOf(answer.frame),
                        {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = expected}));
  return std::make_unique<BytesSource>(std::move(answer.frame.bulk));
}

absl::StatusOr<server::StageReports> SimulatedLink::Reports(const Digest& round_id) {
  wire::RoundReportsRequest request;
  request.set_round_id(ToString(round_id));
  SHOAL_ASSIGN_OR_RETURN(
      const Network::Answer answer,
      Call(wire::MakeFrame(FrameType::kRoundReports, request), kShortCall, Over(round_id)));
  wire::RoundReportsResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kRoundReports, response));
  return server::StageReportsOf(response);
}

absl::StatusOr<server::ListAnswer> SimulatedLink::Live(const wire::SignedLiveRounds& live) {
  wire::LiveRoundsRequest request;
  *request.mutable_live() = live;
  request.DiscardUnknownFields();
  SHOAL_ASSIGN_OR_RETURN(
      const Network::Answer answer,
      Call(wire::MakeFrame(FrameType::kLiveRounds, request), kLiveCall, nullptr));
  wire::LiveRoundsResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kLiveRounds, response));
  return server::ListAnswerOf(response);
}

absl::StatusOr<std::unique_ptr<PartyServer>> PartyServer::Start(
    const Universe* universe, Network* network, Process* process, uint32_t number, uint64_t epoch,
    const server::RoundPlan& plan, server::FileJournalOptions journal_options) {
  std::unique_ptr<PartyServer> self(new PartyServer(universe, network, number));
  const roster::Roster& roster = universe->roster();
  SHOAL_ASSIGN_OR_RETURN(self->journal_,
                         server::FileJournal::Open(kStateDirectory, std::move(journal_options)));
  const server::Resources resources{.pool = &self->pool_, .spools = &self->spools_};
  SHOAL_ASSIGN_OR_RETURN(self->party_,
                         server::Party::Create({.number = PartyNumber(number),
                                                .roster = roster,
                                                .table = universe->Epoch(epoch, number)},
                                               universe->key(number), self->journal_.get(),
                                               &self->random_, &self->clock_, resources));
  const bool backend = number == universe->parties();
  if (!backend) {
    self->next_ = std::make_unique<SimulatedLink>(
        network, number,
        [party = self->party_.get()](const Digest& round_id) {
          return party->AnswerBytes(round_id);
        },
        plan.stage_limit_s * kSecond);
  }
  self->node_ = std::make_unique<server::ChainNode>(self->party_.get(), self->next_.get());
  // What shoald's Expiry does.
  Scheduler* const scheduler = Scheduler::Current();
  scheduler->Spawn(process, [scheduler, self = self.get()] {
    for (;;) {
      scheduler->Sleep(kSecond);
      if (self->stopping_) return;
      self->party_->EndExpired();
    }
  });
  Network::Listener listener{.process = process};
  if (number == 1) {
    SHOAL_ASSIGN_OR_RETURN(self->frontend_,
                           server::Frontend::Create(plan, self->party_.get(), self->journal_.get(),
                                                    &self->clock_, resources));
    self->clients_ = std::make_unique<shoald::ClientService>(
        self->frontend_.get(), &roster, universe->table(epoch), self->journal_.get());
    listener.limits = [clients = self->clients_.get()](FrameType type) {
      return clients->Limits(type);
    };
    listener.handler = [clients = self->clients_.get()](wire::Frame request, net::Reply reply) {
      clients->Handle(std::move(request), std::move(reply));
    };
    self->driver_ =
        std::make_unique<shoald::Driver>(self->frontend_.get(), self->node_.get(), &self->clock_);
  } else {
    self->peers_ = std::make_unique<shoald::PeerService>(self->node_.get());
    listener.limits = [peers = self->peers_.get()](FrameType type) { return peers->Limits(type); };
    listener.sink = [peers = self->peers_.get()](const wire::Frame& request, uint64_t bytes) {
      return peers->Sink(request, bytes);
    };
    listener.handler = [peers = self->peers_.get()](wire::Frame request, net::Reply reply) {
      peers->Handle(std::move(request), std::move(reply));
    };
  }
  network->Listen(static_cast<Address>(number), std::move(listener));
  return self;
}

absl::Status PartyServer::Take(uint64_t epoch) {
  SHOAL_RETURN_IF_ERROR(party_->TakeEpoch(universe_->Epoch(epoch, number_)));
  if (clients_ != nullptr) clients_->Serve(universe_->table(epoch));
  return absl::OkStatus();
}

void PartyServer::Stop() {
  stopping_ = true;
  network_->Close(static_cast<Address>(number_));
  if (next_ != nullptr) next_->CancelStages();
  driver_.reset();
  peers_.reset();
  party_->EndAll();
}

}  // namespace shoal::sim
