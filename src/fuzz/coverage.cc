// Lets libFuzzer see which code an input reaches.
//
// libFuzzer is clang's, and its counters are made by clang's
// -fsanitize-coverage=inline-8bit-counters. gcc has -fsanitize-coverage=trace-pc, a call in each
// block of code, and trace-cmp, a call before each comparison. The latter calls functions of
// libFuzzer. The former calls the function below (by the linker's --wrap: libFuzzer has an empty
// one of that name), which counts for libFuzzer.
#include <cstddef>
#include <cstdint>

// The address at which the program was loaded, which differs from run to run.
extern "C" const char __executable_start;
// Of libFuzzer: looks at the counters [begin, end) after each input, and clears them before the
// next.
extern "C" void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);

namespace shoal::fuzz {
namespace {

// A search has some thousand blocks of code in reach, so that few of them share a counter. More
// counters would take longer to look at than most parsers run.
constexpr int kCounterBits = 16;
constexpr size_t kCounters = size_t{1} << kCounterBits;
alignas(64) uint8_t counters[kCounters];

__attribute__((constructor)) void ShowCounters() {
  __sanitizer_cov_8bit_counters_init(counters, counters + kCounters);
}

}  // namespace
}  // namespace shoal::fuzz

// Counts how often the block of its caller ran. A counter stops at its largest value, as zero would
// say that the block was not reached.
extern "C" __attribute__((no_sanitize_coverage, no_sanitize("address", "undefined"))) void
__wrap___sanitizer_cov_trace_pc() {
  const auto block = reinterpret_cast<uintptr_t>(__builtin_return_address(0)) -
                     reinterpret_cast<uintptr_t>(&__executable_start);
  // Fibonacci hashing: neighbouring blocks get different counters.
  uint8_t& counter =
      shoal::fuzz::counters[block * 0x9e3779b97f4a7c15 >> (64 - shoal::fuzz::kCounterBits)];
  counter = static_cast<uint8_t>(counter + (counter != 255));
}

// gcc has two kinds of comparisons that libFuzzer does not know: of floats and of doubles.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
