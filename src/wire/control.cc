#include "src/wire/control.h"

#include <algorithm>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::wire {
namespace {

constexpr size_t kLengthBytes = kControlBytes - kMostControlMessageBytes;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a machine's message: ", what));
}

absl::Status CheckOrder(const RoundOrder& order) {
  if (order.number() == 0 || order.round() == 0) return Bad("an order without a number");
  switch (order.what_case()) {
    case RoundOrder::kOpen:
      return order.open().root_seed().size() == 32 ? absl::OkStatus() : Bad("a seed's length");
    case RoundOrder::kStep:
      return order.step().step() != ROUND_STEP_UNSPECIFIED && RoundStep_IsValid(order.step().step())
                 ? absl::OkStatus()
                 : Bad("no such step");
    case RoundOrder::kEnd:
      return order.end() ? absl::OkStatus() : Bad("an end that is none");
    default:
      return Bad("an order to do nothing");
  }
}

absl::Status CheckError(uint32_t code, const std::string& message) {
  if (code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) return Bad("no such code");
  if (message.size() > kMostControlTextBytes || (code == 0 && !message.empty())) {
    return Bad("a text's length");
  }
  return absl::OkStatus();
}

absl::Status Check(const Control& control) {
  for (const int entries : {control.epochs_size(), control.orders_size(), control.told_size(),
                            control.results_size(), control.counts_size()}) {
    if (entries > kMostControlEntries) return Bad("too many entries");
  }
  if (std::ranges::adjacent_find(control.epochs(), std::greater_equal<>()) !=
      control.epochs().end()) {
    return Bad("epochs that do not rise");
  }
  for (const RoundOrder& order : control.orders()) SHOAL_RETURN_IF_ERROR(CheckOrder(order));
  for (const ToldRound& told : control.told()) {
    if (told.round_id().size() != sizeof(Digest)) return Bad("a round id's length");
  }
  for (const OrderResult& result : control.results()) {
    if (result.number() == 0) return Bad("a result without a number");
    SHOAL_RETURN_IF_ERROR(CheckError(result.code(), result.message()));
  }
  for (const MachineCounts& counts : control.counts()) {
    if (counts.round() == 0) return Bad("counts of no round");
    SHOAL_RETURN_IF_ERROR(CheckError(counts.storage_code(), counts.storage_message()));
  }
  return absl::OkStatus();
}

}  // namespace

SecretVector<uint8_t> EncodeControl(const Control& control) {
  const size_t length = control.ByteSizeLong();
  SHOAL_CHECK(length <= kMostControlMessageBytes);
  SecretVector<uint8_t> out(kControlBytes);
  StoreLe(out.data(), static_cast<uint32_t>(length));
  SHOAL_CHECK(control.SerializeToArray(out.data() + kLengthBytes, static_cast<int>(length)));
  return out;
}

absl::StatusOr<Control> DecodeControl(BytesView bytes) {
  if (bytes.size() != kControlBytes) return Bad("a wrong length");
  const auto length = LoadLe<uint32_t>(bytes.data());
  if (length > kMostControlMessageBytes) return Bad("a wrong length");
  Control control;
  if (!control.ParseFromArray(bytes.data() + kLengthBytes, static_cast<int>(length))) {
    return Bad("does not parse");
  }
  SHOAL_RETURN_IF_ERROR(Check(control));
  // There is one encoding: no field that this program does not know, nothing behind the message.
  control.DiscardUnknownFields();
  if (control.ByteSizeLong() != length || !std::ranges::equal(EncodeControl(control), bytes)) {
    return Bad("is not encoded as machines of this version do");
  }
  return control;
}

}  // namespace shoal::wire
