// Measures what each machine of a party does in a round, for any number of machines: two parties of
// K machines each, all in this process, each machine on one thread.
//
//   machines_benchmark offline --machines 8 --queries 100000 --rows 1000
//   machines_benchmark online --machines 8 --queries 100000 --rows 1000 --row-bytes 64
//
// `offline` runs noise, offline stage and commitments with real onions. What machines of a party
// pass to each other is sealed and goes through queues in memory.
//
// `online` runs the online stage of both parties, over TLS on loopback as shoald does, with the
// connections of the offline stage. Clients are left out. The offline stage's output is made up, as
// it would take most of the time. Answers are checked.
//
// Prints processor time. Under callgrind (--instr-atstart=no) it counts instructions: `offline`
// with --separate-threads=yes dumps one profile for each machine and stage, `online` one for all;
// their descriptions name them (scripts/machines-instructions reads them).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/byte_source.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/base/testing/test_random.h"
#include "src/bench/options.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/net/server.h"
#include "src/net/testing/test_identity.h"
#include "src/noise/noise.h"
#include "src/onion/onion.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/round/header.h"
#include "src/server/journal.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/part_streams.h"
#include "src/server/party_content.h"
#include "src/server/slices.h"
#include "src/server/synthetic_round.h"
#include "src/sharing/batch.h"
#include "src/shoald/part_stages.h"
#include "src/shoald/peer.h"
#include "src/shoald/peer_link.h"
#include "src/shoald/tls_calls.h"
#include "src/signature/bls.h"
#include "src/storage/arena.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"
#include "valgrind/callgrind.h"

namespace shoal::server {
namespace {

using machines::Machines;
using machines::Run;
using machines::RunOf;
using machines::testing::LocalCluster;

// Slots of a client.
constexpr uint64_t kEach = 64;
constexpr size_t kPiece = 1 << 20;
constexpr wire::FrameLimits kLimits = {.control_bytes = 1 << 20, .bulk_bytes = uint64_t{1} << 40};

struct Sizes {
  uint32_t machines = 1;
  uint64_t queries = 64'000, rows = 1000;
  size_t row_bytes = 64;
  noise::Parameters noise = {.mechanism = noise::Mechanism::kGeometric,
                             .epsilon = 0.1,
                             .delta = 1e-6,
                             .phi = 1,
                             .mode = 128,
                             .left_scale = 13.06,
                             .right_scale = 42.74};
};

// A pool that does all work on the threads that call it: its own thread is kept busy. So what a
// machine's thread does is what the machine does.
class NoHelpers {
 public:
  NoHelpers() {
    pool_.Schedule([this] {
      busy_.count_down();
      over_.wait();
    });
    busy_.wait();
  }
  ~NoHelpers() { over_.count_down(); }
  ThreadPool& pool() { return pool_; }

 private:
  std::latch busy_{1}, over_{1};
  ThreadPool pool_{1};
};

// What a machine has done since the last call, on the calling thread.
class StageMeter {
 public:
  StageMeter(uint32_t party, uint32_t machine) : party_(party), machine_(machine) {
    CALLGRIND_ZERO_STATS;
    cpu_.emplace();
  }
  void End(const char* stage, uint64_t items) {
    cpu_s_ = cpu_->Seconds();
    if (RUNNING_ON_VALGRIND != 0) {
      const std::string name = absl::StrCat(stage, " ", party_, " ", machine_);
      CALLGRIND_DUMP_STATS_AT(name.c_str());
    }
    lines_ += absl::StrFormat("%s\t%d\t%d\t%d\t%.6f\n", stage, party_, machine_, items, cpu_s_);
    cpu_.reset();
    cpu_.emplace();
  }
  const std::string& lines() const { return lines_; }

 private:
  const uint32_t party_, machine_;
  std::optional<CpuMeter> cpu_;
  double cpu_s_ = 0;
  std::string lines_;
};

void Expect(const std::vector<absl::Status>& results) {
  for (const absl::Status& result : results) {
    if (!result.ok()) std::fprintf(stderr, "%s\n", result.ToString().c_str());
    SHOAL_CHECK(result.ok());
  }
}

void PrintSent(const char* stage, uint32_t party, uint32_t machines, const LocalCluster& cluster) {
  for (uint32_t from = 0; from < machines; ++from) {
    uint64_t bytes = 0;
    for (uint32_t to = 0; to < machines; ++to) bytes += cluster.sent_bytes(from, to);
    std::printf("sent-%s\t%d\t%d\t%lu\t0\n", stage, party, from, bytes);
  }
}

// The digests are made as a party makes them, and stored nowhere.
StoreDigest StoreAt(const Machines& machines) {
  if (machines.rank() != 0) return nullptr;
  return [](const Digest&) { return absl::OkStatus(); };
}

struct Macs {
  explicit Macs(const RoundSecrets& secrets) {
    for (const Content content :
         {Content::kOfflineInput, Content::kOfflineOutput, Content::kQueriesInput,
          Content::kQueriesOutput, Content::kAnswersInput, Content::kAnswersOutput}) {
      macs.push_back(std::make_unique<ContentMac>(secrets.ContentKey(), ContentName(content)));
    }
  }
  const ContentMac& operator[](Content content) const {
    return *macs[static_cast<size_t>(content) - static_cast<size_t>(Content::kOfflineInput)];
  }
  std::vector<std::unique_ptr<ContentMac>> macs;
};

// One machine of a party.
struct Machine {
  Resources resources(Machines& all) {
    return {.pool = &threads.pool(), .spools = &spools, .machines = &all};
  }
  NoHelpers threads;
  SpoolPlace spools{"/tmp", uint64_t{1} << 40};  // in memory
  OnlineMaterial material;
  Bytes list, returned;
  wire::QueryBatch queries;
  Forwarding forwarding;
  AnswerKeysPointer keys;  // of the answers that are read
  std::shared_ptr<Arena> arena;
};
using Party = std::vector<std::unique_ptr<Machine>>;

Party MakeParty(uint32_t machines) {
  Party party;
  for (uint32_t r = 0; r < machines; ++r) party.push_back(std::make_unique<Machine>());
  return party;
}

// Submissions of kEach slots whose inner onions are random: party 1 does not look into them.
Bytes CheapSubmissions(const SyntheticRound& round, uint64_t count, RandomSource& random) {
  const size_t inner = onion::OnionBytes(1), bytes = onion::SubmissionBytes(2, kEach);
  const size_t record_bytes = kSubmissionLengthBytes + bytes;
  Bytes list(count * record_bytes), seeds(32 * kEach), onions(kEach * inner);
  for (uint64_t s = 0; s < count; ++s) {
    random.Fill(onions);
    const Seed secret = random.NewSeed();
    const MutableBytes record = MutableBytes(list).subspan(s * record_bytes, record_bytes);
    StoreLe(record.data(), static_cast<uint32_t>(bytes));
    const onion::SubmissionToSeal submission = {
        .ephemeral_secret = secret.view(),
        .onions = onions,
        .submission = record.subspan(kSubmissionLengthBytes),
        .seeds = seeds};
    onion::SealSubmissions(round.recipients()[0], {}, {&submission, 1});
  }
  return list;
}

// A machine's part of a party's input.
struct Input {
  BytesView list;
  size_t record_bytes;
  uint64_t onions_each;
  Run RunAt(const Machines& all) const {
    return RunOf(list.size() / record_bytes, all.rank(), all.count());
  }
};

absl::StatusOr<OnionIntake> TakeInput(const RoundContext& context, const RoundSecrets& secrets,
                                      const Input& input, Machines& all, PartyContent* content,
                                      const Resources& resources) {
  const Run run = input.RunAt(all);
  const BytesView mine =
      input.list.subspan(run.begin * input.record_bytes, run.size() * input.record_bytes);
  SHOAL_ASSIGN_OR_RETURN(
      OnionIntake intake,
      context.is_frontend()
          ? OnionIntake::BeginSubmissions(context, secrets, mine.size(),
                                          run.size() * input.onions_each, resources)
          : OnionIntake::Begin(context, secrets, mine.size(), resources));
  for (size_t at = 0; at < mine.size(); at += kPiece) {
    const BytesView piece = mine.subspan(at, std::min(kPiece, mine.size() - at));
    SHOAL_RETURN_IF_ERROR(intake.Take(piece));
    if (content != nullptr) content->Update(piece, *resources.pool);
  }
  return intake;
}

// The offline stage of a machine, with what its party commits to.
absl::Status RunOfflineAt(const RoundContext& context, const RoundSecrets& secrets,
                          const Macs& macs, const Input& input, Machine& machine, Machines& all,
                          StageMeter& meter) {
  const Resources resources = machine.resources(all);
  SHOAL_ASSIGN_OR_RETURN(NoiseBatch noise, MakeNoise(context, secrets, resources));
  meter.End("noise", noise.size());
  SHOAL_ASSIGN_OR_RETURN(PartyContent taken,
                         PartyContent::OfList(macs[Content::kOfflineInput],
                                              input.RunAt(all).size() * input.record_bytes, all));
  SHOAL_ASSIGN_OR_RETURN(OnionIntake intake,
                         TakeInput(context, secrets, input, all, &taken, resources));
  SHOAL_RETURN_IF_ERROR(taken.Commit(StoreAt(all), all));
  SHOAL_ASSIGN_OR_RETURN(
      OfflineOutput out,
      RunOffline(context, ShuffleKeys(secrets), std::move(noise), std::move(intake), resources));
  SHOAL_CHECK(out.dead == 0);
  machine.material = std::move(out.material);
  if (!context.is_backend()) {
    SHOAL_ASSIGN_OR_RETURN(PartyContent given, PartyContent::OfList(macs[Content::kOfflineOutput],
                                                                    out.onions.size(), all));
    CommittedSource list(std::make_unique<OrderedList>(std::move(out.onions)), std::move(given),
                         StoreAt(all), &all, resources.pool);
    SHOAL_RETURN_IF_ERROR(list.Start());
    SHOAL_ASSIGN_OR_RETURN(machine.list, ReadAll(list));
  }
  meter.End("offline", machine.material.positions);
  return absl::OkStatus();
}

int MeasureOffline(const Sizes& sizes) {
  // As much noise whatever the number of machines.
  shoal::testing::TestRandom random(1);
  ThreadPool pool;
  const SyntheticRound round({.parties = 2,
                              .answer_bytes = sizes.row_bytes + 48,
                              .max_rows = sizes.rows,
                              .max_slots = static_cast<uint32_t>(sizes.queries),
                              .noise = *noise::Distribution::Create(sizes.noise)},
                             random);
  Bytes list = round.MakeInput(sizes.queries, kEach, random, pool).list;
  Input input = {list, kSubmissionLengthBytes + onion::SubmissionBytes(2, kEach), kEach};
  std::printf("stage\tparty\tmachine\titems\tcpu_s\n");
  uint64_t rest_bytes = 0, positions = 0;
  for (uint32_t number = 1; number <= 2; ++number) {
    const RoundContext& context = round.context(number);
    const RoundSecrets& secrets = round.secrets(number);
    const Macs macs(secrets);
    Party party = MakeParty(sizes.machines);
    std::vector<std::string> lines(sizes.machines);
    LocalCluster cluster(sizes.machines);
    CALLGRIND_START_INSTRUMENTATION;
    const auto results = cluster.Run([&](Machines& all) {
      StageMeter meter(number, all.rank());
      const absl::Status done =
          RunOfflineAt(context, secrets, macs, input, *party[all.rank()], all, meter);
      lines[all.rank()] = meter.lines();
      return done;
    });
    CALLGRIND_STOP_INSTRUMENTATION;
    Expect(results);
    for (const std::string& line : lines) std::printf("%s", line.c_str());
    PrintSent("offline", number, sizes.machines, cluster);
    Bytes joined;
    for (const auto& machine : party) {
      Append(joined, machine->list);
      const OnlineMaterial& material = machine->material;
      positions += material.positions;
      rest_bytes += material.seeds.size() + sizeof(sharing::QueryShare) * material.shares.size() +
                    sizeof(uint32_t) * material.target.size() +
                    sizeof(NoiseQuery) * material.noise.size();
    }
    list = std::move(joined);
    input = {list, context.inner_bytes(), 1};
  }
  std::printf("rest-bytes\t0\t0\t%lu\t0\npositions\t0\t0\t%lu\t0\n", rest_bytes, positions);
  return 0;
}

// Party 1's machines after an offline stage that has opened and sealed next to nothing, and party
// 2's with seeds that were drawn for it.
void MakeMaterial(const SyntheticRound& round, const Sizes& sizes, uint64_t noise,
                  RandomSource& random, Party& front, Party& back) {
  const uint64_t submissions = sizes.queries / kEach;
  const Bytes list = CheapSubmissions(round, submissions, random);
  const Input input = {list, kSubmissionLengthBytes + onion::SubmissionBytes(2, kEach), kEach};
  LocalCluster cluster(sizes.machines);
  Expect(cluster.Run([&](Machines& all) -> absl::Status {
    Machine& machine = *front[all.rank()];
    const Resources resources = machine.resources(all);
    const Run share = RunOf(noise, all.rank(), all.count());
    NoiseBatch batch;
    batch.tallies.resize(share.size());
    Bytes onions(share.size() * round.context(1).inner_bytes());
    SHOAL_ASSIGN_OR_RETURN(batch.onions, machine.spools.Create(onions.size()));
    SystemRandom own;
    own.Fill(onions);
    SHOAL_RETURN_IF_ERROR(batch.onions.Write(0, onions));
    SHOAL_ASSIGN_OR_RETURN(OnionIntake intake, TakeInput(round.context(1), round.secrets(1), input,
                                                         all, nullptr, resources));
    SHOAL_ASSIGN_OR_RETURN(OfflineOutput out,
                           RunOffline(round.context(1), ShuffleKeys(round.secrets(1)),
                                      std::move(batch), std::move(intake), resources));
    SHOAL_CHECK(out.dead == 0);
    machine.material = std::move(out.material);
    return absl::OkStatus();
  }));
  const uint64_t next = sizes.queries + noise;
  PartyLayout layout;
  for (uint32_t r = 0; r <= sizes.machines; ++r) {
    layout.positions.push_back(r == sizes.machines ? next : RunOf(next, r, sizes.machines).begin);
  }
  for (uint32_t r = 0; r < sizes.machines; ++r) {
    Machine& machine = *back[r];
    OnlineMaterial& material = machine.material;
    const Run slice = RunOf(next, r, sizes.machines);
    material.positions = static_cast<uint32_t>(slice.size());
    material.first_position = static_cast<uint32_t>(slice.begin);
    material.layout = layout;
    constexpr auto kSecret = PageBuffer::Content::kSecret;
    material.seeds = *PageBuffer::Create(32 * slice.size(), kSecret);
    random.Fill(material.seeds);
    material.target = *PageArray<uint32_t>::Create(slice.size(), kSecret);  // zeros: all alive
    machine.arena = *Arena::Reserve(&machine.spools, 0, 0, "a benchmark");
    SHOAL_CHECK(
        MakeReady(round.context(2), *machine.arena, machine.resources(Machines::Alone()), material)
            .ok());
  }
}

// The answer's place at party 2, and the machine that has it.
const Machine& At(const Party& party, uint32_t position) {
  for (const auto& machine : party) {
    const OnlineMaterial& material = machine->material;
    if (position - material.first_position < material.positions) return *machine;
  }
  SHOAL_CHECK(false);
}
BytesView SeedAt(const Party& party, uint32_t position) {
  const OnlineMaterial& material = At(party, position).material;
  return material.seed(position - material.first_position);
}

uint32_t RowOf(uint64_t query, uint64_t rows) {
  return static_cast<uint32_t>(query * 2654435761u % rows);
}

// What clients and party 1's noise ask: rows that are spread over the table.
void AskRows(const Sizes& sizes, const Party& back, Party& front) {
  for (const auto& machine : front) {
    OnlineMaterial& material = machine->material;
    std::vector<uint32_t> rows;
    Bytes seeds;
    for (uint32_t i = 0; i < material.positions; ++i) {
      machine->queries.positions.push_back(i);
      rows.push_back(RowOf(material.first_position + i, sizes.rows));
      Append(seeds, material.seed(i));
      Append(seeds, SeedAt(back, material.target[i]));
    }
    machine->queries.tallies.resize(rows.size());
    sharing::FirstTallies(seeds, 2, {}, rows, machine->queries.tallies);
    rows.clear();
    seeds.clear();
    for (const NoiseQuery& query : material.noise) {
      rows.push_back(RowOf(query.position, sizes.rows));
      Append(seeds, SeedAt(back, query.position));
    }
    sharing::FirstTallies(seeds, 1, {}, rows, rows);
    for (size_t k = 0; k < rows.size(); ++k) material.noise[k].tally = rows[k];
  }
}

// Takes a list, as the connections are those of the online stage, and keeps nothing.
class DroppedList final : public shoald::PartStages::OnionSink {
 public:
  absl::Status Take(BytesView) override { return absl::OkStatus(); }
  absl::Status Wait() override { return absl::OkStatus(); }
};

// Party 2's machines, each with a port.
class Backends {
 public:
  using Answer = std::function<absl::StatusOr<std::unique_ptr<ByteSource>>(
      uint32_t rank, const ListPart& slice, BytesView encoded, wire::QueryBatch queries)>;

  Backends(uint32_t machines, uint64_t positions, Answer answer)
      : machines_(machines), positions_(positions), answer_(std::move(answer)) {
    for (uint32_t rank = 0; rank < machines; ++rank) {
      net::Server::Options options = {.address = "127.0.0.1:0",
                                      .identity = identity_.identity(),
                                      .clients = {senders_.digest()},
                                      .limits = [](wire::FrameType) { return kLimits; },
                                      // Under callgrind all takes a hundred times as long.
                                      .handshake_timeout = std::chrono::hours(1),
                                      .header_timeout = std::chrono::hours(1),
                                      .progress_timeout = std::chrono::hours(1)};
      stages_.push_back(std::make_unique<shoald::PartStages>(shoald::PartStages::Options{
          .rank = rank,
          .count = machines,
          .senders = machines,
          .onion_bytes = onion::OnionBytes(1),
          .spools = &spools_,
          .most_records = [this] { return positions_; },
          .open = [](const Digest&) { return absl::OkStatus(); },
          .offline = [](const wire::SignedHeader&, uint64_t,
                        const StageTry&) { return std::make_unique<DroppedList>(); },
          .online =
              [this, rank, machines](const Digest&, QueriesIn queries, const StageTry&) {
                const auto [begin, end] = machines::RunOf(positions_, rank, machines);
                const ListPart slice = {positions_, begin, end - begin};
                const auto* const encoded = std::get_if<Bytes>(&queries);
                if (encoded == nullptr) {
                  return answer_(rank, slice, {}, std::get<wire::QueryBatch>(std::move(queries)));
                }
                auto batch = wire::DecodeQueryBatch(*encoded, static_cast<uint32_t>(positions_));
                SHOAL_CHECK(batch.ok());
                return answer_(rank, slice, *encoded, *std::move(batch));
              }}));
      services_.push_back(std::make_unique<shoald::PeerService>(stages_.back().get(), nullptr));
      shoald::PeerService* const service = services_.back().get();
      options.sink = [service](const wire::Frame& request, uint64_t bulk_bytes) {
        return service->Sink(request, bulk_bytes);
      };
      auto server =
          net::Server::Start(std::move(options), [service](wire::Frame request, net::Reply reply) {
            service->Handle(std::move(request), std::move(reply));
          });
      SHOAL_CHECK(server.ok());
      servers_.push_back(*std::move(server));
    }
  }
  ~Backends() {
    servers_.clear();
    for (const auto& stages : stages_) stages->CancelAll();
    services_.clear();
  }

  roster::Party party(RandomSource& random) const {
    const auto address = [](const net::Server& server) {
      return absl::StrCat("127.0.0.1:", server.port());
    };
    roster::Party party = {.number = 2,
                           .name = "party-2",
                           .peer_address = address(*servers_[0]),
                           .client_address = "",
                           .key = signature::SecretKey::Generate(random).public_key(),
                           .tls_certificate_sha256 = identity_.digest(),
                           .machines = machines_};
    for (size_t i = 1; i < servers_.size(); ++i) {
      party.other_machines.push_back({address(*servers_[i]), ""});
    }
    return party;
  }
  const roster::TlsIdentity& senders() const { return senders_.tls(); }

 private:
  const uint32_t machines_;
  const uint64_t positions_;
  const Answer answer_;
  const net::testing::TestIdentity senders_{1}, identity_{2};
  SpoolPlace spools_{"/tmp", uint64_t{1} << 40};
  std::vector<std::unique_ptr<shoald::PartStages>> stages_;
  std::vector<std::unique_ptr<shoald::PeerService>> services_;
  std::vector<std::unique_ptr<net::Server>> servers_;
};

// Sends what stands for a machine's run of the list of onions.
absl::Status SendList(const wire::SignedHeader& header, shoald::PeerLink& link, uint64_t next,
                      const Machine& machine, const Machines& all) {
  const OnlineMaterial& material = machine.material;
  auto onions =
      std::make_unique<BytesSource>(Bytes(material.next_positions * onion::OnionBytes(1)));
  return link.Offline(header,
                      {all.rank(), 1, {next, material.first_place, material.next_positions}},
                      std::move(onions));
}

// The online stage of a machine of party 1.
absl::Status RunOnlineAt(const SyntheticRound& round, const Macs& macs, shoald::PeerLink& link,
                         const Digest& round_id, uint64_t next, BytesView encoded, Machine& machine,
                         Machines& all) {
  const RoundContext& context = round.context(1);
  const Resources resources = machine.resources(all);
  OnlineMaterial& material = machine.material;
  SHOAL_ASSIGN_OR_RETURN(machine.queries, wire::DecodeQueryBatch(encoded, material.positions));
  SHOAL_RETURN_IF_ERROR(CommitQueries(macs[Content::kQueriesInput], encoded, &machine.queries,
                                      material.layout.positions, StoreAt(all), all,
                                      *resources.pool));
  SHOAL_ASSIGN_OR_RETURN(machine.forwarding,
                         ForwardQueries(context, material, machine.queries, resources));
  const auto& batch = machine.forwarding.batch;
  SHOAL_RETURN_IF_ERROR(CommitQueries(macs[Content::kQueriesOutput], machine.forwarding.queries,
                                      batch.get(), material.layout.places, StoreAt(all), all,
                                      *resources.pool));
  const ListPart run = {next, material.first_place, material.next_positions};
  QueriesOut onward = batch;
  if (batch == nullptr) onward = std::move(machine.forwarding.queries);
  SHOAL_ASSIGN_OR_RETURN(const auto answers,
                         link.Online(round_id, {all.rank(), 1, run}, std::move(onward)));
  SHOAL_ASSIGN_OR_RETURN(AnswerIntake intake,
                         AnswerIntake::Begin(context, machine.queries, machine.forwarding,
                                             answers->part_bytes(), resources));
  SHOAL_ASSIGN_OR_RETURN(PartyContent taken, PartyContent::OfParts(macs[Content::kAnswersInput],
                                                                   answers->part_bytes(), all));
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const PartedSource::Piece piece, answers->NextOfAny());
    if (piece.bytes.empty()) break;
    taken.UpdateAt(piece.offset, piece.bytes, *resources.pool);
    SHOAL_RETURN_IF_ERROR(intake.TakeAt(piece.offset, piece.bytes));
  }
  SHOAL_RETURN_IF_ERROR(taken.Commit(StoreAt(all), all));
  const auto keys = AnswerKeys::Of(context, round.secrets(1), material, machine.queries);
  SHOAL_ASSIGN_OR_RETURN(auto source, ReturnAnswers(keys, std::move(intake), resources));
  SHOAL_ASSIGN_OR_RETURN(PartyContent given,
                         PartyContent::OfList(macs[Content::kAnswersOutput], source->size(), all));
  CommittedSource out(std::move(source), std::move(given), StoreAt(all), &all, resources.pool);
  SHOAL_RETURN_IF_ERROR(out.Start());
  SHOAL_ASSIGN_OR_RETURN(machine.returned, ReadAll(out));
  return absl::OkStatus();
}

// The same at party 2. `encoded` is that of the queries, for a party of one machine alone.
absl::StatusOr<std::unique_ptr<ByteSource>> AnswerAt(const SyntheticRound& round, const Macs& macs,
                                                     const AnswerTable& table, BytesView encoded,
                                                     const ListPart& slice,
                                                     wire::QueryBatch queries, Machine& machine,
                                                     Machines& all) {
  const Resources resources = machine.resources(all);
  const OnlineMaterial& material = machine.material;
  SHOAL_CHECK(slice.first == material.first_position && slice.count == material.positions);
  machine.queries = std::move(queries);
  SHOAL_RETURN_IF_ERROR(CommitQueries(macs[Content::kQueriesInput], encoded, &machine.queries,
                                      material.layout.positions, StoreAt(all), all,
                                      *resources.pool));
  machine.keys = AnswerKeys::Of(round.context(2), round.secrets(2), material, machine.queries);
  SHOAL_ASSIGN_OR_RETURN(auto source, AnswerQueries(machine.keys, table, resources));
  SHOAL_ASSIGN_OR_RETURN(PartyContent given,
                         PartyContent::OfList(macs[Content::kAnswersOutput], source->size(), all));
  auto out = std::make_unique<CommittedSource>(std::move(source), std::move(given), StoreAt(all),
                                               &all, resources.pool);
  SHOAL_RETURN_IF_ERROR(out->Start());
  return out;
}

void CheckAnswers(const Sizes& sizes, const Party& front, const Party& back, BytesView table) {
  const size_t answer_bytes = sizes.row_bytes + 48;
  const size_t tagged_bytes = sharing::TaggedBytes(answer_bytes);
  for (const auto& machine : front) {
    const OnlineMaterial& material = machine->material;
    SHOAL_CHECK(machine->returned.size() == material.positions * tagged_bytes);
    for (uint32_t i = 0; i < material.positions; ++i) {
      const MutableBytes answer =
          MutableBytes(machine->returned).subspan(i * tagged_bytes, tagged_bytes);
      const sharing::AnswerSeed seeds[] = {{material.seed(i), {}},
                                           {SeedAt(back, material.target[i]), {}}};
      SHOAL_CHECK(sharing::UnmaskAnswer(seeds, answer));
      const size_t row = RowOf(material.first_position + i, sizes.rows);
      SHOAL_CHECK(std::ranges::equal(answer.first(answer_bytes),
                                     table.subspan(row * answer_bytes, answer_bytes)));
    }
  }
}

int MeasureOnline(const Sizes& sizes) {
  SystemRandom random;
  const noise::Distribution distribution = *noise::Distribution::Create(sizes.noise);
  const auto noise =
      static_cast<uint64_t>(std::llround(distribution.mean() * static_cast<double>(sizes.rows)));
  const uint64_t next = sizes.queries + noise;
  const size_t answer_bytes = sizes.row_bytes + 48;
  const SyntheticRound round({.parties = 2,
                              .answer_bytes = answer_bytes,
                              .max_rows = sizes.rows,
                              .max_slots = static_cast<uint32_t>(sizes.queries),
                              .noise = distribution},
                             random);
  const Macs front_macs(round.secrets(1)), back_macs(round.secrets(2));
  Party front = MakeParty(sizes.machines), back = MakeParty(sizes.machines);
  MakeMaterial(round, sizes, noise, random, front, back);
  AskRows(sizes, back, front);
  Bytes table(sizes.rows * answer_bytes);
  random.Fill(table);
  std::vector<Bytes> encoded;
  for (const auto& machine : front) {
    encoded.push_back(wire::EncodeQueryBatch(machine->queries, machine->material.positions));
    machine->queries = {};
  }

  // Party 2's machines lend themselves to the calls that come to their ports.
  LocalCluster cluster(sizes.machines), back_cluster(sizes.machines);
  std::vector<std::promise<Machines*>> lent(sizes.machines);
  std::vector<Machines*> lenders(sizes.machines);
  std::promise<void> over;
  std::vector<absl::Status> back_results;
  std::thread back_party([&, ended = over.get_future().share()] {
    back_results = back_cluster.Run([&](Machines& all) {
      lent[all.rank()].set_value(&all);
      ended.wait();
      return absl::OkStatus();
    });
  });
  for (uint32_t r = 0; r < sizes.machines; ++r) lenders[r] = lent[r].get_future().get();
  std::vector<absl::Status> results;
  double cpu_s = 0;
  {
    Backends backends(
        sizes.machines, next,
        [&](uint32_t rank, const ListPart& slice, BytesView asked, wire::QueryBatch queries) {
          return AnswerAt(round, back_macs, {table, sizes.rows}, asked, slice, std::move(queries),
                          *back[rank], *lenders[rank]);
        });
    const roster::Party to = backends.party(random);
    std::vector<std::unique_ptr<shoald::PeerLink>> links;
    for (const auto& machine : front) {
      links.push_back(std::make_unique<shoald::PeerLink>(
          std::make_unique<shoald::TlsCalls>(to, backends.senders()),
          shoald::PeerLink::Options{.machines = to.machines,
                                    .senders = static_cast<uint32_t>(sizes.machines),
                                    .answer_bytes = [&](const Digest&) -> absl::StatusOr<uint64_t> {
                                      return sharing::TaggedBytes(answer_bytes);
                                    },
                                    .stage_limit = std::chrono::hours(1),
                                    .spools = &machine->spools}));
    }
    // The connections are made in a round's offline stage, by the list.
    const wire::SignedHeader header;
    const Digest round_id = round::RoundId(header.header());
    Expect(LocalCluster(sizes.machines).Run([&](Machines& all) {
      return SendList(header, *links[all.rank()], next, *front[all.rank()], all);
    }));
    const Stopwatch cpu(Stopwatch::kProcess);
    CALLGRIND_START_INSTRUMENTATION;
    results = cluster.Run([&](Machines& all) {
      return RunOnlineAt(round, front_macs, *links[all.rank()], round_id, next, encoded[all.rank()],
                         *front[all.rank()], all);
    });
    CALLGRIND_STOP_INSTRUMENTATION;
    cpu_s = cpu.Seconds();
    CALLGRIND_DUMP_STATS_AT("online 0 0");
  }
  over.set_value();
  back_party.join();
  Expect(results);
  Expect(back_results);
  CheckAnswers(sizes, front, back, table);
  std::printf("stage\tparty\tmachine\titems\tcpu_s\nonline\t0\t0\t%lu\t%.6f\n", next, cpu_s);
  PrintSent("online", 1, sizes.machines, cluster);
  return 0;
}

}  // namespace
}  // namespace shoal::server

int main(int argc, char** argv) {
  constexpr char kUsage[] =
      "machines_benchmark offline|online [--machines K] [--queries Q] [--rows R]\n"
      "         [--row-bytes W] [--mode N] [--left SCALE] [--right SCALE]\n"
      "Queries are rounded down to submissions of 64. The noise is geometric; its\n"
      "default is (0.1, 1e-6), mean 157.7 a row.\n";
  shoal::server::Sizes sizes;
  const std::string stage = argc > 1 ? argv[1] : "";
  const bool known = stage == "offline" || stage == "online";
  if (const auto end = shoal::bench::ReadOptions(argc, argv, known ? 2 : 1,
                                                 {{"--machines", &sizes.machines},
                                                  {"--queries", &sizes.queries},
                                                  {"--rows", &sizes.rows},
                                                  {"--row-bytes", &sizes.row_bytes},
                                                  {"--mode", &sizes.noise.mode},
                                                  {"--left", &sizes.noise.left_scale},
                                                  {"--right", &sizes.noise.right_scale}},
                                                 kUsage)) {
    return *end;
  }
  sizes.queries -= sizes.queries % shoal::server::kEach;
  if (!known || sizes.machines < 1 || sizes.machines > shoal::machines::Machines::kMaxCount ||
      sizes.queries == 0 || sizes.queries > (1u << 30) || sizes.rows == 0 || sizes.rows >> 24 ||
      sizes.row_bytes == 0 || sizes.row_bytes >> 16) {
    std::fprintf(stderr, "usage: %s", kUsage);
    return 2;
  }
  return stage == "offline" ? shoal::server::MeasureOffline(sizes)
                            : shoal::server::MeasureOnline(sizes);
}
