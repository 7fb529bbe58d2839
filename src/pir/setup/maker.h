// Makes engines' servers of a table's epoch: for the server that serves it, and for every party
// before it signs the setup. Both need the same choices.
#ifndef SHOAL_SRC_PIR_SETUP_MAKER_H_
#define SHOAL_SRC_PIR_SETUP_MAKER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/setup/signed_setup.h"
#include "src/table/table.h"
#include "src/wire/pir.pb.h"

namespace shoal::pir {

struct Made {
  std::unique_ptr<Server> server;
  double seconds = 0;
  bool kept = false;     // on disk, where its product was taken from
  absl::Status product;  // why it was not; NOT_FOUND is no surprise
};

// The server of the setup that all parties signed, which the caller has checked (CheckSetup).
// `options` are without shape and product. `products` is the directory that products are taken from
// (product_file.h); empty: none are. Errors of Engine::CreateServer. FAILED_PRECONDITION if this
// content gives another setup: then the parties signed what is not so. Changes nothing on disk.
absl::StatusOr<Made> MakeServer(const Engine& engine, const Content& content,
                                const wire::SignedPirSetup& setup, const ServerOptions& options,
                                const std::string& products = "");

// Whether the server is to become that of `content` by a refresh. If not, a new one is made: the
// content does not fit, or a refresh, during which nobody is answered, would make more than nine
// tenths anew.
bool WorthRefreshing(const Server& server, const Content& content,
                     std::span<const uint64_t> changed_rows);

// An epoch whose setup all parties signed.
struct SignedEpoch {
  table::PreviousEpoch table;
  wire::SignedPirSetup setup;
};

// What a party signs, and the server that it made to know it.
struct Proposal {
  wire::SignedPirSetup setup;  // without a signature
  std::unique_ptr<Server> server;
  absl::Status product;  // Made::product
};
// The setup of a table that all parties signed. With `before`, an earlier epoch of it, the shape
// stays and there is a delta, if that is worth it. The caller has verified before->setup, and every
// byte of before->table (table::VerifyPrevious): a hint that is brought forward from other bytes is
// wrong. `options` and `products` as for MakeServer. Errors of Engine::CreateServer and MakeServer.
absl::StatusOr<Proposal> ProposeSetup(const Engine& engine, const table::PreviousEpoch& table,
                                      const SignedEpoch* before, const ServerOptions& options,
                                      const std::string& products = "");

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_SETUP_MAKER_H_
