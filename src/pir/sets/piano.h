// Piano with half sets (half_sets.h, docs/half-sets.md) as an engine: one server, which nobody has
// to trust; a client that reads the table once and keeps hints; answers from about the square root
// of the table.
//
//   setup    every party makes it from the signed table: its shape, and the digest of the stream
//   prepare  the digests of all chunks; the records, chunk by chunk              <--- server
//            each chunk is checked, added to all hints, and durable; at the end a state of
//            (hints + 2 backups) records
//   ask      a backup is spent, durably; the choices of a query                  ---> server
//            two XORs; the hint's successor, durably                             <---
//
// A session answers as many queries as the setup says; then the table is read once more. State and
// times are those of docs/engines.md.
#ifndef SHOAL_SRC_PIR_SETS_PIANO_H_
#define SHOAL_SRC_PIR_SETS_PIANO_H_

#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/sets/half_sets.h"

namespace shoal::pir::sets {

// Its kinds of request. A body begins with the SetupId; behind it are, for
//   kQuery    EncodeQuery; the answer is the XOR for bit 0 and that for bit 1
//   kRecords  a u64, the row at which a piece of the stream begins; the answer is its records
//   kDigests  a u64, a multiple of kPieceBytes below the length of all chunks' digests; the answer
//             is a piece of them
enum Kind : uint32_t { kQuery = 0, kRecords = 1, kDigests = 2 };

const Engine& Piano();

// The sets of a setup. INVALID_ARGUMENT names what is out of range. The setup may come from the
// network.
absl::StatusOr<SetShape> SetShapeOf(const wire::PirSetup& setup);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_PIANO_H_
