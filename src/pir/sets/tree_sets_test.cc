#include "src/pir/sets/tree_sets.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/sanitized.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/sets/tree_kernel.h"

namespace shoal::pir::sets {
namespace {

using testing::StatusIs;
using testing::TestRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

// A shape with as many hints as a test wants.
TreeShape ShapeOf(uint64_t rows, uint32_t record_bytes, uint32_t offset_bits, uint32_t fan_bits,
                  uint32_t hints) {
  TreeShape shape = {.rows = rows, .record_bytes = record_bytes, .offset_bits = offset_bits};
  shape.chunks = static_cast<uint32_t>(((rows - 1) >> offset_bits) + 1);
  while (uint64_t{1} << shape.leaf_bits < shape.chunks) ++shape.leaf_bits;
  shape.fan_bits = fan_bits;
  shape.hints = hints;
  SHOAL_EXPECT_OK(CheckTreeShape(shape));
  return shape;
}

// Rows, and the zeros behind them.
Bytes TableOf(const TreeShape& shape) {
  Bytes table(shape.table_bytes());
  TestRandom(shape.rows).Fill(MutableBytes(table).first(shape.rows * shape.record_bytes));
  return table;
}

BytesView RowOf(const TreeShape& shape, BytesView table, uint64_t row) {
  return table.subspan(row * shape.record_bytes, shape.record_bytes);
}

SecretArray<16> KeyOf(uint64_t number) {
  SecretArray<16> key;
  TestRandom(number).Fill(key.mutable_view());
  return key;
}

Seed SeedOf(uint64_t number) {
  Seed seed;
  TestRandom(number).Fill(seed.mutable_view());
  return seed;
}

// A client and its servers in one place.
struct Deployment {
  explicit Deployment(const TreeShape& of, uint64_t number = 1)
      : shape(of),
        table(TableOf(of)),
        seed(DeriveTreeKeys(of, SeedOf(number)).seed.Clone()),
        function(of, DeriveTreeKeys(of, SeedOf(number))),
        hints(of, &function),
        online(of.query_bytes()),
        offline(of.query_bytes()) {
    Bytes parities(of.parity_bytes());
    MakeTreeParities(of, table, seed, 0, parities, nullptr);
    SHOAL_EXPECT_OK(hints.TakeParities(parities));
  }

  void Ask(uint64_t row) {
    const auto from = static_cast<uint32_t>(random.Below(shape.hints));
    SHOAL_EXPECT_OK(hints.Ask(row, from, online, offline));
  }
  Bytes Answer(BytesView query) const {
    std::vector<uint32_t> offsets(shape.query_offsets());
    SHOAL_EXPECT_OK(ExpandTreeQuery(shape, query, offsets));
    Bytes answer(shape.answer_bytes());
    AnswerTreeQuery(shape, table, offsets, answer);
    return answer;
  }
  // Whether a hint held the row; then the record is the right one.
  bool Fetch(uint64_t row) {
    Ask(row);
    Bytes record(shape.record_bytes, 0xaa);
    const auto finished = hints.Finish(Answer(online), Answer(offline), record);
    SHOAL_EXPECT_OK(finished.status());
    const bool held = finished.value_or(false);
    const Bytes expected = held ? ToBytes(RowOf(shape, table, row)) : Bytes(shape.record_bytes);
    EXPECT_EQ(record, expected) << "row " << row;
    return held;
  }

  const TreeShape shape;
  const Bytes table;
  const SecretArray<16> seed;
  const TreeFunction function;
  TreeHints hints;
  Bytes online, offline;
  TestRandom random{5};
};

// ---- What the servers see ----

// All sets of a small table: their leaves and shifts are taken from the bits of a number, which
// tests count up. In place of a pseudorandom block stands what follows from it: all leaves below.
class AllTrees final : public TreeSource {
 public:
  AllTrees(const TreeShape& shape, uint64_t bits) : shape_(shape), bits_(bits) {}
  void Draw(uint64_t first, std::span<TreeBlock> roots, std::span<uint32_t> shifts) const override {
    for (size_t i = 0; i < roots.size(); ++i) {
      roots[i] = {};
      StoreLe<uint64_t>(roots[i].bytes.data(), first + i);
      shifts[i] = Number(first + i, 1u << shape_.leaf_bits);
    }
  }
  void LeavesOf(uint32_t leaf, std::span<const TreeBlock> roots,
                std::span<uint32_t> out) const override {
    for (size_t i = 0; i < roots.size(); ++i) {
      out[i] = Number(LoadLe<uint64_t>(roots[i].bytes.data()), leaf);
    }
  }
  TreeBlock NodeOf(const TreeBlock& root, uint32_t level, uint32_t node) const override {
    const uint32_t leaves = 1u << shape_.BitsBelow(level);
    EXPECT_LE(leaves, 16u);
    TreeBlock block = {};
    for (uint32_t i = 0; i < leaves; ++i) {
      block.bytes[i] =
          static_cast<uint8_t>(Number(LoadLe<uint64_t>(root.bytes.data()), node * leaves + i));
    }
    return block;
  }

  // What ExpandTreeQuery does for true blocks: the offsets before the shift, and behind them the
  // shift. This is all that a query says.
  static std::vector<uint32_t> Read(const TreeShape& shape, BytesView query) {
    std::vector<uint32_t> all;
    size_t at = 0;
    for (uint32_t level = 0; level + 1 < shape.levels(); ++level) {
      for (uint32_t i = 0; i + 1 < shape.Fan(level); ++i, at += 16) {
        for (uint32_t x = 0; x < 1u << shape.BitsBelow(level); ++x) all.push_back(query[at + x]);
      }
    }
    uint64_t bits = 0;
    for (size_t i = at; i < query.size(); ++i) bits |= uint64_t{query[i]} << (8 * (i - at));
    for (uint32_t i = 0; i <= shape.query_leaves(); ++i, bits >>= shape.offset_bits) {
      all.push_back(static_cast<uint32_t>(bits) & shape.offset_mask());
    }
    EXPECT_EQ(all.size(), shape.query_offsets() + 1);
    return all;
  }

  // Of the hints' sets, and of those of so many queries.
  static uint32_t BitsOf(const TreeShape& shape, uint64_t queries) {
    return static_cast<uint32_t>(shape.offset_bits * FirstOf(shape, shape.hints + 2 * queries));
  }

 private:
  // Where the numbers of a set begin: its leaves, and its shift. The first set of a query gets
  // another shift, so that there is none for it.
  static uint64_t FirstOf(const TreeShape& shape, uint64_t set) {
    const uint64_t leaves = uint64_t{1} << shape.leaf_bits;
    const uint64_t without = set > shape.hints ? (set - shape.hints + 1) / 2 : 0;
    return set * (leaves + 1) - without;
  }
  uint32_t Number(uint64_t set, uint32_t which) const {
    if (which == 1u << shape_.leaf_bits && set >= shape_.hints && (set - shape_.hints) % 2 == 0) {
      return 0;
    }
    return static_cast<uint32_t>(bits_ >> (FirstOf(shape_, set) + which) * shape_.offset_bits) &
           shape_.offset_mask();
  }
  const TreeShape shape_;
  const uint64_t bits_;
};

// Goes through all that can happen in the first queries to a small table: each row asked for, each
// place from which the hints are looked at, all sets. Counts each server's views of each sequence
// of rows and places; the offline server's view begins with all that it knows of the hints.
class Enumeration {
 public:
  Enumeration(const TreeShape& shape, uint32_t queries)
      : shape_(shape), queries_(kSanitized ? 1 : queries) {
    for (uint64_t row = 0; row < shape.rows; ++row)
      table_.push_back(static_cast<uint8_t>(1 << row));
    table_.resize(shape.table_bytes());
  }

  void ExpectUniform() {
    const uint32_t known = AllTrees::BitsOf(shape_, 0), all = AllTrees::BitsOf(shape_, queries_);
    for (uint64_t bits = 0; bits < uint64_t{1} << all; ++bits) {
      const AllTrees source(shape_, bits);
      TreeHints hints(shape_, &source);
      SHOAL_EXPECT_OK(hints.TakeParities(ParitiesOf(source)));
      Count(hints, 0, 0, bits & ((uint64_t{1} << known) - 1), queries_);
    }
    EXPECT_EQ(wrong_, 0u);
    uint64_t sequences = 1;
    for (uint32_t i = 0; i < queries_; ++i) sequences *= shape_.rows * shape_.hints;
    const uint64_t outcomes = uint64_t{1} << all;
    const uint64_t views = uint64_t{1} << (queries_ * shape_.offset_bits << shape_.leaf_bits);
    ExpectEven(online_, sequences, outcomes, views);
    ExpectEven(offline_, sequences, outcomes, views << known);
  }

 private:
  // By rows and places, and by views.
  using Seen = std::map<std::pair<uint64_t, uint64_t>, uint64_t>;

  static void ExpectEven(const Seen& seen, uint64_t sequences, uint64_t outcomes, uint64_t views) {
    EXPECT_EQ(seen.size(), sequences * views);
    for (const auto& [which, times] : seen) {
      ASSERT_EQ(times * views, outcomes)
          << "rows and places " << which.first << ", view " << which.second;
    }
  }

  Bytes ParitiesOf(const AllTrees& source) const {
    Bytes parities(shape_.hints);
    for (uint32_t i = 0; i < shape_.hints; ++i) {
      std::array<TreeBlock, 1> root;
      std::array<uint32_t, 1> shift, leaf;
      source.Draw(i, root, shift);
      for (uint32_t c = 0; c < shape_.chunks; ++c) {
        source.LeavesOf(c, root, leaf);
        parities[i] ^= table_[(c << shape_.offset_bits) + (leaf[0] ^ shift[0])];
      }
    }
    return parities;
  }

  uint64_t Add(uint64_t view, BytesView query) const {
    for (const uint32_t number : AllTrees::Read(shape_, query)) {
      view = view << shape_.offset_bits | number;
    }
    return view;
  }

  void AnswerTo(BytesView query, MutableBytes answer) const {
    std::vector<uint32_t> offsets = AllTrees::Read(shape_, query);
    for (uint32_t& offset : offsets) offset ^= offsets.back();
    offsets.pop_back();
    AnswerTreeQuery(shape_, table_, offsets, answer);
  }

  void Count(const TreeHints& hints, uint64_t rows, uint64_t online, uint64_t offline,
             uint32_t left) {
    if (left == 0) {
      ++online_[{rows, online}];
      ++offline_[{rows, offline}];
      return;
    }
    Bytes sent[2] = {Bytes(shape_.query_bytes()), Bytes(shape_.query_bytes())};
    Bytes answers[2] = {Bytes(shape_.answer_bytes()), Bytes(shape_.answer_bytes())};
    for (uint64_t way = 0; way < shape_.rows * shape_.hints; ++way) {
      const uint64_t row = way / shape_.hints;
      TreeHints next = hints.Clone();
      wrong_ += !next.Ask(row, static_cast<uint32_t>(way % shape_.hints), sent[0], sent[1]).ok();
      AnswerTo(sent[0], answers[0]);
      AnswerTo(sent[1], answers[1]);
      std::array<uint8_t, 1> record;
      const bool held = next.Finish(answers[0], answers[1], record).value_or(false);
      wrong_ += record[0] != (held ? table_[row] : 0);
      Count(next, rows * shape_.rows * shape_.hints + way, Add(online, sent[0]),
            Add(offline, sent[1]), left - 1);
    }
  }

  const TreeShape shape_;
  const uint32_t queries_;
  Bytes table_;
  Seen online_, offline_;
  uint64_t wrong_ = 0;
};

// The theorem of docs/tree-sets.md for small tables: whatever rows are asked for, each sequence of
// queries that one server can see is the outcome of as many choices of all sets as any other; and
// for the offline server so is each one together with the hints' sets, which it knows. Two chunks
// of two rows have hints that are asked for, rows that no hint holds, and hints that came with a
// query.
TEST(TreeSetsTest, EachServersViewsAreUniformWhateverIsAsked) {
  Enumeration(ShapeOf(4, 1, 1, 1, 2), 2).ExpectUniform();
}
// A tree of two levels, and the same leaves below one node; one chunk is not there.
TEST(TreeSetsTest, EachServersViewsAreUniformForTreesOfAnyWidth) {
  Enumeration(ShapeOf(6, 1, 1, 1, 1), 1).ExpectUniform();
  Enumeration(ShapeOf(7, 1, 1, 2, 1), 1).ExpectUniform();
}
// What became of the hint after the second query; offsets of more than a bit; and the last chunk is
// filled up with zeros.
TEST(TreeSetsTest, EachServersViewsOfMoreQueriesAreUniform) {
  Enumeration(ShapeOf(2, 1, 1, 1, 2), 3).ExpectUniform();
  Enumeration(ShapeOf(3, 1, 2, 1, 1), 2).ExpectUniform();
  Enumeration(ShapeOf(3, 1, 1, 1, 1), 2).ExpectUniform();
}

// Which leaf was left out decides where blocks stand, and nothing else about them: for each leaf
// the blocks and leaves are those of the tree without it.
TEST(TreeSetsTest, AQueryIsATreeWithoutALeaf) {
  const TreeShape shape = ShapeOf(8, 1, 0, 1, 1);
  // With one row a chunk offsets say nothing; look at the blocks.
  Deployment deployment(shape);
  std::array<TreeBlock, 1> root;
  std::array<uint32_t, 1> shift;
  deployment.function.Draw(0, root, shift);
  for (uint32_t leaf = 0; leaf < 8; ++leaf) {
    Deployment fresh(shape);
    SHOAL_ASSERT_OK(fresh.hints.Ask(leaf, 0, fresh.online, fresh.offline));
    ASSERT_EQ(fresh.online.size(), 32u);
    const std::array<TreeBlock, 2> expected = {
        deployment.function.NodeOf(root[0], 0, leaf < 4 ? 1 : 0),
        deployment.function.NodeOf(root[0], 1, leaf / 2 ^ 1)};
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(
          std::ranges::equal(expected[i].bytes, BytesView(fresh.online).subspan(16 * i, 16)))
          << leaf << " " << i;
    }
  }
}

// Why both servers together learn everything: the offline one knows the sets, and finds the one
// whose leaves the online one was sent.
TEST(TreeSetsTest, BothServersTogetherLearnTheRow) {
  const TreeShape shape = ShapeOf(64, 8, 3, 1, 400);
  Deployment deployment(shape);
  constexpr uint64_t kRow = 37;
  SHOAL_ASSERT_OK(deployment.hints.Ask(kRow, 123, deployment.online, deployment.offline));
  std::vector<TreeBlock> roots(shape.hints);
  std::vector<uint32_t> shifts(shape.hints);
  TreeFunction(shape, {.seed = deployment.seed.Clone(), .own = KeyOf(77)}).Draw(0, roots, shifts);
  std::set<uint64_t> rows;
  for (uint32_t i = 0; i < shape.hints; ++i) {
    for (uint32_t half = 0; half < 2; ++half) {
      const TreeBlock node = deployment.function.NodeOf(roots[i], 0, half);
      if (!std::ranges::equal(node.bytes, BytesView(deployment.online).first(16))) continue;
      // The leaf left out is below the other half. The next block tells the quarter.
      for (uint32_t quarter = 0; quarter < 2; ++quarter) {
        const uint32_t at = 2 * (half ^ 1) + quarter;
        const TreeBlock next = deployment.function.NodeOf(roots[i], 1, at);
        if (!std::ranges::equal(next.bytes, BytesView(deployment.online).subspan(16, 16))) continue;
        for (uint32_t chunk = 2 * (at ^ 1); chunk < 2 * (at ^ 1) + 2; ++chunk) {
          std::array<uint32_t, 1> leaf;
          deployment.function.LeavesOf(chunk, std::span(roots).subspan(i, 1), leaf);
          rows.insert(chunk * 8 + (leaf[0] ^ shifts[i]));
        }
      }
    }
  }
  EXPECT_LE(rows.size(), 2u);  // the last leaf, of three bits, tells which
  EXPECT_TRUE(rows.contains(kRow));
}

// ---- What comes back ----

class TreeSessionTest : public ::testing::TestWithParam<std::tuple<uint64_t, uint32_t>> {};

// Any number of rows, of any width, and trees of any width: every row comes back; more queries are
// made than there are hints.
TEST_P(TreeSessionTest, RecordsComeBack) {
  const auto [rows, fan_bits] = GetParam();
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape shape, TreeShapeFor(rows, 21, 1 << 20, fan_bits));
  EXPECT_GE(shape.chunks * shape.chunk_rows(), rows);
  Deployment deployment(shape);
  TestRandom random(7);
  for (uint64_t i = 0; i < 150; ++i) {
    // The ends of the table, few rows again and again, then others.
    const uint64_t row = i < 40   ? (i % 2 == 0 ? 0 : rows - 1)
                         : i < 80 ? i % std::min<uint64_t>(3, rows)
                                  : random.U64() % rows;
    ASSERT_TRUE(deployment.Fetch(row)) << i;
  }
  EXPECT_EQ(deployment.hints.queries(), 150u);
}
INSTANTIATE_TEST_SUITE_P(Rows, TreeSessionTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 64, 1000, 4097),
                                            ::testing::Values(0, 1, 2, 3, 12)));

TEST(TreeSetsTest, HintsLastForEver) {
  // 85 hints and 2,000 queries.
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape shape, TreeShapeFor(4, 5, 1 << 20));
  ASSERT_LT(shape.hints, 100u);
  Deployment deployment(shape);
  for (uint64_t i = 0; i < 2000; ++i) ASSERT_TRUE(deployment.Fetch(i * i % 4)) << i;
}

// Sizes that the authors' prototype keeps in 16 bits, or takes for powers of four; a process-wide
// height would be that of the table made last.
TEST(TreeSetsTest, SizesAreAnyAndEachTableHasItsOwn) {
  std::vector<std::unique_ptr<Deployment>> deployments;
  // Chunks of 2^17 rows; more than 2^16 chunks; an odd power of two; both numbers odd.
  for (const TreeShape& shape :
       {ShapeOf((1 << 18) + 5, 1, 17, 1, 40), ShapeOf(140'001, 1, 1, 9, 60),
        ShapeOf(1 << 11, 3, 5, 3, 600), ShapeOf(777, 13, 4, 5, 300)}) {
    deployments.push_back(std::make_unique<Deployment>(shape));
  }
  for (const auto& deployment : deployments) {
    const TreeShape& shape = deployment->shape;
    int held = 0;
    for (uint64_t row = 0; row < 30; ++row) {
      held += deployment->Fetch(row % 2 == 0 ? row : shape.rows - 1 - row);
    }
    if (shape.offset_bits < 17) {
      EXPECT_EQ(held, 30);
    }
  }
  // A row that a hint of the table with large chunks holds, far behind 2^16.
  Deployment& large = *deployments[0];
  std::vector<TreeBlock> roots(40);
  std::vector<uint32_t> shifts(40), leaves(40);
  large.function.Draw(0, roots, shifts);
  large.function.LeavesOf(1, roots, leaves);
  int above = 0;
  for (int i = 0; i < 40; ++i) {
    const uint32_t offset = leaves[i] ^ shifts[i];
    above += offset >= 1 << 16;
    EXPECT_TRUE(large.Fetch((1 << 17) + offset));
  }
  EXPECT_GT(above, 8);
  EXPECT_LT(above, 32);
}

// The prototype sends nothing (and its caller fails) where no set matches, and its dummy query is
// one set for both servers.
TEST(TreeSetsTest, ARowThatNoHintHoldsCostsQueriesThatLookLikeAnyOther) {
  const TreeShape shape = ShapeOf(64, 8, 3, 2, 1);
  Deployment deployment(shape);
  int held = 0;
  std::set<std::string> seen[2];  // at each server
  std::array<int, 8> last = {};
  for (uint64_t i = 0; i < 400; ++i) {
    held += deployment.Fetch(i % 64);
    EXPECT_EQ(deployment.hints.queries(), i + 1);
    // The two servers are sent two sets.
    EXPECT_NE(ToString(BytesView(deployment.online).first(16)),
              ToString(BytesView(deployment.offline).first(16)));
    for (int server = 0; server < 2; ++server) {
      const Bytes& query = server == 0 ? deployment.online : deployment.offline;
      ASSERT_EQ(query.size(), shape.query_bytes());
      // No server sees a block of a set again.
      EXPECT_TRUE(seen[server].insert(ToString(BytesView(query).first(16))).second) << i;
      std::vector<uint32_t> offsets(shape.query_offsets());
      SHOAL_ASSERT_OK(ExpandTreeQuery(shape, query, offsets));
      ++last[offsets.back()];
    }
  }
  // One hint holds one row in 8.
  EXPECT_GT(held, 20);
  EXPECT_LT(held, 90);
  for (const int times : last) EXPECT_NEAR(times, 100, 45);
}

TEST(TreeSetsTest, QueriesAreRefusedUntilTheyCanBeMade) {
  const TreeShape shape = ShapeOf(64, 8, 3, 1, 10);
  const TreeFunction function(shape, DeriveTreeKeys(shape, SeedOf(1)));
  TreeHints hints(shape, &function);
  Bytes online(shape.query_bytes()), offline(shape.query_bytes()), record(8, 7);
  const Bytes parities(shape.parity_bytes()), answer(shape.answer_bytes());
  EXPECT_THAT(hints.Ask(0, 0, online, offline), StatusIs(kPrecondition, "not all hints"));
  SHOAL_ASSERT_OK(hints.TakeParities(BytesView(parities).first(24)));
  EXPECT_EQ(hints.parities_taken(), 3u);
  EXPECT_THAT(hints.TakeParities(BytesView(parities).first(25)), StatusIs(kInvalid, "25 bytes"));
  EXPECT_THAT(hints.TakeParities(BytesView(parities).first(64)), StatusIs(kInvalid, "64 bytes"));
  EXPECT_EQ(hints.parities_taken(), 3u);
  EXPECT_THAT(hints.Ask(0, 0, online, offline), StatusIs(kPrecondition, "not all hints"));
  SHOAL_ASSERT_OK(hints.TakeParities(BytesView(parities).first(56)));
  SHOAL_EXPECT_OK(hints.TakeParities({}));
  EXPECT_THAT(hints.TakeParities(BytesView(parities).first(8)), StatusIs(kInvalid, "8 bytes"));
  EXPECT_THAT(hints.Ask(64, 0, online, offline),
              StatusIs(absl::StatusCode::kOutOfRange, "no such row"));
  EXPECT_THAT(hints.Finish(answer, answer, record), StatusIs(kPrecondition, "no query waits"));
  EXPECT_THAT(hints.AskAgain(online, offline), StatusIs(kPrecondition, "no query waits"));
  EXPECT_EQ(hints.queries(), 0u);
  SHOAL_ASSERT_OK(hints.Ask(63, 9, online, offline));
  ASSERT_TRUE(hints.asked().has_value());
  // One hint would serve both queries.
  EXPECT_THAT(hints.Ask(63, 9, online, offline), StatusIs(kPrecondition, "not finished"));
  EXPECT_EQ(hints.queries(), 1u);
  // Answers of another length change nothing: the right ones are taken behind them.
  for (const int server : {0, 1}) {
    for (const size_t bytes : {size_t{0}, answer.size() - 1, answer.size() + 1}) {
      const Bytes bad(bytes);
      EXPECT_THAT(hints.Finish(server == 0 ? bad : answer, server == 1 ? bad : answer, record),
                  StatusIs(kInvalid, "bytes instead of"));
      EXPECT_EQ(record, Bytes(8, 7));
    }
  }
  SHOAL_EXPECT_OK(hints.Finish(answer, answer, record).status());
  SHOAL_EXPECT_OK(hints.Ask(63, 9, online, offline));
}

// A client that made hints anew and kept its key sends no set to the offline server again, whatever
// the number of hints: keys are those of a shape, and a key's sets have their own numbers.
TEST(TreeSetsTest, NoSetIsSentTwiceWhateverTheNumberOfHints) {
  // By either server: a set that the offline one has seen becomes a hint, and goes to the other
  // one.
  std::set<std::string> seen[2];
  for (const uint32_t hints : {10, 8, 7, 1}) {
    Deployment deployment(ShapeOf(64, 8, 3, 2, hints));
    for (uint64_t i = 0; i < 40; ++i) {
      deployment.Fetch(i);
      const Bytes* const queries[] = {&deployment.online, &deployment.offline};
      for (const int server : {0, 1}) {
        EXPECT_TRUE(seen[server].insert(ToString(BytesView(*queries[server]).first(16))).second)
            << hints << " " << i;
      }
    }
  }
  // The same key for both would let the offline server know all sets.
  const TreeShape shape = ShapeOf(64, 8, 3, 2, 10), smaller = ShapeOf(64, 8, 3, 2, 8);
  EXPECT_DEATH(TreeFunction(shape, {.seed = KeyOf(1), .own = KeyOf(1)}), "");
  // Sets of one key have one number, so that none has two.
  std::array<TreeBlock, 3> roots, same;
  std::array<uint32_t, 3> shifts;
  TreeFunction(shape, {.seed = KeyOf(1), .own = KeyOf(2)}).Draw(10, roots, shifts);
  TreeFunction(smaller, {.seed = KeyOf(3), .own = KeyOf(2)}).Draw(8, same, shifts);
  EXPECT_EQ(roots, same);
}
static_assert(!std::is_copy_constructible_v<TreeHints> && !std::is_copy_assignable_v<TreeHints> &&
              !std::is_move_constructible_v<TreeHints> && !std::is_move_assignable_v<TreeHints>);

// More hints than are looked at together, and the search begins anywhere.
TEST(TreeSetsTest, ThousandsOfHintsAreSearched) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape shape, TreeShapeFor(60'000, 3, 1 << 20));
  ASSERT_GT(shape.hints, 2u * 4096);
  Deployment deployment(shape);
  std::vector<TreeBlock> roots(shape.hints);
  std::vector<uint32_t> shifts(shape.hints), leaves(shape.hints);
  deployment.function.Draw(0, roots, shifts);
  int pieces[3] = {}, round = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    const uint64_t row = i * 997 % shape.rows;
    const auto from = i % 10 == 9 ? shape.hints - 1 : static_cast<uint32_t>(i * 4093 % shape.hints);
    // The first one that holds the row, round the end.
    deployment.function.LeavesOf(shape.ChunkOf(row), roots, leaves);
    uint32_t expected = shape.hints;
    for (uint32_t step = 0; step < shape.hints && expected == shape.hints; ++step) {
      const uint32_t at = (from + step) % shape.hints;
      if ((leaves[at] ^ shifts[at]) == shape.OffsetOf(row)) expected = at;
    }
    ASSERT_LT(expected, shape.hints);
    SHOAL_ASSERT_OK(deployment.hints.Ask(row, from, deployment.online, deployment.offline));
    ASSERT_EQ(deployment.hints.asked()->hint, expected) << i;
    ++pieces[std::min(expected / 4096, 2u)];
    round += expected < from;
    Bytes record(shape.record_bytes);
    const Bytes online = deployment.Answer(deployment.online);
    const Bytes offline = deployment.Answer(deployment.offline);
    SHOAL_ASSERT_OK(deployment.hints.Finish(online, offline, record).status());
    EXPECT_EQ(record, ToBytes(RowOf(shape, deployment.table, row)));
    // The set that is there now holds the row.
    deployment.function.Draw(shape.hints + 2 * i, std::span(roots).subspan(expected, 1),
                             std::span(shifts).subspan(expected, 1));
    deployment.function.LeavesOf(shape.ChunkOf(row), std::span(roots).subspan(expected, 1),
                                 std::span(leaves).first(1));
    shifts[expected] = leaves[0] ^ shape.OffsetOf(row);
  }
  for (const int times : pieces) EXPECT_GT(times, 5);
  EXPECT_GT(round, 0);
}

// What one wrong answer does: the place of its hint is spoilt, and no other one ever is. What is
// sent is the same whatever the answers are.
TEST(TreeSetsTest, AWrongAnswerSpoilsOnePlaceAndNothingSpreads) {
  const TreeShape shape = ShapeOf(256, 8, 4, 2, 500);
  for (const int liar : {0, 1}) {
    Deployment honest(shape), client(shape);
    const auto step = [&](uint64_t row, bool lie) {
      honest.Ask(row);
      client.Ask(row);
      EXPECT_EQ(client.online, honest.online);
      EXPECT_EQ(client.offline, honest.offline);
      Bytes answers[2] = {client.Answer(client.online), client.Answer(client.offline)};
      Bytes record(8), same(8);
      SHOAL_EXPECT_OK(honest.hints.Finish(answers[0], answers[1], same).status());
      if (lie) client.random.Fill(answers[liar]);
      SHOAL_EXPECT_OK(client.hints.Finish(answers[0], answers[1], record).status());
      if (lie) honest.random.Fill(answers[liar]);  // the next places are the same
      EXPECT_EQ(same, ToBytes(RowOf(shape, client.table, row)));
      return record == same;
    };
    const auto spoilt = [&] {
      uint32_t count = 0;
      for (uint32_t i = 0; i < shape.hints; ++i) {
        count += !std::ranges::equal(client.hints.ParityOf(i), honest.hints.ParityOf(i));
      }
      return count;
    };
    // A lying online server is found out at once, and a lying offline one later, if ever.
    EXPECT_EQ(step(77, true), liar == 1);
    EXPECT_EQ(spoilt(), 1u);
    // The same row is asked for again, and then others.
    int failed_again = 0, failed = 0;
    for (int i = 0; i < 30; ++i) failed_again += !step(77, false);
    EXPECT_LT(failed_again, 15);
    for (uint64_t i = 0; i < 3000; ++i) {
      failed += !step(i * 7 % shape.rows, false);
      ASSERT_EQ(spoilt(), 1u);
    }
    // One query in 500 uses the place.
    EXPECT_LT(failed, 30);
    for (int i = 0; i < 5; ++i) step(80, true);
    EXPECT_LE(spoilt(), 6u);
  }
}

// A state and what followed, as a journal has it; and what there is of it that cannot be.
TEST(TreeSetsTest, AStateAndItsJournalAreTheHints) {
  const TreeShape shape = ShapeOf(64, 8, 3, 1, 200);
  Deployment deployment(shape);
  for (uint64_t i = 0; i < 5; ++i) deployment.Fetch(i);
  TreeHints copy(shape, &deployment.function);
  const auto state = [&](const TreeHints& hints) {
    Bytes whole = ToBytes(hints.EncodeHead());
    Append(whole, hints.taken_parities());
    return whole;
  };
  // As a session reads it.
  const auto decode = [&copy](BytesView whole) -> absl::Status {
    const uint64_t least = std::min<uint64_t>(copy.least_head_bytes(), whole.size());
    const uint64_t head = least < copy.least_head_bytes()
                              ? least
                              : copy.HeadBytesOf(whole.first(least)).value_or(least);
    SHOAL_RETURN_IF_ERROR(copy.DecodeHead(whole.first(head), whole.size() - head));
    copy.parities().MakeWhole();
    std::ranges::copy(whole.subspan(head), copy.parities().all().begin());
    return absl::OkStatus();
  };
  SHOAL_ASSERT_OK(decode(state(deployment.hints)));
  EXPECT_EQ(state(copy), state(deployment.hints));
  EXPECT_THAT(copy.RedoFinish(Bytes(8)), StatusIs(kInvalid, "without a query"));
  for (uint64_t i = 0; i < 5; ++i) {
    deployment.Ask(20 + i);
    const TreeHints::Question question = *deployment.hints.asked();
    const auto bad = [&](auto change) {
      TreeHints::Question changed = question;
      change(changed);
      EXPECT_THAT(copy.Redo(changed), StatusIs(kInvalid, "cannot follow"));
    };
    bad([](auto& q) { ++q.query; });
    bad([](auto& q) { q.query = 0; });
    bad([](auto& q) { q.row = 64; });
    bad([](auto& q) { q.hint = 200; });
    SHOAL_ASSERT_OK(copy.Redo(question));
    EXPECT_THAT(copy.Redo(question), StatusIs(kInvalid, "cannot follow"));
    EXPECT_EQ(state(copy), state(deployment.hints));
    // The same bytes are sent again.
    Bytes online(shape.query_bytes()), offline(shape.query_bytes()), record(8);
    SHOAL_ASSERT_OK(copy.AskAgain(online, offline));
    EXPECT_EQ(online, deployment.online);
    EXPECT_EQ(offline, deployment.offline);
    const Bytes answers[2] = {deployment.Answer(online), deployment.Answer(offline)};
    SHOAL_ASSERT_OK(deployment.hints.Finish(answers[0], answers[1], record).status());
    EXPECT_THAT(copy.RedoFinish(Bytes(7)), StatusIs(kInvalid, "without a query"));
    SHOAL_ASSERT_OK(copy.RedoFinish(deployment.hints.ParityOf(question.hint)));
    EXPECT_EQ(state(copy), state(deployment.hints));
  }
  deployment.Ask(3);
  const Bytes good = state(deployment.hints);
  SHOAL_ASSERT_OK(decode(good));
  // Of the number of queries, the XORs taken, whether a query waits, its row, hint, held; a shift.
  for (const size_t at : {7, 11, 12, 20, 24, 25, 26 + 16 * 200 + 1}) {
    Bytes bad = good;
    bad[at] = 0xff;
    EXPECT_THAT(decode(bad), StatusIs(absl::StatusCode::kDataLoss, "malformed")) << at;
  }
  for (const size_t bytes : {size_t{0}, size_t{20}, good.size() - 1, good.size() - 8}) {
    EXPECT_THAT(decode(BytesView(good).first(bytes)),
                StatusIs(absl::StatusCode::kDataLoss, "malformed"))
        << bytes;
  }
  EXPECT_EQ(state(copy), good);
}

// Rows change: hints that hold them are those of the new table.
TEST(TreeSetsTest, HintsFollowChangedRows) {
  const TreeShape shape = ShapeOf(250, 8, 4, 2, 700);
  Deployment deployment(shape);
  for (uint64_t i = 0; i < 50; ++i) deployment.Fetch(i);
  Bytes& table = const_cast<Bytes&>(deployment.table);
  std::vector<Bytes> differences;
  std::vector<RowChange> changes;
  for (const uint64_t row : {0, 1, 15, 16, 100, 249}) {
    differences.push_back(Bytes(8, static_cast<uint8_t>(row + 1)));
    for (size_t i = 0; i < 8; ++i) table[row * 8 + i] ^= differences.back()[i];
    changes.push_back({.row = row, .difference = {}});
  }
  for (size_t i = 0; i < changes.size(); ++i) changes[i].difference = differences[i];
  deployment.hints.Advance({});
  deployment.hints.Advance(changes);
  for (uint64_t i = 0; i < 600; ++i) ASSERT_TRUE(deployment.Fetch(i % 250)) << i;
}

// ---- The servers ----

// The hints' XORs are those of their rows, in pieces of any size, on any number of threads.
TEST(TreeSetsTest, ParitiesAreThoseOfTheirRows) {
  ThreadPool pool(3);
  for (const TreeShape& shape :
       {ShapeOf(1, 4, 0, 1, 3), ShapeOf(1000, 5, 4, 1, 50), ShapeOf(1000, 64, 5, 3, 3000),
        ShapeOf(777, 1, 3, 7, 11), ShapeOf(900, 133, 4, 4, 40),
        // Several groups, on several threads.
        ShapeOf(7, 300'000, 1, 1, 60), ShapeOf(40, 150'001, 3, 3, 200),
        // So many rows in a chunk that only some leaves' chunks are read together.
        ShapeOf(20 * 64 - 5, 9000, 6, 5, 40)}) {
    const Bytes table = TableOf(shape);
    const SecretArray<16> seed = KeyOf(9);
    const TreeFunction function(shape, {.seed = seed.Clone(), .own = KeyOf(10)});
    std::vector<TreeBlock> roots(shape.hints);
    std::vector<uint32_t> shifts(shape.hints), leaves(shape.hints);
    function.Draw(0, roots, shifts);
    Bytes expected(shape.parity_bytes());
    for (uint32_t c = 0; c < shape.chunks; ++c) {
      function.LeavesOf(c, roots, leaves);
      for (uint32_t i = 0; i < shape.hints; ++i) {
        const uint64_t row = (uint64_t{c} << shape.offset_bits) + (leaves[i] ^ shifts[i]);
        for (uint32_t b = 0; b < shape.record_bytes; ++b) {
          expected[uint64_t{i} * shape.record_bytes + b] ^= table[row * shape.record_bytes + b];
        }
      }
    }
    for (const TreeKernel* kernel : SupportedTreeKernels()) {
      Bytes parities(shape.parity_bytes(), 1);
      const uint64_t cut = shape.hints / 3;
      const MutableBytes out(parities);
      MakeTreeParities(shape, table, seed, 0, out.first(cut * shape.record_bytes), nullptr, nullptr,
                       *kernel);
      MakeTreeParities(shape, table, seed, static_cast<uint32_t>(cut),
                       out.subspan(cut * shape.record_bytes), &pool, nullptr, *kernel);
      EXPECT_EQ(parities, expected) << kernel->name << " " << shape.rows;
    }
  }
}

// The answer at a place is the XOR of the rows of the tree that the query is with a leaf left out
// there, for all places and not only for the right one: so every kernel, and every order of the
// sums, gives the same.
TEST(TreeSetsTest, AnswersAreTheXorsForEveryPlace) {
  for (const TreeShape& shape :
       {ShapeOf(1, 4, 0, 1, 3), ShapeOf(40, 3, 3, 1, 5), ShapeOf(1000, 33, 5, 1, 5),
        ShapeOf(1000, 33, 5, 2, 5), ShapeOf(1000, 33, 5, 3, 5), ShapeOf(1000, 33, 5, 12, 5)}) {
    const Bytes table = TableOf(shape);
    Bytes query(shape.query_bytes());
    TestRandom random(shape.fan_bits);
    random.Fill(query);
    if (!query.empty()) query.back() = 0;
    std::vector<uint32_t> offsets(shape.query_offsets());
    SHOAL_ASSERT_OK(ExpandTreeQuery(shape, query, offsets));
    Bytes expected(shape.answer_bytes());
    for (uint32_t place = 0; place < shape.chunks; ++place) {
      for (uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
        if (chunk == place) continue;
        // Above the first level at which they differ there is nothing; there, the chunk's child
        // counts from the left, without the place's.
        size_t at = 0;
        for (uint32_t level = 0; level < shape.levels(); ++level) {
          const uint32_t a = shape.DigitOf(chunk, level), b = shape.DigitOf(place, level);
          const uint32_t below = shape.BitsBelow(level);
          if (a != b) {
            at += (size_t{a < b ? a : a - 1} << below) + (chunk & ((1u << below) - 1));
            break;
          }
          at += size_t{shape.Fan(level) - 1} << below;
        }
        const uint64_t row = (uint64_t{chunk} << shape.offset_bits) + offsets[at];
        for (uint32_t i = 0; i < shape.record_bytes; ++i) {
          expected[place * shape.record_bytes + i] ^= table[row * shape.record_bytes + i];
        }
      }
    }
    for (const TreeKernel* kernel : SupportedTreeKernels()) {
      std::vector<uint32_t> again(shape.query_offsets());
      SHOAL_ASSERT_OK(ExpandTreeQuery(shape, query, again, *kernel));
      EXPECT_EQ(again, offsets) << kernel->name;
      Bytes answer(shape.answer_bytes(), 1);
      AnswerTreeQuery(shape, table, offsets, answer, *kernel);
      EXPECT_EQ(answer, expected) << kernel->name << " " << shape.fan_bits;
    }
  }
}

// What the prototype's servers take from clients without a look: sizes, keys, an element.
TEST(TreeSetsTest, AnyBytesOfTheRightLengthAreAQueryAndNothingElseIs) {
  const TreeShape shape = ShapeOf(900, 8, 5, 3, 10);
  ASSERT_EQ(shape.query_bytes(), 3u * 16 + (8 * 5 + 7) / 8);
  const TreeShape odd = ShapeOf(900, 8, 5, 2, 10);
  ASSERT_NE((odd.query_leaves() + 1) * odd.offset_bits % 8, 0u);
  std::vector<uint32_t> offsets(odd.query_offsets());
  Bytes query(odd.query_bytes(), 0xff);
  EXPECT_THAT(ExpandTreeQuery(odd, query, offsets), StatusIs(kInvalid, "behind its end"));
  query.back() = 0;
  SHOAL_EXPECT_OK(ExpandTreeQuery(odd, query, offsets));
  for (const uint32_t offset : offsets) ASSERT_LT(offset, odd.chunk_rows());
  query.push_back(0);
  EXPECT_THAT(ExpandTreeQuery(odd, query, offsets), StatusIs(kInvalid, "bytes instead of"));
  EXPECT_THAT(ExpandTreeQuery(odd, BytesView(query).first(odd.query_bytes() - 1), offsets),
              StatusIs(kInvalid, "bytes instead of"));
  EXPECT_THAT(ExpandTreeQuery(odd, {}, offsets), StatusIs(kInvalid, "bytes instead of"));
}

TEST(TreeSetsTest, ShapesAreThoseOfTheTable) {
  // 1 GiB: what passes, and what is kept.
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape paper, TreeShapeFor(1 << 20, 1072, 1 << 20, 1));
  EXPECT_EQ(paper.chunks, 1024u);
  EXPECT_EQ(paper.offset_bits, 10u);
  // Nine blocks, a leaf and a shift: log2 S keys, of which the last is as long as it needs to be.
  EXPECT_EQ(paper.query_bytes(), 9u * 16 + 3);
  EXPECT_EQ(paper.answer_bytes(), 1024u * 1072);
  EXPECT_NEAR(paper.hints, 42'500, 100);
  EXPECT_NEAR(static_cast<double>(paper.parity_bytes()), 46e6, 1e6);
  const double miss = std::pow(1 - 1 / 1024.0, paper.hints) * (1 << 20);
  EXPECT_LE(std::log2(miss), -40);
  EXPECT_GT(std::log2(miss), -40.1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape wide, TreeShapeFor(1 << 20, 1072, 1 << 20));
  EXPECT_EQ(wide.levels(), 2u);
  EXPECT_EQ(wide.query_bytes(), 31u * 16 + 40);

  for (const auto& [rows, record_bytes, queries] :
       {std::tuple<uint64_t, uint32_t, uint64_t>{0, 1, 1},
        {1, 0, 1},
        {1, 1, 0},
        {~uint64_t{0}, 1, 1},
        {uint64_t{1} << 45, 1, 1},
        {uint64_t{1} << 44, 1 << 10, 1},
        {1, 1, ~uint64_t{0}}}) {
    EXPECT_FALSE(TreeShapeFor(rows, record_bytes, queries).ok()) << rows;
  }
  EXPECT_THAT(TreeShapeFor(100, 1, 1, 13), StatusIs(kInvalid, "shape"));
  TreeShape shape = ShapeOf(100, 1, 3, 1, 5);
  shape.chunks = 12;
  EXPECT_THAT(CheckTreeShape(shape), StatusIs(kInvalid, "shape"));
  shape.chunks = 13;
  SHOAL_EXPECT_OK(CheckTreeShape(shape));
  shape.leaf_bits = 5;
  EXPECT_THAT(CheckTreeShape(shape), StatusIs(kInvalid, "shape"));
}

// ---- The function and the kernels ----

Bytes Aes(BytesView key, BytesView in) {
  Bytes out(in.size());
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  int written = 0;
  EXPECT_EQ(EVP_EncryptInit_ex(context, EVP_aes_128_ecb(), nullptr, key.data(), nullptr), 1);
  EXPECT_EQ(EVP_CIPHER_CTX_set_padding(context, 0), 1);
  EXPECT_EQ(
      EVP_EncryptUpdate(context, out.data(), &written, in.data(), static_cast<int>(in.size())), 1);
  EVP_CIPHER_CTX_free(context);
  return out;
}

Bytes ChildOf(BytesView node, uint64_t x) {
  Bytes in = ToBytes(node);
  StoreLe<uint64_t>(in.data(), LoadLe<uint64_t>(in.data()) ^ x);
  Bytes out = Aes(AsBytes("Shoal tree sets."), in);
  for (size_t i = 0; i < 16; ++i) out[i] ^= in[i];
  return out;
}

TEST(TreeKernelTest, ExpandsByTheFixedKey) {
  TestRandom random(4);
  for (const TreeKernel* kernel : SupportedTreeKernels()) {
    for (const size_t count : {0, 1, 2, 7, 8, 31, 32, 33, 100}) {
      for (const size_t blocks : {1, 2, 3, 4, 5, 8, 17}) {
        const uint64_t first = random.U64() % 70'000;
        Bytes nodes(16 * count), out(16 * count * blocks + 16, 0x5a), expected;
        random.Fill(nodes);
        for (size_t i = 0; i < count; ++i) {
          for (size_t b = 0; b < blocks; ++b) {
            Append(expected, ChildOf(BytesView(nodes).subspan(16 * i, 16), first + b));
          }
        }
        expected.resize(expected.size() + 16, 0x5a);
        kernel->expand(nodes.data(), count, first, blocks, out.data());
        ASSERT_EQ(out, expected) << kernel->name << " " << count << " " << blocks;
      }
    }
  }
}

TEST(TreeKernelTest, FindsLeaves) {
  TestRandom random(6);
  const std::array<uint32_t, 3> numbers = {7, 70'000, 1};
  for (const TreeKernel* kernel : SupportedTreeKernels()) {
    for (const size_t count : {0, 1, 2, 31, 32, 33, 129}) {
      Bytes roots(16 * count);
      random.Fill(roots);
      for (uint32_t word = 0; word < 4; ++word) {
        std::vector<uint32_t> leaves(count + 1, 5), shifts(count, word);
        kernel->leaves(roots.data(), count, numbers.data(), word == 0 ? 1 : 3, word, 0xfffff,
                       leaves.data());
        EXPECT_EQ(leaves.back(), 5u);
        for (size_t i = 0; i < count; ++i) {
          Bytes node = ToBytes(BytesView(roots).subspan(16 * i, 16));
          for (size_t l = 0; l < (word == 0 ? 1 : 3); ++l) node = ChildOf(node, numbers[l]);
          ASSERT_EQ(leaves[i], LoadLe<uint32_t>(&node[4 * word]) & 0xfffff) << kernel->name;
          EXPECT_EQ(kernel->find(leaves.data(), shifts.data(), leaves[i] ^ word,
                                 static_cast<uint32_t>(count)),
                    i);
        }
        EXPECT_EQ(
            kernel->find(leaves.data(), shifts.data(), 1u << 20, static_cast<uint32_t>(count)),
            count);
      }
    }
    // The first of several.
    const std::vector<uint32_t> leaves = {4, 9, 9, 4}, shifts = {0, 1, 1, 0};
    EXPECT_EQ(kernel->find(leaves.data(), shifts.data(), 8, 4), 1u);
  }
}

// Rows of every width, next to the end of the buffer.
TEST(TreeKernelTest, SumsRowsOfAnyWidth) {
  TestRandom random(5);
  for (const TreeKernel* kernel : SupportedTreeKernels()) {
    for (size_t record = 1; record < 2300; record += record < 140 ? 1 : 61) {
      constexpr size_t kChunkRows = 4, kEach = 3, kSums = 2;
      Bytes rows(2 * kEach * kChunkRows * record);
      random.Fill(rows);
      std::array<uint32_t, 8> offsets;
      for (uint32_t& offset : offsets) offset = random.U64() % kChunkRows;
      offsets[6] = kChunkRows - 1;
      for (const size_t step : {size_t{0}, kEach * kChunkRows * record}) {
        Bytes sums(kSums * record + 3), expected;
        random.Fill(sums);
        expected = sums;
        for (size_t s = 0; s < kSums; ++s) {
          for (size_t t = 0; t < kEach; ++t) {
            const size_t at = s * step + (t * kChunkRows + offsets[4 * s + t]) * record;
            for (size_t i = 0; i < record; ++i) expected[s * record + i] ^= rows[at + i];
          }
        }
        kernel->sum_rows({.rows = rows.data(),
                          .chunk_bytes = kChunkRows * record,
                          .record_bytes = record,
                          .sums = kSums,
                          .each = kEach,
                          .step_bytes = step,
                          .offsets = offsets.data(),
                          .stride = 4},
                         sums.data());
        ASSERT_EQ(sums, expected) << kernel->name << " " << record;
      }
      Bytes sum(record + 1, 1), expected(record + 1, 1);
      for (size_t i = 0; i < record; ++i) expected[i] = rows[i] ^ rows[record + i];
      kernel->add(rows.data(), rows.data() + record, record, sum.data());
      ASSERT_EQ(sum, expected) << kernel->name;
    }
  }
}

// The function from FIPS 197 alone, node by node.
TEST(TreeSetsTest, SetsAreThoseOfAes) {
  for (const uint32_t fan_bits : {1, 3, 12}) {
    const TreeShape shape = ShapeOf((1 << 12) - 3, 1, 5, fan_bits, 3);
    const SecretArray<16> seed = KeyOf(1), own = KeyOf(2);
    for (const TreeKernel* kernel : SupportedTreeKernels()) {
      const TreeFunction function(shape, {.seed = seed.Clone(), .own = own.Clone()}, *kernel);
      std::array<TreeBlock, 4> roots;
      std::array<uint32_t, 4> shifts, leaves;
      function.Draw(1, roots, shifts);
      for (uint64_t i = 0; i < 4; ++i) {
        const BytesView key = 1 + i < 3 ? seed.view() : own.view();
        const uint64_t set = 1 + i < 3 ? 1 + i : 1 + i - 3;
        Bytes number(16);
        StoreLe<uint64_t>(number.data(), 2 * set);
        EXPECT_TRUE(std::ranges::equal(roots[i].bytes, Aes(key, number)));
        StoreLe<uint64_t>(number.data(), 2 * set + 1);
        EXPECT_EQ(shifts[i], LoadLe<uint32_t>(Aes(key, number).data()) % 32);
      }
      for (const uint32_t leaf : {0u, 1u, 77u, 126u}) {
        function.LeavesOf(leaf, roots, leaves);
        for (int i = 0; i < 4; ++i) {
          Bytes node = ToBytes(roots[i].bytes);
          for (uint32_t level = 0; level + 1 < shape.levels(); ++level) {
            node = ChildOf(node, shape.DigitOf(leaf, level));
            const TreeBlock same = function.NodeOf(roots[i], level, leaf >> shape.BitsBelow(level));
            EXPECT_TRUE(std::ranges::equal(same.bytes, node));
          }
          const uint32_t digit = shape.DigitOf(leaf, shape.levels() - 1);
          EXPECT_EQ(leaves[i],
                    LoadLe<uint32_t>(ChildOf(node, digit / 4).data() + 4 * (digit % 4)) % 32);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::pir::sets
