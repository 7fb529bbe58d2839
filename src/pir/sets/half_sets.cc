#include "src/pir/sets/half_sets.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/declassify.h"
#include "src/base/masks.h"
#include "src/base/status_macros.h"
#include "src/pir/sets/gather.h"
#include "src/pir/sets/gather_dispatch.h"

namespace shoal::pir::sets {
namespace {

// A session's queries miss all hints with probability 2^-kMissBits at most.
constexpr double kMissBits = 40;
constexpr uint64_t kMaxSets = uint64_t{1} << 30;
constexpr uint64_t kMaxChunks = uint64_t{1} << 28;
constexpr double kMaxChoices = uint64_t{1} << 43;  // of all sets for all chunks
constexpr uint32_t kSetsPerBlock = 8;
constexpr size_t kBlockBytes = Aes128::kBlockBytes;
constexpr uint32_t kNowhere = GatherKernel::kNowhere;
// Sets whose choices are looked at together, so that they stay in the first cache.
constexpr uint32_t kSetsTogether = 512;
// Bytes of a chunk, of which eight fit the second cache together with the rest.
constexpr uint64_t kCachedWords = uint64_t{64} << 10;

const ChoiceWord* WordsOf(std::span<const Choice> choices) {
  return reinterpret_cast<const ChoiceWord*>(choices.data());
}

// to ^= from where `mask` is all ones, and nothing where it is zero.
void XorMasked(MutableBytes to, BytesView from, uint8_t mask) {
  for (size_t i = 0; i < to.size(); ++i) to[i] ^= from[i] & mask;
}

// All ones if a < b, else zero; both are below 2^63.
uint64_t LessMask(uint64_t a, uint64_t b) { return 0 - ((a - b) >> 63); }

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

namespace {

// The number of the block that has the choice of a set for a chunk.
uint64_t BlockOf(uint64_t chunk, uint64_t set) { return (chunk << 32) + set / kSetsPerBlock; }

// Both in one word, as Choice has them.
void KeepBits(uint16_t mask, std::span<Choice> choices) {
  auto* words = reinterpret_cast<ChoiceWord*>(choices.data());
  for (size_t i = 0; i < choices.size(); ++i) words[i] &= mask;
}

}  // namespace

SetFunction::SetFunction(const SecretArray<16>& key, uint32_t offset_bits)
    : mask_(static_cast<uint16_t>(((1u << offset_bits) - 1) | 0x8000)), aes_(key) {
  SHOAL_CHECK(offset_bits <= kMaxOffsetBits);
}

void SetFunction::OfSet(uint32_t set, std::span<Choice> out) const {
  constexpr size_t kTogether = 256;
  SecretArray<kTogether * kBlockBytes> blocks;
  for (size_t done = 0; done < out.size(); done += kTogether) {
    const size_t count = std::min(kTogether, out.size() - done);
    for (size_t i = 0; i < count; ++i) {
      Aes128::StoreNumber(BlockOf(done + i, set), blocks.data() + i * kBlockBytes);
    }
    aes_.Encrypt(blocks.mutable_view().first(count * kBlockBytes));
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* const word = blocks.data() + i * kBlockBytes + 2 * (set % kSetsPerBlock);
      std::memcpy(&out[done + i], word, sizeof(Choice));
    }
  }
  KeepBits(mask_, out);
}

void SetFunction::OfChunk(uint32_t chunk, uint32_t first, std::span<Choice> out) const {
  auto* const bytes = reinterpret_cast<uint8_t*>(out.data());
  size_t done = 0;
  while (done < out.size()) {
    const uint64_t set = uint64_t{first} + done;
    const size_t skipped = set % kSetsPerBlock, left = out.size() - done;
    if (skipped == 0 && left >= kSetsPerBlock) {
      const size_t blocks = left / kSetsPerBlock;
      aes_.Numbers(BlockOf(chunk, set), {bytes + done * sizeof(Choice), blocks * kBlockBytes});
      done += blocks * kSetsPerBlock;
    } else {
      SecretArray<kBlockBytes> block;
      aes_.Numbers(BlockOf(chunk, set), block.mutable_view());
      const size_t count = std::min(kSetsPerBlock - skipped, left);
      std::memcpy(bytes + done * sizeof(Choice), block.data() + skipped * sizeof(Choice),
                  count * sizeof(Choice));
      done += count;
    }
  }
  KeepBits(mask_, out);
}

HintTable::HintTable(const SetShape& shape, const SetSource* sets, bool whole)
    : shape_(shape),
      sets_(*sets),
      first_live_(shape.hints, uint16_t{0xffff}),
      backup_halves_(shape.backups),
      backup_places_(shape.backups, kNowhere),
      backup_beside_(shape.backups, kNoRow),
      parities_(shape.hints, shape.record_bytes),
      backup_parities_(shape.backups, 2 * uint64_t{shape.record_bytes}),
      lacking_(shape.hints) {
  SHOAL_CHECK(shape.offset_bits <= kMaxOffsetBits && shape.sets() <= kMaxSets && shape.rows > 0 &&
              shape.chunks == ((shape.rows - 1) >> shape.offset_bits) + 1);
  if (whole) {
    parities_.MakeWhole();
    backup_parities_.MakeWhole();
  }
  hints_.reserve(shape.hints);
  // Sets 0 to hints - 1 are the first hints', half 1 of each; the others are the backups'.
  for (uint32_t i = 0; i < shape.hints; ++i) hints_.push_back({i, 1, kNoRow});
}

void HintTable::AddChunks(uint32_t first, uint32_t count, BytesView records) {
  SHOAL_CHECK(first < shape_.chunks && count <= shape_.chunks - first &&
              count <= shape_.chunks - chunks_added_ && spent_ == 0);
  chunks_added_ += count;
  const uint64_t first_row = uint64_t{first} << shape_.offset_bits;
  const uint64_t rows = std::min(count * shape_.chunk_rows(), shape_.rows - first_row);
  const uint64_t chunk_bytes = shape_.chunk_rows() * shape_.record_bytes;
  SHOAL_CHECK(records.size() == rows * shape_.record_bytes);
  // Words are looked up all over the chunks, which should stay in the second cache.
  const bool words = shape_.record_bytes == sizeof(uint64_t);
  const uint32_t most = words && chunk_bytes > kCachedWords ? kChunksTogether / 2 : kChunksTogether;
  uint32_t together = 0;
  for (uint32_t done = 0; done < count; done += together) {
    std::array<BytesView, kChunksTogether> chunks;
    together = std::min(most, count - done);
    for (uint32_t t = 0; t < together; ++t) {
      const uint64_t at = (done + t) * chunk_bytes;
      chunks[t] = records.subspan(at, std::min(chunk_bytes, records.size() - at));
    }
    const std::span<const BytesView> all = std::span(chunks).first(together);
    if (words) {
      AddWords(first + done, all);
    } else {
      AddRecords(first + done, all);
    }
  }
}

// For every set two lists of places, of its halves.
void HintTable::AddRecords(uint32_t first, std::span<const BytesView> chunks) {
  const GatherKernel& kernel = FastestGather();
  const uint64_t room = std::min<uint64_t>(kSetsTogether, shape_.sets());
  SecretVector<Choice> choices(chunks.size() * room);
  SecretVector<const uint8_t*> places(chunks.size() * room + 1);
  SecretVector<uint32_t> counts(2 * room);
  std::vector<uint8_t*> sums(2 * room);
  // A hint has half 1 alone. The other one is added up all the same, so that every set takes the
  // same work whatever its bits are.
  SecretVector<uint8_t> unused(shape_.record_bytes);
  const std::vector<uint8_t> zeros(shape_.record_bytes);
  std::array<uint32_t, kChunksTogether> rows;
  for (size_t t = 0; t < chunks.size(); ++t) {
    rows[t] = static_cast<uint32_t>(chunks[t].size() / shape_.record_bytes);
  }
  for (uint32_t done = 0; done < shape_.sets();) {
    const bool backups = done >= shape_.hints;
    const uint64_t end = backups ? shape_.sets() : shape_.hints;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(kSetsTogether, end - done));
    for (uint32_t t = 0; t < chunks.size(); ++t) {
      sets_.OfChunk(first + t, done, std::span(choices).subspan(t * room, count));
    }
    size_t at = 0, lists = 0;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t half = 0; half < 2; ++half) {
        const size_t before = at;
        for (uint32_t t = 0; t < chunks.size(); ++t) {
          const Choice choice = choices[t * room + i];
          // Behind the table are rows of zeros. A place that does not count is overwritten.
          places[at] = choice.offset < rows[t]
                           ? chunks[t].data() + uint64_t{choice.offset} * shape_.record_bytes
                           : zeros.data();
          at += choice.bit == half;
        }
        counts[lists] = static_cast<uint32_t>(at - before);
        sums[lists++] = backups     ? BackupOf(done + i - shape_.hints, half).data()
                        : half == 1 ? ParityOf(done + i).data()
                                    : unused.data();
      }
    }
    kernel.gather(places.data(), counts.data(), lists, shape_.record_bytes, sums.data());
    done += count;
  }
}

// The same for records of one word.
void HintTable::AddWords(uint32_t first, std::span<const BytesView> chunks) {
  const GatherKernel& kernel = FastestGather();
  const uint64_t room = std::min<uint64_t>(kSetsTogether, shape_.sets());
  SecretVector<Choice> choices(chunks.size() * room);
  const uint64_t words_each = 1 + shape_.chunk_rows();
  std::vector<uint64_t> words(chunks.size() * words_each);
  std::array<const uint64_t*, kChunksTogether> tables;
  const ChoiceWord* of_tables[kChunksTogether] = {};  // an array would lose the attribute
  for (size_t t = 0; t < chunks.size(); ++t) {
    tables[t] = &words[t * words_each];
    of_tables[t] = WordsOf(std::span(choices).subspan(t * room, room));
    std::memcpy(&words[t * words_each + 1], chunks[t].data(), chunks[t].size());
  }
  for (uint32_t done = 0; done < shape_.sets();) {
    const bool backups = done >= shape_.hints;
    const uint64_t end = backups ? shape_.sets() : shape_.hints;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(kSetsTogether, end - done));
    for (uint32_t t = 0; t < chunks.size(); ++t) {
      sets_.OfChunk(first + t, done, std::span(choices).subspan(t * room, count));
    }
    for (uint32_t half = backups ? 0 : 1; half < 2; ++half) {
      const MutableBytes sums = backups ? BackupOf(done - shape_.hints, half) : ParityOf(done);
      kernel.add_words(tables.data(), of_tables, chunks.size(), count, half, sums.data(),
                       backups ? 2 : 1);
    }
    done += count;
  }
}

uint32_t HintTable::Find(uint64_t row, uint32_t from) const {
  const GatherKernel& kernel = FastestGather();
  const uint32_t chunk = shape_.ChunkOf(row);
  const uint16_t offset = shape_.OffsetOf(row);
  constexpr uint32_t kTogether = 8 * kSetsTogether;
  SecretVector<Choice> space(std::min(kTogether, std::max(shape_.hints, spent_)));
  // How many places behind `from`, round the end.
  uint32_t rank = kNowhere;
  const auto look = [&](uint32_t begin, uint32_t end, uint32_t rank_of_begin) {
    for (uint32_t done = begin; done < end; done += kTogether) {
      const std::span<Choice> choices = std::span(space).first(std::min(kTogether, end - done));
      sets_.OfChunk(chunk, done, choices);
      const uint32_t found =
          kernel.first_live(WordsOf(choices), &first_live_[done], choices.size(), 0x8000 | offset);
      const uint64_t here = ~EqualMask(found, kNowhere) & EqualMask(rank, kNowhere);
      rank = static_cast<uint32_t>(Select(here, rank_of_begin + (done - begin) + found, rank));
    }
  };
  look(from, shape_.hints, 0);
  look(0, from, shape_.hints - from);
  SecretVector<uint32_t> ranks(std::min(kTogether, spent_));
  for (uint32_t done = 0; done < spent_; done += kTogether) {
    const std::span<Choice> choices = std::span(space).first(std::min(kTogether, spent_ - done));
    sets_.OfChunk(chunk, shape_.hints + done, choices);
    for (size_t i = 0; i < choices.size(); ++i) {
      const uint64_t place = backup_places_[done + i];
      const uint64_t behind = place - from + (LessMask(place, from) & shape_.hints);
      ranks[i] = static_cast<uint32_t>(Select(EqualMask(place, kNowhere), kNowhere, behind));
    }
    const uint32_t found = kernel.least_place(WordsOf(choices), &backup_halves_[done], ranks.data(),
                                              &backup_beside_[done], choices.size(), offset, row);
    rank = std::min(rank, found);
  }
  const uint64_t place = uint64_t{rank} + from;
  const uint64_t at_end = ~LessMask(place, shape_.hints);
  return static_cast<uint32_t>(
      Select(EqualMask(rank, kNowhere), kNowhere, place - (at_end & shape_.hints)));
}

void HintTable::Index(uint64_t mask, uint32_t place, const Hint& before, const Hint& hint) {
  // The set was a first one, or a backup's.
  const uint64_t first = (uint64_t{before.set} - shape_.hints) >> 63;
  const uint64_t was_first = mask & (0 - first);
  uint16_t& live = first_live_[Select(was_first, before.set, 0)];
  live = static_cast<uint16_t>(Select(was_first, 0, live));
  const uint64_t backup = hint.set - shape_.hints;
  const uint64_t last = Select(mask & ~was_first, before.set - shape_.hints, backup);
  backup_places_[last] = kNowhere;
  backup_beside_[last] = kNoRow;
  backup_halves_[backup] = static_cast<uint16_t>(hint.half << 15);
  backup_places_[backup] = static_cast<uint32_t>(Select(mask, place, kNowhere));
  backup_beside_[backup] = Select(mask, hint.beside, kNoRow);
}

absl::Status HintTable::Ask(uint64_t row, RandomSource& random, std::span<Choice> query,
                            uint32_t from) {
  SHOAL_CHECK(query.size() == shape_.chunks && from < shape_.hints);
  if (row >= shape_.rows) return absl::OutOfRangeError("half sets: no such row");
  if (asked_.has_value()) {
    return absl::FailedPreconditionError("half sets: the query before is not finished");
  }
  if (backups_left() == 0) return absl::ResourceExhaustedError("half sets: no backup is left");
  // The first hint that holds the row. All are looked at.
  const uint32_t place = Find(row, from);
  const uint64_t found = ~EqualMask(place, kNowhere);
  const uint64_t words = random.U64();
  asked_ = {.row = row,
            .backup = spent_++,
            .hint = static_cast<uint32_t>(Select(found, place, 0)),
            .dummy = static_cast<uint16_t>(words & (shape_.chunk_rows() - 1)),
            .coin = words >> 63 == 1,
            .held = found != 0};
  WriteQuery(*asked_, query);
  return absl::OkStatus();
}

void HintTable::WriteQuery(const Question& question, std::span<Choice> query) const {
  // If no hint holds the row, half 1 of the set of the backup that is spent is sent, whole.
  const uint64_t found = 0 - uint64_t{question.held}, coin = question.coin;
  const Hint& one = hints_[question.hint];
  const uint64_t set = Select(found, one.set, uint64_t{shape_.hints} + question.backup);
  const uint64_t half = Select(found, one.half, 1), beside = Select(found, one.beside, kNoRow);

  sets_.OfSet(static_cast<uint32_t>(set), query);
  // A chunk's bit is whether its choice is in the half, plus the coin.
  const auto flips = static_cast<uint16_t>((half ^ 1 ^ coin) << 15);
  auto* const choices = reinterpret_cast<ChoiceWord*>(query.data());
  for (uint32_t c = 0; c < shape_.chunks; ++c) choices[c] ^= flips;
  const auto put = [&](uint64_t mask, uint64_t at, uint64_t bit, uint64_t row_offset) {
    ChoiceWord& choice = choices[Select(mask, at, 0)];
    choice = static_cast<uint16_t>(Select(mask, bit << 15 | row_offset, choice));
  };
  const uint64_t has_beside = ~EqualMask(beside, kNoRow);
  put(has_beside, beside >> shape_.offset_bits, 1 ^ coin, shape_.OffsetOf(beside));
  put(found, shape_.ChunkOf(question.row), coin, question.dummy);
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
  // The record of a hint without that of its row beside is wrong, and the new hint goes without it.
  const auto whole = static_cast<uint8_t>(lacking_[question.hint] - 1);
  Hint& hint = hints_[question.hint];
  const Hint before = hint;
  Index(held, question.hint, before, {.set = set, .half = half, .beside = question.row});
  hint.set = static_cast<uint32_t>(Select(held, set, hint.set));
  hint.half = static_cast<uint32_t>(Select(held, half, hint.half));
  hint.beside = Select(held, question.row, hint.beside);
  for (uint32_t e = 0; e < 2; ++e) {
    const MutableBytes backup = BackupOf(question.backup, e);
    const uint8_t takes = mask & static_cast<uint8_t>(EqualMask(e, half));
    for (size_t i = 0; i < parity.size(); ++i) {
      parity[i] = static_cast<uint8_t>(Select(takes, backup[i] ^ (whole & record[i]), parity[i]));
    }
  }
  const MutableBytes backup = backup_parities_.At(question.backup);
  sodium_memzero(backup.data(), backup.size());
}

std::vector<uint32_t> HintTable::HintsToJudge(const Question& question, bool right) const {
  SHOAL_CHECK(CheckQuestion(question).ok());
  std::vector<uint32_t> hints;
  if (right) {
    for (uint32_t hint = 0; hint < shape_.hints; ++hint) {
      if (lacking_[hint] != 0 && hints_[hint].beside == question.row) hints.push_back(hint);
    }
  } else if (question.held && hints_[question.hint].set == shape_.hints + question.backup &&
             lacking_[question.hint] == 0) {
    hints.push_back(question.hint);
  }
  return hints;
}

std::vector<uint32_t> HintTable::Judge(const Question& question, BytesView record, bool right) {
  SHOAL_CHECK(record.size() == shape_.record_bytes);
  std::vector<uint32_t> hints = HintsToJudge(question, right);
  for (const uint32_t hint : hints) {
    XorMasked(ParityOf(hint), record, 0xff);
    lacking_[hint] = !right;
  }
  return hints;
}

absl::Status HintTable::RedoJudge(uint32_t hint, bool lacks, BytesView xor_of_hint) {
  if (hint >= shape_.hints || hints_[hint].beside == kNoRow || !complete() ||
      xor_of_hint.size() != shape_.record_bytes) {
    return absl::InvalidArgumentError("half sets: no hint that was judged");
  }
  std::ranges::copy(xor_of_hint, ParityOf(hint).begin());
  lacking_[hint] = lacks;
  return absl::OkStatus();
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

void HintTable::Advance(std::span<const RowChange> changes) {
  for (size_t begin = 0, end = 0; begin < changes.size(); begin = end) {
    const uint32_t chunk = shape_.ChunkOf(changes[begin].row);
    for (; end < changes.size() && end - begin < kChangesTogether &&
           shape_.ChunkOf(changes[end].row) == chunk;
         ++end) {
      SHOAL_CHECK(changes[end].row < shape_.rows &&
                  changes[end].difference.size() == shape_.record_bytes &&
                  (end == 0 || changes[end - 1].row < changes[end].row));
    }
    if (chunk < chunks_added_) AdvanceChunk(chunk, changes.subspan(begin, end - begin));
  }
  // That added the changes to hints that are without these records, too.
  for (uint32_t hint = 0; hint < shape_.hints; ++hint) {
    if (lacking_[hint] == 0) continue;
    const auto change = std::ranges::lower_bound(changes, hints_[hint].beside, {}, &RowChange::row);
    if (change == changes.end() || change->row != hints_[hint].beside) continue;
    XorMasked(ParityOf(hint), change->difference, 0xff);
  }
}

namespace {

// Writes the numbers of the bits that are set in words[0 .. count) to `out`, in order, as many as
// fit into it; words[count] is zero. How long that takes depends on the sizes alone.
class BitNumbers {
 public:
  explicit BitNumbers(std::span<const uint64_t> words)
      : words_(words), end_(words.size() - 1), word_(words[0]) {}

  // How many were written.
  uint64_t Take(std::span<uint64_t> out) {
    uint64_t taken = 0;
    // Each step takes a bit, or goes to the next word.
    for (size_t step = 0; step < end_ + out.size(); ++step) {
      const uint64_t some = ~EqualMask(word_, 0);
      const uint64_t take = some & LessMask(taken, out.size());
      uint64_t& number = out[Declassify(taken & take)];
      const auto bit = static_cast<uint64_t>(__builtin_ctzll(word_ | uint64_t{1} << 63));
      number = Select(take, 64 * at_ + bit, number);
      taken -= take;
      at_ += 1 & ~some & ~EqualMask(at_, end_);
      word_ = Select(take, word_ & (word_ - 1), Select(some, word_, words_[Declassify(at_)]));
    }
    return taken;
  }
  bool AtEnd() const { return Declassify(at_ == end_); }

 private:
  const std::span<const uint64_t> words_;
  const size_t end_;
  size_t at_ = 0;
  uint64_t word_;  // what is left of words_[at_]
};

}  // namespace

void HintTable::AdvanceChunk(uint32_t chunk, std::span<const RowChange> changes) {
  const GatherKernel& kernel = FastestGather();
  // The backup of a query on its way takes a hint's place later.
  const uint32_t placed = spent_ - asked_.has_value(), waiting = shape_.backups - placed;
  // Bits of the first hints' sets, of the sets that took a hint's place, and of both halves of the
  // backups that wait.
  const size_t placed_at = GatherKernel::HitWords(shape_.hints);
  const size_t zeros_at = placed_at + GatherKernel::HitWords(placed);
  const size_t ones_at = zeros_at + GatherKernel::HitWords(waiting);
  const size_t end = ones_at + GatherKernel::HitWords(waiting), each = end + 1;
  SecretVector<uint64_t> hits(each * changes.size());
  constexpr uint32_t kTogether = 8 * GatherKernel::kHitSets;
  SecretVector<Choice> space(kTogether);
  const auto match = [&](uint32_t first, uint32_t count, const auto& add) {
    for (uint32_t done = 0; done < count; done += kTogether) {
      const std::span<Choice> choices = std::span(space).first(std::min(kTogether, count - done));
      sets_.OfChunk(chunk, first + done, choices);
      for (size_t i = 0; i < changes.size(); ++i) {
        add(done, choices, changes[i].row, &hits[i * each + GatherKernel::HitWords(done)]);
      }
    }
  };
  match(0, shape_.hints,
        [&](uint32_t done, std::span<const Choice> choices, uint64_t row, uint64_t* to) {
          kernel.match(WordsOf(choices), nullptr, &first_live_[done], choices.size(),
                       0x8000 | shape_.OffsetOf(row), to);
        });
  match(shape_.hints, placed,
        [&](uint32_t done, std::span<const Choice> choices, uint64_t row, uint64_t* to) {
          kernel.match(WordsOf(choices), &backup_halves_[done], nullptr, choices.size(),
                       shape_.OffsetOf(row), to + placed_at);
          kernel.match_beside(&backup_beside_[done], choices.size(), row, to + placed_at);
        });
  match(shape_.hints + placed, waiting,
        [&](uint32_t, std::span<const Choice> choices, uint64_t row, uint64_t* to) {
          kernel.match(WordsOf(choices), nullptr, nullptr, choices.size(), shape_.OffsetOf(row),
                       to + zeros_at);
          kernel.match(WordsOf(choices), nullptr, nullptr, choices.size(),
                       0x8000 | shape_.OffsetOf(row), to + ones_at);
        });

  // A row is in a hint with probability 1 / 2S, and in a waiting backup with 1 / S. So many XORs
  // are made for each row, of nothing where it is in fewer. By Chernoff's bound it is in more with
  // probability below 2^-40, and they are made so many again.
  const double mean = (0.5 * shape_.hints + waiting) / static_cast<double>(shape_.chunk_rows());
  const auto room = static_cast<size_t>(mean + 8 * std::sqrt(mean) + 10);
  SecretVector<uint64_t> numbers(room);
  SecretVector<uint8_t*> sums(room);
  SecretVector<const uint8_t*> differences(room);
  const std::vector<uint32_t> once(room, 1);
  const std::vector<uint8_t> nothing(shape_.record_bytes);
  const auto backups_base = reinterpret_cast<uintptr_t>(backup_parities_.all().data());
  const auto hints_base = reinterpret_cast<uintptr_t>(parities_.all().data());
  for (size_t i = 0; i < changes.size(); ++i) {
    BitNumbers bits(std::span<const uint64_t>(hits).subspan(i * each, each));
    do {
      const uint64_t count = bits.Take(numbers);
      for (size_t n = 0; n < room; ++n) {
        const uint64_t is = LessMask(n, count);
        const uint64_t word = numbers[n] / 64;
        const uint64_t is_later = is & ~LessMask(word, placed_at);
        const uint64_t is_backup = is & ~LessMask(word, zeros_at);
        const uint64_t of_ones = is & ~LessMask(word, ones_at);
        const uint64_t range =
            Select(of_ones, ones_at, Select(is_backup, zeros_at, is_later & placed_at));
        const uint64_t at = GatherKernel::HitAt(word - range, numbers[n] % 64);
        // The hint's place; for what is nothing, any.
        const uint64_t later = Declassify(is_later & ~is_backup & at);
        const uint64_t place = Select(is_later, backup_places_[later], at);
        const uint64_t changed = is & (is_backup | ~EqualMask(place, kNowhere));
        const uint64_t any = n * uint64_t{0x9e3779b1} % shape_.hints;
        const uint64_t sum =
            Select(is_backup, 2 * (placed + at) + (of_ones & 1), Select(changed, place, any));
        const uint64_t base = Select(is_backup, backups_base, hints_base);
        sums[n] = reinterpret_cast<uint8_t*>(Declassify(base + sum * shape_.record_bytes));
        differences[n] = reinterpret_cast<const uint8_t*>(
            Declassify(Select(changed, reinterpret_cast<uintptr_t>(changes[i].difference.data()),
                              reinterpret_cast<uintptr_t>(nothing.data()))));
        for (size_t b = 0; b < shape_.record_bytes; b += 64) __builtin_prefetch(sums[n] + b, 1, 2);
      }
      kernel.gather(differences.data(), once.data(), room, shape_.record_bytes, sums.data());
    } while (!bits.AtEnd());
  }
}

// The head: u32 chunks added, u32 spent, u64 row, u32 backup, u32 hint, u16 dummy, then bytes: 1 if
// a query is on its way, coin, held; zeros. A hint: u32 set, u32 half (and 2, if its XOR is without
// the record beside), u64 beside.
SecretVector<uint8_t> HintTable::EncodeProgress() const {
  SecretVector<uint8_t> out(kHeadBytes);
  uint8_t* const at = out.data();
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
  return out;
}

SecretVector<uint8_t> HintTable::EncodeHint(uint32_t hint) const {
  SecretVector<uint8_t> out(kHintBytes);
  StoreLe<uint32_t>(out.data(), hints_[hint].set);
  StoreLe<uint32_t>(&out[4], hints_[hint].half | uint32_t{lacking_[hint]} << 1);
  StoreLe<uint64_t>(&out[8], hints_[hint].beside);
  return out;
}

SecretVector<uint8_t> HintTable::EncodeHead() const {
  SecretVector<uint8_t> out = EncodeProgress();
  out.reserve(kHeadBytes + hints_.size() * kHintBytes);
  for (uint32_t place = 0; place < hints_.size(); ++place) {
    const SecretVector<uint8_t> hint = EncodeHint(place);
    out.insert(out.end(), hint.begin(), hint.end());
  }
  return out;
}

absl::Status HintTable::DecodeHead(BytesView head) {
  const absl::Status bad = absl::InvalidArgumentError("half sets: no table of hints of this shape");
  if (head.size() != AllHeadBytes(shape_)) return bad;
  const uint8_t* at = head.data();
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
  std::ranges::fill(backup_places_, kNowhere);
  std::ranges::fill(backup_beside_, kNoRow);
  // That of a query on its way takes a hint's place later.
  const uint64_t placed = shape_.hints + spent_ - asked_.has_value();
  for (uint32_t place = 0; place < shape_.hints; ++place) {
    Hint& hint = hints_[place];
    hint = {.set = LoadLe<uint32_t>(at),
            .half = LoadLe<uint32_t>(at + 4),
            .beside = LoadLe<uint64_t>(at + 8)};
    at += kHintBytes;
    if (hint.half > 3) return bad;
    lacking_[place] = static_cast<uint8_t>(hint.half >> 1);
    hint.half &= 1;
    const bool first = hint.set == place;
    first_live_[place] = first ? 0xffff : 0;
    if (first) {
      if (hint.half != 1 || hint.beside != kNoRow || lacking_[place] != 0) return bad;
      continue;
    }
    if (hint.set < shape_.hints || hint.set >= placed || hint.beside >= shape_.rows) {
      return bad;
    }
    const uint32_t backup = hint.set - shape_.hints;
    if (backup_places_[backup] != kNowhere) return bad;  // of two hints
    backup_places_[backup] = place;
    backup_halves_[backup] = static_cast<uint16_t>(hint.half << 15);
    backup_beside_[backup] = hint.beside;
  }
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
    if (bits >= 32) {
      StoreLe<uint32_t>(&out[at], static_cast<uint32_t>(word));
      at += 4;
      bits -= 32;
      word >>= 32;
    }
  }
  for (; at < out.size(); ++at, word >>= 8) out[at] = static_cast<uint8_t>(word);
}

absl::Status DecodeQuery(const SetShape& shape, BytesView encoded, std::span<Choice> query) {
  SHOAL_CHECK(query.size() == shape.chunks);
  if (encoded.size() != shape.query_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("half sets: a query of ", encoded.size(),
                                                   " bytes instead of ", shape.query_bytes()));
  }
  const uint32_t each = 1 + shape.offset_bits;
  const auto choice_of = [&](uint64_t word) {
    return Choice{.offset = static_cast<uint16_t>(word >> 1 & (shape.chunk_rows() - 1)),
                  .bit = static_cast<uint16_t>(word & 1)};
  };
  // Each from the four bytes that it lies in, as long as there are four.
  uint64_t at = 0;  // bits
  size_t done = 0;
  for (; done < query.size() && at / 8 + 4 <= encoded.size(); ++done, at += each) {
    query[done] = choice_of(LoadLe<uint32_t>(&encoded[at / 8]) >> at % 8);
  }
  // What is left of at most eight bytes.
  uint64_t word = 0;
  for (size_t i = encoded.size(); i-- > at / 8;) word = word << 8 | encoded[i];
  word >>= at % 8;
  for (; done < query.size(); ++done, word >>= each) query[done] = choice_of(word);
  if (word != 0) return absl::InvalidArgumentError("half sets: a query with bits behind its end");
  return absl::OkStatus();
}

void AnswerQuery(const SetShape& shape, BytesView records, std::span<const Choice> query,
                 MutableBytes zeros, MutableBytes ones) {
  SHOAL_CHECK(records.size() == shape.rows * shape.record_bytes && query.size() == shape.chunks &&
              zeros.size() == shape.record_bytes && ones.size() == shape.record_bytes);
  std::ranges::fill(zeros, uint8_t{0});
  std::ranges::fill(ones, uint8_t{0});
  // Only the last chunk has rows of zeros.
  const Choice last = query.back();
  const uint64_t last_row = (uint64_t{shape.chunks - 1} << shape.offset_bits) + last.offset;
  if (last_row >= shape.rows) query = query.first(query.size() - 1);
  const GatherKernel& kernel = FastestGather();
  // The places of bit 0 from the front on, those of bit 1 from the back. So many that their first
  // lines, which are fetched at once, fit the first cache.
  constexpr size_t kTogether = 256;
  std::array<const uint8_t*, kTogether> places;
  uint8_t* const sums[2] = {zeros.data(), ones.data()};
  const uint64_t chunk_bytes = shape.chunk_rows() * shape.record_bytes;
  const uint8_t* chunk = records.data();
  for (size_t done = 0; done < query.size(); done += kTogether) {
    const std::span<const Choice> part =
        query.subspan(done, std::min(kTogether, query.size() - done));
    size_t of_ones = 0;
    for (size_t i = 0; i < part.size(); ++i, chunk += chunk_bytes) {
      const size_t at = part[i].bit ? kTogether - 1 - of_ones : i - of_ones;
      places[at] = chunk + uint64_t{part[i].offset} * shape.record_bytes;
      __builtin_prefetch(places[at]);
      of_ones += part[i].bit;
    }
    const uint32_t counts[2] = {static_cast<uint32_t>(part.size() - of_ones),
                                static_cast<uint32_t>(of_ones)};
    kernel.gather(places.data(), &counts[0], 1, shape.record_bytes, &sums[0]);
    kernel.gather(places.data() + kTogether - of_ones, &counts[1], 1, shape.record_bytes, &sums[1]);
  }
}

}  // namespace shoal::pir::sets
