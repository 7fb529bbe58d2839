#include "src/client/chain_client.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/device.h"
#include "src/onion/onion.h"
#include "src/parallel/mutex.h"

namespace shoal::client {
namespace {

constexpr uint32_t kPollMs = 250;

bool RoundTakesNoMore(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status);
}

// The number of times that slots are saved while they are obtained.
constexpr size_t kSlotSaves = 8;
// Answers that one task unmasks.
constexpr size_t kAnswerGrain = 64;

// `count` onions of a device, from number `first` on.
OnionRange Part(const HeldRound& held, size_t first, size_t count) {
  return {&held.master, static_cast<uint32_t>(first), static_cast<uint32_t>(count)};
}

std::vector<uint32_t> Sorted(std::vector<uint32_t> items) {
  std::sort(items.begin(), items.end());
  return items;
}

// The digest by which the state knows which rows (rising) a round is for. A lookup for other rows
// does not match, even if some are the same.
Digest WantedDigest(const HeldRound& held, std::span<const uint32_t> rows) {
  return Transcript("shoal client wanted v1", held.master.view())
      .Blob(BytesView(reinterpret_cast<const uint8_t*>(rows.data()), rows.size_bytes()))
      .Finish();
}

std::string RoundName(const HeldRound& held) { return absl::StrCat("round ", held.counter()); }

}  // namespace

// The answers of one round, in its spool.
class ChainClient::Answers final : public RowAnswers {
 public:
  // `spool` is complete.
  Answers(ChainClient* client, HeldRound* held, round::Round round,
          std::unique_ptr<AnswerSpool> spool)
      : client_(*client), held_(*held), round_(std::move(round)), spool_(std::move(spool)) {}

  std::span<const uint32_t> rows() const override { return held_.rows; }

  absl::Status Read(size_t first, MutableBytes out) const override {
    SHOAL_RETURN_IF_ERROR(spool_->Read(first, out));
    const size_t each = round_.answer_bytes();
    client_.environment_.pool->ParallelFor(
        out.size() / each, kAnswerGrain, [&](size_t begin, size_t end) {
          Unmask(round_, Part(held_, first + begin, end - begin),
                 out.subspan(begin * each, (end - begin) * each));
        });
    return absl::OkStatus();
  }

  absl::Status Erase() override { return client_.GiveUp(held_); }

 private:
  ChainClient& client_;
  HeldRound& held_;
  const round::Round round_;
  const std::unique_ptr<AnswerSpool> spool_;
};

ChainClient::ChainClient(const Deployment* deployment, ChainOptions options, Transport* transport,
                         StateStore* store, Environment environment)
    : deployment_(*deployment),
      options_(options),
      store_(store),
      environment_(std::move(environment)),
      transport_(transport),
      exchange_(transport, environment_.sleep, environment_.clock),
      connections_(environment_.connect, &deployment_.roster(), environment_.sleep,
                   /*keep=*/true) {
  costs_.bytes.query_bytes = onion::OnionBytes(deployment_.roster().size()) + kQueryBytes;
  costs_.bytes.answer_bytes = deployment_.manifest().answer_bytes();
}

absl::StatusOr<std::unique_ptr<ChainClient>> ChainClient::Create(const Deployment* deployment,
                                                                 ChainOptions options,
                                                                 Transport* transport,
                                                                 StateStore* store,
                                                                 Environment environment) {
  if (options.pad_to == 0 || options.pad_to > kMaxPadTo) {
    return absl::InvalidArgumentError(absl::StrCat("pad_to must be 1 to ", kMaxPadTo));
  }
  if (options.max_attempts == 0 || options.max_attempts > kMaxAttempts) {
    return absl::InvalidArgumentError(absl::StrCat("max_attempts must be 1 to ", kMaxAttempts));
  }
  if (options.connections == 0 || options.connections > kMaxClientConnections) {
    return absl::InvalidArgumentError(
        absl::StrCat("connections must be 1 to ", kMaxClientConnections));
  }
  return std::unique_ptr<ChainClient>(
      new ChainClient(deployment, options, transport, store, std::move(environment)));
}

absl::StatusOr<round::Round> ChainClient::VerifyRound(const wire::SignedHeader& header) const {
  return round::Round::Verify(header, deployment_.roster(), deployment_.table_facts(),
                              environment_.clock->NowSeconds());
}

absl::StatusOr<HeldRound*> ChainClient::FindHeld(const Digest& round_id) {
  HeldRound* const held = store_->state().FindRound(round_id);
  if (held == nullptr || held->over) {
    return absl::NotFoundError("this client holds no slots in that round");
  }
  return held;
}

absl::Status ChainClient::GiveUp(HeldRound& held) {
  store_->state().End(held);
  return store_->Save();
}

// True when the client holds `slots` slots in the round; false if the round takes no more.
absl::StatusOr<bool> ChainClient::TryObtain(const wire::RoundInfo& info, uint32_t slots,
                                            Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(info.header()));
  State& state = store_->state();
  for (const HeldRound& held : state.rounds) {
    if (held.counter() == round.counter().value() && held.id != round.id()) {
      return absl::UnauthenticatedError(
          absl::StrCat(RoundName(held), " has two headers: the parties are not to be trusted"));
    }
  }
  round_id = round.id();
  if (state.FindRound(round_id) == nullptr) {
    if (state.rounds.size() >= State::kMaxRounds) {
      // Otherwise a frontend that shows header after header could make the state too large to be
      // read.
      return absl::ResourceExhaustedError(
          absl::StrCat("this client keeps ", state.rounds.size(),
                       " rounds that have not expired, and takes no more: ask again later, or tell "
                       "the operators"));
    }
    HeldRound held;
    held.header = info.header();
    held.id = round_id;
    held.master = environment_.random->NewSeed();
    state.rounds.push_back(std::move(held));
    // Saves the seed first, so that a submission repeated after a crash has the same bytes.
    SHOAL_RETURN_IF_ERROR(store_->Save());
  }
  HeldRound& held = *state.FindRound(round_id);
  SHOAL_CHECK(!held.over && held.rows.empty());  // its seed is wiped, or its slots carry rows
  const size_t first = held.slots.size();
  SHOAL_CHECK(first < slots);
  environment_.Tell(absl::StrCat("obtaining ", slots - first, " slots in ", RoundName(held)));
  std::vector<uint32_t> added(slots - first);
  const size_t piece = OnionsPerPiece(round, options_.piece_bytes);
  // Pieces come in any order. Only slots without a gap before them are kept.
  const size_t all_pieces = (added.size() + piece - 1) / piece;
  struct {
    Mutex mutex;
    std::vector<bool> come ABSL_GUARDED_BY(mutex);
    size_t count ABSL_GUARDED_BY(mutex) = 0;  // pieces that have come
    size_t kept ABSL_GUARDED_BY(mutex) = 0;
  } pieces{.mutex = {}, .come = std::vector<bool>(all_pieces)};
  const auto keep_at_least = [&](size_t more)
                                 ABSL_EXCLUSIVE_LOCKS_REQUIRED(pieces.mutex) -> absl::Status {
    size_t end = pieces.kept;
    while (end < all_pieces && pieces.come[end]) ++end;
    if (end < pieces.kept + more) return absl::OkStatus();
    const size_t from = std::exchange(pieces.kept, end) * piece;
    return KeepSlots(held,
                     std::span(added).subspan(from, std::min(added.size(), end * piece) - from));
  };
  const size_t save_every = all_pieces / kSlotSaves + 1;
  const absl::Status obtained = ForPieces(
      added.size(), piece, [&](Exchange& exchange, size_t from, size_t count) -> absl::Status {
        const OnionRange range = Part(held, first + from, count);
        const Stopwatch sealing;
        std::string onions = BuildOnions(round, {&range, 1}, environment_.pool);
        const double seconds = sealing.Seconds();
        SHOAL_RETURN_IF_ERROR(
            exchange.SubmitOnions(round, std::move(onions), std::span(added).subspan(from, count)));
        const MutexLock lock(pieces.mutex);
        costs_.query_seconds += seconds / slots;
        pieces.come[from / piece] = true;
        environment_.Count("obtaining slots", ++pieces.count, all_pieces);
        return keep_at_least(save_every);
      });
  if (RoundTakesNoMore(obtained)) return false;
  // Keeps slots after an error too, so that their onions are not sent again.
  const MutexLock lock(pieces.mutex);
  const absl::Status kept = keep_at_least(1);
  SHOAL_RETURN_IF_ERROR(obtained);
  SHOAL_RETURN_IF_ERROR(kept);
  return true;
}

absl::Status ChainClient::KeepSlots(HeldRound& held, std::span<const uint32_t> more) {
  std::vector<uint32_t> slots = held.slots;
  slots.insert(slots.end(), more.begin(), more.end());
  const std::vector<uint32_t> sorted = Sorted(slots);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return absl::DataLossError("the frontend gave a slot twice");
  }
  held.slots = std::move(slots);
  return store_->Save();
}

absl::StatusOr<Digest> ChainClient::ObtainNew(uint32_t slots, bool only_new_rounds) {
  const uint64_t deadline_s = environment_.clock->NowSeconds() + options_.timeout_s;
  bool told = false;
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list, exchange_.ListRounds());
    const uint64_t now_s = environment_.clock->NowSeconds();
    std::vector<const wire::RoundInfo*> candidates;
    for (const wire::RoundInfo& info : list.rounds()) {
      const wire::RoundHeader& header = info.header().header();
      if (info.state() != wire::OPEN_FOR_ONIONS) continue;
      // Skips rounds of an earlier table, which run beside the new table's for a while.
      if (header.manifest_digest() != AsText(deployment_.manifest().digest())) continue;
      const HeldRound* const held = store_->state().FindRound(round::RoundId(header));
      if (held != nullptr && (only_new_rounds || held->over || !held->rows.empty())) continue;
      // Only checks the room of rounds that are new here. In others the frontend may have onions of
      // this client whose slots an interruption lost, so the frontend decides whether there is
      // room.
      if (held == nullptr && info.onions() + slots > header.max_slots()) continue;
      candidates.push_back(&info);
    }
    std::sort(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
      return a->header().header().counter() < b->header().header().counter();
    });
    absl::Status refused;
    for (const wire::RoundInfo* info : candidates) {
      Digest round_id;
      const auto obtained = TryObtain(*info, slots, round_id);
      if (obtained.ok() && *obtained) return round_id;
      if (!obtained.ok()) {
        if (!absl::IsUnauthenticated(obtained.status()) &&
            !absl::IsInvalidArgument(obtained.status())) {
          return obtained.status();
        }
        refused = obtained.status();  // another round may do
      }
    }
    if (!refused.ok()) return refused;
    if (now_s >= deadline_s) {
      return absl::DeadlineExceededError(
          absl::StrCat("no round took ", slots, " onions within ", options_.timeout_s, " seconds"));
    }
    if (!std::exchange(told, true)) environment_.Tell("waiting for a round that takes onions");
    environment_.sleep(kPollMs);
  }
}

absl::Status ChainClient::DropUnusable() {
  for (HeldRound& held : store_->state().rounds) {
    // The round is of another table or roster, or has expired: its slots are lost.
    if (!held.over && !VerifyRound(held.header).ok()) SHOAL_RETURN_IF_ERROR(GiveUp(held));
  }
  return absl::OkStatus();
}

std::optional<Digest> ChainClient::FindBegun(std::span<const uint32_t> rows) {
  for (const HeldRound& held : store_->state().rounds) {
    if (!held.rows.empty() && held.wanted == WantedDigest(held, rows)) return held.id;
  }
  return std::nullopt;
}

absl::StatusOr<Digest> ChainClient::Obtain(uint32_t queries) {
  SHOAL_RETURN_IF_ERROR(DropUnusable());
  std::vector<HeldRound*> unused;
  for (HeldRound& held : store_->state().rounds) {
    if (!held.over && held.rows.empty() && held.slots.size() >= queries) unused.push_back(&held);
  }
  std::sort(unused.begin(), unused.end(),
            [](const auto* a, const auto* b) { return a->counter() < b->counter(); });
  for (HeldRound* held : unused) {
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundState state, exchange_.StateOf(held->id));
    if (state <= wire::OPEN_FOR_QUERIES) return held->id;
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  }
  return ObtainNew(queries, /*only_new_rounds=*/false);
}

absl::StatusOr<Digest> ChainClient::ObtainAhead(uint32_t slots) {
  if (slots == 0) return absl::InvalidArgumentError("no slots asked for");
  return ObtainNew(slots, /*only_new_rounds=*/true);
}

absl::Status ChainClient::Submit(const Digest& round_id, std::span<const uint32_t> rows) {
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, FindHeld(round_id));
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(held->header));
  const uint32_t tolerance_s = deployment_.roster().clock_tolerance_s();
  environment_.Tell(absl::StrCat("waiting for ", RoundName(*held), " to take queries"));
  SHOAL_ASSIGN_OR_RETURN(const wire::RoundState state,
                         exchange_.WaitFor(round_id, wire::OPEN_FOR_QUERIES,
                                           round.header().queries_close_s() + tolerance_s));
  const bool begun = !held->rows.empty();
  if (state == wire::ABORTED) {
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
    return absl::AbortedError("the round was aborted before it took queries");
  }
  if (state != wire::OPEN_FOR_QUERIES) {
    if (begun) return absl::OkStatus();  // Collect finds out whether the queries arrived
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
    // Nothing was sent, so only the slots are lost.
    return absl::AbortedError("the round closed before this client could send its queries");
  }
  if (!begun) {
    const uint32_t count = Padded(rows.size());
    if (count > held->slots.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          count, " queries, but only ", held->slots.size(), " slots in ", RoundName(*held)));
    }
    held->rows = PadRows(rows, count, deployment_.manifest().rows(), *environment_.random);
    held->wanted = WantedDigest(*held, Sorted({rows.begin(), rows.end()}));
    store_->state().ledger.Add({.sent_s = environment_.clock->NowSeconds(),
                                .round_counter = held->counter(),
                                .queries = count,
                                .noise = deployment_.roster().noise()});
    // Saves the rows and the charge first. From here on these slots carry these rows for ever.
    if (absl::Status saved = store_->Save(); !saved.ok()) {
      held->End();  // what is on disk is unknown, so the slots must not be used
      return saved;
    }
  } else {
    const std::vector<uint32_t> asked = Sorted(held->rows);
    const std::vector<uint32_t> wanted = Sorted({rows.begin(), rows.end()});
    if (!std::includes(asked.begin(), asked.end(), wanted.begin(), wanted.end())) {
      return absl::FailedPreconditionError(
          absl::StrCat("the slots in ", RoundName(*held), " carry other rows"));
    }
  }
  environment_.Tell(absl::StrCat("sending ", held->rows.size(), " queries"));
  const size_t total = held->rows.size();
  std::atomic<size_t> done = 0;
  const absl::Status sent =
      ForPieces(total, QueriesPerPiece(options_.piece_bytes),
                [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
                  const OnionRange range = Part(*held, first, count);
                  SHOAL_RETURN_IF_ERROR(exchange.SubmitQueries(
                      round, {&range, 1}, std::span(held->slots).subspan(first, count),
                      std::span(held->rows).subspan(first, count)));
                  environment_.Count("sending queries", done += count, total);
                  return absl::OkStatus();
                });
  // If the frontend cannot be reached, the same bytes can still be sent later.
  if (!sent.ok() && !absl::IsUnavailable(sent)) SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  return Annotate(sent, "sending queries");
}

absl::StatusOr<std::unique_ptr<AnswerSpool>> ChainClient::OpenSpool(const HeldRound& held) {
  return AnswerSpool::Open(store_->AnswersPath(held.counter()), held.id, held.rows.size(),
                           held.header.header().answer_bytes(), options_.piece_bytes);
}

absl::Status ChainClient::Collect(const Digest& round_id, AnswerSpool& spool) {
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, FindHeld(round_id));
  if (held->rows.empty()) return absl::FailedPreconditionError("no queries were sent");
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(held->header));
  environment_.Tell(absl::StrCat("waiting for the answers of ", RoundName(*held)));
  const uint32_t tolerance_s = deployment_.roster().clock_tolerance_s();
  SHOAL_ASSIGN_OR_RETURN(
      const wire::RoundState state,
      exchange_.WaitFor(round_id, wire::ANSWERED, round.header().expires_s() + tolerance_s));
  if (state != wire::ANSWERED) {
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
    if (state == wire::ABORTED) return absl::AbortedError("the round was aborted");
    return absl::FailedPreconditionError("the round was closed before its answers were fetched");
  }
  const size_t total = held->rows.size();
  environment_.Tell(absl::StrCat("fetching ", total, " answers"));
  std::atomic<size_t> done = 0;
  std::atomic<bool> disk_failed = false;
  const absl::Status fetched =
      ForPieces(total, spool.per_piece(),
                [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
                  const size_t piece = first / spool.per_piece();
                  if (!spool.Has(piece)) {
                    const OnionRange range = Part(*held, first, count);
                    Bytes answers(count * round.answer_bytes());
                    SHOAL_RETURN_IF_ERROR(exchange.FetchAnswers(
                        round, {&range, 1}, std::span(held->slots).subspan(first, count), answers));
                    if (absl::Status put = spool.Put(piece, answers); !put.ok()) {
                      disk_failed = true;
                      return put;
                    }
                  }
                  environment_.Count("fetching answers", done += count, total);
                  return absl::OkStatus();
                });
  // If the frontend or the disk failed, missing answers can still be fetched later.
  if (!fetched.ok() && !absl::IsUnavailable(fetched) && !disk_failed) {
    SHOAL_RETURN_IF_ERROR(GiveUp(*held));
  }
  return Annotate(fetched, "fetching answers");
}

absl::StatusOr<std::unique_ptr<RowAnswers>> ChainClient::Ask(const Wanted& wanted) {
  const std::span<const uint32_t> rows = wanted.rows;
  const uint32_t count = Padded(rows.size());
  costs_.query_seconds = costs_.answer_seconds = 0;
  absl::Status aborted;
  for (uint32_t attempt = 1; attempt <= options_.max_attempts; ++attempt) {
    SHOAL_RETURN_IF_ERROR(DropUnusable());
    std::optional<Digest> round_id = FindBegun(rows);  // begun before an interruption
    if (!round_id) {
      // Checks for room first, as a submission whose answers have none would be charged in vain.
      SHOAL_RETURN_IF_ERROR(AnswerSpool::CheckRoom(
          store_->AnswersPath(0), uint64_t{count} * deployment_.manifest().answer_bytes()));
      SHOAL_ASSIGN_OR_RETURN(round_id, Obtain(count));
    }
    HeldRound* const held = store_->state().FindRound(*round_id);
    SHOAL_ASSIGN_OR_RETURN(round::Round round, VerifyRound(held->header));
    std::unique_ptr<AnswerSpool> spool;
    const Stopwatch asking;
    const auto ask = [&]() -> absl::Status {
      if (!held->rows.empty()) {
        SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(*held));
        if (spool->complete()) return absl::OkStatus();
      }
      SHOAL_RETURN_IF_ERROR(Submit(*round_id, rows));
      if (spool == nullptr) {
        SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(*held));
      }
      return Collect(*round_id, *spool);
    };
    aborted = ask();
    if (aborted.ok()) {
      costs_.answer_seconds = asking.Seconds() / static_cast<double>(held->rows.size());
      return std::make_unique<Answers>(this, held, std::move(round), std::move(spool));
    }
    if (!absl::IsAborted(aborted)) return aborted;
    environment_.Tell(aborted.message());
  }
  return Annotate(aborted, "giving up");
}

absl::Status ChainClient::ForPieces(
    size_t total, size_t piece,
    const std::function<absl::Status(Exchange&, size_t first, size_t count)>& work) {
  if (total <= piece || options_.connections == 1 || !environment_.connect) {
    for (size_t first = 0; first < total; first += piece) {
      SHOAL_RETURN_IF_ERROR(work(exchange_, first, std::min(piece, total - first)));
    }
    return absl::OkStatus();
  }
  if (lanes_ == nullptr) lanes_ = std::make_unique<ThreadPool>(options_.connections - 1);
  const absl::Status status = client::ForPieces(
      total, piece, lanes_.get(), [&](size_t first, size_t count) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, connections_.Take());
        Exchange exchange(transport.get(), environment_.sleep, environment_.clock);
        const absl::Status done = work(exchange, first, count);
        connections_.Give(std::move(transport));
        return done;
      });
  // Closes the connections rather than leave them idle until the round's next state.
  connections_.HangUp();
  return status;
}

void ChainClient::HangUp() {
  exchange_.HangUp();
  connections_.HangUp();
}

Traffic ChainClient::traffic() const {
  const Traffic one = transport_->traffic(), others = connections_.traffic();
  return {one.sent + others.sent, one.received + others.received};
}

}  // namespace shoal::client
