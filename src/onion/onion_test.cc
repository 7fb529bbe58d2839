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
#include "src/base/testing/test_random.h"

namespace shoal::onion {
namespace {

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

struct Chain {
  std::vector<KeyPair> keys;
  std::vector<Recipient> recipients;
};

Chain MakeChain(RandomSource& random, size_t parties) {
  Chain chain;
  for (size_t i = 0; i < parties; ++i) {
    chain.keys.push_back(KeyPairFromSecret(Draw(random, 32)));
    chain.recipients.push_back(Recipient::Create(chain.keys.back().public_key).value());
  }
  return chain;
}

TEST(OnionTest, EveryPartyPeelsItsLayer) {
  TestRandom random(1);
  const Digest round = Filled(7);
  for (size_t parties : {1, 2, 3, 5}) {
    for (size_t n : {0, 1, 7, 8, 9, 130, 300}) {
      const Chain chain = MakeChain(random, parties);
      const Bytes seeds = Draw(random, n * parties * 32);
      Bytes onions(n * OnionBytes(parties));
      BuildOnions(round, chain.recipients, seeds, Draw(random, n * parties * 32), onions);
      for (size_t party = 0; party < parties; ++party) {
        const size_t layers = parties - party;
        Bytes peeled(n * 32), inner(n * OnionBytes(layers - 1)), valid(n, 9);
        PeelOnions(chain.keys[party], round, layers, onions, peeled, inner, valid);
        ASSERT_EQ(valid, Bytes(n, 1));
        for (size_t i = 0; i < n; ++i) {
          ASSERT_EQ(Hex(BytesView(peeled).subspan(i * 32, 32)),
                    Hex(BytesView(seeds).subspan((i * parties + party) * 32, 32)))
              << parties << " parties, onion " << i << ", party " << party;
        }
        onions = inner;
      }
    }
  }
}

// Builds an onion with libsodium alone, as a client in another language would.
TEST(OnionTest, IsNestedSealedBoxesOfRoundSeedAndInnerLayer) {
  TestRandom random(2);
  const Digest round = Filled(9);
  const Chain chain = MakeChain(random, 2);
  const Bytes seeds = Draw(random, 64);
  Bytes onion(OnionBytes(2));
  BuildOnions(round, chain.recipients, seeds, Draw(random, 64), onion);
  ASSERT_EQ(onion.size(), 224u);

  Bytes outer(224 - 48), inner(112 - 48);
  ASSERT_EQ(crypto_box_seal_open(outer.data(), onion.data(), onion.size(),
                                 chain.keys[0].public_key.data(), chain.keys[0].secret_key.data()),
            0);
  EXPECT_EQ(Hex(BytesView(outer).first(32)), Hex(round));
  EXPECT_EQ(Hex(BytesView(outer).subspan(32, 32)), Hex(BytesView(seeds).first(32)));
  ASSERT_EQ(crypto_box_seal_open(inner.data(), outer.data() + 64, 112,
                                 chain.keys[1].public_key.data(), chain.keys[1].secret_key.data()),
            0);
  EXPECT_EQ(Hex(BytesView(inner).first(32)), Hex(round));
  EXPECT_EQ(Hex(BytesView(inner).subspan(32)), Hex(BytesView(seeds).subspan(32)));
}

TEST(OnionTest, TheSameInputsAreTheSameBytes) {
  TestRandom random(3);
  const Chain chain = MakeChain(random, 3);
  const Bytes seeds = Draw(random, 10 * 96), secrets = Draw(random, 10 * 96);
  Bytes a(10 * OnionBytes(3)), b(10 * OnionBytes(3), 0xee);
  BuildOnions(Filled(1), chain.recipients, seeds, secrets, a);
  BuildOnions(Filled(1), chain.recipients, seeds, secrets, b);
  EXPECT_EQ(a, b);
}

// Peels `onions` and expects that exactly onion `bad` is dead and leaves only zeros behind.
void ExpectOnlyDead(const Chain& chain, const Digest& round, const Bytes& onions, size_t n,
                    size_t bad) {
  Bytes seeds(n * 32, 1), inner(n * OnionBytes(1), 1), valid(n, 9);
  PeelOnions(chain.keys[0], round, 2, onions, seeds, inner, valid);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(valid[i], i == bad ? 0 : 1) << i;
    EXPECT_EQ(sodium_is_zero(seeds.data() + i * 32, 32), i == bad) << i;
    EXPECT_EQ(sodium_is_zero(inner.data() + i * OnionBytes(1), OnionBytes(1)), i == bad) << i;
  }
}

TEST(OnionTest, DeadOnionsLeaveZerosAndHarmNoOther) {
  TestRandom random(4);
  const Digest round = Filled(5);
  const size_t n = 20;
  const Chain chain = MakeChain(random, 2);
  Bytes good(n * OnionBytes(2));
  BuildOnions(round, chain.recipients, Draw(random, n * 64), Draw(random, n * 64), good);

  Bytes flipped = good;
  flipped[3 * OnionBytes(2) + 100] ^= 1;
  ExpectOnlyDead(chain, round, flipped, n, 3);

  // Opens, but names another round, as an onion replayed into the next round does.
  Bytes foreign = good;
  BuildOnions(Filled(6), chain.recipients, Draw(random, 64), Draw(random, 64),
              MutableBytes(foreign).subspan(4 * OnionBytes(2), OnionBytes(2)));
  ExpectOnlyDead(chain, round, foreign, n, 4);

  // For another party.
  const Chain other = MakeChain(random, 2);
  Bytes misdirected = good;
  BuildOnions(round, other.recipients, Draw(random, 64), Draw(random, 64),
              MutableBytes(misdirected).subspan(5 * OnionBytes(2), OnionBytes(2)));
  ExpectOnlyDead(chain, round, misdirected, n, 5);

  // Cut short: its last byte is lost and replaced by padding.
  Bytes truncated = good;
  truncated[7 * OnionBytes(2) - 1] ^= 0xff;
  ExpectOnlyDead(chain, round, truncated, n, 6);

  Bytes zeros = good;
  std::fill_n(zeros.begin() + 8 * OnionBytes(2), OnionBytes(2), 0);
  ExpectOnlyDead(chain, round, zeros, n, 8);
}

// The outer box is honest, the inner one is not: only the next party can tell.
TEST(OnionTest, AnInvalidInnerLayerIsFoundByTheNextParty) {
  TestRandom random(5);
  const Digest round = Filled(5);
  const Chain chain = MakeChain(random, 2);
  Bytes outer_message(64 + OnionBytes(1));
  random.Fill(outer_message);
  std::copy(round.begin(), round.end(), outer_message.begin());
  Bytes onion(OnionBytes(2));
  ASSERT_EQ(crypto_box_seal(onion.data(), outer_message.data(), outer_message.size(),
                            chain.keys[0].public_key.data()),
            0);
  Bytes seed(32), inner(OnionBytes(1)), valid(1);
  PeelOnions(chain.keys[0], round, 2, onion, seed, inner, valid);
  EXPECT_EQ(valid[0], 1);
  Bytes nothing;
  PeelOnions(chain.keys[1], round, 1, inner, seed, nothing, valid);
  EXPECT_EQ(valid[0], 0);
  EXPECT_EQ(seed, Bytes(32, 0));
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep copies of their own";
#endif
  TestRandom random(29);
  constexpr size_t kOnions = 200, kLayers = 2;
  const KeyPair first = KeyPairFromSecret(random.NewSeed().view());
  const KeyPair second = KeyPairFromSecret(random.NewSeed().view());
  const std::vector<Recipient> recipients = {*Recipient::Create(first.public_key),
                                             *Recipient::Create(second.public_key)};
  Bytes seeds(kOnions * kLayers * 32), ephemeral(kOnions * kLayers * 32);
  Bytes onions(kOnions * OnionBytes(kLayers));
  random.Fill(seeds);
  random.Fill(ephemeral);
  const auto build = [&] { BuildOnions({}, recipients, seeds, ephemeral, onions); };
  EXPECT_EQ(LeftOnStack(seeds, build), 0u);
  EXPECT_EQ(LeftOnStack(ephemeral, build), 0u);
  EXPECT_EQ(LeftOnStack(onions, build), 0u);
  Bytes opened(kOnions * 32), inner(kOnions * OnionBytes(kLayers - 1)), valid(kOnions);
  const auto peel = [&] { PeelOnions(first, {}, kLayers, onions, opened, inner, valid); };
  peel();
  EXPECT_EQ(LeftOnStack(opened, peel), 0u);
  EXPECT_EQ(LeftOnStack(inner, peel), 0u);
  EXPECT_EQ(LeftOnStack(onions, peel), 0u);
  // The search finds what is there.
  const auto leave = [&] {
    volatile uint8_t copy[64];
    for (size_t i = 0; i < sizeof copy; ++i) copy[i] = seeds[i];
  };
  EXPECT_GT(LeftOnStack(seeds, leave), 0u);
}

}  // namespace
}  // namespace shoal::onion
