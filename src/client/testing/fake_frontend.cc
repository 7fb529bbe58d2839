#include "src/client/testing/fake_frontend.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/noise/noise.h"
#include "src/onion/onion.h"
#include "src/round/refresh.h"
#include "src/round/testing/headers.h"
#include "src/sharing/halves.h"
#include "src/sharing/sharing.h"
#include "src/table/records.h"
#include "src/table/testing/signed_table.h"

namespace shoal::client::testing {
namespace {

using table::testing::Layout;

Digest ToDigest(const std::string& bytes) {
  Digest digest = {};
  std::copy_n(bytes.begin(), std::min(bytes.size(), digest.size()), digest.begin());
  return digest;
}

std::vector<uint32_t> MachinesOf(const FakeOptions& options) {
  std::vector<uint32_t> machines(options.parties, 1);
  machines[0] = options.machines;
  return machines;
}

}  // namespace

std::string FakeFrontend::Key(size_t i) { return absl::StrCat("key-", i); }
std::string FakeFrontend::Value(size_t i, uint64_t epoch) {
  return epoch == 1 ? absl::StrCat("value of key-", i)
                    : absl::StrCat("value ", epoch, " of key-", i);
}

FakeFrontend::FakeFrontend(FakeOptions options)
    : options_(options),
      random_(options.seed),
      clock_(options.now_s),
      parties_(MachinesOf(options), random_) {
  wire::Roster& roster = parties_.draft();
  roster.set_deployment("fake");
  roster.set_epoch(options_.roster_epoch);
  *roster.mutable_noise() = roster::NoiseToWire({.mechanism = noise::Mechanism::kGeometric,
                                                 .epsilon = 1,
                                                 .delta = 1e-3,
                                                 .phi = 1,
                                                 .mode = 15,
                                                 .left_scale = 1.25,
                                                 .right_scale = 5.0});
  if (options_.protects_five) {
    *roster.mutable_noise() = roster::NoiseToWire({.mechanism = noise::Mechanism::kSplitGaussian,
                                                   .epsilon = 1,
                                                   .delta = 1e-6,
                                                   .phi = 5,
                                                   .mode = 70,
                                                   .left_scale = 14,
                                                   .right_scale = 60});
  }
  if (options_.most_in_bucket > 1) {
    // For five queries, of which four are for one bucket.
    *roster.mutable_noise() = roster::NoiseToWire({.mechanism = noise::Mechanism::kSplitGaussian,
                                                   .epsilon = 1,
                                                   .delta = 1e-6,
                                                   .phi = 5,
                                                   .mode = 220,
                                                   .left_scale = 40,
                                                   .right_scale = 160});
  }
  roster.set_valid_from_s(clock_.now_s - 1000);
  roster.set_expires_s(clock_.now_s + 1'000'000);
  roster.set_clock_tolerance_s(60);
  roster.set_max_slots(1 << 16);
  wire::Party& first = *roster.mutable_parties(0);
  first.set_client_address("127.0.0.1:7000");
  if (options_.certificate_sha256) {
    first.set_tls_certificate_sha256(ToString(*options_.certificate_sha256));
  }
  if (options_.refreshes > 0) {
    roster.mutable_term_limit()->set_days(30);
    roster.mutable_term_limit()->set_refreshes(options_.refreshes);
  }
  roster.set_most_in_bucket(options_.most_in_bucket);
  pins_ = parties_.pinned();
  ServeRoster();
  MakeTable(options_.records, options_.table_epoch);
}

void FakeFrontend::ServeRoster() {
  *deployment.mutable_roster() = parties_.Signed();
  auto verified = roster::Roster::Verify(deployment.roster(), *pins_, clock_.now_s);
  SHOAL_CHECK(verified.ok());
  roster_ = *std::move(verified);
}

void FakeFrontend::RenewKey(uint32_t number) {
  parties_.Renew(number, random_);
  ServeRoster();
  const uint64_t epoch = table_->manifest().epoch() + 1;
  table_.reset();
  MakeTable(options_.records, epoch);
}

void FakeFrontend::NextRoster(const std::function<void(wire::Roster&)>& change) {
  parties_.draft().set_epoch(parties_.draft().epoch() + 1);
  change(parties_.draft());
  ServeRoster();
}

void FakeFrontend::RenewCertificate() {
  NextRoster([this](wire::Roster& roster) {
    Digest digest;
    random_.Fill(digest);
    roster.mutable_parties(0)->set_tls_certificate_sha256(ToString(digest));
  });
}

void FakeFrontend::NextEpoch(size_t records, bool keep_rows) {
  MakeTable(records, table_->manifest().epoch() + 1, keep_rows);
}

void FakeFrontend::MakeTable(size_t count, uint64_t epoch, bool keep_rows) {
  const Layout layout = options_.dense ? Layout::kDense : Layout::kHashed;
  const uint64_t values = options_.values_stay ? 1 : 1 + epoch - options_.table_epoch;
  table::RecordSet records =
      table::testing::Records(count, layout, [&](size_t i) { return Value(i, values); });
  for (const auto& [key, value] : options_.content) {
    SHOAL_CHECK(records.Add(AsBytes(key), value, records.size() + 1).ok());
  }
  table::TableOptions table_options;
  table_options.name = options_.table_name;
  table_options.deployment = "fake";
  std::optional<table::PreviousEpoch> previous;
  if (table_ != nullptr) {
    previous = table_->AsPrevious();
    table_options.previous = &*previous;
  }
  table_options.epoch = epoch;
  table_options.created_s = clock_.now_s - 100;
  table_options.expires_s = clock_.now_s + 100'000;
  table_options.row_bytes = options_.row_bytes;
  table_options.keep_rows = keep_rows;
  table_options.query_buckets = options_.query_buckets;
  if (options_.refreshes > 0 && !keep_rows) table_options.room_percent = 50;
  table_ = std::make_shared<const table::Table>(table::testing::MakeTable(
      records, table_options, layout, parties_, *roster_, clock_.now_s, random_, pool_));
  epochs_.push_back(table_);
  *deployment.mutable_manifest() = table_->manifest().wire();
}

wire::SignedHeader FakeFrontend::Sign(const wire::RoundHeader& header) const {
  return round::testing::SignByAll(parties_, header);
}

wire::SignedManifest FakeFrontend::Sign(const wire::Manifest& manifest) const {
  wire::SignedManifest out;
  *out.mutable_manifest() = manifest;
  out.set_signature(parties_.SignatureByAll(table::ManifestDigest(manifest)));
  return out;
}

wire::RoundHeader FakeFrontend::MakeHeader(uint64_t counter) {
  wire::RoundHeader header =
      round::testing::DraftOf(counter, *roster_,
                              {.manifest_digest = table_->manifest().digest(),
                               .rows = table_->rows(),
                               .row_bytes = table_->manifest().content().row_bytes(),
                               .query_buckets = table_->manifest().content().query_buckets()},
                              clock_.now_s);
  header.set_max_slots(options_.max_slots);
  std::vector<onion::KeyPair> keys;
  for (uint32_t j = 0; j < (has_two_tiers() ? round::kTwoTiersKeys : options_.parties); ++j) {
    Seed secret = random_.NewSeed();
    keys.push_back(onion::KeyPairFromSecret(secret.view()));
    header.add_onion_keys(ToString(keys.back().public_key));
  }
  if (options_.refreshes > 0 && opens_terms) {
    header.set_max_refreshes(options_.refreshes);
    header.set_term_expires_s(clock_.now_s + term_s);
  }
  onion_keys_[round::RoundId(header)] = std::move(keys);
  return header;
}

Digest FakeFrontend::OpenRound() {
  const wire::RoundHeader header = MakeHeader(++last_counter_);
  const Digest id = round::RoundId(header);
  FakeRound& round = rounds_[id];
  round.header = Sign(header);
  round.table = table_;
  round.keys = std::move(onion_keys_[id]);
  return id;
}

void FakeFrontend::SetState(const Digest& round_id, wire::RoundState state) {
  rounds_.at(round_id).state = state;
}

std::map<uint32_t, uint32_t> FakeFrontend::Asked(const Digest& round_id) const {
  std::map<uint32_t, uint32_t> asked;
  const FakeRound& round = rounds_.at(round_id);
  for (uint32_t slot = 0; slot < round.slots.size(); ++slot) {
    if (round.slots[slot].row) asked[slot] = *round.slots[slot].row;
  }
  return asked;
}

uint64_t FakeFrontend::counter(const Digest& round_id) const {
  return rounds_.at(round_id).header.header().counter();
}

template <typename Request>
absl::Status FakeFrontend::Begin(const std::string& name, const Request& request, bool log) {
  const std::string bytes = request.SerializeAsString();
  traffic_.sent += bytes.size();
  if (log) sent.emplace_back(name, bytes);
  if (before) SHOAL_RETURN_IF_ERROR(before(name));
  return CheckCertificate();
}

absl::Status FakeFrontend::RequireParty(const roster::Roster& roster, uint32_t party) {
  required_ = {party, roster.party(party).tls_certificate_sha256};
  return CheckCertificate();
}

absl::Status FakeFrontend::CheckCertificate() const {
  if (required_ && roster_->party(required_->first).tls_certificate_sha256 != required_->second) {
    return absl::UnauthenticatedError("another certificate");
  }
  return absl::OkStatus();
}

template <typename Response>
absl::StatusOr<Response> FakeFrontend::End(const std::string& name, Response response) {
  if (after) SHOAL_RETURN_IF_ERROR(after(name));
  traffic_.received += response.ByteSizeLong();
  return response;
}

absl::StatusOr<FakeFrontend::FakeRound*> FakeFrontend::Find(const std::string& round_id) {
  const auto it = rounds_.find(ToDigest(round_id));
  if (round_id.size() != sizeof(Digest) || it == rounds_.end()) {
    return absl::NotFoundError("no such round");
  }
  return &it->second;
}

wire::RoundInfo FakeFrontend::Info(const FakeRound& round) const {
  wire::RoundInfo info;
  *info.mutable_header() = round.header;
  info.set_state(round.state);
  info.set_onions(round.slots.size());
  info.set_queries(std::count_if(round.slots.begin(), round.slots.end(),
                                 [](const Slot& slot) { return slot.row.has_value(); }));
  if (spoil_round) spoil_round(info);
  return info;
}

absl::StatusOr<wire::GetDeploymentResponse> FakeFrontend::GetDeployment(
    const wire::GetDeploymentRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("GetDeployment", request, false));
  return End("GetDeployment", deployment);
}

absl::StatusOr<wire::GetPlacementResponse> FakeFrontend::GetPlacement(
    const wire::GetPlacementRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("GetPlacement", request, false));
  if (request.manifest_digest() != AsText(table_->manifest().digest())) {
    return absl::FailedPreconditionError("another epoch of the table is served");
  }
  const BytesView placement = table_->map().placement();
  if (request.offset() > placement.size()) return absl::OutOfRangeError("offset");
  wire::GetPlacementResponse response;
  response.set_total_bytes(placement.size());
  // Small pieces, so that a client must put them together.
  const size_t count =
      std::min<size_t>({placement.size() - request.offset(), request.max_bytes(), 17});
  response.set_data(ToString(placement.subspan(request.offset(), count)));
  return End("GetPlacement", response);
}

absl::StatusOr<wire::GetRowVersionsResponse> FakeFrontend::GetRowVersions(
    const wire::GetRowVersionsRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("GetRowVersions", request, false));
  const auto epoch = std::ranges::find_if(epochs_, [&](const auto& table) {
    return request.manifest_digest() == AsText(table->manifest().digest());
  });
  if (epoch == epochs_.end()) {
    return absl::FailedPreconditionError("another epoch of the table is served");
  }
  const BytesView list =
      (*epoch)->content().versions().list(static_cast<table::RowVersions::Part>(request.list()));
  if (request.offset() > list.size()) return absl::OutOfRangeError("offset");
  wire::GetRowVersionsResponse response;
  response.set_total_bytes(list.size());
  const size_t count = std::min<size_t>({list.size() - request.offset(), request.max_bytes(), 17});
  response.set_data(ToString(list.subspan(request.offset(), count)));
  if (spoil_versions) spoil_versions(request.list(), response);
  return End("GetRowVersions", response);
}

absl::StatusOr<wire::ListRoundsResponse> FakeFrontend::ListRounds(
    const wire::ListRoundsRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("ListRounds", request, false));
  wire::ListRoundsResponse response;
  for (const auto& [id, round] : rounds_) *response.add_rounds() = Info(round);
  return End("ListRounds", response);
}

absl::StatusOr<wire::WaitRoundResponse> FakeFrontend::WaitRound(
    const wire::WaitRoundRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("WaitRound", request, false));
  SHOAL_ASSIGN_OR_RETURN(FakeRound * round, Find(request.round_id()));
  if (reach && request.timeout_ms() > 0) {
    round->state = reach(ToDigest(request.round_id()), request.state());
  } else if (advance && round->state < request.state()) {
    round->state = request.state();
  }
  wire::WaitRoundResponse response;
  *response.mutable_round() = Info(*round);
  return End("WaitRound", response);
}

absl::StatusOr<wire::SubmitOnionsResponse> FakeFrontend::SubmitOnions(
    const wire::SubmitOnionsRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("SubmitOnions", request, true));
  SHOAL_ASSIGN_OR_RETURN(FakeRound * round, Find(request.round_id()));
  const Digest id = ToDigest(request.round_id());
  if (round->state != wire::OPEN_FOR_ONIONS) {
    return absl::FailedPreconditionError("the round takes no onions");
  }
  if (request.ByteSizeLong() > wire::kMaxClientControlBytes) {
    return absl::ResourceExhaustedError("too large a request");
  }
  // Finds out first what is new, and whether it may be: a refusal changes nothing.
  std::map<Digest, uint32_t> fresh;  // the slot of each new submission's first onion
  std::set<std::string> fresh_encs;
  std::vector<std::pair<std::string, size_t>> to_peel;
  wire::SubmitOnionsResponse response;
  size_t slots = round->slots.size();
  for (const std::string& submission : request.submissions()) {
    const size_t onions = Slots(submission.size());
    if (onions == 0) return absl::InvalidArgumentError("not a submission's length");
    const Digest digest = Transcript("fake submission").Blob(submission).Finish();
    std::vector<std::string> encs = {submission.substr(0, onion::kEncBytes)};
    if (has_two_tiers()) encs.push_back(submission.substr(submission.size() / 2, onion::kEncBytes));
    if (const auto known = round->first_slots.find(digest); known != round->first_slots.end()) {
      response.add_first_slots(known->second);
      continue;
    }
    if (const auto known = fresh.find(digest); known != fresh.end()) {
      response.add_first_slots(known->second);
      continue;
    }
    for (const std::string& enc : encs) {
      if (round->encs.contains(enc) || !fresh_encs.insert(enc).second) {
        return absl::InvalidArgumentError("another submission has the same encapsulated key");
      }
    }
    fresh.emplace(digest, static_cast<uint32_t>(slots));
    response.add_first_slots(static_cast<uint32_t>(slots));
    to_peel.emplace_back(submission, onions);
    slots += onions;
  }
  if (response.first_slots_size() == 0) return absl::InvalidArgumentError("no submission");
  if (slots > options_.max_slots) return absl::ResourceExhaustedError("the round is full");
  round->first_slots.merge(fresh);
  round->encs.merge(fresh_encs);
  for (const auto& [submission, onions] : to_peel) Peel(id, submission, onions, *round);
  if (spoil_submission) spoil_submission(response);
  return End("SubmitOnions", response);
}

size_t FakeFrontend::Slots(size_t bytes) const {
  return has_two_tiers() ? onion::TwoPiecesOnions(bytes)
                         : onion::SubmissionOnions(options_.parties, bytes);
}

void FakeFrontend::Peel(const Digest& id, const std::string& submission, size_t onions,
                        FakeRound& round) const {
  std::vector<Slot> slots(onions);
  const std::span<const onion::KeyPair> keys = round.keys;
  const BytesView bytes = AsBytes(submission);
  if (has_two_tiers()) {
    const sharing::HalfIds ids(id);
    Peel(ids.a, keys.first(2), bytes.first(bytes.size() / 2), slots);
    Peel(ids.b, keys.subspan(2), bytes.subspan(bytes.size() / 2), slots);
  } else {
    Peel(id, keys, bytes, slots);
  }
  std::ranges::move(slots, std::back_inserter(round.slots));
}

void FakeFrontend::Peel(const Digest& id, std::span<const onion::KeyPair> keys, BytesView piece,
                        std::span<Slot> slots) const {
  const size_t onions = slots.size();
  const auto keep = [&](BytesView seeds) {
    for (size_t i = 0; i < onions; ++i) {
      slots[i].seeds.push_back(ToBytes(seeds.subspan(i * onion::kSeedBytes, onion::kSeedBytes)));
    }
  };
  Bytes seeds(onions * onion::kSeedBytes), layers(piece.size() - onion::kSealBytes);
  onion::SubmissionToOpen to_open{.submission = piece, .seeds = seeds, .onions = layers};
  onion::OpenSubmissions(keys[0], id, {&to_open, 1});
  SHOAL_CHECK(to_open.opened);  // a client that sends garbage has a bug
  keep(seeds);
  for (uint32_t party = 2; party <= keys.size(); ++party) {
    const size_t left = keys.size() - party + 1;
    Bytes inner(onions * onion::OnionBytes(left - 1));
    std::vector<uint8_t> valid(onions);
    onion::PeelOnions(keys[party - 1], id, party, left, layers, seeds, inner, valid);
    SHOAL_CHECK(std::ranges::find(valid, 0) == valid.end());
    keep(seeds);
    layers = std::move(inner);
  }
}

absl::StatusOr<std::vector<uint32_t>> FakeFrontend::CheckSlots(const FakeRound& round,
                                                               const Digest& id,
                                                               const std::string& slots,
                                                               const std::string* tokens) const {
  if (slots.size() % 4 != 0 || (tokens != nullptr && tokens->size() != slots.size() * 4)) {
    return absl::InvalidArgumentError("arrays of different lengths");
  }
  const Digest first_id = has_two_tiers() ? sharing::HalfId(id, sharing::Half::kA) : id;
  std::vector<uint32_t> out;
  for (size_t i = 0; i < slots.size() / 4; ++i) {
    const uint32_t slot = LoadLe<uint32_t>(AsBytes(slots).data() + 4 * i);
    if (slot >= round.slots.size()) return absl::PermissionDeniedError("no such slot");
    if (tokens != nullptr) {
      const sharing::Expansion expansion = sharing::Expand(round.slots[slot].seeds[0], first_id);
      if (tokens->substr(16 * i, 16) != AsText(expansion.token)) {
        return absl::PermissionDeniedError("not the slot's token");
      }
    }
    out.push_back(slot);
  }
  return out;
}

absl::StatusOr<wire::SubmitQueriesResponse> FakeFrontend::SubmitQueries(
    const wire::SubmitQueriesRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("SubmitQueries", request, true));
  SHOAL_ASSIGN_OR_RETURN(FakeRound * round, Find(request.round_id()));
  const Digest id = ToDigest(request.round_id());
  if (round->state != wire::OPEN_FOR_QUERIES) {
    return absl::FailedPreconditionError("the round takes no queries");
  }
  const bool two = has_two_tiers();
  SHOAL_ASSIGN_OR_RETURN(
      const std::vector<uint32_t> slots,
      CheckSlots(*round, id, request.slots(), two ? nullptr : &request.tokens()));
  const std::string& queries = two ? request.parts() : request.tallies();
  const std::string& others = two ? request.tallies() : request.parts();
  const size_t each = two ? sharing::PartsBytes(Buckets(*round).selection_bytes()) : 4;
  if (queries.size() != slots.size() * each || !others.empty() ||
      (two && !request.tokens().empty())) {
    return absl::InvalidArgumentError("arrays of different lengths");
  }
  // All or nothing.
  std::map<uint32_t, Slot> fresh;
  for (size_t i = 0; i < slots.size(); ++i) {
    Slot slot = round->slots[slots[i]];
    const std::string query = queries.substr(i * each, each);
    if (!slot.query.empty() && slot.query != query) {
      return absl::FailedPreconditionError("the slot was used for another query");
    }
    slot.query = query;
    SHOAL_ASSIGN_OR_RETURN(slot.row, RowOf(*round, id, slot));
    fresh[slots[i]] = std::move(slot);
  }
  for (auto& [number, slot] : fresh) round->slots[number] = std::move(slot);
  wire::SubmitQueriesResponse response;
  response.set_accepted(static_cast<uint32_t>(slots.size()));
  return End("SubmitQueries", response);
}

absl::StatusOr<uint32_t> FakeFrontend::RowOf(const FakeRound& round, const Digest& id,
                                             Slot& slot) const {
  if (has_two_tiers()) return RowOfParts(round, id, slot);
  auto tally = LoadLe<uint32_t>(AsBytes(slot.query).data());
  if (tally >= sharing::kModulus) return absl::InvalidArgumentError("a tally is not below p");
  for (const Bytes& seed : slot.seeds) {
    tally = sharing::Advance(sharing::Expand(seed, id).share, tally);
  }
  return tally;
}

absl::StatusOr<uint32_t> FakeFrontend::RowOfParts(const FakeRound& round, const Digest& id,
                                                  Slot& slot) const {
  const QueryBuckets buckets = Buckets(round);
  const size_t selection_bytes = buckets.selection_bytes();
  const sharing::HalfIds ids(id);
  const std::vector<uint32_t> only = {0};
  uint32_t asked[2];
  Bytes selections[2];
  slot.results.clear();
  for (const sharing::Half half : {sharing::Half::kA, sharing::Half::kB}) {
    const size_t first = half == sharing::Half::kA ? 0 : 2;
    BytesView parts = AsBytes(slot.query);
    if (half == sharing::Half::kB) {
      parts = parts.subspan(sharing::PartBytes(sharing::Half::kA, selection_bytes));
    }
    Bytes forwarded(sharing::ForwardedBytes(half, selection_bytes));
    uint8_t wrong = 0;
    sharing::OpenParts(slot.seeds[first].data(), only, ids, half, selection_bytes, parts, forwarded,
                       {&wrong, 1});
    if (wrong != 0) return absl::PermissionDeniedError("not the slot's tag");
    Bytes& selection = selections[first / 2];
    selection.resize(selection_bytes);
    sharing::OpenForwarded(slot.seeds[first + 1].data(), only, ids, half, buckets, forwarded,
                           {&asked[first / 2], 1}, selection, {&wrong, 1});
    if (wrong != 0) return absl::PermissionDeniedError("not the tail's tag");
    // The XOR of the selected rows of the bucket.
    Bytes& result = slot.results.emplace_back(sharing::TaggedBytes(round.table->answer_bytes()));
    Bytes row(round.table->answer_bytes());
    for (uint32_t place = 0; place < buckets.PlacesIn(asked[first / 2]); ++place) {
      if ((selection[place / 8] >> (place % 8) & 1) == 0) continue;
      round.table->CopyAnswer(buckets.RowAt({.bucket = asked[first / 2], .place = place}), row);
      for (size_t i = 0; i < row.size(); ++i) result[i] ^= row[i];
    }
  }
  if (asked[0] != asked[1]) return absl::InvalidArgumentError("the halves name two buckets");
  // Both selections differ in the place that is asked for alone.
  std::optional<uint32_t> place;
  for (uint32_t bit = 0; bit < 8 * selection_bytes; ++bit) {
    if (((selections[0][bit / 8] ^ selections[1][bit / 8]) >> (bit % 8) & 1) == 0) continue;
    if (place) return absl::InvalidArgumentError("the halves differ in two places");
    place = bit;
  }
  if (!place || *place >= buckets.PlacesIn(asked[0])) {
    return absl::InvalidArgumentError("no row of the table is asked for");
  }
  return buckets.RowAt({.bucket = asked[0], .place = *place});
}

absl::StatusOr<wire::FetchAnswersResponse> FakeFrontend::FetchAnswers(
    const wire::FetchAnswersRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("FetchAnswers", request, true));
  SHOAL_ASSIGN_OR_RETURN(FakeRound * round, Find(request.round_id()));
  const Digest id = ToDigest(request.round_id());
  if (round->state != wire::ANSWERED) {
    return absl::FailedPreconditionError("the round is not answered");
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> slots,
                         CheckSlots(*round, id, request.slots(), &request.tokens()));
  wire::FetchAnswersResponse response;
  for (uint32_t number : slots) {
    const Slot& slot = round->slots[number];
    if (!slot.row) return absl::FailedPreconditionError("the slot was not used");
    const Bytes answer = has_two_tiers() ? HalvesOf(*round, id, slot) : AnswerOf(*round, id, slot);
    response.mutable_answers()->append(AsText(answer).data(), answer.size());
  }
  if (spoil_fetch) spoil_fetch(response);
  return End("FetchAnswers", response);
}

Bytes FakeFrontend::AnswerOf(const FakeRound& round, const Digest& id, const Slot& slot) const {
  Bytes answer(round.table->answer_bytes());
  round.table->CopyAnswer(*slot.row, answer);
  if (spoil) spoil(*slot.row, answer);
  answer.resize(sharing::TaggedBytes(answer.size()));
  std::vector<sharing::AnswerSeed> seeds;
  for (const Bytes& seed : slot.seeds) seeds.push_back({seed, id});
  sharing::MaskByAll(seeds, answer);
  return answer;
}

Bytes FakeFrontend::HalvesOf(const FakeRound& round, const Digest& id, const Slot& slot) const {
  const size_t selection_bytes = Buckets(round).selection_bytes();
  const size_t answer_bytes = round.table->answer_bytes();
  const sharing::HalfIds ids(id);
  const std::vector<uint32_t> only = {0};
  Bytes both;
  for (const sharing::Half half : {sharing::Half::kA, sharing::Half::kB}) {
    const size_t first = half == sharing::Half::kA ? 0 : 2;
    Bytes answer = slot.results[first / 2];
    if (spoil && half == sharing::Half::kA) {
      spoil(*slot.row, MutableBytes(answer).first(answer_bytes));
    }
    sharing::MaskHalf(slot.seeds[first + 1].data(), only, ids, half, sharing::Role::kTail,
                      selection_bytes, answer_bytes, answer);
    sharing::MaskHalf(slot.seeds[first].data(), only, ids, half, sharing::Role::kHead,
                      selection_bytes, answer_bytes, answer);
    if (lost_half && lost_half(*slot.row, half)) {
      SeededRandom(slot.seeds[first], "fake lost half").Fill(answer);
    }
    Append(both, answer);
  }
  return both;
}

void FakeFrontend::Refresh(const Digest& round_id) {
  FakeRound& round = rounds_.at(round_id);
  wire::SignedRefreshHeader& refresh = *round.refresh.mutable_refresh();
  wire::RefreshHeader& header = *refresh.mutable_header();
  header.set_round_id(ToString(round_id));
  header.set_number(header.number() + 1);
  header.set_epoch(table_->manifest().epoch());
  header.set_manifest_digest(ToString(table_->manifest().digest()));
  refresh.set_signature(parties_.SignatureByAll(round::RefreshDigest(header)));
  Bytes tags(sizeof(round::RefreshTag) * options_.parties);
  random_.Fill(tags);
  round.refresh.set_tags(ToString(tags));
  round.refresh_table = table_;
}

absl::StatusOr<wire::GetRefreshResponse> FakeFrontend::GetRefresh(
    const wire::GetRefreshRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("GetRefresh", request, true));
  SHOAL_ASSIGN_OR_RETURN(FakeRound * round, Find(request.round_id()));
  wire::GetRefreshResponse response = round->refresh;
  if (spoil_refresh) spoil_refresh(response);
  return End("GetRefresh", response);
}

absl::StatusOr<wire::FetchRefreshResponse> FakeFrontend::FetchRefresh(
    const wire::FetchRefreshRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("FetchRefresh", request, true));
  SHOAL_ASSIGN_OR_RETURN(FakeRound * round, Find(request.round_id()));
  const Digest id = ToDigest(request.round_id());
  const wire::RefreshHeader& header = round->refresh.refresh().header();
  if (round->refresh_table == nullptr || header.number() != request.number()) {
    return absl::FailedPreconditionError("not the latest refresh");
  }
  const auto masks = [&](size_t party) {
    round::RefreshTag tag;
    std::ranges::copy(AsBytes(round->refresh.tags()).subspan(party * tag.size(), tag.size()),
                      tag.begin());
    return round::RefreshMasksId(header, tag);
  };
  wire::FetchRefreshResponse response;
  for (size_t i = 0; i < request.slots().size() / 4; ++i) {
    const uint32_t number = LoadLe<uint32_t>(AsBytes(request.slots()).data() + 4 * i);
    if (number >= round->slots.size() || !round->slots[number].row) {
      return absl::InvalidArgumentError("the slot was not used");
    }
    const Slot& slot = round->slots[number];
    Bytes answer(round->refresh_table->answer_bytes());
    round->refresh_table->CopyAnswer(*slot.row, answer);
    if (spoil) spoil(*slot.row, answer);
    answer.resize(sharing::TaggedBytes(answer.size()));
    std::vector<Seed> term_seeds;
    std::vector<sharing::AnswerSeed> seeds;
    for (size_t j = 0; j < slot.seeds.size(); ++j) {
      const Seed seed = round::TermSeed(slot.seeds[j], id);
      if (j == 0 && request.tokens().substr(16 * i, 16) !=
                        AsText(sharing::Expand(seed.view(), masks(0)).token)) {
        return absl::PermissionDeniedError("not the slot's token");
      }
      term_seeds.emplace_back(seed.view());
    }
    for (size_t j = 0; j < term_seeds.size(); ++j) {
      seeds.push_back({term_seeds[j].view(), masks(j)});
    }
    sharing::MaskByAll(seeds, answer);
    response.mutable_answers()->append(AsText(answer).data(), answer.size());
  }
  return End("FetchRefresh", response);
}

absl::StatusOr<wire::GetStatusResponse> FakeFrontend::GetStatus(
    const wire::GetStatusRequest& request) {
  SHOAL_RETURN_IF_ERROR(Begin("GetStatus", request, false));
  wire::GetStatusResponse response;
  response.set_deployment("fake");
  response.set_version("0");
  for (const auto& [id, round] : rounds_) *response.add_rounds()->mutable_round() = Info(round);
  for (const wire::PartyState& state : parties) *response.add_parties() = state;
  response.set_parties_age_s(parties_age_s);
  for (const wire::TermReport& term : terms) *response.add_terms() = term;
  return End("GetStatus", response);
}

namespace {

class SharedTransport final : public Transport {
 public:
  SharedTransport(FakeFrontend* frontend, std::mutex* mutex,
                  std::function<absl::Status(const std::string& name)> before)
      : frontend_(frontend), mutex_(mutex), before_(std::move(before)) {}

#define SHOAL_SHARED_CALL(Name)                                                            \
  absl::StatusOr<wire::Name##Response> Name(const wire::Name##Request& request) override { \
    const std::lock_guard lock(*mutex_);                                                   \
    if (before_) SHOAL_RETURN_IF_ERROR(before_(#Name));                                    \
    traffic_.sent += request.ByteSizeLong();                                               \
    auto response = frontend_->Name(request);                                              \
    if (response.ok()) traffic_.received += response->ByteSizeLong();                      \
    return response;                                                                       \
  }
  SHOAL_SHARED_CALL(GetDeployment)
  SHOAL_SHARED_CALL(GetPlacement)
  SHOAL_SHARED_CALL(GetRowVersions)
  SHOAL_SHARED_CALL(ListRounds)
  SHOAL_SHARED_CALL(WaitRound)
  SHOAL_SHARED_CALL(SubmitOnions)
  SHOAL_SHARED_CALL(SubmitQueries)
  SHOAL_SHARED_CALL(FetchAnswers)
  SHOAL_SHARED_CALL(GetStatus)
  SHOAL_SHARED_CALL(GetRefresh)
  SHOAL_SHARED_CALL(FetchRefresh)
#undef SHOAL_SHARED_CALL

  absl::Status RequireParty(const roster::Roster& roster, uint32_t party) override {
    const std::lock_guard lock(*mutex_);
    return frontend_->RequireParty(roster, party);
  }
  void ForgetParty() override {
    const std::lock_guard lock(*mutex_);
    frontend_->ForgetParty();
  }
  void HangUp() override {}
  Traffic traffic() const override { return traffic_; }

 private:
  FakeFrontend* const frontend_;
  std::mutex* const mutex_;
  const std::function<absl::Status(const std::string& name)> before_;
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<Transport> ConnectTo(FakeFrontend* frontend, std::mutex* mutex,
                                     std::function<absl::Status(const std::string& name)> before) {
  return std::make_unique<SharedTransport>(frontend, mutex, std::move(before));
}

}  // namespace shoal::client::testing
