// Lookups of many keys by batches over chunks: every wanted record comes, how many queries are sent
// depends on the number of keys alone, and the plan's probability of an overflow is a bound.
#include "src/pir/lwe/batch.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/family.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::lwe {
namespace {

// Here `testing` is shoal::testing, not shoal::pir::testing.
namespace testing = shoal::testing;
using pir::testing::Records;
using testing::StatusIs;
using testing::TestRandom;

// What a server sees of a lookup.
using Seen = std::vector<std::tuple<uint32_t, uint32_t, size_t, uint64_t>>;

struct Bench {
  Bench(const Engine& engine, uint64_t rows, uint32_t record_bytes, uint64_t rows_per_column)
      : records(rows, record_bytes) {
    pir::ServerOptions options;
    wire::PirSetup shape = *engine.ShapeOf(records.content(), {});
    shape.set_rows_per_column(rows_per_column);
    shape.set_columns((rows / rows_per_column / 64 + 1) * 64);
    options.shape = shape;
    server = *engine.CreateServer(records.content(), options);
    session = *engine.OpenSession({&server->setup(), 1}, {});
    EXPECT_EQ(session->needed(0), Session::Need::kHint);
    EXPECT_THAT(session->TakeHint(server->hint()), testing::IsOk());
    EXPECT_EQ(session->needed(0), Session::Need::kNothing);
  }

  // Looks the rows up and compares the records.
  Seen LookUp(const std::vector<uint64_t>& rows, uint64_t keys, bool spread) {
    Seen seen;
    const auto batch = session->Ask({.rows = rows, .keys = keys, .spread = spread});
    EXPECT_THAT(batch, testing::IsOk());
    for (uint64_t left = (*batch)->steps(); left > 0; --left) {
      EXPECT_EQ((*batch)->steps(), left);
      const std::vector<Request> requests = *(*batch)->Next(random);
      EXPECT_EQ(requests.size(), 1u);
      const Request& request = requests[0];
      seen.push_back({request.kind, request.count, request.body.size(), request.answer_bytes});
      const RequestView view = {request.kind, request.count, request.body};
      const auto answers = server->Answer(request.role, {&view, 1});
      EXPECT_THAT(answers[0], testing::IsOk());
      EXPECT_EQ(answers[0]->size(), request.answer_bytes);
      const BytesView answer = *answers[0];
      EXPECT_THAT((*batch)->Finish({&answer, 1}), testing::IsOk());
    }
    const auto found = (*batch)->TakeRecords();
    Bytes expected;
    for (const uint64_t row : rows) Append(expected, records.at(row));
    EXPECT_TRUE(std::ranges::equal(found, expected));
    return seen;
  }
  std::vector<uint64_t> RandomRows(uint64_t n, uint64_t below) {
    std::set<uint64_t> rows;
    while (rows.size() < n) rows.insert(random.Below(below));
    return {rows.begin(), rows.end()};
  }

  TestRandom random{7};
  Records records;
  std::unique_ptr<pir::Server> server;
  std::unique_ptr<Session> session;
};

// Many rows in few columns: answers are long, so that chunks save much even in a small table.
constexpr uint64_t kRows = 24'000, kRowsPerColumn = 400;

uint64_t BatchesIn(const Seen& seen) {
  return static_cast<uint64_t>(std::ranges::count_if(
      seen, [](const auto& request) { return std::get<0>(request) == kBatchOverChunks; }));
}

TEST(BatchTest, EveryRecordComesAndOnlyTheNumberOfKeysIsSeen) {
  Bench bench(SimplePir(), kRows, 8, kRowsPerColumn);
  constexpr uint64_t kKeys = 300;
  const Seen expected = bench.LookUp(bench.RandomRows(kKeys, kRows), kKeys, true);
  EXPECT_GT(BatchesIn(expected), 0u);
  // Other rows, few rows, no row.
  EXPECT_EQ(bench.LookUp(bench.RandomRows(kKeys, kRows), kKeys, true), expected);
  EXPECT_EQ(bench.LookUp(bench.RandomRows(10, kRows), kKeys, true), expected);
  EXPECT_EQ(bench.LookUp({}, kKeys, true), expected);
  // Without a hash that spreads the keys: a whole query for each.
  const Seen whole = bench.LookUp(bench.RandomRows(kKeys, kRows), kKeys, false);
  EXPECT_EQ(BatchesIn(whole), 0u);
}

// All rows in one chunk: what has no place is asked for by itself, and the batches stay as many.
TEST(BatchTest, KeysWithoutAPlaceGetTheirAnswer) {
  Bench bench(SimplePir(), kRows, 8, kRowsPerColumn);
  std::vector<uint64_t> together;  // the first blocks of every column
  for (uint64_t i = 0; i < 200; ++i) together.push_back(i / 4 * kRowsPerColumn + i % 4);
  const Seen crowded = bench.LookUp(together, 200, true);
  const Seen spread = bench.LookUp(bench.RandomRows(200, kRows), 200, true);
  EXPECT_GT(BatchesIn(spread), 0u);
  EXPECT_EQ(BatchesIn(crowded), BatchesIn(spread));
  EXPECT_GT(crowded.size(), spread.size());
}

TEST(BatchTest, FewKeysAreWholeQueries) {
  Bench bench(SimplePir(), 4000, 2, 40);
  for (const uint64_t keys : {1, 2, 5}) {
    EXPECT_EQ(BatchesIn(bench.LookUp(bench.RandomRows(keys, 4000), keys, true)), 0u);
  }
  EXPECT_THAT(bench.session->Ask({.rows = std::vector<uint64_t>{4000}, .keys = 1}),
              StatusIs(absl::StatusCode::kOutOfRange, "row 4000"));
}

// A gigabyte in rows of a kilobyte: the server passes less and clients send no more than twice.
TEST(BatchTest, PlansAreCheaperAndSafe) {
  Content content = Records(1, 1024).content();
  content.rows = uint64_t{1} << 20;
  const wire::PirSetup shape = SimplePir().ShapeOf(content, {}).value();
  const Sizes sizes = SimplePir().SizesOfShape(shape).value();
  for (const uint64_t keys : {256, 1000, 10'000, 200'000}) {
    SCOPED_TRACE(keys);
    const BatchPlan plan = PlanBatch(shape, sizes, keys, true);
    ASSERT_GT(plan.batches, 0u);
    EXPECT_LT(static_cast<double>(plan.batches) + 0.45 * static_cast<double>(plan.whole),
              0.5 * 0.45 * static_cast<double>(keys) * (keys < 500 ? 1.6 : 1));
    EXPECT_LT(plan.batches * plan.chunks + plan.whole, 2 * keys + 64);
    EXPECT_LE(OverflowLog2(shape, keys, plan.batches, plan.chunks, plan.whole), kOverflowLog2);
  }
  EXPECT_EQ(PlanBatch(shape, sizes, 4, true).batches, 0u);
  EXPECT_EQ(PlanBatch(shape, sizes, 1000, false).batches, 0u);
}

// The bound against drawn rows: at failure probabilities that trials can see, overflows are rarer.
TEST(BatchTest, OverflowsAreRarerThanTheBound) {
  Content content = Records(1, 64).content();
  content.rows = 16'000;
  wire::PirSetup shape = SimplePir().ShapeOf(content, {}).value();
  shape.set_rows_per_column(32);
  shape.set_columns(512);
  TestRandom random(3);
  constexpr uint64_t kKeys = 160, kChunks = 16, kBatches = 10;
  std::vector<uint64_t> seen(kKeys + 1);
  constexpr int kTrials = 20'000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<uint64_t> loads(kChunks);
    for (uint64_t i = 0; i < kKeys; ++i) ++loads[ChunkOf(shape, kChunks, random.Below(16'000))];
    uint64_t over = 0;
    for (const uint64_t load : loads) over += load > kBatches ? load - kBatches : 0;
    ++seen[over];
  }
  bool compared = false;
  for (uint64_t whole = 0; whole < kKeys; ++whole) {
    const double above = static_cast<double>(
        std::accumulate(seen.begin() + static_cast<ptrdiff_t>(whole) + 1, seen.end(), uint64_t{0}));
    const double bound = OverflowLog2(shape, kKeys, kBatches, kChunks, whole);
    EXPECT_LE(above / kTrials, std::exp2(bound) * 1.05 + 1e-9) << whole;
    compared |= above > 0 && bound < -2;
  }
  EXPECT_TRUE(compared);
}

TEST(BatchTest, BadRequestsAreRefused) {
  Bench bench(SimplePir(), kRows, 8, kRowsPerColumn);
  const auto batch = *bench.session->Ask({.rows = {}, .keys = 300, .spread = true});
  const Request request = (*batch->Next(bench.random))[0];
  ASSERT_EQ(request.kind, kBatchOverChunks);
  const auto answer = [&](Role role, const RequestView& view) {
    return bench.server->Answer(role, {&view, 1})[0].status();
  };
  const RequestView good = {request.kind, request.count, request.body};
  EXPECT_THAT(answer(Role::kSingle, good), testing::IsOk());
  EXPECT_THAT(answer(Role::kOnline, good),
              StatusIs(absl::StatusCode::kInvalidArgument, "single server"));
  for (const RequestView& bad :
       {RequestView{2, good.count, good.body}, RequestView{good.kind, 0, good.body},
        RequestView{good.kind, good.count - 1, good.body},
        RequestView{good.kind, good.count, good.body.first(good.body.size() - 1)},
        RequestView{good.kind, good.count, good.body.first(0)}}) {
    EXPECT_THAT(answer(Role::kSingle, bad), StatusIs(absl::StatusCode::kInvalidArgument, ""));
  }
  // An answer of another length is refused, and the right one is taken afterwards.
  Bytes bytes(request.answer_bytes - 1);
  BytesView view = bytes;
  EXPECT_THAT(batch->Finish({&view, 1}), StatusIs(absl::StatusCode::kInvalidArgument, "not"));
  bytes.resize(request.answer_bytes);
  view = bytes;
  EXPECT_THAT(batch->Finish({&view, 1}), testing::IsOk());
}

}  // namespace
}  // namespace shoal::pir::lwe
