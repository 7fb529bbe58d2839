#include "src/server/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/storage/file.h"

namespace shoal::server {
namespace {

enum class Kind : uint8_t { kContent = 1, kEpoch = 2, kEnd = 3 };

Bytes ContentRecord(RoundCounter round, Content content, const Digest& digest) {
  Bytes record = {static_cast<uint8_t>(Kind::kContent), static_cast<uint8_t>(content)};
  AppendLe(record, round.value());
  Append(record, digest);
  return record;
}

Bytes EpochRecord(absl::string_view subject, uint64_t epoch, const Digest& digest) {
  Bytes record = {static_cast<uint8_t>(Kind::kEpoch)};
  AppendLe(record, epoch);
  Append(record, digest);
  Append(record, AsBytes(subject));
  return record;
}

Bytes EndRecord(RoundCounter round) {
  Bytes record = {static_cast<uint8_t>(Kind::kEnd)};
  AppendLe(record, round.value());
  return record;
}

constexpr size_t kChecksumBytes = 16;
constexpr size_t kFrameBytes = 4 + kChecksumBytes;
// Limits of the file `journal`. Records are small, so that a damaged length is nearly always
// distinguished from a torn tail.
constexpr uint32_t kMaxRecordBytes = 1 << 10;
constexpr uint64_t kMaxJournalBytes = uint64_t{1} << 32;

Bytes Frame(BytesView record) {
  Bytes framed;
  AppendLe(framed, static_cast<uint32_t>(record.size()));
  const Digest checksum = Transcript("shoal journal record v1").Blob(record).Finish();
  Append(framed, BytesView(checksum).first(kChecksumBytes));
  Append(framed, record);
  return framed;
}

absl::Status DataLoss(absl::string_view why) {
  return absl::DataLossError(absl::StrCat(
      "journal: ", why, "; what this party has sent is no longer known: give it new keys"));
}

absl::Status Damaged(absl::string_view path, absl::string_view why) {
  return StorageError(absl::StatusCode::kDataLoss, absl::StrCat(path, ": ", why));
}

absl::Status BrokenSubmissions(const std::string& path) {
  return Damaged(
      path, "an earlier write failed, and what is on the disk is not known; the round is lost");
}

// DATA_LOSS with the message of an error that breaks a file for good.
absl::Status Lost(const absl::Status& why) {
  return StorageError(absl::StatusCode::kDataLoss, why.message());
}

constexpr uint8_t kContentBits = 0x0f;

// " of half A" of a content of that.
absl::string_view HalfName(Content content) {
  switch (static_cast<uint8_t>(content) >> 4) {
    case 1:
      return " of half A";
    case 2:
      return " of half B";
    default:
      return "";
  }
}

}  // namespace

absl::string_view ContentName(Content content) {
  switch (static_cast<Content>(static_cast<uint8_t>(content) & kContentBits)) {
    case Content::kHeader:
      return "header";
    case Content::kOfflineInput:
      return "offline list";
    case Content::kOfflineOutput:
      return "offline output";
    case Content::kQueriesInput:
      return "queries";
    case Content::kQueriesOutput:
      return "forwarded queries";
    case Content::kAnswersInput:
      return "answers";
    case Content::kAnswersOutput:
      return "returned answers";
    case Content::kPieces:
      return "pieces";
  }
  return "unknown content";
}

absl::Status Journal::CommitRound(RoundCounter round, Content content, const Digest& digest) {
  const MutexLock lock(mutex_);
  const auto found = contents_.find({round, content});
  if (found != contents_.end()) {
    if (found->second.digest != digest) {
      return absl::FailedPreconditionError(
          absl::StrCat("round ", round.value(), ": another ", ContentName(content),
                       HalfName(content), " was taken before; a round has one for ever"));
    }
    if (found->second.durable) return absl::OkStatus();
  } else if (content == Content::kHeader) {
    if (round <= highest_round_) {
      return absl::FailedPreconditionError(absl::StrCat("round ", round.value(),
                                                        ": counters only rise, and ",
                                                        highest_round_.value(), " was used"));
    }
    highest_round_ = round;
  } else if (!contents_.contains({round, Content::kHeader})) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", round.value(), ": not open here (ended, or never begun)"));
  }
  Committed& committed = contents_[{round, content}];
  committed = {.digest = digest, .durable = false};
  SHOAL_RETURN_IF_ERROR(Persist(ContentRecord(round, content, digest)));
  committed.durable = true;
  return absl::OkStatus();
}

absl::Status Journal::CommitEpoch(absl::string_view subject, uint64_t epoch, const Digest& digest) {
  const MutexLock lock(mutex_);
  const auto found = epochs_.find(std::string(subject));
  if (found != epochs_.end()) {
    if (epoch < found->second.number) {
      return absl::FailedPreconditionError(
          absl::StrCat(std::string(subject), ": epoch ", epoch, " is older than epoch ",
                       found->second.number, ", which was used before"));
    }
    if (epoch == found->second.number) {
      if (found->second.digest != digest) {
        return absl::FailedPreconditionError(
            absl::StrCat(std::string(subject), ": epoch ", epoch,
                         " was used before with another content; raise the epoch"));
      }
      if (found->second.durable) return absl::OkStatus();
    }
  }
  Epoch& committed = epochs_[std::string(subject)];
  committed = {.number = epoch, .digest = digest, .durable = false};
  SHOAL_RETURN_IF_ERROR(Persist(EpochRecord(subject, epoch, digest)));
  committed.durable = true;
  return absl::OkStatus();
}

uint64_t Journal::highest_epoch(absl::string_view subject) const {
  const MutexLock lock(mutex_);
  const auto found = epochs_.find(std::string(subject));
  return found == epochs_.end() ? 0 : found->second.number;
}

absl::Status Journal::PersistEnd(RoundCounter round) {
  contents_.erase(contents_.lower_bound({round, Content{0}}),
                  contents_.lower_bound({RoundCounter(round.value() + 1), Content{0}}));
  return Persist(EndRecord(round));
}

absl::Status Journal::EndRound(RoundCounter round) {
  absl::Status ended;
  {
    const MutexLock lock(mutex_);
    if (contents_.contains({round, Content::kHeader})) ended = PersistEnd(round);
  }
  const absl::Status deleted = DeleteSubmissions(round);
  return ended.ok() ? deleted : ended;
}

absl::Status Journal::EndOpenRounds() {
  const MutexLock lock(mutex_);
  while (!contents_.empty()) {
    const RoundCounter round = contents_.begin()->first.first;
    SHOAL_RETURN_IF_ERROR(PersistEnd(round));
  }
  return absl::OkStatus();
}

std::vector<Bytes> Journal::Summary() const {
  std::vector<Bytes> records;
  // Ended rounds are refused by the highest counter alone, which stands here as a round of its own.
  records.push_back(ContentRecord(highest_round_, Content::kHeader, Digest()));
  records.push_back(EndRecord(highest_round_));
  for (const auto& [key, committed] : contents_) {
    records.push_back(ContentRecord(key.first, key.second, committed.digest));
  }
  for (const auto& [subject, epoch] : epochs_) {
    records.push_back(EpochRecord(subject, epoch.number, epoch.digest));
  }
  return records;
}

RoundCounter Journal::highest_round() const {
  const MutexLock lock(mutex_);
  return highest_round_;
}

absl::Status Journal::Replay(BytesView record) {
  const MutexLock lock(mutex_);
  if (record.empty()) return DataLoss("empty record");
  const BytesView body = record.subspan(1);
  switch (static_cast<Kind>(record[0])) {
    case Kind::kContent: {
      if (body.size() != 1 + 8 + sizeof(Digest)) return DataLoss("record of a wrong length");
      const RoundCounter round(LoadLe<uint64_t>(body.data() + 1));
      const Content content = static_cast<Content>(body[0]);
      Committed& committed = contents_[{round, content}];
      std::copy_n(body.data() + 9, sizeof(Digest), committed.digest.begin());
      committed.durable = true;
      highest_round_ = std::max(highest_round_, round);
      return absl::OkStatus();
    }
    case Kind::kEpoch: {
      if (body.size() < 8 + sizeof(Digest)) return DataLoss("record of a wrong length");
      Epoch& epoch = epochs_[ToString(body.subspan(8 + sizeof(Digest)))];
      epoch.number = LoadLe<uint64_t>(body.data());
      std::copy_n(body.data() + 8, sizeof(Digest), epoch.digest.begin());
      epoch.durable = true;
      return absl::OkStatus();
    }
    case Kind::kEnd: {
      if (body.size() != 8) return DataLoss("record of a wrong length");
      const RoundCounter round(LoadLe<uint64_t>(body.data()));
      contents_.erase(contents_.lower_bound({round, Content{0}}),
                      contents_.lower_bound({RoundCounter(round.value() + 1), Content{0}}));
      return absl::OkStatus();
    }
  }
  return DataLoss("record of an unknown kind");
}

class FileJournal::OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<std::unique_ptr<FileJournal>> FileJournal::Open(const std::string& directory,
                                                               FileJournalOptions options) {
  SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPrivate));
  std::unique_ptr<FileJournal> journal(new FileJournal(directory, std::move(options)));
  journal->directory_fd_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (journal->directory_fd_ < 0) return ErrnoStatus(errno, directory);
  const std::string lock_path = directory + "/lock";
  journal->lock_fd_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (journal->lock_fd_ < 0) return ErrnoStatus(errno, lock_path);
  if (::flock(journal->lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": another process uses this directory"));
  }
  SHOAL_RETURN_IF_ERROR(Annotate(journal->Load(), directory));
  return journal;
}

FileJournal::~FileJournal() {
  if (journal_fd_ >= 0) ::close(journal_fd_);
  if (lock_fd_ >= 0) ::close(lock_fd_);
  if (directory_fd_ >= 0) ::close(directory_fd_);
}

absl::Status FileJournal::Load() {
  // Removes what an earlier process left of its rounds, which is never used. First, because later
  // steps can fail over a damaged journal or a full disk, on which this may make room.
  SHOAL_RETURN_IF_ERROR(RemoveLeftovers());
  const std::string path = directory_ + "/journal";
  std::string content;
  if (FileExists(path)) {
    SHOAL_ASSIGN_OR_RETURN(content, ReadPrivateFile(path, kMaxJournalBytes));
  }
  BytesView rest = AsBytes(content);
  while (!rest.empty()) {
    if (rest.size() < kFrameBytes) break;  // torn
    const uint32_t length = LoadLe<uint32_t>(rest.data());
    if (length <= kMaxRecordBytes && rest.size() < kFrameBytes + length) break;  // torn
    if (length > kMaxRecordBytes) return DataLoss("damaged record");
    const BytesView record = rest.subspan(kFrameBytes, length);
    const Bytes expected = Frame(record);
    if (!std::equal(expected.begin(), expected.end(), rest.begin())) {
      // The last record may have been cut short with its length already on disk.
      if (rest.size() == kFrameBytes + length) break;
      // Or with the file's length alone: then zeros stand in its place.
      if (rest.size() <= kFrameBytes + kMaxRecordBytes &&
          std::ranges::all_of(rest, [](uint8_t byte) { return byte == 0; })) {
        break;
      }
      return DataLoss("damaged record");
    }
    SHOAL_RETURN_IF_ERROR(Replay(record));
    rest = rest.subspan(kFrameBytes + length);
  }
  journal_fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (journal_fd_ < 0) return ErrnoStatus(errno, path);
  // A new file whose directory entry is lost would lose every counter.
  SHOAL_RETURN_IF_ERROR(SyncDirectory(directory_));
  const uint64_t whole_bytes = content.size() - rest.size();
  if (!rest.empty() && ::ftruncate(journal_fd_, static_cast<off_t>(whole_bytes)) != 0) {
    return ErrnoStatus(errno, path);
  }
  {
    const MutexLock lock(mutex_);
    journal_bytes_ = whole_bytes;
    compact_at_bytes_ = options_.compact_bytes;
  }
  return EndOpenRounds();
}

// Removes submissions of rounds that were open or being ended, seeds that an earlier version
// stored, and what a write of StoreRounds or Compact left that was broken off. Goes on after a file
// that cannot be removed.
absl::Status FileJournal::RemoveLeftovers() {
  std::error_code error;
  absl::Status first_error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, "round-") &&
        !absl::StartsWith(name, absl::StrCat("rounds", kTemporarySuffix)) &&
        !absl::StartsWith(name, absl::StrCat("journal", kTemporarySuffix))) {
      continue;
    }
    const std::string path = entry.path().string();
    first_error.Update(absl::EndsWith(name, ".submissions") ? DeleteFile(path) : WipeFile(path));
  }
  if (error) first_error.Update(ErrnoStatus(error.value(), directory_));
  return first_error;
}

std::string FileJournal::RoundFile(RoundCounter round, absl::string_view suffix) const {
  return absl::StrCat(directory_, "/round-", round.value(), ".", suffix);
}

int FileJournal::SyncData(int fd) const {
  const Stopwatch stopwatch;
  const int result = ::fdatasync(fd);
  const int error = errno;  // `synced` may change it
  if (options_.synced) options_.synced(stopwatch.Seconds());
  errno = error;
  return result;
}

absl::Status FileJournal::Persist(BytesView record) {
  SHOAL_CHECK(record.size() <= kMaxRecordBytes);
  const std::string path = directory_ + "/journal";
  if (broken_) {
    return Damaged(path,
                   "an earlier write failed, and what is on the disk is not known; the party ends");
  }
  if (journal_bytes_ >= compact_at_bytes_) SHOAL_RETURN_IF_ERROR(Compact());
  const Bytes framed = Frame(record);
  if (absl::Status written = WriteAll(journal_fd_, framed, path); !written.ok()) {
    // Cuts off the half record, so that the next one follows whole records.
    if (::ftruncate(journal_fd_, static_cast<off_t>(journal_bytes_)) != 0) return Break(written);
    return written;
  }
  if (SyncData(journal_fd_) != 0) {
    // The system may have dropped what it could not write: a second try proves nothing.
    return Break(ErrnoStatus(errno, absl::StrCat("syncing ", path)));
  }
  journal_bytes_ += framed.size();
  return absl::OkStatus();
}

absl::Status FileJournal::Break(absl::Status why) {
  broken_ = true;
  if (options_.broken) options_.broken(why);
  return why;
}

absl::Status FileJournal::Compact() {
  const std::string path = directory_ + "/journal";
  compact_at_bytes_ = journal_bytes_ + options_.compact_bytes;
  Bytes content;
  for (const Bytes& record : Summary()) Append(content, Frame(record));
  std::string temporary = absl::StrCat(path, kTemporarySuffix, "XXXXXX");
  const int fd = ::mkostemp(temporary.data(), O_APPEND | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();
  if (!WriteAll(fd, content, temporary).ok() || SyncData(fd) != 0) {
    ::close(fd);
    ::unlink(temporary.c_str());
    return absl::OkStatus();
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0 || ::fsync(directory_fd_) != 0) {
    const absl::Status why = ErrnoStatus(errno, absl::StrCat("replacing ", path));
    ::close(fd);
    return Break(why);  // a start may find the one file or the other
  }
  ::close(std::exchange(journal_fd_, fd));
  journal_bytes_ = content.size();
  compact_at_bytes_ = journal_bytes_ + options_.compact_bytes;
  return absl::OkStatus();
}

absl::Status FileJournal::AppendSubmission(RoundCounter round, BytesView record) {
  const std::string path = RoundFile(round, "submissions");
  const MutexLock lock(submissions_mutex_);
  Submissions& submissions = submissions_[round];
  if (submissions.broken) return BrokenSubmissions(path);
  if (submissions.file == nullptr) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    // UNAVAILABLE if all descriptors are in use, most likely by clients, who will free some.
    if (fd < 0) return ErrnoStatus(errno, path);
    submissions.file = std::make_shared<const OpenFile>(fd);
    if (::fsync(directory_fd_) != 0) {
      submissions.broken = true;
      return Lost(ErrnoStatus(errno, absl::StrCat("syncing ", directory_)));
    }
  }
  const absl::Status written = WriteAll(submissions.file->fd(), Frame(record), path);
  if (written.ok()) return written;
  // Records after a half record cannot be found.
  submissions.broken = true;
  return Lost(written);
}

absl::Status FileJournal::Sync(RoundCounter round) {
  const std::string path = RoundFile(round, "submissions");
  std::shared_ptr<const OpenFile> file;
  {
    const MutexLock lock(submissions_mutex_);
    const auto found = submissions_.find(round);
    if (found == submissions_.end()) return absl::OkStatus();
    if (found->second.broken) return BrokenSubmissions(path);
    file = found->second.file;  // the round's end must not close it during the sync
  }
  if (file == nullptr || SyncData(file->fd()) == 0) return absl::OkStatus();
  const absl::Status lost = Lost(ErrnoStatus(errno, path));
  // The next sync would succeed although this one has lost data.
  const MutexLock lock(submissions_mutex_);
  if (const auto found = submissions_.find(round); found != submissions_.end()) {
    found->second.broken = true;
  }
  return lost;
}

class FileJournal::SubmissionsSource final : public ByteSource {
 public:
  SubmissionsSource(int fd, std::string path, uint64_t bytes)
      : fd_(fd), path_(std::move(path)), bytes_(bytes) {
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);  // a hint
  }
  ~SubmissionsSource() override { ::close(fd_); }
  uint64_t size() const override { return bytes_; }

  // Returns one record at a time: what one client sent in one request. Does not check the checksum,
  // since this process wrote the record.
  absl::StatusOr<BytesView> Next() override {
    if (given_ == bytes_) return BytesView();
    std::array<uint8_t, kFrameBytes> frame;
    SHOAL_RETURN_IF_ERROR(Read(frame));
    const uint32_t length = LoadLe<uint32_t>(frame.data());
    if (length == 0 || length > bytes_ - given_) {
      return Damaged(path_, "a record of a wrong length");
    }
    record_.resize(length);
    SHOAL_RETURN_IF_ERROR(Read(record_));
    given_ += length;
    return BytesView(record_);
  }

 private:
  absl::Status Read(MutableBytes into) {
    while (!into.empty()) {
      const ssize_t n = ::read(fd_, into.data(), into.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, path_);
      if (n == 0) return Damaged(path_, "ends too early");
      into = into.subspan(static_cast<size_t>(n));
    }
    return absl::OkStatus();
  }

  const int fd_;
  const std::string path_;
  const uint64_t bytes_;
  uint64_t given_ = 0;
  Bytes record_;
};

absl::StatusOr<std::unique_ptr<ByteSource>> FileJournal::ReadSubmissions(RoundCounter round,
                                                                         uint64_t bytes) {
  const std::string path = RoundFile(round, "submissions");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, path);
  return std::make_unique<SubmissionsSource>(fd, path, bytes);
}

absl::Status FileJournal::StoreRounds(BytesView rounds) {
  return WriteFileAtomically(RoundsPath(), rounds, FileMode::kPrivate);
}

absl::StatusOr<Bytes> FileJournal::LoadRounds() const {
  const auto content = ReadPrivateFile(RoundsPath());
  if (absl::IsNotFound(content.status())) return Bytes();
  if (!content.ok()) return content.status();
  return ToBytes(AsBytes(*content));
}

absl::Status FileJournal::DeleteSubmissions(RoundCounter round) {
  {
    const MutexLock lock(submissions_mutex_);
    submissions_.erase(round);
  }
  return DeleteFile(RoundFile(round, "submissions"));
}

}  // namespace shoal::server
