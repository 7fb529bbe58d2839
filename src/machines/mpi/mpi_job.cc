#include "src/machines/mpi/mpi_job.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi/mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"

namespace shoal::machines {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Chunks that have been taken from a lane's user for one machine and have not begun to arrive
// there.
constexpr size_t kRoom = 3;
// Chunks from one machine that lie here for a lane's user.
constexpr size_t kInbox = 2;
constexpr size_t kRandomBytes = 32;
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::milliseconds kLongestSleep{5};
constexpr std::chrono::milliseconds kLongestWait{10};
constexpr std::chrono::seconds kParentPeriod{1};

// Each lane has two tags, after those of the job's beginning. On the second one pass words: signs
// of life, and these two, which are shorter than any sign.
enum class Kind { kChunk = 0, kWord = 1 };
constexpr size_t kByeBytes = 0;    // nothing else comes from this machine on this lane
constexpr size_t kAbortBytes = 1;  // the lane has ended
constexpr size_t kMostWordBytes = 256;
int TagOf(uint32_t lane, Kind kind) {
  return static_cast<int>(2 * (lane + 1)) + static_cast<int>(kind);
}

absl::Status Failed(const char* call) {
  return absl::UnavailableError(absl::StrCat("MPI has failed: ", call));
}

absl::Status Ended() { return absl::UnavailableError("the round has ended at a machine"); }

struct Sending {
  Bytes bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

struct Receiving {
  uint32_t from;
  Kind kind;
  Bytes bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// One lane's link to another machine.
struct Link {
  std::deque<Bytes> out;          // to be sent
  std::list<Sending> sending;     // on their way: buffers of MPI, which must not move
  std::deque<Bytes> in;           // for the lane's user
  std::optional<Bytes> sign_out;  // to be sent
  std::optional<Sending> word;    // on its way
  std::optional<Bytes> sign_in;   // for the lane's user
  bool tell_abort = false, said_bye = false, bye_came = false;
};

struct LaneState {
  std::vector<Link> links;          // by machine; the own one is not used
  std::list<Receiving> receivings;  // one of each kind from each machine at most
  bool ended = false;               // by Abort, here or elsewhere
  bool closed = false;              // its user has left
  uint64_t changes = 0;             // of what Wait waits for
};

}  // namespace

// All that MPI is used for, by one thread, and what it shares with the lanes' users.
class MpiJob::Engine {
 public:
  // The thread's work. Holds itself, so that a thread that MPI does not let go of can be left
  // alone.
  static void Run(std::shared_ptr<Engine> engine, Bytes random) {
    absl::Status status = engine->Begin(random);
    if (status.ok()) status = engine->Serve();
    const MutexLock lock(engine->mutex_);
    engine->status_ = std::move(status);
    engine->over_ = true;
    engine->Tell();
  }

  // Waits until the job has begun. Errors of MPI; UNAVAILABLE if it takes too long.
  absl::Status AwaitBeginning(uint64_t limit_s) {
    const auto limit = SteadyClock::now() + std::chrono::seconds(limit_s);
    const MutexLock lock(mutex_);
    while (!begun_ && !over_) {
      if (!changed_.WaitUntil(mutex_, limit) && SteadyClock::now() >= limit) {
        return absl::UnavailableError("not all machines of the job have begun");
      }
    }
    return begun_ ? absl::OkStatus() : status_;
  }

  // Ends the thread, with MPI_Finalize if `in_good_order`. False if it has not ended in time.
  absl::Status End(bool in_good_order, uint64_t limit_s) {
    const auto limit = SteadyClock::now() + std::chrono::seconds(limit_s);
    const MutexLock lock(mutex_);
    (in_good_order ? leaving_ : stopping_) = true;
    wake_.NotifyAll();
    while (!over_) {
      if (!changed_.WaitUntil(mutex_, limit) && SteadyClock::now() >= limit) {
        return absl::UnavailableError("not all machines have left the job");
      }
    }
    return status_;
  }

  uint32_t rank() const { return rank_; }
  uint32_t count() const { return count_; }
  const Digest& id() const { return id_; }

  absl::Status Open(uint32_t lane) {
    const MutexLock lock(mutex_);
    if (over_) return WhyOver();
    const auto [at, is_new] = lanes_.try_emplace(lane);
    if (!is_new) return absl::AlreadyExistsError("a lane of this number is open");
    at->second.links.resize(count_);
    Hurry();
    return absl::OkStatus();
  }

  void Close(uint32_t lane) {
    const MutexLock lock(mutex_);
    LaneState& state = lanes_.at(lane);
    state.closed = true;
    for (Link& link : state.links) link.in.clear();
    Hurry();
  }

  absl::StatusOr<bool> TrySend(uint32_t lane, uint32_t to, BytesView chunk) {
    SHOAL_CHECK(chunk.size() <= Transport::kMaxChunkBytes);
    const MutexLock lock(mutex_);
    LaneState& state = lanes_.at(lane);
    SHOAL_RETURN_IF_ERROR(IsOpen(state));
    Link& link = state.links[to];
    // Who finds no room asks again every few milliseconds: only what is taken is copied.
    if (link.out.size() + link.sending.size() >= kRoom) return false;
    link.out.emplace_back(chunk.begin(), chunk.end());
    Hurry();
    return true;
  }

  absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t lane, uint32_t from) {
    const MutexLock lock(mutex_);
    LaneState& state = lanes_.at(lane);
    SHOAL_RETURN_IF_ERROR(IsOpen(state));
    Link& link = state.links[from];
    std::optional<Bytes> chunk;
    if (link.in.empty()) return chunk;
    chunk = std::move(link.in.front());
    link.in.pop_front();
    Hurry();
    return chunk;
  }

  void SendSign(uint32_t lane, uint32_t to, BytesView sign) {
    SHOAL_CHECK(sign.size() > kAbortBytes && sign.size() <= kMostWordBytes);
    const MutexLock lock(mutex_);
    lanes_.at(lane).links[to].sign_out.emplace(sign.begin(), sign.end());
    wake_.NotifyAll();
  }

  std::optional<Bytes> TakeSign(uint32_t lane, uint32_t from) {
    const MutexLock lock(mutex_);
    return std::exchange(lanes_.at(lane).links[from].sign_in, std::nullopt);
  }

  // `seen` is what the lane's user has seen of its changes.
  void Wait(uint32_t lane, uint64_t& seen) {
    const auto limit = SteadyClock::now() + kLongestWait;
    const MutexLock lock(mutex_);
    LaneState& state = lanes_.at(lane);
    while (!over_ && state.changes == seen && changed_.WaitUntil(mutex_, limit)) {
    }
    seen = state.changes;
  }

  void Abort(uint32_t lane) {
    const MutexLock lock(mutex_);
    LaneState& state = lanes_.at(lane);
    if (state.ended) return;
    EndLane(state);
    for (Link& link : state.links) link.tell_abort = true;
    Hurry();
  }

 private:
  absl::Status Begin(BytesView random) {
    int provided = 0, size = 0, rank = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
      return Failed("MPI_Init_thread");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int *most_tag = nullptr, is_set = 0;
    if (provided < MPI_THREAD_FUNNELED || MPI_Comm_size(MPI_COMM_WORLD, &size) != MPI_SUCCESS ||
        MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS ||
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most_tag), &is_set) !=
            MPI_SUCCESS ||
        is_set == 0 || *most_tag < TagOf(kMaxLane, Kind::kWord)) {
      return Failed("what it offers is too little");
    }
    rank_ = static_cast<uint32_t>(rank);
    count_ = static_cast<uint32_t>(size);
    SHOAL_RETURN_IF_ERROR(ShareRandomBytes(random));
    const MutexLock lock(mutex_);
    begun_ = true;
    Tell();
    return absl::OkStatus();
  }

  // Makes id_ of random bytes of all machines.
  absl::Status ShareRandomBytes(BytesView random) {
    std::vector<Bytes> all(count_, Bytes(kRandomBytes));
    all[rank_].assign(random.begin(), random.end());
    std::vector<MPI_Request> requests;
    for (uint32_t other = 0; other < count_; ++other) {
      if (other == rank_) continue;
      MPI_Request send, receive;
      if (MPI_Isend(all[rank_].data(), kRandomBytes, MPI_BYTE, static_cast<int>(other), 0,
                    MPI_COMM_WORLD, &send) != MPI_SUCCESS ||
          MPI_Irecv(all[other].data(), kRandomBytes, MPI_BYTE, static_cast<int>(other), 0,
                    MPI_COMM_WORLD, &receive) != MPI_SUCCESS) {
        return Failed("the first messages");
      }
      requests.push_back(send);
      requests.push_back(receive);
    }
    for (int done = 0; done == 0;) {
      if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                      MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
        return Failed("the first messages");
      }
      const MutexLock lock(mutex_);
      if (stopping_) return Ended();
      if (done == 0) wake_.WaitUntil(mutex_, SteadyClock::now() + kLongestSleep);
    }
    Transcript id("shoal machines job v1");
    for (const Bytes& bytes : all) id.Blob(bytes);
    id_ = id.Finish();
    return absl::OkStatus();
  }

  absl::Status Serve() {
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && !(leaving_ && lanes_.empty())) {
        bool moved = false;
        for (auto& [number, lane] : lanes_) SHOAL_RETURN_IF_ERROR(Step(number, lane, moved));
        std::erase_if(lanes_, [this](const auto& lane) { return IsOver(lane.second); });
        const auto now = SteadyClock::now();
        if (moved) {
          moved_ = now;
          Tell();
        }
        // Short sleeps while something moves, longer ones the longer nothing does. The lock is free
        // meanwhile.
        wake_.WaitUntil(mutex_, now + std::clamp<SteadyClock::duration>(
                                          (now - moved_) / 4, kShortestSleep, kLongestSleep));
      }
      if (stopping_) return Ended();
    }
    // Waits for all machines; whoever waits for this thread has a limit of its own.
    return MPI_Finalize() == MPI_SUCCESS ? absl::OkStatus() : Failed("MPI_Finalize");
  }

  // Does what can be done for a lane now.
  absl::Status Step(uint32_t number, LaneState& lane, bool& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (uint32_t other = 0; other < count_; ++other) {
      if (other == rank_) continue;
      SHOAL_RETURN_IF_ERROR(StepOutgoing(number, lane, other, moved));
    }
    SHOAL_RETURN_IF_ERROR(StepReceivings(lane, moved));
    SHOAL_RETURN_IF_ERROR(BeginReceivings(number, lane, Kind::kChunk, moved));
    return BeginReceivings(number, lane, Kind::kWord, moved);
  }

  absl::Status StepOutgoing(uint32_t number, LaneState& lane, uint32_t to, bool& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Link& link = lane.links[to];
    for (auto at = link.sending.begin(); at != link.sending.end();) {
      SHOAL_ASSIGN_OR_RETURN(const bool done, IsDone(at->request));
      if (!done) {
        ++at;
        continue;
      }
      at = link.sending.erase(at);
      ++lane.changes;
      moved = true;
    }
    for (; !link.out.empty(); link.out.pop_front()) {
      link.sending.push_back({std::move(link.out.front())});
      SHOAL_RETURN_IF_ERROR(Begin(link.sending.back(), to, TagOf(number, Kind::kChunk)));
      moved = true;
    }
    if (link.word.has_value()) {
      SHOAL_ASSIGN_OR_RETURN(const bool done, IsDone(link.word->request));
      if (!done) return absl::OkStatus();
      link.word.reset();
    }
    if (link.tell_abort) {
      link.word.emplace(Bytes(kAbortBytes));
      link.tell_abort = false;
    } else if (link.sign_out.has_value()) {
      link.word.emplace(*std::exchange(link.sign_out, std::nullopt));
    } else if (lane.closed && link.sending.empty() && !link.said_bye) {
      link.word.emplace(Bytes(kByeBytes));
      link.said_bye = true;
    } else {
      return absl::OkStatus();
    }
    moved = true;
    return Begin(*link.word, to, TagOf(number, Kind::kWord));
  }

  absl::Status StepReceivings(LaneState& lane, bool& moved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto at = lane.receivings.begin(); at != lane.receivings.end();) {
      SHOAL_ASSIGN_OR_RETURN(const bool done, IsDone(at->request));
      if (!done) {
        ++at;
        continue;
      }
      Take(*at, lane);
      at = lane.receivings.erase(at);
      moved = true;
    }
    return absl::OkStatus();
  }

  void Take(Receiving& came, LaneState& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Link& link = lane.links[came.from];
    if (came.kind == Kind::kChunk) {
      // Where nobody takes chunks any more, they are taken here, so that the sender is done with
      // them.
      if (lane.closed || lane.ended) return;
      link.in.push_back(std::move(came.bytes));
      ++lane.changes;
    } else if (came.bytes.size() == kByeBytes) {
      link.bye_came = true;
    } else if (came.bytes.size() == kAbortBytes) {
      EndLane(lane);
    } else {
      link.sign_in = std::move(came.bytes);
    }
  }

  // Begins to receive what has arrived of one kind, if there is room for it.
  absl::Status BeginReceivings(uint32_t number, LaneState& lane, Kind kind, bool& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<bool> takes(count_, true);
    takes[rank_] = false;
    if (kind == Kind::kChunk && !lane.closed && !lane.ended) {
      for (uint32_t other = 0; other < count_; ++other) {
        if (lane.links[other].in.size() >= kInbox) takes[other] = false;
      }
    }
    for (const Receiving& receiving : lane.receivings) {
      if (receiving.kind == kind) takes[receiving.from] = false;
    }
    // A look at one machine costs as much as a look at all of them.
    if (std::ranges::count(takes, true) == static_cast<ptrdiff_t>(count_) - 1) {
      return BeginReceiving(number, lane, kind, MPI_ANY_SOURCE, moved);
    }
    for (uint32_t other = 0; other < count_; ++other) {
      if (!takes[other]) continue;
      SHOAL_RETURN_IF_ERROR(BeginReceiving(number, lane, kind, static_cast<int>(other), moved));
    }
    return absl::OkStatus();
  }

  absl::Status BeginReceiving(uint32_t number, LaneState& lane, Kind kind, int from, bool& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int there = 0, bytes = 0;
    MPI_Message message;
    MPI_Status status;
    if (MPI_Improbe(from, TagOf(number, kind), MPI_COMM_WORLD, &there, &message, &status) !=
        MPI_SUCCESS) {
      return Failed("MPI_Improbe");
    }
    if (there == 0) return absl::OkStatus();
    const size_t most = kind == Kind::kChunk ? Transport::kMaxChunkBytes : kMostWordBytes;
    if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes < 0 ||
        static_cast<size_t>(bytes) > most || status.MPI_SOURCE < 0 ||
        static_cast<uint32_t>(status.MPI_SOURCE) >= count_) {
      return absl::UnavailableError("a message between machines has a wrong length");
    }
    Receiving& receiving =
        lane.receivings.emplace_back(Receiving{.from = static_cast<uint32_t>(status.MPI_SOURCE),
                                               .kind = kind,
                                               .bytes = Bytes(static_cast<size_t>(bytes))});
    moved = true;
    return MPI_Imrecv(receiving.bytes.data(), bytes, MPI_BYTE, &message, &receiving.request) ==
                   MPI_SUCCESS
               ? absl::OkStatus()
               : Failed("MPI_Imrecv");
  }

  static absl::Status Begin(Sending& sending, uint32_t to, int tag) {
    return MPI_Issend(sending.bytes.data(), static_cast<int>(sending.bytes.size()), MPI_BYTE,
                      static_cast<int>(to), tag, MPI_COMM_WORLD, &sending.request) == MPI_SUCCESS
               ? absl::OkStatus()
               : Failed("MPI_Issend");
  }

  static absl::StatusOr<bool> IsDone(MPI_Request& request) {
    int done = 0;
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return Failed("MPI_Test");
    return done != 0;
  }

  // Whether nothing comes or goes on a lane any more.
  bool IsOver(const LaneState& lane) const {
    if (!lane.closed || !lane.receivings.empty()) return false;
    for (uint32_t other = 0; other < count_; ++other) {
      const Link& link = lane.links[other];
      if (other == rank_) continue;
      if (!link.said_bye || link.word.has_value() || !link.bye_came) return false;
    }
    return true;
  }

  absl::Status WhyOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return status_.ok() ? Ended() : status_;
  }
  absl::Status IsOpen(const LaneState& lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (over_) return WhyOver();
    return lane.ended ? Ended() : absl::OkStatus();
  }

  void EndLane(LaneState& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    lane.ended = true;
    ++lane.changes;
    for (Link& link : lane.links) {
      link.out.clear();
      link.in.clear();
      link.sign_out.reset();
    }
    Tell();
  }

  // Tells whoever waits for a lane or for the thread.
  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { changed_.NotifyAll(); }
  // Makes the thread look soon, and often for a while.
  void Hurry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    moved_ = SteadyClock::now();
    wake_.NotifyAll();
  }

  // Once the thread is over nobody calls MPI, which moves bytes inside of calls alone. So buffers
  // of requests that were not done may be freed with this object.

  // Set before begun_.
  uint32_t rank_ = 0, count_ = 1;
  Digest id_ = {};

  Mutex mutex_;
  CondVar wake_, changed_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // the thread uses MPI no more
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  SteadyClock::time_point moved_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, LaneState> lanes_ ABSL_GUARDED_BY(mutex_);
};

class MpiJob::Lane final : public Transport {
 public:
  Lane(std::shared_ptr<Engine> engine, uint32_t number)
      : engine_(std::move(engine)), number_(number) {}
  ~Lane() override { engine_->Close(number_); }

  uint32_t rank() const override { return engine_->rank(); }
  uint32_t count() const override { return engine_->count(); }
  absl::StatusOr<bool> TrySend(uint32_t to, BytesView chunk) override {
    return engine_->TrySend(number_, to, chunk);
  }
  absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t from) override {
    return engine_->TryReceive(number_, from);
  }
  void Wait() override { engine_->Wait(number_, seen_); }
  void SendSign(uint32_t to, BytesView sign) override { engine_->SendSign(number_, to, sign); }
  std::optional<Bytes> TakeSign(uint32_t from) override { return engine_->TakeSign(number_, from); }
  void Abort() override { engine_->Abort(number_); }

 private:
  const std::shared_ptr<Engine> engine_;
  const uint32_t number_;
  uint64_t seen_ = 0;
};

namespace {

// mpirun, or its daemon on this machine: if it dies, nobody else ends this process any more.
// SIGTERM comes from the kernel then. One that does not end by that is ended here, without MPI and
// without what else may hang.
absl::Status EndWith(const pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return absl::UnavailableError("prctl");
  // One that died before this is not there for MPI_Init either, which then fails.
  if (getppid() != parent) return absl::UnavailableError("who started this process has died");
  std::thread([parent] {
    while (getppid() == parent) std::this_thread::sleep_for(kParentPeriod);
    std::this_thread::sleep_for(std::chrono::seconds(MpiJob::kOrphanS));
    MpiJob::Die(1);
  }).detach();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MpiJob>> MpiJob::Join(RandomSource& random, uint64_t limit_s) {
  SHOAL_RETURN_IF_ERROR(EndWith(getppid()));
  Bytes mine(kRandomBytes);
  random.Fill(mine);
  const auto engine = std::make_shared<Engine>();
  std::thread(&Engine::Run, engine, std::move(mine)).detach();
  SHOAL_RETURN_IF_ERROR(engine->AwaitBeginning(limit_s));
  return std::unique_ptr<MpiJob>(new MpiJob(engine));
}

void MpiJob::Die(int code) { _exit(code); }

MpiJob::~MpiJob() {
  // After Leave, or after an error, the thread has ended already.
  engine_->End(/*in_good_order=*/false, /*limit_s=*/1).IgnoreError();
}

uint32_t MpiJob::rank() const { return engine_->rank(); }
uint32_t MpiJob::count() const { return engine_->count(); }
const Digest& MpiJob::id() const { return engine_->id(); }

absl::StatusOr<std::unique_ptr<Transport>> MpiJob::OpenLane(uint32_t number) {
  if (number > kMaxLane) return absl::InvalidArgumentError("there is no lane of this number");
  SHOAL_RETURN_IF_ERROR(engine_->Open(number));
  return std::make_unique<Lane>(engine_, number);
}

absl::Status MpiJob::Leave(uint64_t limit_s) {
  return engine_->End(/*in_good_order=*/true, limit_s);
}

}  // namespace shoal::machines
