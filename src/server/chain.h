// The chain: what a party does with a message and with its neighbour's answer. A round passes
// through a party by Propose, Offline, Online and End, in this order.
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

// The calls from a party to the one after it. ChainNode implements them itself, so that a chain can
// run in one process; src/shoald implements them over TLS. Calls block until all later parties have
// done their part. Sources that calls return compute their bytes as they are read. Thread-safe.
class Link {
 public:
  virtual ~Link() = default;
  virtual absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft) = 0;
  virtual absl::Status Offline(const wire::SignedHeader& header,
                               std::unique_ptr<ByteSource> onions) = 0;
  virtual absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id,
                                                             Bytes queries) = 0;
  // What the round has cost so far, at the called party and all parties after it.
  virtual absl::StatusOr<StageReports> Reports(const Digest& round_id) = 0;
  virtual absl::Status End(const Digest& round_id, bool aborted, const std::string& reason) = 0;
  // Ends a round whose proposal was refused or whose answer was lost: the caller does not know its
  // id.
  virtual absl::Status Withdraw(RoundCounter counter) = 0;
};

// One party and its link to the next (null at the backend).
class ChainNode final : public Link {
 public:
  // Both must outlive the node.
  ChainNode(Party* party, Link* next);

  // After an error, every party that can be reached has erased the round.
  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft) override;
  absl::Status Offline(const wire::SignedHeader& header,
                       std::unique_ptr<ByteSource> onions) override;
  // The same at party 1, for its clients' submissions.
  absl::Status Offline(const wire::SignedHeader& header, Submissions submissions);
  // The same for a list that arrived piece by piece (Party::BeginOffline).
  absl::Status Offline(const wire::SignedHeader& header, std::shared_ptr<Party::Intake> intake);
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id,
                                                     Bytes queries) override;
  // INVALID_ARGUMENT if the next party returns reports that no honest party makes.
  absl::StatusOr<StageReports> Reports(const Digest& round_id) override;
  // Erases the round here, even if the message to the next party is lost.
  absl::Status End(const Digest& round_id, bool aborted, const std::string& reason) override;
  absl::Status Withdraw(RoundCounter counter) override;

  Party& party() { return *party_; }

 private:
  absl::Status SendList(const wire::SignedHeader& header,
                        absl::StatusOr<std::unique_ptr<ByteSource>> list);

  Party* const party_;
  Link* const next_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_CHAIN_H_
