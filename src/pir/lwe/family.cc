#include "src/pir/lwe/family.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/batch.h"
#include "src/pir/lwe/scheme.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/lwe/units.h"

namespace shoal::pir::lwe {
namespace {

// The most bytes of whole queries in one request, so that slow links see progress.
constexpr uint64_t kRequestBytes = 4 << 20;

uint64_t QueriesPerRequest(const Sizes& sizes) {
  return std::clamp<uint64_t>(kRequestBytes / sizes.query_bytes, 1, kMaxQueriesPerRequest);
}

class EngineServer final : public pir::Server {
 public:
  EngineServer(std::unique_ptr<lwe::Server> server, const Sizes& sizes)
      : server_(std::move(server)), sizes_(sizes) {}

  const wire::PirSetup& setup() const override { return server_->setup(); }
  BytesView hint() const override { return server_->hint(); }
  std::span<const uint32_t> product() const override { return server_->product(); }
  uint64_t max_request_bytes() const override { return kMaxQueriesPerRequest * sizes_.query_bytes; }

  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override {
    std::vector<absl::StatusOr<Bytes>> answers(requests.size(), Bytes());
    // Whole queries of all requests share a pass.
    std::vector<BytesView> whole;
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestView& request = requests[i];
      const std::vector<BytesView> queries = QueriesOf(request);
      if (role != Role::kSingle || queries.empty()) {
        answers[i] = absl::InvalidArgumentError(absl::StrFormat(
            "pir: a request to a %s server has 1 to %d queries of equal length, not %d in %d bytes",
            RoleName(Role::kSingle), kMaxQueriesPerRequest, request.count, request.body.size()));
      } else if (request.kind == kWholeQueries) {
        whole.insert(whole.end(), queries.begin(), queries.end());
      } else if (request.kind == kBatchOverChunks && !IsNumberOfChunks(request.count)) {
        // With few chunks a request costs more than as many whole queries.
        answers[i] = absl::InvalidArgumentError(
            absl::StrCat("pir: no batch has ", request.count, " chunks"));
      } else if (request.kind == kBatchOverChunks) {
        answers[i] = Joined(server_->AnswerChunks(queries));
      } else {
        answers[i] = absl::InvalidArgumentError(
            absl::StrCat("pir: no request of the kind ", request.kind, " for this engine"));
      }
    }
    if (whole.empty()) return answers;
    const std::vector<absl::StatusOr<Bytes>> each = server_->Answer(whole);
    size_t next = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!answers[i].ok() || requests[i].kind != kWholeQueries) continue;
      absl::Status status;
      for (uint32_t k = 0; k < requests[i].count; ++k, ++next) {
        if (each[next].ok()) {
          Append(*answers[i], *each[next]);
        } else {
          status.Update(each[next].status());
        }
      }
      if (!status.ok()) answers[i] = status;
    }
    return answers;
  }

  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override {
    return server_->RefreshShare(content, changed_rows);
  }
  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override {
    return server_->Refresh(content, changed_rows);
  }

 private:
  // None if the body cannot be cut.
  static std::vector<BytesView> QueriesOf(const RequestView& request) {
    std::vector<BytesView> queries;
    if (request.count == 0 || request.count > kMaxQueriesPerRequest ||
        request.body.size() % request.count != 0) {
      return queries;
    }
    const size_t each = request.body.size() / request.count;
    for (uint32_t i = 0; i < request.count; ++i) {
      queries.push_back(request.body.subspan(i * each, each));
    }
    return queries;
  }
  static absl::StatusOr<Bytes> Joined(const absl::StatusOr<std::vector<Bytes>>& parts) {
    if (!parts.ok()) return parts.status();
    Bytes joined;
    for (const Bytes& part : *parts) Append(joined, part);
    return joined;
  }

  const std::unique_ptr<lwe::Server> server_;
  const Sizes sizes_;
};

// Gives every wanted row a place in the plan's batches and whole queries. A place without a wanted
// row asks for a row that stands in.
class EngineBatch final : public Batch {
 public:
  // `client` outlives the batch.
  EngineBatch(const lwe::Client* client, const Sizes& sizes, const Wanted& wanted)
      : client_(*client),
        setup_(client->setup()),
        sizes_(sizes),
        plan_(PlanBatch(setup_, sizes, wanted.keys, wanted.spread)),
        records_(wanted.rows.size() * setup_.record_bytes()) {
    std::vector<SecretVector<Place>> by_chunk(std::max<uint64_t>(1, plan_.chunks));
    SecretVector<Place> whole;
    for (size_t i = 0; i < wanted.rows.size(); ++i) {
      const Place place = {.row = wanted.rows[i], .index = i};
      if (plan_.batches == 0) {
        whole.push_back(place);
        continue;
      }
      auto& chunk = by_chunk[ChunkOf(setup_, plan_.chunks, place.row)];
      (chunk.size() < plan_.batches ? chunk : whole).push_back(place);
    }
    for (uint64_t b = 0; b < plan_.batches; ++b) {
      Step step{.kind = kBatchOverChunks, .places = {}};
      for (uint64_t c = 0; c < plan_.chunks; ++c) {
        // The chunk's first row stands in.
        step.places.push_back(b < by_chunk[c].size()
                                  ? by_chunk[c][b]
                                  : Place{.row = c * ChunkBlocks(setup_, plan_.chunks)});
      }
      steps_.push_back(std::move(step));
    }
    // More than the plan has only if rows lie together that no hash spread (batch.h). Then every
    // key has a whole query, so that how many rows had no place is not seen.
    whole.resize(whole.size() > plan_.whole ? wanted.keys : plan_.whole);
    const uint64_t most = QueriesPerRequest(sizes_);
    for (size_t first = 0; first < whole.size(); first += most) {
      const size_t end = std::min<size_t>(whole.size(), first + most);
      steps_.push_back({.kind = kWholeQueries,
                        .places = {whole.begin() + static_cast<ptrdiff_t>(first),
                                   whole.begin() + static_cast<ptrdiff_t>(end)}});
    }
  }

  uint64_t steps() const override { return steps_.size() - next_; }

  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(next_ < steps_.size() && asked_.empty());
    const Step& step = steps_[next_];
    SecretVector<uint64_t> rows;
    for (const Place& place : step.places) rows.push_back(place.row);
    // Together: the public matrix is expanded once for them.
    SHOAL_ASSIGN_OR_RETURN(asked_, client_.Ask(rows, random));
    Request request;
    request.kind = step.kind;
    request.count = static_cast<uint32_t>(rows.size());
    for (size_t i = 0; i < asked_.size(); ++i) {
      Append(request.body, std::exchange(asked_[i].query, {}));
      request.answer_bytes += AnswerBytes(step, i);
    }
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    return requests;
  }

  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == 1 && !asked_.empty());
    const Step& step = steps_[next_];
    uint64_t total = 0;
    for (size_t i = 0; i < asked_.size(); ++i) total += AnswerBytes(step, i);
    if (answers[0].size() != total) {
      return absl::InvalidArgumentError(
          absl::StrFormat("pir: an answer of %d bytes, not %d", answers[0].size(), total));
    }
    BytesView rest = answers[0];
    // Recovers the rows that stand in, too, so that the time of the next request does not tell how
    // many of them there are.
    for (size_t i = 0; i < asked_.size(); ++i) {
      const BytesView answer = rest.first(AnswerBytes(step, i));
      rest = rest.subspan(answer.size());
      SHOAL_ASSIGN_OR_RETURN(const Bytes record,
                             step.kind == kBatchOverChunks
                                 ? client_.RecoverChunk(asked_[i], plan_.chunks, answer)
                                 : client_.Recover(asked_[i], answer));
      if (const size_t index = step.places[i].index; index != kNobody) {
        std::ranges::copy(record, records_.begin() + static_cast<ptrdiff_t>(index * record.size()));
      }
    }
    asked_.clear();
    ++next_;
    return absl::OkStatus();
  }

  SecretVector<uint8_t> TakeRecords() override {
    SHOAL_CHECK(steps() == 0);
    return std::move(records_);
  }

 private:
  static constexpr size_t kNobody = static_cast<size_t>(-1);
  struct Place {
    uint64_t row = 0;
    size_t index = kNobody;  // among the wanted rows
  };
  struct Step {
    uint32_t kind = 0;
    SecretVector<Place> places;
  };

  uint64_t AnswerBytes(const Step& step, size_t i) const {
    return step.kind == kBatchOverChunks ? ChunkAnswerBytes(setup_, sizes_, plan_.chunks, i)
                                         : sizes_.answer_bytes;
  }

  const lwe::Client& client_;
  const wire::PirSetup setup_;
  const Sizes sizes_;
  const BatchPlan plan_;
  std::vector<Step> steps_;
  size_t next_ = 0;
  std::vector<Asked> asked_;  // of the step under way
  SecretVector<uint8_t> records_;
};

class EngineSession final : public Session {
 public:
  EngineSession(wire::PirSetup setup, const Sizes& sizes, const SessionOptions& options)
      : setup_(std::move(setup)), sizes_(sizes), options_(options) {}

  const wire::PirSetup& setup() const override {
    return client_ == nullptr ? setup_ : client_->setup();
  }
  Need needed(uint64_t) const override { return client_ == nullptr ? Need::kHint : Need::kNothing; }
  absl::Status TakeHint(BytesView hint) override {
    SHOAL_ASSIGN_OR_RETURN(client_, CreateClient(setup_, hint, {.pool = options_.pool}));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) override {
    SHOAL_CHECK(client_ != nullptr && wanted.rows.size() <= wanted.keys);
    for (const uint64_t row : wanted.rows) {
      if (row >= setup().rows()) {
        return absl::OutOfRangeError(
            absl::StrFormat("pir: row %d of a table of %d rows", row, setup().rows()));
      }
    }
    return std::make_unique<EngineBatch>(client_.get(), sizes_, wanted);
  }
  uint64_t KeysPerStep() const override { return QueriesPerRequest(sizes_); }

  absl::Status Advance(const DeltaView& delta) override {
    SHOAL_CHECK(client_ != nullptr);
    return client_->Apply(delta);
  }

 private:
  const wire::PirSetup setup_;
  const Sizes sizes_;  // of all epochs that deltas lead to, as they keep the shape
  const SessionOptions options_;
  std::unique_ptr<lwe::Client> client_;  // once there is a hint
};

class LweEngine final : public Engine {
 public:
  explicit LweEngine(Scheme scheme) : scheme_(scheme) {}

  absl::string_view name() const override { return SchemeName(scheme_); }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kSingle};
    return kRoles;
  }
  bool keeps_state() const override { return false; }

  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const pir::ServerOptions& options) const override {
    return lwe::ShapeOf(scheme_, content, OptionsOf(options));
  }
  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape) const override {
    return lwe::SizesOfShape(scheme_, shape);
  }
  Work WorkOf(const wire::PirSetup& shape, double together) const override {
    return lwe::WorkOf(scheme_, shape, together);
  }

  absl::StatusOr<std::unique_ptr<pir::Server>> CreateServer(
      const Content& content, pir::ServerOptions options) const override {
    lwe::ServerOptions own = OptionsOf(options);
    own.product = std::move(options.product);
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<lwe::Server> server,
                           lwe::CreateServer(scheme_, content, std::move(own)));
    SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(server->setup()));
    return std::make_unique<EngineServer>(std::move(server), sizes);
  }
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const SessionOptions& options) const override {
    SHOAL_CHECK(setups.size() == 1);
    SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(setups[0]));
    return std::make_unique<EngineSession>(setups[0], sizes, options);
  }

 private:
  static lwe::ServerOptions OptionsOf(const pir::ServerOptions& options) {
    lwe::ServerOptions own;
    own.max_hint_bytes = options.max_hint_bytes;
    if (options.shape) {
      own.rows_per_column = options.shape->rows_per_column();
      own.columns = options.shape->columns();
    }
    own.pool = options.pool;
    own.progress = options.progress;
    return own;
  }

  const Scheme scheme_;
};

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&SimplePir(), &DoublePir()};
    return engines;
  }
  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool& pool) const override {
    return lwe::MeasureUnits(bytes, random, pool);
  }
};

}  // namespace

const Engine& SimplePir() {
  static const LweEngine engine(Scheme::kSimplePir);
  return engine;
}

const Engine& DoublePir() {
  static const LweEngine engine(Scheme::kDoublePir);
  return engine;
}

const Family& LweFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::lwe
