#include "src/plan/calibrate.h"

namespace shoal::plan {

const UnitCosts& DefaultCosts() {
  static const UnitCosts* const costs = [] {
    auto* c = new UnitCosts;
    c->set_machine("AMD EPYC, 2 cores, AVX-512 IFMA");
    c->set_seal_ns(1092);
    c->set_open_ns(3416);
    c->set_box_byte_ns(1.04);
    c->set_expand_ns(374);
    c->set_place_ns(579);
    c->set_gather_byte_ns(0.88);
    c->set_forward_ns(216);
    c->set_forward_noise_ns(15.5);
    c->set_answer_ns(499);
    c->set_return_ns(556);
    c->set_answer_byte_ns(0.964);
    c->set_return_byte_ns(1.268);
    c->set_digest_byte_ns(1.53);
    c->set_link_byte_ns(0.665);
    return c;
  }();
  return *costs;
}

}  // namespace shoal::plan
