// How bytes get from one machine of a party to another: the one thing that differs between machines
// in one process and machines in a cluster. It knows nothing of what the bytes mean.
#ifndef SHOAL_SRC_MACHINES_TRANSPORT_H_
#define SHOAL_SRC_MACHINES_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"

namespace shoal::machines {

// One machine's links to the others for one round, so that rounds do not wait for each other.
// Chunks from one machine to another arrive whole and in the order in which they were sent. Nothing
// else is promised, and nothing that passes through this interface is believed: whoever has the
// links can read, change, withhold and repeat chunks, and Machines notices all but the reading,
// which tells him nothing. That does not make an implementation's own format safe against him: a
// library that cannot take hostile bytes needs links that nobody else can write to.
//
// No call waits but Wait. Thread-compatible, but for Abort and what is about signs of life.
class Transport {
 public:
  virtual ~Transport() = default;

  // From 0 to count() - 1, in the order of the machines' slices.
  virtual uint32_t rank() const = 0;
  virtual uint32_t count() const = 0;

  // Takes a copy of a chunk for machine `to`; false, without a copy, if there is no room for it
  // now. A transport has room for a few chunks to each machine. UNAVAILABLE if the party's job has
  // ended.
  virtual absl::StatusOr<bool> TrySend(uint32_t to, BytesView chunk) = 0;
  // The next chunk from machine `from`; none if it is not there yet. UNAVAILABLE if the party's job
  // has ended; the transport may give up a chunk of more than kMaxChunkBytes with any error.
  virtual absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t from) = 0;
  // Waits until a chunk has come for this machine or room was made for one of its own since Wait
  // returned last, and some 10 ms at most. A chunk that lies there because the caller cannot take
  // it yet does not end a wait: otherwise the caller would spin.
  virtual void Wait() = 0;

  // Signs of life pass beside the chunks, also while chunks wait for room, and only the newest
  // counts. Takes a copy; if the one before has not left yet, this one takes its place.
  // Thread-safe.
  virtual void SendSign(uint32_t to, BytesView sign) = 0;
  // The newest that has come from machine `from` since the last call, if there is one. Thread-safe.
  virtual std::optional<Bytes> TakeSign(uint32_t from) = 0;

  // Ends the party's job: the other machines' calls fail soon. Idempotent. Thread-safe.
  virtual void Abort() = 0;

  // Of a chunk, its seal included.
  static constexpr size_t kMaxChunkBytes = (size_t{256} << 10) + 16;
};

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_TRANSPORT_H_
