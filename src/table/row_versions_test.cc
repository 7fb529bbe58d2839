#include "src/table/row_versions.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::table {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

RowVersion At(uint64_t epoch) { return {.epoch = epoch, .rows_digest = {uint8_t(epoch), 7}}; }

// A list of `rows` rows, of which each of `epochs` changed about `share`; no other row is named.
VersionList RandomList(uint64_t rows, double share, uint64_t epochs, TestRandom& random) {
  std::vector<RowVersion> versions = {{}};
  for (uint64_t epoch = 1; epoch <= epochs; ++epoch) versions.push_back(At(epoch));
  std::vector<uint16_t> class_of(rows, 0);
  const auto limit = static_cast<uint64_t>(share * 1e9);
  for (uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    for (uint16_t& c : class_of) {
      if (random.Below(1'000'000'000) < limit) c = static_cast<uint16_t>(epoch);
    }
  }
  return VersionList(std::move(versions), std::move(class_of));
}

// A manifest of which nothing but what RowVersions reads is set.
wire::Manifest ManifestOf(const RowVersions& versions) {
  wire::Manifest manifest;
  manifest.set_epoch(versions.epoch());
  manifest.set_rows(versions.rows());
  const Digest digest = At(versions.epoch()).rows_digest;
  manifest.set_rows_digest(ToString(digest));
  *manifest.mutable_row_versions() = versions.Describe();
  return manifest;
}

TEST(VersionList, IsItsEncoding) {
  TestRandom random(1);
  for (const double share : {0.0, 0.001, 0.01, 0.3, 0.6, 0.9, 1.0}) {
    for (const uint64_t rows : {1u, 2u, 7u, 1000u}) {
      for (const uint64_t epochs : {1u, 8u}) {
        const VersionList list = RandomList(rows, share, epochs, random);
        const Bytes bytes = list.Encode();
        EXPECT_LE(bytes.size(), MaxVersionListBytes(rows));
        SHOAL_ASSERT_OK_AND_ASSIGN(const VersionList decoded,
                                   VersionList::Decode(bytes, {.rows = rows, .last = epochs}));
        for (uint64_t row = 0; row < rows; ++row) EXPECT_EQ(decoded.of(row), list.of(row));
        EXPECT_EQ(decoded.Encode(), bytes);
      }
    }
  }
  EXPECT_EQ(VersionList().Encode(), Bytes({0, 0}));
  SHOAL_EXPECT_OK(VersionList::Decode(Bytes{0, 0}, {}));
}

// The first row of eight changed in epoch 3: by hand, from the comment in row_versions.h.
TEST(VersionList, HasTheBytesThatItsCommentSays) {
  std::vector<uint16_t> class_of = {0, 0, 0, 0, 0, 1, 0, 0};
  const VersionList list({{}, At(3)}, class_of);
  Bytes expected = {8, 2, 0, 0, 7, 3};
  const Digest digest = At(3).rows_digest;
  Append(expected, digest);
  expected.push_back(1);
  // k = 2: 128 * 4 <= 123 * 8 < 128 * 8. The gap 5 is one zero, a one, and 1 in two bits.
  expected.push_back(0b00000110);
  EXPECT_EQ(list.Encode(), expected);
}

// At most ten bits a changed row where one row in 100 changes, and the entropy at any share but for
// 0.05 bit. Where one in 1,000 changes, no code of the set has fewer than 11.4.
TEST(VersionList, TakesAboutItsEntropy) {
  TestRandom random(2);
  constexpr uint64_t kRows = 1'000'000;
  for (const double share : {0.1, 0.01, 0.003, 0.001}) {
    const VersionList list = RandomList(kRows, share, 1, random);
    uint64_t changed = 0;
    for (uint64_t row = 0; row < kRows; ++row) changed += list.of(row).epoch != 0;
    const double bits =
        8.0 * static_cast<double>(list.Encode().size()) / static_cast<double>(changed);
    const double entropy = (-share * std::log2(share) - (1 - share) * std::log2(1 - share)) / share;
    RecordProperty("bits_1_in_" + std::to_string(std::lround(1 / share)), std::to_string(bits));
    // The head of a list takes 45 bytes.
    EXPECT_LT(bits, entropy + 0.1 + 8 * 45 / static_cast<double>(changed)) << share;
    if (share < 0.003) continue;
    EXPECT_LT(bits, 10) << share;
  }
  // A block of eight epochs.
  const VersionList block = RandomList(kRows, 0.01, 8, random);
  uint64_t changed = 0;
  for (uint64_t row = 0; row < kRows; ++row) changed += block.of(row).epoch != 0;
  EXPECT_LT(8.0 * static_cast<double>(block.Encode().size()), 10.0 * static_cast<double>(changed));
}

TEST(VersionList, RefusesEveryOtherEncoding) {
  const Digest digest = At(3).rows_digest;
  const auto list = [&](std::vector<int> head, std::vector<int> tail) {
    Bytes out(head.begin(), head.end());
    Append(out, digest);
    out.insert(out.end(), tail.begin(), tail.end());
    return out;
  };
  const VersionList::Bounds bounds = {.rows = 8, .after = 0, .last = 3};
  SHOAL_EXPECT_OK(VersionList::Decode(list({8, 2, 0, 0, 7, 3}, {1, 0b110}), bounds));
  const std::vector<Bytes> bad = {
      {},
      {8},
      {8, 2},
      {8, 2, 0},
      list({8, 2, 0, 0, 7, 3}, {1}),               // the row is missing
      list({8, 2, 0, 0, 7, 3}, {1, 0b110, 0}),     // leftovers
      list({8, 2, 0, 0, 7, 3}, {1, 0b10110}),      // a padding bit
      list({8, 2, 0, 0, 7, 3}, {1, 0b10000}),      // beyond the last row
      list({8, 2, 0, 0, 7, 3}, {1, 0b0}),          // zeros without an end
      list({0x88, 0, 2, 0, 0, 7, 3}, {1, 0b110}),  // a long varint
      list({9, 2, 0, 0, 8, 3}, {1, 0b110}),        // another number of rows
      list({8, 3, 0, 0, 7, 3}, {1, 0b110}),        // a class is missing
      list({8, 2, 1, 0, 7, 3}, {1, 0b110}),        // the listed class is the largest
      list({8, 2, 2, 0, 7, 3}, {1, 0b110}),        // no such class
      list({8, 2, 0, 0, 6, 3}, {1, 0b110}),        // a row of no class
      list({8, 2, 0, 0, 8, 3}, {1, 0b110}),        // too many rows
      list({8, 2, 0, 0, 7, 4}, {1, 0b110}),        // an epoch after the last
      list({8, 2, 0, 0, 7, 3}, {0, 0b110}),        // a class without rows
      list({8, 1, 0, 0, 8}, {}),                   // bits for no class
      // Class 3 is there twice.
      [&] {
        Bytes twice = list({8, 3, 0, 0, 6, 3}, {1, 0});
        Append(twice, digest);
        twice.insert(twice.end(), {1, 0b110, 0b110});
        return twice;
      }(),
      // A row of two classes: rows 5 and 5.
      [&] {
        Bytes twice = list({8, 3, 0, 0, 6, 2}, {1, 1});
        Append(twice, digest);
        twice.insert(twice.end(), {1, 0b01100110, 0});
        return twice;
      }(),
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_THAT(VersionList::Decode(bad[i], bounds), StatusIs(kInvalid, "list of rows' epochs"))
        << i;
  }
  const Bytes good = list({8, 2, 0, 0, 7, 3}, {1, 0b110});
  EXPECT_THAT(VersionList::Decode(good, {.rows = 8, .after = 3, .last = 4}),
              StatusIs(kInvalid, "not one of its own"));
  EXPECT_THAT(VersionList::Decode(good, {.rows = 8, .last = 3, .names_every_row = true}),
              StatusIs(kInvalid, "not one of its own"));
  // Numbers at the edge of what fits.
  Bytes huge(9, 0xff);
  huge.push_back(1);
  EXPECT_FALSE(VersionList::Decode(huge, {.rows = ~uint64_t{0}}).ok());
  huge.insert(huge.end(), {1, 0});
  EXPECT_FALSE(VersionList::Decode(huge, {.rows = ~uint64_t{0}, .last = ~uint64_t{0}}).ok());
}

TEST(VersionList, MutatedBytesAreRefusedOrCanonical) {
  TestRandom random(3);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t rows = 1 + random.Below(60);
    Bytes bytes = RandomList(rows, 0.2, 3, random).Encode();
    const size_t at = random.Below(bytes.size());
    bytes[at] = static_cast<uint8_t>(bytes[at] ^ 1 << random.Below(8));
    if (random.Below(4) == 0) bytes.resize(random.Below(bytes.size() + 1));
    const auto list = VersionList::Decode(bytes, {.rows = rows, .last = 3});
    if (!list.ok()) continue;
    EXPECT_EQ(list->Encode(), bytes);
  }
}

// Many epochs: the lists say at each what a plain map says, and what a client makes of the base
// that it has and the block that it fetches is the next base.
TEST(RowVersions, FollowATableOverItsEpochs) {
  TestRandom random(4);
  std::vector<RowVersion> expected(200, At(3));
  RowVersions versions = RowVersions::First(At(3), expected.size());
  Bytes base;
  uint64_t derived = 0;
  for (uint64_t epoch = 4; epoch <= 120; ++epoch) {
    if (random.Below(20) == 0) epoch += random.Below(5);  // given-up epochs
    const uint64_t rows = 150 + random.Below(100);
    std::vector<bool> changed(rows);
    for (uint64_t row = 0; row < rows; ++row) changed[row] = random.Below(30) == 0;
    for (uint64_t row = 0; row < rows; ++row) {
      if (row < expected.size() && !changed[row]) continue;
      if (row >= expected.size()) expected.emplace_back();
      expected[row] = At(epoch);
    }
    expected.resize(rows);
    const RowVersions next =
        versions.Next(At(epoch), rows, [&](uint64_t row) { return changed[row]; });
    EXPECT_EQ(next.epoch(), epoch);
    ASSERT_EQ(next.rows(), rows);
    for (uint64_t row = 0; row < rows; ++row) ASSERT_EQ(next.of(row), expected[row]) << epoch;
    SHOAL_ASSERT_OK_AND_ASSIGN(const RowVersions read,
                               RowVersions::Create(ManifestOf(next), next.lists()));
    for (uint64_t row = 0; row < rows; ++row) ASSERT_EQ(read.of(row), expected[row]);

    const Bytes now_base = ToBytes(next.list(RowVersions::Part::kBase));
    if (now_base != base) {
      const auto made = DeriveBase(base, ManifestOf(next), next.lists().previous);
      if (made.ok() && *made == now_base) ++derived;
      base = now_base;
    }
    versions = next;
  }
  EXPECT_GE(derived, 10u);
}

TEST(RowVersions, NoRowIsOlderThanItsBound) {
  RowVersions versions = RowVersions::First(At(1), 10);
  const auto none = [](uint64_t) { return false; };
  versions = versions.Next(At(kMaxRowAge), 10, none);
  EXPECT_EQ(versions.changed_rows(), 0u);
  versions = versions.Next(At(kMaxRowAge + 1), 10, none);
  EXPECT_TRUE(versions.all_changed());
  SHOAL_EXPECT_OK(RowVersions::Create(ManifestOf(versions), versions.lists()));
  // Whatever the epochs between.
  versions = RowVersions::First(At(1), 10).Next(At(uint64_t{1} << 60), 10, none);
  EXPECT_TRUE(versions.all_changed());
  SHOAL_EXPECT_OK(RowVersions::Create(ManifestOf(versions), versions.lists()));
}

TEST(RowVersions, RefusesListsThatAreNotTheManifests) {
  TestRandom random(5);
  RowVersions versions = RowVersions::First(At(1), 100);
  for (uint64_t epoch = 2; epoch <= 20; ++epoch) {
    versions = versions.Next(At(epoch), 100, [&](uint64_t) { return random.Below(20) == 0; });
  }
  const wire::Manifest manifest = ManifestOf(versions);
  for (int part = 0; part < 3; ++part) {
    RowVersions::Lists lists = versions.lists();
    Bytes& list = part == 0 ? lists.base : part == 1 ? lists.previous : lists.recent;
    list.back() ^= 1;
    EXPECT_THAT(RowVersions::Create(manifest, lists), StatusIs(kDataLoss, "not the manifest's"));
    // With a digest to match, they still have to fit together.
    list = VersionList().Encode();
    wire::Manifest other = manifest;
    const Digest digest = VersionListDigest(list);
    wire::RowVersionLists& described = *other.mutable_row_versions();
    (part == 0   ? *described.mutable_base_digest()
     : part == 1 ? *described.mutable_previous_digest()
                 : *described.mutable_recent_digest()) = ToString(digest);
    EXPECT_THAT(RowVersions::Create(other, lists), StatusIs(kInvalid, "list of rows' epochs"));
  }
  // A block that names nothing contradicts a base that has rows of the block.
  RowVersions::Lists lists = versions.lists();
  lists.previous = VersionList({{}}, std::vector<uint16_t>(100, 0)).Encode();
  wire::Manifest other = manifest;
  const Digest digest = VersionListDigest(lists.previous);
  other.mutable_row_versions()->set_previous_digest(ToString(digest));
  EXPECT_THAT(RowVersions::Create(other, lists), StatusIs(kInvalid, "contradicts"));
  // The newest rows are the manifest's.
  other = manifest;
  other.set_rows_digest(std::string(32, 'x'));
  EXPECT_THAT(RowVersions::Create(other, versions.lists()),
              StatusIs(kInvalid, "the epoch's rows are not the manifest's"));
}

}  // namespace
}  // namespace shoal::table
