// The `shoal` program. Every command is a cli::Command that another file of this folder makes.
#include <vector>

#include "src/cli/command.h"
#include "src/client/tls_transport.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/party_commands.h"
#include "src/shoal/plan_command.h"
#include "src/shoal/table_commands.h"

int main(int argc, char** argv) {
  using namespace shoal::commands;
  const Connector connect = [](const std::string& address) {
    return shoal::client::ConnectTls(address);
  };
  const std::vector<shoal::cli::Command> commands = {
      Init(connect),          Ceremony(),       KeysGenerate(),    KeysRenew(),
      KeysMachine(),          RosterAssemble(), RosterSign(),      RosterAggregate(),
      RosterPins(),           RosterInspect(),  TableBuild(),      TableInspect(),
      TableVerify(),          TableSign(),      TableAggregate(),  TableSignEngine(),
      TableAggregateEngine(), Query(connect),   Prepare(connect),  Watch(connect),
      Updates(connect),       Audit(connect),   Simulate(connect), Status(connect),
      PlanCommand(),
  };
  return shoal::cli::Main("shoal", "private lookups in public tables", commands, argc, argv);
}
