// Epochs that keep every key's row: what has no room is told to clients, and never reads as absent.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/roster/testing/parties.h"
#include "src/table/differences.h"
#include "src/table/refresh.h"
#include "src/table/row.h"
#include "src/table/table.h"
#include "src/table/testing/signed_table.h"

namespace shoal::table {
namespace {

using ::shoal::roster::testing::kNowS;
using ::shoal::roster::testing::Parties;
using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
using ::testing::Not;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

using Values = std::map<std::string, std::string>;

class KeptRows : public ::testing::Test {
 protected:
  static RecordSet RecordsOf(const Values& values) {
    RecordSet records("kept.tsv");
    uint64_t line = 0;
    for (const auto& [key, value] : values) {
      SHOAL_CHECK(records.Add(AsBytes(key), AsBytes(value), ++line).ok());
    }
    return records;
  }
  static Values Words(size_t n, size_t value_bytes = 20) {
    Values values;
    for (size_t i = 0; i < n; ++i) values[absl::StrCat("word-", i)] = std::string(value_bytes, 'v');
    return values;
  }
  static Values Numbers(size_t n) {
    Values values;
    for (size_t i = 0; i < n; ++i) values[absl::StrCat(i)] = absl::StrCat("value ", i);
    return values;
  }
  static TableOptions Options() { return testing::Options(256); }
  absl::StatusOr<UnsignedTable> Build(const Values& values, const TableOptions& options) {
    return dense_ ? BuildDense(RecordsOf(values), options, random_)
                  : BuildHashed(RecordsOf(values), options, random_);
  }
  UnsignedTable First(const Values& values, uint32_t room_percent = 0) {
    TableOptions options = Options();
    options.room_percent = room_percent;
    return *Build(values, options);
  }
  // The epoch after `before`, without signatures.
  absl::StatusOr<UnsignedTable> Next(const UnsignedTable& before, const Values& values,
                                     bool keep_rows) {
    const PreviousEpoch previous{.content = before, .manifest = {}, .signatures = nullptr};
    TableOptions options = Options();
    options.epoch = before.manifest().epoch() + 1;
    options.previous = &previous;
    options.sign_all_rows = true;
    options.keep_rows = keep_rows;
    return Build(values, options);
  }
  UnsignedTable Kept(const UnsignedTable& before, const Values& values) {
    absl::StatusOr<UnsignedTable> table = Next(before, values, /*keep_rows=*/true);
    SHOAL_CHECK(table.ok());
    SHOAL_EXPECT_OK(table->CheckContent());
    SHOAL_EXPECT_OK(CanRefresh(before.manifest(), table->manifest()));
    return *std::move(table);
  }
  static absl::StatusOr<std::optional<Bytes>> Find(const UnsignedTable& table,
                                                   const std::string& key) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t row, table.map().RowOf(AsBytes(key)));
    return table.map().Find(row, table.row(row), AsBytes(key));
  }
  // Every record is found or displaced; no key of the table reads as absent. Returns the displaced.
  static std::vector<std::string> ExpectNoneAbsent(const UnsignedTable& table,
                                                   const Values& values) {
    std::vector<std::string> displaced;
    for (const auto& [key, value] : values) {
      const auto found = Find(table, key);
      if (absl::IsUnavailable(found.status())) {
        displaced.push_back(key);
        continue;
      }
      EXPECT_THAT(found, IsOk()) << key;
      if (!found.ok()) continue;
      EXPECT_EQ(*found, ToBytes(AsBytes(value))) << key;
    }
    const auto listed = DisplacedRecords(RecordsOf(values), table);
    EXPECT_THAT(listed, IsOk());
    EXPECT_EQ(listed->size(), displaced.size());
    return displaced;
  }

  TestRandom random_{5};
  bool dense_ = false;
};

// Thirty epochs, each with another seventh of the values longer or shorter, keys that come and keys
// that go.
TEST_F(KeptRows, EveryKeyStaysInItsRowOrItsRowSaysThatItHasNoRoom) {
  Values values = Words(600);
  UnsignedTable table = First(values, 10);
  EXPECT_LT(table.fill(), 0.9) << "no room was left";
  std::map<std::string, uint64_t> rows;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = absl::StrCat("word-", i);
    rows[key] = *table.map().RowOf(AsBytes(key));
  }
  size_t most_displaced = 0;
  for (int epoch = 2; epoch <= 31; ++epoch) {
    for (auto& [key, value] : values) {
      if (random_.Below(7) == 0) value = std::string(5 + random_.Below(31), 'a');
    }
    for (int i = 0; i < 5; ++i) {
      values.erase(std::next(values.begin(), static_cast<ptrdiff_t>(random_.Below(values.size()))));
      values[absl::StrCat("word-", 600 + random_.Below(400))] = "new";
    }
    table = Kept(table, values);
    for (const auto& [key, row] : rows) ASSERT_EQ(*table.map().RowOf(AsBytes(key)), row);
    const std::vector<std::string> displaced = ExpectNoneAbsent(table, values);
    EXPECT_EQ(table.manifest().records() + displaced.size(), values.size());
    most_displaced = std::max(most_displaced, displaced.size());
    // Keys that are not in the table are proved absent by every row that only marks keys.
    size_t unknown = 0;
    for (int i = 0; i < 200; ++i) {
      const auto found = Find(table, absl::StrCat("absent-", i));
      unknown += absl::IsUnavailable(found.status());
      EXPECT_FALSE(found.ok() && found->has_value());
    }
    EXPECT_EQ(unknown, 0u);
  }
  EXPECT_GT(most_displaced, 5u) << "no row was full: the test shows little";

  // A new term: every key has room, and the rows are others.
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable term, Next(table, values, /*keep_rows=*/false));
  SHOAL_EXPECT_OK(term.CheckContent());
  EXPECT_EQ(term.manifest().incomplete_rows(), 0u);
  EXPECT_EQ(term.manifest().epoch(), table.manifest().epoch() + 1);
  EXPECT_TRUE(ExpectNoneAbsent(term, values).empty());
  EXPECT_THAT(CanRefresh(table.manifest(), term.manifest()), Not(IsOk()));
}

TEST_F(KeptRows, TheSameKeysAreDisplacedWhileNothingChanges) {
  Values values = Words(300);
  // Room for marks, but not for a record.
  const UnsignedTable one = First(values, 5);
  for (int i = 0; i < 20; ++i) values[absl::StrCat("new-", i)] = std::string(25, 'n');
  const UnsignedTable two = Kept(one, values);
  const std::vector<std::string> displaced = ExpectNoneAbsent(two, values);
  ASSERT_FALSE(displaced.empty());
  // No key that was there gives way to a new one.
  for (const std::string& key : displaced) EXPECT_EQ(key.substr(0, 4), "new-");
  const UnsignedTable three = Kept(two, values);
  EXPECT_TRUE(std::ranges::equal(three.bytes(), two.bytes()));
  // Once there is room again, the key is known, in the same term.
  for (auto& [key, value] : values) value = "short";
  EXPECT_TRUE(ExpectNoneAbsent(Kept(three, values), values).empty());
}

TEST_F(KeptRows, ARecordLongerThanARowIsDisplaced) {
  Values values = Words(300);
  const UnsignedTable one = First(values);
  values["word-7"] = std::string(1000, 'x');
  const UnsignedTable two = Kept(one, values);
  EXPECT_THAT(Find(two, "word-7"), StatusIs(kUnavailable, "has no room for all of its keys"));
  EXPECT_EQ(ExpectNoneAbsent(two, values), std::vector<std::string>{"word-7"});
  SHOAL_ASSERT_OK_AND_ASSIGN(const Differences differences, Compare(one, two));
  EXPECT_EQ(differences.keys_displaced, 1u);
  EXPECT_EQ(differences.keys_removed, 0u);
  values["word-7"] = "short";
  SHOAL_ASSERT_OK_AND_ASSIGN(const Differences back, Compare(two, Kept(two, values)));
  EXPECT_EQ(back.keys_back, 1u);
  EXPECT_EQ(back.keys_added, 0u);
}

// Records that are no longer than marks: their row may lack any key.
TEST_F(KeptRows, ARowWithoutRoomForMarksProvesNothing) {
  Values values;
  for (int i = 0; i < 26 * 26; ++i) {
    values[std::string{static_cast<char>('a' + i / 26), static_cast<char>('a' + i % 26)}] = "";
  }
  TableOptions options = Options();
  options.row_bytes = 32;
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable one, Build(values, options));
  // A key of a row that is full to the last byte.
  std::string changed;
  for (uint64_t row = 0; row < one.rows() && changed.empty(); ++row) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const HashedRow decoded, DecodeHashedRow(one.row(row)));
    if (decoded.records.size() == 8) changed = ToString(decoded.records[3].key);
  }
  ASSERT_FALSE(changed.empty());
  values[changed] = "longer";
  const PreviousEpoch previous{.content = one, .manifest = {}, .signatures = nullptr};
  options.epoch = 2;
  options.previous = &previous;
  options.sign_all_rows = options.keep_rows = true;
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable two, Build(values, options));
  SHOAL_EXPECT_OK(two.CheckContent());
  ASSERT_EQ(two.manifest().incomplete_rows(), 1u);
  EXPECT_FALSE(ExpectNoneAbsent(two, values).empty());
  const uint64_t row = *two.map().RowOf(AsBytes(changed));
  int unknown = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string key = absl::StrCat("absent ", i);
    const bool here = *two.map().RowOf(AsBytes(key)) == row;
    unknown += here;
    if (here) {
      EXPECT_THAT(Find(two, key), StatusIs(kUnavailable, "has no room"));
    } else {
      SHOAL_EXPECT_OK(Find(two, key));
    }
  }
  EXPECT_GT(unknown, 0);
}

TEST_F(KeptRows, DenseSlotsSayThatTheirValueHasNoRoom) {
  dense_ = true;
  Values values = Numbers(100);
  const UnsignedTable one = First(values, 20);
  EXPECT_EQ(one.manifest().dense().value_bytes(), 10u) << "room for a fifth of 8 bytes";
  values["7"] = "ten bytes!";
  values["8"] = "eleven byte";
  values["9"] = "";
  const UnsignedTable two = Kept(one, values);
  EXPECT_EQ(two.manifest().records(), 100u);
  EXPECT_EQ(two.manifest().incomplete_rows(), 1u);
  EXPECT_EQ(ExpectNoneAbsent(two, values), std::vector<std::string>{"8"});
  SHOAL_ASSERT_OK_AND_ASSIGN(const Differences differences, Compare(one, two));
  EXPECT_EQ(differences.keys_displaced, 1u);
  EXPECT_EQ(differences.values_changed, 2u);
  values["8"] = "back";
  EXPECT_TRUE(ExpectNoneAbsent(Kept(two, values), values).empty());
  values.erase("99");
  EXPECT_THAT(Next(two, values, true),
              StatusIs(kFailedPrecondition, "has 100 records, and these are 99"));
}

TEST_F(KeptRows, DenseSlotsThatCannotSaySoAreNotKept) {
  dense_ = true;
  Values values;
  for (int i = 0; i < 50; ++i) values[absl::StrCat(i)] = "four";
  const UnsignedTable one = First(values);
  values["3"] = "5five";
  EXPECT_THAT(Next(one, values, true),
              StatusIs(kFailedPrecondition, "5 bytes, and its slot is for 4 and cannot say"));
  values["3"] = "3ee";
  EXPECT_THAT(Next(one, values, true), StatusIs(kFailedPrecondition, "cannot say"));
  values["3"] = "FOUR";
  EXPECT_TRUE(ExpectNoneAbsent(Kept(one, values), values).empty());
}

TEST_F(KeptRows, RefusesWhatCannotBeKept) {
  const Values values = Words(100);
  const UnsignedTable one = First(values);
  const PreviousEpoch previous{.content = one, .manifest = {}, .signatures = nullptr};
  TableOptions options = Options();
  options.epoch = 2;
  options.keep_rows = options.sign_all_rows = true;
  EXPECT_THAT(Build(values, options), StatusIs(kInvalid, "of a previous epoch"));
  options.previous = &previous;
  options.room_percent = 10;
  EXPECT_THAT(Build(values, options), StatusIs(kInvalid, "room is left where keys are placed"));
  options.room_percent = 0;
  options.row_bytes = 257;
  EXPECT_THAT(Build(values, options), StatusIs(kFailedPrecondition, "have 256 bytes"));
  options.row_bytes = 0;
  SHOAL_EXPECT_OK(Build(values, options));
  EXPECT_THAT(BuildDense(RecordsOf(Numbers(10)), options, random_),
              StatusIs(kFailedPrecondition, "the other layout"));
  options = Options();
  options.room_percent = kMaxRoomPercent + 1;
  EXPECT_THAT(Build(values, options), StatusIs(kInvalid, "91 percent are more than 90"));
}

TEST_F(KeptRows, RoomIsLeftInEveryRow) {
  const Values values = Words(2000);
  for (const uint32_t percent : {0u, 25u, 50u}) {
    const UnsignedTable table = First(values, percent);
    const size_t most = 256 - 256 * percent / 100;
    for (uint64_t row = 0; row < table.rows(); ++row) {
      size_t bytes = 0;
      SHOAL_ASSERT_OK_AND_ASSIGN(const HashedRow decoded, DecodeHashedRow(table.row(row)));
      for (const RecordView& record : decoded.records) {
        bytes += HashedRecordBytes(record.key.size(), record.value.size());
      }
      ASSERT_LE(bytes, most);
    }
    EXPECT_GT(table.fill(), 0.9 * (1 - 0.01 * percent) - 0.01);
  }
}

// `table` under another manifest, which fits its rows but for what `change` does.
UnsignedTable WithManifest(const UnsignedTable& table,
                           const std::function<void(wire::Manifest&)>& change) {
  wire::Manifest manifest = table.manifest();
  change(manifest);
  return *UnsignedTable::Create(manifest, ToBytes(table.bytes()), ToBytes(table.map().placement()),
                                table.versions().lists());
}

// The manifest says how many rows are incomplete: a client that does not know of incomplete rows
// comes to another digest of the manifest, and refuses the table.
TEST_F(KeptRows, TheManifestSaysThatRowsAreIncomplete) {
  Values values = Words(300);
  const UnsignedTable one = First(values);
  for (int i = 0; i < 50; ++i) values[absl::StrCat("new-", i)] = std::string(20, 'n');
  const UnsignedTable table = Kept(one, values);
  const uint64_t incomplete = table.manifest().incomplete_rows();
  ASSERT_GT(incomplete, 1u);
  wire::Manifest unaware = table.manifest();
  unaware.clear_incomplete_rows();
  EXPECT_NE(ManifestDigest(unaware), ManifestDigest(table.manifest()));

  const Parties parties(2, random_);
  ThreadPool pool(1);
  for (const uint64_t claimed : {uint64_t{0}, incomplete - 1, incomplete + 1}) {
    const UnsignedTable lies =
        WithManifest(table, [&](wire::Manifest& m) { m.set_incomplete_rows(claimed); });
    const std::string message =
        absl::StrCat(incomplete, " rows are incomplete, the manifest says ", claimed);
    EXPECT_THAT(lies.CheckContent(), StatusIs(kDataLoss, message));
    EXPECT_THAT(SignTable(lies, nullptr, parties.roster(), parties.keys(1).bls(), pool),
                StatusIs(kDataLoss, message));
  }
  // A client refuses an incomplete row of a table that is said to have none, whatever it asked.
  const UnsignedTable none = WithManifest(table, [](auto& m) { m.clear_incomplete_rows(); });
  size_t refused = 0;
  for (const auto& [key, value] : values) {
    const auto found = Find(none, key);
    if (found.ok()) {
      EXPECT_TRUE(found->has_value());
    } else {
      EXPECT_THAT(found, StatusIs(kDataLoss, "by the manifest none of the table is"));
      ++refused;
    }
  }
  EXPECT_GT(refused, incomplete);
}

// The parties sign a chain of such epochs, and clients verify the rows of each.
TEST_F(KeptRows, AreSignedAndServed) {
  const Parties parties(2, random_);
  const roster::Roster roster = parties.roster();
  ThreadPool pool(2);
  std::optional<PreviousEpoch> previous;
  Values values = Words(200);
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    TableOptions options = Options();
    options.epoch = epoch;
    options.previous = previous.has_value() ? &*previous : nullptr;
    options.keep_rows = epoch > 1;
    SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table, Build(values, options));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const Table signed_table,
        AggregateTable(table, roster,
                       testing::SharesOf(table, options.previous, parties, roster, pool), kNowS,
                       random_, pool));
    EXPECT_EQ(ExpectNoneAbsent(table, values).empty(), epoch == 1);
    for (uint64_t row = 0; row < table.rows(); ++row) {
      Bytes answer(signed_table.answer_bytes());
      signed_table.CopyAnswer(row, answer);
      SHOAL_EXPECT_OK(signed_table.map().VerifyAnswer(roster, {row, answer}));
    }
    previous = signed_table.AsPrevious();
    for (int i = 0; i < 30; ++i) values[absl::StrCat("new-", epoch, "-", i)] = "new";
  }
}

}  // namespace
}  // namespace shoal::table
