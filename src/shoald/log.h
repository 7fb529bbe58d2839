// The log of a process: lines of text or of JSON on standard error, in which an error that comes
// again and again is counted instead of repeated.
#ifndef SHOAL_SRC_SHOALD_LOG_H_
#define SHOAL_SRC_SHOALD_LOG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "spdlog/formatter.h"
#include "spdlog/sinks/sink.h"
#include "src/base/clock.h"
#include "src/parallel/mutex.h"

namespace shoal::shoald {

// One JSON object a line:
// {"time":"2026-11-23T07:00:00.123Z","level":"error","party":2,"text":".."}, with
// "machine":1 after the party where it has several. Bytes that are not UTF-8 come as "text_hex", so
// that no message breaks its line.
std::unique_ptr<spdlog::formatter> JsonLines(uint32_t party,
                                             std::optional<uint32_t> machine = std::nullopt);

// Lines of text: "2026-11-23T07:00:00.123 party 2 error ..", whose text is Printable, so that no
// message breaks its line or makes a terminal do anything.
std::unique_ptr<spdlog::formatter> TextLines(uint32_t party,
                                             std::optional<uint32_t> machine = std::nullopt);

// Hands lines on to another sink. A warning or an error is handed on at once the first time. While
// the same comes again it is counted, and said with its number every ten minutes: "no round could
// be opened: .. (the same 341 times in the last 10 minutes)". Two lines are the same if they differ
// in numbers alone, except in that of a party, and in that of the round with which they begin.
// Thread-safe.
class RepeatFilter final : public spdlog::sinks::sink {
 public:
  // `clock` must outlive the filter.
  RepeatFilter(std::shared_ptr<spdlog::sinks::sink> to, const Clock* clock);

  void log(const spdlog::details::log_msg& line) override ABSL_LOCKS_EXCLUDED(mutex_);
  void flush() override;
  void set_pattern(const std::string& pattern) override;
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

  // Says all counts now. What comes next counts as the first time.
  void TellCounts() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Seen {
    spdlog::level::level_enum level;
    std::string text;  // the latest
    uint64_t since_s;  // on the steady clock: when a line was handed on
    uint64_t repeated = 0;
  };
  void TellLocked(const Seen& seen, uint64_t now_s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says the counts of a whole period, and forgets what did not come again in one.
  void TellDueLocked(uint64_t now_s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<spdlog::sinks::sink> to_;
  const Clock* const clock_;
  Mutex mutex_;
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mutex_);  // by what makes lines the same
};

// Makes the process's log, as text or as JSON; says all counts when it dies.
class Log {
 public:
  Log(uint32_t party, std::optional<uint32_t> machine, bool json, const Clock* clock);
  ~Log() { TellCounts(); }
  void TellCounts() { filter_->TellCounts(); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

 private:
  const std::shared_ptr<RepeatFilter> filter_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_LOG_H_
