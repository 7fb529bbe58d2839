// What all servers have in common that answer from a copy of the table's rows: the checks of
// requests, and the step to the next epoch, for which clients get the rows that changed
// (row_changes.h). Every request has a count of 1, and its body begins with the setup's id.
#ifndef SHOAL_SRC_PIR_KIT_TABLE_SERVER_H_
#define SHOAL_SRC_PIR_KIT_TABLE_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir {

class TableServer : public Server {
 public:
  const wire::PirSetup& setup() const final { return setup_; }
  uint64_t max_request_bytes() const final { return sizeof(Digest) + max_body_bytes_; }
  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override;
  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const final;
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) final;

  // Copies all rows, one after the other.
  static void LoadRows(const Content& content, const ServerOptions& options, MutableBytes table);

 protected:
  // `table` has the setup's rows, and behind them whatever the engine wants. No body has more than
  // `max_body_bytes` behind the setup's id. A delta is worth it up to half of what a client would
  // fetch without one.
  TableServer(wire::PirSetup setup, uint64_t max_body_bytes, uint64_t fetched_bytes,
              PageBuffer table, ThreadPool* pool);

  // How long the body of such a request is behind the setup's id; nothing if the role has none.
  virtual std::optional<uint64_t> BodyBytes(Role role, uint32_t kind) const = 0;
  virtual absl::StatusOr<Bytes> AnswerTo(uint32_t kind, BytesView body) const = 0;
  // What of the setup depends on the rows, once these have changed.
  virtual void RowsChanged(std::span<const uint64_t> /*changed_rows*/, wire::PirSetup& /*setup*/) {}

  ThreadPool* pool() const { return pool_; }
  BytesView table() const { return table_; }
  std::string Says(absl::string_view what) const;

 private:
  absl::Status CheckNext(const Content& content, std::span<const uint64_t> changed_rows) const;
  absl::StatusOr<Bytes> AnswerOne(Role role, const RequestView& request) const;

  wire::PirSetup setup_;
  const uint64_t max_body_bytes_, fetched_bytes_;
  PageBuffer table_;
  ThreadPool* const pool_;
  Digest id_;
};

// Of engines with an offline and an online server.
//
//   kind  role               what
//   0     offline, online    a query
//   1     offline            hints for one client: heavy work
class PairServer : public TableServer {
 public:
  static constexpr uint32_t kQuery = 0;
  static constexpr uint32_t kHints = 1;

 protected:
  // Of bodies behind the setup's id, and of the hints of one client.
  struct Lengths {
    uint64_t query = 0, hints = 0, client = 0;
  };
  PairServer(wire::PirSetup setup, Lengths lengths, PageBuffer table, const ServerOptions& options);

  // Of the lengths above.
  virtual absl::StatusOr<Bytes> AnswerQuery(BytesView query) const = 0;
  virtual absl::StatusOr<Bytes> MakeHints(BytesView body) const = 0;

  ThreadPool* heavy_pool() const { return heavy_pool_; }
  // What MakeHints returns once stop_heavy() is true.
  const std::atomic<bool>* stop_heavy() const { return stop_heavy_; }
  absl::Status Stopped() const;

 private:
  std::optional<uint64_t> BodyBytes(Role role, uint32_t kind) const final;
  absl::StatusOr<Bytes> AnswerTo(uint32_t kind, BytesView body) const final;

  const Lengths lengths_;
  ThreadPool* const heavy_pool_;
  const std::atomic<bool>* const stop_heavy_;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_TABLE_SERVER_H_
