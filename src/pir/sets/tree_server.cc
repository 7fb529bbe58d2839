#include "src/pir/sets/tree_server.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/pir/pages.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/sets/row_changes.h"
#include "src/pir/sets/tree_pir.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::sets {
namespace {

constexpr size_t kIdBytes = sizeof(Digest);
constexpr size_t kHintsBodyBytes = kIdBytes + kTreeSeedBytes + sizeof(uint32_t);
// A delta that is longer than this part of a client's hints is not worth it.
constexpr uint64_t kMaxDeltaPart = 2;

class TreeServer final : public Server {
 public:
  TreeServer(wire::PirSetup setup, const TreeSetup& parsed, PageBuffer table,
             std::unique_ptr<rlwe::SmallServer> reader, const ServerOptions& options)
      : setup_(std::move(setup)),
        shape_(parsed.shape),
        reader_query_bytes_(parsed.reader_query_bytes),
        table_(std::move(table)),
        reader_(std::move(reader)),
        pool_(options.pool),
        heavy_pool_(options.heavy_pool),
        stop_heavy_(options.stop_heavy),
        id_(SetupId(setup_)) {}

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override {
    return std::max(uint64_t{kHintsBodyBytes}, QueryBodyBytes());
  }

  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override {
    std::vector<absl::StatusOr<Bytes>> answers(requests.size());
    const auto answer = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) answers[i] = AnswerOne(role, requests[i]);
    };
    if (pool_ == nullptr || requests.size() < 2) {
      answer(0, requests.size());
    } else {
      pool_->ParallelFor(requests.size(), 1, answer);
    }
    if (reader_ == nullptr) return answers;
    // One after the other, each on all threads.
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!answers[i].ok() || requests[i].kind != kTreeQuery) continue;
      answers[i] = Read(*answers[i], requests[i].body.last(reader_query_bytes_));
    }
    return answers;
  }

  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override {
    SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
    return static_cast<double>(changed_rows.size()) / static_cast<double>(shape_.rows);
  }

  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override {
    SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
    std::optional<Bytes> changes = TakeChangedRows(
        changed_rows, shape_.record_bytes, shape_.parity_bytes() / kMaxDeltaPart,
        [this](uint64_t row) {
          return MutableBytes(table_).subspan(row * shape_.record_bytes, shape_.record_bytes);
        },
        content.copy);
    const Digest from = id_;
    setup_.set_epoch(content.epoch);
    setup_.set_manifest_digest(ToString(content.manifest_digest));
    id_ = SetupId(setup_);
    if (!changes.has_value()) return std::optional<Delta>();
    return std::optional<Delta>({.from = from, .to = setup_, .changes = *std::move(changes)});
  }

 private:
  absl::Status CheckNext(const Content& content, std::span<const uint64_t> changed_rows) const {
    if (ToString(content.table_id) != setup_.table_id() || content.rows != shape_.rows ||
        content.record_bytes != shape_.record_bytes || content.epoch <= setup_.epoch()) {
      return absl::InvalidArgumentError("treepir: no later epoch of this table in this shape");
    }
    return CheckChangedRows(changed_rows, shape_.rows);
  }

  absl::StatusOr<Bytes> AnswerOne(Role role, const RequestView& request) const {
    const bool hints = role == Role::kOffline && request.kind == kTreeHints;
    const bool query = role != Role::kSingle && request.kind == kTreeQuery;
    const uint64_t bytes = hints ? kHintsBodyBytes : QueryBodyBytes();
    if ((!hints && !query) || request.count != 1 || request.body.size() != bytes) {
      return absl::InvalidArgumentError("treepir: no request of this engine to this role");
    }
    if (!std::ranges::equal(id_, request.body.first(kIdBytes))) {
      return absl::FailedPreconditionError("treepir: a request for another setup");
    }
    const BytesView body = request.body.subspan(kIdBytes);
    return hints ? MakeHints(body) : AnswerQuery(body.first(shape_.query_bytes()));
  }

  absl::StatusOr<Bytes> MakeHints(BytesView body) const {
    const SecretArray<kTreeSeedBytes> seed(body.first(kTreeSeedBytes));
    const auto first = LoadLe<uint32_t>(body.data() + kTreeSeedBytes);
    if (first >= shape_.hints) {
      return absl::InvalidArgumentError(
          absl::StrCat("treepir: hints from ", first, " on, of ", shape_.hints));
    }
    const uint64_t count = std::min(TreeHintsOf(shape_), shape_.hints - first);
    Bytes parities(count * shape_.record_bytes);
    if (!MakeTreeParities(shape_, table_, seed, first, parities, heavy_pool_, stop_heavy_)) {
      return absl::FailedPreconditionError(
          "treepir: the table has a new epoch, and no more hints of the one before are made: ask "
          "for the setup again");
    }
    return parities;
  }

  absl::StatusOr<Bytes> AnswerQuery(BytesView body) const {
    std::vector<uint32_t> offsets(shape_.query_offsets());
    SHOAL_RETURN_IF_ERROR(ExpandTreeQuery(shape_, body, offsets));
    Bytes answer(shape_.answer_bytes());
    AnswerTreeQuery(shape_, table_, offsets, answer);
    return answer;
  }

  // What a query of Small PIR says to the answer of a tree.
  absl::StatusOr<Bytes> Read(BytesView answer, BytesView query) const {
    const uint32_t record = shape_.record_bytes;
    const RequestView request = {.kind = 0, .count = 1, .body = query};
    const MutexLock lock(reader_mutex_);
    Content content;
    content.rows = shape_.chunks;
    content.record_bytes = record;
    content.copy = [&](uint64_t chunk, MutableBytes out) {
      std::ranges::copy(answer.subspan(chunk * record, record), out.begin());
    };
    reader_->Replace(content);
    return std::move(reader_->Answer(Role::kSingle, std::span(&request, 1))[0]);
  }

  uint64_t QueryBodyBytes() const { return kIdBytes + shape_.query_bytes() + reader_query_bytes_; }

  wire::PirSetup setup_;
  const TreeShape shape_;
  const uint64_t reader_query_bytes_;
  // A copy of the rows, and zeros behind them.
  PageBuffer table_;
  // Of the answer to one query at a time, or null. The pointer does not change.
  mutable Mutex reader_mutex_;
  const std::unique_ptr<rlwe::SmallServer> reader_ ABSL_PT_GUARDED_BY(reader_mutex_);
  ThreadPool* const pool_;
  ThreadPool* const heavy_pool_;
  const std::atomic<bool>* const stop_heavy_;
  Digest id_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> CreateTreeServer(wire::PirSetup setup,
                                                         const Content& content,
                                                         const ServerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const TreeSetup parsed, ParseTreeSetup(setup));
  const TreeShape& shape = parsed.shape;
  SHOAL_ASSIGN_OR_RETURN(PageBuffer table,
                         AllocatePages(shape.table_bytes(), "the rows of treepir"));
  for (uint64_t row = 0; row < shape.rows; ++row) {
    content.copy(row, MutableBytes(table).subspan(row * shape.record_bytes, shape.record_bytes));
    if (options.progress != nullptr && row % 4096 == 0) options.progress(row, shape.rows);
  }
  std::unique_ptr<rlwe::SmallServer> reader;
  if (parsed.reader.has_value()) {
    Content zeros;
    zeros.rows = shape.chunks;
    zeros.record_bytes = shape.record_bytes;
    zeros.copy = [](uint64_t, MutableBytes out) { std::ranges::fill(out, uint8_t{0}); };
    SHOAL_ASSIGN_OR_RETURN(
        reader, rlwe::SmallServer::Create(zeros, *parsed.reader, {.pool = options.pool}));
  }
  return std::make_unique<TreeServer>(std::move(setup), parsed, std::move(table), std::move(reader),
                                      options);
}

}  // namespace shoal::pir::sets
