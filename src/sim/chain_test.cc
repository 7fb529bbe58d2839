// Tests whole chains in one process: honest rounds work, and an honest party stops every attack
// that the guarantees of docs/threat-model.md name. Tests give the number of the guarantee that
// they protect.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/onion/onion.h"
#include "src/parallel/mutex.h"
#include "src/roster/testing/parties.h"
#include "src/server/journal.h"
#include "src/server/round_context.h"
#include "src/server/testing/deployment.h"
#include "src/wire/query_batch.h"
#include "src/wire/visible.h"

namespace shoal::sim {
namespace {

using server::testing::AnswerQueries;
using server::testing::Answers;
using server::testing::Client;
using server::testing::Deployment;
using server::testing::DeploymentOptions;
using server::testing::Offline;
using server::testing::Queries;
using server::testing::Seal;
using server::testing::SealedRound;
using server::testing::Secret;
using server::testing::Submit;
using ::shoal::testing::StatusIs;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<uint64_t> RandomRows(Deployment& deployment, size_t count) {
  std::vector<uint64_t> rows(count);
  for (uint64_t& row : rows) row = deployment.random().Below(deployment.table().rows);
  return rows;
}

// Counts the answers that are exactly the signed rows that were asked. Fails if any other answer
// verifies: a wrong answer must never be accepted.
size_t CountCorrect(Deployment& deployment, Client& client, const std::vector<uint64_t>& rows) {
  const auto answers = client.Fetch();
  EXPECT_THAT(answers, testing::IsOk());
  size_t correct = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool right = std::ranges::equal((*answers)[i], deployment.Answer(rows[i]));
    if (!right) {
      EXPECT_FALSE(deployment.Verify(rows[i], (*answers)[i]).ok()) << "wrong and accepted";
    }
    correct += right;
  }
  return correct;
}

class WholeChainTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(WholeChainTest, ThousandsOfQueriesOverSeveralRoundsAtATime) {
  // With an odd number of parties, lists and answers go to files.
  Deployment deployment(
      {.parties = GetParam(), .spool_memory_bytes = GetParam() % 2 == 0 ? uint64_t{1} << 30 : 0});
  struct Open {
    round::Round round;
    std::vector<Client> clients;
    std::vector<std::vector<uint64_t>> rows;
  };
  std::vector<Open> open;
  // All rounds take onions before the first is sealed.
  for (size_t r = 0; r < 3; ++r) {
    SHOAL_ASSERT_OK_AND_ASSIGN(round::Round round, deployment.Announce());
    open.push_back({round, {}, {}});
    for (size_t c = 0; c < 10; ++c) {
      open[r].clients.emplace_back(&deployment, round);
      SHOAL_ASSERT_OK(open[r].clients.back().Obtain(30 + 60 * r));
      open[r].rows.push_back(RandomRows(deployment, 30 + 60 * r));
    }
  }
  for (Open& o : open) SHOAL_ASSERT_OK(deployment.RunOffline(o.round.id()));
  for (Open& o : open) {
    for (size_t c = 0; c < o.clients.size(); ++c) {
      if (c == 3) continue;             // never comes back
      if (c == 4) o.rows[c].resize(7);  // uses some of its slots
      SHOAL_ASSERT_OK(o.clients[c].Query(o.rows[c]));
    }
  }
  for (size_t r : {2u, 0u, 1u}) {  // in any order
    Open& o = open[r];
    SHOAL_ASSERT_OK(deployment.RunOnline(o.round.id()));
    for (size_t c = 0; c < o.clients.size(); ++c) {
      if (c == 3) continue;
      EXPECT_EQ(CountCorrect(deployment, o.clients[c], o.rows[c]), o.rows[c].size());
    }
    SHOAL_ASSERT_OK(deployment.EndRound(o.round.id()));
  }
}

INSTANTIATE_TEST_SUITE_P(Parties, WholeChainTest, ::testing::Values(2, 3, 5, 8));

// A deployment of three with a round open, for the tests below.
class GuardTest : public ::testing::Test {
 protected:
  GuardTest() : deployment_({.plan = {.stage_limit_s = 100}}) {}

  round::Round Announce() {
    auto round = deployment_.Announce();
    EXPECT_THAT(round, testing::IsOk());
    return *std::move(round);
  }
  static constexpr size_t kQueries = 60;

  // Runs a round up to the point where all queries have been submitted.
  round::Round RunToQueries(std::optional<Client>& client, std::vector<uint64_t>& rows) {
    round::Round round = Announce();
    client.emplace(&deployment_, round);
    EXPECT_THAT(client->Obtain(kQueries), testing::IsOk());
    EXPECT_THAT(deployment_.RunOffline(round.id()), testing::IsOk());
    rows = RandomRows(deployment_, kQueries);
    EXPECT_THAT(client->Query(rows), testing::IsOk());
    return round;
  }

  Deployment deployment_;
};

// Guarantee 1: one content for ever.
TEST_F(GuardTest, TheSameInputGivesTheSameOutputAndAnotherIsRefused) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), round.id()));
  server::Party& party = deployment_.party(1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes list, Offline(party, round.wire(), sealed));
  SHOAL_ASSERT_OK_AND_ASSIGN(Bytes again, Offline(party, round.wire(), sealed));
  EXPECT_EQ(list, again);
  SealedRound other = sealed;
  other.list.resize(other.list.size() - 4 - onion::SubmissionBytes(3, 1));
  --other.onions;
  EXPECT_THAT(Offline(party, round.wire(), other), StatusIs(kRefused, "another offline list"));
  other = sealed;
  other.list.back() ^= 1;
  EXPECT_THAT(Offline(party, round.wire(), other), StatusIs(kRefused, "another offline list"));
  // Once the next party has the list nothing is handed out, but a repeat that has begun goes on.
  const auto once_more = [&]() -> absl::StatusOr<std::unique_ptr<ByteSource>> {
    BytesSource source(Bytes(sealed.list));
    SHOAL_ASSIGN_OR_RETURN(
        auto intake, party.BeginOffline(round.wire(), source.size(), {.records = sealed.onions}));
    return party.Offline(std::move(intake), &source);
  };
  const auto all_have_sent_it = [&] {
    SHOAL_EXPECT_OK(party.SendTogether(round.id(), "list sent", 0,
                                       [](const server::OwnRun&) { return absl::OkStatus(); }));
  };
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto repeat, once_more());
    all_have_sent_it();
    SHOAL_ASSERT_OK_AND_ASSIGN(again, ReadAll(*repeat));
    EXPECT_EQ(list, again);
  }
  all_have_sent_it();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto nothing, once_more());
  EXPECT_EQ(nothing, nullptr);
  // The same at the middle party, where it matters most.
  server::Party& middle = deployment_.party(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes last, Offline(middle, round.wire(), list));
  SHOAL_ASSERT_OK(Offline(deployment_.party(3), round.wire(), last));

  wire::QueryBatch batch;
  for (uint32_t i = 0; i < kQueries; ++i) {
    batch.positions.push_back(i);
    batch.tallies.push_back(1000 + i);
  }
  const Bytes queries = EncodeQueryBatch(batch, kQueries);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes forwarded, Queries(party, round.id(), queries));
  EXPECT_EQ(*Queries(party, round.id(), queries), forwarded);
  ++batch.tallies[17];
  EXPECT_THAT(Queries(party, round.id(), EncodeQueryBatch(batch, kQueries)),
              StatusIs(kRefused, "another queries"));

  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes to_backend, Queries(middle, round.id(), forwarded));
  SHOAL_ASSERT_OK_AND_ASSIGN(Bytes answers,
                             AnswerQueries(deployment_.party(3), round.id(), to_backend));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes returned, Answers(middle, round.id(), answers));
  EXPECT_EQ(*Answers(middle, round.id(), answers), returned);
  answers[5] ^= 1;
  EXPECT_THAT(Answers(middle, round.id(), answers), StatusIs(kRefused, "another answers"));
}

TEST_F(GuardTest, AListInPiecesGivesTheSameOutput) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), round.id()));
  const Bytes& onions = sealed.list;
  server::Party& party = deployment_.party(1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes whole, Offline(party, round.wire(), sealed));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      auto intake, party.BeginOffline(round.wire(), onions.size(), {.records = sealed.onions}));
  for (size_t at = 0; at < onions.size();) {
    const size_t n = std::min<size_t>(1 + deployment_.random().Below(2000), onions.size() - at);
    SHOAL_ASSERT_OK(intake->Take(BytesView(onions).subspan(at, n)));
    at += n;
  }
  EXPECT_THAT(intake->Take(Bytes(1)), StatusIs(kInvalid, "more bytes"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto pieces, party.Offline(std::move(intake)));
  EXPECT_EQ(whole, *ReadAll(*pieces));
}

// Lists are taken on the threads that serve all connections. These must not wait while the party
// works on the list's round, for example makes noise.
TEST_F(GuardTest, AListIsLetInWhileItsRoundIsWorkedOn) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries, deployment_.frontend().CloseQueries(round.id()));
  server::Party& party = deployment_.party(1);
  std::promise<void> working, finish;
  deployment_.disk(1).before_write = [&, finished = finish.get_future().share(),
                                      first = true]() mutable {
    if (std::exchange(first, false)) working.set_value();
    finished.wait();
  };
  auto work = std::async(std::launch::async, [&] { return Queries(party, round.id(), queries); });
  working.get_future().wait();
  auto list = std::async(std::launch::async, [&]() -> absl::Status {
    const size_t bytes = kQueries * (4 + onion::SubmissionBytes(3, 1));
    SHOAL_ASSIGN_OR_RETURN(const auto intake,
                           party.BeginOffline(round.wire(), bytes, {.records = kQueries}));
    return intake->Take(Bytes(onion::SubmissionBytes(3, 1)));
  });
  EXPECT_EQ(list.wait_for(std::chrono::minutes(2)), std::future_status::ready);
  finish.set_value();
  SHOAL_EXPECT_OK(list.get());
  SHOAL_EXPECT_OK(work.get());
  deployment_.disk(1).before_write = nullptr;
}

// A connection may break without this party's noticing: a list that comes anew takes the place of
// the one that was on its way.
TEST_F(GuardTest, AListThatComesAnewTakesThePlaceOfTheOneOnItsWay) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), round.id()));
  server::Party& party = deployment_.party(1);
  const auto begin = [&] {
    return party.BeginOffline(round.wire(), sealed.list.size(), {.records = sealed.onions});
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(auto broken, begin());
  const size_t half = sealed.list.size() / 2;
  SHOAL_ASSERT_OK(broken->Take(BytesView(sealed.list).first(half)));
  SHOAL_ASSERT_OK_AND_ASSIGN(auto anew, begin());
  EXPECT_THAT(broken->Take(BytesView(sealed.list).subspan(half)), StatusIs(kRefused, "anew"));
  EXPECT_FALSE(party.Offline(std::move(broken)).ok());
  SHOAL_ASSERT_OK(anew->Take(sealed.list));
  SHOAL_EXPECT_OK(party.Offline(std::move(anew)));
}

TEST_F(GuardTest, AnUnfinishedListCommitsToNothing) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), round.id()));
  const Bytes& onions = sealed.list;
  server::Party& party = deployment_.party(1);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        auto intake, party.BeginOffline(round.wire(), onions.size(), {.records = sealed.onions}));
    SHOAL_ASSERT_OK(intake->Take(BytesView(onions).first(onions.size() - 1)));
    EXPECT_THAT(party.Offline(std::move(intake)), StatusIs(kInvalid, "ended after"));
  }
  {  // the connection broke
    SHOAL_ASSERT_OK_AND_ASSIGN(auto intake, party.BeginOffline(round.wire(), 0, {.records = 0}));
  }
  SHOAL_EXPECT_OK(Offline(party, round.wire(), sealed));
}

// Guarantee 1, after a restart: a party takes no other content for a round that it has seen.
TEST_F(GuardTest, ARestartedPartyRefusesItsOldRounds) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  deployment_.Restart(2);
  EXPECT_FALSE(deployment_.RunOnline(round.id()).ok());
  EXPECT_FALSE(Offline(deployment_.party(2), round.wire(), Bytes()).ok());
  // The party does not draft that counter again, whoever asks.
  wire::RoundHeader draft = round.header();
  while (draft.onion_keys_size() > 1) draft.mutable_onion_keys()->RemoveLast();
  EXPECT_THAT(deployment_.party(2).ExtendDraft(draft), StatusIs(kRefused, "only rise"));
  // The deployment continues with the next round.
  deployment_.frontend().Abort(round.id(), "party 2 restarted");
  const round::Round next = RunToQueries(client, rows);
  SHOAL_ASSERT_OK(deployment_.RunOnline(next.id()));
  EXPECT_EQ(CountCorrect(deployment_, *client, rows), rows.size());
}

// Guarantee 2: exactly one answer of the fixed size for every query, or nothing goes back.
TEST_F(GuardTest, AWithheldAnswerStopsTheWholeBatch) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  const size_t tagged_bytes = round.tagged_bytes();
  deployment_.tamper(2).answers = [&](Bytes& answers) {
    answers.erase(answers.begin(), answers.begin() + static_cast<ptrdiff_t>(tagged_bytes));
  };
  EXPECT_THAT(deployment_.RunOnline(round.id()), StatusIs(kInvalid, "answers"));
  EXPECT_FALSE(client->Fetch().ok());
}

// Guarantee 2: queries that fail are answered all the same, and look like the others.
TEST_F(GuardTest, DeadPositionsAndMissingRowsAreAnswered) {
  const round::Round round = Announce();
  // Ten honest queries, one for a row that does not exist, one whose onion is dead at party 2.
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(11));
  Client broken(&deployment_, round);
  Secret dead = broken.Make();
  {
    // Party 1's layer around rubbish: valid at party 1, dead at party 2.
    Bytes rubbish(onion::OnionBytes(2)), seed(32);
    deployment_.random().Fill(rubbish);
    const Seed ephemeral = deployment_.random().NewSeed();
    const onion::SubmissionToSeal submission = {.ephemeral_secret = ephemeral.view(),
                                                .onions = rubbish,
                                                .submission = dead.submission,
                                                .seeds = seed};
    onion::SealSubmissions(round.recipients()[0], round.id(), {&submission, 1});
    dead.seeds[0] = Seed(seed);
  }
  broken.Add(std::move(dead));
  SHOAL_ASSERT_OK(broken.Submit());
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  std::vector<uint64_t> rows = RandomRows(deployment_, 11);
  rows[10] = deployment_.table().rows + 5;
  SHOAL_ASSERT_OK(client.Query(rows));
  SHOAL_ASSERT_OK(broken.Query({3}));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client.Fetch());
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(rows[i])));
  }
  EXPECT_EQ(answers[10], Bytes(round.answer_bytes(), 0));
  // Pseudorandom from its first byte to the last of its tag, and so nothing that the client takes.
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto fetched,
                             deployment_.frontend().FetchAnswers(broken.AnswersRequest()));
  ASSERT_EQ(fetched.answers().size(), round.tagged_bytes());
  const std::string &all = fetched.answers(), tag = all.substr(round.answer_bytes());
  EXPECT_GT(std::set<char>(all.begin(), all.end()).size(), 40u);
  EXPECT_GT(std::set<char>(tag.begin(), tag.end()).size(), 8u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> nothing, broken.Fetch());
  EXPECT_EQ(nothing[0], Bytes(round.answer_bytes(), 0));
}

// Guarantee 3: of two onions that export the same seed, one is dead. Seeds are compared, and not
// encapsulated keys: the layers around them differ.
TEST_F(GuardTest, DuplicateSeedsDieBeforeTheShuffle) {
  const round::Round round = Announce();
  Client honest(&deployment_, round), thief(&deployment_, round);
  SHOAL_ASSERT_OK(honest.Obtain(5));
  // The thief has the layers of a victim for party 2 and later ones, as a colluding party 1 has;
  // and those of another for party 3, as a colluding party 2 has.
  for (uint32_t known : {2u, 3u}) {
    std::vector<Seed> ephemeral = thief.Make().ephemeral;
    for (uint32_t party = known; party <= 3; ++party) {
      ephemeral[party - 1] = honest.secrets()[known].ephemeral[party - 1].Clone();
    }
    thief.Add(thief.Make(std::move(ephemeral)));
  }
  SHOAL_ASSERT_OK(thief.Submit());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), round.id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes list, Offline(deployment_.party(1), round.wire(), sealed));
  const auto noise = [&](uint32_t number) {
    return deployment_.party(number).Reports(round.id()).back().noise_queries();
  };
  EXPECT_EQ(list.size() / onion::OnionBytes(2), 7 + noise(1));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes last, Offline(deployment_.party(2), round.wire(), list));
  EXPECT_EQ(last.size() / onion::OnionBytes(1), 6 + noise(1) + noise(2));  // one was dead
}

TEST_F(GuardTest, TheFirstOfEqualSeedsLives) {
  for (uint32_t known : {2u, 3u}) {
    const round::Round round = Announce();
    Client honest(&deployment_, round), thief(&deployment_, round);
    SHOAL_ASSERT_OK(honest.Obtain(1));
    std::vector<Seed> ephemeral = thief.Make().ephemeral;
    for (uint32_t party = known; party <= 3; ++party) {
      ephemeral[party - 1] = honest.secrets()[0].ephemeral[party - 1].Clone();
    }
    thief.Add(thief.Make(std::move(ephemeral)));
    SHOAL_ASSERT_OK(thief.Submit());
    EXPECT_EQ(Hex(thief.secrets()[0].seeds[2].view()), Hex(honest.secrets()[0].seeds[2].view()));
    SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
    SHOAL_EXPECT_OK(honest.Query({7}));
    SHOAL_EXPECT_OK(thief.Query({8}));
    SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
    // At party 2 the first is the one whose place after party 1's shuffle is the lower one. At most
    // one of the two is answered; the other one gets bytes that look random.
    EXPECT_EQ(CountCorrect(deployment_, honest, {7}) + CountCorrect(deployment_, thief, {8}), 1u);
    SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
  }
}

// Two plaintexts under one encapsulated key would be sealed with one key and nonce. A second
// submission with a key that came before is refused, and takes nothing from the first.
TEST_F(GuardTest, AnEncapsulatedKeyComesWithOneBody) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  std::vector<Seed> ephemeral = client.Make().ephemeral;
  ephemeral[0] = client.secrets()[0].ephemeral[0].Clone();
  const Bytes other = client.Make(std::move(ephemeral)).submission,
              &first = client.secrets()[0].submission;
  ASSERT_TRUE(std::equal(other.begin(), other.begin() + 32, first.begin()));
  Bytes damaged = first;
  damaged.back() ^= 1;
  const Bytes fresh = client.Make().submission;
  for (const Bytes& second : {other, damaged}) {
    EXPECT_THAT(Submit(deployment_.frontend(), round.id(), second),
                StatusIs(kInvalid, "the same encapsulated key"));
    // All or nothing, and also within one request.
    const std::vector<BytesView> several = {fresh, second};
    EXPECT_THAT(deployment_.frontend().SubmitOnions(round.id(), several, std::nullopt),
                StatusIs(kInvalid, "the same encapsulated key"));
  }
  EXPECT_EQ(deployment_.frontend().Info(round.id())->onions(), 1u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto again, Submit(deployment_.frontend(), round.id(), first));
  EXPECT_EQ(again.first_slots, (std::vector<uint32_t>{0}));
}

TEST_F(GuardTest, OnlySubmissionsAreTaken) {
  const round::Round round = Announce();
  const size_t one = onion::SubmissionBytes(3, 1);
  for (const size_t bytes : {size_t{0}, size_t{1}, one - onion::OnionBytes(2), one - 1, one + 1,
                             onion::kMaxSubmissionBytes + size_t{80}}) {
    EXPECT_THAT(Submit(deployment_.frontend(), round.id(), Bytes(bytes, 9)),
                StatusIs(kInvalid, "not a submission"));
  }
  EXPECT_THAT(deployment_.frontend().SubmitOnions(round.id(), {}, std::nullopt),
              StatusIs(kInvalid, "no submission"));
  EXPECT_EQ(deployment_.frontend().Info(round.id())->onions(), 0u);
}

TEST_F(GuardTest, ARepeatedSubmissionKeepsItsSlots) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  std::vector<BytesView> submissions;
  for (const Secret& secret : client.secrets()) submissions.push_back(secret.submission);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto again, deployment_.frontend().SubmitOnions(round.id(), submissions, std::nullopt));
  EXPECT_EQ(again.first_slots, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(deployment_.frontend().Info(round.id())->onions(), 3u);
}

// Guarantee 4: a change of any field of the header is refused.
TEST_F(GuardTest, ChangedHeadersAreNotSigned) {
  const std::map<std::string, std::function<void(wire::RoundHeader&)>> changes = {
      {"counter", [](auto& h) { h.set_counter(h.counter() + 1); }},
      {"roster", [](auto& h) { h.mutable_roster_digest()->at(0) ^= 1; }},
      {"manifest", [](auto& h) { h.mutable_manifest_digest()->at(0) ^= 1; }},
      {"own key", [](auto& h) { h.mutable_onion_keys(0)->at(3) ^= 1; }},
      {"next key", [](auto& h) { h.mutable_onion_keys(1)->at(3) ^= 1; }},
      {"too few keys", [](auto& h) { h.mutable_onion_keys()->RemoveLast(); }},
      {"rows", [](auto& h) { h.set_max_rows(h.max_rows() - 1); }},
      {"answer bytes", [](auto& h) { h.set_answer_bytes(h.answer_bytes() + 1); }},
      {"noise", [](auto& h) { h.mutable_noise()->set_mode(1); }},
      {"machines", [](auto& h) { h.set_machines(0, 2); }},
      {"slots", [](auto& h) { h.set_max_slots(h.max_slots() - 1); }},
      {"announced", [](auto& h) { h.set_announced_s(h.announced_s() - 1); }},
      {"onions close", [](auto& h) { h.set_onions_close_s(h.onions_close_s() - 1); }},
      {"queries close", [](auto& h) { h.set_queries_close_s(h.queries_close_s() - 1); }},
      {"expires", [](auto& h) { h.set_expires_s(h.expires_s() + 1); }},
      {"suite", [](auto& h) { h.set_onion_suite("x-wing"); }},
  };
  for (const auto& [what, change] : changes) {
    // On the way back, every earlier party sees that the header is not what it sent on. On the way
    // there, a change is detected at the latest by the party that sent something else.
    deployment_.tamper(1).signed_back = [&](wire::SignedHeader& h) { change(*h.mutable_header()); };
    EXPECT_FALSE(deployment_.Announce().ok()) << what;
    deployment_.tamper(1).signed_back = nullptr;
    deployment_.tamper(2).signed_back = [&](wire::SignedHeader& h) { change(*h.mutable_header()); };
    EXPECT_FALSE(deployment_.Announce().ok()) << what;
    deployment_.tamper(2).signed_back = nullptr;
    if (what == "next key" || what == "too few keys") continue;
    deployment_.tamper(1).draft = change;
    EXPECT_FALSE(deployment_.Announce().ok()) << what;
    deployment_.tamper(1).draft = nullptr;
  }
  SHOAL_EXPECT_OK(deployment_.Announce());
}

// Each party refuses a bad draft by itself, as the parties before it may be malicious.
TEST_F(GuardTest, BadDraftsAreRefusedByEveryPartyAlone) {
  const std::map<std::string, std::function<void(wire::RoundHeader&)>> changes = {
      {"counter out of range", [](auto& h) { h.set_counter(0); }},
      {"too far above the time", [](auto& h) { h.set_counter(1000 * (h.announced_s() + 86401)); }},
      {"another roster", [](auto& h) { h.mutable_roster_digest()->at(0) ^= 1; }},
      {"another table", [](auto& h) { h.mutable_manifest_digest()->pop_back(); }},
      {"2 onion keys instead of 1", [](auto& h) { h.add_onion_keys(std::string(32, 'k')); }},
      {"not 32 bytes", [](auto& h) { h.set_onion_keys(0, "short"); }},
      {"rows of a table", [](auto& h) { h.set_max_rows(h.max_rows() - 1); }},
      {"answers of", [](auto& h) { h.set_answer_bytes(h.answer_bytes() + 1); }},
      {"noise is not the roster's", [](auto& h) { h.mutable_noise()->set_mode(1); }},
      {"machine counts", [](auto& h) { h.set_machines(0, 2); }},
      {"slots, where", [](auto& h) { h.set_max_slots(0); }},
      {"out of order", [](auto& h) { h.set_queries_close_s(h.expires_s() + 1); }},
      {"suite, x-wing, is not the roster's", [](auto& h) { h.set_onion_suite("x-wing"); }},
      {"lives longer", [](auto& h) { h.set_expires_s(h.announced_s() + 8 * 24 * 3600); }},
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(wire::RoundHeader good,
                             deployment_.party(1).ExtendDraft(*deployment_.frontend().NewDraft()));
  for (const auto& [why, change] : changes) {
    wire::RoundHeader draft = good;
    change(draft);
    EXPECT_THAT(deployment_.party(2).ExtendDraft(draft).status(), StatusIs(kInvalid, why)) << why;
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(wire::RoundHeader last, deployment_.party(2).ExtendDraft(good));
  last.set_onion_keys(1, last.onion_keys(0));
  EXPECT_THAT(deployment_.party(3).ExtendDraft(last).status(),
              StatusIs(kInvalid, "the same onion key"));
}

TEST_F(GuardTest, HeadersThatAreNotSignedByAllAreRefused) {
  const round::Round round = Announce();
  wire::SignedHeader header = round.wire();
  // Two of three signatures.
  const std::vector<signature::Signature> some = {deployment_.key(1).Sign(round.id()),
                                                  deployment_.key(3).Sign(round.id())};
  header.set_signature(ToString(signature::AggregateSignatures(some)->bytes()));
  EXPECT_THAT(Offline(deployment_.party(2), header, Bytes()),
              StatusIs(absl::StatusCode::kUnauthenticated, "round header"));
  EXPECT_FALSE(round::Round::Verify(header, deployment_.roster(), deployment_.table(),
                                    deployment_.clock().now_s)
                   .ok());
}

TEST_F(GuardTest, OneHeaderIsSignedForACounter) {
  const round::Round round = Announce();
  wire::RoundHeader draft = round.header();
  while (draft.onion_keys_size() > 1) draft.mutable_onion_keys()->RemoveLast();
  EXPECT_THAT(deployment_.party(2).ExtendDraft(draft), StatusIs(kRefused, "only rise"));
  EXPECT_THAT(deployment_.party(2).SignHeader(round.wire()), StatusIs(kRefused, "signed already"));
}

TEST_F(GuardTest, StaleAndFutureProposalsAreRefused) {
  wire::RoundHeader draft = *deployment_.frontend().NewDraft();
  deployment_.clock().now_s += 61;
  EXPECT_THAT(deployment_.party(1).ExtendDraft(draft),
              StatusIs(absl::StatusCode::kUnauthenticated, "announced"));
  deployment_.clock().now_s -= 200;
  EXPECT_THAT(deployment_.party(1).ExtendDraft(draft),
              StatusIs(absl::StatusCode::kUnauthenticated, ""));
}

// Guarantee 4: layers that were made for another round do not open, or export another seed at the
// last party, also when the keys are the same party's.
TEST_F(GuardTest, OnionsOfAnotherRoundAreDead) {
  const round::Round first = Announce(), second = Announce();
  Client client(&deployment_, second);
  for (uint32_t from : {1u, 2u, 3u}) {
    client.Add(client.Make(client.Make().ephemeral, from, first.id()));
  }
  client.Add(client.Make());
  SHOAL_ASSERT_OK(client.Submit());
  SHOAL_ASSERT_OK(deployment_.RunOffline(second.id()));
  const std::vector<sharing::Token> tokens = {client.secrets()[3].token(second.id()),
                                              client.secrets()[0].token(second.id())};
  EXPECT_EQ(deployment_.party(1).FirstWrongToken(second.id(), std::vector<uint32_t>{3, 0}, tokens),
            1u);
  client.secrets().erase(client.secrets().begin());
  SHOAL_ASSERT_OK(client.Query({1, 2, 3}));
  SHOAL_ASSERT_OK(deployment_.RunOnline(second.id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client.Fetch());
  EXPECT_FALSE(deployment_.Verify(1, answers[0]).ok());
  EXPECT_FALSE(deployment_.Verify(2, answers[1]).ok());
  SHOAL_EXPECT_OK(deployment_.Verify(3, answers[2]));
}

// Guarantee 5: when a round has ended, nothing of it is left.
TEST_F(GuardTest, AnEndedRoundIsErased) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 1u);
  SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
  for (uint32_t j = 1; j <= 3; ++j) {
    EXPECT_EQ(deployment_.party(j).open_rounds(), 0u);
    EXPECT_TRUE(deployment_.disk(j).submissions.empty());
    EXPECT_FALSE(deployment_.party(j).PrepareNoise(round.id()).ok());
    EXPECT_FALSE(Offline(deployment_.party(j), round.wire(), Bytes()).ok());
  }
}

TEST_F(GuardTest, AListThatIsOnItsWayWhenTheRoundEndsIsNotTaken) {
  const round::Round round = Announce();
  const Bytes onions(onion::OnionBytes(2), 7);
  SHOAL_ASSERT_OK_AND_ASSIGN(auto intake,
                             deployment_.party(2).BeginOffline(round.wire(), onions.size()));
  SHOAL_ASSERT_OK(deployment_.party(2).End(round.id()));
  EXPECT_THAT(intake->Take(onions), StatusIs(kRefused, "ended"));
  EXPECT_THAT(deployment_.party(2).Offline(std::move(intake)).status(),
              StatusIs(absl::StatusCode::kNotFound, "ended"));
}

// Counts how often 32 bytes stand in this process's memory. The argument has every bit flipped, so
// that it is not found itself.
size_t CountInMemory(const std::array<uint8_t, 32>& flipped) {
  std::vector<std::pair<const uint8_t*, const uint8_t*>> regions;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin, end;
    char permissions[5];
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, permissions) != 3) continue;
    if (!std::string(permissions).starts_with("rw")) continue;
    regions.emplace_back(reinterpret_cast<const uint8_t*>(begin),
                         reinterpret_cast<const uint8_t*>(end));
  }
  size_t count = 0;
  for (const auto& [begin, end] : regions) {
    for (const uint8_t* at = begin; at + 32 <= end; ++at) {
      at = static_cast<const uint8_t*>(
          std::memchr(at, flipped[0] ^ 0xff, static_cast<size_t>(end - at) - 31));
      if (at == nullptr) break;
      size_t same = 1;
      while (same < 32 && at[same] == (flipped[same] ^ 0xff)) ++same;
      count += same == 32;
    }
  }
  return count;
}

// The onion key of the round that a party drafted last, every bit flipped.
std::array<uint8_t, 32> FlippedOnionKey(const Deployment& deployment, uint32_t party) {
  const onion::KeyPair key = server::OfflineSecrets(deployment.Root(party)).OnionKeyPair();
  std::array<uint8_t, 32> flipped;
  std::ranges::transform(key.secret_key.view(), flipped.begin(),
                         [](uint8_t byte) { return byte ^ 0xff; });
  return flipped;
}

// A neighbour that sends a list for ever cannot make a party keep the keys of a round that has
// ended.
TEST_F(GuardTest, AListThatNeverEndsKeepsNoSecretsOfAnEndedRound) {
  const round::Round round = Announce();
  const std::array<uint8_t, 32> key = FlippedOnionKey(deployment_, 2);
  const size_t bytes = 10 * onion::OnionBytes(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(auto intake, deployment_.party(2).BeginOffline(round.wire(), bytes));
  SHOAL_ASSERT_OK(intake->Take(Bytes(bytes / 2)));
  EXPECT_GT(CountInMemory(key), 0u) << "the test would not see a secret";
  SHOAL_ASSERT_OK(deployment_.party(2).End(round.id()));
  EXPECT_EQ(CountInMemory(key), 0u);
  EXPECT_THAT(intake->Take(Bytes(bytes / 2)), StatusIs(kRefused, "ended"));
}

// Once the stage is done the same list may come again, but no other list is opened.
TEST_F(GuardTest, AListOfAnotherLengthIsNotOpenedOnceOneWasTaken) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  const size_t each = 4 + onion::SubmissionBytes(3, 1);
  EXPECT_THAT(deployment_.party(1).BeginOffline(round.wire(), (kQueries + 1) * each,
                                                {.records = kQueries + 1}),
              StatusIs(kRefused, "another offline list"));
  SHOAL_EXPECT_OK(
      deployment_.party(1).BeginOffline(round.wire(), kQueries * each, {.records = kQueries}));
}

TEST_F(GuardTest, ExpiredRoundsAndDraftsAreErased) {
  const round::Round round = Announce();
  // A draft that never comes back.
  SHOAL_ASSERT_OK(deployment_.party(1).ExtendDraft(*deployment_.frontend().NewDraft()));
  EXPECT_EQ(deployment_.party(1).open_rounds(), 2u);
  const uint64_t lifetime_s = round.header().expires_s() - round.header().announced_s();
  const auto pass = [&](uint64_t seconds) {
    deployment_.clock().now_s += seconds;
    deployment_.clock().steady_s += seconds;
    for (uint32_t j = 1; j <= 3; ++j) deployment_.party(j).EndExpired();
  };
  // Lists keep the parties from ending all for that they hear nothing.
  for (uint64_t passed_s = 0; passed_s < lifetime_s; passed_s += 30) {
    SHOAL_ASSERT_OK(deployment_.SendList());
    pass(std::min<uint64_t>(30, lifetime_s - passed_s));
  }
  SHOAL_ASSERT_OK(deployment_.SendList());
  for (uint32_t j = 1; j <= 3; ++j) EXPECT_TRUE(deployment_.party(j).Stage(round.id()).ok()) << j;
  pass(30);
  SHOAL_ASSERT_OK(deployment_.SendList());
  pass(31);
  for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
}

TEST_F(GuardTest, AnOrderlyEndErasesEverything) {
  Announce();
  SHOAL_ASSERT_OK(deployment_.party(1).ExtendDraft(*deployment_.frontend().NewDraft()));
  EXPECT_EQ(deployment_.party(1).open_rounds(), 2u);
  deployment_.party(1).EndAll();
  EXPECT_EQ(deployment_.party(1).open_rounds(), 0u);
}

TEST_F(GuardTest, AFailedProposalLeavesNothingBehind) {
  deployment_.tamper(2).down = true;
  EXPECT_THAT(deployment_.Announce(), StatusIs(absl::StatusCode::kUnavailable, "party 3"));
  deployment_.tamper(2).down = false;
  deployment_.disk(1).writes_left = 1;  // party 1 cannot store the header that the others signed
  EXPECT_FALSE(deployment_.Announce().ok());
  deployment_.disk(1).writes_left = -1;
  for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
}

// Later parties sign rounds that the others never learn of. Without a withdrawal these rounds would
// fill the later parties until they expire.
TEST_F(GuardTest, AProposalWhoseAnswerIsLostLeavesNothingBehind) {
  for (uint32_t link : {1u, 2u}) {
    deployment_.tamper(link).loses_headers = true;
    for (int i = 0; i < 20; ++i) {  // more than may be open
      EXPECT_THAT(deployment_.Announce(), StatusIs(absl::StatusCode::kUnavailable, "broke"));
      for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
    }
    deployment_.tamper(link).loses_headers = false;
  }
  // Nothing is left if the others refuse a party's answer either; here the answer names another
  // counter.
  deployment_.tamper(2).signed_back = [](wire::SignedHeader& header) {
    header.mutable_header()->set_counter(header.header().counter() + 1);
  };
  EXPECT_FALSE(deployment_.Announce().ok());
  for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
  deployment_.tamper(2).signed_back = nullptr;
  SHOAL_EXPECT_OK(deployment_.Announce());
}

// A proposal may be withdrawn at any moment, even while it is being signed.
TEST_F(GuardTest, AWithdrawnProposalIsNotOpen) {
  const auto draft = [&] {
    wire::RoundHeader header = *deployment_.frontend().NewDraft();
    for (uint32_t j = 1; j <= 3; ++j) header = *deployment_.party(j).ExtendDraft(header);
    wire::SignedHeader unsigned_header;
    *unsigned_header.mutable_header() = header;
    return unsigned_header;
  };
  server::Party& backend = deployment_.party(3);
  wire::SignedHeader header = draft();
  SHOAL_EXPECT_OK(backend.Withdraw(RoundCounter(header.header().counter())));
  SHOAL_EXPECT_OK(backend.Withdraw(RoundCounter(header.header().counter())));
  EXPECT_THAT(backend.SignHeader(header), StatusIs(kRefused, "not drafted"));

  header = draft();
  const RoundCounter counter(header.header().counter());
  std::promise<void> signing, finish;
  deployment_.disk(3).before_write = [&, finished = finish.get_future().share(),
                                      first = true]() mutable {
    if (std::exchange(first, false)) signing.set_value();
    finished.wait();
  };
  auto signed_header = std::async(std::launch::async, [&] { return backend.SignHeader(header); });
  signing.get_future().wait();
  auto withdrawn = std::async(std::launch::async, [&] { return backend.Withdraw(counter); });
  // The draft goes while it is being signed.
  EXPECT_TRUE(::shoal::testing::Soon([&] { return backend.open_rounds() == 0; }));
  finish.set_value();
  SHOAL_EXPECT_OK(withdrawn.get());
  signed_header.wait();
  deployment_.disk(3).before_write = nullptr;
  EXPECT_EQ(deployment_.party(3).open_rounds(), 0u);
  EXPECT_THAT(backend.PrepareNoise(round::RoundId(header.header())),
              StatusIs(absl::StatusCode::kNotFound, "not open"));
}

// A hostile neighbour may propose the same counter again while the party signs. The party must not
// sign one draft and keep the other. The race is run often enough that some proposals come at that
// moment.
TEST_F(GuardTest, ADraftThatReplacesTheOneThatIsBeingSignedIsNotOpen) {
  server::Party& party = deployment_.party(2);
  for (int i = 0; i < 100; ++i) {
    const wire::RoundHeader proposed =
        *deployment_.party(1).ExtendDraft(*deployment_.frontend().NewDraft());
    const RoundCounter counter(proposed.counter());
    wire::SignedHeader complete;
    *complete.mutable_header() = *deployment_.party(3).ExtendDraft(*party.ExtendDraft(proposed));
    complete = *deployment_.party(3).SignHeader(complete);

    std::promise<void> signing;
    auto signed_header = std::async(std::launch::async, [&] {
      signing.set_value();
      return party.SignHeader(complete);
    });
    signing.get_future().wait();
    const auto when = std::chrono::steady_clock::now() + std::chrono::microseconds(10 * i);
    while (std::chrono::steady_clock::now() < when) {
    }
    SHOAL_EXPECT_OK(party.Withdraw(counter));
    const bool drafted = party.ExtendDraft(proposed).ok();
    EXPECT_FALSE(signed_header.get().ok() && drafted) << i;
    for (uint32_t j = 1; j <= 3; ++j) SHOAL_EXPECT_OK(deployment_.party(j).Withdraw(counter));
    EXPECT_EQ(deployment_.party(2).open_rounds(), 0u);
  }
}

// A party that has lost a round, by a restart or an expiry, still tells the parties after it.
TEST_F(GuardTest, AListReachesThePartiesAfterOneThatHasNothing) {
  const round::Round round = Announce();
  SHOAL_ASSERT_OK(deployment_.party(2).End(round.id()));
  EXPECT_NE(deployment_.party(3).open_rounds(), 0u);
  SHOAL_EXPECT_OK(deployment_.EndRound(round.id()));
  for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
}

TEST_F(GuardTest, ANeighbourCannotFillThePartyWithDrafts) {
  absl::Status status;
  for (int i = 0; i < 40 && status.ok(); ++i) {
    status = deployment_.party(1).ExtendDraft(*deployment_.frontend().NewDraft()).status();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "16 rounds"));
  EXPECT_LE(deployment_.party(1).open_rounds(), 16u);
}

// A repeated submission is acknowledged again and costs no disk. An onion that comes twice in one
// request gets one slot.
TEST_F(GuardTest, OnlyNewOnionsAreWritten) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  const Bytes first = client.secrets()[0].submission, fresh = client.Make().submission;
  const auto written = [&] {
    size_t bytes = 0;
    for (const auto& record : deployment_.disk(1).submissions.at(RoundCounter(round.counter()))) {
      bytes += record.size();
    }
    return bytes / (4 + onion::SubmissionBytes(3, 1));
  };
  EXPECT_EQ(written(), 3u);
  for (int i = 0; i < 5; ++i) {
    SHOAL_EXPECT_OK(Submit(deployment_.frontend(), round.id(), first));
  }
  EXPECT_EQ(written(), 3u);
  const std::vector<BytesView> mixed = {first, fresh, fresh};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto submission,
                             deployment_.frontend().SubmitOnions(round.id(), mixed, std::nullopt));
  EXPECT_EQ(submission.first_slots, (std::vector<uint32_t>{0, 3, 3}));
  EXPECT_EQ(written(), 4u);
}

// Storing fails for a moment, as if connections had taken all file descriptors. That must not abort
// a round.
TEST_F(GuardTest, ARoundGoesOnAfterOnionsThatCouldNotBeStoredForAMoment) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(4));
  deployment_.disk(1).writes_left = 0;
  deployment_.disk(1).failure = absl::UnavailableError("/state/round-1: Too many open files");
  const Bytes onion = client.Make().submission;
  const absl::Status refused = Submit(deployment_.frontend(), round.id(), onion).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, "try again later"));
  EXPECT_EQ(refused.message().find("/state"), absl::string_view::npos) << refused;
  EXPECT_TRUE(deployment_.frontend().WhatIsDue().empty());
  deployment_.disk(1).writes_left = -1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto submission,
                             Submit(deployment_.frontend(), round.id(), onion));
  EXPECT_EQ(submission.first_slots, (std::vector<uint32_t>{4}));
}

// Onions that could not be written get no slot, and clients get an error that makes them try
// another round. The round takes no more onions.
TEST_F(GuardTest, ARoundWhoseOnionsCannotBeStoredIsDueToBeAborted) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(4));
  deployment_.disk(1).writes_left = 0;
  EXPECT_THAT(Submit(deployment_.frontend(), round.id(), client.Make().submission),
              StatusIs(kRefused, "takes no onions any more"));
  deployment_.disk(1).writes_left = -1;
  EXPECT_THAT(Submit(deployment_.frontend(), round.id(), client.Make().submission),
              StatusIs(kRefused, "takes no onions any more"));
  EXPECT_EQ(deployment_.frontend().Info(round.id())->onions(), 4u);
  const std::vector<server::Due> due = deployment_.frontend().WhatIsDue();
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].action, server::Action::kAbort);
  EXPECT_THAT(due[0].why, StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  deployment_.frontend().Abort(round.id(), "no room");
  for (const server::Due& next : deployment_.frontend().WhatIsDue()) {
    EXPECT_EQ(next.action, server::Action::kAnnounce);
  }
}

// Guarantee 7, at the frontend: a slot is used for one query.
TEST_F(GuardTest, ASlotIsUsedForOneQuery) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_EXPECT_OK(client->Query(rows));  // the same again
  EXPECT_EQ(deployment_.frontend().Info(round.id())->queries(), kQueries);
  rows[0] = (rows[0] + 1) % deployment_.table().rows;
  EXPECT_THAT(client->Query(rows), StatusIs(kRefused, "another query"));
  // Someone else's slot, without its token.
  wire::SubmitQueriesRequest request = client->QueriesRequest();
  request.mutable_tokens()->at(0) ^= 1;
  EXPECT_THAT(deployment_.frontend().SubmitQueries(request),
              StatusIs(absl::StatusCode::kPermissionDenied, "slot 0"));
}

// A slot that is named twice would be one query for the frontend's count and two for the client, or
// let a request ask for one answer many times.
TEST_F(GuardTest, ARequestNamesASlotOnce) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  // The same token and the same tally: nothing else is wrong.
  const auto twice = [](std::string& array, size_t each) {
    array.replace(each, each, array.substr(0, each));
  };
  wire::SubmitQueriesRequest queries = client->QueriesRequest();
  twice(*queries.mutable_slots(), 4);
  twice(*queries.mutable_tokens(), 16);
  twice(*queries.mutable_tallies(), 4);
  EXPECT_THAT(deployment_.frontend().SubmitQueries(queries).status(),
              StatusIs(kInvalid, "named twice"));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  wire::FetchAnswersRequest fetch = client->AnswersRequest();
  twice(*fetch.mutable_slots(), 4);
  twice(*fetch.mutable_tokens(), 16);
  EXPECT_THAT(deployment_.frontend().FetchAnswers(fetch).status(),
              StatusIs(kInvalid, "named twice"));
}

// A dead position has no seed but zeros, from which everybody could compute a token.
TEST_F(GuardTest, ADeadSlotHasNoToken) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(2));
  Secret dead = client.Make();
  dead.submission.back() ^= 1;
  client.Add(std::move(dead));
  SHOAL_ASSERT_OK(client.Submit());
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  const Secret& slot = client.secrets()[2];
  const std::vector<sharing::Token> tokens = {
      slot.token(round.id()), sharing::Expand(Bytes(32), round.id()).token, sharing::Token{}};
  for (const sharing::Token& token : tokens) {
    EXPECT_EQ(deployment_.party(1).FirstWrongToken(round.id(), {&slot.slot, 1}, {&token, 1}), 0u);
  }
  const sharing::Token living = client.secrets()[1].token(round.id());
  EXPECT_EQ(deployment_.party(1).FirstWrongToken(round.id(), {&client.secrets()[1].slot, 1},
                                                 {&living, 1}),
            1u);
}

// The bound of the signed header on slots, on which the later parties' bounds on lists rest.
TEST_F(GuardTest, NoMoreSlotsAreGivenOutThanTheHeaderAllows) {
  Deployment small({.parties = 2, .plan = {.stage_limit_s = 100, .max_slots = 5}});
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, small.Announce());
  EXPECT_EQ(round.header().max_slots(), 5u);
  Client client(&small, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  EXPECT_THAT(client.Obtain(3),
              StatusIs(absl::StatusCode::kResourceExhausted, "no room for 3 more"));
  EXPECT_EQ(small.frontend().Info(round.id())->onions(), 3u);
  Client another(&small, round);
  SHOAL_ASSERT_OK(another.Obtain(2));
  EXPECT_THAT(another.Obtain(1), StatusIs(absl::StatusCode::kResourceExhausted, "no room"));
}

Origin From(uint8_t last) { return AddressBlock(MappedIpv4({192, 0, 2, last})); }

// Guarantee 14: strangers from one address cannot take a round from others.
TEST_F(GuardTest, ABlockTakesItsShareOfTheSlotsAndNoMore) {
  Deployment small(
      {.plan = {.stage_limit_s = 100, .max_slots = 40, .block_percent = 25, .group_percent = 40}});
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, small.Announce());
  Client stranger(&small, round, From(1));
  SHOAL_ASSERT_OK(stranger.Obtain(8));
  // All or nothing.
  Client more(&small, round, From(1));
  EXPECT_THAT(more.Obtain(3),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "192.0.2.1 has 8 of the 10 slots that one address may take"));
  EXPECT_EQ(small.frontend().Info(round.id())->onions(), 8u);
  Client two(&small, round, From(1));
  SHOAL_EXPECT_OK(two.Obtain(2));
  // What has its slots gets them again, also from elsewhere.
  for (const Origin& from : {From(1), From(2), Origin()}) {
    const BytesView again = stranger.secrets()[0].submission;
    SHOAL_EXPECT_OK(small.frontend().SubmitOnions(round.id(), {&again, 1}, from).status());
  }
  Client neighbour(&small, round, From(2));
  SHOAL_EXPECT_OK(neighbour.Obtain(10));
  // Those whom many share, too, and theirs is another one.
  AddressRanges groups;
  SHOAL_EXPECT_OK(groups.Add("198.51.100.0/24"));
  const Origin group = groups.BlockOf(MappedIpv4({198, 51, 100, 1}));
  Client many(&small, round, group), few(&small, round, group), one(&small, round, group);
  SHOAL_EXPECT_OK(many.Obtain(15));
  EXPECT_THAT(few.Obtain(2),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "198.51.100.0/24 has 15 of the 16 slots that one group of addresses may"));
  SHOAL_EXPECT_OK(one.Obtain(1));
}

// Rounds whose slots a stranger takes at once, and never uses: others are in the same round, and
// get their answers when its windows have passed.
TEST_F(GuardTest, SlotsThatAreNeverUsedCostOthersNoMoreThanTheWindow) {
  Deployment deployment({.plan = {.onions_window_s = 60,
                                  .onions_count = 20,
                                  .queries_window_s = 60,
                                  .queries_count = 20,
                                  .stage_limit_s = 100,
                                  .max_slots = 400,
                                  .block_percent = 25}});
  server::Frontend& frontend = deployment.frontend();
  const auto due = [&](const Digest& id) {
    std::vector<server::Action> actions;
    for (const server::Due& d : frontend.WhatIsDue()) {
      if (d.action != server::Action::kAnnounce && d.round_id == id) actions.push_back(d.action);
    }
    return actions;
  };
  for (int i = 0; i < 3; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment.Announce());
    Client stranger(&deployment, round, From(1));
    SHOAL_ASSERT_OK(stranger.Obtain(100));
    EXPECT_THAT(due(round.id()), ::testing::IsEmpty()) << "the count is no stranger's to reach";
    deployment.clock().steady_s += 59;
    Client honest(&deployment, round, From(2));
    SHOAL_ASSERT_OK(honest.Obtain(4));
    EXPECT_THAT(due(round.id()), ::testing::IsEmpty());
    deployment.clock().steady_s += 1;
    EXPECT_THAT(due(round.id()), ::testing::ElementsAre(server::Action::kSeal));
    SHOAL_ASSERT_OK(deployment.RunOffline(round.id()));
    if (i == 2) {
      // Nor is the window of the queries, for a stranger who does use its slots.
      SHOAL_ASSERT_OK(stranger.Query(RandomRows(deployment, 100)));
    }
    EXPECT_THAT(due(round.id()), ::testing::IsEmpty());
    deployment.clock().steady_s += 59;
    EXPECT_THAT(due(round.id()), ::testing::IsEmpty());
    const std::vector<uint64_t> rows = RandomRows(deployment, 4);
    SHOAL_ASSERT_OK(honest.Query(rows));
    deployment.clock().steady_s += 1;
    EXPECT_THAT(due(round.id()), ::testing::ElementsAre(server::Action::kAnswer));
    SHOAL_ASSERT_OK(deployment.RunOnline(round.id()));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, honest.Fetch());
    for (size_t q = 0; q < rows.size(); ++q) {
      SHOAL_EXPECT_OK(deployment.Verify(rows[q], answers[q]));
    }
    SHOAL_ASSERT_OK(deployment.EndRound(round.id()));
    deployment.clock().now_s += 120;
  }
}

// With enough blocks, or from an address that many share, the count still closes the window early.
TEST_F(GuardTest, ManyBlocksReachTheCount) {
  Deployment deployment({.plan = {.onions_count = 20, .queries_count = 8, .stage_limit_s = 100}});
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment.Announce());
  std::vector<Client> clients;
  for (uint8_t block = 1; block <= 4; ++block) {
    for (const server::Due& d : deployment.frontend().WhatIsDue()) {
      EXPECT_NE(d.action, server::Action::kSeal);
    }
    SHOAL_ASSERT_OK(clients.emplace_back(&deployment, round, From(block)).Obtain(5));
  }
  EXPECT_EQ(deployment.frontend().WhatIsDue().at(0).action, server::Action::kSeal);
  SHOAL_ASSERT_OK(deployment.RunOffline(round.id()));
  for (Client& client : clients) {
    EXPECT_NE(deployment.frontend().WhatIsDue().at(0).action, server::Action::kAnswer);
    SHOAL_ASSERT_OK(client.Query(RandomRows(deployment, 2)));
  }
  EXPECT_EQ(deployment.frontend().WhatIsDue().at(0).action, server::Action::kAnswer);
}

TEST_F(GuardTest, RequestsOfClientsAreAllOrNothing) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(5));
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  for (Secret& secret : client.secrets()) secret.row = 1;
  Client again = std::move(client);
  SHOAL_ASSERT_OK(again.Query({}).code() == kInvalid ? absl::OkStatus()
                                                     : absl::InternalError("empty request taken"));
  std::vector<std::pair<std::string, std::function<void(wire::SubmitQueriesRequest&)>>> bad = {
      {"short tokens", [](auto& r) { r.mutable_tokens()->pop_back(); }},
      {"short slots", [](auto& r) { r.mutable_slots()->pop_back(); }},
      {"short tallies", [](auto& r) { r.mutable_tallies()->pop_back(); }},
      {"slot twice",
       [](auto& r) {
         r.mutable_slots()->replace(4, 4, r.slots().substr(0, 4));
         r.mutable_tokens()->replace(16, 16, r.tokens().substr(0, 16));
       }},
      {"slot out of range", [](auto& r) { r.mutable_slots()->replace(12, 4, "\xff\xff\xff\xff"); }},
      {"tally p", [](auto& r) { r.mutable_tallies()->replace(12, 4, "\xff\xff\xff\x7f"); }},
      {"round id", [](auto& r) { r.mutable_round_id()->pop_back(); }},
      {"unknown round", [](auto& r) { r.mutable_round_id()->at(0) ^= 1; }},
  };
  SHOAL_ASSERT_OK(again.Query({1, 2, 3, 4}));
  const wire::SubmitQueriesRequest good = again.QueriesRequest();
  for (const auto& [what, change] : bad) {
    wire::SubmitQueriesRequest request = good;
    change(request);
    EXPECT_FALSE(deployment_.frontend().SubmitQueries(request).ok()) << what;
    EXPECT_EQ(deployment_.frontend().Info(round.id())->queries(), 4u) << what;
  }
  // A tally that is not below p, on an unused slot, where no other check would refuse it.
  const Secret& unused = again.secrets()[4];
  wire::SubmitQueriesRequest request;
  request.set_round_id(ToString(round.id()));
  request.set_slots(std::string("\4\0\0\0", 4));
  request.set_tokens(ToString(unused.token(round.id())));
  for (const char* tally : {"\xff\xff\xff\x7f", "\xff\xff\xff\xff"}) {
    request.set_tallies(tally);
    EXPECT_THAT(deployment_.frontend().SubmitQueries(request).status(),
                StatusIs(kInvalid, "not below"));
  }
  request.set_tallies("\xfe\xff\xff\x7f");
  SHOAL_EXPECT_OK(deployment_.frontend().SubmitQueries(request));

  // A request for more answers than a response may have is refused before its tokens are checked.
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  const size_t most = (2 << 20) / round.tagged_bytes();
  wire::FetchAnswersRequest fetch;
  fetch.set_round_id(ToString(round.id()));
  fetch.set_slots(std::string(4 * (most + 1), '\0'));
  fetch.set_tokens(std::string(16 * (most + 1), '\0'));
  EXPECT_THAT(deployment_.frontend().FetchAnswers(fetch).status(),
              StatusIs(kInvalid, absl::StrCat("at most ", most)));
  fetch.mutable_slots()->resize(4 * most);
  fetch.mutable_tokens()->resize(16 * most);
  EXPECT_THAT(deployment_.frontend().FetchAnswers(fetch).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, "slot 0"));
}

// Guarantee 8: no round is signed that the journal would not refuse after a restart.
TEST_F(GuardTest, NoHeaderIsSignedThatIsNotStored) {
  deployment_.disk(2).writes_left = 0;
  EXPECT_THAT(deployment_.Announce(), StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  deployment_.disk(2).writes_left = -1;
  SHOAL_EXPECT_OK(deployment_.Announce());
}

TEST_F(GuardTest, NothingIsSentWhoseDigestIsNotStored) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries, deployment_.frontend().CloseQueries(round.id()));
  bool reached = false;
  deployment_.tamper(2).queries = [&](Bytes&) { reached = true; };
  deployment_.disk(2).writes_left = 0;
  EXPECT_THAT(deployment_.node(1).OnlineOfKept(round.id(), queries),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_FALSE(reached);
  // Once there is room again, the same call must write the record, and not take it for durable
  // before.
  const size_t records = deployment_.disk(2).records.size();
  deployment_.disk(2).writes_left = -1;
  SHOAL_EXPECT_OK(Queries(deployment_.party(2), round.id(),
                          *Queries(deployment_.party(1), round.id(), queries)));
  EXPECT_EQ(deployment_.disk(2).records.size(), records + 2);
}

// Guarantee 1: parties commit to input and output, in every direction.
TEST_F(GuardTest, EveryStageCommitsToItsInputAndItsOutput) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  const auto records = [&] { return deployment_.disk(2).records.size(); };
  const size_t before = records();
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  EXPECT_EQ(records(), before + 2);
  SHOAL_ASSERT_OK(client.Query({1, 2, 3}));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  EXPECT_EQ(records(), before + 6);
}

// What stands in party 2's journal of a round's content.
std::optional<Digest> DigestOnDisk(const server::testing::Disk& disk, RoundCounter round,
                                   server::Content content) {
  Bytes begin = {1, static_cast<uint8_t>(content)};
  AppendLe(begin, round.value());
  std::optional<Digest> found;
  for (const Bytes& record : disk.records) {
    if (!std::equal(begin.begin(), begin.end(), record.begin())) continue;
    EXPECT_FALSE(found.has_value()) << "committed to twice";
    SHOAL_CHECK(record.size() == begin.size() + sizeof(Digest));
    found.emplace();
    std::copy_n(record.end() - sizeof(Digest), sizeof(Digest), found->begin());
  }
  return found;
}

// Guarantee 1: what a party commits to is all that came and all that went out, and nothing else.
TEST_F(GuardTest, DigestsAreThoseOfTheWholeContents) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  const Seed root = deployment_.Root(2);
  std::map<server::Content, Bytes> contents;
  const auto note = [&](server::Content content) {
    return [&contents, content](Bytes& bytes) { contents[content] = bytes; };
  };
  deployment_.tamper(1).onions = note(server::Content::kOfflineInput);
  deployment_.tamper(2).onions = note(server::Content::kOfflineOutput);
  deployment_.tamper(1).queries = note(server::Content::kQueriesInput);
  deployment_.tamper(2).queries = note(server::Content::kQueriesOutput);
  deployment_.tamper(2).answers = note(server::Content::kAnswersInput);
  deployment_.tamper(1).answers = note(server::Content::kAnswersOutput);
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query(RandomRows(deployment_, kQueries)));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  ASSERT_EQ(contents.size(), 6u);
  for (const auto& [content, bytes] : contents) {
    const auto digest = DigestOnDisk(deployment_.disk(2), round.counter(), content);
    ASSERT_TRUE(digest.has_value()) << server::ContentName(content);
    EXPECT_EQ(*digest, server::testing::DigestOf(root, content, bytes))
        << server::ContentName(content);
  }
}

// Digests are under a secret of the round: whoever could compute them could look for two contents
// with one digest. So equal contents of two rounds have different ones.
TEST_F(GuardTest, DigestsOfContentsAreUnderARoundsOwnKey) {
  std::set<Digest> digests;
  for (int i = 0; i < 2; ++i) {
    const round::Round round = Announce();
    SHOAL_ASSERT_OK(Offline(deployment_.party(2), round.wire(), Bytes()));
    const auto digest =
        DigestOnDisk(deployment_.disk(2), round.counter(), server::Content::kOfflineInput);
    ASSERT_TRUE(digest.has_value());
    digests.insert(*digest);
  }
  EXPECT_EQ(digests.size(), 2u);
}

// Guarantee 15: a coalition that learned the total of a party's noise when the round is proposed
// would propose rounds until it is low, before any client has a slot.
TEST(NoiseTest, NothingTellsOfItBeforeTheListIsCommittedTo) {
  Mutex mutex;
  std::vector<wire::StageReport> told;
  Deployment deployment(
      {.plan = {.stage_limit_s = 100}, .stage_done = [&](const wire::StageReport& report) {
         const MutexLock lock(mutex);
         told.push_back(report);
       }});
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment.Announce());
  Client client(&deployment, round);
  SHOAL_ASSERT_OK(client.Obtain(5));
  for (const uint32_t j : {1u, 2u, 3u})
    SHOAL_ASSERT_OK(deployment.party(j).PrepareNoise(round.id()));
  const auto expect_nothing = [&](uint32_t number) {
    EXPECT_TRUE(deployment.party(number).Reports(round.id()).empty()) << number;
    const MutexLock lock(mutex);
    for (const wire::StageReport& report : told) EXPECT_NE(report.party(), number);
  };
  for (const uint32_t j : {1u, 2u, 3u}) expect_nothing(j);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reports, deployment.node(1).Reports(round.id()));
  EXPECT_TRUE(reports.empty());

  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment.frontend(), round.id()));
  deployment.disk(1).writes_left = 0;
  EXPECT_FALSE(Offline(deployment.party(1), round.wire(), sealed).ok());
  expect_nothing(1);
  deployment.disk(1).writes_left = -1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes list, Offline(deployment.party(1), round.wire(), sealed));
  const std::vector<wire::StageReport> after = deployment.party(1).Reports(round.id());
  ASSERT_EQ(after.size(), 2u);
  EXPECT_EQ(after[0].stage(), "noise");
  EXPECT_EQ(list.size() / onion::OnionBytes(2), 5 + after[0].noise_queries());
  expect_nothing(2);
}

// Clients see reports: times are told as coarsely as src/wire/visible.h says.
TEST_F(GuardTest, ReportsTellTimesInHundredthsOfASecond) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const server::StageReports reports,
                             deployment_.node(1).Reports(round.id()));
  EXPECT_EQ(reports.size(), 10u);  // noise and answers at two parties, the others at three
  for (const wire::StageReport& report : reports) {
    EXPECT_EQ(report.seconds(), wire::VisibleSeconds(report.seconds())) << report.stage();
    EXPECT_EQ(report.cpu_seconds(), wire::VisibleSeconds(report.cpu_seconds())) << report.stage();
  }
}

// A neighbour does not get the last piece of a list before the list's digest is stored.
TEST_F(GuardTest, TheLastPieceWaitsForTheDigestOfTheWhole) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK_AND_ASSIGN(Bytes queries, deployment_.frontend().CloseQueries(round.id()));
  for (uint32_t j : {1u, 2u}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(queries, Queries(deployment_.party(j), round.id(), queries));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers,
                             deployment_.party(3).AnswerQueries(round.id(), queries));
  deployment_.disk(3).writes_left = 0;
  EXPECT_THAT(ReadAll(*answers).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  deployment_.disk(3).writes_left = -1;
  SHOAL_EXPECT_OK(AnswerQueries(deployment_.party(3), round.id(), queries));
}

// Guarantee 5, for output that is half sent: the rest cannot be made from erased secrets.
TEST_F(GuardTest, WhatARoundWasSendingEndsWithIt) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK_AND_ASSIGN(Bytes queries, deployment_.frontend().CloseQueries(round.id()));
  for (uint32_t j : {1u, 2u}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(queries, Queries(deployment_.party(j), round.id(), queries));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto before,
                             deployment_.party(3).AnswerQueries(round.id(), queries));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto after,
                             deployment_.party(3).AnswerQueries(round.id(), queries));
  EXPECT_THAT(before->Next().status(), StatusIs(kRefused, "begun again"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answers, ReadAll(*after));
  server::OnePart source(std::make_unique<BytesSource>(answers));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto returned, deployment_.party(2).Answers(round.id(), source));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto unread,
                             deployment_.party(3).AnswerQueries(round.id(), queries));
  SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
  EXPECT_THAT(returned->Next().status(), StatusIs(kRefused, "ended"));
  EXPECT_THAT(unread->Next().status(), StatusIs(kRefused, "ended"));
}

// Answers that break off do not count as input: nothing is committed to, and the complete answers
// are taken afterwards.
TEST_F(GuardTest, AnswersThatBreakOffCommitToNothing) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK_AND_ASSIGN(Bytes queries, deployment_.frontend().CloseQueries(round.id()));
  for (uint32_t j : {1u, 2u}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(queries, Queries(deployment_.party(j), round.id(), queries));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answers,
                             AnswerQueries(deployment_.party(3), round.id(), queries));
  struct Broken final : ByteSource {
    explicit Broken(Bytes a) : all(std::move(a)) {}
    uint64_t size() const override { return all.size(); }
    absl::StatusOr<BytesView> Next() override {
      if (given) return absl::UnavailableError("the connection broke");
      given = true;
      return BytesView(all).first(all.size() - 1);
    }
    const Bytes all;
    bool given = false;
  };
  server::OnePart broken(std::make_unique<Broken>(answers));
  const size_t records = deployment_.disk(2).records.size();
  EXPECT_THAT(deployment_.party(2).Answers(round.id(), broken).status(),
              StatusIs(absl::StatusCode::kUnavailable, "broke"));
  EXPECT_EQ(deployment_.disk(2).records.size(), records);
  SHOAL_EXPECT_OK(Answers(deployment_.party(2), round.id(), answers));
}

// A stage that failed half way does not count: answers are not taken for queries whose output was
// not committed to.
TEST_F(GuardTest, AnswersNeedQueriesThatWereDone) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries, deployment_.frontend().CloseQueries(round.id()));
  deployment_.disk(1).writes_left = 1;  // the input's digest, not the output's
  EXPECT_FALSE(Queries(deployment_.party(1), round.id(), queries).ok());
  deployment_.disk(1).writes_left = -1;
  EXPECT_THAT(Answers(deployment_.party(1), round.id(), {}).status(),
              StatusIs(kRefused, "before the queries"));
  SHOAL_EXPECT_OK(Queries(deployment_.party(1), round.id(), queries));
}

// Unknown fields of a header, which nobody has signed, are neither kept nor sent to clients.
TEST_F(GuardTest, UnknownFieldsOfAHeaderGoNoFurther) {
  const auto add = [](wire::RoundHeader& header) {
    header.GetReflection()->MutableUnknownFields(&header)->AddLengthDelimited(
        1000, std::string(1 << 20, 'x'));
    header.mutable_noise()
        ->GetReflection()
        ->MutableUnknownFields(header.mutable_noise())
        ->AddVarint(1000, 7);
  };
  size_t bytes_back = 0;
  deployment_.tamper(1).draft = add;
  deployment_.tamper(1).signed_back = [&](wire::SignedHeader& header) {
    bytes_back = header.ByteSizeLong();
    add(*header.mutable_header());
  };
  const round::Round round = Announce();
  EXPECT_LT(bytes_back, 1000u);
  EXPECT_LT(round.wire().ByteSizeLong(), 1000u);
  wire::SignedHeader header = round.wire();
  add(*header.mutable_header());
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round again,
                             round::Round::Verify(header, deployment_.roster(), deployment_.table(),
                                                  deployment_.clock().now_s));
  EXPECT_EQ(again.id(), round.id());
  EXPECT_EQ(again.wire().SerializeAsString(), round.wire().SerializeAsString());
}

// The frontend keeps reports for as long as it remembers a round, and sends them to anybody who
// asks, so it refuses reports that no honest party makes.
TEST_F(GuardTest, ReportsThatNoPartyMakesAreRefused) {
  using Reports = server::StageReports;
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Reports good, deployment_.node(1).Reports(round.id()));
  EXPECT_EQ(good.size(), 5u);  // noise at the first two, offline at all three
  for (const auto& [what, change] : std::map<std::string, std::function<void(Reports&)>>{
           {"comes twice", [](auto& reports) { reports.push_back(reports.back()); }},
           {"own", [](auto& reports) { reports.back().set_party(1); }},
           {"party 0", [](auto& reports) { reports.back().set_party(0); }},
           {"party 4", [](auto& reports) { reports.back().set_party(4); }},
           {"no stage", [](auto& reports) { reports.back().set_stage("lunch"); }},
           {"no time", [](auto& reports) { reports.back().set_seconds(std::nan("")); }},
           {"for ever", [](auto& reports) { reports.back().set_cpu_seconds(HUGE_VAL); }},
           {"before it began", [](auto& reports) { reports.back().set_seconds(-1); }},
           {"long", [](auto& reports) { reports.back().set_stage(std::string(1000, 'x')); }}}) {
    deployment_.tamper(1).reports = change;
    EXPECT_THAT(deployment_.node(1).Reports(round.id()),
                StatusIs(kInvalid, "party 1: stage reports"))
        << what;
  }
  deployment_.tamper(1).reports = nullptr;
  // A party in the middle does not pass such reports on either.
  deployment_.tamper(2).reports = [](auto& reports) { reports.back().set_party(2); };
  EXPECT_THAT(deployment_.node(1).Reports(round.id()),
              StatusIs(kInvalid, "party 2: stage reports"));
  deployment_.tamper(2).reports = [](auto& reports) {
    wire::StageReport& report = reports.back();
    report.GetReflection()->MutableUnknownFields(&report)->AddLengthDelimited(
        1000, std::string(1 << 20, 'x'));
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const Reports cut, deployment_.node(1).Reports(round.id()));
  ASSERT_EQ(cut.size(), good.size());
  for (size_t i = 0; i < cut.size(); ++i) {
    EXPECT_EQ(cut[i].SerializeAsString(), good[i].SerializeAsString());
  }
}

// If a single party or link tampers, an answer is refused or random, never wrong and accepted.
TEST_F(GuardTest, TamperedTalliesComeOutRandom) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  deployment_.tamper(1).queries = [](Bytes& queries) {
    // The last tally, still below p.
    uint32_t tally = LoadLe<uint32_t>(queries.data() + queries.size() - 4);
    StoreLe<uint32_t>(queries.data() + queries.size() - 4, tally == 0 ? 1 : tally - 1);
  };
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  EXPECT_GE(CountCorrect(deployment_, *client, rows), rows.size() - 1);
}

TEST_F(GuardTest, TamperedAnswersAreNeverAccepted) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  deployment_.tamper(2).answers = [&](Bytes& answers) {
    for (size_t at = 0; at < answers.size(); at += round.tagged_bytes()) answers[at] ^= 1;
  };
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  EXPECT_EQ(CountCorrect(deployment_, *client, rows), 0u);
}

TEST_F(GuardTest, SwappedAnswersAreNeverAccepted) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  const round::Round round = RunToQueries(client, rows);
  const size_t b = round.tagged_bytes();
  deployment_.tamper(1).answers = [&](Bytes& answers) {
    for (size_t at = 0; at + 2 * b <= answers.size(); at += 2 * b) {
      std::swap_ranges(answers.begin() + static_cast<ptrdiff_t>(at),
                       answers.begin() + static_cast<ptrdiff_t>(at + b),
                       answers.begin() + static_cast<ptrdiff_t>(at + b));
    }
  };
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  CountCorrect(deployment_, *client, rows);  // fails if an answer is wrong and accepted
}

TEST_F(GuardTest, TamperedOnionsAreDeadAndHarmOnlyThemselves) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  const size_t onion_bytes = onion::OnionBytes(2);
  deployment_.tamper(1).onions = [&](Bytes& onions) { onions[onion_bytes / 2] ^= 1; };
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  const std::vector<uint64_t> rows = RandomRows(deployment_, kQueries);
  SHOAL_ASSERT_OK(client.Query(rows));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  EXPECT_GE(CountCorrect(deployment_, client, rows), kQueries - 1);
}

// The last layer has no tag: what is changed in it lives, with a seed that nobody has. Its query
// is lost, and no other.
TEST_F(GuardTest, AChangedLastLayerLosesItsOwnQueryAlone) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kQueries));
  constexpr size_t kBytes = onion::OnionBytes(1);
  size_t found = 0;
  deployment_.tamper(2).onions = [&](Bytes& onions) {
    const auto layer_of = [&](size_t i) {
      const Seed& secret = client.secrets()[i].ephemeral[2];
      const onion::PublicKey enc = onion::KeyPairFromSecret(secret.view()).public_key;
      for (size_t at = 0; at < onions.size(); at += kBytes) {
        if (std::equal(enc.begin(), enc.end(), onions.begin() + static_cast<ptrdiff_t>(at))) {
          ++found;
          return onions.begin() + static_cast<ptrdiff_t>(at);
        }
      }
      return onions.begin();
    };
    const auto a = layer_of(0), b = layer_of(1), c = layer_of(2), d = layer_of(3);
    a[5] ^= 4;
    b[31] ^= 0x80;  // the same point in another encoding
    std::swap_ranges(c, c + kBytes, d);
  };
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  ASSERT_EQ(found, 4u);
  const std::vector<uint64_t> rows = RandomRows(deployment_, kQueries);
  SHOAL_ASSERT_OK(client.Query(rows));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client.Fetch());
  for (size_t i = 0; i < kQueries; ++i) {
    EXPECT_EQ(deployment_.Verify(rows[i], answers[i]).ok(), i >= 4) << i;
  }
}

TEST_F(GuardTest, MalformedListsAreRefused) {
  std::optional<Client> client;
  std::vector<uint64_t> rows;
  for (const auto& [what, change] : std::map<std::string, std::function<void(Bytes&)>>{
           {"cut", [](Bytes& b) { b.pop_back(); }},
           {"longer", [](Bytes& b) { b.push_back(0); }},
           {"empty", [](Bytes& b) { b.clear(); }},
           {"garbage", [](Bytes& b) { std::ranges::fill(b, 0xff); }}}) {
    const round::Round round = RunToQueries(client, rows);
    deployment_.tamper(1).queries = change;
    EXPECT_THAT(deployment_.RunOnline(round.id()), StatusIs(kInvalid, "query batch")) << what;
    deployment_.tamper(1).queries = nullptr;
    SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
  }
  const round::Round round = Announce();
  Client other(&deployment_, round);
  SHOAL_ASSERT_OK(other.Obtain(3));
  deployment_.tamper(1).onions = [](Bytes& onions) { onions.pop_back(); };
  EXPECT_THAT(deployment_.RunOffline(round.id()), StatusIs(kInvalid, "offline list"));
}

TEST_F(GuardTest, APartyThatIsDownIsNamedAndTheOthersGoOn) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  deployment_.tamper(2).down = true;
  EXPECT_THAT(deployment_.RunOffline(round.id()),
              StatusIs(absl::StatusCode::kUnavailable, "party 3"));
  deployment_.frontend().Abort(round.id(), "party 3 is down");
  EXPECT_EQ(deployment_.frontend().Info(round.id())->state(), wire::ABORTED);
  EXPECT_THAT(client.Query({1}), StatusIs(kRefused, "ABORTED"));
  deployment_.tamper(2).down = false;
  std::vector<uint64_t> rows;
  std::optional<Client> next;
  const round::Round again = RunToQueries(next, rows);
  SHOAL_ASSERT_OK(deployment_.RunOnline(again.id()));
  EXPECT_EQ(CountCorrect(deployment_, *next, rows), rows.size());
}

// Starts a party on its disk with what a test changes.
class PartyTest : public ::testing::Test {
 protected:
  explicit PartyTest(DeploymentOptions options = {.parties = 2}) : deployment_(options) {}

  server::Party::Options Options(uint32_t number) {
    return {.number = PartyNumber(number),
            .roster = deployment_.roster(),
            .table = deployment_.Epoch(1, number)};
  }
  absl::Status Start(server::Party::Options options, const signature::SecretKey& key) {
    const uint32_t disk = std::min(options.number.value(), deployment_.parties());
    server::testing::MemoryJournal journal(&deployment_.disk(disk));
    return server::Party::Create(std::move(options), key, &journal, &deployment_.random(),
                                 &deployment_.clock(), {&pool_, &spools_})
        .status();
  }
  absl::Status Start(server::Party::Options options) {
    const signature::SecretKey& key = deployment_.key(options.number.value());
    return Start(std::move(options), key);
  }

  Deployment deployment_;
  ThreadPool pool_{1};
  SpoolPlace spools_{"/tmp", 0};
};

// The signatures of a party with another key would be worth nothing, and its neighbours would learn
// that only round by round.
TEST_F(PartyTest, StartsWithItsOwnKeyAlone) {
  SHOAL_EXPECT_OK(Start(Options(1)));
  EXPECT_THAT(Start(Options(1), deployment_.key(2)),
              StatusIs(kInvalid, "not the one that the roster lists"));
  EXPECT_THAT(Start(Options(2), deployment_.key(1)), StatusIs(kInvalid, "party 2"));
  server::Party::Options third = Options(2);
  third.number = PartyNumber(3);
  EXPECT_THAT(Start(third, deployment_.key(2)), StatusIs(kInvalid, "the roster has 2"));
}

// What a party has served once binds it over restarts: who gives it an older table or roster, or
// another one of the same epoch, by mistake or not, does not get it to serve that.
TEST_F(PartyTest, StartsWithNoOlderTableAndNoOtherOne) {
  const uint64_t next = deployment_.MakeEpoch(40, 64);
  server::Party::Options options = Options(2);
  options.table = deployment_.Epoch(next, 2);
  SHOAL_ASSERT_OK(Start(options));
  EXPECT_THAT(Start(Options(2)), StatusIs(kRefused, "epoch 1 is older than epoch 2"));
  server::Party::Options other = options;
  other.table.facts.manifest_digest[0] ^= 1;
  EXPECT_THAT(Start(other), StatusIs(kRefused, "another content"));
  SHOAL_EXPECT_OK(Start(options));
}

TEST_F(PartyTest, StartsWithNoOlderRosterAndNoOtherOne) {
  ::shoal::testing::TestRandom random(31);
  roster::testing::Parties parties(2, random);
  const auto start = [&](uint64_t epoch, uint32_t max_slots) {
    parties.draft().set_epoch(epoch);
    parties.draft().set_max_slots(max_slots);
    server::Party::Options options = Options(1);
    options.roster = parties.roster();
    return Start(std::move(options), parties.keys(1).bls());
  };
  SHOAL_ASSERT_OK(start(5, 1000));
  EXPECT_THAT(start(4, 1000), StatusIs(kRefused, "epoch 4 is older than epoch 5"));
  EXPECT_THAT(start(5, 999), StatusIs(kRefused, "another content"));
  SHOAL_EXPECT_OK(start(5, 1000));
  SHOAL_EXPECT_OK(start(6, 999));
}

// A backend whose rows are not as many as the manifest's would answer some queries with nothing.
TEST_F(PartyTest, StartsWithTheAnswersOfItsTable) {
  server::Party::Options options = Options(2);
  --options.table.answers.rows;
  EXPECT_THAT(Start(options), StatusIs(kInvalid, "does not fit its manifest"));
  options = Options(2);
  options.table.answers.bytes = options.table.answers.bytes.first(10);
  EXPECT_THAT(Start(options), StatusIs(kInvalid, "does not fit its manifest"));
}

DeploymentOptions OfThreeChanges() {
  DeploymentOptions options{.parties = 2, .rows = 3};
  options.noise.epsilon = 4;
  options.noise.phi = 3;
  options.noise.mode = 15;
  return options;
}
class PartyOfThreeChangesTest : public PartyTest {
 protected:
  PartyOfThreeChangesTest() : PartyTest(OfThreeChanges()) {}
};

// A claim about more changed queries than there are rows has no meaning.
TEST_F(PartyOfThreeChangesTest, RefusesATableOfFewerRowsThanPhi) {
  SHOAL_EXPECT_OK(Start(Options(1)));
  server::Party::Options options = Options(1);
  options.table.facts.rows = 2;
  EXPECT_THAT(Start(options),
              StatusIs(kInvalid, "phi must be at most the number of rows, 2, got 3"));
}

// Random bytes in any call never stop a party.
TEST_F(GuardTest, RandomBytesAreRefusedOrHarmless) {
  testing::TestRandom random(9);
  for (int trial = 0; trial < 30; ++trial) {
    const round::Round round = Announce();
    Bytes garbage(random.Below(2000));
    random.Fill(garbage);
    Offline(deployment_.party(2), round.wire(), garbage).IgnoreError();
    Queries(deployment_.party(2), round.id(), garbage).IgnoreError();
    Answers(deployment_.party(2), round.id(), garbage).IgnoreError();
    Submit(deployment_.frontend(), round.id(), garbage).IgnoreError();
    wire::SubmitQueriesRequest request;
    request.set_round_id(ToString(round.id()));
    request.set_slots(ToString(garbage));
    request.set_tokens(ToString(garbage));
    EXPECT_FALSE(deployment_.frontend().SubmitQueries(request).ok());
    SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
  }
}

}  // namespace
}  // namespace shoal::sim
