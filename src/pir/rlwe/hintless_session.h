// A client of `hintless` (docs/hintless.md). It keeps nothing between queries: each has a secret
// and keys of its own.
#ifndef SHOAL_SRC_PIR_RLWE_HINTLESS_SESSION_H_
#define SHOAL_SRC_PIR_RLWE_HINTLESS_SESSION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/pir/engine.h"
#include "src/pir/rlwe/hintless_shape.h"

namespace shoal::pir::lwe {
struct Kernel;
}

namespace shoal::pir::rlwe {

// One query that is under way: what its client needs to understand the answer.
struct HintlessAsked {
  Bytes query;                    // as it is sent
  SecretVector<uint32_t> secret;  // transformed
  SecretVector<uint64_t> place;   // one number: of the row in its column
};

// Makes queries and reads answers. Immutable, thread-safe.
class HintlessClient {
 public:
  // Of a setup that ParseHintlessShape accepts. The kernel is for the sampler; null: the fastest.
  static absl::StatusOr<std::unique_ptr<HintlessClient>> Create(
      const wire::PirSetup& setup, const lwe::Kernel* kernel = nullptr);

  const wire::PirSetup& setup() const { return setup_; }
  const HintlessShape& shape() const { return shape_; }

  // A query for the row. Callers check that there is such a row, since looking would be a branch on
  // it; beyond the setup's rows, what comes back are zeros or other bytes. Neither time nor
  // addresses depend on the row, but for divisions of it.
  HintlessAsked Ask(uint64_t row, RandomSource& random) const;
  // The record. INVALID_ARGUMENT for a wrong length. Constant-time as Ask.
  absl::StatusOr<SecretVector<uint8_t>> Recover(const HintlessAsked& asked, BytesView answer) const;

  // For tests: the errors of HintlessServer::Unrounded, whose masks these are, if the column of the
  // matrix has these bytes.
  std::vector<int64_t> Errors(const HintlessAsked& asked, std::span<const uint64_t> unrounded,
                              std::span<const BytesView> masks, BytesView column) const;

 private:
  HintlessClient(const wire::PirSetup& setup, const HintlessShape& shape,
                 const lwe::Kernel& kernel);
  // The coefficients of a mask, as it was sent, times the secret, in 2^kHintlessMaskBits parts of
  // Q.
  void MaskTimesSecret(const HintlessAsked& asked, BytesView mask,
                       SecretVector<int64_t>& out) const;

  const wire::PirSetup setup_;
  const HintlessShape shape_;
  const lwe::Kernel& kernel_;
  std::vector<uint32_t> columns_;              // [block]: transformed
  std::vector<uint32_t> keys_[kCollapseKeys];  // public parts
};

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_HINTLESS_SESSION_H_
