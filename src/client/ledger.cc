#include "src/client/ledger.h"

#include <algorithm>
#include <utility>

#include "src/base/status_macros.h"
#include "src/noise/accountant.h"

namespace shoal::client {
namespace {

bool Same(const noise::Parameters& a, const noise::Parameters& b) {
  return a.mechanism == b.mechanism && a.epsilon == b.epsilon && a.delta == b.delta &&
         a.phi == b.phi && a.mode == b.mode && a.left_scale == b.left_scale &&
         a.right_scale == b.right_scale;
}

}  // namespace

void Ledger::Add(const Submission& submission) {
  const noise::Parameters& noise = submission.noise;
  latest_.push_back({.sent_s = submission.sent_s,
                     .round_counter = submission.round_counter,
                     .queries = submission.queries,
                     .epsilon = noise.epsilon,
                     .delta = noise.delta,
                     .phi = noise.phi});
  if (latest_.size() > kDetailed) latest_.pop_front();
  ++submissions_;
  queries_ += submission.queries;
  const uint32_t most = std::max(1u, submission.most_in_bucket);
  const uint32_t rest = submission.queries % most;
  if (submission.queries >= most || rest == 0) {
    AddChanges(noise, most, 1, submission.queries - rest);
  }
  if (rest > 0) AddChanges(noise, rest, submission.queries < most ? 1 : 0, rest);
}

void Ledger::AddChanges(const noise::Parameters& noise, uint32_t copies, uint64_t submissions,
                        uint64_t queries) {
  auto charged = std::ranges::find_if(noise_, [&](const ChargedNoise& other) {
    return other.copies == copies && Same(other.noise, noise);
  });
  if (charged == noise_.end()) {
    charged = noise_.insert(noise_.end(), ChargedNoise{.noise = noise, .copies = copies});
  }
  charged->submissions += submissions;
  charged->queries += queries;
}

absl::StatusOr<std::optional<double>> Ledger::EpsilonAt(double delta) const {
  const double left = delta / Grown(1);
  noise::Composition composition;
  std::vector<noise::Distribution> distributions;
  uint64_t changes = 0;
  for (const ChargedNoise& charged : noise_) {
    SHOAL_ASSIGN_OR_RETURN(noise::Distribution distribution,
                           noise::Distribution::Create(charged.noise));
    const uint64_t pairs = charged.queries / charged.copies;
    composition.noise.push_back({distribution.weights(), pairs, charged.copies});
    distributions.push_back(std::move(distribution));
    changes += std::min(pairs, noise::kMaxChanges + 1);
  }
  // Nobody computes with as many: no epsilon would hold.
  if (changes > noise::kMaxChanges) return std::optional<double>();
  const absl::StatusOr<double> epsilon = noise::ComposedEpsilon(composition, left);
  if (absl::IsOutOfRange(epsilon.status())) return std::optional<double>();
  if (!epsilon.ok()) return epsilon.status();
  return std::optional<double>(*epsilon);
}

absl::StatusOr<TotalLoss> Ledger::LossAt(double delta) const {
  TotalLoss loss{.delta = delta, .epsilon = {}, .beyond = {}};
  SHOAL_ASSIGN_OR_RETURN(loss.epsilon, EpsilonAt(delta));
  if (loss.epsilon) return loss;
  for (double larger = 10 * delta; larger > 0 && larger < 1; larger *= 10) {
    SHOAL_ASSIGN_OR_RETURN(const std::optional<double> epsilon, EpsilonAt(larger));
    if (!epsilon) continue;
    loss.beyond = {*epsilon, larger};
    break;
  }
  return loss;
}

absl::StatusOr<TotalLoss> LossOf(const noise::Parameters& noise, uint64_t queries, double delta,
                                 uint32_t most_in_bucket) {
  Ledger ledger;
  // In parts that fit a submission, and are multiples of what a bucket takes.
  const uint64_t most = std::max(1u, most_in_bucket);
  for (uint64_t left = queries; left > 0;) {
    const auto part =
        static_cast<uint32_t>(std::min<uint64_t>(left, ~uint32_t{0} - ~uint32_t{0} % most));
    ledger.Add({.sent_s = 0,
                .round_counter = 0,
                .queries = part,
                .noise = noise,
                .most_in_bucket = most_in_bucket});
    left -= part;
  }
  return ledger.LossAt(delta);
}

}  // namespace shoal::client
