// Checks a crowd's answers: verifies them and looks keys up as every client does
// (src/client/retrieval.h), and compares values with the table if that is at hand.
#ifndef SHOAL_SRC_LOAD_CHECKER_H_
#define SHOAL_SRC_LOAD_CHECKER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/client/deployment.h"
#include "src/load/devices.h"
#include "src/load/report.h"
#include "src/table/row_map.h"
#include "src/table/table.h"

namespace shoal::load {

// The answers to all queries of a device, in their order, unmasked or decrypted.
struct AnswersOf {
  uint32_t device;
  BytesView answers;
};

// Thread-safe.
class Checker {
 public:
  // `expected` may be null. Without `verify_each`, an answer with the same bytes as a verified
  // answer to the same row counts as verified, which takes 33 bytes a row of the table. The
  // pointers must outlive this.
  Checker(const client::Deployment* deployment, const Devices* devices,
          const table::UnsignedTable* expected, bool verify_each);
  ~Checker();

  // Verifies the signatures of all these answers together, and looks up every key of the devices.
  Tally Check(std::span<const AnswersOf> all, RandomSource& random);

 private:
  class VerifiedAnswers;

  std::vector<absl::Status> VerifySignatures(std::span<const table::RowAnswer> rows,
                                             RandomSource& random);

  const client::Deployment& deployment_;
  const Devices& devices_;
  const table::UnsignedTable* const expected_;
  std::unique_ptr<VerifiedAnswers> verified_;  // null: verify each
};

}  // namespace shoal::load

#endif  // SHOAL_SRC_LOAD_CHECKER_H_
