#include "src/sharing/batch.h"

#include <algorithm>

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

}  // namespace

void AdvanceTallies(const uint8_t* seeds, std::span<const uint32_t> positions,
                    const Digest& round_id, std::span<uint32_t> tallies) {
  SHOAL_CHECK(tallies.size() == positions.size());
  ActiveKernel().advance_tallies(seeds, positions.data(), positions.size(), round_id.data(),
                                 tallies.data());
}

void XorMasks(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
              size_t answer_bytes, MutableBytes answers) {
  SHOAL_CHECK(answers.size() == positions.size() * answer_bytes);
  ActiveKernel().xor_masks(seeds, positions.data(), positions.size(), round_id.data(),
                           answer_bytes, answers.data());
}

void ExpandTokens(const uint8_t* seeds, std::span<const uint32_t> positions,
                  const Digest& round_id, std::span<Token> tokens) {
  SHOAL_CHECK(tokens.size() == positions.size());
  ActiveKernel().expand_tokens(seeds, positions.data(), positions.size(), round_id.data(),
                               reinterpret_cast<uint8_t*>(tokens.data()));
}

size_t FirstWrongToken(const uint8_t* seeds, std::span<const uint32_t> positions,
                       const Digest& round_id, std::span<const Token> tokens) {
  SHOAL_CHECK(tokens.size() == positions.size());
  return ActiveKernel().first_wrong_token(seeds, positions.data(), positions.size(),
                                          round_id.data(),
                                          reinterpret_cast<const uint8_t*>(tokens.data()));
}

void FirstTallies(BytesView seeds, size_t parties, const Digest& round_id,
                  std::span<const uint32_t> queries, std::span<uint32_t> tallies) {
  SHOAL_CHECK(tallies.size() == queries.size());
  SHOAL_CHECK(seeds.size() == 32 * parties * queries.size());
  SHOAL_CHECK(std::all_of(queries.begin(), queries.end(),
                          [](uint32_t query) { return query < kModulus; }));
  ActiveKernel().first_tallies(seeds.data(), parties, queries.size(), round_id.data(),
                               queries.data(), tallies.data());
}

}  // namespace shoal::sharing
