// A table: built from records, signed by every party, aggregated, served.
//
//   Build          -> UnsignedTable          one party or a publisher; the others check it
//   SignTable      -> TableShare             every party, for itself
//   AggregateTable -> Table                  anyone who holds all shares
//
// On disk, a directory:
//   manifest.textproto     wire::SignedManifest; without a signature until aggregated
//   rows.bin               the rows, one after the other
//   placement.bin          hashed layout: one byte a bucket
//   shares/party-N.share   party N's signatures, on their way to the aggregation
//   signatures.bin         the aggregated signatures, 48 bytes a row
// The manifest is written last each time, so that what it promises is there.
#ifndef SHOAL_SRC_TABLE_TABLE_H_
#define SHOAL_SRC_TABLE_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/thread_pool.h"
#include "src/roster/roster.h"
#include "src/table/manifest.h"
#include "src/table/records.h"
#include "src/table/row_map.h"

namespace shoal::table {

// done of total; calls are serialised, from any thread.
using ProgressCallback = std::function<void(uint64_t done, uint64_t total)>;

struct TableOptions {
  std::string name;
  std::string deployment;
  // Of an earlier epoch of the same table; all zero draws a new one.
  Digest table_id = {};
  uint64_t epoch = 1;
  uint64_t created_s = 0;
  uint64_t expires_s = 0;
  // 0: as small as holds the longest record, at least 1024 or the previous rows' (hashed); one slot,
  // at least 16 (dense).
  uint32_t row_bytes = 0;
  // Of an earlier epoch: keys of a hashed table keep their rows as far as that is possible (Place).
  const RowMap* previous = nullptr;
};

// Rows, placement and a manifest that fit each other: sizes and digests are checked, the rows'
// inside only by CheckContent. Immutable; copies share the bytes.
class UnsignedTable {
 public:
  // INVALID_ARGUMENT or DATA_LOSS if they do not fit.
  static absl::StatusOr<UnsignedTable> Create(wire::Manifest manifest, Bytes rows,
                                              Bytes placement);
  // Any signature is left aside. NOT_FOUND and so on name the file; RESOURCE_EXHAUSTED, before a row is
  // read, if there is no memory for them.
  static absl::StatusOr<UnsignedTable> Open(const std::string& directory);

  // Writes a new directory; ALREADY_EXISTS if there is something. Complete or not there at all.
  absl::Status Save(const std::string& directory) const;

  // Decodes every row; DATA_LOSS if a row is malformed, a key is not in its row, or the number
  // of records is another. What a party checks before it signs.
  absl::Status CheckContent() const;

  const wire::Manifest& manifest() const { return map_->manifest(); }
  const RowMap& map() const { return *map_; }
  uint64_t rows() const { return map_->rows(); }
  uint32_t row_bytes() const { return map_->row_bytes(); }
  // row < rows(), checked.
  BytesView row(uint64_t row) const;
  // All rows, one after the other.
  BytesView bytes() const { return *rows_; }
  // Bytes in use over all bytes of rows.
  double fill() const;

 private:
  UnsignedTable() = default;
  std::shared_ptr<const RowMap> map_;
  std::shared_ptr<const Bytes> rows_;
};

// Hashed layout. INVALID_ARGUMENT names file and line of a duplicate key or of a record that does
// not fit a row, or the option that is wrong.
absl::StatusOr<UnsignedTable> BuildHashed(const RecordSet& records, const TableOptions& options,
                                          RandomSource& random);

// Dense layout. The keys are 0..n-1 in decimal, in any order. As BuildHashed; also names a key that
// is no such number or is missing.
absl::StatusOr<UnsignedTable> BuildDense(const RecordSet& records, const TableOptions& options,
                                         RandomSource& random);

// One party's signatures on a table: what it sends to the aggregation.
struct TableShare {
  uint32_t party = 0;
  Digest manifest_digest = {};
  Bytes manifest_signature;  // 48
  Bytes row_signatures;      // 48 a row

  // "SHOALSH1", party (4 bytes), rows (8 bytes), then the fields in order.
  Bytes Serialize() const;
  // INVALID_ARGUMENT for other bytes.
  static absl::StatusOr<TableShare> Parse(BytesView bytes);
};

std::string SharePath(const std::string& directory, uint32_t party);

// What a party checks before it signs; its number. NOT_FOUND: the key is no party's.
// INVALID_ARGUMENT: another deployment's table. UNAUTHENTICATED: an epoch before the pinned
// minimum. DATA_LOSS as CheckContent.
absl::StatusOr<uint32_t> CheckBeforeSigning(const UnsignedTable& table,
                                            const roster::Roster& roster,
                                            const signature::PublicKey& key);

// Signs every row and the manifest on all of the pool's threads, after CheckBeforeSigning. That a
// party signs one content for an epoch is its caller's to see to: roster::RecordSigning.
absl::StatusOr<TableShare> SignTable(const UnsignedTable& table, const roster::Roster& roster,
                                     const signature::SecretKey& key, ThreadPool& pool,
                                     const ProgressCallback& progress = nullptr);

// A signed table: what a backend serves and a frontend tells about. Immutable; copies share the
// bytes.
class Table {
 public:
  // Verifies the manifest as Manifest::Verify and every row's signature. UNAUTHENTICATED names the
  // first row whose signature is wrong.
  static absl::StatusOr<Table> Create(UnsignedTable content,
                                      const wire::SignedManifest& signed_manifest,
                                      Bytes signatures, const roster::Roster& roster,
                                      uint64_t now_s, RandomSource& random, ThreadPool& pool);
  // As both; what verifying takes is counted too.
  static absl::StatusOr<Table> Open(const std::string& directory, const roster::Roster& roster,
                                    uint64_t now_s, RandomSource& random, ThreadPool& pool);

  // Puts signatures and manifest beside the content that is there (see UnsignedTable::Save).
  absl::Status SaveSignatures(const std::string& directory) const;

  const Manifest& manifest() const { return *manifest_; }
  const UnsignedTable& content() const { return content_; }
  const RowMap& map() const { return content_.map(); }
  uint64_t rows() const { return content_.rows(); }
  uint32_t answer_bytes() const { return manifest_->answer_bytes(); }
  BytesView row(uint64_t row) const { return content_.row(row); }
  BytesView signature(uint64_t row) const;

  // row ‖ signature into `answer`, which has answer_bytes(); zeros when there is no such row.
  void CopyAnswer(uint64_t row, MutableBytes answer) const;

 private:
  explicit Table(UnsignedTable content) : content_(std::move(content)) {}
  UnsignedTable content_;
  std::shared_ptr<const Manifest> manifest_;
  std::shared_ptr<const Bytes> signatures_;
};

// Verifies every party's share and adds them up. INVALID_ARGUMENT for missing, repeated or foreign
// shares; UNAUTHENTICATED names the party and the first row whose signature is wrong.
absl::StatusOr<Table> AggregateTable(const UnsignedTable& table, const roster::Roster& roster,
                                     std::span<const TableShare> shares, uint64_t now_s,
                                     RandomSource& random, ThreadPool& pool,
                                     const ProgressCallback& progress = nullptr);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_TABLE_H_
