#include "src/sim/adversary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/round/live_rounds.h"
#include "src/wire/client.pb.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::sim {
namespace {

using wire::FrameType;

// Within these replayed messages come again.
constexpr Time kMaxReplayDelay = 15 * kSecond;
constexpr const char* kNames[] = {"alters contents",   "second contents", "replays",
                                  "lies about rounds", "alters headers",  "second headers",
                                  "lies to clients",   "same onion twice"};

template <typename Message>
bool Parse(const wire::Frame& frame, Message& message) {
  return wire::ParseFrame(frame, frame.type, message).ok();
}

}  // namespace

Adversary::Adversary(Network* network, const Scheduler* scheduler, const Universe* universe,
                     uint32_t party, uint64_t seed)
    : network_(network),
      scheduler_(scheduler),
      universe_(universe),
      party_(static_cast<Address>(party)),
      rng_(seed) {
  strategies_[rng_.Below(kStrategies)] = true;
  if (rng_.Chance(0.3)) strategies_[rng_.Below(kStrategies)] = true;
  rate_ = rng_.Chance(0.5) ? 0.3 : 0.8;
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

void Adversary::Request(Address from, Address to, wire::Frame& request) {
  if (!active_ || from != party_) return;
  const wire::Frame honest = request;
  switch (request.type) {
    case FrameType::kOffline: {
      const size_t onion_bytes = OnionBytes();
      if (Has(kSameOnion)) RepeatOnion(honest, request);
      if (Has(kAltersContents)) AlterBulk(request.bulk, onion_bytes);
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
      if (Has(kSecondContents)) {
        wire::Frame second = honest;
        AlterQueries(second.bulk);
        network_->Send(from, to, std::move(second), rng_.Between(0, 3 * kSecond));
      }
      break;
    }
    case FrameType::kProposeRound: {
      wire::ProposeRoundRequest message;
      if (!Parse(request, message)) break;
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
        network_->Send(from, to, wire::MakeFrame(request.type, message),
                       rng_.Between(0, 5 * kSecond));
      }
      proposals_.push_back(honest);
      break;
    }
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
    default:
      break;
  }
  sent_.push_back(honest);
  if (Has(kReplays)) {
    const bool proposal = !proposals_.empty() && rng_.Chance(0.6);
    const std::vector<wire::Frame>& from_these = proposal ? proposals_ : sent_;
    Replay(from_these[rng_.Below(from_these.size())], rng_.Between(0, kMaxReplayDelay));
  }
}

void Adversary::Replay(wire::Frame old, Time delay) {
  if (party_ == 1 && old.type == FrameType::kProposeRound) {
    // With a list of today, which only the frontend can sign.
    wire::ProposeRoundRequest message;
    if (Parse(old, message)) {
      wire::LiveRounds list = message.live().list();
      list.set_made_s(static_cast<uint64_t>(scheduler_->WallTime() / kSecond));
      *message.mutable_live() = Resign(std::move(list));
      old = wire::MakeFrame(old.type, message);
    }
  }
  network_->Send(party_, party_ + 1, std::move(old), delay);
}

void Adversary::NextIsUp() {
  if (!active_ || !strategies_[kReplays]) return;
  // Whatever it has forgotten.
  const size_t count = std::min<size_t>(proposals_.size(), 3);
  for (size_t i = 0; i < count; ++i) {
    Replay(proposals_[proposals_.size() - 1 - i], rng_.Between(0, 2 * kSecond));
  }
}

size_t Adversary::OnionBytes() const {
  return onion::OnionBytes(universe_->parties() - static_cast<size_t>(party_));
}

void Adversary::RepeatOnion(const wire::Frame& honest, wire::Frame& request) {
  const size_t onion_bytes = OnionBytes(), onions = honest.bulk.size() / onion_bytes;
  wire::OfflineRequest message;
  if (onions < 2 || !Parse(honest, message)) return;
  // The same ones if the list goes out again.
  const auto [known, is_new] =
      repeated_.try_emplace(ToString(round::RoundId(message.header().header())));
  Repeated& repeated = known->second;
  if (is_new) {
    repeated.positions = static_cast<uint32_t>(onions);
    repeated.from = static_cast<uint32_t>(rng_.Below(onions));
    repeated.to = static_cast<uint32_t>((repeated.from + 1 + rng_.Below(onions - 1)) % onions);
  }
  std::copy_n(honest.bulk.begin() + static_cast<ptrdiff_t>(repeated.from * onion_bytes),
              onion_bytes,
              request.bulk.begin() + static_cast<ptrdiff_t>(repeated.to * onion_bytes));
}

void Adversary::RepeatTally(wire::Frame& request) {
  wire::OnlineRequest message;
  if (!Parse(request, message)) return;
  const auto found = repeated_.find(message.round_id());
  if (found == repeated_.end()) return;
  const Repeated& repeated = found->second;
  auto batch = wire::DecodeQueryBatch(request.bulk, repeated.positions);
  if (!batch.ok()) return;
  const auto tally_of = [&](uint32_t position) -> uint32_t* {
    const auto at = std::ranges::find(batch->positions, position);
    return at == batch->positions.end()
               ? nullptr
               : &batch->tallies[static_cast<size_t>(at - batch->positions.begin())];
  };
  const uint32_t* const from = tally_of(repeated.from);
  uint32_t* const to = tally_of(repeated.to);
  if (from == nullptr || to == nullptr) return;
  *to = *from;
  request.bulk = wire::EncodeQueryBatch(*batch, repeated.positions);
}

void Adversary::Answer(Address from, Address to, const wire::Frame& request, wire::Frame& answer) {
  if (!active_ || from != party_ || answer.type == FrameType::kError) return;
  if (to >= kFirstClient) return AnswerClient(request, answer);
  switch (request.type) {
    case FrameType::kOnline:
      if (Has(kAltersContents)) {
        AlterBulk(answer.bulk, universe_->table(1)->answer_bytes());
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
      AlterBulk(bytes, universe_->table(1)->answer_bytes());
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
