// Handshakes, round trips and bulk over loopback: client and server share the machine's cores.
#include <memory>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "src/base/check.h"
#include "src/net/connection.h"
#include "src/net/server.h"
#include "src/net/testing/test_identity.h"

namespace shoal::net {
namespace {

using namespace std::chrono_literals;
constexpr wire::FrameLimits kLimits = {.control_bytes = 1 << 20, .bulk_bytes = 1ull << 32};

class Fixture {
 public:
  explicit Fixture(bool client_certificate) {
    Server::Options options{.address = "127.0.0.1:0",
                            .identity = server_identity_.identity(),
                            .clients = {},
                            .limits = [](wire::FrameType) { return kLimits; }};
    if (client_certificate) {
      options.clients = {client_identity_.digest()};
      identity_ = client_identity_.identity();
    }
    auto server = Server::Start(std::move(options), [](wire::Frame request, Reply reply) {
      reply(std::move(request));
    });
    SHOAL_CHECK(server.ok());
    server_ = *std::move(server);
  }
  std::unique_ptr<Connection> Connect() {
    auto connection =
        Connection::Connect({.address = absl::StrCat("127.0.0.1:", server_->port()),
                             .pin = server_identity_.digest(),
                             .identity = identity_.certificate_pem.empty() ? nullptr : &identity_});
    SHOAL_CHECK(connection.ok());
    return *std::move(connection);
  }
  void Call(Connection& connection, const wire::Frame& request) {
    SHOAL_CHECK(connection.Call(request, kLimits, 60s).ok());
  }

 private:
  const testing::TestIdentity server_identity_{1}, client_identity_{2};
  Identity identity_;
  std::unique_ptr<Server> server_;
};

// A connection, one small call, and the end: what a client's `shoal status` costs. Argument: with
// a client certificate, as between parties.
void BM_ConnectAndCall(benchmark::State& state) {
  Fixture fixture(state.range(0) != 0);
  const wire::Frame request{.type = wire::FrameType::kGetStatus, .control = "x", .bulk = {}};
  for (auto _ : state) fixture.Call(*fixture.Connect(), request);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ConnectAndCall)->ArgName("client_certificate")->Arg(0)->Arg(1)->UseRealTime();

// Argument: bytes that go there and come back.
void BM_Call(benchmark::State& state) {
  Fixture fixture(false);
  const auto connection = fixture.Connect();
  const wire::Frame request{.type = wire::FrameType::kOffline,
                            .control = "x",
                            .bulk = Bytes(static_cast<size_t>(state.range(0)))};
  for (auto _ : state) fixture.Call(*connection, request);
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(2 * state.iterations() * state.range(0));
}
BENCHMARK(BM_Call)->ArgName("bytes")->Arg(0)->Arg(1 << 16)->Arg(64 << 20)->UseRealTime();

}  // namespace
}  // namespace shoal::net
