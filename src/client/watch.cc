#include "src/client/watch.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/exchange.h"
#include "src/client/term.pb.h"
#include "src/round/header.h"
#include "src/round/query_bytes.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

constexpr absl::string_view kTermSuffix = ".term";
constexpr absl::string_view kSeenSuffix = ".seen";
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 31;
constexpr size_t kGrain = 128;

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("damaged: ", what));
}

// What the digest of a file is made under. Version 0.2 had the same for both, so that its terms, of
// whose rounds no party knows any more, are told from those of this version.
constexpr absl::string_view kTermDomain = "shoal client term v2";
constexpr absl::string_view kSeenDomain = "shoal client term v1";

Digest FileDigest(absl::string_view domain, BytesView body) {
  return Transcript(domain).Blob(body).Finish();
}

template <typename Record>
absl::Status WriteRecord(const std::string& path, absl::string_view domain, const Record& record) {
  SecretVector<uint8_t> bytes(sizeof(Digest) + record.ByteSizeLong());
  record.SerializeWithCachedSizesToArray(bytes.data() + sizeof(Digest));
  const Digest digest = FileDigest(domain, BytesView(bytes).subspan(sizeof(Digest)));
  std::ranges::copy(digest, bytes.begin());
  return WriteFileAtomically(path, bytes, FileMode::kPrivate);
}

// The domain that the file has, of these; empty if there is no such file.
template <typename Record>
absl::StatusOr<absl::string_view> ReadRecord(const std::string& path,
                                             std::initializer_list<absl::string_view> domains,
                                             Record& record) {
  const auto content = ReadSecretFile(path, kMaxFileBytes);
  if (absl::IsNotFound(content.status())) return absl::string_view();
  if (!content.ok()) return content.status();
  const BytesView bytes = *content;
  if (bytes.size() < sizeof(Digest)) return Annotate(Damaged("it is too short"), path);
  const BytesView body = bytes.subspan(sizeof(Digest));
  const auto* const domain = std::ranges::find_if(domains, [&](absl::string_view of) {
    return std::ranges::equal(FileDigest(of, body), bytes.first(sizeof(Digest)));
  });
  if (domain == domains.end() ||
      !record.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return Annotate(Damaged("its checksum does not fit"), path);
  }
  return *domain;
}

// Wipes the seeds of the record when it goes out of scope.
auto WipeSeeds(EnrolledRecord& record) {
  return absl::MakeCleanup(
      [&record] { sodium_memzero(record.mutable_seeds()->data(), record.seeds().size()); });
}

}  // namespace

struct Watch::Term {
  explicit Term(const EnrolledRecord& record)
      : header(record.header()),
        id(round::RoundId(header.header())),
        manifest(record.manifest()),
        rows(record.rows().begin(), record.rows().end()),
        slots(record.slots().begin(), record.slots().end()),
        rising(rows) {
    const BytesView kept = AsBytes(record.seeds());
    seeds.assign(kept.begin(), kept.end());
    std::ranges::sort(rising);
  }

  wire::SignedHeader header;
  Digest id;
  wire::SignedManifest manifest;
  std::vector<uint32_t> rows, slots;
  std::vector<uint32_t> rising;  // the rows
  SecretVector<uint8_t> seeds;

  uint32_t parties() const { return static_cast<uint32_t>(header.header().onion_keys_size()); }
  size_t answer_bytes() const { return header.header().answer_bytes(); }
  size_t tagged_bytes() const { return round::TaggedAnswerBytes(header.header()); }
};

namespace {

// The answers of a refresh, in memory and unmasked.
class RefreshedRows final : public RowAnswers {
 public:
  RefreshedRows(std::span<const uint32_t> rows, size_t answer_bytes, SecretVector<uint8_t> answers)
      : rows_(rows), answer_bytes_(answer_bytes), answers_(std::move(answers)) {}

  std::span<const uint32_t> rows() const override { return rows_; }
  absl::Status Read(size_t first, MutableBytes out) const override {
    const BytesView from = BytesView(answers_).subspan(first * answer_bytes_, out.size());
    std::ranges::copy(from, out.begin());
    return absl::OkStatus();
  }
  absl::Status Erase() override {
    answers_ = {};
    return absl::OkStatus();
  }

 private:
  const std::span<const uint32_t> rows_;
  const size_t answer_bytes_;
  SecretVector<uint8_t> answers_;
};

}  // namespace

class Watch::Source final : public RowSource {
 public:
  Source(Watch* watch, VerifiedRefresh refresh, const Deployment* deployment, Transport* transport)
      : watch_(*watch),
        term_(*watch->term_),
        refresh_(std::move(refresh)),
        transport_(transport),
        exchange_(transport, watch->environment_.sleep, watch->environment_.clock) {
    costs_.bytes.query_bytes = 0;
    costs_.bytes.answer_bytes = round::FetchedBytes(deployment->manifest().answer_bytes());
  }

  absl::Status Prepare() override { return absl::OkStatus(); }

  absl::StatusOr<std::unique_ptr<RowAnswers>> Ask(const Wanted& wanted) override {
    if (!std::ranges::includes(term_.rising, wanted.rows)) {
      return absl::FailedPreconditionError("a key whose row this term does not have");
    }
    // Everything is fetched, whatever is wanted.
    const size_t each = term_.answer_bytes(), tagged_bytes = term_.tagged_bytes();
    const size_t total = term_.slots.size();
    const size_t parties = term_.parties();
    const auto seeds_from = [&](size_t slot) {
      return term_.seeds.data() + slot * parties * Seed::size();
    };
    Bytes tagged(total * tagged_bytes);
    const std::vector<Digest> masks = MasksOf(refresh_);
    const size_t piece = std::max<size_t>(1, kMaxBulkBytes / tagged_bytes);
    for (size_t first = 0; first < total;) {
      std::span<const uint32_t> slots = std::span(term_.slots).subspan(first);
      slots = slots.first(SlotsInRequest(slots, piece));
      SHOAL_RETURN_IF_ERROR(exchange_.FetchRefresh(
          MakeRefreshFetch(refresh_.header, masks, slots, seeds_from(first)),
          MutableBytes(tagged).subspan(first * tagged_bytes, slots.size() * tagged_bytes)));
      first += slots.size();
      watch_.environment_.Count("fetching answers", first, total);
    }
    // Before anything depends on what the answers say: they are not fetched a second time.
    SHOAL_RETURN_IF_ERROR(watch_.MarkSeen(refresh_));
    SecretVector<uint8_t> answers(total * each);
    watch_.environment_.pool->ParallelFor(total, kGrain, [&](size_t begin, size_t end) {
      UnmaskRefresh(masks, seeds_from(begin), each,
                    BytesView(tagged).subspan(begin * tagged_bytes, (end - begin) * tagged_bytes),
                    MutableBytes(answers).subspan(begin * each, (end - begin) * each));
    });
    return std::make_unique<RefreshedRows>(term_.rows, each, std::move(answers));
  }

  void HangUp() override { transport_->HangUp(); }
  pir::Costs costs() const override { return costs_; }
  Traffic traffic() const override { return transport_->traffic(); }

 private:
  Watch& watch_;
  const Term& term_;
  const VerifiedRefresh refresh_;
  Transport* const transport_;
  Exchange exchange_;
  pir::Costs costs_;
};

Watch::Watch(std::string path, Environment environment)
    : path_(std::move(path)), environment_(std::move(environment)) {}

Watch::~Watch() { sodium_memzero(key_.data(), key_.size()); }

absl::StatusOr<std::unique_ptr<Watch>> Watch::Open(const std::string& path,
                                                   Environment environment) {
  std::unique_ptr<Watch> watch(new Watch(path, std::move(environment)));
  SHOAL_RETURN_IF_ERROR(watch->Load());
  return watch;
}

absl::Status Watch::Load() {
  SeenRecord seen;
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view seen_as,
                         ReadRecord(path_ + std::string(kSeenSuffix), {kSeenDomain}, seen));
  if (!seen_as.empty()) {
    seen_round_ = seen.round_id();
    seen_number_ = seen.number();
    latest_epoch_ = seen.epoch();
    if (seen.key().size() != key_.size()) return Annotate(Damaged("its key"), path_);
    std::ranges::copy(AsBytes(seen.key()), key_.begin());
    for (const KnownRecord& in : seen.known()) {
      KeyDigest key;
      Known known;
      if (in.key().size() != key.size() || in.value().size() != known.value.size() ||
          in.outcome() >= static_cast<uint32_t>(Lookup::Outcome::kFailed)) {
        return Annotate(Damaged("what is known of a key"), path_);
      }
      std::ranges::copy(AsBytes(in.key()), key.begin());
      known.outcome = static_cast<Lookup::Outcome>(in.outcome());
      std::ranges::copy(AsBytes(in.value()), known.value.begin());
      known_[key] = known;
    }
  } else {
    environment_.random->Fill(key_);
  }

  EnrolledRecord record;
  const std::string path = path_ + std::string(kTermSuffix);
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view term_as,
                         ReadRecord(path, {kTermDomain, kSeenDomain}, record));
  if (term_as.empty()) return absl::OkStatus();
  const auto wipe = WipeSeeds(record);
  if (term_as != kTermDomain) {
    environment_.Tell(
        "this device had enrolled in a term of Shoal 0.2, which is over; the enrolment still "
        "counts, and it enrols anew");
    return WipeFile(path);
  }
  if (environment_.clock->NowSeconds() >= record.header().header().term_expires_s()) {
    return WipeFile(path);
  }
  auto term = std::make_unique<Term>(record);
  if (term->rows.empty() || term->rows.size() != term->slots.size() ||
      term->seeds.size() != Seed::size() * term->parties() * term->slots.size()) {
    return Annotate(Damaged("the term"), path);
  }
  term_ = std::move(term);
  return absl::OkStatus();
}

uint64_t Watch::term_expires_s() const {
  return term_ == nullptr ? 0 : term_->header.header().term_expires_s();
}

std::optional<Digest> Watch::term_round() const {
  if (term_ == nullptr) return std::nullopt;
  return term_->id;
}

TermOptions Watch::Enrolment(uint32_t max_enrolments,
                             std::function<const table::Manifest&()> manifest) {
  return {.max_enrolments = max_enrolments,
          .enrolled = [this, manifest = std::move(manifest)](const Enrolled& enrolled) {
            return Store(enrolled, manifest());
          }};
}

absl::Status Watch::Store(const Enrolled& enrolled, const table::Manifest& manifest) {
  SHOAL_CHECK(enrolled.header.header().manifest_digest() == AsText(manifest.digest()));
  EnrolledRecord record;
  *record.mutable_header() = enrolled.header;
  *record.mutable_manifest() = manifest.wire();
  record.mutable_rows()->Add(enrolled.rows.begin(), enrolled.rows.end());
  record.mutable_slots()->Add(enrolled.slots.begin(), enrolled.slots.end());
  record.set_seeds(ToString(enrolled.seeds));
  const auto wipe = WipeSeeds(record);
  SHOAL_RETURN_IF_ERROR(WriteRecord(path_ + std::string(kTermSuffix), kTermDomain, record));
  term_ = std::make_unique<Term>(record);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<VerifiedRefresh>> Watch::Latest(const Deployment& deployment,
                                                             Transport* transport) const {
  SHOAL_CHECK(term_ != nullptr);
  Exchange exchange(transport, environment_.sleep, environment_.clock);
  SHOAL_ASSIGN_OR_RETURN(const wire::GetRefreshResponse response, exchange.GetRefresh(term_->id));
  if (!response.has_refresh()) return std::nullopt;
  const wire::RefreshHeader& header = response.refresh().header();
  if (seen_round_ == AsText(term_->id) && header.number() <= seen_number_) return std::nullopt;
  SHOAL_ASSIGN_OR_RETURN(VerifiedRefresh refresh,
                         VerifyRefresh(response,
                                       {.id = term_->id,
                                        .header = term_->header.header(),
                                        .manifest = term_->manifest.manifest()},
                                       deployment));
  return refresh;
}

std::unique_ptr<RowSource> Watch::MakeSource(const VerifiedRefresh& refresh,
                                             const Deployment* deployment, Transport* transport) {
  SHOAL_CHECK(term_ != nullptr);
  return std::make_unique<Source>(this, refresh, deployment, transport);
}

absl::StatusOr<bool> Watch::Enrols(const Deployment& deployment, BytesView key) const {
  SHOAL_CHECK(term_ != nullptr);
  const absl::StatusOr<uint64_t> row = deployment.map().RowOf(key);
  // A key that the manifest alone proves absent needs no row.
  if (absl::IsOutOfRange(row.status())) return true;
  if (!row.ok()) return row.status();
  return std::ranges::binary_search(term_->rising, static_cast<uint32_t>(*row));
}

Watch::KeyDigest Watch::DigestOf(BytesView bytes) const {
  const Digest digest = Transcript("shoal client watched v1", key_).Blob(bytes).Finish();
  KeyDigest out;
  std::copy_n(digest.begin(), out.size(), out.begin());
  return out;
}

std::optional<News> Watch::Take(BytesView key, const Lookup& result, uint64_t epoch) {
  if (result.outcome == Lookup::Outcome::kFailed) return std::nullopt;
  const Known now{.outcome = result.outcome, .value = DigestOf(result.value)};
  const auto [known, first] = known_.try_emplace(DigestOf(key), now);
  if (!first && known->second == now) return std::nullopt;
  known->second = now;
  return News{.first = first, .epoch = epoch};
}

absl::Status Watch::MarkSeen(const VerifiedRefresh& refresh) {
  seen_round_ = ToString(term_->id);
  seen_number_ = refresh.header.number();
  return Write();
}

absl::Status Watch::Save(const VerifiedRefresh* refresh) {
  SHOAL_CHECK(term_ != nullptr);
  seen_round_ = ToString(term_->id);
  seen_number_ = refresh == nullptr ? 0 : refresh->header.number();
  latest_epoch_ = refresh == nullptr ? term_->manifest.manifest().epoch() : refresh->header.epoch();
  return Write();
}

absl::Status Watch::Write() const {
  SeenRecord record;
  record.set_round_id(seen_round_);
  record.set_number(seen_number_);
  record.set_epoch(latest_epoch_);
  record.set_key(ToString(key_));
  for (const auto& [key, known] : known_) {
    KnownRecord& out = *record.add_known();
    out.set_key(ToString(key));
    out.set_outcome(static_cast<uint32_t>(known.outcome));
    out.set_value(ToString(known.value));
  }
  return WriteRecord(path_ + std::string(kSeenSuffix), kSeenDomain, record);
}

}  // namespace shoal::client
