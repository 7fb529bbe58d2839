#include "src/server/chain.h"

#include <algorithm>
#include <optional>
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

Asker AskerOf(const Party& party) { return {party.number(), party.roster().size()}; }

}  // namespace

absl::Status Link::OfflineRun(const wire::SignedHeader&, const Mine&, std::unique_ptr<ByteSource>) {
  return absl::UnimplementedError("this link takes whole lists");
}

absl::StatusOr<std::unique_ptr<PartedSource>> Link::OnlineRun(const Digest&, const Mine&,
                                                              const wire::QueryBatch&) {
  return absl::UnimplementedError("this link takes whole batches");
}

absl::StatusOr<signature::Signature> Link::ProposeRefresh(const wire::RefreshHeader&) {
  return absl::UnimplementedError("this link knows no refreshes");
}

absl::StatusOr<std::unique_ptr<RefreshAnswers>> Link::Refresh(const wire::SignedRefreshHeader&) {
  return absl::UnimplementedError("this link knows no refreshes");
}

ChainNode::ChainNode(Party* party, Link* next) : party_(party), next_(next) {
  SHOAL_CHECK(party->is_backend() == (next == nullptr));
}

absl::StatusOr<wire::SignedHeader> ChainNode::Propose(const wire::RoundHeader& draft,
                                                      const wire::SignedLiveRounds& live) {
  if (const auto taken = TakeLive(live); !taken.ok()) {
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
  return SendList(header, 0, std::move(list));
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header, Submissions submissions,
                                uint64_t attempt) {
  auto list = party_->Offline(header, *submissions.list, submissions.onions, attempt);
  submissions.list.reset();
  return SendList(header, attempt, std::move(list));
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header,
                                std::shared_ptr<Party::Intake> intake) {
  const uint64_t attempt = intake->attempt();
  return SendList(header, attempt, party_->Offline(std::move(intake)));
}

absl::Status ChainNode::SendList(const wire::SignedHeader& header, uint64_t attempt,
                                 absl::StatusOr<std::unique_ptr<ByteSource>> list) {
  if (!list.ok()) return AtParty(*party_, list.status());
  if (*list == nullptr) return absl::OkStatus();
  const Digest id = round::RoundId(header.header());
  absl::Status sent;
  if (!party_->has_several_machines()) {
    if (next_ == nullptr) return absl::OkStatus();
    sent = next_->Offline(header, *std::move(list));
  } else {
    // At the backend nobody's list goes on, but all machines wait for all.
    sent = party_->SendTogether(id, "list sent", attempt, [&](const Mine& mine) {
      return next_ == nullptr ? absl::OkStatus()
                              : next_->OfflineRun(header, mine, *std::move(list));
    });
  }
  // Several machines have erased it together.
  if (sent.ok() && !party_->has_several_machines()) party_->ListPassedOn(id);
  return sent;
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::Online(const Digest& round_id, Bytes queries,
                                                              const StageTry& stage) {
  if (next_ == nullptr) {
    auto answers = party_->AnswerQueries(round_id, BytesView(queries), stage);
    if (!answers.ok()) return AtParty(*party_, answers.status());
    return answers;
  }
  if (party_->has_several_machines()) return TakeAndSend(round_id, stage, BytesView(queries));
  absl::StatusOr<Bytes> forwarded = party_->Queries(round_id, queries, stage);
  Bytes().swap(queries);  // frees memory
  if (!forwarded.ok()) return AtParty(*party_, forwarded.status());
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> later,
                         next_->Online(round_id, *std::move(forwarded)));
  OnePart whole(later.get());
  return TakeAnswers(round_id, whole);
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::Online(const Digest& round_id,
                                                              wire::QueryBatch queries,
                                                              const StageTry& stage) {
  SHOAL_CHECK(party_->has_several_machines());
  if (next_ == nullptr) {
    auto answers = party_->AnswerQueries(round_id, std::move(queries), stage);
    if (!answers.ok()) return AtParty(*party_, answers.status());
    return answers;
  }
  return TakeAndSend(round_id, stage, std::move(queries));
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ChainNode::OnlineOfKept(const Digest& round_id,
                                                                      BytesView queries,
                                                                      uint64_t attempt) {
  SHOAL_CHECK(next_ != nullptr);
  const StageTry stage = {.attempt = attempt};
  if (party_->has_several_machines()) return TakeAndSend(round_id, stage, queries);
  absl::StatusOr<Bytes> forwarded = party_->Queries(round_id, queries, stage);
  if (!forwarded.ok()) return AtParty(*party_, forwarded.status());
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> later,
                         next_->Online(round_id, *std::move(forwarded)));
  OnePart whole(later.get());
  return TakeAnswers(round_id, whole);
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ChainNode::TakeAndSend(const Digest& round_id,
                                                                     const StageTry& stage,
                                                                     Party::QueriesIn queries) {
  const auto forwarded = party_->QueriesOfSlice(round_id, std::move(queries), stage);
  if (!forwarded.ok()) return AtParty(*party_, forwarded.status());
  absl::StatusOr<std::unique_ptr<PartedSource>> later;
  SHOAL_RETURN_IF_ERROR(
      party_->SendTogether(round_id, "queries sent", stage.attempt, [&](const Mine& mine) {
        later = next_->OnlineRun(round_id, mine, **forwarded);
        return later.status();
      }));
  return TakeAnswers(round_id, **later);
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ChainNode::TakeAnswers(const Digest& round_id,
                                                                     PartedSource& later) {
  auto answers = party_->Answers(round_id, later);
  if (!answers.ok()) return AtParty(*party_, answers.status());
  return answers;
}

absl::StatusOr<StageReports> ChainNode::Reports(const Digest& round_id) {
  StageReports reports = party_->Reports(round_id);
  if (party_->terms() != nullptr) {
    if (auto refresh = party_->terms()->Report(round_id)) reports.push_back(*std::move(refresh));
  }
  if (next_ != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(StageReports unchecked, next_->Reports(round_id));
    const absl::StatusOr<StageReports> later = CheckReports(AskerOf(*party_), std::move(unchecked));
    if (!later.ok()) return AtParty(*party_, later.status());
    reports.insert(reports.end(), later->begin(), later->end());
  }
  return reports;
}

absl::StatusOr<ListAnswer> ChainNode::Live(const wire::SignedLiveRounds& live) {
  const auto lacking = TakeLive(live);
  if (!lacking.ok()) return AtParty(*party_, lacking.status());
  ListAnswer answer = {.lacked = {}, .reached = party_->number().value()};
  for (const RoundCounter counter : *lacking) answer.lacked.push_back({party_->number(), counter});
  if (next_ == nullptr) return answer;
  absl::StatusOr<ListAnswer> later = next_->Live(live);
  if (later.ok()) {
    later = CheckListAnswer(AskerOf(*party_), live.list(), *std::move(later));
    if (!later.ok()) later = AtParty(*party_, later.status());
  }
  // What this party lacks is told all the same.
  if (!later.ok()) return answer.lacked.empty() ? later : answer;
  answer.lacked.insert(answer.lacked.end(), later->lacked.begin(), later->lacked.end());
  answer.reached = later->reached;
  return answer;
}

absl::StatusOr<std::vector<RoundCounter>> ChainNode::TakeLive(const wire::SignedLiveRounds& live) {
  auto lacking = party_->TakeLive(live);
  // The party has checked the list.
  if (lacking.ok() && party_->terms() != nullptr) party_->terms()->TakeLive(live.list());
  return lacking;
}

absl::StatusOr<Terms*> ChainNode::KeptTerms() const {
  if (party_->terms() != nullptr) return party_->terms();
  return AtParty(*party_, absl::NotFoundError("keeps no terms"));
}

absl::StatusOr<signature::Signature> ChainNode::ProposeRefresh(const wire::RefreshHeader& header) {
  SHOAL_ASSIGN_OR_RETURN(Terms* const terms, KeptTerms());
  if (const absl::Status may = terms->CheckProposal(header); !may.ok()) {
    return AtParty(*party_, may);
  }
  std::optional<signature::Signature> later;
  if (next_ != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(later, next_->ProposeRefresh(header));
  }
  auto sum = terms->Sign(header, later);
  if (!sum.ok()) return AtParty(*party_, sum.status());
  return sum;
}

absl::StatusOr<std::unique_ptr<RefreshAnswers>> ChainNode::Refresh(
    const wire::SignedRefreshHeader& refresh) {
  SHOAL_ASSIGN_OR_RETURN(Terms* const terms, KeptTerms());
  absl::StatusOr<std::unique_ptr<RefreshAnswers>> answers;
  if (next_ == nullptr) {
    answers = terms->Answer(refresh);
  } else {
    if (const absl::Status may = terms->CheckRefresh(refresh); !may.ok()) {
      return AtParty(*party_, may);
    }
    SHOAL_ASSIGN_OR_RETURN(const auto later, next_->Refresh(refresh));
    answers = terms->Return(refresh, *later, later->tags());
  }
  if (!answers.ok()) return AtParty(*party_, answers.status());
  return answers;
}

}  // namespace shoal::server
