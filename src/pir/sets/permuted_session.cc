#include "src/pir/sets/permuted_session.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/sets/journal.h"
#include "src/pir/sets/permuted_pir.h"
#include "src/pir/sets/row_changes.h"
#include "src/pir/sets/state_head.h"
#include "src/storage/memory.h"

namespace shoal::pir::sets {
namespace {

// The state: a head, and what its last byte says. The head: the magic, the SetupId, the table's id,
// the shape (u64 rows, u32 record_bytes, u32 chunks), a Phase. Behind it
//   kPreparing  the seed, the parities that have come
//   kReady      zeros in the place of a question, u32 every place of the permutations, all parities
//   kAsking     a question (below), then as kReady
// Version 0.2 had nothing in the place of a question that there was none of.
constexpr absl::string_view kMagic = "SHOALPM2", kFirstMagic = "SHOALPM1";
constexpr size_t kStoredShapeBytes = 8 + 2 * 4, kPhaseAt = StateHead::kShapeAt + kStoredShapeBytes;
constexpr size_t kHeadBytes = kPhaseAt + 1;
enum Phase : uint8_t { kPreparing = 0, kReady = 1, kAsking = 2 };

// A record of the journal is one of these bytes, and
//   kPartCame   the next parities, and not the last ones
// Version 0.2 had queries in it, too, which are read and end up in a state:
//   kSpent      a question: u64 row, u32 dummy, for every chunk u32 the place that is exchanged
//   kAnswered   for every chunk what its exchange adds to two parities (PermutedTable::RedoFinish)
enum Entry : uint8_t { kPartCame = 1, kSpent = 2, kAnswered = 3 };

using Question = PermutedTable::Question;

uint64_t QuestionBytes(const PermutedShape& shape) { return 8 + 4 + 4 * uint64_t{shape.chunks}; }

SecretVector<uint8_t> EncodeQuestion(const Question& question) {
  SecretVector<uint8_t> out(8 + 4 + 4 * question.exchanged.size());
  StoreLe<uint64_t>(&out[0], question.row);
  StoreLe<uint32_t>(&out[8], question.dummy);
  for (size_t c = 0; c < question.exchanged.size(); ++c) {
    StoreLe<uint32_t>(&out[12 + 4 * c], question.exchanged[c]);
  }
  return out;
}

// Of QuestionBytes.
Question DecodeQuestion(BytesView encoded) {
  Question question = {.row = LoadLe<uint64_t>(&encoded[0]),
                       .dummy = LoadLe<uint32_t>(&encoded[8]),
                       .exchanged = SecretVector<uint32_t>((encoded.size() - 12) / 4)};
  for (size_t c = 0; c < question.exchanged.size(); ++c) {
    question.exchanged[c] = LoadLe<uint32_t>(&encoded[12 + 4 * c]);
  }
  return question;
}

SecretVector<uint8_t> EncodeEntry(Entry entry, BytesView body) {
  SecretVector<uint8_t> out(1 + body.size());
  out[0] = entry;
  std::ranges::copy(body, out.begin() + 1);
  return out;
}

absl::Status Malformed() { return MalformedState("permuted"); }

class PermutedSession final : public Session {
 public:
  PermutedSession(const wire::PirSetup& setup, const PermutedShape& shape,
                  const SessionOptions& options)
      : setup_(setup),
        id_(SetupId(setup)),
        shape_(shape),
        check_(options.check),
        // A question, m + 1 parities, 2 m places of permutations.
        journal_(options.store, 2 + 3 * uint64_t{shape.chunks},
                 1 + QuestionBytes(shape) + (1 + uint64_t{shape.chunks}) * shape.record_bytes +
                     2 * sizeof(uint32_t) * uint64_t{shape.chunks}) {}

  // Takes what the store has. The parities of a session that can answer stay there: a query reads
  // those that it needs. All permutations are read: which of them a query looks at, its row
  // decides.
  absl::Status Load() {
    const uint64_t bytes = journal_.state_bytes();
    if (bytes == 0) return CheckRoom();
    SHOAL_ASSIGN_OR_RETURN(
        const SecretVector<uint8_t> head,
        StateHead::Read(journal_, kHeadBytes, {{kMagic, kFirstMagic}}, setup_, "permuted"));
    const BytesView saved = head;
    const bool is_first = AsText(saved.first(kFirstMagic.size())) == kFirstMagic;
    // Another shape: nothing leads there, and nothing is lost that the next state replaces.
    if (!std::ranges::equal(saved.subspan(StateHead::kShapeAt, kStoredShapeBytes), ShapeBytes())) {
      return CheckRoom();
    }
    SHOAL_RETURN_IF_ERROR(Decode(saved[kPhaseAt], is_first));
    SHOAL_RETURN_IF_ERROR(journal_.ForEach(
        [&](BytesView entry) { return Redo(entry) ? absl::OkStatus() : Malformed(); }));
    behind_ = StateHead::Behind(saved, id_);
    // What an earlier version kept of queries goes. (One that is behind is saved by Advance.)
    return IsReady() && (is_first || !journal_.CanChange()) ? Save() : absl::OkStatus();
  }

  const wire::PirSetup& setup() const override { return setup_; }
  std::optional<Digest> behind() const override { return behind_; }
  Need needed(uint64_t) const override {
    return IsReady() && !table_->asked().has_value() ? Need::kNothing : Need::kRequests;
  }
  Progress progress() const override {
    const bool begun = table_.has_value() && !behind_.has_value();
    return {.done = begun ? table_->parities_added() : 0, .total = shape_.chunk_rows};
  }
  uint64_t KeysPerStep() const override { return 1; }

  absl::StatusOr<Request> Prepare(RandomSource& random) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    if (!table_.has_value() || behind_.has_value()) {
      SHOAL_RETURN_IF_ERROR(CheckRoom());
      behind_.reset();
      online_answer_.reset();
      seed_ = random.NewSeed();
      table_.emplace(shape_, PermutationsOf(shape_, *seed_));
      // Durable before the offline server knows it.
      SHOAL_RETURN_IF_ERROR(Save());
    }
    part_.reset();
    if (!table_->complete()) {
      part_ = Part::kParities;
      const uint32_t first = table_->parities_added();
      Bytes body = ToBytes(seed_->view());
      AppendLe<uint32_t>(body, first);
      const uint64_t count = std::min(PermutedPartOf(shape_), shape_.chunk_rows - first);
      return NewRequest(Role::kOffline, kPermutedParities, body, count * shape_.record_bytes);
    }
    if (!table_->asked().has_value()) {
      return absl::FailedPreconditionError("permuted: nothing is to be prepared");
    }
    // A query whose answers were lost, or wrong. It is sent as it was: the servers learn nothing
    // new.
    part_ = online_answer_.has_value() ? Part::kOfflineAnswer : Part::kOnlineAnswer;
    const auto [offline, online] = Queries();
    return part_ == Part::kOfflineAnswer ? Query(Role::kOffline, offline)
                                         : Query(Role::kOnline, online);
  }

  absl::Status TakePrepared(BytesView answer) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    if (!part_.has_value()) {
      return absl::FailedPreconditionError("permuted: an answer before its request");
    }
    const Part part = *std::exchange(part_, std::nullopt);
    if (part == Part::kParities) return TakeParities(answer);
    if (answer.size() != shape_.answer_bytes()) {
      return absl::InvalidArgumentError("permuted: an answer of the wrong length");
    }
    const auto [offline, online] = Queries();
    if (part == Part::kOnlineAnswer) {
      SHOAL_RETURN_IF_ERROR(Check(Role::kOnline, online, answer));
      online_answer_ = ToBytes(answer);
      return absl::OkStatus();
    }
    SHOAL_RETURN_IF_ERROR(Check(Role::kOffline, offline, answer));
    SecretVector<uint8_t> record(shape_.record_bytes);  // nobody waits for it any more
    return End(*online_answer_, answer, record);
  }

  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) override;

  absl::Status Advance(const DeltaView& delta) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    const Digest to = SetupId(delta.to);
    if (delta.from != behind_.value_or(id_) || (behind_.has_value() && to != id_)) {
      return absl::FailedPreconditionError("permuted: a delta between other epochs");
    }
    SHOAL_RETURN_IF_ERROR(PermutedPir().SizesOf(delta.to).status());
    if (!SameShape(setup_, delta.to) || delta.to.rows() != shape_.rows) {
      return absl::InvalidArgumentError("permuted: a delta to a table of another shape");
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
    if (!table_.has_value()) return absl::OkStatus();
    for (const RowChange& change : changes) {
      SHOAL_RETURN_IF_ERROR(table_->Change(change.row, change.difference));
    }
    return Save();
  }

 private:
  friend class PermutedBatch;
  // What Prepare asked for last.
  enum class Part { kParities, kOnlineAnswer, kOfflineAnswer };

  bool IsReady() const { return table_.has_value() && table_->complete() && !behind_.has_value(); }

  // Permutations twice, as they are written and read as bytes; beside the parities a part of them
  // that is being written, and both answers, their queries' changes and their records' copies.
  absl::Status CheckRoom() const {
    return CheckMemory(shape_.parity_bytes() + 2 * sizeof(uint32_t) * shape_.places() +
                           uint64_t{PermutedPartOf(shape_)} * shape_.record_bytes +
                           4 * shape_.answer_bytes(),
                       "permuted: the parities");
  }

  // All of them, if there are any that are not in memory. They are the state's end.
  absl::Status ReadParities() {
    if (!table_.has_value() || table_->parities().whole()) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(CheckRoom());
    table_->parities().MakeWhole();
    return journal_.Read(journal_.state_bytes() - shape_.parity_bytes(), table_->parities().all());
  }
  // Those that the end of the question changes.
  absl::Status ReadParitiesOf(const Question& question) {
    if (table_->parities().whole()) return absl::OkStatus();
    const uint64_t at = journal_.state_bytes() - shape_.parity_bytes();
    SecretVector<uint8_t> parity(shape_.record_bytes);
    const auto read = [&](uint32_t place) -> absl::Status {
      SHOAL_RETURN_IF_ERROR(journal_.Read(at + uint64_t{place} * shape_.record_bytes, parity));
      table_->parities().Put(place, parity);
      return absl::OkStatus();
    };
    SHOAL_RETURN_IF_ERROR(read(table_->place()));
    for (const uint32_t place : question.exchanged) SHOAL_RETURN_IF_ERROR(read(place));
    return absl::OkStatus();
  }

  Bytes ShapeBytes() const {
    Bytes out;
    AppendLe<uint64_t>(out, shape_.rows);
    AppendLe<uint32_t>(out, shape_.record_bytes);
    AppendLe<uint32_t>(out, shape_.chunks);
    return out;
  }

  // Both leave the session unusable if they fail.
  absl::Status Save() {
    SecretVector<uint8_t> head = StateHead::Make(kHeadBytes, kMagic, id_, setup_, ShapeBytes());
    const auto& asked = table_->asked();
    head[kPhaseAt] = seed_.has_value() ? kPreparing : asked.has_value() ? kAsking : kReady;
    if (seed_.has_value()) {
      const BytesView parts[] = {head, seed_->view(), table_->added_parities()};
      return journal_.Save(parts);
    }
    SecretVector<uint8_t> question(QuestionBytes(shape_));
    if (asked.has_value()) question = EncodeQuestion(*asked);
    const SecretVector<uint32_t>& places = table_->permutations();
    SecretVector<uint8_t> permutations(places.size() * sizeof(uint32_t));
    for (size_t i = 0; i < places.size(); ++i) {
      StoreLe<uint32_t>(&permutations[i * sizeof(uint32_t)], places[i]);
    }
    const BytesView parts[] = {head, question, permutations, table_->added_parities()};
    return journal_.Save(parts);
  }
  absl::Status Change(const Patches& patches) {
    SHOAL_RETURN_IF_ERROR(journal_.Change(patches.get(), [&] { return Save(); }));
    table_->parities().Forget();
    return absl::OkStatus();
  }
  // The question takes its place before it is sent.
  absl::Status Spend() {
    SecretVector<uint8_t> asking = {kAsking};
    const SecretVector<uint8_t> question = EncodeQuestion(*table_->asked());
    asking.insert(asking.end(), question.begin(), question.end());
    Patches patches;
    patches.Add(kPhaseAt, std::move(asking));
    return Change(patches);
  }
  uint64_t StateBytes() const { return shape_.parity_bytes() + sizeof(uint32_t) * shape_.places(); }

  // Takes what Save has written behind the head. DATA_LOSS if it is not that.
  absl::Status Decode(uint8_t phase, bool is_first) {
    const uint64_t bytes = journal_.state_bytes() - kHeadBytes;
    if (phase == kPreparing) {
      SHOAL_RETURN_IF_ERROR(CheckRoom());
      // With all parities it would be another phase.
      if (bytes < Seed::size() || bytes - Seed::size() >= shape_.parity_bytes() ||
          (bytes - Seed::size()) % shape_.record_bytes != 0) {
        return Malformed();
      }
      Seed seed;
      SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes, seed.mutable_view()));
      seed_ = std::move(seed);
      table_.emplace(shape_, PermutationsOf(shape_, *seed_));
      SecretVector<uint8_t> parities(bytes - Seed::size());
      SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes + Seed::size(), parities));
      table_->AddParities(parities);
      return absl::OkStatus();
    }
    SecretVector<uint8_t> question(phase == kAsking || !is_first ? QuestionBytes(shape_) : 0);
    if (phase > kAsking || bytes != question.size() + StateBytes()) return Malformed();
    // Beside the permutations as they are kept, and which of a chunk were seen.
    SHOAL_RETURN_IF_ERROR(
        CheckMemory(2 * sizeof(uint32_t) * shape_.places(), "permuted: the permutations"));
    SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes, question));
    SecretVector<uint32_t> places(shape_.places());
    {
      SecretVector<uint8_t> kept(sizeof(uint32_t) * shape_.places());
      SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes + question.size(), kept));
      for (size_t i = 0; i < places.size(); ++i) {
        places[i] = LoadLe<uint32_t>(&kept[i * sizeof(uint32_t)]);
      }
    }
    auto table = PermutedTable::Restore(shape_, std::move(places));
    if (!table.ok()) return Malformed();
    table_.emplace(*std::move(table));
    if (is_first || !journal_.CanChange()) SHOAL_RETURN_IF_ERROR(ReadParities());
    if (phase == kAsking && !table_->Redo(DecodeQuestion(question)).ok()) return Malformed();
    return absl::OkStatus();
  }

  // Whether the entry can follow.
  bool Redo(BytesView entry) {
    const BytesView body = entry.subspan(1);
    switch (entry[0]) {
      case kPartCame:
        if (body.empty() || body.size() % shape_.record_bytes != 0 ||
            body.size() >= shape_.parity_bytes() - table_->added_parities().size()) {
          return false;
        }
        table_->AddParities(body);
        return true;
      case kSpent:
        return body.size() == QuestionBytes(shape_) && table_->Redo(DecodeQuestion(body)).ok();
      case kAnswered:
        return table_->RedoFinish(body).ok();
      default:
        return false;
    }
  }

  absl::Status TakeParities(BytesView answer) {
    const uint32_t first = table_->parities_added();
    const uint64_t count = std::min(PermutedPartOf(shape_), shape_.chunk_rows - first);
    if (answer.size() != count * shape_.record_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("permuted: ", answer.size(), " bytes of parities"));
    }
    table_->AddParities(answer);
    if (!table_->complete()) return journal_.Append(EncodeEntry(kPartCame, answer));
    // Whoever finds the state later cannot undo the exchanges.
    seed_.reset();
    return Save();
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
  Request Query(Role role, BytesView query) const {
    return NewRequest(role, kPermutedQuery, query, shape_.answer_bytes());
  }
  // Of the query on its way: to the offline and to the online server.
  std::array<Bytes, 2> Queries() const {
    std::array<Bytes, 2> queries = {Bytes(shape_.query_bytes()), Bytes(shape_.query_bytes())};
    table_->AskAgain(queries[1], queries[0]);
    return queries;
  }

  // Whether every record of an answer is the table's: all are looked at, and the server knows which
  // rows they are of, so that a failure tells it nothing. As many are verified whatever is asked
  // for: each server can see how long both answers take, and knows only its own rows. DATA_LOSS,
  // and nothing is changed.
  absl::Status Check(Role role, BytesView query, BytesView answer) const {
    if (check_ == nullptr) return absl::OkStatus();
    std::vector<uint64_t> rows = table_->RowsOf(query);
    // Only the last row may be behind the table's end.
    Bytes records = ToBytes(answer);
    bool zeros = true;
    if (rows.back() >= shape_.rows) {
      const MutableBytes last = MutableBytes(records).last(shape_.record_bytes);
      zeros = std::ranges::all_of(last, [](uint8_t byte) { return byte == 0; });
      // The first one a second time, in its place.
      rows.back() = rows.front();
      std::ranges::copy(answer.first(shape_.record_bytes), last.begin());
    }
    const absl::Status checked = check_(rows, records);
    if (zeros && checked.ok()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "permuted: the ", RoleName(role),
        " server's answer has records that the parties have not signed: nothing of it is used, and "
        "the same query is sent again before the next one: ",
        checked.message()));
  }

  // Ends the query on its way with its answers.
  absl::Status End(BytesView online, BytesView offline, MutableBytes record) {
    const Question question = *table_->asked();
    const uint32_t place = table_->place();
    SHOAL_RETURN_IF_ERROR(ReadParitiesOf(question));
    table_->Finish(online, offline, record);
    online_answer_.reset();
    // Where the rows and the parities are that were exchanged, as many of them for every question.
    Patches patches;
    SecretVector<uint8_t> ready(1 + QuestionBytes(shape_));
    ready[0] = kReady;
    patches.Add(kPhaseAt, std::move(ready));
    const uint64_t permutations_at = kHeadBytes + QuestionBytes(shape_);
    const uint64_t parities_at = permutations_at + sizeof(uint32_t) * shape_.places();
    const auto add_parity = [&](uint32_t parity) {
      patches.Add(parities_at + uint64_t{parity} * shape_.record_bytes,
                  std::as_const(*table_).parities().At(parity));
    };
    add_parity(place);
    for (uint32_t chunk = 0; chunk < shape_.chunks; ++chunk) {
      const uint32_t with = question.exchanged[chunk];
      for (const uint32_t changed : {place, with}) {
        const uint64_t at = uint64_t{chunk} * shape_.chunk_rows + changed;
        SecretVector<uint8_t> offset(sizeof(uint32_t));
        StoreLe<uint32_t>(offset.data(), table_->permutations()[at]);
        patches.Add(permutations_at + at * sizeof(uint32_t), std::move(offset));
      }
      add_parity(with);
    }
    return Change(patches);
  }

  wire::PirSetup setup_;
  Digest id_;
  const PermutedShape shape_;
  const RecordCheck check_;
  Journal journal_;
  std::optional<Seed> seed_;  // until all parities have come
  std::optional<PermutedTable> table_;
  std::optional<Digest> behind_;
  std::optional<Part> part_;
  // The online server's answer to a query that was sent again, until the offline server's is there.
  std::optional<Bytes> online_answer_;
};

class PermutedBatch final : public Batch {
 public:
  PermutedBatch(PermutedSession* session, const Wanted& wanted)
      : session_(*session), rows_(wanted.rows.begin(), wanted.rows.end()), steps_(wanted.keys) {
    records_.reserve(rows_.size() * session->shape_.record_bytes);
  }

  uint64_t steps() const override { return steps_ - done_; }

  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(steps() > 0);
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    if (!session_.IsReady()) {
      return absl::FailedPreconditionError("permuted: the session was not prepared");
    }
    PermutedTable& table = *session_.table_;
    const PermutedShape& shape = session_.shape_;
    // A query for no key is one for any row.
    const uint64_t any = random.Below(shape.rows);
    const uint64_t row = done_ < rows_.size() ? rows_[done_] : any;
    Bytes online(shape.query_bytes()), offline(shape.query_bytes());
    SHOAL_RETURN_IF_ERROR(table.Ask(row, random, online, offline));
    // Spent before it is sent.
    SHOAL_RETURN_IF_ERROR(session_.Spend());
    asked_in_ = session_.id_;
    std::vector<Request> requests;
    requests.push_back(session_.Query(Role::kOffline, offline));
    requests.push_back(session_.Query(Role::kOnline, online));
    return requests;
  }

  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == 2);
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    // Answers of an earlier epoch would spoil parities.
    if (asked_in_ != session_.id_ || !session_.table_->asked().has_value()) {
      return absl::FailedPreconditionError("permuted: answers without their query");
    }
    const PermutedShape& shape = session_.shape_;
    for (const BytesView answer : answers) {
      if (answer.size() != shape.answer_bytes()) {
        return absl::InvalidArgumentError("permuted: an answer of the wrong length");
      }
    }
    const auto [offline, online] = session_.Queries();
    const absl::Status checks[] = {session_.Check(Role::kOffline, offline, answers[0]),
                                   session_.Check(Role::kOnline, online, answers[1])};
    for (const absl::Status& check : checks) SHOAL_RETURN_IF_ERROR(check);
    SecretVector<uint8_t> record(shape.record_bytes);
    SHOAL_RETURN_IF_ERROR(session_.End(answers[1], answers[0], record));
    asked_in_.reset();
    if (done_ < rows_.size()) records_.insert(records_.end(), record.begin(), record.end());
    ++done_;
    return absl::OkStatus();
  }

  SecretVector<uint8_t> TakeRecords() override { return std::move(records_); }

 private:
  PermutedSession& session_;
  const SecretVector<uint64_t> rows_;
  const uint64_t steps_;
  uint64_t done_ = 0;
  std::optional<Digest> asked_in_;  // the setup of this batch's query on its way
  SecretVector<uint8_t> records_;
};

absl::StatusOr<std::unique_ptr<Batch>> PermutedSession::Ask(const Wanted& wanted) {
  SHOAL_CHECK(wanted.rows.size() <= wanted.keys);
  SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
  if (needed(wanted.keys) != Need::kNothing) {
    return absl::FailedPreconditionError("permuted: the session was not prepared");
  }
  for (const uint64_t row : wanted.rows) {
    if (row >= shape_.rows) return absl::OutOfRangeError("permuted: no such row");
  }
  return std::make_unique<PermutedBatch>(this, wanted);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> OpenPermutedSession(const wire::PirSetup& setup,
                                                             const SessionOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const PermutedShape shape, PermutedShapeOf(setup));
  auto session = std::make_unique<PermutedSession>(setup, shape, options);
  SHOAL_RETURN_IF_ERROR(session->Load());
  return session;
}

}  // namespace shoal::pir::sets
