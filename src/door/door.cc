#include "src/door/door.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/http/buffer_body.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/parser.hpp"
#include "src/base/status_macros.h"
#include "src/door/frontend_links.h"
#include "src/door/ohttp_pipe.h"
#include "src/door/rate.h"
#include "src/door/round_waits.h"
#include "src/door/web_socket.h"
#include "src/net/await.h"
#include "src/net/http.h"
#include "src/net/http_rules.h"
#include "src/net/listener.h"
#include "src/net/web_stream.h"
#include "src/parallel/mutex.h"

// With sanitizers gcc 12 inlines how a coroutine's frame is allocated, but not how it is freed, and
// takes the two for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace shoal::door {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using wire::FrameType;

// Of a request's first line and fields. A token takes half a kilobyte.
constexpr uint32_t kMaxHeadBytes = 8 << 10;
// A message is read in pieces of this size, and its buffer grows with what arrives.
constexpr size_t kPieceBytes = 16 << 10;
// Of what a WebSocket's client sends while its request waits: bytes, and messages or their pieces.
constexpr size_t kMostAheadBytes = 16 << 10;
constexpr size_t kMostAhead = 256;
// Pings, pongs and closes in a minute. An honest client sends one in a while.
constexpr double kMostControls = 100;
// Requests with shoal-ohttp at a time, which takes 1024.
constexpr size_t kMostPipes = 1000;
// A text message: a token.
constexpr size_t kMaxTextBytes = 1024;
// Requests of a peer that exceeds a rate wait for this long at most.
constexpr std::chrono::seconds kLongestPause(60);

constexpr char kCallPath[] = "/v1/call";
constexpr char kSocketPath[] = "/v1/ws";
constexpr char kChallengePath[] = "/v1/token-challenge";
constexpr char kOhttpPath[] = "/v1/ohttp";
constexpr char kOhttpKeysPath[] = "/v1/ohttp-keys";

// Without the body.
using Response = http::response<http::empty_body>;

absl::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

// Takes HTTP/1.1 if the client offers it. A client that offers other protocols alone is not told
// otherwise, and speaks HTTP/1.1 or finds out.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kHttp11, sizeof(kHttp11) - 1, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

// Null without a certificate.
absl::StatusOr<std::shared_ptr<asio::ssl::context>> MakeContext(const net::Identity& identity) {
  if (identity.certificate_pem.empty()) return nullptr;
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<asio::ssl::context> context,
                         net::MakeContext(/*server=*/true, &identity));
  SSL_CTX_set_alpn_select_cb(context->native_handle(), &ChooseProtocol, nullptr);
  return context;
}

// A whole frame, for whoever sent a message that begins so, as far as that is known.
Bytes ErrorFrame(const absl::Status& status,
                 const std::optional<wire::FrameHeaderBytes>& refused = std::nullopt) {
  const wire::Frame frame = wire::MakeErrorFrame(status);
  const wire::FrameHeader header = wire::HeaderOf(frame);
  const wire::FrameHeaderBytes head = refused.has_value()
                                          ? wire::EncodeRefusalHeader(header, *refused)
                                          : wire::EncodeFrameHeader(header);
  Bytes bytes(head.size() + frame.control.size());
  std::ranges::copy(head, bytes.begin());
  std::ranges::copy(frame.control, bytes.begin() + head.size());
  return bytes;
}

// A refusal of the door's own.
struct No {
  http::status status;
  Refusal why;
  absl::Status error;
  int retry_after_s = 0;
  std::optional<wire::FrameHeaderBytes> refused = std::nullopt;  // the message, if there is one
  // Those that this door takes at the path, if it has it.
  std::string methods = {};
  // The body, of application/problem+json, in place of the error's frame.
  const char* problem = "";
};

No Malformed(absl::string_view what) {
  return {http::status::bad_request, Refusal::kMalformed, absl::InvalidArgumentError(what)};
}
No TooLarge(absl::string_view what) {
  return {http::status::payload_too_large, Refusal::kTooLarge, absl::ResourceExhaustedError(what)};
}
No NoRoom() {
  return {http::status::service_unavailable, Refusal::kNoRoom,
          absl::UnavailableError("too many requests at once; try again later"), 1};
}
// RFC 9458, section 5.3: the client is to get the keys again.
No StaleKey() {
  No no = Malformed("sealed for none of the keys of this door");
  no.problem = R"({"type":"https://iana.org/assignments/http-problem-types#ohttp-key",)"
               R"("title":"key identifier unknown"})";
  return no;
}
// Of an error of FrontendLinks.
http::status StatusOfForward(const absl::Status& error) {
  return absl::IsUnavailable(error) ? http::status::service_unavailable : http::status::bad_gateway;
}
// Of an error of CheckRequest, Message or ReadHead.
No Of(const absl::Status& error) {
  return absl::IsResourceExhausted(error) ? TooLarge(error.message()) : Malformed(error.message());
}

net::AdmissionControl::Limits LimitsOf(const Door::Options& options, size_t connections,
                                       size_t newcomers, uint64_t buffer_bytes = 0) {
  return {.connections = connections,
          .newcomers = newcomers,
          .buffer_bytes = buffer_bytes,
          .reserved_bytes = 0,
          .shares = options.shares,
          .group_shares = options.group_shares};
}

}  // namespace

struct Door::State : net::Listener {
  State(Options o, Figures* f)
      : options(std::move(o)),
        figures(f),
        places(LimitsOf(options, options.max_connections, options.max_newcomers,
                        options.max_buffered_bytes)),
        visitors(LimitsOf(options, options.max_connections, options.max_connections,
                          options.max_buffered_bytes)),
        pipes(LimitsOf(options, kMostPipes, kMostPipes)),
        address_requests(options.address_requests),
        address_onions(options.address_onion_bytes),
        address_connections(options.address_connections) {}

  class Session;

  Admission Admit(uint64_t number, const IpAddress& address, Socket socket) override;
  void OnEviction() override { figures->Refuse(Refusal::kNoRoom); }
  std::shared_ptr<asio::ssl::context> Context() {
    const MutexLock lock(mutex);
    return context;
  }

  // What the door has to do with one frontend. Whoever uses it owns it, as another one may take its
  // place; what is still asked of this one takes nothing of what the next one has.
  struct Frontend {
    Frontend(std::shared_ptr<FrontendLinks> l, size_t max_links, State& door);
    // It has been replaced, or the door ends.
    void Retire() {
      links->Retire();
      waits->Retire();
    }

    const std::shared_ptr<FrontendLinks> links;
    const std::shared_ptr<RoundWaits> waits;
    // Of requests that wait for its answer, each of which has a connection to it; and of those
    // among them that came over shoal-ohttp.
    net::AdmissionControl calls, ohttp_calls;
  };
  absl::Status UseFrontend(const FrontendOptions& where) {
    SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<FrontendLinks> links,
                           FrontendLinks::Create(where, &io(), figures));
    auto made = std::make_shared<Frontend>(std::move(links), where.max_links, *this);
    std::shared_ptr<Frontend> before;
    {
      const MutexLock lock(mutex);
      before = std::exchange(frontend, std::move(made));
    }
    if (before != nullptr) before->Retire();
    return absl::OkStatus();
  }
  std::shared_ptr<Frontend> TheFrontend() {
    const MutexLock lock(mutex);
    return frontend;
  }

  const Options options;
  Figures* const figures;
  net::AdmissionControl places;
  // Of those that come over a proxy, by the address that it names.
  net::AdmissionControl visitors;
  // Of requests that are with shoal-ohttp.
  net::AdmissionControl pipes;
  AddressRates address_requests, address_onions, address_connections;

  Mutex mutex;
  std::shared_ptr<Frontend> frontend ABSL_GUARDED_BY(mutex);
  std::shared_ptr<asio::ssl::context> context ABSL_GUARDED_BY(mutex);
};

Door::State::Frontend::Frontend(std::shared_ptr<FrontendLinks> l, size_t max_links, State& door)
    : links(std::move(l)),
      waits(std::make_shared<RoundWaits>(
          links, &door.io(),
          RoundWaits::Options{// States of rounds that live are few.
                              .most = std::max<size_t>(1, max_links / 4),
                              .shares = door.options.shares,
                              .group_shares = door.options.group_shares,
                              .step = door.options.wait_step})),
      calls(LimitsOf(door.options, max_links, max_links)),
      ohttp_calls({.connections = net::ShareOf(max_links, door.options.group_shares.connections),
                   .newcomers = max_links,
                   .buffer_bytes = 0,
                   .reserved_bytes = 0,
                   .shares = {}}) {}

// It takes one request at a time: the next one is read when the answer is written, so that a peer
// that sends faster, or reads slower, waits for itself.
class Door::State::Session : public net::Listener::Session {
 public:
  using Request = WebSocket::Request;
  using Parser = http::request_parser<http::buffer_body>;

  Session(State& door, uint64_t number, net::AdmissionControl::Permit place, bool is_proxy,
          tcp::socket socket)
      : net::Listener::Session(door.shared_from_this(), number, socket.get_executor()),
        door_(door),
        is_proxy_(is_proxy),
        place_(std::move(place)),
        stream_(std::move(socket), door_.Context()),
        pause_(stream_.get_executor()),
        spending_(stream_.get_executor()),
        arrived_(stream_.get_executor()),
        read_on_(stream_.get_executor()) {
    ++figures().connections;
  }
  ~Session() override { --figures().connections; }

 private:
  // Shows what a request waits for to Close, for as long as this lives.
  template <typename Work>
  class InUse {
   public:
    InUse(Work*& shown, Work& work) : shown_(shown) { shown_ = &work; }
    ~InUse() { shown_ = nullptr; }

   private:
    Work*& shown_;
  };

  const Options& options() const { return door_.options; }
  Figures& figures() const { return *door_.figures; }
  Socket& socket() override { return stream_.socket(); }

  // For a transfer that began at `start` and has got so far.
  void Progress(Clock::time_point start, size_t bytes) {
    DeadlineAt(start + options().progress_timeout * (1 + static_cast<int>(bytes >> 20)));
  }
  void OnClose() override {
    EndCall();
    if (pipe_ != nullptr) pipe_->Close();
    pause_.cancel();
    spending_.cancel();
    arrived_.cancel();
    read_on_.cancel();
  }
  // What waits for the frontend fails soon. False if nothing does.
  bool EndCall() {
    if (call_ != nullptr) call_->Cancel();
    if (waiter_ != nullptr) waiter_->Cancel();
    return call_ != nullptr || waiter_ != nullptr;
  }
  // Cuts the connection, or gives up the call to the frontend.
  void OnDeadline() override {
    if (!leaves_ && EndCall()) return;
    if (!lingers_ && !leaves_) figures().Refuse(Refusal::kTooSlow);
    Close();
  }

  asio::awaitable<void> Converse() override {
    Deadline(options().handshake_timeout);
    const auto error = co_await stream_.Handshake();
    if (error) co_return;
    while (!closed() && co_await ServeOne()) {
    }
  }

  // --- what a peer may take ---

  const Origin& origin() const { return visitor_ ? visitor_->origin() : place_.origin(); }
  bool Claim(uint64_t bytes) {
    if (!place_.Claim(bytes, net::AdmissionControl::Room::kGeneral)) return false;
    return !visitor_ || visitor_->Claim(bytes, net::AdmissionControl::Room::kGeneral);
  }
  void Release() {
    place_.Release();
    if (visitor_) visitor_->Release();
  }

  // How long until the peer may send a request more; zero if it may now.
  Clock::duration TakeRequest() {
    const Clock::time_point now = Clock::now();
    // A proxy's connection is that of many; a WebSocket over it is one client's.
    if (!is_proxy_ || is_socket_) {
      const auto wait = requests_.Take(1, options().connection_requests, now);
      if (wait > Clock::duration::zero()) return wait;
    }
    return door_.address_requests.Take(origin(), 1, now);
  }
  // The same of a request of HTTP, which is refused if it would have to wait.
  std::optional<No> TakeTurn(const Request&) {
    const auto wait = TakeRequest();
    if (wait > Clock::duration::zero()) return TooFast(wait);
    return std::nullopt;
  }
  Clock::duration TakeOnions(const Message& message) {
    if (options().tokens != nullptr) return Clock::duration::zero();
    if (message.type() != FrameType::kSubmitOnions) return Clock::duration::zero();
    return door_.address_onions.Take(origin(), static_cast<double>(message.size()), Clock::now());
  }

  // Welcomes the peer of a request with this head, or says why not.
  std::optional<No> Admit(const Request& head) {
    if (is_proxy_) {
      std::string forwarded;
      for (auto [at, end] = head.equal_range("X-Forwarded-For"); at != end; ++at) {
        absl::StrAppend(&forwarded, forwarded.empty() ? "" : ",", View(at->value()));
      }
      const auto address = ForwardedAddress(forwarded, options().proxies);
      if (!address.has_value()) {
        return No{http::status::bad_request, Refusal::kNoAddress,
                  absl::InvalidArgumentError("the proxy names no client")};
      }
      const Origin from = options().shared_addresses.BlockOf(*address);
      if (!visitor_ || visitor_->origin() != from) {
        visitor_.reset();
        net::AdmissionControl::Arrival arrival = door_.visitors.Arrive(number(), from);
        if (!arrival.place.Welcome().ok()) return NoRoom();
        visitor_.emplace(std::move(arrival.place));
      }
    }
    if (head.count(http::field::origin) > 0 &&
        (head.count(http::field::origin) > 1 ||
         !options().origins.Allow(View(head[http::field::origin])))) {
      return No{http::status::forbidden, Refusal::kForeignOrigin,
                absl::PermissionDeniedError("this door does not serve that page")};
    }
    return std::nullopt;
  }
  std::optional<No> Welcome(const Request&) {
    if (place_.welcome() || place_.Welcome().ok()) return std::nullopt;
    return NoRoom();
  }

  // --- tokens ---

  bool NeedsToken(const Message& message) const {
    return options().tokens != nullptr && message.type() == FrameType::kSubmitOnions;
  }
  static No NoToken(const absl::Status& error) {
    return {http::status::unauthorized, Refusal::kNoToken, error};
  }
  // Spends the token of an Authorization, or says why not.
  asio::awaitable<std::optional<No>> Spend(const std::string& authorization) {
    if (authorization.empty()) {
      co_return NoToken(absl::PermissionDeniedError("onions need a token"));
    }
    const auto token = options().tokens->Check(authorization);
    if (!token.ok()) co_return NoToken(token.status());
    spent_.reset();
    spending_.expires_at(Clock::time_point::max());
    NoDeadline();  // the disk has none
    // The call may outlive the connection, so it does not own it.
    options().spent->Spend(token->issuer, token->id,
                           [weak = WeakOf(this)](const absl::Status& spent) {
                             Post(weak, [spent](Session& self) {
                               self.spent_ = spent;
                               self.spending_.cancel();
                             });
                           });
    while (!spent_.has_value() && !closed()) co_await spending_.async_wait(net::kAwait);
    if (!spent_.has_value()) co_return NoRoom();
    if (spent_->ok()) {
      ++figures().tokens;
      co_return std::nullopt;
    }
    if (absl::IsAlreadyExists(*spent_)) {
      co_return No{http::status::unauthorized, Refusal::kSpentToken,
                   absl::PermissionDeniedError(spent_->message())};
    }
    co_return No{http::status::service_unavailable, Refusal::kNoRoom, *spent_};
  }
  // Takes what the onions of a POST cost, of the rate or a token, or says why not.
  asio::awaitable<std::optional<No>> Pay(const Message& message, const std::string& authorization) {
    const auto wait = TakeOnions(message);
    if (wait > Clock::duration::zero()) co_return TooFast(wait);
    if (!NeedsToken(message)) co_return std::nullopt;
    if (message.size() > options().token_onion_bytes) {
      co_return TooLarge("more onions than a token pays for: send fewer in a request");
    }
    co_return co_await Spend(authorization);
  }

  // --- HTTP ---

  // What the door has at a path, for some methods. One that is not null is asked whether this door
  // has it. The checks are made in their order, up to the first null, and say why a request is not
  // served. A service returns false if the connection ends with it.
  struct Route {
    const char* path;
    const char* methods;  // as Allow lists them
    const char* listed;   // before the path, where a client is told what there is; null: not there
    bool (Session::*is_here)() const;
    std::array<std::optional<No> (Session::*)(const Request& head), 3> checks;
    asio::awaitable<bool> (Session::*serve)(Parser& parser);
  };
  static std::span<const Route> Routes() {
    using S = Session;
    static constexpr Route kRoutes[] = {
        {kCallPath, "POST", "POST", nullptr, {&S::Welcome, &S::TakeTurn}, &S::ServeCall},
        {kCallPath, "OPTIONS", nullptr, nullptr, {&S::TakeTurn}, &S::ServePreflight},
        {kSocketPath,
         "GET",
         "a WebSocket at",
         nullptr,
         {&S::CheckSocket, &S::Welcome, &S::CheckUpgrade},
         &S::ServeSocket},
        {kChallengePath, "GET, HEAD", "GET", &S::TakesTokens, {&S::TakeTurn}, &S::ServeChallenges},
        {kOhttpPath,
         "POST",
         "POST",
         &S::ServesOhttp,
         {&S::Welcome, &S::CheckOhttp, &S::TakeTurn},
         &S::ServeOhttp},
        {kOhttpKeysPath,
         "GET, HEAD",
         "GET",
         &S::ServesOhttp,
         {&S::TakeTurn, &S::Welcome},
         &S::ServeOhttpKeys},
    };
    return kRoutes;
  }
  bool TakesTokens() const { return options().tokens != nullptr; }
  bool ServesOhttp() const { return !options().ohttp_socket.empty(); }
  bool Has(const Route& route) const {
    return route.is_here == nullptr || (this->*route.is_here)();
  }
  // Null if there is none.
  const Route* RouteOf(const Request& head) const {
    for (const Route& route : Routes()) {
      if (!Has(route) || route.path != net::PathOf(View(head.target()))) continue;
      const std::vector<absl::string_view> methods = absl::StrSplit(route.methods, ", ");
      if (std::ranges::count(methods, View(head.method_string())) > 0) return &route;
    }
    return nullptr;
  }
  // For another path; or for another method than those at a path of this door, or no WebSocket.
  No NotHere(const Request& head) const {
    std::vector<std::string> all;
    std::vector<const char*> methods;
    for (const Route& route : Routes()) {
      if (!Has(route)) continue;
      if (route.listed != nullptr) all.push_back(absl::StrCat(route.listed, " ", route.path));
      if (route.path == net::PathOf(View(head.target()))) methods.push_back(route.methods);
    }
    No no = Malformed(absl::StrCat("this door has ", absl::StrJoin(all, ", ")));
    no.methods = absl::StrJoin(methods, ", ");
    no.status = methods.empty() ? http::status::not_found : http::status::method_not_allowed;
    return no;
  }

  // Serves one request. False if the connection ends with it.
  asio::awaitable<bool> ServeOne() {
    Deadline(place_.welcome() ? options().idle_timeout : options().head_timeout);
    const std::function<void()> on_begin = [this] {
      if (place_.welcome()) Deadline(options().head_timeout);
    };
    Parser parser;
    parser.header_limit(kMaxHeadBytes);
    parser.body_limit(ServesOhttp() ? kMaxEncapsulatedBytes : kMaxMessageBytes);
    // What an extension means, and where it ends, others may see otherwise. Nobody needs one.
    auto on_chunk = [](uint64_t, beast::string_view extensions, beast::error_code& error) {
      if (!extensions.empty()) error = http::error::bad_chunk_extension;
    };
    parser.on_chunk_header(on_chunk);
    allow_origin_.clear();  // each is of one request alone
    is_head_ = false;
    const absl::Status read =
        co_await net::ReadHead(stream_, buffer_, parser, kMaxHeadBytes, on_begin);
    if (!read.ok()) {
      if (absl::IsUnavailable(read) || closed()) co_return false;
      const No no = Of(read);
      co_return co_await Refuse(no);
    }
    const Request& head = parser.get();
    is_head_ = head.method() == http::verb::head;
    std::optional<No> no = Admit(head);
    if (no) co_return co_await Refuse(*no);
    allow_origin_ = std::string(View(head[http::field::origin]));
    const Route* const route = RouteOf(head);
    if (head.method() != http::verb::post && !parser.is_done()) {
      // Bytes of a body that nobody reads would be the next request: of somebody else, where a
      // proxy or a browser joins requests.
      no = Malformed("no body belongs here");
    } else if (route == nullptr) {
      no = NotHere(head);
    } else {
      for (const auto check : route->checks) {
        if (!no && check != nullptr) no = (this->*check)(head);
      }
    }
    if (no) co_return co_await Refuse(*no);
    co_return co_await (this->*route->serve)(parser);
  }

  // Clients of HTTP/1.0 that keep connections want to be told so in a way of their own.
  static bool KeepsAlive(const Parser& parser) {
    return parser.get().version() == 11 && parser.get().keep_alive();
  }
  std::optional<No> CheckSocket(const Request& head) {
    if (WebSocket::IsUpgrade(head)) return std::nullopt;
    return NotHere(head);
  }
  std::optional<No> CheckUpgrade(const Request& head) {
    if (const absl::Status checked = WebSocket::CheckUpgrade(head); !checked.ok()) {
      return Of(checked);
    }
    if (buffer_.size() > 0) return Malformed("bytes before the WebSocket is open");
    return std::nullopt;
  }
  std::optional<No> CheckOhttp(const Request& head) {
    if (net::IsMediaType(View(head[http::field::content_type]), "message/ohttp-req")) {
      return std::nullopt;
    }
    No no = Malformed("expected message/ohttp-req");
    no.status = http::status::unsupported_media_type;
    return no;
  }

  asio::awaitable<bool> ServePreflight(Parser& parser) {
    Response response(http::status::no_content, 11);
    response.set(http::field::access_control_allow_methods, "POST");
    response.set(http::field::access_control_allow_headers, "content-type, authorization");
    response.set(http::field::access_control_max_age, "86400");
    co_return co_await Respond(response, {}, KeepsAlive(parser));
  }
  asio::awaitable<bool> ServeChallenges(Parser& parser) {
    Response response(http::status::unauthorized, 11);
    response.set(http::field::www_authenticate, options().tokens->challenges());
    co_return co_await Respond(response, {}, KeepsAlive(parser));
  }

  asio::awaitable<bool> ServeCall(Parser& parser) {
    const bool keep_alive = KeepsAlive(parser);
    const std::string authorization(View(parser.get()[http::field::authorization]));
    Message message;
    const Sink sink = [&](BytesView piece) { return Take(piece, message); };
    std::optional<No> no;
    if (!co_await ReadBody(parser, sink, no)) co_return false;
    if (!no) no = Complete(message);
    if (!no) no = co_await Pay(message, authorization);
    if (no) co_return co_await Refuse(*no);
    absl::StatusOr<Bytes> answer = co_await Forward(message, Via::kClient);
    if (closed()) co_return false;
    Response response(http::status::ok, 11);
    if (!answer.ok()) {
      response.result(StatusOfForward(answer.status()));
      if (absl::IsUnavailable(answer.status())) response.set(http::field::retry_after, "1");
    }
    const Bytes body = answer.ok() ? *std::move(answer) : ErrorFrame(answer.status());
    const bool sent = co_await Respond(response, body, keep_alive);
    Release();
    co_return sent;
  }

  // Takes the next bytes of a body, or says why not.
  using Sink = std::function<std::optional<No>(BytesView)>;
  // False if the connection has ended.
  asio::awaitable<bool> ReadBody(Parser& parser, const Sink& sink, std::optional<No>& no) {
    const Clock::time_point start = Clock::now();
    if (!parser.is_done() && parser.get().version() == 11 &&
        beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      Progress(start, 0);
      const Response go_on(http::status::continue_, 11);
      const std::string line = net::HeadOf(go_on);
      const auto unsent = co_await stream_.Write(line, {});
      if (unsent) co_return false;
    }
    const auto fields = std::distance(parser.get().begin(), parser.get().end());
    size_t taken = 0;
    Bytes piece(kPieceBytes);
    while (!no && !parser.is_done()) {
      Progress(start, taken);
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      parser.get().body().more = true;
      const auto error = co_await net::ReadBody(stream_, buffer_, parser);
      if (error == http::error::body_limit) {
        no = TooLarge("the request is too large");
      } else if (error && error != http::error::need_buffer) {
        if (error.category() != beast::error_code(http::error::bad_chunk).category() || closed()) {
          co_return false;
        }
        no = Malformed(error.message());
      } else {
        const BytesView bytes = BytesView(piece).first(piece.size() - parser.get().body().size);
        taken += bytes.size();
        no = sink(bytes);
      }
    }
    // Beast takes fields after a body for fields of the head, which was acted on before.
    if (!no && std::distance(parser.get().begin(), parser.get().end()) != fields) {
      no = Malformed("fields after the body");
    }
    co_return true;
  }

  // --- Oblivious HTTP ---

  static No NoOhttp(const absl::Status& error) {
    return {http::status::service_unavailable, Refusal::kNoOhttp, error, 1};
  }

  asio::awaitable<bool> ServeOhttpKeys(Parser& parser) {
    OhttpPipe pipe(stream_.get_executor());
    const InUse in_use(pipe_, pipe);
    Deadline(options().progress_timeout);
    const absl::StatusOr<Bytes> keys = co_await pipe.Keys(options().ohttp_socket);
    if (!keys.ok()) {
      const No no = NoOhttp(keys.status());
      co_return co_await Refuse(no);
    }
    Response response(http::status::ok, 11);
    response.set(http::field::content_type, "application/ohttp-keys");
    co_return co_await Respond(response, *keys, KeepsAlive(parser));
  }

  // What a relay brings. The door sees the relay's address, and nothing of the client's.
  asio::awaitable<bool> ServeOhttp(Parser& parser) {
    const bool keep_alive = KeepsAlive(parser);
    net::AdmissionControl::Arrival pipe_place = door_.pipes.Arrive(number(), origin());
    std::optional<No> no;
    if (!pipe_place.place.Welcome().ok()) no = NoRoom();
    Bytes request;
    const Sink sink = [&](BytesView piece) -> std::optional<No> {
      if (!Claim(piece.size())) return NoRoom();
      Append(request, piece);
      return std::nullopt;
    };
    if (!no && !co_await ReadBody(parser, sink, no)) co_return false;
    // To shoal-ohttp it would be a question for the keys.
    if (!no && request.empty()) no = Malformed("no request");
    OhttpPipe pipe(stream_.get_executor());
    const InUse in_use(pipe_, pipe);
    OhttpPipe::Opened opened;
    if (!no) no = co_await OpenOhttp(pipe, request, opened);
    if (closed()) co_return false;
    if (no) co_return co_await Refuse(*no);
    Response response(http::status::ok, 11);
    response.set(http::field::content_type, "message/ohttp-res");
    if (!opened.sealed.empty()) co_return co_await Respond(response, opened.sealed, keep_alive);
    const Inner inner = co_await AnswerOhttp(opened);
    if (closed()) co_return false;
    const std::string challenges =
        inner.status == http::status::unauthorized ? options().tokens->challenges() : "";
    Deadline(options().progress_timeout);
    absl::StatusOr<Bytes> sealed =
        co_await pipe.Seal(static_cast<uint16_t>(inner.status), challenges, inner.body);
    if (!sealed.ok()) {
      const No away = NoOhttp(sealed.status());
      co_return co_await Refuse(away);
    }
    const bool sent = co_await Respond(response, *sealed, keep_alive);
    Release();
    co_return sent;
  }

  // Has shoal-ohttp open what a relay has brought, or says why not.
  asio::awaitable<std::optional<No>> OpenOhttp(OhttpPipe& pipe, const Bytes& request,
                                               OhttpPipe::Opened& into) {
    Deadline(options().progress_timeout);
    absl::StatusOr<OhttpPipe::Opened> opened = co_await pipe.Open(options().ohttp_socket, request);
    if (absl::IsUnavailable(opened.status())) co_return NoOhttp(opened.status());
    if (absl::IsNotFound(opened.status())) co_return StaleKey();
    if (!opened.ok()) co_return Of(opened.status());
    into = *std::move(opened);
    co_return std::nullopt;
  }

  // What is sealed for a relay's client.
  struct Inner {
    http::status status;
    Bytes body;
  };
  asio::awaitable<Inner> AnswerOhttp(const OhttpPipe::Opened& opened) {
    Message message;
    std::optional<No> no = Take(opened.frame, message);
    if (!no) no = Complete(message);
    if (!no) no = co_await Pay(message, opened.authorization);
    if (no) {
      figures().Refuse(no->why);
      co_return Inner{no->status, ErrorFrame(no->error, no->refused)};
    }
    absl::StatusOr<Bytes> answer = co_await Forward(message, Via::kOhttp);
    if (answer.ok()) co_return Inner{http::status::ok, *std::move(answer)};
    co_return Inner{StatusOfForward(answer.status()), ErrorFrame(answer.status())};
  }

  // Adds bytes to the message, or says why not.
  std::optional<No> Take(BytesView piece, Message& message) {
    if (!Claim(piece.size())) return NoRoom();
    if (const absl::Status added = message.Add(piece); !added.ok()) {
      No no = Of(added);
      no.refused = message.head();
      return no;
    }
    return std::nullopt;
  }
  static std::optional<No> Complete(const Message& message) {
    if (const absl::Status whole = message.Finish(); !whole.ok()) return Of(whole);
    return std::nullopt;
  }
  static No TooFast(Clock::duration wait) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
    return {http::status::too_many_requests, Refusal::kTooFast,
            absl::UnavailableError("too many requests in a minute; try again later"),
            static_cast<int>(seconds)};
  }

  asio::awaitable<bool> Respond(Response& response, BytesView body, bool keep_alive) {
    if (!allow_origin_.empty()) {
      response.set(http::field::access_control_allow_origin, allow_origin_);
      response.set(http::field::access_control_expose_headers, "retry-after, www-authenticate");
    }
    response.set(http::field::vary, "Origin");
    response.set(http::field::cache_control, "no-store");
    response.set("X-Content-Type-Options", "nosniff");
    if (!body.empty() && response.count(http::field::content_type) == 0) {
      response.set(http::field::content_type, "application/octet-stream");
    }
    response.keep_alive(keep_alive);
    // RFC 9110, section 8.6: none has this status. The answer to HEAD has that of GET, and no body.
    if (response.result() != http::status::no_content) response.content_length(body.size());
    if (is_head_) body = {};
    Progress(Clock::now(), body.size());
    const std::string head = net::HeadOf(response);
    const auto error = co_await stream_.Write(head, body);
    co_return !error && keep_alive;
  }

  // Says why, and ends the connection: false.
  asio::awaitable<bool> Refuse(const No& no) {
    figures().Refuse(no.why);
    Response response(no.status, 11);
    if (no.retry_after_s > 0) {
      response.set(http::field::retry_after, std::to_string(no.retry_after_s));
    }
    if (no.status == http::status::unauthorized) {
      response.set(http::field::www_authenticate, options().tokens->challenges());
    }
    if (!no.methods.empty()) response.set(http::field::allow, no.methods);
    Bytes body;
    if (*no.problem != '\0') {
      response.set(http::field::content_type, "application/problem+json");
      body = ToBytes(AsBytes(no.problem));
    } else {
      body = ErrorFrame(no.error, no.refused);
    }
    co_await Respond(response, body, /*keep_alive=*/false);
    lingers_ = true;
    co_await Linger(options().progress_timeout);
    co_return false;
  }

  // --- WebSocket ---

  // What the client has sent of a message.
  struct Piece {
    Bytes bytes;
    bool is_text;
    bool is_last;
  };

  asio::awaitable<bool> ServeSocket(Parser& parser) {
    const auto ws = std::make_shared<WebSocket>(stream_, [this] {
      if (controls_.Take(1, kMostControls, Clock::now()) == Clock::duration::zero()) return;
      figures().Refuse(Refusal::kTooFast);
      Close();
    });
    Deadline(options().progress_timeout);
    // What Beast would refuse by itself has been refused before (CheckUpgrade).
    const auto failed = co_await ws->Accept(parser.get());
    if (failed) co_return false;
    is_socket_ = true;
    stream_.OnTeardown([this, raw = ws.get()] {
      // The client has broken the rules, and was told so.
      if (!raw->got_close() && !lingers_) figures().Refuse(Refusal::kMalformed);
      leaves_ = true;
      LastDeadline(kLinger);
    });
    ++figures().web_sockets;
    const auto count_down = [](Figures* all) { --all->web_sockets; };
    const std::unique_ptr<Figures, decltype(count_down)> counted(&figures(), count_down);
    asio::co_spawn(stream_.get_executor(),
                   ReadAhead(std::static_pointer_cast<Session>(shared_from_this()), ws),
                   asio::detached);
    while (!closed()) {
      Message message;
      std::string text;
      std::optional<No> no;
      if (!co_await ReadMessage(message, text, no)) co_return false;
      if (no) {
        co_await RefuseSocket(*ws, *no);
        co_return false;
      }
      if (!co_await Pause(message)) co_return false;
      if (!text.empty()) {
        if (!co_await TakeToken(*ws, text)) co_return false;
        continue;
      }
      if (NeedsToken(message)) {
        if (message.size() > paid_bytes_) {
          figures().Refuse(Refusal::kNoToken);
          const Bytes bytes = ErrorFrame(absl::PermissionDeniedError(
              "onions need a token: send one as a text message before them"));
          if (!co_await WriteMessage(*ws, bytes)) co_return false;
          Release();
          continue;
        }
        paid_bytes_ -= message.size();
      }
      absl::StatusOr<Bytes> answer = co_await Forward(message, Via::kClient);
      if (closed()) co_return false;
      const Bytes bytes = answer.ok() ? *std::move(answer) : ErrorFrame(answer.status());
      if (!co_await WriteMessage(*ws, bytes)) co_return false;
      Release();
    }
    co_return false;
  }

  // Reads all the time, also while a request waits for its answer: a ping is answered, and it shows
  // when the client goes. What the client sends meanwhile is kept, and is little.
  static asio::awaitable<void> ReadAhead(std::shared_ptr<Session> self,
                                         std::shared_ptr<WebSocket> ws) {
    try {
      Bytes into(kPieceBytes);
      while (!self->closed() && !self->lingers_) {
        if (self->ahead_bytes_ >= kMostAheadBytes || self->ahead_.size() >= kMostAhead) {
          self->read_on_.expires_at(Clock::time_point::max());
          co_await self->read_on_.async_wait(net::kAwait);
          continue;
        }
        const auto [error, n] = co_await ws->ReadSome(into);
        if (error == asio::error::message_size) self->figures().Refuse(Refusal::kMalformed);
        if (error) break;
        self->ahead_.push_back({.bytes = ToBytes(BytesView(into).first(n)),
                                .is_text = ws->got_text(),
                                .is_last = ws->is_message_done()});
        self->ahead_bytes_ += n;
        self->arrived_.cancel();
      }
    } catch (const std::exception&) {
      // Most likely memory is short. This connection ends, and no other.
    }
    if (!self->lingers_) self->Close();
  }
  // The next piece that has come. Nothing if the connection has ended; of a client that leaves
  // nothing more is taken until then.
  asio::awaitable<std::optional<Piece>> NextPiece() {
    while ((ahead_.empty() || leaves_) && !closed()) {
      arrived_.expires_at(Clock::time_point::max());
      co_await arrived_.async_wait(net::kAwait);
    }
    if (closed()) co_return std::nullopt;
    Piece piece = std::move(ahead_.front());
    ahead_.pop_front();
    ahead_bytes_ -= piece.bytes.size();
    read_on_.cancel();
    co_return piece;
  }

  // A token in a text message pays for onions of this connection. False if the connection has
  // ended.
  asio::awaitable<bool> TakeToken(WebSocket& ws, const std::string& text) {
    const std::optional<No> no = co_await Spend(text);
    if (closed()) co_return false;
    if (no) {
      figures().Refuse(no->why);
      const Bytes bytes = ErrorFrame(no->error);
      co_return co_await WriteMessage(ws, bytes);
    }
    paid_bytes_ += options().token_onion_bytes;
    const Bytes ok = ToBytes(AsBytes("ok"));
    co_return co_await WriteMessage(ws, ok, WebSocket::Kind::kText);
  }

  // Reads a frame, or with tokens a text that is not empty. False if the connection has ended.
  asio::awaitable<bool> ReadMessage(Message& message, std::string& text, std::optional<No>& no) {
    Deadline(options().idle_timeout);
    Clock::time_point start = Clock::time_point::max();
    for (;;) {
      const std::optional<Piece> piece = co_await NextPiece();
      if (!piece.has_value()) co_return false;
      if (start == Clock::time_point::max()) start = Clock::now();
      Progress(start, message.size());
      if (piece->is_text) {
        text += ToString(piece->bytes);
        if (options().tokens == nullptr || text.size() > kMaxTextBytes ||
            (piece->is_last && text.empty())) {
          no = Malformed("a text message: frames are binary messages");
        }
      } else {
        no = Take(piece->bytes, message);
        if (!no && piece->is_last) no = Complete(message);
      }
      if (no || piece->is_last) co_return true;
    }
  }

  // Waits until the peer may have this request served.
  asio::awaitable<bool> Pause(const Message& message) {
    NoDeadline();
    bool counted = false;
    for (;;) {
      Clock::duration wait = counted ? Clock::duration::zero() : TakeRequest();
      if (wait == Clock::duration::zero()) {
        counted = true;
        if (message.size() > 0) wait = TakeOnions(message);  // else a token
      }
      if (wait == Clock::duration::zero()) co_return true;
      figures().Refuse(Refusal::kTooFast);
      pause_.expires_after(std::min<Clock::duration>(wait, kLongestPause));
      co_await pause_.async_wait(net::kAwait);
      if (closed() || leaves_) co_return false;
    }
  }

  asio::awaitable<bool> WriteMessage(WebSocket& ws, const Bytes& bytes,
                                     WebSocket::Kind kind = WebSocket::Kind::kBinary) {
    Progress(Clock::now(), bytes.size());
    const auto error = co_await ws.Write(bytes, kind);
    co_return !error;
  }

  asio::awaitable<void> RefuseSocket(WebSocket& ws, const No& no) {
    figures().Refuse(no.why);
    const Bytes bytes = ErrorFrame(no.error, no.refused);
    if (!co_await WriteMessage(ws, bytes)) co_return;
    LastDeadline(kLinger);
    lingers_ = true;
    read_on_.cancel();
    // Reads and drops what comes, until the peer closes as well.
    (void)co_await ws.Refuse();
  }

  // --- the frontend ---

  // How a request came.
  enum class Via { kClient, kOhttp };

  asio::awaitable<absl::StatusOr<Bytes>> Forward(const Message& message, Via via) {
    ++figures().requests;
    figures().received_bytes += message.size();
    const std::shared_ptr<State::Frontend> frontend = door_.TheFrontend();
    absl::StatusOr<Bytes> answer(absl::UnavailableError("not asked"));
    std::optional<RoundWish> wish;
    if (message.type() == FrameType::kWaitRound) wish = RoundWish::Of(message.bytes());
    if (wish.has_value()) {
      answer = co_await WaitRound(*frontend->waits, *wish, via);
    } else {
      answer = co_await Ask(*frontend, message.bytes(), message.type(), via);
    }
    if (answer.ok()) {
      figures().sent_bytes += answer->size();
    } else if (absl::IsResourceExhausted(answer.status())) {
      figures().Refuse(Refusal::kNoRoom);
      co_return NoRoom().error;
    } else if (!closed()) {
      figures().Refuse(Refusal::kNoFrontend);
    }
    co_return answer;
  }

  // RESOURCE_EXHAUSTED: this client may have no more, or nobody. Otherwise as RoundWaits::Wait.
  asio::awaitable<absl::StatusOr<Bytes>> WaitRound(RoundWaits& waits, const RoundWish& wish,
                                                   Via via) {
    std::vector<RoundWaits::Payer> payers = {origin()};
    if (via == Via::kOhttp) payers.push_back(std::nullopt);
    const auto waiter =
        std::make_shared<RoundWaits::Waiter>(stream_.get_executor(), std::move(payers));
    const InUse in_use(waiter_, *waiter);
    Deadline(options().answer_timeout);
    absl::StatusOr<Bytes> answer = co_await waits.Wait(wish, waiter);
    if (answer.ok() && !Claim(answer->size())) {
      co_return absl::ResourceExhaustedError("too many answers at once");
    }
    co_return answer;
  }

  // Over a connection to the frontend, if this client may have one: RESOURCE_EXHAUSTED if not.
  // Otherwise as FrontendLinks::Forward.
  asio::awaitable<absl::StatusOr<Bytes>> Ask(State::Frontend& frontend, BytesView request,
                                             FrameType type, Via via) {
    net::AdmissionControl::Arrival arrival = frontend.calls.Arrive(number(), origin());
    std::optional<net::AdmissionControl::Arrival> of_ohttp;
    if (via == Via::kOhttp) of_ohttp.emplace(frontend.ohttp_calls.Arrive(number(), std::nullopt));
    if (!arrival.place.Welcome().ok() ||
        (of_ohttp.has_value() && !of_ohttp->place.Welcome().ok())) {
      co_return absl::ResourceExhaustedError("too many requests at once");
    }
    FrontendLinks::Call call;
    const InUse in_use(call_, call);
    Deadline(options().answer_timeout);
    const std::function<bool(uint64_t)> claim = [this](uint64_t bytes) { return Claim(bytes); };
    co_return co_await frontend.links->Forward(request, type, claim, call);
  }

  State& door_;
  const bool is_proxy_;
  net::AdmissionControl::Permit place_;
  std::optional<net::AdmissionControl::Permit> visitor_;  // over a proxy
  net::WebStream stream_;
  beast::flat_buffer buffer_{2 * kMaxHeadBytes};
  asio::steady_timer pause_;
  asio::steady_timer spending_;
  std::optional<absl::Status> spent_;  // of the token at hand, once that is known
  uint64_t paid_bytes_ = 0;            // of onions over this WebSocket
  Bucket requests_;
  std::string allow_origin_;  // of the request at hand: the page that may read the answer
  bool is_head_ = false;      // the request at hand: its answer has no body
  FrontendLinks::Call* call_ = nullptr;
  RoundWaits::Waiter* waiter_ = nullptr;
  OhttpPipe* pipe_ = nullptr;
  bool lingers_ = false;
  // Of a WebSocket.
  bool is_socket_ = false;
  bool leaves_ = false;  // all is said, and the peer is to end the connection
  Bucket controls_;
  std::deque<Piece> ahead_;  // what was read and not yet looked at
  size_t ahead_bytes_ = 0;
  asio::steady_timer arrived_, read_on_;  // cancelled when a piece has come, or was taken
};

net::Listener::Admission Door::State::Admit(uint64_t number, const IpAddress& address,
                                            Socket socket) {
  const bool is_proxy = options.proxies.Contains(address);
  // The places of a proxy are those of all its clients.
  const Origin origin = is_proxy ? std::nullopt : Origin(options.shared_addresses.BlockOf(address));
  // Before the handshake, whose signature costs far more than what a peer needs to ask for it.
  if (address_connections.Take(origin, 1, Clock::now()) > Clock::duration::zero()) {
    figures->Refuse(Refusal::kTooFast);
    return {};
  }
  LimitUnsent(socket);
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  net::AdmissionControl::Arrival arrival = places.Arrive(number, origin);
  return {std::make_shared<Session>(*this, number, std::move(arrival.place), is_proxy,
                                    std::move(socket)),
          arrival.evicted};
}

absl::StatusOr<std::unique_ptr<Door>> Door::Start(Options options, Figures* figures) {
  SHOAL_ASSIGN_OR_RETURN(auto context, MakeContext(options.identity));
  options.identity = {};  // the context has it
  auto state = std::make_shared<State>(std::move(options), figures);
  {
    const MutexLock lock(state->mutex);
    state->context = std::move(context);
  }
  SHOAL_RETURN_IF_ERROR(state->UseFrontend(state->options.frontend));
  SHOAL_RETURN_IF_ERROR(state->Start(state->options.address, state->options.threads));
  return std::unique_ptr<Door>(new Door(std::move(state)));
}

Door::~Door() {
  state_->TheFrontend()->Retire();
  state_->Stop();
}

absl::Status Door::UseCertificate(const net::Identity& identity) {
  SHOAL_ASSIGN_OR_RETURN(auto context, MakeContext(identity));
  const MutexLock lock(state_->mutex);
  state_->context.swap(context);
  return absl::OkStatus();
}

absl::Status Door::UseFrontend(const FrontendOptions& frontend) {
  FrontendOptions options = frontend;
  options.max_links = state_->options.frontend.max_links;
  return state_->UseFrontend(options);
}

uint16_t Door::port() const { return state_->port(); }

void Door::Probe() const {
  state_->Probe();
  const MutexLock lock(state_->mutex);
}

}  // namespace shoal::door
