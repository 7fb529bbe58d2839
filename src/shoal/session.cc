#include "src/shoal/session.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/patience.h"
#include "src/pir/costs.h"
#include "src/pir/registry/registry.h"
#include "src/shoal/format.h"
#include "src/shoal/privacy_text.h"
#include "src/storage/file.h"

namespace shoal::commands {
namespace {

std::string SizeText(uint64_t bytes) { return BytesText(static_cast<double>(bytes)); }

// What to say to somebody who is about to fetch an engine's hint for so many queries, if these cost
// fewer bytes without one, by the sizes that `shoal plan` has. Else empty.
std::string AdviceWithoutHint(const pir::Engine& engine, const table::Manifest& manifest,
                              uint64_t queries) {
  pir::Content content;
  content.rows = manifest.rows();
  content.record_bytes = manifest.answer_bytes();
  const auto sizes_of = [&](const pir::Engine& of) -> absl::StatusOr<pir::Sizes> {
    SHOAL_ASSIGN_OR_RETURN(const wire::PirSetup shape, of.ShapeOf(content, {}));
    return of.SizesOfShape(shape);
  };
  const absl::StatusOr<const pir::Engine*> other = pir::FindEngine("hintless");
  if (!other.ok()) return "";
  const absl::StatusOr<pir::Sizes> with = sizes_of(engine), without = sizes_of(**other);
  if (!with.ok() || !without.ok() || with->hint_bytes == 0) return "";
  const uint64_t each = without->query_bytes + without->answer_bytes;
  const uint64_t each_with = with->query_bytes + with->answer_bytes;
  if (queries * each >= with->hint_bytes + queries * each_with) return "";
  std::string advice =
      absl::StrCat(engine.name(), ": there is no hint yet, and it has ", SizeText(with->hint_bytes),
                   "; ", (*other)->name(), " would take ", SizeText(queries * each),
                   " for this lookup and keep nothing, if the party runs it");
  if (each > each_with) {
    const uint64_t pays = with->hint_bytes / (each - each_with) + 1;
    absl::StrAppend(&advice, ". A hint pays from ", WithCommas(pays), " queries of one epoch on");
  }
  return advice;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const std::string& name,
                                                       const std::string& config_path,
                                                       const Connector& connect, bool quiet,
                                                       cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(client::Config config, client::ReadConfig(config_path));
  std::unique_ptr<Session> session(new Session(name, std::move(config), connect, quiet, io));
  Session& s = *session;
  s.environment_ = {.clock = &s.clock_,
                    .random = &s.random_,
                    .pool = &s.pool_,
                    .sleep = client::SleepFor,
                    .progress = [&s](absl::string_view what) { s.console_.Tell(what); },
                    .count = [&s](absl::string_view stage, uint64_t done,
                                  uint64_t total) { s.console_.Count(stage, done, total); },
                    .waiting =
                        [&s](absl::string_view what, uint64_t due_s) {
                          const uint64_t now_s = s.clock_.NowSeconds();
                          s.console_.Wait(what, due_s > now_s ? due_s - now_s : 0);
                        },
                    .connect = [&s] { return s.connect_(s.config_.frontend); },
                    .connect_to = [&s](const std::string& address) { return s.connect_(address); }};
  SHOAL_ASSIGN_OR_RETURN(
      s.store_, client::FileStateStore::Open(s.config_.state_path, s.witnesses_, s.random_));
  if (s.store_->discarded_rounds() > 0) {
    s.console_.Warn(absl::StrCat(s.config_.state_path, " ",
                                 s.store_->doubt().empty()
                                     ? "has rows beside it that are old or damaged"
                                     : s.store_->doubt(),
                                 "; gave up the slots of ", s.store_->discarded_rounds(),
                                 " rounds, which could have been used already"));
  } else if (!s.store_->doubt().empty()) {
    s.console_.Tell(absl::StrCat(s.config_.state_path, " ", s.store_->doubt(),
                                 "; it held no slots, so nothing is given up"));
  }
  SHOAL_ASSIGN_OR_RETURN(s.transport_, s.connect_(s.config_.frontend));
  SHOAL_ASSIGN_OR_RETURN(
      s.deployment_,
      client::LiveDeployment::Open(s.transport_.get(), &s.config_.pins, s.store_.get(),
                                   s.environment_, s.config_.placement_cache, s.config_.frontend));
  return session;
}

absl::Status Session::UseChain(client::BeyondPhi beyond_phi) {
  if (deployment_->current().party() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        config_.frontend, " is party ", deployment_->current().party(),
        ": the chain begins at party 1, and this party answers queries to engines alone "
        "(--engine)"));
  }
  client::ChainOptions options = config_.options;
  options.beyond_phi = beyond_phi;
  options.under_way = [this](const std::optional<client::UnderWay>& under_way) {
    PrepareInterruption(under_way);
  };
  options.announce = [this](const client::Division& division) { TellProtection(division); };
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<client::ChainClient> chain,
                         client::ChainClient::Create(&deployment_->current(), std::move(options),
                                                     transport_.get(), store_.get(), environment_));
  chain_ = chain.get();
  source_ = std::move(chain);
  return absl::OkStatus();
}

absl::StatusOr<client::Transport*> Session::ConnectTo(uint32_t party) {
  if (party == deployment_->current().party()) return transport_.get();
  const roster::Roster& roster = deployment_->current().roster();
  if (party == 0 || party > roster.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", party, ": the roster has the parties 1 to ", roster.size()));
  }
  const std::string& address = roster.party(party).client_address;
  if (address.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "party ", party, " serves no clients: the roster has no client_address of it"));
  }
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<client::Transport> transport, connect_(address));
  SHOAL_RETURN_IF_ERROR(transport->RequireParty(roster, party));
  others_.push_back(std::move(transport));
  return others_.back().get();
}

bool Session::OpenedEngine::ready() const {
  const pir::Session::Progress progress = client->progress();
  return progress.done == progress.total;
}

absl::StatusOr<Session::EnginePlace> Session::PlaceOf(const pir::Engine& engine,
                                                      const std::vector<std::string>& parties) {
  const std::string name(engine.name());
  const size_t roles = engine.roles().size();
  if (!parties.empty() && parties.size() != roles) {
    return cli::UsageError(
        absl::StrCat("--party: ", name, " takes ", roles, ", not ", parties.size()));
  }
  // With one server: the party that the configuration leads to.
  std::vector<uint32_t> chosen = {deployment_->current().party()};
  if (roles == 2) chosen = {config_.offline_party, config_.online_party};
  for (size_t i = 0; i < parties.size(); ++i) {
    if (!absl::SimpleAtoi(parties[i], &chosen[i])) {
      return cli::UsageError(absl::StrCat("--party: \"", parties[i], "\" is no number"));
    }
  }
  if (roles == 2 && parties.empty() && chosen[0] == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        name,
        " takes two servers that do not work together, and which parties they are is yours to "
        "say: offline_party and online_party in the configuration, or --party twice"));
  }
  EnginePlace place;
  std::vector<Bytes> keys;
  for (size_t i = 0; i < roles; ++i) {
    if (std::count(chosen.begin(), chosen.end(), chosen[i]) > 1) {
      return cli::UsageError(absl::StrCat("--party: one party must not be both servers of ", name));
    }
    place.names.push_back(absl::StrCat("party ", chosen[i]));
    absl::StatusOr<client::Transport*> server = ConnectTo(chosen[i]);
    if (!server.ok()) return server.status();
    place.servers.push_back(*server);
    keys.push_back(ToBytes(deployment_->current().roster().party(chosen[i]).key.bytes()));
  }
  if (roles == 2) {
    Tell(absl::StrCat(name, ": party ", chosen[0], " is the offline server, party ", chosen[1],
                      " the online server. Each of them learns nothing of which rows are asked "
                      "for; both together learn everything, whatever the other parties do"));
  }
  const auto identity = [](const auto& of) {
    Transcript transcript("shoal client session servers v2");
    for (const Bytes& key : of) transcript.Blob(key);
    return transcript.Finish();
  };
  // All parties signed the hint, so that it serves with every one of them. A session's state
  // belongs to its servers: to the keys by which they are parties, as certificates are renewed.
  place.identity = identity(keys);
  if (roles == 2) place.swapped = identity(std::vector{keys[1], keys[0]});
  place.path = absl::StrCat(config_.state_path, ".", name);
  // One file for both ways to share out the roles, so that a swap is noticed.
  std::ranges::sort(chosen);
  const std::string session =
      chosen == std::vector<uint32_t>{1}
          ? place.path + ".session"
          : absl::StrCat(place.path, ".party-", absl::StrJoin(chosen, "-"), ".session");
  place.sessions = {session, session + "-2"};
  return place;
}

void Session::WarnOfWitnesses(const pir::Engine& engine) {
  if (!witnesses_.directory().empty()) return;
  console_.Warn(
      absl::StrCat(engine.name(),
                   ": what is prepared here serves this command alone and is given up by the "
                   "next one, which cannot tell it from an old copy: ",
                   witnesses_.problem(),
                   ". A place in memory helps: /dev/shm, or one that XDG_RUNTIME_DIR names"));
}

std::string Session::PreparationText(const client::EngineClient& client) {
  const pir::Sizes& sizes = client.costs().bytes;
  return sizes.prepare_bytes > 0
             ? absl::StrCat("the offline server makes the hints, ", SizeText(sizes.prepare_bytes))
             : absl::StrCat("the table is read once, ", SizeText(sizes.hint_bytes));
}

absl::StatusOr<std::unique_ptr<client::SessionFile>> Session::OpenSessionFile(
    const EnginePlace& place, const std::string& path, bool give_up) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<client::SessionFile> file,
                         client::SessionFile::Open(path, place.identity, witnesses_, random_,
                                                   give_up ? std::nullopt : place.swapped));
  if (!file->discarded().empty()) {
    console_.Warn(absl::StrCat(path, " ", file->discarded(), "; what was prepared is made anew"));
  }
  return file;
}

absl::StatusOr<Session::OpenedEngine> Session::OpenEngine(const pir::Engine& engine,
                                                          const EnginePlace& place,
                                                          std::unique_ptr<client::SessionFile> file,
                                                          uint32_t pad_to) {
  OpenedEngine opened{.file = std::move(file), .client = nullptr};
  SHOAL_ASSIGN_OR_RETURN(opened.client,
                         client::EngineClient::Create(&deployment_->current(), place.servers,
                                                      {.engine = &engine,
                                                       .hint_path = place.path,
                                                       .store = opened.file.get(),
                                                       .names = place.names,
                                                       .pad_to = pad_to},
                                                      environment_));
  if (engine.keeps_state()) SHOAL_RETURN_IF_ERROR(opened.client->Open());
  return opened;
}

void Session::Use(OpenedEngine engine) {
  session_file_ = std::move(engine.file);
  engine_ = engine.client.get();
  source_ = std::move(engine.client);
}

absl::Status Session::UseEngine(const pir::Engine& engine, const std::vector<std::string>& parties,
                                uint32_t pad_to, uint64_t keys) {
  SHOAL_ASSIGN_OR_RETURN(const EnginePlace place, PlaceOf(engine, parties));
  const uint64_t pad = std::max<uint32_t>(1, pad_to);
  const uint64_t wanted = (keys + pad - 1) / pad * pad;
  if (!engine.keeps_state()) {
    SHOAL_ASSIGN_OR_RETURN(OpenedEngine opened, OpenEngine(engine, place, nullptr, pad_to));
    if (!FileExists(place.path + ".hint")) {
      const std::string advice =
          AdviceWithoutHint(engine, deployment_->current().manifest(), wanted);
      if (!advice.empty()) Tell(advice);
    }
    Use(std::move(opened));
    return absl::OkStatus();
  }
  std::optional<OpenedEngine> to_prepare;
  uint64_t left = 0, spent = 0;
  absl::Status in_use;
  for (const std::string& path : place.sessions) {
    // The second one is made by `shoal prepare`.
    if (path != place.sessions.front() && !FileExists(path)) continue;
    absl::StatusOr<std::unique_ptr<client::SessionFile>> file = OpenSessionFile(place, path);
    if (absl::IsFailedPrecondition(file.status())) {
      in_use = file.status();
      continue;
    }
    SHOAL_RETURN_IF_ERROR(file.status());
    SHOAL_ASSIGN_OR_RETURN(OpenedEngine opened,
                           OpenEngine(engine, place, *std::move(file), pad_to));
    if (!opened.ready()) {
      if (!to_prepare) to_prepare = std::move(opened);
      continue;
    }
    if (opened.left() >= wanted) {
      Use(std::move(opened));
      return absl::OkStatus();
    }
    left = std::max(left, opened.left());
    ++spent;
  }
  if (spent > 0) {
    const bool begun = to_prepare && to_prepare->client->progress().done > 0;
    const std::string command = absl::StrCat("`shoal prepare --engine ", engine.name(), "`");
    return absl::ResourceExhaustedError(absl::StrCat(
        engine.name(), ": this lookup takes ", WithCommas(wanted), " queries, and ",
        WithCommas(left), " are left of what was prepared; ",
        begun          ? absl::StrCat("the next session is prepared in part, and ", command,
                                      " goes on with it")
        : !in_use.ok() ? "another command prepares or uses the other session: wait until it is done"
                       : absl::StrCat(command, " prepares the next session"),
        ". Nothing was sent"));
  }
  if (!to_prepare) return in_use;
  Tell(absl::StrCat(engine.name(),
                    ": nothing is prepared yet: ", PreparationText(*to_prepare->client)));
  WarnOfWitnesses(engine);
  Use(*std::move(to_prepare));
  return absl::OkStatus();
}

absl::StatusOr<Session::Prepared> Session::PrepareEngine(const pir::Engine& engine,
                                                         const std::vector<std::string>& parties,
                                                         bool anew) {
  SHOAL_ASSIGN_OR_RETURN(const EnginePlace place, PlaceOf(engine, parties));
  // Nothing of it is needed any more, and queries go on while this takes its time.
  store_.reset();
  Prepared prepared{.now = false, .queries = 0};
  std::optional<OpenedEngine> to_prepare;
  absl::Status in_use;
  for (const std::string& path : place.sessions) {
    absl::StatusOr<std::unique_ptr<client::SessionFile>> file = OpenSessionFile(place, path, anew);
    // One that answers queries meanwhile is not to be prepared.
    if (absl::IsFailedPrecondition(file.status()) && !anew) {
      in_use = file.status();
      continue;
    }
    SHOAL_RETURN_IF_ERROR(file.status());
    if (anew) SHOAL_RETURN_IF_ERROR((*file)->Save({}));
    SHOAL_ASSIGN_OR_RETURN(OpenedEngine opened, OpenEngine(engine, place, *std::move(file), 1));
    // One session is enough then.
    if (opened.unlimited()) return Prepared{};
    if (opened.ready() && opened.left() > 0) {
      *prepared.queries += opened.left();
    } else if (!to_prepare) {
      to_prepare = std::move(opened);
    }
  }
  if (!to_prepare) {
    if (*prepared.queries == 0 && !in_use.ok()) return in_use;
    return prepared;
  }
  if (to_prepare->ready()) {
    // Spent: a new one begins.
    SHOAL_RETURN_IF_ERROR(to_prepare->file->Save({}));
    SHOAL_ASSIGN_OR_RETURN(to_prepare, OpenEngine(engine, place, std::move(to_prepare->file), 1));
  }
  const std::string again = absl::StrCat(console_.name(),
                                         ": interrupted; what has come is kept, and the same "
                                         "command goes on from there");
  interruption_.Say(again);
  WarnOfWitnesses(engine);
  const pir::Session::Progress progress = to_prepare->client->progress();
  Tell(absl::StrCat(engine.name(), ": ", PreparationText(*to_prepare->client),
                    progress.done > 0 ? absl::StrCat("; ", 100 * progress.done / progress.total,
                                                     " % of it came before")
                                      : ""));
  if (absl::Status status = to_prepare->client->Prepare(); absl::IsFailedPrecondition(status)) {
    return Annotate(status,
                    "what has come is kept; if the table has a new version, the same command goes "
                    "on with it");
  } else if (!status.ok()) {
    return status;
  }
  prepared.now = true;
  if (to_prepare->unlimited()) return Prepared{.now = true, .queries = std::nullopt};
  *prepared.queries += to_prepare->left();
  return prepared;
}

absl::Status Session::LookUp(client::Keys& keys, client::Results& results) {
  const auto look_up = [&] {
    return client::LookUp(deployment_->current(), *source_, keys, results, environment_);
  };
  const absl::Status status = chain_ != nullptr ? deployment_->Follow(*chain_, look_up) : look_up();
  if (chain_ != nullptr) PrepareInterruption(std::nullopt);
  return status;
}

absl::StatusOr<Digest> Session::ObtainAhead(uint32_t slots) {
  Digest round_id = {};
  SHOAL_RETURN_IF_ERROR(deployment_->Follow(*chain_, [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(round_id, chain_->ObtainAhead(slots));
    return absl::OkStatus();
  }));
  return round_id;
}

absl::Status Session::DryRun(client::Keys& keys, bool json, std::ostream& out) {
  SHOAL_ASSIGN_OR_RETURN(const client::Wanted wanted,
                         client::CollectRows(deployment_->current().map(), keys));
  SHOAL_ASSIGN_OR_RETURN(const client::Division division, chain_->Divide(wanted.rows.size()));
  const noise::Parameters& noise = deployment_->current().roster().noise();
  const client::Ledger after = chain_->LedgerWith(division.queries, division);
  SHOAL_ASSIGN_OR_RETURN(const client::TotalLoss lookup,
                         client::LossOf(noise, division.queries, noise.delta));
  SHOAL_ASSIGN_OR_RETURN(const client::TotalLoss all, after.LossAt(noise.delta));
  if (json) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    out << JsonObject()
               .Integer("queries", division.queries)
               .Integer("rounds", division.rounds())
               .Integer("queries_in_each", division.in_each)
               .Number("delta", noise.delta)
               .Number("epsilon", lookup.epsilon.value_or(kNone))
               .Number("ledger_epsilon", all.epsilon.value_or(kNone))
               .Take()
        << '\n';
  } else {
    out << "this lookup would send " << WithCommas(division.queries)
        << " queries, padding included, in " << WithCommas(division.rounds())
        << (division.rounds() == 1 ? " round\n" : " rounds\n") << ProtectionText(noise) << '\n'
        << LookupText(lookup, division.queries, division.rounds()) << "\nafter it, "
        << LedgerText(after, all) << '\n';
  }
  return chain_->CheckLimit(division.queries, division);
}

void Session::PrepareInterruption(const std::optional<client::UnderWay>& under_way) {
  const std::string begin = absl::StrCat(console_.name(), ": interrupted; ");
  if (!under_way) {
    interruption_.Say(
        absl::StrCat(begin, "no queries are under way. The same command begins anew"));
    return;
  }
  const std::string until = client::TimeText(under_way->until_s, clock_.NowSeconds());
  interruption_.Say(
      under_way->charged
          ? absl::StrCat(begin, "the queries of round ", under_way->round_counter,
                         " are charged. To go on, run the same command again soon, at the latest "
                         "at ",
                         until, ", when the round ends; after that it is charged once more")
          : absl::StrCat(begin, "slots are held in round ", under_way->round_counter,
                         ", and nothing is charged but its delta. To go on, run the same command "
                         "again soon, at the latest at ",
                         until,
                         ", when the round takes no more queries; after that it takes "
                         "another round"));
}

void Session::TellText(const absl::StatusOr<std::string>& text) {
  Tell(absl::StrCat("privacy: ", text.ok() ? *text : text.status().ToString()));
}

void Session::TellProtection(const client::Division& division) {
  if (console_.quiet()) return;
  const noise::Parameters& noise = deployment_->current().roster().noise();
  TellText(ProtectionText(noise));
  // Otherwise the round protects them together, as was just said.
  if (division.queries > noise.phi) {
    TellText(LookupText(noise, division.queries, division.rounds()));
  }
}

void Session::TellCosts() {
  if (engine_ != nullptr) {
    const client::HintFetch& fetch = engine_->hint_fetch();
    const absl::string_view name = engine_->engine().name();
    if (!fetch.unwritten.ok()) {
      console_.Warn(
          absl::StrCat(name, ": what was fetched cannot be kept: ", fetch.unwritten.message()));
    }
    if (const std::optional<uint64_t> left = engine_->budget()) {
      Tell(absl::StrCat(name, ": ", WithCommas(*left), " queries are left of what was prepared",
                        fetch.by_delta ? absl::StrCat(" (brought to this version of the table by ",
                                                      SizeText(fetch.received_bytes), ")")
                                       : "",
                        "; `shoal prepare` prepares the next ones"));
    } else if (engine_->engine().keeps_state()) {
      if (fetch.by_delta) {
        Tell(absl::StrCat(name, ": brought to this version of the table by ",
                          SizeText(fetch.received_bytes)));
      }
    } else {
      Tell(absl::StrCat(name, ": hint ", SizeText(engine_->costs().bytes.hint_bytes), " (",
                        SizeText(fetch.received_bytes), " fetched",
                        fetch.by_delta ? " as a delta" : "", ")"));
    }
  } else if (const client::Ledger& ledger = state().ledger; ledger.submissions() > 0) {
    // Not computed for nobody: it takes some seconds.
    if (!console_.quiet())
      TellText(LedgerText(ledger, deployment_->current().roster().noise().delta));
  }
  std::vector<std::string> costs;
  pir::ForEachCost(source_->costs(), [&](const char* cost, double value) {
    const int decimals = absl::StrContains(cost, "bytes") ? 0 : 6;
    costs.push_back(absl::StrFormat("%s %.*f", cost, decimals, value));
  });
  Tell(absl::StrCat("costs: ", absl::StrJoin(costs, ", ")));
  const client::Traffic traffic = source_->traffic();
  Tell(absl::StrCat("traffic: ", SizeText(traffic.sent), " sent, ", SizeText(traffic.received),
                    " received"));
}

}  // namespace shoal::commands
