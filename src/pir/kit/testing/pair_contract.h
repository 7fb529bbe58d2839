// What every engine with an offline and an online server has to do, as tests that a test of the
// engine runs: two servers, and a client whose state is a disk in memory.
#ifndef SHOAL_SRC_PIR_KIT_TESTING_PAIR_CONTRACT_H_
#define SHOAL_SRC_PIR_KIT_TESTING_PAIR_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/testing/memory_store.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::testing {

// A session as version 0.2 left it, with a query and its answers as the last two records of the
// journal; the same session as it is now, while the query waits for its answers; and when it has
// them.
struct TwoVersions {
  MemoryStore::Disk first, asked, now;
};
// The first use of a session of version 0.2 makes it a state of this version, whether the query had
// its answers or not, and what was spent stays spent.
void ExpectReadAndWithoutQueries(
    TwoVersions versions,
    const std::function<absl::StatusOr<std::unique_ptr<Session>>(SessionStore&)>& open);

class PairContract : public ::testing::Test {
 protected:
  // Behind it begins what the engine has of a request, and of a state.
  static constexpr size_t kIdBytes = sizeof(Digest);

  PairContract(const Engine& engine, uint64_t rows, uint32_t record_bytes);

  // ---- The parts of a test.

  void MakeServers(ServerOptions options = {});
  // With what is on disk, as after a start of the process.
  std::unique_ptr<Session> Open();
  absl::StatusOr<std::unique_ptr<Session>> TryOpen() { return OpenOn(*store_); }
  absl::StatusOr<std::unique_ptr<Session>> OpenOn(SessionStore& store);
  absl::StatusOr<Bytes> Send(const Request& request);
  void Prepare(Session& session);
  void Fetch(Session& session, const std::vector<uint64_t>& rows, uint64_t keys);
  void Step(Batch& batch);
  // The requests of a first query for the row, and the batch that they are of.
  std::unique_ptr<Batch> AskFor(Session& session, uint64_t row, std::vector<Request>& requests);
  uint64_t rows() const { return servers_[0]->setup().rows(); }
  uint32_t record_bytes() const { return servers_[0]->setup().record_bytes(); }

  // ---- The tests. Each begins with nothing on disk.

  void ExpectRecordsInEveryRun();
  // Hints come in `pieces`, the first number of each of which is behind a seed of `seed_bytes`, and
  // rises by `each`; a cut one is refused with these words.
  void ExpectPreparationGoesOn(uint32_t pieces, uint32_t each, size_t seed_bytes,
                               const char* refusal);
  void ExpectLostAnswersAreAskedForAgain();
  void ExpectAnEndWhenNothingIsDurable();
  // Of a client that asks three times. What was sent of one state is one pair of queries.
  void ExpectNothingIsSentTwiceByKilledClients();
  // `check(state, queries)` looks at the state after so many queries.
  void ExpectFileWithoutQueries(
      const std::function<void(const Bytes& state, uint64_t queries)>& check);
  void ExpectReads(uint64_t bytes_of_all_parities, uint64_t bytes_of_a_query);
  // A store of that content is refused with this code and these words.
  void ExpectRefused(MemoryStore::Disk disk, absl::StatusCode code, const char* part);
  // Requests of every kind with every fault that all kinds can have. `at`, behind the setup's id,
  // has the first hint of a request for hints, of which there are so many.
  void ExpectBadRequestsRefused(size_t at, uint32_t hints, const char* refusal);
  void ExpectServersToStateTheSame();
  void ExpectSizesOfMessages();
  // The rows, of which the second is asked for, change; then epochs are followed by a delta, again
  // after a kill, and without one.
  void ExpectEpochsToBeTaken(uint64_t row, uint64_t asked);
  void ExpectHintsToEndWhenTold(ThreadPool* heavy_pool);

  const Engine& engine_;
  Records records_;
  std::unique_ptr<Server> servers_[2];  // offline, online
  RecordCheck check_ = nullptr;
  std::optional<MemoryStore> store_{std::in_place};
  shoal::testing::TestRandom random_{1};
  std::vector<Request> sent_;
  // From a query to one server to that to the other, of all clients that were killed.
  std::map<Bytes, Bytes> pairs_[2];

 private:
  absl::Status RunToTheEnd(uint64_t row);
};

}  // namespace shoal::pir::testing

#endif  // SHOAL_SRC_PIR_KIT_TESTING_PAIR_CONTRACT_H_
