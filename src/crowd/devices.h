// The devices of a crowd: what each asks, which of them are lost, and how their requests are cut.
#ifndef SHOAL_SRC_CROWD_DEVICES_H_
#define SHOAL_SRC_CROWD_DEVICES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/client/deployment.h"
#include "src/client/device.h"
#include "src/client/environment.h"
#include "src/client/retrieval.h"
#include "src/crowd/options.h"
#include "src/crowd/popularity.h"
#include "src/crowd/report.h"

namespace shoal::crowd {

// Queries are numbered over all devices, a device's one after the other.

// Some queries of one or more devices, for one request.
struct Piece {
  std::vector<client::OnionRange> ranges;
  std::vector<uint64_t> firsts;   // each range's first query
  std::vector<uint32_t> devices;  // each range's
  size_t count = 0;

  // The piece's items of an array over all queries, and back.
  std::vector<uint32_t> Gather(std::span<const uint32_t> from) const;
  void Scatter(std::span<const uint32_t> items, std::span<uint32_t> to) const;
};

// Devices first .. end - 1, which do something together.
struct Unit {
  uint32_t first;
  uint32_t end;
};

// The keys of one device.
class DeviceKeys final : public client::Keys {
 public:
  DeviceKeys(const Popularity* popularity, uint32_t device)
      : popularity_(*popularity), device_(device) {}
  absl::Status ForEach(const std::function<absl::Status(BytesView key)>& take) override;

 private:
  const Popularity& popularity_;
  const uint32_t device_;
};

// Thread-safe once drawn.
class Devices {
 public:
  // The options have been checked; the others outlive this.
  Devices(const CrowdOptions& options, const CrowdKeys* keys, const client::Deployment* deployment);

  uint32_t count() const { return options_.devices; }
  uint64_t queries() const { return First(count()); }
  uint64_t QueriesOf(uint32_t device) const { return popularity_.QueriesOf(device); }
  // The device's first query.
  uint64_t First(uint32_t device) const { return popularity_.QueriesBefore(device); }

  // INVALID_ARGUMENT if a device's queries are more than the table's rows, or need more memory than
  // one device may have: `bytes_each` for every query.
  absl::Status Check(uint64_t bytes_each) const;

  // Draws every device's secrets, what it has and so asks: the stage "draw". INVALID_ARGUMENT if a
  // device needs more rows than it has queries.
  absl::Status Draw(const client::Environment& environment, Recorder& recorder);
  // By query, once drawn; and those of one device.
  std::span<const uint32_t> rows() const { return rows_; }
  std::span<const uint32_t> RowsOf(uint32_t device) const {
    return rows().subspan(First(device), QueriesOf(device));
  }
  DeviceKeys KeysOf(uint32_t device) const { return {&popularity_, device}; }
  uint64_t NumberOfKeys(uint32_t device) const { return popularity_.AppsOf(device).size(); }
  // A stream of the run's own secret randomness.
  SeededRandom Random(absl::string_view domain, uint64_t number) const {
    return SeededRandom(seed_.view(), domain, number);
  }

  // Devices that could not submit or fetch: nobody waits for them any more.
  bool IsLost(uint32_t device) const { return lost_[device] != 0; }
  void Lose(Unit unit);
  bool AllLost(Unit unit) const;

  // Single devices where each has its own connections; otherwise runs of devices of about so many
  // queries, each at least one device.
  std::vector<Unit> Units(Unit all, uint64_t queries) const;
  // The queries of the devices that are not lost.
  std::vector<Piece> Cut(Unit unit, size_t per_piece) const;

 private:
  const CrowdOptions& options_;
  const client::Deployment& deployment_;
  const Popularity popularity_;
  std::vector<Seed> masters_;               // by device
  Seed seed_;                               // of padding, and of weights in verification
  std::vector<std::atomic<uint8_t>> lost_;  // by device
  std::vector<uint32_t> rows_;              // by query
};

}  // namespace shoal::crowd

#endif  // SHOAL_SRC_CROWD_DEVICES_H_
