// The sets of rows behind the hints of Piano, as halves: what a client keeps of a table that it has
// read once, and how it asks one server with it (docs/half-sets.md has the proof).
//
//   table    rows in chunks of 2^offset_bits, the last one filled up with rows of zeros
//   set      a number; for every chunk a bit and an offset, the output of a pseudorandom function
//   half e   of a set: of every chunk whose bit is e, the row at the offset
//   hint     one half of a set, and at most one row of a chunk outside it; the XOR of their records
//   backup   a set, and the XORs of the records of both of its halves
//
// To ask for a row, a client takes a hint that holds it, leaves the row out, and sends for
// every chunk a bit (is a row of this chunk left in the hint?) and an offset, all bits flipped by
// one common coin. The server returns the XOR of the records whose bit is 0, and of those whose bit
// is 1. The XOR of one of the two and of the hint is the record. The hint is replaced by a backup:
// by that half of it that has no row in the record's chunk, and the record beside.
//
// Every query spends one backup, also one for which no hint holds the row. The server's view of any
// sequence of queries, chosen by whoever sees all views, is uniform: it does not depend on the
// rows.
#ifndef SHOAL_SRC_PIR_SETS_HALF_SETS_H_
#define SHOAL_SRC_PIR_SETS_HALF_SETS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/pir/aes/aes128.h"
#include "src/pir/kit/row_changes.h"
#include "src/pir/sets/parities.h"

namespace shoal::pir::sets {

// What a set, or a query, says of one chunk: a bit, and which row of the chunk.
struct Choice {
  uint16_t offset : 15;
  uint16_t bit : 1;
  bool operator==(const Choice&) const = default;
};
static_assert(sizeof(Choice) == 2);
inline constexpr uint32_t kMaxOffsetBits = 15;

struct SetShape {
  uint64_t rows = 0;
  uint32_t record_bytes = 0;
  uint32_t offset_bits = 0;
  uint32_t chunks = 0;   // of 2^offset_bits rows; together they have all rows
  uint32_t hints = 0;    // that a session keeps
  uint32_t backups = 0;  // the queries of a session

  uint64_t chunk_rows() const { return uint64_t{1} << offset_bits; }
  uint32_t ChunkOf(uint64_t row) const { return static_cast<uint32_t>(row >> offset_bits); }
  uint16_t OffsetOf(uint64_t row) const { return static_cast<uint16_t>(row & (chunk_rows() - 1)); }
  uint64_t sets() const { return uint64_t{hints} + backups; }
  // Of one query, and of a client's XORs.
  uint64_t query_bytes() const { return (uint64_t{chunks} * (1 + offset_bits) + 7) / 8; }
  uint64_t parity_bytes() const { return (uint64_t{hints} + 2 * uint64_t{backups}) * record_bytes; }
};

// The shape for sessions of so many queries, with hints enough that with probability 1 - 2^-40 each
// of the queries finds its row in one. INVALID_ARGUMENT for a table, or a number, that is too
// large.
absl::StatusOr<SetShape> ShapeFor(uint64_t rows, uint32_t record_bytes, uint64_t queries);

// What the sets are. Implementations: SetFunction, and tests that go through all possible sets.
class SetSource {
 public:
  virtual ~SetSource() = default;
  // The choices of one set for all chunks.
  virtual void OfSet(uint32_t set, std::span<Choice> out) const = 0;
  // The choices of the sets first, first + 1, .. for one chunk.
  virtual void OfChunk(uint32_t chunk, uint32_t first, std::span<Choice> out) const = 0;
};

// A pseudorandom function: the choice of set s for chunk c is the 16-bit little-endian word s mod 8
// of AES-128(key, big-endian 128-bit number c * 2^32 + s / 8), so that one block serves eight sets
// of a chunk. The offset is its low bits. At most 2^40 blocks of it are used, which are told from
// random ones with probability below 2^-48. Not even const calls may run at the same time.
class SetFunction final : public SetSource {
 public:
  SetFunction(const SecretArray<16>& key, uint32_t offset_bits);
  void OfSet(uint32_t set, std::span<Choice> out) const override;
  void OfChunk(uint32_t chunk, uint32_t first, std::span<Choice> out) const override;

 private:
  const uint16_t mask_;  // of the bit and the offset
  const Aes128 aes_;
};

// The client's side, in memory. Thread-compatible. How long Ask and Finish take depends on the
// shape and on the number of queries before alone, apart from where in memory they look. AddChunks
// adds up as many records whatever the sets are, but in lists whose lengths are those of the sets'
// halves, and from places that are theirs: how long it takes can depend on the sets, too.
class HintTable {
 public:
  // `sets` must outlive the object. Without `whole` none of the XORs is in memory: a table that
  // DecodeHead makes one of, until its owner makes them whole, or puts those there that a call
  // needs.
  HintTable(const SetShape& shape, const SetSource* sets, bool whole = true);

  // Takes the records of `count` chunks from chunk `first` on, as many as these have rows of the
  // table, one after the other. Each chunk once, in any order, before the first query (checked).
  // kChunksTogether at a time take a fraction of the time that they take alone, as the XORs are
  // then read and written once.
  static constexpr uint32_t kChunksTogether = 8;
  void AddChunks(uint32_t first, uint32_t count, BytesView records);
  void AddChunk(uint32_t chunk, BytesView records) { AddChunks(chunk, 1, records); }

  // Chunks that were added: from the first on, if they come in order.
  uint32_t chunks_added() const { return chunks_added_; }
  bool complete() const { return chunks_added_ == shape_.chunks; }

  uint64_t backups_left() const { return shape_.backups - spent_; }

  // A query on its way: what Ask drew and chose. With the table before it, it is the query.
  struct Question {
    uint64_t row = 0;
    uint32_t backup = 0;  // that it has spent
    uint32_t hint = 0;    // any, if not held
    uint16_t dummy = 0;   // the offset that stands for the row
    bool coin = false;
    bool held = false;  // whether a hint holds the row; otherwise no record comes of it
    bool operator==(const Question&) const = default;
  };
  const std::optional<Question>& asked() const { return asked_; }

  // Spends a backup, and writes the query's choices for all chunks. FAILED_PRECONDITION before the
  // query before is finished, as one hint could serve both and would tell the server about their
  // rows: a query whose answer is lost is sent again as it is, or finished with any bytes.
  // RESOURCE_EXHAUSTED if no backup is left; OUT_OF_RANGE if there is no such row.
  // Of the hints that hold the row the first one from place `from` on is used, round the end: any
  // place that is drawn without regard to rows and hints, so that a row can be asked for again by
  // another hint.
  absl::Status Ask(uint64_t row, RandomSource& random, std::span<Choice> query, uint32_t from = 0);
  // Writes the choices of the query on its way once more (checked that there is one).
  void Repeat(std::span<Choice> query) const;
  // Takes the server's two XORs, those of bit 0 first, writes the record, and replaces the hint.
  // False if no hint held the row: then zeros are written. Once after each Ask (checked). Needs the
  // XORs of the question's hint and backup.
  bool Finish(BytesView zeros, BytesView ones, MutableBytes record);

  // Says whether the record of a query that was finished is the table's, as TreeHints::Judge does:
  // a hint that was made with a wrong record is without that of the row beside from now on, and
  // gets it when it has come. Returns the hints that changed, of which it needs the XORs. No later
  // query depends on this.
  std::vector<uint32_t> Judge(const Question& question, BytesView record, bool right);
  std::vector<uint32_t> HintsToJudge(const Question& question, bool right) const;

  // The same two steps as a journal has them: a table that was read back becomes what it was after
  // Ask, and after Finish. INVALID_ARGUMENT if they cannot follow.
  absl::Status Redo(const Question& question);
  absl::Status RedoFinish(BytesView record);
  absl::Status RedoJudge(uint32_t hint, bool lacks, BytesView xor_of_hint);

  // Makes this the table of the next epoch. The rows rise (checked); those of chunks that were not
  // added yet are left out, which must be added as the next epoch has them: chunks come in order
  // then. A query on its way is the same query to the next epoch. Costs a pass over all sets for
  // each chunk in which a row changed, or more if many did. How long it takes depends on the shape,
  // on which rows changed, and on the number of queries before, apart from where in memory it
  // looks; more than that can be seen with probability 2^-40 for each row.
  void Advance(std::span<const RowChange> changes);

  // What a session keeps, but for the sets: kHeadBytes and kHintBytes for each hint; the XORs of
  // hints; those of backups.
  SecretVector<uint8_t> EncodeHead() const;
  // Its first kHeadBytes, which every query changes, and what it has of a hint behind them.
  SecretVector<uint8_t> EncodeProgress() const;
  SecretVector<uint8_t> EncodeHint(uint32_t hint) const;
  // The XORs of hints; and of backups, those of half 0 and of half 1, which a query wipes.
  const Parities& parities() const { return parities_; }
  Parities& parities() { return parities_; }
  const Parities& backup_parities() const { return backup_parities_; }
  Parities& backup_parities() { return backup_parities_; }
  static constexpr uint64_t kHeadBytes = 32, kHintBytes = 16;
  // Of EncodeHead, and of the three together.
  static uint64_t AllHeadBytes(const SetShape& shape) {
    return kHeadBytes + shape.hints * kHintBytes;
  }
  static uint64_t StateBytes(const SetShape& shape) {
    return AllHeadBytes(shape) + shape.parity_bytes();
  }
  // Takes what EncodeHead made. INVALID_ARGUMENT if it is of no table of this shape; then the table
  // must not be used.
  absl::Status DecodeHead(BytesView head);

 private:
  static constexpr uint64_t kNoRow = ~uint64_t{0};
  struct Hint {
    uint32_t set;
    uint32_t half;
    uint64_t beside;  // a row, or kNoRow
  };
  MutableBytes ParityOf(uint32_t hint) { return parities_.At(hint); }
  // Of one half of a backup.
  MutableBytes BackupOf(uint32_t backup, uint32_t half) {
    return backup_parities_.At(backup).subspan(uint64_t{half} * shape_.record_bytes,
                                               shape_.record_bytes);
  }
  absl::Status CheckQuestion(const Question& question) const;
  void WriteQuery(const Question& question, std::span<Choice> query) const;
  void Replace(const Question& question, BytesView record);
  // Of rows of one chunk, kChangesTogether at most.
  static constexpr size_t kChangesTogether = 16;
  void AdvanceChunk(uint32_t chunk, std::span<const RowChange> changes);

  void AddRecords(uint32_t first, std::span<const BytesView> chunks);
  void AddWords(uint32_t first, std::span<const BytesView> chunks);
  // The place of the first hint from `from` on that holds the row; kNowhere if none does.
  uint32_t Find(uint64_t row, uint32_t from) const;
  // After hints_[place] = hint, in place of `before`; nothing if `mask` is zero, not all ones.
  void Index(uint64_t mask, uint32_t place, const Hint& before, const Hint& hint);

  const SetShape shape_;
  const SetSource& sets_;
  SecretVector<Hint> hints_;
  // What Find reads of the hints: whether set i is still that of hint i (else 0, not 0xffff); of
  // the set of each backup its half (on the top bit) and row beside, and the place of its hint or
  // kNowhere.
  SecretVector<uint16_t> first_live_, backup_halves_;
  SecretVector<uint32_t> backup_places_;
  SecretVector<uint64_t> backup_beside_;
  Parities parities_, backup_parities_;
  SecretVector<uint8_t> lacking_;  // of each hint: 1 if its XOR is without the record beside
  uint32_t chunks_added_ = 0;
  uint32_t spent_ = 0;
  std::optional<Question> asked_;
};

// A query on the wire: for each chunk the bit, and then the offset's bits from the lowest on,
// packed into bytes from their lowest bit on. `out` has query_bytes.
void EncodeQuery(const SetShape& shape, std::span<const Choice> query, MutableBytes out);
// INVALID_ARGUMENT for another length, or bits behind the last chunk that are not zero.
absl::Status DecodeQuery(const SetShape& shape, BytesView encoded, std::span<Choice> query);

// The server's side: the XORs of the records with bit 0 and bit 1 of a query, record_bytes each,
// over `records`, the table's rows one after the other. What a query is, the server may see.
void AnswerQuery(const SetShape& shape, BytesView records, std::span<const Choice> query,
                 MutableBytes zeros, MutableBytes ones);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_HALF_SETS_H_
