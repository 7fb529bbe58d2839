// Large arrays whose pages come straight from the system. Bytes that are never touched cost no
// memory.
#ifndef SHOAL_SRC_STORAGE_PAGE_BUFFER_H_
#define SHOAL_SRC_STORAGE_PAGE_BUFFER_H_

#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"

namespace shoal {

// Reserves addresses for `capacity` bytes, and takes memory only for bytes that are written, in
// huge pages where the system has them. All bytes are zero at first. Movable but not copyable. A
// buffer that grows stays where it is, unlike a vector, which needs room for two copies.
// Thread-compatible; different threads may write disjoint parts.
class PageBuffer {
 public:
  enum class Content {
    kPublic,
    kSecret,  // wiped when the buffer dies, as far as it grew; not in core dumps
  };

  PageBuffer() = default;
  // An empty buffer. RESOURCE_EXHAUSTED when the system has no such room.
  static absl::StatusOr<PageBuffer> Reserve(uint64_t capacity, Content content);
  // A buffer of full size.
  static absl::StatusOr<PageBuffer> Create(uint64_t size, Content content);
  PageBuffer(PageBuffer&& other) noexcept { *this = std::move(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(content_, other.content_);
    return *this;
  }
  ~PageBuffer();

  // `size` must not be less than before, nor more than the capacity (checked).
  void Grow(uint64_t size);

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  operator BytesView() const { return {data_, size_}; }  // NOLINT: a view, as of any container
  operator MutableBytes() { return {data_, size_}; }     // NOLINT

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0, capacity_ = 0;
  Content content_ = Content::kPublic;
};

// The same as an array of a plain type.
template <typename T>
class PageArray {
 public:
  PageArray() = default;
  static absl::StatusOr<PageArray> Reserve(uint64_t capacity, PageBuffer::Content content) {
    PageArray array;
    absl::StatusOr<PageBuffer> bytes = PageBuffer::Reserve(capacity * sizeof(T), content);
    if (!bytes.ok()) return bytes.status();
    array.bytes_ = *std::move(bytes);
    return array;
  }
  static absl::StatusOr<PageArray> Create(uint64_t size, PageBuffer::Content content) {
    absl::StatusOr<PageArray> array = Reserve(size, content);
    if (array.ok()) array->Grow(size);
    return array;
  }

  void Grow(uint64_t size) { bytes_.Grow(size * sizeof(T)); }
  uint64_t size() const { return bytes_.size() / sizeof(T); }
  bool empty() const { return bytes_.empty(); }
  T* data() { return reinterpret_cast<T*>(bytes_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data()); }
  T& operator[](uint64_t i) { return data()[i]; }
  const T& operator[](uint64_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& back() const { return data()[size() - 1]; }
  std::span<T> span() { return {data(), size()}; }
  std::span<const T> span() const { return {data(), size()}; }

 private:
  PageBuffer bytes_;
};

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_PAGE_BUFFER_H_
