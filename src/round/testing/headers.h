// Headers of rounds for tests.
#ifndef SHOAL_SRC_ROUND_TESTING_HEADERS_H_
#define SHOAL_SRC_ROUND_TESTING_HEADERS_H_

#include <cstdint>
#include <string>

#include "src/base/bytes.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/round/header.h"
#include "src/signature/bls.h"

namespace shoal::round::testing {

// What party 1 proposes at `now_s` for a round over such a table: all but the onion keys.
inline wire::RoundHeader DraftOf(uint64_t counter, const roster::Roster& roster,
                                 const TableFacts& table, uint64_t now_s) {
  wire::RoundHeader draft;
  draft.set_counter(counter);
  draft.set_roster_digest(ToString(roster.digest()));
  draft.set_manifest_digest(ToString(table.manifest_digest));
  draft.set_max_rows(table.rows);
  draft.set_answer_bytes(table.row_bytes + signature::kSignatureBytes);
  draft.set_query_buckets(table.query_buckets);
  *draft.mutable_noise() = roster.wire().roster().noise();
  for (uint32_t number = 1; number <= roster.size(); ++number) {
    draft.add_machines(roster.party(number).machines);
  }
  draft.set_max_slots(1000);
  draft.set_onion_suite(roster.wire().roster().onion_suite());
  draft.set_announced_s(now_s);
  draft.set_onions_close_s(now_s + 60);
  draft.set_queries_close_s(now_s + 120);
  draft.set_expires_s(now_s + 600);
  return draft;
}

inline wire::SignedHeader SignByAll(const roster::testing::Parties& parties,
                                    const wire::RoundHeader& header) {
  wire::SignedHeader out;
  *out.mutable_header() = header;
  out.set_signature(parties.SignatureByAll(RoundId(header)));
  return out;
}

}  // namespace shoal::round::testing

#endif  // SHOAL_SRC_ROUND_TESTING_HEADERS_H_
