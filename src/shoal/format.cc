#include "src/shoal/format.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace shoal::commands {

std::string StateName(wire::RoundState state) {
  // Shows the number of a state that this version does not know.
  if (!wire::RoundState_IsValid(state)) return absl::StrCat("state ", static_cast<int>(state));
  return absl::StrReplaceAll(absl::AsciiStrToLower(wire::RoundState_Name(state)), {{"_", " "}});
}

std::string DurationText(uint64_t seconds) {
  if (seconds < 120) return absl::StrCat(seconds, " s");
  const uint64_t minutes = seconds / 60;
  if (minutes < 60) return absl::StrCat(minutes, " min");
  const uint64_t hours = minutes / 60;
  if (hours < 48) return absl::StrCat(hours, " h ", minutes % 60, " min");
  return absl::StrCat(hours / 24, " d ", hours % 24, " h");
}

}  // namespace shoal::commands
