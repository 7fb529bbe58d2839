// Memory between two pages that nobody may touch, for tests of what kernels read and write.
#ifndef SHOAL_SRC_BASE_TESTING_GUARDED_BYTES_H_
#define SHOAL_SRC_BASE_TESTING_GUARDED_BYTES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "src/base/bytes.h"
#include "src/base/check.h"

namespace shoal::testing {

// So many zero bytes that end where reading ends the process, or that begin there.
class GuardedBytes {
 public:
  GuardedBytes(size_t bytes, bool at_end) : bytes_(bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = (bytes + page - 1) / page * page;
    all_ = inner + 2 * page;
    void* const mapped =
        mmap(nullptr, all_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SHOAL_CHECK(mapped != MAP_FAILED);
    base_ = static_cast<uint8_t*>(mapped);
    SHOAL_CHECK(inner == 0 || mprotect(base_ + page, inner, PROT_READ | PROT_WRITE) == 0);
    data_ = base_ + page + (at_end ? inner - bytes : 0);
  }
  ~GuardedBytes() { munmap(base_, all_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  MutableBytes bytes() { return {data_, bytes_}; }
  template <typename T>
  T* As() {
    return reinterpret_cast<T*>(data_);
  }

 private:
  size_t bytes_, all_ = 0;
  uint8_t *base_ = nullptr, *data_ = nullptr;
};

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_GUARDED_BYTES_H_
