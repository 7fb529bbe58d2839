#include "src/sim/oracles.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/round/refresh.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::sim {
namespace {

using server::Content;
using wire::FrameType;

constexpr size_t kTokenBytes = 16;
// More of them say nothing new.
constexpr size_t kMaxViolations = 20;
// A list comes every second, and the frontend then aborts what a party lacks.
constexpr Time kLackedIsKnown = 4 * kSecond;
constexpr int kMostRuns = 3;  // of a stage
// The frontend's word on a round is not asked for later (it may have expired), and no honest window
// of the simulation's is shorter.
constexpr Time kKnownFor = 50 * kSecond, kShortestWindow = kSecond;
constexpr Time kFailureIsKnown = 4 * kSecond;
// A call to a machine that lost its power breaks within this time, and then the others of its try.
constexpr Time kBroken = 32 * kSecond;
// A journal's record begins with its kind: a content or an epoch, among others. Before it stand its
// length and a checksum.
constexpr uint8_t kContentRecord = 1, kEpochRecord = 2;
constexpr size_t kRecordFrameBytes = 4 + 16;

template <typename Message>
Message Parse(const wire::Frame& frame) {
  Message message;
  wire::ParseFrame(frame, frame.type, message).IgnoreError();
  return message;
}

uint32_t SlotAt(const std::string& slots, size_t i) {
  return LoadLe<uint32_t>(AsBytes(slots).data() + 4 * i);
}

std::string Short(const std::string& id) {
  return Hex(AsBytes(id).first(std::min<size_t>(4, id.size())));
}

// What a journal refuses for ever, read without its code. Rounds do not outlive their process, so
// that counters up to the highest one are refused, and epochs before the latest.
struct Refused {
  uint64_t highest = 0;
  std::map<std::string, std::pair<uint64_t, std::string>> epochs;  // number and digest, by subject
  std::set<std::string> contents;                                  // the records

  explicit Refused(BytesView journal) {
    for (const BytesView record : RecordsOf(journal)) {
      if (record[0] == kContentRecord) {
        contents.insert(ToString(record));
        highest = std::max(highest, LoadLe<uint64_t>(record.data() + 2));
      } else if (record[0] == kEpochRecord) {
        constexpr size_t kDigest = 1 + 8, kSubject = kDigest + sizeof(Digest);
        epochs[ToString(record.subspan(kSubject))] = {
            LoadLe<uint64_t>(record.data() + 1), ToString(record.subspan(kDigest, sizeof(Digest)))};
      }
    }
  }
};

}  // namespace

std::vector<BytesView> RecordsOf(BytesView journal) {
  std::vector<BytesView> records;
  while (journal.size() > kRecordFrameBytes) {
    const size_t length = LoadLe<uint32_t>(journal.data());
    if (journal.size() - kRecordFrameBytes < length) break;
    records.push_back(journal.subspan(kRecordFrameBytes, length));
    journal = journal.subspan(kRecordFrameBytes + length);
  }
  return records;
}

bool IsContent(BytesView record, server::Content content) {
  return record.size() > 1 && record[0] == kContentRecord &&
         record[1] == static_cast<uint8_t>(content);
}

void Oracles::Violate(const std::string& oracle, const std::string& what) {
  if (violations_.size() >= kMaxViolations) return;
  violations_.push_back(
      {oracle, absl::StrCat(what, " (at ", scheduler_.now() / kMillisecond, " ms)")});
}

void Oracles::OneContent(Address who, const std::string& what, const std::string& name,
                         BytesView bytes, bool may_be_cut) {
  const auto [found, is_new] = contents_.try_emplace({who, what, name}, ToBytes(bytes));
  if (is_new) return;
  Bytes& first = found->second;
  const size_t common = std::min(first.size(), bytes.size());
  if (std::equal(first.begin(), first.begin() + static_cast<ptrdiff_t>(common), bytes.begin()) &&
      (may_be_cut || first.size() == bytes.size())) {
    if (bytes.size() > first.size()) first = ToBytes(bytes);
    return;
  }
  Violate("contents", absl::StrCat(who, ": two contents of ", what, " ", Short(name)));
}

void Oracles::OneList(Address party, const std::string& what, const std::string& id,
                      const wire::ListPart& part, BytesView onions) {
  OneContent(party, "the length of " + what, id, AsBytes(absl::StrCat(part.records())));
  const size_t each = part.count() == 0 ? 0 : onions.size() / part.count();
  for (uint64_t i = 0; i < part.count(); ++i) {
    OneContent(party, absl::StrCat("onion ", part.first() + i, " of ", what), id,
               onions.subspan(i * each, each));
  }
}

void Oracles::OneBatch(Address party, const std::string& what, const std::string& id,
                       const wire::ListPart& part, BytesView queries) {
  const auto batch = wire::DecodeQueryBatch(queries, static_cast<uint32_t>(part.count()));
  if (!batch.ok()) return Violate("contents", absl::StrCat(party, ": sends no batch"));
  OneContent(party, "the length of " + what, id, AsBytes(absl::StrCat(part.records())));
  size_t next = 0;
  for (uint64_t i = 0; i < part.count(); ++i) {
    const bool used = next < batch->positions.size() && batch->positions[next] == i;
    OneContent(party, absl::StrCat("position ", part.first() + i, " of ", what), id,
               AsBytes(used ? absl::StrCat(batch->tallies[next]) : std::string("unused")));
    next += used ? 1 : 0;
  }
}

void Oracles::OneOfAnswers(Address party, const std::string& id, const wire::ListPart& part,
                           BytesView queries, BytesView answers) {
  const auto batch = wire::DecodeQueryBatch(queries, static_cast<uint32_t>(part.count()));
  const size_t each = round_bytes_[id];
  for (size_t i = 0; batch.ok() && each > 0 && i < batch->positions.size(); ++i) {
    if (answers.size() < (i + 1) * each) return;  // the connection broke
    const uint64_t position = part.first() + batch->positions[i];
    const BytesView answer = answers.subspan(i * each, each);
    OneContent(party, absl::StrCat("the answer to position ", position, " of round"), id, answer);
    // As SameSeeds.
    if (party != last_) continue;
    if (given_[id].try_emplace(ToString(answer), position).first->second == position) continue;
    Violate("contents", absl::StrCat(party, ": two equal answers in round ", Short(id)));
  }
}

void Oracles::Committed(Address party, const std::string& round_id,
                        std::initializer_list<server::Content> contents) {
  const std::optional<uint64_t> counter = CounterOf(round_id);
  if (!counter.has_value()) return;
  for (const server::Content content : contents) {
    Bytes record = {kContentRecord, static_cast<uint8_t>(content)};
    AppendLe(record, *counter);
    if (content == server::Content::kHeader) Append(record, AsBytes(round_id));
    if (is_durable(party, record)) continue;
    // Of a round that has ended meanwhile, a compaction drops it.
    const std::set<std::string>& dropped = compacted_[party];
    const auto found = dropped.lower_bound(ToString(record));
    if (found != dropped.end() && absl::StartsWith(*found, AsText(record))) continue;
    Violate("committed", absl::StrCat(party, ": the ", std::string(server::ContentName(content)),
                                      " of round ", *counter, " not in its journal"));
  }
}

// Equal tallies of positions with one seed have equal answers under equal masks; others have not.
void Oracles::SameSeeds(const std::string& round_id, BytesView answers) {
  const size_t each = round_bytes_[round_id];
  std::set<std::string> seen;
  for (; each > 0 && answers.size() >= each; answers = answers.subspan(each)) {
    if (seen.insert(ToString(answers.first(each))).second) continue;
    return Violate("contents",
                   absl::StrCat(last_, ": two equal answers in round ", Short(round_id)));
  }
}

void Oracles::Started(Address party, uint64_t highest_round) {
  started_[party] = scheduler_.now();
  if (IsHonest(party) && highest_round < highest_signed_[party]) {
    Violate("committed",
            absl::StrCat(party, ": has signed counter ", highest_signed_[party],
                         ", and starts with a journal that refuses those up to ", highest_round));
  }
}

void Oracles::Ends(Address party) { stopped_[party] = scheduler_.now(); }

void Oracles::Stopped(Address party) {
  stopped_[party] = scheduler_.now();
  for (auto& [key, holding] : holding_) {
    if (key.first == party) holding.lost = true;
  }
  if (party != 1) return;
  // No window of these rounds can have passed.
  for (const auto& [id, when] : acknowledged_) {
    if (scheduler_.now() - when < kShortestWindow) to_be_known_[id] = when;
  }
}

void Oracles::JournalReplaced(Address party, BytesView before, BytesView now) {
  const Refused was(before), is(now);
  const auto lost = [&](const std::string& what) {
    Violate("committed", absl::StrCat(party, ": a compaction of its journal forgets ", what));
  };
  if (is.highest < was.highest) lost(absl::StrCat("counter ", was.highest));
  for (const auto& [subject, epoch] : was.epochs) {
    const auto found = is.epochs.find(subject);
    if (found == is.epochs.end() || found->second < epoch) {
      lost(absl::StrCat("epoch ", epoch.first, " of ", subject));
    }
  }
  compacted_[party].insert(was.contents.begin(), was.contents.end());
}

void Oracles::StageFailed(Address of, const std::string& round_id, const absl::Status& error,
                          bool part) {
  if (absl::IsUnavailable(error)) return;
  // A machine that has died breaks the other calls of the try, and what these say may come first.
  const auto stopped = stopped_.find(of);
  if (part && stopped != stopped_.end() && scheduler_.now() < stopped->second + kBroken) return;
  if (const auto counter = CounterOf(round_id)) failed_.try_emplace(*counter, scheduler_.now());
}

std::optional<uint64_t> Oracles::CounterOf(const std::string& round_id) const {
  Digest id = {};
  if (round_id.size() != id.size()) return std::nullopt;
  std::ranges::copy(AsBytes(round_id), id.begin());
  const auto round = rounds_.find(id);
  if (round == rounds_.end()) return std::nullopt;
  return round->second;
}

void Oracles::CheckLiveList(const wire::LiveRounds& list) {
  for (const uint64_t counter : list.rounds()) {
    const auto failed = failed_.find(counter);
    if (!whole_ || failed == failed_.end() || scheduler_.now() < failed->second + kFailureIsKnown) {
      continue;
    }
    Violate("ended", absl::StrCat("round ", counter, " lives, and a stage of it has failed"));
    failed_.erase(failed);
  }
}

void Oracles::CheckCharge(Address client, uint64_t counter) {
  for (Address party = 1; party <= last_ && whole_; ++party) {
    const Time started = started_[party];
    if (signed_.contains({party, counter}) && signed_[{party, counter}] < started &&
        started + kLackedIsKnown < scheduler_.now()) {
      Violate("ledger", absl::StrCat("client ", client, " asks in round ", counter,
                                     ", which party ", party, " has lost"));
    }
  }
  for (Address party = 2; party <= last_ && malicious_ == 0; ++party) {
    const auto holding = holding_.find({party, counter});
    if (holding != holding_.end() && holding->second.lost && !holding->second.confirmed) {
      Violate("ledger",
              absl::StrCat("client ", client, " pays in round ", counter, ", which party ", party,
                           " has lost before the frontend knew that it holds it"));
    }
  }
}

void Oracles::Begins(Address client, size_t lookup, uint32_t attempts, bool one_at_a_time) {
  Asking& asking = asking_[client];
  asking.fetched.clear();
  if (asking.lookup != lookup + 1) asking = {.lookup = lookup + 1};
  asking.attempts = std::max(asking.attempts, attempts);
  asking.one_at_a_time = one_at_a_time;
}

bool Oracles::Fetched(Address client, const Digest& round_id) const {
  const auto found = asking_.find(client);
  return found != asking_.end() && found->second.fetched.contains(ToString(round_id));
}

void Oracles::SendsQueries(Address from, const wire::SubmitQueriesRequest& message) {
  for (size_t i = 0; i < message.slots().size() / 4; ++i) {
    const std::string token = message.tokens().substr(i * kTokenBytes, kTokenBytes);
    OneContent(0, "the slot", message.round_id() + token,
               AsBytes(message.tallies()).subspan(4 * i, 4));
    sent_[from][message.round_id()].insert(SlotAt(message.slots(), i));
  }
  Asking& asking = asking_[from];
  if (!asking.rounds.insert(message.round_id()).second) return;
  // What a malicious frontend answers is not looked at.
  if (asking.rounds.size() > asking.attempts && IsHonest(1)) {
    Violate("ledger", absl::StrCat("client ", from, ": a lookup is sent in ", asking.rounds.size(),
                                   " rounds, and ", asking.attempts, " are allowed"));
  }
  for (const auto& [other, since] : asking.under_way) {
    if (!asking.one_at_a_time || !IsHonest(1) || scheduler_.now() - since > kKnownFor) continue;
    Violate("ledger", absl::StrCat("client ", from, " asks in round ", Short(message.round_id()),
                                   ", and is not done with round ", Short(other)));
  }
  asking.under_way.try_emplace(message.round_id(), scheduler_.now());
  if (const auto counter = CounterOf(message.round_id())) CheckCharge(from, *counter);
}

void Oracles::Request(Address from, Address to, const wire::Frame& request) {
  if (!IsHonest(from)) return;
  const Address party = PartyOf(from);
  switch (request.type) {
    case FrameType::kSubmitOnions: {
      const auto message = Parse<wire::SubmitOnionsRequest>(request);
      for (const std::string& submission : message.submissions()) {
        // Whoever sends it: an encapsulated key is used once.
        OneContent(0, "the key", submission.substr(0, onion::kEncBytes), AsBytes(submission));
      }
      return;
    }
    case FrameType::kFetchRefresh: {
      // All of a client's slots, whatever it has seen.
      const auto message = Parse<wire::FetchRefreshRequest>(request);
      OneContent(from, "the slots whose refreshes are fetched in round", message.round_id(),
                 AsBytes(message.slots()));
      return;
    }
    case FrameType::kSubmitQueries:
      return SendsQueries(from, Parse<wire::SubmitQueriesRequest>(request));
    case FrameType::kProposeRound: {
      const auto message = Parse<wire::ProposeRoundRequest>(request);
      drafts_[{from, message.draft().counter()}] = message.draft();
      return;
    }
    case FrameType::kOffline: {
      const auto message = Parse<wire::OfflineRequest>(request);
      const std::string id = ToString(round::RoundId(message.header().header()));
      if (message.has_part()) {
        OneList(party, "the offline list of round", id, message.part(), request.bulk);
      } else {
        OneContent(party, "the offline list of round", id, request.bulk);
      }
      Committed(party, id, {Content::kHeader, Content::kOfflineInput});
      // Each machine holds back the last piece of what it sends; where that is, the end of the list
      // tells of the last machine.
      const wire::ListPart& part = message.part();
      if (part.first() + part.count() == part.records()) {
        Committed(party, id, {Content::kOfflineOutput});
      }
      highest_signed_[party] =
          std::max<uint64_t>(highest_signed_[party], message.header().header().counter());
      if (party == 1) CountRun(request.type, id, from, to);
      return;
    }
    case FrameType::kOnline: {
      const auto message = Parse<wire::OnlineRequest>(request);
      const std::string& id = message.round_id();
      if (message.has_part()) {
        OneBatch(party, "the queries of round", id, message.part(), request.bulk);
      } else {
        OneContent(party, "the queries of round", id, request.bulk);
      }
      Committed(party, id, {Content::kQueriesInput, Content::kQueriesOutput});
      if (party == 1) CountRun(request.type, id, from, to);
      return;
    }
    case FrameType::kLiveRounds:
      if (from == 1) CheckLiveList(Parse<wire::LiveRoundsRequest>(request).live().list());
      return;
    default:
      return;
  }
}

void Oracles::Leaves(Address to, const wire::Frame& request) {
  wire::ListPart part;
  std::string id;
  if (request.type == FrameType::kOffline) {
    const auto message = Parse<wire::OfflineRequest>(request);
    id = ToString(round::RoundId(message.header().header()));
    part = message.part();
  } else if (request.type == FrameType::kOnline) {
    const auto message = Parse<wire::OnlineRequest>(request);
    id = message.round_id();
    part = message.part();
  }
  if (part.attempt() == 0) return;  // a whole list
  tries_[{request.type, PartyOf(to), id, part.attempt()}].sent.insert(
      {part.first(), part.first() + part.count()});
}

void Oracles::Tiles(Address to, FrameType stage, const std::string& id,
                    const wire::ListPart& part) {
  Try& attempt = tries_[{stage, PartyOf(to), id, part.attempt()}];
  const std::pair mine(part.first(), part.first() + part.count());
  attempt.accepted[{to, part.from_machine()}] = mine;
  for (const auto& [who, other] : attempt.accepted) {
    if (who == std::pair(to, part.from_machine())) continue;
    if (mine.first < other.second && other.first < mine.second) {
      Violate("tiling", absl::StrCat(to, ": accepts records ", mine.first, " to ", mine.second,
                                     " of round ", Short(id), ", and ", other.first, " to ",
                                     other.second, " are accepted at ", who.first));
    }
  }
  uint64_t covered = 0;
  for (const auto& [first, end] : attempt.sent) {
    if (first > covered) break;
    covered = std::max(covered, end);
  }
  if (covered < part.records()) {
    Violate("tiling", absl::StrCat(to, ": accepts a list of ", part.records(), " records in round ",
                                   Short(id), ", and nobody has sent record ", covered));
  }
}

void Oracles::CountRun(FrameType stage, const std::string& round_id, Address from, Address to) {
  if (const auto counter = CounterOf(round_id)) failed_.erase(*counter);
  if (++runs_[{stage, round_id, from, to}] != kMostRuns + 1) return;
  Violate("ledger", absl::StrCat("a stage of round ", Short(round_id), " is run more than ",
                                 kMostRuns, " times"));
}

void Oracles::HeaderSigned(const Exchange& call) {
  const auto message = Parse<wire::ProposeRoundResponse>(call.answer);
  const Digest id = round::RoundId(message.header().header());
  const uint64_t counter = message.header().header().counter();
  OneContent(call.from, "the header with counter", std::to_string(counter), id);
  rounds_[id] = counter;
  round_bytes_[ToString(id)] = round::TaggedAnswerBytes(message.header().header());
  signed_.try_emplace({call.from, counter}, scheduler_.now());
  highest_signed_[call.from] = std::max(highest_signed_[call.from], counter);
  Committed(call.from, ToString(id), {Content::kHeader});
  if (const auto draft = drafts_.find({call.from, counter}); draft != drafts_.end()) {
    if (!round::Completes(draft->second, message.header().header())) {
      Violate("contents", absl::StrCat(call.from,
                                       ": signs another header than it has drafted, with "
                                       "counter ",
                                       counter));
    }
  }
}

void Oracles::OfflineEnded(const Exchange& call) {
  const auto message = Parse<wire::OfflineRequest>(call.request);
  const std::string id = ToString(round::RoundId(message.header().header()));
  if (!call.error.ok()) {
    if (PartyOf(call.to) == 1) StageFailed(call.party, id, call.error, message.has_part());
    return;
  }
  if (message.has_part()) {
    OneList(call.party, "the accepted list of round", id, message.part(), call.request.bulk);
    Tiles(call.from, call.request.type, id, message.part());
  } else {
    OneContent(call.party, "the accepted list of round", id, call.request.bulk);
  }
  holding_.try_emplace({call.party, message.header().header().counter()});
}

void Oracles::LiveRoundsTaken(const Exchange& call) {
  const auto asked = Parse<wire::LiveRoundsRequest>(call.request);
  const auto message = Parse<wire::LiveRoundsResponse>(call.answer);
  for (const uint64_t counter : asked.live().list().rounds()) {
    const bool lacks = std::ranges::any_of(message.lacked(), [&](const auto& lack) {
      return lack.party() == static_cast<uint32_t>(call.from) && lack.counter() == counter;
    });
    const auto holding = holding_.find({call.from, counter});
    if (!lacks && holding != holding_.end()) holding->second.confirmed = true;
  }
}

void Oracles::RefreshSigned(const Exchange& call) {
  const auto message = Parse<wire::ProposeRefreshRequest>(call.request);
  OneContent(call.party, absl::StrCat("refresh ", message.header().number(), " of round"),
             message.header().round_id(), round::RefreshDigest(message.header()));
  signed_refreshes_.emplace(call.party, round::RefreshDigest(message.header()));
}

void Oracles::Refreshed(const Exchange& call) {
  const wire::RefreshHeader header = Parse<wire::RefreshRequest>(call.request).header().header();
  const auto message = Parse<wire::RefreshResponse>(call.answer);
  if (IsHonest(call.from) &&
      !signed_refreshes_.contains({call.party, round::RefreshDigest(header)})) {
    Violate("contents", absl::StrCat("party ", call.party, " answers refresh ", header.number(),
                                     ", which it has not signed"));
  }
  // Masks follow from the party's own tag: two outputs under one show what is behind them.
  OneContent(call.party, "the answers of a refresh under tag",
             message.tags().substr(0, sizeof(round::RefreshTag)), call.answer.bulk,
             /*may_be_cut=*/true);
  OneContent(call.party, absl::StrCat("the tags of refresh ", header.number(), " of round"),
             header.round_id(), AsBytes(message.tags()));
  OneContent(call.party, absl::StrCat("the answers of refresh ", header.number(), " of round"),
             header.round_id(), call.answer.bulk, /*may_be_cut=*/true);
}

void Oracles::OnionsTaken(const Exchange& call) {
  const auto asked = Parse<wire::SubmitOnionsRequest>(call.request);
  const auto message = Parse<wire::SubmitOnionsResponse>(call.answer);
  acknowledged_[asked.round_id()] = scheduler_.now();
  for (int i = 0; i < std::min(asked.submissions_size(), message.first_slots_size()); ++i) {
    Bytes slot;
    AppendLe(slot, message.first_slots(i));
    OneContent(call.from, "the slots of submission",
               asked.submissions(i).substr(0, onion::kEncBytes) + asked.round_id(), slot);
  }
}

void Oracles::RoundShown(const Exchange& call) {
  const std::string id = Parse<wire::WaitRoundRequest>(call.request).round_id();
  const auto state = Parse<wire::WaitRoundResponse>(call.answer).round().state();
  if (call.error.ok() && (state == wire::CLOSED || state == wire::ABORTED)) {
    asking_[call.to].under_way.erase(id);
  }
  if (!absl::IsNotFound(call.error)) return;
  asking_[call.to].under_way.erase(id);
  const auto known = to_be_known_.find(id);
  if (known == to_be_known_.end() || frontend_clock_jumps_ ||
      scheduler_.now() - known->second > kKnownFor) {
    return;
  }
  Violate("kept", absl::StrCat("the frontend has forgotten round ", Short(id)));
}

void Oracles::OnlineEnded(const Exchange& call) {
  const auto message = Parse<wire::OnlineRequest>(call.request);
  const std::string& id = message.round_id();
  if (!call.error.ok()) {
    if (PartyOf(call.to) == 1) StageFailed(call.party, id, call.error, message.has_part());
    return;
  }
  const wire::ListPart& part = message.part();
  if (message.has_part()) {
    OneBatch(call.party, "the accepted queries of round", id, part, call.request.bulk);
    Tiles(call.from, call.request.type, id, part);
    OneOfAnswers(call.party, id, part, call.request.bulk, call.answer.bulk);
  } else {
    OneContent(call.party, "the accepted queries of round", id, call.request.bulk);
    OneContent(call.party, "the answers of round", id, call.answer.bulk, /*may_be_cut=*/true);
    if (!call.cut && call.party == last_) SameSeeds(id, call.answer.bulk);
  }
  Committed(call.party, id, {Content::kQueriesInput});
  if (call.party != last_) Committed(call.party, id, {Content::kAnswersInput});
  // One of several machines makes all answers before it gives any. A machine that is alone
  // holds back the end of its answers.
  if (!call.cut && part.first() + part.count() == part.records()) {
    Committed(call.party, id, {Content::kAnswersOutput});
  }
}

void Oracles::QueriesEnded(const Exchange& call) {
  const auto message = Parse<wire::SubmitQueriesRequest>(call.request);
  if (call.error.ok()) {
    acknowledged_[message.round_id()] = scheduler_.now();
    for (size_t i = 0; i < message.slots().size() / 4; ++i) {
      accepted_[{call.from, message.round_id()}].insert(SlotAt(message.slots(), i));
    }
    return;
  }
  asking_[call.to].under_way.erase(message.round_id());
  if (malicious_ == 0 &&
      (absl::IsInvalidArgument(call.error) || absl::IsPermissionDenied(call.error))) {
    Violate("kept", absl::StrCat("client ", call.to, ": ", call.error.ToString()));
  }
}

void Oracles::AnswersFetched(const Exchange& call) {
  const auto message = Parse<wire::FetchAnswersRequest>(call.request);
  if (call.error.ok()) {
    answered_.insert(message.round_id());
    asking_[call.to].fetched.insert(message.round_id());
    asking_[call.to].rounds.clear();
    asking_[call.to].under_way.clear();
    Committed(call.party, message.round_id(), {Content::kAnswersInput, Content::kAnswersOutput});
    return;
  }
  asking_[call.to].under_way.erase(message.round_id());
  if (malicious_ != 0) return;
  bool lost = absl::IsInvalidArgument(call.error) || absl::IsPermissionDenied(call.error);
  if (absl::StrContains(call.error.message(), "was not used")) {
    for (size_t i = 0; i < message.slots().size() / 4; ++i) {
      const uint32_t slot = SlotAt(message.slots(), i);
      lost |= accepted_[{call.from, message.round_id()}].contains(slot) &&
              absl::StrContains(call.error.message(), absl::StrCat("slot ", slot, ":"));
    }
  }
  if (lost) Violate("kept", absl::StrCat("client ", call.to, ": ", call.error.ToString()));
}

void Oracles::Answer(Address from, Address to, const wire::Frame& request,
                     const Network::Answer& given) {
  if (!IsHonest(from)) return;
  const bool ok = given.frame.type != FrameType::kError;
  const Exchange call = {.from = from,
                         .to = to,
                         .party = PartyOf(from),
                         .request = request,
                         .answer = given.frame,
                         .cut = given.cut,
                         .error = ok ? absl::OkStatus() : wire::ErrorOf(given.frame)};
  // Of these, errors tell something, too.
  switch (request.type) {
    case FrameType::kOffline:
      return OfflineEnded(call);
    case FrameType::kWaitRound:
      return RoundShown(call);
    case FrameType::kOnline:
      return OnlineEnded(call);
    case FrameType::kSubmitQueries:
      return QueriesEnded(call);
    case FrameType::kFetchAnswers:
      return AnswersFetched(call);
    default:
      break;
  }
  if (!ok) return;
  switch (request.type) {
    case FrameType::kProposeRound:
      return HeaderSigned(call);
    case FrameType::kLiveRounds:
      return LiveRoundsTaken(call);
    case FrameType::kProposeRefresh:
      return RefreshSigned(call);
    case FrameType::kRefresh:
      return Refreshed(call);
    case FrameType::kSubmitOnions:
      return OnionsTaken(call);
    default:
      return;
  }
}

void Oracles::CheckLedger(Address client, const client::Ledger& ledger) {
  uint64_t queries = 0;
  for (const auto& [round, slots] : sent_[client]) queries += slots.size();
  if (ledger.submissions() < sent_[client].size() || ledger.queries() < queries) {
    Violate("ledger", absl::StrCat("client ", client, ": sent ", queries, " queries in ",
                                   sent_[client].size(), " rounds, and the ledger has ",
                                   ledger.queries(), " in ", ledger.submissions()));
  }
}

}  // namespace shoal::sim
