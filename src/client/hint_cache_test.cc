// The files of a hint: whatever becomes of them, the client ends up with the server's setup and reads
// right records, and what is fetched is what was missing.
#include "src/client/hint_cache.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "src/base/file.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/testing/records.h"
#include "src/wire/pir.pb.h"

namespace shoal::client {
namespace {

using pir::testing::Records;
using testing::StatusIs;
using wire::Frame;
using wire::FrameType;

constexpr uint64_t kRows = 500;

class HintCacheTest : public ::testing::Test {
 protected:
  HintCacheTest() : path_(::testing::TempDir() + "/hint-cache-test") {
    for (const std::string& file : Files()) unlink(file.c_str());
    server_ = *pir::CreateServer(pir::Engine::kSimplePir, records_.content(1), {});
  }

  std::vector<std::string> Files() const {
    return {path_ + ".setup", path_ + ".hint", path_ + ".deltas"};
  }
  // The server's next epoch: some rows are others.
  void NextEpoch() {
    ++epoch_;
    const std::set<uint64_t> rows = {3, 250, epoch_};
    const std::vector<uint64_t> changed(rows.begin(), rows.end());
    for (uint64_t row : changed) records_.Fill(row, static_cast<uint8_t>(17 * epoch_ + row));
    delta_ = *server_->Refresh(records_.content(epoch_), changed);
  }
  // What PirService answers, in small pieces.
  absl::StatusOr<Frame> Call(const Frame& request) {
    if (request.type == FrameType::kGetPirDelta) {
      wire::GetPirDeltaRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      if (!delta_ || ToString(delta_->from) != message.from_setup_id()) {
        return absl::NotFoundError("no delta");
      }
      wire::GetPirDeltaResponse response;
      *response.mutable_to() = delta_->to;
      return wire::MakeFrame(request.type, response, Bytes(delta_->changes));
    }
    if (pieces_left_-- <= 0) return absl::UnavailableError("cut off");
    wire::GetPirHintRequest message;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
    const BytesView rest = server_->hint().subspan(message.offset());
    wire::GetPirHintResponse response;
    response.set_total_bytes(server_->hint().size() + extra_total_);
    return wire::MakeFrame(request.type, response,
                           ToBytes(rest.first(std::min<size_t>(rest.size(), 10'000))));
  }
  absl::StatusOr<std::unique_ptr<pir::Client>> Obtain() {
    fetch_ = HintFetch();
    return ObtainHint(
        server_->setup(), path_, [this](const Frame& frame, uint64_t) { return Call(frame); }, {},
        nullptr, fetch_);
  }
  void ExpectServed() {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<pir::Client> client, Obtain());
    ASSERT_EQ(pir::SetupId(client->setup()), pir::SetupId(server_->setup()));
    for (uint64_t row : {uint64_t{3}, uint64_t{250}, kRows - 1}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const pir::Asked asked, client->Ask(row, random_));
      const BytesView query = asked.query;
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, server_->Answer({&query, 1})[0]);
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client->Recover(asked, answer));
      ASSERT_EQ(record, records_.at(row));
    }
  }
  static Bytes Read(const std::string& file) {
    const auto text = ReadFile(file);
    return text.ok() ? ToBytes(AsBytes(*text)) : Bytes();
  }
  static void Write(const std::string& file, BytesView content) {
    SHOAL_ASSERT_OK(WriteFileAtomically(file, content, FileMode::kPublic));
  }

  testing::TestRandom random_{5};
  const std::string path_;
  uint64_t epoch_ = 1;
  Records records_{kRows, 4};
  std::unique_ptr<pir::Server> server_;
  std::optional<pir::Delta> delta_;
  int pieces_left_ = 1 << 30;
  uint64_t extra_total_ = 0;
  HintFetch fetch_;
};

TEST_F(HintCacheTest, EveryPieceThatCameIsKept) {
  for (int pieces = 0; pieces < 3; ++pieces) {
    pieces_left_ = 1;
    EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
    EXPECT_EQ(fetch_.resumed_bytes, pieces * 10'000u);
  }
  pieces_left_ = 1 << 30;
  ExpectServed();
  EXPECT_EQ(fetch_.resumed_bytes, 30'000u);
  EXPECT_EQ(fetch_.received_bytes, server_->hint().size() - 30'000);
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u);
}

TEST_F(HintCacheTest, ADownloadOfAnEpochThatIsOverBeginsAgain) {
  pieces_left_ = 2;
  EXPECT_FALSE(Obtain().ok());
  NextEpoch();
  pieces_left_ = 1 << 30;
  ExpectServed();
  EXPECT_EQ(fetch_.resumed_bytes, 0u);
  EXPECT_EQ(fetch_.received_bytes, server_->hint().size());
}

TEST_F(HintCacheTest, DeltasFollowOneAnother) {
  ExpectServed();
  for (int i = 0; i < 3; ++i) {
    NextEpoch();
    ExpectServed();
    EXPECT_TRUE(fetch_.by_delta);
    EXPECT_LT(fetch_.received_bytes, 500u);
  }
  pieces_left_ = 0;
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u);
  // One that missed an epoch fetches the hint.
  NextEpoch();
  NextEpoch();
  EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
}

// A byte of a delta on disk that is another: without a digest it would be added to the hint, and rows
// would fail until the next hint.
TEST_F(HintCacheTest, DamagedDeltasAreFetchedAgain) {
  ExpectServed();
  NextEpoch();
  ExpectServed();
  const Bytes good = Read(path_ + ".deltas");
  ASSERT_GT(good.size(), 100u);
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 40) {
    Bytes bad = good;
    bad[at] ^= 0x10;
    Write(path_ + ".deltas", bad);
    ExpectServed();
    EXPECT_TRUE(fetch_.by_delta) << "byte " << at;
    EXPECT_EQ(Read(path_ + ".deltas"), good) << "what is damaged is left behind";
  }
  // A torn tail, of a process that was killed.
  Bytes torn = good;
  torn.insert(torn.end(), good.begin(), good.begin() + 50);
  Write(path_ + ".deltas", torn);
  NextEpoch();
  ExpectServed();
  EXPECT_TRUE(fetch_.by_delta);
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u) << "it was added where it cannot be read";
}

// Anything on disk: the client is the server's in the end.
TEST_F(HintCacheTest, MutatedFiles) {
  const google::protobuf::LogSilencer silence;
  ExpectServed();
  NextEpoch();
  ExpectServed();
  const std::vector<std::string> files = Files();
  std::vector<Bytes> good;
  for (const std::string& file : files) good.push_back(Read(file));
  int whole = 0, deltas = 0;
  for (int trial = 0; trial < 60; ++trial) {
    for (size_t f = 0; f < files.size(); ++f) Write(files[f], good[f]);
    const size_t which = random_.Below(files.size());
    Bytes bytes = good[which];
    switch (random_.Below(4)) {
      case 0:
        bytes.resize(random_.Below(2 * bytes.size() + 1));
        break;
      case 1:
        random_.Fill(bytes);
        break;
      default:
        bytes[random_.Below(bytes.size())] ^= static_cast<uint8_t>(1u << random_.Below(8));
    }
    if (random_.Below(10) == 0) {
      unlink(files[which].c_str());
    } else {
      Write(files[which], bytes);
    }
    ExpectServed();
    if (HasFatalFailure()) return;
    deltas += fetch_.by_delta;
    whole += fetch_.received_bytes > 0 && !fetch_.by_delta;
    // It is mended on disk too.
    ExpectServed();
    ASSERT_EQ(fetch_.received_bytes, 0u);
  }
  EXPECT_GT(whole, 3);
  EXPECT_GT(deltas, 3);
}

TEST_F(HintCacheTest, AServerThatSendsSomethingElse) {
  extra_total_ = 1;
  EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kDataLoss, "its setup has"));
  extra_total_ = 0;
  ExpectServed();
  // A delta that leads elsewhere, or nowhere, is left alone.
  NextEpoch();
  delta_->to.set_rows(kRows - 1);
  ExpectServed();
  EXPECT_FALSE(fetch_.by_delta);
  NextEpoch();
  delta_->changes.pop_back();
  ExpectServed();
  EXPECT_FALSE(fetch_.by_delta);
}

// A shape that fits the table, and a hint that no machine holds: found before it is fetched.
TEST_F(HintCacheTest, AHintLargerThanTheMemoryIsNotFetched) {
  wire::PirSetup setup = server_->setup();
  setup.set_rows_per_column(uint64_t{1} << 31);
  setup.set_columns(64);
  // 2^33 rows of 1024 words of so many bits.
  for (uint64_t bits = 32; bits > 0 && !pir::SizesOf(setup).ok(); --bits) {
    setup.set_hint_bytes(bits << 40);
  }
  SHOAL_ASSERT_OK(pir::SizesOf(setup));
  const auto obtained = ObtainHint(
      setup, path_, [this](const Frame& frame, uint64_t) { return Call(frame); }, {}, nullptr,
      fetch_);
  EXPECT_THAT(obtained, StatusIs(absl::StatusCode::kResourceExhausted, "the hint takes"));
  EXPECT_EQ(fetch_.received_bytes, 0u);
}

}  // namespace
}  // namespace shoal::client
