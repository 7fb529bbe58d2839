// What every command that looks keys up opens and closes: a client (src/client/client.h), and what
// the command tells people.
#ifndef SHOAL_SRC_SHOAL_SESSION_H_
#define SHOAL_SRC_SHOAL_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/cli/command.h"
#include "src/client/chain_client.h"
#include "src/client/client.h"
#include "src/client/retrieval.h"
#include "src/client/state.h"
#include "src/pir/engine.h"
#include "src/shoal/console.h"
#include "src/shoal/interruption.h"
#include "src/shoal/lookup_commands.h"

namespace shoal::commands {

// One command's client, from its configuration file. Thread-compatible.
class Session {
 public:
  using Prepared = client::Client::Prepared;

  // `name` begins every line on io.err ("shoal query"). With `quiet` only warnings are printed.
  // `io` must outlive the session. Returns errors of the configuration, the state, the connection
  // and the deployment.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const std::string& name,
                                                       const std::string& config_path,
                                                       const Connector& connect, bool quiet,
                                                       cli::Io& io);

  // The source of the lookups' rows: one of these, once. See Client.
  absl::Status UseChain(client::BeyondPhi beyond_phi) { return client_->UseChain(beyond_phi); }
  // `parties` as --party gives them: a usage error unless they are numbers, as many as the engine
  // has roles.
  absl::Status UseEngine(const pir::Engine& engine, const std::vector<std::string>& parties,
                         uint32_t pad_to, uint64_t keys);
  absl::StatusOr<Prepared> PrepareEngine(const pir::Engine& engine,
                                         const std::vector<std::string>& parties, bool anew);

  // Writes what a lookup of these keys would cost to `out`, as sentences or as JSON, and sends no
  // query. To be called after UseChain. FAILED_PRECONDITION if the lookup would be stopped.
  absl::Status DryRun(client::Keys& keys, bool json, std::ostream& out);

  absl::Status LookUp(client::Keys& keys, client::Results& results) {
    return client_->LookUp(keys, results);
  }
  absl::StatusOr<client::Client::Watched> WatchOnce(client::Keys& keys,
                                                    client::BeyondPhi beyond_phi, uint32_t wait_s,
                                                    client::Client::NewsSink& sink) {
    return client_->WatchOnce(keys, beyond_phi, wait_s, sink);
  }
  absl::StatusOr<Digest> ObtainAhead(uint32_t slots) { return client_->ObtainAhead(slots); }

  client::State& state() { return client_->state(); }
  std::string table_name() const { return client_->deployment().manifest().name(); }
  Console& console() { return console_; }
  void Tell(absl::string_view what) { console_.Tell(what); }
  // Prints what the lookups have cost: privacy with the chain, time and bytes.
  void TellCosts();

 private:
  Session(std::string name, bool quiet, cli::Io& io)
      : console_(std::move(name), quiet, /*announce=*/false, io) {}

  void TellText(const absl::StatusOr<std::string>& text);
  // What Ctrl-C says from now on.
  void PrepareInterruption(const std::optional<client::UnderWay>& under_way);
  // Says what a lookup reveals, before anything is sent.
  void TellProtection(const client::Division& division);

  Console console_;
  Interruption interruption_;
  UndisturbedClock clock_;
  std::unique_ptr<client::Client> client_;
};

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_SESSION_H_
