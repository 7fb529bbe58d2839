#include "src/server/sealed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/machines/chunk_seal.h"
#include "src/storage/file.h"

namespace shoal::server {
namespace {

using machines::ChunkSeal;

constexpr uint64_t kChunkBytes = SealedFile::kChunkBytes;
constexpr uint64_t kSealedBytes = kChunkBytes + ChunkSeal::kTagBytes;
// Chunks that are written at a time, and that a thread seals or opens at a time.
constexpr size_t kBatch = 1024;
constexpr size_t kGrain = 64;

Seed KeyOf(const Seed& key, uint64_t bytes) {
  return SeedOf(DeriveKey(key.view(), "shoal sealed file v2", bytes));
}

}  // namespace

uint64_t SealedFile::FileBytes(uint64_t bytes) {
  return bytes + (bytes + kChunkBytes - 1) / kChunkBytes * ChunkSeal::kTagBytes;
}

absl::StatusOr<SealedFileWriter> SealedFileWriter::Create(const std::string& path, const Seed& key,
                                                          uint64_t bytes) {
  SHOAL_RETURN_IF_ERROR(DeleteFile(path));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, path);
  return SealedFileWriter(fd, path, KeyOf(key, bytes), bytes);
}

SealedFileWriter::SealedFileWriter(int fd, std::string path, Seed key, uint64_t bytes)
    : fd_(fd), path_(std::move(path)), key_(std::move(key)), bytes_(bytes) {}

SealedFileWriter::SealedFileWriter(SealedFileWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      key_(std::move(other.key_)),
      bytes_(other.bytes_),
      taken_(other.taken_),
      chunks_(other.chunks_),
      waiting_(std::move(other.waiting_)),
      sealed_(std::move(other.sealed_)) {}

SealedFileWriter::~SealedFileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status SealedFileWriter::Write(BytesView piece, ThreadPool& pool) {
  SHOAL_CHECK(piece.size() <= bytes_ - taken_);
  taken_ += piece.size();
  waiting_.reserve(kBatch * kChunkBytes);
  while (!piece.empty()) {
    const size_t now = std::min<size_t>(piece.size(), kBatch * kChunkBytes - waiting_.size());
    waiting_.insert(waiting_.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(now));
    piece = piece.subspan(now);
    if (waiting_.size() == kBatch * kChunkBytes) SHOAL_RETURN_IF_ERROR(Flush(pool));
  }
  return taken_ == bytes_ ? Flush(pool) : absl::OkStatus();
}

absl::Status SealedFileWriter::Flush(ThreadPool& pool) {
  const size_t chunks = (waiting_.size() + kChunkBytes - 1) / kChunkBytes;
  sealed_.resize(SealedFile::FileBytes(waiting_.size()));
  pool.ParallelFor(chunks, kGrain, [&](size_t begin, size_t end) {
    ChunkSeal seal(key_.view(), chunks_ + begin);
    for (size_t i = begin; i < end; ++i) {
      const size_t n = std::min<size_t>(kChunkBytes, waiting_.size() - i * kChunkBytes);
      seal.Seal(BytesView(waiting_).subspan(i * kChunkBytes, n),
                MutableBytes(sealed_).subspan(i * kSealedBytes, n + ChunkSeal::kTagBytes));
    }
  });
  chunks_ += chunks;
  sodium_memzero(waiting_.data(), waiting_.size());
  waiting_.clear();
  return WriteAll(fd_, sealed_, path_);
}

absl::Status SealedFileWriter::Finish() {
  SHOAL_CHECK(taken_ == bytes_);
  if (::fsync(fd_) != 0) return ErrnoStatus(errno, path_);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SealedFile>> SealedFile::Open(const std::string& path,
                                                             const Seed& key, uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, path);
  auto file = std::shared_ptr<SealedFile>(new SealedFile(fd, path, KeyOf(key, bytes), bytes));
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if (static_cast<uint64_t>(info.st_size) != FileBytes(bytes)) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", info.st_size, " bytes instead of ", FileBytes(bytes)));
  }
  return file;
}

SealedFile::SealedFile(int fd, std::string path, Seed key, uint64_t bytes)
    : fd_(fd), path_(std::move(path)), key_(std::move(key)), bytes_(bytes) {}

SealedFile::~SealedFile() { ::close(fd_); }

absl::Status SealedFile::Read(uint64_t offset, MutableBytes into, ThreadPool* pool) const {
  SHOAL_CHECK(offset <= bytes_ && into.size() <= bytes_ - offset);
  if (into.empty()) return absl::OkStatus();
  const uint64_t first = offset / kChunkBytes;
  const uint64_t chunks = (offset + into.size() - 1) / kChunkBytes + 1 - first;
  const auto open = [&](size_t begin, size_t end) -> absl::Status {
    ChunkSeal seal(key_.view(), first + begin);
    Bytes sealed(
        std::min((end - begin) * kSealedBytes, FileBytes(bytes_) - (first + begin) * kSealedBytes));
    SHOAL_RETURN_IF_ERROR(ReadSealed((first + begin) * kSealedBytes, sealed));
    SecretVector<uint8_t> plain(kChunkBytes);
    for (size_t i = begin; i < end; ++i) {
      const uint64_t at = (first + i) * kChunkBytes;  // of the chunk, among the bytes
      const size_t n = std::min(kChunkBytes, bytes_ - at);
      if (!seal.Open(
              BytesView(sealed).subspan((i - begin) * kSealedBytes, n + ChunkSeal::kTagBytes),
              MutableBytes(plain).first(n))) {
        return absl::DataLossError(
            absl::StrCat(path_, ": chunk ", first + i, " is not what was written"));
      }
      const uint64_t from = std::max(offset, at), to = std::min(offset + into.size(), at + n);
      std::copy(plain.data() + (from - at), plain.data() + (to - at),
                into.data() + (from - offset));
    }
    return absl::OkStatus();
  };
  return pool == nullptr ? open(0, chunks) : pool->TryParallelFor(chunks, kGrain, open);
}

void SealedFile::WillRead(uint64_t offset, uint64_t bytes) const {
  const uint64_t first = offset / kChunkBytes, last = (offset + bytes) / kChunkBytes;
  // Only for speed: whether it helped is not asked.
  ::posix_fadvise(fd_, static_cast<off_t>(first * kSealedBytes),
                  static_cast<off_t>((last + 1 - first) * kSealedBytes), POSIX_FADV_WILLNEED);
}

absl::Status SealedFile::ReadSealed(uint64_t at, MutableBytes into) const {
  while (!into.empty()) {
    const ssize_t now = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(at));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return ErrnoStatus(errno, path_);
    if (now == 0) return absl::DataLossError(absl::StrCat(path_, ": ends too early"));
    at += static_cast<uint64_t>(now);
    into = into.subspan(static_cast<size_t>(now));
  }
  return absl::OkStatus();
}

}  // namespace shoal::server
