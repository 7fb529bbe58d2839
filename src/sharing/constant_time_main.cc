// Computes shares, masks, tokens and tallies from secrets that are marked as uninitialised for
// valgrind: memcheck then reports every branch and every address that depends on them.
// //src/sharing:constant_time_test runs it.
//
//   constant_time_main            everything; silence is success
//   constant_time_main --leak     branches on a secret on purpose: memcheck must complain
//
// Covered is what valgrind can execute: every kernel but that of AVX-512, whose template is run as
// compiled for AVX2.
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/sharing/kernel.h"
#include "src/sharing/sharing.h"
#include "src/sharing/testing/kernel_wide.h"
#include "valgrind/memcheck.h"

namespace shoal::sharing {
namespace {

constexpr size_t kItems = 37;  // whole vectors, and a remainder
constexpr size_t kAnswerBytes = 1072, kTagged = TaggedBytes(kAnswerBytes);
constexpr Digest kRoundId = {1, 2, 3};

template <typename T>
void MakeSecret(std::vector<T>& values) {
  VALGRIND_MAKE_MEM_UNDEFINED(values.data(), values.size() * sizeof(T));
}
template <typename T>
void MakePublic(std::vector<T>& values) {
  VALGRIND_MAKE_MEM_DEFINED(values.data(), values.size() * sizeof(T));
}

// What a party and a client compute from secret seeds.
struct Results {
  std::vector<uint32_t> tallies = std::vector<uint32_t>(kItems, 5);
  std::vector<uint32_t> first_tallies = std::vector<uint32_t>(kItems, 7);
  Bytes answers = Bytes(kItems * kTagged);
  Bytes tokens = Bytes(kItems * kTokenBytes);
  Bytes wrong = Bytes(kItems);

  void MakeSecret() {
    sharing::MakeSecret(tallies);
    sharing::MakeSecret(first_tallies);
  }
  void MakePublic() {
    sharing::MakePublic(tallies);
    sharing::MakePublic(first_tallies);
    sharing::MakePublic(answers);
    sharing::MakePublic(tokens);
    sharing::MakePublic(wrong);
  }
  bool operator==(const Results&) const = default;
};

Results OneByOne(const Bytes& seeds) {
  Results results;
  results.MakeSecret();
  for (size_t i = 0; i < kItems; ++i) {
    const BytesView seed = BytesView(seeds).subspan(32 * i, 32);
    const Expansion expansion = Expand(seed, kRoundId);
    std::memcpy(results.tokens.data() + i * kTokenBytes, expansion.token.data(), kTokenBytes);
    results.tallies[i] = Advance(expansion.share, results.tallies[i]);
    // FirstTally checks that its arguments are a query and shares, and so branches on them.
    QueryShare share = expansion.share;
    uint32_t query = results.first_tallies[i];
    VALGRIND_MAKE_MEM_DEFINED(&share, sizeof share);
    VALGRIND_MAKE_MEM_DEFINED(&query, sizeof query);
    results.first_tallies[i] = FirstTally({&share, 1}, query);
    MaskAnswer(seed, kRoundId, TagCovers::kAnswerAndTag,
               MutableBytes(results.answers).subspan(i * kTagged, kTagged));
  }
  results.MakePublic();
  return results;
}

Results InBatch(const Kernel& kernel, const Bytes& seeds) {
  std::vector<uint32_t> positions(kItems);
  std::iota(positions.begin(), positions.end(), 0u);
  Results results;
  results.MakeSecret();
  const uint8_t* const nonce = kRoundId.data();
  std::vector<uint32_t> shares(2 * kItems);
  kernel.expand_shares(seeds.data(), positions.data(), kItems, nonce, shares.data());
  for (size_t i = 0; i < kItems; ++i) {
    results.tallies[i] = Advance({shares[2 * i], shares[2 * i + 1]}, results.tallies[i]);
  }
  kernel.xor_masks(seeds.data(), positions.data(), kItems, nonce, kAnswerBytes, kTagged,
                   results.answers.data());
  Bytes keys(kItems * kTagKeyBytes);
  kernel.expand_tag_keys(seeds.data(), positions.data(), kItems, nonce, TagKeyBlock(kAnswerBytes),
                         kTagKeyBytes, keys.data());
  kernel.tag_answers(keys.data(), kItems, kTagged, kAnswerBytes, kTagged, results.answers.data());
  kernel.expand_tokens(seeds.data(), positions.data(), kItems, nonce, results.tokens.data());
  kernel.compare_tokens(seeds.data(), positions.data(), kItems, nonce, results.tokens.data(),
                        results.wrong.data());
  kernel.first_tallies(seeds.data(), 1, kItems, nonce, results.first_tallies.data(),
                       results.first_tallies.data());
  results.MakePublic();
  return results;
}

void Run() {
  Bytes seeds(32 * kItems);
  randombytes_buf(seeds.data(), seeds.size());
  MakeSecret(seeds);
  const Results expected = OneByOne(seeds);
  std::printf("one by one\n");
  const auto check = [&](const char* name, const Kernel* kernel) {
    SHOAL_CHECK(InBatch(*kernel, seeds) == expected);
    std::printf("%s\n", name);
  };
  check("portable", PortableKernel());
  if (!IsSupported(InstructionSet::kAvx2)) return;
  check("avx2", Avx2Kernel());
  check("sixteen lanes on avx2", testing::WideKernel());
}

int Leak() {
  Bytes secret(1);
  MakeSecret(secret);
  if (secret[0] != 0) std::printf("leaked\n");
  return 0;
}

}  // namespace
}  // namespace shoal::sharing

int main(int argc, char** argv) {
  using namespace shoal::sharing;  // NOLINT: a program of one page
  SHOAL_CHECK(sodium_init() >= 0);
  if (argc > 1 && std::strcmp(argv[1], "--leak") == 0) return Leak();
  Run();
  return 0;
}
