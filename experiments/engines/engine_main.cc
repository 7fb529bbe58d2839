// engine NAME TABLE_BYTES RECORD_BYTES MODE BATCH QUERIES: what an engine costs over a table of
// pseudorandom records, as name, tab, value.
//
//   MODE clients    queries of different clients, BATCH of them in a pass; seconds are of one query
//   MODE chunks     BATCH queries of one client, each for its own part of the table (the paper's
//                   sections 4.3 and 5.2); seconds are of one whole batch
//
// Exit codes: 1 failed, 2 wrong usage, 3 a record was wrong.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "experiments/engines/measure.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/shape.h"

namespace shoal::experiments {
namespace {

// Makes a record that differs from all others, at hardly any cost.
void FillRecord(uint64_t row, MutableBytes out) {
  uint64_t state = row * 0x9e3779b97f4a7c15ull + 1;
  for (uint8_t& byte : out) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<uint8_t>(state >> 56);
  }
}

// Asks for random rows. If several fall into the same chunk, only one of them is fetched.
absl::Status AskChunks(const Bench& bench, const pir::Content& content, uint64_t chunks,
                       uint64_t batches, RandomSource& random) {
  const pir::lwe::Server* const server = bench.server.get();
  const pir::lwe::Client* const client = bench.client.get();
  std::vector<Times> answering;
  uint64_t fetched = 0;
  Bytes expected(content.record_bytes);
  for (uint64_t b = 0; b < batches; ++b) {
    std::vector<uint64_t> rows(chunks);  // row 0 where nothing is wanted from a chunk
    std::vector<bool> wanted(chunks);
    for (uint64_t i = 0; i < chunks; ++i) {
      const uint64_t row = random.Below(content.rows);
      const uint64_t chunk = pir::lwe::ChunkOf(server->setup(), chunks, row);
      rows[chunk] = row;
      wanted[chunk] = true;
    }
    SHOAL_ASSIGN_OR_RETURN(const std::vector<pir::lwe::Asked> asked, client->Ask(rows, random));
    std::vector<BytesView> queries;
    for (const pir::lwe::Asked& one : asked) queries.push_back(one.query);
    absl::StatusOr<std::vector<Bytes>> answers;
    answering.push_back(TimesOf([&] { answers = server->AnswerChunks(queries); }));
    SHOAL_RETURN_IF_ERROR(answers.status());
    for (uint64_t c = 0; c < chunks; ++c) {
      if (!wanted[c]) continue;
      SHOAL_ASSIGN_OR_RETURN(const Bytes record,
                             client->RecoverChunk(asked[c], chunks, (*answers)[c]));
      content.copy(rows[c], expected);
      if (record != expected) return absl::DataLossError("a record is not the table's");
      ++fetched;
    }
  }
  Print("answer_s", Median(answering).wall_s);
  Print("answer_cpu_s", Median(answering).cpu_s);
  Print("answers_checked", static_cast<double>(fetched));
  Print("fetched_per_batch", static_cast<double>(fetched) / static_cast<double>(batches));
  return absl::OkStatus();
}

absl::Status Run(pir::lwe::Scheme engine, uint64_t table_bytes, uint32_t record_bytes,
                 const std::string& mode, uint64_t batch, uint64_t queries) {
  SystemRandom random;
  ThreadPool pool;
  const pir::Content content = {.table_id = {1},
                                .epoch = 1,
                                .manifest_digest = {},
                                .rows = table_bytes / record_bytes,
                                .record_bytes = record_bytes,
                                .copy = FillRecord};
  SHOAL_ASSIGN_OR_RETURN(const Bench bench, SetUp(engine, content, pool));
  if (mode == "chunks") return AskChunks(bench, content, batch, queries, random);
  std::vector<uint64_t> rows(queries * batch);
  for (uint64_t& row : rows) row = random.Below(content.rows);
  return Ask(bench, content, rows, batch, random).status();
}

}  // namespace
}  // namespace shoal::experiments

int main(int argc, char** argv) {
  uint64_t table_bytes = 0, batch = 0, queries = 0;
  uint32_t record_bytes = 0;
  const auto engine = shoal::pir::lwe::ParseScheme(argc > 1 ? argv[1] : "");
  const std::string mode = argc > 4 ? argv[4] : "";
  if (argc != 7 || !engine.ok() || !absl::SimpleAtoi(argv[2], &table_bytes) ||
      !absl::SimpleAtoi(argv[3], &record_bytes) || (mode != "clients" && mode != "chunks") ||
      !absl::SimpleAtoi(argv[5], &batch) || !absl::SimpleAtoi(argv[6], &queries) || batch == 0 ||
      queries == 0 || record_bytes == 0 || table_bytes < record_bytes) {
    std::fprintf(stderr,
                 "usage: engine NAME TABLE_BYTES RECORD_BYTES clients|chunks BATCH QUERIES\n");
    return 2;
  }
  const absl::Status status =
      shoal::experiments::Run(*engine, table_bytes, record_bytes, mode, batch, queries);
  if (status.ok()) return 0;
  std::fprintf(stderr, "engine: %s\n", std::string(status.message()).c_str());
  return absl::IsDataLoss(status) ? 3 : 1;
}
