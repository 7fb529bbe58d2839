// Two servers of an engine with an offline and an online one, and a client whose state is a disk in
// memory, for tests.
#ifndef SHOAL_SRC_PIR_SETS_PAIR_FIXTURE_H_
#define SHOAL_SRC_PIR_SETS_PAIR_FIXTURE_H_

#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/engine.h"
#include "src/pir/testing/memory_store.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::sets::testing {

using pir::testing::MemoryStore;
using pir::testing::Records;

class PairFixture : public ::testing::Test {
 protected:
  PairFixture(const Engine& engine, uint64_t rows, uint32_t record_bytes)
      : engine_(engine), records_(rows, record_bytes) {
    MakeServers();
  }
  void MakeServers(ServerOptions options = {}) {
    for (auto& server : servers_) {
      auto made = engine_.CreateServer(records_.content(), options);
      SHOAL_EXPECT_OK(made.status());
      server = *std::move(made);
    }
  }
  // With what is on disk, as after a start of the process.
  std::unique_ptr<Session> Open() {
    store_.emplace(MemoryStore::Disk(store_->disk()));
    auto session = TryOpen();
    SHOAL_EXPECT_OK(session.status());
    return *std::move(session);
  }
  absl::StatusOr<std::unique_ptr<Session>> TryOpen() { return OpenOn(*store_); }
  absl::StatusOr<std::unique_ptr<Session>> OpenOn(SessionStore& store) {
    const wire::PirSetup setups[] = {servers_[0]->setup(), servers_[1]->setup()};
    return engine_.OpenSession(setups, {.store = &store, .check = check_});
  }
  absl::StatusOr<Bytes> Send(const Request& request) {
    const RequestView view = {.kind = request.kind, .count = request.count, .body = request.body};
    sent_.push_back(request);
    const size_t server = request.role == Role::kOffline ? 0 : 1;
    auto answers = servers_[server]->Answer(request.role, {&view, 1});
    if (answers[0].ok()) {
      EXPECT_EQ(answers[0]->size(), request.answer_bytes);
    }
    return answers[0];
  }
  void Prepare(Session& session) {
    while (session.needed(1) == Session::Need::kRequests) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session.Prepare(random_));
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Send(request));
      SHOAL_ASSERT_OK(session.TakePrepared(answer));
    }
  }
  void Fetch(Session& session, const std::vector<uint64_t>& rows, uint64_t keys) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session.Ask({.rows = rows, .keys = keys}));
    Bytes expected;
    for (const uint64_t row : rows) Append(expected, records_.at(row));
    while (batch->steps() > 0) Step(*batch);
    const auto fetched = batch->TakeRecords();
    EXPECT_EQ(ToBytes(fetched), expected);
  }
  void Step(Batch& batch) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch.Next(random_));
    ASSERT_EQ(requests.size(), 2u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes offline, Send(requests[0]));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes online, Send(requests[1]));
    const BytesView answers[] = {offline, online};
    SHOAL_ASSERT_OK(batch.Finish(answers));
  }

  const Engine& engine_;
  Records records_;
  std::unique_ptr<Server> servers_[2];  // offline, online
  RecordCheck check_ = nullptr;
  std::optional<MemoryStore> store_{std::in_place};
  shoal::testing::TestRandom random_{1};
  std::vector<Request> sent_;
};

}  // namespace shoal::pir::sets::testing

#endif  // SHOAL_SRC_PIR_SETS_PAIR_FIXTURE_H_
