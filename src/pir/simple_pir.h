// SimplePIR (USENIX Security 2023, section 4, figure 2), with records of any size (section 4.3).
//
//   hint    D' A, D' the table's bytes less 128: L x 1024 words of 32 - h bits, L = k W
//   query   A s + e + 2^24 u_column: one word a column
//   answer  D' query: L words of 12 bits
//
// with k = rows_per_column, W = record_bytes, and h as many bits as correctness lets go
// (HintBitsToDrop). The client reads its W words of the answer, and needs W rows of the hint.
#ifndef SHOAL_SRC_PIR_SIMPLE_PIR_H_
#define SHOAL_SRC_PIR_SIMPLE_PIR_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/pir/byte_matrix.h"
#include "src/pir/engine.h"
#include "src/pir/shape.h"

namespace shoal::pir {

absl::StatusOr<Sizes> SimplePirSizes(const wire::PirSetup& setup);

// The server's setup but for the hint's digest. Errors as SimplePirServer::Create, but for memory.
absl::StatusOr<wire::PirSetup> PlanSimplePir(const Content& content, const ServerOptions& options);

class SimplePirServer final : public Server {
 public:
  static absl::StatusOr<std::unique_ptr<SimplePirServer>> Create(const Content& content,
                                                                 const ServerOptions& options);

  const wire::PirSetup& setup() const override { return setup_; }
  BytesView hint() const override { return hint_; }
  std::vector<absl::StatusOr<Bytes>> Answer(std::span<const BytesView> queries) const override;
  absl::StatusOr<Delta> Refresh(const Content& content,
                                std::span<const uint64_t> changed_rows) override;

  // The paper's batch (section 4.3): blocks are dealt into queries.size() chunks of ceil(k / chunks)
  // (SimplePirChunk), and query i is answered over chunk i alone: all of them together are one pass.
  // The hint is the same. INVALID_ARGUMENT, FAILED_PRECONDITION as Answer, for all queries at once.
  absl::StatusOr<std::vector<Bytes>> AnswerChunks(std::span<const BytesView> queries) const;

 private:
  SimplePirServer() = default;
  absl::StatusOr<PackedVectors> Pack(std::span<const BytesView> queries) const;
  void PackHint();

  wire::PirSetup setup_;
  Digest id_ = {};
  Sizes sizes_;
  uint32_t hint_bits_dropped_ = 0;
  const Kernel* kernel_ = nullptr;
  ThreadPool* pool_ = nullptr;
  std::optional<ByteMatrix> matrix_;
  std::vector<uint32_t> product_;  // D' A, [row][k]
  Bytes hint_;
};

// Which chunk of a batch of `chunks` queries record `row` is in.
uint64_t SimplePirChunk(const wire::PirSetup& setup, uint64_t chunks, uint64_t row);

class SimplePirClient final : public Client {
 public:
  static absl::StatusOr<std::unique_ptr<SimplePirClient>> Create(const wire::PirSetup& setup,
                                                                 BytesView hint,
                                                                 const ClientOptions& options);

  const wire::PirSetup& setup() const override { return setup_; }
  absl::StatusOr<Asked> Ask(uint64_t row, RandomSource& random) const override;
  absl::StatusOr<Bytes> Recover(const Asked& asked, BytesView answer) const override;
  absl::Status Apply(const Delta& delta) override;

  // As Recover, of an answer over the row's chunk alone.
  absl::StatusOr<Bytes> RecoverChunk(const Asked& asked, uint64_t chunks, BytesView answer) const;

 private:
  SimplePirClient(const wire::PirSetup& setup, PublicProduct product)
      : setup_(setup), product_(std::move(product)) {}
  // `words`: the answer's words for the record.
  Bytes Decrypt(const Asked& asked, std::span<const uint32_t> words) const;

  wire::PirSetup setup_;
  const Kernel* kernel_ = nullptr;
  PublicProduct product_;
  std::vector<uint32_t> hint_;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_SIMPLE_PIR_H_
