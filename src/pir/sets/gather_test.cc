// Every kernel does what plain loops do, for records of all lengths around those of the registers,
// wherever they begin, and touches nothing beside.
#include "src/pir/sets/gather.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/guarded_bytes.h"
#include "src/base/testing/test_random.h"
#include "src/pir/sets/gather_dispatch.h"

namespace shoal::pir::sets {
namespace {

using testing::GuardedBytes;
using testing::TestRandom;

class GatherTest : public ::testing::TestWithParam<const GatherKernel*> {
 protected:
  TestRandom random_{11};
};

TEST_P(GatherTest, XorsRecordsOfAnyLength) {
  constexpr size_t kRows = 50;
  std::vector<size_t> widths = {255, 256, 257, 511, 512, 513, 1023, 1072, 1300, 9000};
  for (size_t bytes = 1; bytes < 200; ++bytes) widths.push_back(bytes);
  for (const size_t bytes : widths) {
    // Records one byte off, and one behind another.
    Bytes table(kRows * bytes + 1);
    random_.Fill(table);
    // None, one, some, and more than are read together.
    const std::vector<uint32_t> counts = {0, 1, 5, 0, 3000 / static_cast<uint32_t>(bytes) + 20};
    std::vector<const uint8_t*> places;
    Bytes sums((bytes + 3) * counts.size());
    random_.Fill(sums);
    Bytes expected = sums;
    std::vector<uint8_t*> at;
    for (size_t s = 0; s < counts.size(); ++s) {
      at.push_back(&sums[s * (bytes + 3) + 1]);
      for (uint32_t i = 0; i < counts[s]; ++i) {
        places.push_back(&table[1 + random_.Below(kRows) * bytes]);
        for (size_t b = 0; b < bytes; ++b) expected[s * (bytes + 3) + 1 + b] ^= places.back()[b];
      }
    }
    GetParam()->gather(places.data(), counts.data(), counts.size(), bytes, at.data());
    ASSERT_EQ(sums, expected) << bytes;
  }
}

TEST_P(GatherTest, AddsWordsOfTheSetsThatHaveTheBit) {
  for (const size_t tables : {1, 2, 3, 4, 7, 8}) {
    for (const size_t sets : {1, 63, 255, 256, 257, 700}) {
      for (const unsigned bit : {0u, 1u}) {
        for (const size_t stride : {1, 2}) {
          std::vector<std::vector<uint64_t>> words(tables, std::vector<uint64_t>(1 + 32768));
          std::vector<std::vector<uint16_t>> choices(tables, std::vector<uint16_t>(sets));
          std::vector<const uint64_t*> tables_at;
          const ChoiceWord* choices_at[GatherKernel::kMaxTables] = {};
          std::vector<uint64_t> sums(sets * stride, 77), expected = sums;
          for (size_t t = 0; t < tables; ++t) {
            for (size_t o = 0; o < 32768; ++o) words[t][1 + o] = o * 0x9e3779b97f4a7c15 + t;
            for (size_t s = 0; s < sets; ++s) {
              // The ends of the table come, too.
              const uint64_t draw = random_.U64();
              const auto offset = static_cast<uint16_t>(draw % 5 == 0   ? 0
                                                        : draw % 5 == 1 ? 0x7fff
                                                                        : draw >> 8 & 0x7fff);
              const auto top = static_cast<uint16_t>(draw >> 63);
              choices[t][s] = static_cast<uint16_t>(top << 15 | offset);
              if (top == bit) expected[s * stride] ^= words[t][1 + offset];
            }
            tables_at.push_back(words[t].data());
            choices_at[t] = choices[t].data();
          }
          GetParam()->add_words(tables_at.data(), choices_at, tables, sets, bit,
                                reinterpret_cast<uint8_t*>(sums.data()), stride);
          ASSERT_EQ(sums, expected) << tables << " " << sets << " " << bit << " " << stride;
        }
      }
    }
  }
}

TEST_P(GatherTest, FindsTheFirstLiveChoice) {
  for (const size_t count : {0, 1, 31, 32, 33, 511, 4096, 32768}) {
    for (int round = 0; round < 30; ++round) {
      std::vector<uint16_t> choices(count), live(count);
      // From few hits to many, of both kinds.
      const uint64_t kinds = uint64_t{1} << (round % 16);
      const auto wanted = static_cast<uint16_t>(random_.Below(kinds));
      uint32_t expected = GatherKernel::kNowhere;
      for (size_t i = count; i-- > 0;) {
        choices[i] = static_cast<uint16_t>(random_.Below(kinds));
        live[i] = static_cast<uint16_t>(0 - random_.Below(2));
        if (choices[i] == wanted && live[i] != 0) expected = static_cast<uint32_t>(i);
      }
      ASSERT_EQ(GetParam()->first_live(choices.data(), live.data(), count, wanted), expected);
    }
    // The last one alone.
    std::vector<uint16_t> choices(count, 0x8001), live(count, 0xffff);
    if (count > 0) choices.back() = 0xffff;
    ASSERT_EQ(GetParam()->first_live(choices.data(), live.data(), count, 0xffff),
              count > 0 ? count - 1 : GatherKernel::kNowhere);
  }
}

TEST_P(GatherTest, FindsTheLeastPlace) {
  for (const size_t count : {0, 1, 7, 31, 32, 33, 1000}) {
    for (int round = 0; round < 60; ++round) {
      std::vector<uint16_t> choices(count), halves(count);
      std::vector<uint32_t> places(count);
      std::vector<uint64_t> beside(count);
      const uint64_t kinds = uint64_t{1} << (round % 15);
      const auto wanted = static_cast<uint16_t>(random_.Below(kinds));
      const uint64_t row = (uint64_t{1} << 40) + random_.Below(kinds);
      uint32_t expected = GatherKernel::kNowhere;
      for (size_t i = 0; i < count; ++i) {
        choices[i] = static_cast<uint16_t>(random_.Below(kinds) | random_.Below(2) << 15);
        halves[i] = static_cast<uint16_t>(random_.Below(2) << 15);
        places[i] = random_.Below(4) == 0 ? GatherKernel::kNowhere
                                          : static_cast<uint32_t>(random_.U64() >> 32);
        beside[i] =
            random_.Below(4) == 0 ? ~uint64_t{0} : (uint64_t{1} << 40) + random_.Below(kinds);
        if ((choices[i] ^ halves[i]) == wanted || beside[i] == row) {
          expected = std::min(expected, places[i]);
        }
      }
      ASSERT_EQ(GetParam()->least_place(choices.data(), halves.data(), places.data(), beside.data(),
                                        count, wanted, row),
                expected);
    }
  }
}

// Bits of sets are where HitAt says, those behind the last set are zeros, and match_beside adds.
TEST_P(GatherTest, MatchesAreTheBitsOfTheirSets) {
  for (const size_t count : {0, 1, 31, 32, 33, 511, 512, 513, 1000, 4096}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<uint16_t> choices(count), flips(count), live(count);
      std::vector<uint64_t> beside(count);
      const uint64_t kinds = uint64_t{1} << (round % 12);
      const auto wanted = static_cast<uint16_t>(random_.Below(kinds));
      const uint64_t row = (uint64_t{1} << 40) + random_.Below(kinds);
      for (size_t i = 0; i < count; ++i) {
        flips[i] = static_cast<uint16_t>(random_.Below(2) << 15);
        choices[i] = static_cast<uint16_t>(random_.Below(kinds) | random_.Below(2) << 15);
        live[i] = static_cast<uint16_t>(0 - random_.Below(2));
        beside[i] = (uint64_t{1} << 40) + random_.Below(kinds);
      }
      const auto check = [&](bool with_flips, bool with_live, bool with_beside) {
        std::vector<uint64_t> hits(GatherKernel::HitWords(count), 77), expected(hits.size());
        GetParam()->match(choices.data(), with_flips ? flips.data() : nullptr,
                          with_live ? live.data() : nullptr, count, wanted, hits.data());
        if (with_beside) {
          GetParam()->match_beside(beside.data(), count, row, hits.data());
        }
        size_t found = 0, wrong = 0;
        for (size_t word = 0; word < hits.size(); ++word) {
          for (size_t bit = 0; bit < 64; ++bit) {
            const size_t i = GatherKernel::HitAt(word, bit);
            const bool is = i < count && (((choices[i] ^ (with_flips ? flips[i] : 0)) == wanted &&
                                           (!with_live || live[i] != 0)) ||
                                          (with_beside && beside[i] == row));
            wrong += (hits[word] >> bit & 1) != is;
            found += is;
          }
        }
        ASSERT_EQ(wrong, 0u) << count << " " << found;
      };
      check(false, false, false);
      check(true, false, true);
      check(false, true, false);
      check(true, true, true);
    }
  }
}

// No kernel reads or writes a byte beside what it is given: each of its arguments stands between
// two pages that nobody may touch, at the end of what is between them and at the beginning.
TEST_P(GatherTest, TouchesNothingBeside) {
  for (const bool at_end : {true, false}) {
    for (const size_t bytes : {1, 7, 8, 31, 32, 33, 63, 64, 65, 200, 1072}) {
      GuardedBytes table(5 * bytes, at_end), sum(bytes, at_end);
      std::vector<const uint8_t*> places;
      for (const size_t row : {4, 0, 4, 3}) places.push_back(table.As<uint8_t>() + row * bytes);
      const uint32_t count = 4;
      uint8_t* const to = sum.As<uint8_t>();
      GetParam()->gather(places.data(), &count, 1, bytes, &to);
    }
    for (const size_t count : {1, 7, 31, 32, 33, 511, 513, 1000}) {
      GuardedBytes choices(2 * count, at_end), halves(2 * count, at_end), places(4 * count, at_end);
      GuardedBytes beside(8 * count, at_end), hits(8 * GatherKernel::HitWords(count), at_end);
      GuardedBytes words(8 * (1 + 32768), at_end), sums(8 * count, at_end);
      std::memset(choices.As<uint8_t>(), 0xff, 2 * count);
      GetParam()->first_live(choices.As<uint16_t>(), halves.As<uint16_t>(), count, 1);
      GetParam()->least_place(choices.As<uint16_t>(), halves.As<uint16_t>(), places.As<uint32_t>(),
                              beside.As<uint64_t>(), count, 1, 2);
      GetParam()->match(choices.As<uint16_t>(), halves.As<uint16_t>(), halves.As<uint16_t>(), count,
                        1, hits.As<uint64_t>());
      GetParam()->match_beside(beside.As<uint64_t>(), count, 2, hits.As<uint64_t>());
      GetParam()->find(places.As<uint32_t>(), count, 3);
      const uint64_t* const tables[] = {words.As<uint64_t>()};
      const ChoiceWord* const of_tables[GatherKernel::kMaxTables] = {choices.As<uint16_t>()};
      GetParam()->add_words(tables, of_tables, 1, count, 1, sums.As<uint8_t>(), 1);
    }
  }
}

TEST_P(GatherTest, FindsTheOneThatIsWanted) {
  for (const size_t count : {0, 1, 2, 15, 16, 17, 1000}) {
    std::vector<uint32_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint32_t>(i) * 0x9e3779b1;
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(GetParam()->find(values.data(), count, values[i]), i) << count;
    }
    EXPECT_EQ(GetParam()->find(values.data(), count, 12345), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, GatherTest, ::testing::ValuesIn(SupportedGathers()),
                         [](const auto& of) { return std::string(of.param->name); });

}  // namespace
}  // namespace shoal::pir::sets
