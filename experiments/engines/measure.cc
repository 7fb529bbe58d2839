#include "experiments/engines/measure.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"

namespace shoal::experiments {
namespace {

double Middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Times TimesOf(const std::function<void()>& body) {
  const Stopwatch wall, cpu(Stopwatch::kProcess);
  body();
  return {.wall_s = wall.Seconds(), .cpu_s = cpu.Seconds()};
}

Times Median(std::vector<Times> times) {
  std::vector<double> wall, cpu;
  for (const Times& one : times) {
    wall.push_back(one.wall_s);
    cpu.push_back(one.cpu_s);
  }
  return {.wall_s = Middle(wall), .cpu_s = Middle(cpu)};
}

void Print(const char* name, double value) { std::printf("%s\t%.9g\n", name, value); }

absl::StatusOr<Bench> SetUp(pir::lwe::Scheme engine, const pir::Content& content,
                            ThreadPool& pool) {
  Bench bench;
  absl::Status status;
  const Times setup = TimesOf([&] {
    auto server = pir::lwe::CreateServer(engine, content, {.pool = &pool});
    status = server.status();
    if (server.ok()) bench.server = *std::move(server);
  });
  SHOAL_RETURN_IF_ERROR(status);
  SHOAL_ASSIGN_OR_RETURN(
      bench.client,
      pir::lwe::CreateClient(bench.server->setup(), bench.server->hint(), {.pool = &pool}));
  SHOAL_ASSIGN_OR_RETURN(bench.sizes, pir::lwe::SizesOf(bench.server->setup()));
  Print("setup_s", setup.wall_s);
  Print("setup_cpu_s", setup.cpu_s);
  Print("columns", static_cast<double>(bench.server->setup().columns()));
  Print("hint_bytes", static_cast<double>(bench.sizes.hint_bytes));
  Print("query_bytes", static_cast<double>(bench.sizes.query_bytes));
  Print("answer_bytes", static_cast<double>(bench.sizes.answer_bytes));
  return bench;
}

absl::StatusOr<std::vector<Bytes>> Ask(const Bench& bench, const pir::Content& content,
                                       const std::vector<uint64_t>& rows, uint64_t batch,
                                       RandomSource& random) {
  std::vector<Times> asking, answering, recovering;
  std::vector<Bytes> records;
  const auto each = [](Times times, size_t count) {
    return Times{.wall_s = times.wall_s / static_cast<double>(count),
                 .cpu_s = times.cpu_s / static_cast<double>(count)};
  };
  Bytes expected(content.record_bytes);
  for (size_t first = 0; first < rows.size(); first += batch) {
    const size_t count = std::min<size_t>(batch, rows.size() - first);
    absl::StatusOr<std::vector<pir::lwe::Asked>> asked;
    asking.push_back(each(
        TimesOf([&] { asked = bench.client->Ask(std::span(rows).subspan(first, count), random); }),
        count));
    SHOAL_RETURN_IF_ERROR(asked.status());
    std::vector<BytesView> queries;
    for (const pir::lwe::Asked& one : *asked) queries.push_back(one.query);
    std::vector<absl::StatusOr<Bytes>> answers;
    answering.push_back(each(TimesOf([&] { answers = bench.server->Answer(queries); }), count));
    for (size_t i = 0; i < count; ++i) {
      SHOAL_RETURN_IF_ERROR(answers[i].status());
      absl::StatusOr<Bytes> record;
      recovering.push_back(
          TimesOf([&] { record = bench.client->Recover((*asked)[i], *answers[i]); }));
      SHOAL_RETURN_IF_ERROR(record.status());
      content.copy(rows[first + i], expected);
      if (*record != expected) {
        return absl::DataLossError(absl::StrCat("row ", rows[first + i], " is not the table's"));
      }
      records.push_back(*std::move(record));
    }
  }
  Print("query_s", Median(asking).wall_s);
  Print("query_cpu_s", Median(asking).cpu_s);
  Print("answer_s", Median(answering).wall_s);
  Print("answer_cpu_s", Median(answering).cpu_s);
  Print("recover_cpu_s", Median(recovering).cpu_s);
  Print("answers_checked", static_cast<double>(records.size()));
  return records;
}

}  // namespace shoal::experiments
