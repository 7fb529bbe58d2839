#include "src/pir/sets/piano_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/journal.h"
#include "src/pir/sets/judge.h"
#include "src/pir/sets/piano.h"
#include "src/pir/sets/row_changes.h"
#include "src/pir/sets/state_head.h"
#include "src/pir/sets/stream.h"
#include "src/storage/memory.h"

namespace shoal::pir::sets {
namespace {

// The state: a head, the digests of all chunks while some are to come, and the table of hints once
// it has a chunk (HintTable::DecodeHead). The head: the magic, the SetupId, the table's id, u64
// rows, u32 record_bytes, u32 queries, the key, u8 whether the digests are there, u8 whether the
// table is.
constexpr absl::string_view kMagic = "SHOALPN1";
constexpr size_t kKeyAt = StateHead::kShapeAt + 16, kKeyBytes = 16;
constexpr size_t kFlagsAt = kKeyAt + kKeyBytes, kHeadBytes = kFlagsAt + 2;

// A record of the journal is one of these bytes, and
//   kDigestsCame  the digests of all chunks
//   kChunkCame    the records of the next chunk, and not of the last one
// Version 0.2 had queries in it, too, which are read and end up in a state:
//   kSpent        a query: u64 row, u32 backup, u32 hint, u16 dummy, u8 coin, u8 held
//   kAnswered     the record that came of it
//   kJudged       a hint after HintTable::Judge: u32 hint, u8 whether its XOR is without the record
//                 of the row beside, its XOR
enum Entry : uint8_t { kDigestsCame = 1, kChunkCame = 2, kSpent = 3, kAnswered = 4, kJudged = 5 };
constexpr size_t kJudgedHeadBytes = 1 + 4 + 1;
constexpr size_t kSpentBytes = 1 + 8 + 4 + 4 + 2 + 1 + 1;

// What is in memory for a set whatever happens: a hint or a backup without XORs, its choices of a
// pass, and the bytes that it was read from.
constexpr uint64_t kBytesOfSet = 64;

absl::Status Malformed() { return MalformedState("piano"); }

class PianoSession final : public Session {
 public:
  PianoSession(const wire::PirSetup& setup, const SetShape& shape, SessionStore* store)
      : setup_(setup),
        id_(SetupId(setup)),
        shape_(shape),
        pieces_(shape),
        // Progress, a hint's set and XOR, both XORs of a backup.
        journal_(store, 4,
                 HintTable::kHeadBytes + HintTable::kHintBytes + 3 * uint64_t{shape.record_bytes}) {
  }

  // Takes what the store has. The XORs of a session that can answer stay there: a query reads those
  // that it needs.
  absl::Status Load() {
    const uint64_t bytes = journal_.state_bytes();
    if (bytes == 0) return CheckRoom();
    SHOAL_ASSIGN_OR_RETURN(const SecretVector<uint8_t> head,
                           StateHead::Read(journal_, kHeadBytes, {{kMagic}}, setup_, "piano"));
    const BytesView saved = head;
    // A table that has another number of rows now: nothing leads there, and nothing is lost that
    // the next state replaces.
    if (!std::ranges::equal(saved.subspan(StateHead::kShapeAt, 16), ShapeBytes()))
      return CheckRoom();
    const uint8_t with_digests = saved[kFlagsAt], with_table = saved[kFlagsAt + 1];
    if (with_digests > 1 || with_table > 1) return Malformed();
    const uint64_t digests_bytes = with_digests * pieces_.digests_bytes();
    if (bytes != kHeadBytes + digests_bytes + with_table * HintTable::StateBytes(shape_)) {
      return Malformed();
    }
    SHOAL_RETURN_IF_ERROR(CheckMemory(kBytesOfSet * shape_.sets(), "piano: the sets"));
    Make(SecretArray<kKeyBytes>(saved.subspan(kKeyAt, kKeyBytes)), /*whole=*/false);
    if (with_table == 1) {
      SecretVector<uint8_t> hints(HintTable::AllHeadBytes(shape_));
      SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes + digests_bytes, hints));
      if (!table_->DecodeHead(hints).ok()) return Malformed();
    }
    if (table_->complete() && with_digests == 1) return Malformed();
    if (!table_->complete() || !journal_.CanChange()) SHOAL_RETURN_IF_ERROR(ReadParities());
    digests_.resize(digests_bytes);
    SHOAL_RETURN_IF_ERROR(journal_.Read(kHeadBytes, digests_));
    SHOAL_RETURN_IF_ERROR(journal_.ForEach(
        [&](BytesView entry) { return Redo(entry) ? absl::OkStatus() : Malformed(); }));
    AddWaiting();
    behind_ = StateHead::Behind(saved, id_);
    // What an earlier version kept of queries goes. (One that is behind is saved by Advance.)
    return IsReady() && !journal_.CanChange() ? Save() : absl::OkStatus();
  }

  const wire::PirSetup& setup() const override { return setup_; }
  std::optional<Digest> behind() const override { return behind_; }
  Need needed(uint64_t) const override {
    return IsReady() && !table_->asked() ? Need::kNothing : Need::kRequests;
  }
  Progress progress() const override {
    const bool begun = table_ != nullptr && !behind_.has_value();
    return {.done = begun ? Chunks() : 0, .total = shape_.chunks};
  }
  std::optional<uint64_t> Budget() const override { return IsReady() ? table_->backups_left() : 0; }
  uint64_t KeysPerStep() const override { return 1; }

  absl::StatusOr<Request> Prepare(RandomSource& random) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    if (table_ == nullptr || behind_.has_value()) {
      SHOAL_RETURN_IF_ERROR(CheckRoom());
      SecretArray<kKeyBytes> key;
      random.Fill(key.mutable_view());
      behind_.reset();
      digests_.clear();
      Make(std::move(key), /*whole=*/true);
      SHOAL_RETURN_IF_ERROR(Save());
    }
    part_.reset();
    if (!table_->complete() && digests_.empty()) {
      part_ = Part::kOfDigests;
      const uint64_t at = arriving_.size();
      return NewRequest(kDigests, at, pieces_.DigestsPiece(at));
    }
    if (!table_->complete()) {
      part_ = Part::kOfChunk;
      const StreamPieces::Piece piece = NextPiece();
      return NewRequest(kRecords, piece.first_row, piece.rows * shape_.record_bytes);
    }
    if (!table_->asked().has_value()) {
      return absl::FailedPreconditionError("piano: nothing is to be prepared");
    }
    // A query whose answer was lost. It is sent as it was: the server learns nothing new.
    part_ = Part::kAnswer;
    return Query([&](std::span<Choice> query) { table_->Repeat(query); });
  }

  absl::Status TakePrepared(BytesView answer) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    if (!part_.has_value()) {
      return absl::FailedPreconditionError("piano: an answer before its request");
    }
    const Part part = *std::exchange(part_, std::nullopt);
    switch (part) {
      case Part::kOfDigests:
        return TakeDigests(answer);
      case Part::kOfChunk:
        return TakeRecords(answer);
      case Part::kAnswer: {
        SecretVector<uint8_t> record(shape_.record_bytes);
        return Finish(answer, record);
      }
    }
    SHOAL_CHECK(false);
  }

  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) override;

  absl::Status Advance(const DeltaView& delta) override {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    const Digest to = SetupId(delta.to);
    if (delta.from != behind_.value_or(id_) || (behind_.has_value() && to != id_)) {
      return absl::FailedPreconditionError("piano: a delta between other epochs");
    }
    SHOAL_RETURN_IF_ERROR(Piano().SizesOf(delta.to).status());
    if (!SameShape(setup_, delta.to) || delta.to.rows() != shape_.rows) {
      return absl::InvalidArgumentError("piano: a delta to a table of another shape");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::vector<RowChange> changes,
                           ParseRowChanges(delta.changes, shape_.rows, shape_.record_bytes));
    // It reaches parities everywhere.
    SHOAL_RETURN_IF_ERROR(ReadParities());
    setup_ = delta.to;
    id_ = to;
    behind_.reset();
    part_.reset();
    // Of chunks that are to come, the next epoch's are asked for.
    digests_.clear();
    arriving_.clear();
    if (table_ == nullptr) return absl::OkStatus();
    AddWaiting();
    table_->Advance(changes);
    return Save();
  }

 private:
  friend class PianoBatch;
  // What Prepare asked for last.
  enum class Part { kOfDigests, kOfChunk, kAnswer };

  bool IsReady() const { return table_ != nullptr && table_->complete() && !behind_.has_value(); }

  // For all hints with their XORs. A pass over the sets has a choice of each; a chunk is in memory
  // twice when it goes to the journal, and some wait.
  absl::Status CheckRoom() const {
    return CheckMemory(
        HintTable::StateBytes(shape_) + sizeof(Choice) * shape_.sets() +
            (2 + HintTable::kChunksTogether) * pieces_.ChunkRows(0) * shape_.record_bytes +
            2 * pieces_.digests_bytes(),
        "piano: the hints");
  }

  // Where the state has what queries change, once the digests of chunks are gone.
  uint64_t ParityAt(uint32_t hint) const {
    return kHeadBytes + HintTable::AllHeadBytes(shape_) + uint64_t{hint} * shape_.record_bytes;
  }
  uint64_t BackupAt(uint32_t backup) const {
    return ParityAt(shape_.hints) + 2 * uint64_t{backup} * shape_.record_bytes;
  }
  // All of them, if they are not in memory.
  absl::Status ReadParities() {
    if (table_ == nullptr || table_->parities().whole()) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(CheckRoom());
    table_->parities().MakeWhole();
    table_->backup_parities().MakeWhole();
    if (table_->chunks_added() == 0) return absl::OkStatus();
    const uint64_t at = journal_.state_bytes() - shape_.parity_bytes();
    const MutableBytes of_hints = table_->parities().all();
    SHOAL_RETURN_IF_ERROR(journal_.Read(at, of_hints));
    return journal_.Read(at + of_hints.size(), table_->backup_parities().all());
  }
  // Those that one call needs.
  absl::Status ReadParitiesOf(std::span<const uint32_t> hints,
                              std::optional<uint32_t> backup = std::nullopt) {
    if (table_->parities().whole()) return absl::OkStatus();
    SecretVector<uint8_t> parity(shape_.record_bytes), of_backup(2 * uint64_t{shape_.record_bytes});
    for (const uint32_t hint : hints) {
      SHOAL_RETURN_IF_ERROR(journal_.Read(ParityAt(hint), parity));
      table_->parities().Put(hint, parity);
    }
    if (backup.has_value()) {
      SHOAL_RETURN_IF_ERROR(journal_.Read(BackupAt(*backup), of_backup));
      table_->backup_parities().Put(*backup, of_backup);
    }
    return absl::OkStatus();
  }

  // Chunks that have come.
  uint32_t Chunks() const { return table_->chunks_added() + waiting_chunks_; }
  // The table takes a few chunks at a time.
  void Wait(BytesView records) {
    Append(waiting_, records);
    if (++waiting_chunks_ == HintTable::kChunksTogether || Chunks() == shape_.chunks) AddWaiting();
  }
  void AddWaiting() {
    if (waiting_chunks_ == 0) return;
    table_->AddChunks(table_->chunks_added(), waiting_chunks_, waiting_);
    waiting_chunks_ = 0;
    waiting_ = {};
  }

  void Make(SecretArray<kKeyBytes> key, bool whole) {
    key_ = std::move(key);
    waiting_ = {};
    waiting_chunks_ = 0;
    table_.reset();
    sets_ = std::make_unique<SetFunction>(key_, shape_.offset_bits);
    table_ = std::make_unique<HintTable>(shape_, sets_.get(), whole);
    arriving_.clear();
  }

  Bytes ShapeBytes() const {
    Bytes out;
    AppendLe<uint64_t>(out, shape_.rows);
    AppendLe<uint32_t>(out, shape_.record_bytes);
    AppendLe<uint32_t>(out, shape_.backups);
    return out;
  }

  // Both leave the session unusable if they fail.
  absl::Status Save() {
    AddWaiting();
    SecretVector<uint8_t> head = StateHead::Make(kHeadBytes, kMagic, id_, setup_, ShapeBytes());
    std::ranges::copy(key_.view(), head.begin() + kKeyAt);
    head[kFlagsAt] = !digests_.empty();
    head[kFlagsAt + 1] = table_->chunks_added() > 0;
    std::vector<BytesView> parts = {head, digests_};
    SecretVector<uint8_t> hints;
    if (table_->chunks_added() > 0) {
      hints = table_->EncodeHead();
      parts.insert(parts.end(), {hints, std::as_const(*table_).parities().all(),
                                 std::as_const(*table_).backup_parities().all()});
    }
    return journal_.Save(parts);
  }
  absl::Status Write(BytesView entry) {
    SHOAL_RETURN_IF_ERROR(journal_.Append(entry));
    return journal_.IsLong(HintTable::StateBytes(shape_)) ? Save() : absl::OkStatus();
  }

  absl::Status Change(const Patches& patches) {
    SHOAL_RETURN_IF_ERROR(journal_.Change(patches.get(), [&] { return Save(); }));
    table_->parities().Forget();
    table_->backup_parities().Forget();
    return absl::OkStatus();
  }
  void AddHint(uint32_t hint, Patches& patches) const {
    patches.Add(kHeadBytes + HintTable::kHeadBytes + uint64_t{hint} * HintTable::kHintBytes,
                table_->EncodeHint(hint));
    patches.Add(ParityAt(hint), std::as_const(*table_).parities().At(hint));
  }
  // The query is there before it is sent.
  absl::Status Spend() {
    Patches patches;
    patches.Add(kHeadBytes, table_->EncodeProgress());
    return Change(patches);
  }

  // Whether the entry can follow.
  bool Redo(BytesView entry) {
    const BytesView body = entry.subspan(1);
    switch (entry[0]) {
      case kDigestsCame:
        if (table_->complete() || body.size() != pieces_.digests_bytes()) return false;
        digests_ = ToBytes(body);
        return true;
      case kChunkCame: {
        if (Chunks() == shape_.chunks) return false;
        if (body.size() != pieces_.ChunkRows(Chunks()) * shape_.record_bytes) return false;
        Wait(body);
        return true;
      }
      case kSpent: {
        if (entry.size() != kSpentBytes || entry[19] > 1 || entry[20] > 1) return false;
        return table_
            ->Redo({.row = LoadLe<uint64_t>(&entry[1]),
                    .backup = LoadLe<uint32_t>(&entry[9]),
                    .hint = LoadLe<uint32_t>(&entry[13]),
                    .dummy = LoadLe<uint16_t>(&entry[17]),
                    .coin = entry[19] == 1,
                    .held = entry[20] == 1})
            .ok();
      }
      case kAnswered:
        return table_->RedoFinish(body).ok();
      case kJudged:
        return entry.size() >= kJudgedHeadBytes && entry[5] <= 1 &&
               table_
                   ->RedoJudge(LoadLe<uint32_t>(&entry[1]), entry[5] == 1,
                               entry.subspan(kJudgedHeadBytes))
                   .ok();
      default:
        return false;
    }
  }

  Request NewRequest(Kind kind, uint64_t at, uint64_t answer_bytes) const {
    Request request;
    request.kind = kind;
    request.answer_bytes = answer_bytes;
    request.body = ToBytes(id_);
    AppendLe<uint64_t>(request.body, at);
    return request;
  }

  // The request whose choices `choose` writes.
  template <typename Choose>
  Request Query(const Choose& choose) const {
    SecretVector<Choice> query(shape_.chunks);
    choose(query);
    Request request;
    request.kind = kQuery;
    request.answer_bytes = 2 * uint64_t{shape_.record_bytes};
    request.body = ToBytes(id_);
    request.body.resize(sizeof(Digest) + shape_.query_bytes());
    EncodeQuery(shape_, query, MutableBytes(request.body).subspan(sizeof(Digest)));
    return request;
  }

  StreamPieces::Piece NextPiece() const {
    return pieces_.At(Chunks(), arriving_.size() / shape_.record_bytes);
  }

  absl::Status TakeDigests(BytesView answer) {
    if (answer.size() != pieces_.DigestsPiece(arriving_.size())) {
      return absl::InvalidArgumentError("piano: a piece of the digests of another length");
    }
    Append(arriving_, answer);
    if (arriving_.size() < pieces_.digests_bytes()) return absl::OkStatus();
    const Bytes digests = std::exchange(arriving_, {});
    if (AsText(StreamDigest(shape_, digests)) != setup_.hint_digest()) {
      return absl::DataLossError(
          "piano: the digests of the table's chunks are not the signed ones");
    }
    Bytes entry = {kDigestsCame};
    Append(entry, digests);
    digests_ = digests;
    return Write(entry);
  }

  absl::Status TakeRecords(BytesView answer) {
    const StreamPieces::Piece piece = NextPiece();
    if (answer.size() != piece.rows * shape_.record_bytes) {
      return absl::InvalidArgumentError("piano: a piece of the stream of another length");
    }
    if (arriving_.empty()) {
      arriving_.reserve(1 + pieces_.ChunkRows(piece.chunk) * shape_.record_bytes);
    }
    Append(arriving_, answer);
    if (!piece.ends_chunk) return absl::OkStatus();
    const Bytes records = std::exchange(arriving_, {});
    const BytesView expected =
        BytesView(digests_).subspan(uint64_t{piece.chunk} * sizeof(Digest), sizeof(Digest));
    if (!std::ranges::equal(ChunkDigest(piece.chunk, records), expected)) {
      return absl::DataLossError(absl::StrCat("piano: the server sent other records of chunk ",
                                              piece.chunk,
                                              " of the table than all parties signed"));
    }
    Wait(records);
    if (table_->complete()) {
      digests_.clear();
      return Save();
    }
    Bytes entry = {kChunkCame};
    Append(entry, records);
    return Write(entry);
  }

  // Ends the query on its way with its answer.
  absl::Status Finish(BytesView answer, MutableBytes record) {
    if (answer.size() != 2 * uint64_t{shape_.record_bytes}) {
      return absl::InvalidArgumentError(absl::StrCat("piano: an answer of ", answer.size(),
                                                     " bytes instead of ",
                                                     2 * uint64_t{shape_.record_bytes}));
    }
    // False if no hint held the row: then the record is zeros, which no party signed.
    const HintTable::Question question = *table_->asked();
    SHOAL_RETURN_IF_ERROR(ReadParitiesOf(std::span(&question.hint, 1), question.backup));
    table_->Finish(answer.first(shape_.record_bytes), answer.subspan(shape_.record_bytes), record);
    // The same places whether a hint held the row or not. The backup is wiped.
    Patches patches;
    patches.Add(kHeadBytes, table_->EncodeProgress());
    AddHint(question.hint, patches);
    patches.Add(BackupAt(question.backup),
                std::as_const(*table_).backup_parities().At(question.backup));
    return Change(patches);
  }

  // What a record was tells the hints.
  absl::Status Judge(const HintTable::Question& question, BytesView record, bool right) {
    SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
    const std::vector<uint32_t> changed = table_->HintsToJudge(question, right);
    if (changed.empty()) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(ReadParitiesOf(changed));
    table_->Judge(question, record, right);
    Patches patches;
    for (const uint32_t hint : changed) AddHint(hint, patches);
    return Change(patches);
  }

  wire::PirSetup setup_;
  Digest id_;
  const SetShape shape_;
  const StreamPieces pieces_;
  Journal journal_;
  SecretArray<kKeyBytes> key_;
  std::unique_ptr<SetFunction> sets_;
  std::unique_ptr<HintTable> table_;
  std::optional<Digest> behind_;
  std::optional<Part> part_;
  Bytes digests_;   // of all chunks, while some are to come
  Bytes arriving_;  // of the digests, or of the next chunk
  // Chunks that have come and been written, and are to be added to the table.
  Bytes waiting_;
  uint32_t waiting_chunks_ = 0;
};

class PianoBatch final : public Batch {
 public:
  PianoBatch(PianoSession* session, const Wanted& wanted)
      : session_(*session), rows_(wanted.rows.begin(), wanted.rows.end()), steps_(wanted.keys) {
    records_.reserve(rows_.size() * session->shape_.record_bytes);
  }

  uint64_t steps() const override { return steps_ - done_; }

  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(steps() > 0);
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    if (!session_.IsReady()) {
      return absl::FailedPreconditionError("piano: the session was not prepared");
    }
    // A query for no key is one for any row.
    const uint64_t any = random.Below(session_.shape_.rows);
    const uint64_t row = done_ < rows_.size() ? rows_[done_] : any;
    const auto from = static_cast<uint32_t>(random.Below(session_.shape_.hints));
    absl::Status asked;
    std::vector<Request> requests;
    requests.push_back(session_.Query(
        [&](std::span<Choice> query) { asked = session_.table_->Ask(row, random, query, from); }));
    SHOAL_RETURN_IF_ERROR(asked);
    // Spent before it is sent.
    SHOAL_RETURN_IF_ERROR(session_.Spend());
    backup_ = session_.table_->asked()->backup;
    return requests;
  }

  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == 1);
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    const auto& asked = session_.table_->asked();
    if (!asked.has_value() || asked->backup != backup_) {
      return absl::FailedPreconditionError("piano: an answer without its query");
    }
    SecretVector<uint8_t> record(session_.shape_.record_bytes);
    const HintTable::Question question = *asked;
    SHOAL_RETURN_IF_ERROR(session_.Finish(answers[0], record));
    questions_.push_back(question);
    SecretVector<uint8_t>& to = done_ < rows_.size() ? records_ : padding_;
    to.insert(to.end(), record.begin(), record.end());
    ++done_;
    return absl::OkStatus();
  }

  SecretVector<uint8_t> TakeRecords() override { return std::move(records_); }

  absl::Status Judge(BytesView records, const std::vector<bool>& right) override {
    return JudgeAll<HintTable::Question>(
        {.questions = questions_,
         .record_bytes = session_.shape_.record_bytes,
         .records = records,
         .right = right,
         .padding = padding_},
        [&](const HintTable::Question& question, BytesView record, bool is_right) {
          return session_.Judge(question, record, is_right);
        });
  }

 private:
  PianoSession& session_;
  const SecretVector<uint64_t> rows_;
  const uint64_t steps_;
  uint64_t done_ = 0;
  uint32_t backup_ = 0;
  SecretVector<HintTable::Question> questions_;
  SecretVector<uint8_t> records_, padding_;
};

absl::StatusOr<std::unique_ptr<Batch>> PianoSession::Ask(const Wanted& wanted) {
  SHOAL_CHECK(wanted.rows.size() <= wanted.keys);
  SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
  if (needed(wanted.keys) != Need::kNothing) {
    return absl::FailedPreconditionError("piano: the session was not prepared");
  }
  for (const uint64_t row : wanted.rows) {
    if (row >= shape_.rows) return absl::OutOfRangeError("piano: no such row");
  }
  if (wanted.keys > *Budget()) {
    return absl::ResourceExhaustedError(absl::StrCat("piano: ", *Budget(),
                                                     " queries are left, and this lookup takes ",
                                                     wanted.keys, "; nothing was sent"));
  }
  return std::make_unique<PianoBatch>(this, wanted);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> OpenPianoSession(const wire::PirSetup& setup,
                                                          SessionStore* store) {
  SHOAL_ASSIGN_OR_RETURN(const SetShape shape, SetShapeOf(setup));
  auto session = std::make_unique<PianoSession>(setup, shape, store);
  SHOAL_RETURN_IF_ERROR(session->Load());
  return session;
}

}  // namespace shoal::pir::sets
