#include "src/pir/engine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/pir/double_pir.h"
#include "src/pir/simple_pir.h"

namespace shoal::pir {
namespace {

// Engine, table and shape: what hint and product are functions of.
Transcript& AddShape(const wire::PirSetup& setup, Transcript& transcript) {
  return transcript.Blob(setup.engine())
      .Blob(setup.table_id())
      .U64(setup.epoch())
      .Blob(setup.manifest_digest())
      .U64(setup.rows())
      .U64(setup.record_bytes())
      .U64(setup.rows_per_column())
      .U64(setup.columns());
}

}  // namespace

absl::string_view EngineName(Engine engine) {
  switch (engine) {
    case Engine::kSimplePir: return "simplepir";
    case Engine::kDoublePir: return "doublepir";
  }
  SHOAL_CHECK(false);
}

absl::StatusOr<Engine> ParseEngine(absl::string_view name) {
  for (Engine engine : kAllEngines) {
    if (EngineName(engine) == name) return engine;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no engine \"", name, "\": simplepir or doublepir"));
}

Digest SetupId(const wire::PirSetup& setup) {
  Transcript transcript("shoal pir setup v1");
  return AddShape(setup, transcript)
      .U64(setup.hint_bytes())
      .Blob(setup.hint_digest())
      .Finish();
}

uint64_t ChunkOf(const wire::PirSetup& setup, uint64_t chunks, uint64_t row) {
  return row % setup.rows_per_column() / ChunkBlocks(setup, chunks);
}

Digest ProductId(const wire::PirSetup& setup) {
  Transcript transcript("shoal pir product v1");
  return AddShape(setup, transcript).Finish();
}

Digest HintDigest(BytesView hint) { return Transcript("shoal pir hint v1").Blob(hint).Finish(); }

Digest DeltaDigest(const DeltaView& delta) {
  return Transcript("shoal pir delta v1")
      .Blob(delta.from)
      .Blob(SetupId(delta.to))
      .Blob(delta.changes)
      .Finish();
}

absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape) {
  SHOAL_ASSIGN_OR_RETURN(const Engine engine, ParseEngine(shape.engine()));
  return engine == Engine::kSimplePir ? SimplePirSizes(shape) : DoublePirSizes(shape);
}

absl::StatusOr<Sizes> SizesOf(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOfShape(setup));
  if (setup.hint_bytes() != sizes.hint_bytes || setup.hint_digest().size() != 32) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pir setup: a hint of %d bytes, where this shape has %d",
                        setup.hint_bytes(), sizes.hint_bytes));
  }
  return sizes;
}

absl::StatusOr<Asked> Client::Ask(uint64_t row, RandomSource& random) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Asked> asked, Ask({&row, 1}, random));
  return std::move(asked[0]);
}

absl::StatusOr<wire::PirSetup> ShapeOf(Engine engine, const Content& content,
                                       const ServerOptions& options) {
  return engine == Engine::kSimplePir ? SimplePirShape(content, options)
                                      : DoublePirShape(content, options);
}

absl::StatusOr<std::unique_ptr<Server>> CreateServer(Engine engine, const Content& content,
                                                     ServerOptions options) {
  if (engine == Engine::kSimplePir) {
    return SimplePirServer::Create(content, std::move(options));
  }
  return DoublePirServer::Create(content, std::move(options));
}

absl::StatusOr<std::unique_ptr<Client>> CreateClient(const wire::PirSetup& setup, BytesView hint,
                                                     const ClientOptions& options) {
  SHOAL_RETURN_IF_ERROR(SizesOf(setup).status());
  if (hint.size() != setup.hint_bytes()) {
    return absl::DataLossError(absl::StrFormat("pir: a hint of %d bytes, not %d: truncated?",
                                               hint.size(), setup.hint_bytes()));
  }
  if (ToString(HintDigest(hint)) != setup.hint_digest()) {
    return absl::DataLossError("pir: the hint does not have the setup's digest");
  }
  if (setup.engine() == EngineName(Engine::kSimplePir)) {
    return SimplePirClient::Create(setup, hint, options);
  }
  return DoublePirClient::Create(setup, hint, options);
}

}  // namespace shoal::pir
