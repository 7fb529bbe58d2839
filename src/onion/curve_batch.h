// X25519 in batches, one item per vector lane, over the fields of field51.h and field51_fma.h.
//
// Multiply is the Montgomery ladder of RFC 7748, section 5. It takes any point, also on the twist.
//
// MultiplyFixed is a comb without doublings on the birationally equivalent twisted Edwards curve
// -x^2 + y^2 = 1 + d x^2 y^2, where u = (1 + y) / (1 - y) and x^2 = -(A + 2) u / (u^2 + A u + 1);
// the sign of x does not matter, as X25519 returns u alone. A clamped scalar is s = 2^254 + 8 f
// with 0 <= f < 2^251. With f = sum f_i 64^i and the odd digits d_i = 2 f_i - 63,
//
//   s P = sum_{i <= 41} d_i 64^i (4 P) + (2^255 - 4) P
//
// so no digit is zero and none carries. A digit's magnitude is f_i with its low bits flipped where
// the digit is negative, and its sign is the top bit of f_i: no recoding. Row i of the table holds
// k 64^i (4 P) for k = 1, 3, .. 63. As f_41 < 32, the last row holds the 32 sums of its whole term
// and the constant, and starts the accumulator. The others are mixed additions: Hisil, Wong,
// Carter, Dawson 2008, section 3.1, complete on this curve (-1 is a square, d is not).
//
// Constant time: no branch and no address depends on scalars. Arrays with data derived from scalars
// are wiped, but not values that the compiler spilled to the stack inside a function.
#ifndef SHOAL_SRC_ONION_CURVE_BATCH_H_
#define SHOAL_SRC_ONION_CURVE_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/onion/kernel.h"

namespace shoal::onion {

template <typename FieldType>
struct CurveBatch {
  using Field = FieldType;
  using Vec = typename Field::Vec;
  using Mask = typename Field::Mask;
  using Element = typename Field::Element;
  using Product = typename Field::Product;
  using Row = typename Field::Row;

  static constexpr size_t kLanes = Vec::kLanes;
  static constexpr size_t kGroups = kKernelBatch / kLanes;
  static constexpr int kRows = 42;
  static constexpr size_t kEntries = 32;
  static constexpr size_t kRowGroups = kEntries / kLanes;
  // Rows of a table that share one inversion.
  static constexpr int kRowsAtATime = 7;
  static constexpr size_t kMaxStored = kRowsAtATime * kRowGroups;
  static_assert(kKernelBatch % kLanes == 0 && kEntries % kLanes == 0);
  static_assert(kRows % kRowsAtATime == 0);

  struct Table {
    Row row[kRows];
  };
  static_assert(alignof(Table) <= kKernelTableAlignment);

  // The entry points are never inlined: kernel_avx2.cc sets the rounding mode before it calls them.
  SHOAL_NOINLINE static void Multiply(const uint8_t* scalars, size_t scalar_stride,
                                      const uint8_t* points, size_t point_stride, uint8_t* products,
                                      size_t n) {
    const size_t groups = (n + kLanes - 1) / kLanes;
    if (groups == 0) return;
    struct {
      Element x[kGroups], z[kGroups], prefix[kGroups];
      Mask zero[kGroups];
    } s;
    for (size_t g = 0; g < groups; ++g) {
      const size_t begin = g * kLanes;
      Vec scalar[4], point[4];
      LoadItems(scalars + begin * scalar_stride, scalar_stride, n - begin, scalar);
      LoadItems(points + begin * point_stride, point_stride, n - begin, point);
      Ladder(scalar, Field::FromWords(point), s.x[g], s.z[g]);
      // Zero for points of low order: the product is zero, and the shared inversion must not be.
      s.zero[g] = IsZero(s.z[g]);
      s.z[g] = Field::Select(s.zero[g], Field::Constant(1), s.z[g]);
    }
    InvertAll(s.z, s.prefix, groups);
    for (size_t g = 0; g < groups; ++g) {
      Vec word[4];
      Field::ToWords(Tight(Mul(s.x[g], s.z[g])), word);
      for (Vec& w : word) w = Vec::Select(s.zero[g], Vec::Set1(0), w);
      StoreItems(word, products + g * kLanes * 32, n - g * kLanes);
    }
    Wipe(&s, sizeof s);
  }

  SHOAL_NOINLINE static bool BuildTable(const uint8_t* point, void* table_memory) {
    Table& table = *static_cast<Table*>(table_memory);
    Vec word[4];
    LoadItems(point, 0, 1, word);
    AffinePoint p;
    if (!ToEdwards(Field::FromWords(word), p)) return false;

    // Lane l of group g doubles its way from k 4P to k 64^i 4P for k = 2 (g * kLanes + l) + 1.
    Point entry[kRowGroups];
    const NielsPoint niels = ToNiels(p);
    for (size_t g = 0; g < kRowGroups; ++g) {
      entry[g] = {Field::Loose(Field::Constant(0)), Field::Loose(Field::Constant(1)),
                  Field::Loose(Field::Constant(1)), Field::Loose(Field::Constant(0))};
      alignas(64) uint64_t k[kLanes];
      for (size_t lane = 0; lane < kLanes; ++lane) k[lane] = 2 * (g * kLanes + lane) + 1;
      const Vec multiplier = Vec::Load(k);
      for (int bit = 5; bit >= 0; --bit) {
        Double(entry[g]);
        Point sum = entry[g];
        AddNiels(sum, niels);
        const Mask set = Vec::TestBits(multiplier, Vec::Set1(uint64_t{1} << bit));
        MoveIf(set, sum.x, entry[g].x);
        MoveIf(set, sum.y, entry[g].y);
        MoveIf(set, sum.z, entry[g].z);
        MoveIf(set, sum.t, entry[g].t);
      }
      Double(entry[g]);
      Double(entry[g]);
    }
    const Point four_p = Broadcast(entry[0]);

    Point points[kMaxStored];
    for (int row = 0; row < kRows; row += kRowsAtATime) {
      for (int i = 0; i < kRowsAtATime; ++i) {
        for (size_t g = 0; g < kRowGroups; ++g) {
          points[i * kRowGroups + g] = entry[g];
          for (int times = 0; times < 6; ++times) Double(entry[g]);
        }
      }
      const bool last = row + kRowsAtATime == kRows;
      if (last) {
        // Entry j: (2 j + 1) B + (64 B - 4 P) = (2 j - 63) B + (2^255 - 4) P for B = 64^41 4P.
        Point constant = Broadcast(entry[0]);
        AddPoint(constant, Negated(four_p));
        for (size_t g = 0; g < kRowGroups; ++g) {
          AddPoint(points[(kRowsAtATime - 1) * kRowGroups + g], constant);
        }
      }
      StoreRows(points, kMaxStored, last, table.row + row);
    }
    return true;
  }

  SHOAL_NOINLINE static void MultiplyFixed(const void* const* tables, size_t table_count,
                                           const uint8_t* scalars, size_t scalar_stride,
                                           uint8_t* const* products, size_t n) {
    const size_t groups = (n + kLanes - 1) / kLanes;
    if (groups == 0) return;
    struct {
      Vec scalar[kGroups][4];
      Point sum[kGroups];
      Element top[2 * kGroups], bottom[2 * kGroups], prefix[2 * kGroups];
    } s;
    for (size_t g = 0; g < groups; ++g) {
      LoadItems(scalars + g * kLanes * scalar_stride, scalar_stride, n - g * kLanes, s.scalar[g]);
    }
    for (size_t t = 0; t < table_count; ++t) {
      const Table& table = *static_cast<const Table*>(tables[t]);
      // Row by row over all groups: a row stays in the first-level cache, a table would not.
      for (size_t g = 0; g < groups; ++g) Start(table.row[kRows - 1], s.scalar[g], s.sum[g]);
      for (int i = kRows - 2; i >= 0; --i) {
        for (size_t g = 0; g < groups; ++g) AddDigit(table.row[i], i, s.scalar[g], s.sum[g]);
      }
      for (size_t g = 0; g < groups; ++g) {
        // 1 - y is never 0: only the neutral element has y = 1, and s is no multiple of the order
        // of P.
        s.top[t * groups + g] = Field::Add(s.sum[g].z, s.sum[g].y);
        s.bottom[t * groups + g] = Field::Sub(s.sum[g].z, s.sum[g].y);
      }
    }
    InvertAll(s.bottom, s.prefix, table_count * groups);
    for (size_t t = 0; t < table_count; ++t) {
      for (size_t g = 0; g < groups; ++g) {
        Vec word[4];
        Field::ToWords(Tight(Mul(s.top[t * groups + g], s.bottom[t * groups + g])), word);
        StoreItems(word, products[t] + g * kLanes * 32, n - g * kLanes);
      }
    }
    Wipe(&s, sizeof s);
  }

 private:
  // Extended coordinates: x = X / Z, y = Y / Z, T = X Y / Z.
  struct Point {
    Product x, y, z, t;
  };
  struct AffinePoint {
    Element x, y;
  };
  // What a mixed addition takes of an affine point: (y + x) / 2, (y - x) / 2, d x y.
  struct NielsPoint {
    Element plus, minus, dt;
  };

  static void Wipe(void* memory, size_t bytes) {
    __builtin_memset(memory, 0, bytes);
    __asm__ __volatile__("" : : "r"(memory) : "memory");
  }

  SHOAL_INLINE static Element Tight(const Product& a) { return Field::Tight(a); }

  // Not inlined, for callers where code size matters more than a few cycles.
  SHOAL_NOINLINE static Product Mul(const Element& a, const Element& b) { return Field::Mul(a, b); }
  SHOAL_NOINLINE static Element SquareTimes(Element a, int times) {
    for (int i = 0; i < times; ++i) a = Tight(Field::Square(a));
    return a;
  }

  // Lane l takes item l; lanes from n on repeat the last item.
  SHOAL_INLINE static void LoadItems(const uint8_t* items, size_t stride, size_t n, Vec word[4]) {
    alignas(64) uint64_t lanes[4][kLanes];
    uint64_t item[4];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      __builtin_memcpy(item, items + (lane < n ? lane : n - 1) * stride, 32);
      for (int w = 0; w < 4; ++w) lanes[w][lane] = item[w];
    }
    for (int w = 0; w < 4; ++w) word[w] = Vec::Load(lanes[w]);
    Wipe(lanes, sizeof lanes);
    Wipe(item, sizeof item);
  }

  SHOAL_INLINE static void StoreItems(const Vec word[4], uint8_t* items, size_t n) {
    alignas(64) uint64_t lanes[4][kLanes];
    for (int w = 0; w < 4; ++w) word[w].Store(lanes[w]);
    uint64_t item[4];
    for (size_t lane = 0; lane < kLanes && lane < n; ++lane) {
      for (int w = 0; w < 4; ++w) item[w] = lanes[w][lane];
      __builtin_memcpy(items + lane * 32, item, 32);
    }
    Wipe(lanes, sizeof lanes);
    Wipe(item, sizeof item);
  }

  SHOAL_NOINLINE static Mask IsZero(const Element& a) {
    Vec word[4];
    Field::ToWords(a, word);
    return Vec::IsZero(word[0] | word[1] | word[2] | word[3]);
  }

  // a^(2^250 - 1), and a^11 on the way.
  static Element PowerCore(const Element& a, Element& a11) {
    const Element a2 = SquareTimes(a, 1);
    const Element a9 = Tight(Mul(SquareTimes(a2, 2), a));
    a11 = Tight(Mul(a9, a2));
    const Element e5 = Tight(Mul(SquareTimes(a11, 1), a9));
    const Element e10 = Tight(Mul(SquareTimes(e5, 5), e5));
    const Element e20 = Tight(Mul(SquareTimes(e10, 10), e10));
    const Element e40 = Tight(Mul(SquareTimes(e20, 20), e20));
    const Element e50 = Tight(Mul(SquareTimes(e40, 10), e10));
    const Element e100 = Tight(Mul(SquareTimes(e50, 50), e50));
    const Element e200 = Tight(Mul(SquareTimes(e100, 100), e100));
    return Tight(Mul(SquareTimes(e200, 50), e50));
  }

  // a^(p - 2) = a^(2^255 - 21).
  static Element Invert(const Element& a) {
    Element a11;
    const Element core = PowerCore(a, a11);
    return Tight(Mul(SquareTimes(core, 5), a11));
  }

  // Montgomery's trick, along the groups: the lanes of a vector stay apart. No value is zero.
  static void InvertAll(Element* values, Element* prefix, size_t n) {
    prefix[0] = values[0];
    for (size_t i = 1; i < n; ++i) prefix[i] = Tight(Mul(prefix[i - 1], values[i]));
    Element inverse = Invert(prefix[n - 1]);
    for (size_t i = n - 1; i > 0; --i) {
      const Element value = values[i];
      values[i] = Tight(Mul(inverse, prefix[i - 1]));
      inverse = Tight(Mul(inverse, value));
    }
    values[0] = inverse;
  }

  SHOAL_INLINE static void Clamp(Vec scalar[4]) {
    scalar[0] = scalar[0] & Vec::Set1(~uint64_t{7});
    scalar[3] = (scalar[3] & Vec::Set1(~uint64_t{0} >> 2)) | Vec::Set1(uint64_t{1} << 62);
  }

  // u = x / z.
  SHOAL_NOINLINE static void Ladder(const Vec scalar_words[4], const Element& u, Element& x,
                                    Element& z) {
    // The ladder holds n P and (n + 1) P and doubles one of them. Instead of swapping both before
    // and after each bit, remember which of the two stands first: it changes where bits change. The
    // order changes nothing in the sum but the sign of a value that is squared. `change` holds the
    // bits of s xor (s << 1); the lowest bits of s are zero by clamping, so the result ends in its
    // place.
    Vec change[4];
    {
      Vec s[4] = {scalar_words[0], scalar_words[1], scalar_words[2], scalar_words[3]};
      Clamp(s);
      // Bit i tells whether bits i and i + 1 differ.
      for (int w = 0; w < 3; ++w) {
        change[w] = s[w] ^ (s[w].template Srl<1>() | s[w + 1].template Sll<63>());
      }
      change[3] = s[3] ^ s[3].template Srl<1>();
    }
    Product x2 = Field::Loose(Field::Constant(1)), z2 = Field::Loose(Field::Constant(0));
    const typename Field::Factor factor_u = Field::Prepare(u);
    Product x3 = Field::Loose(u), z3 = Field::Loose(Field::Constant(1));
    for (int w = 3; w >= 0; --w) {
      for (int bit = w == 3 ? 62 : 63; bit >= 0; --bit) {
        const Mask swap = Vec::TestBits(change[w], Vec::Set1(uint64_t{1} << bit));
        const Element a = Field::Add(x2, z2), b = Field::Sub(x2, z2);
        const Element c = Field::Add(x3, z3), d = Field::Sub(x3, z3);
        const Product da = Field::Mul(d, a), cb = Field::Mul(c, b);
        const Product aa = Field::Square(Field::Select(swap, c, a));
        const Product bb = Field::Square(Field::Select(swap, d, b));
        x3 = Field::Square(Field::Add(da, cb));
        z3 = Field::Mul(Tight(Field::Square(Field::Sub(da, cb))), factor_u);
        const Element e = Field::Sub(aa, bb);
        x2 = Field::Mul(Tight(aa), Tight(bb));
        z2 = Field::Mul(Field::MulSmallAdd(e, 121665, aa), e);
      }
    }
    Wipe(change, sizeof change);
    x = Tight(x2);
    z = Tight(z2);
  }

  SHOAL_INLINE static Element FromConstant(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3) {
    const Vec word[4] = {Vec::Set1(w0), Vec::Set1(w1), Vec::Set1(w2), Vec::Set1(w3)};
    return Field::FromWords(word);
  }
  // d = -121665 / 121666.
  static Element D() {
    return FromConstant(0x75eb4dca135978a3, 0x00700a4d4141d8ab, 0x8cc740797779e898,
                        0x52036cee2b6ffe73);
  }
  static Element SqrtOfMinusOne() {
    return FromConstant(0xc4ee1b274a0ea0b0, 0x2f431806ad2fe478, 0x2b4d00993dfbd7a7,
                        0x2b8324804fc1df0b);
  }
  // 1 / 2.
  static Element Half() {
    return FromConstant(0xfffffffffffffff7, 0xffffffffffffffff, 0xffffffffffffffff,
                        0x3fffffffffffffff);
  }
  static constexpr uint64_t kMontgomeryA = 486662;

  static Element Minus(const Element& a) {
    return Field::Sub(Field::Loose(Field::Constant(0)), Field::Loose(a));
  }

  // The affine Edwards point with u, or false if u is on the twist. All lanes are the same.
  static bool ToEdwards(const Element& u, AffinePoint& p) {
    const Product loose_u = Field::Loose(u), one = Field::Loose(Field::Constant(1));
    // x^2 = n / m; m is never zero, since A^2 - 4 is no square.
    const Element n = Minus(Tight(Mul(u, Field::Constant(kMontgomeryA + 2))));
    const Product u2 = Mul(u, u), au = Mul(u, Field::Constant(kMontgomeryA));
    const Element m = Tight(Field::Loose(Field::Add(Field::Loose(Field::Add(u2, au)), one)));
    // RFC 8032, section 5.1.3: root = n m^3 (n m^7)^((p - 5) / 8), up to a root of -1.
    const Element m3 = Tight(Mul(SquareTimes(m, 1), m));
    const Element nm7 = Tight(Mul(Tight(Mul(SquareTimes(m3, 1), m)), n));
    Element unused;
    const Element power = Tight(Mul(SquareTimes(PowerCore(nm7, unused), 2), nm7));
    const Element root = Tight(Mul(Tight(Mul(n, m3)), power));
    const Product check = Mul(SquareTimes(root, 1), m);  // n, -n, or neither
    const Product loose_n = Field::Loose(n);
    const Mask direct = IsZero(Field::Sub(check, loose_n));
    const Mask turned = IsZero(Field::Add(check, loose_n));
    if (!Vec::FirstLane(direct) && !Vec::FirstLane(turned)) return false;
    p.x = Field::Select(direct, root, Tight(Mul(root, SqrtOfMinusOne())));
    const Element inverse = Invert(Tight(Field::Loose(Field::Add(loose_u, one))));
    p.y = Tight(Mul(Field::Sub(loose_u, one), inverse));
    return true;
  }

  static NielsPoint ToNiels(const AffinePoint& p) {
    const Product x = Field::Loose(p.x), y = Field::Loose(p.y);
    return {Tight(Mul(Field::Add(y, x), Half())), Tight(Mul(Field::Sub(y, x), Half())),
            Tight(Mul(Tight(Mul(p.x, p.y)), D()))};
  }

  // p += q, where q's halves are scaled so that twice the product of the z is `zz`.
  SHOAL_INLINE static void AddScaled(Point& p, const NielsPoint& q, const Product& zz) {
    const Product a = Field::Mul(Field::Sub(p.y, p.x), q.minus);
    const Product b = Field::Mul(Field::Add(p.y, p.x), q.plus);
    const Product c = Field::Mul(Tight(p.t), q.dt);
    const Element e = Field::Sub(b, a), f = Field::Sub(zz, c);
    const Element g = Field::Add(zz, c), h = Field::Add(b, a);
    const typename Field::Factor factor_f = Field::Prepare(f), factor_h = Field::Prepare(h);
    p.x = Field::Mul(e, factor_f);
    p.z = Field::Mul(g, factor_f);
    p.y = Field::Mul(g, factor_h);
    p.t = Field::Mul(e, factor_h);
  }

  SHOAL_NOINLINE static void AddNiels(Point& p, const NielsPoint& q) { AddScaled(p, q, p.z); }

  SHOAL_NOINLINE static void AddPoint(Point& p, const Point& q) {
    const Element dt = Tight(Mul(Tight(q.t), D()));
    const NielsPoint niels = {Field::Add(q.y, q.x), Field::Sub(q.y, q.x),
                              Tight(Field::Loose(Field::Add(Field::Loose(dt), Field::Loose(dt))))};
    const Product zz = Mul(Tight(p.z), Tight(q.z));
    AddScaled(p, niels, Field::Loose(Field::Add(zz, zz)));
  }

  SHOAL_NOINLINE static void Double(Point& p) {
    // Hisil et al., section 3.3, with every sign turned.
    const Product a = Field::Square(Tight(p.x)), b = Field::Square(Tight(p.y));
    const Product zz = Field::Square(Tight(p.z));
    const Product xy = Field::Square(Field::Add(p.x, p.y));
    const Product sum = Field::Loose(Field::Add(a, b));
    const Product difference = Field::Loose(Field::Sub(a, b));
    const Element e = Field::Sub(sum, xy), g = Tight(difference), h = Tight(sum);
    const Element f = Field::Add(Field::Loose(Field::Add(zz, zz)), difference);
    const typename Field::Factor factor_f = Field::Prepare(f), factor_h = Field::Prepare(h);
    p.x = Field::Mul(e, factor_f);
    p.z = Field::Mul(g, factor_f);
    p.y = Field::Mul(g, factor_h);
    p.t = Field::Mul(e, factor_h);
  }

  static Point Negated(const Point& p) {
    return {Field::Loose(Minus(Tight(p.x))), p.y, p.z, Field::Loose(Minus(Tight(p.t)))};
  }

  static Point Broadcast(const Point& p) {
    return {Field::BroadcastFirst(p.x), Field::BroadcastFirst(p.y), Field::BroadcastFirst(p.z),
            Field::BroadcastFirst(p.t)};
  }

  // if (mask) to = from.
  static void MoveIf(Mask mask, const Product& from, Product& to) {
    to = Field::Loose(Field::Select(mask, Tight(from), Tight(to)));
  }

  // Turns `count` points, in groups of lanes, into table entries, row after row.
  SHOAL_NOINLINE static void StoreRows(const Point* points, size_t count, bool last, Row* rows) {
    Element z[kMaxStored], prefix[kMaxStored];
    for (size_t i = 0; i < count; ++i) z[i] = Tight(points[i].z);
    InvertAll(z, prefix, count);
    for (size_t i = 0; i < count; ++i) {
      const size_t row = i * kLanes / kEntries, entry = i * kLanes % kEntries;
      const Product loose_x = Mul(Tight(points[i].x), z[i]);
      const Product loose_y = Mul(Tight(points[i].y), z[i]);
      const Element xy = Tight(Mul(Tight(loose_x), Tight(loose_y)));
      const bool constant_row = last && row == kRowsAtATime - 1;
      const Element column[3] = {Tight(Mul(Field::Add(loose_y, loose_x), Half())),
                                 Tight(Mul(Field::Sub(loose_y, loose_x), Half())),
                                 constant_row ? xy : Tight(Mul(xy, D()))};
      for (int c = 0; c < 3; ++c) {
        Vec word[4];
        Field::ToWords(column[c], word);
        Field::StoreEntries(rows[row], c, entry, Field::FromWords(word));
      }
    }
  }

  // The last row's entry is the first sum: x y in place of d x y, no addition, no sign.
  SHOAL_NOINLINE static void Start(const Row& row, const Vec scalar[4], Point& sum) {
    constexpr int kBit = 3 + 6 * (kRows - 1) - 192;
    const typename Vec::Index index =
        Vec::MakeIndex(scalar[3].template Srl<kBit>() & Vec::Set1(31));
    const Product plus = Field::Loose(Field::LookUp(row, 0, index));
    const Product minus = Field::Loose(Field::LookUp(row, 1, index));
    sum.x = Field::Loose(Field::Sub(plus, minus));
    sum.y = Field::Loose(Field::Add(plus, minus));
    sum.z = Field::Loose(Field::Constant(1));
    sum.t = Field::Loose(Field::LookUp(row, 2, index));
  }

  SHOAL_NOINLINE static void AddDigit(const Row& row, int i, const Vec scalar[4], Point& sum) {
    const int word = (3 + 6 * i) / 64, shift = (3 + 6 * i) % 64;
    Vec digit = scalar[word].SrlBy(shift);
    if (shift > 64 - 6) digit = digit | scalar[word + 1].SllBy(64 - shift);
    const Vec top = Vec::Set1(32), low = Vec::Set1(31);
    const Mask negative = Vec::TestBits(digit ^ top, top);
    const typename Vec::Index index =
        Vec::MakeIndex((digit ^ Vec::Select(negative, low, Vec::Set1(0))) & low);
    const Element plus = Field::LookUp(row, 0, index), minus = Field::LookUp(row, 1, index);
    const NielsPoint entry = {Field::Select(negative, minus, plus),
                              Field::Select(negative, plus, minus),
                              Field::NegateIf(negative, Field::LookUp(row, 2, index))};
    AddScaled(sum, entry, sum.z);
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_CURVE_BATCH_H_
