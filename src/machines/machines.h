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
// in it. When its chunks pass does depend on it: content takes longer to make and to take than
// padding, which an observer of the links can time (docs/machines.md).
//
// All machines make the same calls in the same order. Each call is an exchange with a number.
// Before the first one, every machine tells all others 32 random bytes, from which all keys are
// made, and the name of its secret.
//
// Beside the exchanges, each machine gives each other one a sealed sign of life every few seconds
// from the first to the last moment of this object, whether it computes or waits: so one that
// computes is told from one that is dead or cut off.
#ifndef SHOAL_SRC_MACHINES_MACHINES_H_
#define SHOAL_SRC_MACHINES_MACHINES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/machines/chunk_seal.h"
#include "src/machines/transport.h"
#include "src/parallel/mutex.h"

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
// together: so what was said in a round that is tried again after a crash means nothing to its
// machines.
Seed RoundKey(BytesView party_secret, const Digest& round_id, const Digest& job);

uint64_t SecretName(BytesView party_secret);

// One machine's view of all. Thread-compatible, but for GiveUp and GiveSignOfLife. After an error
// no call of this object succeeds: the round can only end.
class Machines {
 public:
  struct Options {
    // A call gives up when it has waited so long for one transfer to or from one machine without a
    // chunk of it passing, whatever passes elsewhere, and without a sign of life that says that the
    // other machine computes. It counts the time in which this machine waits, not that in which it
    // works for its own sources and sinks. Also, a machine gives up when no sign of life at all has
    // come from another one for so long. At least 3 * kSignPeriodS.
    uint64_t progress_limit_s = 30;
    // Names the party's secret, from which the round key is made, and tells nothing else of it
    // (SecretName): so machines that have different secrets know that this is why they do not
    // understand each other.
    uint64_t secret_name = 0;
    // In tests with a clock of their own, nothing calls GiveSignOfLife but the test.
    bool signs_by_hand = false;
  };
  // Seconds between two signs of life.
  static constexpr uint64_t kSignPeriodS = 5;
  // Lists that are long enough have 64 buckets or more (src/shuffle/permutation.h): more machines
  // than this would leave some without any.
  static constexpr uint32_t kMaxCount = 64;
  // What one machine sends to another in an exchange.
  struct Outgoing {
    ByteSource* source;   // null: nothing
    uint64_t most_bytes;  // to which the transfer is padded; the receiver must know it
  };
  // Takes a piece of what machine `from` sends, at least one byte. The bytes are valid during the
  // call.
  using Sink = std::function<absl::Status(uint32_t from, BytesView piece)>;

  // A party of one machine: every call returns at once, with the errors that do not come from other
  // machines. Thread-safe.
  Machines() = default;
  // The same for all rounds of a process; so it remembers no error.
  static Machines& Alone();
  // One of several, of kMaxCount at most (checked). Transport, clock and `random` must outlive the
  // object; a thread of this object uses all three, so that a `random` that others use meanwhile
  // has to be thread-safe. A machine makes one such object for a round key: the signs of life of
  // two would pass for each other's. Chunks are safe even then: nothing is sealed twice under one
  // key and nonce, as keys depend on what `random` gives.
  Machines(Transport* transport, Seed round_key, const Clock* clock, RandomSource* random,
           Options options);
  // Gives up unless the work was finished: a machine that leaves a round for any reason ends it.
  ~Machines();
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
  // been sent and all has come. Where a bound is 0 nothing passes, and so nobody waits: this is no
  // barrier, as a Gather is. Of the entries for this machine itself only the bound is looked at:
  // what stays here need not pass. Holds two chunks for each machine. Errors:
  //   INTERNAL            a source is longer than the bound, which is found before this machine
  //                       sends anything of this exchange; or it gives less or more than its size
  //   DATA_LOSS           a chunk that does not open, or has a wrong length
  //   UNAVAILABLE         a machine has died or given up
  //   UNAUTHENTICATED     in the first call: a machine has another secret
  //   FAILED_PRECONDITION in the first call: a machine runs version 0.2 of Shoal
  //   DEADLINE_EXCEEDED   no progress
  // and those of the sources and of the sink. After an error this machine gives up. The same call
  // may then have succeeded at others, or still do so where all has come already. Their next calls
  // fail as soon as the transport has told them, and at the latest when one needs something of this
  // machine. Only what comes after a later Gather is done with the knowledge that everybody has
  // come so far.
  absl::Status Exchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                        std::span<const uint64_t> most_from, const Sink& sink);

  // From the next call on, a machine that says that it computes is waited for so many seconds of a
  // call, and then as one that does not say so.
  void LimitWork(uint64_t seconds) { work_limit_ms_ = seconds * 1000; }

  // To be called when this machine gives up for a reason of its own, so that the others do not wait
  // for it; a call that is under way ends soon. Idempotent. Thread-safe.
  void GiveUp();
  // Says that this machine has done its work, after its last call. No effect after GiveUp.
  void Finish();

  // Tells the others that this machine lives, and looks who of them does. A thread of this object
  // calls it every kSignPeriodS. Thread-safe.
  void GiveSignOfLife();

 private:
  enum class Moved { kNothing, kChunk, kLastChunk };
  class Sending;
  class Receiving;
  struct Transfer;
  // What one link keeps between transfers: another object costs more than another key.
  struct Seals {
    ChunkSeal out, in;
  };
  // What this machine knows of another one.
  struct Peer {
    uint64_t sent = 0, received = 0;  // chunks
    // The last sign of life that came.
    uint64_t sign = 0, calls = 0, sent_here = 0;
    bool worked = false, finished = false;
    // For GiveSignOfLife: the sign that was the last one when it was called last, and how often in
    // a row it has found no newer one.
    uint64_t seen = 0, missed = 0;
  };

  explicit Machines(bool remembers) : remembers_(remembers) {}

  // `with_all`: also with those to or from whom nothing may pass.
  absl::Status TryExchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                           std::span<const uint64_t> most_from, const Sink& sink, bool with_all);
  // Tells the others this machine's random bytes, learns theirs, and sets session_key_.
  absl::Status Greet();
  // Steps all transfers until all are done.
  absl::Status Complete(std::span<Transfer> transfers);
  // Starts the limit of progress anew for transfers that wait for a machine that computes.
  void ExcuseThoseAtWork(std::span<Transfer> transfers, uint64_t waited_ms);
  Seed TransferKey(absl::string_view stage, uint32_t from, uint32_t to, uint64_t most_bytes) const;
  Seed SignKey(uint32_t from, uint32_t to) const;
  void SendSignsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeSignsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveSignsUntilStopped();
  absl::Status Ended();

  Transport* transport_ = nullptr;
  Seed round_key_, session_key_;
  uint64_t work_limit_ms_ = ~uint64_t{0};
  const Clock* clock_ = nullptr;
  Options options_;
  bool remembers_ = true;
  std::atomic<bool> ended_ = false;
  // Of this round that have begun.
  std::atomic<uint64_t> exchanges_ = 0;
  // How often a call has tried to move what it waits for.
  std::atomic<uint64_t> passes_ = 0;
  std::vector<Seals> seals_;  // by the other machine's rank

  Mutex mutex_;
  RandomSource* random_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mutex_);
  uint64_t signs_ ABSL_GUARDED_BY(mutex_) = 0;          // that this machine has given
  uint64_t signed_passes_ ABSL_GUARDED_BY(mutex_) = 0;  // passes_ at the last one
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ended_ ABSL_GUARDED_BY(mutex_);  // OK if it is not known here
  CondVar stop_;
  std::thread signs_thread_;
};

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_MACHINES_H_
