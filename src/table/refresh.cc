#include "src/table/refresh.h"

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"

namespace shoal::table {

absl::Status CanRefresh(const wire::Manifest& enrolled, const wire::Manifest& next) {
  const auto other = [&](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("epoch ", next.epoch(), " of table ",
                                                      next.name(), " cannot refresh rows of epoch ",
                                                      enrolled.epoch(), ": ", what));
  };
  if (enrolled.deployment() != next.deployment()) return other("it is of another deployment");
  if (enrolled.name() != next.name()) return other("the table has another name");
  if (enrolled.table_id() != next.table_id()) return other("the table has another id");
  if (enrolled.epoch() >= next.epoch()) return other("it is not a later one");
  if (enrolled.rows() != next.rows()) return other("it has another number of rows");
  if (enrolled.row_bytes() != next.row_bytes()) return other("its rows have another size");
  if (enrolled.query_buckets() != next.query_buckets()) {
    return other(absl::StrCat("it has ", next.query_buckets(), " query buckets in place of ",
                              enrolled.query_buckets()));
  }
  if (enrolled.layout_case() != next.layout_case()) return other("it has another layout");
  if (enrolled.has_dense()) {
    // A key that is no record has no row. It would get one if records were added, and the number
    // that was asked in its place is random.
    if (enrolled.records() != next.records()) return other("it has another number of records");
    const wire::DenseLayout& a = enrolled.dense();
    const wire::DenseLayout& b = next.dense();
    if (a.records_per_row() != b.records_per_row() || a.value_bytes() != b.value_bytes() ||
        a.length_bytes() != b.length_bytes()) {
      return other("its records have another size");
    }
    return absl::OkStatus();
  }
  const wire::HashedLayout& a = enrolled.hashed();
  const wire::HashedLayout& b = next.hashed();
  if (a.hash_seed() != b.hash_seed()) return other("it has another hash seed");
  if (a.buckets() != b.buckets()) return other("it has another number of buckets");
  if (a.placement_digest() != b.placement_digest()) return other("it has another placement");
  return absl::OkStatus();
}

Digest PlacesDigest(const wire::Manifest& manifest) {
  Transcript transcript("shoal places v1");
  transcript.Blob(manifest.deployment())
      .Blob(manifest.name())
      .Blob(manifest.table_id())
      .U64(manifest.rows())
      .U64(manifest.row_bytes());
  if (manifest.has_dense()) {
    const wire::DenseLayout& dense = manifest.dense();
    transcript.U64(1)
        .U64(manifest.records())
        .U64(dense.records_per_row())
        .U64(dense.value_bytes())
        .U64(dense.length_bytes());
  } else {
    const wire::HashedLayout& hashed = manifest.hashed();
    transcript.U64(2)
        .Blob(hashed.hash_seed())
        .U64(hashed.buckets())
        .Blob(hashed.placement_digest());
  }
  // Parties keep digests of tables without.
  if (manifest.query_buckets() != 0) transcript.U64(manifest.query_buckets());
  return transcript.Finish();
}

}  // namespace shoal::table
