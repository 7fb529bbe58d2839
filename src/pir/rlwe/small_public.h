// What a query of Small PIR has in common with all others: the public parts of its ring elements,
// and the tree by which they are unpacked.
//
//   element  part                                              message
//   0..10    key of the automorphism tau: X -> X^65            -tau(s) 2^(5 i)
//   11..14   key of the secret's square                        s^2 2^(14 i)
//   15..     positions of the first stage, 2^pack_log each     Delta / 2^pack_log at a coefficient
//   ..       values of the second stage, 16 each               bit FoldStep(i) / 16
//
// Each element is a pair (a, b) with b = a s + e + message: a is public, b is sent. The public
// parts are constants, as the proof of correctness needs their digits (docs/small-pir.md).
#ifndef SHOAL_SRC_PIR_RLWE_SMALL_PUBLIC_H_
#define SHOAL_SRC_PIR_RLWE_SMALL_PUBLIC_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/bytes.h"
#include "src/pir/rlwe/params.h"
#include "src/pir/rlwe/ring_kernel.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/small_shape.h"

namespace shoal::pir::rlwe {

// The public part of an element of queries of a shape: of the seed that is the hash of nothing
// under the domain "shoal small pir public parts v2", the stream of the element's number; for
// positions 32, 33 .. and for values 16, 17 .. instead, so that they do not depend on the shape.
void SmallPublicPart(const SmallShape& shape, uint32_t element, std::span<uint32_t> out);

// The seed of a query's dither: what makes the digits of folded ciphertexts independent of its
// secret and errors. A function of the whole query, so that an answer is one, too.
Digest SmallDitherSeed(BytesView query);

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
  // Which words modulo prime k are in its orbits (ring_kernel.h), orbit after orbit. Four of them
  // share the kernel's blocks.
  std::span<const uint32_t> Orbits(uint32_t k) const {
    return std::span(orbits_).subspan(k * kDegree, kDegree);
  }

 private:
  UnpackConstants();
  std::vector<uint32_t> from_;    // [prime][word]: where tau takes a word from
  std::vector<uint32_t> orbits_;  // [prime][orbit][place]
  std::vector<uint32_t> monomials_;
};

// Unpacks an element with room for 2^log values, value v at coefficient v 2^(kPackLog - log), of
// which `count` are wanted; or some words of it, or those of several queries side by side:
//
//   apply(words)                      replaces words by what a step of tau makes of them
//   split(level, both, node, image)   image becomes node + image; if both are wanted, node becomes
//                                     (node - image) X^-(2^level)
//   leaf(v, words)                    takes value v, in an order that count and log decide
//
// At level t, from kPackLog - log on, a node's polynomial c becomes c + tau^(2^(5 - t)) c, with the
// values whose coefficient is no odd multiple of 2^t, and (c - tau^.. c) X^-(2^t), with the others.
// A leaf is 2^log times the value. Subtrees without wanted values are left out.
template <typename Apply, typename Split, typename Leaf>
void UnpackTree(uint32_t log, uint64_t count, std::span<const uint32_t> packed, const Apply& apply,
                const Split& split, const Leaf& leaf);

// The `split` of whole polynomials.
void SplitPolynomials(uint32_t level, bool both, uint32_t* node, uint32_t* image);

// ---------------------------------------------------------------------------------------------

namespace internal {

template <typename Apply, typename Split, typename Leaf>
void UnpackNode(uint32_t log, uint64_t count, uint32_t depth, uint64_t value, uint32_t* node,
                size_t words, const Apply& apply, const Split& split, const Leaf& leaf) {
  if (depth == log) {
    leaf(value, node);
    return;
  }
  uint32_t* const image = node + words;
  std::copy_n(node, words, image);
  for (uint32_t i = 0; i < (1u << (log - 1 - depth)); ++i) apply(image);
  // Depth first: the second child waits in the node's place.
  const uint64_t second = value + (uint64_t{1} << depth);
  split(kPackLog - log + depth, second < count, node, image);
  UnpackNode(log, count, depth + 1, value, image, words, apply, split, leaf);
  if (second < count) {
    UnpackNode(log, count, depth + 1, second, node, words, apply, split, leaf);
  }
}

}  // namespace internal

template <typename Apply, typename Split, typename Leaf>
void UnpackTree(uint32_t log, uint64_t count, std::span<const uint32_t> packed, const Apply& apply,
                const Split& split, const Leaf& leaf) {
  std::vector<uint32_t> nodes((kPackLog + 1) * packed.size());
  std::ranges::copy(packed, nodes.begin());
  internal::UnpackNode(log, count, 0, 0, nodes.data(), packed.size(), apply, split, leaf);
}

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_SMALL_PUBLIC_H_
