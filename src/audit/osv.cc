#include "src/audit/osv.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/audit/json.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"
#include "src/table/row.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;

// An identifier or a time: visible ASCII.
absl::StatusOr<std::string> Word(const JsonView& view) {
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view text, view.Text());
  if (text.size() > kMaxIdBytes)
    return view.Wrong(absl::StrCat("has more than ", kMaxIdBytes, " bytes"));
  for (const char c : text) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return view.Wrong("has something other than visible ASCII characters");
    }
  }
  return std::string(text);
}

absl::StatusOr<std::vector<std::string>> Words(const JsonView& view) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, view.Items());
  std::vector<std::string> words;
  for (const JsonView& item : items) {
    SHOAL_ASSIGN_OR_RETURN(std::string word, Word(item));
    if (word.empty()) return item.Wrong("is empty");
    words.push_back(std::move(word));
  }
  return words;
}

absl::StatusOr<std::string> VersionText(const JsonView& view) {
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view text, view.Text());
  if (text.empty() || text.size() > kMaxVersionBytes) {
    return view.Wrong(absl::StrCat("a version has 1 to ", kMaxVersionBytes, " bytes"));
  }
  return std::string(text);
}

struct Event {
  enum class Kind { kIntroduced, kFixed, kLastAffected };
  Kind kind;
  std::string text;
  // Nothing for "0", which comes before every version.
  std::optional<Version> version;
};

// The schema's evaluation: versions become affected at `introduced` and are no more at `fixed` or
// after `last_affected`, in the order of the versions, but never at or after the last `limit`.
// Unclear if something is no version.
absl::StatusOr<Affected> ReadEvents(const JsonView& view, Order order) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, view.Items());
  std::vector<Event> events;
  std::optional<std::pair<Version, std::string>> limit;
  bool introduced = false, unlimited = false, limited = false, unclear = false;
  for (const JsonView& item : items) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, item.Members());
    if (members.size() != 1) return item.Wrong("an event has one member");
    const auto& [name, value] = members[0];
    SHOAL_ASSIGN_OR_RETURN(std::string text, VersionText(value));
    std::optional<Version> version = Version::Parse(order, text);
    if (name == "limit") {
      limited = true;
      if (text == "*") {
        unlimited = true;
      } else if (!version.has_value()) {
        unclear = true;
      } else if (!limit.has_value() || Compare(limit->first, *version) < 0) {
        limit.emplace(*std::move(version), std::move(text));
      }
      continue;
    }
    Event event{.kind = Event::Kind::kIntroduced, .text = std::move(text), .version = {}};
    if (name == "introduced") {
      introduced = true;
    } else if (name == "fixed") {
      event.kind = Event::Kind::kFixed;
    } else if (name == "last_affected") {
      event.kind = Event::Kind::kLastAffected;
    } else {
      return item.Wrong("an event is introduced, fixed, last_affected or limit");
    }
    if (event.kind != Event::Kind::kIntroduced || event.text != "0") {
      if (!version.has_value()) unclear = true;
      event.version = std::move(version);
    }
    events.push_back(std::move(event));
  }
  if (!introduced) return view.Wrong("nothing is introduced");
  Affected affected;
  if (unclear) {
    affected.unclear = true;
    return affected;
  }
  // What is last affected is still affected by what comes at the same version.
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (!a.version.has_value() || !b.version.has_value()) {
      return !a.version.has_value() && b.version.has_value();
    }
    const int versions = Compare(*a.version, *b.version);
    if (versions != 0) return versions < 0;
    return a.kind != Event::Kind::kLastAffected && b.kind == Event::Kind::kLastAffected;
  });
  std::optional<Interval> open;
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kIntroduced) {
      if (open.has_value()) continue;
      open.emplace();
      if (event.version.has_value()) open->from = event.text;
    } else if (open.has_value()) {
      open->to = event.text;
      open->to_is_affected = event.kind == Event::Kind::kLastAffected;
      affected.intervals.push_back(*std::exchange(open, std::nullopt));
    }
  }
  if (open.has_value()) affected.intervals.push_back(*std::move(open));
  if (!limited || unlimited) return affected;
  for (Interval& interval : affected.intervals) {
    const std::optional<Version> to =
        interval.to.has_value() ? Version::Parse(order, *interval.to) : std::nullopt;
    if (!to.has_value() || Compare(*to, limit->first) >= 0) {
      interval.to = limit->second;
      interval.to_is_affected = false;
    }
  }
  return affected;
}

absl::StatusOr<Affected> ReadAffected(const JsonView& view, Order order) {
  std::vector<Affected> parts;
  SHOAL_ASSIGN_OR_RETURN(const JsonView ranges_view, view.Get("ranges"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> ranges, ranges_view.Items());
  for (const JsonView& range : ranges) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView type_view, range.Get("type"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view type, type_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView events, range.Get("events"));
    if (type == "GIT") continue;
    if (type != "SEMVER" && type != "ECOSYSTEM") {
      return type_view.Wrong("is SEMVER, ECOSYSTEM or GIT");
    }
    SHOAL_ASSIGN_OR_RETURN(Affected part, ReadEvents(events, order));
    if (type == "SEMVER" && order != Order::kSemver) {
      part = Affected{.intervals = {}, .versions = {}, .unclear = true};
    }
    parts.push_back(std::move(part));
  }
  SHOAL_ASSIGN_OR_RETURN(const JsonView versions_view, view.Get("versions"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> versions, versions_view.Items());
  Affected single;
  for (const JsonView& version : versions) {
    SHOAL_ASSIGN_OR_RETURN(std::string text, VersionText(version));
    single.versions.push_back(std::move(text));
  }
  // A record that names no versions says that some are affected, and not which.
  if (parts.empty() && single.versions.empty()) single.unclear = true;
  parts.push_back(std::move(single));
  std::vector<const Affected*> all;
  for (const Affected& part : parts) all.push_back(&part);
  return Union(order, all);
}

// Of several records about the same, the one whose id is shown: that of the ecosystem's own
// database first, then GitHub's, then others, then a bare CVE, which becomes the alias.
int Rank(absl::string_view id) {
  for (const absl::string_view own : {"PYSEC-", "RUSTSEC-", "GO-", "DSA-", "USN-", "MAL-"}) {
    if (absl::StartsWith(id, own)) return 0;
  }
  return absl::StartsWith(id, "GHSA-") ? 1 : absl::StartsWith(id, "CVE-") ? 3 : 2;
}

}  // namespace

absl::Status OsvRecords::AddEntry(const std::string& ecosystem, const std::string& key, Entry entry,
                                  const std::string& source) {
  size_t bytes = sizeof(Entry) + key.size() + 64;
  for (const std::string& id : entry.ids) bytes += sizeof id + id.size();
  for (const std::string& version : entry.affected.versions)
    bytes += sizeof version + version.size();
  bytes += entry.affected.intervals.size() * (sizeof(Interval) + 16);
  kept_bytes_ += bytes;
  if (kept_bytes_ > kMaxKeptBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        source, ": the records take more than ", kMaxKeptBytes >> 20, " MiB of memory; use fewer"));
  }
  Package& package = packages_[key];
  package.ecosystem = ecosystem;
  package.entries.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status OsvRecords::Add(absl::string_view json, const std::string& source) {
  if (json.size() > kMaxRecordBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(source, ": a record has at most ", kMaxRecordBytes >> 20, " MiB"));
  }
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(json, source));
  const JsonView record = text.root();
  const auto word = [&](absl::string_view name) -> absl::StatusOr<std::string> {
    SHOAL_ASSIGN_OR_RETURN(const JsonView view, record.Get(name));
    return Word(view);
  };
  SHOAL_ASSIGN_OR_RETURN(const std::string id, word("id"));
  if (id.empty()) return record.Wrong("is no OSV record: it has no id");
  SHOAL_ASSIGN_OR_RETURN(const std::string modified, word("modified"));
  if (modified.empty() || modified.size() > 64) return record.Wrong("has no time in `modified`");
  SHOAL_ASSIGN_OR_RETURN(const std::string withdrawn, word("withdrawn"));
  SHOAL_ASSIGN_OR_RETURN(std::string published, word("published"));
  Entry entry{.ids = {id},
              .upstream = "",
              .published = published.empty() ? modified : std::move(published),
              .affected = {}};
  SHOAL_ASSIGN_OR_RETURN(const JsonView aliases_view, record.Get("aliases"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> aliases, Words(aliases_view));
  entry.ids.insert(entry.ids.end(), aliases.begin(), aliases.end());
  SHOAL_ASSIGN_OR_RETURN(const JsonView upstream_view, record.Get("upstream"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> upstream, Words(upstream_view));
  if (upstream.size() == 1) entry.upstream = upstream[0];

  SHOAL_ASSIGN_OR_RETURN(const JsonView affected_view, record.Get("affected"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> affected, affected_view.Items());
  // A package may have several elements, for which it is listed once.
  struct OfPackage {
    std::string ecosystem;
    Order order;
    std::vector<Affected> parts;
  };
  std::map<std::string, OfPackage> packages;
  std::map<std::string, uint64_t> unknown;
  for (const JsonView& element : affected) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView package, element.Get("package"));
    if (!package.exists()) continue;  // a repository's commits, and no package
    SHOAL_ASSIGN_OR_RETURN(const JsonView ecosystem_view, package.Get("ecosystem"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view ecosystem, ecosystem_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, package.Get("name"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, name_view.Text());
    const std::optional<Order> order = OrderOf(ecosystem);
    if (!order.has_value()) {
      ++unknown[std::string(ecosystem.substr(0, std::min<size_t>(ecosystem.find(':'), 64)))];
      continue;
    }
    const absl::StatusOr<std::string> key = PackageKey(ecosystem, name);
    if (!key.ok()) return name_view.Wrong(key.status().message());
    SHOAL_ASSIGN_OR_RETURN(Affected part, ReadAffected(element, *order));
    OfPackage& of_package = packages[*key];
    of_package.ecosystem = std::string(ecosystem);
    of_package.order = *order;
    of_package.parts.push_back(std::move(part));
  }
  // The record has been read to its end: from here on it counts.
  ++counts_.records;
  if (!withdrawn.empty()) {
    ++counts_.withdrawn;
    return absl::OkStatus();
  }
  for (const auto& [family, count] : unknown) counts_.unknown[family] += count;
  for (const auto& [key, of_package] : packages) {
    std::vector<const Affected*> parts;
    for (const Affected& part : of_package.parts) parts.push_back(&part);
    Entry of_key = entry;
    of_key.affected = Union(of_package.order, parts);
    SHOAL_RETURN_IF_ERROR(AddEntry(of_package.ecosystem, key, std::move(of_key), source));
    Coverage& coverage = ecosystems_[of_package.ecosystem];
    coverage.modified = std::max(coverage.modified, modified);
  }
  return absl::OkStatus();
}

absl::Status OsvRecords::AddDirectory(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && entry->path().extension() == ".json") {
      paths.push_back(entry->path().string());
    }
  }
  if (error) return ErrnoStatus(error.value(), directory);
  if (paths.empty()) {
    return absl::NotFoundError(absl::StrCat(directory, ": no OSV records here (*.json)"));
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    SHOAL_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxRecordBytes));
    SHOAL_RETURN_IF_ERROR(Add(json, path));
  }
  return absl::OkStatus();
}

// Entries that share an id or an alias, also through others, are one advisory.
std::vector<Advisory> OsvRecords::Join(Order order, const Package& package) {
  const std::vector<Entry>& entries = package.entries;
  std::vector<size_t> parent(entries.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto find = [&](size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  std::map<absl::string_view, size_t> first;
  for (size_t i = 0; i < entries.size(); ++i) {
    for (const std::string& id : entries[i].ids) {
      const auto [place, is_new] = first.try_emplace(id, i);
      if (!is_new) parent[find(i)] = find(place->second);
    }
  }
  std::map<size_t, std::vector<size_t>> groups;
  for (size_t i = 0; i < entries.size(); ++i) groups[find(i)].push_back(i);

  struct Dated {
    std::string published;
    Advisory advisory;
  };
  std::vector<Dated> all;
  for (const auto& [root, members] : groups) {
    const auto by_rank = [](const std::string& a, const std::string& b) {
      return std::pair(Rank(a), absl::string_view(a)) < std::pair(Rank(b), absl::string_view(b));
    };
    std::vector<std::string> own;
    std::set<std::string> names;
    std::vector<const Affected*> parts;
    Dated dated;
    for (const size_t i : members) {
      own.push_back(entries[i].ids[0]);
      names.insert(entries[i].ids.begin(), entries[i].ids.end());
      if (!entries[i].upstream.empty()) names.insert(entries[i].upstream);
      parts.push_back(&entries[i].affected);
      dated.published = std::max(dated.published, entries[i].published);
    }
    dated.advisory.id = *std::min_element(own.begin(), own.end(), by_rank);
    dated.advisory.affected = Union(order, parts);
    names.erase(dated.advisory.id);
    for (const std::string& name : names) {
      // Names are sorted: the first CVE, or else the first of all.
      const bool better =
          absl::StartsWith(name, "CVE-") && !absl::StartsWith(dated.advisory.alias, "CVE-");
      if (dated.advisory.alias.empty() || better) dated.advisory.alias = name;
    }
    all.push_back(std::move(dated));
  }
  // What does not fit is what was published first.
  std::sort(all.begin(), all.end(), [](const Dated& a, const Dated& b) {
    return std::tie(b.published, a.advisory.id) < std::tie(a.published, b.advisory.id);
  });
  std::vector<Advisory> advisories;
  for (Dated& dated : all) advisories.push_back(std::move(dated.advisory));
  return advisories;
}

absl::StatusOr<table::RecordSet> OsvRecords::Finish(size_t max_bytes) {
  table::RecordSet records("OSV records");
  uint64_t line = 0;
  const auto add = [&](const std::string& key, BytesView value) -> absl::Status {
    if (table::HashedRecordBytes(key.size(), value.size()) > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(key, ": its record takes more than a row of ", max_bytes, " bytes"));
    }
    return records.Add(AsBytes(key), value, ++line);
  };
  for (auto& [key, package] : packages_) {
    const Order order = *OrderOf(package.ecosystem);
    const std::vector<Advisory> advisories = Join(order, package);
    package.entries.clear();
    // The record's two lengths take three bytes each at most.
    const size_t around = key.size() + 6;
    const absl::StatusOr<PackageAdvisories> fit =
        Fit(order, advisories,
            std::min(max_bytes > around ? max_bytes - around : 0, kMaxAdvisoryBytes));
    if (!fit.ok()) return Annotate(fit.status(), key);
    SHOAL_RETURN_IF_ERROR(add(key, Encode(*fit)));
    Coverage& coverage = ecosystems_[package.ecosystem];
    coverage.advisories += advisories.size();
    coverage.packages += 1;
    counts_.advisories += advisories.size();
    counts_.packages += 1;
    counts_.cut += fit->more > 0;
    counts_.not_listed += fit->more;
  }
  for (const auto& [ecosystem, coverage] : ecosystems_) {
    SHOAL_RETURN_IF_ERROR(add(ecosystem, Encode(coverage)));
  }
  packages_.clear();
  return records;
}

}  // namespace shoal::audit
