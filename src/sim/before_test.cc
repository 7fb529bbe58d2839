// The files that version 0.2.0 has written are read by this one: those of a party, and of a client.
// testdata/before is what alice and a client had while the chain ran (scripts/upgrade-test --keep).
// The client had taken slots in a round that was lost, had asked in two rounds and enrolled in a
// term, and held slots in a round that took queries.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_clock.h"
#include "src/base/testing/test_random.h"
#include "src/client/config.h"
#include "src/client/state.h"
#include "src/client/watch.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/roster/signing_record.h"
#include "src/round/header.h"
#include "src/server/journal.h"
#include "src/server/terms.h"
#include "src/shoald/config.h"
#include "src/storage/spool.h"
#include "src/table/table.h"
#include "src/wire/text.h"

namespace shoal::sim {
namespace {

namespace fs = std::filesystem;
using ::shoal::testing::StatusIs;

// When the files were written.
constexpr uint64_t kNowS = 1'795'896'564;
// The round in which the client held slots.
constexpr RoundCounter kRound(1'795'896'563'001);

class BeforeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Neither git nor Bazel keeps who may read a file.
    fs::remove_all(directory_);
    fs::copy("src/sim/testdata/before", directory_, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      fs::permissions(entry, entry.is_directory() ? fs::perms::owner_all
                                                  : fs::perms::owner_read | fs::perms::owner_write);
    }
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  // The roster, as its pins take it.
  absl::StatusOr<roster::Roster> ReadRoster() const {
    SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pins,
                           roster::PinnedParties::Read(Path("alice/pinned.textproto")));
    wire::SignedRoster roster;
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(Path("alice/roster.textproto"), roster));
    return roster::Roster::Verify(roster, pins, kNowS);
  }
  // Of the rounds that the journal has.
  static absl::StatusOr<wire::SignedHeader> FirstRound(const server::FileJournal& journal) {
    SHOAL_ASSIGN_OR_RETURN(const Bytes kept, journal.LoadRounds());
    wire::ListRoundsResponse rounds;
    if (!rounds.ParseFromArray(kept.data(), static_cast<int>(kept.size())) ||
        rounds.rounds_size() == 0) {
      return absl::NotFoundError("no round is in the journal");
    }
    return rounds.rounds(0).header();
  }

  const std::string directory_ = absl::StrCat(::testing::TempDir(), "/before");
  testing::TestRandom random_{1};
  testing::TestClock clock_{kNowS};
  ThreadPool pool_{2};
};

TEST_F(BeforeTest, APartyTakesItsFiles) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const shoald::ServerConfig config,
                             shoald::ReadServerConfig(Path("alice/party.textproto")));
  EXPECT_EQ(config.party(), 1u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::PartyKeys keys,
                             roster::PartyKeys::Load(config.keys_directory()));
  wire::PartyAnnouncement announced;
  SHOAL_ASSERT_OK(wire::ReadTextFile(Path("alice/alice.announcement"), announced));
  EXPECT_EQ(announced.SerializeAsString(), keys.announcement().SerializeAsString());
  SHOAL_EXPECT_OK(roster::PartyFromAnnouncement(announced, kNowS));
  EXPECT_THAT(roster::RecordSigning(config.keys_directory(), "roster demo", 1, Digest()),
              StatusIs(absl::StatusCode::kUnauthenticated, "second content for epoch 1"));

  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::Roster roster, ReadRoster());
  EXPECT_EQ(roster.NumberOf(keys.bls().public_key()), 1u);
  EXPECT_TRUE(roster.renewed().empty());
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const table::Table table,
      table::Table::Open(config.table_directory(), roster, kNowS, random_, pool_));
  EXPECT_EQ(table.manifest().epoch(), 1u);
  // The keys can be renewed, and the roster is followed from the pins of before.
  SHOAL_EXPECT_OK(keys.Renew(/*only_tls=*/false, kNowS, random_));
}

TEST_F(BeforeTest, APartyStillKnowsWhatItHasSent) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::Roster roster, ReadRoster());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto journal, server::FileJournal::Open(Path("alice/state")));
  EXPECT_EQ(journal->highest_epoch("roster demo"), 1u);
  EXPECT_THAT(journal->CommitRound(kRound, server::Content::kHeader, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "counters only rise"));
  SHOAL_EXPECT_OK(journal->CommitEpoch("roster demo", 1, roster.digest()));
  EXPECT_THAT(journal->CommitEpoch("roster demo", 1, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "another content"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::SignedHeader header, FirstRound(*journal));
  EXPECT_EQ(header.header().counter(), kRound.value());
}

// Everything about the round holds, and all parties have signed it, as a round of 0.2.
TEST_F(BeforeTest, ARoundOf02IsNone) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::Roster roster, ReadRoster());
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const table::Table table,
      table::Table::Open(Path("alice/table"), roster, kNowS, random_, pool_));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto journal, server::FileJournal::Open(Path("alice/state")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::SignedHeader header, FirstRound(*journal));
  const round::TableFacts facts = {.manifest_digest = table.manifest().digest(),
                                   .rows = table.manifest().rows(),
                                   .row_bytes = table.manifest().row_bytes()};
  EXPECT_THAT(round::Round::Verify(header, roster, facts, kNowS),
              StatusIs(absl::StatusCode::kUnauthenticated, "round header"));
}

// Its arrays have seeds of the id under which the round took place, so that nobody can be answered.
TEST_F(BeforeTest, ATermOf02IsErased) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::Roster roster, ReadRoster());
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::PartyKeys keys,
                             roster::PartyKeys::Load(Path("alice/keys")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto journal, server::FileJournal::Open(Path("alice/state")));
  const std::string directory = Path("alice/state/terms");
  ASSERT_FALSE(fs::is_empty(directory));
  std::string why;
  SpoolPlace spools(directory_, /*memory_bytes=*/0);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto terms,
      server::Terms::Open(
          {.number = PartyNumber(1),
           .roster = roster,
           .directory = directory,
           .table = [] { return nullptr; },
           .ended = [&](RoundCounter, absl::string_view ended) { why = std::string(ended); }},
          &keys.bls(), journal.get(), &random_, &clock_, {.pool = &pool_, .spools = &spools}));
  EXPECT_EQ(why, "of Shoal 0.2, whose terms end with it");
  EXPECT_TRUE(terms->All().empty());
  EXPECT_TRUE(fs::is_empty(directory));
}

TEST_F(BeforeTest, AClientForgetsNoBudget) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const client::Config config,
                             client::ReadConfig(Path("client/client.textproto")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::Roster roster, ReadRoster());
  const auto expect_kept = [&](const client::State& state) {
    EXPECT_EQ(state.deployment, config.pins.deployment());
    ASSERT_TRUE(state.roster.has_value());
    EXPECT_EQ(state.roster->digest, roster.digest());
    EXPECT_EQ(state.followed_keys, std::nullopt);
    EXPECT_TRUE(state.rounds.empty());
    // Two lookups and an enrolment.
    EXPECT_EQ(state.ledger.submissions(), 3u);
    EXPECT_EQ(state.ledger.queries(), 24u);
    // The round that was lost, and the one in which slots are held.
    EXPECT_EQ(state.ledger.idle_rounds(), 2u);
    EXPECT_EQ(state.enrolments.size(), 1u);
    // The anchor was in the memory of another machine.
    EXPECT_EQ(state.ledger.doubts(), 1u);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const client::State shown,
                             client::ReadState(config.state_path, client::AnchorDirectory()));
  expect_kept(shown);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto store,
        client::FileStateStore::Open(config.state_path, client::AnchorDirectory(), random_));
    EXPECT_EQ(store->rounds_of_02(), 1u);
    expect_kept(store->state());
  }
  // What was charged is charged once. (An anchor in no memory is a doubt each time.)
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto store,
      client::FileStateStore::Open(config.state_path, client::AnchorDirectory(), random_));
  EXPECT_EQ(store->rounds_of_02(), 0u);
  EXPECT_EQ(store->state().ledger.submissions(), 3u);
  EXPECT_EQ(store->state().ledger.idle_rounds(), 2u);
  EXPECT_EQ(store->state().ledger.doubts(), 2u);
}

TEST_F(BeforeTest, AnEnrolmentIsOverAndWhatIsKnownStays) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const client::Config config,
                             client::ReadConfig(Path("client/client.textproto")));
  const std::string term = config.state_path + ".term";
  ASSERT_TRUE(fs::exists(term));
  std::string told;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto watch,
      client::Watch::Open(config.state_path,
                          {.clock = &clock_,
                           .random = &random_,
                           .pool = &pool_,
                           .sleep = nullptr,
                           .progress = [&](absl::string_view what) { told = std::string(what); }}));
  EXPECT_FALSE(watch->has_term());
  EXPECT_FALSE(fs::exists(term));
  EXPECT_NE(told.find("a term of Shoal 0.2, which is over"), std::string::npos) << told;
  EXPECT_EQ(watch->latest_epoch(), 1u);
  const std::string key = "key-5", value = "value 25";
  client::Lookup known;
  known.outcome = client::Lookup::Outcome::kFound;
  known.value = ToBytes(AsBytes(value));
  EXPECT_FALSE(watch->Take(AsBytes(key), known, 1).has_value());
  known.value.push_back('!');
  EXPECT_TRUE(watch->Take(AsBytes(key), known, 1).has_value());
}

}  // namespace
}  // namespace shoal::sim
