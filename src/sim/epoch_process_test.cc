// Three parties as processes that take new epochs of their table on SIGHUP, and clients that look
// keys up before, over and after each change.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/sim/processes.h"

namespace shoal::sim {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Optional;
using Words = std::vector<std::string>;

constexpr uint32_t kParties = 3;

// A chain whose rounds have 16 slots and take onions for a while, or until they are full.
class Chain {
 public:
  explicit Chain(const std::string& name)
      : port_(FreePorts(kParties)), directory_(fs::path(::testing::TempDir()) / name) {
    const Result created =
        RunToEnd({LocalChain(), "create", directory_, "--parties", absl::StrCat(kParties), "--port",
                  absl::StrCat(port_), "--rounds",
                  "onions_window_s: 20 max_slots: 16 queries_window_s: 60 answers_window_s: 60",
                  "--", "--tsv", Records(1), "--name", "numbers", "--row-bytes", "128"});
    Require(created.code == 0, created.output);
    for (uint32_t party = kParties; party >= 1; --party) {
      auto& process = parties_[party - 1];
      process.emplace(
          Words{Shoald(), "--config", path(absl::StrCat("party-", party, ".textproto"))});
      Require(process->WaitForOutput("listens on"), process->Output());
    }
  }

  fs::path path(const std::string& name) const { return directory_ / name; }
  Process& party(uint32_t number) { return *parties_[number - 1]; }

  // Builds and signs the epoch after that in the directory "table", in the directory "next". Every
  // value names its epoch, and there are more keys from epoch to epoch.
  void MakeNextTable(uint64_t epoch) {
    fs::remove_all(path("next"));
    const Words trust = {"--roster", path("roster.textproto"), "--pinned",
                         path("pinned.textproto")};
    std::vector<Words> commands = {{Shoal(), "table", "build", "--deployment", "local", "--tsv",
                                    Records(epoch), "--previous", path("table"), "--out",
                                    path("next")}};
    for (uint32_t party = 1; party <= kParties; ++party) {
      commands.push_back({Shoal(), "table", "sign", path("next"), "--previous", path("table"),
                          "--keys", path(absl::StrCat("party-", party))});
    }
    commands.push_back({Shoal(), "table", "aggregate", path("next")});
    for (Words& command : commands) {
      if (command[2] != "build") command.insert(command.end(), trust.begin(), trust.end());
      const Result result = RunToEnd(command);
      Require(result.code == 0, result.output);
    }
  }
  // Puts the directory "next" in the place of "table", and that into "before".
  void SwapTables() {
    fs::remove_all(path("before"));
    fs::rename(path("table"), path("before"));
    fs::rename(path("next"), path("table"));
  }

  // A lookup by a client of its own, which takes `slots` slots.
  Words Query(uint32_t slots, const Words& keys) {
    const std::string name = absl::StrCat("client-", ++clients_);
    WriteText(path(name + ".textproto"),
              absl::StrCat("frontend: '127.0.0.1:", port_,
                           "' pinned_parties_file: 'pinned.textproto' state: '", name,
                           ".state' pad_to: ", slots, " timeout_s: 150"));
    Words command = {Shoal(), "query", "--config", path(name + ".textproto")};
    command.insert(command.end(), keys.begin(), keys.end());
    return command;
  }

 private:
  std::string Records(uint64_t epoch) const {
    std::string text;
    for (uint64_t i = 0; i < 100 + 100 * epoch; ++i) {
      absl::StrAppend(&text, "key-", i, "\tvalue ", i, " of epoch ", epoch, "\n");
    }
    const fs::path file = fs::path(::testing::TempDir()) / "records.tsv";
    WriteText(file, text);
    return file;
  }

  const uint16_t port_;
  const fs::path directory_;
  std::optional<Process> parties_[kParties];
  int clients_ = 0;
};

std::string Found(int key, uint64_t epoch) {
  return absl::StrCat("key-", key, "\tfound\tvalue ", key, " of epoch ", epoch, "\tyes\n");
}

// A whole round for one client. The next round opens when this one is full.
void ExpectServed(Chain& chain, uint64_t epoch) {
  const Result result = RunToEnd(chain.Query(16, {"key-7", "key-350"}));
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr(Found(7, epoch)));
  EXPECT_THAT(result.output, HasSubstr(epoch < 3 ? "key-350\tabsent\t\tyes\n" : Found(350, epoch)));
}

// In both orders of the parties: one client holds slots in a round of the old epoch, which ends
// under it; another one waits, as the round has no room for it, and goes on in the new epoch.
TEST(EpochProcess, NobodyIsStrandedAtAChange) {
  Chain chain("epochs");
  uint64_t epoch = 1;
  for (const std::vector<uint32_t>& order :
       {std::vector<uint32_t>{1, 2, 3}, std::vector<uint32_t>{3, 2, 1}}) {
    SCOPED_TRACE(order[0]);
    chain.MakeNextTable(epoch + 1);
    ExpectServed(chain, epoch);
    Process inside(chain.Query(8, {"key-7"}));
    ASSERT_TRUE(inside.WaitForOutput("to take queries")) << inside.Output();
    Process waiting(chain.Query(16, {"key-7", "no-such-key"}));
    ASSERT_TRUE(waiting.WaitForOutput("waiting for a round")) << waiting.Output();
    chain.SwapTables();
    const std::string serves = absl::StrCat("serves epoch ", epoch + 1, " of the table");
    for (const uint32_t party : order) {
      chain.party(party).Signal(SIGHUP);
      ASSERT_TRUE(chain.party(party).WaitForOutput(serves)) << chain.party(party).Output();
      if (party == 1 && party == order[0]) {
        EXPECT_TRUE(chain.party(1).WaitForOutput("party 2: has another epoch of the table"))
            << chain.party(1).Output();
      }
    }
    EXPECT_THAT(waiting.Wait(), Optional(0)) << waiting.Output();
    EXPECT_THAT(waiting.Output(), HasSubstr(Found(7, epoch + 1)));
    EXPECT_THAT(waiting.Output(), HasSubstr("no-such-key\tabsent\t\tyes\n"));
    EXPECT_THAT(waiting.Output(),
                HasSubstr(absl::StrCat("epoch ", epoch + 1, " of the table is served now")));
    EXPECT_THAT(inside.Wait(), Optional(0)) << inside.Output();
    EXPECT_THAT(inside.Output(), HasSubstr(Found(7, epoch)));
    ++epoch;
    ExpectServed(chain, epoch);
  }
  EXPECT_THAT(chain.party(1).Output(), ::testing::Not(HasSubstr("aborted")));
}

TEST(EpochProcess, WhatIsNoNextEpochIsRefusedAndTheOldOneStays) {
  Chain chain("refused");
  // Waits for the answer to this signal, not for one of before: the files may change again only
  // once each party has read them. What is taken must not go on to the next case, which would wait
  // for what cannot come any more.
  const auto all_refuse = [&](const std::string& why) -> ::testing::AssertionResult {
    const std::string refused = "the table was not reloaded: ";
    for (uint32_t party = 1; party <= kParties; ++party) {
      Process& process = chain.party(party);
      const size_t before = process.Output().size();
      process.Signal(SIGHUP);
      if (process.WaitForAnyOutput({refused, "serves epoch "}, kLong, before) != 0) {
        return ::testing::AssertionFailure() << "not refused:\n" << process.Output();
      }
      const size_t line = process.Output().find(refused, before);
      if (!process.WaitForOutput("\n", kLong, line)) return ::testing::AssertionFailure() << party;
      const std::string output = process.Output();
      if (output.substr(line, output.find('\n', line) - line).find(why) == std::string::npos) {
        return ::testing::AssertionFailure() << "refused for another reason:\n" << output;
      }
    }
    return ::testing::AssertionSuccess();
  };
  ASSERT_TRUE(all_refuse("epoch 1 of the table is not after epoch 1, which is served"));
  chain.MakeNextTable(2);
  chain.SwapTables();
  // One byte of a row, of a signature, of the manifest: there a letter of the table's name, as many
  // a byte of a text may change and leave it the same text (a line's end, say).
  const std::string refusals[][3] = {{"rows.bin", "", "rows"},
                                     {"signatures.bin", "", "signature"},
                                     {"manifest.textproto", "numbers", "manifest"}};
  for (const auto& [file, at, why] : refusals) {
    SCOPED_TRACE(file);
    const std::string good = Text(chain.path("table") / file);
    const size_t place = at.empty() ? good.size() / 2 : good.find(at);
    ASSERT_LT(place, good.size());
    std::string damaged = good;
    damaged[place] ^= 1;
    WriteText(chain.path("table") / file, damaged);
    ASSERT_TRUE(all_refuse(why));
    WriteText(chain.path("table") / file, good);
  }
  // A table that is too large for the memory.
  const std::string manifest = Text(chain.path("table") / "manifest.textproto");
  std::string large = manifest;
  for (const std::string field : {"  rows: ", "  records: "}) {
    const size_t at = large.find(field);
    ASSERT_NE(at, std::string::npos) << large;
    large.replace(at, large.find('\n', at) - at, field + "2000000000");
  }
  WriteText(chain.path("table") / "manifest.textproto", large);
  ASSERT_TRUE(all_refuse("MiB are available"));
  WriteText(chain.path("table") / "manifest.textproto", manifest);
  ExpectServed(chain, 1);

  for (uint32_t party = 1; party <= kParties; ++party) {
    chain.party(party).Signal(SIGHUP);
    ASSERT_TRUE(chain.party(party).WaitForOutput("serves epoch 2 of the table"));
  }
  ExpectServed(chain, 2);
  // The old epoch is back in the directory.
  fs::rename(chain.path("table"), chain.path("next"));
  fs::rename(chain.path("before"), chain.path("table"));
  ASSERT_TRUE(all_refuse("epoch 1 of the table is not after epoch 2, which is served"));
  ExpectServed(chain, 2);
}

}  // namespace
}  // namespace shoal::sim
