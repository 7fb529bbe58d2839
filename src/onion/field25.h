// GF(2^255 - 19) in ten limbs of 26 and 25 bits by turns, for 32 x 32 bit multiplications: one
// element per lane. Limb i weighs 2^ceil(25.5 i).
//
// Two types keep the bounds, so that the compiler refuses a forgotten carry:
//   Product  what multiplications return, carried: limbs below 2^26 (even) or 2^25 (odd) and a bit
//   Element  what multiplications take: the sum or difference of two Products, not carried
// The exact bounds are proved by interval_test.cc, which runs these templates on intervals.
// The interface is that of field51.h.
//
// Vec is a vector of 64-bit lanes; kernel_avx2.cc shows what it must offer.
#ifndef SHOAL_SRC_ONION_FIELD25_H_
#define SHOAL_SRC_ONION_FIELD25_H_

#include <stddef.h>
#include <stdint.h>

#include "src/onion/inline.h"

namespace shoal::onion {

template <typename VecType>
struct Field25 {
  using Vec = VecType;
  using Mask = typename Vec::Mask;
  static constexpr int kLimbs = 10;

  struct Product {
    Vec limb[kLimbs];
  };
  struct Element {
    Vec limb[kLimbs];
  };

  // A small non-negative constant in every lane.
  SHOAL_INLINE static Element Constant(uint64_t value) {
    Element r;
    r.limb[0] = Vec::Set1(value);
    SHOAL_UNROLL for (int i = 1; i < kLimbs; ++i) r.limb[i] = Vec::Set1(0);
    return r;
  }

  // From 256 bits in four words; bit 255 is dropped, values from p on are taken modulo p.
  SHOAL_INLINE static Element FromWords(const Vec word[4]) {
    Element r;
    r.limb[0] = word[0] & Vec::Set1(Limit(0));
    r.limb[1] = word[0].template Srl<26>() & Vec::Set1(Limit(1));
    r.limb[2] = (word[0].template Srl<51>() | word[1].template Sll<13>()) & Vec::Set1(Limit(2));
    r.limb[3] = word[1].template Srl<13>() & Vec::Set1(Limit(3));
    r.limb[4] = word[1].template Srl<38>();
    r.limb[5] = word[2] & Vec::Set1(Limit(5));
    r.limb[6] = word[2].template Srl<25>() & Vec::Set1(Limit(6));
    r.limb[7] = (word[2].template Srl<51>() | word[3].template Sll<13>()) & Vec::Set1(Limit(7));
    r.limb[8] = word[3].template Srl<12>() & Vec::Set1(Limit(8));
    r.limb[9] = word[3].template Srl<38>() & Vec::Set1(Limit(9));
    return r;
  }

  // The one representative in [0, p).
  SHOAL_INLINE static void ToWords(const Element& a, Vec word[4]) {
    Vec l[kLimbs];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) l[i] = a.limb[i];
    // Two passes leave limbs of their size, and a value below 2^255.
    SHOAL_UNROLL for (int pass = 0; pass < 2; ++pass) {
      CarryUp(l);
      l[0] = l[0] + l[9].template Srl<25>().Times19();
      l[9] = l[9] & Vec::Set1(Limit(9));
    }
    // At least p iff adding 19 carries out of the top.
    Vec carry = (l[0] + Vec::Set1(19)).template Srl<26>();
    SHOAL_UNROLL for (int i = 1; i < kLimbs; ++i) carry = Shift(i, l[i] + carry);
    l[0] = l[0] + carry.Times19();
    CarryUp(l);
    l[9] = l[9] & Vec::Set1(Limit(9));
    word[0] = l[0] | l[1].template Sll<26>() | l[2].template Sll<51>();
    word[1] = l[2].template Srl<13>() | l[3].template Sll<13>() | l[4].template Sll<38>();
    word[2] = l[5] | l[6].template Sll<25>() | l[7].template Sll<51>();
    word[3] = l[7].template Srl<13>() | l[8].template Sll<12>() | l[9].template Sll<38>();
  }

  // The right side of a product, with what Mul precomputes of it: for factors used twice.
  struct Factor {
    Vec limb[kLimbs];
    Vec times19[kLimbs];  // from 1 on
  };
  SHOAL_INLINE static Factor Prepare(const Element& b) {
    Factor r;
    r.limb[0] = r.times19[0] = b.limb[0];
    SHOAL_UNROLL for (int i = 1; i < kLimbs; ++i) {
      r.limb[i] = b.limb[i];
      r.times19[i] = Vec::Mul32(b.limb[i], Vec::Set1(19));
    }
    return r;
  }

  SHOAL_INLINE static Product Mul(const Element& a, const Element& b) { return Mul(a, Prepare(b)); }

  SHOAL_INLINE static Product Mul(const Element& a, const Factor& b) {
    // Column k sums a_i * b_j with i + j = k modulo 10: twice if both are odd (their weights
    // are half a bit too high each), 19 times if it wrapped around. By rows: ten columns and one
    // limb of `a` fit sixteen registers.
    Vec c[kLimbs];
    SHOAL_UNROLL for (int k = 0; k < kLimbs; ++k) c[k] = Vec::Mul32(a.limb[0], b.limb[k]);
    SHOAL_UNROLL for (int i = 1; i < kLimbs; ++i) {
      const Vec& once = a.limb[i];
      const Vec twice = once + once;
      SHOAL_UNROLL for (int k = 0; k < kLimbs; ++k) {
        const int j = (k - i + kLimbs) % kLimbs;
        const Vec& left = i % 2 == 1 && j % 2 == 1 ? twice : once;
        c[k] = c[k] + Vec::Mul32(left, i > k ? b.times19[j] : b.limb[j]);
      }
    }
    return Carry(c);
  }

  SHOAL_INLINE static Product Square(const Element& a) {
    Vec twice[kLimbs], times19[kLimbs], times38[kLimbs];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) twice[i] = a.limb[i] + a.limb[i];
    SHOAL_UNROLL for (int i = kLimbs / 2; i < kLimbs; ++i) {
      times19[i] = Vec::Mul32(a.limb[i], Vec::Set1(19));
      times38[i] = times19[i] + times19[i];
    }
    Vec c[kLimbs];
    SHOAL_UNROLL for (int k = 0; k < kLimbs; ++k) {
      bool empty = true;
      SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
        const int j = (k - i + kLimbs) % kLimbs;
        if (i > j) continue;
        // a_i a_j, twice if mixed, twice if both are odd, 19 times if it wraps around (j >= 5).
        const bool wraps = i + j >= kLimbs;
        const bool both_odd = i % 2 == 1 && j % 2 == 1;
        const Vec& left = i != j || both_odd ? twice[i] : a.limb[i];
        const Vec& right = i != j && both_odd ? (wraps ? times38[j] : twice[j])
                                              : (wraps ? times19[j] : a.limb[j]);
        const Vec term = Vec::Mul32(left, right);
        c[k] = empty ? term : c[k] + term;
        empty = false;
      }
    }
    return Carry(c);
  }

  SHOAL_INLINE static Element Add(const Product& a, const Product& b) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = a.limb[i] + b.limb[i];
    return r;
  }

  SHOAL_INLINE static Element Sub(const Product& a, const Product& b) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      r.limb[i] = a.limb[i] + Vec::Set1(TwiceP(i)) - b.limb[i];
    }
    return r;
  }

  SHOAL_INLINE static Element Tight(const Product& a) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = a.limb[i];
    return r;
  }

  SHOAL_INLINE static Product Loose(const Element& a) { return Carry(a.limb); }

  // a * factor + b, for a factor below 2^17.
  SHOAL_INLINE static Element MulSmallAdd(const Element& a, uint32_t factor, const Product& b) {
    const Vec f = Vec::Set1(factor);
    Vec c[kLimbs];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) c[i] = Vec::Mul32(a.limb[i], f) + b.limb[i];
    return Tight(Carry(c));
  }

  // mask ? a : b.
  SHOAL_INLINE static Element Select(Mask mask, const Element& a, const Element& b) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      r.limb[i] = Vec::Select(mask, a.limb[i], b.limb[i]);
    }
    return r;
  }

  // mask ? -a : a, for a table entry (fully reduced).
  SHOAL_INLINE static Element NegateIf(Mask mask, const Element& a) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      r.limb[i] = Vec::SubIf(mask, Vec::Set1(TwiceP(i)), a.limb[i]);
    }
    return r;
  }

  SHOAL_INLINE static Product BroadcastFirst(const Product& a) {
    Product r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = a.limb[i].BroadcastFirst();
    return r;
  }

  // 32 table entries of three elements, limb by limb: a look-up reads all of it.
  struct alignas(64) Row {
    uint32_t limb[3][kLimbs][32];
  };

  // Lanes of `a` (fully reduced) become entries `first`, `first` + 1, ... of one column.
  SHOAL_INLINE static void StoreEntries(Row& row, int column, size_t first, const Element& a) {
    for (int i = 0; i < kLimbs; ++i) {
      alignas(64) uint64_t lanes[Vec::kLanes];
      a.limb[i].Store(lanes);
      for (size_t lane = 0; lane < Vec::kLanes; ++lane) {
        row.limb[column][i][first + lane] = static_cast<uint32_t>(lanes[lane]);
      }
    }
  }

  SHOAL_INLINE static Element LookUp(const Row& row, int column,
                                     const typename Vec::Index& index) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      r.limb[i] = Vec::LookUp(row.limb[column][i], index);
    }
    return r;
  }

 private:
  static constexpr uint64_t Limit(int i) { return (uint64_t{1} << (i % 2 == 0 ? 26 : 25)) - 1; }
  // A multiple of p that no carried limb reaches.
  static constexpr uint64_t TwiceP(int i) { return 2 * (i == 0 ? Limit(0) - 18 : Limit(i)); }

  SHOAL_INLINE static Vec Shift(int i, const Vec& a) {
    return i % 2 == 0 ? a.template Srl<26>() : a.template Srl<25>();
  }

  SHOAL_INLINE static void CarryStep(Vec l[kLimbs], int i) {
    const Vec carry = Shift(i, l[i]);
    l[i] = l[i] & Vec::Set1(Limit(i));
    if (i < 9) {
      l[i + 1] = l[i + 1] + carry;
    } else {
      l[0] = l[0] + carry.Times19();
    }
  }

  SHOAL_INLINE static void CarryUp(Vec l[kLimbs]) {
    SHOAL_UNROLL for (int i = 0; i < 9; ++i) CarryStep(l, i);
  }

  // Two carry chains side by side, from limbs 0 and 5; the last steps settle what each handed on.
  SHOAL_INLINE static Product Carry(const Vec c[kLimbs]) {
    Product r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = c[i];
    SHOAL_UNROLL for (int i = 0; i < 5; ++i) {
      CarryStep(r.limb, i);
      CarryStep(r.limb, i + 5);
    }
    CarryStep(r.limb, 0);
    CarryStep(r.limb, 5);
    return r;
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_FIELD25_H_
