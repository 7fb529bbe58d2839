// What //src/fuzz:coverage is for: libFuzzer finds its way through code that gcc compiled. A word
// of eight bytes is found in some hundred thousand inputs. Without knowing which code an input
// reaches and what is compared, one would try 2^64.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "src/base/bytes.h"

extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*test)(const uint8_t*, size_t));

namespace shoal::fuzz {
namespace {

constexpr std::array<uint8_t, 4> kLetters = {'s', 'h', 'o', 'a'};
constexpr uint32_t kNumber = 0x9e3779b1;
constexpr uint64_t kMostInputs = 50'000'000;

// The letters one after the other, as counters show the way to them, and a number at once, as the
// comparison shows.
bool IsTheWord(BytesView input) {
  if (input.size() < kLetters.size() + sizeof kNumber) return false;
  for (size_t i = 0; i < kLetters.size(); ++i) {
    if (input[i] != kLetters[i]) return false;
  }
  return LoadLe<uint32_t>(input.data() + kLetters.size()) == kNumber;
}

int Test(const uint8_t* data, size_t size) {
  static uint64_t inputs = 0;
  ++inputs;
  const bool found = IsTheWord({data, size});
  if (!found && inputs < kMostInputs) return 0;
  std::cout << (found ? "found" : "not found") << " in " << inputs << " inputs" << std::endl;
  std::_Exit(found ? EXIT_SUCCESS : EXIT_FAILURE);
}

}  // namespace
}  // namespace shoal::fuzz

int main(int, char** argv) {
  std::vector<std::string> arguments = {argv[0], "-seed=1", "-max_len=16", "-len_control=0"};
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  int count = static_cast<int>(pointers.size());
  char** values = pointers.data();
  LLVMFuzzerRunDriver(&count, &values, shoal::fuzz::Test);
  return EXIT_FAILURE;  // it goes on until Test ends it
}
