#include "src/pir/rlwe/hintless_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/masks.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/checks.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/rlwe/hintless_public.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"

namespace shoal::pir::rlwe {
namespace {

constexpr int64_t kModulusSigned = static_cast<int64_t>(kModulus);

}  // namespace

HintlessClient::HintlessClient(const wire::PirSetup& setup, const HintlessShape& shape,
                               const lwe::Kernel& kernel)
    : setup_(setup), shape_(shape), kernel_(kernel) {
  const Digest seed = HintlessPublicSeed(setup, shape);
  for (uint64_t block = 0; block < shape_.blocks(); ++block) {
    const std::vector<uint32_t> words = ExpandColumnBlock(seed, block);
    columns_.insert(columns_.end(), words.begin(), words.end());
  }
  for (uint32_t key = 0; key < kCollapseKeys; ++key) keys_[key] = ExpandCollapseKey(seed, key);
}

absl::StatusOr<std::unique_ptr<HintlessClient>> HintlessClient::Create(const wire::PirSetup& setup,
                                                                       const lwe::Kernel* kernel) {
  SHOAL_ASSIGN_OR_RETURN(const HintlessShape shape, ParseHintlessShape(setup));
  return std::unique_ptr<HintlessClient>(new HintlessClient(setup, shape, lwe::KernelOr(kernel)));
}

HintlessAsked HintlessClient::Ask(uint64_t row, RandomSource& random) const {
  const uint64_t wanted = row / shape_.rows_per_column;
  HintlessAsked asked;
  asked.place = {row % shape_.rows_per_column};

  // There are thousands of samples, so they come from a stream cipher under one seed.
  const Seed seed = random.NewSeed();
  SeededRandom stream(seed.view(), "shoal hintless query v1");
  const lwe::GaussianSampler& gaussian = lwe::GaussianSampler::Get();
  SecretVector<int32_t> samples(kDegree);
  gaussian.Sample(kernel_, stream, samples);
  SecretVector<uint32_t>& secret = asked.secret;
  secret.resize(kPolynomialWords);
  for (size_t i = 0; i < kPolynomialWords; ++i)
    secret[i] = Residue(samples[i % kDegree], i / kDegree);
  for (uint32_t k = 0; k < kPrimes; ++k) Transform(k, secret.data() + k * kDegree);

  asked.query.reserve(shape_.query_bytes());
  AppendQueryHeader(setup_, SetupId(setup_), asked.query);

  // a s + e + 2^24 at the wanted column, rounded up or down at random so that the mean is that.
  SecretVector<uint32_t> words(shape_.blocks() * kDegree), product(kPolynomialWords);
  SecretVector<uint8_t> steps(kDegree);
  const uint32_t step = (uint32_t{1} << (32 - shape_.word_bits)) - 1, half = (step + 1) / 2;
  for (uint64_t block = 0; block < shape_.blocks(); ++block) {
    MultiplyPolynomials(columns_.data() + block * kPolynomialWords, secret.data(), product.data());
    for (uint32_t k = 0; k < kPrimes; ++k) TransformBack(k, product.data() + k * kDegree);
    gaussian.Sample(kernel_, stream, samples);
    stream.Fill(steps);
    for (size_t w = 0; w < kDegree; ++w) {
      // The product over the integers: below 2^31 * 2048 * 196 < Q / 2.
      const int64_t sum = ComposeSigned(product[w], product[kDegree + w]) + samples[w];
      const auto here = static_cast<uint32_t>(EqualMask(block * kDegree + w, wanted) & lwe::kDelta);
      // AppendRounded adds the half of a step that is taken here.
      words[block * kDegree + w] = static_cast<uint32_t>(sum) + here + (steps[w] & step) - half;
    }
  }
  lwe::AppendRounded(std::span(words).first(shape_.columns), 32 - shape_.word_bits, asked.query);

  // The keys: a s + e + 2^27 times the secret's image.
  SecretVector<uint32_t> body(kPolynomialWords);
  const Orbit& orbit = Orbit::Get();
  for (uint32_t key = 0; key < kCollapseKeys; ++key) {
    gaussian.Sample(kernel_, stream, samples);
    MultiplyPolynomials(keys_[key].data(), secret.data(), product.data());
    const bool conjugation = key == kConjugationKey;
    for (uint32_t k = 0; k < kPrimes; ++k) {
      uint32_t* const error = body.data() + k * kDegree;
      for (size_t w = 0; w < kDegree; ++w) error[w] = Residue(samples[w], k);
      Transform(k, error);
      const uint64_t factor = (uint64_t{1} << kCollapseGadget.drop()) % kPrime[k];
      for (size_t place = 0; place < kDegree; ++place) {
        const size_t w = orbit.word(place);
        const uint64_t image = secret[k * kDegree + orbit.word(Orbit::Source(
                                                        place, conjugation ? 0 : 1, conjugation))];
        const uint64_t sum = factor * image + error[w] + product[k * kDegree + w];
        error[w] = static_cast<uint32_t>(k == 0 ? sum % kPrime[0] : sum % kPrime[1]);
      }
    }
    AppendResidues(body, asked.query);
  }
  SHOAL_CHECK(asked.query.size() == shape_.query_bytes());
  return asked;
}

void HintlessClient::MaskTimesSecret(const HintlessAsked& asked, BytesView mask,
                                     SecretVector<int64_t>& out) const {
  SHOAL_CHECK(asked.secret.size() == kPolynomialWords);
  std::vector<uint32_t> words(kDegree);
  SHOAL_CHECK(lwe::ParseRounded(mask, 32 - kHintlessMaskBits, words).ok());
  // The product over the integers: below 2^22 * 2048 * 196 < Q / 2.
  SecretVector<uint32_t> product(kPolynomialWords);
  for (size_t i = 0; i < kPolynomialWords; ++i) {
    product[i] = words[i % kDegree] >> (32 - kHintlessMaskBits);
  }
  for (uint32_t k = 0; k < kPrimes; ++k) Transform(k, product.data() + k * kDegree);
  MultiplyPolynomials(product.data(), asked.secret.data(), product.data());
  for (uint32_t k = 0; k < kPrimes; ++k) TransformBack(k, product.data() + k * kDegree);
  out.resize(kDegree);
  for (size_t w = 0; w < kDegree; ++w) {
    out[w] = ComposeSigned(product[w], product[kDegree + w]);
  }
}

absl::StatusOr<SecretVector<uint8_t>> HintlessClient::Recover(const HintlessAsked& asked,
                                                              BytesView answer) const {
  if (answer.size() != shape_.answer_bytes()) {
    return absl::InvalidArgumentError(absl::StrFormat("hintless: an answer of %d bytes, not %d",
                                                      answer.size(), shape_.answer_bytes()));
  }
  // Every byte of the column is decrypted, and those of one row are taken.
  SecretVector<uint8_t> column(shape_.packs() * kDegree);
  SecretVector<int64_t> masked;
  std::vector<uint32_t> body(kDegree);
  constexpr uint32_t kByteShift = kHintlessMaskBits - 8;
  for (uint64_t pack = 0; pack < shape_.packs(); ++pack) {
    MaskTimesSecret(asked, answer.first(kPackedMaskBytes), masked);
    SHOAL_CHECK(lwe::ParseRounded(answer.subspan(kPackedMaskBytes, kPackedBodyBytes),
                                  32 - kHintlessBodyBits, body)
                    .ok());
    answer = answer.subspan(kPackedMaskBytes + kPackedBodyBytes);
    for (size_t w = 0; w < kDegree; ++w) {
      const uint64_t value =
          (body[w] >> (32 - kHintlessMaskBits)) - static_cast<uint64_t>(masked[w]);
      column[pack * kDegree + w] = static_cast<uint8_t>(
          ((value + (uint64_t{1} << (kByteShift - 1))) >> kByteShift) + lwe::kMaxPlaintext);
    }
  }
  SHOAL_CHECK(asked.place.size() == 1);
  SecretVector<uint8_t> record(setup_.record_bytes());
  for (uint64_t row = 0; row < shape_.rows_per_column; ++row) {
    const auto take = static_cast<uint8_t>(EqualMask(row, asked.place[0]));
    const uint8_t* const from = column.data() + row * record.size();
    for (size_t i = 0; i < record.size(); ++i) record[i] |= take & from[i];
  }
  return record;
}

std::vector<int64_t> HintlessClient::Errors(const HintlessAsked& asked,
                                            std::span<const uint64_t> unrounded,
                                            std::span<const BytesView> masks,
                                            BytesView column) const {
  std::vector<int64_t> errors;
  SecretVector<int64_t> masked;
  for (size_t i = 0; i < column.size(); ++i) {
    if (i % kDegree == 0) MaskTimesSecret(asked, masks[i / kDegree], masked);
    const auto modulus = static_cast<__int128>(kModulusSigned);
    const __int128 mask = masked[i % kDegree] * modulus / (__int128{1} << kHintlessMaskBits);
    const __int128 plain = (int{column[i]} - static_cast<int>(lwe::kMaxPlaintext)) * modulus / 256;
    __int128 error = (static_cast<__int128>(unrounded[i]) - mask - plain) % modulus;
    if (error > modulus / 2) error -= modulus;
    if (error < -modulus / 2) error += modulus;
    errors.push_back(static_cast<int64_t>(error));
  }
  return errors;
}

}  // namespace shoal::pir::rlwe
