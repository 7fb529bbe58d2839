#include "src/audit/version.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::audit {
namespace {

using shoal::testing::StatusIs;

Version Of(Order order, absl::string_view text) {
  const std::optional<Version> version = Version::Parse(order, text);
  EXPECT_TRUE(version.has_value()) << text;
  return version.value_or(*Version::ParseBound(order, "0"));
}

// Every version of the list comes before all that follow.
void ExpectRising(Order order, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < texts.size(); ++j) {
      const int compared = Compare(Of(order, texts[i]), Of(order, texts[j]));
      EXPECT_EQ((compared > 0) - (compared < 0), (i > j) - (i < j)) << texts[i] << " " << texts[j];
    }
  }
}

void ExpectEqual(Order order, absl::string_view a, absl::string_view b) {
  EXPECT_EQ(Compare(Of(order, a), Of(order, b)), 0) << a << " " << b;
}

void ExpectNone(Order order, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    EXPECT_FALSE(Version::Parse(order, text).has_value()) << text;
  }
}

// semver.org, section 11, and Go's pseudo-versions (go.dev/ref/mod).
TEST(VersionTest, SemverIsInItsOrder) {
  ExpectRising(Order::kSemver, {"0.0.0-0",
                                "0.0.0-20190101000000-aaaaaaaaaaaa",
                                "0.0.0-20191109021931-daa7c04131f5",
                                "0.0.0",
                                "0.9.9",
                                "1.0.0-0.3.7",
                                "1.0.0-alpha",
                                "1.0.0-alpha.1",
                                "1.0.0-alpha.beta",
                                "1.0.0-beta",
                                "1.0.0-beta.2",
                                "1.0.0-beta.11",
                                "1.0.0-rc.1",
                                "1.0.0",
                                "1.0.1-0",
                                "1.0.1",
                                "1.2.0",
                                "1.10.0",
                                "2.0.0",
                                "2.1.0",
                                "2.1.1",
                                "18446744073709551616.0.0",
                                "100000000000000000000000000000.0.0"});
  ExpectEqual(Order::kSemver, "1.0.0+20130313144700", "1.0.0+21AF26D3---117B344092BD");
  ExpectEqual(Order::kSemver, "v2.0.0+incompatible", "2.0.0");
  // A short form is one in an advisory alone.
  for (const auto& [text, whole] :
       {std::pair("0", "0.0.0"), {"v1", "1.0.0"}, {"1.2", "1.2.0"}, {"v1.2", "1.2.0"}}) {
    const std::optional<Version> bound = Version::ParseBound(Order::kSemver, text);
    ASSERT_TRUE(bound.has_value()) << text;
    EXPECT_EQ(Compare(*bound, Of(Order::kSemver, whole)), 0) << text;
    EXPECT_FALSE(Version::Parse(Order::kSemver, text).has_value()) << text;
  }
  EXPECT_FALSE(Version::ParseBound(Order::kSemver, "1.2-a").has_value());
  EXPECT_FALSE(Version::ParseBound(Order::kSemver, "1.2+a").has_value());
  ExpectNone(Order::kSemver, {"",
                              "v",
                              "1.",
                              "1.2.",
                              "1.2.3.",
                              "1.2.3.4",
                              "01.2.3",
                              "1.02.3",
                              "1.2.3-",
                              "1.2.3-a..b",
                              "1.2.3-01",
                              "1.2.3+",
                              "1.2.3+a..b",
                              "1.2.3+a_b",
                              "1.2.3-a_b",
                              "1.2-a",
                              "1.2+a",
                              "a.b.c",
                              "-1.0.0",
                              " 1.0.0",
                              "1.0.0 ",
                              "git+ssh://host/x",
                              std::string(300, '1')});
}

// PEP 440, "Summary of permitted suffixes and relative ordering".
TEST(VersionTest, Pep440IsInItsOrder) {
  ExpectRising(Order::kPep440, {"1.dev0",
                                "1.0.dev456",
                                "1.0a1",
                                "1.0a2.dev456",
                                "1.0a12.dev456",
                                "1.0a12",
                                "1.0b1.dev456",
                                "1.0b2",
                                "1.0b2.post345.dev456",
                                "1.0b2.post345",
                                "1.0rc1.dev456",
                                "1.0rc1",
                                "1.0",
                                "1.0+abc.5",
                                "1.0+abc.7",
                                "1.0+5",
                                "1.0.post456.dev34",
                                "1.0.post456",
                                "1.0.15",
                                "1.1.dev1",
                                "1.10",
                                "2.0",
                                "18446744073709551616",
                                "1!0.1"});
  for (const auto& [a, b] :
       std::vector<std::pair<std::string, std::string>>{{"1.0", "1"},
                                                        {"1.0.0", "1"},
                                                        {"0", "0.0"},
                                                        {"v1.0", "1.0"},
                                                        {" 1.0\n", "1.0"},
                                                        {"1.1RC1", "1.1rc1"},
                                                        {"1.1.a1", "1.1a1"},
                                                        {"1.1-alpha-1", "1.1a1"},
                                                        {"1.1beta2", "1.1b2"},
                                                        {"1.1c3", "1.1rc3"},
                                                        {"1.1pre3", "1.1rc3"},
                                                        {"1.1_preview_3", "1.1rc3"},
                                                        {"1.2a", "1.2a0"},
                                                        {"1.0a-", "1.0a0"},
                                                        {"1.2.post-2", "1.2.post2"},
                                                        {"1.0-r4", "1.0.post4"},
                                                        {"1.0-rev4", "1.0.post4"},
                                                        {"1.0-1", "1.0.post1"},
                                                        {"1.2.post", "1.2.post0"},
                                                        {"1.2-dev2", "1.2.dev2"},
                                                        {"1.2.dev", "1.2dev0"},
                                                        {"1.0+ubuntu-1", "1.0+ubuntu.1"},
                                                        {"1.0+ABC", "1.0+abc"},
                                                        {"00!01.002", "1.2"}}) {
    ExpectEqual(Order::kPep440, a, b);
  }
  ExpectNone(Order::kPep440,
             {"", "a", "1.0-", "1.0--1", "1.0.-1", "1.0+", "1.0+a+b", "1.0+_", "1.0 a", "1.0a1b1",
              "1!", "!1", "1.0.x", "1.*", "2004d-x", "french toast"});
}

TEST(VersionTest, DebiansIsDpkgs) {
  ExpectRising(Order::kDebian, {"0", "1.0~~", "1.0~~a", "1.0~", "1.0~rc1-1", "1.0", "1.0-1~deb11u1",
                                "1.0-1", "1.0-1+b1", "1.0-1+deb12u1", "1.0-1.1", "1.0-10", "1.0a",
                                "1.0+dfsg", "1.0.1-1", "1:0.1", "2:0"});
  ExpectEqual(Order::kDebian, "0:1.0-1", "1.0-1");
  ExpectEqual(Order::kDebian, "1.00", "1.0");
  ExpectNone(Order::kDebian,
             {"", "a1", "1:", ":1", "x:1", "1_0", "1.0-", "1.0-1:2", "1 0", "-1", "12345678901:1"});
}

TEST(VersionTest, EcosystemsHaveTheirOrders) {
  EXPECT_EQ(OrderOf("PyPI"), Order::kPep440);
  for (const char* name : {"npm", "crates.io", "Go", "GitHub Actions"}) {
    EXPECT_EQ(OrderOf(name), Order::kSemver);
  }
  for (const char* name : {"Debian:12", "Ubuntu:22.04:LTS", "Ubuntu:Pro:18.04:LTS"}) {
    EXPECT_EQ(OrderOf(name), Order::kDebian) << name;
  }
  EXPECT_EQ(OrderOf("Ubuntu:Pro:FIPS-updates:20.04:LTS"), Order::kDebian);
  for (const char* name : {"", "pypi", "Maven", "Debian", "Debian:", "Debian:12/x", "Ubuntu:a b"}) {
    EXPECT_FALSE(OrderOf(name).has_value()) << name;
  }
  for (const auto& [written, canonical] : std::vector<std::pair<std::string, std::string>>{
           {"PyPI", "PyPI"},
           {"pypi", "PyPI"},
           {"NPM:https://registry.example", "npm"},
           {"crates.io", "crates.io"},
           {"go", "Go"},
           {"github actions", "GitHub Actions"},
           {"debian:12", "Debian:12"},
           {"Debian", "Debian"},
           {"Ubuntu:22.04:LTS", "Ubuntu:22.04:LTS"},
           {"Ubuntu:Pro:16.04:LTS", "Ubuntu:16.04:LTS"},
           {"Ubuntu:Pro:Realtime:22.04:LTS", "Ubuntu:22.04:LTS"},
           {"Ubuntu:Pro:FIPS-updates:20.04:LTS", "Ubuntu:Pro:FIPS-updates:20.04:LTS"},
           {"Ubuntu:Pro", "Ubuntu"},
           {"Maven:x", "Maven:x"},
           {"", ""}}) {
    EXPECT_EQ(CanonicalEcosystem(written), canonical) << written;
  }
}

// A name that is written otherwise must not miss the advisories.
TEST(VersionTest, NamesOfOnePackageHaveOneKey) {
  EXPECT_EQ(*PackageKey("PyPI", "Zope.Interface__x"), "PyPI/zope-interface-x");
  EXPECT_EQ(*PackageKey("crates.io", "Serde_json"), "crates.io/serde-json");
  EXPECT_EQ(*PackageKey("npm", "@angular/core"), "npm/@angular/core");
  EXPECT_EQ(*PackageKey("Go", "github.com/Masterminds/goutils"),
            *PackageKey("Go", "github.com/masterminds/goutils"));
  EXPECT_EQ(*PackageKey("Go", "github.com/Masterminds/goutils"),
            *PackageKey("Go", "github.com/!masterminds/goutils"));
  EXPECT_FALSE(PackageKey("Go", "h.org/!").ok());
  EXPECT_EQ(*PackageKey("npm", "JSONStream"), "npm/jsonstream");
  EXPECT_EQ(*PackageKey("GitHub Actions", "Azure/Login"), "GitHub Actions/azure/login");
  EXPECT_EQ(*PackageKey("Debian:12", "libx++"), "Debian:12/libx++");
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\nb"),
                                  std::string("a\0b", 3), std::string(513, 'a')}) {
    EXPECT_THAT(PackageKey("npm", name).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, "name"));
  }
}

// They would be absent from every table, and so seem to have no advisories.
TEST(VersionTest, NamesThatNoRegistryHasHaveNoKey) {
  for (const auto& [ecosystem, name] :
       std::vector<std::pair<std::string, std::string>>{{"PyPI", "django[bcrypt]"},
                                                        {"PyPI", "django==3.1.8"},
                                                        {"PyPI", "django;extra"},
                                                        {"PyPI", "django\u200b"},
                                                        {"PyPI", "django-"},
                                                        {"PyPI", ".django"},
                                                        {"PyPI", "-"},
                                                        {"npm", "lodash@4.17.20"},
                                                        {"npm", "@x"},
                                                        {"npm", "@/x"},
                                                        {"npm", "@x/"},
                                                        {"npm", "@x/y/z"},
                                                        {"npm", "@@x/y"},
                                                        {"npm", "x/y"},
                                                        {"npm", ".bin"},
                                                        {"npm", "lodash%20"},
                                                        {"npm", "l\xc3\xb6-dash"},
                                                        {"crates.io", "http.rs"},
                                                        {"crates.io", "http/0.1"},
                                                        {"crates.io", ""},
                                                        {"Go", "https://golang.org/x/text"},
                                                        {"Go", "golang.org//x/text"},
                                                        {"Go", "/golang.org/x/text"},
                                                        {"Go", "golang.org/x/text/"},
                                                        {"Go", "golang.org/x/text@v0.3.6"},
                                                        {"Go", "golang.org/x/../text"},
                                                        {"Go", "golang.org/x/text."},
                                                        {"Go", "golang.org/x/text!"},
                                                        {"Go", "golang.org/!/text"},
                                                        {"Go", "golang.org/!Text"},
                                                        {"Go", "golang/text"},
                                                        {"Go", "text"},
                                                        {"Go", "gin-gonic/gin"},
                                                        {"Go", "net/http"},
                                                        {"Go", "go"},
                                                        {"Go", "stdlib/net"},
                                                        {"GitHub Actions", "checkout"},
                                                        {"GitHub Actions", "actions/"},
                                                        {"GitHub Actions", "actions/.."},
                                                        {"GitHub Actions", "actions/check@v4"},
                                                        {"Debian:12", "openssl:amd64"},
                                                        {"Debian:12", "OpenSSL"},
                                                        {"Debian:12", "open_ssl"},
                                                        {"Debian:12", "+openssl"},
                                                        {"Ubuntu:22.04:LTS", "openssl (3.0)"},
                                                        {"Debian", "openssl:any"}}) {
    EXPECT_THAT(PackageKey(ecosystem, name).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, "is no name of a package of "))
        << ecosystem << " " << name;
  }
  // A name that is missing is none, whatever a library makes of parts of nothing.
  for (const char* ecosystem : {"PyPI", "npm", "crates.io", "Go", "GitHub Actions", "Debian:12"}) {
    EXPECT_FALSE(PackageKey(ecosystem, absl::string_view()).ok()) << ecosystem;
    EXPECT_FALSE(PackageKey(ecosystem, "").ok()) << ecosystem;
  }
  // Those that they have, also old ones.
  for (const auto& [ecosystem, name] :
       std::vector<std::pair<std::string, std::string>>{{"PyPI", "x"},
                                                        {"PyPI", "3to2"},
                                                        {"PyPI", "zope.interface"},
                                                        {"PyPI", "a--b__c"},
                                                        {"npm", "-"},
                                                        {"npm", "@types/node"},
                                                        {"npm", "@_x/_y.z"},
                                                        {"npm", "jquery.ui.js"},
                                                        {"npm", "what's(new)!~*"},
                                                        {"crates.io", "serde_json"},
                                                        {"crates.io", "md-5"},
                                                        {"Go", "stdlib"},
                                                        {"Go", "std"},
                                                        {"Go", "toolchain"},
                                                        {"GitHub Actions", "actions/checkout"},
                                                        {"GitHub Actions", "a-b/.github/c_d"},
                                                        {"Go", "gopkg.in/yaml.v2"},
                                                        {"Go", "git.sr.ht/~a/b_c-d"},
                                                        {"Go", "github.com/!azure/go-!s!d!k"},
                                                        {"Debian:12", "g++-12"},
                                                        {"Debian:12", "libsigc++-2.0"},
                                                        {"Ubuntu:22.04:LTS", "0ad"},
                                                        {"Ubuntu", "linux"}}) {
    EXPECT_TRUE(PackageKey(ecosystem, name).ok()) << ecosystem << " " << name;
  }
}

}  // namespace
}  // namespace shoal::audit
