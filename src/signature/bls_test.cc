#include "src/signature/bls.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::signature {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;

Bytes FromHex(absl::string_view hex) { return ToBytes(AsBytes(absl::HexStringToBytes(hex))); }

// x = 4: on the curve y^2 = x^3 + 4 but not in the group of prime order.
const char kOutsideG1[] =
    "80000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0004";
const char kInfinityG1[] =
    "c0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000";

TEST(SecretKey, SignsAndVerifies) {
  TestRandom random(1);
  const SecretKey key = SecretKey::Generate(random);
  const Signature signature = key.Sign(AsBytes("message"));
  SHOAL_EXPECT_OK(Verify(key.public_key(), AsBytes("message"), signature));
  EXPECT_THAT(Verify(key.public_key(), AsBytes("massage"), signature),
              StatusIs(kUnauthenticated, "does not match"));
  const SecretKey other = SecretKey::Generate(random);
  EXPECT_THAT(Verify(other.public_key(), AsBytes("message"), signature),
              StatusIs(kUnauthenticated, "does not match"));
}

TEST(SecretKey, DrawsFromTheSourceItIsGiven) {
  TestRandom a(1), b(1), c(2);
  const SecretKey first = SecretKey::Generate(a);
  EXPECT_TRUE(EqualSecret(first.bytes().view(), SecretKey::Generate(b).bytes().view()));
  EXPECT_FALSE(EqualSecret(first.bytes().view(), SecretKey::Generate(c).bytes().view()));
}

TEST(SecretKey, RefusesScalarsOutOfRange) {
  EXPECT_THAT(SecretKey::FromBytes(Bytes(32, 0)), StatusIs(kInvalid, "[1, r)"));
  EXPECT_THAT(SecretKey::FromBytes(Bytes(32, 0xff)), StatusIs(kInvalid, "[1, r)"));
  EXPECT_THAT(SecretKey::FromBytes(
                  FromHex("73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001")),
              StatusIs(kInvalid, "[1, r)"));  // r itself
  SHOAL_EXPECT_OK(SecretKey::FromBytes(
      FromHex("73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000000")));
  EXPECT_THAT(SecretKey::FromBytes(Bytes(31, 1)), StatusIs(kInvalid, "31 bytes"));
}

TEST(SecretKey, RoundTrips) {
  TestRandom random(3);
  const SecretKey key = SecretKey::Generate(random);
  SHOAL_ASSERT_OK_AND_ASSIGN(const SecretKey again, SecretKey::FromBytes(key.bytes().view()));
  EXPECT_EQ(again.public_key().bytes(), key.public_key().bytes());
  SHOAL_ASSERT_OK_AND_ASSIGN(const PublicKey parsed,
                             PublicKey::FromBytes(key.public_key().bytes()));
  EXPECT_TRUE(parsed == key.public_key());
  const Signature signature = key.Sign(AsBytes("m"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Signature parsed_signature,
                             Signature::FromBytes(signature.bytes()));
  EXPECT_EQ(parsed_signature.bytes(), signature.bytes());
}

TEST(Points, RefusesWhatIsNoPointOfTheGroup) {
  EXPECT_THAT(Signature::FromBytes(Bytes(47, 0)), StatusIs(kInvalid, "47 bytes"));
  EXPECT_THAT(Signature::FromBytes(Bytes(48, 0)), StatusIs(kInvalid, "encoding"));
  EXPECT_THAT(Signature::FromBytes(FromHex(kInfinityG1)), StatusIs(kInvalid, "infinity"));
  EXPECT_THAT(Signature::FromBytes(FromHex(kOutsideG1)), StatusIs(kInvalid, "subgroup"));
  EXPECT_THAT(PublicKey::FromBytes(Bytes(48, 0)), StatusIs(kInvalid, "48 bytes"));
  Bytes infinity(96, 0);
  infinity[0] = 0xc0;
  EXPECT_THAT(PublicKey::FromBytes(infinity), StatusIs(kInvalid, "infinity"));
  // x = 2: on the twist, not in G2.
  Bytes outside(96, 0);
  outside[0] = 0x80;
  outside[95] = 2;
  EXPECT_THAT(PublicKey::FromBytes(outside), StatusIs(kInvalid, "subgroup"));
}

TEST(Points, EveryChangedBitOfASignatureIsRefused) {
  TestRandom random(4);
  const SecretKey key = SecretKey::Generate(random);
  const Signature::Encoded encoded = key.Sign(AsBytes("message")).bytes();
  for (size_t bit = 0; bit < 8 * encoded.size(); ++bit) {
    Signature::Encoded changed = encoded;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    const absl::StatusOr<Signature> signature = Signature::FromBytes(changed);
    if (!signature.ok()) continue;
    EXPECT_FALSE(Verify(key.public_key(), AsBytes("message"), *signature).ok()) << bit;
  }
}

TEST(Possession, IsASignatureInItsOwnDomain) {
  TestRandom random(5);
  const SecretKey key = SecretKey::Generate(random);
  const PublicKey::Encoded public_key = key.public_key().bytes();
  SHOAL_EXPECT_OK(ProvenKey::FromBytes(public_key, key.ProvePossession().bytes()));
  // A plain signature on the same bytes proves nothing.
  EXPECT_THAT(ProvenKey::FromBytes(public_key, key.Sign(public_key).bytes()),
              StatusIs(kUnauthenticated, "possession"));
  // Nor does another's proof.
  const SecretKey other = SecretKey::Generate(random);
  EXPECT_THAT(ProvenKey::FromBytes(public_key, other.ProvePossession().bytes()),
              StatusIs(kUnauthenticated, "possession"));
  EXPECT_THAT(ProvenKey::FromBytes(public_key, Bytes(48, 0)), StatusIs(kInvalid, "possession"));
}

TEST(Aggregate, VerifiesUnderTheSumOfTheKeysAlone) {
  TestRandom random(6);
  std::vector<ProvenKey> keys;
  std::vector<Signature> signatures;
  for (int i = 0; i < 5; ++i) {
    const SecretKey key = SecretKey::Generate(random);
    SHOAL_ASSERT_OK_AND_ASSIGN(
        ProvenKey proven,
        ProvenKey::FromBytes(key.public_key().bytes(), key.ProvePossession().bytes()));
    keys.push_back(proven);
    signatures.push_back(key.Sign(AsBytes("roster")));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const PublicKey sum, AggregateKeys(keys));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Signature signature, AggregateSignatures(signatures));
  SHOAL_EXPECT_OK(Verify(sum, AsBytes("roster"), signature));
  // One party short is not enough.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Signature short_one,
                             AggregateSignatures(std::span(signatures).first(4)));
  EXPECT_FALSE(Verify(sum, AsBytes("roster"), short_one).ok());
  // The same key twice adds up (point doubling).
  const std::vector<ProvenKey> twice = {keys[0], keys[0]};
  const std::vector<Signature> both = {signatures[0], signatures[0]};
  SHOAL_ASSERT_OK_AND_ASSIGN(const PublicKey double_key, AggregateKeys(twice));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Signature double_signature, AggregateSignatures(both));
  SHOAL_EXPECT_OK(Verify(double_key, AsBytes("roster"), double_signature));
}

TEST(Aggregate, RefusesNothingAndInfinity) {
  EXPECT_THAT(AggregateKeys({}), StatusIs(kInvalid, "no public keys"));
  EXPECT_THAT(AggregateSignatures({}), StatusIs(kInvalid, "no signatures"));
  // A point and its negative: the sign is bit 5 of the first byte.
  TestRandom random(7);
  const Signature point = SecretKey::Generate(random).Sign(AsBytes("m"));
  Signature::Encoded negative = point.bytes();
  negative[0] ^= 0x20;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Signature minus, Signature::FromBytes(negative));
  const std::vector<Signature> both = {point, minus};
  EXPECT_THAT(AggregateSignatures(both), StatusIs(kInvalid, "infinity"));
}

struct Batch {
  std::vector<std::string> texts;
  std::vector<BytesView> messages;
  std::vector<Signature> signatures;
};

Batch MakeBatch(const SecretKey& key, size_t n) {
  Batch batch;
  for (size_t i = 0; i < n; ++i) batch.texts.push_back(absl::StrCat("row ", i));
  for (const std::string& text : batch.texts) {
    batch.messages.push_back(AsBytes(text));
    batch.signatures.push_back(key.Sign(AsBytes(text)));
  }
  return batch;
}

class VerifyBatchTest : public ::testing::TestWithParam<size_t> {};

TEST_P(VerifyBatchTest, AcceptsRightOnesAndRefusesAnyWrongOne) {
  TestRandom random(8);
  ThreadPool pool(2);
  const SecretKey key = SecretKey::Generate(random);
  const size_t n = GetParam();
  Batch batch = MakeBatch(key, n);
  SHOAL_EXPECT_OK(VerifyBatch(key.public_key(), batch.messages, batch.signatures, random, nullptr));
  SHOAL_EXPECT_OK(VerifyBatch(key.public_key(), batch.messages, batch.signatures, random, &pool));
  for (const size_t wrong : {size_t{0}, n / 2, n - 1}) {
    if (n == 0) break;
    const Signature right = batch.signatures[wrong];
    batch.signatures[wrong] = key.Sign(AsBytes("another row"));
    EXPECT_THAT(VerifyBatch(key.public_key(), batch.messages, batch.signatures, random, nullptr),
                StatusIs(kUnauthenticated, "does not match"))
        << wrong;
    EXPECT_FALSE(
        VerifyBatch(key.public_key(), batch.messages, batch.signatures, random, &pool).ok());
    batch.signatures[wrong] = right;
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, VerifyBatchTest,
                         ::testing::Values(0, 1, 2, 31, 32, 63, 64, 65, 300));

// Two wrong signatures whose errors cancel must not pass: without random weights they would.
TEST(VerifyBatch, RefusesErrorsThatCancel) {
  TestRandom random(9);
  const SecretKey key = SecretKey::Generate(random);
  Batch batch = MakeBatch(key, 40);
  std::swap(batch.signatures[3], batch.signatures[4]);  // the plain sum is unchanged
  EXPECT_FALSE(
      VerifyBatch(key.public_key(), batch.messages, batch.signatures, random, nullptr).ok());
}

}  // namespace
}  // namespace shoal::signature
