#include "google/protobuf/text_format.h"
#include "src/base/check.h"
#include "src/plan/calibrate.h"

namespace shoal::plan {
namespace {

// As `shoal plan --calibrate` wrote it.
constexpr char kCosts[] = R"(
machine: "AMD EPYC, 2 cores, AVX2"
seal_ns: 8414
seal_byte_ns: 3.199
noise_ns: 0.01
open_ns: 2.074e+04
open_byte_ns: 3.199
slot_ns: 1500
backend_place {
  few_ns: 135.2
  many_ns: 142.2
}
place {
  few_ns: 252
  many_ns: 249.7
}
move_byte {
  few_ns: 1.004
  many_ns: 1.004
}
forward {
  few_ns: 28.96
  many_ns: 32.7
}
forward_noise {
  few_ns: 11.34
  many_ns: 19.31
}
answer {
  few_ns: 25.14
  many_ns: 29.32
}
answer_byte {
  few_ns: 0.533
  many_ns: 0.3912
}
back {
  few_ns: 17.8
  many_ns: 32.61
}
back_byte {
  few_ns: 0.9792
  many_ns: 0.9361
}
drop {
  few_ns: 11.17
  many_ns: 3.132
}
drop_byte {
  few_ns: 0.5688
  many_ns: 0.6051
}
link_byte_ns: 0.9256
noise_serial: 0.2345
offline_serial: 0.2757
online_serial: 0.3853
answer_serial: 0.655
back_serial: 0.3797
pir_public_byte_ns: 67.19
pir_pass_byte_ns: 0.04684
pir_query_byte_ns: 0.04074
pir_word_ns: 8.837
pir_ask_column_ns: 350  # measured later, with vector AES: pir_benchmark --kernel=avx2
simplepir_recover_byte_ns: 115.8
doublepir_recover_byte_ns: 1.248e+06
mask {
  few_ns: 12.33
  many_ns: 35.65
}
mask_byte {
  few_ns: 0.4804
  many_ns: 0.443
}
far_row_ns: 50.52
fresh_byte_ns: 3.196
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
