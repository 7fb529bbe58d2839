// The user's places decide which configuration a command takes, and so whom it trusts.
#include "src/storage/user_directories.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace shoal {
namespace {

TEST(UserDirectoriesTest, FollowTheSpecification) {
  ::setenv("HOME", "/home/ann", 1);
  ::unsetenv("XDG_CONFIG_HOME");
  ::unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(UserConfigDirectory(), "/home/ann/.config/shoal");
  EXPECT_EQ(UserStateDirectory(), "/home/ann/.local/state/shoal");
  ::setenv("XDG_CONFIG_HOME", "/etc/ann", 1);
  ::setenv("XDG_STATE_HOME", "/var/ann", 1);
  EXPECT_EQ(UserConfigDirectory(), "/etc/ann/shoal");
  EXPECT_EQ(UserStateDirectory(), "/var/ann/shoal");
}

// A relative path would lead to another configuration in each working directory.
TEST(UserDirectoriesTest, WhatIsNoAbsolutePathIsIgnored) {
  ::setenv("HOME", "/home/ann", 1);
  for (const char* value : {"", "here", "./here"}) {
    ::setenv("XDG_CONFIG_HOME", value, 1);
    EXPECT_EQ(UserConfigDirectory(), "/home/ann/.config/shoal") << value;
  }
  ::unsetenv("HOME");
  EXPECT_EQ(UserConfigDirectory(), "");
  ::setenv("HOME", "ann", 1);
  EXPECT_EQ(UserConfigDirectory(), "");
}

}  // namespace
}  // namespace shoal
