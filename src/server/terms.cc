#include "src/server/terms.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/parallel/content_mac.h"
#include "src/round/header.h"
#include "src/server/answer_sieve.h"
#include "src/server/checked_output.h"
#include "src/server/record_cutter.h"
#include "src/server/sealed_file.h"
#include "src/server/stage_timer.h"
#include "src/server/term.pb.h"
#include "src/sharing/batch.h"
#include "src/shuffle/scatter.h"
#include "src/storage/file.h"

namespace shoal::server {
namespace {

constexpr absl::string_view kPrefix = "term-";
constexpr absl::string_view kDataSuffix = ".data";
constexpr absl::string_view kRefreshSuffix = ".refresh";
constexpr uint64_t kMaxRecordBytes = 1 << 16;
// Positions whose part of an array is read or written at a time.
constexpr size_t kPositions = size_t{1} << 16;
// Bytes of an array that the disk fetches ahead.
constexpr uint64_t kAheadBytes = 8 << 20;
constexpr size_t kChunk = 1024;
// Bytes of answers that a thread makes, masks and digests at a time: they stay in its cache.
constexpr size_t kChunkBytes = 64 << 10;
// Bytes of answers that are made at a time by all threads.
constexpr size_t kPieceBytes = 2 << 20;

// The same in answers: about so many bytes of them, whole vectors of the kernels and whole chunks.
size_t ChunkAnswers(size_t tagged_bytes) {
  constexpr size_t kLanes = 16;
  const size_t fit = std::max<size_t>(1, kChunkBytes / tagged_bytes);
  return fit < kLanes ? fit : fit / kLanes * kLanes;
}
size_t PieceAnswers(size_t tagged_bytes) {
  const size_t chunk = ChunkAnswers(tagged_bytes);
  return chunk * std::max<size_t>(1, kPieceBytes / (chunk * tagged_bytes));
}

void WipeKeys(TermRecord& record) {
  sodium_memzero(record.mutable_file_key()->data(), record.file_key().size());
  sodium_memzero(record.mutable_term_key()->data(), record.term_key().size());
}

}  // namespace

uint64_t TermArrays::file_bytes() const { return SealedFile::FileBytes(bytes()); }

uint64_t TermArrays::list_bytes(size_t tagged_bytes) const {
  const AnswerSieve sieve(forwarded, positions, positions, PieceAnswers(tagged_bytes));
  return shuffle::Scatter::MemoryBytes(sieve.places(), tagged_bytes);
}

struct Terms::Term {
  Digest id = {};
  wire::RoundHeader header;
  uint64_t epoch = 0;
  Digest places = {};
  TermArrays arrays;
  uint64_t origins = 0;  // what `back` has numbers below
  Digest content = {};
  Seed file_key, tag_key, input_key, output_key, dead_key;
  std::string data_path;
  uint64_t taken_up_s = 0, left_s = 0;  // on the steady clock; of its life then

  // Held while files of the term are written or erased.
  Mutex storing ABSL_ACQUIRED_BEFORE(mutex);
  bool files_erased ABSL_GUARDED_BY(storing) = false;
  // Held briefly, never over a disk.
  mutable Mutex mutex;
  // Counts the refreshes that were begun. Sources of earlier ones fail.
  uint64_t generation ABSL_GUARDED_BY(mutex) = 0;
  bool erased ABSL_GUARDED_BY(mutex) = false;
  std::optional<wire::SignedRefreshHeader> refresh ABSL_GUARDED_BY(mutex);
  // Of the latest refresh whose answers were all read.
  std::optional<wire::StageReport> report ABSL_GUARDED_BY(mutex);
  // Which slots were used, and how many before each 64 of them. Made when it is first needed.
  std::vector<uint64_t> used ABSL_GUARDED_BY(mutex), before ABSL_GUARDED_BY(mutex);
  absl::Status MakeIndex(const SealedFile& data, ThreadPool& pool) ABSL_LOCKS_EXCLUDED(mutex);

  uint64_t counter() const { return header.counter(); }
  // Queries that were forwarded and are no noise: all but those of dead positions.
  uint64_t living() const { return arrays.positions - (origins - arrays.forwarded); }
  std::string Subject(absl::string_view what) const {
    return absl::StrCat("term ", counter(), " ", what);
  }
  absl::StatusOr<std::shared_ptr<SealedFile>> Data() const {
    return SealedFile::Open(data_path, file_key, arrays.bytes());
  }
  // FAILED_PRECONDITION if another refresh has begun, or the term has ended.
  absl::Status CheckGeneration(uint64_t then) const ABSL_LOCKS_EXCLUDED(mutex) {
    const MutexLock lock(mutex);
    if (generation == then && !erased) return absl::OkStatus();
    return absl::FailedPreconditionError("the term has ended, or its refresh was begun again");
  }
  void SetKeys(BytesView term_key) {
    tag_key = SeedOf(DeriveKey(term_key, "shoal term tag v1"));
    input_key = SeedOf(DeriveKey(term_key, "shoal term input v1"));
    output_key = SeedOf(DeriveKey(term_key, "shoal term output v1"));
    dead_key = SeedOf(DeriveKey(term_key, "shoal term dead answers v1"));
  }
};

namespace {

// A part of an array that is read from its beginning to its end.
template <typename Value>
class ArrayReader {
 public:
  ArrayReader(std::shared_ptr<SealedFile> file, uint64_t at, uint64_t count)
      : file_(std::move(file)), at_(at), left_(count) {}

  // The next `count` values, valid until the next call. No more than are left (checked).
  absl::StatusOr<std::span<const Value>> Next(uint64_t count, ThreadPool& pool) {
    if (count > values_.size() - given_) {
      values_.erase(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(given_));
      given_ = 0;
      const uint64_t had = values_.size();
      const uint64_t more = std::min(left_, std::max<uint64_t>(kPositions, count - had));
      SHOAL_CHECK(had + more >= count);
      values_.resize(had + more);
      const MutableBytes into(reinterpret_cast<uint8_t*>(values_.data() + had),
                              more * sizeof(Value));
      SHOAL_RETURN_IF_ERROR(file_->Read(at_, into, &pool));
      at_ += into.size();
      left_ -= more;
      file_->WillRead(at_, std::min<uint64_t>(left_ * sizeof(Value), kAheadBytes));
    }
    const std::span<const Value> out = std::span<const Value>(values_).subspan(given_, count);
    given_ += count;
    return out;
  }

 private:
  const std::shared_ptr<SealedFile> file_;
  uint64_t at_, left_;
  SecretVector<Value> values_;
  size_t given_ = 0;
};

using TermSeedBytes = std::array<uint8_t, 32>;

bool IsDead(const TermSeedBytes& seed) {
  uint64_t any = 0;
  for (size_t i = 0; i < seed.size(); i += 8) any |= LoadLe<uint64_t>(seed.data() + i);
  return any == 0;
}

// The numbers from 0 on, as the batch kernels want positions.
std::span<const uint32_t> Numbers(std::vector<uint32_t>& numbers, size_t count) {
  const size_t had = numbers.size();
  if (had < count) {
    numbers.resize(count);
    std::iota(numbers.begin() + static_cast<ptrdiff_t>(had), numbers.end(),
              static_cast<uint32_t>(had));
  }
  return std::span<const uint32_t>(numbers).first(count);
}

}  // namespace

// Masks and tags answers as they are read, digests them, and commits to them before the last piece
// leaves.
class Terms::Outgoing : public CheckedOutput<RefreshAnswers> {
 public:
  Outgoing(const Terms* terms, TermPointer term, uint64_t generation,
           std::shared_ptr<SealedFile> data, wire::RefreshHeader header,
           std::vector<round::RefreshTag> tags, wire::StageReport report)
      : CheckedOutput(term->id, term->arrays.positions * round::TaggedAnswerBytes(term->header),
                      std::move(report), terms->resources_.making_piece),
        terms_(terms),
        term_(std::move(term)),
        generation_(generation),
        header_(std::move(header)),
        tags_(std::move(tags)),
        masks_(round::RefreshMasksId(header_, tags_.front())),
        seeds_(std::move(data), term_->arrays.seeds_at(0), term_->arrays.positions),
        mac_(term_->output_key.view(), "shoal refresh output v1",
             ChunkAnswers(tagged_bytes()) * tagged_bytes()),
        digest_(mac_) {
    dead_key_ = SeedOf(
        Transcript("shoal refresh dead answers v1", term_->dead_key.view()).Blob(masks_).Finish());
  }

  const std::vector<round::RefreshTag>& tags() const override { return tags_; }
  absl::Status CheckCurrent() const override { return term_->CheckGeneration(generation_); }

 protected:
  // Room for the next answers, at least one, or themselves as they came.
  virtual absl::StatusOr<MutableBytes> Piece() = 0;
  // Writes answers to the room, from number `first` of the piece on. On several threads at a time.
  virtual void Fill(size_t first, MutableBytes answers) const = 0;
  size_t answer_bytes() const { return term_->header.answer_bytes(); }
  // Of an answer with its tag, as it comes in, lies and goes out.
  size_t tagged_bytes() const { return sharing::TaggedBytes(answer_bytes()); }
  uint64_t answers_given() const { return given() / tagged_bytes(); }
  const Term& term() const { return *term_; }
  ThreadPool& pool() const { return *terms_->resources_.pool; }

 private:
  absl::StatusOr<BytesView> Make() override {
    SHOAL_ASSIGN_OR_RETURN(const MutableBytes piece, Piece());
    const size_t count = piece.size() / tagged_bytes();
    SHOAL_ASSIGN_OR_RETURN(const std::span<const TermSeedBytes> seeds, seeds_.Next(count, pool()));
    const std::span<const uint32_t> numbers = Numbers(numbers_, ChunkAnswers(tagged_bytes()));
    // Ranges are whole answers, as pieces and chunks are.
    digest_.UpdateMade(piece, pool(), [&](size_t begin, size_t end) {
      const size_t first = begin / tagged_bytes();
      const MutableBytes answers = piece.subspan(begin, end - begin);
      Fill(first, answers);
      Mask(answers_given() + first, seeds.subspan(first, answers.size() / tagged_bytes()), numbers,
           answers);
    });
    if (given() + piece.size() == size()) {
      SHOAL_RETURN_IF_ERROR(terms_->journal_->CommitEpoch(term_->Subject("output"),
                                                          header_.number(), digest_.Finish()));
    }
    return BytesView(piece);
  }
  absl::Status AllTaken() override {
    SHOAL_RETURN_IF_ERROR(CheckCurrent());
    MakeVisible(mutable_report());
    if (terms_->options_.stage_done) terms_->options_.stage_done(report());
    const MutexLock lock(term_->mutex);
    term_->report = report();
    return absl::OkStatus();
  }
  // Masks and tags them. `first`: the number of the first of the answers among all.
  void Mask(uint64_t first, std::span<const TermSeedBytes> seeds, std::span<const uint32_t> numbers,
            MutableBytes answers) const {
    const size_t masked =
        sharing::MaskAnswers(seeds.front().data(), numbers.first(seeds.size()), masks_,
                             answer_bytes(), sharing::TagCoversAt(term_->arrays.backend), answers);
    SHOAL_CHECK(masked * tagged_bytes() == answers.size());
    FillDeadAnswers(
        tagged_bytes(), dead_key_.data(), answers, [&](size_t i) { return IsDead(seeds[i]); },
        [&](size_t i) { return first + i; });
  }

  const Terms* const terms_;
  const TermPointer term_;
  const uint64_t generation_;
  const wire::RefreshHeader header_;
  const std::vector<round::RefreshTag> tags_;
  const Digest masks_;
  Seed dead_key_;
  ArrayReader<TermSeedBytes> seeds_;
  const ContentMac mac_;
  ContentMac::Stream digest_;
  std::vector<uint32_t> numbers_;
};

// At the backend: the rows of the table.
class Terms::FromTable final : public Terms::Outgoing {
 public:
  FromTable(const Terms* terms, TermPointer term, uint64_t generation,
            const std::shared_ptr<SealedFile>& data, wire::RefreshHeader header,
            std::vector<round::RefreshTag> tags, wire::StageReport report,
            std::shared_ptr<const TableEpoch> table)
      : Outgoing(terms, term, generation, data, std::move(header), std::move(tags),
                 std::move(report)),
        table_(std::move(table)),
        no_row_(answer_bytes()),
        rows_(data, term->arrays.rows_at(0), term->arrays.positions) {}

 private:
  absl::StatusOr<MutableBytes> Piece() override {
    const size_t count =
        std::min<uint64_t>(term().arrays.positions - answers_given(), PieceAnswers(tagged_bytes()));
    SHOAL_ASSIGN_OR_RETURN(piece_rows_, rows_.Next(count, pool()));
    piece_.resize(count * tagged_bytes());
    return MutableBytes(piece_);
  }

  void Fill(size_t first, MutableBytes answers) const override {
    CopyRows(answer_bytes(), tagged_bytes(), answers, [&](size_t i) {
      const uint32_t row = piece_rows_[first + i];
      return row < table_->answers.rows ? table_->answers.bytes.data() + row * answer_bytes()
                                        : no_row_.data();
    });
  }

  const std::shared_ptr<const TableEpoch> table_;
  const Bytes no_row_;  // zeros, for queries that named no row
  ArrayReader<uint32_t> rows_;
  std::span<const uint32_t> piece_rows_;  // of the present piece
  SecretVector<uint8_t> piece_;
};

// At the others: what the next party has answered, each answer at its position.
class Terms::FromNext final : public Terms::Outgoing {
 public:
  FromNext(const Terms* terms, TermPointer term, uint64_t generation,
           std::shared_ptr<SealedFile> data, wire::RefreshHeader header,
           std::vector<round::RefreshTag> tags, wire::StageReport report, shuffle::Scatter scatter)
      : Outgoing(terms, std::move(term), generation, std::move(data), std::move(header),
                 std::move(tags), std::move(report)),
        scatter_(std::move(scatter)) {}

 private:
  absl::StatusOr<MutableBytes> Piece() override { return scatter_.Next(pool()); }
  void Fill(size_t, MutableBytes) const override {}  // they are there

  shuffle::Scatter scatter_;
};

Terms::Terms(Options options, const signature::SecretKey* key, Journal* journal,
             RandomSource* random, const Clock* clock, Resources resources)
    : options_(std::move(options)),
      key_(key),
      journal_(journal),
      random_(random),
      clock_(clock),
      resources_(resources) {}

Terms::~Terms() = default;

std::string Terms::Path(uint64_t counter, absl::string_view suffix) const {
  return absl::StrCat(options_.directory, "/", kPrefix, counter, suffix);
}

absl::StatusOr<std::unique_ptr<Terms>> Terms::Open(Options options, const signature::SecretKey* key,
                                                   Journal* journal, RandomSource* random,
                                                   const Clock* clock, Resources resources) {
  const roster::Party& self = options.roster.party(options.number.value());
  if (self.machines > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", self.number, " has several machines, which keep no terms"));
  }
  SHOAL_RETURN_IF_ERROR(MakeDirectory(options.directory, FileMode::kPrivate));
  auto terms =
      std::unique_ptr<Terms>(new Terms(std::move(options), key, journal, random, clock, resources));
  SHOAL_RETURN_IF_ERROR(terms->Load());
  return terms;
}

absl::Status Terms::Load() {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(options_.directory, error)) {
    names.push_back(entry.path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), options_.directory);
  std::set<uint64_t> kept;
  for (const std::string& name : names) {
    uint64_t counter = 0;
    if (!absl::StartsWith(name, kPrefix) ||
        !absl::SimpleAtoi(name.substr(kPrefix.size()), &counter) ||
        name != absl::StrCat(kPrefix, counter)) {
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(std::string bytes, ReadPrivateFile(Path(counter, ""), kMaxRecordBytes));
    TermRecord record;
    const bool parsed = record.ParseFromString(bytes);
    sodium_memzero(bytes.data(), bytes.size());
    auto term = parsed ? Take(record, counter)
                       : absl::StatusOr<TermPointer>(absl::DataLossError("not a term's record"));
    WipeKeys(record);
    if (term.ok()) {
      // Its data must be there, and begin as they were written.
      const auto data = (*term)->Data();
      uint8_t first[32];
      absl::Status readable = data.status();
      if (readable.ok()) readable = (*data)->Read(0, first);
      sodium_memzero(first, sizeof(first));
      if (!readable.ok()) term = readable;
    }
    if (!term.ok()) {
      if (options_.ended) options_.ended(RoundCounter(counter), term.status().message());
      SHOAL_RETURN_IF_ERROR(WipeFile(Path(counter, "")));
      continue;
    }
    kept.insert(counter);
    if (auto refresh = ReadFile(Path(counter, kRefreshSuffix), kMaxRecordBytes); refresh.ok()) {
      wire::SignedRefreshHeader header;
      const MutexLock lock((*term)->mutex);
      if (header.ParseFromString(*refresh)) (*term)->refresh = std::move(header);
    }
    const MutexLock lock(mutex_);
    terms_[(*term)->id] = *std::move(term);
  }
  // What an earlier process was writing, or erasing, when it ended.
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, kPrefix)) continue;
    uint64_t counter = 0;
    const std::string number = name.substr(kPrefix.size(), name.find('.') - kPrefix.size());
    const bool temporary = absl::StrContains(name, kTemporarySuffix);
    if (!temporary && absl::SimpleAtoi(number, &counter) && kept.contains(counter)) continue;
    SHOAL_RETURN_IF_ERROR(WipeFile(absl::StrCat(options_.directory, "/", name)));
  }
  EndExpired();
  return absl::OkStatus();
}

absl::StatusOr<Terms::TermPointer> Terms::Take(const TermRecord& record, uint64_t counter) const {
  const wire::RoundHeader& header = record.header();
  const uint32_t number = options_.number.value();
  const Digest id = round::RoundId(header);
  if (header.counter() != counter) return absl::DataLossError("not a term's record");
  // The arrays have term seeds of the id under which the round took place, and so have its clients.
  if (record.round_id() != AsText(id)) {
    return absl::FailedPreconditionError("of Shoal 0.2, whose terms end with it");
  }
  if (record.file_key().size() != 32 || record.term_key().size() != 32 ||
      record.places().size() != sizeof(Digest) || record.content().size() != sizeof(Digest) ||
      header.answer_bytes() == 0) {
    return absl::DataLossError("not a term's record");
  }
  if (header.roster_digest() != AsText(options_.roster.digest())) {
    return absl::FailedPreconditionError("of another roster");
  }
  auto term = std::make_shared<Term>();
  term->header = header;
  term->id = id;
  term->epoch = record.epoch();
  std::ranges::copy(AsBytes(record.places()), term->places.begin());
  std::ranges::copy(AsBytes(record.content()), term->content.begin());
  term->arrays = {.positions = record.positions(),
                  .forwarded = record.forwarded(),
                  .slots = record.slots(),
                  .backend = number == options_.roster.size(),
                  .frontend = number == 1};
  term->origins = record.origins();
  constexpr uint64_t kMost = OnlineMaterial::kDead;
  if (record.positions() == 0 || record.positions() >= kMost || record.forwarded() >= kMost ||
      record.origins() >= kMost || record.slots() >= kMost) {
    return absl::DataLossError("not a term's record");
  }
  if (!term->arrays.backend &&
      (record.origins() < std::max(record.positions(), record.forwarded()) ||
       record.origins() - record.forwarded() > record.positions())) {
    return absl::DataLossError("not a term's record");
  }
  term->file_key = Seed(AsBytes(record.file_key()));
  term->SetKeys(AsBytes(record.term_key()));
  term->data_path = Path(counter, kDataSuffix);
  const uint64_t now_s = clock_->NowSeconds();
  term->taken_up_s = clock_->SteadySeconds();
  term->left_s = header.term_expires_s() - std::min(now_s, header.term_expires_s());
  return term;
}

absl::Status Terms::CheckRoom() const {
  const MutexLock lock(mutex_);
  if (terms_.size() < kMaxTerms) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(terms_.size(), " terms are kept here already"));
}

namespace {

// Writes a term's arrays to its file, and digests them.
class ArrayWriter {
 public:
  ArrayWriter(SealedFileWriter* data, const ContentMac& mac, const Resources& resources)
      : data_(*data), content_(mac), resources_(resources) {}

  absl::Status Write(BytesView piece) {
    SHOAL_RETURN_IF_ERROR(resources_.CheckLive());
    content_.Update(piece, *resources_.pool);
    return data_.Write(piece, *resources_.pool);
  }
  // `count` items of `bytes` bytes each, made some at a time on several threads: make(i, out).
  template <typename Make>
  absl::Status WriteItems(uint64_t count, size_t bytes, const Make& make) {
    for (uint64_t first = 0; first < count; first += kPositions) {
      const size_t now = std::min<uint64_t>(kPositions, count - first);
      piece_.assign(bytes * now, 0);
      resources_.pool->ParallelFor(now, kChunk, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) make(first + i, piece_.data() + bytes * i);
      });
      SHOAL_RETURN_IF_ERROR(Write(piece_));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Digest> Finish() {
    SHOAL_RETURN_IF_ERROR(data_.Finish());
    return content_.Finish();
  }

 private:
  SealedFileWriter& data_;
  ContentMac::Stream content_;
  const Resources& resources_;
  SecretVector<uint8_t> piece_;
};

// All arrays, in their order (TermArrays).
absl::Status WriteArrays(const TermMaterial& from, const TermArrays& arrays, ArrayWriter& out) {
  const auto& positions = from.queries.positions;
  SHOAL_RETURN_IF_ERROR(out.WriteItems(arrays.positions, 32, [&](uint64_t i, uint8_t* seed) {
    if (from.material.dead(positions[i])) return;
    const Seed made = round::TermSeed(from.material.seed(positions[i]), from.round_id);
    std::ranges::copy(made.view(), seed);
  }));
  if (from.forwarding != nullptr) {
    const std::span<const uint32_t> back = from.forwarding->memory.place();
    SHOAL_RETURN_IF_ERROR(out.WriteItems(
        arrays.forwarded, 4, [&](uint64_t a, uint8_t* number) { StoreLe(number, back[a]); }));
  } else {
    SHOAL_RETURN_IF_ERROR(out.WriteItems(arrays.positions, 4, [&](uint64_t i, uint8_t* number) {
      StoreLe(number, static_cast<uint32_t>(sharing::Advance(from.material.shares[positions[i]],
                                                             from.queries.tallies[i])));
    }));
  }
  if (!arrays.frontend) return absl::OkStatus();
  SecretVector<uint8_t> used(arrays.slots_bytes());
  for (const uint32_t slot : positions) used[slot / 8] |= static_cast<uint8_t>(1 << (slot % 8));
  return out.Write(used);
}

}  // namespace

absl::Status Terms::Keep(const TermMaterial& from) {
  const size_t count = from.queries.positions.size();
  if (count == 0) return absl::OkStatus();  // nobody has asked
  {
    const MutexLock lock(mutex_);
    if (terms_.contains(from.round_id)) return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(CheckRoom());
  const uint32_t number = options_.number.value();
  SHOAL_CHECK((number == options_.roster.size()) == (from.forwarding == nullptr));
  const Seed file_key = random_->NewSeed();
  const Seed term_key = from.secrets.TermKey();
  TermRecord record;
  *record.mutable_header() = from.header;
  record.set_round_id(ToString(from.round_id));
  record.set_file_key(ToString(file_key.view()));
  record.set_term_key(ToString(term_key.view()));
  const auto wipe = absl::MakeCleanup([&] { WipeKeys(record); });
  record.set_epoch(from.table.epoch);
  record.set_places(ToString(from.table.facts.places));
  record.set_positions(count);
  record.set_forwarded(from.forwarding == nullptr ? 0 : from.forwarding->count);
  record.set_origins(from.forwarding == nullptr ? 0 : from.forwarding->places);
  record.set_slots(number == 1 ? from.material.positions : 0);
  record.set_content(std::string(sizeof(Digest), '\0'));
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, Take(record, from.header.counter()));

  // A disk that is full has no room for what has no record.
  auto drop = absl::MakeCleanup([&] { DeleteFile(term->data_path).IgnoreError(); });
  SHOAL_ASSIGN_OR_RETURN(SealedFileWriter data,
                         SealedFileWriter::Create(term->data_path, file_key, term->arrays.bytes()));
  const ContentMac mac(term->tag_key.view(), "shoal term content v1");
  ArrayWriter arrays(&data, mac, resources_);
  SHOAL_RETURN_IF_ERROR(WriteArrays(from, term->arrays, arrays));
  SHOAL_ASSIGN_OR_RETURN(term->content, arrays.Finish());
  record.set_content(ToString(term->content));
  std::string bytes = record.SerializeAsString();
  std::move(drop).Cancel();  // the record may be on the disk even if it cannot be made durable
  const absl::Status written =
      WriteFileAtomically(Path(term->counter(), ""), AsBytes(bytes), FileMode::kPrivate);
  sodium_memzero(bytes.data(), bytes.size());
  SHOAL_RETURN_IF_ERROR(written);
  const MutexLock lock(mutex_);
  terms_[term->id] = term;
  return absl::OkStatus();
}

absl::StatusOr<Terms::TermPointer> Terms::FindTerm(absl::string_view round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const Digest id, ParseRoundId(round_id));
  const MutexLock lock(mutex_);
  const auto found = terms_.find(id);
  if (found != terms_.end()) return found->second;
  return absl::NotFoundError(
      absl::StrCat("round ", Hex(BytesView(id).first(8)), "..: has no term here (any more)"));
}

absl::StatusOr<std::shared_ptr<const TableEpoch>> Terms::TableOf(
    const Term& term, const wire::RefreshHeader& header) const {
  const std::shared_ptr<const TableEpoch> table = options_.table();
  if (header.manifest_digest() != AsText(table->facts.manifest_digest) ||
      header.epoch() != table->epoch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "has another epoch of the table than the refresh names: epoch ", table->epoch));
  }
  if (header.epoch() <= term.epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("refresh: epoch ", header.epoch(), " is not after the round's, ", term.epoch));
  }
  if (table->facts.rows != term.header.max_rows() ||
      table->facts.row_bytes + signature::kSignatureBytes != term.header.answer_bytes() ||
      table->facts.places != term.places) {
    return absl::FailedPreconditionError(
        absl::StrCat("refresh: epoch ", header.epoch(),
                     " has other rows, or other places of keys, than the "
                     "round's table; the next term can have it"));
  }
  return table;
}

absl::Status Terms::CheckTimes(const Term& term) const {
  const uint64_t tolerance_s = options_.roster.clock_tolerance_s();
  if (clock_->NowSeconds() >= term.header.term_expires_s() + tolerance_s ||
      clock_->SteadySeconds() >= term.taken_up_s + term.left_s + tolerance_s) {
    return absl::FailedPreconditionError("the term has expired");
  }
  return absl::OkStatus();
}

absl::Status Terms::CheckProposal(const wire::RefreshHeader& header) const {
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, FindTerm(header.round_id()));
  SHOAL_RETURN_IF_ERROR(round::CheckRefresh(header, term->id, term->header));
  SHOAL_RETURN_IF_ERROR(CheckTimes(*term));
  SHOAL_RETURN_IF_ERROR(TableOf(*term, header).status());
  // Both are checked before either is committed to, so that a refused header leaves nothing behind.
  const uint64_t number = journal_->highest_epoch(term->Subject("refresh"));
  const uint64_t epoch = journal_->highest_epoch(term->Subject("epoch"));
  if (header.number() < number ||
      (header.number() > number ? header.epoch() < epoch : header.epoch() != epoch)) {
    return absl::FailedPreconditionError(absl::StrCat("refresh: number ", header.number(),
                                                      " of epoch ", header.epoch(), ", and number ",
                                                      number, " of epoch ", epoch, " was signed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<signature::Signature> Terms::Sign(const wire::RefreshHeader& header,
                                                 const std::optional<signature::Signature>& later) {
  SHOAL_RETURN_IF_ERROR(CheckProposal(header));
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, FindTerm(header.round_id()));
  SHOAL_CHECK(later.has_value() == !term->arrays.backend);
  const Digest digest = round::RefreshDigest(header);
  // Refuses another header of this epoch, too, before the number is committed to: what is answered
  // is what the number names.
  SHOAL_RETURN_IF_ERROR(journal_->CommitEpoch(term->Subject("epoch"), header.epoch(), digest));
  SHOAL_RETURN_IF_ERROR(journal_->CommitEpoch(term->Subject("refresh"), header.number(), digest));
  std::vector<signature::Signature> signatures = {key_->Sign(digest)};
  if (later.has_value()) signatures.push_back(*later);
  return signature::AggregateSignatures(signatures);
}

absl::Status Terms::CheckRefresh(const wire::SignedRefreshHeader& refresh) const {
  return CheckSigned(refresh).status();
}

absl::StatusOr<Terms::TermPointer> Terms::CheckSigned(
    const wire::SignedRefreshHeader& refresh) const {
  const wire::RefreshHeader& header = refresh.header();
  SHOAL_ASSIGN_OR_RETURN(TermPointer term, FindTerm(header.round_id()));
  SHOAL_RETURN_IF_ERROR(round::VerifyRefresh(refresh, term->id, term->header, options_.roster));
  SHOAL_RETURN_IF_ERROR(CheckTimes(*term));
  // Only what this party has signed last is answered: the journal then has its digest.
  if (journal_->highest_epoch(term->Subject("refresh")) != header.number()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "refresh: number ", header.number(), " is not the one that this party has signed last"));
  }
  SHOAL_RETURN_IF_ERROR(journal_->CommitEpoch(term->Subject("refresh"), header.number(),
                                              round::RefreshDigest(header)));
  return term;
}

Digest Terms::TableContent(const std::shared_ptr<const TableEpoch>& table) {
  {
    const MutexLock lock(mutex_);
    if (digested_.lock() == table) return content_;
  }
  const BytesView bytes = table->answers.bytes;
  constexpr size_t kPiece = 1 << 20;
  std::vector<Digest> digests((bytes.size() + kPiece - 1) / kPiece);
  resources_.pool->ParallelFor(digests.size(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      digests[i] = Transcript("shoal table piece v1")
                       .Blob(bytes.subspan(i * kPiece, std::min(kPiece, bytes.size() - i * kPiece)))
                       .Finish();
    }
  });
  Transcript all("shoal table content v1");
  all.U64(bytes.size());
  for (const Digest& digest : digests) all.Blob(digest);
  const Digest content = all.Finish();
  const MutexLock lock(mutex_);
  digested_ = table;
  content_ = content;
  return content;
}

std::vector<round::RefreshTag> Terms::TagsOf(const Term& term, const wire::RefreshHeader& header,
                                             const Digest& input,
                                             std::span<const round::RefreshTag> later) const {
  Transcript transcript("shoal refresh tag v1", term.tag_key.view());
  transcript.Blob(header.round_id())
      .U64(header.number())
      .U64(header.epoch())
      .Blob(header.manifest_digest())
      .Blob(term.content)
      .Blob(input);
  for (const round::RefreshTag& tag : later) transcript.Blob(tag);
  std::vector<round::RefreshTag> tags = {transcript.Finish()};
  tags.insert(tags.end(), later.begin(), later.end());
  return tags;
}

absl::StatusOr<uint64_t> Terms::BeginRefresh(Term& term) const {
  const MutexLock lock(term.mutex);
  if (term.erased) return absl::NotFoundError("the term has ended");
  return ++term.generation;
}

absl::StatusOr<std::unique_ptr<RefreshAnswers>> Terms::Answer(
    const wire::SignedRefreshHeader& refresh) {
  const wire::RefreshHeader& header = refresh.header();
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, CheckSigned(refresh));
  SHOAL_CHECK(term->arrays.backend);
  SHOAL_ASSIGN_OR_RETURN(auto table, TableOf(*term, header));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t generation, BeginRefresh(*term));
  wire::StageReport report = ReportOf(options_.number, "refresh");
  const StageTimer timer;
  SHOAL_ASSIGN_OR_RETURN(auto data, term->Data());
  const Digest input = TableContent(table);
  auto tags = TagsOf(*term, header, input, {});
  SHOAL_RETURN_IF_ERROR(
      journal_->CommitEpoch(term->Subject("input"), header.number(), tags.front()));
  report.set_positions_in(term->arrays.positions);
  timer.AddTo(report);
  return std::make_unique<FromTable>(this, term, generation, data, header, std::move(tags),
                                     std::move(report), std::move(table));
}

absl::StatusOr<uint64_t> Terms::AnswerBytesFromNext(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, FindTerm(AsText(round_id)));
  return term->arrays.forwarded * round::TaggedAnswerBytes(term->header);
}

absl::StatusOr<std::unique_ptr<RefreshAnswers>> Terms::Return(
    const wire::SignedRefreshHeader& refresh, ByteSource& answers,
    std::span<const round::RefreshTag> later_tags) {
  const wire::RefreshHeader& header = refresh.header();
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, CheckSigned(refresh));
  SHOAL_CHECK(!term->arrays.backend);
  const TermArrays& arrays = term->arrays;
  const size_t tagged_bytes = round::TaggedAnswerBytes(term->header);
  if (later_tags.size() != options_.roster.size() - options_.number.value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("refresh: ", later_tags.size(), " tags of the parties after this one"));
  }
  if (answers.size() != arrays.forwarded * tagged_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("refresh: ", answers.size(), " bytes, where ",
                                                   arrays.forwarded, " queries of ", tagged_bytes,
                                                   " bytes each were asked"));
  }
  SHOAL_ASSIGN_OR_RETURN(const uint64_t generation, BeginRefresh(*term));
  wire::StageReport report = ReportOf(options_.number, "refresh");
  report.set_bytes_in(answers.size());
  report.set_positions_in(arrays.forwarded);
  report.set_positions_out(arrays.positions);
  ThreadPool& pool = *resources_.pool;
  SHOAL_ASSIGN_OR_RETURN(auto data, term->Data());
  const size_t block = PieceAnswers(tagged_bytes);
  AnswerSieve sieve(arrays.forwarded, term->living(), arrays.positions, block);
  absl::StatusOr<Spool> list =
      resources_.spools->Create(shuffle::Scatter::MemoryBytes(sieve.places(), tagged_bytes));
  if (!list.ok()) return NoEndOfTheTerm(list.status());
  SHOAL_ASSIGN_OR_RETURN(
      shuffle::Scatter scatter,
      shuffle::Scatter::CreateFor(arrays.positions, sieve.places(), tagged_bytes,
                                  shuffle::Scatter::kBucketBytes, *std::move(list)));
  ArrayReader<uint32_t> back(data, arrays.back_at(0), arrays.forwarded);
  const ContentMac mac(term->input_key.view(), "shoal refresh input v1",
                       ChunkAnswers(tagged_bytes) * tagged_bytes);
  ContentMac::Stream digest(mac);
  const size_t block_bytes = block * tagged_bytes;
  RecordCutter cutter = RecordCutter::OfBytes(answers.size(), block_bytes);
  const auto put = [&](BytesView blocks) -> absl::Status {
    for (; !blocks.empty(); blocks = blocks.subspan(std::min(blocks.size(), block_bytes))) {
      const BytesView now = blocks.first(std::min(blocks.size(), block_bytes));
      SHOAL_ASSIGN_OR_RETURN(const std::span<const uint32_t> origins,
                             back.Next(now.size() / tagged_bytes, pool));
      const AnswerSieve::Kept kept = sieve.Next(origins);
      SHOAL_RETURN_IF_ERROR(scatter.PutSome(kept.numbers, kept.places, now, pool));
    }
    return absl::OkStatus();
  };
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, answers.Next());
    if (piece.empty()) break;
    SHOAL_RETURN_IF_ERROR(term->CheckGeneration(generation));
    const StageTimer timer;
    digest.Update(piece, pool);
    SHOAL_RETURN_IF_ERROR(cutter.Cut(piece, "refresh", put));
    timer.AddTo(report);
  }
  if (!cutter.complete()) return absl::InvalidArgumentError("refresh: not all answers came");
  SHOAL_RETURN_IF_ERROR(term->CheckGeneration(generation));
  auto tags = TagsOf(*term, header, digest.Finish(), later_tags);
  // The tag stands for all of the input, and is what others see of it.
  SHOAL_RETURN_IF_ERROR(
      journal_->CommitEpoch(term->Subject("input"), header.number(), tags.front()));
  return std::make_unique<FromNext>(this, term, generation, std::move(data), header,
                                    std::move(tags), std::move(report), std::move(scatter));
}

std::optional<wire::StageReport> Terms::Report(const Digest& round_id) const {
  const absl::StatusOr<TermPointer> term = FindTerm(AsText(round_id));
  if (!term.ok()) return std::nullopt;
  const MutexLock lock((*term)->mutex);
  return (*term)->report;
}

void Terms::Erase(const TermPointer& term, absl::string_view why) {
  {
    const MutexLock lock(term->mutex);
    if (term->erased) return;
    term->erased = true;
    term->used = {};
    term->before = {};
  }
  const MutexLock storing(term->storing);
  term->files_erased = true;
  const uint64_t counter = term->counter();
  // The keys first: without them the rest is noise. What cannot be erased now is at the next start,
  // which finds that the term has ended.
  for (const absl::Status& status :
       {WipeFile(Path(counter, "")), DeleteFile(Path(counter, kDataSuffix)),
        DeleteFile(Path(counter, kRefreshSuffix))}) {
    status.IgnoreError();
  }
  if (options_.ended) options_.ended(RoundCounter(counter), why);
}

void Terms::EndThose(const std::function<absl::string_view(const Term&)>& why) {
  std::vector<std::pair<TermPointer, absl::string_view>> ended;
  {
    const MutexLock lock(mutex_);
    std::erase_if(terms_, [&](const auto& entry) {
      const absl::string_view reason = why(*entry.second);
      if (!reason.empty()) ended.emplace_back(entry.second, reason);
      return !reason.empty();
    });
  }
  for (const auto& [term, reason] : ended) Erase(term, reason);
}

void Terms::TakeLive(const wire::LiveRounds& list) {
  EndThose([&](const Term& term) -> absl::string_view {
    const uint64_t counter = term.counter();
    const bool lives = counter > list.highest_counter() ||
                       std::ranges::binary_search(list.rounds(), counter) ||
                       std::ranges::binary_search(list.terms(), counter);
    return lives ? "" : "ended by the frontend";
  });
}

void Terms::End(const Digest& round_id, absl::string_view why) {
  EndThose([&](const Term& term) { return term.id == round_id ? why : ""; });
}

void Terms::EndExpired() {
  EndThose([&](const Term& term) -> absl::string_view {
    return CheckTimes(term).ok() ? "" : "expired";
  });
}

Terms::Known Terms::KnownOf(const Term& term) {
  const MutexLock lock(term.mutex);
  return {.round_id = term.id,
          .header = term.header,
          .positions = term.arrays.positions,
          .refresh = term.refresh};
}

std::vector<Terms::Known> Terms::All() const {
  std::vector<TermPointer> terms;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, term] : terms_) terms.push_back(term);
  }
  std::vector<Known> all;
  for (const TermPointer& term : terms) all.push_back(KnownOf(*term));
  std::ranges::sort(all, {}, [](const Known& term) { return term.header.counter(); });
  return all;
}

absl::StatusOr<Terms::Known> Terms::Find(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, FindTerm(AsText(round_id)));
  return KnownOf(*term);
}

absl::Status Terms::StoreRefresh(const wire::SignedRefreshHeader& refresh) {
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, CheckSigned(refresh));
  const MutexLock storing(term->storing);
  if (term->files_erased) return absl::NotFoundError("the term has ended");
  SHOAL_RETURN_IF_ERROR(NoEndOfTheTerm(WriteFileAtomically(Path(term->counter(), kRefreshSuffix),
                                                           AsBytes(refresh.SerializeAsString()),
                                                           FileMode::kPrivate)));
  const MutexLock lock(term->mutex);
  term->refresh = refresh;
  return absl::OkStatus();
}

absl::Status Terms::Term::MakeIndex(const SealedFile& data, ThreadPool& pool) {
  {
    const MutexLock lock(mutex);
    if (!used.empty()) return absl::OkStatus();
  }
  std::vector<uint64_t> words((arrays.slots + 63) / 64), sums(words.size());
  SHOAL_RETURN_IF_ERROR(data.Read(
      arrays.slots_at(),
      MutableBytes(reinterpret_cast<uint8_t*>(words.data()), arrays.slots_bytes()), &pool));
  uint64_t sum = 0;
  for (size_t word = 0; word < words.size(); ++word) {
    sums[word] = sum;
    sum += static_cast<uint64_t>(std::popcount(words[word]));
  }
  const MutexLock lock(mutex);
  if (erased || !used.empty()) return absl::OkStatus();
  used = std::move(words);
  before = std::move(sums);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> Terms::Places(const wire::RefreshHeader& refresh,
                                                    const round::RefreshTag& tag,
                                                    std::span<const uint32_t> slots,
                                                    std::span<const sharing::Token> tokens) const {
  SHOAL_CHECK(slots.size() == tokens.size());
  SHOAL_ASSIGN_OR_RETURN(const TermPointer term, FindTerm(refresh.round_id()));
  SHOAL_CHECK(term->arrays.frontend);
  SHOAL_ASSIGN_OR_RETURN(const auto data, term->Data());
  SHOAL_RETURN_IF_ERROR(term->MakeIndex(*data, *resources_.pool));
  std::vector<uint64_t> places(slots.size());
  {
    const MutexLock lock(term->mutex);
    if (term->erased) return absl::NotFoundError("the term has ended");
    for (size_t i = 0; i < slots.size(); ++i) {
      const uint32_t slot = slots[i];
      const uint64_t bit = uint64_t{1} << (slot % 64);
      if (slot >= term->arrays.slots || (term->used[slot / 64] & bit) == 0) {
        return absl::InvalidArgumentError(absl::StrCat("slot ", slot, " was not used"));
      }
      places[i] = term->before[slot / 64] +
                  static_cast<uint64_t>(std::popcount(term->used[slot / 64] & (bit - 1)));
    }
  }
  const Digest masks = round::RefreshMasksId(refresh, tag);
  std::vector<uint32_t> numbers;
  SecretVector<TermSeedBytes> seeds;
  for (size_t first = 0; first < slots.size();) {
    // A client's slots lie in rows, whose seeds are read at once.
    size_t count = 1;
    while (first + count < slots.size() && count < kChunk &&
           places[first + count] == places[first] + count) {
      ++count;
    }
    seeds.resize(count);
    SHOAL_RETURN_IF_ERROR(
        data->Read(term->arrays.seeds_at(places[first]),
                   MutableBytes(reinterpret_cast<uint8_t*>(seeds.data()), 32 * count)));
    const size_t living = static_cast<size_t>(std::ranges::find_if(seeds, IsDead) - seeds.begin());
    const size_t wrong = sharing::FirstWrongToken(seeds.front().data(), Numbers(numbers, living),
                                                  masks, tokens.subspan(first, living));
    if (wrong < count) {
      return absl::PermissionDeniedError(
          absl::StrCat("slot ", slots[first + wrong], ": the token is not the slot's"));
    }
    first += count;
  }
  return places;
}

}  // namespace shoal::server
