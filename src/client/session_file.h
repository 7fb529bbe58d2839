// An engine's session on disk, with the same guard as the chain's state (guarded_file.h).
#ifndef SHOAL_SRC_CLIENT_SESSION_FILE_H_
#define SHOAL_SRC_CLIENT_SESSION_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/client/guarded_file.h"
#include "src/pir/engine.h"

namespace shoal::client {

// Thread-compatible.
class SessionFile final : public pir::SessionStore {
 public:
  // Opens the file, or begins one. FAILED_PRECONDITION: another process uses it. DATA_LOSS: it is
  // damaged. PERMISSION_DENIED: others may read it.
  static absl::StatusOr<std::unique_ptr<SessionFile>> Open(const std::string& path,
                                                           RandomSource& random);

  // Empty if the file is an old copy.
  BytesView saved() const override { return state_; }
  absl::Status Save(BytesView state) override;

  // Whether a state was there, and was given up as an old copy.
  bool discarded() const { return discarded_; }

 private:
  explicit SessionFile(std::unique_ptr<GuardedFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<GuardedFile> file_;
  SecretVector<uint8_t> state_;
  bool discarded_ = false;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_SESSION_FILE_H_
