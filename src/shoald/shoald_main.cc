// shoald: a party of one machine.
#include "src/cli/command.h"
#include "src/shoald/program.h"
#include "src/storage/wiping_heap.h"

int main(int argc, char** argv) {
  shoal::WipeWhatIsFreed();
  return shoal::cli::MainOfOne(shoal::shoald::PartyCommand(nullptr), argc, argv);
}
