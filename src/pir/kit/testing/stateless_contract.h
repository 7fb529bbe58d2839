// What every engine has to do whose client keeps nothing (kit/stateless_session.h), as tests that a
// test of the engine runs.
#ifndef SHOAL_SRC_PIR_KIT_TESTING_STATELESS_CONTRACT_H_
#define SHOAL_SRC_PIR_KIT_TESTING_STATELESS_CONTRACT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/kit/checks.h"
#include "src/pir/kit/stateless_session.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::testing {

inline absl::StatusOr<Bytes> AnswerOne(const Server& server, BytesView query,
                                       Role role = Role::kSingle) {
  const RequestView request = {.kind = 0, .count = 1, .body = query};
  return server.Answer(role, {&request, 1})[0];
}

// A server and a client of an engine over random records. Scheme has the types Server and Client,
// Engine(), and MakeServer(content, setup, options), which returns a Server. Where an engine has
// two roles, the server has both.
template <typename Scheme>
class StatelessWorld {
 public:
  using Client = typename Scheme::Client;
  static constexpr std::span<const Role> kRoles = RolesOf<Client>();

  // A server of this shape (PirSetup.shape).
  StatelessWorld(Records of, const std::string& shape, ServerOptions options = {})
      : records(std::move(of)) {
    ServerOptions shaped;
    shaped.shape.emplace().set_shape(shape);
    auto made = Scheme::Engine().ShapeOf(records.content(), shaped);
    EXPECT_THAT(made, shoal::testing::IsOk());
    setup = *made;
    server = *Scheme::MakeServer(records.content(), setup, options);
    client = *Client::Create(setup);
  }
  void ExpectServed(uint64_t row) {
    const auto asked = client->Ask(row, random);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, Answers(*server, asked));
    for (const Bytes& answer : answers) {
      ASSERT_EQ(answer.size(), client->shape().answer_bytes());
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto record, Recovered(asked, answers));
    EXPECT_TRUE(std::ranges::equal(record, records.at(row))) << row;
  }

  // Of all roles to one query.
  template <typename Asked>
  static absl::StatusOr<std::vector<Bytes>> Answers(const Server& of, const Asked& asked) {
    std::vector<Bytes> answers;
    for (size_t s = 0; s < kRoles.size(); ++s) {
      absl::StatusOr<Bytes> answer = AnswerOne(of, QueryOf(asked, s), kRoles[s]);
      if (!answer.ok()) return answer.status();
      answers.push_back(*std::move(answer));
    }
    return answers;
  }
  template <typename Asked>
  auto Recovered(const Asked& asked, const std::vector<Bytes>& answers) const {
    return RecoverFrom(*client, asked, std::vector<BytesView>(answers.begin(), answers.end()));
  }
  std::unique_ptr<Session> Open() const {
    const std::vector<wire::PirSetup> setups(kRoles.size(), setup);
    return *Scheme::Engine().OpenSession(setups, {});
  }
  // The first role's query for a row.
  Bytes QueryFor(uint64_t row) {
    const auto asked = client->Ask(row, random);
    return ToBytes(QueryOf(asked, 0));
  }

  // ---- The tests.

  // What is sent depends on the number of keys alone. The server's call takes nothing but the bytes
  // that were sent.
  void ExpectOneLengthWhateverIsAsked() {
    const Engine& engine = Scheme::Engine();
    const auto session = Open();
    EXPECT_EQ(session->needed(5), Session::Need::kNothing);
    EXPECT_EQ(session->Budget(), std::nullopt);
    std::set<std::pair<uint64_t, uint64_t>> lengths;
    for (const std::vector<uint64_t>& rows :
         std::vector<std::vector<uint64_t>>{{}, {0}, {17, 17, 17}, {1, 2}}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 3}));
      EXPECT_EQ(batch->steps(), 1u);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random));
      ASSERT_EQ(requests.size(), kRoles.size());
      // A lying server: any bytes of the right length are some records, others are refused.
      Bytes lie(requests[0].answer_bytes);
      random.Fill(lie);
      const std::vector<BytesView> lies(requests.size(), lie);
      for (size_t s = 0; s < requests.size(); ++s) {
        EXPECT_EQ(requests[s].role, kRoles[s]);
        EXPECT_EQ(requests[s].count, 3u);
        lengths.insert({requests[s].body.size(), requests[s].answer_bytes});
        std::vector<BytesView> shorter = lies;
        shorter[s] = shorter[s].first(lie.size() - 1);
        EXPECT_THAT(batch->Finish(shorter),
                    StatusIs(kInvalid, absl::StrCat(engine.name(), ": an answer of")));
      }
      SHOAL_ASSERT_OK(batch->Finish(lies));
      EXPECT_EQ(batch->TakeRecords().size(), rows.size() * setup.record_bytes());
    }
    EXPECT_EQ(lengths.size(), 1u);
    const uint64_t beyond = setup.rows();
    EXPECT_THAT(session->Ask({.rows = {&beyond, 1}, .keys = 1}),
                StatusIs(absl::StatusCode::kOutOfRange, absl::StrCat("row ", beyond)));
  }

  // Fixed public parts are safe only under a secret of its own for every query. `parts` cuts a
  // query into what must differ from query to query.
  template <typename Parts>
  void ExpectNothingTwice(uint64_t row, const Parts& parts) {
    std::set<std::vector<uint32_t>> secrets;
    std::set<Bytes> different;
    constexpr size_t kKeys = 20;
    const auto session = Open();
    const std::vector<uint64_t> rows(kKeys, row);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = kKeys}));
    const uint64_t query_bytes = client->shape().query_bytes();
    size_t queries = 0, all_parts = 0;
    while (batch->steps() > 0) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random));
      ASSERT_EQ(requests.size(), 1u);
      for (uint32_t i = 0; i < requests[0].count; ++i, ++queries) {
        for (const BytesView part :
             parts(BytesView(requests[0].body).subspan(i * query_bytes, query_bytes))) {
          different.insert(ToBytes(part));
          ++all_parts;
        }
      }
      const RequestView view = {
          .kind = requests[0].kind, .count = requests[0].count, .body = requests[0].body};
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, server->Answer(Role::kSingle, {&view, 1})[0]);
      const BytesView answer_view = answer;
      SHOAL_ASSERT_OK(batch->Finish({&answer_view, 1}));
    }
    EXPECT_EQ(queries, kKeys);
    EXPECT_EQ(different.size(), all_parts);
    const auto got = batch->TakeRecords();
    const size_t bytes = setup.record_bytes();
    ASSERT_EQ(got.size(), kKeys * bytes);
    for (size_t i = 0; i < kKeys; ++i) {
      EXPECT_TRUE(std::ranges::equal(BytesView(got).subspan(i * bytes, bytes), records.at(row)));
    }
    for (size_t i = 0; i < kKeys; ++i) {
      const auto asked = client->Ask(row, random);
      secrets.insert({asked.secret.begin(), asked.secret.end()});
    }
    EXPECT_EQ(secrets.size(), kKeys);
  }

  // Whatever is wrong with a query, the queries that came with it have their answers. The last four
  // bytes of a query cannot have all bits, and whoever refuses them says `malformed`.
  void ExpectBadQueriesRefusedAndGoodOnesServed(
      const std::string& malformed = "not below its prime") {
    const Bytes good = QueryFor(11);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes expected, AnswerOne(*server, good, kRoles[0]));
    Bytes other_epoch = good, other_setup = good, large_word = good, twice = good;
    other_epoch[0] ^= 2;
    other_setup[20] ^= 1;
    for (size_t i = 0; i < 4; ++i) large_word[good.size() - 1 - i] = 0xff;
    const Bytes short_query(good.begin(), good.end() - 1);
    Append(twice, large_word);
    const auto view = [](const Bytes& body, uint32_t count = 1, uint32_t kind = 0) {
      return RequestView{.kind = kind, .count = count, .body = body};
    };
    const Bytes none;
    const std::vector<RequestView> requests = {
        view(good),        view(other_epoch), view(other_setup),    view(large_word),
        view(short_query), view(none),        view(good, 2),        view(good, 0),
        view(good, 1, 1),  view(twice, 2),    view(good, 1u << 31), view(good)};
    const auto answers = server->Answer(kRoles[0], requests);
    ASSERT_EQ(answers.size(), requests.size());
    EXPECT_THAT(answers[0], shoal::testing::IsOk());
    EXPECT_EQ(*answers[0], expected);
    EXPECT_THAT(answers[1], StatusIs(kPrecondition, "epoch"));
    EXPECT_THAT(answers[2], StatusIs(kPrecondition, "another engine, table or set of parameters"));
    EXPECT_THAT(answers[3], StatusIs(kInvalid, malformed));
    for (const size_t i : {4, 5, 6, 7, 10}) {
      EXPECT_THAT(answers[i], StatusIs(kInvalid, "bytes for"));
    }
    EXPECT_THAT(answers[8], StatusIs(kInvalid, "kind"));
    EXPECT_THAT(answers[9], StatusIs(kInvalid, malformed));
    EXPECT_THAT(answers[11], shoal::testing::IsOk());
    EXPECT_EQ(*answers[11], expected);
    const RequestView one = view(good);
    const Role other = kRoles.size() == 1 ? Role::kOffline : Role::kSingle;
    EXPECT_THAT(server->Answer(other, {&one, 1})[0], StatusIs(kInvalid, "role"));
    EXPECT_EQ(server->max_request_bytes(), kMaxQueriesPerRequest * good.size());
  }

  // The last `tail` bytes of a query cannot have any value.
  void ExpectMutatedQueriesAnsweredOrRefused(size_t tail) {
    const Bytes good = QueryFor(3);
    int answered = 0, refused = 0;
    for (int trial = 0; trial < 60; ++trial) {
      Bytes query = good;
      if (trial % 3 == 0) {
        random.Fill(MutableBytes(query).subspan(kQueryHeaderBytes,
                                                query.size() - tail - kQueryHeaderBytes));
      } else {
        for (uint64_t flips = 1 + random.Below(3); flips > 0; --flips) {
          query[random.Below(query.size())] ^= static_cast<uint8_t>(1u << random.Below(8));
        }
        if (trial % 3 == 1 && random.Below(4) == 0) query.resize(random.Below(2 * good.size()));
      }
      const auto answer = AnswerOne(*server, query, kRoles[0]);
      if (answer.ok()) {
        ++answered;
        ASSERT_EQ(answer->size(), client->shape().answer_bytes());
      } else {
        ++refused;
        ASSERT_TRUE(answer.status().code() == kInvalid || answer.status().code() == kPrecondition);
      }
    }
    EXPECT_GT(answered, 10);
    EXPECT_GT(refused, 3);
    ExpectServed(3);
  }

  // Setups with numbers of any size, `shape_of` some of which are shapes (numbers below a
  // parameter's usual one are likely): each is refused, or its sizes are sensible, and `fits` looks
  // at it.
  template <typename ShapeOf, typename Fits>
  void ExpectSetupsRefusedOrFit(const std::vector<uint64_t>& extremes, const ShapeOf& shape_of,
                                const Fits& fits) {
    const Engine& engine = Scheme::Engine();
    int taken = 0, refused = 0;
    const auto extreme = [&](uint64_t old) {
      return random.Below(3) == 0 ? extremes[random.Below(extremes.size())] : old;
    };
    for (int trial = 0; trial < 4000; ++trial) {
      wire::PirSetup other = setup;
      other.set_rows(extreme(setup.rows()));
      other.set_record_bytes(static_cast<uint32_t>(extreme(setup.record_bytes())));
      other.set_shape(shape_of(extreme));
      if (random.Below(8) == 0) other.set_columns(random.Below(2));
      if (random.Below(8) == 0) other.mutable_shape()->resize(random.Below(20));
      const auto sizes = engine.SizesOf(other);
      if (!sizes.ok()) {
        ++refused;
        ASSERT_THAT(sizes, StatusIs(kInvalid, ""));
        continue;
      }
      ++taken;
      ASSERT_EQ(sizes->hint_bytes, 0u);
      ASSERT_LE(sizes->query_bytes, 1u << 20);
      ASSERT_LE(sizes->answer_bytes, uint64_t{1} << 26);
      ASSERT_LE(sizes->server_bytes, uint64_t{1} << 50);
      fits(other);
    }
    EXPECT_GT(taken, 100);
    EXPECT_GT(refused, 100);
    wire::PirSetup other = setup;
    other.set_engine("simplepir");
    const auto open = [&] {
      return engine.OpenSession(std::vector<wire::PirSetup>(kRoles.size(), other), {});
    };
    EXPECT_THAT(open(), StatusIs(kInvalid, absl::StrCat("not ", engine.name())));
    other = setup;
    other.set_hint_bytes(1);
    EXPECT_FALSE(open().ok());
  }

  // Takes the server to a later content, of which `share` is made anew. A refreshed server gives
  // what a new one gives, byte for byte; what does not fit its `room` rows changes nothing.
  void ExpectRefreshed(const Records& later, const Content& content,
                       const std::vector<uint64_t>& changed, double share, uint64_t room,
                       const std::vector<uint64_t>& rows_to_ask) {
    const Engine& engine = Scheme::Engine();
    const Bytes old_query = QueryFor(0);
    SHOAL_ASSERT_OK_AND_ASSIGN(const double told, server->RefreshShare(content, changed));
    EXPECT_NEAR(told, share, 0.001);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta, server->Refresh(content, changed));
    EXPECT_FALSE(delta.has_value());
    ServerOptions options;
    options.shape = setup;
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto fresh, engine.CreateServer(later.content(2), options));
    EXPECT_EQ(SetupId(fresh->setup()), SetupId(server->setup()));
    EXPECT_THAT(AnswerOne(*server, old_query, kRoles[0]), StatusIs(kPrecondition, "epoch 1"));
    client = *Client::Create(server->setup());
    for (const uint64_t row : rows_to_ask) {
      const auto asked = client->Ask(row, random);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, Answers(*server, asked));
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto others, Answers(*fresh, asked));
      EXPECT_EQ(answers, others);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto record, Recovered(asked, answers));
      EXPECT_TRUE(std::ranges::equal(record, later.at(row))) << row;
    }
    const auto refuses = [&](const Content& bad, const std::vector<uint64_t>& rows) {
      const std::string name = absl::StrCat(engine.name(), ": ");
      EXPECT_THAT(server->Refresh(bad, rows), StatusIs(kInvalid, name));
      EXPECT_THAT(server->RefreshShare(bad, rows), StatusIs(kInvalid, name));
    };
    refuses(later.content(2), {});
    refuses(later.content(3), {5, 5});
    refuses(later.content(3), {6, 5});
    refuses(later.content(3), {content.rows});
    Content wider = later.content(3);
    ++wider.record_bytes;
    refuses(wider, {});
    Content more = later.content(3);
    more.rows = room + 1;
    refuses(more, {});
    EXPECT_EQ(server->setup().epoch(), 2u);
  }

  // Answers do not depend on threads, or on what is answered beside.
  void ExpectTheSameOnThreads() {
    ThreadPool pool(3);
    const auto threaded = *Scheme::MakeServer(records.content(), setup, {.pool = &pool});
    std::vector<Bytes> queries, expected;
    for (uint64_t i = 0; i < 6; ++i) {
      queries.push_back(QueryFor(i * 25 % setup.rows()));
      expected.push_back(*AnswerOne(*server, queries.back(), kRoles[0]));
    }
    std::vector<RequestView> views;
    for (const Bytes& query : queries) views.push_back({.kind = 0, .count = 1, .body = query});
    const auto together = threaded->Answer(kRoles[0], views);
    for (size_t i = 0; i < queries.size(); ++i) EXPECT_EQ(*together[i], expected[i]) << i;
  }

  Records records;
  wire::PirSetup setup;
  std::unique_ptr<typename Scheme::Server> server;
  std::unique_ptr<Client> client;
  shoal::testing::TestRandom random{5};

 private:
  template <typename... Args>
  static auto StatusIs(Args&&... args) {
    return shoal::testing::StatusIs(std::forward<Args>(args)...);
  }
  static constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  static constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
};

// Memory is asked for by the shape, before a row is read.
inline void ExpectRefusedBeforeItIsRead(const Engine& engine, uint64_t rows,
                                        uint32_t record_bytes) {
  const Content content = {.table_id = {9},
                           .epoch = 1,
                           .manifest_digest = {1},
                           .rows = rows,
                           .record_bytes = record_bytes,
                           .copy = [](uint64_t, MutableBytes) { FAIL() << "a row was read"; }};
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PirSetup setup, engine.ShapeOf(content, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, engine.SizesOfShape(setup));
  EXPECT_GT(sizes.server_bytes, uint64_t{1} << 38);
  EXPECT_THAT(
      engine.CreateServer(content, {}),
      shoal::testing::StatusIs(absl::StatusCode::kResourceExhausted, std::string(engine.name())));
}

}  // namespace shoal::pir::testing

#endif  // SHOAL_SRC_PIR_KIT_TESTING_STATELESS_CONTRACT_H_
