// Functions that make text for people: sizes, times, states.
#ifndef SHOAL_SRC_SHOAL_FORMAT_H_
#define SHOAL_SRC_SHOAL_FORMAT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "src/base/printable.h"
#include "src/cli/json.h"
#include "src/client/size_text.h"
#include "src/wire/round.pb.h"

namespace shoal::commands {

using cli::JsonArray;
using cli::JsonObject;
using client::BytesText;
using client::WithCommas;
using shoal::IsUtf8;
using shoal::Printable;

// "OPEN_FOR_ONIONS" as "open for onions".
std::string StateName(wire::RoundState state);

// "90 s", "12 min", "3 h 5 min", "6 d 23 h".
std::string DurationText(uint64_t seconds);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_FORMAT_H_
