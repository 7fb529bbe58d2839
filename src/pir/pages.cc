#include "src/pir/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_format.h"
#include "src/base/file.h"

namespace shoal::pir {
namespace {

constexpr uint64_t kHugePage = 2 << 20;

// MemAvailable, or no limit where it cannot be read.
uint64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string line;
  while (std::getline(meminfo, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1) return kib * 1024;
  }
  return std::numeric_limits<uint64_t>::max();
}

}  // namespace

absl::Status CheckMemory(uint64_t bytes, absl::string_view what) {
  const uint64_t available = AvailableBytes();
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s takes %d MiB of memory; %d MiB are available", what, bytes >> 20,
                      available >> 20));
}

absl::StatusOr<Pages> Pages::Allocate(uint64_t bytes, absl::string_view what) {
  if (absl::Status memory = CheckMemory(bytes, what); !memory.ok()) return memory;
  Pages pages;
  pages.mapped_bytes_ = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  pages.mapping_ = mmap(nullptr, pages.mapped_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages.mapping_ == MAP_FAILED) {
    const int error = errno;
    pages.mapping_ = nullptr;
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: %s", what, ErrnoStatus(error, "mmap").message()));
  }
  const uintptr_t start = reinterpret_cast<uintptr_t>(pages.mapping_);
  pages.data_ = reinterpret_cast<uint8_t*>((start + kHugePage - 1) / kHugePage * kHugePage);
  // Advice: small pages work too.
  madvise(pages.data_, pages.mapped_bytes_ - kHugePage, MADV_HUGEPAGE);
  return pages;
}

Pages::~Pages() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace shoal::pir
