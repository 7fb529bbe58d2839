// Whatever happens to the files of a hint, the client ends up with the server's setup, reads right
// records, and fetches only what was missing.
#include "src/client/hint_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/family.h"
#include "src/pir/setup/signed_setup.h"
#include "src/pir/testing/records.h"
#include "src/roster/testing/parties.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"
#include "src/wire/pir.pb.h"

namespace shoal::client {
namespace {

using pir::testing::Records;
using testing::StatusIs;
using wire::Frame;
using wire::FrameType;

constexpr uint64_t kRows = 500;
constexpr uint32_t kDeltaPiece = 20;

class HintCacheTest : public ::testing::Test {
 protected:
  HintCacheTest() : path_(::testing::TempDir() + "/hint-cache-test") {
    for (const std::string& file : Files()) unlink(file.c_str());
    server_ = *engine_.CreateServer(records_.content(1), {});
  }

  std::vector<std::string> Files() const {
    return {path_ + ".setup", path_ + ".hint", path_ + ".deltas"};
  }
  // Makes the server's next epoch, in which some rows differ.
  void NextEpoch() {
    ++epoch_;
    const std::set<uint64_t> rows = {3, 250, epoch_};
    const std::vector<uint64_t> changed(rows.begin(), rows.end());
    for (uint64_t row : changed) records_.Fill(row, static_cast<uint8_t>(17 * epoch_ + row));
    Refresh(changed);
  }
  void Refresh(const std::vector<uint64_t>& changed) {
    delta_ = *server_->Refresh(records_.content(epoch_), changed);
    signed_delta_ = pir::DeltaDigest(*delta_);
  }
  // The setup and the delta that leads to it, signed by all parties.
  wire::SignedPirSetup Sign(const wire::PirSetup& setup) const {
    wire::SignedPirSetup out;
    *out.mutable_setup() = setup;
    if (signed_delta_) out.set_delta_digest(ToString(*signed_delta_));
    out.set_signature(parties_.SignatureByAll(pir::SetupMessage(out)));
    return out;
  }
  // Answers as PirService does, and as `spoil_` changes it.
  absl::StatusOr<Frame> Call(const Frame& request) {
    absl::StatusOr<Frame> frame = Serve(request);
    if (frame.ok() && spoil_) spoil_(*frame);
    return frame;
  }
  absl::StatusOr<Frame> Serve(const Frame& request) {
    if (request.type == FrameType::kGetPirDelta) {
      wire::GetPirDeltaRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      if (!delta_ || ToString(delta_->from) != message.from_setup_id()) {
        return absl::NotFoundError("no delta");
      }
      if (delta_pieces_left_-- <= 0) return delta_error_;
      wire::GetPirDeltaResponse response;
      *response.mutable_to() = Sign(delta_->to);
      response.set_total_bytes(delta_->changes.size());
      SHOAL_ASSIGN_OR_RETURN(Bytes piece,
                             Piece(delta_->changes, message.offset(), message.max_bytes()));
      return wire::MakeFrame(request.type, response, std::move(piece));
    }
    if (pieces_left_-- <= 0) return absl::UnavailableError("cut off");
    wire::GetPirHintRequest message;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
    if (message.setup_id() != ToString(pir::SetupId(server_->setup()))) {
      return absl::NotFoundError("no setup");
    }
    wire::GetPirHintResponse response;
    response.set_total_bytes(server_->hint().size() + extra_total_);
    SHOAL_ASSIGN_OR_RETURN(Bytes piece,
                           Piece(server_->hint(), message.offset(), message.max_bytes()));
    return wire::MakeFrame(request.type, response, std::move(piece));
  }
  static absl::StatusOr<Bytes> Piece(BytesView whole, uint64_t offset, size_t most) {
    if (offset > whole.size()) return absl::OutOfRangeError("beyond the end");
    const BytesView rest = whole.subspan(offset);
    return ToBytes(rest.first(std::min(rest.size(), most)));
  }
  absl::StatusOr<std::unique_ptr<pir::Session>> Obtain() {
    fetch_ = HintFetch();
    return ObtainHint(
        engine_, Sign(server_->setup()), roster_, path_,
        [this](const Frame& frame, uint64_t) { return Call(frame); }, {},
        [this](uint64_t done, uint64_t total) {
          progress_.push_back({done, total});
        },
        fetch_, piece_bytes_);
  }
  std::vector<Bytes> Contents() const {
    std::vector<Bytes> contents;
    for (const std::string& file : Files()) contents.push_back(Read(file));
    return contents;
  }
  void ExpectServed() {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<pir::Session> session, Obtain());
    ASSERT_EQ(pir::SetupId(session->setup()), pir::SetupId(server_->setup()));
    const std::vector<uint64_t> rows = {3, 250, kRows - 1};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = rows.size()}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
    const pir::RequestView view = {requests[0].kind, requests[0].count, requests[0].body};
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer,
                               server_->Answer(pir::Role::kSingle, {&view, 1})[0]);
    const BytesView answers = answer;
    SHOAL_ASSERT_OK(batch->Finish({&answers, 1}));
    Bytes expected;
    for (const uint64_t row : rows) Append(expected, records_.at(row));
    ASSERT_TRUE(std::ranges::equal(batch->TakeRecords(), expected));
  }
  static Bytes Read(const std::string& file) {
    const auto text = ReadFile(file);
    return text.ok() ? ToBytes(AsBytes(*text)) : Bytes();
  }
  static void Write(const std::string& file, BytesView content) {
    SHOAL_ASSERT_OK(WriteFileAtomically(file, content, FileMode::kPublic));
  }

  testing::TestRandom random_{5};
  const pir::Engine& engine_ = pir::lwe::SimplePir();
  const std::string path_;
  uint64_t epoch_ = 1;
  Records records_{kRows, 4};
  roster::testing::Parties parties_{2, random_};
  const roster::Roster roster_ = parties_.roster();
  std::unique_ptr<pir::Server> server_;
  std::optional<pir::Delta> delta_;
  std::optional<Digest> signed_delta_;
  int pieces_left_ = 1 << 30, delta_pieces_left_ = 1 << 30;
  absl::Status delta_error_ = absl::UnavailableError("cut off");
  uint64_t extra_total_ = 0;
  uint32_t piece_bytes_ = 10'000;
  std::function<void(Frame&)> spoil_ = nullptr;  // changes responses
  std::vector<std::pair<uint64_t, uint64_t>> progress_;
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
  // A client that missed an epoch fetches the hint.
  NextEpoch();
  NextEpoch();
  EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
}

// An interrupted delta is continued, in pieces and with a progress bar like a hint. The hint of the
// epoch before stays all the time.
TEST_F(HintCacheTest, ADeltaThatWasCutOffIsContinued) {
  ExpectServed();
  piece_bytes_ = kDeltaPiece;
  NextEpoch();
  const uint64_t total = delta_->changes.size();
  ASSERT_GT(total, 2 * kDeltaPiece);
  pieces_left_ = 0;  // of a hint
  uint64_t resumed = 0;
  for (int pieces = 0; pieces < 3; ++pieces) {
    delta_pieces_left_ = pieces;  // the first answer tells what the delta is
    EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
    EXPECT_FALSE(fetch_.by_delta);
    EXPECT_EQ(fetch_.received_bytes, pieces == 2 ? kDeltaPiece : 0);
    resumed += fetch_.received_bytes;
  }
  delta_pieces_left_ = 1 << 30;
  progress_.clear();
  ExpectServed();
  EXPECT_TRUE(fetch_.by_delta);
  EXPECT_EQ(resumed, kDeltaPiece);
  EXPECT_EQ(fetch_.resumed_bytes, server_->hint().size() + resumed);
  EXPECT_EQ(fetch_.received_bytes, total - resumed);
  ASSERT_FALSE(progress_.empty());
  EXPECT_EQ(progress_.front(), std::pair(resumed + kDeltaPiece, total));
  EXPECT_EQ(progress_.back(), std::pair(total, total));
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u);
}

// The part of a delta that has come is damaged on disk: it is not used.
TEST_F(HintCacheTest, APartOfADeltaThatIsDamaged) {
  ExpectServed();
  piece_bytes_ = kDeltaPiece;
  NextEpoch();
  delta_pieces_left_ = 2;
  EXPECT_FALSE(Obtain().ok());
  delta_pieces_left_ = 1 << 30;
  const Bytes good = Read(path_ + ".deltas");
  const Bytes hint = Read(path_ + ".hint");
  const Bytes setup = Read(path_ + ".setup");
  for (size_t at = 0; at < good.size(); at += 7) {
    Bytes bad = good;
    bad[at] ^= 0x10;
    Write(path_ + ".deltas", bad);
    Write(path_ + ".hint", hint);
    Write(path_ + ".setup", setup);
    ExpectServed();
    if (HasFatalFailure()) return;
    // If the damage is in the head, the delta is fetched from its start. If it is in the changes,
    // the hint is fetched.
    const bool in_head = at < good.size() - kDeltaPiece;
    ASSERT_EQ(fetch_.by_delta, in_head) << "byte " << at;
    ASSERT_EQ(fetch_.received_bytes == delta_->changes.size(), in_head) << "byte " << at;
  }
}

// A temporary error leaves the hint in place: it is better to fetch a small delta later than a
// large hint now.
TEST_F(HintCacheTest, APassingErrorKeepsWhatIsThere) {
  ExpectServed();
  piece_bytes_ = kDeltaPiece;
  NextEpoch();
  for (const absl::Status& error :
       {absl::UnavailableError("away"), absl::ResourceExhaustedError("too many answers at once"),
        absl::InternalError("odd"), absl::DeadlineExceededError("slow")}) {
    delta_error_ = error;
    for (int pieces : {0, 1, 2}) {
      const std::vector<Bytes> before = Contents();
      delta_pieces_left_ = pieces;
      EXPECT_THAT(Obtain(), StatusIs(error.code(), std::string(error.message())));
      const std::vector<Bytes> after = Contents();
      EXPECT_EQ(after[0], before[0]);
      EXPECT_EQ(after[1], before[1]);
      EXPECT_GE(after[2].size(), before[2].size());
    }
  }
  delta_pieces_left_ = 1 << 30;
  pieces_left_ = 0;
  ExpectServed();
  EXPECT_TRUE(fetch_.by_delta);
}

// No delta leads to the server's epoch, and its hint does not come: the old files may still be
// useful.
TEST_F(HintCacheTest, WhatIsThereGoesWhenAHintComes) {
  ExpectServed();
  NextEpoch();
  ExpectServed();
  const std::vector<Bytes> before = Contents();
  delta_.reset();
  epoch_ = 10;
  NextEpoch();
  delta_.reset();
  pieces_left_ = 0;
  EXPECT_FALSE(Obtain().ok());
  EXPECT_EQ(Contents(), before);
  pieces_left_ = 1;
  EXPECT_FALSE(Obtain().ok());
  EXPECT_TRUE(Read(path_ + ".deltas").empty());
  pieces_left_ = 1 << 30;
  ExpectServed();
  EXPECT_EQ(fetch_.resumed_bytes, 10'000u);
}

// If a delta cannot be written to disk, every query fetches it again, and queries are answered.
TEST_F(HintCacheTest, ADeltaThatCannotBeWrittenIsUsed) {
  ExpectServed();
  piece_bytes_ = kDeltaPiece;
  const std::vector<Bytes> before = Contents();
  NextEpoch();
  pieces_left_ = 0;  // of a hint
  // The link reads as a file that is missing and cannot be made.
  ASSERT_EQ(symlink((path_ + ".nowhere/deltas").c_str(), (path_ + ".deltas").c_str()), 0);
  for (int time = 0; time < 2; ++time) {
    ExpectServed();
    EXPECT_TRUE(fetch_.by_delta);
    EXPECT_EQ(fetch_.received_bytes, delta_->changes.size());
    EXPECT_FALSE(fetch_.unwritten.ok());
    EXPECT_EQ(Contents(), before);
  }
  // Writing breaks in the middle: the part on disk is continued.
  unlink((path_ + ".deltas").c_str());
  int pieces = 0;
  spoil_ = [&](Frame& frame) {
    // The first answer carries no piece that is kept.
    if (frame.type != FrameType::kGetPirDelta || ++pieces != 3) return;
    ASSERT_EQ(rename((path_ + ".deltas").c_str(), (path_ + ".begun").c_str()), 0);
    ASSERT_EQ(symlink((path_ + ".nowhere/deltas").c_str(), (path_ + ".deltas").c_str()), 0);
  };
  ExpectServed();
  EXPECT_TRUE(fetch_.by_delta);
  EXPECT_GT(pieces, 3);
  spoil_ = nullptr;
  ASSERT_EQ(rename((path_ + ".begun").c_str(), (path_ + ".deltas").c_str()), 0);
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, delta_->changes.size() - kDeltaPiece);
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u);
}

// The same for the hint.
TEST_F(HintCacheTest, AHintThatCannotBeWrittenIsUsed) {
  // A directory, which a file cannot replace.
  ASSERT_TRUE(std::filesystem::create_directory(path_ + ".setup"));
  for (int time = 0; time < 2; ++time) {
    ExpectServed();
    EXPECT_EQ(fetch_.received_bytes, server_->hint().size());
    EXPECT_FALSE(fetch_.unwritten.ok());
    EXPECT_FALSE(FileExists(path_ + ".hint")) << "of no setup";
  }
  ASSERT_TRUE(std::filesystem::remove(path_ + ".setup"));
  // Writing breaks in the middle: the part on disk is continued.
  int pieces = 0;
  spoil_ = [&](Frame& frame) {
    if (frame.type != FrameType::kGetPirHint || ++pieces != 3) return;
    ASSERT_EQ(rename((path_ + ".hint").c_str(), (path_ + ".begun").c_str()), 0);
    ASSERT_EQ(symlink((path_ + ".nowhere/hint").c_str(), (path_ + ".hint").c_str()), 0);
  };
  ExpectServed();
  EXPECT_GT(pieces, 3);
  EXPECT_FALSE(fetch_.unwritten.ok());
  spoil_ = nullptr;
  ASSERT_EQ(rename((path_ + ".begun").c_str(), (path_ + ".hint").c_str()), 0);
  ExpectServed();
  EXPECT_EQ(fetch_.resumed_bytes, 20'000u);
  EXPECT_EQ(fetch_.received_bytes, server_->hint().size() - 20'000);
  SHOAL_EXPECT_OK(fetch_.unwritten);
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u);
}

// The server takes another epoch while its delta is fetched.
TEST_F(HintCacheTest, APartOfADeltaToAnEpochThatIsOver) {
  ExpectServed();
  piece_bytes_ = kDeltaPiece;
  NextEpoch();
  ExpectServed();
  NextEpoch();
  delta_pieces_left_ = 2;
  EXPECT_FALSE(Obtain().ok());
  delta_pieces_left_ = 1 << 30;
  NextEpoch();
  ExpectServed();
  EXPECT_FALSE(fetch_.by_delta);
  EXPECT_EQ(fetch_.received_bytes, server_->hint().size());
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u);
}

// Deltas are applied whenever the files are opened, so they must not grow without end.
TEST_F(HintCacheTest, DeltasAreNeverLongerThanTheHint) {
  ExpectServed();
  std::vector<uint64_t> all(kRows);
  for (uint64_t row = 0; row < kRows; ++row) all[row] = row;
  int whole = 0;
  for (int i = 0; i < 12; ++i) {
    ++epoch_;
    for (uint64_t row : all) records_.Fill(row, static_cast<uint8_t>(17 * epoch_ + row));
    Refresh(all);
    ASSERT_LT(delta_->changes.size(), server_->hint().size());
    ExpectServed();
    whole += !fetch_.by_delta;
    EXPECT_LE(Read(path_ + ".deltas").size(), server_->hint().size());
    pieces_left_ = 0;
    ExpectServed();
    EXPECT_EQ(fetch_.received_bytes, 0u);
    pieces_left_ = 1 << 30;
  }
  EXPECT_GT(whole, 0);
  EXPECT_LT(whole, 6);
}

TEST_F(HintCacheTest, FilesAreTheOwnersAlone) {
  ExpectServed();
  NextEpoch();
  ExpectServed();
  for (const std::string& file : Files()) {
    using std::filesystem::perms;
    EXPECT_EQ(std::filesystem::status(file).permissions(), perms::owner_read | perms::owner_write)
        << file;
  }
}

// Whatever a server answers when it is asked for a delta, the client reaches the server's epoch, by
// the hint if need be.
TEST_F(HintCacheTest, MutatedDeltas) {
  const google::protobuf::LogSilencer silence;
  ExpectServed();
  piece_bytes_ = kDeltaPiece;
  const std::vector<Bytes> before = Contents();
  NextEpoch();
  int whole = 0, deltas = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const std::vector<std::string> files = Files();
    for (size_t f = 0; f < files.size(); ++f) Write(files[f], before[f]);
    uint64_t good_answers = random_.Below(8);  // then one is spoilt, if so many come
    const bool again = random_.Below(2) == 0;  // and all later ones
    spoil_ = [&](Frame& frame) {
      if (frame.type != FrameType::kGetPirDelta) return;
      if (good_answers > 0) {
        --good_answers;
        return;
      }
      if (!again) good_answers = 1 << 30;
      wire::GetPirDeltaResponse response;
      ASSERT_TRUE(response.ParseFromString(frame.control));
      switch (random_.Below(7)) {
        case 0:
          if (!frame.bulk.empty()) {
            frame.bulk[random_.Below(frame.bulk.size())] ^=
                static_cast<uint8_t>(1u << random_.Below(8));
          }
          break;
        case 1:
          frame.bulk.resize(random_.Below(2 * kDeltaPiece));
          break;
        case 2:
          response.set_total_bytes(random_.Below(2) == 0 ? ~random_.Below(2) : random_.Below(1000));
          break;
        case 3:
          response.mutable_to()->set_delta_digest(std::string(random_.Below(40), 'x'));
          break;
        case 4:
          response.mutable_to()->mutable_setup()->set_epoch(random_.Below(4));
          break;
        case 5:
          frame.control[random_.Below(frame.control.size())] ^=
              static_cast<char>(1 << random_.Below(8));
          return;
        default:
          frame.control.resize(random_.Below(frame.control.size()));
          return;
      }
      frame.control = response.SerializeAsString();
    };
    ExpectServed();
    if (HasFatalFailure()) return;
    (fetch_.by_delta ? deltas : whole) += 1;
    spoil_ = nullptr;
    ExpectServed();
    ASSERT_EQ(fetch_.received_bytes, 0u);
  }
  EXPECT_GT(whole, 30);
  EXPECT_GT(deltas, 12);
}

// A damaged byte of a delta on disk is found: without the digest it would be added to the hint, and
// rows would fail until the next hint.
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
  // A torn tail, as a killed process leaves it.
  Bytes torn = good;
  torn.insert(torn.end(), good.begin(), good.begin() + 50);
  Write(path_ + ".deltas", torn);
  NextEpoch();
  ExpectServed();
  EXPECT_TRUE(fetch_.by_delta);
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, 0u) << "it was added where it cannot be read";
}

// Whatever is on disk, the client has the server's setup in the end.
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
    // The files on disk are repaired, too.
    ExpectServed();
    ASSERT_EQ(fetch_.received_bytes, 0u);
  }
  EXPECT_GT(whole, 3);
  EXPECT_GT(deltas, 3);
}

TEST_F(HintCacheTest, AServerThatSendsSomethingElse) {
  extra_total_ = 1;
  EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kDataLoss, "where it had said"));
  extra_total_ = 0;
  ExpectServed();
  // A delta that leads to another epoch, or to none, is not used.
  NextEpoch();
  delta_->to.set_rows(kRows - 1);
  ExpectServed();
  EXPECT_FALSE(fetch_.by_delta);
  NextEpoch();
  delta_->changes.pop_back();
  ExpectServed();
  EXPECT_FALSE(fetch_.by_delta);
}

// A hint that is not the one that all parties signed is thrown away and fetched again once, before
// anything is asked; then the server is given up.
TEST_F(HintCacheTest, APoisonedHintIsFetchedAgainOnce) {
  int hints = 0, poisoned = 0;
  spoil_ = [&](Frame& frame) {
    if (frame.type != FrameType::kGetPirHint) return;
    wire::GetPirHintResponse response;
    ASSERT_TRUE(response.ParseFromString(frame.control));
    if (hints < poisoned) frame.bulk[0] ^= 1;
    if (fetch_.received_bytes % server_->hint().size() + frame.bulk.size() ==
        server_->hint().size()) {
      ++hints;
    }
  };
  poisoned = 1;
  ExpectServed();
  EXPECT_EQ(hints, 2);
  EXPECT_EQ(fetch_.received_bytes, 2 * server_->hint().size());
  for (const std::string& file : Files()) unlink(file.c_str());
  hints = 0;
  poisoned = 1 << 30;
  EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kDataLoss, "digest"));
  EXPECT_EQ(hints, 2);
  EXPECT_FALSE(FileExists(path_ + ".hint"));
  // What was whole and is damaged on disk counts as the first time.
  hints = poisoned = 0;
  ExpectServed();
  Bytes bad = Read(path_ + ".hint");
  bad[7] ^= 1;
  Write(path_ + ".hint", bad);
  hints = 0;
  poisoned = 1 << 30;
  EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kDataLoss, "digest"));
  EXPECT_EQ(hints, 1);
}

// A server that sends less than it is asked for would choose where an interrupted download goes on,
// and know the client by it.
TEST_F(HintCacheTest, PiecesEndWhereTheClientSays) {
  spoil_ = [&](Frame& frame) { frame.bulk.resize(frame.bulk.size() - 1); };
  EXPECT_THAT(Obtain(), StatusIs(absl::StatusCode::kDataLoss, "9999 bytes"));
  EXPECT_FALSE(FileExists(path_ + ".hint"));
}

// A delta that the server made up, with every digest right but no signature on it, is not applied.
TEST_F(HintCacheTest, ADeltaThatNobodySignedIsNotApplied) {
  ExpectServed();
  const Bytes hint = Read(path_ + ".hint");
  NextEpoch();
  // One changed byte of one column more than there was: a valid encoding.
  ASSERT_GT(delta_->changes.size(), 29u);
  delta_->changes[28] ^= 1;
  ExpectServed();
  EXPECT_FALSE(fetch_.by_delta);
  EXPECT_EQ(fetch_.received_bytes, delta_->changes.size() + server_->hint().size());
  // Nor from the disk, where somebody wrote it with a setup of his own.
  ExpectServed();
  NextEpoch();
  wire::GetPirDeltaResponse head;
  delta_->changes[28] ^= 1;
  *head.mutable_to() = Sign(delta_->to);
  head.mutable_to()->set_delta_digest(ToString(pir::DeltaDigest(*delta_)));
  head.set_total_bytes(delta_->changes.size());
  const std::string text = head.SerializeAsString();
  Bytes forged;
  AppendLe<uint32_t>(forged, static_cast<uint32_t>(text.size()));
  Append(forged, AsBytes(text));
  Append(forged, delta_->changes);
  Write(path_ + ".deltas", forged);
  delta_->changes[28] ^= 1;
  ExpectServed();
  EXPECT_TRUE(fetch_.by_delta);
  EXPECT_EQ(fetch_.received_bytes, delta_->changes.size());
}

// A hint on disk counts only with a setup that this roster's parties signed.
TEST_F(HintCacheTest, AHintOfOtherPartiesIsFetchedAgain) {
  ExpectServed();
  wire::SignedPirSetup setup;
  ASSERT_TRUE(setup.ParseFromString(ToString(Read(path_ + ".setup"))));
  const roster::testing::Parties others(2, random_);
  setup.set_signature(others.SignatureByAll(pir::SetupMessage(setup)));
  Write(path_ + ".setup", AsBytes(setup.SerializeAsString()));
  ExpectServed();
  EXPECT_EQ(fetch_.received_bytes, server_->hint().size());
}

// A shape that fits the table but whose hint fits no machine's memory is found before the hint is
// fetched.
TEST_F(HintCacheTest, AHintLargerThanTheMemoryIsNotFetched) {
  wire::PirSetup setup = server_->setup();
  setup.set_rows_per_column(uint64_t{1} << 31);
  setup.set_columns(64);
  // 2^33 rows of 1024 words of so many bits.
  for (uint64_t bits = 32; bits > 0 && !engine_.SizesOf(setup).ok(); --bits) {
    setup.set_hint_bytes(bits << 40);
  }
  SHOAL_ASSERT_OK(engine_.SizesOf(setup));
  const auto obtained = ObtainHint(
      engine_, Sign(setup), roster_, path_,
      [this](const Frame& frame, uint64_t) { return Call(frame); }, {}, nullptr, fetch_);
  EXPECT_THAT(obtained, StatusIs(absl::StatusCode::kResourceExhausted, "the hint takes"));
  EXPECT_EQ(fetch_.received_bytes, 0u);
}

// A hint that just fits the memory does not fit with deltas, which may take as much again.
TEST_F(HintCacheTest, DeltasCountAsMemory) {
  pieces_left_ = 0;
  const auto obtain = [&] {
    wire::PirSetup setup = server_->setup();
    setup.set_columns(64);
    setup.set_rows_per_column(1000);
    const auto of_1000 = engine_.SizesOfShape(setup);
    SHOAL_CHECK(of_1000.ok());
    // The limit lies between the memory without deltas and the memory with them.
    const double bytes = static_cast<double>(of_1000->hint_memory_bytes) +
                         1.5 * static_cast<double>(of_1000->hint_bytes);
    setup.set_rows_per_column(
        static_cast<uint64_t>(1000 * static_cast<double>(AvailableMemory()) / bytes));
    setup.set_hint_bytes(engine_.SizesOfShape(setup)->hint_bytes);
    return ObtainHint(
               engine_, Sign(setup), roster_, path_,
               [this](const Frame& frame, uint64_t) { return Call(frame); }, {}, nullptr, fetch_)
        .status();
  };
  EXPECT_THAT(obtain(), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
  Write(path_ + ".deltas", Bytes(1));
  EXPECT_THAT(obtain(), StatusIs(absl::StatusCode::kResourceExhausted, "the hint takes"));
  unlink((path_ + ".deltas").c_str());
  EXPECT_THAT(obtain(), StatusIs(absl::StatusCode::kUnavailable, "cut off"));
}

}  // namespace
}  // namespace shoal::client
