// `hintless` from table to record: every place of every shape, the errors beside what is proved of
// them, bad input, epochs.
#include "src/pir/rlwe/hintless.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/sanitized.h"
#include "src/base/testing/test_random.h"
#include "src/pir/kit/testing/stateless_contract.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/rlwe/hintless_public.h"
#include "src/pir/rlwe/hintless_server.h"
#include "src/pir/rlwe/hintless_session.h"
#include "src/pir/rlwe/hintless_shape.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"
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

wire::PirSetup SetupFor(const Content& content, const HintlessShape& shape) {
  ServerOptions options;
  options.shape.emplace().set_shape(EncodeHintlessShape(shape));
  auto made = Hintless().ShapeOf(content, options);
  EXPECT_THAT(made, shoal::testing::IsOk());
  return *std::move(made);
}

struct Scheme {
  using Server = HintlessServer;
  using Client = HintlessClient;
  static const pir::Engine& Engine() { return Hintless(); }
  static auto MakeServer(const Content& content, const wire::PirSetup& setup,
                         const ServerOptions& options) {
    return HintlessServer::Create(content, setup, options, {});
  }
};

// `missing` fewer records than there is room for.
struct World : pir::testing::StatelessWorld<Scheme> {
  explicit World(const HintlessShape& shape, uint64_t missing = 0)
      : World(
            Records(uint64_t{shape.rows_per_column} * shape.columns - missing, shape.record_bytes),
            shape) {}
  World(Records of, const HintlessShape& shape)
      : StatelessWorld(std::move(of), EncodeHintlessShape(shape)) {}
};

constexpr uint32_t kTinyBytes = 600;
constexpr HintlessShape kTiny = {
    .rows_per_column = 4, .columns = 64, .word_bits = 27, .record_bytes = kTinyBytes};

// Records in one pack and across packs, packs that are not full, columns in one ring element and
// in so many that their products are summed in parts, words of any width.
TEST(Hintless, RowsOfEveryShapeAreFound) {
  if (kThreadSanitized) GTEST_SKIP() << "on one thread, where there are no races";
  const struct {
    HintlessShape shape;
    uint64_t missing;
  } cases[] = {
      {{.rows_per_column = 2, .columns = 64, .word_bits = 27, .record_bytes = 700}, 0},
      {{.rows_per_column = 5, .columns = 128, .word_bits = 28, .record_bytes = 1000}, 1},
      {{.rows_per_column = 1, .columns = 64, .word_bits = 32, .record_bytes = 5000}, 3},
      {{.rows_per_column = 1, .columns = 2048, .word_bits = 31, .record_bytes = 2048}, 0},
      {{.rows_per_column = 40, .columns = 2112, .word_bits = 27, .record_bytes = 3}, 77},
      {{.rows_per_column = 1, .columns = 16 * 2048 + 64, .word_bits = 27, .record_bytes = 5}, 60},
  };
  for (const auto& each : cases) {
    World world(each.shape, each.missing);
    const uint64_t rows = world.setup.rows();
    for (int i = 0; i < (kSanitized ? 2 : 20); ++i) world.ExpectServed(world.random.Below(rows));
    for (const uint64_t row : {uint64_t{0}, rows / 2, rows - 1}) world.ExpectServed(row);
  }
}

TEST(Hintless, RecordsWithBytesAtTheEndsOfTheirRange) {
  if (kThreadSanitized) GTEST_SKIP() << "on one thread, where there are no races";
  Records records(64 * 3, 900);
  for (uint64_t row = 0; row < 64 * 3; ++row) records.Fill(row, row % 3 == 0 ? 0 : 0xff);
  World world(std::move(records),
              {.rows_per_column = 3, .columns = 64, .word_bits = 27, .record_bytes = 900});
  for (const uint64_t row : {0u, 1u, 2u, 100u, 191u}) world.ExpectServed(row);
}

// Squares of a query's errors over the variances that the norms give them, on average, where the
// rounding of words at random has its typical variance instead of what is proved for the worst
// word.
double MeanOfErrors(World& world, int queries) {
  const HintlessServer::Variances variances = world.server->VariancesOfErrors();
  const HintlessShape& shape = world.client->shape();
  const double step = std::ldexp(1, 32 - static_cast<int>(shape.word_bits));
  const double sigma2 = lwe::kSigma * lwe::kSigma;
  const double typical = (sigma2 + step * step / 6) / (sigma2 + step * step / 4);
  std::vector<BytesView> masks;
  for (size_t p = 0; p < shape.packs(); ++p) masks.push_back(world.server->mask(p));
  double sum = 0;
  size_t count = 0;
  for (int i = 0; i < queries; ++i) {
    const uint64_t row = world.random.Below(world.setup.rows());
    const HintlessAsked asked = world.client->Ask(row, world.random);
    const auto unrounded = world.server->Unrounded(asked.query);
    EXPECT_THAT(unrounded, shoal::testing::IsOk());
    Bytes column;
    for (uint64_t r = 0; r < shape.rows_per_column; ++r) {
      Append(column, world.records.at(row / shape.rows_per_column * shape.rows_per_column + r));
    }
    const std::vector<int64_t> errors = world.client->Errors(asked, *unrounded, masks, column);
    for (size_t value = 0; value < errors.size(); ++value, ++count) {
      const PackNorms& norms = variances.norms[value];
      const double variance = variances.first_stage[value] * typical +
                              sigma2 * (norms.rotation + norms.conjugation + norms.secret);
      const auto error = static_cast<double>(errors[value]);
      sum += error * error / variance;
    }
  }
  return sum / static_cast<double>(count);
}

// The norms that a server computes are those of the errors: their squares have the mean that
// follows from them, whether the errors of keys and secret are nearly all there is (few columns) or
// those of the first stage are half of it (many columns, bytes at the ends of their range).
TEST(Hintless, ErrorsAreAsTheyAreComputed) {
  if (kThreadSanitized) GTEST_SKIP() << "on one thread, where there are no races";
  World packing({.rows_per_column = 2, .columns = 64, .word_bits = 27, .record_bytes = 1500});
  EXPECT_NEAR(MeanOfErrors(packing, 12), 1, 0.08);
  const HintlessServer::Variances variances = packing.server->VariancesOfErrors();
  const PackNorms most = MaxPackNorms();
  for (size_t value = 0; value < variances.norms.size(); ++value) {
    const PackNorms& norms = variances.norms[value];
    EXPECT_LE(variances.first_stage[value],
              lwe::kSigma * lwe::kSigma * (norms.rotation + norms.secret) / 100);
    // Norms of uniform digits and remainders, without the margin.
    ASSERT_NEAR(norms.rotation / most.rotation, 1 / 1.4, 0.15);
    ASSERT_NEAR(norms.conjugation / most.conjugation, 1 / 1.4, 0.15);
    ASSERT_NEAR(norms.secret / most.secret, 1 / 1.4, 0.15);
  }

  constexpr HintlessShape kWide = {
      .rows_per_column = 1, .columns = 37504, .word_bits = 27, .record_bytes = 96};
  Records records(kWide.columns, kWide.record_bytes);
  TestRandom random(3);
  for (uint64_t row = 0; row < kWide.columns; ++row) {
    for (uint32_t byte = 0; byte < kWide.record_bytes; ++byte) {
      records.FillByte(row, byte, random.Below(2) == 0 ? 0 : 0xff);
    }
  }
  World wide(std::move(records), kWide);
  const HintlessServer::Variances of_wide = wide.server->VariancesOfErrors();
  EXPECT_GE(of_wide.first_stage[0],
            lwe::kSigma * lwe::kSigma * (of_wide.norms[0].rotation + of_wide.norms[0].secret));
  EXPECT_NEAR(MeanOfErrors(wide, 20), 1, 0.15);
}

// The bound covers contents that are not like random ones: no byte, the same byte everywhere, one
// row that differs.
TEST(Hintless, NormsStayBelowTheBoundForContentsWithStructure) {
  if (kThreadSanitized) GTEST_SKIP() << "on one thread, where there are no races";
  const PackNorms most = MaxPackNorms();
  for (const uint8_t byte : {0, 0x80, 0xff}) {
    Records records(128, 1024);
    for (uint64_t row = 0; row < 128; ++row) records.Fill(row, byte);
    if (byte == 0xff) records.FillByte(5, 7, 1);
    World world(std::move(records),
                {.rows_per_column = 2, .columns = 64, .word_bits = 27, .record_bytes = 1024});
    for (const PackNorms& norms : world.server->VariancesOfErrors().norms) {
      ASSERT_LE(norms.rotation, most.rotation);
      ASSERT_LE(norms.conjugation, most.conjugation);
      ASSERT_LE(norms.secret, most.secret);
    }
    for (const uint64_t row : {5u, 127u}) world.ExpectServed(row);
  }
}

// Where one row of a pack is all there is, every mask is an image of the same polynomial. The two
// chains of digits must not be images of each other, or their errors add up.
TEST(Hintless, NormsStayBelowTheBoundForPacksOfOneRow) {
  if (kThreadSanitized) GTEST_SKIP() << "on one thread, where there are no races";
  for (const uint32_t record_bytes : {1u, 2049u}) {
    World world(
        {.rows_per_column = 1, .columns = 64, .word_bits = 27, .record_bytes = record_bytes});
    EXPECT_LE(world.server->VariancesOfErrors().norms.back().rotation, MaxPackNorms().rotation);
    EXPECT_EQ((*ParseHintlessShape(world.server->setup())).draw, 0u);
  }
}

// Public parts under which a pack's norms are too large are given up, and the setup says so.
TEST(Hintless, DrawsWithLargeNormsAreGivenUp) {
  if (kThreadSanitized) GTEST_SKIP() << "on one thread, where there are no races";
  const Records records(60, 20);
  HintlessShape shape = {.rows_per_column = 1, .columns = 64, .word_bits = 27, .record_bytes = 20};
  std::vector<double> norms;
  for (; shape.draw < 5; ++shape.draw) {
    const auto server =
        *HintlessServer::Create(records.content(), SetupFor(records.content(), shape), {}, {});
    norms.push_back(server->VariancesOfErrors().norms[0].conjugation);
  }
  // A draw, and a limit that the next one keeps while it does not.
  uint32_t draw = 0;
  while (draw + 1 < norms.size() && norms[draw] <= norms[draw + 1]) ++draw;
  ASSERT_LT(draw + 1, norms.size()) << "each draw is worse than the last: take other records";
  HintlessServer::Kernels limited;
  limited.most.conjugation = norms[draw + 1];
  shape.draw = draw;
  wire::PirSetup setup = SetupFor(records.content(), shape);
  EXPECT_THAT(HintlessServer::Create(records.content(), setup, {}, limited),
              StatusIs(kPrecondition, absl::StrCat("too noisy under public parts ", draw)));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto server, HintlessServer::CreateAtFirstDraw(records.content(), setup, {}, limited));
  SHOAL_ASSERT_OK_AND_ASSIGN(const HintlessShape chosen, ParseHintlessShape(server->setup()));
  EXPECT_EQ(chosen.draw, draw + 1);
  limited.most.conjugation = 0;
  shape.draw = HintlessShape::kMaxDraw - 1;
  setup = SetupFor(records.content(), shape);
  EXPECT_THAT(HintlessServer::CreateAtFirstDraw(records.content(), setup, {}, limited),
              StatusIs(kPrecondition, "too noisy under public parts 15"));
}

// The shape of the table that the engine is meant for, and its bound.
TEST(Hintless, AGibibyteTakesLessThan300KilobytesAQuery) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const HintlessShape shape, ChooseHintlessShape(1 << 20, 1072));
  EXPECT_LE(shape.query_bytes() + shape.answer_bytes(), 300'000u);
  EXPECT_LE(HintlessFailureLog2(shape, MaxPackNorms()), kHintlessMaxFailureLog2);
  // More noise than is allowed is refused.
  HintlessShape noisy = shape;
  noisy.columns = 1 << 16;
  EXPECT_GT(HintlessFailureLog2(noisy, MaxPackNorms()), kHintlessMaxFailureLog2);
  wire::PirSetup setup;
  setup.set_engine("hintless");
  setup.set_table_id(std::string(32, 'i'));
  setup.set_manifest_digest(std::string(32, 'm'));
  setup.set_rows(1 << 20);
  setup.set_record_bytes(1072);
  setup.set_shape(EncodeHintlessShape(noisy));
  EXPECT_THAT(ParseHintlessShape(setup), StatusIs(kInvalid, "too noisy"));
  // Wider tables have wider words.
  SHOAL_ASSERT_OK_AND_ASSIGN(const HintlessShape large, ChooseHintlessShape(1 << 24, 1072));
  EXPECT_GT(large.word_bits, kMinWordBits);
  EXPECT_THAT(ChooseHintlessShape(uint64_t{1} << 36, 1072), StatusIs(kExhausted, "too many"));
}

// Secrets, errors of words and errors of keys are the sampler's Gaussians; words are rounded at
// random, so that their errors have no mean.
TEST(Hintless, ErrorsAndSecretsAreTheSamplersGaussians) {
  World world({.rows_per_column = 1, .columns = 4096, .word_bits = 27, .record_bytes = 1});
  const Digest seed = HintlessPublicSeed(world.setup, world.client->shape());
  const auto back = [](std::vector<uint32_t>& words) {
    for (uint32_t k = 0; k < kPrimes; ++k) TransformBack(k, words.data() + k * kDegree);
  };
  double secret_squares = 0, key_squares = 0, word_squares = 0, word_sum = 0;
  constexpr int kQueries = 4;
  for (int i = 0; i < kQueries; ++i) {
    const HintlessAsked asked = world.client->Ask(1 << 11, world.random);
    std::vector<uint32_t> secret(asked.secret.begin(), asked.secret.end());
    std::vector<uint32_t> words(4096), product(kPolynomialWords);
    SHOAL_ASSERT_OK(lwe::ParseRounded(
        BytesView(asked.query).subspan(kQueryHeaderBytes, 4096 * 27 / 8), 5, words));
    for (uint64_t block = 0; block < 2; ++block) {
      MultiplyPolynomials(ExpandColumnBlock(seed, block).data(), secret.data(), product.data());
      back(product);
      for (size_t w = 0; w < kDegree; ++w) {
        const size_t column = block * kDegree + w;
        const auto error = static_cast<int32_t>(
            words[column] - static_cast<uint32_t>(ComposeSigned(product[w], product[kDegree + w])) -
            (column == 1 << 11 ? lwe::kDelta : 0));
        word_squares += static_cast<double>(int64_t{error} * error);
        word_sum += error;
      }
    }
    BytesView keys = BytesView(asked.query).subspan(kQueryHeaderBytes + 4096 * 27 / 8);
    for (uint32_t key = 0; key < kCollapseKeys; ++key) {
      std::vector<uint32_t> body(kPolynomialWords), coefficients(secret);
      SHOAL_ASSERT_OK(ReadResidues(keys.subspan(key * kCollapseKeyBytes, kCollapseKeyBytes), body));
      MultiplyPolynomials(ExpandCollapseKey(seed, key).data(), secret.data(), product.data());
      SubtractPolynomials(body.data(), product.data(), body.data());
      back(body);
      back(coefficients);
      // The image of the secret under the automorphism, by its coefficients.
      for (size_t w = 0; w < kDegree; ++w) {
        const size_t to = w * (key == kRotationKey ? 5 : 2 * kDegree - 1) % (2 * kDegree);
        const int64_t sign = to < kDegree ? 1 : -1;
        const int64_t image = sign * ComposeSigned(coefficients[w], coefficients[kDegree + w])
                              << 27;
        const size_t at = to % kDegree;
        const int64_t error = ComposeSigned(body[at], body[kDegree + at]) - image;
        ASSERT_LE(std::abs(error), int64_t{lwe::GaussianSampler::Get().max()});
        key_squares += static_cast<double>(error * error);
      }
    }
    back(secret);
    for (size_t w = 0; w < kDegree; ++w) {
      const int64_t value = ComposeSigned(secret[w], secret[kDegree + w]);
      ASSERT_LE(std::abs(value), int64_t{lwe::GaussianSampler::Get().max()});
      secret_squares += static_cast<double>(value * value);
    }
  }
  const double sigma2 = lwe::kSigma * lwe::kSigma, count = kDegree * kQueries;
  EXPECT_NEAR(secret_squares / (count * sigma2), 1, 0.08);
  EXPECT_NEAR(key_squares / (2 * count * sigma2), 1, 0.06);
  // Rounding to one of two neighbours 32 apart has the variance 32^2 / 6 on average.
  EXPECT_NEAR(word_squares / (2 * count * (sigma2 + 32.0 * 32 / 6)), 1, 0.06);
  // Five deviations of the mean; rounding to nearest, up at ties, would be at 0.5.
  EXPECT_NEAR(word_sum / (2 * count), 0, 5 * std::sqrt((sigma2 + 171) / (2 * count)));
}

// Fixed public parts are safe only under a secret of its own for every query.
TEST(Hintless, NoTwoQueriesShareASecretOrAWordOfTheirs) {
  World(kTiny).ExpectNothingTwice(4, [](BytesView query) {
    const size_t keys_at = query.size() - kCollapseKeys * kCollapseKeyBytes;
    std::vector<BytesView> parts = {query.subspan(kQueryHeaderBytes, keys_at - kQueryHeaderBytes)};
    for (size_t key = 0; key < kCollapseKeys; ++key) {
      parts.push_back(query.subspan(keys_at + key * kCollapseKeyBytes, kCollapseKeyBytes));
    }
    return parts;
  });
}

// What is sent depends on the number of keys alone.
TEST(Hintless, RequestsHaveOneLengthWhateverIsAsked) {
  World(kTiny).ExpectOneLengthWhateverIsAsked();
}

// Whatever is wrong with a query, the queries that came with it have their answers.
TEST(Hintless, BadQueriesAreRefusedAndGoodOnesBesideThemServed) {
  World(kTiny).ExpectBadQueriesRefusedAndGoodOnesServed();
}

TEST(Hintless, MutatedQueriesAreAnsweredOrRefused) {
  World(kTiny).ExpectMutatedQueriesAnsweredOrRefused(2 * kCollapseKeyBytes);
}

// A setup is refused, or every size that follows from it is sensible and a client opens.
TEST(Hintless, SetupsAreRefusedOrFit) {
  World world(kTiny);
  world.ExpectSetupsRefusedOrFit(
      {0, 1, 2, 27, 33, 64, uint64_t{1} << 17, uint64_t{1} << 20, uint64_t{1} << 31,
       ~uint64_t{0} >> 1, ~uint64_t{0}},
      [](const auto& extreme) {
        return EncodeHintlessShape(
            {.rows_per_column = static_cast<uint32_t>(extreme(kTiny.rows_per_column)),
             .columns = static_cast<uint32_t>(extreme(kTiny.columns)),
             .word_bits = static_cast<uint32_t>(extreme(kTiny.word_bits)),
             .draw = static_cast<uint32_t>(extreme(0))});
      },
      [](const wire::PirSetup& setup) {
        const HintlessShape shape = *ParseHintlessShape(setup);
        ASSERT_GE(uint64_t{shape.rows_per_column} * shape.columns, setup.rows());
        ASSERT_LE(HintlessFailureLog2(shape, MaxPackNorms()), kHintlessMaxFailureLog2);
      });
}

// A refreshed server gives what a new one gives, byte for byte; packs without changed rows stay.
TEST(Hintless, RefreshMakesPacksWithChangedRowsAnew) {
  // 4 packs.
  World world({.rows_per_column = 8, .columns = 64, .word_bits = 27, .record_bytes = 850}, 20);
  const std::vector<uint64_t> changed = {0, 1, 8 * 3, 8 * 5 + 2};  // packs 0 and 1
  const uint64_t rows = world.setup.rows() + 2;
  Records later(rows, 850, 1);
  for (const uint64_t row : changed) later.Fill(row, static_cast<uint8_t>(row + 100));
  std::vector<uint64_t> all_changed = changed;
  for (uint64_t row = world.setup.rows(); row < rows; ++row) all_changed.push_back(row);
  SHOAL_ASSERT_OK_AND_ASSIGN(const double few,
                             world.server->RefreshShare(later.content(2), changed));
  EXPECT_EQ(few, 0.5);
  // Rows 492 and 493 are at blocks 4 and 5 of their column, in packs 1 and 2.
  world.ExpectRefreshed(later, later.content(2), all_changed, 0.75, 8 * 64,
                        {0, 1, 2, 24, 42, 300, 492, 493});
}

// A content under which answers would be too noisy leaves the server at its epoch, and whole.
TEST(Hintless, ARefreshToNoisyPacksChangesNothing) {
  if (kThreadSanitized) GTEST_SKIP() << "on one thread, where there are no races";
  Records records(128, 1024);
  // Without a mask one of the two chains has no digits.
  for (uint64_t row = 0; row < 128; ++row) records.Fill(row, 0x80);
  const HintlessShape shape = {
      .rows_per_column = 2, .columns = 64, .word_bits = 27, .record_bytes = 1024};
  const wire::PirSetup setup = SetupFor(records.content(), shape);
  HintlessServer::Kernels limited;
  limited.most.rotation *= 0.75 / 1.4;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto server,
                             HintlessServer::Create(records.content(), setup, {}, limited));
  const auto client = *HintlessClient::Create(setup);
  TestRandom random(4);
  const HintlessAsked asked = client->Ask(7, random);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes before, AnswerOne(*server, asked.query));
  Records later = records;
  later.Fill(7, 3);
  const uint64_t row = 7;
  EXPECT_THAT(server->Refresh(later.content(2), {&row, 1}), StatusIs(kInvalid, "too noisy"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes after, AnswerOne(*server, asked.query));
  EXPECT_EQ(before, after);
}

// Memory is asked for by the shape, before a row is read.
TEST(Hintless, ATableTooLargeForMemoryIsRefusedBeforeItIsRead) {
  pir::testing::ExpectRefusedBeforeItIsRead(Hintless(), 1 << 26, 1 << 12);
}

// Answers do not depend on threads, on the kernel, or on what is answered beside.
TEST(Hintless, AnswersAreTheSameOnAnyThreadsAndKernelsAndTogether) {
  World world({.rows_per_column = 2, .columns = 128, .word_bits = 28, .record_bytes = 1100});
  world.ExpectTheSameOnThreads();
  if (kThreadSanitized) return;  // the rest is on one thread
  const Bytes query = world.client->Ask(25, world.random).query;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes expected, AnswerOne(*world.server, query));
  for (const RingKernel* kernel : SupportedRingKernels()) {
    const auto server =
        *HintlessServer::Create(world.records.content(), world.setup, {}, {.ring = kernel});
    EXPECT_EQ(*AnswerOne(*server, query), expected) << kernel->name;
  }
}

}  // namespace
}  // namespace shoal::pir::rlwe
