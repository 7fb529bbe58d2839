#include "src/server/slot_requests.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/status_macros.h"
#include "src/wire/frame.h"

namespace shoal::server {
namespace {

// Answers in one response; the whole message has at most wire::kMaxClientControlBytes.
constexpr uint64_t kMaxFetchBytes = 2 << 20;
static_assert(kMaxFetchBytes + 1024 <= wire::kMaxClientControlBytes);

}  // namespace

absl::StatusOr<SlotRequest> ParseSlots(absl::string_view slots, absl::string_view tokens) {
  const size_t count = slots.size() / 4;
  if (slots.size() % 4 != 0 || tokens.size() != count * sharing::kTokenBytes) {
    return absl::InvalidArgumentError("slots and tokens are arrays of different lengths");
  }
  SlotRequest request;
  SHOAL_ASSIGN_OR_RETURN(request.slots, ParseSlotNumbers(slots));
  request.tokens.resize(count);
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(i * sharing::kTokenBytes),
                sharing::kTokenBytes, request.tokens[i].begin());
  }
  return request;
}

absl::StatusOr<std::vector<uint32_t>> ParseSlotNumbers(absl::string_view slots) {
  if (slots.size() % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(slots.size(), " bytes are no array of slots, which have 4 bytes each"));
  }
  std::vector<uint32_t> numbers(slots.size() / 4);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = LoadLe<uint32_t>(AsBytes(slots).data() + 4 * i);
  }
  return numbers;
}

absl::Status CheckDistinct(std::vector<uint32_t> slots) {
  std::ranges::sort(slots);
  const auto twice = std::ranges::adjacent_find(slots);
  if (twice == slots.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("slot ", *twice, " is named twice"));
}

absl::Status CheckFetch(uint64_t answers, uint64_t answer_bytes) {
  // One answer is always allowed: rows have up to 1 MiB, and a response may have 4 MiB.
  const uint64_t most = std::max<uint64_t>(1, kMaxFetchBytes / answer_bytes);
  if (answers <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(answers, " answers of ", answer_bytes, " bytes in one request; at most ", most));
}

absl::StatusOr<std::string> ReadAnswers(std::span<const Spool* const> spools,
                                        std::span<const uint64_t> numbers, uint64_t tagged_bytes) {
  const uint64_t each = spools.size() * tagged_bytes;
  std::string answers(numbers.size() * each, 0);
  auto* const out = reinterpret_cast<uint8_t*>(answers.data());
  Bytes run;
  for (size_t i = 0; i < numbers.size();) {
    size_t n = 1;
    while (i + n < numbers.size() && numbers[i + n] == numbers[i] + n) ++n;
    const uint64_t first = numbers[i] * tagged_bytes;
    if (spools.size() == 1) {
      SHOAL_RETURN_IF_ERROR(spools[0]->Read(first, {out + i * each, n * each}));
    } else {
      run.resize(n * tagged_bytes);
      for (size_t s = 0; s < spools.size(); ++s) {
        SHOAL_RETURN_IF_ERROR(spools[s]->Read(first, run));
        for (size_t k = 0; k < n; ++k) {
          std::copy_n(run.data() + k * tagged_bytes, tagged_bytes,
                      out + (i + k) * each + s * tagged_bytes);
        }
      }
    }
    i += n;
  }
  return answers;
}

}  // namespace shoal::server
