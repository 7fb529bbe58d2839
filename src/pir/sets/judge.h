// What a lookup's verified and wrong records tell the hints that were made with them
// (Batch::Judge).
#ifndef SHOAL_SRC_PIR_SETS_JUDGE_H_
#define SHOAL_SRC_PIR_SETS_JUDGE_H_

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::pir::sets {

// All queries of a lookup in their order: those for wanted rows first, whose records somebody has
// verified, and then padding, of which the batch has the records.
template <typename Question>
struct Asked {
  std::span<const Question> questions;
  uint32_t record_bytes = 0;
  BytesView records;
  const std::vector<bool>& right;
  BytesView padding;
};

// Calls judge(question, record, right) for every query of which that is known. Nobody has looked at
// the record of a padding query; it is wrong if an earlier one of the lookup spoilt its hint.
template <typename Question, typename Judge>
absl::Status JudgeAll(const Asked<Question>& asked, const Judge& judge) {
  const size_t wanted = asked.right.size(), bytes = asked.record_bytes;
  SHOAL_CHECK(asked.questions.size() >= wanted && asked.records.size() == wanted * bytes &&
              asked.padding.size() == (asked.questions.size() - wanted) * bytes);
  std::set<uint32_t> spoilt;
  for (size_t i = 0; i < asked.questions.size(); ++i) {
    const Question& question = asked.questions[i];
    if (i >= wanted && !spoilt.contains(question.hint)) continue;
    const bool right = i < wanted && asked.right[i];
    if (!right && question.held) spoilt.insert(question.hint);
    const BytesView record = i < wanted ? asked.records.subspan(i * bytes, bytes)
                                        : asked.padding.subspan((i - wanted) * bytes, bytes);
    SHOAL_RETURN_IF_ERROR(judge(question, record, right));
  }
  return absl::OkStatus();
}

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_JUDGE_H_
