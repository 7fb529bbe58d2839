#include "src/client/chain_answers.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/device.h"
#include "src/client/exchange.h"
#include "src/client/held_rounds.h"
#include "src/client/refresh.h"

namespace shoal::client {
namespace {

// Answers that one task unmasks: a batch of onions, whose seeds are computed again.
constexpr size_t kAnswerGrain = 128;

RoundStatus WaitUntilAnswered(const ChainCall& call, HeldRound& held, const round::Round& round) {
  HeldRounds held_rounds(call);
  held_rounds.BePatient(held);
  ShowUnderWay(call.options, &held);
  call.environment.Wait(absl::StrCat("waiting for the answers of ", RoundName(held)),
                        round.header().queries_close_s());
  const RoundStatusOr<wire::RoundState> state = held_rounds.WaitFor(
      held, wire::ANSWERED,
      round.header().expires_s() + call.deployment.roster().clock_tolerance_s());
  if (absl::IsDeadlineExceeded(state.status().reason())) {
    return held_rounds.Leave(held, "was not answered in its time");
  }
  if (!state.ok()) return state.status();
  if (*state == wire::ABORTED) return held_rounds.Leave(held, "was aborted");
  if (*state != wire::ANSWERED) {
    return held_rounds.Leave(held, "was closed before its answers were fetched");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AnswerSpool>> OpenSpool(StateStore& store,
                                                       const ChainOptions& options,
                                                       const HeldRound& held) {
  return AnswerSpool::Open(store.AnswersPath(held.counter()), held.id, held.rows.size(),
                           round::FetchedAnswerBytes(held.header.header()), options.piece_bytes);
}

RoundStatus Collect(const ChainCall& call, const Digest& round_id, AnswerSpool& spool) {
  HeldRounds held_rounds(call);
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, held_rounds.Find(round_id));
  if (held->rows.empty()) return absl::FailedPreconditionError("no queries were sent");
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, held_rounds.Verify(*held));
  if (RoundStatus answered = WaitUntilAnswered(call, *held, round); !answered.ok()) return answered;
  const size_t total = held->rows.size();
  call.environment.Tell(absl::StrCat("fetching ", total, " answers"));
  std::atomic<size_t> done = 0;
  std::atomic<bool> disk_failed = false;
  const auto fetch = [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
    const size_t piece = first / spool.per_piece();
    if (!spool.Has(piece)) {
      Bytes answers(count * round.fetched_bytes());
      SHOAL_RETURN_IF_ERROR(exchange.FetchAnswers(round, held->Onions(first, count), answers));
      if (absl::Status put = spool.Put(piece, answers); !put.ok()) {
        disk_failed = true;
        return put;
      }
    }
    call.environment.Count("fetching answers", done += count, total);
    return absl::OkStatus();
  };
  const RoundStatus fetched = held_rounds.AtMachine(*held, [&] {
    done = 0;
    return call.links.ForPieces(*held, total, spool.per_piece(), fetch);
  });
  if (fetched.left_round()) return fetched;
  // If the disk failed, missing answers can still be fetched later.
  return (fetched.ok() || disk_failed ? fetched : held_rounds.AfterFailure(*held, fetched.reason()))
      .Annotated("fetching answers");
}

absl::Status TellEnrolled(const ChainCall& call, const HeldRound& held, const round::Round& round) {
  const std::vector<OnionRange> ranges = held.Onions(0, held.rows.size());
  const SecretVector<uint8_t> seeds = TermSeedsOf(round, ranges, call.environment.pool);
  std::vector<uint32_t> slots;
  for (const OnionRange& range : ranges) {
    for (uint32_t i = 0; i < range.count; ++i) {
      slots.push_back(*range.submission->first_slot + range.first + i);
    }
  }
  return call.options.term->enrolled(
      {.header = held.header, .rows = held.rows, .slots = slots, .seeds = seeds});
}

AnswersOfRound::AnswersOfRound(const ChainCall& call, HeldRound* held, round::Round round,
                               std::unique_ptr<AnswerSpool> spool)
    : store_(call.store),
      pool_(call.environment.pool),
      held_(*held),
      round_(std::move(round)),
      spool_(std::move(spool)),
      lookup_(*call.lookup) {}

absl::Status AnswersOfRound::Read(size_t first, MutableBytes out) const {
  const size_t each = round_.answer_bytes(), fetched_bytes = round_.fetched_bytes();
  Bytes fetched(out.size() / each * fetched_bytes);
  SHOAL_RETURN_IF_ERROR(spool_->Read(first, fetched));
  pool_->ParallelFor(out.size() / each, kAnswerGrain, [&](size_t begin, size_t end) {
    Unmask(round_, held_.Onions(first + begin, end - begin),
           BytesView(fetched).subspan(begin * fetched_bytes, (end - begin) * fetched_bytes),
           out.subspan(begin * each, (end - begin) * each));
  });
  return absl::OkStatus();
}

absl::Status AnswersOfRound::Erase() {
  store_.state().DropLookup(lookup_);
  store_.state().End(held_);
  return store_.Save();
}

AnswersOfRounds::AnswersOfRounds(const ChainCall& call, const Digest& spread)
    : store_(call.store),
      answer_bytes_(call.deployment.manifest().answer_bytes()),
      lookup_(*call.lookup),
      spread_(spread) {}

absl::Status AnswersOfRounds::Add(const AnswersOfRound& answers) {
  const size_t before = answers_.size();
  answers_.resize(before + answers.rows().size() * answer_bytes_);
  rows_.insert(rows_.end(), answers.rows().begin(), answers.rows().end());
  rounds_.push_back(answers.round_id());
  return answers.Read(0, MutableBytes(answers_).subspan(before));
}

absl::Status AnswersOfRounds::Read(size_t first, MutableBytes out) const {
  const BytesView from = BytesView(answers_).subspan(first * answer_bytes_, out.size());
  std::copy(from.begin(), from.end(), out.begin());
  return absl::OkStatus();
}

absl::Status AnswersOfRounds::Erase() {
  State& state = store_.state();
  state.DropLookup(lookup_);
  state.DropSpread(spread_);
  for (const Digest& id : rounds_) {
    if (HeldRound* const held = state.FindRound(id); held != nullptr) state.End(*held);
  }
  return store_.Save();
}

}  // namespace shoal::client
