#include "src/load/checker.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/retrieval.h"
#include "src/client/row_source.h"
#include "src/parallel/mutex.h"

namespace shoal::load {
namespace {

// One device's answers, in memory.
class HeldAnswers final : public client::RowAnswers {
 public:
  HeldAnswers(std::span<const uint32_t> rows, BytesView answers)
      : rows_(rows), answers_(answers), each_(answers.size() / rows.size()) {}
  std::span<const uint32_t> rows() const override { return rows_; }
  absl::Status Read(size_t first, MutableBytes out) const override {
    const BytesView part = answers_.subspan(first * each_, out.size());
    std::copy(part.begin(), part.end(), out.begin());
    return absl::OkStatus();
  }
  absl::Status Erase() override { return absl::OkStatus(); }

 private:
  const std::span<const uint32_t> rows_;
  const BytesView answers_;
  const size_t each_;
};

}  // namespace

// Digests of verified answers. There is one for each row, because a row has one signature, and so
// one right answer. Thread-safe.
class Checker::VerifiedAnswers {
 public:
  explicit VerifiedAnswers(size_t rows) : digests_(rows), known_(rows) {}

  static Digest DigestOf(BytesView answer) {
    return Transcript("shoal crowd answer v1").Blob(answer).Finish();
  }
  bool Has(uint64_t row, const Digest& digest) const {
    return known_[row].load(std::memory_order_acquire) != 0 && digests_[row] == digest;
  }
  void Add(uint64_t row, const Digest& digest) ABSL_LOCKS_EXCLUDED(adding_) {
    const MutexLock lock(adding_);
    if (known_[row].load(std::memory_order_relaxed) != 0) return;
    digests_[row] = digest;
    known_[row].store(1, std::memory_order_release);
  }

 private:
  Mutex adding_;  // held by the one that adds; `known_` tells readers which digests are there
  std::vector<Digest> digests_;
  std::vector<std::atomic<uint8_t>> known_;
};

Checker::Checker(const client::Deployment* deployment, const Devices* devices,
                 const table::UnsignedTable* expected, bool verify_each)
    : deployment_(*deployment), devices_(*devices), expected_(expected) {
  if (!verify_each) verified_ = std::make_unique<VerifiedAnswers>(deployment->manifest().rows());
}

Checker::~Checker() = default;

Tally Checker::Check(std::span<const AnswersOf> all, RandomSource& random) {
  const size_t answer_bytes = deployment_.manifest().answer_bytes();
  std::vector<table::RowAnswer> rows;
  for (const AnswersOf& one : all) {
    BytesView answers = one.answers;
    for (const uint32_t row : devices_.RowsOf(one.device)) {
      rows.push_back({row, answers.first(answer_bytes)});
      answers = answers.subspan(answer_bytes);
    }
  }
  const std::vector<absl::Status> verified = VerifySignatures(rows, random);
  Tally tally;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!verified[i].ok()) {
      ++tally.answers_failed;
      tally.first_error.Update(verified[i]);
    } else if (expected_ != nullptr &&
               !std::equal(expected_->row(rows[i].row).begin(), expected_->row(rows[i].row).end(),
                           rows[i].answer.begin())) {
      ++tally.answers_wrong;
    } else {
      ++tally.answers_correct;
    }
  }

  size_t first = 0;  // the device's first answer in `verified`
  for (const AnswersOf& one : all) {
    const HeldAnswers answers(devices_.RowsOf(one.device), one.answers);
    std::vector<uint32_t> wanted(answers.rows().begin(), answers.rows().end());
    std::sort(wanted.begin(), wanted.end());
    client::CheckedAnswers checked(deployment_, answers, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (verified[first + i].ok()) checked.SetVerified(i);
    }
    first += wanted.size();
    DeviceKeys keys = devices_.KeysOf(one.device);
    const absl::Status found = keys.ForEach([&](BytesView key) -> absl::Status {
      SHOAL_ASSIGN_OR_RETURN(const client::Lookup result, checked.Find(key));
      tally.keys_found += result.outcome == client::Lookup::Outcome::kFound;
      tally.keys_absent += result.outcome == client::Lookup::Outcome::kAbsent;
      tally.keys_unknown += result.outcome == client::Lookup::Outcome::kUnknown;
      tally.keys_failed += result.outcome == client::Lookup::Outcome::kFailed;
      tally.first_error.Update(result.error);
      return absl::OkStatus();
    });
    SHOAL_CHECK(found.ok());  // Devices::Draw asks every key's row, and memory
                              // can be read
  }
  return tally;
}

std::vector<absl::Status> Checker::VerifySignatures(std::span<const table::RowAnswer> rows,
                                                    RandomSource& random) {
  const table::RowMap& map = deployment_.map();
  if (verified_ == nullptr) return map.VerifyAnswers(deployment_.roster(), rows, random);
  std::vector<Digest> digests(rows.size());
  std::vector<size_t> unknown;
  for (size_t i = 0; i < rows.size(); ++i) {
    digests[i] = VerifiedAnswers::DigestOf(rows[i].answer);
    if (!verified_->Has(rows[i].row, digests[i])) unknown.push_back(i);
  }
  // Verifies one answer of each kind for all.
  const auto kind = [&](size_t i) { return std::pair(rows[i].row, digests[i]); };
  std::sort(unknown.begin(), unknown.end(), [&](size_t a, size_t b) { return kind(a) < kind(b); });
  std::vector<table::RowAnswer> some;
  std::vector<size_t> some_of(unknown.size());
  for (size_t k = 0; k < unknown.size(); ++k) {
    if (k == 0 || kind(unknown[k - 1]) != kind(unknown[k])) some.push_back(rows[unknown[k]]);
    some_of[k] = some.size() - 1;
  }
  const std::vector<absl::Status> verified = map.VerifyAnswers(deployment_.roster(), some, random);
  std::vector<absl::Status> result(rows.size());
  for (size_t k = 0; k < unknown.size(); ++k) {
    const size_t i = unknown[k];
    result[i] = verified[some_of[k]];
    if (result[i].ok()) verified_->Add(rows[i].row, digests[i]);
  }
  return result;
}

}  // namespace shoal::load
