#include "src/client/device.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/testing/fake_frontend.h"
#include "src/onion/onion.h"
#include "src/sharing/sharing.h"

namespace shoal::client {
namespace {

class DeviceTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  DeviceTest() : frontend_({.parties = GetParam(), .records = 20}) {
    for (uint32_t j = 0; j < GetParam(); ++j) {
      keys_.push_back(onion::KeyPairFromSecret(random_.NewSeed().view()));
    }
    round_ = MakeRound(1);
  }

  // A round whose secret keys are keys_.
  round::Round MakeRound(uint64_t counter) {
    wire::RoundHeader header = frontend_.MakeHeader(counter);
    for (size_t j = 0; j < keys_.size(); ++j) {
      header.set_onion_keys(static_cast<int>(j), ToString(keys_[j].public_key));
    }
    auto round =
        round::Round::Verify(frontend_.Sign(header), frontend_.roster(),
                             {frontend_.table().manifest().digest(), frontend_.table().rows(),
                              frontend_.table().manifest().row_bytes()},
                             frontend_.clock().now_s);
    SHOAL_CHECK(round.ok());
    return *std::move(round);
  }

  std::string Make(const round::Round& round, const Seed& master, OnionSubmission& submission) {
    const SubmissionToMake to_make{&master, &submission};
    return MakeSubmissions(round, {&to_make, 1}, nullptr).at(0);
  }
  std::string Make(const Seed& master, OnionSubmission& submission) {
    return Make(*round_, master, submission);
  }
  // A submission as a program knows it that has just read its state.
  static OnionSubmission Fresh(uint32_t first, uint32_t count) {
    return {.first = first, .count = count, .plaintext = {}, .first_slot = std::nullopt};
  }

  // The encapsulated keys of all layers of a submission, party 1's first.
  std::vector<std::string> Encs(const round::Round& round, const std::string& sealed) const {
    std::vector<std::string> encs = {sealed.substr(0, 32)};
    Opened(round, sealed, &encs);
    return encs;
  }
  // The seeds of all onions, party 1's first, as the parties find them.
  Bytes Opened(const round::Round& round, const std::string& sealed,
               std::vector<std::string>* encs = nullptr) const {
    const size_t parties = keys_.size();
    const size_t n = onion::SubmissionOnions(parties, sealed.size());
    EXPECT_GT(n, 0u);
    std::vector<Bytes> seeds(parties, Bytes(n * 32));
    Bytes layers(sealed.size() - onion::kSealBytes);
    onion::SubmissionToOpen to_open{
        .submission = AsBytes(sealed), .seeds = seeds[0], .onions = layers};
    onion::OpenSubmissions(keys_[0], round.id(), {&to_open, 1});
    EXPECT_TRUE(to_open.opened);
    for (uint32_t party = 2; party <= parties; ++party) {
      const size_t bytes = onion::OnionBytes(parties - party + 1);
      for (size_t i = 0; i < n && encs != nullptr; ++i) {
        encs->push_back(ToString(BytesView(layers).subspan(i * bytes, 32)));
      }
      Bytes inner(n * onion::OnionBytes(parties - party));
      Bytes valid(n);
      onion::PeelOnions(keys_[party - 1], round.id(), party, parties - party + 1, layers,
                        seeds[party - 1], inner, valid);
      EXPECT_EQ(valid, Bytes(n, 1));
      layers = std::move(inner);
    }
    Bytes all;
    for (size_t i = 0; i < n; ++i) {
      for (const Bytes& of_party : seeds) Append(all, BytesView(of_party).subspan(i * 32, 32));
    }
    return all;
  }

  shoal::testing::TestRandom random_{1};
  testing::FakeFrontend frontend_;
  std::vector<onion::KeyPair> keys_;
  std::optional<round::Round> round_;
};

TEST_P(DeviceTest, ASlotCostsAsMuchAsTheDesignSays) {
  const Seed master = random_.NewSeed();
  OnionSubmission one = Fresh(0, 1), many = Fresh(0, 1001);
  const size_t each = (Make(master, many).size() - Make(master, one).size()) / 1000;
  EXPECT_EQ(each, 48u * (GetParam() - 2) + 32);
  if (GetParam() == 2) {
    EXPECT_EQ(each, 32u);
  }
  if (GetParam() == 3) {
    EXPECT_EQ(each, 80u);
  }
  EXPECT_EQ(Make(master, one).size(), each + 48) << "party 1's layer comes once";
}

// A program that was killed after it sent a submission knows seed and cut alone: a repeated
// submission must have the same bytes.
TEST_P(DeviceTest, TheSamePlaintextGivesTheSameSubmission) {
  const Seed master = random_.NewSeed(), again = master.Clone();
  OnionSubmission submission = Fresh(7, 300), same = Fresh(7, 300);
  const std::string sealed = Make(master, submission);
  EXPECT_EQ(Make(again, same), sealed);
  EXPECT_EQ(same.plaintext, submission.plaintext);
  // Over threads, and among other submissions, as well.
  ThreadPool pool(2);
  const Seed other = random_.NewSeed();
  OnionSubmission before = Fresh(0, 7), third = Fresh(7, 300), after = Fresh(3, 5);
  const std::vector<SubmissionToMake> all = {
      {&master, &before}, {&again, &third}, {&other, &after}};
  EXPECT_EQ(MakeSubmissions(*round_, all, &pool).at(1), sealed);
}

// Two plaintexts under one ephemeral key would be sealed with one key stream.
TEST_P(DeviceTest, AnotherCutOrPlaintextNeverSharesAnEnc) {
  const Seed master = random_.NewSeed();
  std::set<std::string> encs;
  const auto expect_new = [&](const std::string& sealed) {
    EXPECT_TRUE(encs.insert(sealed.substr(0, 32)).second);
  };
  // Every cut of the same onions.
  for (const uint32_t first : {0u, 1u, 100u}) {
    for (const uint32_t count : {1u, 2u, 99u, 100u}) {
      OnionSubmission submission = Fresh(first, count);
      expect_new(Make(master, submission));
    }
  }
  // Another device, and another round.
  const Seed other = random_.NewSeed();
  OnionSubmission submission = Fresh(0, 100);
  expect_new(Make(other, submission));
  expect_new(Make(MakeRound(2), master, submission));
  // With all else equal, another digest of the plaintext gives another ephemeral key, and so
  // other seeds of party 1.
  OnionSubmission altered = Fresh(0, 100);
  Make(master, altered);
  const std::vector<OnionRange> range = {{&master, &altered, 0, 1}};
  const auto seeds = SeedsOf(*round_, range, nullptr);
  altered.plaintext[31] ^= 1;
  const auto others = SeedsOf(*round_, range, nullptr);
  EXPECT_FALSE(std::equal(seeds.begin(), seeds.begin() + 32, others.begin()));
  EXPECT_TRUE(std::equal(seeds.begin() + 32, seeds.end(), others.begin() + 32));
}

TEST_P(DeviceTest, NoEncComesTwiceInARoundOrInTwo) {
  const Seed master = random_.NewSeed();
  std::set<std::string> encs;
  size_t total = 0;
  for (const uint64_t counter : {1, 2}) {
    const round::Round round = MakeRound(counter);
    for (OnionSubmission& submission : Split(0, 70, 30)) {
      for (const std::string& enc : Encs(round, Make(round, master, submission))) {
        EXPECT_TRUE(encs.insert(enc).second);
        ++total;
      }
    }
  }
  EXPECT_EQ(total, 2 * (3 + 70 * (GetParam() - 1)));
}

// The parties find the seeds that the device computes again, whatever its ranges are.
TEST_P(DeviceTest, SeedsAreThoseThatThePartiesFind) {
  const Seed a = random_.NewSeed(), b = random_.NewSeed();
  std::vector<OnionSubmission> of_a = Split(0, 350, 150);
  OnionSubmission of_b = Fresh(0, 5);
  ASSERT_EQ(of_a.size(), 3u);
  Bytes seeds_a, seeds_b = Opened(*round_, Make(b, of_b));
  for (OnionSubmission& submission : of_a) {
    Append(seeds_a, Opened(*round_, Make(a, submission)));
  }
  ThreadPool pool(2);
  const size_t each = 32 * GetParam();
  const auto seeds = [&](size_t first, size_t count) {
    return ToBytes(SeedsOf(*round_, Ranges(a, of_a, first, count), &pool));
  };
  EXPECT_EQ(seeds(0, 350), seeds_a);
  for (const auto& [first, count] : std::vector<std::pair<size_t, size_t>>{
           {0, 1}, {149, 2}, {150, 150}, {299, 51}, {349, 1}, {17, 0}}) {
    EXPECT_EQ(seeds(first, count), ToBytes(BytesView(seeds_a).subspan(first * each, count * each)))
        << first << " " << count;
  }
  // Of two devices in one call.
  std::vector<OnionRange> ranges = Ranges(a, of_a, 140, 20);
  ranges.push_back({&b, &of_b, 2, 3});
  Bytes expected = ToBytes(BytesView(seeds_a).subspan(140 * each, 20 * each));
  Append(expected, BytesView(seeds_b).subspan(2 * each));
  EXPECT_EQ(ToBytes(SeedsOf(*round_, ranges, nullptr)), expected);
}

TEST_P(DeviceTest, QueriesAndFetchesHaveTheSlotsTokensAndTallies) {
  const Seed master = random_.NewSeed();
  std::vector<OnionSubmission> submissions = Split(0, 10, 6);
  Bytes seeds;
  for (OnionSubmission& submission : submissions) {
    Append(seeds, Opened(*round_, Make(master, submission)));
  }
  submissions[0].first_slot = 100;
  submissions[1].first_slot = 7;
  const std::vector<OnionRange> ranges = Ranges(master, submissions, 4, 5);
  const std::vector<uint32_t> rows = {9, 8, 7, 6, 5}, slots = {104, 105, 7, 8, 9};
  const wire::SubmitQueriesRequest queries = MakeQueries(*round_, ranges, rows, nullptr);
  const wire::FetchAnswersRequest fetch = MakeFetch(*round_, ranges);
  EXPECT_EQ(queries.round_id(), AsText(round_->id()));
  EXPECT_EQ(fetch.round_id(), AsText(round_->id()));
  EXPECT_EQ(fetch.slots(), queries.slots());
  EXPECT_EQ(fetch.tokens(), queries.tokens());
  Bytes rows_of_all(5 * round_->answer_bytes()), masked(5 * round_->tagged_bytes());
  random_.Fill(rows_of_all);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(LoadLe<uint32_t>(AsBytes(queries.slots()).data() + 4 * i), slots[i]);
    uint32_t tally = LoadLe<uint32_t>(AsBytes(queries.tallies()).data() + 4 * i);
    const auto answer =
        MutableBytes(masked).subspan(i * round_->tagged_bytes(), round_->tagged_bytes());
    std::ranges::copy(
        BytesView(rows_of_all).subspan(i * round_->answer_bytes(), round_->answer_bytes()),
        answer.begin());
    std::vector<sharing::AnswerSeed> all;
    for (uint32_t j = 0; j < GetParam(); ++j) {
      const BytesView seed = BytesView(seeds).subspan(((4 + i) * GetParam() + j) * 32, 32);
      const sharing::Expansion expansion = sharing::Expand(seed, round_->id());
      if (j == 0) {
        EXPECT_EQ(queries.tokens().substr(16 * i, 16), AsText(expansion.token));
      }
      tally = sharing::Advance(expansion.share, tally);
      all.push_back({seed, round_->id()});
    }
    EXPECT_EQ(tally, rows[i]);
    sharing::MaskByAll(all, answer);
  }
  Bytes answers(rows_of_all.size());
  Unmask(*round_, ranges, masked, answers);
  EXPECT_EQ(answers, rows_of_all);
  // One that was altered on its way is nothing, and the others are not touched.
  masked[3 * round_->tagged_bytes() - 1] ^= 0x10;
  std::fill_n(rows_of_all.begin() + static_cast<ptrdiff_t>(2 * round_->answer_bytes()),
              round_->answer_bytes(), 0);
  Unmask(*round_, ranges, masked, answers);
  EXPECT_EQ(answers, rows_of_all);
}

// The derivation of device.h, written out. A state on disk relies on it.
TEST_P(DeviceTest, SecretsAreTheDocumentedOnes) {
  const Seed master = random_.NewSeed();
  const uint32_t inner = GetParam() - 1;
  OnionSubmission submission = Fresh(3, 9);
  const std::string sealed = Make(master, submission);

  const Digest key =
      Transcript("shoal client onions v3", master.view()).Blob(round_->id()).Finish();
  Bytes stream((3 + 9) * inner * 32);
  const uint8_t nonce[crypto_stream_chacha20_ietf_NONCEBYTES] = {};
  crypto_stream_chacha20_ietf(stream.data(), stream.size(), nonce, key.data());
  Bytes seeds(9 * inner * 32), onions(9 * onion::OnionBytes(inner));
  onion::BuildOnions(round_->id(), 2, std::span(round_->recipients()).subspan(1),
                     BytesView(stream).subspan(3 * inner * 32), seeds, onions);
  EXPECT_EQ(submission.plaintext, Transcript("shoal client plaintext v3").Blob(onions).Finish());
  const Digest secret = Transcript("shoal client submission v3", master.view())
                            .Blob(round_->id())
                            .U64(3)
                            .Blob(submission.plaintext)
                            .Finish();
  Bytes expected(onions.size() + 48);
  const onion::SubmissionToSeal to_seal{
      .ephemeral_secret = secret, .onions = onions, .submission = expected, .seeds = {}};
  onion::SealSubmissions(round_->recipients()[0], round_->id(), {&to_seal, 1});
  EXPECT_EQ(sealed, AsText(expected));
}

TEST(SplitTest, DependsOnTheNumberAlone) {
  EXPECT_TRUE(Split(0, 0, 5).empty());
  const std::vector<OnionSubmission> cut = Split(3, 14, 5);
  ASSERT_EQ(cut.size(), 3u);
  EXPECT_EQ(cut[0].first, 3u);
  EXPECT_EQ(cut[1].first, 8u);
  EXPECT_EQ(cut[2].first, 13u);
  EXPECT_EQ(cut[0].count, 5u);
  EXPECT_EQ(cut[2].count, 1u);
  for (const OnionSubmission& submission : cut) EXPECT_FALSE(submission.first_slot.has_value());
}

INSTANTIATE_TEST_SUITE_P(Parties, DeviceTest, ::testing::Values(2, 3, 5));

}  // namespace
}  // namespace shoal::client
