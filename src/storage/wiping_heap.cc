#include "src/storage/wiping_heap.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "openssl/crypto.h"
#include "sodium.h"
#include "src/base/check.h"

namespace shoal {
namespace {

void WipeAndFree(void* block) noexcept {
  if (block == nullptr) return;
  sodium_memzero(block, malloc_usable_size(block));
  std::free(block);
}

// `alignment` 0 means malloc's. Null when there is no memory and no new-handler that frees some.
void* Allocate(size_t bytes, size_t alignment) {
  bytes = std::max<size_t>(bytes, 1);
  for (;;) {
    void* block = nullptr;
    if (alignment == 0) {
      block = std::malloc(bytes);
    } else if (posix_memalign(&block, std::max(alignment, sizeof(void*)), bytes) != 0) {
      block = nullptr;
    }
    if (block != nullptr) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) return nullptr;
    handler();
  }
}

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  void* const block = Allocate(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void* AllocateOrNull(size_t bytes, size_t alignment) noexcept {
  try {
    return Allocate(bytes, alignment);
  } catch (const std::bad_alloc&) {  // from the new-handler
    return nullptr;
  }
}

void* OpenSslMalloc(size_t bytes, const char*, int) { return std::malloc(bytes); }

void OpenSslFree(void* block, const char*, int) { WipeAndFree(block); }

void* OpenSslRealloc(void* block, size_t bytes, const char*, int) {
  if (block == nullptr) return std::malloc(bytes);
  if (bytes == 0) {
    WipeAndFree(block);
    return nullptr;
  }
  const size_t before = malloc_usable_size(block);
  if (bytes <= before) return block;
  void* const larger = std::malloc(bytes);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, block, before);
  WipeAndFree(block);
  return larger;
}

}  // namespace

void WipeWhatIsFreed() {
  SHOAL_CHECK(CRYPTO_set_mem_functions(&OpenSslMalloc, &OpenSslRealloc, &OpenSslFree) == 1);
}

}  // namespace shoal

// The compiler cannot leave a wipe out: sodium_memzero is opaque to it.
void* operator new(size_t bytes) { return shoal::AllocateOrThrow(bytes, 0); }
void* operator new[](size_t bytes) { return shoal::AllocateOrThrow(bytes, 0); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return shoal::AllocateOrNull(bytes, 0);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return shoal::AllocateOrNull(bytes, 0);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return shoal::AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return shoal::AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return shoal::AllocateOrNull(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return shoal::AllocateOrNull(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { shoal::WipeAndFree(block); }
void operator delete[](void* block) noexcept { shoal::WipeAndFree(block); }
void operator delete(void* block, size_t) noexcept { shoal::WipeAndFree(block); }
void operator delete[](void* block, size_t) noexcept { shoal::WipeAndFree(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { shoal::WipeAndFree(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { shoal::WipeAndFree(block); }
void operator delete(void* block, std::align_val_t) noexcept { shoal::WipeAndFree(block); }
void operator delete[](void* block, std::align_val_t) noexcept { shoal::WipeAndFree(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { shoal::WipeAndFree(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept {
  shoal::WipeAndFree(block);
}
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  shoal::WipeAndFree(block);
}
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  shoal::WipeAndFree(block);
}
