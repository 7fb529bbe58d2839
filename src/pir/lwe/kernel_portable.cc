// Plain C++: planes are the words themselves.
#include <cstring>

#include "src/pir/lwe/kernel.h"
#include "src/pir/lwe/kernel_impl.h"

namespace shoal::pir::lwe {
namespace {

void Pack(const uint32_t* vector, size_t groups, uint8_t* planes) {
  std::memcpy(planes, vector, groups * kGroupPlaneBytes);
}

void Multiply(const uint8_t* tiles, size_t blocks, size_t groups, const uint8_t* planes,
              size_t vectors, uint32_t* sums, size_t sums_stride, const uint8_t*, size_t) {
  const size_t block_bytes = groups * kGroupTileBytes;
  for (size_t v = 0; v < vectors; ++v) {
    const uint32_t* vector =
        reinterpret_cast<const uint32_t*>(planes + v * groups * kGroupPlaneBytes);
    for (size_t b = 0; b < blocks; ++b) {
      for (size_t r = 0; r < kBlockRows; ++r) {
        uint32_t sum = 0;
        for (size_t g = 0; g < groups; ++g) {
          const uint8_t* bytes = tiles + b * block_bytes + g * kGroupTileBytes + r * kGroupColumns;
          const uint32_t* q = vector + g * kGroupColumns;
          for (size_t j = 0; j < kGroupColumns; ++j) sum += bytes[j] * q[j];
        }
        sums[v * sums_stride + b * kBlockRows + r] += sum;
      }
    }
  }
}

}  // namespace

const Kernel& PortableKernel() {
  static constexpr Kernel kKernel = {
      .name = "portable",
      .pack = Pack,
      .multiply = Multiply,
      .add_scaled = AddScaledLoop,
      .dot = DotLoop,
      .count_thresholds = CountThresholdsLoop,
  };
  return kKernel;
}

}  // namespace shoal::pir::lwe
