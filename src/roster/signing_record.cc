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

absl::Status RecordSigning(const std::string& keys_directory, absl::string_view name,
                           uint64_t epoch, const Digest& digest) {
  SHOAL_CHECK(!name.empty() && name.find('/') == absl::string_view::npos);
  const std::string directory = keys_directory + "/signed";
  SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPrivate));
  const std::string path =
      absl::StrCat(directory, "/", absl::StrReplaceAll(name, {{" ", "-"}}), ".textproto");

  const std::string lock_path = directory + "/lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return ErrnoStatus(errno, lock_path);
  auto unlock = absl::MakeCleanup([lock] { ::close(lock); });
  while (::flock(lock, LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, lock_path);
  }

  std::optional<SeenEpoch> seen;
  if (FileExists(path)) {
    wire::SeenEpoch stored;
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, stored));
    if (stored.digest().size() != sizeof(Digest)) {
      return absl::DataLossError(absl::StrCat(path, ": is damaged"));
    }
    seen.emplace().epoch = stored.epoch();
    std::copy_n(AsBytes(stored.digest()).begin(), sizeof(Digest), seen->digest.begin());
  }
  SHOAL_RETURN_IF_ERROR(AcceptEpoch(absl::StrCat("already signed, ", name), epoch, digest, seen));
  wire::SeenEpoch stored;
  stored.set_epoch(epoch);
  stored.set_digest(ToString(digest));
  return wire::WriteTextFile(path, stored, FileMode::kPrivate);
}

}  // namespace shoal::roster
