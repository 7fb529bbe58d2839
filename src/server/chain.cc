#include "src/server/chain.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/sharing/halves.h"
#include "src/storage/spool.h"

namespace shoal::server {
namespace {

// Puts "party 2: " before the message of an error that arose there; every party on the way adds its
// own.
absl::Status AtParty(const Party& party, const absl::Status& status) {
  return Annotate(status, absl::StrCat("party ", party.number().value()));
}

Asker AskerOf(const Party& party) { return {party.number(), party.roster().size()}; }

// Whether party 2 has returned what no party returns, or something else than before.
bool EndsRound(const absl::Status& of_half) {
  return absl::IsFailedPrecondition(of_half) || absl::IsInvalidArgument(of_half);
}

// The work of both halves of a round at the same time. As soon as one fails, the other is given up.
class BothHalves {
 public:
  using Work = std::function<absl::Status(const OwnRun& mine)>;

  // Returns the error of the half that has failed first, or of one that ends the round, if there is
  // one: which half a link breaks in is up to party 2, too.
  static absl::Status Run(const Work& a, const Work& b) {
    BothHalves both;
    TaskGroup other;
    other.Spawn([&] { both.RunOne(b); });
    both.RunOne(a);
    other.Wait();
    const MutexLock lock(both.mutex_);
    return both.first_;
  }

 private:
  void RunOne(const Work& work) {
    const absl::Status done = work({.given_up = [this] { return failed_.load(); }});
    if (done.ok()) return;
    const MutexLock lock(mutex_);
    if (first_.ok() || (EndsRound(done) && !EndsRound(first_))) first_ = done;
    failed_ = true;
  }

  std::atomic<bool> failed_ = false;
  Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

absl::Status NoHalves() { return absl::UnimplementedError("this link knows no two tiers"); }

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> Link::HeadOffline(const wire::SignedHeader&,
                                                              const OwnRun&, Submissions,
                                                              uint64_t) {
  return NoHalves();
}

absl::StatusOr<Bytes> Link::HeadQueries(const Digest&, const OwnRun&, Bytes, uint64_t) {
  return NoHalves();
}

absl::StatusOr<std::unique_ptr<ByteSource>> Link::HeadAnswers(const Digest&, const OwnRun&,
                                                              std::unique_ptr<ByteSource>,
                                                              uint64_t) {
  return NoHalves();
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

absl::Status ChainNode::Offline(const wire::SignedHeader& header, const OwnRun& mine,
                                std::unique_ptr<ByteSource> onions) {
  return Offline(header, StageTry{.attempt = mine.attempt}, std::move(onions));
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header, Submissions submissions,
                                uint64_t attempt) {
  return Offline(header, StageTry{.attempt = attempt, .records = submissions.onions},
                 std::move(submissions.list));
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header, const StageTry& stage,
                                std::unique_ptr<ByteSource> list) {
  auto intake = party_->BeginOffline(header, list->size(), stage);
  if (!intake.ok()) return AtParty(*party_, intake.status());
  return Offline(header, *std::move(intake), std::move(list));
}

absl::Status ChainNode::Offline(const wire::SignedHeader& header,
                                std::shared_ptr<Party::Intake> intake,
                                std::unique_ptr<ByteSource> rest) {
  return SendList(header, std::move(intake), std::move(rest), nullptr);
}

absl::Status ChainNode::SendList(const wire::SignedHeader& header,
                                 std::shared_ptr<Party::Intake> intake,
                                 std::unique_ptr<ByteSource> rest, std::function<bool()> given_up) {
  const uint64_t attempt = intake->attempt();
  auto list = party_->Offline(std::move(intake), rest.get());
  rest.reset();
  if (!list.ok()) return AtParty(*party_, list.status());
  if (*list == nullptr) return absl::OkStatus();
  // At the backend nobody's list goes on, but all machines wait for all.
  return party_->SendTogether(round::RoundId(header.header()), "list sent", attempt,
                              [&](OwnRun mine) {
                                if (next_ == nullptr) return absl::OkStatus();
                                if (given_up) mine.given_up = given_up;
                                return next_->Offline(header, mine, *std::move(list));
                              });
}

absl::Status ChainNode::OfflineOfHalves(const wire::SignedHeader& header, Submissions a,
                                        Submissions b) {
  SHOAL_CHECK(next_ != nullptr);
  const Digest round_id = round::RoundId(header.header());
  auto pieces = party_->TakePieces(round_id, *a.list, *b.list);
  if (!pieces.ok()) return AtParty(*party_, pieces.status());
  return RunBoth(
      round_id,
      [&](const OwnRun& mine) -> absl::Status {
        auto list = std::make_unique<SpoolSource>(std::move(pieces->a));
        auto intake = party_->BeginOffline(header, list->size(), {.records = a.onions});
        if (!intake.ok()) return AtParty(*party_, intake.status());
        return SendList(header, *std::move(intake), std::move(list), mine.given_up);
      },
      [&](const OwnRun& mine) {
        return OfflineOfB(
            header,
            {.list = std::make_unique<SpoolSource>(std::move(pieces->b)), .onions = b.onions},
            mine);
      });
}

absl::Status ChainNode::OfflineOfB(const wire::SignedHeader& header, Submissions pieces,
                                   const OwnRun& mine) {
  SHOAL_ASSIGN_OR_RETURN(const Party::Returned most,
                         party_->MostReturned(round::RoundId(header.header())));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> list,
                         next_->HeadOffline(header, mine, std::move(pieces), most.list_bytes));
  auto intake = party_->BeginOffline(header, list->size(), {}, sharing::Half::kB);
  if (!intake.ok()) return AtParty(*party_, intake.status());
  // Opened as it comes; nothing depends on it before all of it is here and committed to.
  const absl::Status taken = party_->Offline(*std::move(intake), list.get()).status();
  // A link that broke on the way is no fault of this party.
  return taken.ok() || absl::IsUnavailable(taken) ? taken : AtParty(*party_, taken);
}

absl::Status ChainNode::RunBoth(const Digest& round_id,
                                const std::function<absl::Status(const OwnRun& mine)>& a,
                                const std::function<absl::Status(const OwnRun& mine)>& b) {
  absl::Status done = BothHalves::Run(a, b);
  if (EndsRound(done)) party_->End(round_id).IgnoreError();
  return done;
}

absl::StatusOr<HalvesAnswers> ChainNode::OnlineOfHalves(const Digest& round_id, BytesView a,
                                                        BytesView b) {
  SHOAL_CHECK(next_ != nullptr);
  // Commits to all queries before anything of them leaves: part B is in `a`, too.
  auto forwarded = party_->Queries(round_id, a);
  if (!forwarded.ok()) return AtParty(*party_, forwarded.status());
  HalvesAnswers answers;
  SHOAL_RETURN_IF_ERROR(RunBoth(
      round_id,
      [&](const OwnRun& mine) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(answers.a,
                               Forward(round_id, *std::move(forwarded), 0, mine.given_up));
        return absl::OkStatus();
      },
      [&](const OwnRun& mine) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(answers.b, OnlineOfB(round_id, b, mine));
        return absl::OkStatus();
      }));
  return answers;
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ChainNode::OnlineOfB(const Digest& round_id,
                                                                   BytesView parts,
                                                                   const OwnRun& mine) {
  SHOAL_ASSIGN_OR_RETURN(const Party::Returned most, party_->MostReturned(round_id));
  SHOAL_ASSIGN_OR_RETURN(Bytes batch,
                         next_->HeadQueries(round_id, mine, ToBytes(parts), most.batch_bytes));
  auto answers = party_->AnswerQueries(round_id, std::move(batch), {}, sharing::Half::kB);
  if (!answers.ok()) return AtParty(*party_, answers.status());
  SHOAL_ASSIGN_OR_RETURN(const uint64_t answer_bytes, party_->AnswerBytes(round_id));
  const uint64_t queries = wire::EncodedQueries(parts);
  SHOAL_ASSIGN_OR_RETURN(
      const auto returned,
      next_->HeadAnswers(round_id, mine, *std::move(answers), queries * answer_bytes));
  auto taken = party_->TakeHeadAnswers(round_id, queries, *returned);
  if (!taken.ok() && !absl::IsUnavailable(taken.status())) {
    return AtParty(*party_, taken.status());
  }
  return taken;
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::HeadOffline(const wire::SignedHeader& header,
                                                                   const OwnRun& mine,
                                                                   Submissions pieces, uint64_t) {
  auto intake =
      party_->BeginOffline(header, pieces.list->size(),
                           {.attempt = mine.attempt, .records = pieces.onions}, sharing::Half::kB);
  if (!intake.ok()) return AtParty(*party_, intake.status());
  auto list = party_->Offline(*std::move(intake), pieces.list.get());
  if (!list.ok()) return AtParty(*party_, list.status());
  return list;
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::HeadOffline(
    std::shared_ptr<Party::Intake> intake) {
  auto list = party_->Offline(std::move(intake));
  if (!list.ok()) return AtParty(*party_, list.status());
  return list;
}

absl::StatusOr<Bytes> ChainNode::HeadQueries(const Digest& round_id, const OwnRun& mine,
                                             Bytes parts, uint64_t) {
  auto batch = party_->Queries(round_id, std::move(parts), StageTry{.attempt = mine.attempt},
                               sharing::Half::kB);
  if (!batch.ok()) return AtParty(*party_, batch.status());
  return std::get<Bytes>(*std::move(batch));
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::HeadAnswers(
    const Digest& round_id, const OwnRun&, std::unique_ptr<ByteSource> answers, uint64_t) {
  OnePart source(std::move(answers));
  auto returned = party_->Answers(round_id, source, sharing::Half::kB);
  if (!returned.ok()) return AtParty(*party_, returned.status());
  return returned;
}

absl::StatusOr<std::unique_ptr<PartedSource>> ChainNode::Online(const Digest& round_id,
                                                                const OwnRun& mine,
                                                                QueriesOut queries) {
  auto* const encoded = std::get_if<Bytes>(&queries);
  SHOAL_CHECK(encoded != nullptr);
  SHOAL_ASSIGN_OR_RETURN(auto answers,
                         Online(round_id, std::move(*encoded), StageTry{.attempt = mine.attempt}));
  return std::make_unique<OnePart>(std::move(answers));
}

absl::StatusOr<std::unique_ptr<ByteSource>> ChainNode::Online(const Digest& round_id,
                                                              QueriesIn queries,
                                                              const StageTry& stage) {
  if (next_ != nullptr) return PassOn(round_id, std::move(queries), stage);
  auto answers = party_->AnswerQueries(round_id, std::move(queries), stage);
  if (!answers.ok()) return AtParty(*party_, answers.status());
  return answers;
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ChainNode::OnlineOfKept(const Digest& round_id,
                                                                      BytesView queries,
                                                                      uint64_t attempt) {
  SHOAL_CHECK(next_ != nullptr);
  return PassOn(round_id, queries, StageTry{.attempt = attempt});
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ChainNode::PassOn(const Digest& round_id,
                                                                QueriesIn queries,
                                                                const StageTry& stage) {
  auto forwarded = party_->Queries(round_id, std::move(queries), stage);
  if (!forwarded.ok()) return AtParty(*party_, forwarded.status());
  return Forward(round_id, *std::move(forwarded), stage.attempt);
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ChainNode::Forward(const Digest& round_id,
                                                                 QueriesOut forwarded,
                                                                 uint64_t attempt,
                                                                 std::function<bool()> given_up) {
  absl::StatusOr<std::unique_ptr<PartedSource>> later;
  SHOAL_RETURN_IF_ERROR(party_->SendTogether(round_id, "queries sent", attempt, [&](OwnRun mine) {
    if (given_up) mine.given_up = given_up;
    later = next_->Online(round_id, mine, std::move(forwarded));
    return later.status();
  }));
  auto answers = party_->Answers(round_id, **later);
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
