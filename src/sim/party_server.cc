#include "src/sim/party_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/byte_source.h"
#include "src/base/status_macros.h"
#include "src/wire/peer.pb.h"

namespace shoal::sim {
namespace {

using wire::FrameType;

constexpr char kStateDirectory[] = "/sim/state";
// As in src/shoald/peer.cc.
constexpr Time kShortCall = 30 * kSecond, kLiveCall = 2 * kSecond;
// As in src/shoald/program.cc.
constexpr std::chrono::seconds kHeadSaysSoWithin(10);

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

SimulatedLink::SimulatedLink(Network* network, Address from, uint32_t next_machines,
                             AnswerBytes answer_bytes, Time stage_limit, SpoolPlace* spools,
                             AnswerBytes refresh_bytes)
    : network_(network),
      from_(from),
      next_machines_(next_machines),
      answer_bytes_(std::move(answer_bytes)),
      refresh_bytes_(std::move(refresh_bytes)),
      stage_limit_(stage_limit),
      runs_(
          {.party = PartyAt(from) + 1,
           .machines = next_machines,
           .answer_bytes = answer_bytes_,
           .call = [this](const Digest&, uint32_t machine, wire::Frame request, ByteSource* bulk,
                          uint64_t answer_bulk_bytes,
                          std::function<bool()> over) -> absl::StatusOr<shoald::RunCalls::Answer> {
             if (bulk != nullptr) SHOAL_RETURN_IF_ERROR(network_->Drain(*bulk, request.bulk));
             SHOAL_ASSIGN_OR_RETURN(
                 Network::Answer answer,
                 Call(
                     std::move(request), stage_limit_,
                     [this, over = std::move(over)] { return cancelled_ || over(); }, machine));
             Bytes all = std::move(answer.frame.bulk);
             answer.frame.bulk.clear();
             if (answer.cut) {
               return shoald::RunCalls::Answer{
                   std::move(answer.frame),
                   std::make_unique<CutSource>(std::move(all), answer_bulk_bytes)};
             }
             return shoald::RunCalls::Answer{std::move(answer.frame),
                                             std::make_unique<BytesSource>(std::move(all))};
           },
           .spools = spools}) {}

std::function<bool()> SimulatedLink::Over(const Digest& round_id) const {
  return [this, round_id] { return cancelled_ || !answer_bytes_(round_id).ok(); };
}

std::function<bool()> SimulatedLink::TermOver(const Digest& round_id) const {
  return
      [this, round_id] { return cancelled_ || !refresh_bytes_ || !refresh_bytes_(round_id).ok(); };
}

absl::StatusOr<Network::Answer> SimulatedLink::Call(wire::Frame request, Time timeout,
                                                    const std::function<bool()>& cancelled,
                                                    uint32_t machine) const {
  return network_->Call(from_, MachineAddress(PartyAt(from_) + 1, machine), std::move(request),
                        timeout, cancelled);
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
  if (next_machines_ > 1) return runs_.Offline(header, std::move(onions));
  wire::OfflineRequest request;
  *request.mutable_header() = header;
  // The connection takes the bytes of a list as they are made; here all are made first.
  Bytes bulk;
  SHOAL_RETURN_IF_ERROR(network_->Drain(*onions, bulk));
  SHOAL_ASSIGN_OR_RETURN(const Network::Answer answer,
                         Call(wire::MakeFrame(FrameType::kOffline, request, std::move(bulk)),
                              stage_limit_, Over(round::RoundId(header.header()))));
  wire::OfflineResponse response;
  return wire::ParseFrame(answer.frame, FrameType::kOffline, response);
}

absl::StatusOr<std::unique_ptr<ByteSource>> SimulatedLink::Online(const Digest& round_id,
                                                                  Bytes queries) {
  if (next_machines_ > 1) return runs_.Online(round_id, queries);
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
  SHOAL_ASSIGN_OR_RETURN(const Network::Answer answer,
                         Call(wire::MakeFrame(FrameType::kRoundReports, request), kShortCall,
                              [over = Over(round_id), term_over = TermOver(round_id)] {
                                return over() && term_over();
                              }));
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

absl::StatusOr<signature::Signature> SimulatedLink::ProposeRefresh(
    const wire::RefreshHeader& header) {
  SHOAL_ASSIGN_OR_RETURN(const Digest id, server::ParseRoundId(header.round_id()));
  wire::ProposeRefreshRequest request;
  *request.mutable_header() = header;
  SHOAL_ASSIGN_OR_RETURN(
      const Network::Answer answer,
      Call(wire::MakeFrame(FrameType::kProposeRefresh, request), kShortCall, TermOver(id)));
  wire::ProposeRefreshResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kProposeRefresh, response));
  return server::SumOf(response);
}

absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> SimulatedLink::Refresh(
    const wire::SignedRefreshHeader& refresh) {
  SHOAL_ASSIGN_OR_RETURN(const Digest id, server::ParseRoundId(refresh.header().round_id()));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t expected, refresh_bytes_(id));
  wire::RefreshRequest request;
  *request.mutable_header() = refresh;
  SHOAL_ASSIGN_OR_RETURN(Network::Answer answer, Call(wire::MakeFrame(FrameType::kRefresh, request),
                                                      stage_limit_, TermOver(id)));
  wire::RefreshResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kRefresh, response));
  SHOAL_ASSIGN_OR_RETURN(std::vector<round::RefreshTag> tags, server::TagsOf(response));
  std::unique_ptr<ByteSource> bulk;
  if (answer.cut) {
    bulk = std::make_unique<CutSource>(std::move(answer.frame.bulk), expected);
  } else {
    bulk = std::make_unique<BytesSource>(std::move(answer.frame.bulk));
  }
  return std::make_unique<shoald::RemoteRefresh>(std::move(bulk), std::move(tags));
}

absl::StatusOr<std::unique_ptr<PartyServer>> PartyServer::Start(Options options) {
  std::unique_ptr<PartyServer> self(new PartyServer(std::move(options)));
  const auto& [universe, network, process, address, epoch, plan, journal, making_piece, of_term,
               stage_done, alter_table, job, ended, not_opened] = self->options_;
  const roster::Roster& roster = universe->roster();
  if (self->is_one_of_several()) {
    self->links_.emplace(
        job.get(), Seed(Bytes(sizeof(Digest), static_cast<uint8_t>(PartyAt(address)))),
        &self->clock_, &self->random_, machines::Machines::Options().progress_limit_s);
    SHOAL_ASSIGN_OR_RETURN(self->control_machines_, self->links_->JoinControl());
    SHOAL_RETURN_IF_ERROR(shoald::CallRoll(*self->control_machines_, "/sim/keys"));
  }
  SHOAL_RETURN_IF_ERROR(self->OpenParty());
  // What shoald's Expiry does.
  Scheduler* const scheduler = Scheduler::Current();
  scheduler->Spawn(process, [scheduler, self = self.get()] {
    for (;;) {
      scheduler->Sleep(kSecond);
      if (self->stopping_) return;
      self->party_->EndExpired();
      if (self->terms_ != nullptr) self->terms_->EndExpired();
    }
  });
  if (PartyAt(address) == 1) {
    SHOAL_ASSIGN_OR_RETURN(
        self->frontend_,
        server::Frontend::Create(plan, self->party_.get(), self->journal_.get(), &self->clock_,
                                 {.pool = &self->pool_, .spools = &self->spools_},
                                 {.rank = RankAt(address), .count = roster.party(1).machines}));
    self->own_steps_.emplace(self->frontend_.get(), self->node_.get());
    if (self->terms_ != nullptr) {
      self->refreshes_ =
          std::make_unique<server::Refreshes>(self->party_.get(), self->journal_.get(),
                                              &self->clock_, &self->pool_, &self->refresh_spools_);
    }
    self->clients_ = std::make_unique<shoald::ClientService>(
        self->frontend_.get(), &roster, universe->table(epoch), self->journal_.get(),
        /*chain=*/nullptr, self->refreshes_.get());
  } else {
    const uint32_t senders = roster.party(PartyAt(address) - 1).machines;
    if (senders > 1 || self->is_one_of_several()) {
      self->parts_ = std::make_unique<shoald::PartStages>(
          shoald::PartsOf(*self->node_, senders, &self->spools_));
    }
    self->peers_ = std::make_unique<shoald::PeerService>(
        self->is_head() ? self->node_.get() : nullptr, nullptr, self->parts_.get());
  }
  // The head is the last to listen.
  if (!self->is_head()) self->Listen();
  if (self->is_one_of_several()) {
    self->control_ = std::make_unique<shoald::MachineControl>(
        self->control_machines_.get(),
        shoald::MachineControl::Options{
            .party = self->party_.get(),
            .clock = &self->clock_,
            .frontend = self->frontend_.get(),
            .own = self->own_steps_.has_value() ? &*self->own_steps_ : nullptr,
            .ended = ended,
            .not_opened = not_opened});
    if (self->frontend_ != nullptr && self->is_head()) {
      self->all_steps_.emplace(self->frontend_.get(), &*self->own_steps_, self->control_.get());
    }
    SHOAL_RETURN_IF_ERROR(self->control_->AwaitAll());
  }
  if (!self->is_head()) return self;
  if (self->frontend_ != nullptr) {
    self->driver_ = std::make_unique<shoald::Driver>(
        self->frontend_.get(), self->node_.get(), &self->clock_,
        self->all_steps_.has_value() ? &*self->all_steps_ : nullptr);
  }
  if (self->refreshes_ != nullptr) {
    self->refresh_driver_ = std::make_unique<shoald::RefreshDriver>(
        self->refreshes_.get(), self->node_.get(), &self->clock_);
  }
  self->Listen();
  return self;
}

server::TableEpoch PartyServer::Epoch(uint64_t epoch) const {
  server::TableEpoch made = options_.universe->Epoch(epoch, PartyAt(options_.address));
  if (options_.alter_table) options_.alter_table(made);
  return made;
}

absl::Status PartyServer::OpenParty() {
  const roster::Roster& roster = options_.universe->roster();
  const uint32_t number = PartyAt(options_.address);
  if (is_head() || number == 1) {
    SHOAL_ASSIGN_OR_RETURN(journal_, server::FileJournal::Open(kStateDirectory, options_.journal));
  }
  const server::Resources resources{
      .pool = &pool_,
      .spools = &spools_,
      .making_piece = options_.making_piece ? &options_.making_piece : nullptr};
  server::Resources resources_of_terms = resources;
  resources_of_terms.making_piece =
      options_.making_piece_of_term ? &options_.making_piece_of_term : nullptr;
  server::Party::Options options{
      .number = PartyNumber(number), .roster = roster, .table = Epoch(options_.epoch)};
  options.stage_done = options_.stage_done;
  if (is_one_of_several()) {
    options.machines = {
        .rank = RankAt(options_.address),
        .count = roster.party(number).machines,
        .join = [this](uint32_t round, const Digest& id) { return links_->Join(round, id); }};
    if (is_head()) {
      options.machines.opened = [this](const server::RoundOpening& opening) {
        control_->Opened(opening);
      };
      options.machines.ready = [this](uint64_t epoch) { return control_->ReadyFor(epoch); };
      options.machines.ended = [this](const Digest& id) { control_->Ended(id); };
    }
  }
  if (roster.max_refreshes() > 0) {
    SHOAL_ASSIGN_OR_RETURN(
        terms_, server::Terms::Open({.number = PartyNumber(number),
                                     .roster = roster,
                                     .directory = absl::StrCat(kStateDirectory, "/terms"),
                                     .table = [this] { return party_->table(); }},
                                    &options_.universe->key(number), journal_.get(), &random_,
                                    &clock_, resources_of_terms));
    options.terms = terms_.get();
  }
  SHOAL_ASSIGN_OR_RETURN(
      party_, is_head()
                  ? server::Party::Create(std::move(options), options_.universe->key(number),
                                          journal_.get(), &random_, &clock_, resources)
                  : server::Party::CreateOther(std::move(options), &random_, &clock_, resources));
  if (number < roster.size()) {
    SimulatedLink::AnswerBytes refresh_bytes;
    if (terms_ != nullptr) {
      refresh_bytes = [terms = terms_.get()](const Digest& id) {
        return terms->AnswerBytesFromNext(id);
      };
    }
    next_ = std::make_unique<SimulatedLink>(
        options_.network, options_.address, roster.party(number + 1).machines,
        [party = party_.get()](const Digest& round_id) { return party->AnswerBytes(round_id); },
        options_.plan.stage_limit_s * kSecond, &spools_, std::move(refresh_bytes));
  }
  node_ = std::make_unique<server::ChainNode>(party_.get(), next_.get());
  return absl::OkStatus();
}

void PartyServer::Listen() {
  Network::Listener listener{.process = options_.process};
  if (clients_ != nullptr) {
    listener.limits = [clients = clients_.get()](FrameType type) { return clients->Limits(type); };
    listener.handler = [clients = clients_.get()](wire::Frame request, net::Reply reply) {
      clients->Handle(std::move(request), std::move(reply));
    };
  } else {
    listener.limits = [peers = peers_.get()](FrameType type) { return peers->Limits(type); };
    listener.sink = [peers = peers_.get()](const wire::Frame& request, uint64_t bytes) {
      return peers->Sink(request, bytes);
    };
    listener.handler = [peers = peers_.get()](wire::Frame request, net::Reply reply) {
      peers->Handle(std::move(request), std::move(reply));
    };
  }
  options_.network->Listen(options_.address, std::move(listener));
}

absl::Status PartyServer::Take(uint64_t epoch) {
  wanted_epoch_ = std::max(wanted_epoch_, epoch);
  if (control_ != nullptr && is_head()) {
    SHOAL_RETURN_IF_ERROR(
        control_->AwaitEpoch(epoch, [this, epoch] { return stopping_ || wanted_epoch_ > epoch; }));
  }
  SHOAL_RETURN_IF_ERROR(party_->TakeEpoch(Epoch(epoch)));
  if (clients_ != nullptr) clients_->Serve(options_.universe->table(epoch));
  return absl::OkStatus();
}

void PartyServer::EndRound(const Digest& round_id, const std::string& reason) {
  all_steps_.has_value() ? all_steps_->End(round_id, reason) : frontend_->Abort(round_id, reason);
  node_->Live(frontend_->Live()).IgnoreError();
}

void PartyServer::Stop() {
  // The head tells the others once its own part has ended.
  if (!is_head()) control_->AwaitEnd(kHeadSaysSoWithin).IgnoreError();
  stopping_ = true;
  options_.network->Close(options_.address);
  if (next_ != nullptr) next_->CancelStages();
  if (parts_ != nullptr) parts_->CancelAll();
  refresh_driver_.reset();
  driver_.reset();
  // Calls of the party before may wait for another machine.
  if (is_one_of_several()) party_->EndAll();
  peers_.reset();
  parts_.reset();
  party_->EndAll();
  if (is_one_of_several() && is_head()) control_->Stop().IgnoreError();
}

}  // namespace shoal::sim
