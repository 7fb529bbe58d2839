// Keys of point functions: what both servers compute together, beside a reference that walks to one
// row at a time; what one of them sees; bad keys.
#include "src/pir/pair/point_keys.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "openssl/evp.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::pir::pair {
namespace {

using shoal::testing::StatusIs;
using shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct Keys {
  Keys(uint32_t levels, uint64_t row, RandomSource& random)
      : offline(PointKeyBytes(levels)), online(offline.size()) {
    MakePointKeys(levels, row, random, offline, online);
  }
  Bytes offline, online;
};

// The bits of the first `leaves` nodes of the last level, grown at once.
Bytes BitsOf(uint32_t levels, BytesView key, size_t leaves) {
  const PointTree tree(levels, key);
  SecretVector<Node> nodes = {tree.root()}, scratch;
  tree.Grow(0, levels, leaves, nodes, scratch);
  EXPECT_EQ(nodes.size(), leaves);
  tree.ToBits(nodes, scratch);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(nodes.data());
  return {bytes, bytes + leaves * sizeof(Node)};
}

// From the format alone, one block of OpenSSL's AES after the other.
Bytes Hash(BytesView key, Bytes block) {
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  Bytes out(32);
  int written = 0;
  SHOAL_CHECK(EVP_EncryptInit_ex(context, EVP_aes_128_ecb(), nullptr, key.data(), nullptr) == 1 &&
              EVP_EncryptUpdate(context, out.data(), &written, block.data(), 16) == 1 &&
              written == 16);
  EVP_CIPHER_CTX_free(context);
  for (size_t i = 0; i < 16; ++i) block[i] ^= out[i];
  return block;
}
bool ReferenceBit(uint32_t levels, BytesView key, uint64_t row) {
  const BytesView aes = key.first(16);
  const auto part = [&](size_t at) { return ToBytes(key.subspan(at, 16)); };
  const uint32_t right_bits = LoadLe<uint32_t>(key.data() + 48 + size_t{16} * levels);
  Bytes node = part(16);
  for (uint32_t level = 0; level < levels; ++level) {
    const bool control = node[0] & 1, right = row >> (levels + 6 - level) & 1;
    node[0] = static_cast<uint8_t>((node[0] & 0xfe) | right);
    node = Hash(aes, node);
    if (!control) continue;
    Bytes correction = part(32 + size_t{16} * level);
    if (right) {
      correction[0] = static_cast<uint8_t>((correction[0] & 0xfe) | (right_bits >> level & 1));
    }
    for (size_t i = 0; i < 16; ++i) node[i] ^= correction[i];
  }
  const bool control = node[0] & 1;
  node[0] &= 0xfe;
  Bytes bits = Hash(aes, node);
  const Bytes correction = part(32 + size_t{16} * levels);
  if (control) {
    for (size_t i = 0; i < 16; ++i) bits[i] ^= correction[i];
  }
  return bits[row % 128 / 8] >> row % 8 & 1;
}

TEST(PointKeysTest, BothServersBitsDifferAtTheRowAlone) {
  TestRandom random(1);
  for (const uint32_t levels : {0, 1, 2, 3, 5, 9}) {
    const uint64_t rows = kLeafRows << levels;
    const uint64_t step = levels < 3 ? 1 : rows / 61 + 1;
    for (uint64_t row = 0; row < rows;
         row = row + step < rows || row == rows - 1 ? row + step : rows - 1) {
      const Keys keys(levels, row, random);
      const Bytes offline = BitsOf(levels, keys.offline, size_t{1} << levels);
      Bytes online = BitsOf(levels, keys.online, size_t{1} << levels);
      online[row / 8] ^= static_cast<uint8_t>(1u << row % 8);
      ASSERT_EQ(offline, online) << levels << " levels, row " << row;
    }
  }
}

TEST(PointKeysTest, BitsAreThoseOfTheFormat) {
  TestRandom random(2);
  for (const uint32_t levels : {0, 1, 4, 7}) {
    const uint64_t rows = kLeafRows << levels;
    const uint64_t row = random.Below(rows);
    const Keys keys(levels, row, random);
    for (const Bytes& key : {keys.offline, keys.online}) {
      const Bytes bits = BitsOf(levels, key, size_t{1} << levels);
      for (uint64_t at = 0; at < rows; at += levels < 4 ? 1 : 29) {
        ASSERT_EQ(bits[at / 8] >> at % 8 & 1, ReferenceBit(levels, key, at)) << at;
      }
      ASSERT_EQ(bits[row / 8] >> row % 8 & 1, ReferenceBit(levels, key, row));
    }
  }
  // Where no tree of this test is as deep.
  const uint64_t row = 0xdeadbeef;
  const Keys keys(kMaxLevels, row, random);
  for (const uint64_t at : {row, row ^ 1, row ^ 128, row ^ 0x80000000, uint64_t{0}}) {
    EXPECT_EQ(
        ReferenceBit(kMaxLevels, keys.offline, at) != ReferenceBit(kMaxLevels, keys.online, at),
        at == row)
        << at;
  }
}

// A part of a tree, in any pieces, is that part of the whole.
TEST(PointKeysTest, PartsOfATreeAreThoseOfTheWhole) {
  TestRandom random(3);
  constexpr uint32_t kLevels = 6;
  const Keys keys(kLevels, 777, random);
  const Bytes whole = BitsOf(kLevels, keys.online, 64);
  for (size_t leaves = 1; leaves <= 64; ++leaves) {
    const Bytes first = BitsOf(kLevels, keys.online, leaves);
    ASSERT_TRUE(std::ranges::equal(first, BytesView(whole).first(first.size()))) << leaves;
  }
  const PointTree tree(kLevels, keys.online);
  for (uint32_t above = 0; above <= kLevels; ++above) {
    SecretVector<Node> tops = {tree.root()}, nodes, scratch;
    tree.Grow(0, above, size_t{1} << above, tops, scratch);
    Bytes joined;
    for (const Node& top : tops) {
      nodes.assign(1, top);
      tree.Grow(above, kLevels, size_t{1} << (kLevels - above), nodes, scratch);
      tree.ToBits(nodes, scratch);
      Append(joined, {reinterpret_cast<const uint8_t*>(nodes.data()), nodes.size() * sizeof(Node)});
    }
    EXPECT_EQ(joined, whole) << above;
  }
}

// What one server sees is as likely whatever the row: every bit of a key, but those that are fixed,
// and every bit that it expands to, is a fair coin. A bit fails by chance with probability 2^-40
// (6.9 sigma), and there are fewer than 2^13 of them.
TEST(PointKeysTest, AKeyTellsNothingOfTheRow) {
  constexpr uint32_t kLevels = 3;
  constexpr int kKeys = 3000;
  const uint64_t rows = kLeafRows << kLevels;
  for (const uint64_t row : {uint64_t{0}, rows / 2 - 1, rows - 1}) {
    TestRandom random(4 + row);
    const size_t key_bits = 8 * PointKeyBytes(kLevels);
    std::vector<int> of_key[2] = {std::vector<int>(key_bits), std::vector<int>(key_bits)};
    std::vector<int> of_rows[2] = {std::vector<int>(rows), std::vector<int>(rows)};
    const auto add = [](BytesView bytes, std::vector<int>& counts) {
      for (size_t i = 0; i < counts.size(); ++i) counts[i] += bytes[i / 8] >> i % 8 & 1;
    };
    for (int i = 0; i < kKeys; ++i) {
      const Keys keys(kLevels, row, random);
      add(keys.offline, of_key[0]);
      add(keys.online, of_key[1]);
      add(BitsOf(kLevels, keys.offline, size_t{1} << kLevels), of_rows[0]);
      add(BitsOf(kLevels, keys.online, size_t{1} << kLevels), of_rows[1]);
    }
    const double most = 6.9 * std::sqrt(kKeys / 4.0);
    for (int server = 0; server < 2; ++server) {
      for (size_t bit = 0; bit < key_bits; ++bit) {
        const int count = of_key[server][bit];
        if (bit == 128) {
          EXPECT_EQ(count, server * kKeys) << "the root's control bit";
        } else if (bit >= key_bits - 32 + kLevels) {
          EXPECT_EQ(count, 0) << "levels that there are not";
        } else {
          EXPECT_NEAR(count, kKeys / 2.0, most) << "row " << row << ", bit " << bit << " of a key";
        }
      }
      for (size_t at = 0; at < rows; ++at) {
        EXPECT_NEAR(of_rows[server][at], kKeys / 2.0, most) << "row " << row << ", bit of " << at;
      }
    }
  }
}

// Each pair of keys has an AES key, roots and corrections of its own.
TEST(PointKeysTest, NoTwoPairsShareAPart) {
  TestRandom random(5);
  constexpr uint32_t kLevels = 4;
  std::set<Bytes> parts;
  size_t count = 0;
  for (int i = 0; i < 200; ++i) {
    const Keys keys(kLevels, 99, random);
    EXPECT_TRUE(std::equal(keys.offline.begin(), keys.offline.begin() + 16, keys.online.begin()));
    EXPECT_FALSE(
        std::equal(keys.offline.begin() + 17, keys.offline.begin() + 32, keys.online.begin() + 17));
    const auto add = [&](const Bytes& key, size_t at) {
      parts.insert(ToBytes(BytesView(key).subspan(at, 16)));
      ++count;
    };
    for (size_t at = 0; at + 16 <= keys.offline.size() - 4; at += 16) add(keys.offline, at);
    add(keys.online, 16);
  }
  EXPECT_EQ(parts.size(), count);
}

TEST(PointKeysTest, BadKeysAreRefused) {
  TestRandom random(6);
  for (const uint32_t levels : {uint32_t{0}, uint32_t{3}, kMaxLevels}) {
    const Keys keys(levels, 5, random);
    SHOAL_EXPECT_OK(CheckPointKey(levels, false, keys.offline));
    SHOAL_EXPECT_OK(CheckPointKey(levels, true, keys.online));
    EXPECT_THAT(CheckPointKey(levels, true, keys.offline),
                StatusIs(kInvalid, "a key for the offline server, and this is the online one"));
    EXPECT_THAT(CheckPointKey(levels, false, keys.online),
                StatusIs(kInvalid, "a key for the online server, and this is the offline one"));
    for (uint32_t bit = levels; bit < 32; ++bit) {
      Bytes more = keys.offline;
      more[more.size() - 4 + bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      EXPECT_THAT(CheckPointKey(levels, false, more),
                  StatusIs(kInvalid, absl::StrCat("bits for more than ", levels, " levels")));
    }
    for (const size_t bytes : {size_t{0}, size_t{51}, keys.offline.size() - 1,
                               keys.offline.size() + 1, keys.offline.size() + 16}) {
      if (bytes == keys.offline.size()) continue;
      EXPECT_THAT(CheckPointKey(levels, false, Bytes(bytes)),
                  StatusIs(kInvalid,
                           absl::StrCat("a key of ", bytes, " bytes, not ", keys.offline.size())));
    }
  }
}

TEST(PointKeysTest, TreesAreAsSmallAsTheRowsAllow) {
  EXPECT_EQ(LevelsFor(1), 0u);
  EXPECT_EQ(LevelsFor(128), 0u);
  EXPECT_EQ(LevelsFor(129), 1u);
  EXPECT_EQ(LevelsFor(256), 1u);
  EXPECT_EQ(LevelsFor(257), 2u);
  EXPECT_EQ(LevelsFor(2'500'000), 15u);
  EXPECT_EQ(LevelsFor(uint64_t{1} << 22), 15u);
  EXPECT_EQ(LevelsFor((uint64_t{1} << 22) + 1), 16u);
  EXPECT_EQ(LevelsFor(uint64_t{1} << 32), kMaxLevels);
  EXPECT_EQ(PointKeyBytes(15), 292u);
}

}  // namespace
}  // namespace shoal::pir::pair
