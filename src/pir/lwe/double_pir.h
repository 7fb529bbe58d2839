// DoublePIR (USENIX Security 2023, section 5): SimplePIR's hint and answer are themselves fetched
// by SimplePIR, so that the client needs a hint that does not grow with the table.
//
//   level 1   as SimplePIR: H = D' A1 (L x 1024), a = D' query1 (L words), L = k W
//   level 2   H's words, rounded to 24 bits, are three bytes each. E has a row for every byte of a
//             record, every one of the 1024 words of a hint row and every one of the word's three
//             bytes; it has k columns, one for every block. F is the same for a.
//
//   hint    E' A2: 3072 W x 1024 words of 32 - h bits, whatever the table's size
//   query   query1 (a word a column of D), query2 (a word a block)
//   answer  E' query2 (3072 W words of 12 bits), F' query2 (3 W words of 12 bits),
//           F' A2 (3 W x 1024 words of 32 - h bits)
//
// Hint and answer grow with W: the recursion hides 1025 words of 24 bits for every byte of a
// record, and no order of the bytes in the matrix changes that. For records of 1 KB the hint would
// have 7.5 GB; such a table is refused, as is any whose hint is larger than
// ServerOptions::max_hint_bytes. SimplePIR's hint is the smaller one unless a column has more than
// 3072 records.
#ifndef SHOAL_SRC_PIR_LWE_DOUBLE_PIR_H_
#define SHOAL_SRC_PIR_LWE_DOUBLE_PIR_H_

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

absl::StatusOr<Sizes> DoublePirSizes(const wire::PirSetup& setup);
// As ShapeOf.
absl::StatusOr<wire::PirSetup> DoublePirShape(const Content& content, const ServerOptions& options);

class DoublePirServer final : public ServerBase {
 public:
  static absl::StatusOr<std::unique_ptr<DoublePirServer>> Create(const Content& content,
                                                                 ServerOptions options,
                                                                 const Kernel* kernel);

  std::span<const uint32_t> product() const override { return first_product_; }
  // Answers are as those of Answer; their last part, F' A2, is the same for all.
  absl::StatusOr<std::vector<Bytes>> AnswerChunks(
      std::span<const BytesView> queries) const override;
  // The delta has about 6 KiB of changes for every byte of a record, for every block with a changed
  // row.
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override;
  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override;

 private:
  DoublePirServer() = default;
  // E's column of a block, from the first level's product: 3072 W bytes.
  Bytes Digits(uint64_t block) const;
  absl::StatusOr<std::vector<Bytes>> AnswerChecked(
      std::span<const BytesView> queries) const override;
  // The answers to queries whose second vectors are `second`. `first` holds the first level's
  // answer for each of them, or one for all.
  absl::StatusOr<std::vector<Bytes>> AnswerSecond(
      std::span<const std::vector<uint32_t>> first_answers, const PackedVectors& second) const;

  std::optional<ByteMatrix> first_;             // D
  std::vector<uint32_t> first_product_;         // H
  std::optional<ByteMatrix> second_;            // E
  std::optional<PackedVectors> second_public_;  // A2
  std::vector<uint32_t> second_product_;        // E' A2
};

class DoublePirClient final : public ClientBase {
 public:
  static absl::StatusOr<std::unique_ptr<DoublePirClient>> Create(const wire::PirSetup& setup,
                                                                 const ClientOptions& options);

  using ClientBase::Ask;
  absl::StatusOr<std::vector<Asked>> Ask(std::span<const uint64_t> rows,
                                         RandomSource& random) const override;
  absl::StatusOr<Bytes> Recover(const Asked& asked, BytesView answer) const override;
  absl::StatusOr<Bytes> RecoverChunk(const Asked& asked, uint64_t chunks,
                                     BytesView answer) const override;
  absl::Status Advance(const DeltaView& delta) override;

 private:
  DoublePirClient(const wire::PirSetup& setup, const Sizes& sizes, uint32_t hint_bits_dropped,
                  const ClientOptions& options);

  PublicProduct first_;
  PublicProduct second_;
};

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_DOUBLE_PIR_H_
