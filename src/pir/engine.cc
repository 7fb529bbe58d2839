#include "src/pir/engine.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"

namespace shoal::pir {
namespace {

// Engine, table and shape: what hint and product are functions of.
Transcript& AddShape(const wire::PirSetup& setup, Transcript& transcript) {
  transcript.Blob(setup.engine())
      .Blob(setup.table_id())
      .U64(setup.epoch())
      .Blob(setup.manifest_digest())
      .U64(setup.rows())
      .U64(setup.record_bytes())
      .U64(setup.rows_per_column())
      .U64(setup.columns());
  // Which families have a shape of their own follows from the engine's name.
  if (!setup.shape().empty()) transcript.Blob(setup.shape());
  return transcript;
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kSingle:
      return "single";
    case Role::kOffline:
      return "offline";
    case Role::kOnline:
      return "online";
  }
  SHOAL_CHECK(false);
}

absl::StatusOr<Role> ParseRole(absl::string_view name) {
  if (name.empty()) return Role::kSingle;
  for (const Role role : {Role::kSingle, Role::kOffline, Role::kOnline}) {
    if (RoleName(role) == name) return role;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no role \"", name, "\": single, offline or online"));
}

wire::PirSetup SetupOf(absl::string_view engine, const Content& content) {
  wire::PirSetup setup;
  setup.set_engine(std::string(engine));
  setup.set_table_id(ToString(content.table_id));
  setup.set_epoch(content.epoch);
  setup.set_manifest_digest(ToString(content.manifest_digest));
  setup.set_rows(content.rows);
  setup.set_record_bytes(content.record_bytes);
  return setup;
}

Digest SetupId(const wire::PirSetup& setup) {
  Transcript transcript("shoal pir setup v1");
  return AddShape(setup, transcript).U64(setup.hint_bytes()).Blob(setup.hint_digest()).Finish();
}

bool SameShape(const wire::PirSetup& a, const wire::PirSetup& b) {
  return a.engine() == b.engine() && a.table_id() == b.table_id() &&
         a.record_bytes() == b.record_bytes() && a.rows_per_column() == b.rows_per_column() &&
         a.columns() == b.columns() && a.shape() == b.shape();
}

Digest ProductId(const wire::PirSetup& setup) {
  Transcript transcript("shoal pir product v1");
  return AddShape(setup, transcript).Finish();
}

Digest HintDigest(BytesView hint) { return Transcript("shoal pir hint v1").Blob(hint).Finish(); }

Digest DeltaDigest(const DeltaView& delta) {
  return Transcript("shoal pir delta v2")
      .Blob(delta.from)
      .Blob(SetupId(delta.to))
      .Blob(delta.changes)
      .Finish();
}

absl::Status CheckHint(const wire::PirSetup& setup, const Sizes& sizes) {
  const size_t digest_bytes = sizes.hint_bytes == 0 ? 0 : sizeof(Digest);
  if (setup.hint_bytes() != sizes.hint_bytes || setup.hint_digest().size() != digest_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pir setup: a hint of %d bytes, where this shape has %d",
                        setup.hint_bytes(), sizes.hint_bytes));
  }
  return absl::OkStatus();
}

absl::Status Session::TakeHint(BytesView) {
  return absl::FailedPreconditionError("pir: this engine has no public hint");
}

absl::StatusOr<Request> Session::Prepare(RandomSource&) {
  return absl::FailedPreconditionError("pir: this engine prepares nothing");
}

absl::Status Session::TakePrepared(BytesView) {
  return absl::FailedPreconditionError("pir: this engine prepares nothing");
}

absl::StatusOr<Sizes> Engine::SizesOf(const wire::PirSetup& setup) const {
  if (setup.engine() != name()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pir setup: of the engine \"", setup.engine(), "\", not ", name()));
  }
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOfShape(setup));
  SHOAL_RETURN_IF_ERROR(CheckHint(setup, sizes));
  return sizes;
}

}  // namespace shoal::pir
