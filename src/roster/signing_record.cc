#include "src/roster/signing_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/cleanup/cleanup.h"
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

// The record of `name`, which lies in `directory`.
std::string RecordPath(const std::string& directory, absl::string_view name) {
  SHOAL_CHECK(!name.empty() && name.find('/') == absl::string_view::npos);
  return absl::StrCat(directory, "/", absl::StrReplaceAll(name, {{" ", "-"}}), ".textproto");
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

}  // namespace

absl::StatusOr<std::optional<SeenEpoch>> LastSigned(const std::string& keys_directory,
                                                    absl::string_view name) {
  return ReadRecord(RecordPath(keys_directory + "/signed", name));
}

absl::Status RecordSigning(const std::string& keys_directory, absl::string_view name,
                           uint64_t epoch, const Digest& digest) {
  const std::string directory = keys_directory + "/signed";
  const std::string path = RecordPath(directory, name);
  SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPrivate));

  const std::string lock_path = directory + "/lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return ErrnoStatus(errno, lock_path);
  auto unlock = absl::MakeCleanup([lock] { ::close(lock); });
  while (::flock(lock, LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, lock_path);
  }

  SHOAL_ASSIGN_OR_RETURN(std::optional<SeenEpoch> seen, ReadRecord(path));
  SHOAL_RETURN_IF_ERROR(AcceptEpoch(absl::StrCat("already signed, ", name), epoch, digest, seen));
  wire::SeenEpoch stored;
  stored.set_epoch(epoch);
  stored.set_digest(ToString(digest));
  return wire::WriteTextFile(path, stored, FileMode::kPrivate);
}

}  // namespace shoal::roster
