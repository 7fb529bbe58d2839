// The names under which `shoal query`, `shoal simulate`, `shoal plan` and the studies print the
// costs of every engine and of the chain.
#ifndef SHOAL_SRC_PIR_COSTS_H_
#define SHOAL_SRC_PIR_COSTS_H_

#include "src/pir/engine.h"

namespace shoal::pir {

// Calls tell(name, value) for each cost: names end in _bytes or _seconds.
template <typename Tell>
void ForEachCost(const Costs& costs, const Tell& tell) {
  tell("setup_seconds", costs.setup_seconds);
  tell("open_seconds", costs.open_seconds);
  tell("prepare_seconds", costs.prepare_seconds);
  tell("hint_bytes", static_cast<double>(costs.bytes.hint_bytes));
  tell("hint_memory_bytes", static_cast<double>(costs.bytes.hint_memory_bytes));
  tell("prepare_bytes", static_cast<double>(costs.bytes.prepare_bytes));
  tell("query_bytes", static_cast<double>(costs.bytes.query_bytes));
  tell("answer_bytes", static_cast<double>(costs.bytes.answer_bytes));
  tell("server_bytes", static_cast<double>(costs.bytes.server_bytes));
  tell("query_seconds", costs.query_seconds);
  tell("answer_seconds", costs.answer_seconds);
  tell("recover_seconds", costs.recover_seconds);
}

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_COSTS_H_
