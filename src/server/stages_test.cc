// Tests a party's stages by their input and output, without network, journal and clients. Also run
// under sanitizers (scripts/test), on several threads, with lists in memory and in files.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "gtest/gtest.h"
#include "src/base/instruction_set.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/onion/onion.h"
#include "src/parallel/content_mac.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/query_routes.h"
#include "src/server/synthetic_round.h"
#include "src/server/testing/some_noise.h"
#include "src/shuffle/permutation.h"
#include "src/storage/memory.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

// More would get numbers of others, and so answers of others. No test has the memory for as many.
TEST(QueryNumbersTest, AreOf32Bits) {
  const auto kTooMany = absl::StatusCode::kResourceExhausted;
  SHOAL_EXPECT_OK(CheckNumbersFit(0xfffffffe));
  EXPECT_THAT(CheckNumbersFit(0xffffffff), shoal::testing::StatusIs(kTooMany, "32 bits"));
  EXPECT_THAT(CheckNumbersFit(uint64_t{1} << 32), shoal::testing::StatusIs(kTooMany, "32 bits"));
}

SyntheticRound TwoParties(uint64_t rows, RandomSource& random) {
  return SyntheticRound({.max_rows = rows, .noise = SomeNoise()}, random);
}

// Noise and the offline stage give the same output byte for byte, and the same material, for every
// instruction set, any number of threads, and with lists in memory or in files. One submission
// comes twice, and one is damaged.
TEST(StagesTest, TheOfflineStageIsTheSameEverywhere) {
  testing::TestRandom random(5);
  const SyntheticRound round = TwoParties(700, random);
  const RoundContext& context = round.context(1);
  constexpr size_t kOnions = 700;  // several batches
  Bytes list;
  {
    ThreadPool pool(1);
    const Bytes input = round.MakeInput(kOnions, 7, random, pool).list;
    const size_t each = 4 + onion::SubmissionBytes(2, 7);
    ASSERT_EQ(input.size(), 100 * each);
    list = input;
    list[3 * each + 60] ^= 1;
    // The same submission again, as only a frontend can make it come.
    std::copy_n(input.begin() + 5 * each, each, list.begin() + 50 * each);
  }

  struct Output {
    Bytes onions;
    OnlineMaterial state;
  };
  std::optional<Output> expected;
  const auto run = [&](ThreadPool& pool, SpoolPlace& spools) {
    const Resources resources = {&pool, &spools};
    SHOAL_ASSERT_OK_AND_ASSIGN(NoiseBatch noise, MakeNoise(context, round.secrets(1), resources));
    EXPECT_GT(noise.size(), 2048u);  // several chunks
    SHOAL_ASSERT_OK_AND_ASSIGN(auto out, RunOffline(context, round.secrets(1), std::move(noise),
                                                    list, kOnions, resources));
    EXPECT_EQ(out.dead, 14u);
    Output output{*ReadAll(out.onions), std::move(out.material)};
    if (!expected.has_value()) {
      for (uint32_t i = 0; i < kOnions; ++i) {
        EXPECT_EQ(output.state.dead(i), (i >= 21 && i < 28) || (i >= 350 && i < 357)) << i;
      }
      expected = std::move(output);
      return;
    }
    const OnlineMaterial &a = expected->state, &b = output.state;
    EXPECT_TRUE(output.onions == expected->onions);
    EXPECT_TRUE(std::ranges::equal(BytesView(a.seeds), BytesView(b.seeds)));
    EXPECT_TRUE(std::ranges::equal(a.target.span(), b.target.span()));
    EXPECT_TRUE(std::ranges::equal(a.noise, b.noise, [](const NoiseQuery& x, const NoiseQuery& y) {
      return x.position == y.position && x.tally == y.tally;
    }));
  };
  ThreadPool one(1), many(5);
  SpoolPlace memory("/tmp", 1 << 30), files("/tmp", 0);
  const InstructionSet before = ActiveInstructionSet();
  for (InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    run(one, memory);
    run(many, memory);
    run(many, files);
  }
  UseInstructionSet(before);
}

// The secret shuffle: places are uniform, for living onions and for noise, and independent between
// rounds. Rounds differ only in the seed, as `next_recipients` stay the same.
TEST(StagesTest, TheOfflineStageShufflesUniformly) {
  testing::TestRandom random(11);
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  const SyntheticRound round = TwoParties(1, random);
  const RoundContext& context = round.context(1);
  constexpr int kTrials = 3000;
  constexpr uint32_t kLiving = 2, kNoise = 2, kPlaces = kLiving + kNoise;
  std::array<std::array<int, kPlaces>, kPlaces> seen = {};
  for (int trial = 0; trial < kTrials; ++trial) {
    const RoundSecrets secrets(random.NewSeed());
    const auto own = onion::Recipient::Create(secrets.OnionKeyPair().public_key);
    Bytes seeds(kLiving * 32), ephemeral(kLiving * 32), onions(kLiving * onion::OnionBytes(1));
    random.Fill(ephemeral);
    onion::BuildOnions(context.round_id, 2, context.next_recipients, ephemeral, seeds, onions);
    Bytes input(4 + onion::SubmissionBytes(2, kLiving));
    StoreLe(input.data(), static_cast<uint32_t>(input.size() - 4));
    const Seed outer = random.NewSeed();
    const onion::SubmissionToSeal submission = {.ephemeral_secret = outer.view(),
                                                .onions = onions,
                                                .submission = MutableBytes(input).subspan(4),
                                                .seeds = {}};
    onion::SealSubmissions(*own, context.round_id, {&submission, 1});
    NoiseBatch noise;
    noise.tallies.assign(kNoise, 1);
    SHOAL_ASSERT_OK_AND_ASSIGN(noise.onions, spools.Create(kNoise * onion::OnionBytes(1)));
    const auto out =
        RunOffline(context, secrets, std::move(noise), input, kLiving, {&pool, &spools});
    ASSERT_TRUE(out.ok() && out->dead == 0);
    for (uint32_t i = 0; i < kLiving; ++i) ++seen[i][out->material.target[i]];
    for (uint32_t k = 0; k < kNoise; ++k) ++seen[kLiving + k][out->material.noise[k].position];
  }
  for (const auto& counts : seen) {
    double chi_squared = 0;
    for (const int count : counts) {
      const double d = count - kTrials / double{kPlaces};
      chi_squared += d * d / (kTrials / double{kPlaces});
    }
    EXPECT_LT(chi_squared, 16.3);  // 3 degrees of freedom, p = 0.001
  }
}

// A party reserves memory for the answers on their way back, or refuses the round, when the number
// of onions is known.
TEST(StagesTest, ARoundWhoseAnswersDoNotFitTheMachineIsRefused) {
  const uint64_t available = AvailableMemory();
  if (available > uint64_t{1} << 45) GTEST_SKIP() << "this machine does not tell its memory";
  testing::TestRandom random(14);
  ThreadPool pool(1);
  constexpr uint64_t kOnions = 1000;
  const SyntheticRound round(
      {.answer_bytes = available / kOnions + 1, .max_rows = 5, .noise = SomeNoise()}, random);
  const RoundContext& frontend = round.context(1);
  const RoundSize size = SizeOf(frontend, kOnions, ExpectedNoise(frontend), {});
  const uint64_t returned = ReturnedBytes(size);
  const auto begin = [&](SpoolPlace& spools) {
    return OnionIntake::BeginSubmissions(frontend, round.secrets(1), 1000, kOnions,
                                         {&pool, &spools})
        .status();
  };
  // Masks get no memory, as they would leave less than that free.
  SpoolPlace enough(::testing::TempDir(), returned + (1 << 20));
  EXPECT_THAT(begin(enough), testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                               "party 1: a round of 1000 onions takes"));
  EXPECT_EQ(enough.free_bytes(), returned + (1 << 20));
  // With less memory for lists, the answers will be in a file.
  SpoolPlace less(::testing::TempDir(), returned - 1);
  SHOAL_EXPECT_OK(begin(less));
}

// Answers have the same bytes with masks kept ready as with masks expanded when needed, at the
// backend and on the way back.
TEST(StagesTest, MasksKeptReadyChangeNoAnswer) {
  testing::TestRandom random(13);
  ThreadPool pool(3);
  SpoolPlace roomy("/tmp", 1 << 30), narrow("/tmp", 0);
  constexpr uint32_t kPositions = 3000;
  constexpr uint64_t kRows = 40;
  const SyntheticRound round = TwoParties(kRows, random);
  const RoundContext &frontend = round.context(1), &backend = round.context(2);
  OnlineMaterial state;
  state.positions = state.next_positions = kPositions;
  SHOAL_ASSERT_OK_AND_ASSIGN(state.seeds,
                             PageBuffer::Create(32 * kPositions, PageBuffer::Content::kSecret));
  random.Fill(state.seeds);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      state.target,
      shuffle::RandomPermutation(kPositions, round.secrets(1).PermutationKey(), pool));
  Bytes rows(kRows * backend.answer_bytes);
  random.Fill(rows);
  wire::QueryBatch queries;
  for (uint32_t i = 0; i < kPositions; i += 1 + i % 3) {
    // Some queries name a row, others name none.
    const auto share = sharing::Expand(state.seed(i), backend.round_id).share;
    queries.positions.push_back(i);
    queries.tallies.push_back(
        i % 5 == 0 ? i : sharing::FirstTally({&share, 1}, static_cast<uint32_t>(i % kRows)));
  }
  Bytes incoming(queries.positions.size() * backend.tagged_bytes());
  random.Fill(incoming);
  std::vector<Bytes> answers, returned;
  for (SpoolPlace* const spools : {&roomy, &narrow}) {
    const Resources resources = {&pool, spools};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve(spools, 0, 0, "a test"));
    SHOAL_ASSERT_OK(MakeReady(backend, *arena, resources, state));
    EXPECT_EQ(state.pads.size() > 0, spools == &roomy);
    answers.push_back(*ReadAll(**AnswerQueries(
        AnswerKeys::Of(backend, round.secrets(2), state, queries), {rows, kRows}, resources)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto forwarding,
                               ForwardQueries(frontend, state, queries, resources));
    SHOAL_ASSERT_OK_AND_ASSIGN(auto intake, AnswerIntake::Begin(frontend, queries, forwarding,
                                                                incoming.size(), resources));
    SHOAL_ASSERT_OK(intake.Take(incoming));
    returned.push_back(*ReadAll(**ReturnAnswers(
        AnswerKeys::Of(frontend, round.secrets(1), state, queries), std::move(intake), resources)));
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(returned[0], returned[1]);
  // The answers are also what the definition says.
  const BytesView seed = state.seed(queries.positions[1]);
  const size_t each = backend.tagged_bytes();
  Bytes expected = ToBytes(
      BytesView(rows).subspan(queries.positions[1] * backend.answer_bytes, backend.answer_bytes));
  expected.resize(each);
  sharing::MaskAnswer(seed, backend.round_id, sharing::TagCovers::kAnswer, expected);
  EXPECT_TRUE(std::ranges::equal(expected, BytesView(answers[0]).subspan(each, each)));
  // A query that comes alone has the same answer: no end of a piece is too short for its mask.
  const wire::QueryBatch alone = {.positions = {queries.positions[1]},
                                  .tallies = {queries.tallies[1]}};
  EXPECT_EQ(*ReadAll(**AnswerQueries(AnswerKeys::Of(backend, round.secrets(2), state, alone),
                                     {rows, kRows}, {&pool, &narrow})),
            expected);
}

// Guarantee 17: a source of answers owns what it reads while it makes a piece, and keeps nothing of
// a round that has ended alive, however slowly it is read.
TEST(StagesTest, ASourceOfAnswersKeepsNothingOfAnEndedRound) {
  testing::TestRandom random(13);
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  const SyntheticRound round = TwoParties(5, random);
  const RoundContext& backend = round.context(2);
  const Bytes zeros(2 * backend.onion_bytes());  // points of low order
  const auto last = RunOffline(backend, round.secrets(2), {}, zeros, 0, {&pool, &spools});
  SHOAL_ASSERT_OK(last.status());
  const Bytes rows(5 * backend.answer_bytes, 1);
  const wire::QueryBatch queries = {.positions = {0, 1}, .tallies = {1, 1}};
  AnswerKeysPointer keys = AnswerKeys::Of(backend, round.secrets(2), last->material, queries);
  const std::weak_ptr<const AnswerKeys> left = keys;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto source, AnswerQueries(keys, {rows, 5}, {&pool, &spools}));
  keys.reset();
  EXPECT_TRUE(left.expired());
  EXPECT_EQ(source->size(), 2 * backend.tagged_bytes());
  EXPECT_THAT(source->Next(), testing::StatusIs(absl::StatusCode::kFailedPrecondition, "ended"));
}

// Guarantee 2: a dead position's answer is pseudorandom before any other party's mask is on it, and
// the same when asked for again. No two such answers are equal.
TEST(StagesTest, DeadPositionsAreAnsweredWithPseudorandomBytes) {
  testing::TestRandom random(12);
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  const SyntheticRound round = TwoParties(5, random);
  const RoundContext& backend = round.context(2);
  const Bytes zeros(2 * backend.onion_bytes());  // points of low order
  const auto last = RunOffline(backend, round.secrets(2), {}, zeros, 0, {&pool, &spools});
  ASSERT_EQ(last->dead, 2u);
  const Bytes rows(5 * backend.answer_bytes, 1);
  const wire::QueryBatch queries = {.positions = {0, 1}, .tallies = {1, 1}};
  const auto ask = [&] {
    return ReadAll(
        **AnswerQueries(AnswerKeys::Of(backend, round.secrets(2), last->material, queries),
                        {rows, 5}, {&pool, &spools}));
  };
  const auto answers = ask();
  ASSERT_EQ(answers->size(), 2 * backend.tagged_bytes());
  const auto middle = answers->begin() + static_cast<ptrdiff_t>(backend.tagged_bytes());
  const Bytes first(answers->begin(), middle), second(middle, answers->end());
  for (const Bytes& answer : {first, second}) {
    EXPECT_GT(std::set<uint8_t>(answer.begin(), answer.end()).size(), 20u);
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(*ask(), *answers);
  // Nobody else can compute them: another round's are other bytes.
  const RoundSecrets another(random.NewSeed());
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const Bytes others,
      ReadAll(**AnswerQueries(AnswerKeys::Of(backend, another, last->material, queries), {rows, 5},
                              {&pool, &spools})));
  EXPECT_FALSE(std::equal(first.begin(), first.end(), others.begin()));
  // Nor can anybody compute their tags.
  const auto tag = [](BytesView answer) { return ToBytes(answer.last(sharing::kAnswerTagBytes)); };
  EXPECT_NE(tag(first), tag(second));
  EXPECT_NE(tag(first), tag(BytesView(others).first(first.size())));
}

// Every noise query reaches the backend as the row it was drawn for, as often as it was drawn, from
// every party before the backend: the histogram that the backend sees is the honest one plus
// exactly the noise of all others.
TEST(StagesTest, TheBackendSeesTheQueriesPlusTheNoise) {
  constexpr uint64_t kRows = 30;
  testing::TestRandom random(6);
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  const Resources resources = {&pool, &spools};
  for (const uint32_t parties : {2u, 3u, 4u}) {
    const SyntheticRound round({.parties = parties, .max_rows = kRows, .noise = SomeNoise()},
                               random);
    std::vector<uint32_t> expected(kRows);
    std::vector<OnlineMaterial> materials;
    Bytes list;
    for (uint32_t j = 1; j <= parties; ++j) {
      SHOAL_ASSERT_OK_AND_ASSIGN(NoiseBatch noise,
                                 MakeNoise(round.context(j), round.secrets(j), resources));
      if (j < parties) {
        std::vector<uint32_t> drawn(kRows);
        SeededRandom counts = round.secrets(j).NoiseCounts();
        round.context(j).noise.Sample(counts, drawn);
        for (uint64_t row = 0; row < kRows; ++row) expected[row] += drawn[row];
      }
      SHOAL_ASSERT_OK_AND_ASSIGN(auto out, RunOffline(round.context(j), round.secrets(j),
                                                      std::move(noise), list, 0, resources));
      ASSERT_EQ(out.dead, 0u);
      SHOAL_ASSERT_OK_AND_ASSIGN(list, ReadAll(out.onions));
      materials.push_back(std::move(out.material));
    }
    wire::QueryBatch batch;
    for (uint32_t j = 1; j < parties; ++j) {
      SHOAL_ASSERT_OK_AND_ASSIGN(
          const Forwarding forwarding,
          ForwardQueries(round.context(j), materials[j - 1], batch, resources));
      SHOAL_ASSERT_OK_AND_ASSIGN(
          batch, wire::DecodeQueryBatch(forwarding.queries, materials[j - 1].next_positions));
    }
    const OnlineMaterial& last = materials.back();
    std::vector<uint32_t> seen(kRows);
    for (size_t i = 0; i < batch.positions.size(); ++i) {
      const auto share =
          sharing::Expand(last.seed(batch.positions[i]), round.context(parties).round_id).share;
      const uint32_t row = sharing::Advance(share, batch.tallies[i]);
      ASSERT_LT(row, kRows);
      ++seen[row];
    }
    EXPECT_EQ(seen, expected) << parties;
  }
}

// The places of all that goes on, living onions and noise, are the permutation of the round's
// secret key, at party 1 and at those in the middle; and the bytes lie at these places. That
// permutations are uniform is src/shuffle's matter.
TEST(StagesTest, EveryPartyBeforeTheBackendShuffles) {
  constexpr uint32_t kOnions = 200;
  testing::TestRandom random(21);
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  const Resources resources = {&pool, &spools};
  const SyntheticRound round({.parties = 4, .max_rows = 20, .noise = SomeNoise()}, random);
  for (const uint32_t j : {1u, 2u, 3u}) {
    const RoundContext& context = round.context(j);
    const size_t inner_bytes = context.inner_bytes();
    Bytes list, inner(kOnions * inner_bytes);
    if (j == 1) {
      list = round.MakeInput(kOnions, 1, random, pool).list;
      const size_t each = 4 + onion::SubmissionBytes(4, 1);
      for (uint32_t i = 0; i < kOnions; ++i) {
        Bytes seed(32);
        onion::SubmissionToOpen submission = {
            .submission = BytesView(list).subspan(i * each + 4, each - 4),
            .seeds = seed,
            .onions = MutableBytes(inner).subspan(i * inner_bytes, inner_bytes)};
        onion::OpenSubmissions(round.secrets(1).OnionKeyPair(), context.round_id, {&submission, 1});
        ASSERT_TRUE(submission.opened);
      }
    } else {
      const std::span recipients = std::span(round.recipients()).subspan(j - 1);
      Bytes ephemeral(kOnions * recipients.size() * 32), seeds(ephemeral.size());
      random.Fill(ephemeral);
      list.resize(kOnions * context.onion_bytes());
      onion::BuildOnions(context.round_id, j, recipients, ephemeral, seeds, list);
      Bytes exported(kOnions * 32), valid(kOnions);
      onion::PeelOnions(round.secrets(j).OnionKeyPair(), context.round_id, j, context.layers(),
                        list, exported, inner, valid);
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(NoiseBatch noise, MakeNoise(context, round.secrets(j), resources));
    const size_t all = kOnions + noise.size();
    SHOAL_ASSERT_OK_AND_ASSIGN(auto out, RunOffline(context, round.secrets(j), std::move(noise),
                                                    list, kOnions, resources));
    ASSERT_EQ(out.dead, 0u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes onward, ReadAll(out.onions));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto places,
        shuffle::RandomPermutation(all, round.secrets(j).PermutationKey(), pool));
    uint32_t stayed = 0;
    for (uint32_t i = 0; i < kOnions; ++i) {
      const uint32_t place = out.material.target[i];
      ASSERT_EQ(place, places[i]) << "party " << j;
      stayed += place == i ? 1 : 0;
      EXPECT_TRUE(std::equal(inner.begin() + static_cast<ptrdiff_t>(i * inner_bytes),
                             inner.begin() + static_cast<ptrdiff_t>((i + 1) * inner_bytes),
                             onward.begin() + static_cast<ptrdiff_t>(place * inner_bytes)));
    }
    for (size_t k = 0; k < out.material.noise.size(); ++k) {
      EXPECT_EQ(out.material.noise[k].position, places[kOnions + k]);
    }
    EXPECT_LT(stayed, 20u);  // 1 is expected, of 200 and more places
  }
}

// Noise must not be known by its onions: in all chunks, for all later parties and in all rounds the
// layers have secrets of their own. What a layer is made of shows in its encapsulated key.
TEST(StagesTest, NoTwoLayersOfNoiseHaveTheSameSecret) {
  testing::TestRandom random(22);
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  const Resources resources = {&pool, &spools};
  const SyntheticRound round({.parties = 3, .max_rows = 400, .noise = SomeNoise()}, random);
  const RoundContext& context = round.context(1);
  std::set<Digest> keys, seeds;
  size_t layers = 0;
  const RoundSecrets another(random.NewSeed());
  for (const RoundSecrets* const secrets : {&round.secrets(1), &another}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const NoiseBatch noise, MakeNoise(context, *secrets, resources));
    const size_t count = noise.size();
    ASSERT_GT(count, 2048u);  // several chunks
    Bytes onions(count * onion::OnionBytes(2)), inner(count * onion::OnionBytes(1));
    SHOAL_ASSERT_OK(noise.onions.Read(0, onions));
    Bytes exported(count * 32), valid(count), exported_last(count * 32);
    onion::PeelOnions(round.secrets(2).OnionKeyPair(), context.round_id, 2, 2, onions, exported,
                      inner, valid);
    ASSERT_EQ(std::ranges::count(valid, 1), static_cast<ptrdiff_t>(count));
    onion::PeelOnions(round.secrets(3).OnionKeyPair(), context.round_id, 3, 1, inner, exported_last,
                      {}, valid);
    ASSERT_EQ(std::ranges::count(valid, 1), static_cast<ptrdiff_t>(count));
    const auto add = [count](BytesView all, std::set<Digest>& to) {
      const size_t each = all.size() / count;
      for (size_t i = 0; i < count; ++i) {
        Digest item;
        std::ranges::copy(all.subspan(i * each, 32), item.begin());
        to.insert(item);
      }
    };
    add(onions, keys);
    add(inner, keys);
    add(exported, seeds);
    add(exported_last, seeds);
    layers += 2 * count;
  }
  EXPECT_EQ(keys.size(), layers);
  EXPECT_EQ(seeds.size(), layers);
}

// Whoever knew one of these keys could aim at the buckets of the search for duplicates, make up
// contents with equal digests, or tell dead answers from others.
TEST(StagesTest, KeysOfARoundAreItsOwnSecrets) {
  testing::TestRandom random(23);
  std::set<Digest> keys = {Digest()};
  for (int i = 0; i < 2; ++i) {
    const RoundSecrets secrets(random.NewSeed());
    const onion::KeyPair onion_key = secrets.OnionKeyPair();
    for (const BytesView key :
         {onion_key.secret_key.view(), secrets.NoiseOrderKey(), secrets.PermutationKey(),
          secrets.FingerprintKey(), secrets.ContentKey(), secrets.DeadAnswerKey()}) {
      Digest item;
      std::ranges::copy(key, item.begin());
      keys.insert(item);
    }
  }
  EXPECT_EQ(keys.size(), 1u + 2 * 6);
}

// A neighbour cannot fill the memory with more onions than a round may have.
TEST(StagesTest, AListLongerThanTheHeaderAllowsIsRefused) {
  testing::TestRandom random(24);
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  const Resources resources = {&pool, &spools};
  const SyntheticRound round({.parties = 3, .max_rows = 5, .max_slots = 10, .noise = SomeNoise()},
                             random);
  const auto begin = [&](uint32_t party, uint64_t onions) {
    const RoundContext& context = round.context(party);
    return party == 1
               ? OnionIntake::BeginSubmissions(context, round.secrets(1), 10'000, onions, resources)
                     .status()
               : OnionIntake::Begin(context, round.secrets(party), onions * context.onion_bytes(),
                                    resources)
                     .status();
  };
  for (const uint32_t party : {1u, 2u, 3u}) {
    // Slots, and the most noise that the parties before can make.
    const uint64_t most = 10 + uint64_t{party - 1} * 5 * SomeNoise().max();
    SHOAL_EXPECT_OK(begin(party, most));
    EXPECT_THAT(begin(party, most + 1),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, "the header allows"));
  }
}

// What positions tell a coalition around one honest party (docs/threat-model.md): the output
// position of a client's query is uniform, whichever clients take part. One of three slots is used,
// and the place where its query comes out must not depend on which one.
TEST(StagesTest, OutputPositionsDoNotTellInputPositions) {
  testing::TestRandom random(7);
  ThreadPool pool(1);
  testing::TestRandom keys(8);
  const SyntheticRound round = TwoParties(5, keys);
  constexpr int kTrials = 6000, kSlots = 3;
  std::array<std::map<uint32_t, int>, kSlots> seen;
  for (int trial = 0; trial < kTrials; ++trial) {
    // Without noise and curve work: three living positions, shuffled by a fresh seed.
    const RoundSecrets secrets(random.NewSeed());
    OnlineMaterial state;
    state.positions = state.next_positions = kSlots;
    SHOAL_ASSERT_OK_AND_ASSIGN(state.seeds,
                               PageBuffer::Create(32 * kSlots, PageBuffer::Content::kSecret));
    SHOAL_ASSERT_OK_AND_ASSIGN(state.target,
                               shuffle::RandomPermutation(kSlots, secrets.PermutationKey(), pool));
    const uint32_t slot = static_cast<uint32_t>(trial % kSlots);
    static SpoolPlace spools("/tmp", 0);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve(&spools, 0, 0, "a test"));
    const Resources resources = {&pool, &spools};
    SHOAL_ASSERT_OK(MakeReady(round.context(1), *arena, resources, state));
    const auto out =
        ForwardQueries(round.context(1), state, {.positions = {slot}, .tallies = {1}}, resources);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, wire::DecodeQueryBatch(out->queries, kSlots));
    ASSERT_EQ(batch.positions.size(), 1u);
    ++seen[slot][batch.positions[0]];
  }
  for (const auto& counts : seen) {
    double chi_squared = 0;
    constexpr double kExpected = kTrials / (1.0 * kSlots * kSlots);
    for (uint32_t p = 0; p < kSlots; ++p) {
      const double d = (counts.contains(p) ? counts.at(p) : 0) - kExpected;
      chi_squared += d * d / kExpected;
    }
    EXPECT_LT(chi_squared, 13.8);  // 2 degrees of freedom, p = 0.001
  }
}

// The whole online path between two parties, from made-up seeds: queries forwarded with noise, rows
// read, answers returned. Every answer is right, and no byte of any message depends on threads, the
// instruction set, the place of spools, or masks kept ready.
TEST(StagesTest, TheOnlinePathGivesTheSameBytesEverywhere) {
  constexpr uint32_t kQueries = 6000, kNoise = 2500, kNext = kQueries + kNoise;
  constexpr uint64_t kRows = 50;
  testing::TestRandom random(17);
  const SyntheticRound round({.answer_bytes = 112, .max_rows = kRows, .noise = SomeNoise()},
                             random);
  const RoundContext &first = round.context(1), &last = round.context(2);
  const size_t answer_bytes = first.answer_bytes;  // not a multiple of a vector's size
  Bytes table(kRows * answer_bytes);
  random.Fill(table);
  const ContentMac mac(round.secrets(1).ContentKey(), "test");

  ThreadPool one(1), many(4);
  // Outlives what is kept in it.
  SpoolPlace memory(::testing::TempDir(), 1 << 30), files(::testing::TempDir(), 0);
  OnlineMaterial front, back;
  front.positions = kQueries;
  front.next_positions = back.positions = kNext;
  constexpr auto kSecret = PageBuffer::Content::kSecret;
  SHOAL_ASSERT_OK_AND_ASSIGN(front.seeds, PageBuffer::Create(32 * kQueries, kSecret));
  SHOAL_ASSERT_OK_AND_ASSIGN(back.seeds, PageBuffer::Create(32 * kNext, kSecret));
  random.Fill(front.seeds);
  random.Fill(back.seeds);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto place, shuffle::RandomPermutation(kNext, round.secrets(1).PermutationKey(), one));
  SHOAL_ASSERT_OK_AND_ASSIGN(front.target, PageArray<uint32_t>::Create(kQueries, kSecret));
  SHOAL_ASSERT_OK_AND_ASSIGN(back.target, PageArray<uint32_t>::Create(kNext, kSecret));
  std::copy_n(place.begin(), kQueries, front.target.begin());
  for (uint32_t k = 0; k < kNoise; ++k) front.noise.push_back({place[kQueries + k], 1 + k});

  // Every third slot is not used.
  const auto row_of = [](uint32_t slot) { return static_cast<uint32_t>(slot * 7 % kRows); };
  wire::QueryBatch queries;
  for (uint32_t slot = 0; slot < kQueries; ++slot) {
    if (slot % 3 == 2) continue;
    const sharing::QueryShare shares[] = {sharing::Expand(front.seed(slot), {}).share,
                                          sharing::Expand(back.seed(front.target[slot]), {}).share};
    queries.positions.push_back(slot);
    queries.tallies.push_back(sharing::FirstTally(shares, row_of(slot)));
  }
  const Bytes encoded = wire::EncodeQueryBatch(queries, kQueries);

  std::optional<std::vector<Bytes>> expected;
  const auto run = [&](ThreadPool& pool, SpoolPlace& spools, SpoolPlace& for_masks) {
    const Resources resources = {&pool, &spools};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto early, Arena::Reserve(&for_masks, 0, 0, "a test"));
    SHOAL_ASSERT_OK(MakeReady(first, *early, resources, front));
    SHOAL_ASSERT_OK(MakeReady(last, *early, resources, back));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto came, wire::DecodeQueryBatch(encoded, kQueries));
    SHOAL_ASSERT_OK_AND_ASSIGN(front.forward_memory, ForwardMemory::MakeReady(kNext, *early, pool));
    SHOAL_ASSERT_OK_AND_ASSIGN(Forwarding forwarding,
                               ForwardQueries(first, front, came, resources));
    const Bytes forwarded = std::move(forwarding.queries);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto asked, wire::DecodeQueryBatch(forwarded, kNext));
    const auto last_keys = AnswerKeys::Of(last, round.secrets(2), back, asked);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto source,
                               AnswerQueries(last_keys, {table, kRows}, resources));
    SHOAL_ASSERT_OK_AND_ASSIGN(AnswerIntake intake, AnswerIntake::Begin(first, came, forwarding,
                                                                        source->size(), resources));
    Bytes answers;
    ContentMac::Stream digest(mac);
    for (;;) {
      SHOAL_ASSERT_OK_AND_ASSIGN(BytesView piece, source->Next());
      if (piece.empty()) break;
      digest.Update(piece, pool);
      Append(answers, piece);
      // Cut into odd pieces, as no sender would.
      for (size_t n = 1; !piece.empty(); n = 3 * n + 1) {
        const BytesView some = piece.first(std::min(n, piece.size()));
        SHOAL_ASSERT_OK(intake.Take(some));
        piece = piece.subspan(some.size());
      }
    }
    EXPECT_EQ(digest.Finish(), mac.Of(answers, one));
    const auto first_keys = AnswerKeys::Of(first, round.secrets(1), front, came);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto back_to_clients,
                               ReturnAnswers(first_keys, std::move(intake), resources));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes returned, ReadAll(*back_to_clients));
    // The list that the frontend keeps has what was read.
    ASSERT_EQ(back_to_clients->in_memory(), &spools == &memory);
    if (back_to_clients->in_memory()) {
      const Spool list = back_to_clients->TakeList();
      EXPECT_TRUE(std::ranges::equal(list.memory().first(returned.size()), returned));
    }
    const std::vector<Bytes> messages = {forwarded, answers, returned};
    if (!expected.has_value()) {
      expected = messages;
      for (size_t i = 0; i < queries.positions.size(); ++i) {
        const uint32_t slot = queries.positions[i];
        Bytes answer =
            ToBytes(BytesView(returned).subspan(i * first.tagged_bytes(), first.tagged_bytes()));
        const sharing::AnswerSeed seeds[] = {{front.seed(slot), {}},
                                             {back.seed(front.target[slot]), {}}};
        ASSERT_TRUE(sharing::UnmaskAnswer(seeds, answer)) << slot;
        ASSERT_TRUE(
            std::ranges::equal(BytesView(answer).first(answer_bytes),
                               BytesView(table).subspan(row_of(slot) * answer_bytes, answer_bytes)))
            << slot;
      }
    }
    EXPECT_TRUE(messages == *expected);
  };
  const InstructionSet before = ActiveInstructionSet();
  for (InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    for (ThreadPool* const pool : {&one, &many}) {
      run(*pool, memory, memory);
      run(*pool, memory, files);
      run(*pool, files, memory);
    }
  }
  UseInstructionSet(before);
}

}  // namespace
}  // namespace shoal::server
