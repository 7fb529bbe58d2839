#include "google/protobuf/text_format.h"
#include "src/base/check.h"
#include "src/plan/calibrate.h"

namespace shoal::plan {
namespace {

// As `shoal plan --calibrate` wrote it.
constexpr char kCosts[] = R"(
machine: "AMD EPYC, 2 cores, AVX2"
seal_ns: 6405
seal_byte_ns: 0.1858
noise_ns: 0.01
open_ns: 1.522e+04
open_byte_ns: 0.1858
backend_place {
  few_ns: 119.5
  many_ns: 124.1
}
place {
  few_ns: 183.6
  many_ns: 182.5
}
move_byte {
  few_ns: 0.5905
  many_ns: 0.5905
}
forward {
  few_ns: 31.66
  many_ns: 28.1
}
forward_noise {
  few_ns: 15.59
  many_ns: 26.14
}
answer {
  few_ns: 18.38
  many_ns: 19.13
}
answer_byte {
  few_ns: 0.3333
  many_ns: 0.2615
}
back {
  few_ns: 3.61
  many_ns: 6.498
}
back_byte {
  few_ns: 0.6502
  many_ns: 0.6971
}
drop {
  few_ns: 8.133
  many_ns: 0.01
}
drop_byte {
  few_ns: 0.1878
  many_ns: 0.1939
}
link_byte_ns: 0.8408
noise_serial: 0.02987
offline_serial: 0.001
online_serial: 0.5117
answer_serial: 0.2669
back_serial: 0.153
pir_public_byte_ns: 44.64
pir_pass_byte_ns: 0.03194
pir_query_byte_ns: 0.02872
pir_word_ns: 4.483
pir_ask_column_ns: 1241
simplepir_recover_byte_ns: 68.89
doublepir_recover_byte_ns: 8.102e+05
mask {
  few_ns: 4.147
  many_ns: 7.641
}
mask_byte {
  few_ns: 0.525
  many_ns: 0.4438
}
far_row_ns: 41.68
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
