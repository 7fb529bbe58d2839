#include "src/sim/worlds.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "spdlog/spdlog.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/chain_client.h"
#include "src/client/device.h"
#include "src/client/live_deployment.h"
#include "src/client/retrieval.h"
#include "src/client/state.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"
#include "src/sharing/sharing.h"
#include "src/sim/client_transport.h"
#include "src/sim/disk.h"
#include "src/sim/network.h"
#include "src/sim/oracles.h"
#include "src/sim/outcome_bytes.h"
#include "src/sim/party_server.h"
#include "src/sim/runner.h"
#include "src/sim/scheduler.h"
#include "src/wire/client.pb.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::sim {
namespace {

using wire::FrameType;

constexpr Time kFirstLookup = kSecond, kBetweenLookups = 30 * kSecond;
constexpr Time kBetweenClients = 20 * kMillisecond, kBetweenStatuses = kSecond / 2;
constexpr Time kLongest = 300 * kSecond;
// From a proposal until noise is made, which takes no simulated time, and before clients come.
constexpr Time kUntilReports = 50 * kMillisecond;
// Of an answer tag, if answers have any: Poly1305, whose last step adds a number that the slot's
// secrets give and that is used once.
constexpr size_t kTagBytes = 16;
constexpr Address kStatusReader = kFirstClient + 40;
constexpr uint8_t kMark[8] = {0x6d, 0x61, 0x72, 0x6b, 0x5a, 0xa5, 0x01, 0x80};
constexpr uint8_t kOtherMark[8] = {1, 2, 3, 4, 5, 6, 7, 8};

void XorMark(MutableBytes bytes, BytesView mark) {
  for (size_t i = 0; i < mark.size(); ++i) bytes[i] ^= mark[i];
}

// What a frame holds, if it is of a kind that honest parties send in rounds; null otherwise.
std::unique_ptr<google::protobuf::Message> MessageOf(FrameType type, bool answer,
                                                     const std::string& control) {
  const auto parse = [&](const google::protobuf::Message& request,
                         const google::protobuf::Message& response) {
    std::unique_ptr<google::protobuf::Message> message(answer ? response.New() : request.New());
    if (!message->ParseFromString(control)) message = nullptr;
    return message;
  };
  switch (type) {
    case FrameType::kProposeRound:
      return parse(wire::ProposeRoundRequest(), wire::ProposeRoundResponse());
    case FrameType::kOffline:
      return parse(wire::OfflineRequest(), wire::OfflineResponse());
    case FrameType::kOnline:
      return parse(wire::OnlineRequest(), wire::OnlineResponse());
    case FrameType::kRoundReports:
      return parse(wire::RoundReportsRequest(), wire::RoundReportsResponse());
    case FrameType::kLiveRounds:
      return parse(wire::LiveRoundsRequest(), wire::LiveRoundsResponse());
    case FrameType::kListRounds:
      return parse(wire::ListRoundsRequest(), wire::ListRoundsResponse());
    case FrameType::kWaitRound:
      return parse(wire::WaitRoundRequest(), wire::WaitRoundResponse());
    case FrameType::kGetStatus:
      return parse(wire::GetStatusRequest(), wire::GetStatusResponse());
    default:
      return nullptr;
  }
}

// Numbers and texts as they are, bytes by their length.
std::string Form(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& values = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  values.ListFields(message, &fields);
  std::string out = "{";
  for (const FieldDescriptor* const field : fields) {
    absl::StrAppend(&out, field->name(), ":");
    const int count = field->is_repeated() ? values.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const bool many = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_MESSAGE:
          absl::StrAppend(&out, Form(many ? values.GetRepeatedMessage(message, field, i)
                                          : values.GetMessage(message, field)));
          break;
        case FieldDescriptor::CPPTYPE_STRING: {
          const std::string text =
              many ? values.GetRepeatedString(message, field, i) : values.GetString(message, field);
          field->type() == FieldDescriptor::TYPE_BYTES
              ? absl::StrAppend(&out, "<", text.size(), " bytes>")
              : absl::StrAppend(&out, text);
          break;
        }
        case FieldDescriptor::CPPTYPE_UINT32:
          absl::StrAppend(&out, many ? values.GetRepeatedUInt32(message, field, i)
                                     : values.GetUInt32(message, field));
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          absl::StrAppend(&out, many ? values.GetRepeatedUInt64(message, field, i)
                                     : values.GetUInt64(message, field));
          break;
        case FieldDescriptor::CPPTYPE_INT32:
          absl::StrAppend(&out, many ? values.GetRepeatedInt32(message, field, i)
                                     : values.GetInt32(message, field));
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          absl::StrAppend(&out, many ? values.GetRepeatedInt64(message, field, i)
                                     : values.GetInt64(message, field));
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          absl::StrAppend(&out, many ? values.GetRepeatedDouble(message, field, i)
                                     : values.GetDouble(message, field));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          absl::StrAppend(&out, many ? values.GetRepeatedBool(message, field, i)
                                     : values.GetBool(message, field));
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          absl::StrAppend(&out, many ? values.GetRepeatedEnumValue(message, field, i)
                                     : values.GetEnumValue(message, field));
          break;
        default:
          SHOAL_CHECK(false);  // no message of this protocol has others
      }
      absl::StrAppend(&out, ";");
    }
  }
  return out + "}";
}

// What the slots of honest clients give: their tallies and answers at every place of the chain,
// computed from their secrets and rows. A trick that changes a tally is taken into account.
class Truth {
 public:
  Truth(const Universe& universe, std::shared_ptr<const Bytes> answers)
      : parties_(universe.parties()),
        answer_bytes_(universe.table(1)->answer_bytes()),
        answers_(std::move(answers)) {}

  size_t answer_bytes() const { return answer_bytes_; }

  void Add(size_t client, const std::string& round, uint32_t number, uint32_t tally,
           std::vector<Bytes> seeds) {
    Slot slot{.name = absl::StrCat("client ", client, "'s slot ", number, " of ",
                                   Hex(AsBytes(round).first(4))),
              .client = client,
              .number = number,
              .round = round,
              .seeds = std::move(seeds)};
    slot.tallies.resize(parties_ + 1);
    slot.answers.resize(parties_ + 1);
    slots_.push_back(std::move(slot));
    Set(slots_.size() - 1, 0, tally);
  }

  // The slot of the tally that comes to party `to`; null if it is no honest slot's.
  struct Slot {
    std::string name;
    size_t client;
    uint32_t number;
    std::string round;
    std::vector<Bytes> seeds;            // party 1's first
    std::vector<uint32_t> tallies = {};  // [j]: for party j + 1; the last one is the row
    std::vector<Bytes> answers = {};     // [j]: that party j gives, j > 0
  };
  const Slot* OfTally(const std::string& round, uint32_t to, uint32_t tally) const {
    const auto found = by_tally_.find({round, to, tally});
    return found == by_tally_.end() ? nullptr : &slots_[found->second];
  }
  // The same of the answer that party `from` gives, which begins with these bytes.
  const Slot* OfAnswer(const std::string& round, uint32_t from, BytesView answer) const {
    if (answer.size() < answer_bytes_) return nullptr;
    const auto found = by_answer_.find({round, from, ToBytes(answer.first(answer_bytes_))});
    return found == by_answer_.end() ? nullptr : &slots_[found->second];
  }

  // The slot's tally for party `to` is another one from now on.
  void Change(const Slot* slot, uint32_t to, uint32_t tally) {
    Set(static_cast<size_t>(slot - slots_.data()), to - 1, tally);
  }

 private:
  void Set(size_t which, uint32_t level, uint32_t tally) {
    Slot& slot = slots_[which];
    Digest id = {};
    std::ranges::copy(AsBytes(slot.round), id.begin());
    for (;; ++level) {
      slot.tallies[level] = tally;
      if (level == parties_) break;
      by_tally_[{slot.round, level + 1, tally}] = which;
      tally = sharing::Advance(sharing::Expand(slot.seeds[level], id).share, tally);
    }
    // A row that the table does not have is zeros.
    Bytes answer(answer_bytes_);
    if ((uint64_t{tally} + 1) * answer_bytes_ <= answers_->size()) {
      std::copy_n(answers_->begin() + static_cast<ptrdiff_t>(tally * answer_bytes_), answer_bytes_,
                  answer.begin());
    }
    for (uint32_t party = parties_; party > 0; --party) {
      sharing::XorMask(slot.seeds[party - 1], id, answer);
      slot.answers[party] = answer;
      by_answer_[{slot.round, party, answer}] = which;
    }
  }

  const uint32_t parties_;
  const size_t answer_bytes_;
  const std::shared_ptr<const Bytes> answers_;  // of all rows, as the last party serves them
  std::vector<Slot> slots_;
  std::map<std::tuple<std::string, uint32_t, uint32_t>, size_t> by_tally_;
  std::map<std::tuple<std::string, uint32_t, Bytes>, size_t> by_answer_;
};

class Play {
 public:
  Play(const Universe& universe, const World& world);
  Seen Run();

 private:
  struct Party {
    Disk disk;
    Machine machine;
    Process process;
    Rng randomness;
    std::unique_ptr<PartyServer> server;
    // Whether a list of onions is committed to: clients have slots in that round.
    bool committed = false;
    Party(uint64_t inode, uint64_t seed) : disk(inode), randomness(seed) {}
  };
  struct Client {
    Address address = 0;
    Machine machine;
    Process process;
    Rng randomness;
    client::MemoryStateStore store;
    bool done = false;
    explicit Client(uint64_t seed) : randomness(seed) {}
  };

  bool IsOurs(Address address) const {
    if (address == kStatusReader) return true;
    return address < kFirstClient && Has(world_.coalition, PartyAt(address));
  }
  // Whether what `from` sends reaches the coalition from an honest sender.
  bool Reaches(Address from, Address to) const {
    if (IsOurs(from)) return false;
    const bool at_door = from >= kFirstClient || to >= kFirstClient;
    return IsOurs(to) || (at_door && (world_.coalition & kDoor) != 0);
  }
  bool MeetsClients() const { return (world_.coalition & kDoor) != 0 || Has(world_.coalition, 1); }
  Party& party(uint32_t number) { return *parties_[number - 1]; }
  void Problem(const std::string& what) {
    if (seen_.problem.empty()) seen_.problem = what;
  }

  void Boot(uint32_t number);
  void RunClient(size_t number);
  absl::Status LookUp(Client& client, const std::vector<size_t>& keys, std::vector<bool>& served);
  void ReadStatus();

  void Request(Address from, Address to, wire::Frame& request);
  void Answer(Address from, Address to, const wire::Frame& request, Network::Answer& answer);
  // Of a request with queries that an honest client sends.
  void Learn(Address from, const wire::Frame& request);
  // Which of clients 0 and 1 comes first in a batch that leaves `from`.
  void SeeOrder(Address from, Address to, const wire::Frame& request);
  void See(Address from, Address to, FrameType type, const char* what, const std::string& content);
  void AddTold(uint32_t party, const std::string& what);
  void Tell(Address from, Address to, const wire::Frame& frame, FrameType type, bool answer);
  void TrickRequest(Address from, Address to, wire::Frame& request);
  void TrickAnswer(Address from, Address to, const wire::Frame& request, Network::Answer& answer);
  void AskEarly(Address from, Address to, const wire::Frame& proposed);

  // Names in place of what honest slots give, and hex of all else. `sender`: 0 for clients. A
  // sender's second content of a name stays as it is.
  std::string NameTally(Address sender, const std::string& round, uint32_t to, uint32_t tally);
  std::string NameAnswer(Address sender, const std::string& round, uint32_t from, BytesView answer);
  std::string Once(Address sender, std::string name, BytesView content);
  std::string Batch(Address from, Address to, const wire::Frame& request);
  absl::StatusOr<wire::QueryBatch> Decode(Address to, const std::string& round,
                                          const wire::Frame& request) const;

  const Universe& universe_;
  const World world_;
  Rng seeds_;
  Scheduler scheduler_;
  Network network_;
  std::shared_ptr<Bytes> served_rows_;
  Truth truth_;
  std::vector<std::unique_ptr<Party>> parties_;
  std::vector<std::unique_ptr<Client>> clients_;
  Machine reader_machine_{.name = "status"};
  Process reader_{.machine = &reader_machine_};
  Rng reader_randomness_;
  // By round and receiver.
  std::map<std::pair<std::string, Address>, uint32_t> positions_;
  std::map<std::pair<std::string, Address>, bool> comes_first_;  // client 0, before client 1
  std::map<std::pair<Address, std::string>, Bytes> once_;
  std::set<std::string> learnt_, played_;
  std::map<uint32_t, std::vector<std::string>> told_;
  Seen seen_;
};

Play::Play(const Universe& universe, const World& world)
    : universe_(universe),
      world_(world),
      seeds_(world.seed * 0x9E3779B97F4A7C15u + 11),
      scheduler_(seeds_.Next()),
      network_(&scheduler_, seeds_.Next()),
      served_rows_(std::make_shared<Bytes>(
          *std::static_pointer_cast<const Bytes>(universe.Epoch(1, universe.parties()).holder))),
      truth_(universe, served_rows_),
      reader_randomness_(seeds_.Next()) {
  const uint32_t last = universe.parties();
  if (world.tricks.marks_row && Has(world.coalition, last)) {
    // The row that client 0 asks in the first world.
    const auto row =
        universe.table(1)->content().map().RowOf(AsBytes(Universe::Key(world.tricks.marked_key)));
    SHOAL_CHECK(row.ok());
    XorMark(MutableBytes(*served_rows_).subspan(*row * truth_.answer_bytes()), kMark);
  }
  for (uint32_t number = 1; number <= last; ++number) {
    const uint64_t seed = seeds_.Next();
    parties_.push_back(std::make_unique<Party>(
        uint64_t{number} * 1'000'000,
        Has(world.coalition, number) ? seed : seed + world.honest_secrets * 0xD1342543DE82EF95u));
    Party& made = *parties_.back();
    made.machine = {.name = absl::StrCat("party ", number), .disk = &made.disk};
    made.disk.on_write = [&made](const Disk::File& file) {
      if (file.path != "/sim/state/journal") return;
      for (const BytesView record : RecordsOf(file.seen)) {
        made.committed |= IsContent(record, server::Content::kOfflineInput);
      }
    };
    made.process = {.machine = &made.machine, .randomness = &made.randomness};
  }
  for (size_t i = 0; i < world.lookups.size(); ++i) {
    clients_.push_back(std::make_unique<Client>(seeds_.Next()));
    Client& made = *clients_.back();
    made.address = kFirstClient + static_cast<Address>(i);
    made.machine = {.name = absl::StrCat("client ", i)};
    made.process = {.machine = &made.machine, .randomness = &made.randomness};
  }
  reader_.randomness = &reader_randomness_;
  network_.on_request = [this](Address from, Address to, wire::Frame& request) {
    Request(from, to, request);
  };
  network_.on_answer = [this](Address from, Address to, const wire::Frame& request,
                              Network::Answer& answer) { Answer(from, to, request, answer); };
}

void Play::Boot(uint32_t number) {
  Party& self = party(number);
  PartyServer::Options options{.universe = &universe_,
                               .network = &network_,
                               .process = &self.process,
                               .address = static_cast<Address>(number),
                               .epoch = 1,
                               .stage_limit_s = 30};
  options.rounds.set_onions_window_s(2);
  options.rounds.set_queries_window_s(2);
  options.rounds.set_answers_window_s(3);
  options.rounds.set_max_slots(64);
  options.rounds.set_max_rounds(4);
  options.events.stage_done = [this, number](const wire::StageReport& report) {
    if (Has(world_.coalition, number) || party(number).committed) return;
    AddTold(number, absl::StrCat("to its monitoring: ", Form(report)));
  };
  if (number == universe_.parties()) {
    options.alter_table = [this](server::TableEpoch& epoch) {
      epoch.holder = served_rows_;
      epoch.answers.bytes = *served_rows_;
    };
  }
  auto server = PartyServer::Start(std::move(options));
  if (!server.ok()) return Problem(server.status().ToString());
  self.server = *std::move(server);
}

// --- clients ---

void Play::RunClient(size_t number) {
  Client& self = *clients_[number];
  const std::vector<size_t>& keys = world_.lookups[number];
  const bool at_once = world_.over_rounds && number == 0;
  std::vector<bool>& served = seen_.served[number];
  for (size_t i = 0; i < (at_once ? 1 : keys.size()); ++i) {
    // Whenever the one before has ended.
    const Time begins = kFirstLookup + static_cast<Time>(i) * kBetweenLookups +
                        static_cast<Time>(number) * kBetweenClients;
    scheduler_.Sleep(std::max<Time>(0, begins - scheduler_.now()));
    const absl::Status status = LookUp(self, at_once ? keys : std::vector<size_t>{keys[i]}, served);
    if (!status.ok()) {
      served.push_back(false);
      if (world_.verbose)
        std::fprintf(stderr, "client %zu: %s\n", number, status.ToString().c_str());
    }
  }
  self.done = true;
}

absl::Status Play::LookUp(Client& client, const std::vector<size_t>& keys,
                          std::vector<bool>& served) {
  SystemRandom random;
  const UndisturbedClock clock;
  ThreadPool pool(1);
  ClientTransport transport(&network_, client.address);
  const client::Environment environment{
      .clock = &clock, .random = &random, .pool = &pool, .sleep = [this](uint32_t ms) {
        scheduler_.Sleep(ms * kMillisecond);
      }};
  SHOAL_ASSIGN_OR_RETURN(
      const auto live,
      client::LiveDeployment::Open(&transport, &universe_.pins(), &client.store, environment));
  client::ChainOptions options;
  options.pad_to = 1;
  options.connections = 1;
  options.max_attempts = client::kMaxAttempts;
  options.timeout_s = 120;
  if (world_.over_rounds) options.beyond_phi = client::BeyondPhi::kOverRounds;
  SHOAL_ASSIGN_OR_RETURN(const auto chain,
                         client::ChainClient::Create(&live->current(), options, &transport,
                                                     &client.store, environment));
  std::vector<Bytes> names;
  for (const size_t key : keys) names.push_back(ToBytes(AsBytes(Universe::Key(key))));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<client::Lookup> results,
                         client::LookUp(live->current(), *chain, names, environment));
  for (size_t i = 0; i < results.size(); ++i) {
    const bool found = results[i].outcome == client::Lookup::Outcome::kFound;
    if (found && AsText(results[i].value) != Universe::Value(keys[i], 1)) {
      Problem("a client believes a wrong value");
    }
    served.push_back(found);
  }
  return absl::OkStatus();
}

// Anybody may.
void Play::ReadStatus() {
  for (;;) {
    scheduler_.Sleep(kBetweenStatuses);
    network_
        .Call(kStatusReader, 1, wire::MakeFrame(FrameType::kGetStatus, wire::GetStatusRequest()),
              10 * kSecond)
        .IgnoreError();
  }
}

void Play::Learn(Address from, const wire::Frame& request) {
  if (request.type != FrameType::kSubmitQueries || from < kFirstClient || from == kStatusReader) {
    return;
  }
  const auto number = static_cast<size_t>(from - kFirstClient);
  Client& client = *clients_[number];
  wire::SubmitQueriesRequest message;
  if (!message.ParseFromString(request.control)) return Problem("no queries");
  if (!learnt_.insert(absl::StrCat(from, " ", message.round_id())).second) return;
  for (const client::HeldRound& held : client.store.state().rounds) {
    if (AsText(held.id) != message.round_id()) continue;
    const auto round =
        round::Round::Verify(held.header, universe_.roster(), universe_.Epoch(1, 1).facts,
                             held.header.header().announced_s());
    if (!round.ok()) return Problem(round.status().ToString());
    const size_t parties = universe_.parties();
    ThreadPool pool(1);
    const SecretVector<uint8_t> seeds =
        client::SeedsOf(*round, held.Onions(0, held.rows.size()), &pool);
    size_t onion = 0;
    for (const client::OnionSubmission& submission : held.submissions) {
      for (uint32_t k = 0; k < submission.count && onion < held.rows.size(); ++k, ++onion) {
        std::vector<Bytes> of_slot;
        std::vector<sharing::QueryShare> shares;
        for (size_t j = 0; j < parties; ++j) {
          const BytesView seed = BytesView(seeds).subspan((onion * parties + j) * 32, 32);
          of_slot.push_back(ToBytes(seed));
          shares.push_back(sharing::Expand(seed, held.id).share);
        }
        truth_.Add(number, message.round_id(), *submission.first_slot + k,
                   sharing::FirstTally(shares, held.rows[onion]), std::move(of_slot));
        if (number == 0) seen_.asked.push_back(held.rows[onion]);
      }
    }
    return;
  }
  Problem("queries of a round that the client does not hold");
}

// --- what the coalition sees ---

std::string Play::Once(Address sender, std::string name, BytesView content) {
  const auto [known, is_new] = once_.try_emplace({sender, name}, ToBytes(content));
  if (is_new || std::ranges::equal(known->second, content)) return "[" + name + "]";
  return absl::StrCat("second content of ", name, ": ", Hex(content));
}

std::string Play::NameTally(Address sender, const std::string& round, uint32_t to, uint32_t tally) {
  uint8_t bytes[4];
  StoreLe(bytes, tally);
  const Truth::Slot* const slot = truth_.OfTally(round, to, tally);
  if (slot == nullptr) return Hex(bytes);
  return Once(sender, absl::StrCat("tally of ", slot->name, " for party ", to), bytes);
}

std::string Play::NameAnswer(Address sender, const std::string& round, uint32_t from,
                             BytesView answer) {
  const Truth::Slot* const slot = truth_.OfAnswer(round, from, answer);
  if (slot == nullptr) return Hex(answer);
  std::string name = absl::StrCat("answer of party ", from, " to ", slot->name);
  const size_t more = answer.size() - truth_.answer_bytes();
  if (more == kTagBytes) {
    name += " with its tag";
  } else if (more > 0) {
    absl::StrAppend(&name, " and ", Hex(answer.last(more)));
  }
  return Once(sender, std::move(name), answer);
}

absl::StatusOr<wire::QueryBatch> Play::Decode(Address to, const std::string& round,
                                              const wire::Frame& request) const {
  const auto found = positions_.find({round, to});
  if (found == positions_.end()) return absl::NotFoundError("no list came before");
  return wire::DecodeQueryBatch(request.bulk, found->second);
}

std::string Play::Batch(Address from, Address to, const wire::Frame& request) {
  wire::OnlineRequest message;
  if (!message.ParseFromString(request.control)) return "no message";
  const auto batch = Decode(to, message.round_id(), request);
  if (!batch.ok()) return absl::StrCat(batch.status().ToString(), " ", Hex(request.bulk));
  std::string out = absl::StrCat(Hex(AsBytes(request.control)), " of ",
                                 positions_.at({message.round_id(), to}), ":");
  for (size_t i = 0; i < batch->positions.size(); ++i) {
    absl::StrAppend(
        &out, " ", batch->positions[i], "=",
        NameTally(from, message.round_id(), static_cast<uint32_t>(to), batch->tallies[i]));
  }
  return out;
}

void Play::SeeOrder(Address from, Address to, const wire::Frame& request) {
  wire::OnlineRequest message;
  if (!message.ParseFromString(request.control)) return;
  const std::string& round = message.round_id();
  const auto batch = Decode(to, round, request);
  if (!batch.ok()) return;
  std::vector<const Truth::Slot*> slots;
  for (const uint32_t tally : batch->tallies) {
    const Truth::Slot* const slot = truth_.OfTally(round, static_cast<uint32_t>(to), tally);
    if (slot != nullptr && slot->client < 2) slots.push_back(slot);
  }
  if (slots.size() != 2 || slots[0]->client == slots[1]->client) return;
  const bool comes_first = slots[0]->client == 0;
  // Not again, when a batch comes again.
  if (!comes_first_.try_emplace({round, to}, comes_first).second || IsOurs(from)) return;
  bool came_first = (slots[0]->number < slots[1]->number) == comes_first;
  if (from != 1) {
    const auto before = comes_first_.find({round, from});
    if (before == comes_first_.end()) return;
    came_first = before->second;
  }
  ++seen_.pairs;
  seen_.exchanged += came_first != comes_first;
}

void Play::See(Address from, Address to, FrameType type, const char* what,
               const std::string& content) {
  seen_.view.push_back(absl::StrCat(scheduler_.now(), " ", from, " to ", to, ", ", what,
                                    " of type ", static_cast<int>(type), ": ", content));
  if (world_.verbose) std::fprintf(stderr, "%s\n", seen_.view.back().c_str());
}

std::string BriefOf(const wire::Frame& frame) {
  return absl::StrCat(frame.control.size(), " and ", frame.bulk.size(), " bytes, ",
                      Hex(BytesView(Transcript("shoal sim seen v1")
                                        .Blob(AsBytes(frame.control))
                                        .Blob(frame.bulk)
                                        .Finish())
                              .first(16)));
}

void Play::AddTold(uint32_t party, const std::string& what) {
  // Lists of honest parties have other lengths with other noise, and take other times.
  const bool timed = std::ranges::none_of(parties_, [](const auto& one) { return one->committed; });
  told_[party].push_back(absl::StrCat("party ", party, " ", what,
                                      timed ? absl::StrCat(" at ", scheduler_.now()) : ""));
}

void Play::Tell(Address from, Address to, const wire::Frame& frame, FrameType type, bool answer) {
  if (from >= kFirstClient || IsOurs(from)) return;
  if (party(static_cast<uint32_t>(from)).committed) return;
  const auto message =
      frame.type == FrameType::kError ? nullptr : MessageOf(type, answer, frame.control);
  AddTold(static_cast<uint32_t>(from),
          absl::StrCat("to ", to, ", ", answer ? "answer" : "request", " of type ",
                       static_cast<int>(type), ": ",
                       frame.type == FrameType::kError ? frame.control
                       : message != nullptr            ? Form(*message)
                                            : absl::StrCat(frame.control.size(), " bytes"),
                       ", ", frame.bulk.size(), " bytes"));
}

void Play::Request(Address from, Address to, wire::Frame& request) {
  Learn(from, request);
  wire::OfflineRequest offline;
  if (request.type == FrameType::kOffline && offline.ParseFromString(request.control)) {
    const size_t layers = universe_.parties() - static_cast<uint32_t>(to) + 1;
    positions_[{ToString(round::RoundId(offline.header().header())), to}] =
        static_cast<uint32_t>(request.bulk.size() / onion::OnionBytes(layers));
  }
  if (request.type == FrameType::kOnline) SeeOrder(from, to, request);
  Tell(from, to, request, request.type, /*answer=*/false);
  if (Reaches(from, to)) {
    wire::SubmitQueriesRequest queries;
    std::string content;
    if (request.type == FrameType::kSubmitQueries && queries.ParseFromString(request.control)) {
      const std::string tallies = queries.tallies();
      queries.clear_tallies();
      content = Hex(AsBytes(queries.SerializeAsString())) + ":";
      for (size_t i = 0; i + 4 <= tallies.size(); i += 4) {
        absl::StrAppend(
            &content, " ",
            NameTally(from, queries.round_id(), 1, LoadLe<uint32_t>(AsBytes(tallies).data() + i)));
      }
    } else if (request.type == FrameType::kOnline) {
      content = Batch(from, to, request);
    } else {
      content = BriefOf(request);
    }
    See(from, to, request.type, "request", content);
  }
  TrickRequest(from, to, request);
}

void Play::Answer(Address from, Address to, const wire::Frame& request, Network::Answer& answer) {
  Tell(from, to, answer.frame, request.type, /*answer=*/true);
  if (Reaches(from, to)) {
    wire::OnlineRequest online;
    wire::FetchAnswersRequest fetch;
    wire::FetchAnswersResponse fetched;
    std::string content;
    const auto name_all = [&](const std::string& round, BytesView all, size_t count) {
      if (count == 0 || all.size() % count != 0) return Hex(all);
      std::string names;
      for (size_t i = 0; i < count; ++i) {
        absl::StrAppend(&names, " ",
                        NameAnswer(from, round, static_cast<uint32_t>(from),
                                   all.subspan(i * (all.size() / count), all.size() / count)));
      }
      return names;
    };
    if (answer.frame.type == FrameType::kError) {
      content = BriefOf(answer.frame);
    } else if (request.type == FrameType::kOnline && online.ParseFromString(request.control)) {
      const auto batch = Decode(from, online.round_id(), request);
      content = absl::StrCat(
          Hex(AsBytes(answer.frame.control)), ":",
          name_all(online.round_id(), answer.frame.bulk, batch.ok() ? batch->tallies.size() : 0));
    } else if (request.type == FrameType::kFetchAnswers && fetch.ParseFromString(request.control) &&
               fetched.ParseFromString(answer.frame.control)) {
      content = name_all(fetch.round_id(), AsBytes(fetched.answers()), fetch.slots().size() / 4);
      fetched.clear_answers();
      absl::StrAppend(&content, " ", Hex(AsBytes(fetched.SerializeAsString())));
    } else {
      content = BriefOf(answer.frame);
    }
    See(from, to, request.type, "answer", content);
  }
  TrickAnswer(from, to, request, answer);
}

// --- what the coalition does ---

void Play::TrickRequest(Address from, Address to, wire::Frame& request) {
  const Tricks& tricks = world_.tricks;
  if (request.type == FrameType::kSubmitQueries && from == kFirstClient && MeetsClients()) {
    if (tricks.replays) network_.Send(from, to, request, 30 * kMillisecond);
    wire::SubmitQueriesRequest message;
    if (tricks.changes_tally && message.ParseFromString(request.control) &&
        message.tallies().size() >= 4) {
      auto* const first = reinterpret_cast<uint8_t*>(message.mutable_tallies()->data());
      const auto tally = LoadLe<uint32_t>(first);
      const uint32_t other = (tally + 1) % wire::kTallyModulus;
      if (const Truth::Slot* slot = truth_.OfTally(message.round_id(), 1, tally)) {
        truth_.Change(slot, 1, other);
      }
      StoreLe(first, other);
      request = wire::MakeFrame(request.type, message);
    }
    return;
  }
  if (request.type != FrameType::kOnline || !IsOurs(from)) return;
  wire::OnlineRequest message;
  if (!message.ParseFromString(request.control) ||
      !played_.insert(absl::StrCat(from, " ", message.round_id())).second) {
    return;
  }
  const auto positions = positions_.find({message.round_id(), to});
  auto batch = Decode(to, message.round_id(), request);
  if (!batch.ok() || positions == positions_.end()) return;
  std::vector<std::pair<uint32_t*, const Truth::Slot*>> honest;
  for (uint32_t& tally : batch->tallies) {
    const Truth::Slot* const slot =
        truth_.OfTally(message.round_id(), static_cast<uint32_t>(to), tally);
    if (slot != nullptr) honest.emplace_back(&tally, slot);
  }
  if (tricks.exchanges_tallies && honest.size() > 1) {
    std::swap(*honest[0].first, *honest[1].first);
    for (size_t i = 0; i < 2; ++i) {
      truth_.Change(honest[i].second, static_cast<uint32_t>(to), *honest[i].first);
    }
    request.bulk = wire::EncodeQueryBatch(*batch, positions->second);
  }
  if (tricks.replays) network_.Send(from, to, request, 40 * kMillisecond);
  if (tricks.second_batch && batch->tallies.size() > 1) {
    batch->positions.pop_back();
    batch->tallies.pop_back();
    wire::Frame second = request;
    second.bulk = wire::EncodeQueryBatch(*batch, positions->second);
    network_.Send(from, to, std::move(second), 60 * kMillisecond);
  }
}

void Play::TrickAnswer(Address from, Address to, const wire::Frame& request,
                       Network::Answer& answer) {
  const Tricks& tricks = world_.tricks;
  if (answer.frame.type == FrameType::kError) return;
  if (request.type == FrameType::kFetchAnswers && to == kFirstClient && MeetsClients() &&
      (tricks.marks_client || tricks.other_mark)) {
    wire::FetchAnswersResponse message;
    if (!message.ParseFromString(answer.frame.control)) return;
    Bytes answers = ToBytes(AsBytes(message.answers()));
    if (answers.size() < sizeof kMark) return;
    XorMark(answers, tricks.other_mark ? kOtherMark : kMark);
    message.set_answers(ToString(answers));
    answer.frame = wire::MakeFrame(answer.frame.type, message);
  }
  if (tricks.chooses_rounds && request.type == FrameType::kProposeRound && IsOurs(to)) {
    AskEarly(to, from, answer.frame);
  }
}

void Play::AskEarly(Address from, Address to, const wire::Frame& proposed) {
  wire::ProposeRoundResponse message;
  if (!message.ParseFromString(proposed.control)) return;
  const Digest id = round::RoundId(message.header().header());
  scheduler_.Spawn(&party(static_cast<uint32_t>(from)).process, [this, from, to, id] {
    scheduler_.Sleep(kUntilReports);
    wire::RoundReportsRequest request;
    request.set_round_id(ToString(id));
    const auto answer =
        network_.Call(from, to, wire::MakeFrame(FrameType::kRoundReports, request), 10 * kSecond);
    wire::RoundReportsResponse reports;
    if (!answer.ok() || !reports.ParseFromString(answer->frame.control)) return;
    uint64_t noise = 0;
    for (const wire::StageReport& report : reports.stages()) noise += report.noise_queries();
    if (from == 1 && noise % 2 == 1) party(1).server->EndRound(id, "another one is better");
  });
}

Seen Play::Run() {
  seen_.served.resize(clients_.size());
  for (uint32_t number = 1; number <= universe_.parties(); ++number) {
    // The last ones first, so that no proposal comes too early.
    scheduler_.At((universe_.parties() - number) * 20 * kMillisecond, [this, number] {
      scheduler_.Spawn(&party(number).process, [this, number] { Boot(number); });
    });
  }
  for (size_t i = 0; i < clients_.size(); ++i) {
    scheduler_.Spawn(&clients_[i]->process, [this, i] { RunClient(i); });
  }
  scheduler_.Spawn(&reader_, [this] { ReadStatus(); });
  scheduler_.Run([this] {
    return scheduler_.now() > kLongest || !seen_.problem.empty() ||
           std::ranges::all_of(clients_, [](const auto& client) { return client->done; });
  });
  if (scheduler_.now() > kLongest) Problem("it does not end");
  for (auto& [number, lines] : told_) std::ranges::move(lines, std::back_inserter(seen_.told));
  return seen_;
}

Bytes EncodeSeen(const Seen& seen) {
  Bytes out;
  for (const auto* const lines : {&seen.view, &seen.told}) {
    Put(out, lines->size());
    for (const std::string& line : *lines) Put(out, line);
  }
  Put(out, seen.served.size());
  for (const std::vector<bool>& served : seen.served) {
    Put(out, served.size());
    for (const bool one : served) Put(out, one);
  }
  Put(out, seen.asked.size());
  for (const uint32_t row : seen.asked) Put(out, row);
  Put(out, seen.pairs);
  Put(out, seen.exchanged);
  Put(out, seen.problem);
  return out;
}

Seen DecodeSeen(BytesView bytes) {
  OutcomeReader reader(bytes);
  Seen seen;
  for (auto* const lines : {&seen.view, &seen.told}) {
    for (uint64_t left = reader.Number(); left > 0; --left) lines->push_back(reader.Text());
  }
  for (uint64_t left = reader.Number(); left > 0; --left) {
    seen.served.emplace_back();
    for (uint64_t each = reader.Number(); each > 0; --each) {
      seen.served.back().push_back(reader.Number() != 0);
    }
  }
  for (uint64_t left = reader.Number(); left > 0; --left) {
    seen.asked.push_back(static_cast<uint32_t>(reader.Number()));
  }
  seen.pairs = reader.Number();
  seen.exchanged = reader.Number();
  seen.problem = reader.Text();
  return seen;
}

}  // namespace

std::string NameOf(Roles roles) {
  std::vector<std::string> names;
  if ((roles & kDoor) != 0) names.push_back("door");
  for (uint32_t party = 1; party < 32; ++party) {
    if (Has(roles, party)) names.push_back(absl::StrCat(party));
  }
  return absl::StrJoin(names, ", ");
}

std::vector<Roles> Coalitions(uint32_t parties) {
  std::vector<Roles> all;
  const Roles everybody = (Roles{2} << parties) - 2;
  for (Roles roles = 1; roles < (Roles{2} << parties); ++roles) {
    if ((roles & everybody) != everybody) all.push_back(roles);
  }
  return all;
}

Tricks Tricks::FromSeed(uint64_t seed) {
  Rng rng(seed * 0x9E3779B97F4A7C15u + 5);
  return {.marks_row = rng.Chance(0.4),
          .marks_client = rng.Chance(0.4),
          .other_mark = rng.Chance(0.1),
          .changes_tally = rng.Chance(0.15),
          .replays = rng.Chance(0.3),
          .second_batch = rng.Chance(0.2),
          .exchanges_tallies = rng.Chance(0.15),
          .chooses_rounds = rng.Chance(0.2)};
}

std::string Tricks::Name() const {
  std::vector<std::string> names;
  if (marks_row) names.push_back("marks a row");
  if (marks_client) names.push_back("marks a client");
  if (other_mark) names.push_back("with another mark");
  if (changes_tally) names.push_back("changes a tally");
  if (replays) names.push_back("replays");
  if (second_batch) names.push_back("sends a second batch");
  if (exchanges_tallies) names.push_back("exchanges tallies");
  if (chooses_rounds) names.push_back("chooses rounds");
  return names.empty() ? "looks on" : absl::StrJoin(names, ", ");
}

Seen RunWorld(const Universe& universe, const World& world) {
  const EndedProcess ended = InOwnProcess([&]() -> Bytes {
    spdlog::set_level(spdlog::level::off);
    // Never deleted: its processes are not torn down.
    return EncodeSeen((new Play(universe, world))->Run());
  });
  Seen seen = DecodeSeen(ended.output);
  if (!ended.died.empty()) seen.problem = ended.died;
  return seen;
}

std::string Difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto [one, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (one == a.end() && other == b.end()) return "";
  const std::string nothing = "nothing more";
  return absl::StrCat("line ", one - a.begin(), ":\n  ", one == a.end() ? nothing : *one, "\n  ",
                      other == b.end() ? nothing : *other);
}

bool Aims(const bool (&served)[2][2]) {
  for (const bool client_0 : {false, true}) {
    for (const bool client_1 : {false, true}) {
      for (const bool row_0 : {false, true}) {
        for (const bool row_1 : {false, true}) {
          if (served[0][0] == (client_0 && row_0) && served[0][1] == (client_0 && row_1) &&
              served[1][0] == (client_1 && row_0) && served[1][1] == (client_1 && row_1)) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

double Distance(const std::vector<std::vector<uint32_t>>& a,
                const std::vector<std::vector<uint32_t>>& b) {
  SHOAL_CHECK(a.size() == b.size() && !a.empty());
  const auto differ = [&](size_t i, size_t k) {
    SHOAL_CHECK(a[i].size() == b[k].size());
    int places = 0;
    for (size_t at = 0; at < a[i].size(); ++at) places += a[i][at] != b[k][at];
    return places;
  };
  // The Hungarian method: adds one of `a` after the other along a shortest augmenting path. Index 0
  // of all arrays stands for nobody.
  const size_t n = a.size();
  std::vector<int> of_a(n + 1), of_b(n + 1);
  std::vector<size_t> match(n + 1), before(n + 1);
  for (size_t i = 1; i <= n; ++i) {
    match[0] = i;
    std::vector<int> least(n + 1, std::numeric_limits<int>::max());
    std::vector<bool> used(n + 1);
    size_t at = 0;
    do {
      used[at] = true;
      int delta = std::numeric_limits<int>::max();
      size_t next = 0;
      for (size_t k = 1; k <= n; ++k) {
        if (used[k]) continue;
        const int cost = differ(match[at] - 1, k - 1) - of_a[match[at]] - of_b[k];
        if (cost < least[k]) {
          least[k] = cost;
          before[k] = at;
        }
        if (least[k] < delta) {
          delta = least[k];
          next = k;
        }
      }
      for (size_t k = 0; k <= n; ++k) {
        if (used[k]) {
          of_a[match[k]] += delta;
          of_b[k] -= delta;
        } else {
          least[k] -= delta;
        }
      }
      at = next;
    } while (match[at] != 0);
    for (; at != 0; at = before[at]) match[at] = match[before[at]];
  }
  double sum = 0;
  for (size_t k = 1; k <= n; ++k) sum += differ(match[k] - 1, k - 1);
  return sum / static_cast<double>(n);
}

}  // namespace shoal::sim
