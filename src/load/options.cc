#include "src/load/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/rows.h"
#include "src/load/popularity.h"

namespace shoal::load {
namespace {

constexpr uint32_t kMaxDevices = 100'000'000;
constexpr uint32_t kMaxConnections = 1024;

}  // namespace

Bytes CrowdKeys::At(uint64_t number) const {
  return dense != 0 ? ToBytes(AsBytes(absl::StrCat(number))) : listed[number];
}

absl::Status CheckCrowd(const CrowdOptions& options, uint64_t keys) {
  const auto check = [](bool ok, absl::string_view what) {
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(what);
  };
  if (options.engine != nullptr) {
    const size_t roles = options.engine->roles().size();
    SHOAL_RETURN_IF_ERROR(check(
        roles == 1 || (options.parties.size() == 2 && options.parties[0] != options.parties[1]),
        absl::StrCat("engine: ", options.engine->name(),
                     " takes two different parties, the offline and the online one")));
  }
  SHOAL_RETURN_IF_ERROR(check(options.devices >= 1 && options.devices <= kMaxDevices,
                              absl::StrCat("devices: 1 to ", kMaxDevices)));
  SHOAL_RETURN_IF_ERROR(check(options.connections >= 1 && options.connections <= kMaxConnections,
                              absl::StrCat("connections: 1 to ", kMaxConnections)));
  SHOAL_RETURN_IF_ERROR(check(options.pad_to >= 1 && options.pad_to <= client::kMaxPadTo,
                              absl::StrCat("pad: 1 to ", client::kMaxPadTo)));
  SHOAL_RETURN_IF_ERROR(
      check(options.queries == 0 || (options.queries >= options.devices &&
                                     options.queries / options.devices < client::kMaxPadTo),
            absl::StrCat("queries: at least one and at most ", client::kMaxPadTo,
                         " of each of the ", options.devices, " devices")));
  SHOAL_RETURN_IF_ERROR(check(keys > 0 && keys < Popularity::kAbsent,
                              absl::StrCat("keys: 1 to ", Popularity::kAbsent - 1)));
  SHOAL_RETURN_IF_ERROR(check(options.zipf >= 0 && options.zipf <= 2, "zipf: between 0 and 2"));
  SHOAL_RETURN_IF_ERROR(
      check(options.absent >= 0 && options.absent <= 1, "absent: between 0 and 1"));
  SHOAL_RETURN_IF_ERROR(check(options.refreshes == 0 || options.engine == nullptr,
                              "refreshes: rounds of the chain have terms, engines have none"));
  SHOAL_RETURN_IF_ERROR(check(options.asleep >= 0 && options.asleep < 1,
                              "asleep: a share of the refreshes, at least 0 and below 1"));
  SHOAL_RETURN_IF_ERROR(check(options.asleep == 0 || options.refreshes > 0,
                              "asleep: it takes --refreshes for devices to sleep through some"));
  const uint64_t queries =
      options.queries == 0 ? options.pad_to : options.queries / options.devices;
  if (!options.fill) {
    SHOAL_RETURN_IF_ERROR(
        check(options.min_apps <= options.max_apps, "apps: the first number is the smaller one"));
    SHOAL_RETURN_IF_ERROR(check(
        options.max_apps <= queries,
        absl::StrCat("apps: ", options.max_apps, " of a device do not fit ", queries, " queries")));
  }
  // With at most half of the keys, sampling by popularity without repetition stays quick.
  const uint64_t most = options.fill ? std::min(queries + 1, keys) : options.max_apps;
  return check(options.zipf == 0 ? most <= keys : most <= std::max<uint64_t>(1, keys / 2),
               absl::StrCat("apps: at most half of the ", keys, " keys, or all with zipf 0"));
}

}  // namespace shoal::load
