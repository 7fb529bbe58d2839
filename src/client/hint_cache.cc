#include "src/client/hint_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/file.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/pir/pages.h"

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

Digest DeltaDigest(BytesView encoded) {
  return Transcript("shoal hint cache delta v1").Blob(encoded).Finish();
}

Bytes EncodeDelta(const pir::Delta& delta) {
  const std::string to = delta.to.SerializeAsString();
  Bytes out;
  Append(out, delta.from);
  AppendLe<uint32_t>(out, static_cast<uint32_t>(to.size()));
  Append(out, AsBytes(to));
  AppendLe<uint64_t>(out, delta.changes.size());
  Append(out, delta.changes);
  const Digest digest = DeltaDigest(out);
  Append(out, digest);
  return out;
}

// The delta that `bytes` begin with, taken off them; nothing if there is no whole one.
std::optional<pir::Delta> TakeDelta(BytesView& bytes) {
  const BytesView encoded = bytes;
  BytesView rest = bytes;
  const auto take = [&](uint64_t count) {
    const BytesView part = rest.first(count);
    rest = rest.subspan(count);
    return part;
  };
  pir::Delta delta;
  if (rest.size() < 36) return std::nullopt;
  std::ranges::copy(take(32), delta.from.begin());
  const uint64_t to_bytes = LoadLe<uint32_t>(take(4).data());
  if (rest.size() < to_bytes + 8) return std::nullopt;
  const BytesView to = take(to_bytes);
  const uint64_t changes = LoadLe<uint64_t>(take(8).data());
  if (rest.size() < 32 || rest.size() - 32 < changes) return std::nullopt;
  delta.changes = ToBytes(take(changes));
  const Digest digest = DeltaDigest(encoded.first(encoded.size() - rest.size()));
  if (!std::ranges::equal(take(32), digest) || !delta.to.ParseFromString(ToString(to))) {
    return std::nullopt;
  }
  bytes = rest;
  return delta;
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
    BytesView rest = AsBytes(*deltas), good = rest;
    while (const std::optional<pir::Delta> delta = TakeDelta(rest)) {
      if (!(*client)->Apply(*delta).ok()) break;
      good = rest;
    }
    // Cut off what is damaged: more would be added after it, and never be read.
    const auto whole = static_cast<off_t>(deltas->size() - good.size());
    if (!good.empty() && truncate(DeltasPath(path).c_str(), whole) != 0) return nullptr;
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
  SHOAL_ASSIGN_OR_RETURN(const pir::Sizes sizes, pir::SizesOf(setup));
  // Before it is fetched: the server chose its size.
  SHOAL_RETURN_IF_ERROR(pir::CheckMemory(sizes.hint_bytes + sizes.hint_memory_bytes,
                                         absl::StrCat(setup.engine(), ": the hint")));
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
