// The public matrix A of Regev's encryption: kDimension numbers below 2^32 for every column of the
// data, expanded from a seed.
//
// The seed is a hash of what the matrix is for (engine, table and level). Client and server compute
// it, so nobody can choose it. Element (k, column) is 32-bit word (column mod 4) of
//     AES-128(seed's first 16 bytes, big-endian 128-bit number k * 2^32 + column / 4),
// so any part of the matrix can be computed by itself, and more columns do not change the others.
#ifndef SHOAL_SRC_PIR_LWE_PUBLIC_MATRIX_H_
#define SHOAL_SRC_PIR_LWE_PUBLIC_MATRIX_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/pir/aes/counter_stream.h"
#include "src/pir/lwe/kernel.h"

namespace shoal::pir::lwe {

// Transcript("shoal pir public matrix v1") over engine, table id, level.
Digest PublicMatrixSeed(absl::string_view engine, const Digest& table_id, uint32_t level);

// Thread-compatible: one per thread.
class PublicMatrix {
 public:
  // `stream` expands the rows; null means OpenSSL.
  PublicMatrix(const Digest& seed, const CounterStream* stream);
  ~PublicMatrix();
  PublicMatrix(PublicMatrix&&) noexcept;

  // out[i] = element (k, first_column + i). first_column is a multiple of 4 (checked).
  void Expand(uint32_t k, uint64_t first_column, std::span<uint32_t> out);

  // The part of a client's queries that comes from rows [k, k + kRowsTogether): for every query v
  // and column i < columns, sums[v * sums_stride + i] += the sum over the rows of factors[v *
  // kRowsTogether + row] * element (k + row, first_column + i). `columns` is a multiple of
  // kGroupColumns, first_column of 4 (checked).
  static constexpr uint32_t kRowsTogether = 4;
  void AddScaled(const Kernel& kernel, uint32_t k, uint64_t first_column, uint64_t columns,
                 std::span<const int32_t> factors, uint32_t* sums, uint64_t sums_stride);

  // out[k] = element (k, column), for all k.
  void ExpandColumn(uint64_t column, std::span<uint32_t> out);

 private:
  struct Cipher;
  std::unique_ptr<Cipher> cipher_;
  std::vector<uint32_t> rows_;  // scratch memory of AddScaled
};

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_PUBLIC_MATRIX_H_
