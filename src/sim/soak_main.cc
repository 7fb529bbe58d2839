// Runs simulations of a whole deployment (docs/simulation.md). scripts/soak builds and calls it.
#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "src/sim/runner.h"

namespace shoal::sim {
namespace {

struct Flags {
  uint64_t seed = 1;
  uint64_t runs = 1000;
  unsigned jobs = 1;
  bool first = false;   // ends at the first violation
  bool replay = false;  // one run, told in full
  bool pieces = false;  // things happen in the middle of pieces, too
  Kind kind = Kind::kPlain;
};

bool Parse(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--first") {
      flags.first = true;
    } else if (argument == "--machines") {
      flags.kind = Kind::kMachines;
    } else if (argument == "--pieces") {
      flags.pieces = true;
    } else if (argument == "--terms") {
      flags.kind = Kind::kTerms;
    } else if (absl::ConsumePrefix(&argument, "--replay=")) {
      flags.replay = true;
      if (!absl::SimpleAtoi(argument, &flags.seed)) return false;
    } else if (absl::ConsumePrefix(&argument, "--seed=")) {
      if (!absl::SimpleAtoi(argument, &flags.seed)) return false;
    } else if (absl::ConsumePrefix(&argument, "--runs=")) {
      if (!absl::SimpleAtoi(argument, &flags.runs)) return false;
    } else if (absl::ConsumePrefix(&argument, "--jobs=")) {
      if (!absl::SimpleAtoi(argument, &flags.jobs) || flags.jobs == 0) return false;
    } else {
      return false;
    }
  }
  return true;
}

void Show(uint64_t seed, const Outcome& outcome) {
  for (const Violation& violation : outcome.violations) {
    std::printf("%lu\t%s\t%s\t%s\n", seed, violation.oracle.c_str(), violation.what.c_str(),
                outcome.troubles.c_str());
  }
  std::fflush(stdout);
}

int Replay(const Flags& flags) {
  const Outcome outcome =
      Runner(flags.kind).Run({.seed = flags.seed, .verbose = true, .within_pieces = flags.pieces});
  std::fprintf(stderr, "digest %016lx, %lu events in %.1f simulated seconds\n", outcome.digest,
               outcome.events, outcome.simulated_seconds);
  Show(flags.seed, outcome);
  return outcome.violations.empty() ? 0 : 1;
}

int Soak(const Flags& flags) {
  const Runner runner(flags.kind);
  const absl::Time begun = absl::Now();
  absl::Time told = begun;
  uint64_t runs = 0, failed = 0, answered = 0, lookups = 0, rounds = 0, crashes = 0, events = 0;
  uint64_t digests = 0, within = 0, ended = 0, refreshes = 0, tampered = 0, not_taken = 0;
  const Options options{.seed = flags.seed, .within_pieces = flags.pieces};
  runner.RunMany(options, flags.runs, flags.jobs, [&](uint64_t seed, const Outcome& outcome) {
    ++runs;
    if (!outcome.violations.empty()) ++failed;
    answered += outcome.lookups_answered;
    lookups += outcome.lookups_answered + outcome.lookups_failed;
    rounds += outcome.rounds;
    crashes += outcome.crashes;
    within += outcome.within_pieces;
    ended += outcome.ended_within_pieces;
    refreshes += outcome.refreshes_fetched;
    tampered += outcome.refreshes_tampered;
    not_taken += outcome.refreshes_not_taken;
    events += outcome.events;
    digests ^= outcome.digest;  // in any order
    Show(seed, outcome);
    if (absl::Now() - told > absl::Seconds(10)) {
      told = absl::Now();
      std::fprintf(stderr, "soak: %lu of %lu runs, %lu failed, %.0f a minute\n", runs, flags.runs,
                   failed, static_cast<double>(runs) / absl::ToDoubleMinutes(told - begun));
    }
    return !flags.first || outcome.violations.empty();
  });
  std::fprintf(
      stderr,
      "soak: seeds %lu to %lu: %lu runs, %lu failed; %lu of %lu lookups answered, %lu "
      "rounds, %lu refreshes fetched, %lu not taken, %lu of their messages tampered with, %lu "
      "crashes, %lu things in the middle of pieces, of which %lu ended what the piece is of; %lu "
      "events; %.1f s; digest of all %016lx\n",
      flags.seed, flags.seed + flags.runs - 1, runs, failed, answered, lookups, rounds, refreshes,
      not_taken, tampered, crashes, within, ended, events,
      absl::ToDoubleSeconds(absl::Now() - begun), digests);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace shoal::sim

int main(int argc, char** argv) {
  using namespace shoal::sim;
  Flags flags;
  if (!Parse(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: soak [--machines | --terms] [--pieces] [--seed=FIRST] [--runs=N] "
                 "[--jobs=N] [--first] "
                 "| [--machines | --terms] [--pieces] --replay=SEED\n");
    return 2;
  }
  return flags.replay ? Replay(flags) : Soak(flags);
}
