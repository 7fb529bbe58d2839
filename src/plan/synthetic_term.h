// A made-up term of two parties for calibration, benchmarks and tests: its round's outcome is drawn
// and not computed, so that a hundred million positions do not take an hour of curve work. From
// then on everything is done by Terms, on files.
#ifndef SHOAL_SRC_PLAN_SYNTHETIC_TERM_H_
#define SHOAL_SRC_PLAN_SYNTHETIC_TERM_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/round/refresh.h"
#include "src/server/round_context.h"
#include "src/server/terms.h"
#include "src/sharing/sharing.h"

namespace shoal::plan {

// Not thread-safe.
class SyntheticTerm {
 public:
  struct Shape {
    uint64_t queries = 0;  // at party 1; all slots are used
    uint64_t noise = 0;    // of party 1
    uint64_t rows = 1;
    size_t answer_bytes = 0;
  };
  // The answers of the first so many slots can be fetched and checked.
  static constexpr uint64_t kChecked = 4096;

  // Puts files into a new directory below `directory`, which go with the object. The pointers must
  // outlive it. Errors of the file system.
  static absl::StatusOr<std::unique_ptr<SyntheticTerm>> Create(const Shape& shape,
                                                               const std::string& directory,
                                                               RandomSource& random,
                                                               const server::Resources& resources);
  ~SyntheticTerm();

  // Makes up what the round leaves at a party: at party 1, and once that is kept at party 2, so
  // that the memory of only one is needed.
  absl::Status MakeUp(uint32_t party);
  // Stores the term of the party that was made up last. Errors of the file system.
  absl::Status Keep();
  // Of the files that have what both parties keep, once it is kept.
  uint64_t bytes_at_rest() const;

  // The next epoch of the table, with other bytes.
  void NewTable();
  // A refresh of that epoch, signed by both parties. The calls below are for it and may be
  // repeated.
  absl::Status SignRefresh();
  // Party 2's answers, and from them party 1's.
  absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> Answer();
  absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> Return(
      ByteSource& answers, std::span<const round::RefreshTag> later_tags);

  // What clients of `each` slots send to fetch theirs: the first min(kChecked, queries) slots.
  struct Fetch {
    std::vector<uint32_t> slots;
    std::vector<sharing::Token> tokens;
  };
  std::vector<Fetch> MakeFetches(const round::RefreshTag& tag, uint64_t each) const;
  // Looks a client's answers up. Errors of Terms::Places.
  absl::Status TakeFetch(const Fetch& fetch, const round::RefreshTag& tag) const;
  // Whether party 1's answer to slot `slot` < min(kChecked, queries), as both have masked and
  // tagged it, is the row that was asked. Takes the masks off `answer`.
  bool TakesRow(uint64_t slot, MutableBytes answer, std::span<const round::RefreshTag> tags) const;

 private:
  struct State;
  explicit SyntheticTerm(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_SYNTHETIC_TERM_H_
