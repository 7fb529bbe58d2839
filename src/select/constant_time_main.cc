// Answers queries whose selections are marked as uninitialised for valgrind: memcheck then reports
// every branch and every address that depends on them. //src/select:constant_time_test runs it.
//
//   constant_time_main                    everything; silence is success
//   constant_time_main --leak             branches on a secret on purpose (ConstantTimeMain)
//   constant_time_main --count S B L      answers queries over buckets once, for callgrind, which
//                                         //src/select:instruction_count_test has count
//                                         instructions: S is what selections are (zeros, ones,
//                                         random), B which buckets are asked (spread, first, last,
//                                         ends), L how rows lie (strided, spans)
//
// Covered is what valgrind can execute: every kernel but that of AVX-512, which is made from the
// same template.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/random.h"
#include "src/base/testing/constant_time.h"
#include "src/select/select.h"
#include "valgrind/memcheck.h"

namespace shoal::select {
namespace {

// Rows for all places but the last ones of the last buckets.
struct Buckets {
  Buckets(size_t places, size_t row_bytes, size_t buckets) : table(places * row_bytes * buckets) {
    SystemRandom().Fill(table);
    const size_t rows = places * buckets - buckets / 2;
    of.resize(buckets);
    for (size_t r = 0; r < rows; ++r) {
      of[r % buckets].push_back(BytesView(table).subspan(r * row_bytes, row_bytes));
    }
    for (size_t b = 0; b < buckets; ++b) {
      strided.push_back(Rows::Strided(BytesView(table).subspan(b * row_bytes), row_bytes,
                                      buckets * row_bytes, of[b].size())
                            .value());
      spans.push_back(Rows::Spans(of[b], row_bytes).value());
    }
  }
  Bytes table;
  std::vector<std::vector<BytesView>> of;
  std::vector<Rows> strided, spans;
};

void RunSecret(size_t row_bytes, size_t count) {
  constexpr size_t kPlaces = 130, kBuckets = 3;
  const Buckets buckets(kPlaces, row_bytes, kBuckets);
  Bytes selections(count * SelectionBytes(kPlaces)), sums(count * row_bytes);
  SystemRandom().Fill(selections);
  testing::MakeSecret(selections);
  std::vector<Query> queries;
  std::vector<BucketQuery> bucket_queries;
  for (size_t q = 0; q < count; ++q) {
    queries.push_back(
        {BytesView(selections).subspan(q * SelectionBytes(kPlaces), SelectionBytes(kPlaces)),
         MutableBytes(sums).subspan(q * row_bytes, row_bytes)});
    bucket_queries.push_back({q * q % kBuckets, queries.back()});
  }
  for (const std::vector<Rows>& rows : {buckets.strided, buckets.spans}) {
    SHOAL_CHECK(SelectFromTable(rows[0], kPlaces, queries).ok());
    SHOAL_CHECK(SelectFromBuckets(rows, kPlaces, bucket_queries).ok());
  }
  // That something was computed of the secrets.
  uint8_t defined = 0;
  SHOAL_CHECK(RUNNING_ON_VALGRIND == 0 || VALGRIND_GET_VBITS(sums.data(), &defined, 1) != 1 ||
              defined != 0);
}

void Run() {
  for (const InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    for (const size_t row_bytes : {1, 3, 7, 14, 31, 32, 62, 80, 300}) {
      for (const size_t count : {1, 7, 21}) RunSecret(row_bytes, count);
    }
    std::printf("%s\n", std::string(NameOf(set)).c_str());
  }
}

int Count(const std::string& of_selections, const std::string& of_buckets,
          const std::string& layout) {
  constexpr size_t kPlaces = 65, kBuckets = 9, kRowBytes = 62, kQueries = 200;
  const Buckets buckets(kPlaces, kRowBytes, kBuckets);
  Bytes selections(kQueries * SelectionBytes(kPlaces)), sums(kQueries * kRowBytes);
  if (of_selections == "ones") std::fill(selections.begin(), selections.end(), uint8_t{0xff});
  if (of_selections == "random") SystemRandom().Fill(selections);
  std::vector<BucketQuery> queries;
  for (size_t q = 0; q < kQueries; ++q) {
    const size_t bucket = of_buckets == "spread"  ? q % kBuckets
                          : of_buckets == "first" ? 0
                          : of_buckets == "last"  ? kBuckets - 1
                                                  : q % 7 / 6 * (kBuckets - 1);
    queries.push_back(
        {bucket,
         {BytesView(selections).subspan(q * SelectionBytes(kPlaces), SelectionBytes(kPlaces)),
          MutableBytes(sums).subspan(q * kRowBytes, kRowBytes)}});
  }
  SHOAL_CHECK(
      SelectFromBuckets(layout == "spans" ? buckets.spans : buckets.strided, kPlaces, queries)
          .ok());
  return 0;
}

}  // namespace
}  // namespace shoal::select

int main(int argc, char** argv) {
  using namespace shoal::select;  // NOLINT: a program of one page
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 4 && arguments[0] == "--count") {
    return Count(arguments[1], arguments[2], arguments[3]);
  }
  return shoal::testing::ConstantTimeMain(argc, argv, Run);
}
