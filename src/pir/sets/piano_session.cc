#include "src/pir/sets/piano_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/prepared_session.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/piano.h"
#include "src/pir/sets/stream.h"
#include "src/storage/memory.h"

namespace shoal::pir::sets {
namespace {

// The state: a head (kit/prepared_session.h), whose shape is u64 rows, u32 record_bytes, u32
// queries, and which ends with the key, u8 whether the digests are there, u8 whether the table is;
// the digests of all chunks while some are to come; and the table of hints once it has a chunk
// (HintTable::DecodeHead).
constexpr absl::string_view kMagic = "SHOALPN1";
constexpr size_t kKeyBytes = 16, kOwnBytes = kKeyBytes + 2;

// A record of the journal is one of these bytes, and
//   kDigestsCame  the digests of all chunks
//   kChunkCame    the records of the next chunk, and not of the last one
// Version 0.2 had queries in it, too, which are read and end up in a state:
//   kSpent        a query: u64 row, u32 backup, u32 hint, u16 dummy, u8 coin, u8 held
//   kAnswered     the record that came of it
//   kJudged       a hint after HintTable::Judge: u32 hint, u8 whether its XOR is without the record
//                 of the row beside, its XOR
enum Entry : uint8_t { kDigestsCame = 1, kChunkCame = 2, kSpent = 3, kAnswered = 4, kJudged = 5 };
constexpr size_t kJudgedHeadBytes = 4 + 1;
constexpr size_t kSpentBytes = 8 + 4 + 4 + 2 + 1 + 1;

// What is in memory for a set whatever happens: a hint or a backup without XORs, its choices of a
// pass, and the bytes that it was read from.
constexpr uint64_t kBytesOfSet = 64;

Bytes ShapeBytes(const SetShape& shape) {
  Bytes out;
  AppendLe<uint64_t>(out, shape.rows);
  AppendLe<uint32_t>(out, shape.record_bytes);
  AppendLe<uint32_t>(out, shape.backups);
  return out;
}

class PianoSession final : public PreparedSession {
 public:
  PianoSession(const wire::PirSetup& setup, const SetShape& shape, SessionStore* store)
      : PreparedSession(setup, {.engine = Piano(),
                                .store = store,
                                .magic = kMagic,
                                .shape = ShapeBytes(shape),
                                .own_bytes = kOwnBytes,
                                .parts = shape.chunks,
                                .answer_bytes = 2 * uint64_t{shape.record_bytes},
                                // Progress, a hint's set and XOR, both XORs of a backup.
                                .changed_places = 4,
                                .changed_bytes = HintTable::kHeadBytes + HintTable::kHintBytes +
                                                 3 * uint64_t{shape.record_bytes}}),
        shape_(shape),
        pieces_(shape) {}

  std::optional<uint64_t> Budget() const override { return IsReady() ? table_->backups_left() : 0; }

 protected:
  // Chunks.
  std::optional<uint64_t> prepared() const override {
    if (table_ == nullptr) return std::nullopt;
    return Chunks();
  }

  // For all hints with their XORs. A pass over the sets has a choice of each; a chunk is in memory
  // twice when it goes to the journal, and some wait.
  absl::Status CheckRoom() const override {
    return CheckMemory(
        HintTable::StateBytes(shape_) + sizeof(Choice) * shape_.sets() +
            (2 + HintTable::kChunksTogether) * pieces_.ChunkRows(0) * shape_.record_bytes +
            2 * pieces_.digests_bytes(),
        "piano: the hints");
  }

  void Begin(RandomSource& random) override {
    SecretArray<kKeyBytes> key;
    random.Fill(key.mutable_view());
    digests_.clear();
    Make(std::move(key), /*whole=*/true);
  }
  Request NextPart() const override {
    const bool digests = digests_.empty();
    const uint64_t at = digests ? arriving_.size() : NextPiece().first_row;
    Bytes body;
    AppendLe<uint64_t>(body, at);
    return NewRequest(Role::kSingle, digests ? kDigests : kRecords, body,
                      digests ? pieces_.DigestsPiece(at) : NextPiece().rows * shape_.record_bytes);
  }
  absl::Status TakePart(BytesView answer) override {
    return digests_.empty() ? TakeDigests(answer) : TakeRecords(answer);
  }

  absl::Status ReadAll() override {
    if (table_ == nullptr || table_->parities().whole()) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(CheckRoom());
    table_->parities().MakeWhole();
    table_->backup_parities().MakeWhole();
    if (table_->chunks_added() == 0) return absl::OkStatus();
    const uint64_t at = journal().state_bytes() - shape_.parity_bytes();
    const MutableBytes of_hints = table_->parities().all();
    SHOAL_RETURN_IF_ERROR(journal().Read(at, of_hints));
    return journal().Read(at + of_hints.size(), table_->backup_parities().all());
  }
  void Forget() override {
    table_->parities().Forget();
    table_->backup_parities().Forget();
  }
  absl::Status ChangeRows(std::span<const RowChange> changes) override {
    // Of chunks that are to come, the next epoch's are asked for.
    digests_.clear();
    arriving_.clear();
    if (table_ == nullptr) return absl::OkStatus();
    AddWaiting();
    table_->Advance(changes);
    return absl::OkStatus();
  }

  bool asked() const override { return table_ != nullptr && table_->asked().has_value(); }
  absl::StatusOr<std::vector<Bytes>> AskFor(uint64_t row, RandomSource& random) override {
    const auto from = static_cast<uint32_t>(random.Below(shape_.hints));
    SecretVector<Choice> query(shape_.chunks);
    SHOAL_RETURN_IF_ERROR(table_->Ask(row, random, query, from));
    return Encoded(query);
  }
  std::vector<Bytes> AskAgain() const override {
    SecretVector<Choice> query(shape_.chunks);
    table_->Repeat(query);
    return Encoded(query);
  }
  void AddAsked(Patches& patches) const override {
    patches.Add(head_bytes(), table_->EncodeProgress());
  }
  absl::Status Finish(std::span<const BytesView> answers, MutableBytes record) override {
    const HintTable::Question question = *table_->asked();
    SHOAL_RETURN_IF_ERROR(ReadParitiesOf(std::span(&question.hint, 1), question.backup));
    // False if no hint held the row: then the record is zeros, which no party signed.
    table_->Finish(answers[0].first(shape_.record_bytes), answers[0].subspan(shape_.record_bytes),
                   record);
    // The same places whether a hint held the row or not. The backup is wiped.
    Patches patches;
    patches.Add(head_bytes(), table_->EncodeProgress());
    AddHint(question.hint, patches);
    patches.Add(BackupAt(question.backup),
                std::as_const(*table_).backup_parities().At(question.backup));
    return Change(patches);
  }
  FinishedQuery query() const override {
    const HintTable::Question& asked = *table_->asked();
    return {.row = asked.row, .number = asked.backup, .hint = asked.hint, .held = asked.held};
  }
  absl::Status Judge(const FinishedQuery& query, BytesView record, bool right) override {
    const HintTable::Question question = {.row = query.row,
                                          .backup = static_cast<uint32_t>(query.number),
                                          .hint = query.hint,
                                          .held = query.held};
    const std::vector<uint32_t> changed = table_->HintsToJudge(question, right);
    if (changed.empty()) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(ReadParitiesOf(changed));
    table_->Judge(question, record, right);
    Patches patches;
    for (const uint32_t hint : changed) AddHint(hint, patches);
    return Change(patches);
  }

  // The XORs of a session that can answer stay in the store: a query reads those that it needs.
  absl::Status ReadState(BytesView own, bool) override {
    const uint8_t with_digests = own[kKeyBytes], with_table = own[kKeyBytes + 1];
    if (with_digests > 1 || with_table > 1) return Malformed();
    const uint64_t digests_bytes = with_digests * pieces_.digests_bytes();
    if (journal().state_bytes() !=
        head_bytes() + digests_bytes + with_table * HintTable::StateBytes(shape_)) {
      return Malformed();
    }
    SHOAL_RETURN_IF_ERROR(CheckMemory(kBytesOfSet * shape_.sets(), "piano: the sets"));
    Make(SecretArray<kKeyBytes>(own.first(kKeyBytes)), /*whole=*/false);
    if (with_table == 1) {
      SecretVector<uint8_t> hints(HintTable::AllHeadBytes(shape_));
      SHOAL_RETURN_IF_ERROR(journal().Read(head_bytes() + digests_bytes, hints));
      if (!table_->DecodeHead(hints).ok()) return Malformed();
    }
    if (table_->complete() && with_digests == 1) return Malformed();
    if (!table_->complete() || !journal().CanChange()) SHOAL_RETURN_IF_ERROR(ReadAll());
    digests_.resize(digests_bytes);
    return journal().Read(head_bytes(), digests_);
  }
  bool Redo(uint8_t entry, BytesView body) override {
    switch (entry) {
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
      case kSpent:
        if (body.size() != kSpentBytes || body[18] > 1 || body[19] > 1) return false;
        return table_
            ->Redo({.row = LoadLe<uint64_t>(&body[0]),
                    .backup = LoadLe<uint32_t>(&body[8]),
                    .hint = LoadLe<uint32_t>(&body[12]),
                    .dummy = LoadLe<uint16_t>(&body[16]),
                    .coin = body[18] == 1,
                    .held = body[19] == 1})
            .ok();
      case kAnswered:
        return table_->RedoFinish(body).ok();
      case kJudged:
        return body.size() >= kJudgedHeadBytes && body[4] <= 1 &&
               table_
                   ->RedoJudge(LoadLe<uint32_t>(&body[0]), body[4] == 1,
                               body.subspan(kJudgedHeadBytes))
                   .ok();
      default:
        return false;
    }
  }
  void AddState(MutableBytes own, StateParts& parts) override {
    AddWaiting();
    std::ranges::copy(key_.view(), own.begin());
    own[kKeyBytes] = !digests_.empty();
    own[kKeyBytes + 1] = table_->chunks_added() > 0;
    parts.Refer(digests_);
    if (table_->chunks_added() == 0) return;
    parts.Keep(table_->EncodeHead());
    parts.Refer(std::as_const(*table_).parities().all());
    parts.Refer(std::as_const(*table_).backup_parities().all());
  }

 private:
  // Where the state has what queries change, once the digests of chunks are gone.
  uint64_t ParityAt(uint32_t hint) const {
    return head_bytes() + HintTable::AllHeadBytes(shape_) + uint64_t{hint} * shape_.record_bytes;
  }
  uint64_t BackupAt(uint32_t backup) const {
    return ParityAt(shape_.hints) + 2 * uint64_t{backup} * shape_.record_bytes;
  }
  // Those that one call needs.
  absl::Status ReadParitiesOf(std::span<const uint32_t> hints,
                              std::optional<uint32_t> backup = std::nullopt) {
    if (table_->parities().whole()) return absl::OkStatus();
    SecretVector<uint8_t> parity(shape_.record_bytes), of_backup(2 * uint64_t{shape_.record_bytes});
    for (const uint32_t hint : hints) {
      SHOAL_RETURN_IF_ERROR(journal().Read(ParityAt(hint), parity));
      table_->parities().Put(hint, parity);
    }
    if (backup.has_value()) {
      SHOAL_RETURN_IF_ERROR(journal().Read(BackupAt(*backup), of_backup));
      table_->backup_parities().Put(*backup, of_backup);
    }
    return absl::OkStatus();
  }
  void AddHint(uint32_t hint, Patches& patches) const {
    patches.Add(head_bytes() + HintTable::kHeadBytes + uint64_t{hint} * HintTable::kHintBytes,
                table_->EncodeHint(hint));
    patches.Add(ParityAt(hint), std::as_const(*table_).parities().At(hint));
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

  absl::Status Write(Entry entry, BytesView body) {
    SHOAL_RETURN_IF_ERROR(AppendEntry(entry, body));
    return journal().IsLong(HintTable::StateBytes(shape_)) ? Save() : absl::OkStatus();
  }

  std::vector<Bytes> Encoded(std::span<const Choice> query) const {
    std::vector<Bytes> encoded(1, Bytes(shape_.query_bytes()));
    EncodeQuery(shape_, query, encoded[0]);
    return encoded;
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
    if (AsText(StreamDigest(shape_, digests)) != setup().hint_digest()) {
      return absl::DataLossError(
          "piano: the digests of the table's chunks are not the signed ones");
    }
    digests_ = digests;
    return Write(kDigestsCame, digests);
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
    return Write(kChunkCame, records);
  }

  const SetShape shape_;
  const StreamPieces pieces_;
  SecretArray<kKeyBytes> key_;
  std::unique_ptr<SetFunction> sets_;
  std::unique_ptr<HintTable> table_;
  Bytes digests_;   // of all chunks, while some are to come
  Bytes arriving_;  // of the digests, or of the next chunk
  // Chunks that have come and been written, and are to be added to the table.
  Bytes waiting_;
  uint32_t waiting_chunks_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> OpenPianoSession(const wire::PirSetup& setup,
                                                          SessionStore* store) {
  SHOAL_ASSIGN_OR_RETURN(const SetShape shape, SetShapeOf(setup));
  auto session = std::make_unique<PianoSession>(setup, shape, store);
  SHOAL_RETURN_IF_ERROR(session->Load());
  return session;
}

}  // namespace shoal::pir::sets
