// One run of a whole deployment from one seed: its parties, a few clients, everything that goes
// wrong, and the oracles (oracles.h).
//
//   0 .. trouble ends   clients look keys up; faults that the seed has chosen come and go
//   .. clients' end     nothing goes wrong any more: machines run, clocks are right. Every client
//                       ends, and one that comes now is served
//   .. a little later   the oracles look at every party and disk
#ifndef SHOAL_SRC_SIM_SIMULATION_H_
#define SHOAL_SRC_SIM_SIMULATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/sim/oracles.h"
#include "src/sim/universe.h"

namespace shoal::sim {

struct Options {
  uint64_t seed = 1;
  // Prints what happens to standard error.
  bool verbose = false;
  // Whether anything goes wrong.
  bool faults = true;
  // Whether rounds end while party 1's machines close their queries, where it has several, also
  // without other faults.
  bool ends_while_closing = false;
  // Whether things happen in the middle of pieces, while parties make what they send (see
  // Simulation::WithinPiece), beside what else goes wrong.
  bool within_pieces = false;
  // Whether a party is malicious, and miscuts parts, also without other faults. For parties of
  // several machines.
  bool miscuts_parts = false;
  // Whether a party tampers with the refreshes of terms, and the table has new epochs meanwhile,
  // where nothing else goes wrong. For rounds with terms.
  bool tampers_refreshes = false;
};

struct Outcome {
  uint64_t digest = 0;  // of everything that happened: equal for equal seeds
  uint64_t events = 0;
  double simulated_seconds = 0;
  std::vector<Violation> violations;
  // What happened, for statistics.
  uint64_t lookups_answered = 0, lookups_failed = 0, rounds = 0, rounds_answered = 0;
  uint64_t crashes = 0, restarts = 0;
  // Rounds that ended when some machines of party 1 had closed their queries, and others had not.
  uint64_t ended_while_closing = 0;
  // Parts of lists and batches that a malicious party has cut otherwise than it has to.
  uint64_t parts_miscut = 0;
  // Things that happened in the middle of pieces, and how often the round or term had ended there
  // by the end of the piece.
  uint64_t within_pieces = 0, ended_within_pieces = 0;
  uint64_t refreshes_fetched = 0;  // by watchers of terms
  // Messages of refreshes that a malicious party has altered, withheld or repeated, and how often a
  // watcher took no answers because of it.
  uint64_t refreshes_tampered = 0, refreshes_not_taken = 0;
  std::string troubles;  // what the seed has chosen, for people
};

// Runs in this process, and leaves behind what died in it: Run (runner.h) gives each seed a process
// of its own. Call PrepareProcess first.
Outcome Simulate(const Universe& universe, const Options& options);

// To be called once, before anything else: replaces the source of randomness by one that each
// simulation seeds.
void PrepareProcess();

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_SIMULATION_H_
