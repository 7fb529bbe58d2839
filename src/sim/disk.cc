#include "src/sim/disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace shoal::sim {
namespace {

// What a disk writes at once, and so never tears.
constexpr uint64_t kSectorBytes = 512;

void ApplyTo(Bytes& content, const Disk::Write& write) {
  if (write.truncates) {
    content.resize(write.offset);
    return;
  }
  const size_t end = write.offset + write.bytes.size();
  if (content.size() < end) content.resize(end);
  std::copy(write.bytes.begin(), write.bytes.end(),
            content.begin() + static_cast<ptrdiff_t>(write.offset));
}

std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool Contains(const Bytes& where, BytesView bytes) {
  return memmem(where.data(), where.size(), bytes.data(), bytes.size()) != nullptr;
}

}  // namespace

Disk::FilePointer Disk::Find(const std::string& path) const {
  const auto found = names_.find(path);
  return found == names_.end() ? nullptr : found->second;
}

std::vector<std::string> Disk::Names(const std::string& directory) const {
  std::vector<std::string> names;
  const std::string prefix = directory + "/";
  for (const auto& [path, file] : names_) {
    if (absl::StartsWith(path, prefix) && path.find('/', prefix.size()) == std::string::npos) {
      names.push_back(path.substr(prefix.size()));
    }
  }
  return names;
}

int Disk::Create(const std::string& path, uint32_t mode, uint64_t now_ns, FilePointer& file) {
  if (read_only_) return EROFS;
  if (full_) return ENOSPC;
  if (!IsDirectory(DirectoryOf(path))) return ENOENT;
  file = std::make_shared<File>();
  file->path = path;
  file->inode = next_inode_++;
  file->birth_ns = file->written_ns = now_ns;
  file->mode = mode;
  const NameChange change{.path = path, .file = file, .from = ""};
  Apply(change, names_);
  unsynced_names_.push_back(change);
  if (on_create) on_create(*file);
  return 0;
}

int Disk::WriteAt(File& file, uint64_t offset, BytesView bytes, size_t& written) {
  written = 0;
  if (read_only_) return EROFS;
  // What lies in the file's last block already still fits.
  if (full_ && offset + bytes.size() > file.seen.size()) {
    const uint64_t room = (file.seen.size() + 15) / 16 * 16;
    if (offset >= room) return ENOSPC;
    bytes = bytes.first(std::min<uint64_t>(bytes.size(), room - offset));
  }
  Write write{.offset = offset, .bytes = ToBytes(bytes)};
  ApplyTo(file.seen, write);
  file.unsynced.push_back(std::move(write));
  written = bytes.size();
  if (on_write) on_write(file);
  return 0;
}

void Disk::Truncate(File& file, uint64_t size) {
  Write write{.offset = size, .bytes = {}, .truncates = true};
  ApplyTo(file.seen, write);
  file.unsynced.push_back(std::move(write));
}

void Disk::Apply(const NameChange& change, std::map<std::string, FilePointer>& names) {
  if (!change.from.empty()) names.erase(change.from);
  if (change.file == nullptr) {
    names.erase(change.path);
  } else {
    names[change.path] = change.file;
  }
}

int Disk::Rename(const std::string& from, const std::string& to) {
  if (read_only_) return EROFS;
  const FilePointer file = Find(from);
  if (file == nullptr) return ENOENT;
  const FilePointer replaced = Find(to);
  if (replaced != nullptr) removed_.push_back(replaced);
  file->path = to;
  const NameChange change{.path = to, .file = file, .from = from};
  Apply(change, names_);
  unsynced_names_.push_back(change);
  if (on_rename) on_rename(*file, replaced.get());
  return 0;
}

int Disk::Remove(const std::string& path) {
  if (read_only_) return EROFS;
  const FilePointer file = Find(path);
  if (file == nullptr) return ENOENT;
  removed_.push_back(file);
  const NameChange change{.path = path, .file = nullptr, .from = ""};
  Apply(change, names_);
  unsynced_names_.push_back(change);
  return 0;
}

int Disk::SyncFile(File& file) {
  if (failing_syncs_ > 0) {
    --failing_syncs_;
    // As Linux does: what could not be written counts as written, and is not tried again.
    file.unsynced.clear();
    return EIO;
  }
  file.durable = file.seen;
  file.unsynced.clear();
  return 0;
}

int Disk::SyncDirectory(const std::string& path) {
  if (failing_syncs_ > 0) {
    --failing_syncs_;
    return EIO;
  }
  std::erase_if(unsynced_names_, [&](const NameChange& change) {
    if (DirectoryOf(change.path) != path) return false;
    Apply(change, durable_names_);
    return true;
  });
  return 0;
}

void Disk::CutPower(Rng& rng) {
  // Names are journaled: they become durable in their order.
  const size_t kept = rng.Below(unsynced_names_.size() + 1);
  for (size_t i = 0; i < kept; ++i) Apply(unsynced_names_[i], durable_names_);
  unsynced_names_.clear();
  names_ = durable_names_;
  std::set<File*> files;
  for (const auto& [path, file] : names_) files.insert(file.get());
  for (const FilePointer& file : removed_) files.insert(file.get());
  // In an order that no address decides.
  std::vector<File*> ordered(files.begin(), files.end());
  std::sort(ordered.begin(), ordered.end(),
            [](const File* a, const File* b) { return a->inode < b->inode; });
  for (File* const file : ordered) {
    const double keeps = static_cast<double>(rng.Below(3)) / 2;  // none, some or all
    for (Write& write : file->unsynced) {
      if (!rng.Chance(keeps)) continue;
      if (!write.truncates && rng.Chance(0.3)) {  // torn: ends where a sector ends
        const uint64_t end = write.offset + rng.Below(write.bytes.size() + 1);
        const uint64_t sector = end / kSectorBytes * kSectorBytes;
        // The file's length may count bytes that were not written yet: they read as zeros.
        if (rng.Chance(0.5)) {
          write.bytes.resize(sector > write.offset ? sector - write.offset : 0);
        } else {
          const uint64_t from = sector > write.offset ? sector - write.offset : 0;
          std::fill(write.bytes.begin() +
                        static_cast<ptrdiff_t>(std::min<uint64_t>(from, write.bytes.size())),
                    write.bytes.end(), 0);
        }
      }
      ApplyTo(file->durable, write);
    }
    file->unsynced.clear();
    file->seen = file->durable;
  }
}

void Disk::Lose() {
  names_.clear();
  durable_names_.clear();
  unsynced_names_.clear();
  removed_.clear();
  std::erase_if(directories_, [](const std::string& path) { return path != kSimulatedMemory; });
}

void Disk::OverwriteInPlace(const std::string& path, BytesView content) {
  const FilePointer file = Find(path);
  if (file == nullptr) return;
  file->seen = file->durable = ToBytes(content);
  file->unsynced.clear();
}

Disk::Snapshot Disk::Take() const {
  Snapshot snapshot{.files = {}, .next_inode = next_inode_};
  for (const auto& [path, file] : names_) {
    File& copy = snapshot.files[path] = *file;
    copy.durable = copy.seen;
    copy.unsynced.clear();
    copy.locked_by = nullptr;
  }
  return snapshot;
}

void Disk::Restore(const Snapshot& snapshot) {
  for (const auto& [path, file] : names_) removed_.push_back(file);
  names_.clear();
  unsynced_names_.clear();
  for (const auto& [path, file] : snapshot.files) names_[path] = std::make_shared<File>(file);
  durable_names_ = names_;
  next_inode_ = snapshot.next_inode;
}

bool Disk::HoldsDurably(const std::string& path, BytesView bytes) const {
  const auto found = durable_names_.find(path);
  return found != durable_names_.end() && Contains(found->second->durable, bytes);
}

void Disk::RestoreCopy(const std::string& path, BytesView content, uint64_t now_ns) {
  FilePointer file = std::make_shared<File>();
  file->path = path;
  file->inode = next_inode_++;
  file->birth_ns = file->written_ns = now_ns;
  file->seen = file->durable = ToBytes(content);
  names_[path] = durable_names_[path] = file;
}

std::string Disk::Search(BytesView bytes) const {
  for (const auto* names : {&names_, &durable_names_}) {
    for (const auto& [path, file] : *names) {
      if (Contains(file->seen, bytes) || Contains(file->durable, bytes)) return path;
    }
  }
  for (const FilePointer& file : removed_) {
    if (Contains(file->seen, bytes) || Contains(file->durable, bytes)) {
      return absl::StrCat("a file that was removed (inode ", file->inode, ")");
    }
  }
  return "";
}

}  // namespace shoal::sim
