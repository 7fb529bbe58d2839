// An engine's product (pir::Server::product) on disk, so that a restart does not make it anew.
//
//   DIRECTORY/ENGINE.product   "SHOALPP3", ProductId, 32-byte digest of the words, the words
// It follows from the table alone and is no secret. It is its owner's alone (0600) because a party
// signs the hint that it gives.
#ifndef SHOAL_SRC_PIR_SETUP_PRODUCT_FILE_H_
#define SHOAL_SRC_PIR_SETUP_PRODUCT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/pir/engine.h"

namespace shoal::pir {

std::string ProductPath(const std::string& directory, absl::string_view engine);

// Puts the product into `options`, which are the others of the server to be, its shape included. On
// an error they are what they were. NOT_FOUND: there is none, or it is another table's or epoch's,
// or such a server would be refused. PERMISSION_DENIED: others may read or write it. DATA_LOSS:
// damaged. RESOURCE_EXHAUSTED: no memory for it.
absl::Status TakeProduct(const std::string& directory, const Engine& engine, const Content& content,
                         ServerOptions& options);

// Makes the directory too.
absl::Status WriteProduct(const std::string& directory, const Server& server);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_SETUP_PRODUCT_FILE_H_
