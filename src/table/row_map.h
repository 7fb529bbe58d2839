// A client's view of a table: maps a key to its row, finds the key in the row, and verifies rows.
//
//   RowMap map = RowMap::Create(manifest, placement, lists)     all from the network
//   uint64_t row = map.RowOf(key)                               private from here on
//   ... the row's number goes through the chain, answer = row bytes ‖ signature ...
//   map.VerifyAnswer(roster, row, answer), then map.Find(row, answer's row bytes, key)
//
// A client that keeps rows that it has verified keeps each with the table's id, the row's number
// and its version. It holds in a later epoch if the id is the same and versions().of(row) equals
// the kept version: the signed lists alone tell, without any request.
#ifndef SHOAL_SRC_TABLE_ROW_MAP_H_
#define SHOAL_SRC_TABLE_ROW_MAP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/roster.h"
#include "src/table/manifest.h"
#include "src/table/row_versions.h"
#include "src/wire/manifest.pb.h"

namespace shoal::table {

// One answer of the chain: row ‖ signature, answer_bytes() of them.
struct RowAnswer {
  uint64_t row;
  BytesView answer;
};

// Immutable, thread-safe.
class RowMap {
 public:
  // `placement` is empty for the dense layout. DATA_LOSS if its digest or those of the lists are
  // not the manifest's, INVALID_ARGUMENT as RowVersions::Create.
  static absl::StatusOr<RowMap> Create(const Manifest& manifest, Bytes placement,
                                       RowVersions::Lists lists);

  // For tables that nobody has signed yet. Also INVALID_ARGUMENT as CheckManifest.
  static absl::StatusOr<RowMap> CreateUnsigned(const wire::Manifest& manifest, Bytes placement,
                                               RowVersions::Lists lists);

  const wire::Manifest& manifest() const { return manifest_; }
  BytesView placement() const { return placement_; }
  const RowVersions& versions() const { return *versions_; }
  uint64_t rows() const { return manifest_.rows(); }
  uint32_t row_bytes() const { return manifest_.row_bytes(); }

  // The one row that holds `key` or proves its absence. Hashed layout: always a row. Dense layout:
  // INVALID_ARGUMENT if the key is not a canonical decimal number, OUT_OF_RANGE if there is no such
  // record: the manifest alone proves that, but the caller must not let others see it.
  absl::StatusOr<uint64_t> RowOf(BytesView key) const;

  // The key's value in the bytes of its row; none if the row proves the key absent. UNAVAILABLE if
  // the row proves neither, as it has no room for all of its keys: the key may be in the table, and
  // this is not known until the table has another placement. DATA_LOSS if the bytes are not a
  // well-formed row of this table; INVALID_ARGUMENT if `row` is not the key's.
  absl::StatusOr<std::optional<Bytes>> Find(uint64_t row, BytesView row_bytes, BytesView key) const;

  // UNAUTHENTICATED unless the answer is the row with this number, signed by all parties for the
  // epoch that the manifest's lists name.
  // INVALID_ARGUMENT for another size. About 1 ms.
  absl::Status VerifyAnswer(const roster::Roster& roster, const RowAnswer& answer) const;

  // result[i]: VerifyAnswer(answers[i]). About 100 us each if all are right. Each wrong one is
  // found by halving, at about a millisecond per halving.
  std::vector<absl::Status> VerifyAnswers(const roster::Roster& roster,
                                          std::span<const RowAnswer> answers, RandomSource& random,
                                          ThreadPool* pool = nullptr) const;

 private:
  RowMap() = default;
  // DATA_LOSS for an incomplete row of a table that has none.
  absl::Status CheckComplete(bool complete) const;
  wire::Manifest manifest_;
  Bytes placement_;
  std::shared_ptr<const RowVersions> versions_;
};

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_ROW_MAP_H_
