// shoal-door: serves clients of the web for a frontend.
#include "src/cli/command.h"
#include "src/door/program.h"

int main(int argc, char** argv) {
  return shoal::cli::MainOfOne(shoal::door::DoorCommand(), argc, argv);
}
