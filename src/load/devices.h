// The devices of a crowd: what each asks for, which are lost, and how their requests are cut.
#ifndef SHOAL_SRC_LOAD_DEVICES_H_
#define SHOAL_SRC_LOAD_DEVICES_H_

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
#include "src/client/environment.h"
#include "src/client/retrieval.h"
#include "src/load/options.h"
#include "src/load/popularity.h"
#include "src/load/report.h"

namespace shoal::load {

// Queries are numbered over all devices; a device's queries have successive numbers.

// Some queries of one or more devices, for one request.
struct Piece {
  struct Part {
    uint32_t device;
    uint64_t first;  // its first query
    uint32_t count;
  };
  std::vector<Part> parts;
  size_t count = 0;

  // Copies the piece's items out of an array over all queries.
  std::vector<uint32_t> Gather(std::span<const uint32_t> from) const;
};

// Devices first .. end - 1, whose requests are sent together.
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

// Thread-safe after Draw.
class Devices {
 public:
  // The options must have been checked. The pointers must outlive this.
  Devices(const CrowdOptions& options, const CrowdKeys* keys, const client::Deployment* deployment);

  uint32_t count() const { return options_.devices; }
  uint64_t queries() const { return First(count()); }
  uint64_t QueriesOf(uint32_t device) const { return popularity_.QueriesOf(device); }
  // The device's first query.
  uint64_t First(uint32_t device) const { return popularity_.QueriesBefore(device); }

  // INVALID_ARGUMENT if a device has more queries than the table has rows, or its queries need more
  // memory, at `bytes_each` bytes each, than one device may have.
  absl::Status Check(uint64_t bytes_each) const;

  // Draws every device's applications and so rows: the stage "draw". INVALID_ARGUMENT if a
  // device needs more rows than it has queries.
  absl::Status Draw(const client::Environment& environment, Recorder& recorder);
  // The drawn rows, by query: of all devices, and of one.
  std::span<const uint32_t> rows() const { return rows_; }
  std::span<const uint32_t> RowsOf(uint32_t device) const {
    return rows().subspan(First(device), QueriesOf(device));
  }
  DeviceKeys KeysOf(uint32_t device) const { return {&popularity_, device}; }
  uint64_t NumberOfKeys(uint32_t device) const { return popularity_.AppsOf(device).size(); }
  // A stream of the run's secret randomness.
  SeededRandom Random(absl::string_view domain, uint64_t number) const {
    return SeededRandom(seed_.view(), domain, number);
  }

  // Whether the device could not submit or fetch. Nothing waits for a lost device.
  bool IsLost(uint32_t device) const { return lost_[device] != 0; }
  void Lose(Unit unit);
  // Whether the device sleeps through a refresh, from 1 on.
  bool IsAsleep(uint32_t device, uint32_t refresh) const {
    return popularity_.IsAsleep(device, refresh);
  }
  bool AllLost(Unit unit) const;

  // Splits devices into units: single devices if each has its own connections; otherwise runs of
  // one or more devices with about `queries` queries.
  std::vector<Unit> Units(Unit all, uint64_t queries) const;
  // Cuts the queries of devices that are not lost into pieces.
  std::vector<Piece> Cut(Unit unit, size_t per_piece) const;

 private:
  const CrowdOptions& options_;
  const client::Deployment& deployment_;
  const Popularity popularity_;
  Seed seed_;                               // of padding, and of weights in verification
  std::vector<std::atomic<uint8_t>> lost_;  // by device
  std::vector<uint32_t> rows_;              // by query
};

}  // namespace shoal::load

#endif  // SHOAL_SRC_LOAD_DEVICES_H_
