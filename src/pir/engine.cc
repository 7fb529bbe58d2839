#include "src/pir/engine.h"

#include <utility>

#include "src/base/hash.h"
#include "src/base/status_macros.h"

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

Digest SetupId(const wire::PirSetup& setup) {
  Transcript transcript("shoal pir setup v1");
  return AddShape(setup, transcript).U64(setup.hint_bytes()).Blob(setup.hint_digest()).Finish();
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

absl::StatusOr<Asked> Client::Ask(uint64_t row, RandomSource& random) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Asked> asked, Ask({&row, 1}, random));
  return std::move(asked[0]);
}

}  // namespace shoal::pir
