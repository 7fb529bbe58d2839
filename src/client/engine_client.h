// Looks keys up at one server, through an engine of src/pir, for one device.
//
//   Open     the engine's setup, checked against the verified manifest; the hint       (hint_cache.h)
//   LookUp   every key's row, also of keys that cannot be: one query each, padded      ---> server
//            all answers, whatever they hold: decrypted, kept                          <---
//            the connection ends; then signatures verified, values looked up
//
// What the server sees is how many queries there are and when: these depend on the number of keys
// alone. Nothing is sent after an answer that depends on it: no second try, no complaint.
#ifndef SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_
#define SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/client/client.h"
#include "src/client/deployment.h"
#include "src/client/hint_cache.h"
#include "src/pir/engine.h"

namespace shoal::client {

struct EngineOptions {
  pir::Engine engine = pir::Engine::kSimplePir;
  // See hint_cache.h.
  std::string hint_path;
  // The number of queries is the number of keys, rounded up to a multiple of this.
  uint32_t pad_to = 1;
  // Of the hint's or the delta's download.
  std::function<void(uint64_t done, uint64_t total)> progress = nullptr;
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
class EngineClient {
 public:
  // NOT_FOUND if the server has no such engine. `deployment` and what `environment` points to outlive
  // the client.
  static absl::StatusOr<std::unique_ptr<EngineClient>> Open(const Deployment* deployment,
                                                            Transport* transport,
                                                            EngineOptions options,
                                                            Environment environment);

  // As Client::LookUp: one result per key, in order. An error means that no answers were obtained:
  // INVALID_ARGUMENT for a key that the table cannot have, before anything is sent;
  // FAILED_PRECONDITION when the table's epoch changed meanwhile.
  absl::StatusOr<std::vector<Lookup>> LookUp(std::span<const Bytes> keys);

  // Of the last lookup: seconds are of one query, wall time; answer_seconds with the network.
  const pir::Costs& costs() const { return costs_; }
  const HintFetch& hint_fetch() const { return fetch_; }

 private:
  EngineClient(const Deployment* deployment, Transport* transport, EngineOptions options,
               Environment environment)
      : deployment_(deployment),
        transport_(transport),
        options_(std::move(options)),
        environment_(std::move(environment)) {}
  absl::StatusOr<wire::Frame> Call(const wire::Frame& request, uint64_t max_bulk_bytes);

  const Deployment* const deployment_;
  Transport* const transport_;
  const EngineOptions options_;
  const Environment environment_;
  std::unique_ptr<pir::Client> client_;
  pir::Costs costs_;
  HintFetch fetch_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ENGINE_CLIENT_H_
