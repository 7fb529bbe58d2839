#include "src/client/state.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sodium.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/state.pb.h"
#include "src/roster/roster.h"
#include "src/round/header.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

constexpr uint64_t kMaxStateBytes = 1 << 28;
// Longer arrays have their own files, so that the state, which is saved often, stays small.
constexpr size_t kInlineItems = 4096;
constexpr char kArraySuffix[] = ".array-";
constexpr char kAnswersSuffix[] = ".answers-";
constexpr char kDomain[] = "shoal client state v5";
constexpr char kDomainOf02[] = "shoal client state v4";
constexpr const char* kDomainsOf01[] = {"shoal client state v1", "shoal client state v2",
                                        "shoal client state v3"};

Digest StateDigest(absl::string_view domain, BytesView record) {
  return Transcript(domain).Blob(record).Finish();
}

BytesView ArrayBytes(const std::vector<uint32_t>& items) {
  return {reinterpret_cast<const uint8_t*>(items.data()), items.size() * sizeof(uint32_t)};
}

Digest ArrayDigest(const Digest& round_id, BytesView bytes) {
  return Transcript("shoal client array v1").Blob(round_id).Blob(bytes).Finish();
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the client's state is damaged: ", what,
                   "; move it away to begin anew (what it has seen and its ledger are lost then)"));
}

absl::Status Of01() {
  return absl::FailedPreconditionError(
      "Shoal 0.1 wrote this state, and this version does not read it; move it away to begin anew, "
      "and keep it, as its ledger holds what this device asked until now, which the new state will "
      "not count");
}

void WipeString(std::string& text) { sodium_memzero(text.data(), text.size()); }

// A record with seeds, wiped when it dies.
struct WipingRecord {
  StateRecord record;
  ~WipingRecord() {
    for (RoundRecord& round : *record.mutable_rounds()) WipeString(*round.mutable_master_seed());
    for (SpreadRecord& spread : *record.mutable_spreads()) WipeString(*spread.mutable_seed());
  }
};

void WriteSeen(const std::optional<roster::SeenEpoch>& seen, SeenEpochRecord* record) {
  if (!seen) return;
  record->set_epoch(seen->epoch);
  record->set_digest(ToString(seen->digest));
}

absl::StatusOr<Digest> ReadDigest(const std::string& bytes) {
  Digest digest;
  if (bytes.size() != digest.size()) return Damaged("a digest's length");
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

absl::StatusOr<std::optional<roster::SeenEpoch>> ReadSeen(const SeenEpochRecord& record) {
  if (record.epoch() == 0 && record.digest().empty()) return std::nullopt;
  roster::SeenEpoch seen;
  seen.epoch = record.epoch();
  SHOAL_ASSIGN_OR_RETURN(seen.digest, ReadDigest(record.digest()));
  return std::optional<roster::SeenEpoch>(seen);
}

void WriteFollowed(const std::optional<roster::FollowedKeys>& followed, StateRecord& record) {
  if (!followed) return;
  FollowedKeysRecord& out = *record.mutable_followed_keys();
  out.set_pins(ToString(followed->pins));
  for (const signature::PublicKey& key : followed->keys) out.add_keys(ToString(key.bytes()));
}

absl::StatusOr<std::optional<roster::FollowedKeys>> ReadFollowed(const StateRecord& record) {
  if (!record.has_followed_keys()) return std::nullopt;
  roster::FollowedKeys followed;
  SHOAL_ASSIGN_OR_RETURN(followed.pins, ReadDigest(record.followed_keys().pins()));
  const auto keys = static_cast<uint32_t>(record.followed_keys().keys_size());
  if (keys < roster::kMinParties || keys > roster::kMaxParties) {
    return Damaged("the number of followed keys");
  }
  for (const std::string& bytes : record.followed_keys().keys()) {
    const auto key = signature::PublicKey::FromBytes(AsBytes(bytes));
    if (!key.ok()) return Damaged(key.status().message());
    followed.keys.push_back(*key);
  }
  return std::optional<roster::FollowedKeys>(std::move(followed));
}

}  // namespace

// Converts state and guard to and from bytes.
class StateCodec {
 public:
  using ArrayIndex = FileStateStore::ArrayIndex;
  using StoredArray = FileStateStore::StoredArray;
  struct Decoded {
    State state;
    Guard guard;
    // The files of rows that are not in `state` yet.
    ArrayIndex arrays;
    // Whether version 0.2 wrote it, and how many of its rounds were not over.
    bool of_02 = false;
    size_t ended = 0;
  };

  static SecretVector<uint8_t> Encode(const State& state, const ArrayIndex& arrays,
                                      const Guard& guard) {
    WipingRecord wiping;
    StateRecord& record = wiping.record;
    record.set_deployment(state.deployment);
    record.set_guard_id(ToString(guard.id));
    record.set_guard_inode(guard.file.inode);
    record.set_guard_birth_ns(guard.file.birth_ns);
    record.set_own_inode(guard.self.inode);
    record.set_own_birth_ns(guard.self.birth_ns);
    record.set_generation(guard.generation);
    WriteSeen(state.roster, record.mutable_roster());
    WriteSeen(state.table, record.mutable_table());
    WriteFollowed(state.followed_keys, record);
    for (const HeldRound& round : state.rounds) {
      RoundRecord& out = *record.add_rounds();
      *out.mutable_header() = round.header;
      if (round.over) continue;
      out.set_master_seed(round.master.data(), Seed::size());
      if (!round.rows.empty()) out.set_wanted(ToString(round.wanted));
      if (round.machine) out.set_machine(*round.machine);
      out.set_for_lookup(round.for_lookup);
      for (const OnionSubmission& submission : round.submissions) {
        WriteSubmission(submission, *out.add_submissions());
      }
      if (const auto stored = arrays.find(round.id); stored != arrays.end()) {
        WriteStored(stored->second, *out.mutable_rows_file());
      } else {
        out.mutable_rows()->Add(round.rows.begin(), round.rows.end());
      }
    }
    WriteLookups(state, record);
    for (const SpreadLookup& spread : state.spreads) {
      SpreadRecord& out = *record.add_spreads();
      out.set_id(ToString(spread.id));
      out.set_seed(spread.seed.data(), Seed::size());
      out.set_latest_s(spread.latest_s);
    }
    record.mutable_enrolments()->Add(state.enrolments.begin(), state.enrolments.end());
    WriteLedger(state.ledger, record);
    return WithDigest(record);
  }

  // What the anchor keeps of a state.
  static SecretVector<uint8_t> EncodeRemains(const State& state, const ArrayIndex& arrays) {
    StateRecord record;
    record.set_deployment(state.deployment);
    record.set_guard_id(ToString(AnchorId()));
    WriteSeen(state.roster, record.mutable_roster());
    WriteSeen(state.table, record.mutable_table());
    WriteFollowed(state.followed_keys, record);
    Ledger ledger = state.ledger;
    for (const HeldRound& round : state.rounds) {
      *record.add_rounds()->mutable_header() = round.header;
      // A round whose rows are in a file was charged with them.
      if (round.IsIdle() && !arrays.contains(round.id)) {
        ledger.AddIdleRound();
      }
    }
    WriteLookups(state, record);
    record.mutable_enrolments()->Add(state.enrolments.begin(), state.enrolments.end());
    WriteLedger(ledger, record);
    return WithDigest(record);
  }

  static void WriteLookups(const State& state, StateRecord& record) {
    for (const TriedLookup& tried : state.lookups) {
      TriedLookupRecord& out = *record.add_lookups();
      out.set_id(ToString(tried.id));
      out.set_submissions(tried.submissions);
      out.set_lost(tried.lost);
      out.set_latest_s(tried.latest_s);
    }
    record.set_signed_s(state.signed_s);
    if (!state.lookups.empty()) record.set_lookups_key(ToString(state.lookups_key));
  }

  static SecretVector<uint8_t> WithDigest(const StateRecord& record) {
    const size_t bytes = record.ByteSizeLong();
    SecretVector<uint8_t> encoded(sizeof(Digest) + bytes);
    record.SerializeWithCachedSizesToArray(encoded.data() + sizeof(Digest));
    const Digest digest = StateDigest(kDomain, BytesView(encoded).subspan(sizeof(Digest)));
    std::copy(digest.begin(), digest.end(), encoded.begin());
    return encoded;
  }

  static void WriteLedger(const Ledger& ledger, StateRecord& record) {
    for (const Charge& charge : ledger.latest_) {
      ChargeRecord& out = *record.add_charges();
      out.set_sent_s(charge.sent_s);
      out.set_round_counter(charge.round_counter);
      out.set_queries(charge.queries);
      out.set_epsilon(charge.epsilon);
      out.set_delta(charge.delta);
      out.set_phi(charge.phi);
    }
    LedgerTotal& total = *record.mutable_total();
    total.set_submissions(ledger.submissions_);
    total.set_queries(ledger.queries_);
    total.set_idle_rounds(ledger.idle_rounds_);
    total.set_doubts(ledger.doubts_);
    for (const ChargedNoise& charged : ledger.noise_) {
      ChargedNoiseRecord& out = *record.add_noise();
      *out.mutable_noise() = roster::NoiseToWire(charged.noise);
      out.set_submissions(charged.submissions);
      out.set_queries(charged.queries);
      if (charged.copies != 1) out.set_copies(charged.copies);
    }
  }
  static absl::Status ReadLedger(const StateRecord& record, Ledger& ledger) {
    for (const ChargeRecord& in : record.charges()) {
      ledger.latest_.push_back({.sent_s = in.sent_s(),
                                .round_counter = in.round_counter(),
                                .queries = in.queries(),
                                .epsilon = in.epsilon(),
                                .delta = in.delta(),
                                .phi = in.phi()});
    }
    const LedgerTotal& total = record.total();
    ledger.submissions_ = total.submissions();
    ledger.queries_ = total.queries();
    ledger.idle_rounds_ = total.idle_rounds();
    ledger.doubts_ = total.doubts();
    for (const ChargedNoiseRecord& in : record.noise()) {
      auto noise = roster::NoiseFromWire(in.noise());
      if (!noise.ok()) return Damaged(noise.status().message());
      const uint32_t copies = std::max(1u, in.copies());
      if (copies > noise::kMaxCopies || in.queries() % copies != 0) {
        return Damaged("what was asked of a bucket");
      }
      ledger.noise_.push_back({.noise = *noise,
                               .submissions = in.submissions(),
                               .queries = in.queries(),
                               .copies = copies});
    }
    return absl::OkStatus();
  }

  static void WriteSubmission(const OnionSubmission& submission, SubmissionRecord& out) {
    out.set_count(submission.count);
    if (!submission.first_slot) return;
    out.set_first_slot(*submission.first_slot);
    out.set_plaintext_digest(ToString(submission.plaintext));
  }
  static absl::StatusOr<OnionSubmission> ReadSubmission(const SubmissionRecord& in,
                                                        uint32_t first) {
    OnionSubmission submission{
        .first = first, .count = in.count(), .plaintext = {}, .first_slot = std::nullopt};
    constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
    if (in.count() == 0 || in.count() > kMost - first) return Damaged("a submission's size");
    if (!in.has_first_slot()) return submission;
    if (in.count() > kMost - in.first_slot()) return Damaged("a submission's slots");
    submission.first_slot = in.first_slot();
    SHOAL_ASSIGN_OR_RETURN(submission.plaintext, ReadDigest(in.plaintext_digest()));
    return submission;
  }

  static void WriteStored(const StoredArray& stored, ArrayFile& out) {
    out.set_name(stored.name);
    out.set_count(stored.count);
    out.set_digest(ToString(stored.digest));
  }
  static absl::StatusOr<StoredArray> ReadStored(const ArrayFile& in) {
    StoredArray stored{.name = in.name(), .count = in.count()};
    // Accepts only a name that this program makes, never a path.
    if (!absl::StartsWith(stored.name, kArraySuffix) || absl::StrContains(stored.name, '/')) {
      return Damaged("an array's name");
    }
    SHOAL_ASSIGN_OR_RETURN(stored.digest, ReadDigest(in.digest()));
    return stored;
  }

  // Moves the header out of `in`. An array of the round is put into `arrays`.
  static absl::StatusOr<HeldRound> ReadRound(RoundRecord& in, ArrayIndex& arrays) {
    HeldRound round;
    round.id = round::RoundId(in.header().header());
    round.header = std::move(*in.mutable_header());
    round.over = in.master_seed().empty();
    if (round.over) return round;
    if (in.master_seed().size() != Seed::size()) return Damaged("a seed's length");
    round.master = Seed(AsBytes(in.master_seed()));
    for (const SubmissionRecord& submission : in.submissions()) {
      SHOAL_ASSIGN_OR_RETURN(OnionSubmission read, ReadSubmission(submission, round.onions()));
      round.submissions.push_back(read);
    }
    round.rows.assign(in.rows().begin(), in.rows().end());
    size_t rows = round.rows.size();
    if (in.has_rows_file()) {
      SHOAL_ASSIGN_OR_RETURN(StoredArray stored, ReadStored(in.rows_file()));
      rows = stored.count;
      arrays[round.id] = std::move(stored);
    }
    if (rows > round.slots()) return Damaged("more rows than slots");
    if (!in.wanted().empty()) {
      SHOAL_ASSIGN_OR_RETURN(round.wanted, ReadDigest(in.wanted()));
    }
    if (in.has_machine()) {
      if (in.machine() >= roster::kMaxMachines) return Damaged("a machine of the frontend");
      round.machine = in.machine();
    }
    round.for_lookup = in.for_lookup();
    return round;
  }

  static absl::Status ReadRounds(StateRecord& record, Decoded& decoded) {
    if (record.rounds_size() > static_cast<int>(State::kMaxRounds)) {
      return Damaged("too many rounds");
    }
    for (RoundRecord& in : *record.mutable_rounds()) {
      SHOAL_ASSIGN_OR_RETURN(HeldRound round, ReadRound(in, decoded.arrays));
      if (decoded.state.FindRound(round.id) != nullptr) return Damaged("a round comes twice");
      decoded.state.rounds.push_back(std::move(round));
    }
    return absl::OkStatus();
  }

  static absl::Status ReadLookups(const StateRecord& record, State& state) {
    if (record.lookups_size() > static_cast<int>(State::kMaxLookups)) {
      return Damaged("too many lookups");
    }
    for (const TriedLookupRecord& in : record.lookups()) {
      TriedLookup& tried = state.lookups.emplace_back();
      SHOAL_ASSIGN_OR_RETURN(tried.id, ReadDigest(in.id()));
      tried.submissions = in.submissions();
      tried.lost = in.lost();
      tried.latest_s = in.latest_s();
    }
    if (!state.lookups.empty()) {
      SHOAL_ASSIGN_OR_RETURN(state.lookups_key, ReadDigest(record.lookups_key()));
    }
    if (record.spreads_size() > static_cast<int>(State::kMaxSpreads)) {
      return Damaged("too many lookups over rounds");
    }
    for (const SpreadRecord& in : record.spreads()) {
      SpreadLookup& spread = state.spreads.emplace_back();
      SHOAL_ASSIGN_OR_RETURN(spread.id, ReadDigest(in.id()));
      if (in.seed().size() != Seed::size()) return Damaged("a seed's length");
      spread.seed = Seed(AsBytes(in.seed()));
      spread.latest_s = in.latest_s();
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<Decoded> Decode(BytesView encoded) {
    if (encoded.size() < sizeof(Digest)) return Damaged("it is too short");
    const BytesView body = encoded.subspan(sizeof(Digest));
    const auto is_of = [&](absl::string_view domain) {
      const Digest digest = StateDigest(domain, body);
      return std::equal(digest.begin(), digest.end(), encoded.begin());
    };
    Decoded decoded;
    decoded.of_02 = is_of(kDomainOf02);
    if (!decoded.of_02 && !is_of(kDomain)) {
      if (std::ranges::any_of(kDomainsOf01, is_of)) return Of01();
      return Damaged("its checksum does not fit");
    }
    WipingRecord wiping;
    StateRecord& record = wiping.record;
    if (body.size() > kMaxStateBytes ||
        !record.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      return Damaged("it does not parse");
    }
    if (record.guard_id().size() != decoded.guard.id.size()) return Damaged("its guard's id");
    std::copy(record.guard_id().begin(), record.guard_id().end(), decoded.guard.id.begin());
    decoded.guard.file = {.inode = record.guard_inode(), .birth_ns = record.guard_birth_ns()};
    decoded.guard.self = {.inode = record.own_inode(), .birth_ns = record.own_birth_ns()};
    decoded.guard.generation = record.generation();

    State& state = decoded.state;
    state.deployment = record.deployment();
    state.signed_s = record.signed_s();
    SHOAL_ASSIGN_OR_RETURN(state.roster, ReadSeen(record.roster()));
    SHOAL_ASSIGN_OR_RETURN(state.table, ReadSeen(record.table()));
    SHOAL_ASSIGN_OR_RETURN(state.followed_keys, ReadFollowed(record));
    SHOAL_RETURN_IF_ERROR(ReadRounds(record, decoded));
    SHOAL_RETURN_IF_ERROR(ReadLookups(record, state));
    if (record.enrolments_size() > static_cast<int>(State::kMaxEnrolments)) {
      return Damaged("too many enrolments");
    }
    state.enrolments.assign(record.enrolments().begin(), record.enrolments().end());
    SHOAL_RETURN_IF_ERROR(ReadLedger(record, state.ledger));
    if (decoded.of_02) EndRounds(decoded);
    return decoded;
  }

  // No party knows a round of version 0.2 any more, and no header of one verifies. So what has to
  // be remembered of them is what they cost.
  static void EndRounds(Decoded& decoded) {
    for (HeldRound& round : decoded.state.rounds) {
      if (round.over) continue;
      ++decoded.ended;
      if (decoded.arrays.contains(round.id)) {
        round.End();  // it was charged with its rows
      } else {
        decoded.state.End(round);
      }
    }
    decoded.state.rounds.clear();
    decoded.arrays.clear();
  }

  // What is left of a state that is not known to be the latest: what remains of the latest one, or,
  // if that is not known, of itself, with a ledger in doubt.
  static absl::StatusOr<State> Remaining(const SecretVector<uint8_t>* latest, BytesView own) {
    SHOAL_ASSIGN_OR_RETURN(Decoded decoded, Decode(latest != nullptr ? BytesView(*latest) : own));
    if (latest == nullptr) decoded.state.ledger.AddDoubt();
    return std::move(decoded.state);
  }
};

void HeldRound::End() {
  over = true;
  master.Wipe();
  // The rows that were asked are as secret as the seed.
  sodium_memzero(rows.data(), rows.size() * sizeof(uint32_t));
  rows.clear();
  submissions.clear();
}

uint32_t HeldRound::onions() const {
  return submissions.empty() ? 0 : submissions.back().first + submissions.back().count;
}

uint32_t HeldRound::slots() const {
  for (const OnionSubmission& submission : submissions) {
    if (!submission.first_slot) return submission.first;
  }
  return onions();
}

namespace {

Digest LookupId(const Digest& key, const Digest& lookup) {
  return Transcript("shoal client tried lookup v1", key).Blob(lookup).Finish();
}

Digest SpreadId(const Seed& seed, const Digest& lookup) {
  return Transcript("shoal client spread v1", seed.view()).Blob(lookup).Finish();
}

}  // namespace

TriedLookup* State::FindLookup(const Digest& lookup) {
  if (lookups.empty()) return nullptr;
  const auto found = std::ranges::find(lookups, LookupId(lookups_key, lookup), &TriedLookup::id);
  return found == lookups.end() ? nullptr : &*found;
}

TriedLookup& State::AddLookup(const Digest& lookup, uint64_t now_s, RandomSource& random) {
  if (lookups.empty()) random.Fill(lookups_key);
  TriedLookup* found = FindLookup(lookup);
  if (found == nullptr) {
    if (lookups.size() >= kMaxLookups) {
      lookups.erase(std::ranges::min_element(lookups, {}, &TriedLookup::latest_s));
    }
    found = &lookups.emplace_back(TriedLookup{.id = LookupId(lookups_key, lookup)});
  }
  found->latest_s = now_s;
  return *found;
}

bool State::DropLookup(const Digest& lookup) {
  TriedLookup* const found = FindLookup(lookup);
  if (found == nullptr) return false;
  lookups.erase(lookups.begin() + (found - lookups.data()));
  if (lookups.empty()) lookups_key = {};
  return true;
}

SpreadLookup* State::FindSpread(const Digest& lookup) {
  const auto found = std::ranges::find_if(spreads, [&](const SpreadLookup& spread) {
    return spread.id == SpreadId(spread.seed, lookup);
  });
  return found == spreads.end() ? nullptr : &*found;
}

SpreadLookup& State::AddSpread(const Digest& lookup, uint64_t now_s, RandomSource& random) {
  SpreadLookup* found = FindSpread(lookup);
  if (found == nullptr) {
    if (spreads.size() >= kMaxSpreads) {
      spreads.erase(std::ranges::min_element(spreads, {}, &SpreadLookup::latest_s));
    }
    found = &spreads.emplace_back();
    found->seed = random.NewSeed();
    found->id = SpreadId(found->seed, lookup);
  }
  found->latest_s = now_s;
  return *found;
}

void State::DropSpread(const Digest& lookup) {
  SpreadLookup* const found = FindSpread(lookup);
  if (found != nullptr) spreads.erase(spreads.begin() + (found - spreads.data()));
}

HeldRound* State::FindRound(const Digest& id) {
  for (HeldRound& round : rounds) {
    if (round.id == id) return &round;
  }
  return nullptr;
}

void State::End(HeldRound& round) {
  if (round.IsIdle()) {
    ledger.AddIdleRound();
  }
  round.End();
}

bool State::DropExpired(uint64_t now_s) {
  bool dropped = false;
  for (auto it = rounds.begin(); it != rounds.end();) {
    const uint64_t expires_s = it->header.header().expires_s();
    if (expires_s < now_s && !it->over) {
      End(*it);
      dropped = true;
    }
    if (expires_s < std::min(now_s, signed_s)) {
      it = rounds.erase(it);
      dropped = true;
    } else {
      ++it;
    }
  }
  dropped |= std::erase_if(lookups, [&](const TriedLookup& tried) {
               return tried.latest_s + kLookupS < signed_s;
             }) > 0;
  if (lookups.empty()) lookups_key = {};
  dropped |= std::erase_if(spreads, [&](const SpreadLookup& spread) {
               return spread.latest_s + kLookupS < signed_s;
             }) > 0;
  dropped |= std::erase_if(enrolments, [&](uint64_t until_s) { return until_s < signed_s; }) > 0;
  return dropped;
}

absl::StatusOr<std::unique_ptr<FileStateStore>> FileStateStore::Open(const std::string& path,
                                                                     const AnchorDirectory& place,
                                                                     RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<GuardedFile> file, GuardedFile::Open(path, place));
  std::unique_ptr<FileStateStore> store(new FileStateStore(path, std::move(file)));
  const auto content = ReadSecretFile(path, kMaxStateBytes);
  if (absl::IsNotFound(content.status())) {
    SHOAL_RETURN_IF_ERROR(store->file_->Accept(std::nullopt, random).status());
    SHOAL_RETURN_IF_ERROR(store->Save());
    return store;
  }
  if (!content.ok()) return content.status();
  auto decoded = StateCodec::Decode(*content);
  if (!decoded.ok()) return Annotate(decoded.status(), path);
  const SecretVector<uint8_t> remains = StateCodec::EncodeRemains(decoded->state, decoded->arrays);
  SHOAL_ASSIGN_OR_RETURN(
      const Standing standing,
      store->file_->Accept(
          FoundContent{.guard = decoded->guard, .bytes = *content, .remains = remains}, random));
  store->doubt_ = standing.why;
  store->rounds_of_02_ = decoded->ended;
  if (!standing.latest) {
    store->discarded_rounds_ = static_cast<size_t>(std::ranges::count_if(
        decoded->state.rounds, [](const HeldRound& round) { return !round.over; }));
    SHOAL_ASSIGN_OR_RETURN(
        store->state_,
        StateCodec::Remaining(standing.remains ? &*standing.remains : nullptr, remains));
    SHOAL_RETURN_IF_ERROR(store->Save());
    return store;
  }
  store->state_ = std::move(decoded->state);
  store->arrays_ = std::move(decoded->arrays);
  for (HeldRound& round : store->state_.rounds) {
    const auto rows = store->arrays_.find(round.id);
    if (rows == store->arrays_.end() || store->Load(rows->second, round)) continue;
    ++store->discarded_rounds_;
    round.End();  // it was charged with its rows
    store->arrays_.erase(rows);
  }
  if (store->discarded_rounds_ > 0 || decoded->of_02) SHOAL_RETURN_IF_ERROR(store->Save());
  store->RemoveLeftovers();
  return store;
}

bool FileStateStore::Load(const StoredArray& stored, HeldRound& round) const {
  const uint64_t bytes = 4 * uint64_t{stored.count};
  const auto content = ReadSecretFile(absl::StrCat(path_, stored.name), bytes);
  if (!content.ok()) return false;
  if (content->size() != bytes || ArrayDigest(round.id, *content) != stored.digest) {
    return false;
  }
  round.rows.resize(stored.count);
  std::copy(content->begin(), content->end(), reinterpret_cast<uint8_t*>(round.rows.data()));
  return true;
}

std::string FileStateStore::AnswersPath(uint64_t round_counter) const {
  return absl::StrCat(path_, kAnswersSuffix, round_counter);
}

absl::StatusOr<FileStateStore::ArrayIndex> FileStateStore::WriteArrays(uint64_t generation) const {
  ArrayIndex index;
  uint32_t number = 0;
  for (const HeldRound& round : state_.rounds) {
    if (round.over || round.rows.size() <= kInlineItems) continue;
    const BytesView bytes = ArrayBytes(round.rows);
    const Digest digest = ArrayDigest(round.id, bytes);
    if (const auto before = arrays_.find(round.id);
        before != arrays_.end() && before->second.digest == digest) {
      index[round.id] = before->second;
      continue;
    }
    StoredArray stored{.name = absl::StrCat(kArraySuffix, generation, "-", number++),
                       .count = static_cast<uint32_t>(round.rows.size()),
                       .digest = digest};
    SHOAL_RETURN_IF_ERROR(
        WriteFileAtomically(absl::StrCat(path_, stored.name), bytes, FileMode::kPrivate));
    index[round.id] = std::move(stored);
  }
  return index;
}

void FileStateStore::RemoveLeftovers() const {
  std::set<std::string> named;
  for (const auto& [id, stored] : arrays_) named.insert(absl::StrCat(path_, stored.name));
  for (const HeldRound& round : state_.rounds) {
    if (!round.over) named.insert(AnswersPath(round.counter()));
  }
  const std::filesystem::path path(path_);
  const std::string base = path.filename();
  std::error_code error;
  std::vector<std::string> leftovers;
  for (std::filesystem::directory_iterator it(
           path.has_parent_path() ? path.parent_path() : std::filesystem::path("."), error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename();
    const absl::string_view suffix = absl::StripPrefix(name, base);
    const bool ours = suffix.size() < name.size() && (absl::StartsWith(suffix, kArraySuffix) ||
                                                      absl::StartsWith(suffix, kAnswersSuffix) ||
                                                      absl::StartsWith(suffix, kTemporarySuffix));
    if (ours && !named.contains(absl::StrCat(path_, suffix))) {
      leftovers.push_back(absl::StrCat(path_, suffix));
    }
  }
  // Best effort: the next save tries again to remove what is left.
  for (const std::string& leftover : leftovers) {
    if (absl::StartsWith(absl::StripPrefix(leftover, path_), kAnswersSuffix)) {
      ::unlink(leftover.c_str());  // only masked answers, whose seed is gone
    } else {
      WipeFile(leftover).IgnoreError();
    }
  }
}

absl::Status FileStateStore::Save() {
  SHOAL_ASSIGN_OR_RETURN(ArrayIndex arrays, WriteArrays(file_->next_generation()));
  SHOAL_RETURN_IF_ERROR(
      file_->Save([&](const Guard& guard) { return StateCodec::Encode(state_, arrays, guard); },
                  StateCodec::EncodeRemains(state_, arrays)));
  arrays_ = std::move(arrays);
  RemoveLeftovers();
  return absl::OkStatus();
}

absl::StatusOr<State> ReadState(const std::string& path, const AnchorDirectory& place) {
  // Another process may save it meanwhile.
  constexpr int kReads = 3;
  for (int read = 1;; ++read) {
    SHOAL_ASSIGN_OR_RETURN(const SecretVector<uint8_t> content,
                           ReadSecretFile(path, kMaxStateBytes));
    auto decoded = StateCodec::Decode(content);
    if (!decoded.ok()) return Annotate(decoded.status(), path);
    std::optional<AnchorRecord> anchor_record = place.Peek(decoded->guard.id);
    if (anchor_record && Agrees(*anchor_record, decoded->guard.generation, content)) {
      return std::move(decoded->state);
    }
    if (read < kReads) continue;
    const bool known = anchor_record && !anchor_record->remains.empty();
    return StateCodec::Remaining(known ? &anchor_record->remains : nullptr,
                                 StateCodec::EncodeRemains(decoded->state, decoded->arrays));
  }
}

}  // namespace shoal::client
