// The `shoal` program: every command is an object made in its own library.
#include <vector>

#include "src/cli/command.h"
#include "src/cli/party_commands.h"
#include "src/cli/table_commands.h"

int main(int argc, char** argv) {
  using namespace shoal::cli;
  const std::vector<Command> commands = {
      KeysGenerate(),    RosterAssemble(), RosterSign(), RosterAggregate(),
      RosterPins(),      RosterInspect(),  TableBuild(), TableInspect(),
      TableVerify(),     TableSign(),      TableAggregate(),
  };
  return Main("shoal", "private lookups in public tables", commands, argc, argv);
}
