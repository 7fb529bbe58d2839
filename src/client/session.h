// What every command that looks keys up opens and closes: state, connection, client.
#ifndef SHOAL_SRC_CLIENT_SESSION_H_
#define SHOAL_SRC_CLIENT_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/thread_pool.h"
#include "src/cli/command.h"
#include "src/client/client.h"
#include "src/client/commands.h"
#include "src/client/config.h"
#include "src/client/console.h"
#include "src/client/state.h"

namespace shoal::client {

// One command's client, from its configuration file. Thread-compatible.
class Session {
 public:
  // `name` begins every line on io.err ("shoal query"), which outlives the session; `quiet` leaves
  // only warnings. Errors of the configuration, the state, the connection and the deployment.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const std::string& name,
                                                       const std::string& config_path,
                                                       const Connector& connect, bool quiet,
                                                       cli::Io& io);

  Client& client() { return *client_; }
  State& state() { return store_->state(); }
  Console& console() { return console_; }
  void Tell(absl::string_view what) { console_.Tell(what); }
  // What the lookups have cost in privacy and traffic.
  void TellCosts();

 private:
  Session(std::string name, bool quiet, cli::Io& io)
      : console_(std::move(name), quiet, /*announce=*/false, io) {}

  Console console_;
  SystemRandom random_;
  SystemClock clock_;
  ThreadPool pool_;
  std::unique_ptr<FileStateStore> store_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Client> client_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_SESSION_H_
