#include "src/pir/lwe/double_pir.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/rounding.h"

namespace shoal::pir::lwe {
namespace {

constexpr absl::string_view kName = "doublepir";

// Words of the first level travel as three bytes: their low 8 bits are dropped.
constexpr uint32_t kDigits = 3;
constexpr uint32_t kFirstBitsDropped = 32 - 8 * kDigits;
// Rows of E for one byte of a record.
constexpr uint64_t kRowsPerByte = uint64_t{kDigits} * kDimension;
// D has about a third of the rows that a square would have. The second level's work grows with the
// rows, and so is a small part of the whole.
constexpr uint64_t kShapeDivisor = 3;

uint64_t SecondColumns(const wire::PirSetup& setup) {
  return PaddedColumns(setup.rows_per_column());
}

uint64_t SecondRows(const wire::PirSetup& setup) { return kRowsPerByte * setup.record_bytes(); }

absl::StatusOr<uint32_t> HintDrop(const wire::PirSetup& setup) {
  const double first = FailureLog2({.columns = setup.columns(),
                                    .values = setup.record_bytes(),
                                    .hint_bits_dropped = kFirstBitsDropped,
                                    .answer_bits_dropped = kFirstBitsDropped});
  if (first > kMaxFailureLog2 - 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("doublepir: a matrix of %d columns is too wide: its answers could not be "
                        "decrypted reliably; put more rows of the table into a column",
                        setup.columns()));
  }
  return HintBitsToDrop(SecondColumns(setup), (kRowsPerByte + kDigits) * setup.record_bytes(),
                        kAnswerBitsDropped);
}

Digest MatrixSeed(const wire::PirSetup& setup, uint32_t level) {
  Digest id;
  std::copy(setup.table_id().begin(), setup.table_id().end(), id.begin());
  return PublicMatrixSeed(kName, id, level);
}

// The three bytes of a first-level word, rounded.
inline uint32_t RoundFirst(uint32_t word) {
  return (word + (1u << (kFirstBitsDropped - 1))) >> kFirstBitsDropped;
}

struct AnswerLayout {
  uint64_t hint_part = 0;    // E' query2
  uint64_t answer_part = 0;  // F' query2
  uint64_t fresh_part = 0;   // F' A2
  uint64_t total() const { return hint_part + answer_part + fresh_part; }
};

AnswerLayout LayoutOf(const wire::PirSetup& setup, uint32_t hint_bits_dropped) {
  const uint64_t values = uint64_t{kDigits} * setup.record_bytes();
  return {.hint_part = RoundedBytes(SecondRows(setup), kAnswerBitsDropped),
          .answer_part = RoundedBytes(values, kAnswerBitsDropped),
          .fresh_part = RoundedBytes(values * kDimension, hint_bits_dropped)};
}

}  // namespace

absl::StatusOr<Sizes> DoublePirSizes(const wire::PirSetup& setup) {
  SHOAL_RETURN_IF_ERROR(CheckShape(setup));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t dropped, HintDrop(setup));
  Sizes sizes;
  sizes.hint_bytes = RoundedBytes(SecondRows(setup) * kDimension, dropped);
  sizes.hint_memory_bytes = SecondRows(setup) * kDimension * sizeof(uint32_t);
  sizes.query_bytes =
      kQueryHeaderBytes + (setup.columns() + SecondColumns(setup)) * sizeof(uint32_t);
  sizes.answer_bytes = LayoutOf(setup, dropped).total();
  sizes.server_bytes = MatrixRows(setup) * (setup.columns() + kDimension * sizeof(uint32_t)) +
                       SecondColumns(setup) * (SecondRows(setup) + kDimension * sizeof(uint32_t)) +
                       sizes.hint_memory_bytes + sizes.hint_bytes;
  return sizes;
}

absl::StatusOr<wire::PirSetup> DoublePirShape(const Content& content,
                                              const ServerOptions& options) {
  wire::PirSetup setup = MakeShape(kName, content, options, kShapeDivisor);
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, DoublePirSizes(setup));
  if (sizes.hint_bytes > options.max_hint_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "doublepir: records of %d bytes need a hint of %d MiB, more than the allowed %d MiB: the "
        "hint has %d MiB for every byte of a record; use simplepir for wide rows",
        setup.record_bytes(), sizes.hint_bytes >> 20, options.max_hint_bytes >> 20,
        (sizes.hint_bytes / setup.record_bytes()) >> 20));
  }
  return setup;
}

absl::StatusOr<std::unique_ptr<DoublePirServer>> DoublePirServer::Create(const Content& content,
                                                                         ServerOptions options,
                                                                         const Kernel* kernel) {
  std::unique_ptr<DoublePirServer> server(new DoublePirServer);
  SHOAL_ASSIGN_OR_RETURN(const wire::PirSetup setup, DoublePirShape(content, options));
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, DoublePirSizes(setup));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t dropped, HintDrop(setup));
  SHOAL_RETURN_IF_ERROR(server->Begin(setup, sizes, dropped, options, kernel));
  SHOAL_ASSIGN_OR_RETURN(server->first_, LoadMatrix(content, setup, options.pool));
  SHOAL_ASSIGN_OR_RETURN(server->first_product_,
                         ProductOf(*server->first_, MatrixSeed(setup, 1), *server->room_, options));
  SHOAL_ASSIGN_OR_RETURN(server->second_,
                         ByteMatrix::Create(SecondRows(setup), setup.rows_per_column()));
  const uint64_t blocks = setup.rows_per_column();
  const auto load = [&](size_t begin, size_t end) {
    for (size_t group = begin; group < end; ++group) {
      const uint64_t first = group * kGroupColumns;
      std::vector<Bytes> columns;
      for (uint64_t b = first; b < std::min(blocks, first + kGroupColumns); ++b) {
        columns.push_back(server->Digits(b));
      }
      for (uint64_t row = 0; row < server->second_->rows(); ++row) {
        uint8_t* out = server->second_->Group(row, first);
        for (size_t i = 0; i < columns.size(); ++i) out[i] = columns[i][row];
      }
    }
  };
  ParallelFor(options.pool, server->second_->columns() / kGroupColumns, 1, load);
  server->second_product_ =
      server->second_->MultiplyPublic(*server->room_, MatrixSeed(setup, 2), options.pool);
  SHOAL_ASSIGN_OR_RETURN(server->second_public_,
                         PackPublicMatrix(*server->kernel_, MatrixSeed(setup, 2),
                                          server->second_->columns(), options.pool));
  server->PackHint(server->second_product_);
  return server;
}

Bytes DoublePirServer::Digits(uint64_t block) const {
  const uint64_t first = block * setup_.record_bytes() * kDimension;
  const uint64_t words = uint64_t{setup_.record_bytes()} * kDimension;
  Bytes digits(words * kDigits);
  for (uint64_t i = 0; i < words; ++i) {
    const uint32_t rounded = RoundFirst(first_product_[first + i]);
    for (uint32_t d = 0; d < kDigits; ++d) {
      digits[i * kDigits + d] = static_cast<uint8_t>(rounded >> (8 * d));
    }
  }
  return digits;
}

absl::StatusOr<std::vector<Bytes>> DoublePirServer::AnswerChecked(
    std::span<const BytesView> queries) const {
  SHOAL_ASSIGN_OR_RETURN(PackedVectors first,
                         PackedVectors::Create(*kernel_, first_->columns(), queries.size()));
  SHOAL_ASSIGN_OR_RETURN(PackedVectors second,
                         PackedVectors::Create(*kernel_, second_->columns(), queries.size()));
  for (uint64_t v = 0; v < queries.size(); ++v) {
    SetQuery(queries[v], 0, v, first);
    SetQuery(queries[v], first_->columns(), v, second);
  }
  return AnswerSecond(first_->Multiply(first, 0, first_->rows(), pool_), second);
}

absl::StatusOr<std::vector<Bytes>> DoublePirServer::AnswerChunks(
    std::span<const BytesView> queries) const {
  if (queries.empty()) return std::vector<Bytes>();
  SHOAL_ASSIGN_OR_RETURN(const auto products, MultiplyChunks(setup_, id_, sizes_.query_bytes,
                                                             queries, *kernel_, *first_, pool_));
  SHOAL_ASSIGN_OR_RETURN(PackedVectors second,
                         PackedVectors::Create(*kernel_, second_->columns(), queries.size()));
  // The joined answer of the first level has, for every chunk, the words of that chunk's query. The
  // second level hides which of them a query wants.
  std::vector<uint32_t> joined;
  for (size_t i = 0; i < queries.size(); ++i) {
    SetQuery(queries[i], first_->columns(), i, second);
    joined.insert(joined.end(), products[i].begin(), products[i].end());
  }
  return AnswerSecond({&joined, 1}, second);
}

absl::StatusOr<std::vector<Bytes>> DoublePirServer::AnswerSecond(
    std::span<const std::vector<uint32_t>> first_answers, const PackedVectors& second) const {
  SHOAL_CHECK(first_answers.size() == second.count() || first_answers.size() == 1);
  const uint64_t width = setup_.record_bytes();
  const uint64_t rows = kDigits * width;  // of F, for one answer of the first level
  const auto hint_parts = second_->Multiply(second, 0, second_->rows(), pool_);

  // The matrices F of all queries, one below the other.
  SHOAL_ASSIGN_OR_RETURN(ByteMatrix digits,
                         ByteMatrix::Create(rows * first_answers.size(), setup_.rows_per_column()));
  for (uint64_t f = 0; f < first_answers.size(); ++f) {
    for (uint64_t i = 0; i < first_answers[f].size(); ++i) {
      const uint32_t rounded = RoundFirst(first_answers[f][i]);
      for (uint32_t d = 0; d < kDigits; ++d) {
        digits.Set(f * rows + i % width * kDigits + d, i / width,
                   static_cast<uint8_t>(rounded >> (8 * d)));
      }
    }
  }
  const auto fresh = digits.Multiply(*second_public_, 0, digits.rows(), pool_);
  const auto answer_parts = digits.Multiply(second, 0, digits.rows(), pool_);
  std::vector<Bytes> fresh_parts(first_answers.size());
  std::vector<uint32_t> fresh_rows(rows * kDimension);
  for (uint64_t f = 0; f < first_answers.size(); ++f) {
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint32_t k = 0; k < kDimension; ++k) {
        fresh_rows[r * kDimension + k] = fresh[k][f * rows + r];
      }
    }
    AppendRounded(fresh_rows, hint_bits_dropped_, fresh_parts[f]);
  }
  std::vector<Bytes> answers(second.count());
  for (uint64_t v = 0; v < second.count(); ++v) {
    const uint64_t f = first_answers.size() == 1 ? 0 : v;
    AppendRounded(hint_parts[v], kAnswerBitsDropped, answers[v]);
    AppendRounded(std::span(answer_parts[v]).subspan(f * rows, rows), kAnswerBitsDropped,
                  answers[v]);
    Append(answers[v], fresh_parts[f]);
  }
  return answers;
}

absl::StatusOr<std::optional<Delta>> DoublePirServer::Refresh(
    const Content& content, std::span<const uint64_t> changed_rows) {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, content, changed_rows));
  const Digest from = id_;
  RefreshProduct({.room = &*room_,
                  .pool = pool_,
                  .seed = MatrixSeed(setup_, 1),
                  .hint_bits_dropped = kFirstBitsDropped,
                  .max_delta_bytes = 0,
                  .matrix = &*first_,
                  .product = &first_product_},
                 RunsOf(setup_, content, changed_rows));
  // The second level's columns change only for blocks with a changed row, as the product of other
  // blocks stays the same.
  std::set<uint64_t> changed_blocks;
  for (uint64_t row : changed_rows) changed_blocks.insert(row % setup_.rows_per_column());
  const std::vector<uint64_t> blocks(changed_blocks.begin(), changed_blocks.end());
  const uint64_t block_digits = uint64_t{setup_.record_bytes()} * kDimension * kDigits;
  std::optional<Bytes> changes = RefreshProduct(
      {.room = &*room_,
       .pool = pool_,
       .seed = MatrixSeed(setup_, 2),
       .hint_bits_dropped = hint_bits_dropped_,
       .max_delta_bytes = sizes_.hint_bytes - 1,
       .matrix = &*second_,
       .product = &second_product_},
      {.count = blocks.size(),
       .at = [&](size_t run) -> Run {
         return {.column = blocks[run], .length = static_cast<uint32_t>(block_digits)};
       },
       .read = [&](size_t run,
                   MutableBytes out) { std::ranges::copy(Digits(blocks[run]), out.begin()); }});
  SetEpoch(content, setup_);
  PackHint(second_product_);
  return DeltaOf(from, setup_, std::move(changes));
}

// The share of the first level, which is nearly all of the work.
absl::StatusOr<double> DoublePirServer::RefreshShare(const Content& content,
                                                     std::span<const uint64_t> changed_rows) const {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, content, changed_rows));
  return lwe::RefreshShare(*first_, kFirstBitsDropped, /*told=*/false,
                           RunsOf(setup_, content, changed_rows));
}

DoublePirClient::DoublePirClient(const wire::PirSetup& setup, const Sizes& sizes,
                                 uint32_t hint_bits_dropped, const ClientOptions& options)
    : ClientBase(setup, sizes, hint_bits_dropped, options),
      first_(MatrixSeed(setup, 1), setup.columns(), options),
      second_(MatrixSeed(setup, 2), SecondColumns(setup), options) {}

absl::StatusOr<std::unique_ptr<DoublePirClient>> DoublePirClient::Create(
    const wire::PirSetup& setup, const ClientOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, DoublePirSizes(setup));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t dropped, HintDrop(setup));
  return std::unique_ptr<DoublePirClient>(new DoublePirClient(setup, sizes, dropped, options));
}

absl::StatusOr<std::vector<Asked>> DoublePirClient::Ask(std::span<const uint64_t> rows,
                                                        RandomSource& random) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Asked> asked, AskForColumns(first_, rows, random));
  std::vector<SecretVector<int32_t>> second(asked.size());
  std::vector<PublicProduct::Wanted> blocks;
  for (size_t i = 0; i < asked.size(); ++i) {
    blocks.push_back({asked[i].row % setup_.rows_per_column(), &second[i], &asked[i].query});
  }
  second_.Encrypt(blocks, random);
  for (size_t i = 0; i < asked.size(); ++i) {
    asked[i].secret.insert(asked[i].secret.end(), second[i].begin(), second[i].end());
  }
  return asked;
}

absl::StatusOr<Bytes> DoublePirClient::Recover(const Asked& asked, BytesView answer) const {
  SHOAL_CHECK(asked.row < setup_.rows() && asked.secret.size() == 2 * kDimension);
  const AnswerLayout layout = LayoutOf(setup_, hint_bits_dropped_);
  if (answer.size() != layout.total()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("doublepir: an answer of %d bytes, not %d", answer.size(), layout.total()));
  }
  const uint64_t width = setup_.record_bytes();
  std::vector<uint32_t> hint_part(SecondRows(setup_)), answer_part(kDigits * width),
      fresh(kDigits * width * kDimension);
  SHOAL_RETURN_IF_ERROR(
      ParseRounded(answer.first(layout.hint_part), kAnswerBitsDropped, hint_part));
  SHOAL_RETURN_IF_ERROR(ParseRounded(answer.subspan(layout.hint_part, layout.answer_part),
                                     kAnswerBitsDropped, answer_part));
  SHOAL_RETURN_IF_ERROR(ParseRounded(answer.last(layout.fresh_part), hint_bits_dropped_, fresh));

  const int32_t* const first_secret = asked.secret.data();
  const int32_t* const second_secret = first_secret + kDimension;
  // The first-level word whose digits are words[0 .. kDigits), masked by the rows of `masks`.
  const auto word_of = [&](const uint32_t* words, const uint32_t* masks) {
    uint32_t word = 0;
    for (uint32_t d = 0; d < kDigits; ++d) {
      const uint8_t digit =
          DecodeByte(words[d] - kernel_->dot(masks + d * kDimension, second_secret, kDimension));
      word |= static_cast<uint32_t>(digit) << (8 * d + kFirstBitsDropped);
    }
    return word;
  };
  Bytes record(width);
  SecretVector<uint32_t> hint_row(kDimension);
  for (uint64_t w = 0; w < width; ++w) {
    for (uint32_t k = 0; k < kDimension; ++k) {
      const uint64_t row = (w * kDimension + k) * kDigits;
      hint_row[k] = word_of(hint_part.data() + row, hint_.data() + row * kDimension);
    }
    const uint32_t value =
        word_of(answer_part.data() + w * kDigits, fresh.data() + w * kDigits * kDimension);
    record[w] = DecodeByte(value - kernel_->dot(hint_row.data(), first_secret, kDimension));
  }
  return record;
}

absl::StatusOr<Bytes> DoublePirClient::RecoverChunk(const Asked& asked, uint64_t,
                                                    BytesView answer) const {
  return Recover(asked, answer);
}

absl::Status DoublePirClient::Advance(const DeltaView& delta) {
  return AdvanceTo(delta, DoublePirSizes, MatrixSeed(setup_, 2), setup_.rows_per_column());
}

}  // namespace shoal::pir::lwe
