#include "src/server/synthetic_round.h"

#include <algorithm>
#include <span>
#include <utility>

#include "src/server/offline.h"

namespace shoal::server {

namespace {

std::vector<RoundSecrets> DrawSecrets(uint32_t parties, RandomSource& random) {
  std::vector<RoundSecrets> secrets;
  for (uint32_t party = 1; party <= parties; ++party) secrets.emplace_back(random.NewSeed());
  return secrets;
}

std::pair<SyntheticRound, SyntheticRound> MakeHalves(const SyntheticTwoTiers::Shape& shape,
                                                     const sharing::HalfIds& ids,
                                                     const QueryBuckets& buckets,
                                                     RandomSource& random) {
  const Seed first = random.NewSeed(), second = random.NewSeed();
  const auto make = [&](sharing::Half half, const Seed& head, const Seed& tail) {
    std::vector<RoundSecrets> secrets;
    for (const Seed* const root : {&head, &tail}) {
      secrets.emplace_back(sharing::HalfRoot(root->view(), half));
    }
    return SyntheticRound({.answer_bytes = shape.answer_bytes,
                           .max_rows = shape.buckets,
                           .max_slots = shape.max_slots,
                           .noise = shape.noise,
                           .round_id = ids.of(half),
                           .half = RoundContext::OfHalf{half, ids, buckets}},
                          std::move(secrets));
  };
  return {make(sharing::Half::kA, first, second), make(sharing::Half::kB, second, first)};
}

}  // namespace

SyntheticRound::SyntheticRound(const Shape& shape, RandomSource& random)
    : SyntheticRound(shape, DrawSecrets(shape.parties, random)) {}

SyntheticRound::SyntheticRound(const Shape& shape, std::vector<RoundSecrets> secrets)
    : secrets_(std::move(secrets)) {
  for (const RoundSecrets& each : secrets_) {
    recipients_.push_back(*onion::Recipient::Create(each.OnionKeyPair().public_key));
  }
  for (uint32_t party = 1; party <= shape.parties; ++party) {
    contexts_.push_back({.counter = RoundCounter(1),
                         .round_id = shape.round_id,
                         .party = PartyNumber(party),
                         .parties = shape.parties,
                         .answer_bytes = shape.answer_bytes,
                         .max_rows = shape.max_rows,
                         .max_slots = shape.max_slots,
                         .noise = shape.noise,
                         .next_recipients = {recipients_.begin() + party, recipients_.end()},
                         .half = shape.half});
  }
}

SyntheticRound::Input SyntheticRound::MakeInput(size_t count, size_t each, RandomSource& random,
                                                ThreadPool& pool) const {
  const size_t parties = recipients_.size(), layers = parties - 1;
  const Digest& round_id = contexts_[0].round_id;
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
    onion::BuildOnions(round_id, 2, std::span(recipients_).subspan(1),
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
    onion::SealSubmissions(recipients_[0], round_id, {&submission, 1});
    for (size_t i = 0; i < n; ++i) {
      uint8_t* const to = input.seeds.data() + 32 * parties * (first + i);
      std::copy_n(first_seeds.data() + 32 * i, 32, to);
      std::copy_n(seeds.data() + 32 * layers * i, 32 * layers, to + 32);
    }
  });
  return input;
}

SyntheticTwoTiers::SyntheticTwoTiers(const Shape& shape, RandomSource& random)
    : ids_(shape.round_id),
      buckets_(shape.rows, shape.buckets),
      halves_(MakeHalves(shape, ids_, buckets_, random)) {}

SyntheticTwoTiers::Input SyntheticTwoTiers::MakeInput(size_t count, size_t each,
                                                      RandomSource& random,
                                                      ThreadPool& pool) const {
  SyntheticRound::Input a = halves_.first.MakeInput(count, each, random, pool);
  SyntheticRound::Input b = halves_.second.MakeInput(count, each, random, pool);
  Input input = {.a = std::move(a.list), .b = std::move(b.list), .seeds = {}};
  constexpr size_t kHalf = 2 * 32;  // a head's and a tail's
  for (size_t i = 0; i < count; ++i) {
    Append(input.seeds, BytesView(a.seeds).subspan(kHalf * i, kHalf));
    Append(input.seeds, BytesView(b.seeds).subspan(kHalf * i, kHalf));
  }
  return input;
}

}  // namespace shoal::server
