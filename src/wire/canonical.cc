#include "src/wire/canonical.h"

#include <bit>
#include <cstdint>

namespace shoal::wire {

void AppendNoise(const NoiseParameters& noise, Transcript& transcript) {
  const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  transcript.U64(static_cast<uint64_t>(noise.mechanism()))
      .U64(bits(noise.epsilon()))
      .U64(bits(noise.delta()))
      .U64(noise.phi())
      .U64(noise.mode())
      .U64(bits(noise.left_scale()))
      .U64(bits(noise.right_scale()));
}

bool SameNoise(const NoiseParameters& a, const NoiseParameters& b) {
  const auto digest = [](const NoiseParameters& noise) {
    Transcript transcript("shoal noise parameters v1");
    AppendNoise(noise, transcript);
    return transcript.Finish();
  };
  return digest(a) == digest(b);
}

}  // namespace shoal::wire
