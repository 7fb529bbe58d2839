#include "src/server/testing/deployment.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/parallel/content_mac.h"
#include "src/server/round_context.h"

namespace shoal::server::testing {
namespace {

Digest RowMessage(uint64_t row, BytesView bytes) {
  return Transcript("shoal sim row").U64(row).Blob(bytes).Finish();
}

}  // namespace

// Notes the last 32 bytes that were drawn, every bit flipped.
class NotingRandom final : public RandomSource {
 public:
  explicit NotingRandom(RandomSource* from) : from_(from) {}
  void Fill(MutableBytes out) override {
    from_->Fill(out);
    if (out.size() == flipped_.size()) {
      std::ranges::transform(out, flipped_.data(), [](uint8_t byte) { return byte ^ 0xff; });
    }
  }
  Seed flipped() const { return flipped_.Clone(); }

 private:
  RandomSource* const from_;
  Seed flipped_;
};

// One party's process and its disk.
struct Deployment::Machine {
  explicit Machine(RandomSource* source) : random(source) {}
  NotingRandom random;
  Disk disk;
  Tamper tamper;
  std::unique_ptr<MemoryJournal> journal;
  std::unique_ptr<Terms> terms;
  std::unique_ptr<Party> party;
  std::unique_ptr<Link> next;
  std::unique_ptr<ChainNode> node;
};

// Looks up the next party at every call, as it may have been restarted.
class Deployment::TamperedLink final : public Link {
 public:
  TamperedLink(Deployment* deployment, uint32_t from) : deployment_(deployment), from_(from) {}

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override {
    SHOAL_RETURN_IF_ERROR(Up());
    wire::RoundHeader changed = draft;
    if (tamper().draft) tamper().draft(changed);
    wire::SignedLiveRounds list = live;
    if (tamper().live) tamper().live(list);
    SHOAL_ASSIGN_OR_RETURN(wire::SignedHeader back, next().Propose(changed, list));
    if (tamper().signed_back) tamper().signed_back(back);
    if (tamper().loses_headers) return absl::UnavailableError("the connection broke");
    return back;
  }
  absl::Status Offline(const wire::SignedHeader& header, const OwnRun& mine,
                       std::unique_ptr<ByteSource> onions) override {
    SHOAL_RETURN_IF_ERROR(Up());
    SHOAL_RETURN_IF_ERROR(Change(tamper().onions, onions));
    const auto& breaks = tamper().breaks_offline;
    SHOAL_RETURN_IF_ERROR(Check(breaks, Break::kBefore));
    if (breaks && breaks(Break::kHalfWay)) {
      onions = std::make_unique<HalfSource>(std::move(onions));
    }
    const absl::Status done = next().Offline(header, mine, std::move(onions));
    const absl::Status broken = Check(breaks, Break::kAfter);
    return broken.ok() ? done : broken;
  }
  absl::StatusOr<std::unique_ptr<PartedSource>> Online(const Digest& round_id, const OwnRun& mine,
                                                       QueriesOut out) override {
    SHOAL_RETURN_IF_ERROR(Up());
    Bytes queries = std::get<Bytes>(std::move(out));
    if (tamper().queries) tamper().queries(queries);
    const auto& breaks = tamper().breaks_online;
    SHOAL_RETURN_IF_ERROR(Check(breaks, Break::kBefore));
    SHOAL_ASSIGN_OR_RETURN(
        std::unique_ptr<ByteSource> answers,
        next().Online(round_id, std::move(queries), StageTry{.attempt = mine.attempt}));
    SHOAL_RETURN_IF_ERROR(Change(tamper().answers, answers));
    SHOAL_RETURN_IF_ERROR(Check(breaks, Break::kAfter));
    if (breaks && breaks(Break::kHalfWay)) {
      answers = std::make_unique<HalfSource>(std::move(answers));
    }
    return std::make_unique<OnePart>(std::move(answers));
  }
  absl::StatusOr<std::unique_ptr<ByteSource>> HeadOffline(const wire::SignedHeader& header,
                                                          const OwnRun& mine, Submissions pieces,
                                                          uint64_t most) override {
    return CallHead(HeadCall::kOffline, std::move(pieces.list), [&](auto list) {
      return next().HeadOffline(header, mine, {std::move(list), pieces.onions}, most);
    });
  }
  absl::StatusOr<Bytes> HeadQueries(const Digest& round_id, const OwnRun& mine, Bytes parts,
                                    uint64_t most) override {
    const auto call =
        [&](std::unique_ptr<ByteSource> list) -> absl::StatusOr<std::unique_ptr<ByteSource>> {
      SHOAL_ASSIGN_OR_RETURN(Bytes sent, ReadAll(*list));
      SHOAL_ASSIGN_OR_RETURN(Bytes batch,
                             next().HeadQueries(round_id, mine, std::move(sent), most));
      return std::make_unique<BytesSource>(std::move(batch));
    };
    SHOAL_ASSIGN_OR_RETURN(
        const auto batch,
        CallHead(HeadCall::kQueries, std::make_unique<BytesSource>(std::move(parts)), call));
    return ReadAll(*batch);
  }
  absl::StatusOr<std::unique_ptr<ByteSource>> HeadAnswers(const Digest& round_id,
                                                          const OwnRun& mine,
                                                          std::unique_ptr<ByteSource> answers,
                                                          uint64_t most) override {
    return CallHead(HeadCall::kAnswers, std::move(answers), [&](auto list) {
      return next().HeadAnswers(round_id, mine, std::move(list), most);
    });
  }
  absl::StatusOr<StageReports> Reports(const Digest& round_id) override {
    SHOAL_RETURN_IF_ERROR(Up());
    SHOAL_ASSIGN_OR_RETURN(StageReports reports, next().Reports(round_id));
    if (tamper().reports) tamper().reports(reports);
    return reports;
  }
  absl::StatusOr<ListAnswer> Live(const wire::SignedLiveRounds& live) override {
    SHOAL_RETURN_IF_ERROR(Up());
    if (tamper().loses_lists) return absl::UnavailableError("the list was lost");
    wire::SignedLiveRounds list = live;
    if (tamper().live) tamper().live(list);
    SHOAL_ASSIGN_OR_RETURN(ListAnswer answer, next().Live(list));
    if (tamper().list_answer) tamper().list_answer(list.list(), answer);
    return answer;
  }

  absl::StatusOr<signature::Signature> ProposeRefresh(const wire::RefreshHeader& header) override {
    SHOAL_RETURN_IF_ERROR(Up());
    SHOAL_RETURN_IF_ERROR(Check(tamper().breaks_proposal, Break::kBefore));
    wire::RefreshHeader changed = header;
    if (tamper().proposed_refresh) tamper().proposed_refresh(changed);
    SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum, next().ProposeRefresh(changed));
    SHOAL_RETURN_IF_ERROR(Check(tamper().breaks_proposal, Break::kAfter));
    return sum;
  }
  absl::StatusOr<std::unique_ptr<RefreshAnswers>> Refresh(
      const wire::SignedRefreshHeader& refresh) override {
    SHOAL_RETURN_IF_ERROR(Up());
    const auto& breaks = tamper().breaks_refresh;
    SHOAL_RETURN_IF_ERROR(Check(breaks, Break::kBefore));
    wire::SignedRefreshHeader changed = refresh;
    if (tamper().refresh) tamper().refresh(changed);
    SHOAL_ASSIGN_OR_RETURN(const auto later, next().Refresh(changed));
    std::vector<round::RefreshTag> tags = later->tags();
    SHOAL_ASSIGN_OR_RETURN(Bytes bytes, ReadAll(*later));
    if (tamper().refreshed) tamper().refreshed(bytes, tags);
    SHOAL_RETURN_IF_ERROR(Check(breaks, Break::kAfter));
    std::unique_ptr<ByteSource> source = std::make_unique<BytesSource>(std::move(bytes));
    if (breaks && breaks(Break::kHalfWay)) source = std::make_unique<HalfSource>(std::move(source));
    return std::make_unique<Answered>(std::move(source), std::move(tags));
  }

 private:
  class Answered final : public RefreshAnswers {
   public:
    Answered(std::unique_ptr<ByteSource> bytes, std::vector<round::RefreshTag> tags)
        : bytes_(std::move(bytes)), tags_(std::move(tags)) {}
    uint64_t size() const override { return bytes_->size(); }
    absl::StatusOr<BytesView> Next() override { return bytes_->Next(); }
    const std::vector<round::RefreshTag>& tags() const override { return tags_; }

   private:
    const std::unique_ptr<ByteSource> bytes_;
    const std::vector<round::RefreshTag> tags_;
  };
  // Hands out half of a source. Then the connection breaks.
  class HalfSource final : public ByteSource {
   public:
    explicit HalfSource(std::unique_ptr<ByteSource> whole) : whole_(std::move(whole)) {}
    uint64_t size() const override { return whole_->size(); }
    absl::StatusOr<BytesView> Next() override {
      const uint64_t left = size() / 2 - given_;
      if (left == 0) return absl::UnavailableError("the connection broke");
      SHOAL_ASSIGN_OR_RETURN(BytesView piece, whole_->Next());
      piece = piece.first(std::min<uint64_t>(piece.size(), left));
      given_ += piece.size();
      return piece;
    }

   private:
    const std::unique_ptr<ByteSource> whole_;
    uint64_t given_ = 0;
  };
  using Source = std::unique_ptr<ByteSource>;
  absl::StatusOr<Source> CallHead(HeadCall call, Source sent,
                                  const std::function<absl::StatusOr<Source>(Source)>& send) {
    SHOAL_RETURN_IF_ERROR(Up());
    const auto with = [call](const auto& change) -> std::function<void(Bytes&)> {
      if (!change) return nullptr;
      return [&change, call](Bytes& bytes) { change(call, bytes); };
    };
    std::function<bool(Break)> breaks;
    if (tamper().breaks_head) {
      breaks = [this, call](Break at) { return tamper().breaks_head(call, at); };
    }
    SHOAL_RETURN_IF_ERROR(Check(breaks, Break::kBefore));
    SHOAL_RETURN_IF_ERROR(Change(with(tamper().to_head), sent));
    SHOAL_ASSIGN_OR_RETURN(Source back, send(std::move(sent)));
    SHOAL_RETURN_IF_ERROR(Change(with(tamper().from_head), back));
    SHOAL_RETURN_IF_ERROR(Check(breaks, Break::kAfter));
    if (breaks && breaks(Break::kHalfWay)) back = std::make_unique<HalfSource>(std::move(back));
    return back;
  }
  static absl::Status Check(const std::function<bool(Break)>& breaks, Break at) {
    return breaks && breaks(at) ? absl::UnavailableError("the connection broke") : absl::OkStatus();
  }
  Tamper& tamper() { return deployment_->tamper(from_); }
  ChainNode& next() { return deployment_->node(from_ + 1); }
  static absl::Status Change(const std::function<void(Bytes&)>& change,
                             std::unique_ptr<ByteSource>& source) {
    if (!change) return absl::OkStatus();
    SHOAL_ASSIGN_OR_RETURN(Bytes bytes, ReadAll(*source));
    change(bytes);
    source = std::make_unique<BytesSource>(std::move(bytes));
    return absl::OkStatus();
  }
  absl::Status Up() {
    return tamper().down ? absl::UnavailableError(absl::StrCat("party ", from_ + 1, " is down"))
                         : absl::OkStatus();
  }
  Deployment* const deployment_;
  const uint32_t from_;
};

World::World(const DeploymentOptions& options, const std::vector<uint32_t>& machines)
    : random_(options.seed),
      pool_(options.threads),
      spools_("/tmp", options.spool_memory_bytes),
      parties_(machines.empty() ? roster::testing::Parties(options.parties, random_)
                                : roster::testing::Parties(machines, random_)) {
  wire::Roster& draft = parties_.draft();
  *draft.mutable_noise() = roster::NoiseToWire(options.noise);
  draft.set_most_in_bucket(options.most_in_bucket);
  if (options.term_limit.days() > 0) *draft.mutable_term_limit() = options.term_limit;
  // Valid for longer than any test's clock runs.
  draft.set_expires_s(clock_.now_s + 1'000'000);
  roster_ = parties_.roster(clock_.now_s);
  query_buckets_ = options.query_buckets;
  MakeEpoch(options.rows, options.row_bytes);
}

Deployment::Deployment(DeploymentOptions options) : World(options), options_(std::move(options)) {
  if (options_.term_limit.days() > 0) {
    const char* const place = std::getenv("TEST_TMPDIR");
    std::string made = absl::StrCat(place == nullptr ? "/tmp" : place, "/deployment-XXXXXX");
    SHOAL_CHECK(::mkdtemp(made.data()) != nullptr);
    directory_ = made;
  }
  for (uint32_t number = 1; number <= parties(); ++number) {
    machines_.push_back(std::make_unique<Machine>(&random()));
  }
  for (uint32_t number = 1; number <= parties(); ++number) Start(number, 1);
}

Deployment::~Deployment() {
  if (!directory_.empty()) std::filesystem::remove_all(directory_);
}

uint64_t World::MakeEpoch(uint64_t rows, uint32_t row_bytes, uint8_t places) {
  TableContent table{.facts = {.manifest_digest = {},
                               .rows = rows,
                               .row_bytes = row_bytes,
                               .query_buckets = query_buckets_},
                     .answers = nullptr};
  random_.Fill(table.facts.manifest_digest);
  table.facts.places[0] = places;
  Bytes row(row_bytes), answers;
  for (uint64_t number = 0; number < rows; ++number) {
    random_.Fill(row);
    Append(answers, row);
    Append(answers, parties_.SignByAll(RowMessage(number, row)).bytes());
  }
  table.answers = std::make_shared<const Bytes>(std::move(answers));
  tables_.push_back(std::move(table));
  return tables_.size();
}

TableEpoch World::Epoch(uint64_t epoch, uint32_t number) const {
  const TableContent& table = tables_[epoch - 1];
  TableEpoch out{.facts = table.facts, .id = {}, .epoch = epoch, .answers = {}};
  if (number == parties() || roster().most_in_bucket() != 0) {
    out.answers = {*table.answers, table.facts.rows};
  }
  return out;
}

void Deployment::Start(uint32_t number, uint64_t epoch) {
  Machine& machine = *machines_[number - 1];
  if (number == 1) {
    refreshes_.reset();
    frontend_.reset();
  }
  machine.node.reset();
  machine.party.reset();
  machine.terms.reset();
  machine.journal = std::make_unique<MemoryJournal>(&machine.disk);
  const bool backend = number == parties();
  Resources resources = World::resources();
  if (options_.making_piece) resources.making_piece = &options_.making_piece;
  Party::Options options{
      .number = PartyNumber(number), .roster = roster(), .table = Epoch(epoch, number)};
  options.stage_done = options_.stage_done;
  if (!directory_.empty()) {
    auto terms =
        Terms::Open({.number = PartyNumber(number),
                     .roster = roster(),
                     .directory = TermsDirectory(number),
                     .table = [&machine] { return machine.party->table(); }},
                    &key(number), machine.journal.get(), &machine.random, &clock(), resources);
    SHOAL_CHECK(terms.ok());
    machine.terms = *std::move(terms);
    options.terms = machine.terms.get();
  }
  auto party = Party::Create(std::move(options), key(number), machine.journal.get(),
                             &machine.random, &clock(), resources);
  SHOAL_CHECK(party.ok());
  machine.party = *std::move(party);
  machine.next = backend ? nullptr : std::make_unique<TamperedLink>(this, number);
  machine.node = std::make_unique<ChainNode>(machine.party.get(), machine.next.get());
  if (number == 1) {
    auto frontend = Frontend::Create(options_.plan, machine.party.get(), machine.journal.get(),
                                     &clock(), World::resources());
    SHOAL_CHECK(frontend.ok());
    frontend_ = *std::move(frontend);
    if (machine.terms != nullptr) {
      refreshes_ = std::make_unique<Refreshes>(machine.party.get(), machine.journal.get(), &clock(),
                                               World::resources().pool, &refresh_spools_);
    }
  }
}

void Deployment::Restart(uint32_t number) { Start(number, party(number).table()->epoch); }
Party& Deployment::party(uint32_t number) { return *machines_[number - 1]->party; }
Terms& Deployment::terms(uint32_t number) { return *machines_[number - 1]->terms; }
std::string Deployment::TermsDirectory(uint32_t number) const {
  return absl::StrCat(directory_, "/", number);
}
ChainNode& Deployment::node(uint32_t number) { return *machines_[number - 1]->node; }
Disk& Deployment::disk(uint32_t number) { return machines_[number - 1]->disk; }
Seed Deployment::FlippedRoot(uint32_t number) const {
  return machines_[number - 1]->random.flipped();
}
Seed Deployment::Root(uint32_t number) const {
  Seed root = FlippedRoot(number);
  for (uint8_t& byte : root.mutable_view()) byte ^= 0xff;
  return root;
}
Tamper& Deployment::tamper(uint32_t number) { return machines_[number - 1]->tamper; }

BytesView World::Answer(uint64_t row, uint64_t epoch) const {
  const TableContent& table = tables_[epoch - 1];
  const size_t answer_bytes = table.facts.row_bytes + signature::kSignatureBytes;
  return BytesView(*table.answers).subspan(row * answer_bytes, answer_bytes);
}

absl::StatusOr<round::Round> Deployment::Announce() {
  SHOAL_ASSIGN_OR_RETURN(const wire::RoundHeader draft, frontend_->NewDraft());
  auto opened = [&]() -> absl::StatusOr<round::Round> {
    SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header,
                           node(1).Propose(draft, frontend_->Live()));
    SHOAL_ASSIGN_OR_RETURN(
        round::Round round,
        round::Round::Verify(header, roster(), party(1).table()->facts, clock().now_s));
    SHOAL_RETURN_IF_ERROR(frontend_->Open(round));
    return round;
  }();
  if (!opened.ok()) {
    frontend_->Withdraw(RoundCounter(draft.counter()));
    SendList().status().IgnoreError();
  }
  return opened;
}

absl::StatusOr<std::vector<Digest>> Deployment::SendList() {
  SHOAL_ASSIGN_OR_RETURN(const ListAnswer answer, node(1).Live(frontend_->Live()));
  return frontend_->AbortLacked(answer.lacked);
}

absl::Status Deployment::RunOffline(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header, frontend_->Header(round_id));
  if (header.header().query_buckets() != 0) {
    SHOAL_ASSIGN_OR_RETURN(HalvesSubmissions pieces, frontend_->SealHalves(round_id));
    SHOAL_RETURN_IF_ERROR(
        node(1).OfflineOfHalves(header, std::move(pieces.a), std::move(pieces.b)));
  } else {
    SHOAL_ASSIGN_OR_RETURN(Submissions submissions, frontend_->Seal(round_id));
    SHOAL_RETURN_IF_ERROR(node(1).Offline(header, std::move(submissions)));
  }
  SHOAL_ASSIGN_OR_RETURN(StageReports reports, node(1).Reports(round_id));
  return frontend_->OfflineDone(round_id, std::move(reports));
}

absl::Status Deployment::RunOnline(const Digest& round_id) {
  const auto reports = [&] { return node(1).Reports(round_id).value_or(StageReports()); };
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header, frontend_->Header(round_id));
  if (header.header().query_buckets() != 0) {
    SHOAL_ASSIGN_OR_RETURN(const HalvesQueries queries, frontend_->CloseParts(round_id));
    SHOAL_ASSIGN_OR_RETURN(const HalvesAnswers answers,
                           node(1).OnlineOfHalves(round_id, queries.a, queries.b));
    return frontend_->AnswersReady(round_id, *answers.a, *answers.b, reports);
  }
  SHOAL_ASSIGN_OR_RETURN(const Bytes queries, frontend_->CloseQueries(round_id));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<AnswerSource> answers,
                         node(1).OnlineOfKept(round_id, queries));
  return frontend_->AnswersReady(round_id, *answers, reports);
}

namespace {

absl::StatusOr<Bytes> OfflineOf(Party& party, const wire::SignedHeader& header, Bytes list,
                                const StageTry& stage) {
  BytesSource source(std::move(list));
  SHOAL_ASSIGN_OR_RETURN(auto intake, party.BeginOffline(header, source.size(), stage));
  SHOAL_ASSIGN_OR_RETURN(const auto onward, party.Offline(std::move(intake), &source));
  SHOAL_CHECK(onward != nullptr);
  return ReadAll(*onward);
}

}  // namespace

absl::StatusOr<Bytes> Offline(Party& party, const wire::SignedHeader& header, Bytes onions) {
  return OfflineOf(party, header, std::move(onions), {});
}

absl::StatusOr<Bytes> Offline(Party& party, const wire::SignedHeader& header, SealedRound input) {
  return OfflineOf(party, header, std::move(input.list), {.records = input.onions});
}

absl::StatusOr<Bytes> Queries(Party& party, const Digest& round_id, BytesView queries) {
  SHOAL_ASSIGN_OR_RETURN(QueriesOut forwarded, party.Queries(round_id, queries));
  return std::get<Bytes>(std::move(forwarded));
}

absl::StatusOr<Bytes> AnswerQueries(Party& party, const Digest& round_id, BytesView queries) {
  SHOAL_ASSIGN_OR_RETURN(const auto answers, party.AnswerQueries(round_id, queries));
  return ReadAll(*answers);
}

absl::StatusOr<Bytes> Answers(Party& party, const Digest& round_id, Bytes answers) {
  OnePart source(std::make_unique<BytesSource>(std::move(answers)));
  SHOAL_ASSIGN_OR_RETURN(const auto returned, party.Answers(round_id, source));
  return ReadAll(*returned);
}

absl::StatusOr<SealedRound> Seal(Frontend& frontend, const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const Submissions submissions, frontend.Seal(round_id));
  SealedRound sealed{.list = {}, .onions = submissions.onions};
  SHOAL_ASSIGN_OR_RETURN(sealed.list, ReadAll(*submissions.list));
  return sealed;
}

Digest DigestOf(const Seed& root, Content content, BytesView bytes) {
  ThreadPool pool(1);
  const LastingSecrets secrets(root);
  return ContentMac(secrets.ContentKey(), ContentName(content)).Of(bytes, pool);
}

absl::StatusOr<Frontend::Submitted> Submit(Frontend& frontend, const Digest& round_id,
                                           BytesView submission) {
  return frontend.SubmitOnions(round_id, {&submission, 1}, /*from=*/std::nullopt);
}

absl::Status Deployment::EndRound(const Digest& round_id) {
  frontend_->Close(round_id);
  return SendList().status();
}

absl::Status World::Verify(uint64_t row, BytesView answer) const {
  SHOAL_ASSIGN_OR_RETURN(const auto signature,
                         signature::Signature::FromBytes(answer.subspan(table().row_bytes)));
  return signature::Verify(roster_->aggregate_key(),
                           RowMessage(row, answer.first(table().row_bytes)), signature);
}

sharing::Token Secret::token(const Digest& round_id) const {
  return sharing::Expand(seeds[0].view(), round_id).token;
}

uint32_t Secret::FirstTally(const Digest& round_id) const {
  std::vector<sharing::QueryShare> shares;
  for (const Seed& seed : seeds) shares.push_back(sharing::Expand(seed.view(), round_id).share);
  return sharing::FirstTally(shares, static_cast<uint32_t>(row));
}

bool Secret::Unmask(const Digest& round_id, Bytes& answer) const {
  return Unmask(std::vector<Digest>(seeds.size(), round_id), answer);
}

bool Secret::Unmask(std::span<const Digest> ids, Bytes& answer) const {
  SHOAL_CHECK(ids.size() == seeds.size());
  std::vector<sharing::AnswerSeed> all;
  for (size_t j = 0; j < seeds.size(); ++j) all.push_back({seeds[j].view(), ids[j]});
  const bool right = sharing::UnmaskAnswer(all, answer);
  answer.resize(answer.size() - sharing::kAnswerTagBytes);
  return right;
}

Secret Secret::OfTerm(const Digest& round_id) const {
  Secret term;
  for (const Seed& seed : seeds) term.seeds.push_back(round::TermSeed(seed.view(), round_id));
  term.slot = slot;
  term.row = row;
  return term;
}

Secret Client::Make(std::vector<Seed> ephemeral) {
  return Make(std::move(ephemeral), round_.parties() + 1, {});
}

Secret Client::Make(std::vector<Seed> ephemeral, uint32_t from, const Digest& inner_id) {
  const uint32_t parties = round_.parties();
  const std::span recipients = round_.recipients();
  // The layers are sealed one by one, by the parts that HPKE is made of.
  Secret secret;
  secret.seeds.resize(parties);
  Bytes onion;
  for (uint32_t party = parties; party >= 1; --party) {
    const Digest& id = party >= from ? inner_id : round_.id();
    const Seed& mine = ephemeral[party - 1];
    Bytes seed(32);
    if (party == 1) {
      secret.submission.resize(onion.size() + onion::kSealBytes);
      const onion::SubmissionToSeal submission = {.ephemeral_secret = mine.view(),
                                                  .onions = onion,
                                                  .submission = secret.submission,
                                                  .seeds = seed};
      onion::SealSubmissions(recipients[0], id, {&submission, 1});
    } else {
      onion = onion::AddLayer(id, party, recipients[party - 1], mine.view(), onion, seed);
    }
    secret.seeds[party - 1] = Seed(seed);
  }
  secret.ephemeral = std::move(ephemeral);
  return secret;
}

Secret Client::Make() {
  std::vector<Seed> ephemeral;
  for (uint32_t j = 0; j < round_.parties(); ++j) {
    ephemeral.push_back(world_->random().NewSeed());
  }
  return Make(std::move(ephemeral));
}

absl::Status Client::Obtain(size_t count) {
  for (size_t i = 0; i < count; ++i) Add(Make());
  return Submit();
}

absl::Status Client::Submit() {
  std::vector<BytesView> submissions;
  for (size_t i = submitted_; i < secrets_.size(); ++i) {
    submissions.push_back(secrets_[i].submission);
  }
  SHOAL_ASSIGN_OR_RETURN(const auto submitted,
                         frontend().SubmitOnions(round_.id(), submissions, from_));
  SHOAL_CHECK(submitted.first_slots.size() == submissions.size());
  for (uint32_t slot : submitted.first_slots) secrets_[submitted_++].slot = slot;
  return absl::OkStatus();
}

wire::SubmitQueriesRequest Client::QueriesRequest() const {
  wire::SubmitQueriesRequest request;
  request.set_round_id(ToString(round_.id()));
  Bytes slots, tallies;
  for (size_t i = 0; i < used_; ++i) {
    AppendLe(slots, secrets_[i].slot);
    AppendLe(tallies, secrets_[i].FirstTally(round_.id()));
    request.mutable_tokens()->append(ToString(secrets_[i].token(round_.id())));
  }
  request.set_slots(ToString(slots));
  request.set_tallies(ToString(tallies));
  return request;
}

wire::FetchAnswersRequest Client::AnswersRequest() const {
  const wire::SubmitQueriesRequest queries = QueriesRequest();
  wire::FetchAnswersRequest request;
  request.set_round_id(queries.round_id());
  request.set_slots(queries.slots());
  request.set_tokens(queries.tokens());
  return request;
}

absl::Status Client::Query(const std::vector<uint64_t>& rows) {
  SHOAL_CHECK(rows.size() <= secrets_.size());
  used_ = rows.size();
  for (size_t i = 0; i < rows.size(); ++i) secrets_[i].row = rows[i];
  return frontend().SubmitQueries(QueriesRequest()).status();
}

absl::StatusOr<std::vector<Bytes>> Client::Fetch() {
  SHOAL_ASSIGN_OR_RETURN(const wire::FetchAnswersResponse response,
                         frontend().FetchAnswers(AnswersRequest()));
  const size_t tagged_bytes = round_.tagged_bytes();
  SHOAL_CHECK(response.answers().size() == used_ * tagged_bytes);
  std::vector<Bytes> out;
  for (size_t i = 0; i < used_; ++i) {
    out.push_back(ToBytes(AsBytes(response.answers()).subspan(i * tagged_bytes, tagged_bytes)));
    secrets_[i].Unmask(round_.id(), out.back());
  }
  return out;
}

wire::FetchRefreshRequest Client::RefreshRequest(const wire::GetRefreshResponse& latest) const {
  wire::FetchRefreshRequest request;
  request.set_round_id(ToString(round_.id()));
  request.set_number(latest.refresh().header().number());
  round::RefreshTag tag = {};
  std::copy_n(latest.tags().begin(), std::min(latest.tags().size(), tag.size()), tag.begin());
  const Digest masks = round::RefreshMasksId(latest.refresh().header(), tag);
  Bytes slots;
  for (size_t i = 0; i < used_; ++i) {
    AppendLe(slots, secrets_[i].slot);
    request.mutable_tokens()->append(ToString(secrets_[i].OfTerm(round_.id()).token(masks)));
  }
  request.set_slots(ToString(slots));
  return request;
}

absl::StatusOr<std::vector<Bytes>> Client::FetchRefresh() {
  wire::GetRefreshRequest ask;
  ask.set_round_id(ToString(round_.id()));
  SHOAL_ASSIGN_OR_RETURN(const wire::GetRefreshResponse latest,
                         deployment_->refreshes().GetRefresh(ask));
  SHOAL_RETURN_IF_ERROR(
      round::VerifyRefresh(latest.refresh(), round_.id(), round_.header(), world_->roster()));
  SHOAL_CHECK(latest.tags().size() == round_.parties() * sizeof(round::RefreshTag));
  SHOAL_ASSIGN_OR_RETURN(const wire::FetchRefreshResponse response,
                         deployment_->refreshes().FetchRefresh(RefreshRequest(latest)));
  const size_t tagged_bytes = round_.tagged_bytes();
  SHOAL_CHECK(response.answers().size() == used_ * tagged_bytes);
  std::vector<Digest> masks;
  for (size_t j = 0; j < round_.parties(); ++j) {
    round::RefreshTag tag;
    std::copy_n(latest.tags().begin() + static_cast<ptrdiff_t>(j * tag.size()), tag.size(),
                tag.begin());
    masks.push_back(round::RefreshMasksId(latest.refresh().header(), tag));
  }
  std::vector<Bytes> out;
  for (size_t i = 0; i < used_; ++i) {
    Bytes& answer = out.emplace_back(
        ToBytes(AsBytes(response.answers()).subspan(i * tagged_bytes, tagged_bytes)));
    secrets_[i].OfTerm(round_.id()).Unmask(masks, answer);
  }
  return out;
}

}  // namespace shoal::server::testing
