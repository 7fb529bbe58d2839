#include "src/pir/rlwe/hintless_server.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/kit/checks.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/pages.h"
#include "src/pir/rlwe/hintless_public.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"
#include "src/storage/memory.h"

namespace shoal::pir::rlwe {
namespace {

// Blocks of columns whose products are below Q / 2 in sum: 15 2^(7 + 31 + 11).
constexpr uint64_t kBlocksTogether = 15;
static_assert((kBlocksTogether << 49) < kModulus / 2);

// The rows of SimplePIR's hint, one at a time: sum over blocks j of columns of the row's bytes,
// less 128, as the polynomial sum of d_i X^-i, times a_j, modulo 2^32.
class HintRows {
 public:
  // All outlive it; `columns` has the images of a_j under X -> X^-1, transformed.
  HintRows(lwe::ByteMatrix& matrix, const std::vector<uint32_t>& columns, const RingKernel& kernel)
      : matrix_(matrix),
        columns_(columns),
        kernel_(kernel),
        elements_(columns.size()),
        sum_(kPolynomialWords) {}

  void Row(uint64_t row, uint32_t* out) {
    for (uint64_t column = 0; column < matrix_.columns(); column += lwe::kGroupColumns) {
      const uint8_t* const bytes = matrix_.Group(row, column);
      uint32_t* const to =
          elements_.data() + column / kDegree * kPolynomialWords + column % kDegree;
      for (size_t i = 0; i < lwe::kGroupColumns; ++i) {
        const int32_t value = int32_t{bytes[i]} - static_cast<int32_t>(lwe::kMaxPlaintext);
        const auto negative = static_cast<uint32_t>(value >> 31);
        to[i] = static_cast<uint32_t>(value) + (negative & kPrime[0]);
        to[kDegree + i] = static_cast<uint32_t>(value) + (negative & kPrime[1]);
      }
    }
    const uint64_t blocks = elements_.size() / kPolynomialWords;
    // What is behind the last column is zero, but for what an earlier row has left there.
    const uint64_t end = matrix_.columns() - (blocks - 1) * kDegree;
    for (size_t k = 0; k < kPrimes; ++k) {
      uint32_t* const last = elements_.data() + (blocks - 1) * kPolynomialWords + k * kDegree;
      std::fill(last + end, last + kDegree, 0);
    }
    for (uint64_t block = 0; block < blocks; ++block) {
      for (uint32_t k = 0; k < kPrimes; ++k) {
        Transform(k, elements_.data() + block * kPolynomialWords + k * kDegree, kernel_);
      }
    }
    std::fill_n(out, kDegree, 0);
    for (uint64_t first = 0; first < blocks; first += kBlocksTogether) {
      const uint64_t count = std::min(kBlocksTogether, blocks - first);
      for (uint32_t k = 0; k < kPrimes; ++k) {
        const size_t at = first * kPolynomialWords + k * kDegree;
        kernel_.dot(k, elements_.data() + at, kPolynomialWords, columns_.data() + at,
                    kPolynomialWords, count, nullptr, sum_.data() + k * kDegree);
        TransformBack(k, sum_.data() + k * kDegree, kernel_);
      }
      // Back to the images under X -> X^-1.
      out[0] += static_cast<uint32_t>(ComposeSigned(sum_[0], sum_[kDegree]));
      for (size_t w = 1; w < kDegree; ++w) {
        out[kDegree - w] -= static_cast<uint32_t>(ComposeSigned(sum_[w], sum_[kDegree + w]));
      }
    }
  }

 private:
  lwe::ByteMatrix& matrix_;
  const std::vector<uint32_t>& columns_;
  const RingKernel& kernel_;
  std::vector<uint32_t> elements_, sum_;
};

std::vector<uint32_t> ImagesOfColumns(const Digest& seed, uint64_t blocks) {
  std::vector<uint32_t> all;
  for (uint64_t block = 0; block < blocks; ++block) {
    const std::vector<uint32_t> words = ExpandColumnBlock(seed, block);
    std::vector<uint32_t> image(kPolynomialWords);
    const Orbit& orbit = Orbit::Get();
    for (size_t i = 0; i < kPolynomialWords; ++i) {
      const size_t k = i / kDegree, place = i % kDegree;
      image[k * kDegree + orbit.word(place)] =
          words[k * kDegree + orbit.word(Orbit::Source(place, 0, true))];
    }
    all.insert(all.end(), image.begin(), image.end());
  }
  return all;
}

// word / 2^32 of Q, to nearest.
uint64_t ScaledToModulus(uint32_t word) {
  return static_cast<uint64_t>(
      (static_cast<unsigned __int128>(word) * kModulus + (uint64_t{1} << 31)) >> 32);
}

}  // namespace

struct HintlessServer::Query {
  std::vector<uint32_t> words;
  PackKeys keys;
};

HintlessServer::HintlessServer(const wire::PirSetup& setup, const HintlessShape& shape,
                               const ServerOptions& options, const Kernels& kernels)
    : setup_(setup),
      matrix_setup_(MatrixSetup(setup, shape)),
      id_(SetupId(setup)),
      shape_(shape),
      pool_(options.pool),
      pass_kernel_(lwe::KernelOr(kernels.pass)),
      kernel_(kernels.ring == nullptr ? FastestRingKernel() : *kernels.ring),
      most_(kernels.most),
      packer_(HintlessPublicSeed(setup, shape), kernel_),
      columns_(ImagesOfColumns(HintlessPublicSeed(setup, shape), shape.blocks())),
      packs_(shape.packs()) {}

absl::StatusOr<std::unique_ptr<HintlessServer>> HintlessServer::Create(const Content& content,
                                                                       const wire::PirSetup& setup,
                                                                       const ServerOptions& options,
                                                                       const Kernels& kernels) {
  SHOAL_ASSIGN_OR_RETURN(const HintlessShape shape, ParseHintlessShape(setup));
  SHOAL_RETURN_IF_ERROR(CheckMemory(shape.server_bytes(), "a table for hintless"));
  std::unique_ptr<HintlessServer> server(new HintlessServer(setup, shape, options, kernels));
  SHOAL_ASSIGN_OR_RETURN(server->digits_, AllocatePages(shape.digits_bytes(), "hintless' digits"));
  SHOAL_ASSIGN_OR_RETURN(server->matrix_,
                         lwe::LoadMatrix(content, server->matrix_setup_, options.pool));
  std::vector<size_t> all(shape.packs());
  for (size_t p = 0; p < all.size(); ++p) all[p] = p;
  const size_t rooms = std::min<size_t>({all.size(), HintlessShape::kPacksTogether,
                                         options.pool == nullptr ? 1 : options.pool->size()});
  for (size_t i = 0; i < rooms; ++i) {
    SHOAL_ASSIGN_OR_RETURN(Packer::Room room, Packer::Room::Create());
    server->rooms_.push_back(std::move(room));
  }
  SHOAL_RETURN_IF_ERROR(server->MakePacks(all, options.progress));
  return server;
}

absl::StatusOr<std::unique_ptr<HintlessServer>> HintlessServer::CreateAtFirstDraw(
    const Content& content, wire::PirSetup setup, const ServerOptions& options,
    const Kernels& kernels) {
  SHOAL_ASSIGN_OR_RETURN(HintlessShape shape, ParseHintlessShape(setup));
  while (true) {
    absl::StatusOr<std::unique_ptr<HintlessServer>> server =
        Create(content, setup, options, kernels);
    if (server.status().code() != absl::StatusCode::kFailedPrecondition ||
        shape.draw == HintlessShape::kMaxDraw) {
      return server;
    }
    ++shape.draw;
    setup.set_shape(EncodeHintlessShape(shape));
  }
}

absl::Status HintlessServer::MakePacks(std::span<const size_t> packs,
                                       const std::function<void(uint64_t, uint64_t)>& progress) {
  const size_t workers = std::min(packs.size(), rooms_.size());
  std::atomic<size_t> next = 0;
  struct {
    Mutex mutex;
    size_t count ABSL_GUARDED_BY(mutex) = 0;
  } done;
  const auto work = [&](size_t begin, size_t end) {
    for (size_t worker = begin; worker < end; ++worker) {
      HintRows hint(*matrix_, columns_, kernel_);
      for (size_t i = next++; i < packs.size(); i = next++) {
        const size_t first = packs[i] * kDegree;
        packs_[packs[i]] = packer_.Make(
            std::min<size_t>(kDegree, shape_.outputs() - first),
            [&](size_t r, uint32_t* words) { hint.Row(first + r, words); }, rooms_[worker],
            digits(packs[i]));
        const MutexLock lock(done.mutex);
        ++done.count;
        if (progress) progress(done.count, packs.size());
      }
    }
  };
  if (workers <= 1) {
    work(0, workers);
  } else {
    pool_->ParallelFor(workers, 1, work);
  }
  for (const size_t p : packs) {
    const PackNorms norms = packs_[p].largest();
    if (norms.rotation > most_.rotation || norms.conjugation > most_.conjugation ||
        norms.secret > most_.secret) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "hintless: answers in pack %d would be too noisy under public parts %d", p, shape_.draw));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HintlessServer::Query> HintlessServer::Read(BytesView query) const {
  SHOAL_RETURN_IF_ERROR(CheckQuery(setup_, id_, shape_.query_bytes(), query));
  Query read;
  read.words.resize(shape_.columns);
  const uint64_t word_bytes = uint64_t{shape_.columns} * shape_.word_bits / 8;
  SHOAL_RETURN_IF_ERROR(lwe::ParseRounded(query.subspan(kQueryHeaderBytes, word_bytes),
                                          32 - shape_.word_bits, read.words));
  BytesView keys = query.subspan(kQueryHeaderBytes + word_bytes);
  std::vector<uint32_t> key(kPolynomialWords);
  for (std::vector<uint32_t>* each : {&read.keys.rotation, &read.keys.conjugation}) {
    SHOAL_RETURN_IF_ERROR(ReadResidues(keys.first(kCollapseKeyBytes), key));
    keys = keys.subspan(kCollapseKeyBytes);
    each->resize(kSlidingWords);
    MakeSliding(key.data(), each->data());
  }
  return read;
}

absl::StatusOr<std::vector<std::vector<uint64_t>>> HintlessServer::Bodies(
    std::span<const Query> queries, Phases& phases) const {
  const CpuMeter meter;
  SHOAL_ASSIGN_OR_RETURN(lwe::PackedVectors vectors,
                         lwe::PackedVectors::Create(pass_kernel_, shape_.columns, queries.size()));
  std::vector<const PackKeys*> keys;
  for (size_t v = 0; v < queries.size(); ++v) {
    vectors.Set(v, queries[v].words);
    keys.push_back(&queries[v].keys);
  }
  const auto products = matrix_->Multiply(vectors, 0, shape_.outputs(), pool_);
  phases.pass = meter.Seconds();
  std::vector<std::vector<uint64_t>> bodies(queries.size(),
                                            std::vector<uint64_t>(shape_.packs() * kDegree));
  const auto pack = [&](size_t begin, size_t end) {
    std::vector<std::vector<uint32_t>> sums;
    for (size_t p = begin; p < end; ++p) {
      SumOfPack(kernel_, digits(p), keys, sums);
      for (size_t v = 0; v < queries.size(); ++v) {
        for (size_t w = 0; w < kDegree; ++w) {
          const size_t value = p * kDegree + w;
          const uint64_t taken = Compose(sums[v][w], sums[v][kDegree + w]);
          const uint64_t from =
              value < products[v].size() ? ScaledToModulus(products[v][value]) : 0;
          bodies[v][value] = from >= taken ? from - taken : from + kModulus - taken;
        }
      }
    }
  };
  ParallelFor(pool_, shape_.packs(), 1, pack);
  phases.pack = meter.Seconds() - phases.pass;
  return bodies;
}

absl::StatusOr<std::vector<Bytes>> HintlessServer::AnswerTogether(std::span<const Query> queries,
                                                                  Phases& phases) const {
  SHOAL_ASSIGN_OR_RETURN(const auto bodies, Bodies(queries, phases));
  std::vector<Bytes> answers(queries.size());
  std::vector<uint32_t> turns(kDegree);
  for (size_t v = 0; v < queries.size(); ++v) {
    answers[v].reserve(shape_.answer_bytes());
    for (size_t p = 0; p < shape_.packs(); ++p) {
      Append(answers[v], packs_[p].mask);
      for (size_t w = 0; w < kDegree; ++w) turns[w] = TurnOf(bodies[v][p * kDegree + w]);
      lwe::AppendRounded(turns, 32 - kHintlessBodyBits, answers[v]);
    }
  }
  return answers;
}

absl::StatusOr<HintlessServer::Phases> HintlessServer::Measure(
    std::span<const BytesView> queries) const {
  SHOAL_CHECK(queries.size() <= HintlessShape::kTogether);
  std::vector<Query> read;
  for (const BytesView query : queries) {
    SHOAL_ASSIGN_OR_RETURN(Query each, Read(query));
    read.push_back(std::move(each));
  }
  Phases phases;
  SHOAL_RETURN_IF_ERROR(AnswerTogether(read, phases).status());
  return phases;
}

absl::StatusOr<std::vector<uint64_t>> HintlessServer::Unrounded(BytesView query) const {
  std::vector<Query> read(1);
  SHOAL_ASSIGN_OR_RETURN(read[0], Read(query));
  Phases phases;
  SHOAL_ASSIGN_OR_RETURN(auto bodies, Bodies(read, phases));
  return std::move(bodies[0]);
}

HintlessServer::Variances HintlessServer::VariancesOfErrors() const {
  Variances variances;
  for (uint64_t value = 0; value < shape_.outputs(); ++value) {
    const Packer::Made& made = packs_[value / kDegree];
    variances.norms.push_back({.rotation = made.rotation[value % kDegree],
                               .conjugation = made.conjugation,
                               .secret = made.secret[value % kDegree]});
    double squares = 0;
    for (uint64_t column = 0; column < shape_.columns; ++column) {
      const double byte = matrix_->Get(value, column) - double{lwe::kMaxPlaintext};
      squares += byte * byte;
    }
    variances.first_stage.push_back(FirstStageVariance(shape_, squares));
  }
  return variances;
}

std::vector<absl::StatusOr<Bytes>> HintlessServer::Answer(
    Role role, std::span<const RequestView> requests) const {
  return AnswerInPasses(
      setup_, kSingleRole, shape_.query_bytes(), HintlessShape::kTogether, role, requests,
      [this](BytesView query) { return Read(query); },
      [this](std::span<const Query> queries) {
        Phases phases;
        return AnswerTogether(queries, phases);
      });
}

std::vector<size_t> HintlessServer::PacksOf(std::span<const uint64_t> rows) const {
  std::vector<bool> wanted(shape_.packs());
  for (const uint64_t row : rows) {
    const uint64_t first = row % shape_.rows_per_column * shape_.record_bytes;
    const uint64_t last = first + shape_.record_bytes - 1;
    for (uint64_t p = first / kDegree; p <= last / kDegree; ++p) wanted[p] = true;
  }
  std::vector<size_t> packs;
  for (size_t p = 0; p < wanted.size(); ++p) {
    if (wanted[p]) packs.push_back(p);
  }
  return packs;
}

absl::StatusOr<double> HintlessServer::RefreshShare(const Content& content,
                                                    std::span<const uint64_t> changed_rows) const {
  SHOAL_RETURN_IF_ERROR(lwe::CheckRefreshRows(matrix_setup_, content, changed_rows));
  return static_cast<double>(PacksOf(changed_rows).size()) / static_cast<double>(shape_.packs());
}

absl::StatusOr<std::optional<Delta>> HintlessServer::Refresh(
    const Content& content, std::span<const uint64_t> changed_rows) {
  SHOAL_RETURN_IF_ERROR(lwe::CheckRefreshRows(matrix_setup_, content, changed_rows));
  const std::vector<size_t> packs = PacksOf(changed_rows);
  const lwe::Runs runs = lwe::RunsOf(matrix_setup_, content, changed_rows);
  Bytes before, record(shape_.record_bytes);
  for (size_t i = 0; i < runs.count; ++i) {
    const lwe::Run run = runs.at(i);
    runs.read(i, record);
    for (uint64_t w = 0; w < run.length; ++w) {
      before.push_back(matrix_->Get(run.first_row + w, run.column));
      matrix_->Set(run.first_row + w, run.column, record[w]);
    }
  }
  if (const absl::Status made = MakePacks(packs, nullptr); !made.ok()) {
    for (size_t i = 0; i < runs.count; ++i) {
      const lwe::Run run = runs.at(i);
      for (uint64_t w = 0; w < run.length; ++w) {
        matrix_->Set(run.first_row + w, run.column, before[i * shape_.record_bytes + w]);
      }
    }
    // The same packs as before: they were made once, in the same memory.
    SHOAL_CHECK(MakePacks(packs, nullptr).ok());
    return absl::InvalidArgumentError(made.message());
  }
  SetEpoch(content, setup_);
  SetEpoch(content, matrix_setup_);
  id_ = SetupId(setup_);
  return std::optional<Delta>();
}

}  // namespace shoal::pir::rlwe
