// Canonical bytes of messages that several digests contain.
#ifndef SHOAL_SRC_WIRE_CANONICAL_H_
#define SHOAL_SRC_WIRE_CANONICAL_H_

#include "src/base/hash.h"
#include "src/wire/roster.pb.h"

namespace shoal::wire {

// Mechanism, bits of epsilon, bits of delta, phi, mode, bits of left_scale, bits of right_scale:
// each as U64, doubles as their IEEE-754 bits.
void AppendNoise(const NoiseParameters& noise, Transcript& transcript);

// Whether both have the same canonical bytes.
bool SameNoise(const NoiseParameters& a, const NoiseParameters& b);

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_CANONICAL_H_
