// Packs 2048 answers of the first stage, each a ciphertext modulo 2^32 under the ring's secret,
// into one ciphertext of the ring (docs/hintless.md). All but the bodies is public, and made once
// for an epoch.
//
//   ciphertext r      body_r - coefficient 0 of alpha_r(X) s(X)
//   over all r        B(X) - sum over automorphisms t of A_t(X) t(s)(X),
//                     B = sum of body_r X^r,  A_t = (1 / d) sum of X^r t(alpha_r)
//   masks A_t         go one after the other, along two chains t = +-5^i, i = 1023 .. 1, to the
//                     next one's secret, by the key of X -> X^5: A = 2^27 D + remainder, D is kept,
//                     and -D times the key's mask is added to the next A. The end of the second
//                     chain, under the image of s under X -> X^-1, does so by the key of X -> X^-1
//   bodies            B less the sum of all D times the bodies of the keys: `slide`
//   (ring_kernel.h)
#ifndef SHOAL_SRC_PIR_RLWE_HINTLESS_PACK_H_
#define SHOAL_SRC_PIR_RLWE_HINTLESS_PACK_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/pir/rlwe/hintless_shape.h"
#include "src/pir/rlwe/ring_kernel.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::rlwe {

// Makes packs under the public parts of one seed. Immutable, thread-safe.
class Packer {
 public:
  Packer(const Digest& seed, const RingKernel& kernel);

  // Two arrays of 2048 by 2048 pairs of words. A pack is made in them.
  struct Room {
    PageBuffer squares, steps;
    // RESOURCE_EXHAUSTED as AllocatePages.
    static absl::StatusOr<Room> Create();
  };
  struct Made {
    Bytes mask;  // as it is sent
    // For each of the packed values. Exact but for the arithmetic of doubles.
    std::vector<double> rotation, secret;
    double conjugation = 0;  // the same for all
    PackNorms largest() const;
  };
  // `row(r, words)` gives the kDegree coefficients modulo 2^32 of row r of the hint, r < rows.
  // Writes the digits, kPackDigitWords.
  Made Make(size_t rows, const std::function<void(size_t, uint32_t*)>& row, Room& room,
            uint32_t* digits) const;

 private:
  void TransformRows(size_t rows, const std::function<void(size_t, uint32_t*)>& row,
                     uint32_t* squares) const;
  void SpreadMasks(const uint32_t* squares, uint32_t* steps) const;
  void Collapse(uint32_t* steps, uint32_t* digits, Made& made) const;
  std::vector<double> Norms(const uint32_t* pairs, size_t count, uint32_t* squares) const;

  const RingKernel& kernel_;
  // The masks of the keys, negated, in the order of places: [prime][half][twice the half's words].
  std::vector<uint32_t> rotation_, conjugation_;
};

// The bodies of a query's keys as packing takes them (MakeSliding).
struct PackKeys {
  std::vector<uint32_t> rotation, conjugation;
};
// sums[v]: the coefficients of what is to be taken from B for the keys of query v, prime after
// prime, v < keys.size().
void SumOfPack(const RingKernel& kernel, const uint32_t* digits,
               std::span<const PackKeys* const> keys, std::vector<std::vector<uint32_t>>& sums);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_HINTLESS_PACK_H_
