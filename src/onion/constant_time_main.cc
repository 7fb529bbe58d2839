// Seals and opens with secrets that are marked as uninitialised for valgrind: memcheck then reports
// every branch and every address that depends on them. constant_time_test.sh runs it.
//
//   constant_time_main            every kernel; silence is success
//   constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered is what valgrind 3.19, which has no AVX-512, can execute: the AVX2 kernel, and the
// templates of the AVX-512 kernel in plain C++ (the same formulas over vector types of one lane).
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/onion/chacha20_batch.h"
#include "src/onion/curve_batch.h"
#include "src/onion/dispatch.h"
#include "src/onion/field51.h"
#include "src/onion/field51_fma.h"
#include "src/onion/hpke.h"
#include "src/onion/key_schedule.h"
#include "src/onion/key_schedule_batch.h"
#include "src/onion/poly1305_batch.h"
#include "src/onion/testing/reference_hpke.h"
#include "src/onion/testing/vec_array.h"
#include "src/onion/testing/vec_scalar.h"
#include "valgrind/memcheck.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::ReferenceHpke;
using ::shoal::onion::testing::VecArray;
using ::shoal::onion::testing::VecScalar;

constexpr size_t kItems = 5;

template <typename Field>
const Kernel* ScalarKernel(const char* name) {
  using Batch = CurveBatch<Field>;
  using Schedule = KeyScheduleBatch<VecArray<uint32_t, 1>>;
  static const Kernel kernel = {name,
                                1,
                                Batch::Multiply,
                                sizeof(typename Batch::Table),
                                Batch::BuildTable,
                                Batch::MultiplyFixed,
                                Schedule::KeySchedule,
                                Schedule::ExportNumbered,
                                ChaCha20Batch<VecArray<uint32_t, 1>>::StreamBlock,
                                Poly1305Batch<VecArray<uint64_t, 1>>::Tags};
  return &kernel;
}

// Both multiplications with secret scalars, against libsodium.
void RunCurve(const Kernel& kernel) {
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

// The symmetric part with secret points, keys and messages, against libsodium.
void RunSymmetric(const Kernel& kernel) {
  uint8_t points[kItems * 32], encs[kItems * 32], keys[kItems * kKernelStreamKeyBytes];
  randombytes_buf(points, sizeof points);
  randombytes_buf(encs, sizeof encs);
  const uint8_t one[32] = {1};
  const KeyPair pair = KeyPairFromSecret(one);
  const Info info(Aead::kChaCha20Poly1305, AsBytes("info"));
  const KeySchedule schedule(&kernel, info, pair.public_key, "context");
  uint8_t secret[sizeof points], exporters[sizeof points], exports[sizeof points];
  std::memcpy(secret, points, sizeof points);
  VALGRIND_MAKE_MEM_UNDEFINED(secret, sizeof secret);
  schedule.Run(secret, encs, 32, {keys, exporters, exports, 32}, kItems);
  uint8_t blocks[kItems * 64], tags[kItems * 16], numbered[11 * 32];
  kernel.stream_block(keys, 1, blocks, kItems);
  // The keys of the tags are 32 bytes of each block, and the messages the other half.
  kernel.tags(blocks, 64, blocks + 27, 64, 37, tags, kItems);
  NumberedExports(&kernel, Aead::kChaCha20Poly1305, exporters, "slot", 7, numbered, 11);
  for (auto [memory, bytes] : {std::pair<void*, size_t>(keys, sizeof keys),
                               {exporters, sizeof exporters},
                               {exports, sizeof exports},
                               {blocks, sizeof blocks},
                               {tags, sizeof tags},
                               {numbered, sizeof numbered}}) {
    VALGRIND_MAKE_MEM_DEFINED(memory, bytes);
  }
  const auto same = [](const Bytes& expected, const uint8_t* bytes) {
    return std::memcmp(expected.data(), bytes, expected.size()) == 0;
  };
  for (size_t i = 0; i < kItems; ++i) {
    const ReferenceHpke reference(Aead::kChaCha20Poly1305, AsBytes("info"), {points + i * 32, 32},
                                  {encs + i * 32, 32}, pair.public_key);
    SHOAL_CHECK(same(reference.key(), keys + i * kKernelStreamKeyBytes));
    SHOAL_CHECK(same(reference.base_nonce(), keys + i * kKernelStreamKeyBytes + 32));
    SHOAL_CHECK(same(reference.exporter_secret(), exporters + i * 32));
    SHOAL_CHECK(same(reference.Export(AsBytes("context")), exports + i * 32));
    uint8_t tag[16];
    Bytes text(blocks + i * 64 + 27, blocks + i * 64 + 64);
    text.resize(56);  // padding, and the length of an empty aad
    AppendLe<uint64_t>(text, 37);
    crypto_onetimeauth_poly1305(tag, text.data(), text.size(), blocks + i * 64);
    SHOAL_CHECK(std::memcmp(tag, tags + i * 16, 16) == 0);
    if (i != 0) continue;
    for (uint8_t number = 7; number < 18; ++number) {
      const Bytes context = {'s', 'l', 'o', 't', number, 0, 0, 0};
      SHOAL_CHECK(same(reference.Export(context), numbered + (number - 7) * 32));
    }
  }
  std::printf("%s: key schedule, numbered exports, stream and tags\n", kernel.name);
}

void RunKernel(const Kernel& kernel) {
  RunCurve(kernel);
  RunSymmetric(kernel);
}

// Whole seals with secret scalars and messages: in batches, and of a context.
void RunSeal() {
  constexpr size_t kBox = 80 + kSealBytes;
  uint8_t key[32], secrets[kItems * 32], messages[kItems * 80], boxes[kItems * kBox];
  uint8_t exports[kItems * 32], encs[kItems * 32], sealed[kItems * 80 + kTagBytes];
  randombytes_buf(key, sizeof key);
  randombytes_buf(secrets, sizeof secrets);
  randombytes_buf(messages, sizeof messages);
  const KeyPair pair = KeyPairFromSecret(key);
  const Recipient recipient = Recipient::Create(pair.public_key).value();
  const Info info(Aead::kChaCha20Poly1305, AsBytes("info"));
  VALGRIND_MAKE_MEM_UNDEFINED(secrets, sizeof secrets);
  VALGRIND_MAKE_MEM_UNDEFINED(messages, sizeof messages);
  SealBatch(recipient, info, "seed", {secrets, 32, 32}, {messages, 80, 80}, {boxes, kBox, kBox},
            {exports, 32, 32}, kItems);
  ExportBatch(recipient, info, "seed", {secrets, 32, 32}, {encs, 32, 32}, {exports, 32, 32},
              kItems);
  Context contexts[kItems];
  SenderContexts(recipient, info, {secrets, 32, 32}, {encs, 32, 32}, contexts);
  Seal(contexts[0], messages, sealed);
  ExportNumbered(contexts[0], "slot", 0, exports);
  VALGRIND_MAKE_MEM_DEFINED(boxes, sizeof boxes);
  VALGRIND_MAKE_MEM_DEFINED(messages, sizeof messages);
  VALGRIND_MAKE_MEM_DEFINED(sealed, sizeof sealed);
  for (size_t i = 0; i < kItems; ++i) {
    const BytesView box(boxes + i * kBox, kBox), message(messages + i * 80, 80);
    const auto reference = ReferenceHpke::Receiver(Aead::kChaCha20Poly1305, AsBytes("info"), pair,
                                                   box.first(kEncBytes));
    SHOAL_CHECK(reference->Open(box.subspan(kEncBytes)) == ToBytes(message));
    if (i == 0) SHOAL_CHECK(reference->Open(sealed) == ToBytes(messages));
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
