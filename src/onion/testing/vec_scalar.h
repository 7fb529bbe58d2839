// One lane of plain 64-bit arithmetic for the kernels' templates: it computes in C++ what the
// vector instructions do. So valgrind, which lacks AVX-512, sees the same formulas, and every
// machine can test both fields.
#ifndef SHOAL_SRC_ONION_TESTING_VEC_SCALAR_H_
#define SHOAL_SRC_ONION_TESTING_VEC_SCALAR_H_

#include <cstddef>
#include <cstdint>

namespace shoal::onion::testing {

struct VecScalar {
  static constexpr size_t kLanes = 1;
  struct Mask {
    uint64_t v;  // all ones or all zeros
  };
  uint64_t v;

  static VecScalar Set1(uint64_t a) { return {a}; }
  static VecScalar Load(const uint64_t* from) { return {*from}; }
  void Store(uint64_t* to) const { *to = v; }

  friend VecScalar operator+(VecScalar a, VecScalar b) { return {a.v + b.v}; }
  friend VecScalar operator-(VecScalar a, VecScalar b) { return {a.v - b.v}; }
  friend VecScalar operator&(VecScalar a, VecScalar b) { return {a.v & b.v}; }
  friend VecScalar operator|(VecScalar a, VecScalar b) { return {a.v | b.v}; }
  friend VecScalar operator^(VecScalar a, VecScalar b) { return {a.v ^ b.v}; }
  template <int kBits>
  VecScalar Srl() const {
    return {v >> kBits};
  }
  template <int kBits>
  VecScalar Sll() const {
    return {v << kBits};
  }
  VecScalar SrlBy(int bits) const { return {v >> bits}; }
  VecScalar SllBy(int bits) const { return {v << bits}; }
  VecScalar Times19() const { return {v * 19}; }

  static VecScalar MaddLo(VecScalar acc, VecScalar a, VecScalar b) {
    return {acc.v + (static_cast<uint64_t>(Product52(a, b)) & kMask52)};
  }
  static VecScalar MaddHi(VecScalar acc, VecScalar a, VecScalar b) {
    return {acc.v + static_cast<uint64_t>(Product52(a, b) >> 52)};
  }
  static VecScalar Mul32(VecScalar a, VecScalar b) {
    return {(a.v & 0xffffffff) * (b.v & 0xffffffff)};
  }

  static VecScalar AddTimes19(VecScalar acc, VecScalar a) { return acc + Mul32(a, Set1(19)); }

  // What field51_fma.h gets from doubles, in integers.
  using Real = VecScalar;
  static Real ToReal(VecScalar a) { return a; }
  static VecScalar StartColumn(uint64_t value, uint64_t, uint64_t) { return {value}; }
  static void AddProduct(Real a, Real b, VecScalar& low, VecScalar& high) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a.v) * b.v;
    const uint64_t rounded = static_cast<uint64_t>((product + (uint64_t{1} << 50)) >> 51);
    low.v += static_cast<uint64_t>(product) - (rounded << 51);
    high.v += rounded;
  }

  static Mask TestBits(VecScalar a, VecScalar bits) { return {~IsZero(a & bits).v}; }
  static Mask IsZero(VecScalar a) { return {((a.v | (0 - a.v)) >> 63) - 1}; }
  static bool FirstLane(Mask mask) { return mask.v != 0; }
  static VecScalar Select(Mask mask, VecScalar a, VecScalar b) {
    return {(a.v & mask.v) | (b.v & ~mask.v)};
  }
  static VecScalar SubIf(Mask mask, VecScalar a, VecScalar b) { return Select(mask, a - b, b); }
  VecScalar BroadcastFirst() const { return *this; }

  struct Index {
    uint64_t index;
  };
  static Index MakeIndex(VecScalar index) { return {index.v}; }
  template <typename Word>
  static VecScalar LookUp(const Word* entry, const Index& index) {
    uint64_t picked = 0;
    for (uint64_t i = 0; i < 32; ++i) {
      picked |= entry[i] & IsZero({index.index ^ i}).v;
    }
    return {picked};
  }

 private:
  static constexpr uint64_t kMask52 = (uint64_t{1} << 52) - 1;
  static unsigned __int128 Product52(VecScalar a, VecScalar b) {
    return static_cast<unsigned __int128>(a.v & kMask52) * (b.v & kMask52);
  }
};

}  // namespace shoal::onion::testing

#endif  // SHOAL_SRC_ONION_TESTING_VEC_SCALAR_H_
