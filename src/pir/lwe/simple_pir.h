// SimplePIR (USENIX Security 2023, section 4, figure 2), with records of any size (section 4.3).
//
//   hint    D' A, D' the table's bytes less 128: L x 1024 words of 32 - h bits, L = k W
//   query   A s + e + 2^24 u_column: one word a column
//   answer  D' query: L words of 12 bits
//
// with k = rows_per_column, W = record_bytes, and h the largest number of bits that can be dropped
// (HintBitsToDrop). The client reads its W words of the answer, and needs W rows of the hint.
#ifndef SHOAL_SRC_PIR_LWE_SIMPLE_PIR_H_
#define SHOAL_SRC_PIR_LWE_SIMPLE_PIR_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/scheme_base.h"
#include "src/pir/lwe/shape.h"

namespace shoal::pir::lwe {

absl::StatusOr<Sizes> SimplePirSizes(const wire::PirSetup& setup);
// As ShapeOf.
absl::StatusOr<wire::PirSetup> SimplePirShape(const Content& content, const ServerOptions& options);

class SimplePirServer final : public ServerBase {
 public:
  static absl::StatusOr<std::unique_ptr<SimplePirServer>> Create(const Content& content,
                                                                 ServerOptions options,
                                                                 const Kernel* kernel);

  std::span<const uint32_t> product() const override { return product_; }
  // An answer has only the words of its chunk.
  absl::StatusOr<std::vector<Bytes>> AnswerChunks(
      std::span<const BytesView> queries) const override;
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override;
  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override;

 private:
  SimplePirServer() = default;
  absl::StatusOr<std::vector<Bytes>> AnswerChecked(
      std::span<const BytesView> queries) const override;

  std::optional<ByteMatrix> matrix_;
  std::vector<uint32_t> product_;  // D' A, [row][k]
};

class SimplePirClient final : public ClientBase {
 public:
  static absl::StatusOr<std::unique_ptr<SimplePirClient>> Create(const wire::PirSetup& setup,
                                                                 const ClientOptions& options);

  using ClientBase::Ask;
  absl::StatusOr<std::vector<Asked>> Ask(std::span<const uint64_t> rows,
                                         RandomSource& random) const override;
  absl::StatusOr<Bytes> Recover(const Asked& asked, BytesView answer) const override;
  absl::StatusOr<Bytes> RecoverChunk(const Asked& asked, uint64_t chunks,
                                     BytesView answer) const override;
  absl::Status Advance(const DeltaView& delta) override;

 private:
  SimplePirClient(const wire::PirSetup& setup, const Sizes& sizes, uint32_t hint_bits_dropped,
                  const ClientOptions& options);
  // `words`: the answer's words for the record.
  Bytes Decrypt(const Asked& asked, std::span<const uint32_t> words) const;

  PublicProduct product_;
};

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_SIMPLE_PIR_H_
