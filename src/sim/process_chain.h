// A deployment of three parties, or as many as a test says, below one directory, each a `shoald` of
// its own, for tests.
#ifndef SHOAL_SRC_SIM_PROCESS_CHAIN_H_
#define SHOAL_SRC_SIM_PROCESS_CHAIN_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/sim/processes.h"

namespace shoal::sim {

struct ProcessChainOptions {
  // The table has "key-I" with "value I*I" for each I below.
  int records = 100;
  // Windows and counts, text format.
  std::string rounds;
  // Of `local-chain create`, beside these, and of `shoal table build`.
  std::vector<std::string> create = {}, table = {};
  // What a client asks at least.
  uint32_t pad_to = 8;
  // How many ports the test has, from port(1) on; the first are the parties'.
  uint32_t ports = 3;
  uint32_t parties = 3;
};

// Ends the test program if something cannot be made or started. Its noise protects single lookups.
class ProcessChain {
 public:
  // Unless the options say another number.
  static constexpr uint32_t kParties = 3;

  // Makes the deployment in the test's temporary directory below `name`. Starts nothing.
  ProcessChain(const std::string& name, ProcessChainOptions options);

  std::filesystem::path path(const std::string& name) const { return directory_ / name; }
  uint16_t port(uint32_t party) const { return static_cast<uint16_t>(port_ + party - 1); }
  std::string address(uint32_t party) const;
  std::string config(uint32_t party) const;
  // Adds a line to a party's configuration.
  void Configure(uint32_t party, const std::string& line) const;
  std::filesystem::path state(uint32_t party) const;

  // Starts a party and waits until it listens.
  void Start(uint32_t party);
  // Starts it by this command, and waits for nothing.
  void Start(uint32_t party, const std::vector<std::string>& command) {
    parties_[party - 1].emplace(command);
  }
  // The last party first, those that do not run.
  void StartAll();
  // Stops a party as an operator does. Returns the exit code.
  std::optional<int> Stop(uint32_t party);
  void Kill(uint32_t party) { parties_[party - 1].reset(); }
  void KillAll();
  Process& process(uint32_t party) { return *parties_[party - 1]; }

  // The configuration of a new client, with a state of its own, and how long it waits for a round.
  std::string NewClient(int timeout_s = 100);
  void SetTimeout(const std::filesystem::path& client, int timeout_s) const;
  // The command of a lookup.
  std::vector<std::string> Query(const std::string& client,
                                 const std::vector<std::string>& keys) const;

 private:
  const ProcessChainOptions options_;
  const uint16_t port_;
  const std::filesystem::path directory_;
  std::vector<std::optional<Process>> parties_;
  int clients_ = 0;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_PROCESS_CHAIN_H_
