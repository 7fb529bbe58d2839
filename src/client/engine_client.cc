#include "src/client/engine_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/exchange.h"
#include "src/wire/pir.pb.h"

namespace shoal::client {
namespace {

// Of queries in one request, so that slow links see progress.
constexpr uint64_t kRequestBytes = 4 << 20;

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

absl::Status CheckSetup(const wire::PirSetup& setup, const Deployment& deployment,
                        pir::Engine engine) {
  const auto differs = [](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat("the server's engine is not set up for its table: ", what));
  };
  const table::Manifest& manifest = deployment.manifest();
  if (setup.engine() != pir::EngineName(engine)) return differs("engine");
  if (setup.manifest_digest() != AsText(manifest.digest())) return differs("manifest_digest");
  if (setup.table_id() != manifest.content().table_id()) return differs("table_id");
  if (setup.epoch() != manifest.epoch()) return differs("epoch");
  if (setup.rows() != manifest.rows()) return differs("rows");
  if (setup.record_bytes() != manifest.answer_bytes()) return differs("record_bytes");
  return pir::SizesOf(setup).status();
}

absl::StatusOr<wire::GetPirSetupResponse> FetchSetup(const Deployment& deployment,
                                                     pir::Engine engine, const EngineCall& call) {
  wire::GetPirSetupRequest request;
  request.set_engine(std::string(pir::EngineName(engine)));
  SHOAL_ASSIGN_OR_RETURN(const wire::Frame frame,
                         call(wire::MakeFrame(wire::FrameType::kGetPirSetup, request), 0));
  wire::GetPirSetupResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, wire::FrameType::kGetPirSetup, response));
  SHOAL_RETURN_IF_ERROR(CheckSetup(response.setup(), deployment, engine));
  return response;
}

size_t QueriesPerRequest(const pir::Sizes& sizes) {
  return std::clamp<size_t>(kRequestBytes / sizes.query_bytes, 1, pir::kMaxQueriesPerRequest);
}

absl::StatusOr<Bytes> FetchEngineAnswers(pir::Engine engine, const pir::Sizes& sizes, size_t count,
                                         Bytes queries, const EngineCall& call) {
  wire::PirQueryRequest request;
  request.set_engine(std::string(pir::EngineName(engine)));
  request.set_count(static_cast<uint32_t>(count));
  SHOAL_ASSIGN_OR_RETURN(
      wire::Frame frame,
      call(wire::MakeFrame(wire::FrameType::kPirQuery, request, std::move(queries)),
           count * sizes.answer_bytes));
  wire::PirQueryResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, wire::FrameType::kPirQuery, response));
  if (frame.bulk.size() != count * sizes.answer_bytes) {
    return absl::DataLossError(absl::StrCat("the server sent ", frame.bulk.size(),
                                            " bytes of answers, not ",
                                            count * sizes.answer_bytes));
  }
  return std::move(frame.bulk);
}

absl::StatusOr<wire::Frame> EngineClient::Call(const wire::Frame& request,
                                               uint64_t max_bulk_bytes) {
  return WithRetries(environment_.sleep,
                     [&] { return transport_->CallEngine(request, max_bulk_bytes); });
}

absl::StatusOr<std::unique_ptr<EngineClient>> EngineClient::Open(const Deployment* deployment,
                                                                 Transport* transport,
                                                                 EngineOptions options,
                                                                 Environment environment) {
  if (options.pad_to == 0 || options.pad_to > kMaxPadTo) {
    return absl::InvalidArgumentError(absl::StrCat("pad: 1 to ", kMaxPadTo));
  }
  std::unique_ptr<EngineClient> client(
      new EngineClient(deployment, transport, std::move(options), std::move(environment)));
  const pir::Engine engine = client->options_.engine;
  const EngineCall call = [c = client.get()](const wire::Frame& f, uint64_t bulk) {
    return c->Call(f, bulk);
  };
  SHOAL_ASSIGN_OR_RETURN(const wire::GetPirSetupResponse response,
                         FetchSetup(*deployment, engine, call));
  SHOAL_ASSIGN_OR_RETURN(client->costs_.bytes, pir::SizesOf(response.setup()));
  client->costs_.setup_seconds = response.report().setup_seconds();
  const pir::ClientOptions pir_options{.pool = client->environment_.pool};
  SHOAL_ASSIGN_OR_RETURN(
      client->client_,
      ObtainHint(
          response.setup(), client->options_.hint_path,
          call, pir_options, client->options_.progress, client->fetch_));
  client->costs_.open_seconds = client->fetch_.open_seconds;
  return client;
}

absl::StatusOr<std::vector<Lookup>> EngineClient::LookUp(std::span<const Bytes> keys) {
  const table::RowMap& map = deployment_->map();
  std::vector<Lookup> results(keys.size());
  // Row 0 stands in for what is not asked: no one can tell.
  const size_t count = (keys.size() + options_.pad_to - 1) / options_.pad_to * options_.pad_to;
  std::vector<uint64_t> rows(count);
  std::vector<bool> possible(keys.size(), true);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = map.RowOf(keys[i]);
    if (absl::IsOutOfRange(row.status())) {
      possible[i] = false;
    } else if (!row.ok()) {
      return Annotate(row.status(), absl::StrCat("key ", i + 1));
    } else {
      rows[i] = *row;
    }
  }

  const pir::Sizes& sizes = costs_.bytes;
  const size_t batch = QueriesPerRequest(sizes);
  double query_seconds = 0, answer_seconds = 0, recover_seconds = 0;
  std::vector<Bytes> records;
  for (size_t first = 0; first < count; first += batch) {
    const size_t n = std::min(batch, count - first);
    auto start = std::chrono::steady_clock::now();
    SHOAL_ASSIGN_OR_RETURN(const std::vector<pir::Asked> asked,
                           client_->Ask(std::span(rows).subspan(first, n), *environment_.random));
    Bytes queries;
    for (const pir::Asked& one : asked) Append(queries, one.query);
    query_seconds += Since(start);
    start = std::chrono::steady_clock::now();
    SHOAL_ASSIGN_OR_RETURN(
        const Bytes batch_answers,
        FetchEngineAnswers(options_.engine, sizes, n, std::move(queries),
                           [this](const wire::Frame& f, uint64_t bulk) { return Call(f, bulk); }));
    answer_seconds += Since(start);
    start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < n; ++i) {
      SHOAL_ASSIGN_OR_RETURN(
          Bytes record,
          client_->Recover(asked[i], BytesView(batch_answers)
                                       .subspan(i * sizes.answer_bytes, sizes.answer_bytes)));
      records.push_back(std::move(record));
    }
    recover_seconds += Since(start);
  }
  transport_->HangUp();
  if (count > 0) {
    costs_.query_seconds = query_seconds / static_cast<double>(count);
    costs_.answer_seconds = answer_seconds / static_cast<double>(count);
    costs_.recover_seconds = recover_seconds / static_cast<double>(count);
  }

  std::vector<table::RowAnswer> answers;
  std::vector<size_t> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!possible[i]) {
      results[i].outcome = Lookup::Outcome::kAbsent;
      continue;
    }
    answers.push_back({rows[i], records[i]});
    places.push_back(i);
  }
  const std::vector<absl::Status> verified = map.VerifyAnswers(
      deployment_->roster(), answers, *environment_.random, environment_.pool);
  // It may have expired while the answers were on their way.
  SHOAL_RETURN_IF_ERROR(deployment_->manifest().CheckTime(deployment_->roster(),
                                                          environment_.clock->NowSeconds()));
  for (size_t a = 0; a < answers.size(); ++a) {
    Lookup& result = results[places[a]];
    if (!verified[a].ok()) {
      result.error = verified[a];
      continue;
    }
    result = ResultOf(map, answers[a], keys[places[a]]);
  }
  return results;
}

}  // namespace shoal::client
