// Every instruction set computes what a plain loop does, for rows of all lengths around those of
// its registers, wherever they begin, and touches nothing beside. What does not fit together is
// refused before a sum is changed.
#include "src/select/select.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/testing/guarded_bytes.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"

namespace shoal::select {
namespace {

using testing::GuardedBytes;
using testing::StatusIs;
using testing::TestRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class SelectTest : public ::testing::TestWithParam<InstructionSet> {
 protected:
  SelectTest() {
    if (IsSupported(GetParam())) UseInstructionSet(GetParam());
  }
  ~SelectTest() override { UseInstructionSet(before_); }
  void SetUp() override {
    if (!IsSupported(GetParam())) GTEST_SKIP() << "this machine has no such instructions";
  }

  Bytes Random(size_t bytes) {
    Bytes out(bytes);
    random_.Fill(out);
    return out;
  }

  const InstructionSet before_ = ActiveInstructionSet();
  TestRandom random_{41};
};

bool IsSelected(BytesView selection, size_t place) {
  return (selection[place / 8] >> place % 8 & 1) != 0;
}

void Xor(BytesView from, MutableBytes to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] ^= from[i];
}

// Queries whose sums lie between bytes of other contents, and what is to come out.
struct Asked {
  Asked(std::vector<Bytes> random_selections, Bytes random_sums, size_t row_bytes)
      : selections(std::move(random_selections)), sums(std::move(random_sums)), expected(sums) {
    for (size_t q = 0; q < selections.size(); ++q) {
      const size_t at = q * (row_bytes + 3) + 1;
      queries.push_back({selections[q], MutableBytes(sums).subspan(at, row_bytes)});
      wanted.push_back(MutableBytes(expected).subspan(at, row_bytes));
    }
  }
  // The loop to compare with.
  void Expect(size_t query, const std::vector<BytesView>& rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (IsSelected(selections[query], i)) Xor(rows[i], wanted[query]);
    }
  }

  std::vector<Bytes> selections;
  Bytes sums, expected;
  std::vector<Query> queries;
  std::vector<MutableBytes> wanted;
};

// Lengths around those of registers, and some long ones.
std::vector<size_t> RowLengths() {
  std::vector<size_t> lengths = {255, 256, 257, 300, 511, 512, 513, 575, 577, 1023, 4099};
  for (size_t bytes = 1; bytes <= 200; ++bytes) lengths.push_back(bytes);
  return lengths;
}

std::vector<BytesView> RowsOf(BytesView bytes, size_t row_bytes, size_t stride, size_t count) {
  std::vector<BytesView> rows;
  for (size_t i = 0; i < count; ++i) rows.push_back(bytes.subspan(i * stride, row_bytes));
  return rows;
}

TEST_P(SelectTest, ATablesSumsAreThoseOfALoop) {
  constexpr size_t kCounts[] = {0, 1, 2, 5, 63, 64, 65, 127, 128, 150};
  constexpr size_t kQueries[] = {0, 1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 21, 33, 64, 65, 131};
  size_t turn = 0;
  for (const size_t row_bytes : RowLengths()) {
    for (int round = 0; round < 8; ++round, ++turn) {
      const size_t count = kCounts[turn % std::size(kCounts)];
      const size_t queries = kQueries[turn % std::size(kQueries)];
      const size_t places = count + turn % 3 * 40;  // some, or a word and more, without a row
      const size_t stride = row_bytes + turn % 4 * 5;
      SCOPED_TRACE(::testing::Message() << row_bytes << " bytes, " << count << " rows, " << queries
                                        << " queries, stride " << stride);
      // The first row one byte off, the last one at the end.
      const Bytes memory = Random(1 + (count > 0 ? (count - 1) * stride + row_bytes : 0));
      const BytesView table = BytesView(memory).subspan(1);
      std::vector<Bytes> selections;
      for (size_t q = 0; q < queries; ++q) selections.push_back(Random(SelectionBytes(places)));
      Asked asked(selections, Random(queries * (row_bytes + 3) + 1), row_bytes);
      const std::vector<BytesView> rows = RowsOf(table, row_bytes, stride, count);
      for (size_t q = 0; q < queries; ++q) asked.Expect(q, rows);

      const Bytes before = asked.sums;
      SHOAL_ASSERT_OK(SelectFromTable(Rows::Strided(table, row_bytes, stride, count).value(),
                                      places, asked.queries));
      ASSERT_EQ(asked.sums, asked.expected);
      asked.sums = before;
      SHOAL_ASSERT_OK(SelectFromTable(Rows::Spans(rows, row_bytes).value(), places, asked.queries));
      ASSERT_EQ(asked.sums, asked.expected);
    }
  }
}

// Of one place alone the sum is its row, or nothing where there is none.
TEST_P(SelectTest, EachPlaceIsItsBit) {
  constexpr size_t kRowBytes = 52, kRows = 150, kPlaces = 200;
  const Bytes table = Random(kRowBytes * kRows);
  const Rows rows = Rows::Strided(table, kRowBytes, kRowBytes, kRows).value();
  std::vector<Bytes> selections(kPlaces, Bytes(SelectionBytes(kPlaces)));
  for (size_t place = 0; place < kPlaces; ++place) {
    selections[place][place / 8] = static_cast<uint8_t>(1 << place % 8);
    // Bits behind the last place are ignored.
    for (size_t i = kPlaces / 8; i < selections[place].size(); ++i) selections[place][i] = 0xff;
  }
  std::vector<Bytes> sums(kPlaces, Bytes(kRowBytes));
  std::vector<Query> queries;
  for (size_t place = 0; place < kPlaces; ++place) {
    queries.push_back({selections[place], sums[place]});
  }
  SHOAL_ASSERT_OK(SelectFromTable(rows, kPlaces, queries));
  for (size_t place = 0; place < kPlaces; ++place) {
    const Bytes expected = place < kRows
                               ? ToBytes(BytesView(table).subspan(place * kRowBytes, kRowBytes))
                               : Bytes(kRowBytes);
    ASSERT_EQ(sums[place], expected) << place;
  }
}

// Several threads read a part of a table each.
TEST_P(SelectTest, ThreadsShareALargeTable) {
  constexpr size_t kRowBytes = 131, kRows = 40001;
  const Bytes table = Random(kRowBytes * kRows);
  const Rows rows = Rows::Strided(table, kRowBytes, kRowBytes, kRows).value();
  std::vector<Bytes> selections;
  for (int q = 0; q < 3; ++q) selections.push_back(Random(SelectionBytes(kRows)));
  Asked asked(selections, Random(3 * (kRowBytes + 3) + 1), kRowBytes);
  for (size_t q = 0; q < 3; ++q) asked.Expect(q, RowsOf(table, kRowBytes, kRowBytes, kRows));
  ThreadPool pool(3);
  SHOAL_ASSERT_OK(SelectFromTable(rows, kRows, asked.queries, &pool));
  EXPECT_EQ(asked.sums, asked.expected);
}

// Buckets without queries, with few and with many, whose rows are not all there; queries in any
// order, on one thread and on several.
TEST_P(SelectTest, SumsOfManyBucketsAreThoseOfALoop) {
  for (const size_t row_bytes : {1, 4, 14, 32, 52, 62, 80, 112, 300}) {
    for (const size_t places : {1, 3, 64, 65, 130}) {
      for (const size_t buckets : {1, 2, 7, 40}) {
        for (const size_t queries : {0, 1, 30, 400}) {
          SCOPED_TRACE(::testing::Message() << row_bytes << " bytes, " << places << " places, "
                                            << buckets << " buckets, " << queries << " queries");
          // Row r is place r / buckets of bucket r % buckets, and the last ones are missing.
          const size_t rows = buckets * places - buckets / 2;
          const Bytes table = Random(rows * row_bytes);
          std::vector<std::vector<BytesView>> of(buckets);
          for (size_t r = 0; r < rows; ++r) {
            of[r % buckets].push_back(BytesView(table).subspan(r * row_bytes, row_bytes));
          }
          std::vector<Rows> strided, spans;
          for (size_t b = 0; b < buckets; ++b) {
            strided.push_back(Rows::Strided(BytesView(table).subspan(std::min(rows, b) * row_bytes),
                                            row_bytes, buckets * row_bytes, of[b].size())
                                  .value());
            spans.push_back(Rows::Spans(of[b], row_bytes).value());
          }
          std::vector<Bytes> selections;
          for (size_t q = 0; q < queries; ++q) selections.push_back(Random(SelectionBytes(places)));
          Asked asked(selections, Random(queries * (row_bytes + 3) + 1), row_bytes);
          std::vector<BucketQuery> bucket_queries;
          for (size_t q = 0; q < queries; ++q) {
            // Low buckets are asked more often.
            const size_t bucket = random_.Below(1 + random_.Below(buckets));
            bucket_queries.push_back({bucket, asked.queries[q]});
            asked.Expect(q, of[bucket]);
          }
          const Bytes before = asked.sums;
          ThreadPool pool(2);
          for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
            for (const auto& each : {strided, spans}) {
              std::copy(before.begin(), before.end(), asked.sums.begin());
              SHOAL_ASSERT_OK(SelectFromBuckets(each, places, bucket_queries, threads));
              ASSERT_EQ(asked.sums, asked.expected);
            }
          }
        }
      }
    }
  }
}

// All queries over one bucket need the most visits of all, and no query the fewest.
TEST_P(SelectTest, ManyQueriesOverOneBucketOfMany) {
  constexpr size_t kRowBytes = 20, kPlaces = 70, kBuckets = 5;
  const Bytes table = Random(kBuckets * kPlaces * kRowBytes);
  std::vector<Rows> buckets;
  std::vector<std::vector<BytesView>> of;
  for (size_t b = 0; b < kBuckets; ++b) {
    const BytesView rows = BytesView(table).subspan(b * kPlaces * kRowBytes, kPlaces * kRowBytes);
    buckets.push_back(Rows::Strided(rows, kRowBytes, kRowBytes, kPlaces).value());
    of.push_back(RowsOf(rows, kRowBytes, kRowBytes, kPlaces));
  }
  for (const size_t queries : {1, 2, 15, 16, 17, 100, 321, 1000}) {
    for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
      std::vector<Bytes> selections;
      for (size_t q = 0; q < queries; ++q) selections.push_back(Random(SelectionBytes(kPlaces)));
      Asked asked(selections, Random(queries * (kRowBytes + 3) + 1), kRowBytes);
      std::vector<BucketQuery> bucket_queries;
      for (size_t q = 0; q < queries; ++q) {
        bucket_queries.push_back({bucket, asked.queries[q]});
        asked.Expect(q, of[bucket]);
      }
      SHOAL_ASSERT_OK(SelectFromBuckets(buckets, kPlaces, bucket_queries));
      ASSERT_EQ(asked.sums, asked.expected) << queries << " " << bucket;
    }
  }
}

// A bucket that nobody asks is read like any other: a page of its memory that nobody has touched is
// there afterwards. (Fetching ahead does not make it so.)
TEST_P(SelectTest, ReadsBucketsThatNobodyAsks) {
  constexpr size_t kBuckets = 9, kPlaces = 64;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t row_bytes = page / kPlaces;
  void* const mapped =
      mmap(nullptr, kBuckets * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto touched = [&] {
    std::vector<unsigned char> there(kBuckets);
    SHOAL_CHECK(mincore(mapped, kBuckets * page, there.data()) == 0);
    return std::count_if(there.begin(), there.end(), [](unsigned char of) { return of & 1; });
  };
  std::vector<Rows> buckets;
  for (size_t b = 0; b < kBuckets; ++b) {
    const BytesView bytes(static_cast<const uint8_t*>(mapped) + b * page, page);
    buckets.push_back(Rows::Strided(bytes, row_bytes, row_bytes, kPlaces).value());
  }
  const Bytes selection(SelectionBytes(kPlaces));
  Bytes sum(row_bytes);
  const std::vector<BucketQuery> queries(50, {4, {selection, sum}});
  ASSERT_EQ(touched(), 0);
  SHOAL_EXPECT_OK(SelectFromBuckets(buckets, kPlaces, queries));
  EXPECT_EQ(touched(), static_cast<long>(kBuckets));
  munmap(mapped, kBuckets * page);
}

// No kernel reads or writes a byte beside rows, selections and sums: these stand between pages that
// nobody may touch.
TEST_P(SelectTest, TouchesNothingBeside) {
  for (const bool at_end : {true, false}) {
    for (const size_t row_bytes : RowLengths()) {
      constexpr size_t kRows = 67;
      GuardedBytes table(kRows * row_bytes, at_end), row(row_bytes, at_end);
      std::vector<BytesView> spans(kRows, row.bytes());
      for (const size_t count : {1, 4, 17}) {
        GuardedBytes selections(count * SelectionBytes(kRows), at_end),
            sums(count * row_bytes, at_end);
        std::vector<Query> queries;
        for (size_t q = 0; q < count; ++q) {
          queries.push_back(
              {selections.bytes().subspan(q * SelectionBytes(kRows), SelectionBytes(kRows)),
               sums.bytes().subspan(q * row_bytes, row_bytes)});
        }
        for (const Rows& rows : {Rows::Strided(table.bytes(), row_bytes, row_bytes, kRows).value(),
                                 Rows::Spans(spans, row_bytes).value()}) {
          SHOAL_ASSERT_OK(SelectFromTable(rows, kRows, queries));
          std::vector<BucketQuery> bucket_queries;
          for (const Query& query : queries) bucket_queries.push_back({0, query});
          SHOAL_ASSERT_OK(SelectFromBuckets({&rows, 1}, kRows, bucket_queries));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, SelectTest, ::testing::ValuesIn(kAllInstructionSets),
                         [](const auto& of) { return std::string(NameOf(of.param)); });

TEST(SelectRefusesTest, RowsThatAreNotThere) {
  const Bytes bytes(100);
  const auto strided = [&](size_t row_bytes, size_t stride, size_t count) {
    return Rows::Strided(bytes, row_bytes, stride, count);
  };
  SHOAL_EXPECT_OK(strided(10, 10, 10));
  SHOAL_EXPECT_OK(strided(10, 15, 7));
  SHOAL_EXPECT_OK(strided(10, SIZE_MAX, 1));
  SHOAL_EXPECT_OK(strided(101, 101, 0));
  SHOAL_EXPECT_OK(strided(kMaxRowBytes, kMaxRowBytes, 0));
  EXPECT_THAT(strided(0, 10, 1), StatusIs(kInvalid, "rows of 0 bytes"));
  EXPECT_THAT(strided(kMaxRowBytes + 1, kMaxRowBytes + 1, 0), StatusIs(kInvalid, "1048577 bytes"));
  EXPECT_THAT(strided(10, 9, 2), StatusIs(kInvalid, "overlap"));
  EXPECT_THAT(strided(10, 10, 11),
              StatusIs(kInvalid, "11 rows of 10 bytes at every 10 do not fit"));
  EXPECT_THAT(strided(10, 16, 7), StatusIs(kInvalid, "do not fit into 100 bytes"));
  EXPECT_THAT(strided(101, 101, 1), StatusIs(kInvalid, "do not fit"));
  // Products of these leave 64 bits.
  EXPECT_THAT(strided(10, SIZE_MAX, 2), StatusIs(kInvalid, "do not fit"));
  EXPECT_THAT(strided(10, size_t{1} << 63, 3), StatusIs(kInvalid, "do not fit"));
  EXPECT_THAT(strided(10, 10, SIZE_MAX), StatusIs(kInvalid, "do not fit"));

  const BytesView view(bytes);
  const std::vector<BytesView> spans = {view.first(10), view.first(10), view.first(11)};
  SHOAL_EXPECT_OK(Rows::Spans(std::span(spans).first(2), 10));
  EXPECT_THAT(Rows::Spans(spans, 10), StatusIs(kInvalid, "row 2 has 11 bytes, not 10"));
  EXPECT_THAT(Rows::Spans({}, 0), StatusIs(kInvalid, "rows of 0 bytes"));
}

// One bad query among good ones, and no sum is changed.
class SelectRefusesQueriesTest : public ::testing::Test {
 protected:
  static constexpr size_t kPlaces = 70, kRowBytes = 10;

  void ExpectRefused(const BucketQuery& bad, absl::string_view part) {
    const Bytes ones(SelectionBytes(kPlaces), 0xff);
    Bytes sum(kRowBytes);
    const std::vector<BucketQuery> queries = {{0, {ones, sum}}, bad};
    EXPECT_THAT(SelectFromBuckets(buckets_, kPlaces, queries),
                StatusIs(kInvalid, std::string(part)));
    if (bad.bucket == 0) {
      const std::vector<Query> of_table = {queries[0].query, bad.query};
      EXPECT_THAT(SelectFromTable(buckets_[0], kPlaces, of_table),
                  StatusIs(kInvalid, std::string(part)));
    }
    EXPECT_EQ(sum, Bytes(kRowBytes));
  }

  const Bytes table_ = Bytes(kPlaces * kRowBytes + 1, 3);
  const Rows rows_ = Rows::Strided(table_, kRowBytes, kRowBytes, kPlaces).value();
  std::vector<Rows> buckets_ = {rows_, rows_};
  Bytes selection_ = Bytes(SelectionBytes(kPlaces)), sum_ = Bytes(kRowBytes);
};

TEST_F(SelectRefusesQueriesTest, BadQueries) {
  ASSERT_EQ(SelectionBytes(kPlaces), 16u);
  for (const size_t bytes : {0, 8, 9, 15, 17, 24}) {
    const Bytes other(bytes);
    ExpectRefused({0, {other, sum_}}, "70 places take 16");
    ExpectRefused({1, {other, sum_}}, "70 places take 16");
  }
  for (const size_t bytes : {0, 9, 11}) {
    Bytes other(bytes);
    ExpectRefused({0, {selection_, other}}, "rows have 10");
  }
  ExpectRefused({2, {selection_, sum_}}, "bucket 2 of 2");
  ExpectRefused({SIZE_MAX, {selection_, sum_}}, "bucket 18446744073709551615 of 2");
}

// A scan that nobody waits for any more stops before its next bucket, on all threads.
TEST_F(SelectRefusesQueriesTest, AScanThatHasEndedStops) {
  ThreadPool pool(2);
  const Bytes ones(SelectionBytes(kPlaces), 0xff);
  Bytes sum(kRowBytes), expected(kRowBytes);
  const std::vector<BucketQuery> queries = {{1, {ones, sum}}};
  std::atomic<bool> ended = true;
  for (ThreadPool* const threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    EXPECT_THAT(SelectFromBuckets(buckets_, kPlaces, queries, threads, &ended),
                StatusIs(absl::StatusCode::kCancelled, "has ended"));
    EXPECT_EQ(sum, Bytes(kRowBytes));
  }
  ended = false;
  SHOAL_EXPECT_OK(SelectFromBuckets(buckets_, kPlaces, queries, nullptr, &ended));
  SHOAL_EXPECT_OK(SelectFromBuckets(buckets_, kPlaces, {{{1, {ones, expected}}}}));
  EXPECT_EQ(sum, expected);
}

TEST_F(SelectRefusesQueriesTest, BadBuckets) {
  const BucketQuery good = {0, {selection_, sum_}};
  buckets_[1] = Rows::Strided(table_, kRowBytes - 1, kRowBytes, kPlaces).value();
  ExpectRefused({1, good.query}, "buckets with rows of 10 and of 9 bytes");
  // One row more than there are places.
  buckets_[1] = Rows::Strided(table_, kRowBytes, kRowBytes, kPlaces).value();
  EXPECT_THAT(SelectFromBuckets(buckets_, kPlaces - 1, {}),
              StatusIs(kInvalid, "70 rows for 69 places"));
  EXPECT_THAT(SelectFromTable(rows_, kPlaces - 1, {}), StatusIs(kInvalid, "70 rows for 69 places"));
  EXPECT_THAT(SelectFromBuckets(buckets_, kMaxBucketPlaces + 1, {}),
              StatusIs(kInvalid, "at most 1048576"));
  EXPECT_THAT(SelectFromBuckets({}, kPlaces, {{good}}), StatusIs(kInvalid, "bucket 0 of 0"));
  SHOAL_EXPECT_OK(SelectFromBuckets({}, kPlaces, {}));
}

// For each visit a bucket and its queries, 1, 4 or 16; for each bucket two numbers.
TEST(ScheduleBytesTest, FollowFromTheNumbers) {
  EXPECT_EQ(ScheduleBytes(40, 0), 8u * (40 * (1 + 1) + 2 * 40));
  EXPECT_EQ(ScheduleBytes(40, 100'000), 8u * ((40 + 100'000 / 16) * (1 + 16) + 2 * 40));
}

TEST(SelectionBytesTest, AreWholeWords) {
  EXPECT_EQ(SelectionBytes(0), 0u);
  EXPECT_EQ(SelectionBytes(1), 8u);
  EXPECT_EQ(SelectionBytes(64), 8u);
  EXPECT_EQ(SelectionBytes(65), 16u);
  EXPECT_EQ(SelectionBytes(1024), 128u);
  EXPECT_EQ(SelectionBytes(SIZE_MAX), size_t{1} << 61);
}

}  // namespace
}  // namespace shoal::select
