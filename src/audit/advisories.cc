#include "src/audit/advisories.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

constexpr uint8_t kPackageFormat = 1, kCoverageFormat = 2, kIncompleteCoverageFormat = 3;
// What Fit needs for a package of which nothing but the number of advisories is said.
constexpr size_t kLeastBytes = 16;

class Writer {
 public:
  void Number(uint64_t number) {
    for (; number >= 0x80; number >>= 7) out_.push_back(static_cast<uint8_t>(number | 0x80));
    out_.push_back(static_cast<uint8_t>(number));
  }
  void Text(absl::string_view text) {
    Number(text.size());
    Append(out_, AsBytes(text));
  }
  Bytes Take() { return std::move(out_); }

 private:
  Bytes out_;
};

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("a value of the table is malformed: ", what));
}

// Reads what Writer writes. After an error it gives zeros and empty texts; `ok` is false then.
class Reader {
 public:
  explicit Reader(BytesView rest) : rest_(rest) {}
  uint64_t Number() {
    uint64_t number = 0;
    for (int shift = 0; shift < 63 && !rest_.empty(); shift += 7) {
      const uint8_t byte = rest_[0];
      rest_ = rest_.subspan(1);
      number |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) {
        if (byte == 0 && shift > 0) break;  // not the shortest form
        return number;
      }
    }
    Fail();
    return 0;
  }
  // A number of things of which each takes a byte or more.
  size_t Count() {
    const uint64_t count = Number();
    if (count > rest_.size()) Fail();
    return ok_ ? static_cast<size_t>(count) : 0;
  }
  std::string Text(size_t most) {
    const size_t size = Count();
    if (size > most) Fail();
    if (!ok_) return "";
    std::string text = ToString(rest_.first(size));
    rest_ = rest_.subspan(size);
    return text;
  }
  // Whether everything could be read so far.
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  void Fail() {
    ok_ = false;
    rest_ = {};
  }
  BytesView rest_;
  bool ok_ = true;
};

using Places = std::map<absl::string_view, uint64_t>;

void Collect(const Affected& affected, Places& places) {
  for (const Interval& interval : affected.intervals) {
    if (interval.from.has_value()) places[*interval.from];
    if (interval.to.has_value()) places[*interval.to];
  }
  for (const std::string& version : affected.versions) places[version];
}

void Write(const Affected& affected, const Places& places, Writer& out) {
  out.Number(affected.unclear ? 1 : 0);
  out.Number(affected.intervals.size());
  for (const Interval& interval : affected.intervals) {
    out.Number(interval.from.has_value() ? places.at(*interval.from) + 1 : 0);
    out.Number(interval.to.has_value()
                   ? 2 * places.at(*interval.to) + (interval.to_is_affected ? 2 : 1)
                   : 0);
  }
  std::vector<uint64_t> single;
  for (const std::string& version : affected.versions) single.push_back(places.at(version));
  std::sort(single.begin(), single.end());
  out.Number(single.size());
  for (const uint64_t place : single) out.Number(place);
}

Affected Read(const std::vector<std::string>& versions, Reader& in, bool& in_range) {
  Affected affected;
  const auto version = [&](uint64_t place) -> std::string {
    if (place < versions.size()) return versions[place];
    in_range = false;
    return "";
  };
  const uint64_t unclear = in.Number();
  if (unclear > 1) in_range = false;
  affected.unclear = unclear == 1;
  for (size_t count = in.Count(); count > 0 && in.ok(); --count) {
    Interval interval;
    if (const uint64_t from = in.Number(); from > 0) interval.from = version(from - 1);
    if (const uint64_t to = in.Number(); to > 0) {
      interval.to = version((to - 1) / 2);
      interval.to_is_affected = to % 2 == 0;
    }
    affected.intervals.push_back(std::move(interval));
  }
  for (size_t count = in.Count(); count > 0 && in.ok(); --count) {
    affected.versions.push_back(version(in.Number()));
  }
  return affected;
}

// An interval whose ends are parsed. A `from` that is missing comes before every version.
struct Parsed {
  std::optional<Version> from, to;
  const Interval* interval;
};

// Nothing if an end is no version.
std::optional<Parsed> Parse(Order order, const Interval& interval) {
  Parsed parsed{.from = {}, .to = {}, .interval = &interval};
  if (interval.from.has_value()) {
    parsed.from = Version::ParseBound(order, *interval.from);
    if (!parsed.from.has_value()) return std::nullopt;
  }
  if (interval.to.has_value()) {
    parsed.to = Version::ParseBound(order, *interval.to);
    if (!parsed.to.has_value()) return std::nullopt;
  }
  return parsed;
}

bool Holds(const Parsed& parsed, const Version& version) {
  if (parsed.from.has_value() && CompareWithBound(version, *parsed.from) < 0) return false;
  if (!parsed.to.has_value()) return true;
  const int order = CompareWithBound(version, *parsed.to);
  return order < 0 || (order == 0 && parsed.interval->to_is_affected);
}

bool IsEmpty(const Parsed& parsed) {
  if (!parsed.to.has_value() || !parsed.from.has_value()) return false;
  const int order = Compare(*parsed.from, *parsed.to);
  return order > 0 || (order == 0 && !parsed.interval->to_is_affected);
}

bool HasLocalEnd(const Parsed& parsed) {
  return (parsed.from.has_value() && parsed.from->is_local()) ||
         (parsed.to.has_value() && parsed.to->is_local());
}

// Whether `a` ends before `b`.
bool EndsBefore(const Parsed& a, const Parsed& b) {
  if (!a.to.has_value()) return false;
  if (!b.to.has_value()) return true;
  const int order = Compare(*a.to, *b.to);
  return order < 0 || (order == 0 && !a.interval->to_is_affected && b.interval->to_is_affected);
}

}  // namespace

Bytes Encode(const PackageAdvisories& package) {
  Places places;
  for (const Advisory& advisory : package.listed) Collect(advisory.affected, places);
  if (package.more > 0) Collect(package.rest, places);
  Writer out;
  out.Number(kPackageFormat);
  out.Number(places.size());
  uint64_t next = 0;
  for (auto& [version, place] : places) {
    place = next++;
    out.Text(version);
  }
  out.Number(package.listed.size());
  for (const Advisory& advisory : package.listed) {
    out.Text(advisory.id);
    out.Text(advisory.alias);
    Write(advisory.affected, places, out);
  }
  out.Number(package.more);
  if (package.more > 0) Write(package.rest, places, out);
  return out.Take();
}

Bytes Encode(const Coverage& coverage) {
  Writer out;
  out.Number(coverage.unread > 0 ? kIncompleteCoverageFormat : kCoverageFormat);
  out.Number(coverage.advisories);
  out.Number(coverage.packages);
  out.Text(coverage.modified);
  if (coverage.unread > 0) out.Number(coverage.unread);
  return out.Take();
}

absl::StatusOr<PackageAdvisories> DecodePackage(BytesView value) {
  if (value.size() > kMaxAdvisoryBytes) return Malformed("it is too long");
  Reader in(value);
  if (in.Number() != kPackageFormat)
    return Malformed("it is not a package's, or of a later version");
  std::vector<std::string> versions;
  for (size_t count = in.Count(); count > 0 && in.ok(); --count) {
    versions.push_back(in.Text(kMaxVersionBytes));
  }
  PackageAdvisories package;
  bool in_range = true;
  for (size_t count = in.Count(); count > 0 && in.ok(); --count) {
    Advisory advisory;
    advisory.id = in.Text(kMaxIdBytes);
    advisory.alias = in.Text(kMaxIdBytes);
    advisory.affected = Read(versions, in, in_range);
    package.listed.push_back(std::move(advisory));
  }
  package.more = in.Number();
  if (package.more > 0) package.rest = Read(versions, in, in_range);
  if (!in.done() || !in_range) return Malformed("a part of it does not fit");
  // Lists out of order, or a version that nothing names.
  const Bytes again = Encode(package);
  if (!std::ranges::equal(again, value)) return Malformed("it is not in its one encoding");
  return package;
}

absl::StatusOr<Coverage> DecodeCoverage(BytesView value) {
  Reader in(value);
  const uint64_t format = in.Number();
  if (format != kCoverageFormat && format != kIncompleteCoverageFormat) {
    return Malformed("it is not an ecosystem's, or of a later version");
  }
  Coverage coverage;
  coverage.advisories = in.Number();
  coverage.packages = in.Number();
  coverage.modified = in.Text(64);
  if (format == kIncompleteCoverageFormat) {
    coverage.unread = in.Number();
    if (coverage.unread == 0) return Malformed("it counts no records that could not be read");
  }
  if (!in.done()) return Malformed("a part of it does not fit");
  return coverage;
}

Affected Union(Order order, const std::vector<const Affected*>& parts) {
  Affected all;
  std::vector<Parsed> intervals;
  std::vector<Interval> apart;
  for (const Affected* part : parts) {
    all.unclear |= part->unclear;
    for (const Interval& interval : part->intervals) {
      std::optional<Parsed> parsed = Parse(order, interval);
      if (!parsed.has_value()) {
        all.unclear = true;
      } else if (HasLocalEnd(*parsed)) {
        if (std::ranges::find(apart, interval) == apart.end()) apart.push_back(interval);
      } else if (!IsEmpty(*parsed)) {
        intervals.push_back(*std::move(parsed));
      }
    }
  }
  std::sort(intervals.begin(), intervals.end(), [](const Parsed& a, const Parsed& b) {
    if (!a.from.has_value() || !b.from.has_value())
      return !a.from.has_value() && b.from.has_value();
    return Compare(*a.from, *b.from) < 0;
  });
  // Joins what overlaps, or touches.
  std::vector<Parsed> joined;
  std::vector<Interval> owned;
  owned.reserve(intervals.size());  // `joined` points into it
  for (Parsed& next : intervals) {
    const bool touches =
        !joined.empty() && (!joined.back().to.has_value() || !next.from.has_value() ||
                            Compare(*next.from, *joined.back().to) <= 0);
    if (!touches) {
      owned.push_back(*next.interval);
      next.interval = &owned.back();
      joined.push_back(std::move(next));
    } else if (EndsBefore(joined.back(), next)) {
      owned.back().to = next.interval->to;
      owned.back().to_is_affected = next.interval->to_is_affected;
      joined.back().to = std::move(next.to);
    }
  }
  for (const Affected* part : parts) {
    for (const std::string& text : part->versions) {
      const std::optional<Version> version = Version::ParseBound(order, text);
      // The last interval that does not begin after the version.
      const auto next =
          !version.has_value()
              ? joined.begin()
              : std::ranges::partition_point(joined, [&](const Parsed& interval) {
                  return !interval.from.has_value() || Compare(*interval.from, *version) <= 0;
                });
      if (next == joined.begin() || !Holds(*std::prev(next), *version))
        all.versions.push_back(text);
    }
  }
  std::sort(all.versions.begin(), all.versions.end());
  all.versions.erase(std::unique(all.versions.begin(), all.versions.end()), all.versions.end());
  all.intervals = std::move(owned);
  all.intervals.insert(all.intervals.end(), apart.begin(), apart.end());
  return all;
}

absl::StatusOr<PackageAdvisories> Fit(Order order, const std::vector<Advisory>& advisories,
                                      size_t max_bytes) {
  if (max_bytes < kLeastBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a package's record needs room for ", kLeastBytes, " bytes"));
  }
  const auto with = [&](size_t listed, bool unclear) {
    PackageAdvisories package;
    package.listed.assign(advisories.begin(), advisories.begin() + static_cast<ptrdiff_t>(listed));
    package.more = advisories.size() - listed;
    if (package.more == 0) return package;
    if (unclear) {
      package.rest.unclear = true;
      return package;
    }
    std::vector<const Affected*> others;
    for (size_t i = listed; i < advisories.size(); ++i) others.push_back(&advisories[i].affected);
    package.rest = Union(order, others);
    return package;
  };
  const auto fits = [&](const PackageAdvisories& package) {
    return Encode(package).size() <= max_bytes;
  };
  for (const bool unclear : {false, true}) {
    // More listed take more room, but for what the union then loses: the search may miss one or
    // two.
    size_t fit = 0, most = advisories.size();
    if (PackageAdvisories all = with(most, unclear); fits(all)) return all;
    if (!fits(with(0, unclear))) continue;
    while (most - fit > 1) {
      const size_t middle = (fit + most) / 2;
      (fits(with(middle, unclear)) ? fit : most) = middle;
    }
    return with(fit, unclear);
  }
  return absl::InternalError("the number of a package's advisories does not fit");
}

Judgement Judge(Order order, absl::string_view version, const Affected& affected) {
  const std::optional<Version> parsed = Version::Parse(order, version);
  // What is no version could be any, also one of those that are listed.
  bool unclear = affected.unclear || !parsed.has_value();
  size_t read = 0;
  for (const std::string& text : affected.versions) {
    if (text == version) return {.verdict = Verdict::kAffected, .fixed = ""};
    if (!parsed.has_value()) continue;
    const std::optional<Version> single = Version::ParseBound(order, text);
    read += single.has_value();
    // A range in a place for versions.
    unclear |= !single.has_value() && !text.empty() && absl::StrContains("<>=!~^*", text[0]);
    if (single.has_value() && CompareWithBound(*parsed, *single) == 0) {
      return {.verdict = Verdict::kAffected, .fixed = ""};
    }
  }
  for (const Interval& interval : affected.intervals) {
    const std::optional<Parsed> ends = Parse(order, interval);
    if (!parsed.has_value()) continue;
    if (!ends.has_value()) {
      unclear = true;
    } else if (Holds(*ends, *parsed)) {
      return {.verdict = Verdict::kAffected,
              .fixed = interval.to_is_affected ? "" : interval.to.value_or("")};
    }
  }
  // Old versions of PyPI stand beside others, and cannot be read. Alone they say nothing.
  unclear |= read == 0 && affected.intervals.empty() && !affected.versions.empty();
  return {.verdict = unclear ? Verdict::kUnclear : Verdict::kNotAffected, .fixed = ""};
}

}  // namespace shoal::audit
