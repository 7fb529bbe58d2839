// What a client keeps between runs: the epochs it has seen, the rounds it holds slots in, how often
// it has tried the lookups that were not answered, and its privacy ledger.
//
// A slot carries one row for ever. With an old state that lacks slot -> row, the slot's secrets
// could be used for a second row, and the two tallies would tell the frontend about both rows. So
// the state is durable before anything derived from it is sent, and a state that was restored from
// an old copy, or that may be one, loses its rounds:
//   PATH        the state, with PATH.guard and PATH.lock beside it and an anchor in memory
//               (guarded_file.h)
//   PATH.array-GENERATION-N
//               the rows of a round, if they are many: 0600; written once, and durable before the
//               state names them with their digest, so that state and guard cover them; when no
//               state names them any more, they are overwritten with zeros and removed
//   PATH.answers-COUNTER       a round's answers while they come in (answer_spool.h), still masked:
//               worth nothing without the round's seed, and removed when that is wiped
// A killed process may leave files behind that no state names; the next process removes them.
//
// The ledger, the attempts, the rounds that were entered and the epochs that were seen do not go
// backwards with an old copy: the anchor has those of the last save. If there is no anchor
// either, they are the copy's, and the ledger says for ever that it may lack something
// (Ledger::doubts).
//
// A state that version 0.2 wrote is read, and written anew at once: with its ledger, its attempts,
// its enrolments and what it has seen, and without its rounds, which are over and charged. Version
// 0.2 takes a state of this version for damaged, and leaves it as it is.
#ifndef SHOAL_SRC_CLIENT_STATE_H_
#define SHOAL_SRC_CLIENT_STATE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/client/device.h"
#include "src/client/guarded_file.h"
#include "src/client/ledger.h"
#include "src/client/rollback_anchor.h"
#include "src/roster/roster.h"
#include "src/wire/round.pb.h"

namespace shoal::client {

// A round that this client takes part in.
struct HeldRound {
  wire::SignedHeader header;
  Digest id = {};
  Seed master;
  // How the onions are cut, in their order. Stored with the seed before anything is sent. More may
  // be added, but none is ever cut in another way.
  std::vector<OnionSubmission> submissions;
  // rows[i] travels in the slot of onion i. Empty until the queries are charged, and never changed
  // afterwards.
  std::vector<uint32_t> rows;
  // A digest, keyed with the seed, of the rows that the lookup is for; the others are padding. By
  // it the same lookup finds its round again.
  Digest wanted = {};
  // The machine of the frontend that has this client's slots: everything of the round goes there.
  // Drawn at random, and stored before anything is sent. None if the frontend has one machine.
  std::optional<uint32_t> machine = {};
  // Whether the slots were taken for a lookup, which wants no refreshes: if the round has a term,
  // that lookup has waited for one without (TermSuits), and the next one need not.
  bool for_lookup = false;
  // Whether the round is over: the seed is wiped. The entry is kept until the round has expired by
  // the time that all parties have signed, so that the client does not enter the round again.
  bool over = false;

  uint64_t counter() const { return header.header().counter(); }
  // The number of onions, and how many of them, from the first on, have slots.
  uint32_t onions() const;
  uint32_t slots() const;
  // Whether onions were cut for the round, and nothing was asked in it. It does not matter whether
  // they have slots: a frontend may take them, see the total of the noise, and then say that it has
  // refused them.
  bool IsIdle() const { return !over && !submissions.empty() && rows.empty(); }
  std::vector<OnionRange> Onions(size_t first, size_t count) const {
    return Ranges(master, submissions, first, count);
  }
  // Wipes the secrets. Callers use State::End, which charges the ledger too.
  void End();
};

// A lookup that was tried and not answered. Its attempts are capped over all runs of the program.
struct TriedLookup {
  // A digest of its keys under State::lookups_key.
  Digest id = {};
  // Rounds that were charged for what is asked now, and that were aborted or are not answered yet.
  uint32_t submissions = 0;
  // Rounds that were lost before anything was sent in them.
  uint32_t lost = 0;
  // The time of the last of them, signed or of the device's clock, whichever is later.
  uint64_t latest_s = 0;
};

// How a lookup that takes several rounds is spread over them.
struct SpreadLookup {
  // A digest of what is spread under `seed`.
  Digest id = {};
  // Of the padding and of the secret order in which rows and padding go to the rounds.
  Seed seed;
  uint64_t latest_s = 0;
};

struct State {
  std::string deployment;
  std::optional<roster::SeenEpoch> roster;
  std::optional<roster::SeenEpoch> table;
  std::optional<roster::FollowedKeys> followed_keys;
  std::vector<HeldRound> rounds;  // at most kMaxRounds
  // At most kMaxLookups. Who reads the state can try keys out on them, as on the rows of `rounds`:
  // so an entry goes when its lookup is answered, or after kLookupS. The key is random, and wiped
  // with the last entry.
  std::vector<TriedLookup> lookups;
  Digest lookups_key = {};
  // At most kMaxSpreads. An entry goes when its lookup is answered, or after kLookupS.
  std::vector<SpreadLookup> spreads;
  Ledger ledger;
  // The signed time: the latest time at which a round was announced whose header this client has
  // verified. All parties have signed it, the honest one too, whose clock it was not ahead of by
  // more than the roster's tolerance. So it never goes back, and does not jump where this device's
  // clock does. What caps a device's attempts, and in what order a list goes to rounds, is
  // forgotten by this time alone; rounds' secrets go by the device's clock as well, whichever is
  // first.
  uint64_t signed_s = 0;
  // Of every submission to a round with a term, whatever became of it: until when a term that began
  // then may last, by its header or the roster's limit, whichever is later. At most kMaxEnrolments;
  // an entry goes when that time is over. How many there are is all that bounds a device's
  // enrolments, whatever its keys are and whatever aborts.
  std::vector<uint64_t> enrolments;

  // Far more rounds than a client meets before they expire.
  static constexpr size_t kMaxRounds = 4096;
  static constexpr size_t kMaxLookups = 256;
  static constexpr size_t kMaxEnrolments = 64;
  static constexpr size_t kMaxSpreads = 64;
  // How long an unanswered lookup is remembered after its last attempt.
  static constexpr uint64_t kLookupS = 24 * 3600;

  HeldRound* FindRound(const Digest& id);
  // Wipes a round's secrets, and charges the round to the ledger if it is idle.
  void End(HeldRound& round);
  // The entry of the lookup with this digest of its keys; null if there is none.
  TriedLookup* FindLookup(const Digest& lookup);
  // The same; made if there is none, in place of the oldest if there are too many.
  TriedLookup& AddLookup(const Digest& lookup, uint64_t now_s, RandomSource& random);
  // Forgets the lookup. True if there was an entry.
  bool DropLookup(const Digest& lookup);
  // The entry of a lookup that is spread over rounds, with this digest of its rows; null if there
  // is none.
  SpreadLookup* FindSpread(const Digest& lookup);
  // The same; made if there is none, in place of the oldest if there are too many.
  SpreadLookup& AddSpread(const Digest& lookup, uint64_t now_s, RandomSource& random);
  void DropSpread(const Digest& lookup);
  void SawSignedTime(uint64_t announced_s) { signed_s = std::max(signed_s, announced_s); }
  // Ends rounds that expired before `now_s` by the device's clock. Drops, by the signed time,
  // rounds and enrolments that have expired, and lookups that were not tried for kLookupS, with how
  // they were spread. True if there were any.
  bool DropExpired(uint64_t now_s);
};

// Where a state lives. Thread-compatible.
class StateStore {
 public:
  virtual ~StateStore() = default;
  virtual State& state() = 0;
  // Makes the state durable. Nothing may be sent after an error.
  virtual absl::Status Save() = 0;
  // The file that keeps the answers of a round between runs; empty if there is none.
  virtual std::string AnswersPath(uint64_t round_counter) const = 0;
};

// A state in memory, for devices that end with their process: crowds and tests.
class MemoryStateStore final : public StateStore {
 public:
  State& state() override { return state_; }
  absl::Status Save() override { return absl::OkStatus(); }
  std::string AnswersPath(uint64_t) const override { return ""; }

 private:
  State state_;
};

class FileStateStore final : public StateStore {
 public:
  // Opens the state, or begins one. FAILED_PRECONDITION: another process uses the state, or Shoal
  // 0.1 wrote it. DATA_LOSS: the file is damaged. PERMISSION_DENIED: others may read the file.
  static absl::StatusOr<std::unique_ptr<FileStateStore>> Open(const std::string& path,
                                                              const AnchorDirectory& place,
                                                              RandomSource& random);

  State& state() override { return state_; }
  // Writes the arrays that are new since the last save, and the rest, a few kB.
  absl::Status Save() override;
  std::string AnswersPath(uint64_t round_counter) const override;

  // The number of rounds given up because the state or one of its arrays is, or may be, an old
  // copy.
  size_t discarded_rounds() const { return discarded_rounds_; }
  // The number of rounds that were not over in a state that version 0.2 wrote, and are now: no
  // party knows them any more. What they cost is in the ledger.
  size_t rounds_of_02() const { return rounds_of_02_; }
  // Why the state is not known to be the latest (Standing::why); empty if it is.
  const std::string& doubt() const { return doubt_; }

 private:
  friend class StateCodec;
  // The rows of a round in a file of their own.
  struct StoredArray {
    std::string name;  // PATH.name
    uint32_t count = 0;
    Digest digest = {};
  };
  // Keyed by round id. Lacks rounds with few rows.
  using ArrayIndex = std::map<Digest, StoredArray>;

  FileStateStore(std::string path, std::unique_ptr<GuardedFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  // Writes the files of arrays that are new in the state, as of `generation`.
  absl::StatusOr<ArrayIndex> WriteArrays(uint64_t generation) const;
  // Reads a round's rows into `round`; false if the file does not have the digest that the state
  // names.
  bool Load(const StoredArray& stored, HeldRound& round) const;
  // Removes files beside the state that it does not name.
  void RemoveLeftovers() const;

  const std::string path_;
  const std::unique_ptr<GuardedFile> file_;
  State state_;
  ArrayIndex arrays_;  // the files that the state on disk names
  size_t discarded_rounds_ = 0;
  size_t rounds_of_02_ = 0;
  std::string doubt_;
};

// Reads a state without locking it, to show it to people: if it is an old copy, what Open would
// make of it. Leaves out long arrays. NOT_FOUND if there is none; otherwise errors as Open.
absl::StatusOr<State> ReadState(const std::string& path, const AnchorDirectory& place);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_STATE_H_
