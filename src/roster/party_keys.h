// One party's long-lived secrets: its BLS key and its TLS identity, in a directory that only the
// party may enter. Onion keys, which live for one round, are not here.
//
//   bls.key                  64 hexadecimal digits, the secret scalar, big endian   0600
//   tls.key                  PEM, PKCS #8, Ed25519                                  0600
//   tls.crt                  PEM, self-signed, valid for 20 years; peers pin its digest
//   announcement.textproto   wire::PartyAnnouncement, for others; public. Names earlier BLS keys
//   machines.key             64 hexadecimal digits: the secret of a party's several machines 0600
//
// A machine of a party that is not its head has the same files but for bls.key (MachineKeys).
#ifndef SHOAL_SRC_ROSTER_PARTY_KEYS_H_
#define SHOAL_SRC_ROSTER_PARTY_KEYS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/signature/bls.h"
#include "src/wire/roster.pb.h"

namespace shoal::roster {

struct TlsIdentity {
  std::string certificate_pem;
  Bytes certificate_der;
  SecretVector<uint8_t> private_key_pem;

  // The digest that the roster pins.
  Digest certificate_sha256() const;
  // Seconds since 1970; 0 if the certificate names no such time.
  uint64_t expires_s() const;
};

// A fresh Ed25519 key and a self-signed certificate for `common_name`. Nobody checks the name or
// the dates: peers compare the digest.
absl::StatusOr<TlsIdentity> GenerateTlsIdentity(const std::string& common_name, uint64_t now_s,
                                                RandomSource& random);

class PartyKeys {
 public:
  // INVALID_ARGUMENT for a name outside [A-Za-z0-9][A-Za-z0-9._-]{0,63}.
  static absl::StatusOr<PartyKeys> Generate(const std::string& name, uint64_t now_s,
                                            RandomSource& random);

  // Keys that take the place of these: a fresh TLS key and certificate, and a fresh BLS key that
  // this one has signed (wire::KeyRenewal). With `only_tls` the BLS key stays.
  absl::StatusOr<PartyKeys> Renew(bool only_tls, uint64_t now_s, RandomSource& random) const;

  // PERMISSION_DENIED if others may read a secret; NOT_FOUND if a file is missing, INVALID_ARGUMENT
  // if it is malformed. The message names the file.
  static absl::StatusOr<PartyKeys> Load(const std::string& directory);

  // ALREADY_EXISTS if the directory holds keys: they are never overwritten.
  absl::Status Save(const std::string& directory) const;

  const std::string& name() const { return name_; }
  const signature::SecretKey& bls() const { return bls_; }
  const TlsIdentity& tls() const { return tls_; }
  wire::PartyAnnouncement announcement() const;

 private:
  // As wire::PartyAnnouncement.
  using Renewals = google::protobuf::RepeatedPtrField<wire::KeyRenewal>;
  PartyKeys(std::string name, signature::SecretKey bls, TlsIdentity tls, Renewals renewals)
      : name_(std::move(name)),
        bls_(std::move(bls)),
        tls_(std::move(tls)),
        renewals_(std::move(renewals)) {}
  std::string name_;
  signature::SecretKey bls_;
  TlsIdentity tls_;
  Renewals renewals_;
};

// What each machine of a party of several has (docs/machines.md): the party's TLS identity and a
// secret that keys what passes between its machines. The head's directory has the BLS key beside.
struct MachineKeys {
  TlsIdentity tls;
  Seed secret;

  // PERMISSION_DENIED if others may read a secret; NOT_FOUND if a file is missing, INVALID_ARGUMENT
  // if it is malformed. The message names the file.
  static absl::StatusOr<MachineKeys> Load(const std::string& directory);

  // Copies what another machine needs from the party's directory `from` to the new directory `to`.
  // Makes the secret in `from` first if there is none. ALREADY_EXISTS if `to` holds keys; errors of
  // Load.
  static absl::Status HandOut(const std::string& from, const std::string& to, RandomSource& random);
};

// The party's entry in a roster, from what it announced. INVALID_ARGUMENT, UNAUTHENTICATED: the
// key, its proof, a renewal or the certificate is bad. FAILED_PRECONDITION: the certificate has
// expired. Shoal's parties would take it, but tools that look at dates would not.
absl::StatusOr<wire::Party> PartyFromAnnouncement(const wire::PartyAnnouncement& announcement,
                                                  uint64_t now_s);

}  // namespace shoal::roster

#endif  // SHOAL_SRC_ROSTER_PARTY_KEYS_H_
