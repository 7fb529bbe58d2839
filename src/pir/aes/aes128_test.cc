#include "src/pir/aes/aes128.h"

#include <array>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/test_random.h"
#include "src/pir/aes/streams.h"

namespace shoal::pir {
namespace {

using testing::TestRandom;

// All ways to compute it here, OpenSSL first.
std::vector<const CounterStream*> Streams() {
  std::vector<const CounterStream*> streams = SupportedStreams();
  streams.insert(streams.begin(), nullptr);
  return streams;
}
std::string NameOf(const CounterStream* stream) { return stream ? stream->name : "OpenSSL"; }

// FIPS 197, appendix C.1.
TEST(Aes128Test, EncryptsAsTheStandardDoes) {
  SecretArray<16> key;
  std::array<uint8_t, 16> plain;
  for (uint8_t i = 0; i < 16; ++i) key.data()[i] = i, plain[i] = static_cast<uint8_t>(17 * i);
  for (const CounterStream* stream : Streams()) {
    std::array<uint8_t, 16> block = plain;
    Aes128(key, stream).Encrypt(block);
    EXPECT_EQ(Hex(block), "69c4e0d86a7b0430d8cdb78070b4c55a") << NameOf(stream);
  }
}

// Every number of blocks around those that the streams take at a time, beside which nothing is
// written; numbers whose sums carry into the upper half.
TEST(Aes128Test, AllWaysAgree) {
  TestRandom random(5);
  SecretArray<16> key;
  random.Fill(key.mutable_view());
  const Aes128 portable(key, nullptr);
  for (const CounterStream* stream : SupportedStreams()) {
    const Aes128 aes(key, stream);
    for (size_t blocks = 0; blocks <= 2 * CounterStream::kBatchBlocks + 3; ++blocks) {
      Bytes expected(16 * blocks + 16);
      random.Fill(expected);
      Bytes actual = expected;
      portable.Encrypt(MutableBytes(expected).first(16 * blocks));
      aes.Encrypt(MutableBytes(actual).first(16 * blocks));
      ASSERT_EQ(actual, expected) << NameOf(stream) << " " << blocks;
      const uint64_t first = (uint64_t{7} << 32) - 9;
      portable.Numbers(first, MutableBytes(expected).first(16 * blocks));
      aes.Numbers(first, MutableBytes(actual).first(16 * blocks));
      ASSERT_EQ(actual, expected) << NameOf(stream) << " " << blocks;
    }
  }
}

}  // namespace
}  // namespace shoal::pir
