// Large zeroed memory in huge pages, where the system gives them.
#ifndef SHOAL_SRC_PIR_PAGES_H_
#define SHOAL_SRC_PIR_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal::pir {

// RESOURCE_EXHAUSTED if that much memory is not available now (the system would promise it, and
// kill the process when it is used); `what` names it.
absl::Status CheckMemory(uint64_t bytes, absl::string_view what);

// Move-only. Starts at a multiple of 2 MiB.
class Pages {
 public:
  Pages() = default;
  // RESOURCE_EXHAUSTED as CheckMemory.
  static absl::StatusOr<Pages> Allocate(uint64_t bytes, absl::string_view what);
  ~Pages();
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_PAGES_H_
