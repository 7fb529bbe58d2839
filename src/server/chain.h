// The chain: what a party does with a message and with its neighbour's answer to it. The way of a
// round through a party can be read down Propose, Offline, Online and End.
#ifndef SHOAL_SRC_SERVER_CHAIN_H_
#define SHOAL_SRC_SERVER_CHAIN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/server/party.h"
#include "src/wire/client.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::server {

using StageReports = std::vector<wire::StageReport>;

struct OnlineResult {
  Bytes answers;
  StageReports reports;
};

// What a party can ask of the one after it. Implemented by ChainNode itself, so that a chain can
// stand in one process, and over TLS by server/runner. Calls block until the whole rest of the
// chain has done its part. Thread-safe.
class Link {
 public:
  virtual ~Link() = default;
  virtual absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft) = 0;
  virtual absl::StatusOr<StageReports> Offline(const wire::SignedHeader& header, Bytes onions) = 0;
  virtual absl::StatusOr<OnlineResult> Online(const Digest& round_id, Bytes queries) = 0;
  virtual absl::Status End(const Digest& round_id, bool aborted, const std::string& reason) = 0;
};

// One party and its link to the next (null at the backend).
class ChainNode final : public Link {
 public:
  // Both outlive the node.
  ChainNode(Party* party, Link* next);

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft) override;
  absl::StatusOr<StageReports> Offline(const wire::SignedHeader& header, Bytes onions) override;
  // The same for a list that came in piece by piece (Party::BeginOffline).
  absl::StatusOr<StageReports> Offline(const wire::SignedHeader& header,
                                       std::unique_ptr<Party::Intake> intake);
  absl::StatusOr<OnlineResult> Online(const Digest& round_id, Bytes queries) override;
  // Erases the round here whatever becomes of the message to the next.
  absl::Status End(const Digest& round_id, bool aborted, const std::string& reason) override;

  Party& party() { return *party_; }

 private:
  absl::StatusOr<StageReports> SendList(const wire::SignedHeader& header,
                                        absl::StatusOr<Bytes> list);

  Party* const party_;
  Link* const next_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_CHAIN_H_
