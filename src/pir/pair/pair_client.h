// A client of the engine `pair` (pair.h). It keeps nothing between queries: each has bits of its
// own.
#ifndef SHOAL_SRC_PIR_PAIR_PAIR_CLIENT_H_
#define SHOAL_SRC_PIR_PAIR_PAIR_CLIENT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/pir/engine.h"
#include "src/pir/pair/pair_shape.h"

namespace shoal::pir::pair {

// One query that is under way. Both messages together tell the row.
struct PairAsked {
  std::array<SecretVector<uint8_t>, 2> queries;  // to the offline and the online server
};

// Makes queries and reads answers. Immutable, thread-safe.
class PairClient {
 public:
  static constexpr std::array<Role, 2> kRoles = kPairRoles;

  // Of a setup that ParsePairShape accepts, else its error.
  static absl::StatusOr<std::unique_ptr<PairClient>> Create(const wire::PirSetup& setup);

  const wire::PirSetup& setup() const { return setup_; }
  const PairShape& shape() const { return shape_; }

  // A query for the row. Callers check that there is such a row, since looking would be a branch on
  // it; beyond the setup's rows, what comes back are zeros or another row. Neither time nor
  // addresses depend on the row.
  PairAsked Ask(uint64_t row, RandomSource& random) const;
  // The record: the XOR of both answers, whatever they are. INVALID_ARGUMENT for a wrong length.
  absl::StatusOr<SecretVector<uint8_t>> Recover(const PairAsked& asked,
                                                std::span<const BytesView> answers) const;

 private:
  PairClient(const wire::PirSetup& setup, const PairShape& shape);

  const wire::PirSetup setup_;
  const PairShape shape_;
  Bytes header_;  // of every query
};

}  // namespace shoal::pir::pair

#endif  // SHOAL_SRC_PIR_PAIR_PAIR_CLIENT_H_
