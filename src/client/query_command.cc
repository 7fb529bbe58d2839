#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/file.h"
#include "src/base/status_macros.h"
#include "src/client/commands.h"
#include "src/client/engine_session.h"
#include "src/client/format.h"
#include "src/client/session.h"
#include "src/table/records.h"

namespace shoal::client {
namespace {

constexpr uint64_t kMaxKeysBytes = 1 << 28;

// One key a line; the last line feed may miss.
absl::Status AddLines(absl::string_view text, const std::string& source, bool escapes,
                      std::vector<Bytes>& keys) {
  size_t line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = text.find('\n');
    const absl::string_view key = text.substr(0, end);
    text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
    if (!escapes) {
      keys.push_back(ToBytes(AsBytes(key)));
      continue;
    }
    auto unescaped = table::UnescapeTsv(key);
    if (!unescaped.ok()) return Annotate(unescaped.status(), absl::StrCat(source, ":", line));
    keys.push_back(*std::move(unescaped));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Bytes>> ReadKeys(const cli::Values& values, cli::Io& io) {
  const bool escapes = values.count("escapes") > 0;
  std::vector<Bytes> keys;
  for (const std::string& key : cli::TextsOf(values, "key")) {
    if (escapes) {
      SHOAL_ASSIGN_OR_RETURN(Bytes unescaped, table::UnescapeTsv(key));
      keys.push_back(std::move(unescaped));
    } else {
      keys.push_back(ToBytes(AsBytes(key)));
    }
  }
  for (const std::string& path : cli::TextsOf(values, "file")) {
    if (path == "-") {
      const std::string text((std::istreambuf_iterator<char>(io.in)),
                             std::istreambuf_iterator<char>());
      SHOAL_RETURN_IF_ERROR(AddLines(text, "standard input", escapes, keys));
    } else {
      SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeysBytes));
      SHOAL_RETURN_IF_ERROR(AddLines(text, path, escapes, keys));
    }
  }
  return keys;
}

const char* OutcomeName(Lookup::Outcome outcome) {
  switch (outcome) {
    case Lookup::Outcome::kFound:
      return "found";
    case Lookup::Outcome::kAbsent:
      return "absent";
    case Lookup::Outcome::kFailed:
      return "failed";
  }
  return "failed";
}

void PrintResult(const Bytes& key, const Lookup& result, bool json, std::ostream& out) {
  const bool verified = result.outcome != Lookup::Outcome::kFailed;
  if (!json) {
    out << table::EscapeTsv(key) << '\t' << OutcomeName(result.outcome) << '\t'
        << table::EscapeTsv(result.value) << '\t' << (verified ? "yes" : "no") << '\n';
    return;
  }
  JsonObject object;
  object.Blob("key", key).Text("status", OutcomeName(result.outcome));
  if (result.outcome == Lookup::Outcome::kFound) object.Blob("value", result.value);
  object.Bool("verified", verified);
  if (!verified) object.Text("error", std::string(result.error.message()));
  out << object.Take() << '\n';
}

absl::Status PrintResults(const std::vector<Bytes>& keys, const std::vector<Lookup>& results,
                          bool json, cli::Io& io) {
  size_t failed = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    PrintResult(keys[i], results[i], json, io.out);
    failed += results[i].outcome == Lookup::Outcome::kFailed;
  }
  if (failed == 0) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat(failed, " of ", keys.size(),
                   " keys have no verified answer; a second try would tell the parties which rows "
                   "failed, so there is none"));
}

absl::Status RunQuery(const Connector& connect, const cli::Values& values, cli::Io& io) {
  const std::string format = cli::TextOr(values, "format", "tsv");
  if (format != "tsv" && format != "json") {
    return cli::UsageError(absl::StrCat("--format ", format, ": there are tsv and json"));
  }
  const uint64_t ahead = cli::NumberOr(values, "obtain", 0);
  const bool obtain = values.count("obtain") > 0;
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Bytes> keys, ReadKeys(values, io));
  if (obtain && !keys.empty()) return cli::UsageError("--obtain asks no keys");
  if (obtain && (ahead == 0 || ahead > kMaxPadTo)) {
    return cli::UsageError(absl::StrCat("--obtain: 1 to ", kMaxPadTo, " slots"));
  }
  if (!obtain && keys.empty()) return cli::UsageError("no keys: give some, or --file FILE");
  if (const std::string name = cli::TextOr(values, "engine", "chain"); name != "chain") {
    const absl::StatusOr<pir::Engine> engine = pir::ParseEngine(name);
    if (!engine.ok()) return cli::UsageError("--engine: there are chain, simplepir and doublepir");
    if (obtain) return cli::UsageError("--obtain takes slots of the chain alone");
    SHOAL_ASSIGN_OR_RETURN(
        const std::vector<Lookup> results,
        LookUpWithEngine(*engine, static_cast<uint32_t>(std::min<uint64_t>(
                                      cli::NumberOr(values, "pad", 1), kMaxPadTo + 1)),
                         values["config"].as<std::string>(), connect, values.count("quiet") > 0,
                         keys, io));
    return PrintResults(keys, results, format == "json", io);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                         Session::Open("shoal query", values["config"].as<std::string>(), connect,
                                       values.count("quiet") > 0, io));
  Client& client = session->client();
  if (obtain) {
    SHOAL_ASSIGN_OR_RETURN(const Digest round_id,
                           client.ObtainAhead(static_cast<uint32_t>(ahead)));
    const uint64_t counter = session->state().FindRound(round_id)->counter();
    if (format == "json") {
      io.out << JsonObject().Integer("round", counter).Integer("slots", ahead).Take() << '\n';
    } else {
      io.out << "round\t" << counter << "\nslots\t" << ahead << '\n';
    }
    return absl::OkStatus();
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Lookup> results, client.LookUp(keys));
  session->TellCosts();
  return PrintResults(keys, results, format == "json", io);
}

}  // namespace

cli::Command Query(Connector connect) {
  return {
      .name = "query",
      .summary = "look keys up without telling anybody which",
      .help =
          "Looks keys up in the deployment's table through one round of the chain and verifies the\n"
          "answers. Takes slots in a round first if there are none from --obtain. Prints one line\n"
          "for every key, in the order of the input:\n"
          "  key, found | absent | failed, value, yes | no (verified)          with tabs, or\n"
          "  {\"key\":..,\"status\":..,\"value\":..,\"verified\":..}                 with --format json\n"
          "In TSV, backslash, tab, line feed, carriage return and bytes that are no UTF-8 come as\n"
          "\\\\ \\t \\n \\r \\xHH; in JSON, bytes that are no UTF-8 come as key_hex and value_hex.\n"
          "Absent keys are proved absent. Exit code 3: an answer could not be verified. Run the same\n"
          "command again after a crash or a lost connection, and it goes on where it stopped; do\n"
          "not let a script run it again on exit code 3.\n"
          "With --engine, the frontend alone answers, at once: what is asked is hidden by encryption,\n"
          "how many keys is not (--pad rounds it up). The engine's hint is fetched once for a version\n"
          "of the table and kept beside the state; a download that was cut off is continued.\n",
      .examples =
          "  shoal query --config client.textproto bash openssl\n"
          "  dpkg-query -Wf '${Package}\\n' | shoal query --config client.textproto --file -\n"
          "  shoal query --config client.textproto --obtain 64     slots for a later query\n"
          "  shoal query --config client.textproto --engine simplepir bash     one server, no round\n",
      .options =
          [](cli::Options& options) {
            options.add_options()("config", cli::File()->required(), "the client's configuration");
            options.add_options()("key", cli::Texts(), "a key; --key may be left out");
            options.add_options()("file", cli::Files(),
                                  "keys from a file, one a line; - is standard input");
            options.add_options()("escapes",
                                  "keys are written with \\\\ \\t \\n \\r \\xHH, for any bytes");
            options.add_options()("format", cli::Text(), "tsv (default) or json");
            options.add_options()("obtain", cli::Number(),
                                  "only take that many slots, for a query later on");
            options.add_options()("engine", cli::Text(),
                                  "chain (default), simplepir or doublepir");
            options.add_options()("pad", cli::Number(),
                                  "with an engine: round the number of queries up to a multiple");
            options.add_options()("quiet", "say nothing on standard error but errors");
          },
      .positional = "key",
      .run =
          [connect = std::move(connect)](const cli::Values& values, cli::Io& io) {
            return RunQuery(connect, values, io);
          },
  };
}

}  // namespace shoal::client
