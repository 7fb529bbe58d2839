#include "src/sim/runner.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/sim/outcome_bytes.h"
#include "src/sim/scheduler.h"

namespace shoal::sim {
namespace {

constexpr rlim_t kMaxProcessorSeconds = 120;

Bytes Encode(const Outcome& outcome) {
  Bytes out;
  Put(out, outcome.digest);
  Put(out, outcome.events);
  Put(out, static_cast<uint64_t>(outcome.simulated_seconds * 1000));
  for (const uint64_t count :
       {outcome.lookups_answered, outcome.lookups_failed, outcome.rounds, outcome.rounds_answered,
        outcome.crashes, outcome.restarts, outcome.ended_while_closing, outcome.parts_miscut,
        outcome.within_pieces, outcome.ended_within_pieces, outcome.refreshes_fetched,
        outcome.refreshes_tampered, outcome.refreshes_not_taken}) {
    Put(out, count);
  }
  Put(out, outcome.troubles);
  Put(out, outcome.violations.size());
  for (const Violation& violation : outcome.violations) {
    Put(out, violation.oracle);
    Put(out, violation.what);
  }
  return out;
}

Outcome Decode(BytesView bytes) {
  OutcomeReader reader(bytes);
  Outcome outcome;
  outcome.digest = reader.Number();
  outcome.events = reader.Number();
  outcome.simulated_seconds = static_cast<double>(reader.Number()) / 1000;
  for (uint64_t* const count :
       {&outcome.lookups_answered, &outcome.lookups_failed, &outcome.rounds,
        &outcome.rounds_answered, &outcome.crashes, &outcome.restarts, &outcome.ended_while_closing,
        &outcome.parts_miscut, &outcome.within_pieces, &outcome.ended_within_pieces,
        &outcome.refreshes_fetched, &outcome.refreshes_tampered, &outcome.refreshes_not_taken}) {
    *count = reader.Number();
  }
  outcome.troubles = reader.Text();
  for (uint64_t left = reader.Number(); left > 0; --left) {
    Violation violation;
    violation.oracle = reader.Text();
    violation.what = reader.Text();
    outcome.violations.push_back(std::move(violation));
  }
  return outcome;
}

struct Child {
  pid_t pid = 0;
  int pipe = -1;
  uint64_t seed = 0;
  Bytes output;
};

Child Start(uint64_t seed, const std::function<Bytes()>& work) {
  int ends[2];
  SHOAL_CHECK(pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  SHOAL_CHECK(pid >= 0);
  if (pid == 0) {
    close(ends[0]);
    const rlimit limit{.rlim_cur = kMaxProcessorSeconds, .rlim_max = kMaxProcessorSeconds};
    setrlimit(RLIMIT_CPU, &limit);
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_CORE, &none);
    const Bytes out = work();
    for (size_t at = 0; at < out.size();) {
      const ssize_t n = write(ends[1], out.data() + at, out.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) _exit(1);
      at += static_cast<size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  return {.pid = pid, .pipe = ends[0], .seed = seed, .output = {}};
}

Child Start(const Universe& universe, const Options& options) {
  return Start(options.seed, [&] { return Encode(Simulate(universe, options)); });
}

// Reads what is there; false at the end.
bool Read(Child& child) {
  uint8_t buffer[4096];
  const ssize_t n = read(child.pipe, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR;
  Append(child.output, BytesView(buffer, static_cast<size_t>(n)));
  return n > 0;
}

EndedProcess End(Child& child) {
  close(child.pipe);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  EndedProcess ended{.output = std::move(child.output)};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    ended.died = WIFSIGNALED(status) ? absl::StrCat("died: ", strsignal(WTERMSIG(status)))
                                     : absl::StrCat("exited with ", WEXITSTATUS(status));
  }
  return ended;
}

Outcome Finish(Child& child) {
  const EndedProcess ended = End(child);
  Outcome outcome = Decode(ended.output);
  if (!ended.died.empty()) {
    outcome.violations.push_back({"alive", absl::StrCat("the simulation ", ended.died)});
  }
  return outcome;
}

}  // namespace

EndedProcess InOwnProcess(const std::function<Bytes()>& work) {
  Child child = Start(0, work);
  while (Read(child)) {
  }
  return End(child);
}

Runner::Runner(Kind kind) : kind_(kind) {
  PrepareProcess();
  const auto add = [this](const std::vector<uint32_t>& counts) {
    universes_.push_back(std::make_unique<const Universe>(counts, kind_ == Kind::kTerms));
  };
  if (kind == Kind::kMachines) {
    for (const std::vector<uint32_t>& counts : std::initializer_list<std::vector<uint32_t>>{
             {2, 2}, {1, 2}, {2, 1}, {3, 2}, {2, 3, 1}, {1, 2, 3}}) {
      add(counts);
    }
  } else {
    for (const uint32_t parties : {2, 3, 4}) add(std::vector<uint32_t>(parties, 1));
  }
  for (const auto& universe : universes_) {
    const Outcome outcome = Simulate(*universe, {.seed = 0, .faults = false});
    for (const Violation& violation : outcome.violations) {
      std::fprintf(stderr, "without faults: %s: %s\n", violation.oracle.c_str(),
                   violation.what.c_str());
    }
    SHOAL_CHECK(outcome.violations.empty());
  }
}

const Universe& Runner::UniverseOf(uint64_t seed) const {
  Rng rng(seed);
  if (kind_ == Kind::kMachines) return *universes_[rng.Below(universes_.size())];
  const uint64_t digit = rng.Below(10);
  return *universes_[digit < 2 ? 0 : digit < 4 ? 2 : 1];
}

Outcome Runner::Run(const Options& options) const {
  Child child = Start(UniverseOf(options.seed), options);
  while (Read(child)) {
  }
  return Finish(child);
}

void Runner::RunMany(const Options& options, uint64_t runs, unsigned jobs,
                     const std::function<bool(uint64_t seed, const Outcome& outcome)>& take) const {
  std::vector<Child> children;
  uint64_t begun = 0;
  bool goes_on = true;
  while ((goes_on && begun < runs) || !children.empty()) {
    while (goes_on && begun < runs && children.size() < jobs) {
      Options next = options;
      next.seed += begun++;
      children.push_back(Start(UniverseOf(next.seed), next));
    }
    std::vector<pollfd> waiting;
    for (const Child& child : children)
      waiting.push_back({.fd = child.pipe, .events = POLLIN, .revents = 0});
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    for (size_t i = waiting.size(); i-- > 0;) {
      if (waiting[i].revents == 0 || Read(children[i])) continue;
      const Outcome outcome = Finish(children[i]);
      const uint64_t seed = children[i].seed;
      children.erase(children.begin() + static_cast<ptrdiff_t>(i));
      if (goes_on) goes_on = take(seed, outcome);
    }
  }
}

}  // namespace shoal::sim
