// Makes trees' nodes and looks for a hint with roots, shifts and a row that are marked as
// uninitialised for valgrind: memcheck then reports every branch and every address that depends on
// them. //src/pir/sets:tree_constant_time_test runs it.
//
//   tree_constant_time_main            everything; silence is success
//   tree_constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered is what a client does with all of its hints, by every kernel that valgrind can execute.
// It cannot execute AVX-512. Not covered: where in its own memory a client then reads the hint that
// it found (docs/tree-sets.md).
#include <array>
#include <cstdio>
#include <vector>

#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/testing/constant_time.h"
#include "src/pir/sets/tree_kernel.h"

namespace shoal::pir::sets {
namespace {

using shoal::testing::MakePublic;
using shoal::testing::MakeSecret;

void RunFind(const TreeKernel& kernel) {
  constexpr uint32_t kHints = 1000;  // whole registers, and a remainder
  SystemRandom random;
  std::vector<uint8_t> roots(TreeKernel::kBlockBytes * kHints), children(roots.size());
  std::vector<uint32_t> shifts(kHints), leaves(kHints);
  random.Fill(roots);
  random.Fill({reinterpret_cast<uint8_t*>(shifts.data()), 4 * shifts.size()});
  // Where the row's chunk is in the tree, and its offset.
  std::array<uint32_t, 2> numbers = {3, 1};
  std::array<uint32_t, 2> row = {2, 77};
  MakeSecret(roots);
  MakeSecret(shifts);
  MakeSecret(numbers);
  // The portable kernel picks the word by its address, in the block that has it.
  if (&kernel != &PortableTreeKernel()) MakeSecret(row);
  kernel.leaves(roots.data(), kHints, numbers.data(), numbers.size(), row[0], 0xff, leaves.data());
  std::array<uint32_t, 1> found = {kernel.find(leaves.data(), shifts.data(), row[1], kHints)};
  MakePublic(found);
  SHOAL_CHECK(found[0] <= kHints);
  kernel.expand(roots.data(), kHints / 4, numbers[0], 4, children.data());
  MakePublic(children);
  std::printf("%s: leaves, find, expand\n", kernel.name);
}

}  // namespace
}  // namespace shoal::pir::sets

int main(int argc, char** argv) {
  return shoal::testing::ConstantTimeMain(argc, argv, [] {
    for (const auto* kernel : shoal::pir::sets::SupportedTreeKernels()) {
      shoal::pir::sets::RunFind(*kernel);
    }
  });
}
