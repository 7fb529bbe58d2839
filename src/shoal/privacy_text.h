// Sentences about privacy for people, each with the figures behind it.
#ifndef SHOAL_SRC_SHOAL_PRIVACY_TEXT_H_
#define SHOAL_SRC_SHOAL_PRIVACY_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "src/client/ledger.h"
#include "src/noise/noise.h"

namespace shoal::commands {

// What a loss means: the end of a sentence whose subject is a number of queries.
std::string LossText(const client::TotalLoss& loss);

// What a round of a deployment with this noise protects, as a sentence.
std::string ProtectionText(const noise::Parameters& noise);

// What `queries` queries of one lookup, padding included, reveal together, under the noise and the
// most_in_bucket of a roster. Errors of LossOf.
absl::StatusOr<std::string> LookupText(const noise::Parameters& noise, uint32_t most_in_bucket,
                                       uint64_t queries, uint64_t rounds);

std::string LookupText(const client::TotalLoss& loss, uint64_t queries, uint64_t rounds);

// What everything in the ledger reveals together, at the deployment's delta. Errors of LossAt.
absl::StatusOr<std::string> LedgerText(const client::Ledger& ledger, double delta);
std::string LedgerText(const client::Ledger& ledger, const client::TotalLoss& loss);

// What wrong records mean for the session of an engine that keeps one: the end of a line that names
// the engine. The same for every engine and whatever failed.
std::string AfterWrongRecordsText();

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_PRIVACY_TEXT_H_
