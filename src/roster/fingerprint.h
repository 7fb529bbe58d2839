// What people compare aloud: 50 decimal digits, in ten groups of five.
//
//   41063 90817 55120 00362 71949 28445 60013 97406 18231 84457
//
// Digits, as every language has them and none sounds like a letter. 50 of them are 166 bits.
// Whoever makes keys can look for two deployments with one fingerprint, such as one of honest
// parties with a key of his own and one of his own keys alone: that takes 2^83 attempts, while 128
// bits would leave 2^64. A fingerprint for a key that is there already would take 2^166. So all of
// the digits must be compared: of half of them there are only 2^41 attempts to a pair.
#ifndef SHOAL_SRC_ROSTER_FINGERPRINT_H_
#define SHOAL_SRC_ROSTER_FINGERPRINT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/roster/roster.h"

namespace shoal::roster {

// Of a party's BLS public key. Any bytes have one.
std::string KeyFingerprint(BytesView bls_public_key);

// Of a deployment's pins: of its name and its parties' keys, in order.
std::string PinsFingerprint(const PinnedParties& pins);

// Of a roster with all that its parties sign: keys, certificates, addresses, noise, times.
std::string RosterFingerprint(const wire::Roster& roster);

// Whether `typed` is that fingerprint: the same digits. Blanks, dashes and ends of lines between
// them count for nothing.
bool IsFingerprint(absl::string_view typed, absl::string_view fingerprint);

}  // namespace shoal::roster

#endif  // SHOAL_SRC_ROSTER_FINGERPRINT_H_
