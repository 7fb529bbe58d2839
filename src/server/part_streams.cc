#include "src/server/part_streams.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"

namespace shoal::server {
namespace {

// Given out at a time at most.
constexpr size_t kPieceBytes = 1 << 20;
constexpr auto kLook = std::chrono::milliseconds(100);
// How long those who send wait for somebody to begin to read, once. Where one machine answers
// several in turn, the last one's answers come so much later for each of the others.
constexpr auto kMoment = std::chrono::milliseconds(20);
// What waits of a part lies in spools of this size or an eighth of the part, whichever is more: the
// memory of those that were read serves the next ones.
constexpr uint64_t kLeastSpoolBytes = 1 << 20;
constexpr uint64_t kSpoolsOfAPart = 8;

}  // namespace

struct PartJoin::Part::Content {
  uint64_t offset, bytes;
  uint64_t spool_bytes;
  // State::mutex guards these.
  uint64_t written = 0, given = 0;
  bool offered = false;  // what it takes now is one of State::offers
  // By their number. Those that were read to the end are gone.
  std::map<uint64_t, std::shared_ptr<Spool>> spools;

  // The end of what can be given out next, of one spool.
  uint64_t SpooledEnd() const {
    return std::min({written, given + kPieceBytes, (given / spool_bytes + 1) * spool_bytes});
  }
};

struct PartJoin::State {
  State(SpoolPlace* place, Reading how) : spools(place), as_it_comes(how == Reading::kAsItComes) {}

  SpoolPlace* const spools;
  const bool as_it_comes;
  Mutex mutex;
  CondVar came;
  absl::Status failed ABSL_GUARDED_BY(mutex);
  // Those that were not read to the end, by their offsets.
  std::map<uint64_t, std::shared_ptr<Part::Content>> parts ABSL_GUARDED_BY(mutex);
  // While Next waits: where whoever brings byte `wanted` puts it and what follows. So what comes in
  // its turn lies in no spool.
  Bytes* into ABSL_GUARDED_BY(mutex) = nullptr;
  uint64_t wanted ABSL_GUARDED_BY(mutex) = 0;
  bool filling ABSL_GUARDED_BY(mutex) = false;  // somebody puts it there now
  bool filled ABSL_GUARDED_BY(mutex) = false;

  // Read as it comes: what waits to be read, in the order in which it came. Who sends keeps it.
  struct Offer {
    std::shared_ptr<Part::Content> content;
    BytesView piece;
  };
  bool begun ABSL_GUARDED_BY(mutex) = false;    // to read
  bool waited ABSL_GUARDED_BY(mutex) = false;   // for that, in vain
  bool reading ABSL_GUARDED_BY(mutex) = false;  // the first offer is being read
  std::deque<Offer> offers ABSL_GUARDED_BY(mutex);
  CondVar read;  // something was, or the join has failed

  uint64_t given ABSL_GUARDED_BY(mutex) = 0;
  bool all_read ABSL_GUARDED_BY(mutex) = false;

  bool Stop(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    if (failed.ok()) failed = error;
    came.NotifyAll();
    read.NotifyAll();
    return !all_read;
  }
  // Who sends may keep its part for long, so the spools go now; one that is in use goes with its
  // use.
  void Fail(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex) {
    Stop(error);
    std::vector<std::shared_ptr<Spool>> gone;  // freed without the lock
    const MutexLock lock(mutex);
    for (const auto& [offset, content] : parts) {
      for (auto& [number, spool] : content->spools) gone.push_back(std::move(spool));
      content->spools.clear();
    }
    parts.clear();
  }
  // The next bytes of `content` have been given out, of `size` in all.
  void Give(Part::Content& content, uint64_t bytes, uint64_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    given += bytes;
    content.given += bytes;
    all_read = given == size;
    content.spools.erase(content.spools.begin(),
                         content.spools.lower_bound(content.given / content.spool_bytes));
    if (content.given == content.bytes) {
      content.spools.clear();
      parts.erase(content.offset);
    }
    read.NotifyAll();
  }
  // Who reads is done with what it was given last.
  void Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!std::exchange(reading, false)) return;
    offers.front().content->offered = false;
    offers.pop_front();
    read.NotifyAll();
  }
  // Whether somebody reads, or begins to in a moment.
  bool WaitForReader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto until = std::chrono::steady_clock::now() + kMoment;
    while (!begun && !waited && failed.ok()) waited = !read.WaitUntil(mutex, until);
    return begun;
  }
  // Returns once `piece`, the next bytes of `content`, has been read. Somebody reads.
  absl::Status HandOver(const std::shared_ptr<Part::Content>& content, BytesView piece)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    // What came before anybody read.
    while (failed.ok() && content->given < content->written) read.Wait(mutex);
    if (!failed.ok()) return failed;
    content->offered = true;
    offers.push_back({content, piece});
    came.NotifyAll();
    while (content->offered) {
      const bool in_use = reading && offers.front().content == content;
      if (!failed.ok() && !in_use) {
        std::erase_if(offers, [&](const Offer& offer) { return offer.content == content; });
        content->offered = false;
        return failed;
      }
      read.Wait(mutex);
    }
    return absl::OkStatus();
  }
};

PartJoin::PartJoin(uint64_t bytes, SpoolPlace* spools, std::function<absl::Status()> over,
                   Reading reading)
    : size_(bytes), over_(std::move(over)), state_(std::make_shared<State>(spools, reading)) {
  const MutexLock lock(state_->mutex);
  state_->all_read = bytes == 0;
}

PartJoin::~PartJoin() { Drop(); }

void PartJoin::Drop() {
  {
    const MutexLock lock(state_->mutex);
    state_->Release();
  }
  Fail(absl::CancelledError("nobody reads the list any more"));
}

absl::StatusOr<std::unique_ptr<PartJoin::Part>> PartJoin::Begin(uint64_t offset, uint64_t bytes) {
  SHOAL_CHECK(offset <= size_ && bytes <= size_ - offset);
  State& state = *state_;
  auto content = std::make_shared<Part::Content>();
  content->offset = offset;
  content->bytes = bytes;
  content->spool_bytes = std::max(kLeastSpoolBytes, bytes / kSpoolsOfAPart + 1);
  if (bytes > 0) {
    {
      const MutexLock lock(state.mutex);
      if (!state.failed.ok()) return state.failed;
    }
    // Room on a disk is taken now, in one file, so that what lacks is known before anything comes.
    if (state.spools->free_bytes() < bytes) {
      content->spool_bytes = bytes;
      SHOAL_ASSIGN_OR_RETURN(Spool whole, state.spools->Create(bytes));
      content->spools.emplace(0, std::make_shared<Spool>(std::move(whole)));
    }
    const MutexLock lock(state.mutex);
    if (!state.failed.ok()) return state.failed;
    const auto after = state.parts.lower_bound(offset);
    SHOAL_CHECK(after == state.parts.end() || offset + bytes <= after->first);
    state.parts.emplace_hint(after, offset, content);
  }
  return std::unique_ptr<Part>(new Part(state_, std::move(content)));
}

void PartJoin::Fail(const absl::Status& error) { state_->Fail(error); }
bool PartJoin::Stop(const absl::Status& error) { return state_->Stop(error); }

absl::StatusOr<BytesView> PartJoin::Next() {
  State& state = *state_;
  SHOAL_CHECK(!state.as_it_comes);
  held_.reset();
  std::shared_ptr<Part::Content> content;
  uint64_t begin = 0, end = 0;
  for (;;) {
    const absl::Status over = over_ == nullptr ? absl::OkStatus() : over_();
    const MutexLock lock(state.mutex);
    if (state.given == size_) return BytesView();
    while (state.filling) state.came.Wait(state.mutex);
    state.into = nullptr;
    const bool filled = std::exchange(state.filled, false);
    SHOAL_RETURN_IF_ERROR(over);
    if (!state.failed.ok()) return state.failed;
    // The last part that begins at or before the next byte; what was read to the end is gone.
    const auto next = state.parts.begin();
    if (next != state.parts.end() && next->first <= state.given) content = next->second;
    if (filled) {
      state.Give(*content, piece_.size(), size_);
      return BytesView(piece_);
    }
    if (content != nullptr) {
      begin = content->given;
      end = content->SpooledEnd();
      if (begin < end) {
        held_ = content->spools.at(begin / content->spool_bytes);
        break;
      }
    }
    piece_.reserve(kPieceBytes);  // here, so that who fills it needs no memory
    state.into = &piece_;
    state.wanted = state.given;
    state.came.WaitUntil(state.mutex, std::chrono::steady_clock::now() + kLook);
  }
  SHOAL_ASSIGN_OR_RETURN(const BytesView piece, Spooled(begin % content->spool_bytes, end - begin));
  const MutexLock lock(state.mutex);
  if (!state.failed.ok()) return state.failed;
  state.Give(*content, piece.size(), size_);
  return piece;
}

absl::StatusOr<PartedSource::Piece> PartJoin::NextOfAny() {
  State& state = *state_;
  SHOAL_CHECK(state.as_it_comes);
  held_.reset();
  std::shared_ptr<Part::Content> content;
  uint64_t begin = 0, end = 0;
  for (;;) {
    const absl::Status over = over_ == nullptr ? absl::OkStatus() : over_();
    const MutexLock lock(state.mutex);
    if (!std::exchange(state.begun, true)) state.read.NotifyAll();
    state.Release();
    if (state.given == size_) return PartedSource::Piece{size_, {}};
    SHOAL_RETURN_IF_ERROR(over);
    if (!state.failed.ok()) return state.failed;
    const auto spooled = std::ranges::find_if(
        state.parts, [](const auto& part) { return part.second->given < part.second->written; });
    if (spooled != state.parts.end()) {
      content = spooled->second;
      begin = content->given;
      end = content->SpooledEnd();
      held_ = content->spools.at(begin / content->spool_bytes);
      break;
    }
    if (!state.offers.empty()) {
      const State::Offer& offer = state.offers.front();
      state.reading = true;
      const PartedSource::Piece piece = {offer.content->offset + offer.content->given, offer.piece};
      offer.content->written += piece.bytes.size();
      state.Give(*offer.content, piece.bytes.size(), size_);
      return piece;
    }
    state.came.WaitUntil(state.mutex, std::chrono::steady_clock::now() + kLook);
  }
  SHOAL_ASSIGN_OR_RETURN(const BytesView piece, Spooled(begin % content->spool_bytes, end - begin));
  const MutexLock lock(state.mutex);
  if (!state.failed.ok()) return state.failed;
  state.Give(*content, piece.size(), size_);
  return PartedSource::Piece{content->offset + begin, piece};
}

// Bytes of the spool that is held.
absl::StatusOr<BytesView> PartJoin::Spooled(uint64_t at, uint64_t bytes) {
  if (held_->in_memory()) return BytesView(held_->memory()).subspan(at, bytes);
  piece_.resize(bytes);
  SHOAL_RETURN_IF_ERROR(held_->Read(at, piece_));
  held_.reset();
  return BytesView(piece_);
}

absl::StatusOr<Bytes> ReadAll(PartedSource& source) {
  Bytes all(source.size());
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const PartedSource::Piece piece, source.NextOfAny());
    if (piece.bytes.empty()) return all;
    SHOAL_CHECK(piece.offset <= all.size() && piece.bytes.size() <= all.size() - piece.offset);
    std::ranges::copy(piece.bytes, all.begin() + static_cast<ptrdiff_t>(piece.offset));
  }
}

absl::StatusOr<PartedSource::Piece> OnePart::NextOfAny() {
  SHOAL_ASSIGN_OR_RETURN(const BytesView bytes, whole_->Next());
  const Piece piece = {given_, bytes};
  given_ += bytes.size();
  return piece;
}

PartJoin::Part::~Part() {
  if (!complete()) join_->Fail(absl::UnavailableError("a part of the list broke off"));
}

absl::Status PartJoin::Part::Take(BytesView piece) {
  State& state = *join_;
  while (!piece.empty()) {
    Bytes* into = nullptr;
    uint64_t written;
    std::shared_ptr<Spool> spool;
    {
      const MutexLock lock(state.mutex);
      if (!state.failed.ok()) return state.failed;
      written = content_->written;
      if (piece.size() > content_->bytes - written) {
        return absl::InvalidArgumentError("a part of the list is longer than was announced");
      }
      if (state.as_it_comes) {
        if (state.WaitForReader()) return state.HandOver(content_, piece);
        if (!state.failed.ok()) return state.failed;
      }
      if (state.wanted == content_->offset + written && state.into != nullptr) {
        into = std::exchange(state.into, nullptr);
        state.filling = true;
      } else if (const auto begun = content_->spools.find(written / content_->spool_bytes);
                 begun != content_->spools.end()) {
        spool = begun->second;
      }
    }
    size_t taken;
    if (into != nullptr) {
      taken = std::min(piece.size(), kPieceBytes);
      into->assign(piece.begin(), piece.begin() + static_cast<ptrdiff_t>(taken));
    } else {
      SHOAL_ASSIGN_OR_RETURN(taken, PutToSpool(written, piece, spool));
    }
    const MutexLock lock(state.mutex);
    if (into != nullptr) {
      state.filling = false;
      state.filled = true;
    }
    state.came.NotifyAll();
    content_->written += taken;
    piece = piece.subspan(taken);
  }
  // Whatever has happened since: who reads may have all by now, and have ended the join.
  return absl::OkStatus();
}

absl::StatusOr<size_t> PartJoin::Part::PutToSpool(uint64_t written, BytesView piece,
                                                  std::shared_ptr<Spool> spool) {
  const uint64_t number = written / content_->spool_bytes, at = written % content_->spool_bytes;
  if (spool == nullptr) {
    const uint64_t left = content_->bytes - number * content_->spool_bytes;
    SHOAL_ASSIGN_OR_RETURN(Spool made,
                           join_->spools->Create(std::min(left, content_->spool_bytes)));
    spool = std::make_shared<Spool>(std::move(made));
    const MutexLock lock(join_->mutex);
    if (!join_->failed.ok()) return join_->failed;
    content_->spools[number] = spool;
  }
  const size_t now = std::min<uint64_t>(piece.size(), spool->size() - at);
  SHOAL_RETURN_IF_ERROR(spool->Write(at, piece.first(now)));
  return now;
}

bool PartJoin::Part::complete() const {
  const MutexLock lock(join_->mutex);
  return content_->written == content_->bytes;
}

namespace {

struct Split : std::enable_shared_from_this<Split> {
  std::unique_ptr<ByteSource> whole;
  std::vector<uint64_t> sizes;
  std::function<void(size_t, absl::StatusOr<std::unique_ptr<ByteSource>>)> ready;
  BytesView piece;  // what is left of the whole's last piece

  void Begin(size_t part);
  void FailFrom(size_t part) {
    for (; part < sizes.size(); ++part) {
      ready(part, absl::UnavailableError("an earlier part of the list was not taken"));
    }
  }
};

class SplitPart final : public ByteSource {
 public:
  SplitPart(std::shared_ptr<Split> split, size_t number)
      : split_(std::move(split)), number_(number), left_(split_->sizes[number]) {}
  ~SplitPart() override {
    if (!ended_) split_->FailFrom(number_ + 1);
  }

  uint64_t size() const override { return split_->sizes[number_]; }
  absl::StatusOr<BytesView> Next() override {
    if (left_ == 0) {
      if (!std::exchange(ended_, true)) split_->Begin(number_ + 1);
      return BytesView();
    }
    if (split_->piece.empty()) {
      SHOAL_ASSIGN_OR_RETURN(split_->piece, split_->whole->Next());
      if (split_->piece.empty()) return absl::InternalError("a list ended early");
    }
    const BytesView given = split_->piece.first(std::min<uint64_t>(left_, split_->piece.size()));
    split_->piece = split_->piece.subspan(given.size());
    left_ -= given.size();
    return given;
  }

 private:
  const std::shared_ptr<Split> split_;
  const size_t number_;
  uint64_t left_;
  bool ended_ = false;
};

void Split::Begin(size_t part) {
  if (part < sizes.size()) ready(part, std::make_unique<SplitPart>(shared_from_this(), part));
}

}  // namespace

void SplitSource(
    std::unique_ptr<ByteSource> whole, std::vector<uint64_t> sizes,
    std::function<void(size_t part, absl::StatusOr<std::unique_ptr<ByteSource>>)> ready) {
  SHOAL_CHECK(std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}) == whole->size());
  const auto split = std::make_shared<Split>();
  split->whole = std::move(whole);
  split->sizes = std::move(sizes);
  split->ready = std::move(ready);
  split->Begin(0);
}

}  // namespace shoal::server
