// Engines: setups, hints, deltas, queries at the server and answers at the client.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/target.h"
#include "src/pir/engine.h"
#include "src/pir/lwe/family.h"
#include "src/pir/pair/pair.h"
#include "src/pir/rlwe/hintless.h"
#include "src/pir/rlwe/small_pir.h"
#include "src/pir/sets/family.h"
#include "src/pir/setup/signed_setup.h"
#include "src/pir/testing/memory_store.h"
#include "src/pir/testing/records.h"
#include "src/roster/testing/parties.h"
#include "src/wire/pir.pb.h"

namespace shoal::fuzz {
namespace {

using pir::Session;

constexpr uint64_t kRows = 100;

struct PirWorld {
  PirWorld(const pir::Engine& of, uint32_t record_bytes)
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
bool ParseHint(const PirWorld& world, BytesView input) {
  wire::PirSetup setup = world.before->setup();
  setup.set_hint_digest(ToString(pir::HintDigest(input)));
  const std::unique_ptr<Session> session = world.Open(setup);
  return session != nullptr && session->TakeHint(input).ok();
}

bool ParseAnswer(PirWorld& world, BytesView input) {
  const std::unique_ptr<Session> session = world.Ready();
  const uint64_t row = 7;
  auto batch = session->Ask({.rows = std::span(&row, 1), .keys = 1});
  SHOAL_CHECK(batch.ok() && (*batch)->Next(world.random).ok());
  if (!(*batch)->Finish(std::span(&input, 1)).ok()) return false;
  if ((*batch)->steps() == 0)
    SHOAL_CHECK((*batch)->TakeRecords().size() == world.before->setup().record_bytes());
  return true;
}

// Sessions whose states are bytes of a disk: what is there, and what comes next. For an engine of
// one server or of two.
struct SessionWorld {
  using Disk = pir::testing::MemoryStore::Disk;

  explicit SessionWorld(const pir::Engine& of) : engine(of) {
    // Of every kind of record, and in the middle of a preparation.
    pir::testing::MemoryStore store;
    const std::unique_ptr<Session> session = Open(server->setup(), store);
    while (session->needed(0) == Session::Need::kRequests) {
      const pir::Request request = *session->Prepare(random);
      states.push_back(store.disk());
      SHOAL_CHECK(session->TakePrepared(*Answer(request)).ok());
      requests.push_back(request);
    }
    const uint64_t row = 7;
    for (int query = 0; query < 2; ++query) {
      const auto batch = *session->Ask({.rows = std::span(&row, 1), .keys = 1});
      const std::vector<pir::Request> asked = *batch->Next(random);
      states.push_back(store.disk());
      std::vector<Bytes> answers;
      for (const pir::Request& request : asked) {
        requests.push_back(request);
        answers.push_back(*Answer(request));
      }
      const std::vector<BytesView> views(answers.begin(), answers.end());
      SHOAL_CHECK(batch->Finish(views).ok());
      states.push_back(store.disk());
    }
    const auto next = *engine.CreateServer(records.content(1), {});
    const std::vector<uint64_t> changed = {3, 50};
    for (const uint64_t changed_row : changed) records.Fill(changed_row, 9);
    delta = *next->Refresh(records.content(2), changed);
    SHOAL_CHECK(delta.has_value() && delta->from == pir::SetupId(server->setup()));
  }
  absl::StatusOr<Bytes> Answer(const pir::Request& request) const {
    const pir::RequestView view = {
        .kind = request.kind, .count = request.count, .body = request.body};
    return server->Answer(request.role, std::span(&view, 1)).front();
  }
  std::unique_ptr<Session> Open(const wire::PirSetup& setup, pir::SessionStore& store) const {
    const std::vector<wire::PirSetup> setups(engine.roles().size(), setup);
    auto session = engine.OpenSession(setups, {.store = &store});
    return session.ok() ? *std::move(session) : nullptr;
  }
  // Whether the session opens; then it goes on with whatever it needs, or asks.
  bool Parse(Disk disk) const {
    pir::testing::MemoryStore store(std::move(disk));
    const std::unique_ptr<Session> session = Open(server->setup(), store);
    if (session == nullptr) return false;
    testing::TestRandom draws(3);
    if (session->needed(1) == Session::Need::kRequests) {
      const auto request = session->Prepare(draws);
      SHOAL_CHECK(request.ok());
      const auto answer = Answer(*request);
      SHOAL_CHECK(answer.ok() && answer->size() == request->answer_bytes);
      (void)session->TakePrepared(*answer);
      return true;
    }
    const auto batch = session->Ask({.rows = {}, .keys = 1});
    if (!batch.ok()) return true;
    const auto asked = (*batch)->Next(draws);
    SHOAL_CHECK(asked.ok());
    for (const pir::Request& request : *asked) SHOAL_CHECK(Answer(request).ok());
    return true;
  }

  const pir::Engine& engine;
  pir::testing::Records records{200, 20};
  // Before the records change.
  const std::unique_ptr<pir::Server> server = *engine.CreateServer(records.content(1), {});
  testing::TestRandom random{1};
  std::vector<Disk> states;
  std::vector<pir::Request> requests;
  std::optional<pir::Delta> delta;
};

// The role among the engine's, the kind, and the body.
Target RequestTarget(const std::shared_ptr<SessionWorld>& world) {
  const pir::Engine& engine = world->engine;
  Target request{.name = absl::StrCat(engine.name(), "_request"), .seeds = {}, .parse = nullptr};
  for (const pir::Request& one : world->requests) {
    const auto role = std::ranges::find(engine.roles(), one.role) - engine.roles().begin();
    Bytes seed = {static_cast<uint8_t>(role), static_cast<uint8_t>(one.kind)};
    Append(seed, one.body);
    request.seeds.push_back(std::move(seed));
  }
  request.parse = [world](BytesView input) {
    Cursor cursor(input);
    const auto roles = world->engine.roles();
    const pir::Role role = roles[cursor.U8() % roles.size()];
    pir::RequestView one = {.kind = cursor.U8(), .count = 1, .body = {}};
    one.body = cursor.rest();
    return world->server->Answer(role, std::span(&one, 1)).front().ok();
  };
  return request;
}

// The number of a state of which the record is the last one, and the record.
Target RecordTarget(const std::shared_ptr<SessionWorld>& world) {
  Target record{
      .name = absl::StrCat(world->engine.name(), "_record"), .seeds = {}, .parse = nullptr};
  for (size_t i = 0; i < world->states.size(); ++i) {
    if (world->states[i].records.empty()) continue;
    Bytes seed = {static_cast<uint8_t>(i)};
    Append(seed, world->states[i].records.back());
    record.seeds.push_back(std::move(seed));
  }
  record.parse = [world](BytesView input) {
    Cursor cursor(input);
    SessionWorld::Disk disk = world->states[cursor.U8() % world->states.size()];
    if (disk.records.empty() || cursor.rest().empty()) return false;
    disk.records.back() = ToBytes(cursor.rest());
    return world->Parse(std::move(disk));
  };
  record.mutations = 300;
  return record;
}

void AddSessionTargets(const pir::Engine& engine, std::vector<Target>& targets) {
  const auto world = std::make_shared<SessionWorld>(engine);
  const auto named = [&](absl::string_view what) { return absl::StrCat(engine.name(), "_", what); };
  Target setup{
      .name = named("setup"), .seeds = {InputOf(world->server->setup())}, .parse = nullptr};
  setup.parse = [world](BytesView input) {
    wire::PirSetup parsed;
    if (!parsed.ParseFromArray(input.data(), static_cast<int>(input.size()))) return false;
    const bool sized = world->engine.SizesOf(parsed).ok();
    pir::testing::MemoryStore store;
    // One that does not fit the memory opens no session either.
    SHOAL_CHECK(sized || world->Open(parsed, store) == nullptr);
    return sized;
  };
  setup.mutations = 1000;
  targets.push_back(std::move(setup));

  targets.push_back(RequestTarget(world));

  Target state{.name = named("state"), .seeds = {}, .parse = nullptr};
  for (const auto& disk : world->states) {
    if (!disk.state.empty()) state.seeds.push_back(disk.state);
  }
  state.parse = [world](BytesView input) {
    return world->Parse({.state = ToBytes(input), .records = {}});
  };
  state.mutations = 300;
  targets.push_back(std::move(state));

  // An engine whose hints come in one piece appends nothing.
  if (Target record = RecordTarget(world); !record.seeds.empty()) {
    targets.push_back(std::move(record));
  }

  Target delta{.name = named("delta"), .seeds = {world->delta->changes}, .parse = nullptr};
  delta.parse = [world](BytesView input) {
    pir::testing::MemoryStore store(world->states.back());
    const std::unique_ptr<Session> session = world->Open(world->server->setup(), store);
    SHOAL_CHECK(session != nullptr);
    return session->Advance({.from = world->delta->from, .to = world->delta->to, .changes = input})
        .ok();
  };
  delta.mutations = 300;
  targets.push_back(std::move(delta));
}

// An engine that keeps nothing, of one server or of two: it has no hint and no deltas. What is
// mutated is the first role's.
struct StatelessWorld {
  StatelessWorld(const pir::Engine& of, uint64_t rows, uint32_t record_bytes)
      : engine(of), records(rows, record_bytes) {
    const uint64_t row = 7;
    const auto session = *Open(server->setup());
    const auto batch = *session->Ask({.rows = std::span(&row, 1), .keys = 1});
    request = (*batch->Next(random))[0];
    answer = *Answer(request.body);
  }
  absl::StatusOr<std::unique_ptr<Session>> Open(const wire::PirSetup& setup) const {
    return engine.OpenSession(std::vector<wire::PirSetup>(engine.roles().size(), setup), {});
  }
  absl::StatusOr<Bytes> Answer(BytesView body) const {
    const pir::RequestView view = {.kind = 0, .count = 1, .body = body};
    return server->Answer(engine.roles()[0], std::span(&view, 1)).front();
  }

  const pir::Engine& engine;
  pir::testing::Records records;
  const std::unique_ptr<pir::Server> server = *engine.CreateServer(records.content(1), {});
  testing::TestRandom random{1};
  pir::Request request;
  Bytes answer;
};

void AddStatelessTargets(const pir::Engine& engine, absl::string_view prefix, uint64_t rows,
                         uint32_t record_bytes, std::vector<Target>& targets) {
  const auto world = std::make_shared<StatelessWorld>(engine, rows, record_bytes);
  const auto add = [&](absl::string_view name, Bytes seed, uint32_t mutations,
                       std::function<bool(BytesView)> parse) {
    targets.push_back({.name = absl::StrCat(prefix, "_", name),
                       .seeds = {std::move(seed)},
                       .parse = std::move(parse),
                       .mutations = mutations});
  };
  add("setup", InputOf(world->server->setup()), 1000, [world](BytesView input) {
    wire::PirSetup parsed;
    if (!parsed.ParseFromArray(input.data(), static_cast<int>(input.size()))) return false;
    const bool sized = world->engine.SizesOf(parsed).ok();
    SHOAL_CHECK(sized || !world->Open(parsed).ok());
    return sized;
  });
  add("query", world->request.body, 200, [world](BytesView input) {
    const auto answer = world->Answer(input);
    SHOAL_CHECK(!answer.ok() || answer->size() == world->answer.size());
    return answer.ok();
  });
  add("answer", world->answer, 200, [world](BytesView input) {
    const uint64_t row = 7;
    const auto session = *world->Open(world->server->setup());
    const auto batch = *session->Ask({.rows = std::span(&row, 1), .keys = 1});
    testing::TestRandom draws(3);
    SHOAL_CHECK(batch->Next(draws).ok());
    std::vector<BytesView> answers(world->engine.roles().size(), world->answer);
    answers[0] = input;
    if (!batch->Finish(answers).ok()) return false;
    SHOAL_CHECK(batch->TakeRecords().size() == world->server->setup().record_bytes());
    return true;
  });
}

}  // namespace

void AddPirTargets(std::vector<Target>& targets) {
  const auto add = [&](absl::string_view name, Bytes seed, std::function<bool(BytesView)> parse) {
    targets.push_back({.name = std::string(name),
                       .seeds = {std::move(seed)},
                       .parse = std::move(parse),
                       .mutations = 300});
  };
  const auto world = std::make_shared<PirWorld>(pir::lwe::SimplePir(), 20);
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
  setup.set_signature(parties.SignatureByAll(pir::SetupMessage(setup)));
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
  for (const pir::Engine* engine : pir::sets::SetsFamily().engines()) {
    AddSessionTargets(*engine, targets);
  }
  AddStatelessTargets(pir::rlwe::SmallPir(), "small", 9, 1000, targets);
  AddStatelessTargets(pir::rlwe::Hintless(), "hintless", 9, 1000, targets);
  // Vectors, and keys.
  AddStatelessTargets(pir::pair::Pair(), "pair_vector", 100, 20, targets);
  AddStatelessTargets(pir::pair::Pair(), "pair_key", 2000, 20, targets);
}

std::vector<Target> FormatTargets() {
  std::vector<Target> targets;
  AddWireTargets(targets);
  AddChainAnswerTargets(targets);
  AddSignedTargets(targets);
  AddTableTargets(targets);
  AddAuditTargets(targets);
  AddPirTargets(targets);
  AddOnionTargets(targets);
  return targets;
}

}  // namespace shoal::fuzz
