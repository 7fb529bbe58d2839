// Options of a crowd: how many devices, what they have installed, how they connect.
#ifndef SHOAL_SRC_LOAD_OPTIONS_H_
#define SHOAL_SRC_LOAD_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/client/transport.h"
#include "src/pir/engine.h"

namespace shoal::load {

// What devices can have installed.
struct CrowdKeys {
  std::vector<Bytes> listed;
  // If not 0: the keys 0 .. dense - 1 of a dense table, in place of `listed`.
  uint64_t dense = 0;

  uint64_t size() const { return dense != 0 ? dense : listed.size(); }
  Bytes At(uint64_t number) const;
};

struct CrowdOptions {
  // Null: the chain.
  const pir::Engine* engine = nullptr;
  // Of an engine of two servers: the numbers of the parties, in the order of its roles.
  std::vector<uint32_t> parties = {};
  uint32_t devices = 1000;
  // Queries of every device, unless `queries` is set.
  uint32_t pad_to = 64;
  // Queries of all devices together, shared out evenly. 0: pad_to each.
  uint64_t queries = 0;
  // The number of different applications on a device is uniform between these.
  uint32_t min_apps = 20;
  uint32_t max_apps = 60;
  // Instead, a device has as many applications as queries.
  bool fill = false;
  // The application of rank r is drawn with probability proportional to r^-zipf. 0 is uniform;
  // about 1 fits what people install.
  double zipf = 1.0;
  // The share of a device's applications that the table lacks.
  double absent = 0;
  // Connections at a time.
  uint32_t connections = 16;
  // Every device makes its own connection for each stage, as in a real crowd. Otherwise
  // `connections` connections carry all requests, those of small devices together in pieces of a
  // megabyte. This is for crowds whose handshakes would be most of the work.
  bool own_connections = true;
  // Seeds the ranks and what every device has installed, nothing cryptographic.
  uint64_t seed = 1;
  // Verify the signature of every answer, as the devices of a real crowd do. Otherwise an answer
  // with the same bytes as a verified answer to the same row counts as verified, which is as sure,
  // and much faster where many devices ask for the same rows.
  bool verify_each = true;
  // How long to wait for a round that takes onions, and for each refresh.
  uint32_t timeout_s = 600;
  // If not 0, the crowd enters a round with a term, and then fetches so many refreshes.
  uint32_t refreshes = 0;
  // The share of refreshes that each device sleeps through. Which ones follows from the seed.
  double asleep = 0;
  // A file that keeps the table's placement between epochs, as a device does; none if it is empty.
  std::string placement_cache = {};
  // Bytes of arrays in one request or response.
  size_t piece_bytes = client::kMaxBulkBytes;
};

// INVALID_ARGUMENT names what is wrong. `keys` is the number of keys to choose from.
absl::Status CheckCrowd(const CrowdOptions& options, uint64_t keys);

}  // namespace shoal::load

#endif  // SHOAL_SRC_LOAD_OPTIONS_H_
