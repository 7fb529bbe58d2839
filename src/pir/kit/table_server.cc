#include "src/pir/kit/table_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/checks.h"
#include "src/pir/kit/row_changes.h"

namespace shoal::pir {
namespace {

constexpr uint64_t kMaxDeltaPart = 2;

}  // namespace

TableServer::TableServer(wire::PirSetup setup, uint64_t max_body_bytes, uint64_t fetched_bytes,
                         PageBuffer table, ThreadPool* pool)
    : setup_(std::move(setup)),
      max_body_bytes_(max_body_bytes),
      fetched_bytes_(fetched_bytes),
      table_(std::move(table)),
      pool_(pool),
      id_(SetupId(setup_)) {}

void TableServer::LoadRows(const Content& content, const ServerOptions& options,
                           MutableBytes table) {
  for (uint64_t row = 0; row < content.rows; ++row) {
    content.copy(row, table.subspan(row * content.record_bytes, content.record_bytes));
    if (options.progress != nullptr && row % 4096 == 0) options.progress(row, content.rows);
  }
}

std::vector<absl::StatusOr<Bytes>> TableServer::Answer(
    Role role, std::span<const RequestView> requests) const {
  std::vector<absl::StatusOr<Bytes>> answers(requests.size());
  ParallelForEach(pool_, requests.size(),
                  [&](size_t i) { answers[i] = AnswerOne(role, requests[i]); });
  return answers;
}

absl::StatusOr<double> TableServer::RefreshShare(const Content& content,
                                                 std::span<const uint64_t> changed_rows) const {
  SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
  return static_cast<double>(changed_rows.size()) / static_cast<double>(setup_.rows());
}

absl::StatusOr<std::optional<Delta>> TableServer::Refresh(const Content& content,
                                                          std::span<const uint64_t> changed_rows) {
  SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
  const uint32_t bytes = content.record_bytes;
  std::optional<Bytes> changes = TakeChangedRows(
      changed_rows, bytes, fetched_bytes_ / kMaxDeltaPart,
      [&](uint64_t row) { return MutableBytes(table_).subspan(row * bytes, bytes); }, content.copy);
  const Digest from = id_;
  SetEpoch(content, setup_);
  RowsChanged(changed_rows, setup_);
  id_ = SetupId(setup_);
  if (!changes.has_value()) return std::optional<Delta>();
  return std::optional<Delta>({.from = from, .to = setup_, .changes = *std::move(changes)});
}

std::string TableServer::Says(absl::string_view what) const {
  return absl::StrCat(setup_.engine(), ": ", what);
}

absl::Status TableServer::CheckNext(const Content& content,
                                    std::span<const uint64_t> changed_rows) const {
  if (ToString(content.table_id) != setup_.table_id() || content.rows != setup_.rows() ||
      content.record_bytes != setup_.record_bytes() || content.epoch <= setup_.epoch()) {
    return absl::InvalidArgumentError(Says("no later epoch of this table in this shape"));
  }
  return CheckChangedRows(changed_rows, setup_.rows());
}

absl::StatusOr<Bytes> TableServer::AnswerOne(Role role, const RequestView& request) const {
  const std::optional<uint64_t> bytes = BodyBytes(role, request.kind);
  if (!bytes.has_value() || request.count != 1 || request.body.size() != sizeof(Digest) + *bytes) {
    return absl::InvalidArgumentError(Says("no request of this engine to this role"));
  }
  if (!std::ranges::equal(id_, request.body.first(sizeof(Digest)))) {
    return absl::FailedPreconditionError(
        Says("a request for another setup: the table has another epoch"));
  }
  return AnswerTo(request.kind, request.body.subspan(sizeof(Digest)));
}

PairServer::PairServer(wire::PirSetup setup, Lengths lengths, PageBuffer table,
                       const ServerOptions& options)
    : TableServer(std::move(setup), std::max(lengths.query, lengths.hints), lengths.client,
                  std::move(table), options.pool),
      lengths_(lengths),
      heavy_pool_(options.heavy_pool),
      stop_heavy_(options.stop_heavy) {}

absl::Status PairServer::Stopped() const {
  return absl::FailedPreconditionError(
      Says("the table has a new epoch, and no more hints of the one before are made: ask for the "
           "setup again"));
}

std::optional<uint64_t> PairServer::BodyBytes(Role role, uint32_t kind) const {
  if (role == Role::kOffline && kind == kHints) return lengths_.hints;
  if (role != Role::kSingle && kind == kQuery) return lengths_.query;
  return std::nullopt;
}

absl::StatusOr<Bytes> PairServer::AnswerTo(uint32_t kind, BytesView body) const {
  return kind == kHints ? MakeHints(body) : AnswerQuery(body);
}

}  // namespace shoal::pir
