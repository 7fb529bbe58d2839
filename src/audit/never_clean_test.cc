// The rule of an audit, over generated inputs: whatever a reader does not understand makes the
// result unclear, unchecked or a failure, and never clean.
//
// Each input names some packages, and then has bytes changed, taken out, put in and doubled. A
// package whose part of the text is as it was must be found in it, unless something is said to be
// not understood. What stands for a comment is never put in: that takes packages out for everybody.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/audit/advisories.h"
#include "src/audit/inventory.h"
#include "src/audit/osv.h"
#include "src/audit/version.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::audit {
namespace {

using shoal::testing::TestRandom;

constexpr int kInputs = 4000;

struct Named {
  std::string ecosystem, name, version;
  std::string part;  // of the text
};
struct Input {
  std::string text;
  std::vector<Named> packages;
};

std::string Word(TestRandom& random) {
  std::string word = "p";
  for (int i = 0; i < 9; ++i) word += static_cast<char>('a' + random.Below(26));
  return word;
}

std::string SemVer(TestRandom& random) {
  return absl::StrCat(random.Below(30), ".", random.Below(30), ".", random.Below(30));
}

// One to four packages: `part` makes the text of one, `whole` that of all.
Input Make(TestRandom& random, const std::string& ecosystem,
           const std::function<std::string(const Named&)>& part,
           const std::function<std::string(const std::vector<std::string>&)>& whole) {
  Input input;
  std::vector<std::string> parts;
  for (uint64_t count = 1 + random.Below(4); count > 0; --count) {
    Named named{
        .ecosystem = ecosystem, .name = Word(random), .version = SemVer(random), .part = ""};
    if (ecosystem == "Go") named.name += ".org/m";
    named.part = part(named);
    parts.push_back(named.part);
    input.packages.push_back(std::move(named));
  }
  input.text = whole(parts);
  return input;
}

std::string Changed(std::string text, TestRandom& random) {
  static constexpr absl::string_view kBytes =
      "\"'\\[]{}():,.;=/-_+@!~<>%&?\n\r\t \0\x01\xff"
      "aAzZ09";
  for (uint64_t count = 1 + random.Below(3); count > 0; --count) {
    const size_t at = random.Below(text.size());
    const char byte = kBytes[random.Below(kBytes.size())];
    switch (random.Below(5)) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      case 2:
        text.erase(at, 1 + random.Below(3));
        break;
      case 3:
        // Another case of a letter.
        text[at] = static_cast<char>(text[at] ^ 0x20);
        if (text[at] == '#' || text[at] == '\x03') text[at] = 'x';
        break;
      case 4:
        text.insert(at, text.substr(at, 1 + random.Below(40)));
        break;
    }
  }
  return text;
}

// A line, with its end, or a member of a list: a part counts as it was only between these.
bool HasPart(absl::string_view text, const Named& named) {
  return absl::StrContains(text, named.part);
}

void ExpectNeverClean(Format format, uint64_t seed,
                      const std::function<Input(TestRandom&)>& generate) {
  TestRandom random(seed);
  int found = 0;
  for (int i = 0; i < kInputs; ++i) {
    const Input input = generate(random);
    const std::string text = i % 16 == 0 ? input.text : Changed(input.text, random);
    Inventory inventory;
    const absl::Status read =
        ParseInventory(format, text, "input", {.stated = "Debian:12"}, inventory);
    if (text == input.text) {
      SHOAL_ASSERT_OK(read);
      ASSERT_TRUE(inventory.unchecked.empty())
          << inventory.unchecked[0].what << inventory.unchecked[0].why << text;
    }
    if (!read.ok() || !inventory.unchecked.empty()) continue;
    for (const Named& named : input.packages) {
      if (!HasPart(text, named)) continue;
      ++found;
      ASSERT_TRUE(std::ranges::any_of(inventory.items,
                                      [&](const Item& item) {
                                        return item.ecosystem == named.ecosystem &&
                                               item.name == named.name &&
                                               item.version == named.version &&
                                               item.certainty != Certainty::kPossible;
                                      }))
          << FormatName(format) << ", " << named.name << " in\n"
          << text;
    }
  }
  EXPECT_GT(found, kInputs / 10);
}

std::string Joined(const std::vector<std::string>& parts, absl::string_view separator) {
  return absl::StrJoin(parts, separator);
}

TEST(NeverCleanTest, DpkgStatus) {
  ExpectNeverClean(Format::kDpkgStatus, 1, [](TestRandom& random) {
    return Make(
        random, "Debian:12",
        [](const Named& named) {
          return absl::StrCat("Package: ", named.name,
                              "-bin\nStatus: install ok installed\nSource: ", named.name, " (",
                              named.version, ")\nArchitecture: all\nVersion: ", named.version,
                              "+b1\nDescription: x\n more\n");
        },
        [](const auto& parts) {
          return "Package: a\nStatus: install ok installed\nArchitecture: all\n"
                 "Version: 1\n\n" +
                 Joined(parts, "\n");
        });
  });
}

TEST(NeverCleanTest, Requirements) {
  ExpectNeverClean(Format::kRequirements, 2, [](TestRandom& random) {
    return Make(
        random, "PyPI",
        [](const Named& named) {
          return absl::StrCat("\n", named.name, "==", named.version, "\n");
        },
        [](const auto& parts) {
          return absl::StrCat("--pre\n", Joined(parts, "q[x,y] >= 1.0, !=2 ; python_version<'4'"),
                              "r (==1.0)\n");
        });
  });
}

TEST(NeverCleanTest, PythonMetadata) {
  ExpectNeverClean(Format::kPythonMetadata, 3, [](TestRandom& random) {
    Input input = Make(
        random, "PyPI",
        [](const Named& named) {
          return absl::StrCat("\nName: ", named.name, "\nVersion: ", named.version, "\n");
        },
        [](const auto& parts) {
          return absl::StrCat("Metadata-Version: 2.1", parts[0], "\ntext\n");
        });
    input.packages.resize(1);
    return input;
  });
}

TEST(NeverCleanTest, PoetryLock) {
  ExpectNeverClean(Format::kPoetryLock, 4, [](TestRandom& random) {
    return Make(
        random, "PyPI",
        [](const Named& named) {
          return absl::StrCat("[[package]]\nname = \"", named.name, "\"\nversion = \"",
                              named.version, "\"\nfiles = [\n  {file = \"x\", hash = 'y'},\n]\n");
        },
        [](const auto& parts) {
          return absl::StrCat(Joined(parts, "[package.dependencies]\nq = {optional = true}\n\n"),
                              "[metadata]\nlock-version = \"2.0\"\n");
        });
  });
}

TEST(NeverCleanTest, CargoLock) {
  ExpectNeverClean(Format::kCargoLock, 5, [](TestRandom& random) {
    return Make(
        random, "crates.io",
        [](const Named& named) {
          return absl::StrCat("[[package]]\nname = \"", named.name, "\"\nversion = \"",
                              named.version, "\"\nsource = \"registry+x\"\n");
        },
        [](const auto& parts) {
          return absl::StrCat("version = 3\n[[package]]\nname = \"own\"\nversion = \"1.0.0\"\n",
                              Joined(parts, "checksum = \"ab\"\n\n"));
        });
  });
}

TEST(NeverCleanTest, PackageLock) {
  ExpectNeverClean(Format::kPackageLock, 6, [](TestRandom& random) {
    return Make(
        random, "npm",
        [](const Named& named) {
          return absl::StrCat("\"node_modules/", named.name, "\":{\"version\":\"", named.version,
                              "\",\"dev\":true}");
        },
        [](const auto& parts) {
          return absl::StrCat(R"({"name":"own","lockfileVersion":3,"packages":{"":{"name":"own"},)",
                              Joined(parts, ","), "}}");
        });
  });
  ExpectNeverClean(Format::kPackageLock, 7, [](TestRandom& random) {
    return Make(
        random, "npm",
        [](const Named& named) {
          return absl::StrCat("\"", named.name, "\":{\"version\":\"", named.version, "\"");
        },
        [](const auto& parts) {
          return absl::StrCat(R"({"lockfileVersion":1,"dependencies":{)",
                              Joined(parts, R"(,"dependencies":{)"),
                              std::string(2 * parts.size(), '}'), "}");
        });
  });
}

TEST(NeverCleanTest, GoSum) {
  ExpectNeverClean(Format::kGoSum, 8, [](TestRandom& random) {
    return Make(
        random, "Go",
        [](const Named& named) {
          return absl::StrCat("\n", named.name, " ", named.version, " h1:x=\n");
        },
        [](const auto& parts) { return absl::StrCat(Joined(parts, "q.r/s v1.0.0/go.mod h1:y=")); });
  });
}

TEST(NeverCleanTest, CycloneDx) {
  ExpectNeverClean(Format::kCycloneDx, 9, [](TestRandom& random) {
    const bool nested = random.Below(2) == 0;
    return Make(
        random, "npm",
        [](const Named& named) {
          return absl::StrCat(R"({"type":"library","name":")", named.name, R"(","purl":"pkg:npm/)",
                              named.name, "@", named.version, "?arch=all\"");
        },
        [&](const auto& parts) {
          return absl::StrCat(
              R"({"bomFormat":"CycloneDX","specVersion":"1.5",)",
              R"("metadata":{"component":{"name":"own"}},)", R"("components":[)",
              Joined(parts, nested ? R"(,"components":[)" : "},"),
              nested ? absl::StrJoin(std::vector<std::string>(parts.size(), "}]"), "") : "}]", "}");
        });
  });
}

TEST(NeverCleanTest, SpdxJson) {
  ExpectNeverClean(Format::kSpdxJson, 10, [](TestRandom& random) {
    return Make(
        random, "PyPI",
        [](const Named& named) {
          return absl::StrCat(R"({"SPDXID":"SPDXRef-)", named.name, R"(","name":")", named.name,
                              R"(","externalRefs":[{"referenceType":"purl","referenceLocator":)",
                              R"("pkg:pypi/)", named.name, "@", named.version, R"("}]})");
        },
        [](const auto& parts) {
          return absl::StrCat(R"({"spdxVersion":"SPDX-2.3","documentDescribes":["r"],"packages":[)",
                              R"({"SPDXID":"r","name":"own"},)", Joined(parts, ","), "]}");
        });
  });
}

TEST(NeverCleanTest, SpdxTagValue) {
  ExpectNeverClean(Format::kSpdxTagValue, 11, [](TestRandom& random) {
    return Make(
        random, "PyPI",
        [](const Named& named) {
          return absl::StrCat("\nPackageName: ", named.name, "\nSPDXID: SPDXRef-", named.name,
                              "\nExternalRef: PACKAGE-MANAGER purl pkg:pypi/", named.name, "@",
                              named.version, "\n");
        },
        [](const auto& parts) {
          return absl::StrCat(
              "SPDXVersion: SPDX-2.3\nRelationship: SPDXRef-DOCUMENT DESCRIBES r\n"
              "PackageName: own\nSPDXID: r\n",
              Joined(parts, "PackageComment: <text>one\ntwo</text>\n"));
        });
  });
}

// Of a bill whose packages are whole but for one, which stands in a place of some kind: the audit
// names it, or says that something is not understood. `bill` makes the text of the packages that
// are listed, and of what is said about the one more.
void ExpectNamed(Format format, uint64_t seed,
                 const std::function<std::string(const std::string& listed, const Named& one_more,
                                                 TestRandom& random)>& bill,
                 const std::function<std::string(const Named&)>& part) {
  TestRandom random(seed);
  for (int i = 0; i < kInputs; ++i) {
    const Input input =
        Make(random, "npm", part, [](const auto& parts) { return absl::StrJoin(parts, ""); });
    Named one_more{.ecosystem = "npm", .name = Word(random), .version = SemVer(random), .part = ""};
    const std::string text = bill(input.text, one_more, random);
    Inventory inventory;
    SHOAL_ASSERT_OK(ParseInventory(format, text, "input", {}, inventory));
    const bool is_found = std::ranges::any_of(inventory.items, [&](const Item& item) {
      return item.name == one_more.name && item.version == one_more.version;
    });
    ASSERT_TRUE(is_found || !inventory.unchecked.empty()) << text;
  }
}

// Whatever names a package in a bill counts, wherever in the bill that is.
TEST(NeverCleanTest, CycloneDxNamesAPackageSomewhere) {
  const auto part = [](const Named& named) {
    return absl::StrCat(R"({"type":"library","name":")", named.name, R"(","version":")",
                        named.version, R"(","purl":"pkg:npm/)", named.name, "@", named.version,
                        R"(","bom-ref":")", named.name, R"("},)");
  };
  ExpectNamed(
      Format::kCycloneDx, 13,
      [&](const std::string& listed, const Named& one_more, TestRandom& random) {
        const std::string url = absl::StrCat("pkg:npm/", one_more.name, "@", one_more.version);
        const std::string component = part(one_more).substr(0, part(one_more).size() - 1);
        const std::string named =
            absl::StrCat(R"("name":")", one_more.name, R"(","version":")", one_more.version, "\"");
        // Of the bill, and of a component "last" that is otherwise whole.
        const std::vector<std::string> of_bill = {
            absl::StrCat(R"("dependencies":[{"ref":"last","dependsOn":[")", url, R"("]}])"),
            absl::StrCat(R"("dependencies":[{"ref":")", url, R"("}])"),
            absl::StrCat(R"("compositions":[{"aggregate":"complete","assemblies":[")", url,
                         R"("]}])"),
            absl::StrCat(R"("vulnerabilities":[{"affects":[{"ref":")", url, R"("}]}])"),
            absl::StrCat(R"("formulation":[{"components":[)", component, "]}]"),
            absl::StrCat(R"("declarations":{"targets":{"components":[)", component, "]}}"),
            absl::StrCat(R"("services":[{"name":"s","components":[)", component, "]}]"),
            absl::StrCat(R"("metadata":{"component":)", component, "}"),
            absl::StrCat(R"("definitions":{"components":[)", component, "]}"),
            absl::StrCat(R"("x":[)", component, "]")};
        const std::vector<std::string> of_component = {
            absl::StrCat(R"("bom-ref":")", url, "\""),
            absl::StrCat(R"("pedigree":{"ancestors":[{)", named, "}]}"),
            absl::StrCat(R"("pedigree":{"variants":[)", component, "]}"),
            absl::StrCat(R"("evidence":{"identity":{"field":"purl","concludedValue":")", url,
                         R"("}})"),
            absl::StrCat(R"("evidence":{"identity":[{"methods":[{"value":")", url, R"("}]}]})"),
            absl::StrCat(R"("components":[)", component, "]"),
            absl::StrCat(R"("components":[{"type":"file",)", named, "}]"),
            absl::StrCat(R"("x":)", component)};
        const bool in_bill = random.Below(2) == 0;
        return absl::StrCat(
            R"({"bomFormat":"CycloneDX",)",
            in_bill ? of_bill[random.Below(of_bill.size())] + "," : "", R"("components":[)", listed,
            R"({"name":"last","version":"1.0.0","purl":"pkg:npm/last@1.0.0",)",
            in_bill ? R"("bom-ref":"last")" : of_component[random.Below(of_component.size())],
            "}]}");
      },
      part);
}

TEST(NeverCleanTest, SpdxNamesAPackageSomewhere) {
  ExpectNamed(
      Format::kSpdxJson, 14,
      [](const std::string& listed, const Named& one_more, TestRandom& random) {
        const std::string id = absl::StrCat("SPDXRef-", one_more.name);
        const std::vector<std::string> of_document = {
            absl::StrCat(R"("relationships":[{"spdxElementId":"last","relationshipType":")",
                         random.Below(2) == 0 ? "DEPENDS_ON" : "CONTAINS",
                         R"(","relatedSpdxElement":")", id, R"("}])"),
            absl::StrCat(R"("relationships":[{"spdxElementId":")", id,
                         R"(","relationshipType":"DEPENDENCY_OF","relatedSpdxElement":"last"}])"),
            absl::StrCat(R"("documentDescribes":[")", id, R"("])"),
            absl::StrCat(R"("files":[{"SPDXID":"f","fileName":"./)", one_more.name, "-",
                         one_more.version, R"(.tgz"}])"),
            absl::StrCat(R"("x":[")", id, R"("])")};
        return absl::StrCat(R"({"spdxVersion":"SPDX-2.3",)",
                            of_document[random.Below(of_document.size())], R"(,"packages":[)",
                            listed,
                            R"({"SPDXID":"last","name":"last","externalRefs":[{"referenceType":)",
                            R"("purl","referenceLocator":"pkg:npm/last@1.0.0"}]}]})");
      },
      [](const Named& named) {
        return absl::StrCat(R"({"SPDXID":"SPDXRef-l-)", named.name, R"(","name":")", named.name,
                            R"(","externalRefs":[{"referenceType":"purl","referenceLocator":)",
                            R"("pkg:npm/)", named.name, "@", named.version, R"("}]},)");
      });
}

// The same for directories: what names packages is found or said wherever it lies and whatever it
// is called, as long as its name is not one of code.
TEST(NeverCleanTest, Directories) {
  namespace fs = std::filesystem;
  TestRandom random(13);
  std::string root = ::testing::TempDir() + "/never_clean.XXXXXX";
  SHOAL_CHECK(::mkdtemp(root.data()) != nullptr);
  const auto content_of = [](uint64_t kind, const std::string& name) -> std::string {
    switch (kind) {
      case 0:
        return absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"name":")", name,
                            R"(","purl":"pkg:npm/)", name, R"(@1.0.0"}]})");
      case 1:
        return absl::StrCat("SPDXVersion: SPDX-2.3\nPackageName: ", name,
                            "\nSPDXID: SPDXRef-a\nExternalRef: PACKAGE-MANAGER purl pkg:npm/", name,
                            "@1.0.0\n");
      case 2:
        return absl::StrCat("Metadata-Version: 2.1\nName: ", name, "\nVersion: 1\n");
      case 3:
        return absl::StrCat("# pinned\n", name, "==1.0\n");
      case 4:
        return absl::StrCat(R"({"lockfileVersion":3,"packages":{"node_modules/)", name,
                            R"(":{"version":"1.0.0"}}})");
      case 5:
        return absl::StrCat("# yarn lockfile v1\n", name, "@^1.0.0:\n  version \"1.0.0\"\n");
      case 6:
        return absl::StrCat("Package: ", name, "\nStatus: install ok installed\nVersion: 1\n");
      case 7:
        return absl::StrCat(R"(<bom xmlns="http://cyclonedx.org/schema/bom/1.4"><name>)", name,
                            "</name></bom>");
      case 8:
        return absl::StrCat(name, " v1.0.0 h1:x=\n", name, " v1.0.0/go.mod h1:x=\n");
      // What tools print, of which some stands among other lines.
      case 9:
        return absl::StrCat("Package Version\n------- -------\n", name, " 1\n[notice] x\n");
      case 10:
        return absl::StrCat("warning: x\napp@1.0.0 /w\n├─┬ ", name, "@1.2.3\n│ └── x@1.0.0\n");
      case 11:
        return absl::StrCat(R"({"name":"app","dependencies":{")", name,
                            R"(":{"version":"1.2.3"}}})");
      case 12:
        return absl::StrCat("app v0.1.0 (/w)\n└── ", name, " v0.1.19\n[dev-dependencies]\n");
      case 13:
        return absl::StrCat("go: downloading x\n", name, ".org/m v1.2.3\n");
      case 14:
        return absl::StrCat(R"([{"version": "1.2", "name": ")", name, R"("}])");
      case 15:
        return absl::StrCat("name,version,licence\n", name, ",1.2.3,MIT\n");
      default:
        return absl::StrCat("# installed\n", name, "\t1.2.3-1\n");
    }
  };
  static constexpr absl::string_view kEnds[] = {
      "",      ".txt", ".json", ".JSON", ".xml", ".lock",  ".yml", ".list",
      ".data", ".tmp", ".bak",  ".in",   ".1",   ".conf",  ".cdx", ".spdx",
      ".new",  ".pip", ".old",  ".orig", "~",    ".jsonc", ".ini", ".deps"};
  static constexpr absl::string_view kFolders[] = {"", "a/", ".hidden/", "deps/x/", "etc/"};
  for (int i = 0; i < kInputs / 4; ++i) {
    const fs::path project = fs::path(root) / absl::StrCat(i);
    const std::string name = Word(random);
    const std::string file =
        absl::StrCat(kFolders[random.Below(std::size(kFolders))], random.Below(4) == 0 ? "." : "",
                     Word(random), kEnds[random.Below(std::size(kEnds))]);
    const std::string content = content_of(random.Below(17), name);
    fs::create_directories((project / file).parent_path());
    std::ofstream(project / "requirements.txt") << "other==1\n";
    static constexpr absl::string_view kBefore[] = {"", "\n", "\n\n ", "\xef\xbb\xbf"};
    std::ofstream(project / file) << kBefore[random.Below(std::size(kBefore))] << content;
    for (const Depth depth : {Depth::kOne, Depth::kAll}) {
      Inventory inventory;
      SHOAL_ASSERT_OK(ReadInventory(project.string(), {}, inventory, depth));
      ASSERT_TRUE(
          !inventory.unchecked.empty() ||
          std::ranges::any_of(inventory.items, [&](const Item& item) { return item.name == name; }))
          << file << ":\n"
          << content;
    }
    fs::remove_all(project);
  }
  fs::remove_all(root);
}

// The same for what a table is made of: what a record says about a package must be in the table, or
// the table must say that something is missing.
TEST(NeverCleanTest, OsvRecords) {
  TestRandom random(12);
  int found = 0, left_out = 0;
  for (int i = 0; i < kInputs; ++i) {
    const Input input = Make(
        random, "PyPI",
        [](const Named& named) {
          return absl::StrCat(R"({"package":{"ecosystem":"PyPI","name":")", named.name,
                              R"("},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},)",
                              R"({"fixed":"100.0"}]}],"versions":["1.0"]})");
        },
        [](const auto& parts) {
          return absl::StrCat(
              R"({"id":"X-1","modified":"2021-03-08T16:02:43Z","aliases":["CVE-1"],)",
              R"("affected":[)", Joined(parts, ","), R"(],"summary":"x"})");
        });
    const std::string text = i % 16 == 0 ? input.text : Changed(input.text, random);
    audit::OsvRecords records;
    SHOAL_ASSERT_OK(records.Add(
        R"({"id":"X-2","modified":"2021-03-08T16:02:43Z","affected":[{"package":{"ecosystem":"PyPI",
        "name":"other"},"versions":["1"]}]})",
        "other"));
    SHOAL_ASSERT_OK(records.Add(text, "input", audit::OsvRecords::Odd::kLeaveOut));
    const auto set = records.Finish(4096);
    SHOAL_ASSERT_OK(set.status());
    std::optional<Coverage> coverage;
    std::map<std::string, PackageAdvisories> packages;
    for (size_t k = 0; k < set->size(); ++k) {
      const std::string key = ToString(set->key(k));
      if (key == "PyPI") coverage = *DecodeCoverage(set->value(k));
      if (absl::StartsWith(key, "PyPI/")) packages[key] = *DecodePackage(set->value(k));
    }
    ASSERT_TRUE(coverage.has_value());
    left_out += records.counts().left_out > 0;
    if (coverage->unread > 0) continue;
    for (const Named& named : input.packages) {
      if (!HasPart(text, named)) continue;
      ++found;
      const auto package = packages.find(absl::StrCat("PyPI/", named.name));
      ASSERT_NE(package, packages.end()) << named.name << " in\n" << text;
      ASSERT_NE(Judge(Order::kPep440, named.version, package->second.listed[0].affected).verdict,
                Verdict::kNotAffected)
          << named.name << " in\n"
          << text;
    }
  }
  EXPECT_GT(found, kInputs / 10);
  EXPECT_GT(left_out, kInputs / 10);
}

}  // namespace
}  // namespace shoal::audit
