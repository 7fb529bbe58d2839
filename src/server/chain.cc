#include "src/server/chain.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::server {
namespace {

// Puts "party 2: " before the message of an error that arose there; every party on the way adds its
// own.
absl::Status AtParty(const Party& party, const absl::Status& status) {
  return Annotate(status, absl::StrCat("party ", party.number().value()));
}

// Checks the reports of the parties after `own`, and drops fields that this version does not know.
// As the frontend keeps reports and shows them to everybody, INVALID_ARGUMENT unless there is at
// most one report for each of their stages.
absl::StatusOr<StageReports> CheckReports(const Party& own, StageReports reports) {
  constexpr std::array<absl::string_view, 4> kStages = {"noise", "offline", "online", "answers"};
  std::set<std::pair<uint32_t, std::string>> seen;
  for (wire::StageReport& report : reports) {
    if (report.party() <= own.number().value() || report.party() > own.roster().size() ||
        std::ranges::find(kStages, report.stage()) == kStages.end() ||
        !seen.emplace(report.party(), report.stage()).second) {
      return absl::InvalidArgumentError(
          "stage reports: one of no later party, of no stage, or that comes twice");
    }
    report.DiscardUnknownFields();
  }
  return reports;
}

// INVALID_ARGUMENT unless each is a round of the list, at a party after `own`, and comes once.
absl::Status CheckLacked(const Party& own, const wire::LiveRounds& list,
                         const LackedRounds& lacked) {
  std::set<std::pair<PartyNumber, RoundCounter>> seen;
  for (const LackedRound& lack : lacked) {
    if (lack.party <= own.number() || lack.party.value() > own.roster().size() ||
        !std::ranges::binary_search(list.rounds(), lack.counter.value()) ||
        !seen.emplace(lack.party, lack.counter).second) {
      return absl::InvalidArgumentError(
          "lacked rounds: one of no later party, of no live round, or that comes twice");
    }
  }
  return absl::OkStatus();
}

}  // namespace

ChainNode::ChainNode(Party* party, Link* next) : party_(party), next_(next) {
  SHOAL_CHECK(party->is_backend() == (next == nullptr));
}

absl::StatusOr<wire::SignedHeader> ChainNode::Propose(const wire::RoundHeader& draft,
                                                      const wire::SignedLiveRounds& live) {
  if (const auto taken = party_->TakeLive(live); !taken.ok()) {
    return AtParty(*party_, taken.status());
  }
  if (!std::ranges::binary_search(live.list().drafts(), draft.counter())) {
    return AtParty(*party_, absl::InvalidArgumentError(absl::StrCat(
                                "round ", draft.counter(), ": not a draft of the frontend's")));
  }
  absl::StatusOr<wire::RoundHeader> extended = party_->ExtendDraft(draft);
  if (!extended.ok()) return AtParty(*party_, extended.status());
  absl::StatusOr<wire::SignedHeader> header = wire::SignedHeader();
  if (next_ != nullptr) {
    header = next_->Propose(*extended, live);
  } else {
    *header->mutable_header() = *std::move(extended);
  }
  absl::Status failed = header.status();
  if (header.ok()) {
    absl::StatusOr<wire::SignedHeader> with_ours = party_->SignHeader(*header);
    if (with_ours.ok()) return with_ours;
    failed = AtParty(*party_, with_ours.status());
  }
  const absl::Status withdrawn = party_->Withdraw(RoundCounter(draft.counter()));
  return withdrawn.ok() ? failed : AtParty(*party_, withdrawn);
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header,
                                std::unique_ptr<ByteSource> onions) {
  auto list = party_->Offline(header, *onions);
  onions.reset();
  return SendList(header, std::move(list));
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header, Submissions submissions) {
  auto list = party_->Offline(header, *submissions.list, submissions.onions);
  submissions.list.reset();
  return SendList(header, std::move(list));
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header,
                                std::shared_ptr<Party::Intake> intake) {
  return SendList(header, party_->Offline(std::move(intake)));
}

absl::Status ChainNode::SendList(const wire::SignedHeader& header,
                                 absl::StatusOr<std::unique_ptr<ByteSource>> list) {
  if (!list.ok()) return AtParty(*party_, list.status());
  if (next_ == nullptr || *list == nullptr) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(next_->Offline(header, *std::move(list)));
  party_->ListPassedOn(round::RoundId(header.header()));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::Online(const Digest& round_id,
                                                              Bytes queries) {
  if (next_ == nullptr) {
    auto answers = party_->AnswerQueries(round_id, queries);
    if (!answers.ok()) return AtParty(*party_, answers.status());
    return answers;
  }
  absl::StatusOr<Bytes> forwarded = party_->Queries(round_id, queries);
  Bytes().swap(queries);  // frees memory
  return SendQueries(round_id, std::move(forwarded));
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::OnlineOfKept(const Digest& round_id,
                                                                    BytesView queries) {
  SHOAL_CHECK(next_ != nullptr);
  return SendQueries(round_id, party_->Queries(round_id, queries));
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::SendQueries(const Digest& round_id,
                                                                   absl::StatusOr<Bytes> queries) {
  if (!queries.ok()) return AtParty(*party_, queries.status());
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> later,
                         next_->Online(round_id, *std::move(queries)));
  auto answers = party_->Answers(round_id, *later);
  if (!answers.ok()) return AtParty(*party_, answers.status());
  return answers;
}

absl::StatusOr<StageReports> ChainNode::Reports(const Digest& round_id) {
  StageReports reports = party_->Reports(round_id);
  if (next_ != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(StageReports unchecked, next_->Reports(round_id));
    const absl::StatusOr<StageReports> later = CheckReports(*party_, std::move(unchecked));
    if (!later.ok()) return AtParty(*party_, later.status());
    reports.insert(reports.end(), later->begin(), later->end());
  }
  return reports;
}

absl::StatusOr<LackedRounds> ChainNode::Live(const wire::SignedLiveRounds& live) {
  const auto lacking = party_->TakeLive(live);
  if (!lacking.ok()) return AtParty(*party_, lacking.status());
  LackedRounds lacked;
  for (const RoundCounter counter : *lacking) lacked.push_back({party_->number(), counter});
  if (next_ == nullptr) return lacked;
  absl::StatusOr<LackedRounds> later = next_->Live(live);
  if (later.ok()) {
    if (absl::Status good = CheckLacked(*party_, live.list(), *later); !good.ok()) {
      later = AtParty(*party_, good);
    }
  }
  if (!later.ok()) return lacked.empty() ? later : lacked;
  lacked.insert(lacked.end(), later->begin(), later->end());
  return lacked;
}

}  // namespace shoal::server
