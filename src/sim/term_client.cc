#include "src/sim/term_client.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/round/refresh.h"
#include "src/sharing/sharing.h"

namespace shoal::sim {

using wire::FrameType;

namespace {

// What was fetched -> row and signature, or zeros if the tag is wrong.
void Unmask(std::span<const Seed> seeds, std::span<const Digest> ids, Bytes& answer) {
  std::vector<sharing::AnswerSeed> all;
  for (size_t j = 0; j < seeds.size(); ++j) all.push_back({seeds[j].view(), ids[j]});
  sharing::UnmaskAnswer(all, answer);
  answer.resize(answer.size() - sharing::kAnswerTagBytes);
}

}  // namespace

template <typename Response, typename Request>
absl::StatusOr<Response> TermClient::Ask(FrameType type, const Request& request) const {
  SHOAL_ASSIGN_OR_RETURN(const wire::Frame answer, call_(wire::MakeFrame(type, request)));
  Response response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer, type, response));
  return response;
}

absl::Status TermClient::WaitFor(wire::RoundState state) const {
  for (;;) {
    wire::WaitRoundRequest request;
    request.set_round_id(ToString(id_));
    request.set_state(state);
    request.set_timeout_ms(60'000);
    SHOAL_ASSIGN_OR_RETURN(const auto response,
                           Ask<wire::WaitRoundResponse>(FrameType::kWaitRound, request));
    if (response.round().state() == state) return absl::OkStatus();
    if (response.round().state() > state) {
      return absl::AbortedError(absl::StrCat(wire::RoundState_Name(response.round().state()), ": ",
                                             response.round().abort_reason()));
    }
  }
}

std::vector<Bytes> TermClient::Cut(const std::string& answers) const {
  std::vector<Bytes> cut;
  const size_t each = round::TaggedAnswerBytes(round_);
  for (size_t i = 0; i < rows_.size() && answers.size() >= (i + 1) * each; ++i) {
    cut.push_back(ToBytes(AsBytes(answers).subspan(i * each, each)));
  }
  return cut;
}

absl::Status TermClient::FindRound() {
  round_.Clear();
  SHOAL_ASSIGN_OR_RETURN(const auto list, Ask<wire::ListRoundsResponse>(FrameType::kListRounds,
                                                                        wire::ListRoundsRequest()));
  for (const wire::RoundInfo& info : list.rounds()) {
    const wire::RoundHeader& header = info.header().header();
    if (info.state() == wire::OPEN_FOR_ONIONS && header.max_refreshes() > 0) round_ = header;
  }
  if (round_.counter() == 0) return absl::UnavailableError("no round with a term takes onions");
  id_ = round::RoundId(round_);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> TermClient::TakeSlots(size_t slots, Bytes& outer, Bytes& inner) {
  std::vector<onion::Recipient> recipients;
  for (const std::string& key : round_.onion_keys()) {
    onion::PublicKey bytes;
    std::copy_n(key.begin(), std::min(key.size(), bytes.size()), bytes.begin());
    SHOAL_ASSIGN_OR_RETURN(onion::Recipient recipient, onion::Recipient::Create(bytes));
    recipients.push_back(std::move(recipient));
  }
  const size_t later = recipients.size() - 1;
  Bytes ephemeral(slots * later * 32);
  inner.resize(slots * later * 32);
  Bytes onions(slots * onion::OnionBytes(later));
  random_->Fill(ephemeral);
  onion::BuildOnions(id_, 2, std::span(recipients).subspan(1), ephemeral, inner, onions);
  const Seed secret = random_->NewSeed();
  Bytes submission(onions.size() + onion::kSealBytes);
  outer.resize(slots * 32);
  const onion::SubmissionToSeal to_seal = {.ephemeral_secret = secret.view(),
                                           .onions = onions,
                                           .submission = submission,
                                           .seeds = outer};
  onion::SealSubmissions(recipients[0], id_, {&to_seal, 1});
  wire::SubmitOnionsRequest submit;
  submit.set_round_id(ToString(id_));
  submit.add_submissions(ToString(submission));
  SHOAL_ASSIGN_OR_RETURN(const auto given,
                         Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, submit));
  if (given.first_slots_size() != 1) return absl::InternalError("no slots");
  return given.first_slots(0);
}

absl::StatusOr<std::vector<Bytes>> TermClient::Enrol(const std::vector<uint32_t>& rows) {
  rows_ = rows;
  term_seeds_.clear();
  SHOAL_RETURN_IF_ERROR(FindRound());
  // One more than is used.
  Bytes outer, inner;
  SHOAL_ASSIGN_OR_RETURN(const uint32_t first_slot, TakeSlots(rows.size() + 1, outer, inner));
  SHOAL_RETURN_IF_ERROR(WaitFor(wire::OPEN_FOR_QUERIES));

  std::vector<std::vector<Seed>> seeds(rows.size());
  wire::SubmitQueriesRequest queries;
  Bytes numbers, tallies;
  for (size_t i = 0; i < rows.size(); ++i) {
    seeds[i].emplace_back(BytesView(outer).subspan(32 * i, 32));
    const auto later = static_cast<size_t>(round_.onion_keys_size() - 1);
    for (size_t j = 0; j < later; ++j) {
      seeds[i].emplace_back(BytesView(inner).subspan(32 * (later * i + j), 32));
    }
    std::vector<sharing::QueryShare> shares;
    for (const Seed& seed : seeds[i]) shares.push_back(sharing::Expand(seed.view(), id_).share);
    AppendLe(numbers, static_cast<uint32_t>(first_slot + i));
    AppendLe(tallies, sharing::FirstTally(shares, rows[i]));
    queries.mutable_tokens()->append(ToString(sharing::Expand(seeds[i][0].view(), id_).token));
  }
  slots_ = ToString(numbers);
  queries.set_round_id(ToString(id_));
  queries.set_slots(slots_);
  queries.set_tallies(ToString(tallies));
  SHOAL_RETURN_IF_ERROR(
      Ask<wire::SubmitQueriesResponse>(FrameType::kSubmitQueries, queries).status());
  SHOAL_RETURN_IF_ERROR(WaitFor(wire::ANSWERED));
  wire::FetchAnswersRequest fetch;
  fetch.set_round_id(ToString(id_));
  fetch.set_slots(slots_);
  fetch.set_tokens(queries.tokens());
  SHOAL_ASSIGN_OR_RETURN(const auto fetched,
                         Ask<wire::FetchAnswersResponse>(FrameType::kFetchAnswers, fetch));
  std::vector<Bytes> answers = Cut(fetched.answers());
  for (size_t i = 0; i < answers.size(); ++i) {
    Unmask(seeds[i], std::vector<Digest>(seeds[i].size(), id_), answers[i]);
  }
  for (const std::vector<Seed>& own : seeds) {
    std::vector<Seed>& kept = term_seeds_.emplace_back();
    for (const Seed& seed : own) kept.push_back(round::TermSeed(seed.view(), id_));
  }
  return answers;
}

absl::StatusOr<wire::GetRefreshResponse> TermClient::Latest() const {
  wire::GetRefreshRequest get;
  get.set_round_id(ToString(id_));
  SHOAL_ASSIGN_OR_RETURN(wire::GetRefreshResponse latest,
                         Ask<wire::GetRefreshResponse>(FrameType::kGetRefresh, get));
  if (!latest.has_refresh()) return latest;
  SHOAL_RETURN_IF_ERROR(round::VerifyRefresh(latest.refresh(), id_, round_, *roster_));
  if (latest.tags().size() != roster_->size() * sizeof(round::RefreshTag)) {
    return absl::InternalError("another number of tags than parties");
  }
  return latest;
}

absl::StatusOr<std::vector<Bytes>> TermClient::Fetch(const wire::GetRefreshResponse& latest) const {
  const wire::RefreshHeader& header = latest.refresh().header();
  std::vector<Digest> masks;
  for (size_t j = 0; j < roster_->size(); ++j) {
    round::RefreshTag tag;
    std::copy_n(latest.tags().begin() + static_cast<ptrdiff_t>(j * tag.size()), tag.size(),
                tag.begin());
    masks.push_back(round::RefreshMasksId(header, tag));
  }
  wire::FetchRefreshRequest fetch;
  fetch.set_round_id(ToString(id_));
  fetch.set_number(header.number());
  fetch.set_slots(slots_);
  for (const std::vector<Seed>& own : term_seeds_) {
    fetch.mutable_tokens()->append(ToString(sharing::Expand(own[0].view(), masks[0]).token));
  }
  SHOAL_ASSIGN_OR_RETURN(const auto fetched,
                         Ask<wire::FetchRefreshResponse>(FrameType::kFetchRefresh, fetch));
  std::vector<Bytes> answers = Cut(fetched.answers());
  for (size_t i = 0; i < answers.size(); ++i) Unmask(term_seeds_[i], masks, answers[i]);
  return answers;
}

}  // namespace shoal::sim
