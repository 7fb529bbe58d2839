#include "experiments/set-membership/membership.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"

namespace shoal::pir {
namespace {

constexpr uint64_t kMaxStrings = uint64_t{1} << 33;
constexpr uint32_t kMaxFilters = 1 << 16;
constexpr uint32_t kMaxBitsPerString = 64;

bool BitOf(uint8_t byte, uint64_t bit) { return (byte >> (bit % 8) & 1) != 0; }

}  // namespace

absl::Status CheckMembership(const MembershipParameters& parameters) {
  const auto bad = [](absl::string_view what, uint64_t most, uint64_t got) {
    return absl::InvalidArgumentError(
        absl::StrFormat("membership: %s must be in [1, %d], got %d", what, most, got));
  };
  if (parameters.strings == 0 || parameters.strings > kMaxStrings) {
    return bad("strings", kMaxStrings, parameters.strings);
  }
  if (parameters.filters == 0 || parameters.filters > kMaxFilters) {
    return bad("filters", kMaxFilters, parameters.filters);
  }
  if (parameters.bits_per_string == 0 || parameters.bits_per_string > kMaxBitsPerString) {
    return bad("bits_per_string", kMaxBitsPerString, parameters.bits_per_string);
  }
  return absl::OkStatus();
}

double MembershipFailureLog2(const MembershipParameters& parameters, double universe_bits) {
  // A filter has at most N of its k N bits set: a string that is not in the set meets one with
  // probability at most f = 1 / k. The divergence D(1/2 || f) = -1 - log2(f (1 - f)) / 2.
  const double f = 1.0 / parameters.bits_per_string;
  if (f >= 0.5) return 0;
  return universe_bits - parameters.filters * (-1 - std::log2(f * (1 - f)) / 2);
}

uint64_t MembershipBit(const MembershipParameters& parameters, uint32_t filter, BytesView string) {
  const Digest digest =
      Transcript("shoal membership bit v1").Blob(parameters.salt).U64(filter).Blob(string).Finish();
  // Takes 64 random bits as a fraction: with up to 2^39 bits, their probabilities differ by at most
  // a factor of 1 + 2^-25.
  const auto wide = static_cast<unsigned __int128>(LoadLe<uint64_t>(digest.data()));
  return static_cast<uint64_t>(wide * parameters.filter_bits() >> 64);
}

absl::StatusOr<MembershipFilter> MembershipFilter::Create(const MembershipParameters& parameters,
                                                          uint32_t filter) {
  SHOAL_RETURN_IF_ERROR(CheckMembership(parameters));
  if (filter >= parameters.filters) {
    return absl::InvalidArgumentError(
        absl::StrFormat("membership: filter %d of %d", filter, parameters.filters));
  }
  MembershipFilter made;
  made.parameters_ = parameters;
  made.filter_ = filter;
  SHOAL_ASSIGN_OR_RETURN(made.bits_, AllocatePages(parameters.rows(), "membership: a filter"));
  return made;
}

void MembershipFilter::Add(BytesView string) {
  const uint64_t bit = MembershipBit(parameters_, filter_, string);
  bits_.data()[bit / 8] |= static_cast<uint8_t>(1u << (bit % 8));
}

bool MembershipFilter::Has(BytesView string) const {
  const uint64_t bit = MembershipBit(parameters_, filter_, string);
  return BitOf(bits_.data()[bit / 8], bit);
}

Content MembershipFilter::content(uint64_t epoch) const {
  Content content;
  content.table_id =
      Transcript("shoal membership filter v1").Blob(parameters_.salt).U64(filter_).Finish();
  content.epoch = epoch;
  content.rows = parameters_.rows();
  content.record_bytes = 1;
  content.copy = [bits = bits_.data()](uint64_t row, MutableBytes out) { out[0] = bits[row]; };
  return content;
}

absl::StatusOr<MembershipClient> MembershipClient::Create(const MembershipParameters& parameters,
                                                          RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(CheckMembership(parameters));
  return MembershipClient(parameters, static_cast<uint32_t>(random.Below(parameters.filters)));
}

uint64_t MembershipClient::RowOf(BytesView string) const {
  return MembershipBit(parameters_, filter_, string) / 8;
}

bool MembershipClient::Holds(BytesView string, BytesView record) const {
  SHOAL_CHECK(record.size() == 1);
  return BitOf(record[0], MembershipBit(parameters_, filter_, string));
}

}  // namespace shoal::pir
