#include "src/client/engine_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/rows.h"
#include "src/pir/setup/signed_setup.h"
#include "src/wire/pir.pb.h"

namespace shoal::client {
namespace {

// Decrypted, in memory.
class EngineAnswers final : public RowAnswers {
 public:
  EngineAnswers(std::vector<uint32_t> rows, std::unique_ptr<pir::Batch> batch, size_t record_bytes)
      : rows_(std::move(rows)),
        batch_(std::move(batch)),
        records_(batch_->TakeRecords()),
        record_bytes_(record_bytes) {}

  std::span<const uint32_t> rows() const override { return rows_; }
  absl::Status Read(size_t first, MutableBytes out) const override {
    SHOAL_CHECK(first * record_bytes_ + out.size() <= records_.size());
    std::copy_n(records_.begin() + static_cast<ptrdiff_t>(first * record_bytes_), out.size(),
                out.begin());
    return absl::OkStatus();
  }
  absl::Status Judge(const std::vector<bool>& verified) override {
    return batch_->Judge(records_, verified);
  }
  absl::Status Erase() override {
    rows_ = {};
    records_ = {};
    return absl::OkStatus();
  }

 private:
  std::vector<uint32_t> rows_;
  const std::unique_ptr<pir::Batch> batch_;
  SecretVector<uint8_t> records_;
  const size_t record_bytes_;
};

absl::StatusOr<wire::GetPirSetupResponse> FetchUnchecked(const pir::Engine& engine,
                                                         const EngineCall& call) {
  wire::GetPirSetupRequest request;
  request.set_engine(std::string(engine.name()));
  SHOAL_ASSIGN_OR_RETURN(const wire::Frame frame,
                         call(wire::MakeFrame(wire::FrameType::kGetPirSetup, request), 0));
  wire::GetPirSetupResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, wire::FrameType::kGetPirSetup, response));
  // No bytes of the server's own are kept on disk.
  response.DiscardUnknownFields();
  return response;
}

// The error of a server, `whom`, that was asked for its setup of the engine.
absl::Status NotServed(const absl::Status& status, const pir::Engine& engine,
                       absl::string_view whom) {
  std::string message = absl::StrCat(whom, ": ", status.message());
  if (absl::IsUnavailable(status)) {
    absl::StrAppend(&message, ". Nobody answers where the roster says that clients of ", whom,
                    " connect: it may serve none");
  }
  if (absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status)) {
    absl::StrAppend(&message, ". ", engine.name(),
                    " was asked for; another party may serve it (--party), and without --engine "
                    "the chain answers");
  }
  return absl::Status(status.code(), message);
}

absl::Status Check(const wire::GetPirSetupResponse& response, const Deployment& deployment,
                   const pir::Engine& engine, absl::string_view server) {
  return Annotate(
      pir::CheckSetup(response.setup(), deployment.manifest(), engine, deployment.roster()),
      server);
}

}  // namespace

absl::StatusOr<wire::GetPirSetupResponse> FetchSetup(const Deployment& deployment,
                                                     const pir::Engine& engine,
                                                     const EngineCall& call) {
  SHOAL_ASSIGN_OR_RETURN(const wire::GetPirSetupResponse response, FetchUnchecked(engine, call));
  SHOAL_RETURN_IF_ERROR(Check(response, deployment, engine, "the server"));
  return response;
}

absl::StatusOr<Bytes> FetchAnswer(const pir::Engine& engine, pir::Request& request,
                                  const EngineCall& call) {
  wire::PirQueryRequest message;
  message.set_engine(std::string(engine.name()));
  message.set_count(request.count);
  if (request.role != pir::Role::kSingle) {
    message.set_role(std::string(pir::RoleName(request.role)));
  }
  message.set_kind(request.kind);
  SHOAL_ASSIGN_OR_RETURN(wire::Frame frame, call(wire::MakeFrame(wire::FrameType::kPirQuery,
                                                                 message, std::move(request.body)),
                                                 request.answer_bytes));
  wire::PirQueryResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, wire::FrameType::kPirQuery, response));
  if (frame.bulk.size() != request.answer_bytes) {
    return absl::DataLossError(absl::StrCat("the server sent ", frame.bulk.size(),
                                            " bytes of answers, not ", request.answer_bytes));
  }
  return std::move(frame.bulk);
}

EngineClient::EngineClient(const Deployment* deployment, std::vector<Transport*> servers,
                           EngineOptions options, Environment environment)
    : deployment_(*deployment),
      servers_(std::move(servers)),
      engine_(*options.engine),
      options_(std::move(options)),
      environment_(std::move(environment)) {
  if (servers_.size() > 1) threads_.emplace(servers_.size() - 1);
}

std::string EngineClient::NameOf(size_t server) const {
  if (servers_.size() == 1) return "the server";
  const absl::string_view role = pir::RoleName(engine_.roles()[server]);
  return options_.names.empty() ? absl::StrCat("the ", role, " server")
                                : absl::StrCat(options_.names[server], " (", role, ")");
}

EngineCall EngineClient::CallTo(size_t server) const {
  return [this, server](const wire::Frame& request, uint64_t max_bulk_bytes) {
    return WithRetries(environment_.sleep,
                       [&] { return servers_[server]->CallEngine(request, max_bulk_bytes); });
  };
}

absl::StatusOr<Bytes> EngineClient::Fetch(pir::Request& request) const {
  const auto roles = engine_.roles();
  const auto role = std::ranges::find(roles, request.role);
  SHOAL_CHECK(role != roles.end());
  const auto server = static_cast<size_t>(role - roles.begin());
  absl::StatusOr<Bytes> answer = FetchAnswer(engine_, request, CallTo(server));
  if (!answer.ok() && servers_.size() > 1) return Annotate(answer.status(), NameOf(server));
  return answer;
}

absl::StatusOr<std::vector<Bytes>> EngineClient::FetchAll(std::vector<pir::Request>& requests) {
  std::vector<absl::StatusOr<Bytes>> answers(requests.size());
  const auto fetch = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) answers[i] = Fetch(requests[i]);
  };
  if (threads_) {
    threads_->ParallelFor(requests.size(), 1, fetch);
  } else {
    fetch(0, requests.size());
  }
  std::vector<Bytes> all;
  for (absl::StatusOr<Bytes>& answer : answers) {
    SHOAL_RETURN_IF_ERROR(answer.status());
    all.push_back(*std::move(answer));
  }
  return all;
}

absl::StatusOr<std::unique_ptr<EngineClient>> EngineClient::Create(const Deployment* deployment,
                                                                   std::vector<Transport*> servers,
                                                                   EngineOptions options,
                                                                   Environment environment) {
  SHOAL_CHECK(options.engine != nullptr && servers.size() == options.engine->roles().size() &&
              (options.names.empty() || options.names.size() == servers.size()));
  if (options.pad_to == 0 || options.pad_to > kMaxPadTo) {
    return absl::InvalidArgumentError(absl::StrCat("pad: 1 to ", kMaxPadTo));
  }
  if (options.engine->keeps_state() && options.store == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.engine->name(), " keeps state between lookups, and has no place for it here"));
  }
  return std::unique_ptr<EngineClient>(
      new EngineClient(deployment, std::move(servers), std::move(options), std::move(environment)));
}

void EngineClient::HangUp() {
  for (Transport* const server : servers_) server->HangUp();
}

Traffic EngineClient::traffic() const {
  Traffic all;
  for (const Transport* const server : servers_) {
    const Traffic traffic = server->traffic();
    all.sent += traffic.sent;
    all.received += traffic.received;
  }
  return all;
}

absl::StatusOr<std::vector<wire::SignedPirSetup>> EngineClient::FetchSetups() {
  std::vector<wire::GetPirSetupResponse> responses;
  for (size_t server = 0; server < servers_.size(); ++server) {
    absl::StatusOr<wire::GetPirSetupResponse> response = FetchUnchecked(engine_, CallTo(server));
    if (!response.ok()) {
      const bool named = servers_.size() == 1 && !options_.names.empty();
      return NotServed(response.status(), engine_, named ? options_.names[0] : NameOf(server));
    }
    responses.push_back(*std::move(response));
  }
  // Servers of two epochs first: each of them may be right.
  const wire::PirSetup& first = responses[0].setup().setup();
  for (size_t server = 1; server < servers_.size(); ++server) {
    const wire::PirSetup& other = responses[server].setup().setup();
    if (other.manifest_digest() != first.manifest_digest()) {
      return absl::FailedPreconditionError(
          absl::StrCat(engine_.name(), ": ", NameOf(0), " serves epoch ", first.epoch(),
                       " of the table, and ", NameOf(server), " ",
                       first.epoch() == other.epoch() ? "another table of epoch " : "epoch ",
                       other.epoch(), ": nothing is asked until both serve the same"));
    }
  }
  std::vector<wire::SignedPirSetup> setups;
  for (size_t server = 0; server < servers_.size(); ++server) {
    SHOAL_RETURN_IF_ERROR(Check(responses[server], deployment_, engine_, NameOf(server)));
    costs_.setup_seconds += responses[server].report().setup_seconds();
    setups.push_back(std::move(*responses[server].mutable_setup()));
  }
  for (size_t server = 1; server < servers_.size(); ++server) {
    if (pir::SetupId(setups[server].setup()) == pir::SetupId(setups[0].setup())) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(engine_.name(), ": ", NameOf(0), " and ", NameOf(server),
                     " serve different setups of one table, and all parties have signed both: "
                     "nothing is asked"));
  }
  return setups;
}

absl::Status EngineClient::Open() {
  if (session_ != nullptr) return absl::OkStatus();
  SHOAL_ASSIGN_OR_RETURN(const std::vector<wire::SignedPirSetup> signed_setups, FetchSetups());
  std::vector<wire::PirSetup> setups;
  for (const wire::SignedPirSetup& setup : signed_setups) setups.push_back(setup.setup());
  SHOAL_ASSIGN_OR_RETURN(costs_.bytes, engine_.SizesOf(setups[0]));
  const pir::SessionOptions options = {
      .pool = environment_.pool,
      .store = options_.store,
      .check = [this](std::span<const uint64_t> rows, BytesView records) {
        return CheckRecords(rows, records);
      }};
  const Stopwatch stopwatch;
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<pir::Session> session,
                         engine_.OpenSession(setups, options));
  costs_.open_seconds = stopwatch.Seconds();
  if (session->needed(0) == pir::Session::Need::kHint) {
    SHOAL_ASSIGN_OR_RETURN(session, ObtainHint(
                                        engine_, signed_setups[0], deployment_.roster(),
                                        options_.hint_path, CallTo(0), options,
                                        [this](uint64_t done, uint64_t total) {
                                          environment_.Count("fetching the hint", done, total);
                                        },
                                        fetch_));
    costs_.open_seconds = fetch_.open_seconds;
  }
  if (session->behind().has_value()) {
    SHOAL_RETURN_IF_ERROR(BringForward(*session, signed_setups[0]));
  }
  session_ = std::move(session);
  return absl::OkStatus();
}

absl::Status EngineClient::CheckRecords(std::span<const uint64_t> rows, BytesView records) const {
  const size_t bytes = deployment_.manifest().answer_bytes();
  SHOAL_CHECK(records.size() == rows.size() * bytes);
  std::vector<table::RowAnswer> answers;
  for (size_t i = 0; i < rows.size(); ++i) {
    answers.push_back({rows[i], records.subspan(i * bytes, bytes)});
  }
  const std::vector<absl::Status> verified = deployment_.map().VerifyAnswers(
      deployment_.roster(), answers, *environment_.random, environment_.pool);
  const auto wrong = std::ranges::count_if(verified, [](const auto& one) { return !one.ok(); });
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(wrong, " of ", rows.size(), " records"));
}

absl::Status EngineClient::BringForward(pir::Session& session, const wire::SignedPirSetup& setup) {
  // What a new session would fetch: a hint for all clients, or one that is made for this one.
  const uint64_t anew = std::max(costs_.bytes.hint_bytes, costs_.bytes.prepare_bytes);
  const absl::StatusOr<pir::Delta> delta = FetchDelta(
      *session.behind(), setup, anew, CallTo(0),
      [this](uint64_t done, uint64_t total) {
        environment_.Count("fetching what changed", done, total);
      },
      fetch_);
  // Whatever else fails may pass: what is prepared is not given up for that.
  if (absl::IsNotFound(delta.status())) {
    environment_.Tell(absl::StrCat(engine_.name(),
                                   ": the table has changed, and no delta leads from the epoch of "
                                   "the session that is kept: it is prepared anew"));
    return absl::OkStatus();
  }
  if (absl::IsDataLoss(delta.status()) || absl::IsInvalidArgument(delta.status())) {
    return Annotate(delta.status(),
                    "the session that is kept is unchanged, and goes on when the server sends the "
                    "delta that all parties signed");
  }
  SHOAL_RETURN_IF_ERROR(delta.status());
  const Stopwatch stopwatch;
  SHOAL_RETURN_IF_ERROR(session.Advance(*delta));
  fetch_.by_delta = true;
  costs_.open_seconds += stopwatch.Seconds();
  return absl::OkStatus();
}

absl::Status EngineClient::Prepare() {
  SHOAL_RETURN_IF_ERROR(Open());
  return PrepareFor(0);
}

absl::Status EngineClient::PrepareFor(uint64_t keys) {
  while (session_->needed(keys) == pir::Session::Need::kRequests) {
    SHOAL_ASSIGN_OR_RETURN(pir::Request request, session_->Prepare(*environment_.random));
    SHOAL_ASSIGN_OR_RETURN(const Bytes answer, Fetch(request));
    SHOAL_RETURN_IF_ERROR(session_->TakePrepared(answer));
    if (const auto progress = session_->progress(); progress.total > 0) {
      environment_.Count("preparing", progress.done, progress.total);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RowAnswers>> EngineClient::Ask(const Wanted& wanted) {
  SHOAL_CHECK(session_ != nullptr && wanted.rows.size() <= wanted.keys);
  const uint64_t count = (wanted.keys + options_.pad_to - 1) / options_.pad_to * options_.pad_to;
  SHOAL_RETURN_IF_ERROR(PrepareFor(count));
  const SecretVector<uint64_t> rows(wanted.rows.begin(), wanted.rows.end());
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<pir::Batch> batch,
      session_->Ask(
          {.rows = rows, .keys = count, .spread = deployment_.manifest().content().has_hashed()}));
  double query_seconds = 0, answer_seconds = 0, recover_seconds = 0;
  const uint64_t steps = batch->steps();
  for (uint64_t left = steps; left > 0; left = batch->steps()) {
    Stopwatch stopwatch;
    SHOAL_ASSIGN_OR_RETURN(std::vector<pir::Request> requests, batch->Next(*environment_.random));
    query_seconds += stopwatch.Seconds();
    stopwatch = Stopwatch();
    SHOAL_ASSIGN_OR_RETURN(const std::vector<Bytes> answers, FetchAll(requests));
    answer_seconds += stopwatch.Seconds();
    stopwatch = Stopwatch();
    SHOAL_RETURN_IF_ERROR(batch->Finish(std::vector<BytesView>(answers.begin(), answers.end())));
    recover_seconds += stopwatch.Seconds();
    environment_.Count("asking", steps - left + 1, steps);
  }
  if (count > 0) {
    costs_.query_seconds = query_seconds / static_cast<double>(count);
    costs_.answer_seconds = answer_seconds / static_cast<double>(count);
    costs_.recover_seconds = recover_seconds / static_cast<double>(count);
  }
  return std::make_unique<EngineAnswers>(wanted.rows, std::move(batch),
                                         deployment_.manifest().answer_bytes());
}

}  // namespace shoal::client
