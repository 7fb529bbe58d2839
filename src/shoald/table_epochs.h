// The epoch of the table that a party serves.
#ifndef SHOAL_SRC_SHOALD_TABLE_EPOCHS_H_
#define SHOAL_SRC_SHOALD_TABLE_EPOCHS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/parallel/mutex.h"
#include "src/server/table_epoch.h"
#include "src/table/table.h"

namespace shoal::shoald {

// An epoch as clients are told of it, and as rounds and terms need it.
struct ServedEpoch {
  std::shared_ptr<const table::Table> table;
  std::shared_ptr<const server::TableEpoch> chain;
};

// A verified table as rounds need it, without the backend's answers.
server::TableEpoch ChainEpoch(const table::Table& table);

// Adds the backend's answers, row | signature for every row: a copy, as the table has the two
// apart. RESOURCE_EXHAUSTED if memory does not suffice.
absl::Status AddAnswers(const table::Table& table, server::TableEpoch& epoch);

// Holds the newest epoch. Whoever serves it asks here for every request, and so need not be told of
// the next one; only what has to agree to it or to prepare for it is asked before
// (PartyRuntime::Take). Thread-safe.
class TableEpochs {
 public:
  explicit TableEpochs(ServedEpoch first) : newest_(std::move(first)) {}
  // The same without the backend's answers.
  explicit TableEpochs(std::shared_ptr<const table::Table> first);

  ServedEpoch newest() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<const table::Table> table() const { return newest().table; }

  // From now on this epoch is the newest one, if it is: two that are taken at the same time may
  // come here in either order.
  void Serve(ServedEpoch next) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable Mutex mutex_;  // held for moments
  ServedEpoch newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_TABLE_EPOCHS_H_
