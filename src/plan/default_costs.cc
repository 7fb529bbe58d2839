#include "google/protobuf/text_format.h"
#include "src/base/check.h"
#include "src/pir/registry/registry.h"
#include "src/plan/calibrate.h"

namespace shoal::plan {
namespace {

// As `shoal plan --calibrate` wrote it; refreshes and terms on an AMD EPYC with AVX-512. Links
// within a party and digests are estimated from what that one measured beside other costs; those
// between parties were measured with AES-256-GCM. What answer tags add (the key 25 ns; a tag 6 ns,
// and 0.17 for each byte) was measured with AVX2 on an Intel at 2.6 GHz. Two tiers (tier_*) were
// measured on two virtual cores of an Intel Xeon with AVX-512 at a load of 7.
constexpr char kCosts[] = R"(
machine: "AMD EPYC, 2 cores, AVX2"
seal_ns: 7503
seal_byte_ns: 2.058
noise_ns: 0.01
open_ns: 1.563e+04
open_byte_ns: 2.058
backend_place {
  few_ns: 128.9
  many_ns: 137.2
}
place {
  few_ns: 187.5
  many_ns: 185.3
}
move_byte {
  few_ns: 1.568
  many_ns: 1.568
}
forward {
  few_ns: 32.61
  many_ns: 22.05
}
forward_noise {
  few_ns: 12.06
  many_ns: 17.33
}
answer {
  few_ns: 34.27
  many_ns: 17.01
}
answer_byte {
  few_ns: 0.8527
  many_ns: 0.5723
}
back {
  few_ns: 32.18
  many_ns: 13.34
}
back_byte {
  few_ns: 1.289
  many_ns: 1.058
}
drop {
  few_ns: 23.31
  many_ns: 10.79
}
drop_byte {
  few_ns: 0.612
  many_ns: 0.4371
}
link_byte_ns: 0.9404
inside_byte_ns: 0.55
digest_byte_ns: 0.2
join_byte_ns: 0.2248
part_query_ns: 44.7
noise_serial: 0.2465
offline_serial: 0.2337
online_serial: 0.4326
answer_serial: 0.3815
back_serial: 0.2922
mask {
  few_ns: 37.34
  many_ns: 36.05
}
mask_byte {
  few_ns: 0.4709
  many_ns: 0.4346
}
far_row_ns: 35.32
fresh_byte_ns: 0.1453
slot_ns: 483.8
refresh_answer {
  few_ns: 94.1
  many_ns: 72.12
}
refresh_answer_byte {
  few_ns: 0.6153
  many_ns: 0.4915
}
refresh_back {
  few_ns: 102.5
  many_ns: 86.89
}
refresh_back_byte {
  few_ns: 0.8844
  many_ns: 0.7524
}
refresh_drop {
  few_ns: 13.51
  many_ns: 18.83
}
refresh_drop_byte {
  few_ns: 0.1632
  many_ns: 0.1392
}
refresh_far_row_ns: 7.645
refresh_table_byte_ns: 1.043
refresh_kept_byte_ns: 1.235
refresh_fetch_ns: 125.3
term_byte_ns: 11.28
refresh_serial: 0.2929
tier_noise_ns: 28.72
tier_forward_ns: 129.2
tier_forward_noise_ns: 56.57
tier_selection_byte_ns: 2.723
tier_open_ns: 135.7
tier_answer_byte_ns: 0.7325
tier_scan_byte_ns: 0.004949
tier_read_byte_ns: 0.1327
tier_back_ns: 28.89
tier_back_byte_ns: 0.8332
tier_drop_ns: 5.078
tier_drop_byte_ns: 0.4998
)";

}  // namespace

const UnitCosts& DefaultCosts() {
  static const UnitCosts* const costs = [] {
    auto* parsed = new UnitCosts;
    SHOAL_CHECK(google::protobuf::TextFormat::ParseFromString(kCosts, parsed));
    for (const pir::Family* family : pir::Families()) AddUnitCosts(family->units(), *parsed);
    return parsed;
  }();
  return *costs;
}

}  // namespace shoal::plan
