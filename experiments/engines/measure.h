// The common part of the programs that measure engines: it sets up an engine over any content, asks
// for records, and prints the costs as name, tab, value. Every record is compared with the content.
#ifndef SHOAL_EXPERIMENTS_ENGINES_MEASURE_H_
#define SHOAL_EXPERIMENTS_ENGINES_MEASURE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/scheme.h"

namespace shoal::experiments {

// Seconds by the wall's clock, and of the processor by all threads of this process.
struct Times {
  double wall_s = 0;
  double cpu_s = 0;
};
Times TimesOf(const std::function<void()>& body);
// The median of each of the two times by itself.
Times Median(std::vector<Times> times);

void Print(const char* name, double value);

// A server on all threads of the pool, which prints its sizes and the cost of its set-up, and a
// client that keeps the public matrix, as a client that asks often does.
struct Bench {
  std::unique_ptr<pir::lwe::Server> server;
  std::unique_ptr<pir::lwe::Client> client;
  pir::Sizes sizes;
};
absl::StatusOr<Bench> SetUp(pir::lwe::Scheme engine, const pir::Content& content, ThreadPool& pool);

// Asks for the rows, `batch` at a time in one pass of the server, and returns their records. Prints
// the median cost of one row. DATA_LOSS if a record is not the content's.
absl::StatusOr<std::vector<Bytes>> Ask(const Bench& bench, const pir::Content& content,
                                       const std::vector<uint64_t>& rows, uint64_t batch,
                                       RandomSource& random);

}  // namespace shoal::experiments

#endif  // SHOAL_EXPERIMENTS_ENGINES_MEASURE_H_
