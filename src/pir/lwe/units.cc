#include "src/pir/lwe/units.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "src/base/check.h"
#include "src/base/stopwatch.h"
#include "src/pir/kit/measure.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/shape.h"

namespace shoal::pir::lwe {
namespace {

// Of the second level of DoublePIR (double_pir.h): columns of E and F, one for every block.
double SecondColumns(const wire::PirSetup& shape) {
  return static_cast<double>(PaddedColumns(shape.rows_per_column()));
}

// A matrix of so many bytes times the queries of a pass, for one of them.
void AddPass(double bytes, double together, std::vector<Amount>& work) {
  work.push_back({"pir_pass_byte", bytes / together});
  work.push_back({"pir_query_byte", bytes * (together - 1) / together});
}

std::vector<Amount> AnswerWork(Scheme scheme, const wire::PirSetup& shape, double together) {
  const auto columns = static_cast<double>(shape.columns());
  const double width = shape.record_bytes();
  const auto rows = static_cast<double>(MatrixRows(shape));
  std::vector<Amount> work;
  AddPass(rows * columns, together, work);
  work.push_back({"pir_word", columns + rows});
  if (scheme == Scheme::kSimplePir) return work;
  // E has 3072 W rows. F has 3 W rows for each query: these are multiplied by the query and by the
  // whole public matrix. E's product and F's have 3072 W words each.
  const double second = SecondColumns(shape);
  AddPass(3 * kDimension * width * second, together, work);
  work.push_back({"pir_public_byte", 3 * width * second});
  work.push_back({"pir_word", second + 6 * kDimension * width});
  return work;
}

// The products with the public matrix, and the hint's words rounded.
std::vector<Amount> SetupWork(Scheme scheme, const wire::PirSetup& shape) {
  const double width = shape.record_bytes();
  const auto rows = static_cast<double>(MatrixRows(shape));
  double bytes = rows * static_cast<double>(shape.columns());
  double hint_rows = rows;
  if (scheme == Scheme::kDoublePir) {
    hint_rows = 3.0 * kDimension * width;
    bytes += hint_rows * SecondColumns(shape);
  }
  return {{"pir_public_byte", bytes}, {"pir_word", hint_rows * kDimension}};
}

// Client and server over a small table: what a query costs to make, to answer in a full pass, and
// to recover from.
struct Times {
  double ask_ns, answer_ns, recover_ns;
};
Times TimeScheme(Scheme scheme, uint64_t rows, uint32_t record_bytes, uint64_t rows_per_column,
                 RandomSource& random, ThreadPool& pool) {
  ServerOptions options;
  options.shape.emplace().set_rows_per_column(rows_per_column);
  options.pool = &pool;
  const auto server = *CreateServer(scheme, ContentToMeasure(rows, record_bytes), options);
  const auto client = *CreateClient(server->setup(), server->hint(), {});
  std::vector<Asked> asked(kMaxQueriesPerRequest);
  std::vector<BytesView> queries(asked.size());
  std::vector<absl::StatusOr<Bytes>> answers;
  const auto count = static_cast<double>(asked.size());
  Times times;
  times.ask_ns = TypicalNanoseconds([&] {
                   for (size_t i = 0; i < asked.size(); ++i) {
                     asked[i] = *client->Ask(i % rows, random);
                   }
                 }) /
                 count;
  for (size_t i = 0; i < asked.size(); ++i) queries[i] = asked[i].query;
  times.answer_ns = TypicalNanoseconds([&] { answers = server->Answer(queries); }) / count;
  times.recover_ns = TypicalNanoseconds([&] {
                       for (size_t i = 0; i < asked.size(); ++i) {
                         SHOAL_CHECK(client->Recover(asked[i], *answers[i]).ok());
                       }
                     }) /
                     count;
  return times;
}

}  // namespace

Work WorkOf(Scheme scheme, const wire::PirSetup& shape, double together) {
  const bool simple = scheme == Scheme::kSimplePir;
  const double columns = static_cast<double>(shape.columns()) + (simple ? 0 : SecondColumns(shape));
  return {.setup = SetupWork(scheme, shape),
          .query = {{"pir_ask_column", columns}},
          .answer = AnswerWork(scheme, shape, together),
          .recover = {{simple ? "simplepir_recover_byte" : "doublepir_recover_byte",
                       static_cast<double>(shape.record_bytes())}}};
}

std::span<const Amount> Units() {
  static constexpr Amount kUnits[] = {
      // A byte of a matrix times the 1024 columns of a public matrix; a byte times the first query
      // of a pass, and times each further query; a word of a query or an answer packed or rounded
      // at the server.
      {"pir_public_byte", 46.45},
      {"pir_pass_byte", 0.03497},
      {"pir_query_byte", 0.03321},
      {"pir_word", 4.796},
      // At the client: making a column of a query; recovering a byte of a record.
      {"pir_ask_column", 325.7},
      {"simplepir_recover_byte", 202.7},
      {"doublepir_recover_byte", 1.069e+06},
  };
  return kUnits;
}

std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool) {
  constexpr uint64_t kColumns = 16384;
  const Kernel& kernel = KernelOr(nullptr);
  const auto matrix_of = [&](uint64_t size) {
    return *ByteMatrix::Create(std::max<uint64_t>(16, size / kColumns), kColumns);
  };
  std::vector<Amount> units;
  {
    const ByteMatrix matrix = matrix_of(bytes / 32);
    PackedVectors room = *PanelRoom(kernel);
    const double ns = TypicalNanoseconds([&] { (void)matrix.MultiplyPublic(room, {}, &pool); });
    units.push_back({"pir_public_byte", CostOf(ns / static_cast<double>(matrix.bytes()))});
  }
  const ByteMatrix matrix = matrix_of(bytes);
  const auto pass = [&](uint64_t queries) {
    PackedVectors vectors = *PackedVectors::Create(kernel, kColumns, queries);
    const std::vector<uint32_t> words(kColumns, 0x12345678);
    for (uint64_t i = 0; i < queries; ++i) vectors.Set(i, words);
    return TypicalNanoseconds([&] { (void)matrix.Multiply(vectors, 0, matrix.rows(), &pool); }) /
           static_cast<double>(matrix.bytes());
  };
  constexpr double kMore = kMaxQueriesPerRequest - 1;
  const double one = CostOf(pass(1));
  const double more = CostOf((pass(kMaxQueriesPerRequest) - one) / kMore);
  units.push_back({"pir_pass_byte", one});
  units.push_back({"pir_query_byte", more});

  // One row a column: a query is nearly all of what there is to pack.
  constexpr uint32_t kRecord = 64;
  const Times simple = TimeScheme(Scheme::kSimplePir, kColumns, kRecord, 1, random, pool);
  units.push_back({"pir_ask_column", CostOf(simple.ask_ns / kColumns)});
  units.push_back({"simplepir_recover_byte", CostOf(simple.recover_ns / kRecord)});
  const double product = kColumns * kRecord * (one + kMore * more) / (kMore + 1);
  units.push_back({"pir_word", CostOf((simple.answer_ns - product) / (kColumns + kRecord))});
  constexpr uint32_t kShort = 4;
  const Times twice = TimeScheme(Scheme::kDoublePir, 4096, kShort, 64, random, pool);
  units.push_back({"doublepir_recover_byte", CostOf(twice.recover_ns / kShort)});
  return units;
}

}  // namespace shoal::pir::lwe
