#include "src/audit/inventory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;
using shoal::testing::StatusIs;

// "PyPI django 3.2.1", with " (doubtful)" or " (possible)" behind it for what is not certain, and
// "! what: why" for what is unchecked.
std::vector<std::string> LinesOf(const Inventory& inventory) {
  std::vector<std::string> lines;
  for (const Item& item : inventory.items) {
    EXPECT_EQ(item.doubt.empty(), item.certainty == Certainty::kCertain) << item.name;
    lines.push_back(absl::StrCat(item.ecosystem, " ", item.name, " ", item.version,
                                 item.certainty == Certainty::kDoubtful   ? " (doubtful)"
                                 : item.certainty == Certainty::kPossible ? " (possible)"
                                                                          : ""));
  }
  for (const Unchecked& unchecked : inventory.unchecked) {
    lines.push_back(absl::StrCat("! ", unchecked.what, ": ", unchecked.why));
  }
  return lines;
}

// With "own N" at the end, for what is the project's.
std::vector<std::string> Parse(absl::string_view name, absl::string_view content,
                               const Distribution& distribution = {}) {
  const auto format = DetectFormat(name, content);
  EXPECT_TRUE(format.ok()) << format.status();
  Inventory inventory;
  if (!format.ok()) return {};
  SHOAL_EXPECT_OK(ParseInventory(*format, content, std::string(name), distribution, inventory));
  std::vector<std::string> lines = LinesOf(inventory);
  if (inventory.own > 0) lines.push_back(absl::StrCat("own ", inventory.own));
  return lines;
}

absl::Status Error(absl::string_view name, absl::string_view content,
                   const Distribution& distribution = {}) {
  const auto format = DetectFormat(name, content);
  if (!format.ok()) return format.status();
  Inventory inventory;
  return ParseInventory(*format, content, std::string(name), distribution, inventory);
}

using Lines = std::vector<std::string>;

TEST(InventoryTest, DpkgsPackagesAreThoseOfTheirSources) {
  const std::string status =
      "Package: libssl3\nStatus: install ok installed\nSource: openssl\nArchitecture: amd64\n"
      "Version: 3.0.15-1~deb12u1\n\n"
      "Package: openssl\nStatus: install ok installed\nArchitecture: amd64\n"
      "Version: 3.0.15-1~deb12u1\n\n"
      "Package: bash\nStatus: hold ok installed\nArchitecture: amd64\nSource: bash (5.2.15-2)\n"
      "Version: 5.2.15-2+b7\n\n"
      "Package: half\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 4\n\n"
      "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n";
  EXPECT_EQ(
      Parse("/var/lib/dpkg/status", status, {.stated = "Debian:12"}),
      (Lines{"Debian:12 bash 5.2.15-2", "Debian:12 half 4", "Debian:12 openssl 3.0.15-1~deb12u1"}));
  EXPECT_EQ(Parse("status", status, {.here = "Ubuntu:22.04:LTS", .stated = "Debian:12"}),
            Parse("status", status, {.here = "Debian:12"}));
  EXPECT_THAT(Error("status", status),
              StatusIs(absl::StatusCode::kInvalidArgument, "--distribution"));
  EXPECT_THAT(Error("status", "Package: x\nnonsense\n", {.stated = "Debian:12"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "status:2: not a field"));
  // A field's name has no case, and what is no source is said.
  EXPECT_EQ(Parse("status",
                  "Package: a\nStatus: install ok installed\nsource: b\nArchitecture: all\n"
                  "Version: 1\n\nPackage: c\nStatus: install ok installed\nSource: d (1\n"
                  "Architecture: all\nVersion: 1\n",
                  {.stated = "Debian:12"}),
            (Lines{"Debian:12 b 1", "! c: has a source that is not understood: d (1"}));
}

// What is signed is built from another source, about which the advisories are.
TEST(InventoryTest, SignedCopiesAreOfTheirSources) {
  const auto parse = [](const std::string& name, const std::string& version,
                        const std::string& source, const std::string& distribution = "Debian:12") {
    return Parse("status",
                 absl::StrCat("Package: ", name, "\nStatus: install ok installed\nVersion: ",
                              version, "\nArchitecture: amd64\n",
                              source.empty() ? "" : absl::StrCat("Source: ", source, "\n")),
                 {.stated = distribution});
  };
  EXPECT_EQ(parse("linux-image-6.1.0-27-amd64", "6.1.115-1", "linux-signed-amd64 (6.1.115+1)"),
            (Lines{"Debian:12 linux 6.1.115-1", "Debian:12 linux-signed-amd64 6.1.115+1"}));
  EXPECT_EQ(
      parse("linux-image-amd64", "6.1.115-1~bpo11+1", "linux-signed-amd64 (6.1.115+1~bpo11+1)")[0],
      "Debian:12 linux 6.1.115-1~bpo11+1");
  EXPECT_EQ(parse("linux-image-x", "6.1-1", "linux-signed-arm64")[0],
            "Debian:12 linux 6.1-1 (doubtful)");
  EXPECT_EQ(parse("linux-image-5.15.0-91-generic", "5.15.0-91.101", "linux-signed (5.15.0-91.101)",
                  "Ubuntu:22.04:LTS")[0],
            "Ubuntu:22.04:LTS linux 5.15.0-91.101");
  EXPECT_EQ(parse("linux-image-6.5.0-9-generic", "6.5.0-9.9~22.04.2",
                  "linux-signed-hwe-6.5 (6.5.0-9.9~22.04.2)", "Ubuntu:22.04:LTS")[0],
            "Ubuntu:22.04:LTS linux-hwe-6.5 6.5.0-9.9~22.04.2");
  // Which version of its source was signed, the version does not say.
  EXPECT_EQ(
      parse("grub-efi-amd64-signed", "1+2.06+13+deb12u1", ""),
      (Lines{"Debian:12 grub-efi-amd64-signed 1+2.06+13+deb12u1", "Debian:12 grub2  (doubtful)"}));
  EXPECT_EQ(parse("fwupd-amd64-signed", "1:1.2+4", "")[0], "Debian:12 fwupd  (doubtful)");
  EXPECT_EQ(parse("shim-signed", "1.44~1+15.8-1", "")[0], "Debian:12 shim  (doubtful)");
  // Somebody's own kernel.
  EXPECT_EQ(parse("linux-image-6.1.7", "6.1.7-1", ""),
            (Lines{"Debian:12 linux 6.1.7-1 (doubtful)", "Debian:12 linux-image-6.1.7 6.1.7-1"}));
  // A rebuild has the version of its source.
  EXPECT_EQ(parse("a", "1.0-1+b7", ""), Lines{"Debian:12 a 1.0-1"});
  EXPECT_EQ(parse("a", "1.0-1+deb12u1", ""), Lines{"Debian:12 a 1.0-1+deb12u1"});
}

TEST(InventoryTest, UbuntusPocketsAreOfItsReleases) {
  const auto parse = [](const std::string& version, const std::string& distribution) {
    return Parse("status",
                 absl::StrCat("Package: a\nStatus: install ok installed\nVersion: ", version,
                              "\nArchitecture: amd64\n"),
                 {.stated = distribution});
  };
  for (const char* distribution :
       {"Ubuntu:16.04:LTS", "Ubuntu:Pro:16.04:LTS", "Ubuntu:Pro:FIPS:16.04:LTS"}) {
    EXPECT_EQ(parse("1-1+esm1", distribution), Lines{"Ubuntu:16.04:LTS a 1-1+esm1"});
    EXPECT_EQ(
        parse("1-1.fips.2", distribution),
        (Lines{"Ubuntu:16.04:LTS a 1-1.fips.2", "Ubuntu:Pro:FIPS-updates:16.04:LTS a 1-1.fips.2",
               "Ubuntu:Pro:FIPS:16.04:LTS a 1-1.fips.2"}));
  }
}

TEST(InventoryTest, TheDistributionIsThatOfOsRelease) {
  EXPECT_EQ(DistributionOf("PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\nVERSION_ID=\"12\"\n"),
            "Debian:12");
  EXPECT_EQ(DistributionOf("ID=ubuntu\nVERSION_ID=\"22.04\""), "Ubuntu:22.04:LTS");
  EXPECT_EQ(DistributionOf("ID=ubuntu\nVERSION_ID=23.04"), "Ubuntu:23.04");
  EXPECT_EQ(DistributionOf("ID=ubuntu\nVERSION_ID=22.10"), "Ubuntu:22.10");
  for (const char* other :
       {"", "ID=fedora\nVERSION_ID=39", "ID=debian\n", "ID=debian\nVERSION_ID=a/b"}) {
    EXPECT_EQ(DistributionOf(other), "") << other;
  }
}

TEST(InventoryTest, Requirements) {
  EXPECT_EQ(
      Parse("dev-requirements.txt",
            "\xef\xbb\xbf# a comment\r\n"
            "-i https://pypi.org/simple  # where from\n"
            "Django==3.2.1 ; python_version < '4' \n"
            "jinja2 [i18n, x]  == 2.11.2 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
            "zope.interface===5.0-x#not-a-comment\n"
            "a (==1.0)\n"
            "b>=1.0,==1.5,<2\n"
            "c==1.*\nd>=2\ne\n"
            "-e .\n\n"),
      (Lines{"PyPI Django 3.2.1", "PyPI jinja2 2.11.2", "PyPI zope.interface 5.0-x#not-a-comment",
             "PyPI a 1.0", "PyPI b 1.5", "PyPI c ", "PyPI d ", "PyPI e ", "own 1"}));
  EXPECT_EQ(Parse("requirements.txt", "# -*- coding: utf-8 -*-\na==1,==2\nb==1,==1\nc===x\n"),
            (Lines{"PyPI a ", "PyPI b 1", "PyPI c x"}));
  EXPECT_EQ(Parse("requirements/dev.txt", "a==1\n"), (Lines{"PyPI a 1"}));
  // Nothing of this may be passed over in silence.
  for (const char* line : {"-r other.txt",
                           "--requirement=other.txt",
                           "-e git+https://h/x#egg=y",
                           "-e ./vendor/django",
                           "-e ./../x",
                           "-e .[x]/../y",
                           ".[x]/../y",
                           "--editable ./x",
                           "x @ https://h/x.whl",
                           "https://h/x.whl",
                           "./local.whl",
                           "a[b==1",
                           "==1",
                           "requests-2.0-py3-none-any.whl",
                           "x.zip",
                           "x.tar.gz",
                           "x.ZIP[extra]",
                           "a==1.zip",
                           "..",
                           ".x",
                           "-c constraints.txt",
                           "--constraint=c.txt",
                           "-i https://h -r other.txt",
                           "--pre --req other.txt",
                           "--index-url h \"-r\" x",
                           "--unknown",
                           "--pre a==1",
                           "-i h a==1",
                           "a==1 b==2",
                           "a[x]== 1.1,<9 a[x]== 1.1",
                           "a=1.0",
                           "a[x y]==1",
                           "a (==1",
                           "a==1,",
                           "a==",
                           "a==1 ; x=='y'",
                           "a==1 ; python_version<'4'b==1",
                           "a[x]== 0 -hash=sha256:aa",
                           "a==1 --hash=sHa256:aa",
                           "a==1 --hash=sha256:",
                           "a==1 --requirement=b",
                           "a==1 ; extra --hash=md5:aa",
                           "# coding: utf-7",
                           "a==1.0 # \xff"}) {
    const Lines lines = Parse("requirements.txt", line);
    ASSERT_EQ(lines.size(), 1u) << line;
    EXPECT_EQ(lines[0].find(absl::StrCat("! ", line, ": ")), 0u) << lines[0];
  }
  EXPECT_EQ(Parse("requirements.txt", "a==1\t--hash=sha256:aa\nb.zip==1\nbackports.lzma\n.[x]"),
            (Lines{"PyPI a 1", "PyPI b.zip 1", "PyPI backports.lzma ", "own 1"}));
  EXPECT_EQ(Parse("requirements.txt", "--require-hashes\n--pre -i h --find-links=d\na"),
            (Lines{"PyPI a "}));
  EXPECT_EQ(Parse("requirements.txt", "a==1 \\"), (Lines{"PyPI a 1"})) << "the end of the file";
  // What a comment cannot hide: pip installs the line that follows.
  EXPECT_EQ(Parse("requirements.txt", "# x \\\na==1\n  # y \\\nb==2\nc==3 \\\n# z \\\nd==4\n"),
            (Lines{"PyPI a 1", "PyPI b 2", "PyPI c 3", "PyPI d 4"}));
  for (const char* end :
       {"\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"}) {
    EXPECT_THAT(Error("requirements.txt", absl::StrCat("a\n# comment", end, "b==1\n")),
                StatusIs(absl::StatusCode::kInvalidArgument, "requirements.txt:2: has a char"));
  }
  EXPECT_THAT(Error("requirements.txt", std::string("\xff\xfe") + "a"),
              StatusIs(absl::StatusCode::kInvalidArgument, "requirements.txt:1: "));
  EXPECT_THAT(Error("requirements.txt", std::string("a\n\0", 3)),
              StatusIs(absl::StatusCode::kInvalidArgument, "requirements.txt:2: is no text"));
  EXPECT_THAT(Error("requirements.txt", absl::StrCat("a\n", std::string(1 << 17, 'x'))),
              StatusIs(absl::StatusCode::kInvalidArgument, "requirements.txt:2: "));
}

// Behind a number sign without a blank before it pip takes the rest for a part of the version.
TEST(InventoryTest, ANumberSignInAVersionIsNoComment) {
  for (const char* line : {"a==1.0#z", "a==1.0,<99,>0#z", "a===1.0,!=2#z", "a==1.0,<!2"}) {
    EXPECT_EQ(Parse("requirements.txt", line),
              Lines{absl::StrCat("! ", line, ": is no requirement that is understood")});
  }
  EXPECT_EQ(Parse("requirements.txt", "a==1.0 #z"), Lines{"PyPI a 1.0"});
}

TEST(InventoryTest, PythonMetadata) {
  EXPECT_EQ(Parse("x.dist-info/METADATA",
                  "Metadata-Version: 2.1\nName: Jinja2\nVersion: 2.11.2\n\nName: no\nVersion: 9\n"),
            (Lines{"PyPI Jinja2 2.11.2"}));
  // A name has no case; a value may go on in the next line.
  EXPECT_EQ(Parse("METADATA", "name: x\nVERSION: 1.11\n"), (Lines{"PyPI x 1.11"}));
  EXPECT_THAT(Error("METADATA", "name: x\nVERSION: 1.11\nVersion: 0.1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "METADATA:3: is a second Version"));
  EXPECT_EQ(Parse("METADATA", "Name:\n x\nVersion: 1\n"), (Lines{"PyPI x 1"}));
  EXPECT_THAT(Error("METADATA", "Metadata-Version: 2.1\nName: x\n\nVersion: 1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "no Name or no Version"));
  EXPECT_THAT(Error("METADATA", "Name: x\nLicen MIT\nVersion: 1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "METADATA:2: is no field"));
  EXPECT_THAT(Error("METADATA", "Name: x\nLi\xc3\xa9: MIT\nVersion: 1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "METADATA:2: is no field"));
  EXPECT_THAT(Error("METADATA", "Name: x\nVersion: 1\rVersion: 2\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "METADATA:2: has a control"));
  EXPECT_THAT(Error("METADATA", "Name: x\nVersion: 1.2"),
              StatusIs(absl::StatusCode::kInvalidArgument, "ends within a line"));
}

TEST(InventoryTest, PoetryLock) {
  // What toml++ cannot be asked about (its behaviour is undefined).
  for (const char* text :
       {"\xc3\xa9 = 1", "a.\xc3\xa9 = 1", "a = \"\"\"\\\xc3\xa9\"\"\"",
        "a = \"\"\"\\\n  \xc3\xa9\"\"\"", "a = \"\"\"\\\n \\\xc3\xa9\"\"\"", "[a] \xc2\xa0"}) {
    EXPECT_THAT(Error("poetry.lock", text),
                StatusIs(absl::StatusCode::kInvalidArgument, "poetry.lock:1:"))
        << text;
  }
  EXPECT_EQ(Parse("poetry.lock",
                  "# This file is automatically @generated by Poetry 1.8.2\n"
                  "[[package]]\nname = \"django\"\nversion = \"3.2.1\"\noptional = false\n"
                  "[package.dependencies]\nasgiref = \">=3.3.2,<4\"\n\n"
                  "[[package]]\nname = \"mine\"\nversion = \"0.1\"\n"
                  "[package.source]\ntype = \"directory\"\nurl = \"../mine\"\n\n"
                  "[[package]]\nname = \"forked\"\nversion = \"2.0\"\n"
                  "[package.source]\ntype = \"git\"\nurl = \"https://h/x\"\n\n"
                  "[metadata]\nlock-version = \"2.0\"\ncontent-hash = \"ab\"\n"),
            (Lines{"PyPI django 3.2.1", "PyPI forked 2.0 (doubtful)",
                   "! asgiref: is needed by django, and is not in the file", "own 1"}));
  // Strings and brackets over several lines, comments in between, headers within strings.
  EXPECT_EQ(Parse("poetry.lock",
                  "[[package]] # one\r\nname = 'a' # n\r\nversion = \"1\"\r\n"
                  "description = \"\"\"\n[[package]]\nname = \"no\"\\\"\"\"\"\"\n"
                  "files = [\n  {file = \"x]\", hash = 'y['}, # ]\n]\n"
                  "[package.dependencies]\nB = \">=1\"\na = {version = \"*\", x = [1]}\n"
                  "[[package]]\nversion = \"2\"\nname = \"b\"\n[metadata]"),
            (Lines{"PyPI a 1", "PyPI b 2"}));
  // All of TOML: quoted keys, inline tables, escapes, dotted keys.
  EXPECT_EQ(Parse("poetry.lock",
                  "package = [{\"name\" = 'a', version = \"1\\u0030\"},\n"
                  "{name = \"\"\"\nb\"\"\", version = '2', source.type = \"directory\"}]\n"
                  "[metadata]\n"),
            (Lines{"PyPI a 10", "own 1"}));
  EXPECT_EQ(
      Parse("poetry.lock", "[[ \"package\" ]]\nname = \"a\"\n'version' = \"1\"\n[metadata]\n"),
      (Lines{"PyPI a 1"}));
  // What is not known there may name packages.
  EXPECT_EQ(Parse("poetry.lock",
                  "[[package]]\nname = 'a'\nversion = '1'\n[[packages]]\nname = 'b'\n[metadata]"),
            (Lines{"PyPI a 1", "! packages: is a part of the file that is not known here"}));
  EXPECT_EQ(Parse("poetry.lock",
                  "[[package]]\nname = 'a'\nversion = '1'\n[[package.package]]\nname = 'b'\n"
                  "version = '2'\n[metadata]"),
            (Lines{"PyPI a 1", "! a.package: is a part of the file that is not known here"}));
  struct Case {
    std::string text, where;
  };
  const std::string package = "[[package]]\nname = \"a\"\n";
  std::string dotted = "a";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&dotted, ".a");
  for (const Case& c :
       {Case{package + "version = \n", ":3: not TOML"},
        Case{package + "version = 1\n", ":3: version is no text"},
        Case{package + "version = \"1\" x\n", ":3: not TOML"},
        Case{package + "version = \"1\nfiles = 1\n", ": not TOML"},
        Case{package + "version = \"1\"\nversion = \"2\"\n", ":4: not TOML"},
        Case{package + "name = \"1\"\n", ":3: not TOML"}, Case{package + "files = [\n", "not TOML"},
        Case{package + "files = ]\n", ":3: not TOML"}, Case{package + "x = '", ":3: not TOML"},
        Case{package, ":1: a package has no name or no version"},
        Case{package + "version\n", ":3: not TOML"}, Case{"[[package\n", ":1: not TOML"},
        Case{"[]\n", ":1: not TOML"}, Case{"[package]\n", "`package` is not a list"},
        Case{"package = [1]\n", "`package` is not a list"},
        Case{package + "version = \"1\"\nsource = \"directory\"\n[metadata]\n",
             ":4: a source is no table"},
        Case{package + "version = \"1\"\n", ":1: has no [metadata]"},
        Case{"[metadata]\nlock-version = \"3.0\"\n", "version of Poetry's format"},
        Case{"# x\ra = 1\n", ":1: not TOML: a control character"},
        Case{"\xff\xfe", ":1: the text is UTF-16"}, Case{"a = \"\xff\"", "not TOML"},
        // What would be freed by very many nested calls.
        Case{absl::StrCat("a = ", std::string(1'000'000, '[')), "not TOML"},
        Case{absl::StrCat("x = 1\n", dotted, " = 1\n"), ":2: a key has more than 32 parts"},
        Case{absl::StrCat("[", dotted, "]\n"), "a key has more than 32 parts"},
        Case{absl::StrCat("x = \"\"\"\n\"\"\"\ny = [{", dotted, " = 1}]\n"),
             ":3: a key has more than"},
        Case{std::string((1 << 24) + 1, '\n'), "more than 16 MiB"}}) {
    EXPECT_THAT(Error("poetry.lock", c.text), StatusIs(absl::StatusCode::kInvalidArgument, c.where))
        << c.text.substr(0, 100);
  }
  // Dots in strings and in comments are no parts of keys.
  EXPECT_EQ(Parse("poetry.lock", absl::StrCat("# ", dotted, "\n[[package]]\nname = 'a' # ", dotted,
                                              "\nversion = '1'\nfiles = [\"", dotted, "\\\"\", '",
                                              dotted, "']\noptional = 1.5\n[metadata]")),
            (Lines{"PyPI a 1"}));
}

TEST(InventoryTest, CargoLock) {
  EXPECT_EQ(Parse("Cargo.lock",
                  "version = 3\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n"
                  "dependencies = [\n \"http\",\n]\n\n[[package]]\nname = \"http\"\n"
                  "version = \"0.1.19\"\n"
                  "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"
                  "checksum = \"ab\"\n"),
            (Lines{"crates.io http 0.1.19", "own 1"}));
  // The first version has the project, and the checksums, apart.
  EXPECT_EQ(Parse("Cargo.lock",
                  "[root]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = []\n\n"
                  "[[package]]\nname = \"http\"\nversion = \"0.1.19\"\nsource = \"registry+x\"\n\n"
                  "[metadata]\n\"checksum http 0.1.19 (registry+x?a=b)\" = \"ab\"\n"),
            (Lines{"crates.io http 0.1.19", "own 1"}));
  // A package is the project's own if it has no source, and nothing that could be one.
  EXPECT_EQ(Parse("Cargo.lock", "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nSource = \"x\"\n"),
            (Lines{"! a.Source: is a part of the file that is not known here", "own 1"}));
  EXPECT_THAT(Error("Cargo.lock", "version = 5\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "Cargo.lock:1: is of a version"));
  EXPECT_EQ(Parse("other.lock", "# This file is automatically @generated by Cargo.\nversion = 3\n"),
            Lines{"! other.lock: names no packages"});
}

// The same tree in npm's three versions of its format.
TEST(InventoryTest, PackageLock) {
  EXPECT_EQ(Parse("package-lock.json", R"({"name":"own","lockfileVersion":1,"dependencies":{
      "lodash":{"version":"4.17.20"},
      "@x/y":{"version":"1.0.0","dependencies":{"lodash":{"version":"3.0.0"}}},
      "alias":{"version":"npm:@z/real@2.0.0"},
      "forked":{"version":"git+ssh://git@h/x.git#abc"},
      "mine":{"version":"file:mine"}}})"),
            (Lines{"npm lodash 4.17.20", "npm @x/y 1.0.0", "npm lodash 3.0.0", "npm @z/real 2.0.0",
                   "npm forked git+ssh://git@h/x.git#abc (doubtful)", "own 1"}));
  // An archive is a package, whatever its name; a directory is the project's.
  EXPECT_EQ(Parse("package-lock.json", R"({"dependencies":{"a":{"version":"file:a.tgz"},
      "b":{"version":"https://h/lodash-4.17.20.tgz"},"c":{"version":"1.0.0","depends":{}}}})"),
            (Lines{"npm a file:a.tgz (doubtful)", "npm b https://h/lodash-4.17.20.tgz (doubtful)",
                   "npm c 1.0.0", "! c.depends: is a part of the file that is not known here"}));
  EXPECT_EQ(
      Parse("package-lock.json", R"({"lockfileVersion":3,"packages":{"":{},
      "node_modules/b":{"version":"1.0.0","packages":{"node_modules/c":{"version":"1.0.0"}}}}})"),
      (Lines{"npm b 1.0.0",
             "! node_modules/b.packages: is a part of the file that is not known here", "own 1"}));
  EXPECT_EQ(Parse("package-lock.json", R"({"lockfileVersion":3,"packages":{"":{},
      "a":{"version":"1.0.0"},"node_modules/b":{"version":"1.0.0"}},"package":{}})"),
            (Lines{"npm b 1.0.0", "! package: is a part of the file that is not known here",
                   "! a: is neither the project nor one of its workspaces nor in node_modules",
                   "own 1"}));
  EXPECT_EQ(
      Parse("package-lock.json", R"({"packages":{"node_modules/l/odash":{"version":"1.0.0"},
      "node_modules/@a/b/c":{"version":"1.0.0"},"node_modules/@/b":{"version":"1.0.0"}}})"),
      (Lines{"! l/odash: is no name of a package of npm",
             "! @a/b/c: is no name of a package of npm", "! @/b: is no name of a package of npm"}));
  EXPECT_THAT(Error("package-lock.json", R"({"lockfileVersion":4})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "lockfileVersion: is a version"));
  EXPECT_THAT(Error("package-lock.json", R"({"lockfileVersion":"3"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "lockfileVersion: is no whole number"));
  for (const char* version : {"2", "3"}) {
    EXPECT_EQ(Parse("npm-shrinkwrap.json",
                    absl::StrCat(R"({"name":"own","lockfileVersion":)", version, R"(,"packages":{
      "":{"name":"own","version":"1.0.0"},
      "packages/mine":{"version":"0.0.1"},
      "node_modules/mine":{"resolved":"packages/mine","link":true},
      "node_modules/lodash":{"version":"4.17.20"},
      "node_modules/@x/y":{"version":"1.0.0"},
      "node_modules/@x/y/node_modules/lodash":{"version":"3.0.0"},
      "node_modules/alias":{"name":"@z/real","version":"2.0.0"},
      "node_modules/forked":{"resolved":"git+ssh://git@h/x.git#abc"}}})")),
              (Lines{"npm lodash 4.17.20", "npm @x/y 1.0.0", "npm lodash 3.0.0",
                     "npm @z/real 2.0.0", "npm forked  (doubtful)", "own 3"}))
        << version;
  }
  // `packages` without a package of others.
  for (const char* packages : {"{}", R"({"":{"name":"own"}})", "null"}) {
    const Lines lines = Parse("package-lock.json",
                              absl::StrCat(R"({"lockfileVersion":2,"packages":)", packages,
                                           R"(,"dependencies":{"lodash":{"version":"4.17.20"}}})"));
    ASSERT_FALSE(lines.empty()) << packages;
    EXPECT_EQ(lines[0], "npm lodash 4.17.20") << packages;
  }
  EXPECT_EQ(Parse("package-lock.json", R"({"lockfileVersion":3,"packages":{}})"),
            (Lines{"! package-lock.json: names no packages"}));
  EXPECT_THAT(Error("package-lock.json", R"({"packages":{"node_modules/a":{"version":1}}})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "packages[\"node_modules/a\"].version: is not a text"));
  EXPECT_THAT(Error("package-lock.json", R"({"dependencies":{"a":{"version":"npm:b"}}})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "behind the name"));
  // Deep nesting is refused before it is followed.
  std::string deep = "{}";
  for (int i = 0; i < 1000; ++i) deep = absl::StrCat(R"({"dependencies":{"a":)", deep, "}}");
  EXPECT_THAT(Error("package-lock.json", deep),
              StatusIs(absl::StatusCode::kInvalidArgument, "not JSON"));
}

// npm's strategy "linked" has packages behind links.
TEST(InventoryTest, ALinkLeadsToWhatIsRead) {
  EXPECT_EQ(Parse("package-lock.json", R"({"packages":{
      "node_modules/lodash":{"link":true,
          "resolved":"node_modules/.store/lodash@4.17.20-a/node_modules/lodash"},
      "node_modules/.store/lodash@4.17.20-a/node_modules/lodash":{"version":"4.17.20"}}})"),
            (Lines{"npm lodash 4.17.20", "own 1"}));
  EXPECT_EQ(
      Parse("package-lock.json", R"({"packages":{"node_modules/a":{"link":true,"resolved":"b"}}})"),
      (Lines{"! node_modules/a: is a link to what the file does not name"}));
  // One that says nothing leads nowhere, and not to the project.
  for (const char* nowhere : {R"("link":true)", R"("link":true,"resolved":null)"}) {
    EXPECT_EQ(Parse("package-lock.json",
                    absl::StrCat(R"({"packages":{"":{},"node_modules/lodash":{)", nowhere, "}}}")),
              (Lines{"! node_modules/lodash: is a link to what the file does not name", "own 1"}));
  }
  EXPECT_EQ(Parse("package-lock.json", R"({"packages":{"":{},"node_modules/own":{"link":true,
      "resolved":""}}})"),
            Lines{"own 2"});
}

// Version 2 of npm's format says the same twice, for two readers: which of them is used nobody
// knows.
TEST(InventoryTest, BothListsOfAPackageLockSayTheSame) {
  const auto parse = [](absl::string_view dependencies) {
    return Parse("package-lock.json", absl::StrCat(R"({"lockfileVersion":2,"packages":{"":{},
        "node_modules/a":{"version":"1.0.0"},"node_modules/a/node_modules/b":{"version":"2.0.0"},
        "node_modules/alias":{"name":"real","version":"3.0.0"},
        "node_modules/web":{"version":"6.0.0","resolved":"https://h/web/-/web-6.0.0.tgz"},
        "node_modules/git":{"version":"4.0.0","resolved":"git+ssh://git@h/x.git#abc"},
        "node_modules/mine":{"resolved":"packages/mine","link":true},"packages/mine":{},
        "packages/mine/node_modules/c":{"version":"5.0.0"}},"dependencies":{)",
                                                   dependencies, "}}"));
  };
  const Lines all = {
      "npm a 1.0.0", "npm b 2.0.0", "npm real 3.0.0", "npm web 6.0.0", "npm git 4.0.0 (doubtful)",
      "npm c 5.0.0", "own 3"};
  const auto with = [&](absl::string_view line) {
    Lines lines = all;
    lines.insert(lines.end() - 1, std::string(line));
    return lines;
  };
  EXPECT_EQ(parse(""), all);
  EXPECT_EQ(parse(R"("a":{"version":"1.0.0","resolved":"https://h/a/-/a-1.0.0.tgz",
                       "dependencies":{"b":{"version":"2.0.0"}}},
                     "alias":{"version":"npm:real@3.0.0"},
                     "git":{"version":"git+ssh://git@h/x.git#abc","from":"git@h/x.git"},
                     "web":{"version":"https://h/web/-/web-6.0.0.tgz"},
                     "mine":{"version":"file:packages/mine","dependencies":{
                       "c":{"version":"5.0.0"}}})"),
            all);
  const std::string lacks = "is in `dependencies`, and not in `packages`",
                    other = "is another package in `dependencies`: ";
  for (const auto& [dependencies, line] : std::vector<std::pair<std::string, std::string>>{
           {R"("lodash":{"version":"4.17.20"})", "! node_modules/lodash: " + lacks},
           {R"("b":{"version":"2.0.0"})", "! node_modules/b: " + lacks},
           {R"("a":{"version":"1.0.0","dependencies":{"d":{"version":"2.0.0"}}})",
            "! node_modules/a/node_modules/d: " + lacks},
           {R"("mine":{"version":"file:packages/mine","dependencies":{"d":{"version":"5.0.0"}}})",
            "! packages/mine/node_modules/d: " + lacks},
           {R"("a":{"version":"1.0.1"})", "! node_modules/a: " + other + "a 1.0.1"},
           {R"("a":{"version":"1.0.0","resolved":"https://h/a/-/a-1.0.1.tgz"})",
            "! node_modules/a: is at the address of something else in `dependencies`"},
           {R"("a":{"version":"npm:d@1.0.0"})", "! node_modules/a: " + other + "d 1.0.0"},
           {R"("alias":{"version":"3.0.0"})", "! node_modules/alias: " + other + "alias 3.0.0"},
           {R"("web":{"version":"https://h/web/-/web-5.0.0.tgz"})",
            "! node_modules/web: " + other + "web https://h/web/-/web-5.0.0.tgz"},
           {R"("git":{"version":"git+ssh://git@h/y.git#abc"})",
            "! node_modules/git: " + other + "git git+ssh://git@h/y.git#abc"},
           {R"("mine":{"version":"1.0.0"})", "! node_modules/mine: " + other + "mine 1.0.0"}}) {
    EXPECT_EQ(parse(dependencies), with(line)) << dependencies;
  }
}

// An archive's address has the package's name and version, and may contradict the entry.
TEST(InventoryTest, ALockedPackageIsThatOfItsAddress) {
  struct Case {
    std::string name, version, address;
    bool agrees;
  };
  // What else the address may name is tested below.
  const auto certain = [](absl::string_view lock) {
    Lines lines = Parse("package-lock.json", lock);
    std::erase_if(lines, [](const auto& line) { return absl::EndsWith(line, " (possible)"); });
    return lines;
  };
  for (const Case& c : std::vector<Case>{
           {"lodash", "4.17.20", "https://registry.npmjs.org/lodash/-/lodash-4.17.20.tgz", true},
           {"lodash", "4.17.21", "https://registry.npmjs.org/lodash/-/lodash-4.17.20.tgz", false},
           {"lodash", "4.17.21", "https://registry.npmjs.org/lodash/-/lodash-4.17.20.tgz#abc",
            false},
           {"lodash", "4.17.20", "https://registry.npmjs.org/underscore/-/underscore-4.17.20.tgz",
            false},
           {"lodash", "4.17.20", "https://registry.npmjs.org/lodash/-/underscore-4.17.20.tgz",
            false},
           {"@a/b", "1.0.0", "https://registry.npmjs.org/@a/b/-/b-1.0.0.tgz", true},
           {"@a/b", "1.0.0", "https://registry.npmjs.org/@a%2fb/-/b-1.0.0.tgz", true},
           {"@a/b", "1.0.0", "https://registry.npmjs.org/%40a%2Fb/-/b-1.0.0.tgz", true},
           {"@a/b", "1.0.0", "https://registry.npmjs.org/@c/b/-/b-1.0.0.tgz", false},
           {"@a/b", "1.0.0", "https://registry.npmjs.org/b/-/b-1.0.0.tgz", false},
           {"b", "1.0.0", "https://registry.npmjs.org/@a/b/-/b-1.0.0.tgz", false},
           {"JSONStream", "1.3.5", "https://registry.npmjs.org/JSONStream/-/jsonstream-1.3.5.tgz",
            true},
           // Mirrors, and registries of companies.
           {"a", "1.0.0-rc.1", "https://h/artifactory/api/npm/npm/a/-/a-1.0.0-rc.1.tgz", true},
           {"@a/b", "1.0.0", "https://g/api/v4/projects/1/packages/npm/@a/b/-/@a/b-1.0.0.tgz",
            true},
           {"@a/b", "1.0.0", "https://h/api/packages/x/npm/@a/b/-/1.0.0/b-1.0.0.tgz", true},
           {"@a/b", "1.0.0", "https://npm.pkg.github.com/download/@a/b/1.0.0/0123abcd", true},
           {"a", "1.0.0", "https://r.example.org/a/download/a-1.0.0.tgz?cache=0&sync=1", true},
           {"a", "1.0.0", "https://r.example.org/a/download/a-1.0.1.tgz?cache=0&sync=1", false},
           {"a", "1.0.0", "https://g/api/v4/groups/7/-/packages/npm/a/-/a-1.0.0.tgz", true},
           {"a", "1.0.0", "https://g/api/v4/groups/7/-/packages/npm/b/-/b-1.0.0.tgz", false},
           {"a", "1.0.0", "https://r.example.org/a/-/9f8e7d.tgz", true},
           {"@a/b", "1.0.0", "https://npm.pkg.github.com/download/@a/b/1.0.1/0123abcd", false},
           {"@a/b", "1.0.0", "https://npm.pkg.github.com/download/@a/c/1.0.0/0123abcd", false},
           {"@a/b", "1.0.0", "https://cdn.example.org/a-b-1.0.0.tgz", true},
           {"@a/b", "1.0.0", "https://cdn.example.org/a-b-1.0.1.tgz", false},
           // What the package says of itself at that place says nothing about the registry's.
           {"a", "1.0.0", "https://codeload.github.com/x/a/tar.gz/v9.9.9", false},
           {"a", "1.0.0", "https://codeload.github.com/x/a/tar.gz/1.0.0", false},
           {"a", "1.0.0", "https://github.com/x/a/archive/v1.0.0.tar.gz", false},
           {"a", "1.0.0", "git+ssh://git@github.com/x/a.git#0123", false},
           {"a", "1.0.0", "git+https://github.com/x/a-1.0.0.tgz", false},
           {"a", "1.0.0", "github:x/a#1.0.0", false},
           {"a", "1.0.0", "https://cdn.example.org/minimist-1.2.0.tgz", false},
           {"a", "1.0.0", "https://cdn.example.org/a/1.0.0/minimist-1.2.0.tgz", false},
           {"a", "1.0.0", "https://cdn.example.org/a-b-1.0.0.tgz", false},
           {"a", "1.0.0", "https://cdn.example.org/a.tgz", false},
           {"a", "1.0.0", "https://cdn.example.org/", false},
           {"a", "1.0.0", "https://r.example.org/a/-/a-b-1.0.0.tgz", false},
           {"a", "1.0.0", "file:vendor/other.tgz", false},
           {"a", "1.0.0", "file:vendor/a-1.0.0.tgz", true},
           {"a", "1.0.0", "file:vendor/a-2.0.0.tgz", false},
           {"a", "1.0.0", "/npm/a/-/a-2.0.0.tgz", false},
           {"a", "1.0.0", "https://r.example.org/a/-/a-2.0.0.tar.gz", false},
           {"a", "1.0.0", "https://r.example.org/a/-/a-1.0.0.tar.gz", true}}) {
    const std::string line =
        absl::StrCat("npm ", c.name, " ", c.version, c.agrees ? "" : " (doubtful)");
    const std::string entry = absl::StrCat(c.name, R"(":{"version":")", c.version,
                                           R"(","resolved":")", c.address, R"("}}})");
    EXPECT_EQ(certain(absl::StrCat(R"({"lockfileVersion":3,"packages":{"node_modules/)", entry)),
              Lines{line})
        << c.address;
    EXPECT_EQ(certain(absl::StrCat(R"({"lockfileVersion":1,"dependencies":{")", entry)),
              Lines{line})
        << c.address;
  }
  // An alias that is declared is the other package.
  const std::string real = "https://registry.npmjs.org/lodash/-/lodash-4.17.20.tgz";
  EXPECT_EQ(
      Parse("package-lock.json", absl::StrCat(R"({"packages":{"node_modules/a":{"name":"lodash",
                      "version":"4.17.20","resolved":")",
                                              real, R"("}}})")),
      Lines{"npm lodash 4.17.20"});
  EXPECT_EQ(Parse("package-lock.json",
                  absl::StrCat(R"({"dependencies":{"a":{"version":"npm:lodash@4.17.20",
                      "resolved":")",
                               real, R"("}}})")),
            Lines{"npm lodash 4.17.20"});
  EXPECT_EQ(
      Parse("package-lock.json", absl::StrCat(R"({"packages":{"node_modules/a":{"version":"4.17.20",
                      "resolved":")",
                                              real, R"("}}})")),
      (Lines{"npm lodash 4.17.20 (possible)", "npm a 4.17.20 (doubtful)"}));
  EXPECT_EQ(Parse("package-lock.json",
                  absl::StrCat(R"({"dependencies":{"a":{"resolved":")", real, R"("}}})")),
            (Lines{"npm lodash 4.17.20 (possible)", "npm a  (doubtful)"}));
  // The same of the files that Poetry names.
  for (const auto& [file, agrees] : std::vector<std::pair<std::string, bool>>{
           {"Zope.Interface-3.1.8-py3-none-any.whl", true},
           {"zope_interface-3.1.8-1-cp311-cp311-linux_x86_64.whl", true},
           {"zope_interface-3.1.7-py3-none-any.whl", false},
           {"django-3.1.8-py3-none-any.whl", false},
           {"zope.interface-3.1.8.tar.gz", true},
           {"zope-interface-3.1.8.tgz", true},
           {"zope_interface-3.1.8.post1.tar.gz", false},
           {"django-3.1.8.tar.gz", false},
           {"zope-3.1.8.zip", false},
           {"zope-interface-extra-3.1.8.tar.gz", false},
           {"zope-interface-3.1.7.tar.gz", false},
           {"zope.interface-3.1.8.win-amd64-py2.7.exe", true},
           {"a.whl", true}}) {
    const std::string name = "PyPI zope-interface 3.1.8";
    const std::string line = absl::StrCat(name, agrees ? "" : " (doubtful)");
    // A name that says nothing is enough for the file of an index alone.
    const bool said = !absl::EndsWith(file, ".exe") && file != "a.whl";
    // Until version 1.1 of Poetry's format all files stand together.
    EXPECT_EQ(Parse("poetry.lock",
                    absl::StrCat("[[package]]\nname = 'zope-interface'\nversion = '3.1.8'\n"
                                 "[metadata.files]\nZope_Interface = [{file = '",
                                 file, "', hash = 'sha256:ab'}]\n")),
              Lines{line})
        << file;
    EXPECT_EQ(Parse("poetry.lock", absl::StrCat("[[package]]\nname = 'zope-interface'\nversion = "
                                                "'3.1.8'\nfiles = [{file = '",
                                                file, "', hash = 'sha256:ab'}]\n[metadata]")),
              Lines{line})
        << file;
    EXPECT_EQ(Parse("poetry.lock",
                    absl::StrCat("[[package]]\nname = 'zope-interface'\nversion = '3.1.8'\n"
                                 "[package.source]\ntype = 'url'\nurl = 'https://h/x/",
                                 file, "#sha256=ab'\n[metadata]")),
              Lines{said ? line : absl::StrCat(name, " (doubtful)")})
        << file;
  }
  for (const char* type : {"git", "url", "file", "other"}) {
    EXPECT_EQ(Parse("poetry.lock",
                    absl::StrCat("[[package]]\nname = 'a'\nversion = '1'\n[package.source]\n"
                                 "type = '",
                                 type, "'\nurl = 'https://h/a'\n[metadata]")),
              Lines{"PyPI a 1 (doubtful)"})
        << type;
  }
  EXPECT_EQ(Parse("poetry.lock",
                  "[[package]]\nname = 'a'\nversion = '1'\n[package.source]\ntype = 'legacy'\n"
                  "url = 'https://h/a'\n[metadata]"),
            Lines{"PyPI a 1"});
  // And of Cargo's sources.
  for (const auto& [source, agrees] : std::vector<std::pair<std::string, bool>>{
           {"registry+https://github.com/rust-lang/crates.io-index", true},
           {"sparse+https://index.crates.io/", true},
           {"git+https://h/http?tag=v0.1.19#0123", false},
           {"git+https://h/http?tag=v0.1.20#0123", false},
           {"path+file:///x", false}}) {
    EXPECT_EQ(Parse("Cargo.lock",
                    absl::StrCat("[[package]]\nname = 'http'\nversion = '0.1.20'\nsource = '",
                                 source, "'\n")),
              Lines{absl::StrCat("crates.io http 0.1.20", agrees ? "" : " (doubtful)")})
        << source;
  }
}

// A lock file is whole: what a package needs is in it, or it was cut or altered.
TEST(InventoryTest, WhatALockFileNeedsIsInIt) {
  const auto missing = [](absl::string_view name, absl::string_view of) {
    return absl::StrCat("! ", name, ": is needed by ", of, ", and is not in the file");
  };
  // npm, from version 2 on. The nearest node_modules counts, and one beside it does not.
  const auto npm = [](absl::string_view packages) {
    return Parse("package-lock.json",
                 absl::StrCat(R"({"lockfileVersion":3,"packages":{)", packages, "}}"));
  };
  EXPECT_EQ(npm(R"("":{"dependencies":{"lodash":"^4.0.0"}})"),
            (Lines{missing("lodash", "the project"), "own 1"}));
  EXPECT_EQ(
      npm(R"("":{"devDependencies":{"lodash":"^4.0.0"}},"node_modules/a":{"version":"1.0.0"})"),
      (Lines{"npm a 1.0.0", missing("lodash", "the project"), "own 1"}));
  const std::string a = R"("node_modules/a":{"version":"1.0.0","dependencies":{"b":"1"}})";
  EXPECT_EQ(npm(a), (Lines{"npm a 1.0.0", missing("b", "node_modules/a")}));
  for (const char* place : {"node_modules/b", "node_modules/a/node_modules/b"}) {
    EXPECT_EQ(npm(absl::StrCat(a, ",\"", place, R"(":{"version":"2.0.0"})")),
              (Lines{"npm a 1.0.0", "npm b 2.0.0"}))
        << place;
  }
  EXPECT_EQ(npm(absl::StrCat(a, R"(,"node_modules/c":{"version":"3.0.0"},
                "node_modules/c/node_modules/b":{"version":"2.0.0"})")),
            (Lines{"npm a 1.0.0", "npm c 3.0.0", "npm b 2.0.0", missing("b", "node_modules/a")}));
  // What may be missing: peers, and of packages of others what is optional and tools to work on
  // them.
  EXPECT_EQ(npm(R"("":{"optionalDependencies":{"b":"1"},"peerDependencies":{"c":"1"}},
                "node_modules/a":{"version":"1.0.0","dependencies":{"b":"1"},
                  "optionalDependencies":{"b":"1"},"peerDependencies":{"c":"1"},
                  "devDependencies":{"d":"1"}})"),
            (Lines{"npm a 1.0.0", missing("b", "the project"), "own 1"}));
  // A workspace uses what lies above it; what lies outside of the project does not.
  EXPECT_EQ(
      npm(R"("":{},"node_modules/w":{"link":true,"resolved":"x/w"},
                "x/w":{"dependencies":{"a":"1","e":"1"},"devDependencies":{"f":"1"}},
                "x/w/node_modules/e":{"version":"5.0.0"},"node_modules/a":{"version":"1.0.0"},
                "node_modules/o":{"link":true,"resolved":"../o"},"../o":{"dependencies":{"a":"1"},
                "devDependencies":{"g":"1"}})"),
      (Lines{"npm e 5.0.0", "npm a 1.0.0", missing("f", "x/w"), missing("a", "../o"), "own 5"}));
  // What the project or a workspace asks for in one version alone is that one.
  const auto exact = [&](absl::string_view asked, absl::string_view place = "") {
    return npm(absl::StrCat("\"", place, R"(":{"dependencies":{"a":")", asked,
                            R"("}},"node_modules/a":{"version":"1.0.0"})"));
  };
  for (const char* same : {"1.0.0", "^0.9.0", "=1.0.0", "*", "0.9", "latest", "git+ssh://x", ""}) {
    EXPECT_EQ(exact(same), (Lines{"npm a 1.0.0", "own 1"})) << same;
  }
  EXPECT_EQ(exact("0.9.0"), (Lines{"npm a 0.9.0 (possible)", "npm a 1.0.0", "own 1"}));
  EXPECT_EQ(exact("npm:lodash@4.17.20"),
            (Lines{"npm lodash 4.17.20 (possible)", "npm a 1.0.0", "own 1"}));
  EXPECT_EQ(exact("0.9.0", "node_modules/b"), (Lines{"npm b ", "npm a 1.0.0"}))
      << "the project may override what a package asks for";
  EXPECT_EQ(npm(R"("":{},"node_modules/w":{"link":true,"resolved":"w"},"w":{"optionalDependencies":
      {"a":"0.9.0"}},"w/node_modules/a":{"version":"0.9.0"},"node_modules/a":{"version":"1.0.0"})"),
            (Lines{"npm a 0.9.0", "npm a 1.0.0", "own 3"}))
      << "the nearest one counts";
  // npm 11 has packages that another system needs.
  EXPECT_EQ(npm(R"("node_modules/a":{"version":"1.0.0","optional":true,"ideallyInert":true})"),
            Lines{"npm a 1.0.0"});
  // Version 1.
  const auto old = [](absl::string_view dependencies) {
    return Parse("package-lock.json",
                 absl::StrCat(R"({"lockfileVersion":1,"requires":true,"dependencies":{)",
                              dependencies, "}}"));
  };
  EXPECT_EQ(old(R"("a":{"version":"1.0.0","requires":{"b":"1"}})"),
            (Lines{"npm a 1.0.0", missing("b", "a")}));
  EXPECT_EQ(old(R"("a":{"version":"1.0.0","requires":{"b":"1"},"dependencies":{
                  "b":{"version":"2.0.0","requires":{"c":"1","a":"1"}}}},
                "c":{"version":"3.0.0","requires":{"b":"1"}})"),
            (Lines{"npm a 1.0.0", "npm b 2.0.0", "npm c 3.0.0", missing("b", "c")}));
  EXPECT_EQ(Parse("package-lock.json", R"({"packages":{"":{"dependencies":{"a":"1","b":"1"}}},
                  "dependencies":{"a":{"version":"1.0.0"}}})"),
            (Lines{"npm a 1.0.0", missing("b", "the project"), "own 1"}));
  // Poetry. What holds under a condition may hold nowhere.
  EXPECT_EQ(
      Parse("poetry.lock",
            "[[package]]\nname = 'a'\nversion = '1'\n[package.dependencies]\nb = '>=1'\n"
            "c = {version = '*', optional = true}\nd = {version = '*', markers = 'x'}\n"
            "e = [{version = '1', python = '<3'}]\nf = {version = '*', extras = ['x']}\n"
            "A_B = '*'\ng = [{version = '1', python = '<3'}, '*']\n[[package]]\nname = "
            "'a-b'\nversion = '2'\n[metadata]\n"),
      (Lines{"PyPI a 1", "PyPI a-b 2", missing("b", "a"), missing("f", "a"), missing("g", "a")}));
  EXPECT_EQ(Parse("poetry.lock",
                  "[[package]]\nname = 'a'\nversion = '1'\n[metadata]\nlock-version = '1.1'\n"
                  "packages = 1\n[metadata.files]\na = []\nb = []\n[metadata.hashes]\nc = []\n"),
            (Lines{"PyPI a 1", "! b: is named in metadata.files, and is no package of the file",
                   "! c: is named in metadata.hashes, and is no package of the file",
                   "! metadata.packages: is a part of the file that is not known here"}));
  // Cargo, by name, with a version where there are several, with a source in the first version.
  const auto cargo = [](absl::string_view dependency) {
    return Parse(
        "Cargo.lock",
        absl::StrCat("[[package]]\nname = 'own'\nversion = '0.1.0'\ndependencies = ['", dependency,
                     "']\n[[package]]\nname = 'http'\nversion = '0.1.19'\n"
                     "source = 'registry+x'\n"));
  };
  const Lines whole = {"crates.io http 0.1.19", "own 1"};
  for (const char* has : {"http", "http 0.1.19", "http 0.1.19 (registry+x)", "own"}) {
    EXPECT_EQ(cargo(has), whole) << has;
  }
  for (const char* lacks : {"htt", "http 0.1.20", "time", "own 0.1.0 (registry+x)"}) {
    EXPECT_EQ(cargo(lacks), (Lines{whole[0], missing(lacks, "own"), whole[1]})) << lacks;
  }
  const auto replaced = [](absl::string_view by) {
    return Parse("Cargo.lock", absl::StrCat("[[package]]\nname = 'http'\nversion = '0.1.20'\n"
                                            "source = 'registry+x'\nreplace = '",
                                            by,
                                            "'\n[[package]]\nname = 'http'\nversion = '0.1.18'\n"
                                            "source = 'git+x'\n"));
  };
  const Lines both = {"crates.io http 0.1.20", "crates.io http 0.1.18 (doubtful)"};
  EXPECT_EQ(replaced("http 0.1.18 (git+x)"), both);
  EXPECT_EQ(
      replaced("http 0.1.19 (git+x)"),
      (Lines{both[0], both[1], "! http 0.1.19 (git+x): replaces http, and is not in the file"}));
  EXPECT_THAT(Error("Cargo.lock", "[[package]]\nname = 'a'\nversion = '1.0.0'\ndependencies = 1"),
              StatusIs(absl::StatusCode::kInvalidArgument, "Cargo.lock:4: `dependencies` is not"));
  EXPECT_EQ(
      Parse("Cargo.lock",
            "[[package]]\nname = 'http'\nversion = '0.1.19'\nsource = 'registry+x'\n"
            "[metadata]\n'checksum http 0.1.19 (registry+x)' = 'ab'\n"
            "'checksum http 0.1.18 (registry+x)' = 'ab'\n'other' = 'ab'\n"),
      (Lines{"crates.io http 0.1.19",
             "! http 0.1.18 (registry+x): has a checksum in the file, and is no package of it",
             "! metadata.other: is a part of the file that is not known here"}));
}

TEST(InventoryTest, GoSum) {
  EXPECT_EQ(
      Parse("go.sum",
            "github.com/a/b v1.2.3 h1:abc=\ngithub.com/a/b v1.2.3/go.mod h1:def=\n"
            "golang.org/x/crypto v0.0.0-20190308221718-c2843e01d9a2 h1:x=\n"
            "h.org/only v1.0.0/go.mod h1:x=\n\n \th.org/c  v1.0.0\th1:x= \n"),
      (Lines{"Go github.com/a/b v1.2.3",
             "Go golang.org/x/crypto v0.0.0-20190308221718-c2843e01d9a2", "Go h.org/c v1.0.0"}));
  // What a toolchain brings is Go itself.
  EXPECT_EQ(Parse("go.sum",
                  "golang.org/toolchain v0.0.1-go1.21.0.linux-amd64 h1:x=\n"
                  "golang.org/toolchain v0.0.1-go1.22.0.linux-amd64/go.mod h1:x=\n"),
            (Lines{"Go stdlib 1.21.0", "Go toolchain 1.21.0",
                   "Go golang.org/toolchain v0.0.1-go1.21.0.linux-amd64"}));
  EXPECT_THAT(Error("go.sum", "a v1 h1:x\nb v1 h1:x"),
              StatusIs(absl::StatusCode::kInvalidArgument, "ends within a line"));
  EXPECT_THAT(Error("go.sum", "a v1 h1:x\rb v1 h1:x\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "go.sum:1: "));
  EXPECT_THAT(Error("go.sum", "a v1 h1:x\nnonsense\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "go.sum:2: not a module"));
}

TEST(InventoryTest, CycloneDx) {
  EXPECT_EQ(Parse("bom", R"({"bomFormat":"CycloneDX","specVersion":"1.5",
      "metadata":{"component":{"type":"application","name":"own"}},"components":[
      {"type":"library","name":"core","purl":"pkg:npm/%40angular/core@12.0.0","components":[
        {"type":"library","name":"http","purl":"pkg:cargo/http@0.1.19"}]},
      {"type":"library","name":"b","purl":"pkg:golang/github.com/a/b@v1.2.3"},
      {"type":"library","name":"django","purl":"pkg:pypi/Django@3.2.1?extension=whl"},
      {"type":"library","name":"libssl3",
       "purl":"pkg:deb/debian/libssl3@3.0.15-1~deb12u1?upstream=openssl&distro=debian-12"},
      {"type":"library","name":"bash",
       "purl":"pkg:deb/debian/bash@5.2.15-2%2Bb7?upstream=bash%405.2.15-2&distro=debian-12.5"},
      {"type":"library","name":"j","purl":"pkg:maven/org.a/b@1.0"},
      {"type":"library","name":"plain"},
      {"type":"file","name":"/bin/x"},
      {"type":"library","name":"u","purl":"pkg:deb/ubuntu/u@1.0"},
      {"type":"library","name":"broken","purl":"http://x"}]})"),
            (Lines{"npm @angular/core 12.0.0", "npm core 12.0.0 (possible)",
                   "crates.io http 0.1.19", "Go github.com/a/b v1.2.3", "PyPI Django 3.2.1",
                   "Debian:12 openssl 3.0.15-1~deb12u1", "Debian:12 bash 5.2.15-2",
                   "! pkg:maven/org.a/b@1.0: no reader knows packages of type maven",
                   "! plain: has no package URL",
                   "! pkg:deb/ubuntu/u@1.0: does not say of which distribution it is; "
                   "--distribution would",
                   "! http://x: is no package URL", "own 1"}));
  EXPECT_EQ(Parse("bom", R"({"bomFormat":"CycloneDX","components":[]})"),
            (Lines{"! bom: names no packages"}));
  // What this machine runs says nothing about a bill of materials.
  const auto deb = [](absl::string_view url, const Distribution& distribution) {
    return Parse(
        "bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":")", url, R"("}]})"),
        distribution)[0];
  };
  const std::string unknown = "does not say of which distribution it is; --distribution would";
  EXPECT_EQ(deb("pkg:deb/debian/u@1", {.here = "Debian:12"}),
            absl::StrCat("! pkg:deb/debian/u@1: ", unknown));
  EXPECT_EQ(deb("pkg:deb/debian/u@1?upstream=u", {.stated = "Debian:12"}), "Debian:12 u 1");
  EXPECT_EQ(deb("pkg:deb/debian/u@1?distro=debian-11&upstream=u", {.stated = "Debian:12"}),
            "Debian:11 u 1");
  EXPECT_EQ(deb("pkg:deb/u@1?DISTRO=debian-11&upstream=u", {}), "Debian:11 u 1");
  EXPECT_EQ(deb("pkg:deb/debian/u@1?distro=sid", {.stated = "Debian:12"}),
            "! pkg:deb/debian/u@1?distro=sid: is of a distribution that is not known: sid");
  for (const char* url : {"pkg:deb/ubuntu/u@1", "pkg:deb/u@1",
                          "pkg:deb/ubuntu/u@1?distro=debian-12", "pkg:deb/debi/u@1"}) {
    EXPECT_EQ(deb(url, {.stated = "Debian:12"}),
              absl::StrCat("! ", url, ": is no package of Debian:12"));
  }
  // An epoch stands before the version, unless that has it already.
  const Distribution bookworm = {.stated = "Debian:12"};
  EXPECT_EQ(deb("pkg:deb/debian/u@2-1?epoch=1&upstream=u", bookworm), "Debian:12 u 1:2-1");
  EXPECT_EQ(deb("pkg:deb/debian/u@1:2-1?epoch=1&upstream=u", bookworm), "Debian:12 u 1:2-1");
  EXPECT_EQ(deb("pkg:deb/debian/u@2-1?epoch=0&upstream=u", bookworm), "Debian:12 u 2-1");
  EXPECT_EQ(deb("pkg:deb/debian/u@2-1?epoch=1&upstream=v%401:3", bookworm), "Debian:12 v 1:3");
  EXPECT_EQ(deb("pkg:deb/debian/u@2:2-1?epoch=1", bookworm),
            "! pkg:deb/debian/u@2:2-1?epoch=1: has two epochs");
  EXPECT_EQ(deb("pkg:deb/debian/u@2-1?epoch=1&upstream=v%403", bookworm),
            "! pkg:deb/debian/u@2-1?epoch=1&upstream=v%403: does not say the epoch of its source "
            "package");
  EXPECT_EQ(deb("pkg:pypi/u@2.0?epoch=1", {}), "PyPI u 1!2.0");
  EXPECT_EQ(deb("pkg:pypi/u?epoch=1", {}), "PyPI u ");
  EXPECT_EQ(deb("pkg:deb/debian/u?epoch=1&upstream=u", bookworm), "Debian:12 u ");
  EXPECT_EQ(deb("pkg:npm/u@2.0.0?epoch=1", {}),
            "! pkg:npm/u@2.0.0?epoch=1: has an epoch, which its version cannot have");
  EXPECT_EQ(deb("pkg:npm/angular/core@1.0.0", {}),
            "! pkg:npm/angular/core@1.0.0: has a namespace that is no scope of npm");
  EXPECT_EQ(deb("pkg:pypi/x/u@2.0", {}),
            "! pkg:pypi/x/u@2.0: has a namespace, which packages of its type have not");
  EXPECT_THAT(Error("bom.json", R"({"bomFormat":"CycloneDX","specVersion":"2.0"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "specVersion: is not version 1"));
  EXPECT_THAT(Error("bom.json", R"({"bomFormat":"Other"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "bomFormat: is not CycloneDX"));
}

// What a bill of materials is about is a package, too.
TEST(InventoryTest, TheSubjectOfABillIsRead) {
  const auto parse = [](absl::string_view subject, absl::string_view components) {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"component":)",
                                     subject, R"(},"components":[)", components, "]}"));
  };
  const std::string part = R"({"type":"library","name":"p","purl":"pkg:pypi/p@1"})";
  EXPECT_EQ(parse(R"({"type":"library","name":"a","purl":"pkg:pypi/a@1"})", part),
            (Lines{"PyPI a 1", "PyPI p 1"}));
  EXPECT_EQ(parse(R"({"type":"library","name":"a"})", part), (Lines{"PyPI p 1", "own 1"}));
  EXPECT_EQ(parse(R"({"type":"container","name":"a","purl":"pkg:oci/a@sha256:1"})", part),
            (Lines{"PyPI p 1", "own 1"}));
  EXPECT_EQ(parse(R"({"type":"application","name":"a","components":[)" + part + "]}", ""),
            (Lines{"PyPI p 1", "own 1"}));
  // If there is nothing else, it is what is to be audited.
  EXPECT_EQ(parse(R"({"type":"library","name":"a"})", ""), (Lines{"! a: has no package URL"}));
  // Members that nobody knows, and other documents.
  EXPECT_EQ(Parse("bom", R"({"bomFormat":"CycloneDX","component":[],"components":[{"name":"a",
      "type":"file","Purl":"x","externalReferences":[{"type":"bom","url":"urn:b"}]}]})"),
            (Lines{"! component: is a part of the file that is not known here",
                   "! a.Purl: is a part of the file that is not known here",
                   "! urn:b: is another bill of materials: give that one, too"}));
}

// A tool that writes no `upstream` at all says nothing by leaving it out.
TEST(InventoryTest, ADistributionIsWrittenAsToolsWriteIt) {
  const auto parse = [](absl::string_view distro) {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":
        "pkg:deb/debian/a@1?upstream=a&distro=)",
                                     distro, R"("}]})"));
  };
  EXPECT_EQ(parse("debian-12.5"), Lines{"Debian:12 a 1"});
  for (const char* odd :
       {"%20debian-12", "debian-12%20", "ubuntu%0AID=debian-12", "%22debian-12"}) {
    const Lines lines = parse(odd);
    ASSERT_EQ(lines.size(), 1u) << odd;
    EXPECT_THAT(lines[0], ::testing::HasSubstr("is of a distribution that is not known")) << odd;
  }
}

TEST(InventoryTest, WhichSourceADebianPackageIsOfMustBeSaid) {
  const auto parse = [](absl::string_view tools, absl::string_view properties = "[]") {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"tools":)", tools,
                                     R"(},"components":[{"name":"libssl3","purl":
            "pkg:deb/debian/libssl3@3.0-1?distro=debian-12","properties":)",
                                     properties, "}]}"));
  };
  const Lines doubtful = {"Debian:12 libssl3 3.0-1 (doubtful)"};
  EXPECT_EQ(parse("[]"), doubtful);
  EXPECT_EQ(parse(R"([{"vendor":"aquasecurity","name":"trivy"}])"), doubtful);
  EXPECT_EQ(parse(R"([{"name":"syft"},{"name":"other"}])"), doubtful);
  EXPECT_EQ(parse(R"({"components":[{"type":"application","name":"other"}]})"), doubtful);
  // Before 0.37.0 syft left it out always; what is not said may be such a version.
  for (const char* tool :
       {R"("name":"syft")", R"("name":"syft","version":"0.36.0")",
        R"("name":"syft","version":"[not provided]")", R"("name":"syft-plugin","version":"1.0.0")",
        R"("name":"syft-1.0.0")", R"("name":"syft","version":"0.37.0-rc.1")"}) {
    EXPECT_EQ(parse(absl::StrCat("[{", tool, "}]")), doubtful) << tool;
    EXPECT_EQ(parse(absl::StrCat(R"({"components":[{"type":"application",)", tool, "}]}")),
              doubtful)
        << tool;
  }
  // The properties say that it found the package itself: it takes others from bills of materials,
  // and a program that passes its bill on may have taken the properties out.
  for (const char* finder : {"dpkgdb-cataloger", "dpkg-db-cataloger", "deb-archive-cataloger",
                             "sbom-cataloger", "other", ""}) {
    const std::string property =
        absl::StrCat(R"([{"name":"syft:package:foundBy","value":")", finder, R"("}])");
    const Lines lines = absl::StartsWith(finder, "d") ? Lines{"Debian:12 libssl3 3.0-1"} : doubtful;
    for (const char* version : {"0.37.0", "v0.90.0", "1.0.0"}) {
      const std::string tool = absl::StrCat(R"([{"name":"syft","version":")", version, R"("}])");
      EXPECT_EQ(parse(tool, property), lines) << version << finder;
      EXPECT_EQ(parse(absl::StrCat(R"({"components":)", tool, "}"), property), lines)
          << version << finder;
      EXPECT_EQ(parse(tool), doubtful) << version;
    }
  }
  const std::string syft = R"([{"name":"syft","version":"1.0.0"}])";
  EXPECT_EQ(parse(syft, R"([{"name":"syft:package:foundBy","value":"dpkg-db-cataloger"},
                            {"name":"syft:package:foundBy","value":"sbom-cataloger"}])"),
            (Lines{"! pkg:deb/debian/libssl3@3.0-1?distro=debian-12: has two source packages"}));
  EXPECT_EQ(parse(R"([{"name":"syft","version":"0.36.0"}])",
                  R"([{"name":"syft:metadata:source","value":"openssl"}])"),
            (Lines{"Debian:12 openssl 3.0-1"}));
  EXPECT_EQ(parse(syft, R"([{"name":"syft:metadata:source","value":"openssl"},
                            {"name":"syft:metadata:sourceVersion","value":"3.0.1"}])"),
            (Lines{"Debian:12 openssl 3.0.1"}));
  // Which of two sources it is, nobody can tell.
  const Lines two = {"! pkg:deb/debian/libssl3@3.0-1?distro=debian-12: has two source packages"};
  EXPECT_EQ(parse("[]", R"([{"name":"aquasecurity:trivy:SrcName","value":"openssl"},
                            {"name":"aquasecurity:trivy:SrcName","value":"bash"},
                            {"name":"aquasecurity:trivy:SrcVersion","value":"3.0.15"}])"),
            two);
  EXPECT_EQ(parse("[]", R"([{"name":"aquasecurity:trivy:SrcName","value":"openssl"},
                            {"name":"aquasecurity:trivy:SrcVersion","value":"3.0.15"},
                            {"name":"syft:metadata:source","value":"bash"}])"),
            two);
  EXPECT_EQ(
      Parse("bom", R"({"bomFormat":"CycloneDX","components":[{"name":"l",
      "purl":"pkg:deb/debian/l@3?distro=debian-12&upstream=bash","properties":[
        {"name":"syft:metadata:source","value":"openssl"}]}]})"),
      (Lines{"! pkg:deb/debian/l@3?distro=debian-12&upstream=bash: has two source packages"}));
  EXPECT_EQ(parse(R"([{"name":"trivy"}])", R"([
      {"name":"aquasecurity:trivy:SrcName","value":"openssl"},
      {"name":"aquasecurity:trivy:SrcVersion","value":"3.0.15"},
      {"name":"aquasecurity:trivy:SrcRelease","value":"1~deb12u1"},
      {"name":"aquasecurity:trivy:SrcEpoch","value":"1"}])"),
            (Lines{"Debian:12 openssl 1:3.0.15-1~deb12u1"}));
  for (const auto& [creator, lines] : {std::pair("Tool: trivy-0.50", doubtful),
                                       {"Tool: syft-0.36.0", doubtful},
                                       {"Tool: syft-plugin-1.0.0", doubtful},
                                       {"Tool: syft", doubtful},
                                       {"Tool: syft-v0.37.1", {"Debian:12 libssl3 3.0-1"}},
                                       {"Tool: syft-1.0.0", {"Debian:12 libssl3 3.0-1"}}}) {
    for (const bool says_where : {false, true}) {
      const std::string where =
          says_where ? "acquired package info from DPKG DB: /var/lib/dpkg/status" : "";
      EXPECT_EQ(
          Parse("sbom", absl::StrCat("SPDXVersion: SPDX-2.3\nCreator: Organization: x\nCreator: ",
                                     creator, "\nPackageName: libssl3\nPackageSourceInfo: ", where,
                                     "\nExternalRef: PACKAGE-MANAGER "
                                     "purl pkg:deb/debian/libssl3@3.0-1?distro=debian-12\n")),
          says_where ? lines : doubtful);
      EXPECT_EQ(
          Parse("sbom.spdx.json",
                absl::StrCat(R"({"spdxVersion":"SPDX-2.3","creationInfo":{"creators":[")", creator,
                             R"("]},"packages":[{"name":"libssl3","sourceInfo":")", where,
                             R"(","externalRefs":[{"referenceType":"purl",
            "referenceLocator":"pkg:deb/debian/libssl3@3.0-1?distro=debian-12"}]}]})")),
          says_where ? lines : doubtful);
    }
  }
  // Trivy writes the source there.
  for (const auto& [info, lines] : std::vector<std::pair<std::string, Lines>>{
           {"built package from: openssl 1:3.0.15-1~deb12u1",
            {"Debian:12 openssl 1:3.0.15-1~deb12u1"}},
           {"built package from: openssl", {"Debian:12 openssl 3.0-1"}},
           {"built package from: ", doubtful},
           {"built package from: one two three", doubtful}}) {
    EXPECT_EQ(Parse("sbom.spdx.json",
                    absl::StrCat(R"({"spdxVersion":"SPDX-2.3","creationInfo":{"creators":
            ["Tool: trivy-0.50.0"]},"packages":[{"name":"libssl3","sourceInfo":")",
                                 info, R"(","externalRefs":[{"referenceType":"purl",
            "referenceLocator":"pkg:deb/debian/libssl3@3.0-1?distro=debian-12"}]}]})")),
              lines)
        << info;
  }
  // What syft took from another bill is as it stands there, and its place says so.
  for (const auto& [place, is_known] : std::vector<std::pair<std::string, bool>>{
           {"/var/lib/dpkg/status", true},
           {"var/lib/dpkg/status.d/bom-tool, /var/lib/dpkg/info/x.md5sums", true},
           {"", false},
           {"/opt/app/sbom-debian.json", false},
           {"/cache/x_1.0_amd64.deb", true},
           {"/usr/lib/opkg/status", true},
           {"/opt/app.spdx.json", false},
           {"/var/lib/dpkg/status, /usr/share/sbom/image.cdx", false},
           {"/opt/appbom.xml", false},
           {"/opt/bom", false},
           {"C:\\\\x\\\\sbom", false},
           {"/opt/x.syft.json", false}}) {
    const Lines lines = is_known ? Lines{"Debian:12 libssl3 3.0-1"} : doubtful;
    EXPECT_EQ(Parse("sbom.spdx.json",
                    absl::StrCat(R"({"spdxVersion":"SPDX-2.3","creationInfo":{"creators":
            ["Tool: syft-1.0.0"]},"packages":[{"name":"libssl3","sourceInfo":
            "acquired package info from DPKG DB: )",
                                 place, R"(","externalRefs":[{"referenceType":"purl",
            "referenceLocator":"pkg:deb/debian/libssl3@3.0-1?distro=debian-12"}]}]})")),
              lines)
        << place;
    EXPECT_EQ(Parse("sbom",
                    absl::StrCat("SPDXVersion: SPDX-2.3\nCreator: Tool: syft-1.0.0\n"
                                 "PackageName: libssl3\nPackageSourceInfo: <text>acquired package "
                                 "info from DPKG DB: ",
                                 absl::StrReplaceAll(place, {{"\\\\", "\\"}}),
                                 "</text>\nExternalRef: PACKAGE-MANAGER purl "
                                 "pkg:deb/debian/libssl3@3.0-1?distro=debian-12\n")),
              lines)
        << place;
  }
}

// A package URL and what its component says beside it are one package.
TEST(InventoryTest, AComponentIsThatOfItsPackageUrl) {
  struct Case {
    std::string group, name, version, url;
    bool agrees;
  };
  for (const Case& c : std::vector<Case>{
           {"", "lodash", "4.17.20", "pkg:npm/lodash@4.17.20", true},
           {"", "lodash", "4.17.20", "pkg:npm/lodash@4.17.21", false},
           {"", "lodash", "", "pkg:npm/lodash@4.17.21", true},
           {"", "underscore", "4.17.20", "pkg:npm/lodash@4.17.20", false},
           {"@angular", "core", "1.0.0", "pkg:npm/%40angular/core@1.0.0", true},
           {"angular", "core", "1.0.0", "pkg:npm/%40angular/core@1.0.0", true},
           {"@angular", "@angular/core", "1.0.0", "pkg:npm/%40angular/core@1.0.0", true},
           {"", "@angular/core", "1.0.0", "pkg:npm/%40angular/core@1.0.0", true},
           {"", "core", "1.0.0", "pkg:npm/%40angular/core@1.0.0", true},
           {"", "text", "v0.3.6", "pkg:golang/golang.org/x/text@v0.3.6", true},
           {"", "actions/checkout", "4.*.*", "pkg:githubactions/Actions/Checkout@4.%2A.%2A", true},
           {"actions", "checkout", "4.1.0", "pkg:githubactions/actions/checkout@v4.1.0", true},
           {"", "actions/cache", "v4.1.0", "pkg:githubactions/actions/checkout@v4.1.0", false},
           {"@other", "core", "1.0.0", "pkg:npm/%40angular/core@1.0.0", false},
           {"@angular", "core", "1.0.0", "pkg:npm/core@1.0.0", false},
           {"", "JSONStream", "1.0.0", "pkg:npm/jsonstream@1.0.0", true},
           {"", "npm:lodash", "4.17.20", "pkg:npm/lodash@4.17.20", true},
           {"golang.org/x", "text", "v0.3.6", "pkg:golang/golang.org/x/text@v0.3.6", true},
           {"", "golang.org/x/text", "0.3.6", "pkg:golang/golang.org/x/text@v0.3.6", true},
           {"golang.org/x", "text", "v0.3.6", "pkg:golang/golang/text@v0.3.6", false},
           {"", "golang.org/x/text", "v0.3.6", "pkg:golang/text@v0.3.6", false},
           {"", "h.org/a/b", "v0.3.6", "pkg:golang/h.org/a@v0.3.6?type=module#b", true},
           {"", "std", "go1.21.0", "pkg:golang/stdlib@1.21.0", true},
           {"", "stdlib", "v1.21.1", "pkg:golang/stdlib@1.21.0", false},
           {"", "Zope.Interface", "1.0", "pkg:pypi/zope-interface@1.0.0", true},
           {"Django Software", "django", "3.1.8", "pkg:pypi/django@3.1.8", true},
           {"", "django", "3.1.8", "pkg:pypi/django@3.1.7", false},
           {"", "serde_json", "1.0.0", "pkg:cargo/serde-json@1.0.0", true},
           {"", "main", "1.0.0", "pkg:cargo/serde-json@1.0.0#src/main.rs", true},
           {"debian", "libssl3", "1:3.0-1", "pkg:deb/debian/libssl3@3.0-1?epoch=1", true},
           {"", "libssl3:amd64", "1:3.0-1", "pkg:deb/debian/libssl3@1%3A3.0-1", true},
           {"", "libssl3", "3.0-2", "pkg:deb/debian/libssl3@3.0-1", false},
           {"", "libssl1", "3.0-1", "pkg:deb/debian/libssl3@3.0-1", false},
           {"", "openssl", "3.0-1", "pkg:deb/debian/bash@3.0-1#openssl", false},
           {"", "bash", "3.0-1", "pkg:deb/debian/ba%5Dsh@3.0-1?upstream=openssl", false},
           {"", "any", "9", "pkg:maven/org.a/b@1.0", true}}) {
    const auto contradicts = [](const Lines& lines) {
      return std::ranges::any_of(lines, [](const std::string& line) {
        return absl::StrContains(line, "contradicts its package URL");
      });
    };
    const Lines in_cyclonedx = Parse(
        "bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"type":"library","group":")",
                            c.group, R"(","name":")", c.name, R"(","version":")", c.version,
                            R"(","purl":")", c.url, R"("}]})"));
    EXPECT_EQ(contradicts(in_cyclonedx), !c.agrees) << c.name << " " << c.url;
    // What the package URL names is looked up all the same.
    EXPECT_GT(in_cyclonedx.size(), c.agrees ? 0u : 1u) << c.url;
    if (!c.group.empty()) continue;  // SPDX has none
    EXPECT_EQ(contradicts(Parse(
                  "x.spdx.json",
                  absl::StrCat(R"({"spdxVersion":"SPDX-2.3","packages":[{"name":")", c.name,
                               R"(","versionInfo":")", c.version,
                               R"(","externalRefs":[{"referenceType":"purl","referenceLocator":")",
                               c.url, R"("}]}]})"))),
              !c.agrees)
        << c.name << " " << c.url;
    EXPECT_EQ(
        contradicts(Parse(
            "x", absl::StrCat("SPDXVersion: SPDX-2.3\nPackageName: ", c.name,
                              "\nPackageVersion: ", c.version.empty() ? "NOASSERTION" : c.version,
                              "\nExternalRef: PACKAGE-MANAGER purl ", c.url, "\n"))),
        !c.agrees)
        << c.name << " " << c.url;
  }
  EXPECT_EQ(Parse("bom", R"({"bomFormat":"CycloneDX","components":[
      {"name":"lodash","version":"4.17.20","purl":"pkg:npm/lodash@4.17.21"}]})"),
            (Lines{"npm lodash 4.17.21",
                   "! lodash 4.17.20: contradicts its package URL: pkg:npm/lodash@4.17.21"}));
  // `npm sbom` names the directories that packages lie in, which may be the packages' names.
  for (const auto& [tool, size] :
       std::vector<std::pair<std::string, size_t>>{{R"("vendor":"npm","name":"cli")", 3},
                                                   {R"("vendor":"other","name":"cli")", 4},
                                                   {R"("name":"npm")", 4}}) {
    EXPECT_EQ(Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"tools":[{)", tool,
                                        R"(}],"component":{"name":"src","version":"1.0.0",
        "purl":"pkg:npm/project@1.0.0"}},"components":[{"name":"alias","version":"2.1.2",
        "purl":"pkg:npm/ms@2.1.2"}]})"))
                  .size(),
              size)
        << tool;
  }
  // One of several package URLs is enough.
  EXPECT_EQ(Parse("x",
                  "SPDXVersion: SPDX-2.3\nPackageName: a\nPackageVersion: 1.0.0\n"
                  "ExternalRef: PACKAGE-MANAGER purl pkg:npm/b@2.0.0\n"
                  "ExternalRef: PACKAGE-MANAGER purl pkg:npm/a@1.0.0\n"),
            (Lines{"npm b 2.0.0", "npm a 1.0.0"}));
}

// A bill may say itself that it lacks something.
TEST(InventoryTest, ABillThatSaysThatItLacksPackagesIsUnchecked) {
  const auto parse = [](absl::string_view compositions) {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","serialNumber":"urn:uuid:1",
        "metadata":{"component":{"type":"application","name":"own","bom-ref":"top"}},
        "components":[{"name":"p","bom-ref":"p","purl":"pkg:pypi/p@1"}],"compositions":[)",
                                     compositions, "]}"));
  };
  const Lines complete = {"PyPI p 1", "own 1"};
  for (const char* composition :
       {"", R"({"aggregate":"complete","assemblies":["top"]})", R"({"aggregate":"complete"})",
        R"({"aggregate":"unknown","dependencies":["p"]})",
        R"({"aggregate":"not_specified","assemblies":["p"]})",
        R"({"aggregate":"incomplete","vulnerabilities":["v"]})"}) {
    EXPECT_EQ(parse(composition), complete) << composition;
  }
  for (const char* aggregate :
       {"incomplete", "incomplete_first_party_only", "incomplete_third_party_only",
        "incomplete_third_party_opensource_only", "unknown", "not_specified", "other", ""}) {
    for (const char* of : {R"("assemblies":["top"])", R"("dependencies":["p","top"])",
                           R"("assemblies":["urn:uuid:1"])", R"("bom-ref":"c")"}) {
      EXPECT_EQ(
          parse(absl::StrCat(R"({"aggregate":")", aggregate, R"(",)", of, "}")),
          (Lines{"PyPI p 1",
                 absl::StrCat("! compositions: say that packages may be missing: ", aggregate),
                 "own 1"}))
          << of;
    }
  }
  // What is missing below a part is missing in the whole.
  EXPECT_EQ(parse(R"({"aggregate":"incomplete","dependencies":["p"]})").size(), 3u);
  EXPECT_EQ(parse(R"({"aggregate":"complete","assembly":["p"]})")[1],
            "! compositions.assembly: is a part of the file that is not known here");
}

// What is no name is not looked up, where it would be absent.
TEST(InventoryTest, NamesThatNoRegistryHasAreUnchecked) {
  const auto parse = [](absl::string_view url) {
    return Parse(
        "bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":")", url, R"("}]})"));
  };
  for (const auto& [url, what] : std::vector<std::pair<std::string, std::string>>{
           {"pkg:pypi/django%5Bbcrypt%5D@3.1.8", "django[bcrypt]"},
           {"pkg:pypi/django==3.1.8", "django==3.1.8"},
           {"pkg:npm/lodash%404.17.20", "lodash@4.17.20"},
           {"pkg:golang/https://golang.org/x/text@v0.3.6", "https:/golang.org/x/text"},
           {"pkg:golang/golang/text@v0.3.6", "golang/text"},
           {"pkg:golang/text@v0.3.6", "text"},
           {"pkg:golang/gin-gonic/gin@v1.6.0", "gin-gonic/gin"},
           {"pkg:golang/net/http@1.21.0", "net/http"},
           {"pkg:golang/go@1.21.0", "go"},
           {"pkg:golang/h/vault@v0.9.0#api/auth", "h/vault"},
           {"pkg:githubactions/checkout@v4", "checkout"},
           {"pkg:deb/debian/openssl:amd64@3?distro=debian-12&upstream=openssl:amd64",
            "openssl:amd64"}}) {
    const Lines lines = parse(url);
    ASSERT_EQ(lines.size(), 1u) << url;
    EXPECT_EQ(lines[0].find(absl::StrCat("! ", what, ": is no name of a package of ")), 0u)
        << lines[0];
  }
  EXPECT_EQ(
      Parse("poetry.lock", "[[package]]\nname = 'django[bcrypt]'\nversion = '3.1.8'\n[metadata]"),
      Lines{"! django[bcrypt]: is no name of a package of PyPI"});
  EXPECT_EQ(Parse("METADATA", "Name: django;extra\nVersion: 3.1.8\n"),
            Lines{"! django;extra: is no name of a package of PyPI"});
  EXPECT_EQ(Parse("package-lock.json", R"({"packages":{"node_modules/lodash":
      {"name":"lodash@4.17.20","version":"4.17.20"}}})"),
            Lines{"! lodash@4.17.20: is no name of a package of npm"});
  EXPECT_EQ(Parse("status",
                  "Package: libssl3\nStatus: install ok installed\nSource: openssl:amd64\n"
                  "Architecture: amd64\nVersion: 3\n",
                  {.stated = "Debian:12"}),
            Lines{"! openssl:amd64: is no name of a package of Debian:12"});
}

// A package URL of Go leaves open where the module's path ends.
TEST(InventoryTest, GosPackageUrls) {
  const auto parse = [](absl::string_view url) {
    return Parse(
        "bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":")", url, R"("}]})"));
  };
  EXPECT_EQ(parse("pkg:golang/h.org/net@v5.3.0#v5"),
            (Lines{"Go h.org/net v5.3.0 (possible)", "Go h.org/net/v5 v5.3.0"}));
  // Each of its parts could be a module's end: not a million copies of it.
  for (const bool subpath : {false, true}) {
    std::string path;
    for (int i = 0; i < 1'000'000; ++i) path += "/x";
    EXPECT_EQ(parse(absl::StrCat("pkg:golang/a.b", subpath ? "/m@v1.0.0#" : "", path,
                                 subpath ? "" : "@v1.0.0"))
                  .size(),
              1u);
  }
  EXPECT_EQ(parse("pkg:golang/h.org/vault@v0.9.0#/api/auth/"),
            (Lines{"Go h.org/vault v0.9.0 (possible)", "Go h.org/vault/api v0.9.0 (possible)",
                   "Go h.org/vault/api/auth v0.9.0"}));
  for (const auto& [version, release] :
       std::vector<std::pair<std::string, std::string>>{{"v1.21.7", "1.21.7"},
                                                        {"1.21.7", "1.21.7"},
                                                        {"go1.21.7", "1.21.7"},
                                                        {"go1.21", "1.21.0"},
                                                        {"go1.21rc2", "1.21.0-rc.2"},
                                                        {"go1.22.0beta1", "1.22.0-beta.1"},
                                                        {"1.21.0-rc2", "1.21.0-rc.2"},
                                                        {"v1.21.0-rc.2", "1.21.0-rc.2"},
                                                        {"go1.21.7-custom", "go1.21.7-custom"},
                                                        {"devel", "devel"},
                                                        {"go1.", "go1."}}) {
    for (const char* name : {"std", "stdlib"}) {
      EXPECT_EQ(parse(absl::StrCat("pkg:golang/", name, "@", version, "#net/http")),
                Lines{absl::StrCat("Go stdlib ", release)});
    }
  }
  EXPECT_EQ(parse("pkg:golang/toolchain@go1.21.0"), Lines{"Go toolchain 1.21.0"});
  for (const auto& [version, release] : std::vector<std::pair<std::string, std::string>>{
           {"v0.0.1-go1.21.0.linux-amd64", "1.21.0"},
           {"v0.0.1-go1.21rc2.darwin-arm64", "1.21.0-rc.2"},
           {"v0.0.1-go1.21.0", "1.21.0"},
           {"v0.0.2-go1.21.0.linux-amd64", ""},
           {"v0.0.1", ""},
           {"", ""}}) {
    EXPECT_EQ(parse(absl::StrCat("pkg:golang/golang.org/toolchain@", version, "?type=module")),
              (Lines{absl::StrCat("Go stdlib ", release), absl::StrCat("Go toolchain ", release),
                     absl::StrCat("Go golang.org/toolchain ", version)}));
  }
  // The module may be shorter than what the package URL names, unless that is said to be one.
  EXPECT_EQ(parse("pkg:golang/golang.org/x/text/unicode/norm@v0.3.6"),
            (Lines{"Go golang.org/x/text v0.3.6 (possible)",
                   "Go golang.org/x/text/unicode v0.3.6 (possible)",
                   "Go golang.org/x/text/unicode/norm v0.3.6"}));
  // A commit says no major version, so that the module may have any.
  EXPECT_THAT(parse("pkg:golang/gopkg.in/yaml.v2/internal@a5b47d31c556"),
              ::testing::Contains("Go gopkg.in/yaml.v2 a5b47d31c556 (possible)"));
  EXPECT_EQ(parse("pkg:golang/golang.org/x/text/unicode/norm@v0.3.6?type=module"),
            (Lines{"Go golang.org/x/text/unicode/norm v0.3.6"}));
  EXPECT_EQ(parse("pkg:golang/github.com/a/b@v1.0.0"), (Lines{"Go github.com/a/b v1.0.0"}));
  EXPECT_EQ(parse("pkg:golang/h.org/a@v1.0.0"),
            (Lines{"Go h.org v1.0.0 (possible)", "Go h.org/a v1.0.0"}));
  // A module's path says which major version it is.
  EXPECT_EQ(parse("pkg:golang/github.com/a/b/v2/c@v2.0.0"),
            (Lines{"Go github.com/a/b/v2 v2.0.0 (possible)", "Go github.com/a/b/v2/c v2.0.0"}));
  EXPECT_EQ(parse("pkg:golang/github.com/a/b/v2/c@v1.0.0"),
            (Lines{"Go github.com/a/b v1.0.0 (possible)", "Go github.com/a/b/v2/c v1.0.0"}));
  EXPECT_EQ(parse("pkg:golang/github.com/a/b/c@v24.0.0"),
            (Lines{"Go github.com/a/b v24.0.0 (possible)", "Go github.com/a/b/c v24.0.0"}));
  EXPECT_EQ(parse("pkg:golang/gopkg.in/yaml.v2/c@v2.0.0"),
            (Lines{"Go gopkg.in/yaml.v2 v2.0.0 (possible)", "Go gopkg.in/yaml.v2/c v2.0.0"}));
  // A tool that names modules alone, and says that it found this one itself.
  const Lines module = {"Go github.com/a/b/c v1.0.0"},
              open = {"Go github.com/a/b v1.0.0 (possible)", "Go github.com/a/b/c v1.0.0"};
  for (const auto& [tool, property, value, lines] :
       std::vector<std::tuple<std::string, std::string, std::string, Lines>>{
           {"syft", "syft:package:foundBy", "go-module-binary-cataloger", module},
           {"syft", "syft:package:foundBy", "go-mod-file-cataloger", module},
           {"syft", "syft:package:foundBy", "sbom-cataloger", open},
           {"syft", "x", "", open},
           {"trivy", "aquasecurity:trivy:PkgType", "gomod", module},
           {"trivy", "aquasecurity:trivy:PkgType", "gobinary", module},
           {"trivy", "aquasecurity:trivy:PkgType", "other", open},
           {"trivy", "x", "", open},
           {"cdxgen", "x", "", module},
           {"other", "syft:package:foundBy", "go-module-binary-cataloger", open}}) {
    EXPECT_EQ(
        Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"tools":[{"name":")",
                                  tool, R"("}]},"components":[{"purl":
            "pkg:golang/github.com/a/b/c@v1.0.0","properties":[{"name":")",
                                  property, R"(","value":")", value, R"("}]}]})")),
        lines)
        << tool << value;
  }
  for (const auto& [tool, info, lines] : std::vector<std::tuple<std::string, std::string, Lines>>{
           {"syft", "acquired package info from go module information: bin/server", module},
           {"syft", "acquired package info from go module information: a.spdx.json", open},
           {"syft", "", open},
           {"trivy", "package found in: go.mod", module},
           {"trivy", "", open},
           {"other", "package found in: go.mod", open}}) {
    EXPECT_EQ(Parse("x", absl::StrCat("SPDXVersion: SPDX-2.3\nCreator: Tool: ", tool,
                                      "-1.0.0\nPackageName: github.com/a/b/c\n"
                                      "PackageSourceInfo: ",
                                      info,
                                      "\nExternalRef: PACKAGE-MANAGER purl "
                                      "pkg:golang/github.com/a/b/c@v1.0.0\n")),
              lines)
        << tool << info;
  }
}

// A module that no proxy can have is the project's own, where the bill is about that.
TEST(InventoryTest, ASubjectOfGoNeedsNoHost) {
  const auto parse = [](absl::string_view components) {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"component":
        {"type":"application","name":"server","purl":"pkg:golang/server@v1.0.0"}},"components":[)",
                                     components, "]}"));
  };
  EXPECT_EQ(parse(R"({"name":"p","purl":"pkg:pypi/p@1"})"), (Lines{"PyPI p 1", "own 1"}));
  EXPECT_EQ(parse(""), (Lines{"! server: is no name of a package of Go"}));
  EXPECT_EQ(parse(R"({"name":"text","purl":"pkg:golang/text@v0.3.6"})"),
            (Lines{"! text: is no name of a package of Go", "own 1"}));
}

// The repository that an action lies in is what advisories are about.
TEST(InventoryTest, ActionsOfGitHub) {
  const auto parse = [](absl::string_view url) {
    return Parse(
        "bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":")", url, R"("}]})"));
  };
  EXPECT_EQ(parse("pkg:githubactions/actions/checkout@v4.1.0"),
            Lines{"GitHub Actions actions/checkout v4.1.0"});
  EXPECT_EQ(parse("pkg:githubactions/actions/cache@4.%2A.%2A#save"),
            Lines{"GitHub Actions actions/cache 4.*.*"});
  EXPECT_EQ(parse("pkg:githubactions/actions/cache/save@v4.1.0"),
            (Lines{"GitHub Actions actions/cache v4.1.0 (possible)",
                   "GitHub Actions actions/cache/save v4.1.0"}));
}

// Whatever else a bill says of a component is of its package URL, or it is said.
TEST(InventoryTest, WhatABillSaysElsewhereIsOfThePackageUrl) {
  const auto parse = [](absl::string_view members, absl::string_view url = "pkg:npm/ms@2.1.3") {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"type":"library",
        "name":"ms","version":"2.1.3","purl":")",
                                     url, R"(",)", members, "}]}"));
  };
  for (const char* members :
       {R"("bom-ref":"pkg:npm/ms@2.1.3?package-id=1#x")", R"("bom-ref":"pkg:npm/ms")",
        R"("bom-ref":"ms@9")", R"("cpe":"cpe:2.3:a:vercel:ms:2.1.3:*:*:*:*:node.js:*:*")",
        R"("cpe":"cpe:2.3:a:vercel:ms:*:*:*:*:*:*:*:*")", R"("cpe":"cpe:/a:vercel:ms:2.1.3")",
        R"("cpe":"nothing")",
        R"("evidence":{"identity":{"field":"purl","methods":[{"value":"/a/package-lock.json"}]}})",
        R"("evidence":{"identity":[{"field":"purl","concludedValue":"pkg:npm/ms@2.1.3",
            "tools":["pkg:npm/cdxgen@1"]},{"field":"version","concludedValue":"v2.1.3"},
            {"field":"hash","concludedValue":"0"}],"occurrences":[{"location":"x"}]})",
        R"("pedigree":{"notes":"pkg:npm/x@1"})", R"("swid":{"name":"Ms","version":"2.1.3"})",
        R"("pedigree":{"ancestors":[{"name":"ms","version":"2.1.3"}]})",
        R"("properties":[{"name":"internal:workspaceRef","value":"pkg:npm/x@1"}])"}) {
    EXPECT_EQ(parse(members), Lines{"npm ms 2.1.3"}) << members;
  }
  for (const auto& [members, line] : std::vector<std::pair<std::string, std::string>>{
           {R"("bom-ref":"pkg:npm/ms@2.1.2")", "pkg:npm/ms@2.1.2"},
           {R"("bom-ref":"pkg:npm/%40x/ms@2.1.3")", "pkg:npm/%40x/ms@2.1.3"},
           {R"("bom-ref":"pkg:pypi/ms@2.1.3")", "pkg:pypi/ms@2.1.3"},
           {R"("cpe":"cpe:2.3:a:vercel:ms:2.1.2:*:*:*:*:node.js:*:*")",
            "cpe:2.3:a:vercel:ms:2.1.2:*:*:*:*:node.js:*:*"},
           {R"("cpe":"cpe:2.3:a:vercel:ms:2.1.30:*:*:*:*:*:*:*")",
            "cpe:2.3:a:vercel:ms:2.1.30:*:*:*:*:*:*:*"},
           {R"("cpe":"cpe:2.3:a:vercel:ms:2.1:*:*:*:*:*:*:*")",
            "cpe:2.3:a:vercel:ms:2.1:*:*:*:*:*:*:*"},
           {R"("cpe":"cpe:/a:vercel:ms:2.1.2")", "cpe:/a:vercel:ms:2.1.2"},
           {R"("evidence":{"identity":{"field":"purl","concludedValue":"pkg:npm/ms@2.1.2"}})",
            "pkg:npm/ms@2.1.2"},
           {R"("evidence":{"identity":[{"field":"purl","methods":[{"value":"pkg:npm/x@2.1.3"}]}]})",
            "pkg:npm/x@2.1.3"},
           {R"("evidence":{"identity":[{"field":"cpe","concludedValue":"cpe:/a:b:ms:1"}]})",
            "cpe:/a:b:ms:1"},
           {R"("evidence":{"identity":[{"field":"version","concludedValue":"2.1.2"}]})", "2.1.2"},
           {R"("evidence":{"identity":[{"field":"name","concludedValue":"x"}]})", "x"},
           {R"("swid":{"name":"ms","version":"2.1.2"})", "2.1.2"},
           {R"("pedigree":{"ancestors":[{"name":"x","version":"1.0.0"}]})", "x 1.0.0"},
           {R"("pedigree":{"variants":[{"name":"ms","version":"2.1.2"}]})", "ms 2.1.2"},
           {R"("pedigree":{"descendants":[{"name":"ms","purl":"pkg:npm/ms@2.1.2"}]})", "ms"},
           {R"("pedigree":{"ancestors":[{"name":"ms","pedigree":{"ancestors":[{"name":"x"}]}}]})",
            "x"}}) {
    const Lines lines = parse(members);
    ASSERT_EQ(lines.size(), 2u) << members;
    EXPECT_EQ(lines[0], "npm ms 2.1.3") << members;
    EXPECT_TRUE(
        absl::StartsWith(lines[1], absl::StrCat("! ", line, ": contradicts ")) ||
        absl::StartsWith(lines[1], absl::StrCat("! ", line, ": is also said to be what ms")))
        << lines[1];
  }
  // A product of another name is a package of that name, if there is one.
  for (const auto& [cpe, item] : std::vector<std::pair<std::string, std::string>>{
           {"cpe:2.3:a:lodash:lodash:2.1.3:*:*:*:*:node.js:*:*", "npm lodash 2.1.3 (possible)"},
           {"cpe:2.3:a:lodash:lodash:*:*:*:*:*:*:*:*", "npm lodash 2.1.3 (possible)"},
           {"cpe:/a:x:lo%2ddash:2.1.3", "npm lo-dash 2.1.3 (possible)"}}) {
    EXPECT_EQ(parse(absl::StrCat(R"("cpe":")", cpe, "\"")), (Lines{"npm ms 2.1.3", item})) << cpe;
  }
  for (const char* none : {"cpe:2.3:o:x:linux:2.1.3:*:*:*:*:*:*:*", "cpe:2.3:a:x:*:2.1.3",
                           "cpe:/a:x", "cpe:2.3:a:x:a b:2.1.3:*:*:*:*:*:*:*"}) {
    EXPECT_EQ(parse(absl::StrCat(R"("cpe":")", none, "\"")), Lines{"npm ms 2.1.3"}) << none;
  }
  EXPECT_EQ(
      parse(R"("cpe":"cpe:2.3:a:palletsprojects:jinja:2.1.3:*:*:*:*:*:*:*")", "pkg:pypi/ms@2.1.3"),
      (Lines{"PyPI ms 2.1.3", "PyPI jinja 2.1.3 (possible)"}));
  // CPEs of distributions and of release candidates.
  for (const auto& [version, cpe] : std::vector<std::pair<std::string, std::string>>{
           {"5.2.15-2%2Bb7", "cpe:2.3:a:gnu:bash:5.2.15:*:*:*:*:*:*:*"},
           {"5.2.15-2%2Bb7", "cpe:2.3:a:bash:bash:5.2.15-2\\\\+b7:*:*:*:*:*:*:*"},
           {"1:2.3-1", "cpe:2.3:a:bash:bash:1\\\\:2.3-1:*:*:*:*:*:*:*"}}) {
    EXPECT_EQ(Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"name":"bash",
        "purl":"pkg:deb/debian/bash@)",
                                        version, R"(?distro=debian-12&upstream=bash","cpe":")", cpe,
                                        R"("}]})"))
                  .size(),
              1u)
        << cpe;
  }
  EXPECT_EQ(
      parse(R"("evidence":{"other":[]},"pedigree":{"others":[]})"),
      (Lines{"npm ms 2.1.3", "! ms.evidence.other: is a part of the file that is not known here",
             "! ms.pedigree.others: is a part of the file that is not known here"}));
  // Also where the bill is about it, and it has no package URL.
  for (const auto& [ref, is_said] : std::vector<std::pair<std::string, bool>>{
           {"pkg:npm/lodash@4.17.20", true}, {"pkg:oci/own@1", false}, {"own", false}}) {
    EXPECT_EQ(Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"component":{"name":
        "own","bom-ref":")",
                                        ref, R"("}},"components":[{"purl":"pkg:npm/ms@2.1.3"}]})"))
                  .size(),
              is_said ? 3u : 2u)
        << ref;
  }
  // A range that stands beside a version may mean another one.
  EXPECT_EQ(
      parse(R"("versionRange":"vers:npm/<3.0.0")"),
      (Lines{"npm ms 2.1.3", "! ms vers:npm/<3.0.0: is a range of versions beside a version"}));
  EXPECT_EQ(Parse("bom", R"({"bomFormat":"CycloneDX","components":[{"name":"ms","isExternal":true,
      "versionRange":"vers:npm/<3.0.0","purl":"pkg:npm/ms"}]})"),
            Lines{"npm ms "});
  const std::string cpe = "cpe:2.3:a:vercel:ms:2.1.2:*:*:*:*:*:*:*";
  const Lines both = {
      "npm ms 2.1.3",
      absl::StrCat("! ", cpe, ": contradicts its package URL: ", "pkg:npm/ms@2.1.3")};
  EXPECT_EQ(Parse("x.spdx.json",
                  absl::StrCat(R"({"spdxVersion":"SPDX-2.3","packages":[{"name":"ms","externalRefs":
      [{"referenceType":"purl","referenceLocator":"pkg:npm/ms@2.1.3"},
       {"referenceType":"cpe23Type","referenceLocator":")",
                               cpe, R"("}]}]})")),
            both);
  EXPECT_EQ(Parse("x", absl::StrCat("SPDXVersion: SPDX-2.3\nPackageName: ms\nExternalRef: "
                                    "PACKAGE-MANAGER purl pkg:npm/ms@2.1.3\nExternalRef: SECURITY "
                                    "cpe23Type ",
                                    cpe, "\n")),
            both);
}

// Where a package is said to come from, and what its archive is called, is of that package.
TEST(InventoryTest, APackageIsThatOfItsArchive) {
  const auto parse = [](absl::string_view url, absl::string_view members = "") {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":")", url,
                                     "\"", members, "}]}"))[0];
  };
  const std::string registry = "https://registry.npmjs.org/lodash/-/lodash-";
  for (const auto& [url, line] : std::vector<std::pair<std::string, std::string>>{
           {"pkg:npm/lodash@4.17.21?download_url=" + registry + "4.17.21.tgz",
            "npm lodash 4.17.21"},
           {"pkg:npm/lodash@4.17.21?file_name=a.tgz", "npm lodash 4.17.21"},
           {"pkg:npm/lodash@4.17.21?vcs_url=git%2Bhttps://github.com/lodash/lodash.git",
            "npm lodash 4.17.21"},
           {"pkg:npm/lodash@4.17.21?vcs_url=git%2Bssh://git@github.com/lodash/"
            "lodash.git%23packages/a",
            "npm lodash 4.17.21"},
           {"pkg:npm/lodash@4.17.21?vcs_url=git%2Bhttps://github.com/lodash/lodash%40v4.17.21",
            "npm lodash 4.17.21"},
           {"pkg:pypi/django@3.1.8?file_name=Django-3.1.8-py3-none-any.whl", "PyPI django 3.1.8"},
           {"pkg:cargo/http@0.1.20?download_url=file://.", "crates.io http 0.1.20"},
           {"pkg:cargo/http@0.1.20?download_url=https://crates.io/api/v1/crates/http/0.1.20/"
            "download",
            "crates.io http 0.1.20"},
           {"pkg:npm/lodash@4.17.21?download_url=" + registry + "4.17.20.tgz",
            "npm lodash 4.17.21 (doubtful)"},
           {"pkg:npm/lodash@4.17.21?file_name=lodash-4.17.20.tgz", "npm lodash 4.17.21 (doubtful)"},
           {"pkg:npm/lodash@4.17.21?download_url=https://codeload.github.com/a/b/tar.gz/c",
            "npm lodash 4.17.21 (doubtful)"},
           {"pkg:npm/lodash@4.17.21?vcs_url=git%2Bhttps://github.com/lodash/lodash%40v4.17.20",
            "npm lodash 4.17.21 (doubtful)"},
           {"pkg:npm/lodash@4.17.21?vcs_url=git%2Bhttps://github.com/lodash/lodash.git%231a2b3c4d",
            "npm lodash 4.17.21 (doubtful)"},
           {"pkg:pypi/django@3.1.9?download_url=https://h.org/Django-3.1.8.tar.gz",
            "PyPI django 3.1.9 (doubtful)"},
           {"pkg:pypi/django@3.1.9?vcs_url=git%2Bhttps://h.org/django",
            "PyPI django 3.1.9 (doubtful)"},
           {"pkg:cargo/http@0.1.20?vcs_url=git%2Bhttps://h.org/http%40v0.1.19",
            "crates.io http 0.1.20 (doubtful)"},
           {"pkg:cargo/http@0.1.20?download_url=https://static.crates.io/crates/http/"
            "http-0.1.19.crate",
            "crates.io http 0.1.20 (doubtful)"}}) {
    EXPECT_EQ(parse(url), line) << url;
  }
  for (const auto& [place, is_other] : std::vector<std::pair<std::string, bool>>{
           {registry + "4.17.21.tgz", false},
           {"lodash-4.17.21.tgz", false},
           {"./package", false},
           {"NOASSERTION", false},
           {"git+https://github.com/lodash/lodash.git@4.17.21", false},
           {"https://github.com/lodash/lodash", false},
           {registry + "4.17.20.tgz", true},
           {"lodash-4.17.20.tgz", true},
           {"git+https://github.com/lodash/lodash.git@4.17.20", true}}) {
    Lines lines = {"npm lodash 4.17.21"};
    if (is_other) {
      lines.push_back(
          absl::StrCat("! ", place, ": contradicts its package URL: pkg:npm/lodash@4.17.21"));
    }
    EXPECT_EQ(Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":
        "pkg:npm/lodash@4.17.21","externalReferences":[{"type":"distribution","url":")",
                                        place, R"("},{"type":"vcs","url":"git+x"}]}]})")),
              lines)
        << place;
    for (const char* member : {"downloadLocation", "packageFileName"}) {
      EXPECT_EQ(Parse("x.spdx.json", absl::StrCat(R"({"spdxVersion":"SPDX-2.3","packages":[{"name":
          "lodash","externalRefs":[{"referenceType":"purl","referenceLocator":
          "pkg:npm/lodash@4.17.21"}],")",
                                                  member, R"(":")", place, R"("}]})")),
                lines)
          << place;
    }
    for (const char* tag : {"PackageDownloadLocation", "PackageFileName"}) {
      EXPECT_EQ(
          Parse("x", absl::StrCat("SPDXVersion: SPDX-2.3\nPackageName: lodash\n", tag, ": ", place,
                                  "\nExternalRef: PACKAGE-MANAGER purl "
                                  "pkg:npm/lodash@4.17.21\n")),
          lines)
          << place;
    }
  }
  // SPDX has references of its own for some package managers.
  EXPECT_EQ(Parse("x",
                  "SPDXVersion: SPDX-2.3\nPackageName: lodash\n"
                  "ExternalRef: PACKAGE-MANAGER npm lodash@4.17.20\n"
                  "ExternalRef: PACKAGE-MANAGER http://spdx.org/rdf/references/npm @a/b@1.0.0\n"
                  "ExternalRef: PACKAGE-MANAGER maven-central g:a:1\n"),
            (Lines{"npm lodash 4.17.20", "npm @a/b 1.0.0",
                   "! pkg:maven/g:a:1: no reader knows packages of type maven"}));
}

// What lies in a package may be another one.
TEST(InventoryTest, APartOfAPackageMayBeAnother) {
  const auto parse = [](absl::string_view members) {
    return Parse("bom",
                 absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{)", members, "}]}"));
  };
  for (const auto& [members, lines] : std::vector<std::pair<std::string, Lines>>{
           {R"("name":"lodash","purl":"pkg:npm/app@1.0.0#node_modules/lodash")",
            {"npm app 1.0.0", "npm lodash  (possible)"}},
           {R"("name":"lodash","version":"4.17.20","purl":"pkg:npm/app#x/lodash")",
            {"npm app ", "npm lodash 4.17.20 (possible)"}},
           {R"("name":"core","group":"angular","version":"1.0.0","purl":"pkg:npm/app#x")",
            {"npm app ", "npm @angular/core 1.0.0 (possible)"}},
           {R"("name":"http","version":"0.1.19","purl":"pkg:cargo/app@0.1.19#vendor/http")",
            {"crates.io app 0.1.19", "crates.io http 0.1.19 (possible)"}},
           {R"("name":"http","version":"0.1.19","purl":"pkg:cargo/app@0.1.19#src/vendor/http")",
            {"crates.io app 0.1.19", "crates.io http 0.1.19 (possible)"}},
           {R"("name":"django","version":"3.1.8","purl":"pkg:pypi/app@3.1.8#_vendor/django")",
            {"PyPI app 3.1.8", "PyPI django 3.1.8 (possible)"}},
           // Its own parts.
           {R"("name":"http","version":"0.1.19","purl":"pkg:cargo/app@0.1.19#src/bin/http.rs")",
            {"crates.io app 0.1.19"}},
           {R"("name":"App","version":"0.1.19","purl":"pkg:cargo/app@0.1.19#lib.rs")",
            {"crates.io app 0.1.19"}}}) {
    EXPECT_EQ(parse(members), lines) << members;
  }
  // What is said elsewhere is of the package, and of no part.
  EXPECT_EQ(parse(R"("name":"app","bom-ref":"pkg:npm/lodash@1.0.0",
      "purl":"pkg:npm/app@1.0.0#node_modules/lodash")")
                .size(),
            2u);
}

// An alias of npm's may be the package that its directory is called after, and a package with a
// scope that of its name without one.
TEST(InventoryTest, ANameOfNpmMayBeOfAnotherPackage) {
  EXPECT_EQ(Parse("bom", R"({"bomFormat":"CycloneDX","components":[
      {"name":"lodash","version":"4.17.20","purl":"pkg:npm/%40types/lodash@4.17.20"},
      {"name":"Lodash","version":"4.17.19","purl":"pkg:npm/%40types/lodash@4.17.19"},
      {"name":"npm:lodash","version":"4.17.18","purl":"pkg:npm/%40types/lodash@4.17.18"},
      {"name":"core","purl":"pkg:npm/%40angular/core@1.0.0"},
      {"name":"ms","group":"@x","purl":"pkg:npm/%40x/ms@1.0.0"},
      {"name":"@y/ms","purl":"pkg:npm/%40y/ms@1.0.0"}]})"),
            (Lines{"npm @types/lodash 4.17.20", "npm lodash 4.17.20 (possible)",
                   "npm @types/lodash 4.17.19", "npm Lodash 4.17.19 (possible)",
                   "npm @types/lodash 4.17.18", "npm lodash 4.17.18 (possible)",
                   "npm @angular/core 1.0.0", "npm core 1.0.0 (possible)", "npm @x/ms 1.0.0",
                   "npm @y/ms 1.0.0"}));
  EXPECT_EQ(Parse("bom", R"({"bomFormat":"CycloneDX","metadata":{"tools":[{"vendor":"npm",
      "name":"cli"}],"component":{"name":"src","purl":"pkg:npm/project@1.0.0"}},"components":[
      {"name":"lodash","version":"4.17.20","purl":"pkg:npm/ms@4.17.20"},
      {"name":"ms","version":"2.1.2","purl":"pkg:npm/ms@2.1.2"}]})"),
            (Lines{"npm project 1.0.0", "npm ms 4.17.20", "npm lodash 4.17.20 (possible)",
                   "npm ms 2.1.2"}));
}

// What a bill refers to is in it: anything else may be a package that is missing.
TEST(InventoryTest, WhatABillRefersToIsInIt) {
  const auto parse = [](absl::string_view members) {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"component":
        {"name":"own","bom-ref":"top"},"tools":{"components":[{"name":"t","bom-ref":"t"}]}},
        "services":[{"name":"s","bom-ref":"s","services":[{"bom-ref":"s2"}]}],"components":[
        {"name":"ms","bom-ref":"m","purl":"pkg:npm/ms@2.1.3"}],)",
                                     members, "}"));
  };
  const Lines whole = {"npm ms 2.1.3", "own 1"};
  for (const char* members :
       {R"("dependencies":[{"ref":"top","dependsOn":["m","s","s2"]},{"ref":"m"}])",
        R"("dependencies":[{"ref":"top","dependsOn":["pkg:npm/ms@2.1.3"]}])",
        R"("dependencies":[{"ref":"t","dependsOn":["t2"]}])",
        R"("vulnerabilities":[{"affects":[{"ref":"m"},{"ref":"urn:cdx:1/1#x"}]}])",
        R"("formulation":[{"workflows":[{"resourceReferences":[{"ref":"pkg:npm/ms@2.1.3"},
            {"ref":"task"}],"trigger":{"target":{"ref":"x"}}}]}])",
        R"("declarations":{"claims":[{"target":"pkg:npm/ms@2.1.3"},{"target":"x"}]})",
        R"("compositions":[{"aggregate":"complete","assemblies":["m"]}])"}) {
    EXPECT_EQ(parse(members), whole) << members;
  }
  const std::string why = ": is referred to, and the bill has no component of that bom-ref";
  for (const auto& [members, missing] : std::vector<std::pair<std::string, std::string>>{
           {R"("dependencies":[{"ref":"top","dependsOn":["pkg:npm/lodash@4.17.20","m"]},
                               {"ref":"m","dependsOn":["pkg:npm/lodash@4.17.20"]}])",
            "pkg:npm/lodash@4.17.20"},
           {R"("dependencies":[{"ref":"x","dependsOn":["m"]}])", "x"},
           {R"("dependencies":[{"ref":"m","provides":["x"]}])", "x"},
           {R"("dependencies":[{"ref":"m","dependsOn":["t"]}])", "t"},
           {R"("vulnerabilities":[{"affects":[{"ref":"x"}]}])", "x"},
           {R"("annotations":[{"subjects":["pkg:npm/x@1","other"]}])", "pkg:npm/x@1"},
           {R"("formulation":[{"workflows":[{"resourceReferences":[{"ref":"pkg:npm/x@1"}]}]}])",
            "pkg:npm/x@1"},
           {R"("formulation":[{"workflows":[{"tasks":[{"inputs":[{"resource":
               {"ref":"pkg:npm/x@1"}}]}]}]}])",
            "pkg:npm/x@1"},
           {R"("declarations":{"claims":[{"target":"pkg:npm/x@1"}]})", "pkg:npm/x@1"},
           {R"("compositions":[{"aggregate":"complete","dependencies":["x"]}])", "x"}}) {
    EXPECT_EQ(parse(members), (Lines{"npm ms 2.1.3", absl::StrCat("! ", missing, why), "own 1"}))
        << members;
  }
  for (const auto& [from, to, missing] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"SPDXRef-DOCUMENT", "a", ""},
           {"a", "NOASSERTION", ""},
           {"a", "f", ""},
           {"a", "SPDXRef-npm-lodash-4.17.20", "SPDXRef-npm-lodash-4.17.20"},
           {"DocumentRef-x:SPDXRef-y", "a", "DocumentRef-x:SPDXRef-y"}}) {
    Lines lines = {"npm a 1.0.0"};
    if (!missing.empty()) {
      lines.push_back(absl::StrCat(
          "! ", missing, ": is in a relationship, and the document has no element of that id"));
    }
    EXPECT_EQ(
        Parse("x.spdx.json", absl::StrCat(R"({"spdxVersion":"SPDX-2.3","SPDXID":
        "SPDXRef-DOCUMENT","files":[{"SPDXID":"f","fileName":"./f"}],"packages":[{"SPDXID":"a",
        "name":"a","externalRefs":[{"referenceType":"purl","referenceLocator":"pkg:npm/a@1.0.0"}]}],
        "relationships":[{"relationshipType":"DEPENDS_ON","spdxElementId":")",
                                          from, R"(","relatedSpdxElement":")", to, R"("}]})")),
        lines)
        << to;
    EXPECT_EQ(Parse("x", absl::StrCat("SPDXVersion: SPDX-2.3\nSPDXID: SPDXRef-DOCUMENT\n"
                                      "PackageName: a\nSPDXID: a\nExternalRef: PACKAGE-MANAGER "
                                      "purl pkg:npm/a@1.0.0\nFileName: ./f\nSPDXID: f\n"
                                      "Relationship: ",
                                      from, " DEPENDS_ON ", to, "\n")),
              lines)
        << to;
  }
  EXPECT_EQ(Parse("x.spdx.json", R"({"spdxVersion":"SPDX-2.3","documentDescribes":["b"],"packages":[
      {"SPDXID":"a","name":"a","externalRefs":[{"referenceType":"purl",
       "referenceLocator":"pkg:npm/a@1.0.0"}]}]})"),
            (Lines{"npm a 1.0.0",
                   "! b: is in a relationship, and the document has no element of that id"}));
}

// Wherever a bill may have components, they are read.
TEST(InventoryTest, ComponentsAreReadWhereverTheyStand) {
  for (const char* members :
       {R"("formulation":[{"components":[C]}])", R"("declarations":{"targets":{"components":[C]}})",
        R"("components":[{"name":"q","type":"file","pedigree":{"ancestors":[
            {"name":"q","components":[C]}]}}])"}) {
    EXPECT_THAT(
        Parse("bom", absl::StrReplaceAll(absl::StrCat(R"({"bomFormat":"CycloneDX",)", members, "}"),
                                         {{"[C]", R"([{"name":"p","purl":"pkg:pypi/p@1"}])"}})),
        ::testing::Contains("PyPI p 1"))
        << members;
  }
  for (const auto& [members, unknown] : std::vector<std::pair<std::string, std::string>>{
           {R"("services":[{"components":[]}])", "services.components"},
           {R"("services":[{"services":[{"components":[]}]}])", "services.components"},
           {R"("formulation":[{"parts":[]}])", "formulation.parts"},
           {R"("definitions":{"components":[]})", "definitions.components"},
           {R"("declarations":{"components":[]})", "declarations.components"},
           {R"("declarations":{"targets":{"parts":[]}})", "declarations.targets.parts"},
           {R"("dependencies":[{"ref":"p","components":[]}])", "dependencies.components"}}) {
    EXPECT_EQ(Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"bom-ref":"p",
        "name":"p","purl":"pkg:pypi/p@1"}],)",
                                        members, "}")),
              (Lines{"PyPI p 1", absl::StrCat("! ", unknown,
                                              ": is a part of the file that is not known here")}))
        << members;
  }
  EXPECT_EQ(Parse("x.spdx.json", R"({"spdxVersion":"SPDX-2.3","packages":[{"name":"a","packages":[],
      "externalRefs":[{"referenceType":"purl","referenceLocator":"pkg:npm/a@1","purl":""}]}]})"),
            (Lines{"npm a 1", "! a.packages: is a part of the file that is not known here",
                   "! externalRefs.purl: is a part of the file that is not known here"}));
}

// A file is none of the packages of a bill, but an archive of one is.
TEST(InventoryTest, AFileMayBeAPackage) {
  const auto parse = [](absl::string_view component) {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","components":[
        {"name":"p","purl":"pkg:pypi/p@1"},)",
                                     component, "]}"));
  };
  for (const char* component :
       {R"({"type":"file","name":"/var/lib/dpkg/status"})",
        R"({"type":"file","name":"app/package-lock.json"})", R"({"type":"file","name":"x.tar.gz"})",
        R"({"type":"file","name":"x-data.zip"})",
        R"({"type":"file","name":"METADATA","bom-ref":"pkg:pypi/p@1#METADATA"})",
        R"({"type":"operating-system","name":"debian","version":"12",
            "cpe":"cpe:2.3:o:debian:debian_linux:12:*:*:*:*:*:*:*","swid":{"name":"debian"}})",
        R"({"type":"operating-system","name":"Red Hat Enterprise Linux","version":"9"})",
        R"({"type":"data","name":"prices"})", R"({"type":"file","name":"x_1.zip"})",
        R"({"type":"file","name":"x.tar"})",
        R"({"type":"library","name":"q","purl":"pkg:pypi/q@1","components":[
            {"type":"file","name":"q/x-1.0.whl"}]})"}) {
    EXPECT_THAT(parse(component), ::testing::Each(::testing::Not(::testing::StartsWith("!"))))
        << component;
  }
  for (const auto& [component, name] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"file","name":"lodash-4.17.20.tgz"})", "lodash-4.17.20.tgz"},
           {R"({"type":"file","name":"a/Django-3.1.8.tar.gz"})", "a/Django-3.1.8.tar.gz"},
           {R"({"type":"data","name":"x-v1.ZIP"})", "x-v1.ZIP"},
           {R"({"type":"file","name":"lodash-4.17.20.tar"})", "lodash-4.17.20.tar"},
           {R"({"type":"file","name":"lodash-4.17.20.tar.zst"})", "lodash-4.17.20.tar.zst"},
           {R"({"type":"file","name":"lodash_4.17.20.tar.gz"})", "lodash_4.17.20.tar.gz"},
           {R"({"type":"file","name":"x","cpe":"cpe:2.3:a:lodash:lodash:4.17.20:*:*:*:*:*:*:*"})",
            "x"},
           {R"({"type":"file","name":"x","swid":{"name":"lodash","version":"4.17.20"}})", "x"},
           {R"({"type":"file","name":"x","evidence":{"identity":[{"field":"name",
               "concludedValue":"lodash"},{"field":"version","concludedValue":"4.17.20"}]}})",
            "x"},
           {R"({"type":"data","name":"lodash","version":"4.17.20"})", "lodash"},
           {R"({"type":"operating-system","name":"lodash","version":"4.17.20"})", "lodash"},
           {R"({"type":"operating-system","name":"linux","version":"6.1"})", "linux"},
           {R"({"type":"operating-system","name":"debian","cpe":"cpe:/a:lodash:lodash:4.17.20"})",
            "debian"},
           {R"({"type":"file","name":"log4j.jar"})", "log4j.jar"},
           {R"({"type":"file","name":"lodash","version":"4.17.20"})", "lodash"},
           {R"({"type":"file","name":"x","bom-ref":"pkg:npm/lodash@4.17.20"})", "x"},
           {R"({"type":"file","name":"x","evidence":{"identity":{"concludedValue":
               "pkg:npm/lodash@4.17.20"}}})",
            "x"}}) {
    EXPECT_THAT(parse(component),
                ::testing::Contains(absl::StrCat("! ", name, ": has no package URL")))
        << component;
  }
  const auto spdx = [](absl::string_view relations) {
    return Parse("x.spdx.json", absl::StrCat(R"({"spdxVersion":"SPDX-2.3","packages":[{"SPDXID":"a",
        "name":"a","externalRefs":[{"referenceType":"purl","referenceLocator":"pkg:npm/a@1.0.0"}])",
                                             relations, R"(,"files":[{"SPDXID":"f","fileName":
        "./lodash-4.17.20.tgz"},{"SPDXID":"g","fileName":"./x"}]})"));
  };
  const std::string why = "! ./lodash-4.17.20.tgz: is an archive, and of no package in the bill";
  // An image is not looked up, and neither is what lies in it.
  for (const char* url : {"pkg:oci/app@sha256:ab", "pkg:golang/app@v1.0.0"}) {
    EXPECT_EQ(Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"component":{"name":
        "app","purl":")",
                                        url, R"(","components":[{"type":"file","name":
        "lodash-4.17.20.tgz"}]}},"components":[{"purl":"pkg:npm/ms@2.1.3"}]})")),
              (Lines{"npm ms 2.1.3", "! lodash-4.17.20.tgz: has no package URL", "own 1"}));
  }
  EXPECT_THAT(Parse("x.spdx.json", R"({"spdxVersion":"SPDX-2.3","documentDescribes":["i"],
      "packages":[{"SPDXID":"i","name":"app","externalRefs":[{"referenceType":"purl",
      "referenceLocator":"pkg:oci/app@sha256:ab"}]},{"SPDXID":"a","name":"a","externalRefs":
      [{"referenceType":"purl","referenceLocator":"pkg:npm/a@1.0.0"}]}],"files":[{"SPDXID":"f",
      "fileName":"./lodash-4.17.20.tgz"}],"relationships":[{"spdxElementId":"i",
      "relationshipType":"CONTAINS","relatedSpdxElement":"f"}]})"),
              ::testing::Contains(why));
  EXPECT_EQ(spdx("}]"), (Lines{"npm a 1.0.0", why}));
  EXPECT_EQ(spdx(R"(,"hasFiles":["f"]}])"), (Lines{"npm a 1.0.0"}));
  EXPECT_EQ(spdx(R"(}],"relationships":[{"spdxElementId":"a","relationshipType":"CONTAINS",
      "relatedSpdxElement":"f"}])"),
            (Lines{"npm a 1.0.0"}));
  EXPECT_EQ(Parse("x",
                  "SPDXVersion: SPDX-2.3\nFileName: ./lodash-4.17.20.tgz\nSPDXID: f\n"
                  "PackageName: a\nExternalRef: PACKAGE-MANAGER purl pkg:npm/a@1.0.0\n"),
            (Lines{"npm a 1.0.0", why}));
}

// Trivy's bills have components for what packages were found in.
TEST(InventoryTest, TheFilesThatTrivyScannedAreNoPackages) {
  const auto parse = [](absl::string_view tool, absl::string_view component,
                        absl::string_view on = R"("l")") {
    return Parse("bom", absl::StrCat(R"({"bomFormat":"CycloneDX","metadata":{"tools":{"components":[
        {"group":"aquasecurity","name":")",
                                     tool, R"("}]}},"components":[)", component, R"(,
        {"name":"ms","bom-ref":"l","purl":"pkg:npm/ms@2.1.3"}],"dependencies":[{"ref":"f",
        "dependsOn":[)",
                                     on, "]}]}"));
  };
  const std::string properties = R"("properties":[{"name":"aquasecurity:trivy:Class","value":
      "lang-pkgs"},{"name":"aquasecurity:trivy:Type","value":"npm"}])";
  const std::string file = absl::StrCat(
      R"({"type":"application","name":"package-lock.json","bom-ref":"f",)", properties, "}");
  EXPECT_EQ(parse("trivy", file), Lines{"npm ms 2.1.3"});
  const Lines none = {"npm ms 2.1.3", "! package-lock.json: has no package URL"};
  EXPECT_EQ(parse("other", file), none);
  EXPECT_EQ(parse("trivy", file, ""), none);
  const auto named = [&](absl::string_view name, absl::string_view type) {
    return parse("trivy",
                 absl::StrCat(R"({"type":"application","name":")", name, R"(","bom-ref":"f",
        "properties":[{"name":"aquasecurity:trivy:Class","value":"lang-pkgs"},
        {"name":"aquasecurity:trivy:Type","value":")",
                              type, R"("}]})"));
  };
  for (const auto& [name, type] :
       std::vector<std::pair<std::string, std::string>>{{"Python", "python-pkg"},
                                                        {"Node.js", "node-pkg"},
                                                        {"Java", "jar"},
                                                        {"Ruby", "gemspec"},
                                                        {"app/go.mod", "gomod"},
                                                        {"app", "gobinary"},
                                                        {"usr/bin/app", "rustbinary"},
                                                        {"a/pom.xml", "pom"},
                                                        {"x/Gemfile.lock", "bundler"},
                                                        {"requirements.txt", "pip"}}) {
    EXPECT_EQ(named(name, type), Lines{"npm ms 2.1.3"}) << name;
  }
  for (const auto& [name, type] :
       std::vector<std::pair<std::string, std::string>>{{"lodash", "npm"},
                                                        {"@x/y", "npm"},
                                                        {"golang.org/x/text", "gomod"},
                                                        {"django", "python-pkg"},
                                                        {"Python", "npm"},
                                                        {"lodash.template", "node-pkg"},
                                                        {"app", ""}}) {
    EXPECT_EQ(named(name, type),
              (Lines{"npm ms 2.1.3", absl::StrCat("! ", name, ": has no package URL")}))
        << name;
  }
  EXPECT_EQ(parse("trivy", R"({"type":"application","name":"package-lock.json","bom-ref":"f"})"),
            none);
  EXPECT_EQ(parse("trivy", absl::StrCat(R"({"type":"application","name":"package-lock.json",
      "bom-ref":"f","version":"1",)",
                                        properties, "}")),
            none);
  const auto spdx = [](absl::string_view package) {
    return Parse("x.spdx.json",
                 absl::StrCat(R"({"spdxVersion":"SPDX-2.3","creationInfo":{"creators":
        ["Organization: aquasecurity","Tool: trivy-0.50.0"]},"packages":[{"SPDXID":"l","name":"ms",
        "externalRefs":[{"referenceType":"purl","referenceLocator":"pkg:npm/ms@2.1.3"}]},)",
                              package, R"(],"relationships":[{"spdxElementId":"f",
        "relationshipType":"CONTAINS","relatedSpdxElement":"l"}]})"));
  };
  EXPECT_EQ(spdx(R"({"SPDXID":"f","name":"a/package-lock.json","primaryPackagePurpose":
      "APPLICATION"})"),
            Lines{"npm ms 2.1.3"});
  EXPECT_EQ(spdx(R"({"SPDXID":"f","name":"debian","versionInfo":"12.5","primaryPackagePurpose":
      "OPERATING-SYSTEM"})"),
            Lines{"npm ms 2.1.3"});
  EXPECT_EQ(spdx(R"({"SPDXID":"f","name":"lodash","versionInfo":"4.17.20","primaryPackagePurpose":
      "OPERATING-SYSTEM"})"),
            (Lines{"npm ms 2.1.3", "! lodash: has no package URL"}));
  EXPECT_EQ(spdx(R"({"SPDXID":"f","name":"usr/bin/app","primaryPackagePurpose":"APPLICATION"})"),
            Lines{"npm ms 2.1.3"});
  for (const char* name : {"lodash", "@x/y", "golang.org/x/text"}) {
    EXPECT_EQ(spdx(absl::StrCat(R"({"SPDXID":"f","name":")", name,
                                R"(","primaryPackagePurpose":"APPLICATION"})")),
              (Lines{"npm ms 2.1.3", absl::StrCat("! ", name, ": has no package URL")}));
  }
  EXPECT_EQ(spdx(R"({"SPDXID":"f","name":"x","versionInfo":"1","primaryPackagePurpose":
      "APPLICATION"})"),
            (Lines{"npm ms 2.1.3", "! x: has no package URL"}));
  EXPECT_EQ(Parse("x",
                  "SPDXVersion: SPDX-2.3\nPackageName: debian\nSPDXID: o\nPackageVersion: 12\n"
                  "PrimaryPackagePurpose: OPERATING-SYSTEM\nPackageName: a\nSPDXID: a\n"
                  "ExternalRef: PACKAGE-MANAGER purl pkg:npm/a@1.0.0\n"),
            Lines{"npm a 1.0.0"});
}

// Of two, nobody can tell which one the writer meant.
TEST(InventoryTest, WhatSpdxSaysOfAPackageStandsThereOnce) {
  const std::string head =
      "SPDXVersion: SPDX-2.3\nPackageName: a\nSPDXID: a\nExternalRef: PACKAGE-MANAGER purl "
      "pkg:npm/a@1.0.0\n";
  for (const char* line : {"PackageVersion: 1.0.0\n", "PackageFileName: a-1.0.0.tgz\n",
                           "PackageSourceInfo: built package from: openssl 3.0\n",
                           "PrimaryPackagePurpose: OPERATING-SYSTEM\n"}) {
    EXPECT_EQ(Parse("x", head + line), Lines{"npm a 1.0.0"}) << line;
    EXPECT_THAT(Error("x", head + line + line),
                StatusIs(absl::StatusCode::kInvalidArgument, "is there twice in one package"))
        << line;
  }
}

TEST(InventoryTest, SpdxInBothNotations) {
  EXPECT_EQ(Parse("sbom.spdx.json", R"({"spdxVersion":"SPDX-2.3","packages":[
      {"SPDXID":"SPDXRef-root","name":"own"},
      {"SPDXID":"SPDXRef-d","name":"django","versionInfo":"3.2.1","externalRefs":[
        {"referenceCategory":"SECURITY","referenceType":"cpe23Type","referenceLocator":"cpe:2.3:x"},
        {"referenceCategory":"PACKAGE-MANAGER","referenceType":"purl",
         "referenceLocator":"pkg:pypi/django@3.2.1"}]},
      {"SPDXID":"SPDXRef-x","name":"plain"}],
      "relationships":[{"spdxElementId":"SPDXRef-DOCUMENT","relationshipType":"DESCRIBES",
                        "relatedSpdxElement":"SPDXRef-root"}]})"),
            (Lines{"PyPI django 3.2.1", "! plain: has no package URL", "own 1"}));
  EXPECT_EQ(Parse("sbom",
                  "SPDXVersion: SPDX-2.3\nSPDXID: SPDXRef-DOCUMENT\n"
                  "Relationship: SPDXRef-DOCUMENT DESCRIBES SPDXRef-root\n"
                  "PackageName: own\nSPDXID: SPDXRef-root\n\n"
                  "PackageName: django\nSPDXID: SPDXRef-d\nPackageVersion: 3.2.1\n"
                  "ExternalRef: PACKAGE-MANAGER purl pkg:pypi/django@3.2.1\n"
                  "PackageComment: <text>one\nPackageName: not-one\n</text>\n"
                  "FileName: ./x\nSPDXID: SPDXRef-f\n"
                  "PackageName: plain\nSPDXID: SPDXRef-x\n"),
            (Lines{"PyPI django 3.2.1", "! not-one: stands in a text, and looks like a package",
                   "! plain: has no package URL", "own 1"}));
  // Several package URLs name one package each, in any order, and under any name of the type.
  for (const char* order : {"ab", "ba"}) {
    const std::string first(1, order[0]), second(1, order[1]);
    EXPECT_EQ(
        Parse("x", absl::StrCat("SPDXVersion: SPDX-2.3\nPackageName: a\n"
                                "ExternalRef: PACKAGE_MANAGER purl pkg:npm/",
                                first,
                                "@1.0.0\n"
                                "ExternalRef:\tSECURITY cpe23Type cpe:2.3:x\n"
                                "ExternalRef: PACKAGE-MANAGER http://h/purl pkg:npm/",
                                second, "@1.0.0\n")),
        (Lines{absl::StrCat("npm ", first, " 1.0.0"), absl::StrCat("npm ", second, " 1.0.0")}));
    EXPECT_EQ(
        Parse("x.spdx.json", absl::StrCat(R"({"spdxVersion":"SPDX-2.3","packages":[
        {"name":"a","externalRefs":[
        {"referenceType":"purl","referenceLocator":"pkg:npm/)",
                                          first, R"(@1.0.0"},
        {"referenceType":"http://spdx.org/rdf/references/purl","referenceLocator":"pkg:npm/)",
                                          second, R"(@1.0.0"}]}]})")),
        (Lines{absl::StrCat("npm ", first, " 1.0.0"), absl::StrCat("npm ", second, " 1.0.0")}));
  }
  // A document may be about its packages, which are then not the project's.
  EXPECT_EQ(Parse("x.spdx.json", R"({"spdxVersion":"SPDX-2.3","documentDescribes":["a","b"],
      "packages":[{"SPDXID":"a","name":"a"},{"SPDXID":"b","name":"b"}]})"),
            (Lines{"! a: has no package URL", "! b: has no package URL"}));
  EXPECT_EQ(Parse("x",
                  "SPDXVersion: SPDX-2.3\nPackageName: a\nSPDXID: r\n"
                  "Relationship: r DESCRIBED_BY SPDXRef-DOCUMENT\n"),
            (Lines{"! a: has no package URL"}));
  EXPECT_EQ(Parse("x.spdx.json", R"({"spdxVersion":"SPDX-2.3","Packages":[],"packages":[],
      "externalDocumentRefs":[{"spdxDocument":"urn:b"}]})"),
            (Lines{"! Packages: is a part of the file that is not known here",
                   "! urn:b: is another document: give that one, too"}));
  EXPECT_EQ(Parse("x",
                  "SPDXVersion: SPDX-2.3\nPackageName: a\n"
                  "ExternalRef: PACKAGE-MANAGER purl pkg:npm/a@1.0.0\n"
                  "ExternalRef: PACKAGE-MANAGE R purl pkg:npm/b@1.0.0\n"),
            (Lines{"npm a 1.0.0",
                   "! PACKAGE-MANAGE R purl pkg:npm/b@1.0.0: is no reference that is understood"}));
  // <text> is a mark at the beginning of a value alone.
  EXPECT_EQ(Parse("x",
                  "SPDXVersion: SPDX-2.3\nPackageName: <text>a</text>\n"
                  "PackageComment: of <text>\nPackageName: b\nPackageComment: <text>x</text>\n"),
            (Lines{"! a: has no package URL", "! b: has no package URL"}));
  struct Case {
    std::string lines, where;
  };
  for (const Case& c :
       {Case{"PackageComment: <text>x\nPackageName: b\n", "x:3: a <text> has no end"},
        Case{"PackageComment: <text>x</text> y\n", "x:3: something follows"},
        Case{"PackageComment: <text>x\nPackageName: b\nPackageComment: <text>y</text>\n",
             "x:5: a <text> in a <text>"},
        Case{"PackageName: <text>x\ny</text>\n", "x:3: has more than one line"},
        Case{"packageName: b\n", "x:3: is a tag that SPDX 2 has not"},
        Case{"PackageName b\n", "x:3: is no tag"},
        Case{"PackageComment: x\rPackageName: b\n", "x:3: has a control character"},
        Case{"ExternalRef: PACKAGE-MANAGER purl\n", "x:3: is no reference"},
        Case{"ExternalRef: PACKAGE-MANAGER purl pkg:npm/a b\n", "x:3: is no reference"},
        Case{"FileName: f\nExternalRef: PACKAGE-MANAGER purl pkg:npm/a\n", "x:4: is of no package"},
        Case{"SPDXID: a\nSPDXID: b\n", "x:4: is there twice in one package"},
        Case{"PackageFileName: a\nPackageFileName: b\n", "x:4: is there twice in one package"},
        Case{"FileChecksum: SHA1: x\n", "x:3: is of no package, or of no file"},
        Case{"FileName: f\nPackageVersion: 1\n", "x:4: is of no package, or of no file"},
        Case{"PackageVersion: 1", "x:3: ends within a line"},
        Case{"Relationship: a DESCRIBES\n", "x:3: is no relationship"}}) {
    EXPECT_THAT(Error("x", absl::StrCat("SPDXVersion: SPDX-2.3\nPackageName: a\n", c.lines)),
                StatusIs(absl::StatusCode::kInvalidArgument, c.where))
        << c.lines;
  }
  EXPECT_THAT(Error("x", "SPDXVersion: SPDX-3.0\nPackageName: a\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "is not SPDX 2"));
  EXPECT_THAT(Error("x.json", R"({"spdxVersion":"SPDX-3.0"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "is not SPDX 2"));
}

TEST(InventoryTest, PackageUrls) {
  const auto text = [](absl::string_view url) {
    const auto parsed = ParsePackageUrl(url);
    return !parsed
               ? "none"
               : absl::StrJoin({parsed->type, parsed->space, parsed->name, parsed->version}, "|");
  };
  EXPECT_EQ(text("pkg:npm/%40angular/core@12.0.0?x=y#z"), "npm|@angular|core|12.0.0");
  EXPECT_EQ(text("pkg:npm/@angular/core"), "npm|@angular|core|");
  EXPECT_EQ(text("pkg:npm/@angular/core@1"), "npm|@angular|core|1");
  EXPECT_EQ(text("pkg://PYPI/a@1%2Bb"), "pypi||a|1+b");
  EXPECT_EQ(text("pkg:golang/a.b/c/d@v1"), "golang|a.b/c|d|v1");
  EXPECT_EQ(ParsePackageUrl("pkg:golang/a/b@v1?Epoch=07#/x//y/")->subpath, "x/y");
  EXPECT_EQ(ParsePackageUrl("pkg:golang/a/b@v1?Epoch=7&arch=#../x/./y")->epoch, "7");
  EXPECT_EQ(ParsePackageUrl("pkg:golang/a/b@v1#../x/./y")->subpath, "x/y");
  for (const char* bad : {"pkg:npm/a?x=1&X=2", "pkg:npm/a?x", "pkg:npm/a?x y=1", "pkg:npm/a?=1",
                          "pkg:npm/a?epoch=1a", "pkg:golang/a/b@/v1", "pkg:pypi/a@1/2",
                          "pkg:npm/a#%2F", "pkg:npm/a#%4", "", "pkg:", "pkg:npm", "pkg:/x",
                          "pkg:npm/", "pkg:npm/%4", "pkg:npm/a@%zz", "pkg:npm/a?x=%", "npm/a@1"}) {
    EXPECT_EQ(text(bad), "none") << bad;
  }
}

TEST(InventoryTest, WhatIsNotRecognisedIsSaid) {
  EXPECT_THAT(DetectFormat("notes.txt", "hello").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "notes.txt: not recognised"));
  EXPECT_THAT(DetectFormat("x.json", "{}").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "There are: dpkg's status file, req"));
  Inventory inventory;
  EXPECT_THAT(ReadInventory("/nowhere/poetry.lock", {}, inventory),
              StatusIs(absl::StatusCode::kNotFound, "/nowhere/poetry.lock"));
}

// A directory of its own for each test.
class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() {
    std::string name = ::testing::TempDir() + "/inventory.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
  }
  ~DirectoryTest() override { fs::remove_all(directory_); }

  void Write(const fs::path& path, const std::string& content) {
    fs::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  // What was found, with the paths of what is unchecked relative to the directory.
  Lines Read(Depth depth = Depth::kOne) {
    Inventory inventory;
    const absl::Status read = ReadInventory(directory_.string(), {}, inventory, depth);
    if (!read.ok()) return {absl::StrCat("error: ", read.message())};
    for (Unchecked& unchecked : inventory.unchecked) {
      unchecked.what = fs::path(unchecked.file).lexically_relative(directory_).string();
      absl::StrReplaceAll({{directory_.string() + "/", ""}}, &unchecked.why);
    }
    return LinesOf(inventory);
  }

  fs::path directory_;
};

constexpr char kForeign[] = "is of a format that is not read here";

// Under a name that says nothing.
TEST_F(DirectoryTest, ABillIsKnownByWhatStandsInIt) {
  const std::string none = absl::StrCat("error: ", directory_.string(), ": no lock file, no SBOM");
  const auto is_found = [&](const std::string& content) {
    Write("notes", content);
    const Lines lines = Read();
    EXPECT_EQ(lines.size(), 1u);
    EXPECT_TRUE(absl::StartsWith(lines.at(0), none) || absl::StartsWith(lines.at(0), "! notes: "))
        << lines.at(0);
    return !absl::StartsWith(lines.at(0), none);
  };
  for (const char* bill :
       {"SPDXVersion: SPDX-2.3\n", "# x\r\n  SPDXVersion:SPDX-2.3\r\n",
        "\xef\xbb\xbfSPDXVersion: SPDX-2.2", R"({"x":1,"bomFormat":"CycloneDX"})",
        R"({"spdxVersion" : "SPDX-2.3"})", "<bom xmlns='http://cyclonedx.org/schema/bom/1.5'>",
        "<x:bom xmlns:x=\"http://cyclonedx.org/schema/bom/1.4\">", "---\nbomFormat: CycloneDX\n",
        "SPDXID: x\nspdxVersion: SPDX-2.3\n", "<rdf:RDF xmlns:x='http://spdx.org/rdf/terms#'>",
        R"({"@context":"https://spdx.org/rdf/3.0.1/spdx-context.jsonld"})",
        R"({"artifactRelationships":[]})"}) {
    EXPECT_TRUE(is_found(bill)) << bill;
    std::string wide;
    for (const char* c = bill; *c != '\0'; ++c) wide += {*c, '\0'};
    EXPECT_TRUE(is_found(wide)) << bill;
  }
  for (const char* other : {"", "lodash is at 4.17.20", "// SPDX-License-Identifier: MIT",
                            "the tag SPDXVersion: is first", "<project/>", R"({"version":1})"}) {
    EXPECT_FALSE(is_found(other)) << other;
  }
}

TEST_F(DirectoryTest, IsAProjectOrAnEnvironment) {
  EXPECT_EQ(Read(), (Lines{absl::StrCat("error: ", directory_.string(),
                                        ": no lock file, no SBOM and no installed Python packages "
                                        "here")}));
  Write("go.sum", "a.b/c v1.0.0 h1:x\n");
  Write("requirements.txt", "b==1\n");
  Write("README.txt", "Needs b==2\n");
  const std::string site = "lib/python3.11/site-packages/";
  Write(site + "c-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: c\nVersion: 1\n");
  Write(site + "d.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: d\nVersion: 2\n");
  Write(site + "e.egg-info", "Metadata-Version: 2.1\nName: e\nVersion: 3\n");
  Write(site + "e/tests/requirements.txt", "of-a-package==1\n");
  fs::create_symlink("lib", directory_ / "lib64");
  const Lines found = {"Go a.b/c v1.0.0", "PyPI b 1", "PyPI c 1", "PyPI d 2", "PyPI e 3"};
  EXPECT_EQ(Read(), found);
  EXPECT_EQ(Read(Depth::kAll), found) << "nothing is read twice";
  Write("lib/pypy3.9/site-packages/f-1.dist-info/METADATA", "Name: f\nVersion: 1\n");
  Write("site-packages/g-1.dist-info/METADATA", "Name: g\nVersion: 1\n");
  Write("Lib/site-packages/h-1.dist-info/METADATA", "Name: h\nVersion: 1\n");
  Write("lib/python3/dist-packages/i-1.dist-info/METADATA", "Name: i\nVersion: 1\n");
  EXPECT_EQ(Read().size(), 9u);
  EXPECT_EQ(Read(Depth::kAll).size(), 9u);
}

// Other lock files, and packages in one file, are not passed over in silence.
TEST_F(DirectoryTest, WhatIsNotReadIsSaid) {
  Write("go.sum", "a.b/c v1.0.0 h1:x\n");
  std::vector<std::string> names = {
      "yarn.lock",     "pnpm-lock.yaml",     "Pipfile.lock",    "uv.lock",       "pdm.lock",
      "Gemfile.lock",  "bun.lockb",          "pylock.dev.toml", "bom.xml",       "g.egg",
      "composer.lock", "packages.lock.json", "gradle.lockfile", "app.deps.json", "mix.lock"};
  for (const std::string& name : names) Write(name, "x");
  for (const char* of_a_process : {".lock", "state.lock"}) Write(of_a_process, "");
  fs::create_directories(directory_ / ".git" / "x");
  Write(".git/x/yarn.lock", "x");
  std::ranges::sort(names);
  Lines expected = {"Go a.b/c v1.0.0"};
  for (const std::string& name : names)
    expected.push_back(absl::StrCat("! ", name, ": ", kForeign));
  EXPECT_EQ(Read(), expected);
}

// A manifest without a lock file says that there are packages, and not which.
TEST_F(DirectoryTest, AManifestWithoutALockFileIsSaid) {
  const std::string alone = "says what the project needs, and no lock file beside it says more";
  const std::string never = "says what the project needs, and is not read here";
  Write("requirements.txt", "b==1\n");
  Write("package.json", R"({"workspaces":["x"]})");
  Write("Cargo.toml", "");
  Write("go.mod", "module x\nrequire h.org/a v1.0.0\n");
  Write("pom.xml", "<project/>");
  EXPECT_EQ(
      Read(),
      (Lines{"PyPI b 1", absl::StrCat("! Cargo.toml: ", alone), absl::StrCat("! go.mod: ", alone),
             absl::StrCat("! package.json: ", alone), absl::StrCat("! pom.xml: ", never)}));
  Write("package-lock.json", R"({"packages":{"":{},"node_modules/a":{"version":"1.0.0"}}})");
  Write("Cargo.lock", "[[package]]\nname = 'c'\nversion = '1.0.0'\nsource = 'registry+x'\n");
  // Workspaces have theirs above.
  Write("Cargo.lock",
        "[[package]]\nname = 'c'\nversion = '1.0.0'\nsource = 'registry+x'\n"
        "[[package]]\nname = 'mine'\nversion = '1.0.0'\n");
  Write("member/Cargo.toml", "[package]\nname = 'mine'\n");
  Write("package-lock.json", R"({"packages":{"":{},"node_modules/a":{"version":"1.0.0"},
      "node_modules/mine":{"link":true,"resolved":"member"},"member":{}}})");
  Write("member/package.json", R"({"workspaces":["x"]})");
  fs::create_directories(directory_ / "member/node_modules");
  Write("node_modules/a/package.json", "{}");
  EXPECT_EQ(Read(), (Lines{"crates.io c 1.0.0", "npm a 1.0.0", "PyPI b 1",
                           absl::StrCat("! go.mod: ", alone), absl::StrCat("! pom.xml: ", never)}));
  fs::remove(directory_ / "package-lock.json");
  EXPECT_EQ(Read(),
            (Lines{"crates.io c 1.0.0", "PyPI b 1", absl::StrCat("! go.mod: ", alone),
                   "! node_modules: has installed packages, which are not read here",
                   absl::StrCat("! package.json: ", alone), absl::StrCat("! pom.xml: ", never),
                   "! member: lies below, and was not read: 2 files or directories there "
                   "(--recursive reads them)"}));
}

// A lock file of yesterday, or of another project, does not have what the project needs today.
TEST_F(DirectoryTest, ALockFileIsThatOfItsPackageJson) {
  const auto lock = [&](absl::string_view project, absl::string_view rest = "") {
    Write("package-lock.json",
          absl::StrCat(R"({"lockfileVersion":3,"packages":{"":)", project,
                       R"(,"node_modules/a":{"version":"1.0.0"})", rest, "}}"));
  };
  Write("package.json", R"({"dependencies":{"a":"^1.0.0"},"scripts":{"x":"y"}})");
  lock(R"({"dependencies":{"a":"^1.0.0"}})");
  EXPECT_EQ(Read(), Lines{"npm a 1.0.0"});
  const auto stale = [](absl::string_view manifest, absl::string_view how) {
    return absl::StrCat("! package-lock.json: is needed by ", manifest,
                        "package.json, and the lock file was made ", how,
                        ": npm install makes it anew");
  };
  const std::string without = stale("", "without it"),
                    other = stale("", "for another version of it");
  for (const char* kind :
       {"dependencies", "devDependencies", "optionalDependencies", "peerDependencies"}) {
    Write("package.json", absl::StrCat(R"({")", kind, R"(":{"a":"^1.0.0","lodash":"^4.0.0"}})"));
    EXPECT_EQ(Read(), (Lines{"npm a 1.0.0", without})) << kind;
    Write("package.json", absl::StrCat(R"({")", kind, R"(":{"a":"^2.0.0"}})"));
    EXPECT_EQ(Read(), (Lines{"npm a 1.0.0", other})) << kind;
  }
  Write("package.json", "{");
  EXPECT_EQ(Read().size(), 2u);
  fs::remove(directory_ / "package.json");
  ASSERT_EQ(::mkfifo((directory_ / "package.json").c_str(), 0600), 0);
  EXPECT_EQ(Read().size(), 2u);
  fs::remove(directory_ / "package.json");
  EXPECT_EQ(Read(), Lines{"npm a 1.0.0"});
  // Of workspaces, too.
  lock("{}",
       R"(,"node_modules/w":{"link":true,"resolved":"x/w"},"x/w":{"dependencies":{"a":"1"}})");
  Write("package.json", R"({"workspaces":["x/*"]})");
  Write("x/w/package.json", R"({"dependencies":{"a":"1"}})");
  EXPECT_EQ(Read(), Lines{"npm a 1.0.0"});
  Write("x/w/package.json", R"({"dependencies":{"a":"1","lodash":"1"}})");
  EXPECT_EQ(Read(), (Lines{"npm a 1.0.0", stale("x/w/", "without it")}));
  fs::remove_all(directory_ / "x");
  // Version 1 does not have what the project asks for, but must have the packages.
  Write("package-lock.json", R"({"lockfileVersion":1,"dependencies":{"a":{"version":"1.0.0"}}})");
  Write("package.json", R"({"dependencies":{"a":"^1.0.0"},"peerDependencies":{"p":"1"}})");
  EXPECT_EQ(Read(), Lines{"npm a 1.0.0"});
  for (const char* kind : {"devDependencies", "optionalDependencies"}) {
    Write("package.json", absl::StrCat(R"({")", kind, R"(":{"lodash":"^4.0.0"}})"));
    EXPECT_EQ(Read(), (Lines{"npm a 1.0.0", without})) << kind;
  }
}

// What is asked for in one version alone is not the other version that a lock file has.
TEST_F(DirectoryTest, ALockFileHasTheVersionsThatAreAskedFor) {
  Write("package-lock.json", R"({"lockfileVersion":1,"dependencies":{"a":{"version":"1.0.0"},
      "alias":{"version":"npm:real@2.0.0"}}})");
  const std::vector<std::pair<std::string, Lines>> npm = {
      {R"("a":"1.0.0","alias":"npm:real@2.0.0")", {}},
      {R"("a":"^0.9.0")", {}},
      {R"("a":"=v1.0.0")", {}},
      {R"("a":"0.9.0")", {"npm a 0.9.0 (possible)"}},
      {R"("a":" = 0.9.0 ")", {"npm a 0.9.0 (possible)"}},
      {R"("alias":"npm:real@1.9.0")", {"npm real 1.9.0 (possible)"}},
      {R"("alias":"npm:other@2.0.0")", {"npm other 2.0.0 (possible)"}}};
  const auto with = [](Lines lines, const Lines& more) {
    lines.insert(lines.end(), more.begin(), more.end());
    return lines;
  };
  for (const auto& [needs, more] : npm) {
    Write("package.json", absl::StrCat(R"({"dependencies":{)", needs, "}}"));
    EXPECT_EQ(Read(), with({"npm a 1.0.0", "npm real 2.0.0"}, more)) << needs;
  }
  fs::remove(directory_ / "package.json");
  fs::remove(directory_ / "package-lock.json");
  Write("poetry.lock",
        "[[package]]\nname = 'a-b'\nversion = '1.0'\n[[package]]\nname = 'a-b'\nversion = '2'\n"
        "[metadata]\n");
  const Lines both = {"PyPI a-b 1.0", "PyPI a-b 2"};
  for (const char* same :
       {"[tool.poetry.dependencies]\nA_B = '1.0.0'\n", "[project]\ndependencies = ['a.b==1']\n",
        "[project]\ndependencies = ['a.b==3.*', 'a-b>=3', 'a-b ~= 3.1']\n",
        "[tool.poetry.dependencies]\na-b = {version = '==2.0'}\n",
        "[tool.poetry.dependencies]\na-b = '^3'\n",
        "[project]\ndependencies = [\"a-b==3; python_version < '3'\"]\n"}) {
    Write("pyproject.toml", same);
    EXPECT_EQ(Read(), both) << same;
  }
  for (const char* other :
       {"[tool.poetry.dependencies]\nA_B = '3.0'\n", "[project]\ndependencies = ['a-b == 3.0']\n",
        "[tool.poetry.group.x.dependencies]\na-b = {version = '==3.0'}\n",
        "[project]\ndependencies = ['a-b[x]===3.0']\n",
        "[dependency-groups]\nx = ['a-b (==3.0)']\n",
        "[tool.poetry.dependencies]\na-b = [{version = '3.0'}]\n"}) {
    Write("pyproject.toml", other);
    const Lines lines = Read();
    ASSERT_EQ(lines.size(), 3u) << other;
    EXPECT_TRUE(absl::EndsWithIgnoreCase(lines[2], " 3.0 (possible)")) << lines[2];
  }
  fs::remove(directory_ / "pyproject.toml");
  fs::remove(directory_ / "poetry.lock");
  Write("Cargo.lock",
        "[[package]]\nname = 'own'\nversion = '0.1.0'\ndependencies = ['b']\n"
        "[[package]]\nname = 'b'\nversion = '1.0.0'\nsource = 'registry+x'\n");
  const std::string own = "[package]\nname = 'own'\n[dependencies]\n";
  for (const char* same :
       {"b = '=1.0.0'\n", "b = '1.2.0'\n", "b = '=1.0'\n", "b = {version = '= 1.0.0'}"}) {
    Write("Cargo.toml", own + same);
    EXPECT_EQ(Read(), Lines{"crates.io b 1.0.0"}) << same;
  }
  for (const char* other : {"b = '=0.9.0'\n", "b = {version = '= 0.9.0'}\n",
                            "x = {package = 'b', version = '=0.9.0'}\n"}) {
    Write("Cargo.toml", own + other);
    EXPECT_EQ(Read(), (Lines{"crates.io b 1.0.0", "crates.io b 0.9.0 (possible)"})) << other;
  }
}

TEST_F(DirectoryTest, ALockFileIsThatOfItsTomlManifest) {
  const auto stale = [](absl::string_view lock, absl::string_view manifest,
                        absl::string_view tool) {
    return absl::StrCat("! ", lock, ": is needed by ", manifest,
                        ", and the lock file was made without it: ", tool, " makes it anew");
  };
  const std::string cargo = stale("Cargo.lock", "Cargo.toml", "cargo build"),
                    poetry = stale("poetry.lock", "pyproject.toml", "poetry lock");
  Write("Cargo.lock",
        "[[package]]\nname = 'own'\nversion = '0.1.0'\ndependencies = ['serde_json', 'b 1.0.0']\n"
        "[[package]]\nname = 'serde_json'\nversion = '1.0.0'\nsource = 'registry+x'\n"
        "[[package]]\nname = 'b'\nversion = '1.0.0'\nsource = 'registry+x'\n"
        "[[package]]\nname = 'time'\nversion = '1.0.0'\nsource = 'registry+x'\n");
  const Lines crates = {"crates.io serde_json 1.0.0", "crates.io b 1.0.0", "crates.io time 1.0.0"};
  const auto with = [](Lines lines, const std::string& more) {
    lines.push_back(more);
    return lines;
  };
  const std::string own = "[package]\nname = 'own'\n";
  for (const std::string& has :
       {std::string(), std::string("[workspace]\n"), own,
        own + "[dependencies]\nserde-json = '1'\nother = {package = 'b', version = '1'}\n",
        own + "[dev-dependencies]\nx.workspace = true\n[workspace.dependencies]\n"
              "x = {package = 'b', version = '1'}\n"}) {
    Write("Cargo.toml", has);
    EXPECT_EQ(Read(), crates) << has;
  }
  for (const char* kind : {"dependencies", "dev-dependencies", "build-dependencies",
                           "target.'cfg(unix)'.dependencies"}) {
    Write("Cargo.toml",
          absl::StrCat(own, "[", kind, "]\ntime = {version = '1', optional = true}\n"));
    EXPECT_EQ(Read(), with(crates, cargo)) << kind;
  }
  Write("Cargo.toml", "[package]\nname = 'foreign'\n");
  EXPECT_EQ(Read(), with(crates, cargo));
  Write("Cargo.toml", "[package");
  EXPECT_EQ(Read().size(), 4u);
  fs::remove(directory_ / "Cargo.toml");
  fs::remove(directory_ / "Cargo.lock");
  Write("poetry.lock", "[[package]]\nname = 'a-b'\nversion = '1'\n[metadata]\n");
  for (const char* has :
       {"[tool.poetry.dependencies]\npython = '^3.9'\nA_B = '*'\n",
        "[tool.poetry.dependencies]\nc = {version = '1', python = '<3'}\nd = [{version = '1', "
        "platform = 'x'}]\n",
        "[project]\ndependencies = [\"a.b[x]>=1\", \"c; python_version < '3'\"]\n",
        "[project.optional-dependencies]\nx = ['a-b']\n",
        "[dependency-groups]\ndev = ['a_b', {include-group = 'x'}]\nx = []\n"}) {
    Write("pyproject.toml", has);
    EXPECT_EQ(Read(), Lines{"PyPI a-b 1"}) << has;
  }
  for (const char* lacks :
       {"[tool.poetry.dependencies]\nc = '*'\n", "[tool.poetry.dev-dependencies]\nc = '*'\n",
        "[tool.poetry.group.test.dependencies]\nc = {version = '*', extras = ['x']}\n",
        "[project]\ndependencies = ['c>=1']\n",
        "[tool.poetry.dependencies]\nc = [{version = '1'}]\n",
        "[project.optional-dependencies]\nx = ['c==1']\n",
        "[dependency-groups]\ndev = ['c>1', {include-group = 'x'}]\nx = []\n"}) {
    Write("pyproject.toml", lacks);
    EXPECT_EQ(Read(), (Lines{"PyPI a-b 1", poetry})) << lacks;
  }
}

// go.mod says which modules are used, and which Go at least; go.sum has their hashes, and those of
// what was used before.
TEST_F(DirectoryTest, AGoSumIsThatOfItsGoMod) {
  Write("go.sum",
        "h.org/a v1.0.0 h1:x=\nh.org/a v1.0.0/go.mod h1:x=\nh.org/a v0.9.0 h1:x=\n"
        "h.org/b v1.0.0/go.mod h1:x=\nh.org/c v1.0.0 h1:x=\n");
  const auto sum = [](absl::string_view name, absl::string_view why) {
    return absl::StrCat("! go.sum: ", name, why);
  };
  const std::string lacks =
      sum("", "is needed by go.mod, and go.sum does not name it: go mod tidy makes it anew");
  const Lines all = {"Go h.org/a v1.0.0", "Go h.org/a v0.9.0", "Go h.org/c v1.0.0"};
  const Lines used = {all[0], "Go h.org/a v0.9.0 (possible)", "Go h.org/c v1.0.0 (possible)"};
  const auto with = [](Lines lines, const Lines& more) {
    lines.insert(lines.end(), more.begin(), more.end());
    return lines;
  };
  const std::string head = "module h.org/own // x\n\n";
  struct Case {
    std::string mod;
    Lines lines;
  };
  for (const Case& c : std::vector<Case>{
           // Before Go 1.17 a go.mod does not list all.
           {"go 1.16\nrequire h.org/a v1.0.0\n", with(all, {"Go stdlib 1.16.0 (possible)"})},
           {"require h.org/a v1.0.0\n", with(all, {"Go stdlib "})},
           {"go 1.17\nrequire h.org/a v1.0.0\n", with(used, {"Go stdlib 1.17.0 (possible)"})},
           {"go 1.21rc2\nrequire (\n\t\"h.org/a\" v1.0.0\n\th.org/b v1.0.0 // indirect\n)\r\n",
            with(used, {"Go h.org/b v1.0.0 (possible)", "Go stdlib 1.21.0-rc.2 (possible)"})},
           {"go 1.21.0\nrequire (\nh.org/a v1.0.0\nh.org/d v1.0.0\n)\nreplace h.org/d => h.org/b "
            "v1.0.0\n",
            with(used,
                 {"Go h.org/d ", "Go h.org/b v1.0.0 (possible)", "Go stdlib 1.21.0 (possible)"})},
           {"go 1.21.3\ntoolchain go1.24.2\nrequire h.org/a v1.0.0\nexclude h.org/a v0.9.0\n"
            "retract [v0.1.0, v0.2.0]\ntool h.org/a/cmd\n",
            with(used, {"Go stdlib 1.24.2 (possible)"})},
           // What go.sum lacks, and what is replaced.
           {"go 1.21.0\nrequire h.org/a v1.0.0\nrequire h.org/d v1.0.0\n",
            with(used, {"Go stdlib 1.21.0 (possible)", lacks})},
           {"go 1.21.0\nrequire h.org/a v1.0.1\n",
            {"Go h.org/a v1.0.0 (possible)", used[1], used[2], "Go stdlib 1.21.0 (possible)",
             lacks}},
           {"go 1.21.0\nrequire h.org/a v1.0.1\nreplace h.org/a v1.0.1 => h.org/a v1.0.0\n",
            with(used, {"Go stdlib 1.21.0 (possible)"})},
           {"go 1.21.0\nrequire h.org/d v1.0.1\nreplace h.org/d => h.org/a v1.0.0\n",
            with(used, {"Go h.org/d ", "Go stdlib 1.21.0 (possible)"})},
           {"go 1.21.0\nrequire (\nh.org/a v1.0.0\nh.org/d v1.0.1\n)\nreplace (\nh.org/d => "
            "./d\n)\n",
            with(used, {"Go h.org/d ", "Go stdlib 1.21.0 (possible)"})}}) {
    Write("go.mod", head + c.mod);
    EXPECT_EQ(Read(), c.lines) << c.mod;
  }
  for (const char* odd : {"require h.org/a", "require (\nh.org/a v1.0.0\n", "x y\n", "go\n",
                          "require \"h.org/a v1.0.0\n", "replace h.org/a\n",
                          "replace h.org/a => ./a\nreplace h.org/a => ./b\n"}) {
    Write("go.mod", head + odd);
    const Lines lines = Read();
    ASSERT_EQ(lines.size(), 4u) << odd;
    EXPECT_TRUE(absl::StrContains(lines[3], "cannot be compared with the project: go.mod")) << odd;
  }
  fs::remove(directory_ / "go.sum");
  Write("requirements.txt", "b==1\n");
  EXPECT_EQ(Read(), (Lines{"PyPI b 1",
                           "! go.mod: says what the project needs, and no lock file "
                           "beside it says more"}));
}

// A lock file speaks for its own manifest alone.
TEST_F(DirectoryTest, ALockFileIsOfItsManifestAlone) {
  const std::string alone = "says what the project needs, and no lock file beside it says more";
  const std::string never = "says what the project needs, and is not read here";
  Write("requirements.txt", "-e .\nb==1\n");
  Write("requirements-dev.txt", "c==1\n");
  for (const char* manifest : {"pyproject.toml", "setup.py", "setup.cfg", "Pipfile"}) {
    Write(manifest, "[options] # of the project\n");
  }
  const Lines python = {absl::StrCat("! Pipfile: ", alone),
                        absl::StrCat("! pyproject.toml: ", alone),
                        absl::StrCat("! setup.cfg: ", never), absl::StrCat("! setup.py: ", never)};
  Lines expected = {"PyPI c 1", "PyPI b 1"};
  expected.insert(expected.end(), python.begin(), python.end());
  EXPECT_EQ(Read(), expected);
  Write("poetry.lock", "[[package]]\nname = 'a'\nversion = '1'\n[metadata]\n");
  expected.erase(std::ranges::find(expected, python[1]));
  expected.insert(expected.begin(), "PyPI a 1");
  EXPECT_EQ(Read(), expected);
  for (const char* manifest : {"setup.py", "setup.cfg", "Pipfile"})
    fs::remove(directory_ / manifest);
  EXPECT_EQ(Read(), (Lines{"PyPI a 1", "PyPI c 1", "PyPI b 1"}));
}

// Nor does one that is empty say anything.
TEST_F(DirectoryTest, AnEmptyLockFileIsNone) {
  Write("requirements.txt", "b==1\n");
  Write("package.json", R"({"workspaces":["x"]})");
  Write("node_modules/lodash/package.json", "{}");
  Write("Gemfile", "x");
  Write("yarn.lock", "");
  Write("Gemfile.lock", "");
  const std::string alone = "says what the project needs, and no lock file beside it says more";
  EXPECT_EQ(Read(), (Lines{"PyPI b 1", absl::StrCat("! Gemfile: ", alone),
                           "! node_modules: has installed packages, which are not read here",
                           absl::StrCat("! package.json: ", alone)}));
}

// A lock file above is one of the workspaces that it names, and of no other project.
TEST_F(DirectoryTest, ALockFileAboveIsOfItsWorkspacesAlone) {
  Write("package-lock.json", R"({"packages":{"":{},"node_modules/husky":{"version":"1.0.0"},
      "node_modules/w":{"link":true,"resolved":"libs/w"},"libs/w":{},
      "node_modules/out":{"link":true,"resolved":"../svc"},"../svc":{}}})");
  Write("poetry.lock", "[[package]]\nname = 'a'\nversion = '1'\n[metadata]\n");
  Write("Cargo.lock",
        "[[package]]\nname = 'http'\nversion = '1.0.0'\nsource = 'registry+x'\n"
        "[[package]]\nname = 'part'\nversion = '1.0.0'\n");
  Write("libs/w/package.json", R"({"workspaces":["x"]})");
  Write("libs/w/node_modules/x/package.json", "{}");
  Write("part/Cargo.toml", "[package]\nname = 'part'\n");
  const Lines found = {"crates.io http 1.0.0", "npm husky 1.0.0", "PyPI a 1"};
  EXPECT_EQ(Read(), found);
  EXPECT_EQ(Read(Depth::kAll), found);
  Write("svc/package.json", R"({"workspaces":["x"]})");
  Write("svc/node_modules/lodash/package.json", "{}");
  Write("libs/w/other/package.json", R"({"workspaces":["x"]})");
  Write("py/pyproject.toml", "[project]\ndependencies = ['x']\n");
  Write("tool/Cargo.toml", "[package]\nname = 'tool'\n");
  Write("copy/Cargo.toml", "[package]\nname = 'http'\n");
  Write("apart/Cargo.toml", "workspace = {}\n[package]\nname = 'part'\n");
  Write("broken/Cargo.toml", "[package\n");
  const std::string alone = ": says what the project needs, and no lock file beside it says more";
  Lines all = found;
  for (const char* file : {"apart/Cargo.toml", "broken/Cargo.toml", "copy/Cargo.toml",
                           "libs/w/other/package.json", "py/pyproject.toml"}) {
    all.push_back(absl::StrCat("! ", file, alone));
  }
  all.push_back("! svc/node_modules: has installed packages, which are not read here");
  all.push_back(absl::StrCat("! svc/package.json", alone));
  all.push_back(absl::StrCat("! tool/Cargo.toml", alone));
  EXPECT_EQ(Read(Depth::kAll), all);
  EXPECT_EQ(Read().size(), found.size() + 7);
}

// Files that are left out say so, whatever they are called.
TEST_F(DirectoryTest, NoPackagesAreLeftOutInSilence) {
  Write("requirements.txt", "b==1\n");
  std::vector<std::string> names = {"app-bom.xml",       "app.csproj",
                                    "app.jar",           "base.in",
                                    "bower.json",        "constraints.txt",
                                    "django-3.whl",      "dev-reqs.txt",
                                    "a.gradle",          "requirements.pip",
                                    "environment-x.yml", "sbom.cyclonedx.json.gz",
                                    "Podfile",           "upper-constraints.txt",
                                    "sbom.yaml",         "app.spdx.jsonld"};
  for (const std::string& name : names) Write(name, "x");
  for (const char* directory : {"bower_components", "conda-meta", "status.d"}) {
    fs::create_directories(directory_ / directory);
    names.push_back(directory);
  }
  std::ranges::sort(names);
  Inventory inventory;
  SHOAL_ASSERT_OK(ReadInventory(directory_.string(), {}, inventory));
  std::vector<std::string> unchecked;
  for (const Unchecked& each : inventory.unchecked) {
    unchecked.push_back(fs::path(each.file).filename().string());
  }
  EXPECT_EQ(unchecked, names);
  EXPECT_EQ(inventory.items.size(), 1u);
}

// What a file holds counts, and not its name alone.
TEST_F(DirectoryTest, AnInventoryIsFoundUnderANameThatSaysNothing) {
  const std::string cyclonedx =
      R"({"bomFormat":"CycloneDX","components":[{"purl":"pkg:npm/a@1.0.0"}]})";
  const std::string spdx =
      "SPDXVersion: SPDX-2.3\nPackageName: a\nSPDXID: SPDXRef-a\n"
      "ExternalRef: PACKAGE-MANAGER purl pkg:npm/a@1.0.0\n";
  const std::string long_list = std::string(1 << 18, ' ');
  const std::pair<std::string, std::string> read[] = {
      {"manifest.txt", spdx},
      {"manifest", spdx},
      {".components", cyclonedx},
      {"list.txt", "\n " + cyclonedx},
      {"middle.json", absl::StrCat(R"({"components":[{"purl":"pkg:npm/a@1.0.0"}],)", long_list,
                                   R"("bomFormat":"CycloneDX",)", long_list, R"("version":1})")}};
  for (const auto& [name, content] : read) {
    Write(name, content);
    EXPECT_EQ(Read(), Lines{"npm a 1.0.0"}) << name;
    fs::remove(directory_ / name);
  }
  Write("PKG-INFO", "Name: a\nVersion: 1\n");
  Write("METADATA", "Metadata-Version: 2.1\nName: b\nVersion: 1\n");
  EXPECT_EQ(Read(), (Lines{"PyPI b 1", "PyPI a 1"}));
  Write("METADATA", "name: \"of a build tool\"\n");
  EXPECT_EQ(Read(), Lines{"PyPI a 1"});
  const std::pair<std::string, std::string> unread[] = {
      {"app.xml", R"(<bom xmlns="http://cyclonedx.org/schema/bom/1.5"><components/></bom>)"},
      {"app.rdf", R"(<rdf:RDF xmlns:spdx="http://spdx.org/rdf/terms#"/>)"},
      {"utf16.data", std::string("\xff\xfe{\0\"\0b\0o\0m\0F\0o\0r\0m\0a\0t\0\"\0:\0", 26)},
      {"app.yml", "spdxVersion: SPDX-2.3\n"},
      {"packages", "# yarn lockfile v1\n"},
      {"lock.yaml", "lockfileVersion: '6.0'\n"},
      {"go.sum.txt", "a v1.0.0 h1:x\na v1.0.0/go.mod h1:x\n"},
      {"of-machine", "Package: a\nVersion: 1\n"},
      {"installed.db", "C:Q1x=\nP:musl\nV:1.2\n"},
      {"desc", "%NAME%\nzlib\n\n%VERSION%\n1:1.3-1\n"},
      {"deps.txt", "# ours\ndjango==3.1.8\n"},
      {"pinned", "  requests[security] >= 2.0, <3 ; python_version < '4'\n"},
      {"tox.ini", "[testenv]\ndeps =\n  pytest\n"},
      {"poetry.lock.bak", "[[package]]\nname = 'a'\nversion = '1'\n"},
      {"gems.old", "GEM\n  remote: https://rubygems.org/\n\nDEPENDENCIES\n  rails\n"},
      {"conda.yaml", "channels:\n- x\ndependencies:\n- y\n"},
      {"Pipfile.lock~", R"({"_meta":{"pipfile-spec":6}})"},
      {"trivy.out", R"({"SchemaVersion":2,"ArtifactName":"image"})"},
      {"sums", "a v1.0.0 h1:x\n"},
      {"all.props", "<Project><PackageReference Include=\"a\" Version=\"1\"/></Project>"},
      {"Brewfile", "brew 'openssl'\n"},
      {"sbom", "{}"},
      {"cyclonedx.out", "x"},
      {"npm.txt", R"({"dependencies":{"a":{"version":"1.0.0","resolved":"https://x"}}})"},
      {"deps.versions.toml", "x"},
      {"hash.list", "a==1 --hash=sha256:00\n"},
      {"below.txt", "django<3.2\n"},
      {"above.txt", "django [argon2] > 3\n"},
      {"repository.txt", "git+https://h.org/django#egg=django\n"},
      {"ours.txt", "-e git+ssh://git@h.org/django@3.1.8\n"},
      {"packed.txt", "https://h.org/x.zip?a#egg=django\n"},
      {"deps.yaml", "- django==3.1.8\n"},
      {"list.yaml", "x:\n  - \"django ~= 3.1\"\n"},
      {"freeze.out", "Django @ file:///w/Django-3.1.8\n"},
      {"meta.yaml", "package:\n  name: x\nrequirements:\n  run:\n    - django 3.1.8\n"},
      {"recipe.yaml", "requirements:\n  - django ==3.1.8\n"},
      {"all.json", absl::StrCat("[1, ", long_list, cyclonedx, long_list, "]")},
      {"long.txt", absl::StrCat(long_list, "\ndjango==3.1.8\n", long_list)}};
  for (const auto& [name, content] : unread) {
    Write(name, content);
    const Lines lines = Read();
    ASSERT_EQ(lines.size(), 2u) << name;
    EXPECT_TRUE(absl::StartsWith(lines[1], absl::StrCat("! ", name, ": "))) << lines[1];
    fs::remove(directory_ / name);
  }
  for (const char* name : {"requirements",
                           "dev-requirements.pip",
                           "requirements.yml",
                           "reqs/prod.txt",
                           "requirements/prod",
                           "package.json5",
                           "package.yaml",
                           "pixi.toml",
                           "vendor/composer/installed.json",
                           "usr/lib/opkg/status",
                           "var/lib/pacman/local/desc",
                           ".pnp.cjs",
                           "YARN.LOCK",
                           "app.pom",
                           "lodash-4.17.20.tgz",
                           "django-3.1.zip",
                           "cache/v1.2.0.zip",
                           "package-lock.json.gz",
                           "poetry.lock.XZ",
                           "requirements.txt.zst",
                           "lodash-4.17.20.tar",
                           "lodash.tgz",
                           "lodash_4.17.20.tgz",
                           "lodash_4.17.20.tar.zst",
                           ".lodash-4.17.20.tgz",
                           ".app.jar"}) {
    Write(name, "x");
    EXPECT_EQ(Read(Depth::kAll).size(), 2u) << name;
    fs::remove_all(directory_ / *fs::path(name).begin());
  }
  // Some file systems make no difference between small and capital letters.
  Write("Package.json", R"({"dependencies":{"lodash":"4.17.20"}})");
  Write("Setup.py", "x");
  EXPECT_EQ(Read().size(), 3u);
}

// A directory of metadata outside of an environment is that of a project.
TEST_F(DirectoryTest, WhatAnEggInfoNeedsIsSaid) {
  const std::string info = "Metadata-Version: 2.1\nName: x\nVersion: 1\n";
  Write("x.egg-info/PKG-INFO", info);
  Write("lib/python3.11/site-packages/y.egg-info/PKG-INFO", "Name: y\nVersion: 1\n");
  Write("lib/python3.11/site-packages/y.egg-info/requires.txt", "django==3.1.8\n");
  Write("x.egg-info/requires.txt", "\n[test]\n");
  const Lines clean = {"PyPI x 1", "PyPI y 1"};
  EXPECT_EQ(Read(), clean);
  Write("x.egg-info/requires.txt", "\n[test]\ndjango==3.1.8\n");
  EXPECT_EQ(Read(), (Lines{"PyPI x 1", "PyPI y 1",
                           "! x.egg-info/requires.txt: says what the project needs, and is not "
                           "read here"}));
}

TEST_F(DirectoryTest, WhatCannotBeLookedIntoIsSaid) {
  Write("requirements.txt", "b==1\n");
  Write("large.data", "{");
  fs::resize_file(directory_ / "large.data", (uintmax_t{1} << 26) + 1);
  const std::string why =
      ": cannot be looked into: it cannot be read, or has more than 64 MiB of JSON";
  EXPECT_EQ(Read(), (Lines{"PyPI b 1", absl::StrCat("! large.data", why)}));
}

// What is none of that must not be taken for it.
TEST_F(DirectoryTest, OtherFilesSayNothing) {
  Write("requirements.txt", "b==1\n");
  Write("notes.txt", "a == b, and c>=d in words\nPackage: a\nx >= 3 is\n");
  Write("bom.py", "KEY = '\"bomFormat\"'\na==1\n");
  Write("requirements.md", "a==1\n");
  Write("control", "Package: a\nArchitecture: any\n");
  Write("tox.ini", "[flake8]\nmax-line-length = 99\n");
  Write("photo-2.png", "x");
  Write("config.yml", "- a=1\n- a == b\n- x: y\n");
  Write("README.txt", "pip install git+https://h.org/x#egg=x\nask me@h.org\na->3\n<b> 1\n");
  Write("tests/skip_bom.gitignore", "\xef\xbb\xbfignored\n");
  Write("tests/utf8-bom.txt",
        "\xef\xbb\xbf"
        "words\n");
  Write("app.js.gz", "x");
  Write("ls.1.gz", "x");
  Write("prices.xlsx", "PK\3\4x");
  Write(".tool-versions", "nodejs 18.12.0\n");
  Write("pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n");
  EXPECT_EQ(Read(), Lines{"PyPI b 1"});
}

// A line may be a requirement or arithmetic: what stands around it decides.
TEST_F(DirectoryTest, ARequirementIsToldFromArithmetic) {
  Write("requirements.txt", "b==1\n");
  for (const char* arithmetic :
       {"x == 1\n", "Remember:\nx == 1\n", "if\ncount >= 3\nthen stop\n", "n > 0\nx < 2\n",
        "x == 1.5\n", "the loop ends where\n\nretries < 10\n",
        "an address like\nsvn+ssh:// names a user\n"}) {
    Write("notes.txt", arithmetic);
    EXPECT_EQ(Read(), Lines{"PyPI b 1"}) << arithmetic;
  }
  for (const char* requirement :
       {"django >= 3\n", "# ours\nx == 1\ndjango\nsix > 1\n", "words\ndjango==3\n", "words\nx==1\n",
        "words\ndjango >= 3.1\n", "words\ndjango >= 3, < 4\n", "words\ndjango[argon2] >= 3\n",
        "words\ndjango==v3.1.8\n", "words\ndjango (==3.1.8)\n",
        "words\ndeps = [\n  \"django==3.1.8\",\n]\n", "words\n'django==3.1.8'\n"}) {
    Write("notes.txt", requirement);
    EXPECT_EQ(Read(), (Lines{"PyPI b 1",
                             "! notes.txt: has requirements of pip's, under a name by which they "
                             "are not read"}))
        << requirement;
  }
}

// What tools print, saved under any name.
TEST_F(DirectoryTest, AListThatAToolPrintedIsSaid) {
  Write("requirements.txt", "b==1\n");
  const std::string long_name(200, 'n');
  const std::pair<const char*, std::string> printed[] = {
      {"pip list", "Package    Version\n---------- -------\nDjango     3.1.8\n"},
      {"pip list of short names", "Package Version\n------- -------\nsix     1\n"},
      {"pip list --editable",
       "Package Version Editable project location\n------- ------- -----\nx 1 /w/x\n"},
      {"pip list --format=json", R"([{"name": "Django", "version": "3.1.8"}])"},
      {"pip list --format=legacy", "Django (3.1.8)\nsix (1.16.0)\n"},
      {"pip freeze", "Django==3.1.8\n"},
      {"pip freeze of addresses", "-e git+https://h.org/x@abc#egg=x\n"},
      {"pip show", "Name: Django\nVersion: 3.1.8\nRequires: asgiref\nRequired-by: \n"},
      {"pipdeptree", "Django==3.1.8\n  - asgiref [required: >=3.2.10, installed: 3.3.4]\n"},
      {"pipx list", "venvs are in /x\n   package black 23.1.0, installed using Python 3.11\n"},
      {"poetry show", "asgiref 3.3.4 ASGI specs\ndjango  3.1.8 A high-level framework\n"},
      {"uv tree", "app v0.1.0\n├── django v3.1.8\n"},
      {"conda list",
       "# packages in environment at /opt:\n#\n# Name  Version  Build  Channel\n"
       "openssl  3.0  h1_0\n"},
      {"go list -m all", "h.org/app\ngolang.org/x/text v0.3.6\n"},
      {"go list -m all with a replacement", "h.org/app\nh.org/a v1.0.0 => ../a\n"},
      {"go list -m -json all",
       "{\n\t\"Path\": \"h.org/app\"\n}\n{\n\t\"Path\": \"h.org/a\",\n\t\"Version\": "
       "\"v1.0.0\"\n}\n"},
      {"go mod graph", "h.org/app golang.org/x/text@v0.3.6\n"},
      {"go version -m", "app: go1.21.0\n\tpath\th.org/app\n\tdep\tgolang.org/x/text\tv0.3.6\n"},
      {"npm ls", "app@1.0.0 /w\n└─┬ a@1.0.0\n  └── lodash@4.17.20\n"},
      {"npm ls of one", "app@1.0.0 /w\n└── @x/y@1.0.0\n"},
      {"npm ls --no-unicode", "app@1.0.0 /w\n`-- lodash@4.17.20\n"},
      {"npm ls --json",
       R"({"name":"app","version":"1.0.0","dependencies":{"lodash":{"version":"4.17.20"}}})"},
      {"npm ls --json behind a warning",
       "npm warn x\n{\"dependencies\":{\"lodash\":{\"version\":\"4.17.20\",\"resolved\":\"x\"}}}"},
      {"npm outdated",
       "Package  Current  Wanted  Latest  Location\nlodash  4.17.20  4.17.21  x  y\n"},
      {"npm ls --parseable --long", "/w:app@1.0.0\n/w/node_modules/lodash:lodash@4.17.20\n"},
      {"yarn list", "├─ lodash@4.17.20\n"},
      {"yarn info", "├─ lodash@npm:4.17.20\n"},
      {"yarn list --json",
       R"({"type":"tree","data":{"trees":[{"name":"lodash@4.17.20","children":[]}]}})"},
      {"pnpm ls", "Legend: x\n\ndependencies:\nlodash 4.17.20\nexpress 4.18.2\n"},
      {"cargo tree", "app v0.1.0 (/w)\n├── http v0.1.19\n│   └── bytes v0.4.12\n"},
      {"cargo tree --charset ascii", "app v0.1.0 (/w)\n|-- http v0.1.19\n"},
      {"cargo tree --prefix depth", "0app v0.1.0 (/w)\n1http v0.1.19\n"},
      {"cargo install --list", "ripgrep v13.0.0:\n    rg\n"},
      {"cargo metadata", R"({"packages":[{"name":"http","version":"0.1.19"}],"version":1})"},
      {"dpkg -l",
       "Desired=Unknown/Install\n||/ Name  Version  Architecture Description\n"
       "ii  openssl  3.0.11-1  amd64  x\n"},
      {"dpkg-query -W", "openssl\t3.0.11-1~deb12u2\nzlib1g\t1:1.2.13.dfsg-1\n"},
      {"apt list", "Listing... Done\nopenssl/stable,now 3.0.11-1 amd64 [installed]\n"},
      {"rpm -qa", "openssl-libs-3.0.7-24.el9.x86_64\n"},
      {"apk info -v", "musl-1.2.3-r4\n"},
      {"pacman -Q", "zlib 1:1.3-1\nopenssl 3.1.4-1\n"},
      {"gem list", "*** LOCAL GEMS ***\n\nrails (7.0.4)\n"},
      {"mvn dependency:tree", "[INFO] org.x:app:jar:1\n[INFO] +- org.y:z:jar:1.0:compile\n"},
      {"gradle dependencies", "compileClasspath\n+--- org.y:z:1.0 -> 1.1\n"},
      {"dotnet list", "   > Newtonsoft.Json   13.0.1   13.0.1\n"},
      {"poetry show --tree", "django 3.1.8 A framework\n├── asgiref >=3.2.10,<4\n└── pytz *\n"},
      {"cargo outdated", "Name  Project  Compat  Latest\n----  -------  ------  ------\nx 1 2 3\n"},
      {"cargo audit", "Crate:     http\nVersion:   0.1.19\nTitle:     x\n"},
      {"npm audit", "# npm audit report\n\nlodash  <=4.17.20\nSeverity: high\n"},
      {"osv-scanner",
       "╭───╮\n│ OSV URL │ ECOSYSTEM │ PACKAGE │ VERSION │\n├───┤\n│ x │ npm │ y │ 1 │\n"},
      {"trivy", "x\n│ Library │ Vulnerability │ Installed Version │\n├───┤\n│ lodash │ x │ 4 │\n"},
      {"pdm list", "╭───╮\n│ name    │ version │\n├───┤\n│ django  │ 3.1.8   │\n"},
      {"opam list", "# Packages matching: installed\n# Name        # Installed # Synopsis\nx y\n"},
      {"mix deps", "* phoenix 1.7.0 (Hex package) (mix)\n  locked at 1.7.0 (phoenix)\n  ok\n"},
      {"sbt dependencyTree", "[info] app:app:1\n[info]   +-org.y:z:1.0\n"},
      {"lein deps", " [org.clojure/clojure \"1.10.0\"]\n"},
      {"vcpkg list", "zlib:x64-linux   1.2.13#1  A library\n"},
      {"pkg info", "zlib-1.2.13    General purpose\nopenssl-3.0.8,1  TLS\n"},
      {"npm why", "lodash@4.17.20\nnode_modules/lodash\n  lodash@\"^4.17.20\" from the project\n"},
      {"yarn why", "=> Found \"lodash@4.17.20\"\ninfo x\n"},
      {"yarn info --json", "{\"value\":\"lodash@npm:4.17.20\"}"},
      {"dotnet list package",
       "   [net6.0]: \n   Top-level Package  Requested  Resolved\n   > A  1  1\n"},
      {"mvn dependency:list", "[INFO] x\n[INFO]    org.y:z:jar:1.0:compile\n[INFO] done\n"},
      {"a lock file of Gradle", "# x\norg.y:z:1.0=compileClasspath\nempty=\n"},
      {"snyk test", "Found 1 issue\n  Introduced through: lodash@4.17.20\n"},
      {"conda env export --json", R"({"channels":["d"],"dependencies":["django=3.1.8"]})"},
      {"a package.json under another name", R"({"dependencies":{"lodash":"^4.17.20"}})"},
      {"a table", "name,version\ndjango,3.1.8\n"}};
  for (const char* name : {"out.txt", "out.json", "out"}) {
    for (const auto& [tool, content] : printed) {
      Write(name, content);
      const Lines lines = Read();
      ASSERT_EQ(lines.size(), 2u) << tool << " in " << name;
      EXPECT_TRUE(absl::StartsWith(lines[1], absl::StrCat("! ", name, ": "))) << lines[1];
      fs::remove(directory_ / name);
    }
  }
  for (const char* other : {"mean 0.52\nstd 0.11\n",
                            "nameserver 8.8.8.8\n",
                            "the 0.418 0.24 -0.1\nof 0.7 0.5 0.1\n",
                            "├── src\n│   └── main.cc\n└── README-1.2.txt\n",
                            "--version 1.2\n-o out 1.2.3\n",
                            "The package version is what\nthe package says.\n",
                            "v1.2.3\n",
                            "v1.2.3, v1.2.4, v1.2.5\n",
                            "3.10.2\n",
                            "# h1\nSee h.org/x for more.\n",
                            "| a | b |\n|---|---|\n| c | 1.2 |\n",
                            R"({"name":"app","version":"1.0.0"})",
                            R"({"info":{"title":"x","version":"1.0.0"}})",
                            R"([{"name":"x"},{"version":"1.0.0"}])",
                            R"({"a":[{"name":"x","version":"latest"}]})",
                            "foo-1.2.tar.gz\nbar-2.0.1.so\n",
                            "WARNING:root:0.5 x\n",
                            "12:30:01.5 x\n",
                            "The name  and the version  of it\n",
                            R"({"x":["me@h.org"],"dependencies":{"a":"workspace:*"}})",
                            R"({"version":"0.2.0","configurations":[{"name":"x","type":"y"}]})",
                            "[section]\nname = x\nversion = 1.2.3\n",
                            "server:\n  version: 1.2.3\n"}) {
    Write("out.txt", other);
    EXPECT_EQ(Read(), Lines{"PyPI b 1"}) << other;
  }
}

// Nobody looks into a packed file, whatever it is called.
TEST_F(DirectoryTest, WhatIsPackedIsSaid) {
  Write("requirements.txt", "b==1\n");
  const std::pair<const char*, std::string> packed[] = {
      {"logs.txt.gz", "x"},
      {"data.zip", "x"},
      {"backup.TAR", "x"},
      {"a.br", "x"},
      {"b", "\x1f\x8b\x08"},
      {"c.dat",
       "\xfd"
       "7zXZ"},
      {"d.bin", "PK\x03\x04"},
      {"e", "\x28\xb5\x2f\xfd"},
      {"f.txt", "BZh31AY&SY"},
      {"g", "7z\xbc\xaf\x27\x1c"},
      {"h", "Rar!\x1a\x07"},
      {"i", std::string("a") + std::string(256, '\0') +
                std::string("ustar\0"
                            "00",
                            8)}};
  for (const auto& [name, content] : packed) {
    Write(name, content);
    EXPECT_EQ(Read(),
              (Lines{"PyPI b 1", absl::StrCat("! ", name, ": is packed, and is not looked into")}))
        << name;
    fs::remove(directory_ / name);
  }
}

// Packages come into an environment also from elsewhere, and without a word about them.
TEST_F(DirectoryTest, AnEnvironmentIsMoreThanItsMetadata) {
  const std::string site = "lib/python3.11/site-packages/";
  Write(site + "a-1.dist-info/METADATA", "Name: a\nVersion: 1\n");
  Write(site + "a-1.dist-info/RECORD", "a_mod/__init__.py,sha256=x,1\n\"b,c.py\",,\na.pth,,\n");
  Write(site + "a_mod/__init__.py", "");
  Write(site + "e.egg-info/PKG-INFO", "Name: e\nVersion: 1\n");
  Write(site + "e.egg-info/top_level.txt", "e_mod\n_e\n");
  Write(site + "e_mod/setup.py", "x");
  Write(site + "_e.cpython-311-x86_64-linux-gnu.so", "x");
  Write(site + "__pycache__/x.pyc", "x");
  Write(site + "_virtualenv.pth", " import _virtualenv\r\n./d.egg\n");
  Write(site + "d.egg/EGG-INFO/PKG-INFO", "Name: d\nVersion: 1\n");
  Write(site + "n-nspkg.pth",
        "import sys, types, os;p = os.path.join(sys._getframe(1).f_locals['sitedir'], *('n',))\n");
  Write("pyvenv.cfg", "include-system-site-packages = false\n");
  const Lines clean = {"PyPI a 1", "PyPI d 1", "PyPI e 1"};
  EXPECT_EQ(Read(), clean);
  EXPECT_EQ(Read(Depth::kAll), clean);
  // Given itself, it is the same.
  const fs::path whole = directory_;
  directory_ /= site.substr(0, site.size() - 1);
  EXPECT_EQ(Read(), clean);
  EXPECT_EQ(Read(Depth::kAll), clean);
  directory_ = whole;
  // Python's default is to share them.
  Write("pyvenv.cfg", "home = /usr/bin\n");
  EXPECT_EQ(Read().size(), clean.size() + 1);
  Write("pyvenv.cfg", "Include-System-Site-Packages=TRUE\r\n");
  Write(site + "django/__init__.py", "");
  Write(site + "six.py", "");
  Write(site + "p.pth", "# of ours\n/opt/lib\n");
  Write(site + "q.pth", "import q; q.add()\n");
  ASSERT_EQ(::mkfifo((directory_ / site / "r.pth").c_str(), 0600), 0);
  const std::string elsewhere =
      "adds directories elsewhere, or runs code that may: give those, too";
  EXPECT_EQ(Read(),
            (Lines{"PyPI a 1", "PyPI d 1", "PyPI e 1",
                   "! pyvenv.cfg: takes packages from those of the system, which are not read here",
                   absl::StrCat("! ", site.substr(0, site.size() - 1),
                                ": has 2 modules of which no package here says that it has it: "
                                "django, six.py"),
                   absl::StrCat("! ", site, "p.pth: ", elsewhere),
                   absl::StrCat("! ", site, "q.pth: ", elsewhere),
                   absl::StrCat("! ", site, "r.pth: ", elsewhere)}));
}

// Several packages may share a directory, whose other parts are of none of them.
TEST_F(DirectoryTest, ANamespaceIsOfThePackagesThatSayWhatTheyHaveInIt) {
  const std::string site = "lib/python3.11/site-packages/";
  const std::string place = site.substr(0, site.size() - 1);
  Write(site + "p-1.dist-info/METADATA", "Name: p\nVersion: 1\n");
  Write(site + "p-1.dist-info/RECORD",
        "google/protobuf/__init__.py,,\ngoogle/cloud/a/__init__.py,,\nwhole/__init__.py,,\n"
        "google/one.py,,\np-1.dist-info/RECORD,,\n");
  Write(site + "google/protobuf/__init__.py", "");
  Write(site + "google/protobuf/x/y.py", "");
  Write(site + "google/cloud/a/__init__.py", "");
  Write(site + "google/one.py", "");
  Write(site + "google/__pycache__/one.pyc", "");
  Write(site + "google/readme.txt", "");
  Write(site + "whole/__init__.py", "");
  Write(site + "whole/vendored/z.py", "");
  Write(site + "e.egg-info/PKG-INFO", "Name: e\nVersion: 1\n");
  Write(site + "e.egg-info/top_level.txt", "shared\n");
  Write(site + "shared/e/x.py", "");
  const Lines clean = {"PyPI e 1", "PyPI p 1"};
  EXPECT_EQ(Read(), clean);
  const auto with = [&](absl::string_view what) {
    Lines lines = clean;
    lines.push_back(absl::StrCat(
        "! ", place, ": has 1 module of which no package here says that it has it: ", what));
    return lines;
  };
  for (const char* foreign : {"google/django/__init__.py", "google/cloud/b/x.py"}) {
    Write(site + foreign, "");
    const std::string module = fs::path(foreign).parent_path().string();
    EXPECT_EQ(Read(), with(module));
    fs::remove_all(directory_ / site / module);
  }
  Write(site + "google/two.so", "");
  EXPECT_EQ(Read(), with("google/two.so"));
  fs::remove(directory_ / site / "google/two.so");
  // A name is a package's own only where nothing says what it has.
  Write(site + "q-1.dist-info/METADATA", "Name: q\nVersion: 1\n");
  Write(site + "q/x.py", "");
  EXPECT_EQ(Read(), (Lines{"PyPI e 1", "PyPI p 1", "PyPI q 1"}));
  Write(site + "q-1.dist-info/RECORD", "q_mod/__init__.py,,\n");
  EXPECT_EQ(Read().size(), 4u);
  fs::remove_all(directory_ / site / "q");
  // Links that lead round in circles are no way to hide, nor to hang.
  for (int i = 0; i < 12; ++i) {
    fs::create_symlink(".", directory_ / site / "google" / absl::StrCat("l", i));
  }
  EXPECT_EQ(Read().size(), 4u);
}

// A link may lead to where no audit looks, also below the directory that was given.
TEST_F(DirectoryTest, ALinkIntoWhatIsNotReadIsSaid) {
  Write("package-lock.json", R"({"packages":{"":{},"node_modules/a":{"version":"1.0.0"}}})");
  Write("node_modules/.x/go.sum", "a v1.0.0 h1:x\n");
  Write(".git/y/go.sum", "a v1.0.0 h1:x\n");
  const std::string site = "lib/python3.11/site-packages/";
  Write(site + "c-1.dist-info/METADATA", "Name: c\nVersion: 1\n");
  Write(site + "c/go.sum", "a v1.0.0 h1:x\n");
  Write("plain/readme", "x");
  fs::create_symlink("plain", directory_ / "ok");
  fs::create_symlink("lib/python3.11/site-packages", directory_ / "site");
  EXPECT_EQ(Read(Depth::kAll), (Lines{"npm a 1.0.0", "PyPI c 1"}));
  fs::create_symlink("node_modules/.x", directory_ / "l1");
  fs::create_symlink(".git/y", directory_ / "l2");
  fs::create_symlink(site + "c", directory_ / "l3");
  const std::string into = ": is a link into a directory that is not read: give what it leads to";
  EXPECT_EQ(Read(Depth::kAll), (Lines{"npm a 1.0.0", "PyPI c 1", absl::StrCat("! l1", into),
                                      absl::StrCat("! l2", into), absl::StrCat("! l3", into)}));
}

TEST_F(DirectoryTest, ABillIsReadUnderAnyOfItsNames) {
  const std::string bill = R"({"bomFormat":"CycloneDX","components":[{"purl":"pkg:npm/a@1.0.0"}]})";
  for (const char* name : {"sbom.cyclonedx.json", "app-sbom.json", "app_bom.json", "App.SBOM.json",
                           "sbom-1.0.json", "cdx.json", "syft.json"}) {
    Write(name, bill);
    EXPECT_EQ(Read(), Lines{"npm a 1.0.0"}) << name;
    fs::remove(directory_ / name);
  }
  // Where a writer sorts, its mark is at the end.
  Write("last.json", absl::StrCat(R"({"packages":[],"x":")", std::string(1 << 18, 'x'),
                                  R"(","spdxVersion":"SPDX-2.3"})"));
  EXPECT_EQ(Read(), Lines{"! last.json: is a part of the file that is not known here"});
  fs::remove(directory_ / "last.json");
  Write("requirements.txt", "b==1\n");
  Write("data.json", "{}");
  EXPECT_EQ(Read(), Lines{"PyPI b 1"});
  Write("sbom.json", "{}");
  EXPECT_EQ(Read().size(), 2u);
}

// A project as they commonly are must not always end as unchecked.
TEST_F(DirectoryTest, CommonProjectsCanBeClean) {
  Write("requirements.txt", "b==1\n");
  Write("requirements.in", "b\n");
  Write("MANIFEST.in", "x");
  Write("config.h.in", "x");
  Write("setup.cfg", "[flake8]\nmax-line-length = 99\n");
  Write("pyproject.toml", "[tool.black]\nline-length = 99\n");
  Write("tsconfig.json", "{}");
  EXPECT_EQ(Read(), Lines{"PyPI b 1"});
  for (const char* nothing :
       {"[project]\nname = 'x'\nrequires-python = '>=3.9'\ndependencies = []\ndynamic = "
        "['version']\ndescription = 'no dependencies'\n",
        "[build-system]\nrequires = ['setuptools>=61', 'setuptools_scm[toml] >=6.2,<9']\n"
        "build-backend = 'setuptools.build_meta'\n[tool.isort]\nprofile = 'black'\n"}) {
    Write("pyproject.toml", nothing);
    EXPECT_EQ(Read(), Lines{"PyPI b 1"}) << nothing;
  }
  for (const char* something :
       {"[project]\ndependencies = ['django']\n", "[project]\ndynamic = ['dependencies']\n",
        "[project.optional-dependencies]\nx = ['django']\n",
        "[dependency-groups]\nx = ['django']\n", "[build-system]\nrequires = ['django']\n",
        "[build-system]\nrequires = ['setuptools==40']\n",
        "[build-system]\nrequires = ['wheel', 'setuptools @ file:///x']\n",
        "[tool.tox]\nlegacy_tox_ini = '''\n[testenv]\ndeps = django==3.1.8'''\n",
        "[tool.tox.env_run_base]\ndeps = ['django']\n", "[project]\n[tool.uv]\nx = ['depends']\n",
        "[packages]\ndjango = '*'\n[project]\n", "project = 1\n", "[project\n"}) {
    Write("pyproject.toml", something);
    EXPECT_EQ(Read().size(), 2u) << something;
  }
  Write("setup.cfg", "[options]\ninstall_requires = django\n");
  Write("pyproject.toml", "[\"pr\\u006fject\"]\ndependencies = ['django']\n");
  Write("dev-requirements.in", "django\n");
  EXPECT_EQ(Read().size(), 4u);
}

// Of what needs no packages no package manager writes a lock file.
TEST_F(DirectoryTest, AManifestThatNeedsNothingHasNoLockFile) {
  Write("requirements.txt", "b==1\n");
  for (const char* nothing : {"{}", R"({"type":"module"})",
                              R"({"name":"app","dependencies":{},"bundleDependencies":[]})"}) {
    Write("test/esm/package.json", nothing);
    EXPECT_EQ(Read(), Lines{"PyPI b 1"}) << nothing;
  }
  for (const char* something :
       {R"({"dependencies":{"a":"1"}})", R"({"devDependencies":{"a":"1"}})",
        R"({"peerDependencies":{"a":"1"}})", R"({"bundledDependencies":["a"]})",
        R"({"workspaces":["x"]})", R"({"dependencies":"a"})", R"({"d\u0065pendencies":{"a":"1"}})",
        R"({"pnpm":{"overrides":{"a":"1"}}})", "[]", "{"}) {
    Write("test/esm/package.json", something);
    EXPECT_EQ(Read(Depth::kAll).size(), 2u) << something;
  }
  fs::remove_all(directory_ / "test");
  Write("go.mod", "module h.org/x\n\ngo 1.21.0\n");
  EXPECT_EQ(Read(), (Lines{"Go stdlib 1.21.0 (possible)", "PyPI b 1"}));
  Write("go.mod", "module h.org/x\ngo 1.21.0\nrequire h.org/a v1.0.0\n");
  EXPECT_EQ(Read().size(), 2u);
  Write("go.mod", "module h.org/x\nrequire (\n");
  EXPECT_EQ(Read().size(), 2u);
}

// A file that another one names is no gap where the same audit reads it.
TEST_F(DirectoryTest, RequirementsMayNameEachOther) {
  Write("requirements/base.txt", "a==1\n");
  Write("requirements.txt", "--requirement=requirements/dev.txt  # all\n");
  for (const char* known :
       {"-r base.txt\n", "-rbase.txt\n", "--requirement ../requirements/base.txt"}) {
    Write("requirements/dev.txt", known);
    EXPECT_EQ(Read(Depth::kAll), Lines{"PyPI a 1"}) << known;
  }
  EXPECT_EQ(Read().size(), 2u) << "below, nothing was read";
  Write("other/base.txt", "# nothing\n");
  const std::string blanks(300, ' ');
  for (const std::string& unknown :
       {std::string("-r other.txt\n"), std::string("-r base.txt -r ../other/base.txt\n"),
        "-r base.txt" + blanks + "-r ../other/base.txt\n", std::string("-r ../other/base.txt\n"),
        std::string("-r \"base.txt\"\n"), std::string("-c base.txt\n"), std::string("-r\n")}) {
    Write("requirements/dev.txt", unknown);
    const Lines lines = Read(Depth::kAll);
    ASSERT_EQ(lines.size(), 2u) << unknown;
    EXPECT_TRUE(absl::StartsWith(lines[1], "! requirements/dev.txt: ")) << lines[1];
  }
}

// What Go copies into a project is in the project's go.mod and go.sum.
TEST_F(DirectoryTest, CopiesOfModulesAreThoseOfTheGoMod) {
  Write("go.mod", "module h.org/x\ngo 1.21.0\nrequire h.org/a v1.0.0\n");
  Write("go.sum", "h.org/a v1.0.0 h1:x=\nh.org/a v1.0.0/go.mod h1:x=\n");
  Write("vendor/modules.txt", "# h.org/a v1.0.0\n## explicit\nh.org/a\n");
  const Lines found = {"Go h.org/a v1.0.0", "Go stdlib 1.21.0 (possible)"};
  EXPECT_EQ(Read(), found);
  EXPECT_EQ(Read(Depth::kAll), found);
  directory_ /= "vendor";
  EXPECT_EQ(Read(), Lines{absl::StrCat("! modules.txt: ", kForeign)});
  directory_ = directory_.parent_path();
  fs::remove(directory_ / "go.sum");
  EXPECT_EQ(Read(Depth::kAll).size(), 2u);
}

// The directory that was given may be the one by which a file is known.
TEST_F(DirectoryTest, ADirectoryIsKnownByItsWholeName) {
  Write("var/lib/dpkg/status", "Package: a\n");
  Write("var/lib/dpkg/status.d/openssl", "Package: libssl3\n");
  Write("a-1.dist-info/METADATA", "Name: a\nVersion: 1\n");
  const Lines found = {"PyPI a 1", absl::StrCat("! var/lib/dpkg/status: ", kForeign),
                       absl::StrCat("! var/lib/dpkg/status.d: ", kForeign)};
  EXPECT_EQ(Read(Depth::kAll), found);
  directory_ /= "var/lib/dpkg";
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  Inventory inventory;
  SHOAL_EXPECT_OK(ReadInventory(".", {}, inventory));
  fs::current_path(before);
  EXPECT_EQ(inventory.unchecked.size(), 2u);
  directory_ = directory_.parent_path().parent_path().parent_path();
}

TEST_F(DirectoryTest, WhatLiesBelowIsReadOrSaid) {
  Write("go.sum", "a.b/c v1.0.0 h1:x\n");
  Write("docs/readme.md", "x");
  Write("services/api/requirements.txt", "b==1\n");
  Write("services/api/yarn.lock", "x");
  Write(".venv/lib/python3.11/site-packages/c-1.dist-info/METADATA", "Name: c\nVersion: 1\n");
  const std::string unread = "lies below, and was not read: ";
  EXPECT_EQ(Read(), (Lines{"Go a.b/c v1.0.0",
                           absl::StrCat("! .venv/lib/python3.11/site-packages: ", unread,
                                        "1 file or directory there (--recursive reads them)"),
                           absl::StrCat("! services/api: ", unread,
                                        "2 files or directories there (--recursive reads them)")}));
  EXPECT_EQ(Read(Depth::kAll), (Lines{"Go a.b/c v1.0.0", "PyPI c 1", "PyPI b 1",
                                      absl::StrCat("! services/api/yarn.lock: ", kForeign)}));
  fs::remove(directory_ / "go.sum");
  EXPECT_EQ(Read().size(), 2u) << "what lies below alone is no reason to fail";
  // Links lead to what is read where it lies, or are said.
  fs::create_symlink("services", directory_ / "inside");
  fs::create_symlink("/usr", directory_ / "outside");
  fs::create_symlink("loop", directory_ / "loop");
  const Lines all = Read(Depth::kAll);
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2], "! outside: is a link to a directory elsewhere, which is not followed");
}

// What pip leaves behind must neither end the audit nor be passed over.
TEST_F(DirectoryTest, WhatIsLeftOfAPackageIsSaid) {
  const std::string site = "lib/python3.11/site-packages/";
  Write(site + "a-1.dist-info/METADATA", "Name: a\nVersion: 1\n");
  Write(site + "~b-1.dist-info/METADATA", "Name: b\nVersion: 1\n");
  fs::create_directories(directory_ / site / "c-1.dist-info");
  Write(site + "d-1.dist-info/METADATA", "no header\n");
  Write(site + "e.egg-link", "/src/e\n.\n");
  fs::create_directories(directory_ / site / "f.egg-info");
  Write("conda-meta/g.json", "{}");
  EXPECT_EQ(Read(),
            (Lines{"PyPI a 1", absl::StrCat("! conda-meta: ", kForeign),
                   absl::StrCat("! ", site, "d-1.dist-info/METADATA: cannot be read: ", site,
                                "d-1.dist-info/METADATA:1: is no field of a header"),
                   absl::StrCat("! ", site,
                                "c-1.dist-info: has no METADATA: which package it is, is not said"),
                   absl::StrCat("! ", site,
                                "e.egg-link: is a link to a project elsewhere: give that "
                                "directory, too"),
                   absl::StrCat("! ", site,
                                "f.egg-info: has no PKG-INFO: which package it is, is not said"),
                   absl::StrCat("! ", site,
                                "~b-1.dist-info: is left over from an uninstall that pip did "
                                "not finish")}));
}

// Whoever owns a project must not be able to stop its audit, nor to shorten it.
// To open a pipe that nobody writes to would take for ever.
TEST_F(DirectoryTest, NoPipesAndDevicesAreOpened) {
  Write("Cargo.lock", "[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n");
  for (const char* name :
       {"member/Cargo.toml", "member/pyproject.toml", "member/setup.cfg", "member/a.json",
        "member/sbom.json", "member/requirements.txt", "member/a-1.dist-info/METADATA"}) {
    const fs::path path = directory_ / name;
    fs::create_directories(path.parent_path());
    ASSERT_EQ(0, ::mkfifo(path.c_str(), 0600));
  }
  fs::create_symlink("/dev/zero", directory_ / "member/bom.json");
  fs::create_symlink("/dev/zero", directory_ / "member/x.json");
  const Lines lines = Read(Depth::kAll);
  for (const char* name : {"Cargo.toml", "pyproject.toml", "setup.cfg", "sbom.json",
                           "requirements.txt", "a-1.dist-info/METADATA", "bom.json"}) {
    EXPECT_TRUE(std::ranges::any_of(lines, [&](const std::string& line) {
      return absl::StrContains(line, absl::StrCat("! member/", name, ": "));
    })) << name;
  }
  for (const char* device : {"/dev/zero", "/dev/urandom", "/dev/null"}) {
    Inventory inventory;
    EXPECT_THAT(ReadInventory(device, {}, inventory),
                StatusIs(absl::StatusCode::kInvalidArgument, "is no regular file"));
  }
}

TEST_F(DirectoryTest, WhatCannotBeReadIsSaid) {
  Write("go.sum", "a.b/c v1.0.0 h1:x\n");
  Inventory inventory;
  fs::create_symlink("lib", directory_ / "lib");
  EXPECT_FALSE(ReadInventory(directory_.string(), {}, inventory).ok()) << "a link to itself";
  fs::remove(directory_ / "lib");
  std::ofstream(directory_ / "lib") << "no directory";
  EXPECT_EQ(Read(), Lines{"Go a.b/c v1.0.0"});
  const std::string pipe = (directory_ / "requirements.txt").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReadInventory(pipe, {}, inventory),
              StatusIs(absl::StatusCode::kInvalidArgument, "is no regular file"));
  Write("Cargo.lock", "[[package]]\n");
  EXPECT_EQ(
      Read(),
      (Lines{"Go a.b/c v1.0.0",
             "! Cargo.lock: cannot be read: Cargo.lock:1: a package has no name or no version",
             "! requirements.txt: cannot be read: requirements.txt: is no regular file"}));
  EXPECT_THAT(ReadInventory((directory_ / "Cargo.lock").string(), {}, inventory),
              StatusIs(absl::StatusCode::kInvalidArgument, "Cargo.lock:1"));
}

// The way to a value is not copied into each of its members.
TEST(InventoryTest, LongNamesTakeNoMoreThanTheirRoom) {
  const std::string name(20'000'000, 'n');
  std::string text = absl::StrCat(R"({"packages":{"node_modules/)", name, R"(":{"a":{)");
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"k", i, "\":{}");
  EXPECT_THAT(Error("package-lock.json", absl::StrCat(text, R"(},"version":1}}})")),
              StatusIs(absl::StatusCode::kInvalidArgument, "nnn..\"].version: is not a text"));
  // As `dependencies`, whose members are all listed.
  text = absl::StrCat(R"({"dependencies":{")", name, R"(":{"dependencies":{)");
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"k", i, "\":{}");
  EXPECT_EQ(Parse("package-lock.json", absl::StrCat(text, "}}}}")).size(), 2001u);
  // And as what a package requires.
  text = absl::StrCat(R"({"dependencies":{")", name, R"(":{"requires":{)");
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&text, i > 0 ? "," : "", "\"k", i, "\":\"1\"");
  for (const std::string& line : Parse("package-lock.json", absl::StrCat(text, "}}}}"))) {
    ASSERT_LT(line.size(), 2000u);
  }
}

}  // namespace
}  // namespace shoal::audit
