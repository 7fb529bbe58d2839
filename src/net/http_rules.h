// What is HTTP/1.1 as this project takes it, as functions of text alone. Beast takes more: requests
// of which another program on the way may see other ends (RFC 9112, section 11.2). Where a proxy
// puts requests of several clients on one connection, one client could then hide a request in
// another, and somebody else would get its answer.
#ifndef SHOAL_SRC_NET_HTTP_RULES_H_
#define SHOAL_SRC_NET_HTTP_RULES_H_

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal::net {

// How many bytes of `begun`, the bytes that came so far, are the head of a request, with the empty
// line that ends it. Nothing if its end has not come yet. INVALID_ARGUMENT for a byte that belongs
// in no head: control characters, and a carriage return or a line feed without the other.
absl::StatusOr<std::optional<size_t>> FindHead(absl::string_view begun);

// Whether a head that FindHead has found leaves no doubt about where its request ends:
//
//   - one space between method, target and HTTP/1.0 or HTTP/1.1
//   - a field's name, then at once the colon; no field goes on in a second line
//   - one Host, in HTTP/1.0 at most one; at most one Connection
//   - no body; or one Content-Length, a decimal number; or, in HTTP/1.1, one Transfer-Encoding,
//     which is "chunked" and nothing else. Never both
//
// INVALID_ARGUMENT says what is wrong.
absl::Status CheckHead(absl::string_view head);

// The path of a request's target, without its query: "/v1/call" of "/v1/call?x", and of
// "https://door.example/v1/call" (RFC 9112, section 3.2.2). Other targets stay as they are.
absl::string_view PathOf(absl::string_view target);

// Whether the value of Content-Type names `type`, in any case and with any parameters.
bool IsMediaType(absl::string_view value, absl::string_view type);

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_HTTP_RULES_H_
