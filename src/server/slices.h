// How a list passes from the machines of one party to those of the next.
//
//   machine i has a run of the list's N records ------ the part of it that is in k's slice ----->
//   machine k
//
// Runs follow each other in the order of their machines, and together are the list. Machine k of K'
// takes its slice, the records from floor(k N / K') to floor((k + 1) N / K') - 1, as one part from
// each machine whose run reaches into it. Where the slice is empty, machine 0 sends an empty part,
// so that every machine learns N. The numbers of machines of the two parties are independent.
#ifndef SHOAL_SRC_SERVER_SLICES_H_
#define SHOAL_SRC_SERVER_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/machines/machines.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

// Bytes of an onion for `party` of `parties`, both from 1 on; 32 if there is no such party.
size_t OnionBytesFor(uint32_t parties, uint32_t party);

// Records first to first + count - 1 of a list of `records`.
struct ListPart {
  uint64_t records = 0;
  uint64_t first = 0;
  uint64_t count = 0;

  uint64_t end() const { return first + count; }
  bool operator==(const ListPart&) const = default;
};

// What machine `rank`, which has `run` of a list, sends to the machines of the next party: rising,
// each machine at most once. The run must be within the list, which has less than 2^57 records
// (checked).
struct PartToSend {
  uint32_t to;
  ListPart part;
};
std::vector<PartToSend> PartsToSend(const ListPart& run, uint32_t rank, uint32_t receivers);

// What one machine of a party sends of a list in one try of a stage; a party of one machine sends
// all of it. All machines of the party make the call together, with the same list and `attempt`,
// which rises with every try where there are several.
struct OwnRun {
  uint32_t rank = 0;  // of this machine in its party
  uint64_t attempt = 0;
  ListPart run = {};  // what this machine has of the list
  // Asked often; true once another machine of the party has failed in this call, which then ends.
  // May be null.
  std::function<bool()> given_up = nullptr;
};

// Queries for the next party. Between two parties of one machine each: their encoding, which goes
// as it is. Otherwise a batch over the run of the machine that sends it, of which each machine of
// the next party gets a part. The batch is kept by the sender's round, for a repeat.
using QueriesOut = std::variant<Bytes, std::shared_ptr<const wire::QueryBatch>>;

// The parts of its slice that a machine was announced. Thread-compatible.
class Tiling {
 public:
  // Of machine `rank` of `count`, from a party of `senders` machines. A list has at most
  // `most_records`, which is below 2^57 (checked).
  Tiling(uint32_t rank, uint32_t count, uint32_t senders, uint64_t most_records);

  // Takes the part that machine `from` announces. INVALID_ARGUMENT, and nothing has changed: there
  // is no such machine, or it has announced a part before; the list is too long, or of another
  // length than the other machines say; the part is not within the list and this machine's slice,
  // or is empty where the slice is not; or what has come cannot be the parts of runs in the order
  // of the machines: two overlap, come in another order, or leave a gap that nobody can fill.
  absl::Status Add(uint32_t from, const ListPart& part);

  // Whether the parts are the slice.
  bool complete() const { return slice_.has_value() && covered_ == slice_->size(); }
  // This machine's slice; the list must be known (checked), by the first part.
  machines::Run slice() const;

 private:
  const uint32_t rank_, count_;
  const uint64_t most_records_;
  std::vector<std::optional<ListPart>> parts_;  // by sender
  std::optional<uint64_t> records_;
  std::optional<machines::Run> slice_;
  uint64_t covered_ = 0;
};

// The part of a batch over the positions of `run` that is over those of `part`, which lies in the
// run (checked): its position 0 is part.first. The batch must outlive it.
wire::QueryBatchView CutBatch(const wire::QueryBatch& batch, const ListPart& run,
                              const ListPart& part);

// Joins batches over parts that are a slice, in order, to one over the slice: 2^32 - 2 positions at
// most (checked). Each must be one that wire::CheckQueryBatch takes (checked), and is freed as it
// is joined.
struct BatchPart {
  Bytes encoded;
  uint64_t positions;
};
wire::QueryBatch JoinBatches(std::vector<BatchPart> parts);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_SLICES_H_
