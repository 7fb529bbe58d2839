// Clients' submissions, and the onions in them.
#include <algorithm>
#include <memory>

#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/target.h"
#include "src/onion/hpke.h"
#include "src/onion/onion.h"

namespace shoal::fuzz {
namespace {

constexpr size_t kParties = 3;
constexpr size_t kOnions = 2;
constexpr Digest kRound = {7};

struct OnionWorld {
  OnionWorld() {
    std::vector<onion::Recipient> recipients;
    for (size_t i = 0; i < kParties; ++i) {
      keys.push_back(onion::KeyPairFromSecret(Draw(32)));
      recipients.push_back(*onion::Recipient::Create(keys.back().public_key));
    }
    Bytes seeds(kOnions * (kParties - 1) * 32);
    onions.resize(kOnions * onion::OnionBytes(kParties - 1));
    onion::BuildOnions(kRound, 2, std::span(recipients).subspan(1), Draw(seeds.size()), seeds,
                       onions);
    submission.resize(onions.size() + onion::kSealBytes);
    const Bytes secret = Draw(32);
    const onion::SubmissionToSeal item = {secret, onions, submission, {}, 0};
    onion::SealSubmissions(recipients[0], kRound, std::span(&item, 1));
  }
  Bytes Draw(size_t count) {
    Bytes bytes(count);
    random.Fill(bytes);
    return bytes;
  }

  testing::TestRandom random{1};
  std::vector<onion::KeyPair> keys;  // of parties 1, 2, 3
  Bytes onions;                      // for party 2
  Bytes submission;                  // for party 1
};

bool AllZero(BytesView bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

// What does not open leaves nothing.
bool ParseSubmission(const OnionWorld& world, BytesView input) {
  const size_t count = onion::SubmissionOnions(kParties, input.size());
  if (count == 0) return false;
  Bytes seeds(count * 32, 1), onions(input.size() - onion::kSealBytes, 1);
  onion::SubmissionToOpen item{.submission = input, .seeds = seeds, .onions = onions};
  onion::OpenSubmissions(world.keys[0], kRound, std::span(&item, 1));
  SHOAL_CHECK(item.opened || (AllZero(seeds) && AllZero(onions)));
  return item.opened;
}

bool ParseOnions(const OnionWorld& world, BytesView input) {
  constexpr size_t kBytes = onion::OnionBytes(kParties - 1);
  constexpr size_t kInner = onion::OnionBytes(kParties - 2);
  if (input.empty() || input.size() % kBytes != 0) return false;
  const size_t count = input.size() / kBytes;
  Bytes seeds(count * 32, 1), inner(count * kInner, 1), valid(count, 9);
  onion::PeelOnions(world.keys[1], kRound, 2, kParties - 1, input, seeds, inner, valid);
  for (size_t i = 0; i < count; ++i) {
    SHOAL_CHECK(valid[i] == 1 || (valid[i] == 0 && AllZero(BytesView(seeds).subspan(i * 32, 32)) &&
                                  AllZero(BytesView(inner).subspan(i * kInner, kInner))));
  }
  return std::ranges::all_of(valid, [](uint8_t one) { return one == 1; });
}

}  // namespace

void AddOnionTargets(std::vector<Target>& targets) {
  const auto world = std::make_shared<OnionWorld>();
  targets.push_back({.name = "submission",
                     .seeds = {world->submission},
                     .parse = [world](BytesView input) { return ParseSubmission(*world, input); },
                     .mutations = 1000});
  targets.push_back({.name = "onions",
                     .seeds = {world->onions},
                     .parse = [world](BytesView input) { return ParseOnions(*world, input); },
                     .mutations = 1000});
}

}  // namespace shoal::fuzz
