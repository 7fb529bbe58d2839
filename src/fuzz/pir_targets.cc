// Engines: setups, hints, deltas, queries at the server and answers at the client.
#include <memory>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/target.h"
#include "src/pir/engine.h"
#include "src/pir/lwe/family.h"
#include "src/pir/setup/signed_setup.h"
#include "src/pir/testing/records.h"
#include "src/roster/testing/parties.h"
#include "src/wire/pir.pb.h"

namespace shoal::fuzz {
namespace {

using pir::Session;

constexpr uint64_t kRows = 100;

struct World {
  World(const pir::Engine& of, uint32_t record_bytes)
      : engine(of), records(kRows, record_bytes), before(Create(1)) {
    const std::vector<uint64_t> changed = {3, 50};
    for (const uint64_t row : changed) records.Fill(row, 9);
    delta = *after->Refresh(records.content(2), changed);
    SHOAL_CHECK(delta.has_value());
  }
  std::unique_ptr<pir::Server> Create(uint64_t epoch) {
    return *engine.CreateServer(records.content(epoch), {});
  }
  std::unique_ptr<Session> Open(const wire::PirSetup& setup) const {
    auto session = engine.OpenSession(std::span(&setup, 1), {});
    return session.ok() ? *std::move(session) : nullptr;
  }
  // A session of the first epoch that has its hint.
  std::unique_ptr<Session> Ready() const {
    std::unique_ptr<Session> session = Open(before->setup());
    SHOAL_CHECK(session != nullptr && session->TakeHint(before->hint()).ok());
    return session;
  }

  const pir::Engine& engine;
  pir::testing::Records records;
  const std::unique_ptr<pir::Server> before, after = Create(1);
  std::optional<pir::Delta> delta;
  testing::TestRandom random{1};
};

// A hint of any bytes whose digest the parties signed.
bool ParseHint(const World& world, BytesView input) {
  wire::PirSetup setup = world.before->setup();
  setup.set_hint_digest(ToString(pir::HintDigest(input)));
  const std::unique_ptr<Session> session = world.Open(setup);
  return session != nullptr && session->TakeHint(input).ok();
}

bool ParseAnswer(World& world, BytesView input) {
  const std::unique_ptr<Session> session = world.Ready();
  const uint64_t row = 7;
  auto batch = session->Ask({.rows = std::span(&row, 1), .keys = 1});
  SHOAL_CHECK(batch.ok() && (*batch)->Next(world.random).ok());
  if (!(*batch)->Finish(std::span(&input, 1)).ok()) return false;
  if ((*batch)->steps() == 0)
    SHOAL_CHECK((*batch)->TakeRecords().size() == world.before->setup().record_bytes());
  return true;
}

}  // namespace

void AddPirTargets(std::vector<Target>& targets) {
  const auto add = [&](absl::string_view name, Bytes seed, std::function<bool(BytesView)> parse) {
    targets.push_back({.name = std::string(name),
                       .seeds = {std::move(seed)},
                       .parse = std::move(parse),
                       .mutations = 300});
  };
  const auto world = std::make_shared<World>(pir::lwe::SimplePir(), 20);
  add("pir_setup", InputOf(world->before->setup()), [world](BytesView input) {
    wire::PirSetup setup;
    if (!setup.ParseFromArray(input.data(), static_cast<int>(input.size()))) return false;
    bool taken = false;
    for (const pir::Engine* engine : {&pir::lwe::SimplePir(), &pir::lwe::DoublePir()}) {
      const bool sized = engine->SizesOf(setup).ok();
      // A setup without sizes opens no session.
      SHOAL_CHECK(sized || !engine->OpenSession(std::span(&setup, 1), {}).ok());
      taken |= sized;
    }
    return taken;
  });
  testing::TestRandom random(2);
  const roster::testing::Parties parties(3, random);
  wire::SignedPirSetup setup;
  *setup.mutable_setup() = world->before->setup();
  setup.set_signature(ToString(parties.SignByAll(pir::SetupMessage(setup)).bytes()));
  add("signed_pir_setup", InputOf(setup), [roster = parties.roster()](BytesView input) {
    wire::SignedPirSetup parsed;
    return parsed.ParseFromArray(input.data(), static_cast<int>(input.size())) &&
           pir::VerifySetup(parsed, roster).ok();
  });
  add("pir_hint", ToBytes(world->before->hint()),
      [world](BytesView input) { return ParseHint(*world, input); });
  add("pir_delta", world->delta->changes, [world](BytesView input) {
    return world->Ready()
        ->Advance({.from = world->delta->from, .to = world->delta->to, .changes = input})
        .ok();
  });
  const uint64_t row = 7;
  const std::unique_ptr<Session> session = world->Ready();
  auto batch = session->Ask({.rows = std::span(&row, 1), .keys = 1});
  SHOAL_CHECK(batch.ok());
  const auto requests = (*batch)->Next(world->random);
  SHOAL_CHECK(requests.ok() && requests->size() == 1);
  const pir::Request& request = requests->front();
  const pir::RequestView view = {
      .kind = request.kind, .count = request.count, .body = request.body};
  const auto answers = world->before->Answer(request.role, std::span(&view, 1));
  SHOAL_CHECK(answers.front().ok());
  // As an ordinary query, and as one over chunks.
  add("pir_query", request.body, [world](BytesView input) {
    bool taken = false;
    for (const uint32_t kind : {0u, 1u}) {
      const pir::RequestView one = {.kind = kind, .count = 1 + kind, .body = input};
      taken |= world->before->Answer(pir::Role::kSingle, std::span(&one, 1)).front().ok();
    }
    return taken;
  });
  add("pir_answer", *answers.front(),
      [world](BytesView input) { return ParseAnswer(*world, input); });
}

std::vector<Target> FormatTargets() {
  std::vector<Target> targets;
  AddWireTargets(targets);
  AddChainAnswerTargets(targets);
  AddSignedTargets(targets);
  AddTableTargets(targets);
  AddPirTargets(targets);
  AddOnionTargets(targets);
  return targets;
}

}  // namespace shoal::fuzz
