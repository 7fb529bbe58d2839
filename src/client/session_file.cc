#include "src/client/session_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
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
constexpr absl::string_view kMagic = "SHOALSF3";
constexpr size_t kMagicBytes = 8;
constexpr size_t kSlotBytesAt = kFirstStateAt, kBlocksAt = kSlotBytesAt + 8;
constexpr size_t kStateAt = kMagicBytes + kBlocksAt + sizeof(Digest);
// Around a record: its length before it, a digest behind it.
constexpr size_t kRecordHead = 4, kRecordBytes = kRecordHead + sizeof(Digest);
// Of a change: its number and a digest.
constexpr size_t kChangeHead = 8 + sizeof(Digest), kPatchHead = 8 + 4;
constexpr uint64_t kLeastSlotBytes = 1 << 16;
constexpr uint64_t kBlockBytes = 1 << 14;

Digest FirstFormatDigest(BytesView head, BytesView state) {
  Transcript transcript("shoal client session v2");
  transcript.BeginBlob(head.size() + state.size()).BlobPiece(head).BlobPiece(state);
  return transcript.Finish();
}

Digest HeadDigest(BytesView head) {
  return Transcript("shoal client session v3").Blob(head).Finish();
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

Digest RecordDigest(const Digest& before, BytesView record) {
  return Transcript("shoal client session record v1").Blob(before).Blob(record).Finish();
}

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat(
      path, ": the session is damaged; remove it to begin anew (its preparation is lost then)"));
}

}  // namespace

struct SessionFile::Found {
  Guard guard;
  BytesView servers, state;
  std::vector<BytesView> records;
  uint64_t end = 0;
  Digest digest = {};
  bool can_change = false;
  uint64_t slot_bytes = 0;
  Digest head_digest = {};
  std::vector<Digest> blocks;
  // The changes that the slots have, in order.
  std::vector<Redo> changes;
};

void SessionFile::ReadRecords(uint64_t end, Found& found) const {
  const BytesView bytes = content_;
  while (bytes.size() - end >= kRecordBytes) {
    const uint64_t length = LoadLe<uint32_t>(&bytes[end]);
    if (length == 0 || length > bytes.size() - end - kRecordBytes) break;
    const BytesView record = bytes.subspan(end + kRecordHead, length);
    const Digest next = RecordDigest(found.digest, record);
    // Only the last record can be torn. If this one is damaged, those behind it are lost with it,
    // and the witness, which names the last one, tells.
    if (!std::ranges::equal(bytes.subspan(end + kRecordHead + length, sizeof(Digest)), next)) break;
    found.records.push_back(record);
    found.digest = next;
    end += kRecordBytes + length;
  }
  found.end = end;
}

absl::StatusOr<SessionFile::Found> SessionFile::ReadFirstFormat() {
  const BytesView bytes = content_;
  if (bytes.size() < kFirstStateAt) return Damaged(file_->path());
  const uint64_t state_bytes = LoadLe<uint64_t>(&bytes[kLengthAt]);
  if (state_bytes > bytes.size() - kFirstStateAt) return Damaged(file_->path());
  Found found;
  found.servers = bytes.subspan(kServersAt, sizeof(Digest));
  found.state = bytes.subspan(kFirstStateAt, state_bytes);
  found.digest =
      FirstFormatDigest(bytes.subspan(kServersAt, kFirstStateAt - kServersAt), found.state);
  if (!std::ranges::equal(bytes.first(kServersAt), found.digest)) return Damaged(file_->path());
  ReadRecords(kFirstStateAt + state_bytes, found);
  found.guard = GuardOf(bytes, found.records.size());
  return found;
}

absl::StatusOr<SessionFile::Found> SessionFile::ReadContent() {
  const BytesView bytes = content_;
  if (bytes.size() < kStateAt) return Damaged(file_->path());
  const BytesView head = bytes.subspan(kMagicBytes);
  Found found;
  found.head_digest = HeadDigest(head.subspan(kServersAt, kBlocksAt + sizeof(Digest) - kServersAt));
  if (!std::ranges::equal(head.first(kServersAt), found.head_digest)) {
    return Damaged(file_->path());
  }
  const uint64_t state_bytes = LoadLe<uint64_t>(&head[kLengthAt]);
  found.slot_bytes = LoadLe<uint64_t>(&head[kSlotBytesAt]);
  if (state_bytes > bytes.size() - kStateAt ||
      found.slot_bytes > (bytes.size() - kStateAt - state_bytes) / 2) {
    return Damaged(file_->path());
  }
  found.servers = head.subspan(kServersAt, sizeof(Digest));
  found.state = bytes.subspan(kStateAt, state_bytes);
  for (const uint64_t slot : {0, 1}) {
    const BytesView in_slot =
        bytes.subspan(kStateAt + state_bytes + slot * found.slot_bytes, found.slot_bytes);
    std::optional<Redo> redo = ParseChange(in_slot, found.head_digest, state_bytes);
    if (redo.has_value() && redo->number % 2 == slot) found.changes.push_back(*std::move(redo));
  }
  std::ranges::sort(found.changes, {}, &Redo::number);
  if (found.changes.size() == 2 && found.changes[0].number + 1 != found.changes[1].number) {
    return Damaged(file_->path());
  }
  const MutableBytes state = MutableBytes(content_).subspan(kStateAt, state_bytes);
  Digest blocks;
  std::ranges::copy(head.subspan(kBlocksAt, sizeof(Digest)), blocks.begin());
  found.digest = found.head_digest;
  for (const Redo& redo : found.changes) {
    for (const pir::StatePatch& patch : redo.patches) {
      std::ranges::copy(patch.bytes, state.begin() + static_cast<ptrdiff_t>(patch.at));
    }
    blocks = redo.blocks;
    found.digest = redo.digest;
  }
  found.blocks = BlockDigests(std::span(&found.state, 1));
  if (BlocksDigest(found.blocks) != blocks) return Damaged(file_->path());
  found.end = kStateAt + state_bytes + 2 * found.slot_bytes;
  if (found.changes.empty()) ReadRecords(found.end, found);
  found.can_change = found.slot_bytes > 0 && found.records.empty();
  found.guard =
      GuardOf(head, found.changes.empty() ? found.records.size() : found.changes.back().number);
  return found;
}

absl::StatusOr<std::unique_ptr<SessionFile>> SessionFile::Open(
    const std::string& path, const Digest& servers, const WitnessPlace& place, RandomSource& random,
    const std::optional<Digest>& swapped) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<GuardedFile> file, GuardedFile::Open(path, place));
  std::unique_ptr<SessionFile> session(new SessionFile(std::move(file), servers));
  {
    std::error_code none;
    const uint64_t size = std::filesystem::file_size(path, none);
    if (!none) SHOAL_RETURN_IF_ERROR(CheckMemory(size, path));
    auto content = ReadSecretFile(path, kMaxBytes);
    if (absl::IsNotFound(content.status())) {
      SHOAL_RETURN_IF_ERROR(session->file_->Accept(std::nullopt, random).status());
      SHOAL_RETURN_IF_ERROR(session->Save({}));
      return session;
    }
    SHOAL_RETURN_IF_ERROR(content.status());
    session->content_ = *std::move(content);
  }
  const BytesView bytes = session->content_;
  const bool is_first = bytes.size() < kMagicBytes || AsText(bytes.first(kMagicBytes)) != kMagic;
  SHOAL_ASSIGN_OR_RETURN(Found found,
                         is_first ? session->ReadFirstFormat() : session->ReadContent());
  if (swapped.has_value() && !found.state.empty() && std::ranges::equal(found.servers, *swapped)) {
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
  const bool same_servers = std::ranges::equal(found.servers, servers);
  if (standing.latest && same_servers) {
    SHOAL_RETURN_IF_ERROR(session->Mend(found));
    session->saved_ = found.state;
    session->appended_ = std::move(found.records);
    session->end_ = found.end;
    session->digest_ = found.digest;
    session->whole_ = true;
    session->can_change_ = found.can_change;
    session->state_bytes_ = found.state.size();
    session->slot_bytes_ = found.slot_bytes;
    session->head_digest_ = found.head_digest;
    session->blocks_ = std::move(found.blocks);
    if (!found.changes.empty()) {
      session->changes_ = found.changes.back().number;
      session->last_change_bytes_ = found.changes.back().bytes;
    }
  } else {
    if (!found.state.empty()) {
      session->discarded_ = standing.latest ? "is of other servers" : standing.why;
    }
    SHOAL_RETURN_IF_ERROR(session->Save({}));
  }
  return session;
}

absl::Status SessionFile::Mend(const Found& found) {
  if (found.slot_bytes == 0) return absl::OkStatus();
  std::vector<FilePatch> patches;
  for (const Redo& redo : found.changes) {
    for (const pir::StatePatch& patch : redo.patches) {
      patches.push_back({.at = kStateAt + patch.at, .bytes = patch.bytes});
    }
  }
  // What is in the slots beside the last change: the one before, or one that was not completed.
  const uint64_t slots_at = kStateAt + found.state.size();
  const SecretVector<uint8_t> zeros(found.slot_bytes);
  bool is_clean = true;
  for (const uint64_t slot : {0, 1}) {
    const bool has_last = !found.changes.empty() && found.changes.back().number % 2 == slot;
    const uint64_t keep = has_last ? found.changes.back().bytes : 0;
    const uint64_t at = slots_at + slot * found.slot_bytes + keep;
    const BytesView rest = BytesView(content_).subspan(at, found.slot_bytes - keep);
    is_clean &= std::ranges::all_of(rest, [](uint8_t byte) { return byte == 0; });
    patches.push_back({.at = at, .bytes = BytesView(zeros).first(rest.size())});
  }
  // The state may have been written in part; where nothing else is left over, it was not.
  for (const FilePatch& patch : patches) {
    if (!is_clean) break;
    SecretVector<uint8_t> there(patch.bytes.size());
    SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), patch.at, there));
    is_clean &= std::ranges::equal(there, patch.bytes);
  }
  return is_clean ? absl::OkStatus() : OverwriteInFile(file_->path(), patches, /*sync=*/true);
}

void SessionFile::Forget() {
  saved_ = {};
  appended_.clear();
  content_ = {};
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
  const uint64_t slot_bytes =
      state_bytes == 0 ? 0 : std::max<uint64_t>(kLeastSlotBytes, least_slot_bytes_);
  const Bytes slots(2 * slot_bytes);
  SHOAL_RETURN_IF_ERROR(file_->SaveParts(
      [&](const Guard& guard) {
        head = ToBytes(servers_);
        shoal::Append(head, guard.id);
        for (const uint64_t number :
             {guard.file.inode, guard.file.birth_ns, guard.generation, guard.self.inode,
              guard.self.birth_ns, state_bytes, slot_bytes}) {
          AppendLe<uint64_t>(head, number);
        }
        shoal::Append(head, BlocksDigest(blocks));
        digest = HeadDigest(head);
        ContentParts content{.parts = {AsBytes(kMagic), digest, head}, .digest = digest};
        content.parts.insert(content.parts.end(), parts.begin(), parts.end());
        content.parts.push_back(slots);
        return content;
      },
      /*remains=*/{}));
  // Only now, as the parts may be what was found.
  Forget();
  end_ = kStateAt + state_bytes + slots.size();
  digest_ = digest;
  whole_ = true;
  can_change_ = slot_bytes > 0;
  state_bytes_ = state_bytes;
  slot_bytes_ = slot_bytes;
  head_digest_ = digest;
  blocks_ = std::move(blocks);
  changes_ = last_change_bytes_ = 0;
  return absl::OkStatus();
}

uint64_t SessionFile::SlotAt(uint64_t number) const {
  return kStateAt + state_bytes_ + number % 2 * slot_bytes_;
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
    SHOAL_CHECK(patch.at <= state_bytes_ && patch.bytes.size() <= state_bytes_ - patch.at);
    change_bytes += kPatchHead + patch.bytes.size();
  }
  if (change_bytes > slot_bytes_) {
    // Once: from then on slots are long enough.
    SecretVector<uint8_t> state(state_bytes_);
    SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), kStateAt, state));
    if (BlockDigests(std::vector<BytesView>{state}) != blocks_) return Damaged(file_->path());
    for (const pir::StatePatch& patch : patches) {
      std::ranges::copy(patch.bytes, state.begin() + static_cast<ptrdiff_t>(patch.at));
    }
    least_slot_bytes_ = 2 * change_bytes;
    return Save(state);
  }
  std::map<uint64_t, SecretVector<uint8_t>> blocks;
  for (pir::StatePatch patch : patches) {
    while (!patch.bytes.empty()) {
      const uint64_t number = patch.at / kBlockBytes, first = number * kBlockBytes;
      SecretVector<uint8_t>& block = blocks[number];
      if (block.empty()) {
        block.resize(std::min(kBlockBytes, state_bytes_ - first));
        SHOAL_RETURN_IF_ERROR(ReadFromFile(file_->path(), kStateAt + first, block));
        if (BlockDigest(number, block) != blocks_[number]) return Damaged(file_->path());
      }
      const uint64_t bytes = std::min(patch.bytes.size(), first + block.size() - patch.at);
      std::ranges::copy(patch.bytes.first(bytes),
                        block.begin() + static_cast<ptrdiff_t>(patch.at - first));
      patch = {.at = patch.at + bytes, .bytes = patch.bytes.subspan(bytes)};
    }
  }
  for (const auto& [number, block] : blocks) blocks_[number] = BlockDigest(number, block);

  const uint64_t number = changes_ + 1;
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
    follow.push_back({.at = kStateAt + patch.at, .bytes = patch.bytes});
  }
  const Digest digest = ChangeDigest(head_digest_, BytesView(change).subspan(kRecordHead));
  change.insert(change.end(), digest.begin(), digest.end());
  SHOAL_RETURN_IF_ERROR(file_->Overwrite(SlotAt(number), change, digest, /*remains=*/{}));
  // It counts from now on.
  const Bytes zeros(last_change_bytes_);
  follow.push_back({.at = SlotAt(changes_), .bytes = zeros});
  SHOAL_RETURN_IF_ERROR(OverwriteInFile(file_->path(), follow, /*sync=*/false));
  Forget();
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
  Forget();
  can_change_ = false;
  end_ += bytes.size();
  digest_ = digest;
  whole_ = true;
  return absl::OkStatus();
}

}  // namespace shoal::client
