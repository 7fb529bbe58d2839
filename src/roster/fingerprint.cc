#include "src/roster/fingerprint.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "src/base/hash.h"

namespace shoal::roster {
namespace {

constexpr size_t kGroups = 10;
// 24 bits for a number below 100,000: no number of five digits is more than 0.6 percent likelier
// than another, and a group loses less than a hundredth of a bit.
constexpr size_t kGroupBytes = 3;

// `what` keeps fingerprints of different things apart.
std::string Fingerprint(absl::string_view what, BytesView content) {
  const Digest digest = Transcript("shoal fingerprint v1").Blob(what).Blob(content).Finish();
  static_assert(kGroups * kGroupBytes <= sizeof(Digest));
  std::string text;
  for (size_t group = 0; group < kGroups; ++group) {
    uint32_t number = 0;
    for (size_t i = 0; i < kGroupBytes; ++i) number = number << 8 | digest[group * kGroupBytes + i];
    absl::StrAppendFormat(&text, "%s%05d", group == 0 ? "" : " ", number % 100'000);
  }
  return text;
}

// Other characters than digits stay, so that they make a difference.
std::string Digits(absl::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (!absl::ascii_isspace(static_cast<unsigned char>(c)) && c != '-') digits += c;
  }
  return digits;
}

}  // namespace

std::string KeyFingerprint(BytesView bls_public_key) { return Fingerprint("key", bls_public_key); }

std::string PinsFingerprint(const PinnedParties& pins) {
  return Fingerprint("pins", pins.digest());
}

std::string RosterFingerprint(const wire::Roster& roster) {
  return Fingerprint("roster", RosterDigest(roster));
}

bool IsFingerprint(absl::string_view typed, absl::string_view fingerprint) {
  return Digits(typed) == Digits(fingerprint);
}

}  // namespace shoal::roster
