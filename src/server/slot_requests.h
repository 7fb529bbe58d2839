// Requests of clients that name slots, and the answers that they get.
#ifndef SHOAL_SRC_SERVER_SLOT_REQUESTS_H_
#define SHOAL_SRC_SERVER_SLOT_REQUESTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/sharing/sharing.h"
#include "src/storage/spool.h"

namespace shoal::server {

struct SlotRequest {
  std::vector<uint32_t> slots;
  std::vector<sharing::Token> tokens;
};

// INVALID_ARGUMENT unless the two are arrays of one length.
absl::StatusOr<SlotRequest> ParseSlots(absl::string_view slots, absl::string_view tokens);
// INVALID_ARGUMENT unless it is an array of slots.
absl::StatusOr<std::vector<uint32_t>> ParseSlotNumbers(absl::string_view slots);
// INVALID_ARGUMENT if a slot is named twice.
absl::Status CheckDistinct(std::vector<uint32_t> slots);

// INVALID_ARGUMENT for more than 2 MiB of answers in one response, unless it is one answer.
// `answer_bytes`: what a client fetches for a slot.
absl::Status CheckFetch(uint64_t answers, uint64_t answer_bytes);
// The answers with these numbers, in this order: of each what all the spools have of it, one after
// the other. A spool has tagged_bytes of every answer. Reads once for each run of adjacent ones, as
// a client's slots mostly are adjacent. Errors of the spools.
absl::StatusOr<std::string> ReadAnswers(std::span<const Spool* const> spools,
                                        std::span<const uint64_t> numbers, uint64_t tagged_bytes);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_SLOT_REQUESTS_H_
