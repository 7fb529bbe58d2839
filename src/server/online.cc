#include "src/server/online.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/sharing/sharing.h"

namespace shoal::server {
namespace {

constexpr size_t kChunk = 2048;

absl::Status CheckPositions(const RoundState& state, const wire::QueryBatch& queries) {
  // The decoder has checked order and tallies; what it was told of N is checked here.
  if (!queries.positions.empty() && queries.positions.back() >= state.positions) {
    return absl::InvalidArgumentError(absl::StrCat("query batch: position ",
                                                   queries.positions.back(), " of ",
                                                   state.positions));
  }
  return absl::OkStatus();
}

// Every used position gets exactly one answer of the fixed size: what `answer` writes for a living
// one, under the mask; pseudorandom bytes for a dead one, which nobody has a mask for.
Bytes MaskedAnswers(const RoundContext& context, const RoundSecrets& secrets,
                    const RoundState& state, const wire::QueryBatch& queries, ThreadPool& pool,
                    const std::function<void(size_t i, MutableBytes out)>& answer) {
  const size_t answer_bytes = context.answer_bytes;
  Bytes out(queries.positions.size() * answer_bytes);
  const Seed dead_key = secrets.DeadAnswerKey();
  pool.ParallelFor(queries.positions.size(), kChunk, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const uint32_t position = queries.positions[i];
      const MutableBytes mine = MutableBytes(out).subspan(i * answer_bytes, answer_bytes);
      if (state.dead(position)) {
        uint8_t nonce[crypto_stream_chacha20_NONCEBYTES] = {};
        StoreLe(nonce, position);
        crypto_stream_chacha20(mine.data(), mine.size(), nonce, dead_key.data());
        continue;
      }
      answer(i, mine);
      sharing::XorMask(state.seed(position), context.round_id, mine);
    }
  });
  return out;
}

}  // namespace

absl::StatusOr<wire::QueryBatch> ForwardQueries(const RoundContext& context,
                                                const RoundState& state,
                                                const wire::QueryBatch& queries) {
  SHOAL_CHECK(!context.is_backend());
  SHOAL_RETURN_IF_ERROR(CheckPositions(state, queries));
  constexpr uint32_t kUnused = 0xffffffff;  // no tally: those are below p
  std::vector<uint32_t> next(state.next_positions, kUnused);
  for (size_t i = 0; i < queries.positions.size(); ++i) {
    const uint32_t position = queries.positions[i];
    if (state.dead(position)) continue;
    const sharing::QueryShare share =
        sharing::Expand(state.seed(position), context.round_id).share;
    next[state.target[position]] = sharing::Advance(share, queries.tallies[i]);
  }
  for (const NoiseQuery& query : state.noise) next[query.position] = query.tally;

  wire::QueryBatch out;
  out.positions.reserve(queries.positions.size() + state.noise.size());
  out.tallies.reserve(queries.positions.size() + state.noise.size());
  for (uint32_t position = 0; position < state.next_positions; ++position) {
    if (next[position] == kUnused) continue;
    out.positions.push_back(position);
    out.tallies.push_back(next[position]);
  }
  return out;
}

absl::StatusOr<Bytes> ReturnAnswers(const RoundContext& context, const RoundSecrets& secrets,
                                    const RoundState& state, const wire::QueryBatch& queries,
                                    const wire::QueryBatch& forwarded, BytesView answers,
                                    ThreadPool& pool) {
  SHOAL_CHECK(!context.is_backend());
  SHOAL_RETURN_IF_ERROR(CheckPositions(state, queries));
  const size_t answer_bytes = context.answer_bytes;
  if (answers.size() != forwarded.positions.size() * answer_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("answers: ", answers.size(), " bytes, where ", forwarded.positions.size(),
                     " queries of ", answer_bytes, " bytes each were asked"));
  }
  // Where the answer to one of the next party's positions stands in `answers`.
  SecretVector<uint32_t> rank(state.next_positions);
  for (size_t i = 0; i < forwarded.positions.size(); ++i) {
    rank[forwarded.positions[i]] = static_cast<uint32_t>(i);
  }
  return MaskedAnswers(context, secrets, state, queries, pool, [&](size_t i, MutableBytes out) {
    const size_t from = rank[state.target[queries.positions[i]]];
    std::copy_n(answers.data() + from * answer_bytes, answer_bytes, out.data());
  });
}

absl::StatusOr<Bytes> AnswerQueries(const RoundContext& context, const RoundSecrets& secrets,
                                    const RoundState& state, const wire::QueryBatch& queries,
                                    const AnswerTable& table, ThreadPool& pool) {
  SHOAL_CHECK(context.is_backend());
  SHOAL_CHECK(table.bytes.size() == table.rows * context.answer_bytes);
  SHOAL_RETURN_IF_ERROR(CheckPositions(state, queries));
  return MaskedAnswers(context, secrets, state, queries, pool, [&](size_t i, MutableBytes out) {
    const BytesView seed = state.seed(queries.positions[i]);
    const uint32_t row = sharing::Advance(sharing::Expand(seed, context.round_id).share,
                                          queries.tallies[i]);
    if (row >= table.rows) return;  // zeros under the mask
    std::copy_n(table.bytes.data() + row * context.answer_bytes, context.answer_bytes, out.data());
  });
}

}  // namespace shoal::server
