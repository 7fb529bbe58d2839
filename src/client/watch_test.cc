// A watched list over a term: what it delivers, and what a server sees of it, which never depends
// on what the answers say.
#include "src/client/watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/client/chain_client.h"
#include "src/client/live_deployment.h"
#include "src/client/state.h"
#include "src/client/testing/fake_frontend.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
using testing::FakeFrontend;
using Outcome = Lookup::Outcome;

constexpr uint64_t kDayS = 24 * 3600;

struct Told {
  std::string key;
  Outcome outcome;
  std::string value;
  bool first;
  bool operator==(const Told&) const = default;
};

class WatchTest : public ::testing::Test {
 protected:
  WatchTest() : WatchTest({.refreshes = 5}) {}
  explicit WatchTest(testing::FakeOptions options) : frontend_(options) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
    environment_ = {.clock = &frontend_.clock(),
                    .random = &frontend_.random(),
                    .pool = &frontend_.pool(),
                    .sleep = [](uint32_t) {}};
  }

  // As a process starts.
  absl::Status Start(uint32_t max_enrolments = 3) {
    watch_.reset();
    chain_.reset();
    SHOAL_ASSIGN_OR_RETURN(
        live_, LiveDeployment::Open(&frontend_, &frontend_.pins(), &store_, environment_));
    SHOAL_ASSIGN_OR_RETURN(watch_, Watch::Open(path_, environment_));
    ChainOptions options{.pad_to = pad_to_, .max_attempts = 2, .timeout_s = 60};
    options.term = watch_->Enrolment(
        max_enrolments, [this]() -> const table::Manifest& { return live_->current().manifest(); });
    SHOAL_ASSIGN_OR_RETURN(
        chain_, ChainClient::Create(&live_->current(), options, &frontend_, &store_, environment_));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Told>> Deliver(RowSource& source, uint64_t epoch,
                                            const VerifiedRefresh* refresh) {
    std::vector<Bytes> keys;
    for (const size_t i : wanted_) keys.push_back(ToBytes(AsBytes(FakeFrontend::Key(i))));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<Lookup> found,
                           LookUp(live_->current(), source, keys, environment_));
    std::vector<Told> told;
    for (size_t i = 0; i < keys.size(); ++i) {
      failed_ += found[i].outcome == Outcome::kFailed;
      if (const auto news = watch_->Take(keys[i], found[i], epoch)) {
        told.push_back(
            {ToString(keys[i]), found[i].outcome, ToString(found[i].value), news->first});
      }
    }
    SHOAL_RETURN_IF_ERROR(watch_->Save(refresh));
    return told;
  }
  absl::StatusOr<std::vector<Told>> Enrol() {
    round_ = frontend_.OpenRound();
    return Deliver(*chain_, live_->current().manifest().epoch(), nullptr);
  }
  // What a run in a term delivers; nothing if there is no refresh to take.
  absl::StatusOr<std::vector<Told>> Refreshed() {
    SHOAL_ASSIGN_OR_RETURN(const auto refresh, watch_->Latest(live_->current(), &frontend_));
    if (!refresh) return std::vector<Told>();
    const auto source = watch_->MakeSource(*refresh, &live_->current(), &frontend_);
    return Deliver(*source, refresh->header.epoch(), &*refresh);
  }
  // The next epoch, with `records` keys, and its refresh.
  void Refresh(size_t records = 300) {
    frontend_.NextEpoch(records, /*keep_rows=*/true);
    frontend_.Refresh(round_);
  }

  FakeFrontend frontend_;
  const std::string directory_ = ::testing::TempDir() + "/watch";
  const std::string path_ = directory_ + "/state";
  MemoryStateStore store_;
  Environment environment_;
  std::unique_ptr<LiveDeployment> live_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<ChainClient> chain_;
  std::vector<size_t> wanted_ = {3, 7, 350};
  uint32_t pad_to_ = 8;
  Digest round_ = {};
  int failed_ = 0;
  uint64_t slept_ms_ = 0;
};

TEST_F(WatchTest, AsksOnceAndIsAnsweredAtEveryEpoch) {
  SHOAL_ASSERT_OK(Start());
  EXPECT_FALSE(watch_->has_term());
  SHOAL_ASSERT_OK_AND_ASSIGN(std::vector<Told> told, Enrol());
  EXPECT_EQ(told, (std::vector<Told>{{"key-3", Outcome::kFound, FakeFrontend::Value(3, 1), true},
                                     {"key-7", Outcome::kFound, FakeFrontend::Value(7, 1), true},
                                     {"key-350", Outcome::kAbsent, "", true}}));
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
  for (uint64_t epoch = 2; epoch <= 4; ++epoch) {
    Refresh();
    SHOAL_ASSERT_OK(Start());  // every run is a process of its own
    ASSERT_TRUE(watch_->has_term());
    SHOAL_ASSERT_OK_AND_ASSIGN(told, Refreshed());
    EXPECT_EQ(told, (std::vector<Told>{
                        {"key-3", Outcome::kFound, FakeFrontend::Value(3, epoch), false},
                        {"key-7", Outcome::kFound, FakeFrontend::Value(7, epoch), false}}));
    // The same refresh is no news a second time.
    SHOAL_ASSERT_OK_AND_ASSIGN(told, Refreshed());
    EXPECT_TRUE(told.empty());
  }
  // A term is one submission, and one charge.
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
  EXPECT_EQ(store_.state().ledger.queries(), 8u);
  EXPECT_EQ(store_.state().enrolments.size(), 1u);
}

// One key, which the noise of the fake deployment protects.
class MonthOfRefreshesTest : public WatchTest {
 protected:
  MonthOfRefreshesTest() : WatchTest({.refreshes = 30}) {
    wanted_ = {3};
    pad_to_ = 1;
  }
};

// What `shoal status` and `shoal watch` show of a device: epsilon after a month of refreshes is
// that after the round in which the device enrolled.
TEST_F(MonthOfRefreshesTest, EpsilonOfAWholeTermIsThatOfItsRound) {
  constexpr double kDelta = 1e-2;
  const auto epsilon = [&] {
    const absl::StatusOr<TotalLoss> loss = store_.state().ledger.LossAt(kDelta);
    return loss.ok() ? loss->epsilon : std::nullopt;
  };
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  const std::optional<double> of_round = epsilon();
  ASSERT_TRUE(of_round.has_value());
  EXPECT_GT(*of_round, 0);
  for (int refresh = 1; refresh <= 30; ++refresh) {
    Refresh();
    SHOAL_ASSERT_OK(Start());
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Told> told, Refreshed());
    EXPECT_EQ(told.size(), 1u) << "refresh " << refresh;
  }
  EXPECT_EQ(epsilon(), of_round);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
  EXPECT_EQ(store_.state().ledger.idle_rounds(), 0u);
}

TEST_F(WatchTest, KeysComeAndGo) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  Refresh(360);
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(std::vector<Told> told, Refreshed());
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[2], (Told{"key-350", Outcome::kFound, FakeFrontend::Value(350, 2), false}));
  Refresh(5);
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(told, Refreshed());
  EXPECT_EQ(told[1], (Told{"key-7", Outcome::kAbsent, "", false}));
  EXPECT_EQ(told[2], (Told{"key-350", Outcome::kAbsent, "", false}));
}

TEST_F(WatchTest, DaysThatWereMissedCostNothingButTheDays) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  Refresh();
  Refresh();
  Refresh();
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Told> told, Refreshed());
  EXPECT_EQ(told[0].value, FakeFrontend::Value(3, 4));
}

// The names and bytes of what is sent in a run, but for what differs by chance.
std::vector<std::string> Names(const FakeFrontend& frontend) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : frontend.sent) {
    names.push_back(absl::StrCat(name, " ", bytes.size()));
  }
  return names;
}

TEST_F(WatchTest, NothingThatIsSentDependsOnTheAnswers) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  std::vector<std::string> good;
  for (const bool spoils : {false, true, false}) {
    Refresh();
    if (spoils) {
      frontend_.spoil = [](uint32_t, MutableBytes answer) { answer[0] ^= 1; };
    } else {
      frontend_.spoil = nullptr;
    }
    frontend_.sent.clear();
    failed_ = 0;
    SHOAL_ASSERT_OK(Start());
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Told> told, Refreshed());
    EXPECT_EQ(failed_, spoils ? 3 : 0);
    // A wrong answer is no news.
    EXPECT_EQ(told.size(), spoils ? 0u : 2u);
    if (good.empty()) good = Names(frontend_);
    EXPECT_EQ(Names(frontend_), good);
    // The next run fetches that refresh no second time.
    frontend_.sent.clear();
    SHOAL_ASSERT_OK(Start());
    SHOAL_ASSERT_OK(Refreshed());
    for (const auto& [name, bytes] : frontend_.sent) EXPECT_NE(name, "FetchRefresh");
  }
  // All slots are fetched, padding too: 8 of 4 + 16 bytes.
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

TEST_F(WatchTest, ARefreshThatDoesNotVerifyIsNoNews) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  Refresh();
  SHOAL_ASSERT_OK(Start());
  const auto latest = [&](const std::function<void(wire::GetRefreshResponse&)>& spoil) {
    frontend_.spoil_refresh = spoil;
    return watch_->Latest(live_->current(), &frontend_).status();
  };
  EXPECT_THAT(latest([](auto& r) { r.mutable_refresh()->mutable_header()->set_number(2); }),
              StatusIs(absl::StatusCode::kUnauthenticated, "does not match"));
  EXPECT_THAT(latest([](auto& r) { r.mutable_refresh()->mutable_header()->set_number(6); }),
              StatusIs(absl::StatusCode::kInvalidArgument, "number 6"));
  EXPECT_THAT(latest([](auto& r) { r.mutable_refresh()->set_signature("x"); }),
              StatusIs(absl::StatusCode::kUnauthenticated, "refresh"));
  EXPECT_THAT(latest([](auto& r) { r.set_tags(r.tags().substr(32)); }),
              StatusIs(absl::StatusCode::kInvalidArgument, "a tag of every party"));
  SHOAL_EXPECT_OK(latest([](auto& r) { r.clear_refresh(); }));
  SHOAL_EXPECT_OK(latest(nullptr));
  // Another tag is another mask: the answers do not verify.
  frontend_.spoil_refresh = [](auto& r) {
    (*r.mutable_tags())[40] = static_cast<char>(r.tags()[40] ^ 1);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Told> told, Refreshed());
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(failed_, 3);
}

TEST_F(WatchTest, AnOlderEpochOrRefreshIsNotTaken) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  Refresh();
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Refreshed());
  wire::GetRefreshResponse first;
  frontend_.spoil_refresh = [&](auto& response) { first = response; };
  SHOAL_ASSERT_OK(watch_->Latest(live_->current(), &frontend_));
  Refresh();
  frontend_.spoil_refresh = [&](auto& response) { response = first; };
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto again, watch_->Latest(live_->current(), &frontend_));
  EXPECT_FALSE(again.has_value());
  // One that this device has not seen, but whose table is not the one that is served.
  std::filesystem::remove(path_ + ".seen");
  SHOAL_ASSERT_OK(Start());
  EXPECT_THAT(watch_->Latest(live_->current(), &frontend_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "of epoch 2, and epoch 3"));
}

TEST_F(WatchTest, ItEnrolsAgainByTheCalendarAlone) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  const uint64_t until_s = watch_->term_expires_s();
  EXPECT_EQ(until_s, frontend_.clock().now_s + 20 * kDayS);
  struct stat info = {};
  ASSERT_EQ(::stat((path_ + ".term").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // The parties have lost the term.
  frontend_.before = [](const std::string& name) {
    return name == "GetRefresh" ? absl::NotFoundError("no term") : absl::OkStatus();
  };
  frontend_.clock().now_s = until_s - 1;
  SHOAL_ASSERT_OK_AND_ASSIGN(watch_, Watch::Open(path_, environment_));
  EXPECT_TRUE(watch_->has_term());
  EXPECT_THAT(watch_->Latest(live_->current(), &frontend_),
              StatusIs(absl::StatusCode::kNotFound, "no term"));
  EXPECT_TRUE(watch_->has_term());
  frontend_.clock().now_s = until_s;
  SHOAL_ASSERT_OK_AND_ASSIGN(watch_, Watch::Open(path_, environment_));
  EXPECT_FALSE(watch_->has_term());
  EXPECT_FALSE(FileExists(path_ + ".term"));
  // What was known stays: the next term tells only what has changed.
  EXPECT_TRUE(FileExists(path_ + ".seen"));
}

TEST_F(WatchTest, EnrolmentsAreCappedWhateverAborts) {
  SHOAL_ASSERT_OK(Start(/*max_enrolments=*/3));
  frontend_.reach = [](const Digest&, wire::RoundState wanted) {
    return wanted == wire::ANSWERED ? wire::ABORTED : wanted;
  };
  // Two lists of keys, each with its attempts: the cap is on all of them.
  for (int i = 0; i < 4; ++i) frontend_.OpenRound();
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kAborted, "max_attempts"));
  wanted_ = {9, 10, 11};
  SHOAL_ASSERT_OK(Start(/*max_enrolments=*/3));
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kFailedPrecondition, "max_enrolments"));
  EXPECT_EQ(store_.state().ledger.submissions(), 3u);
  wanted_ = {12};
  frontend_.sent.clear();
  SHOAL_ASSERT_OK(Start(/*max_enrolments=*/3));
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kFailedPrecondition, "max_enrolments"));
  for (const auto& [name, bytes] : frontend_.sent) EXPECT_NE(name, "SubmitOnions");
  EXPECT_FALSE(watch_->has_term());
}

TEST_F(WatchTest, ShortTermsBringNoMoreEnrolments) {
  frontend_.term_s = 600;  // the least that a header may have
  for (int i = 0; i < 3; ++i) {
    SHOAL_ASSERT_OK(Start());
    SHOAL_ASSERT_OK(Enrol());
    frontend_.clock().now_s += 1000;
  }
  SHOAL_ASSERT_OK(Start());
  EXPECT_FALSE(watch_->has_term());
  frontend_.sent.clear();
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kFailedPrecondition, "max_enrolments"));
  for (const auto& [name, bytes] : frontend_.sent) EXPECT_NE(name, "SubmitOnions");
}

// Takes nothing: a full disk, a broken pipe.
class BrokenResults final : public Results {
 public:
  absl::Status Add(BytesView, const Lookup&) override { return absl::UnavailableError("full"); }
  absl::Status Finish() override { return absl::UnavailableError("full"); }
};

class OneKey final : public Keys {
 public:
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    return take(AsBytes(FakeFrontend::Key(3)));
  }
};

TEST_F(WatchTest, WhatIsDoneWithTheNewsBringsNoSecondFetch) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  Refresh();
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, watch_->Latest(live_->current(), &frontend_));
  const auto source = watch_->MakeSource(*refresh, &live_->current(), &frontend_);
  OneKey key;
  BrokenResults results;
  EXPECT_THAT(LookUp(live_->current(), *source, key, results, environment_),
              StatusIs(absl::StatusCode::kUnavailable, "full"));
  frontend_.sent.clear();
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(std::vector<Told> told, Refreshed());
  EXPECT_TRUE(told.empty());
  for (const auto& [name, bytes] : frontend_.sent) EXPECT_NE(name, "FetchRefresh");
  // The next refresh tells what has changed since the last that was told.
  Refresh();
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(told, Refreshed());
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(WatchTest, KeysThatTheTermLacksWait) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  Refresh();
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK_AND_ASSIGN(bool enrols,
                             watch_->Enrols(live_->current(), AsBytes(FakeFrontend::Key(7))));
  EXPECT_TRUE(enrols);
  size_t others = 0;
  for (size_t i = 20; i < 120; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(enrols,
                               watch_->Enrols(live_->current(), AsBytes(FakeFrontend::Key(i))));
    others += !enrols;
    wanted_ = {i};
    if (!enrols && others == 1) {
      EXPECT_THAT(Refreshed(), StatusIs(absl::StatusCode::kFailedPrecondition, "does not have"));
    }
  }
  EXPECT_GT(others, 0u);
}

TEST_F(WatchTest, DamagedFilesAreRefused) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  for (const std::string& path : {path_ + ".term", path_ + ".seen"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(path));
    std::string changed = content;
    changed.back() = static_cast<char>(changed.back() ^ 1);
    SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(changed), FileMode::kPrivate));
    EXPECT_THAT(Watch::Open(path_, environment_), StatusIs(absl::StatusCode::kDataLoss, path));
    SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(content), FileMode::kPublic));
    EXPECT_THAT(Watch::Open(path_, environment_),
                StatusIs(absl::StatusCode::kPermissionDenied, path));
    SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(content), FileMode::kPrivate));
  }
  SHOAL_EXPECT_OK(Watch::Open(path_, environment_));
}

// Its parties do not know it any more. The enrolment showed its rows in a round, and still counts;
// what is known of the keys stays.
TEST_F(WatchTest, ATermOf02IsOverAndItsEnrolmentCounts) {
  SHOAL_ASSERT_OK(Start(/*max_enrolments=*/2));
  SHOAL_ASSERT_OK(Enrol());
  const std::string path = path_ + ".term";
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(path));
  const std::string record = content.substr(sizeof(Digest));
  Bytes of_02 = ToBytes(Transcript("shoal client term v1").Blob(record).Finish());
  Append(of_02, AsBytes(record));
  SHOAL_ASSERT_OK(WriteFileAtomically(path, of_02, FileMode::kPrivate));
  const std::string link = directory_ + "/link";
  std::filesystem::create_hard_link(path, link);

  std::string told;
  environment_.progress = [&](absl::string_view what) { told = std::string(what); };
  SHOAL_ASSERT_OK(Start(/*max_enrolments=*/2));
  EXPECT_FALSE(watch_->has_term());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(*ReadFile(link), std::string(content.size(), '\0'));
  EXPECT_EQ(told,
            "this device had enrolled in a term of Shoal 0.2, which is over; the enrolment still "
            "counts, and it enrols anew");
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Told> news, Enrol());
  EXPECT_TRUE(news.empty()) << "all of it was known";
  EXPECT_EQ(store_.state().enrolments.size(), 2u);
  std::filesystem::remove(path);
  SHOAL_ASSERT_OK(Start(/*max_enrolments=*/2));
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kFailedPrecondition, "max_enrolments"));
}

TEST_F(WatchTest, NoKeyIsInTheFiles) {
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  for (const std::string& path : {path_ + ".term", path_ + ".seen"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(path));
    EXPECT_EQ(content.find("key-"), std::string::npos);
  }
}

// Lookups of one time keep out of rounds of which parties keep something, and the other way round.
class OrdinaryRoundsTest : public WatchTest {
 protected:
  OrdinaryRoundsTest() : WatchTest({}) {}
};

TEST_F(OrdinaryRoundsTest, AWatchedListDoesNotWaitWhereNoRoundHasATerm) {
  SHOAL_ASSERT_OK(Start());
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                "no round of this deployment has a term"));
}

TEST_F(WatchTest, AWatchedListEntersNoRoundWithoutATerm) {
  environment_.sleep = [this](uint32_t milliseconds) {
    slept_ms_ += milliseconds;
    frontend_.clock().now_s += slept_ms_ / 1000;
    slept_ms_ %= 1000;
  };
  frontend_.opens_terms = false;
  SHOAL_ASSERT_OK(Start());
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kDeadlineExceeded, "no round with a term"));
}

TEST_F(WatchTest, AnOrdinaryLookupEntersNoRoundWithATerm) {
  environment_.sleep = [this](uint32_t) { frontend_.clock().now_s += 1; };
  SHOAL_ASSERT_OK(Start());
  ChainOptions options{.pad_to = 8, .timeout_s = 10};
  SHOAL_ASSERT_OK_AND_ASSIGN(
      chain_, ChainClient::Create(&live_->current(), options, &frontend_, &store_, environment_));
  EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                "no round took 8 onions within 10 seconds; there are rounds with a "
                                "term, which a lookup enters only after 60 seconds"));
}

TEST_F(WatchTest, AnOrdinaryLookupTakesARoundWithATermIfThereIsNoOther) {
  environment_.sleep = [this](uint32_t) { frontend_.clock().now_s += 1; };
  SHOAL_ASSERT_OK(Start());
  const uint64_t begun_s = frontend_.clock().now_s;
  ChainOptions options{.pad_to = 8, .timeout_s = 600};
  SHOAL_ASSERT_OK_AND_ASSIGN(
      chain_, ChainClient::Create(&live_->current(), options, &frontend_, &store_, environment_));
  frontend_.before = [&](const std::string& name) {
    if (name == "ListRounds" && (frontend_.clock().now_s - begun_s) % 40 == 0) {
      frontend_.OpenRound();
    }
    return absl::OkStatus();
  };
  const std::vector<Bytes> keys = {ToBytes(AsBytes(FakeFrontend::Key(3)))};
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Lookup> found,
                             LookUp(live_->current(), *chain_, keys, environment_));
  EXPECT_EQ(found[0].outcome, Outcome::kFound);
  EXPECT_GE(frontend_.clock().now_s, begun_s + 60);
  EXPECT_FALSE(watch_->has_term());
  EXPECT_TRUE(store_.state().enrolments.empty());
}

// ---- Slots that are held beforehand -------------------------------------------------------------

class HeldSlotsTest : public WatchTest {
 protected:
  void SetUp() override {
    environment_.sleep = [this](uint32_t) { frontend_.clock().now_s += 1; };
    SHOAL_ASSERT_OK(Start());
  }
  // An ordinary client of the same device, in place of the watching one.
  void BeOrdinary(uint32_t timeout_s = 10) {
    const ChainOptions options{.pad_to = 8, .timeout_s = timeout_s, .waits = false};
    SHOAL_ASSERT_OK_AND_ASSIGN(
        chain_, ChainClient::Create(&live_->current(), options, &frontend_, &store_, environment_));
  }
  absl::StatusOr<std::vector<Lookup>> LookUpAll() {
    std::vector<Bytes> keys;
    for (const size_t i : wanted_) keys.push_back(ToBytes(AsBytes(FakeFrontend::Key(i))));
    return LookUp(live_->current(), *chain_, keys, environment_);
  }
  // What `shoal watch` does until the request with that name, which fails.
  void Interrupt(const std::string& at, bool watches) {
    frontend_.before = [at](const std::string& name) {
      return name == at ? absl::CancelledError("interrupted") : absl::OkStatus();
    };
    if (watches) {
      EXPECT_THAT(Enrol(), StatusIs(absl::StatusCode::kCancelled, "interrupted"));
    } else {
      EXPECT_THAT(LookUpAll(), StatusIs(absl::StatusCode::kCancelled, "interrupted"));
    }
    frontend_.before = nullptr;
    frontend_.sent.clear();
  }
  HeldRound& OnlyRound() {
    EXPECT_EQ(store_.state().rounds.size(), 1u);
    return store_.state().rounds.at(0);
  }
  size_t Sent(const std::string& name) const {
    return static_cast<size_t>(std::ranges::count_if(
        frontend_.sent, [&](const auto& request) { return request.first == name; }));
  }
};

// `query --obtain`, then `watch`: an enrolment in a round without a term would be none, and would
// come again every day.
TEST_F(HeldSlotsTest, AWatchedListDoesNotTakeSlotsInARoundWithoutATerm) {
  frontend_.opens_terms = false;
  const Digest ordinary = frontend_.OpenRound();
  BeOrdinary();
  SHOAL_ASSERT_OK(chain_->ObtainAhead(8).status());
  frontend_.opens_terms = true;
  SHOAL_ASSERT_OK(Start());
  EXPECT_EQ(chain_->LedgerWith(8, {.queries = 8, .in_each = 8}).idle_rounds(), 1u)
      << "it counts slots that it cannot use as used";
  SHOAL_ASSERT_OK(Enrol());
  EXPECT_TRUE(watch_->has_term());
  EXPECT_EQ(watch_->term_round(), round_);
  EXPECT_EQ(store_.state().enrolments.size(), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
  EXPECT_TRUE(frontend_.Asked(ordinary).empty());
  // They are there for the lookup that they were taken for.
  const size_t before = Sent("SubmitOnions");
  BeOrdinary();
  SHOAL_EXPECT_OK(LookUpAll().status());
  EXPECT_EQ(Sent("SubmitOnions"), before);
  EXPECT_EQ(frontend_.Asked(ordinary).size(), 8u);
}

// Nor with the steps taken one by one.
TEST_F(HeldSlotsTest, NothingIsEnrolledInARoundWithoutATerm) {
  frontend_.opens_terms = false;
  frontend_.OpenRound();
  BeOrdinary();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest id, chain_->ObtainAhead(8));
  SHOAL_ASSERT_OK(Start());
  EXPECT_THAT(chain_->Submit(id, std::vector<uint32_t>{1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "has no term"));
  EXPECT_EQ(Sent("SubmitQueries"), 0u);
  EXPECT_EQ(store_.state().ledger.submissions(), 0u);
}

// `watch` that was interrupted with slots in hand, then `query`: not before a minute without
// another round.
TEST_F(HeldSlotsTest, AnOrdinaryLookupDoesNotTakeTheSlotsOfAnInterruptedWatch) {
  Interrupt("SubmitQueries", /*watches=*/true);
  OnlyRound().rows.clear();  // as if it had ended before it was charged
  store_.state().ledger = Ledger();
  store_.state().enrolments.clear();
  BeOrdinary();
  EXPECT_THAT(LookUpAll(), StatusIs(absl::StatusCode::kDeadlineExceeded, "no round took 8 onions"));
  EXPECT_EQ(Sent("SubmitQueries"), 0u);
  EXPECT_EQ(store_.state().ledger.submissions(), 0u);
  const uint64_t begun_s = frontend_.clock().now_s;
  BeOrdinary(/*timeout_s=*/100);
  SHOAL_ASSERT_OK(LookUpAll().status());
  EXPECT_GE(frontend_.clock().now_s, begun_s + kOutOfTermsS);
  EXPECT_EQ(frontend_.Asked(OnlyRound().id).size(), 8u) << "slots are not lost after all";
}

TEST_F(HeldSlotsTest, SlotsForALookupThatHasWaitedAreUsedAtOnce) {
  frontend_.OpenRound();
  BeOrdinary(/*timeout_s=*/100);
  const uint64_t begun_s = frontend_.clock().now_s;
  SHOAL_ASSERT_OK(chain_->ObtainAhead(8).status());
  const uint64_t obtained_s = frontend_.clock().now_s;
  EXPECT_GE(obtained_s, begun_s + kOutOfTermsS);
  SHOAL_EXPECT_OK(LookUpAll().status());
  EXPECT_EQ(frontend_.clock().now_s, obtained_s);
}

// An interrupted `watch`, after its charge, then `query` for the same keys: the answers of the
// term's round are the watch's.
TEST_F(HeldSlotsTest, AnOrdinaryLookupDoesNotGoOnWithAnEnrolment) {
  Interrupt("FetchAnswers", /*watches=*/true);
  BeOrdinary();
  EXPECT_THAT(LookUpAll(), StatusIs(absl::StatusCode::kDeadlineExceeded, "no round took 8 onions"));
  EXPECT_EQ(Sent("FetchAnswers"), 0u);
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  EXPECT_TRUE(watch_->has_term());
  EXPECT_EQ(store_.state().enrolments.size(), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

// A lookup in a term's round (there was no other), interrupted after its charge, then `watch` for
// the same keys: an enrolment that nobody counted.
TEST_F(HeldSlotsTest, AWatchedListDoesNotGoOnWithALookup) {
  const Digest first = frontend_.OpenRound();
  BeOrdinary(/*timeout_s=*/100);
  Interrupt("FetchAnswers", /*watches=*/false);
  EXPECT_TRUE(store_.state().enrolments.empty());
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
  SHOAL_ASSERT_OK(Start());
  SHOAL_ASSERT_OK(Enrol());
  EXPECT_NE(watch_->term_round(), first);
  EXPECT_EQ(store_.state().enrolments.size(), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 2u);
}

}  // namespace
}  // namespace shoal::client
