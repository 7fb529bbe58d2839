// What a start needs of this machine beside good files: tried, and left as it was.
#ifndef SHOAL_SRC_SHOALD_START_CHECK_H_
#define SHOAL_SRC_SHOALD_START_CHECK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/net/page_server.h"
#include "src/server/journal.h"

namespace shoal::shoald {

// A copy of a party's journal, in a directory of its own that goes with this object: what is
// committed to it does not count. While it lives nobody else can use the party's state.
class JournalCopy {
 public:
  // FAILED_PRECONDITION: a process uses the state. PERMISSION_DENIED, RESOURCE_EXHAUSTED and other
  // errors of the storage: a start could not write to it. DATA_LOSS: the journal is damaged. A
  // `state_directory` that is missing is not made, but must be possible to make.
  static absl::StatusOr<std::unique_ptr<JournalCopy>> Take(const std::string& state_directory);
  ~JournalCopy();
  JournalCopy(const JournalCopy&) = delete;
  JournalCopy& operator=(const JournalCopy&) = delete;

  server::Journal* journal() { return journal_.get(); }

 private:
  JournalCopy() = default;
  int lock_fd_ = -1;
  std::string directory_;
  std::unique_ptr<server::FileJournal> journal_;
};

// Whether this process can write to the directory, or make it. Nothing is left behind. Errors of
// the storage; the message begins with `field`, the name in the configuration.
absl::Status CheckWritable(absl::string_view field, const std::string& directory);

// Listens on addresses as a start does, on all of them at a time, and lets go of them when it is
// destroyed.
class ListenCheck {
 public:
  // Errors as net::Server::Start with this address, host:port. ALREADY_EXISTS also names an earlier
  // address with the same port.
  absl::Status Add(const std::string& address);

 private:
  struct Held {
    std::string address;
    std::unique_ptr<net::PageServer> server;
  };
  std::vector<Held> held_;
};

// Everything that was found, as one error with the code of the first; OK if nothing was.
class Findings {
 public:
  // Puts `advice`, if there is any, behind the message.
  void Add(const absl::Status& status, absl::string_view advice = "");
  absl::Status Summary() const;

 private:
  absl::StatusCode code_ = absl::StatusCode::kOk;
  std::vector<std::string> found_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_START_CHECK_H_
