#include "src/storage/page_buffer.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"

namespace shoal {
namespace {

constexpr uint64_t kHugePageBytes = 2 << 20;

}  // namespace

absl::StatusOr<PageBuffer> PageBuffer::Reserve(uint64_t capacity, Content content) {
  PageBuffer buffer;
  buffer.content_ = content;
  if (capacity == 0) return buffer;
  // MAP_NORESERVE, so that a large list is charged when it arrives, not when it is announced.
  void* const at = mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", capacity, " bytes of memory"));
  }
  // Both are optional; a kernel that does not know them refuses harmlessly.
  if (capacity >= kHugePageBytes) madvise(at, capacity, MADV_HUGEPAGE);
  if (content == Content::kSecret) madvise(at, capacity, MADV_DONTDUMP);
  buffer.data_ = static_cast<uint8_t*>(at);
  buffer.capacity_ = capacity;
  return buffer;
}

absl::StatusOr<PageBuffer> PageBuffer::Create(uint64_t size, Content content) {
  absl::StatusOr<PageBuffer> buffer = Reserve(size, content);
  if (buffer.ok()) buffer->Grow(size);
  return buffer;
}

PageBuffer::~PageBuffer() {
  if (data_ == nullptr) return;
  if (content_ == Content::kSecret) sodium_memzero(data_, size_);
  munmap(data_, capacity_);
}

void PageBuffer::Grow(uint64_t size) {
  SHOAL_CHECK(size >= size_ && size <= capacity_);
  size_ = size;
}

}  // namespace shoal
