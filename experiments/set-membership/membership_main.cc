// The data structure of the SimplePIR paper's section 6 at work; prints name, tab, value.
//
//   membership rates FILTERS STRINGS TRIES
//       how well forged strings do: TRIES tries by somebody who knows the set and the hash
//       functions, but not which filter the client draws
//   membership query ENGINE LOG2_BITS QUERIES
//       what QUERIES questions of a client to one filter of 2^LOG2_BITS bits cost
//
// `query` has at most 2^20 real strings in its set. The other bits of the filter are set at random,
// an eighth of all, as many as a full set would set. Exit codes: 1 failed, 2 wrong usage, 3 a wrong
// record, or a string of the set that was not found.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "experiments/engines/measure.h"
#include "experiments/set-membership/membership.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"

namespace shoal::experiments {
namespace {

constexpr uint64_t kMaxNamed = uint64_t{1} << 20;

// A made-up string: a digest, as an auditor has of a timestamp.
Digest StringOf(absl::string_view kind, uint64_t number) {
  return Transcript("membership study").Blob(kind).U64(number).Finish();
}

absl::Status Rates(uint32_t filters, uint64_t strings, uint64_t tries) {
  SystemRandom random;
  ThreadPool pool;
  pir::MembershipParameters parameters = {.strings = strings, .filters = filters};
  random.Fill(parameters.salt);
  SHOAL_RETURN_IF_ERROR(pir::CheckMembership(parameters));
  std::vector<std::vector<uint32_t>> hits_of(
      filters);  // hits_of[f]: the hits of every try in filter f
  std::vector<absl::Status> statuses(filters);
  pool.ParallelFor(filters, 1, [&](size_t begin, size_t end) {
    for (size_t f = begin; f < end; ++f) {
      auto filter = pir::MembershipFilter::Create(parameters, static_cast<uint32_t>(f));
      statuses[f] = filter.status();
      if (!filter.ok()) continue;
      for (uint64_t i = 0; i < strings; ++i) filter->Add(StringOf("in", i));
      hits_of[f].resize(tries);
      for (uint64_t t = 0; t < tries; ++t) hits_of[f][t] = filter->Has(StringOf("forged", t));
      for (uint64_t i = 0; i < strings; i += 100) {
        if (!filter->Has(StringOf("in", i))) statuses[f] = absl::DataLossError("a false negative");
      }
    }
  });
  uint64_t all = 0, best = 0;
  for (uint64_t t = 0; t < tries; ++t) {
    uint64_t hits = 0;
    for (uint32_t f = 0; f < filters; ++f) hits += hits_of[f].empty() ? 0 : hits_of[f][t];
    all += hits;
    best = std::max(best, hits);
  }
  for (const absl::Status& status : statuses) SHOAL_RETURN_IF_ERROR(status);
  Print("chance_rate", static_cast<double>(all) / static_cast<double>(tries * filters));
  Print("forged_rate", static_cast<double>(best) / filters);
  Print("failure_log2", pir::MembershipFailureLog2(parameters, 256));
  return absl::OkStatus();
}

absl::Status Query(pir::lwe::Scheme engine, uint32_t log2_bits, uint64_t queries) {
  SystemRandom random;
  ThreadPool pool;
  pir::MembershipParameters parameters;
  parameters.strings = (uint64_t{1} << log2_bits) / parameters.bits_per_string;
  random.Fill(parameters.salt);
  SHOAL_ASSIGN_OR_RETURN(const pir::MembershipClient member,
                         pir::MembershipClient::Create(parameters, random));
  SHOAL_ASSIGN_OR_RETURN(pir::MembershipFilter filter,
                         pir::MembershipFilter::Create(parameters, member.filter()));
  const uint64_t named = std::min(parameters.strings, kMaxNamed);
  const Times hashing = TimesOf([&] {
    for (uint64_t i = 0; i < named; ++i) filter.Add(StringOf("in", i));
  });
  if (named < parameters.strings) {
    const MutableBytes bits = filter.bits();
    const uint64_t seed = random.U64();
    pool.ParallelFor(bits.size() / 8, 1 << 16, [&](size_t begin, size_t end) {
      uint64_t state = seed ^ (begin * 0x9e3779b97f4a7c15ull);
      const auto next = [&state] {
        state += 0x9e3779b97f4a7c15ull;
        uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
      };
      for (size_t i = begin; i < end; ++i) {
        StoreLe<uint64_t>(&bits[8 * i],
                          LoadLe<uint64_t>(&bits[8 * i]) | (next() & next() & next()));
      }
    });
  }
  Print("strings", static_cast<double>(parameters.strings));
  Print("strings_by_name", static_cast<double>(named));
  Print("hash_cpu_s", hashing.cpu_s / static_cast<double>(named));
  const pir::Content content = filter.content(1);
  SHOAL_ASSIGN_OR_RETURN(const Bench bench, SetUp(engine, content, pool));
  // Half of them are in the set, half are not.
  std::vector<Digest> strings;
  std::vector<uint64_t> rows;
  for (uint64_t i = 0; i < queries; ++i) {
    strings.push_back(i % 2 == 0 ? StringOf("in", random.Below(named)) : StringOf("out", i));
    rows.push_back(member.RowOf(strings.back()));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Bytes> records, Ask(bench, content, rows, 1, random));
  uint64_t in = 0, in_found = 0, out = 0, out_found = 0;
  for (uint64_t i = 0; i < queries; ++i) {
    const bool holds = member.Holds(strings[i], records[i]);
    (i % 2 == 0 ? in : out) += 1;
    (i % 2 == 0 ? in_found : out_found) += holds;
  }
  Print("in_asked", static_cast<double>(in));
  Print("in_found", static_cast<double>(in_found));
  Print("out_asked", static_cast<double>(out));
  Print("out_found", static_cast<double>(out_found));
  return in == in_found ? absl::OkStatus() : absl::DataLossError("a false negative");
}

}  // namespace
}  // namespace shoal::experiments

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  absl::Status status;
  uint32_t small = 0;
  uint64_t strings = 0, count = 0;
  const auto engine = shoal::pir::lwe::ParseScheme(argc > 2 ? argv[2] : "");
  if (argc == 5 && mode == "rates" && absl::SimpleAtoi(argv[2], &small) &&
      absl::SimpleAtoi(argv[3], &strings) && absl::SimpleAtoi(argv[4], &count) && count > 0) {
    status = shoal::experiments::Rates(small, strings, count);
  } else if (argc == 5 && mode == "query" && engine.ok() && absl::SimpleAtoi(argv[3], &small) &&
             small >= 9 && small <= 36 && absl::SimpleAtoi(argv[4], &count) && count > 0) {
    status = shoal::experiments::Query(*engine, small, count);
  } else {
    std::fprintf(stderr,
                 "usage: membership rates FILTERS STRINGS TRIES | membership query ENGINE "
                 "LOG2_BITS QUERIES\n");
    return 2;
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "membership: %s\n", std::string(status.message()).c_str());
  return absl::IsDataLoss(status) ? 3 : 1;
}
