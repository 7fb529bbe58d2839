// A library to preload into a program under test (LD_PRELOAD): moves its wall clock and makes its
// syncs fail, while it runs and from outside. The environment's SHOAL_FAULTS names a file of two
// int64, in the machine's order, that whoever runs the test writes:
//   nanoseconds to add to the wall clock
//   not 0: fsync and fdatasync fail with EIO
// Time that passes (the steady clock, waits) stays as it is.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
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
};

// Zeros without a file.
const Faults& Present() {
  static const Faults* const faults = []() -> const Faults* {
    static const Faults kNone = {};
    const char* path = std::getenv("SHOAL_FAULTS");
    const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return &kNone;
    void* const mapped = mmap(nullptr, sizeof(Faults), PROT_READ, MAP_SHARED, fd, 0);
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
