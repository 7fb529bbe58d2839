// The sets of rows behind the hints of TreePIR (Lazzaretti and Papamanthou, "TreePIR:
// Sublinear-Time and Polylog-Bandwidth Private Information Retrieval from DDH", CRYPTO 2023), for
// one client and two servers that do not collude. docs/tree-sets.md has the protocol and the proof.
//
//   table    rows in chunks of 2^offset_bits, the last one filled up with rows of zeros
//   tree     its leaves are the chunks; a node is a block of 16 bytes, from which its children
//            follow
//   set      a root and a shift: of every chunk the row at (leaf ^ shift)
//   hint     a set, and the XOR of the records of its rows
//
//   client -> offline   a seed                                             once
//          <-           the XORs of the hints' sets
//   client -> online    a hint's set without one leaf, and the shift       for every query
//          <-           for each chunk: the XOR of the set's other rows if this was the chunk left
//                       out
//   client -> offline   a new set without one leaf, and the shift
//          <-           the same
//
// The hint holds the row that is asked for, in the chunk left out: the online server's XOR for
// that chunk and the hint's XOR make the record. The new set holds the row, too; its XOR and the
// record make a hint that takes the old one's place, so that hints last for ever. What a client
// sends does not depend on any answer, and an answer that is wrong spoils one hint at most,
// until the client has found that out (Judge).
//
// A set without a leaf is what hangs on the way from the root to the leaf: at every level the
// children that are not on the way, from left to right. They do not tell where the way went. With
// two children a node (fan_bits = 1) that is one block a level, as in the paper. A tree with more
// children has fewer levels, and each level has several blocks.
#ifndef SHOAL_SRC_PIR_SETS_TREE_SETS_H_
#define SHOAL_SRC_PIR_SETS_TREE_SETS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/kit/row_changes.h"
#include "src/pir/sets/parities.h"
#include "src/pir/sets/tree_kernel.h"

namespace shoal::pir::sets {

struct TreeBlock {
  std::array<uint8_t, TreeKernel::kBlockBytes> bytes;
  bool operator==(const TreeBlock&) const = default;
};
static_assert(sizeof(TreeBlock) == 16);

inline constexpr uint32_t kMaxTreeOffsetBits = 20;
inline constexpr uint32_t kMaxTreeLeafBits = 24;
inline constexpr uint32_t kMaxTreeFanBits = 12;

struct TreeShape {
  uint64_t rows = 0;
  uint32_t record_bytes = 0;
  uint32_t offset_bits = 0;
  uint32_t chunks = 0;     // of 2^offset_bits rows; together they have all rows
  uint32_t leaf_bits = 0;  // the least that gives 2^leaf_bits >= chunks leaves
  // Every node has 2^fan_bits children, but for the root, which has as many as are left.
  uint32_t fan_bits = 1;
  uint32_t hints = 0;

  uint64_t chunk_rows() const { return uint64_t{1} << offset_bits; }
  uint64_t chunk_bytes() const { return uint64_t{record_bytes} << offset_bits; }
  // The rows with the zeros behind them.
  uint64_t table_bytes() const { return chunks * chunk_bytes(); }
  uint32_t ChunkOf(uint64_t row) const { return static_cast<uint32_t>(row >> offset_bits); }
  uint32_t OffsetOf(uint64_t row) const { return static_cast<uint32_t>(row) & offset_mask(); }
  uint32_t offset_mask() const { return static_cast<uint32_t>(chunk_rows() - 1); }

  // Level 0 is the root's children, the last level the leaves.
  uint32_t levels() const { return leaf_bits == 0 ? 1 : (leaf_bits + fan_bits - 1) / fan_bits; }
  // Leaves below a node of the level: 2^this.
  uint32_t BitsBelow(uint32_t level) const { return fan_bits * (levels() - 1 - level); }
  // Children of a node of the level above.
  uint32_t Fan(uint32_t level) const {
    return 1u << (level == 0 ? leaf_bits - BitsBelow(0) : fan_bits);
  }
  // Which child of its parent the node of the level is that has this leaf.
  uint32_t DigitOf(uint32_t leaf, uint32_t level) const {
    return leaf >> BitsBelow(level) & (Fan(level) - 1);
  }
  // Leaves that are sent as they are, and other nodes, for a set without a leaf.
  uint32_t query_leaves() const { return Fan(levels() - 1) - 1; }
  uint32_t query_blocks() const;
  // All leaves that a server makes of a query.
  uint32_t query_offsets() const { return (1u << leaf_bits) - 1; }

  // That one server reads for an answer, on average over the places of queries.
  double rows_read() const;

  // Of one query, to one server, and of its answer; of a client's XORs, and of all that it keeps.
  uint64_t query_bytes() const {
    return TreeKernel::kBlockBytes * uint64_t{query_blocks()} +
           (uint64_t{query_leaves() + 1} * offset_bits + 7) / 8;
  }
  uint64_t answer_bytes() const { return uint64_t{chunks} * record_bytes; }
  uint64_t parity_bytes() const { return uint64_t{hints} * record_bytes; }
  uint64_t client_bytes() const { return parity_bytes() + hints * (sizeof(TreeBlock) + 4ull); }
};

// The shape for a client of so many queries, with hints enough that with probability 1 - 2^-40
// each of the queries finds its row in one. (Hints last for ever; the probability that one is
// missing grows with the number of queries.) With fan_bits = 0 two levels. INVALID_ARGUMENT for a
// table or a number that is too large.
absl::StatusOr<TreeShape> TreeShapeFor(uint64_t rows, uint32_t record_bytes, uint64_t queries,
                                       uint32_t fan_bits = 0);
// Whether a shape that was not made by TreeShapeFor is one that all of this works with.
// INVALID_ARGUMENT.
absl::Status CheckTreeShape(const TreeShape& shape);

// The sets of one key: AES-128 (tree_sets.cc).
class TreeCipher;

// What the sets are. Implementations: TreeFunction, and tests that go through all possible sets.
class TreeSource {
 public:
  virtual ~TreeSource() = default;
  // The sets first, first + 1, ..: roots, and shifts below 2^offset_bits. Those below shape.hints
  // are known to the offline server.
  virtual void Draw(uint64_t first, std::span<TreeBlock> roots,
                    std::span<uint32_t> shifts) const = 0;
  // A leaf of each tree: an offset before the shift.
  virtual void LeavesOf(uint32_t leaf, std::span<const TreeBlock> roots,
                        std::span<uint32_t> out) const = 0;
  // A node that is no leaf, by its number in its level.
  virtual TreeBlock NodeOf(const TreeBlock& root, uint32_t level, uint32_t node) const = 0;
};

// A client's keys.
struct TreeKeys {
  SecretArray<16> seed;  // of the hints' first sets, which the offline server is told
  SecretArray<16> own;   // of the sets of queries
};
// Both, of one that is drawn for each new set of hints. They depend on the whole shape: whoever
// made hints of another shape by the same key all the same would never send a set twice.
TreeKeys DeriveTreeKeys(const TreeShape& shape, const Seed& key);

// Child x of a node n is H(n ^ x), with H(x) = AES(x) ^ x under a fixed key. Leaf x is the
// little-endian 32-bit word x mod 4 of child x / 4, of which the lowest offset_bits count.
// H is correlation robust if AES under the fixed key is a random permutation (Guo, Katz, Wang, Yu,
// "Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers", IEEE S&P 2020,
// section IV): that is, the children of random nodes are random.
//
// Set i's root is AES-128(key, 2 i), its shift the first word of AES-128(key, 2 i + 1), numbers as
// little-endian blocks, under one of two keys: sets below shape.hints under the seed that the
// offline server knows, set shape.hints + j under the client's own, as number j. Not even const
// calls may run at the same time.
class TreeFunction final : public TreeSource {
 public:
  TreeFunction(const TreeShape& shape, const TreeKeys& keys,
               const TreeKernel& kernel = FastestTreeKernel());
  ~TreeFunction() override;
  void Draw(uint64_t first, std::span<TreeBlock> roots, std::span<uint32_t> shifts) const override;
  void LeavesOf(uint32_t leaf, std::span<const TreeBlock> roots,
                std::span<uint32_t> out) const override;
  TreeBlock NodeOf(const TreeBlock& root, uint32_t level, uint32_t node) const override;

 private:
  const TreeShape shape_;
  const TreeKernel& kernel_;
  const std::unique_ptr<const TreeCipher> seed_, own_;
};

// The client's side, in memory. Thread-compatible. How long Ask and Finish take depends on the
// shape alone, apart from where in memory they look. Two queries must never be sent from one state:
// there are no copies, and a state that was saved may be read back only if nothing was asked since.
// Sets are wiped, and what Ask, AskAgain and Finish leave on the stack; registers are not.
class TreeHints {
 public:
  // A query on its way.
  struct Question {
    uint64_t row = 0;
    uint64_t query = 0;  // its number
    uint32_t hint = 0;   // whose set the online server is sent; any, if not held
    bool held = false;   // whether a hint holds the row; otherwise no record comes of it
    ~Question();
  };

  // `source` must outlive the object, and was never used for a query before.
  TreeHints(const TreeShape& shape, const TreeSource* source);
  TreeHints& operator=(const TreeHints&) = delete;
  // For tests that go through all that can happen.
  TreeHints Clone() const { return *this; }

  // The XORs of the next sets, from the offline server, in their order until all hints have one.
  // INVALID_ARGUMENT if they are not whole ones or too many; then none is taken.
  absl::Status TakeParities(BytesView parities);
  uint32_t parities_taken() const { return taken_; }
  bool complete() const { return taken_ == shape_.hints; }

  // Queries that were made, and the last one if it waits for its answers.
  uint64_t queries() const { return queries_; }
  const std::optional<Question>& asked() const { return asked_; }

  // Writes the queries to the two servers, query_bytes each. Of the hints that hold the row the
  // first one from place `from` on is used, round the end: `from` is no secret, and random, so that
  // one spoilt hint spoils few queries and a row can be asked for again. FAILED_PRECONDITION before
  // all XORs were taken, or before the query before is finished: one hint could serve both, and its
  // server would see the set twice. OUT_OF_RANGE if there is no such row.
  absl::Status Ask(uint64_t row, uint32_t from, MutableBytes online, MutableBytes offline);
  // Writes the queries once more that wait for their answers: the same bytes. FAILED_PRECONDITION
  // if none do.
  absl::Status AskAgain(MutableBytes online, MutableBytes offline) const;
  // Takes both answers, writes the record, and replaces the hint. False if no hint held the row:
  // then zeros are written. INVALID_ARGUMENT unless there are answer_bytes of each, and
  // FAILED_PRECONDITION if no query waits; then nothing changed. Needs the question's hint's XOR.
  absl::StatusOr<bool> Finish(BytesView online, BytesView offline, MutableBytes record);
  // The same with what the answers have for the row's chunk, record_bytes of each, where that was
  // read without the rest.
  absl::StatusOr<bool> FinishWith(BytesView online, BytesView offline, MutableBytes record);

  // Says whether the record of a query that was finished in this process is the table's. If it is
  // not, the hint that was made with it is without the row's record from now on: it has what the
  // offline server sent, and whatever spoilt the record is out of it. A record that is right is
  // added to all hints that are without it. Returns the hints that changed. Sets stay as they are:
  // no later query depends on this. Needs the XORs of those that change.
  std::vector<uint32_t> Judge(const Question& question, BytesView record, bool right);
  std::vector<uint32_t> HintsToJudge(const Question& question, bool right) const;
  // In place of the row whose record the XOR of a hint is without.
  static constexpr uint64_t kNoRow = ~uint64_t{0};

  // For a journal: Ask and Finish as they were. `parity` is what ParityOf(asked()->hint) was after
  // Finish. INVALID_ARGUMENT if that cannot follow; then nothing changed.
  BytesView ParityOf(uint32_t hint) const { return parities_.At(hint); }
  absl::Status Redo(const Question& question);
  absl::Status RedoFinish(BytesView parity);
  // What Judge made of a hint.
  absl::Status RedoJudge(uint32_t hint, uint64_t lacks, BytesView parity);

  // Makes the XORs that were taken those of a later epoch. The rows rise (checked). Costs the
  // leaves of all hints for each chunk that has a changed row.
  void Advance(std::span<const RowChange> changes);

  // The state is the head and behind it the XORs that were taken. All of it is secret.
  SecretVector<uint8_t> EncodeHead() const;
  BytesView taken_parities() const {
    return taken_ == 0 ? BytesView()
                       : parities_.all().first(uint64_t{taken_} * shape_.record_bytes);
  }
  // The XORs. They are in memory from the first that was taken on. Hints that were read back have
  // none until their owner makes them whole, or puts those there that a call needs.
  const Parities& parities() const { return parities_; }
  Parities& parities() { return parities_; }
  // Where a query changes the state, and to what: all places of `hint`, and those that every query
  // changes. As many bytes whatever it was, but for the number of hints that are without a record.
  struct Place {
    uint64_t at;
    SecretVector<uint8_t> bytes;
  };
  std::vector<Place> PlacesOf(uint32_t hint) const;
  // What every query changes, whose place is the state's beginning.
  SecretVector<uint8_t> EncodeProgress() const;
  // Takes the head of a state; `parity_bytes` are behind it. DATA_LOSS if that is no state of this
  // shape; then nothing changed.
  absl::Status DecodeHead(BytesView head, uint64_t parity_bytes);
  // How long the head of a state is whose first least_head_bytes() these are (checked); nothing if
  // that is none.
  uint64_t least_head_bytes() const;
  std::optional<uint64_t> HeadBytesOf(BytesView least) const;

 private:
  struct Set {
    TreeBlock root = {};
    uint32_t shift = 0;
    ~Set();
  };
  TreeHints(const TreeHints&) = default;
  MutableBytes MutableParityOf(uint32_t hint) { return parities_.At(hint); }
  // From the number of hints that are without a record on.
  SecretVector<uint8_t> EncodeLacking() const;
  Set DrawOne(uint64_t set) const;
  // The new set of a query with another shift: it holds the row.
  Set NewSetOf(const Question& question) const;
  void WriteWithout(uint32_t leaf, const Set& set, MutableBytes out) const;
  void WriteQueries(const Question& question, MutableBytes online, MutableBytes offline) const;
  // The new set takes the place of the hint, if that was held.
  void ReplaceSet(const Question& question);

  const TreeShape shape_;
  const TreeSource& source_;
  SecretVector<TreeBlock> roots_;
  SecretVector<uint32_t> shifts_;
  Parities parities_;
  // Of each hint: the row whose record it is without; and the number of the query that made it, in
  // this process, plus 1.
  SecretVector<uint64_t> lacks_, made_by_;
  uint32_t taken_ = 0;
  uint64_t queries_ = 0;
  std::optional<Question> asked_;
};

// The servers' side. `table` is table_bytes: the rows, one after the other, and zeros. What they
// get is not secret to them, and whatever it holds takes the same work.

// Sets for which MakeTreeParities reads the table once: their sums have 8 MiB at most, or are few.
uint32_t TreeGroupOf(const TreeShape& shape);

// The offline server: XORs of the sets first, first + 1, .. of a seed, as many as `parities` has
// room for; at most shape.hints sets (checked). Work: `chunks` rows for each set. Groups of
// TreeGroupOf() sets are made on the pool's threads, or on the caller's. False if `stop` became
// true meanwhile, which is looked at every few milliseconds: then `parities` are none.
bool MakeTreeParities(const TreeShape& shape, BytesView table, const SecretArray<16>& seed,
                      uint32_t first, MutableBytes parities, ThreadPool* pool,
                      const std::atomic<bool>* stop = nullptr,
                      const TreeKernel& kernel = FastestTreeKernel());

// Both servers: the offsets that a query has at every place that it leaves open, shape's
// query_offsets: level by level the leaves below each of its blocks in their order, and then its
// leaves, all of them shifted. INVALID_ARGUMENT for another length, or bits behind the end that
// are not zero.
absl::Status ExpandTreeQuery(const TreeShape& shape, BytesView query, std::span<uint32_t> offsets,
                             const TreeKernel& kernel = FastestTreeKernel());
// The answer: for each chunk the XOR of the rows of all others, if the leaf of this one was left
// out. At most 2 levels() rows of each chunk are read, and levels() with fan_bits = 1.
void AnswerTreeQuery(const TreeShape& shape, BytesView table, std::span<const uint32_t> offsets,
                     MutableBytes answer, const TreeKernel& kernel = FastestTreeKernel());

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_TREE_SETS_H_
