#include "src/shoald/client_service.h"

#include <algorithm>
#include <map>
#include <utility>

#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/shoald/table_service.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWaitTick(20);
constexpr uint32_t kMaxWaitMs = 60'000;
constexpr size_t kMaxWaiters = 1 << 16;

absl::Status NoTerms() { return absl::NotFoundError("this deployment has no terms"); }

}  // namespace

ClientService::ClientService(server::Frontend* frontend, const roster::Roster* roster,
                             const TableEpochs* epochs, server::Journal* journal,
                             const ChainWatch* chain, const server::Refreshes* refreshes)
    : frontend_(frontend),
      roster_(roster),
      epochs_(epochs),
      journal_(journal),
      chain_(chain),
      refreshes_(refreshes),
      store_thread_([this] { StoreLoop(); }),
      wait_thread_([this] { WaitLoop(); }) {
  if (refreshes_ != nullptr) fetch_thread_ = std::thread([this] { FetchLoop(); });
}

ClientService::~ClientService() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  store_thread_.join();
  wait_thread_.join();
  if (fetch_thread_.joinable()) fetch_thread_.join();
}

absl::StatusOr<wire::FrameLimits> ClientService::Limits(FrameType type) const {
  switch (type) {
    case FrameType::kGetDeployment:
    case FrameType::kGetPlacement:
    case FrameType::kGetRowVersions:
    case FrameType::kListRounds:
    case FrameType::kWaitRound:
    case FrameType::kGetStatus:
    case FrameType::kGetRefresh:
      return wire::FrameLimits{.control_bytes = 4096, .bulk_bytes = 0};
    case FrameType::kSubmitOnions:
    case FrameType::kSubmitQueries:
    case FrameType::kFetchAnswers:
    case FrameType::kFetchRefresh:
      return wire::FrameLimits{.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0};
    case FrameType::kGetPirSetup:
    case FrameType::kGetPirHint:
    case FrameType::kGetPirDelta:
    case FrameType::kPirQuery:
      return absl::InvalidArgumentError(
          "this party runs no engine beside the chain (its operator starts one with shoald "
          "--engine)");
    default:
      return absl::InvalidArgumentError("this port serves clients alone");
  }
}

bool ClientService::IsControl(FrameType type) {
  return type == FrameType::kGetDeployment || type == FrameType::kListRounds ||
         type == FrameType::kWaitRound || type == FrameType::kGetStatus ||
         type == FrameType::kGetRefresh;
}

void ClientService::Handle(wire::Frame request, net::Reply reply) {
  switch (request.type) {
    case FrameType::kWaitRound:
      if (absl::Status status = WaitRound(request, reply); !status.ok()) reply(status);
      return;
    case FrameType::kSubmitOnions:
      return QueueOnions(request, reply);
    case FrameType::kFetchRefresh:
      return QueueFetch(request, reply);
    default:
      return reply(Answer(request));
  }
}

absl::StatusOr<wire::Frame> ClientService::Answer(const wire::Frame& request) {
  switch (request.type) {
    case FrameType::kGetDeployment:
      return GetDeployment(*roster_, *epochs_->table(), request);
    case FrameType::kGetPlacement:
      return GetPlacement(*epochs_->table(), request);
    case FrameType::kGetRowVersions:
      return GetRowVersions(*epochs_->table(), request);
    case FrameType::kListRounds:
      return wire::MakeFrame(request.type, frontend_->ListRounds());
    case FrameType::kSubmitQueries: {
      wire::SubmitQueriesRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const uint32_t accepted, frontend_->SubmitQueries(message));
      wire::SubmitQueriesResponse response;
      response.set_accepted(accepted);
      return wire::MakeFrame(request.type, response);
    }
    case FrameType::kFetchAnswers: {
      wire::FetchAnswersRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      const auto response = frontend_->FetchAnswers(message);
      // Logs the file's name, which the client is not told.
      if (ForOthers(response.status()) != response.status()) {
        spdlog::error("answers cannot be read: {}", response.status().ToString());
      }
      if (!response.ok()) return response.status();
      return wire::MakeFrame(request.type, *response);
    }
    case FrameType::kGetRefresh:
      return GetRefresh(request);
    case FrameType::kGetStatus: {
      wire::GetStatusResponse response = StatusOf(*roster_, since_start_);
      for (wire::RoundReport& report : frontend_->Reports()) {
        *response.add_rounds() = std::move(report);
      }
      if (chain_ != nullptr) {
        ChainWatch::View view = chain_->Last();
        for (wire::PartyState& state : view.parties) *response.add_parties() = std::move(state);
        response.set_parties_age_s(view.age_s);
      }
      if (refreshes_ != nullptr) {
        for (wire::TermReport& report : refreshes_->Reports()) {
          *response.add_terms() = std::move(report);
        }
      }
      return wire::MakeFrame(request.type, response);
    }
    default:
      return absl::InvalidArgumentError("not a client's request");
  }
}

void ClientService::QueueOnions(wire::Frame& request, net::Reply& reply) {
  {
    const MutexLock lock(mutex_);
    unstored_.push_back({std::move(request), std::move(reply)});
  }
  wake_.NotifyAll();
}

absl::Status ClientService::StoreOnions(const wire::Frame& request, net::Reply& reply,
                                        std::vector<Unsynced>& unsynced) {
  // An empty submission has two bytes in the request, and forty once it is parsed. So a request may
  // have a field for every shortest submission that its bytes have room for, and the round's id.
  SHOAL_RETURN_IF_ERROR(wire::CheckFieldCount(
      request, request.control.size() / server::kShortestSubmissionBytes + 1));
  wire::SubmitOnionsRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, server::ParseRoundId(message.round_id()));
  std::vector<BytesView> submissions;
  for (const std::string& submission : message.submissions()) {
    submissions.push_back(AsBytes(submission));
  }
  SHOAL_ASSIGN_OR_RETURN(const server::Frontend::Submitted submitted,
                         frontend_->SubmitOnions(round_id, submissions, reply.from()));
  wire::SubmitOnionsResponse response;
  response.mutable_first_slots()->Assign(submitted.first_slots.begin(),
                                         submitted.first_slots.end());
  unsynced.push_back(
      {submitted.counter, round_id, wire::MakeFrame(request.type, response), std::move(reply)});
  return absl::OkStatus();
}

// Stores onions in groups and acknowledges a group once it is durable. The next group gathers
// meanwhile.
void ClientService::StoreLoop() {
  for (;;) {
    std::vector<Waiting> group;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && unstored_.empty()) wake_.Wait(mutex_);
      if (stopping_) return;
      group.swap(unstored_);
    }
    std::vector<Unsynced> unsynced;
    for (Waiting& onions : group) {
      if (absl::Status status = StoreOnions(onions.request, onions.reply, unsynced); !status.ok()) {
        onions.reply(status);
      }
      onions.request = {};
    }
    std::map<RoundCounter, absl::Status> synced;
    for (const Unsynced& entry : unsynced) {
      if (synced.contains(entry.round)) continue;
      absl::Status& status = synced[entry.round];
      status = journal_->Sync(entry.round);
      if (!status.ok()) status = frontend_->StorageFailed(entry.round_id, status);
    }
    for (Unsynced& entry : unsynced) {
      const absl::Status& status = synced[entry.round];
      status.ok() ? entry.reply(std::move(entry.answer)) : entry.reply(status);
    }
  }
}

absl::StatusOr<wire::Frame> ClientService::GetRefresh(const wire::Frame& request) const {
  wire::GetRefreshRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  if (refreshes_ == nullptr) return NoTerms();
  SHOAL_ASSIGN_OR_RETURN(const wire::GetRefreshResponse response, refreshes_->GetRefresh(message));
  return wire::MakeFrame(request.type, response);
}

absl::StatusOr<wire::Frame> ClientService::FetchRefresh(const wire::Frame& request) const {
  wire::FetchRefreshRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  if (refreshes_ == nullptr) return NoTerms();
  const auto response = refreshes_->FetchRefresh(message);
  // Logs the file's name, which the client is not told.
  if (ForOthers(response.status()) != response.status()) {
    spdlog::error("answers of a refresh cannot be read: {}", response.status().ToString());
  }
  if (!response.ok()) return response.status();
  return wire::MakeFrame(request.type, *response);
}

void ClientService::QueueFetch(wire::Frame& request, net::Reply& reply) {
  if (refreshes_ == nullptr) return reply(FetchRefresh(request));
  {
    const MutexLock lock(mutex_);
    const Origin from = reply.from();
    std::deque<Waiting>& queue = unfetched_[from];
    if (queue.empty()) turns_.push_back(from);
    queue.push_back({std::move(request), std::move(reply)});
  }
  wake_.NotifyAll();
}

void ClientService::FetchLoop() {
  for (;;) {
    std::deque<Waiting> one;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && turns_.empty()) wake_.Wait(mutex_);
      if (stopping_) return;
      const Origin from = turns_.front();
      turns_.pop_front();
      const auto queue = unfetched_.find(from);
      one.push_back(std::move(queue->second.front()));
      queue->second.pop_front();
      if (queue->second.empty()) {
        unfetched_.erase(queue);
      } else {
        turns_.push_back(from);
      }
    }
    one.front().reply(FetchRefresh(one.front().request));
  }
}

absl::Status ClientService::WaitRound(const wire::Frame& request, net::Reply& reply) {
  wire::WaitRoundRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, server::ParseRoundId(message.round_id()));
  Waiter waiter{.round_id = round_id,
                .state = message.state(),
                .deadline = Clock::now() +
                            std::chrono::milliseconds(std::min(message.timeout_ms(), kMaxWaitMs)),
                .reply = std::move(reply)};
  if (AnswerWaiter(waiter, /*at_deadline=*/message.timeout_ms() == 0)) return absl::OkStatus();
  const MutexLock lock(mutex_);
  if (waiters_.size() + waiters_at_hand_ >= kMaxWaiters) {
    // UNAVAILABLE, because no other code makes a client ask again.
    waiter.reply(absl::UnavailableError("too many clients wait; try again later"));
    return absl::OkStatus();
  }
  waiters_.push_back(std::move(waiter));
  return absl::OkStatus();
}

bool ClientService::AnswerWaiter(Waiter& waiter, bool at_deadline) {
  // Checks the state first, which is cheap: thousands of waiters are checked at every tick.
  const absl::StatusOr<wire::RoundState> state = frontend_->State(waiter.round_id);
  if (state.ok() && *state < waiter.state && !at_deadline) return false;
  absl::StatusOr<wire::RoundInfo> info = frontend_->Info(waiter.round_id);
  if (!info.ok()) {
    waiter.reply(info.status());
    return true;
  }
  wire::WaitRoundResponse response;
  *response.mutable_round() = *std::move(info);
  waiter.reply(wire::MakeFrame(FrameType::kWaitRound, response));
  return true;
}

void ClientService::WaitLoop() {
  for (;;) {
    std::vector<Waiter> waiters;
    {
      const Clock::time_point tick = Clock::now() + kWaitTick;
      const MutexLock lock(mutex_);
      while (!stopping_ && wake_.WaitUntil(mutex_, tick)) {
      }
      if (stopping_) break;
      waiters.swap(waiters_);
      waiters_at_hand_ = waiters.size();
    }
    const Clock::time_point now = Clock::now();
    std::erase_if(waiters, [&](Waiter& w) { return AnswerWaiter(w, now >= w.deadline); });
    const MutexLock lock(mutex_);
    waiters_.insert(waiters_.end(), std::make_move_iterator(waiters.begin()),
                    std::make_move_iterator(waiters.end()));
    waiters_at_hand_ = 0;
  }
  const MutexLock lock(mutex_);
  waiters_.clear();
}

}  // namespace shoal::shoald
