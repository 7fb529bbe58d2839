// Secrets in memory: wiped when they die, compared in constant time.
#ifndef SHOAL_SRC_BASE_SECRET_H_
#define SHOAL_SRC_BASE_SECRET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/check.h"

namespace shoal {

// N secret bytes. Copies are explicit; a moved-from one is wiped.
template <size_t N>
class SecretArray {
 public:
  SecretArray() { bytes_.fill(0); }
  explicit SecretArray(BytesView bytes) {
    SHOAL_CHECK(bytes.size() == N);
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }
  SecretArray(SecretArray&& other) noexcept : bytes_(other.bytes_) { other.Wipe(); }
  SecretArray& operator=(SecretArray&& other) noexcept {
    if (this != &other) {
      bytes_ = other.bytes_;
      other.Wipe();
    }
    return *this;
  }
  SecretArray(const SecretArray&) = delete;
  SecretArray& operator=(const SecretArray&) = delete;
  ~SecretArray() { Wipe(); }

  // For tests.
  SecretArray Clone() const { return SecretArray(view()); }
  BytesView view() const { return bytes_; }
  MutableBytes mutable_view() { return bytes_; }
  const uint8_t* data() const { return bytes_.data(); }
  uint8_t* data() { return bytes_.data(); }
  static constexpr size_t size() { return N; }
  void Wipe() { sodium_memzero(bytes_.data(), N); }

 private:
  std::array<uint8_t, N> bytes_;
};

using Seed = SecretArray<32>;

// The seed with the bytes of a secret digest, which is wiped: SeedOf(DeriveKey(..)).
inline Seed SeedOf(Digest digest) {
  Seed seed(digest);
  sodium_memzero(digest.data(), digest.size());
  return seed;
}

// An allocator that wipes memory before it frees it: for vectors of secrets.
template <typename T>
struct WipingAllocator {
  using value_type = T;
  WipingAllocator() = default;
  template <typename U>
  WipingAllocator(const WipingAllocator<U>&) {}  // NOLINT: the allocator rebinding contract
  T* allocate(size_t n) { return std::allocator<T>().allocate(n); }
  void deallocate(T* p, size_t n) {
    sodium_memzero(p, n * sizeof(T));
    std::allocator<T>().deallocate(p, n);
  }
  bool operator==(const WipingAllocator&) const { return true; }
};
template <typename T>
using SecretVector = std::vector<T, WipingAllocator<T>>;

// For tests. Constant time in the contents; the lengths are public.
inline bool EqualSecret(BytesView a, BytesView b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_SECRET_H_
