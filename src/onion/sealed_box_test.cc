#include "src/onion/sealed_box.h"

#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/onion/instruction_set.h"

namespace shoal::onion {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

Bytes Draw(RandomSource& random, size_t n) {
  Bytes bytes(n);
  random.Fill(bytes);
  return bytes;
}

// crypto_box_seal with the ephemeral secret given: the definition in libsodium's documentation,
// out of libsodium's own parts.
bool SodiumSeal(const PublicKey& recipient, const uint8_t* secret, BytesView message,
                uint8_t* box) {
  uint8_t nonce[crypto_box_NONCEBYTES], keys[64];
  crypto_scalarmult_base(keys, secret);
  std::copy(recipient.begin(), recipient.end(), keys + 32);
  crypto_generichash(nonce, sizeof nonce, keys, 64, nullptr, 0);
  std::copy(keys, keys + 32, box);
  return crypto_box_easy(box + 32, message.data(), message.size(), nonce, recipient.data(),
                         secret) == 0;
}

TEST(SealedBoxTest, SealIsByteForByteLibsodium) {
  TestRandom random(1);
  for (size_t bytes : {0, 1, 31, 32, 33, 63, 64, 80, 95, 96, 97, 112, 160, 224, 400, 1000}) {
    for (size_t count : {1, 3, 8, 17, 129}) {
      const KeyPair key = KeyPairFromSecret(Draw(random, 32));
      SHOAL_ASSERT_OK_AND_ASSIGN(const Recipient recipient, Recipient::Create(key.public_key));
      const Bytes secrets = Draw(random, count * 32), messages = Draw(random, count * bytes);
      Bytes boxes(count * (bytes + kSealBytes)), expected(bytes + kSealBytes);
      SealBatch(recipient, {secrets.data(), 32, 32}, {messages.data(), bytes, bytes},
                {boxes.data(), bytes + kSealBytes, bytes + kSealBytes}, count);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(SodiumSeal(key.public_key, secrets.data() + i * 32,
                               BytesView(messages).subspan(i * bytes, bytes), expected.data()));
        ASSERT_EQ(Hex(BytesView(boxes).subspan(i * expected.size(), expected.size())),
                  Hex(expected))
            << bytes << " bytes, box " << i << " of " << count;
        Bytes opened(bytes);
        ASSERT_EQ(crypto_box_seal_open(opened.data(), boxes.data() + i * expected.size(),
                                       expected.size(), key.public_key.data(),
                                       key.secret_key.data()),
                  0);
      }
    }
  }
}

TEST(SealedBoxTest, OpensWhatLibsodiumSeals) {
  TestRandom random(2);
  for (size_t bytes : {0, 1, 32, 80, 224, 400}) {
    const size_t count = 21, box_bytes = bytes + kSealBytes;
    const KeyPair key = KeyPairFromSecret(Draw(random, 32));
    const Bytes messages = Draw(random, count * bytes);
    Bytes boxes(count * box_bytes), opened(count * bytes), ok(count, 7);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(crypto_box_seal(boxes.data() + i * box_bytes, messages.data() + i * bytes, bytes,
                                key.public_key.data()),
                0);
    }
    OpenBatch(key, {boxes.data(), box_bytes, box_bytes}, {opened.data(), bytes, bytes}, ok);
    EXPECT_EQ(ok, Bytes(count, 1));
    EXPECT_EQ(opened, messages);
  }
}

TEST(SealedBoxTest, SealsInPlaceAndWithStrides) {
  TestRandom random(3);
  const size_t count = 37, bytes = 80, stride = 200;
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Recipient recipient = Recipient::Create(key.public_key).value();
  const Bytes secrets = Draw(random, count * 64);
  Bytes records = Draw(random, count * stride);
  const Bytes before = records;
  SealBatch(recipient, {secrets.data() + 5, 64, 32}, {records.data() + 10 + kSealBytes, stride, bytes},
            {records.data() + 10, stride, bytes + kSealBytes}, count);
  for (size_t i = 0; i < count; ++i) {
    Bytes expected(before.begin() + i * stride, before.begin() + (i + 1) * stride);
    ASSERT_TRUE(SodiumSeal(key.public_key, secrets.data() + 5 + i * 64,
                           BytesView(before).subspan(i * stride + 10 + kSealBytes, bytes),
                           expected.data() + 10));
    ASSERT_EQ(Hex(BytesView(records).subspan(i * stride, stride)), Hex(expected)) << i;
  }
  Bytes opened(count * 90, 3), ok(count);
  OpenBatch(key, {records.data() + 10, stride, bytes + kSealBytes}, {opened.data(), 90, bytes}, ok);
  EXPECT_EQ(ok, Bytes(count, 1));
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(Hex(BytesView(opened).subspan(i * 90, bytes)),
              Hex(BytesView(before).subspan(i * stride + 10 + kSealBytes, bytes)));
    EXPECT_EQ(Hex(BytesView(opened).subspan(i * 90 + bytes, 10)), Hex(Bytes(10, 3)));
  }
}

TEST(SealedBoxTest, RefusesEveryFlippedBitAndZeroesTheMessage) {
  TestRandom random(4);
  const size_t bytes = 20, box_bytes = bytes + kSealBytes;
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Bytes message = Draw(random, bytes);
  Bytes box(box_bytes);
  ASSERT_EQ(crypto_box_seal(box.data(), message.data(), bytes, key.public_key.data()), 0);
  // All in one batch: bit b of box b is flipped, the last is untouched.
  const size_t count = box_bytes * 8 + 1;
  Bytes boxes;
  for (size_t i = 0; i < count; ++i) {
    Bytes copy = box;
    if (i + 1 < count) copy[i / 8] ^= 1 << i % 8;
    Append(boxes, copy);
  }
  Bytes opened(count * bytes, 5), ok(count, 5);
  OpenBatch(key, {boxes.data(), box_bytes, box_bytes}, {opened.data(), bytes, bytes}, ok);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(ok[i], i + 1 == count) << "bit " << i;
    EXPECT_EQ(Hex(BytesView(opened).subspan(i * bytes, bytes)),
              Hex(i + 1 == count ? message : Bytes(bytes, 0)));
  }
}

TEST(SealedBoxTest, RefusesShortBoxes) {
  TestRandom random(5);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Bytes boxes(3 * kSealBytes, 1);
  for (size_t bytes : {0, 1, 32, 47}) {
    Bytes ok(3, 1);
    OpenBatch(key, {boxes.data(), bytes, bytes}, {nullptr, 0, 0}, ok);
    EXPECT_EQ(ok, Bytes(3, 0)) << bytes;
  }
}

TEST(SealedBoxTest, RefusesRecipientsThatLibsodiumRefuses) {
  EXPECT_THAT(Recipient::Create(PublicKey{}),
              StatusIs(absl::StatusCode::kInvalidArgument, "low order"));
}

TEST(KeyPairTest, IsLibsodiums) {
  TestRandom random(6);
  const Bytes secret = Draw(random, 32);
  PublicKey expected;
  crypto_scalarmult_base(expected.data(), secret.data());
  EXPECT_EQ(KeyPairFromSecret(secret).public_key, expected);
}

}  // namespace
}  // namespace shoal::onion
