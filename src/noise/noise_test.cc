#include "src/noise/noise.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::noise {
namespace {
TEST(X, Y) {
  struct L { Parameters p; double mean; double delta; };
  SHOAL_ASSERT_OK_AND_ASSIGN(uint32_t b, ClampedLaplaceBound(0.1, 1e-6, 1));
  EXPECT_EQ(b, 277u);
  using enum Mechanism;
  for (const L& l : std::vector<L>{
    {{kClampedLaplace, 0.1, 1e-6, 1, 277}, 276.5, 1.93e-6},
    {{kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74}, 157.7, 9.9e-7},
    {{kClampedLaplace, 1, 1e-6, 1, 28}, 27.5, 1.1e-6},
    {{kGeometric, 1, 1e-6, 1, 15, 1.25, 5}, 18.7, 9.7e-7},
    {{kClampedLaplace, 0.1, 1e-9, 1, 415}, 414.5, 1.9e-9},
    {{kGeometric, 0.1, 1e-9, 1, 205, 12.38, 52.08}, 244.7, 9.9e-10},
    {{kClampedLaplace, std::log(3), 1e-4, 1, 17}, 16.5, 1.2e-4},
    {{kGeometric, std::log(3), 1e-4, 1, 9, 1.19, 3.89}, 11.7, 9.9e-5},
    {{kClampedLaplace, 0.1, 1e-6, 100, 27631}, 27630, 2e-4},
    {{kSplitGaussian, 0.1, 1e-6, 100, 2611, 532, 532}, 2612, 1e-6},
    {{kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177}, 1953, 1e-6},
    {{kGeometric, 0.1, 1e-6, 2, 300, 30, 60}, 0, 0},
  }) {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto d, Distribution::Create(l.p));
    SHOAL_ASSERT_OK_AND_ASSIGN(auto db, SubstitutionDelta(d.weights(), l.p.epsilon, {.phi=l.p.phi}));
    SHOAL_ASSERT_OK_AND_ASSIGN(auto ds, SubstitutionDelta(d.weights(), l.p.epsilon, {.phi=l.p.phi}, Precision::kSearch));
    printf("%8.3f %8.3f  max %d delta [%.6g %.6g] s %.6g  %.3g\n", d.mean(), l.mean, d.max(), db.lower, db.upper, ds.upper, l.delta);
    std::cout << VerifyPrivacy(l.p) << "\n";
  }
}
}
}
