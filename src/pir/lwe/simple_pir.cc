#include "src/pir/lwe/simple_pir.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/rounding.h"

namespace shoal::pir::lwe {
namespace {

constexpr absl::string_view kName = "simplepir";

absl::StatusOr<uint32_t> HintDrop(const wire::PirSetup& setup) {
  return HintBitsToDrop(setup.columns(), setup.record_bytes(), kAnswerBitsDropped);
}

Digest MatrixSeed(const wire::PirSetup& setup) {
  Digest id;
  std::copy(setup.table_id().begin(), setup.table_id().end(), id.begin());
  return PublicMatrixSeed(kName, id, 1);
}

std::vector<Bytes> Rounded(const std::vector<std::vector<uint32_t>>& products) {
  std::vector<Bytes> answers(products.size());
  for (size_t i = 0; i < products.size(); ++i) {
    AppendRounded(products[i], kAnswerBitsDropped, answers[i]);
  }
  return answers;
}

}  // namespace

absl::StatusOr<Sizes> SimplePirSizes(const wire::PirSetup& setup) {
  SHOAL_RETURN_IF_ERROR(CheckShape(setup));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t dropped, HintDrop(setup));
  const uint64_t rows = MatrixRows(setup);
  Sizes sizes;
  sizes.hint_bytes = RoundedBytes(rows * kDimension, dropped);
  sizes.hint_memory_bytes = rows * kDimension * sizeof(uint32_t);
  sizes.query_bytes = kQueryHeaderBytes + setup.columns() * sizeof(uint32_t);
  sizes.answer_bytes = RoundedBytes(rows, kAnswerBitsDropped);
  sizes.server_bytes = rows * setup.columns() + sizes.hint_memory_bytes + sizes.hint_bytes;
  return sizes;
}

absl::StatusOr<wire::PirSetup> SimplePirShape(const Content& content,
                                              const ServerOptions& options) {
  wire::PirSetup setup = MakeShape(kName, content, options, 1);
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SimplePirSizes(setup));
  if (sizes.hint_bytes > options.max_hint_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "simplepir: a hint of %d MiB is larger than the allowed %d MiB: use fewer rows a column",
        sizes.hint_bytes >> 20, options.max_hint_bytes >> 20));
  }
  return setup;
}

absl::StatusOr<std::unique_ptr<SimplePirServer>> SimplePirServer::Create(const Content& content,
                                                                         ServerOptions options,
                                                                         const Kernel* kernel) {
  std::unique_ptr<SimplePirServer> server(new SimplePirServer);
  SHOAL_ASSIGN_OR_RETURN(const wire::PirSetup setup, SimplePirShape(content, options));
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SimplePirSizes(setup));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t dropped, HintDrop(setup));
  SHOAL_RETURN_IF_ERROR(server->Begin(setup, sizes, dropped, options, kernel));
  SHOAL_ASSIGN_OR_RETURN(server->matrix_, LoadMatrix(content, setup, options.pool));
  SHOAL_ASSIGN_OR_RETURN(server->product_,
                         ProductOf(*server->matrix_, MatrixSeed(setup), *server->room_, options));
  server->PackHint(server->product_);
  return server;
}

absl::StatusOr<std::vector<Bytes>> SimplePirServer::AnswerChecked(
    std::span<const BytesView> queries) const {
  SHOAL_ASSIGN_OR_RETURN(PackedVectors packed,
                         PackedVectors::Create(*kernel_, setup_.columns(), queries.size()));
  for (size_t i = 0; i < queries.size(); ++i) SetQuery(queries[i], 0, i, packed);
  return Rounded(matrix_->Multiply(packed, 0, matrix_->rows(), pool_));
}

absl::StatusOr<std::vector<Bytes>> SimplePirServer::AnswerChunks(
    std::span<const BytesView> queries) const {
  SHOAL_ASSIGN_OR_RETURN(const auto products, MultiplyChunks(setup_, id_, sizes_.query_bytes,
                                                             queries, *kernel_, *matrix_, pool_));
  return Rounded(products);
}

absl::StatusOr<std::optional<Delta>> SimplePirServer::Refresh(
    const Content& content, std::span<const uint64_t> changed_rows) {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, content, changed_rows));
  const Digest from = id_;
  std::optional<Bytes> changes = RefreshProduct({.room = &*room_,
                                                 .pool = pool_,
                                                 .seed = MatrixSeed(setup_),
                                                 .hint_bits_dropped = hint_bits_dropped_,
                                                 .max_delta_bytes = sizes_.hint_bytes - 1,
                                                 .matrix = &*matrix_,
                                                 .product = &product_},
                                                RunsOf(setup_, content, changed_rows));
  SetEpoch(content, setup_);
  PackHint(product_);
  return DeltaOf(from, setup_, std::move(changes));
}

absl::StatusOr<double> SimplePirServer::RefreshShare(const Content& content,
                                                     std::span<const uint64_t> changed_rows) const {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, content, changed_rows));
  return lwe::RefreshShare(*matrix_, hint_bits_dropped_, /*told=*/true,
                           RunsOf(setup_, content, changed_rows));
}

SimplePirClient::SimplePirClient(const wire::PirSetup& setup, const Sizes& sizes,
                                 uint32_t hint_bits_dropped, const ClientOptions& options)
    : ClientBase(setup, sizes, hint_bits_dropped, options),
      product_(MatrixSeed(setup), setup.columns(), options) {}

absl::StatusOr<std::unique_ptr<SimplePirClient>> SimplePirClient::Create(
    const wire::PirSetup& setup, const ClientOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SimplePirSizes(setup));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t dropped, HintDrop(setup));
  return std::unique_ptr<SimplePirClient>(new SimplePirClient(setup, sizes, dropped, options));
}

absl::StatusOr<std::vector<Asked>> SimplePirClient::Ask(std::span<const uint64_t> rows,
                                                        RandomSource& random) const {
  return AskForColumns(product_, rows, random);
}

Bytes SimplePirClient::Decrypt(const Asked& asked, std::span<const uint32_t> words) const {
  const uint64_t first = asked.row % setup_.rows_per_column() * setup_.record_bytes();
  Bytes record(setup_.record_bytes());
  for (size_t w = 0; w < record.size(); ++w) {
    const uint32_t mask =
        kernel_->dot(hint_.data() + (first + w) * kDimension, asked.secret.data(), kDimension);
    record[w] = DecodeByte(words[w] - mask);
  }
  return record;
}

absl::StatusOr<Bytes> SimplePirClient::Recover(const Asked& asked, BytesView answer) const {
  SHOAL_CHECK(asked.row < setup_.rows() && asked.secret.size() == kDimension);
  std::vector<uint32_t> words(MatrixRows(setup_));
  SHOAL_RETURN_IF_ERROR(ParseRounded(answer, kAnswerBitsDropped, words));
  const uint64_t first = asked.row % setup_.rows_per_column() * setup_.record_bytes();
  return Decrypt(asked, std::span(words).subspan(first, setup_.record_bytes()));
}

absl::StatusOr<Bytes> SimplePirClient::RecoverChunk(const Asked& asked, uint64_t chunks,
                                                    BytesView answer) const {
  SHOAL_CHECK(asked.row < setup_.rows() && asked.secret.size() == kDimension && chunks > 0);
  const uint64_t blocks = ChunkBlocks(setup_, chunks);
  const uint64_t block = asked.row % setup_.rows_per_column();
  const uint64_t here = std::min(blocks, setup_.rows_per_column() - block / blocks * blocks);
  std::vector<uint32_t> words(here * setup_.record_bytes());
  SHOAL_RETURN_IF_ERROR(ParseRounded(answer, kAnswerBitsDropped, words));
  return Decrypt(asked, std::span(words).subspan(block % blocks * setup_.record_bytes(),
                                                 setup_.record_bytes()));
}

absl::Status SimplePirClient::Advance(const DeltaView& delta) {
  return AdvanceTo(delta, SimplePirSizes, MatrixSeed(setup_), setup_.columns());
}

}  // namespace shoal::pir::lwe
