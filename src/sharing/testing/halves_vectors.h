// The vectors of two tiers, which src/sharing/halves_vectors.py makes.
#ifndef SHOAL_SRC_SHARING_TESTING_HALVES_VECTORS_H_
#define SHOAL_SRC_SHARING_TESTING_HALVES_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "src/base/bytes.h"

namespace shoal::sharing::testing {

// One query, of a round whose id is 32 bytes 09.
struct HalvesVector {
  std::string name;
  uint64_t rows = 0, buckets = 0;
  size_t answer_bytes = 0;
  uint32_t row = 0;
  std::map<std::string, Bytes> bytes;
  const Bytes& at(const std::string& key) const { return bytes.at(key); }
};

inline std::vector<HalvesVector> ReadHalvesVectors() {
  std::ifstream file("src/sharing/testdata/halves.txt");
  std::vector<HalvesVector> vectors;
  for (std::string key; file >> key;) {
    if (key == "case") {
      HalvesVector& next = vectors.emplace_back();
      file >> next.name >> next.rows >> next.buckets >> next.answer_bytes >> next.row;
    } else {
      std::string hex;
      file >> hex;
      vectors.back().bytes[key] = ToBytes(AsBytes(absl::HexStringToBytes(hex)));
    }
  }
  return vectors;
}

// A row | signature of their tables.
inline Bytes HalvesTableRow(uint64_t row, size_t bytes) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(row * row + 7 * row * i + i);
  return out;
}

}  // namespace shoal::sharing::testing

#endif  // SHOAL_SRC_SHARING_TESTING_HALVES_VECTORS_H_
