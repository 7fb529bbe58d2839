// What the door counts, for its operator. No figure is of one client, and what clients raise one by
// one is rounded on its way out (src/wire/visible.h).
#ifndef SHOAL_SRC_DOOR_FIGURES_H_
#define SHOAL_SRC_DOOR_FIGURES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shoal::door {

// Why a request or a connection was refused.
enum class Refusal {
  kMalformed,      // no HTTP, no frame, or one of another type
  kTooLarge,       // a head, a body or a frame
  kForeignOrigin,  // a page that is not allowed
  kNoAddress,      // a proxy that names no client
  kTooFast,        // a rate
  kNoRoom,         // places or buffers
  kTooSlow,        // a time limit
  kNoFrontend,     // the frontend did not answer
  kNoToken,        // onions without a token, or with one that is none
  kSpentToken,     // a token for the second time
  kNoOhttp,        // shoal-ohttp did not answer
  kCount,
};

// Thread-safe.
struct Figures {
  std::atomic<uint64_t> connections = 0;  // open now
  std::atomic<uint64_t> web_sockets = 0;  // of these
  std::atomic<uint64_t> frontend_connections = 0;
  std::atomic<uint64_t> frontend_handshakes = 0;  // since the start
  std::atomic<uint64_t> requests = 0;
  std::atomic<uint64_t> tokens = 0;          // that were spent
  std::atomic<uint64_t> received_bytes = 0;  // frames
  std::atomic<uint64_t> sent_bytes = 0;
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Refusal::kCount)> refused = {};

  void Refuse(Refusal why) { ++refused[static_cast<size_t>(why)]; }
  uint64_t refusals(Refusal why) const { return refused[static_cast<size_t>(why)]; }

  // In Prometheus's text format. `certificate_expires_s`: seconds since 1970; 0 without a
  // certificate.
  std::string Page(uint64_t certificate_expires_s, uint64_t now_s) const;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_FIGURES_H_
