#include "src/storage/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/storage/paths.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;

std::string TempPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

TEST(FileTest, PrivateFilesArePrivateAndReplacedAtomically) {
  const std::string path = TempPath("private");
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes("one"), FileMode::kPrivate));
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes("two"), FileMode::kPrivate));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string content, ReadPrivateFile(path));
  EXPECT_EQ(content, "two");
  EXPECT_EQ(AsText(*ReadSecretFile(path)), "two");
  EXPECT_THAT(ReadSecretFile(path, 2), StatusIs(absl::StatusCode::kResourceExhausted, "3 bytes"));
  EXPECT_EQ(*SizeOfPrivateFile(path, 3), 3u);
  EXPECT_THAT(SizeOfPrivateFile(path, 2), StatusIs(absl::StatusCode::kResourceExhausted, "3 b"));
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(ReadPrivateFile(path), StatusIs(absl::StatusCode::kPermissionDenied, "chmod 600"));
  EXPECT_THAT(ReadSecretFile(path), StatusIs(absl::StatusCode::kPermissionDenied, "chmod 600"));
  EXPECT_THAT(SizeOfPrivateFile(path, 3),
              StatusIs(absl::StatusCode::kPermissionDenied, "chmod 600"));
  EXPECT_THAT(SizeOfPrivateFile(path + "-not", 3), StatusIs(absl::StatusCode::kNotFound, "-not"));
}

TEST(FileTest, ErrorsNameThePath) {
  EXPECT_THAT(ReadFile("/nonexistent/x"), StatusIs(absl::StatusCode::kNotFound, "/nonexistent/x"));
  const std::string path = TempPath("big");
  SHOAL_ASSERT_OK(WriteFileAtomically(path, Bytes(100, 1), FileMode::kPublic));
  EXPECT_THAT(ReadFile(path, 99), StatusIs(absl::StatusCode::kResourceExhausted, "100 bytes"));
}

// A device has no end. What has one is a file or a pipe, as in <(zcat records.gz).
TEST(FileTest, ReadsNoDevices) {
  for (const char* device : {"/dev/zero", "/dev/null", "/dev/urandom"}) {
    EXPECT_THAT(ReadFile(device),
                StatusIs(absl::StatusCode::kFailedPrecondition, absl::StrCat(device, ": is a ")));
    EXPECT_FALSE(ReadPrivateFile(device).ok()) << device;
    EXPECT_FALSE(SizeOfPrivateFile(device, 1 << 20).ok()) << device;
  }
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  SHOAL_ASSERT_OK(WriteAll(ends[1], AsBytes("from a pipe"), "pipe"));
  ASSERT_EQ(::close(ends[1]), 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content,
                             ReadFile(absl::StrCat("/dev/fd/", ends[0])));
  EXPECT_EQ(content, "from a pipe");
  EXPECT_EQ(::close(ends[0]), 0);
}

// A pipe with a name may have nobody at its other end, ever.
TEST(FileTest, WaitsForNoPipeForever) {
  const std::string path = TempPath("pipe");
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(OpenToRead(path, 100), StatusIs(absl::StatusCode::kFailedPrecondition,
                                              "is a pipe to which nobody has written"));
  // None of these waits at all.
  const FilePatch patch{.at = 0, .bytes = AsBytes("x")};
  EXPECT_FALSE(AppendToFile(path, 0, AsBytes("x")).ok());
  EXPECT_FALSE(OverwriteInFile(path, {&patch, 1}, false).ok());
  // Whoever is there has the time that it takes.
  std::thread writer([&] { std::ofstream(path) << "by name"; });
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(path));
  EXPECT_EQ(content, "by name");
  writer.join();
  EXPECT_FALSE(WipeFile(path).ok());
}

// Parts are compared, and not letters.
TEST(FileTest, WhatLiesInADirectory) {
  EXPECT_TRUE(IsWithin("/a/b/c", "/a/b"));
  EXPECT_TRUE(IsWithin("/a/b", "/a/b"));
  EXPECT_FALSE(IsWithin("/a/bc", "/a/b"));
  EXPECT_FALSE(IsWithin("/a", "/a/b"));
}

// A server logs the text with the path and sends the text without it.
TEST(FileTest, ErrorsTellOthersNoPath) {
  const absl::Status error = Annotate(Annotate(ReadFile("/nonexistent/x").status(), "b"), "a");
  EXPECT_THAT(error, StatusIs(absl::StatusCode::kNotFound, "a: b: /nonexistent/x: No such file"));
  EXPECT_EQ(ForOthers(error), absl::NotFoundError("a: b: storage failed"));
  EXPECT_EQ(ForOthers(Annotate(absl::NotFoundError("no slot"), "a")),
            absl::NotFoundError("a: no slot"));
  SHOAL_EXPECT_OK(ForOthers(absl::OkStatus()));
}

// A file system gives the inode of a deleted file to the next one; the time of birth tells them
// apart.
TEST(FileTest, AFilesIdentityHasItsTimeOfBirth) {
  EXPECT_NE((FileIdentity{.inode = 1, .birth_ns = 2}), (FileIdentity{.inode = 1, .birth_ns = 3}));
  EXPECT_NE((FileIdentity{.inode = 1, .birth_ns = 2}), (FileIdentity{.inode = 4, .birth_ns = 2}));
  const std::string path = TempPath("born");
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes("one"), FileMode::kPrivate));
  struct statx info;
  ASSERT_EQ(statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &info), 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(const FileIdentity identity, IdentityOf(path));
  EXPECT_EQ(identity.inode, info.stx_ino);
  if (!(info.stx_mask & STATX_BTIME)) GTEST_SKIP() << "this file system keeps no time of birth";
  EXPECT_EQ(identity.birth_ns / 1'000'000'000, static_cast<uint64_t>(info.stx_btime.tv_sec));
  EXPECT_EQ(identity.birth_ns % 1'000'000'000, info.stx_btime.tv_nsec);
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
