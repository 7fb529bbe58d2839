#include "src/storage/spool.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal {
namespace {

using testing::IsOk;
using testing::StatusIs;
using testing::TestRandom;

Bytes SomeBytes(size_t n) {
  Bytes bytes(n);
  TestRandom(n).Fill(bytes);
  return bytes;
}

// The parameter is the place's memory in bytes.
class SpoolTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  SpoolPlace place_{::testing::TempDir(), GetParam()};
  ThreadPool pool_{2};
};

TEST_P(SpoolTest, GivesBackWhatWasWrittenInAnyPieces) {
  const Bytes content = SomeBytes(3'000'017);
  SHOAL_ASSERT_OK_AND_ASSIGN(Spool spool, place_.Create(content.size()));
  EXPECT_EQ(spool.in_memory(), GetParam() > 0);
  // Written from the back to the front, in pieces of odd sizes.
  TestRandom random(1);
  for (size_t end = content.size(); end > 0;) {
    const size_t n = std::min<size_t>(end, 1 + random.Below(400'000));
    end -= n;
    SHOAL_ASSERT_OK(spool.Write(end, BytesView(content).subspan(end, n)));
  }
  for (int i = 0; i < 100; ++i) {
    const size_t begin = random.Below(content.size());
    Bytes read(random.Below(content.size() - begin));
    SHOAL_ASSERT_OK(spool.Read(begin, read));
    EXPECT_TRUE(std::equal(read.begin(), read.end(), content.begin() + begin)) << begin;
  }
  // Written by several threads.
  SHOAL_ASSERT_OK_AND_ASSIGN(Spool copy, place_.Create(content.size()));
  SHOAL_ASSERT_OK(copy.Write(0, BytesView(content).first(2'500'001), &pool_));
  SHOAL_ASSERT_OK(copy.Write(2'500'001, BytesView(content).subspan(2'500'001), &pool_));
  Bytes whole(content.size());
  SHOAL_ASSERT_OK(copy.Read(0, whole, &pool_));
  EXPECT_EQ(whole, content);
  SpoolSource source(std::move(spool));
  EXPECT_EQ(source.size(), content.size());
  EXPECT_EQ(*ReadAll(source), content);
}

TEST_P(SpoolTest, TakesAllOfASource) {
  BytesSource source(SomeBytes(2'500'000));
  SHOAL_ASSERT_OK_AND_ASSIGN(Spool spool, place_.Create(source.size()));
  SHOAL_ASSERT_OK(FillSpool(source, spool, &pool_));
  Bytes read(spool.size());
  SHOAL_ASSERT_OK(spool.Read(0, read));
  EXPECT_EQ(read, SomeBytes(2'500'000));
}

// A source that ends early, or is too long, gives an error.
TEST_P(SpoolTest, RefusesASourceOfAnotherLength) {
  struct Liar final : ByteSource {
    explicit Liar(uint64_t s) : claimed(s) {}
    uint64_t size() const override { return claimed; }
    absl::StatusOr<BytesView> Next() override {
      if (calls++ == 2) return BytesView();
      return BytesView(piece);
    }
    const uint64_t claimed;
    int calls = 0;
    Bytes piece = Bytes(100);
  };
  Liar early(300), late(150);
  for (Liar* const source : {&early, &late}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(Spool spool, place_.Create(source->size()));
    EXPECT_FALSE(FillSpool(*source, spool).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(InMemoryAndInAFile, SpoolTest, ::testing::Values(0, 1 << 30));

TEST(SpoolPlaceTest, FilesTakeWhatMemoryDoesNotHoldAndRoomComesBack) {
  SpoolPlace place(::testing::TempDir(), 1000);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Spool first, place.Create(600));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Spool second, place.Create(600));
    EXPECT_TRUE(first.in_memory());
    EXPECT_FALSE(second.in_memory());
    EXPECT_EQ(place.file_bytes(), 600u);
  }
  EXPECT_EQ(place.file_bytes(), 0u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Spool third, place.Create(1000));
  EXPECT_TRUE(third.in_memory());
}

// Memory of a freed spool is zeroed and reused, or given back to the system if a new spool does not
// fit it.
TEST(SpoolPlaceTest, MemoryIsUsedAgainWithNothingLeftInIt) {
  constexpr uint64_t kBytes = 3 << 20;
  SpoolPlace place(::testing::TempDir(), kBytes);
  const uint8_t* first = nullptr;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(Spool spool, place.Create(kBytes));
    SHOAL_ASSERT_OK(spool.Write(0, Bytes(kBytes, 'x')));
    first = spool.memory().data();
  }
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(Spool spool, place.Create(kBytes - 5));
    EXPECT_EQ(spool.memory().data(), first);
    EXPECT_EQ(spool.memory().size(), kBytes - 5);
    Bytes read(kBytes - 5, 1);
    SHOAL_ASSERT_OK(spool.Read(0, read));
    EXPECT_EQ(read, Bytes(kBytes - 5));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Spool small, place.Create(1000));
  EXPECT_TRUE(small.in_memory());
}

// The bytes on disk are not the bytes that were written, and every file has a key of its own: equal
// contents are other bytes in each. The files are found through the process's descriptors.
TEST(SpoolPlaceTest, AFileHasNoNameAndHoldsNoPlaintext) {
  SpoolPlace place(::testing::TempDir(), 0);
  const Bytes content(4096, 'x');
  SHOAL_ASSERT_OK_AND_ASSIGN(Spool spool, place.Create(content.size()));
  SHOAL_ASSERT_OK(spool.Write(0, content));
  SHOAL_ASSERT_OK_AND_ASSIGN(Spool another, place.Create(content.size()));
  SHOAL_ASSERT_OK(another.Write(0, content));
  std::vector<Bytes> found;
  for (int fd = 3; fd < 1024; ++fd) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    struct stat file;
    if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_nlink != 0) continue;
    if (file.st_size != static_cast<off_t>(content.size())) continue;
    EXPECT_EQ(file.st_mode & 0777, 0600u);
    Bytes& raw = found.emplace_back(content.size());
    ASSERT_EQ(pread(fd, raw.data(), raw.size(), 0), static_cast<ssize_t>(raw.size()));
    EXPECT_LT(std::ranges::count(raw, 'x'), 100);
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0], found[1]);
}

TEST(SpoolPlaceTest, SaysWhereItCannotWrite) {
  SpoolPlace place("/nowhere/at/all", 0);
  EXPECT_THAT(place.Create(10).status(), StatusIs(absl::StatusCode::kNotFound, "/nowhere/at/all"));
}

}  // namespace
}  // namespace shoal
