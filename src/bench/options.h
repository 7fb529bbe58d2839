// The options of a benchmark, each "--name VALUE".
#ifndef SHOAL_SRC_BENCH_OPTIONS_H_
#define SHOAL_SRC_BENCH_OPTIONS_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace shoal::bench {

struct Option {
  absl::string_view name;  // with its dashes
  std::variant<uint32_t*, uint64_t*, double*, std::string*> value;

  // False: `text` is not a number that the value can hold.
  bool Set(absl::string_view text) const {
    return std::visit(
        [text](auto* out) {
          using Value = std::remove_pointer_t<decltype(out)>;
          if constexpr (std::is_same_v<Value, std::string>) {
            *out = std::string(text);
            return true;
          } else if constexpr (std::is_same_v<Value, double>) {
            return absl::SimpleAtod(text, out);
          } else {
            return absl::SimpleAtoi(text, out);
          }
        },
        value);
  }
};

// Reads argv[first] and all that follows. Where the process has to end, prints the usage and
// returns its exit code: 0 after --help, 2 after a name or a value that is not taken.
inline std::optional<int> ReadOptions(int argc, char** argv, int first,
                                      const std::vector<Option>& options, const char* usage) {
  for (int i = first; i < argc; i += 2) {
    const absl::string_view name = argv[i];
    const auto option = std::ranges::find(options, name, &Option::name);
    if (option == options.end() || i + 1 == argc || !option->Set(argv[i + 1])) {
      std::fprintf(stderr, "usage: %s", usage);
      return name == "--help" ? 0 : 2;
    }
  }
  return std::nullopt;
}

}  // namespace shoal::bench

#endif  // SHOAL_SRC_BENCH_OPTIONS_H_
