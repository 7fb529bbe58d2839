#include "google/protobuf/text_format.h"
#include "src/base/check.h"
#include "src/plan/calibrate.h"

namespace shoal::plan {
namespace {

// As `shoal plan --calibrate` wrote it.
constexpr char kCosts[] = R"(
machine: "AMD EPYC, 2 cores, AVX2"
seal_ns: 5815
seal_byte_ns: 4.127
noise_ns: 992.7
open_ns: 1.433e+04
open_byte_ns: 4.127
backend_place {
  few_ns: 73.06
  many_ns: 85.31
}
place {
  few_ns: 97.57
  many_ns: 101.6
}
move_byte {
  few_ns: 1.085
  many_ns: 1.085
}
forward {
  few_ns: 62.46
  many_ns: 57.08
}
forward_noise {
  few_ns: 13.05
  many_ns: 25.93
}
answer {
  few_ns: 80.94
  many_ns: 64.63
}
answer_byte {
  few_ns: 0.8006
  many_ns: 0.6382
}
back {
  few_ns: 17.88
  many_ns: 8.653
}
back_byte {
  few_ns: 1.058
  many_ns: 1.311
}
drop {
  few_ns: 6.499
  many_ns: 0.6571
}
drop_byte {
  few_ns: 0.1167
  many_ns: 0.01
}
link_byte_ns: 0.8973
noise_serial: 0.04424
offline_serial: 0.07119
online_serial: 0.3677
answer_serial: 0.1752
back_serial: 0.2016
pir_public_byte_ns: 57.62
pir_pass_byte_ns: 0.04048
pir_query_byte_ns: 0.04228
pir_word_ns: 3.821
pir_ask_column_ns: 1451
simplepir_recover_byte_ns: 96.24
doublepir_recover_byte_ns: 8.46e+05
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
