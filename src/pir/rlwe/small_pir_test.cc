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
#include "src/pir/kit/testing/stateless_contract.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"
#include "src/pir/rlwe/small_public.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/rlwe/small_shape.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::rlwe {
namespace {

using pir::testing::AnswerOne;
using pir::testing::Records;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

struct Scheme {
  using Server = SmallServer;
  using Client = SmallClient;
  static const pir::Engine& Engine() { return SmallPir(); }
  static auto MakeServer(const Content& content, const wire::PirSetup& setup,
                         const ServerOptions& options) {
    return SmallServer::Create(content, setup, options);
  }
};

// `missing` fewer records than there is room for.
struct World : pir::testing::StatelessWorld<Scheme> {
  World(uint32_t record_bytes, const SmallShape& shape, uint64_t missing = 0)
      : StatelessWorld(Records(shape.capacity() - missing, record_bytes), EncodeSmallShape(shape)) {
  }
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
  const uint32_t elements = world.client->shape().elements();
  world.ExpectNothingTwice(4, [&](BytesView query) {
    std::vector<BytesView> parts;
    for (uint32_t e = 0; e < elements; ++e) {
      parts.push_back(query.subspan(kQueryHeaderBytes + e * kElementBytes, kElementBytes));
    }
    return parts;
  });
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
  World(kTinyBytes, kTiny).ExpectOneLengthWhateverIsAsked();
}

// The authors' server stops at a query of another structure. Here it is refused, whatever is wrong,
// and the queries that came with it have their answers.
TEST(SmallPir, BadQueriesAreRefusedAndGoodOnesBesideThemServed) {
  World(kTinyBytes, kTiny).ExpectBadQueriesRefusedAndGoodOnesServed();
}

// Any residues are a query: random ones have answers of the right length.
TEST(SmallPir, MutatedQueriesAreAnsweredOrRefused) {
  World(kTinyBytes, kTiny).ExpectMutatedQueriesAnsweredOrRefused(0);
}

// A setup is refused, or every size that follows from it is sensible and a client opens.
TEST(SmallPir, SetupsAreRefusedOrFit) {
  World world(kTinyBytes, kTiny);
  world.ExpectSetupsRefusedOrFit(
      {0, 1, 2, 13, 512, 513, uint64_t{1} << 20, uint64_t{1} << 31, ~uint64_t{0} >> 1,
       ~uint64_t{0}},
      [](const auto& extreme) {
        return EncodeSmallShape({.group_rows = static_cast<uint32_t>(extreme(kTiny.group_rows)),
                                 .slices = static_cast<uint32_t>(extreme(kTiny.slices)),
                                 .terms = static_cast<uint32_t>(extreme(kTiny.terms)),
                                 .folds = static_cast<uint32_t>(extreme(kTiny.folds))});
      },
      [](const wire::PirSetup& setup) {
        ASSERT_GE(SmallShape(*ParseSmallShape(setup)).capacity(), setup.rows());
      });
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
  world.ExpectRefreshed(later, content, all_changed, 4.0 / 18, 72,
                        {0, 1, 2, 9, 10, 29, 51, 53, 30});
  EXPECT_EQ(read, (std::set<uint64_t>{0, 3, 9, 17}));
}

// Memory is asked for by the shape, before a row is read.
TEST(SmallPir, ATableTooLargeForMemoryIsRefusedBeforeItIsRead) {
  pir::testing::ExpectRefusedBeforeItIsRead(SmallPir(), 1 << 20, 1 << 20);
}

// Answers do not depend on threads, on the kernel, or on what is answered beside.
TEST(SmallPir, AnswersAreTheSameOnAnyThreadsAndKernelsAndTogether) {
  World world(1500, {.group_rows = 4, .slices = 3, .terms = 5, .folds = 3});
  world.ExpectTheSameOnThreads();
  const Bytes query = world.client->Ask(25, world.random).query;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes expected, AnswerOne(*world.server, query));
  for (const RingKernel* kernel : SupportedRingKernels()) {
    const auto server = *SmallServer::Create(world.records.content(), world.setup, {}, kernel);
    EXPECT_EQ(*AnswerOne(*server, query), expected) << kernel->name;
  }
}

}  // namespace
}  // namespace shoal::pir::rlwe
