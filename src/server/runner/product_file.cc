#include "src/server/runner/product_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "src/base/file.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe.h"

namespace shoal::server {
namespace {

// Words are kept as they are in memory.
static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic = "SHOALPP1";
constexpr size_t kHeaderBytes = 8 + 32 + 32;

Digest WordsDigest(BytesView words) {
  return Transcript("shoal pir product file v1").Blob(words).Finish();
}

Bytes HeaderOf(const wire::PirSetup& shape, BytesView words) {
  Bytes header(kHeaderBytes);
  std::ranges::copy(AsBytes(kMagic), header.begin());
  std::ranges::copy(pir::ProductId(shape), header.begin() + 8);
  std::ranges::copy(WordsDigest(words), header.begin() + 40);
  return header;
}

}  // namespace

std::string ProductPath(const std::string& directory, absl::string_view engine) {
  return absl::StrCat(directory, "/", engine, ".product");
}

absl::StatusOr<std::vector<uint32_t>> ReadProduct(const std::string& directory,
                                                  const wire::PirSetup& shape) {
  const std::string path = ProductPath(directory, shape.engine());
  const uint64_t words =
      shape.rows_per_column() * shape.record_bytes() * uint64_t{pir::kDimension};
  const uint64_t file_bytes = kHeaderBytes + words * sizeof(uint32_t);
  auto text = ReadPrivateFile(path, file_bytes);
  const absl::Status other = absl::NotFoundError(absl::StrCat(path, " is another table's"));
  // Larger than this table's.
  if (absl::IsResourceExhausted(text.status())) return other;
  SHOAL_RETURN_IF_ERROR(text.status());
  const BytesView bytes = AsBytes(*text);
  const absl::Status damaged = absl::DataLossError(absl::StrCat(path, " is damaged"));
  if (bytes.size() < kHeaderBytes) return damaged;
  const Digest id = pir::ProductId(shape);
  if (!std::ranges::equal(bytes.first(8), AsBytes(kMagic))) return damaged;
  if (!std::ranges::equal(bytes.subspan(8, 32), id)) return other;
  const BytesView content = bytes.subspan(kHeaderBytes);
  if (bytes.size() != file_bytes ||
      !std::ranges::equal(bytes.first(kHeaderBytes), HeaderOf(shape, content))) {
    return damaged;
  }
  std::vector<uint32_t> product(words);
  std::memcpy(product.data(), content.data(), content.size());
  return product;
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

}  // namespace shoal::server
