#include "src/fuzz/cases.h"

#include <filesystem>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/mutate.h"
#include "src/storage/file.h"

namespace shoal::fuzz {

// A target whose seeds are refused would test nothing but its first comparison.
void ExpectSeedsAreTaken(std::span<const Target> targets) {
  for (const Target& target : targets) {
    EXPECT_FALSE(target.seeds.empty()) << target.name;
    for (size_t i = 0; i < target.seeds.size(); ++i) {
      EXPECT_TRUE(target.parse(target.seeds[i])) << target.name << ", seed " << i;
    }
  }
}

void ExpectMutatedSeedsDoNoHarm(std::span<const Target> targets) {
  const google::protobuf::LogSilencer silent;
  for (const Target& target : targets) {
    SCOPED_TRACE(target.name);
    testing::TestRandom random(7);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < target.mutations; ++i) {
      refused += !target.parse(Mutate(target.seeds, random));
    }
    target.parse({});
    EXPECT_GT(refused, 0u) << "it takes anything";
  }
}

void ExpectWhatWasFoundDoesNoHarm(std::span<const Target> targets) {
  for (const auto& file : std::filesystem::directory_iterator("src/fuzz/found")) {
    const std::string name = file.path().filename();
    for (const Target& target : targets) {
      if (!name.starts_with(target.name + "-")) continue;
      SHOAL_ASSERT_OK_AND_ASSIGN(const std::string input, ReadFile(file.path()));
      target.parse(AsBytes(input));
    }
  }
}

}  // namespace shoal::fuzz
