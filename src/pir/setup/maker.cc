#include "src/pir/setup/maker.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/pir/setup/product_file.h"
#include "src/storage/memory.h"

namespace shoal::pir {
namespace {

constexpr double kMaxRefreshShare = 0.9;

// `shape`: null for the engine's choice.
absl::StatusOr<Made> Make(const Engine& engine, const Content& content, const wire::PirSetup* shape,
                          const ServerOptions& options, const std::string& products) {
  ServerOptions server = options;
  if (shape != nullptr) server.shape = *shape;
  Made made;
  made.product = products.empty() ? absl::NotFoundError("no directory of products")
                                  : TakeProduct(products, engine, content, server);
  made.kept = !server.product.empty();
  const Stopwatch stopwatch;
  SHOAL_ASSIGN_OR_RETURN(made.server, engine.CreateServer(content, std::move(server)));
  made.seconds = stopwatch.Seconds();
  return made;
}

}  // namespace

absl::StatusOr<Made> MakeServer(const Engine& engine, const Content& content,
                                const wire::SignedPirSetup& setup, const ServerOptions& options,
                                const std::string& products) {
  const auto is_signed = [&](const Made& made) {
    return SetupId(made.server->setup()) == SetupId(setup.setup());
  };
  SHOAL_ASSIGN_OR_RETURN(Made made, Make(engine, content, &setup.setup(), options, products));
  if (!is_signed(made) && made.kept) {
    // Frees the memory for the second one.
    made.server.reset();
    SHOAL_ASSIGN_OR_RETURN(made, Make(engine, content, &setup.setup(), options, ""));
    made.product = absl::DataLossError("the product on disk is not this table's");
  }
  if (!is_signed(made)) {
    return absl::FailedPreconditionError(
        absl::StrCat(engine.name(),
                     ": the setup that the parties signed does not follow from this table's rows "
                     "and signatures; if the files here are good, all parties must sign another "
                     "one, at the next epoch"));
  }
  return made;
}

bool WorthRefreshing(const Server& server, const Content& content,
                     std::span<const uint64_t> changed_rows) {
  const absl::StatusOr<double> share = server.RefreshShare(content, changed_rows);
  return share.ok() && *share <= kMaxRefreshShare;
}

absl::StatusOr<Proposal> ProposeSetup(const Engine& engine, const table::PreviousEpoch& table,
                                      const SignedEpoch* before, const ServerOptions& options,
                                      const std::string& products) {
  const Content content = ContentOf(table);
  Proposal proposal;
  if (before != nullptr) {
    absl::StatusOr<Made> before_made =
        MakeServer(engine, ContentOf(before->table), before->setup, options, products);
    if (!before_made.ok()) return Annotate(before_made.status(), "the epoch before");
    Made& made = *before_made;
    proposal.product = made.product;
    const std::vector<uint64_t> changed = ChangedRows(before->table, table);
    if (WorthRefreshing(*made.server, content, changed)) {
      // A refresh takes as much as its delta has bytes.
      SHOAL_RETURN_IF_ERROR(CheckMemory(made.server->hint().size(), "what changed of the hint"));
      const absl::StatusOr<std::optional<Delta>> delta = made.server->Refresh(content, changed);
      if (delta.ok()) {
        if (delta->has_value()) proposal.setup.set_delta_digest(ToString(DeltaDigest(**delta)));
        proposal.server = std::move(made.server);
      } else if (!absl::IsInvalidArgument(delta.status())) {
        return delta.status();
      }
      // The content does not fit this server: a new one is made.
    }
  }
  if (proposal.server == nullptr) {
    SHOAL_ASSIGN_OR_RETURN(Made made, Make(engine, content, nullptr, options, products));
    if (before == nullptr) proposal.product = made.product;
    proposal.server = std::move(made.server);
  }
  *proposal.setup.mutable_setup() = proposal.server->setup();
  return proposal;
}

}  // namespace shoal::pir
