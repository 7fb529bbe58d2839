#include "src/client/answer_spool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;
using shoal::testing::StatusIs;

constexpr size_t kCount = 25, kAnswerBytes = 100, kPieceBytes = 1050;  // ten a piece

class AnswerSpoolTest : public ::testing::Test {
 protected:
  AnswerSpoolTest() : answers_(kCount * kAnswerBytes) {
    std::string name = ::testing::TempDir() + "/spool.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
    path_ = name + "/answers";
    random_.Fill(answers_);
    random_.Fill(round_id_);
  }
  ~AnswerSpoolTest() override { fs::remove_all(directory_); }

  std::unique_ptr<AnswerSpool> Open() { return OpenAs(round_id_, kCount, kPieceBytes); }
  std::unique_ptr<AnswerSpool> OpenAs(const Digest& round_id, size_t count, size_t piece_bytes) {
    auto spool = AnswerSpool::Open(path_, round_id, count, kAnswerBytes, piece_bytes);
    EXPECT_THAT(spool.status(), shoal::testing::IsOk());
    return spool.ok() ? *std::move(spool) : nullptr;
  }
  BytesView PieceOf(const AnswerSpool& spool, size_t piece) const {
    return BytesView(answers_).subspan(spool.FirstOf(piece) * kAnswerBytes,
                                       spool.CountOf(piece) * kAnswerBytes);
  }
  void ExpectAll(const AnswerSpool& spool) {
    ASSERT_TRUE(spool.complete());
    for (size_t i = 0; i < kCount; ++i) {
      Bytes answer(kAnswerBytes);
      SHOAL_ASSERT_OK(spool.Read(i, answer));
      EXPECT_EQ(ToBytes(BytesView(answers_).subspan(i * kAnswerBytes, kAnswerBytes)), answer);
    }
    // Reads across the ends of pieces.
    Bytes most((kCount - 4) * kAnswerBytes);
    SHOAL_ASSERT_OK(spool.Read(3, most));
    EXPECT_EQ(ToBytes(BytesView(answers_).subspan(3 * kAnswerBytes, most.size())), most);
  }

  shoal::testing::TestRandom random_{1};
  std::string directory_, path_;
  Bytes answers_;
  Digest round_id_;
};

TEST_F(AnswerSpoolTest, KeepsPiecesInAnyOrderAndOverRuns) {
  {
    const auto spool = Open();
    EXPECT_EQ(spool->pieces(), 3u);
    EXPECT_EQ(spool->per_piece(), 10u);
    EXPECT_EQ(spool->CountOf(2), 5u);
    SHOAL_ASSERT_OK(spool->Put(2, PieceOf(*spool, 2)));
    SHOAL_ASSERT_OK(spool->Put(0, PieceOf(*spool, 0)));
    EXPECT_FALSE(spool->complete());
  }
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  {
    const auto spool = Open();
    EXPECT_TRUE(spool->Has(0));
    EXPECT_FALSE(spool->Has(1));
    EXPECT_TRUE(spool->Has(2));
    SHOAL_ASSERT_OK(spool->Put(1, PieceOf(*spool, 1)));
    ExpectAll(*spool);
  }
  ExpectAll(*Open());
}

// After a process was killed, or a machine lost its power, incomplete pieces count as missing.
TEST_F(AnswerSpoolTest, WhatIsNotWholeIsNotThere) {
  {
    const auto spool = Open();
    for (size_t piece = 0; piece < 3; ++piece) {
      SHOAL_ASSERT_OK(spool->Put(piece, PieceOf(*spool, piece)));
    }
  }
  const std::string whole = *ReadFile(path_);
  const auto had = [&](const std::string& content) {
    EXPECT_TRUE(WriteFileAtomically(path_, AsBytes(content), FileMode::kPrivate).ok());
    const auto spool = Open();
    std::string text;
    for (size_t piece = 0; piece < 3; ++piece) text += spool->Has(piece) ? "1" : "0";
    return text;
  };
  EXPECT_EQ(had(whole), "111");
  EXPECT_EQ(had(whole.substr(0, whole.size() - 1)), "110");
  EXPECT_EQ(had(whole.substr(0, 1032 + 17)), "100");
  EXPECT_EQ(had(""), "000");
  std::string spoiled = whole;
  spoiled[1032 + 5] ^= 1;
  EXPECT_EQ(had(spoiled), "101");
  spoiled = whole;
  std::fill_n(spoiled.begin() + 1032, 1032, '\0');  // a hole
  EXPECT_EQ(had(spoiled), "101");
  spoiled = whole.substr(1032, 1032) + whole.substr(0, 1032) + whole.substr(2064);
  EXPECT_EQ(had(spoiled), "001") << "a piece has its place";
}

TEST_F(AnswerSpoolTest, IsOfOneRoundAndOneCut) {
  {
    const auto spool = Open();
    SHOAL_ASSERT_OK(spool->Put(0, PieceOf(*spool, 0)));
  }
  Digest other = round_id_;
  other[0] ^= 1;
  EXPECT_FALSE(OpenAs(other, kCount, kPieceBytes)->Has(0));
  EXPECT_FALSE(OpenAs(round_id_, kCount, 500)->Has(0));
  EXPECT_TRUE(Open()->Has(0));
}

TEST_F(AnswerSpoolTest, AFullDiskIsAnErrorAndNoPiece) {
  const auto spool = Open();
  SHOAL_ASSERT_OK(spool->Put(0, PieceOf(*spool, 0)));
  // A limit on the size of files stands for a full disk.
  rlimit before;
  ASSERT_EQ(0, ::getrlimit(RLIMIT_FSIZE, &before));
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 1500;
  ASSERT_EQ(0, ::setrlimit(RLIMIT_FSIZE, &limit));
  const absl::Status put = spool->Put(1, PieceOf(*spool, 1));
  ASSERT_EQ(0, ::setrlimit(RLIMIT_FSIZE, &before));
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(put.ok());
  EXPECT_NE(put.message().find(path_), absl::string_view::npos) << put;
  EXPECT_FALSE(spool->Has(1));
  SHOAL_ASSERT_OK(spool->Put(1, PieceOf(*spool, 1)));
  SHOAL_ASSERT_OK(spool->Put(2, PieceOf(*spool, 2)));
  ExpectAll(*spool);
  EXPECT_THAT(AnswerSpool::CheckRoom(path_, uint64_t{1} << 60),
              StatusIs(absl::StatusCode::kResourceExhausted, directory_));
  SHOAL_EXPECT_OK(AnswerSpool::CheckRoom(path_, 1));
  SHOAL_EXPECT_OK(AnswerSpool::CheckRoom("", 1));
}

TEST_F(AnswerSpoolTest, OthersMayNotReadIt) {
  SHOAL_ASSERT_OK(WriteFileAtomically(path_, BytesView(), FileMode::kPublic));
  EXPECT_THAT(AnswerSpool::Open(path_, round_id_, kCount, kAnswerBytes, kPieceBytes),
              StatusIs(absl::StatusCode::kPermissionDenied, path_));
}

TEST_F(AnswerSpoolTest, NeedsNoName) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto spool,
                             AnswerSpool::Open("", round_id_, kCount, kAnswerBytes, kPieceBytes));
  for (size_t piece = 0; piece < 3; ++piece) {
    SHOAL_ASSERT_OK(spool->Put(piece, PieceOf(*spool, piece)));
  }
  ExpectAll(*spool);
}

}  // namespace
}  // namespace shoal::client
