// What a device computes for a round, without I/O. Everything is derived from one master seed, so
// that computing it again gives the same bytes.
//
// A device submits its onions in one or more submissions (src/onion/onion.h). Onions are numbered
// over all of them; a submission is named by its first onion.
//
//   ephemeral secrets of the inner onions, for parties 2 to m
//       ChaCha20 (RFC 8439), nonce 0, counter 0, under BLAKE2b-256 keyed with the master seed:
//       Transcript("shoal client onions v3") over the round id (Blob).
//       Onion i has bytes 32 (m - 1) i .., party 2's secret first
//   ephemeral secret of a submission, for party 1
//       BLAKE2b-256 keyed with the master seed: Transcript("shoal client submission v3") over the
//       round id (Blob), the number of its first onion, and the digest of its plaintext (Blob):
//       Transcript("shoal client plaintext v3") over the inner onions (Blob)
//
// In a round of two tiers (docs/protocol.md, section 11) all of this is done for each half, with
// the half's id in place of the round id and the half's two onion keys as those of the parties. A
// submission is the pieces of both halves, and its plaintext's digest is over the inner onions of
// half A (Blob) and of half B (Blob): what cuts one half cuts the other.
//
// So two plaintexts never share an ephemeral key, not even in a client that cuts its onions into
// other submissions than before. Seeds are not derived but exported from the layers. A server
// cannot see any of this. Another client may derive its secrets differently, as long as no seed is
// used twice, no ephemeral key serves two plaintexts, and a repeated submission has the same bytes.
#ifndef SHOAL_SRC_CLIENT_DEVICE_H_
#define SHOAL_SRC_CLIENT_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"
#include "src/wire/client.pb.h"

namespace shoal::client {

// One of a device's submissions in a round: successive onions, which get successive slots.
struct OnionSubmission {
  uint32_t first = 0;  // the number of its first onion
  uint32_t count = 0;
  // The digest of its plaintext, once that was built: for the seeds of party 1 the inner onions
  // need not be built again.
  Digest plaintext = {};
  // The slot of its first onion, once the frontend has given it.
  std::optional<uint32_t> first_slot;
};

// Cuts onions first .. end - 1 into submissions of `most` onions each, but for the last.
std::vector<OnionSubmission> Split(uint32_t first, uint32_t end, uint32_t most);

// Some onions of a submission: its onions first .. first + count - 1, counted from 0.
struct OnionRange {
  const Seed* master;
  const OnionSubmission* submission;
  uint32_t first;
  uint32_t count;
};

// Onions first .. first + count - 1 of a device, which are numbered over its submissions. These
// must outlive the ranges.
std::vector<OnionRange> Ranges(const Seed& master, std::span<const OnionSubmission> submissions,
                               size_t first, size_t count);

// Seals a submission. Writes the digest of its plaintext to `submission`.
struct SubmissionToMake {
  const Seed* master;
  OnionSubmission* submission;
};
// Seals submissions, of one or many devices; of two pieces each in a round of two tiers. Runs on
// the pool's threads, or without a pool on the caller's thread; onions of small submissions share
// batches. Takes one multiplication by a fixed and one by a new point for every layer.
std::vector<std::string> MakeSubmissions(const round::Round& round,
                                         std::span<const SubmissionToMake> submissions,
                                         ThreadPool* pool);

// The functions below compute seeds again, of submissions whose plaintext's digest is known. All
// but MakeFetch take as long as making the onions did.

// The seeds of all onions of the ranges, one after the other, party 1's first: m * 32 bytes each;
// in a round of two tiers 4 * 32 bytes, in the order of sharing::QuerySeed.
SecretVector<uint8_t> SeedsOf(const round::Round& round, std::span<const OnionRange> ranges,
                              ThreadPool* pool);

// A request with one query for every onion of the ranges: rows[i], which is below p, belongs to
// onion i; in a round of two tiers rows[i] is below the table's number of rows, and the query has
// both halves. The slots must be known.
wire::SubmitQueriesRequest MakeQueries(const round::Round& round,
                                       std::span<const OnionRange> ranges,
                                       std::span<const uint32_t> rows, ThreadPool* pool);

// A request for the answers of the ranges' onions, which takes the seeds of party 1 (the head of
// half A) alone.
wire::FetchAnswersRequest MakeFetch(const round::Round& round, std::span<const OnionRange> ranges);

// Removes all parties' masks from what was fetched for the ranges, fetched_bytes each, and writes
// the answers, answer_bytes each. An answer whose tag is wrong, in either half if there are two, as
// somebody has altered it on its way, becomes zeros: so whether a client gets its row does not
// depend on which row that is. Do not trust a row before its signature is verified. One thread.
void Unmask(const round::Round& round, std::span<const OnionRange> ranges, BytesView fetched,
            MutableBytes answers);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_DEVICE_H_
