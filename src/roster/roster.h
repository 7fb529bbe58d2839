// The parties of a deployment, as everybody must see them. A Roster that exists has been checked:
// structure and limits, proofs of possession, the pinned keys, all parties' signature, the time.
#ifndef SHOAL_SRC_ROSTER_ROSTER_H_
#define SHOAL_SRC_ROSTER_ROSTER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/noise/noise.h"
#include "src/signature/bls.h"
#include "src/wire/roster.pb.h"

namespace shoal::roster {

// The onions that this version makes and opens: HPKE (RFC 9180) in base mode, DHKEM(X25519,
// HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.
inline constexpr absl::string_view kOnionSuite = "hpke-x25519-sha256-chacha20poly1305";

inline constexpr uint32_t kMinParties = 2;
inline constexpr uint32_t kMaxParties = 8;
inline constexpr uint32_t kMaxMachines = 64;     // of one party
inline constexpr uint32_t kMaxSlots = 1u << 30;  // in one round
// Of a term. Who seizes a party in it opens it back to its beginning.
inline constexpr uint32_t kMaxTermDays = 92;
inline constexpr uint32_t kMaxRefreshes = 10'000;
inline constexpr uint32_t kMaxInBucket = noise::kMaxCopies;  // queries of a client
inline constexpr uint32_t kMaxClockToleranceS = 3600;
inline constexpr uint64_t kMaxValidityS = 10ull * 366 * 24 * 3600;
inline constexpr uint64_t kMaxTimeS = 1ull << 40;  // seconds since 1970: keeps sums from overflow
inline constexpr size_t kMaxNameBytes = 64;        // [A-Za-z0-9][A-Za-z0-9._-]*
inline constexpr size_t kMaxAddressBytes = 260;
// Renewals that a party announces; earlier ones are dropped.
inline constexpr size_t kMaxRenewals = 16;

// INVALID_ARGUMENT for an unknown mechanism or a number that is not finite.
absl::StatusOr<noise::Parameters> NoiseFromWire(const wire::NoiseParameters& parameters);
// For tests.
wire::NoiseParameters NoiseToWire(const noise::Parameters& parameters);

class Roster;

// The keys to which a client has come from those that it pins. What it has left for another key by
// a renewal it never trusts again: the old key may have been given away since.
struct FollowedKeys {
  Digest pins = {};                        // PinnedParties::digest() of the configuration
  std::vector<signature::PublicKey> keys;  // every party's, in the chain's order
};

// The parties that a client or a party trusts, from its own configuration.
class PinnedParties {
 public:
  // INVALID_ARGUMENT: a bad name, key, or number of keys.
  static absl::StatusOr<PinnedParties> Create(const wire::PinnedParties& pinned);

  // Reads a text-format file.
  static absl::StatusOr<PinnedParties> Read(const std::string& path);

  // What a client trusts that has followed renewals before: these parties with the followed keys,
  // if the keys were followed from these pins, or else these parties.
  PinnedParties After(const std::optional<FollowedKeys>& followed) const;
  // What the client then keeps. If the roster has the pinned keys, and nothing was followed from
  // these pins before, it is what was kept before: other pins may have led to that.
  std::optional<FollowedKeys> Follow(const Roster& roster,
                                     const std::optional<FollowedKeys>& before) const;

  const std::string& deployment() const { return deployment_; }
  std::span<const signature::PublicKey> keys() const { return keys_; }
  // Transcript("shoal pins v1") over deployment and keys. The minimum epochs are not in it.
  Digest digest() const;
  uint64_t minimum_roster_epoch() const { return minimum_roster_epoch_; }
  uint64_t minimum_table_epoch() const { return minimum_table_epoch_; }

 private:
  PinnedParties() = default;
  std::string deployment_;
  std::vector<signature::PublicKey> keys_;
  uint64_t minimum_roster_epoch_ = 0;
  uint64_t minimum_table_epoch_ = 0;
};

// Whether the parties of a roster are the pinned ones: deployment, number, the minimum epoch, and
// of every party the pinned key or one to which renewals lead from it. The roster's own signature
// is not looked at. Returns the numbers of the parties that have another key than the pinned one.
// Verifies 128 renewals at most, and leads over 16 at most for each party.
// UNAUTHENTICATED says what differs; INVALID_ARGUMENT for a malformed renewal or too many.
absl::StatusOr<std::vector<uint32_t>> CheckPins(const wire::SignedRoster& signed_roster,
                                                const PinnedParties& pinned);

// Pins for the keys in the roster itself: for the tools that assemble a roster, and for tests.
absl::StatusOr<wire::PinnedParties> PinsOf(const wire::Roster& roster);

struct Party {
  uint32_t number;  // 1 is the frontend
  std::string name;
  std::string peer_address;
  std::string client_address;
  signature::PublicKey key;
  Digest tls_certificate_sha256;  // all its machines show it
  uint32_t machines;
  // Machine i at i - 1; the two addresses above are those of machine 0, the head.
  struct Addresses {
    std::string peer, client;
  };
  std::vector<Addresses> other_machines = {};

  // Where the previous party finds a machine, and where clients do. machine < machines, checked.
  const std::string& PeerAddress(uint32_t machine) const;
  const std::string& ClientAddress(uint32_t machine) const;
};

// Immutable, thread-safe for reading, cheap enough to copy (a few kilobytes).
class Roster {
 public:
  // INVALID_ARGUMENT: malformed or outside the limits; the message names the field.
  // UNAUTHENTICATED: CheckPins, a proof of possession or the signature does not match, the roster
  // is not yet valid or has expired, or its epoch is before the pinned minimum.
  // FAILED_PRECONDITION: the noise does not give the privacy it claims.
  static absl::StatusOr<Roster> Verify(const wire::SignedRoster& signed_roster,
                                       const PinnedParties& pinned, uint64_t now_s);

  const wire::SignedRoster& wire() const { return wire_; }
  const Digest& digest() const { return digest_; }
  const std::string& deployment() const { return wire_.roster().deployment(); }
  uint64_t epoch() const { return wire_.roster().epoch(); }
  uint64_t expires_s() const { return wire_.roster().expires_s(); }
  uint32_t clock_tolerance_s() const { return wire_.roster().clock_tolerance_s(); }
  uint32_t max_slots() const { return wire_.roster().max_slots(); }
  // Both 0 if rounds have no terms.
  uint64_t term_limit_s() const { return uint64_t{wire_.roster().term_limit().days()} * 24 * 3600; }
  uint32_t max_refreshes() const { return wire_.roster().term_limit().refreshes(); }
  // 0 if rounds are for rows.
  uint32_t most_in_bucket() const { return wire_.roster().most_in_bucket(); }
  uint64_t minimum_table_epoch() const { return minimum_table_epoch_; }
  // The parties that have another key than the pinned one (CheckPins).
  const std::vector<uint32_t>& renewed() const { return renewed_; }
  const noise::Parameters& noise() const { return noise_; }

  uint32_t size() const { return static_cast<uint32_t>(parties_.size()); }
  std::span<const Party> parties() const { return parties_; }
  // number in 1..size(), checked.
  const Party& party(uint32_t number) const;
  // The number of the party with this key; nothing if no party has it.
  std::optional<uint32_t> NumberOf(const signature::PublicKey& key) const;

  // Signatures by all parties, aggregated, verify under this key.
  const signature::PublicKey& aggregate_key() const { return *aggregate_key_; }

  // UNAUTHENTICATED unless [from_s, until_s) holds now, give or take clock_tolerance_s. `what`
  // begins the message: "roster", "table", "round".
  absl::Status CheckTime(absl::string_view what, uint64_t from_s, uint64_t until_s,
                         uint64_t now_s) const;
  // The roster's own window.
  absl::Status CheckTime(uint64_t now_s) const;

  // All parties' signature on a digest: of the roster, a manifest, a round. UNAUTHENTICATED if it
  // does not match or is no signature at all.
  absl::Status VerifyByAll(const Digest& digest, BytesView signature) const;
  // The same for one party's share of such a signature. The message names the party.
  absl::Status VerifyByParty(uint32_t number, const Digest& digest, BytesView signature) const;
  // Verifies shares[i] as the share of party i+1, and adds them up. Errors of VerifyByParty;
  // INVALID_ARGUMENT for a wrong number of shares.
  absl::StatusOr<signature::Signature> Aggregate(const Digest& digest,
                                                 std::span<const Bytes> shares) const;

 private:
  Roster() = default;
  wire::SignedRoster wire_;
  Digest digest_;
  noise::Parameters noise_;
  std::vector<Party> parties_;
  std::optional<signature::PublicKey> aggregate_key_;
  uint64_t minimum_table_epoch_ = 0;
  std::vector<uint32_t> renewed_;
};

// The digest that all parties sign: Transcript("shoal roster v2") over deployment, epoch, number of
// parties; for each: number, name, peer address, client address, key, proof, certificate digest,
// machines, and for each machine but the first: peer address, client address; then mechanism, bits
// of epsilon and delta, phi, mode, bits of both scales; valid_from_s, expires_s, clock_tolerance_s,
// max_slots, onion_suite; if there is a term_limit or most_in_bucket is not 0, the term_limit's
// days and refreshes; if most_in_bucket is not 0, it. Text and bytes as Blob, all else as U64
// (doubles by their IEEE-754 bits). The roster need not have been checked.
Digest RosterDigest(const wire::Roster& roster);

// UNIMPLEMENTED if the roster or the table (its manifest's query_buckets; nothing where there is
// only a roster) is of two tiers: for programs that know rounds for rows alone. What knows half of
// two tiers would ask without their protection. `who` refuses, such as "this door".
absl::Status CheckOneTier(absl::string_view who, const Roster& roster,
                          std::optional<uint32_t> query_buckets);

// What a party checks before it signs: everything that Verify checks but pins, signature and time.
// Codes as Verify.
absl::Status CheckRoster(const wire::Roster& roster);

// Where every party's share stands, party 1's first. `parties_of_shares` has the number of the
// party that each share says it is of. INVALID_ARGUMENT names what is missing, comes twice, or is
// of no party.
absl::StatusOr<std::vector<size_t>> PlacesOfShares(std::span<const Party> parties,
                                                   std::span<const uint32_t> parties_of_shares);

// CheckRoster, then this key's signature on the digest; NOT_FOUND if the key is no party's.
absl::StatusOr<wire::RosterShare> SignRoster(const wire::Roster& roster,
                                             const signature::SecretKey& key);

// `old_key` names `new_key` as the one that takes its place.
wire::KeyRenewal SignRenewal(const signature::SecretKey& old_key,
                             const signature::PublicKey& new_key);

// Whether each renewal leads to another key and begins with the key with which the one before it
// ends, and is signed by it, and the last one ends with `key`; none at all are fine.
// INVALID_ARGUMENT, UNAUTHENTICATED.
absl::Status CheckRenewals(const google::protobuf::RepeatedPtrField<wire::KeyRenewal>& renewals,
                           absl::string_view key);

// Verifies one share of every party, in any order, and adds them up. INVALID_ARGUMENT for missing
// or repeated ones, UNAUTHENTICATED names the party whose share does not match.
absl::StatusOr<wire::SignedRoster> AggregateRoster(const wire::Roster& roster,
                                                   std::span<const wire::RosterShare> shares);

// The newest epoch seen of something that must never go back or fork, and the digest of its
// content. The owner stores it.
struct SeenEpoch {
  uint64_t epoch = 0;
  Digest digest = {};
};

// Accepts an epoch of a roster or a table and stores it in `seen`. UNAUTHENTICATED if it is before
// `seen`, or is the same epoch with another digest. `what` begins the message.
absl::Status AcceptEpoch(absl::string_view what, uint64_t epoch, const Digest& digest,
                         std::optional<SeenEpoch>& seen);

}  // namespace shoal::roster

#endif  // SHOAL_SRC_ROSTER_ROSTER_H_
