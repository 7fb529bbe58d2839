// The numbers of docs/privacy.md: noise that is printed there gives the privacy beside it, and what
// many rounds tell an observer is not more than the page says.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/noise/accountant.h"
#include "src/noise/noise.h"
#include "src/noise/search.h"

namespace shoal::noise {
namespace {

double Number(const std::string& text) {
  double out = 0;
  if (text == "ln 3") return std::log(3.0);
  EXPECT_TRUE(absl::SimpleAtod(absl::StrReplaceAll(text, {{",", ""}}), &out)) << text;
  return out;
}

// The groups of every line of the page that is like `pattern` from its first character to its last.
std::vector<std::vector<std::string>> Lines(const std::string& pattern) {
  const std::regex regex(pattern);
  std::ifstream page("docs/privacy.md");
  std::vector<std::vector<std::string>> out;
  std::smatch match;
  for (std::string line; std::getline(page, line);) {
    if (std::regex_match(line, match, regex)) out.emplace_back(match.begin() + 1, match.end());
  }
  return out;
}

struct Line {
  Parameters parameters;
  double mean, delta;              // as printed
  double paper_mean, paper_delta;  // the paper's mechanism, as printed
};

std::vector<Line> LeastNoise() {
  std::vector<Line> out;
  for (const auto& cell :
       Lines(R"(\| \(([^,]+), ([^)]+)\), ([0-9,]+) \| ([0-9.,]+) \((.+)\) \| )"
             R"((geometric|split Gaussian), mode ([0-9]+), l = ([0-9.]+), r = ([0-9.]+) \| )"
             R"(([0-9.,]+) \| ([0-9.e-]+) \|)")) {
    const Parameters p = {
        cell[5] == "geometric" ? Mechanism::kGeometric : Mechanism::kSplitGaussian,
        Number(cell[0]),
        Number(cell[1]),
        static_cast<uint32_t>(Number(cell[2])),
        static_cast<uint32_t>(Number(cell[6])),
        Number(cell[7]),
        Number(cell[8])};
    out.push_back({p, Number(cell[9]), Number(cell[10]), Number(cell[3]), Number(cell[4])});
  }
  return out;
}

TEST(PrivacyPageTest, TheNoiseOfEveryLineGivesThePrivacyBesideIt) {
  const std::vector<Line> lines = LeastNoise();
  EXPECT_EQ(lines.size(), 7u) << "the table has other lines, or another form";
  for (const Line& line : lines) {
    const Parameters& p = line.parameters;
    SCOPED_TRACE(::testing::Message()
                 << "epsilon " << p.epsilon << ", delta " << p.delta << ", phi " << p.phi);
    SHOAL_EXPECT_OK(VerifyPrivacy(p));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution distribution, Distribution::Create(p));
    EXPECT_NEAR(line.mean, distribution.mean(), 5e-4 * distribution.mean());
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const double delta,
        SubstitutionDeltaUpper(distribution.weights(), p.epsilon, {.phi = p.phi}));
    EXPECT_LE(delta, line.delta);  // rounded up
    EXPECT_GE(delta, 0.99 * line.delta);
    EXPECT_LE(line.delta, p.delta);

    SHOAL_ASSERT_OK_AND_ASSIGN(const uint32_t bound,
                               ClampedLaplaceBound(p.epsilon, p.delta, p.phi));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const Distribution paper,
        Distribution::Create({Mechanism::kClampedLaplace, p.epsilon, p.delta, p.phi, bound}));
    EXPECT_NEAR(line.paper_mean, paper.mean(), 1e-5 * paper.mean());
    SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds paper_delta,
                               SubstitutionDelta(paper.weights(), p.epsilon, {.phi = p.phi}));
    EXPECT_NEAR(line.paper_delta, paper_delta.upper, 0.005 * paper_delta.upper);
  }
}

TEST(PrivacyPageTest, SeveralInABucketCostWhatTheTableSays) {
  const auto lines =
      Lines(R"(\| ([0-9]+) \| ([0-9]+) \| ([0-9]+) \| ([0-9]+), ([0-9.]+), ([0-9.]+) \| )"
            R"(([0-9.e-]+) \| ([0-9.e-]+) \|)");
  EXPECT_EQ(lines.size(), 4u) << "the table has other lines, or another form";
  const auto noise = [](const std::vector<std::string>& line) {
    return Parameters{Mechanism::kSplitGaussian,
                      1,
                      1e-6,
                      64,
                      static_cast<uint32_t>(Number(line[3])),
                      Number(line[4]),
                      Number(line[5])};
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution ignores, Distribution::Create(noise(lines[0])));
  for (const std::vector<std::string>& line : lines) {
    const auto most = static_cast<uint32_t>(Number(line[0]));
    SCOPED_TRACE(most);
    const Parameters p = noise(line);
    const Exposure pattern = FullestPattern(64, most);
    EXPECT_EQ(pattern.phi, Number(line[1]));
    SHOAL_EXPECT_OK(VerifyPrivacy(p, most));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution distribution, Distribution::Create(p));
    EXPECT_NEAR(distribution.mean(), Number(line[2]), 0.6);
    SHOAL_ASSERT_OK_AND_ASSIGN(const double delta,
                               SubstitutionDeltaUpper(distribution.weights(), 1, pattern));
    EXPECT_LE(delta, Number(line[6]) + 1e-15);  // rounded up
    EXPECT_GE(delta, 0.98 * Number(line[6]));
    SHOAL_ASSERT_OK_AND_ASSIGN(const double ignored,
                               SubstitutionDeltaUpper(ignores.weights(), 1, pattern));
    EXPECT_NEAR(ignored, Number(line[7]), 0.05 * ignored);
  }
  // How many a random list has in a bucket.
  const auto lists =
      Lines(R"(\| ([0-9,]+)(?: \(.*\))? \| ([0-9]+) \| ([0-9]+) \| ([0-9]+) \| ([0-9]+) \|)");
  EXPECT_EQ(lists.size(), 4u) << "the table has other lines, or another form";
  for (const std::vector<std::string>& line : lists) {
    size_t column = 1;
    for (const uint32_t keys : {16, 64, 256, 1024}) {
      EXPECT_EQ(LeastMostInBucket(keys, static_cast<uint64_t>(Number(line[0]))),
                Number(line[column++]))
          << line[0] << " buckets, " << keys;
    }
  }
}

TEST(PrivacyPageTest, WhatDailyRoundsAddUpToIsAnUpperBoundAndNotALooseOne) {
  constexpr double kDelta = 1e-3;
  std::map<uint32_t, Distribution> noise;  // by phi, those for (1, 1e-6)
  for (const Line& line : LeastNoise()) {
    const Parameters& p = line.parameters;
    if (p.epsilon != 1 || p.delta != 1e-6) continue;
    SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution distribution, Distribution::Create(p));
    noise.emplace(p.phi, distribution);
  }
  const std::string cell = R"( (> )?([0-9.]+), ([0-9.]+) % \|)";
  const auto lines = Lines(R"(\| ([0-9,]+) \| ([0-9,]+) \|)" + cell + cell + cell + cell);
  EXPECT_EQ(lines.size(), 6u) << "the table has other lines, or another form";
  for (const std::vector<std::string>& line : lines) {
    const uint32_t phi = static_cast<uint32_t>(Number(line[0]));
    ASSERT_TRUE(noise.contains(phi)) << phi;
    const std::span<const Weight> weights = noise.at(phi).weights();
    Exposure exposure = {.phi = static_cast<uint32_t>(Number(line[1]))};
    size_t at = 2;
    for (uint32_t rounds : {1, 7, 30, 365}) {
      exposure.rounds = rounds;
      const bool beyond = !line[at].empty();
      const double epsilon = Number(line[at + 1]), percent = Number(line[at + 2]);
      at += 3;
      SCOPED_TRACE(::testing::Message() << "noise for phi = " << phi << ", " << exposure.phi
                                        << " rows in doubt, " << rounds << " rounds");
      const auto delta_at = [&](double e) {
        return SubstitutionDeltaUpper(weights, e, exposure).value();
      };
      const double right = 50 * (1 + delta_at(0));
      EXPECT_LE(right, percent + 1e-9);
      EXPECT_GE(right, percent - 0.1);
      if (beyond) {
        EXPECT_EQ(epsilon, 50);
        EXPECT_GT(delta_at(50), kDelta);
      } else {
        EXPECT_LE(delta_at(epsilon), kDelta);
        EXPECT_GT(delta_at(epsilon - 0.01), kDelta);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::noise
