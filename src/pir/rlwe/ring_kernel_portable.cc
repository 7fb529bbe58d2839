// One lane of 64 bits.
#include <algorithm>
#include <cstring>

#include "src/pir/rlwe/ring_kernel_impl.h"

namespace shoal::pir::rlwe {
namespace {

struct Lane {
  static constexpr size_t kLanes = 1;
  static constexpr size_t kTogether = 1;
  uint64_t v;

  static Lane Load(const uint32_t* from) { return {from[0] + (uint64_t{from[1]} << 32)}; }
  void Store(uint32_t* to) const {
    to[0] = static_cast<uint32_t>(v);
    to[1] = static_cast<uint32_t>(v >> 32);
  }
  static Lane Repeat(uint64_t value) { return {value}; }
  static Lane Multiply(Lane a, Lane b) {
    return {uint64_t{static_cast<uint32_t>(a.v)} * static_cast<uint32_t>(b.v)};
  }
  static Lane Add(Lane a, Lane b) { return {a.v + b.v}; }
  static Lane Subtract(Lane a, Lane b) { return {a.v - b.v}; }
  static Lane Halves(uint32_t low, uint32_t high) { return {low + (uint64_t{high} << 32)}; }
  static Lane Subtract32(Lane a, Lane b) {
    return Halves(static_cast<uint32_t>(a.v) - static_cast<uint32_t>(b.v),
                  static_cast<uint32_t>(a.v >> 32) - static_cast<uint32_t>(b.v >> 32));
  }
  static Lane Add32(Lane a, Lane b) {
    return Halves(static_cast<uint32_t>(a.v) + static_cast<uint32_t>(b.v),
                  static_cast<uint32_t>(a.v >> 32) + static_cast<uint32_t>(b.v >> 32));
  }
  static Lane MultiplyLow32(Lane a, Lane b) {
    return Halves(static_cast<uint32_t>(a.v) * static_cast<uint32_t>(b.v),
                  static_cast<uint32_t>(a.v >> 32) * static_cast<uint32_t>(b.v >> 32));
  }
  static Lane Right(Lane a, uint32_t bits) { return {a.v >> bits}; }
  static Lane Left(Lane a, uint32_t bits) { return {a.v << bits}; }
  static Lane And(Lane a, Lane b) { return {a.v & b.v}; }
  static Lane Min32(Lane a, Lane b) {
    return Halves(std::min(static_cast<uint32_t>(a.v), static_cast<uint32_t>(b.v)),
                  std::min(static_cast<uint32_t>(a.v >> 32), static_cast<uint32_t>(b.v >> 32)));
  }
};

}  // namespace

const RingKernel& PortableRingKernel() {
  static constexpr RingKernel kernel = RingKernelOf<Lane>::Make("portable");
  return kernel;
}

}  // namespace shoal::pir::rlwe
