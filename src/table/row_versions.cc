#include "src/table/row_versions.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"

namespace shoal::table {
namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("list of rows' epochs: ", what));
}

void AppendVarint(uint64_t value, Bytes& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<uint8_t>(value | 0x80));
  out.push_back(static_cast<uint8_t>(value));
}

// Nothing if the bytes end, or if it is not the shortest form of a number below 2^64.
std::optional<uint64_t> TakeVarint(BytesView& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 10 && i < bytes.size(); ++i) {
    const uint64_t group = bytes[i] & 0x7f;
    if (i == 9 && group > 1) return std::nullopt;
    value |= group << (7 * i);
    if (bytes[i] < 0x80) {
      if (i > 0 && group == 0) return std::nullopt;
      bytes = bytes.subspan(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

// The parameter k of Rice's code for `n` of `rows` rows: optimal for random sets.
uint32_t RiceBits(uint64_t rows, uint64_t n) {
  uint32_t k = 0;
  while (k < 31 && (n << (k + 1)) * 128 <= 123 * rows) ++k;
  return k;
}

class BitWriter {
 public:
  explicit BitWriter(Bytes& out) : out_(out) {}
  void Put(bool bit) {
    if (used_ == 0) out_.push_back(0);
    out_.back() = static_cast<uint8_t>(out_.back() | (bit ? 1u << used_ : 0u));
    used_ = (used_ + 1) % 8;
  }
  void PutRice(uint64_t value, uint32_t k) {
    for (uint64_t i = 0; i < value >> k; ++i) Put(false);
    Put(true);
    for (uint32_t i = 0; i < k; ++i) Put((value >> i & 1) != 0);
  }

 private:
  Bytes& out_;
  uint32_t used_ = 0;  // bits of the last byte
};

class BitReader {
 public:
  explicit BitReader(BytesView bytes) : bytes_(bytes) {}
  std::optional<bool> Take() {
    if (at_ / 8 >= bytes_.size()) return std::nullopt;
    const bool bit = (bytes_[at_ / 8] >> (at_ % 8) & 1) != 0;
    ++at_;
    return bit;
  }
  // Nothing if the bits end, or if the value is not below `limit`.
  std::optional<uint64_t> TakeRice(uint32_t k, uint64_t limit) {
    uint64_t high = 0;
    for (;;) {
      const std::optional<bool> bit = Take();
      if (!bit) return std::nullopt;
      if (*bit) break;
      if (++high << k >= limit) return std::nullopt;
    }
    uint64_t value = high << k;
    for (uint32_t i = 0; i < k; ++i) {
      const std::optional<bool> bit = Take();
      if (!bit) return std::nullopt;
      value |= static_cast<uint64_t>(*bit) << i;
    }
    if (value >= limit) return std::nullopt;
    return value;
  }
  // Whether nothing is left but zeros up to a whole byte.
  bool AtEnd() const {
    if ((at_ + 7) / 8 != bytes_.size()) return false;
    return at_ % 8 == 0 || bytes_[at_ / 8] >> (at_ % 8) == 0;
  }

 private:
  BytesView bytes_;
  uint64_t at_ = 0;  // bits
};

// The largest class, the first of those that are equally large.
size_t Largest(const std::vector<uint64_t>& counts) {
  return static_cast<size_t>(std::ranges::max_element(counts) - counts.begin());
}

// The epochs of a list, and the class of rows that it does not name.
constexpr size_t kMaxClasses = kMaxRowAge + 1;
constexpr uint16_t kNoClass = std::numeric_limits<uint16_t>::max();
static_assert(kMaxClasses < kNoClass);
constexpr uint64_t kMaxListedRows = (1ull << 31) - 2;

// The list of those rows of `of` whose epoch is above `after`; it does not name the others.
VersionList After(const VersionList& of, uint64_t after) {
  std::vector<RowVersion> versions = {{}};
  for (const RowVersion& version : of.versions()) {
    if (version.epoch > after) versions.push_back(version);
  }
  std::vector<uint16_t> class_of(of.rows());
  for (uint64_t row = 0; row < of.rows(); ++row) {
    const uint64_t epoch = of.of(row).epoch;
    if (epoch <= after) continue;
    class_of[row] = static_cast<uint16_t>(
        std::ranges::lower_bound(versions, epoch, {}, &RowVersion::epoch) - versions.begin());
  }
  return VersionList(std::move(versions), std::move(class_of));
}

}  // namespace

Digest VersionListDigest(BytesView list) {
  return Transcript("shoal row versions v1").Blob(list).Finish();
}

VersionList::VersionList(std::vector<RowVersion> versions, std::vector<uint16_t> class_of)
    : class_of_(std::move(class_of)) {
  SHOAL_CHECK(versions.size() < kNoClass);
  std::vector<bool> used(versions.size());
  for (const uint16_t c : class_of_) {
    SHOAL_CHECK(c < versions.size());
    used[c] = true;
  }
  std::vector<uint16_t> renamed(versions.size());
  for (size_t c = 0; c < versions.size(); ++c) {
    SHOAL_CHECK(c == 0 || versions[c - 1].epoch < versions[c].epoch);
    if (!used[c]) continue;
    renamed[c] = static_cast<uint16_t>(versions_.size());
    versions_.push_back(versions[c]);
  }
  for (uint16_t& c : class_of_) c = renamed[c];
}

const RowVersion& VersionList::of(uint64_t row) const {
  SHOAL_CHECK(row < class_of_.size());
  return versions_[class_of_[row]];
}

Bytes VersionList::Encode() const {
  Bytes out;
  AppendVarint(rows(), out);
  AppendVarint(versions_.size(), out);
  if (versions_.empty()) return out;
  std::vector<uint64_t> counts(versions_.size());
  for (const uint16_t c : class_of_) ++counts[c];
  const size_t unlisted = Largest(counts);
  AppendVarint(unlisted, out);
  uint64_t before = 0;
  for (size_t c = 0; c < versions_.size(); ++c) {
    AppendVarint(versions_[c].epoch - before, out);
    before = versions_[c].epoch;
    if (before != 0) Append(out, versions_[c].rows_digest);
    AppendVarint(counts[c], out);
  }
  // The rows of each class, one class after the other.
  std::vector<size_t> begin(versions_.size() + 1);
  for (size_t c = 0; c < counts.size(); ++c) {
    begin[c + 1] = begin[c] + (c == unlisted ? 0 : counts[c]);
  }
  std::vector<uint32_t> listed(begin.back());
  std::vector<size_t> next(begin.begin(), begin.end() - 1);
  for (uint64_t row = 0; row < rows(); ++row) {
    const uint16_t c = class_of_[row];
    if (c != unlisted) listed[next[c]++] = static_cast<uint32_t>(row);
  }
  BitWriter bits(out);
  for (size_t c = 0; c < counts.size(); ++c) {
    const uint32_t k = RiceBits(rows(), counts[c]);
    uint64_t from = 0;
    for (size_t i = begin[c]; i < begin[c + 1]; ++i) {
      bits.PutRice(listed[i] - from, k);
      from = uint64_t{listed[i]} + 1;
    }
  }
  return out;
}

absl::StatusOr<VersionList> VersionList::Decode(BytesView bytes, const Bounds& bounds) {
  const absl::Status malformed = Malformed("malformed");
  const std::optional<uint64_t> rows = TakeVarint(bytes);
  const std::optional<uint64_t> classes = TakeVarint(bytes);
  if (!rows || !classes) return malformed;
  if (*rows != bounds.rows || *rows > kMaxListedRows) {
    return Malformed(absl::StrCat("has ", *rows, " rows instead of ", bounds.rows));
  }
  if (*classes > kMaxClasses || *classes > *rows) return Malformed("too many epochs");
  VersionList list;
  if (*rows == 0) {
    if (!bytes.empty()) return malformed;
    return list;
  }
  const std::optional<uint64_t> unlisted = TakeVarint(bytes);
  if (!unlisted || *unlisted >= *classes) return malformed;
  std::vector<uint64_t> counts;
  uint64_t epoch = 0, left = *rows;
  for (uint64_t c = 0; c < *classes; ++c) {
    const std::optional<uint64_t> step = TakeVarint(bytes);
    if (!step || (c > 0 && *step == 0)) return malformed;
    if (*step > bounds.last - std::min(epoch, bounds.last)) {
      return Malformed("names an epoch that is not one of its own");
    }
    epoch += *step;
    if (epoch == 0 ? bounds.names_every_row : epoch <= bounds.after) {
      return Malformed("names an epoch that is not one of its own");
    }
    RowVersion version = {.epoch = epoch};
    if (epoch != 0) {
      if (bytes.size() < sizeof(Digest)) return malformed;
      std::copy_n(bytes.begin(), sizeof(Digest), version.rows_digest.begin());
      bytes = bytes.subspan(sizeof(Digest));
    }
    const std::optional<uint64_t> count = TakeVarint(bytes);
    if (!count || *count == 0 || *count > left) return malformed;
    left -= *count;
    counts.push_back(*count);
    list.versions_.push_back(version);
  }
  if (left != 0 || Largest(counts) != *unlisted) return malformed;

  list.class_of_.assign(*rows, kNoClass);
  BitReader bits(bytes);
  for (size_t c = 0; c < counts.size(); ++c) {
    if (c == *unlisted) continue;
    const uint32_t k = RiceBits(*rows, counts[c]);
    uint64_t from = 0;
    for (uint64_t i = 0; i < counts[c]; ++i) {
      const std::optional<uint64_t> gap = bits.TakeRice(k, *rows - from);
      if (!gap) return malformed;
      const uint64_t row = from + *gap;
      if (list.class_of_[row] != kNoClass) return Malformed("names a row twice");
      list.class_of_[row] = static_cast<uint16_t>(c);
      from = row + 1;
    }
  }
  if (!bits.AtEnd()) return malformed;
  std::ranges::replace(list.class_of_, kNoClass, static_cast<uint16_t>(*unlisted));
  return list;
}

absl::StatusOr<VersionList> Overlay(const VersionList& above, const VersionList& below) {
  // The versions of both, by rising epoch.
  std::vector<RowVersion> all(above.versions().begin(), above.versions().end());
  all.insert(all.end(), below.versions().begin(), below.versions().end());
  std::ranges::sort(all, {}, &RowVersion::epoch);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i - 1].epoch == all[i].epoch) return Malformed("two digests of one epoch's rows");
  }
  if (all.size() >= kNoClass) return Malformed("too many epochs");
  std::vector<uint16_t> class_of(above.rows());
  for (uint64_t row = 0; row < above.rows(); ++row) {
    const RowVersion* version = &above.of(row);
    if (version->epoch == 0 && row < below.rows()) version = &below.of(row);
    if (version->epoch == 0) return Malformed(absl::StrCat("none names row ", row));
    class_of[row] = static_cast<uint16_t>(
        std::ranges::lower_bound(all, version->epoch, {}, &RowVersion::epoch) - all.begin());
  }
  return VersionList(std::move(all), std::move(class_of));
}

absl::StatusOr<Bytes> DeriveBase(BytesView base, const wire::Manifest& manifest,
                                 BytesView previous) {
  const uint64_t last = BaseEpoch(manifest.epoch());
  BytesView head = base;
  const std::optional<uint64_t> base_rows = TakeVarint(head);
  if (!base_rows || *base_rows / 16 > manifest.row_versions().base_rows()) {
    return Malformed("another table's");
  }
  SHOAL_ASSIGN_OR_RETURN(
      const VersionList below,
      VersionList::Decode(base, {.rows = *base_rows, .last = last, .names_every_row = true}));
  SHOAL_ASSIGN_OR_RETURN(
      const VersionList above,
      VersionList::Decode(previous, {.rows = manifest.row_versions().base_rows(), .last = last}));
  SHOAL_ASSIGN_OR_RETURN(const VersionList now, Overlay(above, below));
  return now.Encode();
}

RowVersions RowVersions::First(const RowVersion& version, uint64_t rows) {
  RowVersions first;
  first.epoch_ = version.epoch;
  first.now_ = VersionList({version}, std::vector<uint16_t>(rows, 0));
  first.lists_ = {.base = VersionList().Encode(),
                  .previous = VersionList().Encode(),
                  .recent = first.now_.Encode()};
  return first;
}

RowVersions RowVersions::Next(const RowVersion& version, uint64_t rows,
                              const std::function<bool(uint64_t row)>& changed) const {
  SHOAL_CHECK(version.epoch > epoch_);
  std::vector<RowVersion> versions(now_.versions().begin(), now_.versions().end());
  const auto newest = static_cast<uint16_t>(versions.size());
  versions.push_back(version);
  std::vector<uint16_t> class_of(rows, newest);
  for (uint64_t row = 0; row < std::min(rows, this->rows()); ++row) {
    const uint64_t last = of(row).epoch;
    if (version.epoch - last >= kMaxRowAge || changed(row)) continue;
    class_of[row] = static_cast<uint16_t>(
        std::ranges::lower_bound(versions, last, {}, &RowVersion::epoch) - versions.begin());
  }
  RowVersions next;
  next.epoch_ = version.epoch;
  next.now_ = VersionList(std::move(versions), std::move(class_of));
  const uint64_t base = BaseEpoch(version.epoch);
  if (base == BaseEpoch(epoch_)) {
    next.base_rows_ = base_rows_;
    next.lists_.base = lists_.base;
    next.lists_.previous = lists_.previous;
  } else {
    next.base_rows_ = this->rows();
    next.lists_.base = now_.Encode();
    next.lists_.previous = After(now_, base - kBlockEpochs).Encode();
  }
  next.lists_.recent = After(next.now_, base).Encode();
  return next;
}

absl::StatusOr<RowVersions> RowVersions::Create(const wire::Manifest& manifest, Lists lists) {
  const wire::RowVersionLists& signed_lists = manifest.row_versions();
  if (AsText(VersionListDigest(lists.base)) != signed_lists.base_digest() ||
      AsText(VersionListDigest(lists.previous)) != signed_lists.previous_digest() ||
      AsText(VersionListDigest(lists.recent)) != signed_lists.recent_digest()) {
    return absl::DataLossError("the lists of rows' epochs are not the manifest's");
  }
  const uint64_t epoch = manifest.epoch(), base_epoch = BaseEpoch(epoch);
  const uint64_t block = base_epoch - std::min(base_epoch, kBlockEpochs);
  SHOAL_ASSIGN_OR_RETURN(const VersionList base,
                         VersionList::Decode(lists.base, {.rows = signed_lists.base_rows(),
                                                          .last = base_epoch,
                                                          .names_every_row = true}));
  SHOAL_ASSIGN_OR_RETURN(
      const VersionList previous,
      VersionList::Decode(lists.previous,
                          {.rows = signed_lists.base_rows(), .after = block, .last = base_epoch}));
  SHOAL_ASSIGN_OR_RETURN(
      const VersionList recent,
      VersionList::Decode(lists.recent,
                          {.rows = manifest.rows(), .after = base_epoch, .last = epoch}));
  for (uint64_t row = 0; row < base.rows(); ++row) {
    const RowVersion& in_block = previous.of(row);
    if (in_block.epoch != 0 ? in_block != base.of(row) : base.of(row).epoch > block) {
      return Malformed("the block's contradicts the base");
    }
  }
  RowVersions out;
  SHOAL_ASSIGN_OR_RETURN(out.now_, Overlay(recent, base));
  for (const RowVersion& version : out.now_.versions()) {
    if (version.epoch == epoch && AsText(version.rows_digest) != manifest.rows_digest()) {
      return Malformed("the epoch's rows are not the manifest's");
    }
    if (epoch - version.epoch >= kMaxRowAge) return Malformed("a row is too old");
  }
  out.epoch_ = epoch;
  out.base_rows_ = base.rows();
  out.lists_ = std::move(lists);
  return out;
}

wire::RowVersionLists RowVersions::Describe() const {
  wire::RowVersionLists out;
  out.set_base_rows(base_rows_);
  out.set_base_bytes(lists_.base.size());
  out.set_base_digest(ToString(VersionListDigest(lists_.base)));
  out.set_previous_bytes(lists_.previous.size());
  out.set_previous_digest(ToString(VersionListDigest(lists_.previous)));
  out.set_recent_bytes(lists_.recent.size());
  out.set_recent_digest(ToString(VersionListDigest(lists_.recent)));
  return out;
}

uint64_t RowVersions::changed_rows() const {
  uint64_t n = 0;
  for (uint64_t row = 0; row < rows(); ++row) n += changed(row);
  return n;
}

BytesView RowVersions::list(Part part) const {
  switch (part) {
    case Part::kBase:
      return lists_.base;
    case Part::kPrevious:
      return lists_.previous;
    case Part::kRecent:
      return lists_.recent;
  }
  return {};
}

}  // namespace shoal::table
