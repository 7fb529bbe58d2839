#include "src/door/round_waits.h"

#include <algorithm>
#include <exception>
#include <set>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/strand.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "src/net/await.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"

namespace shoal::door {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// As at the frontend.
constexpr std::chrono::milliseconds kLongestWait(60'000);
// Of an answer to WaitRound, which tells of one round.
constexpr uint64_t kMostAnswerBytes = 1 << 20;
constexpr size_t kRoundIdBytes = 32;
// What every round has reached.
constexpr auto kAnyState = wire::ROUND_STATE_UNSPECIFIED;

absl::Status TooMany() { return absl::ResourceExhaustedError("too many waits at once"); }

// The message in a whole frame of that type.
template <typename Message>
bool Parse(BytesView frame, Message& message) {
  const BytesView control = frame.subspan(std::min(frame.size(), wire::kFrameHeaderBytes));
  return message.ParseFromArray(control.data(), static_cast<int>(control.size()));
}

bool HasReached(BytesView answer, wire::RoundState state) {
  wire::WaitRoundResponse response;
  // What is no answer ends the wait, too: an error, and what the client is to judge by itself.
  const bool is_answer =
      answer.size() > 4 && answer[4] == static_cast<uint8_t>(wire::FrameType::kWaitRound);
  return !is_answer || !Parse(answer, response) || response.round().state() >= state;
}

}  // namespace

std::optional<RoundWish> RoundWish::Of(BytesView frame) {
  wire::WaitRoundRequest request;
  if (!Parse(frame, request) || request.round_id().size() != kRoundIdBytes ||
      request.state() <= wire::ROUND_STATE_UNSPECIFIED || request.timeout_ms() == 0) {
    return std::nullopt;
  }
  // States that no round reaches are one.
  const int state = std::min<int>(request.state(), wire::ABORTED + 1);
  return RoundWish{
      .round_id = request.round_id(),
      .state = static_cast<wire::RoundState>(state),
      .timeout = std::min(std::chrono::milliseconds(request.timeout_ms()), kLongestWait)};
}

Bytes RoundWish::Request() const {
  wire::WaitRoundRequest request;
  request.set_round_id(round_id);
  request.set_state(state);
  request.set_timeout_ms(static_cast<uint32_t>(timeout.count()));
  const wire::Frame frame = wire::MakeFrame(wire::FrameType::kWaitRound, request);
  const wire::FrameHeaderBytes head = wire::EncodeFrameHeader(wire::HeaderOf(frame));
  Bytes bytes(head.begin(), head.end());
  Append(bytes, AsBytes(frame.control));
  return bytes;
}

struct RoundWaits::Subscription {
  Subscription(RoundWish w, std::chrono::milliseconds step, asio::io_context& io)
      : wish(std::move(w)), strand(asio::make_strand(io)), limit(strand) {
    if (wish.state != kAnyState) wish.timeout = step;
  }

  RoundWish wish;
  const asio::strand<asio::io_context::executor_type> strand;
  // Used on the strand.
  FrontendLinks::Call call;
  asio::steady_timer limit;
  // Guarded by the mutex of RoundWaits.
  std::set<std::shared_ptr<Waiter>> waiters;
  std::map<Payer, size_t> payers;  // and for how many of the waiters each pays

  // Those none of whose clients waits for it pay no longer.
  void DropPayers() {
    std::erase_if(payers, [](const auto& pays) { return pays.second == 0; });
  }
};

bool RoundWaits::HasRoomLocked(const Payer& payer) const {
  const bool is_group = !payer.has_value() || payer->is_shared();
  const net::BlockShares& shares = is_group ? options_.group_shares : options_.shares;
  const size_t taken =
      CountLocked([&](const Subscription& other) { return other.payers.contains(payer); });
  return taken < net::ShareOf(options_.most, shares.connections);
}

size_t RoundWaits::CountLocked(const std::function<bool(const Subscription&)>& counts) const {
  return static_cast<size_t>(std::ranges::count_if(subscriptions_, [&](const auto& entry) {
    return entry.second->wish.state != kAnyState && counts(*entry.second);
  }));
}

bool RoundWaits::AddLocked(Subscription& subscription, const std::shared_ptr<Waiter>& waiter) {
  // Whoever was let wait is told how the round is, whatever others wait for by then.
  if (subscription.wish.state != kAnyState) {
    for (const Payer& payer : waiter->payers_) {
      if (!subscription.payers.contains(payer) && !HasRoomLocked(payer)) return false;
    }
  }
  for (const Payer& payer : waiter->payers_) ++subscription.payers[payer];
  subscription.waiters.insert(waiter);
  subscription.DropPayers();
  return true;
}

void RoundWaits::EndLocked(Subscription& subscription) {
  subscription.waiters.clear();
  subscription.payers.clear();
  const auto found = subscriptions_.find(Key(subscription.wish.round_id, subscription.wish.state));
  if (found != subscriptions_.end() && found->second.get() == &subscription) {
    subscriptions_.erase(found);
  }
}

RoundWaits::SubscriptionPointer RoundWaits::Join(const RoundWish& wish,
                                                 const std::shared_ptr<Waiter>& waiter) {
  auto subscription = std::make_shared<Subscription>(wish, options_.step, *io_);
  {
    const MutexLock lock(mutex_);
    const Key key(wish.round_id, wish.state);
    const auto found = subscriptions_.find(key);
    if (found != subscriptions_.end()) {
      return AddLocked(*found->second, waiter) ? found->second : nullptr;
    }
    const size_t taken = CountLocked([](const Subscription&) { return true; });
    if (wish.state != kAnyState && taken >= options_.most) return nullptr;
    if (!AddLocked(*subscription, waiter)) return nullptr;
    subscriptions_.emplace(key, subscription);
  }
  // Without the lock: it begins at once, and where there is no connection for it, it also answers
  // at once, which takes the lock.
  try {
    asio::co_spawn(subscription->strand, Run(shared_from_this(), subscription), asio::detached);
  } catch (const std::exception&) {  // most likely memory is short
    Answer(*subscription, TooMany());
  }
  return subscription;
}

void RoundWaits::Cancel(const SubscriptionPointer& subscription) {
  try {
    asio::post(subscription->strand, [weak = std::weak_ptr(subscription)] {
      if (const auto alive = weak.lock()) alive->call.Cancel();
    });
  } catch (const std::exception&) {
    // Memory is short: the request stays until the frontend answers.
  }
}

void RoundWaits::Leave(const SubscriptionPointer& subscription,
                       const std::shared_ptr<Waiter>& waiter) {
  const MutexLock lock(mutex_);
  if (subscription->waiters.erase(waiter) == 0) return;  // it was answered
  for (const Payer& payer : waiter->payers_) --subscription->payers.at(payer);
  if (!subscription->waiters.empty()) {
    subscription->DropPayers();
  } else if (retired_) {
    EndLocked(*subscription);
    Cancel(subscription);
  }
}

void RoundWaits::Retire() {
  const MutexLock lock(mutex_);
  retired_ = true;
  std::vector<SubscriptionPointer> unwanted;
  for (const auto& [key, subscription] : subscriptions_) {
    if (subscription->waiters.empty()) unwanted.push_back(subscription);
  }
  for (const SubscriptionPointer& subscription : unwanted) {
    EndLocked(*subscription);
    Cancel(subscription);
  }
}

bool RoundWaits::EndIfUnwanted(Subscription& subscription) {
  const MutexLock lock(mutex_);
  if (!subscription.waiters.empty()) return false;
  EndLocked(subscription);
  return true;
}

void RoundWaits::Answer(Subscription& subscription, absl::StatusOr<Bytes> answer) {
  const auto shared = std::make_shared<const absl::StatusOr<Bytes>>(std::move(answer));
  const MutexLock lock(mutex_);
  for (const std::shared_ptr<Waiter>& waiter : subscription.waiters) {
    // It owns nothing of the waiter, as it may stay in the queue of a door that ends.
    asio::post(waiter->wake_.get_executor(), [weak = std::weak_ptr(waiter), shared] {
      if (const auto alive = weak.lock()) {
        alive->answer_ = shared;
        alive->wake_.cancel();
      }
    });
  }
  EndLocked(subscription);
}

asio::awaitable<void> RoundWaits::Run(std::shared_ptr<RoundWaits> self,
                                      SubscriptionPointer subscription) {
  const auto has_room = [](uint64_t bytes) { return bytes <= kMostAnswerBytes; };
  const std::chrono::milliseconds step = self->options_.step;
  absl::StatusOr<Bytes> answer(absl::UnavailableError("no room; try again later"));
  try {
    const Bytes request = subscription->wish.Request();
    for (;;) {
      const Clock::time_point asked = Clock::now();
      subscription->limit.expires_at(asked + 3 * step);
      subscription->limit.async_wait(
          [weak = std::weak_ptr(subscription)](const boost::system::error_code& off) {
            if (const auto alive = weak.lock(); alive != nullptr && !off) alive->call.Cancel();
          });
      answer = co_await self->links_->Forward(request, wire::FrameType::kWaitRound, has_room,
                                              subscription->call);
      subscription->limit.cancel();
      if (!answer.ok() || HasReached(*answer, subscription->wish.state)) break;
      if (self->EndIfUnwanted(*subscription)) co_return;
      // Though the time is not up: it does not wait, and is not to be asked all the time.
      if (Clock::now() < asked + step / 5) break;
    }
  } catch (const std::exception&) {
    // Most likely memory is short. Those who wait ask again.
    subscription->limit.cancel();
  }
  self->Answer(*subscription, std::move(answer));
}

asio::awaitable<absl::StatusOr<Bytes>> RoundWaits::Wait(RoundWish wish,
                                                        std::shared_ptr<Waiter> waiter) {
  std::optional<absl::StatusOr<Bytes>> answer = co_await WaitFor(wish, waiter, wish.timeout);
  if (!answer.has_value()) {
    // The time is up. Many may have the same, and then ask together how the round is.
    wish.state = kAnyState;
    wish.timeout = std::chrono::milliseconds(0);
    answer = co_await WaitFor(wish, waiter, kLongestWait);
  }
  if (!answer.has_value()) {
    co_return absl::UnavailableError("the frontend does not answer; try again later");
  }
  co_return *std::move(answer);
}

asio::awaitable<std::optional<absl::StatusOr<Bytes>>> RoundWaits::WaitFor(
    const RoundWish& wish, std::shared_ptr<Waiter> waiter, std::chrono::milliseconds longest) {
  const Clock::time_point end = Clock::now() + longest;
  const SubscriptionPointer subscription = Join(wish, waiter);
  if (subscription == nullptr) co_return TooMany();
  // Whatever ends the wait: a subscription lasts for as long as somebody waits.
  const auto leave = [&](RoundWaits* self) { self->Leave(subscription, waiter); };
  const std::unique_ptr<RoundWaits, decltype(leave)> joined(this, leave);
  waiter->wake_.expires_at(end);
  while (waiter->answer_ == nullptr && !waiter->cancelled_ && Clock::now() < end) {
    co_await waiter->wake_.async_wait(net::kAwait);
  }
  if (waiter->answer_ != nullptr) co_return *waiter->answer_;
  if (waiter->cancelled_) {
    co_return absl::UnavailableError("the frontend does not answer; try again later");
  }
  co_return std::nullopt;
}

}  // namespace shoal::door
