#include "src/pir/sets/single_pass_sets.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/sanitized.h"
#include "src/base/testing/test_random.h"

namespace shoal::pir::sets {
namespace {

using testing::StatusIs;
using testing::TestRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// What Ask draws: a uniform number below `first`, then others below `bound`, the digits of
// `number`.
class Tape final : public RandomSource {
 public:
  Tape(uint64_t number, uint64_t first, uint64_t bound)
      : number_(number), next_(first), bound_(bound) {}
  void Fill(MutableBytes out) override {
    for (size_t at = 0; at < out.size(); at += 8) {
      // A word in the middle of those that stand for the digit.
      const uint64_t each = ~uint64_t{0} / next_;
      StoreLe<uint64_t>(&out[at], number_ % next_ * each + each / 2);
      number_ /= next_;
      next_ = bound_;
    }
  }

 private:
  uint64_t number_, next_;
  const uint64_t bound_;
};

// Goes through all that can happen in the first queries to a small table: all permutations, each
// row asked for, each outcome of the draws. Counts both servers' views of each sequence of rows.
class Enumeration {
 public:
  Enumeration(const SinglePassShape& shape, uint32_t queries)
      : shape_(shape),
        queries_(kSanitized ? 1 : queries),
        query_views_(Power(shape.chunk_rows, shape.chunks)) {
    for (uint64_t row = 0; row < shape.rows; ++row) {
      records_.push_back(static_cast<uint8_t>(1 << row));
    }
  }

  void ExpectUniform() {
    AllPermutations({});
    EXPECT_EQ(wrong_, 0u);
    const uint64_t draws = Power(Power(shape_.chunk_rows, shape_.chunks + 1), queries_);
    const uint64_t views = Power(query_views_, queries_);
    const uint64_t sequences = Power(shape_.rows, queries_);
    // The online server has each view equally often, for all permutations together.
    EXPECT_EQ(online_.size(), sequences * views);
    for (const auto& [which, times] : online_) {
      ASSERT_EQ(times * views, permutations_ * draws)
          << "rows " << which.first << ", view " << which.second;
    }
    // The offline server knows the first permutations: it has so for each of them.
    EXPECT_EQ(offline_.size(), permutations_ * sequences * views);
    for (const auto& [which, times] : offline_) {
      ASSERT_EQ(times * views, draws) << "permutation " << std::get<0>(which) << ", rows "
                                      << std::get<1>(which) << ", view " << std::get<2>(which);
    }
  }

 private:
  static uint64_t Power(uint64_t base, uint32_t exponent) {
    uint64_t power = 1;
    for (uint32_t i = 0; i < exponent; ++i) power *= base;
    return power;
  }

  void AllPermutations(const SecretVector<uint32_t>& first) {
    if (first.size() == shape_.places()) {
      SinglePassTable table(shape_, first);
      Bytes parities(shape_.chunk_rows);
      for (uint64_t place = 0; place < first.size(); ++place) {
        const uint64_t row = place / shape_.chunk_rows * shape_.chunk_rows + first[place];
        if (row < shape_.rows) parities[place % shape_.chunk_rows] ^= records_[row];
      }
      table.AddParities(parities);
      Count(table, 0, 0, 0, queries_);
      ++permutations_;
      return;
    }
    std::vector<uint32_t> one(shape_.chunk_rows);
    std::iota(one.begin(), one.end(), 0u);
    do {
      SecretVector<uint32_t> more = first;
      more.insert(more.end(), one.begin(), one.end());
      AllPermutations(more);
    } while (std::ranges::next_permutation(one).found);
  }

  uint64_t ViewOf(BytesView query) const {
    uint64_t view = 0;
    for (size_t at = 0; at < query.size(); at += 4) {
      view = view * shape_.chunk_rows + LoadLe<uint32_t>(&query[at]);
    }
    return view;
  }

  void Count(const SinglePassTable& table, uint64_t rows, uint64_t online_view,
             uint64_t offline_view, uint32_t left) {
    if (left == 0) {
      ++online_[{rows, online_view}];
      ++offline_[{permutations_, rows, offline_view}];
      return;
    }
    Bytes online(shape_.query_bytes()), offline(shape_.query_bytes());
    Bytes of_online(shape_.answer_bytes()), of_offline(shape_.answer_bytes()), record(1);
    for (uint64_t row = 0; row < shape_.rows; ++row) {
      const uint64_t draws = Power(shape_.chunk_rows, shape_.chunks + 1);
      for (uint64_t draw = 0; draw < draws; ++draw) {
        SinglePassTable next = table;
        Tape random(draw, shape_.chunk_rows, shape_.chunk_rows);
        wrong_ += !next.Ask(row, random, online, offline).ok();
        wrong_ += !AnswerPermuted(shape_, records_, online, of_online).ok();
        wrong_ += !AnswerPermuted(shape_, records_, offline, of_offline).ok();
        next.Finish(of_online, of_offline, record);
        wrong_ += record[0] != records_[row];
        Count(next, rows * shape_.rows + row, online_view * query_views_ + ViewOf(online),
              offline_view * query_views_ + ViewOf(offline), left - 1);
      }
    }
  }

  const SinglePassShape shape_;
  const uint32_t queries_;
  const uint64_t query_views_;
  Bytes records_;
  uint64_t permutations_ = 0;                                             // gone through
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> online_;              // by rows, views
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, uint64_t> offline_;  // by permutation, too
  uint64_t wrong_ = 0;
};

// The theorem of docs/permuted-sets.md for small tables: whatever rows are asked for, each sequence
// of queries that a server can see is the outcome of as many permutations and draws as any other.
// Every record comes back. The third query looks at what the second one did to the exchanges of the
// first.
TEST(SinglePassSetsTest, ServersViewsAreUniformWhateverIsAsked) {
  Enumeration({.rows = 4, .record_bytes = 1, .chunks = 2, .chunk_rows = 2}, 3).ExpectUniform();
}
TEST(SinglePassSetsTest, ServersViewsAreUniformIfTheLastChunkIsFilledUp) {
  Enumeration({.rows = 5, .record_bytes = 1, .chunks = 2, .chunk_rows = 3}, 2).ExpectUniform();
  Enumeration({.rows = 5, .record_bytes = 1, .chunks = 3, .chunk_rows = 2}, 2).ExpectUniform();
}
TEST(SinglePassSetsTest, ServersViewsAreUniformWithOneChunkAndWithOneRowAChunk) {
  Enumeration({.rows = 3, .record_bytes = 1, .chunks = 1, .chunk_rows = 3}, 2).ExpectUniform();
  Enumeration({.rows = 3, .record_bytes = 1, .chunks = 3, .chunk_rows = 1}, 2).ExpectUniform();
}

// A table, both servers and a client.
struct Deployment {
  Deployment(uint64_t rows, uint32_t record_bytes, uint32_t chunks)
      : shape(SinglePassShapeFor(rows, record_bytes, chunks).value()),
        records(rows * record_bytes),
        seed(random.NewSeed()),
        table(shape, PermutationsOf(shape, seed)),
        online(shape.query_bytes()),
        offline(shape.query_bytes()),
        of_online(shape.answer_bytes()),
        of_offline(shape.answer_bytes()),
        record(record_bytes) {
    random.Fill(records);
  }

  // In parts of `together` parities.
  void Prepare(uint32_t together) {
    const ParityMaker maker(shape, seed);
    for (uint32_t first = 0; first < shape.chunk_rows; first += together) {
      Bytes parities(uint64_t{std::min(together, shape.chunk_rows - first)} * shape.record_bytes);
      maker.Make(records, first, parities);
      table.AddParities(parities);
    }
  }
  absl::Status Ask(uint64_t row) { return table.Ask(row, random, online, offline); }
  void Answer() {
    SHOAL_ASSERT_OK(AnswerPermuted(shape, records, online, of_online));
    SHOAL_ASSERT_OK(AnswerPermuted(shape, records, offline, of_offline));
    table.Finish(of_online, of_offline, record);
  }
  Bytes RecordOf(uint64_t row) const {
    return ToBytes(BytesView(records).subspan(row * shape.record_bytes, shape.record_bytes));
  }

  TestRandom random{3};
  SinglePassShape shape;
  Bytes records;
  Seed seed;
  SinglePassTable table;
  Bytes online, offline, of_online, of_offline, record;
};

class SessionTest : public ::testing::TestWithParam<std::pair<uint64_t, uint32_t>> {};

// Far more queries than there are rows; few rows again and again, then any.
TEST_P(SessionTest, RecordsComeBack) {
  const auto [rows, chunks] = GetParam();
  Deployment all(rows, 77, chunks);
  EXPECT_GE(all.shape.places(), rows);
  EXPECT_LT(all.shape.places() - all.shape.chunk_rows, rows);
  all.Prepare(100);
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t row = i < 500 ? i % std::min<uint64_t>(3, rows) : all.random.Below(rows);
    SHOAL_ASSERT_OK(all.Ask(row));
    all.Answer();
    ASSERT_EQ(all.record, all.RecordOf(row)) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, SessionTest,
                         ::testing::Values(std::pair(1, 1), std::pair(1, 32), std::pair(5, 4),
                                           std::pair(64, 8), std::pair(1000, 32),
                                           std::pair(4097, 16)));

TEST(SinglePassSetsTest, ARowThatChangesComesBackAsItIs) {
  Deployment all(300, 20, 8);
  all.Prepare(300);
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t row = all.random.Below(300);
    const MutableBytes record = MutableBytes(all.records).subspan(row * 20, 20);
    Bytes difference = ToBytes(record);
    all.random.Fill(record);
    for (size_t b = 0; b < 20; ++b) difference[b] ^= record[b];
    SHOAL_ASSERT_OK(all.table.Change(row, difference));
    const uint64_t other = i % 2 == 0 ? row : all.random.Below(300);
    SHOAL_ASSERT_OK(all.Ask(other));
    if (i % 3 == 0) {
      // Also one that changes while a query is on its way, and is answered from the new table.
      const uint64_t late = i % 6 == 0 ? other : all.random.Below(300);
      all.random.Fill(difference);
      for (size_t b = 0; b < 20; ++b) all.records[late * 20 + b] ^= difference[b];
      SHOAL_ASSERT_OK(all.table.Change(late, difference));
    }
    all.Answer();
    ASSERT_EQ(all.record, all.RecordOf(other));
  }
  EXPECT_THAT(all.table.Change(300, Bytes(20)),
              StatusIs(absl::StatusCode::kOutOfRange, "no such row"));
}

// In the middle of a preparation, of which the rest is made of the new record.
TEST(SinglePassSetsTest, ARowMayChangeBetweenTwoParts) {
  Deployment all(300, 20, 8);
  const ParityMaker maker(all.shape, all.seed);
  for (uint32_t first = 0; first < all.shape.chunk_rows; ++first) {
    Bytes parity(20);
    maker.Make(all.records, first, parity);
    all.table.AddParities(parity);
    const uint64_t row = all.random.Below(300);
    Bytes difference(20);
    all.random.Fill(difference);
    for (size_t b = 0; b < 20; ++b) all.records[row * 20 + b] ^= difference[b];
    SHOAL_ASSERT_OK(all.table.Change(row, difference));
  }
  for (uint64_t row = 0; row < 300; ++row) {
    SHOAL_ASSERT_OK(all.Ask(row));
    all.Answer();
    ASSERT_EQ(all.record, all.RecordOf(row));
  }
}

// What a journal and a state have makes the same table.
TEST(SinglePassSetsTest, ATableIsMadeAgainFromWhatIsKept) {
  Deployment all(300, 20, 8);
  all.Prepare(38);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      SinglePassTable again,
      SinglePassTable::Restore(all.shape, all.table.permutations(), all.table.added_parities()));
  Bytes online(all.shape.query_bytes()), offline(all.shape.query_bytes()), record(20);
  for (uint64_t i = 0; i < 100; ++i) {
    SHOAL_ASSERT_OK(all.Ask(i % 7));
    SinglePassTable::Question question = *all.table.asked();
    SHOAL_ASSERT_OK(again.Redo(std::move(question)));
    again.AskAgain(online, offline);
    EXPECT_EQ(online, all.online);
    EXPECT_EQ(offline, all.offline);
    SHOAL_ASSERT_OK(AnswerPermuted(all.shape, all.records, online, all.of_online));
    SHOAL_ASSERT_OK(AnswerPermuted(all.shape, all.records, offline, all.of_offline));
    const auto changes = all.table.Finish(all.of_online, all.of_offline, record);
    EXPECT_THAT(again.RedoFinish(BytesView(changes).first(1)), StatusIs(kInvalid, "no end"));
    SHOAL_ASSERT_OK(again.RedoFinish(changes));
    EXPECT_THAT(again.RedoFinish(changes), StatusIs(kInvalid, "no end"));
    ASSERT_EQ(again.permutations(), all.table.permutations());
    ASSERT_TRUE(std::ranges::equal(again.added_parities(), all.table.added_parities()));
  }
  for (const int wrong : {0, 1, 2}) {
    SinglePassTable::Question question = {
        .row = 1, .dummy = 2, .exchanged = SecretVector<uint32_t>(8)};
    if (wrong == 0) question.dummy = 38;
    if (wrong == 1) question.exchanged[7] = 38;
    if (wrong == 2) question.exchanged.pop_back();
    EXPECT_THAT(again.Redo(std::move(question)), StatusIs(kInvalid, "no question"));
  }
  const auto restored = [&](const SecretVector<uint32_t>& permutations, BytesView parities) {
    return SinglePassTable::Restore(all.shape, permutations, parities).status();
  };
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  SecretVector<uint32_t> bad = all.table.permutations();
  EXPECT_THAT(restored(bad, all.table.added_parities().first(19)),
              StatusIs(kLoss, "of this shape"));
  EXPECT_THAT(restored(bad, Bytes(39 * 20)), StatusIs(kLoss, "of this shape"));
  SHOAL_EXPECT_OK(restored(bad, all.table.added_parities().first(20)));
  bad[40] = bad[41];
  EXPECT_THAT(restored(bad, {}), StatusIs(kLoss, "of this shape"));
  bad[40] = 38;
  EXPECT_THAT(restored(bad, {}), StatusIs(kLoss, "of this shape"));
  bad.pop_back();
  EXPECT_THAT(restored(bad, {}), StatusIs(kLoss, "of this shape"));
}

// Both queries of a state would show the online server the same places.
TEST(SinglePassSetsTest, NothingIsAskedTooEarly) {
  Deployment all(300, 20, 8);
  EXPECT_THAT(all.Ask(1), StatusIs(absl::StatusCode::kFailedPrecondition, "not all parities"));
  all.Prepare(7);
  SHOAL_ASSERT_OK(all.Ask(1));
  const Bytes sent = all.online;
  EXPECT_THAT(all.Ask(1), StatusIs(absl::StatusCode::kFailedPrecondition, "not finished"));
  EXPECT_EQ(all.online, sent);
  all.Answer();
  EXPECT_EQ(all.record, all.RecordOf(1));
  EXPECT_THAT(all.Ask(300), StatusIs(absl::StatusCode::kOutOfRange, "no such row"));
  SHOAL_EXPECT_OK(all.Ask(299));
}

TEST(SinglePassSetsTest, BadQueriesAreRefused) {
  Deployment all(300, 20, 8);
  ASSERT_EQ(all.shape.chunk_rows, 38u);
  Bytes query(all.shape.query_bytes());
  const auto answer = [&](BytesView of) {
    Bytes out(all.shape.answer_bytes(), 7);
    const absl::Status status = AnswerPermuted(all.shape, all.records, of, out);
    EXPECT_TRUE(status.ok() || out == Bytes(out.size(), 7));
    return status;
  };
  for (uint32_t chunk = 0; chunk < 8; ++chunk) {
    StoreLe<uint32_t>(&query[4 * chunk], 37);
    SHOAL_EXPECT_OK(answer(query));
    for (const uint32_t offset : {38u, 300u, 0x80000000u, 0xffffffffu}) {
      StoreLe<uint32_t>(&query[4 * chunk], offset);
      EXPECT_THAT(answer(query), StatusIs(kInvalid, "of a chunk of 38"));
    }
    StoreLe<uint32_t>(&query[4 * chunk], 0);
  }
  EXPECT_THAT(answer(BytesView(query).first(31)), StatusIs(kInvalid, "bytes instead of"));
  EXPECT_THAT(answer({}), StatusIs(kInvalid, "bytes instead of"));
  query.push_back(0);
  EXPECT_THAT(answer(query), StatusIs(kInvalid, "bytes instead of"));
}

TEST(SinglePassSetsTest, ShapesAreThoseOfTheTable) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const SinglePassShape shape, SinglePassShapeFor(1 << 20, 1072, 32));
  EXPECT_EQ(shape.chunk_rows, 32768u);
  EXPECT_EQ(shape.parity_bytes(), 35'127'296u);
  EXPECT_EQ(2 * (shape.query_bytes() + shape.answer_bytes()), 68'864u);
  // 10 rows in chunks of 3 leave two of the six without a row.
  SHOAL_ASSERT_OK_AND_ASSIGN(const SinglePassShape fewer, SinglePassShapeFor(9, 1, 6));
  EXPECT_EQ(fewer.chunk_rows, 2u);
  EXPECT_EQ(fewer.chunks, 5u);
  EXPECT_THAT(SinglePassShapeFor(0, 1, 1), StatusIs(kInvalid, ""));
  EXPECT_THAT(SinglePassShapeFor(1, 0, 1), StatusIs(kInvalid, ""));
  EXPECT_THAT(SinglePassShapeFor(1, 1, 0), StatusIs(kInvalid, ""));
  EXPECT_THAT(SinglePassShapeFor(1, 1, kMaxPermutedChunks + 1), StatusIs(kInvalid, "too many"));
  EXPECT_THAT(SinglePassShapeFor(uint64_t{1} << 40, 1, 32), StatusIs(kInvalid, "too many"));
  EXPECT_THAT(SinglePassShapeFor(~uint64_t{0}, ~uint32_t{0}, 4096), StatusIs(kInvalid, "too many"));
}

// Client and server draw them each for themselves: they must never change.
TEST(SinglePassSetsTest, PermutationsAreThoseOfTheSeed) {
  const SinglePassShape shape = {.rows = 16, .record_bytes = 1, .chunks = 2, .chunk_rows = 8};
  Seed seed;
  seed.data()[0] = 1;
  const SecretVector<uint32_t> drawn = PermutationsOf(shape, seed);
  const SecretVector<uint32_t> expected = {3, 0, 6, 1, 5, 4, 2, 7,  // chunk 0
                                           6, 5, 1, 4, 0, 2, 3, 7};
  EXPECT_EQ(drawn, expected);

  // Each of the 6 permutations of each of two chunks as often as another: 36 pairs, 7,200 seeds,
  // 200 expected of each. Chi-squared with 35 degrees of freedom exceeds 90 with probability 1e-6;
  // the seeds are fixed.
  const SinglePassShape small = {.rows = 6, .record_bytes = 1, .chunks = 2, .chunk_rows = 3};
  TestRandom random(8);
  std::map<SecretVector<uint32_t>, int> times;
  for (int i = 0; i < 7200; ++i) ++times[PermutationsOf(small, random.NewSeed())];
  ASSERT_EQ(times.size(), 36u);
  double chi = 0;
  for (const auto& [which, count] : times) chi += (count - 200) * (count - 200) / 200.0;
  EXPECT_LT(chi, 90);
}

}  // namespace
}  // namespace shoal::pir::sets
