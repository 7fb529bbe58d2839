// The functions that one instruction set implements: X25519 and the symmetric part of HPKE on many
// items at once. Implementations are made from the templates in field51.h, field51_fma.h,
// curve_batch.h, sha256_batch.h, key_schedule_batch.h, chacha20_batch.h and poly1305_batch.h, one
// per instruction set and file.
//
// The implementing files are compiled for instructions that the machine may lack. So they include
// nothing whose inline functions the linker could share with other files: no standard library, no
// absl, and pointers in place of spans.
#ifndef SHOAL_SRC_ONION_KERNEL_H_
#define SHOAL_SRC_ONION_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

namespace shoal::onion {

// Items per call: a multiple of every lane count. The state of a batch of this size fits the
// first-level cache, and the one inversion that its items share costs next to nothing.
inline constexpr size_t kKernelBatch = 128;

inline constexpr size_t kKernelTableAlignment = 64;
inline constexpr size_t kKernelStreamKeyBytes = 44;  // key of 32 bytes, nonce of 12

// A block of SHA-256 that is the same for all items: the sums of schedule word and constant of each
// round. Such a block costs a third less, as its message schedule is computed once.
struct FixedBlock {
  uint32_t round[64];
};

// What is the same for all items in RFC 9180's key schedule: key_schedule.h fills it. Only two
// blocks besides those that hold keys and digests depend on the item. Their words have zeros where
// the item's 32 bytes belong.
struct KeyScheduleBlocks {
  uint32_t empty_inner[8], empty_outer[8];  // HMAC's two states after an empty key
  uint32_t eae_prk[16];                     // the shared point belongs at byte 19
  uint32_t kem_context[16];                 // enc belongs at byte 27
  FixedBlock recipient;                     // the block after it, the end of kem_context
  FixedBlock secret;
  FixedBlock key[2], base_nonce[2], exporter_secret[2];
  FixedBlock exported;
};

// Where key_schedule writes; null: not wanted.
struct KeyScheduleOutputs {
  uint8_t* stream_keys;       // kKernelStreamKeyBytes for each item: key, base_nonce
  uint8_t* exporter_secrets;  // 32 bytes for each item
  uint8_t* exports;           // 32 bytes for each item, one every `export_stride` bytes
  size_t export_stride;
};

// The one block of HMAC's inner hash of an exporter context that ends with a number. The words have
// zeros where the number belongs, 4 bytes at byte `number_at`, little endian.
struct NumberedBlock {
  uint32_t word[16];
  size_t number_at;
};

// All functions are thread-safe. `n` is at most kKernelBatch. Scalars are clamped, points are
// taken modulo 2^255 and p, products are reduced: RFC 7748, section 5. A product of all zeros
// means a point of low order. Constant time in scalars; points and tables are public.
struct Kernel {
  const char* name;

  // From how many items on `multiply` is faster than libsodium's crypto_scalarmult one by one: a
  // single item takes as long as a vector of them.
  size_t multiply_from;

  // products[i] = scalars[i] * points[i]. A stride of 0 repeats one scalar or one point.
  // Products are 32 bytes each, without gaps.
  void (*multiply)(const uint8_t* scalars, size_t scalar_stride, const uint8_t* points,
                   size_t point_stride, uint8_t* products, size_t n);

  // Builds the table of a point, for multiply_fixed: table_bytes bytes aligned to
  // kKernelTableAlignment. False if the point lies on the twist, which has none. The point must
  // not be of low order. Takes about as long as sealing a few dozen boxes.
  size_t table_bytes;
  bool (*build_table)(const uint8_t* point, void* table);

  // products[t][i] = scalars[i] * the point of tables[t], for one or two tables.
  void (*multiply_fixed)(const void* const* tables, size_t table_count, const uint8_t* scalars,
                         size_t scalar_stride, uint8_t* const* products, size_t n);

  // From shared points (32 bytes each) and encs (one every `enc_stride` bytes) to keys and exports.
  void (*key_schedule)(const KeyScheduleBlocks& blocks, const uint8_t* shared, const uint8_t* encs,
                       size_t enc_stride, const KeyScheduleOutputs& out, size_t n);

  // Exports `n` secrets, any number, 32 bytes each, of one exporter secret: for first, first + 1,
  // ..
  void (*export_numbered)(const NumberedBlock& block, uint32_t first,
                          const uint8_t* exporter_secret, uint8_t* exports, size_t n);

  // Block `counter`, 64 bytes, of the ChaCha20 stream of each key (RFC 8439, section 2.3).
  void (*stream_block)(const uint8_t* stream_keys, uint32_t counter, uint8_t* blocks, size_t n);

  // The Poly1305 tags of RFC 8439's AEAD with an empty aad, 16 bytes each. A tag key, 32 bytes,
  // stands every `key_stride` bytes.
  void (*tags)(const uint8_t* tag_keys, size_t key_stride, const uint8_t* ciphertexts,
               size_t ciphertext_stride, size_t bytes, uint8_t* tags, size_t n);
};

// Null where the build is for another processor. src/base/instruction_set.h says whether this
// machine can run them.
const Kernel* IfmaKernel();
const Kernel* Avx2Kernel();
// The AVX2 kernel, with its tables, where the processor also has instructions for SHA-256.
const Kernel* Avx2ShaKernel();

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_KERNEL_H_
