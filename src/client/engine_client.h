// An engine's servers as a source of rows (row_source.h), for one device.
//
//   Prepare  each server's setup, which all parties must have signed for the verified table; what
//            the session needs first: a public hint (hint_cache.h), or answers to requests of its
//            own
//   Ask      the steps of one lookup, padded: the session decides how many queries there are by
//            the number of keys                                                       ---> servers
//            all answers, whatever they hold: every one is decrypted; those that were wanted
//            are kept                                                                 <---
//
// What the servers see is how many queries there are and when: these depend on the number of keys
// alone. Nothing is sent after an answer that depends on it: no second try, no complaint.
//
// Memory: the hint's (pir::Sizes), a request of queries and its answers, and answer_bytes for every
// distinct row.
#ifndef SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_
#define SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/hint_cache.h"
#include "src/client/row_source.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"

namespace shoal::client {

struct EngineOptions {
  // Lives as long as the process (src/pir/registry).
  const pir::Engine* engine = nullptr;
  // See hint_cache.h.
  std::string hint_path = {};
  // For an engine that keeps state (session_file.h). It outlives the client.
  pir::SessionStore* store = nullptr;
  // How errors name the servers, in the order of the engine's roles: "party 2"; empty: by their
  // roles alone.
  std::vector<std::string> names = {};
  // The number of queries is that of this many keys: the number of keys, rounded up to a multiple.
  uint32_t pad_to = 1;
};

// The server's setup of `engine`, which is of the deployment's table and signed by all parties, and
// what the engine has cost there so far. NOT_FOUND if the server has no such engine; errors of
// pir::CheckSetup.
absl::StatusOr<wire::GetPirSetupResponse> FetchSetup(const Deployment& deployment,
                                                     const pir::Engine& engine,
                                                     const EngineCall& call);

// The answer to a request, whose body is moved out of it. DATA_LOSS if it is not as long as it must
// be.
absl::StatusOr<Bytes> FetchAnswer(const pir::Engine& engine, pir::Request& request,
                                  const EngineCall& call);

// Thread-compatible; blocks.
class EngineClient final : public RowSource {
 public:
  // `servers`: one for each of the engine's roles, in their order. INVALID_ARGUMENT for options out
  // of range. The pointers, and those in `environment`, outlive the client.
  static absl::StatusOr<std::unique_ptr<EngineClient>> Create(const Deployment* deployment,
                                                              std::vector<Transport*> servers,
                                                              EngineOptions options,
                                                              Environment environment);

  // NOT_FOUND if a server has no such engine; FAILED_PRECONDITION if two servers serve different
  // epochs of the table, or different setups: before anything else is sent to them; errors of
  // FetchSetup, ObtainHint and FetchDelta. A
  // session of an earlier epoch is brought forward, or begins anew if no signed delta leads here.
  // What came of the preparation before an error is on disk, and is not fetched again.
  absl::Status Prepare() override;

  // Prepares more if the session needs it for so many keys. FAILED_PRECONDITION when the table's
  // epoch changed since Prepare.
  absl::StatusOr<std::unique_ptr<RowAnswers>> Ask(const Wanted& wanted) override;

  // Records that can still be asked for with what is prepared; nothing if there is no such limit,
  // or before Prepare.
  std::optional<uint64_t> budget() const {
    return session_ == nullptr ? std::nullopt : session_->Budget();
  }
  // Only as much as Prepare does before it asks for what is prepared: whether the session that is
  // kept can be used.
  absl::Status Open();
  bool prepared() const {
    return session_ != nullptr && session_->needed(0) == pir::Session::Need::kNothing;
  }
  pir::Session::Progress progress() const {
    return session_ == nullptr ? pir::Session::Progress() : session_->progress();
  }

  void HangUp() override;
  pir::Costs costs() const override { return costs_; }
  Traffic traffic() const override;
  const pir::Engine& engine() const { return engine_; }
  const HintFetch& hint_fetch() const { return fetch_; }

 private:
  EngineClient(const Deployment* deployment, std::vector<Transport*> servers, EngineOptions options,
               Environment environment);
  // To the server of a role, with retries.
  EngineCall CallTo(size_t server) const;
  // "party 2 (online)", for errors; "the server" if there is only one.
  std::string NameOf(size_t server) const;
  // All servers' setups, which are of one epoch and one shape, and signed.
  absl::StatusOr<std::vector<wire::SignedPirSetup>> FetchSetups();
  absl::StatusOr<Bytes> Fetch(pir::Request& request) const;
  // At the same time from all servers; waits for all of them, also after an error.
  absl::StatusOr<std::vector<Bytes>> FetchAll(std::vector<pir::Request>& requests);
  absl::Status PrepareFor(uint64_t keys);
  // Whether all parties have signed each record as its row's (pir::SessionOptions::check).
  absl::Status CheckRecords(std::span<const uint64_t> rows, BytesView records) const;
  absl::Status BringForward(pir::Session& session, const wire::SignedPirSetup& setup);

  const Deployment& deployment_;
  const std::vector<Transport*> servers_;
  const pir::Engine& engine_;
  const EngineOptions options_;
  const Environment environment_;
  std::optional<ThreadPool> threads_;      // one for each server but one
  std::unique_ptr<pir::Session> session_;  // once prepared
  pir::Costs costs_;
  HintFetch fetch_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_
