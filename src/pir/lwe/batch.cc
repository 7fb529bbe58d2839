#include "src/pir/lwe/batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/lwe/shape.h"

namespace shoal::pir::lwe {
namespace {

// Bytes of the table that are passed in the time in which a link carries one byte: 20 GB/s beside
// 100 Mbit/s.
constexpr double kPassedPerSentByte = 1600;
// A whole query in a full pass costs its server this part of a pass of its own (measured with
// AVX-512: 16 queries cost 7 passes; docs/performance.md).
constexpr double kWholeQueryPass = 0.45;
// A plan with batches must save this share of what whole queries cost. At smaller gains a server
// measured no difference, as each query of a batch is received, checked and packed like any other.
constexpr double kLeastGain = 0.2;
// The most bytes of whole queries in one request, so that slow links see progress.
constexpr uint64_t kRequestBytes = 4 << 20;

// Blocks of chunk `chunk`, none for the chunks beyond the last block.
uint64_t BlocksOf(const wire::PirSetup& setup, uint64_t chunks, uint64_t chunk) {
  const uint64_t each = ChunkBlocks(setup, chunks);
  const uint64_t first = std::min(chunk * each, setup.rows_per_column());
  return std::min(each, setup.rows_per_column() - first);
}

double LogFactorial(double n) {
  int sign = 0;  // std::lgamma keeps it in a global variable
  return lgamma_r(n + 1, &sign);
}

// ln E[exp(lambda max(0, X - batches))] for a binomial X: the keys of a chunk with this share.
double LogMomentOfOverflow(double keys, double share, double batches, double lambda) {
  if (batches >= keys) return 0;
  if (share >= 1) return lambda * (keys - batches);
  const double log_odds = std::log(share) - std::log1p(-share);
  double load = batches + 1;
  double log_probability = LogFactorial(keys) - LogFactorial(load) - LogFactorial(keys - load) +
                           load * log_odds + keys * std::log1p(-share);
  // 1 + the sum over loads above `batches` of P(load) (exp(lambda (load - batches)) - 1).
  double above = 0;
  for (; load <= keys; ++load) {
    const double over = lambda * (load - batches);
    const double term = std::exp(log_probability + over) * -std::expm1(-over);
    above += term;
    if (load > keys * share * std::exp(lambda) + 1 && term < 1e-16 * above) break;
    log_probability += std::log((keys - load) / (load + 1)) + log_odds;
  }
  return std::log1p(above);
}

// For each lambda tried, the bound's logarithm is chunks' moments less lambda (whole + 1).
constexpr double kLambdas[] = {0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4};

std::vector<double> LogMoments(const wire::PirSetup& setup, uint64_t keys, uint64_t batches,
                               uint64_t chunks) {
  // At most so much of the rows is in a chunk: its last column may not be full. All chunks but the
  // last have the same number of blocks.
  const uint64_t columns = (setup.rows() + setup.rows_per_column() - 1) / setup.rows_per_column();
  const auto share = [&](uint64_t chunk) {
    return static_cast<double>(BlocksOf(setup, chunks, chunk) * columns) /
           static_cast<double>(setup.rows());
  };
  const auto n = static_cast<double>(keys), most = static_cast<double>(batches);
  std::vector<double> moments;
  for (const double lambda : kLambdas) {
    moments.push_back(static_cast<double>(chunks - 1) *
                          LogMomentOfOverflow(n, share(0), most, lambda) +
                      LogMomentOfOverflow(n, share(chunks - 1), most, lambda));
  }
  return moments;
}

// The fewest whole queries that keep the bound.
uint64_t WholeQueries(const wire::PirSetup& setup, uint64_t keys, uint64_t batches,
                      uint64_t chunks) {
  const std::vector<double> moments = LogMoments(setup, keys, batches, chunks);
  double fewest = static_cast<double>(keys);
  for (size_t i = 0; i < moments.size(); ++i) {
    const double whole = (moments[i] - kOverflowLog2 * std::log(2.0)) / kLambdas[i] - 1;
    fewest = std::min(fewest, std::ceil(std::max(0.0, whole)));
  }
  return static_cast<uint64_t>(fewest);
}

class PlannedBatch final : public Batch {
 public:
  // `client` outlives the batch.
  PlannedBatch(const Client* client, const Sizes& sizes, const Wanted& wanted)
      : client_(*client),
        setup_(client->setup()),
        sizes_(sizes),
        plan_(PlanBatch(setup_, sizes, wanted.keys, wanted.spread)),
        records_(wanted.rows.size() * setup_.record_bytes()) {
    std::vector<SecretVector<Place>> by_chunk(std::max<uint64_t>(1, plan_.chunks));
    SecretVector<Place> whole;
    for (size_t i = 0; i < wanted.rows.size(); ++i) {
      const Place place = {.row = wanted.rows[i], .index = i};
      if (plan_.batches == 0) {
        whole.push_back(place);
        continue;
      }
      auto& chunk = by_chunk[ChunkOf(setup_, plan_.chunks, place.row)];
      (chunk.size() < plan_.batches ? chunk : whole).push_back(place);
    }
    for (uint64_t b = 0; b < plan_.batches; ++b) {
      Step step{.kind = kBatchOverChunks, .places = {}};
      for (uint64_t c = 0; c < plan_.chunks; ++c) {
        // The chunk's first row stands in.
        step.places.push_back(b < by_chunk[c].size()
                                  ? by_chunk[c][b]
                                  : Place{.row = c * ChunkBlocks(setup_, plan_.chunks)});
      }
      steps_.push_back(std::move(step));
    }
    // More than the plan has only if rows lie together that no hash spread (batch.h). Then every
    // key has a whole query, so that how many rows had no place is not seen.
    whole.resize(whole.size() > plan_.whole ? wanted.keys : plan_.whole);
    const uint64_t most = QueriesPerRequest(sizes_);
    for (size_t first = 0; first < whole.size(); first += most) {
      const size_t end = std::min<size_t>(whole.size(), first + most);
      steps_.push_back({.kind = kWholeQueries,
                        .places = {whole.begin() + static_cast<ptrdiff_t>(first),
                                   whole.begin() + static_cast<ptrdiff_t>(end)}});
    }
  }

  uint64_t steps() const override { return steps_.size() - next_; }

  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(next_ < steps_.size() && asked_.empty());
    const Step& step = steps_[next_];
    SecretVector<uint64_t> rows;
    for (const Place& place : step.places) rows.push_back(place.row);
    // Together: the public matrix is expanded once for them.
    SHOAL_ASSIGN_OR_RETURN(asked_, client_.Ask(rows, random));
    Request request;
    request.kind = step.kind;
    request.count = static_cast<uint32_t>(rows.size());
    for (size_t i = 0; i < asked_.size(); ++i) {
      Append(request.body, std::exchange(asked_[i].query, {}));
      request.answer_bytes += AnswerBytes(step, i);
    }
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    return requests;
  }

  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == 1 && !asked_.empty());
    const Step& step = steps_[next_];
    uint64_t total = 0;
    for (size_t i = 0; i < asked_.size(); ++i) total += AnswerBytes(step, i);
    if (answers[0].size() != total) {
      return absl::InvalidArgumentError(
          absl::StrFormat("pir: an answer of %d bytes, not %d", answers[0].size(), total));
    }
    BytesView rest = answers[0];
    // Recovers the rows that stand in, too, so that the time of the next request does not tell how
    // many of them there are.
    for (size_t i = 0; i < asked_.size(); ++i) {
      const BytesView answer = rest.first(AnswerBytes(step, i));
      rest = rest.subspan(answer.size());
      SHOAL_ASSIGN_OR_RETURN(const Bytes record,
                             step.kind == kBatchOverChunks
                                 ? client_.RecoverChunk(asked_[i], plan_.chunks, answer)
                                 : client_.Recover(asked_[i], answer));
      if (const size_t index = step.places[i].index; index != kNobody) {
        std::ranges::copy(record, records_.begin() + static_cast<ptrdiff_t>(index * record.size()));
      }
    }
    asked_.clear();
    ++next_;
    return absl::OkStatus();
  }

  SecretVector<uint8_t> TakeRecords() override {
    SHOAL_CHECK(steps() == 0);
    return std::move(records_);
  }

 private:
  static constexpr size_t kNobody = static_cast<size_t>(-1);
  struct Place {
    uint64_t row = 0;
    size_t index = kNobody;  // among the wanted rows
  };
  struct Step {
    uint32_t kind = 0;
    SecretVector<Place> places;
  };

  uint64_t AnswerBytes(const Step& step, size_t i) const {
    return step.kind == kBatchOverChunks ? ChunkAnswerBytes(setup_, sizes_, plan_.chunks, i)
                                         : sizes_.answer_bytes;
  }

  const Client& client_;
  const wire::PirSetup setup_;
  const Sizes sizes_;
  const BatchPlan plan_;
  std::vector<Step> steps_;
  size_t next_ = 0;
  std::vector<Asked> asked_;  // of the step under way
  SecretVector<uint8_t> records_;
};

}  // namespace

uint64_t QueriesPerRequest(const Sizes& sizes) {
  return std::clamp<uint64_t>(kRequestBytes / sizes.query_bytes, 1, kMaxQueriesPerRequest);
}

std::unique_ptr<Batch> NewBatch(const Client* client, const Sizes& sizes, const Wanted& wanted) {
  return std::make_unique<PlannedBatch>(client, sizes, wanted);
}

uint64_t ChunkAnswerBytes(const wire::PirSetup& setup, const Sizes& sizes, uint64_t chunks,
                          uint64_t chunk) {
  if (setup.engine() == SchemeName(Scheme::kDoublePir)) return sizes.answer_bytes;
  return RoundedBytes(BlocksOf(setup, chunks, chunk) * setup.record_bytes(), kAnswerBitsDropped);
}

double OverflowLog2(const wire::PirSetup& setup, uint64_t keys, uint64_t batches, uint64_t chunks,
                    uint64_t whole) {
  if (whole >= keys) return -std::numeric_limits<double>::infinity();
  const std::vector<double> moments = LogMoments(setup, keys, batches, chunks);
  double least = 0;
  for (size_t i = 0; i < moments.size(); ++i) {
    least = std::min(least, moments[i] - kLambdas[i] * (static_cast<double>(whole) + 1));
  }
  return least / std::log(2.0);
}

BatchPlan PlanBatch(const wire::PirSetup& setup, const Sizes& sizes, uint64_t keys, bool spread) {
  BatchPlan best = {.whole = keys};
  // In a table that does not fill its first column some chunks have no row.
  if (!spread || setup.rows() < setup.rows_per_column()) return best;
  const double pass = static_cast<double>(MatrixRows(setup)) * static_cast<double>(setup.columns());
  const auto sent = [](uint64_t bytes) { return kPassedPerSentByte * static_cast<double>(bytes); };
  const double whole_cost =
      kWholeQueryPass * pass + sent(sizes.query_bytes) + sent(sizes.answer_bytes);
  double least = (1 - kLeastGain) * static_cast<double>(keys) * whole_cost;
  for (const uint64_t chunks : kNumbersOfChunks) {
    if (BlocksOf(setup, chunks, chunks - 1) == 0) continue;
    uint64_t answers = 0;
    for (uint64_t i = 0; i < chunks; ++i) answers += ChunkAnswerBytes(setup, sizes, chunks, i);
    const double batch_cost = pass + sent(chunks * sizes.query_bytes) + sent(answers);
    // Batches from the mean load on: with fewer, many rows lack a place in any case.
    const double mean = static_cast<double>(keys) / static_cast<double>(chunks);
    const auto step = std::max<uint64_t>(1, static_cast<uint64_t>(mean / 64));
    for (auto batches = std::max<uint64_t>(1, static_cast<uint64_t>(mean));
         static_cast<double>(batches) * batch_cost < least; batches += step) {
      const uint64_t whole = WholeQueries(setup, keys, batches, chunks);
      const double cost =
          static_cast<double>(batches) * batch_cost + static_cast<double>(whole) * whole_cost;
      if (cost >= least) continue;
      least = cost;
      best = {.batches = batches, .chunks = chunks, .whole = whole};
    }
  }
  return best;
}

}  // namespace shoal::pir::lwe
