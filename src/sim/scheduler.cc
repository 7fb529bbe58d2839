#include "src/sim/scheduler.h"

#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/check.h"

namespace shoal::sim {
namespace {

constexpr size_t kStackBytes = 512 << 10;
constexpr size_t kPageBytes = 4096;
// The right wall time at the beginning: that of the roster and tables of tests.
constexpr Time kWallStart = 1'800'000'000 * kSecond;
// The longest interruption at a step.
constexpr Time kMaxInterruption = 2 * kMillisecond;

Scheduler* current = nullptr;

std::vector<char*>& FreeStacks() {
  static auto* const stacks = new std::vector<char*>();
  return *stacks;
}

char* TakeStack() {
  std::vector<char*>& free = FreeStacks();
  if (!free.empty()) {
    char* const stack = free.back();
    free.pop_back();
    return stack;
  }
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  SHOAL_CHECK(memory != MAP_FAILED);
  SHOAL_CHECK(mprotect(memory, kPageBytes, PROT_NONE) == 0);  // an overflow stops the process
  return static_cast<char*>(memory);
}

// The thread-local variables of this program (not those of shared libraries, which hold nothing
// over a wait): each fiber has its own.
struct ThreadLocals {
  char* data = nullptr;
  size_t size = 0;
};

ThreadLocals FindThreadLocals() {
  ThreadLocals found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
          static_cast<ThreadLocals*>(out)->data = static_cast<char*>(info->dlpi_tls_data);
          static_cast<ThreadLocals*>(out)->size = info->dlpi_phdr[i].p_memsz;
        }
        return 1;  // the first one is the program
      },
      &found);
  return found;
}

}  // namespace

// Lives as long as the simulation, as events may still name it.
class Fiber {
 public:
  Fiber(Process* p, std::function<void()> b, uint64_t n)
      : process(p), body(std::move(b)), number(n) {
    stack = TakeStack();
    SHOAL_CHECK(getcontext(&context) == 0);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, &Fiber::Main, 0);
  }
  static void Main() {
    Scheduler* const scheduler = Scheduler::Current();
    Fiber* const self = scheduler->running_;
    self->body();
    self->body = nullptr;
    self->ended = true;
    scheduler->Wake(self, /*all=*/true);
    scheduler->SwitchOut();
  }

  Process* const process;
  std::function<void()> body;
  const uint64_t number;
  char* stack = nullptr;
  ucontext_t context = {};  // of its beginning
  jmp_buf at;               // where it goes on afterwards
  bool begun = false;
  std::vector<char> locals;  // its thread-local variables while it does not run
  uint64_t wait = 0;         // counts its waits
  bool woken = false;        // how the last one ended
  bool ended = false;
};

namespace {

// swapcontext would do, but for two system calls a switch.
jmp_buf scheduler_at;
ThreadLocals thread_locals;
std::vector<char> scheduler_locals;

void SwapLocals(std::vector<char>& out, std::vector<char>& in) {
  if (thread_locals.size == 0) return;
  out.assign(thread_locals.data, thread_locals.data + thread_locals.size);
  if (in.empty()) return;
  std::memcpy(thread_locals.data, in.data(), in.size());
}

}  // namespace

uint64_t Rng::Next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

Scheduler::Scheduler(uint64_t seed) : rng_(seed) {
  current = this;
  thread_locals = FindThreadLocals();
}

Scheduler* Scheduler::Current() { return current; }
Fiber* Scheduler::CurrentFiber() { return current == nullptr ? nullptr : current->running_; }
Process* Scheduler::CurrentProcess() {
  Fiber* const fiber = CurrentFiber();
  return fiber == nullptr ? nullptr : fiber->process;
}

Time Scheduler::WallTime() const {
  const Process* const process = CurrentProcess();
  return kWallStart + now_ + (process == nullptr ? 0 : process->machine->wall_offset);
}

void Scheduler::Note(BytesView bytes) {
  uint64_t word = 0;
  for (; bytes.size() >= sizeof word; bytes = bytes.subspan(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    Note(word);
  }
  word = bytes.size();
  for (const uint8_t byte : bytes) word = word << 8 | byte;
  Note(word);
}

void Scheduler::Push(Time time, Fiber* fiber, std::function<void()> callback) {
  queue_.push({.time = std::max(time, now_),
               .order = rng_.Next(),
               .number = numbers_++,
               .fiber = fiber,
               .callback = std::move(callback),
               .wait = fiber == nullptr ? 0 : fiber->wait});
}

Fiber* Scheduler::Spawn(Process* process, std::function<void()> body) {
  auto* const fiber = new Fiber(process, std::move(body), fibers_++);
  Push(now_, fiber, nullptr);
  return fiber;
}

void Scheduler::At(Time time, std::function<void()> callback) {
  Push(time, nullptr, std::move(callback));
}

void Scheduler::Kill(Process* process) {
  if (!process->alive) return;
  process->alive = false;
  Note(0xDEAD);
  if (running_ == nullptr || running_->process != process) {
    if (on_death_) on_death_(process);
    return;
  }
  died_ = process;
  SwitchOut();
  SHOAL_CHECK(false);  // nobody resumes it
}

void Scheduler::Run(const std::function<bool()>& done) {
  while (!queue_.empty() && !done()) {
    // Moved out, as it may add to the queue.
    Event event = std::move(const_cast<Event&>(queue_.top()));
    queue_.pop();
    if (event.fiber != nullptr &&
        (!event.fiber->process->alive || event.fiber->ended || event.wait != event.fiber->wait)) {
      continue;
    }
    now_ = event.time;
    ++events_;
    Note(static_cast<uint64_t>(now_));
    if (event.fiber == nullptr) {
      event.callback();
    } else {
      Note(event.fiber->number);
      Resume(event.fiber);
    }
  }
}

void Scheduler::Resume(Fiber* fiber) {
  ++fiber->wait;  // what else would have ended this wait is too late
  running_ = fiber;
  SwapLocals(scheduler_locals, fiber->locals);
  if (_setjmp(scheduler_at) == 0) {
    if (fiber->begun) _longjmp(fiber->at, 1);
    fiber->begun = true;
    setcontext(&fiber->context);
  }
  SwapLocals(fiber->locals, scheduler_locals);
  running_ = nullptr;
  if (Process* const died = std::exchange(died_, nullptr); died != nullptr) {
    if (on_death_) on_death_(died);
    return;
  }
  if (fiber->ended) FreeStacks().push_back(fiber->stack);
}

void Scheduler::SwitchOut() {
  if (_setjmp(running_->at) == 0) _longjmp(scheduler_at, 1);
}

void Scheduler::Sleep(Time time) {
  Push(now_ + time, running_, nullptr);
  SwitchOut();
}

bool Scheduler::Block(const void* key, Time deadline) {
  Fiber* const self = running_;
  waiters_[key].push_back({self, self->wait});
  self->woken = false;
  if (deadline >= 0) Push(deadline, self, nullptr);
  SwitchOut();
  return self->woken;
}

void Scheduler::Wake(const void* key, bool all) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  std::deque<Waiter>& waiters = found->second;
  while (!waiters.empty()) {
    const Waiter waiter = waiters.front();
    waiters.pop_front();
    // A fiber that ended is never in a list, as it waits for nothing.
    if (!waiter.fiber->process->alive || waiter.fiber->wait != waiter.wait || waiter.fiber->woken) {
      continue;
    }
    waiter.fiber->woken = true;
    Push(now_, waiter.fiber, nullptr);
    if (!all) break;
  }
  if (waiters.empty()) waiters_.erase(found);
}

void Scheduler::Step() {
  Process* const process = running_->process;
  if (++process->steps == process->dies_at_step) Kill(process);
  if (interruptions_ > 0 && rng_.Chance(interruptions_)) {
    Sleep(rng_.Between(0, kMaxInterruption));
  }
}

void Scheduler::Join(Fiber* fiber) {
  while (!fiber->ended) Block(fiber);
}

}  // namespace shoal::sim
