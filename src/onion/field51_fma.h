// Field51 for processors without 52-bit integer multiplication: the 104-bit products of limbs come
// from fused multiply-adds of doubles, in two halves.
//
// For integers a and b with a b < 2^103, rounded to nearest,
//
//   high = fma(a, b, 2^103)                         = 2^103 + h 2^51,  h = round(a b / 2^51)
//   low  = fma(a, b, 2^103 + 3 * 2^51 - high)       = 3 * 2^51 + l,    l = a b - h 2^51
//
// are both exact, the second because |l| <= 2^50: the idea is Niall Emmart's ("Faster modular
// exponentiation using double precision floating point arithmetic on the GPU", ARITH 2018). Read as
// integers, the bit patterns of the two doubles are h and l plus constants. A column is a sum of
// such patterns, and starts at minus the sum of their constants. h and l belong into neighbouring
// columns of 51 bits, so nothing is shifted. As l may be negative, columns also start at a multiple
// of p.
//
// A product takes 50 fused multiply-adds and 75 additions; ten limbs of 25.5 bits, for 32-bit
// multipliers, would take 109 multiplications and 95 additions. No operand is ever subnormal,
// infinite or NaN, so that the instructions take constant time.
#ifndef SHOAL_SRC_ONION_FIELD51_FMA_H_
#define SHOAL_SRC_ONION_FIELD51_FMA_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/onion/field51.h"

namespace shoal::onion {

template <typename VecType>
struct Field51Fma : Field51<VecType> {
  using Base = Field51<VecType>;
  using Vec = VecType;
  using Mask = typename Base::Mask;
  using Element = typename Base::Element;
  using Product = typename Base::Product;
  using Base::kLimbs;

  // The limbs as doubles, for factors that are used more than once.
  struct Factor {
    typename Vec::Real limb[kLimbs];
  };
  SHOAL_INLINE static Factor Prepare(const Element& b) {
    Factor r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = Vec::ToReal(b.limb[i]);
    return r;
  }

  SHOAL_INLINE static Product Mul(const Element& a, const Element& b) { return Mul(a, Prepare(b)); }

  SHOAL_INLINE static Product Mul(const Element& a, const Factor& b) {
    Vec c[2 * kLimbs];
    SHOAL_UNROLL for (int k = 0; k < 2 * kLimbs; ++k) {
      c[k] = Vec::StartColumn(Offset(k), 2 * Pairs(k), 2 * Pairs(k - 1));
    }
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      const typename Vec::Real left = Vec::ToReal(a.limb[i]);
      SHOAL_UNROLL for (int j = 0; j < kLimbs; ++j) {
        Vec::AddProduct(left, b.limb[j], c[i + j], c[i + j + 1]);
      }
    }
    return Base::Fold(c);
  }

  SHOAL_INLINE static Product Square(const Element& element) {
    const Factor a = Prepare(element);
    // Sums mixed products, doubles the columns, then adds squares. The start of a column is doubled
    // with it.
    Vec c[2 * kLimbs];
    SHOAL_UNROLL for (int k = 0; k < 2 * kLimbs; ++k) {
      c[k] = Vec::StartColumn(Offset(k) / 2, Pairs(k), Pairs(k - 1));
    }
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      SHOAL_UNROLL for (int j = i + 1; j < kLimbs; ++j) {
        Vec::AddProduct(a.limb[i], a.limb[j], c[i + j], c[i + j + 1]);
      }
    }
    SHOAL_UNROLL for (int k = 0; k < 2 * kLimbs; ++k) c[k] = c[k] + c[k];
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      Vec::AddProduct(a.limb[i], a.limb[i], c[2 * i], c[2 * i + 1]);
    }
    return Base::Fold(c);
  }

  // a * factor + b, for a factor below 2^17.
  SHOAL_INLINE static Element MulSmallAdd(const Element& a, uint32_t factor, const Product& b) {
    const typename Vec::Real f = Vec::ToReal(Vec::Set1(factor));
    Vec c[kLimbs + 1];
    SHOAL_UNROLL for (int k = 0; k <= kLimbs; ++k) {
      // 2 p keeps limbs positive.
      const uint64_t offset = 2 * (k == 0 ? Base::kLimbMask - 18 : Base::kLimbMask);
      c[k] = Vec::StartColumn(k < kLimbs ? offset : 0, k < kLimbs ? 2 : 0, k > 0 ? 2 : 0);
      if (k < kLimbs) c[k] = c[k] + b.limb[k];
    }
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) {
      Vec::AddProduct(Vec::ToReal(a.limb[i]), f, c[i], c[i + 1]);
    }
    c[0] = Vec::AddTimes19(c[0], c[kLimbs]);
    Product r;
    SHOAL_UNROLL for (int i = 0; i < kLimbs; ++i) r.limb[i] = c[i];
    return Base::Tight(r);
  }

  // mask ? -a : a, for a table entry. The result is carried, as a limb of 2 p - a would be too
  // large for a factor.
  SHOAL_INLINE static Element NegateIf(Mask mask, const Element& a) {
    return Base::Tight(Base::Loose(Base::NegateIf(mask, a)));
  }

 private:
  // How many products of two limbs have their low half in column k.
  static constexpr int Pairs(int k) {
    return k < 0 || k > 2 * kLimbs - 2 ? 0 : k < kLimbs ? k + 1 : 2 * kLimbs - 1 - k;
  }

  // Where a column starts: high enough for the low halves of five products, which may subtract 5 *
  // 2^50. After folding, the offsets add up to 2^7 p.
  static constexpr uint64_t kUpperOffset = uint64_t{1} << 53;
  static constexpr uint64_t Offset(int k) {
    return k >= kLimbs
               ? kUpperOffset
               : ((k == 0 ? Base::kLimbMask - 18 : Base::kLimbMask) << 7) - 19 * kUpperOffset;
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_FIELD51_FMA_H_
