// The online stage of one party in a half of a round of two tiers (docs/protocol.md, section 11;
// src/sharing/halves.h). Computes on bytes; answers that do not fit in memory go to spools.
//
//   party before --- slots, parts (wire/query_batch.h, records) ---> head
//                      ForwardParts: compare the tags; add the noise; put all at their places
//   head --- used places, v of each ---> tail
//                      AnswerHalf: compare the tags; XOR the selected rows; mask and tag
//   head <--- y | T for every used place, in order --- tail
//                      AnswerIntake, ReturnAnswers (online.h): unshuffle; drop the answers to the
//                      noise; mask and tag
//   party before <--- z | T' for every used slot, in order --- head
//
// The way back is that of a chain for rows, but for what masks and tags are made of. A half has one
// machine at each party.
#ifndef SHOAL_SRC_SERVER_HALF_ONLINE_H_
#define SHOAL_SRC_SERVER_HALF_ONLINE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/server/online.h"
#include "src/server/online_material.h"
#include "src/server/round_context.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

// The first i such that slot positions[i] of a head is dead or the tag of parts[i] is not the
// head's own, or positions.size(). `parts` are OfHalf::part_bytes() each, and positions below the
// material's (both checked). What it tells apart are queries of clients; the time depends on
// positions.size() and the result alone.
size_t FirstWrongPart(const RoundContext& context, const OnlineMaterial& material,
                      std::span<const uint32_t> positions, BytesView parts);

// At the head: compares the tags, and puts queries and noise in order for the tail. The way back is
// that of ForwardQueries: `queries` of the result is the encoded batch of v over the tail's list,
// and AnswerIntake and AnswerKeys take the positions of `parts`, without tallies, as their queries.
// Parts are those of clients, OfHalf::part_bytes() each. A position whose tag is wrong becomes dead
// in the material: nothing of it goes on, and it is answered as all dead ones. Uses up the
// material's ForwardMemory. INVALID_ARGUMENT unless the batch is over this party's positions and
// its records have the length; RESOURCE_EXHAUSTED when there is no memory; CANCELLED soon after the
// round has ended.
absl::StatusOr<Forwarding> ForwardParts(const RoundContext& context, OnlineMaterial& material,
                                        const wire::RecordBatch& parts, const Resources& resources);

// At the tail: y | T of every used position of the head's batch, in order. All are computed when it
// returns, so that nobody sees when which one was made. Reads every bucket of the table, asked or
// not; all threads get equally many queries, and neither a branch nor an address depends on a
// selection (src/select/select.h). A position that is dead, or whose tag or bucket is wrong, costs
// the same, and gets pseudorandom bytes in the end.
//
// The caller then needs neither the material nor the batch: a repeated request gets the same spool.
// The table has the rows that the header's buckets are made of (checked). INVALID_ARGUMENT as
// ForwardParts; RESOURCE_EXHAUSTED when there is no memory; CANCELLED soon after the round has
// ended; errors of the spool.
absl::StatusOr<Spool> AnswerHalf(const RoundContext& context, const LastingSecrets& secrets,
                                 const OnlineMaterial& material, const wire::RecordBatch& forwarded,
                                 const AnswerTable& table, const Resources& resources);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_HALF_ONLINE_H_
