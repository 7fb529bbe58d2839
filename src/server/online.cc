#include "src/server/online.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/server/checked_output.h"
#include "src/server/offline.h"
#include "src/sharing/batch.h"
#include "src/sharing/halves.h"

namespace shoal::server {
namespace {

// Messages that one thread works on at a time, so that their data stays in its cache.
constexpr size_t kPositionsAtOnce = 1024;
// The same for answers, which may be long.
size_t ChunkOf(size_t tagged_bytes) {
  return std::clamp<size_t>((128 << 10) / tagged_bytes, 16, kPositionsAtOnce);
}
// Bytes of answers that are made, or put in order, at a time, by all threads.
constexpr size_t kPieceBytes = 2 << 20;
// The same as far as few threads need no more, so that the bytes stay in their caches.
size_t PieceBytes(const ThreadPool& pool) {
  return std::min(kPieceBytes, (pool.size() + 1) * (size_t{256} << 10));
}

absl::Status CheckPositions(const OnlineMaterial& material, const wire::QueryBatch& queries) {
  // The decoder has checked order and tallies. This checks the number of positions.
  if (!queries.positions.empty() && queries.positions.back() >= material.positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "query batch: position ", queries.positions.back(), " of ", material.positions));
  }
  return absl::OkStatus();
}

// Hands out the answers to a batch of queries, under this party's masks and tags, piece by piece.
template <typename Source>
class MaskedAnswers : public Source {
 public:
  MaskedAnswers(const AnswerKeysPointer& keys, const Resources& resources)
      : answer_bytes_(keys->context->answer_bytes),
        tagged_bytes_(keys->context->tagged_bytes()),
        count_(keys->queries->positions.size()),
        pool_(*resources.pool),
        making_piece_(resources.making_piece),
        keys_(keys) {}

  uint64_t size() const override { return count_ * tagged_bytes_; }

 protected:
  // What the next piece is made of, to be held until it is made.
  absl::StatusOr<AnswerKeysPointer> Keys() const {
    AnswerKeysPointer keys = keys_.lock();
    if (keys == nullptr) return absl::FailedPreconditionError("the round has ended");
    return keys;
  }

  // Makes the answers to the next queries, as many as `piece` has room for: fill(first, answers)
  // writes some as they come to this party, those to the queries from number `first` of all on, and
  // may be called on several threads. No answer is left without its mask and its tag (checked).
  template <typename Fill>
  void Make(const AnswerKeys& keys, MutableBytes piece, const Fill& fill) {
    const size_t count = piece.size() / tagged_bytes_;
    SHOAL_CHECK(piece.size() == count * tagged_bytes_ && count <= count_ - given_);
    if (making_piece_ != nullptr) (*making_piece_)(keys.context->round_id);
    std::atomic<size_t> masked = 0;
    pool_.ParallelFor(count, ChunkOf(tagged_bytes_), [&](size_t begin, size_t end) {
      const MutableBytes answers =
          piece.subspan(begin * tagged_bytes_, (end - begin) * tagged_bytes_);
      fill(given_ + begin, answers);
      masked += Mask(keys, given_ + begin, answers);
    });
    SHOAL_CHECK(masked == count);
    given_ += count;
  }

  const size_t answer_bytes_;
  const size_t tagged_bytes_;
  const size_t count_;  // of queries
  size_t given_ = 0;    // their answers so far
  ThreadPool& pool_;

 private:
  // Masks and tags the answers to the queries from number `first` on. Answers of dead positions
  // become pseudorandom. Returns how many it has masked and tagged.
  size_t Mask(const AnswerKeys& keys, size_t first, MutableBytes answers) const {
    const OnlineMaterial& material = *keys.material;
    const RoundContext& context = *keys.context;
    const auto positions =
        std::span(keys.queries->positions).subspan(first, answers.size() / tagged_bytes_);
    size_t masked = positions.size();
    if (context.half.has_value()) {
      sharing::MaskHalf(material.seeds.data(), positions, context.half->ids, context.half->half,
                        sharing::Role::kHead, context.half->selection_bytes(), answer_bytes_,
                        answers);
    } else {
      masked = material.pads.size() > 0
                   ? sharing::MaskAnswersFromPads(material.pads.memory().data(), positions,
                                                  answer_bytes_, context.tag_covers(), answers)
                   : sharing::MaskAnswers(material.seeds.data(), positions, context.round_id,
                                          answer_bytes_, context.tag_covers(), answers);
    }
    FillDeadAnswers(
        tagged_bytes_, keys.secrets->DeadAnswerKey().data(), answers,
        [&](size_t i) { return material.dead(positions[i]); },
        // The same for any number of machines.
        [&](size_t i) { return uint64_t{material.first_position} + positions[i]; });
    return masked;
  }

  const std::function<void(const Digest&)>* const making_piece_;
  const std::weak_ptr<const AnswerKeys> keys_;
};

// Answers from the rows of the table.
class BackendAnswers final : public MaskedAnswers<ByteSource> {
 public:
  BackendAnswers(const AnswerKeysPointer& keys, const AnswerTable& table,
                 const Resources& resources)
      : MaskedAnswers(keys, resources), table_(table), no_row_(answer_bytes_) {}

  absl::StatusOr<BytesView> Next() override {
    if (given_ == count_) return BytesView();
    SHOAL_ASSIGN_OR_RETURN(const AnswerKeysPointer keys, Keys());
    const OnlineMaterial& material = *keys->material;
    const wire::QueryBatch& queries = *keys->queries;
    const size_t count =
        std::min(count_ - given_, std::max<size_t>(1, PieceBytes(pool_) / tagged_bytes_));
    piece_.resize(count * tagged_bytes_);
    Make(*keys, piece_, [&](size_t at, MutableBytes answers) {
      CopyRows(answer_bytes_, tagged_bytes_, answers, [&](size_t i) {
        const uint64_t row =
            sharing::Advance(material.shares[queries.positions[at + i]], queries.tallies[at + i]);
        return row < table_.rows ? table_.bytes.data() + row * answer_bytes_ : no_row_.data();
      });
    });
    return BytesView(piece_);
  }

 private:
  const AnswerTable table_;  // whose bytes the keys hold
  const Bytes no_row_;       // zeros, for queries that name no row
  SecretVector<uint8_t> piece_;
};

// The next party's answers, in the order of this party's queries. Masks them where they lie, each
// once, as no piece is given twice.
class ReturnedAnswers final : public MaskedAnswers<AnswerSource> {
 public:
  ReturnedAnswers(const AnswerKeysPointer& keys, shuffle::Scatter scatter,
                  const Resources& resources)
      : MaskedAnswers(keys, resources), scatter_(std::move(scatter)) {}

  absl::StatusOr<BytesView> Next() override {
    if (given_ == count_) return BytesView();
    SHOAL_ASSIGN_OR_RETURN(const AnswerKeysPointer keys, Keys());
    SHOAL_ASSIGN_OR_RETURN(const MutableBytes piece, scatter_.Next(pool_));
    Make(*keys, piece, [](size_t, MutableBytes) {});  // they are there
    return BytesView(piece);
  }

  bool in_memory() const override { return scatter_.in_memory(); }
  Spool TakeList() override {
    SHOAL_CHECK(given_ == count_);
    return std::move(scatter_).TakeSpool();
  }

 private:
  shuffle::Scatter scatter_;
};

// The message of one machine, and the way back for its answers.
absl::StatusOr<Forwarding> Forward(const RoundContext& context, OnlineMaterial& material,
                                   const wire::QueryBatch& queries, const Resources& resources) {
  SHOAL_RETURN_IF_ERROR(CheckPositions(material, queries));
  ThreadPool& pool = *resources.pool;
  const size_t count = queries.positions.size();
  SHOAL_RETURN_IF_ERROR(CheckNumbersFit(count + material.noise.size()));

  using Item = ForwardMemory::Item;
  Forwarding out;
  out.arena = material.arena;
  out.returned = material.memory.returned;
  out.memory = std::exchange(material.forward_memory, {});
  if (out.memory.positions() != material.next_positions) {
    SHOAL_ASSIGN_OR_RETURN(out.memory, ForwardMemory::Create(material.next_positions));
  }
  const std::span<Item> items = out.memory.items();
  pool.ParallelFor(count, kPositionsAtOnce, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const uint32_t position = queries.positions[i];
      // Large for other machines' places and for dead positions.
      const uint32_t target = material.target[position] - material.first_place;
      if (target >= items.size()) continue;
      items[target] = {sharing::Advance(material.shares[position], queries.tallies[i]),
                       static_cast<uint32_t>(i + 1)};
    }
  });
  pool.ParallelFor(material.noise.size(), kPositionsAtOnce, [&](size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      items[material.noise[k].position - material.first_place] = {
          material.noise[k].tally, static_cast<uint32_t>(count + k + 1)};
    }
  });
  out.places = count + material.noise.size();
  SHOAL_ASSIGN_OR_RETURN(out.routes,
                         QueryRoutes::Forward(material, queries, out.places, items, resources));

  // Collects the used positions in order.
  const UsedItems used(items, pool);
  out.count = used.count();
  const std::span<uint32_t> place = out.memory.place();
  using Form = wire::QueryBatchWriter::Form;
  const bool batch = context.sends_batch(resources);
  wire::QueryBatchWriter writer(static_cast<uint32_t>(out.count), material.next_positions,
                                batch ? Form::kBatch : Form::kMessage,
                                std::exchange(out.memory.message(), {}));
  used.ForEach(pool, [&](uint64_t at, uint32_t position, const Item& item) {
    writer.Put(at, position, item.tally);
    place[at] = item.from - 1;
  });
  if (batch) {
    out.batch = std::make_shared<const wire::QueryBatch>(std::move(writer).TakeBatch());
  } else {
    out.queries = std::move(writer).Take();
  }
  out.memory.FreeItems();
  return out;
}

}  // namespace

absl::StatusOr<Forwarding> ForwardQueries(const RoundContext& context, OnlineMaterial& material,
                                          const wire::QueryBatch& queries,
                                          const Resources& resources) {
  SHOAL_CHECK(!context.is_backend() && !context.half.has_value());
  absl::StatusOr<Forwarding> out = Forward(context, material, queries, resources);
  if (!out.ok()) resources.machines->GiveUp();
  return out;
}

absl::StatusOr<AnswerIntake> AnswerIntake::Begin(const RoundContext& context,
                                                 const wire::QueryBatch& queries,
                                                 const Forwarding& forwarding,
                                                 std::span<const uint64_t> part_bytes,
                                                 const Resources& resources) {
  absl::StatusOr<AnswerIntake> intake =
      TryBegin(context, queries, forwarding, part_bytes, resources);
  if (!intake.ok()) resources.machines->GiveUp();
  return intake;
}

absl::StatusOr<AnswerIntake> AnswerIntake::TryBegin(const RoundContext& context,
                                                    const wire::QueryBatch& queries,
                                                    const Forwarding& forwarding,
                                                    std::span<const uint64_t> part_bytes,
                                                    const Resources& resources) {
  SHOAL_CHECK(!context.is_backend());
  const uint64_t expected = forwarding.count * context.tagged_bytes();
  const uint64_t bytes = std::accumulate(part_bytes.begin(), part_bytes.end(), uint64_t{0});
  if (bytes != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("answers: ", bytes, " bytes, where ", forwarding.count, " queries of ",
                     context.tagged_bytes(), " bytes each were asked"));
  }
  std::vector<Part> parts;
  uint64_t begun = 0;
  for (const uint64_t part : part_bytes) {
    SHOAL_CHECK(part <= expected - begun);
    if (part % context.tagged_bytes() != 0) {
      return absl::InvalidArgumentError(absl::StrCat("answers: a part of ", part, " bytes"));
    }
    parts.push_back({begun, begun / context.tagged_bytes(),
                     RecordCutter(part / context.tagged_bytes(), context.tagged_bytes())});
    begun += part;
  }
  const SecretVector<uint64_t>& came = forwarding.routes.came();
  const uint64_t own = forwarding.places;
  const uint64_t all = std::accumulate(came.begin(), came.end(), own);
  // Without a reservation a list may have what nobody has reserved, but not what this round's other
  // lists will need.
  uint64_t reserved = forwarding.arena == nullptr ? 0 : forwarding.returned.memory;
  const auto memory_of = [&](uint64_t places) {
    return shuffle::Scatter::MemoryBytes(places, context.tagged_bytes());
  };
  const auto make = [&](uint64_t wanted, uint64_t places,
                        uint64_t bucket_bytes) -> absl::StatusOr<shuffle::Scatter> {
    const uint64_t memory = memory_of(places);
    const bool fits = forwarding.arena != nullptr && memory <= reserved;
    SHOAL_ASSIGN_OR_RETURN(Spool list, fits ? forwarding.arena->MakeList(memory, memory)
                                            : resources.spools->Create(memory));
    reserved -= fits ? memory : 0;
    return shuffle::Scatter::CreateFor(wanted, places, context.tagged_bytes(), bucket_bytes,
                                       std::move(list));
  };
  constexpr uint64_t kBucketBytes = shuffle::Scatter::kBucketBytes;
  const uint64_t wanted = queries.positions.size();
  // In memory one list has all answers, so that the memory of the offline stage's list serves for
  // all, and nothing has to tell them apart as they are put.
  if (all == own || memory_of(all) <= std::max(reserved, resources.spools->free_bytes())) {
    SHOAL_ASSIGN_OR_RETURN(shuffle::Scatter scatter, make(wanted, all, kBucketBytes));
    // Somebody else may have taken that memory.
    if (all == own || scatter.in_memory()) {
      return AnswerIntake(context.tagged_bytes(), &forwarding, std::move(parts), std::move(scatter),
                          resources);
    }
  }
  SHOAL_ASSIGN_OR_RETURN(shuffle::Scatter scatter, make(wanted, own, kBucketBytes));
  AnswerIntake intake(context.tagged_bytes(), &forwarding, std::move(parts), std::move(scatter),
                      resources);
  // These are read at the same time, one bucket of each: all buckets together have one's bytes.
  for (const uint64_t each : came) {
    SHOAL_ASSIGN_OR_RETURN(intake.in_files_.emplace_back(),
                           make(each, each, kBucketBytes / came.size()));
  }
  return intake;
}

std::vector<std::unique_ptr<ByteSource>> AnswerIntake::TakeOthers() {
  const SecretVector<uint64_t>& came = forwarding_->routes.came();
  std::vector<std::unique_ptr<ByteSource>> out;
  if (!in_files_.empty()) {
    for (shuffle::Scatter& list : in_files_) {
      out.push_back(std::make_unique<OrderedList>(std::move(list), resources_.pool));
    }
    return out;
  }
  uint64_t place = forwarding_->places;
  for (const uint64_t each : came) {
    const BytesView records = each == 0 ? BytesView() : scatter_.Records(place, each);
    out.push_back(std::make_unique<ViewSource>(records));
    place += each;
  }
  return out;
}

absl::Status AnswerIntake::TakeAt(uint64_t offset, BytesView piece) {
  // The last one: those that are complete end where the next one begins.
  const auto part = std::find_if(parts_.rbegin(), parts_.rend(),
                                 [&](const Part& each) { return each.next == offset; });
  SHOAL_CHECK(part != parts_.rend());
  const absl::Status status = part->cutter.Cut(
      piece, "answers", [&](BytesView answers) { return PutWhole(*part, answers); });
  part->next += piece.size();
  at_ = part->next;
  if (!status.ok()) resources_.machines->GiveUp();
  return status;
}

absl::Status AnswerIntake::PutWhole(Part& part, BytesView answers) {
  const size_t n = answers.size() / tagged_bytes_;
  const std::span places = forwarding_->memory.place().subspan(part.answer, n);
  part.answer += n;
  if (in_files_.empty()) return scatter_.Put(places, answers, *resources_.pool);
  const size_t most = std::max<size_t>(1, kPieceBytes / tagged_bytes_);
  for (size_t at = 0; at < n; at += most) {
    const size_t now = std::min(most, n - at);
    SHOAL_RETURN_IF_ERROR(PutToFiles(places.subspan(at, now),
                                     answers.subspan(at * tagged_bytes_, now * tagged_bytes_)));
  }
  return absl::OkStatus();
}

absl::Status AnswerIntake::PutToFiles(std::span<const uint32_t> places, BytesView answers) {
  ThreadPool& pool = *resources_.pool;
  const auto own = static_cast<uint32_t>(forwarding_->places);
  // Each answer is copied once by one of two passes, and none of the steps that tell the lists
  // apart is a jump.
  own_.resize(places.size());
  elsewhere_.resize(places.size());
  size_t others = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const bool here = places[i] < own;
    own_[i] = here ? places[i] : shuffle::Scatter::kNowhere;
    elsewhere_[others] = static_cast<uint32_t>(i);
    others += !here;
  }
  SHOAL_RETURN_IF_ERROR(scatter_.Put(own_, answers, pool));

  // Those of other machines are first put in the order of their lists, so that the work does not
  // grow with the number of lists. The places of list k are from starts[k] on.
  const SecretVector<uint64_t>& came = forwarding_->routes.came();
  const size_t lists = came.size();
  SecretVector<uint64_t> starts(lists), at(lists + 1);
  for (size_t k = 0; k < lists; ++k) starts[k] = k == 0 ? own : starts[k - 1] + came[k - 1];
  order_.resize(others);
  places_.resize(others);
  for (size_t i = 0; i < others; ++i) {
    const uint32_t place = places[elsewhere_[i]];
    const size_t list =
        static_cast<size_t>(std::ranges::upper_bound(starts, place) - starts.begin()) - 1;
    order_[i] = static_cast<uint32_t>(list);  // until its place in the order is known
    ++at[list + 1];
  }
  std::partial_sum(at.begin(), at.end(), at.begin());
  ordered_.resize(others * tagged_bytes_);
  SecretVector<uint64_t> next(at.begin(), at.end());
  for (size_t i = 0; i < others; ++i) {
    const size_t list = order_[i];
    order_[i] = static_cast<uint32_t>(next[list]++);
    places_[order_[i]] = static_cast<uint32_t>(places[elsewhere_[i]] - starts[list]);
  }
  pool.ParallelFor(others, ChunkOf(tagged_bytes_), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      std::copy_n(answers.data() + elsewhere_[i] * tagged_bytes_, tagged_bytes_,
                  ordered_.data() + order_[i] * tagged_bytes_);
    }
  });
  for (size_t k = 0; k < lists; ++k) {
    const uint64_t begin = at[k], count = at[k + 1] - begin;
    SHOAL_RETURN_IF_ERROR(in_files_[k].Put(
        std::span(places_).subspan(begin, count),
        BytesView(ordered_).subspan(begin * tagged_bytes_, count * tagged_bytes_), pool));
  }
  return absl::OkStatus();
}

AnswerKeysPointer AnswerKeys::Of(const RoundContext& context, const LastingSecrets& secrets,
                                 const OnlineMaterial& material, const wire::QueryBatch& queries) {
  const auto alias = [](const auto& object) {
    return std::shared_ptr<const std::remove_reference_t<decltype(object)>>(
        std::shared_ptr<const void>(), &object);
  };
  return std::make_shared<const AnswerKeys>(
      AnswerKeys{alias(context), alias(secrets), alias(material), alias(queries)});
}

absl::StatusOr<std::unique_ptr<AnswerSource>> ReturnAnswers(const AnswerKeysPointer& keys,
                                                            AnswerIntake intake,
                                                            const Resources& resources) {
  const RoundContext& context = *keys->context;
  SHOAL_CHECK(!context.is_backend());
  const absl::Status returned =
      intake.complete() ? intake.forwarding_->routes.Return(intake.TakeOthers(), intake.scatter_,
                                                            context.tagged_bytes(), resources)
                        : absl::InvalidArgumentError("answers: not all of them came");
  if (!returned.ok()) {
    resources.machines->GiveUp();
    return returned;
  }
  // The list may live as long as clients fetch their answers. What is another machine's, without
  // this party's masks, has no place in it.
  intake.scatter_.WipeFrom(intake.forwarding_->places);
  if (keys->material->arena != nullptr) keys->material->arena->Touched();
  return std::make_unique<ReturnedAnswers>(keys, std::move(intake.scatter_), resources);
}

absl::StatusOr<std::unique_ptr<ByteSource>> AnswerQueries(const AnswerKeysPointer& keys,
                                                          const AnswerTable& table,
                                                          const Resources& resources) {
  SHOAL_CHECK(keys->context->is_backend() && !keys->context->half.has_value());
  SHOAL_CHECK(table.bytes.size() == table.rows * keys->context->answer_bytes);
  const absl::Status status = CheckPositions(*keys->material, *keys->queries);
  if (!status.ok()) {
    resources.machines->GiveUp();
    return status;
  }
  return std::make_unique<BackendAnswers>(keys, table, resources);
}

}  // namespace shoal::server
