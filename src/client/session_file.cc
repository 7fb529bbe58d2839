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
// A digest of the rest; the servers; the guard's id; the guard's inode, time of birth and
// generation; this file's inode and time of birth; the state.
constexpr size_t kServersAt = sizeof(Digest), kIdAt = kServersAt + sizeof(Digest);
constexpr size_t kNumbersAt = kIdAt + sizeof(Guard::id), kStateAt = kNumbersAt + 5 * 8;

Digest DigestOf(BytesView rest) {
  return Transcript("shoal client session v1").Blob(rest).Finish();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionFile>> SessionFile::Open(const std::string& path,
                                                               const Digest& servers,
                                                               const WitnessPlace& place,
                                                               RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<GuardedFile> file, GuardedFile::Open(path, place));
  std::unique_ptr<SessionFile> session(new SessionFile(std::move(file), servers));
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
      !std::ranges::equal(bytes.first(kServersAt), DigestOf(bytes.subspan(kServersAt)))) {
    return absl::DataLossError(absl::StrCat(
        path, ": the session is damaged; remove it to begin anew (its preparation is lost then)"));
  }
  Guard guard;
  std::ranges::copy(bytes.subspan(kIdAt, guard.id.size()), guard.id.begin());
  const auto number = [&](size_t i) { return LoadLe<uint64_t>(&bytes[kNumbersAt + 8 * i]); };
  guard.file = {.inode = number(0), .birth_ns = number(1)};
  guard.generation = number(2);
  guard.self = {.inode = number(3), .birth_ns = number(4)};
  SHOAL_ASSIGN_OR_RETURN(
      const Standing standing,
      session->file_->Accept(FoundContent{.guard = guard, .bytes = bytes, .remains = {}}, random));
  const bool same_servers = std::ranges::equal(bytes.subspan(kServersAt, sizeof(Digest)), servers);
  if (standing.latest && same_servers) {
    session->state_.assign(bytes.begin() + kStateAt, bytes.end());
  } else {
    if (bytes.size() > kStateAt) {
      session->discarded_ = standing.latest ? "is of other servers" : standing.why;
    }
    SHOAL_RETURN_IF_ERROR(session->Save({}));
  }
  return session;
}

absl::Status SessionFile::Save(BytesView state) {
  SecretVector<uint8_t> next(state.begin(), state.end());
  SHOAL_RETURN_IF_ERROR(file_->Save(
      [&](const Guard& guard) {
        Bytes head = ToBytes(servers_);
        Append(head, guard.id);
        for (const uint64_t number : {guard.file.inode, guard.file.birth_ns, guard.generation,
                                      guard.self.inode, guard.self.birth_ns}) {
          AppendLe<uint64_t>(head, number);
        }
        SecretVector<uint8_t> content(sizeof(Digest));
        content.reserve(kStateAt + next.size());
        content.insert(content.end(), head.begin(), head.end());
        content.insert(content.end(), next.begin(), next.end());
        std::ranges::copy(DigestOf(BytesView(content).subspan(kServersAt)), content.begin());
        return content;
      },
      /*remains=*/{}));
  state_ = std::move(next);
  return absl::OkStatus();
}

}  // namespace shoal::client
