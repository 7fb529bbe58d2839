#include "src/load/popularity.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/client/rows.h"

namespace shoal::load {
namespace {

// Uniform in [0, 1), 53 bits.
double Uniform(RandomSource& random) { return static_cast<double>(random.U64() >> 11) * 0x1p-53; }

}  // namespace

Popularity::Popularity(const CrowdOptions& options, const CrowdKeys* keys, uint64_t table_rows)
    : options_(options), keys_(keys), pad_to_(std::min<uint64_t>(options.pad_to, table_rows)) {
  SHOAL_CHECK(CheckCrowd(options, keys->size()).ok());
  seed_ = Transcript("shoal crowd v1").U64(options.seed).Finish();
  if (options.zipf == 0) return;
  SeededRandom random(seed_, "shoal crowd ranks v1");
  order_.resize(keys->size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint32_t>(i);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
  cumulative_.reserve(order_.size());
  double sum = 0;
  for (size_t rank = 1; rank <= order_.size(); ++rank) {
    sum += std::pow(static_cast<double>(rank), -options.zipf);
    cumulative_.push_back(sum);
  }
}

uint64_t Popularity::QueriesBefore(uint32_t device) const {
  if (options_.queries == 0) return device * pad_to_;
  // The first devices have one query more if `queries` is not a multiple of `devices`.
  const uint64_t each = options_.queries / options_.devices;
  return device * each + std::min<uint64_t>(device, options_.queries % options_.devices);
}

uint64_t Popularity::QueriesOf(uint32_t device) const {
  return QueriesBefore(device + 1) - QueriesBefore(device);
}

bool Popularity::IsAsleep(uint32_t device, uint32_t refresh) const {
  if (options_.asleep == 0) return false;
  SeededRandom random(seed_, "shoal crowd sleep v1", uint64_t{refresh} << 32 | device);
  return Uniform(random) < options_.asleep;
}

std::vector<uint32_t> Popularity::AppsOf(uint32_t device) const {
  SeededRandom random(seed_, "shoal crowd device v1", device);
  const uint64_t keys = keys_->size();
  const uint64_t apps =
      options_.fill
          ? std::min(QueriesOf(device), keys)
          : options_.min_apps + random.Below(uint64_t{options_.max_apps} - options_.min_apps + 1);
  std::vector<uint32_t> numbers;
  numbers.reserve(apps);
  if (options_.zipf == 0 && options_.absent == 0) {
    if (apps <= keys / 2) {
      client::DrawDistinct(apps, keys, random, numbers);
      return numbers;
    }
    std::vector<uint32_t> others;
    client::DrawDistinct(keys - apps, keys, random, others);
    auto other = others.begin();
    for (uint32_t number = 0; number < keys; ++number) {
      if (other != others.end() && *other == number) {
        ++other;
      } else {
        numbers.push_back(number);
      }
    }
    return numbers;
  }
  std::unordered_set<uint32_t> taken;
  while (numbers.size() < apps) {
    if (Uniform(random) < options_.absent) {
      numbers.push_back(kAbsent + static_cast<uint32_t>(numbers.size()));
      continue;
    }
    uint32_t number;
    if (options_.zipf == 0) {
      number = static_cast<uint32_t>(random.Below(keys));
    } else {
      // Popular applications are drawn repeatedly; each counts once.
      const double at = Uniform(random) * cumulative_.back();
      number = order_[static_cast<size_t>(
          std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, at) - cumulative_.begin())];
    }
    if (taken.insert(number).second) numbers.push_back(number);
  }
  return numbers;
}

Bytes Popularity::KeyOf(uint32_t device, uint32_t app) const {
  if (app < kAbsent) return keys_->At(app);
  // A dense table takes only numbers, and has none this large.
  return ToBytes(AsBytes(keys_->dense != 0
                             ? absl::StrCat(uint64_t{1} << 62 | (app - kAbsent))
                             : absl::StrCat("no such application ", device, " ", app - kAbsent)));
}

}  // namespace shoal::load
