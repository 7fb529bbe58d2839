#include "src/shoald/pir_service.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spdlog/spdlog.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/setup/product_file.h"
#include "src/pir/setup/signed_setup.h"
#include "src/shoald/table_service.h"
#include "src/storage/memory.h"
#include "src/wire/pir.pb.h"
#include "src/wire/visible.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;

// What a client asked of something that is sent in pieces. OUT_OF_RANGE beyond its end.
absl::StatusOr<Bytes> PieceOf(BytesView whole, uint64_t offset, uint32_t max_bytes) {
  if (offset > whole.size()) {
    return absl::OutOfRangeError(absl::StrCat("there are ", whole.size(), " bytes"));
  }
  const BytesView rest = whole.subspan(offset);
  return ToBytes(rest.first(std::min<size_t>({rest.size(), max_bytes, PirService::kMaxPiece})));
}

}  // namespace

absl::StatusOr<ServedTable> ReadServedTable(const std::string& directory,
                                            std::shared_ptr<const table::Table> table,
                                            std::span<const pir::Engine* const> engines) {
  ServedTable served = {.table = std::move(table), .setups = {}};
  for (const pir::Engine* engine : engines) {
    SHOAL_ASSIGN_OR_RETURN(served.setups[engine], pir::ReadSetup(directory, *engine));
  }
  return served;
}

absl::Status CheckSetups(const ServedTable& served, std::span<const pir::Engine* const> engines,
                         const roster::Roster& roster) {
  for (const pir::Engine* engine : engines) {
    const auto setup = served.setups.find(engine);
    if (setup == served.setups.end()) {
      return absl::InvalidArgumentError(absl::StrCat("there is no setup of ", engine->name()));
    }
    SHOAL_RETURN_IF_ERROR(
        pir::CheckSetup(setup->second, served.table->manifest(), *engine, roster));
  }
  return absl::OkStatus();
}

PirService::PirService(const roster::Roster* roster, PirServiceOptions options)
    : roster_(roster), options_(std::move(options)), heavy_shares_(options_.heavy) {
  if (options_.heavy_threads > 1) {
    heavy_pool_ = std::make_unique<ThreadPool>(options_.heavy_threads - 1);
  }
}

absl::StatusOr<std::unique_ptr<PirService>> PirService::Create(const roster::Roster* roster,
                                                               ServedTable served,
                                                               PirServiceOptions options) {
  std::unique_ptr<PirService> service(new PirService(roster, std::move(options)));
  SHOAL_RETURN_IF_ERROR(CheckSetups(served, service->options_.engines, *roster));
  const pir::Content content = pir::ContentOf(served.table->AsPrevious());
  const WriterLock lock(service->served_mutex_);
  for (auto& [engine, setup] : served.setups) {
    Served& one = service->served_[engine];
    SHOAL_ASSIGN_OR_RETURN(pir::Made made, service->Make(*engine, content, setup));
    if (!made.kept) service->Keep(*made.server);
    service->SetSetupSeconds(*engine, made.seconds);
    one.server = std::move(made.server);
    one.id = pir::SetupId(setup.setup());
    one.setup = std::move(setup);
  }
  service->table_ = std::move(served.table);
  service->most_query_bytes_ = service->MostQueryBytes();
  service->worker_ = std::thread([s = service.get()] { s->Work(); });
  service->heavy_worker_ = std::thread([s = service.get()] { s->WorkOnHeavy(); });
  return service;
}

PirService::~PirService() {
  {
    const MutexLock lock(queue_mutex_);
    stopping_ = true;
  }
  stop_heavy_ = true;
  wake_.NotifyAll();
  wake_heavy_.NotifyAll();
  if (worker_.joinable()) worker_.join();
  if (heavy_worker_.joinable()) heavy_worker_.join();
}

absl::StatusOr<pir::Made> PirService::Make(const pir::Engine& engine, const pir::Content& content,
                                           const wire::SignedPirSetup& setup, bool products) const {
  pir::ServerOptions options{.max_hint_bytes = options_.max_hint_bytes,
                             .pool = options_.pool,
                             .heavy_pool = heavy_pool_.get(),
                             .stop_heavy = &stop_heavy_};
  if (options_.progress) {
    options.progress = [this, &engine](uint64_t done, uint64_t total) {
      options_.progress(engine, done, total);
    };
  }
  SHOAL_ASSIGN_OR_RETURN(pir::Made made, pir::MakeServer(engine, content, setup, options,
                                                         products ? options_.directory : ""));
  const std::string name(engine.name());
  if (made.kept) {
    spdlog::info("{}: the hint of this table is taken from {}", name,
                 pir::ProductPath(options_.directory, name));
  } else if (!absl::IsNotFound(made.product)) {
    spdlog::warn("{}: the hint was made anew: {}", name, made.product.ToString());
  }
  return made;
}

void PirService::Keep(const pir::Server& server) const {
  if (options_.directory.empty() || server.product().empty()) return;
  if (absl::Status status = pir::WriteProduct(options_.directory, server); !status.ok()) {
    spdlog::warn("{}: the next start makes the hint anew: {}", server.setup().engine(),
                 status.ToString());
  }
}

void PirService::SetSetupSeconds(const pir::Engine& engine, double seconds) {
  const MutexLock lock(reports_mutex_);
  reports_[&engine].set_setup_seconds(seconds);
}

bool PirService::Serves(FrameType type) {
  return type == FrameType::kGetPirSetup || type == FrameType::kGetPirHint ||
         type == FrameType::kGetPirDelta || type == FrameType::kPirQuery;
}

absl::StatusOr<wire::FrameLimits> PirService::Limits(FrameType type) const {
  wire::FrameLimits limits{.control_bytes = 4096, .bulk_bytes = 0};
  switch (type) {
    case FrameType::kGetDeployment:
    case FrameType::kGetPlacement:
    case FrameType::kGetRowVersions:
    case FrameType::kGetStatus:
    case FrameType::kGetPirSetup:
    case FrameType::kGetPirHint:
    case FrameType::kGetPirDelta:
      return limits;
    case FrameType::kPirQuery:
      limits.bulk_bytes = most_query_bytes_;
      return limits;
    default:
      return absl::InvalidArgumentError("this server runs no chain: its engines answer alone");
  }
}

uint64_t PirService::MostQueryBytes() const {
  uint64_t most = 0;
  for (const auto& [engine, served] : served_) {
    most = std::max(most, served.server->max_request_bytes());
  }
  return most;
}

void PirService::Handle(wire::Frame request, net::Reply reply) {
  if (request.type == FrameType::kPirQuery) {
    if (absl::Status status = Enqueue(request, reply); !status.ok()) reply(status);
    return;
  }
  if (!served_mutex_.ReaderTryLock()) {
    {
      const MutexLock queue_lock(queue_mutex_);
      deferred_.emplace_back(std::move(request), std::move(reply));
    }
    wake_.NotifyOne();
    return;
  }
  absl::StatusOr<wire::Frame> answer = Answer(request);
  served_mutex_.ReaderUnlock();
  reply(std::move(answer));
}

absl::StatusOr<const pir::Engine*> PirService::Find(const std::string& name) const {
  for (const pir::Engine* engine : options_.engines) {
    if (engine->name() == name) return engine;
  }
  return absl::NotFoundError(absl::StrCat(
      "this server does not run that engine; it runs ",
      absl::StrJoin(options_.engines, ", ", [](std::string* out, const pir::Engine* engine) {
        absl::StrAppend(out, engine->name());
      })));
}

absl::StatusOr<wire::Frame> PirService::Answer(const wire::Frame& request) const {
  switch (request.type) {
    case FrameType::kGetDeployment:
      return GetDeployment(*roster_, *table_, request);
    case FrameType::kGetPlacement:
      return GetPlacement(*table_, request);
    case FrameType::kGetRowVersions:
      return GetRowVersions(*table_, request);
    case FrameType::kGetStatus:
      return wire::MakeFrame(request.type, StatusOf(*roster_, since_start_));
    case FrameType::kGetPirSetup: {
      wire::GetPirSetupRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const pir::Engine* engine, Find(message.engine()));
      wire::GetPirSetupResponse response;
      *response.mutable_setup() = served_.at(engine).setup;
      wire::PirReport& report = *response.mutable_report();
      {
        const MutexLock reports_lock(reports_mutex_);
        report = reports_.at(engine);
      }
      report.set_setup_seconds(wire::VisibleSeconds(report.setup_seconds()));
      report.set_answer_seconds(wire::VisibleSeconds(report.answer_seconds()));
      report.set_answer_cpu_seconds(wire::VisibleSeconds(report.answer_cpu_seconds()));
      return wire::MakeFrame(request.type, response);
    }
    case FrameType::kGetPirHint: {
      wire::GetPirHintRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      for (const auto& [engine, served] : served_) {
        if (AsText(served.id) != message.setup_id()) continue;
        const BytesView hint = served.server->hint();
        SHOAL_ASSIGN_OR_RETURN(Bytes piece, PieceOf(hint, message.offset(), message.max_bytes()));
        wire::GetPirHintResponse response;
        response.set_total_bytes(hint.size());
        return wire::MakeFrame(request.type, response, std::move(piece));
      }
      return absl::NotFoundError("no engine has that setup (any more); ask for the setup again");
    }
    case FrameType::kGetPirDelta: {
      wire::GetPirDeltaRequest message;
      SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
      SHOAL_ASSIGN_OR_RETURN(const pir::Engine* engine, Find(message.engine()));
      const Served& served = served_.at(engine);
      if (served.delta && AsText(served.delta->from) == message.from_setup_id()) {
        const BytesView changes = served.delta->changes;
        SHOAL_ASSIGN_OR_RETURN(Bytes piece,
                               PieceOf(changes, message.offset(), message.max_bytes()));
        wire::GetPirDeltaResponse response;
        *response.mutable_to() = served.setup;
        response.set_total_bytes(changes.size());
        return wire::MakeFrame(request.type, response, std::move(piece));
      }
      return absl::NotFoundError("nothing is known of the way from that setup: fetch the hint");
    }
    default:
      return absl::InvalidArgumentError("not a request to an engine");
  }
}

absl::Status PirService::Enqueue(wire::Frame& request, net::Reply& reply) {
  wire::PirQueryRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  SHOAL_ASSIGN_OR_RETURN(const pir::Engine* engine, Find(message.engine()));
  SHOAL_ASSIGN_OR_RETURN(const pir::Role role, pir::ParseRole(message.role()));
  if (std::ranges::find(engine->roles(), role) == engine->roles().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no server of ", engine->name(), " is ", pir::RoleName(role)));
  }
  if (message.count() == 0 || message.count() > pir::kMaxQueriesPerRequest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a request has 1 to ", pir::kMaxQueriesPerRequest, " queries, not ", message.count()));
  }
  if (engine->IsHeavy(role, message.kind())) {
    if (message.count() != 1) {
      return absl::InvalidArgumentError("a request for hints asks for one thing");
    }
    return EnqueueHeavy(engine, role, message.kind(), request.bulk, reply);
  }
  {
    const MutexLock lock(queue_mutex_);
    if (waiting_bytes_ + request.bulk.size() > kMaxWaitingBytes) {
      return absl::ResourceExhaustedError("too many queries wait; ask again later");
    }
    const double seconds = pass_times_.WaitSeconds();
    if (seconds > options_.max_wait_seconds) {
      return absl::ResourceExhaustedError(absl::StrCat("the queries that wait take the next ",
                                                       std::lround(seconds),
                                                       " seconds; ask again later"));
    }
    waiting_bytes_ += request.bulk.size();
    pass_times_.Add({engine, role}, message.count());
    queue_.push_back(
        {engine, role, message.kind(), message.count(), std::move(request.bulk), std::move(reply)});
  }
  wake_.NotifyOne();
  return absl::OkStatus();
}

void PirService::Work() {
  for (;;) {
    std::vector<Waiting> pass;
    std::deque<std::pair<wire::Frame, net::Reply>> deferred;
    {
      const MutexLock lock(queue_mutex_);
      while (!stopping_ && queue_.empty() && deferred_.empty()) wake_.Wait(queue_mutex_);
      if (stopping_) return;
      deferred = std::exchange(deferred_, {});
    }
    for (auto& [request, reply] : deferred) {
      const ReaderLock lock(served_mutex_);
      reply(Answer(request));
    }
    {
      const MutexLock lock(queue_mutex_);
      if (queue_.empty()) continue;
      // The oldest one's engine and role; those of the same that wait come along, in order.
      const pir::Engine* const engine = queue_.front().engine;
      const pir::Role role = queue_.front().role;
      size_t queries = 0;
      for (auto it = queue_.begin(); it != queue_.end();) {
        if (it->engine != engine || it->role != role ||
            (queries > 0 && queries + it->count > kMaxPass)) {
          ++it;
          continue;
        }
        queries += it->count;
        waiting_bytes_ -= it->body.size();
        pass_times_.Take({engine, role}, it->count);
        pass.push_back(std::move(*it));
        it = queue_.erase(it);
      }
    }
    AnswerPass(std::move(pass));
  }
}

void PirService::AnswerPass(std::vector<Waiting> pass) {
  const pir::Engine* const engine = pass.front().engine;
  std::vector<pir::RequestView> requests;
  uint64_t queries = 0;
  for (const Waiting& waiting : pass) {
    requests.push_back({waiting.kind, waiting.count, waiting.body});
    queries += waiting.count;
  }
  std::vector<absl::StatusOr<Bytes>> answers;
  {
    const ReaderLock lock(served_mutex_);
    const CpuMeter cpu;
    const Stopwatch stopwatch;
    answers = served_.at(engine).server->Answer(pass.front().role, requests);
    const double seconds = stopwatch.Seconds();
    const MutexLock reports_lock(reports_mutex_);
    wire::PirReport& report = reports_.at(engine);
    report.set_queries(report.queries() + queries);
    report.set_passes(report.passes() + 1);
    report.set_answer_seconds(report.answer_seconds() + seconds);
    report.set_answer_cpu_seconds(report.answer_cpu_seconds() + cpu.Seconds());
    uint64_t answered = 0;
    for (size_t i = 0; i < pass.size(); ++i) answered += answers[i].ok() ? pass[i].count : 0;
    if (answered > 0) {
      const MutexLock queue_lock(queue_mutex_);
      pass_times_.Passed({engine, pass.front().role}, answered, seconds);
    }
  }
  for (size_t i = 0; i < pass.size(); ++i) {
    answers[i].ok() ? pass[i].reply(wire::MakeFrame(FrameType::kPirQuery, wire::PirQueryResponse(),
                                                    *std::move(answers[i])))
                    : pass[i].reply(answers[i].status());
  }
}

absl::Status PirService::EnqueueHeavy(const pir::Engine* engine, pir::Role role, uint32_t kind,
                                      Bytes& body, net::Reply& reply) {
  {
    const MutexLock lock(queue_mutex_);
    SHOAL_RETURN_IF_ERROR(heavy_shares_.Add(reply.from(), since_start_.Seconds()));
    heavy_.push_back({engine, role, kind, 1, std::move(body), std::move(reply)});
  }
  wake_heavy_.NotifyOne();
  return absl::OkStatus();
}

void PirService::WorkOnHeavy() {
  for (;;) {
    std::optional<Waiting> next;
    {
      const MutexLock lock(queue_mutex_);
      while (!stopping_ && heavy_.empty()) wake_heavy_.Wait(queue_mutex_);
      if (stopping_) return;
      next.emplace(std::move(heavy_.front()));
      heavy_.pop_front();
    }
    AnswerHeavy(*std::move(next));
  }
}

void PirService::AnswerHeavy(Waiting waiting) {
  const pir::RequestView request = {waiting.kind, waiting.count, waiting.body};
  const Stopwatch stopwatch;
  const CpuMeter cpu;
  absl::StatusOr<Bytes> answer;
  {
    const ReaderLock lock(served_mutex_);
    answer = std::move(
        served_.at(waiting.engine).server->Answer(waiting.role, std::span(&request, 1))[0]);
    const MutexLock reports_lock(reports_mutex_);
    wire::PirReport& report = reports_.at(waiting.engine);
    report.set_heavy_requests(report.heavy_requests() + 1);
    report.set_heavy_cpu_seconds(report.heavy_cpu_seconds() + cpu.Seconds());
  }
  {
    const MutexLock lock(queue_mutex_);
    heavy_shares_.Done(waiting.reply.from(), stopwatch.Seconds(), since_start_.Seconds());
  }
  answer.ok() ? waiting.reply(wire::MakeFrame(FrameType::kPirQuery, wire::PirQueryResponse(),
                                              *std::move(answer)))
              : waiting.reply(answer.status());
}

absl::Status PirService::Reload(ServedTable next, const std::function<absl::Status()>& commit) {
  const MutexLock reloading(reload_mutex_);
  SHOAL_RETURN_IF_ERROR(CheckSetups(next, options_.engines, *roster_));
  const pir::Content content = pir::ContentOf(next.table->AsPrevious());
  // What takes a whole new server is made beside the old one, which goes on answering.
  std::map<const pir::Engine*, pir::Made> made;
  std::vector<uint64_t> changed;
  uint64_t refresh_bytes = 0;
  {
    const ReaderLock lock(served_mutex_);
    if (next.table->manifest().epoch() <= table_->manifest().epoch()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the table's epoch ", next.table->manifest().epoch(), " is not after ",
                       table_->manifest().epoch()));
    }
    changed = pir::ChangedRows(table_->AsPrevious(), next.table->AsPrevious());
    for (const auto& [engine, served] : served_) {
      const wire::SignedPirSetup& setup = next.setups.at(engine);
      const bool same_shape = pir::SameShape(served.setup.setup(), setup.setup());
      if (same_shape && pir::WorthRefreshing(*served.server, content, changed)) {
        refresh_bytes += served.server->hint().size();
        continue;
      }
      absl::StatusOr<pir::Made> server = Make(*engine, content, setup);
      if (server.ok()) {
        made[engine] = *std::move(server);
      } else if (same_shape && absl::IsResourceExhausted(server.status()) &&
                 served.server->RefreshShare(content, changed).ok()) {
        spdlog::warn("{}: answers wait while the hint is made anew: {}",
                     std::string(engine->name()), server.status().ToString());
        refresh_bytes += served.server->hint().size();
      } else {
        return server.status();
      }
    }
    // What is refreshed in place has memory from here on: its delta may be nearly as long as the
    // hint.
    SHOAL_RETURN_IF_ERROR(CheckMemory(refresh_bytes, "what changed of the hints"));
  }
  if (commit) SHOAL_RETURN_IF_ERROR(commit());
  std::vector<const pir::Server*> to_keep;
  {
    // Answers wait while hints are refreshed. Hints that a client is being made would be of the
    // epoch before.
    stop_heavy_ = true;
    const WriterLock lock(served_mutex_);
    stop_heavy_ = false;
    for (auto& [engine, served] : served_) {
      served.delta.reset();
      served.setup = std::move(next.setups.at(engine));
      served.id = pir::SetupId(served.setup.setup());
      if (auto fresh = made.find(engine); fresh != made.end()) {
        served.server = std::move(fresh->second.server);
        SetSetupSeconds(*engine, fresh->second.seconds);
        if (!fresh->second.kept) to_keep.push_back(served.server.get());
        continue;
      }
      const Stopwatch stopwatch;
      auto delta = served.server->Refresh(content, changed);
      SetSetupSeconds(*engine, stopwatch.Seconds());
      if (!delta.ok() || pir::SetupId(served.server->setup()) != served.id) {
        const std::string name(engine->name());
        spdlog::warn("{}: the server is made anew: {}", name,
                     delta.ok() ? "what it kept was not the table's" : delta.status().ToString());
        delta = std::nullopt;
        absl::StatusOr<pir::Made> anew = Make(*engine, content, served.setup, /*products=*/false);
        if (!anew.ok()) {
          // Clients take the signed setup alone, and this server refuses queries that name it.
          spdlog::error("{}: nobody is answered until another epoch is taken: {}", name,
                        anew.status().ToString());
          continue;
        }
        served.server = std::move(anew->server);
      }
      to_keep.push_back(served.server.get());
      // Clients take no other delta than the signed one.
      if (*delta && AsText(pir::DeltaDigest(**delta)) == served.setup.delta_digest()) {
        served.delta = *std::move(delta);
      }
    }
    table_ = std::move(next.table);
    most_query_bytes_ = MostQueryBytes();
  }
  // Only this function, one call at a time, changes what is served: reading needs no lock, and
  // answers need not wait for a disk.
  for (const pir::Server* server : to_keep) Keep(*server);
  return absl::OkStatus();
}

}  // namespace shoal::shoald
