// A deterministic RandomSource, for tests alone (BUILD keeps it testonly).
#ifndef SHOAL_SRC_BASE_TESTING_TEST_RANDOM_H_
#define SHOAL_SRC_BASE_TESTING_TEST_RANDOM_H_

#include <cstdint>

#include "src/base/random.h"

namespace shoal::testing {

// The same number gives the same stream, on every machine.
class TestRandom final : public RandomSource {
 public:
  explicit TestRandom(uint64_t number) : stream_(Key(number), "shoal test random", number) {}
  void Fill(MutableBytes out) override { stream_.Fill(out); }

 private:
  static BytesView Key(uint64_t) {
    static constexpr uint8_t kKey[32] = {};
    return kKey;
  }
  SeededRandom stream_;
};

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_TEST_RANDOM_H_
