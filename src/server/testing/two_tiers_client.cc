#include "src/server/testing/two_tiers_client.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/onion/onion.h"
#include "src/wire/query_batch.h"

namespace shoal::server::testing {
namespace {

using sharing::Half;

constexpr size_t kSeedBytes = 32;

}  // namespace

Bytes TwoTiersClient::Piece(Half half, const Seed& submission_key, const Seed& onion_key,
                            MutableBytes head, MutableBytes tail) const {
  const std::span recipients = std::span(round_.recipients()).subspan(half == Half::kA ? 0 : 2);
  const Digest& id = ids_.of(half);
  Bytes onion(onion::OnionBytes(1)), submission(onion.size() + onion::kSealBytes);
  onion::BuildOnions(id, 2, recipients.subspan(1, 1), onion_key.view(), tail, onion);
  const onion::SubmissionToSeal seal = {.ephemeral_secret = submission_key.view(),
                                        .onions = onion,
                                        .submission = submission,
                                        .seeds = head};
  onion::SealSubmissions(recipients[0], id, {&seal, 1});
  Bytes piece;
  AppendLe(piece, static_cast<uint32_t>(submission.size()));
  Append(piece, submission);
  return piece;
}

void TwoTiersClient::Submit() {
  RandomSource& random = deployment_->random();
  const Seed submission_a = random.NewSeed(), onion_a = random.NewSeed();
  const Seed submission_b = random.NewSeed(), onion_b = random.NewSeed();
  Submit(submission_a, onion_a, submission_b, onion_b);
}

void TwoTiersClient::Submit(const Seed& submission_a, const Seed& onion_a, const Seed& submission_b,
                            const Seed& onion_b) {
  seeds.resize((slots + 1) * sharing::kSeedsPerQuery * kSeedBytes);
  const auto seed = [&](size_t which) {
    return MutableBytes(seeds).subspan((slots * sharing::kSeedsPerQuery + which) * kSeedBytes,
                                       kSeedBytes);
  };
  Append(pieces_a, Piece(Half::kA, submission_a, onion_a, seed(0), seed(1)));
  Append(pieces_b, Piece(Half::kB, submission_b, onion_b, seed(2), seed(3)));
  ++slots;
}

void TwoTiersClient::Query(std::vector<uint32_t> wanted) {
  rows = std::move(wanted);
  parts.resize(rows.size() * sharing::PartsBytes(selection_bytes()));
  sharing::MakeParts(BytesView(seeds).first(rows.size() * sharing::kSeedsPerQuery * kSeedBytes),
                     ids_, buckets_, rows, parts);
}

Bytes TwoTiersClient::BatchOf(size_t begin, size_t record_bytes) const {
  const size_t each = sharing::PartsBytes(selection_bytes());
  wire::RecordBatchWriter writer(static_cast<uint32_t>(rows.size()), static_cast<uint32_t>(slots),
                                 record_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    writer.Put(i, static_cast<uint32_t>(i),
               BytesView(parts).subspan(i * each + begin, record_bytes));
  }
  return std::move(writer).Take();
}

Bytes TwoTiersClient::BatchA() const { return BatchOf(0, sharing::PartsBytes(selection_bytes())); }

Bytes TwoTiersClient::BatchB() const {
  return BatchOf(sharing::PartBytes(Half::kA, selection_bytes()),
                 sharing::PartBytes(Half::kB, selection_bytes()));
}

std::vector<bool> TwoTiersClient::Right(BytesView tagged) const {
  const size_t answer_bytes = round_.answer_bytes();
  Bytes answers(rows.size() * answer_bytes);
  sharing::UnmaskHalves(BytesView(seeds).first(rows.size() * sharing::kSeedsPerQuery * kSeedBytes),
                        ids_, selection_bytes(), answer_bytes, tagged, answers);
  std::vector<bool> right;
  for (size_t i = 0; i < rows.size(); ++i) {
    const BytesView answer = BytesView(answers).subspan(i * answer_bytes, answer_bytes);
    right.push_back(std::ranges::equal(answer, deployment_->Answer(rows[i])));
    if (right.back()) {
      SHOAL_EXPECT_OK(deployment_->Verify(rows[i], answer));
    } else {
      EXPECT_EQ(std::ranges::count(answer, 0), static_cast<ptrdiff_t>(answer_bytes)) << i;
    }
  }
  return right;
}

}  // namespace shoal::server::testing
