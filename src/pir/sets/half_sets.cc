#include "src/pir/sets/half_sets.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::pir::sets {
namespace {

// A session's queries miss all hints with probability 2^-kMissBits at most.
constexpr double kMissBits = 40;
constexpr uint64_t kMaxSets = uint64_t{1} << 30;
constexpr uint64_t kMaxChunks = uint64_t{1} << 28;
constexpr double kMaxChoices = uint64_t{1} << 43;  // of all sets for all chunks
constexpr uint32_t kChunksPerBlock = 8;
constexpr size_t kBlockBytes = 16;

void Xor(MutableBytes to, BytesView from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] ^= from[i];
}

// The same where `mask` is all ones, and nothing where it is zero.
void XorMasked(MutableBytes to, BytesView from, uint8_t mask) {
  for (size_t i = 0; i < to.size(); ++i) to[i] ^= from[i] & mask;
}

// All ones if the arguments are equal, else zero, without a branch.
uint64_t EqualMask(uint64_t a, uint64_t b) {
  const uint64_t differ = a ^ b;
  return ((differ | (0 - differ)) >> 63) - 1;
}

uint64_t Select(uint64_t mask, uint64_t if_ones, uint64_t if_zeros) {
  return if_zeros ^ (mask & (if_ones ^ if_zeros));
}

}  // namespace

absl::StatusOr<SetShape> ShapeFor(uint64_t rows, uint32_t record_bytes, uint64_t queries) {
  if (rows == 0 || record_bytes == 0 || queries == 0 || queries > kMaxSets) {
    return absl::InvalidArgumentError("half sets: no rows, records or queries, or too many");
  }
  SetShape shape = {.rows = rows, .record_bytes = record_bytes};
  // The fewest rows in a chunk that leave no more chunks than that, but for one.
  while (shape.offset_bits < kMaxOffsetBits &&
         (rows >> shape.offset_bits) > (uint64_t{1} << shape.offset_bits)) {
    ++shape.offset_bits;
  }
  const uint64_t chunks = ((rows - 1) >> shape.offset_bits) + 1;
  // A hint holds a given row if its set has this offset there, and the row's chunk is in its half.
  const double held = 0.5 / static_cast<double>(shape.chunk_rows());
  const double hints = std::ceil((kMissBits + std::log2(static_cast<double>(queries))) *
                                 std::log(2.0) / -std::log1p(-held));
  const double sets = hints + static_cast<double>(queries);
  if (chunks > kMaxChunks || sets > kMaxSets || static_cast<double>(chunks) * sets > kMaxChoices) {
    return absl::InvalidArgumentError(absl::StrCat("half sets: ", rows, " rows are too many"));
  }
  shape.chunks = static_cast<uint32_t>(chunks);
  shape.hints = static_cast<uint32_t>(hints);
  shape.backups = static_cast<uint32_t>(queries);
  return shape;
}

struct SetFunction::Cipher {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  ~Cipher() { EVP_CIPHER_CTX_free(context); }  // wipes the key

  // Encrypts the blocks in place.
  void Encrypt(MutableBytes blocks) const {
    int written = 0;
    SHOAL_CHECK(EVP_EncryptUpdate(context, blocks.data(), &written, blocks.data(),
                                  static_cast<int>(blocks.size())) == 1 &&
                static_cast<size_t>(written) == blocks.size());
  }
};

namespace {

void StoreNumber(uint32_t chunk, uint32_t set, uint8_t* block) {
  const uint64_t number = (uint64_t{chunk / kChunksPerBlock} << 32) | set;
  std::fill_n(block, 8, uint8_t{0});
  for (int i = 0; i < 8; ++i) block[8 + i] = static_cast<uint8_t>(number >> (56 - 8 * i));
}

}  // namespace

SetFunction::SetFunction(const SecretArray<16>& key, uint32_t offset_bits)
    : offset_mask_(static_cast<uint16_t>((1u << offset_bits) - 1)),
      cipher_(std::make_unique<Cipher>()) {
  SHOAL_CHECK(offset_bits <= kMaxOffsetBits && cipher_->context != nullptr);
  SHOAL_CHECK(
      EVP_EncryptInit_ex(cipher_->context, EVP_aes_128_ecb(), nullptr, key.data(), nullptr) == 1 &&
      EVP_CIPHER_CTX_set_padding(cipher_->context, 0) == 1);
}
SetFunction::~SetFunction() = default;

Choice SetFunction::ChoiceOf(const uint8_t* block, uint32_t chunk) const {
  const uint16_t word = LoadLe<uint16_t>(block + 2 * (chunk % kChunksPerBlock));
  return {.offset = static_cast<uint16_t>(word & offset_mask_),
          .bit = static_cast<uint16_t>(word >> 15)};
}

void SetFunction::OfSet(uint32_t set, std::span<Choice> out) const {
  const size_t blocks = (out.size() + kChunksPerBlock - 1) / kChunksPerBlock;
  SecretVector<uint8_t> bytes(blocks * kBlockBytes);
  for (size_t i = 0; i < blocks; ++i) {
    StoreNumber(static_cast<uint32_t>(i * kChunksPerBlock), set, &bytes[i * kBlockBytes]);
  }
  cipher_->Encrypt(bytes);
  for (uint32_t c = 0; c < out.size(); ++c) {
    out[c] = ChoiceOf(&bytes[c / kChunksPerBlock * kBlockBytes], c);
  }
}

void SetFunction::OfChunk(uint32_t chunk, uint32_t first, std::span<Choice> out) const {
  constexpr size_t kTogether = 256;
  SecretArray<kTogether * kBlockBytes> bytes;
  for (size_t done = 0; done < out.size(); done += kTogether) {
    const size_t count = std::min(kTogether, out.size() - done);
    for (size_t i = 0; i < count; ++i) {
      StoreNumber(chunk, static_cast<uint32_t>(first + done + i), bytes.data() + i * kBlockBytes);
    }
    cipher_->Encrypt(bytes.mutable_view().first(count * kBlockBytes));
    for (size_t i = 0; i < count; ++i) {
      out[done + i] = ChoiceOf(bytes.data() + i * kBlockBytes, chunk);
    }
  }
}

HintTable::HintTable(const SetShape& shape, const SetSource* sets)
    : shape_(shape),
      sets_(*sets),
      parities_(uint64_t{shape.hints} * shape.record_bytes),
      backup_parities_(2 * uint64_t{shape.backups} * shape.record_bytes) {
  SHOAL_CHECK(shape.offset_bits <= kMaxOffsetBits && shape.sets() <= kMaxSets && shape.rows > 0 &&
              shape.chunks == ((shape.rows - 1) >> shape.offset_bits) + 1);
  hints_.reserve(shape.hints);
  // Sets 0 to hints - 1 are the first hints', half 1 of each; the others are the backups'.
  for (uint32_t i = 0; i < shape.hints; ++i) hints_.push_back({i, 1, kNoRow});
}

void HintTable::AddChunk(uint32_t chunk, BytesView records) {
  const uint64_t first = uint64_t{chunk} << shape_.offset_bits;
  SHOAL_CHECK(chunk < shape_.chunks && chunks_added_++ < shape_.chunks && spent_ == 0);
  const uint64_t rows = std::min(shape_.chunk_rows(), shape_.rows - first);
  SHOAL_CHECK(records.size() == rows * shape_.record_bytes);
  SecretVector<Choice> choices(shape_.sets());
  sets_.OfChunk(chunk, 0, choices);
  for (uint32_t set = 0; set < choices.size(); ++set) {
    const Choice choice = choices[set];
    if (choice.offset >= rows) continue;  // a row of zeros
    const BytesView record =
        records.subspan(uint64_t{choice.offset} * shape_.record_bytes, shape_.record_bytes);
    if (set >= shape_.hints) {
      Xor(BackupOf(set - shape_.hints, choice.bit), record);
    } else if (choice.bit == 1) {
      Xor(ParityOf(set), record);
    }
  }
}

absl::Status HintTable::Ask(uint64_t row, RandomSource& random, std::span<Choice> query) {
  SHOAL_CHECK(query.size() == shape_.chunks);
  if (row >= shape_.rows) return absl::OutOfRangeError("half sets: no such row");
  if (asked_.has_value()) {
    return absl::FailedPreconditionError("half sets: the query before is not finished");
  }
  if (backups_left() == 0) return absl::ResourceExhaustedError("half sets: no backup is left");
  const uint32_t offset = shape_.OffsetOf(row);

  // The first hint that holds the row. All are looked at.
  SecretVector<Choice> of_chunk(shape_.sets());
  sets_.OfChunk(shape_.ChunkOf(row), 0, of_chunk);
  uint64_t found = 0, hint = 0;
  for (uint32_t i = 0; i < shape_.hints; ++i) {
    const Hint& one = hints_[i];
    const Choice choice = of_chunk[one.set];
    // The half of a hint has nothing of the chunk of the row beside.
    const uint64_t in_half = EqualMask(choice.bit, one.half) & EqualMask(choice.offset, offset);
    const uint64_t first = (in_half | EqualMask(one.beside, row)) & ~found;
    found |= first;
    hint = Select(first, i, hint);
  }

  const uint64_t words = random.U64();
  const uint64_t coin = words >> 63, dummy = words & (shape_.chunk_rows() - 1);
  asked_ = {.row = row,
            .backup = spent_++,
            .hint = static_cast<uint32_t>(hint),
            .dummy = static_cast<uint16_t>(dummy),
            .coin = coin == 1,
            .held = found != 0};
  WriteQuery(*asked_, query);
  return absl::OkStatus();
}

void HintTable::WriteQuery(const Question& question, std::span<Choice> query) const {
  // If no hint holds the row, half 1 of the set of the backup that is spent is sent, whole.
  const uint64_t found = question.held ? ~uint64_t{0} : 0;
  const Hint& one = hints_[question.hint];
  const uint64_t set = Select(found, one.set, uint64_t{shape_.hints} + question.backup);
  const uint64_t half = Select(found, one.half, 1);
  const uint64_t beside = Select(found, one.beside, kNoRow);
  const uint32_t chunk = shape_.ChunkOf(question.row);
  const uint64_t coin = question.coin ? 1 : 0, dummy = question.dummy;

  sets_.OfSet(static_cast<uint32_t>(set), query);
  const uint64_t beside_chunk = beside >> shape_.offset_bits;
  for (uint32_t c = 0; c < shape_.chunks; ++c) {
    const uint64_t is_beside = EqualMask(c, beside_chunk);  // kNoRow is in no chunk
    const uint64_t is_asked = found & EqualMask(c, chunk);
    uint64_t bit = EqualMask(query[c].bit, half) & 1;
    uint64_t at = query[c].offset;
    bit = Select(is_beside, 1, bit);
    at = Select(is_beside, shape_.OffsetOf(beside), at);
    bit = Select(is_asked, 0, bit);
    at = Select(is_asked, dummy, at);
    query[c] = {.offset = static_cast<uint16_t>(at & 0x7fff),
                .bit = static_cast<uint16_t>((bit ^ coin) & 1)};
  }
}

void HintTable::Repeat(std::span<Choice> query) const {
  SHOAL_CHECK(query.size() == shape_.chunks && asked_.has_value());
  WriteQuery(*asked_, query);
}

bool HintTable::Finish(BytesView zeros, BytesView ones, MutableBytes record) {
  SHOAL_CHECK(zeros.size() == shape_.record_bytes && ones.size() == shape_.record_bytes &&
              record.size() == shape_.record_bytes && asked_.has_value());
  const Question question = *asked_;
  asked_.reset();
  const auto mask = static_cast<uint8_t>(question.held ? 0xff : 0);
  const auto of_ones = static_cast<uint8_t>(0 - uint64_t{!question.coin});
  std::ranges::fill(record, uint8_t{0});
  XorMasked(record, ParityOf(question.hint), mask);
  XorMasked(record, ones, mask & of_ones);
  XorMasked(record, zeros, mask & static_cast<uint8_t>(~of_ones));
  Replace(question, record);
  return question.held;
}

void HintTable::Replace(const Question& question, BytesView record) {
  const uint64_t held = question.held ? ~uint64_t{0} : 0;
  const auto mask = static_cast<uint8_t>(held);
  const MutableBytes parity = ParityOf(question.hint);
  // The half of the backup without a row in the record's chunk takes the hint's place.
  const uint32_t set = shape_.hints + question.backup;
  std::array<Choice, 1> choice;
  sets_.OfChunk(shape_.ChunkOf(question.row), set, choice);
  const uint32_t half = 1u ^ choice[0].bit;
  Hint& hint = hints_[question.hint];
  hint.set = static_cast<uint32_t>(Select(held, set, hint.set));
  hint.half = static_cast<uint32_t>(Select(held, half, hint.half));
  hint.beside = Select(held, question.row, hint.beside);
  for (uint32_t e = 0; e < 2; ++e) {
    const MutableBytes backup = BackupOf(question.backup, e);
    const uint8_t takes = mask & static_cast<uint8_t>(EqualMask(e, half));
    for (size_t i = 0; i < parity.size(); ++i) {
      parity[i] = static_cast<uint8_t>(Select(takes, backup[i] ^ record[i], parity[i]));
    }
  }
  sodium_memzero(BackupOf(question.backup, 0).data(), 2 * size_t{shape_.record_bytes});
}

absl::Status HintTable::CheckQuestion(const Question& question) const {
  if (question.row >= shape_.rows || question.backup >= shape_.backups ||
      question.hint >= shape_.hints || question.dummy >= shape_.chunk_rows()) {
    return absl::InvalidArgumentError("half sets: a query that this table cannot have sent");
  }
  return absl::OkStatus();
}

absl::Status HintTable::Redo(const Question& question) {
  SHOAL_RETURN_IF_ERROR(CheckQuestion(question));
  if (asked_.has_value() || question.backup != spent_ || !complete()) {
    return absl::InvalidArgumentError("half sets: a query that cannot follow");
  }
  ++spent_;
  asked_ = question;
  return absl::OkStatus();
}

absl::Status HintTable::RedoFinish(BytesView record) {
  if (!asked_.has_value() || record.size() != shape_.record_bytes) {
    return absl::InvalidArgumentError("half sets: an end without a query");
  }
  Replace(*asked_, record);
  asked_.reset();
  return absl::OkStatus();
}

void HintTable::Advance(std::span<const Change> changes) {
  SecretVector<Choice> of_chunk(shape_.sets());
  std::vector<const Change*> of_offset(shape_.chunk_rows());
  for (size_t begin = 0, end = 0; begin < changes.size(); begin = end) {
    const uint32_t chunk = shape_.ChunkOf(changes[begin].row);
    for (; end < changes.size() && shape_.ChunkOf(changes[end].row) == chunk; ++end) {
      SHOAL_CHECK(changes[end].row < shape_.rows &&
                  changes[end].difference.size() == shape_.record_bytes &&
                  (end == 0 || changes[end - 1].row < changes[end].row));
    }
    if (chunk >= chunks_added_) continue;
    std::ranges::fill(of_offset, nullptr);
    for (size_t i = begin; i < end; ++i) of_offset[shape_.OffsetOf(changes[i].row)] = &changes[i];
    sets_.OfChunk(chunk, 0, of_chunk);
    for (uint32_t i = 0; i < shape_.hints; ++i) {
      const Hint& one = hints_[i];
      const Choice choice = of_chunk[one.set];
      const Change* change = choice.bit == one.half ? of_offset[choice.offset] : nullptr;
      // The half of a hint has nothing of the chunk of the row beside.
      if (one.beside != kNoRow && shape_.ChunkOf(one.beside) == chunk) {
        change = of_offset[shape_.OffsetOf(one.beside)];
      }
      if (change != nullptr) Xor(ParityOf(i), change->difference);
    }
    // The backup of a query on its way takes a hint's place later.
    for (uint32_t i = spent_ - asked_.has_value(); i < shape_.backups; ++i) {
      const Choice choice = of_chunk[shape_.hints + i];
      if (const Change* change = of_offset[choice.offset]; change != nullptr) {
        Xor(BackupOf(i, choice.bit), change->difference);
      }
    }
  }
}

// The head: u32 chunks added, u32 spent, u64 row, u32 backup, u32 hint, u16 dummy, then bytes: 1 if
// a query is on its way, coin, held; zeros. A hint: u32 set, u32 half, u64 beside.
SecretVector<uint8_t> HintTable::EncodeHead() const {
  SecretVector<uint8_t> out(kHeadBytes + hints_.size() * kHintBytes);
  uint8_t* at = out.data();
  StoreLe<uint32_t>(at, chunks_added_);
  StoreLe<uint32_t>(at + 4, spent_);
  const Question question = asked_.value_or(Question());
  StoreLe<uint64_t>(at + 8, question.row);
  StoreLe<uint32_t>(at + 16, question.backup);
  StoreLe<uint32_t>(at + 20, question.hint);
  StoreLe<uint16_t>(at + 24, question.dummy);
  at[26] = asked_.has_value();
  at[27] = question.coin;
  at[28] = question.held;
  at += kHeadBytes;
  for (const Hint& hint : hints_) {
    StoreLe<uint32_t>(at, hint.set);
    StoreLe<uint32_t>(at + 4, hint.half);
    StoreLe<uint64_t>(at + 8, hint.beside);
    at += kHintBytes;
  }
  return out;
}

absl::Status HintTable::Decode(BytesView state) {
  const absl::Status bad = absl::InvalidArgumentError("half sets: no table of hints of this shape");
  if (state.size() != StateBytes(shape_)) return bad;
  const uint8_t* at = state.data();
  chunks_added_ = LoadLe<uint32_t>(at);
  spent_ = LoadLe<uint32_t>(at + 4);
  const Question question = {.row = LoadLe<uint64_t>(at + 8),
                             .backup = LoadLe<uint32_t>(at + 16),
                             .hint = LoadLe<uint32_t>(at + 20),
                             .dummy = LoadLe<uint16_t>(at + 24),
                             .coin = at[27] != 0,
                             .held = at[28] != 0};
  if (chunks_added_ > shape_.chunks || spent_ > shape_.backups || (spent_ > 0 && !complete()) ||
      at[26] > 1 || at[27] > 1 || at[28] > 1 || at[29] != 0 || at[30] != 0 || at[31] != 0) {
    return bad;
  }
  asked_.reset();
  if (at[26] == 1) {
    if (!CheckQuestion(question).ok() || spent_ == 0 || question.backup != spent_ - 1) return bad;
    asked_ = question;
  } else if (question != Question()) {
    return bad;
  }
  at += kHeadBytes;
  for (Hint& hint : hints_) {
    hint = {.set = LoadLe<uint32_t>(at),
            .half = LoadLe<uint32_t>(at + 4),
            .beside = LoadLe<uint64_t>(at + 8)};
    if (hint.set >= shape_.sets() || hint.half > 1 ||
        (hint.beside != kNoRow && hint.beside >= shape_.rows)) {
      return bad;
    }
    at += kHintBytes;
  }
  const BytesView xors = state.last(shape_.parity_bytes());
  std::ranges::copy(xors.first(parities_.size()), parities_.begin());
  std::ranges::copy(xors.subspan(parities_.size()), backup_parities_.begin());
  return absl::OkStatus();
}

void EncodeQuery(const SetShape& shape, std::span<const Choice> query, MutableBytes out) {
  SHOAL_CHECK(query.size() == shape.chunks && out.size() == shape.query_bytes());
  uint64_t word = 0;
  uint32_t bits = 0;
  size_t at = 0;
  for (const Choice choice : query) {
    word |= (uint64_t{choice.bit} | uint64_t{choice.offset} << 1) << bits;
    bits += 1 + shape.offset_bits;
    for (; bits >= 8; bits -= 8, word >>= 8) out[at++] = static_cast<uint8_t>(word);
  }
  if (bits > 0) out[at] = static_cast<uint8_t>(word);
}

absl::Status DecodeQuery(const SetShape& shape, BytesView encoded, std::span<Choice> query) {
  SHOAL_CHECK(query.size() == shape.chunks);
  if (encoded.size() != shape.query_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("half sets: a query of ", encoded.size(),
                                                   " bytes instead of ", shape.query_bytes()));
  }
  uint64_t word = 0;
  uint32_t bits = 0;
  size_t at = 0;
  for (Choice& choice : query) {
    for (; bits < 1 + shape.offset_bits; bits += 8) word |= uint64_t{encoded[at++]} << bits;
    choice = {.offset = static_cast<uint16_t>(word >> 1 & (shape.chunk_rows() - 1)),
              .bit = static_cast<uint16_t>(word & 1)};
    word >>= 1 + shape.offset_bits;
    bits -= 1 + shape.offset_bits;
  }
  if (word != 0) return absl::InvalidArgumentError("half sets: a query with bits behind its end");
  return absl::OkStatus();
}

void AnswerQuery(const SetShape& shape, BytesView records, std::span<const Choice> query,
                 MutableBytes zeros, MutableBytes ones) {
  SHOAL_CHECK(records.size() == shape.rows * shape.record_bytes && query.size() == shape.chunks &&
              zeros.size() == shape.record_bytes && ones.size() == shape.record_bytes);
  std::ranges::fill(zeros, uint8_t{0});
  std::ranges::fill(ones, uint8_t{0});
  for (uint32_t c = 0; c < shape.chunks; ++c) {
    const uint64_t row = (uint64_t{c} << shape.offset_bits) + query[c].offset;
    if (row >= shape.rows) continue;  // a row of zeros
    Xor(query[c].bit == 1 ? ones : zeros,
        records.subspan(row * shape.record_bytes, shape.record_bytes));
  }
}

}  // namespace shoal::pir::sets
