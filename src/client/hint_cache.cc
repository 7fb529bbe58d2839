#include "src/client/hint_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/file.h"
#include "src/base/status_macros.h"

namespace shoal::client {
namespace {

constexpr uint32_t kPieceBytes = 1 << 20;
constexpr uint64_t kMaxDeltasBytes = uint64_t{128} << 20;

std::string SetupPath(const std::string& path) { return path + ".setup"; }
std::string HintPath(const std::string& path) { return path + ".hint"; }
std::string DeltasPath(const std::string& path) { return path + ".deltas"; }

std::optional<wire::PirSetup> ReadSetup(const std::string& path) {
  const auto text = ReadFile(SetupPath(path), 1 << 16);
  wire::PirSetup setup;
  if (!text.ok() || !setup.ParseFromString(*text)) return std::nullopt;
  return setup;
}

Bytes EncodeDelta(const pir::Delta& delta) {
  const std::string to = delta.to.SerializeAsString();
  Bytes out;
  Append(out, delta.from);
  AppendLe<uint32_t>(out, static_cast<uint32_t>(to.size()));
  Append(out, AsBytes(to));
  AppendLe<uint64_t>(out, delta.changes.size());
  Append(out, delta.changes);
  return out;
}

// Those that can be read; a torn tail is left out.
std::vector<pir::Delta> DecodeDeltas(BytesView bytes) {
  std::vector<pir::Delta> deltas;
  while (bytes.size() >= 36) {
    pir::Delta delta;
    std::copy_n(bytes.begin(), 32, delta.from.begin());
    const uint64_t to_bytes = LoadLe<uint32_t>(bytes.data() + 32);
    bytes = bytes.subspan(36);
    if (bytes.size() < to_bytes + 8 ||
        !delta.to.ParseFromString(ToString(bytes.first(to_bytes)))) {
      break;
    }
    const uint64_t changes = LoadLe<uint64_t>(bytes.data() + to_bytes);
    bytes = bytes.subspan(to_bytes + 8);
    if (bytes.size() < changes) break;
    delta.changes = ToBytes(bytes.first(changes));
    bytes = bytes.subspan(changes);
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

absl::Status AppendToFile(const std::string& path, BytesView content) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, path);
  const absl::Status status = WriteAll(fd, content, path);
  close(fd);
  return status;
}

// The client that the files alone give; nothing if they do not.
std::unique_ptr<pir::Client> FromDisk(const std::string& path, const pir::ClientOptions& options) {
  const std::optional<wire::PirSetup> setup = ReadSetup(path);
  if (!setup || !pir::SizesOf(*setup).ok()) return nullptr;
  const auto hint = ReadFile(HintPath(path), setup->hint_bytes());
  if (!hint.ok()) return nullptr;
  auto client = pir::CreateClient(*setup, AsBytes(*hint), options);
  if (!client.ok()) return nullptr;
  if (const auto deltas = ReadFile(DeltasPath(path), kMaxDeltasBytes); deltas.ok()) {
    for (const pir::Delta& delta : DecodeDeltas(AsBytes(*deltas))) {
      if (!(*client)->Apply(delta).ok()) break;
    }
  }
  return *std::move(client);
}

// From the server's setup before: true if the client is now one of `setup`.
bool BringForward(pir::Client& client, const wire::PirSetup& setup, const std::string& path,
                  const EngineCall& call, HintFetch& fetch) {
  pir::Delta delta;
  delta.from = pir::SetupId(client.setup());
  wire::GetPirDeltaRequest request;
  request.set_engine(setup.engine());
  request.set_from_setup_id(ToString(delta.from));
  // What is as large as the hint is not worth it.
  auto frame = call(wire::MakeFrame(wire::FrameType::kGetPirDelta, request), setup.hint_bytes());
  wire::GetPirDeltaResponse response;
  if (!frame.ok() ||
      !wire::ParseFrame(*frame, wire::FrameType::kGetPirDelta, response).ok() ||
      pir::SetupId(response.to()) != pir::SetupId(setup)) {
    return false;
  }
  delta.to = response.to();
  delta.changes = std::move(frame->bulk);
  if (!client.Apply(delta).ok()) return false;
  fetch.received_bytes += delta.changes.size();
  fetch.by_delta = true;
  // What cannot be kept is fetched again next time.
  static_cast<void>(AppendToFile(DeltasPath(path), EncodeDelta(delta)));
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<pir::Client>> ObtainHint(
    const wire::PirSetup& setup, const std::string& path, const EngineCall& call,
    const pir::ClientOptions& options,
    const std::function<void(uint64_t done, uint64_t total)>& progress, HintFetch& fetch) {
  SHOAL_RETURN_IF_ERROR(pir::SizesOf(setup).status());
  const Digest id = pir::SetupId(setup);
  Bytes hint;
  if (!path.empty()) {
    if (std::unique_ptr<pir::Client> client = FromDisk(path, options)) {
      fetch.resumed_bytes = setup.hint_bytes();
      if (pir::SetupId(client->setup()) == id ||
          BringForward(*client, setup, path, call, fetch)) {
        return client;
      }
      fetch.resumed_bytes = 0;
    }
    const std::optional<wire::PirSetup> begun = ReadSetup(path);
    if (begun && pir::SetupId(*begun) == id) {
      if (const auto part = ReadFile(HintPath(path), setup.hint_bytes()); part.ok()) {
        // A whole one that is no hint is not continued.
        if (part->size() < setup.hint_bytes()) hint = ToBytes(AsBytes(*part));
      }
    }
    if (hint.empty()) {
      for (const std::string& file : {DeltasPath(path), HintPath(path)}) unlink(file.c_str());
      const std::string text = setup.SerializeAsString();
      SHOAL_RETURN_IF_ERROR(
          WriteFileAtomically(SetupPath(path), AsBytes(text), FileMode::kPublic));
    }
    fetch.resumed_bytes = hint.size();
  }
  while (hint.size() < setup.hint_bytes()) {
    wire::GetPirHintRequest request;
    request.set_setup_id(ToString(id));
    request.set_offset(hint.size());
    request.set_max_bytes(static_cast<uint32_t>(
        std::min<uint64_t>(kPieceBytes, setup.hint_bytes() - hint.size())));
    SHOAL_ASSIGN_OR_RETURN(
        const wire::Frame frame,
        call(wire::MakeFrame(wire::FrameType::kGetPirHint, request), request.max_bytes()));
    wire::GetPirHintResponse response;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, wire::FrameType::kGetPirHint, response));
    if (response.total_bytes() != setup.hint_bytes() || frame.bulk.empty()) {
      return absl::DataLossError(absl::StrCat("the server sent ", frame.bulk.size(),
                                              " bytes of a hint of ", response.total_bytes(),
                                              ", its setup has ", setup.hint_bytes()));
    }
    if (!path.empty()) SHOAL_RETURN_IF_ERROR(AppendToFile(HintPath(path), frame.bulk));
    Append(hint, frame.bulk);
    fetch.received_bytes += frame.bulk.size();
    if (progress) progress(hint.size(), setup.hint_bytes());
  }
  auto client = pir::CreateClient(setup, hint, options);
  if (absl::IsDataLoss(client.status()) && !path.empty()) {
    // Next time from the start.
    unlink(HintPath(path).c_str());
  }
  return client;
}

}  // namespace shoal::client
