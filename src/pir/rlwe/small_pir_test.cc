// Small PIR from table to record: every place of every shape, the errors beside what is proved of
// them, mistakes of the authors' prototype, bad input, epochs.
#include "src/pir/rlwe/small_pir.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/rlwe/small_public.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/rlwe/small_shape.h"
#include "src/pir/rlwe/small_transform.h"
#include "src/pir/rlwe/small_words.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::rlwe {
namespace {

using pir::testing::Records;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

wire::PirSetup SetupFor(const Content& content, const SmallShape& shape) {
  wire::PirSetup setup;
  setup.set_shape(EncodeSmallShape(shape));
  ServerOptions options;
  options.shape = setup;
  auto made = SmallPir().ShapeOf(content, options);
  EXPECT_THAT(made, shoal::testing::IsOk());
  return *std::move(made);
}

absl::StatusOr<Bytes> AnswerOne(const Server& server, BytesView query) {
  const RequestView view = {.kind = 0, .count = 1, .body = query};
  return server.Answer(Role::kSingle, {&view, 1})[0];
}

// A server and a client over random records.
struct World {
  World(uint32_t record_bytes, const SmallShape& shape, uint64_t missing = 0,
        ServerOptions options = {})
      : records(shape.capacity() - missing, record_bytes),
        setup(SetupFor(records.content(), shape)) {
    server = *SmallServer::Create(records.content(), setup, options);
    client = *SmallClient::Create(setup);
  }
  void ExpectServed(uint64_t row) {
    const SmallAsked asked = client->Ask(row, random);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, AnswerOne(*server, asked.query));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto record, client->Recover(asked, answer));
    ASSERT_TRUE(std::ranges::equal(record, records.at(row))) << "row " << row;
  }

  TestRandom random{5};
  Records records;
  wire::PirSetup setup;
  std::unique_ptr<SmallServer> server;
  std::unique_ptr<SmallClient> client;
};

constexpr SmallShape kTiny = {.group_rows = 3, .slices = 1, .terms = 3, .folds = 1};
constexpr uint32_t kTinyBytes = 600;

// The authors' prototype has no decoding of records: these are rows of any width, several in a
// ring element and over several, in tables that do not fill the last group.
TEST(SmallPir, EveryRowOfEveryShapeIsFound) {
  const struct {
    uint32_t record_bytes;
    SmallShape shape;
    uint64_t missing;
  } cases[] = {
      {700, {.group_rows = 2, .slices = 1, .terms = 1, .folds = 0}, 0},
      {1000, {.group_rows = 2, .slices = 1, .terms = 3, .folds = 0}, 1},
      {2048, {.group_rows = 1, .slices = 1, .terms = 2, .folds = 1}, 0},
      {1500, {.group_rows = 4, .slices = 3, .terms = 2, .folds = 3}, 5},
      {5000, {.group_rows = 1, .slices = 3, .terms = 5, .folds = 2}, 0},
      {kTinyBytes, kTiny, 1},
  };
  for (const auto& each : cases) {
    World world(each.record_bytes, each.shape, each.missing);
    for (uint64_t row = 0; row < world.setup.rows(); ++row) world.ExpectServed(row);
  }
}

// More positions than one ring element has room for, and more values than one has.
TEST(SmallPir, QueriesOfSeveralElementsOfEachKindFindRowsInAllOfThem) {
  World world(2048, {.group_rows = 1, .slices = 1, .terms = 70, .folds = 4});
  EXPECT_EQ(world.client->shape().position_elements(), 2u);
  EXPECT_EQ(world.client->shape().fold_elements(), 2u);
  for (const uint64_t row : {0u, 63u, 64u, 69u, 70u, 7u * 70 + 65, 15u * 70 + 69, 8u * 70}) {
    world.ExpectServed(row);
  }
}

TEST(SmallPir, RecordsWithBytesAtTheEndsOfTheirRange) {
  World world(2048, {.group_rows = 1, .slices = 1, .terms = 64, .folds = 2});
  std::vector<uint64_t> rows;
  for (uint64_t row = 0; row < world.setup.rows(); ++row) {
    world.records.Fill(row, row % 2 == 0 ? 0x80 : 0x7f);
    rows.push_back(row);
  }
  SHOAL_ASSERT_OK(world.server->Refresh(world.records.content(2), rows).status());
  world.client = *SmallClient::Create(world.server->setup());
  for (const uint64_t row : {0u, 1u, 130u, 255u}) world.ExpectServed(row);
}

double RootMeanSquare(const std::vector<int64_t>& errors) {
  double sum = 0;
  for (const int64_t error : errors) sum += static_cast<double>(error) * static_cast<double>(error);
  return std::sqrt(sum / static_cast<double>(errors.size()));
}

// Variances of errors if all digits were uniform and independent, in units of Z_Q's 1.
struct TypicalNoise {
  double position = 0;  // of an unpacked position, mean over coefficients
  double fold = 0;      // what one level of the second stage adds

  explicit TypicalNoise(const SmallShape& shape) {
    constexpr double n = kDegree, sigma2 = lwe::kSigma * lwe::kSigma;
    // The last digit has the bits that are left of 54.
    const auto digits = [](const Gadget& g) {
      double sum = 0;
      for (uint32_t i = 0; i < g.digits; ++i) {
        const uint32_t bits = std::min(g.bits, 54 - g.bits * i);
        sum += n * std::ldexp(1, 2 * static_cast<int>(bits)) / 12;
      }
      return sum;
    };
    // The doubling at level t, of 2^log: 2^(log - 1 - t) automorphisms, whose errors are taken
    // through as many more doublings, each of which doubles the mean variance.
    const auto unpacked = [&](uint32_t log) {
      double variance = sigma2 * std::ldexp(1, static_cast<int>(log));
      for (uint32_t left = 0; left < log; ++left) {
        variance += sigma2 * digits(kUnpackGadget) * std::ldexp(1, static_cast<int>(2 * left));
      }
      return variance;
    };
    position = unpacked(shape.pack_log());
    const double value = unpacked(kFoldPackLog);
    const double product = n * sigma2 * value + sigma2 * digits(kSquareGadget);
    // The digits of a ciphertext and those of the dither.
    fold = 2 * (digits(kFoldGadget) * (product + value) +
                n * std::ldexp(1, 2 * static_cast<int>(kFoldGadget.drop())) / 12 * sigma2);
  }
};

// Errors that were measured lie below what docs/small-pir.md proves for the worst content, and
// are as large as they should be for typical content, so that the bound is one of this scheme. With
// one term and no fold there is no key in it; with more terms there is the first stage, with more
// outputs the second.
TEST(SmallPir, ErrorsAreAsTheyAreComputed) {
  for (const SmallShape shape :
       {SmallShape{.group_rows = 1, .slices = 1, .terms = 1, .folds = 0},
        SmallShape{.group_rows = 1, .slices = 1, .terms = 64, .folds = 0},
        SmallShape{.group_rows = 1, .slices = 1, .terms = 100, .folds = 0},
        SmallShape{.group_rows = 1, .slices = 1, .terms = 1, .folds = 4},
        SmallShape{.group_rows = 1, .slices = 1, .terms = 64, .folds = 3}}) {
    World world(kDegree, shape);
    const TypicalNoise noise(shape);
    const double proved = std::sqrt(SmallNoiseOf(shape).total());
    // Bytes that are uniform in [-128, 127] have the variance 65536 / 12.
    const double first = 65536.0 / 12 * kDegree * shape.terms * noise.position;
    const double typical = std::sqrt(first + shape.folds * noise.fold);
    double squares = 0;
    constexpr int kQueries = 6;
    for (int i = 0; i < kQueries; ++i) {
      const uint64_t row = world.random.Below(world.setup.rows());
      const SmallAsked asked = world.client->Ask(row, world.random);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto unrounded, world.server->Unrounded(asked.query));
      const auto errors = world.client->Errors(asked, unrounded, world.records.at(row));
      const double rms = RootMeanSquare(errors);
      squares += rms * rms;
      for (const int64_t error : errors) {
        ASSERT_LT(std::abs(static_cast<double>(error)), 8 * proved);
      }
      EXPECT_LT(rms, proved);
    }
    const double measured = std::sqrt(squares / kQueries);
    EXPECT_LT(measured, 1.4 * typical) << shape.terms << " terms, " << shape.folds << " folds";
    EXPECT_GT(measured, typical / 1.6) << shape.terms << " terms, " << shape.folds << " folds";
  }
}

// The shapes that a server chooses are wrong with a probability of 2^-40 at most, and the largest
// ones too.
TEST(SmallPir, ChosenShapesFitTheirTablesAndAreRarelyWrong) {
  for (const uint32_t record_bytes :
       {1u, 17u, 100u, 1072u, 2048u, 2049u, 5000u, 100'000u, kMaxRecordBytes}) {
    for (const uint64_t rows : {1u, 2u, 100u, 5000u, 200'000u}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const SmallShape shape, ChooseSmallShape(rows, record_bytes));
      EXPECT_GE(shape.capacity(), rows);
      EXPECT_LE(uint64_t{shape.group_rows} * record_bytes, shape.slices * uint64_t{kDegree});
      EXPECT_LE(SmallFailureLog2(shape), -40);
      EXPECT_GE(2 * uint64_t{shape.group_rows} * record_bytes, shape.slices * uint64_t{kDegree})
          << record_bytes;
    }
  }
  const SmallShape largest = {.group_rows = 1, .slices = 1024, .terms = 512, .folds = 12};
  EXPECT_LE(SmallFailureLog2(largest), -40);
  EXPECT_EQ(largest.slices, 2 * kMaxRecordBytes / kDegree);
  EXPECT_GT(SmallFailureLog2(largest), -43);  // the good events' share
  // 256 MiB and 1 GiB in the shape that is measured.
  SHOAL_ASSERT_OK_AND_ASSIGN(const SmallShape mib256, ChooseSmallShape(1 << 17, 2048));
  EXPECT_LE(mib256.query_bytes() + mib256.answer_bytes(), 332u << 10);
  EXPECT_EQ(mib256.table_bytes(), uint64_t{2} << 30);
  SHOAL_ASSERT_OK_AND_ASSIGN(const SmallShape gib, ChooseSmallShape(1 << 19, 2048));
  EXPECT_LE(gib.query_bytes() + gib.answer_bytes(), 360u << 10);
  EXPECT_THAT(ChooseSmallShape(uint64_t{1} << 35, 1000), StatusIs(kExhausted, "wider rows"));
  EXPECT_THAT(ChooseSmallShape(0, 1000), StatusIs(kInvalid, "rows"));
  EXPECT_THAT(ChooseSmallShape(10, 0), StatusIs(kInvalid, "rows"));
}

// The authors round a Gaussian of 32-bit floats. Here errors and secret are the sampler's
// (src/pir/lwe/gaussian.h): of the first key's element, the error is b - a s + tau(s).
TEST(SmallPir, ErrorsAndSecretsAreTheSamplersGaussians) {
  World world(kTinyBytes, kTiny);
  std::vector<uint32_t> mask(kPolynomialWords), body(kPolynomialWords), part(kPolynomialWords);
  SmallPublicPart(kTiny, 0, mask);
  double squares = 0, secret_squares = 0;
  constexpr int kQueries = 4;
  const auto small = [](const std::vector<uint32_t>& words, size_t w) {
    const uint64_t x = Compose(words[w], words[kDegree + w]);
    return x > kModulus / 2 ? -static_cast<double>(kModulus - x) : static_cast<double>(x);
  };
  const auto back = [](std::vector<uint32_t>& words) {
    for (uint32_t k = 0; k < kPrimes; ++k) TransformBack(k, words.data() + k * kDegree);
  };
  for (int i = 0; i < kQueries; ++i) {
    const SmallAsked asked = world.client->Ask(0, world.random);
    SHOAL_ASSERT_OK(
        ReadResidues(BytesView(asked.query).subspan(kQueryHeaderBytes, kElementBytes), body));
    MultiplyPolynomials(mask.data(), asked.secret.data(), part.data());
    SubtractPolynomials(body.data(), part.data(), body.data());
    UnpackConstants::Get().Apply(asked.secret.data(), part.data());
    AddPolynomials(body.data(), part.data(), body.data());
    back(body);
    std::vector<uint32_t> secret(asked.secret.begin(), asked.secret.end());
    back(secret);
    const double most = lwe::GaussianSampler::Get().max();
    for (size_t w = 0; w < kDegree; ++w) {
      ASSERT_LE(std::abs(small(body, w)), most);
      ASSERT_LE(std::abs(small(secret, w)), most);
      squares += small(body, w) * small(body, w);
      secret_squares += small(secret, w) * small(secret, w);
    }
  }
  // The variance of 8192 samples: within 5 of its own deviations, sqrt(2 / 8192).
  const double variance = lwe::kSigma * lwe::kSigma * kDegree * kQueries;
  EXPECT_NEAR(squares / variance, 1, 0.08);
  EXPECT_NEAR(secret_squares / variance, 1, 0.08);
}

// Fixed public parts are safe only under a secret of its own for every query.
TEST(SmallPir, NoTwoQueriesShareASecretOrAnElement) {
  World world(kTinyBytes, kTiny);
  std::set<std::vector<uint32_t>> secrets;
  std::set<Bytes> elements;
  constexpr size_t kKeys = 20;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, SmallPir().OpenSession({&world.setup, 1}, {}));
  const std::vector<uint64_t> rows(kKeys, 4);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = kKeys}));
  const uint64_t query_bytes = world.client->shape().query_bytes();
  size_t queries = 0;
  while (batch->steps() > 0) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(world.random));
    ASSERT_EQ(requests.size(), 1u);
    for (uint32_t i = 0; i < requests[0].count; ++i, ++queries) {
      const BytesView query = BytesView(requests[0].body).subspan(i * query_bytes, query_bytes);
      for (uint32_t e = 0; e < world.client->shape().elements(); ++e) {
        elements.insert(
            ToBytes(query.subspan(kQueryHeaderBytes + e * kElementBytes, kElementBytes)));
      }
    }
    const RequestView view = {
        .kind = requests[0].kind, .count = requests[0].count, .body = requests[0].body};
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer,
                               world.server->Answer(Role::kSingle, {&view, 1})[0]);
    const BytesView answer_view = answer;
    SHOAL_ASSERT_OK(batch->Finish({&answer_view, 1}));
  }
  EXPECT_EQ(queries, kKeys);
  EXPECT_EQ(elements.size(), kKeys * world.client->shape().elements());
  const auto records = batch->TakeRecords();
  for (size_t i = 0; i < kKeys; ++i) {
    EXPECT_TRUE(std::ranges::equal(BytesView(records).subspan(i * kTinyBytes, kTinyBytes),
                                   world.records.at(4)));
  }
  for (int i = 0; i < 20; ++i) {
    const SmallAsked asked = world.client->Ask(4, world.random);
    secrets.insert({asked.secret.begin(), asked.secret.end()});
  }
  EXPECT_EQ(secrets.size(), 20u);
}

// Every query has a dither of its own, that depends on all of it. Were it the same for all, a table
// could be made such that digits follow secrets.
TEST(SmallPir, DitherDependsOnTheWholeQuery) {
  World world(kTinyBytes, kTiny);
  const Bytes query = world.client->Ask(4, world.random).query;
  std::set<Digest> seeds = {SmallDitherSeed(query),
                            SmallDitherSeed(world.client->Ask(4, world.random).query)};
  for (const size_t byte : {size_t{0}, query.size() / 2, query.size() - 1}) {
    Bytes other = query;
    other[byte] ^= 1;
    seeds.insert(SmallDitherSeed(other));
  }
  EXPECT_EQ(seeds.size(), 5u);
  EXPECT_TRUE(seeds.contains(SmallDitherSeed(query)));
}

// Without folds, masks are the same for all queries until they are rounded: up or down as the
// query's dither says, so that they differ where two dithers do, and by one step at most.
TEST(SmallPir, MasksAreRoundedByTheDitherOfTheirQuery) {
  World world(kDegree, {.group_rows = 1, .slices = 1, .terms = 3, .folds = 0});
  std::vector<uint32_t> unrounded[2], rounded[2];
  for (size_t i = 0; i < 2; ++i) {
    const Bytes query = world.client->Ask(1, world.random).query;
    SHOAL_ASSERT_OK_AND_ASSIGN(unrounded[i], world.server->Unrounded(query));
    unrounded[i].resize(kPolynomialWords);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, AnswerOne(*world.server, query));
    rounded[i].resize(kDegree);
    SHOAL_ASSERT_OK(lwe::ParseRounded(BytesView(answer).first(kDegree * kAnswerMaskBits / 8),
                                      32 - kAnswerMaskBits, rounded[i]));
  }
  EXPECT_EQ(unrounded[0], unrounded[1]);
  constexpr uint32_t kStep = 1u << (32 - kAnswerMaskBits);
  int different = 0;
  for (size_t w = 0; w < kDegree; ++w) {
    const uint32_t difference = rounded[0][w] - rounded[1][w];
    EXPECT_TRUE(difference == 0 || difference == kStep || difference == 0 - kStep) << w;
    different += difference != 0;
  }
  // With f of a step to round, two dithers differ with probability 2 f (1 - f), a third in the
  // mean. Five deviations.
  EXPECT_NEAR(different, kDegree / 3.0, 5 * std::sqrt(kDegree * 2 / 9.0));
}

// Two queries that are the same but for a coefficient which no value is taken from have nothing
// different in them but their dithers. The mask of a folded sum depends on these.
TEST(SmallPir, FoldedSumsAreDecomposedWithTheDitherOfTheirQuery) {
  World world(kTinyBytes, kTiny);
  const SmallShape& shape = world.client->shape();
  const SmallAsked asked = world.client->Ask(4, world.random);
  // Value v is taken from coefficients that are 4 v modulo 64; there are fewer than 16 values.
  ASSERT_LT(shape.fold_values(), (1u << kFoldPackLog));
  std::vector<uint32_t> unused(kPolynomialWords), element(kPolynomialWords);
  for (uint32_t k = 0; k < kPrimes; ++k) {
    unused[k * kDegree + ((1u << kPackLog) - (1u << (kPackLog - kFoldPackLog)))] = 1;
    Transform(k, unused.data() + k * kDegree);
  }
  // The last element.
  const size_t at = asked.query.size() - kElementBytes;
  SHOAL_ASSERT_OK(ReadResidues(BytesView(asked.query).subspan(at), element));
  AddPolynomials(element.data(), unused.data(), element.data());
  Bytes other = ToBytes(BytesView(asked.query).first(at));
  AppendResidues(element, other);
  ASSERT_NE(other, asked.query);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto one, world.server->Unrounded(asked.query));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto two, world.server->Unrounded(other));
  size_t different = 0;
  for (size_t w = 0; w < kPolynomialWords; ++w) different += one[w] != two[w];
  EXPECT_GT(different, kPolynomialWords / 2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, AnswerOne(*world.server, other));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto record, world.client->Recover(asked, answer));
  EXPECT_TRUE(std::ranges::equal(record, world.records.at(4)));
}

// What is sent depends on the number of keys alone; the server's call takes nothing but the bytes
// that were sent. (The authors' server is called with the client's secret.)
TEST(SmallPir, RequestsHaveOneLengthWhateverIsAsked) {
  World world(kTinyBytes, kTiny);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, SmallPir().OpenSession({&world.setup, 1}, {}));
  EXPECT_EQ(session->needed(5), Session::Need::kNothing);
  EXPECT_EQ(session->Budget(), std::nullopt);
  std::set<std::pair<uint64_t, uint64_t>> lengths;
  for (const std::vector<uint64_t>& rows :
       std::vector<std::vector<uint64_t>>{{}, {0}, {17, 17, 17}, {1, 2}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 3}));
    EXPECT_EQ(batch->steps(), 1u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(world.random));
    lengths.insert({requests[0].body.size(), requests[0].answer_bytes});
    EXPECT_EQ(requests[0].count, 3u);
    // A lying server: any bytes of the right length are some records, others are refused.
    Bytes lie(requests[0].answer_bytes);
    world.random.Fill(lie);
    BytesView view = BytesView(lie).first(lie.size() - 1);
    EXPECT_THAT(batch->Finish({&view, 1}), StatusIs(kInvalid, "an answer of"));
    view = lie;
    SHOAL_ASSERT_OK(batch->Finish({&view, 1}));
    EXPECT_EQ(batch->TakeRecords().size(), rows.size() * kTinyBytes);
  }
  EXPECT_EQ(lengths.size(), 1u);
  const uint64_t beyond = world.setup.rows();
  EXPECT_THAT(session->Ask({.rows = {&beyond, 1}, .keys = 1}),
              StatusIs(absl::StatusCode::kOutOfRange, "row 18"));
}

// The authors' server stops at a query of another structure. Here it is refused, whatever is wrong,
// and the queries that came with it have their answers.
TEST(SmallPir, BadQueriesAreRefusedAndGoodOnesBesideThemServed) {
  World world(kTinyBytes, kTiny);
  const SmallAsked asked = world.client->Ask(11, world.random);
  const Bytes good = asked.query;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes expected, AnswerOne(*world.server, good));
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
      view(good),        view(other_epoch), view(other_setup),   view(large_word),
      view(short_query), view(none),        view(good, 2),       view(good, 0),
      view(good, 1, 1),  view(twice, 2),    view(good, 1 << 31), view(good)};
  const auto answers = world.server->Answer(Role::kSingle, requests);
  ASSERT_EQ(answers.size(), requests.size());
  EXPECT_THAT(answers[0], shoal::testing::IsOk());
  EXPECT_EQ(*answers[0], expected);
  EXPECT_THAT(answers[1], StatusIs(kPrecondition, "epoch"));
  EXPECT_THAT(answers[2], StatusIs(kPrecondition, "another engine, table or set of parameters"));
  EXPECT_THAT(answers[3], StatusIs(kInvalid, "not below its prime"));
  for (const size_t i : {4, 5, 6, 7, 10}) EXPECT_THAT(answers[i], StatusIs(kInvalid, "bytes for"));
  EXPECT_THAT(answers[8], StatusIs(kInvalid, "kind"));
  EXPECT_THAT(answers[9], StatusIs(kInvalid, "not below its prime"));
  EXPECT_THAT(answers[11], shoal::testing::IsOk());
  EXPECT_EQ(*answers[11], expected);
  const RequestView one = view(good);
  EXPECT_THAT(world.server->Answer(Role::kOffline, {&one, 1})[0], StatusIs(kInvalid, "role"));
  EXPECT_EQ(world.server->max_request_bytes(), kMaxQueriesPerRequest * good.size());
}

// Any residues are a query: random ones have answers of the right length.
TEST(SmallPir, MutatedQueriesAreAnsweredOrRefused) {
  World world(kTinyBytes, kTiny);
  const Bytes good = world.client->Ask(3, world.random).query;
  int answered = 0, refused = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Bytes query = good;
    if (trial % 3 == 0) {
      for (size_t i = kQueryHeaderBytes; i < query.size(); ++i) {
        query[i] = static_cast<uint8_t>(world.random.U64());
      }
    } else {
      for (uint64_t flips = 1 + world.random.Below(3); flips > 0; --flips) {
        query[world.random.Below(query.size())] ^=
            static_cast<uint8_t>(1u << world.random.Below(8));
      }
      if (trial % 3 == 1 && world.random.Below(4) == 0)
        query.resize(world.random.Below(2 * good.size()));
    }
    const auto answer = AnswerOne(*world.server, query);
    if (answer.ok()) {
      ++answered;
      ASSERT_EQ(answer->size(), world.client->shape().answer_bytes());
    } else {
      ++refused;
      ASSERT_TRUE(answer.status().code() == kInvalid || answer.status().code() == kPrecondition);
    }
  }
  EXPECT_GT(answered, 10);
  EXPECT_GT(refused, 5);
  world.ExpectServed(3);
}

// A setup is refused, or every size that follows from it is sensible and a client opens.
TEST(SmallPir, SetupsAreRefusedOrFit) {
  World world(kTinyBytes, kTiny);
  const uint64_t extremes[] = {
      0, 1, 2, 13, 512, 513, uint64_t{1} << 20, uint64_t{1} << 31, ~uint64_t{0} >> 1, ~uint64_t{0}};
  int taken = 0, refused = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    wire::PirSetup setup = world.setup;
    const auto extreme = [&](uint64_t old) {
      return world.random.Below(3) == 0 ? extremes[world.random.Below(std::size(extremes))] : old;
    };
    setup.set_rows(extreme(setup.rows()));
    setup.set_record_bytes(static_cast<uint32_t>(extreme(setup.record_bytes())));
    const SmallShape shape = {.group_rows = static_cast<uint32_t>(extreme(kTiny.group_rows)),
                              .slices = static_cast<uint32_t>(extreme(kTiny.slices)),
                              .terms = static_cast<uint32_t>(extreme(kTiny.terms)),
                              .folds = static_cast<uint32_t>(extreme(kTiny.folds))};
    setup.set_shape(EncodeSmallShape(shape));
    if (world.random.Below(8) == 0) setup.set_columns(world.random.Below(2));
    if (world.random.Below(8) == 0) {
      std::string bytes = setup.shape();
      bytes.resize(world.random.Below(20));
      setup.set_shape(bytes);
    }
    const auto sizes = SmallPir().SizesOf(setup);
    if (!sizes.ok()) {
      ++refused;
      ASSERT_THAT(sizes, StatusIs(kInvalid, ""));
      continue;
    }
    ++taken;
    ASSERT_EQ(sizes->hint_bytes, 0u);
    ASSERT_LE(sizes->query_bytes, 1u << 20);
    ASSERT_LE(sizes->answer_bytes, uint64_t{1} << 24);
    ASSERT_LE(sizes->server_bytes, uint64_t{1} << 50);
    ASSERT_GE(SmallShape(*ParseSmallShape(setup)).capacity(), setup.rows());
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
  wire::PirSetup other = world.setup;
  other.set_engine("simplepir");
  EXPECT_THAT(SmallPir().OpenSession({&other, 1}, {}), StatusIs(kInvalid, "not smallpir"));
  other = world.setup;
  other.set_hint_bytes(1);
  EXPECT_FALSE(SmallPir().OpenSession({&other, 1}, {}).ok());
}

// A refreshed server gives what a new one gives, byte for byte, and has read the changed groups
// alone.
TEST(SmallPir, RefreshEncodesChangedGroupsAndNothingElse) {
  World world(kTinyBytes, {.group_rows = 3, .slices = 1, .terms = 3, .folds = 3}, 20);
  const std::vector<uint64_t> changed = {0, 1, 9, 29, 51};
  const uint64_t rows = world.setup.rows() + 2;  // 52 and 53 come in
  Records later(rows, kTinyBytes, 1);
  for (const uint64_t row : changed) later.Fill(row, static_cast<uint8_t>(row + 100));
  std::vector<uint64_t> all_changed = changed;
  for (uint64_t row = world.setup.rows(); row < rows; ++row) all_changed.push_back(row);
  Content content = later.content(2);
  std::set<uint64_t> read;
  const auto copy = content.copy;
  content.copy = [&](uint64_t row, MutableBytes out) {
    read.insert(row / 3);
    copy(row, out);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const double share, world.server->RefreshShare(content, all_changed));
  EXPECT_NEAR(share, 4.0 / 18, 0.001);
  EXPECT_TRUE(read.empty());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta, world.server->Refresh(content, all_changed));
  EXPECT_FALSE(delta.has_value());
  EXPECT_EQ(read, (std::set<uint64_t>{0, 3, 9, 17}));

  ServerOptions options;
  options.shape = world.setup;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto fresh, SmallPir().CreateServer(later.content(2), options));
  EXPECT_EQ(SetupId(fresh->setup()), SetupId(world.server->setup()));
  const Bytes old_query = world.client->Ask(0, world.random).query;
  EXPECT_THAT(AnswerOne(*world.server, old_query), StatusIs(kPrecondition, "epoch 1"));
  world.client = *SmallClient::Create(world.server->setup());
  for (const uint64_t row : {0u, 1u, 2u, 9u, 10u, 29u, 51u, 53u, 30u}) {
    const SmallAsked asked = world.client->Ask(row, world.random);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, AnswerOne(*world.server, asked.query));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes other, AnswerOne(*fresh, asked.query));
    EXPECT_EQ(answer, other);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto record, world.client->Recover(asked, answer));
    EXPECT_TRUE(std::ranges::equal(record, later.at(row))) << row;
  }

  // What does not fit changes nothing.
  const auto refuses = [&](const Content& bad, std::vector<uint64_t> rows_changed) {
    EXPECT_THAT(world.server->Refresh(bad, rows_changed), StatusIs(kInvalid, "smallpir"));
    EXPECT_THAT(world.server->RefreshShare(bad, rows_changed), StatusIs(kInvalid, "smallpir"));
  };
  refuses(later.content(2), {});
  refuses(later.content(3), {5, 5});
  refuses(later.content(3), {6, 5});
  refuses(later.content(3), {rows});
  Content wider = later.content(3);
  wider.record_bytes = 601;
  refuses(wider, {});
  Content more = later.content(3);
  more.rows = 73;
  refuses(more, {});
  EXPECT_EQ(world.server->setup().epoch(), 2u);
}

// Memory is asked for by the shape, before a row is read.
TEST(SmallPir, ATableTooLargeForMemoryIsRefusedBeforeItIsRead) {
  const Content content = {.table_id = {9},
                           .epoch = 1,
                           .manifest_digest = {1},
                           .rows = 1 << 20,
                           .record_bytes = 1 << 20,
                           .copy = [](uint64_t, MutableBytes) { FAIL() << "a row was read"; }};
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PirSetup setup, SmallPir().ShapeOf(content, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, SmallPir().SizesOfShape(setup));
  EXPECT_GT(sizes.server_bytes, uint64_t{1} << 42);
  EXPECT_THAT(SmallPir().CreateServer(content, {}), StatusIs(kExhausted, "a table for smallpir"));
}

// Answers do not depend on threads, on the kernel, or on what is answered beside.
TEST(SmallPir, AnswersAreTheSameOnAnyThreadsAndKernelsAndTogether) {
  World world(1500, {.group_rows = 4, .slices = 3, .terms = 5, .folds = 3});
  ThreadPool pool(3);
  const auto threaded = *SmallServer::Create(world.records.content(), world.setup, {.pool = &pool});
  std::vector<Bytes> queries, expected;
  for (uint64_t i = 0; i < 6; ++i) {
    queries.push_back(world.client->Ask(i * 25, world.random).query);
    expected.push_back(*AnswerOne(*world.server, queries.back()));
  }
  std::vector<RequestView> views;
  for (const Bytes& query : queries) views.push_back({.kind = 0, .count = 1, .body = query});
  const auto together = threaded->Answer(Role::kSingle, views);
  for (size_t i = 0; i < queries.size(); ++i) EXPECT_EQ(*together[i], expected[i]) << i;
  for (const SmallKernel* kernel : SupportedSmallKernels()) {
    const auto server = *SmallServer::Create(world.records.content(), world.setup, {}, kernel);
    EXPECT_EQ(*AnswerOne(*server, queries[1]), expected[1]) << kernel->name;
  }
}

}  // namespace
}  // namespace shoal::pir::rlwe
