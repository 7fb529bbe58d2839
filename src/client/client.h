// A client of one deployment, from its configuration, for one command or one call of the library:
// the state, the connections, the deployment, and the source of rows.
//
//   Open         the state, locked; the deployment, verified
//   UseChain, UseEngine   where the rows of the lookups come from: one of them, once
//   LookUp       keys -> results (retrieval.h)
//
// `shoal query` and libshoal do nothing but this, each with its own way of reading keys, writing
// results and talking to people. All state, every lock and every charge to the ledger is here and
// below.
#ifndef SHOAL_SRC_CLIENT_CLIENT_H_
#define SHOAL_SRC_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/client/chain_client.h"
#include "src/client/config.h"
#include "src/client/engine_client.h"
#include "src/client/environment.h"
#include "src/client/ledger.h"
#include "src/client/live_deployment.h"
#include "src/client/retrieval.h"
#include "src/client/rollback_anchor.h"
#include "src/client/session_file.h"
#include "src/client/state.h"
#include "src/client/watch.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"

namespace shoal::client {

// What a client says while it works. Each may be empty. Nothing that is said depends on what the
// answers hold until all of them have come and the connections have ended.
struct Reports {
  // What it does, for people.
  std::function<void(absl::string_view what)> tell = nullptr;
  // What people should know even if they want to hear nothing else.
  std::function<void(absl::string_view what)> warn = nullptr;
  // The progress of a long stage. Called from any thread, one call at a time.
  std::function<void(absl::string_view stage, uint64_t done, uint64_t total)> count = nullptr;
  // What it waits for, and when that is due (seconds since 1970).
  std::function<void(absl::string_view what, uint64_t due_s)> wait = nullptr;
  // How the chain's lookup is divided over rounds. Nothing has been sent of it then.
  std::function<void(const Division& division)> announce = nullptr;
  // What an interruption would leave behind (ChainOptions::under_way).
  std::function<void(const std::optional<UnderWay>&)> under_way = nullptr;
  // An engine's session begins to be prepared. What an interruption leaves of it is kept.
  std::function<void()> preparing = nullptr;
};

// INVALID_ARGUMENT unless these can be the parties of the engine's roles: as many as it has, all of
// them different. None at all stand for those of the configuration.
absl::Status CheckParties(const pir::Engine& engine, std::span<const uint32_t> parties);

// Thread-compatible; blocks.
class Client {
 public:
  // `connect` makes connections to a party at an address; `sleep` waits. Whoever wants to cancel
  // has both end early, every call of a connection with CANCELLED from then on: what has been kept
  // until then is what a crash would have left, and the next client goes on with it.
  // Errors of the state, the connection and the deployment; an error that IsInUse (anchor.h) if
  // another client uses the state.
  static absl::StatusOr<std::unique_ptr<Client>> Open(Config config, MachineFactory connect,
                                                      Reports reports, Sleep sleep = SleepFor);

  // The source of the lookups' rows: one of these, once. FAILED_PRECONDITION if the party that the
  // configuration leads to is not the frontend.
  absl::Status UseChain(BeyondPhi beyond_phi);
  // With its hint or session, which is kept beside the state. `parties`: the party of each of the
  // engine's roles; empty: those of the configuration. `pad_to`: see EngineOptions. `keys`: of the
  // lookup.
  // An engine that keeps state has two sessions, so that one is used while the other is prepared:
  // the first one that has queries for so many keys is taken. RESOURCE_EXHAUSTED if none has, and
  // all are spent or in use.
  absl::Status UseEngine(const pir::Engine& engine, std::span<const uint32_t> parties,
                         uint32_t pad_to, uint64_t keys);
  // Prepares a session of an engine that keeps state, if one of the two is not prepared, or spent.
  // With `anew`, both are given up first. The client's state is free for others meanwhile, so that
  // this is the last call but for deployment().
  struct Prepared {
    bool now = false;                      // or there was nothing to do
    std::optional<uint64_t> queries = {};  // that are left in both; nothing: without a limit
  };
  absl::StatusOr<Prepared> PrepareEngine(const pir::Engine& engine,
                                         std::span<const uint32_t> parties, bool anew);

  // What a lookup of these keys by the chain would cost. Sends no query. To be called after
  // UseChain.
  struct Cost {
    Division division;
    TotalLoss lookup;   // of the lookup alone
    Ledger ledger;      // with the lookup
    TotalLoss all;      // of that ledger
    absl::Status stop;  // FAILED_PRECONDITION if max_epsilon of the configuration would stop it
  };
  absl::StatusOr<Cost> CostOf(Keys& keys);

  // See retrieval.h. With the chain, a lookup that waits for a round goes on under a new epoch of
  // the table (live_deployment.h).
  absl::Status LookUp(Keys& keys, Results& results);
  // With the chain: ChainClient::ObtainAhead, which goes on in the same way.
  absl::StatusOr<Digest> ObtainAhead(uint32_t slots);

  // One step of watching a list of keys (watch.h), for a caller that makes it once a day, or as
  // often as it likes: enrols them if no term lasts, and otherwise takes the latest refresh, if
  // there is one that is new. What the keys' results are is told to `sink` alone; an error of this
  // call is one of the network or the disk, or of an enrolment as of LookUp, and never of a refresh
  // that is wrong. Keys that the term lacks wait for the next one.
  struct Watched {
    bool enrolled = false, refreshed = false;
    absl::Status no_news;         // why neither; OK: nothing has changed since the last time
    uint64_t epoch = 0;           // of the table that the results are from
    uint64_t term_expires_s = 0;  // 0 if no term lasts
    uint64_t failed = 0;          // keys without a verified answer: no news of them
    uint64_t waiting = 0;         // keys that the term lacks
  };
  class NewsSink {
   public:
    virtual ~NewsSink() = default;
    // Of every key with news, in the keys' order. All connections have ended before the first.
    virtual absl::Status Add(BytesView key, const Lookup& result, const News& news) = 0;
    virtual absl::Status Finish() = 0;
  };
  // `wait_s`: how long to wait for a round with a term, if one is needed.
  absl::StatusOr<Watched> WatchOnce(Keys& keys, BeyondPhi beyond_phi, uint32_t wait_s,
                                    NewsSink& sink);

  State& state() { return store_->state(); }
  const Deployment& deployment() const { return deployment_->current(); }
  // Of the lookups; null before UseChain and UseEngine.
  const RowSource* source() const { return source_.get(); }
  // The source, if it is an engine.
  const EngineClient* engine() const { return engine_; }

 private:
  Client(Config config, MachineFactory connect, Reports reports)
      : reports_(std::move(reports)), connect_(std::move(connect)), config_(std::move(config)) {}

  void Tell(absl::string_view what) const {
    if (reports_.tell) reports_.tell(what);
  }
  void Warn(absl::string_view what) const {
    if (reports_.warn) reports_.warn(what);
  }
  // The servers of an engine's roles, and the two sessions of one that keeps state.
  struct EnginePlace {
    std::vector<Transport*> servers;
    std::vector<std::string> names;     // "party 2 at host:port"
    Digest identity = {};               // of the servers, in order
    std::optional<Digest> swapped;      // of two, in the other order
    std::string path;                   // of the hint
    std::vector<std::string> sessions;  // two
  };
  absl::StatusOr<EnginePlace> PlaceOf(const pir::Engine& engine, std::span<const uint32_t> parties);
  // Before minutes go into a session that nobody else can use.
  void WarnOfAnchors(const pir::Engine& engine) const;
  // What a preparation of the session brings, for people: "the table is read once, 1.1 GB".
  static std::string PreparationText(const EngineClient& client);
  struct OpenedEngine {
    std::unique_ptr<SessionFile> file;  // null without state
    std::unique_ptr<EngineClient> client;
    // Of an engine that keeps state: what is there is complete, though it may be spent.
    bool ready() const;
    uint64_t left() const { return client->budget().value_or(~uint64_t{0}); }
    // Also while a query whose answers were lost waits: the next lookup sends it again.
    bool unlimited() const { return ready() && !client->budget().has_value(); }
  };
  // FAILED_PRECONDITION: another process uses the session's file. INVALID_ARGUMENT: it is of the
  // same parties in swapped roles, and is not given up.
  absl::StatusOr<std::unique_ptr<SessionFile>> OpenSessionFile(const EnginePlace& place,
                                                               const std::string& path,
                                                               bool give_up = false);
  absl::StatusOr<OpenedEngine> OpenEngine(const pir::Engine& engine, const EnginePlace& place,
                                          std::unique_ptr<SessionFile> file, uint32_t pad_to);
  void Use(OpenedEngine engine);
  // A connection to a party, which the client keeps.
  absl::StatusOr<Transport*> ConnectTo(uint32_t party);
  absl::Status UseChainWith(ChainOptions options);

  const Reports reports_;
  const MachineFactory connect_;
  SystemRandom random_;
  UndisturbedClock clock_;
  ThreadPool pool_;
  const Config config_;
  const AnchorDirectory anchors_ = AnchorDirectory::OfThisMachine();
  Environment environment_ = {};
  std::unique_ptr<FileStateStore> store_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<Transport>> others_;  // to other parties than the frontend
  std::unique_ptr<SessionFile> session_file_;       // of an engine that keeps state
  std::unique_ptr<LiveDeployment> deployment_;
  std::unique_ptr<RowSource> source_;
  ChainClient* chain_ = nullptr;          // source_, if that is the chain
  const EngineClient* engine_ = nullptr;  // source_, if it is an engine
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CLIENT_H_
