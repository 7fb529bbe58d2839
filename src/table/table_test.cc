#include "src/table/table.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/roster/testing/parties.h"
#include "src/storage/file.h"
#include "src/table/testing/signed_table.h"

namespace shoal::table {
namespace {

using ::shoal::roster::testing::kNowS;
using ::shoal::roster::testing::Parties;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

TableOptions Options(uint32_t row_bytes = 0) { return testing::Options(row_bytes, /*epoch=*/5); }

RecordSet Words(size_t n) {
  RecordSet records("words.tsv");
  for (size_t i = 0; i < n; ++i) {
    SHOAL_CHECK(records
                    .Add(AsBytes(absl::StrCat("word-", i * i)),
                         AsBytes(std::string(i % 30, static_cast<char>('a' + i % 26))), i + 1)
                    .ok());
  }
  return records;
}

RecordSet Numbers(size_t n) {
  RecordSet records("numbers.tsv");
  for (size_t i = 0; i < n; ++i) {
    const size_t key = n - 1 - i;  // in any order
    SHOAL_CHECK(
        records.Add(AsBytes(absl::StrCat(key)), AsBytes(absl::StrCat("value ", key % 7)), i + 1)
            .ok());
  }
  return records;
}

std::string NewDirectory() {
  std::string pattern = std::string(::getenv("TEST_TMPDIR")) + "/table.XXXXXX";
  SHOAL_CHECK(::mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

// Everything that a test of signed tables needs.
struct Signed {
  explicit Signed(uint32_t parties_count = 3, size_t words = 300)
      : random(42),
        pool(2),
        parties(parties_count, random),
        roster(parties.roster()),
        unsigned_table(*BuildHashed(Words(words), Options(256), random)),
        shares(testing::SharesOf(unsigned_table, nullptr, parties, roster, pool)) {}
  absl::StatusOr<Table> Aggregate() {
    return AggregateTable(unsigned_table, roster, shares, kNowS, random, pool);
  }
  // With all signatures.
  absl::Status Save(const std::string& path) {
    SHOAL_ASSIGN_OR_RETURN(const Table table, Aggregate());
    SHOAL_RETURN_IF_ERROR(unsigned_table.Save(path));
    return table.SaveSignatures(path);
  }
  TestRandom random;
  ThreadPool pool;
  Parties parties;
  roster::Roster roster;
  UnsignedTable unsigned_table;
  std::vector<TableShare> shares;
};

TEST(BuildHashed, EveryKeyIsFoundAndOthersAreProvedAbsent) {
  TestRandom random(1);
  const RecordSet records = Words(2000);
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table, BuildHashed(records, Options(512), random));
  SHOAL_EXPECT_OK(table.CheckContent());
  EXPECT_GT(table.fill(), 0.9);
  EXPECT_LT(table.map().placement().size(), records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t row, table.map().RowOf(records.key(i)));
    ASSERT_LT(row, table.rows());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto value,
                               table.map().Find(row, table.row(row), records.key(i)));
    ASSERT_TRUE(value.has_value());
    EXPECT_EQ(*value, ToBytes(records.value(i)));
  }
  for (int i = 0; i < 500; ++i) {
    const std::string key = absl::StrCat("absent-", i);
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t row, table.map().RowOf(AsBytes(key)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto value,
                               table.map().Find(row, table.row(row), AsBytes(key)));
    EXPECT_FALSE(value.has_value());
    // Another row proves nothing.
    const uint64_t other = (row + 1) % table.rows();
    EXPECT_THAT(table.map().Find(other, table.row(other), AsBytes(key)),
                StatusIs(kInvalid, "says nothing about"));
  }
}

TEST(BuildHashed, TakesAnyBytesAndNoRecords) {
  TestRandom random(2);
  RecordSet records("f");
  SHOAL_ASSERT_OK(records.Add({}, AsBytes("empty key"), 1));
  SHOAL_ASSERT_OK(records.Add(Bytes{0}, Bytes{0, 0}, 2));
  SHOAL_ASSERT_OK(records.Add(Bytes{0, 0xff}, {}, 3));
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table, BuildHashed(records, Options(), random));
  SHOAL_EXPECT_OK(table.CheckContent());
  SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t row, table.map().RowOf({}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto value, table.map().Find(row, table.row(row), {}));
  EXPECT_EQ(ToString(value.value()), "empty key");

  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable none,
                             BuildHashed(RecordSet("f"), Options(), random));
  SHOAL_EXPECT_OK(none.CheckContent());
  EXPECT_EQ(none.rows(), 1u);
}

TEST(BuildHashed, NamesTheBadRecord) {
  TestRandom random(3);
  RecordSet records("f.tsv");
  SHOAL_ASSERT_OK(records.Add(AsBytes("a"), AsBytes("1"), 1));
  SHOAL_ASSERT_OK(records.Add(AsBytes("b"), AsBytes(std::string(300, 'x')), 2));
  EXPECT_THAT(BuildHashed(records, Options(256), random),
              StatusIs(kInvalid, "f.tsv:2: the record takes 304 bytes, more than a row of 256"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable grown, BuildHashed(records, Options(), random));
  EXPECT_EQ(grown.row_bytes(), 1024u);
  SHOAL_ASSERT_OK(records.Add(AsBytes("a"), AsBytes("3"), 3));
  EXPECT_THAT(BuildHashed(records, Options(), random),
              StatusIs(kInvalid, "f.tsv:3: the key \"a\" is there twice, first at line 1"));
  EXPECT_THAT(BuildHashed(RecordSet("f"), Options(kMaxRowBytes + 1), random),
              StatusIs(kInvalid, "row bytes: 1048577"));
  TableOptions options = Options();
  options.expires_s = options.created_s;
  EXPECT_THAT(BuildHashed(RecordSet("f"), options, random), StatusIs(kInvalid, "expires_s"));
  options = Options();
  options.name = "";
  EXPECT_THAT(BuildHashed(RecordSet("f"), options, random), StatusIs(kInvalid, "name"));
}

TEST(BuildDense, EveryNumberIsFound) {
  TestRandom random(4);
  for (const uint32_t row_bytes : {0u, 16u, 33u, 1024u}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table,
                               BuildDense(Numbers(100), Options(row_bytes), random));
    SHOAL_EXPECT_OK(table.CheckContent());
    for (uint64_t key = 0; key < 100; ++key) {
      const std::string text = absl::StrCat(key);
      SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t row, table.map().RowOf(AsBytes(text)));
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto value,
                                 table.map().Find(row, table.row(row), AsBytes(text)));
      EXPECT_EQ(ToString(value.value()), absl::StrCat("value ", key % 7));
    }
    EXPECT_THAT(table.map().RowOf(AsBytes("100")),
                StatusIs(absl::StatusCode::kOutOfRange, "0 to 99"));
    for (const char* bad :
         {"", "01", "-1", "+1", " 1", "1 ", "a", "0x1", "99999999999999999999999999"}) {
      EXPECT_THAT(table.map().RowOf(AsBytes(bad)), StatusIs(kInvalid, "decimal number")) << bad;
    }
    EXPECT_THAT(table.map().RowOf(AsBytes("99999999999999999999")),
                StatusIs(absl::StatusCode::kOutOfRange, "no record"));
  }
}

// Rows of one record each, as in the paper's evaluation.
TEST(BuildDense, ARowCanBeOneShortRecord) {
  TestRandom random(5);
  const RecordSet records =
      testing::Records(20, testing::Layout::kDense, [](size_t i) { return absl::StrCat(i % 7); });
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table, BuildDense(records, Options(1), random));
  EXPECT_EQ(table.rows(), 20u);
  EXPECT_EQ(table.manifest().row_bytes(), 1u);
  SHOAL_EXPECT_OK(table.CheckContent());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto value, table.map().Find(9, table.row(9), AsBytes("9")));
  EXPECT_EQ(ToString(value.value()), "2");
  // By default the builder packs short records together.
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable packed, BuildDense(records, Options(), random));
  EXPECT_EQ(packed.rows(), 2u);
}

TEST(BuildHashed, ARecordMustFitARow) {
  TestRandom random(5);
  for (const uint32_t row_bytes : {1u, 2u, 15u}) {
    EXPECT_THAT(BuildHashed(Words(50), Options(row_bytes), random),
                StatusIs(kInvalid, "more than a row"))
        << row_bytes;
  }
}

TEST(BuildDense, NamesTheBadRecord) {
  TestRandom random(5);
  const auto build = [&](std::vector<std::pair<std::string, std::string>> pairs,
                         uint32_t row_bytes = 0) {
    RecordSet records("n.tsv");
    for (size_t i = 0; i < pairs.size(); ++i) {
      SHOAL_CHECK(records.Add(AsBytes(pairs[i].first), AsBytes(pairs[i].second), i + 1).ok());
    }
    return BuildDense(records, Options(row_bytes), random);
  };
  EXPECT_THAT(build({{"0", "a"}, {"2", "b"}}), StatusIs(kInvalid, "n.tsv:2: the key of a dense"));
  EXPECT_THAT(build({{"0", "a"}, {"00", "b"}}), StatusIs(kInvalid, "n.tsv:2: the key of a dense"));
  EXPECT_THAT(build({{"0", "a"}, {"0", "b"}}),
              StatusIs(kInvalid, "n.tsv:2: the key 0 is there twice"));
  EXPECT_THAT(build({}), StatusIs(kInvalid, "n.tsv: no records"));
  EXPECT_THAT(build({{"0", "a"}, {"1", std::string(20, 'x')}}, 16),
              StatusIs(kInvalid, "n.tsv:2: the value takes 21 bytes"));
  // All values empty still make a table.
  SHOAL_EXPECT_OK(build({{"0", ""}, {"1", ""}}));
}

TEST(UnsignedTable, SavesAndOpens) {
  TestRandom random(6);
  const std::string directory = NewDirectory();
  for (const bool dense : {false, true}) {
    const std::string path = directory + (dense ? "/dense" : "/deep/er/hashed");
    SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table,
                               dense ? BuildDense(Numbers(50), Options(64), random)
                                     : BuildHashed(Words(50), Options(64), random));
    SHOAL_ASSERT_OK(table.Save(path));
    EXPECT_THAT(table.Save(path), StatusIs(absl::StatusCode::kAlreadyExists, "new directory"));
    SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable opened, UnsignedTable::Open(path));
    EXPECT_EQ(ManifestDigest(opened.manifest()), ManifestDigest(table.manifest()));
    EXPECT_EQ(ToBytes(opened.bytes()), ToBytes(table.bytes()));
    SHOAL_EXPECT_OK(opened.CheckContent());
  }
  // Nothing is left beside them.
  size_t entries = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    EXPECT_EQ(entry.path().string().find("XXXX"), std::string::npos);
    entries += entry.path().filename().string().find('.') != std::string::npos;
  }
  EXPECT_EQ(entries, 6u + 5u);  // manifest, rows, three lists; placement of the hashed one
}

TEST(UnsignedTable, RefusesChangedFiles) {
  TestRandom random(7);
  const std::string path = NewDirectory() + "/table";
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table,
                             BuildHashed(Words(50), Options(64), random));
  SHOAL_ASSERT_OK(table.Save(path));
  for (const char* file : {"/rows.bin", "/placement.bin", "/versions-recent.bin"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string good, ReadFile(path + file));
    std::string bad = good;
    bad[bad.size() / 2] ^= 1;
    SHOAL_ASSERT_OK(WriteFileAtomically(path + file, AsBytes(bad), FileMode::kPublic));
    EXPECT_THAT(UnsignedTable::Open(path), StatusIs(kDataLoss, "not the manifest's"));
    SHOAL_ASSERT_OK(WriteFileAtomically(path + file, AsBytes(good.substr(1)), FileMode::kPublic));
    EXPECT_THAT(UnsignedTable::Open(path), StatusIs(kDataLoss, "bytes instead of"));
    SHOAL_ASSERT_OK(WriteFileAtomically(path + file, AsBytes(good + "x"), FileMode::kPublic));
    EXPECT_FALSE(UnsignedTable::Open(path).ok());
    SHOAL_ASSERT_OK(WriteFileAtomically(path + file, AsBytes(good), FileMode::kPublic));
  }
  SHOAL_ASSERT_OK(WriteFileAtomically(path + "/manifest.textproto",
                                      AsBytes("manifest {\n  rows: x\n}"), FileMode::kPublic));
  EXPECT_THAT(UnsignedTable::Open(path), StatusIs(kInvalid, "manifest.textproto:2:"));
  EXPECT_THAT(UnsignedTable::Open(path + "-none"), StatusIs(absl::StatusCode::kNotFound, "none"));
}

// A table that is larger than the machine's memory is refused by its manifest alone, before a row
// is read.
TEST(UnsignedTable, RefusesWhatDoesNotFitTheMemory) {
  Signed s;
  const std::string path = NewDirectory() + "/table";
  SHOAL_ASSERT_OK(s.Save(path));
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string manifest, ReadFile(path + "/manifest.textproto"));
  for (const std::string field : {"  rows: ", "  row_bytes: "}) {
    const size_t at = manifest.find(field);
    ASSERT_NE(at, std::string::npos);
    manifest.replace(at, manifest.find('\n', at) - at, field + "1048576");  // 1 TiB in all
  }
  SHOAL_ASSERT_OK(
      WriteFileAtomically(path + "/manifest.textproto", AsBytes(manifest), FileMode::kPublic));
  EXPECT_THAT(UnsignedTable::Open(path),
              StatusIs(absl::StatusCode::kResourceExhausted, "the table takes 1048580 MiB"));
  // For a signed table, the signatures and the memory for verifying them count too.
  EXPECT_THAT(Table::Open(path, s.roster, kNowS, s.random, s.pool),
              StatusIs(absl::StatusCode::kResourceExhausted, "the table takes 1048876 MiB"));
}

// A publisher could hide a key by putting it into a row where no client looks for it.
TEST(UnsignedTable, CheckContentFindsKeysInTheWrongRow) {
  TestRandom random(8);
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table,
                             BuildHashed(Words(50), Options(64), random));
  Bytes rows = ToBytes(table.bytes());
  std::swap_ranges(rows.begin(), rows.begin() + 64, rows.begin() + 64);
  wire::Manifest manifest = table.manifest();
  const Digest rows_digest = RowsDigest(table.rows(), 64, rows);
  manifest.set_rows_digest(ToString(rows_digest));
  const RowVersions versions =
      RowVersions::First({.epoch = manifest.epoch(), .rows_digest = rows_digest}, table.rows());
  *manifest.mutable_row_versions() = versions.Describe();
  const RowVersions::Lists& lists = versions.lists();
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const UnsignedTable swapped,
      UnsignedTable::Create(manifest, rows, ToBytes(table.map().placement()), lists));
  EXPECT_THAT(swapped.CheckContent(), StatusIs(kDataLoss, "the placement sends to row"));
  // No party signs such a table.
  const Parties parties(2, random);
  ThreadPool pool(1);
  EXPECT_THAT(SignTable(swapped, nullptr, parties.roster(), parties.keys(1).bls(), pool),
              StatusIs(kDataLoss, "the placement sends to row"));

  manifest = table.manifest();
  manifest.set_records(51);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const UnsignedTable more,
      UnsignedTable::Create(manifest, ToBytes(table.bytes()), ToBytes(table.map().placement()),
                            table.versions().lists()));
  EXPECT_THAT(more.CheckContent(), StatusIs(kDataLoss, "hold 50 records, the manifest says 51"));
}

TEST(SignedTable, SignsAggregatesServesAndReopens) {
  Signed s;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table table, s.Aggregate());
  EXPECT_EQ(table.answer_bytes(), 256u + 48u);
  const std::string path = NewDirectory() + "/table";
  SHOAL_ASSERT_OK(s.unsigned_table.Save(path));
  EXPECT_THAT(Table::Open(path, s.roster, kNowS, s.random, s.pool),
              StatusIs(kUnauthenticated, "not signed yet"));
  SHOAL_ASSERT_OK(table.SaveSignatures(path));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table opened,
                             Table::Open(path, s.roster, kNowS, s.random, s.pool));

  // The client's side, from what the network gives it.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Manifest manifest,
                             Manifest::Verify(opened.manifest().wire(), s.roster, kNowS));
  SHOAL_ASSERT_OK_AND_ASSIGN(const RowMap map,
                             RowMap::Create(manifest, ToBytes(opened.map().placement()),
                                            opened.content().versions().lists()));
  Bytes answer(opened.answer_bytes());
  for (uint64_t row = 0; row < opened.rows(); ++row) {
    opened.CopyAnswer(row, answer);
    SHOAL_EXPECT_OK(map.VerifyAnswer(s.roster, {row, answer}));
  }
  EXPECT_THAT(map.VerifyAnswer(s.roster, {0, answer}), StatusIs(kUnauthenticated, "row 0"));
  opened.CopyAnswer(opened.rows(), answer);
  EXPECT_EQ(answer, Bytes(answer.size(), 0));
}

TEST(SignedTable, RefusesAnswersThatAreChangedStaleOrForeign) {
  Signed s;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table table, s.Aggregate());
  Bytes answer(table.answer_bytes());
  table.CopyAnswer(3, answer);
  SHOAL_ASSERT_OK(table.map().VerifyAnswer(s.roster, {3, answer}));
  for (const size_t at : {size_t{0}, size_t{100}, answer.size() - 40, answer.size() - 1}) {
    Bytes bad = answer;
    bad[at] ^= 1;
    EXPECT_THAT(table.map().VerifyAnswer(s.roster, {3, bad}), StatusIs(kUnauthenticated, "row 3"));
  }
  EXPECT_THAT(table.map().VerifyAnswer(s.roster, {4, answer}), StatusIs(kUnauthenticated, "row 4"));
  EXPECT_THAT(table.map().VerifyAnswer(s.roster, {3, BytesView(answer).first(100)}),
              StatusIs(kInvalid, "100 bytes"));
  EXPECT_THAT(table.map().VerifyAnswer(s.roster, {table.rows(), answer}),
              StatusIs(kInvalid, "no row"));

  // The same bytes under another table id, epoch of their last change or digest of the rows then
  // are another table's.
  for (int field = 0; field < 3; ++field) {
    wire::Manifest other = table.manifest().content();
    RowVersion version = table.content().versions().of(3);
    if (field == 0) other.set_table_id(std::string(32, 'x'));
    if (field == 1) other.set_epoch(version.epoch = 6);
    if (field == 2) version.rows_digest[0] ^= 1;
    other.set_rows_digest(ToString(version.rows_digest));
    const RowVersions versions = RowVersions::First(version, table.rows());
    *other.mutable_row_versions() = versions.Describe();
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const RowMap map,
        RowMap::CreateUnsigned(other, ToBytes(table.map().placement()), versions.lists()));
    EXPECT_THAT(map.VerifyAnswer(s.roster, {3, answer}), StatusIs(kUnauthenticated, "row 3"));
  }
}

TEST(SignedTable, BatchVerificationFindsExactlyTheWrongOnes) {
  Signed s;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table table, s.Aggregate());
  std::vector<Bytes> bytes;
  std::vector<RowAnswer> answers;
  for (int i = 0; i < 40; ++i) {
    bytes.emplace_back(table.answer_bytes());
    table.CopyAnswer(static_cast<uint64_t>(i) % table.rows(), bytes.back());
  }
  bytes[7][0] ^= 1;       // content
  bytes[20].back() ^= 1;  // signature, most likely no point
  std::copy(bytes[30].begin() + 256, bytes[30].end(), bytes[31].begin() + 256);  // another row's
  for (int i = 0; i < 40; ++i) {
    answers.push_back({static_cast<uint64_t>(i) % table.rows(), bytes[static_cast<size_t>(i)]});
  }
  answers[39].row = table.rows();
  answers[38].answer = answers[38].answer.first(10);
  for (ThreadPool* pool : {static_cast<ThreadPool*>(nullptr), &s.pool}) {
    const std::vector<absl::Status> results =
        table.map().VerifyAnswers(s.roster, answers, s.random, pool);
    ASSERT_EQ(results.size(), answers.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const bool wrong = i == 7 || i == 20 || i == 31 || i >= 38;
      EXPECT_EQ(results[i].ok(), !wrong) << i << " " << results[i].message();
    }
  }
}

TEST(SignedTable, RefusesManifestsThatAreChangedStaleOrForeign) {
  Signed s;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table table, s.Aggregate());
  const wire::SignedManifest& good = table.manifest().wire();
  SHOAL_EXPECT_OK(Manifest::Verify(good, s.roster, kNowS));
  EXPECT_THAT(Manifest::Verify(good, s.roster, Options().expires_s + 60),
              StatusIs(kUnauthenticated, "table: expired"));
  EXPECT_THAT(Manifest::Verify(good, s.roster, kNowS - 161),
              StatusIs(kUnauthenticated, "table: not valid"));
  wire::SignedManifest changed = good;
  changed.mutable_manifest()->set_epoch(6);
  EXPECT_THAT(Manifest::Verify(changed, s.roster, kNowS),
              StatusIs(kUnauthenticated, "does not match"));
  changed = good;
  changed.clear_signature();
  EXPECT_THAT(Manifest::Verify(changed, s.roster, kNowS), StatusIs(kUnauthenticated, "manifest"));

  // Another deployment's parties, and a deployment of another name with the same ones.
  Parties strangers(3, s.random);
  EXPECT_THAT(Manifest::Verify(good, strangers.roster(), kNowS),
              StatusIs(kUnauthenticated, "does not match"));
  changed = good;
  changed.mutable_manifest()->set_deployment("other");
  EXPECT_THAT(Manifest::Verify(changed, s.roster, kNowS),
              StatusIs(kUnauthenticated, "of deployment other"));

  // A pinned minimum epoch.
  wire::PinnedParties pins = s.parties.PinsText();
  pins.set_minimum_table_epoch(6);
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::PinnedParties pinned,
                             roster::PinnedParties::Create(pins));
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::Roster later,
                             roster::Roster::Verify(s.parties.Signed(), pinned, kNowS));
  EXPECT_THAT(Manifest::Verify(good, later, kNowS),
              StatusIs(kUnauthenticated, "epoch 5 is before"));
}

// All parties signed two manifests, and the rows stand under one of them: they are not served under
// the other, whose epoch or time may be a later one.
TEST(SignedTable, TheManifestIsThatOfTheRows) {
  Signed s(2, 20);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table table, s.Aggregate());
  Bytes signatures;
  for (uint64_t row = 0; row < table.rows(); ++row) Append(signatures, table.signature(row));
  wire::SignedManifest other = table.manifest().wire();
  const auto create = [&] {
    return Table::Create(s.unsigned_table, other, signatures, s.roster, kNowS, s.random, s.pool)
        .status();
  };
  SHOAL_EXPECT_OK(create());
  other.mutable_manifest()->set_expires_s(other.manifest().expires_s() + 1);
  other.set_signature(s.parties.SignatureByAll(ManifestDigest(other.manifest())));
  EXPECT_THAT(create(), StatusIs(kDataLoss, "another table's"));
}

TEST(SignedTable, AggregationNamesTheBadShare) {
  Signed s;
  const std::vector<TableShare> good = s.shares;
  s.shares.pop_back();
  EXPECT_THAT(s.Aggregate(), StatusIs(kInvalid, "party 3 (party-3) is missing"));
  s.shares = good;
  s.shares[2] = good[1];
  EXPECT_THAT(s.Aggregate(), StatusIs(kInvalid, "share of party 2: comes twice"));
  s.shares = good;
  s.shares[0].party = 9;
  EXPECT_THAT(s.Aggregate(), StatusIs(kInvalid, "no such party"));
  s.shares = good;
  s.shares[1].manifest_digest[0] ^= 1;
  EXPECT_THAT(s.Aggregate(), StatusIs(kInvalid, "party 2: is for another table"));
  s.shares = good;
  s.shares[1].manifest_signature = good[0].manifest_signature;
  EXPECT_THAT(s.Aggregate(), StatusIs(kUnauthenticated, "party 2 (party-2)"));
  s.shares = good;
  // Row 5 gets row 6's signature.
  std::copy_n(good[2].row_signatures.begin() + 6 * 48, 48,
              s.shares[2].row_signatures.begin() + 5 * 48);
  EXPECT_THAT(s.Aggregate(), StatusIs(kUnauthenticated, "party 3 (party-3): row 5"));
  s.shares = good;
  s.shares[0].row_signatures[4 * 48] = 0;
  EXPECT_THAT(s.Aggregate(), StatusIs(kUnauthenticated, "party 1 (party-1): row 4"));
  s.shares = good;
  SHOAL_EXPECT_OK(s.Aggregate());
}

TEST(SignedTable, OpenNamesTheRowWithAWrongSignature) {
  Signed s;
  const std::string path = NewDirectory() + "/table";
  SHOAL_ASSERT_OK(s.Save(path));
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string signatures, ReadFile(path + "/signatures.bin"));
  std::copy_n(signatures.begin() + 48, 48, signatures.begin() + 96);
  SHOAL_ASSERT_OK(
      WriteFileAtomically(path + "/signatures.bin", AsBytes(signatures), FileMode::kPublic));
  EXPECT_THAT(Table::Open(path, s.roster, kNowS, s.random, s.pool),
              StatusIs(kUnauthenticated, "row 2"));
}

TEST(SignTable, RefusesWhatAPartyMustNotSign) {
  Signed s(2, 50);
  EXPECT_THAT(SignTable(s.unsigned_table, nullptr, s.roster,
                        signature::SecretKey::Generate(s.random), s.pool),
              StatusIs(absl::StatusCode::kNotFound, "no party's"));
  TableOptions options = Options();
  options.deployment = "other";
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable other, BuildHashed(Words(5), options, s.random));
  EXPECT_THAT(SignTable(other, nullptr, s.roster, s.parties.keys(1).bls(), s.pool),
              StatusIs(kInvalid, "of deployment other"));
}

TEST(SignTable, ReportsProgressUpToTheEnd) {
  Signed s(2, 200);
  uint64_t last = 0;
  SHOAL_ASSERT_OK(SignTable(s.unsigned_table, nullptr, s.roster, s.parties.keys(1).bls(), s.pool,
                            [&](uint64_t done, uint64_t total) {
                              EXPECT_GT(done, last);
                              EXPECT_EQ(total, s.unsigned_table.rows());
                              last = done;
                            }));
  EXPECT_EQ(last, s.unsigned_table.rows());
}

// A table over epochs, signed by the same parties, of which every test has its own.
class Epochs : public ::testing::Test {
 protected:
  Epochs() : pool_(2), parties_(3, random_), roster_(parties_.roster()) {}

  // Words with their numbers as values, but for those that `changed` names.
  static RecordSet Records(size_t n, const std::map<size_t, std::string>& changed = {}) {
    return testing::Records(n, testing::Layout::kDense, [&](size_t i) {
      const auto other = changed.find(i);
      return other == changed.end() ? absl::StrCat(i) : other->second;
    });
  }
  static TableOptions At(uint64_t epoch, const PreviousEpoch* previous) {
    TableOptions options = Options(64);
    options.epoch = epoch;
    options.previous = previous;
    return options;
  }
  UnsignedTable Build(const RecordSet& records, const TableOptions& options) {
    absl::StatusOr<UnsignedTable> table =
        dense_ ? BuildDense(records, options, random_) : BuildHashed(records, options, random_);
    SHOAL_CHECK(table.ok());
    return *std::move(table);
  }
  std::vector<TableShare> Share(const UnsignedTable& table, const PreviousEpoch* previous) {
    return testing::SharesOf(table, previous, parties_, roster_, pool_);
  }
  Table Sign(const UnsignedTable& table, const PreviousEpoch* previous) {
    absl::StatusOr<Table> out =
        AggregateTable(table, roster_, Share(table, previous), kNowS, random_, pool_);
    SHOAL_CHECK(out.ok());
    return *std::move(out);
  }
  // Built and signed after `previous`.
  Table Next(uint64_t epoch, const Table* previous, const RecordSet& records) {
    if (previous == nullptr) return Sign(Build(records, At(epoch, nullptr)), nullptr);
    const PreviousEpoch before = previous->AsPrevious();
    return Sign(Build(records, At(epoch, &before)), &before);
  }
  static Bytes AnswerOf(const Table& table, uint64_t row) {
    Bytes answer(table.answer_bytes());
    table.CopyAnswer(row, answer);
    return answer;
  }
  uint64_t RowOf(const Table& table, size_t key) {
    return *table.map().RowOf(AsBytes(absl::StrCat(key)));
  }
  // As a client that has `table`'s manifest and lists.
  absl::Status Verify(const Table& table, uint64_t row, const Bytes& answer) {
    return table.map().VerifyAnswer(roster_, {row, answer});
  }
  absl::Status CheckBefore(const UnsignedTable& table, const PreviousEpoch* previous) {
    return CheckBeforeSigning(table, previous, roster_, parties_.keys(1).bls().public_key())
        .status();
  }

  TestRandom random_{12};
  ThreadPool pool_;
  Parties parties_;
  roster::Roster roster_;
  bool dense_ = true;
};

TEST_F(Epochs, CostSignaturesForTheRowsThatChanged) {
  for (const bool dense : {true, false}) {
    dense_ = dense;
    const Table one = Next(1, nullptr, Records(900));
    EXPECT_TRUE(one.content().versions().all_changed());
    const PreviousEpoch before = one.AsPrevious();
    const UnsignedTable content = Build(Records(900, {{7, "x"}, {500, "y"}}), At(2, &before));
    const uint64_t changed = content.versions().changed_rows();
    EXPECT_GE(changed, 1u);
    EXPECT_LE(changed, dense ? 2u : 6u);  // a key that does not fit its row moves others, too
    const std::vector<TableShare> shares = Share(content, &before);
    for (const TableShare& share : shares) EXPECT_EQ(share.row_signatures.size(), 48 * changed);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Table two,
                               AggregateTable(content, roster_, shares, kNowS, random_, pool_));
    for (uint64_t row = 0; row < two.rows(); ++row) {
      SHOAL_EXPECT_OK(Verify(two, row, AnswerOf(two, row)));
      if (row < one.rows() && !content.versions().changed(row)) {
        EXPECT_EQ(AnswerOf(one, row), AnswerOf(two, row));  // what engines' deltas leave out
        EXPECT_EQ(two.content().versions().of(row).epoch, 1u);
      }
    }
    EXPECT_EQ(two.content().versions().of(RowOf(two, 7)).epoch, 2u);
  }
}

TEST_F(Epochs, AnEpochWithoutAChangeRenewsTheManifestAlone) {
  const Table one = Next(1, nullptr, Records(300));
  const Table two = Next(2, &one, Records(300));
  EXPECT_EQ(two.content().versions().changed_rows(), 0u);
  SHOAL_EXPECT_OK(Verify(two, 3, AnswerOf(one, 3)));
}

TEST_F(Epochs, ARowOfAnOlderEpochThanItsLastChangeIsRefused) {
  const Table one = Next(1, nullptr, Records(300));
  const Table two = Next(2, &one, Records(300, {{7, "x"}}));
  const uint64_t row = RowOf(two, 7);
  EXPECT_THAT(Verify(two, row, AnswerOf(one, row)), StatusIs(kUnauthenticated, "row"));
  EXPECT_THAT(Verify(one, row, AnswerOf(two, row)), StatusIs(kUnauthenticated, "row"));
  // What becomes as it was is signed anew: the old signature is of another epoch.
  const Table three = Next(3, &two, Records(300));
  EXPECT_EQ(ToBytes(three.row(row)), ToBytes(one.row(row)));
  EXPECT_THAT(Verify(three, row, AnswerOf(one, row)), StatusIs(kUnauthenticated, "row"));
  SHOAL_EXPECT_OK(Verify(three, row, AnswerOf(three, row)));
}

// Epoch 2 got all signatures on its rows and was given up; epoch 3 follows epoch 1.
TEST_F(Epochs, ARowOfAGivenUpEpochIsRefused) {
  const Table one = Next(1, nullptr, Records(300));
  const Table given_up = Next(2, &one, Records(300, {{7, "x"}, {200, "bad"}}));
  const Table three = Next(3, &one, Records(300, {{7, "x"}}));
  const uint64_t same = RowOf(three, 7), other = RowOf(three, 200);
  EXPECT_EQ(ToBytes(given_up.row(same)), ToBytes(three.row(same)));
  EXPECT_THAT(Verify(three, same, AnswerOf(given_up, same)), StatusIs(kUnauthenticated, "row"));
  EXPECT_THAT(Verify(three, other, AnswerOf(given_up, other)), StatusIs(kUnauthenticated, "row"));
  SHOAL_EXPECT_OK(Verify(three, other, AnswerOf(one, other)));
}

// Every party's record of what it has signed came back from an old copy, and all signed a second
// content for epoch 2. Its rows are no rows of the first one.
TEST_F(Epochs, ARowSignedAgainAfterARestoredRecordIsRefused) {
  const Table one = Next(1, nullptr, Records(300));
  const Table two = Next(2, &one, Records(300, {{7, "x"}}));
  const Table again = Next(2, &one, Records(300, {{7, "x"}, {200, "bad"}}));
  const uint64_t same = RowOf(two, 7), other = RowOf(two, 200);
  EXPECT_EQ(ToBytes(again.row(same)), ToBytes(two.row(same)));
  EXPECT_THAT(Verify(two, same, AnswerOf(again, same)), StatusIs(kUnauthenticated, "row"));
  EXPECT_THAT(Verify(two, other, AnswerOf(again, other)), StatusIs(kUnauthenticated, "row"));
  // Nor are they after the next epoch, which follows the first one.
  const Table three = Next(3, &two, Records(300, {{7, "x"}}));
  EXPECT_THAT(Verify(three, same, AnswerOf(again, same)), StatusIs(kUnauthenticated, "row"));
  SHOAL_EXPECT_OK(Verify(three, same, AnswerOf(two, same)));
}

// One party signs two contents for an epoch. The others signed one of them.
TEST_F(Epochs, SharesOfTwoContentsAreNotAddedUp) {
  const Table one = Next(1, nullptr, Records(300));
  const PreviousEpoch before = one.AsPrevious();
  const UnsignedTable two = Build(Records(300, {{7, "x"}}), At(2, &before));
  const UnsignedTable other = Build(Records(300, {{7, "y"}}), At(2, &before));
  std::vector<TableShare> shares = Share(two, &before);
  shares[1] = Share(other, &before)[1];
  EXPECT_THAT(AggregateTable(two, roster_, shares, kNowS, random_, pool_),
              StatusIs(kInvalid, "share of party 2: is for another table"));
  shares[1].manifest_digest = shares[0].manifest_digest;
  EXPECT_THAT(AggregateTable(two, roster_, shares, kNowS, random_, pool_),
              StatusIs(kUnauthenticated, "party 2"));
}

TEST_F(Epochs, ATableRebuiltUnderTheSameNameIsAnother) {
  const Table one = Next(1, nullptr, Records(300));
  const Table rebuilt = Next(2, nullptr, Records(300, {{7, "x"}}));
  EXPECT_NE(one.manifest().content().table_id(), rebuilt.manifest().content().table_id());
  EXPECT_TRUE(rebuilt.content().versions().all_changed());
  EXPECT_THAT(Verify(rebuilt, 3, AnswerOf(one, 3)), StatusIs(kUnauthenticated, "row 3"));
  // It cannot take the other's rows over.
  const PreviousEpoch before = one.AsPrevious();
  const UnsignedTable follows_one = Build(Records(300), At(2, &before));
  const PreviousEpoch other = Next(1, nullptr, Records(300)).AsPrevious();
  EXPECT_THAT(CheckBefore(follows_one, &other),
              StatusIs(kInvalid, "is not what this table follows"));
}

TEST_F(Epochs, AnotherEpochsListsAreRefused) {
  const Table one = Next(1, nullptr, Records(300));
  const Table two = Next(2, &one, Records(300, {{7, "x"}}));
  for (int part = 0; part < 3; ++part) {
    RowVersions::Lists lists = two.content().versions().lists();
    Bytes& list = part == 0 ? lists.base : part == 1 ? lists.previous : lists.recent;
    list = one.content().versions().lists().recent;  // of epoch 1
    EXPECT_THAT(RowMap::Create(two.manifest(), {}, lists),
                StatusIs(kDataLoss, "not the manifest's"));
  }
}

TEST_F(Epochs, OtherKeysSignEveryRow) {
  const Table one = Next(1, nullptr, Records(300));
  const PreviousEpoch before = one.AsPrevious();
  Parties others(3, random_);
  const roster::Roster roster = others.roster();
  const auto& key = others.keys(1).bls();
  const UnsignedTable kept = Build(Records(300, {{7, "x"}}), At(2, &before));
  EXPECT_THAT(SignTable(kept, &before, roster, key, pool_),
              StatusIs(kUnauthenticated, "only a roster with the same keys keeps rows"));
  TableOptions options = At(2, &before);
  options.sign_all_rows = true;
  const UnsignedTable all = Build(Records(300, {{7, "x"}}), options);
  EXPECT_EQ(all.manifest().table_id(), one.manifest().content().table_id());
  SHOAL_ASSERT_OK_AND_ASSIGN(const TableShare share, SignTable(all, nullptr, roster, key, pool_));
  EXPECT_EQ(share.row_signatures.size(), 48 * all.rows());
}

TEST_F(Epochs, RowsThatWereNotThereBeforeCountAsChanged) {
  const Table one = Next(1, nullptr, Records(300));
  const Table fewer = Next(2, &one, Records(200));
  const Table more = Next(3, &fewer, Records(300));
  EXPECT_LT(fewer.rows(), one.rows());
  const RowVersions& versions = more.content().versions();
  EXPECT_EQ(versions.of(0).epoch, 1u);
  for (uint64_t row = fewer.rows(); row < more.rows(); ++row) {
    EXPECT_EQ(versions.of(row).epoch, 3u);
    EXPECT_EQ(ToBytes(more.row(row)), ToBytes(one.row(row)));
    EXPECT_THAT(Verify(more, row, AnswerOf(one, row)), StatusIs(kUnauthenticated, "row"));
  }
}

// Whoever builds the table decides which rows are to be signed; a party takes no other lists than
// those that follow from the two epochs.
TEST_F(Epochs, APartyRefusesListsThatHideAChangeOrMakeOneUp) {
  const Table one = Next(1, nullptr, Records(300));
  const PreviousEpoch before = one.AsPrevious();
  const UnsignedTable good = Build(Records(300, {{7, "x"}}), At(2, &before));
  SHOAL_EXPECT_OK(CheckBefore(good, &before));
  const uint64_t row = *good.map().RowOf(AsBytes("7"));
  for (const bool hide : {true, false}) {
    wire::Manifest manifest = good.manifest();
    const RowVersions versions = before.content.versions().Next(
        good.versions().of(row), good.rows(),
        [&](uint64_t r) { return hide ? r == row + 1 : r == row || r == row + 1; });
    *manifest.mutable_row_versions() = versions.Describe();
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const UnsignedTable bad,
        UnsignedTable::Create(manifest, ToBytes(good.bytes()), {}, versions.lists()));
    EXPECT_THAT(CheckBefore(bad, &before), StatusIs(kInvalid, "lists of changed rows"));
  }
}

TEST_F(Epochs, APartySignsOnlyAfterAnEpochThatAllSigned) {
  const Table one = Next(1, nullptr, Records(300));
  const PreviousEpoch before = one.AsPrevious();
  const UnsignedTable two = Build(Records(300, {{7, "x"}}), At(2, &before));
  EXPECT_THAT(CheckBefore(two, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, "follows an earlier epoch"));
  PreviousEpoch bad = before;
  bad.manifest.mutable_signature()->clear();
  EXPECT_THAT(CheckBefore(two, &bad), StatusIs(kUnauthenticated, "the previous epoch"));
  // A manifest that all signed, over a content that they did not.
  bad = before;
  const UnsignedTable forged = Build(Records(300, {{9, "z"}}), At(1, nullptr));
  wire::Manifest manifest = forged.manifest();
  manifest.set_table_id(one.manifest().content().table_id());
  SHOAL_ASSERT_OK_AND_ASSIGN(bad.content, UnsignedTable::Create(manifest, ToBytes(forged.bytes()),
                                                                {}, forged.versions().lists()));
  const UnsignedTable on_forged = Build(Records(300, {{7, "x"}, {9, "z"}}), At(2, &bad));
  EXPECT_THAT(CheckBefore(on_forged, &bad), StatusIs(kDataLoss, "another table's"));
  // An epoch does not follow itself, or a later one.
  const Table signed_two = Sign(two, &before);
  const PreviousEpoch later = signed_two.AsPrevious();
  EXPECT_THAT(CheckBefore(two, &later), StatusIs(kInvalid, "is not what this table follows"));
  EXPECT_THAT(BuildDense(Records(300), At(2, &later), random_),
              StatusIs(kInvalid, "cannot follow epoch 2"));
}

// A keeper of rows knows from the signed lists which of them hold.
TEST_F(Epochs, TheListsTellWhichVerifiedRowsStillHold) {
  const Table one = Next(1, nullptr, Records(300));
  Table now = one;
  for (uint64_t epoch = 2; epoch <= 20; ++epoch) {
    now = Next(epoch, &now, Records(300, {{epoch, "x"}, {7, absl::StrCat(epoch)}}));
    for (uint64_t row = 0; row < one.rows(); ++row) {
      const bool holds = now.content().versions().of(row) == one.content().versions().of(row);
      EXPECT_EQ(holds, Verify(now, row, AnswerOf(one, row)).ok());
      EXPECT_TRUE(!holds || ToBytes(now.row(row)) == ToBytes(one.row(row)));
    }
  }
}

TEST_F(Epochs, AggregationNeedsTheKeptSignaturesAndVerifiesThem) {
  const Table one = Next(1, nullptr, Records(300));
  PreviousEpoch before = one.AsPrevious();
  const UnsignedTable two = Build(Records(300, {{7, "x"}}), At(2, &before));
  const std::vector<TableShare> shares = Share(two, &before);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const UnsignedTable bare,
      UnsignedTable::Create(two.manifest(), ToBytes(two.bytes()), {}, two.versions().lists()));
  EXPECT_THAT(AggregateTable(bare, roster_, shares, kNowS, random_, pool_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "are missing"));
  EXPECT_THAT(UnsignedTable::Create(two.manifest(), ToBytes(two.bytes()), {},
                                    two.versions().lists(), ToBytes(two.kept().subspan(48))),
              StatusIs(kDataLoss, "kept signature"));
  Bytes swapped = ToBytes(two.kept());
  std::swap_ranges(swapped.begin(), swapped.begin() + 48, swapped.begin() + 48);
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable bad,
                             UnsignedTable::Create(two.manifest(), ToBytes(two.bytes()), {},
                                                   two.versions().lists(), swapped));
  EXPECT_THAT(AggregateTable(bad, roster_, shares, kNowS, random_, pool_),
              StatusIs(kUnauthenticated, "row"));
}

TEST_F(Epochs, AreSavedWithWhatTheyKeepUntilTheyAreSigned) {
  const std::string directory = NewDirectory();
  const Table one = Next(1, nullptr, Records(300));
  SHOAL_ASSERT_OK(one.content().Save(directory + "/1"));
  EXPECT_THAT(PreviousEpoch::Open(directory + "/1"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "is not signed"));
  SHOAL_ASSERT_OK(one.SaveSignatures(directory + "/1"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PreviousEpoch before, PreviousEpoch::Open(directory + "/1"));
  const UnsignedTable two = Build(Records(300, {{7, "x"}}), At(2, &before));
  SHOAL_ASSERT_OK(two.Save(directory + "/2"));
  EXPECT_TRUE(FileExists(directory + "/2/kept.bin"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable opened, UnsignedTable::Open(directory + "/2"));
  SHOAL_ASSERT_OK(Sign(opened, &before).SaveSignatures(directory + "/2"));
  EXPECT_FALSE(FileExists(directory + "/2/kept.bin"));
  SHOAL_EXPECT_OK(Table::Open(directory + "/2", roster_, kNowS, random_, pool_));
}

// What a party has verified, it does not verify again when it takes the next epoch; everything else
// it does.
TEST_F(Epochs, ATableIsVerifiedWhereItDiffersFromAVerifiedOne) {
  const Table one = Next(1, nullptr, Records(300));
  const Table two = Next(2, &one, Records(300, {{7, "x"}}));
  Bytes signatures;
  for (uint64_t row = 0; row < two.rows(); ++row) Append(signatures, two.signature(row));
  const auto create = [&](const Bytes& some) {
    return Table::Create(two.content(), two.manifest().wire(), some, roster_, kNowS, random_, pool_,
                         &one);
  };
  SHOAL_EXPECT_OK(create(signatures));
  for (const uint64_t row : {RowOf(two, 7), uint64_t{0}, two.rows() - 1}) {
    Bytes bad = signatures;
    std::copy_n(signatures.begin() + 5 * 48, 48, bad.begin() + static_cast<ptrdiff_t>(row * 48));
    EXPECT_THAT(create(bad), StatusIs(kUnauthenticated, absl::StrCat("row ", row)));
  }
}

TEST(TableShare, RoundTripsAndRefusesOtherBytes) {
  const Signed s(2, 20);
  const Bytes bytes = s.shares[1].Serialize();
  SHOAL_ASSERT_OK_AND_ASSIGN(const TableShare share, TableShare::Parse(bytes));
  EXPECT_EQ(share.party, 2u);
  EXPECT_EQ(share.manifest_digest, s.shares[1].manifest_digest);
  EXPECT_EQ(share.manifest_signature, s.shares[1].manifest_signature);
  EXPECT_EQ(share.row_signatures, s.shares[1].row_signatures);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(TableShare::Parse(BytesView(bytes).first(length)).ok()) << length;
  }
  Bytes bad = bytes;
  bad.push_back(0);
  EXPECT_THAT(TableShare::Parse(bad), StatusIs(kInvalid, "length"));
  bad = bytes;
  bad[0] = 'X';
  EXPECT_THAT(TableShare::Parse(bad), StatusIs(kInvalid, "not a table share"));
  bad = bytes;
  bad[7] = '1';
  EXPECT_THAT(TableShare::Parse(bad), StatusIs(kInvalid, "of version 0.1"));
  // A number of rows that overflows when multiplied.
  bad = bytes;
  StoreLe<uint64_t>(&bad[12], (uint64_t{1} << 60) + LoadLe<uint64_t>(&bytes[12]));
  EXPECT_THAT(TableShare::Parse(bad), StatusIs(kInvalid, "length"));
}

TEST(CheckManifest, NamesTheFieldThatIsWrong) {
  TestRandom random(9);
  const wire::Manifest hashed = BuildHashed(Words(50), Options(64), random)->manifest();
  const wire::Manifest dense = BuildDense(Numbers(50), Options(64), random)->manifest();
  SHOAL_ASSERT_OK(CheckManifest(hashed));
  SHOAL_ASSERT_OK(CheckManifest(dense));
  struct Bad {
    const char* message;
    const wire::Manifest& from;
    std::function<void(wire::Manifest&)> change;
  };
  const std::vector<Bad> cases = {
      {"name", hashed, [](auto& m) { m.set_name(""); }},
      {"name", hashed, [](auto& m) { m.set_name("a\nb"); }},
      {"table_id", hashed, [](auto& m) { m.set_table_id("x"); }},
      {"epoch", hashed, [](auto& m) { m.set_epoch(0); }},
      {"created_s", hashed, [](auto& m) { m.set_created_s(m.expires_s()); }},
      {"created_s", hashed, [](auto& m) { m.set_expires_s(~uint64_t{0}); }},
      {"rows:", hashed, [](auto& m) { m.set_rows(0); }},
      {"rows:", hashed, [](auto& m) { m.set_rows(kMaxRows + 1); }},
      {"row_bytes", hashed, [](auto& m) { m.set_row_bytes(0); }},
      {"row_bytes", hashed, [](auto& m) { m.set_row_bytes(kMaxRowBytes + 1); }},
      {"more than", hashed,
       [](auto& m) {
         m.set_rows(kMaxRows);
         m.set_row_bytes(kMaxRowBytes);
       }},
      {"rows_digest", hashed, [](auto& m) { m.clear_rows_digest(); }},
      {"deployment", hashed, [](auto& m) { m.set_deployment("a b"); }},
      {"tables of version 0.1 are not read", hashed, [](auto& m) { m.clear_row_versions(); }},
      {"row_versions", hashed, [](auto& m) { m.mutable_row_versions()->clear_base_digest(); }},
      {"row_versions", hashed, [](auto& m) { m.mutable_row_versions()->clear_previous_digest(); }},
      {"row_versions", hashed, [](auto& m) { m.mutable_row_versions()->clear_recent_digest(); }},
      {"row_versions", hashed,
       [](auto& m) { m.mutable_row_versions()->set_base_rows(kMaxRows + 1); }},
      {"row_versions", hashed,
       [](auto& m) { m.mutable_row_versions()->set_base_bytes(~uint64_t{0}); }},
      {"row_versions", hashed,
       [](auto& m) { m.mutable_row_versions()->set_previous_bytes(~uint64_t{0}); }},
      {"row_versions", hashed,
       [](auto& m) { m.mutable_row_versions()->set_recent_bytes(~uint64_t{0}); }},
      {"incomplete_rows", hashed, [](auto& m) { m.set_incomplete_rows(m.rows() + 1); }},
      {"manifest: query_buckets: 1 buckets", hashed, [](auto& m) { m.set_query_buckets(1); }},
      {"manifest: query_buckets: ", hashed,
       [](auto& m) { m.set_query_buckets(static_cast<uint32_t>(m.rows()) + 1); }},
      {"manifest: query_buckets: 4294967295 buckets", dense,
       [](auto& m) { m.set_query_buckets(~0u); }},
      {"have up to 1025 rows each, and 1024 is the most; at least 3 buckets do", hashed,
       [](auto& m) {
         m.set_rows(2049);
         m.set_query_buckets(2);
       }},
      {"layout", hashed, [](auto& m) { m.clear_layout(); }},
      {"hash_seed", hashed, [](auto& m) { m.mutable_hashed()->set_hash_seed("short"); }},
      {"buckets", hashed, [](auto& m) { m.mutable_hashed()->set_buckets(0); }},
      {"buckets", hashed, [](auto& m) { m.mutable_hashed()->set_buckets(~0u); }},
      {"placement_digest", hashed, [](auto& m) { m.mutable_hashed()->clear_placement_digest(); }},
      {"records", hashed, [](auto& m) { m.set_records(1 << 20); }},
      {"records", dense, [](auto& m) { m.set_records(0); }},
      {"records", dense, [](auto& m) { m.set_records(m.records() + 100); }},
      {"records", dense, [](auto& m) { m.set_records(~uint64_t{0}); }},
      {"records_per_row", dense, [](auto& m) { m.mutable_dense()->set_records_per_row(0); }},
      {"records_per_row", dense,
       [](auto& m) { m.mutable_dense()->set_records_per_row(~uint64_t{0}); }},
      {"value_bytes", dense, [](auto& m) { m.mutable_dense()->set_value_bytes(~0u); }},
      {"value_bytes", dense,
       [](auto& m) {
         m.mutable_dense()->set_value_bytes(0);
         m.mutable_dense()->set_length_bytes(0);
       }},
      {"length_bytes", dense, [](auto& m) { m.mutable_dense()->set_length_bytes(3); }},
      {"length_bytes", dense,
       [](auto& m) {
         m.set_row_bytes(1024);
         m.mutable_dense()->set_length_bytes(1);
         m.mutable_dense()->set_value_bytes(256);
       }},
  };
  for (const Bad& bad : cases) {
    wire::Manifest manifest = bad.from;
    bad.change(manifest);
    EXPECT_THAT(CheckManifest(manifest), StatusIs(kInvalid, bad.message));
  }
}

TEST(ManifestDigest, CoversEveryField) {
  TestRandom random(10);
  const wire::Manifest hashed = BuildHashed(Words(50), Options(64), random)->manifest();
  const wire::Manifest dense = BuildDense(Numbers(50), Options(64), random)->manifest();
  const std::vector<std::function<void(wire::Manifest&)>> changes = {
      [](auto& m) { m.set_name("x"); },
      [](auto& m) { m.set_table_id("x"); },
      [](auto& m) { m.set_epoch(99); },
      [](auto& m) { m.set_created_s(1); },
      [](auto& m) { m.set_expires_s(1); },
      [](auto& m) { m.set_records(1); },
      [](auto& m) { m.set_rows(999); },
      [](auto& m) { m.set_row_bytes(65); },
      [](auto& m) { m.set_rows_digest("x"); },
      [](auto& m) { m.set_deployment("x"); },
      [](auto& m) { m.mutable_hashed()->set_hash_seed("x"); },
      [](auto& m) { m.mutable_hashed()->set_buckets(1); },
      [](auto& m) { m.mutable_hashed()->set_placement_digest("x"); },
      [](auto& m) { m.mutable_row_versions()->set_base_rows(9); },
      [](auto& m) { m.mutable_row_versions()->set_base_bytes(9); },
      [](auto& m) { m.mutable_row_versions()->set_base_digest("x"); },
      [](auto& m) { m.mutable_row_versions()->set_previous_bytes(9); },
      [](auto& m) { m.mutable_row_versions()->set_previous_digest("x"); },
      [](auto& m) { m.mutable_row_versions()->set_recent_bytes(9); },
      [](auto& m) { m.mutable_row_versions()->set_recent_digest("x"); },
      [](auto& m) { m.set_incomplete_rows(1); },
      [](auto& m) { m.set_query_buckets(2); },
  };
  // One change for every field of the manifest: `layout` counts as two fields.
  EXPECT_EQ(changes.size(),
            static_cast<size_t>(wire::Manifest::descriptor()->field_count() - 3 +
                                wire::HashedLayout::descriptor()->field_count() +
                                wire::RowVersionLists::descriptor()->field_count()));
  for (size_t i = 0; i < changes.size(); ++i) {
    wire::Manifest changed = hashed;
    changes[i](changed);
    EXPECT_NE(ManifestDigest(changed), ManifestDigest(hashed)) << i;
  }
  const std::vector<std::function<void(wire::DenseLayout&)>> dense_changes = {
      [](auto& l) { l.set_records_per_row(77); },
      [](auto& l) { l.set_value_bytes(77); },
      [](auto& l) { l.set_length_bytes(77); },
  };
  EXPECT_EQ(dense_changes.size(),
            static_cast<size_t>(wire::DenseLayout::descriptor()->field_count()));
  for (size_t i = 0; i < dense_changes.size(); ++i) {
    wire::Manifest changed = dense;
    dense_changes[i](*changed.mutable_dense());
    EXPECT_NE(ManifestDigest(changed), ManifestDigest(dense)) << i;
  }
}

// Each optional field follows all those before it, so that no table of one kind has the digest, and
// so the signature, of a table of another kind.
TEST(ManifestDigest, OptionalFieldsDoNotStandInForEachOther) {
  TestRandom random(10);
  const wire::Manifest none = BuildHashed(Words(50), Options(64), random)->manifest();
  std::set<Digest> digests;
  for (const uint64_t incomplete : {0, 2, 5}) {
    for (const uint32_t buckets : {0, 2, 5}) {
      wire::Manifest manifest = none;
      manifest.set_incomplete_rows(incomplete);
      manifest.set_query_buckets(buckets);
      digests.insert(ManifestDigest(manifest));
    }
  }
  EXPECT_EQ(digests.size(), 9u);
}

// A table without query buckets is what it always was; its buckets are those of the epoch before if
// nothing is said of them.
TEST(TableOptions, QueryBucketsGoFromEpochToEpoch) {
  Signed s(2, 50);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table without, s.Aggregate());
  EXPECT_EQ(without.manifest().content().query_buckets(), 0u);
  TestRandom random(4);
  TableOptions options = Options(64);
  options.query_buckets = 2;
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable first, BuildHashed(Words(50), options, random));
  EXPECT_EQ(first.manifest().query_buckets(), 2u);
  options.query_buckets = 0;
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable none, BuildHashed(Words(50), options, random));
  EXPECT_EQ(none.manifest().query_buckets(), 0u);
  options.query_buckets = 1;
  EXPECT_THAT(BuildHashed(Words(50), options, random),
              StatusIs(kInvalid, "query_buckets: 1 buckets"));
  options.query_buckets = 100;
  EXPECT_THAT(BuildDense(Numbers(50), options, random),
              StatusIs(kInvalid, "query_buckets: 100 buckets for"));

  // The next epoch.
  const PreviousEpoch previous{.content = first, .manifest = {}, .signatures = nullptr};
  options = Options(64);
  options.epoch = first.manifest().epoch() + 1;
  options.previous = &previous;
  options.sign_all_rows = true;
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable next, BuildHashed(Words(50), options, random));
  EXPECT_EQ(next.manifest().query_buckets(), 2u);
  options.keep_rows = true;
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable kept, BuildHashed(Words(50), options, random));
  EXPECT_EQ(kept.manifest().query_buckets(), 2u);
  options.query_buckets = 3;
  EXPECT_THAT(BuildHashed(Words(50), options, random),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "the previous epoch are in 2 query buckets, and these in 3"));
  options.keep_rows = false;
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable other, BuildHashed(Words(50), options, random));
  EXPECT_EQ(other.manifest().query_buckets(), 3u);
}

TEST(RowMap, RefusesAnotherPlacement) {
  TestRandom random(11);
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table,
                             BuildHashed(Words(50), Options(64), random));
  const RowVersions::Lists& lists = table.versions().lists();
  Bytes placement = ToBytes(table.map().placement());
  placement[3] ^= 1;
  EXPECT_THAT(RowMap::CreateUnsigned(table.manifest(), placement, lists),
              StatusIs(kDataLoss, "not the manifest's"));
  placement[3] ^= 1;
  placement.push_back(0);
  EXPECT_THAT(RowMap::CreateUnsigned(table.manifest(), placement, lists),
              StatusIs(kDataLoss, "placement"));
  EXPECT_THAT(RowMap::CreateUnsigned(table.manifest(), {}, lists),
              StatusIs(kDataLoss, "placement"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable dense, BuildDense(Numbers(5), Options(), random));
  EXPECT_THAT(RowMap::CreateUnsigned(dense.manifest(), Bytes(1), dense.versions().lists()),
              StatusIs(kDataLoss, "no placement"));
}

// Manifests come from the network: any mutation is refused or harmless.
TEST(Manifest, MutatedBytesAreNeverAcceptedChanged) {
  const google::protobuf::LogSilencer silence;  // protobuf logs a line for every mutation of text
  Signed s(2, 50);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Table table, s.Aggregate());
  const std::string good = table.manifest().wire().SerializeAsString();
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    bytes[s.random.Below(bytes.size())] ^= static_cast<char>(1 << s.random.Below(8));
    if (s.random.Below(4) == 0) bytes.resize(s.random.Below(bytes.size()));
    wire::SignedManifest parsed;
    if (!parsed.ParseFromString(bytes)) continue;
    const absl::StatusOr<Manifest> manifest = Manifest::Verify(parsed, s.roster, kNowS);
    if (!manifest.ok()) continue;
    EXPECT_EQ(manifest->digest(), table.manifest().digest());
  }
}

}  // namespace
}  // namespace shoal::table
