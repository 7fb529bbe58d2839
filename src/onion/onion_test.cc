// Submissions and onions through whole chains, and the attacks on them that a party or a client
// could try, against testing/reference_hpke.h where bytes are compared.
#include "src/onion/onion.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/sanitized.h"
#include "src/base/testing/test_random.h"
#include "src/onion/testing/edge_points.h"
#include "src/onion/testing/reference_hpke.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::PlusOrderTwo;
using ::shoal::onion::testing::ReferenceHpke;
using ::shoal::testing::TestRandom;

Digest Filled(uint8_t fill) {
  Digest digest;
  digest.fill(fill);
  return digest;
}

Bytes Draw(RandomSource& random, size_t n) {
  Bytes bytes(n);
  random.Fill(bytes);
  return bytes;
}

BytesView Item(const Bytes& items, size_t bytes, size_t i) {
  return BytesView(items).subspan(i * bytes, bytes);
}

// HPKE's info of a layer.
Bytes InfoBytes(const Digest& round, uint8_t party) {
  Bytes bytes(14 + 32, party);
  bytes.push_back(party);
  std::ranges::copy(AsBytes("shoal onion v2"), bytes.begin());
  std::ranges::copy(round, bytes.begin() + 14);
  return bytes;
}

// Parties 1, 2, ..: keys[0] is party 1's.
struct Chain {
  std::vector<KeyPair> keys;
  std::vector<Recipient> recipients;

  std::span<const Recipient> behind_party_1() const {
    return std::span<const Recipient>(recipients).subspan(1);
  }
};

Chain MakeChain(RandomSource& random, size_t parties) {
  Chain chain;
  for (size_t i = 0; i < parties; ++i) {
    chain.keys.push_back(KeyPairFromSecret(Draw(random, 32)));
    chain.recipients.push_back(Recipient::Create(chain.keys.back().public_key).value());
  }
  return chain;
}

// n onions for parties 2 .. m, the sender's seeds of them, item (i, l) at (i * (m - 1) + l) * 32.
struct Onions {
  Bytes onions, seeds;
};

Onions Build(RandomSource& random, const Chain& chain, const Digest& round, size_t n) {
  const size_t layers = chain.keys.size() - 1;
  Onions built{Bytes(n * OnionBytes(layers)), Bytes(n * layers * 32)};
  BuildOnions(round, 2, chain.behind_party_1(), Draw(random, n * layers * 32), built.seeds,
              built.onions);
  return built;
}

struct Peeled {
  Bytes seeds, inner, valid;
};

// Party `party` >= 2 of `chain` peels its layer.
Peeled Peel(const Chain& chain, const Digest& round, uint32_t party, const Bytes& onions,
            size_t n) {
  const size_t layers = chain.keys.size() - party + 1;
  Peeled peeled{Bytes(n * 32, 1), Bytes(n * OnionBytes(layers - 1), 1), Bytes(n, 9)};
  PeelOnions(chain.keys[party - 1], round, party, layers, onions, peeled.seeds, peeled.inner,
             peeled.valid);
  return peeled;
}

// A submission of `onions`, and the sender's seeds of party 1.
struct Sent {
  Bytes submission, seeds;
};

Sent Submit(const Chain& chain, const Digest& round, BytesView secret, const Bytes& onions) {
  const size_t n = onions.size() / OnionBytes(chain.keys.size() - 1);
  Sent sent{Bytes(onions.size() + kSealBytes), Bytes(n * 32)};
  const SubmissionToSeal item = {secret, onions, sent.submission, sent.seeds, 0};
  SealSubmissions(chain.recipients[0], round, {&item, 1});
  return sent;
}

struct Received {
  Bytes onions, seeds;
  bool opened = false;
};

Received Receive(const Chain& chain, const Digest& round, const Bytes& submission) {
  const size_t n = SubmissionOnions(chain.keys.size(), submission.size());
  Received received{Bytes(submission.size() - kSealBytes, 1), Bytes(n * 32, 1), false};
  SubmissionToOpen item = {submission, received.seeds, received.onions, false};
  OpenSubmissions(chain.keys[0], round, {&item, 1});
  received.opened = item.opened;
  return received;
}

TEST(OnionTest, LengthsAreThoseOfTheDesign) {
  // A slot costs 48 (m - 2) + 32 bytes.
  EXPECT_EQ(OnionBytes(0), 0u);
  for (size_t parties = 2; parties <= 8; ++parties) {
    EXPECT_EQ(OnionBytes(parties - 1), 48 * (parties - 2) + 32);
    const size_t most = MaxSubmissionOnions(parties);
    EXPECT_LE(SubmissionBytes(parties, most), kMaxSubmissionBytes);
    EXPECT_GT(SubmissionBytes(parties, most + 1), kMaxSubmissionBytes);
    EXPECT_EQ(SubmissionOnions(parties, SubmissionBytes(parties, most)), most);
    EXPECT_EQ(SubmissionOnions(parties, SubmissionBytes(parties, most + 1)), 0u);
    EXPECT_EQ(SubmissionOnions(parties, SubmissionBytes(parties, 1)), 1u);
    EXPECT_EQ(SubmissionOnions(parties, SubmissionBytes(parties, 1) + 1), 0u);
    EXPECT_EQ(SubmissionOnions(parties, kSealBytes), 0u);
    EXPECT_EQ(SubmissionOnions(parties, 0), 0u);
  }
}

TEST(OnionTest, EveryPartyGetsTheSeedsOfTheSender) {
  TestRandom random(1);
  const Digest round = Filled(7);
  for (size_t parties : {2, 3, 5}) {
    for (size_t n : {1, 7, 8, 9, 130, 300}) {
      const Chain chain = MakeChain(random, parties);
      const Onions built = Build(random, chain, round, n);
      const Sent sent = Submit(chain, round, Draw(random, 32), built.onions);
      ASSERT_EQ(sent.submission.size(), SubmissionBytes(parties, n));
      const Received received = Receive(chain, round, sent.submission);
      ASSERT_TRUE(received.opened);
      EXPECT_EQ(received.onions, built.onions);
      EXPECT_EQ(received.seeds, sent.seeds);
      Bytes onions = received.onions;
      for (uint32_t party = 2; party <= parties; ++party) {
        const Peeled peeled = Peel(chain, round, party, onions, n);
        ASSERT_EQ(peeled.valid, Bytes(n, 1));
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(Hex(Item(peeled.seeds, 32, i)),
                    Hex(Item(built.seeds, 32, i * (parties - 1) + party - 2)))
              << parties << " parties, onion " << i << ", party " << party;
        }
        onions = peeled.inner;
      }
      EXPECT_TRUE(onions.empty());
    }
  }
}

// Opens a submission of two onions for three parties with the reference alone, as a program in
// another language would.
TEST(OnionTest, IsTheFormatOfTheDesign) {
  TestRandom random(2);
  const Digest round = Filled(9);
  const Chain chain = MakeChain(random, 3);
  const Onions built = Build(random, chain, round, 2);
  const Sent sent = Submit(chain, round, Draw(random, 32), built.onions);
  ASSERT_EQ(sent.submission.size(), 48u + 2 * 80u);
  const auto info = [&](uint8_t party) { return InfoBytes(round, party); };
  const auto piece = ReferenceHpke::Receiver(Aead::kChaCha20Poly1305, info(1), chain.keys[0],
                                             BytesView(sent.submission).first(32));
  const Bytes onions = piece->Open(BytesView(sent.submission).subspan(32)).value();
  for (size_t i = 0; i < 2; ++i) {
    Bytes slot = ToBytes(AsBytes("slot"));
    AppendLe<uint32_t>(slot, static_cast<uint32_t>(i));
    EXPECT_EQ(Hex(Item(sent.seeds, 32, i)), Hex(piece->Export(slot)));
    const BytesView onion = Item(onions, 80, i);
    const auto middle =
        ReferenceHpke::Receiver(Aead::kChaCha20Poly1305, info(2), chain.keys[1], onion.first(32));
    EXPECT_EQ(Hex(Item(built.seeds, 32, 2 * i)), Hex(middle->Export(AsBytes("seed"))));
    const Bytes enc = middle->Open(onion.subspan(32)).value();
    ASSERT_EQ(enc.size(), 32u);
    const auto last = ReferenceHpke::Receiver(Aead::kExportOnly, info(3), chain.keys[2], enc);
    EXPECT_EQ(Hex(Item(built.seeds, 32, 2 * i + 1)), Hex(last->Export(AsBytes("seed"))));
  }
}

TEST(OnionTest, TheSameInputsAreTheSameBytes) {
  TestRandom random(3);
  const Chain chain = MakeChain(random, 3);
  const Bytes secrets = Draw(random, 10 * 64), secret = Draw(random, 32);
  Bytes a(10 * OnionBytes(2)), b(10 * OnionBytes(2), 0xee), a_seeds(640), b_seeds(640, 1);
  BuildOnions(Filled(1), 2, chain.behind_party_1(), secrets, a_seeds, a);
  BuildOnions(Filled(1), 2, chain.behind_party_1(), secrets, b_seeds, b);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a_seeds, b_seeds);
  // The seeds alone, as a client that has sealed before computes them.
  Bytes c_seeds(640, 2);
  BuildOnions(Filled(1), 2, chain.behind_party_1(), secrets, c_seeds, {});
  EXPECT_EQ(a_seeds, c_seeds);
  const Sent sent = Submit(chain, Filled(1), secret, a);
  EXPECT_EQ(sent.submission, Submit(chain, Filled(1), secret, a).submission);
  // And some of them, from a number on.
  Bytes some(4 * 32);
  const SubmissionToSeal item = {secret, {}, {}, some, 3};
  SealSubmissions(chain.recipients[0], Filled(1), {&item, 1});
  EXPECT_EQ(Hex(some), Hex(BytesView(sent.seeds).subspan(3 * 32, 4 * 32)));
}

// Expects that party 2 finds exactly onion `bad` dead, and that it leaves only zeros behind.
void ExpectOnlyDead(const Chain& chain, const Digest& round, const Bytes& onions, size_t n,
                    size_t bad) {
  const Peeled peeled = Peel(chain, round, 2, onions, n);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(peeled.valid[i], i == bad ? 0 : 1) << i;
    EXPECT_EQ(sodium_is_zero(peeled.seeds.data() + i * 32, 32), i == bad) << i;
    EXPECT_EQ(sodium_is_zero(peeled.inner.data() + i * OnionBytes(1), OnionBytes(1)), i == bad)
        << i;
  }
}

TEST(OnionTest, DeadOnionsLeaveZerosAndHarmNoOther) {
  TestRandom random(4);
  const Digest round = Filled(5);
  const size_t n = 20, bytes = OnionBytes(2);
  const Chain chain = MakeChain(random, 3);
  const Bytes good = Build(random, chain, round, n).onions;
  const auto replace = [&](size_t i, const Bytes& onion) {
    Bytes onions = good;
    std::copy(onion.begin(), onion.end(), onions.begin() + static_cast<ptrdiff_t>(i * bytes));
    return onions;
  };

  Bytes flipped = good;
  flipped[3 * bytes + 60] ^= 1;
  ExpectOnlyDead(chain, round, flipped, n, 3);
  // Replayed from another round.
  ExpectOnlyDead(chain, round, replace(4, Build(random, chain, Filled(6), 1).onions), n, 4);
  // For another party's key.
  const Chain other = MakeChain(random, 3);
  ExpectOnlyDead(chain, round, replace(5, Build(random, other, round, 1).onions), n, 5);
  // Cut short: its last byte is lost and replaced by padding.
  Bytes truncated = good;
  truncated[7 * bytes - 1] ^= 0xff;
  ExpectOnlyDead(chain, round, truncated, n, 6);
  ExpectOnlyDead(chain, round, replace(8, Bytes(bytes, 0)), n, 8);
}

TEST(OnionTest, AnotherRoundOpensNoMiddleLayerAndGivesOtherLastSeeds) {
  TestRandom random(5);
  const Chain chain = MakeChain(random, 3);
  const Onions built = Build(random, chain, Filled(1), 9);
  const Sent sent = Submit(chain, Filled(1), Draw(random, 32), built.onions);
  EXPECT_FALSE(Receive(chain, Filled(2), sent.submission).opened);
  EXPECT_EQ(Peel(chain, Filled(2), 2, built.onions, 9).valid, Bytes(9, 0));
  const Bytes last = Peel(chain, Filled(1), 2, built.onions, 9).inner;
  const Peeled right = Peel(chain, Filled(1), 3, last, 9),
               wrong = Peel(chain, Filled(2), 3, last, 9);
  EXPECT_EQ(wrong.valid, Bytes(9, 1));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(Hex(Item(right.seeds, 32, i)), Hex(Item(built.seeds, 32, 2 * i + 1)));
    EXPECT_NE(Hex(Item(right.seeds, 32, i)), Hex(Item(wrong.seeds, 32, i)));
  }
}

// Even if two parties had the same key.
TEST(OnionTest, AnotherPartysNumberOpensNoMiddleLayerAndGivesOtherLastSeeds) {
  TestRandom random(6);
  Chain chain = MakeChain(random, 4);
  const Digest round = Filled(1);
  const Onions built = Build(random, chain, round, 9);
  Bytes seeds(9 * 32), inner(9 * OnionBytes(2)), valid(9, 9);
  PeelOnions(chain.keys[1], round, 3, 3, built.onions, seeds, inner, valid);
  EXPECT_EQ(valid, Bytes(9, 0));
  PeelOnions(chain.keys[1], round, 2, 3, built.onions, seeds, inner, valid);
  EXPECT_EQ(valid, Bytes(9, 1));

  const Bytes last = Peel(chain, round, 3, inner, 9).inner;
  Bytes right(9 * 32), wrong(9 * 32), nothing;
  PeelOnions(chain.keys[3], round, 4, 1, last, right, nothing, valid);
  PeelOnions(chain.keys[3], round, 3, 1, last, wrong, nothing, valid);
  EXPECT_EQ(valid, Bytes(9, 1));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(Hex(Item(right, 32, i)), Hex(Item(built.seeds, 32, 3 * i + 2)));
    EXPECT_NE(Hex(Item(right, 32, i)), Hex(Item(wrong, 32, i)));
  }
  // A submission is for party 1 alone.
  const Sent sent = Submit(chain, round, Draw(random, 32), built.onions);
  PeelOnions(chain.keys[0], round, 2, 3,
             Bytes(sent.submission.begin(), sent.submission.begin() + OnionBytes(3)),
             MutableBytes(seeds).first(32), MutableBytes(inner).first(OnionBytes(2)),
             std::span(valid).first(1));
  EXPECT_EQ(valid[0], 0);
}

// The last layer has no tag. Whatever a party before it writes there lives, with a seed that its
// writer knows only if it made the enc itself, and is dead only where the shared point is zero.
TEST(OnionTest, AnAlteredEncForTheLastPartyLivesWithASeedThatTheSenderDoesNotKnow) {
  TestRandom random(7);
  const Digest round = Filled(5);
  const size_t n = 12;
  const Chain chain = MakeChain(random, 3);
  const Onions built = Build(random, chain, round, n);
  Bytes last = Peel(chain, round, 2, built.onions, n).inner;
  last[0 * 32] ^= 1;          // another point
  last[1 * 32 + 31] ^= 0x80;  // the same point in another encoding
  random.Fill(MutableBytes(last).subspan(2 * 32, 32));
  PublicKey enc;
  std::copy_n(last.begin() + 3 * 32, 32, enc.begin());
  const PublicKey shifted = PlusOrderTwo(enc);  // another point with the same shared point
  std::ranges::copy(shifted, last.begin() + 3 * 32);
  std::fill_n(last.begin() + 4 * 32, 32, 0);  // the point at infinity
  const Peeled peeled = Peel(chain, round, 3, last, n);
  std::set<std::string> seeds;
  for (size_t i = 0; i < n; ++i) {
    const std::string seed = Hex(Item(peeled.seeds, 32, i));
    const std::string sent = Hex(Item(built.seeds, 32, 2 * i + 1));
    EXPECT_EQ(peeled.valid[i], i != 4) << i;
    if (i < 4) {
      EXPECT_NE(seed, sent) << i;
    } else {
      EXPECT_EQ(seed, i == 4 ? Hex(Bytes(32, 0)) : sent) << i;
    }
    seeds.insert(seed);
    seeds.insert(sent);
  }
  // No two of all are the same, but those of the untouched onions.
  EXPECT_EQ(seeds.size(), 2 * n - (n - 5));
}

// Party 2 exchanges the last layers of two onions. Each then has the other's last seed: no new one
// and no known one, so party 3 unmasks both with the wrong seeds, and neither answer is accepted.
TEST(OnionTest, SwappedLastLayersSwapTheirSeedsAndNothingElse) {
  TestRandom random(8);
  const Digest round = Filled(5);
  const Chain chain = MakeChain(random, 3);
  const Onions built = Build(random, chain, round, 3);
  Bytes last = Peel(chain, round, 2, built.onions, 3).inner;
  std::swap_ranges(last.begin(), last.begin() + 32, last.begin() + 32);
  const Peeled peeled = Peel(chain, round, 3, last, 3);
  EXPECT_EQ(peeled.valid, Bytes(3, 1));
  const size_t from[3] = {1, 0, 2};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Hex(Item(peeled.seeds, 32, i)), Hex(Item(built.seeds, 32, 2 * from[i] + 1)));
  }
  // A copy exports an equal seed, by which the party finds it.
  std::copy_n(last.begin(), 32, last.begin() + 64);
  const Peeled copied = Peel(chain, round, 3, last, 3);
  EXPECT_EQ(Hex(Item(copied.seeds, 32, 2)), Hex(Item(copied.seeds, 32, 0)));
}

// The middle layer is honest, what it seals is not: only the next party can tell.
TEST(OnionTest, AnInvalidInnerLayerIsFoundByTheNextParty) {
  TestRandom random(9);
  const Digest round = Filled(5);
  const Chain chain = MakeChain(random, 4);
  Bytes onion(OnionBytes(3)), seeds(32), secret = Draw(random, 32);
  const Bytes inner = Draw(random, OnionBytes(2));
  const auto layer = ReferenceHpke::Sender(Aead::kChaCha20Poly1305, InfoBytes(round, 2),
                                           chain.keys[1].public_key, secret);
  onion = ToBytes(layer->enc());
  Append(onion, layer->Seal(inner));
  const Peeled outer = Peel(chain, round, 2, onion, 1);
  EXPECT_EQ(outer.valid[0], 1);
  EXPECT_EQ(outer.inner, inner);
  const Peeled middle = Peel(chain, round, 3, outer.inner, 1);
  EXPECT_EQ(middle.valid[0], 0);
  EXPECT_EQ(middle.seeds, Bytes(32, 0));
  EXPECT_EQ(middle.inner, Bytes(32, 0));
}

TEST(OnionTest, OneBadByteKillsAWholeSubmission) {
  TestRandom random(10);
  const Digest round = Filled(5);
  const Chain chain = MakeChain(random, 3);
  const Bytes onions = Build(random, chain, round, 3).onions;
  const Bytes good = Submit(chain, round, Draw(random, 32), onions).submission;
  ASSERT_TRUE(Receive(chain, round, good).opened);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const Received received = Receive(chain, round, bad);
    ASSERT_FALSE(received.opened) << "bit " << bit;
    ASSERT_EQ(received.onions, Bytes(received.onions.size(), 0));
    ASSERT_EQ(received.seeds, Bytes(received.seeds.size(), 0));
  }
  // The same onions without the last one.
  EXPECT_FALSE(Receive(chain, round, Bytes(good.begin(), good.end() - OnionBytes(2))).opened);
}

TEST(OnionTest, ManySubmissionsAtOnceAreThoseOneByOne) {
  TestRandom random(11);
  const Digest round = Filled(5);
  const Chain chain = MakeChain(random, 3);
  // More than share a batch of the curve, of different lengths; some are bad.
  constexpr size_t kCount = 150;
  std::vector<Bytes> secrets, onions, submissions(kCount), seeds(kCount);
  std::vector<SubmissionToSeal> to_seal;
  for (size_t i = 0; i < kCount; ++i) {
    secrets.push_back(Draw(random, 32));
    const size_t n = 1 + i % 5;
    onions.push_back(Draw(random, n * OnionBytes(2)));
    submissions[i].resize(SubmissionBytes(3, n));
    seeds[i].resize(n * 32);
  }
  for (size_t i = 0; i < kCount; ++i) {
    to_seal.push_back({secrets[i], onions[i], submissions[i], seeds[i], 0});
  }
  SealSubmissions(chain.recipients[0], round, to_seal);
  for (size_t i = 0; i < kCount; ++i) {
    const Sent alone = Submit(chain, round, secrets[i], onions[i]);
    ASSERT_EQ(submissions[i], alone.submission) << i;
    ASSERT_EQ(seeds[i], alone.seeds) << i;
  }
  std::vector<Received> received(kCount);
  std::vector<SubmissionToOpen> to_open;
  for (size_t i = 0; i < kCount; ++i) {
    if (i % 7 == 0) submissions[i].back() ^= 1;
    if (i % 7 == 1) std::fill_n(submissions[i].begin(), 32, 0);  // of low order
    received[i].onions.assign(onions[i].size(), 1);
    received[i].seeds.assign(seeds[i].size(), 1);
    to_open.push_back({submissions[i], received[i].seeds, received[i].onions, false});
  }
  OpenSubmissions(chain.keys[0], round, to_open);
  for (size_t i = 0; i < kCount; ++i) {
    const bool good = i % 7 > 1;
    EXPECT_EQ(to_open[i].opened, good) << i;
    EXPECT_EQ(received[i].onions, good ? onions[i] : Bytes(onions[i].size(), 0)) << i;
    EXPECT_EQ(received[i].seeds, good ? seeds[i] : Bytes(seeds[i].size(), 0)) << i;
  }
}

TEST(OnionTest, ALargestSubmissionOpens) {
  TestRandom random(12);
  const Chain chain = MakeChain(random, 3);
  const size_t n = MaxSubmissionOnions(3);
  const Bytes onions = Draw(random, n * OnionBytes(2));
  const Sent sent = Submit(chain, Filled(1), Draw(random, 32), onions);
  const Received received = Receive(chain, Filled(1), sent.submission);
  EXPECT_TRUE(received.opened);
  EXPECT_EQ(received.onions, onions);
  EXPECT_EQ(received.seeds, sent.seeds);
}

// Runs a function on a stack of its own; which pieces of 16 bytes of `secrets` lie there
// afterwards.
size_t LeftOnStack(BytesView secrets, const std::function<void()>& function) {
  constexpr size_t kStack = 1 << 20, kPiece = 16;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, kStack),
                                                           &std::free);
  auto* const stack = static_cast<uint8_t*>(memory.get());
  std::fill_n(stack, kStack, uint8_t{0});
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kStack);
  const auto run = [](void* f) -> void* {
    (*static_cast<const std::function<void()>*>(f))();
    return nullptr;
  };
  SHOAL_CHECK(pthread_create(&thread, &attributes, run,
                             const_cast<std::function<void()>*>(&function)) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  std::set<std::string> pieces;
  for (size_t at = 0; at + kPiece <= secrets.size(); at += kPiece) {
    pieces.insert(ToString(secrets.subspan(at, kPiece)));
  }
  size_t left = 0;
  for (size_t at = 0; at + kPiece <= kStack; ++at) {
    if (stack[at] != 0) left += pieces.count(ToString({stack + at, kPiece}));
  }
  return left;
}

TEST(OnionTest, NothingOfABatchIsLeftOnTheStack) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep copies of their own";
  TestRandom random(29);
  constexpr size_t kOnions = 200, kLayers = 3;
  const Chain chain = MakeChain(random, kLayers + 1);
  Bytes seeds(kOnions * kLayers * 32), ephemeral = Draw(random, kOnions * kLayers * 32);
  Bytes onions(kOnions * OnionBytes(kLayers));
  const auto build = [&] { BuildOnions({}, 2, chain.behind_party_1(), ephemeral, seeds, onions); };
  build();
  EXPECT_EQ(LeftOnStack(seeds, build), 0u);
  EXPECT_EQ(LeftOnStack(ephemeral, build), 0u);
  EXPECT_EQ(LeftOnStack(onions, build), 0u);
  Bytes peeled(kOnions * 32), inner(kOnions * OnionBytes(kLayers - 1)), valid(kOnions), nothing;
  const auto peel = [&] {
    PeelOnions(chain.keys[1], {}, 2, kLayers, onions, peeled, inner, valid);
  };
  peel();
  EXPECT_EQ(valid, Bytes(kOnions, 1));
  EXPECT_EQ(LeftOnStack(peeled, peel), 0u);
  EXPECT_EQ(LeftOnStack(inner, peel), 0u);
  EXPECT_EQ(LeftOnStack(onions, peel), 0u);
  EXPECT_EQ(LeftOnStack(chain.keys[1].secret_key.view(), peel), 0u);
  Bytes encs = Draw(random, kOnions * 32);
  const auto last = [&] { PeelOnions(chain.keys[3], {}, 4, 1, encs, peeled, nothing, valid); };
  last();
  EXPECT_EQ(LeftOnStack(peeled, last), 0u);
  EXPECT_EQ(LeftOnStack(chain.keys[3].secret_key.view(), last), 0u);

  const Bytes secret = Draw(random, 32);
  Sent sent{Bytes(onions.size() + kSealBytes), Bytes(kOnions * 32)};
  const auto submit = [&] {
    const SubmissionToSeal item = {secret, onions, sent.submission, sent.seeds, 0};
    SealSubmissions(chain.recipients[0], {}, {&item, 1});
  };
  submit();
  EXPECT_EQ(LeftOnStack(secret, submit), 0u);
  EXPECT_EQ(LeftOnStack(sent.seeds, submit), 0u);
  EXPECT_EQ(LeftOnStack(onions, submit), 0u);
  Bytes received_seeds(kOnions * 32), received(onions.size());
  const auto receive = [&] {
    SubmissionToOpen item = {sent.submission, received_seeds, received, false};
    OpenSubmissions(chain.keys[0], {}, {&item, 1});
    SHOAL_CHECK(item.opened);
  };
  receive();
  EXPECT_EQ(LeftOnStack(received_seeds, receive), 0u);
  EXPECT_EQ(LeftOnStack(received, receive), 0u);
  EXPECT_EQ(LeftOnStack(chain.keys[0].secret_key.view(), receive), 0u);
  // The search finds what is there.
  const auto leave = [&] {
    volatile uint8_t copy[64];
    for (size_t i = 0; i < sizeof copy; ++i) copy[i] = seeds[i];
  };
  EXPECT_GT(LeftOnStack(seeds, leave), 0u);
}

}  // namespace
}  // namespace shoal::onion
