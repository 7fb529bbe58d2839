// Manifests, placements, lists of rows' epochs, rows, shares, and files of records.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/target.h"
#include "src/storage/file.h"
#include "src/table/manifest.h"
#include "src/table/packages.h"
#include "src/table/records.h"
#include "src/table/row.h"
#include "src/table/row_map.h"
#include "src/table/row_versions.h"
#include "src/table/table.h"
#include "src/table/testing/signed_table.h"
#include "src/wire/text.h"

namespace shoal::fuzz {
namespace {

using table::testing::Layout;

struct TableWorld {
  explicit TableWorld(bool dense) : table(*Build(dense, random)) {}

  static absl::StatusOr<table::UnsignedTable> Build(bool dense, RandomSource& random) {
    const auto records = [](Layout layout) {
      return table::testing::Records(60, layout,
                                     [](size_t i) { return absl::StrCat("value ", i); });
    };
    const table::TableOptions options = table::testing::Options(128);
    return dense ? table::BuildDense(records(Layout::kDense), options, random)
                 : table::BuildHashed(records(Layout::kHashed), options, random);
  }
  // An epoch of a hashed table that keeps its rows, of which some lack keys.
  static absl::StatusOr<table::UnsignedTable> BuildIncomplete(RandomSource& random) {
    table::TableOptions options = table::testing::Options(128);
    const auto records = [](size_t n) {
      return table::testing::Records(n, Layout::kHashed,
                                     [](size_t i) { return absl::StrCat("key ", i); });
    };
    SHOAL_ASSIGN_OR_RETURN(const table::UnsignedTable first,
                           table::BuildHashed(records(60), options, random));
    const table::PreviousEpoch previous{.content = first, .manifest = {}, .signatures = nullptr};
    options.epoch = 2;
    options.previous = &previous;
    options.sign_all_rows = options.keep_rows = true;
    return table::BuildHashed(records(90), options, random);
  }
  explicit TableWorld(table::UnsignedTable other) : table(std::move(other)) {}
  const wire::Manifest& manifest() const { return table.manifest(); }
  Bytes RowBytes(uint64_t row) const { return ToBytes(table.row(row)); }

  testing::TestRandom random{1};
  const table::UnsignedTable table;
};

// Manifest, placement and lists of one table, as blobs.
Bytes MapInput(const TableWorld& world) {
  Bytes input;
  AppendBlob(AsBytes(world.manifest().SerializeAsString()), input);
  AppendBlob(world.table.map().placement(), input);
  const table::RowVersions::Lists& lists = world.table.versions().lists();
  for (const Bytes* list : {&lists.base, &lists.previous, &lists.recent}) AppendBlob(*list, input);
  return input;
}

// The digests in the manifest are made to fit, as those of a malicious set of parties would.
bool ParseMap(BytesView input) {
  Cursor cursor(input);
  wire::Manifest manifest;
  const BytesView blob = cursor.Blob();
  if (!manifest.ParseFromArray(blob.data(), static_cast<int>(blob.size()))) return false;
  const Bytes placement = ToBytes(cursor.Blob());
  table::RowVersions::Lists lists;
  for (Bytes* list : {&lists.base, &lists.previous, &lists.recent}) *list = ToBytes(cursor.Blob());
  if (manifest.has_hashed()) {
    manifest.mutable_hashed()->set_placement_digest(ToString(table::PlacementDigest(placement)));
  }
  wire::RowVersionLists& described = *manifest.mutable_row_versions();
  described.set_base_bytes(lists.base.size());
  described.set_base_digest(ToString(table::VersionListDigest(lists.base)));
  described.set_previous_bytes(lists.previous.size());
  described.set_previous_digest(ToString(table::VersionListDigest(lists.previous)));
  described.set_recent_bytes(lists.recent.size());
  described.set_recent_digest(ToString(table::VersionListDigest(lists.recent)));
  const auto map = table::RowMap::CreateUnsigned(manifest, placement, lists);
  if (!map.ok()) return false;
  for (const absl::string_view key : {"key 1", "7", "", "another"}) {
    const absl::StatusOr<uint64_t> row = map->RowOf(AsBytes(key));
    SHOAL_CHECK(!row.ok() || *row < map->rows());
  }
  return true;
}

// A digest of the row, one byte to choose the key, the row's bytes.
bool ParseRow(const TableWorld& world, BytesView input) {
  Cursor cursor(input);
  const std::string key = absl::StrCat("key ", cursor.U8() % 64);
  const absl::StatusOr<uint64_t> row = world.table.map().RowOf(AsBytes(key));
  SHOAL_CHECK(row.ok());
  const absl::Status found = world.table.map().Find(*row, cursor.rest(), AsBytes(key)).status();
  const absl::StatusOr<table::HashedRow> content = table::DecodeHashedRow(cursor.rest());
  if (content.ok()) {
    // One content has one encoding.
    Bytes again;
    for (const table::RecordView& record : content->records) {
      table::AppendHashedRecord(record.key, record.value, again);
    }
    table::AppendDisplaced(content->displaced, again);
    again.resize(cursor.rest().size(), 0);
    SHOAL_CHECK(std::ranges::equal(again, cursor.rest()));
  }
  // Nobody learns that a key is absent from a row that may lack any.
  SHOAL_CHECK(!found.ok() || content.ok());
  SHOAL_CHECK(!content.ok() || !content->displaced.any || !found.ok() ||
              std::ranges::any_of(content->records, [&](const table::RecordView& record) {
                return AsText(record.key) == key;
              }));
  return found.ok() || absl::IsUnavailable(found);
}

bool ParseVersions(BytesView input) {
  Cursor cursor(input);
  const table::VersionList::Bounds bounds = {.rows = cursor.U16(),
                                             .after = cursor.U8(),
                                             .last = cursor.U8(),
                                             .names_every_row = cursor.U8() % 2 == 1};
  const auto list = table::VersionList::Decode(cursor.rest(), bounds);
  if (!list.ok()) return false;
  SHOAL_CHECK(std::ranges::equal(list->Encode(), cursor.rest()));
  return true;
}

Bytes VersionsInput(const table::VersionList& list, uint8_t after, uint8_t last, bool all) {
  Bytes input = {static_cast<uint8_t>(list.rows()), static_cast<uint8_t>(list.rows() >> 8), after,
                 last, static_cast<uint8_t>(all)};
  Append(input, list.Encode());
  return input;
}

bool ParseRecords(absl::StatusOr<table::RecordSet> (*parse)(absl::string_view, std::string),
                  BytesView input) {
  const auto records = parse(TextOf(input), "input");
  if (!records.ok()) return false;
  for (size_t i = 0; i < records->size(); ++i) {
    const auto key = table::UnescapeTsv(table::EscapeTsv(records->key(i)));
    SHOAL_CHECK(key.ok() && std::ranges::equal(*key, records->key(i)));
  }
  return true;
}

// The directory of a table under another manifest, as somebody could send it who made the table.
bool ParseTable(const std::string& directory, BytesView input) {
  WriteInput(input, table::ManifestPath(directory));
  const auto opened = table::UnsignedTable::Open(directory);
  return opened.ok() && opened->CheckContent().ok();
}

// Packages as apt or dpkg lists them.
bool ParseStanzas(bool installed, BytesView input) {
  const std::string text = TextOf(input);
  const auto packages =
      installed ? table::ParseInstalled(text, "input") : table::ParsePackages(text, "input");
  if (!packages.ok()) return false;
  for (const table::Package& package : *packages) {
    SHOAL_CHECK(table::CompareVersions(package.version, package.version) == 0);
    const int order = table::CompareVersions(package.version, packages->front().version);
    const int reverse = table::CompareVersions(packages->front().version, package.version);
    SHOAL_CHECK((order < 0) == (reverse > 0) && (order > 0) == (reverse < 0));
    (void)table::PackageKey(package.name, package.architecture, "amd64");
  }
  return !packages->empty();
}

void AddMapTargets(const TableWorld& hashed, const TableWorld& dense,
                   std::vector<Target>& targets) {
  targets.push_back({.name = "manifest",
                     .seeds = {InputOf(wire::PrintText(hashed.manifest())),
                               InputOf(wire::PrintText(dense.manifest()))},
                     .parse = [](BytesView input) {
                       wire::Manifest manifest;
                       return wire::ParseText(TextOf(input), "manifest", manifest).ok() &&
                              table::CheckManifest(manifest).ok();
                     }});
  targets.push_back(
      {.name = "placement", .seeds = {MapInput(hashed), MapInput(dense)}, .parse = ParseMap});
}

void AddRowTargets(const std::shared_ptr<const TableWorld>& hashed, std::vector<Target>& targets) {
  Target rows{.name = "row", .seeds = {}, .parse = [hashed](BytesView input) {
                return ParseRow(*hashed, input);
              }};
  for (uint8_t key = 0; key < 4; ++key) {
    Bytes seed = {key};
    Append(seed, hashed->RowBytes(*hashed->table.map().RowOf(AsBytes(absl::StrCat("key ", key)))));
    rows.seeds.push_back(seed);
  }
  targets.push_back(std::move(rows));

  testing::TestRandom random(2);
  const auto incomplete = std::make_shared<TableWorld>(*TableWorld::BuildIncomplete(random));
  SHOAL_CHECK(incomplete->manifest().incomplete_rows() > 0);
  Target incomplete_rows{.name = "incomplete_row",
                         .seeds = {},
                         .parse = [incomplete](BytesView in) { return ParseRow(*incomplete, in); }};
  for (uint8_t key = 0; key < 64; key += 4) {
    const uint64_t row = *incomplete->table.map().RowOf(AsBytes(absl::StrCat("key ", key)));
    Bytes seed = {key};
    Append(seed, incomplete->RowBytes(row));
    incomplete_rows.seeds.push_back(seed);
  }
  // A row that may lack any key.
  Bytes any = {1};
  table::AppendHashedRecord(AsBytes("key 1"), AsBytes("value"), any);
  table::AppendDisplaced({.marks = {}, .any = true}, any);
  any.resize(1 + incomplete->manifest().row_bytes(), 0);
  incomplete_rows.seeds.push_back(any);
  targets.push_back(std::move(incomplete_rows));
}

void AddListTargets(std::vector<Target>& targets) {
  const auto version = [](uint64_t epoch) {
    return table::RowVersion{.epoch = epoch, .rows_digest = {static_cast<uint8_t>(epoch)}};
  };
  std::vector<uint16_t> of_rows(300, 0);
  of_rows[7] = of_rows[250] = 1;
  targets.push_back(
      {.name = "row_versions",
       .seeds = {VersionsInput(table::VersionList({version(3), version(5)}, of_rows), 2, 5, true),
                 VersionsInput(table::VersionList({version(1)}, std::vector<uint16_t>(9, 0)), 0, 1,
                               true)},
       .parse = ParseVersions});

  const table::TableShare share = {.party = 2,
                                   .manifest_digest = {4},
                                   .manifest_signature = Bytes(48, 5),
                                   .row_signatures = Bytes(96, 6)};
  targets.push_back(
      {.name = "table_share", .seeds = {share.Serialize()}, .parse = [](BytesView input) {
         const auto parsed = table::TableShare::Parse(input);
         if (!parsed.ok()) return false;
         SHOAL_CHECK(std::ranges::equal(parsed->Serialize(), input));
         return true;
       }});
}

void AddRecordTargets(std::vector<Target>& targets) {
  targets.push_back(
      {.name = "tsv",
       .seeds = {InputOf("one\tfirst\ntwo\\x39\\\\\t\nthree\tlast"),
                 InputOf("\xef\xbb\xbfkey\tvalue\n")},
       .parse = [](BytesView input) { return ParseRecords(table::ParseTsv, input); }});
  targets.push_back({.name = "csv",
                     .seeds = {InputOf("one,first\r\n\"two, \"\"quoted\"\"\",\"line\nbreak\"\r\n"),
                               InputOf("\xef\xbb\xbfkey,value\n")},
                     .parse = [](BytesView input) {
                       return ParseRecords(
                           [](absl::string_view text, std::string source) {
                             return table::ParseCsv(text, std::move(source), false);
                           },
                           input);
                     }});
}

void AddDirectoryTarget(const TableWorld& world, std::vector<Target>& targets) {
  const std::string beside = FileOf({}, "table");
  const std::string directory = beside.substr(0, beside.rfind('/')) + "/of-seed";
  std::filesystem::remove_all(directory);
  SHOAL_CHECK(world.table.Save(directory).ok());
  const absl::StatusOr<std::string> text = ReadFile(table::ManifestPath(directory));
  SHOAL_CHECK(text.ok());
  targets.push_back({.name = "table_directory",
                     .seeds = {InputOf(*text)},
                     .parse = [directory](BytesView input) { return ParseTable(directory, input); },
                     .mutations = 500});
}

void AddPackageTargets(std::vector<Target>& targets) {
  targets.push_back(
      {.name = "packages",
       .seeds = {InputOf("Package: bash\nVersion: 5.2.15-2+b7\nArchitecture: amd64\n"
                         "Description: GNU shell\n more\n\n"
                         "Package: adduser\nArchitecture: all\nVersion: 1:3.134~rc1\n")},
       .parse = [](BytesView input) { return ParseStanzas(false, input); }});
  targets.push_back(
      {.name = "installed",
       .seeds = {InputOf("Package: bash\nStatus: install ok installed\nArchitecture: amd64\n"
                         "Version: 5.2.15-2+b7\nConffiles:\n /etc/x 00\n\n"
                         "Package: gone\nStatus: deinstall ok config-files\n"
                         "Architecture: all\nVersion: 1\n")},
       .parse = [](BytesView input) { return ParseStanzas(true, input); }});
}

}  // namespace

void AddTableTargets(std::vector<Target>& targets) {
  const auto hashed = std::make_shared<const TableWorld>(false);
  AddMapTargets(*hashed, TableWorld(true), targets);
  AddRowTargets(hashed, targets);
  AddListTargets(targets);
  AddRecordTargets(targets);
  AddDirectoryTarget(*hashed, targets);
  AddPackageTargets(targets);
}

}  // namespace shoal::fuzz
