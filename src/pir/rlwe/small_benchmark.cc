// What Small PIR costs on this machine, on one thread:
//
//   small_benchmark [--mib 64] [--record-bytes 2048] [--kernel avx512]
//
// Set-up, a query at its client, answers alone and four together, the first stage's pass over the
// table, and beside it the bandwidth of reading as much memory. Processor time; the best of a few.
//
// Prints a line for each figure: its name, a tab, its value. A time is a query's, those of queries
// that share a pass their share. Exit codes: 0 done, 1 no such server, 2 wrong usage, 3 a wrong
// record.
#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/program_options.hpp"
#include "src/base/random.h"
#include "src/pir/kit/measure.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/rlwe/small_shape.h"

namespace shoal::pir::rlwe {
namespace {

void Print(absl::string_view name, const auto& value) {
  std::cout << name << '\t' << value << '\n';
}

int Run(uint64_t mib, uint32_t record_bytes, const RingKernel& kernel) {
  const uint64_t rows = (mib << 20) / record_bytes;
  const Content content = ContentOfAnyBytes(rows, record_bytes);
  const absl::StatusOr<SmallShape> chosen = ChooseSmallShape(rows, record_bytes);
  if (!chosen.ok()) {
    std::cerr << "small_benchmark: " << chosen.status().message() << '\n';
    return 2;
  }
  const SmallShape& shape = *chosen;
  wire::PirSetup setup = SetupOf(kSmallPirName, content);
  setup.set_shape(EncodeSmallShape(shape));
  Print("small_kernel", kernel.name);
  Print("rows", rows);
  Print("degree", kDegree);
  Print("modulus_bits", kPrimes * kPrimeBits);
  Print("group_rows", shape.group_rows);
  Print("slices", shape.slices);
  Print("terms", shape.terms);
  Print("folds", shape.folds);
  Print("fold_digits", kFoldGadget.digits);
  Print("key_digits", kUnpackGadget.digits);
  Print("packed_positions", uint64_t{1} << kPackLog);
  Print("packed_positions_automorphisms", UnpackSteps(kPackLog, uint64_t{1} << kPackLog));
  Print("packed_values", uint64_t{1} << kFoldPackLog);
  Print("packed_values_automorphisms", UnpackSteps(kFoldPackLog, uint64_t{1} << kFoldPackLog));
  Print("query_automorphisms", shape.automorphisms());
  Print("failure_log2", SmallFailureLog2(shape));
  Print("query_bytes", shape.query_bytes());
  Print("answer_bytes", shape.answer_bytes());
  Print("answer_mask_bits", kAnswerMaskBits);
  Print("answer_body_bits", kAnswerBodyBits);
  Print("encoded_bytes", shape.table_bytes());
  Print("server_bytes", shape.server_bytes());
  {
    std::vector<uint32_t> words(kDegree, 5);
    const int times = 1000;
    const auto each = [&](const auto& transform) {
      const double seconds = LeastSeconds(3, [&] {
        for (int i = 0; i < times; ++i) transform();
      });
      return seconds / times;
    };
    Print("transform_cpu_s", each([&] { Transform(0, words.data()); }));
    Print("transform_back_cpu_s", each([&] { TransformBack(0, words.data()); }));
  }
  absl::StatusOr<std::unique_ptr<SmallServer>> created;
  const double setup_s =
      LeastSeconds(1, [&] { created = SmallServer::Create(content, setup, {}, &kernel); });
  if (!created.ok()) {
    std::cerr << "small_benchmark: " << created.status().message() << '\n';
    return 1;
  }
  const SmallServer& server = **created;
  Print("setup_cpu_s", setup_s);
  const auto client = *SmallClient::Create(setup);
  SystemRandom random;
  std::vector<SmallAsked> asked(SmallShape::kTogether);
  const auto asked_row = [&](size_t i) { return i * 7 % rows; };
  Print("ask_cpu_s", LeastSeconds(1, [&] {
                       for (size_t i = 0; i < asked.size(); ++i)
                         asked[i] = client->Ask(asked_row(i), random);
                     }) / static_cast<double>(asked.size()));
  std::vector<RequestView> views;
  for (const SmallAsked& each : asked) views.push_back({.kind = 0, .count = 1, .body = each.query});
  std::vector<absl::StatusOr<Bytes>> answers;
  Print("together", asked.size());
  for (const size_t count : {size_t{1}, asked.size()}) {
    const std::string prefix = count == 1 ? "" : "together_";
    const auto n = static_cast<double>(count);
    Print(prefix + "answer_cpu_s", LeastSeconds(3, [&] {
                                     answers = server.Answer(Role::kSingle,
                                                             std::span(views).first(count));
                                   }) / n);
    std::vector<BytesView> queries;
    for (size_t i = 0; i < count; ++i) queries.push_back(asked[i].query);
    SmallServer::Phases best = *server.Measure(queries);
    for (int i = 0; i < 3; ++i) {
      const SmallServer::Phases again = *server.Measure(queries);
      best.unpack = std::min(best.unpack, again.unpack);
      best.first_stage = std::min(best.first_stage, again.first_stage);
      best.fold = std::min(best.fold, again.fold);
    }
    Print(prefix + "unpack_cpu_s", best.unpack / n);
    Print(prefix + "first_stage_cpu_s", best.first_stage / n);
    Print(prefix + "fold_cpu_s", best.fold / n);
    Print(prefix + "pass_bytes_per_s", static_cast<double>(shape.table_bytes()) / best.first_stage);
  }
  {
    std::vector<uint64_t> memory(std::min<uint64_t>(shape.table_bytes(), 1 << 30) / 8, 1);
    volatile uint64_t sum = 0;  // so that the memory is read
    const double seconds = LeastSeconds(3, [&] {
      uint64_t parts[4] = {};
      for (size_t i = 0; i < memory.size(); i += 4) {
        for (size_t j = 0; j < 4; ++j) parts[j] += memory[i + j];
      }
      sum = parts[0] + parts[1] + parts[2] + parts[3];
    });
    Print("read_bytes_per_s", static_cast<double>(memory.size()) * 8 / seconds);
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    Bytes wanted(record_bytes);
    content.copy(asked_row(i), wanted);
    if (!answers[i].ok()) {
      std::cerr << "small_benchmark: " << answers[i].status().message() << '\n';
      return 3;
    }
    const auto found = client->Recover(asked[i], *answers[i]);
    if (!found.ok() || !std::ranges::equal(*found, wanted)) {
      std::cerr << "small_benchmark: row " << asked_row(i) << " is not the table's\n";
      return 3;
    }
  }
  Print("answers_checked", asked.size());
  Print("recover_cpu_s", LeastSeconds(3, [&] { (void)client->Recover(asked[0], *answers[0]); }));
  return 0;
}

int Main(int argc, char** argv) {
  namespace po = boost::program_options;
  uint64_t mib = 0;
  uint32_t record_bytes = 0;
  std::string name;
  po::options_description flags("small_benchmark");
  flags.add_options()("help", "this text")("mib", po::value(&mib)->default_value(64),
                                           "size of the table")(
      "record-bytes", po::value(&record_bytes)->default_value(2048), "of a row")(
      "kernel", po::value(&name)->default_value(FastestRingKernel().name), "of this machine's");
  po::variables_map values;
  try {
    po::store(po::command_line_parser(argc, argv)
                  .options(flags)
                  .positional(po::positional_options_description())
                  .run(),
              values);
    po::notify(values);
  } catch (const po::error& error) {
    std::cerr << "small_benchmark: " << error.what() << '\n' << flags;
    return 2;
  }
  if (values.count("help")) {
    std::cout << flags;
    return 0;
  }
  if (mib == 0 || mib >> 20 != 0 || record_bytes == 0) {
    std::cerr << "small_benchmark: 1 to 2^20 - 1 MiB, rows of a byte at least\n" << flags;
    return 2;
  }
  for (const RingKernel* kernel : SupportedRingKernels()) {
    if (kernel->name == name) return Run(mib, record_bytes, *kernel);
  }
  std::cerr << "small_benchmark: no kernel \"" << name << "\" here\n" << flags;
  return 2;
}

}  // namespace
}  // namespace shoal::pir::rlwe

int main(int argc, char** argv) { return shoal::pir::rlwe::Main(argc, argv); }
