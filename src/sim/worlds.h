// Worlds that a coalition is not to tell apart: the same seed twice, with something in it changed
// that is secret, and everything that reaches the coalition, compared.
//
//   another row      one honest client asks another row
//   exchanged rows   two honest clients ask each other's rows
//   other noise      the honest parties draw other secrets, and with them other noise
//   over rounds      a list that is spread over rounds has one other key
//
// A coalition has any of the parties, but not all, and perhaps the door: whoever stands between
// clients and party 1. Its parties run the programs as they are; Tricks change what they send, or
// serve. Nothing goes wrong by chance.
//
// Why views are compared byte by byte. Every program draws from a stream of its own, so that all
// seeds, keys, permutations, noise and times are the same in both worlds. A row enters its slot's
// tallies and answers alone. Let h be an honest party, and x, y and the mask e the slot's share at
// h: uniformly random, known to h and the client alone, and used for one tally l and one answer of
// one round. Whatever comes to h and leaves it, as many shares (x, y) have y l + x = l' for each l
// and l', and one mask e has each pair of answers. So exchanging h's share for another one, which
// is as likely, turns the bytes of one world into those of the other, and what stands at the places
// of the slot's tallies and answers is in both worlds uniformly random given the rest of the view.
// A tag under a key of the same secrets, used once, is as well. The view has a name there in place
// of the bytes: "tally of client 2's slot 0 for party 3". It has one only where the bytes are
// exactly what the slot's secrets and row give, computed anew from the client's master seed (Truth
// in worlds.cc), and only for one content of each sender: with two, the share would be used twice.
// All other bytes stay as they are, a tally or an answer that lacks a share among them, and are
// different in two worlds if they depend on the row.
//
// Behind the last honest party the coalition removes its own shares and has the rows, in an order
// that is uniform and secret: those of honest clients, which the names stand for, and noise, which
// is compared. So the histograms of two worlds differ by the changed rows alone, the change that
// h's noise is for (docs/privacy.md). That orders are uniform is not to be seen in pairs of equal
// ones: Seen::exchanged counts them over many runs.
//
// For noise to do its part it must be independent of what the coalition saw before clients were
// bound to the round. So with other noise all that an honest party sends, and tells its monitoring,
// until it commits to a list of onions has the same form: the same messages, numbers and texts, and
// as many bytes of keys and signatures, which are other ones and uniformly random; and the same
// times until the first honest party has committed to one. Who chooses among proposed rounds by
// that chooses the same ones.
//
// Which clients were served is in no view: no client shows it (guarantee 6), and what clients send
// afterwards is compared like everything else. Still, people talk, and then whoever spoils a row
// learns who asked it. What no coalition may do is aim at a client and a row together. With two
// clients and two rows, "client i is served with row r" is true or false for each pair. It must be
// a product: a(i) and b(r), where a is what was done to clients and b what was done to rows (Aims).
//
// Over rounds, one other key is one change in one round. Two worlds with one order of rows are no
// fair comparison there, as orders are secret, and that of one list may go with another one of the
// other list. The distance is the mean number of rounds that have another row in the best match of
// the orders of many seeds in one world with those of many in the other (Distance).
#ifndef SHOAL_SRC_SIM_WORLDS_H_
#define SHOAL_SRC_SIM_WORLDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/sim/universe.h"

namespace shoal::sim {

// Who is in a coalition: bit j for party j, and bit 0 for the door.
using Roles = uint32_t;
inline constexpr Roles kDoor = 1;
inline constexpr bool Has(Roles roles, uint32_t party) { return (roles >> party & 1) != 0; }
// "door, 1, 3".
std::string NameOf(Roles roles);
// All that leave at least one party honest.
std::vector<Roles> Coalitions(uint32_t parties);

// What a coalition does, as far as it has the roles.
struct Tricks {
  // The last party serves the row of this key (of Universe) with a mark XORed on it.
  bool marks_row = false;
  size_t marked_key = 0;
  // Door or party 1 XORs a mark on the answers of client 0, the same or another one.
  bool marks_client = false, other_mark = false;
  // Door or party 1 changes the tally of client 0.
  bool changes_tally = false;
  // Messages with queries, those to the next party and those of client 0, come again.
  bool replays = false;
  // A party sends a second batch of queries, without the last one, after the first.
  bool second_batch = false;
  // A party exchanges the tallies of the first two honest clients in its batch.
  bool exchanges_tallies = false;
  // Parties ask the next one what rounds have cost as soon as they are proposed, and party 1 ends
  // rounds of which noise is told, if its number is odd.
  bool chooses_rounds = false;

  static Tricks FromSeed(uint64_t seed);
  std::string Name() const;
};

struct World {
  uint64_t seed = 1;
  Roles coalition = 0;
  Tricks tricks = {};
  // The keys that client 0, 1, .. look up, one after the other. All clients ask their first ones in
  // one round, as far as the coalition lets them, and so on.
  std::vector<std::vector<size_t>> lookups = {};
  // Client 0 makes one lookup of all its keys, over as many rounds.
  bool over_rounds = false;
  // Other numbers give the honest parties other secrets.
  uint64_t honest_secrets = 0;
  // Prints the view as it comes.
  bool verbose = false;
};

struct Seen {
  // What reached the coalition, in order, a line each.
  std::vector<std::string> view;
  // What honest parties have sent and told their monitoring until they committed to a list, in
  // form.
  std::vector<std::string> told;
  // Of each client's lookups: whether it was served with the row of the table.
  std::vector<std::vector<bool>> served;
  // Rows that client 0 has asked, in the order of its rounds.
  std::vector<uint32_t> asked;
  // How often an honest party had queries of both clients 0 and 1 in a round, and how often it put
  // the one first that had come last.
  uint64_t pairs = 0, exchanged = 0;
  // Why the run is no run; empty if all was done.
  std::string problem;
};

// Runs a world in a process of its own. Call PrepareProcess first.
Seen RunWorld(const Universe& universe, const World& world);

// The first line in which two views differ, with both; empty if they are equal.
std::string Difference(const std::vector<std::string>& a, const std::vector<std::string>& b);

// Whether somebody aims at a client and a row: served[i][r] of two clients and two rows, which is
// no product.
bool Aims(const bool (&served)[2][2]);

// The least mean number of places in which sequences of `a` and those of `b` differ, over all ways
// to match them one to one. As many in both, all of one length.
double Distance(const std::vector<std::vector<uint32_t>>& a,
                const std::vector<std::vector<uint32_t>>& b);

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_WORLDS_H_
