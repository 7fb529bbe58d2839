#include "src/wire/frame.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/wire/client.pb.h"

namespace shoal::wire {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr absl::string_view kMagic = "SHL3";
// Frames of earlier versions have the same header and the same ERROR.
constexpr struct {
  absl::string_view magic, version;
} kEarlier[] = {{"SHL1", "0.1"}, {"SHL2", "0.2"}};
constexpr char kAnotherVersionMark[] = "shoal/another-version";
constexpr size_t kMaxErrorBytes = 1024;

absl::string_view MagicOf(const FrameHeaderBytes& bytes) {
  return AsText(BytesView(bytes).first(kMagicBytes));
}

// The version of the Shoal that sent a frame, if it is another one than this: "0.2", or "SHL7" if
// this one does not know it. Empty if it is this one, or no Shoal.
absl::string_view AnotherVersion(const FrameHeaderBytes& bytes) {
  const absl::string_view magic = MagicOf(bytes);
  for (const auto& earlier : kEarlier) {
    if (magic == earlier.magic) return earlier.version;
  }
  const bool shoal = magic.substr(0, 3) == kMagic.substr(0, 3);
  return shoal && magic != kMagic && absl::ascii_isdigit(static_cast<unsigned char>(magic[3]))
             ? magic
             : absl::string_view();
}

bool IsKnown(FrameType type) {
  switch (type) {
    case FrameType::kError:
    case FrameType::kGetDeployment:
    case FrameType::kGetPlacement:
    case FrameType::kListRounds:
    case FrameType::kWaitRound:
    case FrameType::kSubmitOnions:
    case FrameType::kSubmitQueries:
    case FrameType::kFetchAnswers:
    case FrameType::kGetStatus:
    case FrameType::kGetRowVersions:
    case FrameType::kGetRefresh:
    case FrameType::kFetchRefresh:
    case FrameType::kGetPirSetup:
    case FrameType::kGetPirHint:
    case FrameType::kGetPirDelta:
    case FrameType::kPirQuery:
    case FrameType::kProposeRound:
    case FrameType::kOffline:
    case FrameType::kOnline:
    case FrameType::kRoundReports:
    case FrameType::kLiveRounds:
    case FrameType::kPartyStates:
    case FrameType::kProposeRefresh:
    case FrameType::kRefresh:
    case FrameType::kHeadOffline:
    case FrameType::kHeadQueries:
    case FrameType::kHeadAnswers:
      return true;
  }
  return false;
}

// Skips a field of the wire type in `tag`. No message of ours has groups.
bool SkipField(uint32_t tag, google::protobuf::io::CodedInputStream& in) {
  using Format = google::protobuf::internal::WireFormatLite;
  const Format::WireType type = Format::GetTagWireType(tag);
  if (type == Format::WIRETYPE_START_GROUP || type == Format::WIRETYPE_END_GROUP) return false;
  return Format::SkipField(&in, tag);
}

}  // namespace

std::string Printable(absl::string_view message) {
  std::string text(message.substr(0, kMaxErrorBytes));
  for (char& c : text) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header) {
  FrameHeaderBytes out;
  std::ranges::copy(kMagic, out.begin());
  StoreLe(out.data() + 4, static_cast<uint16_t>(header.type));
  StoreLe(out.data() + 6, uint16_t{0});
  StoreLe(out.data() + 8, header.control_bytes);
  StoreLe(out.data() + 12, header.bulk_bytes);
  return out;
}

FrameHeaderBytes EncodeRefusalHeader(const FrameHeader& header, const FrameHeaderBytes& refused) {
  FrameHeaderBytes out = EncodeFrameHeader(header);
  for (const auto& earlier : kEarlier) {
    if (MagicOf(refused) == earlier.magic) std::ranges::copy(earlier.magic, out.begin());
  }
  return out;
}

FrameHeader HeaderOf(const Frame& frame) {
  SHOAL_CHECK(frame.control.size() <= std::numeric_limits<uint32_t>::max());
  return {.type = frame.type,
          .control_bytes = static_cast<uint32_t>(frame.control.size()),
          .bulk_bytes = frame.bulk.size()};
}

absl::StatusOr<FrameHeader> ParseFrameHeader(const FrameHeaderBytes& bytes) {
  if (const absl::string_view other = AnotherVersion(bytes); !other.empty()) {
    absl::Status status = absl::InvalidArgumentError(absl::StrCat(
        "frame: a message of Shoal ", other, " came to one of Shoal ", kProtocolVersion,
        ", and these do not understand each other: all programs of a deployment, its parties' and "
        "its clients', change their version together (docs/operations.md)"));
    status.SetPayload(kAnotherVersionMark, absl::Cord());
    return status;
  }
  if (MagicOf(bytes) != kMagic || LoadLe<uint16_t>(bytes.data() + 6) != 0) {
    return absl::InvalidArgumentError("frame: not a message of this protocol");
  }
  const FrameHeader header = {.type = static_cast<FrameType>(LoadLe<uint16_t>(bytes.data() + 4)),
                              .control_bytes = LoadLe<uint32_t>(bytes.data() + 8),
                              .bulk_bytes = LoadLe<uint64_t>(bytes.data() + 12)};
  if (!IsKnown(header.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: unknown type ", static_cast<int>(header.type)));
  }
  return header;
}

bool IsOfAnotherVersion(const absl::Status& status) {
  return status.GetPayload(kAnotherVersionMark).has_value();
}

absl::Status CheckLimits(const FrameHeader& header, const FrameLimits& limits) {
  if (header.control_bytes > limits.control_bytes || header.bulk_bytes > limits.bulk_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("frame: type ", static_cast<int>(header.type), " with ", header.control_bytes,
                     " and ", header.bulk_bytes, " bytes; taken are at most ", limits.control_bytes,
                     " and ", limits.bulk_bytes));
  }
  return absl::OkStatus();
}

Frame MakeFrame(FrameType type, const google::protobuf::MessageLite& message, Bytes bulk) {
  Frame frame;
  frame.type = type;
  SHOAL_CHECK(message.SerializeToString(&frame.control));
  frame.bulk = std::move(bulk);
  return frame;
}

absl::Status ParseFrame(const Frame& frame, FrameType type,
                        google::protobuf::MessageLite& message) {
  if (frame.type != type) {
    return absl::InvalidArgumentError(absl::StrCat("frame: type ", static_cast<int>(frame.type),
                                                   " instead of ", static_cast<int>(type)));
  }
  if (!message.ParseFromString(frame.control)) {
    return absl::InvalidArgumentError(absl::StrCat("frame: malformed ", message.GetTypeName()));
  }
  return absl::OkStatus();
}

absl::Status CheckFieldCount(const Frame& frame, size_t most) {
  google::protobuf::io::CodedInputStream in(
      reinterpret_cast<const uint8_t*>(frame.control.data()),
      static_cast<int>(std::min<size_t>(frame.control.size(), std::numeric_limits<int>::max())));
  size_t fields = 0;
  while (const uint32_t tag = in.ReadTag()) {
    if (++fields > most) {
      return absl::InvalidArgumentError(absl::StrCat("frame: type ", static_cast<int>(frame.type),
                                                     ", ", frame.control.size(),
                                                     " bytes with more than ", most, " fields"));
    }
    if (!SkipField(tag, in)) return absl::InvalidArgumentError("frame: malformed message");
  }
  return in.ConsumedEntireMessage() ? absl::OkStatus()
                                    : absl::InvalidArgumentError("frame: malformed message");
}

Frame MakeErrorFrame(const absl::Status& status) {
  SHOAL_CHECK(!status.ok());
  Error error;
  error.set_code(static_cast<uint32_t>(status.code()));
  error.set_message(Printable(ForOthers(status).message()));
  return MakeFrame(FrameType::kError, error);
}

absl::Status ErrorOf(const Frame& frame) {
  Error error;
  if (const absl::Status status = ParseFrame(frame, FrameType::kError, error); !status.ok()) {
    return absl::InternalError(status.message());
  }
  if (error.code() == 0 ||
      error.code() > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::InternalError("frame: an error without a proper code");
  }
  return absl::Status(static_cast<absl::StatusCode>(error.code()), Printable(error.message()));
}

}  // namespace shoal::wire
