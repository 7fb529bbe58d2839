// A dishonest party for demonstrations and tests: shoald, but as the last party it answers one row,
// that of $SHOAL_SPOIL_ROW, with a byte that was changed after all parties signed it. It is what an
// operator of the last party could build: every line of shoald is as it is, and the linker sends
// its calls of Table::CopyAnswer here (--wrap, in BUILD).
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "src/base/bytes.h"
#include "src/cli/command.h"
#include "src/shoald/program.h"
#include "src/storage/wiping_heap.h"
#include "src/table/table.h"

namespace {

uint64_t spoiled_row = 0;

}  // namespace

// The linker's names: __real_X is Table::CopyAnswer, and calls of X come to __wrap_X.
extern "C" {
void __real__ZNK5shoal5table5Table10CopyAnswerEmSt4spanIhLm18446744073709551615EE(
    const shoal::table::Table* table, uint64_t row, shoal::MutableBytes answer);
void __wrap__ZNK5shoal5table5Table10CopyAnswerEmSt4spanIhLm18446744073709551615EE(
    const shoal::table::Table* table, uint64_t row, shoal::MutableBytes answer) {
  __real__ZNK5shoal5table5Table10CopyAnswerEmSt4spanIhLm18446744073709551615EE(table, row, answer);
  if (row == spoiled_row) answer[0] ^= 1;
}
}

int main(int argc, char** argv) {
  const char* row = std::getenv("SHOAL_SPOIL_ROW");
  if (row == nullptr || !absl::SimpleAtoi(row, &spoiled_row)) {
    std::fprintf(stderr, "spoiling_shoald: SHOAL_SPOIL_ROW has no row to be spoiled\n");
    return 2;
  }
  shoal::WipeWhatIsFreed();
  return shoal::cli::MainOfOne(shoal::shoald::PartyCommand(nullptr), argc, argv);
}
