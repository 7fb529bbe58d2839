#include "src/table/table.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"
#include "src/table/displace.h"
#include "src/table/placement.h"
#include "src/table/row.h"
#include "src/wire/text.h"

namespace shoal::table {
namespace {

using signature::kSignatureBytes;

constexpr uint32_t kDefaultRowBytes = 1024;
constexpr char kShareMagic[] = "SHOALSH2";
constexpr char kOldShareMagic[] = "SHOALSH1";
constexpr size_t kShareHeaderBytes = 8 + 4 + 8;

constexpr char kRowsFile[] = "/rows.bin";
constexpr char kPlacementFile[] = "/placement.bin";
constexpr char kSignaturesFile[] = "/signatures.bin";
constexpr char kBaseFile[] = "/versions-base.bin";
constexpr char kPreviousFile[] = "/versions-previous.bin";
constexpr char kRecentFile[] = "/versions-recent.bin";
constexpr char kKeptFile[] = "/kept.bin";
constexpr char kSharesDirectory[] = "/shares";

// Rows that a thread signs or checks at a time.
constexpr size_t kRowGrain = 32;

// Counts rows done by many threads and passes the count on, one call at a time.
class Progress {
 public:
  Progress(ProgressCallback callback, uint64_t total)
      : callback_(std::move(callback)), total_(total) {}
  void Add(uint64_t n) {
    if (callback_ == nullptr) return;
    const MutexLock lock(mutex_);
    done_ += n;
    callback_(done_, total_);
  }

 private:
  const ProgressCallback callback_;
  const uint64_t total_;
  Mutex mutex_;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
};

absl::Status BadRecord(const RecordSet& records, size_t i, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(records.Where(i), ": ", what));
}

uint32_t QueryBucketsOf(const TableOptions& options) {
  if (options.query_buckets.has_value()) return *options.query_buckets;
  return options.previous == nullptr ? 0 : options.previous->content.manifest().query_buckets();
}

wire::Manifest StartManifest(const TableOptions& options, uint64_t records, RandomSource& random) {
  wire::Manifest manifest;
  manifest.set_name(options.name);
  if (options.previous != nullptr) {
    manifest.set_table_id(options.previous->content.manifest().table_id());
  } else {
    Digest table_id;
    random.Fill(table_id);
    manifest.set_table_id(ToString(table_id));
  }
  manifest.set_epoch(options.epoch);
  manifest.set_created_s(options.created_s);
  manifest.set_expires_s(options.expires_s);
  manifest.set_records(records);
  manifest.set_deployment(options.deployment);
  manifest.set_query_buckets(QueryBucketsOf(options));
  return manifest;
}

absl::Status CheckPrevious(const TableOptions& options) {
  if (options.previous == nullptr) return absl::OkStatus();
  const wire::Manifest& before = options.previous->content.manifest();
  if (before.name() != options.name || before.deployment() != options.deployment) {
    return absl::InvalidArgumentError(
        absl::StrCat("the previous epoch is of table ", before.name(), " of deployment ",
                     before.deployment(), ", not of ", options.name, " of ", options.deployment));
  }
  if (before.epoch() >= options.epoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch ", options.epoch, " cannot follow epoch ", before.epoch()));
  }
  return absl::OkStatus();
}

// The versions of `rows`, which follow `previous`.
RowVersions VersionsAfter(const UnsignedTable& previous, const RowVersion& version, uint64_t rows,
                          uint32_t row_bytes, BytesView all_rows) {
  return previous.versions().Next(version, rows, [&](uint64_t row) {
    return previous.row_bytes() != row_bytes ||
           !std::ranges::equal(previous.row(row), all_rows.subspan(row * row_bytes, row_bytes));
  });
}

// Completes a manifest that lacks nothing but the digest of its rows and the lists.
absl::StatusOr<UnsignedTable> Finish(const TableOptions& options, wire::Manifest manifest,
                                     Bytes rows, Bytes placement) {
  const uint32_t row_bytes = manifest.row_bytes();
  const RowVersion version = {.epoch = manifest.epoch(),
                              .rows_digest = RowsDigest(manifest.rows(), row_bytes, rows)};
  manifest.set_rows_digest(ToString(version.rows_digest));
  const PreviousEpoch* const previous = options.sign_all_rows ? nullptr : options.previous;
  const RowVersions versions =
      previous == nullptr
          ? RowVersions::First(version, manifest.rows())
          : VersionsAfter(previous->content, version, manifest.rows(), row_bytes, rows);
  *manifest.mutable_row_versions() = versions.Describe();
  Bytes kept;
  for (uint64_t row = 0; row < versions.rows(); ++row) {
    if (!versions.changed(row)) Append(kept, previous->signature(row));
  }
  return UnsignedTable::Create(std::move(manifest), std::move(rows), std::move(placement),
                               versions.lists(), std::move(kept));
}

// The rows that the table's epoch changed, in ascending order.
std::vector<uint64_t> ChangedRows(const UnsignedTable& table) {
  std::vector<uint64_t> changed;
  for (uint64_t row = 0; row < table.rows(); ++row) {
    if (table.versions().changed(row)) changed.push_back(row);
  }
  return changed;
}

// Whether this epoch can keep the rows of the one before, as it is to. FAILED_PRECONDITION says why
// not.
absl::Status CheckKeepRows(const TableOptions& options, bool dense) {
  if (options.previous == nullptr) {
    return absl::InvalidArgumentError("rows can be kept of a previous epoch alone");
  }
  if (options.room_percent != 0) {
    return absl::InvalidArgumentError(
        "room is left where keys are placed, and kept rows keep them");
  }
  const wire::Manifest& before = options.previous->content.manifest();
  const auto cannot = [](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat("the rows cannot be kept: ", why));
  };
  if (before.has_dense() != dense) return cannot("the previous epoch has the other layout");
  if (options.row_bytes != 0 && options.row_bytes != before.row_bytes()) {
    return cannot(absl::StrCat("those of the previous epoch have ", before.row_bytes(), " bytes"));
  }
  if (QueryBucketsOf(options) != before.query_buckets()) {
    return cannot(absl::StrCat("those of the previous epoch are in ", before.query_buckets(),
                               " query buckets, and these in ", QueryBucketsOf(options)));
  }
  if (before.row_bytes() < 2) return cannot("one byte is not enough to say that a key is missing");
  return absl::OkStatus();
}

absl::Status CheckRoomOption(const TableOptions& options) {
  if (options.room_percent <= kMaxRoomPercent) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("room: ", options.room_percent, " percent are more than ", kMaxRoomPercent));
}

// The default minimum of a dense table's row_bytes.
constexpr uint32_t kShortestDefaultRow = 16;

absl::Status CheckRowBytesOption(uint32_t row_bytes) {
  if (row_bytes != 0 && (row_bytes < kMinRowBytes || row_bytes > kMaxRowBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("row bytes: ", row_bytes, " are not in ", kMinRowBytes, "..", kMaxRowBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::SignedManifest> ReadManifest(const std::string& directory) {
  wire::SignedManifest manifest;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(ManifestPath(directory), manifest));
  return manifest;
}

// Reads a file without a second copy of it, as it may take nearly all memory that there is.
absl::StatusOr<Bytes> ReadBytes(const std::string& path, uint64_t expected_bytes) {
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error) return ErrnoStatus(error.value(), path);
  if (file_bytes != expected_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", file_bytes, " bytes instead of ", expected_bytes));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno, path);
  Bytes content(expected_bytes);
  file.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
  if (!file || file.peek() != std::ifstream::traits_type::eof()) {
    return absl::DataLossError(absl::StrCat(path, ": could not be read, or changed meanwhile"));
  }
  return content;
}

// Memory for each row while signatures are verified.
constexpr uint64_t kVerifyRowBytes = sizeof(std::optional<signature::Signature>) +
                                     sizeof(signature::Signature) + sizeof(Digest) +
                                     sizeof(BytesView);

// Memory for each row while lists of rows' epochs are decoded: two lists of 2 bytes a row.
constexpr uint64_t kVersionsRowBytes = 4;

// RESOURCE_EXHAUSTED, before anything is read, if there is no memory to open a table of this
// manifest, with `row_extra_bytes` in addition for each row. The manifest must have been checked
// (CheckManifest).
absl::Status CheckTableMemory(const wire::Manifest& manifest, uint64_t row_extra_bytes,
                              const std::string& directory) {
  const wire::RowVersionLists& lists = manifest.row_versions();
  return CheckMemory(
      manifest.rows() * (manifest.row_bytes() + row_extra_bytes + kVersionsRowBytes) +
          lists.base_rows() * kVersionsRowBytes + lists.base_bytes() + lists.previous_bytes() +
          lists.recent_bytes() + manifest.hashed().buckets(),
      absl::StrCat(directory, ": the table"));
}

// Parses and verifies, on all threads, the signatures of one signer (a party, or all parties
// together) on `rows`: signatures has 48 bytes for each of them. The error names the first row that
// is wrong.
absl::StatusOr<std::vector<signature::Signature>> VerifyRowSignatures(
    const UnsignedTable& table, std::span<const uint64_t> rows, const signature::PublicKey& key,
    const std::function<BytesView(size_t i)>& signature_of, RandomSource& random, ThreadPool& pool,
    Progress& progress) {
  std::vector<std::optional<signature::Signature>> parsed(rows.size());
  std::vector<Digest> digests(rows.size());
  const auto parse = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      absl::StatusOr<signature::Signature> signature =
          signature::Signature::FromBytes(signature_of(i));
      if (!signature.ok()) {
        return absl::UnauthenticatedError(
            absl::StrCat("row ", rows[i], ": ", signature.status().message()));
      }
      parsed[i] = *signature;
      digests[i] =
          RowMessage(table.manifest(), rows[i], table.versions().of(rows[i]), table.row(rows[i]));
    }
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(pool.TryParallelFor(rows.size(), kRowGrain, parse));
  std::vector<signature::Signature> out;
  out.reserve(rows.size());
  for (const auto& signature : parsed) out.push_back(*signature);
  const std::vector<BytesView> messages(digests.begin(), digests.end());

  // Batches large enough for the sums to be cheap, small enough to show progress.
  constexpr size_t kBatch = 4096;
  for (size_t begin = 0; begin < rows.size(); begin += kBatch) {
    const size_t n = std::min<size_t>(kBatch, rows.size() - begin);
    const std::span<const BytesView> some_messages = std::span(messages).subspan(begin, n);
    const std::span<const signature::Signature> some = std::span(out).subspan(begin, n);
    if (!signature::VerifyBatch(key, some_messages, some, random, &pool).ok()) {
      for (size_t i = 0; i < n; ++i) {
        const absl::Status status = signature::Verify(key, some_messages[i], some[i]);
        if (!status.ok()) return Annotate(status, absl::StrCat("row ", rows[begin + i]));
      }
      return absl::InternalError("a batch of signatures is refused, but none of them");
    }
    progress.Add(n);
  }
  return out;
}

}  // namespace

absl::StatusOr<UnsignedTable> UnsignedTable::Create(wire::Manifest manifest, Bytes rows,
                                                    Bytes placement, RowVersions::Lists lists,
                                                    Bytes kept) {
  SHOAL_ASSIGN_OR_RETURN(RowMap map,
                         RowMap::CreateUnsigned(manifest, std::move(placement), std::move(lists)));
  if (rows.size() != manifest.rows() * manifest.row_bytes() ||
      ToString(RowsDigest(manifest.rows(), manifest.row_bytes(), rows)) != manifest.rows_digest()) {
    return absl::DataLossError("the rows are not the manifest's");
  }
  if (!kept.empty() &&
      kept.size() != (map.rows() - map.versions().changed_rows()) * kSignatureBytes) {
    return absl::DataLossError("there is not one kept signature for every row that did not change");
  }
  UnsignedTable table;
  table.map_ = std::make_shared<const RowMap>(std::move(map));
  table.rows_ = std::make_shared<const Bytes>(std::move(rows));
  table.kept_ = std::make_shared<const Bytes>(std::move(kept));
  return table;
}

absl::StatusOr<UnsignedTable> UnsignedTable::Open(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(wire::SignedManifest signed_manifest, ReadManifest(directory));
  wire::Manifest& manifest = *signed_manifest.mutable_manifest();
  if (absl::Status status = CheckManifest(manifest); !status.ok()) {
    return Annotate(status, ManifestPath(directory));
  }
  SHOAL_RETURN_IF_ERROR(CheckTableMemory(manifest, 0, directory));
  SHOAL_ASSIGN_OR_RETURN(Bytes rows,
                         ReadBytes(directory + kRowsFile, manifest.rows() * manifest.row_bytes()));
  Bytes placement;
  if (manifest.has_hashed()) {
    SHOAL_ASSIGN_OR_RETURN(placement,
                           ReadBytes(directory + kPlacementFile, manifest.hashed().buckets()));
  }
  const wire::RowVersionLists& described = manifest.row_versions();
  RowVersions::Lists lists;
  SHOAL_ASSIGN_OR_RETURN(lists.base, ReadBytes(directory + kBaseFile, described.base_bytes()));
  SHOAL_ASSIGN_OR_RETURN(lists.previous,
                         ReadBytes(directory + kPreviousFile, described.previous_bytes()));
  SHOAL_ASSIGN_OR_RETURN(lists.recent,
                         ReadBytes(directory + kRecentFile, described.recent_bytes()));
  Bytes kept;
  if (signed_manifest.signature().empty() && FileExists(directory + kKeptFile)) {
    SHOAL_ASSIGN_OR_RETURN(const std::string content,
                           ReadFile(directory + kKeptFile, manifest.rows() * kSignatureBytes));
    kept = ToBytes(AsBytes(content));
  }
  absl::StatusOr<UnsignedTable> table =
      Create(std::move(manifest), std::move(rows), std::move(placement), std::move(lists),
             std::move(kept));
  if (!table.ok()) return Annotate(table.status(), directory);
  return table;
}

absl::Status UnsignedTable::Save(const std::string& directory) const {
  const absl::Status exists = absl::AlreadyExistsError(
      absl::StrCat(directory, ": exists; a table is written into a new directory"));
  if (FileExists(directory)) return exists;
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  SHOAL_RETURN_IF_ERROR(MakeDirectory(
      [&] {
        const std::string parent = std::filesystem::path(path).parent_path().string();
        return parent.empty() ? std::string(".") : parent;
      }(),
      FileMode::kPublic));
  // Everything is written to a directory beside it, which is then renamed.
  std::string temporary = path + ".XXXXXX";
  if (::mkdtemp(temporary.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("creating ", directory));
  }
  auto remove = absl::MakeCleanup([&] {
    std::error_code ignored;
    std::filesystem::remove_all(temporary, ignored);
  });
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(temporary + kRowsFile, bytes(), FileMode::kPublic));
  if (manifest().has_hashed()) {
    SHOAL_RETURN_IF_ERROR(
        WriteFileAtomically(temporary + kPlacementFile, map().placement(), FileMode::kPublic));
  }
  for (const auto& [file, part] : {std::pair(kBaseFile, RowVersions::Part::kBase),
                                   std::pair(kPreviousFile, RowVersions::Part::kPrevious),
                                   std::pair(kRecentFile, RowVersions::Part::kRecent)}) {
    SHOAL_RETURN_IF_ERROR(
        WriteFileAtomically(temporary + file, versions().list(part), FileMode::kPublic));
  }
  if (!kept().empty()) {
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(temporary + kKeptFile, kept(), FileMode::kPublic));
  }
  wire::SignedManifest unsigned_manifest;
  *unsigned_manifest.mutable_manifest() = manifest();
  SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(ManifestPath(temporary), unsigned_manifest));
  std::error_code error;
  std::filesystem::permissions(temporary, std::filesystem::perms(0755), error);
  if (!error) std::filesystem::rename(temporary, path, error);
  if (error) return ErrnoStatus(error.value(), directory);
  std::move(remove).Cancel();
  return absl::OkStatus();
}

absl::StatusOr<PreviousEpoch> PreviousEpoch::Open(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(wire::SignedManifest manifest, ReadManifest(directory));
  if (manifest.signature().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, ": is not signed by all parties; an epoch follows the last one that is"));
  }
  SHOAL_ASSIGN_OR_RETURN(UnsignedTable content, UnsignedTable::Open(directory));
  SHOAL_ASSIGN_OR_RETURN(Bytes signatures,
                         ReadBytes(directory + kSignaturesFile, content.rows() * kSignatureBytes));
  return PreviousEpoch{.content = std::move(content),
                       .manifest = std::move(manifest),
                       .signatures = std::make_shared<const Bytes>(std::move(signatures))};
}

absl::StatusOr<PreviousEpoch> PreviousEpoch::OpenUnsigned(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(UnsignedTable content, UnsignedTable::Open(directory));
  return PreviousEpoch{.content = std::move(content), .manifest = {}, .signatures = nullptr};
}

BytesView PreviousEpoch::signature(uint64_t row) const {
  SHOAL_CHECK(signatures != nullptr && row < content.rows());
  return BytesView(*signatures).subspan(row * kSignatureBytes, kSignatureBytes);
}

absl::Status UnsignedTable::CheckContent() const {
  uint64_t records = 0;
  uint64_t incomplete_rows = 0;
  for (uint64_t number = 0; number < rows(); ++number) {
    const std::string what = absl::StrCat("row ", number);
    if (manifest().has_dense()) {
      const uint64_t per_row = manifest().dense().records_per_row();
      const uint64_t used = std::min(per_row, manifest().records() - number * per_row);
      const auto values = DecodeDenseRow(manifest().dense(), used, row(number));
      if (!values.ok()) return Annotate(values.status(), what);
      records += used;
      incomplete_rows +=
          !std::ranges::all_of(*values, [](const auto& value) { return value.has_value(); });
      continue;
    }
    const absl::StatusOr<HashedRow> decoded = DecodeHashedRow(row(number));
    if (!decoded.ok()) return Annotate(decoded.status(), what);
    incomplete_rows += !decoded->displaced.none();
    for (const RecordView& record : decoded->records) {
      const absl::StatusOr<uint64_t> expected = map().RowOf(record.key);
      SHOAL_RETURN_IF_ERROR(expected.status());
      if (*expected != number) {
        return absl::DataLossError(
            absl::StrCat(what, ": holds a key that the placement sends to row ", *expected));
      }
    }
    records += decoded->records.size();
  }
  if (records != manifest().records()) {
    return absl::DataLossError(absl::StrCat("the rows hold ", records,
                                            " records, the manifest says ", manifest().records()));
  }
  if (incomplete_rows != manifest().incomplete_rows()) {
    return absl::DataLossError(absl::StrCat(
        incomplete_rows, " rows are incomplete, the manifest says ", manifest().incomplete_rows()));
  }
  return absl::OkStatus();
}

BytesView UnsignedTable::row(uint64_t row) const {
  SHOAL_CHECK(row < rows());
  return BytesView(*rows_).subspan(row * row_bytes(), row_bytes());
}

double UnsignedTable::fill() const {
  uint64_t used = 0;
  if (manifest().has_dense()) {
    used = manifest().records() * DenseSlotBytes(manifest().dense());
  } else {
    for (uint64_t number = 0; number < rows(); ++number) {
      const auto decoded = DecodeHashedRow(row(number));
      if (!decoded.ok()) continue;
      for (const RecordView& record : decoded->records) {
        used += HashedRecordBytes(record.key.size(), record.value.size());
      }
    }
  }
  return static_cast<double>(used) / static_cast<double>(bytes().size());
}

namespace {

// Chooses which of the records of a row, by rising keys, give way. DATA_LOSS if the row of the
// previous epoch is malformed.
absl::StatusOr<Displacement> DisplaceFrom(const UnsignedTable& before, uint64_t row,
                                          std::span<const uint32_t> of_row,
                                          const RecordSet& records,
                                          const std::vector<uint32_t>& record_bytes,
                                          const std::vector<KeyMark>& marks) {
  absl::StatusOr<HashedRow> earlier = DecodeHashedRow(before.row(row));
  if (!earlier.ok()) {
    return Annotate(earlier.status(), absl::StrCat("the previous epoch, row ", row));
  }
  std::vector<RowKey> keys;
  auto held = earlier->records.begin();
  for (const uint32_t i : of_row) {
    const absl::string_view key = AsText(records.key(i));
    while (held != earlier->records.end() && AsText(held->key) < key) ++held;
    keys.push_back({.record_bytes = record_bytes[i],
                    .mark = marks[i],
                    .was_held = held != earlier->records.end() && AsText(held->key) == key});
  }
  return Displace(keys, before.row_bytes());
}

// How many bytes each record takes in its row. INVALID_ARGUMENT if one is longer than rows may be.
absl::StatusOr<std::vector<uint32_t>> MeasureRecords(const RecordSet& records,
                                                     const TableOptions& options) {
  std::vector<uint32_t> record_bytes(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    record_bytes[i] =
        static_cast<uint32_t>(HashedRecordBytes(records.key(i).size(), records.value(i).size()));
    if (!options.keep_rows && options.row_bytes != 0 && record_bytes[i] > options.row_bytes) {
      return BadRecord(records, i,
                       absl::StrCat("the record takes ", record_bytes[i],
                                    " bytes, more than a row of ", options.row_bytes));
    }
  }
  return record_bytes;
}

struct PlacedKeys {
  uint32_t row_bytes = 0;
  Placement placement;
};

// Chooses how long rows are and where keys are: as in the epoch before, or anew.
absl::StatusOr<PlacedKeys> PlaceKeys(const RecordSet& records,
                                     const std::vector<uint32_t>& record_bytes,
                                     const TableOptions& options, RandomSource& random) {
  uint32_t longest = 0;
  for (const uint32_t bytes : record_bytes) longest = std::max(longest, bytes);
  const UnsignedTable* const before =
      options.previous != nullptr ? &options.previous->content : nullptr;
  const bool was_hashed = before != nullptr && before->manifest().has_hashed();
  uint32_t row_bytes = options.row_bytes;
  if (options.keep_rows) {
    row_bytes = before->row_bytes();
  } else if (row_bytes == 0) {
    row_bytes = std::max(was_hashed ? before->row_bytes() : kDefaultRowBytes, longest);
  }
  std::optional<Placement> previous;
  if (was_hashed && before->row_bytes() == row_bytes) {
    previous = {.seed = SeedOf(AsBytes(before->manifest().hashed().hash_seed())),
                .rows = before->rows(),
                .displacements = ToBytes(before->map().placement())};
  }
  Placement placement;
  if (options.keep_rows) {
    placement = *std::move(previous);
  } else {
    const auto room = static_cast<uint32_t>(uint64_t{row_bytes} * options.room_percent / 100);
    SHOAL_ASSIGN_OR_RETURN(placement, Place(
                                          record_bytes, [&](size_t i) { return records.key(i); },
                                          std::max(row_bytes - room, longest), random,
                                          previous.has_value() ? &*previous : nullptr));
  }
  if (placement.rows > kMaxRows) {
    return absl::InvalidArgumentError("too many rows; choose longer ones");
  }
  return PlacedKeys{row_bytes, std::move(placement)};
}

struct FilledRows {
  Bytes rows;
  uint64_t held = 0;  // records
  uint64_t incomplete_rows = 0;
};

// Puts every record into its row, by rising keys. Only rows that are kept can lack some.
absl::StatusOr<FilledRows> FillRows(const RecordSet& records,
                                    const std::vector<uint32_t>& record_bytes,
                                    const TableOptions& options, const PlacedKeys& keys) {
  const auto& [row_bytes, placement] = keys;
  // Keys by row, then by their bytes.
  std::vector<uint64_t> row_of(records.size());
  std::vector<KeyMark> marks(options.keep_rows ? records.size() : 0);
  const auto buckets = static_cast<uint32_t>(placement.displacements.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const KeyHash hash = HashKey(placement.seed, records.key(i));
    row_of[i] = RowOf(hash, placement.displacements[BucketOf(hash, buckets)], placement.rows);
    if (options.keep_rows) marks[i] = MarkOf(hash);
  }
  std::vector<uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (row_of[a] != row_of[b]) return row_of[a] < row_of[b];
    return AsText(records.key(a)) < AsText(records.key(b));
  });
  FilledRows filled;
  filled.rows.resize(placement.rows * row_bytes);
  Bytes encoded;
  for (size_t i = 0; i < order.size();) {
    const uint64_t row = row_of[order[i]];
    const size_t first = i;
    uint64_t bytes = 0;
    for (; i < order.size() && row_of[order[i]] == row; ++i) bytes += record_bytes[order[i]];
    const std::span<const uint32_t> of_row = std::span(order).subspan(first, i - first);
    Displacement displacement;
    if (bytes > row_bytes) {
      SHOAL_CHECK(options.keep_rows);
      SHOAL_ASSIGN_OR_RETURN(displacement, DisplaceFrom(options.previous->content, row, of_row,
                                                        records, record_bytes, marks));
      ++filled.incomplete_rows;
    }
    encoded.clear();
    auto displaced = displacement.keys.begin();
    for (size_t k = 0; k < of_row.size(); ++k) {
      if (displaced != displacement.keys.end() && *displaced == k) {
        ++displaced;
        continue;
      }
      AppendHashedRecord(records.key(of_row[k]), records.value(of_row[k]), encoded);
      ++filled.held;
    }
    AppendDisplaced(displacement.displaced, encoded);
    SHOAL_CHECK(encoded.size() <= row_bytes);
    std::copy(encoded.begin(), encoded.end(),
              filled.rows.begin() + static_cast<ptrdiff_t>(row * row_bytes));
  }
  return filled;
}

}  // namespace

absl::StatusOr<UnsignedTable> BuildHashed(const RecordSet& records, const TableOptions& options,
                                          RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(CheckRowBytesOption(options.row_bytes));
  SHOAL_RETURN_IF_ERROR(CheckPrevious(options));
  SHOAL_RETURN_IF_ERROR(CheckRoomOption(options));
  if (options.keep_rows) SHOAL_RETURN_IF_ERROR(CheckKeepRows(options, /*dense=*/false));
  SHOAL_RETURN_IF_ERROR(records.CheckUnique());
  if (records.size() >= std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(records.source(), ": too many records"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> record_bytes,
                         MeasureRecords(records, options));
  SHOAL_ASSIGN_OR_RETURN(PlacedKeys keys, PlaceKeys(records, record_bytes, options, random));
  SHOAL_ASSIGN_OR_RETURN(FilledRows filled, FillRows(records, record_bytes, options, keys));
  Placement& placement = keys.placement;
  wire::Manifest manifest = StartManifest(options, filled.held, random);
  manifest.set_incomplete_rows(filled.incomplete_rows);
  manifest.set_rows(placement.rows);
  manifest.set_row_bytes(keys.row_bytes);
  wire::HashedLayout& layout = *manifest.mutable_hashed();
  layout.set_hash_seed(ToString(placement.seed));
  layout.set_buckets(static_cast<uint32_t>(placement.displacements.size()));
  layout.set_placement_digest(ToString(PlacementDigest(placement.displacements)));
  return Finish(options, std::move(manifest), std::move(filled.rows),
                std::move(placement.displacements));
}

namespace {

// The slots of a dense table whose values have these lengths.
wire::DenseLayout NewDenseLayout(size_t shortest, size_t longest, const TableOptions& options) {
  wire::DenseLayout layout;
  if (options.room_percent == 0) {
    layout.set_length_bytes(shortest == longest && longest > 0 ? 0 : longest < 256 ? 1 : 2);
    layout.set_value_bytes(static_cast<uint32_t>(longest));
    return layout;
  }
  // Values may get other lengths, and longer ones than there is room for (DenseSlotCanDisplace).
  const auto with_room = [&](size_t bytes) { return bytes * 100 / (100 - options.room_percent); };
  layout.set_length_bytes(with_room(longest) < 255 ? 1 : 2);
  size_t most = kMaxValueBytes;
  if (options.row_bytes != 0) most = std::max<size_t>(options.row_bytes, 2) - layout.length_bytes();
  layout.set_value_bytes(
      static_cast<uint32_t>(std::clamp(with_room(longest), longest, std::max(most, longest))));
  return layout;
}

// Of each key of a dense table, 0 to the number of records - 1, the place of its record.
absl::StatusOr<std::vector<size_t>> RecordsByKey(const RecordSet& records) {
  const size_t n = records.size();
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<size_t> record_of(n, kNone);
  for (size_t i = 0; i < n; ++i) {
    const absl::string_view key = AsText(records.key(i));
    uint64_t number = 0;
    bool good = !key.empty() && (key.size() == 1 || key[0] != '0') &&
                std::all_of(key.begin(), key.end(), absl::ascii_isdigit) &&
                absl::SimpleAtoi(key, &number);
    if (!good || number >= n) {
      return BadRecord(records, i,
                       absl::StrCat("the key of a dense table is a number from 0 to ", n - 1,
                                    " (it has ", n, " records)"));
    }
    if (record_of[number] != kNone) {
      return BadRecord(records, i,
                       absl::StrCat("the key ", number, " is there twice, first at ",
                                    records.Where(record_of[number])));
    }
    record_of[number] = i;
  }
  return record_of;
}

// Writes every value into its slot. Only slots of rows that are kept can be too short for theirs.
absl::StatusOr<FilledRows> FillDenseRows(const RecordSet& records,
                                         const std::vector<size_t>& record_of,
                                         const TableOptions& options,
                                         const wire::DenseLayout& layout, uint64_t row_count,
                                         uint32_t row_bytes) {
  FilledRows filled;
  filled.held = record_of.size();
  filled.rows.resize(row_count * row_bytes);
  uint64_t last_incomplete = row_count;
  for (uint64_t key = 0; key < record_of.size(); ++key) {
    const uint64_t number = key / layout.records_per_row();
    const uint64_t slot = key % layout.records_per_row();
    const MutableBytes row = MutableBytes(filled.rows).subspan(number * row_bytes, row_bytes);
    const BytesView value = records.value(record_of[key]);
    if (layout.length_bytes() == 0 ? value.size() == layout.value_bytes()
                                   : value.size() <= layout.value_bytes()) {
      WriteDenseSlot(layout, slot, value, row);
      continue;
    }
    SHOAL_CHECK(options.keep_rows);
    if (!DenseSlotCanDisplace(layout)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the rows cannot be kept: ", records.Where(record_of[key]), ": the value has ",
          value.size(), " bytes, and its slot is for ", layout.value_bytes(),
          " and cannot say that it has no room; one that was built with room can"));
    }
    WriteDisplacedDenseSlot(layout, slot, row);
    filled.incomplete_rows += number != last_incomplete;
    last_incomplete = number;
  }
  return filled;
}

}  // namespace

absl::StatusOr<UnsignedTable> BuildDense(const RecordSet& records, const TableOptions& options,
                                         RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(CheckRowBytesOption(options.row_bytes));
  SHOAL_RETURN_IF_ERROR(CheckPrevious(options));
  SHOAL_RETURN_IF_ERROR(CheckRoomOption(options));
  if (options.keep_rows) SHOAL_RETURN_IF_ERROR(CheckKeepRows(options, /*dense=*/true));
  if (records.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(records.source(), ": no records"));
  }
  const size_t n = records.size();
  SHOAL_ASSIGN_OR_RETURN(const std::vector<size_t> record_of, RecordsByKey(records));
  size_t longest = 0, shortest = kMaxValueBytes;
  for (size_t i = 0; i < n; ++i) {
    longest = std::max(longest, records.value(i).size());
    shortest = std::min(shortest, records.value(i).size());
  }

  wire::DenseLayout layout;
  uint32_t row_bytes = options.row_bytes;
  if (options.keep_rows) {
    const wire::Manifest& before = options.previous->content.manifest();
    if (before.records() != n) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the rows cannot be kept: the previous epoch has ", before.records(),
          " records, and these are ", n, ", but a dense table's numbers are its keys"));
    }
    layout = before.dense();
    row_bytes = before.row_bytes();
  } else {
    layout = NewDenseLayout(shortest, longest, options);
    if (row_bytes == 0) {
      row_bytes = std::max(kShortestDefaultRow, static_cast<uint32_t>(DenseSlotBytes(layout)));
    }
  }
  const size_t slot_bytes = DenseSlotBytes(layout);
  if (slot_bytes > row_bytes) {
    for (size_t i = 0; i < n; ++i) {
      if (records.value(i).size() + layout.length_bytes() > row_bytes) {
        return BadRecord(
            records, i,
            absl::StrCat("the value takes ", records.value(i).size() + layout.length_bytes(),
                         " bytes, more than a row of ", row_bytes));
      }
    }
  }
  if (!options.keep_rows) layout.set_records_per_row(row_bytes / slot_bytes);
  const uint64_t row_count = (n - 1) / layout.records_per_row() + 1;
  if (row_count > kMaxRows) {
    return absl::InvalidArgumentError("too many rows; choose longer ones");
  }
  SHOAL_ASSIGN_OR_RETURN(FilledRows filled,
                         FillDenseRows(records, record_of, options, layout, row_count, row_bytes));
  wire::Manifest manifest = StartManifest(options, n, random);
  manifest.set_incomplete_rows(filled.incomplete_rows);
  manifest.set_rows(row_count);
  manifest.set_row_bytes(row_bytes);
  *manifest.mutable_dense() = layout;
  return Finish(options, std::move(manifest), std::move(filled.rows), {});
}

absl::StatusOr<std::vector<size_t>> DisplacedRecords(const RecordSet& records,
                                                     const UnsignedTable& table) {
  std::vector<size_t> displaced;
  if (table.manifest().incomplete_rows() == 0) return displaced;
  for (size_t i = 0; i < records.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t row, table.map().RowOf(records.key(i)));
    const absl::Status found = table.map().Find(row, table.row(row), records.key(i)).status();
    if (absl::IsUnavailable(found)) {
      displaced.push_back(i);
    } else if (!found.ok()) {
      return Annotate(found, absl::StrCat("row ", row));
    }
  }
  return displaced;
}

Bytes TableShare::Serialize() const {
  SHOAL_CHECK(manifest_signature.size() == kSignatureBytes);
  SHOAL_CHECK(row_signatures.size() % kSignatureBytes == 0);
  Bytes out(kShareHeaderBytes + sizeof(Digest) + kSignatureBytes + row_signatures.size());
  std::copy_n(kShareMagic, 8, out.begin());
  StoreLe<uint32_t>(&out[8], party);
  StoreLe<uint64_t>(&out[12], row_signatures.size() / kSignatureBytes);
  auto end =
      std::copy(manifest_digest.begin(), manifest_digest.end(), out.begin() + kShareHeaderBytes);
  end = std::copy(manifest_signature.begin(), manifest_signature.end(), end);
  std::copy(row_signatures.begin(), row_signatures.end(), end);
  return out;
}

absl::StatusOr<TableShare> TableShare::Parse(BytesView bytes) {
  constexpr size_t kFixedBytes = kShareHeaderBytes + sizeof(Digest) + kSignatureBytes;
  if (bytes.size() >= 8 && AsText(bytes.first(8)) == kOldShareMagic) {
    return absl::InvalidArgumentError("is a share of version 0.1, which signed every row anew");
  }
  if (bytes.size() < kFixedBytes || AsText(bytes.first(8)) != kShareMagic) {
    return absl::InvalidArgumentError("is not a table share");
  }
  const auto rows = LoadLe<uint64_t>(bytes.data() + 12);
  if (rows > kMaxRows || bytes.size() - kFixedBytes != rows * kSignatureBytes) {
    return absl::InvalidArgumentError("table share: has not the length that it announces");
  }
  TableShare share;
  share.party = LoadLe<uint32_t>(bytes.data() + 8);
  BytesView rest = bytes.subspan(kShareHeaderBytes);
  std::copy_n(rest.begin(), sizeof(Digest), share.manifest_digest.begin());
  rest = rest.subspan(sizeof(Digest));
  share.manifest_signature = ToBytes(rest.first(kSignatureBytes));
  share.row_signatures = ToBytes(rest.subspan(kSignatureBytes));
  return share;
}

std::string ManifestPath(const std::string& directory) { return directory + "/manifest.textproto"; }

std::string SharePath(const std::string& directory, uint32_t party) {
  return absl::StrCat(directory, kSharesDirectory, "/party-", party, ".share");
}

absl::StatusOr<uint32_t> CheckBeforeSigning(const UnsignedTable& table,
                                            const PreviousEpoch* previous,
                                            const roster::Roster& roster,
                                            const signature::PublicKey& key) {
  const std::optional<uint32_t> party = roster.NumberOf(key);
  if (!party.has_value()) return absl::NotFoundError("the key is no party's of the roster");
  const wire::Manifest& manifest = table.manifest();
  if (manifest.deployment() != roster.deployment()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the table is of deployment ", manifest.deployment(), ", not of ", roster.deployment()));
  }
  if (manifest.epoch() < roster.minimum_table_epoch()) {
    return absl::UnauthenticatedError("the table's epoch is before the pinned minimum");
  }
  if (previous != nullptr) {
    const wire::Manifest& before = previous->content.manifest();
    if (before.table_id() != manifest.table_id() || before.name() != manifest.name() ||
        before.epoch() >= manifest.epoch()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", before.epoch(), " of table ", before.name(), ", id ",
          Hex(AsBytes(before.table_id()).first(8)), "..: is not what this table follows"));
    }
  }
  RowVersion version = {.epoch = manifest.epoch()};
  std::ranges::copy(AsBytes(manifest.rows_digest()), version.rows_digest.begin());
  // The lists are a function of this epoch's rows and of the previous epoch. A list of a single
  // epoch needs no other one.
  const auto is_of = [&](const RowVersions& expected) {
    wire::Manifest with_expected = manifest;
    *with_expected.mutable_row_versions() = expected.Describe();
    return ManifestDigest(manifest) == ManifestDigest(with_expected);
  };
  if (!is_of(RowVersions::First(version, table.rows()))) {
    if (previous == nullptr) {
      return absl::FailedPreconditionError(
          "the table follows an earlier epoch, whose rows it keeps: a party signs it only where it "
          "has that epoch");
    }
    // All parties signed it, this one too: it has checked the previous epoch's rows and lists.
    const absl::StatusOr<Manifest> verified = Manifest::VerifyPast(previous->manifest, roster);
    if (!verified.ok()) {
      return Annotate(verified.status(),
                      "the previous epoch, of which only a roster with the same keys keeps rows");
    }
    if (verified->digest() != ManifestDigest(previous->content.manifest())) {
      return absl::DataLossError("the previous epoch: the signed manifest is another table's");
    }
    if (!is_of(VersionsAfter(previous->content, version, table.rows(), table.row_bytes(),
                             table.bytes()))) {
      return absl::InvalidArgumentError(
          absl::StrCat("the lists of changed rows are not those between epoch ",
                       previous->content.manifest().epoch(), " and epoch ", manifest.epoch()));
    }
  }
  SHOAL_RETURN_IF_ERROR(table.CheckContent());
  return *party;
}

absl::StatusOr<TableShare> SignTable(const UnsignedTable& table, const PreviousEpoch* previous,
                                     const roster::Roster& roster, const signature::SecretKey& key,
                                     ThreadPool& pool, const ProgressCallback& progress) {
  TableShare share;
  SHOAL_ASSIGN_OR_RETURN(share.party,
                         CheckBeforeSigning(table, previous, roster, key.public_key()));
  share.manifest_digest = ManifestDigest(table.manifest());
  share.manifest_signature = ToBytes(key.Sign(share.manifest_digest).bytes());
  const std::vector<uint64_t> rows = ChangedRows(table);
  share.row_signatures.resize(rows.size() * kSignatureBytes);
  Progress counter(progress, rows.size());
  pool.ParallelFor(rows.size(), kRowGrain, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const signature::Signature::Encoded encoded =
          key.Sign(RowMessage(table.manifest(), rows[i], table.versions().of(rows[i]),
                              table.row(rows[i])))
              .bytes();
      std::copy(encoded.begin(), encoded.end(),
                share.row_signatures.begin() + static_cast<ptrdiff_t>(i * kSignatureBytes));
    }
    counter.Add(end - begin);
  });
  return share;
}

namespace {

// The rows of `content` that are not the same in `known`, with the same signature and version.
std::vector<uint64_t> RowsUnlike(const Table* known, const UnsignedTable& content,
                                 const std::function<BytesView(uint64_t row)>& signature_of) {
  const bool same_table = known != nullptr &&
                          known->manifest().content().table_id() == content.manifest().table_id() &&
                          known->content().row_bytes() == content.row_bytes();
  std::vector<uint64_t> rows;
  for (uint64_t row = 0; row < content.rows(); ++row) {
    if (same_table && row < known->rows() &&
        known->content().versions().of(row) == content.versions().of(row) &&
        std::ranges::equal(known->row(row), content.row(row)) &&
        std::ranges::equal(known->signature(row), signature_of(row))) {
      continue;
    }
    rows.push_back(row);
  }
  return rows;
}

// The parties' signatures of the manifest. INVALID_ARGUMENT if a share is for another table, or has
// not a signature for each of so many rows.
absl::StatusOr<std::vector<Bytes>> ManifestSignatures(std::span<const TableShare> shares,
                                                      const std::vector<size_t>& places,
                                                      const Digest& digest, size_t rows) {
  std::vector<Bytes> manifest_signatures;
  for (const size_t place : places) {
    const TableShare& share = shares[place];
    if (share.manifest_digest != digest || share.row_signatures.size() != rows * kSignatureBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("share of party ", share.party, ": is for another table"));
    }
    manifest_signatures.push_back(share.manifest_signature);
  }
  return manifest_signatures;
}

}  // namespace

absl::StatusOr<wire::SignedManifest> ReadSignedManifest(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(wire::SignedManifest manifest, ReadManifest(directory));
  if (manifest.signature().empty()) {
    return absl::UnauthenticatedError(absl::StrCat(directory, ": the table is not signed yet"));
  }
  return manifest;
}

absl::StatusOr<Manifest> VerifyPrevious(const PreviousEpoch& epoch, const roster::Roster& roster,
                                        const Table* known, RandomSource& random,
                                        ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(Manifest manifest, Manifest::VerifyPast(epoch.manifest, roster));
  if (manifest.digest() != ManifestDigest(epoch.content.manifest())) {
    return absl::DataLossError("the signed manifest is another table's");
  }
  const std::vector<uint64_t> rows =
      RowsUnlike(known, epoch.content, [&](uint64_t row) { return epoch.signature(row); });
  Progress silent(nullptr, 0);
  SHOAL_RETURN_IF_ERROR(VerifyRowSignatures(
                            epoch.content, rows, roster.aggregate_key(),
                            [&](size_t i) { return epoch.signature(rows[i]); }, random, pool,
                            silent)
                            .status());
  return manifest;
}

absl::StatusOr<Table> Table::Create(UnsignedTable content,
                                    const wire::SignedManifest& signed_manifest, Bytes signatures,
                                    const roster::Roster& roster, uint64_t now_s,
                                    RandomSource& random, ThreadPool& pool, const Table* known) {
  SHOAL_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Verify(signed_manifest, roster, now_s));
  if (manifest.digest() != ManifestDigest(content.manifest())) {
    return absl::DataLossError("the signed manifest is another table's");
  }
  if (signatures.size() != content.rows() * kSignatureBytes) {
    return absl::DataLossError("there is not one signature for every row");
  }
  const auto signature_of = [&](uint64_t row) {
    return BytesView(signatures).subspan(row * kSignatureBytes, kSignatureBytes);
  };
  const std::vector<uint64_t> rows = RowsUnlike(known, content, signature_of);
  Progress silent(nullptr, 0);
  SHOAL_RETURN_IF_ERROR(VerifyRowSignatures(
                            content, rows, roster.aggregate_key(),
                            [&](size_t i) { return signature_of(rows[i]); }, random, pool, silent)
                            .status());
  Table table(std::move(content));
  table.manifest_ = std::make_shared<const Manifest>(std::move(manifest));
  table.signatures_ = std::make_shared<const Bytes>(std::move(signatures));
  return table;
}

absl::StatusOr<Table> Table::Open(const std::string& directory, const roster::Roster& roster,
                                  uint64_t now_s, RandomSource& random, ThreadPool& pool,
                                  const Table* known) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedManifest signed_manifest, ReadSignedManifest(directory));
  // UnsignedTable::Open reports manifests that are malformed.
  if (CheckManifest(signed_manifest.manifest()).ok()) {
    SHOAL_RETURN_IF_ERROR(
        CheckTableMemory(signed_manifest.manifest(), kSignatureBytes + kVerifyRowBytes, directory));
  }
  SHOAL_ASSIGN_OR_RETURN(UnsignedTable content, UnsignedTable::Open(directory));
  SHOAL_ASSIGN_OR_RETURN(Bytes signatures,
                         ReadBytes(directory + kSignaturesFile, content.rows() * kSignatureBytes));
  absl::StatusOr<Table> table = Create(std::move(content), signed_manifest, std::move(signatures),
                                       roster, now_s, random, pool, known);
  if (!table.ok()) return Annotate(table.status(), directory);
  return table;
}

PreviousEpoch Table::AsPrevious() const {
  return {.content = content_, .manifest = manifest_->wire(), .signatures = signatures_};
}

absl::Status Table::SaveSignatures(const std::string& directory) const {
  SHOAL_RETURN_IF_ERROR(
      WriteFileAtomically(directory + kSignaturesFile, *signatures_, FileMode::kPublic));
  SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(ManifestPath(directory), manifest_->wire()));
  // All of them are in signatures.bin now.
  std::error_code ignored;
  std::filesystem::remove(directory + kKeptFile, ignored);
  return absl::OkStatus();
}

BytesView Table::signature(uint64_t row) const {
  SHOAL_CHECK(row < rows());
  return BytesView(*signatures_).subspan(row * kSignatureBytes, kSignatureBytes);
}

void Table::CopyAnswer(uint64_t row, MutableBytes answer) const {
  SHOAL_CHECK(answer.size() == answer_bytes());
  if (row >= rows()) {
    std::fill(answer.begin(), answer.end(), 0);
    return;
  }
  const BytesView bytes = content_.row(row);
  std::copy(bytes.begin(), bytes.end(), answer.begin());
  const BytesView tail = signature(row);
  std::copy(tail.begin(), tail.end(), answer.begin() + static_cast<ptrdiff_t>(bytes.size()));
}

absl::StatusOr<Table> AggregateTable(const UnsignedTable& table, const roster::Roster& roster,
                                     std::span<const TableShare> shares, uint64_t now_s,
                                     RandomSource& random, ThreadPool& pool,
                                     const ProgressCallback& progress) {
  const Digest digest = ManifestDigest(table.manifest());
  const std::vector<uint64_t> rows = ChangedRows(table);
  if (table.kept().size() != (table.rows() - rows.size()) * kSignatureBytes) {
    return absl::FailedPreconditionError(
        "the signatures of the rows that did not change are missing");
  }
  std::vector<uint32_t> numbers;
  for (const TableShare& share : shares) numbers.push_back(share.party);
  SHOAL_ASSIGN_OR_RETURN(const std::vector<size_t> places,
                         roster::PlacesOfShares(roster.parties(), numbers));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Bytes> manifest_signatures,
                         ManifestSignatures(shares, places, digest, rows.size()));
  SHOAL_ASSIGN_OR_RETURN(const signature::Signature manifest_signature,
                         roster.Aggregate(digest, manifest_signatures));

  Progress counter(progress, rows.size() * (roster.size() + 1));
  std::vector<std::vector<signature::Signature>> verified;
  for (const size_t of_party : places) {
    const TableShare& share = shares[of_party];
    const roster::Party& party = roster.party(share.party);
    const auto signature_of = [&](size_t i) {
      return BytesView(share.row_signatures).subspan(i * kSignatureBytes, kSignatureBytes);
    };
    auto one = VerifyRowSignatures(table, rows, party.key, signature_of, random, pool, counter);
    if (!one.ok()) {
      return Annotate(one.status(), absl::StrCat("party ", party.number, " (", party.name, ")"));
    }
    verified.push_back(*std::move(one));
  }
  Bytes signatures(table.rows() * kSignatureBytes);
  const auto place = [&](uint64_t row, BytesView signature) {
    std::ranges::copy(signature,
                      signatures.begin() + static_cast<ptrdiff_t>(row * kSignatureBytes));
  };
  const auto aggregate = [&](size_t begin, size_t end) {
    std::vector<signature::Signature> of_row;
    for (size_t i = begin; i < end; ++i) {
      of_row.clear();
      for (const auto& one : verified) of_row.push_back(one[i]);
      const absl::StatusOr<signature::Signature> sum = signature::AggregateSignatures(of_row);
      if (!sum.ok()) return Annotate(sum.status(), absl::StrCat("row ", rows[i]));
      place(rows[i], sum->bytes());
    }
    counter.Add(end - begin);
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(pool.TryParallelFor(rows.size(), kRowGrain, aggregate));
  BytesView kept = table.kept();
  for (uint64_t row = 0; row < table.rows(); ++row) {
    if (table.versions().changed(row)) continue;
    place(row, kept.first(kSignatureBytes));
    kept = kept.subspan(kSignatureBytes);
  }

  wire::SignedManifest signed_manifest;
  *signed_manifest.mutable_manifest() = table.manifest();
  signed_manifest.set_signature(ToString(manifest_signature.bytes()));
  return Table::Create(table, signed_manifest, std::move(signatures), roster, now_s, random, pool);
}

}  // namespace shoal::table
