#include "src/client/hint_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/pir/setup/signed_setup.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"

namespace shoal::client {
namespace {

std::string SetupPath(const std::string& path) { return path + ".setup"; }
std::string HintPath(const std::string& path) { return path + ".hint"; }
std::string DeltasPath(const std::string& path) { return path + ".deltas"; }

// Whether the error means that the server's content is missing or malformed, so that asking again
// would not help. Other errors may be temporary.
bool IsNone(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsInvalidArgument(status) ||
         absl::IsOutOfRange(status);
}

// The file's content; empty if there is no file, or if it is longer than `max_bytes`.
absl::StatusOr<std::string> ReadKept(const std::string& path, uint64_t max_bytes) {
  auto content = ReadFile(path, max_bytes);
  if (absl::IsNotFound(content.status()) || absl::IsResourceExhausted(content.status())) return "";
  return content;
}

// Keeps the file's first `at` bytes and makes `content` all that follows them.
absl::Status WriteFrom(const std::string& path, uint64_t at, BytesView content) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, path);
  absl::Status status;
  if (ftruncate(fd, static_cast<off_t>(at)) != 0 || lseek(fd, 0, SEEK_END) < 0) {
    status = ErrnoStatus(errno, path);
  } else {
    status = WriteAll(fd, content, path);
  }
  close(fd);
  return status;
}

// Nothing unless the roster's parties signed it.
std::optional<wire::SignedPirSetup> ReadSetup(const std::string& path,
                                              const roster::Roster& roster) {
  const auto text = ReadFile(SetupPath(path), 1 << 16);
  wire::SignedPirSetup setup;
  if (!text.ok() || !setup.ParseFromString(*text) || !pir::VerifySetup(setup, roster).ok()) {
    return std::nullopt;
  }
  return setup;
}

Bytes EncodeHead(const wire::GetPirDeltaResponse& head) {
  const std::string text = head.SerializeAsString();
  Bytes out(4 + text.size());
  StoreLe<uint32_t>(out.data(), static_cast<uint32_t>(text.size()));
  std::ranges::copy(text, out.begin() + 4);
  return out;
}

// Takes the head off the front of `bytes`; nothing if it is not complete.
std::optional<wire::GetPirDeltaResponse> TakeHead(BytesView& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const uint64_t size = LoadLe<uint32_t>(bytes.data());
  wire::GetPirDeltaResponse head;
  if (bytes.size() - 4 < size || !head.ParseFromString(ToString(bytes.subspan(4, size)))) {
    return std::nullopt;
  }
  bytes = bytes.subspan(4 + size);
  return head;
}

absl::Status CheckSigned(const pir::DeltaView& delta, const wire::SignedPirSetup& to) {
  if (to.delta_digest() != AsText(pir::DeltaDigest(delta))) {
    return absl::DataLossError("the delta is not the one that all parties signed");
  }
  return absl::OkStatus();
}

// Applies a delta, which brings the session to the setup `to`, whose signature has been verified.
// DATA_LOSS or INVALID_ARGUMENT: these bytes are not the signed delta; then the session is
// unchanged.
absl::Status Apply(pir::Session& session, const wire::SignedPirSetup& to, BytesView changes) {
  const pir::DeltaView delta = {
      .from = pir::SetupId(session.setup()), .to = to.setup(), .changes = changes};
  SHOAL_RETURN_IF_ERROR(CheckSigned(delta, to));
  return session.Advance(delta);
}

// What the files on disk contain.
struct Kept {
  std::unique_ptr<pir::Session> session;  // null if there is no complete hint
  uint64_t deltas_bytes = 0;              // the part of PATH.deltas that the session has
  // The next delta, of which only a part has come.
  Bytes head, changes;
  bool damaged = false;  // the hint is complete, and is not the setup's
};

absl::StatusOr<std::unique_ptr<pir::Session>> WithHint(const pir::Engine& engine,
                                                       const wire::PirSetup& setup, BytesView hint,
                                                       const pir::SessionOptions& options) {
  // Setups are functions of the table: all servers of an engine have the same.
  const std::vector<wire::PirSetup> setups(engine.roles().size(), setup);
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<pir::Session> session,
                         engine.OpenSession(setups, options));
  SHOAL_RETURN_IF_ERROR(session->TakeHint(hint));
  return session;
}

absl::StatusOr<Kept> FromDisk(const pir::Engine& engine, const roster::Roster& roster,
                              const std::string& path, const pir::SessionOptions& options) {
  Kept kept;
  const std::optional<wire::SignedPirSetup> kept_setup = ReadSetup(path, roster);
  if (!kept_setup || !engine.SizesOf(kept_setup->setup()).ok()) return kept;
  const wire::PirSetup& setup = kept_setup->setup();
  {
    SHOAL_ASSIGN_OR_RETURN(const std::string hint, ReadKept(HintPath(path), setup.hint_bytes()));
    auto session = WithHint(engine, setup, AsBytes(hint), options);
    if (IsNone(session.status())) {
      kept.damaged = hint.size() == setup.hint_bytes();
      return kept;
    }
    SHOAL_ASSIGN_OR_RETURN(kept.session, std::move(session));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string deltas, ReadKept(DeltasPath(path), setup.hint_bytes()));
  // Bytes after the last good delta will be written over.
  for (BytesView rest = AsBytes(deltas); !rest.empty();) {
    const auto head = TakeHead(rest);
    if (!head) break;
    if (rest.size() < head->total_bytes()) {
      kept.head = EncodeHead(*head);
      kept.changes = ToBytes(rest);
      break;
    }
    if (!pir::VerifySetup(head->to(), roster).ok() ||
        !Apply(*kept.session, head->to(), rest.first(head->total_bytes())).ok()) {
      break;
    }
    rest = rest.subspan(head->total_bytes());
    kept.deltas_bytes = deltas.size() - rest.size();
  }
  return kept;
}

// One device's requests for hints and deltas, which come in pieces.
class Fetcher {
 public:
  using Progress = std::function<void(uint64_t done, uint64_t total)>;
  // Writes the piece that begins at `offset`.
  using Keep = std::function<absl::Status(uint64_t offset, BytesView piece)>;

  Fetcher(const EngineCall& call, const Progress& progress, HintFetch& fetch, uint32_t piece_bytes)
      : call_(call), progress_(progress), fetch_(fetch), piece_bytes_(piece_bytes) {}

  // Sends `request` with this offset and max_bytes. INVALID_ARGUMENT: the response is malformed.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Ask(wire::FrameType type, const Request& request, Bytes& piece) {
    const Stopwatch stopwatch;
    auto frame = call_(wire::MakeFrame(type, request), request.max_bytes());
    wait_seconds_ += stopwatch.Seconds();
    SHOAL_RETURN_IF_ERROR(frame.status());
    Response response;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(*frame, type, response));
    piece = std::move(frame->bulk);
    return response;
  }

  // Fetches the bytes that `content` lacks of `total`, for which there must be memory. Every piece
  // is written to disk before the next one is requested; after a piece that cannot be written, none
  // is. DATA_LOSS: the server sends something else.
  template <typename Response, typename Request>
  absl::Status Rest(wire::FrameType type, Request request, uint64_t total, const Keep& keep,
                    Bytes& content) {
    fetch_.resumed_bytes += content.size();
    fetch_.unwritten = absl::OkStatus();
    while (content.size() < total) {
      request.set_offset(content.size());
      request.set_max_bytes(
          static_cast<uint32_t>(std::min<uint64_t>(piece_bytes_, total - content.size())));
      Bytes piece;
      SHOAL_ASSIGN_OR_RETURN(const Response response, Ask<Response>(type, request, piece));
      // Exactly: a server that chose where pieces end could know the client by it when it goes on.
      if (response.total_bytes() != total || piece.size() != request.max_bytes()) {
        return absl::DataLossError(absl::StrCat("the server sent ", piece.size(), " bytes of ",
                                                response.total_bytes(), " where it had said ",
                                                total));
      }
      // The query can be answered without the file.
      if (fetch_.unwritten.ok()) fetch_.unwritten = keep(content.size(), piece);
      content.reserve(total);
      Append(content, piece);
      fetch_.received_bytes += piece.size();
      if (progress_) progress_(content.size(), total);
    }
    return absl::OkStatus();
  }

  double wait_seconds() const { return wait_seconds_; }

 private:
  const EngineCall& call_;
  const Progress& progress_;
  HintFetch& fetch_;
  const uint32_t piece_bytes_;
  double wait_seconds_ = 0;
};

// What the server says of the delta from a setup to `to`. An error for which IsNone is true means
// that it has none, or another one.
absl::StatusOr<wire::GetPirDeltaResponse> AskForDelta(const wire::GetPirDeltaRequest& request,
                                                      const wire::SignedPirSetup& to,
                                                      Fetcher& fetcher) {
  Bytes none;
  SHOAL_ASSIGN_OR_RETURN(auto head, fetcher.Ask<wire::GetPirDeltaResponse>(
                                        wire::FrameType::kGetPirDelta, request, none));
  if (pir::SetupMessage(head.to()) != pir::SetupMessage(to)) {
    return absl::DataLossError("the server's delta leads to another setup than it has");
  }
  *head.mutable_to() = to;
  return head;
}

// Brings the kept session, which is of an earlier epoch, to that of `setup`. An error for which
// IsNone is true means that the server has no delta from there, that its delta is malformed, or
// that the hint is smaller.
absl::Status BringForward(Kept& kept, const wire::SignedPirSetup& to, const std::string& path,
                          Fetcher& fetcher) {
  const wire::PirSetup& setup = to.setup();
  constexpr auto kType = wire::FrameType::kGetPirDelta;
  wire::GetPirDeltaRequest request;
  request.set_engine(setup.engine());
  request.set_from_setup_id(ToString(pir::SetupId(kept.session->setup())));
  SHOAL_ASSIGN_OR_RETURN(const auto head, AskForDelta(request, to, fetcher));
  const Bytes encoded = EncodeHead(head);
  const uint64_t before = kept.deltas_bytes + encoded.size();
  if (before > setup.hint_bytes() || head.total_bytes() > setup.hint_bytes() - before) {
    return absl::NotFoundError("no delta that is worth it");
  }
  Bytes changes;
  if (kept.head == encoded) changes = std::move(kept.changes);
  const auto keep = [&](uint64_t offset, BytesView piece) -> absl::Status {
    const std::string file = DeltasPath(path);
    if (offset == 0) SHOAL_RETURN_IF_ERROR(WriteFrom(file, kept.deltas_bytes, encoded));
    return WriteFrom(file, before + offset, piece);
  };
  SHOAL_RETURN_IF_ERROR(fetcher.Rest<wire::GetPirDeltaResponse>(kType, std::move(request),
                                                                head.total_bytes(), keep, changes));
  return Apply(*kept.session, to, changes);
}

// Fetches the hint, or with `resume` the part that is missing, and opens a session with it. Files
// of another hint are deleted when the first piece of this one has come.
absl::StatusOr<std::unique_ptr<pir::Session>> FetchHint(
    const pir::Engine& engine, const wire::SignedPirSetup& to, const roster::Roster& roster,
    const std::string& path, bool resume, Fetcher& fetcher, const pir::SessionOptions& options) {
  const wire::PirSetup& setup = to.setup();
  const Digest id = pir::SetupId(setup);
  Bytes hint;
  if (const auto begun = path.empty() || !resume ? std::nullopt : ReadSetup(path, roster);
      begun && pir::SetupId(begun->setup()) == id) {
    SHOAL_ASSIGN_OR_RETURN(const std::string part, ReadKept(HintPath(path), setup.hint_bytes()));
    // A complete file that is not a valid hint is not continued.
    if (part.size() < setup.hint_bytes()) hint = ToBytes(AsBytes(part));
  }
  const auto keep = [&](uint64_t offset, BytesView piece) -> absl::Status {
    if (path.empty()) return absl::OkStatus();
    if (offset == 0) {
      for (const std::string& file : {DeltasPath(path), HintPath(path)}) unlink(file.c_str());
      const std::string text = to.SerializeAsString();
      SHOAL_RETURN_IF_ERROR(
          WriteFileAtomically(SetupPath(path), AsBytes(text), FileMode::kPrivate));
    }
    return WriteFrom(HintPath(path), offset, piece);
  };
  wire::GetPirHintRequest request;
  request.set_setup_id(ToString(id));
  SHOAL_RETURN_IF_ERROR(fetcher.Rest<wire::GetPirHintResponse>(
      wire::FrameType::kGetPirHint, std::move(request), setup.hint_bytes(), keep, hint));
  auto session = WithHint(engine, setup, hint, options);
  // The next download begins from the start.
  if (absl::IsDataLoss(session.status()) && !path.empty()) unlink(HintPath(path).c_str());
  return session;
}

absl::StatusOr<std::unique_ptr<pir::Session>> Obtain(const pir::Engine& engine,
                                                     const wire::SignedPirSetup& setup,
                                                     const roster::Roster& roster,
                                                     const std::string& path, Fetcher& fetcher,
                                                     const pir::SessionOptions& options,
                                                     HintFetch& fetch) {
  Kept kept;
  if (!path.empty()) {
    SHOAL_ASSIGN_OR_RETURN(kept, FromDisk(engine, roster, path, options));
  }
  if (kept.session != nullptr) {
    fetch.resumed_bytes = setup.setup().hint_bytes();
    if (pir::SetupId(kept.session->setup()) == pir::SetupId(setup.setup())) {
      return std::move(kept.session);
    }
    const absl::Status forward = BringForward(kept, setup, path, fetcher);
    fetch.by_delta = forward.ok();
    if (forward.ok()) return std::move(kept.session);
    if (!IsNone(forward)) return forward;
    fetch.resumed_bytes = 0;
  }
  const bool again = kept.damaged;
  // Frees the memory of the old hint for the new one.
  kept = {};
  auto session = FetchHint(engine, setup, roster, path, /*resume=*/true, fetcher, options);
  // What was continued may have been damaged on disk, and what came on its way.
  if (!again && absl::IsDataLoss(session.status())) {
    session = FetchHint(engine, setup, roster, path, /*resume=*/false, fetcher, options);
  }
  return session;
}

}  // namespace

absl::StatusOr<std::unique_ptr<pir::Session>> ObtainHint(
    const pir::Engine& engine, const wire::SignedPirSetup& setup, const roster::Roster& roster,
    const std::string& path, const EngineCall& call, const pir::SessionOptions& options,
    const std::function<void(uint64_t done, uint64_t total)>& progress, HintFetch& fetch,
    uint32_t piece_bytes) {
  const Stopwatch stopwatch;
  SHOAL_ASSIGN_OR_RETURN(const pir::Sizes sizes, engine.SizesOf(setup.setup()));
  // Checked before the hint is fetched. In addition to the expanded
  // hint, memory holds either the hint as it came, or deltas, which are not longer than that, with
  // a part of the last delta a second time.
  uint64_t bytes = sizes.hint_bytes + sizes.hint_memory_bytes;
  if (!path.empty() && FileExists(DeltasPath(path))) bytes += sizes.hint_bytes;
  SHOAL_RETURN_IF_ERROR(CheckMemory(bytes, absl::StrCat(engine.name(), ": the hint")));
  Fetcher fetcher(call, progress, fetch, piece_bytes);
  auto session = Obtain(engine, setup, roster, path, fetcher, options, fetch);
  fetch.open_seconds = stopwatch.Seconds() - fetcher.wait_seconds();
  return session;
}

absl::StatusOr<pir::Delta> FetchDelta(
    const Digest& from, const wire::SignedPirSetup& to, uint64_t max_bytes, const EngineCall& call,
    const std::function<void(uint64_t done, uint64_t total)>& progress, HintFetch& fetch) {
  Fetcher fetcher(call, progress, fetch, kHintPieceBytes);
  wire::GetPirDeltaRequest request;
  request.set_engine(to.setup().engine());
  request.set_from_setup_id(ToString(from));
  SHOAL_ASSIGN_OR_RETURN(const auto head, AskForDelta(request, to, fetcher));
  if (head.total_bytes() > max_bytes) {
    return absl::NotFoundError("no delta that is worth it");
  }
  SHOAL_RETURN_IF_ERROR(CheckMemory(head.total_bytes(), "what changed"));
  pir::Delta delta{.from = from, .to = to.setup(), .changes = {}};
  SHOAL_RETURN_IF_ERROR(fetcher.Rest<wire::GetPirDeltaResponse>(
      wire::FrameType::kGetPirDelta, std::move(request), head.total_bytes(),
      [](uint64_t, BytesView) { return absl::OkStatus(); }, delta.changes));
  SHOAL_RETURN_IF_ERROR(CheckSigned(delta, to));
  return delta;
}

}  // namespace shoal::client
