#include "src/client/engine_client.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/client/rows.h"
#include "src/wire/pir.pb.h"

namespace shoal::client {
namespace {

// Of queries in one request, so that slow links see progress.
constexpr uint64_t kRequestBytes = 4 << 20;

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Decrypted, in memory.
class EngineAnswers final : public RowAnswers {
 public:
  EngineAnswers(std::vector<uint32_t> rows, SecretVector<uint8_t> records, size_t record_bytes)
      : rows_(std::move(rows)), records_(std::move(records)), record_bytes_(record_bytes) {}

  std::span<const uint32_t> rows() const override { return rows_; }
  absl::Status Read(size_t first, MutableBytes out) const override {
    SHOAL_CHECK(first * record_bytes_ + out.size() <= records_.size());
    std::copy_n(records_.begin() + static_cast<ptrdiff_t>(first * record_bytes_), out.size(),
                out.begin());
    return absl::OkStatus();
  }
  absl::Status Erase() override {
    rows_ = {};
    records_ = {};
    return absl::OkStatus();
  }

 private:
  std::vector<uint32_t> rows_;
  SecretVector<uint8_t> records_;
  const size_t record_bytes_;
};

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
  SHOAL_ASSIGN_OR_RETURN(wire::Frame frame, call(wire::MakeFrame(wire::FrameType::kPirQuery,
                                                                 request, std::move(queries)),
                                                 count * sizes.answer_bytes));
  wire::PirQueryResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, wire::FrameType::kPirQuery, response));
  if (frame.bulk.size() != count * sizes.answer_bytes) {
    return absl::DataLossError(absl::StrCat("the server sent ", frame.bulk.size(),
                                            " bytes of answers, not ", count * sizes.answer_bytes));
  }
  return std::move(frame.bulk);
}

absl::StatusOr<wire::Frame> EngineClient::Call(const wire::Frame& request,
                                               uint64_t max_bulk_bytes) {
  return WithRetries(environment_.sleep,
                     [&] { return transport_->CallEngine(request, max_bulk_bytes); });
}

absl::StatusOr<std::unique_ptr<EngineClient>> EngineClient::Create(const Deployment* deployment,
                                                                   Transport* transport,
                                                                   EngineOptions options,
                                                                   Environment environment) {
  if (options.pad_to == 0 || options.pad_to > kMaxPadTo) {
    return absl::InvalidArgumentError(absl::StrCat("pad: 1 to ", kMaxPadTo));
  }
  return std::unique_ptr<EngineClient>(
      new EngineClient(deployment, transport, std::move(options), std::move(environment)));
}

absl::Status EngineClient::Prepare() {
  if (client_ != nullptr) return absl::OkStatus();
  const EngineCall call = [this](const wire::Frame& f, uint64_t bulk) { return Call(f, bulk); };
  SHOAL_ASSIGN_OR_RETURN(const wire::GetPirSetupResponse response,
                         FetchSetup(deployment_, options_.engine, call));
  SHOAL_ASSIGN_OR_RETURN(costs_.bytes, pir::SizesOf(response.setup()));
  costs_.setup_seconds = response.report().setup_seconds();
  SHOAL_ASSIGN_OR_RETURN(
      client_, ObtainHint(
                   response.setup(), options_.hint_path, call, {.pool = environment_.pool},
                   [this](uint64_t done, uint64_t total) {
                     environment_.Count("fetching the hint", done, total);
                   },
                   fetch_));
  costs_.open_seconds = fetch_.open_seconds;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RowAnswers>> EngineClient::Ask(const Wanted& wanted) {
  SHOAL_CHECK(client_ != nullptr && wanted.rows.size() <= wanted.keys);
  const size_t count = (wanted.keys + options_.pad_to - 1) / options_.pad_to * options_.pad_to;
  const pir::Sizes& sizes = costs_.bytes;
  const size_t record_bytes = deployment_.manifest().answer_bytes();
  const size_t batch = QueriesPerRequest(sizes);
  double query_seconds = 0, answer_seconds = 0, recover_seconds = 0;
  SecretVector<uint8_t> records;
  records.reserve(wanted.rows.size() * record_bytes);
  for (size_t first = 0; first < count; first += batch) {
    const size_t n = std::min(batch, count - first);
    // Row 0 stands in for what is not wanted: no one can tell.
    std::vector<uint64_t> rows(n);
    for (size_t i = 0; i < n && first + i < wanted.rows.size(); ++i)
      rows[i] = wanted.rows[first + i];
    auto start = std::chrono::steady_clock::now();
    SHOAL_ASSIGN_OR_RETURN(const std::vector<pir::Asked> asked,
                           client_->Ask(rows, *environment_.random));
    Bytes queries;
    for (const pir::Asked& one : asked) Append(queries, one.query);
    query_seconds += Since(start);
    start = std::chrono::steady_clock::now();
    SHOAL_ASSIGN_OR_RETURN(
        const Bytes answers,
        FetchEngineAnswers(options_.engine, sizes, n, std::move(queries),
                           [this](const wire::Frame& f, uint64_t bulk) { return Call(f, bulk); }));
    answer_seconds += Since(start);
    start = std::chrono::steady_clock::now();
    // Those that stand in, too: when the next request goes out tells nothing of how many they are.
    for (size_t i = 0; i < n; ++i) {
      SHOAL_ASSIGN_OR_RETURN(
          const Bytes record,
          client_->Recover(asked[i],
                           BytesView(answers).subspan(i * sizes.answer_bytes, sizes.answer_bytes)));
      if (first + i >= wanted.rows.size()) continue;
      records.insert(records.end(), record.begin(), record.end());
    }
    recover_seconds += Since(start);
    environment_.Count("asking", first + n, count);
  }
  if (count > 0) {
    costs_.query_seconds = query_seconds / static_cast<double>(count);
    costs_.answer_seconds = answer_seconds / static_cast<double>(count);
    costs_.recover_seconds = recover_seconds / static_cast<double>(count);
  }
  return std::make_unique<EngineAnswers>(wanted.rows, std::move(records), record_bytes);
}

}  // namespace shoal::client
