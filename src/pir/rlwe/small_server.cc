#include "src/pir/rlwe/small_server.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/kit/checks.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/pages.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"
#include "src/pir/rlwe/small_public.h"
#include "src/storage/memory.h"

namespace shoal::pir::rlwe {
namespace {

constexpr size_t kBlock = RingKernel::kBlock;
constexpr size_t kBlocks = kDegree / kBlock;
constexpr size_t kTileRows = RingKernel::kTileRows;
constexpr size_t kOrbitWords = RingKernel::kOrbitWords;
constexpr size_t kOrbits = kDegree / kOrbitWords;
// Orbits that share blocks of words.
constexpr size_t kOrbitsTogether = 4;
// Positions that are encoded together, so that what is written lies together.
constexpr uint64_t kEncodedTogether = 4;

// The words of an orbit of `count` polynomials.
void CopyOrbit(const uint32_t* polynomials, size_t count, uint32_t k, size_t orbit, uint32_t* out) {
  const auto places = UnpackConstants::Get().Orbits(k).subspan(orbit * kOrbitWords, kOrbitWords);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t* const from = polynomials + i * kPolynomialWords + k * kDegree;
    for (size_t j = 0; j < kOrbitWords; ++j) out[i * kOrbitWords + j] = from[places[j]];
  }
}

// The words of one polynomial among the kernel's vectors, for position i of `terms`.
void PlacePosition(const uint32_t* polynomial, uint64_t terms, uint64_t i, uint32_t* vectors) {
  for (size_t block = 0; block < kPrimes * kBlocks; ++block) {
    std::copy_n(polynomial + block * kBlock, kBlock, vectors + (block * terms + i) * kBlock);
  }
}

// out = add + the sum of the products of `terms` polynomials; add may be null or out.
void Dot(const RingKernel& kernel, const uint32_t* a, const uint32_t* b, size_t terms,
         const uint32_t* add, uint32_t* out) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    kernel.dot(k, a + k * kDegree, kPolynomialWords, b + k * kDegree, kPolynomialWords, terms,
               add == nullptr ? nullptr : add + k * kDegree, out + k * kDegree);
  }
}

}  // namespace

// What answering a query takes. It is kept for the next query, since the system clears new memory.
struct SmallServer::Room {
  std::vector<uint32_t> elements;
  Digest dither = {};                    // the hash of the query, as the seed of its dither
  std::vector<uint32_t> positions;       // laid out as the kernel's vectors
  std::vector<uint32_t> values;          // [value]: bodies
  std::vector<uint32_t> product_masks;   // [value]: of its product with the secret
  std::vector<uint32_t> product_bodies;  // [value]
  std::vector<uint32_t> sums;            // [slice][output]: coefficients of bodies
  std::vector<uint32_t> masks;           // the same of masks
};

// A room that is taken from the server's, or made, and given back at the end.
class SmallServer::Loan {
 public:
  explicit Loan(const SmallServer& server) : server_(server) {
    const MutexLock lock(server_.mutex_);
    if (server_.rooms_.empty()) {
      room_ = std::make_unique<Room>();
    } else {
      room_ = std::move(server_.rooms_.back());
      server_.rooms_.pop_back();
    }
  }
  ~Loan() {
    const MutexLock lock(server_.mutex_);
    if (room_ != nullptr && server_.rooms_.size() < SmallShape::kTogether) {
      server_.rooms_.push_back(std::move(room_));
    }
  }
  Loan(Loan&&) = default;
  Loan& operator=(Loan&&) = delete;
  Room& room() const { return *room_; }

 private:
  const SmallServer& server_;
  std::unique_ptr<Room> room_;
};

SmallServer::SmallServer(const wire::PirSetup& setup, const SmallShape& shape,
                         const ServerOptions& options, const RingKernel& kernel)
    : setup_(setup), id_(SetupId(setup)), shape_(shape), pool_(options.pool), kernel_(kernel) {}
SmallServer::~SmallServer() = default;

void SmallServer::ForRanges(size_t n, const std::function<void(size_t, size_t)>& body) const {
  // A few ranges for each thread even out what they take.
  ParallelFor(pool_, n, std::max<size_t>(1, n / (4 * ThreadsOf(pool_))), body);
}

void SmallServer::For(size_t n, const std::function<void(size_t)>& body) const {
  ForRanges(n, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) body(i);
  });
}

absl::StatusOr<std::unique_ptr<SmallServer>> SmallServer::Create(const Content& content,
                                                                 const wire::PirSetup& setup,
                                                                 const ServerOptions& options,
                                                                 const RingKernel* kernel) {
  SHOAL_ASSIGN_OR_RETURN(const SmallShape shape, ParseSmallShape(setup));
  SHOAL_RETURN_IF_ERROR(CheckMemory(shape.server_bytes(), "a table for smallpir"));
  std::unique_ptr<SmallServer> server(
      new SmallServer(setup, shape, options, kernel == nullptr ? FastestRingKernel() : *kernel));
  SHOAL_ASSIGN_OR_RETURN(server->table_, AllocatePages(shape.table_bytes(), "a smallpir table"));
  SHOAL_ASSIGN_OR_RETURN(
      server->digits_,
      AllocatePages(std::max<uint64_t>(1, shape.automorphisms() * kUnpackGadget.digits) *
                        kPolynomialWords * sizeof(uint32_t),
                    "smallpir's digits"));
  server->MakePublicParts();
  server->Encode(content, [&](uint64_t done, uint64_t total) {
    if (options.progress) options.progress(done, total);
  });
  server->MakeMasks();
  return server;
}

void SmallServer::MakePublicParts() {
  const auto expanded = [&](uint32_t first, uint32_t count) {
    std::vector<uint32_t> words(count * kPolynomialWords);
    for (uint32_t i = 0; i < count; ++i) {
      SmallPublicPart(shape_, first + i,
                      std::span(words).subspan(i * kPolynomialWords, kPolynomialWords));
    }
    return words;
  };
  const std::vector<uint32_t> unpack_key = expanded(0, kUnpackGadget.digits);
  const std::vector<uint32_t> square_key = expanded(kUnpackGadget.digits, kSquareGadget.digits);
  const uint32_t first = kUnpackGadget.digits + kSquareGadget.digits;
  const uint32_t positions = shape_.position_elements();
  const uint32_t packed = positions + shape_.fold_elements();

  position_masks_.resize(shape_.terms * kPolynomialWords);
  value_masks_.resize(shape_.fold_values() * kPolynomialWords);
  value_digits_.resize(value_masks_.size() * kSquareGadget.digits);
  product_masks_.resize(value_masks_.size());
  const auto log_of = [&](uint32_t e) { return e < positions ? shape_.pack_log() : kFoldPackLog; };
  const auto first_of = [&](uint32_t e) {
    return uint64_t{e < positions ? e : e - positions} << log_of(e);
  };
  const auto count_of = [&](uint32_t e) {
    const uint64_t all = e < positions ? shape_.terms : shape_.fold_values();
    return std::min<uint64_t>(all - first_of(e), uint64_t{1} << log_of(e));
  };
  uint64_t automorphisms = 0;
  for (uint32_t e = 0; e < packed; ++e) {
    first_automorphism_.push_back(automorphisms);
    automorphisms += UnpackSteps(log_of(e), count_of(e));
  }
  SHOAL_CHECK(automorphisms == shape_.automorphisms());

  For(packed, [&](size_t e) {
    const auto element = static_cast<uint32_t>(e);
    std::vector<uint32_t> image(kPolynomialWords);
    std::vector<uint32_t> digits(kUnpackGadget.digits * kPolynomialWords);
    const uint64_t steps = UnpackSteps(log_of(element), count_of(element));
    uint64_t step = 0;
    const auto apply = [&](uint32_t* polynomial) {
      UnpackConstants::Get().Apply(polynomial, image.data());
      PublicDigits(kernel_, kUnpackGadget, image.data(), digits.data());
      Dot(kernel_, digits.data(), unpack_key.data(), kUnpackGadget.digits, nullptr, polynomial);
      for (uint32_t k = 0; k < kPrimes; ++k) {
        for (size_t orbit = 0; orbit < kOrbits; ++orbit) {
          CopyOrbit(digits.data(), kUnpackGadget.digits, k, orbit,
                    reinterpret_cast<uint32_t*>(digits_.data()) +
                        (first_automorphism_[e] * kPrimes * kOrbits +
                         (k * kOrbits + orbit) * steps + step) *
                            kUnpackGadget.digits * kOrbitWords);
        }
      }
      ++step;
    };
    const auto leaf = [&](uint64_t v, const uint32_t* polynomial) {
      const uint64_t value = first_of(element) + v;
      if (element < positions) {
        PlacePosition(polynomial, shape_.terms, value, position_masks_.data());
        return;
      }
      std::copy_n(polynomial, kPolynomialWords, value_masks_.data() + value * kPolynomialWords);
      uint32_t* of = value_digits_.data() + value * kSquareGadget.digits * kPolynomialWords;
      PublicDigits(kernel_, kSquareGadget, polynomial, of);
      Dot(kernel_, of, square_key.data(), kSquareGadget.digits, nullptr,
          product_masks_.data() + value * kPolynomialWords);
    };
    UnpackTree(log_of(element), count_of(element), expanded(first + element, 1), apply,
               SplitPolynomials, leaf);
  });
}

uint32_t* SmallServer::Place(uint64_t slice, uint32_t k, uint64_t block, uint64_t group) {
  const uint64_t output = group / shape_.terms, term = group % shape_.terms;
  const uint64_t tiles = shape_.padded_outputs() / kTileRows;
  const uint64_t column = (slice * kPrimes + k) * kBlocks + block;
  const uint64_t tile = column * tiles + output / kTileRows;
  return reinterpret_cast<uint32_t*>(table_.data()) +
         ((tile * shape_.terms + term) * kTileRows + output % kTileRows) * kBlock;
}

void SmallServer::EncodeGroups(const Content& content, uint64_t group, uint64_t count,
                               std::vector<uint32_t>& out) const {
  const uint64_t slices = shape_.slices;
  out.assign(count * slices * kPolynomialWords, 0);
  Bytes bytes(slices * kDegree);
  for (uint64_t g = 0; g < count; ++g) {
    std::ranges::fill(bytes, 0);
    const uint64_t first = (group + g) * shape_.group_rows;
    for (uint64_t r = 0; r < shape_.group_rows && first + r < content.rows; ++r) {
      content.copy(first + r,
                   MutableBytes(bytes).subspan(r * content.record_bytes, content.record_bytes));
    }
    for (uint64_t slice = 0; slice < slices; ++slice) {
      uint32_t* polynomial = out.data() + (g * slices + slice) * kPolynomialWords;
      for (size_t k = 0; k < kPrimes; ++k) {
        for (size_t w = 0; w < kDegree; ++w) {
          // -128 to 127.
          const auto value = static_cast<int8_t>(bytes[slice * kDegree + w]);
          polynomial[k * kDegree + w] =
              static_cast<uint32_t>(value + (value < 0 ? static_cast<int32_t>(kPrime[k]) : 0));
        }
      }
      TransformAll(polynomial);
    }
  }
}

void SmallServer::Encode(const Content& content,
                         const std::function<void(uint64_t, uint64_t)>& progress) {
  const uint64_t runs = (shape_.terms + kEncodedTogether - 1) / kEncodedTogether;
  const uint64_t tiles = shape_.padded_outputs() / kTileRows;
  const uint64_t total = runs * tiles;
  struct {
    Mutex mutex;
    uint64_t done ABSL_GUARDED_BY(mutex) = 0;
  } so_far;
  For(total, [&](size_t task) {
    const uint64_t tile = task / runs, run = task % runs;
    const uint64_t first = run * kEncodedTogether;
    const uint64_t count = std::min<uint64_t>(kEncodedTogether, shape_.terms - first);
    std::vector<uint32_t> rows[kTileRows];
    for (uint64_t r = 0; r < kTileRows; ++r) {
      const uint64_t output = tile * kTileRows + r;
      if (output >= shape_.outputs()) continue;
      EncodeGroups(content, output * shape_.terms + first, count, rows[r]);
    }
    for (uint64_t slice = 0; slice < shape_.slices; ++slice) {
      for (uint64_t block = 0; block < kPrimes * kBlocks; ++block) {
        for (uint64_t i = 0; i < count; ++i) {
          for (uint64_t r = 0; r < kTileRows; ++r) {
            if (rows[r].empty()) continue;
            std::copy_n(
                rows[r].data() + (i * shape_.slices + slice) * kPolynomialWords + block * kBlock,
                kBlock,
                Place(slice, static_cast<uint32_t>(block / kBlocks), block % kBlocks,
                      (tile * kTileRows + r) * shape_.terms + first + i));
          }
        }
      }
    }
    const MutexLock lock(so_far.mutex);
    progress(++so_far.done, total);
  });
}

void SmallServer::MakeMasks() {
  masks_.resize(shape_.slices * shape_.outputs() * kPolynomialWords);
  const uint32_t* const vector = position_masks_.data();
  uint32_t* const sums = masks_.data();
  FirstStage({&vector, 1}, {&sums, 1});
}

void SmallServer::Replace(const Content& content) {
  SHOAL_CHECK(content.rows == setup_.rows() && content.record_bytes == setup_.record_bytes());
  Encode(content, [](uint64_t, uint64_t) {});
  MakeMasks();
}

void SmallServer::FirstStage(std::span<const uint32_t* const> vectors,
                             std::span<uint32_t* const> sums) const {
  const size_t count = vectors.size();
  const uint64_t outputs = shape_.outputs(), tiles = shape_.padded_outputs() / kTileRows;
  For(shape_.slices * kPrimes * kBlocks, [&](size_t column) {
    const uint64_t slice = column / (kPrimes * kBlocks), block = column % (kPrimes * kBlocks);
    const auto k = static_cast<uint32_t>(block / kBlocks);
    const uint32_t* here[SmallShape::kTogether];
    for (size_t v = 0; v < count; ++v) here[v] = vectors[v] + block * shape_.terms * kBlock;
    uint32_t out[SmallShape::kTogether * kTileRows * kBlock];
    for (uint64_t tile = 0; tile < tiles; ++tile) {
      const uint32_t* words = reinterpret_cast<const uint32_t*>(table_.data()) +
                              (column * tiles + tile) * shape_.terms * kTileRows * kBlock;
      kernel_.sums(k, words, shape_.terms, here, count, out);
      for (size_t v = 0; v < count; ++v) {
        for (uint64_t r = 0; r < kTileRows && tile * kTileRows + r < outputs; ++r) {
          const uint64_t output = slice * outputs + tile * kTileRows + r;
          std::copy_n(out + (v * kTileRows + r) * kBlock, kBlock,
                      sums[v] + output * kPolynomialWords + block * kBlock);
        }
      }
    }
  });
  const uint64_t each = shape_.slices * outputs;
  For(count * each,
      [&](size_t i) { TransformAllBack(sums[i / each] + i % each * kPolynomialWords); });
}

absl::Status SmallServer::ReadElements(BytesView query, Room& room) const {
  SHOAL_RETURN_IF_ERROR(CheckQuery(setup_, id_, shape_.query_bytes(), query));
  room.dither = SmallDitherSeed(query);
  std::vector<uint32_t>& elements = room.elements;
  elements.resize(shape_.elements() * kPolynomialWords);
  for (size_t e = 0; e < shape_.elements(); ++e) {
    SHOAL_RETURN_IF_ERROR(
        ReadResidues(query.subspan(kQueryHeaderBytes + e * kElementBytes, kElementBytes),
                     std::span(elements).subspan(e * kPolynomialWords, kPolynomialWords)));
  }
  return absl::OkStatus();
}

void SmallServer::Unpack(std::span<const Loan> rooms) const {
  for (const Loan& loan : rooms) {
    Room& query = loan.room();
    query.positions.resize(position_masks_.size());
    query.values.resize(value_masks_.size());
    query.product_masks.resize(value_masks_.size());
    query.product_bodies.resize(value_masks_.size());
  }
  constexpr uint32_t kFirst = kUnpackGadget.digits + kSquareGadget.digits;
  constexpr uint32_t kDigits = kUnpackGadget.digits;
  constexpr size_t kStride = RingKernel::kOrbitStride;
  const uint32_t positions = shape_.position_elements();
  // Unpacking moves words within orbits only, so that one orbit after the other is unpacked, of all
  // queries together: digits are read once, and all else stays in the first cache.
  constexpr size_t kParts = kPrimes * kOrbits / kOrbitsTogether;
  For(first_automorphism_.size() * kParts, [&](size_t task) {
    const size_t e = task / kParts, part = task % kParts;
    const bool position = e < positions;
    const uint32_t log = position ? shape_.pack_log() : kFoldPackLog;
    const uint64_t first = (position ? e : e - positions) << log;
    const uint64_t all = position ? shape_.terms : shape_.fold_values();
    const uint64_t count = std::min<uint64_t>(all - first, uint64_t{1} << log);
    const uint64_t steps = UnpackSteps(log, count);
    std::vector<uint32_t> keys(rooms.size() * kDigits * kOrbitWords),
        packed(rooms.size() * kStride);
    std::vector<uint32_t> monomials(kPackLog * kOrbitWords);
    std::vector<const uint32_t*> key_of(rooms.size());
    // What is unpacked, [query][orbit][value][place], and where the words of its blocks are there.
    const size_t leaves_each = kOrbitsTogether * count * kOrbitWords;
    std::vector<uint32_t> leaves(rooms.size() * leaves_each);
    std::array<uint32_t, kOrbitsTogether * kOrbitWords> from;
    for (size_t i = part * kOrbitsTogether; i < (part + 1) * kOrbitsTogether; ++i) {
      const auto k = static_cast<uint32_t>(i / kOrbits);
      const size_t orbit = i % kOrbits;
      const auto places =
          UnpackConstants::Get().Orbits(k).subspan(orbit * kOrbitWords, kOrbitWords);
      CopyOrbit(UnpackConstants::Get().InverseMonomial(0), kPackLog, k, orbit, monomials.data());
      for (size_t q = 0; q < rooms.size(); ++q) {
        const uint32_t* const elements = rooms[q].room().elements.data();
        key_of[q] = keys.data() + q * kDigits * kOrbitWords;
        CopyOrbit(elements, kDigits, k, orbit, keys.data() + q * kDigits * kOrbitWords);
        CopyOrbit(elements + (kFirst + e) * kPolynomialWords, 1, k, orbit,
                  packed.data() + q * kStride);
      }
      const auto* digits =
          reinterpret_cast<const uint32_t*>(digits_.data()) +
          (first_automorphism_[e] * kPrimes * kOrbits + i * steps) * kDigits * kOrbitWords;
      const auto apply = [&](uint32_t* rows) {
        kernel_.unpack_step(k, digits, kDigits, key_of.data(), rooms.size(), rows);
        digits += kDigits * kOrbitWords;
      };
      const auto split = [&](uint32_t level, bool both, uint32_t* node, uint32_t* image) {
        kernel_.unpack_split(k, monomials.data() + level * kOrbitWords, rooms.size(), both, node,
                             image);
      };
      for (size_t j = 0; j < kOrbitWords; ++j) {
        from[places[j] % from.size()] =
            static_cast<uint32_t>((i % kOrbitsTogether * count) * kOrbitWords + j);
      }
      const auto leaf = [&](uint64_t v, const uint32_t* rows) {
        for (size_t q = 0; q < rooms.size(); ++q) {
          std::copy_n(
              rows + q * kStride, kOrbitWords,
              leaves.data() + q * leaves_each + (i % kOrbitsTogether * count + v) * kOrbitWords);
        }
      };
      UnpackTree(log, count, packed, apply, split, leaf);
    }
    // Whole blocks, one after the other.
    const size_t first_block = part * from.size() / kBlock;
    for (size_t q = 0; q < rooms.size(); ++q) {
      Room& query = rooms[q].room();
      for (size_t block = 0; block < from.size() / kBlock; ++block) {
        const uint32_t* const places = from.data() + block * kBlock;
        for (uint64_t v = 0; v < count; ++v) {
          const uint32_t* const words = leaves.data() + q * leaves_each + v * kOrbitWords;
          uint32_t* const out =
              position ? query.positions.data() +
                             ((first_block + block) * shape_.terms + first + v) * kBlock
                       : query.values.data() + (first + v) * kPolynomialWords +
                             (first_block + block) * kBlock;
          for (size_t j = 0; j < kBlock; ++j) out[j] = words[places[j]];
        }
      }
    }
  });
  For(rooms.size() * shape_.fold_values(), [&](size_t i) {
    Room& query = rooms[i / shape_.fold_values()].room();
    const uint64_t at = i % shape_.fold_values() * kPolynomialWords;
    // (m, b) with mask a: the product with -s is (b + u, v), where (u, v) encrypts a s^2.
    AddPolynomials(query.values.data() + at, product_masks_.data() + at,
                   query.product_masks.data() + at);
    Dot(kernel_, value_digits_.data() + at * kSquareGadget.digits,
        query.elements.data() + kUnpackGadget.digits * kPolynomialWords, kSquareGadget.digits,
        nullptr, query.product_bodies.data() + at);
  });
}

void SmallServer::Fold(Room& query) const {
  std::vector<uint32_t>&sums = query.sums, &masks = query.masks;
  masks = masks_;
  const uint64_t slices = shape_.slices, outputs = shape_.outputs();
  constexpr uint32_t kDigits = kFoldGadget.digits;
  std::vector<uint64_t> dither(2 * kDegree);
  std::vector<uint32_t> dither_product(2 * kPolynomialWords);
  for (uint32_t level = 0; level < shape_.folds; ++level) {
    const uint64_t half = outputs >> (level + 1);
    const uint64_t value = uint64_t{level} * kDigits * kPolynomialWords;
    // Each ciphertext becomes the low one plus the product with what differs in the high one, whose
    // digits are those of it plus the dither, less those of the dither. So its digits are
    // independent of secret and errors (docs/small-pir.md), and the dither's own share is the same
    // for all.
    SeededRandom(query.dither, "shoal small pir dither", level)
        .Fill({reinterpret_cast<uint8_t*>(dither.data()), dither.size() * sizeof(uint64_t)});
    // `parts` are a mask and a body.
    const auto multiply = [&](const uint32_t* const(&parts)[2], std::vector<uint32_t>& digits,
                              const uint32_t* add, uint32_t* out) {
      for (size_t i = 0; i < 2; ++i) {
        uint32_t* const of = digits.data() + i * kDigits * kPolynomialWords;
        kernel_.decompose_dithered(kFoldGadget, parts[i], parts[i] + kDegree,
                                   dither.data() + i * kDegree, of);
        for (uint32_t d = 0; d < kDigits; ++d) TransformAll(of + d * kPolynomialWords);
      }
      const uint32_t* const of_mask = digits.data();
      const uint32_t* const of_body = of_mask + kDigits * kPolynomialWords;
      const auto product = [&](const std::vector<uint32_t>& of_products,
                               const std::vector<uint32_t>& of_values, const uint32_t* plus,
                               uint32_t* to) {
        Dot(kernel_, of_mask, of_products.data() + value, kDigits, plus, to);
        Dot(kernel_, of_body, of_values.data() + value, kDigits, to, to);
      };
      product(query.product_masks, value_masks_, add, out);
      product(query.product_bodies, query.values, add == nullptr ? nullptr : add + kPolynomialWords,
              out + kPolynomialWords);
    };
    {
      const std::vector<uint32_t> zeros(2 * kPolynomialWords);
      std::vector<uint32_t> digits(2 * kDigits * kPolynomialWords);
      multiply({zeros.data(), zeros.data()}, digits, nullptr, dither_product.data());
      for (const size_t i : {size_t{0}, kPolynomialWords}) {
        SubtractPolynomials(zeros.data(), dither_product.data() + i, dither_product.data() + i);
      }
    }
    ForRanges(slices * half, [&](size_t begin, size_t end) {
      std::vector<uint32_t> digits(2 * kDigits * kPolynomialWords);
      std::vector<uint32_t> work(2 * kPolynomialWords);
      for (size_t i = begin; i < end; ++i) {
        const uint64_t low = (i / half * outputs + i % half) * kPolynomialWords;
        const uint64_t high = low + half * kPolynomialWords;
        uint32_t* const mask = work.data();
        uint32_t* const body = mask + kPolynomialWords;
        SubtractPolynomials(masks.data() + high, masks.data() + low, mask);
        SubtractPolynomials(sums.data() + high, sums.data() + low, body);
        multiply({mask, body}, digits, dither_product.data(), work.data());
        TransformAllBack(mask);
        TransformAllBack(body);
        AddPolynomials(masks.data() + low, mask, masks.data() + low);
        AddPolynomials(sums.data() + low, body, sums.data() + low);
      }
    });
  }
}

Bytes SmallServer::Round(const Room& query) const {
  Bytes answer;
  answer.reserve(shape_.answer_bytes());
  std::vector<uint32_t> turns(kDegree);
  std::vector<uint8_t> dither(kDegree);
  for (uint64_t slice = 0; slice < shape_.slices; ++slice) {
    // A mask is rounded down after a step's random part has been added, so that what is rounded
    // away is independent of the secret. A body is rounded to nearest.
    static_assert(32 - kAnswerMaskBits == 8);
    SeededRandom(query.dither, "shoal small pir rounding", slice).Fill(dither);
    const auto append = [&](const std::vector<uint32_t>& parts, uint32_t bits, uint32_t dithered) {
      const uint32_t* polynomial = parts.data() + slice * shape_.outputs() * kPolynomialWords;
      for (size_t w = 0; w < kDegree; ++w) {
        turns[w] =
            TurnOf(Compose(polynomial[w], polynomial[kDegree + w])) + dithered * (dither[w] - 128u);
      }
      lwe::AppendRounded(turns, 32 - bits, answer);
    };
    append(query.masks, kAnswerMaskBits, 1);
    append(query.sums, kAnswerBodyBits, 0);
  }
  return answer;
}

SmallServer::Phases SmallServer::AnswerTogether(std::span<const Loan> rooms,
                                                std::span<Bytes> out) const {
  Phases phases;
  const CpuMeter meter;
  double before = 0;
  const auto lap = [&] {
    const double now = meter.Seconds();
    return now - std::exchange(before, now);
  };
  std::vector<const uint32_t*> vectors;
  std::vector<uint32_t*> sums;
  Unpack(rooms);
  for (const Loan& loan : rooms) {
    loan.room().sums.resize(masks_.size());
    vectors.push_back(loan.room().positions.data());
    sums.push_back(loan.room().sums.data());
  }
  phases.unpack = lap();
  FirstStage(vectors, sums);
  phases.first_stage = lap();
  for (size_t i = 0; i < rooms.size(); ++i) {
    Fold(rooms[i].room());
    out[i] = Round(rooms[i].room());
  }
  phases.fold = lap();
  return phases;
}

absl::StatusOr<std::vector<uint32_t>> SmallServer::Unrounded(BytesView query) const {
  std::vector<Loan> loan;
  Room& room = loan.emplace_back(*this).room();
  SHOAL_RETURN_IF_ERROR(ReadElements(query, room));
  std::vector<Bytes> out(1);
  AnswerTogether(loan, out);
  std::vector<uint32_t> words;
  for (uint64_t slice = 0; slice < shape_.slices; ++slice) {
    for (const std::vector<uint32_t>* parts : {&room.masks, &room.sums}) {
      const auto at =
          parts->begin() + static_cast<ptrdiff_t>(slice * shape_.outputs() * kPolynomialWords);
      words.insert(words.end(), at, at + kPolynomialWords);
    }
  }
  return words;
}

absl::StatusOr<SmallServer::Phases> SmallServer::Measure(std::span<const BytesView> queries) const {
  SHOAL_CHECK(queries.size() <= SmallShape::kTogether);
  std::vector<Loan> rooms;
  for (const BytesView query : queries) {
    SHOAL_RETURN_IF_ERROR(ReadElements(query, rooms.emplace_back(*this).room()));
  }
  std::vector<Bytes> out(queries.size());
  return AnswerTogether(rooms, out);
}

std::vector<absl::StatusOr<Bytes>> SmallServer::Answer(
    Role role, std::span<const RequestView> requests) const {
  return AnswerInPasses(
      setup_, kSingleRole, shape_.query_bytes(), SmallShape::kTogether, role, requests,
      [this](BytesView query) -> absl::StatusOr<Loan> {
        Loan loan(*this);
        SHOAL_RETURN_IF_ERROR(ReadElements(query, loan.room()));
        return loan;
      },
      [this](std::span<const Loan> rooms) {
        std::vector<Bytes> answers(rooms.size());
        AnswerTogether(rooms, answers);
        return answers;
      });
}

absl::StatusOr<double> SmallServer::RefreshShare(const Content& content,
                                                 std::span<const uint64_t> changed_rows) const {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, shape_.capacity(), content, changed_rows));
  uint64_t groups = 0, last = ~uint64_t{0};
  for (const uint64_t row : changed_rows) {
    if (row / shape_.group_rows != last) ++groups;
    last = row / shape_.group_rows;
  }
  const uint64_t all = (setup_.rows() + shape_.group_rows - 1) / shape_.group_rows;
  return std::min(1.0, static_cast<double>(groups) / static_cast<double>(all));
}

absl::StatusOr<std::optional<Delta>> SmallServer::Refresh(const Content& content,
                                                          std::span<const uint64_t> changed_rows) {
  SHOAL_RETURN_IF_ERROR(CheckRefreshRows(setup_, shape_.capacity(), content, changed_rows));
  std::vector<uint64_t> groups;
  for (const uint64_t row : changed_rows) {
    const uint64_t group = row / shape_.group_rows;
    if (groups.empty() || groups.back() != group) groups.push_back(group);
  }
  // Groups of one sum of the first stage change the same masks, and come one after another.
  std::vector<size_t> first;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i == 0 || groups[i] / shape_.terms != groups[i - 1] / shape_.terms) first.push_back(i);
  }
  For(first.size(), [&](size_t run) {
    const size_t end = run + 1 < first.size() ? first[run + 1] : groups.size();
    const uint64_t output = groups[first[run]] / shape_.terms;
    std::vector<uint32_t> change(shape_.slices * kPolynomialWords);
    std::vector<uint32_t> encoded, mask(kPolynomialWords), difference(kPolynomialWords);
    for (size_t i = first[run]; i < end; ++i) {
      const uint64_t group = groups[i];
      EncodeGroups(content, group, 1, encoded);
      for (size_t block = 0; block < kPrimes * kBlocks; ++block) {
        std::copy_n(position_masks_.data() + (block * shape_.terms + group % shape_.terms) * kBlock,
                    kBlock, mask.data() + block * kBlock);
      }
      for (uint64_t slice = 0; slice < shape_.slices; ++slice) {
        uint32_t* const now = encoded.data() + slice * kPolynomialWords;
        for (size_t block = 0; block < kPrimes * kBlocks; ++block) {
          uint32_t* const place =
              Place(slice, static_cast<uint32_t>(block / kBlocks), block % kBlocks, group);
          std::copy_n(place, kBlock, difference.data() + block * kBlock);
          std::copy_n(now + block * kBlock, kBlock, place);
        }
        SubtractPolynomials(now, difference.data(), difference.data());
        uint32_t* const sum = change.data() + slice * kPolynomialWords;
        Dot(kernel_, difference.data(), mask.data(), 1, sum, sum);
      }
    }
    for (uint64_t slice = 0; slice < shape_.slices; ++slice) {
      uint32_t* const sum = change.data() + slice * kPolynomialWords;
      TransformAllBack(sum);
      uint32_t* const at = masks_.data() + (slice * shape_.outputs() + output) * kPolynomialWords;
      AddPolynomials(at, sum, at);
    }
  });
  SetEpoch(content, setup_);
  id_ = SetupId(setup_);
  return std::optional<Delta>();
}

}  // namespace shoal::pir::rlwe
