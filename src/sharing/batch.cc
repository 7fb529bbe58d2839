#include "src/sharing/batch.h"

#include <algorithm>
#include <cstddef>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/sharing/kernel.h"

namespace shoal::sharing {
namespace {

const Kernel& ActiveKernel() {
  switch (ActiveInstructionSet()) {
    case InstructionSet::kAvx512:
      return *Avx512Kernel();
    case InstructionSet::kAvx2:
      return *Avx2Kernel();
    case InstructionSet::kPortable:
      break;
  }
  return *PortableKernel();
}

// Calls one of the active kernel's functions, and wipes what it leaves on the stack.
template <typename... Parameters, typename... Arguments>
void Run(void (*Kernel::*function)(Parameters...), Arguments... arguments) {
  (ActiveKernel().*function)(arguments...);
  sodium_stackzero(kKernelStackBytes);
}

}  // namespace

void ExpandShares(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                  std::span<QueryShare> shares) {
  SHOAL_CHECK(shares.size() == positions.size());
  static_assert(sizeof(QueryShare) == 8 && offsetof(QueryShare, x) == 0 &&
                offsetof(QueryShare, y) == 4);
  Run(&Kernel::expand_shares, seeds, positions.data(), positions.size(), round_id.data(),
      reinterpret_cast<uint32_t*>(shares.data()));
}

void XorMasks(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
              size_t answer_bytes, MutableBytes answers) {
  SHOAL_CHECK(answers.size() == positions.size() * answer_bytes);
  Run(&Kernel::xor_masks, seeds, positions.data(), positions.size(), round_id.data(), answer_bytes,
      answers.data());
}

void ExpandTokens(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                  std::span<Token> tokens) {
  SHOAL_CHECK(tokens.size() == positions.size());
  Run(&Kernel::expand_tokens, seeds, positions.data(), positions.size(), round_id.data(),
      reinterpret_cast<uint8_t*>(tokens.data()));
}

size_t FirstWrongToken(const uint8_t* seeds, std::span<const uint32_t> positions,
                       const Digest& round_id, std::span<const Token> tokens) {
  SHOAL_CHECK(tokens.size() == positions.size());
  // Which tokens are wrong is not secret. The kernel does not branch on it; the code below does.
  constexpr size_t kAtOnce = 256;
  uint8_t wrong[kAtOnce];
  for (size_t at = 0; at < tokens.size(); at += kAtOnce) {
    const size_t n = std::min(kAtOnce, tokens.size() - at);
    Run(&Kernel::compare_tokens, seeds, positions.data() + at, n, round_id.data(),
        tokens[at].data(), wrong);
    const uint8_t* const first = std::find(wrong, wrong + n, 1);
    if (first != wrong + n) return at + static_cast<size_t>(first - wrong);
  }
  return tokens.size();
}

void FirstTallies(BytesView seeds, size_t parties, const Digest& round_id,
                  std::span<const uint32_t> queries, std::span<uint32_t> tallies) {
  SHOAL_CHECK(tallies.size() == queries.size());
  SHOAL_CHECK(seeds.size() == 32 * parties * queries.size());
  SHOAL_CHECK(
      std::all_of(queries.begin(), queries.end(), [](uint32_t query) { return query < kModulus; }));
  Run(&Kernel::first_tallies, seeds.data(), parties, queries.size(), round_id.data(),
      queries.data(), tallies.data());
}

}  // namespace shoal::sharing
