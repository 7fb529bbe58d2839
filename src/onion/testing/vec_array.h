// Any number of lanes of 32 or 64 bits in plain C++, for the kernels' symmetric templates: so
// valgrind sees the formulas of AVX-512, which it lacks, and every machine can test sixteen lanes.
#ifndef SHOAL_SRC_ONION_TESTING_VEC_ARRAY_H_
#define SHOAL_SRC_ONION_TESTING_VEC_ARRAY_H_

#include <cstddef>
#include <cstdint>

namespace shoal::onion::testing {

template <typename WordType, size_t kCount>
struct VecArray {
  static constexpr size_t kLanes = kCount;
  static constexpr int kWordBits = 8 * sizeof(WordType);
  using Word = WordType;
  Word v[kLanes];

  static VecArray Set1(Word a) {
    return Map([&](size_t) { return a; });
  }
  static VecArray Load(const Word* from) {
    return Map([&](size_t i) { return from[i]; });
  }
  void Store(Word* to) const {
    for (size_t i = 0; i < kLanes; ++i) to[i] = v[i];
  }
  friend VecArray operator+(VecArray a, VecArray b) {
    return Map([&](size_t i) { return a.v[i] + b.v[i]; });
  }
  friend VecArray operator^(VecArray a, VecArray b) {
    return Map([&](size_t i) { return a.v[i] ^ b.v[i]; });
  }
  friend VecArray operator&(VecArray a, VecArray b) {
    return Map([&](size_t i) { return a.v[i] & b.v[i]; });
  }
  friend VecArray operator|(VecArray a, VecArray b) {
    return Map([&](size_t i) { return a.v[i] | b.v[i]; });
  }
  template <int kBits>
  VecArray Srl() const {
    return Map([&](size_t i) { return v[i] >> kBits; });
  }
  template <int kBits>
  VecArray Sll() const {
    return Map([&](size_t i) { return v[i] << kBits; });
  }
  template <int kBits>
  VecArray RotateRight() const {
    return Map([&](size_t i) { return v[i] >> kBits | v[i] << (kWordBits - kBits); });
  }
  static VecArray Mul32(VecArray a, VecArray b) {
    return Map([&](size_t i) { return (a.v[i] & 0xffffffff) * (b.v[i] & 0xffffffff); });
  }

  static VecArray Xor(VecArray a, VecArray b, VecArray c) { return a ^ b ^ c; }
  static VecArray Choose(VecArray a, VecArray b, VecArray c) { return (a & (b ^ c)) ^ c; }
  static VecArray Majority(VecArray a, VecArray b, VecArray c, VecArray&) {
    return (a & b) | (a & c) | (b & c);
  }

 private:
  template <typename Function>
  static VecArray Map(const Function& function) {
    VecArray result;
    for (size_t i = 0; i < kLanes; ++i) result.v[i] = static_cast<Word>(function(i));
    return result;
  }
};

}  // namespace shoal::onion::testing

#endif  // SHOAL_SRC_ONION_TESTING_VEC_ARRAY_H_
