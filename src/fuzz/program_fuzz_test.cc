// What clients and parties are sent: no input makes them crash or read out of bounds.
#include "gtest/gtest.h"
#include "src/fuzz/cases.h"
#include "src/fuzz/target.h"

namespace shoal::fuzz {
namespace {

TEST(ProgramFuzzTest, SeedsAreTaken) { ExpectSeedsAreTaken(ProgramTargets()); }
TEST(ProgramFuzzTest, MutatedSeedsDoNoHarm) { ExpectMutatedSeedsDoNoHarm(ProgramTargets()); }
TEST(ProgramFuzzTest, WhatWasFoundDoesNoHarm) { ExpectWhatWasFoundDoesNoHarm(ProgramTargets()); }

}  // namespace
}  // namespace shoal::fuzz
