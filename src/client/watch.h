// A list of keys that is asked once for a term and answered at every epoch of the table
// (docs/protocol.md, "Refreshes").
//
//   no term lasts, by the calendar   a lookup through the chain in a round with a term: Enrolment()
//                                    stores what the term needs, LookUp delivers the first results
//   a term lasts                     Latest: the refresh that the frontend has, verified
//                                    MakeSource, LookUp: all answers of the term, whatever they
//                                    hold
//
// A device does nothing that shows what an answer says. It fetches the answers of all its slots, in
// the same requests, whenever there is a refresh that it has not seen, and at no other time; a
// refresh that does not come, does not verify, or answers wrongly is no news. It enrols again when
// its term is over by the calendar, not when it fails. How often it may enrol is counted in the
// client's state (State::enrolments).
//
// Beside the state PATH stand
//   PATH.term   0600: rows, slots and term seeds, from the enrolment to the term's end
//   PATH.seen   0600: the last refresh that was taken, and a keyed digest of every key's last
//   result
// An old copy of the first is worth as much as the new one: a term's seeds are used for nothing but
// to open what comes. With an old copy of the second, a device would take a refresh again.
#ifndef SHOAL_SRC_CLIENT_WATCH_H_
#define SHOAL_SRC_CLIENT_WATCH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/client/chain_client.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/refresh.h"
#include "src/client/retrieval.h"
#include "src/client/row_source.h"
#include "src/table/manifest.h"
#include "src/wire/round.pb.h"

namespace shoal::client {

// What has become of a watched key.
struct News {
  bool first = false;  // nothing was known of the key
  uint64_t epoch = 0;  // of the table
};

// Thread-compatible. Whoever has the state's lock may use it.
class Watch {
 public:
  // `path` is the state's. `environment`'s pointers must outlive this. DATA_LOSS if a file is
  // damaged; PERMISSION_DENIED if others may read it.
  static absl::StatusOr<std::unique_ptr<Watch>> Open(const std::string& path,
                                                     Environment environment);
  ~Watch();

  // Whether a term lasts by the calendar, and until when; 0 if there is none. A term that is over,
  // or in which version 0.2 has enrolled, is wiped by Open.
  bool has_term() const { return term_ != nullptr; }
  uint64_t term_expires_s() const;
  uint64_t latest_epoch() const { return latest_epoch_; }
  // The round of the term.
  std::optional<Digest> term_round() const;

  // For ChainOptions::term: stores the term when the round is answered. `manifest` is asked then,
  // for the table under which the rows were asked.
  TermOptions Enrolment(uint32_t max_enrolments, std::function<const table::Manifest&()> manifest);

  // The frontend's latest refresh of the term; nothing if there is none, or none that is new.
  // NOT_FOUND: the parties have no such term any more. This and the errors of VerifyRefresh mean
  // that there is no news now.
  absl::StatusOr<std::optional<VerifiedRefresh>> Latest(const Deployment& deployment,
                                                        Transport* transport) const;
  // The answers of the refresh, for a lookup of keys of the term (Enrols). All pointers must
  // outlive the source; so must this.
  // Once all answers have come, and before anybody looks at them, the refresh counts as seen,
  // durably: what becomes of the news is no reason to fetch them again, which would show that there
  // were some.
  std::unique_ptr<RowSource> MakeSource(const VerifiedRefresh& refresh,
                                        const Deployment* deployment, Transport* transport);
  // Whether the term has the row of this key. INVALID_ARGUMENT for a key that the table cannot
  // have.
  absl::StatusOr<bool> Enrols(const Deployment& deployment, BytesView key) const;

  // Compares a result with what was known of the key, and remembers it; nothing if that is the
  // same, or if the result has failed.
  std::optional<News> Take(BytesView key, const Lookup& result, uint64_t epoch);
  // Makes durable what Take has remembered, and that this refresh was seen (null: the enrolment's
  // own answers). To be called once the news are delivered.
  absl::Status Save(const VerifiedRefresh* refresh);

 private:
  struct Term;
  class Source;
  using KeyDigest = std::array<uint8_t, 16>;
  struct Known {
    Lookup::Outcome outcome;
    KeyDigest value;
    bool operator==(const Known&) const = default;
  };

  Watch(std::string path, Environment environment);
  absl::Status Load();
  absl::Status Store(const Enrolled& enrolled, const table::Manifest& manifest);
  absl::Status MarkSeen(const VerifiedRefresh& refresh);
  absl::Status Write() const;
  KeyDigest DigestOf(BytesView bytes) const;

  const std::string path_;
  const Environment environment_;
  std::unique_ptr<Term> term_;
  std::string seen_round_;
  uint32_t seen_number_ = 0;
  uint64_t latest_epoch_ = 0;
  Digest key_ = {};
  std::map<KeyDigest, Known> known_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_WATCH_H_
