// How what a simulation has found passes from its process to the one that has begun it.
#ifndef SHOAL_SRC_SIM_OUTCOME_BYTES_H_
#define SHOAL_SRC_SIM_OUTCOME_BYTES_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "src/base/bytes.h"

namespace shoal::sim {

inline void Put(Bytes& out, uint64_t number) { AppendLe(out, number); }
inline void Put(Bytes& out, const std::string& text) {
  Put(out, text.size());
  Append(out, AsBytes(text));
}

// What Put has written; zeros and empty texts once it ends.
class OutcomeReader {
 public:
  explicit OutcomeReader(BytesView bytes) : bytes_(bytes) {}
  uint64_t Number() {
    if (bytes_.size() < 8) return 0;
    const uint64_t number = LoadLe<uint64_t>(bytes_.data());
    bytes_ = bytes_.subspan(8);
    return number;
  }
  std::string Text() {
    const size_t size = std::min<uint64_t>(Number(), bytes_.size());
    std::string text(AsText(bytes_.first(size)));
    bytes_ = bytes_.subspan(size);
    return text;
  }

 private:
  BytesView bytes_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_OUTCOME_BYTES_H_
