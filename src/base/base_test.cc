#include <chrono>
#include <latch>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>

#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/file.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/base/thread_pool.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

std::string TempPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

TEST(TranscriptTest, FieldBoundariesMatter) {
  // "ab" + "c" and "a" + "bc" are different messages.
  EXPECT_NE(Transcript("d").Blob("ab").Blob("c").Finish(),
            Transcript("d").Blob("a").Blob("bc").Finish());
  EXPECT_NE(Transcript("d").Finish(), Transcript("e").Finish());
}

TEST(TranscriptTest, IsBlake2bOfTheDocumentedEncoding) {
  Bytes encoded;
  AppendLe<uint64_t>(encoded, 1);
  Append(encoded, AsBytes("d"));
  AppendLe<uint64_t>(encoded, 7);
  AppendLe<uint64_t>(encoded, 2);
  Append(encoded, AsBytes("xy"));
  Digest expected;
  crypto_generichash(expected.data(), 32, encoded.data(), encoded.size(), nullptr, 0);
  EXPECT_EQ(Transcript("d").U64(7).Blob("xy").Finish(), expected);
}

TEST(TranscriptTest, ABlobInPiecesIsTheSameBlob) {
  EXPECT_EQ(Transcript("d").Blob("abcdef").U64(1).Finish(),
            Transcript("d").BeginBlob(6).BlobPiece(AsBytes("abc")).BlobPiece(AsBytes("def")).U64(1)
                .Finish());
  EXPECT_DEATH(Transcript("d").BeginBlob(6).BlobPiece(AsBytes("abc")).U64(1), "blob_left_");
  EXPECT_DEATH(Transcript("d").BeginBlob(2).BlobPiece(AsBytes("abc")), "blob_left_");
}

TEST(SeededRandomTest, IsAFunctionOfSeedDomainAndStream) {
  const Bytes seed(32, 1);
  Bytes a(10000), b(10000);
  SeededRandom(seed, "x").Fill(a);
  SeededRandom again(seed, "x");
  // In odd pieces: the stream does not depend on how it is read.
  for (size_t at = 0; at < b.size();) {
    const size_t n = std::min<size_t>(37, b.size() - at);
    again.Fill(MutableBytes(b).subspan(at, n));
    at += n;
  }
  EXPECT_EQ(a, b);
  SeededRandom(seed, "y").Fill(b);
  EXPECT_NE(a, b);
  SeededRandom(seed, "x", 1).Fill(b);
  EXPECT_NE(a, b);
}

TEST(RandomSourceTest, BelowIsUniformAndInRange) {
  TestRandom random(1);
  std::map<uint64_t, int> counts;
  for (int i = 0; i < 60000; ++i) ++counts[random.Below(6)];
  ASSERT_EQ(counts.size(), 6u);
  double chi_squared = 0;
  for (const auto& [value, count] : counts) {
    EXPECT_LT(value, 6u);
    chi_squared += (count - 10000.0) * (count - 10000.0) / 10000.0;
  }
  EXPECT_LT(chi_squared, 20.5);  // 5 degrees of freedom, p = 0.001
}

TEST(SecretArrayTest, MovedFromIsWiped) {
  Seed seed(Bytes(32, 9));
  Seed moved = std::move(seed);
  EXPECT_TRUE(EqualSecret(seed.view(), Bytes(32, 0)));  // NOLINT: that is the point
  EXPECT_TRUE(EqualSecret(moved.view(), Bytes(32, 9)));
  EXPECT_FALSE(EqualSecret(moved.view(), Bytes(31, 9)));
}

TEST(CheckTest, StopsTheProcess) { EXPECT_DEATH(SHOAL_CHECK(1 == 2), "invariant broken: 1 == 2"); }

TEST(ThreadPoolTest, ParallelForCoversEveryIndexOnceAlsoNested) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> hits(1000);
  pool.ParallelFor(10, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      pool.ParallelFor(100, 7, [&, i](size_t b, size_t e) {
        for (size_t k = b; k < e; ++k) ++hits[i * 100 + k];
      });
    }
  });
  for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  pool.ParallelFor(0, 1, [](size_t, size_t) { FAIL(); });
}

// While one loop goes on and on, the two parts of another run at the same time: its caller has one,
// and the only worker comes from the first loop for the other.
TEST(ThreadPoolTest, LoopsShareTheWorkers) {
  ThreadPool pool(1);
  std::atomic<bool> done = false;
  std::thread long_loop([&] {
    pool.ParallelFor(1 << 20, 1, [&](size_t, size_t) {
      if (!done) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the worker is in it by now
  std::latch both(2);
  pool.ParallelFor(2, 1, [&](size_t, size_t) { both.arrive_and_wait(); });
  done = true;
  long_loop.join();
}

TEST(FileTest, PrivateFilesArePrivateAndReplacedAtomically) {
  const std::string path = TempPath("private");
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes("one"), FileMode::kPrivate));
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes("two"), FileMode::kPrivate));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string content, ReadPrivateFile(path));
  EXPECT_EQ(content, "two");
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(ReadPrivateFile(path), StatusIs(absl::StatusCode::kPermissionDenied, "chmod 600"));
}

TEST(FileTest, ErrorsNameThePath) {
  EXPECT_THAT(ReadFile("/nonexistent/x"), StatusIs(absl::StatusCode::kNotFound, "/nonexistent/x"));
  const std::string path = TempPath("big");
  SHOAL_ASSERT_OK(WriteFileAtomically(path, Bytes(100, 1), FileMode::kPublic));
  EXPECT_THAT(ReadFile(path, 99), StatusIs(absl::StatusCode::kResourceExhausted, "100 bytes"));
}

// Whoever serves others logs the one text and sends the other.
TEST(FileTest, ErrorsTellOthersNoPath) {
  const absl::Status error = Annotate(Annotate(ReadFile("/nonexistent/x").status(), "b"), "a");
  EXPECT_THAT(error, StatusIs(absl::StatusCode::kNotFound, "a: b: /nonexistent/x: No such file"));
  EXPECT_EQ(ForOthers(error), absl::NotFoundError("a: b: storage failed"));
  EXPECT_EQ(ForOthers(Annotate(absl::NotFoundError("no slot"), "a")),
            absl::NotFoundError("a: no slot"));
  SHOAL_EXPECT_OK(ForOthers(absl::OkStatus()));
}

TEST(FileTest, WipedFilesAreGone) {
  const std::string path = TempPath("wiped");
  SHOAL_ASSERT_OK(WriteFileAtomically(path, Bytes(100000, 1), FileMode::kPrivate));
  SHOAL_EXPECT_OK(WipeFile(path));
  EXPECT_FALSE(FileExists(path));
  SHOAL_EXPECT_OK(WipeFile(path));
}

TEST(FileTest, PrivateDirectoriesOpenToOthersAreRefused) {
  const std::string path = TempPath("dir");
  SHOAL_ASSERT_OK(MakeDirectory(path, FileMode::kPrivate));
  SHOAL_EXPECT_OK(MakeDirectory(path, FileMode::kPrivate));
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_THAT(MakeDirectory(path, FileMode::kPrivate),
              StatusIs(absl::StatusCode::kPermissionDenied, "chmod 700"));
}

}  // namespace
}  // namespace shoal
