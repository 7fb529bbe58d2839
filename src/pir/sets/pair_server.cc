#include "src/pir/sets/pair_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/sets/row_changes.h"

namespace shoal::pir::sets {
namespace {

constexpr size_t kIdBytes = sizeof(Digest);
// A delta that is longer than this part of what a client keeps is not worth it.
constexpr uint64_t kMaxDeltaPart = 2;

}  // namespace

PairServer::PairServer(wire::PirSetup setup, Lengths lengths, PageBuffer table,
                       const ServerOptions& options)
    : setup_(std::move(setup)),
      lengths_(lengths),
      table_(std::move(table)),
      pool_(options.pool),
      heavy_pool_(options.heavy_pool),
      stop_heavy_(options.stop_heavy),
      id_(SetupId(setup_)) {}

void PairServer::LoadRows(const Content& content, const ServerOptions& options,
                          MutableBytes table) {
  for (uint64_t row = 0; row < content.rows; ++row) {
    content.copy(row, table.subspan(row * content.record_bytes, content.record_bytes));
    if (options.progress != nullptr && row % 4096 == 0) options.progress(row, content.rows);
  }
}

uint64_t PairServer::max_request_bytes() const {
  return kIdBytes + std::max(lengths_.query, lengths_.hints);
}

std::vector<absl::StatusOr<Bytes>> PairServer::Answer(Role role,
                                                      std::span<const RequestView> requests) const {
  std::vector<absl::StatusOr<Bytes>> answers(requests.size());
  const auto answer = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) answers[i] = AnswerOne(role, requests[i]);
  };
  if (pool_ == nullptr || requests.size() < 2) {
    answer(0, requests.size());
  } else {
    pool_->ParallelFor(requests.size(), 1, answer);
  }
  return answers;
}

absl::StatusOr<double> PairServer::RefreshShare(const Content& content,
                                                std::span<const uint64_t> changed_rows) const {
  SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
  return static_cast<double>(changed_rows.size()) / static_cast<double>(setup_.rows());
}

absl::StatusOr<std::optional<Delta>> PairServer::Refresh(const Content& content,
                                                         std::span<const uint64_t> changed_rows) {
  SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
  const uint32_t bytes = content.record_bytes;
  std::optional<Bytes> changes = TakeChangedRows(
      changed_rows, bytes, lengths_.client / kMaxDeltaPart,
      [&](uint64_t row) { return MutableBytes(table_).subspan(row * bytes, bytes); }, content.copy);
  const Digest from = id_;
  setup_.set_epoch(content.epoch);
  setup_.set_manifest_digest(ToString(content.manifest_digest));
  id_ = SetupId(setup_);
  if (!changes.has_value()) return std::optional<Delta>();
  return std::optional<Delta>({.from = from, .to = setup_, .changes = *std::move(changes)});
}

absl::Status PairServer::Stopped() const {
  return absl::FailedPreconditionError(
      Says("the table has a new epoch, and no more hints of the one before are made: ask for the "
           "setup again"));
}

std::string PairServer::Says(absl::string_view what) const {
  return absl::StrCat(setup_.engine(), ": ", what);
}

absl::Status PairServer::CheckNext(const Content& content,
                                   std::span<const uint64_t> changed_rows) const {
  if (ToString(content.table_id) != setup_.table_id() || content.rows != setup_.rows() ||
      content.record_bytes != setup_.record_bytes() || content.epoch <= setup_.epoch()) {
    return absl::InvalidArgumentError(Says("no later epoch of this table in this shape"));
  }
  return CheckChangedRows(changed_rows, setup_.rows());
}

absl::StatusOr<Bytes> PairServer::AnswerOne(Role role, const RequestView& request) const {
  const bool hints = role == Role::kOffline && request.kind == kHints;
  const bool query = role != Role::kSingle && request.kind == kQuery;
  const uint64_t bytes = kIdBytes + (hints ? lengths_.hints : lengths_.query);
  if ((!hints && !query) || request.count != 1 || request.body.size() != bytes) {
    return absl::InvalidArgumentError(Says("no request of this engine to this role"));
  }
  if (!std::ranges::equal(id_, request.body.first(kIdBytes))) {
    return absl::FailedPreconditionError(Says("a request for another setup"));
  }
  const BytesView body = request.body.subspan(kIdBytes);
  return hints ? MakeHints(body) : AnswerQuery(body);
}

}  // namespace shoal::pir::sets
