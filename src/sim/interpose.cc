// Takes the place of the system's functions for threads, locks, time and files (see scheduler.h and
// disk.h). A program that links this file has them in place of the C library's, also where shared
// libraries call them. Outside of simulated processes they do what the C library does.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/sim/disk.h"
#include "src/sim/scheduler.h"

namespace shoal::sim {
namespace {

template <typename Function>
Function* Real(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  SHOAL_CHECK(found != nullptr);
  return reinterpret_cast<Function*>(found);
}

// --- time ---

timespec ToTimespec(Time time) { return {.tv_sec = time / kSecond, .tv_nsec = time % kSecond}; }
Time ToTime(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

// Steady clocks begin here, so that no time before is negative.
constexpr Time kSteadyStart = 100'000 * kSecond;

Time DeadlineOf(const Scheduler& scheduler, clockid_t clock, const timespec& deadline) {
  if (clock == CLOCK_REALTIME) return scheduler.now() + ToTime(deadline) - scheduler.WallTime();
  return ToTime(deadline) - kSteadyStart;
}

// --- locks ---

void UnlockMutex(pthread_mutex_t* mutex) {
  static auto* const real = Real<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  SHOAL_CHECK(real(mutex) == 0);
  Scheduler::Current()->Wake(mutex, /*all=*/false);
}

void LockMutex(pthread_mutex_t* mutex) {
  while (pthread_mutex_trylock(mutex) != 0) Scheduler::Current()->Block(mutex);
}

int WaitOn(pthread_cond_t* condition, pthread_mutex_t* mutex, Time deadline) {
  Scheduler* const scheduler = Scheduler::Current();
  UnlockMutex(mutex);
  const bool woken = scheduler->Block(condition, deadline);
  LockMutex(mutex);
  return woken ? 0 : ETIMEDOUT;
}

// --- files ---

struct OpenFile {
  Disk* disk = nullptr;
  Disk::FilePointer file;  // null: a directory
  std::string path;
  uint64_t offset = 0;
  bool appends = false;
};

constexpr int kFirstDescriptor = 1 << 20;

std::map<int, OpenFile>& OpenFiles() {
  static auto* const files = new std::map<int, OpenFile>();
  return *files;
}

OpenFile* Opened(int fd) {
  if (fd < kFirstDescriptor) return nullptr;
  const auto found = OpenFiles().find(fd);
  SHOAL_CHECK(found != OpenFiles().end());
  return &found->second;
}

// Whether the path is `directory` or below it.
bool IsBelow(const char* path, const char* directory) {
  const size_t length = std::strlen(directory);
  return std::strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == 0);
}

// The disk, or the memory, of the present process if the path is one of its files; null otherwise.
Disk* DiskOf(const char* path) {
  const Process* const process = Scheduler::CurrentProcess();
  if (process == nullptr || path == nullptr) return nullptr;
  const Machine& machine = *process->machine;
  if (machine.memory != nullptr && IsBelow(path, kSimulatedMemory)) return machine.memory;
  return IsBelow(path, kSimulatedFiles) ? machine.disk : nullptr;
}

int Failed(int error) {
  errno = error;
  return -1;
}
// 0, or -1 with the error.
int Result(int error) { return error == 0 ? 0 : Failed(error); }

void Step() { Scheduler::Current()->Step(); }

uint64_t NowNs() { return static_cast<uint64_t>(Scheduler::Current()->WallTime()); }

int NewDescriptor(OpenFile file) {
  static int next = kFirstDescriptor;
  OpenFiles().emplace(next, std::move(file));
  return next++;
}

int OpenIn(Disk& disk, const char* path, int flags, mode_t mode) {
  Step();
  if (disk.IsDirectory(path)) {
    if ((flags & O_ACCMODE) != O_RDONLY) return Failed(EISDIR);
    return NewDescriptor({.disk = &disk, .file = nullptr, .path = path});
  }
  Disk::FilePointer file = disk.Find(path);
  if (file == nullptr) {
    if ((flags & O_CREAT) == 0) return Failed(ENOENT);
    if (const int error = disk.Create(path, mode, NowNs(), file); error != 0) return Failed(error);
  } else if ((flags & O_EXCL) != 0) {
    return Failed(EEXIST);
  }
  if ((flags & O_TRUNC) != 0) disk.Truncate(*file, 0);
  return NewDescriptor(
      {.disk = &disk, .file = file, .path = path, .appends = (flags & O_APPEND) != 0});
}

void Describe(const Disk& disk, const std::string& path, const Disk::FilePointer& file,
              struct stat* info) {
  std::memset(info, 0, sizeof *info);
  info->st_uid = geteuid();
  if (file == nullptr) {
    SHOAL_CHECK(disk.IsDirectory(path));
    info->st_mode = S_IFDIR | 0700;
    return;
  }
  info->st_mode = S_IFREG | file->mode;
  info->st_nlink = disk.Find(path) == file ? 1 : 0;
  info->st_mtim = ToTimespec(static_cast<Time>(file->written_ns));
  info->st_ino = file->inode;
  info->st_size = static_cast<off_t>(file->seen.size());
}

ssize_t ReadFrom(const OpenFile& open, uint64_t offset, void* into, size_t bytes) {
  const Bytes& content = open.file->seen;
  if (offset >= content.size()) return 0;
  const size_t n = std::min<size_t>(bytes, content.size() - offset);
  std::memcpy(into, content.data() + offset, n);
  return static_cast<ssize_t>(n);
}

ssize_t WriteTo(OpenFile& open, uint64_t offset, const void* from, size_t bytes) {
  const BytesView content(static_cast<const uint8_t*>(from), bytes);
  Scheduler::Current()->Note(content);
  open.file->written_ns = NowNs();
  size_t written = 0;
  if (const int error = open.disk->WriteAt(*open.file, offset, content, written); error != 0) {
    return Failed(error);
  }
  return static_cast<ssize_t>(written);
}

// What readdir goes over. DIR is opaque, so that a pointer to this can stand for one.
struct Listing {
  int fd;
  std::vector<std::string> names;
  size_t next = 0;
  dirent entry = {};
};
std::map<DIR*, std::unique_ptr<Listing>>& Listings() {
  static auto* const listings = new std::map<DIR*, std::unique_ptr<Listing>>();
  return *listings;
}
Listing* ListingOf(DIR* directory) {
  const auto found = Listings().find(directory);
  return found == Listings().end() ? nullptr : found->second.get();
}

}  // namespace
}  // namespace shoal::sim

using namespace shoal::sim;  // NOLINT: the functions below must be in no namespace

extern "C" {

// --- time ---

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const Scheduler* const scheduler = Scheduler::Current();
  if (scheduler == nullptr || Scheduler::CurrentFiber() == nullptr) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  }
  *now =
      ToTimespec(clock == CLOCK_REALTIME ? scheduler->WallTime() : kSteadyStart + scheduler->now());
  return 0;
}

int nanosleep(const timespec* time, timespec* left) {
  if (Scheduler::CurrentFiber() == nullptr) {
    return static_cast<int>(syscall(SYS_nanosleep, time, left));
  }
  Scheduler::Current()->Sleep(ToTime(*time));
  return 0;
}

// --- threads and locks ---

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = Real<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (Scheduler::CurrentFiber() == nullptr) {
    // Nobody would ever unlock it.
    SHOAL_CHECK(Scheduler::Current() == nullptr || pthread_mutex_trylock(mutex) == 0);
    return Scheduler::Current() == nullptr ? real(mutex) : 0;
  }
  Step();
  LockMutex(mutex);
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = Real<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  if (Scheduler::CurrentFiber() == nullptr) return real(mutex);
  UnlockMutex(mutex);
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const real = Real<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
  if (Scheduler::CurrentFiber() == nullptr) return real(condition, mutex);
  return WaitOn(condition, mutex, -1);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  using Function = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static auto* const real = Real<Function>("pthread_cond_clockwait");
  if (Scheduler::CurrentFiber() == nullptr) return real(condition, mutex, clock, deadline);
  return WaitOn(condition, mutex, DeadlineOf(*Scheduler::Current(), clock, *deadline));
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static auto* const real = Real<int(pthread_cond_t*)>("pthread_cond_signal");
  if (Scheduler::CurrentFiber() == nullptr) return real(condition);
  Scheduler::Current()->Wake(condition, /*all=*/false);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static auto* const real = Real<int(pthread_cond_t*)>("pthread_cond_broadcast");
  if (Scheduler::CurrentFiber() == nullptr) return real(condition);
  Scheduler::Current()->Wake(condition, /*all=*/true);
  return 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  using Function = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static auto* const real = Real<Function>("pthread_create");
  if (Scheduler::CurrentFiber() == nullptr) return real(thread, attributes, body, argument);
  Fiber* const fiber = Scheduler::Current()->Spawn(Scheduler::CurrentProcess(),
                                                   [body, argument] { body(argument); });
  *thread = reinterpret_cast<pthread_t>(fiber);
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  static auto* const real = Real<int(pthread_t, void**)>("pthread_join");
  if (Scheduler::CurrentFiber() == nullptr) return real(thread, result);
  Scheduler::Current()->Join(reinterpret_cast<Fiber*>(thread));
  return 0;
}

int pthread_detach(pthread_t thread) noexcept {
  static auto* const real = Real<int(pthread_t)>("pthread_detach");
  return Scheduler::CurrentFiber() == nullptr ? real(thread) : 0;
}

// --- files ---

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (Disk* const disk = DiskOf(path); disk != nullptr) return OpenIn(*disk, path, flags, mode);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int openat(int directory, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (Disk* const disk = DiskOf(path); disk != nullptr) return OpenIn(*disk, path, flags, mode);
  return static_cast<int>(syscall(SYS_openat, directory, path, flags, mode));
}

int mkostemp(char* path, int flags) {
  static auto* const real = Real<int(char*, int)>("mkostemp");
  Disk* const disk = DiskOf(path);
  if (disk == nullptr) return real(path, flags);
  static uint64_t next = 0;
  char* const letters = path + std::strlen(path) - 6;
  uint64_t number = next++;
  for (int i = 0; i < 6; ++i, number /= 26) letters[i] = static_cast<char>('a' + number % 26);
  return OpenIn(*disk, path, flags | O_RDWR | O_CREAT | O_EXCL, 0600);
}

int close(int fd) {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return static_cast<int>(syscall(SYS_close, fd));
  if (open->file != nullptr && open->file->locked_through == fd) {
    open->file->locked_by = nullptr;
    open->file->locked_through = -1;
  }
  OpenFiles().erase(fd);
  return 0;
}

ssize_t read(int fd, void* into, size_t bytes) {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return syscall(SYS_read, fd, into, bytes);
  const ssize_t n = ReadFrom(*open, open->offset, into, bytes);
  open->offset += static_cast<uint64_t>(n);
  return n;
}

ssize_t pread(int fd, void* into, size_t bytes, off_t offset) {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return syscall(SYS_pread64, fd, into, bytes, offset);
  return ReadFrom(*open, static_cast<uint64_t>(offset), into, bytes);
}

ssize_t write(int fd, const void* from, size_t bytes) {
  OpenFile* open = Opened(fd);
  if (open == nullptr) return syscall(SYS_write, fd, from, bytes);
  Step();
  open = Opened(fd);
  const uint64_t offset = open->appends ? open->file->seen.size() : open->offset;
  const ssize_t n = WriteTo(*open, offset, from, bytes);
  if (n >= 0) open->offset = offset + static_cast<uint64_t>(n);
  return n;
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return syscall(SYS_pwrite64, fd, from, bytes, offset);
  Step();
  return WriteTo(*Opened(fd), static_cast<uint64_t>(offset), from, bytes);
}

off_t lseek(int fd, off_t offset, int whence) noexcept {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return syscall(SYS_lseek, fd, offset, whence);
  SHOAL_CHECK(whence == SEEK_SET);
  open->offset = static_cast<uint64_t>(offset);
  return offset;
}

int ftruncate(int fd, off_t size) noexcept {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return static_cast<int>(syscall(SYS_ftruncate, fd, size));
  Step();
  Opened(fd)->disk->Truncate(*Opened(fd)->file, static_cast<uint64_t>(size));
  return 0;
}

int posix_fallocate(int fd, off_t offset, off_t bytes) {
  static auto* const real = Real<int(int, off_t, off_t)>("posix_fallocate");
  if (Opened(fd) == nullptr) return real(fd, offset, bytes);
  Step();
  const OpenFile* const open = Opened(fd);
  const auto end = static_cast<uint64_t>(offset + bytes);
  if (open->file->seen.size() < end) open->disk->Truncate(*open->file, end);
  return 0;
}

int fsync(int fd) {
  if (Opened(fd) == nullptr) return static_cast<int>(syscall(SYS_fsync, fd));
  Step();
  OpenFile* const open = Opened(fd);
  return Result(open->file == nullptr ? open->disk->SyncDirectory(open->path)
                                      : open->disk->SyncFile(*open->file));
}

int fdatasync(int fd) {
  return Opened(fd) == nullptr ? static_cast<int>(syscall(SYS_fdatasync, fd)) : fsync(fd);
}

int flock(int fd, int operation) noexcept {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return static_cast<int>(syscall(SYS_flock, fd, operation));
  const Process*& owner = open->file->locked_by;
  if (owner != nullptr && owner->alive && open->file->locked_through != fd) {
    return Failed(EWOULDBLOCK);
  }
  owner = Scheduler::CurrentProcess();
  open->file->locked_through = fd;
  return 0;
}

int fstat(int fd, struct stat* info) noexcept {
  static auto* const real = Real<int(int, struct stat*)>("fstat");
  const OpenFile* const open = Opened(fd);
  if (open == nullptr) return real(fd, info);
  Describe(*open->disk, open->path, open->file, info);
  return 0;
}

int stat(const char* path, struct stat* info) noexcept {
  static auto* const real = Real<int(const char*, struct stat*)>("stat");
  const Disk* const disk = DiskOf(path);
  if (disk == nullptr) return real(path, info);
  const Disk::FilePointer file = disk->Find(path);
  if (file == nullptr && !disk->IsDirectory(path)) return Failed(ENOENT);
  Describe(*disk, path, file, info);
  return 0;
}

// There are no links.
int lstat(const char* path, struct stat* info) noexcept {
  static auto* const real = Real<int(const char*, struct stat*)>("lstat");
  return DiskOf(path) == nullptr ? real(path, info) : stat(path, info);
}

int statx(int directory, const char* path, int flags, unsigned mask, struct statx* info) noexcept {
  const Disk* const disk = DiskOf(path);
  if (disk == nullptr) {
    return static_cast<int>(syscall(SYS_statx, directory, path, flags, mask, info));
  }
  const Disk::FilePointer file = disk->Find(path);
  if (file == nullptr) return Failed(ENOENT);
  std::memset(info, 0, sizeof *info);
  info->stx_mask = STATX_INO | STATX_BTIME;
  info->stx_ino = file->inode;
  info->stx_btime.tv_sec = static_cast<int64_t>(file->birth_ns / kSecond);
  info->stx_btime.tv_nsec = static_cast<uint32_t>(file->birth_ns % kSecond);
  return 0;
}

int fchmod(int fd, mode_t mode) noexcept {
  OpenFile* const open = Opened(fd);
  if (open == nullptr) return static_cast<int>(syscall(SYS_fchmod, fd, mode));
  open->file->mode = mode;
  return 0;
}

int access(const char* path, int mode) noexcept {
  const Disk* const disk = DiskOf(path);
  if (disk == nullptr) return static_cast<int>(syscall(SYS_access, path, mode));
  return disk->Find(path) != nullptr || disk->IsDirectory(path) ? 0 : Failed(ENOENT);
}

int rename(const char* from, const char* to) noexcept {
  Disk* const disk = DiskOf(from);
  if (disk == nullptr) return static_cast<int>(syscall(SYS_rename, from, to));
  Step();
  return Result(disk->Rename(from, to));
}

int unlink(const char* path) noexcept {
  Disk* const disk = DiskOf(path);
  if (disk == nullptr) return static_cast<int>(syscall(SYS_unlink, path));
  Step();
  return Result(disk->Remove(path));
}

int remove(const char* path) noexcept {
  static auto* const real = Real<int(const char*)>("remove");
  return DiskOf(path) == nullptr ? real(path) : unlink(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  Disk* const disk = DiskOf(path);
  if (disk == nullptr) return static_cast<int>(syscall(SYS_mkdir, path, mode));
  if (disk->IsDirectory(path)) return Failed(EEXIST);
  disk->MakeDirectory(path);
  return 0;
}

int posix_fadvise(int fd, off_t offset, off_t length, int advice) noexcept {
  static auto* const real = Real<int(int, off_t, off_t, int)>("posix_fadvise");
  return Opened(fd) == nullptr ? real(fd, offset, length, advice) : 0;
}

DIR* fdopendir(int fd) {
  static auto* const real = Real<DIR*(int)>("fdopendir");
  const OpenFile* const open = Opened(fd);
  if (open == nullptr) return real(fd);
  auto listing = std::make_unique<Listing>();
  listing->fd = fd;
  listing->names = open->disk->Names(open->path);
  DIR* const directory = reinterpret_cast<DIR*>(listing.get());
  Listings().emplace(directory, std::move(listing));
  return directory;
}

int dirfd(DIR* directory) noexcept {
  static auto* const real = Real<int(DIR*)>("dirfd");
  const Listing* const listing = ListingOf(directory);
  return listing == nullptr ? real(directory) : listing->fd;
}

dirent* readdir(DIR* directory) {
  static auto* const real = Real<dirent*(DIR*)>("readdir");
  Listing* const listing = ListingOf(directory);
  if (listing == nullptr) return real(directory);
  if (listing->next == listing->names.size()) return nullptr;
  const std::string& name = listing->names[listing->next++];
  SHOAL_CHECK(name.size() < sizeof listing->entry.d_name);
  std::memcpy(listing->entry.d_name, name.c_str(), name.size() + 1);
  listing->entry.d_type = DT_REG;
  return &listing->entry;
}

int closedir(DIR* directory) {
  static auto* const real = Real<int(DIR*)>("closedir");
  const Listing* const listing = ListingOf(directory);
  if (listing == nullptr) return real(directory);
  close(listing->fd);
  Listings().erase(directory);
  return 0;
}

}  // extern "C"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which look themselves
// What is freed in a simulation is overwritten, so that who still reads it does not find what it
// was.

void operator delete(void* memory) noexcept {
  if (memory != nullptr && Scheduler::Current() != nullptr) {
    std::memset(memory, 0xDB, malloc_usable_size(memory));
  }
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
#endif
