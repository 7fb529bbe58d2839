#include "src/pir/kit/prepared_session.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::pir {
namespace {

constexpr size_t kIdAt = 8, kTableAt = kIdAt + sizeof(Digest), kShapeAt = kTableAt + sizeof(Digest);

}  // namespace

PreparedSession::PreparedSession(const wire::PirSetup& setup, Form form)
    : setup_(setup),
      id_(SetupId(setup)),
      form_(std::move(form)),
      journal_(form_.store, form_.changed_places, form_.changed_bytes) {}

size_t PreparedSession::own_at() const { return kShapeAt + form_.shape.size(); }

absl::Status PreparedSession::Malformed() const {
  return absl::DataLossError(
      absl::StrCat(form_.engine.name(), ": the session's state is malformed"));
}

absl::Status PreparedSession::Load() {
  if (journal_.state_bytes() == 0) return CheckRoom();
  if (journal_.state_bytes() < head_bytes()) return Malformed();
  SecretVector<uint8_t> head(head_bytes());
  SHOAL_RETURN_IF_ERROR(journal_.Read(0, head));
  const BytesView saved = head;
  const bool earlier = AsText(saved.first(kIdAt)) != form_.magic;
  if (earlier && AsText(saved.first(kIdAt)) != form_.earlier_magic) return Malformed();
  if (AsText(saved.subspan(kTableAt, sizeof(Digest))) != setup_.table_id()) {
    return absl::FailedPreconditionError(
        absl::StrCat(form_.engine.name(),
                     ": the session that is kept is of another table; it has to be given up first "
                     "(shoal prepare --anew)"));
  }
  // Another shape: nothing leads there, and nothing is lost that the next state replaces.
  if (!std::ranges::equal(saved.subspan(kShapeAt, form_.shape.size()), form_.shape)) {
    return CheckRoom();
  }
  SHOAL_RETURN_IF_ERROR(ReadState(saved.subspan(own_at()), earlier));
  SHOAL_RETURN_IF_ERROR(journal_.ForEach([&](BytesView entry) {
    return Redo(entry[0], entry.subspan(1)) ? absl::OkStatus() : Malformed();
  }));
  Digest kept;
  std::ranges::copy(saved.subspan(kIdAt, kept.size()), kept.begin());
  if (kept != id_) behind_ = kept;
  // What an earlier version kept of queries goes. (A state that is behind is saved by Advance.)
  return IsReady() && (earlier || !journal_.CanChange()) ? Save() : absl::OkStatus();
}

absl::Status PreparedSession::Save() {
  SecretVector<uint8_t> head(head_bytes());
  std::ranges::copy(AsBytes(form_.magic), head.begin());
  std::ranges::copy(id_, head.begin() + kIdAt);
  std::ranges::copy(AsBytes(setup_.table_id()), head.begin() + kTableAt);
  std::ranges::copy(form_.shape, head.begin() + kShapeAt);
  StateParts parts;
  parts.Refer(head);
  AddState(MutableBytes(head).subspan(own_at()), parts);
  return journal_.Save(parts.get());
}

absl::Status PreparedSession::AppendEntry(uint8_t entry, BytesView body) {
  SecretVector<uint8_t> all(1 + body.size());
  all[0] = entry;
  std::ranges::copy(body, all.begin() + 1);
  return journal_.Append(all);
}

absl::Status PreparedSession::Change(const Patches& patches) {
  SHOAL_RETURN_IF_ERROR(journal_.Change(patches.get(), [&] { return Save(); }));
  Forget();
  return absl::OkStatus();
}

Session::Need PreparedSession::needed(uint64_t) const {
  return IsReady() && !asked() ? Need::kNothing : Need::kRequests;
}

Session::Progress PreparedSession::progress() const {
  return {.done = behind_.has_value() ? 0 : prepared().value_or(0), .total = form_.parts};
}

Request PreparedSession::NewRequest(Role role, uint32_t kind, BytesView body,
                                    uint64_t answer_bytes) const {
  Request request;
  request.role = role;
  request.kind = kind;
  request.answer_bytes = answer_bytes;
  request.body = ToBytes(id_);
  Append(request.body, body);
  return request;
}

Request PreparedSession::RequestOf(size_t role, const Bytes& query, RandomSource&) {
  return NewRequest(form_.engine.roles()[role], 0, query, form_.answer_bytes);
}

absl::StatusOr<Request> PreparedSession::Prepare(RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
  if (!prepared().has_value() || behind_.has_value()) {
    SHOAL_RETURN_IF_ERROR(CheckRoom());
    behind_.reset();
    answers_.clear();
    Begin(random);
    // Durable before a server knows its part.
    SHOAL_RETURN_IF_ERROR(Save());
  }
  prepared_for_ = Asked::kNothing;
  if (prepared() != form_.parts) {
    prepared_for_ = Asked::kPart;
    return NextPart();
  }
  if (!asked()) {
    return absl::FailedPreconditionError(
        absl::StrCat(form_.engine.name(), ": nothing is to be prepared"));
  }
  prepared_for_ = Asked::kAnswer;
  ++sent_;
  const size_t role = form_.engine.roles().size() - 1 - answers_.size();
  return RequestOf(role, AskAgain()[role], random);
}

absl::Status PreparedSession::TakePrepared(BytesView answer) {
  SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
  const Asked asked_for = std::exchange(prepared_for_, Asked::kNothing);
  if (asked_for == Asked::kNothing) {
    return absl::FailedPreconditionError(
        absl::StrCat(form_.engine.name(), ": an answer before its request"));
  }
  if (asked_for == Asked::kPart) return TakePart(answer);
  const size_t role = form_.engine.roles().size() - 1 - answers_.size();
  SHOAL_RETURN_IF_ERROR(CheckLength(answer));
  SHOAL_RETURN_IF_ERROR(CheckAnswer(role, answer));
  if (role > 0) {
    answers_.push_back(ToBytes(answer));
    return absl::OkStatus();
  }
  std::vector<BytesView> answers(answers_.rbegin(), answers_.rend());
  answers.insert(answers.begin(), answer);
  SecretVector<uint8_t> record(setup_.record_bytes());  // nobody waits for it any more
  return End(answers, record);
}

absl::Status PreparedSession::CheckLength(BytesView answer) const {
  if (answer.size() == form_.answer_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(form_.engine.name(), ": an answer of ",
                                                 answer.size(), " bytes instead of ",
                                                 form_.answer_bytes));
}

absl::Status PreparedSession::End(std::span<const BytesView> answers, MutableBytes record) {
  SHOAL_RETURN_IF_ERROR(Finish(answers, record));
  answers_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Request>> PreparedSession::NewQuery(uint64_t row, RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Bytes> queries, AskFor(row, random));
  // Spent before it is sent.
  Patches patches;
  AddAsked(patches);
  SHOAL_RETURN_IF_ERROR(Change(patches));
  ++sent_;
  std::vector<Request> requests;
  for (size_t role = 0; role < queries.size(); ++role) {
    requests.push_back(RequestOf(role, queries[role], random));
  }
  return requests;
}

absl::Status PreparedSession::Advance(const DeltaView& delta) {
  SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
  const absl::string_view engine = form_.engine.name();
  const Digest to = SetupId(delta.to);
  if (delta.from != behind_.value_or(id_) || (behind_.has_value() && to != id_)) {
    return absl::FailedPreconditionError(absl::StrCat(engine, ": a delta between other epochs"));
  }
  SHOAL_RETURN_IF_ERROR(form_.engine.SizesOf(delta.to).status());
  if (!SameShape(setup_, delta.to) || delta.to.rows() != setup_.rows()) {
    return absl::InvalidArgumentError(
        absl::StrCat(engine, ": a delta to a table of another shape"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<RowChange> changes,
                         ParseRowChanges(delta.changes, setup_.rows(), setup_.record_bytes()));
  SHOAL_RETURN_IF_ERROR(ReadAll());
  setup_ = delta.to;
  id_ = to;
  behind_.reset();
  prepared_for_ = Asked::kNothing;
  // All answers to a query have to be of one epoch.
  answers_.clear();
  ++sent_;
  SHOAL_RETURN_IF_ERROR(ChangeRows(changes));
  return prepared().has_value() ? Save() : absl::OkStatus();
}

// Queries for the wanted rows first, and then for any row.
class PreparedSession::Lookup final : public Batch {
 public:
  Lookup(PreparedSession* session, const Wanted& wanted)
      : session_(*session), rows_(wanted.rows.begin(), wanted.rows.end()), steps_(wanted.keys) {
    records_.reserve(rows_.size() * record_bytes());
  }

  uint64_t steps() const override { return steps_ - queries_.size(); }

  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(steps() > 0);
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    SHOAL_RETURN_IF_ERROR(session_.CheckReady());
    const uint64_t any = random.Below(session_.setup_.rows());
    SHOAL_ASSIGN_OR_RETURN(
        std::vector<Request> requests,
        session_.NewQuery(queries_.size() < rows_.size() ? rows_[queries_.size()] : any, random));
    sent_ = session_.sent_;
    return requests;
  }

  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == session_.form_.engine.roles().size());
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    if (sent_ != session_.sent_ || !session_.asked()) {
      return absl::FailedPreconditionError(
          absl::StrCat(session_.form_.engine.name(), ": answers without their query"));
    }
    for (const BytesView answer : answers) SHOAL_RETURN_IF_ERROR(session_.CheckLength(answer));
    // All of them, whether one is wrong or not.
    absl::Status status;
    for (size_t role = 0; role < answers.size(); ++role) {
      status.Update(session_.CheckAnswer(role, answers[role]));
    }
    SHOAL_RETURN_IF_ERROR(status);
    SecretVector<uint8_t> record(record_bytes());
    const FinishedQuery query = session_.query();
    SHOAL_RETURN_IF_ERROR(session_.End(answers, record));
    sent_.reset();
    SecretVector<uint8_t>& to = queries_.size() < rows_.size() ? records_ : padding_;
    to.insert(to.end(), record.begin(), record.end());
    queries_.push_back(query);
    return absl::OkStatus();
  }

  SecretVector<uint8_t> TakeRecords() override { return std::move(records_); }

  // Nobody has looked at the record of a padding query; it is wrong if an earlier one of the lookup
  // spoilt its hint.
  absl::Status Judge(BytesView records, const std::vector<bool>& right) override {
    SHOAL_RETURN_IF_ERROR(session_.journal_.CheckUsable());
    const size_t wanted = right.size(), bytes = record_bytes();
    SHOAL_CHECK(queries_.size() >= wanted && records.size() == wanted * bytes &&
                padding_.size() == (queries_.size() - wanted) * bytes);
    std::set<uint32_t> spoilt;
    for (size_t i = 0; i < queries_.size(); ++i) {
      const FinishedQuery& query = queries_[i];
      if (i >= wanted && !spoilt.contains(query.hint)) continue;
      const bool is_right = i < wanted && right[i];
      if (!is_right && query.held) spoilt.insert(query.hint);
      const BytesView record = i < wanted
                                   ? records.subspan(i * bytes, bytes)
                                   : BytesView(padding_).subspan((i - wanted) * bytes, bytes);
      SHOAL_RETURN_IF_ERROR(session_.Judge(query, record, is_right));
    }
    return absl::OkStatus();
  }

 private:
  size_t record_bytes() const { return session_.setup_.record_bytes(); }

  PreparedSession& session_;
  const SecretVector<uint64_t> rows_;
  const uint64_t steps_;
  std::optional<uint64_t> sent_;  // the session's, of this lookup's query on its way
  SecretVector<FinishedQuery> queries_;
  SecretVector<uint8_t> records_, padding_;
};

absl::Status PreparedSession::CheckReady() const {
  if (IsReady()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(form_.engine.name(), ": the session was not prepared"));
}

absl::StatusOr<std::unique_ptr<Batch>> PreparedSession::Ask(const Wanted& wanted) {
  SHOAL_CHECK(wanted.rows.size() <= wanted.keys);
  SHOAL_RETURN_IF_ERROR(journal_.CheckUsable());
  SHOAL_RETURN_IF_ERROR(CheckReady());
  const absl::string_view engine = form_.engine.name();
  if (asked()) {
    return absl::FailedPreconditionError(
        absl::StrCat(engine, ": the session was not prepared: a query waits for its answers"));
  }
  for (const uint64_t row : wanted.rows) {
    if (row >= setup_.rows()) return absl::OutOfRangeError(absl::StrCat(engine, ": no such row"));
  }
  if (const std::optional<uint64_t> left = Budget(); left.has_value() && wanted.keys > *left) {
    return absl::ResourceExhaustedError(absl::StrCat(engine, ": ", *left,
                                                     " queries are left, and this lookup takes ",
                                                     wanted.keys, "; nothing was sent"));
  }
  return std::make_unique<Lookup>(this, wanted);
}

}  // namespace shoal::pir
