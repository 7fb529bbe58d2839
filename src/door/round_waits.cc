#include "src/door/round_waits.h"

#include <algorithm>
#include <exception>

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
// An answer before the state is reached, though the time is not up: the frontend does not wait.
constexpr std::chrono::milliseconds kTooSoon(1'000);
// Of an answer to WaitRound, which tells of one round.
constexpr uint64_t kMostAnswerBytes = 1 << 20;
constexpr size_t kRoundIdBytes = 32;
// What every round has reached.
constexpr auto kAnyState = wire::ROUND_STATE_UNSPECIFIED;

absl::Status TooMany() {
  return absl::UnavailableError("too many requests at once; try again later");
}

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
  explicit Subscription(RoundWish w, asio::io_context& io)
      : wish(std::move(w)), strand(asio::make_strand(io)) {
    if (wish.state != kAnyState) wish.timeout = kLongestWait;
  }

  RoundWish wish;
  const asio::strand<asio::io_context::executor_type> strand;
  FrontendLinks::Call call;  // used on the strand
  // Guarded by the mutex of RoundWaits.
  std::set<std::shared_ptr<Waiter>> waiters;
};

std::shared_ptr<RoundWaits::Subscription> RoundWaits::Join(const RoundWish& wish,
                                                           const std::shared_ptr<Waiter>& waiter) {
  auto subscription = std::make_shared<Subscription>(wish, *io_);
  {
    const MutexLock lock(mutex_);
    const Key key(wish.round_id, wish.state);
    const auto found = subscriptions_.find(key);
    if (found != subscriptions_.end()) {
      found->second->waiters.insert(waiter);
      return found->second;
    }
    if (subscriptions_.size() >= most_) return nullptr;
    subscription->waiters.insert(waiter);
    subscriptions_.emplace(key, subscription);
  }
  // Without the lock: it begins at once, and where there is no connection for it, it also answers
  // at once, which takes the lock.
  try {
    asio::co_spawn(subscription->strand, Run(shared_from_this(), subscription), asio::detached);
  } catch (const std::exception&) {  // most likely memory is short
    Answer(subscription, TooMany());
  }
  return subscription;
}

void RoundWaits::Leave(const std::shared_ptr<Subscription>& subscription,
                       const std::shared_ptr<Waiter>& waiter) {
  const MutexLock lock(mutex_);
  subscription->waiters.erase(waiter);
  if (!subscription->waiters.empty()) return;
  // Whoever comes from now on subscribes anew.
  const auto found =
      subscriptions_.find(Key(subscription->wish.round_id, subscription->wish.state));
  if (found == subscriptions_.end() || found->second != subscription) return;
  subscriptions_.erase(found);
  try {
    asio::post(subscription->strand, [weak = std::weak_ptr(subscription)] {
      if (const auto alive = weak.lock()) alive->call.Cancel();
    });
  } catch (const std::exception&) {
    // Memory is short: the request stays until the frontend answers.
  }
}

void RoundWaits::Answer(const std::shared_ptr<Subscription>& subscription,
                        absl::StatusOr<Bytes> answer) {
  const auto shared = std::make_shared<const absl::StatusOr<Bytes>>(std::move(answer));
  const MutexLock lock(mutex_);
  const auto found =
      subscriptions_.find(Key(subscription->wish.round_id, subscription->wish.state));
  if (found != subscriptions_.end() && found->second == subscription) subscriptions_.erase(found);
  for (const std::shared_ptr<Waiter>& waiter : subscription->waiters) {
    // It owns nothing of the waiter, as it may stay in the queue of a door that ends.
    asio::post(waiter->wake_.get_executor(), [weak = std::weak_ptr(waiter), shared] {
      if (const auto alive = weak.lock()) {
        alive->answer_ = shared;
        alive->wake_.cancel();
      }
    });
  }
  subscription->waiters.clear();
}

asio::awaitable<void> RoundWaits::Run(std::shared_ptr<RoundWaits> self,
                                      std::shared_ptr<Subscription> subscription) {
  const auto has_room = [](uint64_t bytes) { return bytes <= kMostAnswerBytes; };
  absl::StatusOr<Bytes> answer(absl::UnavailableError("no room; try again later"));
  try {
    const Bytes request = subscription->wish.Request();
    for (;;) {
      const Clock::time_point asked = Clock::now();
      answer = co_await self->links_->Forward(request, wire::FrameType::kWaitRound, has_room,
                                              subscription->call);
      if (!answer.ok() || HasReached(*answer, subscription->wish.state)) break;
      if (Clock::now() < asked + kTooSoon) break;
    }
  } catch (const std::exception&) {
    // Most likely memory is short. Those who wait ask again.
  }
  self->Answer(subscription, std::move(answer));
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
  const std::shared_ptr<Subscription> subscription = Join(wish, waiter);
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
