#include "src/shoald/table_epochs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/storage/memory.h"
#include "src/table/refresh.h"

namespace shoal::shoald {
namespace {

// A verified manifest's id has 32 bytes.
Digest DigestOf(const std::string& bytes) {
  Digest digest;
  SHOAL_CHECK(bytes.size() == digest.size());
  std::ranges::copy(AsBytes(bytes), digest.begin());
  return digest;
}

}  // namespace

server::TableEpoch ChainEpoch(const table::Table& table) {
  return {.facts = {.manifest_digest = table.manifest().digest(),
                    .rows = table.rows(),
                    .row_bytes = table.manifest().row_bytes(),
                    .places = table::PlacesDigest(table.manifest().content()),
                    .query_buckets = table.manifest().content().query_buckets()},
          .id = DigestOf(table.manifest().content().table_id()),
          .epoch = table.manifest().epoch(),
          .answers = {}};
}

absl::Status AddAnswers(const table::Table& table, server::TableEpoch& epoch) {
  const uint64_t bytes = table.rows() * table.answer_bytes();
  SHOAL_RETURN_IF_ERROR(CheckMemory(bytes, "the copy of the table that answers come from"));
  auto answers = std::make_shared<Bytes>(bytes);
  for (uint64_t row = 0; row < table.rows(); ++row) {
    table.CopyAnswer(
        row, MutableBytes(*answers).subspan(row * table.answer_bytes(), table.answer_bytes()));
  }
  epoch.answers = {*answers, table.rows()};
  epoch.holder = std::move(answers);
  return absl::OkStatus();
}

TableEpochs::TableEpochs(std::shared_ptr<const table::Table> first)
    : TableEpochs(
          ServedEpoch{first, std::make_shared<const server::TableEpoch>(ChainEpoch(*first))}) {}

ServedEpoch TableEpochs::newest() const {
  const MutexLock lock(mutex_);
  return newest_;
}

void TableEpochs::Serve(ServedEpoch next) {
  const MutexLock lock(mutex_);
  if (next.chain->epoch <= newest_.chain->epoch) return;
  std::swap(newest_, next);  // the old one ends without the lock
}

}  // namespace shoal::shoald
