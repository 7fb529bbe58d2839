#include "src/table/manifest.h"

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/query_buckets.h"
#include "src/base/status_macros.h"
#include "src/roster/names.h"
#include "src/table/row.h"

namespace shoal::table {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("manifest, ", what));
}

absl::Status CheckDense(const wire::Manifest& manifest) {
  const wire::DenseLayout& layout = manifest.dense();
  if (layout.length_bytes() > 2) return Bad("length_bytes: is not 0, 1 or 2");
  if (layout.value_bytes() > manifest.row_bytes() || DenseSlotBytes(layout) == 0) {
    return Bad("value_bytes: does not fit a row");
  }
  if (layout.length_bytes() > 0 && layout.value_bytes() >> (8 * layout.length_bytes()) != 0) {
    return Bad("value_bytes: does not fit length_bytes");
  }
  if (layout.records_per_row() < 1 ||
      layout.records_per_row() > manifest.row_bytes() / DenseSlotBytes(layout)) {
    return Bad("records_per_row: do not fit a row");
  }
  if (manifest.records() < 1 ||
      (manifest.records() - 1) / layout.records_per_row() + 1 != manifest.rows()) {
    return Bad("records: need another number of rows");
  }
  return absl::OkStatus();
}

absl::Status CheckHashed(const wire::Manifest& manifest) {
  const wire::HashedLayout& layout = manifest.hashed();
  if (layout.hash_seed().size() != 16) return Bad("hash_seed: has not 16 bytes");
  if (layout.buckets() < 1 || layout.buckets() > kMaxPlacementBytes) {
    return Bad(absl::StrCat("buckets: are not 1 to ", kMaxPlacementBytes));
  }
  if (layout.placement_digest().size() != sizeof(Digest)) {
    return Bad("placement_digest: has not 32 bytes");
  }
  // A record takes at least two bytes.
  if (manifest.records() > manifest.rows() * manifest.row_bytes() / 2) {
    return Bad("records: do not fit the rows");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckManifest(const wire::Manifest& manifest) {
  if (!manifest.has_row_versions()) {
    return Bad("row_versions: is missing; tables of version 0.1 are not read, build them again");
  }
  if (manifest.name().empty() || manifest.name().size() > kMaxTableNameBytes) {
    return Bad(absl::StrCat("name: has not 1 to ", kMaxTableNameBytes, " bytes"));
  }
  for (const char c : manifest.name()) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) return Bad("name: has a control character");
  }
  if (manifest.table_id().size() != sizeof(Digest)) return Bad("table_id: has not 32 bytes");
  if (manifest.epoch() < 1) return Bad("epoch: begins at 1");
  if (manifest.expires_s() > roster::kMaxTimeS || manifest.created_s() >= manifest.expires_s()) {
    return Bad("created_s must be before expires_s, in seconds since 1970");
  }
  if (manifest.expires_s() - manifest.created_s() > kMaxTableLifetimeS) {
    return Bad(absl::StrCat("it would be valid for more than ", kMaxTableLifetimeS / 86400,
                            " days: an old table must not be served for long"));
  }
  if (manifest.rows() < 1 || manifest.rows() > kMaxRows) {
    return Bad(absl::StrCat("rows: ", manifest.rows(), " is not in 1..", kMaxRows));
  }
  if (manifest.row_bytes() < kMinRowBytes || manifest.row_bytes() > kMaxRowBytes) {
    return Bad(absl::StrCat("row_bytes: ", manifest.row_bytes(), " is not in ", kMinRowBytes, "..",
                            kMaxRowBytes));
  }
  if (manifest.rows() > kMaxTableBytes / manifest.row_bytes()) {
    return Bad(absl::StrCat("the table has more than ", kMaxTableBytes, " bytes"));
  }
  if (manifest.rows_digest().size() != sizeof(Digest)) return Bad("rows_digest: has not 32 bytes");
  SHOAL_RETURN_IF_ERROR(roster::CheckName("manifest, deployment", manifest.deployment()));
  const wire::RowVersionLists& lists = manifest.row_versions();
  for (const std::string* digest :
       {&lists.base_digest(), &lists.previous_digest(), &lists.recent_digest()}) {
    if (digest->size() != sizeof(Digest)) return Bad("row_versions: a digest has not 32 bytes");
  }
  if (lists.base_rows() > kMaxRows) return Bad("row_versions: too many rows");
  if (manifest.incomplete_rows() > manifest.rows()) return Bad("incomplete_rows: more than rows");
  if (manifest.query_buckets() != 0) {
    SHOAL_RETURN_IF_ERROR(
        Annotate(QueryBuckets::Check(manifest.rows(), manifest.query_buckets()), "manifest"));
  }
  if (lists.base_bytes() > MaxVersionListBytes(lists.base_rows()) ||
      lists.previous_bytes() > MaxVersionListBytes(lists.base_rows()) ||
      lists.recent_bytes() > MaxVersionListBytes(manifest.rows())) {
    return Bad("row_versions: a list is longer than any can be");
  }
  switch (manifest.layout_case()) {
    case wire::Manifest::kDense:
      return CheckDense(manifest);
    case wire::Manifest::kHashed:
      return CheckHashed(manifest);
    case wire::Manifest::LAYOUT_NOT_SET:
      break;
  }
  return Bad("layout: is missing");
}

Digest ManifestDigest(const wire::Manifest& manifest) {
  Transcript transcript("shoal manifest v2");
  transcript.Blob(manifest.name())
      .Blob(manifest.table_id())
      .U64(manifest.epoch())
      .U64(manifest.created_s())
      .U64(manifest.expires_s())
      .U64(manifest.records())
      .U64(manifest.rows())
      .U64(manifest.row_bytes());
  if (manifest.has_dense()) {
    transcript.U64(1)
        .U64(manifest.dense().records_per_row())
        .U64(manifest.dense().value_bytes())
        .U64(manifest.dense().length_bytes());
  } else {
    transcript.U64(2)
        .Blob(manifest.hashed().hash_seed())
        .U64(manifest.hashed().buckets())
        .Blob(manifest.hashed().placement_digest());
  }
  const wire::RowVersionLists& lists = manifest.row_versions();
  transcript.Blob(manifest.rows_digest())
      .Blob(manifest.deployment())
      .U64(lists.base_rows())
      .U64(lists.base_bytes())
      .Blob(lists.base_digest())
      .U64(lists.previous_bytes())
      .Blob(lists.previous_digest())
      .U64(lists.recent_bytes())
      .Blob(lists.recent_digest());
  const bool has_buckets = manifest.query_buckets() != 0;
  if (manifest.incomplete_rows() != 0 || has_buckets) transcript.U64(manifest.incomplete_rows());
  if (has_buckets) transcript.U64(manifest.query_buckets());
  return transcript.Finish();
}

Digest RowsDigest(uint64_t rows, uint32_t row_bytes, BytesView all_rows) {
  return Transcript("shoal rows v1").U64(rows).U64(row_bytes).Blob(all_rows).Finish();
}

Digest PlacementDigest(BytesView placement) {
  return Transcript("shoal placement v1").Blob(placement).Finish();
}

Digest RowMessage(const wire::Manifest& manifest, uint64_t row, const RowVersion& version,
                  BytesView row_bytes) {
  return Transcript("shoal row v2")
      .Blob(manifest.table_id())
      .U64(row)
      .U64(version.epoch)
      .Blob(version.rows_digest)
      .Blob(row_bytes)
      .Finish();
}

absl::StatusOr<Manifest> Manifest::VerifyPast(const wire::SignedManifest& signed_manifest,
                                              const roster::Roster& roster) {
  const wire::Manifest& content = signed_manifest.manifest();
  SHOAL_RETURN_IF_ERROR(CheckManifest(content));
  if (content.deployment() != roster.deployment()) {
    return absl::UnauthenticatedError(absl::StrCat("manifest: of deployment ", content.deployment(),
                                                   ", not of ", roster.deployment()));
  }
  Manifest manifest;
  manifest.wire_ = signed_manifest;
  manifest.wire_.DiscardUnknownFields();
  manifest.digest_ = ManifestDigest(content);
  if (const absl::Status status =
          roster.VerifyByAll(manifest.digest_, AsBytes(signed_manifest.signature()));
      !status.ok()) {
    return Annotate(status, "manifest");
  }
  return manifest;
}

absl::StatusOr<Manifest> Manifest::Verify(const wire::SignedManifest& signed_manifest,
                                          const roster::Roster& roster, uint64_t now_s) {
  SHOAL_ASSIGN_OR_RETURN(Manifest manifest, VerifyPast(signed_manifest, roster));
  if (manifest.epoch() < roster.minimum_table_epoch()) {
    return absl::UnauthenticatedError(absl::StrCat("manifest: epoch ", manifest.epoch(),
                                                   " is before the pinned minimum ",
                                                   roster.minimum_table_epoch()));
  }
  SHOAL_RETURN_IF_ERROR(manifest.CheckTime(roster, now_s));
  return manifest;
}

absl::Status Manifest::CheckTime(const roster::Roster& roster, uint64_t now_s) const {
  return roster.CheckTime("table", content().created_s(), content().expires_s(), now_s);
}

}  // namespace shoal::table
