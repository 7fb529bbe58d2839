#include "src/door/config.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/net/share_config.h"
#include "src/net/tls.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::door {
namespace {

constexpr uint32_t kLeastOnionsKib = 4096;

uint32_t Or(uint32_t value, uint32_t otherwise) { return value == 0 ? otherwise : value; }

absl::StatusOr<AddressRanges> ReadRanges(
    const google::protobuf::RepeatedPtrField<std::string>& texts) {
  return AddressRanges::Of({texts.begin(), texts.end()});
}
// Of a configuration that ReadDoorConfig returned.
AddressRanges RangesOf(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  auto ranges = ReadRanges(texts);
  SHOAL_CHECK(ranges.ok());
  return *std::move(ranges);
}

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// A path that may be relative to the configuration's directory.
std::string At(const std::filesystem::path& base, const std::string& path) {
  return (base / path).lexically_normal().string();
}

absl::Status CheckAddresses(const DoorConfig& config) {
  if (config.listen_address().empty()) return Bad("listen_address is missing");
  const auto listen = net::ParseHostPort(config.listen_address());
  if (!listen.ok()) return Bad(absl::StrCat("listen_address: ", listen.status().message()));
  if (config.certificate_file().empty() && config.private_key_file().empty() &&
      listen->host != "127.0.0.1" && listen->host != "::1") {
    return Bad(
        "certificate_file and private_key_file are missing: without them listen_address must be "
        "127.0.0.1 or [::1], as everybody on the way could read and change what passes");
  }
  if (!config.frontend_address().empty()) {
    const auto frontend = net::ParseHostPort(config.frontend_address());
    if (!frontend.ok()) return Bad(absl::StrCat("frontend_address: ", frontend.status().message()));
  }
  return absl::OkStatus();
}

absl::Status FillFiles(const std::filesystem::path& base, DoorConfig& config) {
  const std::pair<const char*, std::string*> files[] = {
      {"certificate_file", config.mutable_certificate_file()},
      {"private_key_file", config.mutable_private_key_file()},
      {"roster_file", config.mutable_roster_file()},
      {"pinned_parties_file", config.mutable_pinned_parties_file()}};
  const bool plain = config.certificate_file().empty() && config.private_key_file().empty();
  for (const auto& [field, file] : files) {
    if (plain && (file == files[0].second || file == files[1].second)) continue;
    if (file->empty()) return Bad(absl::StrCat(field, " is missing"));
    *file = At(base, *file);
  }
  return absl::OkStatus();
}

absl::Status CheckClients(const DoorConfig& config) {
  const std::vector<std::string> origins(config.allowed_origins().begin(),
                                         config.allowed_origins().end());
  if (const auto rules = OriginRules::Create(origins); !rules.ok()) {
    return Bad(absl::StrCat("allowed_origins: ", rules.status().message()));
  }
  for (const auto& [field, ranges] :
       {std::pair("shared_addresses", &config.shared_addresses()),
        std::pair("proxies: addresses", &config.proxies().addresses())}) {
    if (const absl::Status read = ReadRanges(*ranges).status(); !read.ok()) {
      return Bad(absl::StrCat(field, ": ", read.message()));
    }
  }
  if (config.has_proxies() && config.proxies().addresses().empty()) {
    return Bad("proxies: addresses is missing");
  }
  return absl::OkStatus();
}

absl::Status FillLimits(DoorConfig& config) {
  config.set_max_connections(Or(config.max_connections(), 4096));
  config.set_max_frontend_connections(Or(config.max_frontend_connections(), 1024));
  config.set_buffers_mib(Or(config.buffers_mib(), 256));
  for (const auto& [field, shares, percent] :
       {std::tuple("shares", config.mutable_shares(), 10u),
        std::tuple("group_shares", config.mutable_group_shares(), 50u)}) {
    net::FillShares(percent, *shares);
    SHOAL_RETURN_IF_ERROR(net::CheckShares(field, *shares));
  }
  Rates& rates = *config.mutable_rates();
  rates.set_connection_requests(Or(rates.connection_requests(), 600));
  rates.set_address_requests(Or(rates.address_requests(), 3000));
  rates.set_address_onions_kib(Or(rates.address_onions_kib(), kLeastOnionsKib));
  rates.set_address_connections(Or(rates.address_connections(), 3000));
  if (rates.address_onions_kib() < kLeastOnionsKib) {
    return Bad("rates: address_onions_kib: at least 4096, as a request may have so many");
  }
  return absl::OkStatus();
}

absl::Status FillTokens(const std::filesystem::path& base, Tokens& tokens) {
  if (tokens.issuers().empty()) return Bad("tokens: issuers is missing");
  if (tokens.origin().empty()) return Bad("tokens: origin is missing");
  if (tokens.state_directory().empty()) return Bad("tokens: state_directory is missing");
  tokens.set_state_directory(At(base, tokens.state_directory()));
  for (TokenIssuer& issuer : *tokens.mutable_issuers()) {
    if (issuer.public_key_file().empty()) {
      return Bad("tokens: issuers: public_key_file is missing");
    }
    issuer.set_public_key_file(At(base, issuer.public_key_file()));
  }
  tokens.set_onions_kib(Or(tokens.onions_kib(), 64));
  if (tokens.onions_kib() > 4096) return Bad("tokens: onions_kib: at most 4096");
  if (tokens.max_spent() == 0) tokens.set_max_spent(1 << 22);
  return absl::OkStatus();
}

// Checks what is there, and fills in what was left out.
absl::Status Fill(const std::string& path, DoorConfig& config) {
  SHOAL_RETURN_IF_ERROR(CheckAddresses(config));
  std::error_code error;
  const std::filesystem::path base = std::filesystem::absolute(path, error).parent_path();
  if (error) return Bad(error.message());
  SHOAL_RETURN_IF_ERROR(FillFiles(base, config));
  SHOAL_RETURN_IF_ERROR(CheckClients(config));
  SHOAL_RETURN_IF_ERROR(FillLimits(config));
  if (!config.ohttp_socket().empty()) {
    config.set_ohttp_socket(At(base, config.ohttp_socket()));
    // What the system takes.
    if (config.ohttp_socket().size() > 107) return Bad("ohttp_socket: more than 107 characters");
  }
  if (config.has_tokens()) {
    SHOAL_RETURN_IF_ERROR(FillTokens(base, *config.mutable_tokens()));
  }
  if (config.has_monitoring()) {
    MonitoringConfig& monitoring = *config.mutable_monitoring();
    if (monitoring.port() == 0 || monitoring.port() > 65535) return Bad("monitoring: port");
    if (monitoring.host().empty()) monitoring.set_host("127.0.0.1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DoorConfig> ReadDoorConfig(const std::string& path) {
  DoorConfig config;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, config));
  if (const absl::Status filled = Fill(path, config); !filled.ok()) return Annotate(filled, path);
  return config;
}

Door::Options OptionsFrom(const DoorConfig& config, const roster::Roster& roster) {
  const roster::Party& frontend = roster.party(1);
  const std::vector<std::string> allowed(config.allowed_origins().begin(),
                                         config.allowed_origins().end());
  auto origins = OriginRules::Create(allowed);
  SHOAL_CHECK(origins.ok());
  const size_t connections = config.max_connections();
  const size_t newcomers = std::max<size_t>(1, connections / 4);
  return {
      .address = config.listen_address(),
      .identity = {},
      .frontend = {.address = config.frontend_address().empty() ? frontend.client_address
                                                                : config.frontend_address(),
                   .pin = frontend.tls_certificate_sha256,
                   .max_links = config.max_frontend_connections()},
      .origins = *std::move(origins),
      .proxies = RangesOf(config.proxies().addresses()),
      .max_connections = std::max<size_t>(1, connections - newcomers),
      .max_newcomers = newcomers,
      .max_buffered_bytes = uint64_t{config.buffers_mib()} << 20,
      .shares = net::SharesOf(config.shares()),
      .shared_addresses = RangesOf(config.shared_addresses()),
      .group_shares = net::SharesOf(config.group_shares()),
      .connection_requests = static_cast<double>(config.rates().connection_requests()),
      .address_requests = static_cast<double>(config.rates().address_requests()),
      .address_onion_bytes = 1024.0 * config.rates().address_onions_kib(),
      .address_connections = static_cast<double>(config.rates().address_connections()),
      .token_onion_bytes = uint64_t{1024} * config.tokens().onions_kib(),
      .ohttp_socket = config.ohttp_socket(),
  };
}

absl::StatusOr<roster::Roster> ReadRoster(const DoorConfig& config, uint64_t now_s) {
  SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pinned,
                         roster::PinnedParties::Read(config.pinned_parties_file()));
  wire::SignedRoster signed_roster;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(config.roster_file(), signed_roster));
  auto roster = roster::Roster::Verify(signed_roster, pinned, now_s);
  if (!roster.ok()) return Annotate(roster.status(), config.roster_file());
  SHOAL_RETURN_IF_ERROR(
      Annotate(roster::CheckOneTier("this door", *roster, std::nullopt), config.roster_file()));
  return roster;
}

absl::Status CheckSuccessor(const roster::Roster& roster, const roster::Roster& next) {
  if (next.deployment() != roster.deployment()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the roster is of deployment '", next.deployment(), "' and no more of '",
                     roster.deployment(), "': restart the door if that is meant"));
  }
  if (next.epoch() < roster.epoch()) {
    return absl::FailedPreconditionError(absl::StrCat("the roster is of epoch ", next.epoch(),
                                                      ", and that of epoch ", roster.epoch(),
                                                      " is in force: an older one was put back"));
  }
  if (next.epoch() == roster.epoch() && next.digest() != roster.digest()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "another roster of epoch ", next.epoch(), " than the one in force: one of them is wrong"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenRules> ReadTokenRules(const DoorConfig& config) {
  std::vector<Issuer> issuers;
  for (const TokenIssuer& issuer : config.tokens().issuers()) {
    SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(issuer.public_key_file(), 1 << 16));
    Bytes der = ToBytes(AsBytes(text));
    if (absl::StartsWith(text, "-----BEGIN")) {
      const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
          BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
      // The bytes themselves: the key's identity is their digest.
      char *name = nullptr, *header = nullptr;
      unsigned char* bytes = nullptr;
      long size = 0;
      if (bio == nullptr || PEM_read_bio(bio.get(), &name, &header, &bytes, &size) != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat(issuer.public_key_file(), ": not a public key"));
      }
      der.assign(bytes, bytes + size);
      OPENSSL_free(name);
      OPENSSL_free(header);
      OPENSSL_free(bytes);
    }
    issuers.push_back({.name = issuer.name(), .public_key_der = std::move(der)});
  }
  auto rules = TokenRules::Create(issuers, config.tokens().origin());
  if (!rules.ok()) return Annotate(rules.status(), "tokens");
  return rules;
}

absl::StatusOr<Certificate> Certificate::Read(const DoorConfig& config, uint64_t now_s) {
  Certificate certificate;
  if (config.certificate_file().empty()) return certificate;
  SHOAL_ASSIGN_OR_RETURN(certificate.chain_pem, ReadFile(config.certificate_file(), 1 << 20));
  SHOAL_ASSIGN_OR_RETURN(certificate.key_pem, ReadSecretFile(config.private_key_file(), 1 << 20));
  const net::Identity identity = certificate.identity();
  const auto context = net::MakeContext(/*server=*/true, &identity);
  if (!context.ok()) return Annotate(context.status(), config.certificate_file());
  if (certificate.expires_s() <= now_s) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.certificate_file(), ": the certificate has expired"));
  }
  return certificate;
}

net::Identity Certificate::identity() const {
  return {.certificate_pem = chain_pem, .private_key_pem = key_pem};
}

uint64_t Certificate::expires_s() const {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(chain_pem.data(), static_cast<int>(chain_pem.size())), &BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> leaf(
      bio == nullptr ? nullptr : PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr),
      &X509_free);
  std::tm expires = {};
  if (leaf == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(leaf.get()), &expires) != 1) return 0;
  const time_t seconds = timegm(&expires);
  return seconds < 0 ? 0 : static_cast<uint64_t>(seconds);
}

}  // namespace shoal::door
