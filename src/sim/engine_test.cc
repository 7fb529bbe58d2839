// Single-server engines from key to value: the server's service and the client's library in one
// process, over a signed table. Tests can cut off, spoil and count the messages between them.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "src/base/address_block.h"
#include "src/base/byte_source.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_clock.h"
#include "src/base/testing/test_random.h"
#include "src/client/engine_client.h"
#include "src/client/retrieval.h"
#include "src/client/rollback_anchor.h"
#include "src/client/session_file.h"
#include "src/client/state.h"
#include "src/load/load_generator.h"
#include "src/pir/lwe/family.h"
#include "src/pir/pair/pair.h"
#include "src/pir/rlwe/hintless.h"
#include "src/pir/rlwe/small_pir.h"
#include "src/pir/sets/family.h"
#include "src/pir/sets/single_pass.h"
#include "src/pir/sets/tree_pir.h"
#include "src/pir/setup/maker.h"
#include "src/pir/setup/product_file.h"
#include "src/pir/setup/signed_setup.h"
#include "src/pir/testing/memory_store.h"
#include "src/pir/testing/xor_engine.h"
#include "src/roster/testing/parties.h"
#include "src/shoald/pir_service.h"
#include "src/storage/file.h"
#include "src/table/table.h"
#include "src/table/testing/signed_table.h"
#include "src/wire/pir.pb.h"

namespace shoal::sim {
namespace {

using client::Lookup;
using roster::testing::kNowS;
using table::testing::Layout;
using testing::StatusIs;
using wire::Frame;
using wire::FrameType;

// One server, and tables that three parties sign.
class World {
 public:
  World() : parties_(3, random_) { roster_ = parties_.roster(); }

  // Values are "value KEY EPOCH" for every tenth key, "value KEY" for the others. Built after the
  // table of the last epoch before, if any was made.
  std::shared_ptr<const table::Table> MakeTable(uint64_t epoch, uint64_t records,
                                                uint32_t row_bytes, bool dense = false) {
    return Sign(table::testing::Records(records, dense ? Layout::kDense : Layout::kHashed,
                                        [&](size_t i) {
                                          return i % 10 == 0 ? absl::StrCat("value ", i, " ", epoch)
                                                             : absl::StrCat("value ", i);
                                        }),
                epoch, row_bytes, dense);
  }

  std::shared_ptr<const table::Table> Sign(const table::RecordSet& set, uint64_t epoch,
                                           uint32_t row_bytes, bool dense) {
    table::TableOptions options = table::testing::Options(row_bytes, epoch);
    const auto later = epochs_.lower_bound(epoch);
    if (later != epochs_.begin()) options.previous = &std::prev(later)->second;
    auto table = std::make_shared<const table::Table>(
        table::testing::MakeTable(set, options, dense ? Layout::kDense : Layout::kHashed, parties_,
                                  *roster_, kNowS, random_, pool_));
    epochs_.insert_or_assign(epoch, table->AsPrevious());
    return table;
  }

  // The table with setups that all parties signed, after that of the last epoch before, if any was
  // signed so. `products` as in pir::MakeServer.
  shoald::ServedTable SignSetups(
      std::shared_ptr<const table::Table> table,
      const std::vector<const pir::Engine*>& engines = {&pir::lwe::SimplePir()},
      const std::string& products = "") {
    shoald::ServedTable served = {.table = table, .setups = {}};
    for (const pir::Engine* engine : engines) {
      std::map<uint64_t, pir::SignedEpoch>& signed_epochs = setups_[engine];
      const auto later = signed_epochs.lower_bound(table->manifest().epoch());
      const auto proposal = pir::ProposeSetup(
          *engine, table->AsPrevious(),
          later == signed_epochs.begin() ? nullptr : &std::prev(later)->second, {.pool = &pool_});
      SHOAL_CHECK(proposal.ok());
      if (!products.empty()) SHOAL_CHECK(pir::WriteProduct(products, *proposal->server).ok());
      const wire::SignedPirSetup setup = SignByAll(proposal->setup);
      served.setups[engine] = setup;
      signed_epochs.insert_or_assign(
          table->manifest().epoch(),
          pir::SignedEpoch{.table = table->AsPrevious(), .setup = setup});
    }
    return served;
  }
  wire::SignedPirSetup SignByAll(wire::SignedPirSetup setup) const {
    setup.set_signature(parties_.SignatureByAll(pir::SetupMessage(setup)));
    return setup;
  }

  void Serve(std::shared_ptr<const table::Table> table,
             std::function<void(const pir::Engine&, uint64_t, uint64_t)> progress = nullptr,
             const pir::Engine* engine = &pir::lwe::SimplePir()) {
    auto service = shoald::PirService::Create(
        &*roster_, SignSetups(std::move(table), {engine}),
        {.engines = {engine}, .pool = &pool_, .progress = std::move(progress)});
    SHOAL_CHECK(service.ok());
    service_ = *std::move(service);
  }

  const roster::testing::Parties& parties() const { return parties_; }
  const roster::Roster& roster() const { return *roster_; }
  shoald::PirService& service() { return *service_; }
  ThreadPool& pool() { return pool_; }
  testing::TestRandom& random() { return random_; }

 private:
  testing::TestRandom random_{1};
  ThreadPool pool_{2};
  roster::testing::Parties parties_;
  std::optional<roster::Roster> roster_;
  std::unique_ptr<shoald::PirService> service_;
  // The tables that were made, by their epochs.
  std::map<uint64_t, table::PreviousEpoch> epochs_;
  std::map<const pir::Engine*, std::map<uint64_t, pir::SignedEpoch>> setups_;
};

absl::StatusOr<Frame> CallService(shoald::PirService& service, const Frame& request,
                                  Origin from = std::nullopt) {
  SHOAL_ASSIGN_OR_RETURN(const wire::FrameLimits limits, service.Limits(request.type));
  SHOAL_RETURN_IF_ERROR(wire::CheckLimits(wire::HeaderOf(request), limits));
  std::promise<Frame> promise;
  std::future<Frame> future = promise.get_future();
  service.Handle(request, net::Reply(
                              [&](Frame answer, std::unique_ptr<ByteSource>) {
                                promise.set_value(std::move(answer));
                              },
                              std::move(from)));
  Frame frame = future.get();
  if (frame.type == FrameType::kError) return wire::ErrorOf(frame);
  return frame;
}

wire::SignedPirSetup SignedSetupOf(shoald::PirService& service,
                                   absl::string_view engine = "simplepir") {
  wire::GetPirSetupRequest request;
  request.set_engine(std::string(engine));
  wire::GetPirSetupResponse response;
  const auto frame = CallService(service, wire::MakeFrame(FrameType::kGetPirSetup, request));
  SHOAL_CHECK(frame.ok());
  SHOAL_CHECK(wire::ParseFrame(*frame, FrameType::kGetPirSetup, response).ok());
  return response.setup();
}
wire::PirSetup SetupOf(shoald::PirService& service) { return SignedSetupOf(service).setup(); }

class DirectTransport final : public client::Transport {
 public:
  // To the world's service, or to another one.
  explicit DirectTransport(World* world, shoald::PirService* service = nullptr)
      : world_(world), service_(service) {}

  // Ends the connection after this many pieces of a hint.
  int pieces_left = 1 << 30;
  int queries_left = 1 << 30;
  // What a malicious server does to its answers.
  std::function<void(Bytes&)> spoil = nullptr;
  std::function<void(Frame&)> spoil_delta = nullptr;
  std::vector<FrameType> calls;
  std::vector<size_t> call_bytes;
  Bytes last_query;  // also one that was cut off
  bool hung_up = false;

  absl::StatusOr<wire::GetDeploymentResponse> GetDeployment(
      const wire::GetDeploymentRequest& request) override {
    return Call<wire::GetDeploymentResponse>(FrameType::kGetDeployment, request);
  }
  absl::StatusOr<wire::GetPlacementResponse> GetPlacement(
      const wire::GetPlacementRequest& request) override {
    return Call<wire::GetPlacementResponse>(FrameType::kGetPlacement, request);
  }
  absl::StatusOr<wire::GetRowVersionsResponse> GetRowVersions(
      const wire::GetRowVersionsRequest& request) override {
    return Call<wire::GetRowVersionsResponse>(FrameType::kGetRowVersions, request);
  }
  absl::StatusOr<Frame> CallEngine(const Frame& request, uint64_t max_bulk) override {
    calls.push_back(request.type);
    call_bytes.push_back(request.bulk.size());
    if (request.type == FrameType::kPirQuery) last_query = request.bulk;
    hung_up = false;
    if (request.type == FrameType::kGetPirHint && pieces_left-- <= 0) {
      return absl::UnavailableError("cut off");
    }
    if (request.type == FrameType::kPirQuery && queries_left-- <= 0) {
      return absl::UnavailableError("cut off");
    }
    SHOAL_ASSIGN_OR_RETURN(Frame frame, CallService(service(), request));
    EXPECT_LE(frame.bulk.size(), max_bulk);
    if (spoil && request.type == FrameType::kPirQuery) spoil(frame.bulk);
    if (spoil_delta && request.type == FrameType::kGetPirDelta) spoil_delta(frame);
    return frame;
  }
  absl::Status RequireParty(const roster::Roster&, uint32_t) override { return absl::OkStatus(); }
  void ForgetParty() override {}
  void HangUp() override { hung_up = true; }
  client::Traffic traffic() const override { return {}; }

  absl::StatusOr<wire::ListRoundsResponse> ListRounds(const wire::ListRoundsRequest&) override {
    return absl::UnimplementedError("no rounds");
  }
  absl::StatusOr<wire::WaitRoundResponse> WaitRound(const wire::WaitRoundRequest&) override {
    return absl::UnimplementedError("no rounds");
  }
  absl::StatusOr<wire::SubmitOnionsResponse> SubmitOnions(
      const wire::SubmitOnionsRequest&) override {
    return absl::UnimplementedError("no rounds");
  }
  absl::StatusOr<wire::SubmitQueriesResponse> SubmitQueries(
      const wire::SubmitQueriesRequest&) override {
    return absl::UnimplementedError("no rounds");
  }
  absl::StatusOr<wire::FetchAnswersResponse> FetchAnswers(
      const wire::FetchAnswersRequest&) override {
    return absl::UnimplementedError("no rounds");
  }
  absl::StatusOr<wire::GetStatusResponse> GetStatus(
      const wire::GetStatusRequest& request) override {
    return Call<wire::GetStatusResponse>(FrameType::kGetStatus, request);
  }

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(FrameType type, const Request& request) {
    SHOAL_ASSIGN_OR_RETURN(const Frame frame,
                           CallService(service(), wire::MakeFrame(type, request)));
    Response response;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, type, response));
    return response;
  }
  shoald::PirService& service() const { return service_ ? *service_ : world_->service(); }
  World* const world_;
  shoald::PirService* const service_;
};

// A device: its transport, its state, its engine's client.
struct Device {
  explicit Device(World* of, const pir::Engine* at = &pir::lwe::SimplePir())
      : world(of), engine(at), transport(of) {}

  absl::Status Open(const std::string& hint_path = "", uint32_t pad_to = 1) {
    client.reset();
    SHOAL_ASSIGN_OR_RETURN(auto fetched, client::Deployment::Fetch(
                                             transport, world->parties().pinned(), state, kNowS));
    deployment.emplace(std::move(fetched));
    client::EngineOptions options;
    options.engine = engine;
    options.hint_path = hint_path;
    options.pad_to = pad_to;
    SHOAL_ASSIGN_OR_RETURN(
        client, client::EngineClient::Create(&*deployment, {&transport}, options, Environment()));
    return client->Prepare();
  }
  absl::StatusOr<std::vector<Lookup>> LookUp(const std::vector<std::string>& keys) {
    std::vector<Bytes> bytes;
    for (const std::string& key : keys) bytes.push_back(ToBytes(AsBytes(key)));
    return client::LookUp(*deployment, *client, bytes, Environment());
  }
  client::Environment Environment() {
    return {.clock = &clock, .random = &random, .pool = &world->pool(), .sleep = [](uint32_t) {}};
  }
  // "found VALUE", "absent", "failed".
  std::vector<std::string> Results(const std::vector<std::string>& keys) {
    const auto results = LookUp(keys);
    if (!results.ok()) return {results.status().ToString()};
    std::vector<std::string> out;
    for (const Lookup& result : *results) {
      out.push_back(result.outcome == Lookup::Outcome::kFound    ? "found " + ToString(result.value)
                    : result.outcome == Lookup::Outcome::kAbsent ? "absent"
                                                                 : "failed");
    }
    return out;
  }

  World* const world;
  const pir::Engine* const engine;
  testing::TestClock clock;
  testing::TestRandom random{33};
  client::State state;
  DirectTransport transport;
  std::optional<client::Deployment> deployment;
  std::unique_ptr<client::EngineClient> client;
};

std::string FreshPath(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/" + name;
  for (const char* part : {".setup", ".hint", ".deltas"}) unlink((path + part).c_str());
  return path;
}

using Texts = std::vector<std::string>;

TEST(EngineSim, KeysAreFoundAndOthersProvedAbsent) {
  World world;
  world.Serve(world.MakeTable(1, 300, 256));
  Device device(&world);
  SHOAL_ASSERT_OK(device.Open());
  EXPECT_EQ(
      device.Results({"key-7", "key-299", "nobody", "key-10", "key-7"}),
      (Texts{"found value 7", "found value 299", "absent", "found value 10 1", "found value 7"}));
  EXPECT_TRUE(device.transport.hung_up);
  EXPECT_EQ(device.client->costs().bytes.hint_bytes, device.client->hint_fetch().received_bytes);
}

// An engine of two roles at two parties, prepared by messages, whose session spends a hint for
// every query and keeps the others over restarts: what Piano and TreePIR will need of every layer.
TEST(EngineSim, TwoRolesAndASessionThatIsSpent) {
  const pir::Engine& engine = pir::testing::XorEngine();
  World world;
  const auto table = world.MakeTable(1, 100, 128);
  std::vector<std::unique_ptr<shoald::PirService>> services;
  std::vector<std::unique_ptr<DirectTransport>> transports;
  for (int party = 0; party < 2; ++party) {
    auto service = shoald::PirService::Create(&world.roster(), world.SignSetups(table, {&engine}),
                                              {.engines = {&engine}, .pool = &world.pool()});
    SHOAL_ASSERT_OK(service.status());
    services.push_back(*std::move(service));
    transports.push_back(std::make_unique<DirectTransport>(&world, services.back().get()));
  }
  Device device(&world);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const client::Deployment deployment,
      client::Deployment::Fetch(*transports[0], world.parties().pinned(), device.state, kNowS));
  const std::string path = ::testing::TempDir() + "/xor.session";
  for (const char* suffix : {"", ".guard", ".lock"}) unlink((path + suffix).c_str());
  const auto open = [&](pir::SessionStore* store) {
    return client::EngineClient::Create(&deployment, {transports[0].get(), transports[1].get()},
                                        {.engine = &engine, .store = store}, device.Environment());
  };
  const client::AnchorDirectory place = client::AnchorDirectory::Below(::testing::TempDir());
  const auto open_store = [&] {
    return client::SessionFile::Open(path, {1}, place, device.random);
  };
  EXPECT_THAT(open(nullptr), StatusIs(absl::StatusCode::kInvalidArgument, "keeps state"));

  const std::vector<Bytes> keys = {ToBytes(AsBytes("key-7")), ToBytes(AsBytes("nobody")),
                                   ToBytes(AsBytes("key-10"))};
  for (int run = 0; run < 2; ++run) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, open_store());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto client, open(store.get()));
    for (const auto& transport : transports) transport->calls.clear();
    SHOAL_ASSERT_OK(client->Prepare());
    // One setup each. The hints are made once and kept for the second run.
    EXPECT_EQ(transports[0]->calls.size(), run == 0 ? 1 + pir::testing::kXorHints : 1u);
    EXPECT_EQ(transports[1]->calls.size(), 1u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results,
                               client::LookUp(deployment, *client, keys, device.Environment()));
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(ToString(results[0].value), "value 7");
    EXPECT_EQ(results[1].outcome, Lookup::Outcome::kAbsent);
    EXPECT_EQ(ToString(results[2].value), "value 10 1");
    // A query at one, a new hint at the other, for every key.
    EXPECT_EQ(transports[1]->calls.size(), 4u);
    for (const auto& transport : transports) EXPECT_TRUE(transport->hung_up);
  }
  // Each query prepares the next one, so that a lookup may have more keys than there are hints.
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, open_store());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto client, open(store.get()));
    SHOAL_ASSERT_OK(client->Prepare());
    SHOAL_EXPECT_OK(client->Ask({.rows = {1}, .keys = pir::testing::kXorHints + 2}).status());
  }
  // A preparation that was cut off goes on where it stopped.
  for (const char* suffix : {"", ".guard", ".lock"}) unlink((path + suffix).c_str());
  transports[0]->queries_left = 3;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, open_store());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto client, open(store.get()));
    EXPECT_THAT(client->Prepare(), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
  }
  transports[0]->queries_left = 1 << 30;
  transports[0]->calls.clear();
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, open_store());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto client, open(store.get()));
    SHOAL_ASSERT_OK(client->Prepare());
    EXPECT_EQ(transports[0]->calls.size(), 1 + pir::testing::kXorHints - 3);
  }
  // A role that a server does not have.
  wire::PirQueryRequest request;
  request.set_engine("xor");
  request.set_count(1);
  for (const char* role : {"single", "", "backward"}) {
    request.set_role(role);
    EXPECT_THAT(
        CallService(*services[0], wire::MakeFrame(FrameType::kPirQuery, request, Bytes(64))),
        StatusIs(absl::StatusCode::kInvalidArgument, ""));
  }
}

// Piano from key to value: a session that is read from the table once, cut off and continued;
// lookups by several processes; an answer that is lost; an epoch; a server that lies.
class PianoSim : public ::testing::Test {
 protected:
  PianoSim() { Serve(1); }
  // A directory of the test's own, as all tests draw the same names.
  static std::string FreshDirectory() {
    const std::string path = ::testing::TempDir() + "/piano-sim";
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    return path;
  }
  shoald::ServedTable Sign(uint64_t epoch) {
    return world_.SignSetups(world_.MakeTable(epoch, 300, 64), {&engine_});
  }
  void Serve(uint64_t epoch) {
    service_ = *shoald::PirService::Create(&world_.roster(), Sign(epoch),
                                           {.engines = {&engine_}, .pool = &world_.pool()});
  }
  // Another process of the device.
  absl::Status Open() {
    client_.reset();
    store_.reset();
    transport_ = std::make_unique<DirectTransport>(&world_, service_.get());
    transport_->queries_left = queries_left_;
    transport_->spoil = spoil_;
    transport_->spoil_delta = spoil_delta_;
    SHOAL_ASSIGN_OR_RETURN(
        auto fetched,
        client::Deployment::Fetch(*transport_, world_.parties().pinned(), device_.state, kNowS));
    deployment_.emplace(std::move(fetched));
    SHOAL_ASSIGN_OR_RETURN(store_, client::SessionFile::Open(path_, {1}, place_, device_.random));
    SHOAL_ASSIGN_OR_RETURN(client_,
                           client::EngineClient::Create(&*deployment_, {transport_.get()},
                                                        {.engine = &engine_, .store = store_.get()},
                                                        device_.Environment()));
    return client_->Prepare();
  }
  absl::StatusOr<std::vector<Lookup>> LookUp(const std::vector<std::string>& keys) {
    std::vector<Bytes> bytes;
    for (const std::string& key : keys) bytes.push_back(ToBytes(AsBytes(key)));
    return client::LookUp(*deployment_, *client_, bytes, device_.Environment());
  }
  int Calls(FrameType type) const {
    return static_cast<int>(std::ranges::count(transport_->calls, type));
  }

  const pir::Engine& engine_ =
      **std::ranges::find_if(pir::sets::SetsFamily().engines(),
                             [](const pir::Engine* engine) { return engine->name() == "piano"; });
  World world_;
  Device device_{&world_};
  const std::string directory_ = FreshDirectory();
  const std::string path_ = directory_ + "/session";
  const client::AnchorDirectory place_ = client::AnchorDirectory::Below(directory_);
  std::unique_ptr<shoald::PirService> service_;
  std::unique_ptr<DirectTransport> transport_;
  std::optional<client::Deployment> deployment_;
  std::unique_ptr<client::SessionFile> store_;
  std::unique_ptr<client::EngineClient> client_;
  int queries_left_ = 1 << 30;
  std::function<void(Bytes&)> spoil_;
  std::function<void(Frame&)> spoil_delta_;
};

TEST_F(PianoSim, KeysAreFoundAndOthersProvedAbsent) {
  // Cut off again and again.
  queries_left_ = 2;
  int processes = 0;
  while (!Open().ok()) {
    ASSERT_LT(++processes, 100);
    EXPECT_FALSE(client_->prepared());
  }
  EXPECT_GT(processes, 2);
  queries_left_ = 1 << 30;
  uint64_t budget = *client_->budget();
  for (int process = 0; process < 3; ++process) {
    SHOAL_ASSERT_OK(Open());
    EXPECT_EQ(Calls(FrameType::kPirQuery), 0) << "prepared once";
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-7", "nobody", "key-10", "key-7"}));
    ASSERT_EQ(results.size(), 4u);
    EXPECT_EQ(ToString(results[0].value), "value 7");
    EXPECT_EQ(results[1].outcome, Lookup::Outcome::kAbsent);
    EXPECT_EQ(ToString(results[2].value), "value 10 1");
    EXPECT_EQ(ToString(results[3].value), "value 7");
    // A query for every key, also for one that comes twice.
    EXPECT_EQ(Calls(FrameType::kPirQuery), 4);
    EXPECT_TRUE(transport_->hung_up);
    budget -= 4;
    EXPECT_EQ(*client_->budget(), budget);
  }
}

TEST_F(PianoSim, ALostAnswerAndAnEpoch) {
  SHOAL_ASSERT_OK(Open());
  const uint64_t budget = *client_->budget();
  transport_->queries_left = 1;
  EXPECT_THAT(LookUp({"key-7", "key-20"}), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
  // The second query is spent, and is sent again to the next epoch.
  SHOAL_ASSERT_OK(service_->Reload(Sign(2)));
  SHOAL_ASSERT_OK(Open());
  EXPECT_TRUE(client_->hint_fetch().by_delta);
  EXPECT_EQ(Calls(FrameType::kPirQuery), 1);
  EXPECT_EQ(*client_->budget(), budget - 2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-20", "key-7", "key-299"}));
  EXPECT_EQ(ToString(results[0].value), "value 20 2");
  EXPECT_EQ(ToString(results[1].value), "value 7");
  EXPECT_EQ(ToString(results[2].value), "value 299");
  // The query of a client that has not noticed yet.
  SHOAL_ASSERT_OK(service_->Reload(Sign(3)));
  EXPECT_THAT(LookUp({"key-20"}), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch"));
  // An epoch that no delta leads to.
  Serve(5);
  SHOAL_ASSERT_OK(Open());
  EXPECT_FALSE(client_->hint_fetch().by_delta);
  EXPECT_EQ(*client_->budget(), budget);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto last, LookUp({"key-20"}));
  EXPECT_EQ(ToString(last[0].value), "value 20 5");
}

// What the server sees depends on the number of keys alone, whatever it answers.
TEST_F(PianoSim, SpoiltAnswersAreFoundAndNotToldOf) {
  SHOAL_ASSERT_OK(Open());
  std::vector<FrameType> calls;
  std::vector<size_t> bytes;
  for (const bool spoilt : {false, true}) {
    transport_->calls.clear();
    transport_->call_bytes.clear();
    // Another bit each time: an error stays in a hint, and the same one again would undo it.
    int answers = 0;
    if (spoilt) {
      transport_->spoil = [&answers](Bytes& answer) {
        const auto bit = static_cast<uint8_t>(1u << answers++ % 8);
        answer[7] ^= bit;
        answer[answer.size() / 2 + 7] ^= bit;
      };
    }
    for (int lookup = 0; lookup < 3; ++lookup) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-7", "key-8"}));
      for (const Lookup& result : results) {
        EXPECT_EQ(result.outcome, spoilt ? Lookup::Outcome::kFailed : Lookup::Outcome::kFound);
      }
    }
    if (spoilt) {
      EXPECT_EQ(transport_->calls, calls);
      EXPECT_EQ(transport_->call_bytes, bytes);
    }
    calls = transport_->calls;
    bytes = transport_->call_bytes;
  }
  // A server that lies while the table is read is found at once, and the session goes on.
  for (const char* suffix : {"", ".guard", ".lock"}) unlink((path_ + suffix).c_str());
  spoil_ = [](Bytes& answer) { answer[0] ^= 1; };
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, "signed"));
  spoil_ = nullptr;
  SHOAL_ASSERT_OK(Open());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-7"}));
  EXPECT_EQ(ToString(results[0].value), "value 7");
}

// A delta changes every hint that holds a row of it: one of the server's own would mark a client.
TEST_F(PianoSim, ADeltaThatNobodySignedChangesNothing) {
  SHOAL_ASSERT_OK(Open());
  const uint64_t budget = *client_->budget();
  SHOAL_ASSERT_OK(LookUp({"key-20"}).status());
  SHOAL_ASSERT_OK(service_->Reload(Sign(2)));
  client_.reset();
  store_.reset();
  const auto kept = ReadPrivateFile(path_, 1 << 30);
  SHOAL_ASSERT_OK(kept.status());
  // Every answer but the first one, which says how long the delta is, has a piece of it.
  const auto of_head = [](Frame& frame, const auto& change) {
    wire::GetPirDeltaResponse response;
    SHOAL_CHECK(wire::ParseFrame(frame, FrameType::kGetPirDelta, response).ok());
    change(response);
    frame = wire::MakeFrame(FrameType::kGetPirDelta, response, std::move(frame.bulk));
  };
  const std::vector<std::function<void(Frame&)>> lies = {
      // A row's number, its difference, the last byte.
      [](Frame& frame) {
        if (!frame.bulk.empty()) frame.bulk[0] ^= 1;
      },
      [](Frame& frame) {
        if (!frame.bulk.empty()) frame.bulk[9] ^= 1;
      },
      [](Frame& frame) {
        if (!frame.bulk.empty()) frame.bulk.back() ^= 0x80;
      },
      // Cut off, by what it says or not.
      [](Frame& frame) {
        if (!frame.bulk.empty()) frame.bulk.pop_back();
      },
      [&](Frame& frame) {
        of_head(frame, [](wire::GetPirDeltaResponse& head) { head.set_total_bytes(0); });
        frame.bulk.clear();
      },
      // To another setup.
      [&](Frame& frame) {
        of_head(frame, [](wire::GetPirDeltaResponse& head) {
          head.mutable_to()->mutable_setup()->set_epoch(3);
        });
      },
      [&](Frame& frame) {
        of_head(frame, [](wire::GetPirDeltaResponse& head) {
          head.mutable_to()->set_delta_digest(std::string(32, 'x'));
        });
      }};
  for (size_t lie = 0; lie < lies.size(); ++lie) {
    SCOPED_TRACE(lie);
    spoil_delta_ = lies[lie];
    const absl::Status refused = Open();
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kDataLoss, "is unchanged"));
    // A server that could have hints made anew whenever it likes could spoil them until it hits.
    EXPECT_EQ(std::string(refused.message()).find("prepare"), std::string::npos);
    EXPECT_EQ(Calls(FrameType::kPirQuery), 0);
    store_.reset();
    EXPECT_EQ(*ReadPrivateFile(path_, 1 << 30), *kept);
  }
  spoil_delta_ = nullptr;
  SHOAL_ASSERT_OK(Open());
  EXPECT_TRUE(client_->hint_fetch().by_delta);
  EXPECT_EQ(*client_->budget(), budget - 1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-20", "key-7"}));
  EXPECT_EQ(ToString(results[0].value), "value 20 2");
  EXPECT_EQ(ToString(results[1].value), "value 7");
}

// A server that has no delta which is worth it costs a preparation, as one without any does.
TEST_F(PianoSim, ADeltaAsLongAsTheTableIsNotFetched) {
  SHOAL_ASSERT_OK(Open());
  SHOAL_ASSERT_OK(LookUp({"key-20"}).status());
  SHOAL_ASSERT_OK(service_->Reload(Sign(2)));
  spoil_delta_ = [](Frame& frame) {
    wire::GetPirDeltaResponse head;
    SHOAL_CHECK(wire::ParseFrame(frame, FrameType::kGetPirDelta, head).ok());
    head.set_total_bytes(uint64_t{1} << 62);
    frame = wire::MakeFrame(FrameType::kGetPirDelta, head, std::move(frame.bulk));
  };
  SHOAL_ASSERT_OK(Open());
  EXPECT_EQ(Calls(FrameType::kGetPirDelta), 1);
  EXPECT_FALSE(client_->hint_fetch().by_delta);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-20"}));
  EXPECT_EQ(ToString(results[0].value), "value 20 2");
}

TEST_F(PianoSim, ASessionThatIsSpentSaysSo) {
  SHOAL_ASSERT_OK(Open());
  std::vector<std::string> keys(*client_->budget() + 1, "key-1");
  EXPECT_THAT(LookUp(keys), StatusIs(absl::StatusCode::kResourceExhausted, "nothing was sent"));
  keys.pop_back();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp(keys));
  EXPECT_EQ(ToString(results.back().value), "value 1");
  EXPECT_EQ(client_->budget(), 0u);
  SHOAL_ASSERT_OK(Open());
  EXPECT_THAT(LookUp({"key-1"}), StatusIs(absl::StatusCode::kResourceExhausted, "0 queries"));
}

// An engine of two roles at two parties, each of which has a service of its own.
class PairSim : public ::testing::TestWithParam<const pir::Engine*> {
 protected:
  const pir::Engine& engine() const { return *GetParam(); }
  void Serve(const std::shared_ptr<const table::Table>& table) {
    auto service =
        shoald::PirService::Create(&world_.roster(), world_.SignSetups(table, {&engine()}),
                                   {.engines = {&engine()}, .pool = &world_.pool()});
    SHOAL_ASSERT_OK(service.status());
    services_.push_back(*std::move(service));
    transports_.push_back(std::make_unique<DirectTransport>(&world_, services_.back().get()));
  }
  void FetchDeployment() {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto deployment,
                               client::Deployment::Fetch(*transports_[0], world_.parties().pinned(),
                                                         device_.state, kNowS));
    deployment_.emplace(std::move(deployment));
  }
  // The session on disk, as after a start of the process; before the first time there is none.
  void OpenClient() {
    if (path_.empty()) {
      // A place of its own: devices of different tests draw the same names.
      const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
      anchors_ = absl::StrCat(::testing::TempDir(), "/", engine().name(), "-", test->line());
      path_ = anchors_ + ".session";
      for (const char* suffix : {"", ".guard", ".lock"}) unlink((path_ + suffix).c_str());
      mkdir(anchors_.c_str(), 0700);
    }
    client_.reset();
    store_.reset();
    SHOAL_ASSERT_OK_AND_ASSIGN(
        store_, client::SessionFile::Open(path_, {1}, client::AnchorDirectory::Below(anchors_),
                                          device_.random));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        client_, client::EngineClient::Create(
                     &*deployment_, {transports_[0].get(), transports_[1].get()},
                     {.engine = &engine(), .store = store_.get()}, device_.Environment()));
    for (const auto& transport : transports_) transport->calls.clear();
  }
  absl::StatusOr<std::vector<Lookup>> LookUp(const Texts& keys) {
    std::vector<Bytes> bytes;
    for (const std::string& key : keys) bytes.push_back(ToBytes(AsBytes(key)));
    return client::LookUp(*deployment_, *client_, bytes, device_.Environment());
  }
  std::vector<size_t> Calls() const {
    return {transports_[0]->calls.size(), transports_[1]->calls.size()};
  }

  World world_;
  Device device_{&world_};
  std::vector<std::unique_ptr<shoald::PirService>> services_;
  std::vector<std::unique_ptr<DirectTransport>> transports_;
  std::optional<client::Deployment> deployment_;
  std::string path_, anchors_;
  std::unique_ptr<client::SessionFile> store_;
  std::unique_ptr<client::EngineClient> client_;
};
INSTANTIATE_TEST_SUITE_P(Engines, PairSim,
                         ::testing::Values(&pir::sets::TreePir(), &pir::sets::SinglePass()),
                         [](const auto& of) { return std::string(of.param->name()); });

// Hints once, then one query to each server for a key; a process that ends between a query and its
// answers sends the query again first.
TEST_P(PairSim, AsksTwoPartiesAndGoesOnAfterARestart) {
  const auto table = world_.MakeTable(1, 100, 128);
  Serve(table);
  Serve(table);
  FetchDeployment();
  for (int run = 0; run < 4; ++run) {
    OpenClient();
    SHOAL_ASSERT_OK(client_->Prepare());
    // One setup each; all hints of so small a table come with one answer. After the run that was
    // cut off, a query to each again.
    EXPECT_EQ(Calls(), (std::vector<size_t>{run == 0 || run == 3 ? 2u : 1u, run == 3 ? 2u : 1u}));
    if (run == 2) {
      transports_[1]->queries_left = 1;
      EXPECT_THAT(LookUp({"key-7", "nobody", "key-10"}),
                  StatusIs(absl::StatusCode::kUnavailable, "cut off"));
      transports_[1]->queries_left = 1 << 30;
      continue;
    }
    const std::vector<size_t> before = Calls();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-7", "nobody", "key-10"}));
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(ToString(results[0].value), "value 7");
    EXPECT_EQ(results[1].outcome, Lookup::Outcome::kAbsent);
    EXPECT_EQ(ToString(results[2].value), "value 10 1");
    EXPECT_EQ(Calls(), (std::vector<size_t>{before[0] + 3, before[1] + 3}));
  }
}

// A new epoch is followed by what changed, and the query whose answers were lost is sent again in
// it: the same bytes behind the setup's id.
TEST_P(PairSim, ALostAnswerAndAnEpoch) {
  // One value changes: a delta of a few rows.
  const auto table = [&](uint64_t epoch) {
    const auto value = [&](size_t i) {
      return absl::StrCat("value ", i, i == 20 ? absl::StrCat(" ", epoch) : "");
    };
    return world_.Sign(table::testing::Records(2000, Layout::kHashed, value), epoch, 128,
                       /*dense=*/false);
  };
  const auto reload = [&](uint64_t epoch) {
    const shoald::ServedTable next = world_.SignSetups(table(epoch), {&engine()});
    for (const auto& service : services_) SHOAL_ASSERT_OK(service->Reload(next));
  };
  const auto first = table(1);
  Serve(first);
  Serve(first);
  FetchDeployment();
  OpenClient();
  SHOAL_ASSERT_OK(client_->Prepare());
  transports_[1]->queries_left = 1;
  EXPECT_THAT(LookUp({"key-7", "key-20"}), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
  transports_[1]->queries_left = 1 << 30;
  const std::vector<Bytes> lost = {transports_[0]->last_query, transports_[1]->last_query};
  // What `shoal prepare` looks at: a query waits, and yet nothing more is to be prepared.
  OpenClient();
  SHOAL_ASSERT_OK(client_->Open());
  EXPECT_FALSE(client_->prepared());
  EXPECT_EQ(client_->progress().done, client_->progress().total);
  EXPECT_EQ(client_->budget(), std::nullopt);
  reload(2);
  FetchDeployment();
  OpenClient();
  SHOAL_ASSERT_OK(client_->Prepare());
  EXPECT_TRUE(client_->hint_fetch().by_delta);
  EXPECT_EQ(transports_[0]->calls, (std::vector{FrameType::kGetPirSetup, FrameType::kGetPirDelta,
                                                FrameType::kGetPirDelta, FrameType::kPirQuery}));
  EXPECT_EQ(transports_[1]->calls, (std::vector{FrameType::kGetPirSetup, FrameType::kPirQuery}));
  for (size_t server = 0; server < 2; ++server) {
    const Bytes& again = transports_[server]->last_query;
    EXPECT_NE(again, lost[server]) << "another setup's id";
    EXPECT_EQ(ToBytes(BytesView(again).subspan(sizeof(Digest))),
              ToBytes(BytesView(lost[server]).subspan(sizeof(Digest))));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-20", "key-7", "nobody"}));
  EXPECT_EQ(ToString(results[0].value), "value 20 2");
  EXPECT_EQ(ToString(results[1].value), "value 7");
  EXPECT_EQ(results[2].outcome, Lookup::Outcome::kAbsent);
  // A client that has not noticed the next one yet.
  reload(3);
  EXPECT_THAT(LookUp({"key-20"}), StatusIs(absl::StatusCode::kFailedPrecondition, "another setup"));
  FetchDeployment();
  OpenClient();
  SHOAL_ASSERT_OK(client_->Prepare());
  EXPECT_TRUE(client_->hint_fetch().by_delta);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto last, LookUp({"key-20"}));
  EXPECT_EQ(ToString(last[0].value), "value 20 3");
}

// Two servers that state different setups are asked for nothing, and nothing is spent.
TEST_P(PairSim, TwoServersMustStateTheSame) {
  const auto first = world_.MakeTable(1, 100, 128), second = world_.MakeTable(2, 100, 128);
  Serve(first);
  Serve(second);
  FetchDeployment();
  for (const bool swapped : {false, true}) {
    pir::testing::MemoryStore store;
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto client,
        client::EngineClient::Create(
            &*deployment_, {transports_[swapped].get(), transports_[!swapped].get()},
            {.engine = &engine(), .store = &store}, device_.Environment()));
    EXPECT_THAT(client->Prepare(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                            "nothing is asked until both serve the same"));
    EXPECT_TRUE(store.disk().state.empty());
  }
  for (const auto& transport : transports_) {
    for (const FrameType call : transport->calls) EXPECT_EQ(call, FrameType::kGetPirSetup);
  }
}

// A stranger who asks for hints all the time gets its share of the server's time, and others go on.
TEST_P(PairSim, HintsForOneAddressAreLimited) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto service,
      shoald::PirService::Create(
          &world_.roster(), world_.SignSetups(world_.MakeTable(1, 100, 128), {&engine()}),
          {.engines = {&engine()},
           .pool = &world_.pool(),
           .heavy = {.seconds_per_hour = 1e-9, .waiting = 8, .waiting_of_one = 2}}));
  const std::string name(engine().name());
  wire::GetPirSetupRequest ask;
  ask.set_engine(name);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Frame frame,
                             CallService(*service, wire::MakeFrame(FrameType::kGetPirSetup, ask)));
  wire::GetPirSetupResponse setup;
  SHOAL_ASSERT_OK(wire::ParseFrame(frame, FrameType::kGetPirSetup, setup));
  const Bytes id = ToBytes(pir::SetupId(setup.setup().setup()));
  const auto call = [&](const char* role, uint32_t kind, size_t bytes, const Origin& from) {
    wire::PirQueryRequest query;
    query.set_engine(name);
    query.set_role(role);
    query.set_kind(kind);
    query.set_count(1);
    Bytes body = id;
    body.resize(bytes);
    return CallService(*service, wire::MakeFrame(FrameType::kPirQuery, query, body), from).status();
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const pir::Sizes sizes, engine().SizesOf(setup.setup().setup()));
  // A seed and a number.
  const bool tree = &engine() == &pir::sets::TreePir();
  const size_t hints = id.size() + (tree ? pir::sets::kTreeSeedBytes : Seed::size()) + 4;
  const size_t one_query = sizes.query_bytes / 2;
  ASSERT_TRUE(engine().IsHeavy(pir::Role::kOffline, 1));
  const Origin stranger = AddressBlock(MappedIpv4({192, 0, 2, 1})),
               other = AddressBlock(MappedIpv4({192, 0, 2, 2}));
  SHOAL_EXPECT_OK(call("offline", 1, hints, stranger));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(call("offline", 1, hints, stranger),
                StatusIs(absl::StatusCode::kResourceExhausted, "this address has taken its"));
  }
  // Queries of the same address are not hints, and others' hints are theirs.
  SHOAL_EXPECT_OK(call("online", 0, one_query, stranger));
  SHOAL_EXPECT_OK(call("offline", 1, hints, other));
  // The online server makes none for anybody.
  EXPECT_THAT(call("online", 1, hints, other), StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

// Two servers, and a client that keeps nothing.
class StatelessPairSim : public PairSim {};
INSTANTIATE_TEST_SUITE_P(Engines, StatelessPairSim, ::testing::Values(&pir::pair::Pair()),
                         [](const auto& of) { return std::string(of.param->name()); });

// What is sent, and to whom, depends on the number of keys alone, whatever comes back; and what
// comes back of a server that lies is no value.
TEST_P(StatelessPairSim, ALieOfEitherServerIsFoundAndNotToldOf) {
  const auto table = world_.MakeTable(1, 100, 128);
  Serve(table);
  Serve(table);
  FetchDeployment();
  std::set<std::vector<size_t>> calls;
  std::set<size_t> sent;
  for (const int liar : {-1, 0, 1}) {
    for (const Texts& keys : {Texts{"key-7", "key-8"}, Texts{"nobody", "key-99"}}) {
      OpenClient();
      SHOAL_ASSERT_OK(client_->Prepare());
      if (liar >= 0) {
        transports_[liar]->spoil = [](Bytes& answer) {
          answer[7] ^= 1;
          answer[answer.size() / 2 + 7] ^= 1;
        };
      }
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp(keys));
      EXPECT_EQ(results[1].outcome, liar < 0 ? Lookup::Outcome::kFound : Lookup::Outcome::kFailed);
      calls.insert(Calls());
      for (const auto& transport : transports_) {
        sent.insert(transport->last_query.size());
        transport->spoil = nullptr;
      }
    }
  }
  EXPECT_EQ(calls.size(), 1u);
  EXPECT_EQ(sent.size(), 1u);
}

// A client that has not noticed the next epoch is told so, and one that has goes on.
TEST_P(StatelessPairSim, EpochsAreFollowed) {
  const auto first = world_.MakeTable(1, 100, 128);
  Serve(first);
  Serve(first);
  FetchDeployment();
  OpenClient();
  SHOAL_ASSERT_OK(client_->Prepare());
  const shoald::ServedTable next = world_.SignSetups(world_.MakeTable(2, 100, 128), {&engine()});
  SHOAL_ASSERT_OK(services_[1]->Reload(next));
  EXPECT_THAT(LookUp({"key-10"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "this server has epoch 2"));
  // One of them is behind: nothing is asked.
  FetchDeployment();
  OpenClient();
  EXPECT_FALSE(client_->Prepare().ok());
  EXPECT_EQ(Calls(), (std::vector<size_t>{1, 1}));
  SHOAL_ASSERT_OK(services_[0]->Reload(next));
  FetchDeployment();
  OpenClient();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-10", "nobody"}));
  EXPECT_EQ(ToString(results[0].value), "value 10 2");
  EXPECT_EQ(results[1].outcome, Lookup::Outcome::kAbsent);
}

// One of permuted's servers lies about one record of an answer, whichever: no value comes of it,
// whatever row was asked for, and what the servers see next is the same query again.
class SinglePassSim : public PairSim {};
INSTANTIATE_TEST_SUITE_P(Engines, SinglePassSim, ::testing::Values(&pir::sets::SinglePass()),
                         [](const auto& of) { return std::string(of.param->name()); });

TEST_P(SinglePassSim, RecordsThatNobodySignedAreFoundAndTheQueryIsSentAgain) {
  const auto table = world_.MakeTable(1, 100, 128);
  Serve(table);
  Serve(table);
  FetchDeployment();
  OpenClient();
  SHOAL_ASSERT_OK(client_->Prepare());
  const size_t record_bytes = deployment_->manifest().answer_bytes();
  for (size_t i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    DirectTransport& liar = *transports_[i % 2];
    liar.spoil = [&](Bytes& bulk) { bulk[i * record_bytes % bulk.size()] ^= 1; };
    OpenClient();
    EXPECT_THAT(LookUp({absl::StrCat("key-", 7 * i), "nobody"}),
                StatusIs(absl::StatusCode::kDataLoss, "the parties have not signed"));
    // One setup and one query each; not the second key's.
    EXPECT_EQ(Calls(), (std::vector<size_t>{2, 2}));
    // As long as it lies nothing else is asked.
    OpenClient();
    EXPECT_THAT(LookUp({"key-1"}), StatusIs(absl::StatusCode::kDataLoss, "have not signed"));
    EXPECT_EQ(Calls(), (std::vector<size_t>{i % 2 == 0 ? 2u : 1u, 2}));
    liar.spoil = nullptr;
    OpenClient();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp({"key-1", "nobody", "key-10"}));
    EXPECT_EQ(Calls(), (std::vector<size_t>{5, 5}));
    EXPECT_EQ(ToString(results[0].value), "value 1");
    EXPECT_EQ(results[1].outcome, Lookup::Outcome::kAbsent);
    EXPECT_EQ(ToString(results[2].value), "value 10 1");
  }
}

// A server as another one, and an engine of such servers, for a test to change. Without a hint.
class ServerAround : public pir::Server {
 public:
  explicit ServerAround(std::unique_ptr<pir::Server> server) : server_(std::move(server)) {}
  const wire::PirSetup& setup() const override { return server_->setup(); }
  uint64_t max_request_bytes() const override { return server_->max_request_bytes(); }
  std::vector<absl::StatusOr<Bytes>> Answer(
      pir::Role role, std::span<const pir::RequestView> requests) const override {
    return server_->Answer(role, requests);
  }
  absl::StatusOr<double> RefreshShare(const pir::Content& content,
                                      std::span<const uint64_t> changed) const override {
    return server_->RefreshShare(content, changed);
  }
  absl::StatusOr<std::optional<pir::Delta>> Refresh(const pir::Content& content,
                                                    std::span<const uint64_t> changed) override {
    return server_->Refresh(content, changed);
  }

 private:
  const std::unique_ptr<pir::Server> server_;
};
class EngineAround : public pir::Engine {
 public:
  explicit EngineAround(const pir::Engine& of) : of_(of) {}
  absl::string_view name() const override { return of_.name(); }
  std::span<const pir::Role> roles() const override { return of_.roles(); }
  bool keeps_state() const override { return of_.keeps_state(); }
  bool IsHeavy(pir::Role role, uint32_t kind) const override { return of_.IsHeavy(role, kind); }
  absl::StatusOr<wire::PirSetup> ShapeOf(const pir::Content& content,
                                         const pir::ServerOptions& options) const override {
    return of_.ShapeOf(content, options);
  }
  absl::StatusOr<pir::Sizes> SizesOfShape(const wire::PirSetup& shape) const override {
    return of_.SizesOfShape(shape);
  }
  pir::Work WorkOf(const wire::PirSetup& shape, double together) const override {
    return of_.WorkOf(shape, together);
  }
  absl::StatusOr<std::unique_ptr<pir::Server>> CreateServer(
      const pir::Content& content, pir::ServerOptions options) const override {
    return of_.CreateServer(content, std::move(options));
  }
  absl::StatusOr<std::unique_ptr<pir::Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const pir::SessionOptions& options) const override {
    return of_.OpenSession(setups, options);
  }

 private:
  const pir::Engine& of_;
};

// An engine whose heavy requests go on until they are told to end.
class EndlessServer final : public ServerAround {
 public:
  EndlessServer(std::unique_ptr<pir::Server> server, const std::atomic<bool>* stop)
      : ServerAround(std::move(server)), stop_(stop) {}
  std::vector<absl::StatusOr<Bytes>> Answer(
      pir::Role role, std::span<const pir::RequestView> requests) const override {
    if (requests[0].kind != pir::sets::kTreeHints) return ServerAround::Answer(role, requests);
    begun = true;
    const bool told = shoal::testing::Soon([this] { return stop_->load(); });
    std::vector<absl::StatusOr<Bytes>> answers;
    answers.emplace_back(told ? absl::FailedPreconditionError("told to end")
                              : absl::InternalError("nobody said that it should end"));
    return answers;
  }
  static inline std::atomic<bool> begun = false;

 private:
  const std::atomic<bool>* const stop_;
};
class EndlessEngine final : public EngineAround {
 public:
  EndlessEngine() : EngineAround(pir::sets::TreePir()) {}
  absl::StatusOr<std::unique_ptr<pir::Server>> CreateServer(
      const pir::Content& content, pir::ServerOptions options) const override {
    const std::atomic<bool>* const stop = options.stop_heavy;
    SHOAL_ASSIGN_OR_RETURN(auto server, EngineAround::CreateServer(content, std::move(options)));
    return std::make_unique<EndlessServer>(std::move(server), stop);
  }
};

// A new epoch does not wait for hints that a client is being made.
TEST(EngineSim, ANewEpochEndsWorkOnHints) {
  const EndlessEngine engine;
  World world;
  const auto first = world.MakeTable(1, 100, 128);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto service,
      shoald::PirService::Create(&world.roster(), world.SignSetups(first, {&engine}),
                                 {.engines = {&engine}, .pool = &world.pool()}));
  wire::PirQueryRequest query;
  query.set_engine("treepir");
  query.set_role("offline");
  query.set_kind(pir::sets::kTreeHints);
  query.set_count(1);
  absl::Status status;
  std::thread asks([&] {
    status =
        CallService(*service, wire::MakeFrame(FrameType::kPirQuery, query, Bytes(52))).status();
  });
  EXPECT_TRUE(shoal::testing::Soon([] { return EndlessServer::begun.load(); }));
  SHOAL_EXPECT_OK(service->Reload(world.SignSetups(world.MakeTable(2, 100, 128), {&engine})));
  asks.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "told to end"));
}

// A server whose refresh fails, as one does whose public parts do not suit the content.
class UnrefreshedServer final : public ServerAround {
 public:
  using ServerAround::ServerAround;
  absl::StatusOr<double> RefreshShare(const pir::Content&,
                                      std::span<const uint64_t>) const override {
    return 0.1;
  }
  absl::StatusOr<std::optional<pir::Delta>> Refresh(const pir::Content&,
                                                    std::span<const uint64_t>) override {
    return absl::InvalidArgumentError("too noisy");
  }
};
class UnrefreshedEngine final : public EngineAround {
 public:
  UnrefreshedEngine() : EngineAround(pir::rlwe::Hintless()) {}
  absl::StatusOr<std::unique_ptr<pir::Server>> CreateServer(
      const pir::Content& content, pir::ServerOptions options) const override {
    ++made;
    SHOAL_ASSIGN_OR_RETURN(auto server, EngineAround::CreateServer(content, std::move(options)));
    return std::make_unique<UnrefreshedServer>(std::move(server));
  }
  mutable std::atomic<int> made = 0;
};

// A server that cannot be refreshed is made anew, by the parties who sign and by those who serve.
TEST(EngineSim, AServerThatCannotBeRefreshedIsMadeAnew) {
  const UnrefreshedEngine engine;
  World world;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto service,
      shoald::PirService::Create(&world.roster(),
                                 world.SignSetups(world.MakeTable(1, 100, 128), {&engine}),
                                 {.engines = {&engine}, .pool = &world.pool()}));
  auto next = world.SignSetups(world.MakeTable(2, 100, 128), {&engine});
  const std::string setup = next.setups.at(&engine).setup().SerializeAsString();
  const int made = engine.made;
  SHOAL_ASSERT_OK(service->Reload(std::move(next)));
  EXPECT_EQ(engine.made, made + 1);
  // What it answers is of the new setup.
  EXPECT_EQ(SignedSetupOf(*service, "hintless").setup().SerializeAsString(), setup);
}

// A batch over chunks through the service is what the engine's server answers.
TEST(EngineSim, BatchesOverChunksAreServed) {
  World world;
  const auto table = world.MakeTable(1, 300, 256);
  world.Serve(table);
  const wire::PirSetup setup = SetupOf(world.service());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto server, pir::lwe::SimplePir().CreateServer(
                                                    pir::ContentOf(table->AsPrevious()), {}));
  const uint64_t each = pir::lwe::SimplePir().SizesOf(setup)->query_bytes;
  const Digest id = pir::SetupId(setup);
  Bytes body;
  for (uint8_t i = 0; i < 4; ++i) {
    AppendLe<uint64_t>(body, setup.epoch());
    Append(body, id);
    body.resize((i + 1) * each, static_cast<uint8_t>(i + 3));
  }
  wire::PirQueryRequest request;
  request.set_engine("simplepir");
  request.set_count(4);
  const pir::RequestView whole = {0, 4, body}, chunks = {1, 4, body};
  for (const pir::RequestView& view : {whole, chunks}) {
    request.set_kind(view.kind);
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const Frame frame,
        CallService(world.service(), wire::MakeFrame(FrameType::kPirQuery, request, body)));
    EXPECT_EQ(frame.bulk, *server->Answer(pir::Role::kSingle, {&view, 1})[0]);
  }
  request.set_kind(2);
  EXPECT_THAT(CallService(world.service(), wire::MakeFrame(FrameType::kPirQuery, request, body)),
              StatusIs(absl::StatusCode::kInvalidArgument, "kind 2"));
}

TEST(EngineSim, DenseTables) {
  World world;
  world.Serve(world.MakeTable(1, 100, 64, /*dense=*/true));
  Device device(&world);
  SHOAL_ASSERT_OK(device.Open());
  EXPECT_EQ(device.Results({"0", "99", "100", "5000000"}),
            (Texts{"found value 0 1", "found value 99", "absent", "absent"}));
  EXPECT_THAT(device.LookUp({"07"}), StatusIs(absl::StatusCode::kInvalidArgument, "key 1"));
}

// The bytes that are sent depend on the number of keys alone, not on whether they exist, share a
// row, or are asked twice.
TEST(EngineSim, TrafficTellsTheNumberOfKeysAlone) {
  World world;
  world.Serve(world.MakeTable(1, 100, 64, /*dense=*/true));
  std::vector<size_t> first;
  for (const Texts& keys : {Texts{"1", "2", "3"}, Texts{"5", "5", "5"}, Texts{"700", "800", "9"}}) {
    Device device(&world);
    SHOAL_ASSERT_OK(device.Open("", 4));
    ASSERT_EQ(device.Results(keys).size(), 3u);
    if (first.empty()) first = device.transport.call_bytes;
    EXPECT_EQ(device.transport.call_bytes, first);
  }
  // One key is padded to as many.
  Device one(&world), more(&world);
  SHOAL_ASSERT_OK(one.Open("", 4));
  ASSERT_EQ(one.Results({"7"}).size(), 1u);
  EXPECT_EQ(one.transport.call_bytes, first);
  SHOAL_ASSERT_OK(more.Open("", 4));
  ASSERT_EQ(more.Results({"1", "2", "3", "4", "5"}).size(), 5u);
  EXPECT_NE(more.transport.call_bytes, first);
  Device device(&world);
  EXPECT_FALSE(device.Open("", 0).ok());
}

// A server spoils answers: the client gives no wrong value, makes no second request and no
// complaint on the wire, and has the same traffic for every key as with good answers.
TEST(EngineSim, SpoiltAnswersAreFoundAndNotToldOf) {
  World world;
  world.Serve(world.MakeTable(1, 300, 256));
  Device good(&world), bad(&world);
  SHOAL_ASSERT_OK(good.Open());
  SHOAL_ASSERT_OK(bad.Open());
  const Texts keys = {"key-1", "key-2", "nobody"};
  EXPECT_EQ(good.Results(keys), (Texts{"found value 1", "found value 2", "absent"}));
  bad.transport.spoil = [](Bytes& answers) {
    for (size_t i = 0; i + 1 < answers.size(); i += 3) answers[i] ^= 0x80;
  };
  EXPECT_EQ(bad.Results(keys), (Texts{"failed", "failed", "failed"}));
  EXPECT_EQ(bad.transport.calls, good.transport.calls);
  EXPECT_EQ(bad.transport.call_bytes, good.transport.call_bytes);
  // An answer for another row does not verify.
  bad.transport.spoil = [](Bytes& answers) {
    const size_t each = answers.size() / 2;
    std::swap_ranges(answers.begin(), answers.begin() + each, answers.begin() + each);
  };
  EXPECT_EQ(bad.Results({"key-1", "key-2"}), (Texts{"failed", "failed"}));
  bad.transport.spoil = [](Bytes& answers) { answers.pop_back(); };
  EXPECT_THAT(bad.LookUp(keys), StatusIs(absl::StatusCode::kDataLoss, "answers"));
}

// The same of the engines over rings, and over an epoch.
TEST(EngineSim, RingEnginesAreServedAndSpoiltAnswersFound) {
  for (const pir::Engine* engine : {&pir::rlwe::SmallPir(), &pir::rlwe::Hintless()}) {
    World world;
    world.Serve(world.MakeTable(1, 300, 64, /*dense=*/true), nullptr, engine);
    Device good(&world, engine), bad(&world, engine);
    SHOAL_ASSERT_OK(good.Open());
    SHOAL_ASSERT_OK(bad.Open());
    const Texts keys = {"20", "299", "300"};
    EXPECT_EQ(good.Results(keys), (Texts{"found value 20 1", "found value 299", "absent"}));
    bad.transport.spoil = [](Bytes& answers) {
      for (size_t i = 0; i + 1 < answers.size(); i += 3) answers[i] ^= 0x80;
    };
    const Texts spoilt = bad.Results(keys);
    EXPECT_EQ(spoilt[0], "failed");
    EXPECT_EQ(spoilt[1], "failed");
    EXPECT_EQ(bad.transport.calls, good.transport.calls);
    EXPECT_EQ(bad.transport.call_bytes, good.transport.call_bytes);
    bad.transport.spoil = [](Bytes& answers) { answers.pop_back(); };
    EXPECT_THAT(bad.LookUp(keys), StatusIs(absl::StatusCode::kDataLoss, "answers"));

    SHOAL_ASSERT_OK(world.service().Reload(
        world.SignSetups(world.MakeTable(2, 300, 64, /*dense=*/true), {engine})));
    EXPECT_THAT(good.LookUp({"20"}), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch 1"));
    SHOAL_ASSERT_OK(good.Open());
    EXPECT_EQ(good.Results(keys), (Texts{"found value 20 2", "found value 299", "absent"}));
  }
}

// As with the chain: the whole lookup fails, and no value is handed on.
TEST(EngineSim, ATableThatExpiresMeanwhileIsNotBelieved) {
  World world;
  world.Serve(world.MakeTable(1, 300, 256));
  Device device(&world);
  SHOAL_ASSERT_OK(device.Open());
  device.transport.spoil = [&](Bytes&) { device.clock.now_s += 2 * 24 * 3600; };
  EXPECT_THAT(device.LookUp({"key-7"}), StatusIs(absl::StatusCode::kFailedPrecondition, "expired"));
  EXPECT_TRUE(device.transport.hung_up);
  device.transport.spoil = nullptr;
  device.clock.now_s = kNowS;
  EXPECT_EQ(device.Results({"key-7"}), (Texts{"found value 7"}));
}

TEST(EngineSim, AHintThatWasCutOffIsContinued) {
  World world;
  world.Serve(world.MakeTable(1, 2000, 1024));  // a hint of 2.7 MB
  const std::string path = FreshPath("cut-off");
  Device device(&world);
  device.transport.pieces_left = 1;
  EXPECT_THAT(device.Open(path), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
  device.transport.pieces_left = 1 << 30;
  SHOAL_ASSERT_OK(device.Open(path));
  EXPECT_EQ(device.client->hint_fetch().resumed_bytes, 1u << 20);
  EXPECT_EQ(device.client->hint_fetch().received_bytes,
            device.client->costs().bytes.hint_bytes - (1 << 20));
  EXPECT_EQ(device.Results({"key-77"}), (Texts{"found value 77"}));
  // The complete hint is there now.
  Device again(&world);
  again.transport.pieces_left = 0;
  SHOAL_ASSERT_OK(again.Open(path));
  EXPECT_EQ(again.client->hint_fetch().received_bytes, 0u);
  EXPECT_EQ(again.Results({"key-78"}), (Texts{"found value 78"}));
  // A hint that is damaged on disk is fetched anew.
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string hint, ReadFile(path + ".hint"));
  hint[1000] ^= 1;
  SHOAL_ASSERT_OK(WriteFileAtomically(path + ".hint", AsBytes(hint), FileMode::kPublic));
  Device third(&world);
  SHOAL_ASSERT_OK(third.Open(path));
  EXPECT_EQ(third.client->hint_fetch().resumed_bytes, 0u);
  EXPECT_EQ(third.Results({"key-79"}), (Texts{"found value 79"}));
}

// The table's next epoch: a client that is in the middle of a lookup gets a clear refusal. A client
// that comes back fetches what changed, which is much less than the hint. Both then read the new
// values.
TEST(EngineSim, ANewEpochIsFetchedAsADelta) {
  World world;
  world.Serve(world.MakeTable(1, 2'000, 128, /*dense=*/true));
  const std::string path = FreshPath("epochs");
  Device asking(&world), back(&world);
  SHOAL_ASSERT_OK(asking.Open());
  SHOAL_ASSERT_OK(back.Open(path));
  EXPECT_EQ(back.Results({"20"}), (Texts{"found value 20 1"}));

  const auto next = world.SignSetups(world.MakeTable(2, 2'000, 128, /*dense=*/true));
  SHOAL_ASSERT_OK(world.service().Reload(next));
  EXPECT_THAT(world.service().Reload(next),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not after"));
  EXPECT_THAT(asking.LookUp({"20"}), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch 1"));
  for (int time = 0; time < 2; ++time) {
    SHOAL_ASSERT_OK(back.Open(path));
    EXPECT_EQ(back.Results({"20", "21", "1999", "2000"}),
              (Texts{"found value 20 2", "found value 21", "found value 1999", "absent"}));
    if (time == 0) {
      EXPECT_TRUE(back.client->hint_fetch().by_delta);
      EXPECT_LT(back.client->hint_fetch().received_bytes, back.client->costs().bytes.hint_bytes);
    } else {
      EXPECT_EQ(back.client->hint_fetch().received_bytes, 0u) << "kept on disk";
    }
  }
  EXPECT_GT(back.client->costs().open_seconds, 0);
  // With rows of another size the hint is made anew and fetched completely.
  SHOAL_ASSERT_OK(
      world.service().Reload(world.SignSetups(world.MakeTable(3, 50, 64, /*dense=*/true))));
  SHOAL_ASSERT_OK(back.Open(path));
  EXPECT_FALSE(back.client->hint_fetch().by_delta);
  EXPECT_EQ(back.Results({"20", "50"}), (Texts{"found value 20 3", "absent"}));
}

// In the default, hashed layout, a table that is built with the previous one keeps its keys' rows,
// so that little changes.
TEST(EngineSim, ANewEpochOfAHashedTableIsFetchedAsADelta) {
  World world;
  world.Serve(world.MakeTable(1, 20'000, 512));
  const std::string path = FreshPath("hashed-epochs");
  Device device(&world);
  SHOAL_ASSERT_OK(device.Open(path));
  SHOAL_ASSERT_OK(world.service().Reload(world.SignSetups(world.MakeTable(2, 20'050, 512))));
  SHOAL_ASSERT_OK(device.Open(path));
  EXPECT_TRUE(device.client->hint_fetch().by_delta);
  EXPECT_LT(device.client->hint_fetch().received_bytes,
            device.client->costs().bytes.hint_bytes / 2);
  EXPECT_EQ(device.Results({"key-20", "key-21", "key-19999", "key-20049", "key-20050"}),
            (Texts{"found value 20 2", "found value 21", "found value 19999", "found value 20049",
                   "absent"}));
}

// A server took epochs with fewer and with more rows, and starts again. Clients' hints are still
// valid: the server keeps its shape, which a new server for so many rows would not choose.
TEST(EngineSim, ARestartAfterEpochsKeepsTheHint) {
  World world;
  const std::string directory = ::testing::TempDir() + "/products";
  const auto create = [&](const shoald::ServedTable& table) {
    auto service = shoald::PirService::Create(
        &world.roster(), table,
        {.engines = {&pir::lwe::SimplePir()}, .pool = &world.pool(), .directory = directory});
    SHOAL_CHECK(service.ok());
    return *std::move(service);
  };
  auto service = create(world.SignSetups(world.MakeTable(1, 390, 16, /*dense=*/true)));
  const wire::PirSetup first = SetupOf(*service);
  uint64_t epoch = 1;
  for (uint64_t rows : {100, 450}) {
    const auto table = world.SignSetups(world.MakeTable(++epoch, rows, 16, /*dense=*/true));
    SHOAL_ASSERT_OK(service->Reload(table));
    const wire::PirSetup before = SetupOf(*service);
    EXPECT_EQ(before.rows(), rows);
    EXPECT_EQ(before.columns(), first.columns());
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const wire::PirSetup shape,
        pir::lwe::SimplePir().ShapeOf(pir::ContentOf(table.table->AsPrevious()), {}));
    EXPECT_NE(shape.rows_per_column(), before.rows_per_column()) << "the test shows nothing";
    service.reset();
    service = create(table);
    EXPECT_EQ(SetupOf(*service).SerializeAsString(), before.SerializeAsString());
  }
}

// One engine takes a new table and the other refuses it, as its hint would be too large: the epoch
// before stays in service, and a restart with it uses the files on disk.
TEST(EngineSim, ARefusedEpochLeavesWhatIsKept) {
  World world;
  const std::string directory = ::testing::TempDir() + "/refused-epoch";
  // A byte a row, as DoublePIR's hint is 7.9 MiB for each and for 48 of a signature.
  const auto make = [&](uint64_t epoch, uint32_t row_bytes) {
    const auto value = [&](size_t) { return std::string(row_bytes, 'x'); };
    return world.Sign(table::testing::Records(100, Layout::kDense, value), epoch, row_bytes,
                      /*dense=*/true);
  };
  const std::vector<const pir::Engine*> engines = {&pir::lwe::SimplePir(), &pir::lwe::DoublePir()};
  auto service =
      shoald::PirService::Create(&world.roster(), world.SignSetups(make(1, 1), engines, directory),
                                 {.engines = engines,
                                  .max_hint_bytes = uint64_t{400} << 20,
                                  .pool = &world.pool(),
                                  .directory = directory});
  SHOAL_ASSERT_OK(service.status());
  const auto product = [&] { return *ReadFile(directory + "/simplepir.product"); };
  const std::string before = product();
  const wire::PirSetup setup = SetupOf(**service);
  // The parties allow a larger hint than this server does. It does not come to their digest of it.
  shoald::ServedTable next = world.SignSetups(make(2, 8));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      wire::PirSetup large,
      pir::lwe::DoublePir().ShapeOf(pir::ContentOf(next.table->AsPrevious()), {}));
  large.set_hint_bytes(pir::lwe::DoublePir().SizesOfShape(large)->hint_bytes);
  large.set_hint_digest(std::string(32, 'x'));
  wire::SignedPirSetup allowed;
  *allowed.mutable_setup() = large;
  next.setups[&pir::lwe::DoublePir()] = world.SignByAll(allowed);
  EXPECT_THAT((*service)->Reload(next),
              StatusIs(absl::StatusCode::kResourceExhausted, "doublepir"));
  EXPECT_EQ(SetupOf(**service).SerializeAsString(), setup.SerializeAsString());
  EXPECT_TRUE(product() == before);
}

// Engines beside the chain take an epoch with it or not at all: what the engines refuse does not
// reach the chain, and what the chain refuses is not served.
TEST(EngineSim, AnEpochIsServedOnceItIsCommittedTo) {
  World world;
  const auto make = [&](uint64_t epoch) {
    const auto value = [](size_t) { return std::string(8, 'x'); };
    return world.Sign(table::testing::Records(100, Layout::kDense, value), epoch, 8,
                      /*dense=*/true);
  };
  const auto older = world.SignSetups(make(1));
  auto service =
      shoald::PirService::Create(&world.roster(), world.SignSetups(make(2)),
                                 {.engines = {&pir::lwe::SimplePir()}, .pool = &world.pool()});
  SHOAL_ASSERT_OK(service.status());
  int commits = 0;
  absl::Status committed = absl::ResourceExhaustedError("the journal");
  const auto commit = [&] {
    ++commits;
    EXPECT_EQ(SetupOf(**service).epoch(), 2u);
    return committed;
  };
  EXPECT_THAT((*service)->Reload(older, commit),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not after 2"));
  EXPECT_EQ(commits, 0);
  EXPECT_THAT((*service)->Reload(world.SignSetups(make(3)), commit),
              StatusIs(absl::StatusCode::kResourceExhausted, "the journal"));
  EXPECT_EQ(commits, 1);
  EXPECT_EQ(SetupOf(**service).epoch(), 2u);
  committed = absl::OkStatus();
  SHOAL_EXPECT_OK((*service)->Reload(world.SignSetups(make(3)), commit));
  EXPECT_EQ(commits, 2);
  EXPECT_EQ(SetupOf(**service).epoch(), 3u);
}

// An epoch in which everything changed: a new server is made beside the old one, which answers
// clients of the old epoch until the new one is ready.
TEST(EngineSim, AnswersGoOnWhileAServerIsMadeAnew) {
  World world;
  // Rows of other bytes in every epoch: 2,500 columns, so that changes are not worth sending.
  const auto make = [&](uint64_t epoch) {
    testing::TestRandom values(epoch);
    const auto value = [&](size_t i) {
      Bytes bytes(1100);
      values.Fill(bytes);
      if (i == 20) std::ranges::fill(bytes, static_cast<uint8_t>('0' + epoch));
      return ToString(bytes);
    };
    return world.Sign(table::testing::Records(2500, Layout::kDense, value), epoch, 1100,
                      /*dense=*/true);
  };
  Device device(&world);
  bool reloading = false;
  // On a thread of its own, as the callback runs within Reload.
  std::future<Texts> answer;
  world.Serve(make(1), [&](const pir::Engine&, uint64_t, uint64_t) {
    if (!reloading || answer.valid()) return;
    answer = std::async(std::launch::async, [&] { return device.Results({"20"}); });
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(30)), std::future_status::ready)
        << "the query waits for the new server";
  });
  SHOAL_ASSERT_OK(device.Open());
  reloading = true;
  SHOAL_ASSERT_OK(world.service().Reload(world.SignSetups(make(2))));
  ASSERT_TRUE(answer.valid()) << "the hint was refreshed";
  EXPECT_EQ(answer.get(), (Texts{absl::StrCat("found ", std::string(1100, '1'))}));
  SHOAL_ASSERT_OK(device.Open());
  EXPECT_EQ(device.Results({"20"}), (Texts{absl::StrCat("found ", std::string(1100, '2'))}));
}

TEST(EngineSim, BadRequestsAreRefusedAndTheServerGoesOn) {
  World world;
  world.Serve(world.MakeTable(1, 100, 64, /*dense=*/true));
  Device device(&world);
  SHOAL_ASSERT_OK(device.Open());
  const auto refusal = [&](FrameType type, const google::protobuf::MessageLite& message,
                           Bytes bulk = {}) {
    return CallService(world.service(), wire::MakeFrame(type, message, std::move(bulk))).status();
  };
  wire::GetPirSetupRequest setup;
  setup.set_engine("doublepir");
  EXPECT_THAT(refusal(FrameType::kGetPirSetup, setup),
              StatusIs(absl::StatusCode::kNotFound, "it runs simplepir"));
  wire::GetPirHintRequest hint;
  hint.set_setup_id(std::string(32, 'x'));
  EXPECT_THAT(refusal(FrameType::kGetPirHint, hint),
              StatusIs(absl::StatusCode::kNotFound, "setup"));
  setup.set_engine("simplepir");
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const Frame frame,
      CallService(world.service(), wire::MakeFrame(FrameType::kGetPirSetup, setup)));
  wire::GetPirSetupResponse response;
  SHOAL_ASSERT_OK(wire::ParseFrame(frame, FrameType::kGetPirSetup, response));
  hint.set_setup_id(ToString(pir::SetupId(response.setup().setup())));
  hint.set_offset(response.setup().setup().hint_bytes() + 1);
  EXPECT_THAT(refusal(FrameType::kGetPirHint, hint), StatusIs(absl::StatusCode::kOutOfRange, ""));
  wire::PirQueryRequest query;
  query.set_engine("simplepir");
  EXPECT_THAT(refusal(FrameType::kPirQuery, query),
              StatusIs(absl::StatusCode::kInvalidArgument, "1 to 16"));
  query.set_count(3);
  EXPECT_THAT(refusal(FrameType::kPirQuery, query, Bytes(100)),
              StatusIs(absl::StatusCode::kInvalidArgument, "equal length"));
  query.set_count(1);
  EXPECT_THAT(refusal(FrameType::kPirQuery, query, Bytes(100)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "epoch 0"));
  EXPECT_THAT(refusal(FrameType::kPirQuery, query, Bytes(1 << 20)),
              StatusIs(absl::StatusCode::kResourceExhausted, ""));
  EXPECT_THAT(world.service().Limits(FrameType::kSubmitOnions),
              StatusIs(absl::StatusCode::kInvalidArgument, "no chain"));
  EXPECT_EQ(device.Results({"7"}), (Texts{"found value 7"}));
}

// However much a client asks for, a server sends at most a mebibyte at a time.
TEST(EngineSim, HintsAndDeltasComeInPieces) {
  World world;
  world.Serve(world.MakeTable(1, 2000, 1024));  // a hint of 2.7 MB
  const wire::PirSetup before = SetupOf(world.service());
  wire::GetPirHintRequest hint;
  hint.set_setup_id(ToString(pir::SetupId(before)));
  hint.set_max_bytes(~uint32_t{0});
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const Frame piece,
      CallService(world.service(), wire::MakeFrame(FrameType::kGetPirHint, hint)));
  EXPECT_EQ(piece.bulk.size(), shoald::PirService::kMaxPiece);

  SHOAL_ASSERT_OK(world.service().Reload(world.SignSetups(world.MakeTable(2, 2000, 1024))));
  const wire::SignedPirSetup signed_after = SignedSetupOf(world.service());
  const wire::PirSetup& after = signed_after.setup();
  pir::Delta delta{.from = pir::SetupId(before), .to = after, .changes = {}};
  wire::GetPirDeltaRequest request;
  request.set_engine("simplepir");
  request.set_from_setup_id(ToString(delta.from));
  wire::GetPirDeltaResponse response;
  const auto ask = [&](uint64_t offset, uint32_t max_bytes) -> absl::StatusOr<Bytes> {
    request.set_offset(offset);
    request.set_max_bytes(max_bytes);
    SHOAL_ASSIGN_OR_RETURN(
        Frame frame,
        CallService(world.service(), wire::MakeFrame(FrameType::kGetPirDelta, request)));
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, FrameType::kGetPirDelta, response));
    return std::move(frame.bulk);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes nothing, ask(0, 0));
  EXPECT_TRUE(nothing.empty());
  EXPECT_EQ(response.to().SerializeAsString(), signed_after.SerializeAsString());
  const uint64_t total = response.total_bytes();
  ASSERT_GT(total, 5'000u);
  while (delta.changes.size() < total) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes part, ask(delta.changes.size(), 1'000));
    ASSERT_EQ(part.size(), std::min<uint64_t>(1'000, total - delta.changes.size()));
    EXPECT_EQ(response.total_bytes(), total);
    Append(delta.changes, part);
  }
  EXPECT_EQ(signed_after.delta_digest(), ToString(pir::DeltaDigest(delta)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes large, ask(0, ~uint32_t{0}));
  EXPECT_EQ(large.size(), std::min<uint64_t>(total, shoald::PirService::kMaxPiece));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes end, ask(total, 10));
  EXPECT_TRUE(end.empty());
  for (uint64_t offset : {total + 1, ~uint64_t{0}}) {
    EXPECT_THAT(ask(offset, 10), StatusIs(absl::StatusCode::kOutOfRange, ""));
  }
}

// Mutated requests: each gets one answer or one error, and the server keeps running.
TEST(EngineSim, MutatedRequests) {
  const google::protobuf::LogSilencer silence;
  World world;
  world.Serve(world.MakeTable(1, 100, 64, /*dense=*/true));
  const Digest before = pir::SetupId(SetupOf(world.service()));
  SHOAL_ASSERT_OK(
      world.service().Reload(world.SignSetups(world.MakeTable(2, 100, 64, /*dense=*/true))));
  Device device(&world);
  SHOAL_ASSERT_OK(device.Open());
  wire::GetPirSetupRequest setup_request;
  setup_request.set_engine("simplepir");
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const Frame setup_frame,
      CallService(world.service(), wire::MakeFrame(FrameType::kGetPirSetup, setup_request)));
  wire::GetPirSetupResponse setup;
  SHOAL_ASSERT_OK(wire::ParseFrame(setup_frame, FrameType::kGetPirSetup, setup));
  const Digest id = pir::SetupId(setup.setup().setup());
  wire::GetPirHintRequest hint;
  hint.set_setup_id(ToString(id));
  hint.set_offset(1000);
  hint.set_max_bytes(1000);
  wire::GetPirDeltaRequest delta;
  delta.set_engine("simplepir");
  delta.set_from_setup_id(ToString(before));
  delta.set_offset(100);
  delta.set_max_bytes(1000);
  SHOAL_ASSERT_OK(CallService(world.service(), wire::MakeFrame(FrameType::kGetPirDelta, delta)));
  wire::PirQueryRequest query;
  query.set_engine("simplepir");
  query.set_count(2);
  Bytes one;
  AppendLe<uint64_t>(one, setup.setup().setup().epoch());
  Append(one, id);
  one.resize(pir::lwe::SimplePir().SizesOf(setup.setup().setup())->query_bytes);
  Bytes two = one;
  Append(two, one);
  const std::vector<Frame> frames = {setup_frame,
                                     wire::MakeFrame(FrameType::kGetPirSetup, setup_request),
                                     wire::MakeFrame(FrameType::kGetPirHint, hint),
                                     wire::MakeFrame(FrameType::kGetPirDelta, delta),
                                     wire::MakeFrame(FrameType::kPirQuery, query, two)};
  testing::TestRandom random(3);
  int answered = 0, refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Frame frame = frames[random.Below(frames.size())];
    for (uint64_t k = random.Below(3); k > 0 && !frame.control.empty(); --k) {
      frame.control[random.Below(frame.control.size())] ^= static_cast<char>(1 << random.Below(8));
    }
    if (random.Below(8) == 0) frame.control.resize(random.Below(frame.control.size() + 3));
    if (!frame.bulk.empty() && random.Below(2) == 0) {
      frame.bulk[random.Below(frame.bulk.size())] ^= static_cast<uint8_t>(1 << random.Below(8));
    }
    if (random.Below(8) == 0) frame.bulk.resize(random.Below(frame.bulk.size() + 3));
    const absl::StatusOr<Frame> answer = CallService(world.service(), frame);
    answer.ok() ? ++answered : ++refused;
    ASSERT_LE(answer.ok() ? answer->bulk.size() : 0, shoald::PirService::kMaxPiece);
  }
  EXPECT_GT(answered, 200);
  EXPECT_GT(refused, 200);
  EXPECT_EQ(device.Results({"7"}), (Texts{"found value 7"}));
}

TEST(EngineSim, ManyClientsAtOnce) {
  World world;
  world.Serve(world.MakeTable(1, 100, 64, /*dense=*/true));
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Device device(&world);
      if (!device.Open().ok()) return;
      for (int i = 0; i < 5; ++i) {
        const int key = (13 * t + 7 * i) % 100;
        const std::string value = key % 10 == 0 ? absl::StrCat("found value ", key, " 1")
                                                : absl::StrCat("found value ", key);
        right += device.Results({absl::StrCat(key)}) == Texts{value};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
}

// A crowd of devices. Counts what all of them send.
struct Crowd {
  explicit Crowd(World* of) : world(of) {
    options.engine = &pir::lwe::SimplePir();
    options.devices = 30;
    options.pad_to = 3;
    options.min_apps = 1;
    options.max_apps = 3;
    options.zipf = 0;
    options.connections = 4;
    keys.dense = 90;
  }
  absl::StatusOr<load::CrowdReport> Run(const table::UnsignedTable* expected) {
    return load::RunLoad(
        options, world->parties().pinned(), keys, expected,
        [this]() -> absl::StatusOr<std::unique_ptr<client::Transport>> {
          auto transport = std::make_unique<DirectTransport>(world);
          const int connection = connections++;
          transport->spoil = [this, connection](Bytes& answers) {
            queries += 1;
            if (spoil) spoil(connection, answers);
          };
          return transport;
        },
        {.clock = &clock,
         .random = &random,
         .pool = &world->pool(),
         .sleep = [](uint32_t) {},
         .progress = nullptr},
        nullptr);
  }
  World* const world;
  testing::TestClock clock;
  testing::TestRandom random{34};
  load::CrowdOptions options;
  load::CrowdKeys keys;
  std::atomic<int> connections = 0, queries = 0;
  std::function<void(int connection, Bytes& answers)> spoil = nullptr;
};

// As with the chain: the whole run fails, and no report counts answers that were verified before.
TEST(EngineSim, ACrowdsTableThatExpiresMeanwhileIsNotBelieved) {
  World world;
  const auto table = world.MakeTable(1, 90, 64, /*dense=*/true);
  world.Serve(table);
  Crowd crowd(&world);
  crowd.options.connections = 1;  // one request after the other
  for (const int expires_at : {1, 20, 30}) {
    crowd.queries = 0;
    crowd.spoil = [&](int, Bytes&) {
      if (crowd.queries == expires_at) crowd.clock.now_s += 2 * 24 * 3600;
    };
    EXPECT_THAT(
        crowd.Run(&table->content()).status(),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 "the table expired while its answers were on their way, and none is used"));
    EXPECT_EQ(crowd.queries, 30);
    crowd.clock.now_s = kNowS;
  }
  crowd.spoil = nullptr;
  SHOAL_ASSERT_OK_AND_ASSIGN(const load::CrowdReport report, crowd.Run(&table->content()));
  EXPECT_EQ(report.answers_correct, 90u);
}

TEST(EngineSim, ACrowdIsAnsweredAndEveryAnswerCompared) {
  World world;
  const auto table = world.MakeTable(1, 90, 64, /*dense=*/true);
  world.Serve(table);
  for (const bool own : {true, false}) {
    Crowd crowd(&world);
    crowd.options.own_connections = own;
    crowd.options.verify_each = own;
    crowd.options.absent = own ? 0 : 0.2;
    SHOAL_ASSERT_OK_AND_ASSIGN(const load::CrowdReport report, crowd.Run(&table->content()));
    EXPECT_EQ(report.engine, "simplepir");
    EXPECT_EQ(report.queries, 90u);
    EXPECT_EQ(report.answers_correct, 90u);
    EXPECT_EQ(report.answers_wrong + report.answers_failed + report.keys_failed, 0u);
    EXPECT_TRUE(report.compared);
    EXPECT_EQ(report.devices_lost, 0u);
    EXPECT_GE(report.keys_found, own ? 30u : 10u);
    EXPECT_EQ(report.keys_absent > 0, !own);
    // One connection for each device, and one that fetched the hint; one request for each device,
    // or as few as are enough.
    EXPECT_EQ(crowd.connections == 31, own);
    EXPECT_EQ(crowd.queries, own ? 30 : 6);
    const pir::Costs& costs = report.costs;
    EXPECT_GT(costs.bytes.hint_bytes, 0u);
    EXPECT_GT(costs.bytes.query_bytes, 0u);
    EXPECT_GT(costs.query_seconds, 0);
    EXPECT_GT(costs.recover_seconds, 0);
    EXPECT_GE(report.queries_per_pass, 3);
    EXPECT_LE(report.queries_per_pass, shoald::PirService::kMaxPass);
    EXPECT_GT(report.latency_seconds.p50, 0);
    EXPECT_LE(report.latency_seconds.p50, report.latency_seconds.p99);
    EXPECT_LE(report.latency_seconds.p99, report.latency_seconds.most);
  }
}

// The same for an engine whose sessions are prepared.
TEST(EngineSim, ACrowdOfSessionsIsAnswered) {
  World world;
  const pir::Engine& piano = *pir::sets::SetsFamily().engines().front();
  const auto table = world.MakeTable(1, 90, 64, /*dense=*/true);
  world.Serve(table, nullptr, &piano);
  Crowd crowd(&world);
  crowd.options.engine = &piano;
  crowd.options.connections = 10;
  SHOAL_ASSERT_OK_AND_ASSIGN(const load::CrowdReport report, crowd.Run(&table->content()));
  EXPECT_EQ(report.engine, "piano");
  EXPECT_EQ(report.queries, 90u);
  EXPECT_EQ(report.answers_correct, 90u);
  EXPECT_EQ(report.answers_wrong + report.answers_failed + report.keys_failed, 0u);
  EXPECT_EQ(report.devices_lost, 0u);
  EXPECT_GT(report.costs.query_seconds, 0);
  EXPECT_GT(report.costs.recover_seconds, 0);
  EXPECT_GT(report.latency_seconds.p50, 0);
  // Each session has all of its devices' queries.
  crowd.options.connections = 1;
  EXPECT_THAT(crowd.Run(&table->content()),
              StatusIs(absl::StatusCode::kInvalidArgument, "fewer devices"));
}

// A server that gets more queries than it can answer in time refuses the last ones at once and
// answers the rest.
TEST(EngineSim, QueriesThatWouldWaitTooLongAreRefused) {
  World world;
  auto service = shoald::PirService::Create(
      &world.roster(), world.SignSetups(world.MakeTable(1, 3000, 64, /*dense=*/true)),
      {.engines = {&pir::lwe::SimplePir()}, .pool = &world.pool(), .max_wait_seconds = 0});
  SHOAL_ASSERT_OK(service.status());
  wire::GetPirSetupRequest ask;
  ask.set_engine("simplepir");
  SHOAL_ASSERT_OK_AND_ASSIGN(const Frame frame,
                             CallService(**service, wire::MakeFrame(FrameType::kGetPirSetup, ask)));
  wire::GetPirSetupResponse setup;
  SHOAL_ASSERT_OK(wire::ParseFrame(frame, FrameType::kGetPirSetup, setup));
  SHOAL_ASSERT_OK_AND_ASSIGN(const pir::Sizes sizes,
                             pir::lwe::SimplePir().SizesOf(setup.setup().setup()));
  // A first pass says how long one takes.
  wire::PirQueryRequest query;
  query.set_engine("simplepir");
  query.set_count(1);
  Bytes good;
  AppendLe<uint64_t>(good, setup.setup().setup().epoch());
  Append(good, pir::SetupId(setup.setup().setup()));
  good.resize(sizes.query_bytes);
  SHOAL_ASSERT_OK(CallService(**service, wire::MakeFrame(FrameType::kPirQuery, query, good)));
  // Queries of the right length but for another setup: they are refused one by one, after a pass.
  // What is refused says nothing of how long a pass takes.
  const Frame request = wire::MakeFrame(FrameType::kPirQuery, query, Bytes(sizes.query_bytes));
  EXPECT_THAT(CallService(**service, request).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, ""));
  std::mutex mutex;
  std::map<absl::StatusCode, int> codes;
  std::latch all(500), handed_in(1);
  for (int i = 0; i < 500; ++i) {
    (*service)->Handle(request, net::Reply([&](Frame answer, std::unique_ptr<ByteSource>) {
                         const absl::StatusCode code = wire::ErrorOf(answer).code();
                         // The thread that passes over the table waits until all queries have come.
                         if (code == absl::StatusCode::kFailedPrecondition) handed_in.wait();
                         {
                           const std::lock_guard lock(mutex);
                           ++codes[code];
                         }
                         all.count_down();
                       }));
  }
  handed_in.count_down();
  all.wait();
  EXPECT_GT(codes[absl::StatusCode::kResourceExhausted], 0);
  EXPECT_GT(codes[absl::StatusCode::kFailedPrecondition], 0);
  EXPECT_EQ(codes.size(), 2u);
}

// An engine of which one role takes its time.
class SlowOnline final : public EngineAround {
 public:
  static constexpr auto kTakes = std::chrono::milliseconds(20);

  SlowOnline() : EngineAround(pir::testing::XorEngine()) {}
  absl::StatusOr<std::unique_ptr<pir::Server>> CreateServer(
      const pir::Content& content, pir::ServerOptions options) const override {
    SHOAL_ASSIGN_OR_RETURN(auto server, EngineAround::CreateServer(content, std::move(options)));
    return std::make_unique<SlowServer>(std::move(server));
  }

 private:
  class SlowServer final : public ServerAround {
   public:
    using ServerAround::ServerAround;
    std::vector<absl::StatusOr<Bytes>> Answer(
        pir::Role role, std::span<const pir::RequestView> requests) const override {
      if (role == pir::Role::kOnline) std::this_thread::sleep_for(kTakes * requests.size());
      return ServerAround::Answer(role, requests);
    }
  };
};

// What quick requests took says nothing of slow ones, which wait behind them.
TEST(EngineSim, AQuickPassLetsNoSlowQueriesIn) {
  World world;
  const SlowOnline engine;
  auto service = shoald::PirService::Create(
      &world.roster(), world.SignSetups(world.MakeTable(1, 90, 64, /*dense=*/true), {&engine}),
      {.engines = {&engine}, .pool = &world.pool(), .max_wait_seconds = 0.5});
  SHOAL_ASSERT_OK(service.status());
  const wire::PirSetup setup = SignedSetupOf(**service, engine.name()).setup();
  wire::PirQueryRequest message;
  message.set_engine(std::string(engine.name()));
  message.set_count(1);
  message.set_role("online");
  Bytes body = ToBytes(pir::SetupId(setup));
  body.resize(body.size() + (setup.rows() + 7) / 8);
  const Frame slow = wire::MakeFrame(FrameType::kPirQuery, message, body);
  message.set_role("offline");
  message.set_kind(1);  // a preparation
  body.resize(sizeof(Digest) + 32);
  const Frame quick = wire::MakeFrame(FrameType::kPirQuery, message, body);
  SHOAL_ASSERT_OK(CallService(**service, slow));
  SHOAL_ASSERT_OK(CallService(**service, quick));

  // A pass of 16 takes 8 times 20 ms at least, by the one that there was: 0.5 seconds have 50.
  std::mutex mutex;
  int answered = 0, refused = 0;
  constexpr int kQueries = 500;
  std::latch all(kQueries), handed_in(1);
  for (int i = 0; i < kQueries; ++i) {
    (*service)->Handle(slow, net::Reply([&](Frame answer, std::unique_ptr<ByteSource>) {
                         const bool ok = answer.type != FrameType::kError;
                         if (ok) handed_in.wait();
                         {
                           const std::lock_guard lock(mutex);
                           ++(ok ? answered : refused);
                         }
                         all.count_down();
                       }));
  }
  handed_in.count_down();
  all.wait();
  EXPECT_GT(answered, 0);
  // Those of the pass that was under way are beside.
  EXPECT_LE(answered, 52 + 2 * static_cast<int>(shoald::PirService::kMaxPass));
  EXPECT_EQ(answered + refused, kQueries);
}

// One device's answers are spoiled: only these are counted as failed, and nothing is asked again.
TEST(EngineSim, ACrowdCountsWhatFails) {
  World world;
  const auto table = world.MakeTable(1, 90, 64, /*dense=*/true);
  world.Serve(table);
  Crowd crowd(&world);
  crowd.spoil = [](int connection, Bytes& answers) {
    if (connection == 6) answers.pop_back();
    for (size_t i = 0; connection == 5 && i < answers.size(); i += 3) answers[i] ^= 0x80;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const load::CrowdReport report, crowd.Run(&table->content()));
  EXPECT_EQ(report.answers_correct, 84u);
  EXPECT_EQ(report.answers_failed, 6u);
  EXPECT_EQ(report.answers_wrong, 0u);
  EXPECT_EQ(report.devices_lost, 1u) << "the one that got no whole answer";
  EXPECT_GE(report.keys_failed, 2u);
  EXPECT_FALSE(report.first_error.ok());
  EXPECT_EQ(crowd.queries, 30);
}

TEST(EngineSim, ACrowdSaysWhatIsWrong) {
  World world;
  world.Serve(world.MakeTable(1, 90, 64, /*dense=*/true));
  Crowd crowd(&world);
  crowd.options.engine = &pir::lwe::DoublePir();
  EXPECT_THAT(crowd.Run(nullptr), StatusIs(absl::StatusCode::kNotFound, "it runs simplepir"));
  crowd.options.engine = &pir::lwe::SimplePir();
  const auto other = world.MakeTable(2, 90, 64, /*dense=*/true);
  EXPECT_THAT(crowd.Run(&other->content()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not the deployment's"));
  crowd.options.pad_to = 2;
  EXPECT_THAT(crowd.Run(nullptr), StatusIs(absl::StatusCode::kInvalidArgument, "apps"));
  // No device gets through.
  crowd.options.pad_to = 3;
  crowd.spoil = [](int, Bytes& answers) { answers.clear(); };
  EXPECT_THAT(crowd.Run(nullptr), StatusIs(absl::StatusCode::kDataLoss, "no device got through"));
}

// A setup that is not the signed table's, or that not all parties signed, is found before anything
// is asked: a server has no other hint to give.
TEST(EngineSim, ASetupOfAnotherTableIsRefused) {
  World world;
  const auto table = world.MakeTable(1, 100, 64, /*dense=*/true);
  world.Serve(table);
  const wire::SignedPirSetup served = SignedSetupOf(world.service());
  const auto check = [&](const std::function<void(wire::SignedPirSetup&)>& change,
                         bool sign = true) {
    wire::SignedPirSetup setup = served;
    change(setup);
    if (sign) setup = world.SignByAll(setup);
    return pir::CheckSetup(setup, table->manifest(), pir::lwe::SimplePir(), world.roster());
  };
  const auto set = [](auto change) {
    return [change](wire::SignedPirSetup& s) { change(*s.mutable_setup()); };
  };
  SHOAL_EXPECT_OK(check([](auto&) {}, /*sign=*/false));
  EXPECT_THAT(check(set([](auto& s) { s.set_engine("doublepir"); })),
              StatusIs(absl::StatusCode::kDataLoss, "engine"));
  EXPECT_THAT(check(set([](auto& s) { s.set_manifest_digest(std::string(32, 'x')); })),
              StatusIs(absl::StatusCode::kDataLoss, "manifest_digest"));
  EXPECT_THAT(check(set([](auto& s) { s.set_table_id(std::string(32, 'x')); })),
              StatusIs(absl::StatusCode::kDataLoss, "table_id"));
  EXPECT_THAT(check(set([](auto& s) { s.set_epoch(2); })),
              StatusIs(absl::StatusCode::kDataLoss, "epoch"));
  EXPECT_THAT(check(set([](auto& s) { s.set_rows(s.rows() + 1); })),
              StatusIs(absl::StatusCode::kDataLoss, "rows"));
  EXPECT_THAT(check(set([](auto& s) { s.set_record_bytes(64); })),
              StatusIs(absl::StatusCode::kDataLoss, "record_bytes"));
  // Right in itself, and not what was signed.
  const auto refused = StatusIs(absl::StatusCode::kUnauthenticated, "not the one that all parties");
  const auto poison = set([](auto& s) { s.set_hint_digest(std::string(32, 'x')); });
  EXPECT_THAT(check(poison, /*sign=*/false), refused);
  SHOAL_EXPECT_OK(check(poison));
  const auto delta = [](auto& s) { s.set_delta_digest(std::string(32, 'x')); };
  EXPECT_THAT(check(delta, /*sign=*/false), refused);
  EXPECT_THAT(check([](auto& s) { s.clear_signature(); }, /*sign=*/false), refused);
  EXPECT_THAT(check([](auto& s) { s.set_delta_digest("short"); }),
              StatusIs(absl::StatusCode::kInvalidArgument, "delta_digest"));
  // Neither by one party too few.
  wire::SignedPirSetup few = served;
  const Digest message = pir::SetupMessage(few);
  const auto sum = signature::AggregateSignatures(std::vector<signature::Signature>{
      world.parties().keys(1).bls().Sign(message), world.parties().keys(2).bls().Sign(message)});
  few.set_signature(ToString(sum->bytes()));
  EXPECT_THAT(check([&](auto& s) { s = few; }, /*sign=*/false), refused);
}

// A server whose parties signed another setup, or whose product on disk is not the table's, does
// not start with it.
TEST(EngineSim, OnlyTheSignedSetupIsServed) {
  World world;
  const auto table = world.MakeTable(1, 100, 64, /*dense=*/true);
  const std::string directory = ::testing::TempDir() + "/only-signed";
  const shoald::ServedTable served = world.SignSetups(table, {&pir::lwe::SimplePir()}, directory);
  const auto create = [&](const shoald::ServedTable& of) {
    return shoald::PirService::Create(
               &world.roster(), of,
               {.engines = {&pir::lwe::SimplePir()}, .pool = &world.pool(), .directory = directory})
        .status();
  };
  SHOAL_EXPECT_OK(create(served));
  shoald::ServedTable other = served;
  wire::SignedPirSetup& setup = other.setups[&pir::lwe::SimplePir()];
  setup.mutable_setup()->set_hint_digest(std::string(32, 'x'));
  EXPECT_THAT(create(other), StatusIs(absl::StatusCode::kUnauthenticated, "all parties signed"));
  setup = world.SignByAll(setup);
  EXPECT_THAT(create(other),
              StatusIs(absl::StatusCode::kFailedPrecondition, "does not follow from this table"));
  other.setups.clear();
  EXPECT_THAT(create(other), StatusIs(absl::StatusCode::kInvalidArgument, "no setup of simplepir"));
}

// Somebody put a product that is no product of this table where the server keeps its own, with all
// digests right: the hint is made anew, at a start and when the next epoch is taken.
TEST(EngineSim, AProductOfAnotherTableIsNotServed) {
  World world;
  const pir::Engine& engine = pir::lwe::SimplePir();
  const std::string directory = ::testing::TempDir() + "/foreign-product";
  const auto table = world.MakeTable(1, 2000, 64, /*dense=*/true);
  const shoald::ServedTable served = world.SignSetups(table);
  // `by` is added to its words: 1 only where it is lost in the rounded hint.
  const auto spoil = [&](uint32_t by) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto made,
                               pir::MakeServer(engine, pir::ContentOf(table->AsPrevious()),
                                               served.setups.at(&engine), {.pool = &world.pool()}));
    class Spoilt final : public pir::Server {
     public:
      Spoilt(const pir::Server& of, uint32_t by)
          : of_(of), words_(of.product().begin(), of.product().end()) {
        for (uint32_t& word : words_) {
          bool seen = false;  // whether a hint rounded by so many bits would differ
          for (uint32_t t = 1; t <= 20; ++t) {
            seen |= (word + (1u << (t - 1))) % (1u << t) == (1u << t) - 1;
          }
          if (by > 1 || !seen) word += by;
        }
      }
      const wire::PirSetup& setup() const override { return of_.setup(); }
      std::span<const uint32_t> product() const override { return words_; }
      uint64_t max_request_bytes() const override { return 0; }
      std::vector<absl::StatusOr<Bytes>> Answer(pir::Role,
                                                std::span<const pir::RequestView>) const override {
        return {};
      }
      absl::StatusOr<double> RefreshShare(const pir::Content&,
                                          std::span<const uint64_t>) const override {
        return 1;
      }
      absl::StatusOr<std::optional<pir::Delta>> Refresh(const pir::Content&,
                                                        std::span<const uint64_t>) override {
        return std::nullopt;
      }

     private:
      const pir::Server& of_;
      std::vector<uint32_t> words_;
    };
    SHOAL_ASSERT_OK(pir::WriteProduct(directory, Spoilt(*made.server, by)));
  };
  const auto create = [&] {
    auto service = shoald::PirService::Create(
        &world.roster(), served,
        {.engines = {&engine}, .pool = &world.pool(), .directory = directory});
    SHOAL_CHECK(service.ok());
    return *std::move(service);
  };
  const auto product = [&] { return *ReadFile(directory + "/simplepir.product"); };
  for (const uint32_t by : {uint32_t{1} << 31, uint32_t{1}}) {
    spoil(by);
    if (HasFatalFailure()) return;
    const std::string before = product();
    const auto service = create();
    EXPECT_EQ(SetupOf(*service).SerializeAsString(),
              served.setups.at(&engine).setup().SerializeAsString());
    EXPECT_EQ(product() != before, by > 1) << "made anew where it shows";
    const shoald::ServedTable next = world.SignSetups(world.MakeTable(2, 2000, 64, /*dense=*/true));
    SHOAL_ASSERT_OK(service->Reload(next));
    EXPECT_EQ(SignedSetupOf(*service).SerializeAsString(),
              next.setups.at(&engine).SerializeAsString());
    Device device(&world);
    DirectTransport transport(&world, service.get());
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const client::Deployment deployment,
        client::Deployment::Fetch(transport, world.parties().pinned(), device.state, kNowS));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto client, client::EngineClient::Create(&deployment, {&transport},
                                                        {.engine = &engine}, device.Environment()));
    SHOAL_ASSERT_OK(client->Prepare());
    const std::vector<Bytes> keys = {ToBytes(AsBytes("20"))};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto found,
                               client::LookUp(deployment, *client, keys, device.Environment()));
    EXPECT_EQ(found[0].outcome, Lookup::Outcome::kFound);
    EXPECT_EQ(ToString(found[0].value), "value 20 2");
  }
}

// The parties signed what does not follow from the next epoch's table: it is found when the epoch
// is served, and clients take nothing else.
TEST(EngineSim, ASignedSetupThatDoesNotFollowAnswersNobody) {
  World world;
  const pir::Engine& engine = pir::lwe::SimplePir();
  world.Serve(world.MakeTable(1, 2000, 64, /*dense=*/true));
  shoald::ServedTable next = world.SignSetups(world.MakeTable(2, 2000, 64, /*dense=*/true));
  wire::SignedPirSetup& setup = next.setups[&engine];
  setup.mutable_setup()->set_hint_digest(std::string(32, 'x'));
  setup = world.SignByAll(setup);
  SHOAL_ASSERT_OK(world.service().Reload(next));
  Device device(&world);
  EXPECT_THAT(device.Open(), StatusIs(absl::StatusCode::kDataLoss, "digest"));
  EXPECT_EQ(std::ranges::count(device.transport.calls, FrameType::kPirQuery), 0);
  SHOAL_ASSERT_OK(
      world.service().Reload(world.SignSetups(world.MakeTable(3, 2000, 64, /*dense=*/true))));
  SHOAL_ASSERT_OK(device.Open());
  EXPECT_EQ(device.Results({"20"}), (Texts{"found value 20 3"}));
}

// Each party makes the setup itself. Parties that do not agree are named.
TEST(EngineSim, SharesOfASetupAreAddedUp) {
  World world;
  const auto table = world.MakeTable(1, 100, 64, /*dense=*/true);
  const pir::Engine& engine = pir::lwe::SimplePir();
  const wire::SignedPirSetup setup = world.SignSetups(table).setups[&engine];
  std::vector<wire::PirSetupShare> shares(3);
  const auto sign = [&](uint32_t party) {
    shares[party - 1].mutable_setup()->set_signature(
        ToString(world.parties()
                     .keys(party)
                     .bls()
                     .Sign(pir::SetupMessage(shares[party - 1].setup()))
                     .bytes()));
  };
  for (uint32_t party = 1; party <= 3; ++party) {
    shares[party - 1].set_party(party);
    *shares[party - 1].mutable_setup() = setup;
    sign(party);
  }
  const auto aggregate = [&] {
    return pir::AggregateSetup(shares, table->manifest(), engine, world.roster());
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::SignedPirSetup sum, aggregate());
  EXPECT_EQ(sum.SerializeAsString(), setup.SerializeAsString());
  const std::vector<wire::PirSetupShare> good = shares;
  shares[1].mutable_setup()->set_delta_digest(std::string(32, 'x'));
  sign(2);
  EXPECT_THAT(aggregate(),
              StatusIs(absl::StatusCode::kInvalidArgument, "party-2) signed another delta"));
  shares[1].mutable_setup()->mutable_setup()->set_hint_digest(std::string(32, 'x'));
  sign(2);
  EXPECT_THAT(aggregate(),
              StatusIs(absl::StatusCode::kInvalidArgument, "party-2) signed another setup"));
  shares = good;
  shares[2].mutable_setup()->set_signature(shares[1].setup().signature());
  EXPECT_THAT(aggregate(), StatusIs(absl::StatusCode::kUnauthenticated, "party 3"));
  shares = good;
  shares[2].set_party(2);
  EXPECT_THAT(aggregate(), StatusIs(absl::StatusCode::kInvalidArgument, "comes twice"));
  shares.pop_back();
  EXPECT_THAT(aggregate(), StatusIs(absl::StatusCode::kInvalidArgument, "(party-3) is missing"));
  shares[1].set_party(4);
  EXPECT_THAT(aggregate(), StatusIs(absl::StatusCode::kInvalidArgument, "no such party"));
  shares = good;
  shares[0].mutable_setup()->mutable_setup()->set_epoch(2);
  EXPECT_THAT(aggregate(), StatusIs(absl::StatusCode::kInvalidArgument, "to the table: epoch"));
}

// An engine whose hint would be too large is refused before the parties sign it.
TEST(EngineSim, DoublePirRefusesWideRows) {
  World world;
  EXPECT_THAT(pir::ProposeSetup(pir::lwe::DoublePir(), world.MakeTable(1, 300, 1024)->AsPrevious(),
                                nullptr, {.pool = &world.pool()}),
              StatusIs(absl::StatusCode::kResourceExhausted, "use simplepir"));
}

}  // namespace
}  // namespace shoal::sim
