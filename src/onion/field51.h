// GF(2^255 - 19) in five limbs of 51 bits, for 52-bit fused multiply-adds: one element per lane.
//
// Two types keep the bounds, so that the compiler refuses a forgotten carry:
//   Product  what multiplications return: limbs below 2^61, not carried
//   Element  what multiplications take: limbs below 2^52
// Sums and differences take Products and return Elements: one parallel carry each. The exact
// bounds are proved by interval_test.cc, which runs these templates on intervals.
//
// Vec is a vector of 64-bit lanes; kernel_ifma.cc shows what it must offer.
#ifndef SHOAL_SRC_ONION_FIELD51_H_
#define SHOAL_SRC_ONION_FIELD51_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"

namespace shoal::onion {

template <typename VecType>
struct Field51 {
  using Vec = VecType;
  using Mask = typename Vec::Mask;
  static constexpr int kLimbs = 5;
  static constexpr uint64_t kLimbMask = (uint64_t{1} << 51) - 1;

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
    const Vec mask = Vec::Set1(kLimbMask);
    Element r;
    r.limb[0] = word[0] & mask;
    r.limb[1] = (word[0].template Srl<51>() | word[1].template Sll<13>()) & mask;
    r.limb[2] = (word[1].template Srl<38>() | word[2].template Sll<26>()) & mask;
    r.limb[3] = (word[2].template Srl<25>() | word[3].template Sll<39>()) & mask;
    r.limb[4] = word[3].template Srl<12>() & mask;
    return r;
  }

  // The one representative in [0, p).
  SHOAL_INLINE static void ToWords(const Element& a, Vec word[4]) {
    const Vec mask = Vec::Set1(kLimbMask);
    Vec l[kLimbs];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) l[i] = a.limb[i];
    // Two passes leave limbs of 51 bits, up to one unit too much in limb 0 of the second.
    SHOAL_UNROLL for (int pass = 0; pass < 2; ++pass) {
      SHOAL_UNROLL for (int i = 0; i + 1 < kLimbs; ++i) {
        l[i + 1] = l[i + 1] + l[i].template Srl<51>();
        l[i] = l[i] & mask;
      }
      l[0] = l[0] + l[4].template Srl<51>().Times19();
      l[4] = l[4] & mask;
    }
    // The value is below p + 2^52, so it is at least p iff adding 19 carries out of the top.
    Vec carry = (l[0] + Vec::Set1(19)).template Srl<51>();
    SHOAL_UNROLL for (int i = 1; i < kLimbs; ++i) carry = (l[i] + carry).template Srl<51>();
    l[0] = l[0] + carry.Times19();
    SHOAL_UNROLL for (int i = 0; i + 1 < kLimbs; ++i) {
      l[i + 1] = l[i + 1] + l[i].template Srl<51>();
      l[i] = l[i] & mask;
    }
    l[4] = l[4] & mask;
    word[0] = l[0] | l[1].template Sll<51>();
    word[1] = l[1].template Srl<13>() | l[2].template Sll<38>();
    word[2] = l[2].template Srl<26>() | l[3].template Sll<25>();
    word[3] = l[3].template Srl<39>() | l[4].template Sll<12>();
  }

  // The right side of a product, with precomputed values. This field has none.
  using Factor = Element;
  SHOAL_INLINE static const Factor& Prepare(const Element& b) { return b; }

  SHOAL_INLINE static Product Mul(const Element& a, const Element& b) {
    // A product of limbs i and j has its low 52 bits in column i + j and its high bits one
    // column up, with weight 2^52 / 2^51: columns sum the high halves, double, add the low ones.
    Vec c[2 * kLimbs];
    SHOAL_UNROLL for (int k = 0; k < 2 * kLimbs; ++k) c[k] = Vec::Set1(0);
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      SHOAL_UNROLL for (int j = 0; j < kLimbs; ++j) {
        c[i + j + 1] = Vec::MaddHi(c[i + j + 1], a.limb[i], b.limb[j]);
      }
    }
    SHOAL_UNROLL for (int k = 1; k < 2 * kLimbs; ++k) c[k] = c[k] + c[k];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      SHOAL_UNROLL for (int j = 0; j < kLimbs; ++j) {
        c[i + j] = Vec::MaddLo(c[i + j], a.limb[i], b.limb[j]);
      }
    }
    return Fold(c);
  }

  SHOAL_INLINE static Product Square(const Element& a) {
    // Weights, from the heaviest: high halves of mixed products 4; their low halves and the
    // high halves of squares 2; low halves of squares 1.
    Vec c[2 * kLimbs];
    SHOAL_UNROLL for (int k = 0; k < 2 * kLimbs; ++k) c[k] = Vec::Set1(0);
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      SHOAL_UNROLL for (int j = i + 1; j < kLimbs; ++j) {
        c[i + j + 1] = Vec::MaddHi(c[i + j + 1], a.limb[i], a.limb[j]);
      }
    }
    SHOAL_UNROLL for (int k = 2; k < 2 * kLimbs - 1; ++k) c[k] = c[k] + c[k];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      c[2 * i + 1] = Vec::MaddHi(c[2 * i + 1], a.limb[i], a.limb[i]);
      SHOAL_UNROLL for (int j = i + 1; j < kLimbs; ++j) {
        c[i + j] = Vec::MaddLo(c[i + j], a.limb[i], a.limb[j]);
      }
    }
    SHOAL_UNROLL for (int k = 1; k < 2 * kLimbs; ++k) c[k] = c[k] + c[k];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      c[2 * i] = Vec::MaddLo(c[2 * i], a.limb[i], a.limb[i]);
    }
    return Fold(c);
  }

  SHOAL_INLINE static Element Add(const Product& a, const Product& b) {
    Product r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = a.limb[i] + b.limb[i];
    return Tight(r);
  }

  SHOAL_INLINE static Element Sub(const Product& a, const Product& b) {
    Product r;
    const Vec bias0 = Vec::Set1(kBias0), bias = Vec::Set1(kBias);
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      r.limb[i] = a.limb[i] + (i == 0 ? bias0 : bias) - b.limb[i];
    }
    return Tight(r);
  }

  // One parallel carry.
  SHOAL_INLINE static Element Tight(const Product& a) {
    const Vec mask = Vec::Set1(kLimbMask);
    Element r;
    r.limb[0] = Vec::AddTimes19(a.limb[0] & mask, a.limb[4].template Srl<51>());
    SHOAL_UNROLL for (int i = 1; i < kLimbs; ++i) {
      r.limb[i] = (a.limb[i] & mask) + a.limb[i - 1].template Srl<51>();
    }
    return r;
  }

  SHOAL_INLINE static Product Loose(const Element& a) {
    Product r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = a.limb[i];
    return r;
  }

  // a * factor + b, for a factor below 2^17.
  SHOAL_INLINE static Element MulSmallAdd(const Element& a, uint32_t factor, const Product& b) {
    const Vec f = Vec::Set1(factor);
    Vec high[kLimbs];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      high[i] = Vec::MaddHi(Vec::Set1(0), a.limb[i], f);
    }
    Product r;
    r.limb[0] = Vec::MaddLo(b.limb[0] + (high[4] + high[4]).Times19(), a.limb[0], f);
    SHOAL_UNROLL for (int i = 1; i < kLimbs; ++i) {
      r.limb[i] = Vec::MaddLo(b.limb[i] + (high[i - 1] + high[i - 1]), a.limb[i], f);
    }
    return Tight(r);
  }

  // mask ? a : b.
  SHOAL_INLINE static Element Select(Mask mask, const Element& a, const Element& b) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      r.limb[i] = Vec::Select(mask, a.limb[i], b.limb[i]);
    }
    return r;
  }

  // mask ? -a : a, for a table entry (limbs of 51 bits, no more).
  SHOAL_INLINE static Element NegateIf(Mask mask, const Element& a) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      const Vec twice_p = Vec::Set1(i == 0 ? 2 * (kLimbMask - 18) : 2 * kLimbMask);
      r.limb[i] = Vec::SubIf(mask, twice_p, a.limb[i]);
    }
    return r;
  }

  SHOAL_INLINE static Product BroadcastFirst(const Product& a) {
    Product r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = a.limb[i].BroadcastFirst();
    return r;
  }

  // 32 table entries of three elements, stored limb by limb. A look-up reads the whole row.
  struct alignas(64) Row {
    uint64_t limb[3][kLimbs][32];
  };

  // Lanes of `a` (fully reduced) become entries `first`, `first` + 1, ... of one column.
  SHOAL_INLINE static void StoreEntries(Row& row, int column, size_t first, const Element& a) {
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) a.limb[i].Store(&row.limb[column][i][first]);
  }

  SHOAL_INLINE static Element LookUp(const Row& row, int column, const typename Vec::Index& index) {
    Element r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      r.limb[i] = Vec::LookUp(row.limb[column][i], index);
    }
    return r;
  }

 protected:
  // A multiple of p, 2^11 * (2^51 - 19, 2^51 - 1, ..), that no Product limb reaches.
  static constexpr uint64_t kBias0 = (kLimbMask - 18) << 11;
  static constexpr uint64_t kBias = kLimbMask << 11;

  // Columns 5 to 9 weigh 2^255 = 19 modulo p.
  SHOAL_INLINE static Product Fold(const Vec c[2 * kLimbs]) {
    Product r;
    SHOAL_UNROLL for (int k = 0; k < kLimbs; ++k) r.limb[k] = c[k] + c[k + kLimbs].Times19();
    return r;
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_FIELD51_H_
