// The key schedule of HPKE (RFC 9180, sections 4.1, 5.1 and 5.3): what is computed once for a
// batch, and the batch on a kernel or with libsodium. Private to src/onion.
#ifndef SHOAL_SRC_ONION_KEY_SCHEDULE_H_
#define SHOAL_SRC_ONION_KEY_SCHEDULE_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/onion/kernel.h"
#include "src/onion/suite.h"

namespace shoal::onion {

// From shared points to keys and exports, for one recipient, info and exporter context. Nothing in
// it is secret.
class KeySchedule {
 public:
  // `kernel` may be null. All references must outlive this object.
  KeySchedule(const Kernel* kernel, const Info& info, const PublicKey& recipient,
              absl::string_view exporter_context);

  // The kernel's key_schedule for n <= kKernelBatch items. `encs` are taken as they were received:
  // the same point in another encoding gives other secrets. Stream keys only for an AEAD.
  void Run(const uint8_t* shared, const uint8_t* encs, size_t enc_stride,
           const KeyScheduleOutputs& out, size_t n) const;

 private:
  void RunPortable(const uint8_t* shared, const uint8_t* enc, uint8_t* stream_key,
                   uint8_t* exporter_secret, uint8_t* exported) const;

  const Kernel* kernel_;
  const Info& info_;
  const PublicKey& recipient_;
  absl::string_view exporter_context_;
  KeyScheduleBlocks blocks_;  // not set without a kernel
};

// Exports of one exporter secret: prefix | LE32(first), prefix | LE32(first + 1), .., n secrets.
void NumberedExports(const Kernel* kernel, Aead aead, const uint8_t* exporter_secret,
                     absl::string_view prefix, uint32_t first, uint8_t* exports, size_t n);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_KEY_SCHEDULE_H_
