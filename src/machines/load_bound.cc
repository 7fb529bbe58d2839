#include "src/machines/load_bound.h"

#include <algorithm>
#include <cmath>

#include "src/base/check.h"

namespace shoal::machines {

uint64_t MostDrawn(uint64_t items, uint64_t part, uint64_t whole) {
  SHOAL_CHECK(part <= whole && whole > 0);
  const double p = static_cast<double>(part) / static_cast<double>(whole);
  const double mean = static_cast<double>(items) * p;
  const double most = std::ceil(mean + 9 * std::sqrt(mean * (1 - p)) + 27);
  // What is no smaller than `items` may not fit 64 bits.
  return most < static_cast<double>(items) ? static_cast<uint64_t>(most) : items;
}

}  // namespace shoal::machines
