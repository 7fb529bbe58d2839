#include "src/pir/sets/half_sets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/sanitized.h"
#include "src/base/testing/test_random.h"

namespace shoal::pir::sets {
namespace {

using testing::StatusIs;
using testing::TestRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Bytes TableOf(uint64_t rows, uint32_t record_bytes) {
  TestRandom random(rows);
  Bytes records(rows * record_bytes);
  random.Fill(records);
  return records;
}

void AddAll(const SetShape& shape, BytesView records, HintTable& table) {
  for (uint32_t c = 0; c < shape.chunks; ++c) {
    const uint64_t first = c * shape.chunk_rows() * shape.record_bytes;
    table.AddChunk(c, records.subspan(first, std::min(records.size() - first,
                                                      shape.chunk_rows() * shape.record_bytes)));
  }
}

// What Ask draws: the coin, and the offset that stands for the row.
class Tape final : public RandomSource {
 public:
  explicit Tape(uint64_t word) : word_(word) {}
  void Fill(MutableBytes out) override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(word_ >> (8 * (i % 8)));
  }

 private:
  const uint64_t word_;
};

// All sets of a small table: what they say is taken from the bits of a number, which tests count
// up.
class AllSets final : public SetSource {
 public:
  AllSets(const SetShape& shape, uint32_t bits) : shape_(shape), bits_(bits) {}
  void OfSet(uint32_t set, std::span<Choice> out) const override {
    for (uint32_t c = 0; c < out.size(); ++c) out[c] = Of(set, c);
  }
  void OfChunk(uint32_t chunk, uint32_t first, std::span<Choice> out) const override {
    for (uint32_t i = 0; i < out.size(); ++i) out[i] = Of(first + i, chunk);
  }
  static uint32_t BitsOf(const SetShape& shape) {
    return static_cast<uint32_t>(shape.sets() * shape.chunks * (1 + shape.offset_bits));
  }

 private:
  Choice Of(uint32_t set, uint32_t chunk) const {
    const uint32_t each = 1 + shape_.offset_bits;
    const uint32_t bits = bits_ >> (each * (shape_.chunks * set + chunk));
    return {.offset = static_cast<uint16_t>(bits >> 1 & (shape_.chunk_rows() - 1)),
            .bit = static_cast<uint16_t>(bits & 1)};
  }
  const SetShape shape_;
  const uint32_t bits_;
};

// Goes through all that can happen in the first queries to a small table: each row asked for, each
// outcome of the draws. Counts the server's views of each sequence of rows.
class Enumeration {
 public:
  Enumeration(const SetShape& shape, uint32_t queries)
      : shape_(shape), queries_(kSanitized ? 1 : queries), query_bits_(8 * shape.query_bytes()) {
    for (uint64_t row = 0; row < shape.rows; ++row) records_[row] = static_cast<uint8_t>(1 << row);
  }

  // Each sequence of rows has each sequence of queries equally often, for all sets together.
  void ExpectUniform() {
    for (uint32_t sets = 0; sets < 1u << AllSets::BitsOf(shape_); ++sets) {
      const AllSets source(shape_, sets);
      HintTable table(shape_, &source);
      for (uint32_t c = 0; c < shape_.chunks; ++c) {
        const uint64_t first = c * shape_.chunk_rows();
        table.AddChunk(c, BytesView(records_).subspan(
                              first, std::min(shape_.chunk_rows(), shape_.rows - first)));
      }
      Count(table, 0, 0, queries_);
    }
    EXPECT_EQ(wrong_, 0u);
    const uint32_t bits = shape_.chunks * (1 + shape_.offset_bits);
    const uint64_t outcomes = uint64_t{1}
                              << (AllSets::BitsOf(shape_) + queries_ * (1 + shape_.offset_bits));
    const uint64_t views = uint64_t{1} << (queries_ * bits);
    uint64_t sequences = 1;
    for (uint32_t i = 0; i < queries_; ++i) sequences *= shape_.rows;
    EXPECT_EQ(seen_.size(), sequences * views);
    for (const auto& [which, times] : seen_) {
      ASSERT_EQ(times * views, outcomes) << "rows " << which.first << ", view " << which.second;
    }
  }

 private:
  void Count(const HintTable& table, uint64_t rows, uint64_t view, uint32_t left) {
    if (left == 0) {
      ++seen_[{rows, view}];
      return;
    }
    std::array<Choice, 2> space;
    const std::span<Choice> query = std::span(space).first(shape_.chunks);
    for (uint64_t row = 0; row < shape_.rows; ++row) {
      for (uint64_t draw = 0; draw < 2 * shape_.chunk_rows(); ++draw) {
        HintTable next = table;
        // Bit 63 is the coin, the lowest ones the offset.
        Tape random((draw & 1) << 63 | draw >> 1);
        std::array<uint8_t, 1> zeros, ones, record, sent;
        wrong_ += !next.Ask(row, random, query).ok();
        AnswerQuery(shape_, BytesView(records_).first(shape_.rows), query, zeros, ones);
        const bool held = next.Finish(zeros, ones, record);
        wrong_ += record[0] != (held ? records_[row] : 0);
        EncodeQuery(shape_, query, sent);
        Count(next, rows * shape_.rows + row, view << query_bits_ | sent[0], left - 1);
      }
    }
  }

  const SetShape shape_;
  const uint32_t queries_;
  const uint64_t query_bits_;
  std::array<uint8_t, 4> records_ = {};
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> seen_;  // by rows and by views
  uint64_t wrong_ = 0;
};

// The theorem of docs/half-sets.md for small tables: whatever rows are asked for, each sequence of
// queries that a server can see is the outcome of as many choices of all sets, coins and offsets as
// any other. Two chunks of two rows have hints that are asked for a row of their half, for the row
// beside, and rows that no hint holds; three rows leave the last chunk to be filled up; three
// queries look at what became of the second one.
TEST(HalfSetsTest, AServersViewsAreUniformWhateverIsAsked) {
  Enumeration(
      {.rows = 4, .record_bytes = 1, .offset_bits = 1, .chunks = 2, .hints = 2, .backups = 2}, 2)
      .ExpectUniform();
}
TEST(HalfSetsTest, AServersViewsAreUniformIfTheLastChunkIsFilledUp) {
  Enumeration(
      {.rows = 3, .record_bytes = 1, .offset_bits = 1, .chunks = 2, .hints = 1, .backups = 2}, 2)
      .ExpectUniform();
}
TEST(HalfSetsTest, AServersViewsOfThreeQueriesAreUniform) {
  Enumeration(
      {.rows = 2, .record_bytes = 1, .offset_bits = 0, .chunks = 2, .hints = 2, .backups = 3}, 3)
      .ExpectUniform();
  Enumeration(
      {.rows = 2, .record_bytes = 1, .offset_bits = 1, .chunks = 1, .hints = 1, .backups = 3}, 3)
      .ExpectUniform();
}

// One hint would serve both, and the server would see which chunk both rows are in.
TEST(HalfSetsTest, NothingIsAskedBeforeTheQueryBeforeIsFinished) {
  constexpr SetShape shape = {
      .rows = 4, .record_bytes = 1, .offset_bits = 1, .chunks = 2, .hints = 2, .backups = 3};
  const AllSets sets(shape, 0b1101'0010'0111'1000'0011);
  HintTable table(shape, &sets);
  TestRandom random(3);
  std::array<Choice, 2> query;
  std::array<uint8_t, 1> some = {}, record;
  SHOAL_ASSERT_OK(table.Ask(1, random, query));
  EXPECT_THAT(table.Ask(1, random, query),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not finished"));
  EXPECT_EQ(table.backups_left(), 2u);
  table.Finish(some, some, record);
  SHOAL_EXPECT_OK(table.Ask(1, random, query));
}

struct SessionCase {
  uint64_t rows;
  uint32_t record_bytes;
  bool at_once;  // whether the table takes all chunks in one call
};
class SessionTest : public ::testing::TestWithParam<SessionCase> {};

// Every row that a hint holds comes back; hints are found as often as the shape promises.
TEST_P(SessionTest, RecordsComeBack) {
  const auto [rows, width, at_once] = GetParam();
  SHOAL_ASSERT_OK_AND_ASSIGN(const SetShape shape, ShapeFor(rows, width, 300));
  EXPECT_GE(shape.chunks * shape.chunk_rows(), rows);
  const Bytes records = TableOf(rows, width);
  TestRandom random(7);
  SecretArray<16> key;
  random.Fill(key.mutable_view());
  const SetFunction sets(key, shape.offset_bits);
  HintTable table(shape, &sets);
  if (at_once) {
    table.AddChunks(0, shape.chunks, records);
  } else {
    AddAll(shape, records, table);
  }
  std::vector<Choice> query(shape.chunks), received(shape.chunks);
  Bytes sent(shape.query_bytes()), zeros(width), ones(width), record(width);
  uint64_t row = 0;
  for (int i = 0; i < 300; ++i) {
    // Few rows again and again, then others.
    row = i < 100 ? static_cast<uint64_t>(i) % std::min<uint64_t>(3, rows) : random.U64() % rows;
    SHOAL_ASSERT_OK(table.Ask(row, random, query));
    EncodeQuery(shape, query, sent);
    SHOAL_ASSERT_OK(DecodeQuery(shape, sent, received));
    ASSERT_EQ(received, query);
    AnswerQuery(shape, records, received, zeros, ones);
    ASSERT_TRUE(table.Finish(zeros, ones, record)) << i;
    ASSERT_TRUE(std::ranges::equal(record, BytesView(records).subspan(row * width, width))) << i;
  }
  EXPECT_EQ(table.backups_left(), 0u);
  EXPECT_THAT(table.Ask(row, random, query),
              StatusIs(absl::StatusCode::kResourceExhausted, "no backup"));
}
// 33 and 65 chunks: groups of eight and a rest, the last chunk with few rows.
INSTANTIATE_TEST_SUITE_P(Rows, SessionTest,
                         ::testing::Values(SessionCase{1, 24, false}, SessionCase{2, 24, true},
                                           SessionCase{3, 24, false}, SessionCase{64, 24, true},
                                           SessionCase{1000, 24, false},
                                           SessionCase{1000, 24, true}, SessionCase{1000, 8, true},
                                           SessionCase{1000, 8, false}, SessionCase{4097, 8, true},
                                           SessionCase{4097, 24, true},
                                           SessionCase{1025, 1072, true}));

TEST(HalfSetsTest, ARowThatNoHintHoldsCostsAQueryThatLooksLikeAnyOther) {
  constexpr SetShape shape = {
      .rows = 64, .record_bytes = 8, .offset_bits = 3, .chunks = 8, .hints = 1, .backups = 200};
  const Bytes records = TableOf(64, 8);
  TestRandom random(9);
  SecretArray<16> key;
  random.Fill(key.mutable_view());
  const SetFunction sets(key, 3);
  HintTable table(shape, &sets);
  AddAll(shape, records, table);
  std::vector<Choice> query(8);
  Bytes zeros(8), ones(8), record(8);
  int held = 0, bits = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    SHOAL_ASSERT_OK(table.Ask(i % 64, random, query));
    EXPECT_EQ(table.backups_left(), 199 - i);
    for (const Choice choice : query) bits += choice.bit;
    AnswerQuery(shape, records, query, zeros, ones);
    const bool found = table.Finish(zeros, ones, record);
    held += found;
    const Bytes expected = found ? ToBytes(BytesView(records).subspan(i % 64 * 8, 8)) : Bytes(8);
    ASSERT_EQ(record, expected);
  }
  // One hint holds one row in 16.
  EXPECT_GT(held, 2);
  EXPECT_LT(held, 30);
  EXPECT_NEAR(bits, 800, 120);
  EXPECT_THAT(table.Ask(64, random, query), StatusIs(absl::StatusCode::kOutOfRange, "no such row"));
}

TEST(HalfSetsTest, ShapesAreThoseOfTheTable) {
  // 1 GiB: the state, and what passes for a query.
  SHOAL_ASSERT_OK_AND_ASSIGN(const SetShape shape, ShapeFor(1 << 20, 1072, 14'000));
  EXPECT_EQ(shape.chunks, 1024u);
  EXPECT_EQ(shape.offset_bits, 10u);
  EXPECT_EQ(shape.query_bytes(), 1408u);
  EXPECT_NEAR(static_cast<double>(shape.parity_bytes()), 112e6, 1e6);
  EXPECT_EQ(shape.hints, 76'316u);
  // The probability that no hint holds a row, for all queries together.
  const double miss = std::pow(1 - 1 / 2048.0, shape.hints) * 14'000;
  EXPECT_LE(std::log2(miss), -40);
  EXPECT_GT(std::log2(miss), -40.1);
  EXPECT_THAT(ShapeFor(0, 1, 1), StatusIs(kInvalid, ""));
  EXPECT_THAT(ShapeFor(1, 0, 1), StatusIs(kInvalid, ""));
  EXPECT_THAT(ShapeFor(1, 1, 0), StatusIs(kInvalid, ""));
  EXPECT_THAT(ShapeFor(uint64_t{1} << 60, 1, 1), StatusIs(kInvalid, "too many"));
  EXPECT_THAT(ShapeFor(~uint64_t{0}, 1, 1), StatusIs(kInvalid, "too many"));
  EXPECT_THAT(ShapeFor(1, 1, uint64_t{1} << 40), StatusIs(kInvalid, ""));
}

TEST(HalfSetsTest, QueriesOfWrongLengthsAreRefused) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const SetShape shape, ShapeFor(900, 8, 10));
  std::vector<Choice> query(shape.chunks);
  ASSERT_NE(shape.chunks * (1 + shape.offset_bits) % 8, 0u);
  Bytes sent(shape.query_bytes(), 0xff);
  EXPECT_THAT(DecodeQuery(shape, sent, query), StatusIs(kInvalid, "behind its end"));
  sent.back() = 0;
  SHOAL_EXPECT_OK(DecodeQuery(shape, sent, query));
  sent.push_back(0);
  EXPECT_THAT(DecodeQuery(shape, sent, query), StatusIs(kInvalid, "bytes instead of"));
  EXPECT_THAT(DecodeQuery(shape, BytesView(sent).first(shape.query_bytes() - 1), query),
              StatusIs(kInvalid, "bytes instead of"));
}

// The function by FIPS 197, appendix C.1, and the same by set as by chunk.
TEST(HalfSetsTest, SetsAreThoseOfAes) {
  SecretArray<16> key;
  for (uint8_t i = 0; i < 16; ++i) key.data()[i] = i;
  const SetFunction sets(key, 15);
  std::vector<Choice> of_set(1000), of_chunk(700);
  sets.OfSet(600, of_set);
  for (uint32_t c = 0; c < of_set.size(); ++c) {
    sets.OfChunk(c, 0, of_chunk);
    ASSERT_EQ(of_chunk[600], of_set[c]) << c;
  }
  std::set<uint32_t> different;
  for (const Choice choice : of_set) different.insert(choice.bit << 15 | choice.offset);
  EXPECT_GT(different.size(), 950u);  // of 1,000 random words, 8 pairs are equal on average
}

}  // namespace
}  // namespace shoal::pir::sets
