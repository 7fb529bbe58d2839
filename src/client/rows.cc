#include "src/client/rows.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

namespace shoal::client {
namespace {

constexpr size_t kSmallestSet = 1024;

void SortDistinct(std::vector<uint32_t>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

}  // namespace

void RowSet::Add(uint32_t row) {
  if (rows_.size() == rows_.capacity()) Compact();
  rows_.push_back(row);
}

std::vector<uint32_t> RowSet::Take() {
  SortDistinct(rows_);
  return std::exchange(rows_, {});
}

void RowSet::Compact() {
  SortDistinct(rows_);
  if (rows_.size() > rows_.capacity() / 2) rows_.reserve(2 * rows_.size());
  if (rows_.capacity() < kSmallestSet) rows_.reserve(kSmallestSet);
}

uint32_t PaddedCount(size_t distinct_rows, uint32_t pad_to, uint64_t table_rows) {
  const uint64_t multiples = std::max<uint64_t>(1, (distinct_rows + pad_to - 1) / pad_to);
  return static_cast<uint32_t>(std::min<uint64_t>(multiples * pad_to, table_rows));
}

void DrawDistinct(size_t count, uint64_t bound, RandomSource& random,
                  std::vector<uint32_t>& distinct) {
  SHOAL_CHECK(count <= bound / 2 && bound <= uint64_t{1} << 32);
  // Draws as many numbers as are missing, until none is. The result is distributed as with single
  // draws, since no pass can give too many.
  while (distinct.size() < count) {
    std::vector<uint32_t> draws(count - distinct.size());
    for (uint32_t& draw : draws) draw = static_cast<uint32_t>(random.Below(bound));
    const size_t before = distinct.size();
    distinct.insert(distinct.end(), draws.begin(), draws.end());
    std::sort(distinct.begin() + static_cast<ptrdiff_t>(before), distinct.end());
    std::inplace_merge(distinct.begin(), distinct.begin() + static_cast<ptrdiff_t>(before),
                       distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  }
}

std::vector<uint32_t> PadRows(std::span<const uint32_t> rows, uint32_t count, uint64_t table_rows,
                              RandomSource& random) {
  SHOAL_CHECK(rows.size() <= count && count <= table_rows);
  std::vector<uint32_t> padded;
  padded.reserve(count);
  padded.assign(rows.begin(), rows.end());
  SortDistinct(padded);
  SHOAL_CHECK(padded.size() == rows.size());
  // Draws come from a stream of this call, as there are many small ones.
  const Seed seed = random.NewSeed();
  SeededRandom draws(seed.view(), "shoal client padding v1");
  if (count > table_rows / 2) {
    std::vector<uint32_t> others;
    others.reserve(table_rows - padded.size());
    auto next = padded.begin();
    for (uint64_t row = 0; row < table_rows; ++row) {
      if (next != padded.end() && *next == row) {
        ++next;
      } else {
        others.push_back(static_cast<uint32_t>(row));
      }
    }
    for (size_t i = 0; padded.size() < count; ++i) {
      std::swap(others[i], others[i + draws.Below(others.size() - i)]);
      padded.push_back(others[i]);
    }
  } else {
    DrawDistinct(count, table_rows, draws, padded);
  }
  for (size_t i = padded.size(); i > 1; --i) std::swap(padded[i - 1], padded[draws.Below(i)]);
  return padded;
}

}  // namespace shoal::client
