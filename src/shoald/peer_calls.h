// How a call gets from a party to the next one. What is called, and what an answer means, is
// PeerLink's (peer_link.h) and RunCalls' (run_calls.h), whatever carries the calls: TLS
// (tls_calls.h), or the network of a simulation (src/sim/sim_calls.h).
#ifndef SHOAL_SRC_SHOALD_PEER_CALLS_H_
#define SHOAL_SRC_SHOALD_PEER_CALLS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/wire/frame.h"

namespace shoal::shoald {

struct PeerCall {
  wire::Frame request;
  // Sent in place of the request's own bulk if it is not null.
  ByteSource* bulk = nullptr;
  // The most bulk that is taken of an answer. Its control bytes are bounded by
  // wire::kMaxPeerControlBytes.
  uint64_t answer_bulk_bytes = 0;
  // Of the next party's machines.
  uint32_t machine = 0;
  // Of a stage of a round, and of a refresh of its term.
  Digest round_id = {};
  // For the whole call, until the last byte of the answer's bulk is read.
  std::chrono::milliseconds limit{0};
  // Asked often: once it is true, the call ends with an error. Null: it is not cancelled.
  std::function<bool()> cancelled = nullptr;
};

struct PeerAnswer {
  wire::Frame frame;  // no error, and without its bulk
  std::unique_ptr<ByteSource> bulk;
};

// Thread-safe.
class PeerCalls {
 public:
  virtual ~PeerCalls() = default;
  // Blocks until the answer is there, except for its bulk, which comes as it is read. What the next
  // party refuses comes back with its code. UNAVAILABLE, also of the bulk: the connection broke;
  // DEADLINE_EXCEEDED; CANCELLED; RESOURCE_EXHAUSTED: the answer is larger than is taken.
  virtual absl::StatusOr<PeerAnswer> Call(PeerCall call) = 0;
  // Ends what is kept for rounds that are over.
  virtual void CloseEnded(const std::function<bool(const Digest& round_id)>& over) = 0;
};

// The frame of a request to the next party. Fields that this version does not know are left out:
// they came from another party, and nobody has checked or signed them.
inline wire::Frame RequestFrame(wire::FrameType type, google::protobuf::Message& request,
                                Bytes bulk = {}) {
  request.DiscardUnknownFields();
  return wire::MakeFrame(type, request, std::move(bulk));
}

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PEER_CALLS_H_
