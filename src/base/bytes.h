// Bytes and little-endian integers, the units of everything on the wire.
#ifndef SHOAL_SRC_BASE_BYTES_H_
#define SHOAL_SRC_BASE_BYTES_H_

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace shoal {

static_assert(std::endian::native == std::endian::little,
              "wire integers are little endian and are copied as they are");

using Bytes = std::vector<uint8_t>;
using BytesView = std::span<const uint8_t>;
using MutableBytes = std::span<uint8_t>;

// 32 bytes: a BLAKE2b-256 digest, a round id, a table id.
using Digest = std::array<uint8_t, 32>;

inline BytesView AsBytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline absl::string_view AsText(BytesView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::string ToString(BytesView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes ToBytes(BytesView bytes) { return {bytes.begin(), bytes.end()}; }

// Unaligned little-endian loads and stores. The caller guarantees the room.
template <typename T>
T LoadLe(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void StoreLe(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
void AppendLe(Bytes& to, T value) {
  to.resize(to.size() + sizeof value);
  StoreLe<T>(to.data() + to.size() - sizeof value, value);
}
inline void Append(Bytes& to, BytesView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

// "3f09..": for messages and file names, never for secrets.
std::string Hex(BytesView bytes);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_BYTES_H_
