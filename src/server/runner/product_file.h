// An engine's product (pir::Server::product) on disk, so that a restart does not make it anew.
//
//   DIRECTORY/ENGINE.product   "SHOALPP1", 32 bytes pir::ProductId, 32 bytes digest of the words, the
//                              words
// It follows from the table alone and is no secret; it is its owner's alone (0600) because clients get
// wrong answers, which they find out, from one that somebody else wrote.
#ifndef SHOAL_SRC_SERVER_RUNNER_PRODUCT_FILE_H_
#define SHOAL_SRC_SERVER_RUNNER_PRODUCT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/pir/engine.h"

namespace shoal::server {

std::string ProductPath(const std::string& directory, absl::string_view engine);

// NOT_FOUND: there is none, or it is another table's, epoch's or shape's. PERMISSION_DENIED: others may
// read or write it. DATA_LOSS: damaged.
absl::StatusOr<std::vector<uint32_t>> ReadProduct(const std::string& directory,
                                                  const wire::PirSetup& shape);

// Makes the directory too.
absl::Status WriteProduct(const std::string& directory, const pir::Server& server);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_RUNNER_PRODUCT_FILE_H_
