#include "experiments/set-membership/membership.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/scheme.h"

namespace shoal::pir {
namespace {

using testing::StatusIs;
using testing::TestRandom;

Bytes StringOf(absl::string_view kind, uint64_t number) {
  return ToBytes(AsBytes(absl::StrCat(kind, " ", number)));
}

// All filters of a set.
class Filters {
 public:
  Filters(uint64_t strings, uint32_t filters, uint64_t seed) {
    parameters_ = {.salt = {static_cast<uint8_t>(seed)}, .strings = strings, .filters = filters};
    for (uint32_t f = 0; f < filters; ++f) {
      filters_.push_back(*MembershipFilter::Create(parameters_, f));
      for (uint64_t i = 0; i < strings; ++i) filters_.back().Add(StringOf("in", i));
    }
  }
  // The number of filters in which the string's bit is set.
  uint32_t Hits(BytesView string) const {
    return static_cast<uint32_t>(std::count_if(filters_.begin(), filters_.end(),
                                               [&](const auto& f) { return f.Has(string); }));
  }
  const MembershipParameters& parameters() const { return parameters_; }
  const MembershipFilter& filter(uint32_t f) const { return filters_[f]; }

 private:
  MembershipParameters parameters_;
  std::vector<MembershipFilter> filters_;
};

TEST(MembershipTest, AStringOfTheSetIsInEveryFilter) {
  const Filters filters(300, 64, 1);
  for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(filters.Hits(StringOf("in", i)), 64u) << i;
}

// Strings that do not depend on the filters meet a set bit with probability 1 - (1 - 1/2400)^300 =
// 0.1175. The rate over 64 x 500 trials is within 6 deviations of that (at fixed seed).
TEST(MembershipTest, OtherStringsMeetOneInEight) {
  const Filters filters(300, 64, 2);
  uint64_t hits = 0;
  for (uint64_t i = 0; i < 500; ++i) hits += filters.Hits(StringOf("out", i));
  EXPECT_NEAR(hits / (64.0 * 500), 0.1175, 6 * 0.0018);
}

// Somebody who knows set and hash functions searches for the string outside the set that is in the
// most filters, and finds none that is in half of them: the client's draw decides. With one filter,
// or a known draw, every search succeeds.
TEST(MembershipTest, AdversarialStringsAreTakenHalfTheTimeAtMost) {
  const Filters filters(100, 768, 3);
  uint32_t worst = 0;
  Bytes worst_string;
  for (uint64_t i = 0; i < 1000; ++i) {
    const Bytes string = StringOf("forged", i);
    if (const uint32_t hits = filters.Hits(string); hits > worst) {
      worst = hits;
      worst_string = string;
    }
  }
  // A string is expected in 90 filters, with deviation 9: the search gains three or four
  // deviations.
  EXPECT_GT(worst, 105u);
  EXPECT_LT(worst, 384u / 2);
  // Clients' draws are uniform: the string is taken as often as it is in filters (within 6
  // deviations over 2,000 draws, at fixed seed).
  TestRandom random(4);
  int taken = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto client = MembershipClient::Create(filters.parameters(), random).value();
    taken += filters.filter(client.filter()).Has(worst_string);
  }
  EXPECT_NEAR(taken / 2000.0, worst / 768.0, 6 * 0.0078);

  const uint32_t known = 17;
  uint64_t i = 0;
  while (!filters.filter(known).Has(StringOf("forged", i))) ++i;
  EXPECT_LT(i, 100u) << "a known draw protects nobody";
}

// Proposition 6.2: 768 filters of 8 bits a string for digests of 256 bits, 2^-128. Half the
// filters, or filters that are half as large, do not reach that.
TEST(MembershipTest, ThePapersParametersAreEnough) {
  MembershipParameters parameters = {.strings = 1};
  EXPECT_LT(MembershipFailureLog2(parameters, 256), -128);
  parameters.filters = 384;
  EXPECT_GT(MembershipFailureLog2(parameters, 256), -128);
  parameters.filters = 768;
  parameters.bits_per_string = 4;
  EXPECT_GT(MembershipFailureLog2(parameters, 256), -128);
  parameters.bits_per_string = 2;
  EXPECT_EQ(MembershipFailureLog2(parameters, 256), 0) << "no bound at all";
}

TEST(MembershipTest, BadParametersAreRefused) {
  const auto refused = [](MembershipParameters parameters, const std::string& what) {
    TestRandom random(1);
    EXPECT_THAT(CheckMembership(parameters), StatusIs(absl::StatusCode::kInvalidArgument, what));
    EXPECT_FALSE(MembershipFilter::Create(parameters, 0).ok());
    EXPECT_FALSE(MembershipClient::Create(parameters, random).ok());
  };
  refused({.strings = 0}, "strings");
  refused({.strings = ~uint64_t{0}}, "strings");
  refused({.strings = 1, .filters = 0}, "filters");
  refused({.strings = 1, .filters = 1 << 20}, "filters");
  refused({.strings = 1, .bits_per_string = 0}, "bits_per_string");
  refused({.strings = 1, .bits_per_string = 65}, "bits_per_string");
  EXPECT_THAT(MembershipFilter::Create({.strings = 5}, 768),
              StatusIs(absl::StatusCode::kInvalidArgument, "filter 768"));
}

// Every bit of a byte that eight one-bit entries share is read through an engine. (The authors'
// prototypes read only the one at index 0.)
TEST(MembershipTest, BitsAreReadThroughTheEngines) {
  TestRandom random(6);
  const MembershipParameters parameters = {.salt = {8}, .strings = 101};
  const auto chosen = MembershipClient::Create(parameters, random).value();
  auto filter = MembershipFilter::Create(parameters, chosen.filter()).value();
  for (uint64_t i = 0; i < 101; ++i) filter.Add(StringOf("in", i));
  for (const lwe::Scheme scheme : lwe::kAllSchemes) {
    ServerOptions options;
    options.shape.emplace().set_rows_per_column(7);
    const auto server = lwe::CreateServer(scheme, filter.content(1), options).value();
    const auto client = lwe::CreateClient(server->setup(), server->hint(), {}).value();
    bool places[8] = {};
    int found = 0;
    for (uint64_t i = 0; i < 60; ++i) {
      const Bytes string = StringOf(i % 2 == 0 ? "in" : "out", i);
      SHOAL_ASSERT_OK_AND_ASSIGN(const lwe::Asked asked, client->Ask(chosen.RowOf(string), random));
      const BytesView query = asked.query;
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, server->Answer({&query, 1})[0]);
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, client->Recover(asked, answer));
      EXPECT_EQ(chosen.Holds(string, record), filter.Has(string));
      if (i % 2 == 0) {
        EXPECT_TRUE(chosen.Holds(string, record)) << "a false negative";
      }
      found += chosen.Holds(string, record);
      places[MembershipBit(parameters, chosen.filter(), string) % 8] = true;
    }
    EXPECT_LT(found, 60);
    EXPECT_EQ(std::count(std::begin(places), std::end(places), true), 8);
  }
}

}  // namespace
}  // namespace shoal::pir
