// The encoding of what the machines of a party tell each other (control.proto). Every message has
// one length, so that it tells an observer of the links nothing.
//
//   length of the message (4 bytes, little endian) | the message | zeros
#ifndef SHOAL_SRC_WIRE_CONTROL_H_
#define SHOAL_SRC_WIRE_CONTROL_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/wire/control.pb.h"

namespace shoal::wire {

inline constexpr size_t kControlBytes = 4096;
inline constexpr size_t kMostControlMessageBytes = kControlBytes - 4;
// Of each list in a message. What is left waits for the next tick.
inline constexpr int kMostControlEntries = 16;
// Of a text in a result or in counts; longer ones are cut by who sends them.
inline constexpr size_t kMostControlTextBytes = 200;
// Of an encoded ToldRound.
inline constexpr size_t kMostToldBytes = 2700;

// The message must have at most kMostControlMessageBytes (checked).
SecretVector<uint8_t> EncodeControl(const Control& control);

// INVALID_ARGUMENT unless the bytes are what EncodeControl makes of a message in which every list
// has at most kMostControlEntries, epochs rise, numbers of orders, results and rounds are not 0,
// every order says what is to be done, seeds and round ids have 32 bytes, codes are those of
// errors, and texts have their bounds.
absl::StatusOr<Control> DecodeControl(BytesView bytes);

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_CONTROL_H_
