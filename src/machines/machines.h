// The machines of one party, as the stages of a round see them: who I am, how many we are, small
// messages to all, and an exchange of streams between all. The stages are written once for any
// number of machines; a party of one machine is the simplest use.
//
//   machine 0 (the head)      machine 1                 machine 2
//     |--- Gather: a small message of everybody to everybody; returns when all have come ---|
//     |--- Exchange: from each to each a stream, padded to a length that both know ---------|
//
// Machines of one party trust each other; the links between them are trusted with nothing. What
// passes is cut into chunks of fixed length and sealed under a key of its own for each exchange,
// sender and receiver, so that a chunk that was changed, left out, repeated or sent elsewhere fails
// to open. How long a transfer is, depends on what both sides know beforehand and never on what is
// in it: an observer of the links learns nothing but that an exchange took place.
//
// All machines make the same calls in the same order. Each call is an exchange with a number.
#ifndef SHOAL_SRC_MACHINES_MACHINES_H_
#define SHOAL_SRC_MACHINES_MACHINES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/secret.h"
#include "src/machines/transport.h"

namespace shoal::machines {

// What machine `rank` of `count` owns of `items` in a row: a run, in the order of the ranks. Some
// are empty if there are fewer items than machines.
struct Run {
  uint64_t begin, end;
  uint64_t size() const { return end - begin; }
};
inline Run RunOf(uint64_t items, uint32_t rank, uint32_t count) {
  return {items * rank / count, items * (rank + 1) / count};
}

// The key of all that passes between a party's machines for one round. `party_secret` is known to
// the party's machines alone. `job` was drawn at random when the machines' processes were started
// together: so a round that is tried again after a crash has other keys.
Seed RoundKey(BytesView party_secret, const Digest& round_id, const Digest& job);

// One machine's view of all. Thread-compatible. After an error no call succeeds: the round can only
// end.
class Machines {
 public:
  struct Options {
    // A call gives up when nothing was sent and nothing came for so long.
    uint64_t progress_limit_s = 30;
  };
  // What one machine sends to another in an exchange.
  struct Outgoing {
    ByteSource* source;   // null: nothing
    uint64_t most_bytes;  // to which the transfer is padded; the receiver must know it
  };
  // Takes a piece of what machine `from` sends, at least one byte. The bytes are valid during the
  // call.
  using Sink = std::function<absl::Status(uint32_t from, BytesView piece)>;

  // A party of one machine: every call returns at once, and none fails. Thread-safe.
  Machines() = default;
  static Machines& Alone();
  // One of several. A key must be used for one set of Machines, once. Transport and clock must
  // outlive the object.
  Machines(Transport* transport, Seed round_key, const Clock* clock, Options options);
  Machines(const Machines&) = delete;
  Machines& operator=(const Machines&) = delete;

  uint32_t rank() const { return transport_ == nullptr ? 0 : transport_->rank(); }
  uint32_t count() const { return transport_ == nullptr ? 1 : transport_->count(); }

  // Sends `mine` to all, and returns the messages of all in the order of their ranks, when all have
  // come: a barrier, too. A message has at most `most_bytes`, which is the same at all machines, as
  // is the name of the stage. Errors: those of Exchange.
  absl::StatusOr<std::vector<SecretVector<uint8_t>>> Gather(absl::string_view stage, BytesView mine,
                                                            uint64_t most_bytes);

  // Sends outgoing[i] to machine i, and gives `sink` what machine i sends, which is at most
  // most_from[i] bytes, in order; the pieces of different machines take turns. Returns when all has
  // been sent and all has come. The entries for this machine itself are not used: what stays here
  // need not pass. Holds two chunks for each machine. Errors, after all of which the other machines
  // fail, too:
  //   RESOURCE_EXHAUSTED  a source is longer than the bound; nothing has then been sent
  //   DATA_LOSS           a chunk that does not open, or has a wrong length
  //   UNAVAILABLE         a machine has died or given up
  //   DEADLINE_EXCEEDED   no progress
  // and those of the sources and of the sink.
  absl::Status Exchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                        std::span<const uint64_t> most_from, const Sink& sink);

  // To be called when this machine gives up for a reason of its own, so that the others do not wait
  // for it. Idempotent.
  void GiveUp();

 private:
  class Sending;
  class Receiving;

  absl::Status TryExchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                           std::span<const uint64_t> most_from, const Sink& sink);
  Seed TransferKey(absl::string_view stage, uint32_t from, uint32_t to) const;

  Transport* transport_ = nullptr;
  Seed round_key_;
  const Clock* clock_ = nullptr;
  Options options_;
  uint64_t exchanges_ = 0;  // of this round that have begun
  bool ended_ = false;
};

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_MACHINES_H_
