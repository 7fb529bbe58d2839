// The parameters of the ring engines (docs/small-pir.md): the one place that code, tests and the
// security estimate (experiments/lwe) read them from.
//
//   R = Z[X] / (X^d + 1), d = 2048; the modulus of keys and packing is Q = q0 q1 < 2^54, of two
//   primes below 2^27 that are 1 modulo 2 d, so that each has number-theoretic transforms.
//   Secrets and errors are discrete Gaussians of width lwe::kSigma = 16.
#ifndef SHOAL_SRC_PIR_RLWE_PARAMS_H_
#define SHOAL_SRC_PIR_RLWE_PARAMS_H_

#include <cstddef>
#include <cstdint>

namespace shoal::pir::rlwe {

inline constexpr uint32_t kLogDegree = 11;
inline constexpr uint32_t kDegree = 1u << kLogDegree;  // d
inline constexpr uint32_t kPrimeBits = 27;
inline constexpr size_t kPrimes = 2;
// The two largest primes below 2^27 that are 1 modulo 4096, and for each a number of order 4096.
inline constexpr uint32_t kPrime[kPrimes] = {134176769, 134111233};
inline constexpr uint32_t kRootOfUnity[kPrimes] = {51394918, 91287333};
inline constexpr uint64_t kModulus = uint64_t{kPrime[0]} * kPrime[1];  // Q

// The automorphisms X -> X^(5^j) and X -> X^(-5^j), j < d / 2, are all that R has.
inline constexpr uint32_t kOrbit = kDegree / 2;

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_PARAMS_H_
