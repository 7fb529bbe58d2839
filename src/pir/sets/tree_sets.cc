#include "src/pir/sets/tree_sets.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/masks.h"
#include "src/base/status_macros.h"

namespace shoal::pir::sets {
namespace {

// A client's queries miss all hints with probability 2^-kMissBits at most.
constexpr double kMissBits = 40;
constexpr uint64_t kMaxQueries = uint64_t{1} << 40;
constexpr uint64_t kMaxTableBytes = uint64_t{1} << 46;
constexpr size_t kBlock = TreeKernel::kBlockBytes;
constexpr uint32_t kLeavesPerBlock = 4;
// What a client's calls may have used of the stack, and left words of sets there.
constexpr size_t kStackBytes = 32 << 10;

const uint8_t* DataOf(std::span<const TreeBlock> blocks) { return blocks.data()->bytes.data(); }
uint8_t* DataOf(std::span<TreeBlock> blocks) { return blocks.data()->bytes.data(); }

uint64_t Select(uint64_t mask, uint64_t if_ones, uint64_t if_zeros) {
  return if_zeros ^ (mask & (if_ones ^ if_zeros));
}

// Numbers of a few bits each, packed into bytes from their lowest bit on.
class BitWriter {
 public:
  explicit BitWriter(MutableBytes out) : out_(out) {}
  void Add(uint32_t value, uint32_t bits) {
    word_ |= uint64_t{value} << bits_;
    bits_ += bits;
    for (; bits_ >= 8; bits_ -= 8, word_ >>= 8) out_[at_++] = static_cast<uint8_t>(word_);
    if (bits_ > 0) out_[at_] = static_cast<uint8_t>(word_);
  }

 private:
  const MutableBytes out_;
  uint64_t word_ = 0;
  uint32_t bits_ = 0;
  size_t at_ = 0;
};

class BitReader {
 public:
  explicit BitReader(BytesView in) : in_(in) {}
  uint32_t Next(uint32_t bits) {
    for (; bits_ < bits; bits_ += 8) word_ |= uint64_t{in_[at_++]} << bits_;
    const auto value = static_cast<uint32_t>(word_ & ((uint64_t{1} << bits) - 1));
    word_ >>= bits;
    bits_ -= bits;
    return value;
  }
  // Whether nothing but zeros is left of the last byte read.
  bool AtEnd() const { return at_ == in_.size() && word_ == 0; }

 private:
  const BytesView in_;
  uint64_t word_ = 0;
  uint32_t bits_ = 0;
  size_t at_ = 0;
};

// Leaves below the blocks of a query's level.
uint32_t LeavesOfLevel(const TreeShape& shape, uint32_t level) {
  return (shape.Fan(level) - 1) << shape.BitsBelow(level);
}

}  // namespace

double TreeShape::rows_read() const {
  double of_a_chunk = 0;
  for (uint32_t level = 0; level < levels(); ++level) {
    of_a_chunk += 2.0 * (Fan(level) - 1) / Fan(level);
  }
  return of_a_chunk * chunks;
}

uint32_t TreeShape::query_blocks() const {
  uint32_t blocks = 0;
  for (uint32_t level = 0; level + 1 < levels(); ++level) blocks += Fan(level) - 1;
  return blocks;
}

absl::Status CheckTreeShape(const TreeShape& shape) {
  if (shape.rows == 0 || shape.record_bytes == 0 || shape.hints == 0 ||
      shape.offset_bits > kMaxTreeOffsetBits || shape.leaf_bits > kMaxTreeLeafBits ||
      shape.fan_bits == 0 || shape.fan_bits > kMaxTreeFanBits ||
      shape.chunks != ((shape.rows - 1) >> shape.offset_bits) + 1 ||
      shape.leaf_bits != std::bit_width(shape.chunks - 1) || shape.hints >= 1u << 31 ||
      shape.record_bytes > kMaxTableBytes / (shape.rows + shape.chunk_rows())) {
    return absl::InvalidArgumentError("tree sets: a shape that does not fit its table");
  }
  return absl::OkStatus();
}

absl::StatusOr<TreeShape> TreeShapeFor(uint64_t rows, uint32_t record_bytes, uint64_t queries,
                                       uint32_t fan_bits) {
  constexpr uint64_t kMaxRows = uint64_t{1} << (kMaxTreeOffsetBits + kMaxTreeLeafBits);
  if (rows == 0 || record_bytes == 0 || queries == 0 || rows > kMaxRows || queries > kMaxQueries) {
    return absl::InvalidArgumentError("tree sets: no rows, records or queries, or too many");
  }
  TreeShape shape = {.rows = rows, .record_bytes = record_bytes};
  // The fewest rows in a chunk that leave no more chunks than that, but for one.
  while (shape.offset_bits < kMaxTreeOffsetBits &&
         (rows >> shape.offset_bits) > (uint64_t{1} << shape.offset_bits)) {
    ++shape.offset_bits;
  }
  shape.chunks = static_cast<uint32_t>(((rows - 1) >> shape.offset_bits) + 1);
  shape.leaf_bits = static_cast<uint32_t>(std::bit_width(shape.chunks - 1));
  shape.fan_bits = fan_bits != 0 ? fan_bits : std::max(1u, (shape.leaf_bits + 1) / 2);
  // A set holds a given row with probability 1 / chunk_rows; with one row a chunk, always.
  const double held = 1 / static_cast<double>(shape.chunk_rows());
  const double bits = kMissBits + std::log2(static_cast<double>(queries));
  shape.hints = shape.offset_bits == 0
                    ? 1
                    : static_cast<uint32_t>(std::ceil(bits * std::log(2.0) / -std::log1p(-held)));
  SHOAL_RETURN_IF_ERROR(CheckTreeShape(shape));
  return shape;
}

TreeKeys DeriveTreeKeys(const TreeShape& shape, const Seed& key) {
  Digest both = Transcript("shoal tree sets keys v1", key.view())
                    .U64(shape.rows)
                    .U64(shape.record_bytes)
                    .U64(shape.offset_bits)
                    .U64(shape.fan_bits)
                    .U64(shape.hints)
                    .Finish();
  TreeKeys keys = {.seed = SecretArray<16>(BytesView(both).first(16)),
                   .own = SecretArray<16>(BytesView(both).subspan(16))};
  sodium_memzero(both.data(), both.size());
  return keys;
}

class TreeCipher {
 public:
  explicit TreeCipher(const SecretArray<16>& key) {
    SHOAL_CHECK(context_ != nullptr &&
                EVP_EncryptInit_ex(context_, EVP_aes_128_ecb(), nullptr, key.data(), nullptr) ==
                    1 &&
                EVP_CIPHER_CTX_set_padding(context_, 0) == 1);
  }
  TreeCipher(const TreeCipher&) = delete;
  TreeCipher& operator=(const TreeCipher&) = delete;
  ~TreeCipher() { EVP_CIPHER_CTX_free(context_); }  // wipes the key

  // The sets of the key from `first` on.
  void Draw(uint64_t first, uint32_t mask, std::span<TreeBlock> roots,
            std::span<uint32_t> shifts) const {
    constexpr size_t kTogether = 128;
    SecretArray<2 * kTogether * kBlock> blocks;
    for (size_t done = 0; done < roots.size(); done += kTogether) {
      const size_t count = std::min(kTogether, roots.size() - done);
      const MutableBytes bytes = blocks.mutable_view().first(2 * count * kBlock);
      std::ranges::fill(bytes, uint8_t{0});
      for (size_t i = 0; i < 2 * count; ++i) {
        StoreLe<uint64_t>(&bytes[i * kBlock], 2 * (first + done) + i);
      }
      int written = 0;
      SHOAL_CHECK(EVP_EncryptUpdate(context_, bytes.data(), &written, bytes.data(),
                                    static_cast<int>(bytes.size())) == 1 &&
                  static_cast<size_t>(written) == bytes.size());
      for (size_t i = 0; i < count; ++i) {
        std::copy_n(&bytes[2 * i * kBlock], kBlock, roots[done + i].bytes.begin());
        shifts[done + i] = LoadLe<uint32_t>(&bytes[(2 * i + 1) * kBlock]) & mask;
      }
    }
  }

 private:
  EVP_CIPHER_CTX* const context_ = EVP_CIPHER_CTX_new();
};

TreeFunction::TreeFunction(const TreeShape& shape, const TreeKeys& keys, const TreeKernel& kernel)
    : shape_(shape),
      kernel_(kernel),
      seed_(std::make_unique<TreeCipher>(keys.seed)),
      own_(std::make_unique<TreeCipher>(keys.own)) {
  // The offline server would know the sets of queries.
  SHOAL_CHECK(CheckTreeShape(shape).ok() && !EqualSecret(keys.seed.view(), keys.own.view()));
}
TreeFunction::~TreeFunction() = default;

void TreeFunction::Draw(uint64_t first, std::span<TreeBlock> roots,
                        std::span<uint32_t> shifts) const {
  SHOAL_CHECK(roots.size() == shifts.size());
  const size_t known =
      first < shape_.hints ? std::min<uint64_t>(shape_.hints - first, roots.size()) : 0;
  seed_->Draw(first, shape_.offset_mask(), roots.first(known), shifts.first(known));
  if (known == roots.size()) return;
  own_->Draw(first + known - shape_.hints, shape_.offset_mask(), roots.subspan(known),
             shifts.subspan(known));
}

void TreeFunction::LeavesOf(uint32_t leaf, std::span<const TreeBlock> roots,
                            std::span<uint32_t> out) const {
  SHOAL_CHECK(out.size() >= roots.size());
  std::array<uint32_t, kMaxTreeLeafBits> numbers;
  const uint32_t last = shape_.levels() - 1, digit = shape_.DigitOf(leaf, last);
  for (uint32_t level = 0; level < last; ++level) numbers[level] = shape_.DigitOf(leaf, level);
  numbers[last] = digit / kLeavesPerBlock;
  kernel_.leaves(DataOf(roots), roots.size(), numbers.data(), last + 1, digit % kLeavesPerBlock,
                 shape_.offset_mask(), out.data());
}

TreeBlock TreeFunction::NodeOf(const TreeBlock& root, uint32_t level, uint32_t node) const {
  const uint32_t leaf = node << shape_.BitsBelow(level);
  // The nodes above are as secret as the root.
  SecretArray<kBlock> above(root.bytes);
  TreeBlock now;
  for (uint32_t l = 0; l <= level; ++l) {
    kernel_.expand(above.data(), 1, shape_.DigitOf(leaf, l), 1, now.bytes.data());
    std::ranges::copy(now.bytes, above.data());
  }
  return now;
}

TreeHints::Question::~Question() { sodium_memzero(this, sizeof *this); }
TreeHints::Set::~Set() { sodium_memzero(this, sizeof *this); }

TreeHints::TreeHints(const TreeShape& shape, const TreeSource* source)
    : shape_(shape),
      source_(*source),
      roots_(shape.hints),
      shifts_(shape.hints),
      parities_(shape.hints, shape.record_bytes),
      lacks_(shape.hints, kNoRow),
      made_by_(shape.hints) {
  SHOAL_CHECK(CheckTreeShape(shape).ok());
  source_.Draw(0, roots_, shifts_);
}

absl::Status TreeHints::TakeParities(BytesView parities) {
  const uint64_t count = parities.size() / shape_.record_bytes;
  if (parities.size() % shape_.record_bytes != 0 || count > shape_.hints - taken_) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree sets: ", parities.size(), " bytes of hints where ",
                     shape_.hints - taken_, " of ", shape_.record_bytes, " bytes are missing"));
  }
  if (count == 0) return absl::OkStatus();
  if (taken_ == 0) parities_.MakeWhole();
  std::ranges::copy(parities,
                    parities_.all().subspan(taken_ * uint64_t{shape_.record_bytes}).begin());
  taken_ += static_cast<uint32_t>(count);
  return absl::OkStatus();
}

TreeHints::Set TreeHints::DrawOne(uint64_t set) const {
  Set drawn;
  source_.Draw(set, {&drawn.root, 1}, {&drawn.shift, 1});
  return drawn;
}

TreeHints::Set TreeHints::NewSetOf(const Question& question) const {
  Set drawn = DrawOne(shape_.hints + 2 * question.query);
  uint32_t leaf = 0;
  source_.LeavesOf(shape_.ChunkOf(question.row), {&drawn.root, 1}, {&leaf, 1});
  drawn.shift = leaf ^ shape_.OffsetOf(question.row);
  return drawn;
}

void TreeHints::WriteWithout(uint32_t leaf, const Set& set, MutableBytes out) const {
  SHOAL_CHECK(out.size() == shape_.query_bytes());
  uint8_t* at = out.data();
  uint32_t parent = 0;
  const uint32_t last = shape_.levels() - 1;
  for (uint32_t level = 0; level < last; ++level) {
    const uint32_t fan = shape_.Fan(level), digit = shape_.DigitOf(leaf, level);
    for (uint32_t i = 0; i + 1 < fan; ++i) {
      // The children from left to right, without the one that has the leaf.
      const auto right = static_cast<uint32_t>(i >= digit);
      const TreeBlock block = source_.NodeOf(set.root, level, parent * fan + i + right);
      at = std::ranges::copy(block.bytes, at).out;
    }
    parent = parent * fan + digit;
  }
  BitWriter bits(out.subspan(static_cast<size_t>(at - out.data())));
  const uint32_t fan = shape_.Fan(last), digit = shape_.DigitOf(leaf, last);
  for (uint32_t i = 0; i + 1 < fan; ++i) {
    const auto right = static_cast<uint32_t>(i >= digit);
    uint32_t offset = 0;
    source_.LeavesOf(parent * fan + i + right, {&set.root, 1}, {&offset, 1});
    bits.Add(offset, shape_.offset_bits);
  }
  bits.Add(set.shift, shape_.offset_bits);
}

absl::Status TreeHints::Ask(uint64_t row, uint32_t from, MutableBytes online,
                            MutableBytes offline) {
  SHOAL_CHECK(from < shape_.hints);
  if (row >= shape_.rows) return absl::OutOfRangeError("tree sets: no such row");
  if (asked_.has_value()) {
    return absl::FailedPreconditionError("tree sets: the query before is not finished");
  }
  if (!complete()) return absl::FailedPreconditionError("tree sets: not all hints are there");
  const uint32_t chunk = shape_.ChunkOf(row), offset = shape_.OffsetOf(row);

  // The first hint from `from` on that holds the row. All are looked at.
  constexpr uint32_t kTogether = 4096;
  SecretVector<uint32_t> leaves(std::min(kTogether, shape_.hints));
  uint64_t found = 0, hint = 0;
  const auto look = [&](uint32_t begin, uint32_t end) {
    for (uint32_t done = begin; done < end; done += kTogether) {
      const uint32_t count = std::min(kTogether, end - done);
      source_.LeavesOf(chunk, std::span(roots_).subspan(done, count),
                       std::span(leaves).first(count));
      const uint32_t at = FastestTreeKernel().find(leaves.data(), &shifts_[done], offset, count);
      const uint64_t first = ~EqualMask(at, count) & ~found;
      found |= first;
      hint = Select(first, done + at, hint);
    }
  };
  look(from, shape_.hints);
  look(0, from);

  asked_ = {
      .row = row, .query = queries_++, .hint = static_cast<uint32_t>(hint), .held = found != 0};
  WriteQueries(*asked_, online, offline);
  sodium_stackzero(kStackBytes);
  return absl::OkStatus();
}

void TreeHints::WriteQueries(const Question& question, MutableBytes online,
                             MutableBytes offline) const {
  // Two sets that nobody has seen: one holds the row and goes to the offline server; the other goes
  // to the online server if no hint holds it.
  const Set instead = DrawOne(shape_.hints + 2 * question.query + 1);
  const uint64_t held = 0 - uint64_t{question.held};
  Set sent = {.root = roots_[question.hint], .shift = shifts_[question.hint]};
  for (size_t i = 0; i < kBlock; ++i) {
    sent.root.bytes[i] =
        static_cast<uint8_t>(Select(held, sent.root.bytes[i], instead.root.bytes[i]));
  }
  sent.shift = static_cast<uint32_t>(Select(held, sent.shift, instead.shift));
  const uint32_t chunk = shape_.ChunkOf(question.row);
  WriteWithout(chunk, sent, online);
  WriteWithout(chunk, NewSetOf(question), offline);
}

absl::Status TreeHints::AskAgain(MutableBytes online, MutableBytes offline) const {
  if (!asked_.has_value()) {
    return absl::FailedPreconditionError("tree sets: no query waits for its answers");
  }
  WriteQueries(*asked_, online, offline);
  sodium_stackzero(kStackBytes);
  return absl::OkStatus();
}

absl::StatusOr<bool> TreeHints::Finish(BytesView online, BytesView offline, MutableBytes record) {
  SHOAL_CHECK(record.size() == shape_.record_bytes);
  if (!asked_.has_value()) {
    return absl::FailedPreconditionError("tree sets: no query waits for its answers");
  }
  if (online.size() != shape_.answer_bytes() || offline.size() != shape_.answer_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("tree sets: answers of ", online.size(), " and ",
                                                   offline.size(), " bytes instead of ",
                                                   shape_.answer_bytes()));
  }
  const uint64_t at = uint64_t{shape_.ChunkOf(asked_->row)} * shape_.record_bytes;
  return FinishWith(online.subspan(at, shape_.record_bytes),
                    offline.subspan(at, shape_.record_bytes), record);
}

absl::StatusOr<bool> TreeHints::FinishWith(BytesView online, BytesView offline,
                                           MutableBytes record) {
  if (!asked_.has_value()) {
    return absl::FailedPreconditionError("tree sets: no query waits for its answers");
  }
  SHOAL_CHECK(record.size() == shape_.record_bytes && online.size() == record.size() &&
              offline.size() == record.size());
  const auto mask = static_cast<uint8_t>(0 - uint32_t{asked_->held});
  const MutableBytes parity = MutableParityOf(asked_->hint);
  // The record of a hint without another one is wrong, and the new hint goes without it.
  const auto whole = static_cast<uint8_t>(EqualMask(lacks_[asked_->hint], kNoRow));
  for (size_t i = 0; i < record.size(); ++i) {
    record[i] = mask & (parity[i] ^ online[i]);
    parity[i] ^= mask & (parity[i] ^ offline[i] ^ (whole & record[i]));
  }
  ReplaceSet(*asked_);
  const bool held = asked_->held;
  asked_.reset();
  sodium_stackzero(kStackBytes);
  return held;
}

void TreeHints::ReplaceSet(const Question& question) {
  const uint64_t held = 0 - uint64_t{question.held};
  const Set set = NewSetOf(question);
  TreeBlock& root = roots_[question.hint];
  for (size_t i = 0; i < kBlock; ++i) {
    root.bytes[i] = static_cast<uint8_t>(Select(held, set.root.bytes[i], root.bytes[i]));
  }
  uint32_t& shift = shifts_[question.hint];
  shift = static_cast<uint32_t>(Select(held, set.shift, shift));
  const uint64_t lacks = lacks_[question.hint];
  lacks_[question.hint] = Select(held & ~EqualMask(lacks, kNoRow), question.row, lacks);
  made_by_[question.hint] = Select(held, question.query + 1, made_by_[question.hint]);
}

std::vector<uint32_t> TreeHints::HintsToJudge(const Question& question, bool right) const {
  std::vector<uint32_t> hints;
  if (right) {
    for (uint32_t hint = 0; hint < shape_.hints; ++hint) {
      if (lacks_[hint] == question.row) hints.push_back(hint);
    }
  } else if (question.held && made_by_[question.hint] == question.query + 1 &&
             lacks_[question.hint] == kNoRow) {
    hints.push_back(question.hint);
  }
  return hints;
}

std::vector<uint32_t> TreeHints::Judge(const Question& question, BytesView record, bool right) {
  SHOAL_CHECK(record.size() == shape_.record_bytes);
  std::vector<uint32_t> hints = HintsToJudge(question, right);
  for (const uint32_t hint : hints) {
    const MutableBytes parity = MutableParityOf(hint);
    for (size_t i = 0; i < parity.size(); ++i) parity[i] ^= record[i];
    lacks_[hint] = right ? kNoRow : question.row;
  }
  return hints;
}

absl::Status TreeHints::RedoJudge(uint32_t hint, uint64_t lacks, BytesView parity) {
  if (hint >= shape_.hints || (lacks != kNoRow && lacks >= shape_.rows) || !complete() ||
      parity.size() != shape_.record_bytes) {
    return absl::InvalidArgumentError("tree sets: no hint that was judged");
  }
  std::ranges::copy(parity, MutableParityOf(hint).begin());
  lacks_[hint] = lacks;
  return absl::OkStatus();
}

absl::Status TreeHints::Redo(const Question& question) {
  if (asked_.has_value() || !complete() || question.query != queries_ ||
      question.row >= shape_.rows || question.hint >= shape_.hints) {
    return absl::InvalidArgumentError("tree sets: a query that cannot follow");
  }
  ++queries_;
  asked_ = question;
  return absl::OkStatus();
}

absl::Status TreeHints::RedoFinish(BytesView parity) {
  if (!asked_.has_value() || parity.size() != shape_.record_bytes) {
    return absl::InvalidArgumentError("tree sets: an end without a query");
  }
  std::ranges::copy(parity, MutableParityOf(asked_->hint).begin());
  ReplaceSet(*asked_);
  asked_.reset();
  return absl::OkStatus();
}

void TreeHints::Advance(std::span<const RowChange> changes) {
  SecretVector<uint32_t> leaves(taken_);
  std::vector<const RowChange*> at_offset(shape_.chunk_rows());
  for (size_t begin = 0, end = 0; begin < changes.size(); begin = end) {
    const uint32_t chunk = shape_.ChunkOf(changes[begin].row);
    for (; end < changes.size() && shape_.ChunkOf(changes[end].row) == chunk; ++end) {
      const RowChange& change = changes[end];
      SHOAL_CHECK(change.row < shape_.rows && change.difference.size() == shape_.record_bytes &&
                  (end == 0 || changes[end - 1].row < change.row));
      at_offset[shape_.OffsetOf(change.row)] = &change;
    }
    source_.LeavesOf(chunk, std::span(roots_).first(taken_), leaves);
    for (uint32_t i = 0; i < taken_; ++i) {
      const RowChange* change = at_offset[leaves[i] ^ shifts_[i]];
      if (change == nullptr || lacks_[i] == change->row) continue;
      const MutableBytes parity = MutableParityOf(i);
      FastestTreeKernel().add(parity.data(), change->difference.data(), parity.size(),
                              parity.data());
    }
    for (size_t i = begin; i < end; ++i) at_offset[shape_.OffsetOf(changes[i].row)] = nullptr;
  }
}

namespace {

// A head: the number of queries, the number of XORs taken, whether a query waits, and what it asks;
// the roots and the shifts; how many hints are without a record, and of each, in order, its number
// and the row.
constexpr size_t kQuestionAt = 8 + 4 + 1, kRootsAt = kQuestionAt + 8 + 4 + 1;
constexpr size_t kLackingBytes = 4 + 8;

}  // namespace

SecretVector<uint8_t> TreeHints::EncodeProgress() const {
  SecretVector<uint8_t> head(kRootsAt);
  StoreLe<uint64_t>(&head[0], queries_);
  StoreLe<uint32_t>(&head[8], taken_);
  if (asked_.has_value()) {
    head[12] = 1;
    StoreLe<uint64_t>(&head[kQuestionAt], asked_->row);
    StoreLe<uint32_t>(&head[kQuestionAt + 8], asked_->hint);
    head[kQuestionAt + 12] = asked_->held;
  }
  return head;
}

SecretVector<uint8_t> TreeHints::EncodeLacking() const {
  const auto lacking = static_cast<uint32_t>(lacks_.size()) -
                       static_cast<uint32_t>(std::ranges::count(lacks_, kNoRow));
  SecretVector<uint8_t> out(4 + lacking * kLackingBytes);
  uint8_t* at = out.data();
  StoreLe<uint32_t>(at, lacking);
  at += 4;
  for (uint32_t hint = 0; hint < shape_.hints; ++hint) {
    if (lacks_[hint] == kNoRow) continue;
    StoreLe<uint32_t>(at, hint);
    StoreLe<uint64_t>(at + 4, lacks_[hint]);
    at += kLackingBytes;
  }
  return out;
}

SecretVector<uint8_t> TreeHints::EncodeHead() const {
  SecretVector<uint8_t> head = EncodeProgress();
  const SecretVector<uint8_t> lacking = EncodeLacking();
  const size_t sets_bytes = roots_.size() * (kBlock + 4);
  head.resize(kRootsAt + sets_bytes + lacking.size());
  uint8_t* at = std::copy_n(DataOf(std::span(roots_)), roots_.size() * kBlock, &head[kRootsAt]);
  for (const uint32_t shift : shifts_) {
    StoreLe<uint32_t>(at, shift);
    at += 4;
  }
  std::ranges::copy(lacking, at);
  return head;
}

std::vector<TreeHints::Place> TreeHints::PlacesOf(uint32_t hint) const {
  const uint64_t shifts_at = kRootsAt + roots_.size() * kBlock;
  const uint64_t lacking_at = shifts_at + roots_.size() * 4;
  SecretVector<uint8_t> shift(4), lacking = EncodeLacking();
  StoreLe<uint32_t>(shift.data(), shifts_[hint]);
  const uint64_t parities_at = lacking_at + lacking.size();
  const TreeBlock& root = roots_[hint];
  const BytesView parity = ParityOf(hint);
  std::vector<Place> places;
  places.push_back({0, EncodeProgress()});
  places.push_back({kRootsAt + hint * kBlock, {root.bytes.begin(), root.bytes.end()}});
  places.push_back({shifts_at + uint64_t{hint} * 4, std::move(shift)});
  places.push_back({lacking_at, std::move(lacking)});
  places.push_back(
      {parities_at + uint64_t{hint} * shape_.record_bytes, {parity.begin(), parity.end()}});
  return places;
}

uint64_t TreeHints::least_head_bytes() const { return kRootsAt + roots_.size() * (kBlock + 4) + 4; }

std::optional<uint64_t> TreeHints::HeadBytesOf(BytesView least) const {
  SHOAL_CHECK(least.size() == least_head_bytes());
  const auto lacking = LoadLe<uint32_t>(&least[least.size() - 4]);
  if (lacking > shape_.hints) return std::nullopt;
  return least.size() + lacking * kLackingBytes;
}

absl::Status TreeHints::DecodeHead(BytesView state, uint64_t parity_bytes) {
  const auto damaged = [] { return absl::DataLossError("tree sets: a state that is malformed"); };
  const size_t lacking_at = least_head_bytes() - 4;
  if (state.size() < least_head_bytes() ||
      HeadBytesOf(state.first(least_head_bytes())) != state.size()) {
    return damaged();
  }
  const auto lacking = LoadLe<uint32_t>(&state[lacking_at]);
  const auto queries = LoadLe<uint64_t>(state.data());
  const auto taken = LoadLe<uint32_t>(&state[8]);
  const uint8_t waits = state[12], held = state[kQuestionAt + 12];
  const Question question = {.row = LoadLe<uint64_t>(&state[kQuestionAt]),
                             .query = queries - 1,
                             .hint = LoadLe<uint32_t>(&state[kQuestionAt + 8]),
                             .held = held == 1};
  bool fits = taken <= shape_.hints && parity_bytes == uint64_t{taken} * shape_.record_bytes &&
              waits <= 1 && held <= 1 && question.row < shape_.rows &&
              question.hint < shape_.hints && queries <= kMaxQueries &&
              (queries == 0 || taken == shape_.hints) && (waits == 0 || queries > 0);
  const uint8_t* const roots = &state[kRootsAt];
  const uint8_t* const shifts = roots + roots_.size() * kBlock;
  for (size_t i = 0; i < shifts_.size(); ++i) {
    fits &= LoadLe<uint32_t>(shifts + 4 * i) < shape_.chunk_rows();
  }
  const auto hint_at = [&](size_t i) {
    return LoadLe<uint32_t>(&state[lacking_at + 4 + i * kLackingBytes]);
  };
  const auto lacked_at = [&](size_t i) {
    return LoadLe<uint64_t>(&state[lacking_at + 4 + i * kLackingBytes + 4]);
  };
  for (size_t i = 0; i < lacking; ++i) {
    fits &= hint_at(i) < shape_.hints && (i == 0 || hint_at(i - 1) < hint_at(i)) &&
            lacked_at(i) < shape_.rows;
  }
  if (!fits) return damaged();
  queries_ = queries;
  taken_ = taken;
  asked_.reset();
  if (waits == 1) asked_ = question;
  std::copy_n(roots, roots_.size() * kBlock, DataOf(std::span(roots_)));
  for (size_t i = 0; i < shifts_.size(); ++i) shifts_[i] = LoadLe<uint32_t>(shifts + 4 * i);
  std::ranges::fill(lacks_, kNoRow);
  std::ranges::fill(made_by_, uint64_t{0});
  for (size_t i = 0; i < lacking; ++i) lacks_[hint_at(i)] = lacked_at(i);
  return absl::OkStatus();
}

namespace {

// The XORs of the sets of a few hints at a time, over the whole table: of all these trees the same
// leaves are made together, and then the rows of these chunks are added to all sums, so that a
// chunk is read from memory once for all of the group, and from a cache once for each set.
class ParityMaker {
 public:
  ParityMaker(const TreeShape& shape, BytesView table, const TreeKernel& kernel,
              const std::atomic<bool>* stop)
      : shape_(shape),
        table_(table),
        kernel_(kernel),
        // Rows of these many chunks are read in one loop, from the same cache.
        together_(static_cast<uint32_t>(
            std::clamp<uint64_t>(kChunksBytes / shape.chunk_bytes(), 4, kLeaves))),
        stop_(stop) {}

  void Make(std::span<const TreeBlock> roots, std::span<const uint32_t> shifts,
            MutableBytes parities) {
    shifts_ = shifts;
    parities_ = parities;
    std::ranges::fill(parities, uint8_t{0});
    nodes_.resize((shape_.levels() - 1) * roots.size());
    words_.resize(kLeaves * roots.size());
    AddBelow(0, roots, 0);
  }

 private:
  // Leaves of one node that are made at a time.
  static constexpr uint32_t kLeaves = 16;
  static constexpr uint64_t kChunksBytes = uint64_t{4} << 20;

  // Adds the rows of all leaves below nodes of the level above, from leaf `first` on.
  void AddBelow(uint32_t level, std::span<const TreeBlock> nodes, uint32_t first) {
    const uint32_t fan = shape_.Fan(level);
    if (level + 1 == shape_.levels()) {
      for (uint32_t x = 0; x < fan && first + x < shape_.chunks; x += kLeaves) {
        AddLeaves(nodes, first, x, std::min({fan, x + kLeaves, shape_.chunks - first}));
      }
      return;
    }
    const std::span<TreeBlock> children =
        std::span(nodes_).subspan(level * nodes.size(), nodes.size());
    for (uint32_t x = 0; x < fan; ++x) {
      const uint32_t leaf = first + (x << shape_.BitsBelow(level));
      if (leaf >= shape_.chunks) return;
      kernel_.expand(DataOf(nodes), nodes.size(), x, 1, DataOf(children));
      AddBelow(level + 1, children, leaf);
    }
  }

  // The children begin to end - 1 of each node, of which the first one is leaf `first`.
  void AddLeaves(std::span<const TreeBlock> nodes, uint32_t first, uint32_t begin, uint32_t end) {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) return;
    const uint32_t blocks = (end - begin + kLeavesPerBlock - 1) / kLeavesPerBlock;
    const uint32_t stride = blocks * kLeavesPerBlock, mask = shape_.offset_mask();
    kernel_.expand(DataOf(nodes), nodes.size(), begin / kLeavesPerBlock, blocks,
                   reinterpret_cast<uint8_t*>(words_.data()));
    for (size_t s = 0; s < nodes.size(); ++s) {
      for (uint32_t t = 0; t < stride; ++t) {
        uint32_t& word = words_[s * stride + t];
        word = (word & mask) ^ shifts_[s];
      }
    }
    for (uint32_t x = begin; x < end; x += together_) {
      kernel_.sum_rows({.rows = table_.data() + (first + x) * shape_.chunk_bytes(),
                        .chunk_bytes = shape_.chunk_bytes(),
                        .record_bytes = shape_.record_bytes,
                        .sums = nodes.size(),
                        .each = std::min(together_, end - x),
                        .step_bytes = 0,
                        .offsets = &words_[x - begin],
                        .stride = stride},
                       parities_.data());
    }
  }

  const TreeShape& shape_;
  const BytesView table_;
  const TreeKernel& kernel_;
  const uint32_t together_;
  const std::atomic<bool>* const stop_;
  std::span<const uint32_t> shifts_;
  MutableBytes parities_;
  SecretVector<TreeBlock> nodes_;  // of each level
  SecretVector<uint32_t> words_;
};

}  // namespace

uint32_t TreeGroupOf(const TreeShape& shape) {
  // A group's sums, leaves and nodes stay in the third-level cache beside the rows of a few chunks.
  constexpr uint64_t kGroupBytes = uint64_t{8} << 20, kMinGroup = 4, kMaxGroup = 32'768;
  return static_cast<uint32_t>(
      std::clamp(kGroupBytes / (shape.record_bytes + uint64_t{80}), kMinGroup, kMaxGroup));
}

bool MakeTreeParities(const TreeShape& shape, BytesView table, const SecretArray<16>& seed,
                      uint32_t first, MutableBytes parities, ThreadPool* pool,
                      const std::atomic<bool>* stop, const TreeKernel& kernel) {
  SHOAL_CHECK(CheckTreeShape(shape).ok() && table.size() == shape.table_bytes() &&
              parities.size() % shape.record_bytes == 0);
  const uint64_t sets = parities.size() / shape.record_bytes;
  SHOAL_CHECK(first <= shape.hints && sets <= shape.hints - first);
  SecretVector<TreeBlock> roots(sets);
  SecretVector<uint32_t> shifts(sets);
  TreeCipher(seed).Draw(first, shape.offset_mask(), roots, shifts);
  const auto make = [&](size_t begin, size_t end) {
    ParityMaker maker(shape, table, kernel, stop);
    const size_t group = TreeGroupOf(shape);
    for (size_t i = begin; i < end; i += group) {
      const size_t count = std::min(group, end - i);
      maker.Make(std::span(roots).subspan(i, count), std::span(shifts).subspan(i, count),
                 parities.subspan(i * shape.record_bytes, count * shape.record_bytes));
    }
  };
  // All threads have something to do, also for one group.
  const uint64_t threads = ThreadsOf(pool), each = (sets + threads - 1) / threads;
  ParallelFor(pool, sets, std::clamp<uint64_t>(each, 1, TreeGroupOf(shape)), make);
  return stop == nullptr || !*stop;
}

absl::Status ExpandTreeQuery(const TreeShape& shape, BytesView query, std::span<uint32_t> offsets,
                             const TreeKernel& kernel) {
  SHOAL_CHECK(offsets.size() == shape.query_offsets());
  if (query.size() != shape.query_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("tree sets: a query of ", query.size(),
                                                   " bytes instead of ", shape.query_bytes()));
  }
  const uint32_t last = shape.levels() - 1, mask = shape.offset_mask();
  const size_t block_bytes = shape.query_blocks() * kBlock;
  BitReader bits(query.subspan(block_bytes));
  const std::span<uint32_t> leaves = offsets.last(shape.query_leaves());
  for (uint32_t& leaf : leaves) leaf = bits.Next(shape.offset_bits);
  const uint32_t shift = bits.Next(shape.offset_bits);
  if (!bits.AtEnd()) {
    return absl::InvalidArgumentError("tree sets: a query with bits behind its end");
  }

  Bytes nodes, children;
  const uint32_t fan = shape.Fan(last);
  const uint32_t blocks = (fan + kLeavesPerBlock - 1) / kLeavesPerBlock;
  size_t block = 0, done = 0;
  for (uint32_t level = 0; level < last; ++level) {
    const size_t sent = shape.Fan(level) - 1;
    nodes = ToBytes(query.subspan(block * kBlock, sent * kBlock));
    block += sent;
    for (uint32_t below = level + 1; below < last; ++below) {
      const size_t count = nodes.size() / kBlock;
      children.resize(nodes.size() * shape.Fan(below));
      kernel.expand(nodes.data(), count, 0, shape.Fan(below), children.data());
      nodes.swap(children);
    }
    const size_t count = nodes.size() / kBlock;
    children.resize(nodes.size() * blocks);
    kernel.expand(nodes.data(), count, 0, blocks, children.data());
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* words = children.data() + i * blocks * kBlock;
      for (uint32_t x = 0; x < fan; ++x) offsets[done++] = LoadLe<uint32_t>(words + 4 * x) & mask;
    }
  }
  for (uint32_t& offset : offsets) offset ^= shift;
  return absl::OkStatus();
}

namespace {

// Answers one query. At each node the leaf left out may be below any child h. The blocks that were
// sent for the node's level then stand for the children 0, .., h - 1, h + 1, ..: block x stands for
// child x if x < h ("low"), and for child x + 1 otherwise ("high"). So for each block the rows of
// both places are added up once, and then the sums for all h follow one from the other.
class Answerer {
 public:
  Answerer(const TreeShape& shape, BytesView table, std::span<const uint32_t> offsets,
           MutableBytes answer, const TreeKernel& kernel)
      : shape_(shape), table_(table), answer_(answer), kernel_(kernel), levels_(shape.levels()) {
    for (uint32_t level = 0; level < levels_.size(); ++level) {
      Level& one = levels_[level];
      one.offsets = offsets.first(LeavesOfLevel(shape, level));
      offsets = offsets.subspan(one.offsets.size());
      const size_t blocks = shape.Fan(level) - 1;
      one.low.resize(blocks * shape.record_bytes);
      one.high.resize((blocks + 1) * shape.record_bytes);
      one.left.resize(shape.record_bytes);
      one.outside.resize(shape.record_bytes);
    }
  }

  // Writes the answers for all leaves below a node, from leaf `first` on; `outside` is the XOR of
  // the rows that the query has outside the node.
  void AnswerBelow(uint32_t level, uint32_t first, BytesView outside) {
    const size_t record = shape_.record_bytes;
    const uint32_t fan = shape_.Fan(level), below = shape_.BitsBelow(level);
    Level& now = levels_[level];
    Sum(first, below, now.offsets, now.low);
    Sum(first + (1u << below), below, now.offsets,
        MutableBytes(now.high).first((fan - 1) * record));
    // high[x]: what is outside, and the blocks x, x + 1, .. at their high places.
    std::ranges::copy(outside, now.high.end() - static_cast<ptrdiff_t>(record));
    for (size_t x = fan - 1; x-- > 0;) {
      uint8_t* high = &now.high[x * record];
      kernel_.add(high, high + record, record, high);
    }
    std::ranges::fill(now.left, uint8_t{0});
    for (uint32_t h = 0; h < fan; ++h) {
      const uint32_t leaf = first + (h << below);
      if (leaf >= shape_.chunks) return;
      const bool is_leaf = level + 1 == levels_.size();
      uint8_t* to = is_leaf ? &answer_[leaf * record] : now.outside.data();
      kernel_.add(now.left.data(), &now.high[h * record], record, to);
      if (!is_leaf) AnswerBelow(level + 1, leaf, now.outside);
      if (h + 1 < fan) kernel_.add(now.left.data(), &now.low[h * record], record, now.left.data());
    }
  }

 private:
  struct Level {
    std::span<const uint32_t> offsets;
    // XORs of the blocks' rows at their low and high places, and of the low ones so far.
    Bytes low, high, left, outside;
  };

  // XORs of 2^below rows each, of successive chunks from `first` on. There is nothing behind the
  // last chunk.
  void Sum(uint32_t first, uint32_t below, std::span<const uint32_t> offsets, MutableBytes sums) {
    std::ranges::fill(sums, uint8_t{0});
    if (first >= shape_.chunks || offsets.empty()) return;
    const size_t rows = std::min<size_t>(offsets.size(), shape_.chunks - first);
    const size_t each = size_t{1} << below, whole = rows >> below;
    RowSums job = {.rows = table_.data() + first * shape_.chunk_bytes(),
                   .chunk_bytes = shape_.chunk_bytes(),
                   .record_bytes = shape_.record_bytes,
                   .sums = whole,
                   .each = each,
                   .step_bytes = shape_.chunk_bytes() << below,
                   .offsets = offsets.data(),
                   .stride = each};
    kernel_.sum_rows(job, sums.data());
    if (whole * each == rows) return;
    job.rows += whole * job.step_bytes;
    job.offsets += whole * each;
    job.sums = 1;
    job.each = rows - whole * each;
    kernel_.sum_rows(job, sums.data() + whole * shape_.record_bytes);
  }

  const TreeShape& shape_;
  const BytesView table_;
  const MutableBytes answer_;
  const TreeKernel& kernel_;
  std::vector<Level> levels_;
};

}  // namespace

void AnswerTreeQuery(const TreeShape& shape, BytesView table, std::span<const uint32_t> offsets,
                     MutableBytes answer, const TreeKernel& kernel) {
  SHOAL_CHECK(table.size() == shape.table_bytes() && offsets.size() == shape.query_offsets() &&
              answer.size() == shape.answer_bytes());
  Answerer(shape, table, offsets, answer, kernel).AnswerBelow(0, 0, Bytes(shape.record_bytes));
}

}  // namespace shoal::pir::sets
