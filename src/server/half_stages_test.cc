// Tests the stages of both halves of a round of two tiers by their input and output, without
// network, journal and parties: from clients' pieces and parts to the rows that clients get.
//
//   clients' pieces --> both heads, offline --> both tails, offline
//   clients' parts ---> heads: v, and noise --> tails: y | T --> heads: z | T' --> rows
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/instruction_set.h"
#include "src/base/query_buckets.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/server/half_online.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/synthetic_round.h"
#include "src/server/testing/some_noise.h"
#include "src/sharing/batch.h"
#include "src/sharing/halves.h"
#include "src/sharing/testing/halves_vectors.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

using sharing::Half;
using sharing::QuerySeed;
using sharing::Role;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

constexpr Half kHalves[] = {Half::kA, Half::kB};
constexpr auto kSecret = PageBuffer::Content::kSecret;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A message on its way through half `half`, in the order in which they travel.
enum class Hop { kList, kParts, kForwarded, kAnswers, kReturned };
// May change it.
using Tamper = std::function<void(Half half, Hop hop, Bytes& message)>;

Bytes ReadAllOf(Spool spool) {
  SpoolSource source(std::move(spool));
  return *ReadAll(source);
}

// A round of both halves, with its clients. Every slot is one submission.
class Round {
 public:
  struct Shape {
    uint64_t rows = 20;
    uint32_t buckets = 2;
    uint32_t slots = 10;
    size_t answer_bytes = 80;
    uint64_t seed = 1;
  };

  Round(const Shape& shape, ThreadPool& pool, SpoolPlace& spools)
      : random_(shape.seed),
        resources_{.pool = &pool, .spools = &spools},
        round_({.answer_bytes = shape.answer_bytes,
                .rows = shape.rows,
                .buckets = shape.buckets,
                .max_slots = shape.slots + 10,
                .noise = SomeNoise(),
                .round_id = Digest{9, 8, 7}},
               random_),
        slots_(shape.slots),
        table_(shape.rows * shape.answer_bytes),
        input_(round_.MakeInput(slots_, 1, random_, pool)) {
    random_.Fill(table_);
  }

  const SyntheticTwoTiers& round() const { return round_; }
  const RoundContext& context(Half half, Role role) const {
    return round_.of(half).context(role == Role::kHead ? 1 : 2);
  }
  const RoundSecrets& secrets(Half half, Role role) const {
    return round_.of(half).secrets(role == Role::kHead ? 1 : 2);
  }
  OnlineMaterial& material(Half half, Role role) { return material_.at({half, role}); }
  Bytes& input(Half half) { return half == Half::kA ? input_.a : input_.b; }
  uint64_t dead(Half half, Role role) const { return dead_.at({half, role}); }
  BytesView seed(uint32_t slot, QuerySeed which) const {
    return BytesView(input_.seeds)
        .subspan(32 * (sharing::kSeedsPerQuery * slot + static_cast<size_t>(which)), 32);
  }
  size_t s() const { return round_.buckets().selection_bytes(); }
  size_t tagged_bytes() const { return context(Half::kA, Role::kHead).tagged_bytes(); }
  Resources& resources() { return resources_; }
  TestRandom& random() { return random_; }
  const Bytes& table() const { return table_; }
  Bytes Row(uint32_t row) const {
    const size_t bytes = context(Half::kA, Role::kHead).answer_bytes;
    return ToBytes(BytesView(table_).subspan(row * bytes, bytes));
  }
  static constexpr size_t kPieceBytes = kSubmissionLengthBytes + 48 + 32;  // of one slot

  // Both halves, at both parties.
  void Offline(const Tamper& tamper = nullptr) {
    for (const Half half : kHalves) {
      Bytes list = input(half);
      uint64_t onions = slots_ + extra_onions;
      for (const Role role : {Role::kHead, Role::kTail}) {
        SHOAL_ASSERT_OK_AND_ASSIGN(NoiseBatch noise,
                                   MakeNoise(context(half, role), secrets(half, role), resources_));
        EXPECT_EQ(noise.size() > 0, role == Role::kHead);
        SHOAL_ASSERT_OK_AND_ASSIGN(OfflineOutput out,
                                   RunOffline(context(half, role), secrets(half, role),
                                              std::move(noise), list, onions, resources_));
        SHOAL_ASSERT_OK_AND_ASSIGN(list, ReadAll(out.onions));
        dead_[{half, role}] = out.dead;
        material_[{half, role}] = std::move(out.material);
        if (role == Role::kHead) {
          lists[half] = list;
          if (tamper) tamper(half, Hop::kList, list);
        }
      }
    }
  }
  uint64_t extra_onions = 0;    // in each input, beyond the slots
  std::map<Half, Bytes> lists;  // for the tails

  // What clients send who ask for rows[i] in slots[i].
  Bytes Parts(std::span<const uint32_t> slots, std::span<const uint32_t> rows) const {
    Bytes seeds, parts(slots.size() * sharing::PartsBytes(s()));
    for (const uint32_t slot : slots) Append(seeds, SeedsOf(slot));
    sharing::MakeParts(seeds, round_.ids(), round_.buckets(), rows, parts);
    return parts;
  }
  // What a head gets of them.
  wire::RecordBatch Batch(Half half, std::span<const uint32_t> slots, BytesView parts) const {
    const size_t each = sharing::PartsBytes(s()), a = sharing::PartBytes(Half::kA, s());
    wire::RecordBatch batch;
    batch.positions.assign(slots.begin(), slots.end());
    batch.record_bytes = context(half, Role::kHead).half->part_bytes();
    for (size_t i = 0; i < slots.size(); ++i) {
      const BytesView both = parts.subspan(i * each, each);
      Append(batch.records, half == Half::kA ? both : both.subspan(a));
    }
    return batch;
  }

  struct Messages {
    Bytes forwarded, answers, returned;
  };
  // One half, online.
  Messages Online(Half half, wire::RecordBatch parts, const Tamper& tamper = nullptr) {
    Messages out;
    const auto pass = [&](Hop hop, Bytes& message) {
      if (tamper) tamper(half, hop, message);
    };
    pass(Hop::kParts, parts.records);
    const RoundContext &head = context(half, Role::kHead), &tail = context(half, Role::kTail);
    OnlineMaterial& material = this->material(half, Role::kHead);
    const auto forwarding = ForwardParts(head, material, parts, resources_);
    SHOAL_CHECK(forwarding.ok());
    out.forwarded = forwarding->queries;
    pass(Hop::kForwarded, out.forwarded);
    const auto batch = wire::DecodeRecordBatch(out.forwarded, material.next_positions,
                                               tail.half->forwarded_bytes());
    SHOAL_CHECK(batch.ok());
    auto answers = AnswerHalf(tail, secrets(half, Role::kTail), this->material(half, Role::kTail),
                              *batch, {table_, round_.buckets().rows()}, resources_);
    SHOAL_CHECK(answers.ok());
    out.answers = ReadAllOf(*std::move(answers));
    SHOAL_CHECK(out.answers.size() == batch->positions.size() * tagged_bytes());
    pass(Hop::kAnswers, out.answers);
    const wire::QueryBatch used = {.positions = parts.positions, .tallies = {}};
    auto intake = AnswerIntake::Begin(head, used, *forwarding, out.answers.size(), resources_);
    SHOAL_CHECK(intake.ok() && intake->Take(out.answers).ok());
    const auto keys = AnswerKeys::Of(head, secrets(half, Role::kHead), material, used);
    out.returned = *ReadAll(**ReturnAnswers(keys, *std::move(intake), resources_));
    SHOAL_CHECK(out.returned.size() == used.positions.size() * tagged_bytes());
    pass(Hop::kReturned, out.returned);
    return out;
  }

  // What clients get in these slots; zeros where a tag was wrong.
  std::vector<Bytes> Unmask(std::span<const uint32_t> slots, BytesView returned_a,
                            BytesView returned_b) const {
    const size_t one = tagged_bytes(), answer_bytes = one - sharing::kAnswerTagBytes;
    Bytes seeds, tagged, answers(slots.size() * answer_bytes);
    for (size_t i = 0; i < slots.size(); ++i) {
      Append(seeds, SeedsOf(slots[i]));
      Append(tagged, returned_a.subspan(i * one, one));
      Append(tagged, returned_b.subspan(i * one, one));
    }
    sharing::UnmaskHalves(seeds, round_.ids(), s(), answer_bytes, tagged, answers);
    std::vector<Bytes> out;
    for (size_t i = 0; i < slots.size(); ++i) {
      out.push_back(ToBytes(BytesView(answers).subspan(i * answer_bytes, answer_bytes)));
    }
    return out;
  }

  // Both halves and the clients. Materials are as before afterwards.
  std::vector<Bytes> Ask(std::span<const uint32_t> slots, std::span<const uint32_t> rows,
                         const Tamper& tamper = nullptr) {
    return AskWith(slots, Parts(slots, rows), tamper);
  }
  std::vector<Bytes> AskWith(std::span<const uint32_t> slots, const Bytes& parts,
                             const Tamper& tamper = nullptr) {
    std::map<Half, Bytes> returned;
    for (const Half half : kHalves) {
      PageArray<uint32_t>& target = material(half, Role::kHead).target;
      const std::vector<uint32_t> before(target.begin(), target.end());
      returned[half] = Online(half, Batch(half, slots, parts), tamper).returned;
      std::ranges::copy(before, target.begin());
    }
    return Unmask(slots, returned[Half::kA], returned[Half::kB]);
  }

  // What the tail of a half sees of a batch: bucket and selection of every position.
  struct Seen {
    uint32_t bucket;
    Bytes selection;
    bool wrong;
    bool operator==(const Seen&) const = default;
  };
  std::map<uint32_t, Seen> View(Half half, BytesView forwarded) {
    const RoundContext& tail = context(half, Role::kTail);
    const OnlineMaterial& own = material(half, Role::kTail);
    const auto batch =
        *wire::DecodeRecordBatch(forwarded, own.positions, tail.half->forwarded_bytes());
    const size_t n = batch.positions.size();
    std::vector<uint32_t> asked(n);
    Bytes selections(n * s()), wrong(n);
    sharing::OpenForwarded(own.seeds.data(), batch.positions, round_.ids(), half, round_.buckets(),
                           batch.records, asked, selections, wrong);
    std::map<uint32_t, Seen> view;
    for (size_t i = 0; i < n; ++i) {
      view[batch.positions[i]] = {asked[i], ToBytes(BytesView(selections).subspan(i * s(), s())),
                                  wrong[i] != 0};
    }
    return view;
  }

 private:
  BytesView SeedsOf(uint32_t slot) const {
    return BytesView(input_.seeds)
        .subspan(32 * sharing::kSeedsPerQuery * slot, 32 * sharing::kSeedsPerQuery);
  }

  TestRandom random_;
  Resources resources_;
  const SyntheticTwoTiers round_;
  const uint32_t slots_;
  Bytes table_;
  SyntheticTwoTiers::Input input_;
  std::map<std::pair<Half, Role>, OnlineMaterial> material_;
  std::map<std::pair<Half, Role>, uint64_t> dead_;
};

bool IsZero(const Bytes& bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

std::vector<uint32_t> FirstSlots(uint32_t count) {
  std::vector<uint32_t> slots(count);
  for (uint32_t i = 0; i < count; ++i) slots[i] = i;
  return slots;
}

// Where one record of a batch begins.
uint8_t* RecordOf(Bytes& message, size_t record_bytes, size_t count, size_t i) {
  return message.data() + message.size() - record_bytes * (count - i);
}

// Every row of a table comes to whoever asks for it, with noise, unused slots, several queries for
// one row, slots that are dead at one of the four places where they can be, on several threads, in
// memory and in files. Dead slots get nothing, and take nobody with them.
TEST(TwoTiersTest, EveryRowComesBack) {
  ThreadPool one(1), many(4);
  SpoolPlace memory("/tmp", 1 << 30), files("/tmp", 0);
  uint64_t seed = 0;
  for (const auto& [rows, buckets] : {std::pair<uint64_t, uint32_t>{2, 2},
                                      {20, 2},
                                      {7, 7},
                                      {23, 5},
                                      {130, 2},
                                      {129, 65},
                                      {2048, 2}}) {
    SCOPED_TRACE(absl::StrCat(rows, " rows in ", buckets, " buckets"));
    // The last rows are asked for three times, and every seventh slot is not used.
    const auto asked = static_cast<uint32_t>(std::min<uint64_t>(rows, 200)) + 5;
    const uint32_t slots = asked * 7 / 6 + 8;
    Round round({.rows = rows,
                 .buckets = buckets,
                 .slots = slots,
                 .answer_bytes = 58 + seed % 9,
                 .seed = ++seed},
                rows % 2 == 0 ? many : one, rows % 3 == 0 ? files : memory);
    // Slot 0's piece A and slot 1's piece B were damaged on their way. The heads' lists have no
    // point where the onions of slots 2 and 3 were, and another one for slot 4.
    round.input(Half::kA)[60] ^= 1;
    round.input(Half::kB)[Round::kPieceBytes + 60] ^= 1;
    round.Offline([&](Half half, Hop, Bytes& list) {
      const PageArray<uint32_t>& target = round.material(half, Role::kHead).target;
      std::fill_n(list.begin() + size_t{32} * target[half == Half::kA ? 2 : 3], 32, uint8_t{0});
      list[size_t{32} * target[4]] ^= 1;
    });
    for (const Half half : kHalves) {
      EXPECT_EQ(round.dead(half, Role::kHead), 1u);
      EXPECT_EQ(round.dead(half, Role::kTail), 1u);
    }
    std::vector<uint32_t> used, of;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      if (slot % 7 == 6) continue;
      used.push_back(slot);
      const uint64_t i = used.size();
      of.push_back(static_cast<uint32_t>((rows + 6 - std::min(rows + 6, i)) % rows));
    }
    const auto answers = round.Ask(used, of);
    std::set<uint32_t> came;
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] < 5) {
        EXPECT_TRUE(IsZero(answers[i])) << used[i];
        continue;
      }
      ASSERT_EQ(answers[i], round.Row(of[i])) << "slot " << used[i] << ", row " << of[i];
      came.insert(of[i]);
    }
    if (rows <= 200) {
      EXPECT_EQ(came.size(), rows);
    }
  }
}

// Messages of both halves are the same bytes on any number of threads, for every instruction set,
// and with lists and answers in memory or in files.
TEST(TwoTiersTest, TheStagesGiveTheSameBytesEverywhere) {
  ThreadPool one(1), many(4);
  SpoolPlace memory("/tmp", 1 << 30), files("/tmp", 0);
  constexpr uint32_t kSlots = 300;
  std::vector<Bytes> expected;
  const InstructionSet before = ActiveInstructionSet();
  for (const InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    for (const auto& [pool, spools] :
         {std::pair{&one, &memory}, {&many, &memory}, {&many, &files}}) {
      if (set != before && spools != &files) continue;
      // So many buckets that there are several chunks of noise.
      Round round({.rows = 1000, .buckets = 300, .slots = kSlots}, *pool, *spools);
      round.Offline();
      std::vector<uint32_t> slots, rows;
      for (uint32_t slot = 0; slot < kSlots; slot += 1 + slot % 3) {
        slots.push_back(slot);
        rows.push_back(slot * 37 % 1000);
      }
      const Bytes parts = round.Parts(slots, rows);
      std::vector<Bytes> messages;
      for (const Half half : kHalves) {
        auto [forwarded, answers, returned] = round.Online(half, round.Batch(half, slots, parts));
        EXPECT_GT(answers.size(), 2048 * round.tagged_bytes());
        for (Bytes* const each : {&round.lists[half], &forwarded, &answers, &returned}) {
          messages.push_back(std::move(*each));
        }
      }
      if (expected.empty()) expected = messages;
      EXPECT_TRUE(messages == expected) << NameOf(set);
    }
  }
  UseInstructionSet(before);
}

// Answers that go to a file are made some at a time, each time of all buckets, and are the same.
TEST(TwoTiersTest, AnswersInAFileAreThoseInMemory) {
  ThreadPool pool(2);
  SpoolPlace memory("/tmp", 1 << 30), files("/tmp", 0);
  constexpr uint32_t kSlots = 70;
  const std::vector<uint32_t> slots = FirstSlots(kSlots), rows(kSlots, 3);
  Bytes expected;
  for (SpoolPlace* const spools : {&memory, &files}) {
    Round round({.rows = 4, .buckets = 2, .slots = kSlots, .answer_bytes = 1'000'000}, pool,
                *spools);
    round.Offline();
    const RoundContext &head = round.context(Half::kB, Role::kHead),
                       &tail = round.context(Half::kB, Role::kTail);
    OnlineMaterial& front = round.material(Half::kB, Role::kHead);
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const Forwarding forwarding,
        ForwardParts(head, front, round.Batch(Half::kB, slots, round.Parts(slots, rows)),
                     round.resources()));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                               wire::DecodeRecordBatch(forwarding.queries, front.next_positions,
                                                       tail.half->forwarded_bytes()));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        Spool answers, AnswerHalf(tail, round.secrets(Half::kB, Role::kTail),
                                  round.material(Half::kB, Role::kTail), batch, {round.table(), 4},
                                  round.resources()));
    EXPECT_EQ(answers.in_memory(), spools == &memory);
    ASSERT_GT(answers.size(), uint64_t{64} << 20);  // several pieces
    const Bytes all = ReadAllOf(std::move(answers));
    if (expected.empty()) expected = all;
    EXPECT_TRUE(all == expected);
  }
}

// The vectors that were made from docs/protocol.md alone, through the stages.
TEST(TwoTiersTest, HasTheKnownAnswers) {
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  const Resources resources = {.pool = &pool, .spools = &spools};
  const auto vectors = sharing::testing::ReadHalvesVectors();
  ASSERT_EQ(vectors.size(), 5u);
  for (const auto& v : vectors) {
    SCOPED_TRACE(v.name);
    Digest round_id;
    round_id.fill(9);
    TestRandom random(1);
    const SyntheticTwoTiers round({.answer_bytes = v.answer_bytes,
                                   .rows = v.rows,
                                   .buckets = static_cast<uint32_t>(v.buckets),
                                   .noise = SomeNoise(),
                                   .round_id = round_id},
                                  random);
    Bytes table;
    for (uint64_t row = 0; row < v.rows; ++row) {
      Append(table, sharing::testing::HalvesTableRow(row, v.answer_bytes));
    }
    for (const auto& [half, letter] : {std::pair{Half::kA, "A"}, {Half::kB, "B"}}) {
      const RoundContext &head = round.of(half).context(1), &tail = round.of(half).context(2);
      const auto material_of = [&](const char* name, uint32_t next) {
        OnlineMaterial material;
        material.positions = 1;
        material.next_positions = next;
        material.seeds = *PageBuffer::Create(32, kSecret);
        std::ranges::copy(v.at(absl::StrCat(name, letter)), material.seeds.data());
        material.target = *PageArray<uint32_t>::Create(1, kSecret);
        return material;
      };
      OnlineMaterial front = material_of("seed_head_", 1), back = material_of("seed_tail_", 0);
      wire::RecordBatch parts = {.positions = {0},
                                 .record_bytes = head.half->part_bytes(),
                                 .records = v.at(absl::StrCat("part_", letter))};
      if (half == Half::kA) Append(parts.records, v.at("part_B"));
      EXPECT_EQ(FirstWrongPart(head, front, parts.positions, parts.records), 1u);
      SHOAL_ASSERT_OK_AND_ASSIGN(const Forwarding forwarding,
                                 ForwardParts(head, front, parts, resources));
      SHOAL_ASSERT_OK_AND_ASSIGN(
          const auto batch,
          wire::DecodeRecordBatch(forwarding.queries, 1, head.half->forwarded_bytes()));
      EXPECT_EQ(batch.records, v.at(absl::StrCat("v_", letter)));
      SHOAL_ASSERT_OK_AND_ASSIGN(Spool spool, AnswerHalf(tail, round.of(half).secrets(2), back,
                                                         batch, {table, v.rows}, resources));
      const Bytes answers = ReadAllOf(std::move(spool));
      EXPECT_EQ(answers, v.at(absl::StrCat("tail_", letter)));
      const wire::QueryBatch used = {.positions = {0}, .tallies = {}};
      SHOAL_ASSERT_OK_AND_ASSIGN(
          auto intake, AnswerIntake::Begin(head, used, forwarding, answers.size(), resources));
      SHOAL_ASSERT_OK(intake.Take(answers));
      const auto keys = AnswerKeys::Of(head, round.of(half).secrets(1), front, used);
      EXPECT_EQ(*ReadAll(**ReturnAnswers(keys, std::move(intake), resources)),
                v.at(absl::StrCat("head_", letter)));
    }
  }
}

// Condition 1. P1 flips a byte of one part B. Were anything of it in the list that P2 sends it, P1
// would find it there by its tag, and so the place of this client's query in P2's order.
TEST(TwoTiersTest, AHeadDropsAChangedPartBeforeItsShuffle) {
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 12, kChanged = 5;
  Round round({.rows = 40, .buckets = 3, .slots = kSlots}, pool, spools);
  round.Offline();
  const std::vector<uint32_t> slots = FirstSlots(kSlots), rows(kSlots, 7);
  const Bytes parts = round.Parts(slots, rows);
  for (const Half half : kHalves) {
    const size_t part_bytes = round.context(half, Role::kHead).half->part_bytes();
    OnlineMaterial& head = round.material(half, Role::kHead);
    const uint32_t place = head.target[kChanged];
    const auto honest =
        round.View(half, round.Online(half, round.Batch(half, slots, parts)).forwarded);
    ASSERT_TRUE(honest.contains(place));
    for (size_t byte = 0; byte < part_bytes; ++byte) {
      head.target[kChanged] = place;
      wire::RecordBatch batch = round.Batch(half, slots, parts);
      EXPECT_EQ(FirstWrongPart(round.context(half, Role::kHead), head, slots, batch.records),
                kSlots);
      batch.records[kChanged * part_bytes + byte] ^= static_cast<uint8_t>(1u << (byte % 8));
      EXPECT_EQ(FirstWrongPart(round.context(half, Role::kHead), head, slots, batch.records),
                kChanged);
      const auto messages = round.Online(half, std::move(batch));
      auto view = round.View(half, messages.forwarded);
      // All others are as they were.
      ASSERT_FALSE(view.contains(place)) << byte;
      view[place] = honest.at(place);
      ASSERT_EQ(view, honest) << byte;
      ASSERT_EQ(messages.returned.size(), kSlots * round.tagged_bytes());
    }
  }
}

// Conditions 2 and 25. A tail that finds a wrong tag, or the right tag of a bucket that is none,
// gives bytes that are no answer, whatever bucket and selection they would name, and all others
// what they get without it.
TEST(TwoTiersTest, ATailAnswersAChangedQueryWithPseudorandomBytes) {
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 6, kChanged = 2;
  Round round({.rows = 40, .buckets = 3, .slots = kSlots}, pool, spools);
  round.Offline();
  const std::vector<uint32_t> slots = FirstSlots(kSlots), rows = {1, 2, 3, 4, 5, 6};
  const Bytes parts = round.Parts(slots, rows);
  const size_t one = round.tagged_bytes();
  for (const Half half : kHalves) {
    const size_t v_bytes = round.context(half, Role::kTail).half->forwarded_bytes();
    const auto honest = round.Online(half, round.Batch(half, slots, parts));
    const uint32_t place = round.material(half, Role::kHead).target[kChanged];
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto batch,
        wire::DecodeRecordBatch(honest.forwarded, round.material(half, Role::kHead).next_positions,
                                v_bytes));
    const size_t count = batch.positions.size();
    const auto number =
        static_cast<size_t>(std::ranges::find(batch.positions, place) - batch.positions.begin());
    ASSERT_LT(number, count);
    std::set<Bytes> answers;
    const auto check = [&](const Tamper& tamper) {
      const auto messages = round.Online(half, round.Batch(half, slots, parts), tamper);
      const BytesView came(messages.answers), before(honest.answers);
      const size_t at = number * one;
      ASSERT_TRUE(std::ranges::equal(came.first(at), before.first(at)));
      ASSERT_TRUE(std::ranges::equal(came.subspan(at + one), before.subspan(at + one)));
      ASSERT_FALSE(std::ranges::equal(came.subspan(at, one), before.subspan(at, one)));
      answers.insert(ToBytes(came.subspan(at, one)));
    };
    for (size_t byte = 0; byte < v_bytes; ++byte) {
      check([&](Half, Hop hop, Bytes& message) {
        if (hop != Hop::kForwarded) return;
        RecordOf(message, v_bytes, count, number)[byte] ^= static_cast<uint8_t>(1u << (byte % 8));
      });
    }
    // What only a client can make: the right tag of bucket B, the first that is none.
    const Bytes tail_seed = ToBytes(round.material(half, Role::kTail).seed(place));
    const uint32_t none = round.round().buckets().count();
    Bytes selection(half == Half::kA ? round.s() : 0, 1), v(v_bytes);
    const std::array<uint32_t, 1> first = {0}, bucket = {none};
    sharing::MakeForwarded(tail_seed.data(), first, round.round().ids(), half, round.s(), bucket,
                           selection, v);
    check([&](Half, Hop hop, Bytes& message) {
      if (hop == Hop::kForwarded) std::ranges::copy(v, RecordOf(message, v_bytes, count, number));
    });
    // One and the same for all that was tried: the position's dead answer, which tells nothing of
    // the rows.
    EXPECT_EQ(answers.size(), 1u);
    EXPECT_GT(std::set<uint8_t>(answers.begin()->begin(), answers.begin()->end()).size(), 20u);
  }
}

// Conditions 3 to 5: a bit that is flipped at any hop, or messages of two slots that are exchanged,
// lose these slots alone.
TEST(TwoTiersTest, WhatIsChangedOrMovedIsLostAlone) {
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 8;
  Round round({.rows = 40, .buckets = 3, .slots = kSlots}, pool, spools);
  round.Offline();
  const std::vector<uint32_t> slots = FirstSlots(kSlots);
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < kSlots; ++i) rows.push_back(i % 5 * 3);
  const auto bytes_of = [&](Half half, Hop hop) {
    const auto& of = *round.context(half, Role::kHead).half;
    return hop == Hop::kParts       ? of.part_bytes()
           : hop == Hop::kForwarded ? of.forwarded_bytes()
                                    : round.tagged_bytes();
  };
  // The place of a slot's record among those of a message.
  const auto number_of = [&](Half half, Hop hop, uint32_t slot, const Bytes& forwarded) -> size_t {
    if (hop == Hop::kParts || hop == Hop::kReturned) return slot;
    const OnlineMaterial& head = round.material(half, Role::kHead);
    const auto batch =
        *wire::DecodeRecordBatch(forwarded, head.next_positions, bytes_of(half, Hop::kForwarded));
    return static_cast<size_t>(std::ranges::find(batch.positions, head.target[slot]) -
                               batch.positions.begin());
  };
  const auto expect_lost = [&](const std::set<uint32_t>& lost, const std::vector<Bytes>& answers) {
    for (uint32_t i = 0; i < kSlots; ++i) {
      if (lost.contains(i)) {
        EXPECT_TRUE(IsZero(answers[i])) << i;
      } else {
        EXPECT_EQ(answers[i], round.Row(rows[i])) << i;
      }
    }
  };
  expect_lost({}, round.Ask(slots, rows));
  for (const Half half : kHalves) {
    for (const Hop hop : {Hop::kParts, Hop::kForwarded, Hop::kAnswers, Hop::kReturned}) {
      SCOPED_TRACE(absl::StrCat(half == Half::kA ? "A" : "B", ", hop ", static_cast<int>(hop)));
      const size_t each = bytes_of(half, hop);
      for (int trial = 0; trial < 12; ++trial) {
        const auto a = static_cast<uint32_t>(round.random().Below(kSlots));
        const auto b = static_cast<uint32_t>((a + 1 + round.random().Below(kSlots - 1)) % kSlots);
        const bool flips = trial < 8;
        const size_t bit = round.random().Below(8 * each);
        Bytes forwarded;
        const auto answers = round.Ask(slots, rows, [&](Half in, Hop at, Bytes& message) {
          if (in != half) return;
          if (at == Hop::kForwarded) forwarded = message;
          if (at != hop) return;
          const auto record = [&](uint32_t slot) {
            const size_t header =
                hop == Hop::kForwarded
                    ? message.size() - each * [&] { return wire::EncodedQueries(message); }()
                    : 0;
            return message.data() + header + each * number_of(half, hop, slot, forwarded);
          };
          if (flips) {
            record(a)[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
          } else {
            std::swap_ranges(record(a), record(a) + each, record(b));
          }
        });
        expect_lost(flips ? std::set{a} : std::set{a, b}, answers);
      }
    }
  }
}

// Condition 5: a message of one half, or of another round, is worth nothing in its place.
TEST(TwoTiersTest, WhatBelongsToAnotherHalfOrRoundIsLost) {
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 4;
  Round round({.rows = 40, .buckets = 3, .slots = kSlots}, pool, spools);
  Round another({.rows = 40, .buckets = 3, .slots = kSlots, .seed = 2}, pool, spools);
  const std::vector<uint32_t> slots = FirstSlots(kSlots), rows = {1, 2, 3, 4};
  round.Offline();
  another.Offline();
  // Parts of another round, and answers of the other half, which have the same length.
  for (const Bytes& answer : round.AskWith(slots, another.Parts(slots, rows))) {
    EXPECT_TRUE(IsZero(answer));
  }
  const Bytes parts = round.Parts(slots, rows);
  const Bytes a = round.Online(Half::kA, round.Batch(Half::kA, slots, parts)).returned;
  const Bytes b = round.Online(Half::kB, round.Batch(Half::kB, slots, parts)).returned;
  EXPECT_EQ(round.Unmask(slots, a, b)[0], round.Row(1));
  for (const Bytes& answer : round.Unmask(slots, b, a)) EXPECT_TRUE(IsZero(answer));
  for (const Bytes& answer : round.Unmask(slots, a, a)) EXPECT_TRUE(IsZero(answer));
}

// Condition 6. One permutation, noise or key in both halves would link them.
TEST(TwoTiersTest, HalvesShareNoSecret) {
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 60;
  Round round({.rows = 400, .buckets = 40, .slots = kSlots}, pool, spools);
  std::set<Digest> keys = {round.round().ids().a, round.round().ids().b};
  EXPECT_NE(round.context(Half::kA, Role::kHead).round_id,
            round.context(Half::kB, Role::kHead).round_id);
  for (const Half half : kHalves) {
    for (const Role role : {Role::kHead, Role::kTail}) {
      const RoundSecrets& secrets = round.secrets(half, role);
      const onion::KeyPair onion_key = secrets.OnionKeyPair();
      for (const BytesView key :
           {onion_key.secret_key.view(), secrets.NoiseOrderKey(), secrets.PermutationKey(),
            secrets.FingerprintKey(), secrets.ContentKey(), secrets.DeadAnswerKey()}) {
        Digest item;
        std::ranges::copy(key, item.begin());
        keys.insert(item);
      }
    }
  }
  EXPECT_EQ(keys.size(), 2u + 4 * 6);
  // Of one party: P1 as head of A and tail of B has other counts and another order than it would
  // have as head of B.
  round.Offline();
  const OnlineMaterial &a = round.material(Half::kA, Role::kHead),
                       &b = round.material(Half::kB, Role::kHead);
  uint32_t equal = 0;
  for (uint32_t i = 0; i < kSlots; ++i) equal += a.target[i] == b.target[i] ? 1 : 0;
  EXPECT_LT(equal, 10u);
  std::vector<std::vector<uint32_t>> counts;
  for (const Half half : kHalves) {
    for (const Role role : {Role::kHead, Role::kTail}) {
      SeededRandom draws = round.secrets(half, role).NoiseCounts();
      round.context(half, role).noise.Sample(draws, counts.emplace_back(40));
    }
  }
  EXPECT_EQ(std::set(counts.begin(), counts.end()).size(), 4u);
}

// A tail sees exactly the buckets of clients and the noise that the head drew, bucket by bucket; no
// noise is asked twice for the same secrets, and noise has the form of queries: in half A its
// selections are as random as those of clients (condition 10), and its tags are right.
TEST(TwoTiersTest, TheTailSeesTheBucketsPlusTheNoise) {
  ThreadPool pool(3);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 20, kBuckets = 400;
  Round round({.rows = 4 * kBuckets, .buckets = kBuckets, .slots = kSlots}, pool, spools);
  round.Offline();
  const std::vector<uint32_t> slots = FirstSlots(kSlots);
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < kSlots; ++i) rows.push_back(i / 2 * 17);
  const Bytes parts = round.Parts(slots, rows);
  for (const Half half : kHalves) {
    const auto view =
        round.View(half, round.Online(half, round.Batch(half, slots, parts)).forwarded);
    std::vector<uint32_t> expected(kBuckets), seen(kBuckets);
    SeededRandom draws = round.secrets(half, Role::kHead).NoiseCounts();
    round.context(half, Role::kHead).noise.Sample(draws, expected);
    for (const uint32_t row : rows) ++expected[row % kBuckets];
    std::set<Bytes> selections;
    size_t ones = 0;
    for (const auto& [position, query] : view) {
      EXPECT_FALSE(query.wrong);
      ++seen[query.bucket];
      selections.insert(query.selection);
      for (const uint8_t byte : query.selection) {
        ones += static_cast<size_t>(std::popcount(byte));
      }
    }
    EXPECT_EQ(seen, expected);
    ASSERT_GT(view.size(), 2048u);  // several chunks
    EXPECT_EQ(selections.size(), view.size());
    const auto bits = static_cast<double>(64 * view.size());
    EXPECT_NEAR(static_cast<double>(ones), bits / 2, 5 * std::sqrt(bits) / 2);
    // Everything is used, by clients or by noise: no position tells noise by being empty.
    EXPECT_EQ(view.size(), round.material(half, Role::kHead).next_positions);
  }
}

// Condition 10, for every place of every bucket of small tables: both tails see the same whichever
// place of the bucket a client asks, up to the selection that the tail of A gets. That is the
// selection of B with one bit flipped; the selection of B is uniform to the tail of A, as it comes
// from a seed for the tail of B alone, so that all places give it one distribution.
TEST(TwoTiersViewTest, TheViewIsTheSameForAllPlaces) {
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  for (const auto& [rows, buckets] :
       {std::pair<uint64_t, uint32_t>{4, 2}, {9, 3}, {20, 2}, {66, 1 + 1}}) {
    Round round({.rows = rows, .buckets = buckets, .slots = 3}, pool, spools);
    round.Offline();
    const std::vector<uint32_t> slots = {0, 1};
    for (uint32_t bucket = 0; bucket < buckets; ++bucket) {
      std::optional<Bytes> of_b;
      std::optional<std::map<uint32_t, Round::Seen>> of_a;
      std::set<Bytes> selections;
      const uint32_t position = round.material(Half::kA, Role::kHead).target[0];
      for (uint32_t place = 0; place < round.round().buckets().PlacesIn(bucket); ++place) {
        const uint32_t row = round.round().buckets().RowAt({bucket, place});
        const Bytes parts = round.Parts(slots, std::array<uint32_t, 2>{row, 0});
        const auto b = round.Online(Half::kB, round.Batch(Half::kB, slots, parts));
        if (!of_b.has_value()) of_b = b.forwarded;
        ASSERT_EQ(b.forwarded, *of_b);
        const auto a = round.Online(Half::kA, round.Batch(Half::kA, slots, parts));
        auto view = round.View(Half::kA, a.forwarded);
        Round::Seen& own = view.at(position);
        ASSERT_EQ(own.bucket, bucket);
        selections.insert(own.selection);
        // k1, by the seed of the tail of B.
        const auto view_b = round.View(Half::kB, b.forwarded);
        own.selection[place / 8] ^= static_cast<uint8_t>(1u << (place % 8));
        ASSERT_EQ(own.selection,
                  view_b.at(round.material(Half::kB, Role::kHead).target[0]).selection);
        if (!of_a.has_value()) of_a = view;
        ASSERT_EQ(view, *of_a);
      }
      EXPECT_EQ(selections.size(), round.round().buckets().PlacesIn(bucket));
    }
  }
}

// Condition 9. Pieces come to P2 over P1, and lists over either: what comes twice is dead the
// second time, at heads and at tails, whoever brings it. A dead position's seed is known to all;
// that opens nothing.
TEST(TwoTiersGuardTest, PiecesThatComeTwiceAreDead) {
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 5, kCopy = 5;
  Round round({.rows = 40, .buckets = 3, .slots = kSlots}, pool, spools);
  for (const Half half : kHalves) {
    Bytes& input = round.input(half);
    const Bytes first(input.begin(), input.begin() + Round::kPieceBytes);
    Append(input, first);
  }
  round.extra_onions = 1;
  round.Offline([&](Half half, Hop, Bytes& list) {
    // One living onion in another's place.
    const PageArray<uint32_t>& target = round.material(half, Role::kHead).target;
    std::copy_n(list.begin() + 32 * std::min(target[1], target[2]), 32,
                list.begin() + 32 * std::max(target[1], target[2]));
  });
  const size_t one = round.tagged_bytes();
  for (const Half half : kHalves) {
    EXPECT_EQ(round.dead(half, Role::kHead), 1u);
    EXPECT_TRUE(round.material(half, Role::kHead).dead(kCopy));
    EXPECT_EQ(round.dead(half, Role::kTail), 1u);
    const OnlineMaterial &head = round.material(half, Role::kHead),
                         &tail = round.material(half, Role::kTail);
    const uint32_t dead = std::max(head.target[1], head.target[2]);
    EXPECT_TRUE(tail.dead(dead));
    // Parts for the dead slot under zeros: the right tag of its seed.
    const std::vector<uint32_t> slots = FirstSlots(kSlots + 1);
    const Bytes zeros(32 * sharing::kSeedsPerQuery);
    Bytes parts = round.Parts(FirstSlots(kSlots), std::vector<uint32_t>(kSlots, 7));
    Bytes forged(sharing::PartsBytes(round.s()));
    const std::array<uint32_t, 1> row = {7};
    sharing::MakeParts(zeros, round.round().ids(), round.round().buckets(), row, forged);
    Append(parts, forged);
    const auto batch = round.Batch(half, slots, parts);
    Bytes v(head.positions), wrong(1);
    EXPECT_EQ(FirstWrongPart(round.context(half, Role::kHead), head, slots, batch.records), kCopy);
    // At the tail: v for the dead position under zeros, twice, as its answer must not depend on it.
    const size_t v_bytes = round.context(half, Role::kTail).half->forwarded_bytes();
    std::set<Bytes> dead_answers;
    std::optional<Bytes> of_slot;
    for (const uint32_t bucket : {0u, 1u, 2u}) {
      Bytes made(v_bytes);
      const std::array<uint32_t, 1> first = {0}, asked = {bucket};
      sharing::MakeForwarded(zeros.data(), first, round.round().ids(), half, round.s(), asked,
                             Bytes(half == Half::kA ? round.s() : 0, 0xff), made);
      size_t number = 0;
      const auto messages = round.Online(half, batch, [&](Half, Hop hop, Bytes& message) {
        if (hop != Hop::kForwarded) return;
        const auto view = round.View(half, message);
        // The forged parts are not in it: every living slot and the noise, and nothing else.
        EXPECT_EQ(view.size(), kSlots + head.noise.size());
        number = static_cast<size_t>(std::distance(view.begin(), view.find(dead)));
        std::ranges::copy(made, RecordOf(message, v_bytes, view.size(), number));
      });
      dead_answers.insert(ToBytes(BytesView(messages.answers).subspan(number * one, one)));
      const Bytes copy = ToBytes(BytesView(messages.returned).subspan(kCopy * one, one));
      if (!of_slot.has_value()) of_slot = copy;
      EXPECT_EQ(copy, *of_slot);
      EXPECT_GT(std::set<uint8_t>(copy.begin(), copy.end()).size(), 20u);
    }
    EXPECT_EQ(dead_answers.size(), 1u);
  }
}

// Condition 12: so many bytes for every used slot and position, whatever failed.
TEST(TwoTiersTest, EveryUsedSlotIsAnsweredInBothHalves) {
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  constexpr uint32_t kSlots = 9;
  Round round({.rows = 40, .buckets = 3, .slots = kSlots}, pool, spools);
  round.input(Half::kA)[60] ^= 1;
  round.input(Half::kB)[60] ^= 1;
  round.Offline([&](Half half, Hop, Bytes& list) {
    list[32 * round.material(half, Role::kHead).target[1]] ^= 1;
  });
  const std::vector<uint32_t> slots = {0, 1, 2, 3, 5, 8};
  Bytes parts = round.Parts(slots, std::array<uint32_t, 6>{1, 2, 3, 4, 5, 6});
  const size_t each = sharing::PartsBytes(round.s());
  parts[2 * each] ^= 1;  // part A of slot 2, and so its tag
  parts[3 * each + sharing::PartBytes(Half::kA, round.s())] ^= 1;  // part B of slot 3
  const size_t one = round.tagged_bytes();
  std::map<Half, Bytes> returned;
  for (const Half half : kHalves) {
    const auto messages =
        round.Online(half, round.Batch(half, slots, parts), [&](Half, Hop hop, Bytes& message) {
          if (hop == Hop::kForwarded) message.back() ^= 1;  // of some query or of noise
        });
    EXPECT_EQ(messages.answers.size(), wire::EncodedQueries(messages.forwarded) * one);
    returned[half] = messages.returned;
    ASSERT_EQ(messages.returned.size(), slots.size() * one);
    for (size_t i = 0; i < slots.size(); ++i) {
      const BytesView answer = BytesView(messages.returned).subspan(i * one, one);
      EXPECT_GT(std::set<uint8_t>(answer.begin(), answer.end()).size(), 20u) << i;
    }
  }
  const auto answers = round.Unmask(slots, returned[Half::kA], returned[Half::kB]);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(IsZero(answers[i])) << i;
}

// What a neighbour sends is bounded before anything is done with it.
TEST(TwoTiersGuardTest, BatchesOfAnotherShapeAreRefused) {
  ThreadPool pool(1);
  SpoolPlace spools("/tmp", 1 << 30);
  Round round({.rows = 40, .buckets = 3, .slots = 4}, pool, spools);
  round.Offline();
  for (const Half half : kHalves) {
    const RoundContext &head = round.context(half, Role::kHead),
                       &tail = round.context(half, Role::kTail);
    OnlineMaterial &front = round.material(half, Role::kHead),
                   &back = round.material(half, Role::kTail);
    const AnswerTable table = {round.table(), 40};
    for (const bool long_records : {false, true}) {
      wire::RecordBatch parts, forwarded;
      parts.positions = {long_records ? 3u : 4u};
      forwarded.positions = {long_records ? 0 : back.positions};
      parts.record_bytes = head.half->part_bytes() + (long_records ? 1 : 0);
      parts.records.resize(parts.record_bytes);
      forwarded.record_bytes = head.half->forwarded_bytes() + (long_records ? 1 : 0);
      forwarded.records.resize(forwarded.record_bytes);
      const char* const what = long_records ? "bytes, where this half has" : "position";
      EXPECT_THAT(ForwardParts(head, front, parts, round.resources()), StatusIs(kInvalid, what));
      EXPECT_THAT(AnswerHalf(tail, round.secrets(half, Role::kTail), back, forwarded, table,
                             round.resources()),
                  StatusIs(kInvalid, what));
    }
  }
  // A list with more onions than slots and noise may have.
  const RoundContext& tail = round.context(Half::kB, Role::kTail);
  const uint64_t most = 4 + 10 + 3 * SomeNoise().max();
  SHOAL_EXPECT_OK(
      OnionIntake::Begin(tail, round.secrets(Half::kB, Role::kTail), 32 * most, round.resources()));
  EXPECT_THAT(OnionIntake::Begin(tail, round.secrets(Half::kB, Role::kTail), 32 * (most + 1),
                                 round.resources()),
              StatusIs(kInvalid, "the header allows"));
}

// A stage gives up soon after its round has ended, and hands out nothing.
TEST(TwoTiersTest, AStageGivesUpWithItsRound) {
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  Round round({.rows = 40, .buckets = 3, .slots = 4}, pool, spools);
  round.Offline();
  const std::vector<uint32_t> slots = FirstSlots(4);
  const Bytes parts = round.Parts(slots, std::array<uint32_t, 4>{1, 2, 3, 4});
  std::atomic<bool> ended = true;
  for (const Half half : kHalves) {
    const auto messages = round.Online(half, round.Batch(half, slots, parts));
    const auto batch = *wire::DecodeRecordBatch(
        messages.forwarded, round.material(half, Role::kHead).next_positions,
        round.context(half, Role::kTail).half->forwarded_bytes());
    Resources resources = round.resources();
    resources.ended = &ended;
    EXPECT_THAT(
        MakeNoise(round.context(half, Role::kHead), round.secrets(half, Role::kHead), resources),
        StatusIs(absl::StatusCode::kCancelled, "the round has ended"));
    EXPECT_THAT(ForwardParts(round.context(half, Role::kHead), round.material(half, Role::kHead),
                             round.Batch(half, slots, parts), resources),
                StatusIs(absl::StatusCode::kCancelled, "the round has ended"));
    EXPECT_THAT(
        AnswerHalf(round.context(half, Role::kTail), round.secrets(half, Role::kTail),
                   round.material(half, Role::kTail), batch, {round.table(), 40}, resources),
        StatusIs(absl::StatusCode::kCancelled, "the round has ended"));
  }
}

// Condition 14, as far as a stage can know: the table of another epoch, with other rows, answers
// nothing.
TEST(TwoTiersDeathTest, ATailTakesTheTableOfItsHeaderAlone) {
  ThreadPool pool(0);
  SpoolPlace spools("/tmp", 1 << 30);
  Round round({.rows = 40, .buckets = 3, .slots = 1}, pool, spools);
  round.Offline();
  wire::RecordBatch none;
  none.record_bytes = round.context(Half::kA, Role::kTail).half->forwarded_bytes();
  const auto answer = [&](uint64_t rows) {
    return AnswerHalf(round.context(Half::kA, Role::kTail), round.secrets(Half::kA, Role::kTail),
                      round.material(Half::kA, Role::kTail), none,
                      {BytesView(round.table()).first(rows * 80), rows}, round.resources())
        .status();
  };
  SHOAL_EXPECT_OK(answer(40));
  EXPECT_DEATH((void)answer(39), "rows");
}

}  // namespace
}  // namespace shoal::server
