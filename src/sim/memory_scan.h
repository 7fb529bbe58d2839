// Looks for secrets that a test knows in the whole memory of a process.
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

// What to look for, each under the name of a group of secrets.
class Secrets {
 public:
  // Any 16 bytes of it in a row that begin at a multiple of 16 from its beginning, wherever they
  // lie in memory. At least 16 bytes (checked).
  void Add(const std::string& group, BytesView secret);
  // One of many numbers that are too short to be told from chance one by one: four of them within
  // 16 neighbouring words, in any order, count as found.
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

// How many secrets of each group lie in the memory of a process now, in all of its mappings that
// can be read; of words, how many are found beside others. Groups of which none was found are left
// out. PERMISSION_DENIED if the system does not let this process look (shoald forbids it to all but
// those with CAP_SYS_PTRACE). The process goes on meanwhile: what moves may be missed.
absl::StatusOr<std::map<std::string, uint64_t>> ScanMemory(pid_t process, const Secrets& secrets);

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_MEMORY_SCAN_H_
