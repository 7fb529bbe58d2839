#include "src/machines/testing/local_cluster.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/testing/test_random.h"

namespace shoal::machines::testing {
namespace {

constexpr size_t kRoom = 3;  // chunks that may be on their way from one machine to another

}  // namespace

class LocalCluster::Link final : public Transport, public Clock {
 public:
  Link(LocalCluster* cluster, uint32_t rank) : cluster_(cluster), rank_(rank) {}

  uint32_t rank() const override { return rank_; }
  uint32_t count() const override { return cluster_->machines_; }
  absl::StatusOr<bool> TrySend(uint32_t to, BytesView chunk) override {
    return cluster_->Send(rank_, to, chunk);
  }
  absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t from) override {
    return cluster_->Receive(from, rank_);
  }
  void Wait() override { now_s_ += cluster_->Wait(rank_, seen_); }
  void SendSign(uint32_t to, BytesView sign) override { cluster_->SendSign(rank_, to, sign); }
  std::optional<Bytes> TakeSign(uint32_t from) override { return cluster_->TakeSign(from, rank_); }
  void Abort() override { cluster_->Abort(rank_); }

  uint64_t NowSeconds() const override { return now_s_; }
  uint64_t SteadyMilliseconds() const override { return now_s_ * 1000; }

 private:
  LocalCluster* const cluster_;
  const uint32_t rank_;
  Seen seen_;
  uint64_t now_s_ = 0;
};

LocalCluster::LocalCluster(uint32_t machines)
    : machines_(machines), pairs_(size_t{machines} * machines), states_(machines) {}

std::vector<absl::Status> LocalCluster::Run(const std::function<absl::Status(Machines&)>& work) {
  const Seed secret = shoal::testing::TestRandom(1).NewSeed();
  Digest job = {};
  job[0] = static_cast<uint8_t>(++runs_);
  return RunLinks([&](Transport& link, const Clock& clock) {
    shoal::testing::TestRandom random(runs_ * machines_ + link.rank());
    Machines alone;
    std::optional<Machines> several;
    if (machines_ > 1) {
      several.emplace(&link, RoundKey(secret.view(), {}, job), &clock, &random, options());
    }
    Machines& machines = machines_ > 1 ? *several : alone;
    const absl::Status status = work(machines);
    if (status.ok()) machines.Finish();
    return status;
  });
}

std::vector<absl::Status> LocalCluster::RunLinks(
    const std::function<absl::Status(Transport&, const Clock&)>& work) {
  std::vector<absl::Status> results(machines_);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < machines_; ++rank) {
    threads.emplace_back([&, rank] {
      Link link(this, rank);
      results[rank] = work(link, link);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

LocalCluster::Joined LocalCluster::Join(uint32_t rank) {
  const auto link = std::make_shared<Link>(this, rank);
  return {link, link.get()};
}

std::unique_ptr<Transport> LocalCluster::Open(uint32_t rank) {
  return std::make_unique<Link>(this, rank);
}

Machines::Options LocalCluster::options() const {
  // Other work that keeps the processor makes no test fail, and no test waits for ever.
  return {.progress_limit_s = impatient_ ? uint64_t{30} : uint64_t{20'000}, .signs_by_hand = true};
}

void LocalCluster::SlowClock(uint32_t machine, uint64_t wait_s) {
  const MutexLock lock(mutex_);
  states_[machine].wait_s = wait_s;
}

uint64_t LocalCluster::waits(uint32_t machine) const {
  const MutexLock lock(mutex_);
  return states_[machine].waits;
}

void LocalCluster::Break(Fault fault, uint32_t from, uint32_t to, uint64_t number) {
  const MutexLock lock(mutex_);
  pair(from, to).fault = fault;
  pair(from, to).faulty = number;
}

uint64_t LocalCluster::sent_bytes(uint32_t from, uint32_t to) const {
  const MutexLock lock(mutex_);
  return pairs_[from * machines_ + to].bytes;
}

uint64_t LocalCluster::received_bytes(uint32_t machine) const {
  uint64_t bytes = 0;
  for (uint32_t from = 0; from < machines_; ++from) bytes += sent_bytes(from, machine);
  return bytes;
}

std::vector<Bytes> LocalCluster::captured() const {
  const MutexLock lock(mutex_);
  return captured_;
}

std::vector<Bytes> LocalCluster::captured_signs() const {
  const MutexLock lock(mutex_);
  return captured_signs_;
}

absl::StatusOr<bool> LocalCluster::Send(uint32_t from, uint32_t to, BytesView chunk) {
  const MutexLock lock(mutex_);
  Pair& link = pair(from, to);
  const Fault fault = link.chunks == link.faulty ? link.fault : Fault::kNone;
  if (fault == Fault::kAbort) EndLocked();
  if (fault == Fault::kDie) states_[from].silent = true;
  if (states_[from].ended) return absl::UnavailableError("a machine has died");
  if (states_[from].silent || states_[to].silent) return false;
  if (link.waiting.size() >= kRoom) return false;
  link.bytes += chunk.size();
  if (capturing_) captured_.emplace_back(chunk.begin(), chunk.end());
  const bool withheld = (link.fault == Fault::kWithhold || link.fault == Fault::kWithholdChunks) &&
                        link.chunks >= link.faulty;
  ++link.chunks;
  if (withheld) return true;
  link.waiting.emplace_back(chunk.begin(), chunk.end());
  if (fault == Fault::kCorrupt) link.waiting.back()[chunk.size() / 2] ^= 1;
  if (fault == Fault::kRepeat) link.waiting.push_back(link.waiting.back());
  ChangeLocked(to);
  return true;
}

absl::StatusOr<std::optional<Bytes>> LocalCluster::Receive(uint32_t from, uint32_t to) {
  const MutexLock lock(mutex_);
  if (states_[to].ended) return absl::UnavailableError("a machine has died");
  Pair& link = pair(from, to);
  std::optional<Bytes> chunk;
  if (link.waiting.empty() || states_[to].silent) return chunk;
  chunk = std::move(link.waiting.front());
  link.waiting.pop_front();
  ChangeLocked(from);
  return chunk;
}

void LocalCluster::SendSign(uint32_t from, uint32_t to, BytesView sign) {
  const MutexLock lock(mutex_);
  if (capturing_) captured_signs_.emplace_back(sign.begin(), sign.end());
  Pair& link = pair(from, to);
  const bool withheld = link.fault == Fault::kWithhold && link.chunks >= link.faulty;
  if (withheld || states_[from].silent || states_[to].silent) return;
  link.sign.emplace(sign.begin(), sign.end());
}

std::optional<Bytes> LocalCluster::TakeSign(uint32_t from, uint32_t to) {
  const MutexLock lock(mutex_);
  return std::exchange(pair(from, to).sign, std::nullopt);
}

uint64_t LocalCluster::Wait(uint32_t rank, Seen& seen) {
  const MutexLock lock(mutex_);
  State& state = states_[rank];
  ++state.waits;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  while (state.changes == seen.own && state.changed.WaitUntil(mutex_, deadline)) {
  }
  const bool moved = changes_ != seen.all;
  seen = {.own = state.changes, .all = changes_};
  return state.wait_s + (moved ? 0 : 1);
}

void LocalCluster::Abort(uint32_t rank) {
  const MutexLock lock(mutex_);
  if (!states_[rank].silent) EndLocked();
}

void LocalCluster::EndLocked() {
  for (uint32_t rank = 0; rank < machines_; ++rank) {
    if (states_[rank].silent) continue;
    states_[rank].ended = true;
    ChangeLocked(rank);
  }
}

void LocalCluster::ChangeLocked(uint32_t rank) {
  ++states_[rank].changes;
  ++changes_;
  states_[rank].changed.NotifyAll();
}

}  // namespace shoal::machines::testing
