#include "src/client/retrieval.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/rows.h"

namespace shoal::client {
namespace {

// The most keys that are looked up at a time, and the most bytes of keys and of values.
constexpr size_t kBlockKeys = 8192;
constexpr size_t kBlockBytes = 4 << 20;
// Answers that are read and verified at a time.
constexpr size_t kVerifyBytes = 1 << 20;
// Keys that one task looks up.
constexpr size_t kKeyGrain = 64;

// Tells keys apart: no two that anybody can find have one.
using KeyPrint = std::array<uint8_t, 16>;
KeyPrint PrintOf(BytesView key) {
  const Digest digest = Transcript("shoal client key v1").Blob(key).Finish();
  KeyPrint print;
  std::copy_n(digest.begin(), print.size(), print.begin());
  return print;
}

class SpanKeys final : public Keys {
 public:
  explicit SpanKeys(std::span<const Bytes> keys) : keys_(keys) {}
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    for (const Bytes& key : keys_) SHOAL_RETURN_IF_ERROR(take(key));
    return absl::OkStatus();
  }

 private:
  const std::span<const Bytes> keys_;
};

class VectorResults final : public Results {
 public:
  absl::Status Add(BytesView, const Lookup& result) override {
    results.push_back(result);
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }
  std::vector<Lookup> results;
};

// Looks a key up in its row's verified answer.
Lookup ResultOf(const table::RowMap& map, const table::RowAnswer& answer, BytesView key) {
  Lookup result;
  auto value = map.Find(answer.row, answer.answer.first(map.row_bytes()), key);
  if (absl::IsUnavailable(value.status())) {
    result.outcome = Lookup::Outcome::kUnknown;
    return result;
  }
  result.error = value.status();
  if (!value.ok()) return result;
  result.outcome = value->has_value() ? Lookup::Outcome::kFound : Lookup::Outcome::kAbsent;
  if (value->has_value()) result.value = **std::move(value);
  return result;
}

// Whether the source has put zeros in place of an answer (RowAnswers::Read). No party signs them.
bool IsLost(BytesView answer) {
  return std::ranges::all_of(answer, [](uint8_t byte) { return byte == 0; });
}

absl::StatusOr<CheckedAnswers> Verify(const Deployment& deployment, const RowAnswers& answers,
                                      std::span<const uint32_t> wanted,
                                      const Environment& environment) {
  environment.Tell(absl::StrCat("verifying ", wanted.size(), " rows"));
  CheckedAnswers checked(deployment, answers, wanted);
  const std::span<const uint32_t> rows = answers.rows();
  const size_t answer_bytes = deployment.manifest().answer_bytes();
  const size_t most = std::max<size_t>(1, kVerifyBytes / answer_bytes);
  Bytes block;
  for (size_t first = 0; first < rows.size(); first += most) {
    const size_t count = std::min(most, rows.size() - first);
    block.resize(count * answer_bytes);
    SHOAL_RETURN_IF_ERROR(answers.Read(first, block));
    std::vector<table::RowAnswer> row_answers;
    std::vector<size_t> places;
    for (size_t i = 0; i < count; ++i) {
      if (!checked.IsWanted(first + i)) continue;
      const BytesView answer = BytesView(block).subspan(i * answer_bytes, answer_bytes);
      if (IsLost(answer)) {
        checked.SetLost(first + i);
        continue;
      }
      row_answers.push_back({rows[first + i], answer});
      places.push_back(first + i);
    }
    const std::vector<absl::Status> verified = deployment.map().VerifyAnswers(
        deployment.roster(), row_answers, *environment.random, environment.pool);
    for (size_t i = 0; i < places.size(); ++i) {
      if (verified[i].ok()) checked.SetVerified(places[i]);
    }
    environment.Count("verifying", first + count, rows.size());
  }
  return checked;
}

absl::Status Deliver(const CheckedAnswers& checked, size_t answer_bytes, Keys& keys,
                     Results& results, const Environment& environment) {
  // Looks up a block of keys at a time, on all threads. A value is no longer than an answer.
  const size_t most = std::clamp<size_t>(kBlockBytes / answer_bytes, 1, kBlockKeys);
  Bytes text;
  std::vector<size_t> ends;
  uint64_t delivered = 0;
  const auto flush = [&]() -> absl::Status {
    const auto key = [&](size_t i) {
      const size_t begin = i == 0 ? 0 : ends[i - 1];
      return BytesView(text).subspan(begin, ends[i] - begin);
    };
    std::vector<absl::StatusOr<Lookup>> found(ends.size());
    environment.pool->ParallelFor(ends.size(), kKeyGrain, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) found[i] = checked.Find(key(i));
    });
    for (size_t i = 0; i < ends.size(); ++i) {
      ++delivered;
      if (!found[i].ok()) return Annotate(found[i].status(), absl::StrCat("key ", delivered));
      SHOAL_RETURN_IF_ERROR(results.Add(key(i), *found[i]));
    }
    text.clear();
    ends.clear();
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(keys.ForEach([&](BytesView key) -> absl::Status {
    Append(text, key);
    ends.push_back(text.size());
    return ends.size() < most && text.size() < kBlockBytes ? absl::OkStatus() : flush();
  }));
  return flush();
}

}  // namespace

absl::Status LookUp(const Deployment& deployment, RowSource& source, Keys& keys, Results& results,
                    const Environment& environment) {
  SHOAL_ASSIGN_OR_RETURN(const Wanted wanted, CollectRows(deployment.map(), keys));
  SHOAL_RETURN_IF_ERROR(source.Prepare());
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<RowAnswers> answers, source.Ask(wanted));
  source.HangUp();
  SHOAL_ASSIGN_OR_RETURN(const CheckedAnswers checked,
                         Verify(deployment, *answers, wanted.rows, environment));
  // What was verified is delivered all the same.
  const absl::Status judged = answers->Judge(checked.verified());
  SHOAL_RETURN_IF_ERROR(CheckNotExpired(deployment, *environment.clock));
  SHOAL_RETURN_IF_ERROR(
      Deliver(checked, deployment.manifest().answer_bytes(), keys, results, environment));
  SHOAL_RETURN_IF_ERROR(results.Finish());
  SHOAL_RETURN_IF_ERROR(answers->Erase());
  return judged;
}

absl::StatusOr<std::vector<Lookup>> LookUp(const Deployment& deployment, RowSource& source,
                                           std::span<const Bytes> keys,
                                           const Environment& environment) {
  SpanKeys all(keys);
  VectorResults results;
  SHOAL_RETURN_IF_ERROR(LookUp(deployment, source, all, results, environment));
  return std::move(results.results);
}

absl::StatusOr<Wanted> CollectRows(const table::RowMap& map, Keys& keys) {
  Wanted wanted;
  RowSet rows;
  Transcript lookup("shoal client lookup v1");
  const bool counts_distinct = map.manifest().query_buckets() != 0;
  std::vector<KeyPrint> prints;
  SHOAL_RETURN_IF_ERROR(keys.ForEach([&](BytesView key) -> absl::Status {
    ++wanted.keys;
    lookup.Blob(key);
    if (counts_distinct) prints.push_back(PrintOf(key));
    const auto row = map.RowOf(key);
    // The manifest proves the key absent. It needs no row, and nobody may see that.
    if (absl::IsOutOfRange(row.status())) return absl::OkStatus();
    if (!row.ok()) return Annotate(row.status(), absl::StrCat("key ", wanted.keys));
    rows.Add(static_cast<uint32_t>(*row));
    return absl::OkStatus();
  }));
  wanted.rows = rows.Take();
  if (counts_distinct) {
    std::ranges::sort(prints);
    wanted.distinct_keys =
        static_cast<uint64_t>(std::unique(prints.begin(), prints.end()) - prints.begin());
  }
  wanted.lookup = lookup.Finish();
  return wanted;
}

absl::Status CheckNotExpired(const Deployment& deployment, const Clock& clock) {
  const absl::Status current =
      deployment.manifest().CheckTime(deployment.roster(), clock.NowSeconds());
  if (current.ok()) return current;
  return absl::FailedPreconditionError(
      absl::StrCat("the table expired while its answers were on their way, and none is used: ",
                   current.message()));
}

CheckedAnswers::CheckedAnswers(const Deployment& deployment, const RowAnswers& answers,
                               std::span<const uint32_t> wanted)
    : deployment_(deployment),
      answers_(answers),
      order_(answers.rows().size()),
      states_(answers.rows().size(), kPadding) {
  const std::span<const uint32_t> rows = answers.rows();
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(),
            [&](uint32_t a, uint32_t b) { return std::pair(rows[a], a) < std::pair(rows[b], b); });
  auto next = wanted.begin();
  const auto skip_unasked = [&] {
    while (next != wanted.end() && std::ranges::binary_search(answers.unasked(), *next)) ++next;
  };
  skip_unasked();
  for (const uint32_t place : order_) {
    if (next == wanted.end()) break;
    if (rows[place] != *next) continue;
    states_[place] = kFailed;
    ++next;
    skip_unasked();
  }
  SHOAL_CHECK(next == wanted.end());
}

absl::StatusOr<Lookup> CheckedAnswers::Find(BytesView key) const {
  const table::RowMap& map = deployment_.map();
  const std::span<const uint32_t> rows = answers_.rows();
  Lookup result;
  const auto row = map.RowOf(key);
  if (absl::IsOutOfRange(row.status())) {
    result.outcome = Lookup::Outcome::kAbsent;
    return result;
  }
  if (row.ok() && std::ranges::binary_search(answers_.unasked(), *row)) {
    result.outcome = Lookup::Outcome::kUnknown;
    result.error = absl::UnavailableError(
        absl::StrCat("row ", *row,
                     ": was not asked for, as more keys of this lookup than most_in_bucket of the "
                     "roster, which is ",
                     deployment_.roster().most_in_bucket(), ", are in its bucket"));
    return result;
  }
  const auto at =
      std::lower_bound(order_.begin(), order_.end(), row.ok() ? *row : 0,
                       [&](uint32_t place, uint64_t wanted) { return rows[place] < wanted; });
  if (!row.ok() || at == order_.end() || rows[*at] != *row || !IsWanted(*at)) {
    return absl::FailedPreconditionError(
        "was not among the keys when they were read for the first time: they must not change "
        "meanwhile");
  }
  if (states_[*at] == kLost) {
    result.error = absl::UnauthenticatedError(
        "no answer of the parties came: it was altered on its way, or they had none");
    return result;
  }
  if (states_[*at] == kFailed) {
    result.error = absl::UnauthenticatedError(
        absl::StrCat("row ", *row, ": the answer is not signed by all parties"));
    return result;
  }
  Bytes answer(deployment_.manifest().answer_bytes());
  SHOAL_RETURN_IF_ERROR(answers_.Read(*at, answer));
  return ResultOf(map, {*row, answer}, key);
}

}  // namespace shoal::client
