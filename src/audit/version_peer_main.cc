// Compares versions for version_check.py: one line in, "ORDER\tA\tB", one line out: "<", "=", ">",
// or "none" if one of them is no version of the order.
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "src/audit/version.h"

int main() {
  using namespace shoal::audit;
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, '\t');
    if (words.size() != 3) return 1;
    const Order order = words[0] == "semver"   ? Order::kSemver
                        : words[0] == "pep440" ? Order::kPep440
                                               : Order::kDebian;
    const std::optional<Version> a = Version::Parse(order, words[1]);
    const std::optional<Version> b = Version::Parse(order, words[2]);
    if (!a.has_value() || !b.has_value()) {
      std::cout << "none\n";
      continue;
    }
    const int compared = Compare(*a, *b);
    std::cout << (compared < 0 ? "<" : compared > 0 ? ">" : "=") << "\n";
  }
  return 0;
}
