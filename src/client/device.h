// What a device computes for a round, without I/O. Everything is derived from one master seed, so
// that computing it again gives the same bytes.
//
//   key        = BLAKE2b-256 keyed with the master seed: Transcript("shoal client secrets v2")
//                over the round id (Blob)
//   seeds      = ChaCha20 (RFC 8439), key, nonce 0, counter 0
//   ephemerals = ChaCha20, key, nonce 1 (its first byte), counter 0
//
// Onion i has bytes 32 * m * i .. of both: seed_1 .. seed_m, and the secrets of its m sealed boxes
// in the same order.
//
// A server cannot see this derivation. Another client may use a different one, as long as no seed
// is used twice and a repeated submission has the same bytes.
#ifndef SHOAL_SRC_CLIENT_DEVICE_H_
#define SHOAL_SRC_CLIENT_DEVICE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"
#include "src/wire/client.pb.h"

namespace shoal::client {

// Onions first .. first + count - 1 of the device with this master seed.
struct OnionRange {
  const Seed* master;
  uint32_t first;
  uint32_t count;
};

// Derives the seeds of a range, onion by onion, party 1's first: count * m * 32 bytes. Also derives
// the ephemeral secrets in the same order, unless `ephemerals` is empty.
void DeriveSecrets(const OnionRange& range, const Digest& round_id, uint32_t parties,
                   MutableBytes seeds, MutableBytes ephemerals);

// The onions of all ranges, one after the other, OnionBytes(m) each. Runs on the pool's threads, or
// without a pool on the caller's thread.
std::string BuildOnions(const round::Round& round, std::span<const OnionRange> ranges,
                        ThreadPool* pool);

// Adds one query for every onion of the range: slots[i] and rows[i] belong to onion first + i.
// Rows are below p.
void AppendQueries(const round::Round& round, const OnionRange& range,
                   std::span<const uint32_t> slots, std::span<const uint32_t> rows,
                   wire::SubmitQueriesRequest& request);

// Adds the range's slots and tokens to the request.
void AppendFetch(const round::Round& round, const OnionRange& range,
                 std::span<const uint32_t> slots, wire::FetchAnswersRequest& request);

// Removes all parties' masks from the range's answers, count * answer_bytes bytes, in place. Do not
// trust a row before its signature is verified.
void Unmask(const round::Round& round, const OnionRange& range, MutableBytes answers);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_DEVICE_H_
