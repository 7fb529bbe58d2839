// A whole deployment in one process, for tests: keys, roster, a signed table, parties with journals
// that survive a restart, and a frontend. Its clients are written independently of the client
// library, so that the two check each other. Everything is a function of one seed. Links between
// parties can be tampered with.
#ifndef SHOAL_SRC_SERVER_TESTING_DEPLOYMENT_H_
#define SHOAL_SRC_SERVER_TESTING_DEPLOYMENT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/address_block.h"
#include "src/base/byte_source.h"
#include "src/base/testing/test_clock.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/testing/parties.h"
#include "src/round/header.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/server/refreshes.h"
#include "src/server/round_context.h"
#include "src/server/terms.h"
#include "src/server/testing/memory_journal.h"
#include "src/sharing/sharing.h"
#include "src/signature/bls.h"
#include "src/storage/spool.h"

namespace shoal::server::testing {

// Where a link breaks in a stage: before its message arrives, half way through its bulk (that of
// the answers in the online stage), or after all was done and before the answer is back.
enum class Break { kBefore, kHalfWay, kAfter };

// The calls of half B of a round of two tiers.
enum class HeadCall { kOffline, kQueries, kAnswers };

// How a malicious link or neighbour changes the messages from party j to j+1 and back.
struct Tamper {
  std::function<void(wire::RoundHeader&)> draft;
  std::function<void(wire::SignedHeader&)> signed_back;
  std::function<void(Bytes&)> onions;
  std::function<void(Bytes&)> queries;
  std::function<void(Bytes&)> answers;
  // Of a call for half B: what goes to party 2, and what comes back.
  std::function<void(HeadCall, Bytes&)> to_head, from_head;
  std::function<bool(HeadCall, Break)> breaks_head;  // as breaks_offline
  std::function<void(StageReports&)> reports;
  std::function<void(wire::SignedLiveRounds&)> live;  // also those that come with proposals
  std::function<void(const wire::LiveRounds&, ListAnswer&)> list_answer;
  std::function<void(wire::RefreshHeader&)> proposed_refresh;
  std::function<void(wire::SignedRefreshHeader&)> refresh;
  std::function<void(Bytes&, std::vector<round::RefreshTag>&)> refreshed;
  // Asked at each of these places in each try of a stage: whether the link breaks there.
  std::function<bool(Break)> breaks_offline, breaks_online, breaks_proposal, breaks_refresh;
  std::atomic<bool> down = false;  // the next party cannot be reached
  bool loses_headers = false;      // its answers to proposals are lost
  // Lists of live rounds do not arrive, but with proposals.
  std::atomic<bool> loses_lists = false;
};

struct DeploymentOptions {
  uint32_t parties = 3;
  uint64_t rows = 40;
  uint32_t row_bytes = 64;
  uint64_t seed = 1;
  size_t threads = 2;
  // Lists and answers that do not fit this go to files; with 0 all of them do.
  uint64_t spool_memory_bytes = 1 << 30;
  RoundPlan plan = {};
  // Told of stages, as the options of a party say.
  std::function<void(const wire::StageReport& report)> stage_done = nullptr;
  // Called before a party makes a piece of what it sends for a round (Resources).
  std::function<void(const Digest& round_id)> making_piece = nullptr;
  // Of two tiers, with two parties, if they are not 0.
  uint32_t query_buckets = 0, most_in_bucket = 0;
  wire::TermLimit term_limit = {};  // without days: the roster has none, and parties keep no terms
  noise::Parameters noise = {.mechanism = noise::Mechanism::kGeometric,
                             .epsilon = 1,
                             .delta = 1e-2,
                             .phi = 1,
                             .mode = 6,
                             .left_scale = 1.25,
                             .right_scale = 5.0};
};

// What a deployment has but for its processes: keys, a roster, epochs of a signed table; and what
// its processes share in tests.
class World {
 public:
  // With parties of so many machines each, if they are named, which have keys that sign alone.
  explicit World(const DeploymentOptions& options, const std::vector<uint32_t>& machines = {});

  uint32_t parties() const { return roster_->size(); }
  const roster::Roster& roster() const { return *roster_; }
  // Of the party, which is numbered from 1, as everywhere.
  const signature::SecretKey& key(uint32_t number) const { return parties_.key(number); }
  ::shoal::testing::TestClock& clock() { return clock_; }
  ::shoal::testing::TestRandom& random() { return random_; }
  SpoolPlace& spools() { return spools_; }
  Resources resources() { return {.pool = &pool_, .spools = &spools_}; }

  // The first epoch of the table.
  const round::TableFacts& table() const { return tables_.front().facts; }
  // row | signature, in an epoch of the table.
  BytesView Answer(uint64_t row, uint64_t epoch = 1) const;
  // Makes the next epoch of the table, with other rows. Returns its number. Epochs with equal
  // `places` have keys at the same places.
  uint64_t MakeEpoch(uint64_t rows, uint32_t row_bytes, uint8_t places = 0);
  // An epoch as party `number` takes it.
  TableEpoch Epoch(uint64_t epoch, uint32_t number) const;
  // OK if `answer` (unmasked) is this row of the first epoch, signed by all parties.
  absl::Status Verify(uint64_t row, BytesView answer) const;

 private:
  struct TableContent {
    round::TableFacts facts;
    std::shared_ptr<const Bytes> answers;
  };

  ::shoal::testing::TestRandom random_;
  ::shoal::testing::TestClock clock_;
  ThreadPool pool_;
  SpoolPlace spools_;
  roster::testing::Parties parties_;
  std::optional<roster::Roster> roster_;
  uint32_t query_buckets_ = 0;
  std::vector<TableContent> tables_;  // epoch 1 first
};

class Deployment : public World {
 public:
  explicit Deployment(DeploymentOptions options);
  ~Deployment();

  Frontend& frontend() { return *frontend_; }
  Party& party(uint32_t number);
  ChainNode& node(uint32_t number);
  // If the roster has a term limit.
  Terms& terms(uint32_t number);
  // Where they are, in a directory of the test's own.
  std::string TermsDirectory(uint32_t number) const;
  Disk& disk(uint32_t number);
  // From which the party has derived the secrets of the round that it drafted last. This copy has
  // every bit flipped, so that a search of the memory for the party's own does not find it.
  Seed FlippedRoot(uint32_t number) const;
  Seed Root(uint32_t number) const;
  // Between party `number` and the next.
  Tamper& tamper(uint32_t number);

  // The process of a party dies and comes back with its disk and the epoch of the table that it had
  // last; that of party 1 includes the frontend.
  void Restart(uint32_t number);

  // Steps of a round, as the driver takes them.
  absl::StatusOr<round::Round> Announce();
  absl::Status RunOffline(const Digest& round_id);
  absl::Status RunOnline(const Digest& round_id);
  absl::Status EndRound(const Digest& round_id);
  // At party 1, if the roster has a term limit.
  Refreshes& refreshes() { return *refreshes_; }
  absl::StatusOr<Refreshes::Done> RunRefresh(const Digest& round_id) {
    return refreshes().Run(round_id, node(1));
  }
  // A party takes an epoch of the table.
  absl::Status Take(uint32_t number, uint64_t epoch) {
    return party(number).TakeEpoch(Epoch(epoch, number));
  }
  // Tells all parties which rounds live, and aborts what they lack. Returns its ids.
  absl::StatusOr<std::vector<Digest>> SendList();

 private:
  struct Machine;
  class TamperedLink;
  void Start(uint32_t number, uint64_t epoch);

  const DeploymentOptions options_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::unique_ptr<Frontend> frontend_;
  SpoolPlace refresh_spools_{"/tmp", 0};
  std::unique_ptr<Refreshes> refreshes_;
  std::string directory_;  // of the terms; removed at the end
};

// Run a party's stages on complete input and return the complete output.
absl::StatusOr<Bytes> Offline(Party& party, const wire::SignedHeader& header, Bytes onions);
// The same at party 1.
struct SealedRound {
  Bytes list;
  uint64_t onions = 0;
};
absl::StatusOr<Bytes> Offline(Party& party, const wire::SignedHeader& header, SealedRound input);
absl::StatusOr<Bytes> Queries(Party& party, const Digest& round_id, BytesView queries);
absl::StatusOr<Bytes> AnswerQueries(Party& party, const Digest& round_id, BytesView queries);
absl::StatusOr<Bytes> Answers(Party& party, const Digest& round_id, Bytes answers);
absl::StatusOr<SealedRound> Seal(Frontend& frontend, const Digest& round_id);

// What a party whose round has this root commits to of a content.
Digest DigestOf(const Seed& root, Content content, BytesView bytes);

// Submits one submission.
absl::StatusOr<Frontend::Submitted> Submit(Frontend& frontend, const Digest& round_id,
                                           BytesView submission);

// What a client holds for one slot.
struct Secret {
  std::vector<Seed> ephemeral;  // of the layers for party 1, 2, ..
  std::vector<Seed> seeds;      // of party 1, 2, ..
  Bytes submission;             // of this slot alone
  uint32_t slot = 0;
  uint64_t row = 0;
  sharing::Token token(const Digest& round_id) const;
  uint32_t FirstTally(const Digest& round_id) const;
  // Unmasks what was fetched for the slot, and takes its tag off. False if the tag is wrong: then
  // the answer is zeros. In a refresh each party has an id of its own (round::RefreshMasksId).
  bool Unmask(const Digest& round_id, Bytes& answer) const;
  bool Unmask(std::span<const Digest> ids, Bytes& answer) const;
  // The secret of the round's term, as a client keeps it.
  Secret OfTerm(const Digest& round_id) const;
};

// A client of the simplest kind, with a secret for each query.
class Client {
 public:
  // Of the deployment's frontend, whichever it has at the time.
  Client(Deployment* deployment, const round::Round& round, Origin from = std::nullopt)
      : world_(deployment), deployment_(deployment), round_(round), from_(std::move(from)) {}
  // Of this frontend, which may be null for a client that only makes secrets.
  Client(World* world, const round::Round& round, Origin from, Frontend* frontend)
      : world_(world), frontend_(frontend), round_(round), from_(std::move(from)) {}
  Client(Client&&) = default;
  Client& operator=(Client&&) = default;

  // Makes and submits `count` secrets.
  absl::Status Obtain(size_t count);
  // A secret with fresh ephemeral keys, or with given ones (of party 1, 2, ..); not submitted.
  Secret Make();
  Secret Make(std::vector<Seed> ephemeral);
  // One whose layers from party `from` on are made for the round `inner_id`.
  Secret Make(std::vector<Seed> ephemeral, uint32_t from, const Digest& inner_id);
  absl::Status Submit();  // all that have been added and not submitted
  void Add(Secret secret) { secrets_.push_back(std::move(secret)); }

  // Uses the first rows.size() slots.
  absl::Status Query(const std::vector<uint64_t>& rows);
  // Masked answers of the used slots, in order, unmasked.
  absl::StatusOr<std::vector<Bytes>> Fetch();
  // The same of the latest refresh of the round's term.
  absl::StatusOr<std::vector<Bytes>> FetchRefresh();
  wire::FetchRefreshRequest RefreshRequest(const wire::GetRefreshResponse& latest) const;

  std::vector<Secret>& secrets() { return secrets_; }
  const round::Round& round() const { return round_; }
  wire::SubmitQueriesRequest QueriesRequest() const;
  wire::FetchAnswersRequest AnswersRequest() const;

 private:
  Frontend& frontend() const { return deployment_ ? deployment_->frontend() : *frontend_; }

  World* world_;
  Deployment* deployment_ = nullptr;  // one of these
  Frontend* frontend_ = nullptr;
  round::Round round_;
  Origin from_;
  std::vector<Secret> secrets_;
  size_t submitted_ = 0;
  size_t used_ = 0;
};

}  // namespace shoal::server::testing

#endif  // SHOAL_SRC_SERVER_TESTING_DEPLOYMENT_H_
