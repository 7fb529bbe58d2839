#include "src/pir/kit/checks.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"

namespace shoal::pir {

namespace {

// Of a query that has a header.
absl::Status CheckEpoch(const wire::PirSetup& setup, BytesView query) {
  const uint64_t epoch = LoadLe<uint64_t>(query.data());
  if (epoch != setup.epoch()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: the query is for epoch %d of the table, this server has epoch %d: "
                        "fetch setup and hint again",
                        setup.engine(), epoch, setup.epoch()));
  }
  return absl::OkStatus();
}

}  // namespace

void AppendQueryHeader(const wire::PirSetup& setup, const Digest& id, Bytes& query) {
  AppendLe<uint64_t>(query, setup.epoch());
  Append(query, id);
}

absl::Status CheckQuery(const wire::PirSetup& setup, const Digest& id, uint64_t query_bytes,
                        BytesView query) {
  if (query.size() < kQueryHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: a query of %d bytes is no query", setup.engine(), query.size()));
  }
  SHOAL_RETURN_IF_ERROR(CheckEpoch(setup, query));
  if (!std::equal(id.begin(), id.end(), query.begin() + 8)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: the query is for another engine, table or set of parameters: fetch "
                        "setup and hint again",
                        setup.engine()));
  }
  if (query.size() != query_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: a query of %d bytes, not %d",
                                                      setup.engine(), query.size(), query_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckRefreshRows(const wire::PirSetup& setup, uint64_t room, const Content& content,
                              std::span<const uint64_t> changed_rows) {
  const std::string& engine = setup.engine();
  if (ToString(content.table_id) != setup.table_id() || content.epoch <= setup.epoch()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not a later epoch of the same table (epoch %d after %d)", engine,
                        content.epoch, setup.epoch()));
  }
  if (content.record_bytes != setup.record_bytes()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: rows of %d bytes, not %d", engine,
                                                      content.record_bytes, setup.record_bytes()));
  }
  if (content.rows == 0 || content.rows > room) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d rows, there is room for %d", engine, content.rows, room));
  }
  uint64_t next = 0;
  for (const uint64_t row : changed_rows) {
    if (row >= std::max<uint64_t>(content.rows, setup.rows())) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: no row %d", engine, row));
    }
    if (row < next) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: row %d is named twice or out of order", engine, row));
    }
    next = row + 1;
  }
  return absl::OkStatus();
}

void SetEpoch(const Content& content, wire::PirSetup& setup) {
  setup.set_epoch(content.epoch);
  setup.set_manifest_digest(ToString(content.manifest_digest));
  setup.set_rows(content.rows);
}

absl::Status CheckRequest(const wire::PirSetup& setup, std::span<const Role> roles,
                          uint64_t query_bytes, Role role, const RequestView& request) {
  if (std::ranges::find(roles, role) == roles.end() || request.kind != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: no such role or kind of request", setup.engine()));
  }
  // A table of another epoch may have queries of another length: what is wrong then is the epoch.
  if (request.body.size() >= kQueryHeaderBytes) {
    SHOAL_RETURN_IF_ERROR(CheckEpoch(setup, request.body));
  }
  if (request.count == 0 || request.count > kMaxQueriesPerRequest ||
      request.body.size() != request.count * query_bytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d bytes for %d queries of %d bytes",
                                                      setup.engine(), request.body.size(),
                                                      request.count, query_bytes));
  }
  return absl::OkStatus();
}

}  // namespace shoal::pir
