#include "src/sim/sim_calls.h"

#include <chrono>
#include <memory>
#include <utility>

#include "src/base/byte_source.h"
#include "src/base/status_macros.h"

namespace shoal::sim {
namespace {

// Bulk that ended too early: as a connection that breaks.
class CutSource final : public ByteSource {
 public:
  CutSource(Bytes bytes, uint64_t size) : bytes_(std::move(bytes)), size_(size) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<BytesView> Next() override {
    if (given_ || bytes_.empty()) return absl::UnavailableError("the connection broke");
    given_ = true;
    return BytesView(bytes_);
  }

 private:
  const Bytes bytes_;
  const uint64_t size_;
  bool given_ = false;
};

}  // namespace

absl::StatusOr<shoald::PeerAnswer> SimCalls::Call(shoald::PeerCall call) {
  // A connection takes the bytes of a list as they are made; here all are made first.
  if (call.bulk != nullptr) SHOAL_RETURN_IF_ERROR(network_->Drain(*call.bulk, call.request.bulk));
  SHOAL_ASSIGN_OR_RETURN(
      Network::Answer answer,
      network_->Call(from_, MachineAddress(PartyAt(from_) + 1, call.machine),
                     std::move(call.request), std::chrono::nanoseconds(call.limit).count(),
                     call.cancelled));
  SHOAL_RETURN_IF_ERROR(wire::CheckLimits(
      wire::HeaderOf(answer.frame),
      {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = call.answer_bulk_bytes}));
  Bytes bulk = std::exchange(answer.frame.bulk, {});
  std::unique_ptr<ByteSource> source;
  if (answer.cut) {
    source = std::make_unique<CutSource>(std::move(bulk), call.answer_bulk_bytes);
  } else {
    source = std::make_unique<BytesSource>(std::move(bulk));
  }
  return shoald::PeerAnswer{.frame = std::move(answer.frame), .bulk = std::move(source)};
}

}  // namespace shoal::sim
