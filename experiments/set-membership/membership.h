// Private approximate set membership (SimplePIR, USENIX Security 2023, sections 6 and 7.2): a
// client learns whether its string is in the server's public set, and the server does not learn the
// string.
//
//   auditor  makes `filters` filters, each with `bits_per_string` bits for every string of the set
//            and a hash function of its own; in each, the bit of every string of the set is 1
//   client   draws one of the filters, once, and tells the auditor which; then fetches the one bit
//            of each of its strings from that filter, by an engine (engine.h)
//
// A string of the set is always found. A string outside the set is taken for a member with
// probability at most 1/2 over the client's draw, even if it was chosen by somebody who knows set
// and hash functions (proposition 6.2). Somebody who also knows the draw can choose strings that
// are taken.
#ifndef SHOAL_EXPERIMENTS_SET_MEMBERSHIP_MEMBERSHIP_H_
#define SHOAL_EXPERIMENTS_SET_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/pir/engine.h"
#include "src/pir/pages.h"

namespace shoal::pir {

struct MembershipParameters {
  // The salt of all hash functions. It must be drawn after the set is fixed: a set that was chosen
  // for the hash functions may have more false positives.
  Digest salt = {};
  uint64_t strings = 0;          // N: the set has at most so many
  uint32_t filters = 768;        // a
  uint32_t bits_per_string = 8;  // k

  // k N, rounded up to bytes.
  uint64_t filter_bits() const { return (strings * bits_per_string + 7) / 8 * 8; }
  // Rows of the engine's table: bytes of a filter. A row has one byte; the client reads the one
  // bit.
  uint64_t rows() const { return filter_bits() / 8; }
};

// INVALID_ARGUMENT names what is out of range: parameters come from the server.
absl::Status CheckMembership(const MembershipParameters& parameters);

// log2 of a bound on the probability, over the salt, that any of 2^universe_bits strings outside
// the set is in more than half of the filters: universe_bits - a D(1/2 || 1/k), by Chernoff. Below
// -128 for the default parameters and digests of 256 bits.
double MembershipFailureLog2(const MembershipParameters& parameters, double universe_bits);

// The number of a string's bit in a filter.
uint64_t MembershipBit(const MembershipParameters& parameters, uint32_t filter, BytesView string);

// One filter, at the auditor. Thread-compatible.
class MembershipFilter {
 public:
  // A filter without strings. INVALID_ARGUMENT as CheckMembership; RESOURCE_EXHAUSTED if it does
  // not fit the memory.
  static absl::StatusOr<MembershipFilter> Create(const MembershipParameters& parameters,
                                                 uint32_t filter);

  void Add(BytesView string);
  bool Has(BytesView string) const;
  // The filter as an engine's content, valid while the filter lives. The table's id is a digest of
  // salt and filter, so that every filter has a public matrix of its own.
  Content content(uint64_t epoch) const;
  // The bits themselves, rows() bytes.
  MutableBytes bits() { return bits_; }

 private:
  MembershipFilter() = default;
  MembershipParameters parameters_;
  uint32_t filter_ = 0;
  PageBuffer bits_;
};

// A client's side. Immutable.
class MembershipClient {
 public:
  // Draws the filter. INVALID_ARGUMENT as CheckMembership.
  static absl::StatusOr<MembershipClient> Create(const MembershipParameters& parameters,
                                                 RandomSource& random);

  // The drawn filter, for the auditor alone: anybody else who knows it can choose strings that this
  // client takes for members.
  uint32_t filter() const { return filter_; }
  // The row to ask an engine's client for.
  uint64_t RowOf(BytesView string) const;
  // Whether the string's bit is set in its row. The record comes from Recover: one byte (checked).
  bool Holds(BytesView string, BytesView record) const;

 private:
  MembershipClient(const MembershipParameters& parameters, uint32_t filter)
      : parameters_(parameters), filter_(filter) {}
  MembershipParameters parameters_;
  uint32_t filter_;
};

}  // namespace shoal::pir

#endif  // SHOAL_EXPERIMENTS_SET_MEMBERSHIP_MEMBERSHIP_H_
