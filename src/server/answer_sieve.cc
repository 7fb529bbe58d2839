#include "src/server/answer_sieve.h"

#include <algorithm>
#include <numeric>

#include "src/base/check.h"
#include "src/machines/load_bound.h"

namespace shoal::server {

AnswerSieve::AnswerSieve(uint64_t answers, uint64_t queries, uint64_t positions, size_t block)
    : answers_(answers), queries_(queries), positions_(positions) {
  SHOAL_CHECK(queries <= answers && queries <= positions && block > 0);
  const uint64_t kept = answers / block * KeptOf(block) + KeptOf(answers % block);
  // Enough, unless a block has more queries than the most.
  noise_places_ = kept - std::min(kept, queries);
  if (noise_places_ < 3) return;
  stride_ = static_cast<uint64_t>(0.618 * static_cast<double>(noise_places_)) + 1;
  while (std::gcd(stride_, noise_places_) != 1) ++stride_;
}

uint64_t AnswerSieve::KeptOf(uint64_t answers) const {
  return answers == 0 ? 0 : machines::MostDrawn(answers, queries_, answers_);
}

AnswerSieve::Kept AnswerSieve::Next(std::span<const uint32_t> origins) {
  const size_t n = origins.size();
  numbers_.resize(2 * n);
  noise_.resize(n + 1);
  // Without a branch: whether an answer is for noise does not show.
  size_t queries = 0;
  for (size_t i = 0; i < n; ++i) {
    numbers_[queries] = static_cast<uint32_t>(i);
    noise_[i - queries] = static_cast<uint32_t>(i);
    queries += origins[i] < positions_ ? 1 : 0;
  }
  const size_t most = KeptOf(n);
  const size_t noise = std::min(
      {most - std::min(most, queries), n - queries, static_cast<size_t>(noise_places_ - given_)});
  places_.resize(queries + noise);
  for (size_t i = 0; i < queries; ++i) places_[i] = origins[numbers_[i]];
  for (size_t i = 0; i < noise; ++i) {
    numbers_[queries + i] = noise_[i];
    places_[queries + i] = static_cast<uint32_t>(positions_ + next_);
    next_ += stride_;
    if (next_ >= noise_places_) next_ -= noise_places_;
  }
  given_ += noise;
  return {.numbers = std::span(numbers_).first(queries + noise), .places = places_};
}

}  // namespace shoal::server
