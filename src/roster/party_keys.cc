#include "src/roster/party_keys.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/roster/names.h"
#include "src/roster/roster.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::roster {
namespace {

// Peers compare nothing but the certificate's digest, so the certificate need not expire before its
// key is replaced.
constexpr long kCertificateDays = 20 * 365;
constexpr size_t kMaxCertificateBytes = 1 << 16;

constexpr char kBlsFile[] = "/bls.key";
constexpr char kTlsKeyFile[] = "/tls.key";
constexpr char kTlsCertificateFile[] = "/tls.crt";
constexpr char kAnnouncementFile[] = "/announcement.textproto";
constexpr char kMachinesFile[] = "/machines.key";

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* p) const {
    kFree(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Buffer = std::unique_ptr<BIO, Free<BIO_free_all>>;

absl::Status TlsError(absl::string_view what) {
  return absl::InternalError(absl::StrCat("OpenSSL failed at ", what));
}

BytesView Contents(BIO* buffer) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(buffer, &data);
  return {reinterpret_cast<const uint8_t*>(data), static_cast<size_t>(size)};
}

absl::StatusOr<Bytes> Der(X509* certificate) {
  const int size = i2d_X509(certificate, nullptr);
  if (size <= 0) return TlsError("encoding the certificate");
  Bytes der(static_cast<size_t>(size));
  uint8_t* out = der.data();
  i2d_X509(certificate, &out);
  return der;
}

absl::StatusOr<Certificate> ParseCertificate(BytesView der) {
  if (der.size() > kMaxCertificateBytes) {
    return absl::InvalidArgumentError("TLS certificate: too long");
  }
  const uint8_t* in = der.data();
  Certificate certificate(d2i_X509(nullptr, &in, static_cast<long>(der.size())));
  if (certificate == nullptr || in != der.data() + der.size()) {
    return absl::InvalidArgumentError("TLS certificate: is not one X.509 certificate in DER");
  }
  return certificate;
}

// Seconds since 1970; 0 if the certificate names no such time.
uint64_t ExpiryOf(X509* certificate) {
  tm time = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) != 1) return 0;
  return static_cast<uint64_t>(std::max<time_t>(0, timegm(&time)));
}

// A secret of 32 bytes in 64 hexadecimal digits.
absl::StatusOr<Seed> ReadSecret(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const SecretVector<uint8_t> hex, ReadSecretFile(path));
  Seed secret;
  size_t length = 0;
  const char* end = nullptr;
  const absl::string_view digits = absl::StripTrailingAsciiWhitespace(AsText(hex));
  if (sodium_hex2bin(secret.data(), secret.size(), digits.data(), digits.size(), nullptr, &length,
                     &end) != 0 ||
      length != secret.size() || end != digits.data() + digits.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not 64 hexadecimal digits"));
  }
  return secret;
}

absl::Status WriteSecret(const std::string& path, BytesView secret) {
  SecretArray<2 * Seed::size() + 1> hex;  // with a final zero, made a line feed
  SHOAL_CHECK(secret.size() == Seed::size());
  sodium_bin2hex(reinterpret_cast<char*>(hex.data()), hex.size(), secret.data(), secret.size());
  hex.data()[hex.size() - 1] = '\n';
  return WriteFileAtomically(path, hex.view(), FileMode::kPrivate);
}

absl::StatusOr<wire::PartyAnnouncement> ReadAnnouncement(const std::string& directory) {
  wire::PartyAnnouncement announcement;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(directory + kAnnouncementFile, announcement));
  SHOAL_RETURN_IF_ERROR(
      CheckName(absl::StrCat(directory, kAnnouncementFile, ": name"), announcement.name()));
  return announcement;
}

// The TLS identity in a party's directory, which is that of its announcement.
absl::StatusOr<TlsIdentity> ReadTls(const std::string& directory,
                                    const wire::PartyAnnouncement& announcement) {
  TlsIdentity tls;
  const std::string key_path = directory + kTlsKeyFile;
  SHOAL_ASSIGN_OR_RETURN(tls.private_key_pem, ReadSecretFile(key_path));
  const std::string certificate_path = directory + kTlsCertificateFile;
  SHOAL_ASSIGN_OR_RETURN(tls.certificate_pem, ReadFile(certificate_path, kMaxCertificateBytes));

  const Buffer key_buffer(
      BIO_new_mem_buf(tls.private_key_pem.data(), static_cast<int>(tls.private_key_pem.size())));
  const Key key(PEM_read_bio_PrivateKey(key_buffer.get(), nullptr, nullptr, nullptr));
  if (key == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(key_path, ": is not a private key in PEM"));
  }
  const Buffer certificate_buffer(
      BIO_new_mem_buf(tls.certificate_pem.data(), static_cast<int>(tls.certificate_pem.size())));
  const Certificate certificate(
      PEM_read_bio_X509(certificate_buffer.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(certificate_path, ": is not a certificate in PEM"));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(key_path, ": is not the key of ", certificate_path));
  }
  SHOAL_ASSIGN_OR_RETURN(tls.certificate_der, Der(certificate.get()));
  if (announcement.tls_certificate() != ToString(tls.certificate_der)) {
    return absl::InvalidArgumentError(absl::StrCat(certificate_path, ": is not the certificate of ",
                                                   directory, kAnnouncementFile));
  }
  return tls;
}

absl::Status WriteTls(const std::string& directory, const TlsIdentity& tls) {
  SHOAL_RETURN_IF_ERROR(
      WriteFileAtomically(directory + kTlsKeyFile, tls.private_key_pem, FileMode::kPrivate));
  return WriteFileAtomically(directory + kTlsCertificateFile, AsBytes(tls.certificate_pem),
                             FileMode::kPublic);
}

// ALREADY_EXISTS if the directory has keys.
absl::Status CheckNoKeys(const std::string& directory) {
  for (const char* file :
       {kBlsFile, kTlsKeyFile, kTlsCertificateFile, kAnnouncementFile, kMachinesFile}) {
    if (FileExists(directory + file)) {
      return absl::AlreadyExistsError(
          absl::StrCat(directory, file, ": exists; keys are never overwritten"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Digest TlsIdentity::certificate_sha256() const {
  Digest digest;
  crypto_hash_sha256(digest.data(), certificate_der.data(), certificate_der.size());
  return digest;
}

uint64_t TlsIdentity::expires_s() const {
  const absl::StatusOr<Certificate> certificate = ParseCertificate(certificate_der);
  return certificate.ok() ? ExpiryOf(certificate->get()) : 0;
}

absl::StatusOr<TlsIdentity> GenerateTlsIdentity(const std::string& common_name, uint64_t now_s,
                                                RandomSource& random) {
  const Seed seed = random.NewSeed();
  const Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  const Certificate certificate(X509_new());
  if (key == nullptr || certificate == nullptr) return TlsError("making a key");

  // Version 3, a random positive serial number, the same name as subject and issuer.
  const auto now = static_cast<time_t>(now_s);
  constexpr time_t kBackdateS = 24 * 3600;  // for peers whose libraries look at the dates
  const auto* name_bytes = reinterpret_cast<const unsigned char*>(common_name.c_str());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  if (X509_set_version(certificate.get(), 2) != 1 ||
      ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), random.U64() | 1) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), now - kBackdateS) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), now + kCertificateDays * 24 * 3600) ==
          nullptr ||
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, name_bytes, -1, -1, 0) != 1 ||
      X509_set_issuer_name(certificate.get(), name) != 1 ||
      X509_set_pubkey(certificate.get(), key.get()) != 1 ||
      X509_sign(certificate.get(), key.get(), /*md=*/nullptr) == 0) {
    return TlsError("making a certificate");
  }

  TlsIdentity identity;
  SHOAL_ASSIGN_OR_RETURN(identity.certificate_der, Der(certificate.get()));
  const Buffer public_pem(BIO_new(BIO_s_mem()));
  // Secure memory: wiped when it is freed.
  const Buffer private_pem(BIO_new(BIO_s_secmem()));
  if (public_pem == nullptr || private_pem == nullptr ||
      PEM_write_bio_X509(public_pem.get(), certificate.get()) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(private_pem.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                    nullptr) != 1) {
    return TlsError("encoding a key");
  }
  identity.certificate_pem = ToString(Contents(public_pem.get()));
  const BytesView secret = Contents(private_pem.get());
  identity.private_key_pem.assign(secret.begin(), secret.end());
  return identity;
}

absl::StatusOr<PartyKeys> PartyKeys::Generate(const std::string& name, uint64_t now_s,
                                              RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(CheckName("party", name));
  signature::SecretKey bls = signature::SecretKey::Generate(random);
  SHOAL_ASSIGN_OR_RETURN(TlsIdentity tls, GenerateTlsIdentity(name, now_s, random));
  return PartyKeys(name, std::move(bls), std::move(tls), {});
}

absl::StatusOr<PartyKeys> PartyKeys::Renew(bool only_tls, uint64_t now_s,
                                           RandomSource& random) const {
  SHOAL_ASSIGN_OR_RETURN(TlsIdentity tls, GenerateTlsIdentity(name_, now_s, random));
  if (only_tls) {
    SHOAL_ASSIGN_OR_RETURN(signature::SecretKey same,
                           signature::SecretKey::FromBytes(bls_.bytes().view()));
    return PartyKeys(name_, std::move(same), std::move(tls), renewals_);
  }
  signature::SecretKey bls = signature::SecretKey::Generate(random);
  Renewals renewals = renewals_;
  if (static_cast<size_t>(renewals.size()) == kMaxRenewals) renewals.erase(renewals.begin());
  *renewals.Add() = SignRenewal(bls_, bls.public_key());
  return PartyKeys(name_, std::move(bls), std::move(tls), std::move(renewals));
}

absl::StatusOr<PartyKeys> PartyKeys::Load(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(wire::PartyAnnouncement announcement, ReadAnnouncement(directory));
  const std::string bls_path = directory + kBlsFile;
  SHOAL_ASSIGN_OR_RETURN(const Seed scalar, ReadSecret(bls_path));
  absl::StatusOr<signature::SecretKey> bls = signature::SecretKey::FromBytes(scalar.view());
  if (!bls.ok()) return Annotate(bls.status(), bls_path);
  if (announcement.bls_public_key() != ToString(bls->public_key().bytes())) {
    return absl::InvalidArgumentError(
        absl::StrCat(bls_path, ": is not the key of ", directory, kAnnouncementFile));
  }

  if (const absl::Status renewals =
          CheckRenewals(announcement.renewals(), announcement.bls_public_key());
      !renewals.ok()) {
    return Annotate(renewals, directory + kAnnouncementFile);
  }

  SHOAL_ASSIGN_OR_RETURN(TlsIdentity tls, ReadTls(directory, announcement));
  return PartyKeys(announcement.name(), *std::move(bls), std::move(tls),
                   std::move(*announcement.mutable_renewals()));
}

absl::Status PartyKeys::Save(const std::string& directory) const {
  SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPrivate));
  SHOAL_RETURN_IF_ERROR(CheckNoKeys(directory));
  SHOAL_RETURN_IF_ERROR(WriteSecret(directory + kBlsFile, bls_.bytes().view()));
  SHOAL_RETURN_IF_ERROR(WriteTls(directory, tls_));
  return wire::WriteTextFile(directory + kAnnouncementFile, announcement());
}

wire::PartyAnnouncement PartyKeys::announcement() const {
  wire::PartyAnnouncement out;
  out.set_name(name_);
  out.set_bls_public_key(ToString(bls_.public_key().bytes()));
  out.set_proof_of_possession(ToString(bls_.ProvePossession().bytes()));
  out.set_tls_certificate(ToString(tls_.certificate_der));
  *out.mutable_renewals() = renewals_;
  return out;
}

absl::StatusOr<MachineKeys> MachineKeys::Load(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(const wire::PartyAnnouncement announcement, ReadAnnouncement(directory));
  SHOAL_ASSIGN_OR_RETURN(TlsIdentity tls, ReadTls(directory, announcement));
  SHOAL_ASSIGN_OR_RETURN(Seed secret, ReadSecret(directory + kMachinesFile));
  return MachineKeys{std::move(tls), std::move(secret)};
}

absl::Status MachineKeys::HandOut(const std::string& from, const std::string& to,
                                  RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(const wire::PartyAnnouncement announcement, ReadAnnouncement(from));
  const std::string secret = from + kMachinesFile;
  if (!FileExists(secret)) {
    SHOAL_RETURN_IF_ERROR(WriteSecret(secret, random.NewSeed().view()));
  }
  SHOAL_ASSIGN_OR_RETURN(const MachineKeys keys, Load(from));
  SHOAL_RETURN_IF_ERROR(MakeDirectory(to, FileMode::kPrivate));
  SHOAL_RETURN_IF_ERROR(CheckNoKeys(to));
  SHOAL_RETURN_IF_ERROR(WriteTls(to, keys.tls));
  SHOAL_RETURN_IF_ERROR(WriteSecret(to + kMachinesFile, keys.secret.view()));
  return wire::WriteTextFile(to + kAnnouncementFile, announcement);
}

absl::StatusOr<wire::Party> PartyFromAnnouncement(const wire::PartyAnnouncement& announcement,
                                                  uint64_t now_s) {
  SHOAL_RETURN_IF_ERROR(CheckName("announcement, name", announcement.name()));
  const std::string what = absl::StrCat("announcement of ", announcement.name());
  if (const auto key = signature::ProvenKey::FromBytes(AsBytes(announcement.bls_public_key()),
                                                       AsBytes(announcement.proof_of_possession()));
      !key.ok()) {
    return Annotate(key.status(), what);
  }
  if (const absl::Status renewals =
          CheckRenewals(announcement.renewals(), announcement.bls_public_key());
      !renewals.ok()) {
    return Annotate(renewals, what);
  }
  const BytesView der = AsBytes(announcement.tls_certificate());
  const absl::StatusOr<Certificate> certificate = ParseCertificate(der);
  if (!certificate.ok()) return Annotate(certificate.status(), what);
  if (ExpiryOf(certificate->get()) <= now_s) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": its TLS certificate has expired; shoal keys renew makes another"));
  }
  Digest digest;
  crypto_hash_sha256(digest.data(), der.data(), der.size());
  wire::Party party;
  party.set_name(announcement.name());
  party.set_bls_public_key(announcement.bls_public_key());
  party.set_proof_of_possession(announcement.proof_of_possession());
  party.set_tls_certificate_sha256(ToString(digest));
  party.set_machines(1);
  return party;
}

}  // namespace shoal::roster
