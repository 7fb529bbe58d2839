#include "src/shoal/privacy_text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/shoal/format.h"

namespace shoal::commands {
namespace {

std::string Count(uint64_t number, absl::string_view one, absl::string_view many) {
  return absl::StrCat(WithCommas(number), " ", number == 1 ? one : many);
}

std::string Odds(const client::Loss& loss) {
  return absl::StrFormat(
      "nobody's odds between what was asked and anything else change by more than a factor of "
      "%.3g, but for a chance of %.3g (epsilon %.4g, delta %.3g)",
      std::exp(loss.epsilon), loss.delta, loss.epsilon, loss.delta);
}

std::string DoubtText(const client::Ledger& ledger) {
  if (ledger.doubts() == 0) return "";
  return absl::StrCat("; or more: ", Count(ledger.doubts(), "time", "times"),
                      " the state could have been an old copy (the machine was restarted, or the "
                      "state was restored or used elsewhere), and what such a copy lacks is not "
                      "counted");
}

}  // namespace

std::string LossText(const client::TotalLoss& loss) {
  if (loss.epsilon) return Odds({*loss.epsilon, loss.delta});
  const std::string none = absl::StrFormat(
      "not protected at the deployment's delta of %.3g, as the chance is larger that one of them "
      "is given away",
      loss.delta);
  if (!loss.beyond) return absl::StrCat(none, ", nor at any other delta");
  return absl::StrCat(none, "; at a larger delta, ", Odds(*loss.beyond));
}

std::string ProtectionText(const noise::Parameters& noise) {
  const std::string odds = Odds({noise.epsilon, noise.delta});
  if (noise.phi == 1) {
    return absl::StrCat("a round protects single lookups, any one query of a device by itself: ",
                        odds);
  }
  return absl::StrCat("a round protects up to ", WithCommas(noise.phi),
                      " queries of a device together, padding included: ", odds);
}

absl::StatusOr<std::string> LookupText(const noise::Parameters& noise, uint32_t most_in_bucket,
                                       uint64_t queries, uint64_t rounds) {
  SHOAL_ASSIGN_OR_RETURN(const client::TotalLoss loss,
                         client::LossOf(noise, queries, noise.delta, most_in_bucket));
  return LookupText(loss, queries, rounds);
}

std::string LookupText(const client::TotalLoss& loss, uint64_t queries, uint64_t rounds) {
  return absl::StrCat(
      "all ", Count(queries, "query", "queries"), " of this lookup together, padding included",
      rounds > 1 ? absl::StrCat(", in ", WithCommas(rounds), " rounds: ") : ": ", LossText(loss));
}

absl::StatusOr<std::string> LedgerText(const client::Ledger& ledger, double delta) {
  if (ledger.submissions() == 0 && ledger.idle_rounds() == 0) {
    return absl::StrCat("this device has asked nothing yet", DoubtText(ledger));
  }
  SHOAL_ASSIGN_OR_RETURN(const client::TotalLoss loss, ledger.LossAt(delta));
  return LedgerText(ledger, loss);
}

std::string LedgerText(const client::Ledger& ledger, const client::TotalLoss& loss) {
  const std::string idle =
      ledger.idle_rounds() == 0
          ? ""
          : absl::StrCat(" and ", Count(ledger.idle_rounds(), "round", "rounds"),
                         " that it entered without a query");
  return absl::StrCat("all ", Count(ledger.queries(), "query", "queries"), " in ",
                      Count(ledger.submissions(), "submission", "submissions"), idle,
                      " of this device so far together: ", LossText(loss), DoubtText(ledger));
}

std::string AfterWrongRecordsText() {
  return "the session goes on as if nothing had happened, and whoever answered wrongly, or spoilt "
         "what was prepared, learns nothing as long as you do the same: do not ask again, and do "
         "not prepare again but when you would have done so anyway. A later lookup may fail once "
         "more";
}

}  // namespace shoal::commands
