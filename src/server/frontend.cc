#include "src/server/frontend.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/spool.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/wire/frame.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

constexpr uint32_t kUnused = 0xffffffff;  // no tally: those are below p
// Closed rounds that `status` still shows.
constexpr size_t kRememberedRounds = 32;
// Of answers in one response, which is a message of at most wire::kMaxClientControlBytes.
constexpr uint64_t kMaxFetchBytes = 2 << 20;
static_assert(kMaxFetchBytes + 1024 <= wire::kMaxClientControlBytes);
// Room for the rounds' own clocks: a header is announced at the second it is drafted.
constexpr uint32_t kMaxWindowS = 24 * 3600;

bool Final(wire::RoundState state) { return state == wire::CLOSED || state == wire::ABORTED; }

absl::Status WrongState(wire::RoundState state, absl::string_view wanted) {
  return absl::FailedPreconditionError(absl::StrCat("the round is ", wire::RoundState_Name(state),
                                                    ": ", wanted));
}

// What finds an onion's slot again: 16 bytes of a digest under a key of this process, so that
// senders cannot aim at the table's buckets. 20 bytes an entry, in a flat table.
using OnionPrint = std::array<uint8_t, 16>;
struct OnionPrintHash {
  size_t operator()(const OnionPrint& print) const { return LoadLe<size_t>(print.data()); }
};

}  // namespace

struct Frontend::Entry {
  explicit Entry(round::Round r) : round(std::move(r)) {}

  mutable std::mutex mutex;
  const round::Round round;
  wire::RoundState state = wire::OPEN_FOR_ONIONS;
  bool busy = false;     // the driver works on it
  absl::Status storage;  // the first error of the journal over what clients sent
  std::string abort_reason;
  uint64_t state_since_s = 0;
  uint64_t slots = 0;
  uint64_t used = 0;
  size_t onion_bytes = 0;
  Digest print_key;
  absl::flat_hash_map<OnionPrint, uint32_t, OnionPrintHash> slot_of_onion;
  std::vector<uint32_t> tallies;  // by slot, kUnused where there is none
  std::vector<uint32_t> rank;     // by slot: where its answer stands
  Spool answers;
  StageReports reports;
  std::chrono::steady_clock::time_point stage_start;
  uint64_t offline_ms = 0, online_ms = 0;  // over the whole chain

  void StartStage() { stage_start = std::chrono::steady_clock::now(); }
  uint64_t StageMs() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::steady_clock::now() - stage_start)
                                     .count());
  }

  wire::RoundInfo Info() const {
    wire::RoundInfo info;
    *info.mutable_header() = round.wire();
    info.set_state(state);
    info.set_onions(slots);
    info.set_queries(used);
    info.set_abort_reason(abort_reason);
    return info;
  }
};

absl::Status CheckPlan(const RoundPlan& plan, const roster::Roster& roster) {
  const auto in_range = [](absl::string_view name, uint64_t value, uint64_t least, uint64_t most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("rounds: ", std::string(name), " is ", value,
                                                   "; allowed are ", least, " to ", most));
  };
  SHOAL_RETURN_IF_ERROR(in_range("open_ahead", plan.open_ahead, 1, 64));
  SHOAL_RETURN_IF_ERROR(in_range("onions_window_s", plan.onions_window_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(in_range("queries_window_s", plan.queries_window_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(in_range("answers_window_s", plan.answers_window_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(in_range("stage_limit_s", plan.stage_limit_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(in_range("max_slots", plan.max_slots, 1, roster.max_slots()));
  SHOAL_RETURN_IF_ERROR(in_range("max_rounds", plan.max_rounds, plan.open_ahead, 256));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Frontend>> Frontend::Create(RoundPlan plan, Party* party,
                                                           Journal* journal, const Clock* clock,
                                                           const Resources& resources) {
  if (party->number() != PartyNumber(1)) {
    return absl::InvalidArgumentError("only party 1 is a frontend");
  }
  SHOAL_RETURN_IF_ERROR(CheckPlan(plan, party->roster()));
  return std::unique_ptr<Frontend>(new Frontend(plan, party, journal, clock, resources));
}

wire::RoundHeader Frontend::NewDraft() {
  const uint64_t now_s = clock_->NowSeconds();
  // The journal may be writing: that must not hold up the clients.
  const uint64_t highest = journal_->highest_round().value();
  wire::RoundHeader draft;
  {
    std::lock_guard lock(mutex_);
    // Starts above whatever the journal has seen, and above the time: a frontend that has lost its
    // journal still goes up.
    last_counter_ = std::max({last_counter_ + 1, highest + 1, now_s});
    draft.set_counter(last_counter_);
  }
  const roster::Roster& roster = party_->roster();
  draft.set_roster_digest(ToString(roster.digest()));
  draft.set_manifest_digest(ToString(party_->table().manifest_digest));
  draft.set_max_rows(party_->table().rows);
  draft.set_answer_bytes(party_->table().row_bytes +
                         static_cast<uint32_t>(signature::kSignatureBytes));
  *draft.mutable_noise() = roster.wire().roster().noise();
  for (const roster::Party& party : roster.parties()) draft.add_machines(party.machines);
  draft.set_max_slots(plan_.max_slots);
  draft.set_announced_s(now_s);
  draft.set_onions_close_s(now_s + plan_.onions_window_s);
  draft.set_queries_close_s(draft.onions_close_s() + plan_.stage_limit_s + plan_.queries_window_s);
  draft.set_expires_s(draft.queries_close_s() + plan_.stage_limit_s + plan_.answers_window_s);
  return draft;
}

absl::Status Frontend::Open(const round::Round& round) {
  auto entry = std::make_shared<Entry>(round);
  SystemRandom().Fill(entry->print_key);
  entry->state_since_s = clock_->NowSeconds();
  entry->onion_bytes = onion::OnionBytes(round.parties());
  std::lock_guard lock(mutex_);
  if (!rounds_.emplace(round.id(), entry).second) {
    return absl::AlreadyExistsError("the round is open already");
  }
  order_.push_back(round.id());
  // Forget the oldest of the ended ones.
  size_t ended = 0;
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    const auto& other = rounds_.at(*it);
    std::lock_guard entry_lock(other->mutex);
    ended += Final(other->state) ? 1 : 0;
  }
  for (auto it = order_.begin(); it != order_.end() && ended > kRememberedRounds;) {
    const auto found = rounds_.find(*it);
    bool forget;
    {
      std::lock_guard entry_lock(found->second->mutex);
      forget = Final(found->second->state);
    }
    if (!forget) {
      ++it;
      continue;
    }
    rounds_.erase(found);
    it = order_.erase(it);
    --ended;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Frontend::Entry>> Frontend::Find(const Digest& round_id) const {
  std::lock_guard lock(mutex_);
  const auto found = rounds_.find(round_id);
  if (found == rounds_.end()) {
    return absl::NotFoundError(absl::StrCat("no round ", Hex(BytesView(round_id).first(8)), ".."));
  }
  return found->second;
}

std::vector<Due> Frontend::WhatIsDue() {
  const uint64_t now_s = clock_->NowSeconds();
  std::vector<Due> due;
  uint32_t taking_onions = 0, unfinished = 0;
  std::lock_guard lock(mutex_);
  for (const Digest& id : order_) {
    Entry& entry = *rounds_.at(id);
    std::lock_guard entry_lock(entry.mutex);
    if (Final(entry.state)) continue;
    ++unfinished;
    if (entry.state == wire::OPEN_FOR_ONIONS) ++taking_onions;
    if (entry.busy) continue;
    if (!entry.storage.ok()) {
      due.push_back({Action::kAbort, id, entry.storage});
      continue;
    }
    const wire::RoundHeader& header = entry.round.header();
    const auto passed = [&](uint64_t window_s) { return now_s >= entry.state_since_s + window_s; };
    const auto full = [](uint64_t count, uint64_t goal) { return goal != 0 && count >= goal; };
    switch (entry.state) {
      case wire::OPEN_FOR_ONIONS:
        if (now_s >= header.onions_close_s() || full(entry.slots, plan_.onions_count) ||
            entry.slots == header.max_slots()) {
          // A round without onions has nothing to hide and nothing to do.
          due.push_back({entry.slots == 0 ? Action::kClose : Action::kSeal, id, {}});
        }
        break;
      case wire::OPEN_FOR_QUERIES:
        if (passed(plan_.queries_window_s) || now_s >= header.queries_close_s() ||
            full(entry.used, plan_.queries_count) || entry.used == entry.slots) {
          due.push_back({entry.used == 0 ? Action::kClose : Action::kAnswer, id, {}});
        }
        break;
      case wire::ANSWERED:
        if (passed(plan_.answers_window_s) || now_s >= header.expires_s()) {
          due.push_back({Action::kClose, id, {}});
        }
        break;
      default:
        break;
    }
  }
  if (taking_onions < plan_.open_ahead && unfinished < plan_.max_rounds) {
    due.push_back({Action::kAnnounce, {}, {}});
  }
  return due;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Frontend::Seal(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  if (entry->state != wire::OPEN_FOR_ONIONS) return WrongState(entry->state, "cannot be sealed");
  entry->StartStage();
  entry->state = wire::SEALED;
  entry->state_since_s = clock_->NowSeconds();
  entry->busy = true;
  entry->slot_of_onion = {};
  // Every onion was written before it was acknowledged: they need not be in memory as well.
  return journal_->ReadSubmissions(entry->round.counter(), entry->slots * entry->onion_bytes);
}

absl::Status Frontend::OfflineDone(const Digest& round_id, StageReports reports) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  if (entry->state != wire::SEALED) return WrongState(entry->state, "its offline stage is over");
  entry->state = wire::OPEN_FOR_QUERIES;
  entry->state_since_s = clock_->NowSeconds();
  entry->busy = false;
  entry->tallies.assign(entry->slots, kUnused);
  entry->reports = std::move(reports);
  entry->offline_ms = entry->StageMs();
  return absl::OkStatus();
}

absl::StatusOr<Bytes> Frontend::CloseQueries(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  if (entry->state != wire::OPEN_FOR_QUERIES) return WrongState(entry->state, "takes no queries");
  entry->StartStage();
  entry->state = wire::ANSWERING;
  entry->state_since_s = clock_->NowSeconds();
  entry->busy = true;
  entry->rank.assign(entry->slots, kUnused);
  wire::QueryBatchWriter writer(static_cast<uint32_t>(entry->used),
                                static_cast<uint32_t>(entry->slots));
  uint32_t rank = 0;
  for (uint32_t slot = 0; slot < entry->slots; ++slot) {
    if (entry->tallies[slot] == kUnused) continue;
    writer.Put(rank, slot, entry->tallies[slot]);
    entry->rank[slot] = rank++;
  }
  entry->tallies = {};
  return std::move(writer).Take();
}

absl::Status Frontend::AnswersReady(const Digest& round_id, ByteSource& answers,
                                    const std::function<StageReports()>& reports) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  {
    std::lock_guard lock(entry->mutex);
    if (entry->state != wire::ANSWERING) return WrongState(entry->state, "waits for no answers");
    SHOAL_CHECK(answers.size() == entry->used * entry->round.answer_bytes());
  }
  // Not locked meanwhile: clients ask how far the round is.
  SHOAL_ASSIGN_OR_RETURN(Spool all, SpoolAll(answers, *resources_.spools, resources_.pool));
  const uint64_t online_ms = entry->StageMs();
  StageReports stages = reports();
  std::lock_guard lock(entry->mutex);
  if (entry->state != wire::ANSWERING) return WrongState(entry->state, "waits for no answers");
  entry->answers = std::move(all);
  entry->reports = std::move(stages);
  entry->online_ms = online_ms;
  entry->state = wire::ANSWERED;
  entry->state_since_s = clock_->NowSeconds();
  entry->busy = false;
  return absl::OkStatus();
}

void Frontend::Erase(Entry& entry, wire::RoundState final_state) {
  entry.state = final_state;
  entry.state_since_s = clock_->NowSeconds();
  entry.busy = false;
  entry.slot_of_onion = {};
  entry.tallies = {};
  entry.rank = {};
  entry.answers = {};
}

void Frontend::Close(const Digest& round_id) {
  const auto entry = Find(round_id);
  if (!entry.ok()) return;
  std::lock_guard lock((*entry)->mutex);
  if (!Final((*entry)->state)) Erase(**entry, wire::CLOSED);
}

void Frontend::Abort(const Digest& round_id, absl::string_view reason) {
  const auto entry = Find(round_id);
  if (!entry.ok()) return;
  std::lock_guard lock((*entry)->mutex);
  if (Final((*entry)->state)) return;
  Erase(**entry, wire::ABORTED);
  (*entry)->abort_reason = std::string(reason);
}

absl::StatusOr<wire::SignedHeader> Frontend::Header(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  return entry->round.wire();
}

wire::ListRoundsResponse Frontend::ListRounds() const {
  wire::ListRoundsResponse response;
  std::lock_guard lock(mutex_);
  for (const Digest& id : order_) {
    const Entry& entry = *rounds_.at(id);
    std::lock_guard entry_lock(entry.mutex);
    *response.add_rounds() = entry.Info();
  }
  return response;
}

std::vector<wire::RoundReport> Frontend::Reports() const {
  std::vector<wire::RoundReport> out;
  std::lock_guard lock(mutex_);
  for (const Digest& id : order_) {
    const Entry& entry = *rounds_.at(id);
    std::lock_guard entry_lock(entry.mutex);
    wire::RoundReport& report = out.emplace_back();
    *report.mutable_round() = entry.Info();
    report.mutable_stages()->Assign(entry.reports.begin(), entry.reports.end());
    report.set_offline_ms(entry.offline_ms);
    report.set_online_ms(entry.online_ms);
  }
  return out;
}

absl::StatusOr<wire::RoundState> Frontend::State(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  return entry->state;
}

absl::StatusOr<wire::RoundInfo> Frontend::Info(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  return entry->Info();
}

absl::StatusOr<Frontend::Submission> Frontend::SubmitOnions(const Digest& round_id,
                                                            BytesView onions) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const size_t onion_bytes = entry->onion_bytes;
  if (onions.empty() || onions.size() % onion_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(onions.size(),
                                                   " bytes are not one or more onions of ",
                                                   onion_bytes, " bytes"));
  }
  const size_t count = onions.size() / onion_bytes;
  std::vector<OnionPrint> prints(count);
  for (size_t i = 0; i < count; ++i) {
    const Digest digest = Transcript("shoal onion v1", entry->print_key)
                              .Blob(onions.subspan(i * onion_bytes, onion_bytes))
                              .Finish();
    std::copy_n(digest.begin(), prints[i].size(), prints[i].begin());
  }
  std::lock_guard lock(entry->mutex);
  if (entry->state != wire::OPEN_FOR_ONIONS) return WrongState(entry->state, "takes no onions");
  if (!entry->storage.ok()) return StorageFailedLocked(*entry, entry->storage);
  // What is new, in order and once. Nothing else is written: a client that repeats itself for ever
  // fills no disk. A full round still acknowledges again what it has.
  absl::flat_hash_map<OnionPrint, uint32_t, OnionPrintHash> fresh;
  Bytes added;
  for (size_t i = 0; i < count; ++i) {
    if (entry->slot_of_onion.contains(prints[i])) continue;
    const auto slot = static_cast<uint32_t>(entry->slots + fresh.size());
    if (!fresh.emplace(prints[i], slot).second) continue;
    Append(added, onions.subspan(i * onion_bytes, onion_bytes));
  }
  if (entry->slots + fresh.size() > entry->round.header().max_slots()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the round has ", entry->slots, " of ", entry->round.header().max_slots(),
                     " slots given out, and no room for ", fresh.size(), " more"));
  }
  if (!fresh.empty()) {
    if (absl::Status kept = journal_->AppendSubmission(entry->round.counter(), added); !kept.ok()) {
      return StorageFailedLocked(*entry, std::move(kept));
    }
    entry->slots += fresh.size();
    entry->slot_of_onion.merge(fresh);
  }
  Submission submission{.slots = {}, .counter = entry->round.counter()};
  submission.slots.reserve(count);
  for (const OnionPrint& print : prints) {
    submission.slots.push_back(entry->slot_of_onion.at(print));
  }
  return submission;
}

absl::Status Frontend::StorageFailedLocked(Entry& entry, absl::Status why) {
  if (absl::IsUnavailable(why)) {
    return absl::UnavailableError("the onions cannot be stored just now; try again later");
  }
  entry.storage.Update(std::move(why));
  return absl::FailedPreconditionError(
      "the round takes no onions any more: they could not be stored");
}

absl::Status Frontend::StorageFailed(const Digest& round_id, absl::Status why) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  return StorageFailedLocked(*entry, std::move(why));
}

absl::StatusOr<Frontend::Request> Frontend::ParseRequest(const Digest& round_id,
                                                         const Entry& entry,
                                                         const std::string& slots,
                                                         const std::string& tokens) const {
  const size_t count = slots.size() / 4;
  if (slots.size() % 4 != 0 || tokens.size() != count * sharing::kTokenBytes) {
    return absl::InvalidArgumentError("slots and tokens are arrays of different lengths");
  }
  Request request;
  request.slots.resize(count);
  request.tokens.resize(count);
  for (size_t i = 0; i < count; ++i) {
    request.slots[i] = LoadLe<uint32_t>(AsBytes(slots).data() + 4 * i);
    std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(i * sharing::kTokenBytes),
                sharing::kTokenBytes, request.tokens[i].begin());
    if (request.slots[i] >= entry.slots) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", request.slots[i], ": the round gave out ", entry.slots));
    }
  }
  if (const size_t wrong = party_->FirstWrongToken(round_id, request.slots, request.tokens);
      wrong < count) {
    return absl::PermissionDeniedError(
        absl::StrCat("slot ", request.slots[wrong], ": the token is not this slot's"));
  }
  std::vector<uint32_t> sorted = request.slots;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", *twice, " is named twice"));
  }
  return request;
}

absl::StatusOr<uint32_t> Frontend::SubmitQueries(const wire::SubmitQueriesRequest& request) {
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, ParseRoundId(request.round_id()));
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  if (entry->state != wire::OPEN_FOR_QUERIES) return WrongState(entry->state, "takes no queries");
  SHOAL_ASSIGN_OR_RETURN(const Request parsed, ParseRequest(round_id, *entry, request.slots(),
                                                            request.tokens()));
  const size_t count = parsed.slots.size();
  if (count == 0 || request.tallies().size() != 4 * count) {
    return absl::InvalidArgumentError("slots and tallies are arrays of different lengths");
  }
  // Everything is checked before anything is taken.
  std::vector<uint32_t> tallies(count);
  for (size_t i = 0; i < count; ++i) {
    tallies[i] = LoadLe<uint32_t>(AsBytes(request.tallies()).data() + 4 * i);
    if (tallies[i] >= wire::kTallyModulus) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", parsed.slots[i], ": its tally is not below 2^31 - 1"));
    }
    const uint32_t before = entry->tallies[parsed.slots[i]];
    if (before != kUnused && before != tallies[i]) {
      return absl::FailedPreconditionError(
          absl::StrCat("slot ", parsed.slots[i], ": was used for another query"));
    }
  }
  for (size_t i = 0; i < count; ++i) {
    uint32_t& tally = entry->tallies[parsed.slots[i]];
    if (tally == kUnused) ++entry->used;
    tally = tallies[i];
  }
  return static_cast<uint32_t>(count);
}

absl::StatusOr<wire::FetchAnswersResponse> Frontend::FetchAnswers(
    const wire::FetchAnswersRequest& request) const {
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, ParseRoundId(request.round_id()));
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  std::lock_guard lock(entry->mutex);
  if (entry->state != wire::ANSWERED) return WrongState(entry->state, "has no answers to give");
  // One answer may always be had: a row may be a megabyte, and a response four.
  if (const uint64_t most = std::max<uint64_t>(1, kMaxFetchBytes / entry->round.answer_bytes());
      request.slots().size() / 4 > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.slots().size() / 4, " answers of ", entry->round.answer_bytes(),
        " bytes in one request; at most ", most));
  }
  SHOAL_ASSIGN_OR_RETURN(const Request parsed, ParseRequest(round_id, *entry, request.slots(),
                                                            request.tokens()));
  wire::FetchAnswersResponse response;
  const size_t answer_bytes = entry->round.answer_bytes();
  for (uint32_t slot : parsed.slots) {
    if (entry->rank[slot] == kUnused) {
      return absl::FailedPreconditionError(absl::StrCat("slot ", slot, ": was not used"));
    }
  }
  std::string& answers = *response.mutable_answers();
  answers.resize(parsed.slots.size() * answer_bytes);
  // A client's slots are neighbours mostly: one read for each run of them.
  for (size_t i = 0; i < parsed.slots.size();) {
    const uint64_t first = entry->rank[parsed.slots[i]];
    size_t n = 1;
    while (i + n < parsed.slots.size() && entry->rank[parsed.slots[i + n]] == first + n) ++n;
    SHOAL_RETURN_IF_ERROR(entry->answers.Read(
        first * answer_bytes, {reinterpret_cast<uint8_t*>(answers.data()) + i * answer_bytes,
                               n * answer_bytes}));
    i += n;
  }
  return response;
}

}  // namespace shoal::server
