#include "src/shoald/product_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/lwe.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"

namespace shoal::shoald {
namespace {

// Words are kept as they are in memory.
static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic = "SHOALPP2";
constexpr size_t kShapeAt = 8, kIdAt = 24, kDigestAt = 56, kHeaderBytes = 88;

Digest WordsDigest(BytesView words) {
  return Transcript("shoal pir product file v1").Blob(words).Finish();
}

Bytes HeaderOf(const wire::PirSetup& shape, BytesView words) {
  Bytes header(kHeaderBytes);
  std::ranges::copy(AsBytes(kMagic), header.begin());
  StoreLe<uint64_t>(&header[kShapeAt], shape.rows_per_column());
  StoreLe<uint64_t>(&header[kShapeAt + 8], shape.columns());
  std::ranges::copy(pir::ProductId(shape), header.begin() + kIdAt);
  std::ranges::copy(WordsDigest(words), header.begin() + kDigestAt);
  return header;
}

}  // namespace

std::string ProductPath(const std::string& directory, absl::string_view engine) {
  return absl::StrCat(directory, "/", engine, ".product");
}

absl::Status TakeProduct(const std::string& directory, pir::Engine engine,
                         const pir::Content& content, pir::ServerOptions& options) {
  const std::string path = ProductPath(directory, pir::EngineName(engine));
  const absl::Status damaged = absl::DataLossError(absl::StrCat(path, " is damaged"));
  const absl::Status other = absl::NotFoundError(absl::StrCat(path, " is another table's"));
  if (!FileExists(path)) return absl::NotFoundError(absl::StrCat(path, ": there is none"));
  // The shape first, which says how long the file is.
  Bytes start(kIdAt);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(start.data()), static_cast<std::streamsize>(start.size()));
  if (!file || !std::ranges::equal(BytesView(start).first(kShapeAt), AsBytes(kMagic))) {
    return damaged;
  }
  pir::ServerOptions taken = options;
  taken.rows_per_column = LoadLe<uint64_t>(&start[kShapeAt]);
  taken.columns = LoadLe<uint64_t>(&start[kShapeAt + 8]);
  const absl::StatusOr<wire::PirSetup> shape = pir::ShapeOf(engine, content, taken);
  if (!shape.ok()) return other;
  const uint64_t words =
      shape->rows_per_column() * shape->record_bytes() * uint64_t{pir::lwe::kDimension};
  // The file's bytes, and the words that become of them.
  SHOAL_RETURN_IF_ERROR(CheckMemory(2 * words * sizeof(uint32_t), path));
  const uint64_t file_bytes = kHeaderBytes + words * sizeof(uint32_t);
  const auto text = ReadPrivateFile(path, file_bytes);
  // Larger than this table's.
  if (absl::IsResourceExhausted(text.status())) return other;
  SHOAL_RETURN_IF_ERROR(text.status());
  const BytesView bytes = AsBytes(*text);
  if (bytes.size() < kHeaderBytes) return damaged;
  if (!std::ranges::equal(bytes.subspan(kIdAt, sizeof(Digest)), pir::ProductId(*shape))) {
    return other;
  }
  const BytesView kept = bytes.subspan(kHeaderBytes);
  if (bytes.size() != file_bytes ||
      !std::ranges::equal(bytes.first(kHeaderBytes), HeaderOf(*shape, kept))) {
    return damaged;
  }
  taken.product.resize(words);
  std::memcpy(taken.product.data(), kept.data(), kept.size());
  options = std::move(taken);
  return absl::OkStatus();
}

absl::Status WriteProduct(const std::string& directory, const pir::Server& server) {
  SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPrivate));
  const std::string path = ProductPath(directory, server.setup().engine());
  const auto words = std::as_bytes(server.product());
  const BytesView content(reinterpret_cast<const uint8_t*>(words.data()), words.size());
  Bytes file = HeaderOf(server.setup(), content);
  file.reserve(kHeaderBytes + content.size());
  Append(file, content);
  return WriteFileAtomically(path, file, FileMode::kPrivate);
}

}  // namespace shoal::shoald
