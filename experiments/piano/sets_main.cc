// sets ENGINE ROWS RECORD_BYTES CHOICE QUERIES RESIDENT_BYTES PART: what an engine with hints costs
// in memory, on one thread and without a network, as name, tab, value.
//
//   ENGINE          CHOICE
//   piano           queries of a session
//   treepir         log2 of a node's children; 1: the paper's tree; 0: two levels
//   permuted        chunks (two servers)
//
// RESIDENT_BYTES   0: the whole table is in memory. Otherwise as many bytes are, and appear in the
//                  table again and again: a row is a function of its number modulo the rows that
//                  fit them. Addresses are those of the whole table, in pages of 4 KiB.
// PART             piano: only every PART-th part of the chunks is read to prepare, the first one;
//                  answers are measured over all chunks, and compared over that part. Else 1.
//
// Seconds are processor time of the thread: of queries, the median. Every record that a query
// brings is compared with the table's. Exit codes: 1 failed, 2 wrong usage, 3 a record was wrong.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "experiments/engines/measure.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/single_pass_sets.h"
#include "src/pir/sets/tree_sets.h"

namespace shoal::experiments {
namespace {

struct Options {
  std::string engine;
  uint64_t rows = 0;
  uint32_t record_bytes = 0, choice = 0;
  uint64_t queries = 0, resident_bytes = 0;
  uint32_t part = 1;
};

// Of the processor. Nothing here has threads.
double Seconds(const std::function<void()>& body) { return TimesOf(body).cpu_s; }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The rows of a table, one after the other, and zeros behind them.
class Table {
 public:
  // `bytes`: with the zeros. INVALID_ARGUMENT if `resident` does not divide the table.
  absl::Status Create(uint64_t bytes, const Options& options) {
    const uint64_t content = options.rows * options.record_bytes;
    const uint64_t resident = options.resident_bytes;
    if (resident == 0 || resident >= content) {
      void* const base =
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (base == MAP_FAILED) return absl::ResourceExhaustedError("no memory for the rows");
      madvise(base, bytes, MADV_HUGEPAGE);  // it works without, too
      const MutableBytes all(static_cast<uint8_t*>(base), bytes);
      Fill(all.first(content));
      view_ = all;  // until the process ends
      return absl::OkStatus();
    }
    if (bytes != content || content % resident != 0 || resident % options.record_bytes != 0 ||
        resident % (uint64_t{1} << 21) != 0) {
      return absl::InvalidArgumentError("the table is not a multiple of its resident bytes");
    }
    const int file = memfd_create("rows", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(resident)) != 0) {
      return absl::ResourceExhaustedError("no memory for the rows");
    }
    void* const base =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return absl::ResourceExhaustedError("no addresses for the rows");
    auto* const first = static_cast<uint8_t*>(base);
    for (uint64_t at = 0; at < bytes; at += resident) {
      if (mmap(first + at, resident, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
               file, 0) == MAP_FAILED) {
        return absl::ResourceExhaustedError("no addresses for the rows");
      }
      if (at == 0) Fill({first, resident});
    }
    close(file);
    view_ = {first, bytes};
    return absl::OkStatus();
  }

  BytesView view() const { return view_; }

 private:
  static void Fill(MutableBytes out) {
    for (uint64_t at = 0; at < out.size(); at += 8) {
      uint64_t word = at * 0x9e3779b97f4a7c15ull + 1;
      word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
      word = (word ^ word >> 27) * 0x94d049bb133111ebull;
      for (uint64_t i = 0; i < std::min<uint64_t>(8, out.size() - at); ++i) {
        out[at + i] = static_cast<uint8_t>(word >> 8 * i);
      }
    }
  }

  BytesView view_;
};

// What queries took, and whether their records were right.
class Queries {
 public:
  Queries(const Options& options, BytesView table)
      : record(options.record_bytes), record_bytes_(options.record_bytes), table_(table) {}

  void Ask(const std::function<void()>& body) { ask_.push_back(Seconds(body)); }
  // Of one server.
  void Answer(const std::function<void()>& body) { answer_.push_back(Seconds(body)); }
  void Finish(const std::function<void()>& body) { finish_.push_back(Seconds(body)); }

  absl::Status Check(uint64_t row) {
    if (!std::ranges::equal(record, table_.subspan(row * record_bytes_, record_bytes_))) {
      return absl::DataLossError(absl::StrCat("row ", row, " is not the table's"));
    }
    ++checked_;
    return absl::OkStatus();
  }

  void Report() const {
    Print("ask_cpu_s", Median(ask_));
    Print("answer_cpu_s", Median(answer_));
    Print("recover_cpu_s", Median(finish_));
    Print("answers_checked", checked_);
  }

  Bytes record;

 private:
  const uint32_t record_bytes_;
  const BytesView table_;
  std::vector<double> ask_, answer_, finish_;
  int checked_ = 0;
};

void PrintSizes(double servers, uint64_t chunks, uint64_t hints, uint64_t client_bytes) {
  Print("servers", servers);
  Print("chunks", static_cast<double>(chunks));
  Print("hints", static_cast<double>(hints));
  Print("client_bytes", static_cast<double>(client_bytes));
}

// Of all servers together.
void PrintTraffic(uint64_t prepare_bytes, uint64_t query_bytes, uint64_t answer_bytes) {
  Print("prepare_bytes", static_cast<double>(prepare_bytes));
  Print("query_bytes", static_cast<double>(query_bytes));
  Print("answer_bytes", static_cast<double>(answer_bytes));
}

void PrintPreparation(double client, double server) {
  Print("prepare_client_cpu_s", client);
  Print("prepare_server_cpu_s", server);
}

absl::Status RunPiano(const Options& options, RandomSource& random) {
  namespace sets = pir::sets;
  SHOAL_ASSIGN_OR_RETURN(const sets::SetShape shape,
                         sets::ShapeFor(options.rows, options.record_bytes, options.choice));
  Table table;
  SHOAL_RETURN_IF_ERROR(table.Create(options.rows * options.record_bytes, options));
  // The table as far as the hints have it: the rows behind count as zeros.
  sets::SetShape read = shape;
  read.chunks = std::max(1u, shape.chunks / options.part);
  read.rows = std::min(shape.rows, read.chunks * shape.chunk_rows());
  const BytesView records = table.view().first(read.rows * shape.record_bytes);

  SecretArray<16> key;
  random.Fill(key.mutable_view());
  const sets::SetFunction function(key, shape.offset_bits);
  std::unique_ptr<sets::HintTable> hints;
  const uint64_t chunk_bytes = shape.chunk_rows() * shape.record_bytes;
  double prepare = Seconds([&] { hints = std::make_unique<sets::HintTable>(shape, &function); });
  double adding = 0;
  for (uint32_t c = 0; c < read.chunks; c += sets::HintTable::kChunksTogether) {
    const uint32_t count = std::min(sets::HintTable::kChunksTogether, read.chunks - c);
    const uint64_t begin = c * chunk_bytes;
    const BytesView some =
        records.subspan(begin, std::min(count * chunk_bytes, records.size() - begin));
    adding += Seconds([&] { hints->AddChunks(c, count, some); });
  }
  // Every chunk takes the same work.
  prepare += adding * shape.chunks / read.chunks;

  PrintSizes(1, shape.chunks, shape.hints, sets::HintTable::StateBytes(shape));
  PrintTraffic(options.rows * options.record_bytes, shape.query_bytes(), 2ull * shape.record_bytes);
  PrintPreparation(prepare, 0);

  Queries queries(options, table.view());
  std::vector<sets::Choice> query(shape.chunks);
  Bytes sent(shape.query_bytes()), zeros(shape.record_bytes), ones(shape.record_bytes);
  for (uint64_t q = 0; q < options.queries; ++q) {
    const uint64_t row = random.Below(read.rows);
    absl::Status status;
    queries.Ask([&] {
      status = hints->Ask(row, random, query);
      sets::EncodeQuery(shape, query, sent);
    });
    SHOAL_RETURN_IF_ERROR(status);
    queries.Answer([&] {
      status = sets::DecodeQuery(shape, sent, query);
      sets::AnswerQuery(shape, table.view(), query, zeros, ones);
    });
    SHOAL_RETURN_IF_ERROR(status);
    if (read.chunks < shape.chunks) {
      sets::AnswerQuery(read, records, std::span(query).first(read.chunks), zeros, ones);
    }
    queries.Finish([&] { hints->Finish(zeros, ones, queries.record); });
    SHOAL_RETURN_IF_ERROR(queries.Check(row));
  }
  queries.Report();
  return absl::OkStatus();
}

absl::Status RunTree(const Options& options, RandomSource& random) {
  namespace sets = pir::sets;
  // A client that asks a million queries before the next preparation.
  SHOAL_ASSIGN_OR_RETURN(
      const sets::TreeShape shape,
      sets::TreeShapeFor(options.rows, options.record_bytes, 1 << 20, options.choice));
  Table table;
  SHOAL_RETURN_IF_ERROR(table.Create(shape.table_bytes(), options));

  const sets::TreeKeys keys = sets::DeriveTreeKeys(shape, random.NewSeed());
  Bytes parities(shape.parity_bytes());
  const double make = Seconds(
      [&] { sets::MakeTreeParities(shape, table.view(), keys.seed, 0, parities, nullptr); });
  const sets::TreeFunction function(shape, keys);
  std::unique_ptr<sets::TreeHints> client;
  absl::Status status;
  const double take = Seconds([&] {
    client = std::make_unique<sets::TreeHints>(shape, &function);
    status = client->TakeParities(parities);
  });
  SHOAL_RETURN_IF_ERROR(status);

  PrintSizes(2, shape.chunks, shape.hints, shape.client_bytes());
  PrintTraffic(keys.seed.size() + shape.parity_bytes(), 2 * shape.query_bytes(),
               2 * shape.answer_bytes());
  PrintPreparation(take, make);

  Queries queries(options, table.view());
  Bytes sent[2] = {Bytes(shape.query_bytes()), Bytes(shape.query_bytes())};
  Bytes answers[2] = {Bytes(shape.answer_bytes()), Bytes(shape.answer_bytes())};
  std::vector<uint32_t> offsets(shape.query_offsets());
  for (uint64_t q = 0; q < options.queries; ++q) {
    const uint64_t row = random.Below(shape.rows);
    const auto from = static_cast<uint32_t>(random.Below(shape.hints));
    queries.Ask([&] { status = client->Ask(row, from, sent[0], sent[1]); });
    SHOAL_RETURN_IF_ERROR(status);
    for (int server = 0; server < 2; ++server) {
      queries.Answer([&] {
        status = sets::ExpandTreeQuery(shape, sent[server], offsets);
        sets::AnswerTreeQuery(shape, table.view(), offsets, answers[server]);
      });
      SHOAL_RETURN_IF_ERROR(status);
    }
    queries.Finish(
        [&] { status = client->Finish(answers[0], answers[1], queries.record).status(); });
    SHOAL_RETURN_IF_ERROR(status);
    SHOAL_RETURN_IF_ERROR(queries.Check(row));
  }
  queries.Report();
  return absl::OkStatus();
}

absl::Status RunPermuted(const Options& options, RandomSource& random) {
  namespace sets = pir::sets;
  SHOAL_ASSIGN_OR_RETURN(
      const sets::SinglePassShape shape,
      sets::SinglePassShapeFor(options.rows, options.record_bytes, options.choice));
  Table table;
  SHOAL_RETURN_IF_ERROR(table.Create(options.rows * options.record_bytes, options));

  const Seed seed = random.NewSeed();
  Bytes parities(shape.parity_bytes());
  const double make =
      Seconds([&] { sets::ParityMaker(shape, seed).Make(table.view(), 0, parities); });
  std::unique_ptr<sets::SinglePassTable> client;
  const double take = Seconds([&] {
    client = std::make_unique<sets::SinglePassTable>(shape, sets::PermutationsOf(shape, seed));
    client->AddParities(parities);
  });

  PrintSizes(2, shape.chunks, shape.chunk_rows,
             shape.parity_bytes() + shape.places() * sizeof(uint32_t));
  PrintTraffic(32 + shape.parity_bytes(), 2 * shape.query_bytes(), 2 * shape.answer_bytes());
  PrintPreparation(take, make);

  Queries queries(options, table.view());
  Bytes sent[2] = {Bytes(shape.query_bytes()), Bytes(shape.query_bytes())};
  Bytes answers[2] = {Bytes(shape.answer_bytes()), Bytes(shape.answer_bytes())};
  for (uint64_t q = 0; q < options.queries; ++q) {
    const uint64_t row = random.Below(shape.rows);
    absl::Status status;
    queries.Ask([&] { status = client->Ask(row, random, sent[0], sent[1]); });
    SHOAL_RETURN_IF_ERROR(status);
    for (int server = 0; server < 2; ++server) {
      queries.Answer([&] {
        status = sets::AnswerPermuted(shape, table.view(), sent[server], answers[server]);
      });
      SHOAL_RETURN_IF_ERROR(status);
    }
    queries.Finish([&] { client->Finish(answers[0], answers[1], queries.record); });
    SHOAL_RETURN_IF_ERROR(queries.Check(row));
  }
  queries.Report();
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  SystemRandom random;
  if (options.engine == "piano") return RunPiano(options, random);
  if (options.engine == "treepir") return RunTree(options, random);
  return RunPermuted(options, random);
}

}  // namespace
}  // namespace shoal::experiments

int main(int argc, char** argv) {
  shoal::experiments::Options options;
  options.engine = argc > 1 ? argv[1] : "";
  const bool known =
      options.engine == "piano" || options.engine == "treepir" || options.engine == "permuted";
  if (argc != 8 || !known || !absl::SimpleAtoi(argv[2], &options.rows) ||
      !absl::SimpleAtoi(argv[3], &options.record_bytes) ||
      !absl::SimpleAtoi(argv[4], &options.choice) || !absl::SimpleAtoi(argv[5], &options.queries) ||
      !absl::SimpleAtoi(argv[6], &options.resident_bytes) ||
      !absl::SimpleAtoi(argv[7], &options.part) || options.rows == 0 || options.record_bytes == 0 ||
      options.queries == 0 || options.part == 0) {
    std::fprintf(stderr,
                 "usage: sets piano|treepir|permuted ROWS RECORD_BYTES CHOICE QUERIES "
                 "RESIDENT_BYTES PART\n");
    return 2;
  }
  const absl::Status status = shoal::experiments::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "sets: %s\n", std::string(status.message()).c_str());
  return absl::IsDataLoss(status) ? 3 : 1;
}
