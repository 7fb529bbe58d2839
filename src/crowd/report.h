// What a crowd's run measures and counts.
#ifndef SHOAL_SRC_CROWD_REPORT_H_
#define SHOAL_SRC_CROWD_REPORT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/parallel/mutex.h"
#include "src/pir/costs.h"
#include "src/wire/client.pb.h"

namespace shoal::crowd {

struct CrowdReport {
  std::string engine = "chain";
  uint64_t round = 0;    // 0 with an engine
  uint32_t parties = 0;  // 1 with an engine
  uint32_t devices = 0;
  uint32_t devices_lost = 0;  // that could not submit or fetch
  uint64_t queries = 0;       // of all devices, padding included
  uint64_t distinct_rows = 0;
  uint64_t table_rows = 0;
  uint32_t answer_bytes = 0;

  struct Stage {
    std::string name;
    double seconds = 0;
  };
  // draw, obtain (with sealing), wait offline, submit, wait online, fetch (with verifying): wall
  // time, in this order. With an engine: hint, draw, make (the queries), wait online (queries sent,
  // until the answers are here), check (recover and verify).
  std::vector<Stage> stages;
  double seconds = 0;  // all of it
  // Processor time of the whole crowd: sealing onions, or making an engine's
  // queries; unmasking or recovering, and checking, answers; everything.
  double seal_cpu_seconds = 0;
  double check_cpu_seconds = 0;
  double cpu_seconds = 0;
  uint64_t peak_memory_bytes = 0;  // of this process, so far

  // By all devices. An engine's hint is in costs: every device needs it, one of them fetched it.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;

  // Of one query, from the moment its request is sent to the moment its answer is here: below these
  // for half of all queries, for 90 % and 99 %, and the longest. The chain's waits for the batch. 0
  // if there was no answer.
  struct Latency {
    double p50 = 0, p90 = 0, p99 = 0, most = 0;
  } latency_seconds;

  // The same names for every engine; seconds are processor time but for setup_seconds and
  // open_seconds of the single-server engines. The chain: setup is what all parties spend on noise,
  // once a round; answer is the rest of their stages; a query is onion, slot, token and tally. 0
  // where the server says nothing.
  pir::Costs costs;
  // Of an engine's server in this run, for all its clients: 0 for the chain.
  double queries_per_pass = 0;

  // Answers: one for every query.
  uint64_t answers_correct = 0;  // signed by all, and as in the table where it is at hand
  uint64_t answers_wrong = 0;    // signed by all, but not as in the table: must not be
  uint64_t answers_failed = 0;   // not verified, or never fetched
  // Whether answers were compared with a table.
  bool compared = false;
  // Keys of all devices.
  uint64_t keys_found = 0;
  uint64_t keys_absent = 0;
  uint64_t keys_failed = 0;
  // Why the first device was lost or the first answer failed.
  absl::Status first_error;

  // What the frontend says of the round; empty if it says nothing.
  wire::RoundReport round_report;
};

// What a stage is doing, from any thread.
using CrowdProgress = std::function<void(const std::string& stage, uint64_t done, uint64_t total)>;

// What checking some devices' answers has found. Fields as in CrowdReport.
struct Tally {
  uint64_t answers_correct = 0, answers_wrong = 0, answers_failed = 0;
  uint64_t keys_found = 0, keys_absent = 0, keys_failed = 0;
  absl::Status first_error;
};

// Puts a report together while devices are at work. Thread-safe but for report and Take.
class Recorder {
 public:
  // `progress` may be empty, and outlives this.
  explicit Recorder(const CrowdProgress& progress) : progress_(progress) {}

  // For what is known before or after the devices' work, on one thread; without what was added.
  CrowdReport& report() { return report_; }

  // A stage that took so long has ended; in this order.
  void AddStage(const std::string& name, double seconds) {
    report_.stages.push_back({name, seconds});
  }
  // A stage begins in which all queries have their turn; and so many more have had it.
  void BeginQueries() { done_ = 0; }
  void CountQueries(const std::string& stage, uint64_t more) {
    Progress(stage, done_ += more, report_.queries);
  }
  void Progress(const std::string& stage, uint64_t done, uint64_t total) const {
    if (progress_) progress_(stage, done, total);
  }

  // So many queries took so long.
  void AddLatency(double seconds, uint64_t queries);
  void AddSealing(double cpu_seconds);
  void AddChecked(const Tally& tally, double cpu_seconds);
  // Why a device is lost.
  void AddError(const absl::Status& why);
  // The first that was added, also with a tally.
  absl::Status FirstError() const;

  // The report with everything that was added.
  CrowdReport Take();

 private:
  const CrowdProgress& progress_;
  std::atomic<uint64_t> done_ = 0;
  CrowdReport report_;

  // What devices add while they are at work.
  mutable Mutex mutex_;
  std::vector<std::pair<double, uint64_t>> latencies_ ABSL_GUARDED_BY(mutex_);  // seconds, queries
  Tally checked_ ABSL_GUARDED_BY(mutex_);
  double seal_cpu_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  double check_cpu_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::crowd

#endif  // SHOAL_SRC_CROWD_REPORT_H_
