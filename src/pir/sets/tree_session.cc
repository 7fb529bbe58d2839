#include "src/pir/sets/tree_session.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/prepared_session.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/sets/tree_pir.h"
#include "src/storage/memory.h"

namespace shoal::pir::sets {
namespace {

// The state: a head (kit/prepared_session.h), whose shape is u64 rows, u32 record_bytes, u32
// fan_bits, u32 hints, and which ends with the key; and the hints (TreeHints::DecodeHead).
constexpr absl::string_view kMagic = "SHOALTP2";

// A record of the journal is one of these bytes, and
//   kHintsCame  the XORs of the next hints, and not the last ones
// Version 0.2 had the last ones in it, too, and queries, which are read and end up in a state:
//   kSpent      a query: u64 row, u64 number, u32 hint, u8 held
//   kAnswered   the XOR of its hint's place from now on
//   kJudged     a hint after TreeHints::Judge: u32 hint, u64 row that it is without, its XOR
enum Entry : uint8_t { kHintsCame = 1, kSpent = 2, kAnswered = 3, kJudged = 4 };
constexpr size_t kJudgedHeadBytes = 4 + 8;
constexpr size_t kSpentBytes = 8 + 8 + 4 + 1;

// What is in memory for a hint whatever happens: its set, what it lacks, and the bytes that they
// were read from.
constexpr uint64_t kBytesOfSet = 64;

Bytes ShapeBytes(const TreeShape& shape) {
  Bytes out;
  AppendLe<uint64_t>(out, shape.rows);
  AppendLe<uint32_t>(out, shape.record_bytes);
  AppendLe<uint32_t>(out, shape.fan_bits);
  AppendLe<uint32_t>(out, shape.hints);
  return out;
}

class TreeSession final : public PreparedSession {
 public:
  TreeSession(const wire::PirSetup& setup, const TreeSetup& parsed,
              std::unique_ptr<rlwe::SmallClient> reader, SessionStore* store)
      : PreparedSession(setup,
                        {.engine = TreePir(),
                         .store = store,
                         .magic = kMagic,
                         .shape = ShapeBytes(parsed.shape),
                         .own_bytes = Seed::size(),
                         .parts = parsed.shape.hints,
                         .answer_bytes = parsed.answer_bytes,
                         // Progress, a hint's root and shift, how many hints lack a record, an XOR.
                         .changed_places = 5,
                         .changed_bytes = 64 + uint64_t{parsed.shape.record_bytes}}),
        shape_(parsed.shape),
        answer_bytes_(parsed.answer_bytes),
        reader_(std::move(reader)) {}

 protected:
  std::optional<uint64_t> prepared() const override {
    if (hints_ == nullptr) return std::nullopt;
    return hints_->parities_taken();
  }

  // For all hints with their XORs, what of them is being written, and both answers.
  absl::Status CheckRoom() const override {
    return CheckMemory(shape_.client_bytes() + uint64_t{TreeHintsOf(shape_)} * shape_.record_bytes +
                           4 * answer_bytes_,
                       "treepir: the hints");
  }

  void Begin(RandomSource& random) override { Make(random.NewSeed()); }
  Request NextPart() const override {
    const uint32_t first = hints_->parities_taken();
    Bytes body = ToBytes(DeriveTreeKeys(shape_, key_).seed.view());
    AppendLe<uint32_t>(body, first);
    const uint64_t count = std::min(TreeHintsOf(shape_), shape_.hints - first);
    return NewRequest(Role::kOffline, kTreeHints, body, count * shape_.record_bytes);
  }
  absl::Status TakePart(BytesView answer) override {
    SHOAL_RETURN_IF_ERROR(hints_->TakeParities(answer));
    return hints_->complete() ? Save() : AppendEntry(kHintsCame, answer);
  }

  // All XORs, if there are any that are not in memory. They are the state's end.
  absl::Status ReadAll() override {
    if (hints_ == nullptr || hints_->parities_taken() == 0 || hints_->parities().whole()) {
      return absl::OkStatus();
    }
    SHOAL_RETURN_IF_ERROR(CheckRoom());
    hints_->parities().MakeWhole();
    const uint64_t bytes = uint64_t{hints_->parities_taken()} * shape_.record_bytes;
    return journal().Read(journal().state_bytes() - bytes, hints_->parities().all().first(bytes));
  }
  void Forget() override { hints_->parities().Forget(); }
  absl::Status ChangeRows(std::span<const RowChange> changes) override {
    if (hints_ != nullptr) hints_->Advance(changes);
    return absl::OkStatus();
  }

  bool asked() const override { return hints_ != nullptr && hints_->asked().has_value(); }
  absl::StatusOr<std::vector<Bytes>> AskFor(uint64_t row, RandomSource& random) override {
    const auto from = static_cast<uint32_t>(random.Below(shape_.hints));
    std::vector<Bytes> queries(2, Bytes(shape_.query_bytes()));
    SHOAL_RETURN_IF_ERROR(hints_->Ask(row, from, queries[kOnline], queries[kOffline]));
    return queries;
  }
  std::vector<Bytes> AskAgain() const override {
    std::vector<Bytes> queries(2, Bytes(shape_.query_bytes()));
    SHOAL_CHECK(hints_->AskAgain(queries[kOnline], queries[kOffline]).ok());
    return queries;
  }
  // What reads the answer at the row's chunk is behind the query, and encrypted anew when that is
  // sent again.
  Request RequestOf(size_t role, const Bytes& query, RandomSource& random) override {
    Bytes body = query;
    if (reader_ != nullptr) {
      readings_[role] = reader_->Ask(shape_.ChunkOf(hints_->asked()->row), random);
      Append(body, std::exchange(readings_[role].query, {}));
    }
    return NewRequest(TreePir().roles()[role], kTreeQuery, body, answer_bytes_);
  }
  void AddAsked(Patches& patches) const override {
    patches.Add(head_bytes(), hints_->EncodeProgress());
  }
  absl::Status Finish(std::span<const BytesView> answers, MutableBytes record) override {
    const uint32_t hint = hints_->asked()->hint;
    SHOAL_RETURN_IF_ERROR(ReadParityOf(hint));
    // False if no hint held the row: then the record is zeros, which no party signed.
    if (reader_ == nullptr) {
      SHOAL_RETURN_IF_ERROR(hints_->Finish(answers[kOnline], answers[kOffline], record).status());
    } else {
      SHOAL_ASSIGN_OR_RETURN(const auto online_sum,
                             reader_->Recover(readings_[kOnline], answers[kOnline]));
      SHOAL_ASSIGN_OR_RETURN(const auto offline_sum,
                             reader_->Recover(readings_[kOffline], answers[kOffline]));
      SHOAL_RETURN_IF_ERROR(hints_->FinishWith(online_sum, offline_sum, record).status());
      readings_ = {};
    }
    Patches patches;
    for (TreeHints::Place& place : hints_->PlacesOf(hint)) {
      patches.Add(head_bytes() + place.at, std::move(place.bytes));
    }
    return Change(patches);
  }
  FinishedQuery query() const override {
    const TreeHints::Question& asked = *hints_->asked();
    return {.row = asked.row, .number = asked.query, .hint = asked.hint, .held = asked.held};
  }
  absl::Status Judge(const FinishedQuery& query, BytesView record, bool right) override {
    const TreeHints::Question question = {
        .row = query.row, .query = query.number, .hint = query.hint, .held = query.held};
    if (hints_->HintsToJudge(question, right).empty()) return absl::OkStatus();
    // How many hints are without a record is another number now, and hints' places are others.
    SHOAL_RETURN_IF_ERROR(ReadAll());
    hints_->Judge(question, record, right);
    return Save();
  }

  // The XORs of a session that can answer stay in the store: a query reads the one that it needs.
  absl::Status ReadState(BytesView own, bool) override {
    SHOAL_RETURN_IF_ERROR(CheckMemory(kBytesOfSet * shape_.hints, "treepir: the sets"));
    Make(Seed(own));
    const uint64_t bytes = journal().state_bytes();
    SecretVector<uint8_t> sets(hints_->least_head_bytes());
    if (bytes < head_bytes() + sets.size()) return Malformed();
    SHOAL_RETURN_IF_ERROR(journal().Read(head_bytes(), sets));
    const uint64_t least = sets.size(), all = hints_->HeadBytesOf(sets).value_or(bytes);
    if (bytes - head_bytes() < all) return Malformed();
    sets.resize(all);
    SHOAL_RETURN_IF_ERROR(journal().Read(head_bytes() + least, MutableBytes(sets).subspan(least)));
    if (!hints_->DecodeHead(sets, bytes - head_bytes() - all).ok()) return Malformed();
    if (!hints_->complete() || !journal().CanChange()) {
      SHOAL_RETURN_IF_ERROR(CheckRoom());
      SHOAL_RETURN_IF_ERROR(ReadAll());
    }
    return absl::OkStatus();
  }
  bool Redo(uint8_t entry, BytesView body) override {
    switch (entry) {
      case kHintsCame:
        return !body.empty() && hints_->TakeParities(body).ok();
      case kSpent:
        if (body.size() != kSpentBytes || body[20] > 1) return false;
        return hints_
            ->Redo({.row = LoadLe<uint64_t>(&body[0]),
                    .query = LoadLe<uint64_t>(&body[8]),
                    .hint = LoadLe<uint32_t>(&body[16]),
                    .held = body[20] == 1})
            .ok();
      case kAnswered:
        return hints_->RedoFinish(body).ok();
      case kJudged:
        return body.size() >= kJudgedHeadBytes &&
               hints_
                   ->RedoJudge(LoadLe<uint32_t>(body.data()), LoadLe<uint64_t>(body.data() + 4),
                               body.subspan(kJudgedHeadBytes))
                   .ok();
      default:
        return false;
    }
  }
  void AddState(MutableBytes own, StateParts& parts) override {
    std::ranges::copy(key_.view(), own.begin());
    parts.Keep(hints_->EncodeHead());
    parts.Refer(hints_->taken_parities());
  }

 private:
  // Places in roles().
  static constexpr size_t kOffline = 0, kOnline = 1;

  void Make(Seed key) {
    key_ = std::move(key);
    hints_.reset();
    function_ = std::make_unique<TreeFunction>(shape_, DeriveTreeKeys(shape_, key_));
    hints_ = std::make_unique<TreeHints>(shape_, function_.get());
  }
  // That of one hint, once all are there.
  absl::Status ReadParityOf(uint32_t hint) {
    if (hints_->parities().whole()) return absl::OkStatus();
    SecretVector<uint8_t> parity(shape_.record_bytes);
    const uint64_t at = journal().state_bytes() - shape_.parity_bytes();
    SHOAL_RETURN_IF_ERROR(journal().Read(at + uint64_t{hint} * shape_.record_bytes, parity));
    hints_->parities().Put(hint, parity);
    return absl::OkStatus();
  }

  const TreeShape shape_;
  const uint64_t answer_bytes_;
  const std::unique_ptr<rlwe::SmallClient> reader_;  // null: answers come whole
  Seed key_;
  std::unique_ptr<TreeFunction> function_;
  std::unique_ptr<TreeHints> hints_;
  // What reads the answers to the query on its way. It is not kept: a query that is sent again has
  // another.
  std::array<rlwe::SmallAsked, 2> readings_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> OpenTreeSession(const wire::PirSetup& setup,
                                                         SessionStore* store) {
  SHOAL_ASSIGN_OR_RETURN(const TreeSetup parsed, ParseTreeSetup(setup));
  std::unique_ptr<rlwe::SmallClient> reader;
  if (parsed.reader.has_value()) {
    SHOAL_ASSIGN_OR_RETURN(reader, rlwe::SmallClient::Create(*parsed.reader));
  }
  auto session = std::make_unique<TreeSession>(setup, parsed, std::move(reader), store);
  SHOAL_RETURN_IF_ERROR(session->Load());
  return session;
}

}  // namespace shoal::pir::sets
