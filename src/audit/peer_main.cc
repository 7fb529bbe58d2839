// Answers what scripts/audit-truth asks, which compares the audit with other programs, on standard
// input and output:
//
//     ORDER\tA\tB            "<", "=" or ">", or "none" if one of them is no version of the order
//     audit\tNAME\tDISTRIBUTION\tMAX_BYTES\tBYTES..
//         Behind the line stand a file's content and OSV records, of as many bytes each. Answers
//         with one line of JSON: what a file of that name names, and what is found for it in a
//         table of the records of which each takes at most MAX_BYTES:
//         {"failed": "why the file is refused",
//          "items": [[ecosystem, name, version, certainty]..], "unchecked": [[what, why]..], "own":
//          count, "records": ["" or why one is refused..], "findings": [[status, ecosystem, name,
//          version, id, note]..]}
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/json.hpp"
#include "src/audit/findings.h"
#include "src/audit/inventory.h"
#include "src/audit/osv.h"
#include "src/audit/version.h"
#include "src/base/bytes.h"
#include "src/base/status_macros.h"
#include "src/table/records.h"

namespace shoal::audit {
namespace {

std::string Compared(const std::vector<std::string>& words) {
  const Order order = words[0] == "semver"   ? Order::kSemver
                      : words[0] == "pep440" ? Order::kPep440
                                             : Order::kDebian;
  const std::optional<int> compared = CompareTexts(order, words[1], words[2]);
  if (!compared.has_value()) return "none";
  return *compared < 0 ? "<" : *compared > 0 ? ">" : "=";
}

std::string NameOf(Certainty certainty) {
  return certainty == Certainty::kCertain    ? "certain"
         : certainty == Certainty::kDoubtful ? "doubtful"
                                             : "possible";
}

absl::StatusOr<boost::json::array> Found(const Inventory& inventory,
                                         const table::RecordSet& records) {
  std::map<std::string, BytesView> table;
  for (size_t i = 0; i < records.size(); ++i) {
    table.emplace(ToString(records.key(i)), records.value(i));
  }
  Audit audit(inventory);
  for (size_t i = 0; i < audit.keys().size(); ++i) {
    const auto value = table.find(audit.keys()[i]);
    SHOAL_RETURN_IF_ERROR(audit.Answer(
        i, value == table.end() ? std::nullopt : std::optional<BytesView>(value->second)));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Finding> findings, audit.Findings());
  boost::json::array found;
  for (const Finding& finding : findings) {
    const absl::string_view status = StatusName(finding.status);
    found.push_back(boost::json::array{std::string(status), finding.ecosystem, finding.package,
                                       finding.version, finding.id, finding.note});
  }
  return found;
}

boost::json::object Audited(const std::string& name, const Distribution& distribution,
                            size_t max_bytes, const std::vector<std::string>& contents) {
  boost::json::object answer;
  Inventory inventory;
  const absl::StatusOr<Format> format = DetectFormat(name, contents[0]);
  const absl::Status read =
      format.ok() ? ParseInventory(*format, contents[0], name, distribution, inventory)
                  : format.status();
  if (!read.ok()) {
    answer["failed"] = std::string(read.message());
    return answer;
  }
  boost::json::array items, unchecked, refused;
  for (const Item& item : inventory.items) {
    items.push_back(
        boost::json::array{item.ecosystem, item.name, item.version, NameOf(item.certainty)});
  }
  for (const Unchecked& what : inventory.unchecked) {
    unchecked.push_back(boost::json::array{what.what, what.why});
  }
  OsvRecords records;
  for (size_t i = 1; i < contents.size(); ++i) {
    const std::string source = absl::StrCat("record ", i - 1);
    const absl::Status added = records.Add(contents[i], source);
    refused.emplace_back(std::string(added.message()));
    // As `table build` does without --strict.
    if (!added.ok()) records.Add(contents[i], source, OsvRecords::Odd::kLeaveOut).IgnoreError();
  }
  const absl::StatusOr<table::RecordSet> table = records.Finish(max_bytes);
  absl::StatusOr<boost::json::array> findings =
      table.ok() ? Found(inventory, *table) : table.status();
  if (!findings.ok()) {
    answer["failed"] = std::string(findings.status().message());
    return answer;
  }
  answer["items"] = std::move(items);
  answer["unchecked"] = std::move(unchecked);
  answer["own"] = inventory.own;
  answer["records"] = std::move(refused);
  answer["findings"] = *std::move(findings);
  return answer;
}

// Whether the line is a question, and its contents are there.
bool Answer(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, '\t');
  if (words.size() == 3) {
    std::cout << Compared(words) << "\n";
    return true;
  }
  uint64_t max_bytes = 0;
  if (words.size() < 5 || words[0] != "audit" || !absl::SimpleAtoi(words[3], &max_bytes)) {
    return false;
  }
  std::vector<std::string> contents;
  for (size_t i = 4; i < words.size(); ++i) {
    uint32_t bytes = 0;
    if (!absl::SimpleAtoi(words[i], &bytes)) return false;
    std::string& content = contents.emplace_back(bytes, '\0');
    if (!std::cin.read(content.data(), bytes)) return false;
  }
  const Distribution distribution = {.here = words[2]};
  std::cout << boost::json::serialize(Audited(words[1], distribution, max_bytes, contents)) << "\n"
            << std::flush;
  return true;
}

}  // namespace
}  // namespace shoal::audit

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    if (!shoal::audit::Answer(line)) {
      std::cerr << "not a question: " << line << "\n";
      return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}
