#include "src/table/refresh.h"

#include "absl/strings/str_cat.h"

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

}  // namespace shoal::table
