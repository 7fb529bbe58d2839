// Inputs of X25519 at which implementations are known to differ.
#ifndef SHOAL_SRC_ONION_TESTING_EDGE_POINTS_H_
#define SHOAL_SRC_ONION_TESTING_EDGE_POINTS_H_

#include <vector>

#include "src/onion/hpke.h"

namespace shoal::onion::testing {

// Points of order 1, 2, 4 and 8 on the curve and on its twist; every u that is not reduced
// (p to 2^255 - 1); small u, p - 1, p + 1; limb boundaries of 51, 26 and 25 bits; points with a
// component of low order; and all of them once more with bit 255 set.
std::vector<PublicKey> EdgePoints();

// Extreme scalars before and after clamping, single bits, and small multiples of the order.
std::vector<PublicKey> EdgeScalars();

// The u of a point plus the point (0, 0) of order two: 1 / u. Clamped scalars are multiples of
// eight, so the product of the sum is that of the point. u must not be 0.
PublicKey PlusOrderTwo(const PublicKey& u);

}  // namespace shoal::onion::testing

#endif  // SHOAL_SRC_ONION_TESTING_EDGE_POINTS_H_
