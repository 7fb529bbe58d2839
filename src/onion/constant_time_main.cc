// Seals and opens with secrets that are marked as uninitialised for valgrind: memcheck then reports
// every branch and every address that depends on them. constant_time_test.sh runs it.
//
//   constant_time_main            every kernel; silence is success
//   constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered is what valgrind 3.19, which has no AVX-512, can execute: the AVX2 kernel, and the
// templates of the AVX-512 kernel in plain C++ (the same formulas over the scalar vector type).
#include <cstdio>
#include <cstring>
#include <string>

#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/onion/curve_batch.h"
#include "src/onion/dispatch.h"
#include "src/onion/field51.h"
#include "src/onion/field51_fma.h"
#include "src/onion/sealed_box.h"
#include "src/onion/testing/vec_scalar.h"
#include "valgrind/memcheck.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::VecScalar;

constexpr size_t kItems = 5;

template <typename Field>
const Kernel* ScalarKernel(const char* name) {
  using Batch = CurveBatch<Field>;
  static const Kernel kernel = {name,
                                Batch::Multiply,
                                sizeof(typename Batch::Table),
                                Batch::BuildTable,
                                Batch::MultiplyFixed,
                                nullptr,
                                nullptr};
  return &kernel;
}

// Both multiplications with secret scalars, against libsodium.
void RunKernel(const Kernel& kernel) {
  uint8_t scalars[kItems * 32], point[32];
  randombytes_buf(scalars, sizeof scalars);
  const uint8_t one[32] = {1};
  SHOAL_CHECK(crypto_scalarmult_base(point, one) == 0);
  TableMemory table = AllocateTable(kernel);
  SHOAL_CHECK(kernel.build_table(point, table.get()));

  uint8_t secret[sizeof scalars], ladder[sizeof scalars], comb[sizeof scalars];
  std::memcpy(secret, scalars, sizeof scalars);
  VALGRIND_MAKE_MEM_UNDEFINED(secret, sizeof secret);
  kernel.multiply(secret, 32, point, 0, ladder, kItems);
  const void* tables[1] = {table.get()};
  uint8_t* products[1] = {comb};
  kernel.multiply_fixed(tables, 1, secret, 32, products, kItems);
  VALGRIND_MAKE_MEM_DEFINED(ladder, sizeof ladder);
  VALGRIND_MAKE_MEM_DEFINED(comb, sizeof comb);
  for (size_t i = 0; i < kItems; ++i) {
    uint8_t expected[32];
    SHOAL_CHECK(crypto_scalarmult(expected, scalars + i * 32, point) == 0);
    SHOAL_CHECK(std::memcmp(ladder + i * 32, expected, 32) == 0);
    SHOAL_CHECK(std::memcmp(comb + i * 32, expected, 32) == 0);
  }
  std::printf("%s: ladder and comb\n", kernel.name);
}

// A whole seal, the symmetric part too, with secret scalars and messages.
void RunSeal() {
  uint8_t key[32], secrets[kItems * 32], messages[kItems * 80], boxes[kItems * 128];
  randombytes_buf(key, sizeof key);
  randombytes_buf(secrets, sizeof secrets);
  randombytes_buf(messages, sizeof messages);
  const KeyPair pair = KeyPairFromSecret(key);
  const Recipient recipient = Recipient::Create(pair.public_key).value();
  VALGRIND_MAKE_MEM_UNDEFINED(secrets, sizeof secrets);
  VALGRIND_MAKE_MEM_UNDEFINED(messages, sizeof messages);
  SealBatch(recipient, {secrets, 32, 32}, {messages, 80, 80}, {boxes, 128, 128}, kItems);
  VALGRIND_MAKE_MEM_DEFINED(boxes, sizeof boxes);
  uint8_t message[80];
  VALGRIND_MAKE_MEM_DEFINED(messages, sizeof messages);
  for (size_t i = 0; i < kItems; ++i) {
    SHOAL_CHECK(crypto_box_seal_open(message, boxes + i * 128, 128, pair.public_key.data(), key) ==
                0);
    SHOAL_CHECK(std::memcmp(message, messages + i * 80, 80) == 0);
  }
  std::printf("%s: seal\n", std::string(NameOf(ActiveInstructionSet())).c_str());
}

int Leak() {
  uint8_t secret = 1;
  VALGRIND_MAKE_MEM_UNDEFINED(&secret, 1);
  if (secret != 0) std::printf("leaked\n");
  return 0;
}

}  // namespace
}  // namespace shoal::onion

int main(int argc, char** argv) {
  using namespace shoal::onion;  // NOLINT: a program of one page
  SHOAL_CHECK(sodium_init() >= 0);
  if (argc > 1 && std::strcmp(argv[1], "--leak") == 0) return Leak();
  RunKernel(*ScalarKernel<Field51<VecScalar>>("scalar51"));
  RunKernel(*ScalarKernel<Field51Fma<VecScalar>>("scalar51fma"));
  for (shoal::InstructionSet set : shoal::kAllInstructionSets) {
    if (!shoal::IsSupported(set) || set == shoal::InstructionSet::kPortable) continue;
    RunKernel(*KernelOf(set));
    shoal::UseInstructionSet(set);
    RunSeal();
  }
  return 0;
}
