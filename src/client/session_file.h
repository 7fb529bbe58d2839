// An engine's session on disk, with the same guard as the chain's state (guarded_file.h).
//
//   PATH   a digest of the head and of the state; the head: servers, guard, length of the state;
//          the state; then the records that were appended, each
//              u32 length, the record, a digest of the record and of the digest before it
// A record is appended in place, so that a query writes what it changed and not the whole state. A
// process that is killed while it appends leaves a torn record behind, which nothing was sent of:
// it is dropped. The last digest stands for the whole file in the witness, so that a file without
// its last records is an old copy, like any other.
#ifndef SHOAL_SRC_CLIENT_SESSION_FILE_H_
#define SHOAL_SRC_CLIENT_SESSION_FILE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/client/guarded_file.h"
#include "src/client/witness.h"
#include "src/pir/engine.h"

namespace shoal::client {

// Thread-compatible.
class SessionFile final : public pir::SessionStore {
 public:
  // Opens the file, or begins one. `servers` names the servers of all roles, in order: a state that
  // one server knows a part of must not be used with that server in another role. `swapped`, if it
  // is given, names the same servers in swapped roles.
  // FAILED_PRECONDITION: another process uses the file. INVALID_ARGUMENT: it has a state of servers
  // in swapped roles, and stays as it is. DATA_LOSS: the file is damaged. PERMISSION_DENIED: others
  // may read the file.
  static absl::StatusOr<std::unique_ptr<SessionFile>> Open(
      const std::string& path, const Digest& servers, const WitnessPlace& place,
      RandomSource& random, const std::optional<Digest>& swapped = std::nullopt);

  // Empty if the file is not the latest that was saved, or another session's.
  BytesView saved() const override { return saved_; }
  std::span<const BytesView> appended() const override { return appended_; }
  absl::Status SaveParts(std::span<const BytesView> parts) override;
  absl::Status Append(BytesView record) override;

  // Why a state that was there was given up, as the end of a sentence whose subject is the file;
  // empty if none was.
  const std::string& discarded() const { return discarded_; }

 private:
  SessionFile(std::unique_ptr<GuardedFile> file, const Digest& servers)
      : file_(std::move(file)), servers_(servers) {}
  void Forget();

  const std::unique_ptr<GuardedFile> file_;
  const Digest servers_;
  // What was found, until the first change.
  SecretVector<uint8_t> content_;
  BytesView saved_;
  std::vector<BytesView> appended_;
  std::string discarded_;
  // Where the next record goes, and the digest of all that is before it.
  uint64_t end_ = 0;
  Digest digest_ = {};
  bool whole_ = false;  // the last change did not fail
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_SESSION_FILE_H_
