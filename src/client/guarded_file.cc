#include "src/client/guarded_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

// The guard's content: id, generation, and a digest of both, so that a torn write is found.
constexpr size_t kIdBytes = sizeof(Guard::id);
constexpr size_t kGuardBytes = kIdBytes + 8 + sizeof(Digest);

Bytes GuardContent(BytesView id, uint64_t generation) {
  Bytes content = ToBytes(id);
  AppendLe<uint64_t>(content, generation);
  Append(content, Transcript("shoal client guard v1").Blob(id).U64(generation).Finish());
  return content;
}

Digest ContentDigest(BytesView content) {
  return Transcript("shoal client guarded content v1").Blob(content).Finish();
}

// Whether a content is of the generation that guard or anchor names, or of the next one: its
// process was killed before it had written them.
bool IsOrFollows(uint64_t content, uint64_t named) {
  return content == named || content == named + 1;
}

bool AgreesWith(const AnchorRecord& anchor_record, uint64_t generation, const Digest& content) {
  return IsOrFollows(generation, anchor_record.generation) &&
         (generation != anchor_record.generation || anchor_record.content == content);
}

// What saves that were killed have left: whole contents, under other names.
void WipeLeftovers(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string prefix = absl::StrCat(file.filename().string(), kTemporarySuffix);
  std::vector<std::string> leftovers;
  std::error_code error;
  for (std::filesystem::directory_iterator it(
           file.has_parent_path() ? file.parent_path() : std::filesystem::path("."), error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (absl::StartsWith(it->path().filename().string(), prefix)) leftovers.push_back(it->path());
  }
  // Best effort: the next process tries again.
  for (const std::string& leftover : leftovers) WipeFile(leftover).IgnoreError();
}

}  // namespace

bool Agrees(const AnchorRecord& anchor_record, uint64_t generation, BytesView content) {
  return AgreesWith(anchor_record, generation, ContentDigest(content));
}

absl::StatusOr<std::unique_ptr<GuardedFile>> GuardedFile::Open(const std::string& path,
                                                               AnchorDirectory place) {
  std::unique_ptr<GuardedFile> file(new GuardedFile(path, std::move(place)));
  const std::string lock_path = path + ".lock";
  file->lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file->lock_ < 0) return ErrnoStatus(errno, lock_path);
  while (::flock(file->lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      return InUseError(absl::StrCat(path, ": another process uses this state"));
    }
    return ErrnoStatus(errno, lock_path);
  }
  WipeLeftovers(path);
  return file;
}

GuardedFile::~GuardedFile() {
  if (lock_ >= 0) ::close(lock_);
}

absl::StatusOr<std::optional<Guard>> GuardedFile::ReadGuard() const {
  auto content = ReadPrivateFile(guard_path(), 4096);
  if (absl::IsNotFound(content.status())) return std::nullopt;
  if (!content.ok()) return content.status();
  Guard guard;
  SHOAL_ASSIGN_OR_RETURN(guard.file, IdentityOf(guard_path()));
  if (content->size() != kGuardBytes) return std::nullopt;
  const BytesView bytes = AsBytes(*content);
  std::copy_n(bytes.begin(), kIdBytes, guard.id.begin());
  guard.generation = LoadLe<uint64_t>(bytes.data() + kIdBytes);
  if (!std::ranges::equal(bytes, GuardContent(guard.id, guard.generation))) return std::nullopt;
  return std::optional<Guard>(guard);
}

absl::Status GuardedFile::WriteGuard() const {
  const Bytes content = GuardContent(guard_.id, guard_.generation);
  // Written in place, as a copy is recognised by the file's identity.
  const int fd = ::open(guard_path().c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, guard_path());
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  const ssize_t written = ::pwrite(fd, content.data(), content.size(), 0);
  if (written != static_cast<ssize_t>(content.size())) {
    return ErrnoStatus(written < 0 ? errno : EIO, guard_path());
  }
  if (::fdatasync(fd) != 0) return ErrnoStatus(errno, guard_path());
  return absl::OkStatus();
}

absl::Status GuardedFile::WriteAnchor(const Digest& content, BytesView remains) {
  if (anchor_ == nullptr) return absl::OkStatus();
  return anchor_->Write({.generation = guard_.generation,
                         .content = content,
                         .remains = {remains.begin(), remains.end()}});
}

absl::Status GuardedFile::MakeGuard(const AnchorId& id, uint64_t generation) {
  // WriteFileAtomically makes a new file each time, so the guard's identity changes.
  SHOAL_RETURN_IF_ERROR(
      WriteFileAtomically(guard_path(), GuardContent(id, generation), FileMode::kPrivate));
  SHOAL_ASSIGN_OR_RETURN(const std::optional<Guard> made, ReadGuard());
  if (!made) return absl::UnavailableError(absl::StrCat(guard_path(), ": cannot be read back"));
  guard_ = *made;
  return absl::OkStatus();
}

absl::StatusOr<Standing> GuardedFile::Accept(const std::optional<FoundContent>& found,
                                             RandomSource& random) {
  Standing standing;
  std::optional<AnchorRecord> anchor_record;
  if (found) {
    const Guard& kept = found->guard;
    SHOAL_ASSIGN_OR_RETURN(const std::optional<Guard> guard, ReadGuard());
    SHOAL_ASSIGN_OR_RETURN(const FileIdentity self, IdentityOf(path_));
    const bool same_files = guard && guard->id == kept.id && guard->file == kept.file &&
                            self == kept.self && IsOrFollows(kept.generation, guard->generation);
    auto anchor = place_.Find(kept.id, path_);
    if (!anchor.ok() && !absl::IsNotFound(anchor.status())) return anchor.status();
    if (anchor.ok()) {
      SHOAL_ASSIGN_OR_RETURN(anchor_record, (*anchor)->Read());
      if (anchor_record) anchor_ = *std::move(anchor);
    }
    const Digest content = found->digest ? *found->digest : ContentDigest(found->bytes);
    const bool confirmed = anchor_record && AgreesWith(*anchor_record, kept.generation, content);
    if (same_files && confirmed) {
      guard_ = kept;
      // At once: after another such crash they would be two generations behind, as with an old
      // copy.
      if (guard->generation != kept.generation) SHOAL_RETURN_IF_ERROR(WriteGuard());
      if (anchor_record->generation != kept.generation) {
        SHOAL_RETURN_IF_ERROR(WriteAnchor(content, found->remains));
      }
      standing.latest = true;
      return standing;
    }
    if (anchor_record && !confirmed) {
      standing.why = "is an old copy";
    } else if (!same_files) {
      standing.why = "is a copy";
    } else if (place_.directory().empty()) {
      standing.why = absl::StrCat(
          "cannot be told from an old copy, as this machine has no place in memory that could show "
          "it (",
          place_.problem(), ")");
    } else {
      standing.why =
          absl::StrCat("cannot be told from an old copy, as nothing in ", place_.directory(),
                       " shows that it is the latest: the machine was restarted, or it "
                       "was used elsewhere, as in another container");
    }
  }
  if (anchor_record) {
    // Keeps the id, so that the anchor tells this content from the next one for ever.
    SHOAL_RETURN_IF_ERROR(
        MakeGuard(found->guard.id, std::max(anchor_record->generation, found->guard.generation)));
    if (!anchor_record->remains.empty()) standing.remains = std::move(anchor_record->remains);
    return standing;
  }
  // An anchor that is lost may have named a later generation than this content: only another id is
  // sure to be that of no older content.
  AnchorId id;
  random.Fill(id);
  if (!place_.directory().empty()) {
    SHOAL_ASSIGN_OR_RETURN(anchor_, place_.Make(id, path_));
  }
  SHOAL_RETURN_IF_ERROR(MakeGuard(id, 0));
  return standing;
}

absl::Status GuardedFile::Save(
    const std::function<SecretVector<uint8_t>(const Guard& guard)>& content, BytesView remains) {
  SecretVector<uint8_t> made;
  return SaveParts(
      [&](const Guard& guard) {
        made = content(guard);
        return ContentParts{.parts = {made}, .digest = ContentDigest(made)};
      },
      remains);
}

absl::Status GuardedFile::SaveParts(const std::function<ContentParts(const Guard& guard)>& content,
                                    BytesView remains) {
  // Keeps the old content reachable, to overwrite it.
  const int old = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  auto close_old = absl::MakeCleanup([old] {
    if (old >= 0) ::close(old);
  });
  Guard next = guard_;
  ++next.generation;
  Digest digest;
  SHOAL_RETURN_IF_ERROR(WritePartsAtomically(
      path_,
      [&](const FileIdentity& self) {
        next.self = self;
        ContentParts made = content(next);
        digest = made.digest;
        return std::move(made.parts);
      },
      FileMode::kPrivate));
  guard_ = next;
  // Best effort: the new content is already in place.
  if (old >= 0) WipeOpenFile(old, path_).IgnoreError();
  SHOAL_RETURN_IF_ERROR(WriteGuard());
  return WriteAnchor(digest, remains);
}

absl::Status GuardedFile::Append(uint64_t at, BytesView bytes, const Digest& appended,
                                 BytesView remains) {
  SHOAL_RETURN_IF_ERROR(AppendToFile(path_, at, bytes));
  ++guard_.generation;
  SHOAL_RETURN_IF_ERROR(WriteGuard());
  return WriteAnchor(appended, remains);
}

absl::Status GuardedFile::Overwrite(uint64_t at, BytesView bytes, const Digest& changed,
                                    BytesView remains) {
  const FilePatch patch = {.at = at, .bytes = bytes};
  SHOAL_RETURN_IF_ERROR(OverwriteInFile(path_, std::span(&patch, 1), /*sync=*/true));
  ++guard_.generation;
  SHOAL_RETURN_IF_ERROR(WriteGuard());
  return WriteAnchor(changed, remains);
}

}  // namespace shoal::client
