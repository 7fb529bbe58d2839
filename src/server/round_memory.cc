#include "src/server/round_memory.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/select/select.h"
#include "src/sharing/sharing.h"
#include "src/shuffle/scatter.h"
#include "src/storage/arena.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

// For a position: seed, validity and fingerprint while its layer is opened; then seed, share and
// target. For a query that came in: position and tally. For a place in the permutation: its bucket,
// the place in the bucket, the place.
constexpr uint64_t kIntakeBytes = 32 + 1 + 16, kRestBytes = 32 + 8 + 4, kQueryBytes = 4 + 4;
constexpr uint64_t kPlaceBytes = 2 + 4 + 4;
constexpr uint64_t kNoiseBytes = 8;  // position and tally
// For a query that goes to another machine: place and tally, and its number.
constexpr uint64_t kRouteBytes = 4 + 4 + 4;

// In a half a position has no share.
constexpr uint64_t kHalfRestBytes = 32 + 4;
// At the tail of a half, of a query beside its selection: bucket, whether its tag is wrong, and
// what it is for the scan.
constexpr uint64_t kAskedBytes = 4 + 1 + sizeof(select::BucketQuery);

uint64_t TaggedBytes(const RoundSize& size) { return sharing::TaggedBytes(size.answer_bytes); }

// Hands out memory, list after list.
class Division {
 public:
  explicit Division(uint64_t free_bytes) : free_(free_bytes) {}

  ListMemory Always(uint64_t bytes, uint64_t room = 0) {
    if (room > bytes && Leaves(room, 2 * room)) return Take(bytes, room);
    return Leaves(bytes, 0) ? Take(bytes, bytes) : ListMemory{bytes, 0};
  }
  ListMemory IfPlentiful(uint64_t bytes) {
    return Leaves(bytes, bytes) ? Take(bytes, bytes) : ListMemory{bytes, 0};
  }

 private:
  bool Leaves(uint64_t taken, uint64_t rest) const {
    return taken <= free_ && rest <= free_ - taken;
  }
  ListMemory Take(uint64_t bytes, uint64_t memory) {
    free_ -= memory;
    return {bytes, memory};
  }
  uint64_t free_;
};

// What goes on as a batch, and for its digest the used positions, encoded as the whole batch's are
// (CommitQueries).
uint64_t BatchBytes(const RoundSize& size) {
  if (!size.batch) return 0;
  const auto next = static_cast<uint32_t>(size.next_positions());
  return kQueryBytes * next + wire::MaxQueryBatchBytes(next) - uint64_t{4} * next;
}

// Of a half's online stage, beside the memory in which queries are put in order: the batch that
// came and what is made of it.
uint64_t HalfOnlineBytes(const RoundSize& size) {
  const uint64_t came = (4 + size.part_bytes) * size.positions;
  if (size.inner_bytes > 0) {  // the head
    return came + (size.forwarded_bytes + 1) * size.positions +
           wire::MaxRecordBatchBytes(static_cast<uint32_t>(size.next_positions()),
                                     size.forwarded_bytes);
  }
  return came + (kAskedBytes + size.selection_bytes) * size.positions +
         sizeof(select::Rows) * size.buckets + select::ScheduleBytes(size.buckets, size.positions);
}

// A bucket, as read and in order, of each list of answers that lies in a file and goes to another
// machine (AnswerIntake).
uint64_t BucketBytes(const RoundSize& size, const RoundMemory& memory) {
  if (size.others == 0 || memory.returned.memory > 0) return 0;
  return 2 * std::min(shuffle::Scatter::kBucketBytes,
                      shuffle::Scatter::MemoryBytes(size.others, TaggedBytes(size)));
}

}  // namespace

RoundSize SizeOf(const RoundContext& context, uint64_t positions, uint64_t noise,
                 const Resources& resources) {
  RoundSize size = {.positions = positions,
                    .noise = context.is_backend() ? 0 : noise,
                    .inner_bytes = context.inner_bytes(),
                    .answer_bytes = context.answer_bytes,
                    .batch = !context.is_backend() && context.sends_batch(resources)};
  if (context.half.has_value()) {
    const size_t v_bytes = context.half->forwarded_bytes();
    size.part_bytes = context.is_backend() ? v_bytes : context.half->part_bytes();
    size.forwarded_bytes = context.is_backend() ? 0 : v_bytes;
    size.selection_bytes = context.half->selection_bytes();
    size.buckets = context.half->buckets.count();
  }
  return size;
}

uint64_t ExpectedNoise(const RoundContext& context) {
  return static_cast<uint64_t>(
      std::llround(context.noise.mean() * static_cast<double>(context.max_rows)));
}

RoundMemory DivideMemory(const RoundSize& size, uint64_t free_bytes) {
  const ListMemory opened = Division(free_bytes).Always(size.positions * size.inner_bytes);
  return DivideLater(size, opened, free_bytes - opened.memory);
}

RoundMemory DivideLater(const RoundSize& size, const ListMemory& opened, uint64_t free_bytes) {
  Division division(free_bytes);
  // Calibration makes up rounds whose answers have no bytes, to measure what is not theirs.
  const uint64_t pads = size.answer_bytes == 0 || size.half()
                            ? 0
                            : size.positions * sharing::PadBytes(size.answer_bytes);
  RoundMemory memory;
  memory.opened = opened;
  memory.pads = division.IfPlentiful(pads);
  if (size.inner_bytes == 0) {
    if (size.half()) memory.returned = division.Always(ReturnedBytes(size));
    return memory;
  }
  memory.forward = division.IfPlentiful(size.next_positions() * kForwardPositionBytes);
  memory.ordered = division.Always(
      shuffle::Scatter::MemoryBytes(size.next_positions(), size.inner_bytes), ReturnedBytes(size));
  Division online(opened.memory + free_bytes - memory.pads.memory - memory.forward.memory);
  memory.returned = online.Always(ReturnedBytes(size));
  return memory;
}

uint64_t RestArrayBytes(const RoundSize& size) {
  if (size.half()) {
    return kHalfRestBytes * size.positions + (kNoiseBytes + size.forwarded_bytes) * size.noise;
  }
  return kRestBytes * size.positions + kNoiseBytes * size.noise;
}

uint64_t PeakArrayBytes(const RoundSize& size, const RoundMemory& memory) {
  const uint64_t next = size.next_positions();
  const uint64_t message = next == 0 ? 0 : wire::MaxQueryBatchBytes(static_cast<uint32_t>(next));
  const uint64_t offline = kIntakeBytes * size.positions + kPlaceBytes * next;
  const uint64_t forward = memory.forward.memory > 0 ? 0 : next * kForwardPositionBytes;
  if (size.half()) return RestArrayBytes(size) + std::max(offline, HalfOnlineBytes(size) + forward);
  const uint64_t online = kQueryBytes * size.positions + kRouteBytes * size.others + forward +
                          message + BatchBytes(size) + BucketBytes(size, memory);
  return RestArrayBytes(size) + std::max(offline, online);
}

uint64_t ReturnedBytes(const RoundSize& size) {
  if (size.half() && size.inner_bytes == 0) return size.positions * TaggedBytes(size);
  return shuffle::Scatter::MemoryBytes(size.next_positions() + size.others, TaggedBytes(size));
}

absl::Status CheckEmptyRound(std::span<const RoundContext> parts, const Resources& resources) {
  // The reservations are only a test. Memory is reserved again when the number of onions is known.
  std::vector<std::shared_ptr<Arena>> reserved;
  for (const RoundContext& context : parts) {
    const uint64_t noise = ExpectedNoise(context);
    const RoundSize size = SizeOf(context, (context.party.value() - 1) * noise, noise, resources);
    const RoundMemory memory = DivideMemory(size, resources.spools->free_bytes());
    SHOAL_ASSIGN_OR_RETURN(
        reserved.emplace_back(),
        Arena::Reserve(
            resources.spools, memory.lists(), PeakArrayBytes(size, memory),
            absl::StrCat("party ", context.party.value(), ": the noise alone of a round")));
  }
  return absl::OkStatus();
}

}  // namespace shoal::server
