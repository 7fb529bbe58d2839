// Searches the sets of a client, with choices, halves, places and what is looked for marked as
// uninitialised for valgrind: memcheck then reports every branch and every address that depends on
// them. //src/pir/sets:gather_constant_time_test runs it.
//
//   gather_constant_time_main            everything; silence is success
//   gather_constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered are the searches through all sets that a query and a changed row take, by every kernel
// that valgrind can execute. It cannot execute AVX-512. Not covered: where in its own memory a
// client then reads the hint that it found (docs/half-sets.md).
#include <array>
#include <cstdio>
#include <vector>

#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/testing/constant_time.h"
#include "src/pir/sets/gather.h"
#include "src/pir/sets/gather_dispatch.h"

namespace shoal::pir::sets {
namespace {

using shoal::testing::MakePublic;
using shoal::testing::MakeSecret;

template <typename T>
void Fill(std::vector<T>& values) {
  SystemRandom().Fill({reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)});
  MakeSecret(values);
}

void RunSearches(const GatherKernel& kernel) {
  constexpr size_t kSets = 1000;  // whole registers, and a remainder
  std::vector<uint16_t> choices(kSets), halves(kSets), live(kSets, 0xffff);
  std::vector<uint32_t> places(kSets);
  std::vector<uint64_t> beside(kSets), hits(GatherKernel::HitWords(kSets));
  Fill(choices);
  Fill(halves);
  Fill(places);
  Fill(beside);
  MakeSecret(live);
  std::array<uint16_t, 1> wanted = {77};
  std::array<uint64_t, 1> row = {12345};
  std::array<uint32_t, 1> value = {99};
  MakeSecret(wanted);
  MakeSecret(row);
  MakeSecret(value);
  std::array<uint32_t, 3> found = {kernel.first_live(choices.data(), live.data(), kSets, wanted[0]),
                                   kernel.least_place(choices.data(), halves.data(), places.data(),
                                                      beside.data(), kSets, wanted[0], row[0]),
                                   kernel.find(places.data(), kSets, value[0])};
  kernel.match(choices.data(), halves.data(), live.data(), kSets, wanted[0], hits.data());
  kernel.match_beside(beside.data(), kSets, row[0], hits.data());
  MakePublic(found);
  MakePublic(hits);
  SHOAL_CHECK(found[2] < kSets);
  std::printf("%s: first_live, least_place, find, match, match_beside\n", kernel.name);
}

}  // namespace
}  // namespace shoal::pir::sets

int main(int argc, char** argv) {
  return shoal::testing::ConstantTimeMain(argc, argv, [] {
    for (const auto* kernel : shoal::pir::sets::SupportedGathers()) {
      shoal::pir::sets::RunSearches(*kernel);
    }
  });
}
