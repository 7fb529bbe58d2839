#include "src/server/half_online.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/select/select.h"
#include "src/server/checked_output.h"
#include "src/sharing/halves.h"

namespace shoal::server {
namespace {

// Queries that one thread opens, or answers that it masks, at a time: their data stays in its
// cache, and the time is a few milliseconds at most.
constexpr size_t kAtOnce = 1024;
// Bytes of answers that are computed at a time where they go to a file.
constexpr size_t kFilePieceBytes = size_t{64} << 20;

const RoundContext::OfHalf& HalfOf(const RoundContext& context, sharing::Role role) {
  SHOAL_CHECK(context.half.has_value() && context.parties == 2);
  SHOAL_CHECK(context.is_backend() == (role == sharing::Role::kTail));
  return *context.half;
}

// The decoder has checked the order of the positions. This checks their number, and the records.
absl::Status CheckBatch(const OnlineMaterial& material, const wire::RecordBatch& batch,
                        size_t record_bytes) {
  if (!batch.positions.empty() && batch.positions.back() >= material.positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("query batch: position ", batch.positions.back(), " of ", material.positions));
  }
  if (batch.record_bytes != record_bytes ||
      batch.records.size() != record_bytes * batch.positions.size()) {
    return absl::InvalidArgumentError(absl::StrCat("query batch: records of ", batch.record_bytes,
                                                   " bytes, where this half has ", record_bytes));
  }
  return absl::OkStatus();
}

// v of parts, and which of them have a wrong tag.
void Open(const RoundContext::OfHalf& half, const OnlineMaterial& material,
          std::span<const uint32_t> positions, BytesView parts, MutableBytes forwarded,
          std::span<uint8_t> wrong) {
  sharing::OpenParts(material.seeds.data(), positions, half.ids, half.half, half.selection_bytes(),
                     parts, forwarded, wrong);
}

// The answers to some queries, of a piece that is handed out as one.
absl::Status AnswerSome(const RoundContext& context, const LastingSecrets& secrets,
                        const OnlineMaterial& material, std::span<const uint32_t> positions,
                        BytesView forwarded, std::span<const select::Rows> buckets,
                        const Resources& resources, MutableBytes answers) {
  const RoundContext::OfHalf& half = *context.half;
  const size_t v_bytes = half.forwarded_bytes(), selection_bytes = half.selection_bytes();
  const size_t tagged_bytes = context.tagged_bytes(), count = positions.size();
  SecretVector<uint32_t> asked(count);
  SecretVector<uint8_t> selections(count * selection_bytes), wrong(count);
  SecretVector<select::BucketQuery> queries(count);
  const auto open = [&](size_t begin, size_t end) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(resources.CheckLive());
    const size_t n = end - begin;
    sharing::OpenForwarded(
        material.seeds.data(), positions.subspan(begin, n), half.ids, half.half, half.buckets,
        forwarded.subspan(begin * v_bytes, n * v_bytes), std::span(asked).subspan(begin, n),
        MutableBytes(selections).subspan(begin * selection_bytes, n * selection_bytes),
        std::span(wrong).subspan(begin, n));
    for (size_t i = begin; i < end; ++i) {
      // Everybody knows the seed of a dead position, and can make its tag.
      wrong[i] |= static_cast<uint8_t>(material.dead(positions[i]));
      queries[i] = {
          .bucket = asked[i],
          .query = {
              .selection = BytesView(selections).subspan(i * selection_bytes, selection_bytes),
              .sum = answers.subspan(i * tagged_bytes, context.answer_bytes)}};
    }
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(resources.pool->TryParallelFor(count, kAtOnce, open));
  SHOAL_RETURN_IF_ERROR(select::SelectFromBuckets(buckets, half.buckets.most_places(), queries,
                                                  resources.pool, resources.ended));
  return resources.pool->TryParallelFor(
      count, kAtOnce, [&](size_t begin, size_t end) -> absl::Status {
        SHOAL_RETURN_IF_ERROR(resources.CheckLive());
        const MutableBytes some =
            answers.subspan(begin * tagged_bytes, (end - begin) * tagged_bytes);
        sharing::MaskHalf(material.seeds.data(), positions.subspan(begin, end - begin), half.ids,
                          half.half, sharing::Role::kTail, selection_bytes, context.answer_bytes,
                          some);
        FillDeadAnswers(
            tagged_bytes, secrets.DeadAnswerKey().data(), some,
            [&](size_t i) { return wrong[begin + i] != 0; },
            [&](size_t i) { return positions[begin + i]; });
        return absl::OkStatus();
      });
}

}  // namespace

size_t FirstWrongPart(const RoundContext& context, const OnlineMaterial& material,
                      std::span<const uint32_t> positions, BytesView parts) {
  const RoundContext::OfHalf& half = HalfOf(context, sharing::Role::kHead);
  const size_t part_bytes = half.part_bytes(), v_bytes = half.forwarded_bytes();
  SHOAL_CHECK(parts.size() == part_bytes * positions.size());
  SecretVector<uint8_t> forwarded(std::min(kAtOnce, positions.size()) * v_bytes);
  std::vector<uint8_t> wrong(std::min(kAtOnce, positions.size()));
  for (size_t first = 0; first < positions.size(); first += kAtOnce) {
    const size_t n = std::min(kAtOnce, positions.size() - first);
    const auto here = positions.subspan(first, n);
    SHOAL_CHECK(std::ranges::all_of(here, [&](uint32_t i) { return i < material.positions; }));
    Open(half, material, here, parts.subspan(first * part_bytes, n * part_bytes),
         MutableBytes(forwarded).first(n * v_bytes), std::span(wrong).first(n));
    for (size_t i = 0; i < n; ++i) {
      if (wrong[i] != 0 || material.dead(here[i])) return first + i;
    }
  }
  return positions.size();
}

absl::StatusOr<Forwarding> ForwardParts(const RoundContext& context, OnlineMaterial& material,
                                        const wire::RecordBatch& parts,
                                        const Resources& resources) {
  const RoundContext::OfHalf& half = HalfOf(context, sharing::Role::kHead);
  const size_t part_bytes = half.part_bytes(), v_bytes = half.forwarded_bytes();
  SHOAL_RETURN_IF_ERROR(CheckBatch(material, parts, part_bytes));
  ThreadPool& pool = *resources.pool;
  const size_t count = parts.positions.size(), noise = material.noise.size();
  SHOAL_CHECK(material.noise_records.size() == noise * v_bytes);
  SHOAL_RETURN_IF_ERROR(CheckNumbersFit(count + noise));

  Forwarding out;
  out.arena = material.arena;
  out.returned = material.memory.returned;
  out.places = count + noise;
  out.memory = std::exchange(material.forward_memory, {});
  if (out.memory.positions() != material.next_positions) {
    SHOAL_ASSIGN_OR_RETURN(out.memory, ForwardMemory::Create(material.next_positions));
  }
  const std::span<ForwardMemory::Item> items = out.memory.items();
  SecretVector<uint8_t> opened(count * v_bytes);
  const auto open = [&](size_t begin, size_t end) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(resources.CheckLive());
    const size_t n = end - begin;
    const auto positions = std::span(parts.positions).subspan(begin, n);
    std::vector<uint8_t> wrong(n);
    Open(half, material, positions,
         BytesView(parts.records).subspan(begin * part_bytes, n * part_bytes),
         MutableBytes(opened).subspan(begin * v_bytes, n * v_bytes), wrong);
    for (size_t i = 0; i < n; ++i) {
      uint32_t& target = material.target[positions[i]];
      if (wrong[i] != 0) target = OnlineMaterial::kDead;
      if (target == OnlineMaterial::kDead) continue;
      items[target].from = static_cast<uint32_t>(begin + i + 1);
    }
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(pool.TryParallelFor(count, kAtOnce, open));
  pool.ParallelFor(noise, kAtOnce, [&](size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      items[material.noise[k].position].from = static_cast<uint32_t>(count + k + 1);
    }
  });

  const UsedItems used(items, pool);
  out.count = used.count();
  const std::span<uint32_t> place = out.memory.place();
  wire::RecordBatchWriter writer(static_cast<uint32_t>(out.count), material.next_positions,
                                 v_bytes);
  used.ForEach(pool, [&](uint64_t at, uint32_t position, const ForwardMemory::Item& item) {
    const uint32_t number = item.from - 1;
    place[at] = number;
    writer.Put(
        at, position,
        number < count
            ? BytesView(opened).subspan(number * v_bytes, v_bytes)
            : BytesView(material.noise_records).subspan((number - count) * v_bytes, v_bytes));
  });
  out.queries = std::move(writer).Take();
  out.memory.FreeItems();
  SHOAL_RETURN_IF_ERROR(resources.CheckLive());
  return out;
}

absl::StatusOr<Spool> AnswerHalf(const RoundContext& context, const LastingSecrets& secrets,
                                 const OnlineMaterial& material, const wire::RecordBatch& forwarded,
                                 const AnswerTable& table, const Resources& resources) {
  const RoundContext::OfHalf& half = HalfOf(context, sharing::Role::kTail);
  const size_t v_bytes = half.forwarded_bytes(), answer_bytes = context.answer_bytes;
  const size_t tagged_bytes = context.tagged_bytes();
  SHOAL_CHECK(table.rows == half.buckets.rows());
  SHOAL_CHECK(table.bytes.size() == table.rows * answer_bytes);
  SHOAL_RETURN_IF_ERROR(CheckBatch(material, forwarded, v_bytes));
  std::vector<select::Rows> buckets;
  buckets.reserve(half.buckets.count());
  for (uint32_t b = 0; b < half.buckets.count(); ++b) {
    const uint64_t first = half.buckets.RowAt({.bucket = b, .place = 0});
    SHOAL_ASSIGN_OR_RETURN(
        const select::Rows rows,
        select::Rows::Strided(table.bytes.subspan(first * answer_bytes), answer_bytes,
                              half.buckets.count() * answer_bytes, half.buckets.PlacesIn(b)));
    buckets.push_back(rows);
  }

  const size_t count = forwarded.positions.size();
  const uint64_t bytes = count * tagged_bytes;
  SHOAL_ASSIGN_OR_RETURN(Spool answers,
                         material.arena != nullptr
                             ? material.arena->MakeList(bytes, material.memory.returned.memory)
                             : resources.spools->Create(bytes));
  answers.Touch(0, *resources.pool);  // zeros, to which rows are added
  const size_t at_once =
      answers.in_memory() ? count : std::max<size_t>(1, kFilePieceBytes / tagged_bytes);
  SecretVector<uint8_t> for_file;
  for (size_t first = 0; first < count; first += at_once) {
    const size_t n = std::min(at_once, count - first);
    if (!answers.in_memory()) for_file.assign(n * tagged_bytes, 0);
    const MutableBytes piece = answers.in_memory() ? answers.memory() : MutableBytes(for_file);
    SHOAL_RETURN_IF_ERROR(
        AnswerSome(context, secrets, material, std::span(forwarded.positions).subspan(first, n),
                   BytesView(forwarded.records).subspan(first * v_bytes, n * v_bytes), buckets,
                   resources, piece));
    if (answers.in_memory()) break;
    SHOAL_RETURN_IF_ERROR(answers.Write(first * tagged_bytes, piece, resources.pool));
  }
  return answers;
}

}  // namespace shoal::server
