// The rows of a table in secret permutations of a client, each row in exactly one parity, for two
// servers that do not collude (docs/permuted-sets.md has the proof). After SinglePass: Lazzaretti
// and Papamanthou, "Single Pass Client-Preprocessing Private Information Retrieval", USENIX
// Security 2024.
//
//   table     `chunks` chunks of S rows, the last one filled up with rows of zeros
//   client    for every chunk i a permutation p_i of its S offsets; for every j < S the parity
//             h_j, the XOR of the records (i, p_i(j)) of all chunks
//   offline   makes the parities from the seed of the permutations: one XOR a row
//
//   client                                                      online            offline
//     x = (c, s): j with p_c(j) = s; a random offset d; for every chunk i a random r_i < S
//       | p_0(j), .., d in place of p_c(j), .. ---------------->  |                   |
//       | p_0(r_0), p_1(r_1), .. ------------------------------------------------->   |
//       | <----------------------------------- one record a chunk |                   |
//       | <------------------------------------------------------- one record a chunk |
//     record = h_j + the records of all chunks but c
//     for every chunk: p_i(j) and p_i(r_i) change places, and the parities j and r_i follow
//
// A row is always found, queries use nothing up, and each server's view of any sequence of queries
// is uniform, whoever chooses the rows. Both servers together learn the rows.
#ifndef SHOAL_SRC_PIR_SETS_SINGLE_PASS_SETS_H_
#define SHOAL_SRC_PIR_SETS_SINGLE_PASS_SETS_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/sets/parities.h"

namespace shoal::pir::sets {

struct SinglePassShape {
  uint64_t rows = 0;
  uint32_t record_bytes = 0;
  uint32_t chunks = 0;
  uint32_t chunk_rows = 0;  // S; together the chunks have all rows

  uint64_t places() const { return uint64_t{chunks} * chunk_rows; }  // of all permutations
  uint64_t parity_bytes() const { return uint64_t{chunk_rows} * record_bytes; }
  // To each of the two servers, and back.
  uint64_t query_bytes() const { return uint64_t{chunks} * sizeof(uint32_t); }
  uint64_t answer_bytes() const { return uint64_t{chunks} * record_bytes; }
};

inline constexpr uint32_t kMaxPermutedChunks = 4096;

// The shape with so many chunks, or fewer if no row were in the last ones: more of them make
// parities fewer and queries longer. INVALID_ARGUMENT for no rows, records or chunks, or too many.
absl::StatusOr<SinglePassShape> SinglePassShapeFor(uint64_t rows, uint32_t record_bytes,
                                                   uint32_t chunks);

// The permutations that a seed stands for, of all chunks one after the other: p_i(j) is at
// i * chunk_rows + j. Those of chunk i are drawn by Fisher and Yates's shuffle from SeededRandom's
// stream i. The client and the offline server must draw the same ones. With a pool, chunks are
// drawn on its threads. Once `stop` is true no further chunk is drawn, and what is returned is
// worth nothing.
SecretVector<uint32_t> PermutationsOf(const SinglePassShape& shape, const Seed& seed,
                                      ThreadPool* pool = nullptr,
                                      const std::atomic<bool>* stop = nullptr);

// The offline server's part for one client. Thread-compatible. What it holds the server knows; it
// must not reach the online server.
class ParityMaker {
 public:
  // Takes places() * 4 bytes of memory, whatever the seed. `stop` outlives the maker.
  ParityMaker(const SinglePassShape& shape, const Seed& seed, ThreadPool* pool = nullptr,
              const std::atomic<bool>* stop = nullptr);

  // Writes the parities first, first + 1, .., as many as `out` has room for (checked: whole ones,
  // below chunk_rows), over `records`, the table's rows one after the other. False if `stop` became
  // true meanwhile: then they are not the parities.
  bool Make(BytesView records, uint32_t first, MutableBytes out) const;

 private:
  bool stopped() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }

  const SinglePassShape shape_;
  const std::atomic<bool>* const stop_;
  const SecretVector<uint32_t> permutations_;
};

// A server's answer to a query: the record at the offset of each chunk, one after the other, zeros
// behind the table's end. `out` has answer_bytes. INVALID_ARGUMENT, and nothing is written, for a
// query of another length or an offset that is not below chunk_rows.
absl::Status AnswerPermuted(const SinglePassShape& shape, BytesView records, BytesView query,
                            MutableBytes out);

// The client's side, in memory. Thread-compatible. How long calls take depends on the shape alone,
// apart from where in memory they look.
class SinglePassTable {
 public:
  // `permutations` as PermutationsOf (checked for its length alone).
  SinglePassTable(const SinglePassShape& shape, SecretVector<uint32_t> permutations);

  // What is kept between runs of a program: permutations of a session in the middle of its life,
  // and its parities. DATA_LOSS unless the former are permutations.
  static absl::StatusOr<SinglePassTable> Restore(const SinglePassShape& shape,
                                                 SecretVector<uint32_t> permutations,
                                                 BytesView parities);
  // The same where all parities are kept elsewhere: none is in memory until they are made whole, or
  // those put there that a call needs.
  static absl::StatusOr<SinglePassTable> Restore(const SinglePassShape& shape,
                                                 SecretVector<uint32_t> permutations);
  const SecretVector<uint32_t>& permutations() const { return permutations_; }
  BytesView added_parities() const { return parities_.all().first(parity_bytes_added_); }
  const Parities& parities() const { return parities_; }
  Parities& parities() { return parities_; }

  // Takes the next whole parities (checked), in their order.
  void AddParities(BytesView parities);
  uint32_t parities_added() const {
    return static_cast<uint32_t>(parity_bytes_added_ / shape_.record_bytes);
  }
  bool complete() const { return parities_added() == shape_.chunk_rows; }

  // A query on its way.
  struct Question {
    uint64_t row = 0;
    uint32_t dummy = 0;                // d
    SecretVector<uint32_t> exchanged;  // r_i of every chunk
    ~Question();
  };
  const std::optional<Question>& asked() const { return asked_; }
  // The place of its row, which is exchanged in every chunk, while it is on its way.
  uint32_t place() const { return place_; }

  // Writes the two queries of query_bytes each. FAILED_PRECONDITION before all parities are there,
  // and before the query before is finished: from one state only one pair of queries may ever be
  // sent. A query whose answer is lost is sent again as it is. OUT_OF_RANGE if there is no such
  // row.
  absl::Status Ask(uint64_t row, RandomSource& random, MutableBytes online, MutableBytes offline);
  // Writes the queries that are on their way (checked) once more: the same bytes.
  void AskAgain(MutableBytes online, MutableBytes offline) const;
  // The rows of the table that a query to one server names, one a chunk, at least `rows` where a
  // chunk is filled up. The server knows them.
  std::vector<uint64_t> RowsOf(BytesView query) const;
  // Takes both answers of answer_bytes, writes the record, and exchanges the rows. Once after each
  // Ask (checked). Wrong answers give a wrong record and spoil parities, and nothing else. Needs
  // the parities at place() and of all places that are exchanged. Returns what RedoFinish takes, of
  // answer_bytes.
  SecretVector<uint8_t> Finish(BytesView online, BytesView offline, MutableBytes record);

  // The same from a journal: a question that was asked, and its end. Errors as Ask,
  // INVALID_ARGUMENT for what neither could have been.
  absl::Status Redo(Question question);
  absl::Status RedoFinish(BytesView changes);

  // Follows a change of a row's record by `difference`, the XOR of the old one and the new one; at
  // any time, also in the middle of a preparation or of a query. Needs all parities. OUT_OF_RANGE.
  absl::Status Change(uint64_t row, BytesView difference);

 private:
  SinglePassTable(const SinglePassShape& shape, SecretVector<uint32_t> permutations, bool whole);
  // Whether they are permutations.
  static bool ArePermutations(const SinglePassShape& shape, std::span<const uint32_t> permutations);
  absl::Status CheckReady(uint64_t row) const;
  // The place of a row. All of its chunk's are looked at.
  uint32_t Find(uint64_t row) const;
  void Begin(Question question);
  // For every chunk, adds what leaves one parity and comes to the other; rows change places.
  void Exchange(BytesView changes);
  MutableBytes ParityOf(uint32_t parity) { return parities_.At(parity); }
  std::span<const uint32_t> PermutationOf(uint32_t chunk) const {
    return std::span(permutations_).subspan(uint64_t{chunk} * shape_.chunk_rows, shape_.chunk_rows);
  }

  SinglePassShape shape_;
  SecretVector<uint32_t> permutations_;
  Parities parities_;
  uint64_t parity_bytes_added_ = 0;
  std::optional<Question> asked_;
  uint32_t place_ = 0;  // j of the question
};

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_SINGLE_PASS_SETS_H_
