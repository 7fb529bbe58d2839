// What the measurements of unit costs share: how a piece of work is measured, and what it works
// with.
#ifndef SHOAL_SRC_PLAN_MEASURE_H_
#define SHOAL_SRC_PLAN_MEASURE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/noise/noise.h"
#include "src/parallel/thread_pool.h"
#include "src/plan/plan.pb.h"
#include "src/server/round_context.h"
#include "src/storage/arena.h"
#include "src/storage/spool.h"

namespace shoal::plan {

// The cost of one piece of work.
struct Spent {
  double cpu_ns = 0;
  double own_ns = 0;  // the calling thread's part of cpu_ns

  Spent operator+(const Spent& other) const {
    return {cpu_ns + other.cpu_ns, own_ns + other.own_ns};
  }
};

// The cost of one run.
template <typename Body>
Spent Once(const Body& body) {
  const Stopwatch own(Stopwatch::kThread), cpu(Stopwatch::kProcess);
  body();
  return {static_cast<double>(cpu.Nanoseconds()), static_cast<double>(own.Nanoseconds())};
}

// The median run. The fastest run would stand for an undisturbed round, but rounds share their
// machine with TLS, the kernel and each other.
inline Spent Middle(std::vector<Spent> costs) {
  std::sort(costs.begin(), costs.end(),
            [](const Spent& x, const Spent& y) { return x.cpu_ns < y.cpu_ns; });
  return costs[costs.size() / 2];
}

// The median cost of several runs. `run` prepares what the work needs and returns the work's cost.
template <typename Run>
Spent Typical(const Run& run) {
  return Middle({run(), run(), run()});
}

inline Spent Each(const Spent& cost, size_t n) {
  const auto count = static_cast<double>(n);
  return {cost.cpu_ns / count, cost.own_ns / count};
}

inline double Positive(double ns) { return std::max(0.01, ns); }

// The share of the processor time that the calling thread spends alone. In a parallel loop it works
// as much as each of the pool's threads; any time beyond that was spent outside loops.
inline double SerialShare(const Spent& cost, const ThreadPool& pool) {
  const double helpers = cost.cpu_ns - cost.own_ns;
  const double loops = helpers * (1 + 1 / static_cast<double>(pool.size()));
  return std::clamp(1 - loops / cost.cpu_ns, 0.001, 1.0);
}

// Runs of each kind where a difference is measured. The kinds take turns.
inline constexpr int kTurns = 5;

// Resources for a stage whose memory comes fresh from the system.
struct FreshPlace {
  explicit FreshPlace(ThreadPool& pool) : resources{.pool = &pool, .spools = &spools} {}
  // Touches memory for a spool of `bytes` bytes beforehand. The model counts the cost of fresh
  // pages separately (fresh_byte_ns).
  void Warm(uint64_t bytes) { (void)*spools.Create(bytes); }
  SpoolPlace spools{"/tmp", uint64_t{1} << 40};  // in memory
  const std::shared_ptr<Arena> arena = *Arena::Reserve(&spools, 0, 0, "calibration");
  const server::Resources resources;
};

// Whose mean is about 19.
inline noise::Distribution SomeNoise() {
  return *noise::Distribution::Create({.mechanism = noise::Mechanism::kGeometric,
                                       .epsilon = 1,
                                       .delta = 1e-6,
                                       .phi = 1,
                                       .mode = 15,
                                       .left_scale = 1.25,
                                       .right_scale = 5});
}

// Sets the costs of halves of rounds of two tiers, of about `queries` queries and a table of
// `bytes` bytes that no cache holds. Needs the costs of onions and noise (measure_two_tiers.cc).
void MeasureTwoTiers(size_t queries, uint64_t bytes, RandomSource& random, ThreadPool& pool,
                     UnitCosts& costs);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_MEASURE_H_
