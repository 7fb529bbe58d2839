#include "src/client/answer_spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

std::string TemporaryDirectory() {
  const char* const directory = std::getenv("TMPDIR");
  return directory == nullptr ? "/tmp" : directory;
}

absl::StatusOr<int> OpenUnnamed() {
  std::string name = absl::StrCat(TemporaryDirectory(), "/shoal.XXXXXX");
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, name);
  ::unlink(name.c_str());
  return fd;
}

}  // namespace

AnswerSpool::AnswerSpool(std::string path, int fd, const Digest& round_id, size_t count,
                         size_t tagged_bytes, size_t piece_bytes)
    : path_(std::move(path)),
      fd_(fd),
      round_id_(round_id),
      count_(count),
      tagged_bytes_(tagged_bytes),
      per_piece_(std::max<size_t>(1, piece_bytes / tagged_bytes)),
      has_(pieces()),
      missing_(pieces()) {}

absl::Status AnswerSpool::CheckRoom(const std::string& path, uint64_t bytes) {
  const std::string parent = std::filesystem::path(path).parent_path();
  const std::string directory = path.empty()     ? TemporaryDirectory()
                                : parent.empty() ? std::string(".")
                                                 : parent;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error || space.available >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(directory, ": the answers take ", bytes,
                                                   " bytes, and there are ", space.available,
                                                   " left; nothing was sent"));
}

AnswerSpool::~AnswerSpool() { ::close(fd_); }

absl::StatusOr<std::unique_ptr<AnswerSpool>> AnswerSpool::Open(const std::string& path,
                                                               const Digest& round_id, size_t count,
                                                               size_t tagged_bytes,
                                                               size_t piece_bytes) {
  int fd = -1;
  if (path.empty()) {
    SHOAL_ASSIGN_OR_RETURN(fd, OpenUnnamed());
  } else {
    fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return ErrnoStatus(errno, path);
  }
  std::unique_ptr<AnswerSpool> spool(
      new AnswerSpool(path.empty() ? "the answers' temporary file" : path, fd, round_id, count,
                      tagged_bytes, piece_bytes));
  struct stat info;
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": is this client's alone but others may read it"));
  }
  if (info.st_size > 0) SHOAL_RETURN_IF_ERROR(spool->FindPieces());
  return spool;
}

size_t AnswerSpool::CountOf(size_t piece) const {
  return std::min(per_piece_, count_ - FirstOf(piece));
}

uint64_t AnswerSpool::OffsetOf(size_t piece) const {
  return uint64_t{piece} * (per_piece_ * tagged_bytes_ + sizeof(Digest));
}

Digest AnswerSpool::DigestOf(size_t piece, BytesView answers) const {
  return Transcript("shoal client answers v1")
      .Blob(round_id_)
      .U64(piece)
      .U64(tagged_bytes_)
      .Blob(answers)
      .Finish();
}

absl::Status AnswerSpool::FindPieces() {
  Bytes content;
  for (size_t piece = 0; piece < pieces(); ++piece) {
    const size_t bytes = CountOf(piece) * tagged_bytes_;
    content.resize(bytes + sizeof(Digest));
    const absl::Status read = ReadAt(OffsetOf(piece), content);
    if (absl::IsOutOfRange(read)) break;  // the file ends here
    SHOAL_RETURN_IF_ERROR(read);
    const Digest digest = DigestOf(piece, BytesView(content).first(bytes));
    if (std::equal(digest.begin(), digest.end(), content.begin() + static_cast<ptrdiff_t>(bytes))) {
      has_[piece] = 1;
      --missing_;
    }
  }
  return absl::OkStatus();
}

absl::Status AnswerSpool::Put(size_t piece, BytesView answers) {
  SHOAL_CHECK(answers.size() == CountOf(piece) * tagged_bytes_ && !has_[piece]);
  SHOAL_RETURN_IF_ERROR(WriteAt(OffsetOf(piece), answers));
  SHOAL_RETURN_IF_ERROR(WriteAt(OffsetOf(piece) + answers.size(), DigestOf(piece, answers)));
  has_[piece] = 1;
  --missing_;
  return absl::OkStatus();
}

absl::Status AnswerSpool::Read(size_t first, MutableBytes answers) const {
  while (!answers.empty()) {
    const size_t piece = first / per_piece_;
    const size_t within = first - FirstOf(piece);
    SHOAL_CHECK(piece < pieces() && has_[piece]);
    const size_t count = std::min(CountOf(piece) - within, answers.size() / tagged_bytes_);
    SHOAL_CHECK(count > 0);
    const MutableBytes part = answers.first(count * tagged_bytes_);
    const absl::Status read = ReadAt(OffsetOf(piece) + within * tagged_bytes_, part);
    if (absl::IsOutOfRange(read)) {
      return absl::DataLossError(absl::StrCat(path_, ": was cut off while it was in use"));
    }
    SHOAL_RETURN_IF_ERROR(read);
    first += count;
    answers = answers.subspan(part.size());
  }
  return absl::OkStatus();
}

absl::Status AnswerSpool::ReadAt(uint64_t offset, MutableBytes bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path_);
    if (n == 0) return absl::OutOfRangeError(absl::StrCat(path_, ": ends too early"));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status AnswerSpool::WriteAt(uint64_t offset, BytesView bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("writing ", path_));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace shoal::client
