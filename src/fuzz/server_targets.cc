// What parties take: headers and lists of rounds, clients' requests at the frontend, the
// neighbours' messages, journals and configurations.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/fuzz/target.h"
#include "src/parallel/mutex.h"
#include "src/roster/testing/parties.h"
#include "src/round/header.h"
#include "src/round/live_rounds.h"
#include "src/server/journal.h"
#include "src/server/slices.h"
#include "src/server/testing/deployment.h"
#include "src/shoald/config.h"
#include "src/storage/file.h"
#include "src/wire/client.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::fuzz {
namespace {

using server::testing::Client;
using server::testing::Deployment;

template <typename Message>
bool Parsed(BytesView input, Message& message) {
  return message.ParseFromArray(input.data(), static_cast<int>(input.size()));
}

// A round with a client's onions and no queries yet. What an input changes stays for the next one;
// a round that has ended so is replaced.
class OpenRound {
 public:
  explicit OpenRound(bool offline_done) : offline_done_(offline_done) { Renew(); }

  void Renew() {
    deployment_ = std::make_unique<Deployment>(server::testing::DeploymentOptions{});
    const absl::StatusOr<round::Round> round = deployment_->Announce();
    SHOAL_CHECK(round.ok());
    round_ = std::make_unique<round::Round>(*round);
    client_ = std::make_unique<Client>(deployment_.get(), *round_);
    SHOAL_CHECK(client_->Obtain(3).ok());
    if (offline_done_) SHOAL_CHECK(deployment_->RunOffline(round_->id()).ok());
  }
  Deployment& deployment() { return *deployment_; }
  Client& client() { return *client_; }
  const round::Round& round() const { return *round_; }

 private:
  const bool offline_done_;
  std::unique_ptr<Deployment> deployment_;
  std::unique_ptr<round::Round> round_;
  std::unique_ptr<Client> client_;
};

// What honest clients and parties send in a round like `OpenRound(true)`: everything follows from
// the deployment's seed.
struct Honest {
  Honest() {
    OpenRound open(true);
    open.deployment().tamper(1).queries = [this](Bytes& bytes) { to_party_2 = bytes; };
    open.deployment().tamper(2).queries = [this](Bytes& bytes) { to_party_3 = bytes; };
    open.deployment().tamper(2).answers = [this](Bytes& bytes) { back_to_party_2 = bytes; };
    SHOAL_CHECK(open.client().Query({4, 5, 6}).ok());
    queries = open.client().QueriesRequest();
    SHOAL_CHECK(open.deployment().RunOnline(open.round().id()).ok());
  }
  wire::SubmitQueriesRequest queries;
  Bytes to_party_2, to_party_3, back_to_party_2;
};

void AddFrontendTargets(std::vector<Target>& targets) {
  const auto onions = std::make_shared<OpenRound>(false);
  wire::SubmitOnionsRequest submit;
  submit.set_round_id(ToString(onions->round().id()));
  submit.add_submissions(ToString(onions->client().Make().submission));
  targets.push_back(
      {.name = "submit_onions",
       .seeds = {InputOf(submit)},
       .parse =
           [onions](BytesView input) {
             wire::SubmitOnionsRequest request;
             if (!Parsed(input, request)) return false;
             const auto id = server::ParseRoundId(request.round_id());
             if (!id.ok()) return false;
             std::vector<BytesView> submissions;
             for (const std::string& one : request.submissions()) {
               submissions.push_back(AsBytes(one));
             }
             const bool taken =
                 onions->deployment().frontend().SubmitOnions(*id, submissions, std::nullopt).ok();
             if (taken && !onions->deployment().frontend().Stage(onions->round().id()).ok()) {
               onions->Renew();
             }
             return taken;
           },
       .mutations = 1000});

  const auto queries = std::make_shared<OpenRound>(true);
  targets.push_back({.name = "submit_queries",
                     .seeds = {InputOf(Honest().queries)},
                     .parse =
                         [queries](BytesView input) {
                           wire::SubmitQueriesRequest request;
                           return Parsed(input, request) &&
                                  queries->deployment().frontend().SubmitQueries(request).ok();
                         },
                     .mutations = 1000});

  const auto answered = std::make_shared<OpenRound>(true);
  SHOAL_CHECK(answered->client().Query({4, 5, 6}).ok());
  SHOAL_CHECK(answered->deployment().RunOnline(answered->round().id()).ok());
  targets.push_back({.name = "fetch_answers",
                     .seeds = {InputOf(answered->client().AnswersRequest())},
                     .parse =
                         [answered](BytesView input) {
                           wire::FetchAnswersRequest request;
                           return Parsed(input, request) &&
                                  answered->deployment().frontend().FetchAnswers(request).ok();
                         },
                     .mutations = 1000});
}

// What everybody takes of a round.
void AddRoundTargets(std::vector<Target>& targets) {
  const auto deployment =
      std::make_shared<server::testing::Deployment>(server::testing::DeploymentOptions{});
  const absl::StatusOr<round::Round> round = deployment->Announce();
  SHOAL_CHECK(round.ok());
  targets.push_back({.name = "round_header",
                     .seeds = {InputOf(round->wire())},
                     .parse =
                         [deployment](BytesView input) {
                           wire::SignedHeader header;
                           if (!header.ParseFromArray(input.data(), static_cast<int>(input.size())))
                             return false;
                           const bool taken =
                               round::CheckHeader(header.header(), 3, deployment->roster(),
                                                  deployment->table(), roster::testing::kNowS)
                                   .ok();
                           const bool verified =
                               round::Round::Verify(header, deployment->roster(),
                                                    deployment->table(), roster::testing::kNowS)
                                   .ok();
                           SHOAL_CHECK(taken || !verified);
                           return taken;
                         },
                     .mutations = 500});
  targets.push_back(
      {.name = "live_rounds",
       .seeds = {InputOf(deployment->frontend().Live())},
       .parse =
           [deployment](BytesView input) {
             wire::SignedLiveRounds live;
             return live.ParseFromArray(input.data(), static_cast<int>(input.size())) &&
                    round::CheckLiveRounds(live, deployment->roster(), roster::testing::kNowS).ok();
           },
       .mutations = 500});
}

void AddPartyTargets(std::vector<Target>& targets) {
  const auto open = std::make_shared<OpenRound>(false);
  const absl::StatusOr<wire::RoundHeader> draft = open->deployment().frontend().NewDraft();
  SHOAL_CHECK(draft.ok());
  const absl::StatusOr<wire::RoundHeader> extended =
      open->deployment().party(1).ExtendDraft(*draft);
  SHOAL_CHECK(extended.ok());
  targets.push_back({.name = "draft",
                     .seeds = {InputOf(*extended)},
                     .parse =
                         [open](BytesView input) {
                           wire::RoundHeader header;
                           if (!Parsed(input, header)) return false;
                           server::Party& party = open->deployment().party(2);
                           const bool taken = party.ExtendDraft(header).ok();
                           if (taken) {
                             // So that there is room for the next one.
                             SHOAL_CHECK(party.Withdraw(RoundCounter(header.counter())).ok());
                           }
                           return taken;
                         },
                     .mutations = 500});
  targets.push_back({.name = "live_list",
                     .seeds = {InputOf(open->deployment().frontend().Live())},
                     .parse =
                         [open](BytesView input) {
                           wire::SignedLiveRounds live;
                           return Parsed(input, live) &&
                                  open->deployment().party(3).TakeLive(live).ok();
                         },
                     .mutations = 500});
  // A list of onions of any length, for a round that is signed.
  targets.push_back({.name = "onion_list",
                     .seeds = {Bytes(64, 9)},
                     .parse =
                         [open](BytesView input) {
                           server::Party& party = open->deployment().party(3);
                           auto intake = party.BeginOffline(open->round().wire(), input.size());
                           return intake.ok() && (*intake)->Take(input).ok();
                         },
                     .mutations = 300});

  const auto online = std::make_shared<OpenRound>(true);
  targets.push_back(
      {.name = "chain_queries",
       .seeds = {Honest().to_party_3},
       .parse =
           [online](BytesView input) {
             return online->deployment().party(3).AnswerQueries(online->round().id(), input).ok();
           },
       .mutations = 500});
}

// A next party that answers proposals as the real one does, but for the bytes that an input
// changes: after a place (two bytes), those of a blob; then the length (two bytes), or all if it is
// 0. It says of reports and lists what the others of this file do not look at.
class ChangingLink final : public server::Link {
 public:
  explicit ChangingLink(server::ChainNode* real) : real_(real) {}
  void set_input(BytesView input) { input_ = input; }

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override {
    const auto genuine = real_->Propose(draft, live);
    SHOAL_CHECK(genuine.ok());
    Bytes bytes = InputOf(*genuine);
    Cursor cursor(input_);
    const size_t place = cursor.U16();
    const BytesView blob = cursor.Blob();
    for (size_t i = 0; i < blob.size() && place + i < bytes.size(); ++i) bytes[place + i] = blob[i];
    const size_t length = cursor.U16();
    if (length != 0) bytes.resize(length);
    wire::SignedHeader header;
    if (!Parsed(bytes, header)) return absl::InvalidArgumentError("no header");
    return header;
  }
  absl::Status Offline(const wire::SignedHeader&, const server::OwnRun&,
                       std::unique_ptr<ByteSource>) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<server::PartedSource>> Online(const Digest&, const server::OwnRun&,
                                                               server::QueriesOut) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<server::StageReports> Reports(const Digest&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<server::ListAnswer> Live(const wire::SignedLiveRounds&) override {
    return absl::UnimplementedError("");
  }

 private:
  server::ChainNode* const real_;
  BytesView input_;
};

// What party 3 answers to party 2: headers and answers. (Its reports and what it lacks of lists are
// among the formats.)
void AddAnswersOfTheNextParty(std::vector<Target>& targets) {
  struct Middle {
    Deployment deployment{server::testing::DeploymentOptions{}};
    ChangingLink link{&deployment.node(3)};
    server::ChainNode node{&deployment.party(2), &link};
  };
  const auto middle = std::make_shared<Middle>();
  targets.push_back({.name = "signed_header",
                     .seeds = {{}},
                     .parse =
                         [middle](BytesView input) {
                           Deployment& deployment = middle->deployment;
                           const auto draft = deployment.frontend().NewDraft();
                           SHOAL_CHECK(draft.ok());
                           const auto extended = deployment.party(1).ExtendDraft(*draft);
                           SHOAL_CHECK(extended.ok());
                           middle->link.set_input(input);
                           const auto header =
                               middle->node.Propose(*extended, deployment.frontend().Live());
                           // What party 2 signs is what it drafted, with party 3's key at the end.
                           SHOAL_CHECK(!header.ok() ||
                                       (header->header().onion_keys_size() == 3 &&
                                        header->header().onion_keys(0) == extended->onion_keys(0)));
                           // Ends the round everywhere, so that there is room for the next one.
                           const RoundCounter counter(draft->counter());
                           deployment.frontend().Withdraw(counter);
                           SHOAL_CHECK(deployment.SendList().ok());
                           return header.ok();
                         },
                     .mutations = 200});

  struct Online {
    OpenRound open{true};
    Honest honest;
    void Take() {
      SHOAL_CHECK(open.deployment().party(2).Queries(open.round().id(), honest.to_party_2).ok());
    }
  };
  const auto online = std::make_shared<Online>();
  online->Take();
  targets.push_back({.name = "chain_answers",
                     .seeds = {online->honest.back_to_party_2},
                     .parse =
                         [online](BytesView input) {
                           server::Party& party = online->open.deployment().party(2);
                           server::OnePart source(std::make_unique<BytesSource>(ToBytes(input)));
                           if (!party.Answers(online->open.round().id(), source).ok()) return false;
                           // It takes no others from now on.
                           online->open.Renew();
                           online->Take();
                           return true;
                         },
                     .mutations = 100});
}

// A file `journal`, and its records as blobs: nearly every change of the file breaks a checksum,
// and what is behind it would not be tested.
constexpr size_t kChecksumBytes = 16;
Bytes RecordsInput(BytesView journal) {
  Bytes input;
  while (!journal.empty()) {
    const size_t size = LoadLe<uint32_t>(journal.data());
    AppendBlob(journal.subspan(4 + kChecksumBytes, size), input);
    journal = journal.subspan(4 + kChecksumBytes + size);
  }
  return input;
}
Bytes JournalOf(BytesView input) {
  Bytes journal;
  for (Cursor cursor(input); !cursor.rest().empty();) {
    const BytesView record = cursor.Blob();
    AppendLe(journal, static_cast<uint32_t>(record.size()));
    const Digest checksum = Transcript("shoal journal record v1").Blob(record).Finish();
    Append(journal, BytesView(checksum).first(kChecksumBytes));
    Append(journal, record);
  }
  return journal;
}

// What a journal takes, it takes again from the summary that it makes of it, and remembers as much.
bool ParseRecords(BytesView input) {
  const std::string path = FileOf(JournalOf(input), "journal");
  const std::string directory = path.substr(0, path.rfind('/'));
  auto journal = server::FileJournal::Open(directory, {.compact_bytes = 1});
  if (!journal.ok()) return false;
  const RoundCounter highest = (*journal)->highest_round();
  SHOAL_CHECK((*journal)->CommitEpoch("fuzz", ~uint64_t{0}, {1}).ok() ||
              (*journal)->highest_epoch("fuzz") == ~uint64_t{0});
  const uint64_t epoch = (*journal)->highest_epoch("table");
  journal->reset();
  journal = server::FileJournal::Open(directory);
  SHOAL_CHECK(journal.ok());
  SHOAL_CHECK((*journal)->highest_round() == highest);
  SHOAL_CHECK((*journal)->highest_epoch("table") == epoch);
  return true;
}

// What a frontend kept of its rounds before it was restarted.
Bytes KeptRounds() {
  Deployment deployment(server::testing::DeploymentOptions{});
  SHOAL_CHECK(deployment.Announce().ok());
  server::testing::Disk& disk = deployment.disk(1);
  const MutexLock lock(disk.mutex);
  return disk.rounds;
}

bool ParseKeptRounds(Deployment& deployment, BytesView input) {
  {
    server::testing::Disk& disk = deployment.disk(1);
    const MutexLock lock(disk.mutex);
    disk.rounds = ToBytes(input);
  }
  deployment.Restart(1);
  const std::vector<wire::RoundReport> told = deployment.frontend().Reports();
  for (const wire::RoundReport& report : told) {
    SHOAL_CHECK(report.round().state() == wire::ABORTED);
  }
  return !told.empty();
}

// Parts of a list, as machines of the party before announce them: rank, count, senders, then for
// each part its sender, the list's length and the part. Accepted if they are the slice.
bool ParseTiling(BytesView input) {
  Cursor cursor(input);
  const uint32_t count = 1 + cursor.U8() % 64;
  const uint32_t rank = cursor.U8() % count;
  const uint32_t senders = 1 + cursor.U8() % 64;
  server::Tiling tiling(rank, count, senders, 50'000);
  std::map<uint32_t, server::ListPart> taken;
  while (!cursor.rest().empty()) {
    const uint32_t from = cursor.U8();
    // The last byte's bits make the numbers larger than any list.
    server::ListPart part{cursor.U16(), cursor.U16(), cursor.U16()};
    const uint8_t large = cursor.U8();
    if ((large & 1) != 0) part.records = ~part.records;
    if ((large & 2) != 0) part.first = ~part.first;
    if ((large & 4) != 0) part.count = ~part.count;
    if (tiling.Add(from, part).ok()) SHOAL_CHECK(taken.emplace(from, part).second);
  }
  if (!tiling.complete()) return false;
  uint64_t next = tiling.slice().begin;
  for (const auto& [from, part] : taken) {
    SHOAL_CHECK(from < senders && part.first == next && part.records <= 50'000);
    SHOAL_CHECK(tiling.slice().end == part.records * (rank + 1) / count);
    next = part.end();
  }
  SHOAL_CHECK(next == tiling.slice().end);
  return true;
}

// What honest senders with even runs announce to the machine.
Bytes TilingInput(uint8_t rank, uint8_t count, uint8_t senders, uint16_t records) {
  Bytes input = {static_cast<uint8_t>(count - 1), rank, static_cast<uint8_t>(senders - 1)};
  for (uint8_t from = 0; from < senders; ++from) {
    const uint64_t begin = uint64_t{records} * from / senders;
    const server::ListPart run{records, begin, uint64_t{records} * (from + 1) / senders - begin};
    for (const server::PartToSend& shipment : server::PartsToSend(run, from, count)) {
      if (shipment.to != rank) continue;
      input.push_back(from);
      for (const uint64_t number : {run.records, shipment.part.first, shipment.part.count}) {
        input.push_back(static_cast<uint8_t>(number));
        input.push_back(static_cast<uint8_t>(number >> 8));
      }
      input.push_back(0);
    }
  }
  return input;
}

}  // namespace

void AddServerTargets(std::vector<Target>& targets) {
  AddRoundTargets(targets);
  AddFrontendTargets(targets);
  AddPartyTargets(targets);
  AddAnswersOfTheNextParty(targets);

  const std::string seed = FileOf({}, "seed-journal");
  const std::string directory = seed.substr(0, seed.rfind('/')) + "/of-seed";
  std::filesystem::remove_all(directory);
  {
    auto journal = server::FileJournal::Open(directory);
    SHOAL_CHECK(journal.ok());
    SHOAL_CHECK((*journal)->CommitRound(RoundCounter(5), server::Content::kHeader, {1}).ok());
    SHOAL_CHECK((*journal)->CommitEpoch("table", 3, {2}).ok());
    SHOAL_CHECK((*journal)->EndRound(RoundCounter(5)).ok());
  }
  const absl::StatusOr<std::string> records = ReadFile(directory + "/journal");
  SHOAL_CHECK(records.ok());
  {
    auto journal = server::FileJournal::Open(directory, {.compact_bytes = 1});
    SHOAL_CHECK(journal.ok());
    SHOAL_CHECK((*journal)->CommitEpoch("table", 4, {2}).ok());
  }
  const absl::StatusOr<std::string> summary = ReadFile(directory + "/journal");
  SHOAL_CHECK(summary.ok());
  targets.push_back({.name = "journal",
                     .seeds = {InputOf(*records), InputOf(*summary)},
                     .parse =
                         [](BytesView input) {
                           const std::string path = FileOf(input, "journal");
                           const std::string in = path.substr(0, path.rfind('/'));
                           const auto journal = server::FileJournal::Open(in);
                           return journal.ok();
                         },
                     .mutations = 500});
  targets.push_back({.name = "journal_records",
                     .seeds = {RecordsInput(AsBytes(*records)), RecordsInput(AsBytes(*summary))},
                     .parse = ParseRecords,
                     .mutations = 300});
  targets.push_back(
      {.name = "kept_rounds",
       .seeds = {KeptRounds()},
       .parse = [restarted = std::make_shared<Deployment>(server::testing::DeploymentOptions{})](
                    BytesView input) { return ParseKeptRounds(*restarted, input); },
       .mutations = 300});
  targets.push_back(
      {.name = "list_tiling",
       .seeds = {TilingInput(0, 1, 1, 1000), TilingInput(1, 2, 4, 1000),
                 TilingInput(2, 4, 3, 50'000), TilingInput(1, 3, 2, 1), TilingInput(3, 4, 3, 0)},
       .parse = ParseTiling});
  targets.push_back(
      {.name = "server_config",
       .seeds = {InputOf("party: 1\nkeys_directory: \"keys\"\nroster_file: \"roster\"\n"
                         "pinned_parties_file: \"pinned\"\ntable_directory: \"table\"\n"
                         "state_directory: \"state\"\nrounds { open_ahead: 2 max_rounds: 8 }\n")},
       .parse = [](BytesView input) {
         return shoald::ReadServerConfig(FileOf(input, "server-config")).ok();
       }});
}

std::vector<Target> ProgramTargets() {
  std::vector<Target> targets;
  AddClientTargets(targets);
  AddServerTargets(targets);
  AddServiceTargets(targets);
  AddDoorTargets(targets);
  return targets;
}

}  // namespace shoal::fuzz
