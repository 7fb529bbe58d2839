// One frame for every message, between clients and frontend and between parties:
//
//   u32  magic "SHL3"
//   u16  type
//   u16  zero
//   u32  control_bytes
//   u64  bulk_bytes
//   control_bytes of a protobuf message, bulk_bytes of raw arrays
//
// little endian. A request is one frame, its response one of the same type, or one of type ERROR.
#ifndef SHOAL_SRC_WIRE_FRAME_H_
#define SHOAL_SRC_WIRE_FRAME_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "src/base/bytes.h"

namespace shoal::wire {

enum class FrameType : uint16_t {
  kError = 1,
  // client.proto
  kGetDeployment = 16,
  kGetPlacement = 17,
  kListRounds = 18,
  kWaitRound = 19,
  kSubmitOnions = 20,
  kSubmitQueries = 21,
  kFetchAnswers = 22,
  kGetStatus = 23,
  kGetRowVersions = 24,
  kGetRefresh = 25,
  kFetchRefresh = 26,
  // pir.proto
  kGetPirSetup = 32,
  kGetPirHint = 33,
  kGetPirDelta = 34,
  kPirQuery = 35,
  // peer.proto
  kProposeRound = 64,
  kOffline = 65,
  kOnline = 66,
  kRoundReports = 68,
  kLiveRounds = 69,
  kPartyStates = 70,
  kProposeRefresh = 71,
  kRefresh = 72,
  kHeadOffline = 73,
  kHeadQueries = 74,
  kHeadAnswers = 75,
};

// The protocol's version, of which docs/protocol.md speaks. Programs of different ones refuse each
// other by the magic of their frames, whose digit it is.
inline constexpr absl::string_view kProtocolVersion = "0.3";

inline constexpr size_t kFrameHeaderBytes = 20;
using FrameHeaderBytes = std::array<uint8_t, kFrameHeaderBytes>;

// The largest frame that a reader accepts.
struct FrameLimits {
  uint32_t control_bytes = 0;
  uint64_t bulk_bytes = 0;
};
inline constexpr uint32_t kMaxClientControlBytes = 4 << 20;
inline constexpr uint32_t kMaxPeerControlBytes = 1 << 20;

struct FrameHeader {
  FrameType type;
  uint32_t control_bytes;
  uint64_t bulk_bytes;
};

struct Frame {
  FrameType type = FrameType::kError;
  std::string control;
  Bytes bulk;
};

FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header);

// The header of the ERROR frame that refuses a frame which begins with `refused`. If that is of an
// earlier version, so is this one: a program of that version shows its user no other frame's text.
FrameHeaderBytes EncodeRefusalHeader(const FrameHeader& header, const FrameHeaderBytes& refused);

// `control` must be below 4 GiB (checked).
FrameHeader HeaderOf(const Frame& frame);

// INVALID_ARGUMENT: not a frame of this protocol, or of an unknown type, or of another version
// (IsOfAnotherVersion). The text of the latter is for the people at both ends, and names both
// versions.
absl::StatusOr<FrameHeader> ParseFrameHeader(const FrameHeaderBytes& bytes);
// Whether an error of ParseFrameHeader says that the frame is of another version. Annotate takes
// the mark away.
bool IsOfAnotherVersion(const absl::Status& status);

// RESOURCE_EXHAUSTED if the frame is larger than the limits; nothing of it is then read.
absl::Status CheckLimits(const FrameHeader& header, const FrameLimits& limits);

Frame MakeFrame(FrameType type, const google::protobuf::MessageLite& message, Bytes bulk = {});

// INVALID_ARGUMENT if the frame is of another type, or its control bytes do not parse.
absl::Status ParseFrame(const Frame& frame, FrameType type, google::protobuf::MessageLite& message);

// INVALID_ARGUMENT if the control bytes are a message of more than `most` fields, or of none that
// could be parsed. Reads no more than the outermost fields' tags and lengths: for requests whose
// fields would take far more memory than their bytes, before they are parsed.
absl::Status CheckFieldCount(const Frame& frame, size_t most);

// Text for people as it may be sent: printable ASCII, at most 1 KiB. Messages may quote what others
// sent, and end in terminals and logs. They travel in a protobuf string, which cannot be parsed
// unless it is UTF-8.
std::string Printable(absl::string_view message);

// Makes an ERROR frame of a status, and a status of an ERROR frame. `status` must not be OK
// (checked); the frame gets the text that others may see (ForOthers). In both directions a message
// is made Printable. ErrorOf never returns OK: a
// frame that is no ERROR, or has no error code, gives INTERNAL.
Frame MakeErrorFrame(const absl::Status& status);
absl::Status ErrorOf(const Frame& frame);

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_FRAME_H_
