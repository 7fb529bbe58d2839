// One epoch of the table, as the rounds and terms of a party need it.
#ifndef SHOAL_SRC_SERVER_TABLE_EPOCH_H_
#define SHOAL_SRC_SERVER_TABLE_EPOCH_H_

#include <cstdint>
#include <memory>

#include "src/base/bytes.h"
#include "src/round/header.h"
#include "src/server/online.h"

namespace shoal::server {

struct TableEpoch {
  round::TableFacts facts;
  // Name the table in the journal, which takes one content for each epoch. All epochs of a table
  // have the same id.
  Digest id;
  uint64_t epoch;
  AnswerTable answers;  // the backend's; empty elsewhere
  // Holds the bytes of `answers`; null if they outlive the party.
  std::shared_ptr<const Bytes> holder = nullptr;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_TABLE_EPOCH_H_
