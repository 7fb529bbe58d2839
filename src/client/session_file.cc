#include "src/client/session_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 38;
// A digest of head and state; the servers; the guard's id; the guard's inode, time of birth and
// generation; this file's inode and time of birth; the state's length; the state.
constexpr size_t kServersAt = sizeof(Digest), kIdAt = kServersAt + sizeof(Digest);
constexpr size_t kNumbersAt = kIdAt + sizeof(Guard::id), kLengthAt = kNumbersAt + 5 * 8;
constexpr size_t kStateAt = kLengthAt + 8;
// Around a record: its length before it, a digest behind it.
constexpr size_t kRecordHead = 4, kRecordBytes = kRecordHead + sizeof(Digest);

Digest DigestOf(BytesView head, std::span<const BytesView> parts) {
  uint64_t bytes = head.size();
  for (const BytesView part : parts) bytes += part.size();
  Transcript transcript("shoal client session v2");
  transcript.BeginBlob(bytes).BlobPiece(head);
  for (const BytesView part : parts) transcript.BlobPiece(part);
  return transcript.Finish();
}

Digest RecordDigest(const Digest& before, BytesView record) {
  return Transcript("shoal client session record v1").Blob(before).Blob(record).Finish();
}

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat(
      path, ": the session is damaged; remove it to begin anew (its preparation is lost then)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionFile>> SessionFile::Open(
    const std::string& path, const Digest& servers, const WitnessPlace& place, RandomSource& random,
    const std::optional<Digest>& swapped) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<GuardedFile> file, GuardedFile::Open(path, place));
  std::unique_ptr<SessionFile> session(new SessionFile(std::move(file), servers));
  SecretVector<uint8_t>& content = session->content_;
  {
    auto text = ReadPrivateFile(path, kMaxBytes);
    if (absl::IsNotFound(text.status())) {
      SHOAL_RETURN_IF_ERROR(session->file_->Accept(std::nullopt, random).status());
      SHOAL_RETURN_IF_ERROR(session->Save({}));
      return session;
    }
    SHOAL_RETURN_IF_ERROR(text.status());
    content.assign(text->begin(), text->end());
    sodium_memzero(text->data(), text->size());
  }
  const BytesView bytes = content;
  if (bytes.size() < kStateAt) return Damaged(path);
  const uint64_t state_bytes = LoadLe<uint64_t>(&bytes[kLengthAt]);
  if (state_bytes > bytes.size() - kStateAt) return Damaged(path);
  const BytesView head = bytes.subspan(kServersAt, kStateAt - kServersAt);
  const BytesView state = bytes.subspan(kStateAt, state_bytes);
  Digest digest = DigestOf(head, std::span(&state, 1));
  if (!std::ranges::equal(bytes.first(kServersAt), digest)) return Damaged(path);

  const BytesView of = bytes.subspan(kServersAt, sizeof(Digest));
  if (swapped.has_value() && !state.empty() && std::ranges::equal(of, *swapped)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": the session was prepared with these two parties in swapped roles, and would tell them "
        "which rows are asked for: name them as before, or give the session up (shoal prepare "
        "--anew)"));
  }

  std::vector<BytesView> records;
  uint64_t end = kStateAt + state_bytes;
  while (bytes.size() - end >= kRecordBytes) {
    const uint64_t length = LoadLe<uint32_t>(&bytes[end]);
    if (length == 0 || length > bytes.size() - end - kRecordBytes) break;
    const BytesView record = bytes.subspan(end + kRecordHead, length);
    const Digest next = RecordDigest(digest, record);
    // Only the last record can be torn. If this one is damaged, those behind it are lost with it,
    // and the witness, which names the last one, tells.
    if (!std::ranges::equal(bytes.subspan(end + kRecordHead + length, sizeof(Digest)), next)) break;
    records.push_back(record);
    digest = next;
    end += kRecordBytes + length;
  }

  Guard guard;
  std::ranges::copy(bytes.subspan(kIdAt, guard.id.size()), guard.id.begin());
  const auto number = [&](size_t i) { return LoadLe<uint64_t>(&bytes[kNumbersAt + 8 * i]); };
  guard.file = {.inode = number(0), .birth_ns = number(1)};
  guard.generation = number(2) + records.size();
  guard.self = {.inode = number(3), .birth_ns = number(4)};
  SHOAL_ASSIGN_OR_RETURN(
      const Standing standing,
      session->file_->Accept(
          FoundContent{.guard = guard, .bytes = {}, .remains = {}, .digest = digest}, random));
  const bool same_servers = std::ranges::equal(of, servers);
  if (standing.latest && same_servers) {
    session->saved_ = state;
    session->appended_ = std::move(records);
    session->end_ = end;
    session->digest_ = digest;
    session->whole_ = true;
  } else {
    if (!state.empty()) {
      session->discarded_ = standing.latest ? "is of other servers" : standing.why;
    }
    SHOAL_RETURN_IF_ERROR(session->Save({}));
  }
  return session;
}

void SessionFile::Forget() {
  saved_ = {};
  appended_.clear();
  content_ = {};
}

absl::Status SessionFile::SaveParts(std::span<const BytesView> parts) {
  whole_ = false;
  uint64_t state_bytes = 0;
  for (const BytesView part : parts) state_bytes += part.size();
  if (state_bytes > kMaxBytes - kStateAt) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file_->path(), ": a session of ", state_bytes, " bytes is too large"));
  }
  Bytes head;
  Digest digest;
  SHOAL_RETURN_IF_ERROR(file_->SaveParts(
      [&](const Guard& guard) {
        head = ToBytes(servers_);
        shoal::Append(head, guard.id);
        for (const uint64_t number : {guard.file.inode, guard.file.birth_ns, guard.generation,
                                      guard.self.inode, guard.self.birth_ns, state_bytes}) {
          AppendLe<uint64_t>(head, number);
        }
        digest = DigestOf(head, parts);
        ContentParts content{.parts = {digest, head}, .digest = digest};
        content.parts.insert(content.parts.end(), parts.begin(), parts.end());
        return content;
      },
      /*remains=*/{}));
  // Only now, as the parts may be what was found.
  Forget();
  end_ = kStateAt + state_bytes;
  digest_ = digest;
  whole_ = true;
  return absl::OkStatus();
}

absl::Status SessionFile::Append(BytesView record) {
  SHOAL_CHECK(!record.empty() && record.size() < kMaxRecord);
  if (!whole_) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_->path(), ": the last change of the session failed"));
  }
  whole_ = false;
  const Digest digest = RecordDigest(digest_, record);
  SecretVector<uint8_t> bytes(kRecordHead);
  bytes.reserve(kRecordBytes + record.size());
  StoreLe<uint32_t>(bytes.data(), static_cast<uint32_t>(record.size()));
  bytes.insert(bytes.end(), record.begin(), record.end());
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  SHOAL_RETURN_IF_ERROR(file_->Append(end_, bytes, digest, /*remains=*/{}));
  Forget();
  end_ += bytes.size();
  digest_ = digest;
  whole_ = true;
  return absl::OkStatus();
}

}  // namespace shoal::client
