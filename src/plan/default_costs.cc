#include "google/protobuf/text_format.h"
#include "src/base/check.h"
#include "src/plan/calibrate.h"

namespace shoal::plan {
namespace {

// As `shoal plan --calibrate` wrote it.
constexpr char kCosts[] = R"(
machine: "AMD EPYC, 2 cores, AVX2"
seal_ns: 5481
seal_byte_ns: 2.868
noise_ns: 678.3
open_ns: 1.761e+04
open_byte_ns: 2.868
backend_place {
  few_ns: 115.6
  many_ns: 123
}
place {
  few_ns: 133.2
  many_ns: 144.3
}
move_byte {
  few_ns: 1.298
  many_ns: 1.298
}
forward {
  few_ns: 39.11
  many_ns: 29.88
}
forward_noise {
  few_ns: 24.6
  many_ns: 30.58
}
answer {
  few_ns: 18.7
  many_ns: 18.04
}
answer_byte {
  few_ns: 0.4772
  many_ns: 0.441
}
back {
  few_ns: 34.72
  many_ns: 12.5
}
back_byte {
  few_ns: 0.7827
  many_ns: 0.8601
}
drop {
  few_ns: 0.01
  many_ns: 5.48
}
drop_byte {
  few_ns: 0.1402
  many_ns: 0.3845
}
link_byte_ns: 0.7997
noise_serial: 0.2059
offline_serial: 0.1325
online_serial: 0.6932
answer_serial: 0.4591
back_serial: 0.001
pir_public_byte_ns: 69.56
pir_pass_byte_ns: 0.04517
pir_query_byte_ns: 0.04187
pir_word_ns: 3.791
pir_ask_column_ns: 1339
simplepir_recover_byte_ns: 96.01
doublepir_recover_byte_ns: 9.646e+05
mask {
  few_ns: 20.14
  many_ns: 19.5
}
mask_byte {
  few_ns: 0.5637
  many_ns: 0.5064
}
far_row_ns: 44.16
fresh_byte_ns: 2.447
)";

}  // namespace

const UnitCosts& DefaultCosts() {
  static const UnitCosts* const costs = [] {
    auto* parsed = new UnitCosts;
    SHOAL_CHECK(google::protobuf::TextFormat::ParseFromString(kCosts, parsed));
    return parsed;
  }();
  return *costs;
}

}  // namespace shoal::plan
