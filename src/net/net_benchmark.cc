// Handshakes, round trips and bulk over loopback: client and server share the machine's cores.
#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "src/base/byte_source.h"
#include "src/base/check.h"
#include "src/base/stopwatch.h"
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
    auto server = Server::Start(
        std::move(options), [](wire::Frame request, Reply reply) { reply(std::move(request)); });
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

// Opens a connection, makes one small call and closes it, as `shoal status` does. The argument says
// whether there is a client certificate, as between parties.
void BM_ConnectAndCall(benchmark::State& state) {
  Fixture fixture(state.range(0) != 0);
  const wire::Frame request{.type = wire::FrameType::kGetStatus, .control = "x", .bulk = {}};
  for (auto _ : state) fixture.Call(*fixture.Connect(), request);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ConnectAndCall)->ArgName("client_certificate")->Arg(0)->Arg(1)->UseRealTime();

// Argument: bytes that are sent and returned.
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

// Bytes a second and core at which full records of TLS_AES_128_GCM_SHA256 are sealed; opening them
// takes as long.
double CipherRate() {
  constexpr size_t kRecord = 16 << 10;
  using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;
  const Context context(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  const uint8_t key[16] = {}, nonce[12] = {};
  uint8_t tag[16];
  Bytes record(kRecord);
  int n = 0;
  SHOAL_CHECK(EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, key, nonce) == 1);
  uint64_t bytes = 0;
  const Stopwatch cpu(Stopwatch::kProcess);
  double seconds = 0;
  while (seconds < 0.3) {
    for (int i = 0; i < 100; ++i, bytes += kRecord) {
      SHOAL_CHECK(EVP_EncryptInit_ex(context.get(), nullptr, nullptr, nullptr, nonce) == 1 &&
                  EVP_EncryptUpdate(context.get(), record.data(), &n, record.data(), kRecord) ==
                      1 &&
                  EVP_EncryptFinal_ex(context.get(), tag, &n) == 1 &&
                  EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, 16, tag) == 1);
    }
    seconds = cpu.Seconds();
  }
  return static_cast<double>(bytes) / seconds;
}

// The way of a round's answers: the server makes a long bulk piece by piece, and the client takes
// it piece by piece. Argument: bytes. cpu_GB/s counts the bytes for each second of processor time
// of both sides together. of_cipher_% compares this with the rate at which bytes can be sealed once
// and opened once.
void BM_StreamAnswer(benchmark::State& state) {
  class Zeros final : public ByteSource {
   public:
    explicit Zeros(uint64_t size) : left_(size), size_(size) {}
    uint64_t size() const override { return size_; }
    absl::StatusOr<BytesView> Next() override {
      const uint64_t n = std::min<uint64_t>(left_, piece_.size());
      left_ -= n;
      return BytesView(piece_).first(n);
    }

   private:
    uint64_t left_;
    const uint64_t size_;
    const Bytes piece_ = Bytes(2 << 20);
  };
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const testing::TestIdentity identity{1};
  auto server = Server::Start({.address = "127.0.0.1:0",
                               .identity = identity.identity(),
                               .clients = {},
                               .limits = [](wire::FrameType) { return kLimits; }},
                              [&](wire::Frame request, Reply reply) {
                                reply(std::move(request), std::make_unique<Zeros>(bytes));
                              });
  SHOAL_CHECK(server.ok());
  const auto connection = Connection::Connect(
      {.address = absl::StrCat("127.0.0.1:", (*server)->port()), .pin = identity.digest()});
  SHOAL_CHECK(connection.ok());
  const wire::Frame request{.type = wire::FrameType::kOnline, .control = "x", .bulk = {}};
  const Stopwatch cpu(Stopwatch::kProcess);
  for (auto _ : state) {
    const auto answer = (*connection)->CallStreaming(request, nullptr, kLimits, 60s);
    if (!answer.ok()) state.SkipWithError(answer.status().ToString().c_str());
    if (!answer.ok()) break;
    uint64_t taken = 0;
    for (;;) {
      const absl::StatusOr<BytesView> piece = answer->bulk->Next();
      SHOAL_CHECK(piece.ok());
      if (piece->empty()) break;
      taken += piece->size();
    }
    SHOAL_CHECK(taken == bytes);
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  const double rate =
      static_cast<double>(bytes) * static_cast<double>(state.iterations()) / cpu.Seconds();
  state.counters["cpu_GB/s"] = rate / 1e9;
  state.counters["of_cipher_%"] = 100 * rate / (CipherRate() / 2);
}
BENCHMARK(BM_StreamAnswer)->ArgName("bytes")->Arg(256 << 20)->UseRealTime()->MinTime(3);

}  // namespace
}  // namespace shoal::net
