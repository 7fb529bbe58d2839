// A deployment behind a Transport, for tests of clients. Has real keys, a real signed table, real
// onions and tallies (of two tiers real pieces, parts and halves), but runs in one process that
// knows everything, and neither adds noise nor shuffles.
#ifndef SHOAL_SRC_CLIENT_TESTING_FAKE_FRONTEND_H_
#define SHOAL_SRC_CLIENT_TESTING_FAKE_FRONTEND_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/query_buckets.h"
#include "src/base/testing/test_clock.h"
#include "src/base/testing/test_random.h"
#include "src/client/transport.h"
#include "src/onion/hpke.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/round/header.h"
#include "src/sharing/halves.h"
#include "src/table/table.h"

namespace shoal::client::testing {

struct FakeOptions {
  // Every epoch has the values of the first one.
  bool values_stay = false;
  uint32_t parties = 3;
  bool dense = false;
  // "key-0" .. (hashed) or 0 .. (dense), with values "value of key-0" and so on.
  size_t records = 300;
  // These as well, in every epoch.
  std::vector<std::pair<std::string, Bytes>> content = {};
  std::string table_name = "fake table";
  uint64_t roster_epoch = 1;
  uint64_t table_epoch = 1;
  uint32_t row_bytes = 256;
  uint64_t seed = 1;
  // The time of its clock at the start.
  uint64_t now_s = shoal::testing::kNowS;
  uint32_t max_slots = 1 << 16;
  // Of party 1, at 127.0.0.1:7000, :7101, :7201 and so on. All of them are this object.
  uint32_t machines = 1;
  // Noise that protects five queries together at (1, 1e-6), instead of single ones at (1, 1e-3).
  bool protects_five = false;
  // If not 0, every round has a term with so many refreshes, of 20 days, and half of every row of
  // the first epoch is free.
  uint32_t refreshes = 0;
  // Two tiers, in the roster (for two parties) and in the table.
  uint32_t most_in_bucket = 0, query_buckets = 0;
  // The certificate that the roster names for party 1; random bytes if it is not set.
  std::optional<Digest> certificate_sha256 = {};
};

class FakeFrontend final : public Transport {
 public:
  explicit FakeFrontend(FakeOptions options = {});

  // Serves the next epoch of the table from now on, as the n-th with the values Value(i, n). Rounds
  // that are open stay as they are. With `keep_rows`, every key keeps its row, and full rows lack
  // keys.
  void NextEpoch(size_t records, bool keep_rows = false);
  // Gives a party another BLS key, which its present one signs, in a roster and a table of the next
  // epochs. Pins stay.
  void RenewKey(uint32_t number);
  // The next epoch of the roster, as `change` leaves it. Keys and table stay.
  void NextRoster(const std::function<void(wire::Roster&)>& change);
  // The same with another certificate of party 1.
  void RenewCertificate();
  // Opens a new round for onions.
  Digest OpenRound();
  void SetState(const Digest& round_id, wire::RoundState state);
  // Answers the term of a round from the present table: the latest refresh from now on.
  void Refresh(const Digest& round_id);
  // The rows that were asked in a round, by slot.
  std::map<uint32_t, uint32_t> Asked(const Digest& round_id) const;
  uint64_t counter(const Digest& round_id) const;
  // A header for tests to spoil; `Sign` signs it again.
  wire::RoundHeader MakeHeader(uint64_t counter);
  wire::SignedHeader Sign(const wire::RoundHeader& header) const;
  wire::SignedManifest Sign(const wire::Manifest& manifest) const;

  const roster::PinnedParties& pins() const { return *pins_; }
  const roster::Roster& roster() const { return *roster_; }
  const table::Table& table() const { return *table_; }
  shoal::testing::TestClock& clock() { return clock_; }
  ThreadPool& pool() { return pool_; }
  shoal::testing::TestRandom& random() { return random_; }
  static std::string Key(size_t i);
  static std::string Value(size_t i, uint64_t epoch = 1);

  // --- what a test may change ---

  // The response to GetDeployment.
  wire::GetDeploymentResponse deployment;
  // How long terms last from their announcement on.
  uint64_t term_s = 20 * 24 * 3600;
  // Whether rounds have one, where the roster allows it.
  bool opens_terms = true;
  // Whether a round advances by itself to the state that a client waits for.
  bool advance = true;
  // If set, a round goes to the state that this returns, not to the state that the client waits
  // for.
  std::function<wire::RoundState(const Digest& round_id, wire::RoundState wanted)> reach;
  // Called before a request is served. An error is the answer then. `name` is the method's.
  std::function<absl::Status(const std::string& name)> before;
  // Called after a request was served. An error is the answer then, as if the response were lost.
  std::function<absl::Status(const std::string& name)> after;
  // Spoils the answer to a row before it is masked; of two tiers what the tail of half A selects.
  std::function<void(uint32_t row, MutableBytes answer)> spoil;
  // Of two tiers: whether honest parties have lost this half of the answer to a row, as its tag was
  // wrong on the way. They give pseudorandom bytes in its place.
  std::function<bool(uint32_t row, sharing::Half half)> lost_half;
  // Spoils the response that carries slots.
  std::function<void(wire::SubmitOnionsResponse&)> spoil_submission;
  // Spoils the response that carries answers.
  std::function<void(wire::FetchAnswersResponse&)> spoil_fetch;
  // Spoils the response that names a refresh.
  std::function<void(wire::GetRefreshResponse&)> spoil_refresh;
  // Spoils pieces of the lists of rows' epochs.
  std::function<void(wire::RowVersionList list, wire::GetRowVersionsResponse&)> spoil_versions;
  // What the status says of the parties.
  std::vector<wire::PartyState> parties;
  uint64_t parties_age_s = 0;
  // And of terms.
  std::vector<wire::TermReport> terms;
  // Spoils rounds as they are listed.
  std::function<void(wire::RoundInfo&)> spoil_round;
  // Every request that writes and every end of the connection ("HangUp"), in order: the method's
  // name and the message's bytes.
  std::vector<std::pair<std::string, std::string>> sent;

  // --- Transport ---

  absl::StatusOr<wire::GetDeploymentResponse> GetDeployment(
      const wire::GetDeploymentRequest& request) override;
  absl::StatusOr<wire::GetPlacementResponse> GetPlacement(
      const wire::GetPlacementRequest& request) override;
  absl::StatusOr<wire::GetRowVersionsResponse> GetRowVersions(
      const wire::GetRowVersionsRequest& request) override;
  absl::StatusOr<wire::ListRoundsResponse> ListRounds(
      const wire::ListRoundsRequest& request) override;
  absl::StatusOr<wire::WaitRoundResponse> WaitRound(const wire::WaitRoundRequest& request) override;
  absl::StatusOr<wire::SubmitOnionsResponse> SubmitOnions(
      const wire::SubmitOnionsRequest& request) override;
  absl::StatusOr<wire::SubmitQueriesResponse> SubmitQueries(
      const wire::SubmitQueriesRequest& request) override;
  absl::StatusOr<wire::FetchAnswersResponse> FetchAnswers(
      const wire::FetchAnswersRequest& request) override;
  absl::StatusOr<wire::GetStatusResponse> GetStatus(const wire::GetStatusRequest& request) override;
  absl::StatusOr<wire::GetRefreshResponse> GetRefresh(
      const wire::GetRefreshRequest& request) override;
  absl::StatusOr<wire::FetchRefreshResponse> FetchRefresh(
      const wire::FetchRefreshRequest& request) override;
  // Whoever it is shows that party's certificate of the roster that is served now.
  absl::Status RequireParty(const roster::Roster& roster, uint32_t party) override;
  void ForgetParty() override { required_.reset(); }
  void HangUp() override { sent.emplace_back("HangUp", ""); }
  Traffic traffic() const override { return traffic_; }

 private:
  struct Slot {
    std::vector<Bytes> seeds;  // party 1's first; of two tiers in the order of sharing::QuerySeed
    std::string query;         // the tally or the parts that came
    std::optional<uint32_t> row;
    std::vector<Bytes> results;  // of two tiers: x of half A and of half B, with room for a tag
  };
  struct FakeRound {
    wire::SignedHeader header;
    std::shared_ptr<const table::Table> table;
    std::vector<onion::KeyPair> keys;
    wire::RoundState state = wire::OPEN_FOR_ONIONS;
    std::vector<Slot> slots;
    wire::GetRefreshResponse refresh;                   // the latest
    std::shared_ptr<const table::Table> refresh_table;  // which it is from
    std::map<Digest, uint32_t> first_slots;             // by the digest of the whole submission
    std::set<std::string> encs;
  };
  void MakeTable(size_t records, uint64_t epoch, bool keep_rows = false);
  // The parties' draft, signed by all.
  void ServeRoster();
  std::string SignatureOfAll(const Digest& digest) const;
  bool has_two_tiers() const { return options_.query_buckets != 0; }
  QueryBuckets Buckets(const FakeRound& round) const {
    return {round.table->rows(), round.header.header().query_buckets()};
  }
  // The slots of a submission of so many bytes, or 0.
  size_t Slots(size_t bytes) const;
  // Gives a submission's onions the next slots.
  void Peel(const Digest& id, const std::string& submission, size_t onions, FakeRound& round) const;
  // Opens a submission, or a piece, as parties do whose keys are given, and adds their seeds.
  void Peel(const Digest& id, std::span<const onion::KeyPair> keys, BytesView piece,
            std::span<Slot> slots) const;
  // The number of the row that the slot's tally or parts ask for. PERMISSION_DENIED for a wrong
  // tag.
  absl::StatusOr<uint32_t> RowOf(const FakeRound& round, const Digest& id, Slot& slot) const;
  absl::StatusOr<uint32_t> RowOfParts(const FakeRound& round, const Digest& id, Slot& slot) const;
  // What FetchAnswers gives for a slot that was used.
  Bytes AnswerOf(const FakeRound& round, const Digest& id, const Slot& slot) const;
  Bytes HalvesOf(const FakeRound& round, const Digest& id, const Slot& slot) const;
  absl::StatusOr<FakeRound*> Find(const std::string& round_id);
  wire::RoundInfo Info(const FakeRound& round) const;
  // The slots of a request; `tokens`: nothing if it has none.
  absl::StatusOr<std::vector<uint32_t>> CheckSlots(const FakeRound& round, const Digest& id,
                                                   const std::string& slots,
                                                   const std::string* tokens) const;
  absl::Status CheckCertificate() const;
  template <typename Request>
  absl::Status Begin(const std::string& name, const Request& request, bool log);
  template <typename Response>
  absl::StatusOr<Response> End(const std::string& name, Response response);

  const FakeOptions options_;
  shoal::testing::TestRandom random_;
  shoal::testing::TestClock clock_;
  ThreadPool pool_{2};
  roster::testing::Parties parties_;
  std::optional<roster::PinnedParties> pins_;
  std::optional<roster::Roster> roster_;
  std::shared_ptr<const table::Table> table_;
  // Every epoch that was served: a frontend can go back to the lists of an older one.
  std::vector<std::shared_ptr<const table::Table>> epochs_;
  uint64_t last_counter_ = 0;
  std::map<Digest, FakeRound> rounds_;
  std::map<Digest, std::vector<onion::KeyPair>> onion_keys_;
  Traffic traffic_;
  std::optional<std::pair<uint32_t, Digest>> required_;  // a party and its certificate
};

// A connection to a frontend that several threads may use: calls take turns.
// `before`, if it is set, is called before each request; an error is the answer then.
std::unique_ptr<Transport> ConnectTo(
    FakeFrontend* frontend, std::mutex* mutex,
    std::function<absl::Status(const std::string& name)> before = nullptr);

}  // namespace shoal::client::testing

#endif  // SHOAL_SRC_CLIENT_TESTING_FAKE_FRONTEND_H_
