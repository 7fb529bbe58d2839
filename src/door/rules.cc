#include "src/door/rules.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/asio/ip/address.hpp"
#include "src/base/status_macros.h"

namespace shoal::door {
namespace {

using wire::FrameHeader;
using wire::FrameType;

// Of requests without arrays (docs/protocol.md, section 3).
constexpr uint32_t kMaxShortBytes = 4096;

std::optional<IpAddress> ParseAddress(absl::string_view text) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(std::string(text), error);
  if (error) return std::nullopt;
  if (address.is_v4()) return MappedIpv4(address.to_v4().to_bytes());
  if (address.to_v6().scope_id() != 0) return std::nullopt;
  return address.to_v6().to_bytes();
}

// Whether a browser would write it so in the header Origin.
bool IsOrigin(absl::string_view text) {
  const size_t end = text.find("://");
  if (end == absl::string_view::npos) return false;
  const absl::string_view scheme = text.substr(0, end), rest = text.substr(end + 3);
  if (scheme != "https" && scheme != "http") return false;
  if (rest.empty() || absl::EndsWith(rest, scheme == "https" ? ":443" : ":80")) return false;
  return std::ranges::all_of(rest, [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.' || c == ':' ||
           c == '[' || c == ']';
  });
}

}  // namespace

absl::Status CheckRequest(const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kGetDeployment:
    case FrameType::kGetPlacement:
    case FrameType::kListRounds:
    case FrameType::kWaitRound:
    case FrameType::kGetStatus:
    case FrameType::kGetRowVersions:
    case FrameType::kGetRefresh:
      return wire::CheckLimits(header, {.control_bytes = kMaxShortBytes, .bulk_bytes = 0});
    case FrameType::kSubmitOnions:
    case FrameType::kSubmitQueries:
    case FrameType::kFetchAnswers:
    case FrameType::kFetchRefresh:
      return wire::CheckLimits(header,
                               {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0});
    default:
      return absl::InvalidArgumentError(absl::StrCat("a request of type ",
                                                     static_cast<int>(header.type),
                                                     " is none of a client of the chain"));
  }
}

absl::Status CheckAnswer(const FrameHeader& header, FrameType asked) {
  if (header.type != asked && header.type != FrameType::kError) {
    return absl::InternalError("the frontend answered with a frame of another type");
  }
  return wire::CheckLimits(header,
                           {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0});
}

absl::Status Message::Add(BytesView piece) {
  // The header first, so that nothing behind a refused one is kept.
  if (!header_.has_value()) {
    const size_t n = std::min(piece.size(), wire::kFrameHeaderBytes - bytes_.size());
    Append(bytes_, piece.first(n));
    piece = piece.subspan(n);
    if (bytes_.size() < wire::kFrameHeaderBytes) return absl::OkStatus();
    wire::FrameHeaderBytes head;
    std::ranges::copy(bytes_, head.begin());
    SHOAL_ASSIGN_OR_RETURN(const FrameHeader header, wire::ParseFrameHeader(head));
    SHOAL_RETURN_IF_ERROR(CheckRequest(header));
    header_ = header;
  }
  const size_t whole = wire::kFrameHeaderBytes + header_->control_bytes;
  if (piece.size() > whole - bytes_.size()) {
    return absl::InvalidArgumentError("bytes behind the frame: a message is one frame");
  }
  Append(bytes_, piece);
  return absl::OkStatus();
}

std::optional<wire::FrameHeaderBytes> Message::head() const {
  if (bytes_.size() < wire::kFrameHeaderBytes) return std::nullopt;
  wire::FrameHeaderBytes head;
  std::copy_n(bytes_.begin(), head.size(), head.begin());
  return head;
}

absl::Status Message::Finish() const {
  if (header_.has_value() && bytes_.size() == wire::kFrameHeaderBytes + header_->control_bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("the message ends before its frame does");
}

absl::StatusOr<OriginRules> OriginRules::Create(std::span<const std::string> allowed) {
  OriginRules rules;
  for (const std::string& origin : allowed) {
    if (origin == "*") {
      rules.any_ = true;
    } else if (IsOrigin(origin)) {
      rules.allowed_.insert(origin);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", origin,
          "': expected \"*\", or an origin as browsers write it, such as \"https://example.org\": "
          "in lower case, without a path, and without the scheme's usual port"));
    }
  }
  return rules;
}

std::optional<IpAddress> ForwardedAddress(absl::string_view header, const AddressRanges& proxies) {
  const std::vector<absl::string_view> hops = absl::StrSplit(header, ',');
  for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop) {
    const std::optional<IpAddress> address = ParseAddress(absl::StripAsciiWhitespace(*hop));
    if (!address.has_value()) return std::nullopt;
    if (!proxies.Contains(*address)) return address;
  }
  return std::nullopt;
}

}  // namespace shoal::door
