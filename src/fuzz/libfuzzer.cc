// libFuzzer's program, for scripts/fuzz. The environment says what it runs:
//   SHOAL_FUZZ_LIST=1       prints the targets' names
//   SHOAL_FUZZ_TARGET=NAME  fuzzes this one, or runs the inputs that are named as arguments
//   SHOAL_FUZZ_SEEDS=DIR    first writes the target's seeds there
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "src/fuzz/target.h"
#include "src/storage/file.h"

namespace shoal::fuzz {
namespace {

const Target* chosen = nullptr;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void Choose() {
  static const google::protobuf::LogSilencer silent;
  static std::vector<Target> all = FormatTargets();
  for (Target& target : ProgramTargets()) all.push_back(std::move(target));
  if (!Variable("SHOAL_FUZZ_LIST").empty()) {
    for (const Target& target : all) std::cout << target.name << "\n";
    std::cout << std::flush;
    std::_Exit(0);
  }
  const std::string name = Variable("SHOAL_FUZZ_TARGET");
  const auto target =
      std::ranges::find_if(all, [&](const Target& one) { return one.name == name; });
  if (target == all.end()) {
    std::cerr << "fuzz: no target '" << name << "'\n";
    std::_Exit(2);
  }
  chosen = &*target;
  if (const std::string directory = Variable("SHOAL_FUZZ_SEEDS"); !directory.empty()) {
    for (size_t i = 0; i < chosen->seeds.size(); ++i) {
      const absl::Status written = WriteFileAtomically(absl::StrCat(directory, "/seed-", i),
                                                       chosen->seeds[i], FileMode::kPublic);
      if (!written.ok()) {
        std::cerr << "fuzz: " << written << "\n";
        std::_Exit(2);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  shoal::fuzz::Choose();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shoal::fuzz::chosen->parse({data, size});
  return 0;
}
