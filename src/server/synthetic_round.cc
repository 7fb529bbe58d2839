#include "src/server/synthetic_round.h"

#include <algorithm>
#include <span>

#include "src/server/offline.h"

namespace shoal::server {

SyntheticRound::SyntheticRound(const Shape& shape, RandomSource& random) {
  for (uint32_t party = 1; party <= shape.parties; ++party) {
    secrets_.emplace_back(random.NewSeed());
    recipients_.push_back(*onion::Recipient::Create(secrets_.back().OnionKeyPair().public_key));
  }
  for (uint32_t party = 1; party <= shape.parties; ++party) {
    contexts_.push_back({.counter = RoundCounter(1),
                         .round_id = {},
                         .party = PartyNumber(party),
                         .parties = shape.parties,
                         .answer_bytes = shape.answer_bytes,
                         .max_rows = shape.max_rows,
                         .max_slots = shape.max_slots,
                         .noise = shape.noise,
                         .next_recipients = {recipients_.begin() + party, recipients_.end()}});
  }
}

SyntheticRound::Input SyntheticRound::MakeInput(size_t count, size_t each, RandomSource& random,
                                                ThreadPool& pool) const {
  const size_t parties = recipients_.size(), layers = parties - 1;
  const size_t onion_bytes = onion::OnionBytes(layers);
  const size_t whole_bytes = kSubmissionLengthBytes + onion::SubmissionBytes(parties, each);
  const size_t submissions = (count + each - 1) / each;
  Input input;
  input.seeds.resize(32 * parties * count);
  Bytes secrets(32 * (layers * count + submissions));
  random.Fill(secrets);
  const BytesView inner_secrets = BytesView(secrets).first(32 * layers * count);
  const BytesView outer_secrets = BytesView(secrets).subspan(inner_secrets.size());
  const size_t last = count - (submissions == 0 ? 0 : (submissions - 1) * each);
  if (submissions > 0) {
    input.list.resize((submissions - 1) * whole_bytes + kSubmissionLengthBytes +
                      onion::SubmissionBytes(parties, last));
  }
  pool.ParallelFor(submissions, 1, [&](size_t s, size_t) {
    const size_t first = s * each, n = std::min(each, count - first);
    Bytes seeds(32 * layers * n), first_seeds(32 * n), onions(n * onion_bytes);
    onion::BuildOnions({}, 2, std::span(recipients_).subspan(1),
                       inner_secrets.subspan(32 * layers * first, 32 * layers * n), seeds, onions);
    const MutableBytes place =
        MutableBytes(input.list)
            .subspan(s * whole_bytes, kSubmissionLengthBytes + onion::SubmissionBytes(parties, n));
    StoreLe(place.data(), static_cast<uint32_t>(place.size() - kSubmissionLengthBytes));
    const onion::SubmissionToSeal submission = {
        .ephemeral_secret = outer_secrets.subspan(32 * s, 32),
        .onions = onions,
        .submission = place.subspan(kSubmissionLengthBytes),
        .seeds = first_seeds};
    onion::SealSubmissions(recipients_[0], {}, {&submission, 1});
    for (size_t i = 0; i < n; ++i) {
      uint8_t* const to = input.seeds.data() + 32 * parties * (first + i);
      std::copy_n(first_seeds.data() + 32 * i, 32, to);
      std::copy_n(seeds.data() + 32 * layers * i, 32 * layers, to + 32);
    }
  });
  return input;
}

}  // namespace shoal::server
