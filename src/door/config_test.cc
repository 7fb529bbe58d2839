#include "src/door/config.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/net/testing/test_identity.h"
#include "src/roster/testing/parties.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::door {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kGood[] =
    "listen_address: '0.0.0.0:7443' certificate_file: 'tls.pem' private_key_file: '../tls.key' "
    "roster_file: '/etc/roster' pinned_parties_file: 'pins' ";

std::string PathOf(const std::string& name) { return absl::StrCat(::testing::TempDir(), name); }

absl::StatusOr<DoorConfig> Read(const std::string& text) {
  const std::string path = PathOf("door.textproto");
  SHOAL_CHECK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic).ok());
  return ReadDoorConfig(path);
}

TEST(DoorConfigTest, PathsStartAtTheFilesDirectoryAndDefaultsAreFilledIn) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const DoorConfig config, Read(kGood));
  const std::filesystem::path base = std::filesystem::path(PathOf("x")).parent_path();
  EXPECT_EQ(config.certificate_file(), (base / "tls.pem").string());
  EXPECT_EQ(config.private_key_file(), (base.parent_path() / "tls.key").string());
  EXPECT_EQ(config.roster_file(), "/etc/roster");
  EXPECT_EQ(config.max_connections(), 4096u);
  EXPECT_EQ(config.buffers_mib(), 256u);
  EXPECT_EQ(config.shares().connections(), 10u);
  EXPECT_EQ(config.rates().connection_requests(), 600u);
  EXPECT_EQ(config.rates().address_onions_kib(), 4096u);
}

// A limit of nothing would be a door that is shut, and none that is open.
TEST(DoorConfigTest, ZeroIsTheDefault) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const DoorConfig config,
      Read(absl::StrCat(kGood,
                        "rates { connection_requests: 0 address_requests: 0 address_onions_kib: 0 "
                        "address_connections: 0 } shares { connections: 0 }")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const DoorConfig defaults, Read(kGood));
  EXPECT_EQ(config.SerializeAsString(), defaults.SerializeAsString());
  EXPECT_EQ(config.rates().address_requests(), 3000u);
  EXPECT_EQ(config.rates().address_connections(), 3000u);
}

TEST(DoorConfigTest, SaysWhatIsWrong) {
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {"listen_address: '0.0.0.0:7443'", "without them listen_address must be"},
      {"listen_address: '0.0.0.0:7443' roster_file: 'r' pinned_parties_file: 'p'",
       "without them listen_address must be"},
      {"listen_address: '127.0.0.1:7443' pinned_parties_file: 'p'", "roster_file is missing"},
      {"listen_address: '127.0.0.1:7443' certificate_file: 'c' roster_file: 'r'",
       "private_key_file is missing"},
      {"listen_address: '7443'", "listen_address: "},
      {absl::StrCat(kGood, "frontend_address: 'example.org'"), "frontend_address: "},
      {absl::StrCat(kGood, "allowed_origins: 'example.org'"), "allowed_origins: 'example.org'"},
      {absl::StrCat(kGood, "proxies { }"), "proxies: addresses is missing"},
      {absl::StrCat(kGood, "proxies { addresses: 'x' }"), "proxies: addresses: 'x'"},
      {absl::StrCat(kGood, "shared_addresses: '10.0.0.1/8'"), "shared_addresses: "},
      {absl::StrCat(kGood, "shares { buffers: 101 }"), "shares: at most 100"},
      {absl::StrCat(kGood, "group_shares { connections: 101 }"), "group_shares: at most 100"},
      {absl::StrCat(kGood, "rates { address_onions_kib: 100 }"), "at least 4096"},
      {absl::StrCat(kGood, "monitoring { }"), "monitoring: port"},
      {absl::StrCat(kGood, "monitoring { port: 70000 }"), "monitoring: port"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(Read(text).status(), StatusIs(kInvalid, message)) << text;
  }
}

TEST(DoorConfigTest, WithoutACertificateOnlyThisMachineIsServed) {
  for (const char* address : {"127.0.0.1:7443", "[::1]:7443"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const DoorConfig config,
        Read(absl::StrCat("roster_file: 'r' pinned_parties_file: 'p' listen_address: '", address,
                          "'")));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Certificate certificate, Certificate::Read(config, 0));
    EXPECT_EQ(certificate, Certificate());
  }
}

TEST(DoorConfigTest, TheRosterSaysWhereTheFrontendIsAndHowItIsKnown) {
  shoal::testing::TestRandom random(1);
  const roster::testing::Parties parties(3, random);
  const roster::Roster roster = parties.roster();
  SHOAL_ASSERT_OK_AND_ASSIGN(DoorConfig config, Read(kGood));
  Door::Options options = OptionsFrom(config, roster);
  EXPECT_EQ(options.frontend.address, roster.party(1).client_address);
  EXPECT_EQ(options.frontend.pin, roster.party(1).tls_certificate_sha256);
  EXPECT_EQ(options.max_connections + options.max_newcomers, 4096u);
  EXPECT_EQ(options.address_onion_bytes, 4 << 20);
  EXPECT_EQ(options.address_connections, 3000);
  EXPECT_EQ(options.shares.connections, 10u);
  EXPECT_EQ(options.group_shares.connections, 50u);
  EXPECT_EQ(options.group_shares.newcomers, 50u);
  EXPECT_EQ(options.group_shares.buffers, 50u);
  SHOAL_ASSERT_OK_AND_ASSIGN(config, Read(absl::StrCat(kGood, "frontend_address: '10.0.0.1:7'")));
  options = OptionsFrom(config, roster);
  EXPECT_EQ(options.frontend.address, "10.0.0.1:7");
  EXPECT_EQ(options.frontend.pin, roster.party(1).tls_certificate_sha256);
}

// What SIGHUP reads. A roster that was put back would have the door trust keys that were left.
TEST(DoorConfigTest, ARosterIsFollowedByNoOlderOne) {
  shoal::testing::TestRandom random(1);
  roster::testing::Parties parties(3, random);
  const roster::Roster first = parties.roster();
  SHOAL_EXPECT_OK(CheckSuccessor(first, first));
  parties.draft().set_epoch(first.epoch() + 1);
  const roster::Roster second = parties.roster();
  SHOAL_EXPECT_OK(CheckSuccessor(first, second));
  const auto refuses = [](const char* why) {
    return StatusIs(absl::StatusCode::kFailedPrecondition, why);
  };
  EXPECT_THAT(CheckSuccessor(second, first), refuses("an older one was put back"));
  parties.draft().set_expires_s(parties.draft().expires_s() - 1);
  EXPECT_THAT(CheckSuccessor(second, parties.roster()), refuses("another roster of epoch"));
}

// A door passes requests of rows on, and knows none of two tiers.
TEST(DoorConfigTest, ARosterOfTwoTiersIsRefused) {
  shoal::testing::TestRandom random(1);
  roster::testing::Parties parties(2, random);
  const std::string directory = ::testing::TempDir();
  DoorConfig config;
  config.set_roster_file(directory + "/two-tiers-roster");
  config.set_pinned_parties_file(directory + "/two-tiers-pins");
  const auto read = [&] {
    SHOAL_CHECK(wire::WriteTextFile(config.roster_file(), parties.Signed()).ok());
    SHOAL_CHECK(wire::WriteTextFile(config.pinned_parties_file(), parties.PinsText()).ok());
    return ReadRoster(config, roster::testing::kNowS).status();
  };
  SHOAL_EXPECT_OK(read());
  parties.draft().set_most_in_bucket(1);
  EXPECT_THAT(read(), StatusIs(absl::StatusCode::kUnimplemented,
                               "two tiers (most_in_bucket 1 in the roster) are not known to this "
                               "door yet"));
}

TEST(CertificateTest, IsReadWithItsKey) {
  const net::testing::TestIdentity one(1), two(2);
  const auto write = [](const std::string& name, absl::string_view text, FileMode mode) {
    SHOAL_CHECK(WriteFileAtomically(PathOf(name), AsBytes(text), mode).ok());
  };
  const auto key_of = [](const net::testing::TestIdentity& identity) {
    return AsText(identity.identity().private_key_pem);
  };
  write("one.pem", one.tls().certificate_pem, FileMode::kPublic);
  write("one.key", key_of(one), FileMode::kPrivate);
  write("two.key", key_of(two), FileMode::kPrivate);
  DoorConfig config;
  config.set_certificate_file(PathOf("one.pem"));
  config.set_private_key_file(PathOf("one.key"));
  constexpr uint64_t kNow = 1'750'000'000;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Certificate certificate, Certificate::Read(config, kNow));
  EXPECT_EQ(certificate.expires_s(), one.tls().expires_s());
  EXPECT_THAT(Certificate::Read(config, one.tls().expires_s()).status(),
              StatusIs(kInvalid, "expired"));
  config.set_private_key_file(PathOf("two.key"));
  EXPECT_THAT(Certificate::Read(config, kNow).status(), StatusIs(kInvalid, "do not fit"));
  ASSERT_EQ(chmod(PathOf("one.key").c_str(), 0644), 0);
  config.set_private_key_file(PathOf("one.key"));
  EXPECT_THAT(Certificate::Read(config, kNow).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, ""));
}

}  // namespace
}  // namespace shoal::door
