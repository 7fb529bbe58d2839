// A session's state, the journal of what came while it was prepared, and what queries change in
// place (SessionStore), with the two rules that all sessions share: after a write that failed
// nothing may be sent, and a journal that is longer than the state is worth a new state.
#ifndef SHOAL_SRC_PIR_KIT_JOURNAL_H_
#define SHOAL_SRC_PIR_KIT_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/pir/engine.h"

namespace shoal::pir {

// What a query changes of a state.
class Patches {
 public:
  void Add(uint64_t at, SecretVector<uint8_t> bytes) {
    kept_.push_back(std::move(bytes));
    patches_.push_back({.at = at, .bytes = kept_.back()});
  }
  void Add(uint64_t at, BytesView bytes) {
    Add(at, SecretVector<uint8_t>(bytes.begin(), bytes.end()));
  }
  std::span<const StatePatch> get() const { return patches_; }

 private:
  std::deque<SecretVector<uint8_t>> kept_;
  std::vector<StatePatch> patches_;
};

// Thread-compatible.
class Journal {
 public:
  // `store` outlives the object. A query changes so many places of the state, which have so many
  // bytes together.
  Journal(SessionStore* store, uint64_t places, uint64_t bytes) : store_(*store) {
    store_.ExpectChanges(places, bytes);
  }

  uint64_t state_bytes() const { return store_.state_bytes(); }
  absl::Status Read(uint64_t at, MutableBytes out) const { return store_.Read(at, out); }
  bool CanChange() const { return store_.CanChange(); }
  // Calls redo(entry) for every record, in order, once, after the session has what the state says.
  // What it returns first that is not OK ends that.
  template <typename Redo>
  absl::Status ForEach(const Redo& redo) {
    for (uint64_t i = 0; i < store_.records(); ++i) {
      SHOAL_ASSIGN_OR_RETURN(const SecretVector<uint8_t> entry, store_.ReadRecord(i));
      SHOAL_RETURN_IF_ERROR(redo(BytesView(entry)));
      bytes_ += entry.size();
    }
    return absl::OkStatus();
  }

  // FAILED_PRECONDITION after a write that failed: what is on disk is not known then, and the
  // session has to be opened anew.
  absl::Status CheckUsable() const {
    if (!failed_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "the session could not be written, and has to be opened anew");
  }

  absl::Status Save(std::span<const BytesView> parts) {
    SHOAL_RETURN_IF_ERROR(CheckUsable());
    failed_ = true;
    SHOAL_RETURN_IF_ERROR(store_.SaveParts(parts));
    failed_ = false;
    bytes_ = 0;
    return absl::OkStatus();
  }
  absl::Status Append(BytesView entry) {
    SHOAL_RETURN_IF_ERROR(CheckUsable());
    failed_ = true;
    SHOAL_RETURN_IF_ERROR(store_.Append(entry));
    failed_ = false;
    bytes_ += entry.size();
    return absl::OkStatus();
  }
  // Changes the state in place if that can be done, and else has it saved by `save`, which saves a
  // state that has the changes.
  template <typename SaveAll>
  absl::Status Change(std::span<const StatePatch> patches, const SaveAll& save) {
    SHOAL_RETURN_IF_ERROR(CheckUsable());
    if (!store_.CanChange()) return save();
    failed_ = true;
    SHOAL_RETURN_IF_ERROR(store_.Change(patches));
    failed_ = false;
    return absl::OkStatus();
  }
  // Whether a state of so many bytes should be saved now: then every byte is written to journals
  // once, and half as much to states.
  bool IsLong(uint64_t state_bytes) const {
    return bytes_ > kLeastBytes && bytes_ / 2 > state_bytes;
  }

 private:
  static constexpr uint64_t kLeastBytes = uint64_t{1} << 20;

  SessionStore& store_;
  uint64_t bytes_ = 0;
  bool failed_ = false;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_JOURNAL_H_
