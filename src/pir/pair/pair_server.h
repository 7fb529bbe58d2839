// A server of the engine `pair` (pair.h): a copy of the table, which up to 16 queries pass
// together.
#ifndef SHOAL_SRC_PIR_PAIR_PAIR_SERVER_H_
#define SHOAL_SRC_PIR_PAIR_PAIR_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/pair/pair_shape.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::pair {

// For both roles. The table is read piece by piece, as long as fits into a cache: the bits of all
// queries of a pass for the rows of a piece are made, and the piece is scanned for them
// (src/select/select.h). So the bits of all rows are never in memory at once.
class PairTableServer final : public Server {
 public:
  // Queries that share a pass.
  static constexpr size_t kTogether = 16;

  // Of a setup that the engine made for the content. RESOURCE_EXHAUSTED if it does not fit the
  // memory.
  static absl::StatusOr<std::unique_ptr<PairTableServer>> Create(wire::PirSetup setup,
                                                                 const Content& content,
                                                                 const ServerOptions& options);

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override {
    return kMaxQueriesPerRequest * shape_.query_bytes();
  }
  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override;
  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override;
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override;

 private:
  PairTableServer(wire::PirSetup setup, const PairShape& shape, PageBuffer table, ThreadPool* pool);

  // A query's bits for all rows, or its key.
  absl::StatusOr<BytesView> Read(Role role, BytesView query) const;
  absl::StatusOr<std::vector<Bytes>> AnswerTogether(std::span<const BytesView> bodies) const;

  wire::PirSetup setup_;
  PairShape shape_;
  PageBuffer table_;  // of room_ rows
  const uint64_t room_;
  ThreadPool* const pool_;
  Digest id_;
};

}  // namespace shoal::pir::pair

#endif  // SHOAL_SRC_PIR_PAIR_PAIR_SERVER_H_
