#include "src/client/state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/file.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/state.pb.h"
#include "src/round/header.h"

namespace shoal::client {
namespace {

constexpr uint64_t kMaxStateBytes = 1 << 28;
constexpr size_t kMaxRounds = 1024;
// The guard's content: id, generation, and both again as a digest, so that a torn write shows.
constexpr size_t kGuardBytes = 16 + 8 + sizeof(Digest);

Digest StateDigest(BytesView record) {
  return Transcript("shoal client state v1").Blob(record).Finish();
}

Digest GuardDigest(BytesView id, uint64_t generation) {
  return Transcript("shoal client guard v1").Blob(id).U64(generation).Finish();
}

Bytes GuardContent(BytesView id, uint64_t generation) {
  Bytes content = ToBytes(id);
  AppendLe<uint64_t>(content, generation);
  Append(content, GuardDigest(id, generation));
  return content;
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      "the client's state is damaged: ", what,
      "; move it away to begin anew (what it has seen and its ledger are lost then)"));
}

void WipeString(std::string& text) { sodium_memzero(text.data(), text.size()); }

// A record holds seeds: it is wiped when it dies.
struct WipingRecord {
  StateRecord record;
  ~WipingRecord() {
    for (RoundRecord& round : *record.mutable_rounds()) WipeString(*round.mutable_master_seed());
  }
};

void WriteSeen(const std::optional<roster::SeenEpoch>& seen, SeenEpochRecord* record) {
  if (!seen) return;
  record->set_epoch(seen->epoch);
  record->set_digest(ToString(seen->digest));
}

absl::StatusOr<std::optional<roster::SeenEpoch>> ReadSeen(const SeenEpochRecord& record) {
  if (record.epoch() == 0 && record.digest().empty()) return std::nullopt;
  if (record.digest().size() != sizeof(Digest)) return Damaged("a digest's length");
  roster::SeenEpoch seen;
  seen.epoch = record.epoch();
  std::copy(record.digest().begin(), record.digest().end(), seen.digest.begin());
  return std::optional<roster::SeenEpoch>(seen);
}

}  // namespace

// State and guard to and from bytes.
class StateCodec {
 public:
  struct GuardFields {
    std::array<uint8_t, 16> id = {};
    uint64_t inode = 0;
    uint64_t birth_ns = 0;
    uint64_t generation = 0;
  };
  struct Decoded {
    State state;
    GuardFields guard;
  };

  static SecretVector<uint8_t> Encode(const State& state, const GuardFields& guard) {
    WipingRecord wiping;
    StateRecord& record = wiping.record;
    record.set_deployment(state.deployment);
    record.set_guard_id(ToString(guard.id));
    record.set_guard_inode(guard.inode);
    record.set_guard_birth_ns(guard.birth_ns);
    record.set_generation(guard.generation);
    WriteSeen(state.roster, record.mutable_roster());
    WriteSeen(state.table, record.mutable_table());
    for (const HeldRound& round : state.rounds) {
      RoundRecord& out = *record.add_rounds();
      *out.mutable_header() = round.header;
      if (round.over) continue;
      out.set_master_seed(round.master.data(), Seed::size());
      out.mutable_slots()->Add(round.slots.begin(), round.slots.end());
      out.mutable_rows()->Add(round.rows.begin(), round.rows.end());
    }
    for (const Charge& charge : state.ledger.latest_) {
      ChargeRecord& out = *record.add_charges();
      out.set_sent_s(charge.sent_s);
      out.set_round_counter(charge.round_counter);
      out.set_queries(charge.queries);
      out.set_epsilon(charge.epsilon);
      out.set_delta(charge.delta);
      out.set_phi(charge.phi);
    }
    LedgerTotal& total = *record.mutable_total();
    total.set_submissions(state.ledger.submissions_);
    total.set_queries(state.ledger.queries_);
    total.set_epsilon(state.ledger.loss_.epsilon);
    total.set_delta(state.ledger.loss_.delta);

    const size_t bytes = record.ByteSizeLong();
    SecretVector<uint8_t> encoded(sizeof(Digest) + bytes);
    record.SerializeWithCachedSizesToArray(encoded.data() + sizeof(Digest));
    const Digest digest = StateDigest(BytesView(encoded).subspan(sizeof(Digest)));
    std::copy(digest.begin(), digest.end(), encoded.begin());
    return encoded;
  }

  static absl::StatusOr<Decoded> Decode(BytesView encoded) {
    if (encoded.size() < sizeof(Digest)) return Damaged("it is too short");
    const BytesView body = encoded.subspan(sizeof(Digest));
    const Digest digest = StateDigest(body);
    if (!std::equal(digest.begin(), digest.end(), encoded.begin())) {
      return Damaged("its checksum does not fit");
    }
    WipingRecord wiping;
    StateRecord& record = wiping.record;
    if (body.size() > kMaxStateBytes ||
        !record.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      return Damaged("it does not parse");
    }
    Decoded decoded;
    if (record.guard_id().size() != decoded.guard.id.size()) return Damaged("its guard's id");
    std::copy(record.guard_id().begin(), record.guard_id().end(), decoded.guard.id.begin());
    decoded.guard.inode = record.guard_inode();
    decoded.guard.birth_ns = record.guard_birth_ns();
    decoded.guard.generation = record.generation();

    State& state = decoded.state;
    state.deployment = record.deployment();
    SHOAL_ASSIGN_OR_RETURN(state.roster, ReadSeen(record.roster()));
    SHOAL_ASSIGN_OR_RETURN(state.table, ReadSeen(record.table()));
    if (record.rounds_size() > static_cast<int>(kMaxRounds)) return Damaged("too many rounds");
    for (RoundRecord& in : *record.mutable_rounds()) {
      HeldRound round;
      round.id = round::RoundId(in.header().header());
      round.header = std::move(*in.mutable_header());
      round.over = in.master_seed().empty();
      if (!round.over) {
        if (in.master_seed().size() != Seed::size()) return Damaged("a seed's length");
        round.master = Seed(AsBytes(in.master_seed()));
        round.slots.assign(in.slots().begin(), in.slots().end());
        round.rows.assign(in.rows().begin(), in.rows().end());
        if (round.rows.size() > round.slots.size()) return Damaged("more rows than slots");
      }
      if (state.FindRound(round.id) != nullptr) return Damaged("a round comes twice");
      state.rounds.push_back(std::move(round));
    }
    for (const ChargeRecord& in : record.charges()) {
      state.ledger.latest_.push_back({.sent_s = in.sent_s(),
                                      .round_counter = in.round_counter(),
                                      .queries = in.queries(),
                                      .epsilon = in.epsilon(),
                                      .delta = in.delta(),
                                      .phi = in.phi()});
    }
    state.ledger.submissions_ = record.total().submissions();
    state.ledger.queries_ = record.total().queries();
    state.ledger.loss_ = {record.total().epsilon(), record.total().delta()};
    return decoded;
  }
};

Loss LossOf(const Charge& charge) {
  if (charge.queries == 0) return {};
  // Nothing is claimed for phi = 0 or for numbers that make no sense.
  if (charge.phi == 0 || !(charge.epsilon > 0) || !(charge.delta >= 0)) {
    return {std::numeric_limits<double>::infinity(), 1};
  }
  const double groups = std::ceil(static_cast<double>(charge.queries) / charge.phi);
  const double growth = std::expm1(groups * charge.epsilon) / std::expm1(charge.epsilon);
  return {groups * charge.epsilon, charge.delta > 0 ? std::min(1.0, charge.delta * growth) : 0.0};
}

void Ledger::Add(const Charge& charge) {
  latest_.push_back(charge);
  if (latest_.size() > kDetailed) latest_.pop_front();
  ++submissions_;
  queries_ += charge.queries;
  const Loss loss = LossOf(charge);
  loss_.epsilon += loss.epsilon;
  loss_.delta = std::min(1.0, loss_.delta + loss.delta);
}

void HeldRound::End() {
  over = true;
  master.Wipe();
  // Which rows were asked is as secret as the seed.
  sodium_memzero(rows.data(), rows.size() * sizeof(uint32_t));
  rows.clear();
  slots.clear();
}

HeldRound* State::FindRound(const Digest& id) {
  for (HeldRound& round : rounds) {
    if (round.id == id) return &round;
  }
  return nullptr;
}

bool State::DropExpired(uint64_t now_s) {
  bool dropped = false;
  for (auto it = rounds.begin(); it != rounds.end();) {
    if (it->header.header().expires_s() < now_s) {
      it->End();
      it = rounds.erase(it);
      dropped = true;
    } else {
      ++it;
    }
  }
  return dropped;
}

absl::Status FileStateStore::Lock() {
  const std::string lock_path = absl::StrCat(path_, ".lock");
  lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return ErrnoStatus(errno, lock_path);
  while (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": another process uses this state"));
    }
    return ErrnoStatus(errno, lock_path);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<FileStateStore::Guard>> FileStateStore::ReadGuard() const {
  const std::string guard_path = absl::StrCat(path_, ".guard");
  auto content = ReadPrivateFile(guard_path, 4096);
  if (absl::IsNotFound(content.status())) return std::nullopt;
  if (!content.ok()) return content.status();
  struct statx info;
  if (::statx(AT_FDCWD, guard_path.c_str(), 0, STATX_INO | STATX_BTIME, &info) != 0) {
    return ErrnoStatus(errno, guard_path);
  }
  Guard guard;
  guard.inode = info.stx_ino;
  if (info.stx_mask & STATX_BTIME) {
    guard.birth_ns = static_cast<uint64_t>(info.stx_btime.tv_sec) * 1'000'000'000 +
                     info.stx_btime.tv_nsec;
  }
  if (content->size() != kGuardBytes) return std::nullopt;
  const BytesView bytes = AsBytes(*content);
  std::copy_n(bytes.begin(), guard.id.size(), guard.id.begin());
  guard.generation = LoadLe<uint64_t>(bytes.data() + guard.id.size());
  const Digest digest = GuardDigest(guard.id, guard.generation);
  if (!std::equal(digest.begin(), digest.end(), bytes.begin() + 24)) return std::nullopt;
  return std::optional<Guard>(guard);
}

absl::Status FileStateStore::WriteGuard() const {
  const std::string guard_path = absl::StrCat(path_, ".guard");
  const Bytes content = GuardContent(guard_.id, guard_.generation);
  // In place: the file's identity is what a copy does not have.
  const int fd = ::open(guard_path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, guard_path);
  auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  const ssize_t written = ::pwrite(fd, content.data(), content.size(), 0);
  if (written != static_cast<ssize_t>(content.size())) {
    return ErrnoStatus(written < 0 ? errno : EIO, guard_path);
  }
  if (::fdatasync(fd) != 0) return ErrnoStatus(errno, guard_path);
  return absl::OkStatus();
}

absl::Status FileStateStore::MakeGuard(RandomSource& random) {
  // A new file each time: WriteFileAtomically makes one and renames it.
  guard_ = {};
  random.Fill(guard_.id);
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(path_, ".guard"),
                                            GuardContent(guard_.id, guard_.generation),
                                            FileMode::kPrivate));
  SHOAL_ASSIGN_OR_RETURN(const std::optional<Guard> made, ReadGuard());
  if (!made) return absl::UnavailableError(absl::StrCat(path_, ".guard: cannot be read back"));
  guard_ = *made;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileStateStore>> FileStateStore::Open(const std::string& path,
                                                                     RandomSource& random) {
  std::unique_ptr<FileStateStore> store(new FileStateStore(path));
  SHOAL_RETURN_IF_ERROR(store->Lock());
  auto content = ReadPrivateFile(path, kMaxStateBytes);
  if (absl::IsNotFound(content.status())) {
    SHOAL_RETURN_IF_ERROR(store->MakeGuard(random));
    SHOAL_RETURN_IF_ERROR(store->Save());
    return store;
  }
  if (!content.ok()) return content.status();
  auto decoded = StateCodec::Decode(AsBytes(*content));
  WipeString(*content);
  if (!decoded.ok()) return Annotate(decoded.status(), path);
  store->state_ = std::move(decoded->state);

  SHOAL_ASSIGN_OR_RETURN(const std::optional<Guard> guard, store->ReadGuard());
  const StateCodec::GuardFields& expected = decoded->guard;
  // The state is saved before its guard: after a crash between the two it is one ahead.
  if (guard && guard->id == expected.id && guard->inode == expected.inode &&
      guard->birth_ns == expected.birth_ns &&
      (guard->generation == expected.generation ||
       guard->generation + 1 == expected.generation)) {
    store->guard_ = *guard;
    store->guard_.generation = expected.generation;
    return store;
  }
  for (HeldRound& round : store->state_.rounds) {
    if (!round.over) ++store->discarded_rounds_;
    round.End();
  }
  SHOAL_RETURN_IF_ERROR(store->MakeGuard(random));
  SHOAL_RETURN_IF_ERROR(store->Save());
  return store;
}

FileStateStore::~FileStateStore() {
  if (lock_ >= 0) ::close(lock_);
}

absl::Status FileStateStore::Save() {
  Guard next = guard_;
  ++next.generation;
  const SecretVector<uint8_t> encoded =
      StateCodec::Encode(state_, {next.id, next.inode, next.birth_ns, next.generation});
  // The old content stays reachable through this descriptor, to be overwritten.
  const int old = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  auto close_old = absl::MakeCleanup([old] {
    if (old >= 0) ::close(old);
  });
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(path_, encoded, FileMode::kPrivate));
  guard_ = next;
  if (old >= 0) {
    struct stat info;
    if (::fstat(old, &info) == 0) {
      // Best effort: the new state is already in place.
      const Bytes zeros(static_cast<size_t>(info.st_size), 0);
      if (::pwrite(old, zeros.data(), zeros.size(), 0) > 0) ::fdatasync(old);
    }
  }
  return WriteGuard();
}

absl::StatusOr<State> ReadState(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(std::string content, ReadPrivateFile(path, kMaxStateBytes));
  auto decoded = StateCodec::Decode(AsBytes(content));
  WipeString(content);
  if (!decoded.ok()) return Annotate(decoded.status(), path);
  return std::move(decoded->state);
}

}  // namespace shoal::client
