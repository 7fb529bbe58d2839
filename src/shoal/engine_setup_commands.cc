// `shoal table sign-engine` and `aggregate-engine`: what all parties sign of an engine.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/cli/progress.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/registry/registry.h"
#include "src/pir/setup/maker.h"
#include "src/pir/setup/product_file.h"
#include "src/pir/setup/signed_setup.h"
#include "src/roster/party_keys.h"
#include "src/roster/signing_record.h"
#include "src/shoal/common.h"
#include "src/shoal/table_commands.h"
#include "src/storage/file.h"
#include "src/table/manifest.h"
#include "src/table/table.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

absl::StatusOr<const pir::Engine*> EngineToSign(const cli::Values& values) {
  SHOAL_ASSIGN_OR_RETURN(const pir::Engine* engine, EngineOf(values));
  if (engine != nullptr) return engine;
  return cli::UsageError("--engine: the chain has no setup to sign; name another engine");
}

// The epoch before in `directory`, with what all parties signed of it. Its rows and signatures are
// verified, as the next hint is made from the difference between them and the table's.
absl::StatusOr<pir::SignedEpoch> ReadBefore(const std::string& directory, const pir::Engine& engine,
                                            const table::Table& table, const roster::Roster& roster,
                                            RandomSource& random, ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(table::PreviousEpoch before, table::PreviousEpoch::Open(directory));
  const absl::StatusOr<table::Manifest> manifest =
      table::VerifyPrevious(before, roster, &table, random, pool);
  if (!manifest.ok()) {
    return Annotate(manifest.status(), absl::StrCat("--previous: ", directory));
  }
  if (manifest->content().table_id() != table.manifest().content().table_id() ||
      manifest->epoch() >= table.manifest().epoch()) {
    return absl::InvalidArgumentError(absl::StrCat("--previous: epoch ", manifest->epoch(), " of ",
                                                   manifest->name(),
                                                   " is no earlier epoch of the same table"));
  }
  SHOAL_ASSIGN_OR_RETURN(wire::SignedPirSetup setup, pir::ReadSetup(directory, engine));
  SHOAL_RETURN_IF_ERROR(Annotate(pir::CheckSetup(setup, *manifest, engine, roster), "--previous"));
  return pir::SignedEpoch{.table = std::move(before), .setup = std::move(setup)};
}

// A party signs one setup for an epoch, for ever, and parties that signed two cannot mend it before
// the next epoch. So what others have signed is compared first. FAILED_PRECONDITION names a party
// whose share in the table's directory is of another setup than this one.
absl::Status CheckOthers(const std::string& directory, const wire::PirSetupShare& share,
                         const roster::Roster& roster) {
  const wire::PirSetup& setup = share.setup().setup();
  const auto with = [](const wire::PirSetupShare& of) {
    return of.setup().delta_digest().empty() ? "without" : "with";
  };
  for (const roster::Party& other : roster.parties()) {
    wire::PirSetupShare theirs;
    if (other.number == share.party() ||
        !wire::ReadTextFile(pir::SetupSharePath(directory, setup.engine(), other.number), theirs)
             .ok()) {
      continue;
    }
    const Digest message = pir::SetupMessage(theirs.setup());
    if (theirs.setup().setup().manifest_digest() != setup.manifest_digest() ||
        message == pir::SetupMessage(share.setup()) ||
        !roster.VerifyByParty(other.number, message, AsBytes(theirs.setup().signature())).ok()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "not signed: party ", other.number, " (", other.name, ") signed another setup, ",
        with(theirs), " a delta from the epoch before, and this one is ", with(share),
        ": all parties name the same --previous, or none"));
  }
  return absl::OkStatus();
}

absl::Status SignEngine(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const pir::Engine* engine, EngineToSign(values));
  const std::string name(engine->name());
  const std::string directory = values["table"].as<std::string>();
  const std::string keys_directory = values["keys"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys keys, roster::PartyKeys::Load(keys_directory));
  const std::optional<uint32_t> party = roster.NumberOf(keys.bls().public_key());
  if (!party.has_value()) {
    return absl::NotFoundError(
        absl::StrCat(keys_directory, ": no party of the roster has this key"));
  }
  SystemRandom random;
  ThreadPool pool;
  SHOAL_ASSIGN_OR_RETURN(const table::Table table,
                         table::Table::Open(directory, roster, NowSeconds(), random, pool));
  std::optional<pir::SignedEpoch> before;
  if (values.count("previous") > 0) {
    SHOAL_ASSIGN_OR_RETURN(before, ReadBefore(values["previous"].as<std::string>(), *engine, table,
                                              roster, random, pool));
  }
  const std::string products = cli::TextOr(values, "products", "");
  const Stopwatch stopwatch;
  absl::StatusOr<pir::Proposal> proposal;
  {
    cli::ProgressBar bar(io.bars(), io.err_is_terminal, absl::StrCat(name, ": making the hint"));
    proposal = pir::ProposeSetup(
        *engine, table.AsPrevious(), before.has_value() ? &*before : nullptr,
        {.max_hint_bytes = cli::MebibytesOr(values, "max-hint-mib", 1024),
         .pool = &pool,
         .progress = [&](uint64_t done, uint64_t total) { bar.Update(done, total); }},
        products);
  }
  SHOAL_RETURN_IF_ERROR(proposal.status());
  if (!products.empty() && !absl::IsNotFound(proposal->product) && !proposal->product.ok()) {
    io.err << "warning: what " << products << " has of " << name
           << " was not used: " << proposal->product.message() << "\n";
  }
  wire::PirSetupShare share;
  share.set_party(*party);
  *share.mutable_setup() = proposal->setup;
  const wire::PirSetup& setup = proposal->setup.setup();
  const Digest message = pir::SetupMessage(proposal->setup);
  io.err << name << ": a hint of " << setup.hint_bytes() << " bytes, made in "
         << absl::StrFormat("%.2f s", stopwatch.Seconds())
         << (before.has_value() && proposal->setup.delta_digest().empty()
                 ? ", anew: clients of the epoch before fetch it whole"
                 : "")
         << "\n";
  SHOAL_RETURN_IF_ERROR(CheckOthers(directory, share, roster));
  SHOAL_RETURN_IF_ERROR(roster::RecordSigning(
      keys_directory, absl::StrCat("engine ", name, " ", Hex(AsBytes(setup.table_id()))),
      setup.epoch(), message));
  share.mutable_setup()->set_signature(ToString(keys.bls().Sign(message).bytes()));
  const std::string path = cli::TextOr(values, "out", pir::SetupSharePath(directory, name, *party));
  if (values.count("out") == 0) {
    SHOAL_RETURN_IF_ERROR(MakeDirectory(directory + "/shares", FileMode::kPublic));
  }
  SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(path, share));
  io.out << path << "\n";
  if (!products.empty() && !proposal->server->product().empty()) {
    if (absl::Status kept = pir::WriteProduct(products, *proposal->server); !kept.ok()) {
      io.err << "warning: the next epoch makes the hint anew: " << kept.message() << "\n";
    }
  }
  return absl::OkStatus();
}

absl::Status AggregateEngine(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const pir::Engine* engine, EngineToSign(values));
  const std::string directory = values["table"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedManifest signed_manifest,
                         table::ReadSignedManifest(directory));
  SHOAL_ASSIGN_OR_RETURN(const table::Manifest manifest,
                         table::Manifest::Verify(signed_manifest, roster, NowSeconds()));
  std::vector<std::string> paths = cli::TextsOf(values, "share");
  if (paths.empty()) {
    for (const roster::Party& party : roster.parties()) {
      paths.push_back(pir::SetupSharePath(directory, engine->name(), party.number));
    }
  }
  std::vector<wire::PirSetupShare> shares;
  for (const std::string& path : paths) {
    wire::PirSetupShare share;
    const absl::Status read = wire::ReadTextFile(path, share);
    // Of the usual files, the one that is missing is named by its party.
    if (absl::IsNotFound(read) && values.count("share") == 0) continue;
    SHOAL_RETURN_IF_ERROR(read);
    shares.push_back(share);
  }
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedPirSetup setup,
                         pir::AggregateSetup(shares, manifest, *engine, roster));
  SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(pir::SetupPath(directory, engine->name()), setup));
  io.out << "signed\t" << engine->name() << "\t" << manifest.name() << "\tepoch "
         << manifest.epoch() << "\n";
  return absl::OkStatus();
}

void AddTableOptions(cli::Options& options) {
  options.add_options()("table", cli::Directory()->required(), "the table's directory");
  AddRosterOptions(options);
  options.add_options()("engine", cli::Text()->required(), "the engine that is to be served");
}

}  // namespace

absl::Status VerifySetups(const std::string& directory, const table::Table& table,
                          const roster::Roster& roster, cli::Io& io) {
  for (const pir::Engine* engine : pir::Engines()) {
    const absl::StatusOr<wire::SignedPirSetup> setup = pir::ReadSetup(directory, *engine);
    if (absl::IsNotFound(setup.status())) continue;
    SHOAL_RETURN_IF_ERROR(setup.status());
    SHOAL_RETURN_IF_ERROR(pir::CheckSetup(*setup, table.manifest(), *engine, roster));
    io.out << "verified\t" << engine->name() << "\ta hint of " << setup->setup().hint_bytes()
           << " bytes\n";
  }
  return absl::OkStatus();
}

cli::Command TableSignEngine() {
  return {
      .name = "table sign-engine",
      .summary = "sign, as one party, what an engine's server gives to clients",
      .help =
          R"(Makes the setup and the hint that a server of this engine has for a table which all
parties have signed, as `shoald --engine` does, and signs their digests. Clients accept
no other, so that no server can give a client a hint of its own. Takes as long as the
server's own start: minutes for gigabytes. With --previous, the epoch before whose setup
all parties signed, the hint is brought forward, and clients that have it fetch only
what changed. All parties must name the same one, or none: a party signs one setup of an
engine for an epoch, for ever, and refuses if another party's share in TABLE/shares is
of another one. --products keeps what took long for the next epoch. Writes the party's
share to TABLE/shares/party-N.ENGINE.textproto, or to --out, and prints the path.
)",
      .examples =
          R"(  shoal table sign-engine table --engine simplepir --keys parties/alice \
      --roster roster.signed.textproto --pinned pinned.textproto
  shoal table sign-engine table-2 --previous table --products parties/alice.products \
      --engine simplepir --keys parties/alice --roster roster.signed.textproto \
      --pinned pinned.textproto
)",
      .options =
          [](cli::Options& options) {
            AddTableOptions(options);
            options.add_options()("keys", cli::Directory()->required(), "the party's keys")(
                "previous", cli::Directory(), "the epoch before, with its signed setup")(
                "products", cli::Directory(),
                "where this party keeps what took long to make, for itself alone")(
                "max-hint-mib", cli::Number(), "refuse a larger hint (default 1024)")(
                "out", cli::File(), "write the share here");
          },
      .positional = "table",
      .run = SignEngine,
  };
}

cli::Command TableAggregateEngine() {
  return {
      .name = "table aggregate-engine",
      .summary = "add up all parties' signatures on an engine's setup",
      .help =
          R"(Verifies every party's share (by default those in TABLE/shares), adds the signatures
up, and writes TABLE/ENGINE.setup.textproto, which `shoald --engine` serves with the
table. Names a party that signed another setup than the first one.
)",
      .examples =
          R"(  shoal table aggregate-engine table --engine simplepir \
      --roster roster.signed.textproto --pinned pinned.textproto
)",
      .options =
          [](cli::Options& options) {
            AddTableOptions(options);
            options.add_options()("share", cli::Files(),
                                  "one party's share; repeat for every party");
          },
      .positional = "table",
      .run = AggregateEngine,
  };
}

}  // namespace shoal::commands
