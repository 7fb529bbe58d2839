// Formats: every decoder takes what its encoder makes, and no input makes it crash, read out of
// bounds or accept what has another encoding.
#include "gtest/gtest.h"
#include "src/fuzz/cases.h"
#include "src/fuzz/target.h"

namespace shoal::fuzz {
namespace {

TEST(FormatFuzzTest, SeedsAreTaken) { ExpectSeedsAreTaken(FormatTargets()); }
TEST(FormatFuzzTest, MutatedSeedsDoNoHarm) { ExpectMutatedSeedsDoNoHarm(FormatTargets()); }
TEST(FormatFuzzTest, WhatWasFoundDoesNoHarm) { ExpectWhatWasFoundDoesNoHarm(FormatTargets()); }

}  // namespace
}  // namespace shoal::fuzz
