// Every kernel does what plain loops do, for records of all lengths around those of the registers,
// wherever they begin, and touches nothing beside.
#include "src/pir/sets/gather.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/test_random.h"
#include "src/pir/sets/gather_dispatch.h"

namespace shoal::pir::sets {
namespace {

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
