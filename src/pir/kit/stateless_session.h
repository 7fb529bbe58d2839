// The session of a client that keeps nothing between queries: a lookup is queries of single rows,
// as many in a request as fit. Where there are two servers, each step asks both.
#ifndef SHOAL_SRC_PIR_KIT_STATELESS_SESSION_H_
#define SHOAL_SRC_PIR_KIT_STATELESS_SESSION_H_

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/pir/engine.h"
#include "src/pir/kit/checks.h"

namespace shoal::pir {

// Client: setup(), shape() with query_bytes() and answer_bytes() of one server, Ask(row, random),
// and Recover(asked, answer). With one server, what Ask returns has a `query`. With two, the client
// has their kRoles, what Ask returns has `queries`, and Recover takes a span of answers, in the
// order of the roles.
template <typename Client>
constexpr std::span<const Role> RolesOf() {
  if constexpr (requires { Client::kRoles; }) {
    return Client::kRoles;
  } else {
    return kSingleRole;
  }
}

// What is sent to the server of the role with this number.
template <typename Asked>
auto& QueryOf(Asked& asked, size_t role) {
  if constexpr (requires { asked.queries; }) {
    return asked.queries[role];
  } else {
    SHOAL_CHECK(role == 0);
    return asked.query;
  }
}

template <typename Client, typename Asked>
absl::StatusOr<SecretVector<uint8_t>> RecoverFrom(const Client& client, const Asked& asked,
                                                  std::span<const BytesView> answers) {
  if constexpr (requires { asked.queries; }) {
    return client.Recover(asked, answers);
  } else {
    return client.Recover(asked, answers[0]);
  }
}

template <typename Client>
class StatelessBatch final : public Batch {
 public:
  StatelessBatch(const Client* client, const Wanted& wanted, uint64_t per_step)
      : client_(*client),
        per_step_(per_step),
        wanted_(wanted.rows.size()),
        rows_(wanted.keys),
        keys_(wanted.keys) {
    // Row 0 stands in for keys that are not there. Stand-ins are asked for, recovered and kept
    // until the end like others, so that the time of a request does not tell them.
    std::ranges::copy(wanted.rows, rows_.begin());
    records_.reserve(keys_ * client_.setup().record_bytes());
  }

  uint64_t steps() const override { return (keys_ - done_ + per_step_ - 1) / per_step_; }

  absl::StatusOr<std::vector<Request>> Next(RandomSource& random) override {
    SHOAL_CHECK(steps() > 0 && asked_.empty());
    const uint64_t count = std::min(per_step_, keys_ - done_);
    std::vector<Request> requests(kRoles.size());
    for (size_t s = 0; s < kRoles.size(); ++s) {
      requests[s].role = kRoles[s];
      requests[s].count = static_cast<uint32_t>(count);
      requests[s].answer_bytes = count * client_.shape().answer_bytes();
      requests[s].body.reserve(count * client_.shape().query_bytes());
    }
    for (uint64_t i = 0; i < count; ++i) {
      asked_.push_back(client_.Ask(rows_[done_ + i], random));
      for (size_t s = 0; s < kRoles.size(); ++s) {
        Append(requests[s].body, QueryOf(asked_.back(), s));
        QueryOf(asked_.back(), s) = {};
      }
    }
    return requests;
  }

  absl::Status Finish(std::span<const BytesView> answers) override {
    SHOAL_CHECK(answers.size() == kRoles.size() && !asked_.empty());
    const uint64_t each = client_.shape().answer_bytes();
    for (const BytesView answer : answers) {
      if (answer.size() == asked_.size() * each) continue;
      return absl::InvalidArgumentError(absl::StrFormat("%s: an answer of %d bytes, not %d",
                                                        client_.setup().engine(), answer.size(),
                                                        asked_.size() * each));
    }
    std::vector<BytesView> of_one(answers.size());
    for (size_t i = 0; i < asked_.size(); ++i) {
      for (size_t s = 0; s < of_one.size(); ++s) of_one[s] = answers[s].subspan(i * each, each);
      SHOAL_ASSIGN_OR_RETURN(const SecretVector<uint8_t> record,
                             RecoverFrom(client_, asked_[i], of_one));
      records_.insert(records_.end(), record.begin(), record.end());
    }
    done_ += asked_.size();
    asked_.clear();
    return absl::OkStatus();
  }

  SecretVector<uint8_t> TakeRecords() override {
    SHOAL_CHECK(steps() == 0);
    records_.resize(wanted_ * client_.setup().record_bytes());
    return std::move(records_);
  }

 private:
  using Asked = decltype(std::declval<const Client&>().Ask(0, std::declval<RandomSource&>()));
  static constexpr std::span<const Role> kRoles = RolesOf<Client>();

  const Client& client_;
  const uint64_t per_step_;
  const uint64_t wanted_;        // keys that are no stand-ins, the first ones
  SecretVector<uint64_t> rows_;  // of every key
  const uint64_t keys_;
  uint64_t done_ = 0;
  std::vector<Asked> asked_;
  SecretVector<uint8_t> records_;
};

template <typename Client>
class StatelessSession final : public Session {
 public:
  explicit StatelessSession(std::unique_ptr<Client> client) : client_(std::move(client)) {}

  const wire::PirSetup& setup() const override { return client_->setup(); }
  Need needed(uint64_t) const override { return Need::kNothing; }
  uint64_t KeysPerStep() const override {
    // Bytes of queries in one request at most, so that slow links see progress.
    constexpr uint64_t kRequestBytes = 4 << 20;
    return std::clamp<uint64_t>(kRequestBytes / client_->shape().query_bytes(), 1,
                                kMaxQueriesPerRequest);
  }
  absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) override {
    SHOAL_CHECK(wanted.keys >= wanted.rows.size());
    for (const uint64_t row : wanted.rows) {
      if (row >= setup().rows()) {
        return absl::OutOfRangeError(absl::StrFormat("%s: row %d of a table of %d rows",
                                                     setup().engine(), row, setup().rows()));
      }
    }
    return std::make_unique<StatelessBatch<Client>>(client_.get(), wanted, KeysPerStep());
  }
  absl::Status Advance(const DeltaView&) override {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: nothing is kept, so that there are no deltas", setup().engine()));
  }

 private:
  const std::unique_ptr<Client> client_;
};

// Of a setup that Client::Create accepts.
template <typename Client>
absl::StatusOr<std::unique_ptr<Session>> OpenStatelessSession(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Create(setup));
  return std::make_unique<StatelessSession<Client>>(std::move(client));
}

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_STATELESS_SESSION_H_
