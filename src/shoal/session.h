// What every command that looks keys up opens and closes: the state, the connection, the
// deployment, and the source of rows.
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
#include "src/base/random.h"
#include "src/cli/command.h"
#include "src/client/chain_client.h"
#include "src/client/config.h"
#include "src/client/engine_client.h"
#include "src/client/environment.h"
#include "src/client/live_deployment.h"
#include "src/client/retrieval.h"
#include "src/client/session_file.h"
#include "src/client/state.h"
#include "src/client/witness.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/shoal/console.h"
#include "src/shoal/interruption.h"
#include "src/shoal/lookup_commands.h"

namespace shoal::commands {

// One command's client, from its configuration file. Thread-compatible.
class Session {
 public:
  // `name` begins every line on io.err ("shoal query"). With `quiet` only warnings are printed.
  // `io` must outlive the session. Returns errors of the configuration, the state, the connection
  // and the deployment.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const std::string& name,
                                                       const std::string& config_path,
                                                       const Connector& connect, bool quiet,
                                                       cli::Io& io);

  // The source of the lookups' rows: one of these, once.
  absl::Status UseChain(client::BeyondPhi beyond_phi);
  // With its hint or session, which is kept beside the state. `parties`: the party of each of the
  // engine's roles; empty: those of the configuration. `pad_to`: see EngineOptions. `keys`: of the
  // lookup.
  // An engine that keeps state has two sessions, so that one is used while the other is prepared:
  // the first one that has queries for so many keys is taken. RESOURCE_EXHAUSTED if none has, and
  // all are spent or in use.
  absl::Status UseEngine(const pir::Engine& engine, const std::vector<std::string>& parties,
                         uint32_t pad_to, uint64_t keys);
  // Prepares a session of an engine that keeps state, if one of the two is not prepared, or spent.
  // With `anew`, both are given up first. The client's state is free for other commands meanwhile.
  struct Prepared {
    bool now = false;                      // or there was nothing to do
    std::optional<uint64_t> queries = {};  // that are left in both; nothing: without a limit
  };
  absl::StatusOr<Prepared> PrepareEngine(const pir::Engine& engine,
                                         const std::vector<std::string>& parties, bool anew);

  // Writes what a lookup of these keys would cost to `out`, as sentences or as JSON, and sends no
  // query. To be called after UseChain. FAILED_PRECONDITION if the lookup would be stopped.
  absl::Status DryRun(client::Keys& keys, bool json, std::ostream& out);

  // See retrieval.h. With the chain, a lookup that waits for a round goes on under a new epoch of
  // the table (live_deployment.h).
  absl::Status LookUp(client::Keys& keys, client::Results& results);
  // With the chain: ChainClient::ObtainAhead, which goes on in the same way.
  absl::StatusOr<Digest> ObtainAhead(uint32_t slots);

  client::State& state() { return store_->state(); }
  std::string table_name() const { return deployment_->current().manifest().name(); }
  Console& console() { return console_; }
  void Tell(absl::string_view what) { console_.Tell(what); }
  // Prints what the lookups have cost: privacy with the chain, time and bytes.
  void TellCosts();

 private:
  Session(std::string name, client::Config config, Connector connect, bool quiet, cli::Io& io)
      : console_(std::move(name), quiet, /*announce=*/false, io),
        connect_(std::move(connect)),
        config_(std::move(config)) {}

  void TellText(const absl::StatusOr<std::string>& text);
  // What Ctrl-C says from now on.
  void PrepareInterruption(const std::optional<client::UnderWay>& under_way);
  // Says what a lookup reveals, before anything is sent.
  void TellProtection(const client::Division& division);
  // The servers of an engine's roles, and the two sessions of one that keeps state.
  struct EnginePlace {
    std::vector<client::Transport*> servers;
    std::vector<std::string> names;     // "party 2"
    Digest identity = {};               // of the servers, in order
    std::optional<Digest> swapped;      // of two, in the other order
    std::string path;                   // of the hint
    std::vector<std::string> sessions;  // two
  };
  absl::StatusOr<EnginePlace> PlaceOf(const pir::Engine& engine,
                                      const std::vector<std::string>& parties);
  // Before minutes go into a session that no other command can use.
  void WarnOfWitnesses(const pir::Engine& engine);
  // What a preparation of the session brings, for people: "the table is read once, 1.1 GB".
  static std::string PreparationText(const client::EngineClient& client);
  struct OpenedEngine {
    std::unique_ptr<client::SessionFile> file;  // null without state
    std::unique_ptr<client::EngineClient> client;
    // Of an engine that keeps state: what is there is complete, though it may be spent.
    bool ready() const;
    uint64_t left() const { return client->budget().value_or(~uint64_t{0}); }
    // Also while a query whose answers were lost waits: the next lookup sends it again.
    bool unlimited() const { return ready() && !client->budget().has_value(); }
  };
  // FAILED_PRECONDITION: another process uses the session's file. INVALID_ARGUMENT: it is of the
  // same parties in swapped roles, and is not given up.
  absl::StatusOr<std::unique_ptr<client::SessionFile>> OpenSessionFile(const EnginePlace& place,
                                                                       const std::string& path,
                                                                       bool give_up = false);
  absl::StatusOr<OpenedEngine> OpenEngine(const pir::Engine& engine, const EnginePlace& place,
                                          std::unique_ptr<client::SessionFile> file,
                                          uint32_t pad_to);
  void Use(OpenedEngine engine);
  // A connection to a party, which the session keeps.
  absl::StatusOr<client::Transport*> ConnectTo(uint32_t party);

  Console console_;
  Interruption interruption_;
  const Connector connect_;
  SystemRandom random_;
  UndisturbedClock clock_;
  ThreadPool pool_;
  const client::Config config_;
  const client::WitnessPlace witnesses_ = client::WitnessPlace::OfThisMachine();
  client::Environment environment_ = {};
  std::unique_ptr<client::FileStateStore> store_;
  std::unique_ptr<client::Transport> transport_;
  std::vector<std::unique_ptr<client::Transport>> others_;  // to other parties than the frontend
  std::unique_ptr<client::SessionFile> session_file_;       // of an engine that keeps state
  std::unique_ptr<client::LiveDeployment> deployment_;
  std::unique_ptr<client::RowSource> source_;
  client::ChainClient* chain_ = nullptr;          // source_, if that is the chain
  const client::EngineClient* engine_ = nullptr;  // source_, if it is an engine
};

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_SESSION_H_
