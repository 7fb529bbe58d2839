#include "src/load/devices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/connections.h"
#include "src/client/rows.h"

namespace shoal::load {
namespace {

// The most memory for the queries or the answers of one device.
constexpr uint64_t kMaxDeviceBytes = uint64_t{4} << 30;

}  // namespace

std::vector<uint32_t> Piece::Gather(std::span<const uint32_t> from) const {
  std::vector<uint32_t> items;
  items.reserve(count);
  for (const Part& part : parts) {
    const auto some = from.subspan(part.first, part.count);
    items.insert(items.end(), some.begin(), some.end());
  }
  return items;
}

absl::Status DeviceKeys::ForEach(const std::function<absl::Status(BytesView key)>& take) {
  for (const uint32_t app : popularity_.AppsOf(device_)) {
    SHOAL_RETURN_IF_ERROR(take(popularity_.KeyOf(device_, app)));
  }
  return absl::OkStatus();
}

Devices::Devices(const CrowdOptions& options, const CrowdKeys* keys,
                 const client::Deployment* deployment)
    : options_(options),
      deployment_(*deployment),
      popularity_(options, keys, deployment->manifest().rows()) {}

absl::Status Devices::Check(uint64_t bytes_each) const {
  const uint64_t most = QueriesOf(0);
  if (most > deployment_.manifest().rows()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a device asks no row twice: its ", most, " queries are more than the table's ",
        deployment_.manifest().rows(), " rows; take more devices"));
  }
  if (most * bytes_each > kMaxDeviceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a device's ", most, " queries are held at a time, and take ",
                     most * bytes_each >> 20, " MiB; take more devices"));
  }
  return absl::OkStatus();
}

absl::Status Devices::Draw(const client::Environment& environment, Recorder& recorder) {
  const Stopwatch stopwatch;
  const table::RowMap& map = deployment_.map();
  seed_ = environment.random->NewSeed();
  lost_ = std::vector<std::atomic<uint8_t>>(count());
  rows_.resize(queries());
  recorder.BeginQueries();
  SHOAL_RETURN_IF_ERROR(
      client::ForPieces(count(), 1, environment.pool, [&](size_t first, size_t) -> absl::Status {
        const auto device = static_cast<uint32_t>(first);
        DeviceKeys keys = KeysOf(device);
        SHOAL_ASSIGN_OR_RETURN(const client::Wanted wanted, client::CollectRows(map, keys));
        const auto queries = static_cast<uint32_t>(QueriesOf(device));
        if (wanted.rows.size() > queries) {
          return absl::InvalidArgumentError(absl::StrCat(
              "a device needs ", wanted.rows.size(), " rows, more than its ", queries, " queries"));
        }
        SeededRandom random = Random("shoal crowd padding v1", device);
        const std::vector<uint32_t> padded =
            client::PadRows(wanted.rows, queries, map.rows(), random);
        std::copy(padded.begin(), padded.end(),
                  rows_.begin() + static_cast<ptrdiff_t>(First(device)));
        recorder.CountQueries("draw", queries);
        return absl::OkStatus();
      }));
  std::vector<bool> asked(map.rows());
  for (const uint32_t row : rows_) asked[row] = true;
  recorder.report().distinct_rows =
      static_cast<uint64_t>(std::count(asked.begin(), asked.end(), true));
  recorder.AddStage("draw", stopwatch.Seconds());
  return absl::OkStatus();
}

void Devices::Lose(Unit unit) {
  for (uint32_t device = unit.first; device < unit.end; ++device) lost_[device] = 1;
}

bool Devices::AllLost(Unit unit) const {
  return std::all_of(lost_.begin() + unit.first, lost_.begin() + unit.end,
                     [](const auto& lost) { return lost != 0; });
}

std::vector<Unit> Devices::Units(Unit all, uint64_t queries) const {
  std::vector<Unit> units;
  for (uint32_t device = all.first; device < all.end; ++device) {
    if (units.empty() || options_.own_connections ||
        First(device + 1) - First(units.back().first) > queries) {
      units.push_back({device, device});
    }
    units.back().end = device + 1;
  }
  return units;
}

std::vector<Piece> Devices::Cut(Unit unit, size_t per_piece) const {
  std::vector<Piece> pieces;
  for (uint32_t device = unit.first; device < unit.end; ++device) {
    if (IsLost(device)) continue;
    const auto queries = static_cast<uint32_t>(QueriesOf(device));
    for (uint32_t done = 0; done < queries;) {
      if (pieces.empty() || pieces.back().count == per_piece) pieces.emplace_back();
      Piece& piece = pieces.back();
      const auto count =
          static_cast<uint32_t>(std::min<size_t>(queries - done, per_piece - piece.count));
      piece.parts.push_back({.device = device, .first = First(device) + done, .count = count});
      piece.count += count;
      done += count;
    }
  }
  return pieces;
}

}  // namespace shoal::load
