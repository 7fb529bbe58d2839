#include "src/pir/lwe/scheme_base.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/rounding.h"
#include "src/storage/memory.h"

namespace shoal::pir::lwe {
namespace {

// None if the body cannot be cut.
std::vector<BytesView> QueriesOf(const RequestView& request) {
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
absl::StatusOr<Bytes> Joined(const absl::StatusOr<std::vector<Bytes>>& parts) {
  if (!parts.ok()) return parts.status();
  Bytes joined;
  for (const Bytes& part : *parts) Append(joined, part);
  return joined;
}

}  // namespace

absl::Status ServerBase::Begin(wire::PirSetup setup, const Sizes& sizes, uint32_t hint_bits_dropped,
                               const ServerOptions& options, const Kernel* kernel) {
  setup_ = std::move(setup);
  sizes_ = sizes;
  hint_bits_dropped_ = hint_bits_dropped;
  SHOAL_RETURN_IF_ERROR(
      CheckServerMemory(sizes, options, absl::StrCat(setup_.engine(), ": the server")));
  kernel_ = &KernelOr(kernel);
  pool_ = options.pool;
  SHOAL_ASSIGN_OR_RETURN(room_, PanelRoom(*kernel_));
  return absl::OkStatus();
}

void ServerBase::PackHint(std::span<const uint32_t> product) {
  hint_.clear();
  AppendRounded(product, hint_bits_dropped_, hint_);
  SetHint(hint_, setup_);
  id_ = SetupId(setup_);
}

std::vector<absl::StatusOr<Bytes>> ServerBase::Answer(Role role,
                                                      std::span<const RequestView> requests) const {
  std::vector<absl::StatusOr<Bytes>> answers(requests.size(), Bytes());
  // Whole queries of all requests share a pass.
  std::vector<BytesView> whole;
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestView& request = requests[i];
    const std::vector<BytesView> queries = QueriesOf(request);
    if (role != Role::kSingle || queries.empty()) {
      answers[i] = absl::InvalidArgumentError(absl::StrFormat(
          "pir: a request to a %s server has 1 to %d queries "
          "of equal length, not %d in %d bytes",
          RoleName(Role::kSingle), kMaxQueriesPerRequest, request.count, request.body.size()));
    } else if (request.kind == kWholeQueries) {
      whole.insert(whole.end(), queries.begin(), queries.end());
    } else if (request.kind == kBatchOverChunks && !IsNumberOfChunks(request.count)) {
      // With few chunks a request costs more than as many whole queries.
      answers[i] =
          absl::InvalidArgumentError(absl::StrCat("pir: no batch has ", request.count, " chunks"));
    } else if (request.kind == kBatchOverChunks) {
      answers[i] = Joined(AnswerChunks(queries));
    } else {
      answers[i] = absl::InvalidArgumentError(
          absl::StrCat("pir: no request of the kind ", request.kind, " for this engine"));
    }
  }
  if (whole.empty()) return answers;
  const std::vector<absl::StatusOr<Bytes>> each = Answer(whole);
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

std::vector<absl::StatusOr<Bytes>> ServerBase::Answer(std::span<const BytesView> queries) const {
  std::vector<absl::StatusOr<Bytes>> answers(queries.size(), Bytes());
  std::vector<BytesView> good;
  std::vector<size_t> places;
  for (size_t i = 0; i < queries.size(); ++i) {
    if (absl::Status status = CheckQuery(setup_, id_, sizes_.query_bytes, queries[i]);
        !status.ok()) {
      answers[i] = status;
    } else {
      good.push_back(queries[i]);
      places.push_back(i);
    }
  }
  if (good.empty()) return answers;
  absl::StatusOr<std::vector<Bytes>> answered = AnswerChecked(good);
  for (size_t i = 0; i < good.size(); ++i) {
    if (answered.ok()) {
      answers[places[i]] = std::move((*answered)[i]);
    } else {
      answers[places[i]] = answered.status();
    }
  }
  return answers;
}

absl::Status ClientBase::TakeHint(BytesView hint) {
  if (hint.size() != setup_.hint_bytes()) {
    return absl::DataLossError(absl::StrFormat("pir: a hint of %d bytes, not %d: truncated?",
                                               hint.size(), setup_.hint_bytes()));
  }
  if (ToString(HintDigest(hint)) != setup_.hint_digest()) {
    return absl::DataLossError("pir: the hint does not have the setup's digest");
  }
  SHOAL_RETURN_IF_ERROR(
      CheckMemory(sizes_.hint_memory_bytes, absl::StrCat(setup_.engine(), ": the hint")));
  std::vector<uint32_t> words(sizes_.hint_memory_bytes / sizeof(uint32_t));
  SHOAL_RETURN_IF_ERROR(ParseRounded(hint, hint_bits_dropped_, words));
  hint_ = std::move(words);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Batch>> ClientBase::Ask(const Wanted& wanted) {
  SHOAL_CHECK(!hint_.empty() && wanted.rows.size() <= wanted.keys);
  for (const uint64_t row : wanted.rows) {
    if (row >= setup_.rows()) {
      return absl::OutOfRangeError(
          absl::StrFormat("pir: row %d of a table of %d rows", row, setup_.rows()));
    }
  }
  return NewBatch(this, sizes_, wanted);
}

absl::StatusOr<std::vector<Asked>> ClientBase::AskForColumns(const PublicProduct& product,
                                                             std::span<const uint64_t> rows,
                                                             RandomSource& random) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Asked> asked, BeginQueries(setup_, rows));
  std::vector<PublicProduct::Wanted> wanted;
  for (Asked& one : asked) {
    wanted.push_back({one.row / setup_.rows_per_column(), &one.secret, &one.query});
  }
  product.Encrypt(wanted, random);
  return asked;
}

absl::Status ClientBase::AdvanceTo(const DeltaView& delta,
                                   absl::StatusOr<Sizes> (*sizes_of)(const wire::PirSetup& shape),
                                   const Digest& seed, uint64_t columns) {
  SHOAL_RETURN_IF_ERROR(CheckDelta(setup_, delta, sizes_of));
  SHOAL_RETURN_IF_ERROR(
      ApplyChanges(*kernel_, seed, hint_bits_dropped_, columns, delta.changes, hint_));
  setup_ = delta.to;
  return absl::OkStatus();
}

}  // namespace shoal::pir::lwe
