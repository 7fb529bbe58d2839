#include "src/sim/oracles.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/wire/client.pb.h"
#include "src/wire/peer.pb.h"

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
// A journal's record begins with its kind, 1 for a content.
constexpr uint8_t kContentRecord = 1;

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

}  // namespace

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

void Oracles::Committed(Address party, const std::string& round_id,
                        std::initializer_list<server::Content> contents) {
  Digest id = {};
  if (round_id.size() != id.size()) return;
  std::ranges::copy(AsBytes(round_id), id.begin());
  const auto round = rounds_.find(id);
  if (round == rounds_.end()) return;
  for (const server::Content content : contents) {
    Bytes record = {kContentRecord, static_cast<uint8_t>(content)};
    AppendLe(record, round->second);
    if (content == server::Content::kHeader) Append(record, id);
    if (is_durable(party, record)) continue;
    Violate("committed", absl::StrCat(party, ": the ", std::string(server::ContentName(content)),
                                      " of round ", round->second, " not in its journal"));
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

void Oracles::Begins(Address client, size_t lookup, uint32_t attempts) {
  Asking& asking = asking_[client];
  asking.fetched.clear();
  if (asking.lookup != lookup + 1)
    asking = {.lookup = lookup + 1, .attempts = 0, .rounds = {}, .fetched = {}};
  asking.attempts = std::max(asking.attempts, attempts);
}

bool Oracles::Fetched(Address client, const Digest& round_id) const {
  const auto found = asking_.find(client);
  return found != asking_.end() && found->second.fetched.contains(ToString(round_id));
}

void Oracles::Request(Address from, Address, const wire::Frame& request) {
  if (!IsHonest(from)) return;
  switch (request.type) {
    case FrameType::kSubmitOnions: {
      const auto message = Parse<wire::SubmitOnionsRequest>(request);
      for (const std::string& submission : message.submissions()) {
        // Whoever sends it: an encapsulated key is used once.
        OneContent(0, "the key", submission.substr(0, onion::kEncBytes), AsBytes(submission));
      }
      return;
    }
    case FrameType::kSubmitQueries: {
      const auto message = Parse<wire::SubmitQueriesRequest>(request);
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
        Violate("ledger",
                absl::StrCat("client ", from, ": a lookup is sent in ", asking.rounds.size(),
                             " rounds, and ", asking.attempts, " are allowed"));
      }
      Digest id;
      std::ranges::copy(AsBytes(message.round_id()), id.begin());
      const auto counter = rounds_.find(id);
      for (Address party = 1; party <= last_ && whole_ && counter != rounds_.end(); ++party) {
        const Time started = started_[party];
        if (signed_.contains({party, counter->second}) &&
            signed_[{party, counter->second}] < started &&
            started + kLackedIsKnown < scheduler_.now()) {
          Violate("ledger", absl::StrCat("client ", from, " asks in round ", counter->second,
                                         ", which party ", party, " has lost"));
        }
      }
      return;
    }
    case FrameType::kProposeRound: {
      const auto message = Parse<wire::ProposeRoundRequest>(request);
      drafts_[{from, message.draft().counter()}] = message.draft();
      return;
    }
    case FrameType::kOffline: {
      const auto message = Parse<wire::OfflineRequest>(request);
      const std::string id = ToString(round::RoundId(message.header().header()));
      OneContent(from, "the offline list of round", id, request.bulk);
      Committed(from, id, {Content::kHeader, Content::kOfflineInput, Content::kOfflineOutput});
      if (from == 1) CountRun(request.type, id);
      return;
    }
    case FrameType::kOnline: {
      const std::string id = Parse<wire::OnlineRequest>(request).round_id();
      OneContent(from, "the queries of round", id, request.bulk);
      Committed(from, id, {Content::kQueriesInput, Content::kQueriesOutput});
      if (from == 1) CountRun(request.type, id);
      return;
    }
    default:
      return;
  }
}

void Oracles::CountRun(FrameType stage, const std::string& round_id) {
  if (++runs_[{stage, round_id}] != kMostRuns + 1) return;
  Violate("ledger", absl::StrCat("a stage of round ", Short(round_id), " is run more than ",
                                 kMostRuns, " times"));
}

void Oracles::Answer(Address from, Address to, const wire::Frame& request,
                     const Network::Answer& given) {
  if (!IsHonest(from)) return;
  const wire::Frame& answer = given.frame;
  const bool ok = answer.type != FrameType::kError;
  const absl::Status error = ok ? absl::OkStatus() : wire::ErrorOf(answer);
  switch (request.type) {
    case FrameType::kProposeRound: {
      if (!ok) return;
      const auto message = Parse<wire::ProposeRoundResponse>(answer);
      const Digest id = round::RoundId(message.header().header());
      const uint64_t counter = message.header().header().counter();
      OneContent(from, "the header with counter", std::to_string(counter), id);
      rounds_[id] = counter;
      round_bytes_[ToString(id)] = message.header().header().answer_bytes();
      signed_.try_emplace({from, counter}, scheduler_.now());
      Committed(from, ToString(id), {Content::kHeader});
      if (const auto draft = drafts_.find({from, counter}); draft != drafts_.end()) {
        wire::RoundHeader completed = draft->second;
        for (int i = completed.onion_keys_size(); i < message.header().header().onion_keys_size();
             ++i) {
          completed.add_onion_keys(message.header().header().onion_keys(i));
        }
        if (round::RoundId(completed) != id) {
          Violate("contents", absl::StrCat(from,
                                           ": signs another header than it has drafted, with "
                                           "counter ",
                                           counter));
        }
      }
      return;
    }
    case FrameType::kOffline: {
      if (!ok) return;
      const auto message = Parse<wire::OfflineRequest>(request);
      OneContent(from, "the accepted list of round",
                 ToString(round::RoundId(message.header().header())), request.bulk);
      return;
    }
    case FrameType::kOnline: {
      if (!ok) return;
      const std::string id = Parse<wire::OnlineRequest>(request).round_id();
      OneContent(from, "the accepted queries of round", id, request.bulk);
      OneContent(from, "the answers of round", id, answer.bulk, /*may_be_cut=*/true);
      if (given.cut) return;
      Committed(from, id, {Content::kQueriesInput, Content::kAnswersOutput});
      if (from == last_) {
        SameSeeds(id, answer.bulk);
      } else {
        Committed(from, id, {Content::kAnswersInput});
      }
      return;
    }
    case FrameType::kSubmitQueries: {
      const auto message = Parse<wire::SubmitQueriesRequest>(request);
      if (ok) {
        for (size_t i = 0; i < message.slots().size() / 4; ++i) {
          accepted_[message.round_id()].insert(SlotAt(message.slots(), i));
        }
      } else if (malicious_ == 0 &&
                 (absl::IsInvalidArgument(error) || absl::IsPermissionDenied(error))) {
        Violate("kept", absl::StrCat("client ", to, ": ", error.ToString()));
      }
      return;
    }
    case FrameType::kFetchAnswers: {
      const auto message = Parse<wire::FetchAnswersRequest>(request);
      if (ok) {
        answered_.insert(message.round_id());
        asking_[to].fetched.insert(message.round_id());
        asking_[to].rounds.clear();
        Committed(from, message.round_id(), {Content::kAnswersInput, Content::kAnswersOutput});
        return;
      }
      if (malicious_ != 0) return;
      bool lost = absl::IsInvalidArgument(error) || absl::IsPermissionDenied(error);
      if (absl::StrContains(error.message(), "was not used")) {
        for (size_t i = 0; i < message.slots().size() / 4; ++i) {
          const uint32_t slot = SlotAt(message.slots(), i);
          lost |= accepted_[message.round_id()].contains(slot) &&
                  absl::StrContains(error.message(), absl::StrCat("slot ", slot, ":"));
        }
      }
      if (lost) Violate("kept", absl::StrCat("client ", to, ": ", error.ToString()));
      return;
    }
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
