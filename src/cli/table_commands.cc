#include "src/cli/table_commands.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "src/base/file.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/thread_pool.h"
#include "src/cli/common.h"
#include "src/cli/progress.h"
#include "src/roster/party_keys.h"
#include "src/roster/signing_record.h"
#include "src/table/packages.h"
#include "src/table/records.h"
#include "src/table/table.h"
#include "src/wire/text.h"

namespace shoal::cli {
namespace {

constexpr uint64_t kDefaultTableDays = 7;
constexpr uint64_t kSecondsADay = 24 * 3600;
constexpr uint64_t kMaxShareBytes = uint64_t{1} << 37;

class Stopwatch {
 public:
  std::string Seconds() const {
    return absl::StrFormat("%.2f s", absl::ToDoubleSeconds(absl::Now() - start_));
  }

 private:
  const absl::Time start_ = absl::Now();
};

absl::StatusOr<table::RecordSet> ReadRecords(const Values& values) {
  const bool tsv = values.count("tsv") > 0, csv = values.count("csv") > 0;
  const bool packages = values.count("packages") > 0;
  if (tsv + csv + packages != 1) {
    return UsageError("one of --tsv, --csv and --packages says where the records come from");
  }
  if (values.count("csv-header") > 0 && !csv) return UsageError("--csv-header goes with --csv");
  if (packages) return table::ReadPackageIndex();
  const std::string path = values[tsv ? "tsv" : "csv"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return tsv ? table::ParseTsv(text, path)
             : table::ParseCsv(text, path, values.count("csv-header") > 0);
}

std::string MetadataText(const wire::Manifest& manifest) {
  if (!manifest.has_hashed()) return "none";
  return absl::StrFormat("%d bytes, %.3f a key", manifest.hashed().buckets(),
                         static_cast<double>(manifest.hashed().buckets()) /
                             static_cast<double>(std::max<uint64_t>(1, manifest.records())));
}

// Whether keys are where they were: what the clients of a single-server engine fetch depends on it.
void TellPlacement(const table::RowMap& earlier, const table::RowMap& now, Io& io) {
  const wire::Manifest& before = earlier.manifest();
  if (!before.has_hashed() || !now.manifest().has_hashed()) return;
  if (before.hashed().hash_seed() != now.manifest().hashed().hash_seed()) {
    io.err << "every key has a new row: "
           << (before.row_bytes() != now.row_bytes() ? "rows have another size"
                                                     : "the records no longer suit the old rows")
           << "; clients of a single-server engine fetch the whole hint\n";
    return;
  }
  const uint64_t buckets = earlier.placement().size();
  uint64_t moved = 0;
  for (uint64_t b = 0; b < buckets; ++b) moved += earlier.placement()[b] != now.placement()[b];
  io.err << "keys keep their rows, but for those of " << moved << " in " << buckets
         << " buckets\n";
}

absl::Status Build(const Values& values, Io& io) {
  const std::string layout = TextOr(values, "layout", "hashed");
  if (layout != "hashed" && layout != "dense") {
    return UsageError(absl::StrCat("--layout ", layout, ": there are hashed and dense"));
  }
  const uint64_t row_bytes = NumberOr(values, "row-bytes", 0);
  if (row_bytes > std::numeric_limits<uint32_t>::max()) return UsageError("--row-bytes: too many");

  table::TableOptions options{
      .name = TextOr(values, "name", ""),
      .deployment = values["deployment"].as<std::string>(),
      .epoch = NumberOr(values, "epoch", 1),
      .created_s = NowSeconds(),
      .row_bytes = static_cast<uint32_t>(row_bytes),
  };
  options.expires_s =
      options.created_s + NumberOr(values, "valid-days", kDefaultTableDays) * kSecondsADay;
  std::optional<table::RowMap> earlier;
  if (const std::string previous = TextOr(values, "previous", ""); !previous.empty()) {
    if (values.count("epoch") > 0) return UsageError("--previous sets the epoch; leave --epoch out");
    SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable opened, table::UnsignedTable::Open(previous));
    earlier = opened.map();
    options.previous = &*earlier;
    const BytesView id = AsBytes(earlier->manifest().table_id());
    std::copy(id.begin(), id.end(), options.table_id.begin());
    options.epoch = earlier->manifest().epoch() + 1;
    if (options.name.empty()) options.name = earlier->manifest().name();
  }
  if (options.name.empty()) {
    if (values.count("packages") == 0) return UsageError("--name is missing");
    SHOAL_ASSIGN_OR_RETURN(const std::string architecture, table::NativeArchitecture());
    options.name = absl::StrCat("debian-packages-", architecture);
  }

  const Stopwatch reading;
  SHOAL_ASSIGN_OR_RETURN(const table::RecordSet records, ReadRecords(values));
  io.err << "read " << records.size() << " records in " << reading.Seconds() << "\n";
  const Stopwatch building;
  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table,
                         layout == "dense" ? table::BuildDense(records, options, random)
                                           : table::BuildHashed(records, options, random));
  SHOAL_RETURN_IF_ERROR(table.CheckContent());
  const std::string directory = values["out"].as<std::string>();
  SHOAL_RETURN_IF_ERROR(table.Save(directory));
  io.err << "built " << directory << " in " << building.Seconds() << "\n";
  if (earlier.has_value()) TellPlacement(*earlier, table.map(), io);
  io.out << "records\t" << records.size() << "\n"
         << "rows\t" << table.rows() << "\n"
         << "row bytes\t" << table.row_bytes() << "\n"
         << "fill\t" << absl::StrFormat("%.1f %%", 100 * table.fill()) << "\n"
         << "placement\t" << MetadataText(table.manifest()) << "\n";
  return absl::OkStatus();
}

absl::Status Inspect(const Values& values, Io& io) {
  const std::string directory = values["table"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table, table::UnsignedTable::Open(directory));
  if (values.count("key") > 0) {
    const absl::StatusOr<Bytes> key = table::UnescapeTsv(values["key"].as<std::string>());
    if (!key.ok()) return Annotate(key.status(), "--key");
    SHOAL_ASSIGN_OR_RETURN(const uint64_t row, table.map().RowOf(*key));
    SHOAL_ASSIGN_OR_RETURN(const std::optional<Bytes> value,
                           table.map().Find(row, table.row(row), *key));
    io.err << "row " << row << "\n";
    io.out << table::EscapeTsv(*key) << "\t"
           << (value.has_value() ? absl::StrCat("present\t", table::EscapeTsv(*value)) : "absent\t")
           << "\n";
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(table.CheckContent());
  wire::SignedManifest signed_manifest;
  SHOAL_RETURN_IF_ERROR(
      wire::ReadTextFile(directory + "/manifest.textproto", signed_manifest));
  const wire::Manifest& manifest = table.manifest();
  io.out << "name\t" << manifest.name() << "\n"
         << "table id\t" << Hex(AsBytes(manifest.table_id())) << "\n"
         << "deployment\t" << manifest.deployment() << "\n"
         << "epoch\t" << manifest.epoch() << "\n"
         << "valid\t" << FormatTime(manifest.created_s()) << " to "
         << FormatTime(manifest.expires_s()) << "\n"
         << "layout\t" << (manifest.has_dense() ? "dense" : "hashed") << "\n"
         << "records\t" << manifest.records() << "\n"
         << "rows\t" << manifest.rows() << "\n"
         << "row bytes\t" << manifest.row_bytes() << "\n"
         << "fill\t" << absl::StrFormat("%.1f %%", 100 * table.fill()) << "\n"
         << "placement\t" << MetadataText(manifest) << "\n"
         << "digest\t" << Hex(table::ManifestDigest(manifest)) << "\n"
         << "signed\t"
         << (signed_manifest.signature().empty() ? "no"
                                                 : "yes, not verified here: shoal table verify")
         << "\n";
  return absl::OkStatus();
}

absl::Status Verify(const Values& values, Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SystemRandom random;
  ThreadPool pool;
  const Stopwatch stopwatch;
  SHOAL_ASSIGN_OR_RETURN(const table::Table table,
                         table::Table::Open(values["table"].as<std::string>(), roster,
                                            NowSeconds(), random, pool));
  SHOAL_RETURN_IF_ERROR(table.content().CheckContent());
  io.err << "verified in " << stopwatch.Seconds() << "\n";
  io.out << "verified\t" << table.manifest().name() << "\tepoch " << table.manifest().epoch()
         << "\t" << table.rows() << " rows\n";
  return absl::OkStatus();
}

absl::Status Sign(const Values& values, Io& io) {
  const std::string directory = values["table"].as<std::string>();
  const std::string keys_directory = values["keys"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys keys, roster::PartyKeys::Load(keys_directory));
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table, table::UnsignedTable::Open(directory));
  // Refused before it is recorded: a bad table must not use up its epoch.
  SHOAL_ASSIGN_OR_RETURN(const uint32_t party,
                         table::CheckBeforeSigning(table, roster, keys.bls().public_key()));
  SHOAL_RETURN_IF_ERROR(roster::RecordSigning(
      keys_directory, absl::StrCat("table ", Hex(AsBytes(table.manifest().table_id()))),
      table.manifest().epoch(), table::ManifestDigest(table.manifest())));
  ThreadPool pool;
  const Stopwatch stopwatch;
  absl::StatusOr<table::TableShare> share;
  {
    ProgressBar bar(io.err, io.err_is_terminal, "signing rows");
    share = table::SignTable(table, roster, keys.bls(), pool,
                             [&](uint64_t done, uint64_t total) { bar.Update(done, total); });
  }
  SHOAL_RETURN_IF_ERROR(share.status());
  const std::string path = TextOr(values, "out", table::SharePath(directory, party));
  if (values.count("out") == 0) {
    SHOAL_RETURN_IF_ERROR(MakeDirectory(directory + "/shares", FileMode::kPublic));
  }
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(path, share->Serialize(), FileMode::kPublic));
  io.err << "signed " << table.rows() << " rows as party " << party << " in "
         << stopwatch.Seconds() << "\n";
  io.out << path << "\n";
  return absl::OkStatus();
}

absl::Status Aggregate(const Values& values, Io& io) {
  const std::string directory = values["table"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table, table::UnsignedTable::Open(directory));
  std::vector<std::string> paths = TextsOf(values, "share");
  if (paths.empty()) {
    for (const roster::Party& party : roster.parties()) {
      paths.push_back(table::SharePath(directory, party.number));
    }
  }
  std::vector<table::TableShare> shares;
  for (const std::string& path : paths) {
    SHOAL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxShareBytes));
    absl::StatusOr<table::TableShare> share = table::TableShare::Parse(AsBytes(bytes));
    if (!share.ok()) return Annotate(share.status(), path);
    shares.push_back(*std::move(share));
  }
  SystemRandom random;
  ThreadPool pool;
  const Stopwatch stopwatch;
  absl::StatusOr<table::Table> signed_table = absl::UnknownError("not run");
  {
    ProgressBar bar(io.err, io.err_is_terminal, "verifying and adding signatures");
    signed_table =
        table::AggregateTable(table, roster, shares, NowSeconds(), random, pool,
                              [&](uint64_t done, uint64_t total) { bar.Update(done, total); });
  }
  SHOAL_RETURN_IF_ERROR(signed_table.status());
  SHOAL_RETURN_IF_ERROR(signed_table->SaveSignatures(directory));
  io.err << "aggregated the signatures of " << roster.size() << " parties on " << table.rows()
         << " rows in " << stopwatch.Seconds() << "\n";
  io.out << "signed\t" << table.manifest().name() << "\tepoch " << table.manifest().epoch()
         << "\t" << table.rows() << " rows\n";
  return absl::OkStatus();
}

void AddTableOption(Options& options) {
  options.add_options()("table", Directory()->required(), "the table's directory");
}

}  // namespace

Command TableBuild() {
  return {
      .name = "table build",
      .summary = "build a table from records",
      .help = "Builds a table into a new directory, for the parties to sign. Records come from a "
              "TSV file\n(key, tab, value; \\t \\n \\r \\\\ \\xHH stand for bytes), a CSV file of "
              "two fields, or what apt\nknows on this machine (package name and newest version; "
              "name:architecture for foreign\narchitectures). `hashed` takes any keys; `dense` "
              "takes the numbers 0 to n-1.\nWith --previous, the keys of a hashed table keep "
              "their rows as far as those have room:\nclients of a single-server engine then "
              "fetch what changed, and not the whole hint.\nStandard error says whether that "
              "worked out.\n",
      .examples = "  shoal table build --packages --deployment demo --out table\n"
                  "  shoal table build --tsv words.tsv --name words --deployment demo --out t\n"
                  "  shoal table build --csv prices.csv --csv-header --layout dense --name prices "
                  "\\\n      --row-bytes 512 --deployment demo --out t\n"
                  "  shoal table build --packages --deployment demo --previous table --out "
                  "table-2\n",
      .options =
          [](Options& options) {
            options.add_options()("tsv", File(), "records as TSV")(
                "csv", File(), "records as CSV (RFC 4180)")(
                "csv-header", "the CSV's first line is none of them")(
                "packages", "records from this machine's package index")(
                "layout", Text(), "hashed (default) or dense")(
                "name", Text(), "the table's name (packages: debian-packages-ARCH)")(
                "deployment", Text()->required(), "the deployment whose parties will sign it")(
                "epoch", Number(), "rises with every version of a table (default 1)")(
                "previous", Directory(), "an earlier version: the same table and rows, next epoch")(
                "valid-days", Number(), "how long it may be used (default 7)")(
                "row-bytes", Number(),
                "bytes of a row (hashed: default 1024, or as --previous; dense: one record, at least 16: "
                "noise is paid for every row, so choose, or ask `shoal plan`)")(
                "out", Directory()->required(), "the new directory");
          },
      .positional = "",
      .run = Build,
  };
}

Command TableInspect() {
  return {
      .name = "table inspect",
      .summary = "show what a table is, or look up a key",
      .help = "Checks a table's files against its manifest and every row's bytes, and prints what "
              "it is.\nSignatures are not looked at: see `shoal table verify`. With --key, looks "
              "the key up in\nthe local files.\n",
      .examples = "  shoal table inspect table\n  shoal table inspect table --key bash\n",
      .options =
          [](Options& options) {
            AddTableOption(options);
            options.add_options()("key", Text(), "a key, with the escapes of TSV");
          },
      .positional = "table",
      .run = Inspect,
  };
}

Command TableVerify() {
  return {
      .name = "table verify",
      .summary = "check a table and all parties' signatures on it",
      .help = "Checks a table as a client and a backend do: the roster against the pinned "
              "parties, the\nmanifest, times, every row and its signature. Exit code 0 if all is "
              "right; 3: a signature,\ndigest, time, epoch or pin; 1: a file is missing or "
              "malformed.\n",
      .examples = "  shoal table verify table --roster roster.signed.textproto --pinned "
                  "pinned.textproto\n",
      .options =
          [](Options& options) {
            AddTableOption(options);
            AddRosterOptions(options);
          },
      .positional = "table",
      .run = Verify,
  };
}

Command TableSign() {
  return {
      .name = "table sign",
      .summary = "sign every row of a table as one party",
      .help = "Checks the table's content and signs its manifest and every row, on all cores. The "
              "party's\nshare goes to TABLE/shares/party-N.share, or to --out, and its path is "
              "printed. A party\nsigns one content for an epoch, for ever: what it has signed is "
              "kept beside its keys.\n",
      .examples = "  shoal table sign table --keys parties/alice --roster roster.signed.textproto "
                  "\\\n      --pinned pinned.textproto\n",
      .options =
          [](Options& options) {
            AddTableOption(options);
            AddRosterOptions(options);
            options.add_options()("keys", Directory()->required(), "the party's keys")(
                "out", File(), "write the share here");
          },
      .positional = "table",
      .run = Sign,
  };
}

Command TableAggregate() {
  return {
      .name = "table aggregate",
      .summary = "add up all parties' signatures on a table",
      .help = "Verifies every party's share (by default those in TABLE/shares), adds the "
              "signatures up,\nand completes the table. It can then be served.\n",
      .examples = "  shoal table aggregate table --roster roster.signed.textproto --pinned "
                  "pinned.textproto\n",
      .options =
          [](Options& options) {
            AddTableOption(options);
            AddRosterOptions(options);
            options.add_options()("share", Files(), "of one party; repeat for every party");
          },
      .positional = "table",
      .run = Aggregate,
  };
}

}  // namespace shoal::cli
