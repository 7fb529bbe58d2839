#include "src/table/row_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/table/placement.h"
#include "src/table/row.h"

namespace shoal::table {
namespace {

// The record's number, from decimal digits without leading zeros.
absl::StatusOr<uint64_t> DenseKey(BytesView key, uint64_t records) {
  const absl::string_view text = AsText(key);
  uint64_t number = 0;
  bool good = !text.empty() && text.size() <= 20 && (text.size() == 1 || text[0] != '0');
  for (const char c : text.substr(0, 20)) good = good && absl::ascii_isdigit(c);
  if (!good) {
    return absl::InvalidArgumentError("the key is not a decimal number without leading zeros");
  }
  if (!absl::SimpleAtoi(text, &number) || number >= records) {
    return absl::OutOfRangeError(
        absl::StrCat("the table has no record ", text, ": its keys are 0 to ", records - 1));
  }
  return number;
}

uint64_t DenseUsed(const wire::Manifest& manifest, uint64_t row) {
  const uint64_t per_row = manifest.dense().records_per_row();
  return std::min(per_row, manifest.records() - row * per_row);
}

absl::Status NotKnown(uint64_t row) {
  return absl::UnavailableError(
      absl::StrCat("row ", row, " has no room for all of its keys, of which this may be one"));
}

// Finds the wrong signatures among many right ones by halving.
struct Verifier {
  const signature::PublicKey& key;
  std::span<const BytesView> messages;
  std::span<const signature::Signature> signatures;
  RandomSource& random;
  ThreadPool* pool;
  std::function<void(size_t)> found_wrong;

  void Check(size_t begin, size_t end) const {
    if (begin == end) return;
    if (signature::VerifyBatch(key, messages.subspan(begin, end - begin),
                               signatures.subspan(begin, end - begin), random, pool)
            .ok()) {
      return;
    }
    if (end - begin == 1) return found_wrong(begin);
    const size_t middle = begin + (end - begin) / 2;
    Check(begin, middle);
    Check(middle, end);
  }
};

}  // namespace

absl::StatusOr<RowMap> RowMap::Create(const Manifest& manifest, Bytes placement,
                                      RowVersions::Lists lists) {
  return CreateUnsigned(manifest.content(), std::move(placement), std::move(lists));
}

absl::StatusOr<RowMap> RowMap::CreateUnsigned(const wire::Manifest& manifest, Bytes placement,
                                              RowVersions::Lists lists) {
  SHOAL_RETURN_IF_ERROR(CheckManifest(manifest));
  if (manifest.has_hashed()) {
    if (placement.size() != manifest.hashed().buckets() ||
        ToString(PlacementDigest(placement)) != manifest.hashed().placement_digest()) {
      return absl::DataLossError("the placement is not the manifest's");
    }
  } else if (!placement.empty()) {
    return absl::DataLossError("a dense table has no placement");
  }
  SHOAL_ASSIGN_OR_RETURN(RowVersions versions, RowVersions::Create(manifest, std::move(lists)));
  RowMap map;
  map.versions_ = std::make_shared<const RowVersions>(std::move(versions));
  map.manifest_ = manifest;
  map.manifest_.DiscardUnknownFields();
  map.placement_ = std::move(placement);
  return map;
}

absl::StatusOr<uint64_t> RowMap::RowOf(BytesView key) const {
  if (manifest_.has_dense()) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t number, DenseKey(key, manifest_.records()));
    return number / manifest_.dense().records_per_row();
  }
  const KeyHash hash = HashKey(SeedOf(AsBytes(manifest_.hashed().hash_seed())), key);
  return table::RowOf(hash, placement_[BucketOf(hash, manifest_.hashed().buckets())], rows());
}

absl::StatusOr<std::optional<Bytes>> RowMap::Find(uint64_t row, BytesView row_bytes,
                                                  BytesView key) const {
  if (row_bytes.size() != manifest_.row_bytes()) {
    return absl::DataLossError(
        absl::StrCat("row: has ", row_bytes.size(), " bytes instead of ", manifest_.row_bytes()));
  }
  SHOAL_ASSIGN_OR_RETURN(const uint64_t expected, RowOf(key));
  if (row != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("row ", row, " says nothing about a key of row ", expected));
  }
  if (manifest_.has_dense()) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t number, DenseKey(key, manifest_.records()));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<std::optional<BytesView>> values,
                           DecodeDenseRow(manifest_.dense(), DenseUsed(manifest_, row), row_bytes));
    SHOAL_RETURN_IF_ERROR(CheckComplete(
        std::ranges::all_of(values, [](const auto& value) { return value.has_value(); })));
    const std::optional<BytesView> value = values[number % manifest_.dense().records_per_row()];
    if (!value.has_value()) return NotKnown(row);
    return ToBytes(*value);
  }
  const KeyHash hash = HashKey(SeedOf(AsBytes(manifest_.hashed().hash_seed())), key);
  SHOAL_ASSIGN_OR_RETURN(const HashedFind found, FindInHashedRow(row_bytes, key, MarkOf(hash)));
  SHOAL_RETURN_IF_ERROR(CheckComplete(found.complete));
  if (found.may_be_displaced) return NotKnown(row);
  if (!found.value.has_value()) return std::optional<Bytes>();
  return ToBytes(*found.value);
}

absl::Status RowMap::CheckComplete(bool complete) const {
  if (complete || manifest_.incomplete_rows() > 0) return absl::OkStatus();
  return absl::DataLossError("row: is incomplete, and by the manifest none of the table is");
}

absl::Status RowMap::VerifyAnswer(const roster::Roster& roster, const RowAnswer& answer) const {
  if (answer.row >= rows()) {
    return absl::InvalidArgumentError(absl::StrCat("the table has no row ", answer.row));
  }
  if (answer.answer.size() != row_bytes() + signature::kSignatureBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("row ", answer.row, ": the answer has ", answer.answer.size(), " bytes"));
  }
  const std::string what = absl::StrCat("row ", answer.row);
  const absl::StatusOr<signature::Signature> signature =
      signature::Signature::FromBytes(answer.answer.subspan(row_bytes()));
  // Tampering makes answers random, so bytes that are no signature count as a wrong signature.
  if (!signature.ok()) {
    return absl::UnauthenticatedError(absl::StrCat(what, ": ", signature.status().message()));
  }
  return Annotate(signature::Verify(roster.aggregate_key(),
                                    RowMessage(manifest_, answer.row, versions().of(answer.row),
                                               answer.answer.first(row_bytes())),
                                    *signature),
                  what);
}

std::vector<absl::Status> RowMap::VerifyAnswers(const roster::Roster& roster,
                                                std::span<const RowAnswer> answers,
                                                RandomSource& random, ThreadPool* pool) const {
  std::vector<absl::Status> results(answers.size());
  std::vector<std::optional<signature::Signature>> parsed(answers.size());
  std::vector<Digest> digests(answers.size());
  const auto prepare = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const RowAnswer& answer = answers[i];
      if (answer.row >= rows() ||
          answer.answer.size() != row_bytes() + signature::kSignatureBytes) {
        results[i] = VerifyAnswer(roster, answer);
        continue;
      }
      absl::StatusOr<signature::Signature> signature =
          signature::Signature::FromBytes(answer.answer.subspan(row_bytes()));
      if (!signature.ok()) {
        results[i] = absl::UnauthenticatedError(
            absl::StrCat("row ", answer.row, ": ", signature.status().message()));
        continue;
      }
      parsed[i] = *signature;
      digests[i] = RowMessage(manifest_, answer.row, versions().of(answer.row),
                              answer.answer.first(row_bytes()));
    }
  };
  ParallelFor(pool, answers.size(), 16, prepare);

  std::vector<size_t> index;
  std::vector<BytesView> messages;
  std::vector<signature::Signature> signatures;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!parsed[i].has_value()) continue;
    index.push_back(i);
    messages.emplace_back(digests[i]);
    signatures.push_back(*parsed[i]);
  }
  const Verifier verifier{
      roster.aggregate_key(), messages, signatures, random, pool, [&](size_t i) {
        results[index[i]] = absl::UnauthenticatedError(
            absl::StrCat("row ", answers[index[i]].row, ": signature does not match"));
      }};
  verifier.Check(0, messages.size());
  return results;
}

}  // namespace shoal::table
