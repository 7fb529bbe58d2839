#include "src/client/device.h"

#include <set>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/testing/fake_frontend.h"
#include "src/onion/onion.h"

namespace shoal::client {
namespace {

Bytes Seeds(const OnionRange& range, const Digest& round_id, uint32_t parties) {
  Bytes seeds(range.count * parties * 32);
  DeriveSecrets(range, round_id, parties, seeds, {});
  return seeds;
}

class DeviceTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  DeviceTest() : frontend_({.parties = GetParam(), .records = 20}) {
    const auto round =
        round::Round::Verify(frontend_.Sign(frontend_.MakeHeader(1)), frontend_.roster(),
                             {frontend_.table().manifest().digest(), frontend_.table().rows(),
                              frontend_.table().manifest().row_bytes()},
                             frontend_.clock().now_s);
    SHOAL_CHECK(round.ok());
    round_ = *round;
  }
  testing::FakeFrontend frontend_;
  std::optional<round::Round> round_;
};

TEST_P(DeviceTest, SecretsAreAPrefixOfOneStreamAndDiffer) {
  shoal::testing::TestRandom random(1);
  const Seed master = random.NewSeed();
  const uint32_t parties = GetParam();
  const OnionRange all = {&master, 0, 50};
  Bytes seeds(50 * parties * 32), ephemerals(50 * parties * 32);
  DeriveSecrets(all, round_->id(), parties, seeds, ephemerals);
  EXPECT_EQ(Seeds(all, round_->id(), parties), seeds) << "with or without ephemeral secrets";
  // A part of a range gives the same part of the bytes, so that a submission may be cut anywhere.
  for (uint32_t first = 0; first < 9; ++first) {
    for (uint32_t count : {0u, 1u, 5u}) {
      const Bytes part = Seeds({&master, first, count}, round_->id(), parties);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), seeds.begin() + first * parties * 32));
    }
  }
  // No secret comes twice, within a round, over rounds and over devices.
  std::set<std::string> distinct;
  const auto add = [&](const Bytes& secrets) {
    for (size_t at = 0; at < secrets.size(); at += 32) {
      EXPECT_TRUE(distinct.insert(ToString(BytesView(secrets).subspan(at, 32))).second);
    }
  };
  add(seeds);
  add(ephemerals);
  Digest other_round = round_->id();
  other_round[31] ^= 1;
  add(Seeds(all, other_round, parties));
  const Seed other_master = random.NewSeed();
  add(Seeds({&other_master, 0, 50}, round_->id(), parties));
}

// The derivation of device.h, written out. A state on disk relies on it.
TEST_P(DeviceTest, SecretsAreTheDocumentedStreams) {
  shoal::testing::TestRandom random(1);
  const Seed master = random.NewSeed();
  const uint32_t parties = GetParam();
  Bytes seeds(20 * parties * 32), ephemerals(20 * parties * 32);
  DeriveSecrets({&master, 0, 20}, round_->id(), parties, seeds, ephemerals);
  const Digest key =
      Transcript("shoal client secrets v2", master.view()).Blob(round_->id()).Finish();
  for (uint8_t number : {0, 1}) {
    Bytes expected(20 * parties * 32);
    const uint8_t nonce[crypto_stream_chacha20_ietf_NONCEBYTES] = {number};
    crypto_stream_chacha20_ietf(expected.data(), expected.size(), nonce, key.data());
    EXPECT_EQ(number == 0 ? seeds : ephemerals, expected);
  }
}

// libsodium's own call opens the onions that are sent, layer by layer, and finds the derived seeds.
TEST_P(DeviceTest, OnionsOpenWithLibsodium) {
  const uint32_t parties = GetParam();
  shoal::testing::TestRandom random(2);
  const Seed a = random.NewSeed(), b = random.NewSeed();
  // Small ranges share a batch, and a large one is cut.
  const std::vector<OnionRange> ranges = {{&a, 0, 3}, {&b, 5, 300}, {&a, 3, 0}, {&a, 3, 2}};
  ThreadPool pool(2);
  std::vector<onion::KeyPair> keys;
  for (uint32_t j = 0; j < parties; ++j) {
    keys.push_back(onion::KeyPairFromSecret(random.NewSeed().view()));
  }
  wire::RoundHeader header = round_->header();
  for (uint32_t j = 0; j < parties; ++j) {
    header.set_onion_keys(static_cast<int>(j), ToString(keys[j].public_key));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const round::Round round,
      round::Round::Verify(frontend_.Sign(header), frontend_.roster(),
                           {frontend_.table().manifest().digest(), frontend_.table().rows(),
                            frontend_.table().manifest().row_bytes()},
                           frontend_.clock().now_s));
  const size_t onion_bytes = 112 * parties;
  const Bytes onions = ToBytes(AsBytes(BuildOnions(round, ranges, &pool)));
  ASSERT_EQ(onions.size(), 305 * onion_bytes);
  EXPECT_EQ(AsText(onions), BuildOnions(round, ranges, nullptr))
      << "a repeated submission is the same bytes";
  Bytes expected;
  for (const OnionRange& range : ranges) Append(expected, Seeds(range, round.id(), parties));
  for (size_t i = 0; i < 305; ++i) {
    Bytes layer(onions.begin() + i * onion_bytes, onions.begin() + (i + 1) * onion_bytes);
    for (uint32_t j = 0; j < parties; ++j) {
      Bytes opened(layer.size() - crypto_box_SEALBYTES);
      ASSERT_EQ(0, crypto_box_seal_open(opened.data(), layer.data(), layer.size(),
                                        keys[j].public_key.data(), keys[j].secret_key.data()));
      EXPECT_TRUE(std::equal(round.id().begin(), round.id().end(), opened.begin()));
      EXPECT_TRUE(std::equal(opened.begin() + 32, opened.begin() + 64,
                             expected.begin() + (i * parties + j) * 32));
      layer.assign(opened.begin() + 64, opened.end());
    }
    EXPECT_TRUE(layer.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Parties, DeviceTest, ::testing::Values(2, 3, 5));

}  // namespace
}  // namespace shoal::client
