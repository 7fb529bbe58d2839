#include "src/client/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/client/format.h"

namespace shoal::client {

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const std::string& name,
                                                       const std::string& config_path,
                                                       const Connector& connect, bool quiet,
                                                       cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const Config config, ReadConfig(config_path));
  std::unique_ptr<Session> session(new Session(name, quiet, io));
  Session& s = *session;
  SHOAL_ASSIGN_OR_RETURN(s.store_, FileStateStore::Open(config.state_path, s.random_));
  if (s.store_->discarded_rounds() > 0) {
    s.console_.Warn(absl::StrCat(config.state_path, " is an old copy; gave up the slots of ",
                                 s.store_->discarded_rounds(),
                                 " rounds, which could have been used already"));
  }
  SHOAL_ASSIGN_OR_RETURN(s.transport_, connect(config.frontend));
  SHOAL_ASSIGN_OR_RETURN(
      s.client_,
      Client::Open(config.pins, config.options, s.transport_.get(), s.store_.get(),
                   {.clock = &s.clock_,
                    .random = &s.random_,
                    .pool = &s.pool_,
                    .sleep = SleepFor,
                    .progress = [&s](absl::string_view what) { s.console_.Tell(what); },
                    .count =
                        [&s](absl::string_view stage, uint64_t done, uint64_t total) {
                          s.console_.Count(stage, done, total);
                        },
                    .connect = [connect, address = config.frontend] { return connect(address); }}));
  return session;
}

void Session::TellCosts() {
  const Ledger& ledger = state().ledger;
  if (ledger.submissions() > 0) {
    const Charge& charge = ledger.latest().back();
    const Loss last = LossOf(charge);
    Tell(absl::StrFormat("privacy: epsilon %.4g, delta %.3g for any %d of the %s queries; epsilon "
                         "%.4g, delta %.3g for all of them together",
                         charge.epsilon, charge.delta, std::min(charge.phi, charge.queries),
                         WithCommas(charge.queries), last.epsilon, last.delta));
    Tell(absl::StrFormat("privacy: epsilon %.4g, delta %.3g for all %s submissions so far",
                         ledger.loss().epsilon, ledger.loss().delta,
                         WithCommas(ledger.submissions())));
  }
  const Traffic traffic = client_->traffic();
  Tell(absl::StrCat("traffic: ", BytesText(static_cast<double>(traffic.sent)), " sent, ",
                    BytesText(static_cast<double>(traffic.received)), " received"));
}

}  // namespace shoal::client
