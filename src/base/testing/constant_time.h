// For programs whose secrets valgrind takes for uninitialised: memcheck then reports every branch
// and every address that depends on one (constant_time_test.sh). It executes AVX2 and AES-NI, but
// neither AVX-512 nor vector AES.
#ifndef SHOAL_SRC_BASE_TESTING_CONSTANT_TIME_H_
#define SHOAL_SRC_BASE_TESTING_CONSTANT_TIME_H_

#include <array>
#include <cstdio>
#include <cstring>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "valgrind/memcheck.h"

namespace shoal::testing {

// Of a vector, an array or a span.
template <typename T>
void MakeSecret(T& values) {
  VALGRIND_MAKE_MEM_UNDEFINED(values.data(), values.size() * sizeof(values[0]));
}
template <typename T>
void MakePublic(T& values) {
  VALGRIND_MAKE_MEM_DEFINED(values.data(), values.size() * sizeof(values[0]));
}

// The system's randomness, all of it secret.
class SecretRandom final : public RandomSource {
 public:
  void Fill(MutableBytes out) override {
    system_.Fill(out);
    MakeSecret(out);
  }

 private:
  SystemRandom system_;
};

// The main of such a program: runs everything, where silence is success; with --leak it branches on
// a secret on purpose, of which memcheck must complain.
template <typename Run>
int ConstantTimeMain(int argc, char** argv, const Run& run) {
  SHOAL_CHECK(sodium_init() >= 0);
  if (argc > 1 && std::strcmp(argv[1], "--leak") == 0) {
    std::array<uint8_t, 1> secret = {1};
    MakeSecret(secret);
    if (secret[0] == 1) std::printf("leaked\n");
    return 0;
  }
  run();
  return 0;
}

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_CONSTANT_TIME_H_
