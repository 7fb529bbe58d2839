#include "src/server/offline.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/machines/machines.h"
#include "src/server/party_shuffle.h"
#include "src/sharing/batch.h"
#include "src/sharing/halves.h"
#include "src/shuffle/permutation.h"
#include "src/shuffle/scatter.h"

namespace shoal::server {
namespace {

// Onions that one thread handles at a time: a few batches of the onion kernels that fit the cache.
constexpr size_t kChunk = 1024;
// Onions moved at a time from a spool to their places.
constexpr size_t kRun = 1 << 16;
// Submissions that one thread opens at a time: a batch for the curve's kernels, or less if they
// have many onions.
constexpr size_t kSubmissions = 128, kSubmissionOnions = 8192;
// Bytes of submissions that are gathered, so that small ones are opened in batches.
constexpr size_t kPendingBytes = 4 << 20;

constexpr auto kSecret = PageBuffer::Content::kSecret;
constexpr auto kPublic = PageBuffer::Content::kPublic;

// Draws the rows of the noise queries of this machine, one entry for each query. The noise of a
// party is a list: so many queries for row 0, so many for row 1, and so on, in the order of a
// secret permutation. A machine makes a run of it. (With the noise of known rows alone, a machine's
// list would tell more about these rows than the party's does.) Tells in `share` which run it is.
absl::StatusOr<SecretVector<uint32_t>> DrawNoiseRows(const RoundContext& context,
                                                     const OfflineSecrets& secrets,
                                                     const Resources& resources,
                                                     machines::Run& share) {
  SecretVector<uint32_t> counts(context.max_rows);
  SeededRandom random = secrets.NoiseCounts();
  context.noise.Sample(random, counts);
  SecretVector<uint64_t> end_of_row(counts.size());  // among the queries in the order of rows
  std::partial_sum(counts.begin(), counts.end(), end_of_row.begin(), std::plus<uint64_t>());
  const uint64_t total = end_of_row.empty() ? 0 : end_of_row.back();
  if (total >= OnlineMaterial::kDead) {
    return absl::ResourceExhaustedError(absl::StrCat(total, " noise queries do not fit 32 bits"));
  }
  share = machines::RunOf(total, resources.machines->rank(), resources.machines->count());
  SHOAL_ASSIGN_OR_RETURN(
      SecretVector<uint32_t> rows,
      shuffle::ItemsAt(share.begin, share.end, total, secrets.NoiseOrderKey(), *resources.pool));
  resources.pool->ParallelFor(rows.size(), kChunk, [&](size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      rows[k] =
          static_cast<uint32_t>(std::ranges::upper_bound(end_of_row, rows[k]) - end_of_row.begin());
    }
  });
  return rows;
}

// v of noise queries for these buckets, under the seeds of the tail. In half A their selections are
// random: one that selects nothing, or one of a kind, would tell them apart.
void MakeForwarded(const RoundContext::OfHalf& half, BytesView tail_seeds,
                   std::span<const uint32_t> buckets, RandomSource& random,
                   MutableBytes forwarded) {
  SecretVector<uint8_t> selections(
      half.half == sharing::Half::kA ? buckets.size() * half.selection_bytes() : 0);
  random.Fill(selections);
  std::vector<uint32_t> all(buckets.size());
  std::iota(all.begin(), all.end(), 0u);
  sharing::MakeForwarded(tail_seeds.data(), all, half.ids, half.half, half.selection_bytes(),
                         buckets, selections, forwarded);
}

// Sorts on all threads: splits around the median and sorts each half by itself. Gives up once the
// round has ended.
template <typename T>
void ParallelSort(std::span<T> items, const Resources& resources) {
  constexpr size_t kSmall = 1 << 16;
  if (!resources.CheckLive().ok()) return;
  if (items.size() <= kSmall || resources.pool->size() == 1) {
    std::sort(items.begin(), items.end());
    return;
  }
  const size_t half = items.size() / 2;
  std::nth_element(items.begin(), items.begin() + static_cast<ptrdiff_t>(half), items.end());
  resources.pool->ParallelFor(2, 1, [&](size_t begin, size_t end) {
    for (size_t side = begin; side < end; ++side) {
      ParallelSort(side == 0 ? items.first(half) : items.subspan(half), resources);
    }
  });
}

// Puts record i of a spool to places[i] - first_place, for all i whose places are the scatter's.
absl::Status PutAll(const Spool& records, size_t record_bytes, std::span<const uint32_t> places,
                    const PartyShuffle& shuffle, shuffle::Scatter& scatter,
                    const Resources& resources) {
  SHOAL_CHECK(records.size() == places.size() * record_bytes);
  ThreadPool& pool = *resources.pool;
  SecretVector<uint8_t> piece;
  SecretVector<uint32_t> own;
  for (size_t at = 0; at < places.size(); at += kRun) {
    SHOAL_RETURN_IF_ERROR(resources.CheckLive());
    const size_t n = std::min(kRun, places.size() - at);
    BytesView view;
    if (records.in_memory()) {
      view = records.memory().subspan(at * record_bytes, n * record_bytes);
    } else {
      piece.resize(n * record_bytes);
      SHOAL_RETURN_IF_ERROR(records.Read(at * record_bytes, piece, &pool));
      view = piece;
    }
    std::span<const uint32_t> here = places.subspan(at, n);
    if (resources.machines->count() > 1) {
      own.resize(n);
      std::ranges::transform(here, own.begin(), [&](uint32_t place) {
        const uint32_t k = place - shuffle.first_place();  // large for other machines' places
        return k < shuffle.places() ? k : shuffle::Scatter::kNowhere;
      });
      here = own;
    }
    SHOAL_RETURN_IF_ERROR(scatter.Put(here, view, pool));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BytesView> OrderedList::Next() {
  if (size() == 0) return BytesView();
  SHOAL_ASSIGN_OR_RETURN(const MutableBytes piece, scatter_.Next(*pool_));
  return BytesView(piece);
}

absl::StatusOr<NoiseBatch> MakeNoise(const RoundContext& context, const OfflineSecrets& secrets,
                                     const Resources& resources) {
  NoiseBatch batch;
  if (context.is_backend()) return batch;
  const std::optional<RoundContext::OfHalf>& half = context.half;
  SHOAL_CHECK(!half.has_value() || resources.machines->count() == 1);
  machines::Run share;
  SHOAL_ASSIGN_OR_RETURN(const SecretVector<uint32_t> rows,
                         DrawNoiseRows(context, secrets, resources, share));
  const size_t hops = context.next_recipients.size();
  const size_t onion_bytes = onion::OnionBytes(hops);
  batch.tallies.resize(rows.size());
  const size_t v_bytes = half.has_value() ? half->forwarded_bytes() : 0;
  batch.forwarded.resize(rows.size() * v_bytes);
  SHOAL_ASSIGN_OR_RETURN(batch.onions, resources.spools->Create(rows.size() * onion_bytes));
  // Every chunk of the party's noise has its own random stream, so that the result does not depend
  // on threads and machines.
  const uint64_t first_chunk = share.begin / kChunk, end_chunk = (share.end + kChunk - 1) / kChunk;
  const auto make = [&](size_t k, size_t) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(resources.CheckLive());
    const uint64_t chunk = first_chunk + k;
    const uint64_t begin = std::max(share.begin, chunk * kChunk);
    const size_t n = std::min(share.end, (chunk + 1) * kChunk) - begin;
    SeededRandom random = secrets.NoiseOnions(chunk);
    const size_t skipped = (begin - chunk * kChunk) * hops * 32;  // other machines' part of it
    SecretVector<uint8_t> drawn(skipped + n * hops * 32), seeds(n * hops * 32);
    random.Fill(drawn);
    const MutableBytes ephemeral = MutableBytes(drawn).subspan(skipped);
    SecretVector<uint8_t> onions(n * onion_bytes);
    onion::BuildOnions(context.round_id, context.party.value() + 1, context.next_recipients,
                       ephemeral, seeds, onions);
    const size_t at = begin - share.begin;
    const auto asked = std::span(rows).subspan(at, n);
    if (half.has_value()) {
      MakeForwarded(*half, seeds, asked, random,
                    MutableBytes(batch.forwarded).subspan(at * v_bytes, n * v_bytes));
    } else {
      sharing::FirstTallies(seeds, hops, context.round_id, asked,
                            std::span(batch.tallies).subspan(at, n));
    }
    return batch.onions.Write(at * onion_bytes, onions);
  };
  SHOAL_RETURN_IF_ERROR(resources.pool->TryParallelFor(end_chunk - first_chunk, 1, make));
  return batch;
}

OnionIntake::OnionIntake(const RoundContext& context, const OfflineSecrets& secrets, uint64_t bytes,
                         uint64_t count, const Resources& resources)
    : context_(&context),
      resources_(resources),
      key_(secrets.OnionKeyPair()),
      fingerprint_key_(secrets.FingerprintKey()),
      bytes_(bytes),
      count_(count),
      left_bytes_(bytes),
      cutter_(context.is_frontend() ? 0 : count, context.onion_bytes()) {}

absl::StatusOr<OnionIntake> OnionIntake::Begin(const RoundContext& context,
                                               const OfflineSecrets& secrets, uint64_t bytes,
                                               const Resources& resources) {
  const size_t onion_bytes = context.onion_bytes();
  if (bytes % onion_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ", bytes,
                                                   " bytes are not a whole number of onions of ",
                                                   onion_bytes, " bytes"));
  }
  SHOAL_CHECK(!context.is_frontend());
  return Begin(context, secrets, bytes, bytes / onion_bytes, resources);
}

absl::StatusOr<OnionIntake> OnionIntake::BeginSubmissions(const RoundContext& context,
                                                          const OfflineSecrets& secrets,
                                                          uint64_t bytes, uint64_t onions,
                                                          const Resources& resources) {
  SHOAL_CHECK(context.is_frontend());
  return Begin(context, secrets, bytes, onions, resources);
}

absl::StatusOr<OnionIntake> OnionIntake::Begin(const RoundContext& context,
                                               const OfflineSecrets& secrets, uint64_t bytes,
                                               uint64_t count, const Resources& resources) {
  const uint64_t most =
      MaxPositions(context.party, context.max_slots, context.max_rows, context.noise);
  if (count > most || count >= OnlineMaterial::kDead) {
    return absl::InvalidArgumentError(
        absl::StrCat("offline list: ", count, " onions, where the header allows ", most));
  }
  OnionIntake intake(context, secrets, bytes, count, resources);
  const uint32_t machines = resources.machines->count();
  RoundSize size = SizeOf(context, count, ExpectedNoise(context) / machines, resources);
  if (!context.is_backend()) size.others = count - count / machines;
  const RoundMemory memory = DivideMemory(size, resources.spools->free_bytes());
  SHOAL_ASSIGN_OR_RETURN(
      intake.arena_, Arena::Reserve(resources.spools, memory.lists(), PeakArrayBytes(size, memory),
                                    absl::StrCat("party ", context.party.value(), ": a round of ",
                                                 count, " onions")));
  intake.opened_memory_ = memory.opened;
  SHOAL_ASSIGN_OR_RETURN(intake.seeds_, PageBuffer::Reserve(32 * count, kSecret));
  SHOAL_ASSIGN_OR_RETURN(intake.valid_, PageBuffer::Reserve(count, kPublic));
  SHOAL_ASSIGN_OR_RETURN(intake.prints_, PageArray<Fingerprint>::Reserve(count, kSecret));
  SHOAL_ASSIGN_OR_RETURN(intake.inner_,
                         intake.arena_->MakeList(memory.opened.bytes, memory.opened.memory));
  return intake;
}

absl::Status OnionIntake::Take(BytesView piece) {
  if (piece.size() > left_bytes_) {
    return absl::InvalidArgumentError("offline list: more bytes than were announced");
  }
  left_bytes_ -= piece.size();
  SHOAL_RETURN_IF_ERROR(OpenPiece(piece));
  if (complete()) {
    key_.secret_key.Wipe();
    fingerprint_key_.Wipe();
  }
  return absl::OkStatus();
}

absl::Status OnionIntake::OpenPiece(BytesView piece) {
  if (!context_->is_frontend()) {
    return cutter_.Cut(piece, "offline list",
                       [this](BytesView onions) { return OpenWhole(onions); });
  }
  Append(pending_, piece);
  return pending_.size() < kPendingBytes && left_bytes_ > 0 ? absl::OkStatus() : OpenPending();
}

void OnionIntake::Grow(size_t count) {
  seeds_.Grow(32 * (opened_ + count));
  valid_.Grow(opened_ + count);
  prints_.Grow(opened_ + count);
  opened_ += count;
}

absl::Status OnionIntake::Keep(size_t first, size_t count, BytesView inner) {
  static_assert(crypto_shorthash_KEYBYTES <= 32 && crypto_shorthash_BYTES == 8);
  for (size_t i = first; i < first + count; ++i) {
    uint8_t print[8];
    crypto_shorthash(print, seeds_.data() + 32 * i, 32, fingerprint_key_.data());
    prints_[i] = {LoadLe<uint64_t>(print), static_cast<uint32_t>(i)};
  }
  return inner_.Write(first * context_->inner_bytes(), inner);
}

absl::Status OnionIntake::OpenWhole(BytesView onions) {
  const size_t onion_bytes = context_->onion_bytes(), inner_bytes = context_->inner_bytes();
  const size_t count = onions.size() / onion_bytes;
  const size_t first = opened_;
  Grow(count);
  return resources_.pool->TryParallelFor(
      count, kChunk, [&](size_t begin, size_t end) -> absl::Status {
        SHOAL_RETURN_IF_ERROR(resources_.CheckLive());
        const size_t n = end - begin, at = first + begin;
        SecretVector<uint8_t> inner(n * inner_bytes);
        onion::PeelOnions(key_, context_->round_id, context_->party.value(), context_->layers(),
                          onions.subspan(begin * onion_bytes, n * onion_bytes),
                          MutableBytes(seeds_).subspan(32 * at, 32 * n), inner,
                          MutableBytes(valid_).subspan(at, n));
        return Keep(at, n, inner);
      });
}

absl::Status OnionIntake::OpenPending() {
  const size_t inner_bytes = context_->inner_bytes();
  // A thread's share: submissions that follow one another, and their onions.
  struct Task {
    std::vector<BytesView> submissions;
    size_t first = 0, onions = 0;
  };
  std::vector<Task> tasks;
  size_t at = 0, onions = 0;
  while (pending_.size() - at >= kSubmissionLengthBytes) {
    const uint32_t length = LoadLe<uint32_t>(pending_.data() + at);
    const size_t count = onion::SubmissionOnions(context_->parties, length);
    if (count == 0 || count > count_ - opened_ - onions) {
      return absl::InvalidArgumentError(absl::StrCat(
          "offline list: ", length, " bytes are not a submission, or too many onions"));
    }
    if (pending_.size() - at - kSubmissionLengthBytes < length) break;
    if (tasks.empty() || tasks.back().submissions.size() == kSubmissions ||
        tasks.back().onions + count > kSubmissionOnions) {
      tasks.push_back({.submissions = {}, .first = opened_ + onions});
    }
    tasks.back().submissions.push_back(
        BytesView(pending_).subspan(at + kSubmissionLengthBytes, length));
    tasks.back().onions += count;
    onions += count;
    at += kSubmissionLengthBytes + length;
  }
  Grow(onions);
  const auto open = [&](const Task& task) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(resources_.CheckLive());
    SecretVector<uint8_t> inner(task.onions * inner_bytes);
    std::vector<onion::SubmissionToOpen> batch;
    size_t done = 0;
    for (const BytesView submission : task.submissions) {
      const size_t count = onion::SubmissionOnions(context_->parties, submission.size());
      batch.push_back(
          {.submission = submission,
           .seeds = MutableBytes(seeds_).subspan(32 * (task.first + done), 32 * count),
           .onions = MutableBytes(inner).subspan(done * inner_bytes, count * inner_bytes)});
      done += count;
    }
    onion::OpenSubmissions(key_, context_->round_id, batch);
    uint8_t* valid = valid_.data() + task.first;
    for (const onion::SubmissionToOpen& opened : batch) {
      valid = std::fill_n(valid, opened.seeds.size() / 32, uint8_t{opened.opened});
    }
    return Keep(task.first, task.onions, inner);
  };
  SHOAL_RETURN_IF_ERROR(resources_.pool->TryParallelFor(
      tasks.size(), 1, [&](size_t begin, size_t) { return open(tasks[begin]); }));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(at));
  if (left_bytes_ == 0 && !pending_.empty()) {
    return absl::InvalidArgumentError("offline list: ends within a submission");
  }
  return absl::OkStatus();
}

// Marks all but the first of equal seeds among the living; returns how many it marked. Compares
// seeds, which is what must not come twice, whatever the suite says of encapsulated keys.
uint64_t OnionIntake::MarkDuplicates() {
  const auto seed = [&](uint32_t position) {
    return BytesView(seeds_).subspan(size_t{32} * position, 32);
  };
  uint8_t* const valid = valid_.data();
  Fingerprint* const end_of_living =
      std::remove_if(prints_.begin(), prints_.end(),
                     [&](const Fingerprint& print) { return !valid[print.position]; });
  const std::span<Fingerprint> prints(prints_.begin(), end_of_living);
  ParallelSort(prints, resources_);
  uint64_t marked = 0;
  for (size_t begin = 0; begin < prints.size();) {
    size_t end = begin + 1;
    while (end < prints.size() && prints[end].value == prints[begin].value) ++end;
    // A run nearly always has one element. Positions rise within a run, so the first copy of a
    // repeated seed is among the earlier living elements.
    for (size_t later = begin + 1; later < end; ++later) {
      for (size_t earlier = begin; earlier < later; ++earlier) {
        const uint32_t a = prints[earlier].position, b = prints[later].position;
        if (!valid[a] || !std::ranges::equal(seed(a), seed(b))) continue;
        valid[b] = 0;
        ++marked;
        break;
      }
    }
    begin = end;
  }
  prints_ = {};
  return marked;
}

absl::Status MakeReady(const RoundContext& context, Arena& arena, const Resources& resources,
                       OnlineMaterial& material) {
  if (context.half.has_value()) return resources.CheckLive();
  SHOAL_ASSIGN_OR_RETURN(material.shares,
                         PageArray<sharing::QueryShare>::Create(material.positions, kSecret));
  material.pads = {};
  const RoundSize size = SizeOf(context, material.positions, material.noise.size(), resources);
  const ListMemory memory = DivideLater(size, {}, arena.free_bytes()).pads;
  std::optional<Spool> pads;
  if (memory.memory > 0) {
    SHOAL_ASSIGN_OR_RETURN(pads, arena.MakeInMemory(memory.bytes));
  }
  resources.pool->ParallelFor(material.positions, kChunk, [&](size_t begin, size_t end) {
    if (!resources.CheckLive().ok()) return;
    std::vector<uint32_t> positions(end - begin);
    std::iota(positions.begin(), positions.end(), static_cast<uint32_t>(begin));
    sharing::ExpandShares(material.seeds.data(), positions, context.round_id,
                          material.shares.span().subspan(begin, end - begin));
    if (!pads.has_value()) return;
    const size_t each = sharing::PadBytes(context.answer_bytes);
    sharing::ExpandPads(material.seeds.data(), positions, context.round_id, context.answer_bytes,
                        pads->memory().subspan(begin * each, (end - begin) * each));
  });
  if (pads.has_value()) material.pads = *std::move(pads);
  return resources.CheckLive();
}

absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const OfflineSecrets& secrets,
                                         NoiseBatch noise, BytesView input, uint64_t onions,
                                         const Resources& resources) {
  SHOAL_ASSIGN_OR_RETURN(
      OnionIntake intake,
      context.is_frontend()
          ? OnionIntake::BeginSubmissions(context, secrets, input.size(), onions, resources)
          : OnionIntake::Begin(context, secrets, input.size(), resources));
  SHOAL_RETURN_IF_ERROR(intake.Take(input));
  return RunOffline(context, ShuffleKeys(secrets), std::move(noise), std::move(intake), resources);
}

absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const ShuffleKeys& keys,
                                         NoiseBatch noise, OnionIntake intake,
                                         const Resources& resources) {
  absl::StatusOr<OfflineOutput> out =
      std::move(intake).Finish(context, keys, std::move(noise), resources);
  if (!out.ok()) resources.machines->GiveUp();
  return out;
}

namespace {

// Tells all machines how many onions and how much noise each has, and sets which positions are
// whose. INVALID_ARGUMENT if there are more onions than the header allows; errors of Machines.
absl::StatusOr<Slices> DividePositions(const RoundContext& context, uint64_t onions, uint64_t noise,
                                       machines::Machines& machines, OnlineMaterial& material) {
  SHOAL_ASSIGN_OR_RETURN(Slices slices, GatherSlices(onions, noise, machines));
  const uint64_t most = std::min<uint64_t>(
      MaxPositions(context.party, context.max_slots, context.max_rows, context.noise),
      OnlineMaterial::kDead - 1);
  if (const uint64_t all = slices.positions_before(machines.count()); all > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "offline list: ", all, " onions at all machines, where the header allows ", most));
  }
  for (uint32_t rank = 0; rank <= machines.count(); ++rank) {
    material.layout.positions.push_back(slices.positions_before(rank));
  }
  material.first_position = static_cast<uint32_t>(slices.positions_before(machines.rank()));
  return slices;
}

// Makes the targets of all positions, and erases what came with those that are dead. Returns how
// many are.
absl::StatusOr<uint64_t> DropDead(const RoundContext& context, BytesView valid,
                                  OnlineMaterial& material) {
  uint64_t dead = 0;
  const auto living = [&](uint64_t i) { return valid[i] != 0; };
  SHOAL_ASSIGN_OR_RETURN(material.target, PageArray<uint32_t>::Create(material.positions, kSecret));
  for (uint32_t i = 0; i < material.positions; ++i) {
    // Where positions are shuffled, a living one gets its place below.
    material.target[i] = context.is_backend() && living(i) ? 0 : OnlineMaterial::kDead;
    if (living(i)) continue;
    ++dead;
    sodium_memzero(material.seeds.data() + size_t{32} * i, 32);
  }
  return dead;
}

// Shuffles the living onions and the noise: first computes all places, then moves the bytes.
absl::StatusOr<shuffle::Scatter> ShuffleAll(const RoundContext& context, const Spool& inner,
                                            const NoiseBatch& noise, BytesView permutation_key,
                                            PartyShuffle& shuffle, const Resources& resources,
                                            OnlineMaterial& material) {
  const size_t inner_bytes = context.inner_bytes();
  SHOAL_ASSIGN_OR_RETURN(auto noise_places, PageArray<uint32_t>::Create(noise.size(), kSecret));
  std::ranges::fill(noise_places.span(), shuffle::Scatter::kNowhere);
  SHOAL_RETURN_IF_ERROR(
      shuffle.PlaceOwn(permutation_key, material.target.span(), noise_places.span()));
  material.noise.reserve(noise.size());
  for (size_t k = 0; k < noise.size(); ++k) {
    if (noise_places[k] == shuffle::Scatter::kNowhere) continue;  // another machine's
    material.noise.push_back({noise_places[k], noise.tallies[k]});
  }
  if (material.memory.forward.memory > 0) {
    SHOAL_ASSIGN_OR_RETURN(
        material.forward_memory,
        ForwardMemory::MakeReady(material.next_positions, *material.arena, *resources.pool,
                                 /*message=*/!context.sends_batch(resources) && !context.half));
  }

  static_assert(OnlineMaterial::kDead == shuffle::Scatter::kNowhere);
  SHOAL_ASSIGN_OR_RETURN(
      Spool ordered,
      material.arena->MakeList(shuffle::Scatter::MemoryBytes(material.next_positions, inner_bytes),
                               material.memory.ordered.memory));
  SHOAL_ASSIGN_OR_RETURN(
      shuffle::Scatter scatter,
      shuffle::Scatter::Create(material.next_positions, inner_bytes, std::move(ordered)));
  scatter.TouchRoom(*resources.pool);
  SHOAL_RETURN_IF_ERROR(
      PutAll(inner, inner_bytes, material.target.span(), shuffle, scatter, resources));
  SHOAL_RETURN_IF_ERROR(
      PutAll(noise.onions, inner_bytes, noise_places.span(), shuffle, scatter, resources));
  SHOAL_RETURN_IF_ERROR(shuffle.MoveOthers(inner, noise.onions, noise.tallies, inner_bytes, scatter,
                                           material.target.span(), material.noise));
  return scatter;
}

}  // namespace

absl::StatusOr<OfflineOutput> OnionIntake::Finish(const RoundContext& context,
                                                  const ShuffleKeys& keys, NoiseBatch noise,
                                                  const Resources& resources) && {
  if (!complete()) {
    return absl::InvalidArgumentError(
        absl::StrCat("offline list: ended after ", opened(), " of ", count(), " onions"));
  }
  machines::Machines& machines = *resources.machines;
  OfflineOutput out;
  OnlineMaterial& material = out.material;
  MarkDuplicates();
  SHOAL_RETURN_IF_ERROR(resources.CheckLive());
  SHOAL_ASSIGN_OR_RETURN(Slices slices,
                         DividePositions(context, count(), noise.size(), machines, material));
  SHOAL_RETURN_IF_ERROR(MarkDuplicatesElsewhere(slices, keys.fingerprints.view(), seeds_,
                                                MutableBytes(valid_), resources));
  const PageBuffer valid = std::move(valid_);
  material.positions = static_cast<uint32_t>(count());
  material.seeds = std::move(seeds_);
  SHOAL_ASSIGN_OR_RETURN(out.dead, DropDead(context, BytesView(valid), material));
  // Draws the shuffle, so that the number of places is known.
  std::optional<PartyShuffle> shuffle;
  uint64_t more_places = noise.size();
  if (!context.is_backend()) {
    SHOAL_ASSIGN_OR_RETURN(shuffle, PartyShuffle::Draw(std::move(slices), BytesView(valid),
                                                       keys.permutation.view(), resources));
    material.next_positions = shuffle->places();
    material.first_place = shuffle->first_place();
    shuffle->SetLayout(material.layout);
    // One of several machines may own more places than it has items.
    if (shuffle->places() > material.positions + more_places) {
      more_places = shuffle->places() - material.positions;
    }
  }
  // Divides memory again, now that the amount of noise is known.
  RoundSize size = SizeOf(context, material.positions, more_places, resources);
  if (shuffle.has_value() && shuffle->answers() > size.next_positions()) {
    size.others = shuffle->answers() - size.next_positions();
  }
  material.arena = std::move(arena_);
  material.memory = DivideLater(size, opened_memory_, material.arena->free_bytes());
  const RoundMemory& memory = material.memory;
  material.arena->Limit(memory.lists());
  SHOAL_RETURN_IF_ERROR(MakeReady(context, *material.arena, resources, material));
  if (context.is_backend()) {
    // No machine answers before all have their lists.
    SHOAL_RETURN_IF_ERROR(machines.Gather("offline", {}, 0).status());
    material.arena->Limit(memory.later());
    material.arena->Touched(memory.untouched());
    return out;
  }

  SHOAL_ASSIGN_OR_RETURN(
      shuffle::Scatter scatter,
      ShuffleAll(context, inner_, noise, keys.permutation.view(), *shuffle, resources, material));
  material.noise_records = std::move(noise.forwarded);
  // No machine sends anything before all have their lists.
  SHOAL_RETURN_IF_ERROR(machines.Gather("offline", {}, 0).status());
  // From here on the arena holds what the answers need.
  material.arena->Limit(memory.later());
  material.arena->Touched(memory.untouched());
  out.onions = OrderedList(std::move(scatter), resources.pool);
  return out;
}

}  // namespace shoal::server
