#include "src/server/party_shuffle.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/machines/load_bound.h"
#include "src/server/machine_messages.h"
#include "src/server/record_cutter.h"

namespace shoal::server {
namespace {

using machines::Machines;
using shuffle::BucketDraw;

// Items that are looked at between two pieces of a transfer.
constexpr size_t kBlock = 4096;

// A bucket, a tally (of noise) and an inner onion, for every item that goes to one machine.
constexpr size_t kHeadBytes = 2 + 4;

class ItemSource final : public ByteSource {
 public:
  // An input of this machine: records in a spool, with their buckets.
  struct Input {
    const Spool* records;
    std::span<const uint16_t> bucket_of;
    std::span<const uint32_t> tallies;  // or empty
  };
  ItemSource(std::array<Input, 2> inputs, size_t inner_bytes, machines::Run buckets, uint64_t count,
             const Resources& resources)
      : inputs_(inputs),
        inner_bytes_(inner_bytes),
        buckets_(buckets),
        count_(count),
        resources_(resources) {}

  uint64_t size() const override { return count_ * (kHeadBytes + inner_bytes_); }

  absl::StatusOr<BytesView> Next() override {
    piece_.clear();
    while (piece_.empty() && input_ < inputs_.size()) {
      SHOAL_RETURN_IF_ERROR(resources_.CheckLive());
      const Input& input = inputs_[input_];
      const size_t n = std::min<size_t>(kBlock, input.bucket_of.size() - at_);
      SHOAL_ASSIGN_OR_RETURN(const BytesView records, Read(*input.records, n));
      for (size_t i = 0; i < n; ++i) {
        const uint16_t bucket = input.bucket_of[at_ + i];
        if (bucket < buckets_.begin || bucket >= buckets_.end) continue;  // nor kNowhere
        const size_t to = piece_.size();
        piece_.resize(to + kHeadBytes + inner_bytes_);
        StoreLe(piece_.data() + to, bucket);
        StoreLe(piece_.data() + to + 2,
                input.tallies.empty() ? uint32_t{0} : input.tallies[at_ + i]);
        std::copy_n(records.data() + i * inner_bytes_, inner_bytes_,
                    piece_.data() + to + kHeadBytes);
      }
      at_ += n;
      if (at_ == input.bucket_of.size()) {
        ++input_;
        at_ = 0;
      }
    }
    return BytesView(piece_);
  }

 private:
  absl::StatusOr<BytesView> Read(const Spool& records, size_t n) {
    if (records.in_memory()) return records.memory().subspan(at_ * inner_bytes_, n * inner_bytes_);
    read_.resize(n * inner_bytes_);
    SHOAL_RETURN_IF_ERROR(records.Read(at_ * inner_bytes_, read_, resources_.pool));
    return BytesView(read_);
  }

  const std::array<Input, 2> inputs_;
  const size_t inner_bytes_;
  const machines::Run buckets_;
  const uint64_t count_;
  const Resources resources_;
  size_t input_ = 0;
  uint64_t at_ = 0;  // in that input
  SecretVector<uint8_t> read_, piece_;
};

}  // namespace

uint64_t Slices::positions_before(uint32_t rank) const {
  return std::accumulate(positions.begin(), positions.begin() + rank, uint64_t{0});
}

uint64_t Slices::noise_before(uint32_t rank) const {
  return std::accumulate(noise.begin(), noise.begin() + rank, uint64_t{0});
}

absl::StatusOr<Slices> GatherSlices(uint64_t positions, uint64_t noise, Machines& machines) {
  const std::array<uint64_t, 2> mine = {positions, noise};
  SHOAL_ASSIGN_OR_RETURN(const auto all, GatherNumbers(machines, "slices", mine));
  Slices slices;
  for (const SecretVector<uint64_t>& numbers : all) {
    slices.positions.push_back(numbers[0]);
    slices.noise.push_back(numbers[1]);
  }
  return slices;
}

absl::Status MarkDuplicatesElsewhere(const Slices& slices, BytesView key, BytesView seeds,
                                     std::span<uint8_t> valid, const Resources& resources) {
  static_assert(crypto_shorthash_siphashx24_BYTES == 16 &&
                crypto_shorthash_siphashx24_KEYBYTES <= 32);
  constexpr size_t kPrintBytes = 16;
  Machines& machines = *resources.machines;
  const uint32_t count = machines.count(), rank = machines.rank();
  if (count == 1) return absl::OkStatus();
  const auto owner = [count](const uint8_t* print) {
    return static_cast<uint32_t>(uint64_t{LoadLe<uint32_t>(print)} * count >> 32);
  };

  // What each machine is asked, and the positions that the questions are about.
  std::vector<SecretVector<uint8_t>> asked(count);
  std::vector<SecretVector<uint32_t>> about(count);
  for (size_t i = 0; i < valid.size(); ++i) {
    if (i % kBlock == 0) SHOAL_RETURN_IF_ERROR(resources.CheckLive());
    if (valid[i] == 0) continue;
    std::array<uint8_t, kPrintBytes> print;
    crypto_shorthash_siphashx24(print.data(), seeds.data() + 32 * i, 32, key.data());
    const uint32_t to = owner(print.data());
    asked[to].insert(asked[to].end(), print.begin(), print.end());
    about[to].push_back(static_cast<uint32_t>(i));
  }
  std::vector<uint64_t> most_to(count), most_from(count);
  const auto set_most = [&](size_t bytes) {
    for (uint32_t i = 0; i < count; ++i) {
      most_to[i] = bytes * machines::MostDrawn(slices.positions[rank], 1, count);
      most_from[i] = bytes * machines::MostDrawn(slices.positions[i], 1, count);
    }
  };
  set_most(kPrintBytes);
  SHOAL_ASSIGN_OR_RETURN(const auto questions, ExchangeBytes(machines, "fingerprints",
                                                             std::move(asked), most_to, most_from));

  // Of equal fingerprints the one of the lowest rank lives: its position is the lowest.
  struct Print {
    std::array<uint8_t, kPrintBytes> value;
    uint32_t from, number;
    bool operator<(const Print& other) const {
      return value != other.value ? value < other.value : from < other.from;
    }
  };
  SecretVector<Print> prints;
  std::vector<SecretVector<uint8_t>> answers(count);
  for (uint32_t from = 0; from < count; ++from) {
    const size_t n = questions[from].size() / kPrintBytes;
    answers[from].resize(n);
    for (size_t k = 0; k < n; ++k) {
      Print& print = prints.emplace_back();
      std::copy_n(questions[from].data() + k * kPrintBytes, kPrintBytes, print.value.data());
      print.from = from;
      print.number = static_cast<uint32_t>(k);
    }
  }
  std::sort(prints.begin(), prints.end());
  for (size_t k = 1; k < prints.size(); ++k) {
    if (prints[k].value == prints[k - 1].value) answers[prints[k].from][prints[k].number] = 1;
  }
  SHOAL_RETURN_IF_ERROR(resources.CheckLive());

  // The way back is padded like the way there.
  set_most(1);
  SHOAL_ASSIGN_OR_RETURN(const auto came, ExchangeBytes(machines, "duplicates", std::move(answers),
                                                        most_from, most_to));
  for (uint32_t from = 0; from < count; ++from) {
    if (came[from].size() != about[from].size()) return Unannounced(from);
    for (size_t k = 0; k < about[from].size(); ++k) {
      if (came[from][k] != 0) valid[about[from][k]] = 0;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PartyShuffle> PartyShuffle::Draw(Slices slices, std::span<const uint8_t> living,
                                                BytesView key, const Resources& resources) {
  PartyShuffle shuffle(resources);
  Machines& machines = shuffle.machines();
  const uint32_t rank = machines.rank(), count = machines.count();
  const uint64_t positions = slices.positions_before(count), noise = slices.noise_before(count);
  shuffle.buckets_ = shuffle::BucketCount(positions + noise);
  SHOAL_ASSIGN_OR_RETURN(shuffle.positions_,
                         BucketDraw::Create(shuffle.buckets_, slices.positions_before(rank),
                                            living.size(), living, key, *resources.pool));
  SHOAL_ASSIGN_OR_RETURN(shuffle.noise_,
                         BucketDraw::Create(shuffle.buckets_, positions + slices.noise_before(rank),
                                            slices.noise[rank], {}, key, *resources.pool));

  SecretVector<uint8_t> mine(size_t{2} * 4 * shuffle.buckets_);
  for (uint32_t b = 0; b < shuffle.buckets_; ++b) {
    StoreLe(mine.data() + 4 * b, shuffle.positions_.counts()[b]);
    StoreLe(mine.data() + 4 * (shuffle.buckets_ + b), shuffle.noise_.counts()[b]);
  }
  SHOAL_ASSIGN_OR_RETURN(const auto all, machines.Gather("buckets", mine, mine.size()));
  shuffle.slices_ = std::move(slices);
  const machines::Run own = shuffle.BucketsOf(rank);
  uint64_t before = 0, places = 0, total = 0;
  for (uint32_t from = 0; from < count; ++from) {
    if (all[from].size() != mine.size()) return Unannounced(from);
    for (uint32_t k = 0; k < 2 * shuffle.buckets_; ++k) {
      const uint32_t items = LoadLe<uint32_t>(all[from].data() + size_t{4} * k);
      const uint32_t bucket = k % shuffle.buckets_;
      shuffle.counts_.push_back(items);
      total += items;
      if (bucket < own.begin) before += items;
      if (bucket >= own.begin && bucket < own.end) places += items;
    }
  }
  if (total >= OnlineMaterial::kDead) {
    return absl::ResourceExhaustedError(
        absl::StrCat("offline list: ", total, " positions do not fit 32 bits"));
  }
  shuffle.first_place_ = static_cast<uint32_t>(before);
  shuffle.places_ = static_cast<uint32_t>(places);
  return shuffle;
}

machines::Run PartyShuffle::BucketsOf(uint32_t rank) const {
  return machines::RunOf(buckets_, rank, machines().count());
}

std::span<const uint32_t> PartyShuffle::Counts(uint32_t rank, bool noise) const {
  return std::span(counts_).subspan((size_t{2} * rank + (noise ? 1 : 0)) * buckets_, buckets_);
}

uint64_t PartyShuffle::Sent(uint32_t rank, uint32_t owner, bool noise) const {
  const machines::Run run = BucketsOf(owner);
  const auto counts = Counts(rank, noise).subspan(run.begin, run.size());
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

uint64_t PartyShuffle::MostSent(uint32_t rank, uint32_t owner) const {
  return machines::MostDrawn(slices_.items(rank), BucketsOf(owner).size(), buckets_);
}

std::vector<uint64_t> PartyShuffle::PlaceStarts() const {
  std::vector<uint64_t> starts = {0};
  for (uint32_t owner = 0; owner < machines().count(); ++owner) {
    uint64_t places = 0;
    for (uint32_t from = 0; from < machines().count(); ++from) {
      places += Sent(from, owner, false) + Sent(from, owner, true);
    }
    starts.push_back(starts.back() + places);
  }
  return starts;
}

void PartyShuffle::SetLayout(PartyLayout& layout) const {
  layout.buckets = buckets_;
  layout.places = PlaceStarts();
}

uint64_t PartyShuffle::answers() const {
  const uint32_t rank = machines().rank();
  return slices_.positions[rank] + places_ - Sent(rank, rank, false);
}

std::vector<uint32_t> PartyShuffle::Before(uint32_t rank, bool noise) const {
  const machines::Run own = BucketsOf(machines().rank());
  std::vector<uint32_t> before(own.size());
  const auto add = [&](uint32_t from, bool of_noise) {
    const auto counts = Counts(from, of_noise).subspan(own.begin, own.size());
    for (size_t k = 0; k < before.size(); ++k) before[k] += counts[k];
  };
  // First come all positions, then all noise.
  for (uint32_t from = 0; from < (noise ? machines().count() : rank); ++from) add(from, false);
  for (uint32_t from = 0; noise && from < rank; ++from) add(from, true);
  return before;
}

absl::Status PartyShuffle::PlaceOwn(BytesView key, std::span<uint32_t> target,
                                    std::span<uint32_t> noise_places) {
  const uint32_t rank = machines().rank(), count = machines().count();
  ThreadPool& pool = *resources_.pool;
  // The sizes of this machine's buckets are what would be before one more machine's noise.
  const std::vector<uint32_t> sizes = Before(count, /*noise=*/true);
  SHOAL_ASSIGN_OR_RETURN(
      run_, shuffle::BucketRun::Permute(static_cast<uint32_t>(BucketsOf(rank).begin), first_place_,
                                        sizes, key, pool));
  run_.Place(positions_, Before(rank, /*noise=*/false), target, pool);
  run_.Place(noise_, Before(rank, /*noise=*/true), noise_places, pool);
  return absl::OkStatus();
}

absl::Status PartyShuffle::MoveOthers(const Spool& inner, const Spool& noise_onions,
                                      std::span<const uint32_t> tallies, size_t inner_bytes,
                                      shuffle::Scatter& scatter, std::span<uint32_t> target,
                                      SecretVector<NoiseQuery>& arrived) {
  const uint32_t rank = machines().rank(), count = machines().count();
  if (count == 1) return absl::OkStatus();
  const size_t item_bytes = kHeadBytes + inner_bytes;
  const std::array<ItemSource::Input, 2> inputs = {
      ItemSource::Input{&inner, positions_.bucket_of(), {}},
      ItemSource::Input{&noise_onions, noise_.bucket_of(), tallies}};

  // What comes from one machine: positions, then noise, in the order of their numbers.
  struct Incoming {
    uint64_t positions, taken = 0;
    RecordCutter cutter;
    std::vector<uint32_t> next_position, next_noise;  // of each bucket, the next item's number
    SecretVector<uint8_t> places;                     // of the positions, to be sent back
  };
  std::vector<ItemSource> sources;
  std::vector<Machines::Outgoing> outgoing;
  std::vector<uint64_t> most_from, most_back_to, most_back_from;
  std::vector<Incoming> incoming;
  sources.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t go = Sent(rank, i, false) + Sent(rank, i, true);
    sources.emplace_back(inputs, inner_bytes, BucketsOf(i), go, resources_);
    outgoing.push_back({&sources.back(), MostSent(rank, i) * item_bytes});
    most_from.push_back(MostSent(i, rank) * item_bytes);
    most_back_to.push_back(MostSent(i, rank) * 4);
    most_back_from.push_back(MostSent(rank, i) * 4);
    const uint64_t positions = Sent(i, rank, false), come = positions + Sent(i, rank, true);
    incoming.push_back({.positions = positions,
                        .cutter = RecordCutter(come, item_bytes),
                        .next_position = Before(i, false),
                        .next_noise = Before(i, true),
                        .places = {}});
  }

  SecretVector<uint32_t> places;
  SecretVector<uint8_t> onions;
  const auto take = [&](uint32_t from, BytesView items) -> absl::Status {
    Incoming& machine = incoming[from];
    places.clear();
    onions.clear();
    for (; !items.empty(); items = items.subspan(item_bytes)) {
      const auto bucket = LoadLe<uint16_t>(items.data());
      const bool noise = machine.taken++ >= machine.positions;
      if (bucket < run_.first_bucket() || bucket >= run_.end_bucket()) return Unannounced(from);
      uint32_t& next =
          (noise ? machine.next_noise : machine.next_position)[bucket - run_.first_bucket()];
      if (next >= run_.places(bucket).size()) return Unannounced(from);
      const uint32_t place = run_.places(bucket)[next++];
      places.push_back(place - first_place_);
      onions.insert(onions.end(), items.begin() + kHeadBytes,
                    items.begin() + static_cast<ptrdiff_t>(item_bytes));
      if (noise) {
        arrived.push_back({place, LoadLe<uint32_t>(items.data() + 2)});
      } else {
        machine.places.resize(machine.places.size() + 4);
        StoreLe(machine.places.data() + machine.places.size() - 4, place);
      }
    }
    return scatter.Put(places, onions, *resources_.pool);
  };
  const auto cut = [&](uint32_t from, BytesView piece) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(resources_.CheckLive());
    return incoming[from].cutter.Cut(piece, "onions",
                                     [&](BytesView items) { return take(from, items); });
  };
  SHOAL_RETURN_IF_ERROR(machines().Exchange("onions", outgoing, most_from, cut));
  std::vector<SecretVector<uint8_t>> back(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (i != rank && !incoming[i].cutter.complete()) return Unannounced(i);
    back[i] = std::move(incoming[i].places);
  }
  SHOAL_ASSIGN_OR_RETURN(const auto came, ExchangeBytes(machines(), "places", std::move(back),
                                                        most_back_to, most_back_from));
  std::vector<uint32_t> owner(buckets_);
  for (uint32_t i = 0; i < count; ++i) {
    if (i != rank && came[i].size() != 4 * Sent(rank, i, false)) return Unannounced(i);
    const machines::Run run = BucketsOf(i);
    std::fill(owner.begin() + static_cast<ptrdiff_t>(run.begin),
              owner.begin() + static_cast<ptrdiff_t>(run.end), i);
  }
  const std::vector<uint64_t> starts = PlaceStarts();
  std::vector<size_t> taken(count);
  for (size_t i = 0; i < target.size(); ++i) {
    const uint16_t bucket = positions_.bucket_of()[i];
    if (bucket == BucketDraw::kNowhere || owner[bucket] == rank) continue;
    const uint32_t from = owner[bucket];
    const auto place = LoadLe<uint32_t>(came[from].data() + 4 * taken[from]++);
    // Nobody gives away places that he does not own. The online stage takes places for indices.
    if (place < starts[from] || place >= starts[from + 1]) return Unannounced(from);
    target[i] = place;
  }
  return absl::OkStatus();
}

}  // namespace shoal::server
