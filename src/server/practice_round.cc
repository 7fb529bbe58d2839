#include "src/server/practice_round.h"

namespace shoal::server {

PracticeRound::PracticeRound(const Shape& shape, RandomSource& random) {
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

}  // namespace shoal::server
