#include "src/machines/machines.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/machines/sign_of_life.h"

namespace shoal::machines {
namespace {

constexpr size_t kChunkBytes = Transport::kMaxChunkBytes - ChunkSeal::kTagBytes;  // unsealed
// A transfer is the content's length, the content, and zeros up to the bound.
constexpr size_t kLengthBytes = 8;
// A greeting is random bytes, their MAC, and the name of the secret.
constexpr size_t kRandomBytes = 32, kMacEnd = kRandomBytes + sizeof(Digest);
constexpr size_t kGreetingBytes = kMacEnd + sizeof(uint64_t);

Seed KeyFrom(Digest digest) {
  Seed key(digest);
  sodium_memzero(digest.data(), digest.size());
  return key;
}

// Machines of one party are of one version, which the domain is bound to.
constexpr absl::string_view kGreetingDomain = "shoal machines greeting v2";
constexpr absl::string_view kGreetingDomainOf02 = "shoal machines greeting v1";

// Round and job are in the key.
Bytes Greeting(absl::string_view domain, BytesView round_key, uint32_t rank, uint32_t count,
               BytesView random, uint64_t secret_name) {
  Bytes greeting(random.begin(), random.end());
  Append(greeting, Transcript(domain, round_key).U64(rank).U64(count).Blob(random).Finish());
  AppendLe(greeting, secret_name);
  return greeting;
}

// Of two greetings of equal length that are not equal: whether they come of different secrets. A
// byte that was altered on its way changes either the name or what the MAC is about.
bool OfAnotherSecret(BytesView came, BytesView expected) {
  const auto differ = [&](size_t from, size_t end) {
    return !std::ranges::equal(came.subspan(from, end - from), expected.subspan(from, end - from));
  };
  return differ(kMacEnd, kGreetingBytes) && differ(kRandomBytes, kMacEnd);
}

}  // namespace

Seed RoundKey(BytesView party_secret, const Digest& round_id, const Digest& job) {
  return KeyFrom(
      Transcript("shoal machines round v1", party_secret).Blob(round_id).Blob(job).Finish());
}

uint64_t SecretName(BytesView party_secret) {
  return LoadLe<uint64_t>(
      Transcript("shoal machines secret name v1", party_secret).Finish().data());
}

// One direction of one link in one call.
struct Machines::Transfer {
  uint32_t other;
  bool incoming;
  std::function<absl::StatusOr<Moved>()> step;
  bool done = false;
  // How long the call had waited when a chunk passed last, or the other machine was excused.
  uint64_t moved_ms = 0;
  uint64_t sign = 0;  // the last one of the other machine that was looked at
};

// One transfer to another machine, chunk by chunk.
class Machines::Sending {
 public:
  // `seal` has the transfer's key.
  Sending(uint32_t to, const Outgoing& outgoing, ChunkSeal& seal)
      : to_(to),
        source_(outgoing.source),
        owed_bytes_(source_ == nullptr ? 0 : source_->size()),
        left_bytes_(kLengthBytes + outgoing.most_bytes),
        seal_(&seal) {}

  // Sends a chunk if there is room.
  absl::StatusOr<Moved> Step(Transport& transport) {
    if (!waiting_) SHOAL_RETURN_IF_ERROR(MakeChunk());
    SHOAL_ASSIGN_OR_RETURN(const bool sent, transport.TrySend(to_, sealed_));
    waiting_ = !sent;
    if (!sent) return Moved::kNothing;
    return left_bytes_ == 0 ? Moved::kLastChunk : Moved::kChunk;
  }

 private:
  absl::Status MakeChunk() {
    const size_t bytes = std::min<uint64_t>(kChunkBytes, left_bytes_);
    sealed_.resize(bytes + ChunkSeal::kTagBytes);
    seal_->BeginChunk(sealed_);
    size_t at = 0;
    if (!begun_) {
      SecretArray<kLengthBytes> length;
      StoreLe(length.data(), owed_bytes_);
      seal_->Add(length.view());
      at = kLengthBytes;
      begun_ = true;
    }
    while (at < bytes && source_ != nullptr) {
      if (piece_.empty()) SHOAL_RETURN_IF_ERROR(TakePiece());
      const size_t now = std::min(piece_.size(), bytes - at);
      seal_->Add(piece_.first(now));
      piece_ = piece_.subspan(now);
      at += now;
    }
    static constexpr std::array<uint8_t, 4096> kZeros = {};
    for (; at < bytes; at += std::min(kZeros.size(), bytes - at)) {
      seal_->Add(BytesView(kZeros).first(std::min(kZeros.size(), bytes - at)));
    }
    seal_->EndChunk();
    left_bytes_ -= bytes;
    // A source that fills its bound has not been asked whether it has more.
    if (left_bytes_ == 0 && source_ != nullptr && piece_.empty()) {
      SHOAL_RETURN_IF_ERROR(TakePiece());
    }
    waiting_ = true;
    return absl::OkStatus();
  }

  // How long contents are is secret: messages have no numbers.
  absl::Status TakePiece() {
    SHOAL_ASSIGN_OR_RETURN(piece_, source_->Next());
    if (piece_.size() > owed_bytes_) return absl::InternalError("a source gave more than its size");
    if (piece_.empty() && owed_bytes_ > 0) return absl::InternalError("a source ended early");
    owed_bytes_ -= piece_.size();
    if (piece_.empty()) source_ = nullptr;
    return absl::OkStatus();
  }

  const uint32_t to_;
  ByteSource* source_;   // null once it has ended
  uint64_t owed_bytes_;  // that the source has still to give
  BytesView piece_;      // what is left of the source's last one
  bool begun_ = false;
  uint64_t left_bytes_;  // of the transfer, not sealed yet
  ChunkSeal* seal_;
  Bytes sealed_;
  bool waiting_ = false;  // whether sealed_ is still to be sent
};

// One transfer from another machine.
class Machines::Receiving {
 public:
  // `seal` has the transfer's key. `plain` has room for a chunk, between calls for anybody's.
  Receiving(uint32_t from, uint64_t most_bytes, ChunkSeal& seal, SecretVector<uint8_t>& plain)
      : from_(from),
        most_bytes_(most_bytes),
        left_bytes_(kLengthBytes + most_bytes),
        seal_(&seal),
        plain_(&plain) {}

  // Takes a chunk if one has come.
  absl::StatusOr<Moved> Step(Transport& transport, const Sink& sink) {
    SHOAL_ASSIGN_OR_RETURN(const std::optional<Bytes> sealed, transport.TryReceive(from_));
    if (!sealed.has_value()) return Moved::kNothing;
    const size_t bytes = std::min<uint64_t>(kChunkBytes, left_bytes_);
    if (sealed->size() != bytes + ChunkSeal::kTagBytes) return Spoiled("has a wrong length");
    const MutableBytes plain = MutableBytes(*plain_).first(bytes);
    if (!seal_->Open(*sealed, plain)) return Spoiled("does not open");
    left_bytes_ -= bytes;
    BytesView content = plain;
    if (!begun_) {
      begun_ = true;
      content_bytes_ = LoadLe<uint64_t>(plain.data());
      if (content_bytes_ > most_bytes_) return Spoiled("says that more comes than may");
      content = content.subspan(kLengthBytes);
    }
    content = content.first(std::min<uint64_t>(content.size(), content_bytes_));
    content_bytes_ -= content.size();
    if (!content.empty()) SHOAL_RETURN_IF_ERROR(sink(from_, content));
    return left_bytes_ == 0 ? Moved::kLastChunk : Moved::kChunk;
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
  ChunkSeal* seal_;
  SecretVector<uint8_t>* plain_;
};

Machines::Machines(Transport* transport, Seed round_key, const Clock* clock, RandomSource* random,
                   Options options)
    : transport_(transport),
      round_key_(std::move(round_key)),
      clock_(clock),
      options_(options),
      seals_(count()),
      random_(random),
      peers_(count()) {
  SHOAL_CHECK(rank() < count() && count() <= kMaxCount);
  SHOAL_CHECK(options.progress_limit_s >= 3 * kSignPeriodS);
  if (!options.signs_by_hand) signs_thread_ = std::thread([this] { GiveSignsUntilStopped(); });
}

Machines::~Machines() {
  bool finished;
  {
    const MutexLock lock(mutex_);
    finished = finished_;
    stopping_ = true;
    stop_.NotifyAll();
  }
  if (signs_thread_.joinable()) signs_thread_.join();
  if (!finished) GiveUp();
}

Machines& Machines::Alone() {
  static Machines alone(/*remembers=*/false);
  return alone;
}

Seed Machines::TransferKey(absl::string_view stage, uint32_t from, uint32_t to,
                           uint64_t most_bytes) const {
  return KeyFrom(Transcript("shoal machines transfer v3", session_key_.view())
                     .U64(exchanges_)
                     .Blob(stage)
                     .U64(from)
                     .U64(to)
                     .U64(most_bytes)
                     .Finish());
}

Seed Machines::SignKey(uint32_t from, uint32_t to) const {
  return KeyFrom(Transcript("shoal machines sign v1", round_key_.view())
                     .U64(count())
                     .U64(from)
                     .U64(to)
                     .Finish());
}

absl::Status Machines::Exchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                                std::span<const uint64_t> most_from, const Sink& sink) {
  SHOAL_CHECK(outgoing.size() == count() && most_from.size() == count());
  const absl::Status status =
      ended_ ? Ended() : TryExchange(stage, outgoing, most_from, sink, /*with_all=*/false);
  if (!status.ok()) GiveUp();
  return Annotate(status, stage);
}

absl::Status Machines::TryExchange(absl::string_view stage, std::span<const Outgoing> outgoing,
                                   std::span<const uint64_t> most_from, const Sink& sink,
                                   bool with_all) {
  for (const auto& [source, most_bytes] : outgoing) {
    if (source == nullptr || source->size() <= most_bytes) continue;
    return absl::InternalError("more bytes for a machine than may go to it");
  }
  if (count() == 1) return absl::OkStatus();
  if (exchanges_ == 0) SHOAL_RETURN_IF_ERROR(Greet());
  ++exchanges_;
  std::vector<Sending> sending;
  std::vector<Receiving> receiving;
  std::vector<Transfer> transfers;
  // What comes is opened and taken chunk by chunk: one buffer serves all machines.
  const uint64_t most = *std::ranges::max_element(most_from);
  SecretVector<uint8_t> plain(std::min<uint64_t>(kChunkBytes, kLengthBytes + most));
  sending.reserve(count());
  receiving.reserve(count());
  // Each machine begins with the one after it, so that not all send to the same one.
  for (uint32_t k = 1; k < count(); ++k) {
    const uint32_t to = (rank() + k) % count(), from = (rank() + count() - k) % count();
    // Where nothing may go, nothing goes: both ends know the bound.
    if (with_all || outgoing[to].most_bytes > 0) {
      ChunkSeal& seal = seals_[to].out;
      seal.Begin(TransferKey(stage, rank(), to, outgoing[to].most_bytes).view());
      sending.emplace_back(to, outgoing[to], seal);
      transfers.push_back({.other = to, .incoming = false, .step = [this, &out = sending.back()] {
                             return out.Step(*transport_);
                           }});
    }
    if (with_all || most_from[from] > 0) {
      ChunkSeal& seal = seals_[from].in;
      seal.Begin(TransferKey(stage, from, rank(), most_from[from]).view());
      receiving.emplace_back(from, most_from[from], seal, plain);
      transfers.push_back(
          {.other = from, .incoming = true, .step = [this, &in = receiving.back(), &sink] {
             return in.Step(*transport_, sink);
           }});
    }
  }
  return Complete(transfers);
}

absl::Status Machines::Greet() {
  std::vector<Bytes> random(count(), Bytes(kRandomBytes));
  {
    const MutexLock lock(mutex_);
    random_->Fill(random[rank()]);
  }
  const auto greeting_of = [&](absl::string_view domain, uint32_t machine) {
    return Greeting(domain, round_key_.view(), machine, count(), random[machine],
                    options_.secret_name);
  };
  const Bytes mine = greeting_of(kGreetingDomain, rank());
  std::vector<Transfer> transfers;
  for (uint32_t other = 0; other < count(); ++other) {
    if (other == rank()) continue;
    transfers.push_back({.other = other,
                         .incoming = false,
                         .step = [this, other, &mine]() -> absl::StatusOr<Moved> {
                           SHOAL_ASSIGN_OR_RETURN(const bool sent,
                                                  transport_->TrySend(other, mine));
                           return sent ? Moved::kLastChunk : Moved::kNothing;
                         }});
    transfers.push_back(
        {.other = other,
         .incoming = true,
         .step = [this, other, &random, &greeting_of]() -> absl::StatusOr<Moved> {
           SHOAL_ASSIGN_OR_RETURN(const std::optional<Bytes> came, transport_->TryReceive(other));
           if (!came.has_value()) return Moved::kNothing;
           if (came->size() == kGreetingBytes) {
             std::copy_n(came->begin(), kRandomBytes, random[other].begin());
           }
           const Bytes expected = greeting_of(kGreetingDomain, other);
           const auto is = [&](const Bytes& greeting) {
             return came->size() == greeting.size() &&
                    sodium_memcmp(came->data(), greeting.data(), greeting.size()) == 0;
           };
           if (is(expected)) return Moved::kLastChunk;
           if (is(greeting_of(kGreetingDomainOf02, other))) {
             return absl::FailedPreconditionError(absl::StrCat(
                 "machine ", other,
                 " runs Shoal 0.2, and this machine a later version: all machines of a party run "
                 "one version"));
           }
           if (came->size() == expected.size() && OfAnotherSecret(*came, expected)) {
             return absl::UnauthenticatedError(absl::StrCat(
                 "machine ", other, " has another secret than this machine, ", rank()));
           }
           return absl::DataLossError(absl::StrCat("a greeting that is not from machine ", other,
                                                   " of ", count(), " in this round"));
         }});
  }
  SHOAL_RETURN_IF_ERROR(Complete(transfers));
  Transcript keys("shoal machines session v1", round_key_.view());
  keys.U64(count());
  for (const Bytes& bytes : random) keys.Blob(bytes);
  session_key_ = KeyFrom(keys.Finish());
  return absl::OkStatus();
}

absl::Status Machines::Complete(std::span<Transfer> transfers) {
  const uint64_t limit_ms = options_.progress_limit_s * 1000;
  uint64_t waited_ms = 0;
  for (;;) {
    bool done = true, progress = false;
    ++passes_;
    for (Transfer& transfer : transfers) {
      if (transfer.done) continue;
      if (ended_) return Ended();
      SHOAL_ASSIGN_OR_RETURN(const Moved moved, transfer.step());
      if (moved != Moved::kNothing) {
        progress = true;
        transfer.moved_ms = waited_ms;
        transfer.done = moved == Moved::kLastChunk;
        const MutexLock lock(mutex_);
        Peer& peer = peers_[transfer.other];
        ++(transfer.incoming ? peer.received : peer.sent);
      } else if (waited_ms - transfer.moved_ms > limit_ms) {
        return absl::DeadlineExceededError(
            absl::StrCat("nothing went ", transfer.incoming ? "from" : "to", " machine ",
                         transfer.other, " for ", options_.progress_limit_s, " s"));
      }
      done &= transfer.done;
    }
    if (done) return absl::OkStatus();
    if (progress) continue;
    const uint64_t begun_ms = clock_->SteadyMilliseconds();
    transport_->Wait();
    waited_ms += clock_->SteadyMilliseconds() - begun_ms;
    ExcuseThoseAtWork(transfers, waited_ms);
  }
}

void Machines::ExcuseThoseAtWork(std::span<Transfer> transfers, uint64_t waited_ms) {
  if (waited_ms > work_limit_ms_) return;
  const MutexLock lock(mutex_);
  TakeSignsLocked();
  for (Transfer& transfer : transfers) {
    const Peer& peer = peers_[transfer.other];
    if (transfer.done || peer.sign == transfer.sign) continue;
    transfer.sign = peer.sign;
    // One that waits in an earlier call waits for somebody who is at work there, or will notice by
    // itself that it waits in vain. Whatever it says, what it has sent must have come.
    const bool behind = peer.worked || peer.calls < exchanges_;
    if (behind && peer.sent_here <= peer.received) transfer.moved_ms = waited_ms;
  }
}

void Machines::GiveSignOfLife() {
  absl::Status silence;
  if (ended_) return;
  {
    const MutexLock lock(mutex_);
    SendSignsLocked();
    TakeSignsLocked();
    for (uint32_t other = 0; other < count(); ++other) {
      if (other == rank()) continue;
      Peer& peer = peers_[other];
      // Nothing is known of a machine before its first sign: it may not have come to this round.
      const bool silent = peer.sign > 0 && peer.sign == peer.seen && !peer.finished;
      peer.missed = silent ? peer.missed + 1 : 0;
      peer.seen = peer.sign;
      // Counted in own periods: a machine that was stopped does not think that all others were.
      if (peer.missed * kSignPeriodS < options_.progress_limit_s) continue;
      silence = absl::DeadlineExceededError(absl::StrCat(
          "no sign of life came from machine ", other, " for ", options_.progress_limit_s, " s"));
    }
    why_ended_.Update(silence);
  }
  if (!silence.ok()) GiveUp();
}

void Machines::SendSignsLocked() {
  const uint64_t passes = passes_;
  ++signs_;
  for (uint32_t other = 0; other < count(); ++other) {
    if (other == rank()) continue;
    const SignOfLife sign = {.number = signs_,
                             .calls = exchanges_,
                             .sent = peers_[other].sent,
                             .worked = passes == signed_passes_,
                             .finished = finished_};
    transport_->SendSign(other, Seal(sign, SignKey(rank(), other).view(), *random_));
  }
  signed_passes_ = passes;
}

void Machines::TakeSignsLocked() {
  for (uint32_t other = 0; other < count(); ++other) {
    if (other == rank()) continue;
    const std::optional<Bytes> came = transport_->TakeSign(other);
    if (!came.has_value()) continue;
    const std::optional<SignOfLife> sign = OpenSign(*came, SignKey(other, rank()).view());
    Peer& peer = peers_[other];
    if (!sign.has_value() || sign->number <= peer.sign) continue;  // somebody's on the link
    peer.sign = sign->number;
    peer.calls = sign->calls;
    peer.sent_here = sign->sent;
    peer.worked = sign->worked;
    peer.finished = sign->finished;
  }
}

void Machines::GiveSignsUntilStopped() {
  for (;;) {
    GiveSignOfLife();
    const auto next = std::chrono::steady_clock::now() + std::chrono::seconds(kSignPeriodS);
    const MutexLock lock(mutex_);
    while (!stopping_ && stop_.WaitUntil(mutex_, next)) {
    }
    if (stopping_) return;
  }
}

absl::Status Machines::Ended() {
  const MutexLock lock(mutex_);
  return why_ended_.ok() ? absl::UnavailableError("the party's machines have given up")
                         : why_ended_;
}

absl::StatusOr<std::vector<SecretVector<uint8_t>>> Machines::Gather(absl::string_view stage,
                                                                    BytesView mine,
                                                                    uint64_t most_bytes) {
  std::vector<SecretVector<uint8_t>> all(count());
  all[rank()].assign(mine.begin(), mine.end());
  std::vector<ViewSource> sources(count(), ViewSource(mine));
  std::vector<Outgoing> outgoing;
  for (ViewSource& source : sources) outgoing.push_back({&source, most_bytes});
  const std::vector<uint64_t> most_from(count(), most_bytes);
  const Sink sink = [&](uint32_t from, BytesView piece) {
    all[from].insert(all[from].end(), piece.begin(), piece.end());
    return absl::OkStatus();
  };
  // Also where the messages are empty, as this is a barrier.
  const absl::Status status =
      ended_ ? Ended() : TryExchange(stage, outgoing, most_from, sink, /*with_all=*/true);
  if (!status.ok()) {
    GiveUp();
    return Annotate(status, stage);
  }
  return all;
}

void Machines::GiveUp() {
  if (!remembers_ || ended_.exchange(true) || transport_ == nullptr) return;
  transport_->Abort();
}

void Machines::Finish() {
  if (ended_) return;
  const MutexLock lock(mutex_);
  finished_ = true;
  // Others may have work left after the last call, and must not miss this machine.
  if (transport_ != nullptr) SendSignsLocked();
}

}  // namespace shoal::machines
