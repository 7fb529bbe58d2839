#include "src/pir/rlwe/ring_transform.h"

#include <vector>

#include "src/pir/rlwe/params.h"
#include "src/pir/rlwe/ring_kernel_impl.h"

namespace shoal::pir::rlwe {
namespace {

constexpr uint32_t kInner = TransformTable::kInner;

uint32_t Quotient(uint64_t value, uint32_t prime) {
  return static_cast<uint32_t>((value << 32) / prime);
}

// By powers of `root`, of order 2 kDegree.
TransformTable MakeTable(uint64_t root, uint32_t prime) {
  // Node i of the level with m nodes has the power whose exponent is m + i with its bits reversed.
  std::vector<uint32_t> powers(kDegree);
  uint64_t power = 1;
  for (uint32_t e = 0; e < kDegree; ++e, power = power * root % prime) {
    uint32_t node = 0;
    for (uint32_t bit = 0; bit < kLogDegree; ++bit) {
      node |= (e >> bit & 1) << (kLogDegree - 1 - bit);
    }
    powers[node] = static_cast<uint32_t>(power);
  }
  TransformTable table;
  const auto add = [&](uint32_t value, TransformTable::Powers& to) {
    to.value.push_back(value);
    to.quotient.push_back(Quotient(value, prime));
  };
  for (uint32_t node = 0; node < TransformTable::kOuter; ++node) add(powers[node], table.outer);
  for (uint32_t block = 0; block < kDegree / (kInner * kInner); ++block) {
    for (uint32_t s = 0; s < 4; ++s) {
      for (uint32_t j = 0; j < (1u << s); ++j) {
        for (uint32_t lane = 0; lane < kInner; ++lane) {
          const uint32_t group = block * kInner + lane;
          add(powers[((TransformTable::kOuter + group) << s) + j], table.inner);
        }
      }
    }
  }
  table.last = static_cast<uint32_t>(InverseModulo(kDegree, prime));
  table.last_quotient = Quotient(table.last, prime);
  return table;
}

struct Tables {
  std::vector<TransformTable> forward, back;
  Tables() {
    for (size_t k = 0; k < kPrimes; ++k) {
      forward.push_back(MakeTable(kRootOfUnity[k], kPrime[k]));
      back.push_back(MakeTable(InverseModulo(kRootOfUnity[k], kPrime[k]), kPrime[k]));
    }
  }
};
const Tables& AllTables() {
  static const Tables tables;
  return tables;
}

}  // namespace

void Transform(uint32_t k, uint32_t* words, const RingKernel& kernel) {
  kernel.transform(k, AllTables().forward[k], words);
}

void TransformBack(uint32_t k, uint32_t* words, const RingKernel& kernel) {
  kernel.transform_back(k, AllTables().back[k], words);
}

void TransformAll(uint32_t* polynomial) {
  for (uint32_t k = 0; k < kPrimes; ++k) Transform(k, polynomial + k * kDegree);
}

void TransformAllBack(uint32_t* polynomial) {
  for (uint32_t k = 0; k < kPrimes; ++k) TransformBack(k, polynomial + k * kDegree);
}

}  // namespace shoal::pir::rlwe
