#include "src/audit/osv.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "src/audit/json.h"
#include "src/audit/peek.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"
#include "src/storage/paths.h"
#include "src/table/row.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTimeBytes = 64;

bool IsWord(absl::string_view text) {
  return text.size() <= kMaxIdBytes && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isgraph(static_cast<unsigned char>(c));
         });
}

// An identifier or a time: visible ASCII.
absl::StatusOr<std::string> Word(const JsonView& view) {
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view text, view.Text());
  if (text.size() > kMaxIdBytes)
    return view.Wrong(absl::StrCat("has more than ", kMaxIdBytes, " bytes"));
  if (!IsWord(text)) return view.Wrong("has something other than visible ASCII characters");
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

// Whether every field has all of its digits (RFC 3339, section 5.6). absl takes fewer.
bool HasFormOfTime(absl::string_view text) {
  constexpr absl::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() <= kForm.size()) return false;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == 'd' ? !absl::ascii_isdigit(static_cast<unsigned char>(text[i]))
                        : text[i] != kForm[i]) {
      return false;
    }
  }
  return true;
}

// Nothing for what is no time, or no time that has a date.
std::optional<absl::Time> TimeIn(absl::string_view text) {
  absl::Time time;
  if (!HasFormOfTime(text) || !absl::ParseTime(absl::RFC3339_full, text, &time, nullptr) ||
      time == absl::InfinitePast() || time == absl::InfiniteFuture()) {
    return std::nullopt;
  }
  return time;
}

// Whether a record no longer holds. What stands there in place of a time that has come takes no
// advisory away.
bool IsWithdrawn(absl::string_view text) {
  const std::optional<absl::Time> time = TimeIn(text);
  return time.has_value() && *time <= absl::Now();
}

struct Event {
  enum class Kind { kIntroduced, kFixed, kLastAffected };
  Kind kind;
  std::string text;
  // Nothing for "0", which comes before every version.
  std::optional<Version> version;
};

int Place(Event::Kind kind) {
  return kind == Event::Kind::kFixed ? 0 : kind == Event::Kind::kIntroduced ? 1 : 2;
}

// What a range says.
struct Events {
  std::vector<Event> events;
  std::optional<std::pair<Version, std::string>> limit;  // the last one, but "*"
  bool is_unlimited = false, is_unclear = false;
};
absl::StatusOr<Events> ReadEvents(const JsonView& view, Order order) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, view.Items());
  Events read;
  bool introduced = false;
  for (const JsonView& item : items) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, item.Members());
    if (members.size() != 1) return item.Wrong("an event has one member");
    const auto& [name, value] = members[0];
    SHOAL_ASSIGN_OR_RETURN(std::string text, VersionText(value));
    std::optional<Version> version = Version::ParseBound(order, text);
    if (name == "limit") {
      if (text == "*") {
        read.is_unlimited = true;
      } else if (!version.has_value()) {
        read.is_unclear = true;
      } else if (!read.limit.has_value() || Compare(read.limit->first, *version) < 0) {
        read.limit.emplace(*std::move(version), std::move(text));
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
      read.is_unclear |= !version.has_value();
      event.version = std::move(version);
    }
    read.events.push_back(std::move(event));
  }
  if (!introduced) return view.Wrong("nothing is introduced");
  return read;
}

// By their versions. "0" comes before every one.
int CompareEvents(const Event& a, const Event& b) {
  if (a.version.has_value() && b.version.has_value()) return Compare(*a.version, *b.version);
  return static_cast<int>(a.version.has_value()) - static_cast<int>(b.version.has_value());
}

// The intervals between events, of whose versions all can be compared. Unclear if nothing but a
// pair of events of one version begins a range without an end.
Affected BetweenEvents(std::vector<Event> events) {
  Affected affected;
  // Of the events of one version those that are fixed come first, then those that are introduced.
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    const int versions = CompareEvents(a, b);
    return versions != 0 ? versions < 0 : Place(a.kind) < Place(b.kind);
  });
  std::optional<Interval> open;
  const Event* fixed_nothing = nullptr;
  bool opened_by_pair = false;
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == Event::Kind::kIntroduced) {
      if (open.has_value()) continue;
      open.emplace();
      if (event.version.has_value()) open->from = event.text;
      opened_by_pair = fixed_nothing != nullptr && CompareEvents(*fixed_nothing, event) == 0;
    } else if (open.has_value()) {
      open->to = event.text;
      open->to_is_affected = event.kind == Event::Kind::kLastAffected;
      for (size_t j = i + 1; j < events.size() && CompareEvents(events[j], event) == 0; ++j) {
        open->to_is_affected |= events[j].kind == Event::Kind::kLastAffected;
      }
      affected.intervals.push_back(*std::exchange(open, std::nullopt));
    } else {
      fixed_nothing = &event;
    }
  }
  if (open.has_value() && opened_by_pair) {
    affected.unclear = true;
  } else if (open.has_value()) {
    affected.intervals.push_back(*std::move(open));
  }
  return affected;
}

// The schema's evaluation: versions become affected at `introduced` and are no more at `fixed` or
// after `last_affected`, in the order of the versions, but never at or after the last `limit`. The
// schema leaves open what several events of one version mean, and no order in the file may decide
// it: what is fixed and introduced there is affected from there on, and what is fixed and last
// affected there is affected. Unclear if something is no version.
absl::StatusOr<Affected> ReadRange(const JsonView& view, Order order) {
  SHOAL_ASSIGN_OR_RETURN(Events read, ReadEvents(view, order));
  if (read.is_unclear) return Affected{.intervals = {}, .versions = {}, .unclear = true};
  Affected affected = BetweenEvents(std::move(read.events));
  if (!read.limit.has_value() || read.is_unlimited) return affected;
  const auto& [limit, text] = *read.limit;
  for (Interval& interval : affected.intervals) {
    const std::optional<Version> to =
        interval.to.has_value() ? Version::ParseBound(order, *interval.to) : std::nullopt;
    if (!to.has_value() || Compare(*to, limit) >= 0) {
      interval.to = text;
      interval.to_is_affected = false;
    }
  }
  return affected;
}

absl::StatusOr<bool> HasOther(const JsonView& object, std::span<const absl::string_view> known) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> others, object.MembersBut(known));
  return !others.empty();
}

constexpr absl::string_view kOfRecord[] = {
    "schema_version", "id",       "modified",   "published", "withdrawn",
    "aliases",        "upstream", "related",    "summary",   "details",
    "severity",       "affected", "references", "credits",   "database_specific"};
constexpr absl::string_view kOfElement[] = {"package",  "severity",           "ranges",
                                            "versions", "ecosystem_specific", "database_specific"};
constexpr absl::string_view kOfRange[] = {"type", "repo", "events", "database_specific"};

// Unclear where a member is not known, which may name more versions.
absl::StatusOr<Affected> ReadAffected(const JsonView& view, Order order) {
  std::vector<Affected> parts;
  SHOAL_ASSIGN_OR_RETURN(bool unclear, HasOther(view, kOfElement));
  SHOAL_ASSIGN_OR_RETURN(const JsonView ranges_view, view.Get("ranges"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> ranges, ranges_view.Items());
  for (const JsonView& range : ranges) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView type_view, range.Get("type"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view type, type_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView events, range.Get("events"));
    SHOAL_ASSIGN_OR_RETURN(const bool has_other, HasOther(range, kOfRange));
    unclear |= has_other;
    if (type == "GIT") continue;
    if (type != "SEMVER" && type != "ECOSYSTEM") {
      return type_view.Wrong("is SEMVER, ECOSYSTEM or GIT");
    }
    SHOAL_ASSIGN_OR_RETURN(Affected part, ReadRange(events, order));
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
  single.unclear |= unclear;
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

// The ecosystem of a package's key, whose name has no slash.
std::string EcosystemOf(absl::string_view key) { return std::string(key.substr(0, key.find('/'))); }

// A distribution without its release.
bool IsFamily(absl::string_view ecosystem) {
  return ecosystem == "Debian" || ecosystem == "Ubuntu";
}

// The text of a member, or nothing where there is none.
absl::string_view TextIn(const JsonView& object, absl::string_view name) {
  const absl::StatusOr<JsonView> view = object.Get(name);
  if (!view.ok()) return "";
  const absl::StatusOr<absl::string_view> text = view->Text();
  return text.ok() ? *text : absl::string_view();
}

// What an advisory is called whose record could not be read: its id, or the name of its file.
std::string OddId(absl::string_view id, const std::string& source) {
  if (!id.empty() && IsWord(id)) return std::string(id);
  const std::string stem = fs::path(source).stem().string();
  return !stem.empty() && IsWord(stem) ? stem : "unreadable";
}

// What a line gives to `id`, or nothing if it gives that nothing.
std::optional<std::string> IdInLine(absl::string_view line, absl::string_view separator) {
  if (!absl::ConsumePrefix(&line, "id")) return std::nullopt;
  line = absl::StripAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, separator)) return std::nullopt;
  line = absl::StripAsciiWhitespace(line);
  for (const absl::string_view quote : {"\"", "'"}) {
    if (absl::ConsumePrefix(&line, quote)) absl::ConsumeSuffix(&line, quote);
  }
  return std::string(line);
}

// Whether a text has what every record has, in JSON or a notation like it.
bool HasAffected(absl::string_view text) {
  static constexpr absl::string_view kName = "affected";
  for (size_t at = text.find(kName); at != absl::string_view::npos; at = text.find(kName, at + 1)) {
    const size_t next = text.find_first_not_of("\"' \t\r\n]", at + kName.size());
    if (next != absl::string_view::npos && (text[next] == ':' || text[next] == '=')) return true;
    if (at > 0 && text[at - 1] == '[') return true;  // of TOML
  }
  return false;
}

// Whether a file of an unknown name may have records in it: packed or otherwise not to be read as
// text, or with the name of a record's member.
bool MayHoldRecords(const std::string& path) {
  if (IsCodeOrMedia(path)) return false;
  const std::optional<std::string> text = Peek(path);
  return !text.has_value() || HasAffected(*text) || std::ranges::any_of(*text, [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) &&
           !absl::ascii_isspace(static_cast<unsigned char>(c));
  });
}

// The id of a record in YAML: that of its first level. Empty for several records in a file, or one
// without an id there; nothing for another file.
std::optional<std::string> IdInYaml(absl::string_view text) {
  std::optional<std::string> found;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::optional<std::string> id = IdInLine(line, ":");
    if (id.has_value() && found.has_value()) return "";
    if (id.has_value()) found = std::move(id);
  }
  return found.has_value() || !HasAffected(text) ? found : "";
}

// The id of an advisory as RustSec writes it: TOML, alone or at the head of Markdown. Empty if it
// has none, and nothing for another file.
std::optional<std::string> IdInToml(absl::string_view text) {
  bool is_advisory = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    const std::string bare = absl::StrReplaceAll(line, {{" ", ""}, {"\t", ""}, {"\"", ""}});
    is_advisory |= absl::StartsWith(bare, "[advisory]") || absl::StartsWith(bare, "[[affected]]");
    if (!is_advisory) continue;
    if (std::optional<std::string> id = IdInLine(line, "="); id.has_value()) return id;
  }
  return is_advisory ? std::optional<std::string>("") : std::nullopt;
}

// Whether one of the paths, which are sorted, is what a packed file has in it: new.json for
// new.json.gz, new.json or a file in new/ for new.zip. An all.zip is what osv.dev has beside the
// records that are in it.
bool IsUnpacked(const std::string& packed, const std::vector<std::string>& paths) {
  const fs::path path(packed);
  fs::path stem = path.parent_path() / path.stem();
  if (absl::EqualsIgnoreCase(stem.extension().string(), ".tar")) stem.replace_extension();
  const bool is_all = path.filename() == "all.zip";
  const std::string folder =
      absl::StrCat(is_all ? path.parent_path().string() : stem.string(), "/");
  const auto first = std::ranges::lower_bound(paths, folder);
  return (first != paths.end() && absl::StartsWith(*first, folder)) ||
         std::ranges::binary_search(paths, absl::StrCat(stem.string(), ".json")) ||
         (absl::EndsWithIgnoreCase(stem.string(), ".json") &&
          std::ranges::binary_search(paths, stem.string()));
}

// What a directory and those below have that could hold records.
struct RecordFiles {
  std::vector<std::string> paths, yaml, toml, packed, others;  // the first are in JSON, and sorted
};
absl::StatusOr<RecordFiles> ListRecordFiles(const std::string& directory) {
  RecordFiles files;
  std::error_code error;
  const fs::path root = fs::weakly_canonical(directory, error);
  if (error) return ErrnoStatus(error.value(), directory);
  for (auto entry = fs::recursive_directory_iterator(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const std::string path = entry->path().string();
    const auto ends_with = [&](std::initializer_list<absl::string_view> ends) {
      return std::ranges::any_of(
          ends, [&](absl::string_view end) { return absl::EndsWithIgnoreCase(path, end); });
    };
    if (entry->is_symlink(ignored) && entry->is_directory(ignored)) {
      const fs::path to = fs::weakly_canonical(entry->path(), ignored);
      if (!IsWithin(to, root)) files.others.push_back(path);
    } else if (entry->is_directory(ignored)) {
      // A copy of a database by git has its packed records a second time.
      if (entry->path().filename() == ".git") entry.disable_recursion_pending();
    } else if (ends_with({".json"})) {
      (entry->is_regular_file(ignored) ? files.paths : files.others).push_back(path);
    } else if (ends_with({".yaml", ".yml"})) {
      files.yaml.push_back(path);
    } else if (ends_with({".md", ".toml"})) {
      files.toml.push_back(path);
    } else if (ends_with({".jsonl", ".ndjson", ".osv"})) {
      files.others.push_back(path);
    } else if (!WithoutPacking(path).empty()) {
      files.packed.push_back(path);
    } else if (!entry->is_regular_file(ignored) || MayHoldRecords(path)) {
      files.others.push_back(path);
    }
  }
  if (error) return ErrnoStatus(error.value(), directory);
  std::ranges::sort(files.paths);
  return files;
}

}  // namespace

size_t OsvRecords::BytesOf(absl::string_view key, const Entry& entry) {
  size_t bytes = sizeof(Entry) + key.size() + 64;
  for (const std::string& id : entry.ids) bytes += sizeof id + id.size();
  for (const std::string& version : entry.affected.versions)
    bytes += sizeof version + version.size();
  return bytes + entry.affected.intervals.size() * (sizeof(Interval) + 16);
}

absl::Status OsvRecords::Charge(size_t bytes, const std::string& source) {
  kept_bytes_ += bytes;
  if (kept_bytes_ <= kMaxKeptBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      source, ": the records take more than ", kMaxKeptBytes >> 20, " MiB of memory; use fewer"));
}

absl::StatusOr<OsvRecords::Record> OsvRecords::Read(absl::string_view json,
                                                    const std::string& source) {
  if (json.size() > kMaxRecordBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(source, ": a record has at most ", kMaxRecordBytes >> 20, " MiB"));
  }
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(json, source));
  const JsonView whole = text.root();
  Record record;
  SHOAL_ASSIGN_OR_RETURN(const Entry entry, ReadHead(whole, record));
  SHOAL_RETURN_IF_ERROR(ReadPackages(whole, entry, record));
  for (const auto* entries : {&record.entries, &record.of_families}) {
    for (const auto& [key, of_key] : *entries) record.bytes += BytesOf(key, of_key);
  }
  record.bytes += sizeof record + record.modified.size() + record.id.size();
  return record;
}

absl::StatusOr<OsvRecords::Entry> OsvRecords::ReadHead(const JsonView& whole, Record& record) {
  const auto word = [&](absl::string_view name) -> absl::StatusOr<std::string> {
    SHOAL_ASSIGN_OR_RETURN(const JsonView view, whole.Get(name));
    return Word(view);
  };
  SHOAL_ASSIGN_OR_RETURN(record.id, word("id"));
  if (record.id.empty()) return whole.Wrong("is no OSV record: it has no id");
  SHOAL_ASSIGN_OR_RETURN(record.modified, word("modified"));
  if (record.modified.empty() || record.modified.size() > kMaxTimeBytes) {
    return whole.Wrong("has no time in `modified`");
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string withdrawn, word("withdrawn"));
  record.withdrawn = IsWithdrawn(withdrawn);
  SHOAL_ASSIGN_OR_RETURN(std::string published, word("published"));
  Entry entry{.ids = {record.id},
              .upstream = "",
              .published = published.empty() ? record.modified : std::move(published),
              .affected = {}};
  SHOAL_ASSIGN_OR_RETURN(const JsonView aliases_view, whole.Get("aliases"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> aliases, Words(aliases_view));
  entry.ids.insert(entry.ids.end(), aliases.begin(), aliases.end());
  SHOAL_ASSIGN_OR_RETURN(const JsonView upstream_view, whole.Get("upstream"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> upstream, Words(upstream_view));
  if (upstream.size() == 1) entry.upstream = upstream[0];
  return entry;
}

absl::Status OsvRecords::ReadPackages(const JsonView& whole, const Entry& entry, Record& record) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView affected_view, whole.Get("affected"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> affected, affected_view.Items());
  if (!affected_view.exists()) {
    SHOAL_ASSIGN_OR_RETURN(const bool has_other, HasOther(whole, kOfRecord));
    if (has_other) return whole.Wrong("affects nothing, and has a member that is not known");
  }
  // A package may have several elements, for which it is listed once.
  std::map<std::string, std::vector<Affected>> packages;
  const auto unclear = [&] {
    Entry of_family = entry;
    of_family.affected.unclear = true;
    return of_family;
  };
  for (const JsonView& element : affected) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView package, element.Get("package"));
    if (!package.exists()) {
      SHOAL_ASSIGN_OR_RETURN(const bool has_other, HasOther(element, kOfElement));
      if (has_other) return element.Wrong("has no package, and a member that is not known");
      continue;  // a repository's commits, and no package
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView ecosystem_view, package.Get("ecosystem"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view named, ecosystem_view.Text());
    if (named.empty()) return package.Wrong("has no ecosystem");
    const std::string ecosystem = CanonicalEcosystem(named);
    SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, package.Get("name"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, name_view.Text());
    const std::optional<Order> order = OrderOf(ecosystem);
    if (!order.has_value() && !IsFamily(ecosystem)) {
      ++record.unknown[std::string(ecosystem.substr(0, std::min<size_t>(ecosystem.find(':'), 64)))];
      continue;
    }
    const absl::StatusOr<std::string> key = PackageKey(ecosystem, name);
    if (!key.ok()) return name_view.Wrong(key.status().message());
    if (!order.has_value()) {
      // Which release's versions these are, the record does not say.
      record.of_families.emplace_back(*key, unclear());
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(Affected part, ReadAffected(element, *order));
    packages[*key].push_back(std::move(part));
  }
  for (const auto& [key, affects] : packages) {
    std::vector<const Affected*> parts;
    for (const Affected& part : affects) parts.push_back(&part);
    Entry of_key = entry;
    of_key.affected = Union(*OrderOf(EcosystemOf(key)), parts);
    record.entries.emplace_back(key, std::move(of_key));
  }
  return absl::OkStatus();
}

// Of two copies of one record, that of the later time counts. Where the times are the same, or one
// cannot be read, both do.
absl::Status OsvRecords::Keep(Record record, const std::string& source) {
  const auto [place, is_new] = records_.try_emplace(record.id);
  Record& kept = place->second;
  if (!is_new) {
    const std::optional<absl::Time> now = TimeIn(record.modified), before = TimeIn(kept.modified);
    if (now.has_value() && before.has_value() && *now != *before) {
      ++counts_.older;
      if (*now < *before) return absl::OkStatus();
      kept_bytes_ -= kept.bytes;
    } else {
      if (record.withdrawn) return absl::OkStatus();
      SHOAL_RETURN_IF_ERROR(Charge(record.bytes, source));
      if (!kept.withdrawn) {
        std::ranges::move(kept.entries, std::back_inserter(record.entries));
        std::ranges::move(kept.of_families, std::back_inserter(record.of_families));
        record.bytes += kept.bytes;
      }
      kept = std::move(record);
      return absl::OkStatus();
    }
  }
  SHOAL_RETURN_IF_ERROR(Charge(record.bytes, source));
  kept = std::move(record);
  return absl::OkStatus();
}

void OsvRecords::CountLeftOut(const absl::Status& why) {
  ++counts_.left_out;
  if (counts_.first_left_out.empty()) counts_.first_left_out = std::string(why.message());
}

absl::Status OsvRecords::LeaveUnread(const absl::Status& why, Odd odd) {
  if (odd == Odd::kRefuse) return why;
  CountLeftOut(why);
  ++counts_.unread;
  return absl::OkStatus();
}

absl::Status OsvRecords::LeaveOut(absl::string_view json, const std::string& source,
                                  const absl::Status& why) {
  const auto unread = [&] { return LeaveUnread(why, Odd::kLeaveOut); };
  if (json.size() > kMaxRecordBytes) return unread();
  const absl::StatusOr<JsonText> text = JsonText::Parse(json, source);
  if (!text.ok()) return unread();
  const JsonView whole = text->root();
  const absl::StatusOr<JsonView> affected_view = whole.Get("affected");
  if (!affected_view.ok()) return unread();
  const absl::StatusOr<std::vector<JsonView>> affected = affected_view->Items();
  if (!affected.ok()) return unread();
  const bool is_record = affected_view->exists() || !TextIn(whole, "id").empty() ||
                         absl::StrContains(json, "\"ecosystem\"");
  CountLeftOut(why);
  if (IsWithdrawn(TextIn(whole, "withdrawn")) || !is_record) return absl::OkStatus();

  Record record;
  Entry entry{.ids = {OddId(TextIn(whole, "id"), source)},
              .upstream = "",
              .published = "",
              .affected = {.intervals = {}, .versions = {}, .unclear = true}};
  bool all_known = !affected->empty();
  for (const JsonView& element : *affected) {
    const absl::StatusOr<JsonView> package = element.Get("package");
    if (package.ok() && !package->exists()) {
      const absl::StatusOr<bool> has_other = HasOther(element, kOfElement);
      all_known &= has_other.ok() && !*has_other;
      continue;
    }
    const std::string ecosystem =
        package.ok() ? CanonicalEcosystem(TextIn(*package, "ecosystem")) : "";
    const bool is_family = IsFamily(ecosystem), is_known = OrderOf(ecosystem).has_value();
    if (ecosystem.empty()) {
      all_known = false;
    } else if (is_known || is_family) {
      const absl::StatusOr<std::string> key = PackageKey(ecosystem, TextIn(*package, "name"));
      if (key.ok()) {
        (is_known ? record.entries : record.of_families).emplace_back(*key, entry);
        record.bytes += BytesOf(*key, entry);
      } else if (is_known) {
        ++unread_of_[ecosystem];
      } else {
        all_known = false;
      }
    }
  }
  counts_.unread += !all_known;
  SHOAL_RETURN_IF_ERROR(Charge(record.bytes, source));
  odd_.push_back(std::move(record));
  return absl::OkStatus();
}

absl::Status OsvRecords::Add(absl::string_view json, const std::string& source, Odd odd) {
  absl::StatusOr<Record> record = Read(json, source);
  if (!record.ok()) {
    return odd == Odd::kRefuse ? record.status() : LeaveOut(json, source, record.status());
  }
  SHOAL_RETURN_IF_ERROR(Keep(*std::move(record), source));
  // The record has been read to its end: from here on it counts.
  ++counts_.records;
  return absl::OkStatus();
}

absl::Status OsvRecords::AddDirectory(const std::string& directory, Odd odd) {
  SHOAL_ASSIGN_OR_RETURN(const RecordFiles files, ListRecordFiles(directory));
  const auto& [paths, yaml, toml, packed, others] = files;
  if (paths.empty()) {
    return absl::NotFoundError(absl::StrCat(
        directory, ": no OSV records here (*.json)",
        yaml.empty() && toml.empty() && packed.empty() && others.empty()
            ? ""
            : "; those in YAML, TOML, Markdown, packed files or under other names are not read"));
  }
  for (const std::string& path : paths) {
    const absl::StatusOr<std::string> json = ReadFile(path, kMaxRecordBytes);
    if (absl::IsResourceExhausted(json.status())) {
      SHOAL_RETURN_IF_ERROR(LeaveUnread(json.status(), odd));
      continue;
    }
    if (!json.ok()) return json.status();
    SHOAL_RETURN_IF_ERROR(Add(*json, path, odd));
  }
  const auto unread = [&](const std::string& path, absl::string_view why) {
    return LeaveUnread(absl::InvalidArgumentError(absl::StrCat(path, ": ", why)), odd);
  };
  const auto look_into = [&](const std::vector<std::string>& some, auto id_in,
                             absl::string_view why) -> absl::Status {
    for (const std::string& path : some) {
      std::error_code ignored;
      if (fs::is_regular_file(path, ignored)) {
        const absl::StatusOr<std::string> text = ReadFile(path, kMaxRecordBytes);
        const std::optional<std::string> id =
            text.ok() ? id_in(*text) : std::optional<std::string>();
        if (text.ok() && (!id.has_value() || records_.contains(*id))) continue;
      }
      SHOAL_RETURN_IF_ERROR(unread(path, why));
    }
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(
      look_into(yaml, IdInYaml, "is a record in YAML, which is not read: have it in JSON"));
  SHOAL_RETURN_IF_ERROR(
      look_into(toml, IdInToml, "is an advisory in TOML, which is not read: have it in JSON"));
  for (const std::string& path : packed) {
    if (IsUnpacked(path, paths)) continue;
    SHOAL_RETURN_IF_ERROR(unread(path, "is a packed file, which is not read: unpack it"));
  }
  for (const std::string& path : others) {
    SHOAL_RETURN_IF_ERROR(
        unread(path, "is no regular file with one record under a name in .json, and no directory"));
  }
  return absl::OkStatus();
}

// Entries that share an id or an alias, also through others, are one advisory.
std::vector<Advisory> OsvRecords::Join(Order order, const std::vector<Entry>& entries) {
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
  std::map<std::string, Coverage> ecosystems;
  std::map<std::string, std::vector<Entry>> packages;
  const auto take = [&](Record& record) {
    for (auto& [key, entry] : record.entries) {
      Coverage& coverage = ecosystems[EcosystemOf(key)];
      coverage.modified = std::max(coverage.modified, record.modified);
      packages[key].push_back(std::move(entry));
    }
  };
  for (auto& [id, record] : records_) {
    counts_.withdrawn += record.withdrawn;
    if (record.withdrawn) continue;
    for (const auto& [family, count] : record.unknown) counts_.unknown[family] += count;
    take(record);
  }
  for (Record& record : odd_) take(record);
  // When every release is known.
  const auto take_families = [&](const Record& record) {
    for (const auto& [key, entry] : record.of_families) {
      const std::string family = EcosystemOf(key);
      for (const auto& [ecosystem, coverage] : ecosystems) {
        if (absl::StartsWith(ecosystem, absl::StrCat(family, ":"))) {
          packages[absl::StrCat(ecosystem, key.substr(family.size()))].push_back(entry);
        }
      }
    }
  };
  for (const auto& [id, record] : records_) {
    if (!record.withdrawn) take_families(record);
  }
  for (const Record& record : odd_) take_families(record);
  for (const auto& [ecosystem, count] : unread_of_) ecosystems[ecosystem].unread += count;
  for (auto& [key, entries] : packages) {
    const std::string ecosystem = EcosystemOf(key);
    const Order order = *OrderOf(ecosystem);
    const std::vector<Advisory> advisories = Join(order, entries);
    entries.clear();
    // The record's two lengths take three bytes each at most.
    const size_t around = key.size() + 6;
    const absl::StatusOr<PackageAdvisories> fit =
        Fit(order, advisories,
            std::min(max_bytes > around ? max_bytes - around : 0, kMaxAdvisoryBytes));
    if (!fit.ok()) return Annotate(fit.status(), key);
    SHOAL_RETURN_IF_ERROR(add(key, Encode(*fit)));
    Coverage& coverage = ecosystems[ecosystem];
    coverage.advisories += advisories.size();
    coverage.packages += 1;
    counts_.advisories += advisories.size();
    counts_.packages += 1;
    counts_.cut += fit->more > 0;
    counts_.not_listed += fit->more;
  }
  for (auto& [ecosystem, coverage] : ecosystems) {
    coverage.unread += counts_.unread;
    SHOAL_RETURN_IF_ERROR(add(ecosystem, Encode(coverage)));
  }
  records_.clear();
  odd_.clear();
  return records;
}

}  // namespace shoal::audit
