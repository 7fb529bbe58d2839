#include "src/round/refresh.h"

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"

namespace shoal::round {
namespace {

absl::Status BadRefresh(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("refresh: ", why));
}

Transcript& Append(const wire::RefreshHeader& header, Transcript& transcript) {
  return transcript.Blob(header.round_id())
      .U64(header.number())
      .U64(header.epoch())
      .Blob(header.manifest_digest());
}

}  // namespace

Digest RefreshDigest(const wire::RefreshHeader& header) {
  Transcript transcript("shoal refresh v1");
  return Append(header, transcript).Finish();
}

absl::Status CheckRefresh(const wire::RefreshHeader& header, const Digest& round_id,
                          const wire::RoundHeader& round) {
  if (header.round_id() != AsText(round_id)) return BadRefresh("of another round");
  if (header.number() == 0 || header.number() > round.max_refreshes()) {
    return BadRefresh(
        absl::StrCat("number ", header.number(), " of a term with ", round.max_refreshes()));
  }
  if (header.epoch() == 0) return BadRefresh("names no epoch");
  if (header.manifest_digest().size() != sizeof(Digest)) return BadRefresh("names no table");
  if (header.manifest_digest() == round.manifest_digest())
    return BadRefresh("names the round's table");
  return absl::OkStatus();
}

absl::Status VerifyRefresh(const wire::SignedRefreshHeader& signed_header, const Digest& round_id,
                           const wire::RoundHeader& round, const roster::Roster& roster) {
  SHOAL_RETURN_IF_ERROR(CheckRefresh(signed_header.header(), round_id, round));
  return Annotate(
      roster.VerifyByAll(RefreshDigest(signed_header.header()), AsBytes(signed_header.signature())),
      "refresh");
}

Seed TermSeed(BytesView seed, const Digest& round_id) {
  return SeedOf(Transcript("shoal term seed v1", seed).Blob(round_id).Finish());
}

Digest RefreshMasksId(const wire::RefreshHeader& header, const RefreshTag& tag) {
  Transcript transcript("shoal refresh masks v1");
  return Append(header, transcript).Blob(tag).Finish();
}

}  // namespace shoal::round
