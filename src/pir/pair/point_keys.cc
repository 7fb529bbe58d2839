#include "src/pir/pair/point_keys.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"

namespace shoal::pir::pair {
namespace {

constexpr size_t kNodeBytes = sizeof(Node);
static_assert(kNodeBytes == Aes128::kBlockBytes && kLeafRows == 8 * kNodeBytes);

// Where the parts of a key begin.
constexpr size_t kRootAt = 16;
constexpr size_t kCorrectionsAt = 32;
constexpr size_t LeafAt(uint32_t levels) { return kCorrectionsAt + size_t{16} * levels; }
constexpr size_t RightBitsAt(uint32_t levels) { return LeafAt(levels) + 16; }

Node LoadNode(const uint8_t* from) {
  return {.low = LoadLe<uint64_t>(from), .high = LoadLe<uint64_t>(from + 8)};
}
void StoreNode(const Node& node, uint8_t* to) {
  StoreLe<uint64_t>(to, node.low);
  StoreLe<uint64_t>(to + 8, node.high);
}

Node operator^(const Node& a, const Node& b) { return {a.low ^ b.low, a.high ^ b.high}; }
Node operator&(const Node& a, uint64_t mask) { return {a.low & mask, a.high & mask}; }

// All bits of a bit.
uint64_t MaskOf(uint64_t bit) { return uint64_t{0} - (bit & 1); }
uint64_t Control(const Node& node) { return node.low & 1; }
// Of a side: what is hashed for that child. Of a control bit: the node.
Node WithBit0(const Node& node, uint64_t bit) {
  return {(node.low & ~uint64_t{1}) | bit, node.high};
}

template <typename Nodes>
MutableBytes BytesOf(Nodes& nodes) {
  return {reinterpret_cast<uint8_t*>(nodes.data()), nodes.size() * kNodeBytes};
}

SecretArray<16> AesKeyOf(BytesView key) { return SecretArray<16>(key.first(16)); }

}  // namespace

uint32_t LevelsFor(uint64_t rows) {
  SHOAL_CHECK(rows <= kLeafRows << kMaxLevels);
  if (rows <= kLeafRows) return 0;
  return static_cast<uint32_t>(std::bit_width((rows - 1) / kLeafRows));
}

void MakePointKeys(uint32_t levels, uint64_t row, RandomSource& random, MutableBytes offline,
                   MutableBytes online) {
  SHOAL_CHECK(levels <= kMaxLevels && offline.size() == PointKeyBytes(levels) &&
              online.size() == offline.size());
  // AES key and both roots.
  SecretArray<48> drawn;
  random.Fill(drawn.mutable_view());
  const Aes128 aes(AesKeyOf(drawn.view()));
  // Of the offline and the online server, on the way to the row. Assigned one by one: a list of
  // initial values would leave both roots in memory that nobody wipes.
  SecretVector<Node> path(2);
  path[0] = WithBit0(LoadNode(drawn.data() + 16), 0);
  path[1] = WithBit0(LoadNode(drawn.data() + 32), 1);
  std::copy_n(drawn.data(), 16, offline.data());
  StoreNode(path[0], offline.data() + kRootAt);
  StoreNode(path[1], online.data() + kRootAt);

  // Left and right child of one, then of the other.
  SecretVector<Node> inputs(4), children(4);
  uint32_t right_bits = 0;
  for (uint32_t level = 0; level < levels; ++level) {
    for (size_t i = 0; i < 4; ++i) inputs[i] = WithBit0(path[i / 2], i % 2);
    children = inputs;
    aes.Encrypt(BytesOf(children));
    for (size_t i = 0; i < 4; ++i) children[i] = children[i] ^ inputs[i];
    const uint64_t right = row / kLeafRows >> (levels - 1 - level) & 1;
    // The children beside the way become equal, and those on it get different control bits.
    const Node left_sum = children[0] ^ children[2], right_sum = children[1] ^ children[3];
    const Node beside = left_sum ^ ((left_sum ^ right_sum) & MaskOf(right ^ 1));
    const std::array<Node, 2> corrections = {WithBit0(beside, Control(left_sum) ^ right ^ 1),
                                             WithBit0(beside, Control(right_sum) ^ right)};
    StoreNode(corrections[0], offline.data() + kCorrectionsAt + size_t{16} * level);
    right_bits |= static_cast<uint32_t>(Control(corrections[1])) << level;
    const Node correction = corrections[0] ^ ((corrections[0] ^ corrections[1]) & MaskOf(right));
    for (size_t server = 0; server < 2; ++server) {
      const Node left = children[2 * server];
      const Node chosen = left ^ ((left ^ children[2 * server + 1]) & MaskOf(right));
      path[server] = chosen ^ (correction & MaskOf(Control(path[server])));
    }
  }
  for (size_t i = 0; i < 2; ++i) inputs[i] = WithBit0(path[i], 0);
  children = inputs;
  aes.Encrypt(BytesOf(children));
  const uint64_t bit = row % kLeafRows;
  const Node wanted = {(uint64_t{1} << bit % 64) & MaskOf(bit / 64 ^ 1),
                       (uint64_t{1} << bit % 64) & MaskOf(bit / 64)};
  StoreNode(children[0] ^ inputs[0] ^ children[1] ^ inputs[1] ^ wanted,
            offline.data() + LeafAt(levels));
  StoreLe<uint32_t>(offline.data() + RightBitsAt(levels), right_bits);
  // All but the root.
  std::copy_n(offline.begin(), kRootAt, online.begin());
  std::copy(offline.begin() + kCorrectionsAt, offline.end(), online.begin() + kCorrectionsAt);
}

absl::Status CheckPointKey(uint32_t levels, bool online, BytesView key) {
  if (key.size() != PointKeyBytes(levels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pair: a key of ", key.size(), " bytes, not ", PointKeyBytes(levels)));
  }
  if ((key[kRootAt] & 1) != (online ? 1 : 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pair: a key for the ", online ? "offline" : "online",
                     " server, and this is the ", online ? "online" : "offline", " one"));
  }
  if (LoadLe<uint32_t>(key.data() + RightBitsAt(levels)) >> levels != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("pair: a key with bits for more than ", levels, " levels"));
  }
  return absl::OkStatus();
}

PointTree::PointTree(uint32_t levels, BytesView key)
    : levels_(levels), key_(key.begin(), key.end()), aes_(AesKeyOf(key)) {
  SHOAL_CHECK(key.size() == PointKeyBytes(levels));
}

Node PointTree::root() const { return LoadNode(key_.data() + kRootAt); }

void PointTree::Grow(uint32_t from, uint32_t to, size_t count, SecretVector<Node>& nodes,
                     SecretVector<Node>& scratch) const {
  SHOAL_CHECK(from <= to && to <= levels_);
  const auto right_bits = LoadLe<uint32_t>(key_.data() + RightBitsAt(levels_));
  for (uint32_t level = from; level < to; ++level) {
    const uint32_t below = to - level - 1;
    const size_t wanted = std::min(2 * nodes.size(), ((count - 1) >> below) + 1);
    const size_t parents = (wanted + 1) / 2;
    scratch.resize(2 * parents);
    for (size_t i = 0; i < parents; ++i) {
      scratch[2 * i] = WithBit0(nodes[i], 0);
      scratch[2 * i + 1] = WithBit0(nodes[i], 1);
    }
    aes_.Encrypt(BytesOf(scratch));
    const Node left = LoadNode(key_.data() + kCorrectionsAt + size_t{16} * level);
    const Node right = WithBit0(left, right_bits >> level & 1);
    for (size_t i = 0; i < parents; ++i) {
      const Node parent = nodes[i];
      const uint64_t corrected = MaskOf(Control(parent));
      scratch[2 * i] = scratch[2 * i] ^ WithBit0(parent, 0) ^ (left & corrected);
      scratch[2 * i + 1] = scratch[2 * i + 1] ^ WithBit0(parent, 1) ^ (right & corrected);
    }
    nodes.swap(scratch);
    nodes.resize(wanted);
  }
}

void PointTree::ToBits(SecretVector<Node>& nodes, SecretVector<Node>& scratch) const {
  scratch.resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) scratch[i] = WithBit0(nodes[i], 0);
  aes_.Encrypt(BytesOf(scratch));
  const Node correction = LoadNode(key_.data() + LeafAt(levels_));
  for (size_t i = 0; i < nodes.size(); ++i) {
    scratch[i] = scratch[i] ^ WithBit0(nodes[i], 0) ^ (correction & MaskOf(Control(nodes[i])));
  }
  nodes.swap(scratch);
}

}  // namespace shoal::pir::pair
