#include "src/round/live_rounds.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"

namespace shoal::round {
namespace {

using Counters = google::protobuf::RepeatedField<uint64_t>;

absl::Status BadList(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("list of live rounds: ", why));
}

void Append(const Counters& counters, Transcript& transcript) {
  transcript.U64(static_cast<uint64_t>(counters.size()));
  for (const uint64_t counter : counters) transcript.U64(counter);
}

absl::Status CheckCounters(const Counters& counters, uint64_t highest) {
  if (std::ranges::adjacent_find(counters, std::greater_equal()) != counters.end()) {
    return BadList("its counters do not rise");
  }
  if (!counters.empty() && *counters.rbegin() > highest)
    return BadList("names what is yet to come");
  return absl::OkStatus();
}

}  // namespace

Digest LiveRoundsDigest(const wire::LiveRounds& list) {
  Transcript transcript("shoal live rounds v1");
  transcript.Blob(list.roster_digest()).U64(list.made_s()).U64(list.highest_counter());
  Append(list.rounds(), transcript);
  Append(list.drafts(), transcript);
  if (!list.terms().empty()) Append(list.terms(), transcript);
  return transcript.Finish();
}

wire::SignedLiveRounds SignLiveRounds(wire::LiveRounds list, const signature::SecretKey& key) {
  wire::SignedLiveRounds live;
  live.set_signature(ToString(key.Sign(LiveRoundsDigest(list)).bytes()));
  *live.mutable_list() = std::move(list);
  return live;
}

absl::Status CheckLiveRounds(const wire::SignedLiveRounds& live, const roster::Roster& roster,
                             uint64_t now_s) {
  const wire::LiveRounds& list = live.list();
  if (AsText(roster.digest()) != list.roster_digest()) return BadList("made for another roster");
  if (list.rounds_size() > kMaxLiveRounds || list.drafts_size() > kMaxLiveRounds ||
      list.terms_size() > kMaxLiveRounds) {
    return BadList(absl::StrCat("longer than ", kMaxLiveRounds));
  }
  SHOAL_RETURN_IF_ERROR(CheckCounters(list.rounds(), list.highest_counter()));
  SHOAL_RETURN_IF_ERROR(CheckCounters(list.drafts(), list.highest_counter()));
  SHOAL_RETURN_IF_ERROR(CheckCounters(list.terms(), list.highest_counter()));
  for (const uint64_t term : list.terms()) {
    if (std::ranges::binary_search(list.rounds(), term) ||
        std::ranges::binary_search(list.drafts(), term)) {
      return BadList("what has a term alone is a round or a draft, too");
    }
  }
  for (const uint64_t draft : list.drafts()) {
    if (std::ranges::binary_search(list.rounds(), draft)) return BadList("a draft is a round, too");
  }
  const uint64_t apart_s = std::max(now_s, list.made_s()) - std::min(now_s, list.made_s());
  if (apart_s > roster.clock_tolerance_s()) {
    return absl::UnauthenticatedError(
        absl::StrCat("list of live rounds: made ", apart_s, " seconds ",
                     list.made_s() < now_s ? "ago" : "from now", "; is a clock wrong?"));
  }
  const auto signature = signature::Signature::FromBytes(AsBytes(live.signature()));
  if (!signature.ok() ||
      !signature::Verify(roster.party(1).key, LiveRoundsDigest(list), *signature).ok()) {
    return absl::UnauthenticatedError("list of live rounds: not signed by party 1");
  }
  return absl::OkStatus();
}

}  // namespace shoal::round
