// What all sessions have in common whose client prepares hints by requests of its own, keeps them
// in a store, and changes them with every query. An engine derives from it what is its own: the
// hints, their requests, and their bytes in the store.
//
//   the store   a state: a head that says of what it is, and behind it what the engine keeps; a
//               journal of what came while it was prepared; queries change the state in place
//   Prepare     the next part of the hints. Once all have come, the query that waits for its
//               answers, to one server after the other: it is sent as it was, so that the servers
//               learn nothing new
//   a lookup    one query after the other, to all roles at once. A query is durable before it is
//               sent, and what its answers change before the next one
//   Advance     a delta's changes reach all hints, and nothing that came of the epoch before is
//               used any more
#ifndef SHOAL_SRC_PIR_KIT_PREPARED_SESSION_H_
#define SHOAL_SRC_PIR_KIT_PREPARED_SESSION_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/pir/engine.h"
#include "src/pir/kit/journal.h"
#include "src/pir/kit/row_changes.h"
#include "src/wire/pir.pb.h"

namespace shoal::pir {

// A query that has its answers, for Judge.
struct FinishedQuery {
  uint64_t row = 0;
  uint64_t number = 0;  // the engine's own
  uint32_t hint = 0;    // that served it; any, if not held
  bool held = false;    // whether a hint held the row; otherwise no record came of it
};

// What a state has behind its head, part by part.
class StateParts {
 public:
  // `part` outlives the object.
  void Refer(BytesView part) { parts_.push_back(part); }
  void Keep(SecretVector<uint8_t> part) {
    kept_.push_back(std::move(part));
    parts_.push_back(kept_.back());
  }
  std::span<const BytesView> get() const { return parts_; }

 private:
  std::deque<SecretVector<uint8_t>> kept_;
  std::vector<BytesView> parts_;
};

class PreparedSession : public Session {
 public:
  const wire::PirSetup& setup() const final { return setup_; }
  std::optional<Digest> behind() const final { return behind_; }
  Need needed(uint64_t keys) const final;
  Progress progress() const final;
  uint64_t KeysPerStep() const final { return 1; }
  absl::StatusOr<Request> Prepare(RandomSource& random) final;
  absl::Status TakePrepared(BytesView answer) final;
  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) final;
  absl::Status Advance(const DeltaView& delta) final;

  // Takes what the store has: once, before anything else. FAILED_PRECONDITION if that is of another
  // table, DATA_LOSS if it is malformed, RESOURCE_EXHAUSTED if the hints do not fit the memory.
  absl::Status Load();

 protected:
  struct Form {
    const Engine& engine;
    SessionStore* store = nullptr;  // it outlives the session
    // A state's head: the magic (8 bytes), the SetupId, the table's id, the shape, and so many
    // bytes that the engine reads and writes. A state that begins with the earlier magic is read,
    // and saved in the present form.
    absl::string_view magic, earlier_magic = "";
    Bytes shape;
    size_t own_bytes = 0;
    // Of the preparation, in any unit.
    uint64_t parts = 0;
    // To one query, of each role.
    uint64_t answer_bytes = 0;
    // What a query changes of the state (SessionStore::ExpectChanges).
    uint64_t changed_places = 0, changed_bytes = 0;
  };
  // `setup` has been checked (Engine::SizesOf).
  PreparedSession(const wire::PirSetup& setup, Form form);

  // ---- The hints.

  // How many parts have come; nothing before the first request.
  virtual std::optional<uint64_t> prepared() const = 0;
  // RESOURCE_EXHAUSTED if they do not fit the memory.
  virtual absl::Status CheckRoom() const = 0;
  // Draws what the requests of the preparation depend on; it is saved before they are sent.
  virtual void Begin(RandomSource& random) = 0;
  // The next request of the preparation, and its answer: INVALID_ARGUMENT for another length. What
  // came is durable when it returns OK (AppendEntry, Save).
  virtual Request NextPart() const = 0;
  virtual absl::Status TakePart(BytesView answer) = 0;
  // Brings all of them into memory.
  virtual absl::Status ReadAll() = 0;
  // Those that one call has read go from memory.
  virtual void Forget() = 0;
  // Makes them those of the next epoch, once ReadAll has. prepared() may be nothing.
  virtual absl::Status ChangeRows(std::span<const RowChange> changes) = 0;

  // ---- Queries, once all parts have come: one at a time.

  virtual bool asked() const = 0;  // one waits for its answers
  // Makes a query, and its bytes for each of Engine::roles().
  virtual absl::StatusOr<std::vector<Bytes>> AskFor(uint64_t row, RandomSource& random) = 0;
  // The bytes of the query that waits.
  virtual std::vector<Bytes> AskAgain() const = 0;
  // The request to the role of that place in Engine::roles(), with these bytes.
  virtual Request RequestOf(size_t role, const Bytes& query, RandomSource& random);
  // What of the state says that the query waits.
  virtual void AddAsked(Patches& patches) const = 0;
  // Whether an answer of the right length may be taken. The work is the same for every answer.
  virtual absl::Status CheckAnswer(size_t /*role*/, BytesView /*answer*/) const {
    return absl::OkStatus();
  }
  // Ends the query that waits: writes the record, and saves what changes (Change).
  virtual absl::Status Finish(std::span<const BytesView> answers, MutableBytes record) = 0;
  // The query that waits, as Judge is told of it.
  virtual FinishedQuery query() const { return {}; }
  // What a record that came of a query tells the hints, once nothing is sent any more: saved when
  // it returns OK.
  virtual absl::Status Judge(const FinishedQuery& /*query*/, BytesView /*record*/, bool /*right*/) {
    return absl::OkStatus();
  }

  // ---- The store.

  // Takes the state, whose head ends with `own`. DATA_LOSS (Malformed) if it is none.
  virtual absl::Status ReadState(BytesView own, bool earlier) = 0;
  // Takes an entry of the journal: false if it cannot follow.
  virtual bool Redo(uint8_t entry, BytesView body) = 0;
  // Writes the head's end, which is zeros, and what is behind it.
  virtual void AddState(MutableBytes own, StateParts& parts) = 0;

  absl::Status Malformed() const;
  // All three leave the session unusable if they fail.
  absl::Status Save();
  absl::Status AppendEntry(uint8_t entry, BytesView body);
  absl::Status Change(const Patches& patches);

  // Whether everything is prepared, for the epoch of setup().
  bool IsReady() const { return prepared() == form_.parts && !behind_.has_value(); }
  Request NewRequest(Role role, uint32_t kind, BytesView body, uint64_t answer_bytes) const;
  const Journal& journal() const { return journal_; }
  // Where the head's end begins in the state, and what is behind the head.
  size_t own_at() const;
  size_t head_bytes() const { return own_at() + form_.own_bytes; }

 private:
  class Lookup;
  // What Prepare asked for last.
  enum class Asked { kNothing, kPart, kAnswer };

  absl::Status CheckReady() const;
  absl::StatusOr<std::vector<Request>> NewQuery(uint64_t row, RandomSource& random);
  // Whether an answer may be taken. The work is the same for every answer of the right length.
  absl::Status CheckLength(BytesView answer) const;
  absl::Status End(std::span<const BytesView> answers, MutableBytes record);

  wire::PirSetup setup_;
  Digest id_;
  const Form form_;
  Journal journal_;
  std::optional<Digest> behind_;
  Asked prepared_for_ = Asked::kNothing;
  // Of the query that waits, when it was sent again, from the last role on.
  std::vector<Bytes> answers_;
  // Rises with every query and every epoch, and when a query is sent again: answers belong to the
  // query that they were asked for alone, and to its epoch.
  uint64_t sent_ = 0;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_PREPARED_SESSION_H_
