#include "src/client/session_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"

namespace shoal::client {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 38;
constexpr size_t kGuardBytes = sizeof(Guard::id) + 5 * 8;
// Behind the digest: the servers; the guard's id; the guard's inode, time of birth and generation;
// this file's inode and time of birth; the state's length. In version 0.2 the state follows.
constexpr size_t kServersAt = sizeof(Digest), kIdAt = kServersAt + sizeof(Digest);
constexpr size_t kNumbersAt = kIdAt + sizeof(Guard::id), kLengthAt = kIdAt + kGuardBytes;
constexpr size_t kFirstStateAt = kLengthAt + 8;
// All that comes behind this magic now; then a slot's length, a digest, and the state.
constexpr absl::string_view kMagic = "SHOALSF4", kMagicWithoutDigests = "SHOALSF3";
constexpr size_t kMagicBytes = 8;
constexpr size_t kSlotBytesAt = kFirstStateAt, kBlocksAt = kSlotBytesAt + 8;
constexpr size_t kStateAt = kMagicBytes + kBlocksAt + sizeof(Digest);
// Around a record: its length before it, a digest behind it.
constexpr size_t kRecordHead = 4, kRecordBytes = kRecordHead + sizeof(Digest);
// Of a change: its number and a digest.
constexpr size_t kChangeHead = 8 + sizeof(Digest), kPatchHead = 8 + 4;
constexpr uint64_t kLeastSlotBytes = 1 << 16;
constexpr uint64_t kBlockBytes = 1 << 14;

Digest HeadDigest(BytesView head, bool has_digests = true) {
  return Transcript(has_digests ? "shoal client session v4" : "shoal client session v3")
      .Blob(head)
      .Finish();
}

Digest BlockDigest(uint64_t number, BytesView block) {
  return Transcript("shoal client session block v1").U64(number).Blob(block).Finish();
}

// Of a state in parts, block by block.
std::vector<Digest> BlockDigests(std::span<const BytesView> parts) {
  std::vector<Digest> digests;
  SecretVector<uint8_t> block;
  block.reserve(kBlockBytes);
  for (BytesView part : parts) {
    while (!part.empty()) {
      const BytesView more = part.first(std::min<size_t>(part.size(), kBlockBytes - block.size()));
      block.insert(block.end(), more.begin(), more.end());
      part = part.subspan(more.size());
      if (block.size() < kBlockBytes) continue;
      digests.push_back(BlockDigest(digests.size(), block));
      block.clear();
    }
  }
  if (!block.empty()) digests.push_back(BlockDigest(digests.size(), block));
  return digests;
}

Digest BlocksDigest(std::span<const Digest> blocks) {
  Transcript transcript("shoal client session blocks v1");
  transcript.BeginBlob(blocks.size() * sizeof(Digest));
  for (const Digest& block : blocks) transcript.BlobPiece(block);
  return transcript.Finish();
}

Digest ChangeDigest(const Digest& head, BytesView change) {
  return Transcript("shoal client session change v1").Blob(head).Blob(change).Finish();
}

MutableBytes BytesOf(std::vector<Digest>& digests) {
  return {reinterpret_cast<uint8_t*>(digests.data()), digests.size() * sizeof(Digest)};
}

// A change as a slot has it.
struct Redo {
  uint64_t number = 0;
  Digest blocks = {};
  std::vector<pir::StatePatch> patches;
  Digest digest = {};
  uint64_t bytes = 0;  // in its slot
};

// Nothing if there is none, or one that was not written completely.
std::optional<Redo> ParseChange(BytesView slot, const Digest& head, uint64_t state_bytes) {
  if (slot.size() < kRecordBytes + kChangeHead) return std::nullopt;
  const uint64_t length = LoadLe<uint32_t>(slot.data());
  if (length < kChangeHead || length > slot.size() - kRecordBytes) return std::nullopt;
  const BytesView change = slot.subspan(kRecordHead, length);
  Redo redo = {.number = LoadLe<uint64_t>(change.data()),
               .blocks = {},
               .patches = {},
               .digest = ChangeDigest(head, change),
               .bytes = kRecordBytes + length};
  if (!std::ranges::equal(slot.subspan(kRecordHead + length, sizeof(Digest)), redo.digest)) {
    return std::nullopt;
  }
  std::ranges::copy(change.subspan(8, sizeof(Digest)), redo.blocks.begin());
  for (BytesView rest = change.subspan(kChangeHead); !rest.empty();) {
    if (rest.size() < kPatchHead) return std::nullopt;
    const auto at = LoadLe<uint64_t>(rest.data());
    const uint64_t bytes = LoadLe<uint32_t>(rest.data() + 8);
    rest = rest.subspan(kPatchHead);
    if (bytes > rest.size() || at > state_bytes || bytes > state_bytes - at) return std::nullopt;
    redo.patches.push_back({.at = at, .bytes = rest.first(bytes)});
    rest = rest.subspan(bytes);
  }
  return redo;
}

Guard GuardOf(BytesView head, uint64_t changes) {
  Guard guard;
  std::ranges::copy(head.subspan(kIdAt, guard.id.size()), guard.id.begin());
  const auto number = [&](size_t i) { return LoadLe<uint64_t>(&head[kNumbersAt + 8 * i]); };
  guard.file = {.inode = number(0), .birth_ns = number(1)};
  guard.generation = number(2) + changes;
  guard.self = {.inode = number(3), .birth_ns = number(4)};
  return guard;
}

// The blocks that changes reach.
std::set<uint64_t> BlocksOf(std::span<const Redo> changes) {
  std::set<uint64_t> blocks;
  for (const Redo& redo : changes) {
    for (const pir::StatePatch& patch : redo.patches) {
      if (patch.bytes.empty()) continue;
      const uint64_t last = (patch.at + patch.bytes.size() - 1) / kBlockBytes;
      for (uint64_t number = patch.at / kBlockBytes; number <= last; ++number) {
        blocks.insert(number);
      }
    }
  }
  return blocks;
}

// What of the changes belongs into a block takes its place there.
void MakeChanges(std::span<const Redo> changes, uint64_t number, MutableBytes block) {
  const uint64_t first = number * kBlockBytes;
  for (const Redo& redo : changes) {
    for (const pir::StatePatch& patch : redo.patches) {
      const uint64_t begin = std::max(patch.at, first);
      const uint64_t end = std::min(patch.at + patch.bytes.size(), first + block.size());
      if (begin >= end) continue;
      std::ranges::copy(patch.bytes.subspan(begin - patch.at, end - begin),
                        block.begin() + static_cast<ptrdiff_t>(begin - first));
    }
  }
}

// Of a record that comes in pieces.
Transcript BeginRecordDigest(const Digest& before, uint64_t record_bytes) {
  Transcript transcript("shoal client session record v1");
  transcript.Blob(before).BeginBlob(record_bytes);
  return transcript;
}

Digest RecordDigest(const Digest& before, BytesView record) {
  return BeginRecordDigest(before, record.size()).BlobPiece(record).Finish();
}

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat(
      path, ": the session is damaged; remove it to begin anew (its preparation is lost then)"));
}

}  // namespace

uint64_t SessionFile::Layout::blocks() const {
  return (state_bytes + kBlockBytes - 1) / kBlockBytes;
}
uint64_t SessionFile::Layout::DigestAt(uint64_t block) const {
  return state_at + state_bytes + block * sizeof(Digest);
}
uint64_t SessionFile::Layout::SlotAt(uint64_t number) const {
  return DigestAt(has_digests ? blocks() : 0) + number % 2 * slot_bytes;
}

struct SessionFile::Found {
  Guard guard;
  Digest servers = {};
  Layout layout;
  std::vector<Digest> blocks;
  std::vector<Record> records;
  uint64_t end = 0;
  Digest digest = {};
  Digest head_digest = {};
  SecretVector<uint8_t> slots;  // both
  // The changes that the slots have, in order.
  std::vector<Redo> changes;
};

absl::StatusOr<SecretVector<uint8_t>> SessionFile::ReadBlock(const Layout& layout,
                                                             uint64_t number) const {
  const uint64_t first = number * kBlockBytes;
  SecretVector<uint8_t> block(std::min(kBlockBytes, layout.state_bytes - first));
  SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), layout.state_at + first, block));
  return block;
}

absl::Status SessionFile::ReadRecords(uint64_t size, Found& found) const {
  constexpr uint64_t kPiece = 1 << 20;
  uint64_t at = found.layout.end();
  while (size - at >= kRecordBytes) {
    std::array<uint8_t, kRecordHead> head;
    SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), at, head));
    const uint64_t length = LoadLe<uint32_t>(head.data());
    if (length == 0 || length > size - at - kRecordBytes) break;
    Record record = {.at = at + kRecordHead, .bytes = length, .before = found.digest, .digest = {}};
    Transcript transcript = BeginRecordDigest(record.before, length);
    SecretVector<uint8_t> piece;
    for (uint64_t done = 0; done < length; done += piece.size()) {
      piece.resize(std::min(kPiece, length - done));
      SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), record.at + done, piece));
      transcript.BlobPiece(piece);
    }
    const Digest next = transcript.Finish();
    SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), record.at + length, record.digest));
    // Only the last record can be torn. If this one is damaged, those behind it are lost with it,
    // and the anchor, which names the last one, tells.
    if (record.digest != next) break;
    found.records.push_back(record);
    found.digest = next;
    at += kRecordBytes + length;
  }
  found.end = at;
  return absl::OkStatus();
}

absl::StatusOr<SessionFile::Found> SessionFile::ReadFirstFormat(uint64_t size) const {
  if (size < kFirstStateAt) return Damaged(file_->path());
  Bytes head(kFirstStateAt);
  SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), 0, head));
  const BytesView bytes = head;
  Found found;
  found.layout = {.state_at = kFirstStateAt,
                  .state_bytes = LoadLe<uint64_t>(&bytes[kLengthAt]),
                  .has_digests = false,
                  .slot_bytes = 0};
  if (found.layout.state_bytes > size - kFirstStateAt) return Damaged(file_->path());
  SHOAL_RETURN_IF_ERROR(CheckMemory(found.layout.blocks() * sizeof(Digest), file_->path()));
  Transcript transcript("shoal client session v2");
  transcript.BeginBlob(kFirstStateAt - kServersAt + found.layout.state_bytes)
      .BlobPiece(bytes.subspan(kServersAt));
  for (uint64_t number = 0; number < found.layout.blocks(); ++number) {
    SHOAL_ASSIGN_OR_RETURN(const auto block, ReadBlock(found.layout, number));
    transcript.BlobPiece(block);
    found.blocks.push_back(BlockDigest(number, block));
  }
  found.digest = transcript.Finish();
  if (!std::ranges::equal(bytes.first(kServersAt), found.digest)) return Damaged(file_->path());
  std::ranges::copy(bytes.subspan(kServersAt, sizeof(Digest)), found.servers.begin());
  SHOAL_RETURN_IF_ERROR(ReadRecords(size, found));
  found.guard = GuardOf(bytes, found.records.size());
  return found;
}

absl::StatusOr<SessionFile::Found> SessionFile::ReadContent(uint64_t size, bool has_digests) const {
  const std::string& path = file_->path();
  if (size < kStateAt) return Damaged(path);
  Bytes start(kStateAt);
  SHOAL_RETURN_IF_ERROR(ReadFromFile(path, 0, start));
  const BytesView head = BytesView(start).subspan(kMagicBytes);
  Found found;
  found.head_digest = HeadDigest(head.subspan(kServersAt), has_digests);
  if (!std::ranges::equal(head.first(kServersAt), found.head_digest)) return Damaged(path);
  std::ranges::copy(head.subspan(kServersAt, sizeof(Digest)), found.servers.begin());
  Layout& layout = found.layout;
  layout = {.state_at = kStateAt,
            .state_bytes = LoadLe<uint64_t>(&head[kLengthAt]),
            .has_digests = has_digests,
            .slot_bytes = LoadLe<uint64_t>(&head[kSlotBytesAt])};
  if (layout.state_bytes > size - kStateAt || layout.SlotAt(0) > size ||
      layout.slot_bytes > (size - layout.SlotAt(0)) / 2) {
    return Damaged(path);
  }
  SHOAL_RETURN_IF_ERROR(
      CheckMemory(layout.blocks() * sizeof(Digest) + 2 * layout.slot_bytes, path));
  found.slots.resize(2 * layout.slot_bytes);
  SHOAL_RETURN_IF_ERROR(ReadFromFile(path, layout.SlotAt(0), found.slots));
  for (const uint64_t slot : {0, 1}) {
    const BytesView in_slot =
        BytesView(found.slots).subspan(slot * layout.slot_bytes, layout.slot_bytes);
    std::optional<Redo> redo = ParseChange(in_slot, found.head_digest, layout.state_bytes);
    if (redo.has_value() && redo->number % 2 == slot) found.changes.push_back(*std::move(redo));
  }
  std::ranges::sort(found.changes, {}, &Redo::number);
  if (found.changes.size() == 2 && found.changes[0].number + 1 != found.changes[1].number) {
    return Damaged(path);
  }
  // The state is that with all changes, of which the file may have a part.
  found.blocks.resize(layout.blocks());
  std::set<uint64_t> to_read = BlocksOf(found.changes);
  if (has_digests) {
    SHOAL_RETURN_IF_ERROR(ReadFromFile(path, layout.DigestAt(0), BytesOf(found.blocks)));
  } else {
    for (uint64_t number = 0; number < layout.blocks(); ++number) to_read.insert(number);
  }
  for (const uint64_t number : to_read) {
    SHOAL_ASSIGN_OR_RETURN(SecretVector<uint8_t> block, ReadBlock(layout, number));
    MakeChanges(found.changes, number, block);
    found.blocks[number] = BlockDigest(number, block);
  }
  found.digest = found.head_digest;
  Digest blocks;
  std::ranges::copy(head.subspan(kBlocksAt, sizeof(Digest)), blocks.begin());
  if (!found.changes.empty()) {
    found.digest = found.changes.back().digest;
    blocks = found.changes.back().blocks;
  }
  if (BlocksDigest(found.blocks) != blocks) return Damaged(path);
  found.end = layout.end();
  if (found.changes.empty()) SHOAL_RETURN_IF_ERROR(ReadRecords(size, found));
  found.guard =
      GuardOf(head, found.changes.empty() ? found.records.size() : found.changes.back().number);
  return found;
}

absl::StatusOr<std::unique_ptr<SessionFile>> SessionFile::Open(
    const std::string& path, const Digest& servers, const AnchorDirectory& place,
    RandomSource& random, const std::optional<Digest>& swapped) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<GuardedFile> file, GuardedFile::Open(path, place));
  std::unique_ptr<SessionFile> session(new SessionFile(std::move(file), servers));
  const absl::StatusOr<uint64_t> size = SizeOfPrivateFile(path, kMaxBytes);
  if (absl::IsNotFound(size.status())) {
    SHOAL_RETURN_IF_ERROR(session->file_->Accept(std::nullopt, random).status());
    SHOAL_RETURN_IF_ERROR(session->Save({}));
    return session;
  }
  SHOAL_RETURN_IF_ERROR(size.status());
  Bytes magic(std::min<uint64_t>(kMagicBytes, *size));
  SHOAL_RETURN_IF_ERROR(ReadFromFile(path, 0, magic));
  const bool has_digests = AsText(magic) == kMagic;
  const bool is_first = !has_digests && AsText(magic) != kMagicWithoutDigests;
  SHOAL_ASSIGN_OR_RETURN(Found found, is_first ? session->ReadFirstFormat(*size)
                                               : session->ReadContent(*size, has_digests));
  if (swapped.has_value() && found.layout.state_bytes > 0 && found.servers == *swapped) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": the session was prepared with these two parties in swapped roles, and would tell them "
        "which rows are asked for: name them as before, or give the session up (shoal prepare "
        "--anew)"));
  }
  SHOAL_ASSIGN_OR_RETURN(
      const Standing standing,
      session->file_->Accept(
          FoundContent{.guard = found.guard, .bytes = {}, .remains = {}, .digest = found.digest},
          random));
  if (!standing.latest || found.servers != servers) {
    if (found.layout.state_bytes > 0) {
      session->discarded_ = standing.latest ? "is of other servers" : standing.why;
    }
    SHOAL_RETURN_IF_ERROR(session->Save({}));
    return session;
  }
  SHOAL_RETURN_IF_ERROR(session->Mend(found));
  session->layout_ = found.layout;
  session->can_change_ =
      found.layout.has_digests && found.layout.slot_bytes > 0 && found.records.empty();
  session->records_ = std::move(found.records);
  session->end_ = found.end;
  session->digest_ = found.digest;
  session->whole_ = true;
  session->head_digest_ = found.head_digest;
  session->blocks_ = std::move(found.blocks);
  if (!found.changes.empty()) {
    session->changes_ = found.changes.back().number;
    session->last_change_bytes_ = found.changes.back().bytes;
  }
  return session;
}

absl::Status SessionFile::Mend(const Found& found) const {
  const Layout& layout = found.layout;
  if (layout.slot_bytes == 0) return absl::OkStatus();
  std::vector<FilePatch> patches;
  for (const Redo& redo : found.changes) {
    for (const pir::StatePatch& patch : redo.patches) {
      patches.push_back({.at = layout.state_at + patch.at, .bytes = patch.bytes});
    }
  }
  if (layout.has_digests) {
    for (const uint64_t number : BlocksOf(found.changes)) {
      patches.push_back({.at = layout.DigestAt(number), .bytes = found.blocks[number]});
    }
  }
  // What is in the slots beside the last change: the one before, or one that was not completed.
  const Bytes zeros(layout.slot_bytes);
  for (const uint64_t slot : {0, 1}) {
    const bool has_last = !found.changes.empty() && found.changes.back().number % 2 == slot;
    const uint64_t keep = has_last ? found.changes.back().bytes : 0;
    patches.push_back({.at = layout.SlotAt(slot) + keep,
                       .bytes = BytesView(zeros).first(layout.slot_bytes - keep)});
  }
  // Mostly nothing is to be written.
  bool is_clean = true;
  for (const FilePatch& patch : patches) {
    SecretVector<uint8_t> there(patch.bytes.size());
    SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), patch.at, there));
    is_clean &= std::ranges::equal(there, patch.bytes);
  }
  return is_clean ? absl::OkStatus() : OverwriteInFile(file_->path(), patches, /*sync=*/true);
}

absl::Status SessionFile::Read(uint64_t at, MutableBytes out) const {
  SHOAL_CHECK(at <= layout_.state_bytes && out.size() <= layout_.state_bytes - at);
  const MutableBytes all = out;
  while (!out.empty()) {
    const uint64_t number = at / kBlockBytes, skipped = at % kBlockBytes;
    absl::StatusOr<SecretVector<uint8_t>> block = ReadBlock(layout_, number);
    if (!block.ok() || BlockDigest(number, *block) != blocks_[number]) {
      std::ranges::fill(all, uint8_t{0});
      return block.ok() ? Damaged(file_->path()) : block.status();
    }
    const uint64_t bytes = std::min(out.size(), block->size() - skipped);
    std::ranges::copy(BytesView(*block).subspan(skipped, bytes), out.begin());
    at += bytes;
    out = out.subspan(bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<SecretVector<uint8_t>> SessionFile::ReadRecord(uint64_t number) const {
  SHOAL_CHECK(number < records_.size());
  const Record& place = records_[number];
  SHOAL_RETURN_IF_ERROR(CheckMemory(place.bytes, file_->path()));
  SecretVector<uint8_t> record(place.bytes);
  SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), place.at, record));
  if (RecordDigest(place.before, record) != place.digest) return Damaged(file_->path());
  return record;
}

absl::Status SessionFile::SaveParts(std::span<const BytesView> parts) {
  whole_ = false;
  uint64_t state_bytes = 0;
  for (const BytesView part : parts) state_bytes += part.size();
  if (state_bytes > kMaxBytes - kStateAt) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file_->path(), ": a session of ", state_bytes, " bytes is too large"));
  }
  Bytes head;
  Digest digest;
  std::vector<Digest> blocks = BlockDigests(parts);
  const Layout layout = {
      .state_at = kStateAt,
      .state_bytes = state_bytes,
      .has_digests = true,
      .slot_bytes = state_bytes == 0 ? 0 : std::max<uint64_t>(kLeastSlotBytes, least_slot_bytes_)};
  const Bytes slots(2 * layout.slot_bytes);
  SHOAL_RETURN_IF_ERROR(file_->SaveParts(
      [&](const Guard& guard) {
        head = ToBytes(servers_);
        shoal::Append(head, guard.id);
        for (const uint64_t number :
             {guard.file.inode, guard.file.birth_ns, guard.generation, guard.self.inode,
              guard.self.birth_ns, state_bytes, layout.slot_bytes}) {
          AppendLe<uint64_t>(head, number);
        }
        shoal::Append(head, BlocksDigest(blocks));
        digest = HeadDigest(head);
        ContentParts content{.parts = {AsBytes(kMagic), digest, head}, .digest = digest};
        content.parts.insert(content.parts.end(), parts.begin(), parts.end());
        content.parts.push_back(BytesOf(blocks));
        content.parts.push_back(slots);
        return content;
      },
      /*remains=*/{}));
  layout_ = layout;
  records_.clear();
  end_ = layout.end();
  digest_ = digest;
  whole_ = true;
  can_change_ = layout.slot_bytes > 0;
  head_digest_ = digest;
  blocks_ = std::move(blocks);
  changes_ = last_change_bytes_ = 0;
  return absl::OkStatus();
}

void SessionFile::ExpectChanges(uint64_t patches, uint64_t bytes) {
  least_slot_bytes_ = kRecordBytes + kChangeHead + patches * kPatchHead + bytes;
}

absl::Status SessionFile::Change(std::span<const pir::StatePatch> patches) {
  if (!whole_ || !can_change_) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_->path(), whole_ ? ": has no state that can be changed in place"
                                           : ": the last change of the session failed"));
  }
  whole_ = false;
  uint64_t change_bytes = kRecordBytes + kChangeHead;
  for (const pir::StatePatch& patch : patches) {
    SHOAL_CHECK(patch.at <= layout_.state_bytes &&
                patch.bytes.size() <= layout_.state_bytes - patch.at);
    change_bytes += kPatchHead + patch.bytes.size();
  }
  if (change_bytes > layout_.slot_bytes) {
    // Longer than was expected. From then on slots are long enough.
    SHOAL_RETURN_IF_ERROR(CheckMemory(layout_.state_bytes, file_->path()));
    SecretVector<uint8_t> state(layout_.state_bytes);
    SHOAL_RETURN_IF_ERROR(Read(0, state));
    for (const pir::StatePatch& patch : patches) {
      std::ranges::copy(patch.bytes, state.begin() + static_cast<ptrdiff_t>(patch.at));
    }
    least_slot_bytes_ = 2 * change_bytes;
    return Save(state);
  }
  const uint64_t number = changes_ + 1;
  Redo redo = {.number = number,
               .blocks = {},
               .patches = {patches.begin(), patches.end()},
               .digest = {},
               .bytes = change_bytes};
  const std::span<const Redo> changes(&redo, 1);
  const std::set<uint64_t> reached = BlocksOf(changes);
  for (const uint64_t block_number : reached) {
    SHOAL_ASSIGN_OR_RETURN(SecretVector<uint8_t> block, ReadBlock(layout_, block_number));
    if (BlockDigest(block_number, block) != blocks_[block_number]) return Damaged(file_->path());
    MakeChanges(changes, block_number, block);
    blocks_[block_number] = BlockDigest(block_number, block);
  }

  SecretVector<uint8_t> change(kRecordHead + kChangeHead);
  change.reserve(change_bytes);
  StoreLe<uint32_t>(change.data(), static_cast<uint32_t>(change_bytes - kRecordBytes));
  StoreLe<uint64_t>(&change[kRecordHead], number);
  std::ranges::copy(BlocksDigest(blocks_), change.begin() + kRecordHead + 8);
  std::vector<FilePatch> follow;
  for (const pir::StatePatch& patch : patches) {
    const size_t at = change.size();
    change.resize(at + kPatchHead);
    StoreLe<uint64_t>(&change[at], patch.at);
    StoreLe<uint32_t>(&change[at + 8], static_cast<uint32_t>(patch.bytes.size()));
    change.insert(change.end(), patch.bytes.begin(), patch.bytes.end());
    follow.push_back({.at = layout_.state_at + patch.at, .bytes = patch.bytes});
  }
  const Digest digest = ChangeDigest(head_digest_, BytesView(change).subspan(kRecordHead));
  change.insert(change.end(), digest.begin(), digest.end());
  SHOAL_RETURN_IF_ERROR(file_->Overwrite(layout_.SlotAt(number), change, digest, /*remains=*/{}));
  // It counts from now on.
  for (const uint64_t block_number : reached) {
    follow.push_back({.at = layout_.DigestAt(block_number), .bytes = blocks_[block_number]});
  }
  const Bytes zeros(last_change_bytes_);
  follow.push_back({.at = layout_.SlotAt(changes_), .bytes = zeros});
  SHOAL_RETURN_IF_ERROR(OverwriteInFile(file_->path(), follow, /*sync=*/false));
  digest_ = digest;
  changes_ = number;
  last_change_bytes_ = change.size();
  whole_ = true;
  return absl::OkStatus();
}

absl::Status SessionFile::Append(BytesView record) {
  SHOAL_CHECK(!record.empty() && record.size() < kMaxRecord);
  if (!whole_ || changes_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_->path(), whole_ ? ": a state that was changed has no records"
                                           : ": the last change of the session failed"));
  }
  whole_ = false;
  const Digest digest = RecordDigest(digest_, record);
  SecretVector<uint8_t> bytes(kRecordHead);
  bytes.reserve(kRecordBytes + record.size());
  StoreLe<uint32_t>(bytes.data(), static_cast<uint32_t>(record.size()));
  bytes.insert(bytes.end(), record.begin(), record.end());
  bytes.insert(bytes.end(), digest.begin(), digest.end());
  SHOAL_RETURN_IF_ERROR(file_->Append(end_, bytes, digest, /*remains=*/{}));
  records_.push_back(
      {.at = end_ + kRecordHead, .bytes = record.size(), .before = digest_, .digest = digest});
  can_change_ = false;
  end_ += bytes.size();
  digest_ = digest;
  whole_ = true;
  return absl::OkStatus();
}

}  // namespace shoal::client
