#include "src/fuzz/mutate.h"

#include <algorithm>
#include <array>

#include "src/base/check.h"

namespace shoal::fuzz {
namespace {

// Numbers at which comparisons and lengths turn over.
constexpr std::array<uint64_t, 12> kLimits = {0,
                                              1,
                                              0x7f,
                                              0x80,
                                              0xff,
                                              0x7fff,
                                              0xffff,
                                              0x7ffffffe,
                                              0x7fffffff,
                                              0xffffffff,
                                              0x7fffffffffffffff,
                                              0xffffffffffffffff};

// [begin, begin + length) of `bytes`, of at most 64 bytes; perhaps empty.
BytesView AnyPart(BytesView bytes, RandomSource& random) {
  if (bytes.empty()) return {};
  const size_t begin = random.Below(bytes.size());
  const size_t most = std::min<size_t>(64, bytes.size() - begin);
  return bytes.subspan(begin, 1 + random.Below(most));
}

void Insert(BytesView part, RandomSource& random, Bytes& bytes) {
  const Bytes copy = ToBytes(part);
  const size_t at = random.Below(bytes.size() + 1);
  bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), copy.begin(), copy.end());
}

void Erase(BytesView part, Bytes& bytes) {
  if (part.empty()) return;
  const auto begin = bytes.begin() + (part.data() - bytes.data());
  bytes.erase(begin, begin + static_cast<ptrdiff_t>(part.size()));
}

void Change(std::span<const Bytes> seeds, RandomSource& random, Bytes& bytes) {
  const size_t at = bytes.empty() ? 0 : random.Below(bytes.size());
  switch (random.Below(8)) {
    case 0:
      if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << random.Below(8));
      return;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(random.Below(256));
      return;
    case 2: {
      const uint64_t limit = kLimits[random.Below(kLimits.size())];
      const size_t width = size_t{1} << random.Below(4);
      for (size_t i = 0; i < width && at + i < bytes.size(); ++i) {
        bytes[at + i] = static_cast<uint8_t>(limit >> (8 * i));
      }
      return;
    }
    case 3:
      return bytes.resize(at);
    case 4:
      return Erase(AnyPart(bytes, random), bytes);
    case 5:
      return Insert(AnyPart(bytes, random), random, bytes);
    case 6:
      return Insert(AnyPart(seeds[random.Below(seeds.size())], random), random, bytes);
    default: {
      Bytes noise(1 + random.Below(16));
      random.Fill(noise);
      return Insert(noise, random, bytes);
    }
  }
}

}  // namespace

Bytes Mutate(std::span<const Bytes> seeds, RandomSource& random) {
  SHOAL_CHECK(!seeds.empty());
  Bytes bytes = seeds[random.Below(seeds.size())];
  const uint64_t changes = 1 + random.Below(4);
  for (uint64_t i = 0; i < changes; ++i) Change(seeds, random, bytes);
  return bytes;
}

}  // namespace shoal::fuzz
