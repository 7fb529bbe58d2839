// Sends a lookup's queries in the slots of a round.
#ifndef SHOAL_SRC_CLIENT_QUERY_SUBMISSION_H_
#define SHOAL_SRC_CLIENT_QUERY_SUBMISSION_H_

#include "src/base/bytes.h"
#include "src/client/chain_call.h"
#include "src/client/division.h"
#include "src/client/round_status.h"

namespace shoal::client {

// ChainClient::Submit, for a part of a lookup.
RoundStatus SubmitPart(const ChainCall& call, const Digest& round_id, const Portion& part);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_QUERY_SUBMISSION_H_
