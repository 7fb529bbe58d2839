// An engine's session on disk, with the same guard as the chain's state (guarded_file.h).
#ifndef SHOAL_SRC_CLIENT_SESSION_FILE_H_
#define SHOAL_SRC_CLIENT_SESSION_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
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
  // one server knows a part of must not be used with that server in another role.
  // FAILED_PRECONDITION: another process uses the file. DATA_LOSS: the file is damaged.
  // PERMISSION_DENIED: others may read the file.
  static absl::StatusOr<std::unique_ptr<SessionFile>> Open(const std::string& path,
                                                           const Digest& servers,
                                                           const WitnessPlace& place,
                                                           RandomSource& random);

  // Empty if the file is not the latest that was saved, or another session's.
  BytesView saved() const override { return state_; }
  absl::Status Save(BytesView state) override;

  // Why a state that was there was given up, as the end of a sentence whose subject is the file;
  // empty if none was.
  const std::string& discarded() const { return discarded_; }

 private:
  SessionFile(std::unique_ptr<GuardedFile> file, const Digest& servers)
      : file_(std::move(file)), servers_(servers) {}

  const std::unique_ptr<GuardedFile> file_;
  const Digest servers_;
  SecretVector<uint8_t> state_;
  std::string discarded_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_SESSION_FILE_H_
