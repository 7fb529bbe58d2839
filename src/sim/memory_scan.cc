#include "src/sim/memory_scan.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/storage/file.h"

namespace shoal::sim {
namespace {

constexpr uint64_t kLow = (1 << 24) - 1;
// Bytes read at a time, and bytes searched at a time unless all zeros. The overlap covers secrets
// that span two pieces.
constexpr size_t kReadBytes = 1 << 20, kLookBytes = 4096, kOverlapBytes = 128;
constexpr size_t kWindowWords = 16, kWordsFound = 4;

}  // namespace

void Secrets::Add(const std::string& group, BytesView secret) {
  SHOAL_CHECK(secret.size() >= kPieceBytes);
  const std::string* const name = &*groups_.insert(group).first;
  if (filter_ == nullptr) filter_ = std::make_unique<std::bitset<1 << 24>>();
  for (size_t at = 0; at + kPieceBytes <= secret.size(); at += kPieceBytes) {
    const auto first = LoadLe<uint64_t>(secret.data() + at);
    filter_->set(first & kLow);
    pieces_.insert({first, {name, secrets_, LoadLe<uint64_t>(secret.data() + at + 8)}});
  }
  ++secrets_;
}

void Secrets::AddWord(const std::string& group, uint32_t word) {
  Words& words = words_[group];
  if (words.filter == nullptr) {
    words.group = &*groups_.insert(group).first;
    words.filter = std::make_unique<std::bitset<1 << 24>>();
  }
  words.set.insert(word);
  words.filter->set(word & kLow);
}

// One scan of one process.
class Scan {
 public:
  explicit Scan(const Secrets& secrets) : secrets_(secrets) {}

  void Look(BytesView memory) {
    for (size_t at = 0; at < memory.size(); at += kLookBytes) {
      const BytesView page =
          memory.subspan(at, std::min(kLookBytes + kOverlapBytes, memory.size() - at));
      if (std::ranges::all_of(page, [](uint8_t byte) { return byte == 0; })) continue;
      if (secrets_.filter_ != nullptr) LookForPieces(page);
      for (const auto& [name, words] : secrets_.words_) LookForWords(page, words);
    }
  }

  std::map<std::string, uint64_t> Found() const {
    std::map<std::string, uint64_t> found;
    for (const auto& [group, secrets] : found_) found[*group] = secrets.size();
    return found;
  }

 private:
  void LookForPieces(BytesView memory) {
    for (size_t at = 0; at + Secrets::kPieceBytes <= memory.size(); ++at) {
      const auto first = LoadLe<uint64_t>(memory.data() + at);
      if (!(*secrets_.filter_)[first & kLow]) continue;
      const auto [begin, end] = secrets_.pieces_.equal_range(first);
      for (auto it = begin; it != end; ++it) {
        if (LoadLe<uint64_t>(memory.data() + at + 8) != it->second.second_half) continue;
        found_[it->second.group].insert(it->second.secret);
      }
    }
  }

  void LookForWords(BytesView memory, const Secrets::Words& words) {
    for (size_t shift = 0; shift < 4; ++shift) {
      // The latest known words in the window that ends here.
      std::array<size_t, kWordsFound> last_at = {};
      std::array<uint32_t, kWordsFound> last = {};
      size_t seen = 0;
      for (size_t at = shift; at + 4 <= memory.size(); at += 4) {
        const auto word = LoadLe<uint32_t>(memory.data() + at);
        if (!(*words.filter)[word & kLow] || !words.set.contains(word)) continue;
        last_at[seen % kWordsFound] = at;
        last[seen % kWordsFound] = word;
        ++seen;
        if (seen < kWordsFound || at - last_at[seen % kWordsFound] >= 4 * kWindowWords) continue;
        // A table of one number over and over is no secret.
        if (std::set<uint32_t>(last.begin(), last.end()).size() < kWordsFound) continue;
        found_[words.group].insert(last.begin(), last.end());
      }
    }
  }

  const Secrets& secrets_;
  std::map<const std::string*, std::set<uint64_t>> found_;
};

absl::StatusOr<std::map<std::string, uint64_t>> ScanMemory(pid_t process, const Secrets& secrets) {
  const std::string proc = absl::StrCat("/proc/", process);
  const int memory = open((proc + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  if (memory < 0) return ErrnoStatus(errno, proc + "/mem");
  Scan scan(secrets);
  Bytes piece(kReadBytes + kOverlapBytes);
  std::ifstream maps(proc + "/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    char access = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %c", &begin, &end, &access) != 3 ||
        access != 'r') {
      continue;
    }
    for (uint64_t at = begin; at < end; at += kReadBytes) {
      const ssize_t n = pread(memory, piece.data(), std::min<uint64_t>(piece.size(), end - at),
                              static_cast<off_t>(at));
      if (n <= 0) break;  // the kernel's pages, or an ended mapping
      scan.Look(BytesView(piece).first(static_cast<size_t>(n)));
    }
  }
  close(memory);
  return scan.Found();
}

}  // namespace shoal::sim
