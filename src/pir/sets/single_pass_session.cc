#include "src/pir/sets/single_pass_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/prepared_session.h"
#include "src/pir/sets/single_pass.h"
#include "src/storage/memory.h"

namespace shoal::pir::sets {
namespace {

// The state: a head (kit/prepared_session.h), whose shape is u64 rows, u32 record_bytes, u32
// chunks, and which ends with a Phase. Behind it
//   kPreparing  the seed, the parities that have come
//   kReady      zeros in the place of a question, u32 every place of the permutations, all parities
//   kAsking     a question (below), then as kReady
// Version 0.2 had nothing in the place of a question that there was none of.
constexpr absl::string_view kMagic = "SHOALPM2", kFirstMagic = "SHOALPM1";
enum Phase : uint8_t { kPreparing = 0, kReady = 1, kAsking = 2 };

// A record of the journal is one of these bytes, and
//   kPartCame   the next parities, and not the last ones
// Version 0.2 had queries in it, too, which are read and end up in a state:
//   kSpent      a question: u64 row, u32 dummy, for every chunk u32 the place that is exchanged
//   kAnswered   for every chunk what its exchange adds to two parities
//   (SinglePassTable::RedoFinish)
enum Entry : uint8_t { kPartCame = 1, kSpent = 2, kAnswered = 3 };

using Question = SinglePassTable::Question;

uint64_t QuestionBytes(const SinglePassShape& shape) { return 8 + 4 + 4 * uint64_t{shape.chunks}; }

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

Bytes ShapeBytes(const SinglePassShape& shape) {
  Bytes out;
  AppendLe<uint64_t>(out, shape.rows);
  AppendLe<uint32_t>(out, shape.record_bytes);
  AppendLe<uint32_t>(out, shape.chunks);
  return out;
}

class SinglePassSession final : public PreparedSession {
 public:
  SinglePassSession(const wire::PirSetup& setup, const SinglePassShape& shape,
                    const SessionOptions& options)
      : PreparedSession(setup, {.engine = SinglePass(),
                                .store = options.store,
                                .magic = kMagic,
                                .earlier_magic = kFirstMagic,
                                .shape = ShapeBytes(shape),
                                .own_bytes = 1,
                                .parts = shape.chunk_rows,
                                .answer_bytes = shape.answer_bytes(),
                                // A question, m + 1 parities, 2 m places of permutations.
                                .changed_places = 2 + 3 * uint64_t{shape.chunks},
                                .changed_bytes = 1 + QuestionBytes(shape) +
                                                 (1 + uint64_t{shape.chunks}) * shape.record_bytes +
                                                 2 * sizeof(uint32_t) * uint64_t{shape.chunks}}),
        shape_(shape),
        check_(options.check) {}

 protected:
  std::optional<uint64_t> prepared() const override {
    if (!table_.has_value()) return std::nullopt;
    return table_->parities_added();
  }

  // Permutations twice, as they are written and read as bytes; beside the parities a part of them
  // that is being written, and both answers, their queries' changes and their records' copies.
  absl::Status CheckRoom() const override {
    return CheckMemory(shape_.parity_bytes() + 2 * sizeof(uint32_t) * shape_.places() +
                           uint64_t{SinglePassPartOf(shape_)} * shape_.record_bytes +
                           4 * shape_.answer_bytes(),
                       "permuted: the parities");
  }

  void Begin(RandomSource& random) override {
    seed_ = random.NewSeed();
    table_.emplace(shape_, PermutationsOf(shape_, *seed_));
  }
  Request NextPart() const override {
    Bytes body = ToBytes(seed_->view());
    AppendLe<uint32_t>(body, table_->parities_added());
    return NewRequest(Role::kOffline, kPermutedParities, body,
                      NextParities() * shape_.record_bytes);
  }
  absl::Status TakePart(BytesView answer) override {
    if (answer.size() != NextParities() * shape_.record_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("permuted: ", answer.size(), " bytes of parities"));
    }
    table_->AddParities(answer);
    if (!table_->complete()) return AppendEntry(kPartCame, answer);
    // Whoever finds the state later cannot undo the exchanges.
    seed_.reset();
    return Save();
  }

  // They are the state's end.
  absl::Status ReadAll() override {
    if (!table_.has_value() || table_->parities().whole()) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(CheckRoom());
    table_->parities().MakeWhole();
    return journal().Read(journal().state_bytes() - shape_.parity_bytes(),
                          table_->parities().all());
  }
  void Forget() override { table_->parities().Forget(); }
  absl::Status ChangeRows(std::span<const RowChange> changes) override {
    if (!table_.has_value()) return absl::OkStatus();
    for (const RowChange& change : changes) {
      SHOAL_RETURN_IF_ERROR(table_->Change(change.row, change.difference));
    }
    return absl::OkStatus();
  }

  bool asked() const override { return table_.has_value() && table_->asked().has_value(); }
  absl::StatusOr<std::vector<Bytes>> AskFor(uint64_t row, RandomSource& random) override {
    std::vector<Bytes> queries(2, Bytes(shape_.query_bytes()));
    SHOAL_RETURN_IF_ERROR(table_->Ask(row, random, queries[kOnline], queries[kOffline]));
    return queries;
  }
  std::vector<Bytes> AskAgain() const override {
    std::vector<Bytes> queries(2, Bytes(shape_.query_bytes()));
    table_->AskAgain(queries[kOnline], queries[kOffline]);
    return queries;
  }
  void AddAsked(Patches& patches) const override {
    SecretVector<uint8_t> asking = {kAsking};
    const SecretVector<uint8_t> question = EncodeQuestion(*table_->asked());
    asking.insert(asking.end(), question.begin(), question.end());
    patches.Add(own_at(), std::move(asking));
  }

  // Whether every record of an answer is the table's: all are looked at, and the server knows which
  // rows they are of, so that a failure tells it nothing. As many are verified whatever is asked
  // for: each server can see how long both answers take, and knows only its own rows. DATA_LOSS,
  // and nothing is changed.
  absl::Status CheckAnswer(size_t role, BytesView answer) const override {
    if (check_ == nullptr) return absl::OkStatus();
    std::vector<uint64_t> rows = table_->RowsOf(AskAgain()[role]);
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
        "permuted: the ", RoleName(SinglePass().roles()[role]),
        " server's answer has records that the parties have not signed: nothing of it is used, and "
        "the same query is sent again before the next one: ",
        checked.message()));
  }

  absl::Status Finish(std::span<const BytesView> answers, MutableBytes record) override {
    const Question question = *table_->asked();
    const uint32_t place = table_->place();
    SHOAL_RETURN_IF_ERROR(ReadParitiesOf(question));
    table_->Finish(answers[kOnline], answers[kOffline], record);
    // Where the rows and the parities are that were exchanged, as many of them for every question.
    Patches patches;
    SecretVector<uint8_t> ready(1 + QuestionBytes(shape_));
    ready[0] = kReady;
    patches.Add(own_at(), std::move(ready));
    const uint64_t permutations_at = head_bytes() + QuestionBytes(shape_);
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

  // The parities of a session that can answer stay in the store. All permutations are read: which
  // of them a query looks at, its row decides.
  absl::Status ReadState(BytesView own, bool earlier) override {
    const uint8_t phase = own[0];
    const uint64_t bytes = journal().state_bytes() - head_bytes();
    if (phase == kPreparing) {
      SHOAL_RETURN_IF_ERROR(CheckRoom());
      // With all parities it would be another phase.
      if (bytes < Seed::size() || bytes - Seed::size() >= shape_.parity_bytes() ||
          (bytes - Seed::size()) % shape_.record_bytes != 0) {
        return Malformed();
      }
      Seed seed;
      SHOAL_RETURN_IF_ERROR(journal().Read(head_bytes(), seed.mutable_view()));
      seed_ = std::move(seed);
      table_.emplace(shape_, PermutationsOf(shape_, *seed_));
      SecretVector<uint8_t> parities(bytes - Seed::size());
      SHOAL_RETURN_IF_ERROR(journal().Read(head_bytes() + Seed::size(), parities));
      table_->AddParities(parities);
      return absl::OkStatus();
    }
    SecretVector<uint8_t> question(phase == kAsking || !earlier ? QuestionBytes(shape_) : 0);
    const uint64_t kept_bytes = sizeof(uint32_t) * shape_.places();
    if (phase > kAsking || bytes != question.size() + kept_bytes + shape_.parity_bytes()) {
      return Malformed();
    }
    // Beside the permutations as they are kept, and which of a chunk were seen.
    SHOAL_RETURN_IF_ERROR(CheckMemory(2 * kept_bytes, "permuted: the permutations"));
    SHOAL_RETURN_IF_ERROR(journal().Read(head_bytes(), question));
    SecretVector<uint32_t> places(shape_.places());
    {
      SecretVector<uint8_t> kept(kept_bytes);
      SHOAL_RETURN_IF_ERROR(journal().Read(head_bytes() + question.size(), kept));
      for (size_t i = 0; i < places.size(); ++i) {
        places[i] = LoadLe<uint32_t>(&kept[i * sizeof(uint32_t)]);
      }
    }
    auto table = SinglePassTable::Restore(shape_, std::move(places));
    if (!table.ok()) return Malformed();
    table_.emplace(*std::move(table));
    if (earlier || !journal().CanChange()) SHOAL_RETURN_IF_ERROR(ReadAll());
    if (phase == kAsking && !table_->Redo(DecodeQuestion(question)).ok()) return Malformed();
    return absl::OkStatus();
  }

  bool Redo(uint8_t entry, BytesView body) override {
    switch (entry) {
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

  void AddState(MutableBytes own, StateParts& parts) override {
    const auto& asked = table_->asked();
    own[0] = seed_.has_value() ? kPreparing : asked.has_value() ? kAsking : kReady;
    if (seed_.has_value()) {
      parts.Refer(seed_->view());
    } else {
      parts.Keep(asked.has_value() ? EncodeQuestion(*asked)
                                   : SecretVector<uint8_t>(QuestionBytes(shape_)));
      const SecretVector<uint32_t>& places = table_->permutations();
      SecretVector<uint8_t> permutations(places.size() * sizeof(uint32_t));
      for (size_t i = 0; i < places.size(); ++i) {
        StoreLe<uint32_t>(&permutations[i * sizeof(uint32_t)], places[i]);
      }
      parts.Keep(std::move(permutations));
    }
    parts.Refer(table_->added_parities());
  }

 private:
  // Places in roles().
  static constexpr size_t kOffline = 0, kOnline = 1;

  // Of the next request.
  uint64_t NextParities() const {
    return std::min(SinglePassPartOf(shape_), shape_.chunk_rows - table_->parities_added());
  }
  // Those that the end of the question changes.
  absl::Status ReadParitiesOf(const Question& question) {
    if (table_->parities().whole()) return absl::OkStatus();
    const uint64_t at = journal().state_bytes() - shape_.parity_bytes();
    SecretVector<uint8_t> parity(shape_.record_bytes);
    const auto read = [&](uint32_t place) -> absl::Status {
      SHOAL_RETURN_IF_ERROR(journal().Read(at + uint64_t{place} * shape_.record_bytes, parity));
      table_->parities().Put(place, parity);
      return absl::OkStatus();
    };
    SHOAL_RETURN_IF_ERROR(read(table_->place()));
    for (const uint32_t place : question.exchanged) SHOAL_RETURN_IF_ERROR(read(place));
    return absl::OkStatus();
  }

  const SinglePassShape shape_;
  const RecordCheck check_;
  std::optional<Seed> seed_;  // until all parities have come
  std::optional<SinglePassTable> table_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> OpenPermutedSession(const wire::PirSetup& setup,
                                                             const SessionOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const SinglePassShape shape, SinglePassShapeOf(setup));
  auto session = std::make_unique<SinglePassSession>(setup, shape, options);
  SHOAL_RETURN_IF_ERROR(session->Load());
  return session;
}

}  // namespace shoal::pir::sets
