#include "src/shoald/round_steps.h"

#include <utility>

#include "src/base/status_macros.h"

namespace shoal::shoald {

absl::Status OwnSteps::Open(const round::Round& round) { return frontend_->Open(round); }

absl::StatusOr<uint64_t> OwnSteps::Seal(const Digest& round_id) {
  // Offline reads the submissions anew in each try.
  SHOAL_ASSIGN_OR_RETURN(const bool two_tiers, HasTwoTiers(round_id));
  SHOAL_RETURN_IF_ERROR(two_tiers ? frontend_->SealHalves(round_id).status()
                                  : frontend_->Seal(round_id).status());
  SHOAL_ASSIGN_OR_RETURN(const server::Counts counts, frontend_->Own(round_id));
  return counts.onions;
}

absl::StatusOr<bool> OwnSteps::HasTwoTiers(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header, frontend_->Header(round_id));
  return header.header().query_buckets() != 0;
}

absl::Status OwnSteps::Together(const Digest& round_id, absl::Status done, bool alone) {
  server::Party& party = node_->party();
  if (!done.ok() && alone && party.has_several_machines()) party.End(round_id).IgnoreError();
  return done;
}

absl::Status OwnSteps::Offline(const Digest& round_id, uint64_t attempt) {
  bool alone = true;
  absl::Status done = TryOffline(round_id, attempt, alone);
  return Together(round_id, std::move(done), alone);
}

absl::Status OwnSteps::TryOffline(const Digest& round_id, uint64_t attempt, bool& alone) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header, frontend_->Header(round_id));
  if (header.header().query_buckets() != 0) {
    SHOAL_ASSIGN_OR_RETURN(server::HalvesSubmissions pieces, frontend_->PiecesAgain(round_id));
    return node_->OfflineOfHalves(header, std::move(pieces.a), std::move(pieces.b));
  }
  SHOAL_ASSIGN_OR_RETURN(server::Submissions submissions, frontend_->SubmissionsAgain(round_id));
  alone = false;
  return node_->Offline(header, std::move(submissions), attempt);
}

absl::Status OwnSteps::OpenForQueries(const Digest& round_id, server::StageReports reports) {
  return frontend_->OfflineDone(round_id, std::move(reports));
}

absl::StatusOr<uint64_t> OwnSteps::CloseQueries(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const bool two_tiers, HasTwoTiers(round_id));
  Queries queries;
  if (two_tiers) {
    SHOAL_ASSIGN_OR_RETURN(queries, frontend_->CloseParts(round_id));
  } else {
    SHOAL_ASSIGN_OR_RETURN(queries, frontend_->CloseQueries(round_id));
  }
  {
    const MutexLock lock(mutex_);
    queries_[round_id] = std::make_shared<const Queries>(std::move(queries));
  }
  // An end that came before that has found nothing to erase.
  if (const auto stage = frontend_->Stage(round_id); !stage.ok() || server::IsFinal(*stage)) {
    const MutexLock lock(mutex_);
    queries_.erase(round_id);
  }
  SHOAL_ASSIGN_OR_RETURN(const server::Counts counts, frontend_->Own(round_id));
  return counts.queries;
}

absl::Status OwnSteps::Online(const Digest& round_id, uint64_t attempt,
                              const MakeReports& reports) {
  bool alone = true;
  absl::Status done = TryOnline(round_id, attempt, reports, alone);
  return Together(round_id, std::move(done), alone);
}

absl::Status OwnSteps::TryOnline(const Digest& round_id, uint64_t attempt,
                                 const MakeReports& reports, bool& alone) {
  // In an earlier try, in which another machine failed.
  SHOAL_ASSIGN_OR_RETURN(const server::FrontendStage stage, frontend_->Stage(round_id));
  if (stage == server::FrontendStage::kAnswered) return absl::OkStatus();
  std::shared_ptr<const Queries> queries;
  {
    const MutexLock lock(mutex_);
    const auto found = queries_.find(round_id);
    if (found == queries_.end()) {
      return absl::FailedPreconditionError("the round's queries are not closed, or it has ended");
    }
    queries = found->second;
  }
  if (const auto* const halves = std::get_if<server::HalvesQueries>(queries.get())) {
    SHOAL_ASSIGN_OR_RETURN(const server::HalvesAnswers answers,
                           node_->OnlineOfHalves(round_id, halves->a, halves->b));
    SHOAL_RETURN_IF_ERROR(frontend_->AnswersReady(round_id, *answers.a, *answers.b, reports));
  } else {
    alone = false;
    SHOAL_ASSIGN_OR_RETURN(const auto answers,
                           node_->OnlineOfKept(round_id, std::get<Bytes>(*queries), attempt));
    // All answers of the next party are here, so that from here on no link is concerned.
    alone = true;
    SHOAL_RETURN_IF_ERROR(frontend_->AnswersReady(round_id, *answers, reports));
  }
  const MutexLock lock(mutex_);
  queries_.erase(round_id);
  return absl::OkStatus();
}

bool OwnSteps::HoldsQueries(const Digest& round_id) const {
  const MutexLock lock(mutex_);
  return queries_.contains(round_id);
}

void OwnSteps::End(const Digest& round_id, const std::string& reason) {
  reason.empty() ? frontend_->Close(round_id) : frontend_->Abort(round_id, reason);
  const MutexLock lock(mutex_);
  queries_.erase(round_id);
}

absl::Status OwnSteps::Do(const Digest& round_id, wire::RoundStep step, uint64_t attempt) {
  switch (step) {
    case wire::SEAL:
      SHOAL_RETURN_IF_ERROR(frontend_->WaitUntilShown(round_id, wire::SEALED));
      return Seal(round_id).status();
    case wire::RUN_OFFLINE:
      return Offline(round_id, attempt);
    case wire::TAKE_QUERIES:
      return OpenForQueries(round_id, {});  // the head's are shown
    case wire::CLOSE_QUERIES:
      SHOAL_RETURN_IF_ERROR(frontend_->WaitUntilShown(round_id, wire::ANSWERING));
      return CloseQueries(round_id).status();
    case wire::RUN_ONLINE:
      return Online(round_id, attempt, [] { return server::StageReports(); });
    default:
      break;
  }
  return absl::InvalidArgumentError("no such step");
}

absl::Status AllSteps::Open(const round::Round& round) {
  SHOAL_RETURN_IF_ERROR(orders_->OpenAtAll(round, [&] { return own_->Open(round); }));
  return frontend_->Decide(round.id(), wire::OPEN_FOR_ONIONS);
}

absl::StatusOr<uint64_t> AllSteps::Seal(const Digest& round_id) {
  SHOAL_RETURN_IF_ERROR(orders_->WaitUntilShown(round_id, wire::SEALED));
  SHOAL_RETURN_IF_ERROR(
      orders_->DoAtAll(round_id, wire::SEAL, 0, [&] { return own_->Seal(round_id).status(); }));
  SHOAL_ASSIGN_OR_RETURN(const server::Counts totals, frontend_->Totals(round_id));
  return totals.onions;
}

absl::Status AllSteps::Offline(const Digest& round_id) {
  const uint64_t attempt = ++attempts_;
  return orders_->DoAtAll(round_id, wire::RUN_OFFLINE, attempt,
                          [&] { return own_->Offline(round_id, attempt); });
}

absl::Status AllSteps::OpenForQueries(const Digest& round_id, server::StageReports reports) {
  SHOAL_RETURN_IF_ERROR(orders_->DoAtAll(round_id, wire::TAKE_QUERIES, 0, [&] {
    return own_->OpenForQueries(round_id, std::move(reports));
  }));
  return frontend_->Decide(round_id, wire::OPEN_FOR_QUERIES);
}

absl::StatusOr<uint64_t> AllSteps::CloseQueries(const Digest& round_id) {
  SHOAL_RETURN_IF_ERROR(orders_->WaitUntilShown(round_id, wire::ANSWERING));
  SHOAL_RETURN_IF_ERROR(orders_->DoAtAll(round_id, wire::CLOSE_QUERIES, 0,
                                         [&] { return own_->CloseQueries(round_id).status(); }));
  SHOAL_ASSIGN_OR_RETURN(const server::Counts totals, frontend_->Totals(round_id));
  return totals.queries;
}

absl::Status AllSteps::Online(const Digest& round_id, const MakeReports& reports) {
  const uint64_t attempt = ++attempts_;
  SHOAL_RETURN_IF_ERROR(orders_->DoAtAll(round_id, wire::RUN_ONLINE, attempt,
                                         [&] { return own_->Online(round_id, attempt, reports); }));
  return frontend_->Decide(round_id, wire::ANSWERED);
}

void AllSteps::End(const Digest& round_id, const std::string& reason) {
  own_->End(round_id, reason);
}

}  // namespace shoal::shoald
