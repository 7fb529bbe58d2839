// An engine's product (pir::Server::product) on disk, so that a restart does not make it anew.
//
//   DIRECTORY/ENGINE.product   "SHOALPP2", 8 bytes rows_per_column, 8 bytes columns, 32 bytes
//                              pir::ProductId, 32 bytes digest of the words, the words
// A server that took later epochs keeps the shape that its first one had, whatever the rows: so
// does one that starts again, and clients keep their hints. It follows from the table alone and is
// no secret; it is its owner's alone (0600) because clients get wrong answers, which they find out,
// from one that somebody else wrote.
#ifndef SHOAL_SRC_SHOALD_PRODUCT_FILE_H_
#define SHOAL_SRC_SHOALD_PRODUCT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/pir/engine.h"

namespace shoal::shoald {

std::string ProductPath(const std::string& directory, absl::string_view engine);

// Puts product and shape into `options`, which are the others of the server to be. On an error they
// are what they were. NOT_FOUND: there is none, or it is another table's or epoch's, or such a
// server would be refused. PERMISSION_DENIED: others may read or write it. DATA_LOSS: damaged.
// RESOURCE_EXHAUSTED: no memory for it.
absl::Status TakeProduct(const std::string& directory, const pir::Engine& engine,
                         const pir::Content& content, pir::ServerOptions& options);

// Makes the directory too.
absl::Status WriteProduct(const std::string& directory, const pir::Server& server);

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PRODUCT_FILE_H_
