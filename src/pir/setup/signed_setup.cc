#include "src/pir/setup/signed_setup.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/wire/text.h"

namespace shoal::pir {
namespace {

// That the setup is this engine's for this table. Signatures do not count.
absl::Status CheckTable(const wire::PirSetup& setup, const table::Manifest& manifest,
                        const Engine& engine) {
  const auto differs = [](absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat("the engine's setup does not belong to the table: ", what));
  };
  if (setup.engine() != engine.name()) return differs("engine");
  if (setup.manifest_digest() != AsText(manifest.digest())) return differs("manifest_digest");
  if (setup.table_id() != manifest.content().table_id()) return differs("table_id");
  if (setup.epoch() != manifest.epoch()) return differs("epoch");
  if (setup.rows() != manifest.rows()) return differs("rows");
  if (setup.record_bytes() != manifest.answer_bytes()) return differs("record_bytes");
  return engine.SizesOf(setup).status();
}

absl::Status CheckDelta(const wire::SignedPirSetup& setup) {
  if (setup.delta_digest().empty() || setup.delta_digest().size() == sizeof(Digest)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("pir setup: delta_digest has ", setup.delta_digest().size(), " bytes"));
}

}  // namespace

Content ContentOf(const table::PreviousEpoch& table) {
  const wire::Manifest& manifest = table.content.manifest();
  Content content;
  SHOAL_CHECK(manifest.table_id().size() == content.table_id.size());
  std::ranges::copy(AsBytes(manifest.table_id()), content.table_id.begin());
  content.epoch = manifest.epoch();
  content.manifest_digest = table::ManifestDigest(manifest);
  content.rows = table.content.rows();
  content.record_bytes =
      table.content.row_bytes() + static_cast<uint32_t>(signature::kSignatureBytes);
  content.copy = [table](uint64_t row, MutableBytes out) {
    const BytesView bytes = table.content.row(row);
    const auto end = std::ranges::copy(bytes, out.begin()).out;
    std::ranges::copy(table.signature(row), end);
  };
  return content;
}

std::vector<uint64_t> ChangedRows(const table::PreviousEpoch& before,
                                  const table::PreviousEpoch& after) {
  std::vector<uint64_t> changed;
  const uint64_t both = std::min(before.content.rows(), after.content.rows());
  for (uint64_t row = 0; row < std::max(before.content.rows(), after.content.rows()); ++row) {
    if (row >= both || !std::ranges::equal(before.content.row(row), after.content.row(row)) ||
        !std::ranges::equal(before.signature(row), after.signature(row))) {
      changed.push_back(row);
    }
  }
  return changed;
}

Digest SetupMessage(const wire::SignedPirSetup& setup) {
  return Transcript("shoal engine setup v1")
      .Blob(SetupId(setup.setup()))
      .Blob(setup.delta_digest())
      .Finish();
}

absl::Status VerifySetup(const wire::SignedPirSetup& setup, const roster::Roster& roster) {
  SHOAL_RETURN_IF_ERROR(CheckDelta(setup));
  return Annotate(roster.VerifyByAll(SetupMessage(setup), AsBytes(setup.signature())),
                  absl::StrCat("the setup of ", setup.setup().engine(),
                               " is not the one that all parties signed"));
}

absl::Status CheckSetup(const wire::SignedPirSetup& setup, const table::Manifest& manifest,
                        const Engine& engine, const roster::Roster& roster) {
  SHOAL_RETURN_IF_ERROR(CheckTable(setup.setup(), manifest, engine));
  return VerifySetup(setup, roster);
}

std::string SetupPath(const std::string& table_directory, absl::string_view engine) {
  return absl::StrCat(table_directory, "/", engine, ".setup.textproto");
}

std::string SetupSharePath(const std::string& table_directory, absl::string_view engine,
                           uint32_t party) {
  return absl::StrCat(table_directory, "/shares/party-", party, ".", engine, ".textproto");
}

absl::StatusOr<wire::SignedPirSetup> ReadSetup(const std::string& table_directory,
                                               const Engine& engine) {
  const std::string path = SetupPath(table_directory, engine.name());
  wire::SignedPirSetup setup;
  const absl::Status read = wire::ReadTextFile(path, setup);
  if (absl::IsNotFound(read)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": there is none: the parties have not signed this table's setup of ",
                     engine.name(), " (shoal table sign-engine, then aggregate-engine)"));
  }
  SHOAL_RETURN_IF_ERROR(read);
  return setup;
}

absl::StatusOr<wire::SignedPirSetup> AggregateSetup(std::span<const wire::PirSetupShare> shares,
                                                    const table::Manifest& manifest,
                                                    const Engine& engine,
                                                    const roster::Roster& roster) {
  std::vector<uint32_t> numbers;
  for (const wire::PirSetupShare& share : shares) numbers.push_back(share.party());
  SHOAL_ASSIGN_OR_RETURN(const std::vector<size_t> places,
                         roster::PlacesOfShares(roster.parties(), numbers));
  const wire::SignedPirSetup& first = shares[places[0]].setup();
  std::vector<Bytes> signatures;
  for (const roster::Party& party : roster.parties()) {
    const wire::SignedPirSetup& one = shares[places[party.number - 1]].setup();
    absl::Status check = CheckTable(one.setup(), manifest, engine);
    check.Update(CheckDelta(one));
    if (!check.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("share of party ", party.number, ": ", check.message()));
    }
    if (SetupMessage(one) != SetupMessage(first)) {
      return absl::InvalidArgumentError(
          absl::StrCat("party ", party.number, " (", party.name, ") signed another ",
                       SetupId(one.setup()) == SetupId(first.setup()) ? "delta" : "setup",
                       " than party 1: all of them must name the same epoch before (--previous), "
                       "or none. Parties sign once for an epoch: the next one mends this"));
    }
    signatures.push_back(ToBytes(AsBytes(one.signature())));
  }
  wire::SignedPirSetup setup = first;
  SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum,
                         roster.Aggregate(SetupMessage(setup), signatures));
  setup.set_signature(ToString(sum.bytes()));
  return setup;
}

}  // namespace shoal::pir
