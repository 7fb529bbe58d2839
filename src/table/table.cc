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
#include "src/table/placement.h"
#include "src/table/row.h"
#include "src/wire/text.h"

namespace shoal::table {
namespace {

using signature::kSignatureBytes;

constexpr uint32_t kDefaultRowBytes = 1024;
constexpr char kShareMagic[] = "SHOALSH1";
constexpr size_t kShareHeaderBytes = 8 + 4 + 8;

constexpr char kManifestFile[] = "/manifest.textproto";
constexpr char kRowsFile[] = "/rows.bin";
constexpr char kPlacementFile[] = "/placement.bin";
constexpr char kSignaturesFile[] = "/signatures.bin";
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

wire::Manifest StartManifest(const TableOptions& options, uint64_t records, RandomSource& random) {
  wire::Manifest manifest;
  Digest table_id = options.table_id;
  if (table_id == Digest{}) random.Fill(table_id);
  manifest.set_name(options.name);
  manifest.set_table_id(ToString(table_id));
  manifest.set_epoch(options.epoch);
  manifest.set_created_s(options.created_s);
  manifest.set_expires_s(options.expires_s);
  manifest.set_records(records);
  manifest.set_deployment(options.deployment);
  return manifest;
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
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(directory + kManifestFile, manifest));
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

// RESOURCE_EXHAUSTED, before anything is read, if there is no memory to open a table of this
// manifest, with `row_extra_bytes` in addition for each row. The manifest must have been checked
// (CheckManifest).
absl::Status CheckTableMemory(const wire::Manifest& manifest, uint64_t row_extra_bytes,
                              const std::string& directory) {
  return CheckMemory(
      manifest.rows() * (manifest.row_bytes() + row_extra_bytes) + manifest.hashed().buckets(),
      absl::StrCat(directory, ": the table"));
}

// Parses and verifies, on all threads, the signatures of one signer (a party, or all parties
// together) on all rows. The error names the first row that is wrong.
absl::StatusOr<std::vector<signature::Signature>> VerifyRowSignatures(
    const UnsignedTable& table, const signature::PublicKey& key, BytesView signatures,
    RandomSource& random, ThreadPool& pool, Progress& progress) {
  const uint64_t rows = table.rows();
  SHOAL_CHECK(signatures.size() == rows * kSignatureBytes);
  std::vector<std::optional<signature::Signature>> parsed(rows);
  std::vector<Digest> digests(rows);
  const auto parse = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      absl::StatusOr<signature::Signature> signature = signature::Signature::FromBytes(
          signatures.subspan(row * kSignatureBytes, kSignatureBytes));
      if (!signature.ok()) {
        return absl::UnauthenticatedError(
            absl::StrCat("row ", row, ": ", signature.status().message()));
      }
      parsed[row] = *signature;
      digests[row] = RowMessage(table.manifest(), row, table.row(row));
    }
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(pool.TryParallelFor(rows, kRowGrain, parse));
  std::vector<signature::Signature> out;
  out.reserve(rows);
  for (const auto& signature : parsed) out.push_back(*signature);
  const std::vector<BytesView> messages(digests.begin(), digests.end());

  // Batches large enough for the sums to be cheap, small enough to show progress.
  constexpr size_t kBatch = 4096;
  for (size_t begin = 0; begin < rows; begin += kBatch) {
    const size_t n = std::min<size_t>(kBatch, rows - begin);
    const std::span<const BytesView> some_messages = std::span(messages).subspan(begin, n);
    const std::span<const signature::Signature> some = std::span(out).subspan(begin, n);
    if (!signature::VerifyBatch(key, some_messages, some, random, &pool).ok()) {
      for (size_t i = 0; i < n; ++i) {
        const absl::Status status = signature::Verify(key, some_messages[i], some[i]);
        if (!status.ok()) return Annotate(status, absl::StrCat("row ", begin + i));
      }
      return absl::InternalError("a batch of signatures is refused, but none of them");
    }
    progress.Add(n);
  }
  return out;
}

}  // namespace

absl::StatusOr<UnsignedTable> UnsignedTable::Create(wire::Manifest manifest, Bytes rows,
                                                    Bytes placement) {
  SHOAL_ASSIGN_OR_RETURN(RowMap map, RowMap::CreateUnsigned(manifest, std::move(placement)));
  if (rows.size() != manifest.rows() * manifest.row_bytes() ||
      ToString(RowsDigest(manifest.rows(), manifest.row_bytes(), rows)) != manifest.rows_digest()) {
    return absl::DataLossError("the rows are not the manifest's");
  }
  UnsignedTable table;
  table.map_ = std::make_shared<const RowMap>(std::move(map));
  table.rows_ = std::make_shared<const Bytes>(std::move(rows));
  return table;
}

absl::StatusOr<UnsignedTable> UnsignedTable::Open(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(wire::SignedManifest signed_manifest, ReadManifest(directory));
  wire::Manifest& manifest = *signed_manifest.mutable_manifest();
  if (absl::Status status = CheckManifest(manifest); !status.ok()) {
    return Annotate(status, absl::StrCat(directory, kManifestFile));
  }
  SHOAL_RETURN_IF_ERROR(CheckTableMemory(manifest, 0, directory));
  SHOAL_ASSIGN_OR_RETURN(Bytes rows,
                         ReadBytes(directory + kRowsFile, manifest.rows() * manifest.row_bytes()));
  Bytes placement;
  if (manifest.has_hashed()) {
    SHOAL_ASSIGN_OR_RETURN(placement,
                           ReadBytes(directory + kPlacementFile, manifest.hashed().buckets()));
  }
  absl::StatusOr<UnsignedTable> table =
      Create(std::move(manifest), std::move(rows), std::move(placement));
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
  wire::SignedManifest unsigned_manifest;
  *unsigned_manifest.mutable_manifest() = manifest();
  SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(temporary + kManifestFile, unsigned_manifest));
  std::error_code error;
  std::filesystem::permissions(temporary, std::filesystem::perms(0755), error);
  if (!error) std::filesystem::rename(temporary, path, error);
  if (error) return ErrnoStatus(error.value(), directory);
  std::move(remove).Cancel();
  return absl::OkStatus();
}

absl::Status UnsignedTable::CheckContent() const {
  uint64_t records = 0;
  for (uint64_t number = 0; number < rows(); ++number) {
    const std::string what = absl::StrCat("row ", number);
    if (manifest().has_dense()) {
      const uint64_t per_row = manifest().dense().records_per_row();
      const uint64_t used = std::min(per_row, manifest().records() - number * per_row);
      const auto values = DecodeDenseRow(manifest().dense(), used, row(number));
      if (!values.ok()) return Annotate(values.status(), what);
      records += used;
      continue;
    }
    const absl::StatusOr<std::vector<RecordView>> decoded = DecodeHashedRow(row(number));
    if (!decoded.ok()) return Annotate(decoded.status(), what);
    for (const RecordView& record : *decoded) {
      const absl::StatusOr<uint64_t> expected = map().RowOf(record.key);
      SHOAL_RETURN_IF_ERROR(expected.status());
      if (*expected != number) {
        return absl::DataLossError(
            absl::StrCat(what, ": holds a key that the placement sends to row ", *expected));
      }
    }
    records += decoded->size();
  }
  if (records != manifest().records()) {
    return absl::DataLossError(absl::StrCat("the rows hold ", records,
                                            " records, the manifest says ", manifest().records()));
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
      const auto records = DecodeHashedRow(row(number));
      if (!records.ok()) continue;
      for (const RecordView& record : *records) {
        used += HashedRecordBytes(record.key.size(), record.value.size());
      }
    }
  }
  return static_cast<double>(used) / static_cast<double>(bytes().size());
}

absl::StatusOr<UnsignedTable> BuildHashed(const RecordSet& records, const TableOptions& options,
                                          RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(CheckRowBytesOption(options.row_bytes));
  SHOAL_RETURN_IF_ERROR(records.CheckUnique());
  if (records.size() >= std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(records.source(), ": too many records"));
  }
  std::vector<uint32_t> record_bytes(records.size());
  uint32_t longest = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    record_bytes[i] =
        static_cast<uint32_t>(HashedRecordBytes(records.key(i).size(), records.value(i).size()));
    if (options.row_bytes != 0 && record_bytes[i] > options.row_bytes) {
      return BadRecord(records, i,
                       absl::StrCat("the record takes ", record_bytes[i],
                                    " bytes, more than a row of ", options.row_bytes));
    }
    longest = std::max(longest, record_bytes[i]);
  }
  const bool was_hashed = options.previous != nullptr && options.previous->manifest().has_hashed();
  uint32_t row_bytes = options.row_bytes;
  if (row_bytes == 0) {
    row_bytes = std::max(was_hashed ? options.previous->row_bytes() : kDefaultRowBytes, longest);
  }
  std::optional<Placement> previous;
  if (was_hashed && options.previous->row_bytes() == row_bytes) {
    previous = {.seed = SeedOf(AsBytes(options.previous->manifest().hashed().hash_seed())),
                .rows = options.previous->rows(),
                .displacements = ToBytes(options.previous->placement())};
  }
  SHOAL_ASSIGN_OR_RETURN(Placement placement,
                         Place(
                             record_bytes, [&](size_t i) { return records.key(i); }, row_bytes,
                             random, previous.has_value() ? &*previous : nullptr));
  if (placement.rows > kMaxRows) {
    return absl::InvalidArgumentError("too many rows; choose longer ones");
  }

  // Keys by row, then by their bytes.
  std::vector<uint64_t> row_of(records.size());
  const auto buckets = static_cast<uint32_t>(placement.displacements.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const KeyHash hash = HashKey(placement.seed, records.key(i));
    row_of[i] = RowOf(hash, placement.displacements[BucketOf(hash, buckets)], placement.rows);
  }
  std::vector<uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (row_of[a] != row_of[b]) return row_of[a] < row_of[b];
    return AsText(records.key(a)) < AsText(records.key(b));
  });
  Bytes rows(placement.rows * row_bytes, 0);
  Bytes encoded;
  for (size_t i = 0; i < order.size();) {
    const uint64_t row = row_of[order[i]];
    encoded.clear();
    for (; i < order.size() && row_of[order[i]] == row; ++i) {
      AppendHashedRecord(records.key(order[i]), records.value(order[i]), encoded);
    }
    SHOAL_CHECK(encoded.size() <= row_bytes);
    std::copy(encoded.begin(), encoded.end(),
              rows.begin() + static_cast<ptrdiff_t>(row * row_bytes));
  }

  wire::Manifest manifest = StartManifest(options, records.size(), random);
  manifest.set_rows(placement.rows);
  manifest.set_row_bytes(row_bytes);
  wire::HashedLayout& layout = *manifest.mutable_hashed();
  layout.set_hash_seed(ToString(placement.seed));
  layout.set_buckets(buckets);
  layout.set_placement_digest(ToString(PlacementDigest(placement.displacements)));
  manifest.set_rows_digest(ToString(RowsDigest(placement.rows, row_bytes, rows)));
  return UnsignedTable::Create(std::move(manifest), std::move(rows),
                               std::move(placement.displacements));
}

absl::StatusOr<UnsignedTable> BuildDense(const RecordSet& records, const TableOptions& options,
                                         RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(CheckRowBytesOption(options.row_bytes));
  if (records.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(records.source(), ": no records"));
  }
  const size_t n = records.size();
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<size_t> record_of(n, kNone);
  size_t longest = 0;
  size_t shortest = kMaxValueBytes;
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
    longest = std::max(longest, records.value(i).size());
    shortest = std::min(shortest, records.value(i).size());
  }

  wire::DenseLayout layout;
  layout.set_length_bytes(shortest == longest && longest > 0 ? 0 : longest < 256 ? 1 : 2);
  layout.set_value_bytes(static_cast<uint32_t>(longest));
  const size_t slot_bytes = DenseSlotBytes(layout);
  const auto row_bytes = options.row_bytes != 0
                             ? options.row_bytes
                             : std::max(kShortestDefaultRow, static_cast<uint32_t>(slot_bytes));
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
  layout.set_records_per_row(row_bytes / slot_bytes);
  const uint64_t row_count = (n - 1) / layout.records_per_row() + 1;
  if (row_count > kMaxRows) {
    return absl::InvalidArgumentError("too many rows; choose longer ones");
  }
  Bytes rows(row_count * row_bytes, 0);
  for (uint64_t key = 0; key < n; ++key) {
    const MutableBytes row =
        MutableBytes(rows).subspan(key / layout.records_per_row() * row_bytes, row_bytes);
    WriteDenseSlot(layout, key % layout.records_per_row(), records.value(record_of[key]), row);
  }

  wire::Manifest manifest = StartManifest(options, n, random);
  manifest.set_rows(row_count);
  manifest.set_row_bytes(row_bytes);
  *manifest.mutable_dense() = layout;
  manifest.set_rows_digest(ToString(RowsDigest(row_count, row_bytes, rows)));
  return UnsignedTable::Create(std::move(manifest), std::move(rows), {});
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

std::string SharePath(const std::string& directory, uint32_t party) {
  return absl::StrCat(directory, kSharesDirectory, "/party-", party, ".share");
}

absl::StatusOr<uint32_t> CheckBeforeSigning(const UnsignedTable& table,
                                            const roster::Roster& roster,
                                            const signature::PublicKey& key) {
  const std::optional<uint32_t> party = roster.NumberOf(key);
  if (!party.has_value()) return absl::NotFoundError("the key is no party's of the roster");
  if (table.manifest().deployment() != roster.deployment()) {
    return absl::InvalidArgumentError(absl::StrCat("the table is of deployment ",
                                                   table.manifest().deployment(), ", not of ",
                                                   roster.deployment()));
  }
  if (table.manifest().epoch() < roster.minimum_table_epoch()) {
    return absl::UnauthenticatedError("the table's epoch is before the pinned minimum");
  }
  SHOAL_RETURN_IF_ERROR(table.CheckContent());
  return *party;
}

absl::StatusOr<TableShare> SignTable(const UnsignedTable& table, const roster::Roster& roster,
                                     const signature::SecretKey& key, ThreadPool& pool,
                                     const ProgressCallback& progress) {
  TableShare share;
  SHOAL_ASSIGN_OR_RETURN(share.party, CheckBeforeSigning(table, roster, key.public_key()));
  share.manifest_digest = ManifestDigest(table.manifest());
  share.manifest_signature = ToBytes(key.Sign(share.manifest_digest).bytes());
  share.row_signatures.resize(table.rows() * kSignatureBytes);
  Progress counter(progress, table.rows());
  pool.ParallelFor(table.rows(), kRowGrain, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const signature::Signature::Encoded encoded =
          key.Sign(RowMessage(table.manifest(), row, table.row(row))).bytes();
      std::copy(encoded.begin(), encoded.end(),
                share.row_signatures.begin() + static_cast<ptrdiff_t>(row * kSignatureBytes));
    }
    counter.Add(end - begin);
  });
  return share;
}

absl::StatusOr<Table> Table::Create(UnsignedTable content,
                                    const wire::SignedManifest& signed_manifest, Bytes signatures,
                                    const roster::Roster& roster, uint64_t now_s,
                                    RandomSource& random, ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Verify(signed_manifest, roster, now_s));
  if (manifest.digest() != ManifestDigest(content.manifest())) {
    return absl::DataLossError("the signed manifest is another table's");
  }
  if (signatures.size() != content.rows() * kSignatureBytes) {
    return absl::DataLossError("there is not one signature for every row");
  }
  Progress silent(nullptr, 0);
  SHOAL_RETURN_IF_ERROR(
      VerifyRowSignatures(content, roster.aggregate_key(), signatures, random, pool, silent)
          .status());
  Table table(std::move(content));
  table.manifest_ = std::make_shared<const Manifest>(std::move(manifest));
  table.signatures_ = std::make_shared<const Bytes>(std::move(signatures));
  return table;
}

absl::StatusOr<Table> Table::Open(const std::string& directory, const roster::Roster& roster,
                                  uint64_t now_s, RandomSource& random, ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedManifest signed_manifest, ReadManifest(directory));
  if (signed_manifest.signature().empty()) {
    return absl::UnauthenticatedError(absl::StrCat(directory, ": the table is not signed yet"));
  }
  // UnsignedTable::Open reports manifests that are malformed.
  if (CheckManifest(signed_manifest.manifest()).ok()) {
    SHOAL_RETURN_IF_ERROR(
        CheckTableMemory(signed_manifest.manifest(), kSignatureBytes + kVerifyRowBytes, directory));
  }
  SHOAL_ASSIGN_OR_RETURN(UnsignedTable content, UnsignedTable::Open(directory));
  SHOAL_ASSIGN_OR_RETURN(Bytes signatures,
                         ReadBytes(directory + kSignaturesFile, content.rows() * kSignatureBytes));
  absl::StatusOr<Table> table = Create(std::move(content), signed_manifest, std::move(signatures),
                                       roster, now_s, random, pool);
  if (!table.ok()) return Annotate(table.status(), directory);
  return table;
}

absl::Status Table::SaveSignatures(const std::string& directory) const {
  SHOAL_RETURN_IF_ERROR(
      WriteFileAtomically(directory + kSignaturesFile, *signatures_, FileMode::kPublic));
  return wire::WriteTextFile(directory + kManifestFile, manifest_->wire());
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
  std::vector<const TableShare*> by_party(roster.size(), nullptr);
  for (const TableShare& share : shares) {
    const std::string what = absl::StrCat("share of party ", share.party);
    if (share.party < 1 || share.party > roster.size()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": no such party"));
    }
    if (share.manifest_digest != digest ||
        share.row_signatures.size() != table.rows() * kSignatureBytes) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": is for another table"));
    }
    if (std::exchange(by_party[share.party - 1], &share) != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": comes twice"));
    }
  }
  std::vector<Bytes> manifest_signatures;
  for (uint32_t i = 0; i < roster.size(); ++i) {
    if (by_party[i] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("the share of party ", i + 1, " (",
                                                     roster.party(i + 1).name, ") is missing"));
    }
    manifest_signatures.push_back(by_party[i]->manifest_signature);
  }
  SHOAL_ASSIGN_OR_RETURN(const signature::Signature manifest_signature,
                         roster.Aggregate(digest, manifest_signatures));

  Progress counter(progress, table.rows() * (roster.size() + 1));
  std::vector<std::vector<signature::Signature>> verified;
  for (const TableShare* share : by_party) {
    const roster::Party& party = roster.party(share->party);
    auto one = VerifyRowSignatures(table, party.key, share->row_signatures, random, pool, counter);
    if (!one.ok()) {
      return Annotate(one.status(), absl::StrCat("party ", party.number, " (", party.name, ")"));
    }
    verified.push_back(*std::move(one));
  }
  Bytes signatures(table.rows() * kSignatureBytes);
  const auto aggregate = [&](size_t begin, size_t end) {
    std::vector<signature::Signature> of_row;
    for (size_t row = begin; row < end; ++row) {
      of_row.clear();
      for (const auto& one : verified) of_row.push_back(one[row]);
      const absl::StatusOr<signature::Signature> sum = signature::AggregateSignatures(of_row);
      if (!sum.ok()) {
        return Annotate(sum.status(), absl::StrCat("row ", row));
      }
      const signature::Signature::Encoded encoded = sum->bytes();
      std::copy(encoded.begin(), encoded.end(),
                signatures.begin() + static_cast<ptrdiff_t>(row * kSignatureBytes));
    }
    counter.Add(end - begin);
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(pool.TryParallelFor(table.rows(), kRowGrain, aggregate));

  wire::SignedManifest signed_manifest;
  *signed_manifest.mutable_manifest() = table.manifest();
  signed_manifest.set_signature(ToString(manifest_signature.bytes()));
  return Table::Create(table, signed_manifest, std::move(signatures), roster, now_s, random, pool);
}

}  // namespace shoal::table
