// How the states of all sessions of this family begin:
//   magic, 8 bytes | SetupId | the table's id | the shape | what each has of its own
#ifndef SHOAL_SRC_PIR_SETS_STATE_HEAD_H_
#define SHOAL_SRC_PIR_SETS_STATE_HEAD_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/pir/sets/journal.h"
#include "src/wire/pir.pb.h"

namespace shoal::pir::sets {

inline absl::Status MalformedState(absl::string_view engine) {
  return absl::DataLossError(absl::StrCat(engine, ": the session's state is malformed"));
}

struct StateHead {
  static constexpr size_t kIdAt = 8, kTableAt = kIdAt + sizeof(Digest),
                          kShapeAt = kTableAt + sizeof(Digest);

  // Has `bytes` bytes, zeros behind the shape.
  static SecretVector<uint8_t> Make(size_t bytes, absl::string_view magic, const Digest& id,
                                    const wire::PirSetup& setup, BytesView shape) {
    SecretVector<uint8_t> head(bytes);
    std::ranges::copy(AsBytes(magic), head.begin());
    std::ranges::copy(id, head.begin() + kIdAt);
    std::ranges::copy(AsBytes(setup.table_id()), head.begin() + kTableAt);
    std::ranges::copy(shape, head.begin() + kShapeAt);
    return head;
  }

  // The first `bytes` bytes of the state. MalformedState if it is shorter, or begins with none of
  // the magics; FAILED_PRECONDITION if it is of another table than the setup.
  static absl::StatusOr<SecretVector<uint8_t>> Read(const Journal& journal, size_t bytes,
                                                    std::span<const absl::string_view> magics,
                                                    const wire::PirSetup& setup,
                                                    absl::string_view engine) {
    if (journal.state_bytes() < bytes) return MalformedState(engine);
    SecretVector<uint8_t> head(bytes);
    SHOAL_RETURN_IF_ERROR(journal.Read(0, head));
    const BytesView read = head;
    if (std::ranges::count(magics, AsText(read.first(kIdAt))) == 0) return MalformedState(engine);
    if (AsText(read.subspan(kTableAt, sizeof(Digest))) != setup.table_id()) {
      return absl::FailedPreconditionError(
          absl::StrCat(engine,
                       ": the session that is kept is of another table; it has to be given up "
                       "first (shoal prepare --anew)"));
    }
    return head;
  }

  // The SetupId that the head has, if it is not `id`: a later setup has to be taken.
  static std::optional<Digest> Behind(BytesView head, const Digest& id) {
    Digest kept;
    std::ranges::copy(head.subspan(kIdAt, kept.size()), kept.begin());
    return kept == id ? std::nullopt : std::optional(kept);
  }
};

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_STATE_HEAD_H_
