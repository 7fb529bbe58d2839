// `pair` from table to record, in both forms of a query: every row of tables of any size, what one
// server sees and what one that lies can do, bad input, epochs.
#include "src/pir/pair/pair.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/instruction_set.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/kit/checks.h"
#include "src/pir/kit/testing/stateless_contract.h"
#include "src/pir/pair/pair_client.h"
#include "src/pir/pair/pair_server.h"
#include "src/pir/pair/pair_shape.h"
#include "src/pir/pair/point_keys.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::pair {
namespace {

using pir::testing::AnswerOne;
using pir::testing::Records;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct Scheme {
  using Server = PairTableServer;
  using Client = PairClient;
  static const pir::Engine& Engine() { return Pair(); }
  static auto MakeServer(const Content& content, const wire::PirSetup& setup,
                         const ServerOptions& options) {
    return PairTableServer::Create(setup, content, options);
  }
};

struct World : pir::testing::StatelessWorld<Scheme> {
  World(Form form, uint64_t rows, uint32_t record_bytes, ServerOptions options = {})
      : StatelessWorld(Records(rows, record_bytes), EncodePairShape(form), std::move(options)) {}
};

class PairTest : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, PairTest, ::testing::Values(Form::kVector, Form::kKey),
                         [](const auto& of) {
                           return of.param == Form::kVector ? "Vector" : "Key";
                         });

// Tables of one row, of whole and of begun words and leaves, of one piece and of several.
TEST_P(PairTest, EveryRowIsFetched) {
  for (const uint64_t rows : {1, 2, 63, 64, 65, 127, 128, 129, 300}) {
    World world(GetParam(), rows, 49);
    for (uint64_t row = 0; row < rows; ++row) world.ExpectServed(row);
  }
  for (const auto& [rows, record_bytes] :
       std::vector<std::pair<uint64_t, uint32_t>>{{40'000, 80}, {700, 20'000}, {150'000, 1}}) {
    World world(GetParam(), rows, record_bytes);
    for (const uint64_t row : {uint64_t{0}, uint64_t{127}, uint64_t{128}, rows / 2, rows - 1}) {
      world.ExpectServed(row);
    }
  }
}

TEST_P(PairTest, RequestsHaveOneLengthWhateverIsAsked) {
  World(GetParam(), 200, 60).ExpectOneLengthWhateverIsAsked();
}

TEST_P(PairTest, AnswersAreTheSameOnAnyThreads) {
  World(GetParam(), 20'000, 900).ExpectTheSameOnThreads();
}

// What is answered in one pass, of several requests or of one, is what is answered alone.
TEST_P(PairTest, QueriesThatShareAPassHaveTheirOwnAnswers) {
  World world(GetParam(), 500, 77);
  Bytes body;
  std::vector<Bytes> expected;
  for (uint64_t q = 0; q < 33; ++q) {
    const Bytes query = world.QueryFor(q * 15);
    expected.push_back(*AnswerOne(*world.server, query, Role::kOffline));
    Append(body, query);
  }
  const uint64_t bytes = world.client->shape().query_bytes();
  std::vector<RequestView> requests;
  for (const auto& [first, count] :
       std::vector<std::pair<uint64_t, uint32_t>>{{0, 16}, {16, 1}, {17, 16}}) {
    requests.push_back(
        {.count = count, .body = BytesView(body).subspan(first * bytes, count * bytes)});
  }
  Bytes all;
  for (const auto& answer : world.server->Answer(Role::kOffline, requests)) {
    SHOAL_ASSERT_OK(answer.status());
    Append(all, *answer);
  }
  Bytes joined;
  for (const Bytes& answer : expected) Append(joined, answer);
  EXPECT_EQ(all, joined);
}

TEST_P(PairTest, AnswersAreTheSameByEveryKernel) {
  const InstructionSet active = ActiveInstructionSet();
  World world(GetParam(), 1000, 131);
  const Bytes query = world.QueryFor(999);
  const Bytes expected = *AnswerOne(*world.server, query, Role::kOffline);
  for (const InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    EXPECT_EQ(*AnswerOne(*world.server, query, Role::kOffline), expected) << NameOf(set);
  }
  UseInstructionSet(active);
}

// A server answers with the XOR of the rows whose bits are set, so that one that lies can but add
// an error to the record: which one follows from what this server saw, and not from the row.
TEST_P(PairTest, AnErrorOfOneServerIsAddedToTheRecord) {
  World world(GetParam(), 300, 60);
  const auto asked = world.client->Ask(123, world.random);
  auto answers = *World::Answers(*world.server, asked);
  for (size_t server = 0; server < 2; ++server) {
    auto wrong = answers;
    wrong[server][7] ^= 0x40;
    auto record = *world.Recovered(asked, wrong);
    record[7] ^= 0x40;
    EXPECT_TRUE(std::ranges::equal(record, world.records.at(123)));
  }
}

// Each server by itself sees bits that are fair coins, whatever the row. A bit fails by chance with
// probability 2^-40 (6.9 sigma).
TEST(PairVectorTest, AVectorTellsNothingOfTheRow) {
  constexpr int kQueries = 3000;
  World world(Form::kVector, 200, 50);
  for (const uint64_t row : {0, 77, 199}) {
    std::vector<int> counts[2] = {std::vector<int>(256), std::vector<int>(256)};
    for (int i = 0; i < kQueries; ++i) {
      const PairAsked asked = world.client->Ask(row, world.random);
      for (size_t server = 0; server < 2; ++server) {
        const BytesView bits = BytesView(asked.queries[server]).subspan(kQueryHeaderBytes);
        ASSERT_EQ(bits.size(), 32u);
        for (size_t bit = 0; bit < 256; ++bit) counts[server][bit] += bits[bit / 8] >> bit % 8 & 1;
      }
      // Both differ at the row, and nowhere else.
      Bytes sum = ToBytes(asked.queries[0]);
      for (size_t at = 0; at < sum.size(); ++at) sum[at] ^= asked.queries[1][at];
      Bytes one(sum.size());
      one[kQueryHeaderBytes + row / 8] = static_cast<uint8_t>(1u << row % 8);
      ASSERT_EQ(sum, one);
    }
    for (const auto& of_server : counts) {
      for (const int count : of_server) {
        EXPECT_NEAR(count, kQueries / 2.0, 6.9 * std::sqrt(kQueries / 4.0)) << row;
      }
    }
  }
}

TEST(PairKeyTest, BadQueriesAreRefusedAndGoodOnesBesideThemServed) {
  World(Form::kKey, 300, 60)
      .ExpectBadQueriesRefusedAndGoodOnesServed("bits for more than 2 levels");
}

TEST(PairKeyTest, MutatedQueriesAreAnsweredOrRefused) {
  World(Form::kKey, 300, 60).ExpectMutatedQueriesAnsweredOrRefused(4);
}

// Keys that come to the other server are another encoding of nothing.
TEST(PairKeyTest, KeysOfTheOtherServerAreRefused) {
  World world(Form::kKey, 300, 60);
  const auto asked = world.client->Ask(5, world.random);
  EXPECT_THAT(AnswerOne(*world.server, asked.queries[0], Role::kOnline),
              StatusIs(kInvalid, "for the offline server"));
  EXPECT_THAT(AnswerOne(*world.server, asked.queries[1], Role::kOffline),
              StatusIs(kInvalid, "for the online server"));
}

TEST(PairVectorTest, AnyBitsOfTheRightLengthAreAnswered) {
  World world(Form::kVector, 100, 60);
  Bytes query = world.QueryFor(3);
  const MutableBytes bits = MutableBytes(query).subspan(kQueryHeaderBytes);
  // All rows, with any bits behind the last one; then none.
  Bytes sum(60);
  for (uint64_t row = 0; row < 100; ++row) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] ^= world.records.at(row)[i];
  }
  std::ranges::fill(bits, uint8_t{0xff});
  EXPECT_EQ(*AnswerOne(*world.server, query, Role::kOnline), sum);
  std::ranges::fill(bits, uint8_t{0});
  EXPECT_EQ(*AnswerOne(*world.server, query, Role::kOnline), Bytes(60));
  for (const size_t bytes : {size_t{0}, query.size() - 1, query.size() + 1, query.size() + 8}) {
    Bytes other = query;
    other.resize(bytes);
    EXPECT_THAT(AnswerOne(*world.server, other, Role::kOnline), StatusIs(kInvalid, "bytes for"));
  }
}

TEST_P(PairTest, SetupsAreRefusedOrFit) {
  World(GetParam(), 300, 60)
      .ExpectSetupsRefusedOrFit(
          {0, 1, 2, 64, 129, uint64_t{1} << 20, (uint64_t{1} << 20) + 48, (uint64_t{1} << 20) + 1,
           uint64_t{1} << 32, (uint64_t{1} << 32) + 1, ~uint64_t{0} >> 1, ~uint64_t{0}},
          [](const auto& extreme) {
            std::string shape = EncodePairShape(GetParam());
            shape[1] = static_cast<char>(extreme(static_cast<uint64_t>(GetParam())));
            return shape;
          },
          [](const wire::PirSetup& setup) {
            const PairShape shape = *ParsePairShape(setup);
            ASSERT_EQ(shape.rows, setup.rows());
            ASSERT_LE(shape.body_bytes(), uint64_t{1} << 17);
          });
}

TEST(PairShapeTest, RefusalsSayWhatIsWrong) {
  const auto refusal = [](uint64_t rows, uint32_t record_bytes, const std::string& shape) {
    wire::PirSetup setup;
    setup.set_engine("pair");
    setup.set_rows(rows);
    setup.set_record_bytes(record_bytes);
    setup.set_shape(shape);
    return Pair().SizesOfShape(setup).status();
  };
  const std::string vector = EncodePairShape(Form::kVector), key = EncodePairShape(Form::kKey);
  SHOAL_EXPECT_OK(refusal(1 << 20, 1 << 20, vector));
  SHOAL_EXPECT_OK(refusal(uint64_t{1} << 32, 1 << 20, key));
  EXPECT_THAT(refusal((1 << 20) + 1, 60, vector),
              StatusIs(kInvalid, "1048577 rows, and 1 to 1048576 are possible"));
  EXPECT_THAT(refusal((uint64_t{1} << 32) + 1, 60, key), StatusIs(kInvalid, "4294967297 rows"));
  EXPECT_THAT(refusal(0, 60, key), StatusIs(kInvalid, "0 rows"));
  EXPECT_THAT(refusal(5, (1 << 20) + 1, key),
              StatusIs(kInvalid, "record_bytes: 1048577, and 1048576 are the most"));
  EXPECT_THAT(refusal(5, 60, std::string("\x04\x02", 2)), StatusIs(kInvalid, "of this version"));
  EXPECT_THAT(refusal(5, 60, std::string("\x03\x01", 2)), StatusIs(kInvalid, "of this version"));
  EXPECT_THAT(refusal(5, 60, ""), StatusIs(kInvalid, "0 bytes instead of 2"));
}

// The engine takes what is less to send, and says how much that is.
TEST(PairShapeTest, TheShorterFormIsChosen) {
  bool was_key = false;
  for (uint64_t rows = 1; rows < 3000; ++rows) {
    const bool key = ShorterForm(rows) == Form::kKey;
    EXPECT_EQ(key, PointKeyBytes(LevelsFor(rows)) < select::SelectionBytes(rows)) << rows;
    was_key |= key;
  }
  EXPECT_TRUE(was_key);
  EXPECT_EQ(ShorterForm(500), Form::kVector);
  EXPECT_EQ(ShorterForm(1'000), Form::kKey);
  EXPECT_EQ(ShorterForm(uint64_t{1} << 32), Form::kKey);
  for (const uint64_t rows : {100, 2000}) {
    const Records records(rows, 60);
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PirSetup setup, Pair().ShapeOf(records.content(), {}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, Pair().SizesOfShape(setup));
    const std::vector<wire::PirSetup> setups = {setup, setup};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Pair().OpenSession(setups, {}));
    TestRandom random(1);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = {}, .keys = 1}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random));
    ASSERT_EQ(requests.size(), 2u);
    EXPECT_EQ(requests[0].body.size() + requests[1].body.size(), sizes.query_bytes);
    EXPECT_EQ(requests[0].answer_bytes + requests[1].answer_bytes, sizes.answer_bytes);
    EXPECT_EQ(sizes.hint_bytes + sizes.hint_memory_bytes + sizes.prepare_bytes, 0u);
    EXPECT_EQ(sizes.server_bytes, 2 * rows * 60);
  }
}

// Servers that differ in anything are asked for nothing.
TEST_P(PairTest, ServersMustStateTheSame) {
  const World world(GetParam(), 300, 60);
  for (const auto& change : std::vector<void (*)(wire::PirSetup&)>{
           [](wire::PirSetup& setup) { setup.set_epoch(2); },
           [](wire::PirSetup& setup) { setup.set_rows(299); },
           [](wire::PirSetup& setup) { setup.set_manifest_digest(std::string(32, 'x')); },
           [](wire::PirSetup& setup) { setup.mutable_shape()->back() ^= 1; }}) {
    wire::PirSetup other = world.setup;
    change(other);
    const std::vector<wire::PirSetup> setups = {world.setup, other};
    EXPECT_THAT(Pair().OpenSession(setups, {}), StatusIs(kInvalid, "different setups"));
  }
  EXPECT_THAT(Pair().OpenSession({&world.setup, 1}, {}), StatusIs(kInvalid, "two setups"));
}

// A refreshed server gives what a new one gives, also after the table has fewer rows and more
// again.
TEST_P(PairTest, EpochsAreTaken) {
  World world(GetParam(), 300, 60);
  Records later(300, 60);
  const std::vector<uint64_t> changed = {0, 5, 128, 299};
  for (const uint64_t row : changed) later.Fill(row, static_cast<uint8_t>(row + 1));
  world.ExpectRefreshed(later, later.content(2), changed, 4.0 / 300, 300, {0, 1, 5, 128, 298, 299});
}

TEST_P(PairTest, ATableMayHaveFewerRowsAndMoreAgain) {
  World world(GetParam(), 300, 60);
  Records fewer(200, 60);
  std::vector<uint64_t> changed;
  for (uint64_t row = 200; row < 300; ++row) changed.push_back(row);
  world.ExpectRefreshed(fewer, fewer.content(2), changed, 100.0 / 300, 300, {0, 199});
  const Records again(300, 60, 9);
  changed.clear();
  for (uint64_t row = 0; row < 300; ++row) changed.push_back(row);
  SHOAL_ASSERT_OK(world.server->Refresh(again.content(3), changed).status());
  world.client = *PairClient::Create(world.server->setup());
  for (const uint64_t row : {0, 199, 200, 299}) {
    const auto asked = world.client->Ask(row, world.random);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, World::Answers(*world.server, asked));
    EXPECT_TRUE(std::ranges::equal(*world.Recovered(asked, answers), again.at(row)));
  }
}

TEST(PairServerTest, ATableTooLargeForMemoryIsRefusedBeforeItIsRead) {
  pir::testing::ExpectRefusedBeforeItIsRead(Pair(), uint64_t{1} << 28, 1 << 12);
}

// Nothing is work of its own, and there is no further kind of request.
TEST(PairServerTest, NothingIsHeavy) {
  EXPECT_FALSE(Pair().keeps_state());
  EXPECT_EQ(Pair().roles().size(), 2u);
  for (const Role role : {Role::kSingle, Role::kOffline, Role::kOnline}) {
    for (const uint32_t kind : {0, 1, 2}) EXPECT_FALSE(Pair().IsHeavy(role, kind));
  }
}

// Plans and calibrations name the same units, and every cost is one.
TEST(PairFamilyTest, UnitsAreMeasured) {
  TestRandom random(2);
  ThreadPool pool(1);
  const auto measured = PairFamily().MeasureUnits(1 << 20, random, pool);
  ASSERT_EQ(measured.size(), PairFamily().units().size());
  for (size_t i = 0; i < measured.size(); ++i) {
    EXPECT_EQ(measured[i].unit, PairFamily().units()[i].unit);
    EXPECT_GT(measured[i].amount, 0);
    EXPECT_LT(measured[i].amount, 1e5);
  }
}

}  // namespace
}  // namespace shoal::pir::pair
