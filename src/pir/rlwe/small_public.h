// What a query of Small PIR has in common with all others of its table: the public parts of its
// ring elements, which are derived from the table's id, and the tree by which they are unpacked.
//
//   element  part                                              message
//   0..9     key of the automorphism tau: X -> X^65            -tau(s) 2^(drop + 5 i)
//   10..12   key of the secret's square                        s^2 2^(drop + 16 i)
//   13..     positions of the first stage, 2^pack_log each     Delta / 2^pack_log at a coefficient
//   ..       values of the second stage, 16 each               bit 2^(drop + 5 i) / 16
//
// Each element is a pair (a, b) with b = a s + e + message: a is public, b is sent.
#ifndef SHOAL_SRC_PIR_RLWE_SMALL_PUBLIC_H_
#define SHOAL_SRC_PIR_RLWE_SMALL_PUBLIC_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/bytes.h"
#include "src/pir/rlwe/params.h"
#include "src/pir/rlwe/small_kernel.h"
#include "src/pir/rlwe/small_shape.h"

namespace shoal::pir::rlwe {

// Words of a ring element, prime after prime. In the domain of the transforms unless a name says
// `coefficients`.
inline constexpr size_t kPolynomialWords = kPrimes * kDegree;

// Transcript("shoal small pir public parts v1") over the table's id.
Digest SmallPublicSeed(const wire::PirSetup& setup);

// The public part of an element: words that are uniform below the primes, from the seed's stream
// of that number.
void ExpandSmallPublic(const Digest& seed, uint32_t element, std::span<uint32_t> out);

// Constants of the ring in the domain of the transforms. Immutable; Get() makes them once.
class UnpackConstants {
 public:
  static const UnpackConstants& Get();

  // out = tau(in), which may not be the same.
  void Apply(const uint32_t* in, uint32_t* out) const;
  // X^-(2^level), level < kPackLog.
  const uint32_t* InverseMonomial(uint32_t level) const {
    return monomials_.data() + level * kPolynomialWords;
  }

 private:
  UnpackConstants();
  std::vector<uint32_t> from_;  // [prime][word]: where tau takes a word from
  std::vector<uint32_t> monomials_;
};

// Unpacks an element with room for 2^log values, value v at coefficient v 2^(kPackLog - log), of
// which `count` are wanted:
//
//   apply(polynomial)   replaces a polynomial by what a step of tau makes of it
//   leaf(v, polynomial) takes value v, in an order that count and log decide
//
// At level t, from kPackLog - log on, a node's polynomial c becomes c + tau^(2^(5 - t)) c, with the
// values whose coefficient is no odd multiple of 2^t, and (c - tau^.. c) X^-(2^t), with the others.
// A leaf is 2^log times the value. Subtrees without wanted values are left out.
template <typename Apply, typename Leaf>
void UnpackTree(uint32_t log, uint64_t count, std::span<const uint32_t> packed, const Apply& apply,
                const Leaf& leaf);

// a + b and (a - b) c, word by word.
void AddPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out);
void SubtractPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out);
void MultiplyPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out);

// ---------------------------------------------------------------------------------------------

namespace internal {

template <typename Apply, typename Leaf>
void UnpackNode(uint32_t log, uint64_t count, uint32_t depth, uint64_t value, uint32_t* nodes,
                const Apply& apply, const Leaf& leaf) {
  uint32_t* const node = nodes;
  if (depth == log) {
    leaf(value, node);
    return;
  }
  uint32_t* const image = nodes + kPolynomialWords;
  std::copy_n(node, kPolynomialWords, image);
  for (uint32_t i = 0; i < (1u << (log - 1 - depth)); ++i) apply(image);
  // Depth first: the second child waits in the node's place.
  const uint64_t second = value + (uint64_t{1} << depth);
  if (second < count) {
    uint32_t* const rest = image + kPolynomialWords;
    SubtractPolynomials(node, image, rest);
    AddPolynomials(node, image, image);
    MultiplyPolynomials(rest, UnpackConstants::Get().InverseMonomial(kPackLog - log + depth), node);
    UnpackNode(log, count, depth + 1, value, image, apply, leaf);
    UnpackNode(log, count, depth + 1, second, node, apply, leaf);
  } else {
    AddPolynomials(node, image, image);
    UnpackNode(log, count, depth + 1, value, image, apply, leaf);
  }
}

}  // namespace internal

template <typename Apply, typename Leaf>
void UnpackTree(uint32_t log, uint64_t count, std::span<const uint32_t> packed, const Apply& apply,
                const Leaf& leaf) {
  std::vector<uint32_t> nodes((kPackLog + 3) * kPolynomialWords);
  std::ranges::copy(packed, nodes.begin());
  internal::UnpackNode(log, count, 0, 0, nodes.data(), apply, leaf);
}

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_SMALL_PUBLIC_H_
