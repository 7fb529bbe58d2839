#include "src/sim/process_chain.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace shoal::sim {

namespace fs = std::filesystem;

ProcessChain::ProcessChain(const std::string& name, ProcessChainOptions options)
    : options_(std::move(options)),
      port_(FreePorts(options_.ports)),
      directory_(fs::path(::testing::TempDir()) / name),
      parties_(options_.parties) {
  std::string records;
  for (int i = 0; i < options_.records; ++i) {
    absl::StrAppend(&records, "key-", i, "\tvalue ", i * i, "\n");
  }
  const fs::path file = directory_.string() + ".tsv";
  WriteText(file, records);
  std::vector<std::string> command = {LocalChain(),
                                      "create",
                                      directory_,
                                      "--parties",
                                      absl::StrCat(options_.parties),
                                      "--port",
                                      absl::StrCat(port_),
                                      "--protect",
                                      "lookup",
                                      "--rounds",
                                      options_.rounds};
  command.insert(command.end(), options_.create.begin(), options_.create.end());
  command.insert(command.end(), {"--", "--tsv", file, "--name", "squares", "--row-bytes", "128"});
  command.insert(command.end(), options_.table.begin(), options_.table.end());
  const Result created = RunToEnd(command);
  Require(created.code == 0, created.output);
}

std::string ProcessChain::address(uint32_t party) const {
  return absl::StrCat("127.0.0.1:", port(party));
}

std::string ProcessChain::config(uint32_t party) const {
  return path(absl::StrCat("party-", party, ".textproto"));
}

void ProcessChain::Configure(uint32_t party, const std::string& line) const {
  WriteText(config(party), absl::StrCat(Text(config(party)), "\n", line, "\n"));
}

fs::path ProcessChain::state(uint32_t party) const {
  return path(absl::StrCat("party-", party, ".state"));
}

void ProcessChain::Start(uint32_t party) {
  Start(party, {Shoald(), "--config", config(party)});
  Require(process(party).WaitForOutput("listens on"), process(party).Output());
}

void ProcessChain::StartAll() {
  for (uint32_t party = options_.parties; party >= 1; --party) {
    if (!parties_[party - 1].has_value()) Start(party);
  }
}

std::optional<int> ProcessChain::Stop(uint32_t party) {
  process(party).Signal(SIGTERM);
  const std::optional<int> code = process(party).Wait();
  Kill(party);
  return code;
}

void ProcessChain::KillAll() {
  for (auto& party : parties_) party.reset();
}

std::string ProcessChain::NewClient(int timeout_s) {
  const fs::path client = path(absl::StrCat("client-", ++clients_, ".textproto"));
  SetTimeout(client, timeout_s);
  return client;
}

void ProcessChain::SetTimeout(const fs::path& client, int timeout_s) const {
  WriteText(client, absl::StrCat("frontend: '", address(1),
                                 "' pinned_parties_file: 'pinned.textproto' state: '",
                                 client.stem().string(), ".state' pad_to: ", options_.pad_to,
                                 " timeout_s: ", timeout_s));
}

std::vector<std::string> ProcessChain::Query(const std::string& client,
                                             const std::vector<std::string>& keys) const {
  std::vector<std::string> command = {Shoal(), "query", "--config", client};
  command.insert(command.end(), keys.begin(), keys.end());
  return command;
}

}  // namespace shoal::sim
