#include "src/pir/lwe/scheme_base.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/rounding.h"
#include "src/storage/memory.h"

namespace shoal::pir::lwe {

absl::Status ServerBase::Begin(wire::PirSetup setup, const Sizes& sizes, uint32_t hint_bits_dropped,
                               const ServerOptions& options) {
  setup_ = std::move(setup);
  sizes_ = sizes;
  hint_bits_dropped_ = hint_bits_dropped;
  SHOAL_RETURN_IF_ERROR(
      CheckServerMemory(sizes, options, absl::StrCat(setup_.engine(), ": the server")));
  kernel_ = &KernelOr(options.kernel);
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

absl::Status ClientBase::Begin(BytesView hint, const Sizes& sizes, uint32_t hint_bits_dropped,
                               const ClientOptions& options) {
  SHOAL_RETURN_IF_ERROR(
      CheckMemory(sizes.hint_memory_bytes, absl::StrCat(setup_.engine(), ": the hint")));
  hint_bits_dropped_ = hint_bits_dropped;
  kernel_ = &KernelOr(options.kernel);
  hint_.resize(sizes.hint_memory_bytes / sizeof(uint32_t));
  return ParseRounded(hint, hint_bits_dropped, hint_);
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

absl::Status ClientBase::ApplyTo(const DeltaView& delta,
                                 absl::StatusOr<Sizes> (*sizes_of)(const wire::PirSetup& shape),
                                 const Digest& seed, uint64_t columns) {
  SHOAL_RETURN_IF_ERROR(CheckDelta(setup_, delta, sizes_of));
  SHOAL_RETURN_IF_ERROR(
      ApplyChanges(*kernel_, seed, hint_bits_dropped_, columns, delta.changes, hint_));
  setup_ = delta.to;
  return absl::OkStatus();
}

}  // namespace shoal::pir::lwe
