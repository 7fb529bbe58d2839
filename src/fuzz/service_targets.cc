// What comes over the network to the services of shoald: every frame that a client or the party
// before may send, what later parties say of themselves, and requests to the pages for monitoring.
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "spdlog/spdlog.h"
#include "src/base/check.h"
#include "src/base/testing/test_clock.h"
#include "src/client/testing/fake_frontend.h"
#include "src/fuzz/target.h"
#include "src/net/http_rules.h"
#include "src/net/page_server.h"
#include "src/net/server.h"
#include "src/net/testing/raw_tls.h"
#include "src/net/tls.h"
#include "src/server/testing/deployment.h"
#include "src/server/testing/memory_journal.h"
#include "src/shoald/chain_states.h"
#include "src/shoald/client_service.h"
#include "src/shoald/peer.h"
#include "src/shoald/table_epochs.h"
#include "src/wire/frame.h"
#include "src/wire/peer.pb.h"

namespace shoal::fuzz {
namespace {

using wire::Frame;
using wire::FrameType;

// A type, and what is behind it as the control bytes (a blob) and the bulk.
Frame FrameOf(BytesView input) {
  Cursor cursor(input);
  Frame frame{.type = static_cast<FrameType>(cursor.U16()), .control = {}, .bulk = {}};
  frame.control = TextOf(cursor.Blob());
  frame.bulk = ToBytes(cursor.rest());
  return frame;
}

Bytes FrameInput(FrameType type, const google::protobuf::MessageLite& message) {
  const auto number = static_cast<uint16_t>(type);
  Bytes input = {static_cast<uint8_t>(number), static_cast<uint8_t>(number >> 8)};
  AppendBlob(InputOf(message), input);
  return input;
}

// What a service answers to a frame that the limits of its port allow. A call to wait may take a
// minute, and is left alone.
template <typename Service>
bool Answers(Service& service, BytesView input) {
  Frame frame = FrameOf(input);
  const auto limits = service.Limits(frame.type);
  if (!limits.ok() || !wire::CheckLimits(wire::HeaderOf(frame), *limits).ok()) return false;
  const bool waits = frame.type == FrameType::kWaitRound;
  const auto answered = std::make_shared<std::promise<FrameType>>();
  service.Handle(std::move(frame),
                 net::Reply([answered](const Frame& answer, std::unique_ptr<ByteSource>) {
                   answered->set_value(answer.type);
                 }));
  return !waits && answered->get_future().get() != FrameType::kError;
}

// A frontend with a round that takes onions.
struct ClientPort {
  server::testing::Deployment deployment{server::testing::DeploymentOptions{}};
  client::testing::FakeFrontend signed_things;
  server::testing::Disk disk;
  server::testing::MemoryJournal journal{&disk};
  const absl::StatusOr<round::Round> round = deployment.Announce();
  const shoald::TableEpochs epochs{std::make_shared<const table::Table>(signed_things.table())};
  shoald::ClientService service{&deployment.frontend(), &signed_things.roster(), &epochs, &journal};
};

void AddClientPort(std::vector<Target>& targets) {
  const auto port = std::make_shared<ClientPort>();
  SHOAL_CHECK(port->round.ok());
  const table::Table& table = port->signed_things.table();
  wire::GetPlacementRequest placement;
  placement.set_manifest_digest(ToString(table.manifest().digest()));
  placement.set_max_bytes(100);
  wire::GetRowVersionsRequest versions;
  versions.set_manifest_digest(ToString(table.manifest().digest()));
  versions.set_list(wire::ROW_VERSION_LIST_BASE);
  versions.set_max_bytes(100);
  targets.push_back({.name = "client_frames",
                     .seeds = {FrameInput(FrameType::kGetDeployment, wire::GetDeploymentRequest()),
                               FrameInput(FrameType::kGetPlacement, placement),
                               FrameInput(FrameType::kGetRowVersions, versions),
                               FrameInput(FrameType::kListRounds, wire::ListRoundsRequest()),
                               FrameInput(FrameType::kGetStatus, wire::GetStatusRequest())},
                     .parse = [port](BytesView input) { return Answers(port->service, input); },
                     .mutations = 1000});
}

// Party 2, with a draft in its hands and one to come.
struct PeerPort {
  server::testing::Deployment deployment{server::testing::DeploymentOptions{}};
  const absl::StatusOr<round::Round> round = deployment.Announce();
  const wire::RoundHeader draft = [this] {
    const auto made = deployment.frontend().NewDraft();
    SHOAL_CHECK(made.ok());
    const auto extended = deployment.party(1).ExtendDraft(*made);
    SHOAL_CHECK(extended.ok());
    return *extended;
  }();
  shoald::PartStages stages{shoald::PartsOf(deployment.node(2), 1, &deployment.spools())};
  shoald::PeerService service{&stages, &deployment.node(2)};
};

void AddPeerPort(std::vector<Target>& targets) {
  const auto port = std::make_shared<PeerPort>();
  SHOAL_CHECK(port->round.ok());
  wire::ProposeRoundRequest propose;
  *propose.mutable_draft() = port->draft;
  *propose.mutable_live() = port->deployment.frontend().Live();
  wire::LiveRoundsRequest live;
  *live.mutable_live() = port->deployment.frontend().Live();
  wire::RoundReportsRequest reports;
  reports.set_round_id(ToString(port->round->id()));
  targets.push_back({.name = "peer_frames",
                     .seeds = {FrameInput(FrameType::kLiveRounds, live),
                               FrameInput(FrameType::kProposeRound, propose),
                               FrameInput(FrameType::kRoundReports, reports)},
                     .parse = [port](BytesView input) { return Answers(port->service, input); },
                     .mutations = 500});
}

// The states of parties 2 and 3, as party 2 answers with them.
void AddPartyStates(std::vector<Target>& targets) {
  const auto clock = std::make_shared<testing::TestClock>();
  wire::PartyStatesResponse genuine;
  for (uint32_t party = 2; party <= 3; ++party) {
    wire::PartyState& state = *genuine.add_parties();
    state.set_party(party);
    state.set_version("0.2");
    state.set_clock_offset_s(2);
  }
  genuine.set_clock_s(clock->NowSeconds());
  targets.push_back(
      {.name = "party_states", .seeds = {InputOf(genuine)}, .parse = [clock](BytesView input) {
         wire::PartyStatesResponse response;
         if (!response.ParseFromArray(input.data(), static_cast<int>(input.size()))) {
           return false;
         }
         bool asked = false;
         shoald::ChainStates states({.party = 1,
                                     .parties = 3,
                                     .self = [] { return wire::PartyState(); },
                                     .next =
                                         [&](const wire::PartyStatesRequest&) {
                                           asked = true;
                                           return absl::StatusOr<wire::PartyStatesResponse>(
                                               response);
                                         },
                                     .clock = clock.get()});
         const shoald::PartyStates all = states.Ask();
         SHOAL_CHECK(asked && all.size() == 3);
         // Party 2 is there if its answer was taken.
         return all[1].problem().empty();
       }});
}

void AddPages(std::vector<Target>& targets) {
  auto started = net::PageServer::Start({.address = "127.0.0.1:0"}, [](absl::string_view path) {
    return net::Page{.status = path == "/metrics" ? 200u : 404u, .body = "page\n"};
  });
  SHOAL_CHECK(started.ok());
  const std::shared_ptr<net::PageServer> pages = *std::move(started);
  targets.push_back(
      {.name = "page_request",
       .seeds = {InputOf("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                 InputOf("HEAD /metrics?x=1 HTTP/1.0\r\nAccept: */*\r\nX-Long: a b\r\n\r\n")},
       .parse =
           [pages](BytesView input) {
             net::testing::RawSocket raw(pages->port());
             boost::system::error_code error;
             boost::asio::write(raw.socket, boost::asio::buffer(input.data(), input.size()), error);
             raw.socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send, error);
             std::string answer;
             boost::asio::read(raw.socket, boost::asio::dynamic_buffer(answer), error);
             return answer.starts_with("HTTP/1.1 200");
           },
       .mutations = 500});
}

// How many lines of a request's head begin with a field's name, in any notation.
size_t FieldsNamed(absl::string_view head, absl::string_view name) {
  size_t count = 0;
  for (const absl::string_view line : absl::StrSplit(head, '\n')) {
    count += absl::StartsWithIgnoreCase(absl::StripAsciiWhitespace(line), name);
  }
  return count;
}

void AddHeads(std::vector<Target>& targets) {
  targets.push_back(
      {.name = "http_head",
       .seeds = {InputOf("POST /v1/call HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"),
                 InputOf("POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"),
                 InputOf("GET https://a/v1/socket?x HTTP/1.0\r\nUpgrade: websocket\r\n\r\n")},
       .parse = [](BytesView input) {
         const absl::StatusOr<std::optional<size_t>> end = net::FindHead(TextOf(input));
         if (!end.ok() || !end->has_value()) return false;
         SHOAL_CHECK(**end <= input.size());
         const std::string head = TextOf(input.first(**end));
         if (!net::CheckHead(head).ok()) return false;
         // Nothing says a second time where the request ends.
         SHOAL_CHECK(
             FieldsNamed(head, "content-length:") + FieldsNamed(head, "transfer-encoding:") <= 1);
         return true;
       }});
}

}  // namespace

void AddServiceTargets(std::vector<Target>& targets) {
  spdlog::set_level(spdlog::level::off);  // a line for everything that a service refuses
  AddClientPort(targets);
  AddPeerPort(targets);
  AddPartyStates(targets);
  AddPages(targets);
  AddHeads(targets);
  targets.push_back(
      {.name = "address",
       .seeds = {InputOf("127.0.0.1:7000"), InputOf("[::1]:7000"), InputOf("example.org:65535")},
       .parse = [](BytesView input) {
         const auto parsed = net::ParseHostPort(TextOf(input));
         if (!parsed.ok()) return false;
         SHOAL_CHECK(!parsed->host.empty() && !parsed->port.empty());
         return true;
       }});
}

}  // namespace shoal::fuzz
