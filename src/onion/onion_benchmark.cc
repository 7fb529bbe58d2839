// Seals and opens per second, for every instruction set and message size, against libsodium's
// own crypto_box_seal and crypto_box_seal_open in the same run.
//
//   onion_benchmark [--instruction_sets=avx512,avx2,portable] [--bytes=80,64,128,256,400]
//                   [--threads=1,2] [--rounds=9]
//
// libsodium and the instruction sets take turns, round by round, so that other programs' load or a
// change of the clock rate affects all of them alike. Printed are the median over the rounds, in
// microseconds per box, and the median of the rounds' ratios. libsodium draws its ephemeral keys
// itself; those of the batches are drawn in bulk, inside the measured time. One thread is measured
// in processor time, so that other programs do not count. Several threads are measured in wall
// time, which shows whether they scale, and need an idle machine.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/onion/sealed_box.h"

namespace shoal::onion {
namespace {

struct Options {
  std::vector<InstructionSet> sets;
  std::vector<size_t> bytes = {80, 64, 128, 256, 400};
  std::vector<size_t> threads = {1, 2};
  size_t rounds = 9;
};

// The messages and boxes of one thread.
class Work {
 public:
  Work(size_t bytes, size_t count)
      : bytes_(bytes),
        count_(count),
        messages_(count * bytes, 1),
        boxes_(count * (bytes + kSealBytes)),
        opened_(count),
        secrets_(count * 32) {
    SystemRandom random;
    pair_ = KeyPairFromSecret(random.NewSeed().view());
    recipient_ = std::make_unique<Recipient>(Recipient::Create(pair_.public_key).value());
  }

  void UseTableOfActiveSet() { *recipient_ = Recipient::Create(pair_.public_key).value(); }

  void Seal() {
    SystemRandom().Fill(secrets_);
    SealBatch(*recipient_, {secrets_.data(), 32, 32}, {messages_.data(), bytes_, bytes_},
              {boxes_.data(), bytes_ + kSealBytes, bytes_ + kSealBytes}, count_);
  }
  void Open() {
    OpenBatch(pair_, {boxes_.data(), bytes_ + kSealBytes, bytes_ + kSealBytes},
              {messages_.data(), bytes_, bytes_}, opened_);
    for (uint8_t opened : opened_) SHOAL_CHECK(opened == 1);
  }
  void SealWithSodium(size_t n) {
    for (size_t i = 0; i < n; ++i) {
      SHOAL_CHECK(crypto_box_seal(Box(i), messages_.data() + i * bytes_, bytes_,
                                  pair_.public_key.data()) == 0);
    }
  }
  void OpenWithSodium(size_t n) {
    for (size_t i = 0; i < n; ++i) {
      SHOAL_CHECK(crypto_box_seal_open(messages_.data() + i * bytes_, Box(i), bytes_ + kSealBytes,
                                       pair_.public_key.data(), pair_.secret_key.data()) == 0);
    }
  }
  size_t count() const { return count_; }

 private:
  uint8_t* Box(size_t i) { return boxes_.data() + i * (bytes_ + kSealBytes); }

  size_t bytes_;
  size_t count_;
  KeyPair pair_;
  std::unique_ptr<Recipient> recipient_;
  Bytes messages_, boxes_, opened_, secrets_;
};

// Microseconds per box, counting the boxes of all threads.
double Measure(std::vector<std::unique_ptr<Work>>& works, size_t boxes_per_thread,
               const std::function<void(Work&)>& body) {
  const Stopwatch stopwatch(works.size() == 1 ? Stopwatch::kThread : Stopwatch::kWall);
  std::vector<std::thread> threads;
  for (size_t t = 1; t < works.size(); ++t) threads.emplace_back(body, std::ref(*works[t]));
  body(*works[0]);
  for (std::thread& thread : threads) thread.join();
  return 1e6 * stopwatch.Seconds() / static_cast<double>(boxes_per_thread * works.size());
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run(const Options& options) {
  constexpr size_t kBoxes = 1024;  // per thread and round
  constexpr size_t kSodiumBoxes = 128;
  std::printf("%-9s %5s %7s | %9s %9s %7s | %9s %9s %7s\n", "set", "bytes", "threads", "seal us",
              "sodium", "ratio", "open us", "sodium", "ratio");
  for (size_t bytes : options.bytes) {
    for (size_t thread_count : options.threads) {
      std::vector<std::unique_ptr<Work>> works;
      for (size_t t = 0; t < thread_count; ++t) {
        works.push_back(std::make_unique<Work>(bytes, kBoxes));
      }
      const size_t sets = options.sets.size();
      std::vector<double> sodium_seal, sodium_open;
      std::vector<std::vector<double>> seal(sets), open(sets), seal_ratio(sets), open_ratio(sets);
      for (size_t round = 0; round < options.rounds; ++round) {
        sodium_seal.push_back(
            Measure(works, kSodiumBoxes, [](Work& work) { work.SealWithSodium(kSodiumBoxes); }));
        sodium_open.push_back(
            Measure(works, kSodiumBoxes, [](Work& work) { work.OpenWithSodium(kSodiumBoxes); }));
        for (size_t s = 0; s < sets; ++s) {
          UseInstructionSet(options.sets[s]);
          for (auto& work : works) work->UseTableOfActiveSet();
          seal[s].push_back(Measure(works, kBoxes, [](Work& work) { work.Seal(); }));
          open[s].push_back(Measure(works, kBoxes, [](Work& work) { work.Open(); }));
          seal_ratio[s].push_back(sodium_seal.back() / seal[s].back());
          open_ratio[s].push_back(sodium_open.back() / open[s].back());
        }
      }
      for (size_t s = 0; s < sets; ++s) {
        std::printf("%-9s %5zu %7zu | %9.3f %9.2f %7.2f | %9.3f %9.2f %7.2f\n",
                    std::string(NameOf(options.sets[s])).c_str(), bytes, thread_count,
                    Median(seal[s]), Median(sodium_seal), Median(seal_ratio[s]), Median(open[s]),
                    Median(sodium_open), Median(open_ratio[s]));
      }
      std::fflush(stdout);
    }
  }
}

bool ParseNumbers(absl::string_view list, std::vector<size_t>& numbers) {
  numbers.clear();
  for (absl::string_view part : absl::StrSplit(list, ',')) {
    uint64_t number;
    if (!absl::SimpleAtoi(part, &number) || number > 1 << 20) return false;
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
    } else if (absl::ConsumePrefix(&argument, "--threads=")) {
      if (!ParseNumbers(argument, options.threads)) return false;
    } else if (absl::ConsumePrefix(&argument, "--rounds=")) {
      if (!ParseNumbers(argument, rounds) || rounds.size() != 1 || rounds[0] == 0) return false;
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
                 "         [--bytes=80,64,128,256,400] [--threads=1,2] [--rounds=9]\n");
    return 2;
  }
  shoal::onion::Run(options);
  return 0;
}
