#include "src/client/client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/size_text.h"
#include "src/pir/costs.h"
#include "src/pir/registry/registry.h"
#include "src/storage/file.h"

namespace shoal::client {
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

absl::Status CheckParties(const pir::Engine& engine, std::span<const uint32_t> parties) {
  const size_t roles = engine.roles().size();
  if (parties.empty()) return absl::OkStatus();
  if (parties.size() != roles) {
    return absl::InvalidArgumentError(
        absl::StrCat(engine.name(), " takes ", roles, ", not ", parties.size()));
  }
  for (const uint32_t party : parties) {
    if (std::ranges::count(parties, party) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("one party must not be both servers of ", engine.name()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Open(Config config, MachineFactory connect,
                                                     Reports reports, Sleep sleep) {
  std::unique_ptr<Client> client(
      new Client(std::move(config), std::move(connect), std::move(reports)));
  Client& c = *client;
  c.environment_ = {.clock = &c.clock_,
                    .random = &c.random_,
                    .pool = &c.pool_,
                    .sleep = std::move(sleep),
                    .progress = [&c](absl::string_view what) { c.Tell(what); },
                    .count = c.reports_.count,
                    .waiting = c.reports_.wait,
                    .connect = [&c] { return c.connect_(c.config_.frontend); },
                    .connect_to = c.connect_};
  SHOAL_ASSIGN_OR_RETURN(c.store_,
                         FileStateStore::Open(c.config_.state_path, c.anchors_, c.random_));
  if (c.store_->discarded_rounds() > 0) {
    c.Warn(absl::StrCat(c.config_.state_path, " ",
                        c.store_->doubt().empty() ? "has rows beside it that are old or damaged"
                                                  : c.store_->doubt(),
                        "; gave up the slots of ", c.store_->discarded_rounds(),
                        " rounds, which could have been used already"));
  } else if (!c.store_->doubt().empty()) {
    c.Tell(absl::StrCat(c.config_.state_path, " ", c.store_->doubt(),
                        "; it held no slots, so nothing is given up"));
  }
  if (c.store_->rounds_of_02() > 0) {
    c.Warn(absl::StrCat(c.config_.state_path,
                        " was written by Shoal 0.2, whose rounds are over, and so are the ",
                        c.store_->rounds_of_02(),
                        " that it held. They stay charged, and what was asked in them has to be "
                        "asked again"));
  }
  SHOAL_ASSIGN_OR_RETURN(c.transport_, c.connect_(c.config_.frontend));
  SHOAL_ASSIGN_OR_RETURN(
      c.deployment_,
      LiveDeployment::Open(c.transport_.get(), &c.config_.pins, c.store_.get(), c.environment_,
                           c.config_.placement_cache, c.config_.frontend));
  return client;
}

absl::Status Client::UseChain(BeyondPhi beyond_phi) {
  ChainOptions options = config_.options;
  options.beyond_phi = beyond_phi;
  return UseChainWith(std::move(options));
}

absl::Status Client::UseChainWith(ChainOptions options) {
  if (deployment_->current().party() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        config_.frontend, " is party ", deployment_->current().party(),
        ": the chain begins at party 1, and this party answers queries to engines alone "
        "(--engine)"));
  }
  options.under_way = reports_.under_way;
  options.announce = reports_.announce;
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<ChainClient> chain,
                         ChainClient::Create(&deployment_->current(), std::move(options),
                                             transport_.get(), store_.get(), environment_));
  chain_ = chain.get();
  source_ = std::move(chain);
  return absl::OkStatus();
}

absl::StatusOr<Transport*> Client::ConnectTo(uint32_t party) {
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
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, connect_(address));
  SHOAL_RETURN_IF_ERROR(transport->RequireParty(roster, party));
  others_.push_back(std::move(transport));
  return others_.back().get();
}

bool Client::OpenedEngine::ready() const {
  const pir::Session::Progress progress = client->progress();
  return progress.done == progress.total;
}

absl::StatusOr<Client::EnginePlace> Client::PlaceOf(const pir::Engine& engine,
                                                    std::span<const uint32_t> parties) {
  SHOAL_RETURN_IF_ERROR(CheckParties(engine, parties));
  const std::string name(engine.name());
  const size_t roles = engine.roles().size();
  std::vector<uint32_t> chosen(parties.begin(), parties.end());
  if (parties.empty()) {
    // With one server: the party that the configuration leads to.
    chosen = roles == 2 ? std::vector{config_.offline_party, config_.online_party}
                        : std::vector{deployment_->current().party()};
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
    absl::StatusOr<Transport*> server = ConnectTo(chosen[i]);
    if (!server.ok()) return server.status();
    const std::string& address = deployment_->current().roster().party(chosen[i]).client_address;
    place.names.push_back(
        absl::StrCat("party ", chosen[i], " at ", address.empty() ? config_.frontend : address));
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

void Client::WarnOfAnchors(const pir::Engine& engine) const {
  if (!anchors_.directory().empty()) return;
  Warn(absl::StrCat(engine.name(),
                    ": what is prepared here serves this command alone and is given up by the "
                    "next one, which cannot tell it from an old copy: ",
                    anchors_.problem(),
                    ". A place in memory helps: /dev/shm, or one that XDG_RUNTIME_DIR names"));
}

std::string Client::PreparationText(const EngineClient& client) {
  const pir::Sizes& sizes = client.costs().bytes;
  return sizes.prepare_bytes > 0
             ? absl::StrCat("the offline server makes the hints, ", SizeText(sizes.prepare_bytes))
             : absl::StrCat("the table is read once, ", SizeText(sizes.hint_bytes));
}

absl::StatusOr<std::unique_ptr<SessionFile>> Client::OpenSessionFile(const EnginePlace& place,
                                                                     const std::string& path,
                                                                     bool give_up) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<SessionFile> file,
                         SessionFile::Open(path, place.identity, anchors_, random_,
                                           give_up ? std::nullopt : place.swapped));
  if (!file->discarded().empty()) {
    Warn(absl::StrCat(path, " ", file->discarded(), "; what was prepared is made anew"));
  }
  return file;
}

absl::StatusOr<Client::OpenedEngine> Client::OpenEngine(const pir::Engine& engine,
                                                        const EnginePlace& place,
                                                        std::unique_ptr<SessionFile> file,
                                                        uint32_t pad_to) {
  OpenedEngine opened{.file = std::move(file), .client = nullptr};
  SHOAL_ASSIGN_OR_RETURN(opened.client, EngineClient::Create(&deployment_->current(), place.servers,
                                                             {.engine = &engine,
                                                              .hint_path = place.path,
                                                              .store = opened.file.get(),
                                                              .names = place.names,
                                                              .pad_to = pad_to},
                                                             environment_));
  if (engine.keeps_state()) SHOAL_RETURN_IF_ERROR(opened.client->Open());
  return opened;
}

void Client::Use(OpenedEngine engine) {
  session_file_ = std::move(engine.file);
  engine_ = engine.client.get();
  source_ = std::move(engine.client);
}

absl::Status Client::UseEngine(const pir::Engine& engine, std::span<const uint32_t> parties,
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
    absl::StatusOr<std::unique_ptr<SessionFile>> file = OpenSessionFile(place, path);
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
  WarnOfAnchors(engine);
  Use(*std::move(to_prepare));
  return absl::OkStatus();
}

absl::StatusOr<Client::Prepared> Client::PrepareEngine(const pir::Engine& engine,
                                                       std::span<const uint32_t> parties,
                                                       bool anew) {
  SHOAL_ASSIGN_OR_RETURN(const EnginePlace place, PlaceOf(engine, parties));
  // Nothing of it is needed any more, and queries go on while this takes its time.
  store_.reset();
  Prepared prepared{.now = false, .queries = 0};
  std::optional<OpenedEngine> to_prepare;
  absl::Status in_use;
  for (const std::string& path : place.sessions) {
    absl::StatusOr<std::unique_ptr<SessionFile>> file = OpenSessionFile(place, path, anew);
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
  if (reports_.preparing) reports_.preparing();
  WarnOfAnchors(engine);
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

absl::Status Client::LookUp(Keys& keys, Results& results) {
  const auto look_up = [&] {
    return client::LookUp(deployment_->current(), *source_, keys, results, environment_);
  };
  if (chain_ == nullptr) return look_up();
  const absl::Status status = deployment_->Follow(*chain_, look_up);
  if (reports_.under_way) reports_.under_way(std::nullopt);
  return status;
}

namespace {

// Compares results with what was known of their keys.
class NewsResults final : public Results {
 public:
  NewsResults(Watch* watch, std::function<uint64_t()> epoch, Client::NewsSink* sink)
      : watch_(*watch), epoch_(std::move(epoch)), sink_(*sink) {}
  absl::Status Add(BytesView key, const Lookup& result) override {
    failed_ += result.outcome == Lookup::Outcome::kFailed;
    const std::optional<News> news = watch_.Take(key, result, epoch_());
    return news ? sink_.Add(key, result, *news) : absl::OkStatus();
  }
  absl::Status Finish() override { return sink_.Finish(); }
  uint64_t failed() const { return failed_; }

 private:
  Watch& watch_;
  const std::function<uint64_t()> epoch_;
  Client::NewsSink& sink_;
  uint64_t failed_ = 0;
};

// Those of the keys whose rows a term has.
class KeysOfTerm final : public Keys {
 public:
  KeysOfTerm(const Watch* watch, const Deployment* deployment, Keys* keys)
      : watch_(*watch), deployment_(*deployment), keys_(*keys) {}
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    waiting_ = 0;
    return keys_.ForEach([&](BytesView key) -> absl::Status {
      SHOAL_ASSIGN_OR_RETURN(const bool enrols, watch_.Enrols(deployment_, key));
      if (enrols) return take(key);
      ++waiting_;
      return absl::OkStatus();
    });
  }
  uint64_t waiting() const { return waiting_; }

 private:
  const Watch& watch_;
  const Deployment& deployment_;
  Keys& keys_;
  uint64_t waiting_ = 0;
};

}  // namespace

absl::StatusOr<Client::Watched> Client::WatchOnce(Keys& keys, BeyondPhi beyond_phi, uint32_t wait_s,
                                                  NewsSink& sink) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Watch> watch,
                         Watch::Open(config_.state_path, environment_));
  NewsResults results(
      watch.get(), [this] { return deployment().manifest().epoch(); }, &sink);
  Watched watched;
  if (!watch->has_term()) {
    ChainOptions options = config_.options;
    options.beyond_phi = beyond_phi;
    options.timeout_s = wait_s;
    options.term = watch->Enrolment(config_.max_enrolments, [this]() -> const table::Manifest& {
      return deployment().manifest();
    });
    SHOAL_RETURN_IF_ERROR(UseChainWith(std::move(options)));
    SHOAL_RETURN_IF_ERROR(LookUp(keys, results));
    SHOAL_RETURN_IF_ERROR(watch->Save(nullptr));
    watched.enrolled = true;
  } else {
    // An interruption between the term's file and the end of its round leaves the round's seed.
    HeldRound* const held = state().FindRound(*watch->term_round());
    if (held != nullptr && !held->over) {
      state().End(*held);
      SHOAL_RETURN_IF_ERROR(store_->Save());
    }
    absl::StatusOr<std::optional<VerifiedRefresh>> refresh =
        watch->Latest(deployment(), transport_.get());
    if (absl::IsUnavailable(refresh.status())) return refresh.status();
    if (!refresh.ok() || !refresh->has_value()) {
      watched.no_news = refresh.status();
    } else {
      source_ = watch->MakeSource(**refresh, &deployment(), transport_.get());
      chain_ = nullptr;
      KeysOfTerm enrolled(watch.get(), &deployment(), &keys);
      const absl::Status found =
          client::LookUp(deployment(), *source_, enrolled, results, environment_);
      source_.reset();
      // The next refresh was there before all answers of this one had come.
      if (absl::IsFailedPrecondition(found) || absl::IsNotFound(found)) {
        watched.no_news = found;
      } else {
        SHOAL_RETURN_IF_ERROR(found);
        SHOAL_RETURN_IF_ERROR(watch->Save(&**refresh));
        watched.refreshed = true;
        watched.waiting = enrolled.waiting();
      }
    }
  }
  watched.failed = results.failed();
  watched.epoch = watched.enrolled || watched.refreshed ? deployment().manifest().epoch()
                                                        : watch->latest_epoch();
  watched.term_expires_s = watch->term_expires_s();
  return watched;
}

absl::StatusOr<Digest> Client::ObtainAhead(uint32_t slots) {
  Digest round_id = {};
  SHOAL_RETURN_IF_ERROR(deployment_->Follow(*chain_, [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(round_id, chain_->ObtainAhead(slots));
    return absl::OkStatus();
  }));
  return round_id;
}

absl::StatusOr<Client::Cost> Client::CostOf(Keys& keys) {
  Cost cost;
  SHOAL_ASSIGN_OR_RETURN(const Wanted wanted, CollectRows(deployment_->current().map(), keys));
  SHOAL_ASSIGN_OR_RETURN(cost.division, chain_->Divide(wanted));
  const roster::Roster& roster = deployment_->current().roster();
  const noise::Parameters& noise = roster.noise();
  cost.ledger = chain_->LedgerWith(cost.division.queries, cost.division);
  SHOAL_ASSIGN_OR_RETURN(
      cost.lookup, LossOf(noise, cost.division.queries, noise.delta, roster.most_in_bucket()));
  SHOAL_ASSIGN_OR_RETURN(cost.all, cost.ledger.LossAt(noise.delta));
  cost.stop = chain_->CheckLimit(cost.division.queries, cost.division);
  return cost;
}

}  // namespace shoal::client
