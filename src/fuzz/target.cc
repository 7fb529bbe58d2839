#include "src/fuzz/target.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/storage/file.h"

namespace shoal::fuzz {
namespace {

// Removed at the end of the process.
class Scratch {
 public:
  Scratch() {
    const char* place = std::getenv("TEST_TMPDIR");
    path_ =
        (place != nullptr ? std::string(place) : std::filesystem::temp_directory_path().string()) +
        "/shoal-fuzz.XXXXXX";
    SHOAL_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

uint8_t Cursor::U8() {
  if (rest_.empty()) return 0;
  const uint8_t value = rest_.front();
  rest_ = rest_.subspan(1);
  return value;
}

uint16_t Cursor::U16() {
  const uint16_t low = U8();
  return static_cast<uint16_t>(low | U8() << 8);
}

BytesView Cursor::Blob() {
  const size_t announced = U16();
  const size_t size = std::min(announced, rest_.size());
  const BytesView blob = rest_.first(size);
  rest_ = rest_.subspan(size);
  return blob;
}

void AppendBlob(BytesView blob, Bytes& out) {
  SHOAL_CHECK(blob.size() < 1 << 16);
  out.push_back(static_cast<uint8_t>(blob.size()));
  out.push_back(static_cast<uint8_t>(blob.size() >> 8));
  Append(out, blob);
}

std::string FileOf(BytesView input, const std::string& name) {
  static const Scratch scratch;
  const std::string directory = scratch.path() + "/" + name;
  SHOAL_CHECK(MakeDirectory(directory, FileMode::kPrivate).ok());
  const std::string path = directory + "/" + name;
  WriteInput(input, path);
  return path;
}

void WriteInput(BytesView input, const std::string& path) {
  std::filesystem::remove(path);
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  SHOAL_CHECK(file >= 0);
  SHOAL_CHECK(::write(file, input.data(), input.size()) == static_cast<ssize_t>(input.size()));
  ::close(file);
}

Bytes WithDigest(absl::string_view domain, BytesView input) {
  Cursor cursor(input);
  const bool fits = cursor.U8() % 2 == 0;
  Bytes file = ToBytes(cursor.rest());
  if (!fits || file.size() < sizeof(Digest)) return file;
  const Digest digest = Transcript(domain).Blob(BytesView(file).subspan(sizeof(Digest))).Finish();
  std::ranges::copy(digest, file.begin());
  return file;
}

Bytes DigestInput(BytesView file) {
  Bytes input(1 + file.size());
  std::ranges::copy(file, input.begin() + 1);
  return input;
}

}  // namespace shoal::fuzz
