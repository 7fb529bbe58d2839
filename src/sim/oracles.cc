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

using wire::FrameType;

constexpr size_t kTokenBytes = 16;
// More of them say nothing new.
constexpr size_t kMaxViolations = 20;

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
      return;
    }
    case FrameType::kOffline: {
      const auto message = Parse<wire::OfflineRequest>(request);
      OneContent(from, "the offline list of round",
                 ToString(round::RoundId(message.header().header())), request.bulk);
      return;
    }
    case FrameType::kOnline:
      OneContent(from, "the queries of round", Parse<wire::OnlineRequest>(request).round_id(),
                 request.bulk);
      return;
    default:
      return;
  }
}

void Oracles::Answer(Address from, Address to, const wire::Frame& request,
                     const wire::Frame& answer) {
  if (!IsHonest(from)) return;
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
