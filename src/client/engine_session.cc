#include "src/client/engine_session.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/thread_pool.h"
#include "src/cli/progress.h"
#include "src/client/config.h"
#include "src/client/engine_client.h"
#include "src/client/exchange.h"
#include "src/client/format.h"
#include "src/client/state.h"
#include "src/pir/costs.h"

namespace shoal::client {

absl::StatusOr<std::vector<Lookup>> LookUpWithEngine(pir::Engine engine, uint32_t pad_to,
                                                     const std::string& config_path,
                                                     const Connector& connect, bool quiet,
                                                     std::span<const Bytes> keys, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const Config config, ReadConfig(config_path));
  SystemRandom random;
  const SystemClock clock;
  ThreadPool pool;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<FileStateStore> store,
                         FileStateStore::Open(config.state_path, random));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport, connect(config.frontend));
  SHOAL_ASSIGN_OR_RETURN(
      const Deployment deployment,
      WithRetries(SleepFor, [&] {
        return Deployment::Fetch(*transport, config.pins, store->state(), clock.NowSeconds(),
                                 config.options.placement_cache);
      }));
  SHOAL_RETURN_IF_ERROR(store->Save());
  const std::string name(pir::EngineName(engine));
  std::unique_ptr<EngineClient> client;
  {
    cli::ProgressBar bar(io.err, io.err_is_terminal && !quiet, "fetching the hint");
    EngineOptions options;
    options.engine = engine;
    options.hint_path = absl::StrCat(config.state_path, ".", name);
    options.pad_to = pad_to;
    options.progress = [&bar](uint64_t done, uint64_t total) { bar.Update(done, total); };
    SHOAL_ASSIGN_OR_RETURN(client,
                           EngineClient::Open(&deployment, transport.get(), std::move(options),
                                              {.clock = &clock,
                                               .random = &random,
                                               .pool = &pool,
                                               .sleep = SleepFor,
                                               .progress = nullptr}));
  }
  const HintFetch& fetch = client->hint_fetch();
  if (!fetch.unwritten.ok()) {
    io.err << "shoal query: warning: " << name
           << ": what was fetched cannot be kept: " << fetch.unwritten.message() << std::endl;
  }
  SHOAL_ASSIGN_OR_RETURN(std::vector<Lookup> results, client->LookUp(keys));
  if (quiet) return results;
  const auto bytes = [](uint64_t n) { return BytesText(static_cast<double>(n)); };
  std::vector<std::string> costs;
  pir::ForEachCost(client->costs(), [&](const char* cost, double value) {
    const int decimals = absl::StrContains(cost, "bytes") ? 0 : 6;
    costs.push_back(absl::StrFormat("%s %.*f", cost, decimals, value));
  });
  io.err << "shoal query: " << name << ": hint " << bytes(client->costs().bytes.hint_bytes) << " ("
         << bytes(fetch.received_bytes) << " fetched" << (fetch.by_delta ? " as a delta" : "")
         << ")\nshoal query: costs: " << absl::StrJoin(costs, ", ") << "\n";
  const Traffic traffic = transport->traffic();
  io.err << "shoal query: traffic: " << bytes(traffic.sent) << " sent, " << bytes(traffic.received)
         << " received\n";
  return results;
}

}  // namespace shoal::client
