// What the answers of a round and those of a refresh of its term have in common on their way out.
#ifndef SHOAL_SRC_SERVER_CHECKED_OUTPUT_H_
#define SHOAL_SRC_SERVER_CHECKED_OUTPUT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sodium.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/status_macros.h"
#include "src/server/stage_timer.h"
#include "src/wire/client.pb.h"

namespace shoal::server {

// Output that is made piece by piece of what may end at any time: a round, or a refresh. Checks
// before every piece that what the piece is made of still lives, and once more when it is made: the
// end may come meanwhile, although what the piece is made of stays until then.
template <typename Source>
class CheckedOutput : public Source {
 public:
  uint64_t size() const final { return size_; }
  const wire::StageReport& report() const { return report_; }
  bool all_given() const { return given_ == size_; }

  absl::StatusOr<BytesView> Next() override {
    if (all_given()) return BytesView();
    SHOAL_RETURN_IF_ERROR(CheckCurrent());
    const absl::StatusOr<BytesView> piece = Take();
    if (!piece.ok()) return Failed(piece.status());
    if (all_given()) {
      if (const absl::Status done = AllTaken(); !done.ok()) return Failed(done);
    }
    SHOAL_RETURN_IF_ERROR(CheckCurrent());
    return piece;
  }

  // FAILED_PRECONDITION once what the output is made of is gone.
  virtual absl::Status CheckCurrent() const = 0;
  // The next piece, while CheckCurrent holds.
  absl::StatusOr<BytesView> Take() {
    if (making_piece_ != nullptr) (*making_piece_)(id_);
    const StageTimer timer;
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, Make());
    given_ += piece.size();
    timer.AddTo(report_);
    return piece;
  }

 protected:
  // `id`: of the round. `report`: of the stage, to which the time that pieces take is added.
  // `making_piece`: Resources::making_piece.
  CheckedOutput(const Digest& id, uint64_t size, wire::StageReport report,
                const std::function<void(const Digest&)>* making_piece)
      : id_(id), size_(size), making_piece_(making_piece), report_(std::move(report)) {
    report_.set_bytes_out(size_);
  }

  // The next piece. Commits to the whole output before it returns the last one.
  virtual absl::StatusOr<BytesView> Make() = 0;
  // Once the last piece is made. Errors as Make.
  virtual absl::Status AllTaken() = 0;
  // The error to return when Make or AllTaken has failed.
  virtual absl::Status Failed(const absl::Status& why) { return why; }
  uint64_t given() const { return given_; }  // bytes
  wire::StageReport& mutable_report() { return report_; }

 private:
  const Digest id_;
  const uint64_t size_;  // a copy: what it is computed from may be gone
  const std::function<void(const Digest&)>* const making_piece_;
  wire::StageReport report_;
  uint64_t given_ = 0;
};

// Copies rows that lie all over a table: row_of(i) for i from 0 on, answers of `tagged_bytes` each
// in `answers`, whose tags it leaves alone. Prefetches some rows ahead, the first cache lines of
// each; the processor fetches the rest itself.
template <typename RowOf>
void CopyRows(size_t row_bytes, size_t tagged_bytes, MutableBytes answers, const RowOf& row_of) {
  constexpr size_t kAhead = 16;
  const size_t count = answers.size() / tagged_bytes;
  std::array<const uint8_t*, kAhead> rows;
  const auto prefetch = [&](size_t i) {
    rows[i % kAhead] = row_of(i);
    for (size_t at = 0; at < std::min<size_t>(row_bytes, 256); at += 64) {
      __builtin_prefetch(rows[i % kAhead] + at);
    }
  };
  for (size_t i = 0; i < std::min(count, kAhead); ++i) prefetch(i);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const row = rows[i % kAhead];
    if (i + kAhead < count) prefetch(i + kAhead);
    std::copy_n(row, row_bytes, answers.data() + i * tagged_bytes);
  }
}

// Makes the answers of dead positions, for which nobody has a mask, pseudorandom, with their tags:
// those for which dead(i), under a key of this party and number_of(i).
template <typename Dead, typename NumberOf>
void FillDeadAnswers(size_t tagged_bytes, const uint8_t* key, MutableBytes answers,
                     const Dead& dead, const NumberOf& number_of) {
  for (size_t i = 0; i < answers.size() / tagged_bytes; ++i) {
    if (!dead(i)) continue;
    uint8_t nonce[crypto_stream_chacha20_NONCEBYTES] = {};
    StoreLe(nonce, uint64_t{number_of(i)});
    crypto_stream_chacha20(answers.data() + i * tagged_bytes, tagged_bytes, nonce, key);
  }
}

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_CHECKED_OUTPUT_H_
