#include "src/pir/setup/product_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"

namespace shoal::pir {
namespace {

// Words are kept as they are in memory.
static_assert(std::endian::native == std::endian::little);

constexpr absl::string_view kMagic = "SHOALPP3";
constexpr size_t kIdAt = 8, kDigestAt = 40, kHeaderBytes = 72;

Digest WordsDigest(BytesView words) {
  return Transcript("shoal pir product file v1").Blob(words).Finish();
}

Bytes HeaderOf(const wire::PirSetup& shape, BytesView words) {
  Bytes header(kHeaderBytes);
  std::ranges::copy(AsBytes(kMagic), header.begin());
  std::ranges::copy(ProductId(shape), header.begin() + kIdAt);
  std::ranges::copy(WordsDigest(words), header.begin() + kDigestAt);
  return header;
}

}  // namespace

std::string ProductPath(const std::string& directory, absl::string_view engine) {
  return absl::StrCat(directory, "/", engine, ".product");
}

absl::Status TakeProduct(const std::string& directory, const Engine& engine, const Content& content,
                         ServerOptions& options) {
  const std::string path = ProductPath(directory, engine.name());
  const absl::Status damaged = absl::DataLossError(absl::StrCat(path, " is damaged"));
  const absl::Status other = absl::NotFoundError(absl::StrCat(path, " is another table's"));
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path, ": there is none"));
  // The header first: whose it is, before there is memory for it.
  Bytes header(kHeaderBytes);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(header.data()), static_cast<std::streamsize>(header.size()));
  if (!file || !std::ranges::equal(BytesView(header).first(kIdAt), AsBytes(kMagic)) ||
      (file_bytes - kHeaderBytes) % sizeof(uint32_t) != 0) {
    return damaged;
  }
  const absl::StatusOr<wire::PirSetup> shape = engine.ShapeOf(content, options);
  if (!shape.ok() ||
      !std::ranges::equal(BytesView(header).subspan(kIdAt, sizeof(Digest)), ProductId(*shape))) {
    return other;
  }
  // The file's bytes, and the words that become of them.
  SHOAL_RETURN_IF_ERROR(CheckMemory(2 * file_bytes, path));
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadPrivateFile(path, file_bytes));
  const BytesView bytes = AsBytes(text);
  if (bytes.size() != file_bytes) return damaged;
  const BytesView kept = bytes.subspan(kHeaderBytes);
  if (!std::ranges::equal(bytes.first(kHeaderBytes), HeaderOf(*shape, kept))) return damaged;
  options.product.resize(kept.size() / sizeof(uint32_t));
  std::memcpy(options.product.data(), kept.data(), kept.size());
  return absl::OkStatus();
}

absl::Status WriteProduct(const std::string& directory, const Server& server) {
  SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPrivate));
  const std::string path = ProductPath(directory, server.setup().engine());
  const auto words = std::as_bytes(server.product());
  const BytesView content(reinterpret_cast<const uint8_t*>(words.data()), words.size());
  Bytes file = HeaderOf(server.setup(), content);
  file.reserve(kHeaderBytes + content.size());
  Append(file, content);
  return WriteFileAtomically(path, file, FileMode::kPrivate);
}

}  // namespace shoal::pir
