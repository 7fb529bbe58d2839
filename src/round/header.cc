#include "src/round/header.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/sharing/sharing.h"
#include "src/signature/bls.h"
#include "src/wire/canonical.h"

namespace shoal::round {
namespace {

absl::Status BadHeader(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("round header: ", why));
}

onion::PublicKey KeyFrom(const std::string& bytes) {
  onion::PublicKey key;
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return key;
}

// A round is for rows, or of two tiers: roster, table and header say so, and agree.
absl::Status CheckTiersOfRound(const wire::RoundHeader& header, const roster::Roster& roster,
                               const TableFacts& table) {
  if (header.query_buckets() != table.query_buckets) {
    return absl::FailedPreconditionError(absl::StrCat("round header: its query_buckets are ",
                                                      header.query_buckets(), ", and the table's ",
                                                      table.query_buckets));
  }
  SHOAL_RETURN_IF_ERROR(CheckTiers("round header", header.query_buckets(), table.rows, roster));
  if (header.query_buckets() == 0) return absl::OkStatus();
  if (header.max_refreshes() != 0 || header.term_expires_s() != 0) {
    return BadHeader(absl::StrCat("a term of ", header.max_refreshes(),
                                  " refreshes, where a round of two tiers has none"));
  }
  return absl::OkStatus();
}

absl::Status CheckTerm(const wire::RoundHeader& header, const roster::Roster& roster) {
  if (header.max_refreshes() == 0 && header.term_expires_s() == 0) return absl::OkStatus();
  if (header.max_refreshes() == 0 || header.term_expires_s() < header.expires_s()) {
    return BadHeader("its term has no refreshes, or ends before the round");
  }
  if (header.max_refreshes() > roster.max_refreshes()) {
    return BadHeader(absl::StrCat(header.max_refreshes(), " refreshes, where the roster allows ",
                                  roster.max_refreshes()));
  }
  if (header.term_expires_s() - header.announced_s() > roster.term_limit_s()) {
    return BadHeader(absl::StrCat("its term lasts longer than the roster's ", roster.term_limit_s(),
                                  " seconds"));
  }
  return absl::OkStatus();
}

// Where the next party's onion keys belong among those of a draft.
int NewKeysAt(const wire::RoundHeader& draft) {
  return draft.query_buckets() == 0 ? draft.onion_keys_size() : draft.onion_keys_size() / 2;
}

}  // namespace

absl::Status CheckTiers(absl::string_view of, uint32_t query_buckets, uint64_t rows,
                        const roster::Roster& roster) {
  const auto disagree = [&](auto... what) {
    return absl::FailedPreconditionError(absl::StrCat(std::string(of), ": ", what...));
  };
  const uint64_t most = roster.most_in_bucket();
  if ((query_buckets == 0) != (most == 0)) {
    return disagree("its query_buckets are ", query_buckets, ", and most_in_bucket is ", most,
                    " in the roster of ", roster.size(),
                    " parties: both are for two tiers, or neither");
  }
  if (most == 0) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(Annotate(QueryBuckets::Check(rows, query_buckets), of));
  const uint64_t places = most * query_buckets;
  if (roster.noise().phi > places) {
    return disagree("the noise is for ", roster.noise().phi, " queries of a client, and ",
                    query_buckets, " buckets with ", most, " queries each take ", places);
  }
  if (places > kMaxVirtualPlaces) {
    return disagree(query_buckets, " buckets with up to ", most, " queries each have ", places,
                    " places, and ", kMaxVirtualPlaces, " is the most");
  }
  return absl::OkStatus();
}

uint32_t OnionKeysOf(const wire::RoundHeader& header, const roster::Roster& roster) {
  return header.query_buckets() == 0 ? roster.size() : kTwoTiersKeys;
}

uint32_t OnionKeysBefore(const wire::RoundHeader& draft, uint32_t party) {
  return (party - 1) * (draft.query_buckets() == 0 ? 1 : 2);
}

void AddOnionKeys(std::span<const std::string> keys, wire::RoundHeader& draft) {
  const std::vector<std::string> had(draft.onion_keys().begin(), draft.onion_keys().end());
  const auto at = had.begin() + NewKeysAt(draft);
  draft.mutable_onion_keys()->Assign(had.begin(), at);
  for (const std::string& key : keys) draft.add_onion_keys(key);
  for (auto later = at; later != had.end(); ++later) draft.add_onion_keys(*later);
}

bool Completes(const wire::RoundHeader& draft, const wire::RoundHeader& header) {
  const int added = header.onion_keys_size() - draft.onion_keys_size();
  if (added < 0) return false;
  wire::RoundHeader completed = draft;
  const auto first = header.onion_keys().begin() + NewKeysAt(draft);
  AddOnionKeys(std::vector<std::string>(first, first + added), completed);
  return RoundId(completed) == RoundId(header);
}

size_t TaggedAnswerBytes(const wire::RoundHeader& header) {
  return sharing::TaggedBytes(header.answer_bytes());
}

size_t FetchedAnswerBytes(const wire::RoundHeader& header) {
  return header.query_buckets() == 0 ? TaggedAnswerBytes(header)
                                     : sharing::HalvesAnswerBytes(header.answer_bytes());
}

Digest RoundId(const wire::RoundHeader& header) {
  Transcript transcript("shoal round v3");
  transcript.U64(header.counter())
      .Blob(AsBytes(header.roster_digest()))
      .Blob(AsBytes(header.manifest_digest()))
      .U64(static_cast<uint64_t>(header.onion_keys_size()));
  for (const std::string& key : header.onion_keys()) transcript.Blob(AsBytes(key));
  transcript.U64(header.max_rows()).U64(header.answer_bytes());
  wire::AppendNoise(header.noise(), transcript);
  transcript.U64(static_cast<uint64_t>(header.machines_size()));
  for (uint32_t machines : header.machines()) transcript.U64(machines);
  transcript.U64(header.max_slots())
      .U64(header.announced_s())
      .U64(header.onions_close_s())
      .U64(header.queries_close_s())
      .U64(header.expires_s())
      .Blob(header.onion_suite());
  // What is missing is 0 where something follows: else two different headers had one id.
  const bool has_buckets = header.query_buckets() != 0;
  if (header.max_refreshes() > 0 || header.term_expires_s() > 0 || has_buckets) {
    transcript.U64(header.max_refreshes()).U64(header.term_expires_s());
  }
  if (has_buckets) transcript.U64(header.query_buckets());
  return transcript.Finish();
}

absl::Status CheckHeader(const wire::RoundHeader& header, uint32_t keys,
                         const roster::Roster& roster, const TableFacts& table, uint64_t now_s) {
  if (header.counter() == 0 || header.counter() == std::numeric_limits<uint64_t>::max()) {
    return BadHeader("counter out of range");
  }
  if (AsText(roster.digest()) != header.roster_digest()) return BadHeader("names another roster");
  if (AsText(table.manifest_digest) != header.manifest_digest())
    return BadHeader("names another table");
  SHOAL_RETURN_IF_ERROR(CheckTiersOfRound(header, roster, table));
  if (static_cast<uint32_t>(header.onion_keys_size()) != keys) {
    return BadHeader(absl::StrCat(header.onion_keys_size(), " onion keys instead of ", keys));
  }
  if (header.onion_suite() != roster.wire().roster().onion_suite()) {
    return BadHeader(absl::StrCat("its onion suite, ", header.onion_suite(),
                                  ", is not the roster's, ", roster.wire().roster().onion_suite()));
  }
  std::set<std::string> distinct;
  for (const std::string& key : header.onion_keys()) {
    if (key.size() != sizeof(onion::PublicKey))
      return BadHeader("an onion key is not 32 bytes long");
    // Refuses equal keys: two parties with one key would be one party, and two halves one half.
    if (!distinct.insert(key).second) {
      return BadHeader("two parties, or halves, have the same onion key");
    }
  }
  if (header.max_rows() != table.rows) {
    return BadHeader(
        absl::StrCat("noise for ", header.max_rows(), " rows of a table of ", table.rows));
  }
  if (header.answer_bytes() != table.row_bytes + signature::kSignatureBytes) {
    return BadHeader(
        absl::StrCat("answers of ", header.answer_bytes(), " bytes for rows of ", table.row_bytes));
  }
  if (!wire::SameNoise(header.noise(), roster.wire().roster().noise())) {
    return BadHeader("its noise is not the roster's");
  }
  if (static_cast<uint32_t>(header.machines_size()) != roster.size()) {
    return BadHeader("its machine counts are not the roster's");
  }
  for (const roster::Party& party : roster.parties()) {
    if (header.machines(static_cast<int>(party.number) - 1) != party.machines) {
      return BadHeader("its machine counts are not the roster's");
    }
  }
  if (header.max_slots() == 0 || header.max_slots() > roster.max_slots()) {
    return BadHeader(
        absl::StrCat(header.max_slots(), " slots, where the roster allows ", roster.max_slots()));
  }
  if (header.announced_s() > header.onions_close_s() ||
      header.onions_close_s() > header.queries_close_s() ||
      header.queries_close_s() > header.expires_s()) {
    return BadHeader("its times are out of order");
  }
  const uint64_t counter_s = header.counter() / kCountersPerSecond;
  if (counter_s > header.announced_s() && counter_s - header.announced_s() > kMaxCounterLeadS) {
    return BadHeader("its counter is too far above the time");
  }
  if (header.expires_s() - header.announced_s() > kMaxLifetimeS) {
    return BadHeader(absl::StrCat("it lives longer than ", kMaxLifetimeS, " seconds"));
  }
  SHOAL_RETURN_IF_ERROR(CheckTerm(header, roster));
  return roster.CheckTime("round", header.announced_s(), header.expires_s(), now_s);
}

absl::StatusOr<Round> Round::Verify(const wire::SignedHeader& signed_header,
                                    const roster::Roster& roster, const TableFacts& table,
                                    uint64_t now_s) {
  const uint32_t keys = OnionKeysOf(signed_header.header(), roster);
  SHOAL_RETURN_IF_ERROR(CheckHeader(signed_header.header(), keys, roster, table, now_s));
  Round round;
  round.id_ = RoundId(signed_header.header());
  SHOAL_RETURN_IF_ERROR(
      Annotate(roster.VerifyByAll(round.id_, AsBytes(signed_header.signature())), "round header"));
  round.wire_ = signed_header;
  // Drops unknown fields, which the signature does not cover and which every client would be sent.
  round.wire_.DiscardUnknownFields();
  for (const std::string& key : signed_header.header().onion_keys()) {
    auto recipient = onion::Recipient::Create(KeyFrom(key));
    if (!recipient.ok()) return Annotate(recipient.status(), "round header");
    round.recipients_.push_back(*std::move(recipient));
  }
  const wire::RoundHeader& header = round.header();
  if (header.query_buckets() != 0)
    round.buckets_.emplace(header.max_rows(), header.query_buckets());
  return round;
}

size_t Round::SubmissionBytes(size_t slots) const {
  return buckets_ ? onion::TwoPiecesBytes(slots) : onion::SubmissionBytes(parties(), slots);
}

size_t Round::MaxSubmissionSlots() const {
  return buckets_ ? onion::kMaxTwoPiecesOnions : onion::MaxSubmissionOnions(parties());
}

size_t Round::SubmissionSlots(size_t bytes) const {
  return buckets_ ? onion::TwoPiecesOnions(bytes) : onion::SubmissionOnions(parties(), bytes);
}

}  // namespace shoal::round
