// A table of records: built, signed by every party, aggregated, then served.
//
//   Build          -> UnsignedTable          one party or a publisher; the others check it
//   SignTable      -> TableShare             every party, for itself: the rows that changed
//   AggregateTable -> Table                  anyone who holds all shares
//
// A row that did not change since the previous epoch keeps the signature of all parties that it has
// there (row_versions.h). Only all parties' signature on the manifest is new.
//
// On disk, a directory:
//   manifest.textproto     wire::SignedManifest; without a signature until aggregated
//   rows.bin               the rows, one after the other
//   placement.bin          hashed layout: one byte a bucket
//   versions-base.bin, versions-previous.bin, versions-recent.bin
//                          which epoch changed each row last (row_versions.h)
//   kept.bin               until aggregated: the signatures of the rows that did not change
//   shares/party-N.share   party N's signatures, on their way to the aggregation
//   signatures.bin         the aggregated signatures, 48 bytes a row
// and what all parties sign of each engine that is served (src/pir/setup/signed_setup.h).
// The manifest is always written last, so that the files that it describes are complete.
#ifndef SHOAL_SRC_TABLE_TABLE_H_
#define SHOAL_SRC_TABLE_TABLE_H_

#include <cstdint>
#include <functional>
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
#include "src/table/records.h"
#include "src/table/row_map.h"

namespace shoal::table {

// Told progress: `done` of `total`. Called from any thread, one call at a time.
using ProgressCallback = std::function<void(uint64_t done, uint64_t total)>;

struct PreviousEpoch;

struct TableOptions {
  std::string name;
  std::string deployment;
  uint64_t epoch = 1;
  uint64_t created_s = 0;
  uint64_t expires_s = 0;
  // 0 chooses the length. Hashed layout: the longest record's, at least 1024 or, with `previous`,
  // its rows' length. Dense layout: one slot's, at least 16.
  uint32_t row_bytes = 0;
  // The epoch that this one follows. The new epoch has its table id, and only rows that differ from
  // its rows are to be signed; keys of a hashed table keep their rows as far as possible (Place).
  // Without it the table has a fresh random id.
  const PreviousEpoch* previous = nullptr;
  // With `previous`: every row is to be signed, for a roster with other keys.
  bool sign_all_rows = false;
  // With `previous`: every key has the row that it has there, whether it is in the table or not,
  // and rows keep their number and size, so that the epoch can refresh that one's rows
  // (CanRefresh). Keys whose rows are full are displaced: their rows say so, and no longer hold
  // them.
  bool keep_rows = false;
  // The share of every row, in percent, that a new placement leaves free for epochs that keep rows.
  // Dense layout: of every slot. At most kMaxRoomPercent; 0 with keep_rows, which places nothing.
  uint32_t room_percent = 0;
  // The manifest's query_buckets. Nothing: those of `previous`, as another number gives every row
  // another bucket, and whoever sees both buckets of a query knows nearly its row; or none.
  std::optional<uint32_t> query_buckets = std::nullopt;
};

inline constexpr uint32_t kMaxRoomPercent = 90;

// Rows, placement, lists of changes and a manifest that match: sizes and digests have been checked.
// Only CheckContent checks the rows' content. Immutable; copies share the bytes.
class UnsignedTable {
 public:
  // `kept`: the signatures, 48 bytes each, of the rows that did not change, or nothing.
  // INVALID_ARGUMENT or DATA_LOSS if these do not match.
  static absl::StatusOr<UnsignedTable> Create(wire::Manifest manifest, Bytes rows, Bytes placement,
                                              RowVersions::Lists lists, Bytes kept = {});
  // Ignores signatures. NOT_FOUND and other errors of files name the file. RESOURCE_EXHAUSTED,
  // before a row is read, if there is no memory for the rows.
  static absl::StatusOr<UnsignedTable> Open(const std::string& directory);

  // Writes a new directory, which is complete or not there at all. ALREADY_EXISTS if the name is
  // taken.
  absl::Status Save(const std::string& directory) const;

  // Decodes every row, as a party does before it signs. DATA_LOSS if a row is malformed, a key is
  // in the wrong row, or the numbers of records and of incomplete rows are not the manifest's.
  absl::Status CheckContent() const;

  const wire::Manifest& manifest() const { return map_->manifest(); }
  const RowMap& map() const { return *map_; }
  const RowVersions& versions() const { return map_->versions(); }
  // See Create.
  BytesView kept() const { return *kept_; }
  uint64_t rows() const { return map_->rows(); }
  uint32_t row_bytes() const { return map_->row_bytes(); }
  // row < rows(), checked.
  BytesView row(uint64_t row) const;
  // All rows, one after the other.
  BytesView bytes() const { return *rows_; }
  // The share of the rows' bytes that records use.
  double fill() const;

 private:
  UnsignedTable() = default;
  std::shared_ptr<const RowMap> map_;
  std::shared_ptr<const Bytes> rows_;
  std::shared_ptr<const Bytes> kept_;
};

// A signed epoch, for the next one to be built and signed on. Sizes and digests have been checked,
// signatures have not: every party verifies that of the manifest before it signs the next epoch,
// and those of the rows are verified with the whole next epoch. Copies share the bytes.
struct PreviousEpoch {
  // Errors as UnsignedTable::Open. FAILED_PRECONDITION if the table is not signed.
  static absl::StatusOr<PreviousEpoch> Open(const std::string& directory);
  // Also one that is not signed, after which every row is to be signed
  // (TableOptions::sign_all_rows).
  static absl::StatusOr<PreviousEpoch> OpenUnsigned(const std::string& directory);

  BytesView signature(uint64_t row) const;

  UnsignedTable content;
  wire::SignedManifest manifest;
  std::shared_ptr<const Bytes> signatures;
};

// Builds the hashed layout. INVALID_ARGUMENT names file and line of a duplicate key or of a record
// that does not fit a row, or names the option that is wrong. FAILED_PRECONDITION if rows are to be
// kept and cannot be: the previous epoch has another layout or rows of another size.
absl::StatusOr<UnsignedTable> BuildHashed(const RecordSet& records, const TableOptions& options,
                                          RandomSource& random);

// Builds the dense layout. The keys must be 0..n-1 in decimal, in any order. Errors as for
// BuildHashed; INVALID_ARGUMENT also names a key that is not such a number, or is missing.
// FAILED_PRECONDITION also if rows are to be kept and the number of records changed, or a value is
// too long for slots that cannot say so.
absl::StatusOr<UnsignedTable> BuildDense(const RecordSet& records, const TableOptions& options,
                                         RandomSource& random);

// The records that the table, built from them, has no room for: indices, rising. Their rows say
// that they are displaced.
absl::StatusOr<std::vector<size_t>> DisplacedRecords(const RecordSet& records,
                                                     const UnsignedTable& table);

// One party's signatures on a table, for aggregation.
struct TableShare {
  uint32_t party = 0;
  Digest manifest_digest = {};
  Bytes manifest_signature;  // 48
  Bytes row_signatures;      // 48 for each row that changed in this epoch

  // "SHOALSH2", party (4 bytes), rows (8 bytes), then the fields in order.
  Bytes Serialize() const;
  // INVALID_ARGUMENT for bytes that Serialize cannot have made.
  static absl::StatusOr<TableShare> Parse(BytesView bytes);
};

// Files of a table's directory.
std::string ManifestPath(const std::string& directory);
std::string SharePath(const std::string& directory, uint32_t party);

// Checks what a party must check before it signs, and returns the party's number. `previous` is the
// epoch that the table follows, which this party signed; null if every row is to be signed.
// NOT_FOUND: no party has this key. INVALID_ARGUMENT: another deployment's table, one that does not
// follow `previous`, or lists of changes that are not those between the two. FAILED_PRECONDITION:
// the table follows an epoch, and `previous` is null. UNAUTHENTICATED: an epoch before the pinned
// minimum; or not all parties of the roster signed `previous`. DATA_LOSS as CheckContent.
absl::StatusOr<uint32_t> CheckBeforeSigning(const UnsignedTable& table,
                                            const PreviousEpoch* previous,
                                            const roster::Roster& roster,
                                            const signature::PublicKey& key);

// Calls CheckBeforeSigning, then signs the manifest and every row that changed, on all of the
// pool's threads. The caller makes sure that a party signs only one content for an epoch, with
// roster::RecordSigning.
absl::StatusOr<TableShare> SignTable(const UnsignedTable& table, const PreviousEpoch* previous,
                                     const roster::Roster& roster, const signature::SecretKey& key,
                                     ThreadPool& pool, const ProgressCallback& progress = nullptr);

// A signed table. A backend serves its rows, a frontend its manifest and placement. Immutable;
// copies share the bytes.
class Table {
 public:
  // Verifies the manifest as Manifest::Verify and every row's signature. Rows that are the same in
  // `known`, with the same signature, are not verified again: the caller has it from Create under
  // the same parties' keys. UNAUTHENTICATED names the first row whose signature is wrong.
  static absl::StatusOr<Table> Create(UnsignedTable content,
                                      const wire::SignedManifest& signed_manifest, Bytes signatures,
                                      const roster::Roster& roster, uint64_t now_s,
                                      RandomSource& random, ThreadPool& pool,
                                      const Table* known = nullptr);
  // Opens a directory and verifies it: the errors of UnsignedTable::Open and of Create.
  // RESOURCE_EXHAUSTED counts the memory for verifying, too.
  static absl::StatusOr<Table> Open(const std::string& directory, const roster::Roster& roster,
                                    uint64_t now_s, RandomSource& random, ThreadPool& pool,
                                    const Table* known = nullptr);

  // For the next epoch to be built on.
  PreviousEpoch AsPrevious() const;

  // Adds signatures and signed manifest to a directory that UnsignedTable::Save wrote.
  absl::Status SaveSignatures(const std::string& directory) const;

  const Manifest& manifest() const { return *manifest_; }
  const UnsignedTable& content() const { return content_; }
  const RowMap& map() const { return content_.map(); }
  uint64_t rows() const { return content_.rows(); }
  uint32_t answer_bytes() const { return manifest_->answer_bytes(); }
  BytesView row(uint64_t row) const { return content_.row(row); }
  BytesView signature(uint64_t row) const;

  // Writes row ‖ signature to `answer`, which has answer_bytes(); zeros if there is no such row.
  void CopyAnswer(uint64_t row, MutableBytes answer) const;

 private:
  explicit Table(UnsignedTable content) : content_(std::move(content)) {}
  UnsignedTable content_;
  std::shared_ptr<const Manifest> manifest_;
  std::shared_ptr<const Bytes> signatures_;
};

// The manifest in a table's directory, with a signature that is not verified. UNAUTHENTICATED if
// it has none yet; errors of wire::ReadTextFile.
absl::StatusOr<wire::SignedManifest> ReadSignedManifest(const std::string& directory);

// Verifies the manifest of an epoch that others follow (Manifest::VerifyPast) and every row's
// signature, but for rows that are the same in `known`, which may be null. After this the epoch's
// rows and signatures are what all parties signed, and no other bytes. UNAUTHENTICATED names the
// first row whose signature is wrong; DATA_LOSS if manifest and rows are two tables'. Returns the
// epoch's manifest.
absl::StatusOr<Manifest> VerifyPrevious(const PreviousEpoch& epoch, const roster::Roster& roster,
                                        const Table* known, RandomSource& random, ThreadPool& pool);

// Verifies every party's share and adds them up; rows that did not change have the signatures that
// table.kept() has. INVALID_ARGUMENT for missing, repeated or foreign shares; FAILED_PRECONDITION
// if kept signatures are missing; UNAUTHENTICATED names the party and the first row whose signature
// is wrong.
absl::StatusOr<Table> AggregateTable(const UnsignedTable& table, const roster::Roster& roster,
                                     std::span<const TableShare> shares, uint64_t now_s,
                                     RandomSource& random, ThreadPool& pool,
                                     const ProgressCallback& progress = nullptr);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_TABLE_H_
