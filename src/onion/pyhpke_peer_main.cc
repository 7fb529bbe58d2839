// Seals submissions for another implementation of HPKE, and opens its own: pyhpke_check.py.
//
//   pyhpke_peer seal    prints one line for each instruction set: round id, the three parties'
//                       secret keys, a submission, and the seeds of parties 1, 2 and 3
//   pyhpke_peer open    reads lines of round id, secret keys and submission; prints for each line
//                       and instruction set "refused", or the seeds that the three parties get
//
// All values are in hexadecimal.
#include <array>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/random.h"
#include "src/onion/onion.h"

namespace shoal::onion {
namespace {

constexpr size_t kParties = 3;
constexpr size_t kOnions = 21;  // a full group of lanes and some, with every instruction set

Bytes FromHex(const std::string& hex) {
  Bytes bytes(hex.size() / 2);
  size_t length = 0;
  SHOAL_CHECK(sodium_hex2bin(bytes.data(), bytes.size(), hex.data(), hex.size(), nullptr, &length,
                             nullptr) == 0 &&
              length == bytes.size());
  return bytes;
}

void Print(BytesView bytes) { std::printf("%s ", Hex(bytes).c_str()); }

// Every `stride`-th seed from `first` on.
Bytes EachSeed(const Bytes& seeds, size_t first, size_t stride) {
  Bytes picked;
  for (size_t at = first * kSeedBytes; at < seeds.size(); at += stride * kSeedBytes) {
    Append(picked, BytesView(seeds).subspan(at, kSeedBytes));
  }
  return picked;
}

void SealAndPrint() {
  SystemRandom random;
  Digest round;
  random.Fill(round);
  Print(round);
  std::vector<Recipient> recipients;
  for (size_t party = 0; party < kParties; ++party) {
    const Seed secret = random.NewSeed();
    Print(secret.view());
    recipients.push_back(Recipient::Create(KeyPairFromSecret(secret.view()).public_key).value());
  }
  Bytes secrets((1 + kOnions * (kParties - 1)) * 32), seeds(kOnions * (kParties - 1) * 32);
  random.Fill(secrets);
  Bytes onions(kOnions * OnionBytes(kParties - 1)), submission(onions.size() + kSealBytes);
  Bytes first_seeds(kOnions * 32);
  BuildOnions(round, 2, std::span<const Recipient>(recipients).subspan(1),
              BytesView(secrets).subspan(32), seeds, onions);
  const SubmissionToSeal item = {BytesView(secrets).first(32), onions, submission, first_seeds};
  SealSubmissions(recipients[0], round, {&item, 1});
  Print(submission);
  Print(first_seeds);
  for (size_t party = 2; party <= kParties; ++party) {
    Print(EachSeed(seeds, party - 2, kParties - 1));
  }
  std::printf("\n");
}

void OpenAndPrint(const Digest& round, const std::vector<KeyPair>& keys, const Bytes& submission) {
  const size_t n = SubmissionOnions(kParties, submission.size());
  SHOAL_CHECK(n > 0);
  Bytes onions(submission.size() - kSealBytes), seeds(n * 32), valid(n);
  SubmissionToOpen item = {submission, seeds, onions};
  OpenSubmissions(keys[0], round, {&item, 1});
  if (!item.opened) {
    std::printf("refused\n");
    return;
  }
  Print(seeds);
  for (uint32_t party = 2; party <= kParties; ++party) {
    Bytes inner(n * OnionBytes(kParties - party));
    PeelOnions(keys[party - 1], round, party, kParties - party + 1, onions, seeds, inner, valid);
    SHOAL_CHECK(valid == Bytes(n, 1));
    Print(seeds);
    onions = inner;
  }
  std::printf("\n");
}

template <typename Function>
void WithEveryInstructionSet(const Function& function) {
  for (InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    function();
  }
}

void OpenLines() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::array<std::string, kParties + 2> word;
    for (std::string& w : word) SHOAL_CHECK(static_cast<bool>(words >> w));
    Digest round;
    std::ranges::copy(FromHex(word[0]), round.begin());
    std::vector<KeyPair> keys;
    for (size_t party = 1; party <= kParties; ++party) {
      keys.push_back(KeyPairFromSecret(FromHex(word[party])));
    }
    const Bytes submission = FromHex(word[kParties + 1]);
    WithEveryInstructionSet([&] { OpenAndPrint(round, keys, submission); });
  }
}

}  // namespace
}  // namespace shoal::onion

int main(int argc, char** argv) {
  using namespace shoal::onion;  // NOLINT: a program of one page
  SHOAL_CHECK(sodium_init() >= 0);
  if (argc == 2 && std::strcmp(argv[1], "seal") == 0) {
    WithEveryInstructionSet(SealAndPrint);
  } else if (argc == 2 && std::strcmp(argv[1], "open") == 0) {
    OpenLines();
  } else {
    std::fprintf(stderr, "usage: pyhpke_peer seal|open\n");
    return 2;
  }
  return 0;
}
