#include "src/sim/machine_job.h"

#include <algorithm>

namespace shoal::sim {
namespace {

constexpr Time kMinLatency = kMillisecond / 20, kMaxLatency = 2 * kMillisecond;
constexpr Time kWait = 10 * kMillisecond;
constexpr size_t kRoom = 3;  // chunks on their way from one machine to another

absl::Status HasEnded() { return absl::UnavailableError("a machine has given up"); }

}  // namespace

// A machine's end of a lane.
class MachineJob::Link final : public machines::Transport {
 public:
  Link(MachineJob* job, Lane* lane, uint32_t rank) : job_(*job), lane_(*lane), rank_(rank) {}

  uint32_t rank() const override { return rank_; }
  uint32_t count() const override { return job_.machines_; }

  absl::StatusOr<bool> TrySend(uint32_t to, BytesView chunk) override {
    if (ended()) return HasEnded();
    Pair& pair = job_.PairOf(lane_, rank_, to);
    if (pair.chunks.size() >= kRoom) return false;
    ++job_.chunks_;
    Time arrives = job_.Arrival();
    if (!pair.chunks.empty()) arrives = std::max(arrives, pair.chunks.back().arrives);
    pair.chunks.push_back({arrives, ToBytes(chunk)});
    if (job_.altered_ == std::pair(rank_, to)) {
      job_.altered_.reset();
      pair.chunks.back().bytes[chunk.size() / 2] ^= 1;
    }
    job_.scheduler_->Note(chunk.size());
    job_.scheduler_->At(arrives, [job = &job_, lane = &lane_, to] { job->Changed(*lane, to); });
    return true;
  }

  absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t from) override {
    if (ended()) return HasEnded();
    std::deque<Chunk>& chunks = job_.PairOf(lane_, from, rank_).chunks;
    std::optional<Bytes> chunk;
    if (chunks.empty() || chunks.front().arrives > job_.scheduler_->now() ||
        job_.IsBlocked(from, rank_)) {
      return chunk;
    }
    chunk = std::move(chunks.front().bytes);
    chunks.pop_front();
    job_.Changed(lane_, from);
    return chunk;
  }

  void Wait() override {
    if (lane_.changes[rank_] == seen_) {
      job_.scheduler_->Block(&lane_.changes[rank_], job_.scheduler_->now() + kWait);
    }
    seen_ = lane_.changes[rank_];
  }

  void SendSign(uint32_t to, BytesView sign) override {
    job_.PairOf(lane_, rank_, to).sign = {job_.Arrival(), ToBytes(sign)};
  }

  std::optional<Bytes> TakeSign(uint32_t from) override {
    std::optional<Chunk>& sign = job_.PairOf(lane_, from, rank_).sign;
    if (!sign.has_value() || sign->arrives > job_.scheduler_->now() ||
        job_.IsBlocked(from, rank_)) {
      return std::nullopt;
    }
    return std::exchange(sign, std::nullopt)->bytes;
  }

  void Abort() override {
    if (!lane_.given_up.try_emplace(rank_).second) return;
    lane_.given_up[rank_].insert(rank_);
    job_.scheduler_->At(job_.Arrival(),
                        [job = &job_, lane = &lane_, rank = rank_] { job->Spread(*lane, rank); });
  }

 private:
  bool ended() const {
    return std::ranges::any_of(lane_.given_up,
                               [this](const auto& one) { return one.second.contains(rank_); });
  }

  MachineJob& job_;
  Lane& lane_;
  const uint32_t rank_;
  uint64_t seen_ = 0;
};

class MachineJob::Process final : public shoald::MachineJob {
 public:
  Process(sim::MachineJob* job, uint32_t rank) : job_(*job), rank_(rank) {}

  uint32_t rank() const override { return rank_; }
  uint32_t count() const override { return job_.machines_; }
  const Digest& id() const override { return job_.id_; }
  absl::StatusOr<std::unique_ptr<machines::Transport>> OpenLane(uint32_t number) override {
    Lane& lane = job_.lanes_[number];
    lane.pairs.resize(size_t{job_.machines_} * job_.machines_);
    lane.changes.resize(job_.machines_);
    return std::make_unique<Link>(&job_, &lane, rank_);
  }
  absl::Status Leave() override { return absl::OkStatus(); }

 private:
  sim::MachineJob& job_;
  const uint32_t rank_;
};

MachineJob::MachineJob(Scheduler* scheduler, uint64_t seed, uint32_t machines)
    : scheduler_(scheduler), rng_(seed), machines_(machines) {
  StoreLe(id_.data(), rng_.Next());
}

std::unique_ptr<shoald::MachineJob> MachineJob::Member(uint32_t rank) {
  return std::make_unique<Process>(this, rank);
}

void MachineJob::Unblock(uint32_t a, uint32_t b) {
  blocked_.erase(std::minmax(a, b));
  for (auto& [number, lane] : lanes_) {
    for (const uint32_t rank : {a, b}) {
      if (lane.given_up.contains(rank)) Spread(lane, rank);
      Changed(lane, rank);
    }
  }
}

Time MachineJob::Arrival() { return scheduler_->now() + rng_.Between(kMinLatency, kMaxLatency); }

void MachineJob::Changed(Lane& lane, uint32_t rank) {
  ++lane.changes[rank];
  scheduler_->Wake(&lane.changes[rank], /*all=*/true);
}

void MachineJob::Spread(Lane& lane, uint32_t from) {
  for (uint32_t to = 0; to < machines_; ++to) {
    if (IsBlocked(from, to) || !lane.given_up[from].insert(to).second) continue;
    Changed(lane, to);
  }
}

}  // namespace shoal::sim
