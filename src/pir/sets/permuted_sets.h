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
#ifndef SHOAL_SRC_PIR_SETS_PERMUTED_SETS_H_
#define SHOAL_SRC_PIR_SETS_PERMUTED_SETS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"

namespace shoal::pir::sets {

struct PermutedShape {
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
absl::StatusOr<PermutedShape> PermutedShapeFor(uint64_t rows, uint32_t record_bytes,
                                               uint32_t chunks);

// The permutations that a seed stands for, of all chunks one after the other: p_i(j) is at
// i * chunk_rows + j. Those of chunk i are drawn by Fisher and Yates's shuffle from SeededRandom's
// stream i. The client and the offline server must draw the same ones.
SecretVector<uint32_t> PermutationsOf(const PermutedShape& shape, const Seed& seed);

// The offline server's part for one client. Thread-compatible. What it holds the server knows; it
// must not reach the online server.
class ParityMaker {
 public:
  // Takes places() * 4 bytes of memory, whatever the seed.
  ParityMaker(const PermutedShape& shape, const Seed& seed);

  // Writes the parities first, first + 1, .., as many as `out` has room for (checked: whole ones,
  // below chunk_rows), over `records`, the table's rows one after the other.
  void Make(BytesView records, uint32_t first, MutableBytes out) const;

 private:
  const PermutedShape shape_;
  const SecretVector<uint32_t> permutations_;
};

// Either server's answer to a query: the record at the offset of each chunk, one after the other,
// zeros behind the table's end. `out` has answer_bytes. INVALID_ARGUMENT, and nothing is written,
// for a query of another length or an offset that is not below chunk_rows. The same work for all
// queries.
absl::Status AnswerPermuted(const PermutedShape& shape, BytesView records, BytesView query,
                            MutableBytes out);

// The client's side, in memory. Thread-compatible. How long calls take depends on the shape alone,
// apart from where in memory they look.
class PermutedTable {
 public:
  // `permutations` as PermutationsOf (checked for its length alone).
  PermutedTable(const PermutedShape& shape, SecretVector<uint32_t> permutations);

  // Takes the next whole parities (checked), in their order.
  void AddParities(BytesView parities);

  // Writes the two queries of query_bytes each. FAILED_PRECONDITION before all parities are there,
  // and before the query before is finished: from one state only one pair of queries may ever be
  // sent. A query whose answer is lost is sent again as it is. OUT_OF_RANGE if there is no such
  // row.
  absl::Status Ask(uint64_t row, RandomSource& random, MutableBytes online, MutableBytes offline);
  // Takes both answers of answer_bytes, writes the record, and exchanges the rows. Once after each
  // Ask (checked). Wrong answers give a wrong record and spoil parities, and nothing else.
  void Finish(BytesView online, BytesView offline, MutableBytes record);

  // Follows a change of a row's record by `difference`, the XOR of the old one and the new one.
  // FAILED_PRECONDITION as Ask; OUT_OF_RANGE.
  absl::Status Change(uint64_t row, BytesView difference);

 private:
  struct Question {
    uint32_t chunk;
    uint32_t parity;                   // j
    SecretVector<uint32_t> exchanged;  // r_i of every chunk
  };

  absl::Status CheckReady(uint64_t row) const;
  // The j with p_chunk(j) = offset. All are looked at.
  uint32_t Find(uint32_t chunk, uint32_t offset) const;
  MutableBytes ParityOf(uint32_t parity) {
    return MutableBytes(parities_).subspan(uint64_t{parity} * shape_.record_bytes,
                                           shape_.record_bytes);
  }
  std::span<uint32_t> PermutationOf(uint32_t chunk) {
    return std::span(permutations_).subspan(uint64_t{chunk} * shape_.chunk_rows, shape_.chunk_rows);
  }

  const PermutedShape shape_;
  SecretVector<uint32_t> permutations_;
  SecretVector<uint8_t> parities_;
  uint64_t parity_bytes_added_ = 0;
  std::optional<Question> asked_;
};

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_PERMUTED_SETS_H_
