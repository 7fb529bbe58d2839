// A machine's files in memory, as a file system keeps them: what a process sees at once, and what
// would be there after a power cut. Only a sync makes a file's content durable, and only a sync of
// the directory its name. src/sim/interpose.cc leads the files of simulated processes here.
#ifndef SHOAL_SRC_SIM_DISK_H_
#define SHOAL_SRC_SIM_DISK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/sim/scheduler.h"

namespace shoal::sim {

// Files of simulated processes begin with this; all others are the real machine's.
inline constexpr char kSimulatedFiles[] = "/sim";
// And these are in a machine's memory, as those of /dev/shm: no trouble with disks, no power cut
// survived.
inline constexpr char kSimulatedMemory[] = "/sim/memory";

class Disk {
 public:
  struct Write {
    uint64_t offset = 0;
    Bytes bytes;
    bool truncates = false;  // to `offset`, and writes nothing
  };
  struct File {
    std::string path;  // its latest name
    uint64_t inode = 0;
    uint64_t birth_ns = 0, written_ns = 0;
    uint32_t mode = 0600;
    Bytes seen;
    Bytes durable;
    std::vector<Write> unsynced;  // from `durable` to `seen`
    // By flock: a process, and its descriptor.
    const Process* locked_by = nullptr;
    int locked_through = -1;
  };
  using FilePointer = std::shared_ptr<File>;
  // Everything that is on it, as a file system keeps it: inodes and times of birth, too.
  struct Snapshot {
    std::map<std::string, File> files;
    uint64_t next_inode = 0;
  };

  explicit Disk(uint64_t first_inode) : next_inode_(first_inode) {}

  // Null if there is none.
  FilePointer Find(const std::string& path) const;
  bool IsDirectory(const std::string& path) const { return directories_.contains(path); }
  void MakeDirectory(const std::string& path) { directories_.insert(path); }
  std::vector<std::string> Names(const std::string& directory) const;

  // 0 or an errno.
  int Create(const std::string& path, uint32_t mode, uint64_t now_ns, FilePointer& file);
  int WriteAt(File& file, uint64_t offset, BytesView bytes, size_t& written);
  void Truncate(File& file, uint64_t size);
  int Rename(const std::string& from, const std::string& to);
  int Remove(const std::string& path);
  int SyncFile(File& file);
  int SyncDirectory(const std::string& path);

  // Told a file that was just created or written to, and one that has a new name, with the file
  // that had this name before (null: none).
  std::function<void(const File&file)> on_create, on_write;
  std::function<void(const File& file, const File* replaced)> on_rename;

  // What goes wrong from now on. Full: nothing new can be written; a write may still begin.
  void set_full(bool full) { full_ = full; }
  void set_read_only(bool read_only) { read_only_ = read_only; }
  // The next so many syncs fail, and what they should have made durable may be lost.
  void set_failing_syncs(int syncs) { failing_syncs_ = syncs; }

  // What is there after a power cut: of unsynced writes any may be missing or torn, of unsynced
  // names the last ones.
  void CutPower(Rng& rng);

  // All is gone, as what lay in memory is after a power cut.
  void Lose();

  // Three ways of bringing old content back, durable at once. In a new file, as a backup program
  // does; over the file that is there (which stays the same one), as cp does; the whole disk.
  void RestoreCopy(const std::string& path, BytesView content, uint64_t now_ns);
  void OverwriteInPlace(const std::string& path, BytesView content);
  Snapshot Take() const;
  void Restore(const Snapshot& snapshot);

  // Whether the file would hold the bytes after a power cut now.
  bool HoldsDurably(const std::string& path, BytesView bytes) const;

  // Whether the bytes are anywhere on the disk: in files, and in what removed files left behind.
  // Returns where, or "".
  std::string Search(BytesView bytes) const;

 private:
  struct NameChange {
    std::string path;
    FilePointer file;  // null: removed
    std::string from;  // not empty: the name that it had
  };
  static void Apply(const NameChange& change, std::map<std::string, FilePointer>& names);

  uint64_t next_inode_;
  std::set<std::string> directories_ = {kSimulatedFiles};
  std::map<std::string, FilePointer> names_, durable_names_;
  std::vector<NameChange> unsynced_names_;
  std::vector<FilePointer> removed_;  // whose blocks nobody has overwritten
  bool full_ = false, read_only_ = false;
  int failing_syncs_ = 0;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_DISK_H_
