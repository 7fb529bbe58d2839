#include "src/shoal/source_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/shoal/common.h"
#include "src/shoal/privacy_text.h"

namespace shoal::commands {
void AddSourceOptions(cli::Options& options, uint32_t pad) {
  AddBeyondPhiOptions(options);
  AddEngineOption(options);
  options.add_options()(
      "party", cli::Texts(),
      "with --engine only: ask the engine of this party (1); for an engine of two "
      "servers given twice, offline first (those of the configuration)");
  options.add_options()("pad", cli::Number(),
                        absl::StrCat("with --engine only: round the number of queries up to a "
                                     "multiple of this (",
                                     pad, ")")
                            .c_str());
}

absl::StatusOr<SourceOptions> SourceOptionsOf(const cli::Values& values, uint32_t pad) {
  SourceOptions source;
  SHOAL_ASSIGN_OR_RETURN(source.engine, EngineOf(values));
  for (const char* option : {"pad", "party"}) {
    if (source.engine == nullptr && values.count(option) > 0) {
      return cli::UsageError(absl::StrCat(
          "--", option,
          " goes with --engine; the chain pads to pad_to of the configuration and asks party 1"));
    }
  }
  for (const char* option : {"over-rounds", "accept-more", "dry-run"}) {
    if (source.engine != nullptr && values.count(option) > 0) {
      return cli::UsageError(
          absl::StrCat("--", option, " is about rounds of the chain, and an engine has none"));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(source.beyond_phi, BeyondPhiOf(values));
  source.dry_run = values.count("dry-run") > 0;
  source.parties = cli::TextsOf(values, "party");
  source.pad = cli::SmallOr(values, "pad", pad);
  return source;
}

absl::Status UseSource(const SourceOptions& source, uint64_t keys, Session& session) {
  if (source.engine == nullptr) return session.UseChain(source.beyond_phi);
  return session.UseEngine(*source.engine, source.parties, source.pad, keys);
}

void WarnOfWrongRecords(const SourceOptions& source, Session& session) {
  if (source.engine == nullptr || !source.engine->keeps_state()) return;
  session.console().Warn(absl::StrCat(source.engine->name(), ": ", AfterWrongRecordsText()));
}

}  // namespace shoal::commands
