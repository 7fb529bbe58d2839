#include "src/server/pieces.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/byte_source.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/onion/onion.h"
#include "src/server/offline.h"

namespace shoal::server {
namespace {

using sharing::Half;
using ::shoal::testing::StatusIs;

// Gives bytes in pieces of one length.
class SmallPieces final : public ByteSource {
 public:
  SmallPieces(Bytes bytes, size_t each) : bytes_(std::move(bytes)), each_(each) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<BytesView> Next() override {
    const BytesView rest = BytesView(bytes_).subspan(given_);
    const BytesView piece = rest.first(std::min(each_, rest.size()));
    given_ += piece.size();
    return piece;
  }

 private:
  const Bytes bytes_;
  const size_t each_;
  size_t given_ = 0;
};

void AddTo(Bytes& list, BytesView submission) {
  AppendLe(list, static_cast<uint32_t>(submission.size()));
  Append(list, submission);
}

absl::StatusOr<Bytes> PiecesOf(const Bytes& list, uint64_t slots, Half half, size_t each) {
  PieceSource source(std::make_unique<SmallPieces>(list, each), slots, half);
  absl::StatusOr<Bytes> all = ReadAll(source);
  if (all.ok()) {
    EXPECT_EQ(all->size(), source.size());
  }
  return all;
}

// Each half gets its pieces of all submissions, in order, however the list is cut on its way.
TEST(PieceSourceTest, GivesTheHalvesPieces) {
  shoal::testing::TestRandom random(1);
  Bytes list, a, b;
  uint64_t slots = 0;
  for (const size_t count : {1u, 7u, 1u, 300u}) {
    const size_t each = onion::SubmissionBytes(2, count);
    Bytes submission(2 * each);
    random.Fill(submission);
    AddTo(list, submission);
    AddTo(a, BytesView(submission).first(each));
    AddTo(b, BytesView(submission).last(each));
    slots += count;
  }
  for (const size_t each :
       {size_t{1}, size_t{3}, size_t{4}, size_t{163}, size_t{5000}, list.size()}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes of_a, PiecesOf(list, slots, Half::kA, each));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes of_b, PiecesOf(list, slots, Half::kB, each));
    EXPECT_EQ(of_a, a) << each;
    EXPECT_EQ(of_b, b) << each;
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes nothing, PiecesOf({}, 0, Half::kA, 1));
  EXPECT_TRUE(nothing.empty());
}

// A journal that was damaged, or kept submissions of another kind, gives no pieces.
TEST(PieceSourceTest, OtherListsAreRefused) {
  const auto refused = [](const Bytes& list, uint64_t slots, const std::string& why) {
    EXPECT_THAT(PiecesOf(list, slots, Half::kA, 1000).status(),
                StatusIs(absl::StatusCode::kDataLoss, why));
  };
  Bytes of_one_piece, cut, wrong_slots;
  AddTo(of_one_piece, Bytes(onion::SubmissionBytes(2, 5)));
  refused(of_one_piece, 1, "a submission of 208 bytes in a list of those of two pieces");
  AddTo(cut, Bytes(onion::TwoPiecesBytes(3)));
  wrong_slots = cut;
  AddTo(cut, Bytes(onion::TwoPiecesBytes(2)));
  cut.resize(cut.size() - 1);
  refused(cut, 5, "ends too early");
  AddTo(wrong_slots, Bytes(onion::TwoPiecesBytes(3)));
  refused(wrong_slots, 2, "more of them than slots");
}

}  // namespace
}  // namespace shoal::server
