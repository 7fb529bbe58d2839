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
  void Wait() override {
    if (!cluster_->Wait(seen_)) ++now_s_;
  }
  void Abort() override { cluster_->Abort(); }

  uint64_t NowSeconds() const override { return now_s_; }
  uint64_t SteadyMilliseconds() const override { return now_s_ * 1000; }

 private:
  LocalCluster* const cluster_;
  const uint32_t rank_;
  uint64_t seen_ = 0;   // changes of the cluster
  uint64_t now_s_ = 0;  // a second for every 10 ms in which nothing moved
};

LocalCluster::LocalCluster(uint32_t machines)
    : machines_(machines), pairs_(size_t{machines} * machines) {}

std::vector<absl::Status> LocalCluster::Run(const std::function<absl::Status(Machines&)>& work) {
  const Seed secret = shoal::testing::TestRandom(1).NewSeed();
  Digest job = {};
  job[0] = static_cast<uint8_t>(++runs_);
  std::vector<absl::Status> results(machines_);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < machines_; ++rank) {
    threads.emplace_back([&, rank] {
      Link link(this, rank);
      if (machines_ == 1) {
        results[rank] = work(Machines::Alone());
        return;
      }
      // Other work that keeps the processor makes no test fail, and no test waits for ever.
      const uint64_t limit_s = impatient_ ? 30 : 20'000;
      Machines machines(&link, RoundKey(secret.view(), {}, job), &link,
                        {.progress_limit_s = limit_s});
      results[rank] = work(machines);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
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

Bytes LocalCluster::captured() const {
  const MutexLock lock(mutex_);
  return captured_;
}

absl::StatusOr<bool> LocalCluster::Send(uint32_t from, uint32_t to, BytesView chunk) {
  const MutexLock lock(mutex_);
  Pair& link = pair(from, to);
  const Fault fault = link.chunks == link.faulty ? link.fault : Fault::kNone;
  if (fault == Fault::kDie) aborted_ = true;
  if (aborted_) {
    ++changes_;
    changed_.NotifyAll();
    return absl::UnavailableError("a machine has died");
  }
  if (link.waiting.size() >= kRoom) return false;
  link.bytes += chunk.size();
  if (capturing_) captured_.insert(captured_.end(), chunk.begin(), chunk.end());
  const bool withheld = link.fault == Fault::kWithhold && link.chunks >= link.faulty;
  ++link.chunks;
  if (withheld) return true;
  link.waiting.emplace_back(chunk.begin(), chunk.end());
  if (fault == Fault::kCorrupt) link.waiting.back()[chunk.size() / 2] ^= 1;
  if (fault == Fault::kRepeat) link.waiting.push_back(link.waiting.back());
  ++changes_;
  changed_.NotifyAll();
  return true;
}

absl::StatusOr<std::optional<Bytes>> LocalCluster::Receive(uint32_t from, uint32_t to) {
  const MutexLock lock(mutex_);
  if (aborted_) return absl::UnavailableError("a machine has died");
  Pair& link = pair(from, to);
  std::optional<Bytes> chunk;
  if (link.waiting.empty()) return chunk;
  chunk = std::move(link.waiting.front());
  link.waiting.pop_front();
  ++changes_;
  changed_.NotifyAll();
  return chunk;
}

bool LocalCluster::Wait(uint64_t& seen) {
  const MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  while (changes_ == seen && changed_.WaitUntil(mutex_, deadline)) {
  }
  return std::exchange(seen, changes_) != changes_;
}

void LocalCluster::Abort() {
  const MutexLock lock(mutex_);
  aborted_ = true;
  ++changes_;
  changed_.NotifyAll();
}

}  // namespace shoal::machines::testing
