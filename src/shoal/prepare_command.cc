#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/session.h"

namespace shoal::commands {
namespace {

absl::Status RunPrepare(const Connector& connect, const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool json, JsonWanted(values, "tsv"));
  SHOAL_ASSIGN_OR_RETURN(const pir::Engine* const engine, EngineOf(values));
  if (engine == nullptr) {
    return cli::UsageError(
        "the chain prepares nothing but slots: shoal query --obtain takes them ahead of time");
  }
  if (!engine->keeps_state()) {
    return cli::UsageError(
        absl::StrCat("--engine: ", engine->name(),
                     " prepares nothing that is spent; its hint is fetched by the first query"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string config_path, ConfigPathOf(values));
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      Session::Open("shoal prepare", config_path, connect, values.count("quiet") > 0, io));
  SHOAL_ASSIGN_OR_RETURN(
      const Session::Prepared prepared,
      session->PrepareEngine(*engine, cli::TextsOf(values, "party"), values.count("anew") > 0));
  if (!prepared.now) {
    session->Tell(prepared.queries ? "there is nothing to do: both sessions have queries left"
                                   : "there is nothing to do: the session is prepared");
  }
  JsonObject object;
  if (prepared.queries) {
    object.Integer("queries", *prepared.queries);
  } else {
    object.Text("queries", "unlimited");
  }
  if (json) {
    io.out << object.Take() << '\n';
  } else {
    io.out << "queries\t"
           << (prepared.queries ? std::to_string(*prepared.queries) : std::string("unlimited"))
           << '\n';
  }
  return absl::OkStatus();
}

}  // namespace

cli::Command Prepare(Connector connect) {
  return {
      .name = "prepare",
      .summary = "read the table once, for an engine whose queries are prepared",
      .help =
          R"(Prepares queries of an engine that keeps hints of its own. With --engine piano it reads
the whole table from the server once, checks it against what all parties signed, and keeps about
a tenth of it, or much less of it if rows are short, beside the state: docs/engines.md
has the sizes. What it reads does not depend on any key, before or after.

There are two sessions. While one answers queries, this command prepares the other, and
both can be done at the same time. It prepares one that was never prepared or is spent,
and says how many queries both have:
  queries, their number                                           with tabs, or
  {"queries":..}                                                with --format json
After a crash, Ctrl-C or a lost connection the same command goes on where it stopped. If
a new version of the table goes live, what is prepared is brought to it by the rows that
have changed; only if the server no longer has these, it is prepared again.

With --engine treepir or permuted there are two servers, which --party or the configuration
names. The offline one makes hints from a seed that this command draws, 46 MB or 35 MB for
a gigabyte, and they serve any number of queries, so that there is one session. Each of the
two learns nothing of which rows are asked for; both together learn all of it, whatever the
other parties of the chain do.

--anew gives both sessions up, with the queries that are left in them, and prepares one.
The server sees that. It is for another table under the same state, for two servers that
change their roles, and for a day that was fixed before, the same for every client. It is
not for a lookup that failed: who prepares the hints can spoil them so that the lookup of
one row fails and hardly any other, and would learn that you asked for it. The same holds
for a new state or another server in the place of this one.
)",
      .examples = R"(  shoal prepare --config client.textproto --engine piano
  shoal prepare --config client.textproto --engine piano --party 2    with another server
  shoal prepare --config client.textproto --engine treepir --party 1 --party 2
  shoal prepare --config client.textproto --engine permuted --party 1 --party 2
  shoal query --config client.textproto --engine piano bash openssl
)",
      .options =
          [](cli::Options& options) {
            AddConfigOption(options);
            AddEngineOption(options);
            options.add_options()("party", cli::Texts(),
                                  "prepare with the engine of this party (1); for an engine of two "
                                  "servers given twice, offline first (those of the "
                                  "configuration)");
            options.add_options()(
                "anew",
                "give up what is prepared, and begin again; the server sees it, so "
                "never because a lookup failed");
            AddFormatOption(options, "tsv");
            options.add_options()("quiet", "print only errors on standard error");
          },
      .positional = "",
      .run = std::bind_front(RunPrepare, std::move(connect)),
  };
}

}  // namespace shoal::commands
