#include "src/sharing/halves.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/hash.h"
#include "src/base/instruction_set.h"
#include "src/base/query_buckets.h"
#include "src/base/testing/test_random.h"
#include "src/sharing/batch.h"
#include "src/sharing/testing/halves_vectors.h"

namespace shoal::sharing {
namespace {

using ::shoal::sharing::testing::HalvesVector;
using ::shoal::testing::TestRandom;

// Every set of instructions that this machine has, one after the other.
void ForEachInstructionSet(const std::function<void()>& check) {
  const InstructionSet before = ActiveInstructionSet();
  for (const InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    SCOPED_TRACE(std::string(NameOf(set)));
    check();
  }
  UseInstructionSet(before);
}

// A message on its way, in the order in which they travel.
enum class Hop {
  kParts,       // a client's, at the frontend
  kPartB,       // its part B, at party 2
  kForwardedA,  // v
  kForwardedB,
  kResultA,  // x, at the tail before it masks it
  kResultB,
  kTailA,  // y | T
  kTailB,
  kHeadA,  // z | T'
  kHeadB,
  kFetched,  // both halves, at the client
};
constexpr Hop kHops[] = {Hop::kParts, Hop::kPartB, Hop::kForwardedA, Hop::kForwardedB, Hop::kTailA,
                         Hop::kTailB, Hop::kHeadA, Hop::kHeadB,      Hop::kFetched};
// Sees all messages of a hop, each of `bytes` bytes, and may change them.
using Tamper = std::function<void(Hop hop, size_t bytes, MutableBytes all)>;

// Queries that go through both halves of a round, whose heads leave them in order.
class TwoHalves {
 public:
  TwoHalves(uint64_t table_rows, uint32_t buckets, size_t answer_bytes, std::vector<uint32_t> rows,
            uint64_t seed)
      : buckets_(table_rows, buckets), answer_bytes_(answer_bytes), rows_(std::move(rows)) {
    TestRandom random(seed);
    random.Fill(round_id_);
    seeds_.resize(32 * kSeedsPerQuery * rows_.size());
    random.Fill(seeds_);
    for (size_t i = 0; i < rows_.size(); ++i) positions_.push_back(static_cast<uint32_t>(4 * i));
  }

  size_t s() const { return buckets_.selection_bytes(); }
  size_t size() const { return rows_.size(); }
  const QueryBuckets& buckets() const { return buckets_; }
  HalfIds ids() const { return HalfIds(round_id_); }
  void set_round_id(const Digest& id) { round_id_ = id; }
  const Digest& round_id() const { return round_id_; }
  Bytes& seeds() { return seeds_; }
  const uint8_t* SeedsOf(QuerySeed which) const {
    return seeds_.data() + 32 * static_cast<size_t>(which);
  }
  std::span<const uint32_t> positions() const { return positions_; }
  Bytes Row(uint32_t row) const { return testing::HalvesTableRow(row, answer_bytes_); }

  struct Outcome {
    std::vector<Bytes> answers;                        // zeros where a tag was wrong
    std::vector<bool> refused;                         // by the frontend, the head of A
    std::vector<bool> dead;                            // at the head of B
    std::map<Hop, std::pair<size_t, Bytes>> messages;  // length of each; all
    bool Served(size_t i, const TwoHalves& of) const { return answers[i] == of.Row(of.rows_[i]); }
  };

  Outcome Run(const Tamper& tamper = nullptr) const {
    const size_t n = size(), one = TaggedBytes(answer_bytes_);
    const HalfIds id = ids();
    Outcome out;
    const auto pass = [&](Hop hop, size_t bytes, Bytes& all) {
      if (tamper) tamper(hop, bytes, all);
      out.messages[hop] = {bytes, all};
    };
    Bytes parts(n * PartsBytes(s()));
    MakeParts(seeds_, id, buckets_, rows_, parts);
    pass(Hop::kParts, PartsBytes(s()), parts);
    Bytes part_b;
    for (size_t i = 0; i < n; ++i) {
      Append(part_b, BytesView(parts).subspan(i * PartsBytes(s()) + PartBytes(Half::kA, s()),
                                              PartBytes(Half::kB, s())));
    }
    pass(Hop::kPartB, PartBytes(Half::kB, s()), part_b);
    std::map<Half, Bytes> tagged;
    for (const Half half : {Half::kA, Half::kB}) {
      const bool a = half == Half::kA;
      const uint8_t* const head = SeedsOf(a ? QuerySeed::kHeadA : QuerySeed::kHeadB);
      const uint8_t* const tail = SeedsOf(a ? QuerySeed::kTailA : QuerySeed::kTailB);
      Bytes v(n * ForwardedBytes(half, s())), wrong(n), lost(n), selections(n * s());
      OpenParts(head, positions_, id, half, s(), a ? parts : part_b, v, wrong);
      (a ? out.refused : out.dead).assign(wrong.begin(), wrong.end());
      pass(a ? Hop::kForwardedA : Hop::kForwardedB, ForwardedBytes(half, s()), v);
      std::vector<uint32_t> asked(n);
      OpenForwarded(tail, positions_, id, half, buckets_, v, asked, selections, lost);
      Bytes x(n * one);
      for (size_t i = 0; i < n; ++i) {
        const Bytes result = Select(asked[i], BytesView(selections).subspan(i * s(), s()));
        std::ranges::copy(result, x.begin() + static_cast<ptrdiff_t>(i * one));
      }
      pass(a ? Hop::kResultA : Hop::kResultB, one, x);
      MaskHalf(tail, positions_, id, half, Role::kTail, s(), answer_bytes_, x);
      const auto spoil = [&](const Bytes& where, uint64_t seed) {
        TestRandom random(seed);
        for (size_t i = 0; i < n; ++i) {
          if (where[i] != 0) random.Fill(MutableBytes(x).subspan(i * one, one));
        }
      };
      spoil(lost, 5);
      pass(a ? Hop::kTailA : Hop::kTailB, one, x);
      MaskHalf(head, positions_, id, half, Role::kHead, s(), answer_bytes_, x);
      spoil(wrong, 6);
      pass(a ? Hop::kHeadA : Hop::kHeadB, one, x);
      tagged[half] = x;
    }
    Bytes fetched;
    for (size_t i = 0; i < n; ++i) {
      for (const Half half : {Half::kA, Half::kB}) {
        Append(fetched, BytesView(tagged[half]).subspan(i * one, one));
      }
    }
    pass(Hop::kFetched, 2 * one, fetched);
    Bytes answers(n * answer_bytes_);
    UnmaskHalves(seeds_, id, s(), answer_bytes_, fetched, answers);
    for (size_t i = 0; i < n; ++i) {
      out.answers.push_back(ToBytes(BytesView(answers).subspan(i * answer_bytes_, answer_bytes_)));
    }
    return out;
  }

  Bytes Select(uint32_t bucket, BytesView selection) const {
    Bytes sum(answer_bytes_);
    for (uint32_t place = 0; place < 8 * selection.size(); ++place) {
      if ((selection[place / 8] >> (place % 8) & 1) == 0) continue;
      const uint64_t row = uint64_t{place} * buckets_.count() + bucket;
      if (row >= buckets_.rows()) continue;
      const Bytes own = Row(static_cast<uint32_t>(row));
      for (size_t k = 0; k < sum.size(); ++k) sum[k] ^= own[k];
    }
    return sum;
  }

 private:
  QueryBuckets buckets_;
  size_t answer_bytes_;
  std::vector<uint32_t> rows_;
  Digest round_id_;
  Bytes seeds_;
  std::vector<uint32_t> positions_;
};

TEST(HalvesTest, AQueryGetsItsRow) {
  ForEachInstructionSet([] {
    for (const auto& [rows, count] : {std::pair{20, 2}, {129, 65}, {1000, 13}, {2048, 2}}) {
      std::vector<uint32_t> asked;
      for (uint32_t i = 0; i < 40; ++i) asked.push_back(i * 7919 % static_cast<uint32_t>(rows));
      asked.push_back(static_cast<uint32_t>(rows) - 1);
      for (const size_t answer_bytes : {1, 58, 64, 112}) {
        const TwoHalves halves(static_cast<uint64_t>(rows), static_cast<uint32_t>(count),
                               answer_bytes, asked, 3);
        const auto outcome = halves.Run();
        for (size_t i = 0; i < asked.size(); ++i) {
          ASSERT_TRUE(outcome.Served(i, halves)) << rows << " " << count << " " << i;
          ASSERT_FALSE(outcome.refused[i] || outcome.dead[i]);
        }
      }
    }
  });
}

// The numbers of queries around those that the functions take at a time give what single ones do,
// and leave what lies between others alone.
TEST(HalvesTest, ManyAreAsOneByOne) {
  ForEachInstructionSet([] {
    for (const size_t n : {0, 1, 3, 16, 17, 255, 256, 257, 600}) {
      TestRandom random(n);
      const QueryBuckets buckets(1000, 13);
      const size_t s = buckets.selection_bytes(), each = PartsBytes(s);
      Digest round_id;
      random.Fill(round_id);
      const HalfIds ids(round_id);
      Bytes seeds(128 * n), parts(each * n), alone(each);
      random.Fill(seeds);
      std::vector<uint32_t> rows(n);
      for (uint32_t& row : rows) row = static_cast<uint32_t>(random.Below(1000));
      MakeParts(seeds, ids, buckets, rows, parts);
      for (size_t i = 0; i < n; ++i) {
        MakeParts(BytesView(seeds).subspan(128 * i, 128), ids, buckets, {&rows[i], 1}, alone);
        ASSERT_TRUE(std::ranges::equal(alone, BytesView(parts).subspan(i * each, each))) << i;
      }
    }
  });
}

// --- Vectors, which src/sharing/halves_vectors.py makes again.

TEST(HalvesTest, HasTheKnownAnswers) {
  const std::vector<HalvesVector> vectors = testing::ReadHalvesVectors();
  ASSERT_EQ(vectors.size(), 5u);
  ForEachInstructionSet([&] {
    for (const HalvesVector& v : vectors) {
      SCOPED_TRACE(v.name);
      TwoHalves halves(v.rows, static_cast<uint32_t>(v.buckets), v.answer_bytes, {v.row}, 1);
      Digest round_id;
      round_id.fill(9);
      halves.set_round_id(round_id);
      Bytes seeds;
      for (const char* name : {"seed_head_A", "seed_tail_A", "seed_head_B", "seed_tail_B"}) {
        Append(seeds, v.at(name));
      }
      halves.seeds() = seeds;
      for (const auto& [half, letter] : {std::pair{Half::kA, "A"}, {Half::kB, "B"}}) {
        EXPECT_EQ(ToBytes(halves.ids().of(half)), v.at(absl::StrCat("id_", letter)));
        EXPECT_EQ(ToBytes(HalfRoot(Bytes(32, 5), half).view()),
                  v.at(absl::StrCat("root_", letter)));
      }
      std::array<Token, 1> token;
      ExpandTokens(seeds.data(), halves.positions(), halves.ids().a, token);
      EXPECT_EQ(ToBytes(token[0]), v.at("token"));
      auto outcome = halves.Run();
      const auto expect = [&](Hop hop, const Bytes& bytes) {
        EXPECT_EQ(outcome.messages[hop].second, bytes) << static_cast<int>(hop);
      };
      Bytes parts = v.at("part_A");
      Append(parts, v.at("part_B"));
      expect(Hop::kParts, parts);
      expect(Hop::kForwardedA, v.at("v_A"));
      expect(Hop::kForwardedB, v.at("v_B"));
      for (const auto& [hop, name] : {std::pair{Hop::kResultA, "x_A"}, {Hop::kResultB, "x_B"}}) {
        Bytes x = v.at(name);
        x.resize(x.size() + kAnswerTagBytes);
        expect(hop, x);
      }
      expect(Hop::kTailA, v.at("tail_A"));
      expect(Hop::kTailB, v.at("tail_B"));
      expect(Hop::kHeadA, v.at("head_A"));
      expect(Hop::kHeadB, v.at("head_B"));
      EXPECT_EQ(outcome.answers[0], v.at("row"));
      // What the tails are told.
      for (const auto& [half, name] : {std::pair{Half::kA, "k2"}, {Half::kB, "k1"}}) {
        const bool a = half == Half::kA;
        std::array<uint32_t, 1> asked;
        std::array<uint8_t, 1> wrong;
        Bytes selection(halves.s());
        OpenForwarded(halves.SeedsOf(a ? QuerySeed::kTailA : QuerySeed::kTailB), halves.positions(),
                      halves.ids(), half, halves.buckets(), v.at(a ? "v_A" : "v_B"), asked,
                      selection, wrong);
        EXPECT_EQ(asked[0], v.row % v.buckets);
        EXPECT_EQ(selection, v.at(name));
        EXPECT_EQ(wrong[0], 0);
      }
    }
  });
}

// --- The conditions of docs/threat-model.md, as far as they are about these bytes.

// Condition 6.
TEST(HalvesTest, HalvesShareNoSecret) {
  TestRandom random(1);
  Digest round_id, other;
  random.Fill(round_id);
  random.Fill(other);
  const HalfIds ids(round_id), others(other);
  EXPECT_EQ(std::set<Digest>({round_id, ids.a, ids.b, others.a, others.b}).size(), 5u);
  const Bytes root(32, 7), next(32, 8);
  std::set<Bytes> roots = {root, next};
  for (const Bytes& of : {root, next}) {
    for (const Half half : {Half::kA, Half::kB}) {
      roots.insert(ToBytes(HalfRoot(of, half).view()));
    }
  }
  EXPECT_EQ(roots.size(), 6u);
  // Nor what a round for rows draws from its root: src/server/round_context.cc.
  for (const absl::string_view domain :
       {"shoal onion key v1", "shoal noise v1", "shoal noise order v1", "shoal permutation v1",
        "shoal fingerprints v1", "shoal round contents v1", "shoal dead answers v1",
        "shoal term v1"}) {
    for (uint64_t number = 0; number <= 2; ++number) {
      EXPECT_TRUE(roots.insert(ToBytes(DeriveKey(root, domain, number))).second)
          << domain << " " << number;
    }
  }
}

// Condition 7: what a seed gives, in every role, and which bytes of its stream it is. One selection
// is under a key of its own.
TEST(HalvesTest, NoByteHasTwoUses) {
  for (uint32_t places = 1; places <= QueryBuckets::kMaxPlaces; ++places) {
    const size_t s = QueryBuckets(2 * uint64_t{places}, 2).selection_bytes();
    for (const Half half : {Half::kA, Half::kB}) {
      for (const Role role : {Role::kHead, Role::kTail}) {
        for (const size_t answer_bytes : {49, 64, 65, 1072}) {
          struct Use {
            const char* what;
            size_t from, bytes;
          };
          const Use uses[] = {{"token", kTokenAt, kTokenBytes},
                              {"query key", kQueryKeyAt, kTagKeyBytes},
                              {"answer key", kAnswerKeyAt, kTagKeyBytes},
                              {"selection seed", kSelectionSeedAt, kTagKeyBytes},
                              {"pad", 64 * kPadBlock, QueryPadBytes(half, role, s)},
                              {"mask", 64 * MaskBlock(half, role, s), answer_bytes}};
          size_t end = 0;
          for (const Use& use : uses) {
            ASSERT_GE(use.from, end) << use.what << " of " << places;
            end = use.from + use.bytes;
          }
        }
      }
    }
  }
}

// Conditions 1 and 5: whatever bit is flipped on the way, this query is lost, and no other. What
// the frontend sees altered it refuses, and nothing of it goes on.
TEST(HalvesTest, AFlippedBitAtAnyHopLosesItsSlotAlone) {
  const TwoHalves halves(20, 2, 24, {7, 12, 3}, 4);
  const auto good = halves.Run();
  size_t flips = 0;
  for (const Hop hop : kHops) {
    const size_t bytes = good.messages.at(hop).first;
    for (size_t bit = 0; bit < 8 * bytes; ++bit, ++flips) {
      const auto outcome = halves.Run([&](Hop at, size_t each, MutableBytes all) {
        if (at == hop) all[each + bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      });
      ASSERT_TRUE(outcome.Served(0, halves) && outcome.Served(2, halves));
      ASSERT_EQ(outcome.answers[1], Bytes(24)) << static_cast<int>(hop) << " " << bit;
      ASSERT_EQ(outcome.refused[1], hop == Hop::kParts) << bit;
      if (hop == Hop::kParts) {
        const auto& [length, v] = outcome.messages.at(Hop::kForwardedA);
        ASSERT_EQ(ToBytes(BytesView(v).subspan(length, length)), Bytes(length));
      }
      if (hop == Hop::kPartB) {
        ASSERT_TRUE(outcome.dead[1]);
        const auto& [length, v] = outcome.messages.at(Hop::kForwardedB);
        ASSERT_EQ(ToBytes(BytesView(v).subspan(length, length)), Bytes(length));
      }
    }
  }
  EXPECT_GT(flips, 2500u);
}

// Condition 5: what is moved to another slot, to the other half or to another round is lost. Where
// a round has the same seeds, the ids alone keep the two apart.
TEST(HalvesTest, WhatIsMovedIsLost) {
  const TwoHalves halves(20, 2, 24, {7, 12, 3}, 4);
  TwoHalves next = halves;
  Digest id;
  id.fill(1);
  next.set_round_id(id);
  const auto elsewhere = next.Run();
  ASSERT_TRUE(elsewhere.Served(0, next));
  for (const Hop hop : kHops) {
    SCOPED_TRACE(static_cast<int>(hop));
    const auto swapped = halves.Run([&](Hop at, size_t each, MutableBytes all) {
      if (at == hop)
        std::swap_ranges(all.begin(), all.begin() + static_cast<ptrdiff_t>(each),
                         all.begin() + static_cast<ptrdiff_t>(each));
    });
    EXPECT_EQ(swapped.answers[0], Bytes(24));
    EXPECT_EQ(swapped.answers[1], Bytes(24));
    EXPECT_TRUE(swapped.Served(2, halves));
    const auto replayed = halves.Run([&](Hop at, size_t each, MutableBytes all) {
      if (at != hop) return;
      const Bytes& theirs = elsewhere.messages.at(hop).second;
      std::copy_n(theirs.begin(), each, all.begin());
    });
    EXPECT_EQ(replayed.answers[0], Bytes(24));
    EXPECT_TRUE(replayed.Served(1, halves));
  }
  // The halves of one answer, exchanged; and of one query, where they are equally long.
  const auto crossed = halves.Run([&](Hop at, size_t each, MutableBytes all) {
    if (at == Hop::kFetched) {
      const auto half = static_cast<ptrdiff_t>(each / 2);
      std::swap_ranges(all.begin(), all.begin() + half, all.begin() + half);
    }
  });
  EXPECT_EQ(crossed.answers[0], Bytes(24));
  EXPECT_TRUE(crossed.Served(1, halves));
}

// --- Conditions 2, 3 and 4: nobody aims at a client and a bucket together. An adversary is the
// head of one half, where it knows the slot of a query, and the tail of the other, where it knows
// the bucket. It does one thing to a slot and another to the positions of a bucket, such that both
// cancel if the slot asks that bucket: the client would be served if and only if it does.
class TwoTiersAimTest : public ::testing::Test {
 protected:
  static constexpr size_t kAnswerBytes = 24, kVictim = 1;

  static void Mark(MutableBytes bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] ^= static_cast<uint8_t>(17 * i + 1);
  }
  static void MarkAt(size_t i, size_t each, size_t from, size_t bytes, MutableBytes all) {
    Mark(all.subspan(i * each + from, bytes));
  }
  // What the adversary does at a hop, once it knows which positions are of the bucket.
  using Attack = std::function<void(Hop hop, size_t each, MutableBytes all,
                                    const std::vector<size_t>& bucket)>;

  // Whether the victim is served: if it asks another bucket, and if it asks that one.
  static std::pair<bool, bool> Served(const Attack& attack) {
    std::vector<bool> served;
    for (const uint32_t row : {12u, 13u}) {
      const std::vector<uint32_t> rows = {7, row, 3, 4};
      std::vector<size_t> of_bucket;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] % 2 == 1) of_bucket.push_back(i);
      }
      const TwoHalves halves(20, 2, kAnswerBytes, rows, 8);
      const auto outcome = halves.Run(
          [&](Hop hop, size_t each, MutableBytes all) { attack(hop, each, all, of_bucket); });
      served.push_back(outcome.Served(kVictim, halves));
      EXPECT_TRUE(outcome.Served(3, halves)) << "who is not aimed at";
    }
    return {served[0], served[1]};
  }
  static constexpr std::pair<bool, bool> kNever = {false, false}, kUnlessInBucket = {true, false};
};

// Condition 2. The head of A flips the bit of place 0 in the slot's body, and as the tail of B
// leaves row 0 of the bucket out.
TEST_F(TwoTiersAimTest, WhetherAClientIsServedDoesNotDependOnItsBucket) {
  const Attack leave_out = [](Hop hop, size_t each, MutableBytes all, const auto& bucket) {
    if (hop != Hop::kResultB) return;
    const Bytes row = testing::HalvesTableRow(1, kAnswerBytes);
    for (const size_t i : bucket) {
      for (size_t k = 0; k < row.size(); ++k) all[i * each + k] ^= row[k];
    }
  };
  EXPECT_EQ(Served(leave_out), kUnlessInBucket);
  EXPECT_EQ(Served([&](Hop hop, size_t each, MutableBytes all, const auto& bucket) {
              if (hop == Hop::kForwardedA) all[kVictim * each + kBucketBytes] ^= 1;
              leave_out(hop, each, all, bucket);
            }),
            kNever);
}

// Conditions 3 and 4, for an adversary at either side.
TEST_F(TwoTiersAimTest, MarksDoNotCancel) {
  struct Side {
    Hop result, tail, other_tail;
    size_t fetched_at;  // of this half's answer
  };
  constexpr size_t kOne = TaggedBytes(kAnswerBytes);
  for (const Side& side : {Side{Hop::kResultA, Hop::kTailA, Hop::kTailB, 0},
                           Side{Hop::kResultB, Hop::kTailB, Hop::kTailA, kOne}}) {
    SCOPED_TRACE(static_cast<int>(side.result));
    // The tail marks the result, and makes its tag of that.
    const Attack result = [&](Hop hop, size_t each, MutableBytes all, const auto& bucket) {
      for (const size_t i : bucket) {
        if (hop == side.result) MarkAt(i, each, 0, kAnswerBytes, all);
      }
    };
    // The tail marks what it sends, with the tag of the answer without the mark.
    const Attack sent = [&](Hop hop, size_t each, MutableBytes all, const auto& bucket) {
      for (const size_t i : bucket) {
        if (hop == side.tail) MarkAt(i, each, 0, kAnswerBytes, all);
      }
    };
    // The tail marks its tag.
    const Attack tag = [&](Hop hop, size_t each, MutableBytes all, const auto& bucket) {
      for (const size_t i : bucket) {
        if (hop == side.tail) MarkAt(i, each, kAnswerBytes, kAnswerTagBytes, all);
      }
    };
    for (const Attack& by_bucket : {result, sent, tag}) {
      EXPECT_EQ(Served(by_bucket), kUnlessInBucket);
    }
    // As the head of the other half it marks the slot's answer, and makes T' of what it has marked
    // and of the T that came.
    for (const Attack& by_bucket : {result, sent}) {
      EXPECT_EQ(Served([&](Hop hop, size_t each, MutableBytes all, const auto& bucket) {
                  by_bucket(hop, each, all, bucket);
                  if (hop == side.other_tail) MarkAt(kVictim, each, 0, kAnswerBytes, all);
                }),
                kNever);
    }
    // Or the frontend, or a door, marks what the client fetches: of the same half or of the other
    // one, the answer or its tag.
    for (const Attack& by_bucket : {result, sent, tag}) {
      for (const size_t at : {side.fetched_at, kOne - side.fetched_at}) {
        for (const auto& [from, bytes] :
             {std::pair{size_t{0}, kAnswerBytes}, {kAnswerBytes, kAnswerTagBytes}}) {
          EXPECT_EQ(Served([&](Hop hop, size_t each, MutableBytes all, const auto& bucket) {
                      by_bucket(hop, each, all, bucket);
                      if (hop == Hop::kFetched) MarkAt(kVictim, each, at + from, bytes, all);
                    }),
                    kNever);
        }
      }
    }
  }
}

// Condition 12, and 25: whatever bytes come, a tail has a bucket that there is and a selection for
// every position, so that every one is answered alike; and it knows that they were wrong.
TEST(HalvesTest, EveryPositionHasWorkWhateverCame) {
  TestRandom random(3);
  const QueryBuckets buckets(1000, 13);
  const size_t s = buckets.selection_bytes(), n = 300;
  Digest round_id;
  random.Fill(round_id);
  const HalfIds ids(round_id);
  Bytes seeds(32 * n);
  random.Fill(seeds);
  std::vector<uint32_t> positions(n);
  for (uint32_t i = 0; i < n; ++i) positions[i] = i;
  for (const Half half : {Half::kA, Half::kB}) {
    Bytes forwarded(n * ForwardedBytes(half, s)), selections(n * s), wrong(n);
    std::vector<uint32_t> asked(n);
    const auto open = [&] {
      OpenForwarded(seeds.data(), positions, ids, half, buckets, forwarded, asked, selections,
                    wrong);
      for (const uint32_t bucket : asked) ASSERT_LT(bucket, 13u);
      // No two selections are the same, and none is nothing.
      std::set<Bytes> seen = {Bytes(s)};
      for (size_t i = 0; i < n; ++i) {
        seen.insert(ToBytes(BytesView(selections).subspan(i * s, s)));
      }
      EXPECT_EQ(seen.size(), n + 1);
    };
    random.Fill(forwarded);
    open();
    EXPECT_EQ(wrong, Bytes(n, 1));
    // Buckets past the end under right tags, of whoever has the seeds.
    std::vector<uint32_t> wanted(n);
    for (size_t i = 0; i < n; ++i) {
      wanted[i] = i < 26 ? static_cast<uint32_t>(i) : ~uint32_t{0} - static_cast<uint32_t>(i);
    }
    Bytes bodies(half == Half::kA ? n * s : 0);
    random.Fill(bodies);
    MakeForwarded(seeds.data(), positions, ids, half, s, wanted, bodies, forwarded);
    open();
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(asked[i], wanted[i] % 13) << i;
      EXPECT_EQ(wrong[i], wanted[i] < 13 ? 0 : 1) << i;
    }
    if (half == Half::kA) {
      EXPECT_EQ(selections, bodies);
    }
  }
}

// Condition 10, as far as it is about bytes: a head's noise and what it makes of a client's part
// have one length and, under their tail's seeds, one form.
TEST(HalvesTest, NoiseIsAsQueriesAre) {
  const TwoHalves halves(20, 2, 24, {7, 12, 3}, 4);
  const auto outcome = halves.Run();
  for (const Half half : {Half::kA, Half::kB}) {
    const bool a = half == Half::kA;
    const auto& [length, v] = outcome.messages.at(a ? Hop::kForwardedA : Hop::kForwardedB);
    const uint8_t* const tail = halves.SeedsOf(a ? QuerySeed::kTailA : QuerySeed::kTailB);
    std::vector<uint32_t> asked(3);
    Bytes selections(3 * halves.s()), wrong(3), again(3 * length);
    OpenForwarded(tail, halves.positions(), halves.ids(), half, halves.buckets(), v, asked,
                  selections, wrong);
    MakeForwarded(tail, halves.positions(), halves.ids(), half, halves.s(), asked,
                  a ? BytesView(selections) : BytesView(), again);
    EXPECT_EQ(again, v);
  }
}

TEST(HalvesDeathTest, RefusesWrongShapes) {
  const TwoHalves halves(20, 2, 24, {7, 12, 3}, 4);
  Bytes few(2 * PartsBytes(8)), wrong(3), v(3 * 28);
  const std::vector<uint32_t> rows = {1, 2, 3};
  EXPECT_DEATH(MakeParts(Bytes(384), halves.ids(), halves.buckets(), rows, few), "parts.size");
  EXPECT_DEATH(MakeParts(Bytes(383), halves.ids(), halves.buckets(), rows, few), "seeds.size");
  EXPECT_DEATH(OpenParts(halves.SeedsOf(QuerySeed::kHeadA), halves.positions(), halves.ids(),
                         Half::kA, 8, few, v, wrong),
               "parts.size");
  EXPECT_DEATH(MaskHalf(halves.SeedsOf(QuerySeed::kHeadA), halves.positions(), halves.ids(),
                        Half::kA, Role::kHead, 8, 24, v),
               "answers.size");
}

}  // namespace
}  // namespace shoal::sharing
