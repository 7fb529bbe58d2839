// Searches the whole memory of a process for secrets that a test knows.
#ifndef SHOAL_SRC_SIM_MEMORY_SCAN_H_
#define SHOAL_SRC_SIM_MEMORY_SCAN_H_

#include <sys/types.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"

namespace shoal::sim {

// The secrets to search for, each in a named group.
class Secrets {
 public:
  // Adds a secret of at least 16 bytes (checked). Finding any of its aligned 16-byte pieces,
  // anywhere in memory, counts as finding the secret.
  void Add(const std::string& group, BytesView secret);
  // Adds one of many numbers that are too short to be told from chance alone. Four different
  // ones within 16 neighbouring words, in any order, count as found.
  void AddWord(const std::string& group, uint32_t word);

 private:
  friend class Scan;
  static constexpr size_t kPieceBytes = 16;
  struct Piece {
    const std::string* group;
    uint64_t secret, second_half;
  };
  struct Words {
    const std::string* group;
    std::unordered_set<uint32_t> set;
    std::unique_ptr<std::bitset<1 << 24>> filter;  // of the words' low 24 bits
  };

  std::set<std::string> groups_;
  uint64_t secrets_ = 0;
  std::unordered_multimap<uint64_t, Piece> pieces_;  // by their first eight bytes
  std::unique_ptr<std::bitset<1 << 24>> filter_;     // of the low 24 bits of those
  std::map<std::string, Words> words_;
};

// Counts the secrets of each group in all readable mappings of a process, and the words found
// beside others. Leaves out groups of which none was found. PERMISSION_DENIED if the system does
// not let this process look (shoald allows it only with CAP_SYS_PTRACE). The process keeps running,
// so data that moves may be missed.
absl::StatusOr<std::map<std::string, uint64_t>> ScanMemory(pid_t process, const Secrets& secrets);

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_MEMORY_SCAN_H_
