// The C interface: checks what a caller in C can get wrong, and turns statuses and exceptions into
// codes. Handle (handle.h) does the work.
#include "src/libshoal/shoal.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/printable.h"
#include "src/base/status_macros.h"
#include "src/base/version.h"
#include "src/client/chain_client.h"
#include "src/client/client.h"
#include "src/client/retrieval.h"
#include "src/client/rollback_anchor.h"
#include "src/client/rows.h"
#include "src/client/tls_transport.h"
#include "src/libshoal/handle.h"
#include "src/pir/engine.h"
#include "src/pir/registry/registry.h"

struct shoal_error {
  shoal_code code;
  std::string text;
};

struct shoal_client {
  std::unique_ptr<shoal::library::Handle> handle;
};

struct shoal_cancellation {
  std::atomic<bool> cancelled = false;
  static_assert(std::atomic<bool>::is_always_lock_free);  // for signal handlers
};

struct shoal_results {
  std::unique_ptr<const shoal::library::Answers> answers;
};

namespace shoal::library {
namespace {

static_assert(SHOAL_MAX_KEYS == client::kMaxPadTo);

// Far more than any version's, so that a size that was never set is noticed.
constexpr size_t kMaxOptionsBytes = 4096;
constexpr size_t kMaxEngineName = 64;
constexpr size_t kMaxParties = 8;

shoal_code CodeOf(const absl::Status& status) {
  if (client::IsInUse(status)) return SHOAL_BUSY;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return SHOAL_OK;
    case absl::StatusCode::kCancelled:
      return SHOAL_CANCELLED;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return SHOAL_INVALID_ARGUMENT;
    case absl::StatusCode::kDeadlineExceeded:
      return SHOAL_DEADLINE_EXCEEDED;
    case absl::StatusCode::kNotFound:
      return SHOAL_NOT_FOUND;
    case absl::StatusCode::kPermissionDenied:
      return SHOAL_PERMISSION_DENIED;
    case absl::StatusCode::kResourceExhausted:
      return SHOAL_RESOURCE_EXHAUSTED;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
      return SHOAL_FAILED_PRECONDITION;
    case absl::StatusCode::kAborted:
      return SHOAL_ABORTED;
    case absl::StatusCode::kUnimplemented:
      return SHOAL_UNIMPLEMENTED;
    case absl::StatusCode::kUnavailable:
      return SHOAL_UNAVAILABLE;
    case absl::StatusCode::kDataLoss:
      return SHOAL_DATA_LOSS;
    case absl::StatusCode::kUnauthenticated:
      return SHOAL_UNAUTHENTICATED;
    default:
      return SHOAL_INTERNAL;
  }
}

// No exception goes into C.
template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory");
  } catch (const std::system_error& error) {  // no thread, mostly
    return absl::ResourceExhaustedError(error.what());
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("an exception of an unknown type");
  }
}

// The end of every function that can fail.
template <typename Work>
shoal_code Returned(shoal_error** error, const Work& work) {
  const absl::Status status = Guarded(work);
  const shoal_code code = CodeOf(status);
  if (code == SHOAL_OK || error == nullptr) return code;
  // Without memory even for this, the code alone has to do.
  *error = nullptr;
  Guarded([&] {
    *error = new shoal_error{code, Printable(status.message(), "\n")};
    return absl::OkStatus();
  }).IgnoreError();
  return code;
}

absl::Status Missing(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
}

// The caller's keys, where they are.
class BorrowedKeys final : public client::Keys {
 public:
  static absl::StatusOr<BorrowedKeys> Check(const shoal_bytes* keys, size_t count) {
    if (keys == nullptr) return Missing("keys");
    if (count == 0 || count > SHOAL_MAX_KEYS) {
      return absl::InvalidArgumentError(
          absl::StrCat(count, " keys: a call takes 1 to ", SHOAL_MAX_KEYS));
    }
    uint64_t all = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto wrong = [i](absl::string_view how) {
        return absl::InvalidArgumentError(absl::StrCat("key ", i + 1, " ", how));
      };
      if (keys[i].size == 0) return wrong("is empty");
      if (keys[i].data == nullptr) return wrong("is NULL");
      if (keys[i].size > SHOAL_MAX_KEY_BYTES) {
        return wrong(absl::StrCat("has ", keys[i].size, " bytes; at most ", SHOAL_MAX_KEY_BYTES,
                                  " are possible"));
      }
      all += keys[i].size;
    }
    if (all > SHOAL_MAX_ALL_KEY_BYTES) {
      return absl::InvalidArgumentError(absl::StrCat("the keys have ", all,
                                                     " bytes together; a call takes at most ",
                                                     SHOAL_MAX_ALL_KEY_BYTES));
    }
    return BorrowedKeys(keys, count);
  }

  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    for (size_t i = 0; i < count_; ++i) {
      SHOAL_RETURN_IF_ERROR(
          take(BytesView(static_cast<const uint8_t*>(keys_[i].data), keys_[i].size)));
    }
    return absl::OkStatus();
  }

 private:
  BorrowedKeys(const shoal_bytes* keys, size_t count) : keys_(keys), count_(count) {}
  const shoal_bytes* keys_;
  size_t count_;
};

absl::StatusOr<const pir::Engine*> EngineNamed(const char* name) {
  if (name == nullptr) return nullptr;
  const absl::string_view text(name, ::strnlen(name, kMaxEngineName + 1));
  if (text.size() > kMaxEngineName) {
    return absl::InvalidArgumentError("engine: a name of more than 64 bytes");
  }
  const absl::StatusOr<const pir::Engine*> engine = pir::FindEngine(text);
  if (!engine.ok()) return Annotate(engine.status(), absl::StrCat("no engine \"", text, "\""));
  return engine;
}

// The options that this version knows, from a structure of this version or a later one, whose
// further fields must be zero.
absl::StatusOr<shoal_options> Known(const shoal_options* given) {
  shoal_options known = SHOAL_OPTIONS;
  if (given == nullptr) return known;
  const size_t size = given->size;
  if (size < sizeof(known) || size > kMaxOptionsBytes) {
    return absl::InvalidArgumentError(absl::StrCat("options: size is ", size,
                                                   ", not that of shoal_options: begin with "
                                                   "SHOAL_OPTIONS"));
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(given);
  for (size_t i = sizeof(known); i < size; ++i) {
    if (bytes[i] != 0) {
      return absl::InvalidArgumentError(
          "options: one is set that this version of the library does not know");
    }
  }
  std::memcpy(&known, given, sizeof(known));
  return known;
}

absl::StatusOr<Call> CallOf(const shoal_options* given) {
  SHOAL_ASSIGN_OR_RETURN(const shoal_options options, Known(given));
  Call call;
  SHOAL_ASSIGN_OR_RETURN(call.engine, EngineNamed(options.engine));
  if (options.party_count > kMaxParties) {
    return absl::InvalidArgumentError(absl::StrCat("options: ", options.party_count, " parties"));
  }
  if (options.party_count > 0 && options.parties == nullptr) return Missing("options: parties");
  if (options.party_count > 0) {
    call.parties.assign(options.parties, options.parties + options.party_count);
  }
  call.pad = options.pad == 0 ? 1 : options.pad;
  if (call.engine == nullptr && (options.party_count > 0 || options.pad > 0)) {
    return absl::InvalidArgumentError(
        "options: parties and pad are for engines; the chain begins at party 1 and pads to pad_to "
        "of the configuration");
  }
  if (call.engine != nullptr) {
    SHOAL_RETURN_IF_ERROR(Annotate(client::CheckParties(*call.engine, call.parties), "parties"));
  }
  switch (options.beyond) {
    case SHOAL_REFUSE:
      break;
    case SHOAL_OVER_ROUNDS:
      call.beyond_phi = client::BeyondPhi::kOverRounds;
      break;
    case SHOAL_ACCEPT_MORE:
      call.beyond_phi = client::BeyondPhi::kAcceptMore;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("options: beyond is ", options.beyond));
  }
  if (call.engine != nullptr && options.beyond != SHOAL_REFUSE) {
    return absl::InvalidArgumentError("options: beyond is about rounds, and an engine has none");
  }
  if (options.cancellation != nullptr) call.cancelled = &options.cancellation->cancelled;
  if (options.progress != nullptr) {
    call.report = [progress = options.progress, user = options.user](const Report& report) {
      const shoal_progress said = {.size = sizeof(shoal_progress),
                                   .kind = static_cast<int>(report.kind),
                                   .text = report.text.c_str(),
                                   .done = report.done,
                                   .total = report.total,
                                   .due = report.due_s};
      progress(&said, user);
    };
  }
  return call;
}
static_assert(static_cast<int>(Report::Kind::kTell) == SHOAL_TELL &&
              static_cast<int>(Report::Kind::kWarn) == SHOAL_WARN &&
              static_cast<int>(Report::Kind::kCount) == SHOAL_COUNT &&
              static_cast<int>(Report::Kind::kWait) == SHOAL_WAIT);

int OutcomeOf(client::Lookup::Outcome outcome) {
  switch (outcome) {
    case client::Lookup::Outcome::kFound:
      return SHOAL_FOUND;
    case client::Lookup::Outcome::kAbsent:
      return SHOAL_ABSENT;
    case client::Lookup::Outcome::kUnknown:
      return SHOAL_UNKNOWN;
    case client::Lookup::Outcome::kFailed:
      break;
  }
  return SHOAL_FAILED;
}

}  // namespace
}  // namespace shoal::library

using namespace shoal::library;  // NOLINT: what follows is the interface in C alone

extern "C" {

const char* shoal_code_name(shoal_code code) {
  switch (code) {
    case SHOAL_OK:
      return "OK";
    case SHOAL_CANCELLED:
      return "CANCELLED";
    case SHOAL_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case SHOAL_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case SHOAL_NOT_FOUND:
      return "NOT_FOUND";
    case SHOAL_PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case SHOAL_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case SHOAL_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case SHOAL_ABORTED:
      return "ABORTED";
    case SHOAL_UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case SHOAL_INTERNAL:
      return "INTERNAL";
    case SHOAL_UNAVAILABLE:
      return "UNAVAILABLE";
    case SHOAL_DATA_LOSS:
      return "DATA_LOSS";
    case SHOAL_UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    case SHOAL_BUSY:
      return "BUSY";
    default:
      return "UNKNOWN";
  }
}

const char* shoal_version(void) { return shoal::cli::kVersion; }

const char* const* shoal_engines(void) {
  // Never destroyed: a thread may read it while the process ends.
  static const std::vector<const char*>* const names = [] {
    auto* all = new std::vector<const char*>{"chain"};
    for (const shoal::pir::Engine* const engine : shoal::pir::Engines()) {
      all->push_back((new std::string(engine->name()))->c_str());
    }
    all->push_back(nullptr);
    return all;
  }();
  return names->data();
}

shoal_code shoal_error_code(const shoal_error* error) {
  return error == nullptr ? SHOAL_OK : error->code;
}

const char* shoal_error_text(const shoal_error* error) {
  return error == nullptr ? "" : error->text.c_str();
}

void shoal_error_free(shoal_error* error) { delete error; }

shoal_code shoal_open(const char* path, shoal_client** client, shoal_error** error) {
  if (client != nullptr) *client = nullptr;
  return Returned(error, [&]() -> absl::Status {
    if (client == nullptr) return Missing("client");
    if (path != nullptr && *path == '\0') return absl::InvalidArgumentError("path is empty");
    SHOAL_ASSIGN_OR_RETURN(
        std::unique_ptr<Handle> handle,
        Handle::Open(path == nullptr ? "" : path,
                     [](const std::string& address, std::function<bool()> cancelled) {
                       return shoal::client::ConnectTls(address, std::move(cancelled));
                     }));
    *client = new shoal_client{std::move(handle)};
    return absl::OkStatus();
  });
}

void shoal_close(shoal_client* client) { delete client; }

shoal_cancellation* shoal_cancellation_new(void) { return new (std::nothrow) shoal_cancellation; }

void shoal_cancel(shoal_cancellation* cancellation) {
  if (cancellation != nullptr) cancellation->cancelled.store(true);
}

void shoal_cancellation_free(shoal_cancellation* cancellation) { delete cancellation; }

shoal_code shoal_lookup(shoal_client* client, const shoal_bytes* keys, size_t count,
                        const shoal_options* options, shoal_results** results,
                        shoal_error** error) {
  if (results != nullptr) *results = nullptr;
  return Returned(error, [&]() -> absl::Status {
    if (client == nullptr) return Missing("client");
    if (results == nullptr) return Missing("results");
    SHOAL_ASSIGN_OR_RETURN(BorrowedKeys borrowed, BorrowedKeys::Check(keys, count));
    SHOAL_ASSIGN_OR_RETURN(const Call call, CallOf(options));
    // Before anything is asked: after it, nothing may fail for want of memory that can be had now.
    auto made = std::make_unique<shoal_results>();
    SHOAL_ASSIGN_OR_RETURN(made->answers, client->handle->LookUp(borrowed, count, call));
    *results = made.release();
    return absl::OkStatus();
  });
}

size_t shoal_results_count(const shoal_results* results) {
  return results == nullptr ? 0 : results->answers->count();
}

size_t shoal_results_failed(const shoal_results* results) {
  return results == nullptr ? 0 : results->answers->failed();
}

shoal_code shoal_results_get(const shoal_results* results, size_t index, shoal_result* result) {
  if (result == nullptr) return SHOAL_INVALID_ARGUMENT;
  *result = {SHOAL_FAILED, nullptr, 0, nullptr};
  if (results == nullptr || index >= results->answers->count()) return SHOAL_INVALID_ARGUMENT;
  const Answers::Answer answer = results->answers->Get(index);
  result->outcome = OutcomeOf(answer.outcome);
  if (result->outcome == SHOAL_FOUND) {
    result->value = answer.value.data();
    result->value_size = answer.value.size();
  }
  result->error = answer.error;
  return SHOAL_OK;
}

void shoal_results_traffic(const shoal_results* results, uint64_t* sent, uint64_t* received) {
  const shoal::client::Traffic traffic =
      results == nullptr ? shoal::client::Traffic() : results->answers->traffic();
  if (sent != nullptr) *sent = traffic.sent;
  if (received != nullptr) *received = traffic.received;
}

void shoal_results_free(shoal_results* results) { delete results; }

shoal_code shoal_prepare(shoal_client* client, const shoal_options* options, int anew,
                         uint64_t* queries, shoal_error** error) {
  if (queries != nullptr) *queries = 0;
  return Returned(error, [&]() -> absl::Status {
    if (client == nullptr) return Missing("client");
    SHOAL_ASSIGN_OR_RETURN(const Call call, CallOf(options));
    if (call.engine == nullptr || !call.engine->keeps_state()) {
      return absl::InvalidArgumentError(
          absl::StrCat(call.engine == nullptr ? "the chain" : call.engine->name(),
                       " prepares nothing that is spent: a lookup obtains what it needs"));
    }
    SHOAL_ASSIGN_OR_RETURN(const std::optional<uint64_t> prepared,
                           client->handle->Prepare(call, anew != 0));
    if (queries != nullptr) *queries = prepared.value_or(SHOAL_UNLIMITED);
    return absl::OkStatus();
  });
}

}  // extern "C"
