// What a party commits to before anything of it leaves, when each of its machines has a part.
//
// A content (journal.h) is one string of bytes, however many machines a party has: a list, answers,
// or an encoded batch of queries. Its digest is that of parallel/content_mac.h, over chunks of a
// fixed length. Each machine digests the chunks that begin in its parts. The head alone makes the
// digest of all, and stores it in the party's journal:
//
//   machine i --- the first bytes of its parts, of chunks that began earlier --> who has the rest
//   machine i --- the tags of its chunks --------------------------------------> the head
//   the head stores the digest
//   all --------- nothing: a barrier --------------------------------------------- all
//
// So a party that repeats a round with another number of machines repeats the same contents, and a
// content that differs at any machine is refused at all of them. The lengths of what passes follow
// from the lengths of the parts; of a batch of queries, these depend on its kind, too, and so on
// the queries of all machines.
//
// What passes is bound to the content that it belongs to, by the mac's domain (Content in
// journal.h): machines that believe to commit to different contents take nothing of each other. A
// content that comes again needs no number of its own, as all that passed before is in the keys
// (src/machines).
#ifndef SHOAL_SRC_SERVER_PARTY_CONTENT_H_
#define SHOAL_SRC_SERVER_PARTY_CONTENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/machines/machines.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/thread_pool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

// Stores a digest, or refuses it because another one was stored (Journal::CommitRound). Called at
// the head alone: machines without a journal pass null.
using StoreDigest = std::function<absl::Status(const Digest&)>;

// This machine's parts of one content. Movable. Thread-compatible; the mac must outlive it.
class PartyContent {
 public:
  // A part of the content, in its order. Empty parts are none.
  struct Part {
    uint32_t machine;
    uint64_t bytes;
  };

  // The same parts at all machines. At a party of one machine there is one part, or several.
  PartyContent(const ContentMac& mac, std::vector<Part> parts, const machines::Machines& machines);
  // A content of which every machine has one part, in the order of the machines, this one `bytes`
  // bytes. Tells the others. Errors of Machines; DATA_LOSS if a machine says a length that no
  // content has; then this machine gives up.
  static absl::StatusOr<PartyContent> OfList(const ContentMac& mac, uint64_t bytes,
                                             machines::Machines& machines);

  // The same where this machine's part comes in several, of these lengths, at the same time.
  static absl::StatusOr<PartyContent> OfParts(const ContentMac& mac,
                                              std::span<const uint64_t> part_bytes,
                                              machines::Machines& machines);

  // The next bytes of this machine's parts, one after the other. No more than they have (checked).
  void Update(BytesView piece, ThreadPool& pool);
  // After OfParts: the next bytes of one of the parts, which begin at `offset` of this machine's
  // (checked).
  void UpdateAt(uint64_t offset, BytesView piece, ThreadPool& pool);

  // Once everything was taken (checked), at all machines: returns when the head has stored the
  // digest. Errors of `store` and of Machines; then this machine gives up. Before the digest is
  // stored, no machine succeeds. A fault in the last message may let some succeed and others not;
  // the next calls of those that did then fail (machines.h). Call it once.
  absl::Status Commit(const StoreDigest& store, machines::Machines& machines);

 private:
  static absl::StatusOr<PartyContent> TryOfList(const ContentMac& mac, uint64_t bytes,
                                                machines::Machines& machines);
  absl::Status TryCommit(const StoreDigest& store, machines::Machines& machines);
  absl::Status GiveHeads(machines::Machines& machines);
  void JoinComing();

  struct Run {
    Part part;
    uint64_t begin, end;  // of the content
  };
  const ContentMac* mac_;
  std::vector<Run> runs_;
  std::vector<ContentMac::Stream> streams_;  // of this machine's runs, in order
  std::vector<size_t> mine_;                 // the runs that they belong to
  size_t at_ = 0;                            // the stream that takes the next byte
  uint64_t taken_ = 0;                       // of its run
  // After OfParts, until all has come: the parts that are not empty.
  struct Coming {
    uint64_t next, end;  // bytes of this machine's part
    ContentMac::Stream stream;
  };
  std::vector<Coming> coming_;
};

// Commits to a batch of queries, whose content is the encoding of the whole batch. `encoded` is
// this machine's slice as a batch of its own (wire/query_batch.h), `decoded` the same or null.
// `positions` says where each machine's slice of the positions begins, and where the last one ends.
// Errors as PartyContent::Commit, and those of the decoder; DATA_LOSS if a machine describes a
// slice that it cannot have. A party of one machine that has the encoding needs nothing else; one
// whose batch came, or goes on, in parts has none, and gives it as empty.
absl::Status CommitQueries(const ContentMac& mac, BytesView encoded,
                           const wire::QueryBatch* decoded, std::span<const uint64_t> positions,
                           const StoreDigest& store, machines::Machines& machines,
                           ThreadPool& pool);

// A part of a content on its way out. Commits before it hands out its last piece, which at several
// machines waits for all of them to come so far. After an error of any kind this machine gives up.
// Whoever reads it must not stop before the end, or the others' last pieces never leave.
class CommittedSource final : public ByteSource {
 public:
  // `inner` gives as many bytes as this machine's part has. The pointers must outlive the source.
  CommittedSource(std::unique_ptr<ByteSource> inner, PartyContent content, StoreDigest store,
                  machines::Machines* machines, ThreadPool* pool);

  // To be called first: commits at once if this machine's part is empty.
  absl::Status Start();
  uint64_t size() const override { return size_; }
  absl::StatusOr<BytesView> Next() override;

 private:
  const std::unique_ptr<ByteSource> inner_;
  PartyContent content_;
  const StoreDigest store_;
  machines::Machines* const machines_;
  ThreadPool* const pool_;
  const uint64_t size_;  // a copy, as inner_->size() may read what has ended meanwhile
  uint64_t given_ = 0;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_PARTY_CONTENT_H_
