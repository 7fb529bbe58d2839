// A crowd of simulated devices in one process: each with a master seed, slots and queries of its own,
// every answer verified. They ask through one round of the chain, or through a single-server engine.
#ifndef SHOAL_SRC_CLIENT_CROWD_H_
#define SHOAL_SRC_CLIENT_CROWD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/client/client.h"
#include "src/client/transport.h"
#include "src/pir/engine.h"
#include "src/roster/roster.h"
#include "src/table/table.h"
#include "src/wire/client.pb.h"

namespace shoal::client {

// What devices can have installed.
struct CrowdKeys {
  std::vector<Bytes> listed;
  // If not 0: the keys 0 .. dense - 1 of a dense table, in place of `listed`.
  uint64_t dense = 0;

  uint64_t size() const { return dense != 0 ? dense : listed.size(); }
  Bytes At(uint64_t number) const;
};

struct CrowdOptions {
  // Nothing: the chain.
  std::optional<pir::Engine> engine;
  uint32_t devices = 1000;
  // Queries of every device, or:
  uint32_t pad_to = 64;
  // of all devices together, shared out evenly; 0: pad_to each.
  uint64_t queries = 0;
  // Applications of a device: uniform between these, different ones.
  uint32_t min_apps = 20;
  uint32_t max_apps = 60;
  // Or as many as the device has queries.
  bool fill = false;
  // Popularity: the application of rank r is drawn with probability proportional to r^-zipf. 0 is
  // uniform; about 1 fits what people install.
  double zipf = 1.0;
  // This share of a device's applications is not in the table.
  double absent = 0;
  // Connections at a time.
  uint32_t connections = 16;
  // Every device has connections of its own, a new one for each stage, as in a real crowd. Otherwise
  // `connections` connections carry the requests of all, small devices' together in pieces of a
  // megabyte: for crowds whose handshakes would be most of the work.
  bool own_connections = true;
  // Of the popularity's ranks and of what every device has installed. Nothing cryptographic.
  uint64_t seed = 1;
  // Verify the signature of every answer, as the devices of a real crowd do. Otherwise an answer that
  // is byte for byte one that was verified for the same row counts as verified: as sure, and much
  // faster where many devices ask the same rows.
  bool verify_each = true;
  // For a round that takes onions.
  uint32_t timeout_s = 600;
  // Of arrays in one request or response.
  size_t piece_bytes = kMaxBulkBytes;
};

// INVALID_ARGUMENT names what is wrong. `keys`: how many there are to choose from.
absl::Status CheckCrowd(const CrowdOptions& options, uint64_t keys);

// Which keys each device has: a function of options and keys alone. Immutable, thread-safe. Memory: 12
// bytes a key unless zipf is 0.
class Popularity {
 public:
  // The options have been checked; `keys` outlive it. No device pads to more than `table_rows`.
  Popularity(const CrowdOptions& options, const CrowdKeys* keys, uint64_t table_rows);

  // Queries of a device, and of all before it.
  uint64_t QueriesOf(uint32_t device) const;
  uint64_t QueriesBefore(uint32_t device) const;

  // The applications of a device, all different: numbers of keys, or kAbsent + i for its i-th one if
  // that is in no table.
  std::vector<uint32_t> AppsOf(uint32_t device) const;
  static constexpr uint32_t kAbsent = 1u << 31;
  Bytes KeyOf(uint32_t device, uint32_t app) const;
  // For tests: the key of rank 1, 2, .. when zipf is not 0.
  Bytes Ranked(size_t rank) const { return keys_->At(order_[rank - 1]); }

 private:
  const CrowdOptions options_;
  const CrowdKeys* const keys_;
  const uint64_t pad_to_;
  Digest seed_;
  std::vector<uint32_t> order_;        // by rank: number of the key
  std::vector<double> cumulative_;     // weights of ranks 1..i+1
};

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
  // time, in this order. With an engine: hint, draw, make (the queries), wait online (queries sent, until
  // the answers are here), check (recover and verify).
  std::vector<Stage> stages;
  double seconds = 0;  // all of it
  // Processor time of the whole crowd: sealing onions, or making an engine's queries; unmasking or
  // recovering, and checking, answers; everything.
  double seal_cpu_seconds = 0;
  double check_cpu_seconds = 0;
  double cpu_seconds = 0;
  uint64_t peak_memory_bytes = 0;  // of this process, so far

  // By all devices. An engine's hint is in costs: every device needs it, one of them fetched it.
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;

  // Of one query, from the moment its request is sent to the moment its answer is here: below these for
  // half of all queries, for 90 % and 99 %, and the longest. The chain's waits for the batch. 0 if there
  // was no answer.
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
using CrowdProgress =
    std::function<void(const std::string& stage, uint64_t done, uint64_t total)>;

// One round of the whole crowd, or all its queries to an engine. `expected`, if there is one, is what answers are compared with; it
// must be the deployment's table. Errors: as Client::LookUp; that single devices are lost or answers
// wrong is in the report.
//
// With an engine, errors are FetchSetup's and ObtainHint's, and INVALID_ARGUMENT when a device's
// queries are more than fits memory at a time.
//
// Memory: 8 bytes a query (slot and row), 57 a device (seed, whether it is lost, when it submitted, a
// latency; more if its queries take several requests), Popularity's, 33 a row of the table unless
// verify_each; for every connection some pieces of kMaxBulkBytes and about 30 bytes for every query of
// one device. With an engine: its client (Sizes::hint_memory_bytes), and 256 MiB of queries and answers
// at a time.
absl::StatusOr<CrowdReport> RunCrowd(const CrowdOptions& options, const roster::PinnedParties& pins,
                                     const CrowdKeys& keys, const table::UnsignedTable* expected,
                                     const TransportFactory& connect, Environment environment,
                                     const CrowdProgress& progress);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CROWD_H_
