#include "src/server/sealed_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/storage/file.h"

namespace shoal::server {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

class SealedFileTest : public ::testing::Test {
 protected:
  SealedFileTest() : random_(1), pool_(2), key_(random_.NewSeed()) {}

  // Written in pieces of `piece` bytes.
  void Write(BytesView bytes, size_t piece) {
    SHOAL_ASSERT_OK_AND_ASSIGN(SealedFileWriter writer,
                               SealedFileWriter::Create(path_, key_, bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += piece) {
      SHOAL_ASSERT_OK(writer.Write(bytes.subspan(at, std::min(piece, bytes.size() - at)), pool_));
    }
    SHOAL_ASSERT_OK(writer.Finish());
  }

  TestRandom random_;
  ThreadPool pool_;
  const Seed key_;
  const std::string path_ = ::testing::TempDir() + "/sealed";
};

TEST_F(SealedFileTest, IsReadAnywhere) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097},
                            size_t{9} << 20, (size_t{9} << 20) + 7}) {
    Bytes bytes(size);
    random_.Fill(bytes);
    Write(bytes, size < 100'000 ? 1000 : 1'000'003);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, SealedFile::Open(path_, key_, size));
    Bytes all(size);
    SHOAL_ASSERT_OK(file->Read(0, all, &pool_));
    EXPECT_EQ(all, bytes);
    for (int i = 0; i < 30 && size > 0; ++i) {
      const uint64_t offset = random_.Below(size);
      Bytes part(random_.Below(std::min<uint64_t>(size - offset, 200'000)) + 1);
      if (part.size() > size - offset) continue;
      SHOAL_ASSERT_OK(file->Read(offset, part));
      EXPECT_TRUE(std::ranges::equal(part, BytesView(bytes).subspan(offset, part.size())));
    }
  }
}

TEST_F(SealedFileTest, ContainsNothingThatWasWritten) {
  const Bytes bytes(200'000, 'x');
  Write(bytes, 50'000);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(path_));
  EXPECT_EQ(content.find("xxxxxxxx"), std::string::npos);
  struct stat info = {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SealedFileTest, EveryChangeIsAnError) {
  Bytes bytes(10'000);
  random_.Fill(bytes);
  Write(bytes, bytes.size());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(path_));
  Bytes into(bytes.size());
  const auto read = [&](std::string changed, const Seed& key, uint64_t size) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(path_, AsBytes(changed), FileMode::kPrivate));
    auto file = SealedFile::Open(path_, key, size);
    if (!file.ok()) return file.status();
    into.resize(size);
    return (*file)->Read(0, into);
  };
  SHOAL_ASSERT_OK(read(content, key_, bytes.size()));
  for (const size_t at : {size_t{0}, size_t{4'096}, size_t{4'200}, content.size() - 1}) {
    std::string changed = content;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_THAT(read(changed, key_, bytes.size()), StatusIs(kDataLoss, "not what was written"));
  }
  // Two chunks in each other's place, a shorter file, another key, and the same file as a shorter
  // one of whole chunks.
  std::string swapped = content;
  std::swap_ranges(swapped.begin(), swapped.begin() + 4'112, swapped.begin() + 4'112);
  EXPECT_THAT(read(swapped, key_, bytes.size()), StatusIs(kDataLoss, "chunk 0"));
  EXPECT_THAT(read(content.substr(0, content.size() - 1), key_, bytes.size()),
              StatusIs(kDataLoss, "bytes instead of"));
  EXPECT_THAT(read(content, random_.NewSeed(), bytes.size()), StatusIs(kDataLoss, "chunk 0"));
  EXPECT_THAT(read(content.substr(0, 4'112), key_, 4'096), StatusIs(kDataLoss, "chunk 0"));
}

}  // namespace
}  // namespace shoal::server
