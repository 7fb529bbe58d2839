#include "src/onion/testing/edge_points.h"

#include <iterator>
#include <memory>

#include "openssl/bn.h"
#include "sodium.h"
#include "src/base/check.h"

namespace shoal::onion::testing {
namespace {

PublicKey Small(uint8_t value) { return {value}; }

// 2^255 - 1 - below.
PublicKey BelowTop(uint8_t below) {
  PublicKey u;
  u.fill(0xff);
  u[0] = static_cast<uint8_t>(0xff - below);
  u[31] = 0x7f;
  return u;
}

PublicKey PowerOfTwo(size_t bit, bool minus_one) {
  PublicKey u{};
  if (minus_one) {
    for (size_t i = 0; i < bit; ++i) u[i / 8] |= static_cast<uint8_t>(1 << i % 8);
  } else {
    u[bit / 8] = static_cast<uint8_t>(1 << bit % 8);
  }
  return u;
}

// The u of points of order 8 (RFC 7748's curve; two values, each with both signs of v).
constexpr PublicKey kOrder8[2] = {{0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3,
                                   0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32,
                                   0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
                                  {0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1,
                                   0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c,
                                   0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57}};

}  // namespace

std::vector<PublicKey> EdgePoints() {
  std::vector<PublicKey> points(std::begin(kOrder8), std::end(kOrder8));
  for (uint8_t small = 0; small <= 20; ++small) points.push_back(Small(small));
  for (uint8_t below = 0; below <= 24; ++below) points.push_back(BelowTop(below));
  for (size_t bit : {25, 26, 51, 52, 77, 102, 127, 128, 153, 178, 204, 229, 230, 252, 254}) {
    points.push_back(PowerOfTwo(bit, false));
    points.push_back(PowerOfTwo(bit, true));
  }
  // A random u is on the twist half of the time. It has a component of low order seven times out of
  // eight (curve) or three times out of four (twist).
  for (uint8_t i = 1; i <= 24; ++i) {
    PublicKey u;
    const uint8_t seed[randombytes_SEEDBYTES] = {i};
    randombytes_buf_deterministic(u.data(), u.size(), seed);
    u[31] &= 0x7f;
    points.push_back(u);
  }
  const size_t n = points.size();
  for (size_t i = 0; i < n; ++i) {
    points.push_back(points[i]);
    points.back()[31] |= 0x80;
  }
  return points;
}

std::vector<PublicKey> EdgeScalars() {
  std::vector<PublicKey> scalars;
  PublicKey all_ones;
  all_ones.fill(0xff);
  scalars.push_back(PublicKey{});
  scalars.push_back(all_ones);
  scalars.push_back(BelowTop(0));
  for (size_t bit : {0, 2, 3, 8, 9, 63, 64, 127, 191, 192, 248, 249, 253, 254, 255}) {
    scalars.push_back(PowerOfTwo(bit, false));
    scalars.push_back(PowerOfTwo(bit, true));
  }
  for (uint8_t fill : {0x55, 0xaa, 0x0f, 0xf0}) {
    scalars.emplace_back();
    scalars.back().fill(fill);
  }
  // The order of the base point, 2^252 + 27742317777372353535851937790883648493, and neighbours
  // among the clamped scalars around its multiples by 4 and 8, minus 8 .. plus 8.
  const PublicKey order = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                           0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                           0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
  for (int shift : {0, 2, 3}) {
    PublicKey multiple{};
    unsigned carry = 0;
    for (size_t i = 0; i < 32; ++i) {
      carry += static_cast<unsigned>(order[i]) << shift;
      multiple[i] = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    scalars.push_back(multiple);
    multiple[0] = static_cast<uint8_t>(multiple[0] - 8);
    scalars.push_back(multiple);
    multiple[0] = static_cast<uint8_t>(multiple[0] + 16);
    scalars.push_back(multiple);
  }
  return scalars;
}

PublicKey PlusOrderTwo(const PublicKey& u) {
  const auto number = [](const PublicKey& bytes) {
    return std::unique_ptr<BIGNUM, decltype(&BN_free)>(
        BN_lebin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr), &BN_free);
  };
  const auto p = number(BelowTop(18)), value = number(u);
  const std::unique_ptr<BN_CTX, decltype(&BN_CTX_free)> context(BN_CTX_new(), &BN_CTX_free);
  SHOAL_CHECK(BN_mod_inverse(value.get(), value.get(), p.get(), context.get()) != nullptr);
  PublicKey inverse;
  SHOAL_CHECK(BN_bn2lebinpad(value.get(), inverse.data(), 32) == 32);
  return inverse;
}

}  // namespace shoal::onion::testing
