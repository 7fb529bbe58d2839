// libFuzzer over one of the targets, for scripts/fuzz, which has the counting of coverage compiled
// in.
//
//   search --list
//     prints the targets' names
//   search --target=NAME [--write-seeds=DIR] [ARGUMENT]...
//     writes the target's seeds to DIR; then is libFuzzer, with its own arguments ("-help=1")
//
// Exit codes: 2 for a wrong call, else libFuzzer's.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "src/fuzz/target.h"
#include "src/storage/file.h"

extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*test)(const uint8_t*, size_t));

// A find of the undefined-behaviour sanitizer ends by a signal, upon which libFuzzer keeps the
// input.
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace shoal::fuzz {
namespace {

const Target* searched = nullptr;

int Test(const uint8_t* data, size_t size) {
  searched->parse({data, size});
  return 0;
}

// The value of the argument `--name=value`, or nothing. libFuzzer ignores such arguments, and gives
// them to the processes that it starts.
std::string Argument(int argc, char** argv, absl::string_view name) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::StartsWith(argument, absl::StrCat("--", name, "="))) {
      return std::string(argument.substr(name.size() + 3));
    }
  }
  return "";
}

bool WriteSeeds(const std::string& directory) {
  for (size_t i = 0; i < searched->seeds.size(); ++i) {
    const absl::Status written = WriteFileAtomically(absl::StrCat(directory, "/seed-", i),
                                                     searched->seeds[i], FileMode::kPublic);
    if (!written.ok()) {
      std::cerr << "search: " << written << "\n";
      return false;
    }
  }
  return true;
}

int Run(int argc, char** argv) {
  const google::protobuf::LogSilencer silent;
  std::vector<Target> targets = FormatTargets();
  std::ranges::move(ProgramTargets(), std::back_inserter(targets));
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const Target& target : targets) std::cout << target.name << "\n";
    return 0;
  }
  const std::string name = Argument(argc, argv, "target");
  const auto target = std::ranges::find(targets, name, &Target::name);
  if (target == targets.end()) {
    std::cerr << "search: no target '" << name << "'\n";
    return 2;
  }
  searched = &*target;
  const std::string seeds = Argument(argc, argv, "write-seeds");
  if (!seeds.empty() && !WriteSeeds(seeds)) return 2;
  return LLVMFuzzerRunDriver(&argc, &argv, Test);
}

}  // namespace
}  // namespace shoal::fuzz

int main(int argc, char** argv) { return shoal::fuzz::Run(argc, argv); }
