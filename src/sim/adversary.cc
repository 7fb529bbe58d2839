#include "src/sim/adversary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/round/live_rounds.h"
#include "src/round/query_bytes.h"
#include "src/wire/client.pb.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::sim {
namespace {

using wire::FrameType;

// Within these replayed messages come again.
constexpr Time kMaxReplayDelay = 15 * kSecond;
constexpr const char* kNames[] = {"alters contents",   "second contents",  "replays",
                                  "lies about rounds", "alters headers",   "second headers",
                                  "lies to clients",   "same onion twice", "miscuts parts",
                                  "tampers refreshes"};
static_assert(std::size(kNames) == Adversary::kStrategies);

template <typename Message>
bool Parse(const wire::Frame& frame, Message& message) {
  return wire::ParseFrame(frame, frame.type, message).ok();
}

}  // namespace

Adversary::Adversary(Network* network, const Scheduler* scheduler, const Universe* universe,
                     uint32_t party, uint64_t seed, std::optional<Strategy> certain)
    : network_(network),
      scheduler_(scheduler),
      universe_(universe),
      party_(static_cast<Address>(party)),
      rng_(seed) {
  uint64_t machines = 0;
  for (uint32_t number = 1; number <= universe->parties(); ++number) {
    machines += universe->roster().party(number).machines;
  }
  const uint64_t strategies = machines == universe->parties() ? kOfOneMachine : kOfRounds;
  if (certain == kTampersRefreshes) {
    strategies_[kTampersRefreshes] = true;
    rate_ = rng_.Chance(0.5) ? 0.2 : 0.6;
    return;
  }
  strategies_[rng_.Below(strategies)] = true;
  if (rng_.Chance(0.3)) strategies_[rng_.Below(strategies)] = true;
  rate_ = rng_.Chance(0.5) ? 0.3 : 0.8;
  if (certain.has_value()) strategies_[*certain] = true;
}

std::string Adversary::Name() const {
  std::string name = absl::StrCat("party ", party_, ":");
  for (int i = 0; i < kStrategies; ++i) {
    if (strategies_[i]) absl::StrAppend(&name, " ", kNames[i], ",");
  }
  name.pop_back();
  return name;
}

void Adversary::AlterBytes(std::string& bytes) {
  if (bytes.empty()) return;
  for (uint64_t i = 1 + rng_.Below(3); i > 0; --i) {
    bytes[rng_.Below(bytes.size())] ^= static_cast<char>(1 + rng_.Below(255));
  }
}

void Adversary::AlterBulk(Bytes& bulk, size_t item_bytes) {
  const size_t items = bulk.size() / item_bytes;
  if (items == 0) return;
  const auto item = [&](size_t i) { return bulk.begin() + static_cast<ptrdiff_t>(i * item_bytes); };
  const size_t a = rng_.Below(items), b = rng_.Below(items);
  switch (rng_.Below(5)) {
    case 0:
      bulk[rng_.Below(bulk.size())] ^= static_cast<uint8_t>(1 + rng_.Below(255));
      return;
    case 1:
      std::swap_ranges(item(a), item(a) + static_cast<ptrdiff_t>(item_bytes), item(b));
      return;
    case 2:
      std::copy_n(item(a), item_bytes, item(b));
      return;
    case 3:
      bulk.resize(bulk.size() - item_bytes);
      return;
    case 4:
      bulk.insert(bulk.end(), item(a), item(a) + static_cast<ptrdiff_t>(item_bytes));
      return;
  }
}

void Adversary::AlterQueries(Bytes& bulk) {
  if (bulk.size() < 9) return;
  const uint32_t count = LoadLe<uint32_t>(bulk.data() + 1);
  if (count == 0 || bulk.size() < 5 + uint64_t{4} * count) return;
  // The lower bytes of a tally, which stays below p.
  bulk[bulk.size() - 4 * (1 + rng_.Below(count)) + rng_.Below(2)] ^=
      static_cast<uint8_t>(1 + rng_.Below(255));
}

void Adversary::AlterHeader(wire::RoundHeader& header) {
  switch (rng_.Below(5)) {
    case 0:
      if (header.onion_keys_size() > 0) {
        AlterBytes(*header.mutable_onion_keys(
            static_cast<int>(rng_.Below(static_cast<uint64_t>(header.onion_keys_size())))));
      }
      return;
    case 1:
      header.set_expires_s(header.expires_s() + 1 + rng_.Below(100));
      return;
    case 2:
      header.set_max_slots(header.max_slots() - 1);
      return;
    case 3:
      header.set_counter(header.counter() + 1);
      return;
    case 4:
      header.set_queries_close_s(header.queries_close_s() + 1);
      return;
  }
}

wire::SignedLiveRounds Adversary::Resign(wire::LiveRounds list) const {
  return round::SignLiveRounds(std::move(list), universe_->key(static_cast<uint32_t>(party_)));
}

bool Adversary::IsOurs(Address address) const {
  return address < kFirstClient && static_cast<Address>(PartyAt(address)) == party_;
}

void Adversary::AlterProposal(Address from, Address to, wire::Frame& request) {
  wire::ProposeRoundRequest message;
  if (!Parse(request, message)) return;
  if (Has(kAltersHeaders)) {
    AlterHeader(*message.mutable_draft());
    request = wire::MakeFrame(request.type, message);
  }
  if (party_ == 1 && Has(kSecondHeaders)) {
    // The same counter, in a header that differs, with a list that names it.
    AlterHeader(*message.mutable_draft());
    message.mutable_draft()->set_counter(message.live().list().highest_counter());
    if (message.live().list().drafts_size() > 0) {
      message.mutable_draft()->set_counter(*message.live().list().drafts().rbegin());
    }
    *message.mutable_live() = Resign(message.live().list());
    network_->Send(from, to, wire::MakeFrame(request.type, message), rng_.Between(0, 5 * kSecond));
  }
}

void Adversary::Request(Address from, Address to, wire::Frame& request) {
  if (!active_ || !IsOurs(from)) return;
  const wire::Frame honest = request;
  switch (request.type) {
    case FrameType::kOffline: {
      const size_t onion_bytes = OnionBytes();
      if (Has(kSameOnion)) RepeatOnion(honest, request);
      if (Has(kAltersContents)) AlterBulk(request.bulk, onion_bytes);
      if (Has(kMiscutsParts)) Miscut(request);
      if (Has(kSecondContents)) {
        wire::Frame second = honest;
        AlterBulk(second.bulk, onion_bytes);
        // Before the first one, in its middle or after it.
        network_->Send(from, to, std::move(second), rng_.Between(0, 3 * kSecond));
      }
      break;
    }
    case FrameType::kOnline: {
      RepeatTally(request);
      if (Has(kAltersContents)) AlterQueries(request.bulk);
      if (Has(kMiscutsParts)) Miscut(request);
      if (Has(kSecondContents)) {
        wire::Frame second = honest;
        AlterQueries(second.bulk);
        network_->Send(from, to, std::move(second), rng_.Between(0, 3 * kSecond));
      }
      break;
    }
    case FrameType::kProposeRound:
      AlterProposal(from, to, request);
      proposals_.push_back({from, to, honest});
      break;
    case FrameType::kLiveRounds:
      if (Has(kLiesAboutRounds) && !lists_.empty()) {
        request = lists_[rng_.Below(lists_.size())];
      } else if (party_ == 1 && Has(kLiesAboutRounds)) {
        wire::LiveRoundsRequest message;
        if (!Parse(request, message)) break;
        wire::LiveRounds list = message.live().list();
        list.clear_rounds();
        *message.mutable_live() = Resign(std::move(list));
        request = wire::MakeFrame(request.type, message);
      }
      lists_.push_back(honest);
      break;
    case FrameType::kProposeRefresh:
    case FrameType::kRefresh:
      if (Has(kTampersRefreshes)) TamperRefreshRequest(from, to, request);
      break;
    default:
      break;
  }
  sent_.push_back({from, to, honest});
  if (Has(kReplays)) {
    const bool proposal = !proposals_.empty() && rng_.Chance(0.6);
    const std::vector<Sent>& from_these = proposal ? proposals_ : sent_;
    Replay(from_these[rng_.Below(from_these.size())], rng_.Between(0, kMaxReplayDelay));
  }
}

void Adversary::Replay(Sent old, Time delay) {
  if (party_ == 1 && old.frame.type == FrameType::kProposeRound) {
    // With a list of today, which only the frontend can sign.
    wire::ProposeRoundRequest message;
    if (Parse(old.frame, message)) {
      wire::LiveRounds list = message.live().list();
      list.set_made_s(static_cast<uint64_t>(scheduler_->WallTime() / kSecond));
      *message.mutable_live() = Resign(std::move(list));
      old.frame = wire::MakeFrame(old.frame.type, message);
    }
  }
  network_->Send(old.from, old.to, std::move(old.frame), delay);
}

void Adversary::NextIsUp() {
  if (!active_ || !strategies_[kReplays]) return;
  // Whatever it has forgotten.
  const size_t count = std::min<size_t>(proposals_.size(), 3);
  for (size_t i = 0; i < count; ++i) {
    Replay(proposals_[proposals_.size() - 1 - i], rng_.Between(0, 2 * kSecond));
  }
}

size_t Adversary::FetchedBytes() const {
  return round::FetchedBytes(universe_->table(1)->answer_bytes());
}

size_t Adversary::OnionBytes() const {
  return onion::OnionBytes(universe_->parties() - static_cast<size_t>(party_));
}

void Adversary::RepeatOnion(const wire::Frame& honest, wire::Frame& request) {
  const size_t onion_bytes = OnionBytes(), onions = honest.bulk.size() / onion_bytes;
  wire::OfflineRequest message;
  if (!Parse(honest, message)) return;
  const uint64_t first = message.part().first();
  const auto onion_at = [&](uint64_t position) {
    return static_cast<ptrdiff_t>((position - first) * onion_bytes);
  };
  const bool whole = !message.has_part() || message.part().records() == onions;
  if (whole ? onions < 2 : onions == 0) return;
  // The same ones if the list goes out again.
  const auto [known, is_new] =
      repeated_.try_emplace(ToString(round::RoundId(message.header().header())));
  Repeated& repeated = known->second;
  if (is_new) {
    repeated.from = first + rng_.Below(onions);
    const auto begin = honest.bulk.begin() + onion_at(repeated.from);
    repeated.onion.assign(begin, begin + static_cast<ptrdiff_t>(onion_bytes));
    repeated.positions = onions;
    if (whole) repeated.to = (repeated.from + 1 + rng_.Below(onions - 1)) % onions;
  } else if (!repeated.to.has_value() &&
             (repeated.from < first || repeated.from >= first + onions)) {
    repeated.to = first + rng_.Below(onions);
  }
  if (!repeated.to.has_value() || *repeated.to < first || *repeated.to >= first + onions) return;
  std::ranges::copy(repeated.onion, request.bulk.begin() + onion_at(*repeated.to));
}

void Adversary::RepeatTally(wire::Frame& request) {
  wire::OnlineRequest message;
  if (!Parse(request, message)) return;
  const auto found = repeated_.find(message.round_id());
  if (found == repeated_.end() || !found->second.to.has_value()) return;
  Repeated& repeated = found->second;
  const auto positions =
      static_cast<uint32_t>(message.has_part() ? message.part().count() : repeated.positions);
  auto batch = wire::DecodeQueryBatch(request.bulk, positions);
  if (!batch.ok()) return;
  for (const uint64_t position : {repeated.from, *repeated.to}) {
    const auto at = std::ranges::find(batch->positions, position - message.part().first());
    if (at == batch->positions.end()) continue;
    uint32_t& tally = batch->tallies[static_cast<size_t>(at - batch->positions.begin())];
    if (!repeated.tally.has_value()) repeated.tally = tally;
    tally = *repeated.tally;
  }
  request.bulk = wire::EncodeQueryBatch(*batch, positions);
}

void Adversary::Miscut(wire::Frame& request) {
  wire::OfflineRequest offline;
  wire::OnlineRequest online;
  const bool onions = request.type == FrameType::kOffline;
  if (onions ? !Parse(request, offline) : !Parse(request, online)) return;
  if (onions ? !offline.has_part() : !online.has_part()) return;
  wire::ListPart& part = onions ? *offline.mutable_part() : *online.mutable_part();
  const uint64_t count = part.count();
  const size_t onion_bytes = OnionBytes();
  if (count == 0 || (onions && request.bulk.size() < onion_bytes)) return;
  wire::QueryBatch batch;
  if (!onions) {
    auto decoded = wire::DecodeQueryBatch(request.bulk, static_cast<uint32_t>(count));
    if (!decoded.ok()) return;
    batch = *std::move(decoded);
  }
  const bool first_used = !batch.positions.empty() && batch.positions.front() == 0;
  const bool last_used = !batch.positions.empty() && batch.positions.back() == count - 1;
  ++miscut_;
  switch (rng_.Below(7)) {
    case 0:  // the last record is withheld
      part.set_count(count - 1);
      if (onions) request.bulk.resize(request.bulk.size() - onion_bytes);
      if (last_used) {
        batch.positions.pop_back();
        batch.tallies.pop_back();
      }
      break;
    case 1:  // the first one
      part.set_first(part.first() + 1);
      part.set_count(count - 1);
      if (onions)
        request.bulk.erase(request.bulk.begin(),
                           request.bulk.begin() + static_cast<ptrdiff_t>(onion_bytes));
      if (first_used) {
        batch.positions.erase(batch.positions.begin());
        batch.tallies.erase(batch.tallies.begin());
      }
      for (uint32_t& position : batch.positions) --position;
      break;
    case 2:  // the last record twice
      part.set_count(count + 1);
      if (onions) {
        const Bytes last(request.bulk.end() - static_cast<ptrdiff_t>(onion_bytes),
                         request.bulk.end());
        Append(request.bulk, last);
      }
      if (last_used) {
        batch.positions.push_back(static_cast<uint32_t>(count));
        batch.tallies.push_back(batch.tallies.back());
      }
      break;
    case 3:
      part.set_first(part.first() - 1);
      break;
    case 4:
      part.set_first(part.first() + 1);
      break;
    case 5:
      part.set_records(part.records() + 1);
      break;
    case 6:
      part.set_records(part.records() - 1);
      break;
  }
  const Bytes bulk = onions ? std::move(request.bulk)
                            : wire::EncodeQueryBatch(batch, static_cast<uint32_t>(part.count()));
  request = onions ? wire::MakeFrame(request.type, offline, bulk)
                   : wire::MakeFrame(request.type, online, bulk);
}

void Adversary::Answer(Address from, Address to, const wire::Frame& request, wire::Frame& answer) {
  if (!active_ || !IsOurs(from) || answer.type == FrameType::kError) return;
  switch (request.type) {
    case FrameType::kProposeRefresh:
    case FrameType::kRefresh:
    case FrameType::kGetRefresh:
    case FrameType::kFetchRefresh:
      if (Has(kTampersRefreshes)) {
        const wire::Frame honest = answer;
        to >= kFirstClient ? TamperRefreshForClient(answer) : TamperRefreshAnswer(request, answer);
        refreshes_[request.type].push_back(honest);
      } else if (strategies_[kTampersRefreshes]) {
        refreshes_[request.type].push_back(answer);
      }
      return;
    default:
      break;
  }
  if (to >= kFirstClient) return AnswerClient(request, answer);
  switch (request.type) {
    case FrameType::kOnline:
      if (Has(kAltersContents)) {
        AlterBulk(answer.bulk, FetchedBytes());
      }
      return;
    case FrameType::kProposeRound: {
      wire::ProposeRoundResponse message;
      if (!Has(kAltersHeaders) || !Parse(answer, message)) return;
      if (rng_.Chance(0.5)) {
        AlterHeader(*message.mutable_header()->mutable_header());
      } else {
        AlterBytes(*message.mutable_header()->mutable_signature());
      }
      answer = wire::MakeFrame(answer.type, message);
      return;
    }
    case FrameType::kLiveRounds: {
      wire::LiveRoundsRequest asked;
      wire::LiveRoundsResponse message;
      if (!Has(kLiesAboutRounds) || !Parse(request, asked) || !Parse(answer, message)) return;
      wire::LackedRound& lacked = *message.add_lacked();
      lacked.set_party(static_cast<uint32_t>(party_) + static_cast<uint32_t>(rng_.Below(2)));
      const auto& rounds = asked.live().list().rounds();
      lacked.set_counter(rounds.empty() ? rng_.Next() : *rounds.rbegin());
      answer = wire::MakeFrame(answer.type, message);
      return;
    }
    default:
      return;
  }
}

void Adversary::AlterRefresh(wire::RefreshHeader& header) {
  switch (rng_.Below(4)) {
    case 0:
      header.set_number(header.number() + 1);
      return;
    case 1:
      header.set_number(header.number() - 1);
      return;
    case 2:
      header.set_epoch(header.epoch() + 1);
      return;
    case 3:
      AlterBytes(*header.mutable_manifest_digest());
      return;
  }
}

void Adversary::TamperRefreshRequest(Address from, Address to, wire::Frame& request) {
  ++tampered_;
  const wire::Frame honest = request;
  if (rng_.Chance(0.3)) {
    // The same again, or an earlier one, while this one is under way: nothing may come of both.
    std::vector<const Sent*> before;
    for (const Sent& one : sent_) {
      if (one.frame.type == request.type) before.push_back(&one);
    }
    const wire::Frame again =
        before.empty() || rng_.Chance(0.5) ? honest : before[rng_.Below(before.size())]->frame;
    return network_->Send(from, to, again, rng_.Between(0, 3 * kSecond));
  }
  if (request.type == FrameType::kProposeRefresh) {
    wire::ProposeRefreshRequest message;
    if (!Parse(request, message)) return;
    AlterRefresh(*message.mutable_header());
    wire::Frame other = wire::MakeFrame(request.type, message);
    // In place of the right one, or as a second content of its number.
    if (rng_.Chance(0.5)) return std::swap(request, other);
    return network_->Send(from, to, std::move(other), rng_.Between(0, 3 * kSecond));
  }
  wire::RefreshRequest message;
  if (!Parse(request, message)) return;
  if (rng_.Chance(0.5)) {
    AlterRefresh(*message.mutable_header()->mutable_header());
  } else {
    AlterBytes(*message.mutable_header()->mutable_signature());
  }
  request = wire::MakeFrame(request.type, message);
}

bool Adversary::GiveEarlier(wire::Frame& answer) {
  const std::vector<wire::Frame>& earlier = refreshes_[answer.type];
  if (earlier.empty()) return false;
  answer = earlier[rng_.Below(earlier.size())];
  return true;
}

void Adversary::TamperRefreshAnswer(const wire::Frame& request, wire::Frame& answer) {
  ++tampered_;
  if (request.type == FrameType::kProposeRefresh) {
    wire::ProposeRefreshResponse message;
    if (rng_.Chance(0.3) && GiveEarlier(answer)) return;
    if (!Parse(answer, message)) return;
    AlterBytes(*message.mutable_signature());
    answer = wire::MakeFrame(answer.type, message);
    return;
  }
  const size_t tagged_bytes = FetchedBytes();
  wire::RefreshResponse message;
  if (!Parse(answer, message)) return;
  std::string tags = message.tags();
  switch (rng_.Below(7)) {
    case 0:
    case 1:  // one answer, or as many
      return AlterBulk(answer.bulk, tagged_bytes);
    case 2:
      AlterBytes(tags);
      break;
    case 3:
      tags.resize(tags.size() - std::min<size_t>(tags.size(), 1 + 31 * rng_.Below(2)));
      break;
    case 4:  // withheld
      answer = wire::MakeErrorFrame(absl::UnavailableError("not now"));
      return;
    case 5:  // the tags of an earlier refresh, maybe of another term, with these answers
    case 6: {
      const Bytes bulk = answer.bulk;
      if (!GiveEarlier(answer)) return;
      if (rng_.Chance(0.5)) answer.bulk = bulk;
      return;
    }
  }
  message.set_tags(tags);
  answer = wire::MakeFrame(answer.type, message, std::move(answer.bulk));
}

void Adversary::TamperRefreshForClient(wire::Frame& answer) {
  ++tampered_;
  if (answer.type == FrameType::kGetRefresh) {
    wire::GetRefreshResponse message;
    if (rng_.Chance(0.4) && GiveEarlier(answer)) return;
    if (!Parse(answer, message) || !message.has_refresh()) return;
    switch (rng_.Below(4)) {
      case 0:
        AlterRefresh(*message.mutable_refresh()->mutable_header());
        break;
      case 1:
        AlterBytes(*message.mutable_refresh()->mutable_signature());
        break;
      case 2:
        AlterBytes(*message.mutable_tags());
        break;
      case 3:
        message.clear_refresh();
        break;
    }
    answer = wire::MakeFrame(answer.type, message);
    return;
  }
  wire::FetchRefreshResponse message;
  if (rng_.Chance(0.3) && GiveEarlier(answer)) return;
  if (!Parse(answer, message)) return;
  if (rng_.Chance(0.2)) {
    answer = wire::MakeErrorFrame(absl::UnavailableError("not now"));
    return;
  }
  Bytes bytes = ToBytes(AsBytes(message.answers()));
  AlterBulk(bytes, FetchedBytes());
  message.set_answers(ToString(bytes));
  answer = wire::MakeFrame(answer.type, message);
}

void Adversary::AnswerClient(const wire::Frame& request, wire::Frame& answer) {
  if (request.type == FrameType::kGetDeployment) deployments_.push_back(answer);
  if (!Has(kLiesToClients)) return;
  switch (request.type) {
    case FrameType::kGetDeployment:
      answer = deployments_[rng_.Below(deployments_.size())];
      return;
    case FrameType::kSubmitOnions: {
      wire::SubmitOnionsResponse message;
      if (!Parse(answer, message) || message.first_slots_size() == 0) return;
      message.set_first_slots(0, static_cast<uint32_t>(rng_.Below(8)));
      answer = wire::MakeFrame(answer.type, message);
      return;
    }
    case FrameType::kFetchAnswers: {
      wire::FetchAnswersResponse message;
      if (!Parse(answer, message)) return;
      Bytes bytes = ToBytes(AsBytes(message.answers()));
      const size_t before = bytes.size();
      AlterBulk(bytes, FetchedBytes());
      if (rng_.Chance(0.7)) bytes.resize(before);
      message.set_answers(ToString(bytes));
      answer = wire::MakeFrame(answer.type, message);
      return;
    }
    case FrameType::kWaitRound: {
      wire::WaitRoundResponse message;
      if (!Parse(answer, message)) return;
      message.mutable_round()->set_state(static_cast<wire::RoundState>(1 + rng_.Below(7)));
      answer = wire::MakeFrame(answer.type, message);
      return;
    }
    case FrameType::kListRounds: {
      wire::ListRoundsResponse message;
      if (!Parse(answer, message) || message.rounds_size() == 0) return;
      wire::RoundInfo& round = *message.mutable_rounds(
          static_cast<int>(rng_.Below(static_cast<uint64_t>(message.rounds_size()))));
      if (rng_.Chance(0.5)) {
        AlterHeader(*round.mutable_header()->mutable_header());
      } else {
        round.set_state(wire::OPEN_FOR_ONIONS);
      }
      answer = wire::MakeFrame(answer.type, message);
      return;
    }
    default:
      return;
  }
}

}  // namespace shoal::sim
