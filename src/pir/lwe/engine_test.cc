// Both engines, from table to record: every index and every byte, mistakes of the authors'
// prototypes, bad input, epochs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/double_pir.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/lwe/simple_pir.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::lwe {
namespace {

// Here `testing` is shoal::testing, not shoal::pir::testing.
namespace testing = shoal::testing;
using pir::testing::Records;
using pir::testing::Shape;
using testing::StatusIs;
using testing::TestRandom;

std::unique_ptr<Client> ClientOf(const Server& server, ClientOptions options = {}) {
  auto client = CreateClient(server.setup(), server.hint(), options);
  EXPECT_THAT(client, testing::IsOk());
  return *std::move(client);
}

absl::StatusOr<Bytes> Fetch(const Server& server, const Client& client, uint64_t row,
                            RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(const Asked asked, client.Ask(row, random));
  const BytesView query = asked.query;
  SHOAL_ASSIGN_OR_RETURN(const Bytes answer, server.Answer({&query, 1})[0]);
  return client.Recover(asked, answer);
}

// Refreshes a server, which must make a delta.
absl::StatusOr<Delta> Refresh(Server& server, const Content& content,
                              std::span<const uint64_t> changed) {
  SHOAL_ASSIGN_OR_RETURN(std::optional<Delta> delta, server.Refresh(content, changed));
  if (!delta) return absl::NotFoundError("no delta");
  return *std::move(delta);
}

class EngineTest : public ::testing::TestWithParam<Scheme> {
 protected:
  std::unique_ptr<Server> Serve(const Content& content, ServerOptions options = {},
                                const Kernel* kernel = nullptr) {
    auto server = CreateServer(GetParam(), content, std::move(options), kernel);
    EXPECT_THAT(server, testing::IsOk());
    return *std::move(server);
  }
  TestRandom random_{77};
};

INSTANTIATE_TEST_SUITE_P(Engines, EngineTest, ::testing::ValuesIn(kAllSchemes),
                         [](const auto& tested) { return std::string(SchemeName(tested.param)); });

// Every index of every shape: several rows in a column, row counts that are no multiple of 8 or of
// the rows in a column, records of one byte and of more than 64 bits. (The authors' prototypes get
// entries that share an element right at index 0 alone, cannot fetch more than 64 bits, and read
// past the buffer when the number of rows is no multiple of 8.)
TEST_P(EngineTest, EveryRecordIsFetchedWhole) {
  struct Case {
    uint64_t rows;
    uint32_t record_bytes;
    uint64_t rows_per_column;
  };
  for (const Case& c : {Case{1, 1, 0}, Case{7, 1, 0}, Case{13, 3, 5}, Case{11, 9, 3},
                        Case{67, 2, 1}, Case{40, 1, 40}}) {
    SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.record_bytes));
    const Records records(c.rows, c.record_bytes);
    const auto server = Serve(records.content(), {.shape = Shape(c.rows_per_column)});
    const auto client = ClientOf(*server);
    for (uint64_t row = 0; row < c.rows; ++row) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*server, *client, row, random_));
      ASSERT_EQ(record, records.at(row)) << "row " << row;
    }
    EXPECT_THAT(client->Ask(c.rows, random_), StatusIs(absl::StatusCode::kOutOfRange, "row"));
  }
}

// Bytes at the ends of their range, where the error of an answer is largest, in more columns than a
// stripe has.
TEST_P(EngineTest, ExtremeBytesOverManyColumns) {
  for (uint8_t value : {0, 127, 128, 255}) {
    Records records(4500, 1);
    for (uint64_t row = 0; row < 4500; ++row) records.Fill(row, value);
    const auto server = Serve(records.content(), {.shape = Shape(2)});
    const auto client = ClientOf(*server);
    for (uint64_t row : {0, 1, 2047, 4096, 4499}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*server, *client, row, random_));
      EXPECT_EQ(record, records.at(row));
    }
  }
}

// Portable, AVX2 and AVX-512, on one thread and on several, give the same bytes.
TEST_P(EngineTest, AllPathsAgree) {
  const Records records(300, GetParam() == Scheme::kSimplePir ? 3 : 1);
  ThreadPool pool(3);
  Bytes hint, query, answer;
  for (const Kernel* kernel : SupportedKernels()) {
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      const auto server = Serve(records.content(), {.pool = threads}, kernel);
      const auto client = ClientOf(*server, {.kernel = kernel, .pool = threads});
      TestRandom random(8);
      SHOAL_ASSERT_OK_AND_ASSIGN(const Asked asked, client->Ask(171, random));
      const BytesView view = asked.query;
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got, server->Answer({&view, 1})[0]);
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client->Recover(asked, got));
      EXPECT_EQ(record, records.at(171));
      if (hint.empty()) {
        hint = ToBytes(server->hint());
        query = asked.query;
        answer = got;
      }
      EXPECT_EQ(ToBytes(server->hint()), hint) << kernel->name;
      EXPECT_EQ(asked.query, query) << kernel->name;
      EXPECT_EQ(got, answer) << kernel->name;
    }
  }
}

// A server that is made from the product of an earlier one is the same as that one.
TEST_P(EngineTest, AProductIsTakenFromAnEarlierServer) {
  const Records records(200, 1);
  const auto server = Serve(records.content());
  const std::vector<uint32_t> product(server->product().begin(), server->product().end());
  bool made = false;
  const auto again =
      Serve(records.content(),
            {.product = product, .progress = [&](uint64_t, uint64_t) { made = true; }});
  EXPECT_FALSE(made) << "the product was made all the same";
  EXPECT_EQ(ToBytes(again->hint()), ToBytes(server->hint()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PirSetup shape,
                             ShapeOf(GetParam(), records.content(), {}));
  EXPECT_EQ(ProductId(shape), ProductId(server->setup()));
  EXPECT_NE(ProductId(shape), ProductId(Serve(records.content(2))->setup()));
  EXPECT_THAT(CreateServer(GetParam(), records.content(), {.product = {1, 2, 3}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "product"));
}

// Queries that are made together have the same bytes as those made one by one.
TEST_P(EngineTest, QueriesMadeTogether) {
  const Records records(4500, 1);
  const auto server = Serve(records.content(), {.shape = Shape(1)});  // five stripes of columns
  const auto client = ClientOf(*server);
  const std::vector<uint64_t> rows = {0, 4499, 700, 700, 1023, 1024, 2047, 2048};
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Asked> asked, client->Ask(rows, random_));
  ASSERT_EQ(asked.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const BytesView query = asked[i].query;
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, server->Answer({&query, 1})[0]);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client->Recover(asked[i], answer));
    EXPECT_EQ(record, records.at(rows[i]));
  }
  EXPECT_NE(asked[2].query, asked[3].query) << "one secret for two queries";
  EXPECT_THAT(client->Ask(std::vector<uint64_t>{3, 4500}, random_),
              StatusIs(absl::StatusCode::kOutOfRange, "4500"));
}

TEST_P(EngineTest, SizesAreWhatIsSent) {
  const Records records(500, 2);
  const auto server = Serve(records.content());
  const auto client = ClientOf(*server);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, SizesOf(server->setup()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Asked asked, client->Ask(3, random_));
  const BytesView query = asked.query;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, server->Answer({&query, 1})[0]);
  EXPECT_EQ(sizes.hint_bytes, server->hint().size());
  EXPECT_EQ(sizes.query_bytes, asked.query.size());
  EXPECT_EQ(sizes.answer_bytes, answer.size());
  EXPECT_LT(sizes.hint_bytes, sizes.hint_memory_bytes * 3 / 4) << "not compressed";
}

// Every query has fresh secrets: two queries for one row differ, and a query's words look uniform
// whichever row it is for (top bits: within 6 deviations of one half at fixed seed).
TEST_P(EngineTest, QueriesOfOneRowDiffer) {
  const Records records(4000, 1);
  const auto server = Serve(records.content(), {.shape = Shape(1)});
  const auto client = ClientOf(*server);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Asked a, client->Ask(5, random_));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Asked b, client->Ask(5, random_));
  ASSERT_EQ(a.query.size(), b.query.size());
  size_t equal = 0, high = 0, words = 0;
  for (size_t i = kQueryHeaderBytes; i < a.query.size(); i += 4, ++words) {
    equal += LoadLe<uint32_t>(&a.query[i]) == LoadLe<uint32_t>(&b.query[i]);
    high += a.query[i + 3] >> 7;
  }
  EXPECT_LT(equal, 2u);
  EXPECT_NEAR(high, words / 2.0, 6 * std::sqrt(words) / 2);
}

// Queries of many clients in one pass give each client its own record. A bad query among them gets
// an error, and the others their answers.
TEST_P(EngineTest, ManyClientsInOnePass) {
  const Records records(200, 2);
  const auto server = Serve(records.content());
  const auto client = ClientOf(*server);
  std::vector<Asked> asked;
  std::vector<BytesView> queries;
  for (uint64_t row : {0, 199, 50, 50, 131}) {
    asked.push_back(client->Ask(row, random_).value());
  }
  for (const Asked& a : asked) queries.push_back(a.query);
  const Bytes bad(100);
  queries.insert(queries.begin() + 2, bad);
  auto answers = server->Answer(queries);
  ASSERT_EQ(answers.size(), 6u);
  EXPECT_FALSE(answers[2].ok());
  answers.erase(answers.begin() + 2);
  for (size_t i = 0; i < asked.size(); ++i) {
    SHOAL_ASSERT_OK(answers[i]);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client->Recover(asked[i], *answers[i]));
    EXPECT_EQ(record, records.at(asked[i].row));
  }
  EXPECT_TRUE(server->Answer({}).empty());
}

TEST_P(EngineTest, BadQueriesAreRefusedAndTheServerGoesOn) {
  const Records records(200, 2);
  const auto server = Serve(records.content());
  const auto client = ClientOf(*server);
  const Asked good = client->Ask(7, random_).value();
  const auto refusal = [&](Bytes query) {
    const BytesView view = query;
    return server->Answer({&view, 1})[0].status();
  };
  EXPECT_THAT(refusal({}), StatusIs(absl::StatusCode::kInvalidArgument, "no query"));
  Bytes query = good.query;
  query.pop_back();
  EXPECT_THAT(refusal(query), StatusIs(absl::StatusCode::kInvalidArgument, "bytes"));
  query = good.query;
  query.push_back(0);
  EXPECT_THAT(refusal(query), StatusIs(absl::StatusCode::kInvalidArgument, "bytes"));
  query = good.query;
  query[0] = 2;
  EXPECT_THAT(refusal(query), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch 2"));
  query = good.query;
  query[20] ^= 1;
  EXPECT_THAT(refusal(query), StatusIs(absl::StatusCode::kFailedPrecondition, "parameters"));
  // The other engine's query for the same table.
  const Scheme other = GetParam() == Scheme::kSimplePir ? Scheme::kDoublePir : Scheme::kSimplePir;
  const auto other_server = CreateServer(other, records.content(), {}).value();
  EXPECT_THAT(refusal(ClientOf(*other_server)->Ask(7, random_)->query),
              StatusIs(absl::StatusCode::kFailedPrecondition, "another engine"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*server, *client, 7, random_));
  EXPECT_EQ(record, records.at(7));
}

// Selective failure: a server that spoils a part of an answer learns nothing from the client, as
// the client takes any words for a record and sends nothing more.
TEST_P(EngineTest, AnyAnswerOfTheRightLengthIsTaken) {
  const Records records(200, 2);
  const auto server = Serve(records.content());
  const auto client = ClientOf(*server);
  const Asked asked = client->Ask(7, random_).value();
  const BytesView query = asked.query;
  Bytes answer = server->Answer({&query, 1})[0].value();
  for (int trial = 0; trial < 20; ++trial) {
    Bytes spoilt = answer;
    for (size_t i = trial; i < spoilt.size(); i += 1 + trial) spoilt[i] ^= 0x55;
    spoilt.back() = answer.back();  // may hold padding, which is checked and which everyone can see
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client->Recover(asked, spoilt));
    EXPECT_EQ(record.size(), 2u);
  }
  answer.pop_back();
  EXPECT_THAT(client->Recover(asked, answer),
              StatusIs(absl::StatusCode::kInvalidArgument, "bytes"));
}

TEST_P(EngineTest, BadSetupsAndHintsAreRefused) {
  const Records records(200, 2);
  const auto server = Serve(records.content());
  const Bytes hint = ToBytes(server->hint());
  EXPECT_THAT(CreateClient(server->setup(), BytesView(hint).first(hint.size() - 1), {}),
              StatusIs(absl::StatusCode::kDataLoss, "truncated"));
  Bytes wrong = hint;
  wrong[hint.size() / 2] ^= 1;
  EXPECT_THAT(CreateClient(server->setup(), wrong, {}),
              StatusIs(absl::StatusCode::kDataLoss, "digest"));
  const auto refused = [&](const std::function<void(wire::PirSetup&)>& change) {
    wire::PirSetup setup = server->setup();
    change(setup);
    return !CreateClient(setup, hint, {}).ok();
  };
  EXPECT_TRUE(refused([](auto& s) { s.set_engine("triplepir"); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_table_id("short"); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_rows(0); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_rows(uint64_t{1} << 62); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_record_bytes(0); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_record_bytes(3); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_rows_per_column(0); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_rows_per_column(uint64_t{1} << 63); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_columns(s.columns() + 1); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_columns(0); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_columns(1 << 28); }));
  EXPECT_TRUE(refused([](auto& s) { s.set_hint_bytes(s.hint_bytes() + 1); }));
  EXPECT_TRUE(refused([](auto& s) { s.clear_hint_digest(); }));
}

TEST_P(EngineTest, TablesThatDoNotFitAreRefused) {
  Content content = Records(200, 2).content();
  EXPECT_THAT(CreateServer(GetParam(), content, {.max_hint_bytes = 1000}),
              StatusIs(absl::StatusCode::kResourceExhausted, "allowed"));
  content.rows = uint64_t{1} << 31;
  content.record_bytes = 1024;
  const auto huge = CreateServer(GetParam(), content, {.max_hint_bytes = uint64_t{1} << 60});
  EXPECT_THAT(huge, StatusIs(absl::StatusCode::kResourceExhausted, "memory"));
  EXPECT_THAT(CreateServer(GetParam(), content, {.shape = Shape(1, 64)}),
              StatusIs(absl::StatusCode::kInvalidArgument, "columns"));
  content.rows = 0;
  EXPECT_THAT(CreateServer(GetParam(), content, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "rows"));
}

// A later epoch: the refreshed hint is the one that a new server would make, the client that
// applied the delta reads the new rows, and queries of the old epoch are refused.
TEST_P(EngineTest, EpochsAreRefreshedInPlace) {
  Records records(250, 2);
  const auto server = Serve(records.content(), {.shape = Shape(3)});
  const auto client = ClientOf(*server);
  const auto other_client = ClientOf(*server);
  const Asked old = client->Ask(8, random_).value();

  const std::vector<uint64_t> changed = {0, 8, 100, 249};
  for (uint64_t row : changed) records.Fill(row, static_cast<uint8_t>(row + 3));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Delta delta, Refresh(*server, records.content(2), changed));
  const auto fresh = Serve(records.content(2), {.shape = Shape(3)});
  EXPECT_EQ(ToBytes(server->hint()), ToBytes(fresh->hint()));
  EXPECT_EQ(SetupId(server->setup()), SetupId(fresh->setup()));

  const BytesView old_query = old.query;
  EXPECT_THAT(server->Answer({&old_query, 1})[0],
              StatusIs(absl::StatusCode::kFailedPrecondition, "epoch 1"));
  SHOAL_ASSERT_OK(client->Advance(delta));
  EXPECT_THAT(client->Advance(delta), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch"));
  for (uint64_t row : {0, 1, 8, 99, 100, 249}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*server, *client, row, random_));
    EXPECT_EQ(record, records.at(row));
  }
  // Malformed deltas leave a client as it was.
  Delta bad = delta;
  bad.changes.pop_back();
  EXPECT_THAT(other_client->Advance(bad), StatusIs(absl::StatusCode::kInvalidArgument, "changes"));
  bad = delta;
  bad.changes[12] = 1;  // a column far away
  EXPECT_THAT(other_client->Advance(bad), StatusIs(absl::StatusCode::kInvalidArgument, "outside"));
  bad = delta;
  bad.to.set_columns(bad.to.columns() + 64);
  EXPECT_FALSE(other_client->Advance(bad).ok());
  SHOAL_EXPECT_OK(other_client->Advance(delta));

  Content wrong = records.content(2);
  EXPECT_FALSE(server->Refresh(wrong, changed).ok()) << "not later";
  wrong = records.content(3);
  wrong.table_id = {1};
  EXPECT_FALSE(server->Refresh(wrong, changed).ok());
  const std::vector<uint64_t> beyond = {250};
  EXPECT_FALSE(server->Refresh(records.content(3), beyond).ok());
  for (const std::vector<uint64_t>& unordered : {std::vector<uint64_t>{8, 0}, {8, 8}}) {
    EXPECT_THAT(server->Refresh(records.content(3), unordered),
                StatusIs(absl::StatusCode::kInvalidArgument, "twice or out of order"));
  }
}

// Signatures change in every record: such bytes are sent as new rows of the hint, the others as
// changes. Together they are far less than a hint.
TEST_P(EngineTest, BytesThatChangeEverywhere) {
  Records records(4000, 2);
  const uint64_t k = GetParam() == Scheme::kSimplePir ? 2 : 600;
  const auto server = Serve(records.content(), {.shape = Shape(k)});
  const auto client = ClientOf(*server);
  std::vector<uint64_t> all(4000);
  for (uint64_t row = 0; row < 4000; ++row) {
    all[row] = row;
    records.FillByte(row, 1, static_cast<uint8_t>(row * 7 + 1));
  }
  records.Fill(9, 1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const double share, server->RefreshShare(records.content(2), all));
  if (GetParam() == Scheme::kSimplePir) {
    EXPECT_NEAR(share, 0.5, 0.01) << "one byte of two, in 2,000 columns";
  } else {
    EXPECT_LT(share, 0.01) << "7 columns";
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Delta delta, Refresh(*server, records.content(2), all));
  EXPECT_EQ(ToBytes(server->hint()),
            ToBytes(Serve(records.content(2), {.shape = Shape(k)})->hint()));
  EXPECT_LT(delta.changes.size(), server->hint().size() * 3 / 4);
  SHOAL_ASSERT_OK(client->Advance(delta));
  for (uint64_t row : {0, 8, 9, 10, 3999}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*server, *client, row, random_));
    EXPECT_EQ(record, records.at(row));
  }
}

// The bytes of a run of changes behind its header.
uint64_t RunBytes(uint64_t length) { return length + (length + 7) / 8; }

// A delta has one form: runs of at least one byte, and rows, each in order and only once. So no
// delta can make a client expand a column of the public matrix again and again for a few bytes
// each.
TEST_P(EngineTest, DeltasInAnotherOrderAreRefused) {
  const bool simple = GetParam() == Scheme::kSimplePir;
  Records records(4000, 2);
  const auto server = Serve(records.content(), {.shape = Shape(simple ? 2u : 600u)});
  const auto client = ClientOf(*server);
  std::vector<uint64_t> all(4000);
  for (uint64_t row = 0; row < 4000; ++row) {
    all[row] = row;
    for (uint32_t byte : {0, 1}) {
      // In SimplePIR's second block all bytes change, so both rows of the hint are sent anew.
      if (row % 2 == 1) records.FillByte(row, byte, static_cast<uint8_t>(row * 7 + byte));
    }
  }
  for (uint64_t row : {8, 10, 2000}) records.Fill(row, static_cast<uint8_t>(row));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Delta delta, Refresh(*server, records.content(2), all));
  std::vector<Bytes> runs, rows;
  BytesView rest = delta.changes;
  const uint64_t count = LoadLe<uint64_t>(rest.data());
  rest = rest.subspan(8);
  const auto take = [&](uint64_t bytes) {
    const Bytes taken = ToBytes(rest.first(bytes));
    rest = rest.subspan(bytes);
    return taken;
  };
  while (runs.size() < count)
    runs.push_back(take(20 + RunBytes(LoadLe<uint32_t>(rest.data() + 16))));
  const uint64_t hint_rows = simple ? 4 : 3072 * 2;
  while (!rest.empty()) rows.push_back(take(8 + server->hint().size() / hint_rows));
  ASSERT_GE(runs.size(), 3u);
  ASSERT_EQ(rows.size(), simple ? 2u : 0u);

  const auto apply = [&](const std::vector<Bytes>& with_runs, const std::vector<Bytes>& with_rows) {
    Delta other = delta;
    other.changes.clear();
    AppendLe<uint64_t>(other.changes, with_runs.size());
    for (const Bytes& run : with_runs) Append(other.changes, run);
    for (const Bytes& row : with_rows) Append(other.changes, row);
    return client->Advance(other);
  };
  const auto swapped = [](std::vector<Bytes> items) {
    std::swap(items[0], items[1]);
    return items;
  };
  const auto repeated = [](std::vector<Bytes> items) {
    items.insert(items.begin() + 1, items[0]);
    return items;
  };
  const auto unordered = StatusIs(absl::StatusCode::kInvalidArgument, "out of order");
  EXPECT_THAT(apply(swapped(runs), rows), unordered);
  EXPECT_THAT(apply(repeated(runs), rows), unordered);
  if (simple) {
    EXPECT_THAT(apply(runs, swapped(rows)), unordered);
    EXPECT_THAT(apply(runs, repeated(rows)), unordered);
  }
  // Differences that no two bytes have, and a sign of a byte that is not there.
  std::vector<Bytes> impossible = runs;
  const uint32_t length = LoadLe<uint32_t>(runs[0].data() + 16);
  impossible[0][20] = 0;
  impossible[0][20 + length] |= 1;
  EXPECT_THAT(apply(impossible, rows), StatusIs(absl::StatusCode::kInvalidArgument, "malformed"));
  if (length % 8 != 0) {
    impossible = runs;
    impossible[0].back() |= 0x80;
    EXPECT_THAT(apply(impossible, rows), StatusIs(absl::StatusCode::kInvalidArgument, "malformed"));
  }
  // A run of one byte, the last byte of the run before.
  std::vector<Bytes> inside = repeated(runs);
  inside[1].resize(22);
  inside[1][20] = 1;
  inside[1][21] = 0;
  StoreLe<uint64_t>(inside[1].data() + 8, LoadLe<uint64_t>(inside[0].data() + 8) +
                                              LoadLe<uint32_t>(inside[0].data() + 16) - 1);
  StoreLe<uint32_t>(inside[1].data() + 16, 1);
  EXPECT_THAT(apply(inside, rows), unordered);
  // Empty runs, each of another column.
  for (size_t at : {size_t{0}, runs.size() - 1, runs.size()}) {
    std::vector<Bytes> more = runs;
    Bytes empty(20);
    if (at > 0) std::copy_n(runs[at - 1].begin(), 8, empty.begin());
    StoreLe<uint64_t>(empty.data() + 8, hint_rows);
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(at), empty);
    EXPECT_THAT(apply(more, rows), StatusIs(absl::StatusCode::kInvalidArgument, "malformed"));
  }
  // None of the refused deltas has changed the client.
  SHOAL_ASSERT_OK(apply(runs, rows));
  for (uint64_t row : {0, 1, 8, 9, 2000, 3999}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*server, *client, row, random_));
    EXPECT_EQ(record, records.at(row));
  }
}

// Changes that stand alone take a header each. So the rows of the hint that they are in are sent
// anew much sooner than those with long runs, and the share counts the delta's bytes.
TEST(EngineTest, ChangesThatStandAloneCountWithTheirHeaders) {
  Records records(4000, 40);
  const auto server = *CreateServer(Scheme::kSimplePir, records.content(), {.shape = Shape(1)});
  const auto client = ClientOf(*server);
  const uint64_t hint_row = server->hint().size() / 40;
  std::vector<uint64_t> changed;
  // Two bytes far apart in 300 columns, and two runs of 10 bytes in 50.
  for (uint64_t row = 0; row < 300; ++row) {
    changed.push_back(row);
    for (uint32_t byte = 0; byte < 40; ++byte) {
      if (byte == 0 || byte == 39 || (row < 50 && byte > 10 && byte <= 20)) {
        records.FillByte(row, byte, static_cast<uint8_t>(records.at(row)[byte] + 1));
      }
    }
  }
  ASSERT_LT(2 * 300u, hint_row) << "rows anew for their changes alone: the test shows nothing";
  SHOAL_ASSERT_OK_AND_ASSIGN(const double share, server->RefreshShare(records.content(2), changed));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Delta delta, Refresh(*server, records.content(2), changed));
  const double bytes = static_cast<double>(2 * hint_row + 50 * (20 + 12));
  EXPECT_NEAR(share, bytes / static_cast<double>(server->hint().size()), 1e-9);
  EXPECT_NEAR(static_cast<double>(delta.changes.size()), bytes, 50) << "its own headers";
  SHOAL_ASSERT_OK(client->Advance(delta));
  TestRandom random(7);
  for (uint64_t row : {0, 49, 50, 299, 300}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*server, *client, row, random));
    EXPECT_EQ(record, records.at(row));
  }
}

// If everything changes, a refresh takes as much work as a new server, and RefreshShare says so
// beforehand. SimplePIR's delta would be longer than the hint, so there is none; the hint is right
// all the same.
TEST_P(EngineTest, TheShareOfARefreshIsToldBefore) {
  Records records(4000, 2);
  const auto server = Serve(records.content(), {.shape = Shape(2)});
  const Bytes hint = ToBytes(server->hint());
  std::vector<uint64_t> all(4000);
  for (uint64_t row = 0; row < 4000; ++row) {
    all[row] = row;
    records.Fill(row, static_cast<uint8_t>(row * 7 + 1));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const double share, server->RefreshShare(records.content(2), all));
  EXPECT_GT(share, 0.99);
  EXPECT_LE(share, 1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const double none, server->RefreshShare(records.content(2), {}));
  EXPECT_EQ(none, 0);
  EXPECT_EQ(ToBytes(server->hint()), hint);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta, server->Refresh(records.content(2), all));
  EXPECT_EQ(delta.has_value(), GetParam() == Scheme::kDoublePir);
  EXPECT_EQ(ToBytes(server->hint()),
            ToBytes(Serve(records.content(2), {.shape = Shape(2)})->hint()));
  EXPECT_THAT(server->RefreshShare(records.content(1), all),
              StatusIs(absl::StatusCode::kInvalidArgument, "not a later epoch"));
}

// The paper's batch: one query for each chunk, and one pass for all.
TEST(EngineTest, BatchOfChunks) {
  for (const auto& [scheme, width] :
       {std::pair(Scheme::kSimplePir, 5), std::pair(Scheme::kDoublePir, 2)}) {
    const Records records(331, width);
    const auto server = CreateServer(scheme, records.content(), {.shape = Shape(9)}).value();
    const auto client = CreateClient(server->setup(), server->hint(), ClientOptions()).value();
    TestRandom random(3);
    EXPECT_EQ(server->AnswerChunks({}).value().size(), 0u);
    for (uint64_t chunks : {1, 2, 4, 9, 16}) {
      std::vector<Asked> asked(chunks);
      std::vector<uint64_t> wanted(chunks, 1000);
      for (uint64_t row = 0; row < 331; row += 10) {
        ASSERT_LT(ChunkOf(server->setup(), chunks, row), chunks);
        wanted[ChunkOf(server->setup(), chunks, row)] = row;
      }
      std::vector<BytesView> queries;
      for (uint64_t c = 0; c < chunks; ++c) {
        asked[c] = client->Ask(wanted[c] == 1000 ? 0 : wanted[c], random).value();
      }
      for (const Asked& a : asked) queries.push_back(a.query);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, server->AnswerChunks(queries));
      for (uint64_t c = 0; c < chunks; ++c) {
        if (wanted[c] == 1000) continue;
        SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record,
                                   client->RecoverChunk(asked[c], chunks, answers[c]));
        EXPECT_EQ(record, records.at(wanted[c]))
            << SchemeName(scheme) << ", " << chunks << " chunks, row " << wanted[c];
      }
      // One bad query refuses the batch.
      queries.back() = queries.back().first(queries.back().size() - 1);
      EXPECT_THAT(server->AnswerChunks(queries).status(),
                  StatusIs(absl::StatusCode::kInvalidArgument, ""));
    }
  }
}

// Records that are too wide are refused because of their hint; the message says what to do and how
// the hint grows.
TEST(DoublePirTest, WideRecordsAreRefused) {
  const Records records(100, 1072);
  EXPECT_THAT(CreateServer(Scheme::kDoublePir, records.content(), {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "use simplepir for wide rows"));
}

// The hint does not grow with the table.
TEST(DoublePirTest, HintIsTheSameForEveryTable) {
  Content content = Records(1, 1).content();
  uint64_t hint = 0;
  for (uint64_t rows :
       {uint64_t{1} << 20, uint64_t{1} << 26, uint64_t{1} << 30, uint64_t{1} << 33}) {
    content.rows = rows;
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PirSetup setup,
                               ShapeOf(Scheme::kDoublePir, content, {}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, DoublePirSizes(setup));
    EXPECT_LT(sizes.hint_bytes, 8u << 20);
    if (hint == 0) hint = sizes.hint_bytes;
    EXPECT_NEAR(sizes.hint_bytes, hint, hint * 0.1);
  }
}

}  // namespace
}  // namespace shoal::pir::lwe
