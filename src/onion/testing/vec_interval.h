// One lane of intervals for the kernels' templates: each value stands for all values from `low`
// to `high`. Running a kernel on them proves that nothing overflows for any input: an addition
// beyond 64 bits, a difference that could be negative, a factor beyond 52 or 32 bits, and a
// multiplication by 19 beyond 64 bits are recorded as violations.
//
// Shifts to the left drop bits on purpose (words are cut into limbs that way) and are no
// violation. Masks are unknown: a selection is the union of both sides.
#ifndef SHOAL_SRC_ONION_TESTING_VEC_INTERVAL_H_
#define SHOAL_SRC_ONION_TESTING_VEC_INTERVAL_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal::onion::testing {

struct VecInterval {
  static constexpr size_t kLanes = 1;
  using Word = uint64_t;
  struct Mask {};
  uint64_t low, high;

  // The violations since the last Reset(), and the largest values seen.
  struct Record {
    std::vector<std::string> violations;
    uint64_t largest_factor = 0;  // into MaddLo, MaddHi, Mul32, AddProduct
    uint64_t largest_sum = 0;
  };
  static Record& record() {
    static Record record;
    return record;
  }
  static void Reset() { record() = Record(); }

  static VecInterval Set1(uint64_t a) { return {a, a}; }
  // Store writes the upper bound. A load gives the full range, as it reads words from outside.
  static VecInterval Load(const uint64_t*) { return Any(); }
  void Store(uint64_t* to) const { *to = high; }

  __attribute__((noinline)) friend VecInterval operator+(VecInterval a, VecInterval b) {
    VecInterval sum = {a.low + b.low, a.high + b.high};
    if (sum.high < a.high) return Violation("sum beyond 64 bits");
    record().largest_sum = std::max(record().largest_sum, sum.high);
    return sum;
  }
  __attribute__((noinline)) friend VecInterval operator-(VecInterval a, VecInterval b) {
    if (a.low < b.high) return Violation("difference below zero");
    return {a.low - b.high, a.high - b.low};
  }
  __attribute__((noinline)) friend VecInterval operator&(VecInterval a, VecInterval b) {
    return {0, std::min(a.high, b.high)};
  }
  __attribute__((noinline)) friend VecInterval operator|(VecInterval a, VecInterval b) {
    return {std::max(a.low, b.low), AllBits(a.high | b.high)};
  }
  __attribute__((noinline)) friend VecInterval operator^(VecInterval a, VecInterval b) {
    return {0, AllBits(a.high | b.high)};
  }
  template <int kBits>
  VecInterval Srl() const {
    return {low >> kBits, high >> kBits};
  }
  template <int kBits>
  VecInterval Sll() const {
    if (high >> (64 - kBits) != 0) return Any();
    return {low << kBits, high << kBits};
  }
  VecInterval SrlBy(int) const { return Any(); }
  VecInterval SllBy(int) const { return Any(); }
  VecInterval Times19() const {
    if (high > ~uint64_t{0} / 19) return Violation("19 times beyond 64 bits");
    return {low * 19, high * 19};
  }

  static VecInterval MaddLo(VecInterval acc, VecInterval a, VecInterval b) {
    const unsigned __int128 product = Product(a, b, 52);
    const uint64_t mask = (uint64_t{1} << 52) - 1;
    return acc + VecInterval{0, product > mask ? mask : static_cast<uint64_t>(product)};
  }
  static VecInterval MaddHi(VecInterval acc, VecInterval a, VecInterval b) {
    return acc + VecInterval{0, static_cast<uint64_t>(Product(a, b, 52) >> 52)};
  }
  static VecInterval Mul32(VecInterval a, VecInterval b) {
    return {0, static_cast<uint64_t>(Product(a, b, 32))};
  }

  static VecInterval AddTimes19(VecInterval acc, VecInterval a) { return acc + Mul32(a, Set1(19)); }

  // Fused multiply-adds of doubles: see field51_fma.h.
  using Real = VecInterval;
  static Real ToReal(VecInterval a) {
    if (a.high >> 52 != 0) return Violation("no exact double");
    return a;
  }
  static VecInterval StartColumn(uint64_t value, uint64_t, uint64_t) { return Set1(value); }
  static void AddProduct(Real a, Real b, VecInterval& low, VecInterval& high) {
    const unsigned __int128 product = Product(a, b, 52);
    // Also the high half, rounded up, must stay in the binade of 2^103.
    if (product > (static_cast<unsigned __int128>(1) << 103) - (uint64_t{1} << 51)) {
      Violation("product beyond 103 bits");
    }
    constexpr uint64_t kHalf = uint64_t{1} << 50;
    low = low - Set1(kHalf) + VecInterval{0, 2 * kHalf};
    high = high + VecInterval{0, static_cast<uint64_t>((product + kHalf) >> 51)};
  }

  static Mask TestBits(VecInterval, VecInterval) { return {}; }
  static Mask IsZero(VecInterval) { return {}; }
  static bool FirstLane(Mask) { return true; }
  static VecInterval Select(Mask, VecInterval a, VecInterval b) {
    return {std::min(a.low, b.low), std::max(a.high, b.high)};
  }
  static VecInterval SubIf(Mask mask, VecInterval a, VecInterval b) {
    return Select(mask, a - b, b);
  }
  VecInterval BroadcastFirst() const { return *this; }

  // Tables hold upper bounds, as Store() left them.
  struct Index {};
  static Index MakeIndex(VecInterval) { return {}; }
  template <typename Word>
  static VecInterval LookUp(const Word* entry, const Index&) {
    return {0, *std::max_element(entry, entry + 32)};
  }

 private:
  static VecInterval Any() { return {0, ~uint64_t{0}}; }
  static VecInterval Violation(const char* what) {
    record().violations.push_back(what);
    return Any();
  }
  static uint64_t AllBits(uint64_t a) { return a == 0 ? 0 : ~uint64_t{0} >> std::countl_zero(a); }
  __attribute__((noinline)) static unsigned __int128 Product(VecInterval a, VecInterval b,
                                                             int bits) {
    for (uint64_t factor : {a.high, b.high}) {
      record().largest_factor = std::max(record().largest_factor, factor);
      if (factor >> bits != 0) Violation("factor too large");
    }
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    return static_cast<unsigned __int128>(std::min(a.high, mask)) * std::min(b.high, mask);
  }
};

}  // namespace shoal::onion::testing

#endif  // SHOAL_SRC_ONION_TESTING_VEC_INTERVAL_H_
