// Which epoch changed each row of a table last. All parties sign, with a table's manifest, the
// digests of three lists that say so; a row is accepted only under the epoch that they name.
//
// Epochs 1..8, 9..16, .. are blocks. In epoch e, with g the last epoch of the block before e's:
//
//   base      every row of the table as it was in epoch g: the epoch of its last change
//   previous  the rows of that table that changed in the block that ends with g
//   recent    the rows of epoch e's table that changed after g
//
// A client fetches `previous` and `recent` whole at every visit. It has `base` if it has the one of
// the block before: `previous` over that one is the new one, whose digest shows that nothing is
// missing. So all who were here at any time in the two last blocks ask for the same, and everybody
// else asks for `base` as well. A row that nobody changed for 4,096 epochs counts as changed, so
// that no list grows without a bound.
//
// A list divides rows into classes, one for each epoch, and one for rows that it does not name. The
// largest class is not listed, the others by the gaps between their rows in Rice's code:
//
//   varint  rows
//   varint  number of classes (0 if there are no rows)
//   varint  which class is not listed: the largest, the first of those that are equally large
//   for each class, by rising epoch:
//     varint  its epoch less that of the class before (the first one's: its epoch; 0 for the rows
//             that are not named)
//     32      digest of all rows of the table in that epoch (not in the class of epoch 0)
//     varint  its rows, at least 1
//   bits, low bits of a byte first, of each listed class, its rows in rising order: the rows
//   between
//             it and the one before, d: d >> k zeros, a one, the k low bits of d from the low one
//             on. k is the largest number with 128 n 2^k <= 123 rows, n the rows of the class; or 0
//   zeros up to a whole byte
//
// Varints are base 128, low group first, in the shortest form, of at most 10 bytes. Of random sets
// the code takes 8.1 bits a row if one row in 100 changed, and 10 bits if one in 370 did; a set of
// one in 1,000 has an entropy of 11.4 bits a row, and takes 11.5.
#ifndef SHOAL_SRC_TABLE_ROW_VERSIONS_H_
#define SHOAL_SRC_TABLE_ROW_VERSIONS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/wire/manifest.pb.h"

namespace shoal::table {

inline constexpr uint64_t kBlockEpochs = 8;
// No row's signature is older.
inline constexpr uint64_t kMaxRowAge = 4096;

// What a row's signature binds beside its number and its bytes.
struct RowVersion {
  uint64_t epoch = 0;       // of the row's last change
  Digest rows_digest = {};  // of all rows of the table in that epoch
  friend bool operator==(const RowVersion&, const RowVersion&) = default;
};

// The last epoch of the block before the epoch's own; 0 if there is none. epoch >= 1.
constexpr uint64_t BaseEpoch(uint64_t epoch) { return (epoch - 1) / kBlockEpochs * kBlockEpochs; }

// Transcript("shoal row versions v1") over the list's bytes as one Blob.
Digest VersionListDigest(BytesView list);

// No list of so many rows is longer.
constexpr uint64_t MaxVersionListBytes(uint64_t rows) { return 5 * rows + (uint64_t{1} << 18); }

// One list, decoded. Immutable; 2 bytes a row.
class VersionList {
 public:
  // No rows.
  VersionList() = default;
  // `versions` by rising epoch; `class_of` is an index into them for every row. Versions of no row
  // are dropped.
  VersionList(std::vector<RowVersion> versions, std::vector<uint16_t> class_of);

  // What a list may say, beside its form.
  struct Bounds {
    uint64_t rows = 0;
    // Epochs are above `after` and at most `last`.
    uint64_t after = 0;
    uint64_t last = 0;
    bool names_every_row = false;
  };
  // INVALID_ARGUMENT for bytes that Encode does not make, or a list out of bounds.
  static absl::StatusOr<VersionList> Decode(BytesView bytes, const Bounds& bounds);
  Bytes Encode() const;

  uint64_t rows() const { return class_of_.size(); }
  // Epoch 0 if the list does not name the row. row < rows(), checked.
  const RowVersion& of(uint64_t row) const;
  std::span<const RowVersion> versions() const { return versions_; }

 private:
  std::vector<RowVersion> versions_;
  std::vector<uint16_t> class_of_;
};

// The list of `above`'s rows: what `above` names as it says, the others as `below` says.
// INVALID_ARGUMENT if neither names a row, or if the two differ about an epoch's digest.
absl::StatusOr<VersionList> Overlay(const VersionList& above, const VersionList& below);

// What a client makes of the base of an earlier block, `base`, and of the `previous` list of the
// present one: the present `base`, if nobody gave the client another one. The caller compares the
// digest with the manifest's. INVALID_ARGUMENT if the two do not fit, or if `base` has many times
// the rows of the present one, for which there may be no memory.
absl::StatusOr<Bytes> DeriveBase(BytesView base, const wire::Manifest& manifest,
                                 BytesView previous);

// The three lists of one epoch. Immutable.
class RowVersions {
 public:
  enum class Part { kBase = 1, kPrevious = 2, kRecent = 3 };

  // Every row changed in this epoch: a table without a predecessor, or signed anew by other keys.
  static RowVersions First(const RowVersion& version, uint64_t rows);
  // The epoch `version.epoch`, after this one, of a table with so many rows. `changed` says whether
  // a row's bytes differ from those in this epoch; it is asked about rows of both alone.
  // version.epoch > epoch(), checked.
  RowVersions Next(const RowVersion& version, uint64_t rows,
                   const std::function<bool(uint64_t row)>& changed) const;

  // As they are encoded.
  struct Lists {
    Bytes base, previous, recent;
  };
  // DATA_LOSS if these are not the manifest's lists, INVALID_ARGUMENT if they contradict
  // themselves, each other or the manifest, which CheckManifest has accepted.
  static absl::StatusOr<RowVersions> Create(const wire::Manifest& manifest, Lists lists);

  // Writes their digests and lengths.
  wire::RowVersionLists Describe() const;

  uint64_t epoch() const { return epoch_; }
  uint64_t rows() const { return now_.rows(); }
  // row < rows(), checked.
  const RowVersion& of(uint64_t row) const { return now_.of(row); }
  // Whether this epoch changed the row.
  bool changed(uint64_t row) const { return of(row).epoch == epoch_; }
  uint64_t changed_rows() const;
  // Whether every row is of this epoch.
  bool all_changed() const { return changed_rows() == rows(); }
  BytesView list(Part part) const;
  const Lists& lists() const { return lists_; }

 private:
  RowVersions() = default;
  uint64_t epoch_ = 0;
  uint64_t base_rows_ = 0;
  Lists lists_;
  VersionList now_;
};

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_ROW_VERSIONS_H_
