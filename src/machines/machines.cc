#include "src/machines/machines.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/machines/chunk_seal.h"

namespace shoal::machines {
namespace {

constexpr size_t kChunkBytes = Transport::kMaxChunkBytes - ChunkSeal::kTagBytes;  // unsealed
// A transfer is the content's length, the content, and zeros up to the bound.
constexpr size_t kLengthBytes = 8;

Seed KeyFrom(Digest digest) {
  Seed key(digest);
  sodium_memzero(digest.data(), digest.size());
  return key;
}

}  // namespace

Seed RoundKey(BytesView party_secret, const Digest& round_id, const Digest& job) {
  return KeyFrom(
      Transcript("shoal machines round v1", party_secret).Blob(round_id).Blob(job).Finish());
}

// One transfer to another machine, chunk by chunk.
class Machines::Sending {
 public:
  Sending(uint32_t to, const Outgoing& outgoing, BytesView key)
      : to_(to),
        source_(outgoing.source),
        left_bytes_(kLengthBytes + outgoing.most_bytes),
        seal_(key) {}

  bool done() const { return left_bytes_ == 0 && !waiting_; }

  // Sends a chunk if there is room; whether it was sent.
  absl::StatusOr<bool> Step(Transport& transport) {
    if (!waiting_) SHOAL_RETURN_IF_ERROR(MakeChunk());
    SHOAL_ASSIGN_OR_RETURN(const bool sent, transport.TrySend(to_, sealed_));
    waiting_ = !sent;
    return sent;
  }

 private:
  absl::Status MakeChunk() {
    const size_t bytes = std::min<uint64_t>(kChunkBytes, left_bytes_);
    plain_.assign(bytes, 0);
    size_t at = 0;
    if (!begun_) {
      StoreLe(plain_.data(), source_ == nullptr ? uint64_t{0} : source_->size());
      at = kLengthBytes;
      begun_ = true;
    }
    while (at < bytes && source_ != nullptr) {
      if (piece_.empty()) {
        SHOAL_ASSIGN_OR_RETURN(piece_, source_->Next());
        if (piece_.empty()) source_ = nullptr;
      }
      const size_t now = std::min(piece_.size(), bytes - at);
      std::copy_n(piece_.begin(), now, plain_.begin() + static_cast<ptrdiff_t>(at));
      piece_ = piece_.subspan(now);
      at += now;
    }
    sealed_.resize(bytes + ChunkSeal::kTagBytes);
    seal_.Seal(plain_, sealed_);
    left_bytes_ -= bytes;
    waiting_ = true;
    return absl::OkStatus();
  }

  const uint32_t to_;
  ByteSource* source_;
  BytesView piece_;  // what is left of the source's last one
  bool begun_ = false;
  uint64_t left_bytes_;  // of the transfer, not sealed yet
  ChunkSeal seal_;
  SecretVector<uint8_t> plain_;
  Bytes sealed_;
  bool waiting_ = false;  // whether sealed_ is still to be sent
};

// One transfer from another machine.
class Machines::Receiving {
 public:
  Receiving(uint32_t from, uint64_t most_bytes, BytesView key)
      : from_(from), most_bytes_(most_bytes), left_bytes_(kLengthBytes + most_bytes), seal_(key) {}

  bool done() const { return left_bytes_ == 0; }

  // Takes a chunk if one has come; whether one had.
  absl::StatusOr<bool> Step(Transport& transport, const Sink& sink) {
    SHOAL_ASSIGN_OR_RETURN(const std::optional<Bytes> sealed, transport.TryReceive(from_));
    if (!sealed.has_value()) return false;
    const size_t bytes = std::min<uint64_t>(kChunkBytes, left_bytes_);
    if (sealed->size() != bytes + ChunkSeal::kTagBytes) return Spoiled("has a wrong length");
    plain_.resize(bytes);
    if (!seal_.Open(*sealed, plain_)) return Spoiled("does not open");
    left_bytes_ -= bytes;
    BytesView content = plain_;
    if (!begun_) {
      begun_ = true;
      content_bytes_ = LoadLe<uint64_t>(plain_.data());
      if (content_bytes_ > most_bytes_) return Spoiled("says that more comes than may");
      content = content.subspan(kLengthBytes);
    }
    content = content.first(std::min<uint64_t>(content.size(), content_bytes_));
    content_bytes_ -= content.size();
    if (!content.empty()) SHOAL_RETURN_IF_ERROR(sink(from_, content));
    return true;
  }

 private:
  absl::Status Spoiled(absl::string_view how) const {
    return absl::DataLossError(absl::StrCat("a chunk from machine ", from_, " ", how));
  }

  const uint32_t from_;
  const uint64_t most_bytes_;
  bool begun_ = false;
  uint64_t left_bytes_;         // of the transfer, still to come
  uint64_t content_bytes_ = 0;  // the same of the content
  ChunkSeal seal_;
  SecretVector<uint8_t> plain_;
};

Machines::Machines(Transport* transport, Seed round_key, const Clock* clock, Options options)
    : transport_(transport), round_key_(std::move(round_key)), clock_(clock), options_(options) {
  SHOAL_CHECK(transport_->rank() < transport_->count());
}

Machines& Machines::Alone() {
  static Machines alone;
  return alone;
}

Seed Machines::TransferKey(absl::string_view stage, uint32_t from, uint32_t to) const {
  return KeyFrom(Transcript("shoal machines transfer v1", round_key_.view())
                     .U64(exchanges_)
                     .Blob(stage)
                     .U64(from)
                     .U64(to)
                     .Finish());
}

absl::Status Machines::Exchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                                std::span<const uint64_t> most_from, const Sink& sink) {
  SHOAL_CHECK(outgoing.size() == count() && most_from.size() == count());
  if (count() == 1) return absl::OkStatus();
  if (ended_) return absl::UnavailableError("the party's machines have given up");
  const absl::Status status = TryExchange(stage, outgoing, most_from, sink);
  if (!status.ok()) GiveUp();
  return Annotate(status, stage);
}

absl::Status Machines::TryExchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                                   std::span<const uint64_t> most_from, const Sink& sink) {
  for (uint32_t i = 0; i < count(); ++i) {
    const uint64_t bytes = outgoing[i].source == nullptr ? 0 : outgoing[i].source->size();
    if (i == rank() || bytes <= outgoing[i].most_bytes) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        bytes, " bytes for machine ", i, ", where at most ", outgoing[i].most_bytes, " may go"));
  }
  ++exchanges_;
  std::vector<Sending> sending;
  std::vector<Receiving> receiving;
  // Each machine begins with the one after it, so that not all send to the same one.
  for (uint32_t k = 1; k < count(); ++k) {
    const uint32_t to = (rank() + k) % count(), from = (rank() + count() - k) % count();
    sending.emplace_back(to, outgoing[to], TransferKey(stage, rank(), to).view());
    receiving.emplace_back(from, most_from[from], TransferKey(stage, from, rank()).view());
  }
  uint64_t progress_s = clock_->SteadySeconds();
  for (;;) {
    bool done = true, progress = false;
    for (Sending& transfer : sending) {
      if (transfer.done()) continue;
      SHOAL_ASSIGN_OR_RETURN(const bool sent, transfer.Step(*transport_));
      progress |= sent;
      done &= transfer.done();
    }
    for (Receiving& transfer : receiving) {
      if (transfer.done()) continue;
      SHOAL_ASSIGN_OR_RETURN(const bool came, transfer.Step(*transport_, sink));
      progress |= came;
      done &= transfer.done();
    }
    if (done) return absl::OkStatus();
    if (progress) {
      progress_s = clock_->SteadySeconds();
      continue;
    }
    if (clock_->SteadySeconds() - progress_s > options_.progress_limit_s) {
      return absl::DeadlineExceededError(
          absl::StrCat("nothing was sent and nothing came for ", options_.progress_limit_s, " s"));
    }
    transport_->Wait();
  }
}

absl::StatusOr<std::vector<SecretVector<uint8_t>>> Machines::Gather(absl::string_view stage,
                                                                    BytesView mine,
                                                                    uint64_t most_bytes) {
  std::vector<SecretVector<uint8_t>> all(count());
  all[rank()].assign(mine.begin(), mine.end());
  std::vector<BytesSource> sources;
  std::vector<Outgoing> outgoing;
  sources.reserve(count());
  for (uint32_t i = 0; i < count(); ++i) {
    sources.emplace_back(Bytes(mine.begin(), mine.end()));
    outgoing.push_back({&sources[i], most_bytes});
  }
  SHOAL_RETURN_IF_ERROR(Exchange(stage, outgoing, std::vector<uint64_t>(count(), most_bytes),
                                 [&](uint32_t from, BytesView piece) {
                                   all[from].insert(all[from].end(), piece.begin(), piece.end());
                                   return absl::OkStatus();
                                 }));
  return all;
}

void Machines::GiveUp() {
  if (ended_ || transport_ == nullptr) return;
  ended_ = true;
  transport_->Abort();
}

}  // namespace shoal::machines
