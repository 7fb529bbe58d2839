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

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/query_buckets.h"
#include "src/base/testing/constant_time.h"
#include "src/sharing/halves.h"
#include "src/sharing/kernel.h"
#include "src/sharing/sharing.h"
#include "src/sharing/testing/kernel_wide.h"
#include "valgrind/memcheck.h"

namespace shoal::sharing {
namespace {

constexpr size_t kItems = 37;  // whole vectors, and a remainder
constexpr size_t kAnswerBytes = 1072, kTagged = TaggedBytes(kAnswerBytes);
constexpr Digest kRoundId = {1, 2, 3};

using shoal::testing::MakePublic;
using shoal::testing::MakeSecret;

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
  kernel.xor_masks(seeds.data(), positions.data(), kItems, nonce, 1, kAnswerBytes, kTagged,
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

// Two tiers, from end to end: a client's seeds and rows, and what it makes of them, are secret to
// whoever watches its time, and at the parties their seeds, buckets and selections.
void RunHalves() {
  const QueryBuckets buckets(1000, 13);
  const size_t s = buckets.selection_bytes();
  const HalfIds ids(kRoundId);
  Bytes seeds(32 * kSeedsPerQuery * kItems);
  randombytes_buf(seeds.data(), seeds.size());
  MakeSecret(seeds);
  std::vector<uint32_t> rows(kItems, 998), positions(kItems);
  for (size_t i = 0; i < kItems; ++i) positions[i] = static_cast<uint32_t>(kSeedsPerQuery * i);
  MakeSecret(rows);
  Bytes parts(kItems * PartsBytes(s)), wrong(kItems), answers(2 * kItems * kTagged);
  MakeParts(seeds, ids, buckets, rows, parts);
  const auto seed_of = [&](QuerySeed which) {
    return seeds.data() + 32 * static_cast<size_t>(which);
  };
  for (const Half half : {Half::kA, Half::kB}) {
    const bool a = half == Half::kA;
    Bytes part_b, forwarded(kItems * ForwardedBytes(half, s)), selections(kItems * s);
    for (size_t i = 0; i < kItems; ++i) {
      Append(part_b, BytesView(parts).subspan(i * PartsBytes(s) + PartBytes(Half::kA, s),
                                              PartBytes(Half::kB, s)));
    }
    OpenParts(seed_of(a ? QuerySeed::kHeadA : QuerySeed::kHeadB), positions, ids, half, s,
              a ? parts : part_b, forwarded, wrong);
    std::vector<uint32_t> asked(kItems);
    const uint8_t* const tail = seed_of(a ? QuerySeed::kTailA : QuerySeed::kTailB);
    OpenForwarded(tail, positions, ids, half, buckets, forwarded, asked, selections, wrong);
    MakeForwarded(tail, positions, ids, half, s, asked, a ? BytesView(selections) : BytesView(),
                  forwarded);
    Bytes masked(kItems * kTagged);
    MaskHalf(tail, positions, ids, half, Role::kTail, s, kAnswerBytes, masked);
    MaskHalf(seed_of(a ? QuerySeed::kHeadA : QuerySeed::kHeadB), positions, ids, half, Role::kHead,
             s, kAnswerBytes, masked);
    for (size_t i = 0; i < kItems; ++i) {
      std::memcpy(answers.data() + (2 * i + (a ? 0 : 1)) * kTagged, masked.data() + i * kTagged,
                  kTagged);
    }
    MakePublic(wrong);
    SHOAL_CHECK(wrong == Bytes(kItems));
    MakePublic(asked);
    SHOAL_CHECK(asked == std::vector<uint32_t>(kItems, 998 % 13));
  }
  Bytes records(kItems * kAnswerBytes);
  UnmaskHalves(seeds, ids, s, kAnswerBytes, answers, records);
  MakePublic(records);
  // Both results were zeros, and so is their XOR.
  SHOAL_CHECK(records == Bytes(kItems * kAnswerBytes));
  std::printf("two tiers, %s\n", std::string(NameOf(ActiveInstructionSet())).c_str());
}

void RunHalvesOnEachSet() {
  for (const InstructionSet set : {InstructionSet::kPortable, InstructionSet::kAvx2}) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    RunHalves();
  }
}

}  // namespace
}  // namespace shoal::sharing

int main(int argc, char** argv) {
  return shoal::testing::ConstantTimeMain(argc, argv, [] {
    shoal::sharing::Run();
    shoal::sharing::RunHalvesOnEachSet();
  });
}
