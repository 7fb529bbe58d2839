#include "src/pir/rlwe/small_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/masks.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/checks.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"
#include "src/pir/rlwe/small_public.h"

namespace shoal::pir::rlwe {
namespace {

// Q / 256, to nearest: what a byte is multiplied by.
constexpr uint64_t kDelta = (kModulus + 128) / 256;

// a b modulo prime k.
uint32_t Product(uint64_t a, uint64_t b, size_t k) {
  return static_cast<uint32_t>(k == 0 ? a * b % kPrime[0] : a * b % kPrime[1]);
}

// 2^-log modulo prime k.
uint64_t HalfPower(uint32_t log, size_t k) {
  uint64_t value = 1;
  for (uint32_t i = 0; i < log; ++i) value = value * ((kPrime[k] + uint64_t{1}) / 2) % kPrime[k];
  return value;
}

// What digit i of a gadget stands for, modulo prime k.
uint64_t Power(const Gadget& gadget, uint32_t digit, size_t k) {
  return (uint64_t{1} << (gadget.drop() + gadget.bits * digit)) % kPrime[k];
}

// Appends a query's elements, one after the other, each under the client's secret.
class Elements {
 public:
  // Draws the secret, and leaves it transformed. All must outlive this.
  Elements(const lwe::Kernel& kernel, const std::vector<uint32_t>& public_parts,
           RandomSource& stream, SecretVector<uint32_t>& secret, Bytes& query)
      : kernel_(kernel),
        public_parts_(public_parts),
        stream_(stream),
        secret_(secret),
        query_(query) {
    gaussian_.Sample(kernel_, stream_, samples_);
    for (size_t k = 0; k < kPrimes; ++k) {
      for (size_t w = 0; w < kDegree; ++w) {
        body_[k * kDegree + w] = Residue(samples_[w], k);
      }
    }
    secret_.resize(kPolynomialWords);
    std::ranges::copy(body_, secret_.begin());
    TransformAll(secret_.data());
  }

  // a s + e + plain(k, w), where plain is of coefficients.
  template <typename Plain>
  void Add(const Plain& plain) {
    Mask(plain);
    Append();
  }
  // a s + e + factor(k) image, where the image is transformed.
  template <typename Factor>
  void AddScaled(const SecretVector<uint32_t>& image, const Factor& factor) {
    Mask([](size_t, size_t) { return uint32_t{0}; });
    for (size_t k = 0; k < kPrimes; ++k) {
      for (size_t w = k * kDegree; w < (k + 1) * kDegree; ++w) {
        product_[w] = Product(image[w], factor(k), k);
      }
    }
    AddPolynomials(body_.data(), product_.data(), body_.data());
    Append();
  }

  uint32_t count() const { return count_; }

 private:
  template <typename Plain>
  void Mask(const Plain& plain) {
    gaussian_.Sample(kernel_, stream_, samples_);
    for (size_t k = 0; k < kPrimes; ++k) {
      for (size_t w = 0; w < kDegree; ++w) {
        const uint32_t sum = Residue(samples_[w], k) + plain(k, w);
        body_[k * kDegree + w] = std::min(sum, sum - kPrime[k]);
      }
    }
    TransformAll(body_.data());
    MultiplyPolynomials(public_parts_.data() + count_ * kPolynomialWords, secret_.data(),
                        product_.data());
    AddPolynomials(body_.data(), product_.data(), body_.data());
  }
  void Append() {
    AppendResidues(body_, query_);
    ++count_;
  }

  const lwe::Kernel& kernel_;
  const std::vector<uint32_t>& public_parts_;
  RandomSource& stream_;
  SecretVector<uint32_t>& secret_;
  Bytes& query_;
  const lwe::GaussianSampler& gaussian_ = lwe::GaussianSampler::Get();
  SecretVector<int32_t> samples_ = SecretVector<int32_t>(kDegree);
  SecretVector<uint32_t> body_ = SecretVector<uint32_t>(kPolynomialWords);
  SecretVector<uint32_t> product_ = SecretVector<uint32_t>(kPolynomialWords);
  uint32_t count_ = 0;
};

// How the server unpacks the rest of the query, and squares the secret.
void AddKeys(const SecretVector<uint32_t>& secret, Elements& elements) {
  SecretVector<uint32_t> image(kPolynomialWords), square(kPolynomialWords);
  UnpackConstants::Get().Apply(secret.data(), image.data());
  MultiplyPolynomials(secret.data(), secret.data(), square.data());
  for (uint32_t i = 0; i < kUnpackGadget.digits; ++i) {
    elements.AddScaled(image, [&](size_t k) { return kPrime[k] - Power(kUnpackGadget, i, k); });
  }
  for (uint32_t i = 0; i < kSquareGadget.digits; ++i) {
    elements.AddScaled(square, [&](size_t k) { return Power(kSquareGadget, i, k); });
  }
}

// Which of its terms the server takes: one at this position, zeros elsewhere.
void AddPosition(const SmallShape& shape, uint64_t position, Elements& elements) {
  const uint32_t log = shape.pack_log();
  uint64_t delta[kPrimes];
  for (size_t k = 0; k < kPrimes; ++k) {
    delta[k] = kDelta % kPrime[k] * HalfPower(log, k) % kPrime[k];
  }
  // Values are 2^(kPackLog - log) coefficients apart.
  const uint32_t apart = kPackLog - log;
  for (uint64_t e = 0; e < shape.position_elements(); ++e) {
    elements.Add([&](size_t k, size_t w) {
      if (w >> kPackLog != 0 || (w & ((1u << apart) - 1)) != 0) return uint32_t{0};
      const uint64_t here = (e << log) + (w >> apart);
      return static_cast<uint32_t>(EqualMask(here, position) & delta[k]);
    });
  }
}

// The bits of the output that the folding ends at.
void AddFolds(const SmallShape& shape, uint64_t output, Elements& elements) {
  const uint32_t apart = kPackLog - kFoldPackLog;
  for (uint64_t e = 0; e < shape.fold_elements(); ++e) {
    elements.Add([&](size_t k, size_t w) {
      const uint64_t value = (e << kFoldPackLog) + (w >> apart);
      if (w >> kPackLog != 0 || (w & ((1u << apart) - 1)) != 0 || value >= shape.fold_values()) {
        return uint32_t{0};
      }
      // Level t folds the upper half of what is left to the lower one.
      const auto level = static_cast<uint32_t>(value / kFoldGadget.digits);
      const uint64_t bit = output >> (shape.folds - 1 - level) & 1;
      const uint64_t digit = FoldStep(value % kFoldGadget.digits) % kPrime[k];
      return static_cast<uint32_t>((0 - bit) & (digit * HalfPower(kFoldPackLog, k) % kPrime[k]));
    });
  }
}

}  // namespace

SmallClient::SmallClient(const wire::PirSetup& setup, const SmallShape& shape,
                         const lwe::Kernel& kernel)
    : setup_(setup), shape_(shape), kernel_(kernel) {
  public_parts_.resize(shape_.elements() * kPolynomialWords);
  for (uint32_t e = 0; e < shape_.elements(); ++e) {
    SmallPublicPart(shape, e,
                    std::span(public_parts_).subspan(e * kPolynomialWords, kPolynomialWords));
  }
}

absl::StatusOr<std::unique_ptr<SmallClient>> SmallClient::Create(const wire::PirSetup& setup,
                                                                 const lwe::Kernel* kernel) {
  SHOAL_ASSIGN_OR_RETURN(const SmallShape shape, ParseSmallShape(setup));
  return std::unique_ptr<SmallClient>(new SmallClient(setup, shape, lwe::KernelOr(kernel)));
}

SmallAsked SmallClient::Ask(uint64_t row, RandomSource& random) const {
  const uint64_t group = row / shape_.group_rows;
  const uint64_t position = group % shape_.terms, output = group / shape_.terms;
  SmallAsked asked;
  asked.place = {row % shape_.group_rows};

  // There are thousands of samples, so they come from a stream cipher under one seed.
  const Seed seed = random.NewSeed();
  SeededRandom stream(seed.view(), "shoal small pir query v1");
  Elements elements(kernel_, public_parts_, stream, asked.secret, asked.query);
  asked.query.reserve(shape_.query_bytes());
  AppendQueryHeader(setup_, SetupId(setup_), asked.query);
  AddKeys(asked.secret, elements);
  AddPosition(shape_, position, elements);
  AddFolds(shape_, output, elements);
  SHOAL_CHECK(elements.count() == shape_.elements() && asked.query.size() == shape_.query_bytes());
  return asked;
}

absl::Status SmallClient::Unmask(const SmallAsked& asked, BytesView answer,
                                 SecretVector<uint32_t>& coefficients) const {
  SHOAL_CHECK(asked.secret.size() == kPolynomialWords);
  if (answer.size() != shape_.answer_bytes()) {
    return absl::InvalidArgumentError(absl::StrFormat("smallpir: an answer of %d bytes, not %d",
                                                      answer.size(), shape_.answer_bytes()));
  }
  constexpr uint64_t kMaskBytes = kDegree * kAnswerMaskBits / 8;
  coefficients.resize(shape_.slices * kDegree);
  std::vector<uint32_t> mask(kDegree), body(kDegree);
  SecretVector<uint32_t> product(kPolynomialWords);
  for (uint64_t slice = 0; slice < shape_.slices; ++slice) {
    const BytesView here = answer.subspan(slice * kSliceAnswerBytes, kSliceAnswerBytes);
    SHOAL_RETURN_IF_ERROR(lwe::ParseRounded(here.first(kMaskBytes), 32 - kAnswerMaskBits, mask));
    SHOAL_RETURN_IF_ERROR(lwe::ParseRounded(here.subspan(kMaskBytes), 32 - kAnswerBodyBits, body));
    // The product over the integers: below 2^24 * 2048 * 196 < Q / 2.
    for (size_t k = 0; k < kPrimes; ++k) {
      for (size_t w = 0; w < kDegree; ++w) {
        product[k * kDegree + w] = mask[w] >> (32 - kAnswerMaskBits);
      }
    }
    TransformAll(product.data());
    MultiplyPolynomials(product.data(), asked.secret.data(), product.data());
    for (uint32_t k = 0; k < kPrimes; ++k) TransformBack(k, product.data() + k * kDegree);
    for (size_t w = 0; w < kDegree; ++w) {
      const uint64_t x = Compose(product[w], product[kDegree + w]);
      // Q less is the same modulo 2^24 only if it is taken away: numbers above Q / 2 are negative.
      const uint64_t negative = 0 - ((kModulus / 2 - x) >> 63);
      const uint64_t signed_x = x - (negative & kModulus);
      coefficients[slice * kDegree + w] =
          static_cast<uint32_t>((body[w] >> (32 - kAnswerMaskBits)) - signed_x) &
          ((1u << kAnswerMaskBits) - 1);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SecretVector<uint8_t>> SmallClient::Recover(const SmallAsked& asked,
                                                           BytesView answer) const {
  SecretVector<uint32_t> coefficients;
  SHOAL_RETURN_IF_ERROR(Unmask(asked, answer, coefficients));
  SHOAL_CHECK(asked.place.size() == 1);
  // Every row of the group is looked at, and one is taken.
  SecretVector<uint8_t> record(setup_.record_bytes());
  for (uint64_t row = 0; row < shape_.group_rows; ++row) {
    const auto take = static_cast<uint8_t>(EqualMask(row, asked.place[0]));
    for (size_t i = 0; i < record.size(); ++i) {
      const uint32_t value = coefficients[row * record.size() + i];
      record[i] |= take & static_cast<uint8_t>((value + (1u << (kAnswerMaskBits - 9))) >>
                                               (kAnswerMaskBits - 8));
    }
  }
  return record;
}

std::vector<int64_t> SmallClient::Errors(const SmallAsked& asked,
                                         std::span<const uint32_t> unrounded,
                                         BytesView group) const {
  SHOAL_CHECK(unrounded.size() == 2 * shape_.slices * kPolynomialWords &&
              group.size() <= shape_.slices * kDegree);
  std::vector<int64_t> errors(group.size());
  std::vector<uint32_t> product(kPolynomialWords);
  for (size_t i = 0; i < group.size(); ++i) {
    const uint32_t* const mask = unrounded.data() + i / kDegree * 2 * kPolynomialWords;
    const size_t w = i % kDegree;
    if (w == 0) {
      std::copy_n(mask, kPolynomialWords, product.begin());
      TransformAll(product.data());
      MultiplyPolynomials(product.data(), asked.secret.data(), product.data());
      for (uint32_t k = 0; k < kPrimes; ++k) TransformBack(k, product.data() + k * kDegree);
      SubtractPolynomials(mask + kPolynomialWords, product.data(), product.data());
    }
    const auto got = static_cast<__int128>(Compose(product[w], product[kDegree + w]));
    const auto modulus = static_cast<__int128>(kModulus);
    __int128 error =
        (got - static_cast<int8_t>(group[i]) * static_cast<__int128>(kDelta)) % modulus;
    if (error > modulus / 2) error -= modulus;
    if (error < -modulus / 2) error += modulus;
    errors[i] = static_cast<int64_t>(error);
  }
  return errors;
}

}  // namespace shoal::pir::rlwe
