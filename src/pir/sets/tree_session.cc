#include "src/pir/sets/tree_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/sets/journal.h"
#include "src/pir/sets/judge.h"
#include "src/pir/sets/row_changes.h"
#include "src/pir/sets/state_head.h"
#include "src/pir/sets/tree_pir.h"
#include "src/storage/memory.h"

namespace shoal::pir::sets {
namespace {

// The state: a head, and the hints once there is a key (TreeHints::DecodeHead). The head: the
// magic, the SetupId, the table's id, the shape (u64 rows, u32 record_bytes, u32 fan_bits, u32
// hints), the key.
constexpr absl::string_view kMagic = "SHOALTP2";
constexpr size_t kStoredShapeBytes = 8 + 3 * 4, kKeyAt = StateHead::kShapeAt + kStoredShapeBytes;
constexpr size_t kKeyBytes = Seed::size(), kHeadBytes = kKeyAt + kKeyBytes;

// A record of the journal is one of these bytes, and
//   kHintsCame  the XORs of the next hints, and not the last ones
// Version 0.2 had the last ones in it, too, and queries, which are read and end up in a state:
//   kSpent      a query: u64 row, u64 number, u32 hint, u8 held
//   kAnswered   the XOR of its hint's place from now on
//   kJudged     a hint after TreeHints::Judge: u32 hint, u64 row that it is without, its XOR
enum Entry : uint8_t { kHintsCame = 1, kSpent = 2, kAnswered = 3, kJudged = 4 };
constexpr size_t kJudgedHeadBytes = 4 + 8;
constexpr size_t kSpentBytes = 1 + 8 + 8 + 4 + 1;

// What is in memory for a hint whatever happens: its set, what it lacks, and the bytes that they
// were read from.
constexpr uint64_t kBytesOfSet = 64;

SecretVector<uint8_t> EncodeEntry(Entry entry, BytesView body) {
  SecretVector<uint8_t> out(1 + body.size());
  out[0] = entry;
  std::ranges::copy(body, out.begin() + 1);
  return out;
}

absl::Status Malformed() { return MalformedState("treepir"); }

class TreeSession final : public Session {
 public:
  TreeSession(const wire::PirSetup& setup, const TreeSetup& parsed,
              std::unique_ptr<rlwe::SmallClient> reader, SessionStore* store)
      : setup_(setup),
        id_(SetupId(setup)),
        shape_(parsed.shape),
        answer_bytes_(parsed.answer_bytes),
        reader_(std::move(reader)),
        // Progress, a hint's root and shift, how many hints lack a record, an XOR.
        journal_(store, 5, 64 + uint64_t{parsed.shape.record_bytes}) {}

  // Takes what the store has. The XORs of a session that can answer stay there: a query reads the
  // one that it needs.
  absl::Status Load() {
    const uint64_t bytes = journal_.state_bytes();
    if (bytes == 0) return CheckRoom();
    SHOAL_ASSIGN_OR_RETURN(const SecretVector<uint8_t> head,
                           StateHead::Read(journal_, kHeadBytes, {{kMagic}}, setup_, "treepir"));
    const BytesView saved = head;
    // Another shape: nothing leads there, and nothing is lost that the next state replaces.
    if (!std::ranges::equal(saved.subspan(StateHead::kShapeAt, kStoredShapeBytes), ShapeBytes())) {
      return CheckRoom();
    }
    SHOAL_RETURN_IF_ERROR(CheckMemory(kBytesOfSet * shape_.hints, "treepir: the sets"));
    Make(Seed(saved.subspan(kKeyAt, kKeyBytes)));
    SecretVector<uint8_t> sets(hints_->least_head_bytes());
    if (bytes < kHeadBytes + sets.size()) return Malformed();
    SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes, sets));
    const uint64_t least = sets.size(), all = hints_->HeadBytesOf(sets).value_or(bytes);
    if (bytes - kHeadBytes < all) return Malformed();
    sets.resize(all);
    SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes + least, MutableBytes(sets).subspan(least)));
    if (!hints_->DecodeHead(sets, bytes - kHeadBytes - all).ok()) return Malformed();
    if (!hints_->complete() || !journal_.CanChange()) {
      SHOAL_RETURN_IF_ERROR(CheckRoom());
      SHOAL_RETURN_IF_ERROR(ReadParities());
    }
    SHOAL_RETURN_IF_ERROR(journal_.ForEach(
        [&](BytesView entry) { return Redo(entry) ? absl::OkStatus() : Malformed(); }));
    behind_ = StateHead::Behind(saved, id_);
    // What an earlier version kept of queries goes. (One that is behind is saved by Advance.)
    return IsReady() && !journal_.CanChange() ? Save() : absl::OkStatus();
  }

  const wire::PirSetup& setup() const override { return setup_; }
  std::optional<Digest> behind() const override { return behind_; }
  Need needed(uint64_t) const override {
    return IsReady() && !hints_->asked().has_value() ? Need::kNothing : Need::kRequests;
  }
  Progress progress() const override {
    const bool begun = hints_ != nullptr && !behind_.has_value();
    return {.done = begun ? hints_->parities_taken() : 0, .total = shape_.hints};
  }
  uint64_t KeysPerStep() const override { return 1; }

  absl::StatusOr<Request> Prepare(RandomSource& random) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    if (hints_ == nullptr || behind_.has_value()) {
      SHOAL_RETURN_IF_ERROR(CheckRoom());
      Seed key;
      random.Fill(key.mutable_view());
      behind_.reset();
      Make(std::move(key));
      // Durable before the offline server knows its part.
      SHOAL_RETURN_IF_ERROR(Save());
    }
    part_.reset();
    if (!hints_->complete()) {
      part_ = Part::kHints;
      const uint32_t first = hints_->parities_taken();
      Bytes body = ToBytes(DeriveTreeKeys(shape_, key_).seed.view());
      AppendLe<uint32_t>(body, first);
      const uint64_t count = std::min(TreeHintsOf(shape_), shape_.hints - first);
      return NewRequest(Role::kOffline, kTreeHints, body, count * shape_.record_bytes);
    }
    if (!hints_->asked().has_value()) {
      return absl::FailedPreconditionError("treepir: nothing is to be prepared");
    }
    // A query whose answers were lost. It is sent as it was: the servers learn nothing new. (What
    // reads its answers is encrypted anew.)
    part_ = online_answer_.has_value() ? Part::kOfflineAnswer : Part::kOnlineAnswer;
    Bytes online(shape_.query_bytes()), offline(shape_.query_bytes());
    SHOAL_RETURN_IF_ERROR(hints_->AskAgain(online, offline));
    return part_ == Part::kOfflineAnswer ? Query(Role::kOffline, offline, random)
                                         : Query(Role::kOnline, online, random);
  }

  absl::Status TakePrepared(BytesView answer) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    if (!part_.has_value()) {
      return absl::FailedPreconditionError("treepir: an answer before its request");
    }
    const Part part = *std::exchange(part_, std::nullopt);
    if (part == Part::kHints) {
      SHOAL_RETURN_IF_ERROR(hints_->TakeParities(answer));
      return hints_->complete() ? Save() : journal_.Append(EncodeEntry(kHintsCame, answer));
    }
    if (answer.size() != answer_bytes_) {
      return absl::InvalidArgumentError("treepir: an answer of the wrong length");
    }
    if (part == Part::kOnlineAnswer) {
      online_answer_ = ToBytes(answer);
      return absl::OkStatus();
    }
    SecretVector<uint8_t> record(shape_.record_bytes);  // nobody waits for it any more
    return Finish(*online_answer_, answer, record);
  }

  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) override;

  absl::Status Advance(const DeltaView& delta) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    const Digest to = SetupId(delta.to);
    if (delta.from != behind_.value_or(id_) || (behind_.has_value() && to != id_)) {
      return absl::FailedPreconditionError("treepir: a delta between other epochs");
    }
    SHOAL_RETURN_IF_ERROR(TreePir().SizesOf(delta.to).status());
    if (!SameShape(setup_, delta.to) || delta.to.rows() != shape_.rows) {
      return absl::InvalidArgumentError("treepir: a delta to a table of another shape");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::vector<RowChange> changes,
                           ParseRowChanges(delta.changes, shape_.rows, shape_.record_bytes));
    // It reaches parities everywhere.
    SHOAL_RETURN_IF_ERROR(ReadParities());
    setup_ = delta.to;
    id_ = to;
    behind_.reset();
    part_.reset();
    // Both answers have to be of one epoch.
    online_answer_.reset();
    if (hints_ == nullptr) return absl::OkStatus();
    hints_->Advance(changes);
    return Save();
  }

 private:
  friend class TreeBatch;
  // What Prepare asked for last.
  enum class Part { kHints, kOnlineAnswer, kOfflineAnswer };

  bool IsReady() const { return hints_ != nullptr && hints_->complete() && !behind_.has_value(); }

  // For all hints with their XORs, what of them is being written, and both answers.
  absl::Status CheckRoom() const {
    return CheckMemory(shape_.client_bytes() + uint64_t{TreeHintsOf(shape_)} * shape_.record_bytes +
                           4 * answer_bytes_,
                       "treepir: the hints");
  }

  // All of them, if there are any that are not in memory. They are the state's end.
  absl::Status ReadParities() {
    if (hints_ == nullptr || hints_->parities_taken() == 0 || hints_->parities().whole()) {
      return absl::OkStatus();
    }
    SHOAL_RETURN_IF_ERROR(CheckRoom());
    hints_->parities().MakeWhole();
    const uint64_t bytes = uint64_t{hints_->parities_taken()} * shape_.record_bytes;
    return journal_.Read(journal_.state_bytes() - bytes, hints_->parities().all().first(bytes));
  }
  // That of one hint, once all are there.
  absl::Status ReadParityOf(uint32_t hint) {
    if (hints_->parities().whole()) return absl::OkStatus();
    SecretVector<uint8_t> parity(shape_.record_bytes);
    const uint64_t at = journal_.state_bytes() - shape_.parity_bytes();
    SHOAL_RETURN_IF_ERROR(journal_.Read(at + uint64_t{hint} * shape_.record_bytes, parity));
    hints_->parities().Put(hint, parity);
    return absl::OkStatus();
  }

  void Make(Seed key) {
    key_ = std::move(key);
    online_answer_.reset();
    hints_.reset();
    function_ = std::make_unique<TreeFunction>(shape_, DeriveTreeKeys(shape_, key_));
    hints_ = std::make_unique<TreeHints>(shape_, function_.get());
  }

  Bytes ShapeBytes() const {
    Bytes out;
    AppendLe<uint64_t>(out, shape_.rows);
    AppendLe<uint32_t>(out, shape_.record_bytes);
    AppendLe<uint32_t>(out, shape_.fan_bits);
    AppendLe<uint32_t>(out, shape_.hints);
    return out;
  }

  // Both leave the session unusable if they fail.
  absl::Status Save() {
    SecretVector<uint8_t> head = StateHead::Make(kHeadBytes, kMagic, id_, setup_, ShapeBytes());
    std::ranges::copy(key_.view(), head.begin() + kKeyAt);
    const SecretVector<uint8_t> hints = hints_->EncodeHead();
    const BytesView parts[] = {head, hints, hints_->taken_parities()};
    return journal_.Save(parts);
  }
  absl::Status Change(std::vector<TreeHints::Place> places) {
    Patches patches;
    for (TreeHints::Place& place : places) {
      patches.Add(kHeadBytes + place.at, std::move(place.bytes));
    }
    SHOAL_RETURN_IF_ERROR(journal_.Change(patches.get(), [&] { return Save(); }));
    hints_->parities().Forget();
    return absl::OkStatus();
  }
  // The query is there before it is sent.
  absl::Status Spend() {
    std::vector<TreeHints::Place> places;
    places.push_back({0, hints_->EncodeProgress()});
    return Change(std::move(places));
  }

  // Whether the entry can follow.
  bool Redo(BytesView entry) {
    const BytesView body = entry.subspan(1);
    switch (entry[0]) {
      case kHintsCame:
        return !body.empty() && hints_->TakeParities(body).ok();
      case kSpent:
        if (entry.size() != kSpentBytes || entry[21] > 1) return false;
        return hints_
            ->Redo({.row = LoadLe<uint64_t>(&entry[1]),
                    .query = LoadLe<uint64_t>(&entry[9]),
                    .hint = LoadLe<uint32_t>(&entry[17]),
                    .held = entry[21] == 1})
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

  Request NewRequest(Role role, uint32_t kind, BytesView body, uint64_t answer_bytes) const {
    Request request;
    request.role = role;
    request.kind = kind;
    request.answer_bytes = answer_bytes;
    request.body = ToBytes(id_);
    Append(request.body, body);
    return request;
  }
  // Of the query on its way, and what reads the answer at the row's chunk.
  Request Query(Role role, BytesView query, RandomSource& random) {
    Bytes body = ToBytes(query);
    if (reader_ != nullptr) {
      rlwe::SmallAsked& reading = role == Role::kOnline ? online_reading_ : offline_reading_;
      reading = reader_->Ask(shape_.ChunkOf(hints_->asked()->row), random);
      Append(body, std::exchange(reading.query, {}));
    }
    return NewRequest(role, kTreeQuery, body, answer_bytes_);
  }

  // Ends the query on its way with its answers.
  absl::Status Finish(BytesView online, BytesView offline, MutableBytes record) {
    const uint32_t hint = hints_->asked()->hint;
    SHOAL_RETURN_IF_ERROR(ReadParityOf(hint));
    // False if no hint held the row: then the record is zeros, which no party signed.
    if (reader_ == nullptr) {
      SHOAL_RETURN_IF_ERROR(hints_->Finish(online, offline, record).status());
    } else {
      SHOAL_ASSIGN_OR_RETURN(const auto online_sum, reader_->Recover(online_reading_, online));
      SHOAL_ASSIGN_OR_RETURN(const auto offline_sum, reader_->Recover(offline_reading_, offline));
      SHOAL_RETURN_IF_ERROR(hints_->FinishWith(online_sum, offline_sum, record).status());
      online_reading_ = offline_reading_ = {};
    }
    online_answer_.reset();
    return Change(hints_->PlacesOf(hint));
  }

  // What a record was tells the hints.
  absl::Status Judge(const TreeHints::Question& question, BytesView record, bool right) {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    if (hints_->HintsToJudge(question, right).empty()) return absl::OkStatus();
    // How many hints are without a record is another number now, and hints' places are others.
    SHOAL_RETURN_IF_ERROR(ReadParities());
    hints_->Judge(question, record, right);
    return Save();
  }

  wire::PirSetup setup_;
  Digest id_;
  const TreeShape shape_;
  const uint64_t answer_bytes_;
  const std::unique_ptr<rlwe::SmallClient> reader_;  // null: answers come whole
  Journal journal_;
  Seed key_;
  std::unique_ptr<TreeFunction> function_;
  std::unique_ptr<TreeHints> hints_;
  std::optional<Digest> behind_;
  std::optional<Part> part_;
  // The online server's answer to a query that was sent again, until the offline server's is there.
  std::optional<Bytes> online_answer_;
  // What reads the answers to the query on its way. It is not kept: a query that is sent again has
  // another.
  rlwe::SmallAsked online_reading_, offline_reading_;
};

class TreeBatch final : public Batch {
 public:
  TreeBatch(TreeSession* session, const Wanted& wanted)
      : session_(*session), rows_(wanted.rows.begin(), wanted.rows.end()), steps_(wanted.keys) {
    records_.reserve(rows_.size() * session->shape_.record_bytes);
  }

  uint64_t steps() const override { return steps_ - done_; }

  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(steps() > 0);
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    if (!session_.IsReady()) {
      return absl::FailedPreconditionError("treepir: the session was not prepared");
    }
    TreeHints& hints = *session_.hints_;
    const TreeShape& shape = session_.shape_;
    // A query for no key is one for any row.
    const uint64_t any = random.Below(shape.rows);
    const uint64_t row = done_ < rows_.size() ? rows_[done_] : any;
    const auto from = static_cast<uint32_t>(random.Below(shape.hints));
    Bytes online(shape.query_bytes()), offline(shape.query_bytes());
    SHOAL_RETURN_IF_ERROR(hints.Ask(row, from, online, offline));
    // Spent before it is sent.
    SHOAL_RETURN_IF_ERROR(session_.Spend());
    query_ = hints.asked()->query;
    std::vector<Request> requests;
    requests.push_back(session_.Query(Role::kOffline, offline, random));
    requests.push_back(session_.Query(Role::kOnline, online, random));
    return requests;
  }

  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == 2);
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    const auto& asked = session_.hints_->asked();
    if (!asked.has_value() || query_ != asked->query) {
      return absl::FailedPreconditionError("treepir: answers without their query");
    }
    SecretVector<uint8_t> record(session_.shape_.record_bytes);
    const TreeHints::Question question = *asked;
    SHOAL_RETURN_IF_ERROR(session_.Finish(answers[1], answers[0], record));
    query_.reset();
    questions_.push_back(question);
    SecretVector<uint8_t>& to = done_ < rows_.size() ? records_ : padding_;
    to.insert(to.end(), record.begin(), record.end());
    ++done_;
    return absl::OkStatus();
  }

  SecretVector<uint8_t> TakeRecords() override { return std::move(records_); }

  absl::Status Judge(BytesView records, const std::vector<bool>& right) override {
    return JudgeAll<TreeHints::Question>(
        {.questions = questions_,
         .record_bytes = session_.shape_.record_bytes,
         .records = records,
         .right = right,
         .padding = padding_},
        [&](const TreeHints::Question& question, BytesView record, bool is_right) {
          return session_.Judge(question, record, is_right);
        });
  }

 private:
  TreeSession& session_;
  const SecretVector<uint64_t> rows_;
  const uint64_t steps_;
  uint64_t done_ = 0;
  std::optional<uint64_t> query_;
  std::vector<TreeHints::Question> questions_;
  SecretVector<uint8_t> records_, padding_;
};

absl::StatusOr<std::unique_ptr<Batch>> TreeSession::Ask(const Wanted& wanted) {
  SHOAL_CHECK(wanted.rows.size() <= wanted.keys);
  SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
  if (needed(wanted.keys) != Need::kNothing) {
    return absl::FailedPreconditionError("treepir: the session was not prepared");
  }
  for (const uint64_t row : wanted.rows) {
    if (row >= shape_.rows) return absl::OutOfRangeError("treepir: no such row");
  }
  return std::make_unique<TreeBatch>(this, wanted);
}

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
