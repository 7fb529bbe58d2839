// A device with its state, and a deployment in one process for it: for tests of the chain's client.
#ifndef SHOAL_SRC_CLIENT_CHAIN_CLIENT_FIXTURE_H_
#define SHOAL_SRC_CLIENT_CHAIN_CLIENT_FIXTURE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/client/chain_client.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/retrieval.h"
#include "src/client/rollback_anchor.h"
#include "src/client/state.h"
#include "src/client/testing/fake_frontend.h"
#include "src/client/transport.h"

namespace shoal::client::testing {

inline std::vector<Bytes> Keys(const std::vector<std::string>& texts) {
  std::vector<Bytes> keys;
  for (const std::string& text : texts) keys.push_back(ToBytes(AsBytes(text)));
  return keys;
}

// A device: what it knows of the deployment, and the chain as the source of its rows.
class Device {
 public:
  static absl::StatusOr<std::unique_ptr<Device>> Open(const roster::PinnedParties& pins,
                                                      const ChainOptions& options,
                                                      const std::string& placement_cache,
                                                      Transport* transport, StateStore* store,
                                                      Environment environment) {
    SHOAL_ASSIGN_OR_RETURN(Deployment deployment, Deployment::Open(*transport, pins, *store,
                                                                   environment, placement_cache));
    std::unique_ptr<Device> device(new Device(std::move(deployment), std::move(environment)));
    SHOAL_ASSIGN_OR_RETURN(
        device->chain_,
        ChainClient::Create(&device->deployment_, options, transport, store, device->environment_));
    return device;
  }

  absl::StatusOr<std::vector<Lookup>> LookUp(std::span<const Bytes> keys) {
    return client::LookUp(deployment_, *chain_, keys, environment_);
  }
  absl::Status LookUp(client::Keys& keys, Results& results) {
    return client::LookUp(deployment_, *chain_, keys, results, environment_);
  }
  const Deployment& deployment() const { return deployment_; }
  ChainClient& chain() { return *chain_; }

 private:
  Device(Deployment deployment, Environment environment)
      : deployment_(std::move(deployment)), environment_(std::move(environment)) {}
  const Deployment deployment_;
  const Environment environment_;
  std::unique_ptr<ChainClient> chain_;
};

// A store that shows a test what was durable at any time.
class WatchedStore final : public StateStore {
 public:
  State& state() override { return state_; }
  absl::Status Save() override {
    if (!fail.ok()) return fail;
    ++saves;
    durable_rows.clear();
    durable_rounds = 0;
    durable_onions = 0;
    durable_machines = 0;
    durable_spreads = state_.spreads.size();
    for (const HeldRound& round : state_.rounds) {
      if (round.over) continue;
      ++durable_rounds;
      durable_onions += round.onions();
      if (round.machine) ++durable_machines;
      durable_rows.insert(round.rows.begin(), round.rows.end());
    }
    durable_charges = state_.ledger.submissions();
    return absl::OkStatus();
  }
  std::string AnswersPath(uint64_t) const override { return ""; }
  absl::Status fail;
  int saves = 0;
  size_t durable_rounds = 0;
  size_t durable_onions = 0;  // of submissions whose cut is durable
  size_t durable_machines = 0;
  size_t durable_spreads = 0;
  std::set<uint32_t> durable_rows;
  uint64_t durable_charges = 0;

 private:
  State state_;
};

// A state on disk, and the files beside it.
class FileState {
 public:
  FileState() {
    std::string name = ::testing::TempDir() + "/client.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    base_ = name;
    directory_ = name + "/files";
    std::filesystem::create_directory(directory_);
    place_ = AnchorDirectory::Below(base_);
  }
  ~FileState() { std::filesystem::remove_all(base_); }

  std::unique_ptr<FileStateStore> Open() {
    auto store = FileStateStore::Open(path(), place_, random_);
    SHOAL_CHECK(store.ok());
    return *std::move(store);
  }
  std::string path() const { return directory_ + "/state"; }
  uint64_t Submissions() const {
    const auto state = ReadState(path(), place_);
    return state.ok() ? state->ledger.submissions() : 0;
  }
  std::set<std::string> Leftovers() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      if (name != "state" && name != "state.guard" && name != "state.lock") names.insert(name);
    }
    return names;
  }

 private:
  SystemRandom random_;
  std::string base_;
  std::string directory_;
  AnchorDirectory place_;
};

class ClientTest : public ::testing::Test {
 protected:
  void Start(FakeOptions options = {}) {
    frontend_ = std::make_unique<FakeFrontend>(options);
    options_.pad_to = 8;
    options_.timeout_s = 30;
    options_.waits = false;  // what follows the end of a wait begins at once
  }

  absl::StatusOr<std::unique_ptr<Device>> TryOpen() {
    return Device::Open(frontend_->pins(), options_, placement_cache_, frontend_.get(), &store_,
                        {.clock = &frontend_->clock(),
                         .random = &frontend_->random(),
                         .pool = &frontend_->pool(),
                         .sleep = [this](uint32_t milliseconds) { Sleep(milliseconds); },
                         .progress = [this](absl::string_view what) { told_(what); }});
  }
  std::unique_ptr<Device> Open() {
    auto client = TryOpen();
    EXPECT_THAT(client.status(), shoal::testing::IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }
  void Sleep(uint32_t milliseconds) {
    slept_ms_ += milliseconds;
    if (slept_ms_ >= 1000) {
      frontend_->clock().now_s += slept_ms_ / 1000;
      slept_ms_ %= 1000;
    }
  }
  size_t SentCount(const std::string& name) const {
    return static_cast<size_t>(
        std::count_if(frontend_->sent.begin(), frontend_->sent.end(),
                      [&](const auto& request) { return request.first == name; }));
  }
  std::vector<std::string> SentNames() const {
    std::vector<std::string> names;
    for (const auto& request : frontend_->sent) names.push_back(request.first);
    return names;
  }

  std::unique_ptr<FakeFrontend> frontend_;
  ChainOptions options_;
  std::string placement_cache_;
  WatchedStore store_;
  uint64_t slept_ms_ = 0;
  std::function<void(absl::string_view)> told_ = [](absl::string_view) {};
};

}  // namespace shoal::client::testing

#endif  // SHOAL_SRC_CLIENT_CHAIN_CLIENT_FIXTURE_H_
