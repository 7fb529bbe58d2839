// Fetches a round's answers, and shows them as the answers of a lookup.
#ifndef SHOAL_SRC_CLIENT_CHAIN_ANSWERS_H_
#define SHOAL_SRC_CLIENT_CHAIN_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/client/answer_spool.h"
#include "src/client/chain_call.h"
#include "src/client/round_status.h"
#include "src/client/row_source.h"
#include "src/client/state.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"

namespace shoal::client {

// The spool of a round with submitted queries.
absl::StatusOr<std::unique_ptr<AnswerSpool>> OpenSpool(StateStore& store,
                                                       const ChainOptions& options,
                                                       const HeldRound& held);

// ChainClient::Collect.
RoundStatus Collect(const ChainCall& call, const Digest& round_id, AnswerSpool& spool);

// Hands out what the term of an answered round needs.
absl::Status TellEnrolled(const ChainCall& call, const HeldRound& held, const round::Round& round);

// Answers of the chain, which may lack rows that were wanted.
class ChainAnswers : public RowAnswers {
 public:
  std::span<const uint32_t> unasked() const override { return unasked_; }
  void set_unasked(std::vector<uint32_t> rows) { unasked_ = std::move(rows); }

 private:
  std::vector<uint32_t> unasked_;
};

// The answers of one round, in its spool.
class AnswersOfRound final : public ChainAnswers {
 public:
  // `spool` is complete.
  AnswersOfRound(const ChainCall& call, HeldRound* held, round::Round round,
                 std::unique_ptr<AnswerSpool> spool);

  const Digest& round_id() const { return held_.id; }
  std::span<const uint32_t> rows() const override { return held_.rows; }
  absl::Status Read(size_t first, MutableBytes out) const override;
  absl::Status Erase() override;

 private:
  StateStore& store_;
  ThreadPool* const pool_;
  HeldRound& held_;
  const round::Round round_;
  const std::unique_ptr<AnswerSpool> spool_;
  const Digest lookup_;
};

// The answers of a lookup that is spread over rounds, unmasked and in memory: a round's entry in
// the state may end before the last round is answered.
class AnswersOfRounds final : public ChainAnswers {
 public:
  AnswersOfRounds(const ChainCall& call, const Digest& spread);

  // To be called before anything else changes the state, which `answers` refers to.
  absl::Status Add(const AnswersOfRound& answers);

  std::span<const uint32_t> rows() const override { return rows_; }
  absl::Status Read(size_t first, MutableBytes out) const override;
  absl::Status Erase() override;

 private:
  StateStore& store_;
  const size_t answer_bytes_;
  const Digest lookup_;
  const Digest spread_;
  std::vector<Digest> rounds_;
  std::vector<uint32_t> rows_;
  SecretVector<uint8_t> answers_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CHAIN_ANSWERS_H_
