// What a crowd's run measures and counts.
#ifndef SHOAL_SRC_LOAD_REPORT_H_
#define SHOAL_SRC_LOAD_REPORT_H_

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

namespace shoal::load {

// What became of some devices' answers and keys, or of all.
struct Tally {
  // Answers: one for every query.
  uint64_t answers_correct = 0;  // signed by all, and equal to the table if compared
  uint64_t answers_wrong = 0;    // signed by all, but not equal to the table: never expected
  uint64_t answers_failed = 0;   // not verified, or never fetched
  // Keys of all devices.
  uint64_t keys_found = 0;
  uint64_t keys_absent = 0;
  uint64_t keys_unknown = 0;  // their rows have no room for them
  uint64_t keys_failed = 0;
  // Why the first device was lost or the first answer failed.
  absl::Status first_error;

  Tally& operator+=(const Tally& more);
};

struct CrowdReport : Tally {
  std::string engine = "chain";
  uint64_t round = 0;    // 0 with an engine
  uint32_t parties = 0;  // 1 with an engine
  uint32_t devices = 0;
  uint32_t devices_lost = 0;  // could not submit or fetch
  uint64_t queries = 0;       // all devices', padding included
  uint64_t distinct_rows = 0;
  uint64_t table_rows = 0;
  uint32_t answer_bytes = 0;

  struct Stage {
    std::string name;
    double seconds = 0;
  };
  // Wall time of the stages in order. With the chain: draw, obtain (with sealing), wait offline,
  // submit, wait online, fetch (with verifying). With an engine: hint, draw, make (the queries),
  // wait online (from sending queries until the answers are here), check (recover and verify).
  std::vector<Stage> stages;
  double seconds = 0;  // the whole run
  // Processor time of the whole crowd: for sealing onions and making queries, for
  // unmasking or recovering answers and checking them, and for everything.
  double seal_cpu_seconds = 0;
  double check_cpu_seconds = 0;
  double cpu_seconds = 0;
  uint64_t peak_memory_bytes = 0;  // of this process, so far

  // Traffic of all devices, without an engine's hint, which every device needs but only one
  // fetched; costs has it.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;

  // Seconds from sending a query's request until its answer is here: quantiles over all queries,
  // and the longest. The chain's latency includes waiting for the batch. 0 if there was no answer.
  struct Latency {
    double p50 = 0, p90 = 0, p99 = 0, most = 0;
  } latency_seconds;

  // Costs under the same names for every engine. Seconds are processor time, except setup_seconds
  // and open_seconds of the single-server engines. For the chain, setup is the noise of all
  // parties, once a round; answer is the rest of their stages; a query is onion, slot, token and
  // tally. 0 for what the server does not tell.
  pir::Costs costs;
  // Mean over the engine server's passes in this run, for all its clients. 0 for the chain.
  double queries_per_pass = 0;

  // Whether answers were compared with a table.
  bool compared = false;

  // With a term, one refresh of it. What is above is of its round alone, but for the processor
  // time, the memory and the seconds of the whole run.
  struct Refresh : Tally {  // answers_failed has those that are missing, too
    uint32_t number = 0;
    uint64_t epoch = 0;    // of the table
    uint32_t devices = 0;  // that fetched
    uint32_t devices_asleep = 0;
    uint32_t devices_without_news = 0;  // they fetched, and not all answers came
    uint64_t queries = 0;               // of the devices that fetched
    uint64_t answers_missing = 0;       // never came
    bool compared = false;
    // Seconds from the end of what was before until the frontend showed the refresh, and from then
    // until the last answer was here.
    double waited_seconds = 0;
    double fetch_seconds = 0;
    Latency latency_seconds;  // from the same moment, over all queries
    double check_cpu_seconds = 0;
    // Of all devices' answers. And what each device fetches beside them to learn of the refresh and
    // to verify it: its header, the manifest, the lists of rows' epochs. One fetched that for all.
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    uint64_t news_bytes_sent = 0;
    uint64_t news_bytes_received = 0;
    // The frontend's report; without stages if there is none.
    wire::TermReport report;
  };
  std::vector<Refresh> refreshes;
  // Why fewer refreshes came than the options ask for; OK if all did.
  absl::Status no_more_refreshes;

  // The frontend's report on the round; empty if there is none.
  wire::RoundReport round_report;
};

// Told a stage's progress, from any thread.
using CrowdProgress = std::function<void(const std::string& stage, uint64_t done, uint64_t total)>;

// Collects a report while devices are at work. Thread-safe except for report() and Take.
class Recorder {
 public:
  // `progress` may be empty and must outlive this.
  explicit Recorder(const CrowdProgress& progress) : progress_(progress) {}

  const CrowdProgress& progress() const { return progress_; }
  // The report without what was added below. To be used on one thread, before or after the devices'
  // work.
  CrowdReport& report() { return report_; }

  // Adds a stage that has ended. Stages are kept in the order of calls.
  void AddStage(const std::string& name, double seconds) {
    report_.stages.push_back({name, seconds});
  }
  // Begin a stage that goes through all queries, and count `more` queries as done.
  void BeginQueries() { done_ = 0; }
  void CountQueries(const std::string& stage, uint64_t more) {
    Progress(stage, done_ += more, report_.queries);
  }
  void Progress(const std::string& stage, uint64_t done, uint64_t total) const {
    if (progress_) progress_(stage, done, total);
  }

  // Adds the latency of `queries` queries.
  void AddLatency(double seconds, uint64_t queries);
  void AddSealing(double cpu_seconds);
  void AddChecked(const Tally& tally, double cpu_seconds);
  // Adds the reason why a device is lost.
  void AddError(const absl::Status& why);
  // The first error that was added, also by a tally.
  absl::Status FirstError() const;

  // The report with everything that was added.
  CrowdReport Take();

 private:
  const CrowdProgress& progress_;
  std::atomic<uint64_t> done_ = 0;
  CrowdReport report_;

  // Guards what devices add while they are at work.
  mutable Mutex mutex_;
  std::vector<std::pair<double, uint64_t>> latencies_ ABSL_GUARDED_BY(mutex_);  // seconds, queries
  Tally tally_ ABSL_GUARDED_BY(mutex_);
  double seal_cpu_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  double check_cpu_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal::load

#endif  // SHOAL_SRC_LOAD_REPORT_H_
