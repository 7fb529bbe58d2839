// What the servers of engines with an offline and an online one have in common: a copy of the rows,
// the checks of requests, the step to the next epoch. Every request has a count of 1 and begins
// with the setup's id.
//
//   kind  role               what
//   0     offline, online    a query
//   1     offline            hints for one client: heavy work
#ifndef SHOAL_SRC_PIR_SETS_PAIR_SERVER_H_
#define SHOAL_SRC_PIR_SETS_PAIR_SERVER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::sets {

class PairServer : public Server {
 public:
  static constexpr uint32_t kQuery = 0;
  static constexpr uint32_t kHints = 1;

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override;
  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override;
  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override;
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override;

  // Copies all rows, one after the other.
  static void LoadRows(const Content& content, const ServerOptions& options, MutableBytes table);

 protected:
  // Bytes behind the setup's id, and what a client keeps, of which a delta has half at most.
  struct Lengths {
    uint64_t query = 0, hints = 0, client = 0;
  };
  // `table`: room for the setup's rows (LoadRows), and whatever the engine wants behind them.
  PairServer(wire::PirSetup setup, Lengths lengths, PageBuffer table, const ServerOptions& options);

  // Of the lengths above.
  virtual absl::StatusOr<Bytes> AnswerQuery(BytesView query) const = 0;
  virtual absl::StatusOr<Bytes> MakeHints(BytesView body) const = 0;

  BytesView table() const { return table_; }
  ThreadPool* heavy_pool() const { return heavy_pool_; }
  // What MakeHints returns once stop_heavy() is true.
  const std::atomic<bool>* stop_heavy() const { return stop_heavy_; }
  absl::Status Stopped() const;

 private:
  std::string Says(absl::string_view what) const;
  absl::Status CheckNext(const Content& content, std::span<const uint64_t> changed_rows) const;
  absl::StatusOr<Bytes> AnswerOne(Role role, const RequestView& request) const;

  wire::PirSetup setup_;
  const Lengths lengths_;
  PageBuffer table_;
  ThreadPool* const pool_;
  ThreadPool* const heavy_pool_;
  const std::atomic<bool>* const stop_heavy_;
  Digest id_;
};

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_PAIR_SERVER_H_
