#include "src/storage/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "openssl/evp.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr uint64_t kBlockBytes = 16;  // of AES
// Smaller memory is not worth keeping.
constexpr uint64_t kLeastSpareBytes = 1 << 20;
constexpr size_t kMaxSpares = 8;

}  // namespace

uint64_t SpoolPlace::FreeBytes() const {
  return memory_bytes_ - std::min(memory_bytes_, used_ + reserved_);
}

uint64_t SpoolPlace::SpareBytes() const {
  uint64_t bytes = 0;
  for (const PageBuffer& spare : spare_) bytes += spare.size();
  return bytes;
}

uint64_t SpoolPlace::free_bytes() const {
  const MutexLock lock(mutex_);
  return FreeBytes();
}

void SpoolPlace::GiveBackUnused() {
  std::vector<PageBuffer> given_back;  // without the lock
  const MutexLock lock(mutex_);
  for (auto it = spare_.begin(); it != spare_.end();) {
    if (std::ranges::find(unused_, it->data()) == unused_.end() ||
        SpareBytes() < reserved_ + it->size()) {
      ++it;
      continue;
    }
    given_back.push_back(std::move(*it));
    it = spare_.erase(it);
  }
  unused_.clear();
  for (const PageBuffer& spare : spare_) unused_.push_back(spare.data());
}

absl::StatusOr<std::optional<PageBuffer>> SpoolPlace::Claim(uint64_t bytes, Account* account) {
  const MutexLock lock(mutex_);
  const uint64_t own = account == nullptr ? 0 : std::min(account->unspent, bytes);
  if (bytes - own > FreeBytes()) return std::nullopt;
  const uint64_t beside = FreeBytes() - (bytes - own);  // what a larger spare may take in addition
  auto best = spare_.end();
  for (auto it = spare_.begin(); it != spare_.end(); ++it) {
    if (Reuses(it->size(), bytes) && it->size() - bytes <= beside &&
        (best == spare_.end() || it->size() < best->size())) {
      best = it;
    }
  }
  PageBuffer memory;
  if (best != spare_.end()) {
    memory = std::move(*best);
    spare_.erase(best);
    std::erase(unused_, memory.data());
  } else {
    while (!spare_.empty() && used_ + SpareBytes() + bytes > memory_bytes_) spare_.pop_back();
    SHOAL_ASSIGN_OR_RETURN(memory, PageBuffer::Create(bytes, PageBuffer::Content::kSecret));
  }
  used_ += memory.size();
  reserved_ -= own;
  if (account != nullptr) {
    account->unspent -= own;
    account->spent += memory.size();
  }
  return memory;
}

void SpoolPlace::Release(PageBuffer memory, Account* account) {
  // Zeroes the memory, so that nothing of an ended round stays behind.
  const uint64_t bytes = memory.size();
  const bool keep = bytes >= kLeastSpareBytes;
  if (keep) sodium_memzero(memory.data(), bytes);
  const MutexLock lock(mutex_);
  used_ -= bytes;
  if (account != nullptr) {
    account->spent -= bytes;
    const uint64_t had = account->spent + account->unspent;
    const uint64_t back = std::min(bytes, account->limit - std::min(account->limit, had));
    account->unspent += back;
    reserved_ += back;
  }
  if (keep && spare_.size() < kMaxSpares) spare_.push_back(std::move(memory));
}

absl::StatusOr<std::optional<Spool>> SpoolPlace::CreateInMemory(uint64_t bytes, uint64_t memory,
                                                                std::shared_ptr<Account> account) {
  SHOAL_ASSIGN_OR_RETURN(std::optional<PageBuffer> claimed, Claim(memory, account.get()));
  std::optional<Spool> spool;
  if (!claimed.has_value()) return spool;
  spool.emplace();
  spool->size_ = bytes;
  spool->place_ = this;
  spool->memory_ = *std::move(claimed);
  spool->account_ = std::move(account);
  return spool;
}

absl::StatusOr<Spool> SpoolPlace::Create(uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(std::optional<Spool> in_memory, CreateInMemory(bytes, bytes, nullptr));
  if (in_memory.has_value()) return *std::move(in_memory);
  return CreateInFile(bytes);
}

absl::StatusOr<Spool> SpoolPlace::CreateInFile(uint64_t bytes) {
  Spool spool;
  spool.size_ = bytes;
  spool.fd_ = open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (spool.fd_ < 0) {
    return ErrnoStatus(errno,
                       absl::StrCat("a temporary file of ", bytes, " bytes in ", directory_));
  }
  spool.place_ = this;
  file_bytes_ += bytes;
  // Reserves the disk space, so that a full disk fails now and not after hours. A file system that
  // cannot reserve is accepted.
  if (bytes > 0) {
    const int error = posix_fallocate(spool.fd_, 0, static_cast<off_t>(bytes));
    if (error != 0 && error != EOPNOTSUPP && error != EINVAL) {
      return ErrnoStatus(error,
                         absl::StrCat("a temporary file of ", bytes, " bytes in ", directory_));
    }
  }
  randombytes_buf(spool.key_.data(), spool.key_.size());
  return spool;
}

Spool& Spool::operator=(Spool&& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(size_, other.size_);
  std::swap(memory_, other.memory_);
  std::swap(account_, other.account_);
  std::swap(fd_, other.fd_);
  std::swap(key_, other.key_);
  return *this;
}

Spool::~Spool() {
  if (place_ == nullptr) return;
  if (fd_ >= 0) {
    close(fd_);
    place_->file_bytes_ -= size_;
  } else {
    place_->Release(std::move(memory_), account_.get());
  }
}

void Spool::Touch(uint64_t from, ThreadPool& pool) {
  SHOAL_CHECK(from <= size_);
  if (!in_memory()) return;
  const MutableBytes untouched = MutableBytes(memory_).subspan(from);
  pool.ParallelFor(untouched.size(), kPieceBytes, [&](size_t begin, size_t end) {
    std::ranges::fill(untouched.subspan(begin, end - begin), 0);  // it is zero already
  });
}

absl::Status Spool::Crypt(uint64_t offset, BytesView in, MutableBytes out) const {
  // Counter mode from any byte: the block's number is the counter, and the bytes before `offset` in
  // its block are skipped.
  std::array<uint8_t, kBlockBytes> counter = {};
  uint64_t block = offset / kBlockBytes;
  for (size_t i = kBlockBytes; i-- > 8; block >>= 8) counter[i] = static_cast<uint8_t>(block);
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  SHOAL_CHECK(context != nullptr);
  bool ok =
      EVP_EncryptInit_ex(context, EVP_aes_256_ctr(), nullptr, key_.data(), counter.data()) == 1;
  int written = 0;
  SecretArray<kBlockBytes> skipped;  // of the key's stream
  const int skip = static_cast<int>(offset % kBlockBytes);
  if (ok && skip > 0) {
    ok = EVP_EncryptUpdate(context, skipped.data(), &written, skipped.data(), skip) == 1;
  }
  for (size_t at = 0; ok && at < in.size(); at += static_cast<size_t>(written)) {
    const int n = static_cast<int>(std::min(in.size() - at, kPieceBytes));
    ok = EVP_EncryptUpdate(context, out.data() + at, &written, in.data() + at, n) == 1 &&
         written == n;
  }
  EVP_CIPHER_CTX_free(context);
  return ok ? absl::OkStatus() : absl::InternalError("AES-256-CTR failed");
}

absl::Status Spool::Write(uint64_t offset, BytesView bytes, ThreadPool* pool) {
  SHOAL_CHECK(offset <= size_ && bytes.size() <= size_ - offset);
  if (pool == nullptr || bytes.size() <= kPieceBytes) return WriteOne(offset, bytes);
  return pool->TryParallelFor(bytes.size(), kPieceBytes, [&](size_t begin, size_t end) {
    return WriteOne(offset + begin, bytes.subspan(begin, end - begin));
  });
}

absl::Status Spool::WriteOne(uint64_t offset, BytesView bytes) {
  if (in_memory()) {
    std::copy(bytes.begin(), bytes.end(), memory_.data() + offset);
    return absl::OkStatus();
  }
  Bytes encrypted(std::min(bytes.size(), kPieceBytes));
  while (!bytes.empty()) {
    const MutableBytes piece = MutableBytes(encrypted).first(std::min(bytes.size(), kPieceBytes));
    SHOAL_RETURN_IF_ERROR(Crypt(offset, bytes.first(piece.size()), piece));
    for (BytesView left = piece; !left.empty();) {
      const ssize_t n = pwrite(fd_, left.data(), left.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        return ErrnoStatus(errno, absl::StrCat("a temporary file in ", place_->directory_));
      left = left.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    bytes = bytes.subspan(piece.size());
  }
  return absl::OkStatus();
}

absl::Status Spool::Read(uint64_t offset, MutableBytes into, ThreadPool* pool) const {
  SHOAL_CHECK(offset <= size_ && into.size() <= size_ - offset);
  if (pool == nullptr || into.size() <= kPieceBytes) return ReadOne(offset, into);
  return pool->TryParallelFor(into.size(), kPieceBytes, [&](size_t begin, size_t end) {
    return ReadOne(offset + begin, into.subspan(begin, end - begin));
  });
}

void Spool::WillRead(uint64_t offset, uint64_t bytes) const {
  if (in_memory()) return;
  // Only for speed: whether it helped is not asked.
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

absl::Status Spool::ReadOne(uint64_t offset, MutableBytes into) const {
  if (in_memory()) {
    std::copy_n(memory_.data() + offset, into.size(), into.data());
    return absl::OkStatus();
  }
  for (size_t at = 0; at < into.size();) {
    const ssize_t n =
        pread(fd_, into.data() + at, into.size() - at, static_cast<off_t>(offset + at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("a temporary file in ", place_->directory_));
    if (n == 0) {
      return StorageError(
          absl::StatusCode::kDataLoss,
          absl::StrCat("a temporary file in ", place_->directory_, " ends at byte ", offset + at));
    }
    at += static_cast<size_t>(n);
  }
  return Crypt(offset, into, into);
}

absl::StatusOr<BytesView> SpoolSource::Next() {
  const size_t n = std::min<uint64_t>(kPieceBytes, spool_.size() - given_);
  const uint64_t at = given_;
  given_ += n;
  if (spool_.in_memory()) return BytesView(spool_.memory()).subspan(at, n);
  piece_.resize(n);
  SHOAL_RETURN_IF_ERROR(spool_.Read(at, piece_));
  return BytesView(piece_);
}

absl::Status FillSpool(ByteSource& source, Spool& spool, ThreadPool* pool) {
  SHOAL_CHECK(source.size() == spool.size());
  for (uint64_t at = 0;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, source.Next());
    if (piece.empty() && at < spool.size()) {
      return absl::DataLossError(absl::StrCat("ended after ", at, " of ", spool.size(), " bytes"));
    }
    if (piece.empty()) return absl::OkStatus();
    if (piece.size() > spool.size() - at) return absl::InternalError("more bytes than announced");
    SHOAL_RETURN_IF_ERROR(spool.Write(at, piece, pool));
    at += piece.size();
  }
}

}  // namespace shoal
