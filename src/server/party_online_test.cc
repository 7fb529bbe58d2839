// The online stage of a party of several machines, and what the party commits to: the same bytes
// and the same digests as of one machine, whatever their number, and for all of them or for none.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/byte_source.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_random.h"
#include "src/machines/load_bound.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/onion/onion.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/server/journal.h"
#include "src/server/machine_messages.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/party_content.h"
#include "src/server/synthetic_round.h"
#include "src/server/testing/memory_journal.h"
#include "src/server/testing/some_noise.h"
#include "src/sharing/sharing.h"
#include "src/shuffle/permutation.h"
#include "src/storage/arena.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

using machines::Machines;
using machines::Run;
using machines::RunOf;
using machines::testing::LocalCluster;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
using Fault = LocalCluster::Fault;

constexpr RoundCounter kRound(1);
constexpr uint64_t kRows = 150;

// A journal that has taken the round's header.
struct Head {
  explicit Head(testing::Disk* disk) : journal(disk) {
    SHOAL_EXPECT_OK(journal.CommitRound(kRound, Content::kHeader, {}));
  }
  testing::MemoryJournal journal;
};

// One machine of a party, and what it has of a round.
struct Machine {
  explicit Machine(uint64_t memory_bytes)
      : in_files(memory_bytes == 0), spools(::testing::TempDir(), memory_bytes) {}
  Resources resources(Machines& machines) {
    return {.pool = &pool, .spools = &spools, .machines = &machines};
  }
  const bool in_files;
  ThreadPool pool{2};
  SpoolPlace spools;
  OnlineMaterial material;
  wire::QueryBatch queries;
  Forwarding forwarding;
  Bytes forwarded, returned;
};

// A party of several machines in one round.
class TestParty {
 public:
  TestParty(const SyntheticRound& round, uint32_t number, uint32_t count, uint64_t memory_bytes)
      : context(round.context(number)), secrets(round.secrets(number)) {
    for (uint32_t r = 0; r < count; ++r) {
      machines.push_back(std::make_unique<Machine>(memory_bytes));
    }
  }
  uint32_t count() const { return static_cast<uint32_t>(machines.size()); }

  // The offline stage, for a list of `records` records of some onions each.
  void Offline(BytesView list, size_t record_bytes, uint64_t onions_each) {
    Expect(RunAll([&](Machine& machine, Machines& all) -> absl::Status {
      const Resources resources = machine.resources(all);
      const Run run = RunOf(list.size() / record_bytes, all.rank(), count());
      SHOAL_ASSIGN_OR_RETURN(NoiseBatch noise, MakeNoise(context, secrets, resources));
      SHOAL_ASSIGN_OR_RETURN(OfflineOutput out, RunOffline(context, secrets, std::move(noise),
                                                           list.subspan(run.begin * record_bytes,
                                                                        run.size() * record_bytes),
                                                           run.size() * onions_each, resources));
      machine.material = std::move(out.material);
      return absl::OkStatus();
    }));
  }

  // Gives each machine its slice of the queries, and what the slices before it have.
  void Divide(const wire::QueryBatch& queries) {
    for (const auto& machine : machines) {
      machine->queries = {};
      const uint32_t first = machine->material.first_position;
      for (size_t i = 0; i < queries.positions.size(); ++i) {
        const uint32_t position = queries.positions[i] - first;
        if (queries.positions[i] < first || position >= machine->material.positions) continue;
        machine->queries.positions.push_back(position);
        machine->queries.tallies.push_back(queries.tallies[i]);
      }
    }
  }
  uint64_t positions() const {
    const OnlineMaterial& last = machines.back()->material;
    return uint64_t{last.first_position} + last.positions;
  }

  StoreDigest Store(Journal& journal, Content content) const {
    return [&journal, content](const Digest& digest) {
      return journal.CommitRound(kRound, content, digest);
    };
  }
  // `journal` is looked at by the head alone.
  absl::Status CommitList(Content content, BytesView mine, Journal& journal, Machine& machine,
                          Machines& all) const {
    const ContentMac mac(secrets.ContentKey(), ContentName(content));
    SHOAL_ASSIGN_OR_RETURN(PartyContent list, PartyContent::OfList(mac, mine.size(), all));
    list.Update(mine, machine.pool);
    return list.Commit(Store(journal, content), all);
  }
  absl::Status CommitBatch(Content content, BytesView encoded, const wire::QueryBatch* batch,
                           std::span<const uint64_t> starts, Journal& journal, Machine& machine,
                           Machines& all) const {
    const ContentMac mac(secrets.ContentKey(), ContentName(content), batch_chunk_bytes);
    return CommitQueries(mac, encoded, batch, starts, Store(journal, content), all, machine.pool);
  }

  // Takes queries and makes those for the next party.
  absl::Status Queries(Journal& journal, Machine& machine, Machines& all) const {
    const PartyLayout& layout = machine.material.layout;
    SHOAL_RETURN_IF_ERROR(CommitBatch(
        Content::kQueriesInput, wire::EncodeQueryBatch(machine.queries, machine.material.positions),
        &machine.queries, layout.positions, journal, machine, all));
    if (context.is_backend()) return absl::OkStatus();
    SHOAL_ASSIGN_OR_RETURN(
        machine.forwarding,
        ForwardQueries(context, machine.material, machine.queries, machine.resources(all)));
    const auto& batch = machine.forwarding.batch;
    EXPECT_EQ(batch != nullptr, all.count() > 1);
    machine.forwarded = batch == nullptr
                            ? machine.forwarding.queries
                            : wire::EncodeQueryBatch(*batch, machine.material.next_positions);
    SHOAL_RETURN_IF_ERROR(CommitBatch(Content::kQueriesOutput, machine.forwarded, batch.get(),
                                      layout.places, journal, machine, all));
    return absl::OkStatus();
  }

  // What the next party answers to this machine's queries. Depends on the queries' numbers among
  // those of all machines.
  BytesView Answered(BytesView answers, uint32_t rank) const {
    uint64_t before = 0;
    for (uint32_t r = 0; r < rank; ++r) before += machines[r]->forwarding.count;
    return answers.subspan(before * context.tagged_bytes(),
                           machines[rank]->forwarding.count * context.tagged_bytes());
  }
  uint64_t forwarded() const {
    uint64_t all = 0;
    for (const auto& machine : machines) all += machine->forwarding.count;
    return all;
  }

  absl::Status TakeAnswers(BytesView mine, Machine& machine, Machines& all,
                           std::optional<AnswerIntake>& intake) const {
    const std::vector<uint64_t> parts =
        PartsOf(machine.forwarding.count * context.tagged_bytes(), all);
    SHOAL_ASSIGN_OR_RETURN(intake, AnswerIntake::Begin(context, machine.queries, machine.forwarding,
                                                       parts, machine.resources(all)));
    return InPieces(mine, parts, [&](uint64_t offset, BytesView piece) {
      return parts.size() == 1 ? intake->Take(piece) : intake->TakeAt(offset, piece);
    });
  }
  // How a machine's answers come: at one of several, in parts at the same time.
  std::vector<uint64_t> PartsOf(uint64_t bytes, const Machines& all) const {
    if (all.count() == 1) return {bytes};
    const uint64_t third = bytes / context.tagged_bytes() / 3 * context.tagged_bytes();
    return {0, third, 0, third, bytes - 2 * third, 0};
  }
  // Of each part a piece in turn, the last part first.
  static absl::Status InPieces(
      BytesView mine, const std::vector<uint64_t>& parts,
      const std::function<absl::Status(uint64_t offset, BytesView piece)>& take) {
    std::vector<uint64_t> begins = {0};
    for (const uint64_t part : parts) begins.push_back(begins.back() + part);
    for (uint64_t at = 0; at < mine.size(); at += 10'007) {
      for (size_t p = parts.size(); p-- > 0;) {
        const uint64_t offset = begins[p] + at, end = std::min(begins[p + 1], mine.size());
        if (offset >= end) continue;
        SHOAL_RETURN_IF_ERROR(
            take(offset, mine.subspan(offset, std::min<uint64_t>(10'007, end - offset))));
      }
    }
    return absl::OkStatus();
  }
  absl::Status CommitAnswers(BytesView mine, Journal& journal, Machine& machine,
                             Machines& all) const {
    constexpr Content kContent = Content::kAnswersInput;
    const std::vector<uint64_t> parts = PartsOf(mine.size(), all);
    if (parts.size() == 1) return CommitList(kContent, mine, journal, machine, all);
    const ContentMac mac(secrets.ContentKey(), ContentName(kContent));
    SHOAL_ASSIGN_OR_RETURN(PartyContent content, PartyContent::OfParts(mac, parts, all));
    SHOAL_RETURN_IF_ERROR(InPieces(mine, parts, [&](uint64_t offset, BytesView piece) {
      content.UpdateAt(offset, piece, machine.pool);
      return absl::OkStatus();
    }));
    return content.Commit(Store(journal, kContent), all);
  }
  // Takes the next party's answers, and makes those for the previous one.
  absl::Status Answers(BytesView mine, Journal& journal, Machine& machine, Machines& all) const {
    std::optional<AnswerIntake> intake;
    SHOAL_RETURN_IF_ERROR(TakeAnswers(mine, machine, all, intake));
    if (!mine.empty()) {
      EXPECT_EQ(machine.spools.file_bytes() > 0, machine.in_files);
    }
    SHOAL_RETURN_IF_ERROR(CommitAnswers(mine, journal, machine, all));
    const auto keys = AnswerKeys::Of(context, secrets, machine.material, machine.queries);
    SHOAL_ASSIGN_OR_RETURN(auto source,
                           ReturnAnswers(keys, *std::move(intake), machine.resources(all)));
    return HandOut(std::move(source), journal, machine, all);
  }
  // The same at the backend, from a table.
  absl::Status AnswersFromTable(const AnswerTable& table, Journal& journal, Machine& machine,
                                Machines& all) const {
    const auto keys = AnswerKeys::Of(context, secrets, machine.material, machine.queries);
    SHOAL_ASSIGN_OR_RETURN(auto source, AnswerQueries(keys, table, machine.resources(all)));
    return HandOut(std::move(source), journal, machine, all);
  }
  absl::Status HandOut(std::unique_ptr<ByteSource> source, Journal& journal, Machine& machine,
                       Machines& all) const {
    const ContentMac mac(secrets.ContentKey(), ContentName(Content::kAnswersOutput));
    SHOAL_ASSIGN_OR_RETURN(PartyContent content, PartyContent::OfList(mac, source->size(), all));
    CommittedSource out(std::move(source), std::move(content),
                        Store(journal, Content::kAnswersOutput), &all, &machine.pool);
    SHOAL_RETURN_IF_ERROR(out.Start());
    SHOAL_ASSIGN_OR_RETURN(machine.returned, ReadAll(out));
    return absl::OkStatus();
  }

  using Work = std::function<absl::Status(Machine&, Machines&)>;
  std::vector<absl::Status> RunAll(const Work& work, LocalCluster& cluster) {
    return cluster.Run([&](Machines& all) { return work(*machines[all.rank()], all); });
  }
  std::vector<absl::Status> RunAll(const Work& work) {
    LocalCluster cluster(count());
    return RunAll(work, cluster);
  }
  static void Expect(const std::vector<absl::Status>& results) {
    for (const absl::Status& result : results) SHOAL_EXPECT_OK(result);
  }

  const RoundContext& context;
  const RoundSecrets& secrets;
  std::vector<std::unique_ptr<Machine>> machines;
  size_t batch_chunk_bytes = ContentMac::kDefaultChunkBytes;
};

// One in so many of the positions, with any tallies.
wire::QueryBatch SomeQueries(uint64_t positions, uint64_t one_in, TestRandom& random) {
  wire::QueryBatch queries;
  for (uint32_t i = 0; i < positions; ++i) {
    if (random.Below(one_in) != 0) continue;
    queries.positions.push_back(i);
    queries.tallies.push_back(static_cast<uint32_t>(random.Below(wire::kTallyModulus)));
  }
  return queries;
}

Bytes Draw(uint64_t bytes, RandomSource& random) {
  Bytes drawn(bytes);
  random.Fill(drawn);
  return drawn;
}

struct Input {
  Bytes list;
  size_t record_bytes = 1;
  uint64_t onions_each = 1;
};

// Onions for a party of three, one of them damaged and one that comes again.
Input MakeInput(const SyntheticRound& round, uint32_t party, size_t onions, RandomSource& random) {
  ThreadPool pool(2);
  Input input;
  if (party == 1) {
    input.onions_each = 5;
    input.record_bytes = kSubmissionLengthBytes + onion::SubmissionBytes(3, 5);
    input.list = round.MakeInput(onions / 5 * 5, 5, random, pool).list;
  } else {
    const std::span recipients = std::span(round.recipients()).subspan(party - 1);
    const Bytes ephemeral = Draw(onions * recipients.size() * 32, random);
    Bytes seeds(ephemeral.size());
    input.record_bytes = round.context(party).onion_bytes();
    input.list.resize(onions * input.record_bytes);
    onion::BuildOnions(round.context(party).round_id, party, recipients, ephemeral, seeds,
                       input.list);
  }
  if (onions >= 20) {
    std::copy_n(input.list.begin(), input.record_bytes,
                input.list.end() - static_cast<ptrdiff_t>(input.record_bytes));
    input.list[2 * input.record_bytes + (party == 1 ? 60 : 40) % input.record_bytes] ^= 1;
  }
  return input;
}

// What goes out of a party and into its journal.
struct Output {
  Bytes queries, answers;
  std::vector<Bytes> records;
  bool operator==(const Output&) const = default;
};

Output RunOnline(TestParty& party, const wire::QueryBatch& queries, BytesView answers,
                 const AnswerTable& table) {
  testing::Disk disk;
  Head head(&disk);
  party.Divide(queries);
  party.Expect(party.RunAll(
      [&](Machine& machine, Machines& all) { return party.Queries(head.journal, machine, all); }));
  Output out;
  if (!party.context.is_backend()) {
    // The slices of what goes on, joined.
    wire::QueryBatch joined;
    uint64_t places = 0;
    for (const auto& machine : party.machines) {
      const wire::QueryBatch slice =
          *wire::DecodeQueryBatch(machine->forwarded, machine->material.next_positions);
      for (const uint32_t place : slice.positions) {
        joined.positions.push_back(static_cast<uint32_t>(places + place));
      }
      joined.tallies.insert(joined.tallies.end(), slice.tallies.begin(), slice.tallies.end());
      places += machine->material.next_positions;
    }
    out.queries = wire::EncodeQueryBatch(joined, static_cast<uint32_t>(places));
  }
  party.Expect(party.RunAll([&](Machine& machine, Machines& all) {
    if (party.context.is_backend()) {
      return party.AnswersFromTable(table, head.journal, machine, all);
    }
    return party.Answers(party.Answered(answers, all.rank()), head.journal, machine, all);
  }));
  for (const auto& machine : party.machines) Append(out.answers, machine->returned);
  const MutexLock lock(disk.mutex);
  out.records = disk.records;
  return out;
}

// From one seed and one input, the queries and the answers of a party of K machines are those of
// one, and so is what its journal holds: for the first party, one in the middle and the last; many
// queries, few and none; fewer positions than machines; lists in memory and in files.
TEST(PartyOnlineTest, SlicesJoinedAreWhatOneMachineMakes) {
  TestRandom random(41);
  for (const uint32_t number : {1u, 2u, 3u}) {
    for (const size_t onions : {0u, 5u, 1500u}) {
      // Answers are so long that there are several chunks of them; batches of queries, which are
      // shorter, are digested in shorter ones.
      const SyntheticRound round({.parties = 3,
                                  .answer_bytes = 600,
                                  .max_rows = kRows,
                                  .max_slots = 5000,
                                  .noise = SomeNoise()},
                                 random);
      const Input input = MakeInput(round, number, onions, random);
      const Bytes rows = Draw(kRows * 600, random);
      const uint64_t positions = input.list.size() / input.record_bytes * input.onions_each;
      const Bytes answers = Draw(sharing::TaggedBytes(600) * (positions + 4000), random);
      std::vector<wire::QueryBatch> batches;
      for (const uint64_t one_in : {1, 2, 40}) {
        batches.push_back(SomeQueries(positions, one_in, random));
      }
      batches.emplace_back();
      std::vector<Output> expected;
      for (const uint32_t count : {1u, 2u, 3u, 4u, 8u}) {
        for (const uint64_t memory_bytes : {uint64_t{1} << 30, uint64_t{0}}) {
          SCOPED_TRACE(absl::StrCat("party ", number, ", ", onions, " onions, ", count,
                                    " machines, ", memory_bytes, " bytes of memory for lists"));
          TestParty party(round, number, count, memory_bytes);
          party.batch_chunk_bytes = 1000;
          party.Offline(input.list, input.record_bytes, input.onions_each);
          ASSERT_EQ(party.positions(), positions);
          for (size_t k = 0; k < batches.size(); ++k) {
            Output out = RunOnline(party, batches[k], answers, {rows, kRows});
            EXPECT_EQ(out.answers.size(), sharing::TaggedBytes(600) * batches[k].positions.size());
            EXPECT_EQ(out.records.size(), number == 3 ? 3u : 5u);
            if (k == expected.size()) {  // the first party: of one machine, in memory
              expected.push_back(std::move(out));
              continue;
            }
            EXPECT_TRUE(out.queries == expected[k].queries);
            EXPECT_TRUE(out.answers == expected[k].answers);
            EXPECT_EQ(out.records, expected[k].records);
          }
        }
      }
    }
  }
}

// The digest of a content is the same whoever has which parts of it, and changes with each byte.
TEST(PartyContentTest, TheDigestDoesNotDependOnTheMachines) {
  TestRandom random(42);
  const Bytes key = Draw(32, random);
  const ContentMac mac(key, "a content", 64);
  for (const size_t bytes : {0, 1, 64, 100, 3000}) {
    const Bytes content = Draw(bytes, random);
    ThreadPool one(1);
    const Digest expected = mac.Of(content, one);
    for (const uint32_t count : {1u, 2u, 3u, 8u}) {
      for (const uint64_t longest : {5, 90, 2000}) {
        std::vector<PartyContent::Part> parts;
        std::vector<Bytes> mine(count);
        for (size_t at = 0; at < bytes || parts.empty();) {
          const size_t end = std::min<size_t>(bytes, at + random.Below(longest + 1));
          const auto machine = static_cast<uint32_t>(random.Below(count));
          parts.push_back({machine, end - at});
          Append(mine[machine], BytesView(content).subspan(at, end - at));
          at = end;
        }
        for (const bool changed : {false, true}) {
          if (changed && bytes == 0) continue;
          if (changed) {
            Bytes& some = *std::ranges::find_if(mine, [](const Bytes& b) { return !b.empty(); });
            some[random.Below(some.size())] ^= 1;
          }
          Digest digest;
          LocalCluster cluster(count);
          const auto results = cluster.Run([&](Machines& machines) {
            ThreadPool pool(2);
            PartyContent here(mac, parts, machines);
            BytesView left = mine[machines.rank()];
            while (!left.empty()) {
              const size_t now = std::min<size_t>(left.size(), 37);
              here.Update(left.first(now), pool);
              left = left.subspan(now);
            }
            const StoreDigest store = [&](const Digest& made) {
              digest = made;
              return absl::OkStatus();
            };
            return here.Commit(machines.rank() == 0 ? store : nullptr, machines);
          });
          for (const absl::Status& result : results) SHOAL_EXPECT_OK(result);
          EXPECT_EQ(digest == expected, !changed) << bytes << " bytes, " << count << " machines";
        }
      }
    }
  }
}

// No machine goes on before the head has stored the digest, and none does if the head's journal
// refuses it.
TEST(PartyContentTest, NoMachineGoesOnBeforeTheHeadHasStored) {
  const Bytes key(32), part(1000);
  const ContentMac mac(key, "a content", 64);
  for (const bool refused : {false, true}) {
    LocalCluster cluster(3);
    std::atomic<uint32_t> gone_on = 0;
    const auto results = cluster.Run([&](Machines& machines) -> absl::Status {
      ThreadPool pool(1);
      SHOAL_ASSIGN_OR_RETURN(PartyContent content,
                             PartyContent::OfList(mac, part.size(), machines));
      content.Update(part, pool);
      const StoreDigest store = [&](const Digest&) {
        // The others have sent all that the head needs. Lets them wait for a while.
        const uint64_t before[] = {cluster.waits(1), cluster.waits(2)};
        EXPECT_TRUE(::shoal::testing::Soon([&] {
          return cluster.waits(1) >= before[0] + 4 && cluster.waits(2) >= before[1] + 4;
        }));
        EXPECT_EQ(gone_on, 0u);
        return refused ? absl::FailedPreconditionError("another was stored") : absl::OkStatus();
      };
      const absl::Status committed =
          content.Commit(machines.rank() == 0 ? store : nullptr, machines);
      if (committed.ok()) ++gone_on;
      return committed;
    });
    EXPECT_EQ(gone_on, refused ? 0u : 3u);
    EXPECT_EQ(results[0].ok(), !refused);
    if (!refused) continue;
    EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kFailedPrecondition, "another"));
    EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable) << results[1];
  }
}

// A hundred bytes at a time; an error in place of piece number `bad`.
class Pieces final : public ByteSource {
 public:
  Pieces(uint64_t count, uint64_t bad) : left_(count), bad_(bad) {}
  uint64_t size() const override { return 100 * left_; }
  absl::StatusOr<BytesView> Next() override {
    if (given_ == bad_) return absl::AbortedError("a disk has failed");
    if (given_ == left_) return BytesView();
    ++given_;
    return BytesView(piece_);
  }

 private:
  const uint64_t left_, bad_;
  const Bytes piece_ = Bytes(100, 1);
  uint64_t given_ = 0;
};
constexpr uint64_t kNever = ~uint64_t{0};

// No machine hands out the last piece of its part before all have read theirs so far and the head
// has stored the digest of all, and none ever does if the head's journal refuses it.
TEST(PartyContentTest, NobodyHasALastPieceBeforeAllIsStored) {
  constexpr uint64_t kPieces = 10;
  const Bytes key(32);
  const ContentMac mac(key, "a content", 64);
  for (const uint32_t late : {0u, 1u}) {
    for (const bool refused : {false, true}) {
      LocalCluster cluster(2);
      std::array<std::atomic<bool>, 2> has_last = {};
      const auto results = cluster.Run([&](Machines& all) -> absl::Status {
        ThreadPool pool(1);
        const uint32_t rank = all.rank(), other = 1 - rank;
        const StoreDigest store = [&](const Digest&) {
          EXPECT_FALSE(has_last[0] || has_last[1]);
          return refused ? absl::FailedPreconditionError("another was stored") : absl::OkStatus();
        };
        SHOAL_ASSIGN_OR_RETURN(PartyContent content, PartyContent::OfList(mac, 100 * kPieces, all));
        CommittedSource source(std::make_unique<Pieces>(kPieces, kNever), std::move(content),
                               rank == 0 ? store : nullptr, &all, &pool);
        SHOAL_RETURN_IF_ERROR(source.Start());
        for (uint64_t k = 1; k < kPieces; ++k) SHOAL_RETURN_IF_ERROR(source.Next().status());
        if (rank == late) {
          // Lets the other one wait for a while.
          const uint64_t before = cluster.waits(other);
          EXPECT_TRUE(::shoal::testing::Soon([&] { return cluster.waits(other) >= before + 4; }));
          EXPECT_FALSE(has_last[other]);
        }
        const absl::Status last = source.Next().status();
        if (last.ok()) has_last[rank] = true;
        return last;
      });
      for (const absl::Status& result : results) EXPECT_EQ(result.ok(), !refused) << result;
      EXPECT_EQ(has_last[0] && has_last[1], !refused);
      EXPECT_EQ(has_last[0] || has_last[1], !refused);
    }
  }
}

// A machine whose list cannot be read tells the others, which do not wait for it.
TEST(PartyContentTest, ASourceThatFailsEndsTheJobOfAll) {
  const Bytes key(32);
  const ContentMac mac(key, "a content", 64);
  LocalCluster cluster(2);
  const auto results = cluster.Run([&](Machines& all) -> absl::Status {
    ThreadPool pool(1);
    SHOAL_ASSIGN_OR_RETURN(PartyContent content, PartyContent::OfList(mac, 1000, all));
    CommittedSource source(std::make_unique<Pieces>(10, all.rank() == 0 ? kNever : 3),
                           std::move(content), nullptr, &all, &pool);
    const absl::StatusOr<Bytes> read = ReadAll(source);
    if (all.rank() == 0) return read.status();
    EXPECT_EQ(read.status().code(), absl::StatusCode::kAborted) << read.status();
    return all.Gather("next", {}, 0).status();
  });
  for (const absl::Status& result : results) {
    EXPECT_EQ(result.code(), absl::StatusCode::kUnavailable) << result;
  }
}

class SmallPartyTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kMachines = 3;

  SmallPartyTest() {
    const Input input = MakeInput(round_, 2, 800, random_);
    party_.Offline(input.list, input.record_bytes, 1);
    party_.Divide(SomeQueries(party_.positions(), 1, random_));
  }
  void Queries() {
    party_.Expect(party_.RunAll([&](Machine& machine, Machines& all) {
      return party_.Queries(head_.journal, machine, all);
    }));
    answers_ = Draw(party_.forwarded() * party_.context.tagged_bytes(), random_);
  }
  absl::Status Answers(BytesView answers, Machine& machine, Machines& all) {
    return party_.Answers(party_.Answered(answers, all.rank()), head_.journal, machine, all);
  }

  size_t Records() {
    const MutexLock lock(disk_.mutex);
    return disk_.records.size();
  }

  TestRandom random_{43};
  const SyntheticRound round_{
      {.parties = 3, .max_rows = kRows, .max_slots = 5000, .noise = SomeNoise()}, random_};
  TestParty party_{round_, 2, kMachines, 1 << 30};
  testing::Disk disk_;
  Head head_{&disk_};
  Bytes answers_;
};

// One machine's slice lacks a query, or is over other positions: nothing is stored, and no machine
// has anything to send.
TEST_F(SmallPartyTest, OneTallyWithheldAtOneMachineStopsAll) {
  const auto expect_stopped = [](const std::vector<absl::Status>& results) {
    EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kInvalidArgument, "query batch"));
    for (const uint32_t other : {0u, 2u}) {
      EXPECT_EQ(results[other].code(), absl::StatusCode::kUnavailable) << results[other];
    }
  };
  const auto commit = [&](size_t missing) {
    return party_.RunAll([&](Machine& machine, Machines& all) {
      Bytes encoded = wire::EncodeQueryBatch(machine.queries, machine.material.positions);
      if (all.rank() == 1) encoded.resize(encoded.size() - missing);
      return party_.CommitBatch(Content::kQueriesInput, encoded, nullptr,
                                machine.material.layout.positions, head_.journal, machine, all);
    });
  };
  const size_t records = Records();
  expect_stopped(commit(4));
  EXPECT_EQ(Records(), records);
  party_.Expect(commit(0));
  EXPECT_EQ(Records(), records + 1);
  expect_stopped(party_.RunAll([&](Machine& machine, Machines& all) {
    wire::QueryBatch queries = machine.queries;
    if (all.rank() == 1) queries.positions.back() = machine.material.positions;
    return ForwardQueries(party_.context, machine.material, queries, machine.resources(all))
        .status();
  }));
}

// Where nothing passes between machines, a machine that fails tells the others, too.
TEST_F(SmallPartyTest, AnErrorOfAnyCallEndsTheJobOfAll) {
  Queries();
  const uint64_t some = 1;
  const TestParty::Work begin = [&](Machine& machine, Machines& all) {
    return AnswerIntake::Begin(party_.context, machine.queries, machine.forwarding, some,
                               machine.resources(all))
        .status();
  };
  const TestParty::Work take = [&](Machine& machine, Machines& all) -> absl::Status {
    std::optional<AnswerIntake> intake;
    SHOAL_RETURN_IF_ERROR(
        party_.TakeAnswers(party_.Answered(answers_, all.rank()), machine, all, intake));
    return intake->Take(Bytes(some));
  };
  const TestParty::Work answer = [&](Machine& machine, Machines& all) {
    wire::QueryBatch queries = machine.queries;
    queries.positions.back() = machine.material.positions;
    return AnswerQueries(
               AnswerKeys::Of(round_.context(3), round_.secrets(3), machine.material, queries), {},
               machine.resources(all))
        .status();
  };
  for (const TestParty::Work& work : {begin, take, answer}) {
    const auto next = party_.RunAll([&](Machine& machine, Machines& all) {
      if (all.rank() == 1) {
        EXPECT_EQ(work(machine, all).code(), absl::StatusCode::kInvalidArgument);
      }
      return all.Gather("next", {}, 0).status();
    });
    for (const absl::Status& status : next) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    }
  }
}

TEST_F(SmallPartyTest, OneAnswerWithheldAtOneMachineStopsAll) {
  Queries();
  const auto results = party_.RunAll([&](Machine& machine, Machines& all) -> absl::Status {
    BytesView mine = party_.Answered(answers_, all.rank());
    if (all.rank() == 1) mine = mine.first(mine.size() - 1);
    std::optional<AnswerIntake> intake;
    SHOAL_RETURN_IF_ERROR(party_.TakeAnswers(mine, machine, all, intake));
    return ReturnAnswers(
               AnswerKeys::Of(party_.context, party_.secrets, machine.material, machine.queries),
               *std::move(intake), machine.resources(all))
        .status();
  });
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kInvalidArgument, "not all of them"));
  for (const uint32_t other : {0u, 2u}) {
    EXPECT_EQ(results[other].code(), absl::StatusCode::kUnavailable) << results[other];
  }
}

// The same answers may come again; if a bit of one differs, at whichever machine, nothing leaves
// any machine, and nothing ever does once the head has started again.
TEST_F(SmallPartyTest, OneAnswerChangedOnARepeatIsRefused) {
  Queries();
  const auto repeat = [&](BytesView answers) {
    return party_.RunAll([&](Machine& machine, Machines& all) {
      machine.returned.clear();
      return Answers(answers, machine, all);
    });
  };
  party_.Expect(repeat(answers_));
  std::vector<Bytes> first;
  for (const auto& machine : party_.machines) first.push_back(machine->returned);
  party_.Expect(repeat(answers_));
  const auto expect_nothing = [&](const std::vector<absl::Status>& results, const char* why) {
    EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kFailedPrecondition, why));
    for (uint32_t r = 0; r < kMachines; ++r) {
      EXPECT_FALSE(results[r].ok());
      EXPECT_TRUE(party_.machines[r]->returned.empty());
    }
  };
  for (uint32_t rank = 0; rank < kMachines; ++rank) {
    EXPECT_FALSE(first[rank].empty());
    Bytes changed = answers_;
    const BytesView mine = party_.Answered(changed, rank);
    ASSERT_FALSE(mine.empty());
    changed[static_cast<size_t>(mine.data() - changed.data()) + mine.size() / 2] ^= 4;
    expect_nothing(repeat(changed), "another");
  }
  testing::MemoryJournal again(&disk_);
  expect_nothing(party_.RunAll([&](Machine& machine, Machines& all) {
    return party_.Answers(party_.Answered(answers_, all.rank()), again, machine, all);
  }),
                 "not open");
}

// Wherever a link fails or a machine dies before a stage's barrier, nobody has queries or answers
// to send. At the barrier itself, who lacks the last message has none; the others may, and no call
// after that succeeds.
TEST_F(SmallPartyTest, AFaultAtAnyStepStopsAll) {
  Queries();
  const auto break_all = [&](uint32_t from, uint32_t to, uint64_t barrier,
                             const TestParty::Work& work) {
    for (uint64_t chunk = 0; chunk <= barrier; ++chunk) {
      for (const Fault fault : {Fault::kCorrupt, Fault::kWithhold, Fault::kAbort, Fault::kDie}) {
        LocalCluster cluster(kMachines);
        if (fault == Fault::kWithhold || fault == Fault::kDie) cluster.BeImpatient();
        cluster.Break(fault, from, to, chunk);
        std::vector<absl::Status> stage(kMachines);
        const auto next = party_.RunAll(
            [&](Machine& machine, Machines& all) -> absl::Status {
              stage[all.rank()] = work(machine, all);
              SHOAL_RETURN_IF_ERROR(stage[all.rank()]);
              return all.Gather("next", {}, 0).status();
            },
            cluster);
        for (uint32_t r = 0; r < kMachines; ++r) {
          EXPECT_FALSE(next[r].ok()) << "fault " << static_cast<int>(fault) << ", chunk " << chunk;
          if (chunk == barrier && r != to) continue;
          EXPECT_FALSE(stage[r].ok()) << "fault " << static_cast<int>(fault) << ", chunk " << chunk;
        }
      }
    }
  };
  // Greeting, queries, tallies; then comes the barrier.
  break_all(0, 2, 3, [&](Machine& machine, Machines& all) {
    return ForwardQueries(party_.context, machine.material, machine.queries, machine.resources(all))
        .status();
  });
  // Greeting, answers; then the barrier.
  break_all(0, 2, 2, [&](Machine& machine, Machines& all) -> absl::Status {
    std::optional<AnswerIntake> intake;
    SHOAL_RETURN_IF_ERROR(
        party_.TakeAnswers(party_.Answered(answers_, all.rank()), machine, all, intake));
    return ReturnAnswers(
               AnswerKeys::Of(party_.context, party_.secrets, machine.material, machine.queries),
               *std::move(intake), machine.resources(all))
        .status();
  });
  // Greeting and lengths; then the beginning of a chunk from machine 2 to machine 1, where it
  // began, tags to the head, and from the head nothing; then the barrier.
  const Bytes mine(100'000);
  static_assert(ContentMac::kDefaultChunkBytes < 100'000);
  const TestParty::Work commit = [&](Machine& machine, Machines& all) {
    return party_.CommitList(Content::kAnswersInput, mine, head_.journal, machine, all);
  };
  break_all(2, 1, 3, commit);
  break_all(2, 0, 3, commit);
  break_all(0, 2, 2, commit);
}

// What an observer could match with what he sees elsewhere does not pass: no tally with its place,
// no answer before or after its mask, no seed.
TEST_F(SmallPartyTest, NothingPassesInTheClear) {
  LocalCluster cluster(kMachines);
  cluster.Capture();
  answers_ = Draw(5000 * party_.context.tagged_bytes(), random_);
  party_.Expect(party_.RunAll(
      [&](Machine& machine, Machines& all) { return party_.Queries(head_.journal, machine, all); },
      cluster));
  party_.Expect(party_.RunAll(
      [&](Machine& machine, Machines& all) { return Answers(answers_, machine, all); }, cluster));
  Bytes captured;
  for (const Bytes& chunk : cluster.captured()) Append(captured, chunk);
  ASSERT_GT(captured.size(), 10'000u);
  const auto absent = [&](BytesView part) { return std::ranges::search(captured, part).empty(); };
  for (const auto& machine : party_.machines) {
    const OnlineMaterial& material = machine->material;
    for (size_t i = 0; i < machine->queries.positions.size(); i += 7) {
      const uint32_t position = machine->queries.positions[i];
      if (material.dead(position)) continue;
      Bytes record(8);
      StoreLe(record.data(), material.target[position]);
      StoreLe(record.data() + 4,
              sharing::Advance(material.shares[position], machine->queries.tallies[i]));
      EXPECT_TRUE(absent(record));
      EXPECT_TRUE(absent(material.seed(position).first(16)));
    }
    const size_t tagged_bytes = party_.context.tagged_bytes();
    for (size_t at = 0; at < machine->returned.size(); at += 7 * tagged_bytes) {
      EXPECT_TRUE(absent(BytesView(machine->returned).subspan(at, 16)));
    }
  }
  const BytesView used =
      BytesView(answers_).first(party_.forwarded() * party_.context.tagged_bytes());
  for (size_t at = 0; at < used.size(); at += 7 * party_.context.tagged_bytes()) {
    EXPECT_TRUE(absent(used.subspan(at, 16)));
  }
}

// Gives a party made-up positions, all alive, without noise: no curve work.
void MakeUp(TestParty& party, uint64_t positions, RandomSource& random) {
  ThreadPool pool(2);
  const Seed key = random.NewSeed();
  const uint32_t buckets = shuffle::BucketCount(positions), count = party.count();
  const auto draw = *shuffle::BucketDraw::Create(buckets, 0, positions, {}, key.view(), pool);
  const auto target = *shuffle::RandomPermutation(positions, key.view(), pool);
  PartyLayout layout = {.positions = {0}, .places = {0}, .buckets = buckets};
  for (uint32_t r = 0; r < count; ++r) {
    const Run run = RunOf(buckets, r, count);
    uint64_t places = layout.places.back();
    for (uint64_t b = run.begin; b < run.end; ++b) places += draw.counts()[b];
    layout.places.push_back(places);
    layout.positions.push_back(RunOf(positions, r, count).end);
  }
  for (uint32_t r = 0; r < count; ++r) {
    Machine& machine = *party.machines[r];
    OnlineMaterial& material = machine.material;
    const Run run = RunOf(positions, r, count);
    material.first_position = static_cast<uint32_t>(run.begin);
    material.positions = static_cast<uint32_t>(run.size());
    material.first_place = static_cast<uint32_t>(layout.places[r]);
    material.next_positions = static_cast<uint32_t>(layout.places[r + 1] - layout.places[r]);
    material.layout = layout;
    material.seeds = *PageBuffer::Create(32 * run.size(), PageBuffer::Content::kSecret);
    random.Fill(material.seeds);
    material.target = *PageArray<uint32_t>::Create(run.size(), PageBuffer::Content::kSecret);
    std::copy_n(target.begin() + run.begin, run.size(), material.target.begin());
    material.arena = *Arena::Reserve(&machine.spools, 0, 0, "a test");
    SHOAL_ASSERT_OK(MakeReady(party.context, *material.arena,
                              {.pool = &machine.pool, .spools = &machine.spools}, material));
  }
}

// The stage with the queries that the machines have, and answers of zeros.
void RunBare(TestParty& party, LocalCluster& down, LocalCluster& up) {
  party.Expect(party.RunAll(
      [&](Machine& machine, Machines& all) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(machine.forwarding,
                               ForwardQueries(party.context, machine.material, machine.queries,
                                              machine.resources(all)));
        return absl::OkStatus();
      },
      down));
  if (::testing::Test::HasFailure()) return;
  const Bytes answers(party.forwarded() * party.context.tagged_bytes());
  party.Expect(party.RunAll(
      [&](Machine& machine, Machines& all) -> absl::Status {
        std::optional<AnswerIntake> intake;
        SHOAL_RETURN_IF_ERROR(
            party.TakeAnswers(party.Answered(answers, all.rank()), machine, all, intake));
        return ReturnAnswers(
                   AnswerKeys::Of(party.context, party.secrets, machine.material, machine.queries),
                   *std::move(intake), machine.resources(all))
            .status();
      },
      up));
}

// In each exchange no machine receives more than 1.3 times its share, if all positions are used,
// and how much it receives does not follow from the permutation.
TEST(PartyOnlineTest, NobodyReceivesMoreThanItsShare) {
  constexpr uint64_t kQueries = 200'000;
  TestRandom random(44);
  const SyntheticRound round(
      {.parties = 2, .answer_bytes = 80, .max_rows = 1, .noise = SomeNoise()}, random);
  wire::QueryBatch queries;
  for (uint32_t i = 0; i < kQueries; ++i) {
    queries.positions.push_back(i);
    queries.tallies.push_back(i);
  }
  for (const uint32_t count : {2u, 8u}) {
    std::vector<uint64_t> seen;
    for (int k = 0; k < 2; ++k) {
      TestParty party(round, 1, count, 1 << 30);
      MakeUp(party, kQueries, random);  // with another permutation each time
      party.Divide(queries);
      LocalCluster down(count), up(count);
      RunBare(party, down, up);
      ASSERT_EQ(party.forwarded(), kQueries);
      const double share = static_cast<double>(kQueries) * (count - 1) / count / count;
      for (uint32_t r = 0; r < count; ++r) {
        EXPECT_LT(static_cast<double>(down.received_bytes(r)), 1.3 * 8 * share) << count;
        EXPECT_LT(static_cast<double>(up.received_bytes(r)),
                  1.3 * static_cast<double>(sharing::TaggedBytes(80)) * share)
            << count;
        seen.push_back(down.received_bytes(r));
        seen.push_back(up.received_bytes(r));
      }
    }
    EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + 2 * count, seen.begin() + 2 * count));
  }
}

// Whoever knows some of the places, and chooses which positions are used, finds no bound that he
// can exceed, and changes nothing of how much passes: not if the used positions of each machine are
// those whose places are the next machine's, with fewer or more of them than may be drawn.
TEST(PartyOnlineTest, NoChoiceOfPositionsLoadsAMachine) {
  constexpr uint32_t kMachines = 3;
  TestRandom random(45);
  const SyntheticRound round(
      {.parties = 2, .answer_bytes = 80, .max_rows = 1, .noise = SomeNoise()}, random);
  for (const size_t used : {2500u, 5000u}) {  // of 10,000 of each machine
    std::vector<uint64_t> seen;
    for (const bool chosen : {false, true}) {
      TestParty party(round, 1, kMachines, 1 << 30);
      MakeUp(party, 30'000, random);
      for (uint32_t r = 0; r < kMachines; ++r) {
        Machine& machine = *party.machines[r];
        const uint32_t next = (r + 1) % kMachines;
        const auto elsewhere = [&](uint32_t position) {
          const uint32_t place = machine.material.target[position];
          const std::vector<uint64_t>& places = machine.material.layout.places;
          return place < places[next] || place >= places[next + 1];
        };
        std::vector<uint32_t>& positions = machine.queries.positions;
        positions.resize(10'000);
        std::iota(positions.begin(), positions.end(), 0u);
        if (chosen) std::ranges::stable_sort(positions, {}, elsewhere);
        positions.resize(used);
        std::ranges::sort(positions);
        machine.queries.tallies.resize(used);
        EXPECT_EQ(std::ranges::none_of(positions, elsewhere), chosen && used == 2500);
      }
      LocalCluster down(kMachines), up(kMachines);
      RunBare(party, down, up);
      EXPECT_EQ(party.forwarded(), kMachines * used);
      for (uint32_t from = 0; from < kMachines; ++from) {
        for (uint32_t to = 0; to < kMachines; ++to) {
          seen.push_back(down.sent_bytes(from, to));
          seen.push_back(up.sent_bytes(from, to));
        }
      }
    }
    const auto half = static_cast<ptrdiff_t>(seen.size() / 2);
    EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + half, seen.begin() + half));
  }
}

// What `work` says at machine 0 of two when machine 1 tells it these numbers in a stage, and then
// nothing more that it could take.
absl::Status WhenToldOf(absl::string_view stage, std::span<const uint64_t> numbers,
                        const std::function<absl::Status(Machines&)>& work) {
  LocalCluster cluster(2);
  return cluster.Run([&](Machines& all) -> absl::Status {
    if (all.rank() == 0) return work(all);
    SHOAL_RETURN_IF_ERROR(GatherNumbers(all, stage, numbers).status());
    return all.Gather("nothing that comes next", {}, 0).status();
  })[0];
}
constexpr char kUnannounced[] = "had not announced";
MATCHER(IsUnannounced, "") {
  return arg.code() == absl::StatusCode::kDataLoss &&
         arg.message().find(kUnannounced) != absl::string_view::npos;
}

// Lengths and bounds follow from what other machines say of their queries. What they cannot have is
// refused before anything follows from it.
TEST(PartyOnlineTest, NumbersThatNoMachineCanHaveAreRefused) {
  TestRandom random(46);
  const SyntheticRound round(
      {.parties = 2, .answer_bytes = 80, .max_rows = 1, .noise = SomeNoise()}, random);
  const uint64_t most = machines::MostDrawn(1000, 1, 2);
  ASSERT_LT(most, 700u);
  struct Case {
    bool refused;
    uint64_t used, come;
  };
  for (const Case& c : {Case{false, 1000, most}, Case{true, 1000, most + 1}, Case{true, 1000, 1000},
                        Case{true, 1001, 0}, Case{true, ~uint64_t{0}, 0}, Case{true, 5, 6},
                        Case{true, 1000, uint64_t{1} << 61}, Case{true, 1000, ~uint64_t{0}}}) {
    TestParty party(round, 1, 2, 1 << 30);
    MakeUp(party, 2000, random);
    ASSERT_EQ(party.machines[1]->material.layout.buckets % 2, 0u);
    Machine& machine = *party.machines[0];
    machine.queries = {.positions = {0, 7}, .tallies = {1, 2}};
    const absl::Status status =
        WhenToldOf("queries", std::array{c.used, c.come, uint64_t{0}}, [&](Machines& all) {
          return ForwardQueries(party.context, machine.material, machine.queries,
                                machine.resources(all))
              .status();
        });
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(::testing::Value(status, IsUnannounced()), c.refused)
        << c.used << ", " << c.come << ": " << status;
  }
}

TEST(PartyContentTest, LengthsThatNoMachineCanHaveAreRefused) {
  const ContentMac mac(Bytes(32), "a content");
  for (const uint64_t length : {uint64_t{1000}, uint64_t{1} << 58, ~uint64_t{0} - 500}) {
    const absl::Status status =
        WhenToldOf("lengths (a content)", {&length, 1}, [&](Machines& all) -> absl::Status {
          ThreadPool pool(1);
          SHOAL_ASSIGN_OR_RETURN(PartyContent list, PartyContent::OfList(mac, 1000, all));
          list.Update(Bytes(1000), pool);
          return list.Commit([](const Digest&) { return absl::InternalError("stored"); }, all);
        });
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(::testing::Value(status, IsUnannounced()), length > 1000) << length << ": " << status;
  }
}

TEST(PartyContentTest, SlicesOfQueriesThatNoMachineCanHaveAreRefused) {
  const ContentMac mac(Bytes(32), "a content");
  constexpr uint64_t kStarts[] = {0, 1000, 2000}, kHuge = uint64_t{1} << 62;
  const wire::QueryBatch batch = {.positions = {0, 999}, .tallies = {1, 2}};
  // How many are used, the first and the last of them, bytes of gaps, bits of the first byte.
  using Facts = std::array<uint64_t, 5>;
  const std::vector<Facts> possible = {{0, 0, 0, 0, 0}, {1000, 1000, 1999, 999, 0}};
  const std::vector<Facts> impossible = {
      {1001, 1000, 1999, 999, 0}, {kHuge, 1000, 1999, 999, 0}, {10, 999, 1999, 9, 0},
      {10, 1000, 2000, 9, 0},     {10, 1500, 1400, 9, 0},      {10, 1000, 1999, 51, 0},
      {10, 1000, 1999, kHuge, 0}, {10, 1000, 1999, 9, 0x100},  {0, 0, 0, 1, 0}};
  for (const bool refused : {false, true}) {
    for (const Facts& facts : refused ? impossible : possible) {
      const absl::Status status =
          WhenToldOf("slices of queries (a content)", facts, [&](Machines& all) {
            ThreadPool pool(1);
            return CommitQueries(
                mac, wire::EncodeQueryBatch(batch, 1000), &batch, kStarts,
                [](const Digest&) { return absl::InternalError("stored"); }, all, pool);
          });
      EXPECT_FALSE(status.ok());
      EXPECT_EQ(::testing::Value(status, IsUnannounced()), refused) << facts[0] << ": " << status;
    }
  }
}

// Machines that have come to different contents commit to neither, even if all lengths are equal.
TEST(PartyContentTest, MachinesThatCommitToDifferentContentsStoreNothing) {
  const Bytes key(32), part(1000, 1);
  const wire::QueryBatch batch = {.positions = {0, 999}, .tallies = {1, 2}};
  using Work = std::function<absl::Status(const ContentMac&, const StoreDigest&, Machines&)>;
  ThreadPool pool(1);
  const Work list = [&](const ContentMac& mac, const StoreDigest& store,
                        Machines& all) -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(PartyContent content, PartyContent::OfList(mac, part.size(), all));
    content.Update(part, pool);
    return content.Commit(store, all);
  };
  const Work parts = [&](const ContentMac& mac, const StoreDigest& store, Machines& all) {
    PartyContent content(mac, {{0, part.size()}, {1, part.size()}}, all);
    content.Update(part, pool);
    return content.Commit(store, all);
  };
  const Work queries = [&](const ContentMac& mac, const StoreDigest& store, Machines& all) {
    return CommitQueries(mac, wire::EncodeQueryBatch(batch, 1000), &batch,
                         std::array<uint64_t, 3>{0, 1000, 2000}, store, all, pool);
  };
  for (const Work& work : {list, parts, queries}) {
    for (const bool different : {false, true}) {
      std::atomic<int> stored = 0;
      const StoreDigest store = [&](const Digest&) {
        ++stored;
        return absl::OkStatus();
      };
      LocalCluster cluster(2);
      const auto results = cluster.Run([&](Machines& all) {
        const bool other = different && all.rank() == 1;
        const ContentMac mac(
            key, ContentName(other ? Content::kAnswersInput : Content::kAnswersOutput), 64);
        return work(mac, all.rank() == 0 ? store : nullptr, all);
      });
      for (const absl::Status& result : results) EXPECT_EQ(result.ok(), !different) << result;
      EXPECT_EQ(stored, different ? 0 : 1);
    }
  }
}

}  // namespace
}  // namespace shoal::server
