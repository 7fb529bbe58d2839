#include "src/wire/control.h"

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::wire {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Control OfHead() {
  Control control;
  RoundOrder& open = *control.add_orders();
  open.set_number(1);
  open.set_round(4);
  open.mutable_open()->set_root_seed(std::string(32, 's'));
  RoundOrder& step = *control.add_orders();
  step.set_number(2);
  step.set_round(4);
  step.mutable_step()->set_step(SEAL);
  RoundOrder& end = *control.add_orders();
  end.set_number(3);
  end.set_round(4);
  end.set_end(true);
  control.add_told()->set_round_id(std::string(32, 'r'));
  OrderResult& result = *control.add_results();
  result.set_number(9);
  result.set_code(14);
  result.set_message("why");
  control.add_counts()->set_round(4);
  return control;
}

TEST(ControlCodecTest, AMessageComesBackAndHasOneLength) {
  for (const Control& control : {Control(), OfHead()}) {
    const SecretVector<uint8_t> bytes = EncodeControl(control);
    EXPECT_EQ(bytes.size(), kControlBytes);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Control back, DecodeControl(bytes));
    EXPECT_EQ(back.SerializeAsString(), control.SerializeAsString());
  }
}

TEST(ControlCodecTest, WhatNoMachineSaysIsRefused) {
  const std::vector<std::function<void(Control&)>> changes = {
      [](Control& c) { c.mutable_orders(0)->set_number(0); },
      [](Control& c) { c.mutable_orders(1)->set_round(0); },
      [](Control& c) { c.mutable_orders(0)->mutable_open()->set_root_seed(std::string(31, 's')); },
      [](Control& c) { c.mutable_orders(1)->mutable_step()->set_step(ROUND_STEP_UNSPECIFIED); },
      [](Control& c) { c.mutable_orders(1)->mutable_step()->set_step(static_cast<RoundStep>(77)); },
      [](Control& c) { c.mutable_orders(2)->set_end(false); },
      [](Control& c) { c.mutable_orders(2)->clear_end(); },
      [](Control& c) { c.mutable_told(0)->set_round_id("short"); },
      [](Control& c) { c.mutable_results(0)->set_number(0); },
      [](Control& c) { c.mutable_results(0)->set_code(17); },
      [](Control& c) { c.mutable_results(0)->set_code(0); },
      [](Control& c) {
        c.mutable_results(0)->set_message(std::string(kMostControlTextBytes + 1, 'x'));
      },
      [](Control& c) { c.mutable_counts(0)->set_round(0); },
      [](Control& c) { c.mutable_counts(0)->set_storage_code(17); },
      [](Control& c) { c.mutable_counts(0)->set_storage_message("no code"); },
      [](Control& c) {
        for (int i = 0; i < kMostControlEntries; ++i) c.add_results()->set_number(1);
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Control control = OfHead();
    changes[i](control);
    EXPECT_THAT(DecodeControl(EncodeControl(control)).status(), StatusIs(kInvalid, "a machine"))
        << i;
  }
}

TEST(ControlCodecTest, ThereIsOneEncoding) {
  const SecretVector<uint8_t> good = EncodeControl(OfHead());
  SecretVector<uint8_t> bytes = good;
  bytes.back() = 1;  // in the padding
  EXPECT_THAT(DecodeControl(bytes).status(), StatusIs(kInvalid, "encoded"));
  bytes = good;
  bytes.push_back(0);
  EXPECT_THAT(DecodeControl(bytes).status(), StatusIs(kInvalid, "length"));
  bytes = good;
  StoreLe(bytes.data(), uint32_t{kControlBytes});
  EXPECT_THAT(DecodeControl(bytes).status(), StatusIs(kInvalid, "length"));
  // A field that this version does not know.
  bytes = EncodeControl(Control());
  StoreLe(bytes.data(), uint32_t{3});
  bytes[4] = 0xf8;
  bytes[5] = 0x01;  // number 31, a varint
  bytes[6] = 0x05;
  EXPECT_THAT(DecodeControl(bytes).status(), StatusIs(kInvalid, "encoded"));
}

}  // namespace
}  // namespace shoal::wire
