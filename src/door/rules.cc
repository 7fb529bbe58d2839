#include "src/door/rules.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "boost/asio/ip/address.hpp"
#include "src/base/status_macros.h"

namespace shoal::door {
namespace {

using wire::FrameHeader;
using wire::FrameType;

// Of requests without arrays (docs/protocol.md, section 3).
constexpr uint32_t kMaxShortBytes = 4096;

std::optional<IpAddress> ParseAddress(absl::string_view text) {
  if (absl::StrContains(text, '\0')) return std::nullopt;  // where the system takes its end to be
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(std::string(text), error);
  if (error) return std::nullopt;
  if (address.is_v4()) return MappedIpv4(address.to_v4().to_bytes());
  if (address.to_v6().scope_id() != 0) return std::nullopt;
  return address.to_v6().to_bytes();
}

// 1 to 65535, without zeros before it.
bool IsPort(absl::string_view text) {
  uint32_t port = 0;
  return !text.empty() && text.size() <= 5 && text[0] != '0' &&
         std::ranges::all_of(text, absl::ascii_isdigit) && absl::SimpleAtoi(text, &port) &&
         port <= 65535;
}

// An address as proxies write it in X-Forwarded-For: alone, or with a port; in brackets if it is of
// IPv6 and has one.
std::optional<IpAddress> ParseHop(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    const absl::string_view host = text.substr(0, end), after = text.substr(end + 1);
    if (!after.empty() && (after[0] != ':' || !IsPort(after.substr(1)))) return std::nullopt;
    return absl::StrContains(host, ':') ? ParseAddress(host) : std::nullopt;
  }
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos && colon == text.rfind(':')) {
    if (!IsPort(text.substr(colon + 1))) return std::nullopt;
    text = text.substr(0, colon);
  }
  return ParseAddress(text);
}

// A host as browsers write it. That of another scheme than HTTP's, as of extensions, is opaque: it
// keeps its case (URL standard, section 3.5).
bool IsHost(absl::string_view host, bool is_opaque) {
  if (absl::ConsumePrefix(&host, "[")) {
    return absl::ConsumeSuffix(&host, "]") && absl::StrContains(host, ':') &&
           !absl::StrContains(host, '.') && std::ranges::none_of(host, absl::ascii_isupper) &&
           ParseAddress(host).has_value();
  }
  return !host.empty() && std::ranges::all_of(host, [is_opaque](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.' || c == '_' ||
           (is_opaque && (absl::ascii_isupper(c) || c == '~' || c == '%'));
  });
}

// Whether a browser, one of its extensions or a web view would write it so in the header Origin.
bool IsOrigin(absl::string_view text) {
  const size_t end = text.find("://");
  if (end == absl::string_view::npos) return false;
  const absl::string_view scheme = text.substr(0, end);
  absl::string_view host = text.substr(end + 3);
  if (scheme.empty() || !absl::ascii_islower(static_cast<unsigned char>(scheme[0])) ||
      !std::ranges::all_of(scheme, [](unsigned char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '+' || c == '-' || c == '.';
      })) {
    return false;
  }
  const size_t colon = host.rfind(':');
  if (colon != absl::string_view::npos && !absl::EndsWith(host, "]")) {
    const absl::string_view port = host.substr(colon + 1);
    if (!IsPort(port)) return false;
    if ((scheme == "https" && port == "443") || (scheme == "http" && port == "80")) return false;
    host = host.substr(0, colon);
  }
  return IsHost(host, /*is_opaque=*/scheme != "https" && scheme != "http");
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
          "': expected \"*\", or an origin as browsers write it, such as \"https://example.org\" "
          "or "
          "\"moz-extension://ID\": in lower case, without a path, and without the scheme's usual "
          "port"));
    }
  }
  return rules;
}

std::optional<IpAddress> ForwardedAddress(absl::string_view header, const AddressRanges& proxies) {
  const std::vector<absl::string_view> hops = absl::StrSplit(header, ',');
  for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop) {
    const std::optional<IpAddress> address = ParseHop(absl::StripAsciiWhitespace(*hop));
    if (!address.has_value()) return std::nullopt;
    if (!proxies.Contains(*address)) return address;
  }
  return std::nullopt;
}

}  // namespace shoal::door
