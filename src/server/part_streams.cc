#include "src/server/part_streams.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"

namespace shoal::server {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr auto kLook = std::chrono::milliseconds(100);

}  // namespace

struct PartJoin::Part::Content {
  uint64_t offset, bytes;
  // One thread writes and another reads, in ranges apart: from `written` on, and before it.
  Spool spool;
  // State::mutex guards these.
  uint64_t written = 0;
  int users = 0;  // threads that write or read the spool now
};

struct PartJoin::State {
  Mutex mutex;
  CondVar came;
  absl::Status failed ABSL_GUARDED_BY(mutex);
  // Those that were not read to the end, by their offsets.
  std::map<uint64_t, std::shared_ptr<Part::Content>> parts ABSL_GUARDED_BY(mutex);

  bool all_read ABSL_GUARDED_BY(mutex) = false;

  bool Stop(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    if (failed.ok()) failed = error;
    came.NotifyAll();
    return !all_read;
  }
  // Who sends may keep its part for long, so the spools go now; one that is in use goes with Leave.
  void Fail(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex) {
    Stop(error);
    std::vector<Spool> idle;  // freed without the lock
    const MutexLock lock(mutex);
    for (const auto& [offset, content] : parts) {
      if (content->users == 0) idle.push_back(std::move(content->spool));
    }
    parts.clear();
  }
  // Ends a use of the content's spool. Returns the spool if nobody needs it any more.
  Spool Leave(Part::Content& content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return --content.users == 0 && !failed.ok() ? std::move(content.spool) : Spool();
  }
};

PartJoin::PartJoin(uint64_t bytes, SpoolPlace* spools, std::function<absl::Status()> over)
    : size_(bytes), spools_(spools), over_(std::move(over)), state_(std::make_shared<State>()) {
  const MutexLock lock(state_->mutex);
  state_->all_read = bytes == 0;
}

PartJoin::~PartJoin() { Fail(absl::CancelledError("nobody reads the list any more")); }

absl::StatusOr<std::unique_ptr<PartJoin::Part>> PartJoin::Begin(uint64_t offset, uint64_t bytes) {
  SHOAL_CHECK(offset <= size_ && bytes <= size_ - offset);
  auto content = std::make_shared<Part::Content>();
  content->offset = offset;
  content->bytes = bytes;
  if (bytes > 0) {
    {
      const MutexLock lock(state_->mutex);
      if (!state_->failed.ok()) return state_->failed;
    }
    SHOAL_ASSIGN_OR_RETURN(content->spool, spools_->Create(bytes));
    const MutexLock lock(state_->mutex);
    if (!state_->failed.ok()) return state_->failed;
    const auto after = state_->parts.lower_bound(offset);
    SHOAL_CHECK(after == state_->parts.end() || offset + bytes <= after->first);
    state_->parts.emplace_hint(after, offset, content);
  }
  return std::unique_ptr<Part>(new Part(state_, std::move(content)));
}

void PartJoin::Fail(const absl::Status& error) { state_->Fail(error); }
bool PartJoin::Stop(const absl::Status& error) { return state_->Stop(error); }

absl::StatusOr<BytesView> PartJoin::Next() {
  if (given_ == size_) return BytesView();
  State& state = *state_;
  std::shared_ptr<Part::Content> content;
  uint64_t begin = 0, end = 0;
  for (;;) {
    if (over_ != nullptr) SHOAL_RETURN_IF_ERROR(over_());
    const MutexLock lock(state.mutex);
    if (!state.failed.ok()) return state.failed;
    // The last part that begins at or before the next byte; what was read to the end is gone.
    const auto next = state.parts.begin();
    if (next != state.parts.end() && next->first <= given_) {
      content = next->second;
      begin = given_ - content->offset;
      end = std::min<uint64_t>(content->written, begin + kPieceBytes);
      if (begin < end) {
        ++content->users;
        break;
      }
    }
    state.came.WaitUntil(state.mutex, std::chrono::steady_clock::now() + kLook);
  }
  piece_.resize(end - begin);
  const absl::Status read = content->spool.Read(begin, piece_);
  Spool done;  // freed without the lock
  const MutexLock lock(state.mutex);
  done = state.Leave(*content);
  SHOAL_RETURN_IF_ERROR(read);
  if (!state.failed.ok()) return state.failed;
  given_ += piece_.size();
  state.all_read = given_ == size_;
  if (end == content->bytes) {
    done = std::move(content->spool);
    state.parts.erase(content->offset);
  }
  return BytesView(piece_);
}

PartJoin::Part::~Part() {
  if (!complete()) join_->Fail(absl::UnavailableError("a part of the list broke off"));
}

absl::Status PartJoin::Part::Take(BytesView piece) {
  uint64_t written;
  {
    const MutexLock lock(join_->mutex);
    if (!join_->failed.ok()) return join_->failed;
    written = content_->written;
    if (piece.size() > content_->bytes - written) {
      return absl::InvalidArgumentError("a part of the list is longer than was announced");
    }
    if (piece.empty()) return absl::OkStatus();
    ++content_->users;
  }
  const absl::Status put = content_->spool.Write(written, piece);
  Spool done;  // freed without the lock
  const MutexLock lock(join_->mutex);
  done = join_->Leave(*content_);
  SHOAL_RETURN_IF_ERROR(put);
  content_->written += piece.size();
  join_->came.NotifyAll();
  return absl::OkStatus();
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
