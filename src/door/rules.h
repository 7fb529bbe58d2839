// What the door lets through, as functions of bytes alone: frames, origins of pages, and what
// proxies say of a client's address.
#ifndef SHOAL_SRC_DOOR_RULES_H_
#define SHOAL_SRC_DOOR_RULES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/address_block.h"
#include "src/base/bytes.h"
#include "src/wire/frame.h"

namespace shoal::door {

// The longest request, and the longest answer.
inline constexpr size_t kMaxMessageBytes = wire::kFrameHeaderBytes + wire::kMaxClientControlBytes;

// Whether the door passes on a request that begins so. It passes what a client of the chain may
// send (docs/protocol.md, section 3), as long as the frontend takes it, and no other type: no
// request of a party to a party reaches the frontend through it. INVALID_ARGUMENT,
// RESOURCE_EXHAUSTED.
absl::Status CheckRequest(const wire::FrameHeader& header);
// The same for an answer of the frontend to a request of `asked`: one of that type, or an error.
absl::Status CheckAnswer(const wire::FrameHeader& header, wire::FrameType asked);

// One request, collected piece by piece. What is no request is refused as soon as that shows, so
// that no more than the header of a frame is held of it.
class Message {
 public:
  // Errors as CheckRequest; INVALID_ARGUMENT also for bytes behind the frame. After an error the
  // message is of no use.
  absl::Status Add(BytesView piece);
  // INVALID_ARGUMENT unless the frame is complete.
  absl::Status Finish() const;

  size_t size() const { return bytes_.size(); }
  const Bytes& bytes() const { return bytes_; }
  // The header of the frame, once it is there, also if it was refused.
  std::optional<wire::FrameHeaderBytes> head() const;
  // Of a message that is complete.
  wire::FrameType type() const { return header_->type; }

 private:
  Bytes bytes_;
  std::optional<wire::FrameHeader> header_;
};

// The pages from which browsers may ask.
class OriginRules {
 public:
  OriginRules() = default;
  // INVALID_ARGUMENT for anything but "*" and origins as browsers write them: scheme://host, with
  // any scheme; scheme and host in lower case, no path, no port that is the scheme's own. The host
  // of another scheme than HTTP's keeps its case.
  static absl::StatusOr<OriginRules> Create(std::span<const std::string> allowed);

  // `origin` is the header of that name.
  bool Allow(absl::string_view origin) const {
    return any_ || allowed_.contains(std::string(origin));
  }

 private:
  bool any_ = false;
  std::set<std::string> allowed_;
};

// Where a request comes from that came over one or more of the operator's own proxies: the last
// address in X-Forwarded-For that is none of a proxy, with or without a port ("192.0.2.7:4711",
// "[2001:db8::1]:4711"). `header` has the values of all fields of that name, joined by commas.
// Nothing, if there is no such address, or what stands in its place is
// none: what a client wrote there itself stands before it and is not looked at.
std::optional<IpAddress> ForwardedAddress(absl::string_view header, const AddressRanges& proxies);

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_RULES_H_
