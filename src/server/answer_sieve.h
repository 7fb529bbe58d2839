// Which of the next party's answers in a refresh are kept until the last one has come.
//
// Most may be answers to noise, which nobody needs. But the party alone knows which, and the next
// party sees how fast its answers are taken. So of every block of answers a fixed number is kept:
// all to queries, and of those to noise as many as are missing. The number is the most queries that
// a block has (machines::MostDrawn), as their order is uniform; it depends on the numbers of
// answers and of queries alone, which the parties on both sides can know. Then neither time nor
// memory depends on which answers are to noise, and only what is kept has to lie somewhere.
#ifndef SHOAL_SRC_SERVER_ANSWER_SIEVE_H_
#define SHOAL_SRC_SERVER_ANSWER_SIEVE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/secret.h"

namespace shoal::server {

// Thread-compatible.
class AnswerSieve {
 public:
  // `answers` come; `queries` of them are for places below `positions`, each for another one, and
  // the others are for noise. Blocks have `block` answers, but for the last one. queries <= answers
  // and queries <= positions; block > 0 (checked).
  AnswerSieve(uint64_t answers, uint64_t queries, uint64_t positions, size_t block);

  // Places of all that is kept: first those of the positions, then those of noise.
  uint64_t places() const { return positions_ + noise_places_; }

  // The answers of a block that are kept: answer numbers[i] of the block goes to places[i]. Valid
  // until the next call.
  struct Kept {
    std::span<const uint32_t> numbers, places;
  };
  // `origins`: for each answer of the next block its place, or any number from `positions` on if it
  // is for noise. If more are for queries than a block has (with a probability below 3e-18), all of
  // those are kept.
  Kept Next(std::span<const uint32_t> origins);

 private:
  uint64_t KeptOf(uint64_t answers) const;

  const uint64_t answers_, queries_, positions_;
  uint64_t noise_places_ = 0;
  // Noise goes to its places in strides, so that it touches memory as queries' answers do.
  uint64_t stride_ = 1;
  uint64_t next_ = 0;   // noise place
  uint64_t given_ = 0;  // noise places
  SecretVector<uint32_t> numbers_, noise_, places_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ANSWER_SIEVE_H_
