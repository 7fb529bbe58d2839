#include "src/plan/report.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal::plan {
namespace {

std::string Scaled(double value, absl::string_view unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::fabs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  return absl::StrFormat("%.3g %s%s", value, kPrefixes[prefix], unit);
}
std::string BytesOf(double bytes) { return Scaled(bytes, "B"); }

// 12,345
std::string Whole(double number) {
  std::string text = absl::StrFormat("%.0f", number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

void PrintAlternatives(const google::protobuf::RepeatedPtrField<Alternative>& lines,
                       std::ostream& out) {
  out << absl::StrFormat("  %8s %9s %-15s %11s %12s %14s %9s %10s %10s\n", "epsilon", "row bytes",
                         "mechanism", "noise a row", "rows", "noise a round", "cpu s", "traffic",
                         "price/1M");
  for (const Alternative& line : lines) {
    out << (line.chosen() ? "* " : "  ");
    if (!line.note().empty()) {
      out << absl::StrFormat("%8g %9d %s\n", line.epsilon(), line.row_bytes(), line.note());
      continue;
    }
    out << absl::StrFormat("%8g %9d %-15s %11.1f %12s %14s %9.3g %10s %10.4g\n", line.epsilon(),
                           line.row_bytes(), line.mechanism(), line.mean_per_row(),
                           Whole(line.rows()), Whole(line.noise_queries()), line.cpu_s(),
                           BytesOf(line.gigabytes() * 1e9), line.price_per_million());
  }
}

// For parties of several machines.
void PrintMachines(const Plan& plan, std::ostream& out) {
  const Rental& rental = plan.rental();
  if (rental.machines() > plan.parties()) {
    out << "\nmachines; what each sends to the others of its party in a round, padding included\n";
    out << absl::StrFormat("  %5s %9s %14s %14s %14s %14s\n", "party", "machines", "memory each",
                           "offline", "online", "padding of it");
    for (const Party& p : plan.party()) {
      out << absl::StrFormat("  %5d %9d %14s %14s %14s %14s\n", p.party(), p.machines(),
                             BytesOf(p.peak_memory_bytes()), BytesOf(p.sent_offline_bytes()),
                             BytesOf(p.sent_online_bytes()), BytesOf(p.padding_bytes()));
    }
  }
  if (rental.machines() == plan.parties() && rental.price_machine_hour() == 0) return;
  out << absl::StrFormat(
      "\n%s machines for the %.3g minutes of a round (noise, offline stage and online stage): "
      "%.4g at %g an hour,\nand %.4g for %s between clients and parties; %s pass inside "
      "parties, which is not priced\n",
      Whole(rental.machines()), rental.minutes(), rental.machines_price(),
      rental.price_machine_hour(), rental.traffic_price(), BytesOf(rental.gigabytes() * 1e9),
      BytesOf(rental.inside_gigabytes() * 1e9));
}

void PrintEngines(const Plan& plan, std::ostream& out) {
  if (plan.engine_size() == 0) return;
  out << absl::StrFormat(
      "\nengines: a query's costs, with the set-up shared out over a day's queries and what a "
      "client "
      "fetches\nfirst (hint, placement, lists of rows' epochs) over %g lookups; 16 queries share a "
      "pass, alone is one by itself\n",
      plan.lookups_per_hint());
  out << absl::StrFormat("  %-10s %9s %9s %11s %10s %10s %11s %11s %11s %11s %10s\n", "engine",
                         "row bytes", "set-up s", "first fetch", "query", "answer", "server s",
                         "alone s", "client s", "server mem", "price/1M");
  for (const EngineCosts& engine : plan.engine()) {
    if (!engine.refused().empty()) {
      out << absl::StrFormat("  %-10s %9d refused: %s\n", engine.engine(), engine.row_bytes(),
                             engine.refused());
      continue;
    }
    out << absl::StrFormat(
        "  %-10s %9d %9.3g %11s %10s %10s %11.3g %11s %11.3g %11s %10.4g\n", engine.engine(),
        engine.row_bytes(), engine.setup_seconds(), BytesOf(engine.first_bytes()),
        BytesOf(engine.query_bytes()), BytesOf(engine.answer_bytes()),
        engine.server_seconds_per_query(),
        // The whole round of the chain has no meaning as one query's.
        engine.engine() == "chain" ? "-" : absl::StrFormat("%.3g", engine.alone_seconds()),
        engine.query_seconds() + engine.recover_seconds(), BytesOf(engine.server_bytes()),
        engine.price_per_million_queries());
  }
  const auto from = [&](double queries, double per_record) {
    return queries > 0
               ? absl::StrFormat("from %s queries a round (q/n = %.3g)", Whole(queries), per_record)
               : std::string("never");
  };
  for (const EngineCosts& engine : plan.engine()) {
    if (engine.engine() == "chain" || !engine.refused().empty()) continue;
    out << absl::StrFormat(
        "  the chain beats %s in processor time %s,\n    its online stage alone %s,\n    in price "
        "%s\n",
        engine.engine(),
        from(engine.chain_beats_cpu_from_queries(),
             engine.chain_beats_cpu_from_queries_per_record()),
        from(engine.chain_online_beats_cpu_from_queries(),
             engine.chain_online_beats_cpu_from_queries_per_record()),
        from(engine.chain_beats_price_from_queries(),
             engine.chain_beats_price_from_queries_per_record()));
  }
}

void PrintTwoTiers(const Plan& plan, std::ostream& out) {
  const TwoTiers& tiers = plan.two_tiers();
  if (!tiers.has_table()) return;
  out << absl::StrFormat(
      "\ntwo tiers: noise for %s buckets of up to %d rows of %d bytes, %.2f queries for each, %s "
      "for "
      "each half\n",
      Whole(tiers.buckets()), tiers.most_places(), tiers.table().row_bytes(),
      tiers.noise().mean_per_row(), Whole(tiers.noise_queries_per_half()));
  if (tiers.noise().phi() > 1) {
    out << absl::StrFormat("  a list of %d keys, of which at most %d in a bucket are asked (%s)\n",
                           tiers.noise().phi(), tiers.most_in_bucket(), tiers.noise().mechanism());
  }
  out << absl::StrFormat("  %5s %9s %9s %9s %9s %11s   processor seconds a round\n", "party",
                         "noise", "offline", "online", "links", "peak memory");
  for (const TwoTiersParty& p : tiers.party()) {
    out << absl::StrFormat("  %5d %9.3g %9.3g %9.3g %9.3g %11s\n", p.party(), p.noise_cpu_s(),
                           p.offline_cpu_s(), p.online_cpu_s(), p.links_cpu_s(),
                           BytesOf(p.peak_memory_bytes()));
  }
  out << absl::StrFormat(
      "  wall time if both halves keep both parties busy: offline stage %.3g s, online stage %.3g "
      "s; %s between the parties\n",
      tiers.offline_seconds(), tiers.online_seconds(), BytesOf(tiers.link_bytes()));
}

// "from 600 queries a round up to 2,000,000", "never".
std::string RangeText(double from, double until) {
  if (from == 0) return "never";
  const std::string begin = from > 1 ? absl::StrCat("from ", Whole(from), " queries a round on")
                                     : "from the first query on";
  return until == 0 ? begin : absl::StrCat(begin, ", up to ", Whole(until));
}

void PrintProposal(const Plan& plan, std::ostream& out) {
  if (!plan.has_proposal()) return;
  const Proposal& proposal = plan.proposal();
  out << absl::StrFormat(
      "\nall ways (* is proposed): a query's costs, with what a client fetches before its first "
      "lookup shared out over %g lookups in one version of the table\n",
      plan.lookups_per_hint());
  out << absl::StrFormat("  %-10s %9s %12s %10s %10s %12s %10s  %s\n", "way", "row bytes",
                         "first fetch", "up", "down", "processor us", "price/1M", "it reveals");
  for (const Candidate& c : proposal.candidate()) {
    out << (c.proposed() ? "* " : "  ");
    if (c.price_per_million_queries() > 0 || c.refused().empty()) {
      const std::string reveals =
          c.epsilon() > 0 ? absl::StrFormat("(%g, %g) a round", c.epsilon(), c.delta()) : "nothing";
      out << absl::StrFormat("%-10s %9s %12s %10s %10s %12.4g %10.4g  %s\n", c.way(),
                             c.row_bytes() == 0 ? "-" : Whole(c.row_bytes()),
                             BytesOf(c.first_bytes()), BytesOf(c.up_bytes()),
                             BytesOf(c.down_bytes()), 1e6 * c.server_seconds_per_query(),
                             c.price_per_million_queries(), reveals);
    } else {
      out << absl::StrFormat("%-10s ", c.way());
    }
    if (!c.refused().empty()) out << "             not here: " << c.refused() << "\n";
  }
  out << "  " << proposal.why() << "\n";
  if (!plan.two_tiers().has_table()) return;
  for (const Candidate& c : proposal.candidate()) {
    if (c.way() == "two tiers" || c.server_seconds_per_query() == 0) continue;
    out << absl::StrFormat(
        "  two tiers take less processor time than %s %s;\n    cost less %s\n", c.way(),
        RangeText(c.two_tiers_beat_cpu_from_queries(), c.two_tiers_beat_cpu_until_queries()),
        RangeText(c.two_tiers_beat_price_from_queries(), c.two_tiers_beat_price_until_queries()));
  }
}

const Method& MethodOf(const Term& term, absl::string_view name) {
  for (const Method& way : term.way()) {
    if (way.way() == name) return way;
  }
  return Method::default_instance();
}

// The cheaper download for a device that wants its list at every epoch.
const Method& CheaperDownload(const Term& term) {
  const Method &differences = MethodOf(term, "differences"), &table = MethodOf(term, "table");
  return table.price() < differences.price() ? table : differences;
}

std::string NameOf(const Method& way) {
  const absl::string_view name = way.way();
  if (name == "term") return "a term";
  if (name == "round") return "a round for each epoch";
  if (name == "differences") return "download: what changed";
  if (name == "table") return "download: the table";
  return std::string(name);
}

std::string TermAdvice(const Plan& plan) {
  const Term& term = plan.term();
  const Method &download = CheaperDownload(term), &asked = MethodOf(term, "term");
  const char* what = download.way() == "table" ? "the table" : "what changed";
  if (download.price() <= asked.price()) {
    return absl::StrFormat(
        "Downloading %s at every epoch is the better idea at these prices: a million devices pay "
        "%.3g an epoch, where a term costs %.3g (%s and %s for a device), and a download hides "
        "everything.%s",
        what, 1e6 * download.price(), 1e6 * asked.price(), BytesOf(download.client_bytes()),
        BytesOf(asked.client_bytes()),
        term.beats_differences_from_queries() > 0
            ? absl::StrFormat(" From %s queries a round on a term is cheaper than what changed.",
                              Whole(term.beats_differences_from_queries()))
            : "");
  }
  if (download.client_bytes() <= asked.client_bytes()) {
    return absl::StrFormat(
        "Downloading %s at every epoch moves fewer bytes to a device, %s, than a term, %s, and "
        "hides everything; at these prices it costs more.",
        what, BytesOf(download.client_bytes()), BytesOf(asked.client_bytes()));
  }
  return "";
}

// What 30 days of a device's list reveal.
std::string RevealedBy(const Method& way) {
  if (way.month_submissions() > 0) {
    return way.month_epsilon() > 0
               ? absl::StrFormat("epsilon %.3g, delta %.3g (%s time%s)", way.month_epsilon(),
                                 way.month_delta(), Whole(way.month_submissions()),
                                 way.month_submissions() == 1 ? "" : "s")
               : absl::StrFormat("no epsilon holds (%s times)", Whole(way.month_submissions()));
  }
  return way.way() == "differences" || way.way() == "table" ? "nothing"
                                                            : "nothing while the scheme holds";
}

void PrintWays(const Plan& plan, std::ostream& out) {
  out << absl::StrFormat(
      "\nwhat the list costs a device at each epoch, on average over a term, with the lists of "
      "changed rows (%s)\n",
      BytesOf(plan.table().list_bytes()));
  out << absl::StrFormat("  %-24s %9s %12s %12s %13s %14s  %s\n", "way", "row bytes", "its traffic",
                         "once before", "processor ms", "price/million", "30 days reveal");
  for (const Method& way : plan.term().way()) {
    if (!way.refused().empty()) {
      out << absl::StrFormat("  %-24s refused: %s\n", NameOf(way), way.refused());
      continue;
    }
    out << absl::StrFormat("  %-24s %9s %12s %12s %13.3g %14.4g  %s\n", NameOf(way),
                           way.row_bytes() == 0 ? "-" : Whole(way.row_bytes()),
                           BytesOf(way.client_bytes()),
                           way.first_bytes() == 0 ? "-" : BytesOf(way.first_bytes()),
                           1e3 * way.server_seconds(), 1e6 * way.price(), RevealedBy(way));
  }
}

void PrintTerm(const Plan& plan, std::ostream& out) {
  if (!plan.has_term()) return;
  const Term& term = plan.term();
  out << absl::StrFormat(
      "\na term: a list of %d key%s, asked once and answered at %s epochs, %.3g days; %g %% of the "
      "records change at each\n",
      plan.noise().phi(), plan.noise().phi() == 1 ? "" : "s", Whole(term.epochs()), term.days(),
      term.changed_percent());
  out << absl::StrFormat(
      "  room of %d %%: %s rows in place of %s; at the last epoch %s keys wait for the next term, "
      "as their rows are full\n",
      plan.table().room_percent(), Whole(plan.table().rows()), Whole(term.rows_without_room()),
      Whole(std::ceil(term.displaced_keys())));
  out << "  noise and onions once a term; a refresh is answers alone, in processor seconds\n";
  out << absl::StrFormat("  %5s %12s %9s %9s %9s %11s %12s %13s\n", "party", "positions", "refresh",
                         "fetches", "links", "refresh s", "at rest", "and answers");
  for (const TermParty& p : term.party()) {
    out << absl::StrFormat("  %5d %12s %9.3g %9.3g %9.3g %11.3g %12s %13s\n", p.party(),
                           Whole(plan.party(static_cast<int>(p.party()) - 1).positions_in()),
                           p.refresh_cpu_s(), p.fetch_cpu_s(), p.links_cpu_s(), p.refresh_seconds(),
                           BytesOf(p.at_rest_bytes()), BytesOf(p.answers_bytes()));
  }
  const double round = plan.per_round().core_hours(), refresh = term.per_refresh().core_hours();
  out << absl::StrFormat(
      "  %.1f bytes at rest for a position; a refresh takes %.3g s over the chain, and 1/%.0f of a "
      "round's processor time\n",
      term.at_rest_bytes_per_position(), term.refresh_seconds(), round / refresh);
  out << absl::StrFormat(
      "  a record that is new or changed is %s of a difference, one that goes %s; signed once for "
      "all, with the manifest;\n  %s a day of differences at %g epochs a day, and %s the table\n",
      BytesOf(term.changed_record_bytes()), BytesOf(term.gone_record_bytes()),
      BytesOf(term.difference_bytes() * plan.rounds_per_day()), plan.rounds_per_day(),
      BytesOf(term.table_bytes()));
  PrintWays(plan, out);
  if (term.beats_differences_from_queries() > 0) {
    out << absl::StrFormat(
        "  from %s queries a round (%s devices) a term is cheaper than what changed\n",
        Whole(term.beats_differences_from_queries()),
        Whole(term.beats_differences_from_queries() / plan.noise().phi()));
  } else {
    out << "  at these prices a term is never cheaper than what changed\n";
  }
  const std::string advice = TermAdvice(plan);
  out << "  "
      << (advice.empty()
              ? "Of the downloads none is cheaper than the term, or moves fewer bytes to "
                "a device."
              : advice)
      << "\n";
}

void PrintTable(const Plan& plan, std::ostream& out) {
  const Noise& noise = plan.noise();
  const Layout& table = plan.table();
  out << "unit costs: " << plan.costs().machine() << "\n";
  out << absl::StrFormat(
      "\ntable      %s records in %s rows of %d bytes (%s, %.4g records a row), %s\n",
      Whole(table.records()), Whole(table.rows()), table.row_bytes(), table.layout(),
      table.records_per_row(), BytesOf(table.table_bytes()));
  out << absl::StrFormat("privacy    epsilon %g, delta %g for %d changed quer%s a round\n",
                         noise.epsilon(), noise.delta(), noise.phi(),
                         noise.phi() == 1 ? "y" : "ies");
  out << absl::StrFormat("noise      %s, mode %d", noise.mechanism(), noise.mode());
  if (noise.left_scale() > 0) {
    out << absl::StrFormat(", scales %.4g and %.4g", noise.left_scale(), noise.right_scale());
  }
  out << absl::StrFormat("; delta that holds: %.3g\n", noise.true_delta());
  out << absl::StrFormat("           %.2f a row and party; %s a party, %s a round of %s queries\n",
                         noise.mean_per_row(), Whole(plan.noise_queries_per_party()),
                         Whole(plan.noise_queries_per_round()), Whole(plan.queries()));
}

void PrintStages(const Plan& plan, std::ostream& out) {
  out << "\nprocessor seconds a round, stage by stage as `shoal status` reports them\n";
  out << absl::StrFormat("  %5s %12s %12s %9s %9s %9s %9s %9s %11s %11s %11s\n", "party",
                         "positions", "own noise", "noise", "offline", "online", "answers", "links",
                         "peak memory", "offline s", "online s");
  for (const Party& p : plan.party()) {
    out << absl::StrFormat("  %5d %12s %12s %9.3g %9.3g %9.3g %9.3g %9.3g %11s %11.3g %11.3g\n",
                           p.party(), Whole(p.positions_in()), Whole(p.noise_queries()),
                           p.noise_cpu_s(), p.offline_cpu_s(), p.online_cpu_s(), p.answers_cpu_s(),
                           p.links_cpu_s(), BytesOf(p.peak_memory_bytes()), p.offline_seconds(),
                           p.online_seconds());
  }
  const char* where = plan.one_machine() ? "that all parties share" : "of each machine";
  out << absl::StrFormat(
      "  links: TLS and kernel, which no report counts. offline s, online s (the way out): "
      "computing alone, on\n  %d core%s %s.\n",
      plan.cores(), plan.cores() == 1 ? "" : "s", where);
  for (const Party& p : plan.party()) {
    if (p.masks_ready()) continue;
    out << absl::StrFormat(
        "  party %d has no room for masks made ahead of time: they are made online "
        "(--spool-memory-mib)\n",
        p.party());
  }
  out << absl::StrFormat(
      "\nwall time over the whole chain: offline stage %.3g s (%.3g s while the next round's noise "
      "is made), online\nstage %.3g s\n",
      plan.chain_times().offline_seconds(), plan.chain_times().offline_beside_noise_seconds(),
      plan.chain_times().online_seconds());
}

void PrintTraffic(const Plan& plan, std::ostream& out) {
  out << "\ntraffic a round\n";
  out << absl::StrFormat("  %-22s %12s %12s %12s\n", "hop", "onions", "queries", "answers");
  for (const Hop& hop : plan.hop()) {
    const std::string name = hop.from() == 0
                                 ? "clients - party 1"
                                 : absl::StrCat("party ", hop.from(), " - party ", hop.from() + 1);
    out << absl::StrFormat("  %-22s %12s %12s %12s\n", name, BytesOf(hop.onion_bytes()),
                           BytesOf(hop.query_bytes()), BytesOf(hop.answer_bytes()));
  }
  out << absl::StrFormat("  %-22s %12s %12s %12s\n", "a client, a query",
                         BytesOf(plan.client().onion_bytes()), BytesOf(plan.client().query_bytes()),
                         BytesOf(plan.client().answer_bytes()));
}

void PrintCost(const Plan& plan, std::ostream& out) {
  out << absl::StrFormat("\ncost (%g a core hour, %g a GB on every hop)\n", plan.price_core_hour(),
                         plan.price_gb());
  const auto cost = [&](const char* name, const Cost& c) {
    out << absl::StrFormat("  %-22s %10.4g core hours %10s %12.4g\n", name, c.core_hours(),
                           BytesOf(c.gigabytes() * 1e9), c.price());
  };
  cost("a round", plan.per_round());
  cost(absl::StrFormat("a day of %g rounds", plan.rounds_per_day()).c_str(), plan.per_day());
  out << absl::StrFormat("  %-22s %44.4g\n", "a million queries", plan.price_per_million_queries());
  out << absl::StrFormat("  the busiest party computes for %.3g %% of the day%s\n",
                         100 * plan.busiest_party_load(),
                         plan.busiest_party_load() > 1 ? ": TOO MUCH for its cores" : "");
}

void PrintDownload(const Plan& plan, std::ostream& out) {
  const Download& download = plan.download();
  out << absl::StrFormat(
      "\nwithout any engine every client downloads all records, %s once a version\n",
      BytesOf(download.client_bytes()));
  out << absl::StrFormat(
      "  a client that looks up fewer than %s times in one version moves fewer bytes by the "
      "chain\n",
      Whole(download.break_even_lookups()));
  if (download.break_even_queries() > 0) {
    out << absl::StrFormat(
        "  from %s queries a round (q/n = %.3g) a query by the chain is cheaper than a download\n",
        Whole(download.break_even_queries()), download.break_even_queries_per_record());
  } else {
    out << "  at these prices a query by the chain is never cheaper than a download\n";
  }
  const std::string advice = plan.has_term() ? "" : DownloadAdvice(plan);
  if (advice.empty()) {
    out << "  A download hides the query perfectly, whatever epsilon; it is worth its bytes while "
           "the table is\n  small or asked often between versions.\n";
  } else {
    out << "  " << advice << "\n";
  }
}

}  // namespace

std::string DownloadAdvice(const Plan& plan) {
  if (plan.has_term()) return TermAdvice(plan);
  const Download& download = plan.download();
  const double phi = plan.noise().phi();
  if (phi > download.break_even_lookups()) {
    return absl::StrFormat(
        "Downloading the table is the better idea: a client that asks %s queries in a round moves "
        "more bytes than the whole table has, %s, and a download hides everything.",
        Whole(phi), BytesOf(download.client_bytes()));
  }
  if (download.break_even_queries() == 0 || plan.queries() < download.break_even_queries()) {
    return absl::StrFormat(
        "Downloading the table is the better idea at these prices: a download of %s costs a client "
        "less than a query in a round of %s%s, and hides everything.",
        BytesOf(download.client_bytes()), Whole(plan.queries()),
        download.break_even_queries() == 0
            ? ""
            : absl::StrFormat(" (from %s queries a round on it costs more)",
                              Whole(download.break_even_queries())));
  }
  return "";
}

void PrintPlan(const Plan& plan, std::ostream& out) {
  PrintTable(plan, out);
  PrintStages(plan, out);
  PrintMachines(plan, out);
  PrintTraffic(plan, out);
  PrintCost(plan, out);
  PrintTerm(plan, out);
  PrintDownload(plan, out);
  PrintEngines(plan, out);
  PrintTwoTiers(plan, out);
  PrintProposal(plan, out);

  out << "\nif the row size moves (* is the plan)"
      << (plan.has_term() ? "; cpu, traffic and price of an epoch, on average over the term" : "")
      << "\n";
  PrintAlternatives(plan.by_row_bytes(), out);
  if (plan.by_epsilon_size() > 0) {
    out << "\nif epsilon moves\n";
    PrintAlternatives(plan.by_epsilon(), out);
  }
}

}  // namespace shoal::plan
