#include "src/pir/lwe/refresh.h"

#include <algorithm>
#include <optional>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/public_matrix.h"
#include "src/pir/lwe/rounding.h"

namespace shoal::pir::lwe {
namespace {

// Runs with a smaller gap between them are joined, as a run has a header of 20 bytes.
constexpr size_t kGap = 10;
constexpr size_t kCountBytes = 8;
constexpr size_t kRunHeaderBytes = 20;

constexpr uint64_t DifferencesBytes(uint64_t length) { return length + (length + 7) / 8; }

struct Change {
  uint64_t column = 0;
  uint64_t first_row = 0;
  uint64_t length = 0;
  BytesView differences;  // DifferencesBytes(length)

  // after less before, -255 to 255
  int32_t at(uint64_t i) const {
    return int32_t{differences[i]} - ((differences[length + i / 8] >> i % 8 & 1) << 8);
  }
};

// Whether the differences are those of bytes, in their one encoding.
bool AreDifferences(const Change& change) {
  for (uint64_t i = 0; i < change.length; ++i) {
    if (change.at(i) == -256) return false;
  }
  return change.length % 8 == 0 || change.differences.back() >> change.length % 8 == 0;
}

Bytes DifferencesOf(BytesView before, BytesView after) {
  Bytes out(DifferencesBytes(before.size()));
  for (size_t i = 0; i < before.size(); ++i) {
    out[i] = static_cast<uint8_t>(after[i] - before[i]);
    uint8_t& signs = out[before.size() + i / 8];
    signs = static_cast<uint8_t>(signs | (after[i] < before[i] ? 1u << i % 8 : 0u));
  }
  return out;
}

// Takes the run off the front of `bytes`; nothing if it is not complete.
std::optional<Change> TakeRun(BytesView& bytes) {
  if (bytes.size() < kRunHeaderBytes) return std::nullopt;
  const uint64_t length = LoadLe<uint32_t>(bytes.data() + 16);
  const uint64_t run_bytes = DifferencesBytes(length);
  if (bytes.size() - kRunHeaderBytes < run_bytes) return std::nullopt;
  const Change run = {.column = LoadLe<uint64_t>(bytes.data()),
                      .first_row = LoadLe<uint64_t>(bytes.data() + 8),
                      .length = length,
                      .differences = bytes.subspan(kRunHeaderBytes, run_bytes)};
  bytes = bytes.subspan(kRunHeaderBytes + run_bytes);
  return run;
}

// Applies changes to a hint. Changes of one column follow one another, so that each column is
// expanded once.
class Changes {
 public:
  Changes(const Kernel& kernel, const Digest& seed, std::vector<uint32_t>& hint)
      : kernel_(kernel), matrix_(seed, StreamFor(kernel)), hint_(hint), column_(kDimension) {}

  // hint[first_row + i] += change.at(i) * (the change's column of the public matrix).
  void Apply(const Change& change) {
    if (expanded_ != change.column) {
      matrix_.ExpandColumn(change.column, column_);
      expanded_ = change.column;
    }
    const uint32_t* const from = column_.data();
    for (uint64_t i = 0; i < change.length; ++i) {
      const int32_t by = change.at(i);
      if (by == 0) continue;
      kernel_.add_scaled(&from, &by, 1, kDimension,
                         hint_.data() + (change.first_row + i) * kDimension);
    }
  }

 private:
  const Kernel& kernel_;
  PublicMatrix matrix_;
  std::vector<uint32_t>& hint_;
  std::vector<uint32_t> column_;
  std::optional<uint64_t> expanded_;
};

// The old and the new bytes of a run in the matrix.
struct RunBytes {
  Bytes before, after;

  void Load(const ByteMatrix& matrix, const Run& run, const Runs& runs, size_t number) {
    before.resize(run.length);
    after.resize(run.length);
    runs.read(number, after);
    for (size_t i = 0; i < before.size(); ++i)
      before[i] = matrix.Get(run.first_row + i, run.column);
  }
};

// Calls sent(begin, end) for every part of [0, n) that is sent as one run. A run begins and ends
// with a byte that is `changed`; it has no gap of kGap bytes, and no byte that is `apart`.
template <typename Changed, typename Apart, typename Sent>
void Split(size_t n, const Changed& changed, const Apart& apart, const Sent& sent) {
  for (size_t i = 0; i < n; ++i) {
    if (apart(i) || !changed(i)) continue;
    size_t end = i + 1;
    for (size_t j = end; j < n && j < end + kGap && !apart(j); ++j) {
      if (changed(j)) end = j + 1;
    }
    sent(i, end);
    i = end - 1;
  }
}

// For each row of the matrix, the bytes that its changes take in a delta if the row is not sent
// anew: runs with their headers, divided among the rows that they are in. If no delta is made
// (`told` is false), two bytes for each change.
std::vector<double> CountBytes(const ByteMatrix& matrix, bool told, const Runs& runs) {
  std::vector<double> row_bytes(matrix.rows());
  RunBytes bytes;
  for (size_t r = 0; r < runs.count; ++r) {
    const Run run = runs.at(r);
    bytes.Load(matrix, run, runs, r);
    const auto changed = [&](size_t i) { return bytes.before[i] != bytes.after[i]; };
    if (!told) {
      for (size_t i = 0; i < run.length; ++i) row_bytes[run.first_row + i] += changed(i) ? 2 : 0;
      continue;
    }
    Split(
        run.length, changed, [](size_t) { return false; },
        [&](size_t begin, size_t end) {
          const double each = static_cast<double>(kRunHeaderBytes + DifferencesBytes(end - begin)) /
                              static_cast<double>(end - begin);
          for (size_t i = begin; i < end; ++i) row_bytes[run.first_row + i] += each;
        });
  }
  return row_bytes;
}

}  // namespace

double RefreshShare(const ByteMatrix& matrix, uint32_t hint_bits_dropped, bool told,
                    const Runs& runs) {
  const auto row_bytes = static_cast<double>(RoundedBytes(kDimension, hint_bits_dropped));
  double bytes = 0;
  for (double changed : CountBytes(matrix, told, runs)) bytes += std::min(changed, row_bytes);
  return bytes / (static_cast<double>(matrix.rows()) * row_bytes);
}

std::optional<Bytes> RefreshProduct(const HintedMatrix& hinted, const Runs& runs) {
  ByteMatrix& matrix = *hinted.matrix;
  const std::vector<double> changed = CountBytes(matrix, hinted.max_delta_bytes > 0, runs);
  const uint64_t row_bytes = RoundedBytes(kDimension, hinted.hint_bits_dropped);
  const auto anew = [&](uint64_t row) { return changed[row] >= static_cast<double>(row_bytes); };

  // Reserved at once, so that its bytes are never moved or copied. Pages that are not written take
  // no memory.
  std::optional<Bytes> changes = Bytes();
  changes->reserve(hinted.max_delta_bytes);
  // Whether this many more bytes may be recorded. Once there are too many, all of them are dropped.
  const auto fit = [&](uint64_t more) {
    if (changes && changes->size() + more > hinted.max_delta_bytes) changes.reset();
    return changes.has_value();
  };
  if (fit(kCountBytes)) changes->resize(kCountBytes);
  uint64_t count = 0;
  RunBytes bytes;
  Changes applied(hinted.room->kernel(), hinted.seed, *hinted.product);
  for (size_t r = 0; r < runs.count; ++r) {
    const Run run = runs.at(r);
    bytes.Load(matrix, run, runs, r);
    for (size_t i = 0; i < run.length; ++i) {
      matrix.Set(run.first_row + i, run.column, bytes.after[i]);
    }
    const auto apply = [&](size_t begin, size_t end) {
      const size_t length = end - begin;
      const Bytes differences = DifferencesOf(BytesView(bytes.before).subspan(begin, length),
                                              BytesView(bytes.after).subspan(begin, length));
      const Change change = {.column = run.column,
                             .first_row = run.first_row + begin,
                             .length = length,
                             .differences = differences};
      applied.Apply(change);
      ++count;
      if (!fit(kRunHeaderBytes + differences.size())) return;
      AppendLe<uint64_t>(*changes, change.column);
      AppendLe<uint64_t>(*changes, change.first_row);
      AppendLe<uint32_t>(*changes, static_cast<uint32_t>(length));
      Append(*changes, differences);
    };
    Split(
        run.length, [&](size_t i) { return bytes.before[i] != bytes.after[i]; },
        [&](size_t i) { return anew(run.first_row + i); }, apply);
  }
  if (changes) StoreLe<uint64_t>(changes->data(), count);

  std::vector<uint64_t> rows;
  for (uint64_t row = 0; row < matrix.rows(); ++row) {
    if (anew(row)) rows.push_back(row);
  }
  if (rows.empty()) return changes;
  matrix.MultiplyPublicRows(*hinted.room, hinted.seed, rows, hinted.pool, *hinted.product);
  for (uint64_t row : rows) {
    if (!fit(8 + row_bytes)) break;
    AppendLe<uint64_t>(*changes, row);
    AppendRounded({hinted.product->data() + row * kDimension, kDimension}, hinted.hint_bits_dropped,
                  *changes);
  }
  return changes;
}

absl::Status ApplyChanges(const Kernel& kernel, const Digest& seed, uint32_t hint_bits_dropped,
                          uint64_t columns, BytesView changes, std::vector<uint32_t>& hint) {
  const uint64_t rows = hint.size() / kDimension;
  const absl::Status malformed = absl::InvalidArgumentError("pir: malformed changes");
  const absl::Status unordered = absl::InvalidArgumentError("pir: changes out of order");
  const absl::Status outside = absl::InvalidArgumentError("pir: a change outside of the matrix");
  if (changes.size() < kCountBytes) return malformed;
  const uint64_t count = LoadLe<uint64_t>(changes.data());
  const BytesView runs = changes.subspan(kCountBytes);
  // Everything is checked before anything is applied, in a pass of its own: a list of the runs that
  // were sent would take several times as much memory.
  BytesView rest = runs;
  uint64_t column = 0, row = 0;  // where the next run may begin
  for (uint64_t i = 0; i < count; ++i) {
    const std::optional<Change> run = TakeRun(rest);
    if (!run || run->length == 0 || !AreDifferences(*run)) return malformed;
    const uint64_t length = run->length;
    if (run->column >= columns || length > rows || run->first_row > rows - length) return outside;
    if (run->column < column || (run->column == column && run->first_row < row)) return unordered;
    column = run->column;
    row = run->first_row + length;
  }
  const uint64_t row_bytes = RoundedBytes(kDimension, hint_bits_dropped);
  if (rest.size() % (8 + row_bytes) != 0) return malformed;
  row = 0;
  for (; !rest.empty(); rest = rest.subspan(8 + row_bytes)) {
    const uint64_t here = LoadLe<uint64_t>(rest.data());
    if (here >= rows) return outside;
    if (here < row) return unordered;
    row = here + 1;
  }

  Changes applied(kernel, seed, hint);
  rest = runs;
  for (uint64_t i = 0; i < count; ++i) applied.Apply(*TakeRun(rest));
  for (; !rest.empty(); rest = rest.subspan(8 + row_bytes)) {
    // Any bytes are a valid row, as kDimension words end with a whole byte whatever their width.
    static_assert(kDimension % 8 == 0);
    const uint64_t first = LoadLe<uint64_t>(rest.data()) * kDimension;
    const absl::Status parsed = ParseRounded(rest.subspan(8, row_bytes), hint_bits_dropped,
                                             std::span(hint).subspan(first, kDimension));
    SHOAL_CHECK(parsed.ok());
  }
  return absl::OkStatus();
}

}  // namespace shoal::pir::lwe
