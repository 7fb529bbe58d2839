// What the next epoch of a table costs a server of SimplePIR or DoublePIR, against the set-up of a
// new one: time, and the bytes of the delta against those of the hint. Records are rows with their
// signatures; a row that changed has a new signature, too.
//
//   bazel run --config=opt //src/pir/lwe:refresh_benchmark -- --table-mib 1024
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "boost/program_options.hpp"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/stopwatch.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/scheme.h"

namespace shoal::pir::lwe {
namespace {

struct Options {
  uint64_t table_mib = 1024;
  uint32_t row_bytes = 1024;
  uint32_t one_in = 1000;
  uint32_t changed_bytes = 0;
  std::string engine = "simplepir";
};

uint64_t Mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Random bytes, of which those from `begin` on are of this epoch.
void Fill(uint64_t row, uint64_t epoch, size_t begin, MutableBytes out) {
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t word = Mix(row << 20 ^ i ^ (i >= begin ? epoch << 56 : 0));
    for (size_t j = i; j < std::min(out.size(), i + 8); ++j) {
      out[j] = static_cast<uint8_t>(word >> 8 * (j - i));
    }
  }
}

void Print(const char* figure, double value, const char* unit) {
  std::printf("{\"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n", figure, value, unit);
  std::fflush(stdout);
}

void Run(const Options& options) {
  constexpr uint32_t kSignatureBytes = 48;
  ThreadPool pool;
  const uint32_t record_bytes = options.row_bytes + kSignatureBytes;
  const uint64_t rows = (options.table_mib << 20) / options.row_bytes;
  const auto changed = [&](uint64_t row) { return Mix(row + 1) % options.one_in == 0; };
  // Signatures change with their rows; of the row, its last bytes.
  const size_t begin = options.changed_bytes == 0
                           ? 0
                           : options.row_bytes - std::min(options.changed_bytes, options.row_bytes);
  const auto content = [&](uint64_t epoch) {
    return Content{.table_id = {1},
                   .epoch = epoch,
                   .manifest_digest = {static_cast<uint8_t>(epoch)},
                   .rows = rows,
                   .record_bytes = record_bytes,
                   .copy = [=](uint64_t row, MutableBytes out) {
                     Fill(row, changed(row) ? epoch : 1, begin, out);
                   }};
  };
  std::vector<uint64_t> changed_rows;
  for (uint64_t row = 0; row < rows; ++row) {
    if (changed(row)) changed_rows.push_back(row);
  }
  const Scheme scheme = options.engine == "doublepir" ? Scheme::kDoublePir : Scheme::kSimplePir;
  Stopwatch stopwatch;
  auto server =
      CreateServer(scheme, content(1), {.max_hint_bytes = uint64_t{4} << 30, .pool = &pool});
  SHOAL_CHECK(server.ok());
  const double setup_seconds = stopwatch.Seconds();
  const double hint_bytes = static_cast<double>((*server)->hint().size());
  Print("rows", static_cast<double>(rows), "");
  Print("rows changed", static_cast<double>(changed_rows.size()), "");
  Print("hint_bytes", hint_bytes, "bytes");
  Print("setup_seconds", setup_seconds, "s");
  for (uint64_t epoch = 2; epoch <= 4; ++epoch) {
    stopwatch = Stopwatch();
    const auto delta = (*server)->Refresh(content(epoch), changed_rows);
    const double seconds = stopwatch.Seconds();
    SHOAL_CHECK(delta.ok());
    Print("refresh_seconds", seconds, "s");
    Print("setup_seconds / refresh_seconds", setup_seconds / seconds, "");
    if (!delta->has_value()) {
      Print("delta_bytes", 0, "no delta: a hint is smaller");
      continue;
    }
    const auto delta_bytes = static_cast<double>((*delta)->changes.size());
    Print("delta_bytes", delta_bytes, "bytes");
    Print("delta_bytes / hint_bytes", delta_bytes / hint_bytes, "");
  }
}

}  // namespace
}  // namespace shoal::pir::lwe

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  shoal::pir::lwe::Options options;
  po::options_description described("options");
  described.add_options()("help", "this text")(
      "table-mib", po::value(&options.table_mib)->default_value(options.table_mib), "rows, in MiB")(
      "row-bytes", po::value(&options.row_bytes)->default_value(options.row_bytes), "of a row")(
      "one-in", po::value(&options.one_in)->default_value(options.one_in),
      "one row in so many changes")(
      "changed-bytes", po::value(&options.changed_bytes)->default_value(0),
      "bytes of a changed row that change, beside its signature (0: all)")(
      "engine", po::value(&options.engine)->default_value(options.engine),
      "simplepir or doublepir");
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, described), values);
  po::notify(values);
  if (values.count("help") > 0) {
    std::cout << described;
    return 0;
  }
  shoal::pir::lwe::Run(options);
}
