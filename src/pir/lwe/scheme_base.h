// What the servers of both schemes have in common, and their clients.
#ifndef SHOAL_SRC_PIR_LWE_SCHEME_BASE_H_
#define SHOAL_SRC_PIR_LWE_SCHEME_BASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/lwe/batch.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/shape.h"

namespace shoal::pir::lwe {

class ServerBase : public Server {
 public:
  const wire::PirSetup& setup() const final { return setup_; }
  BytesView hint() const final { return hint_; }
  uint64_t max_request_bytes() const final { return kMaxQueriesPerRequest * sizes_.query_bytes; }
  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const final;
  std::vector<absl::StatusOr<Bytes>> Answer(std::span<const BytesView> queries) const final;

 protected:
  // Takes over the setup, whose sizes and dropped bits these are, and makes room for products.
  // RESOURCE_EXHAUSTED, before anything is made, if there is no memory for the server.
  absl::Status Begin(wire::PirSetup setup, const Sizes& sizes, uint32_t hint_bits_dropped,
                     const ServerOptions& options, const Kernel* kernel);
  // The hint is this product, rounded; the setup is then whole.
  void PackHint(std::span<const uint32_t> product);
  // The answers to queries that have been checked, at least one, in one pass.
  virtual absl::StatusOr<std::vector<Bytes>> AnswerChecked(
      std::span<const BytesView> queries) const = 0;

  wire::PirSetup setup_;
  Digest id_ = {};
  Sizes sizes_;
  uint32_t hint_bits_dropped_ = 0;
  const Kernel* kernel_ = nullptr;
  ThreadPool* pool_ = nullptr;
  std::optional<PackedVectors> room_;  // PanelRoom

 private:
  Bytes hint_;
};

class ClientBase : public Client {
 public:
  const wire::PirSetup& setup() const final { return setup_; }
  Need needed(uint64_t) const final { return hint_.empty() ? Need::kHint : Need::kNothing; }
  // Unpacks the hint. RESOURCE_EXHAUSTED, before that, if there is no memory for it.
  absl::Status TakeHint(BytesView hint) final;
  using Client::Ask;
  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) final;
  uint64_t KeysPerStep() const final { return QueriesPerRequest(sizes_); }

 protected:
  // Of a setup whose sizes and dropped bits these are.
  ClientBase(const wire::PirSetup& setup, const Sizes& sizes, uint32_t hint_bits_dropped,
             const ClientOptions& options)
      : setup_(setup),
        sizes_(sizes),
        hint_bits_dropped_(hint_bits_dropped),
        kernel_(&KernelOr(options.kernel)) {}
  // Queries that hide the rows' columns by `product`, with their secrets.
  absl::StatusOr<std::vector<Asked>> AskForColumns(const PublicProduct& product,
                                                   std::span<const uint64_t> rows,
                                                   RandomSource& random) const;
  // As Advance. `sizes_of` is the scheme's own; the hint is a product with the public matrix of
  // `seed` and `columns`.
  absl::Status AdvanceTo(const DeltaView& delta,
                         absl::StatusOr<Sizes> (*sizes_of)(const wire::PirSetup& shape),
                         const Digest& seed, uint64_t columns);

  wire::PirSetup setup_;
  const Sizes sizes_;  // of all epochs that deltas lead to, as they keep the shape
  const uint32_t hint_bits_dropped_;
  const Kernel* const kernel_;
  std::vector<uint32_t> hint_;  // empty until there is one
};

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_SCHEME_BASE_H_
