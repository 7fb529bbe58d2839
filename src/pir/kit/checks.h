// What servers check whose clients keep nothing between queries but perhaps a public hint: that a
// query is for their setup, and that the content of a next epoch fits them.
#ifndef SHOAL_SRC_PIR_KIT_CHECKS_H_
#define SHOAL_SRC_PIR_KIT_CHECKS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/pir/engine.h"
#include "src/wire/pir.pb.h"

namespace shoal::pir {

// A query begins with the table's epoch (u64) and the SetupId.
inline constexpr size_t kQueryHeaderBytes = 8 + sizeof(Digest);
void AppendQueryHeader(const wire::PirSetup& setup, const Digest& id, Bytes& query);
// FAILED_PRECONDITION for a query to another setup than this, whose SetupId is `id`;
// INVALID_ARGUMENT for a length other than `query_bytes`.
absl::Status CheckQuery(const wire::PirSetup& setup, const Digest& id, uint64_t query_bytes,
                        BytesView query);

// INVALID_ARGUMENT unless this is a later epoch of the setup's table, with at most `room` rows, and
// the changed rows rise and are rows of one of the two epochs.
absl::Status CheckRefreshRows(const wire::PirSetup& setup, uint64_t room, const Content& content,
                              std::span<const uint64_t> changed_rows);
// The setup of the new epoch, but for the hint.
void SetEpoch(const Content& content, wire::PirSetup& setup);

// Of an engine with one server, and with two.
inline constexpr std::array<Role, 1> kSingleRole = {Role::kSingle};
inline constexpr std::array<Role, 2> kPairRoles = {Role::kOffline, Role::kOnline};

// Answers requests to a server of an engine with these roles, whose queries share passes over the
// table: `together` of them at most, of one request or of several. read(query) parses one, and
// answer(queries) returns a vector of as many answers, or an error that all of them get.
// INVALID_ARGUMENT for another role or kind, and another number of queries than the body has;
// FAILED_PRECONDITION, whatever the length, for another epoch. A request whose queries cannot all
// be read has the error of the first of them.
template <typename Read, typename Answer>
std::vector<absl::StatusOr<Bytes>> AnswerInPasses(const wire::PirSetup& setup,
                                                  std::span<const Role> roles, uint64_t query_bytes,
                                                  size_t together, Role role,
                                                  std::span<const RequestView> requests,
                                                  const Read& read, const Answer& answer);

// The check of a request's role, kind, epoch and lengths.
absl::Status CheckRequest(const wire::PirSetup& setup, std::span<const Role> roles,
                          uint64_t query_bytes, Role role, const RequestView& request);

// ---------------------------------------------------------------------------------------------

template <typename Read, typename Answer>
std::vector<absl::StatusOr<Bytes>> AnswerInPasses(const wire::PirSetup& setup,
                                                  std::span<const Role> roles, uint64_t query_bytes,
                                                  size_t together, Role role,
                                                  std::span<const RequestView> requests,
                                                  const Read& read, const Answer& answer) {
  std::vector<absl::StatusOr<Bytes>> answers(requests.size(), Bytes());
  // Of a pass, and which requests they are of.
  std::vector<typename decltype(read(BytesView()))::value_type> queries;
  std::vector<size_t> of;
  const auto pass = [&] {
    if (queries.empty()) return;
    const absl::StatusOr<std::vector<Bytes>> made = answer(queries);
    for (size_t i = 0; i < queries.size(); ++i) {
      absl::StatusOr<Bytes>& to = answers[of[i]];
      if (!made.ok()) {
        to = made.status();
      } else if (to.ok()) {
        Append(*to, (*made)[i]);
      }
    }
    queries.clear();
    of.clear();
  };
  for (size_t r = 0; r < requests.size(); ++r) {
    const RequestView& request = requests[r];
    if (absl::Status status = CheckRequest(setup, roles, query_bytes, role, request);
        !status.ok()) {
      answers[r] = std::move(status);
      continue;
    }
    for (uint32_t i = 0; i < request.count && answers[r].ok(); ++i) {
      auto query = read(request.body.subspan(i * query_bytes, query_bytes));
      if (!query.ok()) {
        answers[r] = query.status();
        break;
      }
      queries.push_back(*std::move(query));
      of.push_back(r);
      if (queries.size() == together) pass();
    }
  }
  pass();
  return answers;
}

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_CHECKS_H_
