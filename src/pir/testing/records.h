// A table of random records, for tests.
#ifndef SHOAL_SRC_PIR_TESTING_RECORDS_H_
#define SHOAL_SRC_PIR_TESTING_RECORDS_H_

#include <algorithm>
#include <cstdint>

#include "src/base/bytes.h"
#include "src/base/testing/test_random.h"
#include "src/pir/engine.h"

namespace shoal::pir::testing {

// For ServerOptions::shape. 0: the engine chooses.
inline wire::PirSetup Shape(uint64_t rows_per_column, uint64_t columns = 0) {
  wire::PirSetup shape;
  shape.set_rows_per_column(rows_per_column);
  shape.set_columns(columns);
  return shape;
}

class Records {
 public:
  Records(uint64_t rows, uint32_t record_bytes, uint64_t seed = 1)
      : record_bytes_(record_bytes), bytes_(rows * record_bytes) {
    shoal::testing::TestRandom(seed).Fill(bytes_);
  }
  // Refers to the records, which outlive it.
  Content content(uint64_t epoch = 1) const {
    return {.table_id = {9},
            .epoch = epoch,
            .manifest_digest = {static_cast<uint8_t>(epoch)},
            .rows = bytes_.size() / record_bytes_,
            .record_bytes = record_bytes_,
            .copy = [this](uint64_t row, MutableBytes out) {
              const Bytes record = at(row);
              std::copy(record.begin(), record.end(), out.begin());
            }};
  }
  Bytes at(uint64_t row) const {
    return {bytes_.begin() + row * record_bytes_, bytes_.begin() + (row + 1) * record_bytes_};
  }
  void Fill(uint64_t row, uint8_t value) {
    std::fill_n(bytes_.begin() + row * record_bytes_, record_bytes_, value);
  }
  void FillByte(uint64_t row, uint32_t byte, uint8_t value) {
    bytes_[row * record_bytes_ + byte] = value;
  }

 private:
  uint32_t record_bytes_;
  Bytes bytes_;
};

}  // namespace shoal::pir::testing

#endif  // SHOAL_SRC_PIR_TESTING_RECORDS_H_
