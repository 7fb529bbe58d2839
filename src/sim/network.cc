#include "src/sim/network.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::sim {
namespace {

constexpr Time kLeastLatency = kMillisecond / 5, kMostLatency = 10 * kMillisecond;
constexpr Time kMaxSlow = 8 * kSecond;
constexpr Time kMaxRepeatDelay = 10 * kSecond;
// After a neighbour vanished without a word, until that is noticed (src/net).
constexpr Time kNoticed = 30 * kSecond;
constexpr Time kConnect = 10 * kSecond;
constexpr Time kCancelPoll = kSecond / 10;

absl::Status Broke() { return absl::UnavailableError("the connection broke"); }

}  // namespace

struct Network::Pending {
  bool done = false;
  absl::StatusOr<Answer> answer;
  const Process* server = nullptr;
  Time answer_delay = 0;
  bool answer_lost = false;
  bool request_cut = false, answer_cut = false;
  bool broken = false;  // by its server: what is answered later goes nowhere
};

Time Network::Latency() { return rng_.Between(kLeastLatency, kMostLatency); }

void Network::Complete(const PendingPointer& pending, absl::StatusOr<Answer> answer, Time delay) {
  auto shared = std::make_shared<absl::StatusOr<Answer>>(std::move(answer));
  scheduler_->At(scheduler_->now() + delay, [this, pending, shared] {
    if (pending->done) return;
    pending->done = true;
    pending->answer = std::move(*shared);
    std::erase(served_, pending);
    scheduler_->Wake(pending.get(), /*all=*/true);
  });
}

absl::StatusOr<Network::Answer> Network::Call(Address from, Address to, wire::Frame request,
                                              Time timeout,
                                              const std::function<bool()>& cancelled) {
  if (on_request) on_request(from, to, request);
  auto pending = std::make_shared<Pending>();
  const Time deadline = scheduler_->now() + timeout;
  Time delay = Latency();
  pending->answer_delay = Latency();
  if (rng_.Chance(faults_.slow)) delay += rng_.Between(0, kMaxSlow);
  if (rng_.Chance(faults_.slow)) pending->answer_delay += rng_.Between(0, kMaxSlow);
  if (rng_.Chance(faults_.repeated)) {
    Send(from, to, request, delay + rng_.Between(0, kMaxRepeatDelay));
  }
  if (rng_.Chance(faults_.cut))
    (rng_.Chance(0.5) ? pending->request_cut : pending->answer_cut) = true;
  const bool lost = rng_.Chance(faults_.lost);
  pending->answer_lost = lost && rng_.Chance(0.5);
  if (lost) {
    Complete(pending, Broke(), delay + rng_.Between(kSecond / 20, 20 * kSecond));
  }
  if (!lost || pending->answer_lost) {
    scheduler_->At(scheduler_->now() + delay,
                   [this, pending, from, to, request = std::move(request)] {
                     Deliver(pending, from, to, request);
                   });
  }
  while (!pending->done) {
    Time until = deadline;
    if (cancelled) until = std::min(until, scheduler_->now() + kCancelPoll);
    scheduler_->Block(pending.get(), until);
    if (pending->done) break;
    if (cancelled && cancelled()) {
      pending->answer = absl::CancelledError("cancelled");
    } else if (scheduler_->now() >= deadline) {
      pending->answer = absl::DeadlineExceededError("no answer in time");
    } else {
      continue;
    }
    pending->done = true;
    std::erase(served_, pending);
  }
  if (!pending->answer.ok()) return pending->answer.status();
  if (pending->answer->frame.type == wire::FrameType::kError) {
    return wire::ErrorOf(pending->answer->frame);
  }
  return std::move(pending->answer);
}

absl::Status Network::Drain(ByteSource& source, Bytes& all) const {
  for (;;) {
    const absl::StatusOr<BytesView> piece = source.Next();
    if (on_next) on_next(piece.ok() && !piece->empty());
    if (!piece.ok()) return piece.status();
    if (piece->empty()) return absl::OkStatus();
    Append(all, *piece);
  }
}

void Network::Send(Address from, Address to, wire::Frame request, Time delay) {
  auto pending = std::make_shared<Pending>();
  pending->answer_lost = true;
  scheduler_->At(scheduler_->now() + delay,
                 [this, pending, from, to, request = std::move(request)] {
                   Deliver(pending, from, to, request);
                 });
}

void Network::Close(Address address) {
  auto found = listeners_.extract(address);
  if (found.empty()) return;
  const std::shared_ptr<Listener> listener = std::move(found.mapped());
  listener->closed = true;
  BreakCalls(listener->process);
  // As net::Server's end, which waits for its threads.
  while (listener.use_count() > 1) scheduler_->Sleep(kMillisecond);
}

void Network::Deliver(PendingPointer pending, Address from, Address to, wire::Frame request) {
  if (pending->done) return;
  if (blocked_.contains(std::minmax(from, to))) {
    Complete(pending, Broke(), rng_.Between(kSecond / 20, kNoticed));
    return;
  }
  const auto found = listeners_.find(to);
  if (found == listeners_.end() || !found->second->process->alive) {
    const bool silent = found != listeners_.end() && silent_.contains(found->second->process);
    Complete(pending, absl::UnavailableError("connection refused"), silent ? kConnect : Latency());
    return;
  }
  const std::shared_ptr<const Listener> listener = found->second;
  scheduler_->Note(AsBytes(request.control));
  scheduler_->Note(request.bulk);
  pending->server = listener->process;
  served_.push_back(pending);
  scheduler_->Spawn(listener->process, [this, listener, pending = std::move(pending), from, to,
                                        request = std::move(request)]() mutable {
    Serve(*listener, std::move(pending), from, to, std::move(request));
  });
}

void Network::Serve(const Listener& listener, PendingPointer pending, Address from, Address to,
                    wire::Frame request) {
  const auto asked = std::make_shared<const wire::Frame>(request);
  Process* const process = listener.process;
  net::Reply reply([this, pending, process, from, to, asked](wire::Frame frame,
                                                             std::unique_ptr<ByteSource> bulk) {
    std::shared_ptr<ByteSource> source = std::move(bulk);
    scheduler_->Spawn(process,
                      [this, pending, from, to, asked, source, frame = std::move(frame)]() mutable {
                        if (pending->broken) return;
                        Answer answer{.frame = std::move(frame)};
                        if (source != nullptr) {
                          answer.cut = !Drain(*source, answer.frame.bulk).ok();
                        }
                        source.reset();
                        if (pending->broken) return;
                        if (on_answer) on_answer(to, from, *asked, answer);
                        if (pending->answer_lost) return;
                        if (pending->answer_cut) {
                          if (answer.frame.bulk.empty())
                            return Complete(pending, Broke(), pending->answer_delay);
                          answer.cut = true;
                          answer.frame.bulk.resize(rng_.Below(answer.frame.bulk.size()));
                        }
                        if (blocked_.contains(std::minmax(from, to))) {
                          return Complete(pending, Broke(), rng_.Between(kSecond / 20, kNoticed));
                        }
                        Complete(pending, std::move(answer), pending->answer_delay);
                      });
  });
  const auto limits = listener.limits(request.type);
  absl::Status refused = limits.status();
  if (limits.ok()) refused = wire::CheckLimits(wire::HeaderOf(request), *limits);
  if (!refused.ok()) return reply(refused);
  std::unique_ptr<net::BulkSink> sink;
  if (listener.sink) {
    Bytes bulk = std::move(request.bulk);
    request.bulk.clear();
    auto made = listener.sink(request, bulk.size());
    if (!made.ok()) return reply(made.status());
    sink = *std::move(made);
    request.bulk = std::move(bulk);
  }
  if (sink == nullptr && pending->request_cut) {
    pending->answer_lost = true;
    return Complete(pending, Broke(), Latency());
  }
  if (sink == nullptr) return listener.handler(std::move(request), std::move(reply));
  const size_t end =
      pending->request_cut ? rng_.Below(request.bulk.size() + 1) : request.bulk.size();
  for (size_t at = 0; at < end;) {
    const size_t n = std::min<size_t>(end - at, 1 + rng_.Below(4096));
    if (const absl::Status taken = sink->Take(BytesView(request.bulk).subspan(at, n));
        !taken.ok()) {
      return reply(taken);
    }
    at += n;
    if (rng_.Chance(0.3)) scheduler_->Sleep(Latency());
    if (listener.closed) break;
  }
  if (pending->request_cut || listener.closed) {
    sink.reset();
    pending->answer_lost = true;
    return Complete(pending, Broke(), Latency());
  }
  sink->Done(std::move(reply));
}

void Network::BreakCalls(const Process* server) {
  for (const PendingPointer& pending : std::vector(served_)) {
    if (pending->server != server) continue;
    pending->broken = true;
    Complete(pending, Broke(), Latency());
  }
}

void Network::Died(const Process* process, bool silently) {
  if (silently) silent_.insert(process);
  for (const PendingPointer& pending : std::vector(served_)) {
    if (pending->server == process) {
      Complete(pending, Broke(), silently ? rng_.Between(kSecond, kNoticed) : Latency());
    }
  }
}

}  // namespace shoal::sim
