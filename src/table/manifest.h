// A table's manifest: the description of the table, signed by all parties.
#ifndef SHOAL_SRC_TABLE_MANIFEST_H_
#define SHOAL_SRC_TABLE_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/roster/roster.h"
#include "src/table/row_versions.h"
#include "src/wire/manifest.pb.h"

namespace shoal::table {

// Enough for one short number. Few tables want such rows, as every row costs noise.
inline constexpr uint32_t kMinRowBytes = 1;
inline constexpr uint32_t kMaxRowBytes = 1u << 20;
inline constexpr uint64_t kMaxRows = (1ull << 31) - 2;  // row numbers live in Z_p, p = 2^31 - 1
inline constexpr uint64_t kMaxTableBytes = 1ull << 40;
inline constexpr uint64_t kMaxPlacementBytes = 1ull << 30;
inline constexpr size_t kMaxTableNameBytes = 128;
inline constexpr uint64_t kMaxTableLifetimeS = 400ull * 24 * 3600;

// Checks structure and limits. INVALID_ARGUMENT names the field. Builders and parties that sign
// check it.
absl::Status CheckManifest(const wire::Manifest& manifest);

// The digest that all parties sign: Transcript("shoal manifest v2") over name, table_id, epoch,
// created_s, expires_s, records, rows, row_bytes; then 1, records_per_row, value_bytes,
// length_bytes (dense) or 2, hash_seed, buckets, placement_digest (hashed); rows_digest,
// deployment, and of row_versions base_rows, base_bytes, base_digest, previous_bytes,
// previous_digest, recent_bytes, recent_digest; then incomplete_rows, but only if it or
// query_buckets is not 0; then query_buckets, but only if it is not 0. Text and bytes as Blob, all
// else as U64. A client that does not know incomplete_rows, and so could take silence of an
// incomplete row for a proof, comes to another digest and refuses the table; so does one that does
// not know query_buckets. No table with one of the two has the digest of one with the other.
Digest ManifestDigest(const wire::Manifest& manifest);

// Transcript("shoal rows v1") over rows, row_bytes, and all rows as one Blob.
Digest RowsDigest(uint64_t rows, uint32_t row_bytes, BytesView all_rows);

// Transcript("shoal placement v1") over the bytes as one Blob.
Digest PlacementDigest(BytesView placement);

// The digest that all parties sign for a row that changed: Transcript("shoal row v2") over table_id
// (Blob), the row's number, the epoch of its last change, the digest of all rows in that epoch
// (Blob), and the row's bytes (Blob).
Digest RowMessage(const wire::Manifest& manifest, uint64_t row, const RowVersion& version,
                  BytesView row_bytes);

// A manifest that exists has been checked: structure, limits, the deployment's name, all parties'
// signature, time, and the pinned minimum epoch. Immutable.
class Manifest {
 public:
  // INVALID_ARGUMENT: malformed. UNAUTHENTICATED: another deployment's manifest, a signature that
  // does not match, a manifest that is not yet valid or has expired, or an epoch before the pinned
  // minimum.
  static absl::StatusOr<Manifest> Verify(const wire::SignedManifest& signed_manifest,
                                         const roster::Roster& roster, uint64_t now_s);

  // The same for an epoch that another one follows: neither time nor the minimum epoch count.
  static absl::StatusOr<Manifest> VerifyPast(const wire::SignedManifest& signed_manifest,
                                             const roster::Roster& roster);

  const wire::SignedManifest& wire() const { return wire_; }
  const wire::Manifest& content() const { return wire_.manifest(); }
  const Digest& digest() const { return digest_; }
  const std::string& name() const { return content().name(); }
  uint64_t epoch() const { return content().epoch(); }
  uint64_t rows() const { return content().rows(); }
  uint32_t row_bytes() const { return content().row_bytes(); }
  // A row and its signature: what the backend returns.
  uint32_t answer_bytes() const {
    return row_bytes() + static_cast<uint32_t>(signature::kSignatureBytes);
  }
  // Bytes of the placement file; 0 for the dense layout.
  uint64_t placement_bytes() const {
    return content().has_hashed() ? content().hashed().buckets() : 0;
  }

  // UNAUTHENTICATED once the manifest has expired, beyond the roster's tolerance. A client checks
  // again when answers arrive.
  absl::Status CheckTime(const roster::Roster& roster, uint64_t now_s) const;

 private:
  Manifest() = default;
  wire::SignedManifest wire_;
  Digest digest_;
};

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_MANIFEST_H_
