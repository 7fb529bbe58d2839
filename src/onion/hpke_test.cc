// HPKE in batches against RFC 9180's vectors and against testing/reference_hpke.h, for every
// instruction set that this machine has and for libsodium's path.
#include "src/onion/hpke.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/instruction_set.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/onion/testing/edge_points.h"
#include "src/onion/testing/reference_hpke.h"
#include "src/onion/testing/rfc9180_vectors.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::EdgePoints;
using ::shoal::onion::testing::kRfc9180Vectors;
using ::shoal::onion::testing::PlusOrderTwo;
using ::shoal::onion::testing::ReferenceHpke;
using ::shoal::onion::testing::Rfc9180Vector;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

constexpr Aead kAeads[] = {Aead::kChaCha20Poly1305, Aead::kExportOnly};
// All points of order 1, 2, 4 and 8 in all encodings: 0, 1, p - 1, p, p + 1 and two of order 8,
// each with bit 255 clear and set.
constexpr size_t kLowOrderPoints = 14;

Bytes Draw(RandomSource& random, size_t n) {
  Bytes bytes(n);
  random.Fill(bytes);
  return bytes;
}

Bytes FromHex(const std::string& hex) {
  if (hex.empty()) return {};
  Bytes bytes(hex.size() / 2);
  size_t length = 0;
  EXPECT_EQ(
      sodium_hex2bin(bytes.data(), bytes.size(), hex.data(), hex.size(), nullptr, &length, nullptr),
      0);
  EXPECT_EQ(length, bytes.size());
  return bytes;
}

// Item i of an array of items of `bytes` bytes.
BytesView Item(const Bytes& items, size_t bytes, size_t i) {
  return BytesView(items).subspan(i * bytes, bytes);
}

Items In(const Bytes& items, size_t bytes) { return {items.data(), bytes, bytes}; }
MutableItems Out(Bytes& items, size_t bytes) { return {items.data(), bytes, bytes}; }

// Every instruction set that this machine has, and libsodium's own path.
class HpkeTest : public ::testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    before_ = ActiveInstructionSet();
    if (!IsSupported(GetParam())) GTEST_SKIP() << "not on this machine";
    UseInstructionSet(GetParam());
  }
  void TearDown() override { UseInstructionSet(before_); }

  // One secret exported by the recipient; nothing where it is dead.
  static std::optional<Bytes> Decapsulated(const KeyPair& key, const Info& info,
                                           absl::string_view context, BytesView enc) {
    Bytes exported(32), alive(1);
    DecapsulateBatch(key, info, context, {enc.data(), 32, 32}, Out(exported, 32), alive);
    if (alive[0] == 1) return exported;
    EXPECT_EQ(exported, Bytes(32, 0));
    return {};
  }
  static std::optional<Bytes> Opened(const KeyPair& key, const Info& info, BytesView box) {
    Bytes message(box.size() - kSealBytes), exported(32), opened(1);
    OpenBatch(key, info, "", {box.data(), box.size(), box.size()}, Out(message, message.size()),
              Out(exported, 32), opened);
    if (opened[0] == 1) return message;
    return {};
  }

 private:
  InstructionSet before_;
};

TEST_P(HpkeTest, HasTheValuesOfRfc9180) {
  for (const Rfc9180Vector& vector : kRfc9180Vectors) {
    const Bytes info_bytes = FromHex(vector.info), ephemeral = FromHex(vector.ephemeral_secret);
    const KeyPair key = KeyPairFromSecret(FromHex(vector.recipient_secret));
    EXPECT_EQ(Hex(key.public_key), vector.recipient_public);
    const Recipient recipient = Recipient::Create(key.public_key).value();
    const Info info(vector.aead, info_bytes);
    EXPECT_EQ(Hex(info.key_schedule_context()), vector.key_schedule_context);
    const ReferenceHpke reference =
        ReferenceHpke::Sender(vector.aead, info_bytes, key.public_key, ephemeral).value();
    EXPECT_EQ(Hex(reference.shared_secret()), vector.shared_secret);
    EXPECT_EQ(Hex(reference.exporter_secret()), vector.exporter_secret);

    for (const auto& [context, value] : vector.exports) {
      const std::string exporter_context = ToString(FromHex(context));
      Bytes enc(32), exported(32), alive(1);
      ExportBatch(recipient, info, exporter_context, In(ephemeral, 32), Out(enc, 32),
                  Out(exported, 32), 1);
      EXPECT_EQ(Hex(enc), vector.enc);
      EXPECT_EQ(Hex(exported), value);
      EXPECT_EQ(Hex(Decapsulated(key, info, exporter_context, enc).value()), value);
    }
    if (vector.aead == Aead::kExportOnly) continue;

    Bytes enc(32), alive(1);
    Context sender[1], receiver[1];
    SenderContexts(recipient, info, In(ephemeral, 32), Out(enc, 32), sender);
    EXPECT_EQ(Hex(enc), vector.enc);
    RecipientContexts(key, info, In(enc, 32), receiver, alive);
    EXPECT_EQ(alive[0], 1);
    for (const Context* context : {&sender[0], &receiver[0]}) {
      EXPECT_EQ(Hex(context->key.view()), vector.key);
      EXPECT_EQ(Hex(context->nonce.view()), vector.base_nonce);
      EXPECT_EQ(Hex(context->exporter_secret.view()), vector.exporter_secret);
    }
    // The vector has an aad, and ours is always empty: libsodium seals with our key and nonce.
    const Bytes aad = FromHex(vector.aad), plaintext = FromHex(vector.plaintext);
    EXPECT_EQ(Hex(reference.Seal(plaintext, aad)), vector.ciphertext);
    Bytes sealed(plaintext.size() + kTagBytes);
    crypto_aead_chacha20poly1305_ietf_encrypt(sealed.data(), nullptr, plaintext.data(),
                                              plaintext.size(), aad.data(), aad.size(), nullptr,
                                              sender[0].nonce.data(), sender[0].key.data());
    EXPECT_EQ(Hex(sealed), vector.ciphertext);
  }
}

TEST_P(HpkeTest, ExportsAsTheReferenceInBatchesOfEverySize) {
  TestRandom random(1);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Recipient recipient = Recipient::Create(key.public_key).value();
  const Bytes info_bytes = Draw(random, 50);
  std::vector<size_t> counts = {0, 1, 129};
  if (GetParam() != InstructionSet::kPortable) {
    for (size_t n = 2; n <= 34; ++n) counts.push_back(n);
    counts.insert(counts.end(), {127, 128});
  }
  for (Aead aead : kAeads) {
    const Info info(aead, info_bytes);
    for (size_t n : counts) {
      const Bytes secrets = Draw(random, n * 32);
      Bytes encs(n * 32), sent(n * 32), again(n * 32), received(n * 32), alive(n, 7);
      ExportBatch(recipient, info, "seed", In(secrets, 32), Out(encs, 32), Out(sent, 32), n);
      ExportBatch(recipient, info, "seed", In(secrets, 32), {nullptr, 0, 32}, Out(again, 32), n);
      DecapsulateBatch(key, info, "seed", In(encs, 32), Out(received, 32), alive);
      EXPECT_EQ(alive, Bytes(n, 1));
      EXPECT_EQ(sent, received);
      EXPECT_EQ(sent, again);
      for (size_t i = 0; i < n; ++i) {
        const ReferenceHpke reference =
            ReferenceHpke::Sender(aead, info_bytes, key.public_key, Item(secrets, 32, i)).value();
        ASSERT_EQ(Hex(Item(encs, 32, i)), Hex(reference.enc()));
        ASSERT_EQ(Hex(Item(sent, 32, i)), Hex(reference.Export(AsBytes("seed"))))
            << "item " << i << " of " << n;
      }
    }
  }
}

TEST_P(HpkeTest, SealsAsTheReference) {
  TestRandom random(2);
  for (size_t bytes :
       {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 96, 112, 128, 129, 400, 1000}) {
    for (size_t n : {1, 9, bytes == 80 ? 300 : 17}) {
      const size_t box_bytes = bytes + kSealBytes;
      const KeyPair key = KeyPairFromSecret(Draw(random, 32));
      const Recipient recipient = Recipient::Create(key.public_key).value();
      const Bytes info_bytes = Draw(random, random.Below(100));
      const Info info(Aead::kChaCha20Poly1305, info_bytes);
      const Bytes secrets = Draw(random, n * 32), messages = Draw(random, n * bytes);
      Bytes boxes(n * box_bytes), silent(n * box_bytes), exports(n * 32), received(n * 32);
      Bytes opened(n * bytes), ok(n, 7);
      SealBatch(recipient, info, "x", In(secrets, 32), In(messages, bytes), Out(boxes, box_bytes),
                Out(exports, 32), n);
      SealBatch(recipient, info, "x", In(secrets, 32), In(messages, bytes), Out(silent, box_bytes),
                {nullptr, 0, 0}, n);
      EXPECT_EQ(boxes, silent);
      OpenBatch(key, info, "x", In(boxes, box_bytes), Out(opened, bytes), Out(received, 32), ok);
      EXPECT_EQ(ok, Bytes(n, 1));
      EXPECT_EQ(opened, messages);
      EXPECT_EQ(received, exports);
      for (size_t i = 0; i < n; ++i) {
        const ReferenceHpke reference = ReferenceHpke::Sender(Aead::kChaCha20Poly1305, info_bytes,
                                                              key.public_key, Item(secrets, 32, i))
                                            .value();
        Bytes expected = ToBytes(reference.enc());
        Append(expected, reference.Seal(Item(messages, bytes, i)));
        ASSERT_EQ(Hex(Item(boxes, box_bytes, i)), Hex(expected))
            << bytes << " bytes, box " << i << " of " << n;
        ASSERT_EQ(Hex(Item(exports, 32, i)), Hex(reference.Export(AsBytes("x"))));
      }
    }
  }
}

TEST_P(HpkeTest, SealsInPlaceAndWithStrides) {
  TestRandom random(3);
  const size_t n = 37, bytes = 80, stride = 200;
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Recipient recipient = Recipient::Create(key.public_key).value();
  const Info info(Aead::kChaCha20Poly1305, {});
  const Bytes secrets = Draw(random, n * 64);
  Bytes records = Draw(random, n * stride), exports(n * 50, 3);
  const Bytes before = records;
  SealBatch(recipient, info, "", {secrets.data() + 5, 64, 32},
            {records.data() + 10 + kEncBytes, stride, bytes},
            {records.data() + 10, stride, bytes + kSealBytes}, {exports.data() + 1, 50, 32}, n);
  for (size_t i = 0; i < n; ++i) {
    Bytes expected = ToBytes(Item(before, stride, i));
    const ReferenceHpke reference =
        ReferenceHpke::Sender(Aead::kChaCha20Poly1305, {}, key.public_key,
                              BytesView(secrets).subspan(5 + i * 64, 32))
            .value();
    const Bytes sealed = reference.Seal(Item(before, stride, i).subspan(10 + kEncBytes, bytes));
    std::copy(reference.enc().begin(), reference.enc().end(), expected.begin() + 10);
    std::copy(sealed.begin(), sealed.end(), expected.begin() + 10 + kEncBytes);
    ASSERT_EQ(Hex(Item(records, stride, i)), Hex(expected)) << i;
    Bytes exported(50, 3);
    const Bytes value = reference.Export({});
    std::copy(value.begin(), value.end(), exported.begin() + 1);
    ASSERT_EQ(Hex(Item(exports, 50, i)), Hex(exported));
  }
  Bytes opened(n * 90, 3), ok(n), received(n * 50, 3);
  OpenBatch(key, info, "", {records.data() + 10, stride, bytes + kSealBytes},
            {opened.data(), 90, bytes}, {received.data() + 1, 50, 32}, ok);
  EXPECT_EQ(ok, Bytes(n, 1));
  EXPECT_EQ(received, exports);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(Hex(Item(opened, 90, i).first(bytes)),
              Hex(Item(before, stride, i).subspan(10 + kEncBytes, bytes)));
    EXPECT_EQ(Hex(Item(opened, 90, i).subspan(bytes)), Hex(Bytes(10, 3)));
  }
}

TEST_P(HpkeTest, EveryFlippedBitOfABoxIsRefusedAndLeavesZeros) {
  TestRandom random(4);
  const size_t bytes = 20, box_bytes = bytes + kSealBytes;
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Info info(Aead::kChaCha20Poly1305, AsBytes("info"));
  const Bytes message = Draw(random, bytes), secret = Draw(random, 32);
  const ReferenceHpke reference =
      ReferenceHpke::Sender(Aead::kChaCha20Poly1305, AsBytes("info"), key.public_key, secret)
          .value();
  Bytes box = ToBytes(reference.enc());
  Append(box, reference.Seal(message));
  // All boxes are in one batch: in box b bit b is flipped, and the last box is untouched.
  const size_t n = box_bytes * 8 + 1;
  Bytes boxes;
  for (size_t i = 0; i < n; ++i) {
    Bytes copy = box;
    if (i + 1 < n) copy[i / 8] ^= static_cast<uint8_t>(1 << i % 8);
    Append(boxes, copy);
  }
  Bytes opened(n * bytes, 5), exports(n * 32, 5), ok(n, 5);
  OpenBatch(key, info, "c", In(boxes, box_bytes), Out(opened, bytes), Out(exports, 32), ok);
  for (size_t i = 0; i < n; ++i) {
    const bool good = i + 1 == n;
    EXPECT_EQ(ok[i], good) << "bit " << i;
    EXPECT_EQ(Hex(Item(opened, bytes, i)), Hex(good ? message : Bytes(bytes, 0)));
    EXPECT_EQ(Hex(Item(exports, 32, i)), Hex(good ? reference.Export(AsBytes("c")) : Bytes(32, 0)));
  }
}

// A flipped bit of an enc that seals nothing is noticed by nobody: the position lives, and has
// another seed, which its sender does not know.
TEST_P(HpkeTest, EveryFlippedBitOfAnEncAloneGivesAnotherSeed) {
  TestRandom random(5);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Info info(Aead::kExportOnly, AsBytes("info"));
  const KeyPair ephemeral = KeyPairFromSecret(Draw(random, 32));
  Bytes encs;
  for (size_t i = 0; i <= 256; ++i) {
    Bytes copy = ToBytes(ephemeral.public_key);
    if (i < 256) copy[i / 8] ^= static_cast<uint8_t>(1 << i % 8);
    Append(encs, copy);
  }
  Bytes exports(257 * 32), alive(257);
  DecapsulateBatch(key, info, "c", In(encs, 32), Out(exports, 32), alive);
  EXPECT_EQ(alive, Bytes(257, 1));
  std::set<std::string> seeds;
  for (size_t i = 0; i <= 256; ++i) seeds.insert(ToString(Item(exports, 32, i)));
  EXPECT_EQ(seeds.size(), 257u);
}

// kem_context takes enc exactly as it was received. So the same shared point in another encoding,
// or from another point of the curve, gives an independent secret: nobody can copy a seed by
// writing its enc in another way.
TEST_P(HpkeTest, EncsOfTheSameSharedPointExportDifferentSeeds) {
  TestRandom random(6);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  struct Variant {
    const char* name;
    PublicKey enc, other;
  };
  std::vector<Variant> variants;
  const PublicKey enc = KeyPairFromSecret(Draw(random, 32)).public_key;
  variants.push_back({"high bit", enc, enc});
  variants.back().other[31] |= 0x80;
  variants.push_back({"added point of order two", enc, PlusOrderTwo(enc)});
  variants.push_back({"both", enc, PlusOrderTwo(enc)});
  variants.back().other[31] |= 0x80;
  // u + p: only u below 19 have a second encoding in 255 bits. u = 9 is the base point.
  for (uint8_t u = 2; u < 19; ++u) {
    PublicKey small{u}, not_reduced;
    not_reduced.fill(0xff);
    not_reduced[0] = static_cast<uint8_t>(0xed + u);
    not_reduced[31] = 0x7f;
    variants.push_back({"not reduced", small, not_reduced});
  }
  for (const Variant& variant : variants) {
    // The shared points are the same indeed.
    PublicKey a, b;
    ASSERT_EQ(crypto_scalarmult(a.data(), key.secret_key.data(), variant.enc.data()), 0);
    ASSERT_EQ(crypto_scalarmult(b.data(), key.secret_key.data(), variant.other.data()), 0);
    ASSERT_EQ(Hex(a), Hex(b)) << variant.name;
    ASSERT_NE(Hex(variant.enc), Hex(variant.other));
    for (Aead aead : kAeads) {
      const Info info(aead, AsBytes("i"));
      const Bytes seed = Decapsulated(key, info, "seed", variant.enc).value();
      const Bytes other = Decapsulated(key, info, "seed", variant.other).value();
      EXPECT_NE(seed, other) << variant.name;
      EXPECT_EQ(
          other,
          ReferenceHpke::Receiver(aead, AsBytes("i"), key, variant.other)->Export(AsBytes("seed")));
    }
    // A sealed message does not open under the other enc.
    const ReferenceHpke reference =
        ReferenceHpke::Receiver(Aead::kChaCha20Poly1305, AsBytes("i"), key, variant.enc).value();
    Bytes box = ToBytes(variant.enc);
    Append(box, reference.Seal(AsBytes("message")));
    const Info info(Aead::kChaCha20Poly1305, AsBytes("i"));
    EXPECT_TRUE(Opened(key, info, box).has_value());
    std::copy(variant.other.begin(), variant.other.end(), box.begin());
    EXPECT_FALSE(Opened(key, info, box).has_value()) << variant.name;
  }
}

TEST_P(HpkeTest, InfoSuiteAndExporterContextGiveDifferentSeeds) {
  TestRandom random(7);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const PublicKey enc = KeyPairFromSecret(Draw(random, 32)).public_key;
  std::set<Bytes> seeds;
  size_t count = 0;
  for (Aead aead : kAeads) {
    for (absl::string_view info_text : {"", "a", "b", "aa"}) {
      const Info info(aead, AsBytes(info_text));
      std::string context;
      for (size_t bytes = 0; bytes <= kMaxExporterContext; ++bytes) {
        const Bytes seed = Decapsulated(key, info, context, enc).value();
        const ReferenceHpke reference =
            ReferenceHpke::Receiver(aead, AsBytes(info_text), key, enc).value();
        ASSERT_EQ(Hex(seed), Hex(reference.Export(AsBytes(context)))) << bytes;
        seeds.insert(seed);
        ++count;
        context.push_back('c');
      }
    }
  }
  EXPECT_EQ(seeds.size(), count);
}

TEST_P(HpkeTest, NoRecipientHasALowOrder) {
  TestRandom random(8);
  size_t refused = 0;
  for (const PublicKey& point : EdgePoints()) {
    const Bytes secrets = Draw(random, 3 * 32), messages = Draw(random, 3 * 20);
    const size_t box_bytes = 20 + kSealBytes;
    Bytes boxes(3 * box_bytes), exports(3 * 32);
    const absl::StatusOr<Recipient> recipient = Recipient::Create(point);
    if (!ReferenceHpke::Sender(Aead::kChaCha20Poly1305, {}, point, Item(secrets, 32, 0))) {
      ++refused;
      EXPECT_THAT(recipient, StatusIs(absl::StatusCode::kInvalidArgument, "low order"))
          << Hex(point);
      continue;
    }
    SHOAL_ASSERT_OK(recipient);
    SealBatch(*recipient, Info(Aead::kChaCha20Poly1305, {}), "", In(secrets, 32), In(messages, 20),
              Out(boxes, box_bytes), Out(exports, 32), 3);
    for (size_t i = 0; i < 3; ++i) {
      const ReferenceHpke reference =
          ReferenceHpke::Sender(Aead::kChaCha20Poly1305, {}, point, Item(secrets, 32, i)).value();
      Bytes expected = ToBytes(reference.enc());
      Append(expected, reference.Seal(Item(messages, 20, i)));
      EXPECT_EQ(Hex(Item(boxes, box_bytes, i)), Hex(expected)) << Hex(point);
      EXPECT_EQ(Hex(Item(exports, 32, i)), Hex(reference.Export({})));
    }
  }
  EXPECT_EQ(refused, kLowOrderPoints);
}

// Every edge point as enc, among them all of low order, whose shared point is zero: they are dead.
// All others live with the reference's seed.
TEST_P(HpkeTest, EncsOfLowOrderAreDeadAndNoOthers) {
  TestRandom random(9);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const std::vector<PublicKey> points = EdgePoints();
  const size_t n = points.size();
  Bytes encs;
  for (const PublicKey& point : points) Append(encs, point);
  for (Aead aead : kAeads) {
    Bytes exports(n * 32, 9), alive(n, 9);
    DecapsulateBatch(key, Info(aead, AsBytes("i")), "seed", In(encs, 32), Out(exports, 32), alive);
    size_t dead = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto reference = ReferenceHpke::Receiver(aead, AsBytes("i"), key, points[i]);
      EXPECT_EQ(alive[i], reference.has_value()) << Hex(points[i]);
      EXPECT_EQ(Hex(Item(exports, 32, i)),
                Hex(reference ? reference->Export(AsBytes("seed")) : Bytes(32, 0)));
      dead += alive[i] == 0;
    }
    EXPECT_EQ(dead, kLowOrderPoints);
  }
  std::vector<Context> contexts(n);
  Bytes alive(n, 9);
  RecipientContexts(key, Info(Aead::kChaCha20Poly1305, AsBytes("i")), In(encs, 32), contexts,
                    alive);
  for (size_t i = 0; i < n; ++i) {
    const auto reference =
        ReferenceHpke::Receiver(Aead::kChaCha20Poly1305, AsBytes("i"), key, points[i]);
    EXPECT_EQ(alive[i], reference.has_value());
    EXPECT_EQ(Hex(contexts[i].key.view()), Hex(reference ? reference->key() : Bytes(32, 0)));
  }
}

// The same for boxes, whose tags are right for the shared point, even one of zeros.
TEST_P(HpkeTest, BoxesOfLowOrderAreRefusedEvenWithARightTag) {
  TestRandom random(10);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const size_t bytes = 24, box_bytes = bytes + kSealBytes;
  const Bytes message = Draw(random, bytes);
  const std::vector<PublicKey> points = EdgePoints();
  Bytes boxes;
  for (const PublicKey& point : points) {
    PublicKey shared{};
    if (crypto_scalarmult(shared.data(), key.secret_key.data(), point.data()) != 0) shared.fill(0);
    const ReferenceHpke reference(Aead::kChaCha20Poly1305, {}, shared, point, key.public_key);
    Append(boxes, point);
    Append(boxes, reference.Seal(message));
  }
  const size_t n = points.size();
  Bytes opened(n * bytes), exports(n * 32), ok(n);
  OpenBatch(key, Info(Aead::kChaCha20Poly1305, {}), "", In(boxes, box_bytes), Out(opened, bytes),
            Out(exports, 32), ok);
  size_t refused = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto reference = ReferenceHpke::Receiver(Aead::kChaCha20Poly1305, {}, key, points[i]);
    EXPECT_EQ(ok[i], reference.has_value()) << Hex(points[i]);
    EXPECT_EQ(Hex(Item(opened, bytes, i)), Hex(reference ? message : Bytes(bytes, 0)));
    EXPECT_EQ(Hex(Item(exports, 32, i)), Hex(reference ? reference->Export({}) : Bytes(32, 0)));
    refused += ok[i] == 0;
  }
  EXPECT_EQ(refused, kLowOrderPoints);
}

// Deterministic fuzzing: boxes are mutated at random, and each verdict, message and seed is
// compared with the reference's.
TEST_P(HpkeTest, AgreesWithTheReferenceOnMutatedBoxes) {
  TestRandom random(11);
  const std::vector<PublicKey> edges = EdgePoints();
  for (int trial = 0; trial < 12; ++trial) {
    const KeyPair key = KeyPairFromSecret(Draw(random, 32));
    const Recipient recipient = Recipient::Create(key.public_key).value();
    const size_t bytes = random.Below(200), box_bytes = bytes + kSealBytes, n = 100;
    const Info info(Aead::kChaCha20Poly1305, AsBytes("i"));
    const Bytes secrets = Draw(random, n * 32), messages = Draw(random, n * bytes);
    Bytes boxes(n * box_bytes), exports(n * 32);
    SealBatch(recipient, info, "", In(secrets, 32), In(messages, bytes), Out(boxes, box_bytes),
              Out(exports, 32), n);
    for (size_t i = 0; i < n; ++i) {
      uint8_t* box = boxes.data() + i * box_bytes;
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
          box[31] ^= 0x80;  // the same point in another encoding
          break;
      }
    }
    Bytes opened(n * bytes, 1), ok(n);
    OpenBatch(key, info, "", In(boxes, box_bytes), Out(opened, bytes), Out(exports, 32), ok);
    for (size_t i = 0; i < n; ++i) {
      const BytesView box = Item(boxes, box_bytes, i);
      const auto reference =
          ReferenceHpke::Receiver(Aead::kChaCha20Poly1305, AsBytes("i"), key, box.first(kEncBytes));
      const std::optional<Bytes> message =
          reference ? reference->Open(box.subspan(kEncBytes)) : std::nullopt;
      ASSERT_EQ(ok[i] == 1, message.has_value());
      ASSERT_EQ(Hex(Item(opened, bytes, i)), Hex(message.value_or(Bytes(bytes, 0))));
      ASSERT_EQ(Hex(Item(exports, 32, i)), Hex(message ? reference->Export({}) : Bytes(32, 0)));
    }
  }
}

TEST_P(HpkeTest, ContextsOfBothSidesSealOpenAndExportAsTheReference) {
  TestRandom random(12);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Recipient recipient = Recipient::Create(key.public_key).value();
  const Info info(Aead::kChaCha20Poly1305, AsBytes("i"));
  for (size_t n : {1, 2, 130}) {
    const Bytes secrets = Draw(random, n * 32);
    Bytes encs(n * 32), alive(n);
    std::vector<Context> senders(n), receivers(n);
    SenderContexts(recipient, info, In(secrets, 32), Out(encs, 32), senders);
    RecipientContexts(key, info, In(encs, 32), receivers, alive);
    EXPECT_EQ(alive, Bytes(n, 1));
    for (size_t i = 0; i < n; ++i) {
      const ReferenceHpke reference = ReferenceHpke::Sender(Aead::kChaCha20Poly1305, AsBytes("i"),
                                                            key.public_key, Item(secrets, 32, i))
                                          .value();
      const Bytes message = Draw(random, i == 0 ? 100'000 : i);
      Bytes sealed(message.size() + kTagBytes), opened(message.size());
      Seal(senders[i], message, sealed);
      ASSERT_EQ(sealed, reference.Seal(message));
      ASSERT_TRUE(Open(receivers[i], sealed, opened));
      ASSERT_EQ(opened, message);
      sealed[random.Below(sealed.size())] ^= static_cast<uint8_t>(1 << random.Below(8));
      ASSERT_FALSE(Open(receivers[i], sealed, opened));
      ASSERT_EQ(opened, Bytes(message.size(), 0));
      ASSERT_EQ(Hex(receivers[i].exporter_secret.view()), Hex(reference.exporter_secret()));
    }
  }
}

TEST_P(HpkeTest, SealsAMessageOfAContextInPlace) {
  TestRandom random(13);
  Context context;
  random.Fill(context.key.mutable_view());
  random.Fill(context.nonce.mutable_view());
  for (size_t bytes : {0, 1, 500, 70'000}) {
    Bytes apart(bytes + kTagBytes), in_place = Draw(random, bytes + kTagBytes);
    const Bytes message(in_place.begin(), in_place.begin() + static_cast<ptrdiff_t>(bytes));
    Seal(context, message, apart);
    Seal(context, BytesView(in_place).first(bytes), in_place);
    EXPECT_EQ(apart, in_place);
  }
}

TEST_P(HpkeTest, NumberedExportsAreExportsOfPrefixAndNumber) {
  TestRandom random(14);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Bytes secret = Draw(random, 32);
  const ReferenceHpke reference =
      ReferenceHpke::Sender(Aead::kChaCha20Poly1305, {}, key.public_key, secret).value();
  Context context;
  const Bytes& exporter_secret = reference.exporter_secret();
  std::copy(exporter_secret.begin(), exporter_secret.end(), context.exporter_secret.data());
  for (uint32_t first : {0u, 1u, 255u, 65535u, 0x12345678u}) {
    for (size_t n : {0, 1, 3, 7, 8, 9, 16, 17, 100, 1000}) {
      const std::string prefix(n == 1000 ? 4 : random.Below(kMaxExporterContext - 3), 'p');
      Bytes exports(n * 32);
      ExportNumbered(context, prefix, first, exports);
      for (size_t i = 0; i < n; ++i) {
        Bytes exporter_context = ToBytes(AsBytes(prefix));
        AppendLe<uint32_t>(exporter_context, first + static_cast<uint32_t>(i));
        ASSERT_EQ(Hex(Item(exports, 32, i)), Hex(reference.Export(exporter_context)))
            << "prefix of " << prefix.size() << " bytes, number " << first << " + " << i;
      }
    }
  }
  // Every place that the number can have in a block.
  for (size_t bytes = 0; bytes + 4 <= kMaxExporterContext; ++bytes) {
    const std::string prefix(bytes, 'q');
    Bytes exports(32), exporter_context = ToBytes(AsBytes(prefix));
    ExportNumbered(context, prefix, 0x89abcdef, exports);
    AppendLe<uint32_t>(exporter_context, 0x89abcdef);
    EXPECT_EQ(exports, reference.Export(exporter_context)) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, HpkeTest, ::testing::ValuesIn(kAllInstructionSets),
                         [](const auto& instance) { return std::string(NameOf(instance.param)); });

TEST(RecipientTest, KeepsItsInstructionSet) {
  const InstructionSet before = ActiveInstructionSet();
  TestRandom random(15);
  const KeyPair key = KeyPairFromSecret(Draw(random, 32));
  const Bytes secret = Draw(random, 32);
  const Bytes expected =
      ReferenceHpke::Sender(Aead::kExportOnly, {}, key.public_key, secret)->Export({});
  for (InstructionSet created : kAllInstructionSets) {
    for (InstructionSet used : kAllInstructionSets) {
      if (!IsSupported(created) || !IsSupported(used)) continue;
      UseInstructionSet(created);
      const Recipient recipient = Recipient::Create(key.public_key).value();
      UseInstructionSet(used);
      Bytes exported(32);
      ExportBatch(recipient, Info(Aead::kExportOnly, {}), "", In(secret, 32), {nullptr, 0, 32},
                  Out(exported, 32), 1);
      EXPECT_EQ(exported, expected);
    }
  }
  UseInstructionSet(before);
}

TEST(KeyPairTest, IsLibsodiums) {
  TestRandom random(16);
  const Bytes secret = Draw(random, 32);
  PublicKey expected;
  crypto_scalarmult_base(expected.data(), secret.data());
  EXPECT_EQ(KeyPairFromSecret(secret).public_key, expected);
}

}  // namespace
}  // namespace shoal::onion
