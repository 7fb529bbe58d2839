#include "src/pir/sets/tree_pir.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/pir/pages.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::sets {
namespace {

constexpr absl::string_view kName = "treepir";
constexpr absl::string_view kShape = "tree sets v1";
// Hints are enough for so many queries (TreeShapeFor), and serve more.
constexpr uint64_t kQueries = uint64_t{1} << 20;
// A longer answer to one query is no use to anybody.
constexpr uint64_t kMaxAnswerBytes = uint64_t{64} << 20;
constexpr size_t kSeedBytes = 16;
constexpr size_t kIdBytes = sizeof(Digest);
constexpr size_t kHintsBodyBytes = kIdBytes + kSeedBytes + sizeof(uint32_t);

class TreeServer final : public Server {
 public:
  TreeServer(wire::PirSetup setup, const TreeShape& shape, PageBuffer table, ThreadPool* pool)
      : setup_(std::move(setup)),
        shape_(shape),
        table_(std::move(table)),
        pool_(pool),
        id_(SetupId(setup_)) {}

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override {
    return std::max<uint64_t>(kHintsBodyBytes, kIdBytes + shape_.query_bytes());
  }

  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override {
    std::vector<absl::StatusOr<Bytes>> answers;
    answers.reserve(requests.size());
    for (const RequestView& request : requests) answers.push_back(AnswerOne(role, request));
    return answers;
  }

  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override {
    SHOAL_RETURN_IF_ERROR(CheckRefresh(content, changed_rows));
    return static_cast<double>(changed_rows.size()) / static_cast<double>(shape_.rows);
  }
  // Clients have to ask for hints of the new epoch.
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override {
    SHOAL_RETURN_IF_ERROR(CheckRefresh(content, changed_rows));
    for (const uint64_t row : changed_rows) {
      content.copy(row,
                   MutableBytes(table_).subspan(row * shape_.record_bytes, shape_.record_bytes));
    }
    setup_.set_epoch(content.epoch);
    setup_.set_manifest_digest(ToString(content.manifest_digest));
    id_ = SetupId(setup_);
    return std::optional<Delta>();
  }

 private:
  absl::Status CheckRefresh(const Content& content, std::span<const uint64_t> changed_rows) const {
    if (ToString(content.table_id) != setup_.table_id() || content.rows != shape_.rows ||
        content.record_bytes != shape_.record_bytes || content.epoch <= setup_.epoch()) {
      return absl::InvalidArgumentError("treepir: another table, or an earlier epoch");
    }
    uint64_t next = 0;
    for (const uint64_t row : changed_rows) {
      if (row < next || row >= shape_.rows) {
        return absl::InvalidArgumentError("treepir: changed rows out of order, or no such row");
      }
      next = row + 1;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Bytes> AnswerOne(Role role, const RequestView& request) const {
    const bool hints = role == Role::kOffline && request.kind == kTreeHints;
    const bool query = role != Role::kSingle && request.kind == kTreeQuery;
    const uint64_t bytes = hints ? kHintsBodyBytes : kIdBytes + shape_.query_bytes();
    if ((!hints && !query) || request.count != 1 || request.body.size() != bytes) {
      return absl::InvalidArgumentError("treepir: no request of this engine to this role");
    }
    if (!std::ranges::equal(id_, request.body.first(kIdBytes))) {
      return absl::FailedPreconditionError("treepir: a request for another setup");
    }
    const BytesView body = request.body.subspan(kIdBytes);
    return hints ? MakeHints(body) : AnswerQuery(body);
  }

  absl::StatusOr<Bytes> MakeHints(BytesView body) const {
    const SecretArray<16> seed(body.first(kSeedBytes));
    const auto first = LoadLe<uint32_t>(body.data() + kSeedBytes);
    if (first >= shape_.hints) {
      return absl::InvalidArgumentError(
          absl::StrCat("treepir: hints from ", first, " on, of ", shape_.hints));
    }
    const uint64_t count = std::min(TreeHintsOf(shape_), shape_.hints - first);
    Bytes parities(count * shape_.record_bytes);
    // One after the other, so that they do not take each other's cache, nor all threads.
    const MutexLock lock(hints_mutex_);
    MakeTreeParities(shape_, table_, seed, first, parities, pool_);
    return parities;
  }

  absl::StatusOr<Bytes> AnswerQuery(BytesView body) const {
    std::vector<uint32_t> offsets(shape_.query_offsets());
    SHOAL_RETURN_IF_ERROR(ExpandTreeQuery(shape_, body, offsets));
    Bytes answer(shape_.answer_bytes());
    AnswerTreeQuery(shape_, table_, offsets, answer);
    return answer;
  }

  wire::PirSetup setup_;
  const TreeShape shape_;
  PageBuffer table_;
  ThreadPool* const pool_;
  Digest id_;
  mutable Mutex hints_mutex_;
};

// State: the setup's id, the seed, the client's own key, and the hints'.
class TreeSession final : public Session {
 public:
  TreeSession(wire::PirSetup setup, const TreeShape& shape, SessionStore* store)
      : setup_(std::move(setup)), shape_(shape), store_(*store), id_(SetupId(setup_)) {
    Open(store_.saved());
  }

  const wire::PirSetup& setup() const override { return setup_; }
  Need needed(uint64_t) const override {
    return hints_ == nullptr || hints_->waiting() || hints_->parities_taken() < shape_.hints
               ? Need::kRequests
               : Need::kNothing;
  }
  absl::StatusOr<Request> Prepare(RandomSource& random) override;
  absl::Status TakePrepared(BytesView answer) override;
  uint64_t KeysPerStep() const override { return 1; }
  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) override;
  absl::Status Advance(const DeltaView&) override {
    return absl::InvalidArgumentError("treepir: hints do not follow epochs");
  }

 private:
  friend class TreeBatch;
  struct Queries {
    Bytes online, offline;
    explicit Queries(const TreeShape& shape)
        : online(shape.query_bytes()), offline(shape.query_bytes()) {}
  };

  void Make(const SecretArray<16>& seed, const SecretArray<16>& own) {
    seed_ = seed.Clone();
    own_ = own.Clone();
    function_ = std::make_unique<TreeFunction>(shape_, seed, own);
    hints_ = std::make_unique<TreeHints>(shape_, function_.get());
  }
  // Nothing if the state is of another setup or damaged: then the session begins anew.
  void Open(BytesView saved) {
    if (saved.size() < kIdBytes + 2 * kSeedBytes ||
        !std::ranges::equal(id_, saved.first(kIdBytes))) {
      return;
    }
    saved = saved.subspan(kIdBytes);
    Make(SecretArray<16>(saved.first(kSeedBytes)),
         SecretArray<16>(saved.subspan(kSeedBytes, kSeedBytes)));
    if (!hints_->Restore(saved.subspan(2 * kSeedBytes)).ok()) hints_ = nullptr;
  }
  absl::Status Save() {
    SecretVector<uint8_t> state(kIdBytes + 2 * kSeedBytes + hints_->state_bytes());
    auto at = std::ranges::copy(id_, state.begin()).out;
    at = std::ranges::copy(seed_.view(), at).out;
    std::ranges::copy(own_.view(), at);
    hints_->Save(MutableBytes(state).subspan(kIdBytes + 2 * kSeedBytes));
    return store_.Save(state);
  }
  Request RequestTo(Role role, uint32_t kind, BytesView body, uint64_t answer_bytes) const {
    Request request;
    request.role = role;
    request.kind = kind;
    request.answer_bytes = answer_bytes;
    request.body = ToBytes(id_);
    Append(request.body, body);
    return request;
  }
  Request QueryTo(Role role, BytesView query) const {
    return RequestTo(role, kTreeQuery, query, shape_.answer_bytes());
  }

  const wire::PirSetup setup_;
  const TreeShape shape_;
  SessionStore& store_;
  const Digest id_;
  SecretArray<16> seed_, own_;
  std::unique_ptr<TreeFunction> function_;
  std::unique_ptr<TreeHints> hints_;
  // The online server's answer to a query that was sent again, until the offline server's is there.
  std::optional<Bytes> online_answer_;
};

absl::StatusOr<Request> TreeSession::Prepare(RandomSource& random) {
  if (needed(0) == Need::kNothing) {
    return absl::FailedPreconditionError("treepir: nothing is needed");
  }
  if (hints_ == nullptr) {
    SecretArray<16> seed, own;
    random.Fill(seed.mutable_view());
    random.Fill(own.mutable_view());
    Make(seed, own);
  }
  if (hints_->waiting()) {
    Queries queries(shape_);
    SHOAL_RETURN_IF_ERROR(hints_->AskAgain(queries.online, queries.offline));
    return online_answer_.has_value() ? QueryTo(Role::kOffline, queries.offline)
                                      : QueryTo(Role::kOnline, queries.online);
  }
  const uint32_t first = hints_->parities_taken();
  Bytes body = ToBytes(seed_.view());
  AppendLe<uint32_t>(body, first);
  const uint64_t count = std::min(TreeHintsOf(shape_), shape_.hints - first);
  return RequestTo(Role::kOffline, kTreeHints, body, count * shape_.record_bytes);
}

absl::Status TreeSession::TakePrepared(BytesView answer) {
  if (hints_ == nullptr || needed(0) == Need::kNothing) {
    return absl::FailedPreconditionError("treepir: nothing is needed");
  }
  if (!hints_->waiting()) {
    SHOAL_RETURN_IF_ERROR(hints_->TakeParities(answer));
    return Save();
  }
  if (answer.size() != shape_.answer_bytes()) {
    return absl::InvalidArgumentError("treepir: an answer of the wrong length");
  }
  if (!online_answer_.has_value()) {
    online_answer_ = ToBytes(answer);
    return absl::OkStatus();
  }
  SecretVector<uint8_t> record(shape_.record_bytes);  // nobody waits for it any more
  hints_->Finish(*online_answer_, answer, record);
  online_answer_.reset();
  return Save();
}

class TreeBatch final : public Batch {
 public:
  TreeBatch(TreeSession* session, const Wanted& wanted)
      : session_(*session), rows_(wanted.rows.begin(), wanted.rows.end()), steps_(wanted.keys) {}

  uint64_t steps() const override { return steps_ - done_; }
  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(steps() > 0);
    // Any row, for a key that there is not: all queries look alike.
    const uint64_t any = random.Below(session_.shape_.rows);
    const uint64_t row = done_ < rows_.size() ? rows_[done_] : any;
    TreeSession::Queries queries(session_.shape_);
    SHOAL_RETURN_IF_ERROR(session_.hints_->Ask(row, queries.online, queries.offline));
    // Spent before it is sent, on disk too. After an error the query waits, and is sent later.
    SHOAL_RETURN_IF_ERROR(session_.Save());
    std::vector<Request> requests;
    requests.push_back(session_.QueryTo(Role::kOffline, queries.offline));
    requests.push_back(session_.QueryTo(Role::kOnline, queries.online));
    return requests;
  }
  absl::Status Finish(std::span<const BytesView> answers) override {
    const uint64_t bytes = session_.shape_.answer_bytes();
    if (answers.size() != 2 || answers[0].size() != bytes || answers[1].size() != bytes) {
      return absl::InvalidArgumentError("treepir: an answer of the wrong length");
    }
    SecretVector<uint8_t> record(session_.shape_.record_bytes);
    session_.hints_->Finish(answers[1], answers[0], record);
    SHOAL_RETURN_IF_ERROR(session_.Save());
    if (done_ < rows_.size()) records_.insert(records_.end(), record.begin(), record.end());
    ++done_;
    return absl::OkStatus();
  }
  SecretVector<uint8_t> TakeRecords() override { return std::move(records_); }

 private:
  TreeSession& session_;
  const SecretVector<uint64_t> rows_;
  const uint64_t steps_;
  uint64_t done_ = 0;
  SecretVector<uint8_t> records_;
};

absl::StatusOr<std::unique_ptr<Batch>> TreeSession::Ask(const Wanted& wanted) {
  if (needed(wanted.keys) != Need::kNothing) {
    return absl::FailedPreconditionError("treepir: the session is not prepared");
  }
  for (const uint64_t row : wanted.rows) {
    if (row >= shape_.rows) return absl::OutOfRangeError("treepir: no such row");
  }
  return std::make_unique<TreeBatch>(this, wanted);
}

class TreeEngine final : public Engine {
 public:
  absl::string_view name() const override { return kName; }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kOffline, Role::kOnline};
    return kRoles;
  }
  bool keeps_state() const override { return true; }

  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions& options) const override {
    wire::PirSetup setup;
    setup.set_engine(kName.data(), kName.size());
    setup.set_table_id(ToString(content.table_id));
    setup.set_epoch(content.epoch);
    setup.set_manifest_digest(ToString(content.manifest_digest));
    setup.set_rows(content.rows);
    setup.set_record_bytes(content.record_bytes);
    setup.set_shape(kShape.data(), kShape.size());
    SHOAL_RETURN_IF_ERROR(SizesOfShape(setup).status());
    if (options.shape.has_value() && !SameShape(setup, *options.shape)) {
      return absl::InvalidArgumentError("treepir: a shape that this table does not have");
    }
    return setup;
  }

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& setup) const override {
    SHOAL_ASSIGN_OR_RETURN(const TreeShape shape, TreeShapeOf(setup));
    Sizes sizes;
    sizes.hint_memory_bytes = shape.client_bytes();
    sizes.query_bytes = 2 * (kIdBytes + shape.query_bytes());
    sizes.answer_bytes = 2 * shape.answer_bytes();
    sizes.server_bytes = 2 * shape.table_bytes();  // a copy at each
    return sizes;
  }

  Work WorkOf(const wire::PirSetup& setup, double) const override {
    const auto shape = TreeShapeOf(setup);
    SHOAL_CHECK(shape.ok());
    double rows = 0;  // of each chunk
    for (uint32_t level = 0; level < shape->levels(); ++level) {
      rows += 2.0 * (shape->Fan(level) - 1) / shape->Fan(level);
    }
    const double blocks = static_cast<double>(shape->hints) * shape->levels();
    return {.setup = {},
            .query = {{"tree_block", blocks}},
            .answer = {{"tree_row_gathered", 2 * rows * shape->chunks}},
            .recover = {}};
  }

  absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                       ServerOptions options) const override {
    SHOAL_ASSIGN_OR_RETURN(wire::PirSetup setup, ShapeOf(content, options));
    SHOAL_ASSIGN_OR_RETURN(const TreeShape shape, TreeShapeOf(setup));
    SHOAL_ASSIGN_OR_RETURN(PageBuffer table,
                           AllocatePages(shape.table_bytes(), "the rows of treepir"));
    for (uint64_t row = 0; row < shape.rows; ++row) {
      content.copy(row, MutableBytes(table).subspan(row * shape.record_bytes, shape.record_bytes));
      if (options.progress != nullptr && row % 4096 == 0) options.progress(row, shape.rows);
    }
    return std::make_unique<TreeServer>(std::move(setup), shape, std::move(table), options.pool);
  }

  absl::StatusOr<std::unique_ptr<Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const SessionOptions& options) const override {
    if (setups.size() != 2 || options.store == nullptr) {
      return absl::InvalidArgumentError("treepir: two setups and a place for the state are needed");
    }
    SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
    SHOAL_ASSIGN_OR_RETURN(const TreeShape shape, TreeShapeOf(setups[0]));
    // With them the manifest's digest.
    if (SetupId(setups[0]) != SetupId(setups[1])) {
      return absl::InvalidArgumentError("treepir: the servers have different setups");
    }
    return std::make_unique<TreeSession>(setups[0], shape, options.store);
  }
};

}  // namespace

uint32_t TreeHintsOf(const TreeShape& shape) { return std::min(TreeGroupOf(shape), shape.hints); }

absl::StatusOr<TreeShape> TreeShapeOf(const wire::PirSetup& setup) {
  if (setup.shape() != kShape || setup.rows_per_column() != 0 || setup.columns() != 0 ||
      setup.record_bytes() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        "treepir setup: shape, rows_per_column, columns, record_bytes");
  }
  SHOAL_ASSIGN_OR_RETURN(const TreeShape shape,
                         TreeShapeFor(setup.rows(), setup.record_bytes(), kQueries));
  if (shape.answer_bytes() > kMaxAnswerBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("treepir setup: rows and record_bytes make answers of ", shape.answer_bytes(),
                     " bytes, and ", kMaxAnswerBytes, " is the most"));
  }
  return shape;
}

const Engine& TreePirEngine() {
  static const TreeEngine engine;
  return engine;
}

}  // namespace shoal::pir::sets
