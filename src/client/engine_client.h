// One server's engine as a source of rows (row_source.h), for one device.
//
//   Prepare  the engine's setup, checked against the verified manifest; the hint (hint_cache.h)
//   Ask      one query for every key of the lookup, padded: some for the wanted rows, the others
//            for a row that stands in                                                 ---> server
//            all answers, whatever they hold: every one decrypted; those that were wanted are kept
//                                                                                     <---
//
// What the server sees is how many queries there are and when: these depend on the number of keys
// alone. Nothing is sent after an answer that depends on it: no second try, no complaint.
//
// Memory: the hint's (pir::Sizes), a request of queries and its answers, and answer_bytes for every
// distinct row.
#ifndef SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_
#define SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/hint_cache.h"
#include "src/client/row_source.h"
#include "src/pir/registry.h"

namespace shoal::client {

struct EngineOptions {
  pir::Engine engine = pir::Engine::kSimplePir;
  // See hint_cache.h.
  std::string hint_path;
  // The number of queries is the number of keys, rounded up to a multiple of this.
  uint32_t pad_to = 1;
};

// The deployment's answer records as this setup says? DATA_LOSS names what differs: the server's
// engine and its table do not belong together.
absl::Status CheckSetup(const wire::PirSetup& setup, const Deployment& deployment,
                        pir::Engine engine);

// The server's setup of `engine`, checked (CheckSetup), and what the engine has cost there so far.
// NOT_FOUND if the server has no such engine.
absl::StatusOr<wire::GetPirSetupResponse> FetchSetup(const Deployment& deployment,
                                                     pir::Engine engine, const EngineCall& call);

// How many queries one request carries.
size_t QueriesPerRequest(const pir::Sizes& sizes);

// The answers to `count` queries, one after the other as the queries are. DATA_LOSS if they are not
// as long as they must be.
absl::StatusOr<Bytes> FetchEngineAnswers(pir::Engine engine, const pir::Sizes& sizes, size_t count,
                                         Bytes queries, const EngineCall& call);

// Thread-compatible; blocks.
class EngineClient final : public RowSource {
 public:
  // INVALID_ARGUMENT for options out of range. The pointers, and those in `environment`, outlive
  // the client.
  static absl::StatusOr<std::unique_ptr<EngineClient>> Create(const Deployment* deployment,
                                                              Transport* transport,
                                                              EngineOptions options,
                                                              Environment environment);

  // NOT_FOUND if the server has no such engine; errors of FetchSetup and ObtainHint. What came of
  // the hint before an error is on disk, and is not fetched again.
  absl::Status Prepare() override;

  // FAILED_PRECONDITION when the table's epoch changed since Prepare.
  absl::StatusOr<std::unique_ptr<RowAnswers>> Ask(const Wanted& wanted) override;

  void HangUp() override { transport_->HangUp(); }
  pir::Costs costs() const override { return costs_; }
  Traffic traffic() const override { return transport_->traffic(); }
  const HintFetch& hint_fetch() const { return fetch_; }

 private:
  EngineClient(const Deployment* deployment, Transport* transport, EngineOptions options,
               Environment environment)
      : deployment_(*deployment),
        transport_(transport),
        options_(std::move(options)),
        environment_(std::move(environment)) {}
  absl::StatusOr<wire::Frame> Call(const wire::Frame& request, uint64_t max_bulk_bytes);

  const Deployment& deployment_;
  Transport* const transport_;
  const EngineOptions options_;
  const Environment environment_;
  std::unique_ptr<pir::Client> client_;  // once prepared
  pir::Costs costs_;
  HintFetch fetch_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_
