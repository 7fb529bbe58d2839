// The calls behind the C interface, with a frontend in this process: what they return and charge,
// what a cancellation leaves, and who has to wait.
#include "src/libshoal/handle.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/clock.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/client/rollback_anchor.h"
#include "src/client/state.h"
#include "src/client/testing/fake_frontend.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::library {
namespace {

namespace fs = std::filesystem;
using client::testing::FakeFrontend;
using shoal::testing::StatusIs;
using Outcome = client::Lookup::Outcome;

class ListedKeys final : public client::Keys {
 public:
  explicit ListedKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    for (const std::string& key : keys_) SHOAL_RETURN_IF_ERROR(take(AsBytes(key)));
    return absl::OkStatus();
  }
  uint64_t count() const { return keys_.size(); }

 private:
  const std::vector<std::string> keys_;
};

class HandleTest : public ::testing::Test {
 protected:
  HandleTest() : frontend_({.now_s = SystemClock().NowSeconds()}) {
    std::string name = ::testing::TempDir() + "/handle.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
    const auto pins = roster::PinsOf(frontend_.roster().wire().roster());
    SHOAL_CHECK(pins.ok());
    SHOAL_CHECK(wire::WriteTextFile(directory_ + "/pins.textproto", *pins).ok());
    const std::string config =
        "frontend: \"localhost:7000\"\npinned_parties_file: \"pins.textproto\"\n"
        "state: \"state\"\npad_to: 8\ntimeout_s: 1\n";
    SHOAL_CHECK(
        WriteFileAtomically(directory_ + "/client.textproto", AsBytes(config), FileMode::kPublic)
            .ok());
  }
  ~HandleTest() override { fs::remove_all(directory_); }

  std::unique_ptr<Handle> Open() {
    auto handle = Handle::Open(
        directory_,
        [this](const std::string& address, const std::function<bool()>& cancelled)
            -> absl::StatusOr<std::unique_ptr<client::Transport>> {
          EXPECT_EQ(address, "localhost:7000");
          return client::testing::ConnectTo(&frontend_, &mutex_, [cancelled](const std::string&) {
            return cancelled() ? absl::CancelledError("cancelled") : absl::OkStatus();
          });
        });
    SHOAL_CHECK(handle.ok());
    return *std::move(handle);
  }
  static absl::StatusOr<std::unique_ptr<const Answers>> LookUp(Handle& handle,
                                                               const std::vector<std::string>& keys,
                                                               const Call& call = {}) {
    ListedKeys listed(keys);
    return handle.LookUp(listed, listed.count(), call);
  }
  client::State State() const {
    auto state = client::ReadState(directory_ + "/state", client::AnchorDirectory::OfThisMachine());
    SHOAL_CHECK(state.ok());
    return *std::move(state);
  }

  FakeFrontend frontend_;
  std::mutex mutex_;
  std::string directory_;
};

TEST_F(HandleTest, OneResultForEachKeyInOrder) {
  frontend_.OpenRound();
  const auto handle = Open();
  const auto answers = LookUp(*handle, {"key-5", "nobody", "key-3", "key-5"});
  SHOAL_ASSERT_OK(answers);
  ASSERT_EQ((*answers)->count(), 4u);
  EXPECT_EQ((*answers)->failed(), 0u);
  EXPECT_EQ(ToString((*answers)->Get(0).value), "value of key-5");
  EXPECT_EQ((*answers)->Get(0).value.data()[14], 0);
  EXPECT_EQ((*answers)->Get(1).outcome, Outcome::kAbsent);
  EXPECT_EQ(ToString((*answers)->Get(2).value), "value of key-3");
  EXPECT_EQ(ToString((*answers)->Get(3).value), "value of key-5");
  // As `shoal query` does: eight queries, charged in a state that only its owner can read.
  EXPECT_EQ(State().ledger.queries(), 8u);
  EXPECT_EQ(fs::status(directory_ + "/state").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  // The next call begins anew.
  frontend_.OpenRound();
  SHOAL_ASSERT_OK(LookUp(*handle, {"key-7"}));
  EXPECT_EQ(State().ledger.queries(), 16u);
  EXPECT_EQ(State().ledger.submissions(), 2u);
}

// A key whose row has no room for it is neither absent nor failed.
TEST_F(HandleTest, AKeyWithoutRoomIsUnknown) {
  frontend_.NextEpoch(360, /*keep_rows=*/true);
  frontend_.OpenRound();
  const auto handle = Open();
  std::vector<std::string> keys;
  for (size_t i = 0; i < 360; ++i) keys.push_back(FakeFrontend::Key(i));
  const auto answers = LookUp(*handle, keys);
  SHOAL_ASSERT_OK(answers);
  EXPECT_EQ((*answers)->failed(), 0u);
  size_t unknown = 0;
  for (size_t i = 0; i < 360; ++i) {
    const Answers::Answer answer = (*answers)->Get(i);
    EXPECT_NE(answer.outcome, Outcome::kAbsent);
    if (answer.outcome != Outcome::kUnknown) continue;
    ++unknown;
    EXPECT_TRUE(answer.value.empty());
    EXPECT_EQ(answer.error, nullptr);
  }
  EXPECT_EQ(unknown, 360 - frontend_.table().manifest().content().records());
}

TEST_F(HandleTest, AnAnswerThatDoesNotVerifyIsSaidOfItsKeysAlone) {
  frontend_.OpenRound();
  // Half of the rows, as one alone may be a row that hides how many are asked for.
  frontend_.spoil = [](uint32_t row, MutableBytes answer) {
    if (row % 2 == 0) answer[0] ^= 1;
  };
  std::vector<std::string> keys;
  for (int i = 0; i < 60; ++i) keys.push_back(absl::StrCat("key-", i));
  const auto handle = Open();
  const auto answers = LookUp(*handle, keys);
  SHOAL_ASSERT_OK(answers);
  size_t failed = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Answers::Answer answer = (*answers)->Get(i);
    if (answer.outcome == Outcome::kFailed) {
      ++failed;
      EXPECT_TRUE(answer.value.empty());
      EXPECT_THAT(answer.error, ::testing::HasSubstr("not signed by all parties"));
    } else {
      EXPECT_EQ(ToString(answer.value), "value of " + keys[i]);
    }
  }
  EXPECT_EQ((*answers)->failed(), failed);
  EXPECT_GE(failed, 1u);
  EXPECT_LT(failed, keys.size());
}

// A call is cancelled at each kind of request, before the frontend sees it or when it has answered.
// The same lookup then goes on: nothing is charged twice, and no slot carries a second row.
TEST_F(HandleTest, ACancelledLookupGoesOnLater) {
  for (const std::string target : {"GetDeployment", "ListRounds", "SubmitOnions", "SubmitQueries",
                                   "WaitRound", "FetchAnswers"}) {
    for (const bool served : {false, true}) {
      SCOPED_TRACE(absl::StrCat(target, served ? " served" : ""));
      fs::remove_all(directory_ + "/state");
      fs::remove_all(directory_ + "/state.guard");
      const Digest round = frontend_.OpenRound();
      std::atomic<bool> cancelled = false;
      const auto hook = [&](const std::string& name) {
        if (name == target) cancelled = true;
        // Before a request is served: it fails as one whose connection is closed.
        return name == target && !served ? absl::CancelledError("cancelled") : absl::OkStatus();
      };
      (served ? frontend_.after : frontend_.before) = hook;
      const auto handle = Open();
      const auto first = LookUp(*handle, {"key-1", "key-2"}, {.cancelled = &cancelled});
      frontend_.before = frontend_.after = nullptr;
      const bool was_last = target == std::string("FetchAnswers") && served;
      if (was_last) {
        // All answers had come.
        SHOAL_ASSERT_OK(first);
        EXPECT_EQ(ToString((*first)->Get(1).value), "value of key-2");
      } else {
        ASSERT_THAT(first, StatusIs(absl::StatusCode::kCancelled, "cancelled"));
        const auto second = LookUp(*handle, {"key-1", "key-2"});
        SHOAL_ASSERT_OK(second);
        EXPECT_EQ(ToString((*second)->Get(1).value), "value of key-2");
      }
      EXPECT_EQ(State().ledger.submissions(), 1u);
      EXPECT_EQ(State().ledger.queries(), 8u);
      EXPECT_EQ(State().ledger.idle_rounds(), 0u);
      EXPECT_EQ(frontend_.Asked(round).size(), 8u);
      frontend_.SetState(round, wire::CLOSED);
    }
  }
}

TEST_F(HandleTest, ACancelledCallEndsWhileItSleeps) {
  const auto handle = Open();
  // No round takes onions, so that the lookup polls until its second is over; cancelled before
  // that, it must not last that long.
  std::atomic<bool> cancelled = false;
  const Call call = {.report =
                         [&](const Report& report) {
                           if (absl::StrContains(report.text, "waiting for a round")) {
                             cancelled = true;
                           }
                         },
                     .cancelled = &cancelled};
  EXPECT_THAT(LookUp(*handle, {"key-1"}, call),
              StatusIs(absl::StatusCode::kCancelled, "cancelled"));
  EXPECT_THAT(LookUp(*handle, {"key-1"}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "no round took"));
}

TEST_F(HandleTest, NothingIsSentIfItWasCancelledBefore) {
  const std::atomic<bool> cancelled = true;
  const auto handle = Open();
  EXPECT_THAT(LookUp(*handle, {"key-1"}, {.cancelled = &cancelled}),
              StatusIs(absl::StatusCode::kCancelled, "cancelled"));
  EXPECT_TRUE(frontend_.sent.empty());
  EXPECT_FALSE(fs::exists(directory_ + "/state.lock"));
}

TEST_F(HandleTest, AServerCannotSayThatTheCallerCancelled) {
  frontend_.OpenRound();
  frontend_.before = [](const std::string&) { return absl::CancelledError("so says the server"); };
  const auto handle = Open();
  const std::atomic<bool> cancelled = false;
  EXPECT_THAT(LookUp(*handle, {"key-1"}, {.cancelled = &cancelled}),
              StatusIs(absl::StatusCode::kInternal, "a server says"));
}

// Calls of one client take turns; another client of the same state is refused.
TEST_F(HandleTest, OneCallAtATime) {
  frontend_.OpenRound();
  frontend_.OpenRound();
  const auto handle = Open(), other = Open();
  std::atomic<bool> inside = false, go_on = false;
  const Call slow = {.report = [&](const Report&) {
    inside = true;
    EXPECT_TRUE(::shoal::testing::Soon([&] { return go_on.load(); }));
  }};
  std::thread first([&] { SHOAL_EXPECT_OK(LookUp(*handle, {"key-1"}, slow)); });
  EXPECT_TRUE(::shoal::testing::Soon([&] { return inside.load(); }));

  const auto refused = LookUp(*other, {"key-2"});
  EXPECT_TRUE(client::IsInUse(refused.status())) << refused.status();

  std::atomic<bool> cancelled = false;
  std::thread waits([&] {
    EXPECT_THAT(LookUp(*handle, {"key-3"}, {.cancelled = &cancelled}),
                StatusIs(absl::StatusCode::kCancelled, "cancelled"));
  });
  cancelled = true;
  waits.join();

  std::thread second([&] { SHOAL_EXPECT_OK(LookUp(*handle, {"key-4"})); });
  go_on = true;
  first.join();
  second.join();
  EXPECT_EQ(State().ledger.submissions(), 2u);
}

TEST_F(HandleTest, ACallbackCannotUseItsOwnClient) {
  frontend_.OpenRound();
  const auto handle = Open();
  std::map<absl::StatusCode, int> inner;
  const Call call = {
      .report = [&](const Report&) { ++inner[LookUp(*handle, {"key-2"}).status().code()]; }};
  SHOAL_ASSERT_OK(LookUp(*handle, {"key-1"}, call));
  ASSERT_EQ(inner.size(), 1u);
  EXPECT_GE(inner[absl::StatusCode::kFailedPrecondition], 1);
}

// A process may fork between calls; a child of a fork within a call must not wait for a thread that
// it does not have.
TEST_F(HandleTest, AForkedChildIsToldThatItHasACopy) {
  frontend_.OpenRound();
  const auto handle = Open();
  int code = -1;
  const Call call = {.report = [&](const Report&) {
    if (code >= 0) return;
    const pid_t child = ::fork();
    if (child == 0) {
      std::thread other([&] {
        ::_exit(absl::IsFailedPrecondition(LookUp(*handle, {"key-2"}).status()) ? 7 : 8);
      });
      other.join();
    }
    int status = 0;
    SHOAL_CHECK(::waitpid(child, &status, 0) == child);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }};
  SHOAL_ASSERT_OK(LookUp(*handle, {"key-1"}, call));
  EXPECT_EQ(code, 7);
}

TEST_F(HandleTest, ReportsSayWhatIsSentAndNoKey) {
  frontend_.OpenRound();
  const auto handle = Open();
  std::string all;
  int counts = 0;
  const Call call = {.report = [&](const Report& report) {
    absl::StrAppend(&all, report.text, "\n");
    counts += report.kind == Report::Kind::kCount;
  }};
  SHOAL_ASSERT_OK(LookUp(*handle, {"key-1", "nobody-at-all"}, call));
  EXPECT_THAT(all,
              ::testing::HasSubstr("this lookup sends 8 queries, padding included, in 1 round"));
  EXPECT_THAT(all, ::testing::Not(::testing::HasSubstr("key-1")));
  EXPECT_THAT(all, ::testing::Not(::testing::HasSubstr("nobody")));
  EXPECT_GE(counts, 1);
}

TEST_F(HandleTest, AMissingConfigurationIsNamed) {
  const auto missing = Handle::Open(directory_ + "/none/client.textproto", nullptr);
  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kNotFound, "none/client.textproto"));
  ASSERT_EQ(::setenv("XDG_CONFIG_HOME", directory_.c_str(), 1), 0);
  EXPECT_THAT(Handle::Open("", nullptr), StatusIs(absl::StatusCode::kNotFound, "client.textproto"));
  fs::create_directory(directory_ + "/shoal");
  fs::copy(directory_ + "/client.textproto", directory_ + "/shoal");
  fs::copy(directory_ + "/pins.textproto", directory_ + "/shoal");
  SHOAL_EXPECT_OK(Handle::Open("", nullptr));
  ::unsetenv("XDG_CONFIG_HOME");
}

}  // namespace
}  // namespace shoal::library
