#include "src/pir/testing/xor_engine.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::pir::testing {
namespace {

// Kinds of request. To the offline server: a setup's id and a seed. To the online server: a setup's
// id and a bit for every row.
constexpr uint32_t kQuery = 0;
constexpr uint32_t kPrepare = 1;
constexpr size_t kSeedBytes = 32;

size_t SetBytes(const wire::PirSetup& setup) { return (setup.rows() + 7) / 8; }

Bytes SetOf(BytesView seed, const wire::PirSetup& setup) {
  SeededRandom random(seed, "shoal xor engine for tests", 0);
  Bytes set(SetBytes(setup));
  random.Fill(set);
  return set;
}

class XorServer final : public Server {
 public:
  XorServer(wire::PirSetup setup, Content content)
      : setup_(std::move(setup)), content_(std::move(content)), id_(SetupId(setup_)) {}

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override {
    return id_.size() + std::max(kSeedBytes, SetBytes(setup_));
  }
  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override {
    std::vector<absl::StatusOr<Bytes>> answers;
    for (const RequestView& request : requests) answers.push_back(AnswerOne(role, request));
    return answers;
  }
  absl::StatusOr<double> RefreshShare(const Content&, std::span<const uint64_t>) const override {
    return 1;
  }
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t>) override {
    content_ = content;
    setup_.set_epoch(content.epoch);
    setup_.set_manifest_digest(ToString(content.manifest_digest));
    setup_.set_rows(content.rows);
    id_ = SetupId(setup_);
    return std::optional<Delta>();
  }

 private:
  absl::StatusOr<Bytes> AnswerOne(Role role, const RequestView& request) const {
    const bool offline = role == Role::kOffline && request.kind == kPrepare;
    const bool online = role == Role::kOnline && request.kind == kQuery;
    const size_t bytes = id_.size() + (offline ? kSeedBytes : SetBytes(setup_));
    if ((!offline && !online) || request.count != 1 || request.body.size() != bytes) {
      return absl::InvalidArgumentError("xor: no request of this engine");
    }
    if (!std::ranges::equal(id_, request.body.first(id_.size()))) {
      return absl::FailedPreconditionError("xor: a request for another setup");
    }
    const BytesView body = request.body.subspan(id_.size());
    const Bytes set = offline ? SetOf(body, setup_) : ToBytes(body);
    Bytes sum(setup_.record_bytes()), record(setup_.record_bytes());
    for (uint64_t row = 0; row < setup_.rows(); ++row) {
      if ((set[row / 8] >> (row % 8) & 1) == 0) continue;
      content_.copy(row, record);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] ^= record[i];
    }
    return sum;
  }

  wire::PirSetup setup_;
  Content content_;
  Digest id_;
};

// State on disk: the setup's id, then hints, a seed and an XOR each.
class XorSession final : public Session {
 public:
  XorSession(wire::PirSetup setup, SessionStore* store)
      : setup_(std::move(setup)), store_(*store), id_(SetupId(setup_)) {
    SecretVector<uint8_t> state(store_.state_bytes());
    SHOAL_CHECK(store_.Read(0, state).ok());
    const BytesView saved = state;
    if (saved.size() >= id_.size() && std::ranges::equal(saved.first(id_.size()), id_) &&
        (saved.size() - id_.size()) % HintBytes() == 0) {
      hints_.assign(saved.begin() + static_cast<ptrdiff_t>(id_.size()), saved.end());
    }
  }

  const wire::PirSetup& setup() const override { return setup_; }
  // Every query makes a new hint, so that no lookup needs more than there are at first.
  Need needed(uint64_t) const override {
    return *Budget() < kXorHints ? Need::kRequests : Need::kNothing;
  }
  absl::StatusOr<Request> Prepare(RandomSource& random) override { return AskForHint(random); }
  absl::Status TakePrepared(BytesView answer) override {
    SHOAL_RETURN_IF_ERROR(TakeHintOf(answer));
    return Save();
  }
  std::optional<uint64_t> Budget() const override { return hints_.size() / HintBytes(); }
  uint64_t KeysPerStep() const override { return 1; }
  absl::Status Advance(const DeltaView&) override {
    return absl::InvalidArgumentError("xor: hints do not follow epochs");
  }
  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) override;

 private:
  friend class XorBatch;
  size_t HintBytes() const { return kSeedBytes + setup_.record_bytes(); }
  Request NewRequest(Role role, uint32_t kind, BytesView body) const {
    Request request;
    request.role = role;
    request.kind = kind;
    request.answer_bytes = setup_.record_bytes();
    request.body = ToBytes(id_);
    Append(request.body, body);
    return request;
  }
  Request AskForHint(RandomSource& random) {
    seed_.resize(kSeedBytes);
    random.Fill(seed_);
    return NewRequest(Role::kOffline, kPrepare, seed_);
  }
  absl::Status TakeHintOf(BytesView answer) {
    if (answer.size() != setup_.record_bytes() || seed_.empty()) {
      return absl::InvalidArgumentError("xor: a hint of the wrong length");
    }
    hints_.insert(hints_.end(), seed_.begin(), seed_.end());
    hints_.insert(hints_.end(), answer.begin(), answer.end());
    seed_.clear();
    return absl::OkStatus();
  }
  absl::Status Save() {
    SecretVector<uint8_t> state(id_.begin(), id_.end());
    state.insert(state.end(), hints_.begin(), hints_.end());
    return store_.Save(state);
  }

  const wire::PirSetup setup_;
  SessionStore& store_;
  const Digest id_;
  SecretVector<uint8_t> hints_;
  SecretVector<uint8_t> seed_;  // of the hint that is being prepared
};

class XorBatch final : public Batch {
 public:
  XorBatch(XorSession* session, const Wanted& wanted)
      : session_(*session), rows_(wanted.rows.begin(), wanted.rows.end()), steps_(wanted.keys) {}

  uint64_t steps() const override { return steps_ - done_; }
  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(steps() > 0);
    const size_t hint_bytes = session_.HintBytes();
    if (*session_.Budget() == 0) return absl::ResourceExhaustedError("xor: no hints are left");
    auto& hints = session_.hints_;
    hint_.assign(hints.end() - static_cast<ptrdiff_t>(hint_bytes), hints.end());
    hints.resize(hints.size() - hint_bytes);
    // Spent before it is used, on disk too.
    SHOAL_RETURN_IF_ERROR(session_.Save());
    Bytes set = SetOf(BytesView(hint_).first(kSeedBytes), session_.setup_);
    const uint64_t row = done_ < rows_.size() ? rows_[done_] : 0;
    set[row / 8] ^= static_cast<uint8_t>(1u << (row % 8));
    std::vector<Request> requests;
    requests.push_back(session_.AskForHint(random));
    requests.push_back(session_.NewRequest(Role::kOnline, kQuery, set));
    return requests;
  }
  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == 2);
    if (answers[1].size() != session_.setup_.record_bytes()) {
      return absl::InvalidArgumentError("xor: an answer of the wrong length");
    }
    SHOAL_RETURN_IF_ERROR(session_.TakeHintOf(answers[0]));
    SHOAL_RETURN_IF_ERROR(session_.Save());
    for (size_t i = 0; i < answers[1].size() && done_ < rows_.size(); ++i) {
      records_.push_back(answers[1][i] ^ hint_[kSeedBytes + i]);
    }
    ++done_;
    return absl::OkStatus();
  }
  SecretVector<uint8_t> TakeRecords() override { return std::move(records_); }

 private:
  XorSession& session_;
  const std::vector<uint64_t> rows_;
  const uint64_t steps_;
  uint64_t done_ = 0;
  SecretVector<uint8_t> hint_;
  SecretVector<uint8_t> records_;
};

absl::StatusOr<std::unique_ptr<Batch>> XorSession::Ask(const Wanted& wanted) {
  for (const uint64_t row : wanted.rows) {
    if (row >= setup_.rows()) return absl::OutOfRangeError("xor: no such row");
  }
  return std::make_unique<XorBatch>(this, wanted);
}

class XorEngineClass final : public Engine {
 public:
  absl::string_view name() const override { return "xor"; }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kOffline, Role::kOnline};
    return kRoles;
  }
  bool keeps_state() const override { return true; }
  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions&) const override {
    wire::PirSetup setup = SetupOf("xor", content);
    setup.set_shape("xor sets");
    SHOAL_RETURN_IF_ERROR(SizesOfShape(setup).status());
    return setup;
  }
  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape) const override {
    if (shape.shape() != "xor sets" || shape.rows() == 0 || shape.rows() > 1'000'000 ||
        shape.record_bytes() == 0 || shape.record_bytes() > kMaxRecordBytes) {
      return absl::InvalidArgumentError("xor setup: shape, rows or record_bytes");
    }
    Sizes sizes;
    sizes.query_bytes = 2 * sizeof(Digest) + kSeedBytes + SetBytes(shape);
    sizes.answer_bytes = 2 * uint64_t{shape.record_bytes()};
    return sizes;
  }
  Work WorkOf(const wire::PirSetup& shape, double) const override {
    const double rows = static_cast<double>(shape.rows());
    return {.setup = {}, .query = {}, .answer = {{"row_gathered", rows}}, .recover = {}};
  }
  absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                       ServerOptions options) const override {
    SHOAL_ASSIGN_OR_RETURN(wire::PirSetup setup, ShapeOf(content, options));
    return std::make_unique<XorServer>(std::move(setup), content);
  }
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const SessionOptions& options) const override {
    SHOAL_CHECK(setups.size() == 2 && options.store != nullptr);
    SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
    if (SetupId(setups[0]) != SetupId(setups[1])) {
      return absl::InvalidArgumentError("xor: the servers have different setups");
    }
    return std::make_unique<XorSession>(setups[0], options.store);
  }
};

class XorFamilyClass final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&XorEngine()};
    return engines;
  }
  std::span<const Amount> units() const override {
    static constexpr Amount kUnits[] = {{"row_gathered", 20}};
    return kUnits;
  }
  std::vector<Amount> MeasureUnits(uint64_t, RandomSource&, ThreadPool&) const override {
    return {{"row_gathered", 10}};
  }
};

}  // namespace

const Engine& XorEngine() {
  static const XorEngineClass engine;
  return engine;
}

const Family& XorFamily() {
  static const XorFamilyClass family;
  return family;
}

}  // namespace shoal::pir::testing
