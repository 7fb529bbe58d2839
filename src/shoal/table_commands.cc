#include "src/shoal/table_commands.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/audit/findings.h"
#include "src/audit/osv.h"
#include "src/base/hash.h"
#include "src/base/query_buckets.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/cli/progress.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/roster/signing_record.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/key_lines.h"
#include "src/storage/file.h"
#include "src/table/differences.h"
#include "src/table/packages.h"
#include "src/table/records.h"
#include "src/table/refresh.h"
#include "src/table/table.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

constexpr uint64_t kDefaultTableDays = 7;
constexpr uint32_t kAdvisoriesRowBytes = 1024;
constexpr uint64_t kSecondsADay = 24 * 3600;
constexpr uint64_t kMaxShareBytes = uint64_t{1} << 37;

std::string SecondsOf(const Stopwatch& stopwatch) {
  return absl::StrFormat("%.2f s", stopwatch.Seconds());
}

// Records of advisories, each of which takes at most `most` bytes of a row.
absl::StatusOr<table::RecordSet> ReadAdvisories(const std::string& directory, bool strict,
                                                uint32_t most, cli::Io& io) {
  audit::OsvRecords osv;
  SHOAL_RETURN_IF_ERROR(osv.AddDirectory(
      directory, strict ? audit::OsvRecords::Odd::kRefuse : audit::OsvRecords::Odd::kLeaveOut));
  SHOAL_ASSIGN_OR_RETURN(table::RecordSet records, osv.Finish(most));
  const audit::OsvRecords::Counts& counts = osv.counts();
  io.err << counts.records << " OSV records, " << counts.withdrawn
         << " of them withdrawn and left out: " << counts.advisories << " advisories about "
         << counts.packages << " packages\n";
  if (counts.older > 0) {
    io.err << "left out: " << counts.older << " older copies of records\n";
  }
  if (counts.left_out > 0) {
    io.err << "left out: " << counts.left_out
           << " files that are no records, or have more in them than is understood: the packages "
              "that they name are unclear (--strict refuses them). The first: "
           << Printable(counts.first_left_out) << "\n";
  }
  if (counts.unread > 0) {
    io.err
        << counts.unread
        << " of them do not say which packages they are about: no audit by this table is complete "
           "(exit code 4)\n";
  }
  for (const auto& [ecosystem, left_out] : counts.unknown) {
    io.err << "left out: " << left_out << " packages of " << Printable(ecosystem)
           << ", whose versions `shoal audit` cannot compare\n";
  }
  if (counts.cut > 0) {
    io.err << "of " << counts.cut << " packages a row of " << most
           << " bytes does not hold all advisories: " << counts.not_listed
           << " are not listed, but what they affect is (--row-bytes N lists more)\n";
  }
  return records;
}

absl::StatusOr<table::RecordSet> ReadRecords(const cli::Values& values, uint32_t most,
                                             cli::Io& io) {
  const bool tsv = values.count("tsv") > 0, csv = values.count("csv") > 0;
  const bool packages = values.count("packages") > 0, osv = values.count("osv") > 0;
  if (tsv + csv + packages + osv != 1) {
    return cli::UsageError(
        "one of --tsv, --csv, --packages and --osv says where the records come from");
  }
  if (values.count("csv-header") > 0 && !csv)
    return cli::UsageError("--csv-header goes with --csv");
  if (values.count("strict") > 0 && !osv) return cli::UsageError("--strict goes with --osv");
  if (packages) return table::ReadPackageIndex();
  if (osv) {
    return ReadAdvisories(values["osv"].as<std::string>(), values.count("strict") > 0, most, io);
  }
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

// A line about the buckets of a table that has some.
std::string QueryBucketsText(const wire::Manifest& manifest) {
  if (manifest.query_buckets() == 0) return "";
  const QueryBuckets buckets(manifest.rows(), manifest.query_buckets());
  return absl::StrFormat("query buckets\t%d, of at most %d rows\n", buckets.count(),
                         buckets.most_places());
}

// Whether all keys, and not only some that moved, have another row, and so another query bucket.
bool HasOtherRows(const wire::Manifest& before, const wire::Manifest& now) {
  if (before.layout_case() != now.layout_case()) return true;
  if (now.has_dense()) return before.dense().records_per_row() != now.dense().records_per_row();
  return before.hashed().hash_seed() != now.hashed().hash_seed() || before.rows() != now.rows() ||
         before.hashed().buckets() != now.hashed().buckets();
}

// Tells what a table with query buckets is good for, and what its clients pay for other ones.
void TellQueryBuckets(const wire::Manifest& manifest, const table::UnsignedTable* before,
                      cli::Io& io) {
  if (manifest.query_buckets() != 0) {
    io.err
        << "note: a table with query buckets is for two parties whose roster has most_in_bucket; "
           "doors, web pages, the Python client and `shoal simulate` do not know it yet\n";
  }
  if (before == nullptr || before->manifest().query_buckets() == 0) return;
  if (before->manifest().query_buckets() == manifest.query_buckets()) {
    if (HasOtherRows(before->manifest(), manifest)) {
      io.err << "warning: the previous epoch has " << manifest.query_buckets()
             << " query buckets, as this one, but every key has a new row: who saw a key asked in "
                "a bucket of each knows nearly its row\n";
    }
    return;
  }
  io.err << "warning: the previous epoch has " << before->manifest().query_buckets()
         << " query buckets, and this one "
         << (manifest.query_buckets() == 0
                 ? std::string("none: its rounds show rows, and not only buckets\n")
                 : absl::StrCat(manifest.query_buckets(),
                                ": who saw a key asked in a bucket of each knows nearly its row, "
                                "unless one number is a multiple of the other\n"));
}

// Tells whether keys kept their rows, which decides what clients of a single-server engine fetch.
void TellPlacement(const table::RowMap& earlier, const table::RowMap& now, cli::Io& io) {
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
  io.err << "keys keep their rows, but for those of " << moved << " in " << buckets << " buckets\n";
}

// Tells whether rows that were asked in an earlier epoch can be answered from this one.
void TellTerms(const wire::Manifest& before, const wire::Manifest& now, cli::Io& io) {
  const absl::Status refresh = table::CanRefresh(before, now);
  io.err << (refresh.ok() ? "terms go on: every key has the row that it had\n"
                          : absl::StrCat("terms end: ", refresh.message(), "\n"));
}

// Tells if few records decide how long all rows are: every row costs noise, memory and traffic.
void TellLongest(const table::RecordSet& records, uint32_t row_bytes, cli::Io& io) {
  if (records.size() < 2) return;
  const auto bytes_of = [&](size_t i) { return records.key(i).size() + records.value(i).size(); };
  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Of a hundred records, the one longest is left out.
  const size_t rare = std::max<size_t>(1, records.size() / 100);
  std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(rare), order.end(),
                   [&](size_t a, size_t b) { return bytes_of(a) > bytes_of(b); });
  const size_t usual = bytes_of(order[rare]);
  const size_t longest =
      *std::max_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(rare),
                        [&](size_t a, size_t b) { return bytes_of(a) < bytes_of(b); });
  // Nothing to tell if rows have their least size anyway, or if half of it would not do either.
  if (row_bytes < 64 || bytes_of(longest) + 16 < row_bytes || 2 * usual > bytes_of(longest)) return;
  io.err << "warning: " << records.Where(longest) << ": its record of " << bytes_of(longest)
         << " bytes decides that all rows have " << row_bytes << " bytes; all but " << rare
         << " of the records have at most " << usual
         << ". Shorten what is longer, or keep it elsewhere and put a digest here\n";
}

// Tells which keys no client can find until they are placed anew, and lists them if it is asked to.
absl::Status TellDisplaced(const table::RecordSet& records, const table::UnsignedTable& table,
                           const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<size_t> displaced,
                         table::DisplacedRecords(records, table));
  if (displaced.empty()) {
    io.err << "no key must move: all " << records.size() << " have room in their rows\n";
  } else {
    io.err << displaced.size() << " of " << records.size() << " keys must move: their rows, "
           << table.manifest().incomplete_rows() << " of " << table.rows()
           << ", are full. Clients are told that these keys are not known until the next term, "
              "which a build without --keep-rows begins\n";
  }
  if (values.count("displaced") == 0) return absl::OkStatus();
  std::string text;
  for (const size_t i : displaced) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t row, table.map().RowOf(records.key(i)));
    absl::StrAppend(&text, table::EscapeTsv(records.key(i)), "\t", row, "\t",
                    records.key(i).size() + records.value(i).size(), "\n");
  }
  return WriteFileAtomically(values["displaced"].as<std::string>(), AsBytes(text),
                             FileMode::kPublic);
}

// But for the row's bytes. What is options.previous is in `earlier`.
absl::StatusOr<table::TableOptions> OptionsOf(const cli::Values& values,
                                              std::optional<table::PreviousEpoch>& earlier) {
  table::TableOptions options{
      .name = cli::TextOr(values, "name", ""),
      .deployment = values["deployment"].as<std::string>(),
      .epoch = cli::NumberOr(values, "epoch", 1),
      .created_s = NowSeconds(),
  };
  options.expires_s =
      options.created_s + cli::NumberOr(values, "valid-days", kDefaultTableDays) * kSecondsADay;
  options.sign_all_rows = values.count("sign-all") > 0;
  options.keep_rows = values.count("keep-rows") > 0;
  options.room_percent = cli::SmallOr(values, "room-percent", 0);
  if (values.count("query-buckets") > 0) {
    options.query_buckets = cli::SmallOr(values, "query-buckets", 0);
  }
  if (options.keep_rows && values.count("previous") == 0) {
    return cli::UsageError("--keep-rows goes with --previous: without it there are no rows yet");
  }
  if (options.keep_rows && values.count("room-percent") > 0) {
    return cli::UsageError("--room-percent is for new rows, and --keep-rows keeps those there are");
  }
  if (!options.keep_rows && values.count("displaced") > 0) {
    return cli::UsageError("--displaced goes with --keep-rows: new rows have room for all keys");
  }
  if (const std::string previous = cli::TextOr(values, "previous", ""); !previous.empty()) {
    SHOAL_ASSIGN_OR_RETURN(earlier, options.sign_all_rows
                                        ? table::PreviousEpoch::OpenUnsigned(previous)
                                        : table::PreviousEpoch::Open(previous));
    const wire::Manifest& before = earlier->content.manifest();
    options.previous = &*earlier;
    if (values.count("epoch") == 0) options.epoch = before.epoch() + 1;
    if (options.name.empty()) options.name = before.name();
  } else if (options.sign_all_rows) {
    return cli::UsageError("--sign-all goes with --previous: without it every row is signed");
  }
  return options;
}

// Gives the table the name that its kind of records asks for, and rows their length.
absl::Status NameTable(const cli::Values& values, bool dense, table::TableOptions& options) {
  if (values.count("packages") > 0) {
    SHOAL_ASSIGN_OR_RETURN(const std::string architecture, table::NativeArchitecture());
    const std::string name = table::PackagesTableName(architecture);
    if (options.name.empty()) options.name = name;
    if (!table::IsPackagesTableName(options.name, architecture)) {
      return cli::UsageError(absl::StrCat("--name: a table of packages is named ", name, " or ",
                                          name, "-.., by which `shoal updates` knows it"));
    }
  } else if (values.count("osv") > 0) {
    if (dense) return cli::UsageError("--layout: a table of advisories is hashed");
    if (options.name.empty()) options.name = std::string(audit::kAdvisoriesTable);
    if (!audit::IsAdvisoriesTable(options.name)) {
      return cli::UsageError(absl::StrCat("--name: a table of advisories is named ",
                                          audit::kAdvisoriesTable, " or ", audit::kAdvisoriesTable,
                                          "-.., by which `shoal audit` knows it"));
    }
    // Records are cut to what a row holds, and so do not decide how long it is.
    if (options.row_bytes == 0) {
      options.row_bytes =
          options.previous != nullptr ? options.previous->content.row_bytes() : kAdvisoriesRowBytes;
    }
  } else if (options.name.empty()) {
    return cli::UsageError("--name is missing");
  }
  return absl::OkStatus();
}

absl::Status Build(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool dense, cli::Chosen(values, "layout", "hashed", "dense"));
  const uint64_t row_bytes = cli::NumberOr(values, "row-bytes", 0);
  if (row_bytes > std::numeric_limits<uint32_t>::max())
    return cli::UsageError("--row-bytes: too many");

  std::optional<table::PreviousEpoch> earlier;
  SHOAL_ASSIGN_OR_RETURN(table::TableOptions options, OptionsOf(values, earlier));
  options.row_bytes = static_cast<uint32_t>(row_bytes);
  SHOAL_RETURN_IF_ERROR(NameTable(values, dense, options));
  // What is left free in every row is not for the records of today. Too large a share is refused
  // when the table is built.
  const uint32_t room = std::min<uint32_t>(options.room_percent, 100);
  const auto most = static_cast<uint32_t>(uint64_t{options.row_bytes} * (100 - room) / 100);
  const Stopwatch reading;
  SHOAL_ASSIGN_OR_RETURN(const table::RecordSet records, ReadRecords(values, most, io));
  io.err << "read " << records.size() << " records in " << SecondsOf(reading) << "\n";
  const Stopwatch building;
  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table,
                         dense ? table::BuildDense(records, options, random)
                               : table::BuildHashed(records, options, random));
  SHOAL_RETURN_IF_ERROR(table.CheckContent());
  const std::string directory = values["out"].as<std::string>();
  if (options.keep_rows) SHOAL_RETURN_IF_ERROR(TellDisplaced(records, table, values, io));
  SHOAL_RETURN_IF_ERROR(table.Save(directory));
  io.err << "built " << directory << " in " << SecondsOf(building) << "\n";
  TellQueryBuckets(table.manifest(), earlier.has_value() ? &earlier->content : nullptr, io);
  if (earlier.has_value()) {
    TellPlacement(earlier->content.map(), table.map(), io);
    TellTerms(earlier->content.manifest(), table.manifest(), io);
  }
  if (options.row_bytes == 0 && !options.keep_rows) TellLongest(records, table.row_bytes(), io);
  io.out << "records\t" << records.size() << "\n"
         << "rows\t" << table.rows() << "\n"
         << "row bytes\t" << table.row_bytes() << "\n"
         << "incomplete rows\t" << table.manifest().incomplete_rows() << "\n"
         << "fill\t" << absl::StrFormat("%.1f %%", 100 * table.fill()) << "\n"
         << "placement\t" << MetadataText(table.manifest()) << "\n"
         << QueryBucketsText(table.manifest()) << "rows to sign\t"
         << table.versions().changed_rows() << "\n";
  return absl::OkStatus();
}

absl::Status InspectTable(const cli::Values& values, cli::Io& io) {
  const std::string directory = values["table"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table, table::UnsignedTable::Open(directory));
  if (values.count("key") > 0) {
    const auto& text = values["key"].as<std::string>();
    if (const absl::Status status = CheckKeyText(text); !status.ok()) {
      return Annotate(status, "--key");
    }
    const absl::StatusOr<Bytes> key = table::UnescapeTsv(text);
    if (!key.ok()) return Annotate(key.status(), "--key");
    SHOAL_ASSIGN_OR_RETURN(const uint64_t row, table.map().RowOf(*key));
    const absl::StatusOr<std::optional<Bytes>> value = table.map().Find(row, table.row(row), *key);
    const bool unknown = absl::IsUnavailable(value.status());
    if (!unknown && !value.ok()) return value.status();
    io.err << "row " << row << "\n";
    io.out << table::EscapeTsv(*key) << "\t"
           << (unknown              ? "unknown\t"
               : value->has_value() ? absl::StrCat("present\t", table::EscapeTsv(**value))
                                    : "absent\t")
           << "\n";
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(table.CheckContent());
  wire::SignedManifest signed_manifest;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(table::ManifestPath(directory), signed_manifest));
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
         << "incomplete rows\t" << manifest.incomplete_rows() << "\n"
         << "fill\t" << absl::StrFormat("%.1f %%", 100 * table.fill()) << "\n"
         << "placement\t" << MetadataText(manifest) << "\n"
         << QueryBucketsText(manifest) << "rows of this epoch\t" << table.versions().changed_rows()
         << "\n"
         << "lists of epochs\t" << manifest.row_versions().base_bytes() << " + "
         << manifest.row_versions().previous_bytes() << " + "
         << manifest.row_versions().recent_bytes() << " bytes\n"
         << "digest\t" << Hex(table::ManifestDigest(manifest)) << "\n"
         << "signed\t"
         << (signed_manifest.signature().empty() ? "no"
                                                 : "yes, not verified here: shoal table verify")
         << "\n";
  return absl::OkStatus();
}

absl::Status Verify(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SystemRandom random;
  ThreadPool pool;
  const Stopwatch stopwatch;
  const std::string directory = values["table"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const table::Table table,
                         table::Table::Open(directory, roster, NowSeconds(), random, pool));
  SHOAL_RETURN_IF_ERROR(table.content().CheckContent());
  io.err << "verified in " << SecondsOf(stopwatch) << "\n";
  io.out << "verified\t" << table.manifest().name() << "\tepoch " << table.manifest().epoch()
         << "\t" << table.rows() << " rows\n";
  return VerifySetups(directory, table, roster, io);
}

// The name of the record of what a party has signed last of a table with this name, whatever its
// id.
std::string NameRecord(const wire::Manifest& manifest) {
  const Digest digest =
      Transcript("shoal table name v1").Blob(manifest.deployment()).Blob(manifest.name()).Finish();
  return absl::StrCat("table-name ", Hex(BytesView(digest).first(16)));
}

// Tells a person what the next signature would say.
absl::Status TellDifferences(const table::UnsignedTable& before, const table::UnsignedTable& after,
                             cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const table::Differences d, table::Compare(before, after));
  io.err << "since epoch " << before.manifest().epoch() << ": " << d.rows_changed << " of "
         << before.rows() << " rows changed, " << d.rows_new << " new, " << d.rows_gone << " gone; "
         << d.keys_added << " keys added, " << d.keys_removed << " removed, " << d.keys_moved
         << " moved to another row, " << d.values_changed << " values changed";
  if (d.keys_displaced + d.keys_back > 0) {
    io.err << ", " << d.keys_displaced << " keys displaced from full rows, " << d.keys_back
           << " back in them";
  }
  io.err << "\n";
  if (const uint64_t rows = after.manifest().incomplete_rows(); rows > 0) {
    io.err << "clients learn nothing of the keys that " << rows
           << " full rows have no room for, until the next term\n";
  }
  return absl::OkStatus();
}

// Whether the table is what a party may sign without being asked twice, given what it has signed
// last of a table with this name. FAILED_PRECONDITION says what is unusual, and which option takes
// it.
absl::Status CheckHistory(const table::UnsignedTable& table, const table::PreviousEpoch* previous,
                          const std::optional<roster::SeenEpoch>& last, const cli::Values& values,
                          cli::Io& io) {
  const wire::Manifest& manifest = table.manifest();
  const auto tell = [&](absl::string_view what, const char* option) {
    if (values.count(option) > 0) {
      io.err << "warning: " << what << "\n";
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat(what, " (--", option, " signs it all the same)"));
  };
  if (!last.has_value() || last->digest == table::ManifestDigest(manifest)) return absl::OkStatus();
  if (previous == nullptr) {
    return tell(absl::StrCat("this party signed epoch ", last->epoch, " of ", manifest.name(),
                             ", and this table was built without it or any other, or --previous "
                             "is missing: nothing that it holds has been compared"),
                "without-previous");
  }
  const wire::Manifest& before = previous->content.manifest();
  if (last->digest == table::ManifestDigest(before)) return absl::OkStatus();
  return tell(
      last->epoch < before.epoch()
          ? absl::StrCat("the record of what this party has signed is an old copy: it ends with "
                         "epoch ",
                         last->epoch, ", before epoch ", before.epoch(),
                         ", which bears this party's signature")
          : absl::StrCat("this party signed epoch ", last->epoch,
                         " last, and this table follows "
                         "epoch ",
                         before.epoch(), ": was the other one given up?"),
      "not-after-last");
}

absl::Status SignTable(const cli::Values& values, cli::Io& io) {
  const std::string directory = values["table"].as<std::string>();
  const std::string keys_directory = values["keys"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys keys, roster::PartyKeys::Load(keys_directory));
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table, table::UnsignedTable::Open(directory));
  std::optional<table::PreviousEpoch> earlier;
  if (const std::string directory_before = cli::TextOr(values, "previous", "");
      !directory_before.empty()) {
    SHOAL_ASSIGN_OR_RETURN(earlier, table::PreviousEpoch::Open(directory_before));
  }
  const table::PreviousEpoch* const previous = earlier.has_value() ? &*earlier : nullptr;
  // A bad table is refused before it is recorded, so that it does not use up its epoch.
  SHOAL_ASSIGN_OR_RETURN(const uint32_t party, table::CheckBeforeSigning(table, previous, roster,
                                                                         keys.bls().public_key()));
  const std::string name_record = NameRecord(table.manifest());
  SHOAL_ASSIGN_OR_RETURN(const std::optional<roster::SeenEpoch> last,
                         roster::LastSigned(keys_directory, name_record));
  io.err << "epoch " << table.manifest().epoch() << " of " << table.manifest().name() << ": "
         << table.manifest().records() << " records in " << table.rows() << " rows, of which "
         << table.versions().changed_rows() << " are to be signed\n";
  if (previous != nullptr) {
    SHOAL_RETURN_IF_ERROR(TellDifferences(previous->content, table, io));
  }
  std::optional<roster::SeenEpoch> seen = last;
  SHOAL_RETURN_IF_ERROR(
      roster::AcceptEpoch(absl::StrCat("already signed, table ", table.manifest().name()),
                          table.manifest().epoch(), table::ManifestDigest(table.manifest()), seen));
  SHOAL_RETURN_IF_ERROR(CheckHistory(table, previous, last, values, io));
  for (const std::string& record :
       {absl::StrCat("table ", Hex(AsBytes(table.manifest().table_id()))), name_record}) {
    SHOAL_RETURN_IF_ERROR(roster::RecordSigning(keys_directory, record, table.manifest().epoch(),
                                                table::ManifestDigest(table.manifest())));
  }
  ThreadPool pool;
  const Stopwatch stopwatch;
  absl::StatusOr<table::TableShare> share;
  {
    cli::ProgressBar bar(io.bars(), io.err_is_terminal, "signing rows");
    share = table::SignTable(table, previous, roster, keys.bls(), pool,
                             [&](uint64_t done, uint64_t total) { bar.Update(done, total); });
  }
  SHOAL_RETURN_IF_ERROR(share.status());
  const std::string path = cli::TextOr(values, "out", table::SharePath(directory, party));
  if (values.count("out") == 0) {
    SHOAL_RETURN_IF_ERROR(MakeDirectory(directory + "/shares", FileMode::kPublic));
  }
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(path, share->Serialize(), FileMode::kPublic));
  io.err << "signed " << table.versions().changed_rows() << " rows as party " << party << " in "
         << SecondsOf(stopwatch) << "\n";
  io.out << path << "\n";
  return absl::OkStatus();
}

absl::Status AggregateTable(const cli::Values& values, cli::Io& io) {
  const std::string directory = values["table"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable table, table::UnsignedTable::Open(directory));
  std::vector<std::string> paths = cli::TextsOf(values, "share");
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
    cli::ProgressBar bar(io.bars(), io.err_is_terminal, "verifying and adding signatures");
    signed_table =
        table::AggregateTable(table, roster, shares, NowSeconds(), random, pool,
                              [&](uint64_t done, uint64_t total) { bar.Update(done, total); });
  }
  SHOAL_RETURN_IF_ERROR(signed_table.status());
  SHOAL_RETURN_IF_ERROR(signed_table->SaveSignatures(directory));
  io.err << "aggregated the signatures of " << roster.size() << " parties on "
         << table.versions().changed_rows() << " of " << table.rows() << " rows in "
         << SecondsOf(stopwatch) << "\n";
  io.out << "signed\t" << table.manifest().name() << "\tepoch " << table.manifest().epoch() << "\t"
         << table.rows() << " rows\n";
  return absl::OkStatus();
}

void AddTableOption(cli::Options& options) {
  options.add_options()("table", cli::Directory()->required(), "the table's directory");
}

constexpr char kTableBuildHelp[] =
    R"(Builds a table into a new directory, for the parties to sign. Records come from a TSV
file (key, tab, value; \t \n \r \\ \xHH stand for bytes), from a CSV file of two fields,
from apt's package index on this machine (package name and newest version, behind which
stand the newer ones of indexes with a lower priority, such as backports;
name:architecture for foreign architectures), or, for `shoal audit`, from the OSV
records below a directory (*.json): one key a package, with its advisories. A record that
cannot be read is left out, and the packages that it names are unclear. Keys have up to
4,096 bytes, values up to 65,535. The longest record decides how long all rows are,
if --row-bytes does not. The layout `hashed` takes any keys; `dense` takes the numbers 0
to n-1. With --previous, the table is the next epoch of one that all parties signed:
rows that do not change keep their signatures, so that the parties sign the others
alone. The keys of a hashed table keep their rows as far as these have room, so that
little changes, and clients of a single-server engine fetch only that and not the whole
hint. Standard error says whether the keys kept their rows. After the parties' keys have
changed, --sign-all has every row signed. Without --previous the table is a new one,
with an id of its own.

Within a term, --keep-rows keeps every key's row, whether the key is in the table or
not, so that rows that clients have asked for can be answered from the new epoch. A key
whose row is full must move: the row says so, clients are told that the key is not known
until the next term, and a build without --keep-rows, which begins one, places it. The
first build leaves room with --room-percent. --displaced lists the keys that must move:
key, row, bytes of key and value.

--query-buckets divides the rows into buckets, for two parties that show each other which
bucket was asked, and not which row of it. The next epoch has as many if nothing is said;
another number gives every key a second bucket, and both together tell its row. So does
a new row for every key, as where rows get another size or number: a warning says so, and
with --keep-rows it does not happen. Parties serve such a table under a roster with
most_in_bucket alone. Doors, pages of the web, the Python client and `shoal simulate`
refuse it: they do not know it yet.
)";

constexpr char kTableBuildExamples[] =
    R"(  shoal table build --packages --deployment demo --out table
  shoal table build --tsv words.tsv --name words --deployment demo --out t
  shoal table build --osv advisories/ --deployment demo --out t
  shoal table build --csv prices.csv --csv-header --layout dense --name prices \
      --row-bytes 512 --deployment demo --out t
  shoal table build --packages --deployment demo --previous table --out table-2
  shoal table build --packages --deployment demo --room-percent 20 --out table
  shoal table build --packages --deployment demo --previous table --keep-rows --out table-2
)";

void AddTableBuildOptions(cli::Options& options) {
  options.add_options()("tsv", cli::File(), "records as TSV")("csv", cli::File(),
                                                              "records as CSV (RFC 4180)")(
      "csv-header", "the CSV's first line is a header, not a record")(
      "packages", "records from this machine's package index")(
      "osv", cli::Directory(), "records from the OSV records below this directory")(
      "strict", "with --osv: refuse a record that cannot be read, instead of leaving it out")(
      "layout", cli::Text(), "hashed (default) or dense")(
      "name", cli::Text(), "the table's name (packages: debian-packages-ARCH; osv: advisories)")(
      "deployment", cli::Text()->required(), "the deployment whose parties will sign it")(
      "epoch", cli::Number(),
      "number of this version, higher than all before (default 1, or the next)")(
      "previous", cli::Directory(),
      "the signed epoch before: keeps its id and what does not change, takes the next "
      "epoch")("sign-all", "with --previous: every row is to be signed, by other keys")(
      "keep-rows", "with --previous: no key moves to another row, as within a term")(
      "displaced", cli::File(),
      "with --keep-rows: list the keys that must move in this file, as TSV")(
      "room-percent", cli::Number(),
      "percent of every row that are left free for epochs that keep rows (default 0, at "
      "most 90)")("valid-days", cli::Number(), "days that the table may be used (default 7)")(
      "query-buckets", cli::Number(),
      "buckets of at most 1,024 rows for queries of two tiers (default: as --previous, or "
      "none); 0 for none")(
      "row-bytes", cli::Number(),
      "bytes of a row (default, hashed: 1024, or as --previous; dense: one record, at "
      "least 16). Every row costs noise: see `shoal plan`")("out", cli::Directory()->required(),
                                                            "the new directory");
}

}  // namespace

cli::Command TableBuild() {
  return {
      .name = "table build",
      .summary = "build a table from records",
      .help = kTableBuildHelp,
      .examples = kTableBuildExamples,
      .options = AddTableBuildOptions,
      .positional = "",
      .run = Build,
  };
}

cli::Command TableInspect() {
  return {
      .name = "table inspect",
      .summary = "show what a table is, or look up a key in it",
      .help =
          R"(Checks a table's files against its manifest, and the bytes of every row, and prints
what the table is. Signatures are not checked: see `shoal table verify`. With --key,
looks the key up in the local files.
)",
      .examples = R"(  shoal table inspect table
  shoal table inspect table --key bash
)",
      .options =
          [](cli::Options& options) {
            AddTableOption(options);
            options.add_options()("key", cli::Text(), "a key, with the escapes of TSV");
          },
      .positional = "table",
      .run = InspectTable,
  };
}

cli::Command TableVerify() {
  return {
      .name = "table verify",
      .summary = "check a table and all parties' signatures on it",
      .help =
          R"(Checks a table as a client and a backend do: the roster against the pinned parties, the
manifest, times, every row and its signature, and the setups of engines that the parties
have signed for it. Exit code 0 if all is right, 3 if a
signature, digest, time, epoch or pin does not hold, 1 if a file is missing or
malformed.
)",
      .examples =
          R"(  shoal table verify table --roster roster.signed.textproto --pinned pinned.textproto
)",
      .options =
          [](cli::Options& options) {
            AddTableOption(options);
            AddRosterOptions(options);
          },
      .positional = "table",
      .run = Verify,
  };
}

cli::Command TableSign() {
  return {
      .name = "table sign",
      .summary = "sign what changed in a table as one party",
      .help =
          R"(Checks the table's content and signs its manifest and every row that changed since
--previous, on all cores. Says on standard error what changed: rows, and keys added,
removed and moved. Writes the party's share to TABLE/shares/party-N.share, or to --out,
and prints the path. A party signs only one content for an epoch, for ever: it keeps a
record of what it has signed beside its keys. It refuses a table that was built without
the epoch that it signed last.
)",
      .examples =
          R"(  shoal table sign table --keys parties/alice --roster roster.signed.textproto \
      --pinned pinned.textproto
  shoal table sign table-2 --previous table --keys parties/alice \
      --roster roster.signed.textproto --pinned pinned.textproto
)",
      .options =
          [](cli::Options& options) {
            AddTableOption(options);
            AddRosterOptions(options);
            options.add_options()("keys", cli::Directory()->required(), "the party's keys")(
                "previous", cli::Directory(),
                "the epoch that this one follows, as this party has it")(
                "without-previous",
                "sign a table that follows none, though this party has signed one of its name")(
                "not-after-last",
                "sign a table that follows another epoch than the one that this party signed "
                "last")("out", cli::File(), "write the share here");
          },
      .positional = "table",
      .run = SignTable,
  };
}

cli::Command TableAggregate() {
  return {
      .name = "table aggregate",
      .summary = "add up all parties' signatures on a table",
      .help =
          R"(Verifies every party's share (by default those in TABLE/shares), adds the signatures
up, and completes the table, which can then be served.
)",
      .examples =
          R"(  shoal table aggregate table --roster roster.signed.textproto \
      --pinned pinned.textproto
)",
      .options =
          [](cli::Options& options) {
            AddTableOption(options);
            AddRosterOptions(options);
            options.add_options()("share", cli::Files(),
                                  "one party's share; repeat for every party");
          },
      .positional = "table",
      .run = AggregateTable,
  };
}

}  // namespace shoal::commands
