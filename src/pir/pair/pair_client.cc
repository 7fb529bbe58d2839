#include "src/pir/pair/pair_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/masks.h"
#include "src/base/status_macros.h"

namespace shoal::pir::pair {
namespace {

// One vector is uniform, and the other differs from it at the row. Every byte is looked at,
// whatever the row.
void MakeVectors(uint64_t row, RandomSource& random, MutableBytes offline, MutableBytes online) {
  random.Fill(offline);
  const auto bit = static_cast<uint8_t>(1u << row % 8);
  for (size_t i = 0; i < offline.size(); ++i) {
    const auto here = static_cast<uint8_t>(EqualMask(i, row / 8));
    online[i] = offline[i] ^ (bit & here);
  }
}

}  // namespace

PairClient::PairClient(const wire::PirSetup& setup, const PairShape& shape)
    : setup_(setup), shape_(shape) {
  AppendQueryHeader(setup_, SetupId(setup_), header_);
}

absl::StatusOr<std::unique_ptr<PairClient>> PairClient::Create(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const PairShape shape, ParsePairShape(setup));
  return std::unique_ptr<PairClient>(new PairClient(setup, shape));
}

PairAsked PairClient::Ask(uint64_t row, RandomSource& random) const {
  PairAsked asked;
  std::array<MutableBytes, 2> bodies;
  for (size_t server = 0; server < bodies.size(); ++server) {
    SecretVector<uint8_t>& query = asked.queries[server];
    query.resize(shape_.query_bytes());
    std::ranges::copy(header_, query.begin());
    bodies[server] = MutableBytes(query).subspan(kQueryHeaderBytes);
  }
  if (shape_.form == Form::kVector) {
    MakeVectors(row, random, bodies[0], bodies[1]);
  } else {
    MakePointKeys(shape_.levels(), row, random, bodies[0], bodies[1]);
  }
  return asked;
}

absl::StatusOr<SecretVector<uint8_t>> PairClient::Recover(
    const PairAsked& /*asked*/, std::span<const BytesView> answers) const {
  SHOAL_CHECK(answers.size() == kRoles.size());
  for (const BytesView answer : answers) {
    if (answer.size() == shape_.answer_bytes()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("pair: an answer of ", answer.size(), " bytes, not ", shape_.answer_bytes()));
  }
  SecretVector<uint8_t> record(answers[0].begin(), answers[0].end());
  for (size_t i = 0; i < record.size(); ++i) record[i] ^= answers[1][i];
  return record;
}

}  // namespace shoal::pir::pair
