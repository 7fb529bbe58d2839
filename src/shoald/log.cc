#include "src/shoald/log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "src/base/printable.h"
#include "src/cli/json.h"

namespace shoal::shoald {
namespace {

constexpr uint64_t kPeriodS = 600;
// More different errors than this at a time are handed on, so that a neighbour who makes texts up
// cannot fill the memory.
constexpr size_t kMostSeen = 64;

absl::string_view TextOf(const spdlog::details::log_msg& line) {
  return {line.payload.data(), line.payload.size()};
}

class JsonFormatter final : public spdlog::formatter {
 public:
  JsonFormatter(uint32_t party, std::optional<uint32_t> machine)
      : party_(party), machine_(machine) {}

  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& out) override {
    const auto level = spdlog::level::to_string_view(line.level);
    cli::JsonObject object;
    object
        .Text("time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(line.time),
                                       absl::UTCTimeZone()))
        .Text("level", absl::string_view(level.data(), level.size()))
        .Integer("party", party_);
    if (machine_.has_value()) object.Integer("machine", *machine_);
    const std::string json = object.Blob("text", AsBytes(TextOf(line))).Take() + "\n";
    out.append(json.data(), json.data() + json.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>(party_, machine_);
  }

 private:
  const uint32_t party_;
  const std::optional<uint32_t> machine_;
};

class TextFormatter final : public spdlog::formatter {
 public:
  TextFormatter(uint32_t party, std::optional<uint32_t> machine)
      : party_(party),
        machine_(machine),
        pattern_(absl::StrCat("%Y-%m-%dT%H:%M:%S.%e party ", party,
                              machine.has_value() ? absl::StrCat(" machine ", *machine) : "",
                              " %^%l%$ %v")) {}

  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& out) override {
    const std::string text = Printable(TextOf(line));
    spdlog::details::log_msg printable = line;
    printable.payload = text;
    pattern_.format(printable, out);
    // Where the pattern says what a terminal shows in a colour.
    line.color_range_start = printable.color_range_start;
    line.color_range_end = printable.color_range_end;
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<TextFormatter>(party_, machine_);
  }

 private:
  const uint32_t party_;
  const std::optional<uint32_t> machine_;
  spdlog::pattern_formatter pattern_;
};

// What two lines that are the same have in common.
std::string KindOf(const spdlog::details::log_msg& line) {
  const absl::string_view text = TextOf(line);
  std::string kind = absl::StrCat(static_cast<int>(line.level), " ");
  size_t i = 0;
  if (absl::StartsWith(text, "round ")) {
    i = std::min(text.find(':'), text.size());
    kind.append(text.data(), i);
  }
  for (; i < text.size(); ++i) {
    const bool number = absl::ascii_isdigit(static_cast<unsigned char>(text[i])) &&
                        !absl::EndsWith(text.substr(0, i), "party ");
    if (!number) {
      kind += text[i];
    } else if (kind.back() != '#') {
      kind += '#';
    }
  }
  return kind;
}

}  // namespace

std::unique_ptr<spdlog::formatter> JsonLines(uint32_t party, std::optional<uint32_t> machine) {
  return std::make_unique<JsonFormatter>(party, machine);
}

std::unique_ptr<spdlog::formatter> TextLines(uint32_t party, std::optional<uint32_t> machine) {
  return std::make_unique<TextFormatter>(party, machine);
}

RepeatFilter::RepeatFilter(std::shared_ptr<spdlog::sinks::sink> to, const Clock* clock)
    : to_(std::move(to)), clock_(clock) {}

void RepeatFilter::log(const spdlog::details::log_msg& line) {
  const uint64_t now_s = clock_->SteadySeconds();
  const MutexLock lock(mutex_);
  TellDueLocked(now_s);
  if (line.level < spdlog::level::warn) {
    to_->log(line);
    return;
  }
  const std::string kind = KindOf(line);
  if (const auto seen = seen_.find(kind); seen != seen_.end()) {
    seen->second.text = std::string(TextOf(line));
    ++seen->second.repeated;
    return;
  }
  to_->log(line);
  if (seen_.size() < kMostSeen) {
    seen_.emplace(kind, Seen{line.level, std::string(TextOf(line)), now_s});
  }
}

void RepeatFilter::TellLocked(const Seen& seen, uint64_t now_s) {
  const uint64_t minutes = std::max<uint64_t>(1, (now_s - seen.since_s + 30) / 60);
  const std::string text =
      absl::StrCat(seen.text, " (the same ", seen.repeated, seen.repeated == 1 ? " time" : " times",
                   " in the last ", minutes, minutes == 1 ? " minute)" : " minutes)");
  to_->log(spdlog::details::log_msg("", seen.level, text));
}

void RepeatFilter::TellDueLocked(uint64_t now_s) {
  for (auto next = seen_.begin(); next != seen_.end();) {
    const auto entry = next++;
    Seen& seen = entry->second;
    if (now_s - seen.since_s < kPeriodS) continue;
    if (seen.repeated == 0) {
      seen_.erase(entry);
      continue;
    }
    TellLocked(seen, now_s);
    seen.repeated = 0;
    seen.since_s = now_s;
  }
}

void RepeatFilter::TellCounts() {
  const uint64_t now_s = clock_->SteadySeconds();
  const MutexLock lock(mutex_);
  for (const auto& [kind, seen] : seen_) {
    if (seen.repeated > 0) TellLocked(seen, now_s);
  }
  seen_.clear();
}

void RepeatFilter::flush() { to_->flush(); }
void RepeatFilter::set_pattern(const std::string& pattern) { to_->set_pattern(pattern); }
void RepeatFilter::set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
  to_->set_formatter(std::move(formatter));
}

Log::Log(uint32_t party, std::optional<uint32_t> machine, bool json, const Clock* clock)
    : filter_(std::make_shared<RepeatFilter>(
          std::make_shared<spdlog::sinks::stderr_color_sink_mt>(), clock)) {
  auto logger = std::make_shared<spdlog::logger>("shoald", filter_);
  logger->set_formatter(json ? JsonLines(party, machine) : TextLines(party, machine));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace shoal::shoald
