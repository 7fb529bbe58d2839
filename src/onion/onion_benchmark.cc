// What HPKE costs in batches, for every instruction set: exports, seals, opens, numbered exports
// and whole submissions, beside what the curve alone costs.
//
//   onion_benchmark [--instruction_sets=avx512,avx2,portable] [--bytes=32,80,128]
//                   [--onions=1,64,1000] [--threads=1] [--rounds=9]
//
// Instruction sets and operations take turns, round by round, so that other programs' load or a
// change of the clock rate affects all of them alike. Printed are the least and the median of the
// rounds, in microseconds, and the median of the rounds' ratios to the curve's part: how far an
// operation is from the least that it could cost with this curve. One thread is measured in
// processor time, so that other programs do not count. Several threads are measured in wall time,
// which shows whether they scale, and need an idle machine.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/onion/dispatch.h"
#include "src/onion/onion.h"

namespace shoal::onion {
namespace {

struct Options {
  std::vector<InstructionSet> sets;
  std::vector<size_t> bytes = {32, 80, 128};
  std::vector<size_t> onions = {1, 64, 1000};
  std::vector<size_t> threads = {1};
  size_t rounds = 9;
};

constexpr size_t kCount = 512;  // messages per thread and round
constexpr size_t kPortableCount = 32;
constexpr size_t kParties = 3;  // of the chain that submissions are for

// What one thread works on. The calls take `n` of its items.
class Work {
 public:
  explicit Work(const Options& options) {
    SystemRandom random;
    pair_ = KeyPairFromSecret(random.NewSeed().view());
    random.Fill(secrets_);
    UseActiveSet();
    const size_t most_bytes = *std::max_element(options.bytes.begin(), options.bytes.end());
    const size_t most_onions = *std::max_element(options.onions.begin(), options.onions.end());
    messages_.resize(kCount * most_bytes);
    boxes_.resize(kCount * (most_bytes + kSealBytes));
    onions_.resize(most_onions * OnionBytes(kParties - 1));
    submission_.resize(onions_.size() + kSealBytes);
    seeds_.resize(std::max(kCount, most_onions) * 32);
  }

  // Tables are those of an instruction set.
  void UseActiveSet() {
    recipient_ = std::make_unique<Recipient>(Recipient::Create(pair_.public_key).value());
    kernel_ = KernelOf(ActiveInstructionSet());
    if (kernel_ == nullptr) return;
    table_ = AllocateTable(*kernel_);
    // Keys on the twist have no table, and no key pair is there.
    SHOAL_CHECK(kernel_->build_table(pair_.public_key.data(), table_.get()));
  }

  void CurveOfSeals(size_t n) {
    for (size_t at = 0; at < n; at += kKernelBatch) {
      uint8_t* products[2] = {products_[0], products_[1]};
      const size_t part = std::min(n - at, kKernelBatch);
      if (kernel_ != nullptr) {
        const void* tables[2] = {BaseTable(*kernel_), table_.get()};
        kernel_->multiply_fixed(tables, 2, &secrets_[at * 32], 32, products, part);
        continue;
      }
      for (size_t i = 0; i < part; ++i) {
        crypto_scalarmult_base(products[0], &secrets_[(at + i) * 32]);
        SHOAL_CHECK(
            crypto_scalarmult(products[1], &secrets_[(at + i) * 32], pair_.public_key.data()) == 0);
      }
    }
  }
  void CurveOfOpens(size_t n) {
    for (size_t at = 0; at < n; at += kKernelBatch) {
      const size_t part = std::min(n - at, kKernelBatch);
      if (kernel_ != nullptr) {
        kernel_->multiply(pair_.secret_key.data(), 0, &secrets_[at * 32], 32, products_[0], part);
        continue;
      }
      for (size_t i = 0; i < part; ++i) {
        SHOAL_CHECK(crypto_scalarmult(products_[0], pair_.secret_key.data(),
                                      &secrets_[(at + i) * 32]) == 0);
      }
    }
  }
  void Export(size_t n) {
    ExportBatch(*recipient_, export_only_, "seed", {secrets_.data(), 32, 32},
                {boxes_.data(), 32, 32}, {seeds_.data(), 32, 32}, n);
  }
  void Decapsulate(size_t n) {
    DecapsulateBatch(pair_, export_only_, "seed", {secrets_.data(), 32, 32},
                     {seeds_.data(), 32, 32}, std::span(flags_).first(n));
  }
  void Seal(size_t n, size_t bytes) {
    SealBatch(*recipient_, sealing_, "seed", {secrets_.data(), 32, 32},
              {messages_.data(), bytes, bytes},
              {boxes_.data(), bytes + kSealBytes, bytes + kSealBytes}, {seeds_.data(), 32, 32}, n);
  }
  // What Seal has sealed.
  void Open(size_t n, size_t bytes) {
    OpenBatch(pair_, sealing_, "seed", {boxes_.data(), bytes + kSealBytes, bytes + kSealBytes},
              {messages_.data(), bytes, bytes}, {seeds_.data(), 32, 32},
              std::span(flags_).first(n));
    for (size_t i = 0; i < n; ++i) SHOAL_CHECK(flags_[i] == 1);
  }
  void ExportNumbers(size_t n) {
    ExportNumbered(context_, "slot", 0, MutableBytes(seeds_).first(n * 32));
  }
  void SealSubmission(size_t onions) {
    const SubmissionToSeal item = {{secrets_.data(), 32},
                                   Onions(onions),
                                   Submission(onions),
                                   MutableBytes(seeds_).first(onions * 32)};
    SealSubmissions(*recipient_, {}, {&item, 1});
  }
  void OpenSubmission(size_t onions) {
    SubmissionToOpen item = {Submission(onions), MutableBytes(seeds_).first(onions * 32),
                             Onions(onions)};
    OpenSubmissions(pair_, {}, {&item, 1});
    SHOAL_CHECK(item.opened);
  }

 private:
  MutableBytes Onions(size_t onions) {
    return MutableBytes(onions_).first(onions * OnionBytes(kParties - 1));
  }
  MutableBytes Submission(size_t onions) {
    return MutableBytes(submission_).first(SubmissionBytes(kParties, onions));
  }

  KeyPair pair_;
  const Info sealing_{Aead::kChaCha20Poly1305, {}}, export_only_{Aead::kExportOnly, {}};
  std::unique_ptr<Recipient> recipient_;
  const Kernel* kernel_ = nullptr;
  TableMemory table_;
  Context context_;
  Bytes secrets_ = Bytes(kCount * 32), flags_ = Bytes(kCount);
  Bytes messages_, boxes_, onions_, submission_, seeds_;
  uint8_t products_[2][kKernelBatch * 32];
};

struct Operation {
  std::string name;
  size_t calls, items;                // how often it is called, of how many items each call is
  size_t curve;                       // the operation that is its curve's part
  std::function<void(Work&)> body;    // one call
  std::vector<double> times, ratios;  // microseconds per item
};

std::vector<Operation> Operations(const Options& options, bool portable) {
  const size_t n = portable ? kPortableCount : kCount;
  const size_t calls = portable ? 1 : 16;  // of calls with one use of the curve each
  std::vector<Operation> operations;
  const auto add = [&](std::string name, size_t times, size_t items, size_t curve,
                       std::function<void(Work&)> body) {
    operations.push_back({std::move(name), times, items, curve, std::move(body), {}, {}});
  };
  add("curve of a seal", 1, n, 0, [n](Work& work) { work.CurveOfSeals(n); });
  add("curve of an open", 1, n, 1, [n](Work& work) { work.CurveOfOpens(n); });
  add("export", 1, n, 0, [n](Work& work) { work.Export(n); });
  add("decapsulate", 1, n, 1, [n](Work& work) { work.Decapsulate(n); });
  for (size_t bytes : options.bytes) {
    add(absl::StrCat("seal ", bytes, " bytes"), 1, n, 0,
        [n, bytes](Work& work) { work.Seal(n, bytes); });
    add(absl::StrCat("open ", bytes, " bytes"), 1, n, 1,
        [n, bytes](Work& work) { work.Open(n, bytes); });
  }
  add("numbered export", 1, kCount, 0, [](Work& work) { work.ExportNumbers(kCount); });
  for (size_t onions : options.onions) {
    add(absl::StrCat("seal submission of ", onions), calls, 1, 0,
        [onions](Work& work) { work.SealSubmission(onions); });
    add(absl::StrCat("open submission of ", onions), calls, 1, 1,
        [onions](Work& work) { work.OpenSubmission(onions); });
  }
  return operations;
}

// Microseconds per item, counting the items of all threads.
double Measure(std::vector<std::unique_ptr<Work>>& works, const Operation& operation) {
  const auto body = [&](Work& work) {
    for (size_t i = 0; i < operation.calls; ++i) operation.body(work);
  };
  const Stopwatch stopwatch(works.size() == 1 ? Stopwatch::kThread : Stopwatch::kWall);
  std::vector<std::thread> threads;
  for (size_t t = 1; t < works.size(); ++t) threads.emplace_back(body, std::ref(*works[t]));
  body(*works[0]);
  for (std::thread& thread : threads) thread.join();
  return 1e6 * stopwatch.Seconds() /
         static_cast<double>(operation.calls * operation.items * works.size());
}

void Run(const Options& options) {
  std::printf("%-9s %7s  %-26s %10s %10s %11s\n", "set", "threads", "operation", "least us",
              "median us", "over curve");
  for (size_t thread_count : options.threads) {
    std::vector<std::unique_ptr<Work>> works;
    for (size_t t = 0; t < thread_count; ++t) works.push_back(std::make_unique<Work>(options));
    std::vector<std::vector<Operation>> operations;
    for (InstructionSet set : options.sets) {
      operations.push_back(Operations(options, set == InstructionSet::kPortable));
    }
    for (size_t round = 0; round < options.rounds; ++round) {
      for (size_t s = 0; s < options.sets.size(); ++s) {
        UseInstructionSet(options.sets[s]);
        for (auto& work : works) {
          work->UseActiveSet();
          operations[s][0].body(*work);  // the first use of new tables takes longer
        }
        for (Operation& operation : operations[s]) {
          operation.times.push_back(Measure(works, operation));
          operation.ratios.push_back(operation.times.back() /
                                     operations[s][operation.curve].times.back());
        }
      }
    }
    for (size_t s = 0; s < options.sets.size(); ++s) {
      for (const Operation& operation : operations[s]) {
        std::printf("%-9s %7zu  %-26s %10.3f %10.3f %11.2f\n",
                    std::string(NameOf(options.sets[s])).c_str(), thread_count,
                    operation.name.c_str(),
                    *std::min_element(operation.times.begin(), operation.times.end()),
                    Median(operation.times), Median(operation.ratios));
      }
    }
    std::fflush(stdout);
  }
}

bool ParseNumbers(absl::string_view list, std::vector<size_t>& numbers) {
  numbers.clear();
  for (absl::string_view part : absl::StrSplit(list, ',')) {
    uint64_t number;
    if (!absl::SimpleAtoi(part, &number) || number == 0 || number > 10'000) return false;
    numbers.push_back(number);
  }
  return true;
}

bool Parse(int argc, char** argv, Options& options) {
  for (InstructionSet set : kAllInstructionSets) {
    if (IsSupported(set)) options.sets.insert(options.sets.begin(), set);
  }
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    std::vector<size_t> rounds;
    if (absl::ConsumePrefix(&argument, "--bytes=")) {
      if (!ParseNumbers(argument, options.bytes)) return false;
    } else if (absl::ConsumePrefix(&argument, "--onions=")) {
      if (!ParseNumbers(argument, options.onions)) return false;
    } else if (absl::ConsumePrefix(&argument, "--threads=")) {
      if (!ParseNumbers(argument, options.threads)) return false;
    } else if (absl::ConsumePrefix(&argument, "--rounds=")) {
      if (!ParseNumbers(argument, rounds) || rounds.size() != 1) return false;
      options.rounds = rounds[0];
    } else if (absl::ConsumePrefix(&argument, "--instruction_sets=")) {
      options.sets.clear();
      for (absl::string_view name : absl::StrSplit(argument, ',')) {
        for (InstructionSet set : kAllInstructionSets) {
          if (IsSupported(set) && NameOf(set) == name) options.sets.push_back(set);
        }
        if (options.sets.empty()) return false;
      }
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace shoal::onion

int main(int argc, char** argv) {
  SHOAL_CHECK(sodium_init() >= 0);
  shoal::onion::Options options;
  if (!shoal::onion::Parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: onion_benchmark [--instruction_sets=avx512,avx2,portable]\n"
                 "         [--bytes=32,80,128] [--onions=1,64,1000] [--threads=1] [--rounds=9]\n");
    return 2;
  }
  shoal::onion::Run(options);
  return 0;
}
