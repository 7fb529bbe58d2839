#include "src/audit/inventory.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;
using shoal::testing::StatusIs;

// "PyPI django 3.2.1", and "! what: why" for what is unchecked.
std::vector<std::string> LinesOf(const Inventory& inventory) {
  std::vector<std::string> lines;
  for (const Item& item : inventory.items) {
    lines.push_back(absl::StrCat(item.ecosystem, " ", item.name, " ", item.version));
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
  // Nothing of this may be passed over in silence.
  for (const char* line : {"-r other.txt",
                           "--requirement=other.txt",
                           "-e git+https://h/x#egg=y",
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
                           "--unknown"}) {
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

TEST(InventoryTest, PythonMetadata) {
  EXPECT_EQ(Parse("x.dist-info/METADATA",
                  "Metadata-Version: 2.1\nName: Jinja2\nVersion: 2.11.2\n\nName: no\nVersion: 9\n"),
            (Lines{"PyPI Jinja2 2.11.2"}));
  EXPECT_THAT(Error("METADATA", "Metadata-Version: 2.1\nName: x\n\nVersion: 1\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "no Name or no Version"));
}

TEST(InventoryTest, PoetryLock) {
  EXPECT_EQ(Parse("poetry.lock",
                  "# This file is automatically @generated by Poetry 1.8.2\n"
                  "[[package]]\nname = \"django\"\nversion = \"3.2.1\"\noptional = false\n"
                  "[package.dependencies]\nasgiref = \">=3.3.2,<4\"\n\n"
                  "[[package]]\nname = \"mine\"\nversion = \"0.1\"\n"
                  "[package.source]\ntype = \"directory\"\nurl = \"../mine\"\n\n"
                  "[[package]]\nname = \"forked\"\nversion = \"2.0\"\n"
                  "[package.source]\ntype = \"git\"\nurl = \"https://h/x\"\n\n"
                  "[metadata]\nlock-version = \"2.0\"\ncontent-hash = \"ab\"\n"),
            (Lines{"PyPI django 3.2.1", "PyPI forked 2.0", "own 1"}));
  // Strings and brackets over several lines, comments in between, headers within strings.
  EXPECT_EQ(Parse("poetry.lock",
                  "[[package]] # one\r\nname = 'a' # n\r\nversion = \"1\"\r\n"
                  "description = \"\"\"\n[[package]]\nname = \"no\"\\\"\"\"\"\"\n"
                  "files = [\n  {file = \"x]\", hash = 'y['}, # ]\n]\n"
                  "[package.dependencies]\nname = \">=1\"\nversion = {version = \"*\", x = [1]}\n"
                  "[[package]]\nversion = \"2\"\nname = \"b\""),
            (Lines{"PyPI a 1", "PyPI b 2"}));
  struct Case {
    std::string text, where;
  };
  const std::string package = "[[package]]\nname = \"a\"\n";
  for (const Case& c :
       {Case{package + "version = \n", ":3: not TOML of a lock file: a key has no"},
        Case{package + "version = 1\n", ":3: not TOML of a lock file: version is no plain"},
        Case{package + "version = \"1\\u0030\"\n", ":3: not TOML of a lock file: version is no"},
        Case{package + "version = \"1\" x\n", ":3: not TOML"},
        Case{package + "version = \"1\nfiles = 1\n", ":3: not TOML"},
        Case{package + "version = \"1\"\nversion = \"2\"\n", "version is there twice"},
        Case{package + "name = \"1\"\n", "name is there twice"},
        Case{package + "files = [\n", "a bracket is not closed"},
        Case{package + "files = ]\n", "that was not opened"},
        Case{package + "x = '", "a string has no end"},
        Case{package, ":1: a package has no name or no version"},
        Case{package + "version\n", ":3: not TOML of a lock file: neither"},
        Case{"[[package\n", ":1: not TOML of a lock file: a header has no end"},
        Case{"[[\"package\"]]\n", "a name in quotes"}, Case{"[]\n", "a header has no name"},
        Case{"[package]\n", "`package` is not a list"},
        Case{"package = []\n", "`package` is not a list"},
        Case{absl::StrCat("a = ", std::string(1'000'000, '[')), "is not closed"}}) {
    EXPECT_THAT(Error("poetry.lock", c.text), StatusIs(absl::StatusCode::kInvalidArgument, c.where))
        << c.text.substr(0, 100);
  }
}

TEST(InventoryTest, CargoLock) {
  EXPECT_EQ(Parse("Cargo.lock",
                  "version = 3\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n"
                  "dependencies = [\n \"http\",\n]\n\n[[package]]\nname = \"http\"\n"
                  "version = \"0.1.19\"\n"
                  "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"
                  "checksum = \"ab\"\n"),
            (Lines{"crates.io http 0.1.19", "own 1"}));
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
                   "npm forked git+ssh://git@h/x.git#abc", "own 1"}));
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
      "node_modules/forked":{"resolved":"git+ssh://git@h/x.git#abc"}},
      "dependencies":{"ignored":{"version":"1.0.0"}}})")),
              (Lines{"npm lodash 4.17.20", "npm @x/y 1.0.0", "npm lodash 3.0.0",
                     "npm @z/real 2.0.0", "npm forked ", "own 3"}))
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

TEST(InventoryTest, GoSum) {
  EXPECT_EQ(Parse("go.sum",
                  "github.com/a/b v1.2.3 h1:abc=\ngithub.com/a/b v1.2.3/go.mod h1:def=\n"
                  "golang.org/x/crypto v0.0.0-20190308221718-c2843e01d9a2 h1:x=\n"
                  "h/only v1.0.0/go.mod h1:x=\n"),
            (Lines{"Go github.com/a/b v1.2.3",
                   "Go golang.org/x/crypto v0.0.0-20190308221718-c2843e01d9a2"}));
  EXPECT_THAT(Error("go.sum", "a v1 h1:x\nnonsense\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "go.sum:2: not a module"));
}

TEST(InventoryTest, CycloneDx) {
  EXPECT_EQ(
      Parse("bom", R"({"bomFormat":"CycloneDX","specVersion":"1.5",
      "metadata":{"component":{"type":"application","name":"own"}},"components":[
      {"type":"library","name":"core","purl":"pkg:npm/%40angular/core@12.0.0","components":[
        {"type":"library","name":"inner","purl":"pkg:cargo/http@0.1.19"}]},
      {"type":"library","name":"x","purl":"pkg:golang/github.com/a/b@v1.2.3#sub"},
      {"type":"library","name":"d","purl":"pkg:pypi/Django@3.2.1?extension=whl"},
      {"type":"library","name":"libssl3",
       "purl":"pkg:deb/debian/libssl3@3.0.15-1~deb12u1?upstream=openssl&distro=debian-12"},
      {"type":"library","name":"bash",
       "purl":"pkg:deb/debian/bash@5.2.15-2%2Bb7?upstream=bash%405.2.15-2&distro=debian-12.5"},
      {"type":"library","name":"j","purl":"pkg:maven/org.a/b@1.0"},
      {"type":"library","name":"plain"},
      {"type":"file","name":"/bin/x"},
      {"type":"library","name":"u","purl":"pkg:deb/ubuntu/u@1.0"},
      {"type":"library","name":"broken","purl":"http://x"}]})"),
      (Lines{"npm @angular/core 12.0.0", "crates.io http 0.1.19", "Go github.com/a/b v1.2.3",
             "PyPI Django 3.2.1", "Debian:12 openssl 3.0.15-1~deb12u1", "Debian:12 bash 5.2.15-2",
             "! pkg:maven/org.a/b@1.0: no reader knows packages of type maven",
             "! plain: has no package URL",
             "! pkg:deb/ubuntu/u@1.0: does not say of which distribution it is; "
             "--distribution would",
             "! http://x: is no package URL"}));
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
  EXPECT_EQ(deb("pkg:deb/debian/u@1", {.stated = "Debian:12"}), "Debian:12 u 1");
  EXPECT_EQ(deb("pkg:deb/debian/u@1?distro=debian-11", {.stated = "Debian:12"}), "Debian:11 u 1");
  EXPECT_EQ(deb("pkg:deb/u@1?distro=debian-11", {}), "Debian:11 u 1");
  for (const char* url : {"pkg:deb/ubuntu/u@1", "pkg:deb/u@1",
                          "pkg:deb/ubuntu/u@1?distro=debian-12", "pkg:deb/debi/u@1"}) {
    EXPECT_EQ(deb(url, {.stated = "Debian:12"}),
              absl::StrCat("! ", url, ": is no package of Debian:12"));
  }
  EXPECT_THAT(Error("bom.json", R"({"bomFormat":"Other"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, "bomFormat: is not CycloneDX"));
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
            (Lines{"PyPI django 3.2.1", "! plain: has no package URL", "own 1"}));
  EXPECT_THAT(Error("x", "SPDXVersion: SPDX-2.3\nPackageName: a\nC: <text>x\nPackageName: b\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, "x:3: a <text> has no end"));
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
  for (const char* bad : {"", "pkg:", "pkg:npm", "pkg:/x", "pkg:npm/", "pkg:npm/%4",
                          "pkg:npm/a@%zz", "pkg:npm/a?x=%", "npm/a@1"}) {
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

TEST(InventoryTest, ADirectoryIsAProjectOrAnEnvironment) {
  std::string name = ::testing::TempDir() + "/inventory.XXXXXX";
  SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
  const fs::path directory = name;
  Inventory inventory;
  EXPECT_THAT(ReadInventory(name, {}, inventory),
              StatusIs(absl::StatusCode::kNotFound, "no lock file"));
  const auto write = [&](const fs::path& path, const std::string& content) {
    fs::create_directories((directory / path).parent_path());
    std::ofstream(directory / path) << content;
  };
  write("go.sum", "a v1.0.0 h1:x\n");
  write("requirements.txt", "b==1\n");
  write("README.txt", "b==2\n");
  const std::string site = "lib/python3.11/site-packages/";
  write(site + "c-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: c\nVersion: 1\n");
  write(site + "d.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: d\nVersion: 2\n");
  write(site + "e.egg-info", "Metadata-Version: 2.1\nName: e\nVersion: 3\n");
  SHOAL_EXPECT_OK(ReadInventory(name, {}, inventory));
  EXPECT_EQ(LinesOf(inventory),
            (Lines{"Go a v1.0.0", "PyPI b 1", "PyPI c 1", "PyPI d 2", "PyPI e 3"}));
  EXPECT_EQ(inventory.items[0].file, name + "/go.sum");
  // Other lock files, and packages in one file, are not passed over in silence.
  inventory = {};
  write(site + "g.egg", "PK");
  write(site + "h.egg/EGG-INFO/PKG-INFO", "Metadata-Version: 2.1\nName: h\nVersion: 4\n");
  for (const char* foreign : {"yarn.lock", "pnpm-lock.yaml", "Pipfile.lock", "uv.lock", "pdm.lock",
                              "Gemfile.lock", "bun.lockb", "pylock.dev.toml", "bom.xml"}) {
    write(foreign, "x");
  }
  for (const char* of_a_process : {".lock", "state.lock"}) write(of_a_process, "");
  SHOAL_EXPECT_OK(ReadInventory(name, {}, inventory));
  EXPECT_EQ(inventory.items.size(), 6u);
  std::string foreign;
  for (const Unchecked& unchecked : inventory.unchecked) {
    absl::StrAppend(&foreign, unchecked.what, " ");
    EXPECT_EQ(unchecked.why, "is of a format that is not read here");
  }
  EXPECT_EQ(foreign,
            "Gemfile.lock Pipfile.lock bom.xml bun.lockb pdm.lock pnpm-lock.yaml pylock.dev.toml "
            "uv.lock yarn.lock g.egg ");
  // A package whose METADATA is gone must not be passed over.
  fs::create_directories(directory / site / "f-1.dist-info");
  EXPECT_THAT(ReadInventory(name, {}, inventory),
              StatusIs(absl::StatusCode::kNotFound, "f-1.dist-info/METADATA"));
  fs::remove_all(directory);
}

// Whoever owns a project must not be able to stop its audit, nor to shorten it.
TEST(InventoryTest, ADirectoryThatCannotBeReadIsAnError) {
  std::string name = ::testing::TempDir() + "/inventory.XXXXXX";
  SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
  const fs::path directory = name;
  std::ofstream(directory / "go.sum") << "a v1.0.0 h1:x\n";
  Inventory inventory;
  fs::create_symlink("lib", directory / "lib");
  EXPECT_FALSE(ReadInventory(name, {}, inventory).ok()) << "a link to itself";
  fs::remove(directory / "lib");
  std::ofstream(directory / "lib") << "no directory";
  SHOAL_EXPECT_OK(ReadInventory(name, {}, inventory));
  const std::string pipe = name + "/requirements.txt";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {name, pipe}) {
    EXPECT_THAT(ReadInventory(path, {}, inventory),
                StatusIs(absl::StatusCode::kInvalidArgument, "is no regular file"));
  }
  fs::remove_all(directory);
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
}

}  // namespace
}  // namespace shoal::audit
