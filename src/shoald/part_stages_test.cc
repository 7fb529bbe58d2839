// Lists that pass between parties of any numbers of machines, over TLS connections: the machines of
// the first party call PeerLink, those of the second are served by PeerService.
#include "src/shoald/part_stages.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/machines/machines.h"
#include "src/net/server.h"
#include "src/net/testing/test_identity.h"
#include "src/parallel/mutex.h"
#include "src/round/header.h"
#include "src/server/testing/deployment.h"
#include "src/shoald/peer.h"
#include "src/shoald/peer_link.h"
#include "src/shoald/tls_calls.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

using net::testing::TestIdentity;
using ::shoal::testing::Soon;
using ::shoal::testing::StatusIs;
using wire::FrameType;
using namespace std::chrono_literals;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr size_t kOnion = 32;  // for the second of two parties
constexpr size_t kAnswer = 8;
constexpr uint64_t kMost = 100'000;

Bytes ListOf(uint64_t records) {
  Bytes list(records * kOnion);
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return list;
}

// Two of three positions are used; the tally is ten times the position's number in the list.
wire::QueryBatch BatchOver(const server::ListPart& run) {
  wire::QueryBatch batch;
  for (uint32_t i = 0; i < run.count; ++i) {
    if ((run.first + i) % 3 == 1) continue;
    batch.positions.push_back(i);
    batch.tallies.push_back(static_cast<uint32_t>(10 * (run.first + i)));
  }
  return batch;
}
Bytes AnswerTo(uint32_t tally) {
  Bytes answer(kAnswer);
  StoreLe<uint64_t>(answer.data(), uint64_t{tally} << 20 | 5);
  return answer;
}

// Keeps a list, and has a stage run over it.
class KeptList final : public PartStages::OnionSink {
 public:
  explicit KeptList(std::function<absl::Status(Bytes list)> stage,
                    std::function<absl::Status()> takes = nullptr)
      : stage_(std::move(stage)), takes_(std::move(takes)) {}
  absl::Status Take(BytesView piece) override {
    Append(list_, piece);
    return takes_ ? takes_() : absl::OkStatus();
  }
  absl::Status Wait() override { return stage_(std::move(list_)); }

 private:
  const std::function<absl::Status(Bytes list)> stage_;
  const std::function<absl::Status()> takes_;  // a piece; may be null
  Bytes list_;
};

// The machines of a party, each with what it was given.
class Receivers {
 public:
  Receivers(uint32_t senders, uint32_t count) : got_(count) {
    for (uint32_t rank = 0; rank < count; ++rank) {
      stages_.push_back(std::make_unique<PartStages>(PartStages::Options{
          .rank = rank,
          .count = count,
          .senders = senders,
          .onion_bytes = kOnion,
          .spools = &spools_,
          .most_records = [] { return kMost; },
          .open =
              [this](const Digest&) {
                return open_ ? absl::OkStatus() : absl::NotFoundError("the round is not open");
              },
          .offline =
              [this, rank, count](const wire::SignedHeader&, uint64_t,
                                  const server::StageTry& stage) {
                {
                  const MutexLock lock(mutex_);
                  ++begun_;
                  changed_.NotifyAll();
                }
                const machines::Run slice = machines::RunOf(*stage.records, rank, count);
                return std::make_unique<KeptList>([this, rank, slice](Bytes list) {
                  const MutexLock lock(mutex_);
                  got_[rank] = {slice.begin, std::move(list)};
                  return absl::OkStatus();
                });
              },
          .online = [rank, count](const Digest&, const server::QueriesIn& queries,
                                  const server::StageTry& stage)
              -> absl::StatusOr<std::unique_ptr<ByteSource>> {
            const auto& batch = std::get<wire::QueryBatch>(queries);
            const uint64_t first = machines::RunOf(*stage.records, rank, count).begin;
            Bytes answers;
            for (size_t i = 0; i < batch.tallies.size(); ++i) {
              EXPECT_EQ(batch.tallies[i], 10 * (first + batch.positions[i]));
              Append(answers, AnswerTo(batch.tallies[i]));
            }
            return std::make_unique<BytesSource>(std::move(answers));
          }}));
      services_.push_back(std::make_unique<PeerService>(stages_.back().get(), nullptr));
      PeerService* const service = services_.back().get();
      auto server = net::Server::Start(
          {.address = "127.0.0.1:0",
           .identity = identity_.identity(),
           .clients = {senders_.digest()},
           .limits = [service](FrameType type) { return service->Limits(type); },
           .sink = [service](const wire::Frame& request,
                             uint64_t bytes) { return service->Sink(request, bytes); }},
          [service](wire::Frame request, net::Reply reply) {
            service->Handle(std::move(request), std::move(reply));
          });
      SHOAL_CHECK(server.ok());
      servers_.push_back(*std::move(server));
    }
  }
  ~Receivers() {
    servers_.clear();
    for (const auto& stages : stages_) stages->CancelAll();
    services_.clear();
  }

  roster::Party party() const {
    static const server::testing::Deployment deployment({.rows = 10});
    roster::Party party = deployment.roster().party(2);
    party.tls_certificate_sha256 = identity_.digest();
    party.machines = static_cast<uint32_t>(servers_.size());
    party.other_machines.clear();
    for (size_t i = 0; i < servers_.size(); ++i) {
      const std::string address = absl::StrCat("127.0.0.1:", servers_[i]->port());
      if (i == 0) {
        party.peer_address = address;
      } else {
        party.other_machines.push_back({address, ""});
      }
    }
    return party;
  }
  const TestIdentity& senders() const { return senders_; }
  SpoolPlace* spools() { return &spools_; }
  void EndRound() { open_ = false; }
  // Until so many offline stages have begun.
  void WaitForStages(int count) {
    const MutexLock lock(mutex_);
    while (begun_ < count) changed_.Wait(mutex_);
  }

  struct Slice {
    uint64_t first;
    Bytes list;
  };
  std::vector<std::optional<Slice>> Take() {
    const MutexLock lock(mutex_);
    return std::exchange(got_, std::vector<std::optional<Slice>>(got_.size()));
  }

 private:
  const TestIdentity senders_{1}, identity_{2};
  SpoolPlace spools_{::testing::TempDir(), 1 << 26};
  std::atomic<bool> open_ = true;
  Mutex mutex_;
  CondVar changed_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::optional<Slice>> got_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<PartStages>> stages_;
  std::vector<std::unique_ptr<PeerService>> services_;
  std::vector<std::unique_ptr<net::Server>> servers_;
};

wire::SignedHeader HeaderOf(uint64_t counter) {
  wire::SignedHeader header;
  header.mutable_header()->set_counter(counter);
  for (int i = 0; i < 2; ++i) header.mutable_header()->add_onion_keys(std::string(32, 'k'));
  return header;
}

// The machines of a party with a list.
class Senders {
 public:
  using OwnRun = PeerLink::OwnRun;

  Senders(Receivers* to, uint64_t records, const std::vector<uint64_t>& begins,
          const roster::Party& party)
      : list_(ListOf(records)) {
    for (size_t i = 0; i < begins.size(); ++i) {
      const uint64_t end = i + 1 < begins.size() ? begins[i + 1] : records;
      mine_.push_back({static_cast<uint32_t>(i), 1, {records, begins[i], end - begins[i]}});
      links_.push_back(std::make_unique<PeerLink>(
          std::make_unique<TlsCalls>(party, to->senders().tls()),
          PeerLink::Options{
              .party = party.number,
              .machines = party.machines,
              .senders = static_cast<uint32_t>(begins.size()),
              .answer_bytes = [](const Digest&) -> absl::StatusOr<uint64_t> { return kAnswer; },
              .stage_limit = 100s,
              .spools = to->spools()}));
    }
  }
  Senders(Receivers* to, uint64_t records, const std::vector<uint64_t>& begins)
      : Senders(to, records, begins, to->party()) {}

  std::vector<OwnRun>& mine() { return mine_; }
  const Bytes& list() const { return list_; }
  size_t size() const { return links_.size(); }

  absl::Status Offline(size_t rank, uint64_t counter = 1) {
    const server::ListPart& run = mine_[rank].run;
    Bytes own(run.count * kOnion);  // what is beyond the list is zeros
    const uint64_t from = std::min<uint64_t>(list_.size(), run.first * kOnion);
    std::copy_n(list_.begin() + static_cast<ptrdiff_t>(from),
                std::min<uint64_t>(own.size(), list_.size() - from), own.begin());
    return links_[rank]->Offline(HeaderOf(counter), mine_[rank],
                                 std::make_unique<BytesSource>(std::move(own)));
  }
  absl::StatusOr<Bytes> Online(size_t rank) {
    SHOAL_ASSIGN_OR_RETURN(
        const auto answers,
        links_[rank]->Online(round::RoundId(HeaderOf(1).header()), mine_[rank],
                             std::make_shared<const wire::QueryBatch>(BatchOver(mine_[rank].run))));
    return ReadAll(*answers);
  }
  // Of machines `ranks` at the same time.
  std::vector<absl::Status> OfflineOf(const std::vector<size_t>& ranks) {
    std::vector<std::future<absl::Status>> calls;
    for (const size_t rank : ranks) {
      calls.push_back(std::async(std::launch::async, [this, rank] { return Offline(rank); }));
    }
    std::vector<absl::Status> out;
    for (auto& call : calls) out.push_back(call.get());
    return out;
  }
  PeerLink& link(size_t rank) { return *links_[rank]; }

 private:
  const Bytes list_;
  std::vector<OwnRun> mine_;
  std::vector<std::unique_ptr<PeerLink>> links_;
};

std::vector<size_t> All(size_t count) {
  std::vector<size_t> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = i;
  return out;
}

void ExpectSlices(Receivers& receivers, const Bytes& list) {
  Bytes joined;
  for (const auto& slice : receivers.Take()) {
    ASSERT_TRUE(slice.has_value());
    EXPECT_EQ(slice->first * kOnion, joined.size());
    Append(joined, slice->list);
  }
  EXPECT_EQ(joined, list);
}

class PartsTest : public ::testing::TestWithParam<std::pair<uint32_t, uint32_t>> {};

TEST_P(PartsTest, SlicesJoinedAreTheList) {
  const auto [count, receiving] = GetParam();
  for (const uint64_t records : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{20'000}}) {
    for (const bool even : {true, false}) {
      SCOPED_TRACE(absl::StrCat(count, " to ", receiving, ", ", records));
      Receivers receivers(count, receiving);
      std::vector<uint64_t> begins;
      for (uint64_t i = 0; i < count; ++i) {
        begins.push_back(even ? records * i / count : i == 0 ? 0 : std::min(records, 7 * i * i));
      }
      Senders senders(&receivers, records, begins);
      for (const absl::Status& done : senders.OfflineOf(All(count))) SHOAL_EXPECT_OK(done);
      ExpectSlices(receivers, senders.list());

      std::vector<std::future<absl::StatusOr<Bytes>>> calls;
      for (size_t rank = 0; rank < count; ++rank) {
        calls.push_back(
            std::async(std::launch::async, [&senders, rank] { return senders.Online(rank); }));
      }
      for (size_t rank = 0; rank < count; ++rank) {
        SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answers, calls[rank].get());
        Bytes expected;
        for (const uint32_t tally : BatchOver(senders.mine()[rank].run).tallies) {
          Append(expected, AnswerTo(tally));
        }
        EXPECT_EQ(answers, expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, PartsTest,
                         ::testing::Values(std::pair(1, 2), std::pair(2, 1), std::pair(2, 4),
                                           std::pair(4, 3)));

// A party of one machine counts its tries itself.
TEST(PartStagesTest, APartyOfOneMachineTalksToSeveral) {
  Receivers receivers(1, 3);
  Senders senders(&receivers, 1000, {0});
  const Bytes list = ListOf(1000);
  for (int tries = 0; tries < 2; ++tries) {
    SHOAL_ASSERT_OK(senders.Offline(0));
    ExpectSlices(receivers, list);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got, senders.Online(0));
    Bytes expected;
    for (const uint32_t tally : BatchOver({1000, 0, 1000}).tallies) {
      Append(expected, AnswerTo(tally));
    }
    EXPECT_EQ(got, expected);
  }
}

void ExpectNoSlice(Receivers& receivers) {
  for (const auto& slice : receivers.Take()) EXPECT_FALSE(slice.has_value());
}

// Where one machine lies, none of the receivers has a list, and all calls say why.
TEST(PartStagesTest, AMachineThatSendsWhatItHasNotIsRefused) {
  struct Case {
    server::ListPart run;  // of machine 1, which has records 50 to 99 of 100
    std::string why;
  };
  const std::vector<Case> cases = {
      {{101, 50, 50}, "by what another machine says"},
      {{100, 40, 60}, "overlap"},
      {{100, 0, 50}, "overlap"},
      {{100, 51, 49}, "nobody has records"},
      {{100, 50, 49}, "nobody has records"},
      {{kMost + 1, 50, 50}, "are allowed"},
  };
  for (const Case& c : cases) {
    Receivers receivers(2, 1);
    Senders senders(&receivers, 100, {0, 50});
    senders.mine()[1].run = c.run;
    auto honest = std::async(std::launch::async, [&] { return senders.Offline(0); });
    receivers.WaitForStages(1);
    EXPECT_THAT(senders.Offline(1), StatusIs(kInvalid, c.why));
    EXPECT_THAT(honest.get(), StatusIs(kInvalid, c.why));
    ExpectNoSlice(receivers);
  }
}

TEST(PartStagesTest, AMachineThatSendsTwiceIsRefused) {
  Receivers receivers(2, 1);
  Senders senders(&receivers, 100, {0, 50});
  senders.mine()[1] = senders.mine()[0];
  for (const absl::Status& status : senders.OfflineOf({0, 1})) {
    EXPECT_THAT(status, StatusIs(kInvalid, "a second part"));
  }
  ExpectNoSlice(receivers);
}

// A machine that withholds its part holds up the round, and no longer.
TEST(PartStagesTest, WithoutOneMachinesPartNothingIsDone) {
  Receivers receivers(3, 2);
  Senders senders(&receivers, 90, {0, 30, 60});
  auto first = std::async(std::launch::async, [&] { return senders.Offline(0); });
  auto last = std::async(std::launch::async, [&] { return senders.Offline(2); });
  auto online = std::async(std::launch::async, [&] { return senders.Online(0).status(); });
  receivers.WaitForStages(2);
  receivers.EndRound();
  for (auto* call : {&first, &last, &online}) {
    EXPECT_THAT(call->get(), StatusIs(absl::StatusCode::kNotFound, "not open"));
  }
  ExpectNoSlice(receivers);
}

TEST(PartStagesTest, ALaterTryTakesThePlaceOfAnEarlierOne) {
  Receivers receivers(2, 1);
  Senders senders(&receivers, 100, {0, 50});
  auto stuck = std::async(std::launch::async, [&] { return senders.Offline(0); });
  receivers.WaitForStages(1);
  Senders again(&receivers, 100, {0, 40});
  for (PeerLink::OwnRun& mine : again.mine()) mine.attempt = 2;
  for (const absl::Status& done : again.OfflineOf({0, 1})) SHOAL_EXPECT_OK(done);
  EXPECT_THAT(stuck.get(), StatusIs(absl::StatusCode::kAborted, "a later try"));
  ExpectSlices(receivers, again.list());
  // The earlier one is over for ever.
  EXPECT_THAT(senders.Offline(1), StatusIs(absl::StatusCode::kFailedPrecondition, "after try 2"));
}

// Between two parties of one machine each a list comes whole, and no party before is let to name it
// as a part.
TEST(PartStagesTest, PartsAreRefusedWhereListsComeWhole) {
  Receivers receivers(1, 1);
  Senders senders(&receivers, 100, {0, 50});
  EXPECT_THAT(senders.Offline(0), StatusIs(kInvalid, "a part of a list"));
  EXPECT_THAT(senders.Online(0).status(), StatusIs(kInvalid, "a part of a list"));
  ExpectNoSlice(receivers);
}

// A part for another machine is refused, though both have the party's certificate.
TEST(PartStagesTest, APartGoesToItsMachineAlone) {
  Receivers receivers(1, 2);
  roster::Party swapped = receivers.party();
  std::swap(swapped.peer_address, swapped.other_machines[0].peer);
  Senders senders(&receivers, 100, {0}, swapped);
  EXPECT_THAT(senders.Offline(0), StatusIs(kInvalid, "came to machine"));
  EXPECT_THAT(senders.Online(0).status(), StatusIs(kInvalid, "came to machine"));
  ExpectNoSlice(receivers);
}

TEST(PartStagesTest, WholeListsAreRefusedWhereThereAreParts) {
  Receivers receivers(2, 1);
  Senders alone(&receivers, 100, {0});
  EXPECT_THAT(alone.Offline(0), StatusIs(kInvalid, "a whole list"));
  EXPECT_THAT(alone.link(0)
                  .Online(round::RoundId(HeaderOf(1).header()), alone.mine()[0], Bytes(5))
                  .status(),
              StatusIs(kInvalid, "a whole list"));
  EXPECT_THAT(alone.link(0).Live({}).status(), StatusIs(kInvalid, "its party's head"));
}

// The stages of a machine, called as its service does. A list of one record has one sender, however
// many machines there are.
class OneReceiver {
 public:
  explicit OneReceiver(uint32_t senders)
      : spools_(::testing::TempDir(), 1 << 26),
        stages_({.senders = senders,
                 .onion_bytes = kOnion,
                 .spools = &spools_,
                 .most_records = [] { return kMost; },
                 .open = [this](const Digest&) { return open ? open() : absl::OkStatus(); },
                 .at_work = [this](const Digest&, uint64_t) { return at_work.load(); },
                 .offline =
                     [this](const wire::SignedHeader&, uint64_t, const server::StageTry&) {
                       return std::make_unique<KeptList>([this](const Bytes&) { return offline(); },
                                                         takes);
                     },
                 .online = [this](const Digest&, const server::QueriesIn&,
                                  const server::StageTry&) { return online(); }}) {}

  absl::StatusOr<std::unique_ptr<PartStages::OnionSink>> Offline(const wire::ListPart& part,
                                                                 uint64_t round = 1) {
    wire::OfflineRequest request;
    *request.mutable_header() = HeaderOf(round);
    *request.mutable_part() = part;
    return stages_.Offline(request, part.count() * kOnion);
  }
  absl::Status Online(const wire::ListPart& part) {
    const server::ListPart run = {part.records(), part.first(), part.count()};
    return Online(part, wire::EncodeQueryBatch(BatchOver(run), static_cast<uint32_t>(run.count)));
  }
  absl::Status Online(const wire::ListPart& part, Bytes queries) {
    wire::OnlineRequest request;
    request.set_round_id(ToString(round::RoundId(HeaderOf(1).header())));
    *request.mutable_part() = part;
    SHOAL_ASSIGN_OR_RETURN(const auto answers, stages_.Online(request, std::move(queries)));
    return ReadAll(*answers).status();
  }
  PartStages& stages() { return stages_; }
  const SpoolPlace& spools() const { return spools_; }

  std::atomic<bool> at_work = true;
  std::function<absl::Status()> open;
  std::function<absl::Status()> takes = nullptr;  // a piece of the offline stage's list
  std::function<absl::Status()> offline = [] { return absl::OkStatus(); };
  std::function<absl::StatusOr<std::unique_ptr<ByteSource>>()> online;

 private:
  SpoolPlace spools_;
  PartStages stages_;
};

// Record `from` of a list of one record for each sender.
wire::ListPart OneOf(uint32_t senders, uint32_t from, uint64_t attempt, uint64_t each = 1) {
  wire::ListPart part;
  part.set_from_machine(from);
  part.set_attempt(attempt);
  part.set_records(senders * each);
  part.set_first(from * each);
  part.set_count(each);
  return part;
}

// The first sender's answers are ready, nobody has taken them, and the try ends.
TEST(PartStagesTest, AnswersThatNobodyTookEndWithTheirTry) {
  constexpr uint32_t kSenders = 3;
  OneReceiver receiver(kSenders);
  std::atomic<bool> waits = false, answered = false, ended = false;
  thread_local int asks;  // of `open`, by this thread
  thread_local bool first, runs;
  receiver.open = [&] {
    ++asks;
    // Once to find the try, and then before each look at the answers.
    if (first && asks > 1) {
      waits = true;
      EXPECT_TRUE(Soon([&] { return ended.load(); }));
    }
    if (runs) answered = true;
    return absl::OkStatus();
  };
  receiver.online = [&] {
    runs = true;
    // Records 0 and 2 have queries.
    return std::make_unique<BytesSource>(Bytes(2 * kAnswer));
  };
  std::vector<std::future<absl::Status>> calls;
  calls.push_back(std::async(std::launch::async, [&] {
    first = true;
    return receiver.Online(OneOf(kSenders, 0, 1));
  }));
  EXPECT_TRUE(Soon([&] { return waits.load(); }));
  for (uint32_t from = 1; from < kSenders; ++from) {
    calls.push_back(std::async(std::launch::async,
                               [&, from] { return receiver.Online(OneOf(kSenders, from, 1)); }));
  }
  EXPECT_TRUE(Soon([&] { return answered.load(); }));
  receiver.stages().CancelAll();
  ended = true;
  for (auto& call : calls) {
    EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kCancelled, "is ending"));
  }
}

// The stage refuses a list while it comes.
TEST(PartStagesTest, AllSendersGetTheErrorOfAPiece) {
  OneReceiver receiver(3);
  std::atomic<int> taken = 0;
  std::atomic<bool> ran = false;
  receiver.takes = [&] {
    return ++taken == 2 ? absl::DataLossError("piece 2 is damaged") : absl::OkStatus();
  };
  receiver.offline = [&] {
    ran = true;
    return absl::OkStatus();
  };
  std::vector<std::unique_ptr<PartStages::OnionSink>> parts;
  for (const uint32_t from : {0, 1, 2}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto part, receiver.Offline(OneOf(3, from, 1)));
    parts.push_back(std::move(part));
  }
  for (const int piece : {1, 2}) {
    SHOAL_ASSERT_OK(parts[static_cast<size_t>(piece - 1)]->Take(Bytes(kOnion)));
    EXPECT_TRUE(Soon([&] { return taken >= piece; }));
  }
  for (const auto& part : parts) {
    EXPECT_THAT(part->Wait(), StatusIs(absl::StatusCode::kDataLoss, "piece 2"));
  }
  // The last one has not sent its part yet, and need not.
  EXPECT_THAT(parts[2]->Take(Bytes(kOnion)), StatusIs(absl::StatusCode::kDataLoss, "piece 2"));
  EXPECT_EQ(taken, 2);
  EXPECT_FALSE(ran);
}

// It is decoded later, when nobody can be told any more.
TEST(PartStagesTest, WhatIsNoBatchIsRefusedAtOnce) {
  OneReceiver receiver(2);
  receiver.online = [] { return std::make_unique<BytesSource>(Bytes(kAnswer)); };
  const wire::ListPart part = OneOf(1, 0, 1, 15);
  const wire::QueryBatch batch = {.positions = {1, 14}, .tallies = {7, 8}};
  const Bytes encoded = wire::EncodeQueryBatch(batch, 15);
  for (size_t at = 0; at < encoded.size(); ++at) {
    Bytes changed = encoded;
    changed[at] ^= 0x80;
    if (wire::DecodeQueryBatch(changed, 15).ok()) continue;
    EXPECT_THAT(receiver.Online(part, std::move(changed)), StatusIs(kInvalid, "query batch")) << at;
  }
  EXPECT_THAT(receiver.Online(part, Bytes()), StatusIs(kInvalid, "query batch"));
  SHOAL_EXPECT_OK(receiver.Online(OneOf(1, 0, 1, 2)));  // position 0 has a query
}

TEST(PartStagesTest, TriesThatWereReplacedReserveNothing) {
  OneReceiver receiver(2);
  constexpr uint64_t kEach = 10'000;
  std::vector<std::unique_ptr<PartStages::OnionSink>> kept;  // the connections are still there
  const uint64_t all = receiver.spools().free_bytes();
  for (uint64_t attempt = 1; attempt <= 100; ++attempt) {
    auto part = receiver.Offline(OneOf(2, 0, attempt, kEach));
    // A stage may take a moment to notice that its try is over.
    EXPECT_TRUE(Soon([&] {
      if (!absl::IsResourceExhausted(part.status())) return true;
      part = receiver.Offline(OneOf(2, 0, ++attempt, kEach));
      return false;
    }));
    SHOAL_ASSERT_OK(part.status());
    kept.push_back(*std::move(part));
    EXPECT_GE(receiver.spools().free_bytes(), all - 2 * kEach * kOnion);
  }
  EXPECT_THAT(kept[0]->Take(Bytes(kOnion)), StatusIs(absl::StatusCode::kAborted, "a later try"));
}

TEST(PartStagesTest, ATryAtWorkIsNotReplaced) {
  OneReceiver receiver(2);
  std::atomic<bool> has_list = false, goes_on = false;
  receiver.offline = [&] {
    has_list = true;
    EXPECT_TRUE(Soon([&] { return goes_on.load(); }));
    return absl::OkStatus();
  };
  std::vector<std::unique_ptr<PartStages::OnionSink>> parts;
  for (const uint32_t from : {0, 1}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto part, receiver.Offline(OneOf(2, from, 1)));
    SHOAL_ASSERT_OK(part->Take(Bytes(kOnion)));
    parts.push_back(std::move(part));
  }
  EXPECT_TRUE(Soon([&] { return has_list.load(); }));
  EXPECT_THAT(receiver.Offline(OneOf(2, 0, 2)).status(),
              StatusIs(absl::StatusCode::kUnavailable, "still at work"));
  goes_on = true;
  for (const auto& part : parts) SHOAL_EXPECT_OK(part->Wait());
  SHOAL_EXPECT_OK(receiver.Offline(OneOf(2, 0, 2)).status());
}

// A try that waits for the other machines of its own party, which have no part of it, would wait
// for ever.
TEST(PartStagesTest, ATryThatWaitsForItsPartysOtherMachinesIsReplaced) {
  OneReceiver receiver(2);
  receiver.at_work = false;
  std::atomic<bool> goes_on = false;
  std::atomic<int> stages = 0;
  receiver.offline = [&] {
    if (++stages == 1) {
      EXPECT_TRUE(Soon([&] { return goes_on.load(); }));
    }
    return absl::OkStatus();
  };
  std::vector<std::unique_ptr<PartStages::OnionSink>> parts;
  for (const uint64_t attempt : {1, 2}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto part, receiver.Offline(OneOf(1, 0, attempt)));
    SHOAL_ASSERT_OK(part->Take(Bytes(kOnion)));
    if (attempt == 1) {
      EXPECT_TRUE(Soon([&] { return stages > 0; }));
    }
    parts.push_back(std::move(part));
  }
  SHOAL_EXPECT_OK(parts[1]->Wait());
  goes_on = true;
  parts.clear();

  stages = 0;
  std::atomic<bool> again = false;
  receiver.online = [&]() -> absl::StatusOr<std::unique_ptr<ByteSource>> {
    if (++stages == 1) {
      EXPECT_TRUE(Soon([&] { return again.load(); }));
    }
    return std::make_unique<BytesSource>(Bytes(kAnswer));
  };
  auto first = std::async(std::launch::async, [&] { return receiver.Online(OneOf(1, 0, 1)); });
  EXPECT_TRUE(Soon([&] { return stages > 0; }));
  SHOAL_EXPECT_OK(receiver.Online(OneOf(1, 0, 2)));
  again = true;
  EXPECT_THAT(first.get(), StatusIs(absl::StatusCode::kAborted, "a later try"));
}

TEST(PartStagesTest, OfflineStagesAreCounted) {
  OneReceiver receiver(2);
  std::vector<std::unique_ptr<PartStages::OnionSink>> parts;
  for (int round = 1; round <= PartStages::kMaxStages; ++round) {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto part, receiver.Offline(OneOf(2, 0, 1), round));
    parts.push_back(std::move(part));
  }
  EXPECT_THAT(receiver.Offline(OneOf(2, 0, 1), 1000).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "run already"));
}

TEST(PartStagesTest, ALaterOnlineTryWaitsForTheStageAndNotForItsAnswers) {
  OneReceiver receiver(2);
  std::atomic<bool> at_work = false, goes_on = false;
  int runs = 0;
  receiver.online = [&]() -> absl::StatusOr<std::unique_ptr<ByteSource>> {
    if (++runs == 1) {
      at_work = true;
      EXPECT_TRUE(Soon([&] { return goes_on.load(); }));
    }
    return std::make_unique<BytesSource>(Bytes(kAnswer));  // record 0 has a query
  };
  auto first = std::async(std::launch::async, [&] { return receiver.Online(OneOf(1, 0, 1)); });
  EXPECT_TRUE(Soon([&] { return at_work.load(); }));
  EXPECT_THAT(receiver.Online(OneOf(1, 0, 2)),
              StatusIs(absl::StatusCode::kUnavailable, "still at work"));
  goes_on = true;
  SHOAL_EXPECT_OK(first.get());
  // Once answers go out, the stage may be tried again.
  SHOAL_EXPECT_OK(receiver.Online(OneOf(1, 0, 3)));
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace shoal::shoald
