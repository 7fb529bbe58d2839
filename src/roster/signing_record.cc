#include "src/roster/signing_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/roster/roster.h"
#include "src/storage/file.h"
#include "src/wire/roster.pb.h"
#include "src/wire/text.h"

namespace shoal::roster {
namespace {

constexpr char kRecordSuffix[] = ".textproto";

// The record of `name`, which lies in `directory`.
std::string RecordPath(const std::string& directory, absl::string_view name) {
  SHOAL_CHECK(!name.empty() && name.find('/') == absl::string_view::npos);
  return absl::StrCat(directory, "/", absl::StrReplaceAll(name, {{" ", "-"}}), kRecordSuffix);
}

absl::StatusOr<std::optional<SeenEpoch>> ReadRecord(const std::string& path) {
  if (!FileExists(path)) return std::optional<SeenEpoch>();
  wire::SeenEpoch stored;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, stored));
  if (stored.digest().size() != sizeof(Digest)) {
    return absl::DataLossError(absl::StrCat(path, ": is damaged"));
  }
  SeenEpoch seen;
  seen.epoch = stored.epoch();
  std::copy_n(AsBytes(stored.digest()).begin(), sizeof(Digest), seen.digest.begin());
  return std::optional<SeenEpoch>(seen);
}

constexpr char kHandedOn[] = "/handed-on";

// Holds the lock of the record in `directory`, which is made if it is missing.
class OpenRecord {
 public:
  explicit OpenRecord(const std::string& directory) : status_(Open(directory)) {}
  ~OpenRecord() {
    if (lock_ >= 0) ::close(lock_);
  }
  OpenRecord(const OpenRecord&) = delete;
  OpenRecord& operator=(const OpenRecord&) = delete;
  // Not OK if the record is not to be used: an error of the file system, or FAILED_PRECONDITION.
  const absl::Status& status() const { return status_; }

 private:
  absl::Status Open(const std::string& directory) {
    SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPrivate));
    const std::string path = directory + "/lock";
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_ < 0) return ErrnoStatus(errno, path);
    while (::flock(lock_, LOCK_EX) != 0) {
      if (errno != EINTR) return ErrnoStatus(errno, path);
    }
    if (!FileExists(directory + kHandedOn)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     ": the record of what was signed has gone on to renewed keys, which sign from "
                     "now on. To give those up, put their record, the directory signed, in the "
                     "place of this one, and erase them"));
  }

  int lock_ = -1;
  const absl::Status status_;
};

}  // namespace

absl::StatusOr<std::optional<SeenEpoch>> LastSigned(const std::string& keys_directory,
                                                    absl::string_view name) {
  return ReadRecord(RecordPath(keys_directory + "/signed", name));
}

absl::Status RecordSigning(const std::string& keys_directory, absl::string_view name,
                           uint64_t epoch, const Digest& digest) {
  const std::string directory = keys_directory + "/signed";
  const std::string path = RecordPath(directory, name);
  const OpenRecord record(directory);
  SHOAL_RETURN_IF_ERROR(record.status());
  SHOAL_ASSIGN_OR_RETURN(std::optional<SeenEpoch> seen, ReadRecord(path));
  SHOAL_RETURN_IF_ERROR(AcceptEpoch(absl::StrCat("already signed, ", name), epoch, digest, seen));
  wire::SeenEpoch stored;
  stored.set_epoch(epoch);
  stored.set_digest(ToString(digest));
  return wire::WriteTextFile(path, stored, FileMode::kPrivate);
}

absl::Status HandRecordOn(const std::string& keys_directory, const std::string& renewed_directory) {
  const std::string from = keys_directory + "/signed", to = renewed_directory + "/signed";
  const OpenRecord record(from);
  SHOAL_RETURN_IF_ERROR(record.status());
  SHOAL_RETURN_IF_ERROR(MakeDirectory(renewed_directory, FileMode::kPrivate));
  SHOAL_RETURN_IF_ERROR(MakeDirectory(to, FileMode::kPrivate));
  std::error_code error;
  std::filesystem::directory_iterator entry(from, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() != kRecordSuffix) continue;
    SHOAL_ASSIGN_OR_RETURN(const std::string content, ReadPrivateFile(path));
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(to + "/" + path.filename().string(), AsBytes(content),
                                              FileMode::kPrivate));
  }
  if (error) return ErrnoStatus(error.value(), from);
  // The new record is found after a crash before this one ends: its name, and its directory's.
  SHOAL_RETURN_IF_ERROR(SyncDirectory(renewed_directory));
  SHOAL_RETURN_IF_ERROR(SyncDirectory(renewed_directory + "/.."));
  return WriteFileAtomically(from + kHandedOn, BytesView(), FileMode::kPrivate);
}

}  // namespace shoal::roster
