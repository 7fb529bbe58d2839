#include "src/client/session_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 32;
// A digest of the rest; the guard's id, inode, time of birth and generation; the state.
constexpr size_t kIdAt = sizeof(Digest), kInodeAt = kIdAt + sizeof(Guard::id);
constexpr size_t kStateAt = kInodeAt + 3 * 8;

Digest DigestOf(BytesView rest) {
  return Transcript("shoal client session v1").Blob(rest).Finish();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionFile>> SessionFile::Open(const std::string& path,
                                                               RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<GuardedFile> file, GuardedFile::Open(path));
  std::unique_ptr<SessionFile> session(new SessionFile(std::move(file)));
  auto text = ReadPrivateFile(path, kMaxBytes);
  if (absl::IsNotFound(text.status())) {
    SHOAL_RETURN_IF_ERROR(session->file_->Accept(std::nullopt, random).status());
    SHOAL_RETURN_IF_ERROR(session->Save({}));
    return session;
  }
  SHOAL_RETURN_IF_ERROR(text.status());
  const SecretVector<uint8_t> content(text->begin(), text->end());
  sodium_memzero(text->data(), text->size());
  const BytesView bytes = content;
  if (bytes.size() < kStateAt ||
      !std::ranges::equal(bytes.first(kIdAt), DigestOf(bytes.subspan(kIdAt)))) {
    return absl::DataLossError(absl::StrCat(
        path, ": the session is damaged; remove it to begin anew (its preparation is lost then)"));
  }
  Guard guard;
  std::ranges::copy(bytes.subspan(kIdAt, guard.id.size()), guard.id.begin());
  guard.inode = LoadLe<uint64_t>(&bytes[kInodeAt]);
  guard.birth_ns = LoadLe<uint64_t>(&bytes[kInodeAt + 8]);
  guard.generation = LoadLe<uint64_t>(&bytes[kInodeAt + 16]);
  SHOAL_ASSIGN_OR_RETURN(const bool current, session->file_->Accept(guard, random));
  if (current) {
    session->state_.assign(bytes.begin() + kStateAt, bytes.end());
  } else {
    session->discarded_ = bytes.size() > kStateAt;
    SHOAL_RETURN_IF_ERROR(session->Save({}));
  }
  return session;
}

absl::Status SessionFile::Save(BytesView state) {
  const Guard guard = file_->next();
  Bytes head = ToBytes(guard.id);
  AppendLe<uint64_t>(head, guard.inode);
  AppendLe<uint64_t>(head, guard.birth_ns);
  AppendLe<uint64_t>(head, guard.generation);
  SecretVector<uint8_t> content(sizeof(Digest));
  content.reserve(kStateAt + state.size());
  content.insert(content.end(), head.begin(), head.end());
  content.insert(content.end(), state.begin(), state.end());
  std::ranges::copy(DigestOf(BytesView(content).subspan(kIdAt)), content.begin());
  return file_->Save(content);
}

}  // namespace shoal::client
