#include "src/onion/sealed_box.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/instruction_set.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/onion/testing/edge_points.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::EdgePoints;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

Bytes Draw(RandomSource& random, size_t n) {
  Bytes bytes(n);
  random.Fill(bytes);
  return bytes;
}

// crypto_box_seal with a given ephemeral secret, built from libsodium's own parts by the definition
// in its documentation.
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

// Every instruction set that this machine has, and libsodium's own path.
class SealedBoxTest : public ::testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    before_ = ActiveInstructionSet();
    if (!IsSupported(GetParam())) GTEST_SKIP() << "not on this machine";
    UseInstructionSet(GetParam());
  }
  void TearDown() override { UseInstructionSet(before_); }

 private:
  InstructionSet before_;
};

TEST_P(SealedBoxTest, SealIsByteForByteLibsodium) {
  TestRandom random(1);
  for (size_t bytes : {0, 1, 31, 32, 33, 63, 64, 80, 95, 96, 97, 112, 160, 224, 400, 1000}) {
    for (size_t count : {1, 9, bytes == 80 ? 300 : 17}) {
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
        ASSERT_EQ(
            crypto_box_seal_open(opened.data(), boxes.data() + i * expected.size(), expected.size(),
                                 key.public_key.data(), key.secret_key.data()),
            0);
      }
    }
  }
}

TEST_P(SealedBoxTest, OpensWhatLibsodiumSeals) {
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

TEST_P(SealedBoxTest, SealsInPlaceAndWithStrides) {
  TestRandom random(3);
  const size_t count = 37, bytes = 80, stride = 200;
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Recipient recipient = Recipient::Create(key.public_key).value();
  const Bytes secrets = Draw(random, count * 64);
  Bytes records = Draw(random, count * stride);
  const Bytes before = records;
  SealBatch(recipient, {secrets.data() + 5, 64, 32},
            {records.data() + 10 + kSealBytes, stride, bytes},
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

TEST_P(SealedBoxTest, RefusesEveryFlippedBitAndZeroesTheMessage) {
  TestRandom random(4);
  const size_t bytes = 20, box_bytes = bytes + kSealBytes;
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Bytes message = Draw(random, bytes);
  Bytes box(box_bytes);
  ASSERT_EQ(crypto_box_seal(box.data(), message.data(), bytes, key.public_key.data()), 0);
  // All boxes are in one batch: in box b bit b is flipped, and the last box is untouched.
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

TEST_P(SealedBoxTest, RefusesShortBoxes) {
  TestRandom random(5);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Bytes boxes(3 * kSealBytes, 1);
  for (size_t bytes : {0, 1, 32, 47}) {
    Bytes ok(3, 1);
    OpenBatch(key, {boxes.data(), bytes, bytes}, {nullptr, 0, 0}, ok);
    EXPECT_EQ(ok, Bytes(3, 0)) << bytes;
  }
}

TEST_P(SealedBoxTest, SealsForTheRecipientsThatLibsodiumSealsForAndNoOther) {
  TestRandom random(6);
  size_t refused = 0;
  for (const PublicKey& point : EdgePoints()) {
    const Bytes secrets = Draw(random, 3 * 32), messages = Draw(random, 3 * 20);
    Bytes expected(20 + kSealBytes), boxes(3 * expected.size());
    const absl::StatusOr<Recipient> recipient = Recipient::Create(point);
    if (!SodiumSeal(point, secrets.data(), BytesView(messages).first(20), expected.data())) {
      ++refused;
      EXPECT_THAT(recipient, StatusIs(absl::StatusCode::kInvalidArgument, "low order"))
          << Hex(point);
      continue;
    }
    SHOAL_ASSERT_OK(recipient);
    SealBatch(*recipient, {secrets.data(), 32, 32}, {messages.data(), 20, 20},
              {boxes.data(), expected.size(), expected.size()}, 3);
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(SodiumSeal(point, secrets.data() + i * 32,
                             BytesView(messages).subspan(i * 20, 20), expected.data()));
      EXPECT_EQ(Hex(BytesView(boxes).subspan(i * expected.size(), expected.size())), Hex(expected))
          << Hex(point);
    }
  }
  // 0, 1, p - 1, p, p + 1 and two points of order 8, each with bit 255 clear and set.
  EXPECT_EQ(refused, 14u);
}

// Boxes whose ephemeral key is an edge point, with a tag that is right for the shared key that
// libsodium computes (or would compute). OpenBatch must give libsodium's verdict.
TEST_P(SealedBoxTest, OpensBoxesWithEdgePointsAsLibsodiumDoes) {
  TestRandom random(7);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const size_t bytes = 24, box_bytes = bytes + kSealBytes;
  const Bytes message = Draw(random, bytes);
  const std::vector<PublicKey> points = EdgePoints();
  Bytes boxes;
  for (const PublicKey& point : points) {
    PublicKey shared{};
    if (crypto_scalarmult(shared.data(), key.secret_key.data(), point.data()) != 0) shared.fill(0);
    uint8_t nonce[24], keys[64], box_key[32];
    const uint8_t zeros[16] = {};
    std::copy(point.begin(), point.end(), keys);
    std::copy(key.public_key.begin(), key.public_key.end(), keys + 32);
    crypto_generichash(nonce, sizeof nonce, keys, sizeof keys, nullptr, 0);
    crypto_core_hsalsa20(box_key, zeros, shared.data(), nullptr);
    Bytes box(box_bytes);
    std::copy(point.begin(), point.end(), box.begin());
    crypto_secretbox_easy(box.data() + 32, message.data(), bytes, nonce, box_key);
    Append(boxes, box);
  }
  const size_t n = points.size();
  Bytes opened(n * bytes), ok(n), expected(bytes);
  OpenBatch(key, {boxes.data(), box_bytes, box_bytes}, {opened.data(), bytes, bytes}, ok);
  size_t refused = 0;
  for (size_t i = 0; i < n; ++i) {
    const bool sodium_opens =
        crypto_box_seal_open(expected.data(), boxes.data() + i * box_bytes, box_bytes,
                             key.public_key.data(), key.secret_key.data()) == 0;
    EXPECT_EQ(ok[i] == 1, sodium_opens) << Hex(points[i]);
    EXPECT_EQ(Hex(BytesView(opened).subspan(i * bytes, bytes)),
              Hex(sodium_opens ? message : Bytes(bytes, 0)));
    refused += !sodium_opens;
  }
  EXPECT_EQ(refused, 14u);
}

// Deterministic fuzzing: boxes are mutated at random, and each verdict and message is compared with
// libsodium's.
TEST_P(SealedBoxTest, AgreesWithLibsodiumOnMutatedBoxes) {
  TestRandom random(8);
  const std::vector<PublicKey> edges = EdgePoints();
  for (int trial = 0; trial < 12; ++trial) {
    const KeyPair key = KeyPairFromSecret(Draw(random, 32));
    const size_t bytes = random.Below(200), box_bytes = bytes + kSealBytes, n = 100;
    Bytes boxes(n * box_bytes);
    const Bytes message = Draw(random, bytes);
    for (size_t i = 0; i < n; ++i) {
      uint8_t* box = boxes.data() + i * box_bytes;
      ASSERT_EQ(crypto_box_seal(box, message.data(), bytes, key.public_key.data()), 0);
      const PublicKey& edge = edges[random.Below(edges.size())];
      switch (random.Below(5)) {
        case 0:
          break;
        case 1:
          box[random.Below(box_bytes)] ^= static_cast<uint8_t>(1 << random.Below(8));
          break;
        case 2:
          random.Fill({box, 1 + random.Below(box_bytes)});
          break;
        case 3:
          std::copy(edge.begin(), edge.end(), box);
          break;
        case 4:
          box[31] ^= 0x80;  // the same point, but another nonce
          break;
      }
    }
    Bytes opened(n * bytes, 1), ok(n), expected(bytes);
    OpenBatch(key, {boxes.data(), box_bytes, box_bytes}, {opened.data(), bytes, bytes}, ok);
    for (size_t i = 0; i < n; ++i) {
      const bool sodium_opens =
          crypto_box_seal_open(expected.data(), boxes.data() + i * box_bytes, box_bytes,
                               key.public_key.data(), key.secret_key.data()) == 0;
      ASSERT_EQ(ok[i] == 1, sodium_opens);
      ASSERT_EQ(Hex(BytesView(opened).subspan(i * bytes, bytes)),
                Hex(sodium_opens ? expected : Bytes(bytes, 0)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, SealedBoxTest, ::testing::ValuesIn(kAllInstructionSets),
                         [](const auto& instance) {
                           return std::to_string(static_cast<int>(instance.param));
                         });

TEST(RecipientTest, KeepsItsInstructionSet) {
  const InstructionSet before = ActiveInstructionSet();
  TestRandom random(9);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Bytes secret = Draw(random, 32);
  for (InstructionSet created : kAllInstructionSets) {
    for (InstructionSet used : kAllInstructionSets) {
      if (!IsSupported(created) || !IsSupported(used)) continue;
      UseInstructionSet(created);
      const Recipient recipient = Recipient::Create(key.public_key).value();
      UseInstructionSet(used);
      Bytes box(kSealBytes), expected(kSealBytes);
      SealBatch(recipient, {secret.data(), 32, 32}, {nullptr, 0, 0},
                {box.data(), kSealBytes, kSealBytes}, 1);
      ASSERT_TRUE(SodiumSeal(key.public_key, secret.data(), {}, expected.data()));
      EXPECT_EQ(box, expected);
    }
  }
  UseInstructionSet(before);
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
