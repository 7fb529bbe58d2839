#include "src/pir/sets/single_pass_sets.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/pir/sets/gather.h"
#include "src/pir/sets/gather_dispatch.h"

namespace shoal::pir::sets {
namespace {

constexpr uint64_t kMaxChunkRows = uint64_t{1} << 30;
constexpr uint64_t kMaxParityBytes = uint64_t{1} << 40;

// to ^= from where `mask` is all ones, and nothing where it is zero.
void XorMasked(MutableBytes to, BytesView from, uint8_t mask) {
  for (size_t i = 0; i < to.size(); ++i) to[i] ^= from[i] & mask;
}
void Xor(MutableBytes to, BytesView from) { XorMasked(to, from, 0xff); }

// Whether the shape is one of SinglePassShapeFor's. Arithmetic on others could overflow.
bool IsShape(const SinglePassShape& shape) {
  return shape.rows > 0 && shape.record_bytes > 0 && shape.chunks > 0 &&
         shape.chunks <= kMaxPermutedChunks && shape.chunk_rows > 0 &&
         shape.chunk_rows <= kMaxChunkRows && shape.parity_bytes() <= kMaxParityBytes &&
         shape.rows <= shape.places() && shape.rows > shape.places() - shape.chunk_rows;
}

// What `draw`, uniform in 64 bits, stands for below the bound. A product whose low word is small
// may be one of those that come too often, and is drawn again (RandomSource::Below).
uint32_t Uniform(uint64_t draw, uint32_t bound, RandomSource& random) {
  const auto product = static_cast<unsigned __int128>(draw) * bound;
  return static_cast<uint32_t>(static_cast<uint64_t>(product) < bound
                                   ? random.Below(bound)
                                   : static_cast<uint64_t>(product >> 64));
}

SecretVector<uint64_t> Draws(size_t count, RandomSource& random) {
  SecretVector<uint64_t> draws(count);
  random.Fill({reinterpret_cast<uint8_t*>(draws.data()), count * sizeof(uint64_t)});
  return draws;
}

// All ones if the arguments differ, else zero. Both are below 2^31.
uint32_t DifferMask(uint32_t a, uint32_t b) { return 0 - ((0 - (a ^ b)) >> 31); }

}  // namespace

absl::StatusOr<SinglePassShape> SinglePassShapeFor(uint64_t rows, uint32_t record_bytes,
                                                   uint32_t chunks) {
  if (rows == 0 || record_bytes == 0 || chunks == 0 || chunks > kMaxPermutedChunks) {
    return absl::InvalidArgumentError("permuted sets: no rows, records or chunks, or too many");
  }
  const uint64_t chunk_rows = (rows - 1) / chunks + 1;
  if (chunk_rows > kMaxChunkRows || chunk_rows > kMaxParityBytes / record_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("permuted sets: ", rows, " rows are too many for ", chunks, " chunks"));
  }
  return SinglePassShape{.rows = rows,
                         .record_bytes = record_bytes,
                         .chunks = static_cast<uint32_t>((rows - 1) / chunk_rows + 1),
                         .chunk_rows = static_cast<uint32_t>(chunk_rows)};
}

SecretVector<uint32_t> PermutationsOf(const SinglePassShape& shape, const Seed& seed,
                                      ThreadPool* pool, const std::atomic<bool>* stop) {
  SHOAL_CHECK(IsShape(shape));
  SecretVector<uint32_t> all(shape.places());
  const auto draw = [&](size_t begin, size_t end) {
    for (size_t chunk = begin; chunk < end; ++chunk) {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) return;
      const std::span<uint32_t> one =
          std::span(all).subspan(chunk * shape.chunk_rows, shape.chunk_rows);
      SeededRandom random(seed.view(), "shoal permuted rows v1", chunk);
      std::iota(one.begin(), one.end(), 0u);
      for (size_t left = one.size(); left > 1; --left) {
        std::swap(one[left - 1], one[random.Below(left)]);
      }
    }
  };
  ParallelFor(pool, shape.chunks, 1, draw);
  return all;
}

ParityMaker::ParityMaker(const SinglePassShape& shape, const Seed& seed, ThreadPool* pool,
                         const std::atomic<bool>* stop)
    : shape_(shape), stop_(stop), permutations_(PermutationsOf(shape, seed, pool, stop)) {}

bool ParityMaker::Make(BytesView records, uint32_t first, MutableBytes out) const {
  const uint64_t count = out.size() / shape_.record_bytes;
  SHOAL_CHECK(records.size() == shape_.rows * shape_.record_bytes &&
              out.size() % shape_.record_bytes == 0 && first <= shape_.chunk_rows &&
              count <= shape_.chunk_rows - first);
  const GatherKernel& kernel = FastestGather();
  constexpr size_t kTogether = 64;
  SecretVector<const uint8_t*> places(kTogether * shape_.chunks);
  std::vector<uint8_t*> sums(kTogether);
  std::vector<uint32_t> counts(kTogether);
  std::ranges::fill(out, uint8_t{0});
  for (uint64_t done = 0; done < count; done += kTogether) {
    if (stopped()) return false;
    const uint64_t together = std::min<uint64_t>(kTogether, count - done);
    size_t at = 0;
    for (uint64_t i = 0; i < together; ++i) {
      const size_t before = at;
      for (uint32_t chunk = 0; chunk < shape_.chunks; ++chunk) {
        const uint64_t chunk_first = uint64_t{chunk} * shape_.chunk_rows;
        const uint64_t row = chunk_first + permutations_[chunk_first + first + done + i];
        if (row < shape_.rows) places[at++] = records.data() + row * shape_.record_bytes;
      }
      counts[i] = static_cast<uint32_t>(at - before);
      sums[i] = out.data() + (done + i) * shape_.record_bytes;
    }
    kernel.gather(places.data(), counts.data(), together, shape_.record_bytes, sums.data());
  }
  return !stopped();
}

absl::Status AnswerPermuted(const SinglePassShape& shape, BytesView records, BytesView query,
                            MutableBytes out) {
  SHOAL_CHECK(IsShape(shape) && records.size() == shape.rows * shape.record_bytes &&
              out.size() == shape.answer_bytes());
  if (query.size() != shape.query_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("permuted sets: a query of ", query.size(),
                                                   " bytes instead of ", shape.query_bytes()));
  }
  const auto offset_of = [&](uint32_t chunk) {
    return LoadLe<uint32_t>(&query[chunk * sizeof(uint32_t)]);
  };
  for (uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
    if (offset_of(chunk) >= shape.chunk_rows) {
      return absl::InvalidArgumentError(absl::StrCat("permuted sets: a query for row ",
                                                     offset_of(chunk), " of a chunk of ",
                                                     shape.chunk_rows));
    }
  }
  const uint64_t bytes = shape.record_bytes;
  // The chunk's record, or null for zeros.
  const auto record_of = [&](uint32_t chunk) -> const uint8_t* {
    const uint64_t row = uint64_t{chunk} * shape.chunk_rows + offset_of(chunk);
    return row < shape.rows ? records.data() + row * bytes : nullptr;
  };
  constexpr uint32_t kAhead = 4;
  for (uint32_t chunk = 0; chunk < shape.chunks + kAhead; ++chunk) {
    if (chunk < shape.chunks) {
      const uint8_t* const ahead = record_of(chunk);
      const uint64_t end = ahead != nullptr ? bytes : 0;
      for (uint64_t at = 0; at < end; at += 64) __builtin_prefetch(ahead + at);
    }
    if (chunk < kAhead) continue;
    uint8_t* const to = out.data() + (chunk - kAhead) * bytes;
    const uint8_t* const from = record_of(chunk - kAhead);
    if (from != nullptr) {
      std::memcpy(to, from, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
  return absl::OkStatus();
}

// The vector wipes itself.
SinglePassTable::Question::~Question() {
  sodium_memzero(&row, sizeof row);
  sodium_memzero(&dummy, sizeof dummy);
}

SinglePassTable::SinglePassTable(const SinglePassShape& shape, SecretVector<uint32_t> permutations,
                                 bool whole)
    : shape_(shape),
      permutations_(std::move(permutations)),
      parities_(shape.chunk_rows, shape.record_bytes) {
  SHOAL_CHECK(IsShape(shape) && permutations_.size() == shape.places());
  if (whole) parities_.MakeWhole();
}

SinglePassTable::SinglePassTable(const SinglePassShape& shape, SecretVector<uint32_t> permutations)
    : SinglePassTable(shape, std::move(permutations), /*whole=*/true) {}

bool SinglePassTable::ArePermutations(const SinglePassShape& shape,
                                      std::span<const uint32_t> permutations) {
  if (permutations.size() != shape.places()) return false;
  std::vector<bool> seen(shape.chunk_rows);
  for (uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
    seen.assign(shape.chunk_rows, false);
    const uint64_t first = uint64_t{chunk} * shape.chunk_rows;
    for (uint32_t place = 0; place < shape.chunk_rows; ++place) {
      const uint32_t offset = permutations[first + place];
      if (offset >= shape.chunk_rows || seen[offset]) return false;
      seen[offset] = true;
    }
  }
  return true;
}

namespace {

absl::Status NoTable() {
  return absl::DataLossError("permuted sets: no permutations and parities of this shape");
}

}  // namespace

absl::StatusOr<SinglePassTable> SinglePassTable::Restore(const SinglePassShape& shape,
                                                         SecretVector<uint32_t> permutations,
                                                         BytesView parities) {
  if (!ArePermutations(shape, permutations) || parities.size() > shape.parity_bytes() ||
      parities.size() % shape.record_bytes != 0) {
    return NoTable();
  }
  SinglePassTable table(shape, std::move(permutations));
  table.AddParities(parities);
  return table;
}

absl::StatusOr<SinglePassTable> SinglePassTable::Restore(const SinglePassShape& shape,
                                                         SecretVector<uint32_t> permutations) {
  if (!ArePermutations(shape, permutations)) return NoTable();
  SinglePassTable table(shape, std::move(permutations), /*whole=*/false);
  table.parity_bytes_added_ = shape.parity_bytes();
  return table;
}

void SinglePassTable::AddParities(BytesView parities) {
  const MutableBytes all = parities_.all();
  SHOAL_CHECK(parities.size() % shape_.record_bytes == 0 &&
              parities.size() <= all.size() - parity_bytes_added_);
  std::ranges::copy(parities, all.begin() + static_cast<ptrdiff_t>(parity_bytes_added_));
  parity_bytes_added_ += parities.size();
}

absl::Status SinglePassTable::CheckReady(uint64_t row) const {
  if (row >= shape_.rows) return absl::OutOfRangeError("permuted sets: no such row");
  if (parity_bytes_added_ < shape_.parity_bytes()) {
    return absl::FailedPreconditionError("permuted sets: not all parities are there");
  }
  if (asked_.has_value()) {
    return absl::FailedPreconditionError("permuted sets: the query before is not finished");
  }
  return absl::OkStatus();
}

uint32_t SinglePassTable::Find(uint64_t row) const {
  const uint64_t chunk = row / shape_.chunk_rows;
  return FastestGather().find(permutations_.data() + chunk * shape_.chunk_rows, shape_.chunk_rows,
                              static_cast<uint32_t>(row % shape_.chunk_rows));
}

absl::Status SinglePassTable::Ask(uint64_t row, RandomSource& random, MutableBytes online,
                                  MutableBytes offline) {
  if (absl::Status ready = CheckReady(row); !ready.ok()) return ready;
  // d, and a place for every chunk.
  const SecretVector<uint64_t> draws = Draws(shape_.chunks + 1, random);
  const uint32_t dummy = Uniform(draws[0], shape_.chunk_rows, random);
  SecretVector<uint32_t> exchanged(shape_.chunks);
  for (uint32_t c = 0; c < shape_.chunks; ++c) {
    exchanged[c] = Uniform(draws[c + 1], shape_.chunk_rows, random);
  }
  Begin({.row = row, .dummy = dummy, .exchanged = std::move(exchanged)});
  AskAgain(online, offline);
  return absl::OkStatus();
}

void SinglePassTable::AskAgain(MutableBytes online, MutableBytes offline) const {
  SHOAL_CHECK(online.size() == shape_.query_bytes() && offline.size() == shape_.query_bytes() &&
              asked_.has_value());
  for (uint32_t c = 0; c < shape_.chunks; ++c) {
    const std::span<const uint32_t> one = PermutationOf(c);
    StoreLe<uint32_t>(&online[c * sizeof(uint32_t)], one[place_]);
    StoreLe<uint32_t>(&offline[c * sizeof(uint32_t)], one[asked_->exchanged[c]]);
  }
  const uint64_t chunk = asked_->row / shape_.chunk_rows;
  StoreLe<uint32_t>(&online[chunk * sizeof(uint32_t)], asked_->dummy);
}

std::vector<uint64_t> SinglePassTable::RowsOf(BytesView query) const {
  SHOAL_CHECK(query.size() == shape_.query_bytes());
  std::vector<uint64_t> rows(shape_.chunks);
  for (uint32_t c = 0; c < shape_.chunks; ++c) {
    rows[c] = uint64_t{c} * shape_.chunk_rows + LoadLe<uint32_t>(&query[c * sizeof(uint32_t)]);
  }
  return rows;
}

absl::Status SinglePassTable::Redo(Question question) {
  if (absl::Status ready = CheckReady(question.row); !ready.ok()) return ready;
  bool fits = question.dummy < shape_.chunk_rows && question.exchanged.size() == shape_.chunks;
  for (const uint32_t place : question.exchanged) fits = fits && place < shape_.chunk_rows;
  if (!fits) return absl::InvalidArgumentError("permuted sets: no question of this shape");
  Begin(std::move(question));
  return absl::OkStatus();
}

void SinglePassTable::Begin(Question question) {
  place_ = Find(question.row);
  asked_ = std::move(question);
}

SecretVector<uint8_t> SinglePassTable::Finish(BytesView online, BytesView offline,
                                              MutableBytes record) {
  SHOAL_CHECK(online.size() == shape_.answer_bytes() && offline.size() == shape_.answer_bytes() &&
              record.size() == shape_.record_bytes && asked_.has_value());
  const uint64_t bytes = shape_.record_bytes;
  const auto chunk = static_cast<uint32_t>(asked_->row / shape_.chunk_rows);
  std::ranges::copy(ParityOf(place_), record.begin());
  for (uint32_t c = 0; c < shape_.chunks; ++c) {
    const auto other = static_cast<uint8_t>(DifferMask(c, chunk));
    XorMasked(record, online.subspan(c * bytes, bytes), other);
  }
  // For every chunk the record that leaves parity j and the one that comes. In the wanted row's
  // chunk the online server sent another one.
  SecretVector<uint8_t> changes(offline.begin(), offline.end());
  for (uint32_t c = 0; c < shape_.chunks; ++c) {
    const auto other = static_cast<uint8_t>(DifferMask(c, chunk));
    const MutableBytes change = MutableBytes(changes).subspan(c * bytes, bytes);
    XorMasked(change, online.subspan(c * bytes, bytes), other);
    XorMasked(change, record, static_cast<uint8_t>(~other));
  }
  Exchange(changes);
  return changes;
}

absl::Status SinglePassTable::RedoFinish(BytesView changes) {
  if (!asked_.has_value() || changes.size() != shape_.answer_bytes()) {
    return absl::InvalidArgumentError("permuted sets: no end of this question");
  }
  Exchange(changes);
  return absl::OkStatus();
}

void SinglePassTable::Exchange(BytesView changes) {
  for (uint32_t c = 0; c < shape_.chunks; ++c) {
    const BytesView change =
        changes.subspan(uint64_t{c} * shape_.record_bytes, shape_.record_bytes);
    const uint32_t with = asked_->exchanged[c];
    Xor(ParityOf(place_), change);
    Xor(ParityOf(with), change);
    const uint64_t first = uint64_t{c} * shape_.chunk_rows;
    std::swap(permutations_[first + place_], permutations_[first + with]);
  }
  asked_.reset();
}

absl::Status SinglePassTable::Change(uint64_t row, BytesView difference) {
  SHOAL_CHECK(difference.size() == shape_.record_bytes);
  if (row >= shape_.rows) return absl::OutOfRangeError("permuted sets: no such row");
  // A parity that is still to come takes the place of what is there, and is made of the new record.
  Xor(ParityOf(Find(row)), difference);
  return absl::OkStatus();
}

}  // namespace shoal::pir::sets
