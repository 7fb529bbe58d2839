#include "src/door/ohttp_pipe.h"

#include <utility>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/read.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/net/await.h"

namespace shoal::door {
namespace {

namespace asio = boost::asio;

constexpr uint8_t kRefused = 0, kSealed = 1, kCall = 2, kOtherKey = 3;

absl::Status Away() {
  return absl::UnavailableError("Oblivious HTTP is not served now; try again later");
}

}  // namespace

void OhttpPipe::Close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

asio::awaitable<absl::Status> OhttpPipe::Send(const std::string& path, BytesView request) {
  const asio::local::stream_protocol::endpoint endpoint(path);
  const auto [unconnected] = co_await socket_.async_connect(endpoint, net::kAwait);
  if (unconnected) {
    spdlog::warn("shoal-ohttp at {}: {}", path, unconnected.message());
    co_return Away();
  }
  Bytes bytes;
  bytes.reserve(4 + request.size());
  AppendLe<uint32_t>(bytes, static_cast<uint32_t>(request.size()));
  Append(bytes, request);
  const auto [unsent, n] =
      co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), net::kAwait);
  if (unsent) co_return Away();
  co_return absl::OkStatus();
}

asio::awaitable<bool> OhttpPipe::Read(MutableBytes into) {
  const auto [error, n] =
      co_await asio::async_read(socket_, asio::buffer(into.data(), into.size()), net::kAwait);
  co_return !error;
}

asio::awaitable<absl::StatusOr<Bytes>> OhttpPipe::ReadBlob(size_t length_bytes) {
  Bytes length(sizeof(uint32_t));
  if (!co_await Read(MutableBytes(length).first(length_bytes))) co_return Away();
  const uint32_t size = LoadLe<uint32_t>(length.data());
  if (size > kMaxEncapsulatedBytes) co_return Away();
  Bytes blob(size);
  if (size > 0 && !co_await Read(blob)) co_return Away();
  co_return blob;
}

asio::awaitable<absl::StatusOr<Bytes>> OhttpPipe::Keys(const std::string& path) {
  const absl::Status sent = co_await Send(path, {});
  if (!sent.ok()) co_return sent;
  Bytes what(1);
  if (!co_await Read(what) || what[0] != kSealed) co_return Away();
  co_return co_await ReadBlob(sizeof(uint32_t));
}

asio::awaitable<absl::StatusOr<OhttpPipe::Opened>> OhttpPipe::Open(const std::string& path,
                                                                   BytesView request) {
  const absl::Status sent = co_await Send(path, request);
  if (!sent.ok()) co_return sent;
  Bytes what(1);
  if (!co_await Read(what)) co_return Away();
  if (what[0] == kRefused) {
    co_return absl::InvalidArgumentError("not a request that is taken over Oblivious HTTP");
  }
  if (what[0] == kOtherKey) {
    co_return absl::NotFoundError("not a request that the keys of this door open");
  }
  Opened opened;
  if (what[0] == kSealed) {
    absl::StatusOr<Bytes> sealed = co_await ReadBlob(sizeof(uint32_t));
    if (!sealed.ok() || sealed->empty()) co_return Away();
    opened.sealed = *std::move(sealed);
    co_return opened;
  }
  if (what[0] != kCall) co_return Away();
  const absl::StatusOr<Bytes> authorization = co_await ReadBlob(sizeof(uint16_t));
  if (!authorization.ok()) co_return authorization.status();
  opened.authorization = ToString(*authorization);
  absl::StatusOr<Bytes> frame = co_await ReadBlob(sizeof(uint32_t));
  if (!frame.ok()) co_return frame.status();
  opened.frame = *std::move(frame);
  co_return opened;
}

asio::awaitable<absl::StatusOr<Bytes>> OhttpPipe::Seal(uint16_t status,
                                                       absl::string_view challenges,
                                                       BytesView body) {
  Bytes bytes;
  AppendLe<uint16_t>(bytes, status);
  AppendLe<uint16_t>(bytes, static_cast<uint16_t>(challenges.size()));
  Append(bytes, AsBytes(challenges));
  AppendLe<uint32_t>(bytes, static_cast<uint32_t>(body.size()));
  Append(bytes, body);
  const auto [unsent, n] =
      co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), net::kAwait);
  if (unsent) co_return Away();
  co_return co_await ReadBlob(sizeof(uint32_t));
}

}  // namespace shoal::door
