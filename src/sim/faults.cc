// A library to preload into a program under test (LD_PRELOAD): moves its wall clock and makes its
// syncs fail, while it runs and from outside. The environment's SHOAL_FAULTS names a file of int64,
// in the machine's order, that whoever runs the test writes:
//   nanoseconds to add to the wall clock
//   not 0: fsync and fdatasync fail with EIO
// If the file has three more, the program says how many bytes of its heap are in use, without those
// that were freed and that the allocator keeps:
//   a number: another one asks
//   the bytes, and the number that asked for them
// Time that passes (the steady clock, waits) stays as it is.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

struct Faults {
  volatile int64_t clock_ns;
  volatile int64_t syncs_fail;
  int64_t asked;
  int64_t heap_bytes;
  int64_t answered;
};

// Zeros without a file.
const Faults& Present() {
  static const Faults* const faults = []() -> const Faults* {
    static const Faults kNone = {};
    const char* path = std::getenv("SHOAL_FAULTS");
    const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return &kNone;
    void* const mapped = mmap(nullptr, sizeof(Faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return mapped == MAP_FAILED ? &kNone : static_cast<const Faults*>(mapped);
  }();
  return *faults;
}

int Sync(long number, int fd) {
  if (Present().syncs_fail == 0) return static_cast<int>(syscall(number, fd));
  errno = EIO;
  return -1;
}

// Whether the file has the numbers of the heap.
bool HasHeap() {
  const char* path = std::getenv("SHOAL_FAULTS");
  struct stat info;
  return path != nullptr && stat(path, &info) == 0 &&
         info.st_size >= static_cast<off_t>(sizeof(Faults));
}

void* TellHeap(void*) {
  auto& faults = const_cast<Faults&>(Present());
  for (;;) {
    const int64_t asked = __atomic_load_n(&faults.asked, __ATOMIC_ACQUIRE);
    if (asked != faults.answered) {
      const struct mallinfo2 heap = mallinfo2();
      faults.heap_bytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd);
      __atomic_store_n(&faults.answered, asked, __ATOMIC_RELEASE);
    }
    usleep(20'000);
  }
  return nullptr;
}

__attribute__((constructor)) void BeginToTellHeap() {
  if (!HasHeap()) return;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, TellHeap, nullptr) == 0) pthread_detach(thread);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  const int64_t moved = now->tv_sec * kSecondNs + now->tv_nsec + Present().clock_ns;
  now->tv_sec = moved / kSecondNs;
  now->tv_nsec = moved % kSecondNs;
  return result;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec precise;
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t* seconds) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != nullptr) *seconds = now.tv_sec;
  return now.tv_sec;
}

int fsync(int fd) { return Sync(SYS_fsync, fd); }
int fdatasync(int fd) { return Sync(SYS_fdatasync, fd); }

}  // extern "C"
