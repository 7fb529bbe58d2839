// The `shoal` program: every command is an object made in its own library.
#include <vector>

#include "src/cli/command.h"
#include "src/cli/party_commands.h"
#include "src/cli/table_commands.h"
#include "src/client/commands.h"
#include "src/client/tls_transport.h"
#include "src/plan/commands.h"

int main(int argc, char** argv) {
  using namespace shoal::cli;
  using shoal::client::ConnectTls;
  const std::vector<Command> commands = {
      KeysGenerate(),    RosterAssemble(), RosterSign(), RosterAggregate(),
      RosterPins(),      RosterInspect(),  TableBuild(), TableInspect(),
      TableVerify(),     TableSign(),      TableAggregate(),
      shoal::client::Query(ConnectTls),
      shoal::client::Updates(ConnectTls),
      shoal::client::Simulate(ConnectTls),
      shoal::client::Status(ConnectTls),
      shoal::plan::PlanCommand(),
  };
  return Main("shoal", "private lookups in public tables", commands, argc, argv);
}
