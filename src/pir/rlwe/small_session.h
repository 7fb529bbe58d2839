// A client of Small PIR (docs/small-pir.md). It keeps nothing between queries: each has a secret
// and keys of its own.
#ifndef SHOAL_SRC_PIR_RLWE_SMALL_SESSION_H_
#define SHOAL_SRC_PIR_RLWE_SMALL_SESSION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/pir/engine.h"
#include "src/pir/rlwe/small_shape.h"

namespace shoal::pir::lwe {
struct Kernel;
}

namespace shoal::pir::rlwe {

// One query that is under way: what its client needs to understand the answer.
struct SmallAsked {
  Bytes query;                    // as it is sent
  SecretVector<uint32_t> secret;  // transformed
  SecretVector<uint64_t> place;   // one number: of the row in its group
};

// Makes queries and reads answers. Immutable, thread-safe.
class SmallClient {
 public:
  // Of a setup that ParseSmallShape accepts. The kernel is for the sampler; null: the fastest.
  static absl::StatusOr<std::unique_ptr<SmallClient>> Create(const wire::PirSetup& setup,
                                                             const lwe::Kernel* kernel = nullptr);

  const wire::PirSetup& setup() const { return setup_; }
  const SmallShape& shape() const { return shape_; }

  // A query for the row. Callers check that there is such a row, since looking would be a branch on
  // it; beyond the setup's rows, what comes back are zeros or another row. Neither time nor
  // addresses depend on the row, but for divisions of it.
  SmallAsked Ask(uint64_t row, RandomSource& random) const;
  // The record. INVALID_ARGUMENT for a wrong length. Constant-time as Ask.
  absl::StatusOr<SecretVector<uint8_t>> Recover(const SmallAsked& asked, BytesView answer) const;

  // For tests: the errors of SmallServer::Unrounded, if the group's bytes are these.
  std::vector<int64_t> Errors(const SmallAsked& asked, std::span<const uint32_t> unrounded,
                              BytesView group) const;

 private:
  SmallClient(const wire::PirSetup& setup, const SmallShape& shape, const lwe::Kernel& kernel);
  // The answer's coefficients without their mask, in 2^24 parts of Q.
  absl::Status Unmask(const SmallAsked& asked, BytesView answer,
                      SecretVector<uint32_t>& coefficients) const;

  const wire::PirSetup setup_;
  const SmallShape shape_;
  const lwe::Kernel& kernel_;
  std::vector<uint32_t> public_parts_;  // [element]
};

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_SMALL_SESSION_H_
