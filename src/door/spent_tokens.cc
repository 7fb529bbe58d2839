#include "src/door/spent_tokens.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::door {
namespace {

constexpr absl::string_view kMagic("shoal spent tokens 1\0\0\0\0", 24);
constexpr size_t kHeadBytes = 24 + 32 + 16;

std::string PathOf(const std::string& directory, const Digest& key_id) {
  return absl::StrCat(directory, "/spent-", Hex(key_id));
}

SecretVector<uint8_t> HeadOf(const Digest& key_id, const FileIdentity& self) {
  Bytes head = ToBytes(AsBytes(kMagic));
  Append(head, key_id);
  AppendLe<uint64_t>(head, self.inode);
  AppendLe<uint64_t>(head, self.birth_ns);
  return {head.begin(), head.end()};
}

}  // namespace

absl::Status SpentTokens::Begin(const std::string& directory, const Digest& key_id) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::string path = PathOf(directory, key_id);
  if (std::filesystem::exists(path, error)) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": this key was begun before"));
  }
  return WriteFileAtomically(
      path, [&](const FileIdentity& self) { return HeadOf(key_id, self); }, FileMode::kPrivate);
}

absl::StatusOr<std::unique_ptr<SpentTokens>> SpentTokens::Open(const std::string& directory,
                                                               const std::vector<Digest>& key_ids,
                                                               size_t most) {
  std::unique_ptr<SpentTokens> store(new SpentTokens(most));
  const std::string lock_path = directory + "/lock";
  store->lock_fd_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (store->lock_fd_ < 0 && errno != ENOENT) return ErrnoStatus(errno, lock_path);
  if (store->lock_fd_ >= 0 && ::flock(store->lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": another door runs with this state"));
  }
  {
    const MutexLock lock(store->mutex_);
    for (const Digest& key_id : key_ids) {
      const std::string path = PathOf(directory, key_id);
      const auto text =
          ReadPrivateFile(path, kHeadBytes + most * sizeof(TokenId) + sizeof(TokenId));
      if (absl::IsNotFound(text.status())) {
        return absl::FailedPreconditionError(
            absl::StrCat(path,
                         ": there is no record of what was spent under this issuer's key. If the "
                         "key is new, and "
                         "no door has ever taken a token of it, begin it (--begin-keys). If the "
                         "record was lost, "
                         "the issuer must change its key: its old tokens could be spent again"));
      }
      if (!text.ok()) return text.status();
      const BytesView bytes = AsBytes(*text);
      SHOAL_ASSIGN_OR_RETURN(const FileIdentity self, IdentityOf(path));
      const SecretVector<uint8_t> head = HeadOf(key_id, self);
      if (bytes.size() < kHeadBytes ||
          !std::ranges::equal(bytes.first(kMagic.size() + 32),
                              BytesView(head.data(), kMagic.size() + 32))) {
        return absl::DataLossError(
            absl::StrCat(path, ": not the record of what was spent under this issuer's key"));
      }
      if (!std::ranges::equal(bytes.first(kHeadBytes), BytesView(head.data(), head.size()))) {
        return absl::FailedPreconditionError(absl::StrCat(
            path,
            ": this is a copy of the record, and tokens may have been spent since it was made: the "
            "issuer must change its key. Never restore it from a backup, and never copy it"));
      }
      Key key{.path = path, .spent = {}, .file_bytes = kHeadBytes};
      for (size_t at = kHeadBytes; at + sizeof(TokenId) <= bytes.size(); at += sizeof(TokenId)) {
        TokenId id;
        std::ranges::copy(bytes.subspan(at, id.size()), id.begin());
        key.spent.insert(id);
        key.file_bytes += id.size();
      }
      store->keys_.push_back(std::move(key));
    }
  }
  store->thread_ = std::thread([raw = store.get()] { raw->Loop(); });
  return store;
}

SpentTokens::~SpentTokens() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

void SpentTokens::Spend(size_t key, const TokenId& id,
                        std::function<void(const absl::Status&)> done) {
  absl::Status refused;
  {
    const MutexLock lock(mutex_);
    Key& of = keys_.at(key);
    if (stopping_ || broken_) {
      refused = absl::UnavailableError("tokens cannot be taken now; try again later");
    } else if (of.spent.contains(id)) {
      refused = absl::AlreadyExistsError("the token was spent before");
    } else if (of.spent.size() >= most_) {
      refused = absl::ResourceExhaustedError("no more tokens of this issuer's key are taken");
    } else {
      // From here on it is spent, though not yet durable: a second one at the same time is refused.
      of.spent.insert(id);
      waiting_.push_back({key, id, std::move(done)});
    }
  }
  if (refused.ok()) {
    wake_.NotifyAll();
  } else {
    done(refused);
  }
}

size_t SpentTokens::count(size_t key) const {
  const MutexLock lock(mutex_);
  return keys_.at(key).spent.size();
}

void SpentTokens::Loop() {
  for (;;) {
    std::vector<Waiting> group;
    std::vector<std::string> paths;
    std::vector<uint64_t> sizes;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && waiting_.empty()) wake_.Wait(mutex_);
      if (waiting_.empty()) return;  // only once it is to stop
      group.swap(waiting_);
      for (const Key& key : keys_) {
        paths.push_back(key.path);
        sizes.push_back(key.file_bytes);
      }
    }
    std::vector<Bytes> records(paths.size());
    for (const Waiting& one : group) Append(records[one.key], one.id);
    absl::Status stored;
    for (size_t key = 0; key < paths.size() && stored.ok(); ++key) {
      if (!records[key].empty()) stored = AppendToFile(paths[key], sizes[key], records[key]);
    }
    {
      const MutexLock lock(mutex_);
      if (!stored.ok()) broken_ = true;
      for (size_t key = 0; key < paths.size(); ++key) {
        keys_[key].file_bytes += records[key].size();
      }
    }
    if (!stored.ok()) {
      spdlog::error("what was spent cannot be stored, and no token is taken until a new start: {}",
                    stored.ToString());
      stored = absl::UnavailableError("tokens cannot be taken now; try again later");
    }
    for (const Waiting& one : group) one.done(stored);
  }
}

}  // namespace shoal::door
