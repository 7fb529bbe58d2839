#include "src/pir/pages.h"

#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"

namespace shoal::pir {
namespace {

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

absl::StatusOr<PageBuffer> AllocatePages(uint64_t bytes, absl::string_view what) {
  SHOAL_RETURN_IF_ERROR(CheckMemory(bytes, what));
  auto pages = PageBuffer::Create(bytes, PageBuffer::Content::kPublic);
  return pages.ok() ? std::move(pages) : Annotate(pages.status(), what);
}

}  // namespace shoal::pir
