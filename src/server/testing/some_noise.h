// Little noise, for tests of stages.
#ifndef SHOAL_SRC_SERVER_TESTING_SOME_NOISE_H_
#define SHOAL_SRC_SERVER_TESTING_SOME_NOISE_H_

#include "src/noise/noise.h"

namespace shoal::server {

inline noise::Distribution SomeNoise() {
  return *noise::Distribution::Create({.mechanism = noise::Mechanism::kGeometric,
                                       .epsilon = 1,
                                       .delta = 1e-2,
                                       .phi = 1,
                                       .mode = 6,
                                       .left_scale = 1.25,
                                       .right_scale = 5.0});
}

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_TESTING_SOME_NOISE_H_
