// A coalition of all parties but one aims at a client and a row (docs/threat-model.md, "Nobody aims
// at a client and a row"). The last party marks the answers that hold row r: it XORs the same bytes
// over each. The honest party hides from it whose answers these are. Behind the honest party the
// coalition, or a door, XORs the same bytes over the answer to client i. Were there no answer tags,
// the two would cancel if and only if client i had asked for row r, and whether client i was
// served, which a network sees, would tell its row.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/server/testing/deployment.h"
#include "src/sharing/sharing.h"

namespace shoal::sim {
namespace {

using server::testing::Client;
using server::testing::Deployment;
using server::testing::Secret;

// What the coalition does about the tags.
enum class Tags {
  kHonest,  // its parties tag what they send, marks included
  kOfRows,  // the last party's tags are those of the rows without marks
  kMarked,  // marks are on the tags, too, and taken off again before the client
};

struct Attack {
  uint32_t parties;
  uint32_t honest;  // the honest party; if it is party 1, a door is behind it
  Tags tags;
};

class AnswerTagTest : public ::testing::TestWithParam<Attack> {
 protected:
  static constexpr uint64_t kRow = 7, kAnother = 23;
  static constexpr size_t kOthers = 12;

  struct Outcome {
    bool served;          // client i
    bool row_comes_back;  // the row's bytes lie under the masks of what it fetched
    bool operator==(const Outcome&) const = default;
  };

  // What becomes of client i, which asks for `row`. Other clients ask for row r and other rows.
  Outcome Run(uint64_t row) {
    const auto& [parties, honest, tags] = GetParam();
    Deployment deployment({.parties = parties, .seed = 5});
    auto announced = deployment.Announce();
    EXPECT_THAT(announced, testing::IsOk());
    const round::Round round = *announced;
    Client target(&deployment, round), others(&deployment, round);
    EXPECT_THAT(target.Obtain(1), testing::IsOk());
    EXPECT_THAT(others.Obtain(kOthers), testing::IsOk());
    EXPECT_THAT(deployment.RunOffline(round.id()), testing::IsOk());
    std::vector<uint64_t> rows;
    for (uint64_t i = 0; i < kOthers; ++i) rows.push_back(i % 3 == 0 ? kRow : 9 + i);
    EXPECT_THAT(target.Query({row}), testing::IsOk());
    EXPECT_THAT(others.Query(rows), testing::IsOk());

    Bytes mark(round.tagged_bytes());
    deployment.random().Fill(MutableBytes(mark).first(
        tags == Tags::kMarked ? round.tagged_bytes() : round.answer_bytes()));

    // The last party knows the row of every query that comes to it. The test finds the answers by
    // their bytes, of which it knows all masks.
    size_t marked = 0;
    deployment.tamper(parties - 1).answers = [&](Bytes& answers) {
      std::vector<const Secret*> holding;
      if (row == kRow) holding.push_back(&target.secrets()[0]);
      for (size_t i = 0; i < kOthers; ++i) {
        if (rows[i] == kRow) holding.push_back(&others.secrets()[i]);
      }
      for (const Secret* secret : holding) {
        const BytesView seed = secret->seeds.back().view();
        const MutableBytes sent =
            Find(round, answers, Masked(round, seed, deployment.Answer(kRow)));
        Bytes now = ToBytes(deployment.Answer(kRow));
        now.resize(round.tagged_bytes());
        if (tags == Tags::kHonest) Xor(now, mark);
        sharing::MaskAnswer(seed, round.id(), sharing::TagCovers::kAnswer, now);
        if (tags != Tags::kHonest) Xor(now, mark);
        std::ranges::copy(now, sent.begin());
        ++marked;
      }
    };
    // What the honest party sends to the coalition's party before it.
    Bytes sent_by_honest;
    if (honest > 1) {
      auto& after = deployment.tamper(honest - 1).answers;
      after = [&sent_by_honest](Bytes& answers) { sent_by_honest = answers; };
    }
    EXPECT_THAT(deployment.RunOnline(round.id()), testing::IsOk());
    EXPECT_EQ(marked, 4u + (row == kRow ? 1 : 0));

    auto fetched = deployment.frontend().FetchAnswers(target.AnswersRequest());
    EXPECT_THAT(fetched, testing::IsOk());
    Bytes answer = ToBytes(AsBytes(fetched->answers()));
    const Secret& secret = target.secrets()[0];
    if (honest == 1) {
      Xor(answer, mark);
    } else {
      // Back to what the honest party sent, and from there on with the mark, as the coalition's
      // parties would have sent it.
      answer.resize(round.answer_bytes());
      for (uint32_t j = 1; j < honest; ++j) {
        sharing::XorMask(secret.seeds[j - 1].view(), round.id(), answer);
      }
      const MutableBytes sent = Find(round, sent_by_honest, answer);
      answer = ToBytes(BytesView(sent));
      Xor(answer, mark);
      for (uint32_t j = honest - 1; j >= 1; --j) {
        sharing::MaskAnswer(secret.seeds[j - 1].view(), round.id(),
                            sharing::TagCovers::kAnswerAndTag, answer);
      }
    }
    Outcome outcome = {};
    Bytes without_tag = ToBytes(BytesView(answer).first(round.answer_bytes()));
    for (const Seed& seed : secret.seeds) sharing::XorMask(seed.view(), round.id(), without_tag);
    outcome.row_comes_back = deployment.Verify(row, without_tag).ok();
    const bool right = secret.Unmask(round.id(), answer);
    outcome.served = deployment.Verify(row, answer).ok();
    EXPECT_EQ(right, outcome.served);
    EXPECT_TRUE(right || std::ranges::all_of(answer, [](uint8_t byte) { return byte == 0; }));

    // Of the others, those are served that did not ask for row r.
    auto of_others = others.Fetch();
    EXPECT_THAT(of_others, testing::IsOk());
    for (size_t i = 0; i < kOthers; ++i) {
      EXPECT_EQ(deployment.Verify(rows[i], (*of_others)[i]).ok(), rows[i] != kRow) << i;
    }
    return outcome;
  }

 private:
  static void Xor(Bytes& to, BytesView mark) {
    for (size_t i = 0; i < to.size(); ++i) to[i] ^= mark[i];
  }
  static Bytes Masked(const round::Round& round, BytesView seed, BytesView answer) {
    Bytes masked = ToBytes(answer);
    sharing::XorMask(seed, round.id(), masked);
    return masked;
  }
  // The answer with these bytes, and its tag.
  static MutableBytes Find(const round::Round& round, Bytes& answers, BytesView answer) {
    const size_t each = round.tagged_bytes();
    for (size_t at = 0; at < answers.size(); at += each) {
      const MutableBytes one = MutableBytes(answers).subspan(at, each);
      if (std::ranges::equal(one.first(answer.size()), answer)) return one;
    }
    ADD_FAILURE() << "no such answer";
    static Bytes none;
    none.assign(each, 0);
    return none;
  }
};

TEST_P(AnswerTagTest, WhetherAClientIsServedDoesNotDependOnItsRow) {
  const Outcome asked_it = Run(kRow), asked_another = Run(kAnother);
  // The marks do cancel where the row is the one, which is what a client must not act on.
  EXPECT_TRUE(asked_it.row_comes_back);
  EXPECT_FALSE(asked_another.row_comes_back);
  EXPECT_FALSE(asked_it.served);
  EXPECT_FALSE(asked_another.served);
}

std::vector<Attack> Attacks() {
  std::vector<Attack> attacks;
  for (const Tags tags : {Tags::kHonest, Tags::kOfRows, Tags::kMarked}) {
    for (const uint32_t parties : {2u, 3u, 5u}) {
      for (uint32_t honest = 1; honest < parties; ++honest) {
        attacks.push_back({parties, honest, tags});
      }
    }
  }
  return attacks;
}

INSTANTIATE_TEST_SUITE_P(Coalitions, AnswerTagTest, ::testing::ValuesIn(Attacks()),
                         [](const auto& instance) {
                           const Attack& attack = instance.param;
                           return std::to_string(attack.parties) + "parties" +
                                  std::to_string(attack.honest) + "honest" +
                                  std::to_string(static_cast<int>(attack.tags));
                         });

}  // namespace
}  // namespace shoal::sim
